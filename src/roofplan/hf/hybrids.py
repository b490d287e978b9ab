"""Decoders with states of constant size: state space, linear attention and recurrences, and their hybrids with attention."""

from __future__ import annotations

import math
from dataclasses import replace

from roofplan.errors import ConfigError
from roofplan.hf.blocks import (
    attention,
    gated_delta,
    latent_attention,
    linear,
    mamba,
    mamba2,
    mixture,
    mlp,
    short_convolution,
)
from roofplan.hf.decoders import Decoder
from roofplan.hf.fields import Fields
from roofplan.hf.mixtures import deepseek_mixture, qwen_feed_forward
from roofplan.records.model import Dense, FeedForward, Layer, Linear, Mixer, Recurrence


def decoder_of(
    f: Fields, layers: list[Layer], hidden: int, *, tied: bool, final: int, name: str = "model.layers", **more: object
) -> Decoder:
    """Return a decoder with the given layers, and with vocabulary and positions from the configuration."""
    return Decoder(
        layers=tuple(layers),
        hidden=hidden,
        vocabulary=f.int("vocab_size"),
        tied=f.flag("tie_word_embeddings", tied),
        final=final,
        max_positions=f.positions("max_position_embeddings"),
        name=name,
        **more,  # type: ignore[arg-type]
    )


def _kinds(f: Fields, layers: int, names: tuple[str, ...] = ("layer_types", "layers_block_type")) -> list[str]:
    for name in names:
        kinds = f.list(name, layers)
        if kinds is not None:
            return [str(kind) for kind in kinds]
    raise ConfigError(
        f"config.json lacks {' or '.join(names)}: which layers are attention is not guessed", argument=names[0]
    )


_LINEAR = {"linear_attention", "mamba", "recurrent", "conv", "m", "hybrid_mamba"}


def qwen_next(f: Fields) -> Decoder:
    """Qwen3-Next, Qwen 3.5 and 3.6: three gated delta layers to one gated attention layer."""
    hidden, layers, heads = f.int("hidden_size"), f.int("num_hidden_layers"), f.int("num_attention_heads")
    kinds = f.list("layer_types", layers)
    if kinds is None:
        every = f.int("full_attention_interval")
        kinds = ["full_attention" if (i + 1) % every == 0 else "linear_attention" for i in range(layers)]
    delta = gated_delta(f, hidden)
    head_dim = f.int("head_dim")
    full = attention(
        hidden,
        heads,
        f.int("num_key_value_heads"),
        head_dim,
        gate=int(f.flag("attn_output_gate", True)),
        vectors=2 * head_dim,
        bias=f.flag("attention_bias", False),
        output_bias=f.flag("attention_bias", False),
    )
    feed = qwen_feed_forward(f)
    built = [
        Layer(mixers=(delta if kind in _LINEAR else full,), feed_forwards=(feed(i),), vectors=2 * hidden)
        for i, kind in enumerate(kinds)
    ]
    drafts = f.int("mtp_num_hidden_layers", default=0, least=0)
    draft = Layer(mixers=(full,), feed_forwards=(feed(layers - 1),), vectors=2 * hidden) if drafts else None
    return decoder_of(f, built, hidden, tied=False, final=hidden, draft=draft, draft_layers=drafts)


