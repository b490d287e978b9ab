"""Decoders of the second half of 2026: sparse latent attention, delta layers, hyper-connections and experts in a latent space."""

from __future__ import annotations

import math
from dataclasses import replace

from roofplan.errors import ConfigError
from roofplan.hf.blocks import attention, gated_delta, latent_attention, linear, mixture, mlp
from roofplan.hf.decoders import Decoder, llama, windows
from roofplan.hf.fields import Fields
from roofplan.hf.hybrids import decoder_of, delta_layer
from roofplan.hf.mixtures import deepseek, deepseek_mixture, mixed, qwen_feed_forward
from roofplan.records.model import Attention, Group, Layer, Mixture

LINEAR, FULL = "linear_attention", "full_attention"
"""Kinds of layers, as configurations name them."""


def hyper_connections(streams: int, hidden: int, *, mixed: bool = True) -> int:
    """Return the learned numbers of a layer's two hyper-connections (arXiv 2409.19606).

    Each has weights and offsets that read and write the streams, and that mix them unless `mixed` is False, with a scale of every kind.

    Parameters
    ----------
    streams : residual streams [1].
    hidden : width of each of them [1].
    mixed : whether a connection mixes the streams too.

    Returns
    -------
    The numbers of both [parameters].
    """
    kinds = 2 + streams * mixed
    return 2 * (kinds * streams * (streams * hidden + 1) + 2 + mixed)


def _kinds(f: Fields, layers: int, known: set[str]) -> list[str]:
    """Return the kind of each layer, one of those `known`."""
    kinds = f.list("layer_types", layers)
    if kinds is None:
        raise ConfigError(
            "config.json lacks layer_types: the attention of each layer is not guessed", argument="layer_types"
        )
    other = next((kind for kind in kinds if kind not in known), None)
    if other is not None:
        raise ConfigError(
            f"config.json: layer_types holds {other!r}; accepted: {', '.join(sorted(known))}", argument="layer_types"
        )
    return [str(kind) for kind in kinds]


def _indexed(f: Fields, layers: int) -> list[bool]:
    """Return which layers have an indexer of their own; the others take the selection of the one before them."""
    kinds = f.list("indexer_types", layers)
    return [True] * layers if kinds is None else [str(kind) == "full" for kind in kinds]


def minimax_m3(f: Fields) -> Decoder:
    """MiniMax M3 (arXiv 2606.13392): for every KV head an indexer chooses the blocks of tokens that a query attends to."""
    hidden, layers, heads = f.int("hidden_size"), f.int("num_hidden_layers"), f.int("num_attention_heads")
    kv_heads, head_dim, inner = f.int("num_key_value_heads"), f.int("head_dim"), f.int("intermediate_size")
    sparse = f.sub("sparse_attention_config") if "sparse_attention_config" in f else f
    indexed, many = sparse.list("sparse_attention_freq", layers), f.list("moe_layer_freq", layers)
    if indexed is None:  # as transformers names the same
        indexed = [kind == "minimax_m3_sparse" for kind in _kinds(f, layers, {"minimax_m3_sparse", FULL})]
    if many is None:
        many = [kind == "sparse" for kind in f.list("mlp_layer_types", layers) or ["sparse"] * layers]
    full = attention(hidden, heads, kv_heads, head_dim, vectors=2 * head_dim)
    chosen = full
    if any(indexed):
        index_heads = sparse.int("sparse_num_index_heads", "index_n_heads")
        index = sparse.int("sparse_index_dim", "index_head_dim")
        scored = (
            linear("self_attn.index_q_proj", hidden, index_heads * index, split="kv_heads"),
            linear("self_attn.index_k_proj", hidden, index, split="none"),
        )
        blocks = sparse.int("sparse_topk_blocks", "index_topk_blocks")
        chosen = replace(
            full,
            groups=((*full.groups[0], *scored), *full.groups[1:]),
            vectors=full.vectors + 2 * index,
            top=blocks * sparse.int("sparse_block_size", "index_block_size"),
            index_elements=index,
            index_heads=index_heads,
            index_split=True,
            index_bytes=2.0,
        )
    shared = f.int("n_shared_experts", default=1, least=0) * f.int("shared_intermediate_size", default=inner)
    moe = mixture(hidden, inner, f.int("num_local_experts"), f.int("num_experts_per_tok"), shared=shared)
    dense = mlp(hidden, f.int("dense_intermediate_size"))
    built = [
        Layer(mixers=(chosen if one else full,), feed_forwards=(moe if other else dense,), vectors=2 * hidden)
        for one, other in zip(indexed, many, strict=True)
    ]
    return decoder_of(f, built, hidden, tied=False, final=hidden)


