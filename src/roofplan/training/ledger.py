"""Peak memory of one rank of each pipeline stage, as Terms; values may be arrays over layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from roofplan.laws import Number, larger, pipeline, smaller, states, where
from roofplan.operations.activations import (
    LOW_PRECISION,
    adapted,
    distinct_weights,
    held,
    stream_bytes,
    widest_gradient,
)
from roofplan.operations.table import ACTIVATION_BYTES, element_bytes
from roofplan.records.calibration import Fit
from roofplan.records.model import Layer, Model
from roofplan.records.source import Source, document
from roofplan.records.terms import Term, total
from roofplan.records.training import Adapter, Framework, Job, Layout
from roofplan.training.distinct import distinct
from roofplan.training.stages import Share, Stage, layer_parameters, rank_parameters, rows_of_table, stages


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The peak memory of one stage.

    Parameters
    ----------
    stage : the pipeline stage.
    allocated : allocated memory (tensors) at the peak, in parts [B].
    host : memory of the rank that is offloaded to its host [B].
    slack : reserved (allocator) over allocated (tensors) memory [1].
    """

    stage: Stage
    allocated: Term
    host: Number
    slack: float

    @property
    def reserved(self) -> Number:
        """Memory that the allocator reserves [B]."""
        return self.allocated.value * self.slack


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """Inputs of the parts of a ledger."""

    model: Model
    job: Job
    layout: Layout
    framework: Framework
    kinds: tuple[Layer, ...]
    stage: Stage
    tokens: Number
    small: Layout
    layers: tuple[tuple[Number, Number, Number], ...]
    back: Callable[[Number], Number]

    def cites(self, name: str) -> tuple[Source, ...]:
        return (self.framework.memory[name].cited,)


def ledgers(model: Model, job: Job, layout: Layout, framework: Framework, fit: Fit) -> list[Ledger]:
    """Return the peak memory of every distinct pipeline stage.

    Parameters
    ----------
    model : model that is trained.
    job : batch, sequence, precision and method.
    layout : degrees of parallelism, as floats or arrays.
    framework : which activations are saved, and how states are sharded.
    fit : fitted constants, for the ratio of reserved to allocated memory.

    Returns
    -------
    One ledger for each distinct stage [B].
    """
    slack = fit.find("allocator", "reserved_over_allocated", [framework.name, "any"]).value
    return _ledgers(model, job, layout, framework, slack)


def _ledgers(model: Model, job: Job, layout: Layout, framework: Framework, slack: float) -> list[Ledger]:
    kinds = tuple(layer for layer, _ in model.decoder.kinds())
    small, back = distinct(layout)
    tokens = small.micro_batch * job.sequence / small.cp
    layers = [
        (*held(layer, tokens, job, small, model, framework), widest_gradient(layer, tokens, small, model))
        for layer in kinds
    ]
    return [
        _ledger(
            _Case(
                model=model,
                job=job,
                layout=layout,
                framework=framework,
                kinds=kinds,
                stage=stage,
                tokens=tokens,
                small=small,
                layers=tuple(layers),
                back=back,
            ),
            slack,
        )
        for stage in stages(model, layout.pp, layout.interleave, layout.schedule, ends=framework.counts_ends)
    ]


def needed(model: Model, job: Job, layout: Layout, framework: Framework) -> float:
    """Return the peak allocated memory of the fullest stage, without the allocator's overhead.

    Parameters
    ----------
    model : model that is trained.
    job : batch, sequence, precision and method.
    layout : degrees of parallelism of one layout.
    framework : which activations are saved, and how states are sharded.

    Returns
    -------
    Allocated bytes [B].
    """
    return float(fullest(_ledgers(model, job, layout, framework, 1.0)).allocated.value)


def fullest(found: Sequence[Ledger]) -> Ledger:
    """Return the ledger of the stage that reserves the most memory.

    Parameters
    ----------
    found : ledgers of the stages of one layout, not of an array of them.

    Returns
    -------
    Its ledger.
    """
    return max(found, key=lambda one: float(one.reserved))


def peak(found: Sequence[Ledger]) -> Number:
    """Return the reserved memory of the fullest stage, element by element.

    Parameters
    ----------
    found : ledgers of the stages, their values floats or arrays.

    Returns
    -------
    Reserved bytes, float or array [B].
    """
    most = found[0].allocated.value
    for one in found[1:]:
        most = larger(most, one.allocated.value)
    return most * found[0].slack


