"""Hourly prices of machines, from dated quotes."""

from __future__ import annotations

import calendar
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

from roofplan import catalogue
from roofplan.money.uncertainty import Z90
from roofplan.records.calibration import Fit
from roofplan.records.hardware import Machine
from roofplan.records.prices import Price
from roofplan.records.source import GRADES, Sourced
from roofplan.timing.figures import Metric

PURCHASE = "purchase"
"""Kind under which the fit of quotes holds purchase prices, list and street."""

STALE_DAYS = 365
"""Age of a price beyond which it is marked, in days."""

KINDS = {"rent": "rent-on-demand", "contract": "rent-contract", "spot": "spot"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyCost:
    """Hourly cost of a machine and the quote behind it.

    Parameters
    ----------
    per_device : price of a device-hour [USD/h].
    count : devices [1].
    price : the quote.
    sure : grade where the cost follows from more than one quote, as for an owned machine.
    """

    per_device: float
    count: int
    price: Price
    sure: str = ""

    @property
    def grade(self) -> str:
        """Grade of the price: measured where the user gave it, calibrated where quoted within a year, else borrowed."""
        return self.sure or ("measured" if self.price.kind == "given" else "borrowed" if self.stale else "calibrated")

    @property
    def total(self) -> float:
        """Price of the machine [USD/h]."""
        return self.per_device * self.count

    @property
    def range(self) -> tuple[float, float]:
        """Bounds of the price over the price itself, 1 and 1 where it is a single number [1]."""
        value = self.price.value
        low = value if self.price.low is None else self.price.low
        high = value if self.price.high is None else self.price.high
        return low / value, high / value

    @property
    def stale(self) -> bool:
        """Whether the quote is older than a year."""
        return age_days(self.price.date) > STALE_DAYS


def stale_warning(what: str, dated: str) -> list[tuple[str, str]]:
    """Return the warning of a price older than a year.

    Parameters
    ----------
    what : thing that is priced, as the warning names it.
    dated : ISO date of the price, of year, month or day; empty for none.

    Returns
    -------
    The warning with its code, nothing for a younger price or one without a date.
    """
    return [("price_stale", f"the price of {what} is of {dated}")] if dated and age_days(dated) > STALE_DAYS else []


def warnings_of(cost: HourlyCost) -> list[tuple[str, str]]:
    """Return the warnings about an hourly cost: the age of its price, and the terms of owning.

    Parameters
    ----------
    cost : the hourly cost.

    Returns
    -------
    Pairs of code and warning.
    """
    out = []
    if cost.price.kind != "own" or cost.price.date != catalogue.version():
        out += stale_warning(f"{cost.price.device} ({cost.price.kind})", cost.price.date)
    if cost.price.kind == "own":
        out.append(("own_price", f"owned over {cost.price.note}"))
    return out


def age_days(text: str, today: date | None = None) -> int:
    """Return the least age that a date of year, month or day can mean.

    Parameters
    ----------
    text : ISO date of year, month or day.
    today : day that the age is counted to, None for the current day.

    Returns
    -------
    The age in days [1].

    Examples
    --------
    >>> age_days("2025", date(2026, 11, 21)), age_days("2025-10", date(2026, 10, 30))
    (325, 364)
    """
    full = text + {4: "-12-31", 7: "", 10: ""}[len(text)]
    if len(text) == len("2026-05"):
        full += f"-{calendar.monthrange(int(text[:4]), int(text[5:]))[1]}"
    return ((today or date.today()) - date.fromisoformat(full)).days


RECENT_DAYS = 180
"""Days before the newest quote of a pool within which others count as recent."""


def quotation(machine: Machine, kind: str) -> Price | None:
    """Return the rent of a kind for each device of a machine, None where there is none.

    All sizes of a device have one rent, so that a ranking compares machines and not quotes: the median of all quotes of the
    newest half year, whatever instance they are of, with the lowest and the highest as its bounds. For a named cloud instance
    only its provider's quotes count. Only quotes with the contract term of the newest are used, and never those of another
    kind.

    Parameters
    ----------
    machine : the machine.
    kind : ``rent``, ``contract`` or ``spot``.

    Returns
    -------
    The quote [USD/h], or None.
    """
    own = machine.device.quantities.get("price")
    if own is not None and kind == "rent":
        return given_price(machine, own.value, own.source)
    pool = [
        p
        for p in catalogue.prices(machine.device.id)
        if p.kind == KINDS[kind] and p.unit == "USD/h" and machine.provider in {"", p.provider}
    ]
    if not pool:
        return None
    term = max(pool, key=lambda p: p.middle).term
    return newest([p for p in pool if p.term == term])


def newest(pool: Sequence[Price]) -> Price:
    """Return the median quote of the newest half year, with the lowest and highest of them as its bounds."""
    first = max(p.middle for p in pool) - timedelta(days=RECENT_DAYS)
    near = [p for p in pool if p.middle >= first]
    found = middle_of(near)
    if len(near) == 1:
        return found
    low, high = min(p.low or p.value for p in near), max(p.high or p.value for p in near)
    return replace(found, low=min(low, found.value), high=max(high, found.value))


def middle_of(pool: Sequence[Price]) -> Price:
    """Return the median quote; of an even number, the newer of the middle two, or their mean where both are of the same date."""
    ranked = sorted(pool, key=lambda p: p.value)
    low, high = ranked[(len(ranked) - 1) // 2], ranked[len(ranked) // 2]
    if low.middle != high.middle:
        return max(low, high, key=lambda p: p.middle)
    if low.value == high.value:
        return low
    both = "; ".join(dict.fromkeys((low.source, high.source)))
    note = f"mean of {low.value:g} ({low.provider or 'market'}) and {high.value:g} ({high.provider or 'market'})"
    provider = low.provider if low.provider == high.provider else ""
    value = (low.value + high.value) / 2.0
    return replace(low, value=value, low=None, high=None, source=both, provider=provider, note=note)


def bounds(value: float, kind: str, fit: Fit) -> tuple[float | None, float | None]:
    """Return the bounds of nine in ten quotes of the same thing within half a year, none where a kind has too few quotes [the price's unit]."""
    low, high = (fit.get("price", edge, kind) for edge in ("low", "high"))
    return (None, None) if low is None or high is None else (low.value * value, high.value * value)


def bounded(price: Price, fit: Fit) -> Price:
    """Return a quote with bounds: its own where it has them, none where the user gave it, else those of its kind."""
    if price.low is not None or price.high is not None or price.kind == "given":
        return price
    low, high = bounds(price.value, PURCHASE if price.kind in {"list", "street"} else price.kind, fit)
    return replace(price, low=low, high=high)


def ranged(price: Price, fit: Fit) -> Sourced:
    """Return a quote with its bounds as an input of a cost."""
    price = bounded(price, fit)
    return Sourced(
        value=price.value,
        low=price.low,
        high=price.high,
        unit=price.unit,
        text=f"{price.value:g} {price.unit}",
        source=price.source,
        seen=price.date,
        kind="given" if price.kind == "given" else "quote",
        grade="borrowed" if price.kind != "given" and age_days(price.date) > STALE_DAYS else "",
    )


def given_price(machine: Machine, value: float, source: str) -> Price:
    """Return a price that the user states."""
    today = date.today().isoformat()
    return Price(device=machine.device.id, kind="given", value=value, unit="USD/h", date=today, source=source)


def at_price(speed: Metric, price: HourlyCost | None) -> Metric:
    """Return a cost whose grade and interval include those of the hourly price.

    Parameters
    ----------
    speed : the cost, with the grade and interval of the time alone.
    price : hourly price in that cost, None to leave the cost as it is.

    Returns
    -------
    The same value in the same unit, with the lower of both grades and the combined interval.
    """
    if price is None or not speed.value:
        return speed
    low, high = price.range
    up = math.hypot(math.log(speed.high / speed.value), math.log(high))
    down = math.hypot(math.log(speed.value / speed.low), math.log(low))
    grade = max(speed.grade, price.grade, key=GRADES.index)
    dearer = (("price", math.log(high) / Z90),) if high > 1.0 and speed.causes else ()
    low, high = speed.value * math.exp(-down), speed.value * math.exp(up)
    return replace(speed, low=low, high=high, grade=grade, causes=(*speed.causes, *dearer))
