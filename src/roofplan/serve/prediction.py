"""The steady state of a number of users on a machine: times, rates and power, on floats or arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from roofplan.laws import Number, batching, larger, memory, pipeline, smaller, up, where
from roofplan.operations import ACTIVATION_BYTES, Split, Step, format_entry
from roofplan.records.engine import Engine
from roofplan.records.model import Dense, Layer, Model
from roofplan.records.strategy import Strategy
from roofplan.records.workload import Workload
from roofplan.serve.step import engine_term, step_term
from roofplan.terms import Term, total
from roofplan.timing.network import mean_hop
from roofplan.timing.rates import Rates


@dataclass(slots=True, kw_only=True)
class Prediction:
    """Times and rates of one strategy, or of arrays of strategies and concurrencies; Terms hold how they came about.

    Parameters
    ----------
    tpot, ttft : mean time between tokens, and time to the first token of an empty system [s].
    decode, prefill : one decode step, and one request's prefill, both of one group of users [s].
    input_share : share of the machine's time that prefill takes [1].
    rate : output tokens per second of the whole machine [token/s].
    """

    tpot: Term
    ttft: Term
    decode: Term
    prefill: Term
    sequences: Number
    input_share: Number
    rate: Number
    prefill_rate: Number
    busy: Number


def predict(
    model: Model,
    strategy: Strategy,
    engine: Engine,
    workload: Workload,
    r: Rates,
    sequences: Number,
    *,
    kv_bytes: float,
    budget: Number,
    per_group: Number | None = None,
) -> Prediction:
    """Return the steady state of `sequences` users on one machine.

    With `per_group` users are counted per group of one stage instead, and `sequences` is ignored: a grid over it keeps
    decode steps free of the axes of dp and pp.

    Each step of one group carries its decode tokens; new prompts replace finished ones at B / O per step and are
    computed with them, in chunks of the engine's budget (or in steps of their own where the engine does not mix).
    """
    groups = 1.0 * strategy.dp * strategy.attention_dp
    waves = 1.0 * strategy.pp if engine.pipeline_kind == "microbatch" else 1.0
    if per_group is None:
        # groups that share experts or feed-forwards wait for the fullest of them at every step
        coupled = Split.of(strategy).groups
        mean = sequences / groups / waves
        here = larger(where(coupled > 1, batching.busiest_group(mean * coupled, coupled), mean), 1.0)
    else:
        here, sequences = per_group, per_group * groups * waves
    emitted = (
        float(batching.tokens_per_speculative_step(workload.drafted, workload.acceptance)) if workload.drafted else 1.0
    )
    fresh = workload.input * (1.0 - workload.prefix_hit)
    past = workload.input * workload.prefix_hit
    context = 1.0 * memory.mean_resident_tokens(workload.input, workload.output)
    decode_step = Step(sequences=here, each=1.0 + workload.drafted, context=context)
    decode = step_term("decode step", model, strategy, decode_step, r, kv_bytes=kv_bytes, drafted=workload.drafted)
    per_step = here * emitted / workload.output  # prompts that must be computed per step to keep the batch full
    # prompts get what decoding sequences leave of a step that they share; one that is not cut is computed whole
    left = engine.pass_tokens(budget) - (here if engine.mixes else 0.0)
    room = larger(left, 1.0 if engine.chunked_prefill else fresh)
    chunk = smaller(larger(1.0, per_step) * fresh, room)
    requests = chunk / fresh
    prompt_step = Step(new=chunk, past=past, requests=requests)
    if engine.mixes:
        mixed_step = replace(decode_step, new=chunk, past=past, requests=requests)
        mixed = step_term("mixed step", model, strategy, mixed_step, r, kv_bytes=kv_bytes, drafted=workload.drafted)
        added, parts = mixed.value - decode.value, [mixed, decode]
    else:
        mixed = step_term("prefill step", model, strategy, prompt_step, r, kv_bytes=kv_bytes)
        added, parts = mixed.value, [mixed]
    per_request = added / requests * _overlap(model, strategy, engine, r, fresh, budget)
    prefill = Term(
        "prefill of the replacements",
        batching.time_per_output_token(0.0, per_request, here * emitted, workload.output),
        "s",
        law="batching.time_per_output_token",
        parts=parts,
        combine="difference" if engine.mixes else "product",
        text="{prompts} prompts a step x {each} of each" + (", what a mixed step takes more" if engine.mixes else ""),
        numbers={"prompts": per_step, "each": (per_request, "s")},
    )
    sent = here * (1.0 + workload.drafted) + per_step * fresh  # tokens that cross to the next stage in a mean step
    hop = mean_hop(sent * model.hidden * ACTIVATION_BYTES, 1.0 * strategy.tp, 1.0 * strategy.pp, r.network)
    hop = where(strategy.pp > 1, hop, 0.0) if not isinstance(strategy.pp, int) else (hop if strategy.pp > 1 else 0.0)
    host = engine_term(here, r)
    stage_parts = [decode, prefill]
    if not (type(hop) is float and hop == 0.0):
        stage_parts.append(
            Term(
                "pipeline hops",
                hop,
                "s",
                law="collectives.transfer_time",
                text="{sent} tokens x {hidden} x 2 B",
                numbers={"sent": sent, "hidden": model.hidden},
                sources=r.network.cites(*HOP, *r.network.between_names),
            )
        )
    stage = total("stage", stage_parts, "s")
    tpot = token_time(stage, host, strategy, emitted)
    ttft, prompt_time = _first_token(model, strategy, engine, r, fresh, past, budget, kv_bytes)
    rate = batching.output_rate(sequences, tpot.value)
    prefill_rate = fresh * groups / _pace(model, strategy, engine, r, fresh, past, budget, kv_bytes, prompt_time)
    busy = _busy(decode, mixed, prefill.value, tpot.value, emitted, waves, sequences, groups)
    return Prediction(
        tpot=tpot,
        ttft=ttft,
        decode=decode,
        prefill=mixed,
        sequences=sequences,
        input_share=prefill.value * (1.0 * strategy.pp) / emitted / tpot.value,
        rate=rate,
        prefill_rate=prefill_rate,
        busy=smaller(busy, 1.0),
    )


HOP = ("link", "start", "step", "quick", "bulk", "gather", "staged_path")
"""Numbers of the network that a hop inside a host rests on."""

WAITING = {"launches", "all-reduce", "expert exchange"}
"""Parts of a step in which neither memory nor compute of a device works."""


def _busy(
    decode: Term,
    mixed: Term,
    prefill: Number,
    tpot: Number,
    emitted: float,
    waves: Number,
    sequences: Number,
    groups: Number,
) -> Number:
    """Return the share of the time that a device computes or reads: not launching, communicating or waiting for its turn."""
    working = sum(part.value for part in decode.parts if part.name not in WAITING)
    share = sum(part.value for part in mixed.parts if part.name not in WAITING) / mixed.value
    turn = (working + prefill * share) / emitted
    # each stage works once per wave of users; with fewer users than waves some of its turns stay empty
    filled = smaller(waves, larger(sequences / groups, 1.0))
    return smaller(turn * filled / tpot, 1.0)


def token_time(stage: Term, host: Term, strategy: Strategy, emitted: float) -> Term:
    """Return the time per output token: all stages in turn, then the host."""
    inner = [piece for part in stage.parts for piece in (part.parts if part.name == "decode step" else [part])]
    parts = [*inner, host]
    if isinstance(strategy.pp, int) and strategy.pp == 1 and emitted == 1.0:
        return total("TPOT", parts, "s", law="batching.time_per_output_token")
    stages = 1.0 * strategy.pp
    scaled = [
        Term(
            p.name,
            pipeline.interleaved_token_time(stages, p.value, 0.0) / emitted,
            "s",
            law=p.law or "pipeline.interleaved_token_time",
            parts=[p],
            combine="product",
            text="{stages} stages x {once}" + (f" / {emitted:g} tokens a step" if emitted != 1.0 else ""),
            numbers={"stages": stages, "once": (p.value, "s")},
            sources=p.sources,
        )
        for p in inner
    ]
    last = (
        host
        if emitted == 1.0
        else Term(
            "engine step",
            host.value / emitted,
            "s",
            parts=[host],
            combine="product",
            law=host.law,
            text="{once} / {emitted} tokens a step",
            numbers={"once": (host.value, "s"), "emitted": emitted},
        )
    )
    return total("TPOT", [*scaled, last], "s", law="pipeline.interleaved_token_time")


def _first_token(
    model: Model,
    strategy: Strategy,
    engine: Engine,
    r: Rates,
    fresh: float,
    past: float,
    budget: Number,
    kv_bytes: float,
) -> tuple[Term, Number]:
    """Return the time to the first token of an empty system, and the part that a device works."""
    step = Step(new=larger(1.0, 1.0 * fresh), past=1.0 * past, requests=1.0, coupled=False)
    one, passes = prompt_pass(model, strategy, engine, r, step, budget, kv_bytes=kv_bytes)
    stages = 1.0 * strategy.pp
    turns = turns_of(model, engine, r, stages, passes)
    hop = mean_hop(fresh / passes * model.hidden * ACTIVATION_BYTES, 1.0 * strategy.tp, stages, r.network)
    host = host_of_passes(passes, 1.0, r)
    alone = isinstance(strategy.pp, int) and strategy.pp == 1
    parts = in_turn(one, turns) if not alone or type(turns) is not float or turns != 1.0 else list(one.parts)
    if alone:
        return total("TTFT", [*parts, host], "s"), one.value * turns
    hops = Term(
        "pipeline hops",
        (turns - passes) * hop,
        "s",
        law="pipeline.serial_latency",
        text="{hops} hops x {hop}",
        numbers={"hops": turns - passes, "hop": (hop, "s")},
        sources=r.network.cites(*HOP, *r.network.between_names),
    )
    return total("TTFT", [*parts, hops, host], "s"), one.value * turns


def _pace(
    model: Model,
    strategy: Strategy,
    engine: Engine,
    r: Rates,
    fresh: float,
    past: float,
    budget: Number,
    kv_bytes: float,
    alone: Number,
) -> Number:
    """Return the time between one prompt and the next of a group that computes nothing else, which takes `alone` through an empty system [s]."""
    stages = 1.0 * strategy.pp
    if np.any(Split.of(strategy).groups > 1):
        # all groups compute prompts together, and share what they compute with
        full = Step(new=larger(1.0, 1.0 * fresh), past=1.0 * past, requests=1.0)
        one, passes = prompt_pass(model, strategy, engine, r, full, budget, kv_bytes=kv_bytes)
        alone = one.value * turns_of(model, engine, r, stages, passes)
    if engine.pipeline_kind != "microbatch":
        return alone
    # stages work on different prompts at once; the slower of a stage and a hop sets the pace
    hop = mean_hop(fresh * model.hidden * ACTIVATION_BYTES, 1.0 * strategy.tp, stages, r.network)
    return larger(alone / stages, where(stages > 1.0, hop, 0.0))


def prompt_pass(
    model: Model, strategy: Strategy, engine: Engine, r: Rates, step: Step, budget: Number, *, kv_bytes: float
) -> tuple[Term, Number]:
    """Return one full pass of prompts through the slowest stage, and how many such passes they are worth.

    Passes hold as many tokens as an engine computes together. Where they hold whole prompts each starts anew; where a prompt takes
    several, each is the mean one, which sees half of the rest before it.
    """
    passes = batching.passes(step.new, 1.0 * engine.pass_tokens(budget)) if engine.chunked_prefill else 1.0
    if type(passes) is float and passes == 1.0:
        return step_term("prefill", model, strategy, step, r, kv_bytes=kv_bytes), 1.0
    prompt = step.new / step.requests
    each = smaller(prompt, step.new / passes)
    mean = replace(
        step, new=step.new / passes, past=step.past + (prompt - each) / 2.0, requests=step.new / passes / each
    )
    return step_term("prefill", model, strategy, mean, r, kv_bytes=kv_bytes), passes


def host_of_passes(passes: Number, sequences: Number, r: Rates) -> Term:
    """Return the host's time for the passes of prompts: a for each, and b for each sequence in it, of which there is one at least."""
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
    """Return the stage times that passes of prompts take: one after the other, or side by side where an engine keeps copies of its inputs."""
    copies = engine.memory.get("pipeline_copies")
    if engine.pipeline_kind != "layer-split" or copies is None:
        return passes * stages
    return pipeline.layer_split_turns(stages, 1.0 * passes, copies.value, _queued(model, engine, r) * stages)