def mistral_large4(f: Fields) -> Decoder:
    """Mistral Large 4: latent attention to selected tokens, without positions in every fourth layer; an indexer in each."""
    hidden, layers = f.int("hidden_size"), f.int("num_hidden_layers")
    sources = f.list("kv_source_layers", layers)
    if sources is not None and sources != list(range(layers)):
        raise ConfigError(
            "config.json: kv_source_layers: layers that read another's cache are not described",
            argument="kv_source_layers",
        )
    rotated = f.list("no_rope_layers", layers) or [1] * layers  # 1 where a layer has positions
    heads, index_heads = f.int("num_attention_heads"), f.int("index_n_heads")
    # norm of the indexer's input, scale and offset of every head's softmax in both
    extra = 2 * (hidden + index_heads + heads)
    mixers = {
        one: latent_attention(f, hidden, sparse=True, positions=bool(one), vectors=extra)
        for one in {int(x) for x in rotated}
    }
    feed = deepseek_mixture(f)
    built = [
        Layer(mixers=(mixers[int(one)],), feed_forwards=(feed(i),), vectors=2 * hidden) for i, one in enumerate(rotated)
    ]
    frequencies = f.int("qk_rope_head_dim") // 2
    return decoder_of(f, built, hidden, tied=False, final=hidden + frequencies)


def glm_next(f: Fields) -> Decoder:
    """GLM-5.3 Flash: Kimi delta layers and latent attention to selected pools of tokens, over several residual streams."""
    hidden, layers, streams = f.int("hidden_size"), f.int("num_hidden_layers"), f.int("hc_mult")
    delta = delta_layer(f, f.int("linear_num_heads"), f.int("linear_head_dim"), f.int("linear_conv_kernel_dim"))
    indexed = [latent_attention(f, hidden, sparse=True, indexer=own) for own in (False, True)]
    feed, own = deepseek_mixture(f), _indexed(f, layers)
    built = [
        Layer(
            mixers=(delta if kind == "linear_attention" else indexed[own[i]],),
            feed_forwards=(feed(i),),
            vectors=2 * hidden + hyper_connections(streams, hidden),
        )
        for i, kind in enumerate(_kinds(f, layers, {LINEAR, "indexed_attention"}))
    ]
    return decoder_of(f, built, hidden, tied=False, final=hidden)


def bailing_hybrid(f: Fields) -> Decoder:
    """Ling 3.0: Kimi delta layers with gates of full rank, and latent attention with a gate per head."""
    hidden, layers = f.int("hidden_size"), f.int("num_hidden_layers")
    wise = f.text("gated_attention_proj_granularity_type", "head_wise")
    if "kv_lora_rank" not in f or "V2_5" in f.text("architectures") or wise != "head_wise":
        raise ConfigError(
            "config.json: of Bailing's hybrids only those of Ling 3.0 are described: Kimi delta layers, a gate per head",
            argument="architectures",
        )
    period = f.int("layer_group_size", default=layers)
    kinds = f.list("layer_types", layers) or [
        "full_attention" if (i + 1) % period == 0 else "linear_attention" for i in range(layers)
    ]
    delta = delta_layer(
        f,
        f.int("linear_num_heads", "num_attention_heads"),
        f.int("linear_head_dim", "v_head_dim"),
        f.int("linear_conv_kernel_dim", "short_conv_kernel_size"),
        full_gate=f.flag("no_kda_lora", True),
        full_decay=f.flag("no_kda_lora", True),
    )
    full, feed = latent_attention(f, hidden, head_gate=True), deepseek_mixture(f)
    built = [
        Layer(mixers=(delta if kind == "linear_attention" else full,), feed_forwards=(feed(i),), vectors=2 * hidden)
        for i, kind in enumerate(kinds)
    ]
    return decoder_of(f, built, hidden, tied=False, final=hidden)


