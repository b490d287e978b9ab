"""Plans by objective, ties, and the Pareto front."""

from __future__ import annotations

import math
from typing import Any

from roofplan.search.plan import DEFAULT_TPOT, GRADE_SPREAD, Z90, Plan, all_in_cost


def objective(plan: Plan, best: str) -> float:
    """Return what is to be made small; infinite where it is not known."""
    m = plan.metrics
    if best == "latency":
        return m["tpot"].value
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

    Plans of one machine whose objective lies inside the best one's interval are marked as tied with it.
    """

    def key(plan: Plan) -> tuple[Any, ...]:
        value = objective(plan, best)
        known = math.isfinite(value)
        rounded = float(f"{value:.9e}") if known else -plan.metrics["output_tokens_per_second_per_device"].value
        slow = best != "latency" and plan.metrics["tpot"].value > DEFAULT_TPOT * (1 + 1e-9) and not limited
        return (not known, slow, plan.changes_model, rounded, *simplicity(plan))

    ranked = sorted(plans, key=key)
    if ranked:
        first = ranked[0]
        spread = math.exp(Z90 * GRADE_SPREAD[first.metrics["tpot"].grade])
        top = objective(first, best)
        for plan in ranked[1:]:
            value = objective(plan, best)
            plan.tied = (
                math.isfinite(value)
                and math.isfinite(top)
                and (value <= top * spread if top > 0 else value <= top / spread)
            )
    mark_pareto(ranked)
    return ranked


def mark_pareto(plans: list[Plan]) -> None:
    """Mark the plans that no other beats in both time per token and cost (or rate per device without a price)."""
    points = [(plan.metrics["tpot"].value, _second(plan)) for plan in plans]
    for plan, (x, y) in zip(plans, points, strict=True):
        plan.pareto = not any((a <= x and b <= y) and (a < x or b < y) for a, b in points)


def _second(plan: Plan) -> float:
    whole = all_in_cost(plan)
    return whole.value if whole is not None else -plan.metrics["output_tokens_per_second_per_device"].value
