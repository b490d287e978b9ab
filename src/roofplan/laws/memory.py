"""Memory of inference: KV cache, windows, paging and activations.

References
----------
.. [1] W. Kwon et al., "Efficient memory management for large language model serving with PagedAttention", SOSP 2023, arXiv 2309.06180.
"""

from __future__ import annotations

from roofplan.laws import Number, larger, smaller, up


def kv_cache_bytes(layers: Number, kv_heads: Number, head_dim: Number, tokens: Number, element: Number) -> Number:
    """Return the size of the KV cache: 2 L h_kv d T b.

    Parameters
    ----------
    layers : layers L that keep a cache [1].
    kv_heads : key-value heads, not query heads [1].
    head_dim : width of a head [1].
    tokens : tokens kept, over all sequences [1].
    element : bytes per element [B].

    Returns
    -------
    Cache [B].

    Notes
    -----
    Domain: full attention with keys as wide as values. Source: Shazeer 2019 (arXiv 1911.02150); [1]_ section 2.

    Examples
    --------
    >>> kv_cache_bytes(80, 8, 128, 1, 2)
    327680
    """
    return 2 * layers * kv_heads * head_dim * tokens * element


def heads_per_rank(heads: Number, ranks: Number) -> Number:
    """Return the key-value heads per tensor-parallel rank: max(1, ceil(h / t)); heads are replicated where ranks outnumber them.

    Parameters
    ----------
    heads : key-value heads h [1].
    ranks : tensor-parallel ranks t [1].

    Returns
    -------
    Heads on a rank [1].

    Notes
    -----
    Domain: engines that replicate heads. Source: vLLM, ``ModelConfig.get_num_kv_heads``.

    Examples
    --------
    >>> [heads_per_rank(8.0, t) for t in (1.0, 8.0, 16.0)]
    [8.0, 1.0, 1.0]
    """
    return larger(1.0 + 0.0 * ranks, up(heads / ranks))


def resident_tokens(tokens: Number, window: Number) -> Number:
    """Return the tokens whose keys and values a layer keeps: min(T, w).

    Parameters
    ----------
    tokens : tokens of the sequence T [1].
    window : tokens w that the layer sees [1].

    Returns
    -------
    Tokens kept [1].

    Notes
    -----
    Domain: engines that free tokens outside the window. Source: Beltagy et al. 2020, arXiv 2004.05150.

    Examples
    --------
    >>> resident_tokens(8192.0, 128.0)
    128.0
    """
    return smaller(tokens, window)


def admitted_window_tokens(context: Number, window: Number, budget: Number) -> Number:
    """Return the tokens of a windowed layer that admission reserves room for: min(w - 1 + budget, T).

    While a prefill chunk is in flight, the layer keeps its window and the whole chunk.

    Parameters
    ----------
    context : longest request T [1].
    window : tokens w that the layer sees [1].
    budget : tokens that one step may compute [1].

    Returns
    -------
    Tokens charged [1].

    Notes
    -----
    Domain: vLLM's sliding-window group at admission; its steady state is `resident_tokens`.
    Source: vLLM, ``SlidingWindowSpec.max_memory_usage_bytes``.

    Examples
    --------
    >>> admitted_window_tokens(131072.0, 1024.0, 8192.0)
    9215.0
    """
    return smaller(window - 1 + budget, context)


def blocks(tokens: Number, block: Number) -> Number:
    """Return the blocks of a paged cache: ceil(T / block).

    Parameters
    ----------
    tokens : tokens T [1].
    block : tokens of one block [1].

    Returns
    -------
    Blocks [1].

    Notes
    -----
    Domain: block at least 1. Source: [1]_ section 4.2.

    Examples
    --------
    >>> blocks(1025.0, 16.0)
    65.0
    """
    return up(tokens / block)


def mean_resident_tokens(prompt: Number, output: Number) -> Number:
    """Return the mean length of a running request: I + O / 2.

    Parameters
    ----------
    prompt : input tokens I [1].
    output : output tokens O [1].

    Returns
    -------
    Tokens [1].

    Notes
    -----
    Domain: steady state, uniform distribution of ages, cache allocated as it grows [1]_. Source: mean of linear growth.

    Examples
    --------
    >>> mean_resident_tokens(1024, 256)
    1152.0
    """
    return prompt + output / 2


def reserved_tokens(prompt: Number, output: Number) -> Number:
    """Return the tokens charged to a request by an engine that reserves its final length: I + O.

    The alternative to `mean_resident_tokens`.

    Parameters
    ----------
    prompt : input tokens I [1].
    output : output tokens O [1].

    Returns
    -------
    Tokens [1].

    Notes
    -----
    Domain: TensorRT-LLM's GUARANTEED_NO_EVICT policy. Source: its scheduler documentation.

    Examples
    --------
    >>> reserved_tokens(1024, 256)
    1280
    """
    return prompt + output


LOGIT_COPY = 4.0
"""Size of a logit in the sampler's fp32 copy [B]."""


def activation_peak_bytes(
    tokens: Number, hidden: Number, widest: Number, element: Number, sampled: Number, vocabulary: Number, logit: Number
) -> Number:
    """Return the peak activation memory of an inference step: the larger of T (2 h + widest) b and T h b + sampled V l.

    Two residual streams and the widest intermediate of one layer are live at once. When their last hidden states are sampled from, the
    layers' tensors are gone, and several copies of the logits are live.

    Parameters
    ----------
    tokens : tokens of the largest step T [1].
    hidden : width of the residual stream h [1].
    widest : widest pair of tensors of any layer, on one rank [1].
    element : bytes per activation b [B].
    sampled : positions whose logits are computed [1].
    vocabulary : rows of the head whose logits are on one rank V [1].
    logit : bytes of all copies of one logit l [B].

    Returns
    -------
    Peak [B].

    Notes
    -----
    Domain: no autograd, layer by layer. Source: lifetimes of the tensors of one layer; the copies are those of an engine's sampler.

    Examples
    --------
    >>> bool(activation_peak_bytes(8192, 8192, 7168 * 3, 2, 1024, 128256 / 8, 6) < 1e9)
    True
    """
    return larger(tokens * (2 * hidden + widest) * element, tokens * hidden * element + sampled * vocabulary * logit)
