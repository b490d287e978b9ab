"""Time of one training step, stage by stage, for one layout or arrays of layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from roofplan import catalogue
from roofplan.errors import InputError
from roofplan.laws import Number, collectives, larger, pipeline, reliability, where
from roofplan.operations import activations
from roofplan.operations.table import ACTIVATION_BYTES, Operation, element_bytes
from roofplan.operations.training import (
    backward,
    computed_again,
    embedding_pass,
    forward,
    head_pass,
)
from roofplan.records.model import Model
from roofplan.records.training import Job, Layout
from roofplan.timing.hops import slowest_hop
from roofplan.timing.kernels import operation_time
from roofplan.timing.network import (
    MESSAGES,
    Ranks,
    all_reduce,
    gather,
    message_start,
    message_time,
)
from roofplan.training.ability import Ability
from roofplan.training.distinct import distinct
from roofplan.training.ledger import alike, micro_batches
from roofplan.training.stages import Share, Stage, rank_parameters, stages

PART_OF = {
    "matmul": "products",
    "experts": "products",
    "low_rank": "products",
    "prefill_attention": "attention",
    "scores": "attention",
    "memory": "memory passes",
}
"""Part of a step for each kind of operation; messages belong to the part of their process group."""

RANKS = ("tensor ranks", "context ranks", "expert ranks")
"""Parts of a step that are communication inside a layer."""


def part_of(op: Operation) -> str:
    """Return the part of a step to which an operation belongs."""
    return f"{op.among} ranks" if op.kind in MESSAGES else PART_OF[op.kind]


PLAIN = {"scores": "memory", "low_rank": "matmul"}
"""Kinds of operations that are timed as another kind."""

OVERLAP_SLOWDOWN = {"inside": 0.15, "outside": 0.02}
"""Slowdown of compute by overlapped communication, over NVLink (whose kernels occupy SMs) and over network cards. These
are calculon's values for an A100 cluster (processor_usage in its systems/a100_80g.json, Apache-2.0) [1]."""


@dataclass(slots=True, kw_only=True)
class Pass:
    """A pass of a micro-batch through a layer, the embedding or the head.

    Parameters
    ----------
    rows : operations with their times [s].
    parts : time by part of the step; the wait for the host is ``launches`` [s].
    total : their sum [s].
    """

    rows: list[tuple[Operation, Number]]
    parts: dict[str, Number]
    total: Number


def timed(table: Sequence[Operation], layout: Layout, a: Ability, groups: dict[str, Ranks]) -> Pass:
    """Return the time of a pass: kernels, messages, and the wait for the host if launches take longer than kernels.

    Parameters
    ----------
    groups : cache of process groups by kind; groups of this pass are added.
    """
    parts: dict[str, Number] = {}
    rows = []
    device: Number = 0.0
    beside: Number = 0.0
    kernels = 0.0
    for op in table:
        if op.kind in MESSAGES:
            if type(op.ranks) is float and op.ranks <= 1.0:
                continue
            seconds = sent(op, layout, a, groups)
            if op.kind == "ring":
                # overlaps attention on the previous block
                seconds = exposed(seconds, parts.get("attention", 0.0), groups[op.among])
            if op.beside and "tensor-backward" in a.framework.overlaps:
                beside = beside + seconds
                rows.append((op, seconds))
                continue
        else:
            plain = op._replace(kind=PLAIN.get(op.kind, op.kind))
            seconds = operation_time(plain, a.rates) + op.kernels * a.ramp
            kernels += op.kernels
            device = device + seconds
        rows.append((op, seconds))
        name = part_of(op)
        parts[name] = parts[name] + seconds if name in parts else seconds
    if "tensor" in a.framework.overlaps and "tensor ranks" in parts:
        parts["tensor ranks"] = exposed(parts["tensor ranks"], parts.get("products", 0.0), groups["tensor"])
    if "expert ranks" in parts and ("expert" in a.framework.overlaps or layout.schedule == "dualpipe"):
        window = parts.get("products", 0.0) + parts.get("attention", 0.0)
        parts["expert ranks"] = exposed(parts["expert ranks"], window, groups["expert"])
    if type(beside) is not float or beside:
        hidden = exposed(beside, parts.get("products", 0.0), groups["tensor"])
        parts["tensor ranks"] = parts.get("tensor ranks", 0.0) + hidden
    parts["launches"] = larger(kernels * a.launch - device, 0.0 * device)
    whole: Number = 0.0
    for seconds in parts.values():
        whole = whole + seconds
    return Pass(rows=rows, parts=parts, total=whole)


