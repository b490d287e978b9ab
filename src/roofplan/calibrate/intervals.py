"""Intervals that were checked: how far predictions lie from runs of publishers that no constant saw.

References
----------
.. [1] J. Lei, M. G'Sell, A. Rinaldo, R. Tibshirani, L. Wasserman, "Distribution-free predictive inference for regression",
       JASA 113, 2018, section 5.2: conformal intervals in units of each prediction's own spread.
.. [2] R. F. Barber, E. Candes, A. Ramdas, R. Tibshirani, "Conformal prediction beyond exchangeability", Annals of Statistics 51, 2023:
       weights where rows are not alike.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roofplan.calibrate.fitting import entry
from roofplan.records.calibration import Fit
from roofplan.timing.figures import unseen
from roofplan.validation.rows import SHORT_OF_CACHE
from roofplan.validation.scoring import Outcome, pooled, weighted_quantile

COVERED = 0.9
"""Share of measurements that an interval is to hold [1]."""

LEAST_SOURCES = 9
"""Publishers of a job below which no coverage is claimed [1]."""


def by_job(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Return scored outcomes by job; runs short of cache are a test of the room for it, not of a throughput."""
    found: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        if one.predicted is not None and one.regime != SHORT_OF_CACHE:
            found[one.job].append(one)
    return dict(found)


def factor(by: dict[str, list[Outcome]]) -> float:
    """Return the spreads within which nine of ten measurements lie, every publisher weighing the same [1]."""
    distances = np.concatenate([[one.distance for one in rows] for rows in by.values()])
    weights = np.concatenate([np.full(len(rows), 1.0 / len(rows)) for rows in by.values()])
    return weighted_quantile(distances, weights, COVERED)


def fit_intervals(outcomes: Sequence[Outcome], fit: Fit) -> list[dict[str, Any]]:
    """Fit, per job, the factor between a prediction's spread and its 90% interval: normalised conformal [1]_, publishers weighted equally [2]_.

    `outcomes` are predictions of each publisher's runs by constants fitted without them, in intervals of `fit`.
    """
    out = []
    source = "runs of publishers left out of every fit, normalised conformal (Lei et al. 2018, section 5.2)"
    for job, found_by_job in sorted(by_job(outcomes).items()):
        rows, held = found_by_job, unseen(job, fit)
        if job == UNSEEN_JOB:
            rows, beyond = widened(found_by_job, held)
            out.append(entry("interval", f"{job}, unseen", "any", beyond, "1", 0.0, len(rows), source, UNSEEN_NOTE))
        by = pooled(rows)
        found = coverage(found_by_job, held)
        note = f"{len(by)} publishers; held {found.share:.0%} of each by the factor of the others"
        if len(by) < LEAST_SOURCES:
            note += f"; fewer than {LEAST_SOURCES}: no coverage is claimed"
        out.append(entry("interval", job, "any", factor(by), "1", 0.0, len(rows), source, note))
    note = "of a normal distribution: no publisher but one states power"
    return [*out, entry("interval", "power", "any", 1.645, "1", 0.0, 0, note, kind="definition")]


UNSEEN_JOB = "training step"
"""The job whose spreads are residuals of fits, which do not show how other models, machines and settings differ."""

UNSEEN_NOTE = "the error beside a fit's own residuals with which intervals hold as many measurements in every grade"


def widened(rows: Sequence[Outcome], held: float) -> tuple[list[Outcome], float]:
    """Return outcomes whose spreads hold what fits do not show, and how much that is: with what grades come nearest to one factor [1].

    Parameters
    ----------
    held : how much of it the spreads of `rows` hold already [1].
    """
    amounts = np.arange(0.0, MOST_UNSEEN, STEP_OF_UNSEEN).tolist()
    trials = {amount: _with_unseen(rows, amount, held) for amount in amounts}
    best = min(trials, key=lambda amount: _apart(trials[amount]))
    return trials[best], best


def _apart(rows: Sequence[Outcome]) -> float:
    """Return how far the factors lie apart that each grade would need for itself: the deviation of their logarithms [1]."""
    grades: dict[str, list[Outcome]] = defaultdict(list)
    for one in rows:
        if one.predicted is not None:
            grades[one.predicted.grade].append(one)
    return float(np.std([math.log(factor(pooled(found))) for found in grades.values()]))


MOST_UNSEEN, STEP_OF_UNSEEN = 0.3, 0.005
"""Where the search for it ends, and its steps [1]."""


def _with_unseen(rows: Sequence[Outcome], amount: float, held: float) -> list[Outcome]:
    """Return outcomes with another amount of what fits do not show in their spreads than they hold."""
    return [_spread_by(one, math.sqrt(max(one.spread**2 - held**2, 0.0) + amount**2)) for one in rows]


def _spread_by(one: Outcome, spread: float) -> Outcome:
    """Return an outcome with another spread of its prediction."""
    if one.predicted is None:
        return one
    wide = math.exp(spread * one.factor)
    value = one.predicted.value
    return replace(one, predicted=replace(one.predicted, low=value / wide, high=value * wide))


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Share of a publisher's measurements inside intervals whose factor the others gave, and its bounds over publishers drawn again [1]."""

    share: float
    low: float
    high: float
    sources: int
    width: float  # median of high over low [1]


REDRAWN = 2000
"""Times that publishers are drawn again for the bounds of a coverage [1]."""


def coverage(rows: Sequence[Outcome], held: float) -> Coverage:
    """Return how many measurements of each publisher lie inside intervals by the factor of the others.

    Parameters
    ----------
    held : how much of what fits do not show the spreads of `rows` hold [1].
    """
    by = pooled(rows)
    shares = []
    for source in by:
        mine, others = by[source], {name: found for name, found in by.items() if name != source} or by
        if mine[0].job == UNSEEN_JOB:
            # what fits do not show is told by the others too
            rest, beyond = widened([one for found in others.values() for one in found], held)
            mine, others = _with_unseen(mine, beyond, held), pooled(rest)
        limit = factor(others)
        shares.append(float(np.mean([one.distance <= limit for one in mine])))
    rng = np.random.default_rng(0)
    drawn = np.mean(rng.choice(shares, size=(REDRAWN, len(shares))), axis=1)
    whole = widened(rows, held)[0] if rows[0].job == UNSEEN_JOB else rows
    limit = factor(pooled(whole))
    widths = [math.exp(2.0 * limit * one.spread) for one in whole if one.predicted is not None]
    low, high = np.percentile(drawn, (5.0, 95.0))
    return Coverage(
        share=float(np.mean(shares)),
        low=float(low),
        high=float(high),
        sources=len(by),
        width=float(np.median(widths)),
    )
