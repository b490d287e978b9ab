"""Why nothing was found, and what would relax it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roofplan import catalogue
from roofplan.catalogue import machines
from roofplan.catalogue.machines import box_size
from roofplan.errors import NoPlan, Remedy, RoofplanError, StrategyError
from roofplan.operations.table import element_bytes
from roofplan.records import units
from roofplan.records.calibration import Fit
from roofplan.records.hardware import Machine
from roofplan.records.strategy import Strategy
from roofplan.records.workload import Constraints
from roofplan.serving.evaluate import MOST_SEATS, evaluate
from roofplan.serving.order import ordered
from roofplan.serving.plan import Plan, Request, Tally
from roofplan.serving.rules import legal
from roofplan.serving.space import choose_engine


def no_plan(asked: Request, tally: Tally, fit: Fit) -> NoPlan:
    """Return the refusal that names the binding constraint and what would relax it."""
    if tally.fits == 0 and tally.misses:
        return _memory_miss(asked, tally, fit)
    if tally.legal == 0 and tally.enumerated:
        ruled = {one: n for one, n in tally.refusals.items() if one.limit != "engine"} or tally.refusals
        limit, why = max(ruled, key=lambda one: ruled[one])
        if asked.pins:
            raise StrategyError(f"--strategy {_pinned(asked)}: {why}", argument="--strategy", value=_pinned(asked))
        binding = limit if limit == "precision" else "strategy"
        return NoPlan(f"no plan: {binding}. {why}", binding=binding, relax=_other_readers(asked, fit))
    if tally.enumerated == 0 and asked.pins and not tally.refusals:
        raise StrategyError(
            f"--strategy {_pinned(asked)}: {_why_not_divided(asked)}", argument="--strategy", value=_pinned(asked)
        )
    if tally.fits == 0:
        why = (
            "; ".join(
                one.text if n == 1 else f"{one.text} ({n} machines)"
                for one, n in sorted(tally.refusals.items(), key=lambda i: -i[1])[:3]
            )
            or "no machine is left"
        )
        return _excluded(asked, tally, why, fit)
    return _limit_miss(asked, fit)


def _other_readers(asked: Request, fit: Fit) -> list[Remedy]:
    """Return other engines, and other formats, with which there is a plan."""
    out: list[Remedy] = []
    for name in ("vllm", "sglang", "tensorrt-llm", "llama.cpp"):
        engine = catalogue.find("engines", name, "--engine")
        change = {"argument": "--engine", "now": asked.engine or "the default", "needed": name}
        if engine != asked.engine and _try(replace(asked, engine=engine), change, out, fit):
            break
    for precision in ("fp8", "q4_k_m"):
        change = {"argument": "--precision", "now": ",".join(asked.precisions), "needed": precision}
        if precision not in asked.precisions and _try(replace(asked, precisions=(precision,)), change, out, fit):
            break
    return out


def _pinned(asked: Request) -> str:
    return ",".join(f"{name}={value}" for name, value in asked.pins.items())


def _why_not_divided(asked: Request) -> str:
    """Return why no strategy of any machine has the pinned degrees: the count, or what the engine divides."""
    whole = {name: asked.pins.get(name, 1) for name in ("tp", "pp", "dp")}
    counts = sorted({machine.count for machine in asked.machines})
    product = math.prod(whole.values())
    if len(asked.pins.keys() & whole.keys()) == len(whole) and product not in counts:
        return f"degrees multiply to {product}; the machine has {', '.join(map(str, counts))} devices"
    for machine in asked.machines:
        engine = choose_engine(asked.engine, machine, asked.precisions[0])
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


def _excluded(asked: Request, tally: Tally, why: str, fit: Fit) -> NoPlan:
    """Return the refusal where every machine was left out before memory was asked: by price, count, licence or engine.

    The way out is tried; where it alone gives no plan, what stands behind it is said and relaxed too.
    """
    c = asked.constraints
    refused = {one.limit for one in tally.refusals}
    if "budget" in refused:
        name, free = "--budget", replace(asked, constraints=replace(c, budget=None))
    elif "devices" in refused:
        name, free = "--devices", replace(asked, constraints=replace(c, devices=None))
    elif "datacenter" in refused:
        name, free = "--datacenter", replace(asked, constraints=replace(c, datacenter=False))
    elif "price" in refused:
        needed = "2.50USD/h, what a device costs you"
        return NoPlan(
            f"no plan: price. {why}",
            binding="price",
            relax=[{"argument": "--price", "now": asked.price, "needed": needed}],
        )
    elif asked.engine is not None:
        name, free = "--engine", replace(asked, engine=None)
    elif asked.precisions != ("checkpoint",):
        name, free = "--precision", replace(asked, precisions=("checkpoint",))
    else:
        return NoPlan(f"no plan: devices. {why}", binding="devices", relax=[])
    binding = name.lstrip("-")
    behind = Tally()
    plans = evaluate(free, behind, fit)
    if not plans:
        beyond = _beyond(free, behind, fit)
        text = f"no plan: {binding}. {why}; without {name}: {beyond.message.removeprefix('no plan: ')}"
        return NoPlan(text, binding=binding, relax=beyond.relax)
    return NoPlan(f"no plan: {binding}. {why}", binding=binding, relax=[_nearest_excluded(name, c, plans, asked)])


def _nearest_excluded(name: str, c: Constraints, plans: list[Plan], asked: Request) -> Remedy:
    """Return the smallest move of a limit that lets one of the plans in that stand beyond it."""
    if name == "--budget":
        total, plan = min(
            ((p.cost.total if p.cost is not None else math.inf, p) for p in plans), key=lambda found: found[0]
        )
        if math.isinf(total):
            return {"argument": "--price", "now": asked.price, "needed": "2.50USD/h, what a device costs you"}
        now, needed = f"{c.budget:g}USD/h", f"{math.ceil(total * 100) / 100:.2f}USD/h"
        return {"argument": name, "now": now, "needed": needed, "plan": _brief(plan)}
    if name == "--devices":
        plan = min(plans, key=lambda p: p.machine.count)
        return {"argument": name, "now": c.devices, "needed": plan.machine.count, "plan": _brief(plan)}
    plan = ordered(plans, asked.best)[0]
    if name == "--engine":
        return {"argument": name, "now": asked.engine, "needed": plan.engine.name, "plan": _brief(plan)}
    licence = "left out, or a card without the GeForce licence"
    needed = licence if name == "--datacenter" else "left out"
    return {"argument": name, "now": "given", "needed": needed, "plan": _brief(plan)}


def _beyond(asked: Request, tally: Tally, fit: Fit) -> NoPlan:
    try:
        return no_plan(asked, tally, fit)
    except StrategyError as error:
        return NoPlan(error.message, binding="strategy")


def _memory_miss(asked: Request, tally: Tally, fit: Fit) -> NoPlan:
    _, machine, strategy, book, precision, engine = min(tally.misses, key=lambda miss: miss[0])
    need = units.gib(book.weights)
    have = units.gib(book.capacity)
    stored = asked.model.quantization.format if asked.model.quantization else asked.model.dtype
    what = (
        f"{stored if precision == 'checkpoint' else precision} weights need {need} GiB a device at {strategy.label()}"
    )
    if book.weights < book.capacity:
        what += f", one request of {asked.workload.context:,} tokens needs {units.gib(book.shortage)} GiB more than {engine} leaves for the cache"
    text = f"no plan: memory. {what}; {machine.device.id} has {have} GiB"
    return NoPlan(text, binding="memory", relax=relaxations(asked, machine, fit))


def relaxations(asked: Request, machine: Machine, fit: Fit) -> list[Remedy]:
    """Return changes that would give a plan, smallest first: another precision, more devices, a shorter context."""
    out: list[Remedy] = []
    now = asked.model.quantization.format if asked.model.quantization else asked.model.dtype
    held = element_bytes(now)
    for precision in ("fp8", "awq", "q4_k_m"):
        if element_bytes(precision) >= held:
            continue
        there = replace(asked, machines=(machine,), precisions=(precision,))
        change = {"argument": "--precision", "now": now, "needed": precision}
        if _try(there, change, out, fit):
            break
        dropped = [flag for flag, given in (("--engine", asked.engine), ("--strategy", asked.pins)) if given]
        change = {**change, "needed": f"{precision} without {' and '.join(dropped)}"}
        if dropped and _try(replace(there, engine=None, pins={}), change, out, fit):
            break
    for bigger in _larger(machine):
        needed = bigger.text + (" without --strategy" if asked.pins else "")
        change = {"argument": "--on", "now": machine.text or machine.device.id, "needed": needed}
        if _try(replace(asked, machines=(bigger,), pins={}), change, out, fit):
            break
    if asked.workload.context > asked.workload.input + asked.workload.output:
        shorter = replace(asked.workload, context=asked.workload.input + asked.workload.output)
        _try(
            replace(asked, machines=(machine,), workload=shorter),
            {"argument": "--context", "now": asked.workload.context, "needed": shorter.context},
            out,
            fit,
        )
    return out


def _larger(machine: Machine) -> list[Machine]:
    """Return the same device in larger numbers: a fuller host, then more full hosts where the catalogue knows a network."""
    found: list[Machine] = []
    full = box_size(machine.device)
    for count in (2, 4, 8, 16, 32, 64):
        if count <= machine.count or (count > full and count % full):
            continue
        try:
            found += machines.machine(f"{machine.device.id}:{count}")
        except RoofplanError:
            continue
    return found


def _try(asked: Request, change: dict[str, Any], out: list[Remedy], fit: Fit) -> bool:
    plans = evaluate(asked, Tally(), fit)
    if not plans:
        return False
    best = ordered(plans, asked.best)[0]
    out.append(
        {
            **change,
            "plan": {
                "strategy": best.strategy.as_dict(),
                "label": best.label,
                **_between(best),
                "users": best.users,
                "context": best.memory.longest,
                "weights": best.memory.weights,
                "engine": best.engine.id,
            },
        }
    )
    return True


def _limit_miss(asked: Request, fit: Fit) -> NoPlan:
    """Return the limits that, each alone let go, would give a plan, with the value that lets the nearest one in."""
    c = asked.constraints
    given = [relaxable for relaxable in RELAXABLE if getattr(c, relaxable.field) is not None]
    out = [item for relaxable in given if (item := _relaxed(asked, relaxable, fit)) is not None]
    names = [f"--{relaxable.field.replace('_', '-')}" for relaxable in given]
    if out:
        missed = ", ".join(item["argument"] for item in out)
        text = f"no plan: {missed} cannot be met" + ("" if len(given) == 1 else " beside the other limits")
        return NoPlan(text, binding=out[0]["argument"].lstrip("-"), relax=out)
    unknown = sorted({m.device.id for m in asked.machines if m.device.value("power") is None})
    if c.power is not None and unknown:
        return NoPlan(f"no plan: power. the power of {', '.join(unknown[:4])} is not known", binding="power")
    text = " and ".join(names) or "the constraints"
    nearest = _nearest(asked, given[0], given, fit) if given else None
    every = [_way_out(asked, one, nearest) for one in given] if nearest is not None else []
    return NoPlan(
        f"no plan: {text} cannot be met together, nor by letting one of them go; all must move",
        binding="constraints",
        relax=every,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxable:
    """A limit or demand, and how the value that would let a plan in is found and written.

    Parameters
    ----------
    field : its name in `Constraints`.
    best : objective whose plans come nearest to it.
    reached : what a plan reaches.
    most : whether the largest reached is nearest, as for demands.
    write : how the value is typed.
    """

    field: str
    best: str
    reached: Callable[[Plan], float]
    write: Callable[[float], str]
    most: bool = False


def _typed(least: float, unit: str) -> str:
    """Return an amount that is no less, as a shell takes it for one word."""
    return units.show(units.at_least(least), unit).replace(" ", "")


RELAXABLE = (
    Relaxable(
        field="tpot",
        best="latency",
        reached=lambda plan: plan.pace.value,
        write=lambda x: _typed(x, "s"),
    ),
    Relaxable(
        field="tokens_per_second_per_user",
        best="latency",
        reached=lambda plan: 1.0 / plan.pace.value,
        write=lambda x: f"{units.at_most(x):g}",
        most=True,
    ),
    Relaxable(
        field="ttft",
        best="latency",
        reached=lambda plan: plan.metrics["ttft"].value,
        write=lambda x: _typed(x, "s"),
    ),
    Relaxable(
        field="concurrency",
        best="devices",
        reached=lambda plan: float(plan.users),
        write=lambda x: f"{x:.0f}",
        most=True,
    ),
    Relaxable(
        field="rate",
        best="throughput",
        reached=lambda plan: plan.metrics["output_tokens_per_second"].value * plan.utilisation / plan.workload.output,
        write=lambda x: f"{units.at_most(x):g}req/s",
        most=True,
    ),
    Relaxable(
        field="power",
        best="latency",
        reached=lambda plan: plan.metrics["power"].value if "power" in plan.metrics else math.inf,
        write=lambda x: _typed(x, "W"),
    ),
)
"""What can be let go once a plan fits; budget, count and licence are asked before."""


def _relaxed(asked: Request, relaxable: Relaxable, fit: Fit) -> Remedy | None:
    """Return how far one limit must be moved while all others stay, or None where that alone gives no plan."""
    plan = _nearest(asked, relaxable, (relaxable,), fit)
    return None if plan is None else _way_out(asked, relaxable, plan)


def _nearest(asked: Request, relaxable: Relaxable, freed: Sequence[Relaxable], fit: Fit) -> Plan | None:
    """Return the plan that comes nearest to one limit with some limits let go, or None where none is left."""
    gone: dict[str, Any] = {one.field: None for one in freed}
    free = replace(asked.constraints, **gone)
    if free.tpot is None:
        free = replace(free, tpot=math.inf)  # no pace is preferred where all that counts is how far one can get
    seats = MOST_SEATS if relaxable.field == "rate" else min(asked.constraints.concurrency or 0, MOST_SEATS)
    plans = [
        plan
        for plan in evaluate(replace(asked, constraints=free, best=relaxable.best, seats=seats), Tally(), fit)
        if math.isfinite(relaxable.reached(plan))
    ]
    pick = max if relaxable.most else min
    return pick(plans, key=relaxable.reached) if plans else None


def _way_out(asked: Request, relaxable: Relaxable, plan: Plan) -> Remedy:
    return {
        "argument": f"--{relaxable.field.replace('_', '-')}",
        "now": relaxable.write(float(getattr(asked.constraints, relaxable.field))),
        "needed": relaxable.write(relaxable.reached(plan)),
        "plan": _brief(plan),
    }


def _between(plan: Plan) -> dict[str, float]:
    """Return the time between tokens of a plan that has one."""
    return {"tpot": plan.metrics["tpot"].value} if "tpot" in plan.metrics else {}


def _brief(plan: Plan) -> Remedy:
    return {
        "machine": plan.machine.text or plan.machine.device.id,
        "strategy": plan.strategy.as_dict(),
        "label": plan.label,
        "users": plan.users,
        **_between(plan),
        "engine": plan.engine.id,
    }
