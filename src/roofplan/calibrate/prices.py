"""How far apart quotations of the same thing within half a year are: what stands behind the range of a single one."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from roofplan import catalogue
from roofplan.calibrate.fitting import entry, spread
from roofplan.economics.prices import RECENT_DAYS
from roofplan.records.prices import Price

POOLS = {
    "purchase": ("list", "street"),
    "rent-on-demand": ("rent-on-demand",),
    "rent-contract": ("rent-contract",),
    "spot": ("spot",),
}
"""Kinds of prices that are compared with each other."""

LEAST = 3
"""Quotations of a pool below which its median says nothing of the others [1]."""


def pools(kinds: tuple[str, ...]) -> list[list[Price]]:
    """Return quotations of one device, kind, instance size and term, each pool within half a year from its first; a provider's equal prices count once."""
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


def fit_prices() -> list[dict[str, Any]]:
    """Return, by kind of price, the shares of its pool's median that nineteen of twenty quotations exceed, and stay below."""
    out = []
    for name, kinds in POOLS.items():
        known = pools(kinds)
        ratios = [price.value / float(np.median([p.value for p in pool])) for pool in known for price in pool]
        if not ratios:
            continue
        note = f"{len(known)} pools of at least {LEAST} quotations within {RECENT_DAYS} days"
        for edge, percent in (("low", 5.0), ("high", 95.0)):
            value = float(np.percentile(ratios, percent))
            out.append(entry("price", edge, name, value, "1", spread(ratios), len(ratios), "the price book", note))
    return out