def sender(op: Operation, layout: Layout, a: Ability) -> Ranks:
    """Return the process group of a message: context ranks are a tensor group apart, tensor and expert ranks adjacent."""
    return Ranks(op.ranks, a.network, layout.tp if op.among == "context" else 1.0)


def sent(op: Operation, layout: Layout, a: Ability, groups: dict[str, Ranks]) -> Number:
    """Return the time of a message [s]."""
    group = groups.get(op.among)
    if group is None or group.ranks is not op.ranks:
        group = groups[op.among] = sender(op, layout, a)
    return message_time(op.kind, op.traffic, group, copies=float(op.rows), groups=op.groups)


def exposed(message: Number, window: Number, group: Ranks | None) -> Number:
    """Return the exposed time of a message that overlaps compute, sent by a process group, or over the host link [s]."""
    return collectives.exposed_time(message, window, overlap_slowdown(group))


def overlap_slowdown(group: Ranks | None) -> Number:
    """Return the slowdown of compute by messages of a process group, or over the host link [1]."""
    if group is None:
        return OVERLAP_SLOWDOWN["outside"]
    return where(group.ranks <= group.local, OVERLAP_SLOWDOWN["inside"], OVERLAP_SLOWDOWN["outside"])


@dataclass(slots=True, kw_only=True)
class Passes:
    """The passes of a layer, the embedding or the head.

    Parameters
    ----------
    swapped : activations copied to host memory in forward and back in backward, None without activation offload [B].
    copying : time of both copies on the host link, None without activation offload [s].
    """

    forward: Pass
    again: Pass
    inputs: Pass
    weights: Pass
    swapped: Number | None = None
    copying: Number | None = None

    def all(self) -> tuple[tuple[str, Pass], ...]:
        """Return the passes with their names."""
        return (
            ("forward", self.forward),
            ("recompute", self.again),
            ("inputs", self.inputs),
            ("weights", self.weights),
        )


def passes(model: Model, job: Job, layout: Layout, a: Ability) -> list[Passes]:
    """Return the passes of each kind of layer, then of the embedding and the head."""
    tokens = layout.micro_batch * job.sequence / layout.cp
    framework = a.framework
    layers = [forward(layer, tokens, job, layout, model, framework) for layer, _ in model.decoder.kinds()]
    ends = [embedding_pass(tokens, layout, model), head_pass(tokens, layout, model, framework)]
    out = []
    groups: dict[str, Ranks] = {}
    for index, table in enumerate([*layers, *ends]):
        inputs, weights = backward(table, job)
        again = computed_again(table, layout, framework) if index < len(layers) else []
        found = (timed(each, layout, a, groups) for each in (table, again, inputs, weights))
        out.append(Passes(forward=next(found), again=next(found), inputs=next(found), weights=next(found)))
    if layout.offload == "activations":
        for (layer, _), each in zip(model.decoder.kinds(), out, strict=False):
            gone, _ = activations.held(layer, tokens, job, layout, model, framework)
            _swap(each, gone, layout, a)
    return out


def _swap(each: Passes, swapped: Number, layout: Layout, a: Ability) -> None:
    """Add the exposed time of copying a layer's activations to host memory in forward, and back in backward.

    If devices communicate over their host links only, messages use the links first.
    """
    gone = swapped / copy_rate(a)
    each.swapped, each.copying = swapped, 2.0 * gone
    busy = {"tensor ranks", "context ranks", "expert ranks"} if a.machine.scale_up is None else set()

    def free(one: Pass) -> Number:
        taken: Number = 0.0
        for name in busy & set(one.parts):
            taken = taken + one.parts[name]
        return one.total - taken

    back = free(each.inputs) + free(each.weights) + layout.recomputed * free(each.again)
    for one, window in ((each.forward, free(each.forward)), (each.inputs, back)):
        waits = exposed(gone, window, None)
        one.parts["swap"] = waits
        one.total = one.total + waits


