"""Plans by objective, ties, and the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofplan.serving.plan import DEFAULT_TPOT, Plan, all_in_cost


def objective(plan: Plan, best: str) -> float:
    """Return what ``--best`` makes small.

    Parameters
    ----------
    plan : a plan with its metrics.
    best : latency, throughput, devices, energy or cost.

    Returns
    -------
    The figure in the unit of its metric, negative for throughput, infinite where it is unknown.
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
    """Return the order among equals: fewest devices, then smallest TP, PP, and the rest."""
    s = plan.strategy
    return (plan.machine.count, int(s.tp), int(s.pp), int(s.ep), int(s.dp), int(s.attention_dp))


def ordered(plans: list[Plan], best: str, *, limited: bool = False) -> list[Plan]:
    """Return plans by objective; those without it below the others; equal within 1e-9 by simplicity.

    Where the user set no limit on time, plans quicker than 50 ms a token stand above slower ones.

    Plans whose interval of the objective overlaps the best one's are marked as tied with it.
    """

    def key(plan: Plan) -> tuple[Any, ...]:
        value = objective(plan, best)
        known = math.isfinite(value)
        rounded = float(f"{value:.9e}") if known else -plan.metrics["output_tokens_per_second_per_device"].value
        bare = (
            best == "energy" and plan.power is not None and len(plan.power.parts) < 2
        )  # hosts left out: not comparable
        cost = all_in_cost(plan) if best == "devices" else None
        second = cost.value if cost is not None else math.inf
        between = plan.metrics.get("tpot")
        slow = best != "latency" and not limited and between is not None and between.value > DEFAULT_TPOT * (1 + 1e-9)
        return (not known, slow, bare, rounded, second, plan.changes_model, *simplicity(plan))

    ranked = sorted(plans, key=key)
    edge = _bounds(ranked[0], best) if ranked else None

    def tied(place: int, plan: Plan) -> bool:
        here = _bounds(plan, best)
        return place > 0 and edge is not None and here is not None and here[0] <= edge[1]

    front = pareto_front(ranked)
    return [replace(plan, tied=tied(place, plan), pareto=place in front) for place, plan in enumerate(ranked)]


def pareto_front(plans: Sequence[Plan]) -> set[int]:
    """Return the places of plans that no other beats in both time per token and cost; of those without a price, in time and rate per device."""
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
            if second < best:
                found.add(place)
            best = min(best, second)
    return found


def _bounds(plan: Plan, best: str) -> tuple[float, float] | None:
    """Return the 90% interval of the objective, smaller being better; None where it is a count or not known."""
    m = plan.metrics
    if best == "throughput":
        rate = m["output_tokens_per_second_per_device"]
        return -rate.high, -rate.low
    found = {"latency": plan.pace, "energy": m.get("energy_per_output_token"), "cost": all_in_cost(plan)}.get(best)
    return None if found is None else (found.low, found.high)
