"""What users feel under a load: figures with their intervals, limits kept or missed, queues that grow, and what it costs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, inf, log, sqrt
from types import MappingProxyType

import numpy as np

from roofplan.errors import InputError, unwrap
from roofplan.load.asked import Asked
from roofplan.load.requests import Requests, cached_tokens
from roofplan.load.statistics import FIGURES, Objective, Summary, quantile_ends, summary
from roofplan.serving.bounds import bounded, floors
from roofplan.serving.certainty import certainty
from roofplan.serving.plan import Plan
from roofplan.serving.surface import Surface
from roofplan.simulation.deployment import Deployment
from roofplan.simulation.fast import compiled
from roofplan.simulation.replicas import LEAST, Served
from roofplan.timing.figures import FIRST_TOKEN, TIME_PER_TOKEN, Metric, Sure

Array = np.ndarray

MANY = 20_000
"""Requests from which compiled code is used where it is installed: below, loading it takes longer than it saves [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests, and how they are sent and judged.

    Parameters
    ----------
    requests : lengths and arrivals.
    cached : tokens of each prompt in the cache, shape (requests,) [token].
    clients : of a closed loop, None for requests with arrivals [1].
    objectives : limits on what users feel.
    warmup : first requests that statistics leave out [1].
    route : how replicas are chosen, `LEAST` or `ROUND_ROBIN`.
    """

    requests: Requests
    cached: Array
    clients: int | None = None
    objectives: tuple[Objective, ...] = ()
    warmup: int = 0
    route: str = LEAST


def load_on(asked: Asked, deployment: Deployment, rate: float | None = None, route: str = LEAST) -> Load:
    """Return a load as a deployment meets it.

    Parameters
    ----------
    asked : the load.
    deployment : whose cache holds parts of prompts.
    rate : requests per second, None for the one that was asked for [1/s].
    route : how replicas are chosen.

    Returns
    -------
    Requests, with the tokens that the cache holds.
    """
    requests = asked.requests(rate)
    defaults = deployment.engine.raw.get("defaults", {})
    block = max(1, int(defaults.get("prefix_block", deployment.engine.block)))
    if requests.prefixes and not deployment.finds_prefixes:
        cached = np.zeros(len(requests), np.int64)
    elif requests.prefixes:
        blocks, _ = deployment.blocks(int((requests.inputs + requests.outputs).max()))
        cached = cached_tokens(requests, block, blocks * block, deployment.replicas)
    else:
        hit = deployment.workload.prefix_hit
        cached = np.minimum((requests.inputs * hit).astype(np.int64), requests.inputs - 1) // block * block
    return Load(
        requests=requests,
        cached=cached,
        clients=asked.clients,
        objectives=asked.objectives,
        warmup=asked.warmup,
        route=route,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of requests, with its two causes of error apart.

    Parameters
    ----------
    summary : distribution over requests.
    metric : mean, with the 90% interval from both causes together.
    sampling : ends of the interval from the random numbers alone [s].
    speeds : means with all steps as fast and as slow as their own 90% interval allows, infinite where the slow ones let the queue grow [s].
    """

    summary: Summary
    metric: Metric
    sampling: tuple[float, float]
    speeds: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A limit, and the time at its percentile with the 90% interval [s]."""

    objective: Objective
    time: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        """Whether the time is inside the limit."""
        return self.time <= self.objective.limit

    @property
    def over(self) -> float:
        """The time over the limit [1]."""
        return self.time / self.objective.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A load served by a deployment.

    Parameters
    ----------
    served : times of every request.
    figures : of `FIGURES`; the time between tokens is absent where every answer is one token.
    growth : requests by which the queue grows per second, 0 where it does not [1/s].
    limits : that were asked for.
    good : share of requests inside all limits, None without limits; then with all steps as slow and as fast as their interval allows [1].
    seconds : from the first arrival to the last token [s].
    cpu_seconds : from requests drawn to percentiles ready, without start-up, compilation and step times [s].
    kept : share of the cache in use, mean and most over time [1].
    """

    deployment: Deployment
    load: Load
    served: Served
    figures: Mapping[str, Figure]
    growth: float
    limits: tuple[Judged, ...]
    good: float | None
    good_ends: tuple[float, float]
    seconds: float
    cpu_seconds: float
    kept: tuple[float, float]

    @property
    def saturated(self) -> bool:
        """Whether requests arrive faster than they are served."""
        return self.growth > 0.0

    @property
    def lifetimes(self) -> float:
        """How many times as long as a mean request the run lasts [1]."""
        return self.seconds * self.requests_per_second / self.running if self.running else float("inf")

    @property
    def requests_per_second(self) -> float:
        """Requests answered per second [1/s]."""
        return len(self.load.requests) / self.seconds

    @property
    def front_end(self) -> float:
        """Share of time in which the front ends read requests, one after the other [1]."""
        return self.requests_per_second * self.deployment.front

    @property
    def output_tokens_per_second(self) -> float:
        """Output tokens per second of all replicas [token/s]."""
        return float(self.load.requests.outputs.sum()) / self.seconds

    @property
    def running(self) -> float:
        """Mean number of requests that have a seat [1]."""
        return float((self.served.last - self.served.admitted).sum()) / self.seconds


def simulate(
    deployment: Deployment,
    load: Load,
    speed: Sure,
    sure: Mapping[str, Sure] = MappingProxyType({}),
    *,
    pace: float = 1.0,
    doubtful: bool = True,
) -> Simulation:
    """Return what users feel of a deployment under a load.

    Parameters
    ----------
    deployment : what serves.
    load : requests, and how they are sent and judged.
    speed : certainty of step times.
    sure : certainty of figures under load, as published runs tell; of step times where a figure has none.
    pace : factor on the time of every step [1].
    doubtful : whether the load is also served by faster and slower steps, for the intervals.

    Returns
    -------
    Figures, limits and times of every request.

    Raises
    ------
    InputError : a request that the cache cannot hold.
    """
    longest = int((load.requests.inputs + load.requests.outputs).max())
    refuse_too_long(deployment, longest)
    fleet = deployment.fleet(longest, route=load.route, run=compiled() if len(load.requests) >= MANY else None)
    if pace != 1.0:
        fleet = replace(fleet, surface=scaled(fleet.surface, pace))
    started = time.process_time()
    served = fleet.serve(load.requests, load.cached, load.clients)
    found = {name: summary(served.figure(name, load.warmup)) for name in FIGURES}
    spent = time.process_time() - started
    factors = (exp(-speed.half), exp(speed.half)) if doubtful else ()
    others = [replace(fleet, surface=scaled(fleet.surface, factor)) for factor in factors]
    ends = [other.serve(load.requests, load.cached, load.clients) for other in others]
    growth = growth_of(served, load.clients)
    # a queue that grows only with the slowest steps has no end that a longer load would not move
    tipped = bool(ends) and not growth and growth_of(ends[1], load.clients) > 0.0
    figures = {}
    for name, one in found.items():
        if one.mean is not None:
            means = [float(end.figure(name, load.warmup).mean()) for end in ends] or [one.mean, one.mean]
            if tipped and name != "tpot":  # seats bound how far steps can slow down
                means[1] = inf
            figures[name] = figure_of(one, (min(means[0], one.mean), max(means[1], one.mean)), sure.get(name, speed))
    least = floors(deployment.model, deployment.strategy, deployment.workload, deployment.rates, 1)
    known = bounded({name: one.metric for name, one in figures.items()}, least, users=inf, first=0.0)
    figures = {name: replace(one, metric=known[name]) for name, one in figures.items()}
    seconds = float(served.last.max() - served.arrivals.min())
    runs = [served, *ends]
    limits = tuple(
        judged(one, [run.figure(one.figure, load.warmup) for run in runs], sure.get(one.figure, speed), endless=tipped)
        for one in load.objectives
        if len(served.figure(one.figure, load.warmup))
    )
    inside = [good_share(run, load) for run in runs] if limits else []
    return Simulation(
        deployment=deployment,
        load=load,
        served=served,
        figures=figures,
        growth=growth,
        limits=limits,
        good=inside[0] if inside else None,
        good_ends=(min(inside, default=0.0), max(inside, default=0.0)),
        seconds=seconds,
        cpu_seconds=spent,
        kept=cache_use(deployment, served, longest),
    )


def refuse_too_long(deployment: Deployment, longest: int) -> None:
    """Refuse a request that the model's positions or the cache of a replica cannot hold.

    Raises
    ------
    InputError : says the longest request that can be held.
    """
    most = int(deployment.memory.longest)
    if longest > most:
        positions = deployment.model.max_positions
        why = f"{deployment.model.id} has {positions:,} positions" if positions and longest > positions else "the cache"
        holds = "" if positions and longest > positions else f" of a replica holds {most:,}"
        message = f"--input, --output: a request of {longest:,} tokens is too long: {why}{holds}"
        raise InputError(message, argument="--input", value=str(longest))


TIMES = (
    *("decodes", "prompts", "mixed", "prompt_rows", "mixed_rows", "attention", "growth", "pieces"),
    *("reading", "states", "encoders", "shared"),
)
"""Tables of a surface that hold times."""


def scaled(table: Surface, factor: float) -> Surface:
    """Return step times multiplied by a factor.

    Parameters
    ----------
    table : step times, as arrays.
    factor : the factor [1].

    Returns
    -------
    The step times.
    """
    return table._replace(**{name: getattr(table, name) * factor for name in TIMES})


def figure_of(one: Summary, speeds: tuple[float, float], sure: Sure) -> Figure:
    """Return a figure with its interval.

    It joins both causes of error, which are independent, on a logarithmic scale, and is nowhere narrower than what
    published runs under load told of the figure.
    """
    mean, grade = unwrap(one.mean), sure.grade
    sampling = (max(0.0, mean - one.error), mean + one.error)
    low, high = joined(mean, sampling, speeds, sure.half)
    return Figure(summary=one, metric=Metric(mean, low, high, "s", grade), sampling=sampling, speeds=speeds)


def joined(
    value: float, sampling: tuple[float, float], speeds: tuple[float, float], least: float
) -> tuple[float, float]:
    """Return the ends of an interval from two causes that are independent on a logarithmic scale.

    Parameters
    ----------
    value : what it is of [s].
    sampling, speeds : ends by each cause alone, infinite or 0 where there is no end [s].
    least : least half width, natural logarithm [1].

    Returns
    -------
    Lower and upper end [s].
    """
    if value <= 0.0:
        return sampling

    def reach(ends: tuple[float, float]) -> float:
        far = (abs(log(end / value)) if 0.0 < end < inf else inf for end in ends)
        return max(hypot(*far), least)

    return value * exp(-reach((sampling[0], speeds[0]))), value * exp(reach((sampling[1], speeds[1])))


def judged(objective: Objective, runs: Sequence[Array], sure: Sure, *, endless: bool) -> Judged:
    """Return the time at a limit's percentile.

    Parameters
    ----------
    objective : the limit.
    runs : its figure of each request: as simulated, then, if known, with fast and with slow steps [s].
    sure : certainty of the figure.
    endless : whether the queue grows with slow steps.

    Returns
    -------
    The time with its interval.
    """
    times = [float(np.quantile(values, objective.quantile)) for values in runs]
    slow = inf if endless and objective.figure != "tpot" else max(times)
    low, high = joined(times[0], quantile_ends(runs[0], objective.quantile), (min(times), slow), sure.half)
    return Judged(objective=objective, time=times[0], low=low, high=high)


def good_share(served: Served, load: Load) -> float:
    """Return the share of requests inside all limits [1]."""
    inside = np.ones(len(served.arrivals), bool)
    for one in load.objectives:
        kept = served.figure(one.figure) <= one.limit
        if len(kept) == len(inside):
            inside &= kept
        else:  # the time between tokens, which answers of one token lack
            inside[served.outputs > 1] &= kept
    return float(inside[load.warmup :].mean())


SURE_GROWTH = 2.0
"""Growth of a queue over the square root of the arrivals meanwhile, above which chance does not explain it [1]."""


def growth_of(served: Served, clients: int | None) -> float:
    """Return the requests per second by which the queue grows in the second half of the arrivals.

    Parameters
    ----------
    served : times of requests.
    clients : of a closed loop, which has no rate, so that nothing grows; None for requests with arrivals [1].

    Returns
    -------
    Growth, 0 where chance explains it, and for a burst [1/s].
    """
    total = len(served.arrivals)
    if clients is not None or total < 40 or served.arrivals[-1] <= served.arrivals[0]:
        return 0.0
    # those without a seat: a rising number of running requests is no queue
    inside = waiting_at(served, served.arrivals)
    tenth = max(4, total // 10)
    middle = slice(total // 2 - tenth // 2, total // 2 + tenth // 2)
    more = float(inside[-tenth:].mean() - inside[middle].mean())
    span = float(served.arrivals[-tenth:].mean() - served.arrivals[middle].mean())
    if span <= 0.0 or more < SURE_GROWTH * sqrt(0.5 * total):
        return 0.0
    return more / span


def cache_use(deployment: Deployment, served: Served, longest: int) -> tuple[float, float]:
    """Return the mean and the greatest share of the cache that requests hold over time [1]."""
    blocks, fixed = deployment.blocks(longest)
    block = max(1, int(deployment.engine.block))
    room = blocks * block * deployment.replicas
    if not np.isfinite(room):
        return 0.0, 0.0
    times = np.linspace(served.arrivals.min(), served.last.max(), 400)
    held = tokens_held(served, times) + running_at(served, times) * fixed * block
    return float(held.mean() / room), float(min(1.0, held.max() / room))


def running_at(served: Served, times: Array) -> Array:
    """Return the requests that have a seat at some times.

    Parameters
    ----------
    served : times of requests.
    times : shape (times,) [s].

    Returns
    -------
    Requests, shape (times,) [1].
    """
    begun = np.searchsorted(np.sort(served.admitted), times, side="right")
    return np.asarray(begun - np.searchsorted(np.sort(served.last), times, side="right"))


def waiting_at(served: Served, times: Array) -> Array:
    """Return the requests that wait for a seat at some times.

    Parameters
    ----------
    served : times of requests.
    times : shape (times,) [s].

    Returns
    -------
    Requests, shape (times,) [1].
    """
    sent = np.searchsorted(np.sort(served.arrivals), times, side="right")
    return np.asarray(sent - np.searchsorted(np.sort(served.admitted), times, side="right"))


def tokens_held(served: Served, times: Array) -> Array:
    """Return the tokens that requests keep in the cache at some times, as if each grew evenly [token].

    A request holds its prompt from its seat to its end, and its answer as it grows between its first and its last token.

    Parameters
    ----------
    served : times of requests.
    times : shape (times,) [s].

    Returns
    -------
    Tokens, shape (times,) [token].
    """
    own = served.inputs - served.cached
    span = np.maximum(served.last - served.first, 1e-9)
    rate = (served.outputs - 1) / span
    out = np.zeros(len(times))
    for start, base, slope in (
        (served.admitted, own, np.zeros(len(own))),
        (served.first, -rate * served.first, rate),
    ):
        for moment, sign in ((start, 1.0), (served.last, -1.0)):
            order = np.argsort(moment, kind="stable")
            place = np.searchsorted(moment[order], times, side="right")
            sums = [np.concatenate([[0.0], np.cumsum(column[order])])[place] for column in (base, slope)]
            out += sign * (sums[0] + sums[1] * times)
    return np.maximum(out, 0.0)


def speed_of(plan: Plan) -> Sure:
    """Return the certainty of a plan's step times: that of its time per token, for a known batch."""
    guessed = bool(plan.workload.drafted)
    return certainty(TIME_PER_TOKEN, plan.prediction.pace, plan.model, plan.rates, guessed=guessed)


def sure_under_load(plan: Plan) -> dict[str, Sure]:
    """Return the certainty of figures under load.

    A first token is as uncertain as published ones without a queue, a time per token as that of published clients. What a
    queue was found to add is left out: it rests on few runs and would make the interval a factor of fifty either way.

    Parameters
    ----------
    plan : a plan.

    Returns
    -------
    By figure.
    """
    p, guessed = plan.prediction, bool(plan.workload.drafted)
    first = certainty(FIRST_TOKEN, p.ttft, plan.model, plan.rates, guessed=guessed, behind_front_end=True)
    between = certainty(TIME_PER_TOKEN, p.pace, plan.model, plan.rates, load="clients", guessed=guessed)
    ends = between if plan.workload.output > 1 else first  # an answer of one token ends with its first
    return {"ttft": first, "waiting": first, "tpot": between, "e2e": ends}
