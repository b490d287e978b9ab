"""Decoder-only transformers of the Llama shape, dense and mixture, and what varies among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from roofplan.errors import ConfigError
from roofplan.hf.blocks import attention, latent_attention, mixture, mlp
from roofplan.hf.fields import Fields, shortened
from roofplan.records.model import Attention, FeedForward, LatentAttention, Layer, Mixture, Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """What a family function returns: a stack and what surrounds it.

    Parameters
    ----------
    layers : the decoder's layers.
    hidden, vocabulary : shape of the embedding.
    tied : whether the head reads the embedding.
    final : parameters of the final norm and of anything else outside layers, embedding and head.
    head_bias : whether the head has a bias.
    embedding_width : width of the embedding where it is not `hidden`.
    """

    layers: tuple[Layer, ...]
    hidden: int
    vocabulary: int
    tied: bool
    final: int
    head_bias: bool = False
    embedding_width: int | None = None
    max_positions: int | None = None
    draft: Layer | None = None
    draft_layers: int = 0
    stacks: tuple[Stack, ...] = ()
    name: str = "model.layers"
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions that nearly every decoder states."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocabulary: int


def shape(f: Fields, *, inner: str | None = "intermediate_size") -> Shape:
    """Read the common dimensions; a missing ``num_key_value_heads`` means multi-head attention."""
    hidden, heads = f.int("hidden_size"), f.int("num_attention_heads")
    return Shape(
        hidden=hidden,
        layers=f.int("num_hidden_layers"),
        heads=heads,
        kv_heads=f.int("num_key_value_heads", default=heads),
        head_dim=f.int("head_dim", default=hidden // heads),
        inner=f.int(inner) if inner else 0,
        vocabulary=f.int("vocab_size"),
    )


SEEN = ("full_attention", "sliding_attention")
"""What a layer of a decoder with windows may see."""


def windows(f: Fields, layers: int, *, default: int | None = None) -> list[int | None]:
    """Return the window of each layer from ``layer_types`` or ``sliding_window_pattern``; None sees all."""
    window = f.optional_int("sliding_window") or default
    kinds = f.list("layer_types", layers)
    if kinds is not None:
        strange = next((kind for kind in kinds if kind not in SEEN), None)
        if strange is not None:
            raise ConfigError(
                f"config.json: layer_types holds {shortened(strange)}; accepted: {', '.join(SEEN)}",
                argument="layer_types",
                value=shortened(strange),
            )
        return [window if kind == "sliding_attention" else None for kind in kinds]
    pattern = f.optional_int("sliding_window_pattern", "_sliding_window_pattern")
    if window and pattern:
        return [None if (i + 1) % pattern == 0 else window for i in range(layers)]
    return [window] * layers


def _assemble(
    f: Fields, s: Shape, layers: list[Layer], *, tied: bool, final: int | None = None, **more: object
) -> Decoder:
    return Decoder(
        layers=tuple(layers),
        hidden=s.hidden,
        vocabulary=s.vocabulary,
        tied=f.flag("tie_word_embeddings", tied),
        final=s.hidden if final is None else final,
        max_positions=f.positions("max_position_embeddings", "n_positions", "seq_length", "model_max_length"),
        **more,  # type: ignore[arg-type]
    )


def plain(
    f: Fields,
    *,
    tied: bool = False,
    norms: int = 2,
    norm_width: int = 1,
    qkv_bias: bool | None = None,
    out_bias: bool | None = None,
    mlp_bias: bool | None = None,
    qk_norm: str = "",
    window: Sequence[int | None] | None = None,
    gated: bool = True,
    head_bias: bool = False,
    final: int | None = None,
    scalars: int = 0,
) -> Decoder:
    """Return a dense decoder of the Llama kind.

    ``qk_norm``: ``head`` one norm per head width, ``full`` over all heads, ``heads`` one weight per head and width.
    ``norm_width``: 1 for RMSNorm, 2 for LayerNorm with bias, 0 for norms without weights. ``scalars``: learned numbers of an activation.
    """
    s = shape(f)
    bias = f.flag("attention_bias", False) if qkv_bias is None else qkv_bias
    leave_bias = bias if out_bias is None else out_bias
    feed_bias = f.flag("mlp_bias", False) if mlp_bias is None else mlp_bias
    sizes = {
        "head": 2 * s.head_dim,
        "full": (s.heads + s.kv_heads) * s.head_dim,
        "heads": (s.heads + s.kv_heads) * s.head_dim,
        "": 0,
    }
    seen = window or [None] * s.layers
    layers = [
        Layer(
            mixers=(
                attention(
                    s.hidden,
                    s.heads,
                    s.kv_heads,
                    s.head_dim,
                    bias=bias,
                    output_bias=leave_bias,
                    vectors=sizes[qk_norm],
                    window=seen[i],
                ),
            ),
            feed_forwards=(replace(mlp(s.hidden, s.inner, gated=gated, bias=feed_bias), vectors=scalars),),
            vectors=norms * norm_width * s.hidden,
            norms=norms,
            layer_norm=norm_width == 2,
        )
        for i in range(s.layers)
    ]
    return _assemble(
        f, s, layers, tied=tied, final=norm_width * s.hidden if final is None else final, head_bias=head_bias
    )


def llama(f: Fields) -> Decoder:
    """Llama 1-3 and the many that keep its shape."""
    return plain(f)


def mistral(f: Fields) -> Decoder:
    """Mistral 7B and successors; ``sliding_window`` null sees all."""
    return plain(f, window=windows(f, f.int("num_hidden_layers")))


def qwen2(f: Fields) -> Decoder:
    """Qwen 2 and 2.5: biases on q, k, v; the stated window is off unless ``use_sliding_window``."""
    return plain(f, qkv_bias=True, out_bias=False, window=_qwen_windows(f))


def _qwen_windows(f: Fields) -> list[int | None]:
    layers = f.int("num_hidden_layers")
    if not f.flag("use_sliding_window", False):
        return [None] * layers
    if "layer_types" in f:
        return windows(f, layers)
    full = f.int("max_window_layers", default=layers, least=0)
    return [None if i < full else f.optional_int("sliding_window") for i in range(layers)]


def qwen3(f: Fields) -> Decoder:
    """Qwen 3: explicit head_dim, norms on queries and keys."""
    return plain(f, qk_norm="head", window=_qwen_windows(f))


def olmo(f: Fields) -> Decoder:
    """OLMo 1: norms without weights."""
    return plain(f, norm_width=0)


def olmo2(f: Fields) -> Decoder:
    """OLMo 2 and 3: norms after the blocks, norms over all query and key widths."""
    return plain(f, qk_norm="full", window=windows(f, f.int("num_hidden_layers")))


def cohere(f: Fields) -> Decoder:
    """Command-R: parallel block with one norm, tied head."""
    qk_norm = "heads" if f.flag("use_qk_norm", False) else ""
    return plain(f, tied=True, norms=1, qk_norm=qk_norm, window=windows(f, f.int("num_hidden_layers")))


def exaone4(f: Fields) -> Decoder:
    """EXAONE 4: post-norms, norms on queries and keys."""
    return plain(f, qk_norm="head", window=windows(f, f.int("num_hidden_layers")))


def ernie(f: Fields) -> Decoder:
    """ERNIE 4.5 dense."""
    bias = f.flag("use_bias", False)
    return plain(f, tied=True, qkv_bias=bias, mlp_bias=bias)


def glm4(f: Fields) -> Decoder:
    """GLM-4 dense: four norms a layer, biases on q, k, v."""
    return plain(f, norms=4, out_bias=False)


def glm(f: Fields) -> Decoder:
    """GLM-4-9B in the transformers layout: two norms, biases on q, k, v."""
    return plain(f, out_bias=False)


def phi3(f: Fields) -> Decoder:
    """Phi-3 and Phi-4: fused projections, no biases."""
    return plain(f, window=windows(f, f.int("num_hidden_layers")))


def stablelm(f: Fields) -> Decoder:
    """StableLM: LayerNorm with bias, optional q, k, v biases."""
    if f.flag("qk_layernorm", False) or f.flag("use_parallel_residual", False):
        return plain(
            f,
            norm_width=2,
            norms=1 if f.flag("use_parallel_residual", False) else 2,
            qkv_bias=f.flag("use_qkv_bias", False),
            out_bias=False,
        )
    return plain(f, norm_width=2, qkv_bias=f.flag("use_qkv_bias", False), out_bias=False)


def nemotron(f: Fields) -> Decoder:
    """Nemotron-4 and Minitron: squared-ReLU feed-forward without a gate, LayerNorm with bias."""
    return plain(f, norm_width=2, gated=False)


def seed_oss(f: Fields) -> Decoder:
    """Seed-OSS: q, k, v biases, optional output bias."""
    return plain(f, out_bias=f.flag("attention_out_bias", False))


def granite(f: Fields) -> Decoder:
    """Granite 3: multipliers that add no weights."""
    return plain(f, tied=False)


def smollm3(f: Fields) -> Decoder:
    """SmolLM 3: rotary positions left out of some layers."""
    return plain(f, tied=True)


# Mixtures ---------------------------------------------------------------------------------------


def mixed(
    f: Fields,
    feed_forward: Callable[[int], FeedForward],
    *,
    tied: bool = False,
    qkv_bias: bool | None = None,
    out_bias: bool | None = None,
    qk_norm: str = "",
    window: Sequence[int | None] | None = None,
    norms: int = 2,
    norm_width: int = 1,
    sinks: bool = False,
    chunked: bool = False,
    **more: object,
) -> Decoder:
    """Return a decoder whose layer `i` has ``feed_forward(i)``."""
    s = shape(f, inner=None)
    bias = f.flag("attention_bias", False) if qkv_bias is None else qkv_bias
    leave_bias = bias if out_bias is None else out_bias
    sizes = {"head": 2 * s.head_dim, "full": (s.heads + s.kv_heads) * s.head_dim, "": 0}
    seen = window or [None] * s.layers
    layers = [
        Layer(
            mixers=(
                attention(
                    s.hidden,
                    s.heads,
                    s.kv_heads,
                    s.head_dim,
                    bias=bias,
                    output_bias=leave_bias,
                    vectors=sizes[qk_norm] + s.heads * sinks,
                    window=seen[i],
                    chunked=chunked and seen[i] is not None,
                ),
            ),
            feed_forwards=(feed_forward(i),),
            vectors=norms * norm_width * s.hidden,
            norms=norms,
            layer_norm=norm_width == 2,
        )
        for i in range(s.layers)
    ]
    more.setdefault("final", norm_width * s.hidden)
    return _assemble(f, s, layers, tied=tied, **more)  # type: ignore[arg-type]


def mixtral(f: Fields) -> Decoder:
    """Mixtral."""
    moe = mixture(
        f.int("hidden_size"), f.int("intermediate_size"), f.int("num_local_experts"), f.int("num_experts_per_tok")
    )
    return mixed(f, lambda _: moe, window=windows(f, f.int("num_hidden_layers")))


def phimoe(f: Fields) -> Decoder:
    """Phi-3.5-MoE: LayerNorm with bias, optional biases in attention and head."""
    moe = mixture(
        f.int("hidden_size"), f.int("intermediate_size"), f.int("num_local_experts"), f.int("num_experts_per_tok")
    )
    return mixed(
        f,
        lambda _: moe,
        norm_width=2,
        head_bias=f.flag("lm_head_bias", False),
        window=windows(f, f.int("num_hidden_layers")),
    )


def granitemoe(f: Fields) -> Decoder:
    """Granite 3 mixture, with the shared feed-forward of ``granitemoeshared``."""
    moe = mixture(
        f.int("hidden_size"),
        f.int("intermediate_size"),
        f.int("num_local_experts"),
        f.int("num_experts_per_tok"),
        shared=f.int("shared_intermediate_size", default=0, least=0),
    )
    return mixed(f, lambda _: moe)


def minimax_m2(f: Fields) -> Decoder:
    """MiniMax M2: ``intermediate_size`` is the expert width, norms over all query and key widths."""
    moe = mixture(
        f.int("hidden_size"), f.int("intermediate_size"), f.int("num_local_experts"), f.int("num_experts_per_tok")
    )
    return mixed(
        f,
        lambda _: moe,
        qk_norm="full",
        draft_layers=f.int("num_mtp_modules", default=0, least=0) if f.flag("use_mtp", False) else 0,
    )


def gpt_oss(f: Fields) -> Decoder:
    """GPT-OSS: biases everywhere, one attention sink per head, alternating windows."""
    moe = mixture(
        f.int("hidden_size"),
        f.int("intermediate_size"),
        f.int("num_local_experts"),
        f.int("num_experts_per_tok", "experts_per_token"),
        bias=True,
        router_bias=True,
    )
    layers = f.int("num_hidden_layers")
    window = f.optional_int("sliding_window")
    seen = windows(f, layers) if "layer_types" in f else [window if i % 2 == 0 else None for i in range(layers)]
    return mixed(f, lambda _: moe, qkv_bias=f.flag("attention_bias", True), sinks=True, window=seen)


def _sparse_layers(f: Fields, layers: int) -> list[bool]:
    """Return which layers are mixtures, from whichever of the four spellings the family uses."""
    kinds = f.list("mlp_layer_types", layers)
    if kinds is not None:
        return [kind not in {"dense", "mlp"} for kind in kinds]
    dense = set(f.list("mlp_only_layers") or [])
    step = (
        f.int("decoder_sparse_step", "moe_layer_freq", default=1)
        if not isinstance(f.values.get("moe_layer_freq"), list)
        else 1
    )
    first = f.int("first_k_dense_replace", "first_k_dense_layers", default=0, least=0)
    frequency = f.values.get("moe_layer_freq")
    if isinstance(frequency, list):
        return [bool(value) for value in frequency]
    offset = 1 if "decoder_sparse_step" in f else 0
    return [i >= first and i not in dense and (i + offset) % step == 0 for i in range(layers)]


def qwen_mixture(
    f: Fields, *, qkv_bias: bool | None = None, out_bias: bool | None = None, qk_norm: str = ""
) -> Decoder:
    """Qwen 2 and 3 mixtures: expert width apart from the dense width, optional gated shared expert."""
    feed = qwen_feed_forward(f)
    return mixed(f, feed, qkv_bias=qkv_bias, out_bias=out_bias, qk_norm=qk_norm, window=_qwen_windows(f))


def qwen_feed_forward(f: Fields) -> Callable[[int], FeedForward]:
    """Return the feed-forward of each layer of a Qwen model, dense or mixture."""
    hidden = f.int("hidden_size")
    if f.optional_int("num_experts") is None:
        dense = mlp(hidden, f.int("intermediate_size"))
        return lambda _: dense
    shared = f.int("shared_expert_intermediate_size", default=0, least=0)
    moe = mixture(
        hidden,
        f.int("moe_intermediate_size"),
        f.int("num_experts"),
        f.int("num_experts_per_tok"),
        shared=shared,
        shared_gate=shared > 0,
    )
    sparse = _sparse_layers(f, f.int("num_hidden_layers"))
    between = mlp(hidden, f.int("intermediate_size")) if not all(sparse) else None
    return lambda i: moe if sparse[i] or between is None else between


def qwen2_moe(f: Fields) -> Decoder:
    """Qwen 2 mixture."""
    return qwen_mixture(f, qkv_bias=f.flag("qkv_bias", True), out_bias=False)


def qwen3_moe(f: Fields) -> Decoder:
    """Qwen 3 mixture."""
    return qwen_mixture(f, qk_norm="head")


def deepseek_mixture(f: Fields) -> Callable[[int], FeedForward]:
    """Return the feed-forward of each layer from the DeepSeek and GLM field names."""
    hidden, width = f.int("hidden_size"), f.int("moe_intermediate_size")
    moe = mixture(
        hidden,
        width,
        f.int("n_routed_experts", "num_experts"),
        _chosen(f),
        shared=width * f.int("n_shared_experts", "num_shared_experts", default=0, least=0),
        groups=_groups(f),
    )
    sparse = _sparse_layers(f, f.int("num_hidden_layers"))
    dense = mlp(hidden, f.int("intermediate_size")) if not all(sparse) else None
    return lambda i: moe if sparse[i] or dense is None else dense


def _groups(f: Fields) -> tuple[int, int]:
    """Return the groups of experts and those that a token chooses from, 1 of 1 where the router looks at all of them."""
    groups = f.optional_int("n_group") or 1
    chosen = f.optional_int("topk_group") or groups
    limited = groups > 1 and f.text("topk_method") != "greedy"
    return (groups, min(groups, chosen)) if limited else (1, 1)


def _chosen(f: Fields) -> int:
    """Return the experts per token, 0 where the configuration does not say: sizes are then known, activity is not."""
    return f.int(
        "num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts", default=0, least=0
    )


def deepseek(f: Fields, *, sparse: bool = False, shared_indexer: bool = False) -> Decoder:
    """DeepSeek V2, V3, V3.2, Kimi K2 and the GLM models on latent attention."""
    hidden, layers = f.int("hidden_size"), f.int("num_hidden_layers")
    feed = deepseek_mixture(f) if "n_routed_experts" in f else None
    dense = mlp(hidden, f.int("intermediate_size")) if feed is None else None
    built = []
    for i in range(layers):
        indexer = not shared_indexer or _has_indexer(f, i)
        mixer = latent_attention(f, hidden, sparse=sparse, indexer=indexer)
        built.append(Layer(mixers=(mixer,), feed_forwards=(feed(i) if feed else dense,), vectors=2 * hidden))  # type: ignore[arg-type]
    drafts = f.int("num_nextn_predict_layers", default=0, least=0)
    return Decoder(
        layers=tuple(built),
        hidden=hidden,
        vocabulary=f.int("vocab_size"),
        tied=f.flag("tie_word_embeddings", False),
        final=hidden,
        max_positions=f.positions("max_position_embeddings"),
        draft=built[-1] if drafts else None,
        draft_layers=drafts,
        warnings=("num_experts_per_tok is absent: the active count is unknown",) if feed and not _chosen(f) else (),
    )


def _has_indexer(f: Fields, layer: int) -> bool:
    kinds = f.list("indexer_types")
    if kinds is not None:
        return str(kinds[layer]) == "full"
    every, offset = f.int("index_topk_freq", default=1), f.int("index_skip_topk_offset", default=0, least=0)
    return layer < offset or (layer - offset) % every == every - 1 or every == 1


def deepseek_sparse(f: Fields) -> Decoder:
    """DeepSeek V3.2: latent attention with a lightning indexer."""
    return deepseek(f, sparse=True)


def glm_dsa(f: Fields) -> Decoder:
    """GLM-5: V3.2's attention; later versions share one indexer among neighbouring layers."""
    return deepseek(f, sparse=True, shared_indexer=True)