def copy_rate(a: Ability) -> float:
    """Return the one-way copy rate between a device and host memory when all devices of a host copy at once [B/s]."""
    rate = a.machine.copy_rate
    if rate is not None and a.network.topology == "staged":
        rate = min(rate, a.network.staged / a.machine.per_host)
    if rate is None:
        raise InputError(
            f"{a.machine.device.id} has no known link to its host: nothing is offloaded", argument="--strategy"
        )
    return rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The time of one step and its parts; numbers or arrays.

    Parameters
    ----------
    time : step time [s].
    scheduled : time of all micro-batches through the pipeline, including the bubble [s].
    slot : time of a micro-batch on the slowest stage [s].
    waiting : excess of the slowest host over the mean [1].
    shown : time of a slot by part, before `back` maps it to the original layouts [s].
    beside : time by part, of parts that do not repeat for each micro-batch [s].
    passes : passes of layers, embedding and head.
    worst : the slowest stage (for a single layout).
    """

    time: Number
    scheduled: Number
    micro_batches: Number
    slot: Number
    waiting: float
    shown: dict[str, Number]
    beside: dict[str, Number]
    back: Callable[[Number], Number]
    passes: list[Passes]
    stages: tuple[Stage, ...]
    worst: Stage

    @property
    def parts(self) -> dict[str, Number]:
        """Time by part; the parts sum to `time` [s]."""
        work = {name: self.back(seconds) * self.micro_batches for name, seconds in self.shown.items()}
        stragglers = self.time * (self.waiting / (1.0 + self.waiting))
        bubble = self.scheduled - self.micro_batches * self.slot
        return work | {"bubble": bubble} | self.beside | {"stragglers": stragglers}


def step(model: Model, job: Job, layout: Layout, a: Ability) -> Step:
    """Return the time of one training step.

    Parameters
    ----------
    model : model that is trained.
    job : batch, sequence, precision and method.
    layout : degrees of parallelism, as floats or arrays; micro-batches must divide the batch.
    a : achieved rates and fixed times of the machine under the framework.

    Returns
    -------
    Time with its parts, floats or arrays [s].
    """
    small, back = distinct(layout)
    found = passes(model, job, small, a)
    micro = micro_batches(job, layout)
    held = stages(model, layout.pp, layout.interleave, layout.schedule, ends=a.framework.counts_ends)
    # a rank of DualPipe holds two stages; half of the micro-batches pass each of them
    each_way = 0.5 if layout.schedule == "dualpipe" else 1.0
    slots = [{name: each_way * x for name, x in _slot(stage, found, small.recomputed).items()} for stage in held]
    worst, parts = _slowest(slots)
    others = -1.0 * parts["slot"]
    for stage, each in zip(held, slots, strict=True):
        others = others + stage.alike * each["slot"]
    slot = back(parts["slot"])
    scheduled = _scheduled(parts, others, micro, layout, back)
    tokens = layout.micro_batch * job.sequence / layout.cp
    free = slot
    if "host link" in parts and a.machine.scale_up is None:
        free = larger(slot - back(parts["host link"]), 0.0)  # all-gathers and reductions use the same links
    message, update = _update(model, job, layout, a, held, free, micro, small, back)
    beside = {
        "pipeline hops": _hops(tokens, micro, model, layout, a),
        "data ranks": message,
        "optimizer": update,
        "host": a.host,
    }
    waiting = float(reliability.slowest_of(a.sigma, float(a.machine.hosts)))
    whole = scheduled + (update + a.host + message) + beside["pipeline hops"]
    whole *= 1.0 + waiting
    return Step(
        time=whole,
        scheduled=scheduled,
        micro_batches=micro,
        slot=slot,
        waiting=waiting,
        shown={name: seconds for name, seconds in parts.items() if name in SHOWN},
        beside=beside,
        back=back,
        passes=found,
        stages=held,
        worst=held[worst],
    )


SHOWN = (*dict.fromkeys(PART_OF.values()), *RANKS, "launches", "recompute", "swap")


def _slot(stage: Stage, found: Sequence[Passes], recomputed: Number) -> dict[str, Number]:
    """Return the time of a micro-batch on a stage: by part, by pass, and in total as ``slot`` [s]."""
    parts: dict[str, Number] = {}

    def add(name: str, seconds: Number) -> None:
        parts[name] = parts[name] + seconds if name in parts else seconds

    for count, each in zip([*stage.counts, stage.embeds, stage.heads], found, strict=True):
        if not count:
            continue
        for name, one in each.all():
            times = count * recomputed if name == "recompute" else count
            add(f"pass {name}", times * one.total)
            add("slot", times * one.total)
            if name == "recompute":
                add("recompute", times * one.total)
                continue
            for part, seconds in one.parts.items():
                add(part, count * seconds)
        if each.copying is not None:
            add("host link", count * each.copying)
    return parts


def _slowest(slots: Sequence[dict[str, Number]]) -> tuple[int, dict[str, Number]]:
    """Return the slowest stage and its parts, element by element; the index is valid for scalars only."""
    best, at = slots[0], 0
    for index, other in enumerate(slots[1:], 1):
        slower = other["slot"] > best["slot"]
        if np.ndim(slower) == 0:
            if slower:
                best, at = other, index
            continue
        best = {name: where(slower, other.get(name, 0.0), best.get(name, 0.0)) for name in {**best, **other}}
    return at, best


def _scheduled(
    parts: dict[str, Number], others: Number, micro: Number, layout: Layout, back: Callable[[Number], Number]
) -> Number:
    """Return the time of all micro-batches under the schedule [s]."""
    pp = float(layout.pp)
    if layout.schedule in {"zb-h1", "dualpipe"}:
        law = pipeline.zero_bubble_time if layout.schedule == "zb-h1" else pipeline.dual_pipe_time
        inputs = parts["pass inputs"] + parts["pass recompute"]
        return law(pp, micro, back(parts["pass forward"]), back(inputs), back(parts["pass weights"]))
    return pipeline.flushed_time(micro, float(layout.interleave), back(parts["slot"]), back(others))


def _hops(tokens: Number, micro: Number, model: Model, layout: Layout, a: Ability) -> Number:
    """Return the time of pipeline hops, forward and backward, once per micro-batch and chunk that waits for it [s].

    Each tensor rank sends its share. Without sequence parallelism, the receiving ranks all-gather it.
    """
    if layout.pp == 1:
        return 0.0
    message = tokens * model.hidden * ACTIVATION_BYTES
    one = slowest_hop(message / layout.tp, layout.tp * layout.cp * layout.dp, a.network)
    if not layout.sequence_parallel:
        one = one + gather(message, Ranks(layout.tp, a.network))
    ends = layout.pp - 1
    waited = where(hidden_hops(layout, a), ends, micro * layout.interleave + ends)
    return one * (2.0 * waited)


def hidden_hops(layout: Layout, a: Ability) -> Number:
    """Return whether hops overlap the next chunk's compute, as frameworks may do with an interleaved pipeline."""
    return layout.interleave > 1 if "pipeline" in a.framework.overlaps else False


