"""Charts of a measured run: latency over time, distributions, and measured beside predicted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from roofplan.evidence.beside import Beside
from roofplan.measure.sample import Sample
from roofplan.present.charts.load import POINTS
from roofplan.present.charts.spec import DOT, Spec, spec
from roofplan.present.screens.seen import NAMES


def of_run(found: Beside) -> list[Spec]:
    """Return charts of a measured run.

    Parameters
    ----------
    found : the run and what is predicted for it.

    Returns
    -------
    Specifications of the charts.
    """
    beside = [] if found.felt is None else [_beside(found)]
    return [*beside, *over_time(found.run.samples), *_distributions(found)]


def over_time(samples: Sequence[Sample]) -> list[Spec]:
    """Return each request's first token and time per token against the time at which it was due; failures as marks at the bottom.

    Parameters
    ----------
    samples : of a run.

    Returns
    -------
    A chart of each figure.
    """
    out = []
    for name in ("ttft", "tpot"):
        title, unit, scale = NAMES[name]
        rows = [
            {"due": one.due, "value": None if value is None else value * scale, "said": one.reason or "answered"}
            for one in samples
            if (value := getattr(one, name)) is not None or one.reason
        ]
        for row in rows:
            row["value"] = 0.0 if row["value"] is None else row["value"]
        if rows:
            out.append(
                spec(
                    f"{title} of each request over time",
                    data={"values": rows},
                    mark={"type": "point", "filled": True, "size": 16},
                    encoding={
                        "x": {"field": "due", "type": "quantitative", "title": "due after the start [s]"},
                        "y": {"field": "value", "type": "quantitative", "title": f"{title} [{unit}]"},
                        "color": {"field": "said", "type": "nominal", "title": None},
                    },
                )
            )
    return out


def _distributions(found: Beside) -> list[Spec]:
    """Return the share of requests within each time."""
    out = []
    for name in ("ttft", "tpot"):
        title, unit, scale = NAMES[name]
        values = np.sort([v for one in found.run.samples if one.answered and (v := getattr(one, name)) is not None])
        if not len(values):
            continue
        at = np.unique(np.linspace(0, len(values) - 1, min(POINTS, len(values))).astype(int))
        rows = [{"value": float(values[k]) * scale, "share": (k + 1) / len(values)} for k in at.tolist()]
        out.append(
            spec(
                f"Share of requests within a {title}",
                data={"values": rows},
                mark={"type": "line", "interpolate": "step-after"},
                encoding={
                    "x": {"field": "value", "type": "quantitative", "title": f"{title} [{unit}]"},
                    "y": {"field": "share", "type": "quantitative", "title": "share", "axis": {"format": "%"}},
                },
            )
        )
    return out


def _beside(found: Beside) -> Spec:
    """Return measured means over predicted ones, with the interval of the prediction."""
    rows = [
        {
            "figure": NAMES[one.name][0],
            "measured": one.ratio,
            "low": one.predicted.low / one.predicted.value,
            "high": min(one.predicted.high / one.predicted.value, WIDEST),
        }
        for one in found.figures
        if one.predicted is not None and one.ratio is not None
    ]
    y = {"field": "figure", "type": "nominal", "title": None}
    x = {"type": "quantitative", "scale": {"type": "log"}, "title": "times the predicted mean; bar: its 90% interval"}
    return spec(
        "Measured over predicted",
        data={"values": rows},
        layer=[
            {
                "mark": {"type": "bar", "opacity": 0.3},
                "encoding": {"y": y, "x": {"field": "low", **x}, "x2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": DOT},
                "encoding": {"y": y, "x": {"field": "measured", **x}},
            },
        ],
    )


WIDEST = 100.0
"""End of a bar without an end [1]."""
