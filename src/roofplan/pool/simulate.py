"""A pool simulated: who serves when, what users feel, what checks find, and what members earn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

import numpy as np

from roofplan import catalogue
from roofplan.errors import InputError, NoPlan, UnsupportedFeature
from roofplan.inputs import PoolSimulateInputs
from roofplan.laws.pool import credit, wire_time
from roofplan.load.requests import Requests, lengths_of, renewal
from roofplan.load.statistics import summary
from roofplan.operations.table import Step
from roofplan.pool.checks import LEAST, Checked, checked
from roofplan.pool.churn import Sessions, drawn, read_churn
from roofplan.pool.circumstances import Circumstances, circumstances_of
from roofplan.pool.costs import alike_of, head_bytes, layer_weights, problem_of, rates_of
from roofplan.pool.layout import Layout, Problem
from roofplan.pool.plan import PoolPlan, plan_pool, without
from roofplan.pool.request import PoolRequest
from roofplan.pool.running import NEVER
from roofplan.pool.search import best_layout
from roofplan.pool.service import Outcome, Pipeline, Place, Service
from roofplan.pool.surface import passes, pool_surface
from roofplan.records import units
from roofplan.records.calibration import Fit
from roofplan.records.source import GRADES
from roofplan.records.strategy import Strategy
from roofplan.serving.defaults import batched_tokens
from roofplan.serving.step import step_operations
from roofplan.serving.surface import Surface
from roofplan.simulation.records import Scheduler
from roofplan.simulation.replicas import lists
from roofplan.simulation.report import Figure, joined, scaled
from roofplan.timing.figures import Metric

Array = np.ndarray

KEPT = 512
"""Layouts whose step times are kept [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a member was there for, did, and earned.

    Parameters
    ----------
    online : share of the time in which it was there [1].
    work, useful : FLOP that it computed, and those of answers that were finished [FLOP].
    credit : of the useful ones, in cobblestones [1].
    """

    name: str
    online: float
    work: float
    useful: float
    credit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSimulation:
    """What was simulated.

    Parameters
    ----------
    plan : of all members, as if all were always there.
    circumstances : of the simulation.
    pipelines : that served; the other members were spares.
    requests, outcome : what was asked, and what happened.
    figures : ``ttft``, ``tpot``, ``e2e`` and ``waiting`` of finished requests; intervals are of their means.
    served : share of the requests that were finished [1].
    shares : of the members.
    checks : what checks of simulated jobs found, None where members are too few to check each other.
    audit : time of an audit by that of the answer that it checks [1].
    cpu : time of the simulation without that of the checks [s].
    """

    plan: PoolPlan
    circumstances: Circumstances
    pipelines: tuple[Pipeline, ...]
    requests: Requests
    outcome: Outcome
    figures: dict[str, Figure]
    served: float
    shares: tuple[Share, ...]
    checks: Checked | None
    audit: float
    cpu: float

    @property
    def wasted(self) -> float:
        """Share of the computed tokens that were computed for the second time [1]."""
        return self.outcome.again / self.outcome.tokens if self.outcome.tokens else 0.0

    @property
    def any_up(self) -> float:
        """Share of the time in which a pipeline could serve [1]."""
        horizon, spent = self.circumstances.horizon, 0.0
        changes = [*self.outcome.timeline, (horizon, 0)]
        for (at, able), (after, _) in pairwise(changes):
            spent += max(0.0, min(after, horizon) - min(at, horizon)) * (able > 0)
        return spent / horizon

    @property
    def member_days(self) -> float:
        """Simulated time of all members [day]."""
        return len(self.shares) * self.circumstances.horizon / units.DAY


def simulate_pool(
    request: PoolRequest,
    given: PoolSimulateInputs,
    fit: Fit,
    progress: Callable[[int, int], None] | None = None,
) -> PoolSimulation:
    """Return what happens in a pool whose members come and go.

    Parameters
    ----------
    request : the pool.
    given : what is simulated, as the user gave it.
    fit : the fitted constants.
    progress : called with the simulated hours and all of them [h].

    Returns
    -------
    What was simulated.

    Raises
    ------
    InputError : bad input.
    NoPlan : the members cannot hold the model.
    """
    asked = circumstances_of(given)
    if request.software.shares_layers:
        raise UnsupportedFeature(
            f"--software: members of {request.software.name} share every layer; what happens when one leaves is not simulated",
            argument="--software",
            value=request.software.id,
        )
    requests = _requests(request, given, asked)
    longest = int((requests.inputs + requests.outputs).max())
    if longest > request.workload.context:
        request = replace(request, workload=replace(request.workload, context=longest))
    plan = plan_pool(request, fit)
    pipelines = pipelines_of(request, fit, plan.users, asked)
    if not pipelines:
        relax = [{"argument": "--lengths", "now": given.lengths, "needed": "fixed"}]
        text = f"no plan: memory. no members hold the longest of the drawn requests, {longest:,} tokens"
        raise NoPlan(text, binding="memory", relax=relax if given.lengths != "fixed" else [])
    sessions = sessions_of(request, given, asked)
    own = plan.metrics["tpot"]
    served = _served(request, fit, plan, pipelines, sessions, requests, asked)
    began = time.process_time()
    outcome = served(1.0, None if progress is None else lambda now: progress(*_hours(now, asked.horizon)))
    spent = time.process_time() - began
    ends = [served(end / own.value, None) for end in (own.low, own.high)]
    many = len(request.members)
    checks = checked(asked.checking, many, asked.cheaters, asked.jobs, asked.seed) if many >= LEAST else None
    if progress is not None:
        progress(*_hours(asked.horizon, asked.horizon))
    return PoolSimulation(
        plan=plan,
        circumstances=asked,
        pipelines=tuple(pipelines),
        requests=requests,
        outcome=outcome,
        figures=_figures(requests, outcome, ends, seen=given.churn is not None, grade=own.grade),
        served=float((outcome.last > NEVER).mean()),
        shares=_shares(request, sessions, outcome, asked.horizon),
        checks=checks,
        audit=_audit(request, fit, plan.layout),
        cpu=spent,
    )


def _hours(now: float, horizon: float) -> tuple[int, int]:
    return round(min(now, horizon) / units.HOUR), round(horizon / units.HOUR)


def _served(
    request: PoolRequest,
    fit: Fit,
    plan: PoolPlan,
    pipelines: Sequence[Pipeline],
    sessions: Sequence[Sessions],
    requests: Requests,
    asked: Circumstances,
) -> Callable[[float, Callable[[float], None] | None], Outcome]:
    """Return what serves the requests with all steps so many times as long, and tells the time to a listener."""
    longest = int((requests.inputs + requests.outputs).max())
    budget = int(min(batched_tokens(request.engine, request.machines[plan.layout.client], request.workload), longest))
    kept = _surfaces(request, fit, plan.users, budget, longest)

    def served(factor: float, tick: Callable[[float], None] | None) -> Outcome:
        return Service(
            pipelines,
            sessions,
            requests,
            scheduler=scheduler_of(request, plan.users, budget),
            surface_of=lambda layout: kept(layout, factor),
            loading=Loads(request, store=asked.store),
            patience=asked.patience,
            horizon=asked.horizon,
        ).run(tick)

    return served


def _requests(request: PoolRequest, given: PoolSimulateInputs, asked: Circumstances) -> Requests:
    """Return Poisson arrivals up to the horizon, with drawn lengths."""
    of_inputs, of_outputs, of_arrivals = (
        np.random.default_rng(one) for one in np.random.SeedSequence(asked.seed).spawn(3)
    )
    mean = asked.rate * asked.horizon
    if mean > MOST:
        raise InputError(
            f"--rate: {mean:,.0f} requests in --days are more than {MOST:,}", argument="--rate", value=given.rate
        )
    count = int(mean + 6.0 * np.sqrt(mean) + 10.0)
    times = renewal(asked.rate, count, 1.0, of_arrivals)
    kept = np.asarray(times[times < asked.horizon])
    if not len(kept):
        raise InputError(
            f"--rate: no request arrives within {units.significant(asked.horizon / units.DAY)} days; give more --days",
            argument="--rate",
            value=given.rate,
        )
    lengths = lengths_of(given.lengths)
    return Requests(
        arrivals=kept,
        inputs=lengths.draw(request.workload.input, len(kept), of_inputs),
        outputs=lengths.draw(request.workload.output, len(kept), of_outputs),
    )


MOST = 1_000_000
"""Most requests of a simulation [1]."""


def scheduler_of(request: PoolRequest, seats: int, budget: int) -> Scheduler:
    """Return how a pipeline fills its steps; its members hold the caches of all its seats.

    Parameters
    ----------
    request : the pool.
    seats : most running requests of a pipeline [1].
    budget : tokens that a step may compute [token].

    Returns
    -------
    The rules.
    """
    return Scheduler(
        seats=seats,
        budget=budget,
        mixes=request.engine.mixes,
        chunked=request.engine.chunked_prefill,
        static=False,
        paged=False,
        reserves=False,
        keeps=False,
        blocks=inf,
        block=1,
        fixed=0,
        grows=1.0,
        front=0.0,
        delay=0.0,
    )


def sessions_of(request: PoolRequest, given: PoolSimulateInputs, asked: Circumstances) -> list[Sessions]:
    """Return when members are there: a table's times, or drawn ones.

    Parameters
    ----------
    request : the pool.
    given : inputs of the command.
    asked : what they mean.

    Returns
    -------
    Sessions of each member.
    """
    if given.churn is not None:
        return read_churn(given.churn, request.members)
    return drawn(
        request.members,
        asked.horizon + units.DAY,
        session=asked.session,
        online=asked.online,
        pattern=asked.pattern,
        seed=asked.seed,
    )


# Pipelines ----------------------------------------------------------------------------------------


def pipelines_of(request: PoolRequest, fit: Fit, seats: int, asked: Circumstances) -> list[Pipeline]:
    """Return pipelines of least time, one after the other of the members that are left.

    Parameters
    ----------
    request : the pool.
    fit : the fitted constants.
    seats : users whose caches members hold [1].
    asked : most pipelines, and whether weights are on disk.

    Returns
    -------
    The pipelines.
    """
    problem = problem_of(request, fit, users=seats)
    rest, work = problem, works_of(request, fit)
    out: list[Pipeline] = []
    while asked.replicas is None or len(out) < asked.replicas:
        found = best_layout(rest) if rest.clients else None
        if found is None:
            break
        out.append(_pipeline(request, problem, found.layout, work))
        for member in found.layout.used:
            rest = without(rest, member)
    return out


def _pipeline(request: PoolRequest, problem: Problem, layout: Layout, work: Array) -> Pipeline:
    return Pipeline(
        layout=layout, places=tuple(_place(request, problem, layout, member, work) for member in layout.used)
    )


def _place(request: PoolRequest, problem: Problem, layout: Layout, member: int, work: Array) -> Place:
    own = [stage for stage in layout.stages if stage.member == member]
    head, asks = layout.head == member, layout.client == member
    layers = [layer for stage in own for layer in range(stage.first, stage.end)]
    need = float(problem.weight[layers].sum()) + (problem.head_weight if head else 0.0)
    spent = problem.layer[:, layers].sum(axis=1) + problem.head * head + problem.host * asks
    visits = problem.hidden[layout.client] + problem.hidden[:, layout.client]
    size = float(layer_weights(request.model)[layers].sum()) + (head_bytes(request.model) if head else 0.0)
    return Place(
        member=member,
        layers=(own[0].first, own[-1].end - 1) if own else (0, -1),
        work=float(work[layers].sum() + work[-1] * head),
        size=size,
        fits=(problem.room >= need) & _askers(problem, asks=asks),
        time=spent + (0.0 if asks else visits),
    )


def _askers(problem: Problem, *, asks: bool) -> Array:
    """Return which members may take a place, shape (members,)."""
    who = np.zeros(problem.members, bool)
    who[list(problem.clients)] = True
    return who | (not asks)


class Loads:
    """How long weights take to reach members: from the client's link, a hub on the internet, or each member's disk."""

    def __init__(self, request: PoolRequest, *, store: bool) -> None:
        software, self.members = request.software, request.members
        self.whole = software.restarts == "all"
        self.source = "disk" if store else software.loads
        self.disk = catalogue.pools().assumed["disk"].value

    def one(self, place: Place, member: int, asks: int) -> float:
        """Return the time in which a member gets the weights of a place, where another one asks [s]."""
        if self.source == "disk" or (self.source == "client" and member == asks):
            return place.size / self.disk
        up = self.members[asks].up if self.source == "client" else inf
        return float(wire_time(place.size, up, self.members[member].down))

    def all(self, pipeline: Pipeline, holders: Sequence[int]) -> float:
        """Return the time in which all holders of a pipeline get theirs; a client's link carries them one after the other [s]."""
        times = [self.one(place, member, holders[0]) for place, member in zip(pipeline.places, holders, strict=True)]
        return sum(times[1:]) if self.source == "client" else max(times)


def works_of(request: PoolRequest, fit: Fit) -> Array:
    """Return the FLOP of one token in the products of each layer, and of the output layer at the end, shape (layers + 1,) [FLOP].

    Parameters
    ----------
    request : the pool.
    fit : the fitted constants.

    Returns
    -------
    FLOP, the same on every member.
    """
    model, step = request.model, Step(sequences=1.0, context=1.0)
    tables = step_operations(model, Strategy(), step, rates_of(request, 0, fit), kv_bytes=request.kv_bytes)
    sums = [sum(float(op.work) for op in table if op.kind in PRODUCTS) for table in tables]
    out = np.full(len(model.decoder.layers) + 1, sums[-1])
    for one, (_, places) in zip(sums, model.decoder.kinds(), strict=False):
        out[list(places)] = one
    return out


PRODUCTS = frozenset({"matmul", "experts", "low_rank"})
"""Kinds of operations whose FLOP are credited: they are those of the weights that a member holds."""


def _surfaces(
    request: PoolRequest, fit: Fit, seats: int, budget: int, longest: int
) -> Callable[[Layout, float], Surface]:
    """Return the step times of layouts times a factor, which are kept; members that are alike share theirs."""
    kept: dict[object, Surface] = {}
    alike = alike_of(request)

    def surface_of(layout: Layout, factor: float) -> Surface:
        # of two members that are alike, the one that asks is another than the one that does not
        stages = tuple((alike[one.member], one.first, one.end, one.member == layout.client) for one in layout.stages)
        key = (alike[layout.client], stages, layout.output, factor)
        if key not in kept:
            if len(kept) >= KEPT:
                kept.clear()
            table = pool_surface(request, fit, layout, seats=seats, budget=budget, longest=longest)
            kept[key] = lists(scaled(table, factor))
        return kept[key]

    return surface_of


# Figures ------------------------------------------------------------------------------------------


def _figures(
    requests: Requests, outcome: Outcome, ends: Sequence[Outcome], *, seen: bool, grade: str
) -> dict[str, Figure]:
    """Return figures of finished requests, with the intervals of chance and of all steps as fast and as slow as their own.

    Where nobody saw when members are there, no figure is better than guessed.
    """
    each, others = _times(requests, outcome), [_times(requests, one) for one in ends]
    found = {}
    for name, values in each.items():
        if not len(values):
            continue
        fast, slow = (float(one[name].mean()) if len(one[name]) else inf for one in others)
        one, mean = summary(values), float(values.mean())
        sampling = (max(0.0, mean - one.error), mean + one.error)
        low, high = joined(mean, sampling, (min(fast, mean), max(slow, mean)), 0.0)
        metric = Metric(mean, low, high, "s", grade if seen else GRADES[-1])
        found[name] = Figure(metric=metric, summary=one, sampling=sampling, speeds=(fast, slow))
    return found


def _times(requests: Requests, outcome: Outcome) -> dict[str, Array]:
    """Return the times of finished requests by figure [s]."""
    done = outcome.last > NEVER
    several = done & (requests.outputs > 1)
    arrivals = np.asarray(requests.arrivals)
    return {
        "ttft": (outcome.first - arrivals)[done],
        "tpot": (outcome.last - outcome.first)[several] / (requests.outputs[several] - 1),
        "e2e": (outcome.last - arrivals)[done],
        "waiting": (outcome.admitted - arrivals)[done],
    }


def _shares(request: PoolRequest, sessions: Sequence[Sessions], outcome: Outcome, horizon: float) -> tuple[Share, ...]:
    return tuple(
        Share(
            name=one.name,
            online=sessions[m].share(horizon),
            work=float(outcome.work[m]),
            useful=float(outcome.useful[m]),
            credit=float(credit(outcome.useful[m])),
        )
        for m, one in enumerate(request.members)
    )


def _audit(request: PoolRequest, fit: Fit, layout: Layout) -> float:
    """Return the time of an audit, one prompt pass over prompt and answer, by the time of the answer [1]."""
    w = request.workload
    whole = float(w.input + w.output)
    prompt = passes(request, fit, layout, Step(new=float(w.input), past=0.0, requests=1.0))
    again = passes(request, fit, layout, Step(new=whole, past=0.0, requests=1.0))
    token = passes(request, fit, layout, Step(sequences=1.0, context=float(w.input + w.output / 2.0)))
    return float(again.layers / (prompt.layers + (w.output - 1.0) * token.layers))
