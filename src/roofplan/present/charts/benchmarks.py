"""Charts of published benchmarks: each board as bars, and measured against predicted."""

from __future__ import annotations

from roofplan.evidence.benchmarks import Benchmarks, Board
from roofplan.present.charts.spec import Spec, spec


def of_benchmarks(found: Benchmarks) -> list[Spec]:
    """Return charts of published results.

    Parameters
    ----------
    found : the chosen results.

    Returns
    -------
    A chart of each board, and one of measured against predicted where there are predictions.
    """
    out = [one for one in map(_bars, found.boards) if one is not None]
    points: list[Row] = [
        {
            "published": one.value / n,
            "predicted": p.value / n,
            "low": p.low / n,
            "high": p.high / n,
            "task": one.benchmark,
            "of": one.named,
        }
        for one in found.results
        if (p := one.predicted) is not None and (n := one.accelerators)
    ]
    return [*out, _against(points)] if points else out


Row = dict[str, float | str]
"""A point of a chart."""

BAR = 22
"""Height of a bar [pixel]."""


def _bars(board: Board) -> Spec | None:
    """Return the accelerators of a board as bars, None where none has a rate."""
    rows = [
        {"accelerator": one.named, "value": one.per_accelerator, "weights": one.weights}
        for one in board.results
        if one.per_accelerator is not None
    ]
    if not rows:
        return None
    said = sorted({str(one["weights"]) for one in rows})
    return spec(
        f"{board.task}, {board.scenario}, {board.category}: tokens a second of one accelerator",
        data={"values": rows},
        height=BAR * len({one["accelerator"] for one in rows}),
        mark="bar",
        encoding={
            "y": {"field": "accelerator", "type": "nominal", "sort": "-x", "title": None, "axis": {"labelLimit": 150}},
            "x": {"field": "value", "type": "quantitative", "aggregate": "max", "stack": None, "title": "token/s"},
            "color": {
                "field": "weights",
                "type": "nominal",
                "scale": {"domain": [*FORMATS, *(one for one in said if one not in FORMATS)]},
                "legend": {"orient": "bottom", "title": "weights, as submitted", "values": said},
            },
        },
    )


FORMATS = ("fp4", "fp8", "fp16")
"""Usual formats, which have the same colour in every chart."""


def _against(points: list[Row]) -> Spec:
    """Return measured against predicted of one accelerator with the intervals, on logarithmic axes."""
    every = [float(one[name]) for one in points for name in ("published", "low", "high")]
    ends = [min(every), max(every)]
    scale = {"type": "log", "domain": ends, "nice": False}
    x = {"field": "published", "type": "quantitative", "scale": scale, "title": "published [token/s]"}
    y = {"field": "predicted", "type": "quantitative", "scale": scale, "title": "predicted [token/s], 90%"}
    color = {"field": "task", "type": "nominal", "legend": {"orient": "bottom", "title": None}}
    line = {"x": {**x, "field": "end"}, "y": {**y, "field": "end"}}
    span = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": color}
    return spec(
        "Offline, one accelerator: predicted against published",
        height=420,
        layer=[
            {
                "data": {"values": [{"end": end} for end in ends]},
                "mark": {"type": "line", "color": "black", "strokeWidth": 1},
                "encoding": line,
            },
            {"data": {"values": points}, "mark": {"type": "rule", "opacity": 0.4}, "encoding": span},
            {
                "data": {"values": points},
                "mark": {"type": "point", "filled": True, "tooltip": {"content": "data"}},
                "encoding": {"x": x, "y": y, "color": color},
            },
        ],
    )
