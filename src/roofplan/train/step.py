"""The time of one training step, stage by stage, as numbers over a grid or as Terms of one layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from roofplan.laws import Number, larger, pipeline, where
from roofplan.operations import Operation
from roofplan.operations.training import backward, embedding_pass, forward, head_pass
from roofplan.records.hardware import Machine
from roofplan.records.model import Layer, Model
from roofplan.records.training import Framework, Job, Layout
from roofplan.timing import Rates, constant, fit_key, operation_time, rates
from roofplan.train import communication
from roofplan.train.communication import Wires, wires
from roofplan.train.stages import Stage, rank_parameters, stages

MESSAGES = ("tensor_reduce", "tensor_gather", "context_exchange", "expert_exchange")

GROUP_OF = {
    "matmul": "products",
    "experts": "products",
    "prefill_attention": "attention",
    "scores": "attention",
    "memory": "memory passes",
    "tensor_reduce": "tensor ranks",
    "tensor_gather": "tensor ranks",
    "context_exchange": "context ranks",
    "expert_exchange": "expert ranks",
}
"""Part of a step that an operation's time is shown under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """What a machine attains in training under a framework.

    Parameters
    ----------
    launch : host time to issue a kernel; the device waits where it is the longer [s].
    host : host time of a step beside its kernels [s].
    """

    rates: Rates
    wires: Wires
    framework: Framework
    launch: float
    host: float
    slowdown: float
    sources: tuple[str, ...]

    @property
    def machine(self) -> Machine:
        """The machine."""
        return self.rates.machine


def ability(machine: Machine, framework: Framework) -> Ability:
    """Return what a machine attains under a framework."""
    chain = [framework.id, framework.name, "any"]
    found = {name: constant("training", name, chain)[0] for name in ("launch", "host", "straggler")}
    return Ability(
        rates=rates(machine, framework),
        wires=wires(machine, framework),
        framework=framework,
        launch=found["launch"].value,
        host=found["host"].value,
        slowdown=found["straggler"].value,
        sources=tuple(fit_key(item) for item in found.values()),
    )


class Times:
    """Seconds of a pass by part of the step."""

    __slots__ = ("kernels", "parts")

    def __init__(self) -> None:
        self.parts: dict[str, Number] = {}
        self.kernels = 0.0

    def add(self, part: str, seconds: Number) -> None:
        """Add seconds to a part."""
        self.parts[part] = self.parts[part] + seconds if part in self.parts else seconds

    @property
    def total(self) -> Number:
        """Seconds of the pass [s]."""
        amount: Number = 0.0
        for seconds in self.parts.values():
            amount = amount + seconds
        return amount


def _stride(kind: str, layout: Layout) -> Number:
    return 1.0 if kind.startswith("tensor") else layout.tp if kind == "context_exchange" else 1.0


def timed(table: Sequence[Operation], layout: Layout, a: Ability) -> Times:
    """Return the seconds of a pass: kernels, messages, and the wait for the host where it issues kernels more slowly."""
    times = Times()
    device: Number = 0.0
    for op in table:
        if op.kind in MESSAGES:
            seconds = communication.time_of(op.kind, op.traffic, op.ranks, _stride(op.kind, layout), a.wires)
        else:
            kind = "memory" if op.kind == "scores" else op.kind
            seconds = operation_time(op._replace(kind=kind), a.rates)
            times.kernels += op.kernels
            device = device + seconds
        times.add(GROUP_OF[op.kind], seconds)
    times.add("launches", larger(times.kernels * a.launch - device, 0.0 * device))
    return times


@dataclass(slots=True, kw_only=True)
class Passes:
    """Forward and backward times of a micro-batch through one layer of each kind, the embedding and the head."""

    forward: list[Times]
    backward: list[Times]


def passes(model: Model, job: Job, layout: Layout, a: Ability) -> Passes:
    """Return the times of every kind of layer, then of the embedding and the head."""
    tokens = layout.micro_batch * job.sequence / layout.cp
    tables = [forward(layer, tokens, job, layout, model, a.framework) for layer, _ in model.decoder.kinds()]
    tables += [embedding_pass(tokens, layout, model), head_pass(tokens, layout, model, a.framework)]
    return Passes(
        forward=[timed(table, layout, a) for table in tables],
        backward=[timed(backward(table, job), layout, a) for table in tables],
    )


@dataclass(slots=True, kw_only=True)
class Step:
    """The time of one step and what it is made of [s]; numbers or arrays.

    Parameters
    ----------
    parts : seconds by part: products, attention, memory passes, launches, messages, recompute, bubble, data ranks, optimizer.
    micro_batches : micro-batches of a pipeline [1].
    """

    time: Number
    parts: dict[str, Number]
    micro_batches: Number
    slot: Number


def step(model: Model, job: Job, layout: Layout, a: Ability) -> Step:
    """Return the time of one step of a layout whose micro-batches divide the batch."""
    p = passes(model, job, layout, a)
    micro = job.batch / (layout.dp * layout.micro_batch)
    held = stages(model, int(layout.pp))
    slots = [_slot(stage, p, layout, a) for stage in held]
    worst, parts = _worst(slots)
    work = {name: seconds * micro for name, seconds in parts.items()}
    idle = pipeline.flushed_time(float(layout.pp), micro, layout.interleave, worst) - micro * worst
    tokens = layout.micro_batch * job.sequence / layout.cp
    work["bubble"] = idle
    work["pipeline hops"] = _hops(tokens, micro, model, layout, a)
    work["data ranks"], work["optimizer"] = _update(model, job, layout, a, held, worst, micro)
    work["host"] = a.host
    total: Number = 0.0
    for seconds in work.values():
        total = total + seconds
    return Step(time=total, parts=work, micro_batches=micro, slot=worst)


def _slot(stage: Stage, p: Passes, layout: Layout, a: Ability) -> tuple[Number, dict[str, Number]]:
    """Return the time of a micro-batch on a stage, forward and backward, by part."""
    parts: dict[str, Number] = {}

    def add(name: str, seconds: Number) -> None:
        parts[name] = parts[name] + seconds if name in parts else seconds

    counts = [*stage.counts, stage.embeds, stage.heads]
    for index, count in enumerate(counts):
        if not count:
            continue
        for times in (p.forward[index], p.backward[index]):
            for name, seconds in times.parts.items():
                add(name, count * seconds)
        if index < len(stage.counts):
            add("recompute", count * _recompute(p.forward[index], layout, a.framework))
    total: Number = 0.0
    for seconds in parts.values():
        total = total + seconds
    return total, parts


def _recompute(times: Times, layout: Layout, framework: Framework) -> Number:
    """Return the seconds of what is computed again before a layer's backward pass."""
    if layout.recompute == "full":
        return times.total
    if layout.recompute == "none":
        return 0.0
    again: Number = 0.0
    if "core_attn" in framework.selective and framework.attention == "eager":
        again = again + times.parts.get("attention", 0.0)
    if "layernorm" in framework.selective or "mlp_act" in framework.selective:
        again = again + times.parts.get("memory passes", 0.0)
    if "matmul" in framework.selective:
        again = again + 0.5 * times.parts.get("products", 0.0)
    return again