def glm4_moe(f: Fields) -> Decoder:
    """GLM-4.5 to 4.7 mixtures on grouped-query attention."""
    feed = deepseek_mixture(f)
    drafts = f.int("num_nextn_predict_layers", default=0, least=0)
    built = mixed(f, feed, out_bias=False, qk_norm="head" if f.flag("use_qk_norm", False) else "")
    return _with_draft(built, drafts)


def _with_draft(decoder: Decoder, drafts: int) -> Decoder:
    from dataclasses import replace

    return replace(decoder, draft=decoder.layers[-1] if drafts else None, draft_layers=drafts)


def exaone_moe(f: Fields) -> Decoder:
    """EXAONE mixture."""
    return mixed(f, deepseek_mixture(f), qk_norm="head", window=windows(f, f.int("num_hidden_layers")))


def dots1(f: Fields) -> Decoder:
    """dots.llm1."""
    return mixed(f, deepseek_mixture(f), qk_norm="head", window=windows(f, f.int("num_hidden_layers")))


def cohere2_moe(f: Fields) -> Decoder:
    """Command-A mixture: one norm, tied head."""
    hidden, inner = f.int("hidden_size"), f.int("intermediate_size")
    moe = mixture(
        hidden,
        inner,
        f.int("num_experts"),
        f.int("num_experts_per_tok"),
        shared=inner * f.int("num_shared_experts", default=0, least=0),
    )
    sparse = _sparse_layers(f, f.int("num_hidden_layers"))
    dense = None if all(sparse) else mlp(hidden, f.int("prefix_dense_intermediate_size", default=inner))
    return mixed(
        f,
        lambda i: moe if sparse[i] or dense is None else dense,
        tied=True,
        norms=1,
        window=windows(f, f.int("num_hidden_layers")),
    )


