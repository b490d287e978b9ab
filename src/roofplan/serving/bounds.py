"""The binding limit of a time, and lower bounds on times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from roofplan.laws import batching, larger, memory, roofline
from roofplan.operations import whole_model
from roofplan.operations.table import ROUTED_EXPERTS, Operation, Split, Step, element_bytes
from roofplan.records.engine import Engine
from roofplan.records.hardware import BANDWIDTH, CPU
from roofplan.records.model import Model
from roofplan.records.strategy import Strategy
from roofplan.records.terms import Term
from roofplan.records.workload import Workload
from roofplan.timing.figures import Limit, Metric, within
from roofplan.timing.kernels import ROOFLINE
from roofplan.timing.rates import Rates


@dataclass(frozen=True, slots=True)
class Floors:
    """Lower bounds on a strategy's times: data-sheet rates, each byte read and each FLOP done once.

    Parameters
    ----------
    token : time to read the weights of a step, per emitted token [s].
    first : time to compute a prompt at the dense peak [s].
    work : FLOP of that prompt on all devices [FLOP].
    whole : time to compute it on one device at the dense peak [s].
    ranks : devices that work on it at the same time, in dense parts and in routed experts [1].
    by_data_sheet : whether the memory rate is a data sheet's; what a probe read is no limit.
    """

    token: float
    first: float
    work: float
    whole: float
    ranks: tuple[int, int]
    by_data_sheet: bool


def floors(model: Model, strategy: Strategy, workload: Workload, r: Rates, users: int) -> Floors:
    """Return lower bounds on a strategy's times, from data sheets alone.

    Dense parts are divided by tp, routed experts by the larger of tp and ep. Pipeline stages run one after the other,
    unless the engine's stages work on chunks of one prompt in parallel.

    Parameters
    ----------
    model : its layers and dimensions.
    strategy : degrees of parallelism.
    workload : lengths, prefix hit rate and drafted tokens.
    r : peaks of the machine, and its engine.
    users : users at once on the whole machine [1].

    Returns
    -------
    Lower bounds on the time per token and the time to the first token [s], and the work of one prompt [FLOP].
    """
    s = strategy
    tensor, spread = float(s.tp), float(larger(1.0 * s.tp, 1.0 * s.ep))
    waves = float(s.pp) if isinstance(r.engine, Engine) and r.engine.pipeline_kind == "microbatch" else 1.0
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

    engine = r.engine
    beside = isinstance(engine, Engine) and engine.pipeline_kind == "layer-split" and "pipeline_copies" in engine.memory
    stages = float(s.pp) if beside else 1.0
    products = [op for op in prompt if op.kind in {"matmul", "experts", "prefill_attention"}]
    if r.machine.device.device_class == CPU:  # multiplies in formats for which its data sheet has no rate
        peak = dict.fromkeys(peak, math.inf)
    read = sum(op.entries * element_bytes(op.stored) / share(op) for op in decode)
    return Floors(
        token=float(roofline.beyond_cache(read, r.cache)) / float(r.wire) / emitted,
        first=sum(op.work / float(peak[op.compute]) / share(op) for op in products) / stages,
        work=sum(op.work for op in products),
        whole=sum(op.work / float(peak[op.compute]) for op in products),
        ranks=(int(tensor * stages), int(spread * stages)),
        by_data_sheet=BANDWIDTH not in r.machine.device.attained,
    )


def bounded(
    found: Mapping[str, Metric], least: Floors, *, users: float, first: float, devices: int = 1
) -> dict[str, Metric]:
    """Return serving figures with their intervals clipped at what data sheets allow.

    Parameters
    ----------
    found : figures by metric; those without a bound are returned as they are.
    least : lower bounds of one user, which more users do not undercut.
    users : users whose tokens are counted together, infinite where not known [1].
    first : arithmetic before a first token at the dense peak, zero where a cache may know the prompt [s].
    devices : devices of the whole machine [1].

    Returns
    -------
    Figures by metric.
    """
    token = least.token if least.by_data_sheet else 0.0
    most = 1.0 / token if token else math.inf
    limits = {
        "tpot": (token, math.inf),
        "tokens_per_second_per_user": (0.0, most),
        "ttft": (max(token, first), math.inf),
        "output_tokens_per_second": (0.0, users * most),
        "output_tokens_per_second_per_device": (0.0, users * most / devices),
    }
    return {name: within(one, *limits[name]) if name in limits else one for name, one in found.items()}


OTHER_PROMPTS = {"prompts of others", "prompts beside it", "prompts before it"}
"""Parts of a time that are due to other users' prompts."""