def _worst(slots: Sequence[tuple[Number, dict[str, Number]]]) -> tuple[Number, dict[str, Number]]:
    """Return the slowest stage's time and its parts, element by element."""
    best, parts = slots[0]
    for total, other in slots[1:]:
        slower = total > best
        names = dict.fromkeys((*parts, *other))
        parts = {name: where(slower, other.get(name, 0.0), parts.get(name, 0.0)) for name in names}
        best = where(slower, total, best)
    return best, parts


def _hops(tokens: Number, micro: Number, model: Model, layout: Layout, a: Ability) -> Number:
    """Return the seconds of sending the stream from stage to stage and its gradient back, twice a micro-batch and chunk."""
    if int(layout.pp) == 1 or "pipeline" in a.framework.overlaps:
        return 0.0
    message = tokens * model.hidden * 2.0 / (layout.tp if layout.sequence_parallel else 1.0)
    one = communication.hop(message, layout.tp * layout.cp * layout.dp, a.wires)
    return 2.0 * one * (micro * layout.interleave + (layout.pp - 1))


GRADIENT_NORM = 12.0
"""Bytes that clipping reads and writes of each gradient: one pass for the norm, one to scale, fp32 [B]."""


def _update(
    model: Model, job: Job, layout: Layout, a: Ability, held: Sequence[Stage], slot: Number, micro: Number
) -> tuple[Number, Number]:
    """Return the exposed seconds of reducing and gathering over data ranks, and those of the optimizer, of the slowest stage."""
    worst_message: Number = 0.0
    worst_work: Number = 0.0
    spread = layout.dp * layout.cp
    kinds = [layer for layer, _ in model.decoder.kinds()]
    for stage in held:
        dense, experts = rank_parameters(stage, kinds, model, layout)
        message = _data_time(dense, spread, layout.tp, job, layout, a, micro)
        thin = layout.tp * spread / layout.ep
        message = message + _data_time(experts, thin, layout.ep, job, layout, a, micro)
        owned = dense / (spread if layout.zero else 1.0) + experts / (thin if layout.zero else 1.0)
        moved = owned * (2.0 * job.optimizer.bytes + job.gradient + 2.0) + (dense + experts) * GRADIENT_NORM
        worst_message = larger(worst_message, message)
        worst_work = larger(worst_work, moved / a.rates.bandwidth["memory"])
    if "data" in a.framework.overlaps:
        # the reduction runs beside the last micro-batch's backward pass, the gather beside the first forward pass
        window = slot * (micro if layout.zero >= 3 else 1.0) * layout_share(layout)
        worst_message = larger(worst_message - window, 0.1 * worst_message)
    return worst_message, worst_work


def layout_share(layout: Layout) -> Number:
    """Return the share of a micro-batch's time that data messages may hide under: all of it."""
    return 1.0 + 0.0 * layout.dp


def _data_time(
    parameters: Number, ranks: Number, stride: Number, job: Job, layout: Layout, a: Ability, micro: Number
) -> Number:
    reduced, stored = parameters * job.gradient, parameters * 2.0
    if layout.zero == 0:
        return communication.all_reduce(reduced, ranks, stride, a.wires)
    scatter = communication.gather(reduced, ranks, stride, a.wires)
    gathered = communication.gather(stored, ranks, stride, a.wires)
    if layout.zero < 3:
        return scatter + gathered
    return (scatter + 2.0 * gathered) * micro


def kinds_of(model: Model) -> list[Layer]:
    """Return each distinct layer of the decoder."""
    return [layer for layer, _ in model.decoder.kinds()]


def _unused(value: Any) -> Any:
    return value
