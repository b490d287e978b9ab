"""Charts of a simulated load: latency against rate, distributions, queues over time, and the first requests."""

from __future__ import annotations

import numpy as np

from roofplan.present.charts.spec import Spec, spec
from roofplan.simulation.felt import Felt
from roofplan.simulation.report import running_at, tokens_held, waiting_at

POINTS = 200
"""Points of a curve [1]."""

FIRST = 50
"""Requests that are drawn one by one [1]."""


def under_load(felt: Felt) -> list[Spec]:
    """Return charts of what users feel of a plan under a load.

    Parameters
    ----------
    felt : the plan and its simulated load.

    Returns
    -------
    Specifications of the charts.
    """
    rates = [] if felt.found is None else [_against_rate(felt)]
    return [*rates, *_distributions(felt), *_over_time(felt), _first(felt)]


def _against_rate(felt: Felt) -> Spec:
    """Return the times at the limits' percentiles against the rate, with the limits."""
    assert felt.found is not None
    rows = [
        {
            "rate": rate,
            "figure": one.objective.name,
            "over": one.over,
            "seconds": one.time,
        }
        for rate, seen in felt.found.tried
        for one in seen.limits
    ]
    color = {"field": "figure", "type": "nominal", "title": None}
    axis = {
        "field": "rate",
        "type": "quantitative",
        "title": "requests a second",
        "scale": {"type": "log", "nice": False},
    }
    over = {"field": "over", "type": "quantitative", "title": "time over its limit", "scale": {"type": "log"}}
    return spec(
        "Latency against rate: what limits allow ends at 1",
        height=240,
        data={"values": rows},
        layer=[
            {
                "mark": {"type": "line", "point": True, "tooltip": {"content": "data"}},
                "encoding": {"x": axis, "y": over, "color": color},
            },
            {"mark": {"type": "rule", "strokeDash": [4, 4]}, "encoding": {"y": {"datum": 1.0}}},
        ],
    )


def _distributions(felt: Felt) -> list[Spec]:
    out = []
    for names, unit, scale in ((("ttft", "waiting"), "ms", 1e3), (("tpot",), "ms", 1e3), (("e2e",), "s", 1.0)):
        rows = []
        for name in names:
            if name not in felt.simulation.figures:
                continue
            values = felt.simulation.served.figure(name)[felt.simulation.load.warmup :]
            shares = np.linspace(0.0, 1.0, POINTS)
            at = np.quantile(values, shares) * scale
            rows += [{"figure": name, unit: float(x), "share": float(y)} for x, y in zip(at, shares, strict=True)]
        if rows:
            out.append(
                spec(
                    f"Share of requests whose {' and '.join(names).upper()} is at most",
                    height=200,
                    data={"values": rows},
                    mark={"type": "line", "tooltip": True},
                    encoding={
                        "x": {"field": unit, "type": "quantitative", "scale": {"zero": False}},
                        "y": {"field": "share", "type": "quantitative", "axis": {"format": "%"}},
                        "color": {"field": "figure", "type": "nominal", "title": None},
                    },
                )
            )
    return out


def _over_time(felt: Felt) -> list[Spec]:
    served = felt.simulation.served
    times = np.linspace(served.arrivals.min(), served.last.max(), POINTS)
    seats = {"running": running_at(served, times), "waiting": waiting_at(served, times)}
    rows = [
        {"s": float(t), "requests": int(value), "state": name}
        for name, values in seats.items()
        for t, value in zip(times, values, strict=True)
    ]
    held = tokens_held(served, times)
    return [
        spec(
            "Requests running and waiting over time",
            height=180,
            data={"values": rows},
            mark={"type": "line", "tooltip": True},
            encoding={
                "x": {"field": "s", "type": "quantitative", "title": "s"},
                "y": {"field": "requests", "type": "quantitative"},
                "color": {"field": "state", "type": "nominal", "title": None},
            },
        ),
        spec(
            "Tokens in the cache over time",
            height=140,
            data={"values": [{"s": float(t), "tokens": float(v)} for t, v in zip(times, held, strict=True)]},
            mark={"type": "area", "tooltip": True},
            encoding={
                "x": {"field": "s", "type": "quantitative", "title": "s"},
                "y": {"field": "tokens", "type": "quantitative"},
            },
        ),
    ]


def _first(felt: Felt) -> Spec:
    served = felt.simulation.served
    ends = ("arrivals", "admitted", "first", "last")
    phases = ("waiting", "prompt", "answer")
    rows = [
        {"request": i + 1, "phase": phase, "from": float(getattr(served, a)[i]), "to": float(getattr(served, b)[i])}
        for i in range(min(FIRST, len(served.arrivals)))
        for phase, a, b in zip(phases, ends, ends[1:], strict=False)
    ]
    return spec(
        f"The first {min(FIRST, len(served.arrivals))} requests: waiting, prompt and answer",
        height=420,
        data={"values": rows},
        mark={"type": "bar", "tooltip": True},
        encoding={
            "y": {"field": "request", "type": "ordinal", "axis": {"labelOverlap": True}},
            "x": {"field": "from", "type": "quantitative", "title": "s"},
            "x2": {"field": "to"},
            "color": {"field": "phase", "type": "nominal", "title": None, "sort": list(phases)},
        },
    )
