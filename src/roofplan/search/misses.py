"""Why nothing was found, and what would relax it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from roofplan import units
from roofplan.errors import NoPlan
from roofplan.records.hardware import Machine
from roofplan.records.workload import Constraints
from roofplan.search.evaluate import evaluate
from roofplan.search.order import ordered
from roofplan.search.plan import Plan, Request, Tally


def no_plan(asked: Request, tally: Tally) -> NoPlan:
    """Return the refusal that names the binding constraint and what would relax it."""
    if tally.fits == 0 and tally.misses:
        return _memory_miss(asked, tally)
    if tally.legal == 0 and tally.enumerated:
        why = max(tally.refusals, key=lambda k: tally.refusals[k])
        return NoPlan(f"no plan: strategy. {why}", binding="strategy", relax=[])
    if tally.fits == 0:
        why = (
            "; ".join(f"{text} ({n})" for text, n in sorted(tally.refusals.items(), key=lambda i: -i[1])[:3])
            or "no machine is left"
        )
        binding = (
            "budget" if "over the budget" in tally.refusals or "no price of this kind" in tally.refusals else "devices"
        )
        return NoPlan(f"no plan: {binding}. {why}", binding=binding, relax=[])
    return _limit_miss(asked)


def _memory_miss(asked: Request, tally: Tally) -> NoPlan:
    _, machine, strategy, book, _, engine = min(tally.misses, key=lambda miss: miss[0])
    need = units.gib(book.weights)
    have = units.gib(book.capacity)
    what = f"{asked.model.quantization.format if asked.model.quantization else asked.model.dtype} weights need {need} GiB a device at {strategy.label()}"
    if book.weights < book.capacity:
        what += f", one request of {asked.workload.context:,} tokens needs {units.gib(book.shortage)} GiB more than {engine} leaves for the cache"
    text = f"no plan: memory. {what}; {machine.device.id} has {have} GiB"
    return NoPlan(text, binding="memory", relax=relaxations(asked, machine))


def relaxations(asked: Request, machine: Machine) -> list[dict[str, Any]]:
    """Return changes that would give a plan, smallest first: another precision, more devices, a shorter context."""
    from roofplan.catalogue.machines import resized

    out: list[dict[str, Any]] = []
    now = asked.model.quantization.format if asked.model.quantization else asked.model.dtype
    for precision in ("fp8", "awq", "q4_k_m"):
        _try(
            replace(asked, machines=(machine,), precisions=(precision,), engine=None, pins={}),
            {"argument": "--precision", "now": now, "needed": precision},
            out,
        )
        if out:
            break
    for factor in (2, 4, 8):
        count = machine.per_host * factor
        if count > 64:
            break
        bigger = resized(machine, machine.hosts, count) if count <= 8 else None
        if bigger is not None and _try(
            replace(asked, machines=(bigger,), pins={}),
            {"argument": "--on", "now": machine.text, "needed": bigger.text},
            out,
        ):
            break
    if asked.workload.context > asked.workload.input + asked.workload.output:
        shorter = replace(asked.workload, context=asked.workload.input + asked.workload.output)
        _try(
            replace(asked, machines=(machine,), workload=shorter),
            {"argument": "--context", "now": asked.workload.context, "needed": shorter.context},
            out,
        )
    return out


def _try(asked: Request, change: dict[str, Any], out: list[dict[str, Any]]) -> bool:
    plans = evaluate(replace(asked, constraints=Constraints()), Tally())
    if not plans:
        return False
    best = ordered(plans, asked.best)[0]
    out.append(
        {
            **change,
            "plan": {
                "strategy": best.strategy.as_dict(),
                "label": best.label,
                "tpot": best.metrics["tpot"].value,
                "users": best.users,
                "context": best.memory.longest,
                "weights": best.memory.weights,
                "engine": best.engine.id,
            },
        }
    )
    return True


def _limit_miss(asked: Request) -> NoPlan:
    """Return which limit is missed by least, with the value that would let the nearest plan in."""
    c = asked.constraints
    out: list[dict[str, Any]] = []
    quickest = evaluate(
        replace(
            asked, best="latency", constraints=Constraints(devices=c.devices, datacenter=c.datacenter, budget=c.budget)
        ),
        Tally(),
    )
    best = min(quickest, key=lambda plan: plan.metrics["tpot"].value)
    if c.tpot is not None:
        out.append(
            {
                "argument": "--tpot",
                "now": units.show(c.tpot, "s"),
                "needed": units.show(best.metrics["tpot"].value, "s"),
                "plan": _brief(best),
            }
        )
    if c.tokens_per_second_per_user is not None:
        out.append(
            {
                "argument": "--tokens-per-second-per-user",
                "now": c.tokens_per_second_per_user,
                "needed": round(best.metrics["tokens_per_second_per_user"].value, 2),
                "plan": _brief(best),
            }
        )
    if c.ttft is not None:
        first = min(quickest, key=lambda plan: plan.metrics["ttft"].value)
        out.append(
            {
                "argument": "--ttft",
                "now": units.show(c.ttft, "s"),
                "needed": units.show(first.metrics["ttft"].value, "s"),
                "plan": _brief(first),
            }
        )
    if c.concurrency is not None:
        most = max(quickest, key=lambda plan: plan.memory.max_concurrency)
        out.append(
            {
                "argument": "--concurrency",
                "now": c.concurrency,
                "needed": most.memory.max_concurrency,
                "plan": _brief(most),
            }
        )
    if c.power is not None:
        least = min(
            (p for p in quickest if "power" in p.metrics), key=lambda plan: plan.metrics["power"].value, default=None
        )
        if least is not None:
            out.append(
                {
                    "argument": "--power",
                    "now": units.show(c.power, "W"),
                    "needed": units.show(least.metrics["power"].value, "W"),
                    "plan": _brief(least),
                }
            )
    if c.rate is not None:
        out.append({"argument": "--rate", "now": c.rate, "needed": "more devices", "plan": _brief(best)})
    missed = [item for item in out if _is_missed(item, c, best)] or out
    names = ", ".join(item["argument"] for item in missed) or "the constraints together"
    return NoPlan(
        f"no plan: {names} cannot be met by {len(quickest)} configurations that fit",
        binding=missed[0]["argument"].lstrip("-") if missed else "constraints",
        relax=missed,
    )


def _is_missed(item: dict[str, Any], c: Constraints, best: Plan) -> bool:
    name = item["argument"]
    if name == "--tpot":
        return c.tpot is not None and best.metrics["tpot"].value > c.tpot
    if name == "--tokens-per-second-per-user":
        return (
            c.tokens_per_second_per_user is not None
            and best.metrics["tokens_per_second_per_user"].value < c.tokens_per_second_per_user
        )
    if name == "--concurrency":
        return c.concurrency is not None and int(item["needed"]) < c.concurrency
    return True


def _brief(plan: Plan) -> dict[str, Any]:
    return {
        "machine": plan.machine.text or plan.machine.device.id,
        "strategy": plan.strategy.as_dict(),
        "label": plan.label,
        "users": plan.users,
        "tpot": plan.metrics["tpot"].value,
        "engine": plan.engine.id,
    }