def jamba(f: Fields) -> Decoder:
    """Jamba: one attention layer in eight, a mixture every second layer."""
    hidden, layers, inner = f.int("hidden_size"), f.int("num_hidden_layers"), f.int("intermediate_size")
    rank = f.raw("mamba_dt_rank", default="auto")
    rank = math.ceil(hidden / 16) if rank == "auto" else int(rank)
    state = mamba(
        hidden,
        hidden * f.int("mamba_expand"),
        f.int("mamba_d_state"),
        f.int("mamba_d_conv"),
        rank,
        conv_bias=f.flag("mamba_conv_bias", True),
        bias=f.flag("mamba_proj_bias", False),
        norms=True,
    )
    heads = f.int("num_attention_heads")
    full = attention(hidden, heads, f.int("num_key_value_heads"), hidden // heads)
    experts = f.int("num_experts")
    moe: FeedForward = (
        mixture(hidden, inner, experts, f.int("num_experts_per_tok"), prefix="feed_forward")
        if experts > 1
        else mlp(hidden, inner)
    )
    dense = mlp(hidden, inner)
    attn_every, attn_at = f.int("attn_layer_period"), f.int("attn_layer_offset", least=0)
    moe_every, moe_at = f.int("expert_layer_period"), f.int("expert_layer_offset", least=0)
    built = [
        Layer(
            mixers=(full if i % attn_every == attn_at else state,),
            feed_forwards=(moe if i % moe_every == moe_at else dense,),
            vectors=2 * hidden,
        )
        for i in range(layers)
    ]
    return decoder_of(f, built, hidden, tied=False, final=hidden)


def _granite_mamba(f: Fields, hidden: int, *, norm: bool = True) -> Recurrence:
    return mamba2(
        hidden,
        f.int("mamba_n_heads"),
        f.int("mamba_d_head", default=hidden * f.int("mamba_expand", default=2) // f.int("mamba_n_heads")),
        f.int("mamba_n_groups"),
        f.int("mamba_d_state"),
        f.int("mamba_d_conv"),
        conv_bias=f.flag("mamba_conv_bias", True),
        bias=f.flag("mamba_proj_bias", False),
        norm=norm,
        prefix="mamba",
    )


def granite_hybrid(f: Fields) -> Decoder:
    """Granite 4: Mamba-2 or attention, then a mixture beside a shared feed-forward."""
    hidden, layers, heads = f.int("hidden_size"), f.int("num_hidden_layers"), f.int("num_attention_heads")
    kinds = _kinds(f, layers)
    bias = f.flag("attention_bias", False)
    full = attention(hidden, heads, f.int("num_key_value_heads"), hidden // heads, bias=bias, output_bias=bias)
    state = _granite_mamba(f, hidden) if any(kind in _LINEAR for kind in kinds) else None
    experts, shared = (
        f.int("num_local_experts", default=0, least=0),
        f.int("shared_intermediate_size", default=0, least=0),
    )
    if experts:
        feed: FeedForward = mixture(
            hidden, f.int("intermediate_size"), experts, f.int("num_experts_per_tok"), shared=shared
        )
    else:
        feed = mlp(hidden, shared, prefix="shared_mlp")
    built = [
        Layer(mixers=(state if state and kind in _LINEAR else full,), feed_forwards=(feed,), vectors=2 * hidden)
        for kind in kinds
    ]
    return decoder_of(f, built, hidden, tied=False, final=hidden)


def bamba(f: Fields) -> Decoder:
    """Bamba: Mamba-2 with attention at the listed layers."""
    hidden, layers, heads = f.int("hidden_size"), f.int("num_hidden_layers"), f.int("num_attention_heads")
    at = set(f.list("attn_layer_indices") or [])
    bias = f.flag("attention_bias", False)
    full = attention(hidden, heads, f.int("num_key_value_heads"), hidden // heads, bias=bias, output_bias=bias)
    state, feed = _granite_mamba(f, hidden), mlp(hidden, f.int("intermediate_size"), bias=f.flag("mlp_bias", False))
    built = [
        Layer(mixers=(full if i in at else state,), feed_forwards=(feed,), vectors=2 * hidden) for i in range(layers)
    ]
    return decoder_of(f, built, hidden, tied=False, final=hidden)


def falcon_h1(f: Fields) -> Decoder:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    hidden, layers, heads = f.int("hidden_size"), f.int("num_hidden_layers"), f.int("num_attention_heads")
    bias = f.flag("attention_bias", False)
    full = attention(
        hidden,
        heads,
        f.int("num_key_value_heads"),
        f.int("head_dim", default=hidden // heads),
        bias=bias,
        output_bias=bias,
    )
    state = _granite_mamba(f, hidden, norm=f.flag("mamba_rms_norm", False))
    feed = mlp(hidden, f.int("intermediate_size"), bias=f.flag("mlp_bias", False))
    return decoder_of(
        f,
        [Layer(mixers=(full, state), feed_forwards=(feed,), vectors=2 * hidden)] * layers,
        hidden,
        tied=False,
        final=hidden,
    )


_PATTERN = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


_NAMES = {"linear_attention": "mamba", "full_attention": "attention", "mamba2": "mamba"}


def nemotron_h(f: Fields) -> Decoder:
    """Nemotron-H and Nemotron 3: one mixer or one feed-forward per listed layer, squared ReLU without a gate."""
    hidden = f.int("hidden_size")
    pattern = f.text("hybrid_override_pattern")
    if pattern:
        kinds = [_PATTERN[symbol] for symbol in pattern if symbol in _PATTERN]
    else:
        kinds = [_NAMES.get(str(kind), str(kind)) for kind in f.raw("layers_block_type", "layer_types")]
    layers = f.int("num_hidden_layers", default=len(kinds))
    if len(kinds) != layers:
        raise ConfigError(
            f"config.json: the layer pattern has {len(kinds)} entries for num_hidden_layers = {layers}",
            argument="hybrid_override_pattern",
            value=pattern,
        )
    made = {kind: _nemotron_layer(f, hidden, kind) for kind in set(kinds)}
    return decoder_of(
        f,
        [made[kind] for kind in kinds],
        hidden,
        tied=False,
        final=hidden,
        draft_layers=f.int("num_nextn_predict_layers", default=0, least=0),
    )


def _nemotron_layer(f: Fields, hidden: int, kind: str) -> Layer:
    if kind == "mamba":
        mixer: Mixer = mamba2(
            hidden,
            f.int("mamba_num_heads"),
            f.int("mamba_head_dim"),
            f.int("n_groups"),
            f.int("ssm_state_size"),
            f.int("conv_kernel"),
            conv_bias=f.flag("use_conv_bias", True),
            bias=f.flag("mamba_proj_bias", False) or f.flag("use_bias", False),
        )
        return Layer(mixers=(mixer,), vectors=hidden)
    if kind == "attention":
        heads, bias = f.int("num_attention_heads"), f.flag("attention_bias", False)
        head_dim = f.int("head_dim", "attention_head_dim", default=hidden // heads)
        return Layer(
            mixers=(attention(hidden, heads, f.int("num_key_value_heads"), head_dim, bias=bias, output_bias=bias),),
            vectors=hidden,
        )
    if kind == "mlp":
        return Layer(
            feed_forwards=(mlp(hidden, f.int("intermediate_size"), gated=False, bias=f.flag("mlp_bias", False)),),
            vectors=hidden,
        )
    if kind == "moe":
        moe = mixture(
            hidden,
            f.int("moe_intermediate_size"),
            f.int("n_routed_experts"),
            f.int("num_experts_per_tok"),
            gated=False,
            shared=f.int("moe_shared_expert_intermediate_size", default=0, least=0)
            * f.int("n_shared_experts", default=1, least=0),
            expert_input=f.optional_int("moe_latent_size"),
        )
        return Layer(feed_forwards=(moe,), vectors=hidden)
    raise ConfigError(
        f"config.json: layer kind {kind!r} is not known in nemotron_h", argument="layers_block_type", value=kind
    )


def lfm2(f: Fields) -> Decoder:
    """LFM2: short convolutions and a few attention layers; the feed-forward width is adjusted by its own rule."""
    hidden, layers, heads = f.int("hidden_size"), f.int("num_hidden_layers"), f.int("num_attention_heads")
    inner = f.int("intermediate_size", "block_ff_dim")
    if f.flag("block_auto_adjust_ff_dim", True):
        multiple = f.int("block_multiple_of")
        inner = int(f.raw("block_ffn_dim_multiplier", default=1.0) * int(2 * inner / 3))
        inner = multiple * math.ceil(inner / multiple)
    kinds = f.list("layer_types", layers)
    at = {i for i, kind in enumerate(kinds) if kind == "full_attention"} if kinds else set(f.raw("full_attn_idxs"))
    full = attention(hidden, heads, f.int("num_key_value_heads"), hidden // heads, vectors=2 * (hidden // heads))
    short = short_convolution(hidden, f.int("conv_L_cache"), bias=f.flag("conv_bias", False))
    feed = mlp(hidden, inner, prefix="feed_forward")
    built = [
        Layer(mixers=(full if i in at else short,), feed_forwards=(feed,), vectors=2 * hidden) for i in range(layers)
    ]
    return decoder_of(f, built, hidden, tied=True, final=hidden)


def lfm2_moe(f: Fields) -> Decoder:
    """LFM2 mixture: short convolutions and a few attention layers, first layers dense."""
    hidden, layers, heads = f.int("hidden_size"), f.int("num_hidden_layers"), f.int("num_attention_heads")
    moe = mixture(hidden, f.int("moe_intermediate_size"), f.int("num_experts"), f.int("num_experts_per_tok"))
    first, dense = f.int("num_dense_layers", least=0), mlp(hidden, f.int("intermediate_size"), prefix="feed_forward")
    head_dim = hidden // heads
    full = attention(hidden, heads, f.int("num_key_value_heads"), head_dim, vectors=2 * head_dim)
    short = short_convolution(hidden, f.int("conv_L_cache"), bias=f.flag("conv_bias", False))
    built = [
        Layer(
            mixers=(full if kind == "full_attention" else short,),
            feed_forwards=(dense if i < first else moe,),
            vectors=2 * hidden,
        )
        for i, kind in enumerate(_kinds(f, layers))
    ]
    return decoder_of(f, built, hidden, tied=True, final=hidden)


def lfm3(f: Fields) -> Decoder:
    """LFM3: short convolutions, windowed and full attention with a gate per head, norms on both sides."""
    hidden, layers, heads = f.int("hidden_size"), f.int("num_hidden_layers"), f.int("num_attention_heads")
    head_dim, kinds = f.int("head_dim"), _kinds(f, layers)
    short = short_convolution(hidden, f.int("conv_L_cache"), bias=f.flag("conv_bias", False))
    bias = f.flag("attention_bias", False)
    feed = mlp(hidden, f.int("intermediate_size"), prefix="feed_forward")

    def mixer(kind: str) -> Mixer:
        if kind == "conv":
            return short
        window = f.int("sliding_window") if kind == "sliding_attention" else None
        gated = f.flag("use_attention_gate", False)
        return attention(
            hidden,
            heads,
            f.int("num_key_value_heads"),
            head_dim,
            vectors=2 * head_dim,
            window=window,
            head_gate=gated,
            bias=bias,
        )

    norms = 4 if f.flag("use_sandwich_norm", False) else 2
    built = [Layer(mixers=(mixer(kind),), feed_forwards=(feed,), vectors=norms * hidden) for kind in kinds]
    return decoder_of(f, built, hidden, tied=True, final=hidden)


def zamba(f: Fields) -> Decoder:
    """Zamba: Mamba layers, some preceded by one attention block whose weights all of them share."""
    hidden, layers, heads = f.int("hidden_size"), f.int("num_hidden_layers"), f.int("num_attention_heads")
    width, head_dim = f.int("attention_hidden_size"), f.int("attention_head_dim")
    rank = f.raw("mamba_dt_rank", default="auto")
    rank = math.ceil(hidden / 16) if rank == "auto" else int(rank)
    state = mamba(
        hidden,
        hidden * f.int("mamba_expand"),
        f.int("mamba_d_state"),
        f.int("mamba_d_conv"),
        rank,
        conv_bias=f.flag("mamba_conv_bias", True),
        bias=f.flag("mamba_proj_bias", False),
        heads=f.int("n_mamba_heads", default=1),
    )
    shared = attention(
        hidden, heads, f.int("num_key_value_heads"), head_dim, query_input=width, prefix="shared_transf.self_attn"
    )
    feed = mlp(hidden, f.int("intermediate_size"), prefix="shared_transf.feed_forward")
    shared_parameters = shared.parameters + feed.parameters + width + hidden
    join = Dense(groups=((linear("linear", hidden, hidden),),))
    plain = Layer(mixers=(state,), vectors=hidden)
    hybrid = Layer(
        mixers=(shared, state),
        feed_forwards=(feed, join),
        vectors=width + 2 * hidden,
        shared="shared_transf",
        shared_parameters=shared_parameters,
    )
    built = [hybrid if kind == "hybrid" else plain for kind in _kinds(f, layers, ("layers_block_type", "layer_types"))]
    return decoder_of(f, built, hidden, tied=True, final=hidden)


def zamba2(f: Fields) -> Decoder:
    """Zamba 2: Mamba-2 layers and alternating shared blocks with low-rank adapters per place of use."""
    hidden, heads = f.int("hidden_size"), f.int("num_attention_heads")
    layers, rank = f.int("num_hidden_layers"), f.int("adapter_rank")
    kinds = _kinds(f, layers, ("layers_block_type", "layer_types"))
    width, inner, blocks = (
        f.int("attention_hidden_size", default=2 * hidden),
        f.int("intermediate_size"),
        f.int("num_mem_blocks", default=1),
    )
    mamba_heads = f.int("n_mamba_heads")
    state = mamba2(
        hidden,
        mamba_heads,
        f.int("mamba_headdim", default=f.int("mamba_expand") * hidden // mamba_heads),
        f.int("mamba_ngroups"),
        f.int("mamba_d_state"),
        f.int("mamba_d_conv"),
        conv_bias=f.flag("use_conv_bias", True),
        bias=f.flag("add_bias_linear", False),
    )
    shared = attention(
        hidden,
        heads,
        f.int("num_key_value_heads"),
        f.int("attention_head_dim", default=2 * hidden // heads),
        query_input=width,
    )
    feed = mlp(hidden, inner, prefix="feed_forward")
    uses = sum(kind == "hybrid" for kind in kinds)
    adapter = hidden * rank + rank * 2 * inner
    if f.flag("use_shared_attention_adapter", False):
        adapter += 3 * (width * rank + rank * width)
    feeds = [replace(feed, vectors=len(range(block, uses, blocks)) * adapter) for block in range(blocks)]
    join = Dense(groups=((linear("linear", hidden, hidden),),))
    plain = Layer(mixers=(state,), vectors=hidden)
    built, place = [], 0
    for kind in kinds:
        if kind != "hybrid":
            built.append(plain)
            continue
        block = place % blocks
        built.append(
            Layer(
                mixers=(shared, state),
                feed_forwards=(feeds[block], join),
                vectors=width + 2 * hidden,
                shared=f"block{block}",
                shared_parameters=shared.parameters + feeds[block].parameters + width + hidden,
            )
        )
        place += 1
    return decoder_of(f, built, hidden, tied=True, final=hidden)


def recurrent_gemma(f: Fields) -> Decoder:
    """RecurrentGemma (Griffin): two gated linear recurrences to one windowed attention."""
    hidden, heads, layers = f.int("hidden_size"), f.int("num_attention_heads"), f.int("num_hidden_layers")
    width, kernel = f.int("lru_width", default=hidden), f.int("conv1d_width")
    block = width // heads
    recurrence = Recurrence(
        kind="rg-lru",
        groups=(
            (
                linear("temporal_block.linear_y", hidden, width, bias=True),
                linear("temporal_block.linear_x", hidden, width, bias=True),
            ),
            (
                linear("temporal_block.rg_lru.input_gate", block, block, bias=True, copies=heads),
                linear("temporal_block.rg_lru.recurrent_gate", block, block, bias=True, copies=heads),
            ),
            (linear("temporal_block.linear_out", width, hidden, bias=True),),
        ),
        vectors=width * kernel + 2 * width,
        state_elements=width,
        convolution_elements=width * (kernel - 1),
        update_flops=10 * width + 2 * width * kernel,
    )
    bias = f.flag("attention_bias", False)
    local = attention(
        hidden,
        heads,
        f.int("num_key_value_heads", default=heads),
        f.int("head_dim", default=hidden // heads),
        bias=bias,
        output_bias=True,
        window=f.int("attention_window_size"),
        prefix="temporal_block",
    )
    feed = mlp(hidden, f.int("intermediate_size") // 2, bias=True, prefix="mlp_block")
    name = "block_types" if "block_types" in f else "_block_types"
    types = f.list(name)
    if not types or not set(types) <= {"attention", "recurrent"}:
        raise ConfigError(
            f"config.json: {name} must be a list of attention and recurrent", argument=name, value=str(types)
        )
    built = [
        Layer(
            mixers=(local if types[i % len(types)] == "attention" else recurrence,),
            feed_forwards=(feed,),
            vectors=2 * hidden,
        )
        for i in range(layers)
    ]
    return replace(decoder_of(f, built, hidden, tied=True, final=hidden), max_positions=None)


def minimax(f: Fields) -> Decoder:
    """MiniMax-Text-01 and M1: lightning (linear) attention with a softmax layer every eighth."""
    hidden, layers, heads = f.int("hidden_size"), f.int("num_hidden_layers"), f.int("num_attention_heads")
    head_dim = f.int("head_dim", default=hidden // heads)
    kinds = f.list("layer_types", layers)
    if kinds is None:
        types = f.list("attn_type_list", layers)
        if types is None:
            raise ConfigError(
                "config.json lacks layer_types or attn_type_list: which layers are attention is not guessed",
                argument="layer_types",
            )
        kinds = ["full_attention" if kind == 1 else "linear_attention" for kind in types]
    width = heads * head_dim
    lightning = Recurrence(
        kind="lightning",
        groups=(
            (
                linear("self_attn.qkv_proj", hidden, 3 * width, split="heads"),
                linear("self_attn.output_gate", hidden, width, split="heads"),
            ),
            (linear("self_attn.out_proj", width, hidden, split="heads"),),
        ),
        vectors=width,
        state_elements=heads * head_dim * head_dim,
        update_flops=4 * heads * head_dim * head_dim,
    )
    full = attention(hidden, heads, f.int("num_key_value_heads"), head_dim)
    moe = mixture(hidden, f.int("intermediate_size"), f.int("num_local_experts"), f.int("num_experts_per_tok"))
    built = [
        Layer(mixers=(full if kind == "full_attention" else lightning,), feed_forwards=(moe,), vectors=2 * hidden)
        for kind in kinds
    ]
    return decoder_of(f, built, hidden, tied=False, final=hidden)


def delta_layer(
    f: Fields, heads: int, width: int, kernel: int, *, full_gate: bool = False, full_decay: bool = False
) -> Recurrence:
    """Return a Kimi delta layer (arXiv 2510.26692), whose output gate and decay are of low rank unless `full_gate` and `full_decay`."""
    hidden, total = f.int("hidden_size"), heads * width
    entrance: list[Linear] = [linear(f"self_attn.{one}_proj", hidden, total, split="heads") for one in ("q", "k", "v")]
    inner: list[Linear] = []
    for name, full in (("f", full_decay), ("g", full_gate)):
        if full:
            entrance.append(linear(f"self_attn.{name}_proj", hidden, total, split="heads"))
        else:
            entrance.append(linear(f"self_attn.{name}_a_proj", hidden, width, split="none"))
            inner.append(linear(f"self_attn.{name}_b_proj", width, total, split="heads"))
    entrance.append(linear("self_attn.b_proj", hidden, heads, split="heads"))
    leave = linear("self_attn.o_proj", total, hidden, split="heads")
    return Recurrence(
        kind="kda",
        groups=tuple(group for group in (tuple(entrance), tuple(inner), (leave,)) if group),
        # decay rates of the heads are stored in a power of two: Kimi K3 keeps 128 numbers for 96 heads
        vectors=3 * total * kernel + total + (1 << (heads - 1).bit_length()) + width,
        state_elements=heads * width * width,
        convolution_elements=3 * total * kernel,
        update_flops=7 * heads * width * width + 6 * total * kernel,
    )


def kimi_linear(f: Fields) -> Decoder:
    """Kimi Linear and the text model of Kimi K3: three Kimi delta layers to one latent attention layer without positions.

    In K3 experts work in a latent space, attention has an output gate, and every half of a layer weighs the outputs of
    earlier blocks of layers (attention residuals: a norm and a query vector each).
    """
    hidden, layers = f.int("hidden_size"), f.int("num_hidden_layers")
    nested = f.values.get("linear_attn_config")
    full_gate = False
    if isinstance(nested, dict):
        linear_f = Fields(nested, "linear_attn_config.")
        full_at = {int(i) - 1 for i in linear_f.raw("full_attn_layers")}
        heads, width, kernel = (
            linear_f.int("num_heads"),
            linear_f.int("head_dim"),
            linear_f.int("short_conv_kernel_size"),
        )
        full_gate = linear_f.flag("use_full_rank_gate", False)
    else:
        full_at = {i for i, kind in enumerate(_kinds(f, layers)) if kind == "full_attention"}
        heads, width, kernel = f.int("linear_num_heads"), f.int("linear_head_dim"), f.int("linear_conv_kernel_dim")
    delta = delta_layer(f, heads, width, kernel, full_gate=full_gate)
    full = latent_attention(f, hidden, gate=int(f.flag("mla_use_output_gate", False)))
    feed = deepseek_mixture(f)
    residual = 2 * hidden * (f.optional_int("attn_res_block_size") is not None)
    built = [
        Layer(mixers=(full if i in full_at else delta,), feed_forwards=(feed(i),), vectors=2 * (hidden + residual))
        for i in range(layers)
    ]
    return decoder_of(f, built, hidden, tied=False, final=hidden + residual)