GRADIENT_NORM = 12.0
"""Bytes that clipping moves per gradient: one read for the norm, one read and one write to scale it, fp32 [B]."""


def _update(
    model: Model,
    job: Job,
    layout: Layout,
    a: Ability,
    held: Sequence[Stage],
    slot: Number,
    micro: Number,
    small: Layout,
    back: Callable[[Number], Number],
) -> tuple[Number, Number]:
    """Return the exposed time of data-parallel communication and the optimizer time, on the slowest stage [s]."""
    kinds = [layer for layer, _ in model.decoder.kinds()]
    shares = [(stage, Share(*map(back, rank_parameters(stage, kinds, model, small)))) for stage in held]
    if job.adapter is not None:
        message, work = _frozen(shares, job, layout, a), 0.0 * layout.dp
    else:
        message, work = _reduced(shares, model, job, layout, a)
    if "data" in a.framework.overlaps:
        # reductions overlap the last backward pass, gathers the first forward pass, those of sharded weights every pass
        message = exposed(message, slot, Ranks(layout.dp * layout.cp, a.network, layout.tp))
    once = layout.zero < ZERO_OF_GRADIENTS or (a.framework.stays_gathered == "pipeline" and layout.pp > 1)
    return message if once else message * micro, work


ZERO_OF_GRADIENTS = 2
"""Lowest ZeRO stage that shards gradients, which are then reduced in every micro-batch."""


def _frozen(shares: Sequence[tuple[Stage, Share]], job: Job, layout: Layout, a: Ability) -> Number:
    """Return the time to all-gather sharded frozen weights for both passes; frozen weights have no gradients [s]."""
    if layout.zero < 3 or job.adapter is None:
        return 0.0 * layout.dp
    ranks, _ = alike(layout)
    each = element_bytes(job.adapter.stored)
    most: Number = 0.0
    for _, share in shares:
        most = larger(most, (share.matrices + share.experts) * each + share.others * ACTIVATION_BYTES)
    group = Ranks(ranks, a.network, layout.tp)
    _, slope = group.rings(reduce=False, data=True)[-1]
    gathered = slope * most
    if layout.offload == "weights":
        gathered = gathered + most / ranks / copy_rate(a)
    layers = max(sum(stage.counts) for stage, _ in shares)
    return 2.0 * gathered + _layer_by_layer(layers, group, a, gradients=False)


