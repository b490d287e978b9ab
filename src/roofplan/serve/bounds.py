"""Which limit takes most of a time, and what no plan can go below."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from roofplan.laws import batching, larger, memory
from roofplan.operations import Operation, Split, Step, element_bytes, whole_model
from roofplan.records.model import Model
from roofplan.records.strategy import Strategy
from roofplan.records.workload import Workload
from roofplan.terms import Term
from roofplan.timing import Rates


@dataclass(frozen=True, slots=True)
class Floors:
    """What no strategy of these degrees goes below: data-sheet rates, every byte and operation once.

    Parameters
    ----------
    token : time to read the weights that a step reads, per token that it emits [s].
    first : time to compute a prompt at the dense peak [s].
    work : operations of that prompt on all devices [FLOP].
    ranks : devices that share them at any time [1].
    """

    token: float
    first: float
    work: float
    ranks: int


def floors(model: Model, strategy: Strategy, workload: Workload, r: Rates, users: int) -> Floors:
    """Return the floors of a strategy at a number of users.

    Dense parts are divided by tp, routed experts by the larger of tp and ep; stages of a pipeline follow one another.
    """
    s = strategy
    tensor, spread = float(s.tp), float(larger(1.0 * s.tp, 1.0 * s.ep))
    waves = float(s.pp) if r.engine.pipeline_kind == "microbatch" else 1.0
    groups = float(s.dp) * float(s.attention_dp)
    here = max(1.0, users / waves / (groups / float(Split.of(s).groups)))
    emitted = (
        float(batching.tokens_per_speculative_step(workload.drafted, workload.acceptance)) if workload.drafted else 1.0
    )
    context = float(memory.mean_resident_tokens(workload.input, workload.output))
    decode = whole_model(model, Step(sequences=here, each=1.0 + workload.drafted, context=context))
    fresh = max(1.0, workload.input * (1.0 - workload.prefix_hit))
    prompt = whole_model(model, Step(new=fresh, past=float(workload.input * workload.prefix_hit), requests=1.0))
    peak = {**{op.compute: r.peak["bf16"] for op in prompt}, **r.peak}

    def share(op: Operation) -> float:
        return spread if op.kind == "experts" else tensor

    products = [op for op in prompt if op.kind in {"matmul", "experts", "prefill_attention"}]
    return Floors(
        token=sum(op.entries * element_bytes(op.stored) / share(op) for op in decode) / float(r.wire) / emitted,
        first=sum(op.work / float(peak[op.compute]) / share(op) for op in products),
        work=sum(op.work for op in products),
        ranks=int(tensor),
    )


def bound_of(term: Term) -> tuple[str, float]:
    """Return the limit that takes most of a time, and its share.

    Products split by which side of the roofline they lie on.
    """
    amounts: dict[str, float] = {}
    whole = float(np.max(term.value))
    for part, value in leaves(term):
        amounts[limit_of(part)] = amounts.get(limit_of(part), 0.0) + value
    name = max(amounts, key=lambda key: amounts[key])
    return name, amounts[name] / whole if whole else 0.0


def leaves(term: Term, scale: float = 1.0) -> list[tuple[Term, float]]:
    """Return the leaves of a time with what each contributes; products pass their factor down, differences their sign."""
    if not term.parts:
        return [(term, float(term.value) * scale)]
    signs = [1.0, *([-1.0 if term.combine == "difference" else 1.0] * (len(term.parts) - 1))]
    inner = sum(sign * float(part.value) for sign, part in zip(signs, term.parts, strict=True))
    factor = scale * float(term.value) / inner if inner else 0.0
    return [leaf for sign, part in zip(signs, term.parts, strict=True) for leaf in leaves(part, sign * factor)]


def limit_of(leaf: Term) -> str:
    """Return which limit a leaf of a time belongs to."""
    if leaf.law == "roofline.overlapped_time":
        traffic, bandwidth, work, rate = (leaf.numbers[i][0] for i in (1, 2, 3, 4))
        return "compute" if work / rate > traffic / bandwidth else "memory_bandwidth"
    if leaf.law == "roofline.serial_time":
        _, (traffic, _), (bandwidth, _), (work, _), entries, unpacking, (rate, _), *_ = leaf.numbers
        return "compute" if (work + entries * unpacking) / rate > traffic / bandwidth else "memory_bandwidth"
    if leaf.law.startswith(("collectives", "pipeline")):
        return "communication"
    return "launch" if leaf.name == "launches" else "engine"


LIMIT_NAMES = {
    "compute": "compute",
    "memory_bandwidth": "memory bandwidth",
    "communication": "communication",
    "launch": "kernel launches",
    "engine": "engine overhead",
}