def host_peak(found: Sequence[Ledger]) -> Number:
    """Return the host memory of one rank, on the stage that uses the most of it [B]."""
    most = found[0].host
    for one in found[1:]:
        most = larger(most, one.host)
    return most


def micro_batches(job: Job, layout: Layout) -> Number:
    """Return the micro-batches per step of each pipeline [1]."""
    return job.batch / (layout.dp * layout.micro_batch)


def in_flight(stage: Stage, job: Job, layout: Layout) -> Number:
    """Return the maximum number of micro-batches in flight on a stage, in units of all of its layers [1]."""
    passing = micro_batches(job, layout)
    pp, place, chunks = float(layout.pp), float(stage.place), float(layout.interleave)
    if layout.schedule == "gpipe":
        return passing
    if layout.schedule == "dualpipe":
        return smaller(pipeline.dual_in_flight(pp), passing / 2.0)
    if layout.schedule == "zb-h1":
        return smaller(pp, passing)  # deferred weight gradients keep as many activations on every stage as on the first
    if chunks > 1.0:
        return smaller(pipeline.chunks_in_flight(pp, place, chunks), passing * chunks) / chunks
    return smaller(pipeline.warmup_micro_batches(pp, place), passing)


def _ledger(c: _Case, slack: float) -> Ledger:
    framework = c.framework
    shared = rank_parameters(c.stage, c.kinds, c.model, c.small, framework.keeps("vocabulary_multiple"))
    share = Share(*map(c.back, shared))
    standing, buffers = _states(share, c), _buffers(share, c)
    moments = [_passing(c), _passed(c)] if _whole_gradients(c) else [_passing(c)]
    placed = [_placed([*standing, *moment, *buffers], c) for moment in moments]
    parts, away = _fuller(*(parts for parts, _ in placed)), _most(*(away for _, away in placed))
    runtime = framework.keeps("runtime")
    parts.append(
        Term(
            "runtime",
            runtime,
            "B",
            law="given",
            text="{runtime}",
            numbers={"runtime": (runtime, "B")},
            sources=c.cites("runtime"),
        )
    )
    allocated = total("memory", parts, "B")
    return Ledger(stage=c.stage, allocated=allocated, host=away, slack=slack * framework.late_frees)


def _whole_gradients(c: _Case) -> bool:
    """Return whether gradients of sharded blocks, even of frozen weights, stay unsharded until synchronisation."""
    return bool(c.framework.whole_gradient) and c.layout.zero >= 3 and c.job.adapter is not None


def _passing(c: _Case) -> list[Term]:
    """Return the memory besides model states at the end of a forward pass.

    Accumulated gradients are included, unless the framework runs the longest sample first.
    """
    several = _whole_gradients(c) and not c.framework.longest_first
    return [_activations(c), _working(c), *([_gathered(c, gradients=several)] if c.layout.zero >= 3 else [])]


def _passed(c: _Case) -> list[Term]:
    """Return the memory besides model states at the end of a backward pass: one layer's activations, all gradients."""
    kept: Number = 0.0
    for count, (stays, _, _) in zip(c.stage.counts, c.layers, strict=True):
        kept = larger(kept, stays) if count else kept
    again = _again(c)
    rows = rows_of_table(c.model, c.small, c.framework.keeps("vocabulary_multiple"))
    logits = c.stage.heads * c.tokens * rows * c.framework.logits_stay
    kept, again, logits = c.back(kept), c.back(again), c.back(logits)
    first = Term(
        "activations",
        kept,
        "B",
        law="operations.activations.held",
        text="of the first layer alone, whose backward pass is the last: {kept}",
        numbers={"kept": (kept, "B")},
        sources=c.cites("norm_kept"),
    )
    working = Term(
        "working",
        again + logits,
        "B",
        law="operations.activations.widest_gradient",
        text="a layer's backward pass {again}, and logits that a loop still refers to, {logits}",
        numbers={"again": (again, "B"), "logits": (logits, "B")},
        sources=c.cites("logits_stay") if c.framework.logits_stay else (),
    )
    return [first, working, _gathered(c, gradients=True)]


