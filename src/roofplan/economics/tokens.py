"""What a month's tokens cost: at an API, on rented machines, on machines of one's own, and where they break even."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field, replace

import numpy as np

from roofplan import catalogue
from roofplan.economics.machine import Owned
from roofplan.economics.prices import HourlyCost
from roofplan.economics.uncertainty import Interval
from roofplan.laws import cost, up
from roofplan.units import HOUR, MONTH

HOURS_OF_DAY = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """How many tokens a month, and how they come.

    Parameters
    ----------
    tokens : of a month, input and output [token].
    input, output : of a request [token].
    peak : highest demand of a day over its mean [1].
    autoscale : whether machines are let go in the quiet hours.
    """

    tokens: float
    input: float
    output: float
    peak: float = 1.0
    autoscale: bool = False

    @property
    def share(self) -> float:
        """Share of the tokens that are input [1]."""
        return self.input / (self.input + self.output)

    @property
    def output_rate(self) -> float:
        """Output tokens per second around the clock [1/s]."""
        return self.tokens * (1.0 - self.share) / MONTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """What the routes to a hosted model ask for a month's tokens.

    Parameters
    ----------
    routes : priced ones [1].
    input, output : medians [USD/Mtoken].
    monthly : of the cheapest route, of the medians, of the dearest [USD].
    date : newest of the list.
    """

    routes: int
    input: float
    output: float
    monthly: Interval
    cheapest: str
    dearest: str
    date: str
    source: str

    @property
    def blended(self) -> float:
        """Cost of a token at the medians [USD]."""
        return self.monthly.central


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """A month of machines that serve the demand.

    Parameters
    ----------
    kind : ``rent`` or ``own``.
    label : the plan on each of them.
    replicas : machines at the peak, and `mean`, over the day [1].
    capacity : output tokens per second of one, with its interval [1/s].
    busy : mean demand over what the machines of the day could give [1].
    monthly : cost, within the interval of the capacity [USD].
    """

    kind: str
    label: str
    machine: str
    devices: int
    hourly: HourlyCost
    replicas: float
    mean: float
    capacity: Interval
    busy: float
    monthly: Interval
    owned: Owned | None = None


@dataclass(slots=True, kw_only=True)
class TokenCosts:
    """What a month's tokens cost, and where it breaks even.

    Parameters
    ----------
    full : cost at full load of one machine, per million tokens, input, output and cached input [USD/Mtoken].
    energy : of a million output tokens at full load: ``kWh``, and ``gCO2`` where the place's mix is known.
    break_even : tokens of a month from which a rented machine costs less than the API's median, None where it never does [token].
    """

    model: str
    demand: Demand
    api: Api | None
    supplies: list[Supply] = field(default_factory=list)
    full: dict[str, Interval] = field(default_factory=dict)
    break_even: dict[str, float] = field(default_factory=dict)
    energy: dict[str, float] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def api_of(model: str, demand: Demand) -> Api | None:
    """Return what the listed routes to a model ask for a month's tokens, None where none is listed."""
    known = [entry for entry in catalogue.token_prices() if entry["model"] == model and float(entry["output"]) > 0.0]
    if not known:
        return None

    def month(entry_in: float, entry_out: float) -> float:
        each = cost.blended_price(entry_in / 1e6, entry_out / 1e6, demand.share)
        return float(each * demand.tokens)

    bills = sorted((month(float(e["input"]), float(e["output"])), str(e["route"])) for e in known)
    middle_in = statistics.median(float(e["input"]) for e in known)
    middle_out = statistics.median(float(e["output"]) for e in known)
    return Api(
        routes=len(known),
        input=middle_in,
        output=middle_out,
        monthly=Interval(low=bills[0][0], central=month(middle_in, middle_out), high=bills[-1][0]),
        cheapest=bills[0][1],
        dearest=bills[-1][1],
        date=max(str(e["date"]) for e in known),
        source=str(known[0]["source"]),
    )


def machines_needed(demand: Demand, capacity: float) -> tuple[float, float]:
    """Return the machines at the peak of a day, and on average over it: the same unless they are let go in the quiet hours [1]."""
    hours = np.arange(HOURS_OF_DAY)
    rates = cost.daily_rate(demand.output_rate, demand.peak, hours)
    needed = np.maximum(up(rates / capacity - NEARLY), 1.0)
    most = (
        float(needed.max())
        if demand.peak == 1.0
        else float(max(1.0, up(demand.output_rate * demand.peak / capacity - NEARLY)))
    )
    return most, float(needed.mean()) if demand.autoscale else most


NEARLY = 1e-9
"""Share of a machine by which a demand may exceed whole ones through rounding [1]."""

RELEASED = ("rent-on-demand", "spot")
"""Kinds of rent that end with the hour; contracts and machines of one's own are paid for whether they work or not."""


def supply(
    kind: str,
    demand: Demand,
    hourly: HourlyCost,
    capacity: Interval,
    *,
    label: str,
    machine: str,
    devices: int,
    owned: Owned | None = None,
) -> Supply:
    """Return a month of machines of one kind that serve a demand; what is bought is never let go."""
    served = demand if hourly.price.kind in RELEASED else replace(demand, autoscale=False)
    most, mean = machines_needed(served, capacity.central)
    low, high = (edge if edge is not None else hourly.per_device for edge in (hourly.price.low, hourly.price.high))
    bills = [
        monthly(rate * hourly.count, machines_needed(served, each)[1])
        for rate, each in ((low, capacity.high), (high, capacity.low))
    ]
    middle = monthly(hourly.total, mean)
    return Supply(
        kind=kind,
        label=label,
        machine=machine,
        devices=devices,
        hourly=hourly,
        replicas=most,
        mean=mean,
        capacity=capacity,
        busy=demand.output_rate / (mean * capacity.central),
        monthly=Interval(low=min(bills[0], middle), central=middle, high=max(bills[1], middle)),
        owned=owned,
    )


def monthly(rate: float, machines: float) -> float:
    """Return a month of machines at a rate by the hour [USD]."""
    return rate * machines * MONTH / HOUR


STEPS = 4000
"""Demands among which the break-even is looked for, from a thousandth of a machine's to a thousand machines' [1]."""


def break_even(found: Supply, api: Api, demand: Demand) -> float | None:
    """Return the least tokens of a month from which the machines that they need cost no more than the API's median, None where that never happens [token]."""
    tariff = api.blended / demand.tokens
    most = found.capacity.central * MONTH / (1.0 - demand.share)
    for volume in np.geomspace(most / 1000.0, most * 1000.0, STEPS):
        there = replace(
            demand, tokens=float(volume), autoscale=demand.autoscale and found.hourly.price.kind in RELEASED
        )
        bill = monthly(found.hourly.total, machines_needed(there, found.capacity.central)[1])
        if bill <= tariff * float(volume):
            return max(float(bill / tariff), float(volume) * STEP)
    return None


STEP: float = 1e6 ** (-1.0 / (STEPS - 1))
"""One step of them down [1]."""
