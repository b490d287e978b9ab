"""Charts of answers as Vega-Lite specifications. Nothing is computed here: numbers come from plans, bills and Terms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from roofplan.errors import unwrap
from roofplan.present.charts.money import waterfall
from roofplan.present.charts.spec import HEIGHT, INK, WEAK, WIDTH, Data, Spec, spec
from roofplan.records.hardware import Accelerator
from roofplan.records.terms import Term
from roofplan.records.units import GIB
from roofplan.serving import Plan, Result, all_in_cost
from roofplan.timing.figures import Metric
from roofplan.timing.kernels import under_roof
from roofplan.training import TrainingPlan, TrainingResult

if TYPE_CHECKING:
    from roofplan.evidence.scoring import Outcome, Validation


def memory_stack(title: str, parts: Sequence[tuple[str, float]], capacity: float) -> Spec:
    """Return what fills a device's memory, against its capacity."""
    rows = [
        {"part": name, "GiB": value / GIB, "order": place} for place, (name, value) in enumerate(parts) if value > 0.0
    ]
    return spec(
        title,
        height=90,
        data={"values": rows},
        layer=[
            {
                "mark": {"type": "bar", "tooltip": True, "height": 40},
                "encoding": {
                    "x": {"field": "GiB", "type": "quantitative", "stack": True, "title": "GiB"},
                    "color": {"field": "part", "type": "nominal", "title": None, "sort": [row["part"] for row in rows]},
                    "order": {"field": "order", "type": "quantitative"},
                },
            },
            {
                "mark": {"type": "rule", "color": "black", "strokeWidth": 2},
                "encoding": {"x": {"datum": capacity / GIB, "type": "quantitative"}},
            },
        ],
    )


def accuracy(found: Validation) -> list[Spec]:
    """Return charts of each metric: predicted against measured, their ratio by group, and the coverage of the intervals.

    Parameters
    ----------
    found : predictions and measurements.

    Returns
    -------
    Specifications of the charts.
    """
    out = []
    for name in found.summary():
        pairs = [(one, one.predicted.value) for one in found.of(name) if one.predicted is not None]
        rows = [
            {
                "measured": one.measured,
                "predicted": value,
                "ratio": one.ratio,
                "source": one.source,
                "row": one.id,
                "regime": one.regime,
            }
            for one, value in pairs
        ]
        every = [value for one, predicted in pairs for value in (one.measured, predicted)]
        ends = [min(every), max(every)]
        color = {"field": "source", "type": "nominal", "title": None}
        scale = {"type": "log", "domain": ends, "nice": False}
        unit = next(one.unit for row, _ in pairs if (one := row.predicted) is not None)
        out.append(
            spec(
                f"{name}: predicted against measured",
                height=420,
                layer=[
                    {
                        "data": {"values": [{"end": end} for end in ends]},
                        "mark": {"type": "line", "color": "black", "strokeWidth": 1},
                        "encoding": {
                            "x": {
                                "field": "end",
                                "type": "quantitative",
                                "scale": scale,
                                "title": f"measured [{unit}]",
                            },
                            "y": {
                                "field": "end",
                                "type": "quantitative",
                                "scale": scale,
                                "title": f"predicted [{unit}]",
                            },
                        },
                    },
                    {
                        "data": {"values": rows},
                        "mark": {"type": "point", "filled": True, "size": 22, "tooltip": {"content": "data"}},
                        "encoding": {
                            "x": {"field": "measured", "type": "quantitative", "scale": scale},
                            "y": {"field": "predicted", "type": "quantitative", "scale": scale},
                            "color": color,
                        },
                    },
                ],
            )
        )
        groups = ("source", "regime") if any(one.regime for one, _ in pairs) else ("source",)
        out += [spread_of_ratios(f"{name}: predicted over measured, by {by}", rows, by) for by in groups]
        out.append(held(f"{name}: share of measurements inside the 90% interval", [one for one, _ in pairs]))
    return out


def spread_of_ratios(title: str, rows: Data, by: str) -> Spec:
    """Return predicted over measured in groups, as boxes."""
    return spec(
        title,
        height=max(60, 26 * len({row[by] for row in rows})),
        data={"values": rows},
        mark={"type": "boxplot", "extent": 1.5, "size": 14, "color": INK},
        encoding={
            "y": {"field": by, "type": "nominal", "title": None, "axis": {"labelLimit": 220}},
            "x": {
                "field": "ratio",
                "type": "quantitative",
                "scale": {"type": "log"},
                "title": "predicted / measured",
            },
        },
    )


def held(title: str, outcomes: Sequence[Outcome]) -> Spec:
    """Return by source the share of measurements that their intervals hold, against nine in ten."""
    groups: dict[str, list[bool]] = {}
    for one in outcomes:
        groups.setdefault(one.source, []).append(one.covered)
    rows = [{"source": name, "share": sum(found) / len(found), "rows": len(found)} for name, found in groups.items()]
    y = {"field": "source", "type": "nominal", "title": None, "axis": {"labelLimit": 220}}
    return spec(
        title,
        height=max(60, 26 * len(rows)),
        data={"values": rows},
        layer=[
            {
                "mark": {"type": "bar", "color": INK, "tooltip": {"content": "data"}},
                "encoding": {
                    "y": y,
                    "x": {
                        "field": "share",
                        "type": "quantitative",
                        "scale": {"domain": [0.0, 1.0]},
                        "axis": {"format": "%"},
                        "title": None,
                    },
                },
            },
            {"mark": {"type": "rule", "color": "black"}, "encoding": {"x": {"datum": 0.9, "type": "quantitative"}}},
        ],
    )


