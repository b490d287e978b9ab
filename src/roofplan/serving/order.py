"""Order of plans: objective, ties and Pareto front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from roofplan.records.ties import TIE, tied, ties
from roofplan.serving.plan import ALL_IN, DEFAULT_TPOT, Plan


def objective(plan: Plan, best: str) -> float:
    """Return the objective that ``--best`` minimises.

    Parameters
    ----------
    plan : a plan with its metrics.
    best : latency, throughput, devices, energy or cost.

    Returns
    -------
    The figure in the unit of its metric, negative for throughput, infinite if unknown.
    """
    if best == "latency":
        return pace(plan)
    if best == "throughput":
        return -plan.values["output_tokens_per_second_per_device"]
    if best == "devices":
        return float(plan.machine.count)
    return plan.values.get("energy_per_output_token" if best == "energy" else ALL_IN, math.inf)


def pace(plan: Plan) -> float:
    """Return the time between tokens of a plan; for answers of one token, the time of the whole request [s]."""
    return plan.values.get("tpot", plan.values["cycle_time"])


def simplicity(plan: Plan) -> tuple[float, ...]:
    """Return the sort key among equal plans: fewest devices, then smallest TP, PP and other degrees."""
    s = plan.strategy
    return (plan.machine.count, int(s.tp), int(s.pp), int(s.ep), int(s.dp), int(s.attention_dp))


def ordered(plans: Sequence[Plan], best: str, *, limited: bool = False) -> list[Plan]:
    """Return plans sorted by objective; ties are broken as an expert would.

    Plans tie if their objectives are within 1% of the best remaining plan. Tied plans are sorted by: unchanged model,
    Pareto front, time per token, number of devices, smallest degrees.

    Plans with an unknown objective come last. Without a limit on time, plans below 50 ms per token come before slower
    ones. A plan is marked as tied if it ties with the first plan.
    """

    def rank(plan: Plan) -> tuple[bool, bool, bool]:
        slow = best != "latency" and not limited and plan.values.get("tpot", 0.0) > DEFAULT_TPOT * (1 + 1e-9)
        # energy that excludes the hosts is not comparable
        bare = best == "energy" and "power" in plan.values and plan.machine.box is None
        return (not math.isfinite(objective(plan, best)), slow, bare)

    listed = list(plans)
    front = pareto_front(listed)
    marked = [replace(plan, pareto=place in front) for place, plan in enumerate(listed)]
    groups: list[list[Plan]] = []
    for level in sorted({rank(plan) for plan in marked}):
        same = [plan for plan in marked if rank(plan) == level]
        # plans without a price are sorted by rate per device; among equal device counts, the cheapest comes first
        figure = "throughput" if level[0] else best
        counted = figure == "devices"
        for group in ties(same, partial(objective, best=figure), 0.0 if counted else TIE):
            groups += ties(group, partial(objective, best="cost")) if counted else [group]
    ranked = [plan for group in groups for plan in sorted(group, key=_preference)]
    lowest = min((objective(plan, best) for plan in groups[0]), default=math.inf) if groups else math.inf
    tie = 0.0 if best == "devices" else TIE
    first = [replace(plan, tied=False, ahead=None, ranked_by=best) for plan in ranked[:1]]
    return first + [
        replace(plan, tied=tied(objective(plan, best), lowest, tie), ahead=first[0], ranked_by=best)
        for plan in ranked[1:]
    ]


def _preference(plan: Plan) -> tuple[float, ...]:
    """Return the sort key among tied plans; times are compared to nine digits."""
    return (plan.changes_model, not plan.pareto, float(f"{pace(plan):.9e}"), *simplicity(plan))


def pareto_front(plans: Sequence[Plan]) -> set[int]:
    """Return the indices of plans that no other plan beats in both time per token and cost.

    Plans without a price are compared by time and rate per device. Costs that agree to nine digits are equal.
    """
    priced = [(pace(plan), plan.values[ALL_IN], place) for place, plan in enumerate(plans) if ALL_IN in plan.values]
    others = [
        (pace(plan), -plan.values["output_tokens_per_second_per_device"], place)
        for place, plan in enumerate(plans)
        if plan.cost is None
    ]
    found = set()
    for points in (priced, others):
        best = math.inf
        for _, second, place in sorted(points):
            if best == math.inf or second < best - 1e-9 * abs(best):
                found.add(place)
            best = min(best, second)
    return found
