"""Activations that a layer saves from its forward pass for its backward pass.

They are counted from the same records as in serving, so a new mixer or feed-forward needs no formula of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from roofplan.laws import Number, activations, where
from roofplan.laws import memory as memory_laws
from roofplan.operations.table import ACTIVATION_BYTES, fraction, kv_heads_of
from roofplan.records.model import Attention, Dense, Group, LatentAttention, Layer, Mixture, Model, Recurrence
from roofplan.records.training import Adapter, Framework, Job, Layout


class Kept(NamedTuple):
    """A tensor of one micro-batch that a rank saves in the forward pass of a layer for its backward pass.

    Parameters
    ----------
    module : ``input`` of the layer, or the module to recompute for it: the matmul that produces it
        (``q_proj``, ``up_proj``), ``layernorm``, ``rotary``, ``core_attn``, ``attn_proj``, ``mla_up_proj``, ``mlp_input``,
        ``mlp_act``, ``moe``, ``moe_act``, ``shared_experts``.
    feeds : matmuls that save it only for their weight gradient; empty if an input gradient needs it too.
    """

    name: str
    module: str
    bytes: Number
    feeds: tuple[str, ...] = ()


MASK_BYTES = 1.0
"""Bytes of an element of a dropout mask [B]."""

STATISTIC_BYTES = 4.0
"""Bytes of flash attention's softmax statistic, one per query and head [B]."""


def words(group: Group) -> tuple[str, ...]:
    """Return the last part of each name in a fused matmul, such as ``q_proj``."""
    return tuple(linear.name.rsplit(".", 1)[-1] for linear in group)


def kept(
    layer: Layer,
    tokens: Number,
    sequence: float,
    layout: Layout,
    model: Model,
    framework: Framework,
    adapter: Adapter | None = None,
    *,
    low: bool = False,
) -> list[Kept]:
    """Return the activations that one layer saves per micro-batch.

    With an adapter, frozen matmuls save no input. With FP8 or FP4 (`low`), inputs are saved in the framework's format
    for them.

    Parameters
    ----------
    tokens : tokens of a micro-batch on one rank, after division by context parallelism [token].
    sequence : length of a whole sequence, for attention scores that are written to memory [token].
    """
    table: list[Kept] = []
    stream = stream_bytes(tokens, layout, model)
    entrance = stream if layer.layer_norm else stream * framework.keeps("stream_kept") / ACTIVATION_BYTES
    normed = stream * framework.keeps("norm_kept") / ACTIVATION_BYTES
    for mixer in layer.mixers:
        table += [
            Kept("input of the mixer's norm", "input", entrance),
            Kept("output of the mixer's norm", "layernorm", normed, words(mixer.groups[0])),
            *_mixer(mixer, tokens, sequence, layout, framework),
            *_dropped(stream, framework, "attn_proj"),
        ]
    for feed in layer.feed_forwards:
        first = feed.expert[0] if isinstance(feed, Mixture) else feed.groups[0]
        if layer.norms > 1 or not layer.mixers:
            table.append(Kept("input of the feed-forward's norm", "mlp_input" if layer.mixers else "input", entrance))
            table.append(Kept("output of the feed-forward's norm", "layernorm", normed, words(first)))
        if isinstance(feed, Mixture):
            table += _experts(feed, tokens, layout, framework)
        else:
            table += _dense(feed, tokens, layout, framework, "mlp")
        table += _dropped(stream, framework, "mlp")
    if low:
        share = framework.keeps("low_input") / ACTIVATION_BYTES
        table = [item._replace(bytes=item.bytes * share) if item.feeds else item for item in table]
    if adapter is None:
        return table
    quantised = framework.keeps("quantised_inputs") if adapter.stored != "bf16" else 0.0
    table = [_needed(item, adapter, quantised) for item in table]
    return [*table, *_updates(layer, tokens, layout, model, adapter)]