def ernie_moe(f: Fields) -> Decoder:
    """ERNIE 4.5 mixture: the score correction is learned."""
    hidden, width, experts = f.int("hidden_size"), f.int("moe_intermediate_size"), f.int("moe_num_experts")
    bias = f.flag("use_bias", False)
    moe = mixture(
        hidden,
        width,
        experts,
        f.int("moe_k"),
        shared=width * f.int("moe_num_shared_experts", default=0, least=0),
        vectors=experts,
        bias=bias,
    )
    dense = mlp(hidden, f.int("intermediate_size"), bias=bias)
    first, last = (
        f.int("moe_layer_start_index", least=0),
        f.int("moe_layer_end_index", default=f.int("num_hidden_layers") - 1, least=-1),
    )
    last = f.int("num_hidden_layers") - 1 if last == -1 else last
    every = f.int("moe_layer_interval", default=1)
    return mixed(f, lambda i: moe if first <= i <= last and (i + 1) % every == 0 else dense, tied=True, qkv_bias=bias)


def llama4(f: Fields) -> Decoder:
    """Llama 4: a mixture every n-th layer with one shared expert, chunked attention on three of four layers."""
    hidden, layers = f.int("hidden_size"), f.int("num_hidden_layers")
    width = f.int("intermediate_size")
    moe = mixture(
        hidden, width, f.int("num_local_experts"), f.int("num_experts_per_tok"), shared=width, prefix="feed_forward"
    )
    dense = mlp(hidden, f.int("intermediate_size_mlp"), prefix="feed_forward")
    step = f.int("interleave_moe_layer_step", default=1)
    chosen = f.list("moe_layers")
    sparse = set(chosen) if chosen else set(range(step - 1, layers, step))
    chunk = f.optional_int("attention_chunk_size")
    kinds, rotary = f.list("layer_types", layers), f.list("no_rope_layers")
    if kinds is not None:
        seen = [chunk if kind == "chunked_attention" else None for kind in kinds]
    elif rotary:
        seen = [chunk if uses else None for uses in rotary]
    else:
        every = f.int("no_rope_layer_interval", default=4)
        seen = [None if (i + 1) % every == 0 else chunk for i in range(layers)]
    return mixed(f, lambda i: moe if i in sparse else dense, window=seen, chunked=True)


