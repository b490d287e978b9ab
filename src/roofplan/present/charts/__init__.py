"""Pictures of answers as Vega-Lite specifications; nothing is computed here, numbers come from plans, bills and Terms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from roofplan.errors import InputError
from roofplan.money.chip import INPUT_NAMES, Bill, chip_of, price_of
from roofplan.money.chip import bill as bill_of
from roofplan.money.history import WIDTHS, Gain, Milestone
from roofplan.money.machine import Owned
from roofplan.money.rent import Quote
from roofplan.money.tokens import TokenCosts
from roofplan.money.uncertainty import Swing
from roofplan.records.hardware import Accelerator
from roofplan.records.terms import Term
from roofplan.records.units import GIB, HOUR
from roofplan.serving import Plan, Result, all_in_cost
from roofplan.timing.kernels import ROOFLINE
from roofplan.training import TrainingPlan, TrainingResult

if TYPE_CHECKING:
    from roofplan.evidence.scoring import Outcome, Validation

Spec = dict[str, Any]

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


def waterfall(
    title: str, parts: Sequence[tuple[str, float]], unit: str, ends: Sequence[tuple[str, float]] = ()
) -> Spec:
    """Return parts that stack up to their total, then whatever stands beyond it, such as a price.

    Parameters
    ----------
    ends : names and heights of bars from zero, after the total.
    """
    rows, at = [], 0.0
    for name, value in parts:
        rows.append({"name": name, "from": at, "to": at + value, "value": value, "kind": "part"})
        at += value
    rows.append({"name": "total", "from": 0.0, "to": at, "value": at, "kind": "total"})
    rows += [{"name": name, "from": 0.0, "to": value, "value": value, "kind": "total"} for name, value in ends]
    order = [row["name"] for row in rows]
    x = {"field": "name", "type": "nominal", "sort": order, "title": None, "axis": {"labelAngle": -35}}
    return spec(
        title,
        data={"values": rows},
        layer=[
            {
                "mark": {"type": "bar", "tooltip": True},
                "encoding": {
                    "x": x,
                    "y": {"field": "from", "type": "quantitative", "title": unit},
                    "y2": {"field": "to"},
                    "color": {
                        "field": "kind",
                        "type": "nominal",
                        "scale": {"domain": ["part", "total"], "range": [INK, WEAK]},
                        "legend": None,
                    },
                },
            },
            {
                "mark": {"type": "text", "dy": -7},
                "encoding": {
                    "x": x,
                    "y": {"field": "to", "type": "quantitative"},
                    "text": {"field": "value", "type": "quantitative", "format": ",.3~r"},
                },
            },
        ],
    )


def bill_waterfall(bill: Bill) -> Spec:
    """Return what a part costs to make, in parts, beside the price at which it is sold."""
    ends = [("sold at", bill.price.value)] if bill.price is not None else []
    parts = [(part.name, float(part.value)) for part in bill.term.parts]
    return waterfall(f"{bill.chip.name}: from wafer to card", parts, "USD", ends)


def wafer_to_token(bill: Bill, owned: Owned, tokens: TokenCosts) -> Spec:
    """Return the chain from silicon to a million output tokens, each link over the one before."""
    supply = next(one for one in tokens.supplies if one.kind == "own")
    each = supply.hourly.total / HOUR / supply.capacity.central * 1e6
    per_device = owned.purchase / owned.machine.count
    logic = sum(float(part.value) for part in bill.term.parts if part.name.startswith("logic"))
    rows: list[dict[str, Any]] = [
        {"link": "logic dies", "value": logic, "unit": "USD"},
        {"link": "card, parts", "value": bill.cost.central, "unit": "USD"},
        {"link": "card in its server, bought", "value": per_device, "unit": "USD"},
        {"link": "hour of a card, owned", "value": owned.hourly / owned.machine.count, "unit": "USD/h"},
        {"link": "million tokens out and their prompts, full", "value": each, "unit": "USD"},
    ]
    if tokens.api is not None:
        asked = tokens.api.blended / tokens.demand.tokens / (1.0 - tokens.demand.share) * 1e6
        rows.append({"link": "the same at the median API", "value": asked, "unit": "USD"})
    order = [str(row["link"]) for row in rows]
    return labelled(f"{bill.chip.name}: from wafer to token", rows, "link", order, "USD")


def labelled(
    title: str, rows: Sequence[dict[str, Any]], name: str, order: Sequence[str], unit: str, base: float | None = None
) -> Spec:
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


def tornado(title: str, swings: Sequence[Swing], middle: float, unit: str) -> Spec:
    """Return what each input's range does to a result, the widest first."""
    rows = [
        {"input": INPUT_NAMES.get(one.name, one.name), "low": min(one.low, one.high), "high": max(one.low, one.high)}
        for one in swings
        if one.width > 0.0
    ]
    return spec(
        title,
        data={"values": rows},
        height=max(60, 26 * len(rows)),
        layer=[
            {
                "mark": {"type": "bar", "color": INK, "tooltip": True},
                "encoding": {
                    "y": {"field": "input", "type": "nominal", "sort": [row["input"] for row in rows], "title": None},
                    "x": {"field": "low", "type": "quantitative", "title": unit, "scale": {"zero": False}},
                    "x2": {"field": "high"},
                },
            },
            {"mark": {"type": "rule", "color": "black"}, "encoding": {"x": {"datum": middle, "type": "quantitative"}}},
        ],
    )