def leaves(tree: Term) -> Iterator[Term]:
    """Yield a tree's leaves, and kernels whose parts are their reads and their arithmetic."""
    if not tree.parts or under_roof(tree) is not None:
        yield tree
        return
    for part in tree.parts:
        yield from leaves(part)


def kernels(tree: Term, phase: str) -> list[Spec]:
    """Return the kernels of a tree that move and compute, as points under a roofline."""
    rows = []
    for leaf in leaves(tree):
        place = under_roof(leaf)
        if place is None:
            continue
        rows.append(
            {
                "kernel": leaf.name,
                "phase": phase,
                "intensity": place.intensity,
                "rate": place.rate,
                "time": float(leaf.value),
                "binds": place.binds,
                "formula": leaf.formula() if leaf.text else "",
                "sources": "; ".join(one.citation for one in leaf.sources),
            }
        )
    return rows


def roofline(title: str, rows: Data, device: Accelerator, number_format: str) -> Spec:
    """Return kernels under the roofline of a device, as large as the time that they take."""
    peak = device.peak.get(number_format) or device.peak.get("bf16") or next(iter(device.peak.values()))
    width = float(unwrap(device.bandwidth))
    ridge = peak.value / width
    low = min([ridge / 2.0, *(row["intensity"] for row in rows)]) / 2.0
    high = max((row["intensity"] for row in rows), default=1.0) * 2.0
    formats: dict[float, list[str]] = {peak.value: []}
    for name, one in device.peak.items():
        formats.setdefault(one.value, []).append(name)
    high = max(high, 2.0 * max(formats) / width)
    ends = [{"intensity": high, "rate": rate, "format": ", ".join(names)} for rate, names in formats.items()]
    roofs = [
        {"intensity": at, "rate": min(rate, at * width), "format": ", ".join(names), "of these": rate == peak.value}
        for rate, names in formats.items()
        for at in sorted({low, rate / width, high})
    ]
    x = {"field": "intensity", "type": "quantitative", "scale": {"type": "log"}, "title": "FLOP/B"}
    y = {"field": "rate", "type": "quantitative", "scale": {"type": "log"}, "title": "FLOP/s", "axis": {"format": "~s"}}
    return spec(
        title,
        layer=[
            {
                "data": {"values": roofs},
                "mark": {"type": "line", "tooltip": True},
                "encoding": {
                    "x": x,
                    "y": y,
                    "detail": {"field": "format", "type": "nominal"},
                    "strokeDash": {"condition": {"test": "datum['of these']", "value": [1, 0]}, "value": [4, 4]},
                    "color": {"condition": {"test": "datum['of these']", "value": "black"}, "value": "gray"},
                },
            },
            {
                "data": {"values": ends},
                "mark": {"type": "text", "align": "right", "dy": -6, "color": "black"},
                "encoding": {"x": x, "y": y, "text": {"field": "format", "type": "nominal"}},
            },
            {
                "data": {"values": list(rows)},
                "params": [
                    {"name": "view", "bind": "scales", "select": {"type": "interval", "zoom": "wheel![event.shiftKey]"}}
                ],
                "mark": {"type": "point", "filled": True, "opacity": 0.8},
                "encoding": {
                    "x": x,
                    "y": y,
                    "size": {"field": "time", "type": "quantitative", "title": "seconds"},
                    "color": {"field": "phase", "type": "nominal", "title": None},
                    "shape": {
                        "field": "binds",
                        "type": "nominal",
                        "title": "binds",
                        "scale": {"domain": ["memory", "compute"], "range": ["circle", "square"]},
                    },
                    "tooltip": [
                        {"field": "kernel", "type": "nominal"},
                        {"field": "binds", "type": "nominal"},
                        {"field": "intensity", "type": "quantitative", "format": ",.3~r"},
                        {"field": "rate", "type": "quantitative", "format": ".3~s"},
                        {"field": "time", "type": "quantitative", "format": ".3~s"},
                        {"field": "formula", "type": "nominal"},
                        {"field": "sources", "type": "nominal"},
                    ],
                },
            },
        ],
    )


def front(title: str, rows: Data, x: str, y: str) -> Spec:
    """Return plans by two measures of which less is better, those that no other beats in both marked."""
    best, marked = math.inf, []
    for row in sorted(rows, key=lambda row: (row[x], row[y])):
        marked.append({**row, "front": "yes" if row[y] < best else "no"})
        best = min(best, row[y])
    marked.sort(key=lambda row: row["front"])  # those on the front are drawn last, over the others
    return spec(
        title,
        data={"values": marked},
        mark={"type": "point", "filled": True, "tooltip": {"content": "data"}, "size": 70},
        encoding={
            "x": {"field": x, "type": "quantitative", "scale": {"zero": False}},
            "y": {"field": y, "type": "quantitative", "scale": {"zero": False}},
            "color": {
                "field": "front",
                "type": "nominal",
                "title": "on the front",
                "scale": {"domain": ["yes", "no"], "range": [INK, WEAK]},
            },
        },
    )


