"""Building blocks shared by families: attention, feed-forward, mixture of experts, latent attention and state space."""

from __future__ import annotations

from roofplan.errors import ConfigError
from roofplan.hf.fields import Fields
from roofplan.records.model import Attention, Dense, Group, LatentAttention, Linear, Mixture, Recurrence, Split


def linear(
    name: str, inputs: int, outputs: int, *, bias: bool = False, split: Split = "width", copies: int = 1
) -> Linear:
    """Return a weight matrix in the model's own type."""
    return Linear(name=name, inputs=inputs, outputs=outputs, bias=bias, split=split, copies=copies)


def attention(
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    value_dim: int | None = None,
    query_input: int | None = None,
    output: int | None = None,
    bias: bool = False,
    key_bias: bool | None = None,
    output_bias: bool = False,
    gate: int = 0,
    head_gate: bool = False,
    window: int | None = None,
    chunked: bool = False,
    vectors: int = 0,
    stores_cache: bool = True,
    key_is_value: bool = False,
    causal: bool = True,
    cross: int | None = None,
    prefix: str = "self_attn",
) -> Attention:
    """Return grouped-query attention; `gate` widens the query projection by that many copies."""
    if heads % kv_heads:
        raise ConfigError(
            f"config.json: num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}",
            argument="num_key_value_heads",
            value=kv_heads,
        )
    value_dim = head_dim if value_dim is None else value_dim
    inputs = query_input or hidden
    query = linear(f"{prefix}.q_proj", inputs, heads * head_dim * (1 + gate), bias=bias, split="heads")
    keys = linear(
        f"{prefix}.k_proj", inputs, kv_heads * head_dim, bias=bias if key_bias is None else key_bias, split="kv_heads"
    )
    values = linear(f"{prefix}.v_proj", inputs, kv_heads * value_dim, bias=bias, split="kv_heads")
    entrance: Group = (query, keys) if key_is_value else (query, keys, values)
    if not stores_cache:
        entrance = (query,)
    if head_gate:
        entrance = (*entrance, linear(f"{prefix}.g_proj", inputs, heads, split="heads"))
    leave = linear(f"{prefix}.o_proj", heads * value_dim, output or hidden, bias=output_bias, split="heads")
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=value_dim,
        groups=(entrance, (leave,)),
        window=window,
        chunked=chunked,
        vectors=vectors,
        stores_cache=stores_cache,
        key_is_value=False,
        causal=causal,
        cross=cross,
    )


def mlp(
    hidden: int,
    inner: int,
    *,
    gated: bool = True,
    bias: bool = False,
    prefix: str = "mlp",
    output: int | None = None,
    vectors: int = 0,
) -> Dense:
    """Return a feed-forward of two matrices, or three where gated."""
    up = linear(f"{prefix}.up_proj", hidden, inner, bias=bias)
    entrance: Group = (linear(f"{prefix}.gate_proj", hidden, inner, bias=bias), up) if gated else (up,)
    return Dense(
        groups=(entrance, (linear(f"{prefix}.down_proj", inner, output or hidden, bias=bias),)), vectors=vectors
    )


