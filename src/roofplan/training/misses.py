"""Why no training plan satisfies the limits, and remedies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from roofplan import catalogue
from roofplan.catalogue.machines import resized
from roofplan.errors import InputError, NoPlan, Remedy, unwrap
from roofplan.records.calibration import Fit
from roofplan.records.hardware import Machine
from roofplan.records.training import Adapter
from roofplan.records.units import DAY
from roofplan.training.plan import (
    ADAPTER_BYTES,
    ALL_PRODUCTS,
    TrainingPlan,
    TrainingRequest,
    dense_peak,
    flops_per_token,
    planned,
)
from roofplan.training.search import LEAST_SEQUENCE, Tally, search, tensor_degrees

MORE = (2, 4, 8, 16, 32, 64)
"""Multiples of a machine that are tried as remedies [1]."""

LEAST_SHORTENED = 512
"""Shortest sequence that is suggested, an eighth of the default [token]."""

MOST_FINE_TUNED = 10e9
"""Largest run for which low-rank updates are suggested; a longer one is not fine-tuning [token]."""


def memory_miss(asked: TrainingRequest, machine: Machine, tally: Tally, fit: Fit) -> NoPlan:
    """Return the refusal if nothing fits: the least memory needed on the nearest machine, and tried remedies."""
    need = tally.least_memory + asked.framework.keeps("outside")
    room = machine.device.room
    text = (
        f"no plan: memory. the leanest layout, {tally.leanest.label() if tally.leanest else ''}, needs"
        f" {need / 2**30:.1f} GiB a device; {machine.device.id} has {room / 2**30:.1f} GiB"
    )
    has = machine.host_memory
    if need <= room and has is not None and math.isfinite(tally.least_host) and tally.least_host > has:
        text = (
            f"no plan: host memory. what leaves the devices needs {tally.least_host / 2**30:,.0f} GiB in each host;"
            f" {machine.text or machine.device.id} has {has / 2**30:,.0f}"
        )
    ways = (_offloaded, _elsewhere, _fine_tuned, _shorter)
    tried = [found for way in ways for found in way(asked, machine, fit)]
    larger = (_way({"--on": m.text}, "--on", machine.text, asked, m, fit) for m in _larger(machine) if not asked.pins)
    first = next((way for way in larger if way), None)
    refusal = NoPlan(text, binding="memory", relax=[*tried, *([first] if first else [])])
    refusal.search = tally
    return refusal


def _way(
    flags: dict[str, str], argument: str, now: object, asked: TrainingRequest, machine: Machine, fit: Fit
) -> Remedy | None:
    """Return a changed request as a remedy with its layout, None if it has none."""
    try:
        found = search(asked.model, asked.job, machine, asked.framework, fit, asked.pins)
    except InputError:
        return None
    if not found.layouts:
        return None
    plan = {"layout": found.layouts[0][2].label(), "step_time": found.layouts[0][0]}
    return _remedy(flags, argument, now) | {"plan": plan}


def _remedy(flags: dict[str, str], argument: str, now: object) -> Remedy:
    """Return a remedy from its flags, the main one first."""
    others = {flag: value for flag, value in flags.items() if flag != argument}
    text = " ".join(f"{flag} {value}" for flag, value in ({argument: flags[argument]} | others).items())
    return {"argument": argument, "now": now, "needed": flags[argument], "also": others, "text": text}


def _typed(pins: dict[str, object]) -> str:
    return ",".join(f"{name}={value}" for name, value in pins.items())


def _offloaded(asked: TrainingRequest, machine: Machine, fit: Fit) -> list[Remedy]:
    """Return the remedy of offloading the optimizer to host memory."""
    if "offload" in asked.pins or asked.job.adapter is not None:
        return []
    pins = {**asked.pins, "offload": "optimizer"}
    found = _way({"--strategy": _typed(pins)}, "--strategy", "none", replace(asked, pins=pins), machine, fit)
    return [found] if found else []


def _elsewhere(asked: TrainingRequest, machine: Machine, fit: Fit) -> list[Remedy]:
    """Return the remedy of another framework in which the job fits, the one with the fastest step."""
    method = asked.job.adapter.method if asked.job.adapter is not None else "full"
    out = []
    for other in map(catalogue.framework, catalogue.ids("frameworks")):
        could = other.newest and method in other.methods and machine.device.vendor in other.vendors
        if could and other.name != asked.framework.name:
            found = _way(
                {"--framework": other.name},
                "--framework",
                asked.framework.id,
                replace(asked, framework=other),
                machine,
                fit,
            )
            out += [found] if found else []
    return sorted(out, key=lambda way: way["plan"]["step_time"])[:1]


def _fine_tuned(asked: TrainingRequest, machine: Machine, fit: Fit) -> list[Remedy]:
    """Return the remedy of QLoRA at the same batch and sequence, if the run may be fine-tuning and its weights are wider."""
    job, now = asked.job, asked.job.adapter
    if (now is not None and now.method != "lora") or asked.pins or (job.tokens or 0.0) > MOST_FINE_TUNED:
        return []
    small = replace(
        now or Adapter(method="qlora", rank=16, targets=ALL_PRODUCTS, stored="bnb-nf4", bytes=ADAPTER_BYTES),
        method="qlora",
        stored="bnb-nf4",
    )
    framework = catalogue.framework("fsdp-qlora-1.0")
    other = replace(asked, job=replace(job, adapter=small), framework=framework)
    flags = {"--method": "qlora", "--batch": f"{job.batch}seq", "--sequence": str(job.sequence)}
    flags |= {"--base": small.stored} if now else {}
    flags |= {"--framework": framework.name} if asked.framework.name != framework.name else {}
    found = _way(flags, "--method", now.method if now else "full", other, machine, fit)
    return [found] if found else []


def _shorter(asked: TrainingRequest, machine: Machine, fit: Fit) -> list[Remedy]:
    """Return the remedy of the longest of the halved sequences that fits, at as many tokens a step."""
    job = asked.job
    sequence, batch = job.sequence, job.batch
    while sequence % 2 == 0 and sequence // 2 >= LEAST_SHORTENED:
        sequence, batch = sequence // 2, 2 * batch
        flags = {"--sequence": str(sequence), "--batch": f"{batch}seq"}
        other = replace(asked, job=replace(job, sequence=sequence, batch=batch))
        if found := _way(flags, "--sequence", job.sequence, other, machine, fit):
            return [found]
    return []


def _larger(machine: Machine) -> list[Machine]:
    """Return larger machines of the same device, connected as in the catalogue."""
    return [found for factor in MORE if (found := resized(machine, machine.count * factor)) is not None]


def within_limits(asked: TrainingRequest, plans: list[TrainingPlan], tally: Tally, fit: Fit) -> list[TrainingPlan]:
    """Return the plans within deadline and budget.

    Raises
    ------
    NoPlan : no plan is within both; holds each limit that is enough to relax alone, else both, with the needed values.
    """
    kept = [plan for plan in plans if not _over(plan, asked)]
    if kept:
        return kept
    in_time = [plan for plan in plans if "deadline" not in _over(plan, asked)]
    paid = [plan for plan in plans if "budget" not in _over(plan, asked)]
    ways = [_moved(min(in_time, key=_bill), ("budget",), asked)] if any(map(_priced, in_time)) else []
    ways += [_moved(min(paid, key=_days), ("deadline",), asked)] if paid else []
    if not ways:
        nearest = min(
            plans, key=lambda plan: _days(plan) / (asked.deadline or 1.0) + _bill(plan) / (asked.budget or 1.0)
        )
        ways = (
            [_moved(nearest, tuple(_over(nearest, asked)), asked)] if _priced(nearest) or asked.budget is None else []
        )
    late = asked.deadline is not None and not in_time
    refusal = _late(asked, min(plans, key=_days), ways, fit) if late else _dear(asked, in_time, ways)
    refusal.search = tally
    raise refusal


def _days(plan: TrainingPlan) -> float:
    """Return the time of a run [s]."""
    return plan.metrics["days"].value * DAY


def _priced(plan: TrainingPlan) -> bool:
    return "cost" in plan.metrics


def _bill(plan: TrainingPlan) -> float:
    """Return the cost of a run, infinite without a price [USD]."""
    return plan.metrics["cost"].value if _priced(plan) else math.inf


def _over(plan: TrainingPlan, asked: TrainingRequest) -> list[str]:
    """Return the limits that a plan exceeds."""
    late = asked.deadline is not None and _days(plan) > asked.deadline
    dear = asked.budget is not None and _bill(plan) > asked.budget
    return [*(["deadline"] if late else []), *(["budget"] if dear else [])]


def _moved(plan: TrainingPlan, limits: Sequence[str], asked: TrainingRequest) -> Remedy:
    """Return the remedy of relaxing limits to a plan's values."""
    needed = {
        "deadline": f"{math.ceil(_days(plan) / DAY * 10) / 10:.1f}d",
        "budget": f"{math.ceil(min(_bill(plan), 1e15))}USD",
    }
    now = {"deadline": f"{(asked.deadline or 0.0) / DAY:.1f}d", "budget": f"{asked.budget or 0.0:.0f}USD"}
    flags = {f"--{name}": needed[name] for name in limits}
    shown = {"layout": plan.layout.label(), "step_time": float(plan.step.time), "machine": plan.machine.text}
    return _remedy(flags, f"--{limits[0]}", now[limits[0]]) | {"plan": shown}