POINTS = 400


def break_even(found: TokenCosts) -> Spec:
    """Return a month's cost over the tokens of a month: the API's, rented and owned machines'."""
    least = max(found.demand.tokens / 100.0, found.demand.input + found.demand.output)
    volumes = np.geomspace(least, found.demand.tokens * 100.0, POINTS)
    rows = []
    for volume in volumes:
        here = replace(found.demand, tokens=float(volume))
        if found.api is not None:
            each = found.api.blended / found.demand.tokens
            rows.append({"tokens": float(volume), "cost": each * float(volume), "kind": "API, median"})
        rows.extend({"tokens": float(volume), "cost": one.month(here), "kind": one.kind} for one in found.supplies)
    axis = {"labelExpr": "replace(format(datum.value, '~s'), 'G', 'B')"}
    encoding = {
        "x": {
            "field": "tokens",
            "type": "quantitative",
            "scale": {"type": "log"},
            "title": "tokens a month",
            "axis": axis,
        },
        "y": {"field": "cost", "type": "quantitative", "scale": {"type": "log"}, "title": "USD a month", "axis": axis},
        "color": {"field": "kind", "type": "nominal", "title": None},
    }
    api = "datum.kind == 'API, median'"
    return spec(
        f"{found.model}: a month's tokens",
        data={"values": rows},
        layer=[
            {"transform": [{"filter": api}], "mark": {"type": "line", "tooltip": True}, "encoding": encoding},
            {
                "transform": [{"filter": f"!({api})"}],
                "mark": {"type": "line", "tooltip": True, "interpolate": "step-after"},
                "encoding": encoding,
            },
        ],
    )


def price_history(device: str, quotes: Sequence[Quote]) -> Spec:
    """Return the dated rents of a device, kind by kind."""
    rows = [
        {
            "date": q.price.middle.isoformat(),
            "value": q.price.value,
            "kind": q.price.kind,
            "provider": q.price.provider or "-",
        }
        for q in quotes
    ]
    return spec(
        f"{device}: rents",
        data={"values": rows},
        mark={"type": "point", "filled": True, "tooltip": True, "size": 60},
        encoding={
            "x": {"field": "date", "type": "temporal", "title": None, "axis": {"format": "%Y-%m"}},
            "y": {"field": "value", "type": "quantitative", "title": "USD/h a device"},
            "color": {"field": "kind", "type": "nominal", "title": None},
            "shape": {"field": "kind", "type": "nominal", "title": None},
            "tooltip": [{"field": name, "type": "nominal"} for name in ("provider", "date", "value", "kind")],
        },
    )


