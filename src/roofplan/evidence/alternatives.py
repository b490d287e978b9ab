"""Other plausible values of what a serving run's row leaves out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from roofplan import catalogue
from roofplan.catalogue.machines import in_other_form, with_slower_network
from roofplan.evidence.engines import VERSION, launched
from roofplan.evidence.inference import (
    ANSWER,
    CACHE,
    DATA_SET,
    LAYOUT,
    LENGTHS,
    NETWORK,
    PROMPT,
    InferenceCase,
    fewest_ranks,
)
from roofplan.evidence.models import FORM
from roofplan.evidence.served import FORMAT, model_id, of_catalogue
from roofplan.hf.quantization import at_precision
from roofplan.operations.table import element_bytes
from roofplan.records.engine import Engine
from roofplan.records.strategy import Strategy
from roofplan.serving import legal, undescribed
from roofplan.training.certainty import LEAST_NETWORK


def alternatives(case: InferenceCase, unstated: str) -> list[InferenceCase]:
    """Return a case with each other plausible value of an input that its row omits.

    These are the engine releases just before and after, half and twice the prompt length, half and four times the answer, the other cache
    width, weights in another format, devices of another form, a slower network, requests of equal lengths, which keep clients in step, or of
    unequal ones, and one replica on all devices instead of the most that hold the model, or the other way round. Those whose weights the device cannot multiply are left out.
    """
    found = _OTHERS[unstated](replace(case, unstated=()))
    return [one for one in found if not undescribed(one.model, one.machine)]


def _in_other_layouts(case: InferenceCase) -> list[InferenceCase]:
    """Return a case on one replica over all devices, and on as many replicas as hold the model."""
    count = case.strategy.tp * case.strategy.dp
    layouts = {Strategy(tp=tp, dp=count // tp) for tp in (count, fewest_ranks(case.model, case.machine))}
    return [replace(case, strategy=one) for one in layouts - {case.strategy} if not legal(case.model, one, case.engine)]


def _releases_beside(engine: Engine) -> list[Engine]:
    """Return the catalogue's releases of an engine just before and just after a given one."""
    every = [catalogue.engine(name) for name in catalogue.ids("engines")]
    ranked = sorted((one for one in every if one.name == engine.name), key=lambda one: one.released)
    place = [one.id for one in ranked].index(engine.id)
    return [*ranked[max(0, place - 1) : place], *ranked[place + 1 : place + 2]]


def _with_answer(case: InferenceCase, factor: float) -> InferenceCase:
    """Return a case with its answer length scaled by a factor."""
    load = case.workload
    answer = max(1, round(load.output * factor))
    return replace(case, workload=replace(load, output=answer, context=load.input + answer))


def _in_other_formats(case: InferenceCase) -> list[InferenceCase]:
    """Return a case with its weights in 8 bits, or in the other usual width of its files; none where the published ones have few bits."""
    stored = case.model.quantization
    if stored is None:
        return [replace(case, model=at_precision(case.model, "fp8"))]
    return [replace(case, model=of_catalogue(model_id(case.row), "q8_0"))] if case.engine.name == "llama.cpp" else []


def _in_other_form(case: InferenceCase) -> list[InferenceCase]:
    """Return a case on cards in place of modules, or the other way round."""
    other = in_other_form(case.machine)
    return [] if other is None else [replace(case, machine=other)]


def _on_slower_network(case: InferenceCase) -> list[InferenceCase]:
    """Return a case whose hosts are joined by a network with a quarter of its bandwidth."""
    other = with_slower_network(case.machine, LEAST_NETWORK)
    return [] if other is None else [replace(case, machine=other)]


def _with_prompt(case: InferenceCase, factor: float) -> InferenceCase:
    """Return a case with its prompt length scaled by a factor."""
    load = case.workload
    prompt = max(1, round(load.input * factor))
    longer = replace(load, input=prompt, context=prompt + load.output)
    return replace(case, workload=longer, prompt=case.prompt * factor)


_OTHERS: dict[str, Callable[[InferenceCase], list[InferenceCase]]] = {
    VERSION: lambda case: [replace(case, engine=launched(case.row, one)) for one in _releases_beside(case.engine)],
    PROMPT: lambda case: [_with_prompt(case, factor) for factor in (0.5, 2.0)],
    LENGTHS: lambda case: [replace(case, alike=not case.alike)],
    ANSWER: lambda case: [_with_answer(case, factor) for factor in (0.5, 4.0)],
    DATA_SET: lambda case: [_with_answer(_with_prompt(case, factor), factor) for factor in (0.8, 1.4)],
    FORMAT: _in_other_formats,
    CACHE: lambda case: [
        replace(case, kv_bytes=width) for width in {element_bytes(name) for name in ("bf16", "fp8")} - {case.kv_bytes}
    ],
    LAYOUT: _in_other_layouts,
    FORM: _in_other_form,
    NETWORK: _on_slower_network,
}
"""Other plausible values of each input that rows may omit."""
