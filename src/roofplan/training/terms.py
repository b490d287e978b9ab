"""Time of one layout's step as a tree of Terms: parts, operations, formulas with their numbers, and sources."""

from __future__ import annotations

from roofplan import catalogue
from roofplan.laws import reliability
from roofplan.operations.table import Operation
from roofplan.records.source import Source, document
from roofplan.records.terms import Numbers, Term, total
from roofplan.records.training import Job, Layout
from roofplan.timing.kernels import roofline_numbers
from roofplan.timing.messages import message_term
from roofplan.timing.network import MESSAGES
from roofplan.training.ability import Ability, shares_of
from roofplan.training.step import (
    PART_OF,
    PLAIN,
    RANKS,
    Step,
    copy_rate,
    hidden_hops,
    overlap_slowdown,
    part_of,
    sender,
)


def step_term(found: Step, job: Job, layout: Layout, a: Ability) -> Term:
    """Return the step time of a layout as a Term [s]."""
    leaves: dict[str, list[Term]] = {name: [] for name in (*PART_OF.values(), *RANKS, "recompute")}
    slowdowns: dict[str, float] = {}
    micro = float(found.micro_batches)
    counts = [*found.worst.counts, found.worst.embeds, found.worst.heads]
    for count, each in zip(counts, found.passes, strict=True):
        if not count:
            continue
        for name, one in each.all():
            for op, seconds in one.rows:
                part = "recompute" if name == "recompute" else part_of(op)
                each_way = 0.5 if layout.schedule == "dualpipe" else 1.0
                times = each_way * count * (float(layout.recomputed) if name == "recompute" else 1.0)
                leaves[part].append(_leaf(op, seconds, times, micro, layout, a))
                if op.kind in MESSAGES:
                    slowdowns[part] = float(overlap_slowdown(sender(op, layout, a)))
    parts = []
    for name, value in found.parts.items():
        if float(value) == 0.0:
            continue
        below = leaves.get(name, [])
        if below:
            parts.append(_part(name, float(value), below, slowdowns.get(name), a))
        else:
            parts.append(_other(name, float(value), found, job, layout, a))
    return total("step", parts, "s")


def _part(name: str, value: float, below: list[Term], slowdown: float | None, a: Ability) -> Term:
    """Return a part as the sum of its operations; overlapped communication and launch overhead are separate leaves."""
    rest = value - sum(float(term.value) for term in below)
    if abs(rest) > 1e-9 * value:
        if name not in MAY_DIFFER:
            raise AssertionError(f"{name}: operations sum to {value - rest}, not {value}")
        if rest < 0 and slowdown is not None:
            text, numbers = "sent beside products, which it slows by {slowdown}", {"slowdown": slowdown}
            hidden = Term(
                "hidden", rest, "s", law="collectives.exposed_time", text=text, numbers=numbers, sources=OVERLAP
            )
            below = [*below, hidden]
        else:
            text = "the host issues kernels more slowly than they run"
            below = [*below, Term("launches", rest, "s", law="step.exposed", text=text, sources=a.sources["launch"])]
    return Term(name, value, "s", parts=below, combine="sum")


OVERLAP = (document("calculon, systems/a100_80g.json, processor_usage"),)
"""Source of the slowdown of products by messages beside them."""

MAY_DIFFER = ("tensor ranks", "expert ranks", "context ranks", "recompute")
"""Parts whose messages may overlap compute, or whose kernels may wait for the host."""


def _leaf(op: Operation, seconds: float, count: float, micro: float, layout: Layout, a: Ability) -> Term:
    times = count * micro
    kind = op.kind
    if kind in MESSAGES:
        repeats = {"layers": count, "micro_batches": micro}
        often = "{layers} layers x {micro_batches} micro-batches"
        return message_term(op, seconds, sender(op, layout, a), often, repeats)
    plain = op._replace(kind=PLAIN.get(kind, kind))
    text = (
        "{layers} layers x {micro_batches} micro-batches x (max(move {moved} at {memory_rate}, compute {work} at {compute_rate})"
        " + {kernels} kernels x {ramp}); " + (op.text or "{traffic} B")
    )
    numbers = {
        "layers": count,
        "micro_batches": micro,
        **roofline_numbers(plain, a.rates),
        "kernels": op.kernels,
        "ramp": (a.ramp, "s"),
        **op.numbers,
    }
    moved = a.rates.sources.get("memory" if plain.kind == "memory" else "bandwidth", ())
    computed = (
        a.rates.sources["vector_peak"] if plain.kind == "memory" else a.rates.sources.get(f"compute.{op.compute}", ())
    )
    fitted = {"memory": ("memory",), "prefill_attention": ("attention",)}.get(plain.kind, shares_of(op.compute))
    grouped = a.sources["experts"] if plain.kind == "experts" else ()
    sources = (*moved, *computed, *(one for name in fitted for one in a.sources[name]), *grouped, *a.sources["ramp"])
    return Term(op.name, seconds * times, "s", law="roofline.kernel_time", text=text, numbers=numbers, sources=sources)


