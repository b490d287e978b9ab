"""Memory of a strategy on its fullest rank, and the memory that the engine leaves for the KV cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from roofplan.laws import memory
from roofplan.operations import head_format
from roofplan.operations.table import ACTIVATION_BYTES, Split, element_bytes, fraction, kv_heads_of
from roofplan.records.engine import Engine
from roofplan.records.hardware import CPU, Machine
from roofplan.records.model import Group, LatentAttention, Layer, Linear, Mixture, Model, Recurrence
from roofplan.records.source import document
from roofplan.records.strategy import Strategy
from roofplan.records.terms import Term, total
from roofplan.records.workload import Workload
from roofplan.serving.defaults import batched_tokens, default, needed
from roofplan.serving.reserve import reserve


def _group_bytes(groups: tuple[Group, ...], tensor: float, kv_heads: int | None = None) -> float:
    return sum(_linear_bytes(linear, float(fraction(linear, tensor, kv_heads))) for group in groups for linear in group)


def _linear_bytes(linear: Linear, share: float) -> float:
    bias = linear.outputs * linear.copies * linear.bias * ACTIVATION_BYTES
    return (linear.weights * element_bytes(linear.format) + bias) * share


def layer_bytes(layer: Layer, split: Split) -> float:
    """Return the weight bytes of a layer on one rank.

    Parameters
    ----------
    layer : the layer.
    split : how its parts are divided.

    Returns
    -------
    Bytes [B].
    """
    stored = layer.vectors * ACTIVATION_BYTES
    for mixer in layer.mixers:
        stored += _group_bytes(mixer.groups, split.attention, kv_heads_of(mixer)) + mixer.vectors * ACTIVATION_BYTES
    for feed in layer.feed_forwards:
        if isinstance(feed, Mixture):
            one = _group_bytes(feed.expert, split.expert_width)
            held = math.ceil(feed.experts / split.ep) if split.ep > 1 else feed.experts
            router = _linear_bytes(feed.router, 1.0) if feed.router else 0.0
            stored += held * one + _group_bytes(feed.shared, split.tp) + router + feed.vectors * ACTIVATION_BYTES
        else:
            stored += _group_bytes(feed.groups, split.tp) + feed.vectors * ACTIVATION_BYTES
    return stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Memory demand of a strategy on its fullest rank, independent of the device.

    Parameters
    ----------
    weights : weight bytes [B].
    kv_per_token : cache bytes per token of layers without a window [B].
    windowed : (bytes per token, window, whether chunked) of each windowed group of layers.
    state : constant bytes per sequence [B].
    widest : elements of the widest intermediate of a layer on one rank [1].
    stage : index of the fullest pipeline stage.
    last : whether it is the last one, which samples.
    """

    weights: float
    kv_per_token: float
    windowed: tuple[tuple[float, float, bool], ...]
    state: float
    widest: float
    stage: int
    last: bool

    def request(self, tokens: float, admitted: bool = False, budget: float = 0.0) -> float:
        """Return the cache bytes of a request of `tokens`; `admitted` counts windowed layers as admission does [B]."""
        size = self.state + self.kv_per_token * tokens
        for rate, window, _ in self.windowed:
            kept = (
                memory.admitted_window_tokens(tokens, window, budget)
                if admitted
                else memory.resident_tokens(tokens, window)
            )
            size += rate * float(kept)
        return size


def cache_of(layer: Layer, split: Split, kv_bytes: float) -> tuple[float, list[tuple[float, float, bool]], float]:
    """Return a layer's cache on one rank.

    Parameters
    ----------
    layer : the layer.
    split : how its parts are divided.
    kv_bytes : bytes of a cached number [B].

    Returns
    -------
    Bytes per token, windowed groups, and constant bytes per sequence [B].
    """
    slope, windowed, state = 0.0, [], 0.0
    for mixer in layer.mixers:
        if isinstance(mixer, Recurrence):
            state += (
                mixer.state_elements * mixer.state_bytes + mixer.convolution_elements * ACTIVATION_BYTES
            ) / split.attention
        elif isinstance(mixer, LatentAttention):
            entry = mixer.entry(float(split.attention), kv_bytes)
            if mixer.window is not None:
                windowed.append((entry, float(mixer.window), False))
            else:
                slope += entry + mixer.index_entry(kv_bytes)
        elif mixer.cross is not None:
            state += (
                mixer.cache_elements
                * float(memory.heads_per_rank(float(mixer.kv_heads), split.attention))
                / mixer.kv_heads
                * kv_bytes
                * mixer.cross
            )
        else:
            kept = float(memory.heads_per_rank(float(mixer.kv_heads), split.attention)) / mixer.kv_heads
            rate = mixer.cache_elements * kept * kv_bytes
            if mixer.window is not None:
                windowed.append((rate, float(mixer.window), mixer.chunked))
            if mixer.stores_entries and (mixer.selects or mixer.window is None):
                slope += (rate + mixer.index_entry(kv_bytes)) / mixer.compression
    return slope, windowed, state


