"""Collective communication: latency and bandwidth of each algorithm.

Every law has the form alpha + beta n: a cost per message step and a cost per byte. The planner takes the fastest
algorithm that the topology allows.

References
----------
.. [1] R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH", 2005. doi:10.1177/1094342005051521
.. [2] P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009. doi:10.1016/j.jpdc.2008.09.002
.. [3] NVIDIA, NCCL source, src/graph/tuning.cc: base and per-hop latencies of LL, LL128 and Simple protocols.
.. [4] B. Klenk et al., "An in-network architecture for accelerating shared-memory multiprocessor collectives", ISCA 2020.
"""

from __future__ import annotations

import numpy as np

from roofplan.laws import Number, larger, smaller, where


def transfer_time(message: Number, latency: Number, bandwidth: Number) -> Number:
    """Return the time of one message: alpha + n / bandwidth.

    Parameters
    ----------
    message : size n [B].
    latency : fixed cost alpha [s].
    bandwidth : rate one way [B/s].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: one pair, no contention. Source: Hockney 1994; [1]_ section 3.

    Examples
    --------
    >>> round(transfer_time(16384, 0.0, 125e6) * 1e6)
    131
    """
    return latency + message / bandwidth


def ring_volume_factor(ranks: Number) -> Number:
    """Return the bytes that each rank sends in a ring all-reduce, relative to the message size: 2 (n - 1) / n [2]_.

    Parameters
    ----------
    ranks : ranks n [1].

    Returns
    -------
    Factor [1].

    Notes
    -----
    Domain: n >= 1; 0 for one rank. Source: [2]_ theorem 1.

    Examples
    --------
    >>> ring_volume_factor(8)
    1.75
    """
    return 2 * (ranks - 1) / ranks


def ring_all_reduce(message: Number, ranks: Number, base: Number, step: Number, bandwidth: Number) -> Number:
    """Return the time of a ring all-reduce: base + 2 (n - 1) step + 2 (n - 1) / n * size / bandwidth.

    Parameters
    ----------
    message : size of the reduced tensor on one rank [B].
    ranks : ranks n [1].
    base : start-up of the kernel [s].
    step : cost of each of the 2 (n - 1) steps [s].
    bandwidth : rate one way of a rank [B/s].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: all ranks send to their neighbours at `bandwidth` at the same time. Sources: [2]_, latencies [3]_.

    Examples
    --------
    >>> round(ring_all_reduce(0.0, 8, 6e-6, 1e-6, 450e9) * 1e6)
    20
    """
    return base + 2 * (ranks - 1) * step + ring_volume_factor(ranks) * message / bandwidth


def one_shot_all_reduce(message: Number, ranks: Number, base: Number, bandwidth: Number) -> Number:
    """Return the time of a one-shot all-reduce: base + (n - 1) size / bandwidth. Each rank reads the data of all others.

    Parameters
    ----------
    message : size of the reduced tensor on one rank [B].
    ranks : ranks n [1].
    base : start-up and one synchronisation [s].
    bandwidth : rate one way of a rank [B/s].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: peers can read each other's memory. Source: the custom all-reduce kernels of TensorRT-LLM and vLLM; [1]_ section 4.

    Examples
    --------
    >>> one_shot_all_reduce(0.0, 8, 5e-6, 450e9)
    5e-06
    """
    return base + (ranks - 1) * message / bandwidth


def two_shot_all_reduce(message: Number, ranks: Number, base: Number, bandwidth: Number) -> Number:
    """Return the time of a two-shot all-reduce: 2 base + 2 (n - 1) / n * size / bandwidth. A reduce-scatter, then an all-gather.

    Parameters
    ----------
    message : size of the reduced tensor on one rank [B].
    ranks : ranks n [1].
    base : start-up and one synchronisation of each phase [s].
    bandwidth : rate one way of a rank [B/s].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: peers can read each other's memory. Source: as `one_shot_all_reduce`; Rabenseifner's algorithm [1]_.

    Examples
    --------
    >>> two_shot_all_reduce(0.0, 8, 5e-6, 450e9)
    1e-05
    """
    return 2 * base + ring_volume_factor(ranks) * message / bandwidth


def tree_all_reduce(message: Number, ranks: Number, base: Number, step: Number, bandwidth: Number) -> Number:
    """Return the time of a pipelined double-tree all-reduce: base + 2 log2(n) step + 2 size / bandwidth.

    Parameters
    ----------
    message : size of the reduced tensor on one rank [B].
    ranks : ranks n [1].
    base : start-up of the kernel [s].
    step : cost of each level, up and down [s].
    bandwidth : rate one way of a rank [B/s].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: many ranks and small messages, across hosts. Sources: [1]_ section 4.4, NCCL trees [3]_.

    Examples
    --------
    >>> round(tree_all_reduce(0.0, 8, 5e-6, 5e-6, 50e9) * 1e6)
    35
    """
    return base + 2 * np.log2(ranks) * step + 2 * message / bandwidth


def in_network_all_reduce(message: Number, ranks: Number, base: Number, bandwidth: Number) -> Number:
    """Return the time of an all-reduce computed by the switch: base + (n + 1) / n * size / bandwidth.

    Each rank sends its tensor once and receives 1/n-th shares of the result, so a link carries about half the volume of a ring [4]_.

    Parameters
    ----------
    message : size of the reduced tensor on one rank [B].
    ranks : ranks n [1].
    base : start-up and synchronisation [s].
    bandwidth : rate one way of a rank [B/s].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: NVLink SHARP and similar. The bus bandwidth exceeds the link rate: 482 of 450 GB/s measured on 8 H200. Source: [4]_ section 3.

    Examples
    --------
    >>> in_network_all_reduce(0.0, 8, 1e-5, 450e9)
    1e-05
    """
    return base + (ranks + 1) / ranks * message / bandwidth