def hunyuan4(f: Fields) -> Decoder:
    """Hy4: gated latent attention with a sink per head to tokens that every fourth layer selects, over several residual streams."""
    hidden, layers, streams = f.int("hidden_size"), f.int("num_hidden_layers"), f.int("hc_mult")
    sinks = f.int("num_attention_heads")
    mixers = [latent_attention(f, hidden, sparse=True, indexer=own, gate=1, vectors=sinks) for own in (False, True)]
    feed, own = deepseek_mixture(f), _indexed(f, layers)
    built = [
        Layer(
            mixers=(mixers[own[i]],),
            feed_forwards=(feed(i),),
            vectors=2 * hidden + hyper_connections(streams, hidden, mixed=False),
        )
        for i in range(layers)
    ]
    return decoder_of(f, built, hidden, tied=False, final=hidden + streams * streams * hidden + streams + 1)


def dots3(f: Fields) -> Decoder:
    """dots3: latent attention to selected tokens in some layers, to a window in the others, whose sizes ``per_layer_config`` states."""
    hidden, layers = f.int("hidden_size"), f.int("num_hidden_layers")
    window, feed = f.int("sliding_window"), deepseek_mixture(f)
    built = []
    for i, kind in enumerate(_kinds(f, layers, {"sliding_attention", "indexed_attention"})):
        slides = kind == "sliding_attention"
        mixer = latent_attention(
            f.layer(i),
            hidden,
            sparse=not slides,
            head_gate=True,
            window=window if slides else None,
            vectors=f.int("qk_rope_head_dim"),
        )
        built.append(Layer(mixers=(mixer,), feed_forwards=(feed(i),), vectors=2 * hidden))
    return decoder_of(f, built, hidden, tied=False, final=hidden)


def muse_glimmer(f: Fields) -> Decoder:
    """Muse Glimmer: gated attention, three windows to one full layer without positions, norms before and after each half."""
    hidden, layers = f.int("hidden_size"), f.int("num_hidden_layers")
    feed, seen = mlp(hidden, f.int("intermediate_size")), windows(f, layers)
    built = [
        Layer(mixers=(_gated(f, seen[i]),), feed_forwards=(feed,), vectors=4 * hidden, norms=4) for i in range(layers)
    ]
    return decoder_of(f, built, hidden, tied=False, final=hidden)


def muse_spark(f: Fields) -> Decoder:
    """Muse Spark: Muse Glimmer's attention beside experts in a latent space, with a gate on each residual."""
    hidden, layers = f.int("hidden_size"), f.int("num_hidden_layers")
    inner, seen = f.int("moe_hidden_size"), windows(f, layers)
    moe = mixture(
        hidden,
        f.int("moe_intermediate_size"),
        f.int("num_local_experts"),
        f.int("num_experts_per_tok"),
        expert_input=inner,
        vectors=2 * inner,
    )
    built = [
        Layer(mixers=(_gated(f, seen[i]),), feed_forwards=(moe,), vectors=5 * hidden, norms=3) for i in range(layers)
    ]
    return decoder_of(f, built, hidden, tied=False, final=hidden)


def _gated(f: Fields, window: int | None) -> Attention:
    heads, kv_heads = f.int("num_attention_heads"), f.int("num_key_value_heads")
    return attention(f.int("hidden_size"), heads, kv_heads, f.int("head_dim"), gate=1, window=window)


def mellum(f: Fields) -> Decoder:
    """Mellum 2: a mixture with norms on queries and keys and windows in the listed layers."""
    hidden, layers = f.int("hidden_size"), f.int("num_hidden_layers")
    moe = mixture(
        hidden, f.int("moe_intermediate_size"), f.int("num_local_experts", "num_experts"), f.int("num_experts_per_tok")
    )
    kinds = f.list("mlp_layer_types", layers) or ["sparse"] * layers
    dense = mlp(hidden, f.int("intermediate_size"))
    return mixed(f, lambda i: moe if kinds[i] == "sparse" else dense, qk_norm="head", window=windows(f, layers))


def kolibri(f: Fields) -> Decoder:
    """Kolibri 1: a mixture with shared experts, norms on queries and keys, and norms on both sides of each half."""
    moe = mixture(
        f.int("hidden_size"),
        f.int("moe_intermediate_size"),
        f.int("num_local_experts"),
        f.int("num_experts_per_tok"),
        shared=f.int("shared_expert_intermediate_size", default=0, least=0),
    )
    return mixed(f, lambda _: moe, qk_norm="head", norms=4, window=windows(f, f.int("num_hidden_layers")))


