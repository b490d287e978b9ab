"""Common parts of all charts: Vega-Lite specification, colours, and labelled bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Spec = dict[str, Any]
"""A Vega-Lite specification."""

Data = Sequence[dict[str, Any]]
"""Rows of a chart."""


SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"


WIDTH, HEIGHT = 640, 300


INK, WEAK = "#1f5a7a", "#c9d6de"


LABELS = 130
"""Width of labels beside long bars [pixel]."""


VALUE = 45
"""Width of a value beside the end of its bar [pixel]."""


SLACK = 3.0
"""Margin at either end of a logarithmic scale of bars [factor]."""


def spec(title: str, **more: Any) -> Spec:
    """Return a specification with the members common to all charts."""
    return {"$schema": SCHEMA, "title": title, "width": WIDTH, "height": HEIGHT, **more}


def labelled(title: str, rows: Data, name: str, order: Sequence[str], unit: str, base: float | None = None) -> Spec:
    """Return one bar a row on a logarithmic scale, its value written beside it.

    Parameters
    ----------
    rows : each with its name under `name` and its `value`.
    base : where bars begin; left out, at the scale's left end, which lies below the least value.
    """
    values = [float(row["value"]) for row in rows] + ([] if base is None else [base])
    least, most = min(values) / SLACK, max(values) * SLACK
    y = {"field": name, "type": "nominal", "sort": list(order), "title": None, "axis": {"labelLimit": 320}}
    scale = {"type": "log", "domain": [least, most], "nice": False}
    x = {"field": "value", "type": "quantitative", "scale": scale, "title": unit}
    edge = {"field": "edge", "type": "quantitative"}
    data = [{**row, "edge": max(float(row["value"]), base or least)} for row in rows]
    return spec(
        title,
        width=WIDTH + LABELS,
        autosize={"type": "fit-x", "contains": "padding"},
        padding={"left": 5, "right": VALUE, "top": 5, "bottom": 5},
        height=32 * len(rows),
        data={"values": data},
        layer=[
            {
                "mark": {"type": "bar", "color": INK, "tooltip": {"content": "data"}},
                "encoding": {"y": y, "x": x, "x2": {"datum": least if base is None else base}},
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 4},
                "encoding": {
                    "y": y,
                    "x": {**x, **edge},
                    "text": {"field": "value", "type": "quantitative", "format": ",.3~r"},
                },
            },
        ],
    )


DOT = 80
"""Area of a point that stands for a thing of its own, such as a member or a plan [px]."""

POINTS = 400
