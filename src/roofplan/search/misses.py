"""Why nothing was found, and what would relax it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from roofplan import economics, units
from roofplan.catalogue import machines
from roofplan.catalogue.machines import box_size
from roofplan.errors import NoPlan, RoofplanError, StrategyError
from roofplan.operations import element_bytes
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
        if asked.pins:
            text = ",".join(f"{name}={value}" for name, value in asked.pins.items())
            raise StrategyError(f"--strategy {text}: {why}", argument="--strategy", value=text)
        return NoPlan(f"no plan: strategy. {why}", binding="strategy", relax=[])
    if tally.enumerated == 0 and asked.pins and not tally.refusals:
        text = ",".join(f"{name}={value}" for name, value in asked.pins.items())
        raise StrategyError(
            f"--strategy {text}: no engine divides these machines so", argument="--strategy", value=text
        )
    if tally.fits == 0:
        why = (
            "; ".join(f"{text} ({n})" for text, n in sorted(tally.refusals.items(), key=lambda i: -i[1])[:3])
            or "no machine is left"
        )
        return _excluded(asked, tally, why)
    return _limit_miss(asked)


def _excluded(asked: Request, tally: Tally, why: str) -> NoPlan:
    """Return the refusal where every machine was left out before memory was asked: by price, count, licence or engine."""
    c = asked.constraints
    out: list[dict[str, Any]] = []
    if "over the budget" in tally.refusals:
        needed = min(cost.total for m in asked.machines if (cost := economics.hourly(m, asked.price)) is not None)
        out.append({"argument": "--budget", "now": f"{c.budget:g}USD/h", "needed": f"{needed:.2f}USD/h"})
    elif "more devices than allowed" in tally.refusals:
        out.append({"argument": "--devices", "now": c.devices, "needed": min(m.count for m in asked.machines)})
    elif "its licence forbids data centres" in tally.refusals:
        out.append(
            {"argument": "--datacenter", "now": "given", "needed": "left out, or a card without the GeForce licence"}
        )
    elif "no price of this kind" in tally.refusals:
        out.append({"argument": "--price", "now": asked.price, "needed": "a price per device such as 2.50USD/h"})
    binding = out[0]["argument"].lstrip("-") if out else "devices"
    return NoPlan(f"no plan: {binding}. {why}", binding=binding, relax=out)


def _memory_miss(asked: Request, tally: Tally) -> NoPlan:
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
    return NoPlan(text, binding="memory", relax=relaxations(asked, machine))


def relaxations(asked: Request, machine: Machine) -> list[dict[str, Any]]:
    """Return changes that would give a plan, smallest first: another precision, more devices, a shorter context."""
    out: list[dict[str, Any]] = []
    now = asked.model.quantization.format if asked.model.quantization else asked.model.dtype
    held = element_bytes(now)
    for precision in ("fp8", "awq", "q4_k_m"):
        if element_bytes(precision) >= held:
            continue
        change = {"argument": "--precision", "now": now, "needed": precision}
        if _try(replace(asked, machines=(machine,), precisions=(precision,), engine=None, pins={}), change, out):
            break
    for bigger in _larger(machine):
        change = {"argument": "--on", "now": machine.text or machine.device.id, "needed": bigger.text}
        if _try(replace(asked, machines=(bigger,), pins={}), change, out):
            break
    if asked.workload.context > asked.workload.input + asked.workload.output:
        shorter = replace(asked.workload, context=asked.workload.input + asked.workload.output)
        _try(
            replace(asked, machines=(machine,), workload=shorter),
            {"argument": "--context", "now": asked.workload.context, "needed": shorter.context},
            out,
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


def _try(asked: Request, change: dict[str, Any], out: list[dict[str, Any]]) -> bool:
    plans = evaluate(asked, Tally())
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