def _reduced(
    shares: Sequence[tuple[Stage, Share]], model: Model, job: Job, layout: Layout, a: Ability
) -> tuple[Number, Number]:
    """Return the time of gradient reduction and weight gathering, and of the optimizer, on the slowest stage [s]."""
    dense, thin = alike(layout)
    layers = max(sum(stage.counts) for stage, _ in shares)
    start, each = _data_line(Ranks(dense, a.network, layout.tp), job, layout, a, layers)
    mixed = not all(type(share.experts) is float and share.experts == 0.0 for _, share in shares)
    apart, routed = _data_line(Ranks(thin, a.network, layout.ep), job, layout, a, layers) if mixed else (0.0, 0.0)
    if not mixed and not (model.tied and layout.pp > 1):
        shares = [_heaviest(shares)]  # everything else is proportional to the parameters
    passes = 2.0 * job.optimizer.bytes + job.gradient + ACTIVATION_BYTES + GRADIENT_NORM
    update = passes / (dense if layout.zero else 1.0)
    thinly = passes / (thin if layout.zero and mixed else 1.0)
    sent: Number = 0.0
    work: Number = 0.0
    owned: Number = 0.0
    for stage, share in shares:
        one = share.dense * each + share.experts * routed
        if model.tied and layout.pp > 1 and (stage.embeds or stage.heads):
            table = model.vocabulary * model.hidden / layout.tp * job.gradient
            one = one + all_reduce(table, Ranks(2.0, a.network, (layout.pp - 1) * layout.tp * layout.cp * layout.dp))
        moved = share.dense * update + share.experts * thinly + share.all * a.framework.keeps("gradient_passes")
        sent, work = larger(sent, one), larger(work, moved)
        if layout.offload == "optimizer":
            mine = share.dense / dense + share.experts / (thin if mixed else 1.0) if layout.zero else share.all
            owned = larger(owned, mine)
    work = _on_host(owned, job, a) if layout.offload == "optimizer" else work / a.update
    return sent + (start + apart), work


def _heaviest(shares: Sequence[tuple[Stage, Share]]) -> tuple[Stage, Share]:
    """Return the largest dense parameters of any stage, element by element, as one share."""
    most: Number = 0.0
    for _, share in shares:
        most = larger(most, share.dense)
    return shares[0][0], Share(most, 0.0, 0.0)


def _on_host(owned: Number, job: Job, a: Ability) -> Number:
    """Return the time of an optimizer step in host memory [s].

    Gradients are copied to the host, states are updated, and weights are copied back (ZeRO-Offload, arXiv 2101.06840).
    """
    sent = owned * (job.gradient + ACTIVATION_BYTES) / copy_rate(a)
    return sent + owned * 2.0 * job.optimizer.bytes * a.machine.per_host / catalogue.host_update().value


def _layer_by_layer(layers: float, group: Ranks, a: Ability, *, gradients: bool) -> Number:
    """Return the start-up times of gathering a stage's sharded weights twice and reducing its gradients once [s].

    Weights are gathered per layer, or per tensor if the framework does so; gradients are reduced per layer.
    """
    return layers * (2.0 * a.framework.gathered_apart + float(gradients)) * message_start(group)


def _data_line(group: Ranks, job: Job, layout: Layout, a: Ability, layers: float) -> tuple[Number, Number]:
    """Return the start-up time of gradient reduction and weight gathering [s], and their time per parameter [s].

    Sharded weights are gathered twice, per layer, or per tensor if the framework does so.
    """
    if layout.zero == 0:
        start, slope = group.rings(reduce=True, data=True)[-1]
        return start, slope * job.gradient
    start, slope = group.rings(reduce=False, data=True)[-1]
    gathers = 2.0 if layout.zero >= 3 else 1.0
    slope = slope * (job.gradient + gathers * ACTIVATION_BYTES)
    start = start * (1.0 + gathers) if layout.zero < 3 else _layer_by_layer(layers, group, a, gradients=True)
    if not isinstance(layout.shard, np.ndarray) and not layout.shard:
        return start, slope
    # equal shards are reduced over their replicas, which are far apart
    far = Ranks(layout.dp * layout.cp / group.ranks, a.network, group.stride * group.ranks)
    wait, each = far.rings(reduce=True, data=True)[-1]
    return start + wait, slope + each * job.gradient / group.ranks
