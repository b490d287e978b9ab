"""Parts of a pass through a pool, each with its interval and what binds it: stages, the engine, latency."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from roofplan import catalogue
from roofplan.operations.table import Step
from roofplan.pool.costs import rates_of
from roofplan.pool.layout import Layout, Stage
from roofplan.pool.request import PoolRequest
from roofplan.records.calibration import Fit
from roofplan.records.pool import Member
from roofplan.records.terms import Term, total
from roofplan.serving.bounds import LIMIT_NAMES, leaves, limit_of
from roofplan.serving.certainty import certainty
from roofplan.serving.step import engine_term, stage_term


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a time: a stage, a message or the engine, with the ends of its 90% interval.

    Parameters
    ----------
    term : the part with what it is made of [s].
    low, high : the ends [s].
    grade : how sure it is.
    limits : what binds it: limit and member -> seconds.
    kind : ``compute``, ``link`` or ``engine``.
    """

    term: Term
    low: float
    high: float
    grade: str
    limits: dict[tuple[str, str], float]
    kind: Literal["compute", "link", "engine"] = "compute"


def stage_part(request: PoolRequest, fit: Fit, stage: Stage, step: Step, figure: str, *, output: bool) -> Part:
    """Return a member's layers, and the output layer where it stands with it.

    Parameters
    ----------
    request : the pool.
    fit : the fitted constants.
    stage : member and layers; none of them for the output layer alone.
    step : the pass.
    figure : whose errors tell the interval.
    output : whether the output layer stands there too.

    Returns
    -------
    The part.
    """
    model, member = request.model, request.members[stage.member]
    r = rates_of(request, stage.member, fit)
    counts = [float(sum(stage.first <= place < stage.end for place in places)) for _, places in model.decoder.kinds()]
    term = stage_term(
        f"{member.name}: {_what(stage, output)}",
        model,
        step,
        r,
        [*counts, float(output)],
        kv_bytes=request.kv_bytes,
    )
    sure = certainty(figure, term, model, r, load="client" if float(step.sampled) <= 1.0 else "clients")
    limits: dict[tuple[str, str], float] = {}
    for leaf, seconds in leaves(term):
        name = (LIMIT_NAMES[limit_of(leaf)], member.name)
        limits[name] = limits.get(name, 0.0) + seconds
    factor, value = math.exp(sure.half), float(term.value)
    return Part(term=term, low=value / factor, high=value * factor, grade=sure.grade, limits=limits)


def _what(stage: Stage, output: bool) -> str:
    held = f"layers {stage.first}-{stage.end - 1}" if stage.layers else ""
    return " + ".join(one for one in (held, "output" if output else "") if one)


def engine_part(request: PoolRequest, fit: Fit, layout: Layout, step: Step, figure: str) -> Part:
    """Return the engine's step, where it asks.

    Parameters
    ----------
    request : the pool.
    fit : the fitted constants.
    layout : who asks.
    step : the pass.
    figure : whose errors tell the interval.

    Returns
    -------
    The part.
    """
    r = rates_of(request, layout.client, fit)
    term = engine_term(float(step.sampled), r)
    sure = certainty(figure, total("token", [term], "s"), request.model, r, load="client")
    value, factor = float(term.value), math.exp(sure.half)
    limits = {(LIMIT_NAMES["engine"], request.members[layout.client].name): value}
    return Part(term=term, low=value / factor, high=value * factor, grade=sure.grade, limits=limits, kind="engine")


def latency_ends(pair: tuple[Member, Member]) -> tuple[float, float]:
    """Return the ends of the interval of the latency between two members.

    Parameters
    ----------
    pair : the members.

    Returns
    -------
    Lower and upper end [s].
    """
    rules = catalogue.pools()
    low = high = 0.0
    for one in pair:
        guess, margin = rules.assumed["rtt"], rules.margins["given_rtt"].value
        known = "rtt" not in one.assumed
        low += (one.rtt / margin if known else (guess.low or guess.value)) / 2.0
        high += (one.rtt * margin if known else (guess.high or guess.value)) / 2.0
    return low, high
