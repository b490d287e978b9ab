"""The model of a serving run in the number format of its weights, as a row states them or as its software fetches them."""

from __future__ import annotations

import math
import re
from functools import lru_cache

from roofplan import catalogue, hf
from roofplan.catalogue.spellings import named
from roofplan.catalogue.written import format_in_name, format_of
from roofplan.errors import nearest
from roofplan.evidence.models import NEAR, from_file, is_path, off_size
from roofplan.evidence.rows import Assumed, Row, Skipped
from roofplan.hf.quantization import at_precision
from roofplan.operations.table import element_bytes
from roofplan.records.engine import Engine
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.strategy import Strategy
from roofplan.serving import held_by
from roofplan.serving.ledger import footprint

FORMAT = "weights"
"""The format of weights as an input that rows may omit and that has other plausible values."""


NAMING = ("hf_model_id", "model_config", "model_name")
"""Columns that name a model, the plainest first."""


def model_id(row: Row) -> str:
    """Return the id of a row's model, by its name on the Hub, its configuration or its model name, in any spelling.

    Raises
    ------
    Skipped : the catalogue has no such model.
    """
    for column in NAMING:
        name = row.get(column, "")
        found = named(name) or _of_size(name)
        if found is not None:
            return found
    near = ", ".join(nearest(row["model_name"][: catalogue.LONGEST_NAME], catalogue.aliases("models")))
    raise Skipped(f"model {row['model_name']} is not in the catalogue{f'; nearest: {near}' if near else ''}")


def _of_size(name: str) -> str | None:
    """Return the model whose name lacks the size that a table puts behind it, None where it is not of that size.

    >>> _of_size("DeepSeek-R1 671B"), _of_size("deepseek-r1:32b")
    ('deepseek-r1', None)
    """
    rest = re.sub(r"[\s:_-]+\d+(?:\.\d+)?[bt]$", "", name.lower())
    found = named(rest) if rest != name.lower() else None
    return found if found and abs(off_size(name, hf.of_catalogue(found).total)) <= NEAR else None


def served_model(row: Row, engine: Engine, assumed: Assumed) -> Model:
    """Return the model in the weight format that a row states, by the engine's own name for it where it has one."""
    stated, known = row["weight_precision"], dict(engine.raw.get("weights_named", {}))
    name, mlx = row.get("hf_model_id") or row["model_name"], engine.stands_for.startswith("mlx")
    precision: str | None
    if stated:
        precision = format_of(stated, known, mlx=mlx)
        if precision is None:
            raise Skipped(
                f"weights in {stated}; known: bf16, fp8, int8, awq, gptq, w4a16, nvfp4, mxfp4, q4_k_m, mlx-4bit and others"
            )
    elif (precision := format_in_name(name, known, mlx=mlx or "mlx" in name.lower())) is not None:
        assumed.add(f"weights: {precision}, by the model's name")
    else:
        precision = _unstated_format(row, engine, assumed)
    own = next((row[name] for name in NAMING if is_path(row.get(name, ""))), None)
    return held_by(_at_precision(from_file(own), precision) if own else of_catalogue(model_id(row), precision), engine)


def in_16_bits(row: Row, model: Model, found: Machine, assumed: Assumed) -> Model:
    """Return a model that is published in eight bits in the 16 that a row states, if the devices hold them."""
    plan = model.quantization
    stated = format_of(row["weight_precision"], {}) == "checkpoint" and "16" in row["weight_precision"]
    if plan is None or not stated or not plan.format.startswith(("fp8", "int8")):
        return model
    whole = at_precision(model, "bf16")
    held = footprint(whole, Strategy(), element_bytes("bf16")).weights / found.count
    if held <= float(found.device.memory or math.inf):
        return whole
    assumed.add(f"weights: {plan.format} as published, since the devices do not hold them in 16 bits", FORMAT)
    return model


def _unstated_format(row: Row, engine: Engine, assumed: Assumed) -> str:
    """Return the format of weights of which a row says nothing: what its software fetches unasked, else the published one.

    Raises
    ------
    Skipped : weights come in a GGUF file, which may hold any.
    """
    other = catalogue.stand_in("engines", engine.stands_for)
    fetched = other.weights if other and other.weights else ""
    if fetched and not is_path(row["model_name"]) and (plan := hf.of_catalogue(model_id(row)).quantization) is not None:
        fetched = "" if plan.only_experts else fetched  # published in four bits, and fetched so
    elif not fetched and engine.name == "llama.cpp":
        raise Skipped("weights in an unstated format")
    assumed.add(
        f"weights: {fetched}, which {engine.stands_for} fetches unasked" if fetched else "weights: as published", FORMAT
    )
    return fetched or "checkpoint"


@lru_cache(maxsize=1024)
def of_catalogue(identity: str, precision: str) -> Model:
    """Return a model of the catalogue with its weights in a format.

    Parameters
    ----------
    identity : id of the model.
    precision : number format, or ``checkpoint``.

    Returns
    -------
    The model.
    """
    return _at_precision(hf.of_catalogue(identity), precision)


def _at_precision(model: Model, precision: str) -> Model:
    if precision != "checkpoint" and model.quantization is not None and model.quantization.format.startswith(precision):
        return model
    return at_precision(model, precision)
