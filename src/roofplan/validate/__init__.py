"""Published measurements beside predictions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from roofplan import catalogue, hf
from roofplan.catalogue.machines import machine
from roofplan.errors import RoofplanError
from roofplan.operations import element_bytes
from roofplan.records.engine import Engine
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.strategy import Strategy
from roofplan.records.workload import Workload
from roofplan.search import Plan, at_precision, cache_format
from roofplan.serve import Prediction, batched_tokens, footprints, ledger, legal, predict, token_time
from roofplan.terms import Term, total
from roofplan.timing import Rates, engine_term, rates


def nearest_measured(plan: Plan, count: int = 3) -> list[dict[str, Any]]:
    """Return the published rows nearest to a plan: same model and device first, then users, engine and count.

    Rows of other models or devices are never shown as near.
    """
    model, device = plan.model.id, plan.machine.device.id
    near = [
        row for row in catalogue.measured_rows() if row["model"] == model and row["device"] == device and row["tpot_ms"]
    ]
    ranked = sorted(near, key=lambda row: _distance(row, plan))[:count]
    return [{**_parsed(row), "text": _text(row)} for row in ranked]


def _distance(row: dict[str, str], plan: Plan) -> float:
    users = float(row["users"] or plan.users)
    off = abs(math.log(users / plan.users)) + 2.0 * abs(math.log(float(row["count"]) / plan.machine.count))
    return (
        off
        + (0.5 if row["engine"] != plan.engine.name else 0.0)
        + (1.0 if row["weights"].partition("-")[0] not in _weights(plan) else 0.0)
    )


def _weights(plan: Plan) -> set[str]:
    quantization = plan.model.quantization
    return {quantization.format.partition("-")[0]} if quantization else {plan.model.dtype}


NUMBERS = (
    *("year", "count", "tp", "pp", "dp", "ep", "attention_dp", "input", "output", "users", "watts"),
    *("output_tokens_per_second", "prefill_tokens_per_second"),
)
"""Columns of a published row that hold numbers."""


def _parsed(row: dict[str, str]) -> dict[str, Any]:
    words = {key: value for key, value in row.items() if value and key not in NUMBERS and not key.endswith("_ms")}
    counts = {key: float(row[key]) for key in NUMBERS if row[key]}
    times = {key.removesuffix("_ms"): float(row[key]) * 1e-3 for key in ("tpot_ms", "ttft_ms") if row[key]}
    return words | counts | times


def _text(row: dict[str, str]) -> str:
    rate = f", {float(row['output_tokens_per_second']):,.0f} tok/s" if row["output_tokens_per_second"] else ""
    users = f", {float(row['users']):,.0f} users" if row["users"] else ""
    return f"{row['weights']}, {row['count']} x {row['device']}, {row['engine']}{users}: {float(row['tpot_ms']):.1f} ms{rate} ({row['source']} {row['year']})"


# Cases -------------------------------------------------------------------------------------------

WEIGHTS = {
    "bf16": None,
    "fp16": "fp16",
    "fp8": "fp8",
    "fp8-block": "fp8-block",
    "awq": "awq",
    "gptq": "gptq",
    "int4": "gptq",
    "w4a16": "gptq",
    "q4_0": "q4_0",
    "q8_0": "q8_0",
    "q4_k_m": "q4_k_m",
    "int8": "int8",
    "w8a8": "int8",
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
    "fp4": "nvfp4",
}
"""Published precision -> weight format; None is the model's own type."""


ASSUMED_PROMPT = {"ML.ENERGY": 256.0}
"""Prompt length where a source publishes only its data set: LMArena chats and GPQA questions are a few hundred tokens [token]."""


@dataclass(slots=True, kw_only=True)
class Case:
    """A published row as something that can be predicted.

    Parameters
    ----------
    users : running sequences, None where not stated.
    tpot : published time per token [s].
    metric : ``decode_step`` of a static batch, ``median_itl`` of a server, or ``mean_tpot`` with prefill stalls.
    watts : mean power of all devices [W].
    """

    row: dict[str, str]
    model: Model
    machine: Machine
    engine: Engine
    strategy: Strategy
    workload: Workload
    users: float | None
    tpot: float | None
    metric: str
    kv_bytes: float
    watts: float | None = None

    def rates(self) -> Rates:
        """Return what the machine attains."""
        return _rates(self.machine.device.id, self.machine.count, self.engine.id)

    def predict(self) -> Prediction | None:
        """Return the prediction, or None where the row states no batch."""
        if self.users is None:
            return None
        budget = batched_tokens(self.engine, self.machine, self.workload)
        return predict(
            self.model,
            self.strategy,
            self.engine,
            self.workload,
            self.rates(),
            self.users,
            kv_bytes=self.kv_bytes,
            budget=budget,
        )

    def measured_term(self, prediction: Prediction) -> Term:
        """Return the Term that the published figure measures: the mean with prefill stalls, or the decode step alone.

        A median inter-token latency is a decode step: prompts stall fewer than half of them, and where all requests are sent
        at once (ML.ENERGY: 1,024 requests, repeated) prompts are over before most tokens are made.
        """
        if self.metric == "mean_tpot":
            return prediction.tpot
        here = max(
            1.0, (self.users or 1.0) / (int(self.strategy.dp) * int(self.strategy.attention_dp) * int(self.strategy.pp))
        )
        return token_time(
            total("decode", list(prediction.decode.parts), "s"), engine_term(here, self.rates()), self.strategy, 1.0
        )


