"""Ranked plans of all machines that satisfy the limits, best first."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from roofplan.errors import InputError, NoPlan, RoofplanError
from roofplan.records.calibration import Fit
from roofplan.records.hardware import Machine
from roofplan.records.ties import tied, ties
from roofplan.records.training import Layout
from roofplan.records.units import DAY
from roofplan.training.misses import memory_miss, within_limits
from roofplan.training.plan import TrainingPlan, TrainingRequest, planned
from roofplan.training.search import AXES, Found, Tally, search
from roofplan.training.warnings import quicker_elsewhere, slower_network, warnings_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """Ranked plans, best first, with the tally and the fitted constants."""

    plans: list[TrainingPlan]
    tally: Tally
    asked: TrainingRequest
    fit: Fit
    warnings: list[tuple[str, str]] = field(default_factory=list)
    standing: Standing | None = None

    @property
    def smallest(self) -> TrainingPlan | None:
        """The plan with the fewest devices that meets the deadline, None if the first plan has no more."""
        least = min(self.plans, key=lambda plan: plan.machine.count)
        return least if self.asked.deadline is not None and least.machine.count < self.plans[0].machine.count else None


def plan_all(asked: TrainingRequest, fit: Fit, progress: Callable[[int, int], None] | None = None) -> TrainingResult:
    """Return the plans of a request, best first.

    Parameters
    ----------
    asked : model, job, machines, framework and limits.
    fit : fitted constants.
    progress : called with the number of layouts tried so far and their total.

    Returns
    -------
    Ranked plans and the tally of the search.

    Raises
    ------
    NoPlan : nothing fits, or nothing satisfies the limits; holds the remedies.
    """
    started = time.process_time()
    tally = Tally()
    plans: list[TrainingPlan] = []
    fronts: list[tuple[Machine, Found]] = []
    first: RoofplanError | None = None
    limit = asked.devices
    once = {m.text or m.device.id: m for m in asked.machines}
    machines = [m for m in once.values() if limit is None or m.count <= limit]
    if not machines:
        least = min(m.count for m in asked.machines)
        raise NoPlan(
            f"no plan: devices. the smallest machine asked for has {least:,} devices, more than --devices {limit}",
            binding="devices",
            relax=[
                {"argument": "--devices", "now": limit, "needed": str(least), "also": {}, "text": f"--devices {least}"}
            ],
        )
    groups, nearest = _alternatives(asked, machines), machines[-1]
    few = SHORTLIST if len(groups) <= FEW else 1
    for index, group in enumerate(groups):
        try:
            tried = _tried(asked, group, fit, progress if len(groups) == 1 else None)
        except InputError as error:
            first = first or error
            continue
        for machine, found in tried:
            tally.add(found.tally)
            if found.tally.shortage(machine) < tally.shortage(nearest):
                nearest = machine
                tally.least_memory, tally.leanest = found.tally.least_memory, found.tally.leanest
                tally.least_host = found.tally.least_host
            plans += [planned(asked, machine, layout, fit) for _, _, layout in _shortlist(found, few)]
            fronts.append((machine, found))
        if progress is not None and len(groups) > 1:
            progress(index + 1, len(groups))
    if tally.legal == 0 and first is not None:
        raise first
    tally.seconds = time.process_time() - started
    if not plans:
        raise memory_miss(asked, nearest, tally, fit)
    front = {(machine.text, layout) for machine, found in fronts for _, _, layout in found.front}
    kept = ordered(within_limits(asked, plans, tally, fit), asked.best, front)
    if few < SHORTLIST:
        # once the best machine is known, plan its other layouts too
        best = kept[0].machine
        found = next(found for machine, found in fronts if machine is best)
        known = {plan.layout for plan in plans if plan.machine is best}
        others = [layout for _, _, layout in _shortlist(found, SHORTLIST) if layout not in known]
        more = [planned(asked, best, layout, fit) for layout in others]
        kept = ordered(within_limits(asked, [*kept, *more], tally, fit), asked.best, front)
    return TrainingResult(
        plans=kept,
        tally=tally,
        asked=asked,
        fit=fit,
        warnings=[*warnings_of(kept[0], asked.policy), *slower_network(kept[0], fit), *quicker_elsewhere(kept[0], fit)],
        standing=standing(kept[0], asked, fit),
    )


FEW = 4
"""Largest number of machines for which the whole shortlist of each is planned [1]."""


def _alternatives(asked: TrainingRequest, machines: list[Machine]) -> list[list[Machine]]:
    """Return groups of machines; of each group, the smallest within the deadline is wanted (without one, no groups)."""
    if not asked.any_size or asked.deadline is None:
        return [[machine] for machine in machines]
    sizes: dict[str, list[Machine]] = {}
    for machine in machines:
        sizes.setdefault(machine.device.id, []).append(machine)
    return [sorted(group, key=lambda machine: machine.count) for group in sizes.values()]


def _tried(
    asked: TrainingRequest, group: list[Machine], fit: Fit, progress: Callable[[int, int], None] | None
) -> list[tuple[Machine, Found]]:
    """Return the layouts of machines of one device, at sizes near the smallest that meets the deadline.

    A run takes about the same device-hours at any size, so each search predicts the next size to try.

    Raises
    ------
    InputError : no size has a layout; the reason is that of the last size.
    """
    tried: dict[int, tuple[Machine, Found]] = {}
    place, late, in_time, reason = min(1, len(group) - 1), -1, len(group), None
    while late + 1 < in_time and place not in tried:
        machine = group[place]
        try:
            found = search(asked.model, asked.job, machine, asked.framework, fit, asked.pins, progress)
        except InputError as error:
            reason, found = error, Found()
        tried[place] = (machine, found)
        if not found.layouts:
            late = max(late, place) if not found.tally.legal or in_time == len(group) else late
            place = min((n for n in range(late + 1, in_time) if n not in tried), default=place)
            continue
        if asked.deadline is None:
            break
        over = _time_of(asked, machine, found, fit) / asked.deadline
        in_time, late = (place, late) if over <= 1.0 else (in_time, place)
        wanted = machine.count * over
        near = [n for n in range(late + 1, in_time) if group[n].count >= wanted and n not in tried]
        place = min(near, default=max((n for n in range(late + 1, in_time) if n not in tried), default=place))
    if all(not found.tally.legal for _, found in tried.values()) and reason is not None:
        raise reason
    return list(tried.values())


def _time_of(asked: TrainingRequest, machine: Machine, found: Found, fit: Fit) -> float:
    """Return the run time of the fastest layout, including failures [s]."""
    return planned(asked, machine, found.layouts[0][2], fit).metrics["days"].value * DAY


def _shortlist(found: Found, most: int) -> list[tuple[float, float, Layout]]:
    """Return the fastest layout of each set of degrees, then the Pareto front of time and memory."""
    out: dict[tuple[Any, ...], tuple[float, float, Layout]] = {}
    for item in found.layouts:
        degrees = (*(getattr(item[2], name) for name in AXES[:4]), item[2].pp)
        out.setdefault(degrees, item)
        if len(out) >= most:
            break
    front = found.front if most > 1 else found.front[-1:]
    return list({id(item[2]): item for item in [*out.values(), *front]}.values())


def ordered(plans: list[TrainingPlan], best: str, front: Collection[tuple[str, Layout]]) -> list[TrainingPlan]:
    """Return plans sorted by objective; ties are broken as an expert would.

    Plans tie if their objectives are within 1% of the best remaining plan. Tied plans are sorted by: nothing offloaded,
    Pareto front of time and memory, free memory, fewest devices, smallest degrees.
    """
    marked = [replace(plan, pareto=(plan.machine.text, plan.layout) in front) for plan in plans]

    def preference(plan: TrainingPlan) -> tuple[float, ...]:
        free = plan.machine.device.room - float(plan.ledger.reserved)
        offloaded = plan.layout.offload != "none"
        return (offloaded, not plan.pareto, -free, plan.machine.count, float(plan.layout.tp), float(plan.layout.pp))

    groups = list(ties(marked, partial(objective, best=best)))
    ranked = [plan for group in groups for plan in sorted(group, key=preference)]
    lowest = objective(groups[0][0], best) if groups else math.inf
    edge = _bounds(ranked[0], best) if ranked else None

    def inside(plan: TrainingPlan) -> bool:
        here = _bounds(plan, best)
        return edge is not None and here is not None and here[0] <= edge[1]

    return [
        replace(plan, tied=n > 0 and tied(objective(plan, best), lowest), within_interval=n > 0 and inside(plan))
        for n, plan in enumerate(ranked)
    ]


def _bounds(plan: TrainingPlan, best: str) -> tuple[float, float] | None:
    """Return the 90% interval of the objective, None if it is a count or unknown."""
    name = {"cost": "cost" if "cost" in plan.metrics else "cost_per_million_tokens", "memory": "memory_reserved"}.get(
        best, "days" if "days" in plan.metrics else "step_time"
    )
    found = None if best == "devices" else plan.metrics.get(name)
    return None if found is None else (found.low, found.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a plan with pinned degrees compares with the best layout of its machine.

    Parameters
    ----------
    best : the best plan without pins.
    ratio : objective of the pinned plan over that of the best, above 1 if the best is better [1].
    within_interval : whether the difference is smaller than the two 90% intervals.
    """

    best: TrainingPlan
    ratio: float
    within_interval: bool


def standing(plan: TrainingPlan, asked: TrainingRequest, fit: Fit) -> Standing | None:
    """Return how a pinned plan compares with the best of its machine, None without pins."""
    if not asked.pins:
        return None
    found = search(asked.model, asked.job, plan.machine, asked.framework, fit, {})
    free = [planned(replace(asked, pins={}), plan.machine, one[2], fit) for one in _shortlist(found, 1)]
    best, *_ = others = ordered([*free, plan], asked.best, ())
    own = next(one for one in others if one.layout == plan.layout)
    ratio = objective(own, asked.best) / objective(best, asked.best)
    return Standing(best=best, ratio=ratio, within_interval=own.within_interval)


def objective(plan: TrainingPlan, best: str) -> float:
    """Return the objective to minimise, infinite if unknown."""
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
"""Layouts of different degrees, per machine, for which a plan is computed [1]."""
