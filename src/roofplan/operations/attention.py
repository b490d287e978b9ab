"""Operations of multi-head and latent attention on one rank: projections, scores and reads of the KV cache."""

from __future__ import annotations

from roofplan.laws import Number, attention, memory, smaller, where
from roofplan.operations.table import (
    ACTIVATION_BYTES,
    HANDOVER,
    STEP_KERNELS,
    Operation,
    Split,
    Step,
    all_reduce_of,
    label_of,
    product,
)
from roofplan.records.engine import Kernels
from roofplan.records.model import Attention, LatentAttention, Model


def attention_operations(
    mixer: Attention, step: Step, split: Split, model: Model, kv_bytes: float, kernels: Kernels
) -> list[Operation]:
    """Return the operations of attention over heads: projections, decode over the cache, prefill over the prompt."""
    tensor = split.attention
    table = []
    last = len(mixer.groups) - 1
    groups = mixer.groups
    if mixer.cross is not None:
        # cross-attention: queries come from decoder tokens, keys and values once per request from encoder positions
        queries, kept_once = (
            tuple(linear for linear in groups[0] if (linear.split == "heads") is own) for own in (True, False)
        )
        groups = (queries, *groups[1:])
        if step.prefills:
            positions = step.requests * mixer.cross
            table.append(
                product(
                    label_of(kept_once), kept_once, positions, tensor, model, leaving=False, kv_heads=mixer.kv_heads
                )
            )
    for index, group in enumerate(groups):
        leaving = index == last
        table.append(
            product(label_of(group), group, step.tokens, tensor, model, leaving=leaving, kv_heads=mixer.kv_heads)
        )
    heads = mixer.heads / tensor
    kept = memory.heads_per_rank(float(mixer.kv_heads), tensor) * (
        mixer.head_dim if mixer.key_is_value else mixer.head_dim + mixer.value_dim
    )
    if step.decodes:
        read = heads * (mixer.head_dim + mixer.value_dim) if kernels.reads_per_head else kept
        table.append(_decode_attention(mixer, step, heads, read, kv_bytes))
    if step.prefills:
        table.append(_prefill_attention(mixer, step, heads, kept))
        if kernels.scores and not kernels.flash:
            table.append(_scores(step, heads, kernels.scores, mixer.cross))
    table.append(all_reduce_of("all-reduce after attention", step.tokens, tensor, model))
    return table


def _indexing(mixer: Attention, pairs: Number, heads: Number) -> Number:
    """Return the work of an indexer that scores `pairs` of a query and a cache entry, where a rank has `heads` query heads [FLOP]."""
    scoring: Number = mixer.index_heads
    if mixer.index_split:
        scoring = mixer.index_heads / mixer.kv_heads * memory.heads_per_rank(float(mixer.kv_heads), mixer.heads / heads)
    return 2.0 * pairs / mixer.index_pool * scoring * mixer.index_elements


def _decode_attention(mixer: Attention, step: Step, heads: Number, kept: Number, kv_bytes: float) -> Operation:
    seen, indexed = _seen(mixer, step.context)
    work = attention.work(step.sequences * step.each * seen, heads, mixer.head_dim, mixer.value_dim)
    work = work + _indexing(mixer, step.sequences * step.each * indexed, heads)
    traffic = step.sequences * (seen * kept * kv_bytes + indexed * mixer.index_entry(kv_bytes))
    return Operation(
        "decode attention",
        "decode_attention",
        work,
        traffic,
        kernels=STEP_KERNELS["attention"],
        text="{sequences} sequences x {seen} tokens x {kept} elements x {kv_bytes} B",
        numbers={"sequences": step.sequences, "seen": seen, "kept": kept, "kv_bytes": kv_bytes},
    )


def latent_pairs(mixer: LatentAttention, each: Number, past: Number) -> tuple[Number, Number]:
    """Return the pairs of tokens that latent attention attends to, and the work of the indexer that selects them.

    Parameters
    ----------
    mixer : latent attention, dense or with a sparse indexer.
    each : new tokens of a sequence [token].
    past : tokens before them [token].

    Returns
    -------
    Pairs of a sequence [1], and work of all heads of the indexer over every pair, 0 without one [FLOP].
    """
    pairs = attention.prefill_pairs(each, past)
    kept = pairs if mixer.reach is None else attention.windowed_pairs(each, past, float(mixer.reach))
    return kept, 2.0 * pairs / mixer.index_pool * mixer.index_heads * mixer.index_dim


def attended_pairs(mixer: Attention, each: Number, past: Number) -> Number:
    """Return the query-key pairs of `each` new tokens of a sequence with `past` cached tokens [1]."""
    window = float("inf") if mixer.window is None else float(mixer.window)
    if mixer.cross is not None:
        return each * mixer.cross
    if not mixer.causal:
        return each * each
    whole = attention.prefill_pairs(each, past)
    if mixer.top is not None:
        whole = attention.windowed_pairs(each, past, float(mixer.top * mixer.compression))
    if mixer.selects and mixer.window is not None:
        return whole / mixer.compression + attention.windowed_pairs(each, past, window)
    if mixer.window is None:
        return whole
    if mixer.chunked:
        return attention.chunked_pairs(each, past, window)
    return attention.windowed_pairs(each, past, window)