@cache
def _rates(device: str, count: int, engine: str) -> Rates:
    return rates(machine(f"{device}:{count}")[0], catalogue.engine(engine))


def engine_version(name: str, version: str, year: str = "") -> str | None:
    """Return the catalogue's engine version nearest below a published one, None where the engine is not described.

    Without a version it is the newest of that year, or the oldest known where all are younger.
    """
    same = [catalogue.engine(e) for e in catalogue.ids("engines") if catalogue.engine(e).name == name]
    if not same:
        return None
    ranked = sorted(same, key=lambda e: e.released)
    wanted = version.lstrip("v")
    below = (
        [e for e in ranked if _number(e.version) <= _number(wanted)]
        if wanted[:1].isdigit()
        else [e for e in ranked if e.released[:4] <= year]
    )
    if not below and not wanted and year:
        return ranked[0].id
    return (below[-1] if below else ranked[0 if wanted else -1]).id


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.replace("b", "").split(".")[:2] if part.isdigit()) or (0,)


def case_of(row: dict[str, str]) -> Case | None:
    """Return a row as a case, or None where the catalogue lacks its engine, format or strategy."""
    engine_id = engine_version(row["engine"] if row["engine"] != "gpt-fast" else "", row["engine_version"], row["year"])
    weights = row["weights"].lower()
    if engine_id is None or weights not in WEIGHTS:
        return None
    model = _model(row["model"], WEIGHTS[weights] or "checkpoint")
    count = int(float(row["count"] or 1))
    try:
        box = machine(f"{row['device']}:{count}")[0]
    except RoofplanError:
        return None
    degrees = {name: int(float(row[name] or 1)) for name in ("tp", "pp", "dp", "ep", "attention_dp")}
    if degrees["tp"] * degrees["pp"] * degrees["dp"] != count:
        return None
    strategy = Strategy(**degrees)
    engine = catalogue.engine(engine_id)
    if legal(model, strategy, engine) and engine.name != "llama.cpp":
        return None
    if not row["input"] and row["source"] not in ASSUMED_PROMPT:
        return None
    prompt, output = float(row["input"] or ASSUMED_PROMPT[row["source"]]), float(row["output"] or 1.0)
    workload = Workload(input=max(1, int(prompt)), output=max(1, int(output)), context=int(prompt + output))
    metric = {"median ITL": "median_itl", "latency": "decode_step"}.get(row["metric_detail"], "mean_tpot")
    return Case(
        row=row,
        model=model,
        machine=box,
        engine=engine,
        strategy=strategy,
        workload=workload,
        users=float(row["users"]) if row["users"] else None,
        tpot=float(row["tpot_ms"]) * 1e-3 if row["tpot_ms"] else None,
        metric=metric,
        kv_bytes=element_bytes(_kv(model, row["kv"])),
        watts=float(row["watts"]) if row["watts"] else None,
    )


def _kv(model: Model, stated: str) -> str:
    return "fp8" if stated.startswith("fp8") else cache_format(model, "checkpoint")


@cache
def _model(identity: str, precision: str) -> Model:
    model = hf.from_text(catalogue.model_table(identity)["config"], identity)
    if precision != "checkpoint" and model.quantization is not None and model.quantization.format.startswith(precision):
        return model
    return at_precision(model, precision)


QUEUEING = 1.15
"""Published users over those that memory admits above which some of them must have waited [1]."""


def queues(case: Case) -> bool:
    """Return whether more users are stated than memory can hold at once: they queued, and the batch that ran is not known."""
    if case.users is None:
        return False
    feet = footprints(case.model, case.strategy, case.kv_bytes)
    book = ledger(case.model, case.strategy, case.machine, case.engine, case.workload, feet, seats=round(case.users))
    return book.by_memory >= 1.0 and case.users > QUEUEING * book.by_memory


@cache
def known_cases() -> tuple[Case, ...]:
    """Return every published row that the catalogue can predict."""
    return tuple(case for case in map(case_of, catalogue.measured_rows()) if case is not None)


@cache
def clean_cases() -> tuple[Case, ...]:
    """Return the rows of `known_cases` whose users can all have been running."""
    return tuple(case for case in known_cases() if not queues(case))
