"""What the event core reads and writes: how an engine fills its steps, its requests, their times, and the requests within it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from roofplan.serving.surface import Values


class Scheduler(NamedTuple):
    """How an engine fills its steps.

    Parameters
    ----------
    seats : most running requests [1].
    budget : tokens that a step may compute [token].
    mixes : whether prompts share steps with decoding sequences; else they run first and alone.
    chunked : whether a prompt is cut where the budget ends.
    static : whether a batch starts only when all of the one before have ended.
    paged : whether sequences take blocks as they grow; else they never run out of them.
    reserves : whether a request takes the blocks of its whole answer when it is admitted.
    keeps : whether what a preempted request had computed is found again until others take its blocks.
    blocks, block : blocks of the cache, and tokens of a block [1, token].
    fixed : blocks that a request holds whatever its length, for states and windows [1].
    grows : tokens that a decode step adds to a sequence, above 1 where drafts are accepted [token].
    front, delay : time that the front end takes for a request, one after the other, and that passes besides before the engine sees it [s].
    """

    seats: int
    budget: int
    mixes: bool
    chunked: bool
    static: bool
    paged: bool
    reserves: bool
    keeps: bool
    blocks: float
    block: int
    fixed: int
    grows: float
    front: float
    delay: float


class Requests(NamedTuple):
    """Requests of one group in order of arrival, an entry each.

    Parameters
    ----------
    arrivals : time at which its client sends it; those that follow on a client's earlier one are written here [s].
    ready : time at which the front end passes it on [s].
    inputs : tokens of the prompt [token].
    cached : tokens of the prompt that are in the cache [token].
    turns : decode steps of its answer, first token excepted [1].
    """

    arrivals: Values
    ready: Values
    inputs: Values
    cached: Values
    turns: Values


class Times(NamedTuple):
    """What a simulation writes, an entry a request.

    Parameters
    ----------
    admitted, first, last : when it first gets a seat, its first token and its last one [s].
    preempted : how often its cache was given to others [1].
    """

    admitted: Values
    first: Values
    last: Values
    preempted: Values


BITS = 31
REQUEST = (1 << BITS) - 1
"""A count of steps and a request are kept as one number, which a heap orders by steps: these low bits are the request [1]."""


class State(NamedTuple):
    """Requests in the engine.

    Parameters
    ----------
    heap : decoding requests by the count of steps at which they end, shifted by `BITS`, and their place; entries of preempted ones are skipped.
    order : requests in order of admission; entries of those that ended or were preempted are skipped.
    waiting : preempted requests, the next one last.
    ended : requests whose prompt ends in this step.
    ends, since : count of decode steps at which a request ends and at which it joined; `OUT` and 0 outside [1].
    base : tokens that are computed as its prompt: of its answer too after a preemption [token].
    turned : decode steps of its answer until its last preemption [1].
    late : time from joining until its first token has left the last stage [s].
    kept : tokens of its own in the cache when it was preempted last [token].
    behind : blocks that had been freed before its own were and not found again [1].
    bins : sequences that take a block whenever the count of steps has this remainder [1].
    clock : the time, free blocks, cached tokens of decoding sequences, time spent in steps, blocks ever freed, and found again [s, 1, token, s, 1, 1].
    counts : requests that have come to a seat, decode steps, decoding sequences, the request within its prompt, its computed tokens,
        steps with prompts [1].
    sent : requests that ended, that arrived, and that will [1].
    """

    heap: Values
    order: Values
    waiting: Values
    ended: Values
    ends: Values
    since: Values
    base: Values
    turned: Values
    late: Values
    kept: Values
    behind: Values
    bins: Values
    clock: Values
    counts: Values
    sent: Values


DONE, SENT, ALL = 0, 1, 2
"""Places in `State.sent`."""

OUT = -1
"""Stands for no request, and for no count of steps [1]."""


def started(s: Scheduler, requests: int, sent: int, *, arrays: bool = False) -> State:
    """Return the state of an engine without requests, of which some are known to arrive.

    Parameters
    ----------
    s : how the engine fills its steps.
    requests : of the whole simulation [1].
    sent : whose arrival is known; in a closed loop each of the others is sent when another one ends [1].
    arrays : whether what is kept of every request are arrays, for compiled code, rather than lists.

    Returns
    -------
    The state.
    """

    def each(value: float) -> Values:
        return np.full(requests, value) if arrays else [value] * requests

    return State(
        heap=[],
        order=[],
        waiting=[],
        ended=[],
        ends=each(OUT),
        since=each(0),
        base=each(0),
        turned=each(0),
        late=each(0.0),
        kept=each(0),
        behind=each(0.0),
        bins=[0] * s.block,
        clock=[0.0, 1.0 * s.blocks, 0.0, 0.0, 1.0 * s.blocks, 0.0],
        counts=[0, 0, 0, OUT, 0, 0],
        sent=[0, sent, requests],
    )
