"""Decoders from before Llama: learned positions, biases, LayerNorm, parallel blocks."""

from __future__ import annotations

from roofplan.errors import ConfigError
from roofplan.hf.blocks import attention, mlp
from roofplan.hf.decoders import Decoder, windows
from roofplan.hf.fields import Fields
from roofplan.records.model import Layer


def _uniform(
    *,
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    inner: int,
    vocabulary: int,
    tied: bool,
    qkv_bias: bool,
    out_bias: bool,
    mlp_bias: bool,
    norms: int,
    around: int,
    norm_width: int = 2,
    head_bias: bool = False,
    positions: int | None = None,
    seen: list[int | None] | None = None,
    vectors: int = 0,
    name: str = "transformer.h",
    embedding_width: int | None = None,
    warnings: tuple[str, ...] = (),
) -> Decoder:
    """Return `layers` equal layers with ungated feed-forwards; `around` counts the parameters outside them."""
    windows_seen = seen or [None] * layers
    built = [
        Layer(
            mixers=(
                attention(
                    hidden,
                    heads,
                    kv_heads,
                    hidden // heads,
                    bias=qkv_bias,
                    output_bias=out_bias,
                    window=windows_seen[i],
                    vectors=vectors,
                ),
            ),
            feed_forwards=(mlp(hidden, inner, gated=False, bias=mlp_bias),),
            vectors=norms * norm_width * hidden,
            norms=norms,
            layer_norm=norm_width == 2,
        )
        for i in range(layers)
    ]
    return Decoder(
        layers=tuple(built),
        hidden=hidden,
        vocabulary=vocabulary,
        tied=tied,
        final=around,
        head_bias=head_bias,
        max_positions=positions,
        name=name,
        embedding_width=embedding_width,
        warnings=warnings,
    )


def gpt2(f: Fields) -> Decoder:
    """GPT-2 and the GPT-3 shape: learned positions, tied head, all biases; ``n_inner`` null means 4x."""
    hidden, positions = f.int("n_embd"), f.int("n_positions", "n_ctx")
    return _uniform(
        hidden=hidden,
        layers=f.int("n_layer"),
        heads=f.int("n_head"),
        kv_heads=f.int("n_head"),
        inner=f.int("n_inner", default=4 * hidden),
        vocabulary=f.int("vocab_size"),
        tied=f.flag("tie_word_embeddings", True),
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        norms=2,
        around=positions * hidden + 2 * hidden,
        positions=positions,
    )


def gpt_bigcode(f: Fields) -> Decoder:
    """StarCoder 1 and SantaCoder: GPT-2 with one KV head."""
    hidden, positions, heads = f.int("n_embd"), f.int("n_positions"), f.int("n_head")
    return _uniform(
        hidden=hidden,
        layers=f.int("n_layer"),
        heads=heads,
        kv_heads=1 if f.flag("multi_query", True) else heads,
        inner=f.int("n_inner", default=4 * hidden),
        vocabulary=f.int("vocab_size"),
        tied=f.flag("tie_word_embeddings", True),
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        norms=2,
        around=positions * hidden + 2 * hidden,
        positions=positions,
    )


def gptj(f: Fields) -> Decoder:
    """GPT-J and CodeGen: parallel block with one norm, bias on the head."""
    hidden, heads = f.int("n_embd"), f.int("n_head")
    return _uniform(
        hidden=hidden,
        layers=f.int("n_layer"),
        heads=heads,
        kv_heads=heads,
        inner=f.int("n_inner", default=4 * hidden),
        vocabulary=f.int("vocab_size"),
        tied=f.flag("tie_word_embeddings", False),
        qkv_bias=False,
        out_bias=False,
        mlp_bias=True,
        norms=1,
        around=2 * hidden,
        head_bias=True,
        positions=f.positions("n_positions"),
    )


def gpt_neo(f: Fields) -> Decoder:
    """GPT-Neo: alternating local attention of ``window_size``, biases except on q, k, v."""
    hidden, heads, layers = f.int("hidden_size"), f.int("num_heads"), f.int("num_layers")
    positions, kinds = f.int("max_position_embeddings"), f.list("attention_layers", layers)
    if kinds is None:
        kinds = [kind for names, repeat in f.raw("attention_types") for _ in range(repeat) for kind in names]
        if len(kinds) != layers:
            raise ConfigError(
                f"config.json: attention_types describes {len(kinds)} layers for num_layers {layers}",
                argument="attention_types",
                value=len(kinds),
            )
    window = f.int("window_size")
    return _uniform(
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=heads,
        inner=f.int("intermediate_size", default=4 * hidden),
        vocabulary=f.int("vocab_size"),
        tied=f.flag("tie_word_embeddings", True),
        qkv_bias=False,
        out_bias=True,
        mlp_bias=True,
        norms=2,
        around=positions * hidden + 2 * hidden,
        positions=positions,
        seen=[window if k == "local" else None for k in kinds],
    )


def gpt_neox(f: Fields) -> Decoder:
    """GPT-NeoX and Pythia: parallel or sequential block with two norms."""
    hidden, heads = f.int("hidden_size"), f.int("num_attention_heads")
    bias = f.flag("attention_bias", True)
    return _uniform(
        hidden=hidden,
        layers=f.int("num_hidden_layers"),
        heads=heads,
        kv_heads=heads,
        inner=f.int("intermediate_size"),
        vocabulary=f.int("vocab_size"),
        tied=f.flag("tie_word_embeddings", False),
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=True,
        norms=2,
        around=2 * hidden,
        positions=f.positions("max_position_embeddings"),
        name="gpt_neox.layers",
    )