def axk1(f: Fields) -> Decoder:
    """A.X K1: DeepSeek V3 with a norm behind each mixture."""
    plain, hidden = deepseek(f), f.int("hidden_size")
    behind = {
        layer: replace(layer, vectors=layer.vectors + hidden)
        for layer in set(plain.layers)
        if any(isinstance(feed, Mixture) for feed in layer.feed_forwards)
    }
    return replace(plain, layers=tuple(behind.get(layer, layer) for layer in plain.layers))


def inkling(f: Fields) -> Decoder:
    """Inkling: short convolutions over keys, values and both halves' outputs, and distances in place of rotations."""
    hidden, layers, kernel = f.int("hidden_size"), f.int("num_hidden_layers"), f.int("conv_kernel_size")
    ranks, window = f.int("d_rel"), f.int("sliding_window_size")
    made = {
        kind: _distant(f, hidden, kernel, ranks, window if slides else None)
        for kind, slides in (("hybrid_sliding", True), ("hybrid", False))
    }
    shared, inner, experts = (
        f.int("n_shared_experts", least=0),
        f.int("moe_intermediate_size"),
        f.int("n_routed_experts"),
    )
    moe = mixture(
        hidden,
        inner,
        experts,
        f.int("num_experts_per_tok"),
        shared=shared * inner,
        router_width=experts + shared * f.flag("shared_expert_sink", True),
        vectors=1,
    )
    kinds = f.list("mlp_layer_types", layers) or ["sparse"] * layers
    dense = mlp(hidden, f.int("intermediate_size"))
    built = [
        Layer(
            mixers=(made["hybrid_sliding" if kind == "hybrid_sliding" else "hybrid"],),
            feed_forwards=(moe if kinds[i] == "sparse" else dense,),
            vectors=2 * hidden * (1 + kernel),
        )
        for i, kind in enumerate(_kinds(f, layers, {"hybrid_sliding", "hybrid", FULL}))
    ]
    return decoder_of(f, built, hidden, tied=False, final=2 * hidden)


def _distant(f: Fields, hidden: int, kernel: int, ranks: int, window: int | None) -> Attention:
    """Return Inkling's attention, in which a few numbers of a query and head weigh learned scores of every distance."""
    own = "swa_" if window else ""
    heads, kv_heads = f.int(f"{own}num_attention_heads"), f.int(f"{own}num_key_value_heads")
    head_dim, extent = f.int(f"{own}head_dim"), window or f.int("rel_extent")
    vectors = 2 * head_dim + 2 * kv_heads * head_dim * kernel + ranks * extent
    plain = attention(hidden, heads, kv_heads, head_dim, window=window, vectors=vectors)
    scored = linear("self_attn.r_proj", hidden, heads * ranks, split="heads")
    return replace(plain, groups=((*plain.groups[0], scored), *plain.groups[1:]))


