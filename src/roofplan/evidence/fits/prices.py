"""Fit the spread of prices: how far quotations of the same item within half a year differ."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from roofplan import catalogue
from roofplan.evidence.fits.fitting import entry, spread
from roofplan.money.prices import RECENT_DAYS
from roofplan.money.uncertainty import student
from roofplan.records.calibration import Constant
from roofplan.records.prices import Price

POOLS = {
    "purchase": ("list", "street"),
    "rent-on-demand": ("rent-on-demand",),
    "rent-contract": ("rent-contract",),
    "spot": ("spot",),
}
"""Kinds of prices that are compared within a pool."""

LEAST = 3
"""Least number of quotations in a pool [1]."""


def pools(kinds: tuple[str, ...]) -> list[list[Price]]:
    """Return pools of quotations of one device, instance size and term within half a year; repeated prices of a provider count once."""
    books: dict[tuple[str, int | None, str], dict[tuple[str, float], Price]] = defaultdict(dict)
    for device in catalogue.ids("accelerators"):
        for price in catalogue.prices(device):
            if price.kind in kinds:
                books[device, price.count, price.term].setdefault((price.provider or price.date, price.value), price)
    found: list[list[Price]] = []
    for book in books.values():
        pool: list[Price] = []
        for price in sorted(book.values(), key=lambda one: one.middle):
            if pool and (price.middle - pool[0].middle).days > RECENT_DAYS:
                found.append(pool)
                pool = []
            pool.append(price)
        found.append(pool)
    return [pool for pool in found if len(pool) >= LEAST]


def others_over(pool: list[Price]) -> list[float]:
    """Return, for each quotation of a pool, the median of the others over it [1]."""
    values = [price.value for price in pool]
    return [float(np.median(values[:i] + values[i + 1 :])) / value for i, value in enumerate(values)]


LEAST_ROWS, LEAST_DEVICES = 20, 3
"""Quotations and devices from which a range uses percentiles; below, it uses a t distribution [1]."""


def fit_prices() -> list[Constant]:
    """Return, by kind of price, the multiples of a quotation between which 90% of the medians of the pool's others lie."""
    out = []
    for name, kinds in POOLS.items():
        known = pools(kinds)
        ratios = [ratio for pool in known for ratio in others_over(pool)]
        if not ratios:
            continue
        devices = len({pool[0].device for pool in known})
        note = f"{len(known)} pools of at least {LEAST} quotations of {devices} devices within {RECENT_DAYS} days, each against the median of the others"
        if len(ratios) >= LEAST_ROWS and devices >= LEAST_DEVICES:
            edges = [float(np.percentile(ratios, percent)) for percent in (5.0, 95.0)]
        else:
            edges = _widened(ratios)
            note += "; too few for percentiles: a t distribution of their logarithms"
        for edge, value in zip(("low", "high"), edges, strict=True):
            out.append(entry("price", edge, name, value, "1", spread(ratios), len(ratios), "the price book", note))
    return out


def _widened(ratios: list[float]) -> list[float]:
    """Return the bounds of 90% of further ratios, by a t distribution about one [1]."""
    logs = np.log(ratios)
    count = len(logs)
    width = float(student(count - 1) * np.sqrt(np.mean(logs**2) * count / (count - 1) * (1.0 + 1.0 / count)))
    return [float(np.exp(-width)), float(np.exp(width))]
