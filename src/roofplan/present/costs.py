"""Answers of ``roofplan cost`` as JSON: chips, machines, tokens, rents and their history."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from roofplan.money.chip import Bill, gross_dies, usable
from roofplan.money.history import CLASSES, WIDTHS, Gain, Milestone, fit_trend
from roofplan.money.machine import Owned, against, fed, per_petaflop_hour
from roofplan.money.prices import stale_warning
from roofplan.money.rent import RENTS, Quote
from roofplan.money.tokens import Supply, TokenCosts
from roofplan.money.uncertainty import Interval, as_json, central
from roofplan.present.answers import base, cited_json, coded, finite
from roofplan.records.source import document


def _ranged(found: Interval, unit: str) -> dict[str, Any]:
    """Return an interval as plain values."""
    return {"value": found.central, "low": found.low, "high": found.high, "unit": unit, "grade": found.grade}


def chip_answer(found: Bill, inputs: dict[str, Any], *, depth: int) -> dict[str, Any]:
    """Return the answer of ``roofplan cost chip``."""
    out = base("cost chip", "ok", inputs)
    chip = found.chip
    out["chip"] = {
        "id": chip.id,
        "memory": chip.memory,
        "capacity": chip.capacity,
        "interposer": chip.interposer,
    }
    out["cost"] = as_json(found.cost, found.swings, "USD")
    at = central(found.inputs)
    out["dies"] = [
        {
            "name": d.name,
            "node": d.node,
            "area": d.area,
            "count": d.count,
            "units": d.units,
            "sold": d.sold,
            "gross": gross_dies(d),
            "usable": float(usable(d, at)),
        }
        for d in chip.dies
    ]
    out["warnings"] += coded(stale_warning(found.chip.id, found.price.date) if found.price is not None else ())
    out["absent"] = found.absent
    out["parts"] = {part.name: float(part.value) for part in found.term.parts}
    out["perfect_dies"] = found.rivals
    if found.price is not None:
        p = found.price
        out["price"] = {"value": p.value, "unit": "USD", "kind": p.kind, "date": p.date, "source": p.source}
        out["price"]["scope"] = p.scope
    if found.margin is not None:
        out["gross_margin"] = _ranged(found.margin, "1")
    if found.design is not None:
        out["design"] = {"value": found.design, "unit": "USD"}
    out["explain"] = found.term.as_json(depth)
    out["sources"] = cited_json([*found.term.bibliography(), *(item.cited for item in found.inputs.values())])
    return out


def _against(owned: Owned) -> dict[str, Any] | None:
    """Return owning beside renting as plain values; null without rents of the device."""
    found = against(owned)
    if found is None:
        return None
    return {
        "low": found.low,
        "high": found.high,
        "unit": "USD/h",
        "quotations": found.quotations,
        "date": found.date,
        "compared": None
        if found.rent is None
        else {"value": found.rent.value, "date": found.rent.date, "source": found.rent.source},
        "break_even_use": found.use,
        "payback": None if found.payback is None else {"value": found.payback, "unit": "s"},
    }


def machine_answer(found: Sequence[Owned], inputs: dict[str, Any], *, depth: int) -> dict[str, Any]:
    """Return the answer of ``roofplan cost machine``."""
    out = base("cost machine", "ok", inputs)
    out["machines"] = [
        {
            "machine": {"text": one.machine.text, "device": one.machine.device.id, "count": one.machine.count},
            "purchase": {
                "value": one.purchase,
                "unit": "USD",
                "items": [
                    {"name": i.name, "count": i.count, "price": i.price, "date": i.date or None, "source": i.source}
                    for i in one.items
                ],
            },
            "cost_per_hour": as_json(one.interval(), one.swings(), "USD/h"),
            "parts": {part.name: float(part.value) for part in one.term.parts},
            "per_petaflop_hour": per_petaflop_hour(one),
            "rent": _against(one),
            "supply": None
            if (f := fed(one)) is None
            else {**asdict(f), "plugs": {f"{w:g} W": n for w, n in f.plugs.items()}},
            "absent": one.absent,
            "assumed": one.assumed,
            "explain": one.term.as_json(depth),
        }
        for one in found
    ]
    out["warnings"] += coded(warning for one in found for warning in one.warnings)
    out["sources"] = cited_json(key for one in found for key in one.term.bibliography())
    return out


def _even(one: Supply) -> dict[str, Any] | None:
    """Return a break-even as plain values; null where it does not happen."""
    even = one.even
    if even is None:
        return None
    low, high = (edge if math.isfinite(edge) else None for edge in (even.low, even.high))
    return {
        "tokens": even.tokens,
        "low": low,
        "high": high,
        "never": even.never,
        "unit": "token/month",
        "grade": even.grade,
    }


def tokens_answer(found: TokenCosts, inputs: dict[str, Any], *, depth: int = 1) -> dict[str, Any]:
    """Return the answer of ``roofplan cost tokens``."""
    out = base("cost tokens", "ok", inputs)
    out["warnings"] += coded(found.warnings)
    d = found.demand
    out["model"] = found.model
    out["demand"] = {
        "tokens": d.tokens,
        "input_share": d.share,
        "output_rate": d.output_rate,
        "peak": d.peak,
        "autoscale": d.autoscale,
        "utilisation": d.utilisation,
    }
    if found.api is not None:
        a = found.api
        out["api"] = {
            "routes": a.routes,
            "input": a.input,
            "output": a.output,
            "monthly": _ranged(a.monthly, "USD"),
            "cheapest": a.cheapest,
            "dearest": a.dearest,
            "date": a.date,
            "source": a.source,
        }
    out["supplies"] = [
        {
            "kind": one.kind,
            "machine": one.machine,
            "plan": one.label,
            "replicas": one.replicas,
            "mean_replicas": one.mean,
            "busy": one.busy,
            "capacity": _ranged(one.capacity, "token/s"),
            "cost_per_hour": {
                "value": one.hourly.total,
                "unit": "USD/h",
                "kind": one.hourly.price.kind,
                "date": one.hourly.price.date,
                "source": one.hourly.price.source,
            },
            "monthly": as_json(one.monthly, one.swings, "USD"),
            "break_even": _even(one),
            "api_over_full_machine": None if one.over is None else _ranged(one.over, "1"),
            "api_apart": None if one.apart is None else one.apart.as_json(1),
            "explain": one.term.as_json(depth),
            "purchase": one.owned.purchase if one.owned else None,
            "assumed": one.owned.assumed if one.owned else [],
            "absent": one.owned.absent if one.owned else [],
        }
        for one in found.supplies
    ]
    out["full_load"] = {name: _ranged(value, "USD/Mtoken") for name, value in found.full.items()}
    units_of = {"kWh": "kWh", "gCO2": "g"}
    out["energy_per_million_output_tokens"] = {name: _ranged(one, units_of[name]) for name, one in found.energy.items()}
    out["sources"] = cited_json(
        [
            *(key for one in found.supplies for key in one.term.bibliography()),
            *([document(found.api.source)] if found.api else []),
        ]
    )
    out["absent"] = found.absent
    return out


def rent_answer(device: str, found: Sequence[Quote], inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of ``roofplan cost rent``."""
    out = base("cost rent", "ok", inputs)
    out["device"] = device
    newest = {kind: max((q.price.newest_possible for q in found if q.price.kind == kind), default="") for kind in RENTS}
    out["warnings"] += coded(
        warning for kind, date in newest.items() for warning in stale_warning(f"{device} ({kind}), the newest", date)
    )
    out["quotations"] = [
        {
            "kind": q.price.kind,
            "value": q.price.value,
            "unit": q.price.unit,
            "date": q.price.date,
            "provider": q.price.provider or None,
            "term": q.price.term or None,
            "count": q.price.count,
            "source": q.price.source,
        }
        for q in found
    ]
    return out


