"""Attention: query-key pairs, operations and traffic, in prefill and decode.

References
----------
.. [1] T. Dao et al., "FlashAttention", 2022, arXiv 2205.14135.
.. [2] DeepSeek-AI, "DeepSeek-V2", 2024, arXiv 2405.04434, section 2.1.
"""

from __future__ import annotations

from roofplan.laws import Number, larger, smaller


def prefill_pairs(new: Number, past: Number) -> Number:
    """Return the query-key pairs of causal attention: n p + n (n + 1) / 2.

    Parameters
    ----------
    new : tokens n computed now [1].
    past : tokens p already cached [1].

    Returns
    -------
    Pairs [1].

    Notes
    -----
    Domain: full causal attention, kernels that skip the masked half. Source: [1]_.

    Examples
    --------
    >>> prefill_pairs(1024.0, 0.0)
    524800.0
    """
    return new * past + new * (new + 1) / 2


def share_of_keys(keys: Number, half: Number) -> Number:
    """Return the share of its best rate that fused attention reaches where a query sees some keys: k / (k + h).

    Parameters
    ----------
    keys : keys that a query sees on average k [1].
    half : keys h whose time each query costs besides [1].

    Returns
    -------
    Share [1].

    Notes
    -----
    Domain: kernels that keep a tile of queries and loop over keys [1]_: the start and end of the loop, and the masked half of its last tile,
    take as long for few keys as for many. Source: kernel tables, whose shares of the peak rise from 0.2 at 512 tokens to 0.6 at 16,384.

    Examples
    --------
    >>> share_of_keys(512.0, 512.0), round(share_of_keys(8192.0, 512.0), 3)
    (0.5, 0.941)
    """
    return keys / (keys + half)


def windowed_pairs(new: Number, past: Number, window: Number) -> Number:
    """Return the query-key pairs where a query sees at most `window` tokens.

    Pairs = sum over queries i of min(p + i, w).

    Parameters
    ----------
    new : tokens n computed now [1].
    past : tokens p already cached [1].
    window : tokens w that a query sees [1].

    Returns
    -------
    Pairs [1].

    Notes
    -----
    Domain: w >= 1. Reduces to `prefill_pairs` for w >= n + p. Source: Beltagy et al. 2020, arXiv 2004.05150, sliding window.

    Examples
    --------
    >>> windowed_pairs(1024.0, 0.0, 128.0) == sum(min(i, 128) for i in range(1, 1025))
    True
    """
    growing = smaller(larger(window - past, 0.0 * new), new)
    return growing * past + growing * (growing + 1) / 2 + (new - growing) * window


def chunked_pairs(new: Number, past: Number, chunk: Number) -> Number:
    """Return the query-key pairs where a query sees only the tokens of its own chunk.

    With F(m) = floor(m / c) c (c + 1) / 2 + r (r + 1) / 2, r = m mod c: pairs = F(p + n) - F(p).

    Parameters
    ----------
    new : tokens n computed now [1].
    past : tokens p already cached [1].
    chunk : tokens per chunk c [1].

    Returns
    -------
    Pairs [1].

    Notes
    -----
    Domain: c >= 1. Source: chunked attention of Llama 4 (``attention_chunk_size`` of its configuration).

    Examples
    --------
    >>> chunked_pairs(32768.0, 0.0, 8192.0) == 4 * 8192 * 8193 / 2
    True
    """

    def triangle(tokens: Number) -> Number:
        rest = tokens % chunk
        return (tokens - rest) / chunk * (chunk * (chunk + 1) / 2) + rest * (rest + 1) / 2

    return triangle(past + new) - triangle(past)


def score_traffic(new: Number, seen: Number, heads: Number, score: Number) -> Number:
    """Return the traffic of attention scores where they are written to memory: n s h b, including the masked half.

    Parameters
    ----------
    new : tokens n computed now [1].
    seen : keys s scored for each new token, itself included [1].
    heads : query heads h [1].
    score : bytes read and written per score b, over all kernels [B].

    Returns
    -------
    Traffic [B].

    Notes
    -----
    Domain: matrix products, softmax and conversions in separate kernels. Source: count, as in [1]_ section 2.

    Examples
    --------
    >>> score_traffic(512.0, 1024.0, 32, 24.0)
    402653184.0
    """
    return new * seen * heads * score


def work(pairs: Number, heads: Number, key: Number, value: Number) -> Number:
    """Return the operations of attention: 2 pairs heads (d_k + d_v).

    Parameters
    ----------
    pairs : query-key pairs [1].
    heads : query heads [1].
    key : width of a key [1].
    value : width of a value [1].

    Returns
    -------
    Work [FLOP].

    Notes
    -----
    Domain: scores and weighted sum; the time of softmax is counted as memory traffic. Source: [1]_ section 2.

    Examples
    --------
    >>> work(524800.0, 64, 128, 128)
    17196646400.0
    """
    return 2 * pairs * heads * (key + value)


def latent_work(pairs: Number, heads: Number, latent: Number, rope: Number) -> Number:
    """Return the operations of absorbed latent attention: 2 pairs heads (2 c + r).

    The up-projection of keys is absorbed into the query and that of values into the output, so queries are scored
    against the cached latent itself [2]_.

    Parameters
    ----------
    pairs : query-key pairs [1].
    heads : query heads [1].
    latent : width c of the cached latent [1].
    rope : width r of the rotary part [1].

    Returns
    -------
    Work [FLOP].

    Notes
    -----
    Domain: decode. Prefill expands keys and values instead and follows `work`. Source: [2]_ section 2.1.2.

    Examples
    --------
    >>> latent_work(1024, 128, 512, 64)
    285212672
    """
    return 2 * pairs * heads * (2 * latent + rope)
