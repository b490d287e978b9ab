"""Memory per parameter in training: weight, gradient and optimizer state.

References
----------
.. [1] P. Micikevicius et al., "Mixed precision training", ICLR 2018, arXiv 1710.03740.
.. [2] S. Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", SC 2020, arXiv 1910.02054.
"""

from __future__ import annotations

from roofplan.laws import Number, up, where


def state_bytes(parameters: Number, weight: Number, gradient: Number, optimizer: Number) -> Number:
    """Return the memory of weights, gradients and optimizer state: P (w + g + o).

    Parameters
    ----------
    parameters : parameters P [1].
    weight : bytes of a weight w [B].
    gradient : bytes of a gradient g [B].
    optimizer : bytes of the optimizer's state per parameter o, 12 for Adam with an fp32 copy [B].

    Returns
    -------
    State [B].

    Notes
    -----
    Domain: nothing is sharded; buffers and fragmentation are extra. Source: [1]_; counts as in [2]_ section 3.1.

    Examples
    --------
    >>> state_bytes(70e9, 2.0, 2.0, 12.0) / 1e9
    1120.0
    """
    return parameters * (weight + gradient + optimizer)


def zero_bytes(
    parameters: Number, weight: Number, gradient: Number, optimizer: Number, ranks: Number, stage: Number
) -> Number:
    """Return the state per rank under ZeRO: stage 1 shards optimizer state, stage 2 also gradients, stage 3 also weights [2]_.

    Parameters
    ----------
    parameters : parameters of a model-parallel rank P [1].
    weight : bytes of a weight [B].
    gradient : bytes of a gradient [B].
    optimizer : bytes of the optimizer's state per parameter [B].
    ranks : data-parallel ranks N [1].
    stage : ZeRO stage, 0 to 3 [1].

    Returns
    -------
    State [B].

    Notes
    -----
    Domain: even shards; weights gathered temporarily are extra. Source: [2]_ figure 1.

    Examples
    --------
    >>> [round(zero_bytes(7.5e9, 2.0, 2.0, 12.0, 64, s) / 1e9, 1) for s in (0, 1, 2, 3)]
    [120.0, 31.4, 16.6, 1.9]
    """
    weights = weight / where(stage >= 3, ranks, 1.0)
    gradients = gradient / where(stage >= 2, ranks, 1.0)
    return parameters * (weights + gradients + optimizer / where(stage >= 1, ranks, 1.0))


def devices_for(state: Number, capacity: Number) -> Number:
    """Return the number of devices needed to hold a state: ceil(S / M).

    Parameters
    ----------
    state : memory to hold S [B].
    capacity : memory of a device M [B].

    Returns
    -------
    Devices [1].

    Notes
    -----
    Domain: perfect sharding, no reserved memory; a lower bound. Source: definition.

    Examples
    --------
    >>> devices_for(1850e9, 80e9), devices_for(1850e9, 24e9)
    (24.0, 78.0)
    """
    return up(state / capacity)