def _dear(asked: TrainingRequest, plans: Sequence[TrainingPlan], ways: list[Remedy]) -> NoPlan:
    """Return the refusal if every plan within the deadline exceeds the budget."""
    least = min(plans, key=_bill)
    if not _priced(least):
        given = _remedy({"--price": "2.50USD/h"}, "--price", asked.price)
        return NoPlan("no plan: budget. no price is known", binding="budget", relax=[given])
    in_time = " that meets the deadline" if asked.deadline is not None else ""
    cost = math.ceil(_bill(least))
    return NoPlan(f"no plan: budget. the cheapest plan{in_time} takes {cost:,} USD", binding="budget", relax=ways)


def _late(asked: TrainingRequest, nearest: TrainingPlan, ways: list[Remedy], fit: Fit) -> NoPlan:
    """Return the refusal if every plan misses the deadline, with the nearest plan and the lower bound on run time."""
    days, limit = _days(nearest) / DAY, unwrap(asked.deadline) / DAY
    least = least_time(asked, nearest) / DAY
    text = f"no plan: deadline. the fastest, {nearest.label} on {nearest.machine.text or nearest.machine.device.id}, takes {days:.1f} days"
    if least > limit and nearest.run is not None:
        text += (
            f"; more devices cannot bring it below {least:.2g} days: {nearest.run.steps:,.0f} times a sequence of"
            f" {asked.job.sequence:,} at the dense peak of every rank that can share it"
        )
    elif not asked.pins:
        ways = [*ways, *_in_time(asked, nearest, fit)]
    return NoPlan(text, binding="deadline", relax=ways)


