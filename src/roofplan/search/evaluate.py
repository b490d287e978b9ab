"""Every strategy of a machine x users as one grid, pruned by memory, filtered by constraints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from roofplan import economics
from roofplan.operations import element_bytes
from roofplan.records.engine import Engine
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.strategy import Strategy
from roofplan.records.workload import Constraints, Workload
from roofplan.search.plan import DEFAULT_TPOT, Plan, Request, Tally, metrics_of
from roofplan.search.space import at_precision, cache_format, choose_engine, refuses_format, strategies
from roofplan.serve import Ledger, footprints, ledger, legal, predict, wall_power
from roofplan.timing import Rates, rates


def user_ladder(limit: int) -> np.ndarray[Any, Any]:
    """Return the concurrencies that are tried: powers of two and the points between, up to what fits."""
    points = {1, limit}
    size = 1
    while size <= limit:
        points |= {size, min(limit, size * 5 // 4), min(limit, size * 3 // 2), min(limit, size * 7 // 4)}
        size *= 2
    return np.array(sorted(p for p in points if 1 <= p <= limit), dtype=float)


def evaluate(asked: Request, tally: Tally, progress: Callable[[int, int], None] | None = None) -> list[Plan]:
    """Return the best plan of every (machine, precision, strategy), concurrency chosen by the constraints."""
    plans: list[Plan] = []
    feet: dict[tuple[Any, ...], Any] = {}
    models = {precision: at_precision(asked.model, precision) for precision in asked.precisions}
    for index, machine in enumerate(asked.machines):
        for precision in asked.precisions:
            for kv in asked.kv_precisions:
                plans += _machine_plans(asked, machine, models[precision], precision, kv, feet, tally)
        if progress is not None:
            progress(index + 1, len(asked.machines))
    return plans


def _machine_plans(
    asked: Request,
    machine: Machine,
    model: Model,
    precision: str,
    kv: str,
    feet: dict[tuple[Any, ...], Any],
    tally: Tally,
) -> list[Plan]:
    limits = asked.constraints
    if (limits.devices is not None and machine.count > limits.devices) or (
        limits.datacenter and machine.device.geforce_licence
    ):
        return []
    engine = choose_engine(asked.engine, machine, precision)
    if engine is None:
        tally.refusals["engine does not run on the device"] = (
            tally.refusals.get("engine does not run on the device", 0) + 1
        )
        return []
    refusal = refuses_format(model, engine)
    cost = economics.hourly(machine, asked.price)
    if limits.budget is not None and (cost is None or cost.total > limits.budget):
        reason = "no price of this kind" if cost is None else "over the budget"
        tally.refusals[reason] = tally.refusals.get(reason, 0) + 1
        return []
    kv_format = cache_format(model, kv)
    kv_bytes = element_bytes(kv_format)
    kept: list[tuple[Strategy, Ledger]] = []
    for strategy in strategies(model, machine, engine, asked.pins):
        tally.enumerated += 1
        why = refusal or legal(model, strategy, engine)
        if why:
            tally.refusals[why] = tally.refusals.get(why, 0) + 1
            continue
        tally.legal += 1
        key = (precision, kv_bytes, *strategy.as_dict().values())
        if key not in feet:
            feet[key] = footprints(model, strategy, kv_bytes, draft=asked.workload.drafted > 0)
        book = ledger(model, strategy, machine, engine, asked.workload, feet[key])
        if not book.fits:
            tally.misses.append((book.shortage / machine.count, machine, strategy, book, precision, engine.id))
            continue
        tally.fits += 1
        kept.append((strategy, book))
    if not kept:
        return []
    return _predicted(asked, machine, model, engine, kept, cost, precision, kv_format, kv_bytes, tally)


def _predicted(
    asked: Request,
    machine: Machine,
    model: Model,
    engine: Engine,
    kept: list[tuple[Strategy, Ledger]],
    cost: economics.HourlyCost | None,
    precision: str,
    kv_format: str,
    kv_bytes: float,
    tally: Tally,
) -> list[Plan]:
    """Predict all strategies x users of a machine as one grid, then keep the best concurrency of each strategy."""
    r = rates(machine, engine)
    users = [user_ladder(book.max_concurrency) for _, book in kept]
    width = max(len(u) for u in users)
    grid = np.stack([np.pad(u, (0, width - len(u)), mode="edge") for u in users])
    degrees = {
        name: np.array([[getattr(s, name)] for s, _ in kept], dtype=float)
        for name in ("tp", "pp", "dp", "ep", "attention_dp")
    }
    many = Strategy(**degrees)
    budget = kept[0][1].budget_tokens
    p = predict(model, many, engine, asked.workload, r, grid, kv_bytes=kv_bytes, budget=budget)
    shape = grid.shape
    tpot, ttft, rate = (np.broadcast_to(x, shape) for x in (p.tpot.value, p.ttft.value, p.rate))
    busy = np.broadcast_to(p.busy, shape)
    power = wall_power(machine, busy)
    watts = None if power is None else np.broadcast_to(power.value, shape)
    tally.predicted += int(sum(len(u) for u in users))
    ok = _allowed(asked.constraints, tpot, ttft, rate, watts, grid, asked.workload)
    score = _score(asked.best, machine, tpot, rate, watts, cost)
    quick = bool(np.any(ok & (tpot <= DEFAULT_TPOT)))
    plans = []
    for row, (strategy, book) in enumerate(kept):
        column = _choose(asked, users[row], tpot[row], ok[row], score[row], quick=quick)
        if column is None:
            continue
        plans.append(
            _plan(
                asked,
                machine,
                model,
                engine,
                strategy,
                book,
                cost,
                precision,
                kv_format,
                kv_bytes,
                r,
                int(grid[row, column]),
            )
        )
    return plans


def _allowed(c: Constraints, tpot: Any, ttft: Any, rate: Any, watts: Any, users: Any, workload: Workload) -> Any:
    ok = np.ones(np.shape(tpot), dtype=bool)
    if c.tpot is not None:
        ok &= tpot <= c.tpot
    if c.ttft is not None:
        ok &= ttft <= c.ttft
    if c.tokens_per_second_per_user is not None:
        ok &= 1.0 / tpot >= c.tokens_per_second_per_user
    if c.power is not None:
        ok &= watts <= c.power if watts is not None else np.zeros_like(ok)
    if c.concurrency is not None:
        ok &= users >= c.concurrency
    if c.rate is not None:
        ok &= rate / workload.output >= c.rate
    return ok


def _score(best: str, machine: Machine, tpot: Any, rate: Any, watts: Any, cost: economics.HourlyCost | None) -> Any:
    """Return what is to be made small."""
    if best == "latency":
        return tpot
    if best == "throughput":
        return -rate / machine.count
    if best == "devices":
        return machine.count + 0.0 * tpot - 1e-9 * rate
    if best == "energy":
        return np.inf + 0.0 * tpot if watts is None else watts / rate
    return (1e9 - rate / machine.count) + 0.0 * tpot if cost is None else cost.total / rate


def _choose(asked: Request, users: Any, tpot: Any, ok: Any, score: Any, *, quick: bool) -> int | None:
    """Return which concurrency of a strategy is shown.

    With a demand for concurrency it is the least that reaches it; with a limit on time the best within it; with
    neither, the best whose TPOT is at most 50 ms (one user where this strategy has none but another of the machine
    has), or simply the best where nothing on the machine is that quick.
    """
    n = len(users)
    allowed = np.flatnonzero(ok[:n])
    if not len(allowed):
        return None
    c = asked.constraints
    if c.concurrency is not None:
        return int(allowed[0])
    if quick and asked.best != "latency" and c.tpot is None and c.tokens_per_second_per_user is None:
        below = allowed[tpot[allowed] <= DEFAULT_TPOT]
        allowed = below if len(below) else allowed[:1]
    if asked.best == "devices":
        return int(allowed[-1])
    return int(allowed[np.argmin(score[allowed])])


def _plan(
    asked: Request,
    machine: Machine,
    model: Model,
    engine: Engine,
    strategy: Strategy,
    book: Ledger,
    cost: economics.HourlyCost | None,
    precision: str,
    kv_format: str,
    kv_bytes: float,
    r: Rates,
    users: int,
) -> Plan:
    p = predict(model, strategy, engine, asked.workload, r, float(users), kv_bytes=kv_bytes, budget=book.budget_tokens)
    plan = Plan(
        model=model,
        machine=machine,
        engine=engine,
        strategy=strategy,
        workload=asked.workload,
        precision=precision,
        kv_precision=kv_format,
        users=users,
        memory=book,
        rates=r,
        prediction=p,
        cost=cost,
        power=wall_power(machine, float(p.busy)),
        changes_model=precision != "checkpoint",
        utilisation=asked.utilisation,
    )
    plan.metrics = metrics_of(plan)
    return plan