def _other(name: str, value: float, found: Step, job: Job, layout: Layout, a: Ability) -> Term:
    """Return a part of the step that does not consist of a layer's operations."""
    micro = float(found.micro_batches)
    if name == "bubble":
        law = {"zb-h1": "pipeline.zero_bubble_time", "dualpipe": "pipeline.dual_pipe_time"}.get(
            layout.schedule, "pipeline.flushed_time"
        )
        text = "other stages' {others} a micro-batch / {chunks} chunks"
        numbers: Numbers = {"others": (value * layout.interleave, "s"), "chunks": layout.interleave}
        return Term(name, value, "s", law=law, text=text, numbers=numbers)
    if name == "pipeline hops":
        text = "2 x ({micro_batches} micro-batches x {chunks} chunks + {stages} stages - 1) hops"
        if hidden_hops(layout, a):
            text = "2 x ({stages} stages - 1) hops; those between chunks run beside compute"
        return Term(
            name,
            value,
            "s",
            law="collectives.transfer_time",
            text=text,
            numbers={"micro_batches": micro, "chunks": layout.interleave, "stages": layout.pp},
            sources=a.network.sources,
        )
    if name in {"swap", "data ranks"}:
        return _moved(name, value, found, job, layout, a)
    if name == "optimizer":
        text = "{moved} moved at {rate}: states of {states} B a parameter, ZeRO {zero}, read and written, and passes over its gradients"
        if layout.offload == "optimizer":
            text = "states of {states} B a parameter, ZeRO {zero}, updated in host memory"
        moved = {"moved": (value * a.update, "B"), "rate": (a.update, "B/s")}
        numbers = {**moved, "states": job.optimizer.bytes, "zero": layout.zero}
        return Term(
            name,
            value,
            "s",
            law="roofline.overlapped_time",
            text=text,
            numbers=numbers,
            sources=(
                document(job.optimizer.source),
                *(a.sources["update"] if layout.offload != "optimizer" else _copied(a)),
            ),
        )
    if name == "stragglers":
        text = "slowest of {hosts} hosts: {sigma} x sqrt(2 ln N) = {slowest} over the mean"
        slowest = reliability.slowest_of(a.sigma, float(a.machine.hosts))
        numbers = {"hosts": a.machine.hosts, "sigma": a.sigma, "slowest": slowest}
        return Term(
            name, value, "s", law="reliability.slowest_of", text=text, numbers=numbers, sources=a.sources["sigma"]
        )
    return Term(
        name,
        value,
        "s",
        law="given",
        text="{value} a step",
        numbers={"value": (value, "s")},
        sources=a.sources.get(name, a.sources["launch"]),
    )


def _moved(name: str, value: float, found: Step, job: Job, layout: Layout, a: Ability) -> Term:
    """Return a part that overlaps compute: activation offload, or data-parallel communication."""
    micro, slot = float(found.micro_batches), float(found.slot)
    if name == "swap":
        layers = zip(found.worst.counts, found.passes, strict=False)
        kept = sum(count * float(each.swapped) for count, each in layers if each.swapped is not None)
        text = "{micro_batches} micro-batches x {kept} to host memory at {rate} and back, beside the passes of its layer; what they do not hide"
        moved = {"micro_batches": micro, "kept": (kept, "B"), "rate": (copy_rate(a), "B/s")}
        return Term(name, value, "s", law="collectives.exposed_time", text=text, numbers=moved, sources=_copied(a)[1:])
    ranks, window = float(layout.dp * layout.cp), "beside" if "data" in a.framework.overlaps else "after"
    text = (
        f"gradients at {{gradient}} B reduced over {{ranks}} ranks, ZeRO {{zero}}, {window} a micro-batch of {{slot}}"
    )
    numbers = {"gradient": job.gradient, "ranks": ranks, "zero": layout.zero, "slot": (slot, "s")}
    return Term(name, value, "s", law="collectives.gather_time", text=text, numbers=numbers, sources=a.network.sources)


def _copied(a: Ability) -> tuple[Source, ...]:
    """Return the sources of offload times: the host's update rate, then host links and their sharing."""
    link, box = a.machine.host_link, a.machine.server
    stated = [] if link is None else [link.quantities[name] for name in ("bandwidth", "copy_efficiency")]
    if box is not None and "devices_per_uplink" in box.quantities:
        stated.append(box.quantities["devices_per_uplink"])
    keys = (catalogue.host_update().source, *(item.source for item in stated))
    return tuple(document(key) for key in dict.fromkeys(keys))
