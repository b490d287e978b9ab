"""Laws of pools of other people's machines: hops over home links, checks of work, deposits, and credit.

References
----------
.. [1] BOINC, sched/sched_send.cpp, validator.cpp, credit.cpp and lib/common_defs.h at c5c6cb7.
.. [2] Zhang et al. 2024, "Proof of Sampling: A Nash Equilibrium-Secured Verification Protocol for Decentralized Systems",
   arXiv 2405.00295.
.. [3] ``tc-tbf(8)``: a bucket of `burst` bytes passes at once, the rest at the rate.
"""

from __future__ import annotations

from roofplan.laws import Number, larger, smaller

FRAME, PAYLOAD = 1514.0, 1448.0
"""Bytes of an Ethernet frame as a shaped queue counts it, and of the TCP payload that it carries [B]."""

COBBLESTONE = 200.0 / (86_400.0 * 1e9)
"""Credit of one FLOP: 200 for a day of 1 GFLOP/s [1]_ [1]."""


def wire_time(message: Number, up: Number, down: Number) -> Number:
    """Return the time of a message on the slower of two access links: n x frame / payload / min(up, down).

    Parameters
    ----------
    message : size n [B].
    up : rate of the sender's uplink [B/s].
    down : rate of the receiver's downlink [B/s].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: one TCP stream that fills the link; full frames. Source: [3]_.

    Examples
    --------
    >>> round(wire_time(200_200.0, 2.5e6, 2.5e6) * 1e3, 1)
    83.7
    """
    return message * (FRAME / PAYLOAD) / smaller(up, down)


def shaped_time(message: Number, rate: Number, burst: Number) -> Number:
    """Return the time of a message through a token bucket that was full: max(0, n x frame / payload - burst) / rate.

    Parameters
    ----------
    message : size n [B].
    rate : rate of the bucket [B/s].
    burst : size of the bucket [B].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: one TCP stream, full frames, a bucket that had time to fill. Source: [3]_.

    Examples
    --------
    4 MiB at 100 Mbit/s with a bucket of 128 kB, half of the 680.7 ms there and back:

    >>> round(shaped_time(4 * 2**20, 12.5e6, 128e3) * 1e3, 1)
    340.6
    """
    return larger(0.0, message * (FRAME / PAYLOAD) - burst) / rate


def cheating_gain(saving: Number, share: Number, detected: Number, stake: Number) -> Number:
    """Return the expected gain of cheating on a job: s - p q (D + W).

    Parameters
    ----------
    saving : what the cheat saves on the job, s [1].
    share : probability p that the job is audited [1].
    detected : probability q that an audit of it finds the cheat [1].
    stake : deposit D and withheld credit W, lost when it is found [1].

    Returns
    -------
    Gain in the unit of the saving; honest play is an equilibrium where it is negative [1].

    Notes
    -----
    Domain: a member in good standing, whose whole stake is lost. Source: [2]_, with a detection that is not certain.

    Examples
    --------
    >>> round(cheating_gain(1.0, 0.05, 1.0, 25.0), 2)
    -0.25
    """
    return saving - share * detected * stake


def least_audit(saving: Number, detected: Number, stake: Number) -> Number:
    """Return the share of audited jobs from which honesty pays: s / (q (D + W)), at most 1.

    Parameters
    ----------
    saving : what a cheat saves on a job, s [1].
    detected : probability q that an audit of it finds the cheat [1].
    stake : deposit D and withheld credit W, in the unit of the saving [1].

    Returns
    -------
    Share [1].

    Notes
    -----
    Domain: as `cheating_gain`; 1 where nothing is ever detected. Source: [2]_.

    Examples
    --------
    >>> least_audit(1.0, 1.0, 25.0)
    0.04
    """
    return saving / larger(detected * stake, saving)


def replicated_share(valid: Number) -> Number:
    """Return the probability that the next job of a trusted host is replicated: 1 / n.

    Parameters
    ----------
    valid : consecutive valid results n, at least the project's threshold [1].

    Returns
    -------
    Probability [1].

    Notes
    -----
    Domain: n at or above the threshold; below it every job is replicated. Source: [1]_, adaptive replication: one copy with probability 1 - 1 / n.

    Examples
    --------
    >>> replicated_share(10.0)
    0.1
    """
    return 1.0 / valid


def credit(work: Number) -> Number:
    """Return the credit of verified work: 200 for each GFLOP/s and day.

    Parameters
    ----------
    work : verified work [FLOP].

    Returns
    -------
    Credit, in cobblestones [1].

    Notes
    -----
    Domain: any work. Source: [1]_, COBBLESTONE_SCALE.

    Examples
    --------
    >>> round(credit(1e9 * 86_400), 6)
    200.0
    """
    return work * COBBLESTONE
