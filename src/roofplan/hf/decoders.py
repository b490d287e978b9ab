"""Decoder-only transformers of the Llama shape and their variants, and parts that other decoders share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from roofplan.errors import ConfigError
from roofplan.hf.blocks import attention, mlp
from roofplan.hf.fields import Fields, shortened
from roofplan.records.model import Attention, LatentAttention, Layer, Mixture, Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """Result of a decoder family function: the layers and what surrounds them.

    Parameters
    ----------
    layers : layers of the decoder.
    hidden, vocabulary : shape of the embedding.
    tied : whether the head reads the embedding matrix.
    final : parameters of the final norm and of anything else outside layers, embedding and head.
    head_bias : whether the head has a bias.
    embedding_width : width of the embedding where it differs from `hidden`.
    tables : numbers in further tables that are only looked up, of n-grams [parameters].
    table_bytes : size of each of them [B].
    """

    layers: tuple[Layer, ...]
    hidden: int
    vocabulary: int
    tied: bool
    final: int
    head_bias: bool = False
    embedding_width: int | None = None
    tables: int = 0
    table_bytes: float = 2.0
    max_positions: int | None = None
    draft: Layer | None = None
    draft_layers: int = 0
    stacks: tuple[Stack, ...] = ()
    name: str = "model.layers"
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """Dimensions that nearly every decoder states."""

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
"""Kinds of layers in a decoder with windows."""


def windows(f: Fields, layers: int, *, default: int | None = None) -> list[int | None]:
    """Return the window of each layer from ``layer_types`` or ``sliding_window_pattern``; None attends to all tokens."""
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


def assemble(
    f: Fields, s: Shape, layers: list[Layer], *, tied: bool, final: int | None = None, **more: object
) -> Decoder:
    """Return a decoder with the given layers, and with vocabulary and positions from the configuration."""
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
    """Return a dense decoder of the Llama shape.

    ``qk_norm``: ``head`` for one norm per head width, ``full`` over all heads, ``heads`` for one weight per head and width.
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
    return assemble(
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
    return plain(f, qkv_bias=True, out_bias=False, window=qwen_windows(f))


def qwen_windows(f: Fields) -> list[int | None]:
    """Return the window of each layer as Qwen's configurations state it; None attends to all tokens."""
    layers = f.int("num_hidden_layers")
    if not f.flag("use_sliding_window", False):
        return [None] * layers
    if "layer_types" in f:
        return windows(f, layers)
    full = f.int("max_window_layers", default=layers, least=0)
    return [None if i < full else f.optional_int("sliding_window") for i in range(layers)]


def qwen3(f: Fields) -> Decoder:
    """Qwen 3: explicit head_dim, norms on queries and keys."""
    return plain(f, qk_norm="head", window=qwen_windows(f))


def qwen(f: Fields) -> Decoder:
    """Qwen 1: ``intermediate_size`` counts both matrices of the gate, biases on q, k, v alone unless ``no_bias`` is false."""
    bias = not f.flag("no_bias", True)
    halved = f.filled(intermediate_size=f.int("intermediate_size") // 2, head_dim=f.int("kv_channels"))
    return replace(plain(halved, qkv_bias=True, out_bias=bias, mlp_bias=bias), name="transformer.h")


def chatglm(f: Fields) -> Decoder:
    """ChatGLM 2, 3 and GLM-4 of 2024: Megatron's names, groups of query heads, padded vocabulary."""
    bias = f.flag("add_bias_linear", False)
    heads = f.int("num_attention_heads")
    named = f.filled(
        num_hidden_layers=f.int("num_layers"),
        intermediate_size=f.int("ffn_hidden_size"),
        num_key_value_heads=f.int("multi_query_group_num") if f.flag("multi_query_attention", False) else heads,
        head_dim=f.int("kv_channels"),
        vocab_size=f.int("padded_vocab_size"),
    )
    built = plain(
        named,
        norm_width=1 if f.flag("rmsnorm", True) else 2,
        qkv_bias=bias or f.flag("add_qkv_bias", False),
        out_bias=bias,
        mlp_bias=bias,
        final=None if f.flag("post_layer_norm", True) else 0,
    )
    return replace(built, name="transformer.encoder.layers")


def internlm(f: Fields) -> Decoder:
    """InternLM 1: biases on all projections of attention."""
    return plain(f, qkv_bias=f.flag("bias", True))


def internlm3(f: Fields) -> Decoder:
    """InternLM 3: the Llama shape with its own names of biases."""
    bias, feed = (
        f.flag(own, f.flag(usual, False)) for own, usual in (("qkv_bias", "attention_bias"), ("bias", "mlp_bias"))
    )
    return plain(f, qkv_bias=bias, mlp_bias=feed)


def exaone(f: Fields) -> Decoder:
    """EXAONE 3 and 3.5: the Llama shape, with ``num_layers``."""
    return replace(plain(f.filled(num_hidden_layers=f.int("num_layers", "num_hidden_layers"))), name="transformer.h")


def hunyuan(f: Fields) -> Decoder:
    """Hunyuan 1, dense: norms on queries and keys."""
    return plain(f, qk_norm="head")


def nanochat(f: Fields) -> Decoder:
    """nanochat: norms without weights, squared ReLU."""
    return plain(f, norm_width=0, gated=False)


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
    """StableLM: LayerNorm with bias, one of them where attention and feed-forward are parallel; optional norms of each head."""
    return plain(
        f,
        norm_width=2,
        norms=1 if f.flag("use_parallel_residual", False) else 2,
        qk_norm="heads" if f.flag("qk_layernorm", False) else "",
        qkv_bias=f.flag("use_qkv_bias", False),
        out_bias=False,
    )


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
