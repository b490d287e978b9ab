"""What a pass costs on each member and between members: from the laws of serving and of home links."""

from __future__ import annotations

import numpy as np

from roofplan.laws import Number, memory
from roofplan.laws.pool import wire_time
from roofplan.operations import head_format
from roofplan.operations.table import Split, Step, element_bytes
from roofplan.pool.layout import Problem
from roofplan.pool.request import PoolRequest
from roofplan.records.calibration import Fit
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.pool import CLIENT, LAST, PoolSoftware
from roofplan.records.strategy import Strategy
from roofplan.records.workload import Workload
from roofplan.serving.ledger import Footprint, cache_of, layer_bytes, ledger, widest
from roofplan.serving.step import engine_term, table_times
from roofplan.timing.rates import Rates, rates

TOKEN = 4.0
"""Bytes of a token's number on its way back to the client [B]."""

ALONE = Split.of(Strategy())
"""The split of a member: none."""


def decoding(workload: Workload, batch: float) -> Step:
    """Return the step in which `batch` users decode a token each, at the mean context of a request."""
    context = 1.0 * memory.mean_resident_tokens(workload.input, workload.output)
    return Step(sequences=batch, each=1.0, context=context)


def problem_of(
    request: PoolRequest, fit: Fit, *, batch: float = 1.0, users: float = 1.0, step: Step | None = None
) -> Problem:
    """Return what a pass costs.

    Parameters
    ----------
    request : the pool.
    fit : the fitted constants.
    batch : tokens that pass together, of as many users [1].
    users : users whose caches members hold [1].
    step : the pass, by default one of decoding; a prompt's hands on its tokens, and one position is sampled.

    Returns
    -------
    Times of layers, output layers and messages, and memory.
    """
    model, software = request.model, request.software
    step = decoding(request.workload, batch) if step is None else step
    tokens = float(step.tokens)
    alike = alike_of(request)
    each = {place: _times(model, request.machines[place], request, step, fit) for place in set(alike)}
    timed = [each[place] for place in alike]
    kinds = model.decoder.kinds()
    kind_of = np.empty(len(model.decoder.layers), dtype=int)
    for kind, (_, places) in enumerate(kinds):
        kind_of[list(places)] = kind
    caches = np.array([_cache(model, kind, request) for kind in range(len(kinds))])
    clients = tuple(range(len(timed))) if request.client is None else (request.client,)
    returned = software.sampled == CLIENT and LAST in software.outputs
    return Problem(
        layer=np.array([sums[:-1] for sums, _ in timed])[:, kind_of],
        head=np.array([sums[-1] for sums, _ in timed]),
        host=np.array([host for _, host in timed]),
        weight=layer_weights(model) + users * caches[kind_of],
        head_weight=head_bytes(model),
        room=rooms(request),
        hidden=messages(request, float(hidden_bytes(model, software, tokens))),
        logits=messages(request, float(logit_bytes(model, software, float(step.sampled)))),
        token=messages(request, TOKEN * float(step.sampled)),
        route=software.route,
        outputs=software.outputs,
        returned=returned,
        clients=clients,
        alike=alike,
    )


def alike_of(request: PoolRequest) -> tuple[int, ...]:
    """Return a number for each member of a pool that those share which are alike."""
    kinds: dict[object, int] = {}
    return tuple(kinds.setdefault(one.kind, place) for place, one in enumerate(request.members))


def layer_weights(model: Model) -> np.ndarray:
    """Return the bytes of the weights of each layer, shape (layers,) [B]."""
    out = np.empty(len(model.decoder.layers))
    for layer, places in model.decoder.kinds():
        out[list(places)] = layer_bytes(layer, ALONE)
    return out


def _times(model: Model, own: Machine, request: PoolRequest, step: Step, fit: Fit) -> tuple[list[float], float]:
    """Return the times of a layer of each kind and of the output layer on a member, and of the engine where it asks [s]."""
    r = rates(own, request.engine, fit)
    sums = table_times(model, step, r, kv_bytes=request.kv_bytes)
    return [float(one) for one in sums], float(engine_term(float(step.sampled), r).value)


def rates_of(request: PoolRequest, member: int, fit: Fit) -> Rates:
    """Return the rates of a member's card under the engine."""
    return rates(request.machines[member], request.engine, fit)


def hidden_bytes(model: Model, software: PoolSoftware, tokens: Number) -> Number:
    """Return the bytes of the hidden states of some tokens [B]."""
    return tokens * model.hidden * software.value("hidden")


def logit_bytes(model: Model, software: PoolSoftware, positions: Number) -> Number:
    """Return the bytes of the logits of some positions [B]."""
    return positions * model.vocabulary * software.value("logit")


def outward_bytes(model: Model, software: PoolSoftware, step: Step) -> Number:
    """Return the bytes that a hub's client sends to a stage: hidden states, and with prompts copies of them and a mask [B]."""
    hidden = hidden_bytes(model, software, step.tokens)
    if not step.prefills or "copies" not in software.quantities:
        return hidden
    return software.value("copies") * hidden + software.value("mask") * step.new * (step.past + step.new)


def head_bytes(model: Model) -> float:
    """Return the memory of the output layer; the embedding stays in host memory [B]."""
    return model.vocabulary * model.hidden * element_bytes(head_format(model))


def _cache(model: Model, kind: int, request: PoolRequest) -> float:
    """Return the cache of one user in a layer of a kind, at the longest request [B]."""
    slope, windowed, state = cache_of(model.decoder.kinds()[kind][0], ALONE, request.kv_bytes)
    one = Footprint(
        weights=0.0, kv_per_token=slope, windowed=tuple(windowed), state=state, widest=0.0, stage=0, last=True
    )
    return one.request(float(request.workload.context))


def rooms(request: PoolRequest) -> np.ndarray:
    """Return the memory of each member for layers and caches, shape (members,) [B]."""
    alike = alike_of(request)
    each = {place: _room(request.machines[place], request.members[place].memory, request) for place in set(alike)}
    return np.array([each[place] for place in alike])


def _room(own: Machine, given: float | None, request: PoolRequest) -> float:
    """Return what a card has left beside activations and the engine's own, or what of it its owner gives [B]."""
    none = Footprint(
        weights=0.0, kv_per_token=0.0, windowed=(), state=0.0, widest=widest(request.model, ALONE), stage=0, last=True
    )
    book = ledger(request.model, Strategy(), own, request.engine, request.workload, (none,))
    kept = 0.0 if given is None else max(0.0, own.device.room - given)
    return max(0.0, book.pool - kept)


def messages(request: PoolRequest, size: float) -> np.ndarray:
    """Return the time of a message from each member to each other, shape (members, members), 0 to itself [s]."""
    who, software = request.members, request.software
    up, down = np.array([one.up for one in who]), np.array([one.down for one in who])
    trips = np.array([one.rtt for one in who])
    found = (trips[:, None] + trips) / 2.0 + software.value("hop") * hops_of(software)
    found = found + wire_time(size, up[:, None], down[None, :])
    np.fill_diagonal(found, 0.0)
    return np.asarray(found)


def hops_of(software: PoolSoftware) -> float:
    """Return how much of the software's time a message bears: a hub's visit, there and back, bears it once [1]."""
    return 0.5 if software.route == "hub" else 1.0
