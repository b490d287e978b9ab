"""Evaluate strategies x users of a machine as one grid, pruned by memory and filtered by constraints."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from roofplan import money
from roofplan.hf.quantization import at_precision
from roofplan.laws import Number
from roofplan.records import units
from roofplan.records.calibration import Fit
from roofplan.records.engine import Engine
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.strategy import Strategy
from roofplan.records.workload import Constraints
from roofplan.serving.ledger import Ledger
from roofplan.serving.plan import DEFAULT_TPOT, Plan, Refusal, Request, Tally
from roofplan.serving.rules import legal
from roofplan.serving.settings import names_of, with_settings
from roofplan.serving.setups import Footprints, Grid, Setup
from roofplan.serving.space import (
    COMPETING,
    cache_format,
    choose_engine,
    held_by,
    refused_device,
    refuses_cache,
    refuses_format,
    strategies,
)


def user_ladder(limit: int, demanded: int | None = None) -> np.ndarray:
    """Return the concurrencies to try, up to the limit: powers of two, points between them, and the demanded one."""
    points = {1, limit} | ({demanded} if demanded else set())
    size = 1
    while size <= limit:
        points |= {size, min(limit, size * 5 // 4), min(limit, size * 3 // 2), min(limit, size * 7 // 4)}
        size *= 2
    return np.array(sorted(p for p in points if 1 <= p <= limit), dtype=float)


def evaluate(asked: Request, tally: Tally, fit: Fit, progress: Callable[[int, int], None] | None = None) -> list[Plan]:
    """Return the best plan of each (machine, precision, strategy), with the concurrency chosen by the constraints.

    Parameters
    ----------
    asked : request of the search.
    tally : counts, changed in place.
    fit : fitted constants.
    progress : called with the number of finished parts of the search and their total.

    Returns
    -------
    Plans that keep all limits, in no order.
    """
    found: list[Plan] = []
    counted: Footprints = {}
    models = {precision: at_precision(asked.model, precision) for precision in asked.precisions}
    for index, machine in enumerate(asked.machines):
        for precision in asked.precisions:
            for kv in asked.kv_precisions:
                for engine in COMPETING if asked.engine == "any" else (asked.engine,):
                    one = replace(asked, engine=engine)
                    found += _on_machine(one, machine, models[precision], precision, kv, counted, tally, fit)
        if progress is not None:
            progress(index + 1, len(asked.machines))
    return found


def _engine(asked: Request, machine: Machine, precision: str) -> tuple[Engine | None, str]:
    """Return the engine of a machine with the given settings, None where there is none, and why."""
    found = choose_engine(asked.engine, machine, asked.model, precision)
    if found is None:
        return None, refused_device(asked.engine, machine, precision)
    if unknown := asked.settings.keys() - names_of(found).values():
        return None, f"{found.called} has no setting {min(unknown)}"
    return with_settings(found, asked.settings), ""


def _on_machine(
    asked: Request,
    machine: Machine,
    model: Model,
    precision: str,
    kv: str,
    counted: Footprints,
    tally: Tally,
    fit: Fit,
) -> list[Plan]:
    limits = asked.constraints
    if limits.devices is not None and machine.count > limits.devices:
        tally.refusals[Refusal("devices", f"more devices than the {limits.devices} allowed")] += 1
        return []
    if limits.datacenter and machine.device.geforce_licence:
        tally.refusals[Refusal("datacenter", "its licence forbids data centres")] += 1
        return []
    engine, lacking = _engine(asked, machine, precision)
    if engine is None:
        tally.refusals[Refusal("engine", lacking)] += 1
        return []
    unread = refuses_format(model, engine, machine)
    cost = money.hourly(machine, asked.price, fit, asked.terms)
    if limits.budget is not None and (cost is None or cost.total > limits.budget):
        none = cost is None
        tally.refusals[
            Refusal("price", "no price of this kind")
            if none
            else Refusal("budget", f"dearer than {units.significant(limits.budget)} USD/h")
        ] += 1
        return []
    held = held_by(model, engine)
    setup = Setup(
        asked=asked,
        machine=machine,
        model=held,
        engine=engine,
        precision=precision,
        kv_precision=cache_format(held, kv),
        cost=cost,
        fit=fit,
        counted=counted,
    )
    kept: list[tuple[Strategy, Ledger]] = []
    cache = refuses_cache(setup.kv_precision, engine)
    for strategy in strategies(held, machine, engine, asked.pins):
        tally.enumerated += 1
        why = unread or cache or legal(held, strategy, engine)
        if why:
            tally.refusals[Refusal("precision" if unread else "strategy", why)] += 1
            continue
        tally.legal += 1
        books = setup.books(strategy)
        if not books[0].fits:
            tally.misses.append((books[0].shortage / machine.count, machine, strategy, books[0], precision, engine.id))
            continue
        tally.fits += 1
        kept += [(strategy, book) for book in books]
    return _chosen(setup, kept, tally) if kept else []


def _chosen(setup: Setup, kept: list[tuple[Strategy, Ledger]], tally: Tally) -> list[Plan]:
    """Predict strategies x users of a machine as one grid, refine it, and return each strategy's best number of users."""
    asked, machine = setup.asked, setup.machine
    ladders = [user_ladder(book.max_concurrency, asked.constraints.concurrency) for _, book in kept]
    users = ladders
    seen: list[set[float]] = [set() for _ in kept]
    degrees = {
        name: np.array([[getattr(s, name)] for s, _ in kept], dtype=float)
        for name in ("tp", "pp", "dp", "ep", "attention_dp")
    }
    many = Strategy(**degrees)
    budgets = [book.budget_tokens for _, book in kept]
    budget = budgets[0] if len(set(budgets)) == 1 else np.array([[one] for one in budgets])

    def columns(ladders: list[np.ndarray]) -> tuple[list[int | None], list[int | None], Grid]:
        """Return the best allowed column of each strategy's ladder, the one around which to refine, and the figures of all."""
        width = max(len(u) for u in ladders)
        points = np.stack([np.pad(u, (0, width - len(u)), mode="edge") for u in ladders])
        grid = setup.grid(many, points, budget)
        reached = against_limits(grid.figures, points, asked)
        pace, rate = reached["tpot"], grid.figures["output_tokens_per_second"]
        for found, u in zip(seen, ladders, strict=True):
            found.update(u.tolist())
        ok = _allowed(asked.constraints, reached)
        score = _score(asked.best, machine, pace, rate * grid.load, reached["power"], setup.cost)
        quick = "tpot" in grid.figures and bool(np.any(ok & (pace <= DEFAULT_TPOT)))
        best = [_choose(asked, u, pace[i], ok[i], score[i], quick=quick) for i, u in enumerate(ladders)]
        # if no point meets a demanded rate, refine around the highest rate that satisfies the other limits
        quickly = _allowed(replace(asked.constraints, rate=None), reached)
        within = [np.flatnonzero(quickly[i, : len(u)]) for i, u in enumerate(ladders)]
        most = [int(x[np.argmax(rate[i, x])]) if len(x) else None for i, x in enumerate(within)]
        near = [c if c is not None else m for c, m in zip(best, most, strict=True)]
        return best, near, grid

    chosen, near, grid = columns(users)
    few = len(asked.machines) <= FEW_MACHINES
    for _ in range(CLOSE_IN if few else 1):
        finer = [u if c is None or (few and _close(u, c)) else _between(u, c) for u, c in zip(users, near, strict=True)]
        if asked.constraints.concurrency is not None or all(
            np.array_equal(f, u) for f, u in zip(finer, users, strict=True)
        ):
            break
        users = finer
        chosen, near, grid = columns(users)
    if few and asked.constraints.concurrency is None:
        # cost is a step function of users (even groups, full tiles), so the last round tries every count nearby
        most = [float(users_of[-1]) for users_of in ladders]
        users = [u if c is None else _around(u, c, m) for u, c, m in zip(users, near, most, strict=True)]
        chosen, _, grid = columns(users)
    tally.count_users([len(found) for found in seen])
    chosen = _one_each(asked, kept, users, chosen)
    return [
        setup.finished(strategy, book, int(users[row][column]), grid, (row, column))
        for row, ((strategy, book), column) in enumerate(zip(kept, chosen, strict=True))
        if column is not None
    ]


