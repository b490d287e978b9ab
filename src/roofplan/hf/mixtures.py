"""Decoders with mixtures of experts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from roofplan.errors import ConfigError
from roofplan.hf.blocks import attention, latent_attention, mixture, mlp
from roofplan.hf.decoders import Decoder, assemble, qwen_windows, shape, windows
from roofplan.hf.fields import Fields, shortened
from roofplan.records.model import FeedForward, Layer


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
    """Return a decoder in which layer `i` has the feed-forward ``feed_forward(i)``."""
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
    return assemble(f, s, layers, tied=tied, **more)  # type: ignore[arg-type]


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


def dbrx(f: Fields) -> Decoder:
    """DBRX: nested dimensions, norms without bias."""
    inner, heads = f.sub("ffn_config"), f.sub("attn_config")
    moe = mixture(
        f.int("d_model"),
        inner.int("ffn_hidden_size"),
        inner.int("moe_num_experts"),
        inner.int("moe_top_k"),
        prefix="ffn",
    )
    named = f.filled(
        hidden_size=f.int("d_model"),
        num_hidden_layers=f.int("n_layers"),
        num_attention_heads=f.int("n_heads"),
        num_key_value_heads=heads.int("kv_n_heads"),
        max_position_embeddings=f.int("max_seq_len"),
    )
    return mixed(named, lambda _: moe, qkv_bias=False, name="transformer.blocks")


def hunyuan_moe(f: Fields) -> Decoder:
    """Hunyuan 1 mixture: a shared feed-forward of the experts' width, norms on queries and keys."""
    width = f.int("intermediate_size")
    experts, chosen = (_same(f, name) for name in ("num_experts", "moe_topk"))
    moe = mixture(f.int("hidden_size"), width, experts.int("num_experts"), chosen.int("moe_topk"), shared=width)
    return mixed(f, lambda _: moe, qk_norm="head")


def _same(f: Fields, name: str) -> Fields:
    """Return the fields with a value that a configuration lists for each layer as one; layers that differ are refused."""
    values = f.raw(name)
    if isinstance(values, list) and len(set(values)) == 1:
        return f.filled(**{name: values[0]})
    return f


def gated_mixture(
    f: Fields, *, norms: int, heads: Sequence[int], gate: int, feed: Callable[[int], FeedForward]
) -> Decoder:
    """Return a mixture whose attention output is gated: per value with `gate` 1, per head with 0, with so many heads a layer."""
    s, bias = shape(f, inner=None), f.flag("attention_bias", False)
    seen = windows(f, s.layers)
    layers = [
        Layer(
            mixers=(
                attention(
                    s.hidden,
                    heads[i],
                    s.kv_heads,
                    s.head_dim,
                    bias=bias,
                    output_bias=bias,
                    gate=gate,
                    head_gate=not gate,
                    vectors=2 * s.head_dim,
                    window=seen[i],
                ),
            ),
            feed_forwards=(feed(i),),
            vectors=norms * s.hidden,
            norms=norms,
        )
        for i in range(s.layers)
    ]
    return assemble(f, s, layers, tied=False)


def afmoe(f: Fields) -> Decoder:
    """Arcee's Trinity: gated attention, norms on both sides of blocks, a learned correction of scores."""
    hidden, width, experts = f.int("hidden_size"), f.int("moe_intermediate_size"), f.int("num_experts")
    shared = width * f.int("num_shared_experts", default=0, least=0)
    moe = mixture(hidden, width, experts, f.int("num_experts_per_tok"), shared=shared, vectors=experts)
    first, dense = f.int("num_dense_layers", default=0, least=0), mlp(hidden, f.int("intermediate_size"))
    heads = [f.int("num_attention_heads")] * f.int("num_hidden_layers")
    return gated_mixture(f, norms=4, heads=heads, gate=1, feed=lambda i: dense if i < first else moe)


def laguna(f: Fields) -> Decoder:
    """Laguna: heads that differ by layer, attention gated per head or per value, a learned correction of scores."""
    hidden, experts, layers = f.int("hidden_size"), f.int("num_experts"), f.int("num_hidden_layers")
    moe = mixture(
        hidden,
        f.int("moe_intermediate_size"),
        experts,
        f.int("num_experts_per_tok"),
        shared=f.int("shared_expert_intermediate_size", default=0, least=0),
        vectors=experts,
    )
    dense = mlp(hidden, f.int("intermediate_size"))
    sparse = _sparse_layers(f, layers) if "mlp_layer_types" in f else [i > 0 for i in range(layers)]
    heads = f.list("num_attention_heads_per_layer", layers) or [f.int("num_attention_heads")] * layers
    gate = 0 if f.raw("gating", default=True) in (True, "per-head") else 1
    return gated_mixture(f, norms=2, heads=heads, gate=gate, feed=lambda i: moe if sparse[i] else dense)