def history_answer(found: Sequence[Milestone], step: Gain, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of ``roofplan cost history``."""
    out = base("cost history", "ok", inputs)
    out["devices"] = [
        {
            "device": one.device.id,
            "launched": one.device.launched,
            "price": {
                "value": one.price.value,
                "unit": "USD",
                "kind": one.price.kind,
                "date": one.price.date,
                "source": one.price.source,
            },
            "usd_per_flops": one.per_rate,
            "usd_per_transistor": one.per_transistor,
        }
        for one in found
    ]
    trends = [(kind, bits, fit_trend(found, bits, kind)) for kind in CLASSES for bits in WIDTHS]
    out["halving"] = [
        {
            "device_class": kind,
            "operand": bits,
            "years": {
                "value": finite(trend.halving.central),
                "low": finite(trend.halving.low),
                "high": finite(trend.halving.high),
                "unit": "year",
                "grade": trend.halving.grade,
            },
            "devices": trend.devices,
            "spread": trend.spread,
        }
        for kind, bits, trend in trends
        if trend is not None
    ]
    out["gain"] = {
        "from": step.old.id,
        "to": step.new.id,
        "years": step.years,
        "whole": step.whole,
        "factors": step.factors,
    }
    out["sources"] = cited_json(document(key) for key in (*(one.price.source for one in found), *step.sources))
    return out