def _one_each(
    asked: Request, kept: list[tuple[Strategy, Ledger]], users: list[np.ndarray], chosen: list[int | None]
) -> list[int | None]:
    """Return the chosen columns with one for each strategy, and without idle replicas where a strategy has none."""
    # of several limits on running sequences, keep the smallest that meets a demanded rate, else the largest
    best: dict[Strategy, int] = {}
    for index, ((strategy, _), column) in enumerate(zip(kept, chosen, strict=True)):
        if column is not None and (strategy not in best or asked.constraints.rate is None):
            best[strategy] = index
    chosen = [column if best.get(kept[i][0]) == i else None for i, column in enumerate(chosen)]
    idle = [
        column is not None and u[column] < s.replicas for (s, _), u, column in zip(kept, users, chosen, strict=True)
    ]
    if "dp" not in asked.pins and any(not no and c is not None for no, c in zip(idle, chosen, strict=True)):
        chosen = [None if no else column for no, column in zip(idle, chosen, strict=True)]
    return chosen


CLOSE_IN, FEW_MACHINES = 5, 8
"""Refinement rounds around the best concurrency, and the number of machines above which there is only one [1]."""

FINER = 14
"""Points of each refinement round [1]."""


def _between(ladder: np.ndarray, column: int) -> np.ndarray:
    """Return whole numbers of users around a point of a ladder, and the ladder's first point."""
    low, high = ladder[max(0, column - 1)], ladder[min(len(ladder) - 1, column + 1)]
    points = np.unique(np.round(np.concatenate(([ladder[0], ladder[column]], np.linspace(low, high, FINER)))))
    return points if high - low > 2 else ladder


