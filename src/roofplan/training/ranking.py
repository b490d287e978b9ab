"""Plans of every machine in order, the best first, of those that satisfy the limits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from roofplan.errors import InputError, NoPlan, RoofplanError
from roofplan.records.calibration import Fit
from roofplan.records.training import Layout
from roofplan.training.misses import memory_miss, within_limits
from roofplan.training.plan import TrainingPlan, TrainingRequest, planned
from roofplan.training.search import AXES, Found, Tally, search
from roofplan.training.warnings import quicker_elsewhere, slower_network, warnings_of


@dataclass(slots=True, kw_only=True)
class TrainingResult:
    """Plans in order, the best first; the tally beside them, and the constants that they rest on."""

    plans: list[TrainingPlan]
    tally: Tally
    asked: TrainingRequest
    fit: Fit
    warnings: list[tuple[str, str]] = field(default_factory=list)
    front: list[TrainingPlan] = field(default_factory=list)


def plan_all(asked: TrainingRequest, fit: Fit, progress: Callable[[int, int], None] | None = None) -> TrainingResult:
    """Return the plans of a request, best first.

    Parameters
    ----------
    asked : model, job, machines, framework and limits.
    fit : fitted constants.
    progress : called with the layouts tried so far and their number.

    Returns
    -------
    Ranked plans, the Pareto front and what the search counted.

    Raises
    ------
    NoPlan : nothing fits, or nothing within the limits; carries what would.
    """
    started = time.process_time()
    tally, plans, fronts = Tally(), [], []
    first: RoofplanError | None = None
    limit = asked.devices
    once = {m.text or m.device.id: m for m in asked.machines}
    machines = [m for m in once.values() if limit is None or m.count <= limit]
    if not machines:
        least = min(m.count for m in asked.machines)
        raise NoPlan(
            f"no plan: devices. the smallest machine asked for has {least:,} devices, more than --devices {limit}",
            binding="devices",
            relax=[{"argument": "--devices", "now": limit, "needed": least}],
        )
    for index, machine in enumerate(machines):
        try:
            found = search(
                asked.model,
                asked.job,
                machine,
                asked.framework,
                fit,
                asked.pins,
                progress if len(machines) == 1 else None,
            )
        except InputError as error:
            first = first or error
            continue
        _merge(tally, found.tally)
        plans += [(machine, item) for item in _shortlist(found)]
        fronts.append((machine, found.front))
        if progress is not None and len(machines) > 1:
            progress(index + 1, len(machines))
    if tally.legal == 0 and first is not None:
        raise first
    tally.seconds = time.process_time() - started
    if not plans:
        raise memory_miss(asked, machines, tally, fit)
    made = [planned(asked, machine, layout, fit) for machine, (_, _, layout) in plans]
    kept = within_limits(asked, made, tally, fit)
    kept.sort(key=lambda plan: (_objective(plan, asked.best), plan.metrics["step_time"].value))
    beaten = {id(layout) for _, front in fronts for _, _, layout in front}
    kept = [replace(plan, pareto=id(plan.layout) in beaten) for plan in kept]
    return TrainingResult(
        plans=kept,
        tally=tally,
        asked=asked,
        fit=fit,
        warnings=[*warnings_of(kept[0], asked.policy), *slower_network(kept[0], fit), *quicker_elsewhere(kept[0], fit)],
    )


def _merge(tally: Tally, more: Tally) -> None:
    tally.enumerated += more.enumerated
    tally.legal += more.legal
    tally.fits += more.fits
    if more.least_memory < tally.least_memory:
        tally.least_memory, tally.leanest = more.least_memory, more.leanest
    tally.least_host = min(tally.least_host, more.least_host)


def _shortlist(found: Found) -> list[tuple[float, float, Layout]]:
    """Return the fastest layouts, one for each set of degrees, then the front of time against memory."""
    out: dict[tuple[Any, ...], tuple[float, float, Layout]] = {}
    for item in found.layouts:
        degrees = (*(getattr(item[2], name) for name in AXES[:4]), item[2].pp)
        out.setdefault(degrees, item)
        if len(out) >= SHORTLIST:
            break
    return list({id(item[2]): item for item in [*out.values(), *found.front]}.values())


def _objective(plan: TrainingPlan, best: str) -> float:
    """Return what is to be made small; infinite where it is not known."""
    m = plan.metrics
    if best == "cost":
        return (
            m["cost"].value
            if "cost" in m
            else m["cost_per_million_tokens"].value
            if "cost_per_million_tokens" in m
            else math.inf
        )
    if best == "devices":
        return float(plan.machine.count)
    if best == "memory":
        return m["memory_reserved"].value
    return m["days"].value if "days" in m else m["step_time"].value / plan.job.batch


SHORTLIST = 24
"""Layouts of a machine that become whole plans: the fastest of different degrees, and the leanest [1]."""
