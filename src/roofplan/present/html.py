"""Answers as a few lines of HTML, for notebooks: figures with their intervals, memory as a bar. No script, no file beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import Any

from roofplan.records.units import gib, significant

Json = dict[str, Any]

MOST_PLANS = 2
"""Plans that are shown [1]."""

SIDE = 4.0
"""An interval's axis runs from a figure over this to this times it, or as far as the interval does [1]."""

COLOURS = {
    "weights": "#2f6f8f",
    "kv_cache": "#d98324",
    "activations": "#6a994e",
    "runtime": "#8d6a9f",
    "free": "#b9c4ca",
    "left_alone": "#e3d5a8",
}
"""Parts of a device's memory, in their order."""


def summary(document: Json, text: str) -> str:
    """Return an answer as HTML.

    Parameters
    ----------
    document : its JSON document.
    text : its screen.

    Returns
    -------
    HTML: of each of the best plans its figures and its memory, or the answer's own figures; the screen is folded below.
    """
    plans = document.get("plans", [])[:MOST_PLANS]
    parts = [_plan(one) for one in plans] or [_figures(dict(_metrics(document)))]
    shown = "".join(parts)
    folded = "" if shown else " open"
    return f"<div>{shown}<details{folded}><summary>as text</summary><pre>{escape(text)}</pre></details></div>"


def _plan(plan: Json) -> str:
    memory = plan.get("memory") or {}
    return f"<h4>{escape(str(plan['id']))}</h4>{_figures(plan['metrics'])}" + (
        _memory(memory) if memory.get("weights") else ""
    )


def _metrics(value: Json, before: str = "") -> Iterator[tuple[str, Json]]:
    """Yield the figures of a document that have an interval, by their places."""
    for name, one in value.items():
        if isinstance(one, dict) and {"value", "low", "high", "unit"} <= one.keys():
            yield f"{before}{name}", one
        elif isinstance(one, dict):
            yield from _metrics(one, f"{before}{name} ")


def _figures(found: dict[str, Json]) -> str:
    """Return figures as a table with their intervals drawn."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name.replace('_', ' '))}</th><td>{significant(one['value'])} {escape(one['unit'])}</td>"
        f"<td>{_interval(one)}</td><td>{significant(one['low'])} to {significant(one['high'])}</td><td>{escape(one.get('grade', ''))}</td></tr>"
        for name, one in found.items()
    )
    return f"<table>{rows}</table>" if rows else ""


def _interval(metric: Json) -> str:
    """Return a figure's interval on a logarithmic axis."""
    value, low, high = metric["value"], metric["low"], metric["high"]
    if not (value > 0.0 and low > 0.0 and high > 0.0):
        return ""
    left, right = math.log(min(low, value / SIDE)), math.log(max(high, value * SIDE))

    def at(x: float) -> float:
        return 120.0 * (math.log(x) - left) / (right - left)

    return (
        "<svg width='120' height='14' role='img' aria-label='90% interval'><line x1='0' x2='120' y1='7' y2='7' stroke='#c6d2d9'/>"
        f"<rect x='{at(low):.1f}' width='{max(1.0, at(high) - at(low)):.1f}' y='3' height='8' fill='#9fc3d6'/>"
        f"<rect x='{at(value) - 1:.1f}' width='2' y='0' height='14' fill='#1f5a7a'/></svg>"
    )


def _memory(memory: Json) -> str:
    """Return what fills a device as a bar."""
    parts = [(name, memory[name], colour) for name, colour in COLOURS.items() if memory.get(name)]
    whole, left, bars = sum(size for _, size, _ in parts), 0.0, []
    for name, size, colour in parts:
        width = 600.0 * size / whole
        said = f"{name.replace('_', ' ')} {gib(size)} GiB"
        bars.append(
            f"<rect x='{left:.1f}' width='{width:.1f}' height='20' fill='{colour}'><title>{said}</title></rect>"
        )
        left += width
    words = ", ".join(f"{name.replace('_', ' ')} {gib(size)}" for name, size, _ in parts)
    return f"<svg width='600' height='20' role='img' aria-label='memory of a device'>{''.join(bars)}</svg><p>GiB: {words}</p>"
