"""Compute that models need.

References
----------
.. [1] J. Kaplan et al., "Scaling laws for neural language models", 2020, arXiv 2001.08361, table 1 and equation 2.2.
.. [2] D. Narayanan et al., "Efficient large-scale language model training on GPU clusters", SC 2021, arXiv 2104.04473, equation 3.
"""

from __future__ import annotations

from roofplan.laws import Number


def forward_per_token(parameters: Number) -> Number:
    """Return the forward work of one token: 2 N [1]_.

    Parameters
    ----------
    parameters : matmul parameters N that the token touches [1].

    Returns
    -------
    Work [FLOP].

    Notes
    -----
    Domain: attention over the context is left out. Source: [1]_ equation 2.2.

    Examples
    --------
    >>> forward_per_token(70e9)
    140000000000.0
    """
    return 2 * parameters


def training(parameters: Number, tokens: Number) -> Number:
    """Return the work of a training run: 6 N D, 2 N D forward and 4 N D backward [1]_.

    Parameters
    ----------
    parameters : matmul parameters N that a token touches [1].
    tokens : tokens D [1].

    Returns
    -------
    Work [FLOP].

    Notes
    -----
    Domain: no recomputation, context much shorter than 6 h. Source: [1]_ section 2.1.

    Examples
    --------
    >>> training(70e9, 2e12)
    8.4e+23
    """
    return 3 * forward_per_token(parameters) * tokens


def generation(parameters: Number, prompt: Number, output: Number, cached: bool = True) -> Number:
    """Return the matmul work of one answer: 2 N (I + O) with a KV cache.

    Without a cache every output token recomputes all earlier tokens: 2 N (I O + O (O + 1) / 2).

    Parameters
    ----------
    parameters : matmul parameters N that a token touches [1].
    prompt : input tokens I [1].
    output : output tokens O [1].
    cached : whether keys and values are kept.

    Returns
    -------
    Work [FLOP].

    Notes
    -----
    Domain: attention over the context is left out. Source: [1]_ per token, summed.

    Examples
    --------
    >>> generation(70e9, 1, 3, cached=False) / generation(70e9, 1, 3)
    2.25
    """
    passes = prompt + output if cached else prompt * output + output * (output + 1) / 2
    return forward_per_token(parameters) * passes


def projection(hidden: Number, tokens: Number) -> Number:
    """Return the work of one h x h projection over a sequence: 2 s h^2.

    Parameters
    ----------
    hidden : width h [1].
    tokens : sequence length s [1].

    Returns
    -------
    Work [FLOP].

    Notes
    -----
    Domain: square projection. Source: [2]_ appendix.

    Examples
    --------
    >>> projection(8192, 1)
    134217728
    """
    return 2 * tokens * hidden * hidden


def recomputed_share(layers: Number, recomputed: Number) -> Number:
    """Return the work of a training step with recomputation over that without: 1 + r / (3 L).

    Parameters
    ----------
    layers : layers L [1].
    recomputed : layers whose forward pass is repeated r, L for full recomputation [1].

    Returns
    -------
    Ratio of work [1].

    Notes
    -----
    Domain: layer inputs are kept, so each layer is recomputed at most once; a third of a step is forward. Source: [2]_ section 5.1.

    Examples
    --------
    >>> round(recomputed_share(80, 80), 3)
    1.333
    """
    return 1 + recomputed / (3 * layers)


def training_time(work: Number, devices: Number, peak: Number, utilisation: Number) -> Number:
    """Return the time of a training run: C / (N F u).

    Parameters
    ----------
    work : operations C [FLOP].
    devices : devices N [1].
    peak : dense rate of a device F [FLOP/s].
    utilisation : model FLOPs utilisation u [1].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: utilisation counted by the same convention as the work; no failures. Source: [2]_ equation 4, with its constants
    included in u.

    Examples
    --------
    >>> round(training_time(training(70e9, 2e12), 2048, 312e12, 0.44) / 86400)
    35
    """
    return work / (devices * peak * utilisation)