def history(found: Sequence[Milestone], step: Gain) -> list[Spec]:
    """Return the price of a dense rate by launch, and what makes one device faster than another."""
    rows = [
        {"launch": one.launched, "USD a TFLOP/s": value * 1e12, "operand": bits, "device": one.device.id}
        for one in found
        for bits, value in one.per_rate.items()
    ]
    prices = spec(
        "price of a dense rate, by launch",
        data={"values": rows},
        mark={"type": "point", "filled": True, "size": 60, "tooltip": {"content": "data"}},
        encoding={
            "x": {
                "field": "launch",
                "type": "quantitative",
                "scale": {"zero": False},
                "title": None,
                "axis": {"format": "d"},
            },
            "y": {"field": "USD a TFLOP/s", "type": "quantitative", "scale": {"type": "log"}},
            "color": {"field": "operand", "type": "nominal", "title": None, "scale": {"domain": list(WIDTHS)}},
            "shape": {"field": "operand", "type": "nominal", "title": None, "scale": {"domain": list(WIDTHS)}},
        },
    )
    factors = [{"factor": name, "value": value} for name, value in step.factors.items()]
    title = f"{step.old.id} to {step.new.id}: {step.whole:.3g} times the best rate"
    steps = labelled(title, factors, "factor", list(step.factors), "times", base=1.0)
    return [prices, steps]


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
    """Return, for each metric, what was predicted beside what was measured, and how far apart they are by source."""
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


def spread_of_ratios(title: str, rows: Sequence[dict[str, Any]], by: str) -> Spec:
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


def called(owned: Owned) -> str:
    """Return what a machine is called on pictures."""
    return owned.machine.text or owned.machine.device.id


def hours(found: Sequence[Owned]) -> Spec:
    """Return what an hour of machines of one's own is made of, side by side on one scale, each with the range of its whole."""
    rows, wholes = [], []
    for one in found:
        for place, part in enumerate(one.term.parts):
            rows.append({"machine": called(one), "part": part.name, "value": float(part.value), "order": place})
        edge = one.interval()
        wholes.append({"machine": called(one), "low": edge.low, "high": edge.high})
    y = {"field": "machine", "type": "nominal", "sort": [called(one) for one in found], "title": None}
    return spec(
        "an hour of one's own",
        height=max(80, 60 * len(found)),
        layer=[
            {
                "data": {"values": rows},
                "mark": {"type": "bar", "tooltip": True, "height": 30},
                "encoding": {
                    "y": y,
                    "x": {"field": "value", "type": "quantitative", "stack": True, "title": "USD/h"},
                    "color": {"field": "part", "type": "nominal", "title": None},
                    "order": {"field": "order", "type": "quantitative"},
                },
            },
            {
                "data": {"values": wholes},
                "mark": {"type": "rule", "color": "black", "strokeWidth": 2, "tooltip": True},
                "encoding": {"y": y, "x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}},
            },
        ],
    )


def machines(found: Sequence[Owned]) -> list[Spec]:
    """Return the pictures of machines of one's own: an hour of each on one scale, and what matters in it."""
    winds = [tornado(f"{called(one)}: what matters in an hour", one.swings(), one.hourly, "USD/h") for one in found]
    return [hours(found), *winds]


def leaves(tree: Term) -> Iterator[Term]:
    """Yield a tree's leaves."""
    if not tree.parts:
        yield tree
    for part in tree.parts:
        yield from leaves(part)


def kernels(tree: Term, phase: str) -> list[dict[str, Any]]:
    """Return the kernels of a tree that move and compute, as points under a roofline."""
    rows = []
    for leaf in leaves(tree):
        if not all(name in leaf.numbers for name in ROOFLINE):
            continue
        moved, memory_rate, work, compute_rate = (float(leaf.numbers[name][0]) for name in ROOFLINE)
        if not work or not moved:
            continue
        seconds = max(moved / memory_rate, work / compute_rate)
        rows.append(
            {
                "kernel": leaf.name,
                "phase": phase,
                "intensity": work / moved,
                "rate": work / seconds,
                "time": float(leaf.value),
            }
        )
    return rows


def roofline(title: str, rows: Sequence[dict[str, Any]], device: Accelerator, number_format: str) -> Spec:
    """Return kernels under the roofline of a device, as large as the time that they take."""
    peak = device.peak.get(number_format) or device.peak.get("bf16") or next(iter(device.peak.values()))
    width = float(device.bandwidth or 1.0)
    ridge = peak.value / width
    low = min([ridge / 2.0, *(row["intensity"] for row in rows)]) / 2.0
    high = max((row["intensity"] for row in rows), default=1.0) * 2.0
    roof = [{"intensity": at, "rate": min(peak.value, at * width)} for at in sorted({low, ridge, max(high, 2 * ridge)})]
    x = {"field": "intensity", "type": "quantitative", "scale": {"type": "log"}, "title": "FLOP/B"}
    y = {"field": "rate", "type": "quantitative", "scale": {"type": "log"}, "title": "FLOP/s", "axis": {"format": "~s"}}
    return spec(
        title,
        layer=[
            {"data": {"values": roof}, "mark": {"type": "line", "color": "black"}, "encoding": {"x": x, "y": y}},
            {
                "data": {"values": list(rows)},
                "mark": {"type": "point", "filled": True, "opacity": 0.7},
                "encoding": {
                    "x": x,
                    "y": y,
                    "size": {"field": "time", "type": "quantitative", "title": "seconds"},
                    "color": {"field": "phase", "type": "nominal", "title": None},
                    "tooltip": [
                        {"field": "kernel", "type": "nominal"},
                        {"field": "intensity", "type": "quantitative", "format": ",.3~r"},
                        {"field": "rate", "type": "quantitative", "format": ".3~s"},
                        {"field": "time", "type": "quantitative", "format": ".3~s"},
                    ],
                },
            },
        ],
    )


def front(title: str, rows: Sequence[dict[str, Any]], x: str, y: str, scale: str = "linear") -> Spec:
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
            "y": {"field": y, "type": "quantitative", "scale": {"type": "log"} if scale == "log" else {"zero": False}},
            "color": {
                "field": "front",
                "type": "nominal",
                "title": "on the front",
                "scale": {"domain": ["yes", "no"], "range": [INK, WEAK]},
            },
        },
    )