NEARBY = 96
"""Users on either side of the best among which the last round tries every count [1]."""


def _close(ladder: np.ndarray, column: int) -> bool:
    """Return whether the last round tries every count between the neighbours of a point of a ladder."""
    return bool(ladder[min(len(ladder) - 1, column + 1)] - ladder[max(0, column - 1)] <= NEARBY)


def _around(ladder: np.ndarray, column: int, most: float) -> np.ndarray:
    """Return the ladder's points and every whole number of users near one of them, up to the maximum that fits."""
    best = ladder[column]
    return np.unique(np.concatenate((ladder, np.arange(max(1.0, best - NEARBY), min(most, best + NEARBY) + 1.0))))


DEMANDS = frozenset({"tokens_per_second_per_user", "concurrency", "rate"})
"""Limits in `Constraints` that a plan has to reach; the others it may not exceed."""


def against_limits(figures: Mapping[str, Number], users: Number, asked: Request) -> dict[str, Number]:
    """Return what is held against the limits in `Constraints`, by their name; infinite if unknown.

    Parameters
    ----------
    figures : by metric, in its unit, floats or arrays.
    users : on the whole machine [1].
    asked : the request with the limits.

    Returns
    -------
    Floats or arrays.
    """
    pace = figures["tpot" if "tpot" in figures else "cycle_time"]
    return {
        "tpot": pace,
        "ttft": figures["ttft"],
        "tokens_per_second_per_user": 1.0 / pace,
        "concurrency": users,
        "rate": figures["output_tokens_per_second"] * asked.utilisation / asked.workload.output,
        "power": figures.get("power", math.inf),
    }


def _allowed(limits: Constraints, reached: Mapping[str, Number]) -> np.ndarray:
    """Return where a grid keeps all limits."""
    kept = np.ones_like(reached["tpot"], dtype=bool)
    for name, values in reached.items():
        wanted = getattr(limits, name)
        if wanted is not None:
            kept &= values >= wanted if name in DEMANDS else values <= wanted
    return kept


def _score(
    best: str, machine: Machine, tpot: Number, rate: Number, watts: Number, cost: money.HourlyCost | None
) -> Number:
    """Return the objective to minimise."""
    if best == "latency":
        return tpot
    if best == "devices":
        return machine.count + 0.0 * tpot - 1e-9 * rate
    if best == "energy":
        return watts / rate
    return -rate / machine.count if best == "throughput" or cost is None else cost.total / rate


def _choose(asked: Request, users: Number, tpot: Number, ok: Number, score: Number, *, quick: bool) -> int | None:
    """Return the column of the concurrency to show for a strategy, None if none is allowed.

    With a demanded concurrency or rate, it is the smallest that meets the demand. With a limit on TPOT, it is the best
    within that limit. With neither, it is the best with a TPOT of at most 50 ms: a single user if this strategy has
    none but another on the machine has, and simply the best if no strategy on the machine is that fast.
    Of users that are as good as the best, to `PLATEAU`, the fewest count.
    """
    n = len(users)
    allowed = np.flatnonzero(ok[:n])
    if not len(allowed):
        return None
    c = asked.constraints
    if c.concurrency is not None or c.rate is not None:
        return int(allowed[0])
    if quick and asked.best != "latency" and c.tpot is None and c.tokens_per_second_per_user is None:
        below = allowed[tpot[allowed] <= DEFAULT_TPOT]
        allowed = below if len(below) else allowed[:1]
    if asked.best == "devices":
        return int(allowed[-1])
    level = score[allowed]
    return int(allowed[np.flatnonzero(level <= level.min() + PLATEAU * abs(level.min()))[0]])


PLATEAU = 1e-3
"""Relative gain below which more users bring nothing but longer waits for first tokens [1]."""