def mixture(
    hidden: int,
    inner: int,
    experts: int,
    chosen: int,
    *,
    shared: int = 0,
    shared_gate: bool = False,
    gated: bool = True,
    bias: bool = False,
    router_bias: bool = False,
    router_width: int | None = None,
    expert_input: int | None = None,
    vectors: int = 0,
    groups: tuple[int, int] = (1, 1),
    prefix: str = "mlp",
) -> Mixture:
    """Return routed experts of width `inner` with shared experts of total width `shared`.

    `groups` holds the groups of experts, and how many of them a token's experts may come from.
    """
    if chosen > experts:
        raise ConfigError(
            f"config.json: {chosen} experts per token of {experts} routed experts",
            argument="num_experts_per_tok",
            value=chosen,
        )
    entrance = expert_input or hidden
    expert = mlp(entrance, inner, gated=gated, bias=bias, prefix=f"{prefix}.experts").groups
    always: tuple[Group, ...] = (
        mlp(hidden, shared, gated=gated, prefix=f"{prefix}.shared_experts").groups if shared else ()
    )
    if shared_gate:
        always = (*always, (linear(f"{prefix}.shared_expert_gate", hidden, 1, split="none"),))
    if entrance != hidden:
        always = (
            *always,
            (linear(f"{prefix}.fc1_latent_proj", hidden, entrance, split="none"),),
            (linear(f"{prefix}.fc2_latent_proj", entrance, hidden, split="none"),),
        )
    router = linear(f"{prefix}.gate", hidden, router_width or experts, bias=router_bias, split="none")
    return Mixture(
        experts=experts,
        chosen=chosen,
        expert=expert,
        router=router,
        shared=always,
        vectors=vectors,
        groups=groups[0],
        chosen_groups=groups[1],
    )


def latent_attention(
    f: Fields,
    hidden: int,
    *,
    sparse: bool = False,
    indexer: bool = True,
    gate: int = 0,
    head_gate: bool = False,
    positions: bool = True,
    window: int | None = None,
    vectors: int = 0,
) -> LatentAttention:
    """Return multi-head latent attention from the DeepSeek field names.

    Without `positions` all of a key's width comes from the latent vector. `vectors` counts further learned numbers.
    Source: DeepSeek-V2 (arXiv 2405.04434) section 2.1; the sparse indexer is that of V3.2.
    """
    heads = f.int("num_attention_heads")
    latent, rope = f.int("kv_lora_rank"), f.int("qk_rope_head_dim", least=0)
    nope, value = f.int("qk_nope_head_dim"), f.int("v_head_dim")
    if not positions:
        nope, rope = nope + rope, 0
    query = f.optional_int("q_lora_rank")
    bias = f.flag("attention_bias", False)
    compress = linear("self_attn.kv_a_proj_with_mqa", hidden, latent + rope, bias=bias, split="none")
    if query is None:
        groups: tuple[Group, ...] = (
            (linear("self_attn.q_proj", hidden, heads * (nope + rope), split="heads"), compress),
        )
    else:
        groups = (
            (linear("self_attn.q_a_proj", hidden, query, bias=bias, split="none"), compress),
            (linear("self_attn.q_b_proj", query, heads * (nope + rope), split="heads"),),
        )
    groups = (
        *groups,
        (linear("self_attn.kv_b_proj", latent, heads * (nope + value), split="heads"),),
        (linear("self_attn.o_proj", heads * value, hidden, bias=bias, split="heads"),),
    )
    vectors += latent + (query or 0)
    pool = f.int("index_kpool", default=1)
    top = index_heads = index_dim = 0
    if sparse:
        top = f.int("index_topk")
        if indexer:
            index_heads, index_dim = f.int("index_n_heads"), f.int("index_head_dim")
            groups = (
                *groups,
                (
                    linear("self_attn.indexer.wk", hidden, index_dim, split="none"),
                    linear("self_attn.indexer.weights_proj", hidden, index_heads, split="none"),
                ),
                (linear("self_attn.indexer.wq_b", query or hidden, index_heads * index_dim, split="none"),),
            )
            vectors += 2 * index_dim
            if pool > 1:  # a pool's key is a weighted mean of its tokens', with positions within the pool
                groups = (
                    *groups,
                    (linear("self_attn.indexer.index_kpool_compress_gate", hidden, index_dim, split="none"),),
                )
                vectors += pool * index_dim
    if head_gate:
        groups = (*groups, (linear("self_attn.g_proj", hidden, heads, split="heads"),))
    if gate:
        groups = (*groups, (linear("self_attn.g_proj", hidden, heads * value, split="heads"),))
    return LatentAttention(
        heads=heads,
        latent=latent,
        rope_dim=rope,
        nope_dim=nope,
        value_dim=value,
        groups=groups,
        vectors=vectors,
        window=window,
        top=top or None,
        index_heads=index_heads,
        index_dim=index_dim,
        index_pool=pool,
        stores_index=bool(index_dim),
    )