def _prefill_attention(mixer: Attention, step: Step, heads: Number, kept: Number) -> Operation:
    each, past = step.new / step.requests, step.past
    window = float("inf") if mixer.window is None else float(mixer.window)
    pairs = step.requests * attended_pairs(mixer, each, past)
    work = attention.work(pairs, heads, mixer.head_dim, mixer.value_dim)
    scored = attention.prefill_pairs(each, past) / mixer.compression
    work = work + _indexing(mixer, step.requests * scored, heads)
    traffic = (
        step.requests * smaller(past + each, window) * kept + step.new * heads * (mixer.head_dim + mixer.value_dim)
    ) * ACTIVATION_BYTES
    return Operation(
        "prefill attention",
        "prefill_attention",
        work,
        traffic,
        width=pairs / step.new,
        kernels=STEP_KERNELS["attention"],
        text="2 x {pairs} pairs x {heads} heads x {widths}",
        numbers={"pairs": pairs, "heads": heads, "widths": mixer.head_dim + mixer.value_dim},
    )


def _scores(step: Step, heads: Number, score: float, cross: int | None = None) -> Operation:
    """Return the memory traffic of prefill scores in unfused attention.

    A chunk attends to all tokens before it: on average, half of the rest of its prompt.
    """
    prompt = step.new / step.requests
    part = smaller(prompt, 1.0 * step.new)
    seen = step.past + (prompt + part) / 2.0 if cross is None else float(cross)
    return Operation(
        "attention scores",
        HANDOVER,
        0.0,
        attention.score_traffic(step.new, seen, heads, score),
        kernels=0.0,
        text="{tokens} tokens x {seen} seen x {heads} heads x {score} B",
        numbers={"tokens": step.new, "seen": seen, "heads": heads, "score": score},
    )


def _seen(mixer: Attention, context: Number) -> tuple[Number, Number]:
    """Return the cache entries that a query reads, and the entries that its indexer scores."""
    if mixer.cross is not None:
        return float(mixer.cross), 0.0
    entries = context / mixer.compression
    chosen = entries if mixer.top is None else smaller(entries, float(mixer.top))
    indexed = entries if mixer.index_elements else 0.0
    if mixer.selects or mixer.window is None:
        return chosen + smaller(context, float(mixer.window or 0)), indexed
    # a fixed chunk fills from empty to full, so half of it is attended on average; a sliding window stays full
    full = smaller(context, float(mixer.window))
    if mixer.chunked:
        return where(context > mixer.window, full / 2.0, full), 0.0
    return full, 0.0


def latent_operations(
    mixer: LatentAttention, step: Step, split: Split, model: Model, kv_bytes: float, kernels: Kernels
) -> list[Operation]:
    """Return the operations of latent attention (MLA): absorbed in decode where the latent is cached, expanded in prefill."""
    tensor = split.attention
    table = []
    last = next(i for i, group in enumerate(mixer.groups) if group[0].name.endswith("o_proj"))
    for index, group in enumerate(mixer.groups):
        # prefill expands the latents of cached tokens too; those of a window are few beside a prompt's own
        expands = group[0].name.endswith("kv_b_proj") and not mixer.per_head and mixer.window is None
        tokens = step.tokens + step.requests * step.past if expands else step.tokens
        table.append(product(label_of(group), group, tokens, tensor, model, leaving=index == last))
    heads = mixer.heads / tensor
    if step.decodes:
        table.append(_latent_decode(mixer, step, heads, kv_bytes))
    if step.prefills:
        table.append(_latent_prefill(mixer, step, heads))
        if kernels.scores and not kernels.flash:
            table.append(_scores(step, heads, kernels.scores))
    table.append(all_reduce_of("all-reduce after attention", step.tokens, tensor, model))
    return table


def _kept(mixer: LatentAttention, past: Number) -> Number:
    """Return the cached tokens that new ones may attend to: those of the window, or all [token]."""
    return past if mixer.window is None else smaller(past, float(mixer.window))


def _latent_decode(mixer: LatentAttention, step: Step, heads: Number, kv_bytes: float) -> Operation:
    seen = step.context if mixer.reach is None else smaller(step.context, float(mixer.reach))
    pairs = step.sequences * step.each * seen
    if mixer.per_head:
        kind = "key and value"
        work = attention.work(pairs, heads, mixer.key_dim, mixer.value_dim)
    else:
        kind = "latent"
        work = attention.latent_work(pairs, heads, mixer.latent, mixer.rope_dim)
    scored = step.sequences * step.each * step.context / mixer.index_pool
    work = work + 2.0 * scored * mixer.index_heads * mixer.index_dim
    entry = mixer.entry(mixer.heads / heads, kv_bytes)
    traffic = step.sequences * (seen * entry + step.context * mixer.index_entry(kv_bytes))
    return Operation(
        "decode attention",
        "decode_attention",
        work,
        traffic,
        kernels=STEP_KERNELS["latent attention"],
        text=f"{{sequences}} sequences x {{seen}} tokens x {{entry}} {kind} elements x {{kv_bytes}} B",
        numbers={"sequences": step.sequences, "seen": seen, "entry": entry / kv_bytes, "kv_bytes": kv_bytes},
    )


def _latent_prefill(mixer: LatentAttention, step: Step, heads: Number) -> Operation:
    kept, indexing = latent_pairs(mixer, step.new / step.requests, step.past)
    width = mixer.key_dim + mixer.value_dim
    work = attention.work(step.requests * kept, heads, mixer.key_dim, mixer.value_dim)
    work = work + step.requests * indexing
    seen = step.new + step.requests * _kept(mixer, step.past)
    latent = mixer.latent + mixer.rope_dim
    traffic = (step.new + seen) * (latent + heads * width) * ACTIVATION_BYTES
    if mixer.per_head:  # no latents of cached tokens are kept
        traffic = traffic - (seen - step.new) * latent * ACTIVATION_BYTES
    return Operation(
        "prefill attention",
        "prefill_attention",
        work,
        traffic,
        width=step.requests * kept / step.new,
        kernels=STEP_KERNELS["latent attention"],
        text="2 x {pairs} pairs x {heads} heads x {width}",
        numbers={"pairs": step.requests * kept, "heads": heads, "width": width},
    )