def _fuller(one: list[Term], *others: list[Term]) -> list[Term]:
    """Return the parts of whichever peak is larger, element by element."""
    for other in others:
        more = sum(part.value for part in other) > sum(part.value for part in one)
        if np.ndim(more) == 0:
            one = other if more else one
            continue
        one = [
            Term(
                b.name, where(more, b.value, a.value), "B", law=b.law, text=b.text, numbers=b.numbers, sources=b.sources
            )
            for a, b in zip(one, other, strict=True)
        ]
    return one


def _most(one: Number, *others: Number) -> Number:
    """Return the maximum, element by element."""
    for other in others:
        one = larger(one, other)
    return one


AWAY = {"optimizer": ("optimizer",), "weights": ("weights", "adapters"), "activations": ("activations",)}
"""Parts of a ledger that are in host memory, for each kind of offload."""

SWAP_LAYERS = 2.0
"""Layers kept on the device under activation offload: the running one and the one in transfer [1]."""


def _placed(parts: list[Term], c: _Case) -> tuple[list[Term], Number]:
    """Return a stage's parts that stay on the device, and the bytes in host memory [B]."""
    names = AWAY.get(c.layout.offload, ())
    away: Number = 0.0
    for part in parts:
        if part.name in names:
            away = away + part.value
    stay = [part for part in parts if part.name not in names]
    return [*stay, _swapping(c)] if c.layout.offload == "activations" else stay, away


def _swapping(c: _Case) -> Term:
    """Return the activations that stay on the device under activation offload."""
    most: Number = 0.0
    for count, (stays, _, _) in zip(c.stage.counts, c.layers, strict=True):
        if count:
            most = larger(most, stays)
    most = c.back(most)
    return Term(
        "activations on their way",
        SWAP_LAYERS * most,
        "B",
        law="operations.activations.held",
        text="{layers} layers, the one that runs and the next, x {most}; all others' lie in host memory",
        numbers={"layers": SWAP_LAYERS, "most": (most, "B")},
        sources=c.cites("norm_kept"),
    )


def alike(layout: Layout) -> tuple[Number, Number]:
    """Return the sharding group sizes of dense and of expert parameters [1]."""
    ranks = layout.dp * layout.cp
    if isinstance(layout.shard, np.ndarray) or layout.shard:
        ranks = smaller(ranks, layout.shard)
    return ranks, larger(ranks * layout.tp / layout.ep, 1.0)


def _states(share: Share, c: _Case) -> list[Term]:
    """Return weights, gradients and optimizer state."""
    job, layout = c.job, c.layout
    if job.adapter is not None:
        return _adapter_states(share, job.adapter, c)
    ranks, thin = alike(layout)
    routed = not (type(share.experts) is float and share.experts == 0.0)
    own = job.optimizer.master == 0.0
    copy = job.optimizer.weight if own else c.framework.keeps("weight")
    cited = (document(job.optimizer.source),) if own else c.cites("weight")
    table = [
        ("weights", (copy, 0.0, 0.0), 3, cited),
        ("gradients", (0.0, job.gradient, 0.0), 2, cited),
        ("optimizer", (0.0, 0.0, job.optimizer.bytes), 1, (document(job.optimizer.source),)),
    ]
    return [
        Term(
            name,
            states.zero_bytes(share.dense, *each, ranks if layout.zero >= least else 1.0, layout.zero)
            + (states.zero_bytes(share.experts, *each, thin, layout.zero) if routed else 0.0),
            "B",
            law="states.zero_bytes",
            text="({dense} / {ranks} ranks + {experts} of experts / {expert_ranks}) x {each} B",
            numbers={
                "dense": share.dense,
                "ranks": ranks if layout.zero >= least else 1.0,
                "experts": share.experts,
                "expert_ranks": thin if layout.zero >= least else 1.0,
                "each": sum(each),
            },
            sources=sources,
        )
        for name, each, least, sources in table
    ]


