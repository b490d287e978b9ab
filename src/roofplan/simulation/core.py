"""The event core: one group of an engine serves requests, from their arrivals to their last tokens.

Between an arrival, a finish, the end of a prompt and the last free cache block nothing changes but the cache. So decode
steps are jumped in closed form: m steps of D sequences whose attention grows by g seconds a step take m t + g m (m - 1) / 2.
A counter of decode steps stands for all sequences: a sequence ends when the counter reaches a number that it knew when it
joined, and takes a cache block when the counter has its remainder. So an event costs O(log n) for n sequences.

The same functions run in plain Python on lists, and compiled by numba on arrays.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import ceil, sqrt
from typing import TypeVar

import numpy as np

from roofplan.serving.surface import Surface, Values
from roofplan.simulation.records import ALL, BITS, DONE, OUT, REQUEST, SENT, Requests, Scheduler, State, Times
from roofplan.simulation.steps import least, others, piece_time, prompt_step, slope_at, turn


def run(s: Scheduler, t: Surface, r: Requests, out: Times, state: State, until: float) -> None:
    """Serve requests and write their times, until all that were sent have ended or the clock has passed a time.

    Parameters
    ----------
    s : how the engine fills its steps.
    t : time of a step.
    r : requests.
    out : times that are written.
    state : of the engine, changed in place.
    until : time at whose next step boundary it stops [s].
    """
    now, free, context, busy = state.clock[0], state.clock[1], state.clock[2], state.clock[3]
    head, steps, decoding, partial, computed, prompts = state.counts
    while state.sent[DONE] < state.sent[SENT] and now < until:
        lost, count, need, sent = False, 0, wanted(s, state, steps, decoding, 1), state.sent[SENT]
        if need > free + SLIVER:
            lost = True
            free, context, decoding, partial = preempt(
                s, r, out, state, steps, free, context, decoding, partial, computed
            )
            need = wanted(s, state, steps, decoding, 1)
        due = head < sent and r.ready[head] <= now
        if partial != OUT or ((due or len(state.waiting) > 0) and not lost):
            beside = need if s.mixes else 0.0
            left, partial, computed, head, count, tokens, again, seconds = fill(
                s, t, r, out, state, now, free - beside, decoding, partial, computed, head, sent, lost
            )
            free = left + beside
        late, m = 0.0, 1
        if count:
            riding = decoding if s.mixes else 0
            seconds += prompt_step(t, riding, context, count, tokens, again)
            whole = tokens + riding * t.each / (t.lag + 1.0)
            seconds = max(seconds, least(t, riding, count, whole, turn(t, decoding, context)))
            if t.lag:
                late = t.lag * seconds  # the stages that its prompts pass after this round
                seconds += others(t, riding, context)
            m = 1 if riding else 0
            prompts += 1
        elif decoding:
            gap = until - now
            if head < sent and not due and len(state.waiting) == 0 and decoding < s.seats and not s.static:
                gap = min(gap, r.ready[head] - now)
            m, seconds = jump(s, t, state, steps, free, context, decoding, 1 if lost else 0, gap)
        elif lost:
            continue
        elif head == sent or due or len(state.waiting) > 0:
            break  # nobody is left, or the next request does not fit an empty cache
        else:
            now = max(now, min(until, r.ready[head]))
            continue
        if m:
            free -= wanted(s, state, steps, decoding, m)
            context += m * decoding * s.grows
            steps += m
        now, busy = now + seconds, busy + seconds
        if count:
            context, decoding = join(s, r, out, state, steps, now, late, context, decoding)
        if len(state.heap) > 0 and state.heap[0] >> BITS <= steps:
            free, context, decoding = leave(s, r, out, state, steps, now, free, context, decoding)
    state.clock[0], state.clock[1], state.clock[2], state.clock[3] = now, free, context, busy
    kept = (head, steps, decoding, partial, computed, prompts)
    for k in range(len(kept)):
        state.counts[k] = kept[k]


def run_on_arrays(
    s: Scheduler, t: Surface, r: Requests, out: Times, state: State, until: float
) -> tuple[Values, Values, Values, Values]:
    """Do what `run` does for a state whose queues are arrays, as compiled code takes them over from Python.

    Returns
    -------
    The queues afterwards: `heap`, `order`, `waiting` and `ended` of the state.
    """
    t, r, out, state = borrowed(t), borrowed(r), borrowed(out), borrowed(state)
    heap, order, waiting, ended = list(state.heap), list(state.order), list(state.waiting), list(state.ended)
    lists = State(
        heap,
        order,
        waiting,
        ended,
        state.ends,
        state.since,
        state.base,
        state.turned,
        state.late,
        state.kept,
        state.behind,
        state.bins,
        state.clock,
        state.counts,
        state.sent,
    )
    run(s, t, r, out, lists, until)
    return np.array(heap), np.array(order), np.array(waiting), np.array(ended)


Record = TypeVar("Record")


def borrowed(record: Record) -> Record:
    """Return a record for the time of a call; compiled code counts no references to its arrays."""
    return record


def leave(
    s: Scheduler,
    r: Requests,
    out: Times,
    state: State,
    steps: int,
    now: float,
    free: float,
    context: float,
    decoding: int,
) -> tuple[float, float, int]:
    """End the requests whose last step this was; in a closed loop, each client sends its next one.

    Returns
    -------
    Free blocks [1], cached tokens of decoding sequences [token], and their number [1].
    """
    while len(state.heap) > 0 and state.heap[0] >> BITS <= steps:
        entry = heappop(state.heap)
        i = entry & REQUEST
        if state.ends[i] != entry >> BITS:
            continue  # preempted since
        grown = s.grows * (steps - state.since[i])
        free = freed(state, free, returned(s, r, state, i, grown))
        if not s.static:
            context, decoding = context - state.base[i] - grown, decoding - 1
        state.ends[i] = OUT
        ended = now + state.late[i]
        out.last[i] = ended
        state.sent[DONE] += 1
        sent = state.sent[SENT]
        if sent < state.sent[ALL]:
            r.arrivals[sent] = ended
            r.ready[sent] = max(ended, r.ready[sent - 1] - s.delay) + s.front + s.delay
            state.sent[SENT] += 1
    if s.static and len(state.heap) == 0:
        context, decoding = 0.0, 0
    return free, context, decoding


def wanted(s: Scheduler, state: State, steps: int, decoding: int, m: int) -> float:
    """Return the blocks that decoding sequences take in the next m steps [1]."""
    if not s.paged:
        return 0.0
    if s.grows != 1.0:
        return m * decoding * s.grows / s.block
    taken = m // s.block * decoding
    for step in range(steps, steps + m % s.block):
        taken += state.bins[step % s.block]
    return 1.0 * taken


def own(r: Requests, state: State, i: int) -> int:
    """Return the tokens of a joining request whose cache is its own [token]."""
    return int(state.base[i] - r.cached[i])


def returned(s: Scheduler, r: Requests, state: State, i: int, grown: float) -> float:
    """Return the blocks that a decoding request gives back, and count it no longer [1]."""
    if s.reserves:
        return reserved(s, r, i)
    if not s.paged:
        return 0.0
    if s.grows != 1.0:
        return s.fixed + blocks_of(s, own(r, state, i)) + grown / s.block
    state.bins[(state.since[i] - own(r, state, i)) % s.block] -= 1
    return 1.0 * (s.fixed + blocks_of(s, own(r, state, i) + int(grown)))


SLIVER = 1e-6
"""Blocks by which rounding may miss a full cache [1]."""


def freed(state: State, free: float, blocks: float) -> float:
    """Return the free blocks after some were given back [1]."""
    state.clock[4] += blocks
    return free + blocks


def found_again(s: Scheduler, r: Requests, state: State, i: int, free: float) -> int:
    """Return the tokens of a preempted request's own that are still in the cache [token].

    Free blocks are taken in the order in which they were freed, and those of a request from its end. What is found again leaves that order
    from within; since the request preempted last is admitted first, it lay behind those of all that still wait.
    """
    blocks = blocks_of(s, state.kept[i])
    gone = min(max(0, int(ceil(state.clock[4] - state.clock[5] - free - state.behind[i] - SLIVER))), blocks)
    whole = min(state.kept[i] // s.block, blocks - gone, (own(r, state, i) - 1) // s.block)
    return int(whole * s.block)


def reserved(s: Scheduler, r: Requests, i: int) -> float:
    """Return the blocks of a request with its whole answer [1]."""
    return 1.0 * (s.fixed + blocks_of(s, int(r.inputs[i] - r.cached[i] + ceil(r.turns[i] * s.grows))))


def blocks_of(s: Scheduler, tokens: int) -> int:
    """Return the blocks that hold some tokens [1]."""
    return (tokens + s.block - 1) // s.block


def preempt(
    s: Scheduler,
    r: Requests,
    out: Times,
    state: State,
    steps: int,
    free: float,
    context: float,
    decoding: int,
    partial: int,
    computed: int,
) -> tuple[float, float, int, int]:
    """Take the cache of the requests admitted last until the others can go on; they wait in front, to be computed again.

    Returns
    -------
    Free blocks [1], cached tokens of decoding sequences [token], their number, and the request within its prompt [1].
    """
    while wanted(s, state, steps, decoding, 1) > free + SLIVER:
        i = state.order.pop()
        if i == partial:
            state.kept[i], state.behind[i] = computed - r.cached[i], state.clock[4] - state.clock[5]
            free = freed(state, free, 1.0 * (s.fixed + blocks_of(s, computed - r.cached[i])))
            partial = OUT
        elif state.ends[i] != OUT:
            grown = s.grows * (steps - state.since[i])
            state.kept[i], state.behind[i] = own(r, state, i) + int(grown), state.clock[4] - state.clock[5]
            free = freed(state, free, returned(s, r, state, i, grown))
            context, decoding = context - state.base[i] - grown, decoding - 1
            state.turned[i] += steps - state.since[i] + 1
            state.ends[i] = OUT
        else:
            continue  # ended, or preempted before
        out.preempted[i] += 1
        state.waiting.append(i)
    return free, context, decoding, partial


def fill(
    s: Scheduler,
    t: Surface,
    r: Requests,
    out: Times,
    state: State,
    now: float,
    free: float,
    decoding: int,
    partial: int,
    computed: int,
    head: int,
    sent: int,
    lost: bool,
) -> tuple[float, int, int, int, int, int, int, float]:
    """Give prompts the tokens of a step that decoding sequences leave: the one begun first, then those that wait.

    Returns
    -------
    Free blocks, the request within its prompt and its computed tokens, requests admitted; pieces of prompts, their tokens and the cached
    ones that they read, and the time that depends on each piece [s].
    """
    room = s.budget - int(ceil(decoding * t.each)) if s.mixes else s.budget
    seats = s.seats - decoding
    count = tokens = again = 0
    seconds = 0.0
    if s.static and decoding:
        return free, partial, computed, head, count, tokens, again, seconds
    while room > 0 and seats > 0:
        fresh = partial == OUT
        if fresh:
            if lost:
                break
            if len(state.waiting) > 0:
                i = state.waiting[-1]
            elif head < sent and r.ready[head] <= now:
                i = head
            else:
                break
            state.base[i] = r.inputs[i] + (int(ceil(s.grows * (state.turned[i] - 1))) + 1 if out.first[i] >= 0.0 else 0)
            computed = r.cached[i] + (found_again(s, r, state, i, free) if s.keeps else 0)
        else:
            i = partial
        part = state.base[i] - computed
        if part > room:
            if not s.chunked and (count or (decoding and s.mixes)):
                break
            part = room
        takes = 0.0
        if s.paged:
            held = 0 if fresh else blocks_of(s, computed - r.cached[i])
            takes = 1.0 * (blocks_of(s, computed + part - r.cached[i]) - held)
        if fresh:
            if s.paged:
                whole = 1.0 * (s.fixed + blocks_of(s, own(r, state, i)))
                takes += s.fixed
            else:
                whole = takes = reserved(s, r, i) if s.reserves else 0.0
            if whole > free + SLIVER:
                break
            if len(state.waiting) > 0:
                state.waiting.pop()
            else:
                head += 1
            if s.paged:
                state.order.append(i)
            if out.admitted[i] < 0.0:
                out.admitted[i] = now
            state.clock[5] += (computed - r.cached[i]) // s.block
        elif takes > free + SLIVER:
            # the last one admitted makes room for those before it
            out.preempted[i] += 1
            state.waiting.append(i)
            state.kept[i], state.behind[i] = computed - r.cached[i], state.clock[4] - state.clock[5]
            free = freed(state, free, 1.0 * (s.fixed + blocks_of(s, computed - r.cached[i])))
            return free, OUT, 0, head, count, tokens, again, seconds
        free, room, seats = free - takes, room - part, seats - 1
        count, tokens, again = count + 1, tokens + part, again + computed
        seconds += piece_time(t, part, computed)
        computed += part
        if computed < state.base[i]:
            partial = i
            break
        partial = OUT
        state.ended.append(i)
    return free, partial, computed, head, count, tokens, again, seconds


def join(
    s: Scheduler,
    r: Requests,
    out: Times,
    state: State,
    steps: int,
    now: float,
    late: float,
    context: float,
    decoding: int,
) -> tuple[float, int]:
    """Let the requests whose prompts ended decode.

    Returns
    -------
    Cached tokens of decoding sequences [token], and their number [1].
    """
    for i in state.ended:
        state.late[i] = late
        if out.first[i] < 0.0:
            out.first[i] = now + late
        end = steps + r.turns[i] - state.turned[i]
        state.since[i], state.ends[i] = steps, end
        heappush(state.heap, (end << BITS) + i)
        if s.paged and s.grows == 1.0:
            state.bins[(steps - own(r, state, i)) % s.block] += 1
        context += state.base[i]
        decoding += 1
    state.ended.clear()
    return context, decoding


def jump(
    s: Scheduler,
    t: Surface,
    state: State,
    steps: int,
    free: float,
    context: float,
    decoding: int,
    most: int,
    gap: float,
) -> tuple[int, float]:
    """Return the decode steps until something changes, and their time.

    Parameters
    ----------
    free : blocks [1].
    context : cached tokens of all sequences [token].
    most : limit of steps, 0 for none [1].
    gap : time until the next arrival that may get a seat, negative for none [s].

    Returns
    -------
    Steps [1], time [s].
    """
    one, growth, room = slope_at(t, decoding, context)
    growth *= s.grows
    m = alike(s, state, steps, free, decoding, most, room)
    return within(m, one, growth, gap)


def alike(s: Scheduler, state: State, steps: int, free: float, decoding: int, most: int, room: float) -> int:
    """Return the decode steps before one ends, the cache is full, or attention leaves its slope after `room` tokens [1]."""
    while state.ends[state.heap[0] & REQUEST] != state.heap[0] >> BITS:
        heappop(state.heap)
    m: int = (state.heap[0] >> BITS) - steps
    if most:
        m = min(m, most)
    if room >= 0.0:
        m = min(m, int(room / s.grows) + 1)
    if s.paged and (m // s.block + 1) * decoding * s.grows > free:
        m = max(1, min(m, steps_held(s, state, steps, decoding, free)))
    return m


def within(m: int, one: float, growth: float, gap: float) -> tuple[int, float]:
    """Return as many of m steps as begin before a gap ends, and their time [s].

    Parameters
    ----------
    m : steps [1].
    one, growth : time of the first, and by how much each takes longer than the one before [s].
    gap : time within which they begin, negative for any [s].

    Returns
    -------
    Steps [1], time [s].
    """
    seconds = m * (one + 0.5 * growth * (m - 1))
    if 0.0 <= gap < seconds:
        if growth > 0.0:
            b = one - 0.5 * growth
            m = int(ceil((sqrt(b * b + 2.0 * growth * gap) - b) / growth))
        else:
            m = int(ceil(gap / one))
        m = max(1, m)
        seconds = m * (one + 0.5 * growth * (m - 1))
    return m, seconds


def steps_held(s: Scheduler, state: State, steps: int, decoding: int, free: float) -> int:
    """Return the decode steps for which the free blocks suffice [1]."""
    if s.grows != 1.0:
        return int((free + SLIVER) * s.block / (decoding * s.grows))
    rounds = int(free) // decoding
    free -= rounds * decoding
    m = rounds * s.block
    for step in range(steps, steps + s.block):
        free -= state.bins[step % s.block]
        if free < 0.0:
            break
        m += 1
    return m