def footprint(model: Model, strategy: Strategy, kv_bytes: float, *, draft: bool = False) -> Footprint:
    """Return the footprint on one rank of the pipeline stage with the most weights.

    Parameters
    ----------
    model : its layers and dimensions.
    strategy : degrees of parallelism.
    kv_bytes : bytes of one cached number [B].
    draft : whether the layers that draft tokens are loaded.

    Returns
    -------
    Weights, cache and state of one rank [B].
    """
    return max(footprints(model, strategy, kv_bytes, draft=draft), key=lambda foot: foot.weights)


def footprints(model: Model, strategy: Strategy, kv_bytes: float, *, draft: bool = False) -> tuple[Footprint, ...]:
    """Return the footprint on one rank of each distinct pipeline stage.

    Parameters
    ----------
    model : its layers and dimensions.
    strategy : degrees of parallelism.
    kv_bytes : bytes of one cached number [B].
    draft : whether the layers that draft tokens are loaded.

    Returns
    -------
    Weights, cache and state of one rank of each stage; equal stages are listed once, as the last where that is one of them [B].
    """
    split = Split.of(strategy)
    kinds = model.decoder.kinds()
    layers, stages = len(model.decoder.layers), int(strategy.pp)
    per_layer = [layer_bytes(layer, split) for layer, _ in kinds]
    caches = [cache_of(layer, split, kv_bytes) for layer, _ in kinds]
    ends, most = _outside_bytes(model, split, stages, draft=draft), widest(model, split)
    found: dict[tuple[object, ...], Footprint] = {}
    start = 0
    for stage in range(stages):
        held = layers // stages + (1 if stage < layers % stages else 0)
        counts = [sum(start <= place < start + held for place in places) for _, places in kinds]
        start += held
        windowed: dict[tuple[float, bool], float] = {}
        for n, (_, groups, _state) in zip(counts, caches, strict=True):
            for rate, window, chunked in groups:
                windowed[window, chunked] = windowed.get((window, chunked), 0.0) + n * rate
        weights = sum(n * b for n, b in zip(counts, per_layer, strict=True)) + ends[stage]
        weights -= _held_once([layer for layer, _ in kinds], counts, per_layer)
        key, last = (*counts, ends[stage]), stage == stages - 1
        if key in found:
            found[key] = replace(found[key], last=last)
            continue
        found[key] = Footprint(
            weights=weights,
            kv_per_token=sum(n * c[0] for n, c in zip(counts, caches, strict=True)),
            windowed=tuple((rate, window, chunked) for (window, chunked), rate in windowed.items()),
            state=sum(n * c[2] for n, c in zip(counts, caches, strict=True)),
            widest=most,
            stage=stage,
            last=last,
        )
    return tuple(found.values())


def _held_once(kinds: Sequence[Layer], counts: Sequence[int], per_layer: Sequence[float]) -> float:
    """Return the bytes by which the layers of a stage would be counted too much, since those that share a block hold it once [B]."""
    uses: dict[str, int] = {}
    blocks: dict[str, float] = {}
    for layer, count, stored in zip(kinds, counts, per_layer, strict=True):
        for key in layer.shared.split("+") if layer.shared is not None and count else ():
            uses[key] = uses.get(key, 0) + count
            blocks[key] = stored * layer.shared_parameters / layer.parameters
    return sum((uses[key] - 1) * block for key, block in blocks.items())


def _outside_bytes(model: Model, split: Split, stages: int, *, draft: bool) -> list[float]:
    """Return the bytes of embedding, head, towers and draft layers on one rank of each stage [B]."""
    gguf = head_format(model) not in {model.dtype}
    each = element_bytes(model.dtype)
    tables = model.tables * model.table_bytes
    embedding = ((model.embedding - model.tables) * each + tables) / split.attention
    head = model.vocabulary * model.hidden / split.attention * element_bytes(head_format(model))
    towers = sum(stack.parameters for stack in model.stacks if stack is not model.decoder) * each
    other = (model.other + model.decoder.extra) * each
    first = (0.0 if gguf else embedding) + towers + other  # llama.cpp leaves the input embedding in host memory
    last = 0.0 if model.tied and stages == 1 and not gguf else head
    if draft and model.draft_parameters:
        last += model.draft_parameters / split.tp * each
    ends = [0.0] * stages
    ends[0] += first
    ends[-1] += last
    return ends


