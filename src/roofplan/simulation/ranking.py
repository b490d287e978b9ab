"""Serving plans ranked by what users feel of them at a rate, where steady states do not see queues."""

from __future__ import annotations

from dataclasses import replace

from roofplan.serving.advice import smaller, standing
from roofplan.serving.plan import Plan, Result, UnderLoad
from roofplan.serving.run import ladder, warnings_of
from roofplan.simulation.deployment import deployment_of
from roofplan.simulation.felt import speed_of
from roofplan.simulation.report import simulate
from roofplan.simulation.request import Asked

TRIED, REQUESTS = 8, 2_000
"""Best plans that are simulated, and requests of each simulation [1]."""


def ranked_under_load(found: Result, asked: Asked) -> None:
    """Put the plans that keep limits at a rate before those that do not, and say where that changes the order.

    Parameters
    ----------
    found : plans ranked by their steady states, changed in place.
    asked : rate, lengths and limits.
    """
    brief = replace(asked, count=min(asked.count, REQUESTS))
    tried = [replace(plan, under_load=_felt(plan, place, brief)) for place, plan in enumerate(found.plans[:TRIED])]
    kept = [plan for plan in tried if plan.under_load is not None and plan.under_load.holds]
    missed = [plan for plan in tried if plan not in kept]
    missed.sort(key=lambda plan: -plan.under_load.good if plan.under_load is not None else 0.0)
    found.plans[: len(tried)] = [*kept, *missed]
    first = found.plans[0]
    if not kept:
        found.warnings.append(("slo", f"none of the {len(tried)} best plans keeps --slo: the nearest stands first"))
    if first.under_load is not None and first.under_load.place:
        was = next(plan for plan in tried if plan.under_load is not None and not plan.under_load.place)
        said = (
            f"by its steady state {was.label} on {was.machine.text} stood first; by simulation it misses {_worst(was)}"
        )
        found.warnings.append(("reordered", said))
        found.ladder = ladder(first, found.asked)
        found.warnings += [one for one in warnings_of(first) if one not in found.warnings]
        found.standing, found.smaller = standing(first, found.asked, found.fit), smaller(first, found.asked, found.fit)


def _felt(plan: Plan, place: int, asked: Asked) -> UnderLoad:
    """Return what users feel of a plan."""
    deployment = deployment_of(plan)
    seen = simulate(deployment, asked.load(deployment), speed_of(plan), doubtful=False)
    limits = tuple((f"{one.figure} {one.percentile}", time, one.limit) for one, time, _ in seen.holds)
    return UnderLoad(place, seen.good or 0.0, limits, seen.growth)


def _worst(plan: Plan) -> str:
    """Return the limit that a plan misses by most, or that its queue grows."""
    felt = plan.under_load
    if felt is None or felt.growth or not felt.limits:
        return "them all, since its queue grows"
    name, time, limit = max(felt.limits, key=lambda one: one[1] / one[2])
    return f"{name} by {time / limit - 1.0:.0%}"
