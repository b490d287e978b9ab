"""Counts and stored sizes of weights."""

from __future__ import annotations

from roofplan.laws import Number


def stored_bytes(entries: Number, bits: Number, group: Number, scale_bits: Number) -> Number:
    """Return the bytes of a quantised matrix: entries (bits + scale_bits / group) / 8.

    Parameters
    ----------
    entries : matrix entries [1].
    bits : bits of one entry [1].
    group : entries that share one scale (and zero point) [1].
    scale_bits : bits of that scale and zero point [1].

    Returns
    -------
    Stored [B].

    Notes
    -----
    Domain: group at least 1; padding of incomplete groups is left out. Sources: MXFP4 is 4 + 8/32 bits (OCP Microscaling
    v1.0), NVFP4 4 + 8/16, AWQ 4 + 20/128, DeepSeek's fp8 8 + 32/16384.

    Examples
    --------
    >>> stored_bytes(32, 4, 32, 8)
    17.0
    """
    return entries * (bits + scale_bits / group) / 8


def dense_layer(hidden: Number, inner: Number, query: Number, keys: Number, matrices: Number) -> Number:
    """Return the number of weights of a transformer layer, without biases and norms: h (2 q + 2 k) + m h f.

    Parameters
    ----------
    hidden : width h of the residual stream [1].
    inner : feed-forward width f [1].
    query : total width q of the query heads [1].
    keys : total width k of the key heads [1].
    matrices : matrices m of the feed-forward, 3 if gated [1].

    Returns
    -------
    Weights [1].

    Notes
    -----
    Domain: an estimate by hand; exact counts come from the layer records. Source: Vaswani et al. 2017.

    Examples
    --------
    >>> dense_layer(8192, 28672, 8192, 1024, 3)
    855638016
    """
    return hidden * (2 * query + 2 * keys) + matrices * hidden * inner