_OPT_POSITIONS = 2048  # every published OPT checkpoint; Zhang et al. 2022, arXiv 2205.01068, table 1 and section 2.1


def opt(f: Fields) -> Decoder:
    """OPT and Galactica: learned positions with two extra rows, optional narrower embedding with projections (350m)."""
    hidden, heads = f.int("hidden_size"), f.int("num_attention_heads")
    width = f.int("word_embed_proj_dim", default=hidden)
    positions = f.int("max_position_embeddings", default=_OPT_POSITIONS)
    warned = (
        ()
        if "max_position_embeddings" in f
        else (f"max_position_embeddings is absent: {_OPT_POSITIONS:,} as in every OPT checkpoint",)
    )
    norm_width = 2 * f.flag("layer_norm_elementwise_affine", True)
    final_norm = norm_width * hidden * f.flag("do_layer_norm_before", True)
    return _uniform(
        hidden=hidden,
        layers=f.int("num_hidden_layers"),
        heads=heads,
        kv_heads=heads,
        inner=f.int("ffn_dim"),
        vocabulary=f.int("vocab_size"),
        tied=f.flag("tie_word_embeddings", True),
        qkv_bias=f.flag("enable_bias", True),
        out_bias=f.flag("enable_bias", True),
        mlp_bias=f.flag("enable_bias", True),
        norms=2,
        norm_width=norm_width,
        around=(positions + 2) * hidden + final_norm + (2 * hidden * width if width != hidden else 0),
        positions=positions,
        name="model.decoder.layers",
        embedding_width=width,
        warnings=warned,
    )


def bloom(f: Fields) -> Decoder:
    """BLOOM: ALiBi, a norm after the embedding, all biases."""
    hidden, heads = f.int("hidden_size", "n_embed"), f.int("n_head", "num_attention_heads")
    return _uniform(
        hidden=hidden,
        layers=f.int("n_layer", "num_hidden_layers"),
        heads=heads,
        kv_heads=heads,
        inner=4 * hidden,
        vocabulary=f.int("vocab_size"),
        tied=f.flag("tie_word_embeddings", True),
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        norms=2,
        around=4 * hidden,
    )


def falcon(f: Fields) -> Decoder:
    """Falcon: one KV head (7B) or groups (40B, 180B), one or two norms a block."""
    hidden, heads = f.int("hidden_size", "n_embed"), f.int("num_attention_heads", "n_head")
    new = f.flag("new_decoder_architecture", False)
    multi_query = f.flag("multi_query", True)
    if new:
        kv_heads = f.int("num_kv_heads", "n_head_kv", default=heads)
    else:
        kv_heads = 1 if multi_query else heads
    parallel = f.flag("parallel_attn", True)
    norms = f.int("num_ln_in_parallel_attn", default=2 if new else 1) if parallel else 2
    bias = f.flag("bias", False)
    return _uniform(
        hidden=hidden,
        layers=f.int("num_hidden_layers", "n_layer"),
        heads=heads,
        kv_heads=kv_heads,
        inner=f.int("ffn_hidden_size", default=4 * hidden),
        vocabulary=f.int("vocab_size"),
        tied=f.flag("tie_word_embeddings", True),
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=bias,
        norms=norms,
        around=2 * hidden,
        positions=None if f.flag("alibi", False) else f.positions("max_position_embeddings"),
    )


def phi(f: Fields) -> Decoder:
    """Phi 1 and 2: parallel block with one norm, all biases, bias on the head."""
    hidden, heads = f.int("hidden_size", "n_embd"), f.int("num_attention_heads", "n_head")
    head_dim = hidden // heads
    return _uniform(
        hidden=hidden,
        layers=f.int("num_hidden_layers", "n_layer"),
        heads=heads,
        kv_heads=f.int("num_key_value_heads", "n_head_kv", default=heads),
        inner=f.int("intermediate_size", "n_inner", default=4 * hidden),
        vocabulary=f.int("vocab_size"),
        tied=f.flag("tie_word_embeddings", False),
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        norms=1,
        around=2 * hidden,
        head_bias=True,
        positions=f.positions("max_position_embeddings", "n_positions"),
        vectors=4 * head_dim * f.flag("qk_layernorm", False),
        name="model.layers",
    )


def starcoder2(f: Fields) -> Decoder:
    """StarCoder 2: grouped queries, biases, tied head."""
    hidden, heads, layers = f.int("hidden_size"), f.int("num_attention_heads"), f.int("num_hidden_layers")
    bias = f.flag("use_bias", True)
    return _uniform(
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=f.int("num_key_value_heads"),
        inner=f.int("intermediate_size"),
        vocabulary=f.int("vocab_size"),
        tied=f.flag("tie_word_embeddings", True),
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=bias,
        norms=2,
        around=2 * hidden,
        positions=f.positions("max_position_embeddings"),
        seen=windows(f, layers),
        name="model.layers",
    )


def mpt(f: Fields) -> Decoder:
    """MPT: no biases, norms without bias, ALiBi."""
    hidden, heads = f.int("d_model"), f.int("n_heads")
    attn = f.values.get("attn_config") or {}
    positions = f.positions("max_seq_len")
    kv_heads = int(attn.get("kv_n_heads") or heads) if isinstance(attn, dict) else heads
    return _uniform(
        hidden=hidden,
        layers=f.int("n_layers"),
        heads=heads,
        kv_heads=kv_heads,
        inner=f.int("expansion_ratio", default=4) * hidden,
        vocabulary=f.int("vocab_size"),
        tied=f.flag("tie_word_embeddings", True),
        qkv_bias=False,
        out_bias=False,
        mlp_bias=False,
        norms=2,
        norm_width=1,
        around=hidden,
        positions=positions,
        name="transformer.blocks",
    )
