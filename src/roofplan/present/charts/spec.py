"""What all pictures share: the specification of Vega-Lite, its colours, and labelled marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Spec = dict[str, Any]
"""A specification of Vega-Lite."""

Data = Sequence[dict[str, Any]]
"""Rows that a picture draws."""


SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"


WIDTH, HEIGHT = 640, 300


INK, WEAK = "#1f5a7a", "#c9d6de"


LABELS = 130
"""What names and units of long bars take beside them [pixel]."""


SLACK = 3.0
"""What a logarithmic scale of bars leaves free at either end [factor]."""


def spec(title: str, **more: Any) -> Spec:
    """Return a specification with what all pictures share."""
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


POINTS = 400