def _needed(item: Kept, adapter: Adapter, quantised: float) -> Kept:
    """Return the saved bytes of an item under frozen weights.

    Inputs of adapted matmuls stay, and those that the quantised kernel saves anyway.
    """
    if not item.feeds or set(item.feeds) & set(adapter.targets):
        return item
    copies = quantised if item.module == "mlp_act" else min(quantised, 1.0)
    return item._replace(bytes=item.bytes * copies)


def held(
    layer: Layer, tokens: Number, job: Job, layout: Layout, model: Model, framework: Framework
) -> tuple[Number, Number]:
    """Return the saved activations of one layer and micro-batch, before and during recomputation.

    Parameters
    ----------
    layer : one decoder layer.
    tokens : tokens of a micro-batch on one rank [token].
    job : sequence length, precision and adapter.
    layout : degrees of parallelism and recomputation.
    model : the whole model, for its widths.
    framework : which tensors the framework saves.

    Returns
    -------
    Bytes saved until the layer's backward pass, and bytes held while that pass recomputes the layer [B].
    """
    table = kept(
        layer, tokens, float(job.sequence), layout, model, framework, job.adapter, low=job.precision in LOW_PRECISION
    )
    return recomputed(table, layout, framework)


LOW_PRECISION = {"fp8", "fp4"}
"""Formats whose matmul inputs are cast by a separate kernel and saved in that format."""


def stream_bytes(tokens: Number, layout: Layout, model: Model) -> Number:
    """Return the size of the residual stream of one micro-batch on one rank, divided by tp under sequence parallelism.

    Parameters
    ----------
    tokens : tokens of a micro-batch on one rank [token].
    layout : degrees of parallelism.
    model : the whole model, for its hidden size.

    Returns
    -------
    Bytes in 16 bits [B].
    """
    return activations.input_bytes(tokens, float(model.hidden), ACTIVATION_BYTES) / (
        layout.tp if layout.sequence_parallel else 1.0
    )


def _dropped(stream: Number, framework: Framework, module: str) -> list[Kept]:
    if not framework.dropout:
        return []
    return [Kept("dropout mask", module, stream * MASK_BYTES / ACTIVATION_BYTES)]


def _updates(layer: Layer, tokens: Number, layout: Layout, model: Model, adapter: Adapter) -> list[Kept]:
    """Return the activations of LoRA updates: dropout mask, dropped-out input, and rank-r intermediate."""
    table = []
    for group, tensor in groups_of(layer, layout):
        if adapter.scales:
            scaled = tokens * width(group, tensor) * ACTIVATION_BYTES
            table.append(Kept(f"outputs of {'+'.join(words(group))} before they are scaled", "adapter", scaled))
        updated = [linear for linear in group if linear.name.rsplit(".", 1)[-1] in adapter.targets]
        if not updated:
            continue
        entering = tokens * updated[0].inputs * updated[0].copies
        # separate updates each apply dropout to the input; a fused update applies it once
        dropped = entering * (MASK_BYTES + ACTIVATION_BYTES) if adapter.dropout else 0.0 * entering
        narrow = tokens * adapter.rank * (1 if adapter.fused else len(updated)) * ACTIVATION_BYTES
        table.append(Kept(f"low-rank update of {'+'.join(words(group))}", "adapter", dropped + narrow))
    if adapter.scales:
        halves = float(bool(layer.mixers)) + float(bool(layer.feed_forwards))
        table.append(Kept("norms before they are scaled", "adapter", halves * stream_bytes(tokens, layout, model)))
    return table


def groups_of(layer: Layer, layout: Layout) -> list[tuple[Group, Number]]:
    """Return the fused matmuls of a layer that every token passes, each with the number of ranks that divide it."""
    table: list[tuple[Group, Number]] = [(group, layout.tp) for mixer in layer.mixers for group in mixer.groups]
    for feed in layer.feed_forwards:
        table += [(group, layout.tp) for group in (feed.groups if isinstance(feed, Dense) else feed.shared)]
    return table