def bound_of(term: Term) -> tuple[Limit, float]:
    """Return the limit with the largest share of a time, and that share.

    Other users' prompts are a limit of their own, whichever resource they use. Matmuls count by the binding side of the
    roofline.
    """
    amounts: dict[Limit, float] = {}
    whole = float(np.max(term.value))
    for part in term.parts:
        for leaf, value in [(part, float(part.value))] if part.name in OTHER_PROMPTS else leaves(part):
            name: Limit = "prompts" if leaf.name in OTHER_PROMPTS else limit_of(leaf)
            amounts[name] = amounts.get(name, 0.0) + value
    most = max(amounts, key=lambda key: amounts[key])
    return most, amounts[most] / whole if whole else 0.0


CAUSES = {
    "weight matmuls": "weights",
    ROUTED_EXPERTS: "weights",
    "attention": "KV cache",
    "memory passes": "other passes",
    "engine step": "engine",
} | dict.fromkeys(OTHER_PROMPTS, "other users' prompts")
"""Part of the time between tokens -> cause, if the part is memory-bound; other parts keep their names."""


def causes_of(term: Term) -> dict[str, float]:
    """Return the causes of a time with their shares.

    Parameters
    ----------
    term : a time between tokens, or to the first.

    Returns
    -------
    Cause -> share of the whole, the largest first [1]. Compute-bound matmuls and attention are ``compute``.
    """
    whole = float(np.max(term.value))
    found: dict[str, float] = {}
    for part in term.parts:
        cause = CAUSES.get(part.name, part.name)
        pieces = leaves(part) if cause in {"weights", "KV cache"} else [(part, float(part.value))]
        for leaf, value in pieces:
            name = "compute" if leaf is not part and limit_of(leaf) == "compute" else cause
            found[name] = found.get(name, 0.0) + value / whole
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def leaves(term: Term, scale: float = 1.0) -> list[tuple[Term, float]]:
    """Return the leaves of a time, each with its contribution.

    A product scales its leaves; of a difference, only the excess counts.

    Parameters
    ----------
    term : a time with its parts.
    scale : factor on every contribution [1].

    Returns
    -------
    Leaves and their contributions, which add up to the scaled time [s].
    """
    if not term.parts:
        return [(term, float(term.value) * scale)]
    inside = _excess(*term.parts) if term.combine == "difference" else [x for part in term.parts for x in leaves(part)]
    inner = sum(value for _, value in inside)
    if not inner:
        return []
    factor = scale * float(term.value) / inner
    return [(leaf, value * factor) for leaf, value in inside]


def _excess(more: Term, less: Term) -> list[tuple[Term, float]]:
    """Return each leaf's time in excess of the leaf of the same name in the other step, at least 0 [s]."""
    spent: dict[str, float] = {}
    for leaf, value in leaves(less):
        spent[leaf.name] = spent.get(leaf.name, 0.0) + value
    found = []
    for leaf, value in leaves(more):
        known = min(value, spent.get(leaf.name, 0.0))
        spent[leaf.name] = spent.get(leaf.name, 0.0) - known
        found.append((leaf, value - known))
    return found


def limit_of(leaf: Term) -> Limit:
    """Return the limit that binds a leaf of a time.

    Parameters
    ----------
    leaf : a time without parts.

    Returns
    -------
    compute, memory_bandwidth, communication, launch or engine.
    """
    if leaf.law == "roofline.overlapped_time":
        moved, memory_rate, work, rate = (leaf.numbers[name][0] for name in ROOFLINE)
        return "compute" if work / rate > moved / memory_rate else "memory_bandwidth"
    if leaf.law == "roofline.serial_time":
        moved, memory_rate, work, rate = (leaf.numbers[name][0] for name in ROOFLINE)
        work = work / 2.0 * leaf.numbers["each"] + leaf.numbers["entries"] * leaf.numbers["unpacking"]
        return "compute" if work / rate > moved / memory_rate else "memory_bandwidth"
    if leaf.law == "roofline.row_by_row_time":
        moved, memory_rate, work, rate = (leaf.numbers[name][0] for name in ROOFLINE)
        rows = leaf.numbers["rows"]
        computing = (
            max(1.0, rows - 1.0) * work / rows / rate
        )  # what the first row's reads do not hide, or hide themselves
        return "compute" if computing > moved / memory_rate else "memory_bandwidth"
    if leaf.law.startswith(("collectives", "pipeline")):
        return "communication"
    return "launch" if leaf.name == "launches" else "engine"


LIMIT_NAMES = {
    "compute": "compute",
    "memory_bandwidth": "memory bandwidth",
    "communication": "communication",
    "launch": "kernel launches",
    "engine": "engine overhead",
    "prompts": "other users' prompts",
    "host_link": "host memory and its link",
    "stragglers": "slow hosts",
}
