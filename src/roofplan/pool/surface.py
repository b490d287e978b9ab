"""Step times of a pipeline of members as tables, for the event core of the simulator: the laws of the plan, on arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from roofplan.laws.pool import wire_time
from roofplan.operations.table import Step
from roofplan.pool.costs import hops_of, rates_of
from roofplan.pool.layout import Layout
from roofplan.pool.request import PoolRequest
from roofplan.pool.times import sizes_of
from roofplan.records.calibration import Fit
from roofplan.serving.step import engine_term, table_times
from roofplan.serving.surface import Surface

Array = np.ndarray

POINTS = 48
"""Points of a table over tokens, geometrically apart [1]."""

LENGTHS = 9
"""Points of a table over the lengths of contexts and of pieces of prompts [1]."""


class Pass:
    """Parts of the time of passes through a pipeline, arrays of one shape.

    Parameters
    ----------
    stages : time of the layers of each stage, then of the output layer [s].
    hops : time of all messages [s].
    host : time of the engine where it asks [s].
    """

    def __init__(self, stages: Sequence[Array], hops: Array, host: Array) -> None:
        self.stages, self.hops, self.host = list(stages), hops, host

    @property
    def layers(self) -> Array:
        """Time of all layers [s]."""
        return np.asarray(sum(self.stages[:-1]))

    @property
    def head(self) -> Array:
        """Time of the output layer [s]."""
        return self.stages[-1]

    @property
    def whole(self) -> Array:
        """Time of the pass [s]."""
        return np.asarray(self.layers + self.head + self.hops + self.host)

    @property
    def slowest(self) -> Array:
        """Time of its slowest stage [s]."""
        return np.asarray(np.max(np.stack(self.stages[:-1]), axis=0))


def passes(request: PoolRequest, fit: Fit, layout: Layout, step: Step) -> Pass:
    """Return the times of passes.

    Parameters
    ----------
    request : the pool.
    fit : the fitted constants.
    layout : who holds which layers.
    step : the passes; its fields are floats, or arrays of one shape.

    Returns
    -------
    Their times.
    """
    kinds = [set(places) for _, places in request.model.decoder.kinds()]
    shape = np.shape(step.tokens)
    stages: list[Array] = []
    for stage in layout.stages:
        times = table_times(request.model, step, rates_of(request, stage.member, fit), kv_bytes=request.kv_bytes)
        counts = [len(places.intersection(range(stage.first, stage.end))) for places in kinds]
        spent = sum(count * np.asarray(one) for count, one in zip(counts, times[:-1], strict=True))
        stages.append(np.broadcast_to(spent, shape))
    r = rates_of(request, layout.head, fit)
    head = np.broadcast_to(np.asarray(table_times(request.model, step, r, kv_bytes=request.kv_bytes)[-1]), shape)
    host = np.asarray(engine_term(step.sampled, rates_of(request, layout.client, fit)).value)
    return Pass([*stages, head], np.broadcast_to(_hops(request, layout, step), shape), np.broadcast_to(host, shape))


def _hops(request: PoolRequest, layout: Layout, step: Step) -> Array:
    software, seconds = request.software, np.zeros(np.shape(step.tokens))
    for a, b, size, _ in sizes_of(request, layout, step):
        one, other = request.members[a], request.members[b]
        trip = (one.rtt + other.rtt) / 2.0 + software.value("hop") * hops_of(software)
        seconds = seconds + trip + np.asarray(wire_time(size, one.up, other.down))
    return seconds


def pool_surface(request: PoolRequest, fit: Fit, layout: Layout, *, seats: int, budget: int, longest: int) -> Surface:
    """Return the step times of a pipeline.

    Where stages work on different requests, decoding ones are divided into as many batches as makes a round of all quickest.

    Parameters
    ----------
    request : the pool.
    fit : the fitted constants.
    layout : who holds which layers.
    seats : most running requests [1].
    budget : tokens that a step may compute [token].
    longest : tokens of the longest request [token].

    Returns
    -------
    Tables as arrays.
    """
    contexts = np.unique(np.round(np.geomspace(1.0, max(2.0, longest), LENGTHS)))
    running, held = np.arange(1.0, seats + 1.0), contexts[None, :]
    decoding = _rounds(request, fit, layout, running[:, None] + 0.0 * held, held + 0.0 * running[:, None])
    decodes = np.concatenate([[0.0], decoding[:, 0]])
    attention = np.concatenate([np.zeros((1, len(contexts))), decoding - decoding[:, :1]])
    growth = np.diff(attention, axis=1) / np.diff(contexts)
    tokens = np.unique(np.round(np.geomspace(1.0, budget + seats, POINTS)))
    apart = passes(request, fit, layout, Step(new=tokens, past=0.0 * tokens, requests=tokens))
    alone = passes(request, fit, layout, Step(new=tokens, past=0.0 * tokens, requests=1.0 + 0.0 * tokens))
    every = np.arange(budget + seats + 1.0)
    inside = np.interp(every, np.concatenate([[0.0], tokens]), np.concatenate([[0.0], apart.layers + alone.hops]))
    rows = np.arange(1.0, 2.0 * seats + 1.0)
    sampled = passes(request, fit, layout, Step(new=rows, past=0.0 * rows, requests=rows))
    ends = np.concatenate([[0.0], sampled.head + sampled.host + (sampled.hops - _hops_of_one(request, layout, rows))])
    news = np.unique(np.round(np.geomspace(1.0, max(2.0, budget), LENGTHS)))
    pasts = np.concatenate([[0.0], contexts])
    n, p = np.broadcast_arrays(news[:, None], pasts)
    once = passes(request, fit, layout, Step(new=n + 0.0, past=p + 0.0, requests=np.ones(n.shape)))
    several = np.interp(news, tokens, apart.layers) + _hops_of_one(request, layout, news)
    pieces = np.concatenate([np.zeros((1, len(pasts))), once.layers + once.hops - several[:, None]])
    return Surface(
        decodes=decodes,
        prompts=inside,
        mixed=inside,
        prompt_rows=ends,
        mixed_rows=ends,
        contexts=contexts,
        attention=attention,
        growth=np.concatenate([growth, growth[:, -1:]], axis=1),
        news=np.concatenate([[0.0], news]),
        pasts=pasts,
        pieces=pieces,
        reads=np.zeros(0),
        reading=np.zeros(0),
        states_tokens=np.zeros(0),
        states_rows=np.zeros(0),
        states=np.zeros(0),
        encoders=np.zeros(0),
        shared=np.zeros(0),
        each=1.0,
        waits=np.zeros(seats + 1),
        lag=0.0,
        launching=np.zeros(3),
        hosting=0.0,
        replayed=0.0,
        ahead=0.0,
    )


def _hops_of_one(request: PoolRequest, layout: Layout, tokens: Array) -> Array:
    """Return the time of the messages of so many tokens of which one is sampled [s]."""
    return _hops(request, layout, Step(new=tokens, past=0.0 * tokens, requests=1.0 + 0.0 * tokens))


def _rounds(request: PoolRequest, fit: Fit, layout: Layout, sequences: Array, context: Array) -> Array:
    """Return the time in which each of so many sequences gets a token, at so many cached tokens each [s]."""
    best = passes(request, fit, layout, Step(sequences=sequences, context=context)).whole
    if not request.software.overlaps:
        return best
    for groups in range(2, 2 * len(layout.stages) + 1):
        batch = np.maximum(1.0, sequences / groups)
        used = sequences / batch
        one = passes(request, fit, layout, Step(sequences=batch, context=context))
        best = np.minimum(best, np.maximum(one.whole, used * one.slowest))
    return best
