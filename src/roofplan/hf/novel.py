"""Decoders with a special attention, embedding or layout: Gemma 3n and 4, DeepSeek V4, LongCat, MiMo and Llama-Nemotron."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from roofplan.errors import ConfigError
from roofplan.hf.blocks import (
    attention,
    latent_attention,
    linear,
    mixture,
    mlp,
)
from roofplan.hf.decoders import Decoder, qwen2, windows
from roofplan.hf.fields import Fields
from roofplan.hf.hybrids import _kinds, decoder_of
from roofplan.hf.mixtures import deepseek_mixture, with_draft
from roofplan.records.model import Attention, Dense, FeedForward, Group, Layer


def gemma3n(f: Fields) -> Decoder:
    """Gemma 3n: per-layer embeddings that are only looked up, alternating updates, caches shared by the last layers."""
    hidden, layers, heads = f.int("hidden_size"), f.int("num_hidden_layers"), f.int("num_attention_heads")
    kv_heads, head_dim = f.int("num_key_value_heads"), f.int("head_dim")
    width, table, inputs, rank = (
        f.int("hidden_size_per_layer_input"),
        f.int("vocab_size_per_layer_input"),
        f.int("altup_num_inputs"),
        f.int("laurel_rank"),
    )
    inner = f.raw("intermediate_size")
    inner = inner if isinstance(inner, list) else [inner] * layers
    seen, stored = windows(f, layers), layers - f.int("num_kv_shared_layers", default=0, least=0)
    vectors = 4 * hidden + hidden + inputs * inputs + inputs**3 + hidden + hidden + hidden
    side = (
        (
            linear("altup.modality_router", hidden, inputs, split="none"),
            linear("laurel.linear_left", hidden, rank, split="none"),
        ),
        (linear("laurel.linear_right", rank, hidden, split="none"),),
        (linear("per_layer_input_gate", hidden, width, split="none"),),
        (linear("per_layer_projection", width, hidden, split="none"),),
    )
    built = [
        Layer(
            mixers=(
                attention(
                    hidden,
                    heads,
                    kv_heads,
                    head_dim,
                    vectors=head_dim * (2 if i < stored else 1),
                    window=seen[i],
                    stores_cache=i < stored,
                ),
            ),
            feed_forwards=(mlp(hidden, int(inner[i])), Dense(groups=side)),
            vectors=vectors,
        )
        for i in range(layers)
    ]
    final = hidden + table * layers * width + hidden * layers * width + width + 2 * (inputs - 1) * hidden * hidden
    return decoder_of(
        f,
        built,
        hidden,
        tied=True,
        final=final,
        notes=(f"per-layer embedding tables hold {table * layers * width:,} parameters that are only looked up",),
    )


def gemma4(f: Fields) -> Decoder:
    """Gemma 4: global layers with wider heads (K and V may share), optional mixture beside the dense feed-forward."""
    hidden, layers, heads = f.int("hidden_size"), f.int("num_hidden_layers"), f.int("num_attention_heads")
    kinds, kv_heads, head_dim = _kinds(f, layers), f.int("num_key_value_heads"), f.int("head_dim")
    window = f.int("sliding_window")
    wide_kv = f.int("num_global_key_value_heads", default=kv_heads)
    stated = f.sub("per_layer_config") if "per_layer_config" in f else None
    wide = f.int("global_head_dim", default=head_dim)
    if stated is not None:  # as transformers 5.23 writes fields of single layers
        first = next((f"{i:02}" for i, kind in enumerate(kinds) if kind != "sliding_attention"), "")
        wide = stated.sub(first).int("head_dim", default=wide) if first in stated else wide
    same = f.flag("attention_k_eq_v", False)
    stored = layers - f.int("num_kv_shared_layers", default=0, least=0)
    per_layer, inner = f.int("hidden_size_per_layer_input", default=0, least=0), f.int("intermediate_size")
    table = f.int("vocab_size_per_layer_input", default=0, least=0)

    def mixer(i: int) -> Attention:
        stores = i < stored
        if kinds[i] == "sliding_attention":
            return attention(
                hidden,
                heads,
                kv_heads,
                head_dim,
                window=window,
                vectors=head_dim * (2 if stores else 1),
                stores_cache=stores,
            )
        return attention(
            hidden,
            heads,
            wide_kv if same else kv_heads,
            wide,
            vectors=wide * (2 if stores else 1),
            stores_cache=stores,
            key_is_value=same,
        )

    def feed(i: int) -> tuple[FeedForward, ...]:
        width = 2 * inner if f.flag("use_double_wide_mlp", False) and i >= stored else inner
        parts: tuple[FeedForward, ...] = (mlp(hidden, width),)
        if f.flag("enable_moe_block", False):
            experts = f.int("num_experts")
            moe = mixture(hidden, f.int("moe_intermediate_size"), experts, f.int("top_k_experts"), prefix="moe")
            parts = (*parts, replace(moe, vectors=hidden + experts))
        if per_layer:
            gates = (
                (linear("per_layer_input_gate", hidden, per_layer, split="none"),),
                (linear("per_layer_projection", per_layer, hidden, split="none"),),
            )
            parts = (*parts, Dense(groups=gates))
        return parts

    extra_norms = 3 if f.flag("enable_moe_block", False) else 0
    built = [
        Layer(mixers=(mixer(i),), feed_forwards=feed(i), vectors=(4 + extra_norms + (1 if per_layer else 0)) * hidden)
        for i in range(layers)
    ]
    final = hidden + (table * layers * per_layer + hidden * layers * per_layer + per_layer if per_layer else 0)
    return decoder_of(f, built, hidden, tied=True, final=final)


RATIOS = {"heavily_compressed_attention": 128, "compressed_sparse_attention": 4, "sliding_attention": 0}
"""Tokens per cache entry, by kind of layer; 0 for no compression."""


def _compressed(f: Fields, ratio: int) -> Attention:
    """Return attention over a cache with `ratio` tokens per entry; 0 for a window alone."""
    hidden, heads, width = f.int("hidden_size"), f.int("num_attention_heads"), f.int("head_dim")
    query, groups, rank = f.int("q_lora_rank"), f.int("o_groups"), f.int("o_lora_rank")
    parts: tuple[Group, ...] = (
        (
            linear("self_attn.q_a_proj", hidden, query, split="none"),
            linear("self_attn.kv_proj", hidden, width, split="none"),
        ),
        (linear("self_attn.q_b_proj", query, heads * width, split="heads"),),
        (linear("self_attn.o_a_proj", heads * width // groups, rank, split="heads", copies=groups),),
        (linear("self_attn.o_b_proj", groups * rank, hidden, split="heads"),),
    )
    vectors, indexed = heads + query + width, 0
    if ratio:
        overlap = 2 if ratio == RATIOS["compressed_sparse_attention"] else 1
        parts = (
            *parts,
            (
                linear("self_attn.compressor.kv_proj", hidden, overlap * width, split="none"),
                linear("self_attn.compressor.gate_proj", hidden, overlap * width, split="none"),
            ),
        )
        vectors += ratio * overlap * width + width
        if overlap == 2:
            index, index_heads = f.int("index_head_dim"), f.int("index_n_heads")
            indexed = index
            parts = (
                *parts,
                (
                    linear("self_attn.indexer.kv_proj", hidden, 2 * index, split="none"),
                    linear("self_attn.indexer.gate_proj", hidden, 2 * index, split="none"),
                    linear("self_attn.indexer.weights_proj", hidden, index_heads, split="none"),
                ),
                (linear("self_attn.indexer.q_b_proj", query, index_heads * index, split="none"),),
            )
            vectors += ratio * 2 * index + index
    return Attention(
        heads=heads,
        kv_heads=1,
        head_dim=width,
        value_dim=width,
        groups=parts,
        vectors=vectors,
        window=f.int("sliding_window"),
        key_is_value=True,
        compression=ratio or 1,
        top=f.int("index_topk") if indexed else None,
        index_elements=indexed,
        index_heads=f.int("index_n_heads") if indexed else 0,
    )


def deepseek_v4(f: Fields) -> Decoder:
    """DeepSeek V4: one shared key-value head, compressed caches of two kinds, hyper-connections, grouped output projection."""
    hidden, layers, streams = f.int("hidden_size"), f.int("num_hidden_layers"), f.int("hc_mult")
    ratios = f.list("compress_ratios")
    kinds = f.list("layer_types")
    if kinds is None and ratios is None:
        raise ConfigError(
            "config.json lacks compress_ratios or layer_types: the compression of each layer is not guessed",
            argument="compress_ratios",
        )
    every = [int(r) for r in ratios[:layers]] if ratios is not None else [RATIOS[str(kind)] for kind in kinds[:layers]]
    moe = mixture(
        hidden,
        f.int("moe_intermediate_size"),
        f.int("n_routed_experts"),
        f.int("num_experts_per_tok"),
        shared=f.int("moe_intermediate_size") * f.int("n_shared_experts", default=0, least=0),
    )
    mixing = 2 * ((2 + streams) * streams * streams * hidden + (2 + streams) * streams + 3)

    made = {
        ratio: Layer(mixers=(_compressed(f, ratio),), feed_forwards=(moe,), vectors=2 * hidden + mixing)
        for ratio in set(every)
    }
    drafts = f.int("num_nextn_predict_layers", default=0, least=0)
    final = hidden + streams * streams * hidden + streams + 1
    built = [made[ratio] for ratio in every]
    return decoder_of(
        f, built, hidden, tied=False, final=final, draft=built[-1] if drafts else None, draft_layers=drafts
    )


def longcat(f: Fields) -> Decoder:
    """LongCat-Flash: two latent attentions and two dense feed-forwards around one mixture with identity experts."""
    hidden, layers = f.int("hidden_size"), f.int("num_layers", "num_hidden_layers")
    experts, idle = f.int("n_routed_experts"), f.int("zero_expert_num", default=0, least=0)
    mixer, dense = latent_attention(f, hidden), mlp(hidden, f.int("ffn_hidden_size"), prefix="mlps")
    moe = mixture(
        hidden,
        f.int("expert_ffn_hidden_size"),
        experts,
        f.int("moe_topk"),
        router_width=experts + idle,
        router_bias=f.flag("router_bias", False),
    )
    layer = Layer(mixers=(mixer, mixer), feed_forwards=(dense, moe, dense), vectors=4 * hidden)
    note = (
        (f"{idle} of {experts + idle} routable experts are identities: the active count is an upper bound",)
        if idle
        else ()
    )
    return decoder_of(f, [layer] * layers, hidden, tied=False, final=hidden, notes=note)


def mimo(f: Fields) -> Decoder:
    """MiMo 7B: Qwen2 with a layer that drafts."""
    return with_draft(qwen2(f), f.int("num_nextn_predict_layers", default=0, least=0))


def mimo_v2(f: Fields) -> Decoder:
    """MiMo-V2-Flash: window and global layers with other KV heads; keys and values of unlike width."""
    hidden, layers = f.int("hidden_size"), f.int("num_hidden_layers")
    local = f.list("hybrid_layer_pattern", layers)
    if local is None:
        local = [int(kind == "sliding_attention") for kind in _kinds(f, layers)]
    window = f.int("sliding_window", "sliding_window_size")
    narrow = attention(
        hidden,
        f.int("swa_num_attention_heads", "num_attention_heads"),
        f.int("swa_num_key_value_heads"),
        f.int("swa_head_dim", "head_dim"),
        value_dim=f.int("swa_v_head_dim", "v_head_dim"),
        window=window,
        bias=f.flag("attention_bias", False),
        vectors=f.int("num_attention_heads") * f.flag("add_swa_attention_sink_bias", False),
    )
    wide = attention(
        hidden,
        f.int("num_attention_heads"),
        f.int("num_key_value_heads"),
        f.int("head_dim"),
        value_dim=f.int("v_head_dim"),
        bias=f.flag("attention_bias", False),
        vectors=f.int("num_attention_heads") * f.flag("add_full_attention_sink_bias", False),
    )
    feed = deepseek_mixture(f)
    built = [
        Layer(mixers=(narrow if local[i] else wide,), feed_forwards=(feed(i),), vectors=2 * hidden)
        for i in range(layers)
    ]
    return decoder_of(f, built, hidden, tied=False, final=hidden)


PUZZLE_MULTIPLE = 256
"""Multiple that feed-forward widths of Llama-Nemotron are rounded up to."""


def nemotron_nas(f: Fields) -> Decoder:
    """Llama-Nemotron Super and Ultra: Llama layers with widths of their own, many without attention or feed-forward."""
    hidden, heads = f.int("hidden_size"), f.int("num_attention_heads")
    blocks = f.list("block_configs", f.int("num_hidden_layers"))
    if blocks is None:
        raise ConfigError("config.json lacks block_configs", argument="block_configs")
    built = []
    for place, block in enumerate(blocks):
        one = Fields(block if isinstance(block, Mapping) else {}, f"block_configs[{place}].")
        mixer, feed = one.sub("attention"), one.sub("ffn")
        if mixer.flag("replace_with_linear", False) or feed.flag("replace_with_linear", False):
            raise ConfigError(
                f"config.json: {one.path} is replaced by one matrix, which is not described", argument="block_configs"
            )
        attends, feeds = not mixer.flag("no_op", False), not feed.flag("no_op", False)
        group = mixer.int("n_heads_in_group") if attends else 1
        if heads % group:
            raise ConfigError(
                f"config.json: {mixer.path}n_heads_in_group {group} does not divide num_attention_heads {heads}",
                argument="n_heads_in_group",
                value=group,
            )
        inner = int(2 * feed.factor("ffn_mult") * hidden / 3) if feeds else 0
        built.append(
            Layer(
                mixers=(attention(hidden, heads, heads // group, hidden // heads),) if attends else (),
                feed_forwards=(mlp(hidden, -(-inner // PUZZLE_MULTIPLE) * PUZZLE_MULTIPLE),) if feeds else (),
                vectors=hidden * (attends + feeds),
                norms=attends + feeds,
            )
        )
    return decoder_of(f, built, hidden, tied=False, final=hidden)
