"""Published measurements beside predictions."""

from __future__ import annotations

import csv
import math
from functools import cache
from typing import Any

from roofplan import catalogue
from roofplan.search import Plan


@cache
def measured_rows() -> tuple[dict[str, str], ...]:
    """Return the published serving measurements that the catalogue carries, each with its source."""
    path = catalogue.ROOT / "measured" / "inference.csv"
    if not path.is_file():
        return ()
    with path.open(newline="") as file:
        return tuple(csv.DictReader(file))


def nearest_measured(plan: Plan, count: int = 3) -> list[dict[str, Any]]:
    """Return the published rows nearest to a plan: same model and device first, then users, engine and count.

    Rows of other models or devices are never shown as near.
    """
    model, device = plan.model.id, plan.machine.device.id
    near = [row for row in measured_rows() if row["model"] == model and row["device"] == device and row["tpot_ms"]]
    ranked = sorted(near, key=lambda row: _distance(row, plan))[:count]
    return [{**_parsed(row), "text": _text(row)} for row in ranked]


def _distance(row: dict[str, str], plan: Plan) -> float:
    users = float(row["users"] or plan.users)
    off = abs(math.log(users / plan.users)) + 2.0 * abs(math.log(float(row["count"]) / plan.machine.count))
    return off + (0.5 if row["engine"] != plan.engine.name else 0.0) + (1.0 if row["weights"] not in _weights(plan) else 0.0)


def _weights(plan: Plan) -> set[str]:
    quantization = plan.model.quantization
    return {quantization.format.partition("-")[0]} if quantization else {plan.model.dtype}


def _parsed(row: dict[str, str]) -> dict[str, Any]:
    numbers = {"count", "tp", "users", "tpot_ms", "output_tokens_per_second", "input", "output"}
    return {key: (float(value) if key in numbers else value) for key, value in row.items() if value}


def _text(row: dict[str, str]) -> str:
    rate = f", {float(row['output_tokens_per_second']):,.0f} tok/s" if row["output_tokens_per_second"] else ""
    users = f", {float(row['users']):,.0f} users" if row["users"] else ""
    return f"{row['weights']}, {row['count']} x {row['device']}, {row['engine']}{users}: {float(row['tpot_ms']):.1f} ms{rate} ({row['source']} {row['year']})"
