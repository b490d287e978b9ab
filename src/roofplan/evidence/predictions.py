"""Predictions for measured runs, row by row."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from roofplan import catalogue
from roofplan.errors import RoofplanError
from roofplan.evidence.frameworks import LOSS
from roofplan.evidence.inference import NEEDED as SERVING_COLUMNS
from roofplan.evidence.inference import inference_case
from roofplan.evidence.rows import Row, Skipped, flags, told_apart, unread
from roofplan.evidence.scoring import Memory, Outcome, Validation
from roofplan.evidence.serving_figures import ideal_serving, implausible_serving, limited_by_rate, predicted_figures
from roofplan.evidence.training import MICRO_BATCH, RECOMPUTE, TrainingCase, room_of, training_case
from roofplan.evidence.training import NEEDED as TRAINING_COLUMNS
from roofplan.records.calibration import Fit
from roofplan.timing.figures import MEMORY, Metric, flat, sure
from roofplan.training.certainty import memory_certainty, step_certainty
from roofplan.training.ledger import fullest, ledgers
from roofplan.training.plan import flops_per_token
from roofplan.training.step import step

Tick = Callable[[int, int], None]

NEEDED = {"inference": SERVING_COLUMNS, "training": TRAINING_COLUMNS}
"""Columns that a table of each kind must have."""


def validated(kind: str, rows: Sequence[Row], fit: Fit, tick: Tick | None = None) -> Validation:
    """Return predictions for measured runs of one kind.

    Parameters
    ----------
    kind : ``training`` or ``inference``.
    rows : the measured runs.
    fit : the constants of the predictions.
    tick : called with the place of a row and the number of rows, None for no progress.

    Returns
    -------
    Outcomes by figure, with the sources whose runs the constants were fitted on.
    """
    apart = told_apart(rows)
    found = validate_training(apart, fit, tick) if kind == "training" else validate_inference(apart, fit, tick)
    published = catalogue.training_rows() if kind == "training" else catalogue.inference_rows()
    found.unread = unread(kind, rows) if rows is not published else {}
    found.in_sample = frozenset(source for source in found.by_source() if fitted_on(source, fit))
    return found


def fitted_on(source: str, fit: Fit) -> bool:
    """Return whether constants were fitted on rows of a publisher, or of a user's own source of that name."""
    return bool(source) and any(source in names_in(item.source) for item in fit.constants if item.rows)


def names_in(source: str) -> frozenset[str]:
    """Return the words in the source of a constant that may name publishers.

    >>> "vllm-docs" in names_in("published runs: vllm-docs, ml-energy")
    True
    """
    return frozenset(word.strip(".") for word in re.split(r"[^A-Za-z0-9._-]+", source))


def validate_inference(rows: Sequence[Row], fit: Fit, tick: Tick | None = None) -> Validation:
    """Return predictions for published serving runs."""
    out = Validation(kind="inference", rows=len(rows))
    for place, row in enumerate(rows):
        if tick is not None:
            tick(place, len(rows))
        out.outcomes += inference_outcomes(row, fit)
    return out


def validate_training(rows: Sequence[Row], fit: Fit, tick: Tick | None = None) -> Validation:
    """Return predictions for published training runs; out-of-memory runs are only judged to fit or not."""
    out = Validation(kind="training", rows=len(rows))
    for place, row in enumerate(rows):
        if tick is not None:
            tick(place, len(rows))
        found, judged = training_outcomes(row, fit)
        out.outcomes += found
        out.memory += [judged] if judged is not None else []
    return out


def inference_outcomes(row: Row, fit: Fit) -> list[Outcome]:
    """Return the outcomes of one serving run: its figures and their predictions."""
    base = Outcome(id=row["id"], source=row["source_key"], year=row.get("month", "")[:4] or row.get("year", ""))
    try:
        case = limited_by_rate(inference_case(row), fit)
        predicted = predicted_figures(case, fit)
    except (Skipped, RoofplanError) as reason:
        return [replace(base, skipped=str(reason))]
    except ArithmeticError as error:
        return [replace(base, skipped=f"its numbers make no run: {error}")]
    out = []
    ideals = ideal_serving(case, fit)
    beyond = implausible_serving(case, fit)
    for name, value in case.measured.items():
        shown = replace(
            base, metric=name, regime=case.regime, measured=value, assumed=case.assumed, read_as=case.read_as
        )
        shown = replace(shown, chip=case.machine.device.id, software=case.engine.id, ideal=ideals.get(name))
        shown = replace(shown, system=case.origin.system)
        found = predicted.get(name)
        if name in beyond:
            out.append(replace(shown, skipped="implausible", implausible=beyond[name]))
        elif isinstance(found, Metric):
            out.append(replace(shown, predicted=found))
        else:
            out.append(replace(shown, skipped=found or "not predicted in this regime"))
    return out


