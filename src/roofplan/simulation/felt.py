"""A plan under a load: its simulation, the highest rate that keeps the limits, and what the load costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import exp

from roofplan.load.asked import Asked
from roofplan.records import units
from roofplan.serving.plan import Plan, Result
from roofplan.simulation.deployment import deployment_of
from roofplan.simulation.ranking import Help, at_rates, fastest_first, first_rate, helps
from roofplan.simulation.replicas import LEAST
from roofplan.simulation.report import Simulation, load_on, simulate, speed_of, sure_under_load
from roofplan.simulation.search import COARSE, Found, highest_rate
from roofplan.timing.figures import POWER, Doubt, Metric, sure, within
from roofplan.timing.power import power_limits, wall_power

SEARCHED = 20_000
"""Most requests of each trial of the search for a rate, but for traces [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Felt:
    """What users feel of a plan under a load.

    Parameters
    ----------
    asked : the load as it was asked for.
    result : serving plans, of which the first is simulated.
    simulation : of the load; where a rate is sought, of that rate.
    rate : at which requests came, None where clients, a burst or a trace's own times say when [1/s].
    found : highest rate that keeps the limits, None where there are no limits or no rate.
    power : at this load, None where the device's is not known [W].
    cost : of the machine over output tokens at this load, None without a price [USD/Mtoken].
    helps : changes that shorten the time that limits it, the greatest help first.
    """

    asked: Asked
    result: Result
    simulation: Simulation
    rate: float | None
    found: Found | None
    power: Metric | None
    cost: Metric | None
    helps: list[Help]

    @property
    def kept(self) -> bool:
        """Whether all limits hold; where a rate is sought, whether any rate keeps them."""
        if self.asked.find:
            return self.found is not None and self.found.rate > 0.0
        seen = self.simulation
        return not (seen.limits and seen.saturated) and all(one.holds for one in seen.limits)

    @property
    def metrics(self) -> dict[str, Metric]:
        """Power at the wall, energy of an output token and its cost, as far as they are known."""
        out = {}
        if self.power is not None:
            rate = self.simulation.output_tokens_per_second
            p = self.power
            out["power"] = p
            out["energy_per_output_token"] = replace(
                p, value=p.value / rate, low=p.low / rate, high=p.high / rate, unit="J"
            )
        if self.cost is not None:
            out["cost_per_million_output_tokens"] = self.cost
        return out

    @property
    def plan(self) -> Plan:
        """The plan that is simulated."""
        return self.result.plans[0]


def felt_of(asked: Asked, result: Result, route: str = LEAST) -> Felt:
    """Return what users feel of the first of some plans; where a rate is sought, of the layout that keeps the limits at the highest.

    Parameters
    ----------
    asked : the load.
    result : serving plans; where a rate is sought and another layout keeps it, that one is put first in them.
    route : how replicas are chosen.

    Returns
    -------
    Its simulation, and the highest rate where there are limits.

    Raises
    ------
    InputError : a request that the plan cannot hold.
    """
    if asked.find and asked.objectives:
        fastest_first(result, asked, route)
    plan = result.plans[0]
    deployment, speed = deployment_of(plan), speed_of(plan)
    found = None
    if asked.objectives and asked.open:
        brief = asked.count > SEARCHED and asked.trace is None
        few = replace(asked, count=SEARCHED, warmup=0) if brief else asked
        at = at_rates(plan, few, route)
        found = highest_rate(at, first_rate(plan, asked))
        if found.rate > 0.0 and found.missed > found.rate:
            paces = exp(speed.half), exp(-speed.half)
            low, high = (highest_rate(partial(at, pace=one), found.rate / one, COARSE).rate for one in paces)
            found = replace(found, ends=(min(low, found.rate), max(high, found.rate)))
    rate = found.rate if asked.find and found is not None and found.rate > 0.0 else asked.rate
    if rate is None and found is not None and asked.trace is None:
        rate = found.missed  # no rate keeps the limits: the lowest that was tried
    sure_of = sure_under_load(plan)
    seen = simulate(deployment, load_on(asked, deployment, rate, route), speed, sure_of)
    watts = _power(plan, seen)
    return Felt(
        asked=asked,
        result=result,
        simulation=seen,
        rate=rate,
        found=found,
        power=watts,
        cost=_cost(plan, seen),
        helps=helps(result, asked, rate, route),
    )


WORKING = 0.9
"""Share of time in steps from which power is told [1]."""


def _power(plan: Plan, seen: Simulation) -> Metric | None:
    """Return the mean power at the wall of a machine that is hardly ever idle; what it draws idle is not known [W]."""
    fit = plan.rates.fit
    if seen.served.busy < WORKING:
        return None
    term = wall_power(plan.machine, float(plan.prediction.busy) * seen.served.busy, fit)
    if term is None:
        return None
    return within(sure(POWER, "borrowed", Doubt(), fit).of(float(term.value), "W"), *power_limits(plan.machine, fit))


def _cost(plan: Plan, seen: Simulation) -> Metric | None:
    """Return the machine's cost over the output tokens at this load [USD/Mtoken]."""
    if plan.cost is None:
        return None
    value = plan.cost.total / units.HOUR / seen.output_tokens_per_second * 1e6
    low, high = plan.cost.range
    return Metric(value, value * low, value * high, "USD/Mtoken", plan.cost.grade)