def _adapter_states(share: Share, adapter: Adapter, c: _Case) -> list[Term]:
    """Return the frozen weights in their stored format, and the states of the trained adapters."""
    layout = c.layout
    ranks = alike(layout)[0] if layout.zero >= 3 else 1.0
    each = element_bytes(adapter.stored)
    frozen = ((share.matrices + share.experts) * each + share.others * ACTIVATION_BYTES) / ranks
    trained: Number = adapter.fixed or 0.0
    if adapter.fixed is None:
        for count, layer in zip(c.stage.counts, c.kinds, strict=True):
            trained = trained + count * adapted(layer, adapter)
    return [
        Term(
            "weights",
            frozen,
            "B",
            law="states.zero_bytes",
            text="({weights} x {each} B + {others} embedding, head and norms x 2 B) over {ranks} ranks",
            numbers={"weights": share.matrices + share.experts, "each": each, "others": share.others, "ranks": ranks},
            sources=c.cites("weight"),
        ),
        Term(
            "adapters",
            trained * adapter.bytes / ranks,
            "B",
            law="states.state_bytes",
            text="{trained} trained parameters x {bytes_each} B over {ranks} ranks",
            numbers={"trained": trained, "bytes_each": adapter.bytes, "ranks": ranks},
            sources=(document(c.job.optimizer.source),),
        ),
    ]


def _activations(c: _Case) -> Term:
    """Return the activations that the stage's layers save for the micro-batches in flight."""
    flying = in_flight(c.stage, c.job, c.layout)
    parts = []
    for count, layer, (kept_by_one, _, _) in zip(_passed_backward(c), c.kinds, c.layers, strict=True):
        if count:
            stays = c.back(kept_by_one)
            text = "{layers} layers x {micro_batches} micro-batches x {each}"
            parts.append(
                Term(
                    f"layers with {label(layer)}",
                    count * flying * stays,
                    "B",
                    law="operations.activations.held",
                    text=text,
                    numbers={"layers": count, "micro_batches": flying, "each": (stays, "B")},
                    sources=c.cites("norm_kept"),
                )
            )
    if c.stage.embeds and c.framework.dropout:
        mask = c.back(stream_bytes(c.tokens, c.small, c.model)) / ACTIVATION_BYTES * flying
        parts.append(
            Term(
                "dropout mask of the embedding",
                mask,
                "B",
                law="operations.activations.kept",
                text="{mask} x 1 B",
                numbers={"mask": mask},
            )
        )
    return total("activations", parts, "B")


def _passed_backward(c: _Case) -> tuple[float, ...]:
    """Return the layers of each kind that the backward pass reaches: none below the first layer with an adapter [1]."""
    below = c.job.adapter.first if c.job.adapter and c.stage.embeds else 0
    if not below:
        return c.stage.counts
    idle = c.model.decoder.layers[:below]
    return tuple(max(0.0, count - idle.count(layer)) for count, layer in zip(c.stage.counts, c.kinds, strict=True))


def _again(c: _Case) -> Number:
    """Return the transient memory of a layer's backward pass: widest gradients and recomputed activations [B]."""
    most: Number = 0.0
    for count, (stays, whole, gradients) in zip(c.stage.counts, c.layers, strict=True):
        if count:
            most = larger(most, gradients + (whole - stays))
    return most


def _working(c: _Case) -> Term:
    """Return the transient memory: the larger of the output head's and a layer's backward pass."""
    again = _again(c)
    if not c.stage.heads:
        text = "widest gradients of a layer, and what is computed again, {again}"
        return Term(
            "working",
            c.back(again),
            "B",
            law="operations.activations.widest_gradient",
            text=text,
            numbers={"again": (again, "B")},
        )
    rows = rows_of_table(c.model, c.small, c.framework.keeps("vocabulary_multiple"))
    each = where(c.small.tp > 1, c.framework.logits_divided, c.framework.keeps("logits_kept"))
    divided = "logits_kept_divided" in c.framework.memory and bool(np.all(c.small.tp > 1))
    logits = c.tokens * rows * each
    stream = stream_bytes(c.tokens, c.small, c.model)
    whole = c.tokens * c.model.hidden * ACTIVATION_BYTES
    gathered = where(c.small.tp > 1, whole, 0.0 * whole) if c.small.sequence_parallel else 0.0
    gradient = 0.0 if c.job.adapter is not None else rows * c.model.hidden * c.framework.keeps("head_gradient")
    head = logits + 3.0 * stream + gathered + gradient
    value = larger(head, again)
    return Term(
        "working",
        c.back(value),
        "B",
        law="operations.activations.widest_gradient",
        text="the larger of the head ({tokens} tokens x {rows} logits x {each} B, its gradient {gradient}) and a layer's backward pass {again}",
        numbers={"tokens": c.tokens, "rows": rows, "each": each, "gradient": (gradient, "B"), "again": (again, "B")},
        sources=c.cites("logits_kept_divided" if divided else "logits_kept"),
    )