def training_outcomes(row: Row, fit: Fit) -> tuple[list[Outcome], Memory | None]:
    """Return the outcomes of one training run, and whether it was judged to fit."""
    out_of_memory = "oom-row" in flags(row)
    base = Outcome(id=row["id"], source=row["source_key"], year=row.get("month", "")[:4] or row.get("year", ""))
    try:
        case = training_case({**row, "quality": ""}, ran=False) if out_of_memory else training_case(row)
        predicted, judged = training_figures(case, fit)
        most = ideal_rate(case, fit)
    except (Skipped, RoofplanError) as reason:
        return [replace(base, skipped=str(reason))], None
    except ArithmeticError as error:
        return [replace(base, skipped=f"its numbers make no run: {error}")], None
    # they decide the memory, so a run that does not state them is not judged
    known = {RECOMPUTE, LOSS, MICRO_BATCH}.isdisjoint(case.unstated)
    ran = Memory(id=row["id"], ran=not out_of_memory, fits=judged) if known or out_of_memory else None
    if out_of_memory:
        return [replace(base, skipped="oom-row")], ran
    out = []
    for name, value in (("tokens_per_second_per_device", case.rate), ("memory", case.memory)):
        if value is None:
            continue
        shown = replace(
            base, metric=name, measured=value, assumed=case.assumed, sweep=sweep_of(case), read_as=case.read_as
        )
        shown = replace(shown, chip=case.machine.device.id, software=case.framework.id)
        shown = replace(shown, ideal=None if name == "memory" else most)
        shown = replace(shown, system=case.origin.system)
        limit = implausible_training(case, name, most)
        if limit:
            out.append(replace(shown, skipped="implausible", implausible=limit))
        else:
            out.append(replace(shown, predicted=predicted[name]))
    return out or [replace(base, skipped="no figure that is predicted")], ran


def training_figures(case: TrainingCase, fit: Fit) -> tuple[dict[str, Metric], bool]:
    """Return the predicted figures of a training run, and whether it fits its devices."""
    a = case.ability(fit)
    found = step(case.model, case.job, case.layout, a)
    known = step_certainty(case.model, case.job, case.layout, a, found, case.unstated, case.doubts)
    rate = case.job.batch * case.job.sequence / float(found.time) / case.machine.count
    known = replace(known, quickest=ideal_rate(case, fit) / rate)
    held = fullest(ledgers(case.model, case.job, case.layout, case.framework, fit))
    sure_reserved, sure_allocated = memory_certainty(case.framework, case.machine, case.model, case.job, fit)
    reserved, allocated = (
        sure_reserved.of(float(held.reserved), "B"),
        sure_allocated.of(float(held.allocated.value), "B"),
    )
    figures = {
        "tokens_per_second_per_device": known.falls(rate, "token/s"),
        "memory": _memory(case, reserved, allocated, fit),
    }
    return figures, reserved.value <= float(case.machine.device.memory or math.inf)


def _memory(case: TrainingCase, reserved: Metric, allocated: Metric, fit: Fit) -> Metric:
    """Return the memory of a run as it was read: what tensors took, what the allocator held, or either where the row does not say."""
    kind, room = case.memory_kind, room_of(case)
    if LOSS in case.unstated:
        fused = fullest(ledgers(case.model, case.job, case.layout, case.framework.with_fused_loss(), fit))
        reserved = _between(LOSS, reserved, float(fused.reserved), reserved.value, fit)
        allocated = _between(LOSS, allocated, float(fused.allocated.value), allocated.value, fit)
    found = allocated if kind in {"allocated", "unspecified"} else reserved
    if kind not in {"allocated", "reserved"}:
        found = _between("memory kind", found, allocated.value, reserved.value + CONTEXT, fit)
    if kind == "allocated":
        return allocated
    return at_most(found, room if kind else float(case.machine.device.memory or math.inf))


def _between(unstated: str, found: Metric, least: float, most: float, fit: Fit) -> Metric:
    """Return a memory whose interval also holds what another value of an unstated input would make of it, from least to most [B]."""
    if found.doubt is None:
        return found
    doubt = found.doubt._replace(assumed=(*found.doubt.assumed, (unstated, flat(least, most))))
    return sure(MEMORY, found.grade, doubt, fit).of(found.value, found.unit)


CONTEXT = 2.0**30
"""Memory of a device that drivers count and allocators do not: 0.35 to 0.6 GiB of context and libraries (vLLM issues 10517, 13061), and
buffers of messages; an upper end [B]."""


def at_most(figure: Metric, room: float) -> Metric:
    """Return the reserved memory of a run that fitted, cut to the device: allocators free cached blocks before running out.

    The lower bound keeps its ratio to the value, since a cut figure is no more certain.
    """
    value = min(figure.value, room)
    return replace(figure, value=value, low=figure.low * value / figure.value, high=min(figure.high, room))


def ideal_rate(case: TrainingCase, fit: Fit) -> float:
    """Return the token rate of a device at its dense peak [token/s]."""
    products, mixing = flops_per_token(case.model, case.job.sequence, case.job.adapter)
    peak = case.ability(fit).rates.peak
    return float(peak[case.job.precision] if case.job.precision in peak else peak["bf16"]) / (products + mixing)


def implausible_training(case: TrainingCase, name: str, most: float) -> str:
    """Return the physical limit that a published training figure exceeds, empty where it exceeds none."""
    if name == "memory" and case.memory is not None:
        room = float(case.machine.device.memory or math.inf)
        return f"memory of a device: {room / 2**30:.1f} GiB" if case.memory > room else ""
    return f"dense peak: at most {most:,.0f} tok/s a device" if (case.rate or 0.0) > most else ""


def sweep_of(case: TrainingCase) -> str:
    """Return the sweep of a run: one publisher's runs of one model, device, device count and sequence length."""
    row = case.row
    return " ".join(
        (row["source_key"], row["model_name"], row["accelerators_total"], row["accel_norm"], row["seq_len"])
    )
