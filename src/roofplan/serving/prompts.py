"""Prefill passes: their number, their time, and their order through pipeline stages."""

from __future__ import annotations

from dataclasses import replace

from roofplan.catalogue import format_entry
from roofplan.laws import Number, batching, larger, pipeline, smaller, up
from roofplan.operations.table import Step
from roofplan.records.engine import Engine
from roofplan.records.model import Dense, Layer, Model
from roofplan.records.strategy import Strategy
from roofplan.records.terms import Term
from roofplan.serving.step import launched, step_term
from roofplan.timing.rates import Rates


def prompt_pass(
    model: Model, strategy: Strategy, engine: Engine, r: Rates, step: Step, budget: Number, *, kv_bytes: float
) -> tuple[Term, Number]:
    """Return one full prefill pass through the stage that sets the pace.

    A pass has as many tokens as the engine computes together. If it holds whole prompts, each starts from its cached
    tokens. If a prompt needs several passes, the result is the mean pass, which attends to half of the rest of the
    prompt.

    Parameters
    ----------
    model : its layers and dimensions.
    strategy : degrees of parallelism.
    engine : engine with version.
    r : achieved rates of the machine under the engine.
    step : the prompts: new tokens, cached tokens and number.
    budget : tokens that one engine step may compute [token].
    kv_bytes : bytes of one cached number [B].

    Returns
    -------
    Time of a pass [s], and number of passes for the prompts [1].
    """
    mean, passes = mean_pass(engine, step, budget)
    at_once = stages_at_once(engine)
    one = step_term("prefill", model, strategy, mean, r, kv_bytes=kv_bytes, at_once=at_once)
    return launched(one, mean.new, model, strategy, r), passes


def stages_at_once(engine: Engine) -> Number | None:
    """Return the stages that compute prompts at the same time: one where an engine uses one device at a time, else None for all [1]."""
    return 1.0 if engine.pipeline_kind == "layer-split" and "pipeline_copies" not in engine.memory else None


def mean_pass(engine: Engine, step: Step, budget: Number) -> tuple[Step, Number]:
    """Return the mean pass of prompts that are computed in passes, and the number of passes.

    Parameters
    ----------
    engine : engine with version.
    step : the prompts: new tokens, cached tokens and number.
    budget : tokens that one engine step may compute [token].

    Returns
    -------
    The prompts themselves and 1 where one pass computes them; else a pass that attends to half of the rest [1].
    """
    passes = batching.passes(step.new, 1.0 * engine.pass_tokens(budget)) if engine.chunked_prefill else 1.0
    if type(passes) is float and passes == 1.0:
        return step, 1.0
    prompt = step.new / step.requests
    each = smaller(prompt, step.new / passes)
    mean = replace(
        step, new=step.new / passes, past=step.past + (prompt - each) / 2.0, requests=step.new / passes / each
    )
    return mean, passes


def host_of_passes(passes: Number, sequences: Number, r: Rates) -> Term:
    """Return the host time of prefill passes: a for each pass, and b for each sequence in it, at least one.

    Parameters
    ----------
    passes : number of passes, rounded up here [1].
    sequences : prompts in all passes together [1].
    r : rates with the engine's a and b.

    Returns
    -------
    Host time [s].
    """
    passes = up(1.0 * passes)
    each = larger(1.0, 1.0 * sequences / passes)
    return Term(
        "engine step",
        (r.step_base + r.step_each * each) * passes,
        "s",
        law="a + b x sequences",
        text="{passes} passes x ({base} + {per_sequence} x {sequences} sequences), " + r.engine.id,
        numbers={"passes": passes, "base": (r.step_base, "s"), "per_sequence": (r.step_each, "s"), "sequences": each},
        sources=r.sources["engine"],
    )


def turns_of(model: Model, engine: Engine, r: Rates, stages: Number, passes: Number) -> Number:
    """Return the number of sequential stage times of prefill passes.

    Stages run one after the other, or in parallel if an engine keeps several copies of its inputs.

    Parameters
    ----------
    model : its layers and dimensions.
    engine : engine with version.
    r : achieved rates of the machine under the engine.
    stages : pipeline stages [1].
    passes : prefill passes [1].

    Returns
    -------
    Sequential stage times [1].
    """
    copies = engine.memory.get("pipeline_copies")
    if engine.pipeline_kind != "layer-split" or copies is None:
        return passes * stages
    return pipeline.layer_split_turns(stages, 1.0 * passes, copies.value, _queued(model, engine, r) * stages)


def _queued(model: Model, engine: Engine, r: Rates) -> float:
    """Return the passes through the whole model that the launch queue holds, `UNBOUNDED` if no limit is known [1]."""
    kernels, vendor = engine.kernels, r.machine.device.vendor
    if not kernels.launch_queue or vendor not in kernels.queued:
        return UNBOUNDED
    launches = kernels.layer_launches * len(model.decoder.layers)
    plan = model.quantization
    if vendor in kernels.unpacked and plan is not None and format_entry(plan.format).get("gguf"):
        launches += sum(_matrices(layer) * len(places) for layer, places in model.decoder.kinds())
    return kernels.launch_queue / launches


def _matrices(layer: Layer) -> int:
    """Return the number of matrices that a token passes in a layer; each is unpacked by a separate kernel."""
    count = sum(len(group) for mixer in layer.mixers for group in mixer.groups)
    for feed in layer.feed_forwards:
        groups = feed.groups if isinstance(feed, Dense) else (*feed.expert, *feed.shared)
        count += sum(len(group) for group in groups)
    return count


UNBOUNDED = 1e6
"""Passes in a launch queue without a known limit [1]."""


def in_turn(one: Term, turns: Number) -> list[Term]:
    """Return the parts of a pass through one stage, multiplied by the number of passes.

    Parameters
    ----------
    one : time of one pass through a stage, with its parts.
    turns : sequential passes [1].

    Returns
    -------
    The parts, each multiplied by the number of passes [s].
    """
    return [
        Term(
            part.name,
            part.value * turns,
            "s",
            law=part.law,
            parts=[part],
            combine="product",
            text="{turns} passes of a stage x {once}",
            numbers={"turns": turns, "once": (part.value, "s")},
            sources=part.sources,
        )
        for part in one.parts
    ]
