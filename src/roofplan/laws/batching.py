"""Serving many requests: continuous and static batching, Little's law, speculative decoding.

References
----------
.. [1] G.-I. Yu et al., "Orca: a distributed serving system for transformer-based generative models", OSDI 2022.
.. [2] A. Agrawal et al., "Taming throughput-latency tradeoff in LLM inference with Sarathi-Serve", OSDI 2024, arXiv 2403.02310.
.. [3] J. D. C. Little, "A proof for the queuing formula L = lambda W", Operations Research 9(3), 1961. doi:10.1287/opre.9.3.383
.. [4] Y. Leviathan, M. Kalman, Y. Matias, "Fast inference from transformers via speculative decoding", ICML 2023, arXiv 2211.17192, equation 1.
"""

from __future__ import annotations

import numpy as np

from roofplan.laws import Number, larger, smaller, up, where


def stall_of_others(other: Number, others: Number, tokens: Number, most: Number = np.inf) -> Number:
    """Return the delay per token, after the first, from the prompts of other requests: c' P / n, at most m - d.

    In continuous batching, each other sequence is replaced once while a request is served. The time between its tokens, which
    clients report as (E2E - TTFT) / (N - 1), is the decode step d plus this stall. It does not include the request's own prompt.

    Parameters
    ----------
    other : time that another request's prompt costs this one, P [s].
    others : other running sequences c' [1].
    tokens : tokens of the request after the first, n = N - 1 [1].
    most : extra time of a step with prompts over one without, m - d; the upper limit where prompts and tokens share steps [s].

    Returns
    -------
    Time per token [s]. Any excess over `most` delays the first token instead.

    Notes
    -----
    Domain: closed loop, requests of equal length. Where a prompt shares k mixed steps with the tokens of others, P = k (m - d).
    Source: conservation of requests in [1]_.

    Examples
    --------
    >>> round(stall_of_others(0.1, 63, 255), 6), stall_of_others(0.1, 63, 255, 0.02)
    (0.024706, 0.02)
    """
    return smaller(others * other / tokens, most)


def prompts_of_a_step(ending: Number) -> Number:
    """Return the mean prompts of a step that computes any, where on average p requests end in a step: p / (1 - exp(-p)).

    Parameters
    ----------
    ending : requests that end, and are followed by others, in a step p [1].

    Returns
    -------
    Prompts [1].

    Notes
    -----
    Domain: requests that end independently of each other. Source: the mean of a Poisson number that is not zero.

    Examples
    --------
    >>> round(prompts_of_a_step(1.0), 3), round(prompts_of_a_step(1e-9), 3)
    (1.582, 1.0)
    """
    some = larger(1.0 * ending, 1e-6)
    return some / (1.0 - np.e**-some)


def steps_with_prompts(steps: Number, prompts: Number, groups: Number) -> Number:
    """Return the steps in which at least one of several groups that step together computes a prompt: n (1 - (1 - p / n)^G).

    Parameters
    ----------
    steps : steps n of all groups [1].
    prompts : steps p with a prompt of each group, at most n [1].
    groups : groups G that wait for each other [1].

    Returns
    -------
    Steps that take as long as one with a prompt [1].

    Notes
    -----
    Domain: prompts that arrive at groups independently of each other. One group has p such steps; many have nearly n.
    Source: the complement of no group having a prompt.

    Examples
    --------
    >>> round(steps_with_prompts(255.0, 29.0, 8.0), 1), round(steps_with_prompts(255.0, 29.0, 1.0), 1)
    (157.9, 29.0)
    """
    share = smaller(prompts / steps, 1.0)
    return steps * (1.0 - (1.0 - share) ** groups)


def cycle_time(first: Number, between: Number, output: Number) -> Number:
    """Return the time of a request per output token, which sets the throughput: (TTFT + (N - 1) TPOT) / N.

    Parameters
    ----------
    first : time to the first token [s].
    between : time between the tokens after it [s].
    output : output tokens of a request N [1].

    Returns
    -------
    Time per output token [s].

    Notes
    -----
    Domain: N >= 1. With the stall of c - 1 other sequences it is (c P + (N - 1) d) / N where prompts run alone, and
    (c P + (N - 1 + k) d) / N where a prompt shares k decode steps. Source: definition.

    Examples
    --------
    >>> round(cycle_time(0.1, 0.02 + stall_of_others(0.1, 63, 255), 256), 6)
    0.044922
    """
    return (first + (output - 1.0) * between) / output


