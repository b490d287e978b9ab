"""The answer of ``roofplan simulate``."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace

import numpy as np

from roofplan.inputs import SimulateInputs
from roofplan.present.answers.record import (
    ABSENT,
    Answer,
    Json,
    MachineMember,
    MetricMember,
    ModelMember,
    answered,
    machine_member,
    members,
    metrics,
    model_member,
    shown_model,
    view,
)
from roofplan.simulation.felt import Felt
from roofplan.simulation.report import Figure
from roofplan.simulation.search import Found


@members
class GoodMember:
    """Requests inside all limits: their share, the ends of its 90% interval, and how many there are a second."""

    share: float
    low: float
    high: float
    per_second: float


@members
class LimitMember:
    """A limit on what users feel, and the time at its percentile with the ends of its 90% interval [s]."""

    figure: str
    limit: float
    percentile: str
    value: float
    low: float
    high: float
    holds: bool


@members
class RateMember:
    """The highest rate that keeps the limits.

    Parameters
    ----------
    rate, missed : the highest rate that was seen to keep them, and the lowest that was not [1/s].
    low, high : the rate with all steps as slow and as fast as their 90% interval allows [1/s].
    breaks : figure whose limit breaks first, ``queue`` where the queue grows instead.
    """

    rate: float
    low: float = ABSENT
    high: float = ABSENT
    missed: float
    breaks: str


@members
class HelpMember:
    """A change that was tried under the same load: a time, with its percentile, without it and with it [s]."""

    argument: str
    needed: str
    figure: str
    before: float
    after: float


@members
class ReplicaMember:
    """Requests that a replica served, and how often it took a request's cache for others [1]."""

    requests: int
    preemptions: int


@members
class SimulationMember:
    """What happened to the requests.

    Parameters
    ----------
    load, lengths : what arrived, in words.
    simulated_seconds : from the first arrival to the last token [s].
    cpu_seconds : from requests drawn to percentiles ready [s].
    saturated, growth : whether requests arrive faster than they are served, and by how many a second the queue grows [1/s].
    ttft, tpot, e2e, waiting : mean and percentiles over requests, interval of the mean, and its two causes apart: `sampling` from the
        random numbers alone, `speeds` with all steps as fast or as slow as their own interval allows [s].
    running, busy : requests with a seat, in the mean, and share of the time that replicas are in a step [1].
    kv_use, kv_peak : share of the cache in use, in the mean and at most [1].
    prefix_hits : share of prompt tokens found in the cache [1].
    """

    load: str
    lengths: str
    requests: int
    completed: int
    simulated_seconds: float
    cpu_seconds: float
    saturated: bool
    growth: float
    ttft: Json
    tpot: Json = ABSENT
    e2e: Json
    waiting: Json
    requests_per_second: float
    output_tokens_per_second: float
    goodput: GoodMember = ABSENT
    limits: list[LimitMember]
    highest_rate: RateMember = ABSENT
    running: float
    busy: float
    kv_use: float
    kv_peak: float
    prefix_hits: float
    preemptions: int
    replicas: list[ReplicaMember]
    seed: int


@members
class SimulateAnswer(Answer):
    """What users feel of a plan under a load.

    Parameters
    ----------
    metrics : power, cost per million output tokens and energy of one, at this load.
    better : changes that shorten the time that limits it, the greatest help first.
    reproduce : command that gives this answer.
    """

    model: ModelMember = ABSENT
    machine: MachineMember = ABSENT
    engine: str = ABSENT
    strategy: dict[str, int] = ABSENT
    simulation: SimulationMember = ABSENT
    metrics: dict[str, MetricMember] = ABSENT
    better: list[HelpMember] = ABSENT
    reproduce: str = ABSENT


def simulate_answer(felt: Felt, asked: SimulateInputs) -> SimulateAnswer:
    """Return the answer of ``roofplan simulate``.

    Parameters
    ----------
    felt : the plan and its simulated load.
    asked : inputs of the command.

    Returns
    -------
    The answer.
    """
    plan = felt.plan
    return answered(
        SimulateAnswer,
        "simulate",
        asked,
        warnings=felt.result.warnings,
        model=model_member(plan.model),
        machine=machine_member(plan.machine),
        engine=plan.engine.id,
        strategy=plan.strategy.as_dict(),
        simulation=_simulation(felt),
        metrics=metrics(felt.metrics),
        better=[view(HelpMember, one) for one in felt.helps],
        reproduce=reproduce(felt, asked),
    )


