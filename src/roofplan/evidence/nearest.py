"""The published runs nearest to a plan, and what is predicted for each."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from roofplan import catalogue, hf
from roofplan.errors import RoofplanError, unwrap
from roofplan.evidence.inference import InferenceCase, inference_case
from roofplan.evidence.rows import Row, Skipped, against, number
from roofplan.evidence.served import NAMING, model_id
from roofplan.evidence.serving_figures import predicted_figures
from roofplan.records import units
from roofplan.records.calibration import Fit
from roofplan.records.model import Model
from roofplan.serving import Plan
from roofplan.timing.figures import Metric

Published = dict[str, Any]
"""A published row as answers show it."""


def nearest_measured(plan: Plan, count: int = 3) -> list[Published]:
    """Return the published runs nearest to a plan, each with what is predicted for it.

    Models match by their configuration, whatever they are called. Runs of other models or devices are never returned.

    Parameters
    ----------
    plan : the plan.
    count : rows to return at most [1].

    Returns
    -------
    Rows of the plan's model and device that have a time per token: of equal weight format, device count, users, engine and
    lengths first. `predicted` is the same statistic for the same run [s], absent where it cannot be predicted.
    """
    near = _near(shape_of(plan.model), plan.machine.device.id)
    ranked = sorted(near, key=lambda row: _distance(row, plan))[:count]
    return [dict(_shown(row["id"], plan.rates.fit)) for row in ranked]


Shape = tuple[int, int, int, int]


def shape_of(model: Model) -> Shape:
    """Return what two models share that compute alike: parameters, hidden size, vocabulary and layers [1]."""
    return (model.total, model.hidden, model.vocabulary, len(model.decoder.layers))


@lru_cache(maxsize=1024)
def _has_shape(identity: str, shape: Shape) -> bool:
    """Return whether a model of the catalogue has a shape; it is built only where its configuration holds these numbers."""
    text = catalogue.model_table(identity)["config"] if identity else ""
    return all(f": {number}" in text for number in shape[1:]) and shape_of(hf.of_catalogue(identity)) == shape


@lru_cache(maxsize=1024)
def _near(shape: Shape, device: str) -> tuple[Row, ...]:
    """Return the unflagged rows of a model and a device that have a time per token."""
    here = [
        row for row in catalogue.inference_rows() if row["accel_norm"] == device and row["tpot_ms"] and not against(row)
    ]
    models = [_model(row) for row in here]
    alike = {name: _has_shape(name, shape) for name in dict.fromkeys(models)}
    return tuple(row for row, name in zip(here, models, strict=True) if alike[name])


def _model(row: Row) -> str:
    return _named(*(row.get(column, "") for column in NAMING))


@lru_cache(maxsize=1024)
def _named(*names: str) -> str:
    """Return the id of the model that cells name, empty where the catalogue has none."""
    try:
        return model_id(dict(zip(NAMING, names, strict=True)))
    except Skipped:
        return ""


def users_of(row: Row) -> float | None:
    """Return the running sequences of a row, else its requests in flight or queued, None where none is stated."""
    names = ("running_batch", "client_concurrency", "queued_requests")
    return next((value for name in names if (value := number(row, name)) is not None), None)


def _distance(row: Row, plan: Plan) -> float:
    """Return how far a run is from a plan: ln of the ratios of users, devices and lengths, and marks for another format or engine."""
    w = plan.workload

    def apart(column: str, here: float) -> float:
        value = number(row, column)
        return abs(math.log(value / here)) if value else 0.0

    users = abs(math.log((users_of(row) or float(plan.users)) / plan.users))
    return (
        users
        + 2.0 * apart("count", float(plan.machine.count))
        + 0.5 * (apart("input_len", float(w.input)) + apart("output_len", float(w.output)))
        + (0.5 if row["engine_name"] != plan.engine.name else 0.0)
        + (2.0 if row["weight_precision"].partition("-")[0] not in _weights(plan) else 0.0)
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


@lru_cache(maxsize=1)
def _by_id() -> dict[str, Row]:
    """Return the catalogue's rows by their ids."""
    return {row["id"]: row for row in catalogue.inference_rows()}


@lru_cache(maxsize=2048)
def _shown(identity: str, fit: Fit) -> Published:
    """Return a row of the catalogue as answers show it."""
    row = _by_id()[identity]
    words = {name: row[column] for column, name in WORDS.items() if row.get(column)}
    counts = {name: value for column, name in FIGURES.items() if (value := number(row, column)) is not None}
    times = {name: value * 1e-3 for name in ("tpot", "ttft") if (value := number(row, f"{name}_ms")) is not None}
    users = users_of(row)
    case, predicted = _predicted(row, fit)
    more = (
        {}
        if predicted is None
        else {"predicted": {"value": predicted.value, "low": predicted.low, "high": predicted.high}}
    )
    return (
        {"model": _model(row), "device": row["accel_norm"]}
        | words
        | counts
        | times
        | ({"users": users} if users else {})
        | more
        | {"text": _text(row, case, predicted)}
    )


def _predicted(row: Row, fit: Fit) -> tuple[InferenceCase | None, Metric | None]:
    """Return the run of a row and its predicted time per token, None where the row tells too little."""
    try:
        case = inference_case(row)
        found = predicted_figures(case, fit).get("tpot")
    except (Skipped, RoofplanError, ArithmeticError):
        return None, None
    return case, found if isinstance(found, Metric) else None


def _bracket(found: Metric) -> str:
    """Return a time in ms with its interval."""
    return (
        f"{found.value * 1e3:.1f} [{units.significant(found.low * 1e3, 2)}, {units.significant(found.high * 1e3, 2)}]"
    )


STATISTICS = {"gap": "ITL", "request": "E2E over tokens", "tpot": "TPOT"}
"""What a published time per token may be, as readers call it."""


def _text(row: Row, case: InferenceCase | None, predicted: Metric | None) -> str:
    """Return a run in one line: system, load, lengths, the statistic and its value, and what is predicted for it."""
    version = f" {row['engine_version']}" if row.get("engine_version") else ""
    words = [
        f"{unwrap(number(row, 'count')):g} x {row['accel_norm']}",
        f"{row['engine_name']}{version}",
        row["weight_precision"],
    ]
    users, output = users_of(row), number(row, "output_tokens_per_s")
    words += [f"{users:,.0f} user{'' if users == 1 else 's'}"] if users else []
    words += [f"{value:,.0f} {what}" for what in ("in", "out") if (value := number(row, f"{what}put_len"))]
    kind = "time per token"
    if case is not None:
        quantile = case.statistic.quantile
        which = "mean" if quantile is None else "median" if quantile == 0.5 else f"p{100 * quantile:g}"
        kind = f"{which} {STATISTICS[case.statistic.kind]}"
    ours = f"; for that run we say {_bracket(predicted)}" if predicted else "; not predicted"
    rate = f", {output:,.0f} tok/s" if output else ""
    return f"{', '.join(words)}: {kind} {unwrap(number(row, 'tpot_ms')):.1f} ms{rate}{ours} ({row['source_key']} {row['year']})"