def llama_vision(f: Fields) -> Decoder:
    """Llama 3.2 Vision: a Llama with layers whose attention reads the image, which lies in a table of eight more embeddings.

    ``cross_positions``, which `families` derives from the tower, is how many vectors an image becomes.
    """
    plain, hidden = llama(f), f.int("hidden_size")
    head_dim = f.int("head_dim", default=hidden // f.int("num_attention_heads"))
    looking = attention(
        hidden,
        f.int("num_attention_heads"),
        f.int("num_key_value_heads"),
        head_dim,
        vectors=2 * head_dim,
        cross=f.int("cross_positions"),
        prefix="cross_attn",
    )
    at = set(f.ints("cross_attention_layers", most=len(plain.layers) - 1))
    layers = tuple(
        replace(layer, mixers=(looking,), vectors=layer.vectors + 2) if i in at else layer
        for i, layer in enumerate(plain.layers)
    )
    return replace(plain, layers=layers, final=plain.final + 8 * hidden)


def qwen4(f: Fields) -> Decoder:
    """Qwen 4 preview: Qwen3-Next's layers over several residual streams, selected tokens in attention, a table of n-grams."""
    hidden, layers, streams = f.int("hidden_size"), f.int("num_hidden_layers"), f.int("hc_count")
    heads, kv_heads, head_dim = f.int("num_attention_heads"), f.int("num_key_value_heads"), f.int("head_dim")
    rank, wide = f.int("hc_lowrank"), streams * hidden
    # of both halves of a layer, and counted with its mixer
    reading: tuple[Group, ...] = (
        (
            linear("hyper_connection.input_mix_weight_down", wide, rank, split="none"),
            linear("hyper_connection.block_inject_weight", wide, streams, split="none"),
        ),
        (linear("hyper_connection.input_mix_weight_up", rank, wide, split="none"),),
    )
    index_heads, index = f.int("indexer_n_heads"), f.int("indexer_head_dim")
    index_keys, pool = f.int("indexer_kv_heads"), f.int("indexer_compress_ratio")
    plain = attention(hidden, heads, kv_heads, head_dim, gate=1, vectors=2 * head_dim + 2 * index)
    scored = linear("self_attn.indexer.index_qk_proj", hidden, (index_heads + index_keys) * index, split="none")
    full = replace(
        plain,
        groups=((*plain.groups[0], scored), *reading, *reading, *plain.groups[1:]),
        top=f.int("indexer_budget"),
        index_elements=index_keys * index,
        index_heads=index_heads,
        index_pool=pool,
    )
    delta = gated_delta(f, hidden)
    delta = replace(delta, groups=(delta.groups[0], *reading, *reading, *delta.groups[1:]))
    moe = qwen_feed_forward(f)(0)
    built = [
        Layer(mixers=(delta if kind == "linear_attention" else full,), feed_forwards=(moe,), vectors=2 * wide)
        for kind in _kinds(f, layers, {LINEAR, FULL, "indexed_attention"})
    ]
    looked_up, beside = _ngrams(f, hidden, wide)
    around = wide + 2 * wide * rank + beside
    return decoder_of(f, built, hidden, tied=False, final=around, tables=looked_up)


MOST_TABLES = 256
"""Most tables of n-grams of a model, each of which has a prime number of rows that is searched for [1]."""


def _ngrams(f: Fields, hidden: int, wide: int) -> tuple[int, int]:
    """Return the numbers in the tables of n-grams and those that lead from them into the residual streams [parameters].

    Every head hashes into a table of its own prime number of rows, from a base upwards.
    """
    places = f.ints("ple_layer_ids", default=(), most=f.int("num_hidden_layers"))
    if not places:
        return 0, 0
    width, tables = f.int("ple_embed_dim"), f.int("heads_per_ngram") * (f.int("ngram_size", least=2) - 1)
    if tables > MOST_TABLES or width % tables:
        raise ConfigError(
            f"config.json: ple_embed_dim {width} does not divide over {tables} tables of n-grams, of which at most {MOST_TABLES} are read",
            argument="ple_embed_dim",
        )
    rows, candidate = 0, f.int("ngram_vocab_size_base")
    for _ in range(tables * len(places)):
        while any(candidate % divisor == 0 for divisor in range(2, math.isqrt(candidate) + 1)):
            candidate += 1
        rows, candidate = rows + candidate, candidate + 1
    step = f.int("make_ngram_vocab_size_divisible_by", default=128)
    whole = math.ceil(rows / step) * step
    beside = width * wide + width * hidden + (3 + f.int("ple_conv_kernel_size")) * wide
    return whole * (width // tables), beside * len(places)


ENGRAM_BYTES = 1.0 + 1.0 / 32
"""Size of a number of DeepSeek V4.1's tables: FP8 with a scale of a byte for 32 of them, as its checkpoint stores both [B]."""


def deepseek_v41(f: Fields) -> Decoder:
    """DeepSeek V4.1: a window in every layer, groups of layers that share compressed entries and selections, tables of n-grams."""
    hidden, layers, streams = f.int("hidden_size"), f.int("num_hidden_layers"), f.int("hc_mult")
    ratios = f.ints("compress_ratios")
    if len(ratios) < layers:
        raise ConfigError("config.json: compress_ratios must name every layer", argument="compress_ratios")
    sources = set(f.ints("kv_source_layer_ids", most=layers - 1))
    scoring = set(f.ints("index_source_layer_ids", most=layers - 1))
    if not sources & {i for i, ratio in enumerate(ratios[:layers]) if ratio}:
        raise ConfigError(
            "config.json: kv_source_layer_ids names no layer that compresses", argument="kv_source_layer_ids"
        )
    inner, experts = f.int("moe_intermediate_size"), f.int("n_routed_experts")
    moe = mixture(
        hidden,
        inner,
        experts,
        f.int("num_experts_per_tok"),
        shared=inner * f.int("n_shared_experts", default=0, least=0),
        vectors=2 * experts,  # corrections of the scores, of text and of images
    )
    places, sizes = f.ints("engram_layer_ids", default=(), most=layers - 1), f.ints("engram_num_embeddings", default=())
    if len(places) != len(sizes):
        raise ConfigError(
            "config.json: engram_num_embeddings must have a number for each of engram_layer_ids",
            argument="engram_num_embeddings",
        )
    rows = dict(zip(places, sizes, strict=True))
    made: dict[tuple[int, bool, bool, bool], Layer] = {}
    built = []
    for i, ratio in enumerate(ratios[:layers]):
        kind = (ratio, i in sources, i in scoring, i in rows)
        if kind not in made:
            mixer, beside = _grouped_output(f, *kind)
            vectors = 2 * hidden + hyper_connections(streams, hidden) + beside
            made[kind] = Layer(mixers=(mixer,), feed_forwards=(moe,), vectors=vectors)
        built.append(made[kind])
    tables = sum(rows.values()) * f.int("engram_head_dim", default=0, least=0)
    return decoder_of(f, built, hidden, tied=False, final=hidden, tables=tables, table_bytes=ENGRAM_BYTES)


def _grouped_output(f: Fields, ratio: int, source: bool, scores: bool, engram: bool) -> tuple[Attention, int]:
    """Return V4.1's attention, whose output leaves in groups, and the learned numbers beside it.

    A `source` compresses the keys of its group of layers; one that `scores` selects for itself and the layers behind it.
    """
    hidden, heads, width = f.int("hidden_size"), f.int("num_attention_heads"), f.int("head_dim")
    query, groups, rank = f.int("q_lora_rank"), f.int("o_groups"), f.int("o_lora_rank")
    if heads * width % groups:
        raise ConfigError(
            f"config.json: o_groups {groups} does not divide {heads} heads x {width}", argument="o_groups"
        )
    index_heads, index = f.int("index_n_heads"), f.int("index_head_dim")
    first: Group = (
        linear("self_attn.q_a_proj", hidden, query, split="none"),
        linear("self_attn.kv_proj", hidden, width, split="none"),
    )
    second: Group = (linear("self_attn.q_b_proj", query, heads * width, split="heads"),)
    vectors = heads + query + width
    if source:
        first = (*first, linear("self_attn.compressor.kv_proj", hidden, width, split="none"))
        if ratio > 1:
            first = (*first, linear("self_attn.compressor.gate_proj", hidden, width, split="none"))
        vectors += width
    if scores:
        first = (*first, linear("self_attn.indexer.weights_proj", hidden, index_heads, split="none"))
        second = (*second, linear("self_attn.indexer.q_b_proj", query, index_heads * index, split="none"))
    parts: tuple[Group, ...] = (first, second)
    if source and scores:
        parts = (*parts, (linear("self_attn.indexer.wk", width, index, split="none"),))
        vectors += index
    beside = 0
    if engram:
        streams, heads_of = f.int("hc_mult"), f.int("engram_n_heads") * (f.int("engram_max_ngram_size") - 1)
        read = heads_of * f.int("engram_head_dim")
        parts = (*parts, (linear("engram.kv_proj", read, (1 + streams) * hidden, split="none"),))
        beside = 2 * streams * hidden
    leave: tuple[Group, ...] = (
        (linear("self_attn.o_a_proj", heads * width // groups, rank, split="heads", copies=groups),),
        (linear("self_attn.o_b_proj", groups * rank, hidden, split="heads"),),
    )
    mixer = Attention(
        heads=heads,
        kv_heads=1,
        head_dim=width,
        value_dim=width,
        groups=(*parts, *leave),
        vectors=vectors,
        window=f.int("sliding_window"),
        key_is_value=True,
        compression=max(1, ratio),
        top=f.int("index_topk") if ratio else None,
        stores_entries=source,
        index_elements=index if scores else 0,
        index_heads=index_heads if scores else 0,
    )
    return mixer, beside
