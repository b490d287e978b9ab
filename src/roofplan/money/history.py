"""Prices of a FLOP and of a transistor over the years, and the sources of one device's gain over another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roofplan import catalogue
from roofplan.errors import InputError
from roofplan.laws import silicon
from roofplan.money.chip import CARD
from roofplan.money.uncertainty import Interval, student
from roofplan.records.hardware import Accelerator
from roofplan.records.prices import Price
from roofplan.records.source import Sourced

SOLD = ("list", "street", "estimate")
"""Kinds of purchase prices: of a device alone, or of its share of a server."""

NEAR_LAUNCH = 1.5
"""Years from the launch within which a price counts as the launch price [1]."""

WIDTHS = {"32 bits": ("fp32",), "16 bits": ("bf16", "fp16"), "8 bits": ("fp8", "int8"), "4 bits": ("fp4",)}
"""Dense rates that are compared, by bits of an operand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestone:
    """A device at its launch.

    Parameters
    ----------
    launched : launch year with its fraction [1].
    price : oldest price near the launch, of the card alone where one is known; else the oldest of all.
    late : whether no price near the launch is known, which excludes the device from trends.
    per_rate : price per dense rate, by bits of an operand [USD/(FLOP/s)].
    per_transistor : price per transistor, None where the count is not known [USD].
    """

    device: Accelerator
    launched: float
    price: Price
    per_rate: dict[str, float]
    per_transistor: float | None
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """An exponential trend of the price of a rate.

    Parameters
    ----------
    halving : years in which the price of a rate halves, with its 90% interval [1].
    devices : milestones that the trend is fitted to [1].
    spread : standard deviation of their logarithms about the trend [1].
    """

    halving: Interval
    devices: int
    spread: float


def year_of(text: str) -> float | None:
    """Return a date of year, month or day as a year with its fraction, None where it is not known.

    >>> year_of("2020-07"), year_of("")
    (2020.5, None)
    """
    parts = text.split("-")
    if not parts[0].isdigit():
        return None
    month = int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 7
    return int(parts[0]) + (month - 1) / 12.0


def rate_of(device: Accelerator, bits: str) -> Sourced | None:
    """Return the highest dense rate of a width, None where the device has none [FLOP/s]."""
    known = [device.peak[name] for name in WIDTHS[bits] if name in device.peak]
    return max(known, key=lambda one: one.value, default=None)


def years_between(launched: float, price: Price) -> float:
    """Return the years from a launch to the middle of the period that a price's date means [1]."""
    return price.middle.year + (price.middle.timetuple().tm_yday - 1) / 365.0 - launched


def milestones() -> list[Milestone]:
    """Return the catalogue's devices whose launch and price are known.

    Returns
    -------
    The devices at their launch, the oldest first.
    """
    found = []
    for name in catalogue.ids("accelerators"):
        device = catalogue.accelerator(name)
        sold = [p for p in catalogue.prices(name) if p.kind in SOLD and p.unit == "USD"]
        launched = year_of(device.launched)
        if not sold or launched is None:
            continue
        price = min(
            sold, key=lambda one: (abs(years_between(launched, one)) > NEAR_LAUNCH, one.scope != CARD, one.middle)
        )
        rates = {bits: rate_of(device, bits) for bits in WIDTHS}
        transistors = device.value("transistors")
        found.append(
            Milestone(
                device=device,
                launched=launched,
                price=price,
                per_rate={bits: price.value / rate.value for bits, rate in rates.items() if rate is not None},
                per_transistor=None if transistors is None else price.value / transistors,
                late=abs(years_between(launched, price)) > NEAR_LAUNCH,
            )
        )
    return sorted(found, key=lambda one: (one.launched, one.device.id))


CLASSES = ("datacenter", "workstation", "consumer")
"""Device classes, whose prices are set for different buyers."""

LEAST = 5
"""Fewest milestones that a trend is fitted to [1]."""


def fit_trend(found: Sequence[Milestone], bits: str, kind: str) -> Trend | None:
    """Fit an exponential to the price of a rate by launch date, over the devices of a class.

    Prices long after a launch do not count. Where the interval of the slope includes rising prices, its slowest halving is infinite.

    Parameters
    ----------
    found : milestones of all classes.
    bits : width of the rate, a key of `WIDTHS`.
    kind : device class, one of `CLASSES`.

    Returns
    -------
    The trend, None with fewer than `LEAST` milestones.
    """
    points = [
        (one.launched, math.log2(one.per_rate[bits]))
        for one in found
        if bits in one.per_rate and one.device.device_class == kind and not one.late
    ]
    if len(points) < LEAST:
        return None
    years, logs = (np.array(column) for column in zip(*points, strict=True))
    slope, start = np.polyfit(years, logs, 1)
    left = logs - (slope * years + start)
    deviation = math.sqrt(float(left @ left) / (len(points) - 2))
    error = student(len(points) - 2) * deviation / math.sqrt(float(np.sum((years - years.mean()) ** 2)))
    edges = [-1.0 / float(x) if x < 0.0 else math.inf for x in (slope - error, slope, slope + error)]
    return Trend(
        halving=Interval(low=edges[0], central=edges[1], high=edges[2], grade="calibrated"),
        devices=len(points),
        spread=deviation * math.log(2.0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Speed of one device relative to another, in factors.

    Parameters
    ----------
    years : years between their launches, None where one is not known [1].
    factors : factor by cause; their product is `whole` [1].
    whole : best rate of the new device, sparse where it has one, over that of the old [1].
    sources : sources of the numbers.
    """

    old: Accelerator
    new: Accelerator
    years: float | None
    factors: dict[str, float]
    whole: float
    sources: tuple[str, ...]


def gain(old: Accelerator, new: Accelerator) -> Gain:
    """Return the ratio of two devices' best rates as factors: transistors, clock and design, matrix units, precision and sparsity.

    Parameters
    ----------
    old : the device in the denominator.
    new : the device in the numerator.

    Returns
    -------
    The factors and their product [1].

    Raises
    ------
    InputError : a device whose transistors, vector rate or matrix rate are not known.
    """
    ladders = [_ladder(device) for device in (old, new)]
    names = ("transistors", "clock and design", "matrix units", "precision", "sparsity")
    factors = {name: after / before for name, before, after in zip(names, *ladders, strict=True)}
    dates = [year_of(device.launched) for device in (old, new)]
    return Gain(
        old=old,
        new=new,
        years=None if dates[0] is None or dates[1] is None else dates[1] - dates[0],
        factors=factors,
        whole=math.prod(factors.values()),
        sources=tuple(
            dict.fromkeys(
                item.source for device in (old, new) for item in (device.quantities["transistors"], device.peak["fp32"])
            )
        ),
    )


def _ladder(device: Accelerator) -> tuple[float, float, float, float, float]:
    """Return the transistors, the vector rate per transistor, and the factors from the vector rate to the device's best rate."""
    transistors, vector = device.quantities.get("transistors"), device.peak.get("fp32")
    matrix = rate_of(device, "16 bits")
    known = {"transistors": transistors, "fp32 rate": vector, "16-bit rate": matrix}
    missing = [name for name, found in known.items() if found is None]
    if transistors is None or vector is None or matrix is None:
        raise InputError(f"{device.id}: its {', '.join(missing)} not known", argument="--from", value=device.id)
    each = float(silicon.rate_of_a_transistor(vector.value, transistors.value))
    dense = max(rate.value for bits in WIDTHS if (rate := rate_of(device, bits)) is not None)
    best = max([dense, *(rate.value for rate in device.sparse.values())])
    return transistors.value, each, matrix.value / vector.value, dense / matrix.value, best / dense