def serving(result: Result) -> list[Spec]:
    """Return the pictures of a serving search: its best plan's roofline and memory, and all plans by latency and cost."""
    plan: Plan = result.plans[0]
    rows = [*kernels(plan.prediction.decode, "decode"), *kernels(plan.prediction.prefill, "prefill")]
    held = [(part.name, float(part.value)) for part in plan.memory.term(plan.cache_in_use).parts]
    out = [
        roofline(
            f"{plan.label}: kernels under the roofline of {plan.machine.device.id}", rows, plan.machine.device, "bf16"
        ),
        memory_stack("memory of the fullest device", held, float(plan.machine.device.memory or 0.0)),
    ]
    points = [
        {
            "plan": one.label,
            "machine": one.machine.text or one.machine.device.id,
            "TPOT ms": one.pace.value * 1e3,
            "USD per million output tokens": whole.value,
        }
        for one in result.plans
        if (whole := all_in_cost(one)) is not None
    ]
    if len(points) > 1:
        out.append(front("plans: latency against cost", points, "TPOT ms", "USD per million output tokens", "log"))
    return out


def training(result: TrainingResult) -> list[Spec]:
    """Return the pictures of a training search: the best plan's step, its kernels, its memory, and all plans by time and memory."""
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
        memory_stack("memory of the fullest stage", held, float(device.memory or 0.0)),
    ]
    if len(points) > 1:
        out.append(front("plans: step time against memory", points, "step s", "GiB"))
    return out


def bills(bill: Bill) -> list[Spec]:
    """Return the pictures of a bill of materials."""
    return [bill_waterfall(bill), tornado("what matters", bill.swings, bill.cost.central, "USD")]


def monthly(found: TokenCosts) -> list[Spec]:
    """Return the pictures of a month's tokens: where they break even, and from wafer to token where the machine is owned and its chip is known."""
    out = [break_even(found)]
    out += [
        tornado(f"what matters in a month, {one.kind}", one.swings, one.monthly.central, "USD a month")
        for one in found.supplies
    ]
    owned = next((one.owned for one in found.supplies if one.owned is not None), None)
    if owned is not None:
        try:
            bill = bill_of(chip_of(owned.machine.device), owned.fit, price_of(owned.machine.device))
        except InputError:
            return out  # a device whose silicon is not known has no chain to draw
        out.append(wafer_to_token(bill, owned, found))
    return out
