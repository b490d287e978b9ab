"""Cost of a month's tokens at an API, on rented machines and on owned machines, and where they break even."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from roofplan.laws import Number, cost, up
from roofplan.money.listed import Route, routes
from roofplan.money.machine import Owned
from roofplan.money.prices import STALE_DAYS, HourlyCost, age_days, ranged, warnings_of
from roofplan.money.uncertainty import Interval, Swing, Values, central, draws, interval, tornado
from roofplan.records.calibration import Fit
from roofplan.records.source import Sourced, document
from roofplan.records.terms import Term
from roofplan.records.units import HOUR, MONTH

HOURS_OF_DAY = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Token demand of a month and its daily variation.

    Parameters
    ----------
    tokens : input and output tokens of a month [token].
    input, output : tokens of a request [token].
    peak : highest demand of a day over its mean [1].
    autoscale : whether machines are released in quiet hours.
    utilisation : share of a machine's capacity that is planned with, at the peak [1].
    hit : share of the input that is found in a cache [1].
    """

    tokens: float
    input: float
    output: float
    peak: float = 1.0
    autoscale: bool = False
    utilisation: float = 1.0
    hit: float = 0.0

    @property
    def share(self) -> float:
        """Share of the tokens that are input [1]."""
        return self.input / (self.input + self.output)

    @property
    def use(self) -> float:
        """Mean share of its full load at which a machine runs over the day [1]."""
        return self.utilisation if self.autoscale else self.utilisation / self.peak

    @property
    def output_rate(self) -> float:
        """Mean output tokens per second [1/s]."""
        return self.tokens * (1.0 - self.share) / MONTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """Price of a month's tokens over the API routes to a hosted model.

    Parameters
    ----------
    routes : number of priced routes [1].
    input, output : median prices [USD/Mtoken].
    monthly : cost at the cheapest route, at the median prices, and at the dearest route [USD].
    date : newest date of the prices.
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
        """Monthly cost at the median prices [USD]."""
        return self.monthly.central


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """Least monthly tokens from which machines cost no more than the API's median price.

    Parameters
    ----------
    tokens : break-even at the central values of the inputs, None where there is none [token].
    low, high : bounds of nine in ten of those draws that break even [token].
    never : share of the draws that never break even [1].
    grade : grade of the least certain input that matters.
    """

    tokens: float | None
    low: float
    high: float
    never: float
    grade: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """Machines that serve the demand for a month.

    Parameters
    ----------
    kind : ``rent``, ``own``, or the kind of the rent.
    label : the plan on each machine.
    replicas : machines at the peak; `mean`, their mean over the day [1].
    capacity : output tokens per second of one machine, with its interval [1/s].
    busy : mean demand over the mean capacity of the machines [1].
    inputs : inputs of the cost by name, each with its range.
    term : monthly cost in parts, at the central values of the inputs [USD].
    monthly : monthly cost with its interval [USD]; `swings`, the effect of each input's range on it.
    even : break-even with the API, None without an API.
    over : the API's median price over the cost of a token on a full machine, None without an API [1].
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
    inputs: dict[str, Sourced]
    term: Term
    monthly: Interval
    swings: list[Swing]
    owned: Owned | None = None
    even: BreakEven | None = None
    over: Interval | None = None
    apart: Term | None = None

    @property
    def warnings(self) -> list[tuple[str, str]]:
        """Warnings about the prices, each with a code."""
        return self.owned.warnings if self.owned is not None else warnings_of(self.hourly)

    def month(self, demand: Demand) -> float:
        """Return the monthly cost of the machines for another demand [USD]."""
        return float(month_term(self.hourly, self.owned, _served(self.hourly, demand), central(self.inputs)).value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCosts:
    """Cost of a month's tokens, and where it breaks even.

    Parameters
    ----------
    paid : way of paying for the machine of `full`.
    full : cost on one machine at the stated share of full load, of input, output and cached input [USD/Mtoken].
    energy : energy of a million output tokens at full load: ``kWh``, and ``gCO2`` where the carbon intensity is known, each with bounds.
    warnings : warnings for the reader, each with a code.
    changes : what the plan changes of the model, such as its weight format.
    others : the same for other volumes, where several were asked for.
    """

    model: str
    demand: Demand
    api: Api | None
    paid: str = ""
    supplies: list[Supply] = field(default_factory=list)
    full: dict[str, Interval] = field(default_factory=dict)
    energy: dict[str, Interval] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    changes: str = ""
    others: list[TokenCosts] = field(default_factory=list)


def api_of(model: str, demand: Demand, given: Route | None = None) -> Api | None:
    """Return the price of a month's tokens over the routes to a model.

    Parameters
    ----------
    model : id of the model.
    demand : the token demand.
    given : route of the user's, which replaces the listed ones.

    Returns
    -------
    Median prices and monthly costs [USD], None where no route is listed.
    """
    known = [given] if given is not None else routes(model)
    if not known:
        return None

    def month(entry_in: float, entry_out: float) -> float:
        each = cost.blended_price(entry_in / 1e6, entry_out / 1e6, demand.share)
        return float(each * demand.tokens)

    bills = sorted((month(one.charged(demand.hit), one.output), one.name) for one in known)
    middle_in = statistics.median(one.charged(demand.hit) for one in known)
    middle_out = statistics.median(one.output for one in known)
    dated = max(one.date for one in known)
    sure = "measured" if given is not None else "borrowed" if age_days(dated) > STALE_DAYS else "calibrated"
    return Api(
        routes=len(known),
        input=middle_in,
        output=middle_out,
        monthly=Interval(low=bills[0][0], central=month(middle_in, middle_out), high=bills[-1][0], grade=sure),
        cheapest=bills[0][1],
        dearest=bills[-1][1],
        date=dated,
        source="; ".join(dict.fromkeys(one.source.split("; ")[0] for one in known)),
    )


def machines_needed(demand: Demand, capacity: Number) -> tuple[Number, Number]:
    """Return the machines at the peak of a day, and their mean over the day.

    Parameters
    ----------
    demand : the token demand.
    capacity : output tokens per second of one machine; may be an array of draws [1/s].

    Returns
    -------
    Both counts, of the shape of `capacity`; equal unless machines are released in quiet hours [1].
    """
    most = _whole(demand.output_rate * demand.peak / (capacity * demand.utilisation))
    if not demand.autoscale:
        return most, most
    hours = np.arange(HOURS_OF_DAY).reshape(HOURS_OF_DAY, *(1,) * np.ndim(capacity))
    rates = cost.daily_rate(demand.output_rate, demand.peak, hours)
    return most, np.mean(_whole(rates / (capacity * demand.utilisation)), axis=0)


def _whole(machines: Number) -> Number:
    """Return the machines rounded up, at least one [1]."""
    return np.maximum(up(machines - NEARLY), 1.0)


NEARLY = 1e-9
"""Share of a machine by which a demand may exceed a whole number of machines, for rounding errors [1]."""

RELEASED = ("rent-on-demand", "spot")
"""Kinds of rent that are paid by the hour of use; contracts and owned machines are paid for busy or idle."""

RENT, CAPACITY = "rent of a device", "output of a machine"
"""Names of the rent and of the tokens per second among the inputs."""


def supply(
    kind: str,
    demand: Demand,
    hourly: HourlyCost,
    capacity: Interval,
    fit: Fit,
    *,
    label: str,
    machine: str,
    devices: int,
    owned: Owned | None = None,
    api: Api | None = None,
    training: float | None = None,
) -> Supply:
    """Return the machines of one kind that serve a demand for a month, compared with the API.

    Only machines rented by the hour are released in quiet hours.

    Parameters
    ----------
    kind : ``rent``, ``own``, or the kind of the rent.
    demand : the token demand.
    hourly : hourly cost of a machine.
    capacity : output tokens per second of a machine, with its interval [1/s].
    fit : fitted constants, for the range of a rent.
    label : the plan on each machine.
    machine : name of the machine.
    devices : devices of a machine [1].
    owned : the owned machine, None where it is rented.
    api : price at the API, None for no comparison.
    training : training cost per token served, None where it is not known [USD].

    Returns
    -------
    The machines, their monthly cost with its interval [USD], and the break-even with the API.
    """
    served = _served(hourly, demand)
    prices = owned.inputs if owned is not None else {RENT: ranged(hourly.price, fit)}
    inputs = {**prices, CAPACITY: _measure(capacity)}
    at = central(inputs)

    def bill(values: Values) -> Number:
        return month_term(hourly, owned, served, values).value

    most, mean = (float(count) for count in machines_needed(served, capacity.central))
    found = Supply(
        kind=kind,
        label=label,
        machine=machine,
        devices=devices,
        hourly=hourly,
        replicas=most,
        mean=mean,
        capacity=capacity,
        busy=demand.output_rate / (mean * capacity.central),
        inputs=inputs,
        term=month_term(hourly, owned, served, at),
        monthly=interval(bill, inputs),
        swings=tornado(bill, inputs),
        owned=owned,
    )
    if api is None:
        return found
    tariff = api.blended / demand.tokens

    def over(values: Values) -> Number:
        return tariff / full_cost(hourly, owned, served, values).value

    dearer = interval(over, inputs)
    return replace(
        found,
        over=dearer,
        even=break_even(over, served, inputs, dearer.grade),
        apart=apart(tariff, full_cost(hourly, owned, served, at), served.use, training, api.source),
    )


def _served(hourly: HourlyCost, demand: Demand) -> Demand:
    """Return a demand as machines at a price serve it: only those rented by the hour are released."""
    return demand if hourly.price.kind in RELEASED else replace(demand, autoscale=False)


def _measure(capacity: Interval) -> Sourced:
    """Return the output rate of a machine as an input of its cost [1/s]."""
    return Sourced(
        value=capacity.central,
        low=capacity.low,
        high=capacity.high,
        unit="token/s",
        text=f"{capacity.central:g} token/s",
        source="roofplan",
        seen="",
        kind="derived",
        grade=capacity.grade,
    )


def hourly_of(hourly: HourlyCost, owned: Owned | None, values: Values) -> Term:
    """Return the hourly cost of a machine, in parts where it is owned [USD/h]."""
    if owned is not None:
        return owned.at(values)
    each = values[RENT]
    sources = (document(hourly.price.source),)
    return Term(
        RENT,
        each * hourly.count,
        "USD/h",
        text="{devices} x {each} USD/h",
        numbers={"devices": hourly.count, "each": each},
        sources=sources,
    )


def month_cost(rate: Number, machines: Number) -> Number:
    """Return the monthly cost of machines at an hourly cost [USD]."""
    return rate * machines * MONTH / HOUR


def month_term(hourly: HourlyCost, owned: Owned | None, demand: Demand, values: Values) -> Term:
    """Return the monthly cost of the machines that a demand needs; values may be arrays of draws [USD]."""
    machine = hourly_of(hourly, owned, values)
    count = machines_needed(demand, values[CAPACITY])[1]
    return Term(
        "a month",
        month_cost(machine.value, count),
        "USD",
        parts=[machine],
        combine="product",
        text="{machine} USD/h x {count} machines x 730 h, for {peak_rate} tok/s out at up to {capacity} each",
        numbers={
            "machine": machine.value,
            "count": count,
            "peak_rate": demand.output_rate * demand.peak,
            "capacity": values[CAPACITY] * demand.utilisation,
        },
    )


def full_cost(hourly: HourlyCost, owned: Owned | None, demand: Demand, values: Values) -> Term:
    """Return the cost of a token, input or output alike, on a machine that is always full [USD]."""
    machine = hourly_of(hourly, owned, values)
    rate = values[CAPACITY] / (1.0 - demand.share)
    return Term(
        "a token on a full machine",
        cost.per_token(machine.value / HOUR, rate),
        "USD",
        law="cost.per_token",
        parts=machine.parts or [machine],
        combine="product",
        text="{machine} USD/h / (3,600 s x {rate} tok/s in and out)",
        numbers={"machine": machine.value, "rate": rate},
    )


STEPS = 4000
"""Loads over which the break-even is searched, from a thousandth of a machine to a thousand machines [1]."""


def break_even(
    over: Callable[[Values], Number], demand: Demand, inputs: Mapping[str, Sourced], grade: str
) -> BreakEven:
    """Return where machines cost no more than the API's median price, with its range.

    `over`, of that `grade`, is the API's price over the cost of a token on a full machine. At a load of u machines, n(u) machines are
    paid for, so the break-even is the least u at which u x `over` >= n(u).
    """

    def tokens(values: Values) -> Number:
        load = break_even_load(demand, over(values))
        return load * values[CAPACITY] / (1.0 - demand.share) * MONTH

    middle = float(tokens(central(inputs)))
    found = np.asarray(tokens(draws(inputs)))
    happens = found[np.isfinite(found)]
    edges = np.percentile(happens, (5.0, 95.0)) if happens.size else (np.inf, np.inf)
    return BreakEven(
        tokens=middle if np.isfinite(middle) else None,
        low=min(float(edges[0]), middle),
        high=float(edges[1]) if not np.isfinite(middle) else max(float(edges[1]), middle),
        never=1.0 - happens.size / found.size,
        grade=grade,
    )


def break_even_load(demand: Demand, over: Number) -> Number:
    """Return the least load, in machines, from which machines are cheaper than the API; infinite where there is none [1].

    `over` is the API's price over the cost of a token on a full machine [1].
    """
    loads = np.geomspace(1e-3, 1e3, STEPS)
    unit = Demand(
        tokens=MONTH,
        input=0.0,
        output=1.0,
        peak=demand.peak,
        autoscale=demand.autoscale,
        utilisation=demand.utilisation,
    )
    paid = machines_needed(unit, 1.0 / loads)[1]  # one token per second on machines of 1/u is a load of u
    reached = np.maximum.accumulate(loads / paid)
    place = np.searchsorted(reached, 1.0 / np.asarray(over))
    inside = np.minimum(place, STEPS - 1)
    # the paid machines are constant between two loads: the exact load is where their cost equals the API's
    exact = np.maximum(paid[inside] / over, loads[inside] * (loads[0] / loads[1]))
    return np.where(place < STEPS, exact, np.inf)


def apart(tariff: float, full: Term, utilisation: float, training: float | None, source: str) -> Term:
    """Return the API's price of a token as the cost on a full machine, idle time, training, and the rest [USD/Mtoken]."""
    whole = float(full.value) * 1e6
    hourly = sum(float(part.value) for part in full.parts)
    parts = [
        Term(
            part.name,
            whole * float(part.value) / hourly,
            "USD/Mtok",
            text="{part} of {hourly} USD/h",
            numbers={"part": part.value, "hourly": hourly},
            sources=part.sources,
        )
        for part in full.parts
    ]
    if utilisation < 1.0:
        idle = float(cost.idle_cost(whole, utilisation))
        parts.append(
            Term(
                "idle",
                idle,
                "USD/Mtok",
                law="cost.idle_cost",
                text="used {utilisation}",
                numbers={"utilisation": utilisation},
            )
        )
    if training is not None:
        parts.append(
            Term(
                "training",
                training * 1e6,
                "USD/Mtok",
                text="its cost over the tokens that it serves",
                sources=(document("given"),),
            )
        )
    rest = tariff * 1e6 - sum(float(part.value) for part in parts)
    words = "what is left" if training is not None else "what is left, training in it"
    parts.append(Term("rest", rest, "USD/Mtok", text=words + ": research, staff, margin"))
    return Term("API", tariff * 1e6, "USD/Mtok", parts=parts, combine="sum", sources=(document(source),))
