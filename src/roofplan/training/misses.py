"""Why no training plan satisfies the limits, and what would."""

from __future__ import annotations

import math
from dataclasses import replace

from roofplan import catalogue
from roofplan.catalogue.machines import machine as machine_of
from roofplan.errors import InputError, NoPlan, Remedy, RoofplanError
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


def memory_miss(asked: TrainingRequest, machines: list[Machine], tally: Tally, fit: Fit) -> NoPlan:
    """Return the refusal where nothing fits: what the leanest layout needs, and ways out that were tried."""
    machine, need = machines[-1], tally.least_memory
    room = float(machine.device.memory or 0.0)
    text = (
        f"no plan: memory. the leanest layout, {tally.leanest.label() if tally.leanest else ''}, needs"
        f" {need / 2**30:.1f} GiB a device; {machine.device.id} has {room / 2**30:.1f}"
    )
    has = machine.host_memory
    if need <= room and has is not None and math.isfinite(tally.least_host) and tally.least_host > has:
        text = (
            f"no plan: host memory. what leaves the devices needs {tally.least_host / 2**30:,.0f} GiB in each host;"
            f" {machine.text or machine.device.id} has {has / 2**30:,.0f}"
        )
    relax: list[Remedy] = []
    if "offload" not in asked.pins and asked.job.adapter is None:
        found = _trial(replace(asked, pins={**asked.pins, "offload": "optimizer"}), machine, fit)
        change = {"argument": "--strategy", "now": "none", "needed": "offload=optimizer"}
        relax += [change | {"plan": found}] if found else []
    for factor in (2, 4, 8, 16, 32, 64):
        more = machine.count * factor
        found = _trial(asked, _larger(machine, more), fit) if not asked.pins else None
        if found:
            relax.append(
                {"argument": "--on", "now": machine.count, "needed": f"{machine.device.id}:{more}", "plan": found}
            )
            break
    if asked.job.adapter is None:
        small = Adapter(method="qlora", rank=16, targets=ALL_PRODUCTS, stored="bnb-nf4", bytes=ADAPTER_BYTES)
        other = replace(
            asked, job=replace(asked.job, adapter=small), framework=catalogue.framework("fsdp-qlora-1.0"), pins={}
        )
        found = _trial(other, machine, fit)
        change = {"argument": "--method", "now": "full", "needed": "qlora"}
        relax += [change | {"plan": found}] if found else []
    refusal = NoPlan(text, binding="memory", relax=relax)
    refusal.search = tally
    return refusal


def _larger(machine: Machine, count: int) -> Machine | None:
    """Return more devices of a kind as the catalogue joins them, None where it cannot."""
    try:
        found = machine_of(f"{machine.device.id}:{count}")[0]
        alike = machine.network is not None and found.per_host == machine.per_host
        return replace(found, network=machine.network, ports=machine.ports) if alike else found
    except RoofplanError:
        return None


def _trial(asked: TrainingRequest, machine: Machine | None, fit: Fit) -> Remedy | None:
    """Return the best layout of a changed request, None where there is none."""
    if machine is None:
        return None
    try:
        found = search(asked.model, asked.job, machine, asked.framework, fit, asked.pins)
    except InputError:
        return None
    return {"layout": found.layouts[0][2].label(), "step_time": found.layouts[0][0]} if found.layouts else None


def within_limits(asked: TrainingRequest, plans: list[TrainingPlan], tally: Tally, fit: Fit) -> list[TrainingPlan]:
    """Return the plans within deadline and budget, or say what the nearest one takes."""
    kept = plans
    if asked.deadline is not None:
        inside = [p for p in kept if p.metrics["days"].value * DAY <= asked.deadline]
        if not inside:
            raise _late(asked, min(kept, key=lambda p: p.metrics["days"].value), tally, fit)
        kept = inside
    if asked.budget is not None:
        priced = [p for p in kept if "cost" in p.metrics]
        inside = [p for p in priced if p.metrics["cost"].value <= asked.budget]
        if not inside:
            least = min(priced, key=lambda p: p.metrics["cost"].value, default=None)
            needed = f"{least.metrics['cost'].value:,.0f}USD" if least else "a --price: none is known"
            refusal = NoPlan(
                f"no plan: budget. the cheapest plan takes {needed}",
                binding="budget",
                relax=[{"argument": "--budget", "now": f"{asked.budget:,.0f}USD", "needed": needed}],
            )
            refusal.search = tally
            raise refusal
        kept = inside
    return kept


def _late(asked: TrainingRequest, nearest: TrainingPlan, tally: Tally, fit: Fit) -> NoPlan:
    """Return the refusal where every plan is late: the nearest one, and the time that no number of devices goes below."""
    days, limit = nearest.metrics["days"].value, (asked.deadline or 0.0) / DAY
    least = least_time(asked, nearest) / DAY
    text = f"no plan: deadline. the fastest, {nearest.label} on {nearest.machine.text or nearest.machine.device.id}, takes {days:.1f} days"
    relax = [{"argument": "--deadline", "now": f"{limit:.1f}d", "needed": f"{math.ceil(days * 10) / 10:.1f}d"}]
    if least > limit and nearest.run is not None:
        text += (
            f"; more devices cannot bring it below {least:.2g} days: {nearest.run.steps:,.0f} times a sequence of"
            f" {asked.job.sequence:,} at the dense peak of every rank that can share it"
        )
    elif not asked.pins:
        relax += _in_time(asked, nearest, fit)
    refusal = NoPlan(text, binding="deadline", relax=relax)
    refusal.search = tally
    return refusal


def _in_time(asked: TrainingRequest, nearest: TrainingPlan, fit: Fit) -> list[Remedy]:
    """Return the least doubling of a plan's devices whose best layout meets deadline and budget, tried."""
    for factor in (2, 4, 8, 16, 32):
        machine = _larger(nearest.machine, nearest.machine.count * factor)
        if machine is None:
            continue
        try:
            found = search(asked.model, asked.job, machine, asked.framework, fit, asked.pins)
        except InputError:
            continue
        if not found.layouts:
            continue
        plan = planned(asked, machine, found.layouts[0][2], fit)
        late = plan.metrics["days"].value * DAY > (asked.deadline or math.inf)
        dear = asked.budget is not None and ("cost" not in plan.metrics or plan.metrics["cost"].value > asked.budget)
        if not late and not dear:
            out = {"argument": "--on", "now": nearest.machine.count, "needed": f"{machine.device.id}:{machine.count}"}
            return [out | {"plan": {"layout": plan.label, "step_time": float(plan.step.time)}}]
    return []


def least_time(asked: TrainingRequest, plan: TrainingPlan) -> float:
    """Return what no number of devices goes below: each sequence on as many ranks as heads and context allow, at the dense peak [s].

    A pipeline does not shorten the way of one sequence through all layers, and the next step waits for it.
    """
    widest = max(tensor_degrees(asked.model, MOST_TENSOR)) * max(1, asked.job.sequence // LEAST_SEQUENCE)
    work = sum(flops_per_token(asked.model, asked.job.sequence, asked.job.adapter)) * asked.job.sequence
    return float(work / (widest * dense_peak(plan)) * (plan.run.steps if plan.run else 1.0))


MOST_TENSOR = 2**10
"""Tensor ranks among which the largest that divides a model is looked for [1]."""
