"""The time of a step from the tables of a surface, in the form that an event core asks for it.

The same functions run in plain Python on lists, and compiled by numba on arrays.
"""

from __future__ import annotations

from bisect import bisect_right

from roofplan.serving.surface import Surface, Values


def step_time(t: Surface, sequences: int, context: float, pieces: list[tuple[int, int]], before: float = 0.0) -> float:
    """Return the time of one step.

    Parameters
    ----------
    t : tables of a group.
    sequences : decoding sequences [1].
    context : cached tokens of all of them [token].
    pieces : new and cached tokens of each piece of a prompt [token].
    before : time of the step before one with prompts [s].

    Returns
    -------
    Time of the step [s].
    """
    if not pieces:
        return decode_step(t, sequences, context)
    new, again = (sum(numbers) for numbers in zip(*pieces, strict=True))
    each = [piece_time(t, *piece) for piece in pieces]
    seconds = prompt_step(t, sequences, context, len(pieces), new, again) + sum(each)
    whole = new + sequences * t.each / (t.lag + 1.0)
    return others(t, sequences, context) + max(seconds, least(t, sequences, len(pieces), whole, before))


def least(t: Surface, decoding: int, count: int, tokens: float, before: float) -> float:
    """Return the least time of a step of some tokens with `count` pieces of prompts, in which the host starts its kernels [s].

    A host that is ahead has started with them when the device began with the step `before`, which takes some time [s].
    """
    launching: float = t.launching[1] if decoding else t.launching[0]
    if tokens <= t.replayed:
        launching = t.launching[2]
    return launching + (decoding + count) * t.hosting - t.ahead * before if launching else 0.0


def turn(t: Surface, decoding: int, context: float) -> float:
    """Return the time that a batch of sequences takes to decode once in its turn, 0 without any [s]."""
    seconds: float = decode_step(t, decoding, context) / (t.lag + 1.0) if decoding else 0.0
    return seconds


def shared_time(t: Surface, tokens: float) -> float:
    """Return the time of what groups that step together share, at their mean tokens [s]."""
    k = min(int(tokens), len(t.shared) - 2)
    seconds: float = t.shared[k] + (tokens - k) * (t.shared[k + 1] - t.shared[k])
    return seconds


def decode_step(t: Surface, decoding: int, context: float) -> float:
    """Return the time of a step of decoding sequences with some cached tokens in all [s]."""
    seconds: float = t.decodes[decoding] + attention(t, decoding, context)
    return seconds


def slope_at(t: Surface, decoding: int, context: float) -> tuple[float, float, float]:
    """Return the time of a decode step [s], its growth with the mean context [s/token], and the tokens to the next slope, -1 for none."""
    mean = context / decoding
    k = max(bisect_right(t.contexts, mean) - 1, 0)
    growth: float = t.growth[decoding][k]
    seconds: float = t.decodes[decoding] + t.attention[decoding][k] + growth * (mean - t.contexts[k])
    room: float = t.contexts[k + 1] - mean if k + 1 < len(t.contexts) else -1.0
    return seconds, growth, room


def others(t: Surface, decoding: int, context: float) -> float:
    """Return the time that the batches without prompts take in a round of a pipeline, and that its batch waits for them [s]."""
    if not t.lag or not decoding:
        return 0.0
    waits: float = t.decodes[decoding] * t.waits[decoding]  # the tables of attention hold its own
    return (decode_step(t, decoding, context) * t.lag + waits) / (t.lag + 1.0)


def attention(t: Surface, decoding: int, context: float) -> float:
    """Return the time of decode attention, with the host's [s]."""
    mean = context / decoding
    k = max(bisect_right(t.contexts, mean) - 1, 0)
    seconds: float = t.attention[decoding][k] + t.growth[decoding][k] * (mean - t.contexts[k])
    return seconds


def prompt_step(t: Surface, decoding: int, context: float, count: int, tokens: int, again: int) -> float:
    """Return the time of a step with prompts and decoding sequences, without what depends on each piece [s].

    Where pipeline stages work on different batches, it is that of the one stage and batch that the prompts are in.
    """
    seconds: float
    if decoding:
        batches = t.lag + 1.0
        riding = int(round(decoding * t.each / batches))
        tokens, rows = tokens + riding, count + riding
        seconds = t.mixed[tokens] + t.mixed_rows[rows] + attention(t, decoding, context) / batches
    else:
        rows = count
        seconds = t.prompts[tokens] + t.prompt_rows[rows]
    if len(t.encoders):
        seconds += t.encoders[count]
    if again and len(t.reads):
        seconds += between(t.reads, t.reading, tokens + again) - between(t.reads, t.reading, tokens)
    if len(t.states_tokens):
        k = place(t.states_tokens, tokens)
        low, high = between(t.states_rows, t.states[k - 1], rows), between(t.states_rows, t.states[k], rows)
        seconds += low + (high - low) * (tokens - t.states_tokens[k - 1]) / (
            t.states_tokens[k] - t.states_tokens[k - 1]
        )
    return seconds


def piece_time(t: Surface, new: int, past: int) -> float:
    """Return the time that depends on one piece of a prompt: `new` tokens after `past` cached ones [s]."""
    k = place(t.news, new)
    share: float = (new - t.news[k - 1]) / (t.news[k] - t.news[k - 1])
    low: float = t.pieces[k - 1][0]
    high: float = t.pieces[k][0]
    if past:
        low, high = between(t.pasts, t.pieces[k - 1], past), between(t.pasts, t.pieces[k], past)
    return low + share * (high - low)


def place(points: Values, at: float) -> int:
    """Return the index of the point at the upper end of the interval that a value lies in; the outer ones reach on."""
    k = bisect_right(points, at)
    return max(1, min(k, len(points) - 1))


def between(points: Values, values: Values, at: float) -> float:
    """Return a value between points, linearly."""
    k = place(points, at)
    slope: float = (values[k] - values[k - 1]) / (points[k] - points[k - 1])
    value: float = values[k - 1] + slope * (at - points[k - 1])
    return value