def _simulation(felt: Felt) -> SimulationMember:
    seen, asked, served = felt.simulation, felt.asked, felt.simulation.served
    replicas = range(seen.deployment.replicas)
    found = felt.found
    return view(
        SimulationMember,
        seen,
        load=asked.words(felt.rate),
        lengths="of the trace" if asked.trace is not None else str(asked.lengths),
        requests=len(served.arrivals),
        completed=len(served.arrivals),
        simulated_seconds=seen.seconds,
        **{name: figure_member(seen.figures[name]) for name in seen.figures},
        **({} if "tpot" in seen.figures else {"tpot": ABSENT}),
        goodput=ABSENT
        if seen.good is None
        else GoodMember(
            share=seen.good,
            low=seen.good_ends[0],
            high=seen.good_ends[1],
            per_second=seen.good * seen.requests_per_second,
        ),
        limits=[
            LimitMember(
                figure=one.objective.figure,
                limit=one.objective.limit,
                percentile=one.objective.percentile,
                value=one.time,
                low=one.low,
                high=one.high,
                holds=one.holds,
            )
            for one in seen.limits
        ],
        highest_rate=ABSENT if found is None else _highest(found),
        busy=served.busy,
        kv_use=seen.kept[0],
        kv_peak=seen.kept[1],
        prefix_hits=float(served.cached.sum() / served.inputs.sum()),
        preemptions=int(served.preempted.sum()),
        replicas=[
            ReplicaMember(
                requests=int((served.replica == k).sum()), preemptions=int(served.preempted[served.replica == k].sum())
            )
            for k in replicas
        ],
        seed=asked.seed,
    )


def _highest(found: Found) -> RateMember:
    """Return the highest rate that keeps the limits."""
    low, high = found.ends or (ABSENT, ABSENT)
    breaks = "queue" if found.first is None else found.first.figure
    return RateMember(rate=found.rate, low=low, high=high, missed=found.missed, breaks=breaks)


def figure_member(one: Figure) -> Json:
    """Return a figure with its percentiles, its interval and the causes of it."""
    m = one.metric
    return {
        "mean": m.value,
        **one.summary.quantiles,
        "low": m.low,
        "high": m.high,
        "sampling": list(one.sampling),
        "speeds": list(one.speeds),
        "unit": m.unit,
        "grade": m.grade,
    }


def reproduce(felt: Felt, asked: SimulateInputs) -> str:
    """Return the command that simulates exactly this plan under this load."""
    plan, each = felt.plan, asked.each()
    pinned = replace(
        asked,
        on=(plan.machine.text,),
        strategy=",".join(f"{name}={value}" for name, value in plan.strategy.as_dict().items()),
        engine=plan.engine.stands_for or plan.engine.id,
    )
    words = ["roofplan simulate", shown_model(asked.model, plan.model.id)]
    for name, one in each.items():
        value = getattr(pinned, one.name)
        if name == "model" or value == one.default or value is None or value is False:
            continue
        flag, parts = f"--{name}".replace("_", "-"), value if isinstance(value, tuple) else (value,)
        words.extend(flag if value is True else f"{flag} {shlex.quote(str(part))}" for part in parts)
    return " ".join(words)


def csv_rows(felt: Felt) -> list[Json]:
    """Return every request as a row: when it came, how long it was, and what its client measured [s].

    Parameters
    ----------
    felt : the simulated load.

    Returns
    -------
    One row per request, in order of arrival; the time between tokens of a one-token answer is empty.
    """
    served = felt.simulation.served
    several = served.outputs > 1
    tpot = np.full(len(several), np.nan)
    tpot[several] = served.figure("tpot")
    columns = {
        "arrival": served.arrivals,
        "input": served.inputs,
        "output": served.outputs,
        "ttft": served.figure("ttft"),
        "tpot": tpot,
        "e2e": served.figure("e2e"),
        "waiting": served.figure("waiting"),
        "replica": served.replica,
        "cached": served.cached,
        "preempted": served.preempted,
    }
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [
        {name: "" if math.isnan(value) else value for name, value in zip(columns, row, strict=True)} for row in rows
    ]
