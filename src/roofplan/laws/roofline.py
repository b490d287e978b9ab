"""Roofline: attainable rates, and which limit binds.

References
----------
.. [1] S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009. doi:10.1145/1498765.1498785
"""

from __future__ import annotations

from roofplan.laws import Number, larger, smaller


def ridge_point(peak: Number, bandwidth: Number) -> Number:
    """Return the arithmetic intensity above which compute binds: I* = peak / bandwidth [1]_.

    Parameters
    ----------
    peak : compute rate [FLOP/s], any shape.
    bandwidth : memory rate [B/s], broadcastable.

    Returns
    -------
    Intensity [FLOP/B].

    Notes
    -----
    Domain: both rates positive. Source: [1]_ section 3.

    Examples
    --------
    >>> round(ridge_point(989.4e12, 3.35e12))
    295
    """
    return peak / bandwidth


def attainable_rate(intensity: Number, peak: Number, bandwidth: Number) -> Number:
    """Return the attainable rate at an arithmetic intensity: min(peak, intensity * bandwidth) [1]_.

    Parameters
    ----------
    intensity : work per byte moved [FLOP/B].
    peak : compute rate [FLOP/s].
    bandwidth : memory rate [B/s].

    Returns
    -------
    Rate [FLOP/s].

    Notes
    -----
    Domain: perfect overlap of compute and traffic. Source: [1]_ equation 1.

    Examples
    --------
    >>> attainable_rate(1.0, 312e12, 2.0e12)
    2000000000000.0
    """
    return smaller(peak, intensity * bandwidth)


def overlapped_time(work: Number, traffic: Number, rate: Number, bandwidth: Number) -> Number:
    """Return the time of a kernel whose compute and traffic overlap: max(W / rate, Q / bandwidth).

    Parameters
    ----------
    work : floating-point operations [FLOP].
    traffic : bytes moved to and from memory [B].
    rate : achieved compute rate [FLOP/s].
    bandwidth : achieved memory rate [B/s].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: one kernel, no launch cost. Source: [1]_, written as time.

    Examples
    --------
    >>> overlapped_time(2e12, 1e9, 1e15, 1e12)
    0.002
    """
    return larger(work / rate, traffic / bandwidth)


def beyond_cache(traffic: Number, cache: Number) -> Number:
    """Return the traffic between consecutive kernels that the last-level cache does not absorb: max(Q - C, 0).

    Parameters
    ----------
    traffic : bytes written by one kernel and read by the next Q [B].
    cache : last-level cache C [B].

    Returns
    -------
    Traffic to memory [B].

    Notes
    -----
    Domain: a rule of thumb. The cache serves one cache size of the tensors that an operation's passes hand over, at no cost in time.
    Source: count; an estimate that has not been compared with published kernels.

    Examples
    --------
    >>> beyond_cache(100e6, 72e6), beyond_cache(50e6, 72e6)
    (28000000.0, 0.0)
    """
    return larger(traffic - cache, 0.0)


def serial_time(work: Number, traffic: Number, rate: Number, bandwidth: Number) -> Number:
    """Return the time of a kernel without overlap: W / rate + Q / bandwidth.

    The alternative to `overlapped_time`: an upper bound, at most twice as long.

    Parameters
    ----------
    work : floating-point operations [FLOP].
    traffic : bytes moved to and from memory [B].
    rate : achieved compute rate [FLOP/s].
    bandwidth : achieved memory rate [B/s].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: any. Source: sum of the two terms of [1]_.

    Examples
    --------
    >>> serial_time(2e12, 1e9, 1e15, 1e12)
    0.003
    """
    return work / rate + traffic / bandwidth


def row_by_row_time(work: Number, traffic: Number, rate: Number, bandwidth: Number, rows: Number) -> Number:
    """Return the time of a product whose rows follow each other: max(w / rate, Q / bandwidth) + (n - 1) w / rate.

    Weights come from memory while the first row is computed, and stay in a cache near the core for the others.

    Parameters
    ----------
    work : operations of all rows n w [FLOP].
    traffic : bytes moved to and from memory by all rows Q [B].
    rate : achieved compute rate [FLOP/s].
    bandwidth : achieved memory rate [B/s].
    rows : rows n, at least one [1].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: processors, whose kernels take a few rows of weights at a time. Source: measured; on an
    EPYC core a token of SmolLM2-135M takes 6.6 ms, where computing takes 6.3 and reading 2.6 by a probe of that core, one after the other 9.

    Examples
    --------
    >>> row_by_row_time(4e9, 1e9, 1e12, 1e12, 4.0)
    0.004
    >>> row_by_row_time(4e9, 2e9, 1e12, 1e12, 4.0)
    0.005
    """
    each = work / rows / rate
    return larger(each, traffic / bandwidth) + (rows - 1.0) * each


def kernel_time(
    work: Number, traffic: Number, rate: Number, bandwidth: Number, kernels: Number, launch: Number
) -> Number:
    """Return the time of an operation including its kernel launches: max(W / rate, Q / bandwidth) + kernels * launch.

    Parameters
    ----------
    work : floating-point operations [FLOP].
    traffic : bytes moved to and from memory [B].
    rate : achieved compute rate [FLOP/s].
    bandwidth : achieved memory rate [B/s].
    kernels : kernels launched [1].
    launch : time between one kernel and the next [s].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: launches on the critical path. Inside a captured graph `launch` is the gap between kernels,
    outside it the host's cost per launch. Source: roofline [1]_ plus an affine start-up term.

    Examples
    --------
    >>> kernel_time(0.0, 3.35e9, 1e15, 3.35e12, 1, 2e-6)
    0.001002
    """
    return overlapped_time(work, traffic, rate, bandwidth) + kernels * launch


def share_of_peak(work: Number, time: Number, peak: Number) -> Number:
    """Return the achieved share of the peak rate: W / (t * peak).

    Parameters
    ----------
    work : floating-point operations [FLOP].
    time : elapsed time [s].
    peak : compute rate [FLOP/s].

    Returns
    -------
    Share [1].

    Notes
    -----
    Domain: work counted by one stated convention; with model FLOPs this is MFU. Source: (Chowdhery et al. 2022, arXiv 2204.02311, appendix B).

    Examples
    --------
    >>> round(share_of_peak(6 * 70e9 * 1e6, 1000.0, 989.4e12), 3)
    0.424
    """
    return work / (time * peak)