def adapted(layer: Layer, adapter: Adapter) -> float:
    """Return the LoRA parameters of a layer: rank x (inputs + outputs) of each target.

    Parameters
    ----------
    layer : one decoder layer.
    adapter : rank, and the linear layers that are updated.

    Returns
    -------
    Parameters [1].
    """
    found = 0.0
    for mixer in layer.mixers:
        found += sum(update_entries(group, adapter) for group in mixer.groups)
    for feed in layer.feed_forwards:
        dense = feed.groups if isinstance(feed, Dense) else feed.shared
        found += sum(update_entries(group, adapter) for group in dense)
        if isinstance(feed, Mixture):
            found += feed.experts * sum(update_entries(group, adapter) for group in feed.expert)
    return found


def update_entries(group: Group, adapter: Adapter) -> float:
    """Return the LoRA parameters of a fused matmul; a shared A matrix counts once [parameters]."""
    updated = [linear for linear in group if words((linear,))[0] in adapter.targets]
    extra = 1.0 if adapter.method == "dora" else 0.0
    found = 0.0
    for place, linear in enumerate(updated):
        entering = 0.0 if adapter.fused and place else linear.inputs
        found += (adapter.rank * (entering + linear.outputs) + extra * linear.outputs) * linear.copies
    return found


def width(group: Group, tensor: Number) -> Number:
    """Return the output width of a fused matmul on one rank [1]."""
    found: Number = 0.0
    for linear in group:
        found = found + linear.outputs * linear.copies * fraction(linear, tensor)
    return found


def _mixer(
    mixer: Attention | LatentAttention | Recurrence,
    tokens: Number,
    sequence: float,
    layout: Layout,
    framework: Framework,
) -> list[Kept]:
    if isinstance(mixer, Attention):
        return _attention(mixer, tokens, sequence, layout, framework)
    if isinstance(mixer, LatentAttention):
        return _latent(mixer, tokens, sequence, layout, framework)
    entering = width(mixer.groups[0], layout.tp)
    leaving = mixer.groups[-1][0].inputs * mixer.groups[-1][0].copies / layout.tp
    return [
        Kept("inputs of the recurrence", "core_attn", tokens * entering * ACTIVATION_BYTES),
        Kept("its outputs and gates", "attn_proj", 2.0 * tokens * leaving * ACTIVATION_BYTES),
    ]


def _attention(mixer: Attention, tokens: Number, sequence: float, layout: Layout, framework: Framework) -> list[Kept]:
    heads = mixer.heads / layout.tp
    kv = memory_laws.heads_per_rank(float(mixer.kv_heads), layout.tp)
    queries = tokens * heads * mixer.head_dim * ACTIVATION_BYTES
    keys = tokens * kv * mixer.head_dim * ACTIVATION_BYTES
    out = tokens * heads * mixer.value_dim * ACTIVATION_BYTES
    table = [
        Kept("queries", "q_proj", queries),
        Kept("keys", "k_proj", keys),
        Kept("values", "v_proj", tokens * kv * mixer.value_dim * ACTIVATION_BYTES),
        Kept("copies of queries and keys", "rotary", (queries + keys) * framework.keeps("query_copies")),
        Kept("attention's output", "attn_proj", out),
    ]
    seen = sequence if mixer.window is None else min(sequence, mixer.window)
    return table + _core(tokens, heads, out, seen, layout, framework)


def _core(tokens: Number, heads: Number, out: Number, seen: float, layout: Layout, framework: Framework) -> list[Kept]:
    """Return the activations that the attention kernel saves: flash attention statistics, or all scores if unfused."""
    copies = [Kept("attention's output before the exchange", "core_attn", where(layout.cp > 1, out, 0.0 * out))]
    if framework.attention == "flash":
        return [Kept("softmax statistics", "core_attn", tokens * heads * STATISTIC_BYTES), *copies]
    score = tokens * heads * seen
    dropout = score * (MASK_BYTES + ACTIVATION_BYTES) if framework.dropout else 0.0
    return [Kept("scores", "core_attn", score * ACTIVATION_BYTES + dropout), *copies]


