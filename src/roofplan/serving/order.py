"""Order of plans: objective, ties and Pareto front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from roofplan.records.ties import TIE, tied, ties
from roofplan.serving.plan import DEFAULT_TPOT, Plan, all_in_cost


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
    m = plan.metrics
    if best == "latency":
        return plan.pace.value
    if best == "throughput":
        return -m["output_tokens_per_second_per_device"].value
    if best == "devices":
        return float(plan.machine.count)
    if best == "energy":
        return m["energy_per_output_token"].value if "energy_per_output_token" in m else math.inf
    whole = all_in_cost(plan)
    return whole.value if whole is not None else math.inf


def simplicity(plan: Plan) -> tuple[float, ...]:
    """Return the sort key among equal plans: fewest devices, then smallest TP, PP and other degrees."""
    s = plan.strategy
    return (plan.machine.count, int(s.tp), int(s.pp), int(s.ep), int(s.dp), int(s.attention_dp))


def ordered(plans: Sequence[Plan], best: str, *, limited: bool = False) -> list[Plan]:
    """Return plans sorted by objective; ties are broken as an expert would.

    Plans tie if their objectives are within 1% of the best remaining plan. Tied plans are sorted by: unchanged model,
    Pareto front, time per token, number of devices, smallest degrees.

    Plans with an unknown objective come last. Without a limit on time, plans below 50 ms per token come before slower
    ones. A plan is marked as tied if it ties with the first plan, and as within its interval if the 90% intervals of
    the two objectives overlap.
    """

    def rank(plan: Plan) -> tuple[bool, bool, bool]:
        between = plan.metrics.get("tpot")
        slow = best != "latency" and not limited and between is not None and between.value > DEFAULT_TPOT * (1 + 1e-9)
        # energy that excludes the hosts is not comparable
        bare = best == "energy" and plan.power is not None and len(plan.power.parts) < 2
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
    edge = _bounds(ranked[0], best) if ranked else None
    lowest = min((objective(plan, best) for plan in groups[0]), default=math.inf) if groups else math.inf

    def inside(plan: Plan) -> bool:
        here = _bounds(plan, best)
        return edge is not None and here is not None and here[0] <= edge[1]

    tie = 0.0 if best == "devices" else TIE
    return [
        replace(
            plan,
            tied=index > 0 and tied(objective(plan, best), lowest, tie),
            within_interval=index > 0 and inside(plan),
        )
        for index, plan in enumerate(ranked)
    ]


def _preference(plan: Plan) -> tuple[float, ...]:
    """Return the sort key among tied plans; times are compared to nine digits."""
    return (plan.changes_model, not plan.pareto, float(f"{plan.pace.value:.9e}"), *simplicity(plan))


def pareto_front(plans: Sequence[Plan]) -> set[int]:
    """Return the indices of plans that no other plan beats in both time per token and cost.

    Plans without a price are compared by time and rate per device. Costs that agree to nine digits are equal.
    """
    priced = [
        (plan.pace.value, whole.value, place)
        for place, plan in enumerate(plans)
        if (whole := all_in_cost(plan)) is not None
    ]
    others = [
        (plan.pace.value, -plan.metrics["output_tokens_per_second_per_device"].value, place)
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


def _bounds(plan: Plan, best: str) -> tuple[float, float] | None:
    """Return the 90% interval of the objective (lower is better); None if it is a count or unknown."""
    m = plan.metrics
    if best == "throughput":
        rate = m["output_tokens_per_second_per_device"]
        return -rate.high, -rate.low
    found = {"latency": plan.pace, "energy": m.get("energy_per_output_token"), "cost": all_in_cost(plan)}.get(best)
    return None if found is None else (found.low, found.high)