def most_running(budget: Number, steps: Number, each: Number, prompt: Number) -> Number:
    """Return the sequences that decode at once where prompts and tokens share the budget of a step: B n / (n e + I).

    Parameters
    ----------
    budget : tokens of a step B [token].
    steps : decode steps of a request n [1].
    each : tokens of a sequence in a decode step e [token].
    prompt : uncached tokens of a prompt I [token].

    Returns
    -------
    Sequences [1].

    Notes
    -----
    Domain: a full batch of requests of equal length, whose prompts are split to fit the budget [2]_. Source: conservation of tokens.

    Examples
    --------
    >>> round(most_running(256, 255, 1, 1024), 2)
    51.04
    """
    return budget * steps / (steps * each + prompt)


def random_count(quantile: Number, mean: Number) -> Number:
    """Return a quantile of the number of independent arrivals in one step: that of a Poisson distribution.

    Parameters
    ----------
    quantile : 0 <= quantile < 1 [1].
    mean : mean arrivals in a step [1].

    Returns
    -------
    Arrivals [1].

    Notes
    -----
    Domain: answers that end independently of each other; returns the mean itself where it exceeds 500. Source: limit of many rare events.

    Examples
    --------
    >>> [float(random_count(0.5, mean)) for mean in (0.6, 0.8, 3.0)]
    [0.0, 1.0, 3.0]
    """
    count, share = 0.0 * mean, np.exp(-1.0 * smaller(mean, MANY_ARRIVALS))
    below, most, here = share, mean + MANY * (1.0 + np.sqrt(mean)), 0.0
    while np.any(more := (below < quantile) & (here < most)):
        here += 1.0
        count = where(more, here, count)
        share = share * mean / here
        below = below + share
    return where(mean > MANY_ARRIVALS, np.round(mean), count)


MANY, MANY_ARRIVALS = 20.0, 500.0
"""Where the search for arrivals ends, in square roots of the mean above it, and the mean above which the spread is neglected [1]."""


def output_rate(sequences: Number, cycle: Number) -> Number:
    """Return the output tokens per second: B / cycle time.

    Parameters
    ----------
    sequences : running sequences B [1].
    cycle : time of a request per output token [s].

    Returns
    -------
    Rate [1/s].

    Notes
    -----
    Domain: steady state. Source: Little's law [3]_ with B in the system.

    Examples
    --------
    >>> output_rate(64, 0.04)
    1600.0
    """
    return sequences / cycle


def static_batch_time(prefill: Number, decode: Number, longest: Number) -> Number:
    """Return the time of a static batch: t_prefill(B) + O_max t_decode(B).

    The alternative to continuous batching: all requests wait for the longest answer, which the others are padded to.

    Parameters
    ----------
    prefill : time to prefill the whole batch [s].
    decode : time of a decode step of the batch [s].
    longest : output tokens of the longest request [1].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: no request leaves the batch early. Source: [1]_ section 2.

    Examples
    --------
    >>> static_batch_time(1.0, 0.05, 256)
    13.8
    """
    return prefill + longest * decode


def static_batch_step(whole: Number, prefill: Number, longest: Number) -> Number:
    """Return the decode step of a static batch from its time: (t - t_prefill(B)) / O_max, the inverse of `static_batch_time`.

    Parameters
    ----------
    whole : time of the whole batch [s].
    prefill : time to prefill it [s].
    longest : decode steps of the longest request [1].

    Returns
    -------
    Time of a decode step [s].

    Notes
    -----
    Domain: no request leaves the batch early. Source: [1]_ section 2.

    Examples
    --------
    >>> round(static_batch_step(13.8, 1.0, 256), 4)
    0.05
    """
    return (whole - prefill) / longest