def _latent(
    mixer: LatentAttention, tokens: Number, sequence: float, layout: Layout, framework: Framework
) -> list[Kept]:
    heads = mixer.heads / layout.tp
    # each latent before and after its norm
    table = [
        Kept("a latent and its norm", "mla_up_proj", 2.0 * tokens * group[0].inputs * ACTIVATION_BYTES)
        for group in mixer.groups
        if group[0].name.endswith(("q_b_proj", "kv_b_proj"))
    ]
    key = mixer.nope_dim + mixer.rope_dim
    out = tokens * heads * mixer.value_dim * ACTIVATION_BYTES
    values = mixer.value_dim + framework.keeps("latent_value_extra") * mixer.nope_dim
    table += [
        Kept("queries and keys", "mla_up_proj", 2.0 * tokens * heads * key * ACTIVATION_BYTES),
        Kept("values", "mla_up_proj", tokens * heads * values * ACTIVATION_BYTES),
        Kept("attention's output", "attn_proj", out),
    ]
    return table + _core(tokens, heads, out, sequence, layout, framework)


def visited(moe: Mixture, tokens: Number, layout: Layout) -> tuple[Number, Number]:
    """Return the tokens that a rank routes, and the token-expert pairs that the busiest rank computes [1].

    With an expert capacity, inputs are padded to it and tokens beyond it are dropped (GShard, arXiv 2006.16668, section
    2.2).
    """
    mine = tokens / (layout.tp if layout.sequence_parallel else 1.0)
    busiest = where(layout.ep > 1, layout.imbalance, 1.0) if layout.capacity is None else layout.capacity
    return mine, mine * moe.chosen * busiest


def shared_part(moe: Mixture) -> Dense:
    """Return the shared experts of an MoE layer as a dense feed-forward, without their gates."""
    groups = (group for group in moe.shared if len(group) > 1 or words(group)[0] in {"up_proj", "down_proj"})
    return Dense(groups=tuple(groups))


def _dense(feed: Dense, tokens: Number, layout: Layout, framework: Framework, module: str) -> list[Kept]:
    """Return the saved inputs of a feed-forward's activation function and of its last matmul."""
    last = feed.groups[-1]
    leaving = last[0].inputs * last[0].copies / layout.tp
    copies = framework.keeps("activation_copies") if len(feed.groups[0]) > 1 else 0.0
    return [
        *(
            Kept("input of the activation function", linear.name.rsplit(".", 1)[-1], size)
            for linear in feed.groups[0]
            for size in [tokens * width((linear,), layout.tp) * ACTIVATION_BYTES]
        ),
        Kept("its inner copies", f"{module}_act", copies * tokens * leaving * ACTIVATION_BYTES),
        Kept("input of the last product", f"{module}_act", tokens * leaving * ACTIVATION_BYTES, words(last)),
    ]


def _experts(moe: Mixture, tokens: Number, layout: Layout, framework: Framework) -> list[Kept]:
    """Return the activations that an MoE layer saves on its busiest expert-parallel rank."""
    hidden, inner = moe.expert[0][0].inputs, sum(linear.outputs for linear in moe.expert[0])
    last = moe.expert[-1]
    mine, visits = visited(moe, tokens, layout)
    weighed = framework.keeps("expert_output_kept")
    table = [
        Kept("router", "moe", mine * moe.experts * framework.keeps("router_kept")),
        Kept("tokens at their experts", "moe", visits * hidden * ACTIVATION_BYTES, words(moe.expert[0])),
        Kept("input of the experts' activation function", "moe", visits * inner * ACTIVATION_BYTES),
        Kept("input of their last product", "moe_act", visits * last[0].inputs * ACTIVATION_BYTES, words(last)),
        Kept("outputs before they are weighed", "moe", visits * hidden * weighed),
    ]
    if moe.shared:
        table += _dense(shared_part(moe), tokens, layout, framework, "shared_experts")
    return table