def _buffers(share: Share, c: _Case) -> list[Term]:
    """Return placeholder buffers of weight gradients, and low-precision copies of weights."""
    parts = []
    each = c.framework.keeps("weight_gradient_buffers")
    if each and c.job.adapter is None:
        here = [layer for count, layer in zip(c.stage.counts, c.kinds, strict=True) if count]
        entries = c.back(distinct_weights(here, c.small))
        parts.append(
            Term(
                "gradient placeholders",
                entries * each,
                "B",
                law="operations.activations.distinct_weights",
                text="{entries} weights of distinct shapes x {each} B",
                numbers={"entries": entries, "each": each},
                sources=c.cites("weight_gradient_buffers"),
            )
        )
    copies = c.framework.keeps("low_weight_copies") if c.job.precision in LOW_PRECISION else 0.0
    if copies and c.job.adapter is None:
        entries = share.matrices + share.experts
        ranks, thin = alike(c.layout) if c.layout.zero >= 3 else (1.0, 1.0)
        parts.append(
            Term(
                "low-precision weights",
                copies * (share.matrices / ranks + share.experts / thin),
                "B",
                law="given",
                text="{entries} weights of products x {copies} B",
                numbers={"entries": entries, "copies": copies},
                sources=c.cites("low_weight_copies"),
            )
        )
    return parts


def _gathered(c: _Case, *, gradients: bool = False) -> Term:
    """Return weights and gradients that are temporarily unsharded.

    They are the weights of the running layer and the next, a layer's gradients until their reduce-scatter, and
    embedding and head throughout; of all layers, if the framework reshards none. A shard in host memory is copied to
    the device before the all-gather. With `gradients`, the unsharded gradients of all layers are added, and one layer's
    a second time for the buffer that collects the gradients of its tensors.
    """
    frozen = c.job.adapter is not None
    stays = c.framework.stays_gathered == "pipeline" and c.layout.pp > 1 and not frozen
    stored = element_bytes(c.job.adapter.stored) if c.job.adapter else ACTIVATION_BYTES
    gradient = 0.0 if frozen else c.framework.keeps("gathered_gradient")
    amount: Number = 0.0
    shards: Number = 0.0
    whole: Number = 0.0
    for count, layer in zip(c.stage.counts, c.kinds, strict=True):
        if count:
            own = layer_parameters(layer, c.small)
            weights = (own.matrices + own.experts) * stored + own.others * ACTIVATION_BYTES
            if stays:
                amount = amount + count * (weights + own.all * gradient)
            else:
                passing = weights * c.framework.keeps("gathered_layers")
                amount = larger(amount, passing + own.all * gradient)
                shards = larger(shards, passing)
            if gradients:
                whole = whole + (count + 1.0) * own.all * c.framework.whole_gradient
    ends = c.stage.embeds + (c.stage.heads if not (c.model.tied and c.stage.embeds) else 0.0)
    rows = rows_of_table(c.model, c.small, c.framework.keeps("vocabulary_multiple"))
    tables = ends * rows * c.model.hidden * ACTIVATION_BYTES
    how = "all layers, gathered until the step ends" if stays else "a layer and the next, gathered"
    text = how + ": {layers}, gradients at {gradient} B; embedding and head {tables}"
    numbers = {"layers": (amount, "B"), "gradient": gradient, "tables": (tables, "B")}
    copied: Number = 0.0
    if c.layout.offload == "weights":
        copied = c.back(shards) / alike(c.layout)[0]
        text += "; copies of their shards in host memory {copied}"
        numbers |= {"copied": (copied, "B")}
    if gradients:
        text += "; gradients of all layers and once more of one {whole}"
        numbers |= {"whole": (whole, "B")}
    return Term(
        "gathered",
        c.back(amount + tables + whole) + copied,
        "B",
        law="states.zero_bytes",
        text=text,
        numbers=numbers,
        sources=c.cites("gathered_layers") + (c.cites("whole_gradient") if gradients else ()),
    )


def label(layer: Layer) -> str:
    """Return a layer's modules as text, such as ``attention and mixture``."""
    names = {
        "Attention": "attention",
        "LatentAttention": "latent attention",
        "Recurrence": "recurrence",
        "Dense": "feed-forward",
        "Mixture": "mixture",
    }
    found = [names[type(part).__name__] for part in (*layer.mixers, *layer.feed_forwards)]
    return " and ".join(dict.fromkeys(found))