def step35(f: Fields) -> Decoder:
    """Step 3.5: more heads in layers with a window than in others, attention gated per head, the listed layers mixtures.

    Its draft layers, which are not like its last layer, are not described.
    """
    layers = f.int("num_hidden_layers")
    if "attention_other_setting" not in f and "num_sliding_attention_heads" in f:  # as transformers names the same
        slides = [str(kind) == "sliding_attention" for kind in f.list("layer_types", layers) or [""] * layers]
        if f.int("share_expert_dim") % f.int("moe_intermediate_size"):
            raise ConfigError(
                "config.json: share_expert_dim is no multiple of moe_intermediate_size", argument="share_expert_dim"
            )
        heads = [f.int("num_sliding_attention_heads" if one else "num_attention_heads") for one in slides]
        feed = deepseek_mixture(f.filled(n_shared_experts=f.int("share_expert_dim") // f.int("moe_intermediate_size")))
        return gated_mixture(f, norms=2, heads=heads, gate=0, feed=feed)
    other, groups = f.sub("attention_other_setting"), f.int("num_attention_groups")
    listed = str(f.raw("moe_layers_enum"))
    if other.int("num_attention_groups") != groups:
        raise ConfigError(
            "config.json: layers with unlike num_attention_groups are not described", argument="num_attention_groups"
        )
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", listed):
        raise ConfigError(
            f"config.json: moe_layers_enum is {shortened(listed)}; numbers of layers such as 3,4,5 or 3-44 are needed",
            argument="moe_layers_enum",
            value=shortened(listed),
        )
    kinds = [str(kind) for kind in f.raw("layer_types")[:layers]]
    if len(kinds) < layers:
        raise ConfigError(
            f"config.json: layer_types has {len(kinds)} entries for {layers} layers", argument="layer_types"
        )
    own = f.filled(num_key_value_heads=groups, layer_types=kinds)
    ends = re.findall(r"(\d+)(?:-(\d+))?", listed)
    mixed_layers = {i for first, last in ends for i in range(int(first), min(int(last or first), layers) + 1)}
    moe = mixture(
        f.int("hidden_size"),
        f.int("moe_intermediate_size"),
        f.int("moe_num_experts"),
        f.int("moe_top_k"),
        shared=f.int("share_expert_dim"),
    )
    dense = mlp(f.int("hidden_size"), f.int("intermediate_size"))
    heads = [(other if kind == other.text("attention_type") else f).int("num_attention_heads") for kind in kinds]
    return gated_mixture(own, norms=2, heads=heads, gate=0, feed=lambda i: moe if i in mixed_layers else dense)


def hunyuan3(f: Fields) -> Decoder:
    """Hunyuan 3: norms on queries and keys, shared experts."""
    return mixed(f, deepseek_mixture(f), qk_norm="head")


def minicpm3(f: Fields) -> Decoder:
    """MiniCPM 3: dense, on latent attention, tied head."""
    value = f.int("v_head_dim", default=f.int("hidden_size") // f.int("num_attention_heads"))
    return deepseek(f.filled(v_head_dim=value, tie_word_embeddings=f.flag("tie_word_embeddings", True)))


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
    """Return which layers are mixtures, from whichever of the four spellings a family uses."""
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
    return mixed(f, feed, qkv_bias=qkv_bias, out_bias=out_bias, qk_norm=qk_norm, window=qwen_windows(f))


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
    """Return the feed-forward of each layer, from the DeepSeek and GLM field names."""
    hidden, width = f.int("hidden_size"), f.int("moe_intermediate_size")
    latent = f.optional_int("routed_expert_hidden_size")
    moe = mixture(
        hidden,
        width,
        f.int("n_routed_experts", "num_experts"),
        _chosen(f),
        shared=width * f.int("n_shared_experts", "num_shared_experts", default=0, least=0),
        expert_input=latent,
        vectors=(latent or 0) * f.flag("latent_moe_use_norm", False),
        groups=_groups(f),
    )
    sparse = _sparse_layers(f, f.int("num_hidden_layers"))
    dense = mlp(hidden, f.int("intermediate_size")) if not all(sparse) else None
    return lambda i: moe if sparse[i] or dense is None else dense


def _groups(f: Fields) -> tuple[int, int]:
    """Return the groups of experts and those that a token chooses from, 1 of 1 where the router considers all experts."""
    groups = f.optional_int("n_group", "num_expert_group") or 1
    chosen = f.optional_int("topk_group") or groups
    limited = groups > 1 and f.text("topk_method") != "greedy"
    return (groups, min(groups, chosen)) if limited else (1, 1)


def _chosen(f: Fields) -> int:
    """Return the experts per token, 0 where the configuration does not state them, so that the active count is unknown."""
    return f.int(
        "num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts", default=0, least=0
    )


def deepseek(f: Fields, *, sparse: bool = False, shared_indexer: bool = False) -> Decoder:
    """DeepSeek V2, V3, V3.2, Kimi K2 and the GLM models on latent attention; DeepSeekMoE before them on plain attention."""
    if "kv_lora_rank" not in f and f.text("model_type") == "deepseek":
        return mixed(f, deepseek_mixture(f), out_bias=f.flag("attention_bias", False))
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
    return with_draft(built, drafts)


def with_draft(decoder: Decoder, drafts: int) -> Decoder:
    """Return a decoder with `drafts` draft layers shaped like its last layer."""
    return replace(decoder, draft=decoder.layers[-1] if drafts else None, draft_layers=drafts)


def bailing(f: Fields) -> Decoder:
    """Ling and Ring: fused projections, norms on queries and keys where the release has them."""
    if f.flag("use_bias", False):
        raise ConfigError(
            "config.json: use_bias: experts with biases are not described", argument="use_bias", value=True
        )
    norm = "head" if f.flag("use_qk_norm", False) else ""
    built = mixed(f, deepseek_mixture(f), qkv_bias=f.flag("use_qkv_bias", False), out_bias=False, qk_norm=norm)
    return with_draft(built, f.int("num_nextn_predict_layers", default=0, least=0))


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
    dense = mlp(hidden, f.int("prefix_dense_intermediate_size", default=inner))
    return mixed(
        f,
        lambda i: moe if sparse[i] else dense,
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
