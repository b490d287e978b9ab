"""Serving plans ranked by what users feel of them at a rate, where steady states do not see queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from roofplan.errors import InputError
from roofplan.load.asked import Asked
from roofplan.records import units
from roofplan.serving.advice import changes, smaller, standing
from roofplan.serving.evaluate import evaluate
from roofplan.serving.plan import Plan, Result, Tally, UnderLoad
from roofplan.serving.run import ladder, warnings_of
from roofplan.simulation.deployment import deployment_of
from roofplan.simulation.report import Simulation, load_on, simulate, speed_of
from roofplan.simulation.search import COARSE, highest_rate

TRIED, REQUESTS = 8, 2_000
"""Best plans that are simulated, and requests of each simulation [1]."""


def ranked_under_load(found: Result, asked: Asked) -> None:
    """Put the plans that keep limits at a rate before those that do not, and say where that changes the order.

    Parameters
    ----------
    found : plans ranked by their steady states, changed in place.
    asked : rate, lengths and limits.
    """
    brief = replace(asked, count=min(asked.count, REQUESTS))
    tried = [replace(plan, under_load=_felt(plan, place, brief)) for place, plan in enumerate(found.plans[:TRIED])]
    kept = [plan for plan in tried if plan.under_load is not None and plan.under_load.holds]
    missed = [plan for plan in tried if plan not in kept]
    missed.sort(key=lambda plan: -plan.under_load.good if plan.under_load is not None else 0.0)
    found.plans[: len(tried)] = [*kept, *missed]
    first = found.plans[0]
    if not kept:
        found.warnings.append(("slo", f"none of the {len(tried)} best plans keeps --slo: the nearest stands first"))
    if first.under_load is not None and first.under_load.place:
        was = next(plan for plan in tried if plan.under_load is not None and not plan.under_load.place)
        said = (
            f"by its steady state {was.label} on {was.machine.text} stood first; by simulation it misses {_worst(was)}"
        )
        _renew(found, said)


def fastest_first(found: Result, asked: Asked, route: str) -> None:
    """Put the layout of the first plan's machine that keeps limits at the highest rate first, and say where that changes the order.

    Parameters
    ----------
    found : plans ranked by their steady states, changed in place.
    asked : lengths and limits.
    route : how replicas are chosen.
    """
    first, brief = found.plans[0], _brief(asked)
    kept = {plan.id: _highest(plan, brief, route) for plan in (first, *_layouts(found))}
    best = max((first, *_layouts(found)), key=lambda plan: kept[plan.id])
    if kept[best.id] > (1.0 + COARSE) * kept[first.id]:
        found.plans.remove(best)
        found.plans.insert(0, best)
        rates = [f"{units.significant(kept[plan.id])} req/s" for plan in (first, best)]
        _renew(
            found,
            f"by its steady state {first.label} stood first; it keeps the limits up to {rates[0]}, {best.label} up to {rates[1]}",
        )


def _highest(plan: Plan, asked: Asked, route: str) -> float:
    """Return roughly the highest rate at which a plan keeps limits, 0 where none does or it cannot hold the requests [1/s]."""
    start = asked.rate or 0.5 * plan.metrics["output_tokens_per_second"].value / asked.output
    deployment, speed = deployment_of(plan), speed_of(plan)

    def at(rate: float) -> Simulation:
        return simulate(deployment, load_on(asked, deployment, rate, route), speed, doubtful=False)

    try:
        return highest_rate(at, start, COARSE).rate
    except InputError:
        return 0.0


def _renew(found: Result, said: str) -> None:
    """Say why another plan stands first, and renew what rests on the first one."""
    first = found.plans[0]
    found.warnings.append(("reordered", said))
    found.ladder = ladder(first, found.asked)
    found.warnings += [one for one in warnings_of(first) if one not in found.warnings]
    found.standing, found.smaller = standing(first, found.asked, found.fit), smaller(first, found.asked, found.fit)


def _felt(plan: Plan, place: int, asked: Asked) -> UnderLoad:
    """Return what users feel of a plan."""
    deployment = replace(deployment_of(plan), launched=plan.seats)
    seen = simulate(deployment, load_on(asked, deployment), speed_of(plan), doubtful=False)
    limits = tuple((one.objective.name, one.time, one.objective.limit) for one in seen.limits)
    return UnderLoad(place, seen.good or 0.0, limits, seen.growth)


def _worst(plan: Plan) -> str:
    """Return the limit that a plan misses by most, or that its queue grows."""
    felt = plan.under_load
    if felt is None or felt.growth or not felt.limits:
        return "them all, since its queue grows"
    name, time, limit = max(felt.limits, key=lambda one: one[1] / one[2])
    return f"{name} by {time / limit - 1.0:.0%}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Help:
    """A change that was tried under the same load, and what it does.

    Parameters
    ----------
    argument, needed : flag and value of the change.
    figure : time that tells, with its percentile.
    before, after : that time without the change and with it [s].
    """

    argument: str
    needed: str
    figure: str
    before: float
    after: float


HELPED, GAIN = 1_000, 0.05
"""Requests of each trial of a change, and the share of a time that it must save to be named [1]."""


def helps(found: Result, asked: Asked, rate: float | None, route: str) -> list[Help]:
    """Return changes that shorten the time that limits the first of some plans under a load, the greatest help first.

    Parameters
    ----------
    found : serving plans.
    asked : the load.
    rate : of arrivals, None for the one that was asked for [1/s].
    route : how replicas are chosen.

    Returns
    -------
    Changes that were tried: other layouts of the machine, chunks of prompts, formats, engines and shared prefixes.
    """
    plan, brief = found.plans[0], _brief(asked)
    seen = _tried(plan, brief, rate, route)
    if seen is None:
        return []
    name, before = _telling(seen)
    out = []
    for argument, needed, other in _others(found):
        changed = _tried(other, brief, rate, route)
        if changed is not None:
            after = _of(changed, name)
            if after < (1.0 - GAIN) * before:
                out.append(Help(argument=argument, needed=needed, figure=name, before=before, after=after))
    return sorted(out, key=lambda one: one.after)


def _brief(asked: Asked) -> Asked:
    """Return a load of few requests."""
    brief = replace(asked, count=min(asked.count, HELPED), warmup=0)
    return brief if brief.trace is None else replace(brief, trace=brief.trace.first(brief.count))


def _layouts(found: Result) -> list[Plan]:
    """Return other layouts of the first plan's machine and engine."""
    first = found.plans[0]
    alike = (plan for plan in found.plans[1:TRIED] if plan.machine == first.machine and plan.engine == first.engine)
    return [plan for plan in alike if plan.strategy != first.strategy]


