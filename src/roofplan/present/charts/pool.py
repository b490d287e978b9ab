"""Charts of pools: where a token's time goes, what members hold, and layouts by published rules."""

from __future__ import annotations

from roofplan.pool.plan import PoolPlan
from roofplan.present.charts.spec import Spec, labelled, spec

MOST_PARTS = 60
"""Parts of a token that are drawn one by one [1]."""

GIB = 2.0**30


def of_plan(plan: PoolPlan) -> list[Spec]:
    """Return charts of a plan: a token's way, the memory of members, and the same pool by published rules.

    Parameters
    ----------
    plan : the plan.

    Returns
    -------
    Specifications of the charts.
    """
    return [_way(plan), _memory(plan), _rules(plan)]


def _way(plan: PoolPlan) -> Spec:
    rows, at = [], 0.0
    for term in plan.token.parts[:MOST_PARTS]:
        after = at + 1e3 * float(term.value)
        kind = "link" if " -> " in term.name else "engine" if term.name == "engine step" else "compute"
        rows.append({"part": term.name, "from": at, "to": after, "ms": after - at, "kind": kind})
        at = after
    return spec(
        "One token on its way through the pool",
        height=max(120, 18 * len(rows)),
        data={"values": rows},
        mark={"type": "bar", "tooltip": {"content": "data"}},
        encoding={
            "y": {"field": "part", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 320}},
            "x": {"field": "from", "type": "quantitative", "title": "ms"},
            "x2": {"field": "to"},
            "color": {"field": "kind", "type": "nominal", "title": None},
        },
    )


def _memory(plan: PoolPlan) -> Spec:
    rows = [
        {"member": one.member.name, "what": what, "GiB": size / GIB, "order": place}
        for one in plan.views
        for place, (what, size) in enumerate(
            {
                "weights": one.weights,
                "cache of one user": one.cache,
                "free": max(0.0, one.room - one.weights - one.cache),
            }.items()
        )
    ]
    return spec(
        "Memory of the members with a part",
        height=max(80, 28 * len(plan.views)),
        data={"values": rows},
        mark={"type": "bar", "tooltip": {"content": "data"}},
        encoding={
            "y": {"field": "member", "type": "nominal", "sort": None, "title": None},
            "x": {"field": "GiB", "type": "quantitative"},
            "order": {"field": "order", "type": "quantitative"},
            "color": {
                "field": "what",
                "type": "nominal",
                "title": None,
                "sort": ["weights", "cache of one user", "free"],
                "scale": {
                    "domain": ["weights", "cache of one user", "free"],
                    "range": ["#1f5a7a", "#e39d3b", "#dfe7eb"],
                },
            },
        },
    )


def _rules(plan: PoolPlan) -> Spec:
    rates = {"roofplan": plan.metrics["tokens_per_second_per_user"].value}
    rates |= {name: one.rate for name, one in plan.baselines.items() if one.rate is not None}
    rows = [{"by": name, "value": rate} for name, rate in rates.items()]
    return labelled("Layouts by published rules, timed by the same laws", rows, "by", list(rates), "token/s")
