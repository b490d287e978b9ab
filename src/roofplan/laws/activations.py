"""Activations that training keeps between the forward and the backward pass.

References
----------
.. [1] V. Korthikanti et al., "Reducing activation recomputation in large transformer models", MLSys 2023, arXiv 2205.05198.
.. [2] T. Chen et al., "Training deep nets with sublinear memory cost", 2016, arXiv 1604.06174.
.. [3] T. Yuan et al., "Accelerating the training of large language models using efficient activation rematerialization and optimal
   hybrid parallelism", USENIX ATC 2024.
"""

from __future__ import annotations

from roofplan.laws import Number, up

WHOLE, SPLIT = 10.0, 24.0
"""Bytes per token and unit of width of a transformer layer that tensor parallelism does not divide (inputs of attention and
feed-forward 4, dropout masks 2, layer norms 4), and those that it divides (attention 8, feed-forward 16) [1]_ table 2 [B]."""


def score_bytes(heads: Number, sequence: Number, hidden: Number) -> Number:
    """Return the bytes that attention scores add per token and unit of width: 5 a s / h [1]_.

    Parameters
    ----------
    heads : attention heads a [1].
    sequence : tokens of a sequence s [1].
    hidden : width h [1].

    Returns
    -------
    Bytes per token and unit of width [B].

    Notes
    -----
    Domain: scores, softmax and its dropout mask kept in 16 bits. With flash attention or selective recomputation nothing
    is kept, so pass 0. Source: [1]_ equation 1.

    Examples
    --------
    >>> score_bytes(64, 4096, 8192)
    160.0
    """
    return 5 * heads * sequence / hidden


def layer_bytes(tokens: Number, hidden: Number, tensor: Number, score: Number) -> Number:
    """Return the activations of a layer on each tensor-parallel rank: s b h (10 + 24 / t + score / t) [1]_.

    The alternative, `sequence_parallel_bytes`, divides the 10 as well.

    Parameters
    ----------
    tokens : tokens of a micro-batch s b [1].
    hidden : width h [1].
    tensor : tensor-parallel ranks t [1].
    score : what attention scores add, see `score_bytes` [B].

    Returns
    -------
    Activations of a layer [B].

    Notes
    -----
    Domain: GELU feed-forward of 4 h, multi-head attention, dropout, 16-bit activations; gated feed-forwards and
    grouped-query attention change the 24. Source: [1]_ equation 2.

    Examples
    --------
    >>> round(80 * layer_bytes(8 * 4096, 8192, 1, 0.0) / 1e9, 1)  # LLaMA-2 70B, batch 8
    730.1
    """
    return tokens * hidden * (WHOLE + (SPLIT + score) / tensor)


def sequence_parallel_bytes(tokens: Number, hidden: Number, tensor: Number, score: Number) -> Number:
    """Return the activations of a layer per rank under sequence parallelism: s b h (34 + score) / t [1]_.

    Parameters
    ----------
    tokens : tokens of a micro-batch s b [1].
    hidden : width h [1].
    tensor : tensor-parallel ranks t [1].
    score : what attention scores add, see `score_bytes` [B].

    Returns
    -------
    Activations of a layer [B].

    Notes
    -----
    Domain: as `layer_bytes`. Source: [1]_ equation 4.

    Examples
    --------
    >>> sequence_parallel_bytes(2048, 12288, 8, 0.0) / 2048 / 12288
    4.25
    """
    return tokens * hidden * (WHOLE + SPLIT + score) / tensor


def input_bytes(tokens: Number, hidden: Number, element: Number) -> Number:
    """Return the activations of a layer under full recomputation, its input: s b h e [1]_.

    Parameters
    ----------
    tokens : tokens of a micro-batch s b [1].
    hidden : width h [1].
    element : bytes per activation e [B].

    Returns
    -------
    Activations of a layer [B].

    Notes
    -----
    Domain: the rest is kept temporarily, for the layer being recomputed. Source: [1]_ section 5.

    Examples
    --------
    >>> round(80 * input_bytes(8 * 4096, 8192, 2.0) / 1e9)
    43
    """
    return tokens * hidden * element


def swap_width(kept: Number, weights: Number, rate: Number, link: Number, passes: Number) -> Number:
    """Return the least layer width at which activations reach host memory within n forward passes: k R / (2 w B n) [3]_.

    With n = 1 swapping costs nothing. Up to n = 2 it costs less than full recomputation, which costs one forward pass:
    the transfer back then has the time of the backward pass, two forward passes.

    Parameters
    ----------
    kept : bytes kept per token and unit of width k [B].
    weights : weights of a layer over the square of its width w, 12 for a plain transformer layer [1].
    rate : achieved rate of its matrix products R [FLOP/s].
    link : achieved rate one way to host memory B [B/s].
    passes : forward passes n [1].

    Returns
    -------
    Width h [1].

    Notes
    -----
    Domain: matrix products only. Long sequences need less width, since attention adds work but no kept bytes. A layer keeps
    k h and computes 2 w h^2 per token, so wide layers compute longer for each byte. Source: [3]_ compares the two tensor
    by tensor; this is a closed form.

    Examples
    --------
    >>> [round(float(swap_width(34.0, 12.0, 200e12, 27.3e9, n))) for n in (1.0, 2.0)]  # an A100 over PCIe 4
    [10379, 5189]
    """
    return kept * rate / (2 * weights * link * passes)


def grouped_bytes(layers: Number, group: Number, entrance: Number, inside: Number) -> Number:
    """Return the peak activations where groups of k layers are recomputed one at a time: L/k i + k a [2]_.

    Parameters
    ----------
    layers : layers L [1].
    group : layers per group k [1].
    entrance : kept at the entrance of a group i [B].
    inside : kept by a layer while its group is recomputed a [B].

    Returns
    -------
    Peak activations [B].

    Notes
    -----
    Domain: equal layers. The minimum is at k = sqrt(L i / a). Source: [2]_ section 4.

    Examples
    --------
    >>> [grouped_bytes(80.0, k, 1.0, 17.0) for k in (1.0, 2.0, 4.0)]
    [97.0, 74.0, 88.0]
    """
    return up(layers / group) * entrance + group * inside


def best_group(layers: Number, entrance: Number, inside: Number) -> Number:
    """Return the number of layers per group that minimises peak activations: sqrt(L i / a) [2]_.

    Parameters
    ----------
    layers : layers L [1].
    entrance : kept at the entrance of a group i [B].
    inside : kept by a layer while its group is recomputed a [B].

    Returns
    -------
    Layers per group [1].

    Notes
    -----
    Domain: the minimum of `grouped_bytes` over real k. Source: [2]_ section 4.

    Examples
    --------
    >>> best_group(64.0, 1.0, 1.0)
    8.0
    """
    return (layers * entrance / inside) ** 0.5