def _others(found: Result) -> Iterator[tuple[str, str, Plan]]:
    """Yield other plans of the same machine, with the flag and value that lead there."""
    first = found.plans[0]
    for plan in _layouts(found):
        yield "--strategy", ",".join(f"{k}={v}" for k, v in plan.strategy.as_dict().items() if v > 1), plan
    here = replace(found.asked, machines=(first.machine,), pins=first.strategy.as_dict())
    for argument, needed, asked in changes(first, here):
        unhurried = replace(asked, constraints=replace(asked.constraints, rate=None))
        plans = evaluate(asked, Tally(), found.fit) or evaluate(unhurried, Tally(), found.fit)
        if plans:
            yield argument, needed, plans[0]


def _tried(plan: Plan, asked: Asked, rate: float | None, route: str) -> Simulation | None:
    """Return the simulation of a plan, None where it cannot hold the requests."""
    deployment = deployment_of(plan)
    try:
        return simulate(deployment, load_on(asked, deployment, rate, route), speed_of(plan), doubtful=False)
    except InputError:
        return None


def _telling(seen: Simulation) -> tuple[str, float]:
    """Return the time that stands nearest to its limit, or beyond; without limits that of the slowest of a hundred requests."""
    if seen.limits:
        worst = max(seen.limits, key=lambda one: one.over)
        return worst.objective.name, worst.time
    return "e2e p99", seen.figures["e2e"].summary.quantiles["p99"]


def _of(seen: Simulation, name: str) -> float:
    """Return a time by its name of figure and percentile [s]."""
    for one in seen.limits:
        if one.objective.name == name:
            return one.time
    figure, quantile = name.split()
    return seen.figures[figure].summary.quantiles[quantile]
