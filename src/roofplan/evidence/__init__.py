"""Published measurements beside predictions."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from roofplan import catalogue
from roofplan.evidence.inference import model_id
from roofplan.evidence.rows import Row, Skipped, against, number
from roofplan.serving import Plan

Published = dict[str, Any]
"""A published row as answers show it."""


def nearest_measured(plan: Plan, count: int = 3) -> list[Published]:
    """Return the published rows nearest to a plan.

    Rows of other models or devices are never returned.

    Parameters
    ----------
    plan : the plan.
    count : rows to return at most [1].

    Returns
    -------
    Rows of the plan's model and device that have a time per token, the nearest in users, device count, engine and weight format first.
    """
    near = _near(plan.model.id, plan.machine.device.id)
    ranked = sorted(near, key=lambda row: _distance(row, plan))[:count]
    return [{**_parsed(row), "text": _text(row)} for row in ranked]


@lru_cache(maxsize=1024)
def _near(model: str, device: str) -> tuple[Row, ...]:
    """Return the unflagged rows of a model and a device that have a time per token."""
    here = [row for row in catalogue.inference_rows() if row["accel_norm"] == device and row["tpot_ms"]]
    return tuple(row for row in here if not against(row) and _model(row) == model)


def _model(row: Row) -> str:
    try:
        return model_id(row)
    except Skipped:
        return ""


def users_of(row: Row) -> float | None:
    """Return the running sequences of a row, else its requests in flight or queued, None where none is stated."""
    names = ("running_batch", "client_concurrency", "queued_requests")
    return next((value for name in names if (value := number(row, name)) is not None), None)


def _distance(row: Row, plan: Plan) -> float:
    users = users_of(row) or float(plan.users)
    count = number(row, "count") or 1.0
    off = abs(math.log(users / plan.users)) + 2.0 * abs(math.log(count / plan.machine.count))
    return (
        off
        + (0.5 if row["engine_name"] != plan.engine.name else 0.0)
        + (1.0 if row["weight_precision"].partition("-")[0] not in _weights(plan) else 0.0)
    )


def _weights(plan: Plan) -> set[str]:
    quantization = plan.model.quantization
    return {quantization.format.partition("-")[0]} if quantization else {plan.model.dtype}


WORDS = {
    "id": "id",
    "source_key": "source",
    "engine_name": "engine",
    "engine_version": "engine_version",
    "weight_precision": "weights",
    "kv_precision": "kv",
    "metric_kind": "metric",
    "percentile": "metric_detail",
}
FIGURES = {
    "year": "year",
    "count": "count",
    "tp": "tp",
    "pp": "pp",
    "dp": "dp",
    "ep": "ep",
    "attention_dp": "attention_dp",
    "input_len": "input",
    "output_len": "output",
    "output_tokens_per_s": "output_tokens_per_second",
    "prefill_tokens_per_s": "prefill_tokens_per_second",
}
"""Columns of a published row that hold text and numbers -> their names in an answer."""


def _parsed(row: Row) -> Published:
    words = {name: row[column] for column, name in WORDS.items() if row.get(column)}
    counts = {name: value for column, name in FIGURES.items() if (value := number(row, column)) is not None}
    times = {name: value * 1e-3 for name in ("tpot", "ttft") if (value := number(row, f"{name}_ms")) is not None}
    users = users_of(row)
    return (
        {"model": _model(row), "device": row["accel_norm"]}
        | words
        | counts
        | times
        | ({"users": users} if users else {})
    )


def _text(row: Row) -> str:
    output, users = number(row, "output_tokens_per_s"), users_of(row)
    rate = f", {output:,.0f} tok/s" if output else ""
    many = f", {users:,.0f} users" if users else ""
    count = number(row, "count") or 1.0
    where = f"{row['weight_precision']}, {count:g} x {row['accel_norm']}, {row['engine_name']}"
    return f"{where}{many}: {number(row, 'tpot_ms') or 0.0:.1f} ms{rate} ({row['source_key']} {row['year']})"


__all__ = ["nearest_measured", "users_of"]
