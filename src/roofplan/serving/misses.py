"""Why a request has no plan."""

from __future__ import annotations

import math

from roofplan.errors import NoPlan, Remedy, StrategyError
from roofplan.records import units
from roofplan.records.calibration import Fit
from roofplan.records.strategy import Strategy
from roofplan.serving.plan import Refusal, Request, Tally
from roofplan.serving.rules import legal
from roofplan.serving.space import choose_engine
from roofplan.serving.ways_out import LIMITS, ways_out


def no_plan(asked: Request, tally: Tally, fit: Fit, *, remedies: bool = True) -> NoPlan:
    """Return the refusal with its binding constraint and, if wanted, the changes that would give a plan."""
    machine = asked.machines[0] if asked.machines else None
    if tally.misses:
        machine = min(tally.misses, key=lambda miss: miss[0])[1]
    if tally.enumerated == 0 and asked.pins and not tally.refusals:
        raise StrategyError(
            f"--strategy {_pinned(asked)}: {_why_not_divided(asked)}", argument="--strategy", value=_pinned(asked)
        )
    if tally.legal == 0 and tally.enumerated:
        limit, why = _main_reason(tally)
        if asked.pins and limit == "strategy":
            raise StrategyError(f"--strategy {_pinned(asked)}: {why}", argument="--strategy", value=_pinned(asked))
        binding = limit if limit == "precision" else "strategy"
        ways = ways_out(asked, machine, fit) if remedies else []
        return NoPlan(f"no plan: {binding}. {why}", binding=binding, relax=ways)
    ways = ways_out(asked, machine, fit) if remedies else []
    if tally.fits:
        return _limit_miss(asked, ways)
    # report machines that a limit excludes before machines that are too small
    out = next((way["argument"] for way in ways if way["argument"] in EXCLUDING and not way["also"]), None)
    if out is None and tally.misses:
        return _memory_miss(asked, tally, ways)
    if out is None and not ways and "price" in {one.limit for one in tally.refusals}:
        ways = [_given_price(asked)]
    binding = out.removeprefix("--") if out else _excluded_by(tally)
    why = "; ".join(
        one.text if n == 1 else f"{one.text} ({n} machines)"
        for one, n in sorted(tally.refusals.items(), key=lambda item: -item[1])[:3]
    )
    return NoPlan(f"no plan: {binding}. {why or 'no machine is left'}", binding=binding, relax=ways)


EXCLUDING = ("--budget", "--devices")
"""Limits that exclude whole machines."""


def _main_reason(tally: Tally) -> Refusal:
    """Return the most frequent refusal; missing engine support counts only if there is no other."""
    ruled = {one: n for one, n in tally.refusals.items() if one.limit != "engine"} or tally.refusals
    return max(ruled, key=lambda one: ruled[one])


def _excluded_by(tally: Tally) -> str:
    """Return the limit that excluded the most machines."""
    return _main_reason(tally).limit if tally.refusals else "devices"


def _given_price(asked: Request) -> Remedy:
    """Return the remedy for an unknown price: to give one."""
    needed = "2.50USD/h"
    return {
        "argument": "--price",
        "now": asked.price,
        "needed": needed,
        "also": {},
        "text": f"--price {needed}  (what a device costs you)",
    }


def _pinned(asked: Request) -> str:
    return ",".join(f"{name}={value}" for name, value in asked.pins.items())


def _why_not_divided(asked: Request) -> str:
    """Return why no strategy has the pinned degrees: the device count, or the engine's rules."""
    whole = {name: asked.pins.get(name, 1) for name in ("tp", "pp", "dp")}
    counts = sorted({machine.count for machine in asked.machines})
    product = math.prod(whole.values())
    if len(asked.pins.keys() & whole.keys()) == len(whole) and product not in counts:
        return f"degrees multiply to {product}; the machine has {', '.join(map(str, counts))} devices"
    for machine in asked.machines:
        engine = choose_engine(asked.engine, machine, asked.model, asked.precisions[0])
        if engine is None:
            continue
        ep, inner = asked.pins.get("ep", 1), asked.pins.get("attention_dp", 1)
        tensor = asked.pins.get("tp", max(ep, inner))
        pinned = Strategy(tp=tensor, pp=whole["pp"], dp=whole["dp"], ep=ep, attention_dp=inner)
        why = legal(asked.model, pinned, engine)
        if why:
            return why
        if "ep" in asked.pins and asked.pins["ep"] > 1:
            return f"{engine.id} divides experts over as many ranks as divide tp"
        if "attention_dp" in asked.pins:
            return f"{engine.id} divides attention only inside tp, for models with experts or a latent cache"
    return "no engine divides these machines so"


def _memory_miss(asked: Request, tally: Tally, ways: list[Remedy]) -> NoPlan:
    _, machine, strategy, book, precision, engine = min(tally.misses, key=lambda miss: miss[0])
    need, have = units.gib(book.weights), units.gib(book.capacity)
    stored = asked.model.quantization.format if asked.model.quantization else asked.model.dtype
    what = (
        f"{stored if precision == 'checkpoint' else precision} weights need {need} GiB a device at {strategy.label()}"
    )
    if book.weights < book.capacity:
        who = f"{book.at_start:.0f} slots of" if book.at_start > 1.0 else "one request of"
        need = "need" if book.at_start > 1.0 else "needs"
        what += f", {who} {asked.workload.context:,} tokens {need} {units.gib(book.shortage)} GiB more than {engine} leaves for the cache"
    return NoPlan(f"no plan: memory. {what}; {machine.device.id} has {have} GiB", binding="memory", relax=ways)


def _limit_miss(asked: Request, ways: list[Remedy]) -> NoPlan:
    """Return the refusal of a request whose plans fit in memory but miss limits on time, load or power."""
    c = asked.constraints
    given = [one.flag for one in LIMITS if getattr(c, one.field) is not None]
    alone = [way["argument"] for way in ways if way["argument"] in given and not way["also"]]
    if alone:
        text = f"no plan: {', '.join(alone)} cannot be met" + ("" if len(given) == 1 else " beside the other limits")
        return NoPlan(text, binding=alone[0].lstrip("-"), relax=ways)
    unknown = sorted({m.device.id for m in asked.machines if m.device.value("power") is None})
    if c.power is not None and unknown:
        return NoPlan(
            f"no plan: power. the power of {', '.join(unknown[:4])} is not known", binding="power", relax=ways
        )
    text = f"no plan: {' and '.join(given) or 'the constraints'} cannot be met together, nor by letting one of them go"
    return NoPlan(text, binding="constraints", relax=ways)