def widest(model: Model, split: Split) -> float:
    """Return the elements of the widest intermediate of a layer on one rank.

    Parameters
    ----------
    model : its layers.
    split : how they are divided.

    Returns
    -------
    Elements of a token [1].
    """
    most = 0.0
    for layer, _ in model.decoder.kinds():
        for feed in layer.feed_forwards:
            if isinstance(feed, Mixture):
                entry = sum(linear.outputs for linear in feed.expert[0])
                most = max(
                    most,
                    1.5 * entry * feed.chosen / split.expert_width
                    + 2 * feed.chosen * model.hidden / max(1.0, split.ep),
                )
            else:
                most = max(most, 1.5 * sum(linear.outputs for linear in feed.groups[0]) / split.tp)
        for mixer in layer.mixers:
            share = split.attention
            most = max(most, 2.0 * sum(linear.outputs * linear.copies for linear in mixer.groups[0]) / share)
    return most


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The memory of one rank, line by line [B].

    Parameters
    ----------
    capacity : memory that the driver reports.
    left_alone : memory that the engine does not use.
    pool : memory for the KV cache.
    request : cache of one request, as counted at admission.
    longest : longest request that fits alone [token].
    max_concurrency : maximum number of users over all groups of the strategy [1].
    by_memory, by_setting : users allowed by memory and by the engine's sequence limit; the smaller one binds [1].
    budget_tokens : prompt tokens that a rank may compute in a step [token].
    at_start : stated slots for which the engine sets a cache aside when it starts, one where it does so as requests come [1].
    """

    capacity: float
    capacity_source: str
    weights: float
    activations: float
    runtime: float
    graphs: float
    left_alone: float
    pool: float
    request: float
    charged_tokens: float
    longest: float
    max_concurrency: int
    by_memory: float
    by_setting: float
    budget_tokens: float
    footprint: Footprint
    fits: bool
    shortage: float
    at_start: float = 1.0

    def term(self, kv_used: float) -> Term:
        """Return the ledger as a Term whose parts add up to the capacity."""
        parts = [
            Term("weights", self.weights, "B", law="parameters.stored_bytes", sources=(document("config.json"),)),
            Term("kv cache", kv_used, "B", law="memory.kv_cache_bytes", sources=(document("config.json"),)),
            Term(
                "activations", self.activations, "B", law="memory.activation_peak_bytes", sources=(document("engine"),)
            ),
            Term("runtime", self.runtime + self.graphs, "B", law="engine data", sources=(document("engine"),)),
            Term("free cache", max(0.0, self.pool - kv_used), "B"),
            Term("left alone", self.left_alone, "B", law="engine data", sources=(document("engine"),)),
        ]
        return total(
            "memory of a device",
            parts,
            "B",
            text="{capacity} of {source}",
            numbers={"capacity": (self.capacity, "B"), "source": self.capacity_source},
        )


def ledger(
    model: Model,
    strategy: Strategy,
    machine: Machine,
    engine: Engine,
    workload: Workload,
    feet: Sequence[Footprint],
    *,
    seats: int = 0,
) -> Ledger:
    """Return the memory of the rank that admits the fewest users, under the engine's own memory model.

    The engine's limit of running sequences is its default, or `seats` over all groups if that is more.

    Parameters
    ----------
    model : its layers and dimensions.
    strategy : degrees of parallelism.
    machine : devices.
    engine : engine with its defaults and memory model.
    workload : lengths of prompts and answers.
    feet : footprints of the stages, from `footprints`.
    seats : running sequences over all groups, 0 for the engine's own limit [1].

    Returns
    -------
    Memory of that rank [B], and users that it admits.
    """
    books = [_stage_ledger(model, strategy, machine, engine, workload, foot, seats) for foot in feet]
    return min(books, key=lambda book: (book.fits, book.by_memory, -book.weights))


def _stage_ledger(
    model: Model,
    strategy: Strategy,
    machine: Machine,
    engine: Engine,
    workload: Workload,
    foot: Footprint,
    seats: int,
) -> Ledger:
    capacity = machine.device.room
    if machine.device.device_class == CPU and not model.tied and not foot.stage:  # its host memory is the device's
        foot = replace(foot, weights=foot.weights + model.embedding * element_bytes(head_format(model)))
    tensor = int(strategy.tp)
    tokens = batched_tokens(engine, machine, workload, int(strategy.attention_dp))
    limits = int(strategy.dp) * (1 if engine.sequence_limit == "server" else int(strategy.attention_dp))
    own = needed(engine, "max_num_seqs", machine, tensor)
    sequences = own if "sequences" in engine.stated else max(own, math.ceil(seats / limits))
    activations = _activations(model, strategy, machine, engine, workload, foot, sequences)
    runtime = engine.memory["runtime_context"].value
    if tensor > 1 and "communication" in engine.memory:
        runtime += engine.memory["communication"].value
    graphs = engine.memory["graph_memory"].value if engine.graphs_counted and "graph_memory" in engine.memory else 0.0
    left, pool = _pool(
        engine, machine, strategy, model, workload.drafted, capacity, foot.weights, activations, runtime, graphs
    )
    # an engine's static reserve contains activations, runtime and graphs
    inside = max(0.0, capacity - foot.weights - max(0.0, pool) - activations - runtime - graphs)
    if left + activations + runtime + graphs > capacity - foot.weights - pool + 1.0:
        held = capacity - foot.weights - pool
        activations, runtime, graphs = min(activations, held), min(runtime, max(0.0, held - activations)), 0.0
        inside = max(0.0, held - activations - runtime)
    left = inside
    reserved = memory.reserved_tokens(workload.input, workload.output)
    charged = float(
        reserved if engine.admission == "reserve" else memory.mean_resident_tokens(workload.input, workload.output)
    )
    charged = float(workload.context) if engine.slots_divide_context else charged
    in_blocks = float(memory.blocks(charged, engine.block)) * engine.block if engine.block > 1 else charged
    each = foot.request(in_blocks)
    at_start = sequences if engine.slots_divide_context and "sequences" in engine.stated else 1.0
    longest_request = max(foot.request(float(workload.context), admitted=True, budget=tokens), at_start * each)
    groups = strategy.groups
    by_memory = pool / each if each > 0 else math.inf
    slots = sequences / (int(strategy.attention_dp) if engine.sequence_limit == "server" else 1)
    possible = math.floor(min(by_memory, slots)) * groups if pool > 0 else 0
    fits = pool >= longest_request and possible >= 1
    shortage = max(0.0, longest_request - pool)
    return Ledger(
        capacity=capacity,
        capacity_source=machine.device.quantities[machine.device.memory_key].source,
        weights=foot.weights,
        activations=activations,
        runtime=runtime,
        graphs=graphs,
        left_alone=left,
        pool=max(0.0, pool),
        request=each,
        charged_tokens=in_blocks,
        longest=_longest(foot, pool / at_start, tokens, model.max_positions),
        max_concurrency=max(0, possible),
        by_memory=by_memory * groups,
        by_setting=slots * groups,
        budget_tokens=tokens,
        footprint=foot,
        fits=fits,
        shortage=shortage,
        at_start=float(at_start),
    )


def _activations(
    model: Model,
    strategy: Strategy,
    machine: Machine,
    engine: Engine,
    workload: Workload,
    foot: Footprint,
    sequences: float,
) -> float:
    """Return the peak activation memory of the largest step, after which `sequences` are sampled at most [B]."""
    micro_batch = default(engine, "micro_batch", machine, int(strategy.tp)) or math.inf
    tokens = min(batched_tokens(engine, machine, workload), micro_batch)
    copies = engine.memory.get("logit")  # stated where every rank samples from all logits
    return float(
        memory.activation_peak_bytes(
            tokens,
            model.hidden,
            foot.widest,
            ACTIVATION_BYTES,
            min(sequences, tokens) if foot.last else 0.0,
            model.vocabulary if copies else model.vocabulary / Split.of(strategy).attention,
            copies.value if copies else ACTIVATION_BYTES + memory.LOGIT_COPY,
        )
    )


def _pool(
    engine: Engine,
    machine: Machine,
    strategy: Strategy,
    model: Model,
    drafted: int,
    capacity: float,
    weights: float,
    activations: float,
    runtime: float,
    graphs: float,
) -> tuple[float, float]:
    """Return the memory that the engine does not use, and the memory for the KV cache [B]."""
    tensor = int(strategy.tp)
    if engine.memory_model == "as-allocated":
        free = engine.defaults.get("memory_left_free")
        left = free.value if free else 0.0
        return left, capacity - left - weights - activations - runtime
    if engine.memory_model == "share-of-free":
        free_now = capacity - weights - activations - runtime - graphs
        used = needed(engine, "memory_share", machine, tensor) * free_now
        return free_now - used, used
    if engine.memory_model == "reserve":
        left = reserve(model, strategy, machine, engine, capacity, drafted=drafted)
        return left, capacity - left - weights
    budget = capacity * needed(engine, "memory_share", machine, tensor)
    return capacity - budget, budget - weights - activations - runtime - graphs


def _longest(foot: Footprint, pool: float, budget: float, positions: int | None) -> float:
    """Return the longest single request that the cache pool admits [token]."""
    ceiling = float(positions) if positions else 2.0**24
    if foot.request(ceiling, admitted=True, budget=budget) <= pool:
        return ceiling
    low, high = 0.0, ceiling
    while high - low > 1.0:
        middle = (low + high) / 2
        low, high = (middle, high) if foot.request(middle, admitted=True, budget=budget) <= pool else (low, middle)
    return math.floor(low)