def _in_time(asked: TrainingRequest, nearest: TrainingPlan, fit: Fit) -> list[Remedy]:
    """Return the smallest multiple of a plan's machine whose best layout meets deadline and budget."""
    for machine in _larger(nearest.machine):
        if asked.devices is not None and machine.count > asked.devices:
            continue
        try:
            found = search(asked.model, asked.job, machine, asked.framework, fit, asked.pins)
        except InputError:
            continue
        if not found.layouts:
            continue
        plan = planned(asked, machine, found.layouts[0][2], fit)
        if not _over(plan, asked):
            shown = {"layout": plan.layout.label(), "step_time": float(plan.step.time)}
            return [_remedy({"--on": machine.text}, "--on", nearest.machine.text) | {"plan": shown}]
    return []


def least_time(asked: TrainingRequest, plan: TrainingPlan) -> float:
    """Return the lower bound on run time for any number of devices [s].

    Each sequence runs at the dense peak on the most ranks that heads and context allow. A pipeline does not shorten one
    sequence's passage through all layers, and the next step waits for it.
    """
    widest = max(tensor_degrees(asked.model, MOST_TENSOR)) * max(1, asked.job.sequence // LEAST_SEQUENCE)
    work = sum(flops_per_token(asked.model, asked.job.sequence, asked.job.adapter)) * asked.job.sequence
    return float(work / (widest * dense_peak(plan)) * (plan.run.steps if plan.run else 1.0))


MOST_TENSOR = 2**10
"""Upper limit in the search for the largest tensor-parallel degree of a model [1]."""
