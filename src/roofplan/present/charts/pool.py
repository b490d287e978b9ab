"""Charts of pools: where a token's time goes, what members hold, and layouts by published rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from roofplan.pool.checks import closed_form, honest_auditors
from roofplan.pool.plan import PoolPlan
from roofplan.pool.proof import Proof
from roofplan.pool.simulate import PoolSimulation
from roofplan.present.charts.spec import DOT, INK, WIDTH, Spec, labelled, spec
from roofplan.records import units

MOST_PARTS = 60
"""Parts of a token that are drawn one by one [1]."""

GIB = 2.0**30

LEGEND = 120
"""Width that long labels and a legend take [pixel]."""


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
    for part in plan.parts[:MOST_PARTS]:
        after = at + 1e3 * float(part.term.value)
        rows.append({"part": part.term.name, "from": at, "to": after, "ms": after - at, "kind": part.kind})
        at = after
    return spec(
        "One token on its way through the pool",
        width=WIDTH - LEGEND,
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
        width=WIDTH - LEGEND,
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


# Simulations --------------------------------------------------------------------------------------

POINTS = 200
"""Points of a curve [1]."""


def of_simulation(found: PoolSimulation) -> list[Spec]:
    """Return charts of a simulated pool: who could serve, what users felt, what members earned, and where honesty pays.

    Parameters
    ----------
    found : what was simulated.

    Returns
    -------
    Specifications of the charts.
    """
    return [_over_time(found), *_felt(found), _earned(found), *_honesty(found)]


def _over_time(found: PoolSimulation) -> Spec:
    horizon = found.circumstances.horizon
    times, able = (np.array(one) for one in zip(*found.outcome.timeline, (horizon, 0), strict=True))
    hours = np.arange(0.0, min(horizon, DAYS * units.DAY), units.HOUR / 4.0)
    at = np.maximum(np.searchsorted(times, hours, side="right") - 1, 0)
    rows = [{"day": h / units.DAY, "pipelines": int(n)} for h, n in zip(hours.tolist(), able[at].tolist(), strict=True)]
    return spec(
        f"Pipelines that could serve, the first {min(DAYS, horizon / units.DAY):g} days",
        height=160,
        data={"values": rows},
        mark={"type": "area", "interpolate": "step-after", "color": INK, "tooltip": True},
        encoding={
            "x": {"field": "day", "type": "quantitative"},
            "y": {"field": "pipelines", "type": "quantitative"},
        },
    )


DAYS = 7.0
"""Days that are drawn [day]."""


def _felt(found: PoolSimulation) -> list[Spec]:
    done = found.outcome.last >= 0.0
    if not done.any():
        return []
    arrivals = np.asarray(found.requests.arrivals)
    shares = np.linspace(0.0, 1.0, POINTS)
    rows = [
        {"figure": name, "s": max(float(x), 1e-3), "share": float(y)}
        for name, ends in (("first token", found.outcome.first), ("whole answer", found.outcome.last))
        for x, y in zip(np.quantile((ends - arrivals)[done], shares), shares, strict=True)
    ]
    return [
        spec(
            "Share of finished requests whose time is at most",
            height=200,
            data={"values": rows},
            mark={"type": "line", "tooltip": True},
            encoding={
                "x": {"field": "s", "type": "quantitative", "scale": {"type": "log"}},
                "y": {"field": "share", "type": "quantitative", "axis": {"format": "%"}},
                "color": {"field": "figure", "type": "nominal", "title": None},
            },
        )
    ]


MOST_EARNERS = 40
"""Members whose credit is drawn [1]."""


def _earned(found: PoolSimulation) -> Spec:
    earners = sorted(found.shares, key=lambda one: -one.credit)[:MOST_EARNERS]
    rows = [{"member": one.name, "cobblestones": one.credit, "there": one.online} for one in earners]
    return spec(
        "Credit of members: FLOP of finished answers",
        height=max(80, 20 * len(rows)),
        data={"values": rows},
        mark={"type": "bar", "color": INK, "tooltip": {"content": "data"}},
        encoding={
            "y": {"field": "member", "type": "nominal", "sort": None, "title": None},
            "x": {"field": "cobblestones", "type": "quantitative"},
        },
    )


SHARES = np.geomspace(0.001, 0.3, 60)
"""Shares of audits at which gains are drawn [1]."""


def _honesty(found: PoolSimulation) -> list[Spec]:
    """Return what a cheat gains by the share of audits, by the closed form, and what the simulation found."""
    under = found.circumstances
    checks = found.checks
    if checks is None or not under.cheaters:
        return []
    honest = honest_auditors(under.cheaters)
    rows = [
        {
            "audits": share,
            "gain": closed_form(replace(under.checking, audit=share), one, honest)[0],
            "kind": one.cheat.id,
        }
        for one in under.cheaters
        for share in SHARES.tolist()
    ]
    seen = [
        {"audits": under.checking.audit, "gain": checks.kinds[one.cheat.id].gain, "kind": one.cheat.id}
        for one in under.cheaters
        if under.checking.audit
    ]
    x = {"field": "audits", "type": "quantitative", "scale": {"type": "log"}, "axis": {"format": "%"}}
    y = {"field": "gain", "type": "quantitative", "title": "gain of a cheated job, in jobs"}
    color = {"field": "kind", "type": "nominal", "title": None}
    return [
        spec(
            "Honesty pays where a cheat's gain is below 0: closed form as lines, the simulation as points",
            height=240,
            layer=[
                {
                    "data": {"values": rows},
                    "mark": {"type": "line", "clip": True, "tooltip": True},
                    "encoding": {"x": x, "y": {**y, "scale": {"domain": [-4.0, 1.2]}}, "color": color},
                },
                {
                    "data": {"values": seen},
                    "mark": {"type": "point", "filled": True, "size": DOT, "tooltip": {"content": "data"}},
                    "encoding": {"x": x, "y": y, "color": color},
                },
                {"mark": {"type": "rule", "strokeDash": [4, 4]}, "encoding": {"y": {"datum": 0.0}}},
            ],
        )
    ]


# Proofs -------------------------------------------------------------------------------------------


def of_proof(found: Proof) -> list[Spec]:
    """Return charts of a proof: the time of a token at each rate, predicted and measured.

    Parameters
    ----------
    found : the proof.

    Returns
    -------
    Specifications of the charts.
    """
    rows = [
        {
            "rate": "loopback" if one.rate is None else f"{8e-6 * one.rate:g} Mbit/s",
            "what": what,
            "ms": 1e3 * value,
            "low": 1e3 * one.token.low,
            "high": 1e3 * one.token.high,
        }
        for one in found.links
        for what, value in (("predicted", one.token.predicted), ("measured", one.token.measured))
    ]
    x = {"type": "quantitative", "scale": {"type": "log"}, "title": "ms a token"}
    y = {"field": "rate", "type": "nominal", "sort": None, "title": None}
    color = {"field": "what", "type": "nominal", "title": None}
    return [
        spec(
            "Time of a token over shaped links: interval of the prediction, and what was measured",
            height=max(60, 40 * len(found.links)),
            data={"values": rows},
            layer=[
                {
                    "mark": {"type": "rule", "strokeWidth": 6, "color": "#c9d6de"},
                    "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y},
                },
                {
                    "mark": {"type": "point", "filled": True, "size": DOT, "tooltip": {"content": "data"}},
                    "encoding": {"x": {**x, "field": "ms"}, "y": y, "color": color},
                },
            ],
        )
    ]
