"""What the tokens of a pool cost its members: electricity and wear, beside an API's price."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from roofplan import catalogue
from roofplan.laws import batching
from roofplan.money.listed import routes
from roofplan.pool.costs import decoding, problem_of
from roofplan.pool.layout import Layout
from roofplan.pool.request import PoolRequest
from roofplan.records.calibration import Fit
from roofplan.records.prices import Price
from roofplan.timing.figures import Metric
from roofplan.timing.power import power_limits, wall_power

SOLD = frozenset({"list", "street"})
"""Kinds of prices at which cards are bought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What a pool's tokens cost.

    Parameters
    ----------
    watts : power of each member with a part, by its index [W].
    power : of all of them, with its interval [W].
    electricity, wear : of a million output tokens [USD/Mtoken]; None where no price is known.
    unpriced : cards without a known price.
    bare : whether the rest of the members' machines is not in the power.
    api : median of the listed prices of output tokens [USD/Mtoken], None where none is listed.
    """

    watts: dict[int, float]
    power: Metric
    electricity: Metric | None
    wear: Metric | None
    unpriced: tuple[str, ...]
    bare: bool
    api: float | None


def bill(
    request: PoolRequest,
    fit: Fit,
    layout: Layout,
    users: int,
    batch: float,
    rate: Metric,
    prompts: Mapping[int, float],
) -> Bill | None:
    """Return what a pool's tokens cost its members.

    Members draw power all the time in which the pool serves, more where they compute. A card wears by its price over its
    life, whether it is busy or not.

    Parameters
    ----------
    request : the pool.
    fit : the fitted constants.
    layout : who holds which layers.
    users, batch : users at once, and of a batch [1].
    rate : tokens a second of them all [1/s].
    prompts : for how long a prompt occupies each member [s].

    Returns
    -------
    The bill, None where the power of a card is not known.
    """
    problem = problem_of(request, fit, batch=batch, users=users, step=decoding(request.workload, batch))
    watts: dict[int, float] = {}
    low = high = 0.0
    for member in layout.used:
        card = request.machines[member]
        spent = sum(float(problem.layer[member, s.first : s.end].sum()) for s in layout.stages if s.member == member)
        spent += float(problem.head[member]) if member == layout.head else 0.0
        each = float(batching.cycle_time(prompts.get(member, 0.0), spent / batch, request.workload.output))
        power = wall_power(card, min(1.0, rate.value * each), fit)
        if power is None:
            return None
        watts[member] = float(power.value)
        least, most = power_limits(card, fit)
        low, high = low + least, high + most
    whole = sum(watts.values())
    draw = Metric(whole, min(low, whole), max(high, whole), "W", "borrowed")
    tariff = request.tariff
    prices = {m: tariff.value if (own := request.members[m].electricity) is None else own for m in watts}
    spread = [ends if ends is not None else tariff.value for ends in (tariff.low, tariff.high)]
    paid = sum(watts[m] * prices[m] for m in watts)
    return Bill(
        watts=watts,
        power=draw,
        electricity=_per_million(
            paid,
            rate,
            (low / whole * _ratio(spread[0], tariff.value, min), high / whole * _ratio(spread[1], tariff.value, max)),
        ),
        wear=_wear(request, layout, rate),
        unpriced=tuple(dict.fromkeys(d.id for m in watts if _bought((d := request.members[m].device).id) is None)),
        bare=any(request.machines[m].box is None for m in watts),
        api=_listed(request),
    )


def _ratio(end: float, price: float, which: Callable[[float, float], float]) -> float:
    """Return an end of a price by the price, no nearer than 1; 1 where electricity is free [1]."""
    return which(1.0, end / price) if price else 1.0


def _per_million(dollars: float, rate: Metric, ends: tuple[float, float]) -> Metric:
    """Return the cost of a million tokens of so many dollars a second, which lie between two factors of themselves."""
    return Metric(
        1e6 * dollars / rate.value,
        1e6 * dollars * ends[0] / rate.high,
        1e6 * dollars * ends[1] / rate.low,
        "USD/Mtoken",
        rate.grade,
    )


def _wear(request: PoolRequest, layout: Layout, rate: Metric) -> Metric | None:
    life = catalogue.pools().assumed["life"]
    known = [_bought(request.members[m].device.id) for m in layout.used]
    if any(one is None for one in known):
        return None
    dollars = sum(one.value for one in known if one is not None) / life.value
    return _per_million(dollars, rate, (life.value / (life.high or life.value), life.value / (life.low or life.value)))


def _bought(device: str) -> Price | None:
    """Return the newest price at which a card is sold, None where none is known."""
    found = [one for one in catalogue.prices(device) if one.kind in SOLD and one.unit == "USD"]
    return max(found, key=lambda one: one.date, default=None)


def _listed(request: PoolRequest) -> float | None:
    """Return the median listed price of the model's output tokens, None where none is listed [USD/Mtoken]."""
    found = [one.output for one in routes(request.model.id)]
    return statistics.median(found) if found else None