def alternating_batches_rate(sequences: Number, compute: Number, transfer: Number) -> Number:
    """Return the token rate of two alternating batches that overlap transfers with compute: B / max(t_compute, t_transfer).

    Parameters
    ----------
    sequences : sequences of one batch B [1].
    compute : compute time of a step of one batch [s].
    transfer : communication time of a step of one batch [s].

    Returns
    -------
    Rate [1/s].

    Notes
    -----
    Domain: two batches alternate on the device, perfect overlap. Source: the article "4090 against H100" (2023), for its
    12.2K and 56K tokens/s; DeepSeek-V3 (arXiv 2412.19437) section 3.4 does the same with two micro-batches.

    Examples
    --------
    >>> alternating_batches_rate(330, 17.5e-3, 27e-3)
    12222.222222222223
    """
    return sequences / larger(compute, transfer)


def chunks(tokens: Number, budget: Number) -> Number:
    """Return the number of steps of a chunked prefill: ceil(n / budget).

    Parameters
    ----------
    tokens : tokens to prefill n [1].
    budget : tokens that one step may compute [1].

    Returns
    -------
    Steps [1].

    Notes
    -----
    Domain: budget at least 1. Source: chunked prefill [2]_.

    Examples
    --------
    >>> chunks(20000.0, 8192.0)
    3.0
    """
    return up(tokens / budget)


def passes(tokens: Number, size: Number) -> Number:
    """Return the number of full passes that a prompt costs: max(n / s, 1).

    Parameters
    ----------
    tokens : tokens to prefill n [1].
    size : tokens of a full pass s [1].

    Returns
    -------
    Passes [1].

    Notes
    -----
    Domain: compute-bound passes, the last of which takes its share of a full one; `chunks` counts the steps. Source: count.

    Examples
    --------
    >>> passes(100.0, 512.0), passes(768.0, 512.0)
    (1.0, 1.5)
    """
    return larger(tokens / size, 1.0)


def tokens_per_speculative_step(drafted: Number, acceptance: Number) -> Number:
    """Return the expected tokens per verification step: (1 - a^(k + 1)) / (1 - a) [4]_.

    Parameters
    ----------
    drafted : tokens proposed k [1].
    acceptance : probability a that a proposed token is kept [1].

    Returns
    -------
    Tokens per step [1].

    Notes
    -----
    Domain: independent acceptances, 0 <= a < 1. Source: [4]_ equation 1.

    Examples
    --------
    >>> round(tokens_per_speculative_step(1, 0.85), 6)
    1.85
    """
    return (1 - acceptance ** (drafted + 1)) / (1 - acceptance)


def busiest_group(sequences: Number, groups: Number) -> Number:
    """Return the sequences of the fullest group: ceil(B / G).

    Parameters
    ----------
    sequences : running sequences B [1].
    groups : groups that synchronise at every step G [1].

    Returns
    -------
    Sequences [1].

    Notes
    -----
    Domain: requests assigned round-robin. Groups that share experts finish a step together, so the fullest decides.
    Source: pigeonhole bound.

    Examples
    --------
    >>> busiest_group(12.0, 8.0)
    2.0
    """
    return up(sequences / groups)


def in_system(rate: Number, time: Number) -> Number:
    """Return the mean number of requests in a system: L = lambda W [3]_.

    Parameters
    ----------
    rate : arrivals per second [1/s].
    time : time that each request spends in the system [s].

    Returns
    -------
    Requests [1].

    Notes
    -----
    Domain: stable system, any distribution. Source: [3]_.

    Examples
    --------
    >>> in_system(4.0, 12.5)
    50.0
    """
    return rate * time


def seats_of_arrivals(mean: Number) -> Number:
    """Return the requests that a server must admit at once so that all but one in a thousand arrivals find a seat: m + z sqrt(m) + (z^2 - 1) / 6.

    Parameters
    ----------
    mean : requests in the system in the mean [1].

    Returns
    -------
    Seats, rounded up [1].

    Notes
    -----
    Domain: independent arrivals, so that the number in a system without a queue is Poisson; at least one in the mean, where it is
    at most two too many. Source: Cornish and Fisher 1938, Moments and cumulants in the specification of distributions, Revue de
    l'Institut International de Statistique 5, equation for the quantile of a skewed distribution.

    Examples
    --------
    >>> seats_of_arrivals(9.0), seats_of_arrivals(100.0)
    (20.0, 133.0)
    """
    return up(mean + FULL * mean**0.5 + (FULL * FULL - 1.0) / 6.0)


FULL = 3.0902
"""Standard normal quantile of 99.9% [1]."""