def olmoe(f: Fields) -> Decoder:
    """OLMoE: norms over all query and key widths."""
    moe = mixture(f.int("hidden_size"), f.int("intermediate_size"), f.int("num_experts"), f.int("num_experts_per_tok"))
    return mixed(f, lambda _: moe, qk_norm="full")


def gemma(f: Fields) -> Decoder:
    """Gemma 1: tied vocabulary of 256k, wide heads."""
    return plain(f, tied=True)


def gemma2(f: Fields) -> Decoder:
    """Gemma 2: four norms a layer, every other layer windowed."""
    layers = f.int("num_hidden_layers")
    window = f.optional_int("sliding_window")
    seen = windows(f, layers) if "layer_types" in f else [window if i % 2 == 0 else None for i in range(layers)]
    return plain(f, tied=True, norms=4, window=seen)


def gemma3(f: Fields) -> Decoder:
    """Gemma 3: five windowed layers to one global, norms on queries and keys."""
    layers = f.int("num_hidden_layers")
    pattern = f.int("sliding_window_pattern", "_sliding_window_pattern", default=6)
    window = f.optional_int("sliding_window")
    seen = (
        windows(f, layers)
        if "layer_types" in f
        else [None if (i + 1) % pattern == 0 else window for i in range(layers)]
    )
    return plain(f, tied=True, norms=4, qk_norm="head", window=seen)


Part = Attention | LatentAttention | Mixture