def gather_time(message: Number, ranks: Number, base: Number, step: Number, bandwidth: Number) -> Number:
    """Return the time of an all-gather, reduce-scatter or all-to-all: base + (n - 1) step + (n - 1) / n * size / bandwidth.

    Parameters
    ----------
    message : size of the gathered tensor, or of all that a rank sends in an all-to-all, including its own share [B].
    ranks : ranks n [1].
    base : start-up of the kernel [s].
    step : cost of each of the n - 1 rounds [s].
    bandwidth : rate one way of a rank [B/s].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: a ring or mesh that keeps all links busy; uniform traffic. Sources: [2]_ section 3; all-to-all [1]_ section 5.

    Examples
    --------
    >>> gather_time(8.0, 8, 0.0, 0.0, 1.0), gather_time(0.0, 8, 5e-6, 1e-6, 1.0)
    (7.0, 1.2e-05)
    """
    return base + (ranks - 1) * step + (ranks - 1) / ranks * message / bandwidth


def shared_ring_rate(inside: Number, outside: Number, local: Number, ranks: Number) -> Number:
    """Return the rate per rank of a ring that spans hosts: min(inside, outside x local) where the ring leaves its host.

    Each rank of a host contributes its share of the host's ports. A ring enters and leaves each host once.

    Parameters
    ----------
    inside : achieved rate one way of a rank inside a host [B/s].
    outside : achieved network rate one way of a device when all devices of a host send [B/s].
    local : ranks of the ring in one host [1].
    ranks : ranks of the ring [1].

    Returns
    -------
    Rate [B/s].

    Notes
    -----
    Domain: all groups of a host run their rings at the same time. Source: [2]_; the slowest link decides.

    Examples
    --------
    >>> shared_ring_rate(240e9, 12.5e9, 8.0, 16.0), shared_ring_rate(240e9, 12.5e9, 8.0, 8.0)
    (100000000000.0, 240000000000.0)
    """
    return where(ranks > local, smaller(inside, outside * local), inside)


def hosts_visited(hosts: Number, chosen: Number, groups: Number = 1.0, taken: Number = 1.0) -> Number:
    """Return the expected number of hosts that hold a token's experts: H (1 - (1 - 1 / H)^k) where any expert may be chosen.

    Where a token first chooses c of G groups, a host that holds j of them is missed with probability (1 - j / c)^k, and
    j is hypergeometric. With at most one group per host, c H / G of the hosts are reachable.

    Parameters
    ----------
    hosts : hosts that share the experts H [1].
    chosen : experts of a token k [1].
    groups : groups of neighbouring experts G, 1 where the choice is not limited [1].
    taken : groups from which a token may choose its experts c [1].

    Returns
    -------
    Hosts [1].

    Notes
    -----
    Domain: experts and groups chosen uniformly, groups divided evenly over hosts. A kernel that sends a token once to each
    host and distributes it there sends this many copies instead of k. Source: expectation; DeepEP, and node-limited routing of DeepSeek-V3,
    arXiv 2412.19437, sections 2.1.2 and 3.2.2.

    Examples
    --------
    >>> hosts_visited(1.0, 8.0), hosts_visited(8.0, 8.0)
    (1.0, 5.251128673553467)
    >>> [round(float(hosts_visited(h, 8.0, 8, 4)), 2) for h in (1.0, 2.0, 4.0, 8.0, 16.0)]
    [1.0, 1.92, 2.91, 3.6, 5.25]
    """
    if type(groups) is not np.ndarray and groups == 1.0:
        return hosts * (1.0 - (1.0 - 1.0 / hosts) ** chosen)
    taken = np.minimum(taken, groups)
    reach = np.maximum(hosts * taken / groups, 1.0)
    spread = reach * (1.0 - (1.0 - 1.0 / reach) ** chosen)
    each = np.maximum(groups / hosts, 1.0)
    missed: Number = 0.0
    for held in range(int(np.max(taken)) + 1):
        ways = _choose(each, held) * _choose(groups - each, taken - held) / _choose(groups, taken)
        missed = missed + np.where(held <= taken, ways * np.maximum(1.0 - held / taken, 0.0) ** chosen, 0.0)
    return np.where(hosts >= groups, spread, hosts * (1.0 - missed))


def _choose(of: Number, some: Number) -> Number:
    """Return the number of ways to choose `some` of `of` items, 0 where there are fewer."""
    ways: Number = 1.0
    for before in range(max(int(np.ceil(np.max(some))), 0)):
        ways = ways * np.where(before < some, np.maximum(of - before, 0.0) / (before + 1), 1.0)
    return ways


def exposed_time(message: Number, window: Number, slowdown: Number) -> Number:
    """Return the time that a message overlapped with compute adds: max(m - (1 - s) w, s m) = max(0, m - w) + s min(m, w).

    Parameters
    ----------
    message : time of the message by itself m [s].
    window : time of the compute that it overlaps with w [s].
    slowdown : share by which the message slows that compute down s [1].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: 0 <= s <= 1, one message at a time. Source: overlap as in calculon (Isaev et al., SC 2023).

    Examples
    --------
    >>> float(exposed_time(1.0, 4.0, 0.15)), float(exposed_time(5.0, 4.0, 0.15))
    (0.15, 1.6)
    """
    return larger(message - (1.0 - slowdown) * window, slowdown * message)
