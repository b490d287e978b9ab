"""Layers spread over stages.

References
----------
.. [1] Y. Huang et al., "GPipe", 2018, arXiv 1811.06965.
"""

from __future__ import annotations

from roofplan.laws import Number


def serial_latency(stages: Number, stage: Number, hop: Number) -> Number:
    """Return the time of one token through all stages: P (t_stage + t_hop).

    Parameters
    ----------
    stages : pipeline stages P [1].
    stage : time of one stage [s].
    hop : time of one transfer, the last back to the first included [s].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: autoregressive decoding, where a token waits for its predecessor. Source: [1]_ section 2, one micro-batch.

    Examples
    --------
    >>> round(serial_latency(8, 17.5e-3, 0.5e-3), 6)
    0.144
    """
    return stages * (stage + hop)


def interleaved_token_time(stages: Number, stage: Number, hop: Number) -> Number:
    """Return the time per token of each user where P groups of users fill P stages: P (t_stage(B / P) + t_hop).

    The same law as `serial_latency` with the stage time of one group; rate grows P-fold, latency does not fall.

    Parameters
    ----------
    stages : pipeline stages P, and groups of users [1].
    stage : time of one stage for one group [s].
    hop : time of one transfer [s].

    Returns
    -------
    Time per output token [s].

    Notes
    -----
    Domain: as many groups as stages. Source: [1]_ with the loop of decoding closed.

    Examples
    --------
    >>> interleaved_token_time(2, 0.02, 0.001)
    0.042
    """
    return serial_latency(stages, stage, hop)


def bubble_share(stages: Number, micro_batches: Number) -> Number:
    """Return the idle share of a flushed pipeline: (P - 1) / (M + P - 1).

    Parameters
    ----------
    stages : pipeline stages P [1].
    micro_batches : micro-batches M [1].

    Returns
    -------
    Share [1].

    Notes
    -----
    Domain: GPipe and 1F1B without interleaving. Source: [1]_ section 2.3.

    Examples
    --------
    >>> bubble_share(8, 8)
    0.4666666666666667
    """
    return (stages - 1) / (micro_batches + stages - 1)


def duty_cycle(transfer: Number, period: Number) -> Number:
    """Return the share of time that a link is busy: t_transfer / t_period.

    Parameters
    ----------
    transfer : time that the link works [s].
    period : time between two such transfers [s].

    Returns
    -------
    Share [1].

    Notes
    -----
    Domain: transfer within the period. Source: definition.

    Examples
    --------
    >>> duty_cycle(0.131e-3, 18e-3) < 0.01
    True
    """
    return transfer / period
