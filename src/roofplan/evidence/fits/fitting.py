"""Common parts of all fits: robust spread, least-distance fits, and writing of constants."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date
from typing import Literal

import numpy as np

from roofplan import catalogue
from roofplan.catalogue import codec
from roofplan.evidence.fits import hierarchy
from roofplan.evidence.fits.hierarchy import Block, Prior
from roofplan.evidence.predictions import names_in
from roofplan.records.calibration import Constant

Row = dict[str, str]


NOT_FOR_FITTING = frozenset({"nvidia-gap-runs"})
"""Publishers whose rows are never fitted: an end-to-end sample for comparing predictors. Their errors still set interval widths."""

Excluded = frozenset[str]
"""Names of an `Origin` whose rows a fit leaves out, besides those in `NOT_FOR_FITTING`."""


LEAST_ROWS = 3
"""Least number of rows for a scope to get a constant of its own."""


def spread(ratios: Iterable[float]) -> float:
    """Return the robust relative spread of ratios: 1.4826 times the median distance of their logarithms."""
    logs = np.log(np.asarray(list(ratios)))
    return float(1.4826 * np.median(np.abs(logs - np.median(logs)))) if len(logs) > 1 else 0.0


def entry(
    law: str,
    name: str,
    scope: str,
    value: float,
    unit: str,
    deviation: float,
    rows: int,
    source: str,
    note: str = "",
    kind: Literal["fit", "guess", "definition"] = "fit",
) -> Constant:
    """Return a constant as written to the catalogue: to four digits, with today's date."""
    return Constant(
        law=law,
        name=name,
        scope=scope,
        value=float(f"{value:.4g}"),
        unit=unit,
        spread=round(deviation, 4),
        rows=rows,
        fitted=date.today().isoformat(),
        source=source,
        note=note,
        kind=kind,
    )


def _scoped(values: dict[str, list[float]], law: str, name: str, source: str) -> list[Constant]:
    """Return a constant per architecture, the median of its rows, and one for any other, the median of those."""
    out = [
        entry(law, name, scope, float(np.median(found)), "1", spread(found), len(found), source)
        for scope, found in sorted(values.items())
    ]
    medians = [float(np.median(found)) for found in values.values()]
    every = [x for found in values.values() for x in found]
    return [
        *out,
        entry(
            law,
            name,
            "any",
            float(np.median(medians)),
            "1",
            spread(every),
            len(every),
            source,
            "median of the architectures",
        ),
    ]


def affine(rows: list[tuple[str, float, float]], start: float) -> tuple[float, dict[str, tuple[float, float, int]]]:
    """Return a common start-up time, and per scope the share of the ideal rate, its spread and rows: t = g + ideal / share.

    Rows are (scope, ideal seconds at the full rate, measured seconds). Given g, each scope's share is a median; g is
    chosen so that the logarithms of predicted over measured are nearest to zero.
    """
    scopes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for scope, ideal, time in rows:
        scopes[scope].append((ideal, time))

    def shares(gap: float) -> dict[str, float]:
        return {
            scope: float(np.median([min(1.0, ideal / max(time - gap, 0.05 * time)) for ideal, time in found]))
            for scope, found in scopes.items()
        }

    def errors(p: Sequence[float]) -> np.ndarray:
        share = shares(p[0])
        return np.log([(p[0] + ideal / share[scope]) / time for scope, ideal, time in rows])

    gap = nearest(errors, [start])[0]
    share = shares(gap)
    return gap, {
        scope: (share[scope], spread((gap + ideal / share[scope]) / time for ideal, time in found), len(found))
        for scope, found in scopes.items()
    }


def _affine_entries(
    rows: list[tuple[str, float, float]], start: float, law: str, name: str, source: str
) -> list[Constant]:
    gap, found = affine(rows, start)
    note = f"fitted with a start-up of {gap * 1e6:.1f} us common to all rows"
    out = [
        entry(law, name, scope, share, "1", deviation, count, source, note)
        for scope, (share, deviation, count) in sorted(found.items())
        if count >= LEAST_ROWS
    ]
    shares = [share for share, _, _ in found.values()]
    return [
        *out,
        entry(
            law,
            name,
            "any",
            float(np.median(shares)),
            "1",
            max(spread(shares), 0.05),
            len(rows),
            source,
            note + "; median of the architectures",
        ),
    ]


WIDE = 1.0
"""Prior spread of a number about the start of its search, one standard deviation of its logarithm, where nothing else is known [1]."""


def nearest(errors: Callable[[Sequence[float]], np.ndarray], start: Sequence[float]) -> list[float]:
    """Return the numbers that minimise errors, logarithms of predicted over measured, with a wide prior about the start [1]."""
    block = Block(
        numbers={str(place): (place,) for place in range(len(start))}, errors=lambda p: errors(list(p.values()))
    )
    found = hierarchy.fit([block], {place: Prior(math.log(value), WIDE) for place, value in enumerate(start)})
    return [found.number([place]) for place in range(len(start))]


ALIKE = 0.2
"""Distance of two numbers over their spread within which one replaces both; this raises the mean error of the other's rows by 2% of itself [1]."""


def merged(found: Iterable[Constant]) -> list[Constant]:
    """Return constants, merging those of other scopes with nearly the same value and no publishers of their own.

    >>> here, there = (entry("matmul", "highest", scope, 0.5, "1", 0.1, 9, "tables") for scope in ("Ada", "Hopper"))
    >>> [(one.scope, one.also) for one in merged([here, there])]
    [('Ada', ('Hopper',))]
    """
    out: list[Constant] = []
    for one in sorted(found, key=lambda one: -one.rows):
        near = (place for place, other in enumerate(out) if other.scope != ANY and _stands_for(other, one))
        place = None if one.scope == ANY else next(near, None)
        if place is None:
            out.append(one)
        else:
            out[place] = replace(out[place], also=tuple(sorted([*out[place].also, one.scope])))
    return sorted(out, key=lambda one: (one.law, one.name, one.scope == ANY, one.scope))


ANY = "any"
"""Scope of the fallback constant; it never replaces another, so that borrowed and measured values stay distinct."""


def _stands_for(other: Constant, one: Constant) -> bool:
    """Return whether a constant may replace one of another scope."""
    same = all(getattr(other, part) == getattr(one, part) for part in ("law", "name", "unit", "kind", "basis"))
    apart = abs(math.log(other.value / one.value)) if same else math.inf
    near = apart <= ALIKE * min(other.spread, one.spread)
    return near and other.spread <= 2.0 * one.spread + 1e-9 and names_in(one.source) <= names_in(other.source)


def write(name: str, constants: list[Constant]) -> None:
    """Write constants as a catalogue file."""
    (catalogue.ROOT / "measured" / f"fit-{name}.toml").write_text(codec.constants_text(constants))