MOST_INTERVALS = 120
"""Plans whose intervals are drawn; of more, only their values [1]."""


def linked(title: str, rows: Data, pairs: Sequence[tuple[str, str]]) -> Spec:
    """Return plans by pairs of measures, side by side: what is marked in one picture stands out in the others.

    Parameters
    ----------
    title : of the whole.
    rows : plans, each with its measures, and with ``NAME low`` and ``NAME high`` of those that have an interval.
    pairs : measures of each picture, across and up.
    """
    brush = {"condition": {"param": "marked", "value": 1.0}, "value": 0.15}
    color = {"field": "machine", "type": "nominal", "title": None}

    def picture(across: str, up: str, *, first: bool) -> Spec:
        x = {"field": across, "type": "quantitative", "scale": {"type": "log", "nice": False, "padding": 12}}
        y = {"field": up, "type": "quantitative", "scale": {"type": "log", "nice": False, "padding": 12}}
        ends = {"field": f"{up} low", "type": "quantitative"}, {"field": f"{up} high"}
        span = {"y": {**y, **ends[0], "title": up}, "y2": ends[1]}
        rules = {"mark": {"type": "rule", "opacity": 0.35}, "encoding": {"x": x, **span, "color": color}}
        points = {
            "mark": {"type": "point", "filled": True, "size": 70, "tooltip": {"content": "data"}},
            "encoding": {"x": x, "y": y, "color": color, "opacity": brush},
            "params": [{"name": "marked", "select": {"type": "interval"}}] if first else [],
        }
        drawn = len(rows) <= MOST_INTERVALS and any(f"{up} low" in row for row in rows)
        return {"width": WIDTH // 2, "height": HEIGHT, "layer": [*([rules] if drawn else []), points]}

    views = [picture(across, up, first=place == 0) for place, (across, up) in enumerate(pairs)]
    whole = spec(title, data={"values": list(rows)}, hconcat=views)
    return {name: value for name, value in whole.items() if name not in {"width", "height"}}


def serving(result: Result) -> list[Spec]:
    """Return the charts of a serving search: the best plan's roofline and memory, and all plans by latency and cost.

    Parameters
    ----------
    result : the plans found, the best first.

    Returns
    -------
    Specifications of the charts; the last is left out where fewer than two plans have a cost.
    """
    plan: Plan = result.plans[0]
    rows = [*kernels(plan.prediction.decode, "decode"), *kernels(plan.prediction.prefill, "prefill")]
    held = [(part.name, float(part.value)) for part in plan.memory.term(plan.cache_in_use).parts]
    out = [
        roofline(
            f"{plan.label}: kernels under the roofline of {plan.machine.device.id}", rows, plan.machine.device, "bf16"
        ),
        memory_stack("memory of the fullest device", held, plan.machine.device.room),
    ]
    pace, dollars = "TPOT ms", "USD per million output tokens"
    points = [
        {
            "plan": one.label,
            "machine": one.machine.text or one.machine.device.id,
            "users": one.users,
            **{f"{pace}{end}": value * 1e3 for end, value in _ends(one.pace)},
            **{f"{dollars}{end}": value for end, value in _ends(whole)},
        }
        for one in result.plans
        if (whole := all_in_cost(one)) is not None
    ]
    if len(points) > 1:
        out.append(linked("plans: users, latency and cost", points, [("users", pace), (pace, dollars)]))
    return out


def _ends(found: Metric) -> list[tuple[str, float]]:
    """Return a figure and the ends of its interval, by what stands behind its name."""
    return [("", found.value), (" low", found.low), (" high", found.high)]


def training(result: TrainingResult) -> list[Spec]:
    """Return the charts of a training search: the best plan's step, roofline and memory, and all plans by time and memory.

    Parameters
    ----------
    result : the plans found, the best first.

    Returns
    -------
    Specifications of the charts; the last is left out where there is only one plan.
    """
    plan: TrainingPlan = result.plans[0]
    parts = [(name, float(seconds)) for name, seconds in plan.step.parts.items() if float(seconds) > 0.0]
    held = [(part.name, float(part.value)) for part in plan.ledger.allocated.parts]
    points = [
        {
            "plan": one.label,
            "step s": one.metrics["step_time"].value,
            "GiB": one.metrics["memory_reserved"].value / GIB,
        }
        for one in result.plans
    ]
    device = plan.machine.device
    out = [
        waterfall(f"{plan.layout.label()}: a step", parts, "s"),
        roofline(f"kernels under the roofline of {device.id}", kernels(plan.term, "step"), device, plan.job.precision),
        memory_stack("memory of the fullest stage", held, device.room),
    ]
    if len(points) > 1:
        out.append(front("plans: step time against memory", points, "step s", "GiB"))
    return out