def _overlap(model: Model, strategy: Strategy, engine: Engine, r: Rates, fresh: float, budget: Number) -> Number:
    """Return the time that a prompt takes through all stages over that of its passes one after the other [1]."""
    if engine.pipeline_kind != "layer-split":
        return 1.0
    stages = 1.0 * strategy.pp
    passes = batching.passes(larger(1.0, 1.0 * fresh), 1.0 * engine.pass_tokens(budget))
    return turns_of(model, engine, r, stages, passes) / (passes * stages)


def _queued(model: Model, engine: Engine, r: Rates) -> float:
    """Return the passes through the whole model that a launch queue holds, many where launches are not known to be bounded [1]."""
    kernels, vendor = engine.kernels, r.machine.device.vendor
    if not kernels.launch_queue or vendor not in kernels.queued:
        return UNBOUNDED
    launches = kernels.layer_launches * len(model.decoder.layers)
    plan = model.quantization
    if vendor in kernels.unpacked and plan is not None and format_entry(plan.format).get("gguf"):
        launches += sum(_matrices(layer) * len(places) for layer, places in model.decoder.kinds())
    return kernels.launch_queue / launches


def _matrices(layer: Layer) -> int:
    """Return the matrices that a token passes in a layer, each unpacked by a kernel of its own."""
    count = sum(len(group) for mixer in layer.mixers for group in mixer.groups)
    for feed in layer.feed_forwards:
        groups = feed.groups if isinstance(feed, Dense) else (*feed.expert, *feed.shared)
        count += sum(len(group) for group in groups)
    return count


UNBOUNDED = 1e6
"""Passes that a queue without a known end holds [1]."""


def in_turn(one: Term, turns: Number) -> list[Term]:
    """Return the parts of a pass through a stage as often as it is made."""
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
