"""Charts of costs: bills of materials, hourly costs, prices over the years, and break-even with APIs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from roofplan.errors import InputError
from roofplan.money.chip import INPUT_NAMES, Bill, chip_of, price_of
from roofplan.money.chip import bill as bill_of
from roofplan.money.history import WIDTHS, Gain, Milestone
from roofplan.money.machine import Owned
from roofplan.money.rent import Quote
from roofplan.money.tokens import TokenCosts
from roofplan.money.uncertainty import Swing
from roofplan.present.charts.spec import INK, POINTS, WEAK, Spec, labelled, spec
from roofplan.records.units import HOUR


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
    rows: list[Spec] = [
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


DECADES = 4
"""Decades of the break-even's volumes; as many ticks put labels at powers of ten alone."""


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
    axis = {"labelExpr": "replace(format(datum.value, '~s'), 'G', 'B')", "tickCount": DECADES}
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
    """Return a chart of a device's dated rents, by kind.

    Parameters
    ----------
    device : id of the device.
    quotes : its dated rents [USD/h].

    Returns
    -------
    Specification of the chart.
    """
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
    """Return charts of the price of a dense rate by launch date, and of the factors between two devices.

    Parameters
    ----------
    found : devices at their launch.
    step : one device compared with an older one.

    Returns
    -------
    Specifications of both charts.
    """
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


def called(owned: Owned) -> str:
    """Return the name of a machine in charts."""
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
    """Return the charts of owned machines: hourly costs on one scale, and what each cost is sensitive to.

    Parameters
    ----------
    found : owned machines.

    Returns
    -------
    Specifications of the charts: one of all hourly costs, then one tornado chart per machine.
    """
    winds = [tornado(f"{called(one)}: what matters in an hour", one.swings(), one.hourly, "USD/h") for one in found]
    return [hours(found), *winds]


def bills(bill: Bill) -> list[Spec]:
    """Return the charts of a bill of materials.

    Parameters
    ----------
    bill : the bill of materials.

    Returns
    -------
    Specifications of a waterfall and a tornado chart.
    """
    return [bill_waterfall(bill), tornado("what matters", bill.swings, bill.cost.central, "USD")]


def monthly(found: TokenCosts) -> list[Spec]:
    """Return the charts of a month's tokens: break-even, sensitivity of each supply, and the chain from wafer to token.

    Parameters
    ----------
    found : a month's tokens at an API and on rented and owned machines.

    Returns
    -------
    Specifications of the charts; the chain from wafer to token is drawn only for an owned machine whose chip is described.
    """
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
