"""Failures of long runs: how often they occur, what they cost, and how often to write checkpoints.

References
----------
.. [1] J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974. doi:10.1145/361147.361115
.. [2] J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3), 2006. doi:10.1016/j.future.2004.11.016
"""

from __future__ import annotations

import numpy as np

from roofplan.laws import Number, where


def mean_time_to_interruption(devices: Number, rate: Number) -> Number:
    """Return the mean time between interruptions of a job: 1 / (N lambda).

    Parameters
    ----------
    devices : devices N [1].
    rate : interruptions per device and second lambda [1/s].

    Returns
    -------
    Time M [s].

    Notes
    -----
    Domain: independent failures at a constant rate, each of which stops the job. Source: superposition of Poisson processes.

    Examples
    --------
    >>> round(mean_time_to_interruption(16384, 0.4736e-3 / 86400) / 3600, 2)  # Llama 3 405B: 3.09 h
    3.09
    """
    return 1.0 / (devices * rate)


def young_interval(write: Number, interruption: Number) -> Number:
    """Return the optimal time between checkpoints, to first order: sqrt(2 delta M) [1]_.

    The alternative to `daly_interval`.

    Parameters
    ----------
    write : time that writing a checkpoint stops the run delta [s].
    interruption : mean time to interruption M [s].

    Returns
    -------
    Interval [s].

    Notes
    -----
    Domain: delta much smaller than M. Source: [1]_.

    Examples
    --------
    >>> young_interval(60.0, 3.0 * 3600.0)
    1138.4199576606165
    """
    return (2.0 * write * interruption) ** 0.5


def daly_interval(write: Number, interruption: Number) -> Number:
    """Return the optimal time between checkpoints, to higher order [2]_.

    sqrt(2 delta M) (1 + sqrt(delta / 2 M) / 3 + delta / 18 M) - delta where delta < 2 M, else M.

    Parameters
    ----------
    write : time that writing a checkpoint stops the run delta [s].
    interruption : mean time to interruption M [s].

    Returns
    -------
    Interval of work between two writes [s].

    Notes
    -----
    Domain: exponential interruptions. Source: [2]_ equation 37.

    Examples
    --------
    >>> round(daly_interval(60.0, 3.0 * 3600.0), 1)
    1098.8
    """
    ratio = write / (2.0 * interruption)
    best = (2.0 * write * interruption) ** 0.5 * (1.0 + ratio**0.5 / 3.0 + ratio / 9.0) - write
    return where(ratio < 1.0, best, interruption)


def goodput(interval: Number, write: Number, restart: Number, interruption: Number) -> Number:
    """Return the share of time in which the run makes progress: tau / (M e^(R/M) (e^((tau + delta)/M) - 1)) [2]_.

    Parameters
    ----------
    interval : work between two checkpoints tau [s].
    write : time that writing a checkpoint stops the run delta [s].
    restart : detection, restart and reload after an interruption R [s].
    interruption : mean time to interruption M [s].

    Returns
    -------
    Share [1].

    Notes
    -----
    Domain: exponential interruptions, which may also occur during writes and restarts. Source: [2]_ equation 20.

    Examples
    --------
    >>> round(float(goodput(1098.8, 60.0, 600.0, 3.0 * 3600.0)), 3)
    0.85
    """
    return interval / (interruption * np.exp(restart / interruption) * np.expm1((interval + write) / interruption))


def slowest_of(sigma: Number, ranks: Number) -> Number:
    """Return the relative excess of the slowest of N equal hosts over their mean: sigma sqrt(2 ln N).

    Parameters
    ----------
    sigma : relative spread of one host's time [1].
    ranks : hosts that wait for each other N [1].

    Returns
    -------
    Share [1].

    Notes
    -----
    Domain: many independent hosts with normally distributed times. Source: leading term of the expected maximum of N normal variables
    (H. Cramer, Mathematical Methods of Statistics, 1946, section 28.6).

    Examples
    --------
    >>> float(slowest_of(0.01, 1.0)), round(float(slowest_of(0.01, 64.0)), 4)
    (0.0, 0.0288)
    """
    return sigma * (2.0 * np.log(ranks)) ** 0.5


def degraded_goodput(repair: Number, regroup: Number, interruption: Number, copies: Number) -> Number:
    """Return the goodput of a run that continues without a failed copy until it is repaired: (1 - T / (M d)) / (1 + g / M).

    The alternative to `goodput`, where the whole run stops until the failed part is back.

    Parameters
    ----------
    repair : time until a failed copy is back T [s].
    regroup : time that the other copies need to continue without it g [s].
    interruption : mean time to interruption M [s].
    copies : data-parallel copies d [1].

    Returns
    -------
    Share [1].

    Notes
    -----
    Domain: failures so rare that two copies are seldom out at once; no step is lost. Source: time balance; measured with
    fault-tolerant sharded data parallelism at 100,000 devices (Meta, FT-HSDP).

    Examples
    --------
    >>> round(degraded_goodput(1800.0, 180.0, 10800.0, 128.0), 3)
    0.982
    """
    return (1.0 - repair / (interruption * copies)) / (1.0 + regroup / interruption)


def spread_of_finish(work: Number, share: Number, interruption: Number, restart: Number, lost: Number) -> Number:
    """Return the standard deviation of the elapsed time: sqrt(T / M) times the root mean square cost of an interruption.

    Parameters
    ----------
    work : time of the training steps [s].
    share : goodput [1].
    interruption : mean time to interruption M [s].
    restart : detection, restart and reload R [s].
    lost : mean work lost per interruption, half an interval [s].

    Returns
    -------
    Standard deviation [s].

    Notes
    -----
    Domain: many interruptions, each costing R and a loss uniform between 0 and twice its mean. Source: variance of a
    compound Poisson process.

    Examples
    --------
    >>> round(float(spread_of_finish(54 * 86400.0, 0.9, 3.09 * 3600, 600.0, 600.0)) / 3600, 1)
    7.5
    """
    count = work / share / interruption
    square = restart**2 + 2.0 * restart * lost + 4.0 / 3.0 * lost**2
    return (count * square) ** 0.5
