"""Pipeline parallelism: latency, bubbles and micro-batches in flight.

References
----------
.. [1] Y. Huang et al., "GPipe", 2018, arXiv 1811.06965.
.. [2] D. Narayanan et al., "Efficient large-scale language model training on GPU clusters", SC 2021, arXiv 2104.04473.
"""

from __future__ import annotations

from roofplan.laws import Number, larger, where


def serial_latency(stages: Number, stage: Number, hop: Number) -> Number:
    """Return the time of a token through all stages: P (t_stage + t_hop).

    Parameters
    ----------
    stages : pipeline stages P [1].
    stage : time of one stage [s].
    hop : time of one transfer, including that from the last stage back to the first [s].

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
    """Return the time per token of a user where P groups of users fill P stages: P (t_stage(B / P) + t_hop).

    The same law as `serial_latency`, with the stage time of one group. Throughput grows P-fold; latency does not fall.

    Parameters
    ----------
    stages : pipeline stages P, which is also the number of groups [1].
    stage : time of one stage for one group [s].
    hop : time of one transfer [s].

    Returns
    -------
    Time per output token [s].

    Notes
    -----
    Domain: as many groups as stages. Source: [1]_, applied to the decoding loop.

    Examples
    --------
    >>> interleaved_token_time(2, 0.02, 0.001)
    0.042
    """
    return serial_latency(stages, stage, hop)


def layer_split_turns(stages: Number, passes: Number, copies: Number, queued: Number) -> Number:
    """Return the time of n consecutive passes through P stages, in stage times, with a limited number of passes in flight.

    g passes start one stage time apart, the next g when there is room: floor((n - 1) / g) max(g, w) + (n - 1) mod g + P.
    c copies of the inputs allow g = c, with w = P. A host that launches all kernels of a pass before those of the next, into queues
    that hold q passes of a stage, allows g = floor(q) + 1, with w = P + floor(q) - q.

    Parameters
    ----------
    stages : devices that the layers are split over P [1].
    passes : micro-batches of a prompt n [1].
    copies : micro-batches whose inputs a device holds c [1].
    queued : passes of a stage that fit into a device's launch queue q [1].

    Returns
    -------
    Stage times from the first pass to the last [1].

    Notes
    -----
    Domain: equal stages and passes, launches much shorter than kernels. For n <= g it is n + P - 1 of [1]_. Source: [1]_ with limited
    copies and launches (llama.cpp, pull request 6017, keeps four copies). Two cards with 40 layers each of about 50 kernels and queues of
    1,024 launches take 1.75 times as long for two passes as for one, 1.73 measured; without the limit of the queue it would be 1.5.

    Examples
    --------
    >>> [layer_split_turns(stages, 8.0, 4.0, 10.0) for stages in (1.0, 4.0, 8.0)]
    [8.0, 11.0, 19.0]
    >>> layer_split_turns(2.0, 2.0, 4.0, 1024.0 / 2080.0) / 2.0
    1.7538461538461538
    """
    whole = queued - queued % 1.0
    launched = whole + 1.0 < copies
    together = where(launched, whole + 1.0, copies)
    apart = larger(together, where(launched, stages + whole - queued, stages))
    rest = (passes - 1.0) % together
    return (passes - 1.0 - rest) / together * apart + rest + stages


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
    """Return the share of time in which a link is busy: t_transfer / t_period.

    Parameters
    ----------
    transfer : time of a transfer [s].
    period : time between two such transfers [s].

    Returns
    -------
    Share [1].

    Notes
    -----
    Domain: the transfer is no longer than the period. Source: definition.

    Examples
    --------
    >>> duty_cycle(0.131e-3, 18e-3) < 0.01
    True
    """
    return transfer / period


def warmup_micro_batches(stages: Number, stage: Number) -> Number:
    """Return the most micro-batches whose activations a stage holds under 1F1B: P - i [2]_.

    Parameters
    ----------
    stages : pipeline stages P [1].
    stage : index of the stage i, from 0 [1].

    Returns
    -------
    Micro-batches in flight [1].

    Notes
    -----
    Domain: at least P micro-batches; GPipe holds all of them. Source: [2]_ section 2.2.

    Examples
    --------
    >>> warmup_micro_batches(80, 0), sum(warmup_micro_batches(80, i) for i in range(80)) / 80
    (80, 40.5)
    """
    return stages - stage


def interleaved_bubble_share(stages: Number, micro_batches: Number, chunks: Number) -> Number:
    """Return the idle share of an interleaved pipeline with v chunks of layers per rank: (P - 1) / (v M + P - 1) [2]_.

    Parameters
    ----------
    stages : pipeline stages P [1].
    micro_batches : micro-batches M [1].
    chunks : chunks of layers on each rank v [1].

    Returns
    -------
    Share [1].

    Notes
    -----
    Domain: M is a multiple of P; v times the messages. With v = 1 it is `bubble_share`. Source: [2]_ section 2.2.

    Examples
    --------
    >>> interleaved_bubble_share(8, 8, 1) == bubble_share(8, 8), interleaved_bubble_share(8, 8, 7)
    (True, 0.1111111111111111)
    """
    return (stages - 1) / (chunks * micro_batches + stages - 1)


def chunks_in_flight(stages: Number, stage: Number, chunks: Number) -> Number:
    """Return the chunk micro-batches in flight on a rank of an interleaved pipeline: 2 (P - 1 - i) + (v - 1) P + 1.

    Parameters
    ----------
    stages : pipeline stages P [1].
    stage : index of the stage i, from 0 [1].
    chunks : chunks of layers on each rank v, more than one [1].

    Returns
    -------
    Micro-batches of a chunk, each 1 / v of the rank's layers [1].

    Notes
    -----
    Domain: M is a multiple of P. On the first stage this amounts to L (1 + (P - 1) / (P v)) layers, as in Korthikanti et al. 2022
    (arXiv 2205.05198) section 4.2.3. Source: the warm-up of [2]_ section 2.2.

    Examples
    --------
    >>> chunks_in_flight(8, 0, 3) / 3, 8 * (1 + 7 / 24)
    (10.333333333333334, 10.333333333333334)
    """
    return 2 * (stages - 1 - stage) + (chunks - 1) * stages + 1


def flushed_time(micro_batches: Number, chunks: Number, slowest: Number, others: Number) -> Number:
    """Return the time of all micro-batches through a flushed pipeline: M t + (sum of the other stages' times) / v.

    Parameters
    ----------
    micro_batches : micro-batches M [1].
    chunks : chunks of layers on each rank v [1].
    slowest : forward and backward time of one micro-batch on the slowest stage t [s].
    others : the same time summed over all other stages, (P - 1) t where stages are equal [s].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: GPipe, 1F1B (v = 1) and interleaved 1F1B. With equal stages the idle share is `interleaved_bubble_share`. With
    unequal stages the first and the last micro-batch pass each stage at its own speed. Source: [2]_ section 2.2.

    Examples
    --------
    >>> flushed_time(8, 1, 1.0, 7.0), flushed_time(8, 7, 1.0, 7.0)
    (15.0, 9.0)
    """
    return micro_batches * slowest + others / chunks


def zero_bubble_time(stages: Number, micro_batches: Number, forward: Number, inputs: Number, weights: Number) -> Number:
    """Return the time under ZB-H1: M (F + B + W) + (P - 1) (F + B - W).

    Parameters
    ----------
    stages : pipeline stages P [1].
    micro_batches : micro-batches M [1].
    forward : forward time of a micro-batch on a stage F [s].
    inputs : time of the gradient of its inputs B [s].
    weights : time of the gradient of its weights W [s].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: as much memory as 1F1B; with F = B = W a third of its bubble. Source: Qi et al. 2023, arXiv 2401.10241, table 2.

    Examples
    --------
    >>> zero_bubble_time(8, 8, 1.0, 1.0, 1.0), flushed_time(8, 1, 3.0, 21.0)
    (31.0, 45.0)
    """
    return micro_batches * (forward + inputs + weights) + (stages - 1) * (forward + inputs - weights)


def dual_pipe_time(stages: Number, micro_batches: Number, forward: Number, inputs: Number, weights: Number) -> Number:
    """Return the time under DualPipe, with no gain from overlapped passes: M (F + B + W) + (P / 2 - 1) (F + 2 B - W).

    Parameters
    ----------
    stages : pipeline stages P, even [1].
    micro_batches : micro-batches M [1].
    forward : forward time of a micro-batch on a stage F [s].
    inputs : time of the gradient of its inputs B [s].
    weights : time of the gradient of its weights W [s].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: twice the weights and P + 1 micro-batches in flight; F&B = F + B + W and B = B + W in the paper's letters, so that
    its bubble (P / 2 - 1) (F&B + B - 3 W) is (P / 2 - 1) (F + 2 B - W). Source: DeepSeek-V3, arXiv 2412.19437, table 2.

    Examples
    --------
    >>> dual_pipe_time(8, 8, 1.0, 1.0, 1.0)
    30.0
    """
    return micro_batches * (forward + inputs + weights) + (stages / 2 - 1) * (forward + 2 * inputs - weights)


def dual_in_flight(stages: Number) -> Number:
    """Return the most micro-batches that a rank of DualPipe holds, over both its stages: (P + 1) / 2.

    Parameters
    ----------
    stages : pipeline ranks P, even [1].

    Returns
    -------
    Micro-batches of all layers of the rank [1].

    Notes
    -----
    Domain: P + 1 activations of one stage, over the two stages of a rank. Source: DeepSeek-V3, arXiv 2412.19437, table 2.

    Examples
    --------
    >>> dual_in_flight(8)
    4.5
    """
    return (stages + 1) / 2