def recomputed(table: Sequence[Kept], layout: Layout, framework: Framework) -> tuple[Number, Number]:
    """Return a layer's saved activations under recomputation, and all of them [B].

    The first is the mean over layers. The second is held while the layer is recomputed.
    """
    whole: Number = 0.0
    stays: Number = 0.0
    for item in table:
        whole = whole + item.bytes
        if stays_kept(item.module, layout, framework):
            stays = stays + item.bytes
    return whole + layout.recomputed * (stays - whole), whole


def stays_kept(module: str, layout: Layout, framework: Framework) -> bool:
    """Return whether a module's activations stay saved under the layout's recomputation."""
    if layout.recompute == "none":
        return True
    if layout.recompute == "full":
        return module == "input"
    return module not in again(layout, framework)


def again(layout: Layout, framework: Framework) -> tuple[str, ...]:
    """Return the modules that selective recomputation recomputes."""
    return framework.selective if layout.recompute == "selective" else tuple(layout.recompute.split("+"))


def widest_gradient(layer: Layer, tokens: Number, layout: Layout, model: Model) -> Number:
    """Return the size of gradients that a layer's backward pass holds at once: of its widest matmul and of the stream.

    Parameters
    ----------
    layer : one decoder layer.
    tokens : tokens of a micro-batch on one rank [token].
    layout : degrees of parallelism.
    model : the whole model, for its hidden size.

    Returns
    -------
    Bytes in 16 bits [B].
    """
    wide: Number = 0.0
    for feed in layer.feed_forwards:
        if isinstance(feed, Mixture):
            _, visits = visited(feed, tokens, layout)
            hidden, inner = feed.expert[0][0].inputs, sum(linear.outputs for linear in feed.expert[0])
            wide = wide + visits * (hidden + inner)
        else:
            wide = wide + tokens * width(feed.groups[0], layout.tp)
    return wide * ACTIVATION_BYTES + stream_bytes(tokens, layout, model)


def distinct_weights(layers: Sequence[Layer], layout: Layout) -> Number:
    """Return the size of one weight matrix of each distinct shape among layers, as sharded on one rank.

    Parameters
    ----------
    layers : decoder layers, in any order.
    layout : degrees of parallelism.

    Returns
    -------
    Entries, summed over the shapes [1].
    """
    shapes: dict[tuple[float, ...], Number] = {}
    for layer in layers:
        for mixer in layer.mixers:
            kv_heads = kv_heads_of(mixer)
            for index, group in enumerate(mixer.groups):
                _shape(shapes, group, layout.tp, kv_heads, fused=index == 0 and isinstance(mixer, Attention))
        for feed in layer.feed_forwards:
            for group in feed.groups if isinstance(feed, Dense) else feed.shared:
                _shape(shapes, group, layout.tp, None, fused=True)
            # expert matrices are not divided by width
            for group in feed.expert if isinstance(feed, Mixture) else ():
                _shape(shapes, group, 1.0, None, fused=True)
    total: Number = 0.0
    for entries in shapes.values():
        total = total + entries
    return total


def _shape(
    shapes: dict[tuple[float, ...], Number], group: Group, tensor: Number, kv_heads: int | None, *, fused: bool
) -> None:
    for block in [group] if fused else [(linear,) for linear in group]:
        entries: Number = 0.0
        for linear in block:
            entries = entries + linear.weights * fraction(linear, tensor, kv_heads)
        shapes[block[0].inputs, sum(linear.outputs for linear in block)] = entries
