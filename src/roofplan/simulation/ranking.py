"""Serving plans ranked by what users feel of them at a rate, where steady states do not see queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from roofplan.errors import InputError, unwrap
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
        _put_first(found, said)


def fastest_first(found: Result, asked: Asked, route: str) -> None:
    """Put the machine and the layout that keep limits at the highest rate first, and say where that changes the order.

    Machines compete for the rate over their cost where cost was the objective, else for the rate.

    Parameters
    ----------
    found : plans ranked by their steady states, changed in place.
    asked : lengths and limits.
    route : how replicas are chosen.
    """
    first, brief = found.plans[0], _brief(asked)
    heads = list({plan.machine.text: plan for plan in reversed(found.plans)}.values())[::-1]
    tried = [plan for head in heads[:TRIED] for plan in (head, *_layouts(head, found.plans))]
    if len(tried) == 1:
        return
    rates = {plan.id: _highest(plan, brief, route) for plan in tried}

    def worth(plan: Plan) -> float:
        if found.asked.best != "cost":
            return rates[plan.id]
        return 0.0 if plan.cost is None else rates[plan.id] / plan.cost.total

    best = max(tried, key=worth)
    if worth(best) > FASTER * worth(first):
        found.plans.remove(best)
        found.plans.insert(0, best)
        other = best.machine.text != first.machine.text
        kept = [_kept(one, rates[one.id], priced=other) for one in (first, best)]
        names = [f"{one.label} on {one.machine.text}" if other else one.label for one in (first, best)]
        trials = f"in trials of {brief.count:,} requests it keeps the limits {kept[0]}, {names[1]} {kept[1]}"
        _put_first(found, f"by its steady state {names[0]} stood first; {trials}")


def _kept(plan: Plan, rate: float, *, priced: bool) -> str:
    """Return up to which rate a plan keeps limits, and what its machine costs where machines compete."""
    cost = f" for {units.significant(plan.cost.total)} USD/h" if priced and plan.cost is not None else ""
    return f"up to {units.significant(rate, 2)} req/s{cost}" if rate else "at no rate"


FASTER = 1.1
"""Rate over another's from which a layout is told apart from it: both are found to within `COARSE` [1]."""


def _highest(plan: Plan, asked: Asked, route: str) -> float:
    """Return the highest rate at which a plan keeps limits to within `COARSE`, 0 where none does or it cannot hold the requests [1/s]."""
    try:
        return highest_rate(at_rates(plan, asked, route), first_rate(plan, asked), COARSE).rate
    except InputError:
        return 0.0


def first_rate(plan: Plan, asked: Asked) -> float:
    """Return the rate at which a search for the highest one begins: as asked, or half of the steady state's [1/s]."""
    return asked.rate or 0.5 * plan.metrics["output_tokens_per_second"].value / asked.output


def at_rates(plan: Plan, asked: Asked, route: str) -> Callable[..., Simulation]:
    """Return a function that simulates a plan at a rate [1/s], with steps `pace` times as long."""
    deployment, speed = deployment_of(plan), speed_of(plan)

    def at(rate: float, pace: float = 1.0) -> Simulation:
        return simulate(deployment, load_on(asked, deployment, rate, route), speed, pace=pace, doubtful=False)

    return at


def _put_first(found: Result, reason: str) -> None:
    """Say why another plan stands first, and renew what rests on the first one."""
    first = found.plans[0]
    found.warnings.append(("reordered", reason))
    found.ladder = ladder(first, found.asked)
    found.warnings += [one for one in warnings_of(first) if one not in found.warnings]
    found.standing, found.smaller = standing(first, found.asked, found.fit), smaller(first, found.asked, found.fit)


def _felt(plan: Plan, place: int, asked: Asked) -> UnderLoad:
    """Return what users feel of a plan."""
    deployment = replace(deployment_of(plan), launched=plan.seats)
    seen = simulate(deployment, load_on(asked, deployment), speed_of(plan), doubtful=False)
    limits = tuple((one.objective.name, one.time, one.objective.limit) for one in seen.limits)
    return UnderLoad(place, unwrap(seen.good), limits, seen.growth)


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


def _layouts(head: Plan, plans: Sequence[Plan]) -> list[Plan]:
    """Return other layouts of a plan in the same formats on the same machine and engine, the best ones of some."""
    same = attrgetter("machine", "engine", "precision", "kv_precision")
    return [one for one in plans if same(one) == same(head) and one.strategy != head.strategy][: TRIED - 1]


def _others(found: Result) -> Iterator[tuple[str, str, Plan]]:
    """Yield other plans of the same machine, with the flag and value that lead there."""
    first = found.plans[0]
    for plan in _layouts(first, found.plans):
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