def mamba(
    hidden: int,
    inner: int,
    state: int,
    kernel: int,
    rank: int,
    *,
    conv_bias: bool = True,
    bias: bool = False,
    norms: bool = False,
    heads: int = 1,
) -> Recurrence:
    """Return a Mamba mixer (Gu & Dao 2023, arXiv 2312.00752): selective state space with diagonal transition."""
    return Recurrence(
        kind="mamba",
        groups=(
            (linear("mixer.in_proj", hidden, 2 * inner, bias=bias),),
            (linear("mixer.x_proj", inner // heads, rank + 2 * state, copies=heads),),
            (linear("mixer.dt_proj", rank, inner // heads, bias=True, copies=heads),),
            (linear("mixer.out_proj", inner, hidden, bias=bias),),
        ),
        vectors=inner * kernel + inner * conv_bias + inner * state + inner + (rank + 2 * state) * norms,
        state_elements=inner * state,
        convolution_elements=inner * kernel,
        update_flops=6 * inner * state + 2 * inner * kernel,
    )


def mamba2(
    hidden: int,
    heads: int,
    head_dim: int,
    groups: int,
    state: int,
    kernel: int,
    *,
    conv_bias: bool = True,
    bias: bool = False,
    norm: bool = True,
    prefix: str = "mixer",
) -> Recurrence:
    """Return a Mamba-2 mixer (Dao & Gu 2024, arXiv 2405.21060): one scalar transition per head."""
    inner = heads * head_dim
    channels = inner + 2 * groups * state
    return Recurrence(
        kind="mamba2",
        groups=(
            (linear(f"{prefix}.in_proj", hidden, inner + channels + heads, bias=bias),),
            (linear(f"{prefix}.out_proj", inner, hidden, bias=bias),),
        ),
        vectors=channels * kernel + channels * conv_bias + 3 * heads + inner * norm,
        state_elements=inner * state,
        convolution_elements=channels * kernel,
        update_flops=6 * inner * state + 2 * channels * kernel,
    )


def gated_delta(f: Fields, hidden: int) -> Recurrence:
    """Return the gated delta rule mixer of Qwen3-Next (Yang et al. 2024, arXiv 2412.06464)."""
    key_heads, value_heads = f.int("linear_num_key_heads"), f.int("linear_num_value_heads")
    key_dim, value_dim = f.int("linear_key_head_dim"), f.int("linear_value_head_dim")
    kernel = f.int("linear_conv_kernel_dim")
    keys, values = key_heads * key_dim, value_heads * value_dim
    channels = 2 * keys + values
    return Recurrence(
        kind="gated-delta",
        groups=(
            (
                linear("linear_attn.in_proj_qkvz", hidden, channels + values),
                linear("linear_attn.in_proj_ba", hidden, 2 * value_heads),
            ),
            (linear("linear_attn.out_proj", values, hidden),),
        ),
        vectors=channels * kernel + 2 * value_heads + value_dim,
        state_elements=value_heads * key_dim * value_dim,
        convolution_elements=channels * kernel,
        update_flops=7 * value_heads * key_dim * value_dim + 2 * channels * kernel,
    )


def short_convolution(hidden: int, kernel: int, *, bias: bool = False) -> Recurrence:
    """Return the gated short convolution of LFM2."""
    return Recurrence(
        kind="convolution",
        groups=(
            (linear("conv.in_proj", hidden, 3 * hidden, bias=bias),),
            (linear("conv.out_proj", hidden, hidden, bias=bias),),
        ),
        vectors=hidden * kernel + hidden * bias,
        convolution_elements=hidden * kernel,
        update_flops=2 * hidden * kernel,
    )
