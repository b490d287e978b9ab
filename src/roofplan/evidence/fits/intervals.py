"""Calibrated prediction intervals: causes of error, their sizes, and coverage on runs left out of the fits.

The spread of a prediction is the root sum of squares of its causes of error (`timing.figures.causes`). Their sizes maximise the
likelihood of left-out errors. The factor is the number of spreads that contains 90% of the errors of a new publisher.

References
----------
.. [1] J. Lei, M. G'Sell, A. Rinaldo, R. Tibshirani, L. Wasserman, "Distribution-free predictive inference for regression",
       JASA 113, 2018, section 5.2: conformal intervals in units of each prediction's own spread.
.. [2] R. F. Barber, E. Candes, A. Ramdas, R. Tibshirani, "Conformal prediction beyond exchangeability", Annals of Statistics 51, 2023:
       weights where rows are not alike.
.. [3] H. Zhou, L. Hu, J. Zhou, K. Lange, "MM algorithms for variance components models", Journal of Computational and Graphical
       Statistics 28, 2019: multiplicative steps that keep variances positive.
.. [4] R. Dunn, L. Wasserman, A. Ramdas, "Distribution-free prediction sets for two-layer hierarchical models", JASA 118, 2023.
.. [5] T. Gneiting, A. Raftery, "Strictly proper scoring rules, prediction, and estimation", JASA 102, 2007, section 6.2: interval score.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from roofplan.evidence.fits.fitting import entry
from roofplan.evidence.rows import SHORT_OF_CACHE
from roofplan.evidence.scoring import Outcome, outcomes_by_source, weighted_quantile
from roofplan.money.uncertainty import student
from roofplan.records.calibration import Constant, Fit
from roofplan.timing.figures import (
    BASE,
    CONSTANTS,
    FRONT,
    LOADS,
    MULTIPLES,
    NEW,
    NEW_KIND,
    POWER,
    PUBLISHERS,
    SWING,
    TRAITS,
    Doubt,
)

COVERED = 0.9
"""Nominal coverage of an interval [1]."""

LEAST_SOURCES = 10
"""Publishers of a figure below which no coverage is claimed and Student's t sets the least width [1]."""

PUBLISHER = "publisher"
MEMBER: dict[str, Callable[[Outcome], str]] = {
    PUBLISHER: lambda one: one.source,
    "chip": lambda one: one.chip,
    "system": lambda one: str(one.system),
    "architecture": lambda one: one.system.architecture if one.system else "",
    "software": lambda one: one.system.software if one.system else "",
}
"""What is left out of every fit in turn, and the member of each that an outcome belongs to."""

AXES = (PUBLISHER, "system", "architecture", "software")
"""Axes by which intervals are judged."""

Sizes = Mapping[str, float]
"""Causes of error by name, each with its size [1]."""


def by_figure(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Return scored outcomes by figure, without runs limited by KV cache capacity, which test that capacity."""
    found: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        if one.predicted is not None and one.regime != SHORT_OF_CACHE:
            found[one.figure].append(one)
    return dict(found)


def _doubt(one: Outcome) -> Doubt:
    doubt = one.predicted.doubt if one.predicted is not None else None
    return doubt or Doubt()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OutcomeArrays:
    """Outcomes as arrays, one element each.

    Parameters
    ----------
    errors : absolute logarithms of predicted over measured [1].
    assumed : variances from assumed inputs [1].
    causes : squared multiple of each cause's size, causes x outcomes, for a user, who is never one of the publishers [1].
    unseen : whether its publisher was left out.
    sources, systems : number of its publisher, and of its system at that publisher [1].
    members : number of the member of each other axis that it was left out with, -1 where it was not, axes x outcomes [1].
    """

    errors: np.ndarray
    assumed: np.ndarray
    causes: np.ndarray
    unseen: np.ndarray
    sources: np.ndarray
    systems: np.ndarray
    members: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Outcome]) -> OutcomeArrays:
        """Return outcomes as arrays."""
        doubts = [_doubt(one) for one in rows]
        new, load = np.array([one.new for one in doubts]), np.array([one.load for one in doubts])
        causes = {
            BASE: np.ones(len(rows)),
            PUBLISHERS: np.ones(len(rows)),
            CONSTANTS: np.array([one.constants for one in doubts]) ** 2,
            SWING: np.array([one.swing for one in doubts]) ** 2,
            FRONT: np.array([one.front for one in doubts]) ** 2,
            NEW: new != "",
            NEW_KIND: new == "kind",
            **{name: load == name for name in LOADS},
            **{trait: np.array([trait in one.traits for one in doubts]) for trait in TRAITS},
        }
        return cls(
            errors=np.abs([math.log(one.ratio) for one in rows]),
            assumed=np.array([sum(size**2 for _, size in one.assumed) for one in doubts], float),
            causes=np.array([causes[name] for name in CAUSES], float),
            unseen=np.array([one.left_out == PUBLISHER for one in rows], bool),
            sources=_numbered([one.source for one in rows]),
            systems=_numbered([(one.source, one.system) for one in rows]),
            members=np.array([_left_out_with(axis, rows) for axis in AXES[1:]], int),
        )

    def kept(self, which: np.ndarray) -> OutcomeArrays:
        """Return the outcomes at which `which` is true."""
        return OutcomeArrays(**{one.name: getattr(self, one.name)[..., which] for one in fields(self)})

    def weights(self) -> np.ndarray:
        """Return the weight of each outcome: equal per publisher, then per system of a publisher, then per run of a system [2]_."""
        systems, first, runs = np.unique(self.systems, return_index=True, return_counts=True)
        many = np.bincount(self.sources[first], minlength=1)
        place = np.searchsorted(systems, self.systems)
        out = 1.0 / (many[self.sources] * runs[place])
        weights: np.ndarray = out / np.sum(out)
        return weights

    def publishers(self) -> int:
        """Return how many publishers there are."""
        return len(np.unique(self.sources))

    def spreads(self, sizes: Sizes) -> np.ndarray:
        """Return the spreads of predictions, as for a user, from the sizes of their causes [1]."""
        out: np.ndarray = np.sqrt(self.assumed + np.array([sizes.get(name, 0.0) for name in CAUSES]) ** 2 @ self.causes)
        return out


CAUSES = (BASE, PUBLISHERS, CONSTANTS, NEW, NEW_KIND, *LOADS, SWING, FRONT, *TRAITS)
"""Causes of error with learned sizes."""


def _left_out_with(axis: str, rows: Sequence[Outcome]) -> np.ndarray:
    """Return the number of the member of an axis that each outcome was left out with, -1 where it was left out otherwise."""
    numbers = _numbered([MEMBER[axis](one) for one in rows])
    return np.where([one.left_out == axis for one in rows], numbers, -1)


def _numbered(names: Sequence[Hashable]) -> np.ndarray:
    """Return the number of each name, alike for alike ones, in the order of first use."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], int)


EXPECTED = {
    BASE: 0.5,
    PUBLISHERS: 0.5,
    NEW: 0.7,
    NEW_KIND: 0.7,
    "clients": 0.7,
    "queue": 1.0,
    **dict.fromkeys(TRAITS, 0.7),
}
"""Prior sizes of causes, over the mean size of all errors; a guess. The prior multiple of the constants' own spread is one [1]."""

TRUST = 0.25
"""Weight of that prior, in publishers [1]."""

ROUNDS, STILL = 1000, 1e-4
"""Limit on steps of the search for the sizes of causes, and the relative change of all sizes below which it ends [1]."""


def sizes_of(outcomes: OutcomeArrays, start: Sizes | None = None) -> Sizes:
    """Return the most likely sizes of the causes of left-out errors, for causes that occur in some outcome.

    Errors in units of their spread follow a Laplace distribution, so that outliers count less than under a normal one. Each step
    multiplies a variance by the root of observed over expected [3]_. The difference between publishers is identified by runs that
    were left out for other reasons, while other runs of their publishers stayed in the fits.

    Parameters
    ----------
    outcomes : left-out errors, not all of them zero.
    start : where the search starts.
    """
    squares = np.where(
        np.array([[name == PUBLISHERS] for name in CAUSES]), outcomes.causes * outcomes.unseen, outcomes.causes
    )
    occur = np.any(squares, axis=1)
    causes, squares = [name for name, some in zip(CAUSES, occur, strict=True) if some], squares[occur]
    errors, weights, fixed = math.sqrt(2.0) * outcomes.errors, outcomes.weights(), outcomes.assumed
    level, trust = float(np.average(errors, weights=weights)), TRUST / outcomes.publishers()
    guessed = {name: EXPECTED.get(name, 0.0) * level if name not in MULTIPLES else 1.0 for name in causes}
    sizes = {**guessed, **(start or {})}
    prior = np.array([*guessed.values()])
    variances = np.array([sizes[name] for name in causes]) ** 2
    with np.errstate(divide="raise", invalid="raise"):
        for _ in range(ROUNDS):
            spread, alone = np.sqrt(fixed + variances @ squares), np.sqrt(variances)
            said = squares @ (weights * errors / spread**3) + trust * prior / alone**3
            usual = squares @ (weights / spread**2) + trust / alone**2
            steps = np.sqrt(said / usual)
            variances = variances * steps
            if np.all(np.abs(steps - 1.0) < STILL):
                break
    return dict(zip(causes, np.sqrt(variances).tolist(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Width:
    """Width of the intervals of a figure.

    Parameters
    ----------
    sizes : sizes of the causes of error [1].
    factor : number of spreads that contains 90% of errors, publishers weighted equally [1].
    """

    sizes: Sizes
    factor: float

    def halves(self, outcomes: OutcomeArrays) -> np.ndarray:
        """Return the half-width of each interval, in logarithms [1]."""
        return self.factor * outcomes.spreads(self.sizes)


EXPECTATION = 20.0
"""Publishers of a blind test that count as much as the expectation that it misses no more than left-out runs do, a guess [1]."""


def beyond_left_out(blind: Sequence[Mapping[str, str]], figure: str) -> float:
    """Return how many times as wide intervals must be for runs that nobody had seen, at least one [1].

    It is the multiple of their intervals' halves that contains 90% of a blind test's errors, publishers weighted equally,
    shrunk towards one by the number of publishers: leaving out publishers promises too much, since readings, laws and
    defaults were made with their runs in sight.

    Parameters
    ----------
    blind : rows of a blind test, as `roofplan.catalogue.blind_rows` gives them.
    figure : name of a predicted figure, such as ``time per token``.
    """
    distances: dict[str, list[float]] = defaultdict(list)
    for row in blind:
        if row["figure"] == figure:
            measured, predicted, low, high = (float(row[name]) for name in ("measured", "predicted", "low", "high"))
            half = max(math.log(high / predicted), math.log(predicted / low))  # either end may be cut
            distances[row["source"]].append(abs(math.log(measured / predicted)) / half)
    if not distances:
        return 1.0
    weights = np.concatenate([np.full(len(mine), 1.0 / len(mine)) for mine in distances.values()])
    multiple = weighted_quantile(np.concatenate([np.array(mine) for mine in distances.values()]), weights, COVERED)
    trust = len(distances) / (len(distances) + EXPECTATION)
    return math.exp(trust * math.log(max(1.0, multiple)))


def width_of(rows: Sequence[Outcome], groups: Sequence[Outcome] = (), wider: float = 1.0) -> Width:
    """Return the width of intervals that cover 90% of left-out errors; few publishers require at least Student's t.

    The factor is increased until it also covers publishers from the factor that the others give, and nearly as many errors of
    systems, architectures and software left out of the fits.

    Parameters
    ----------
    rows : outcomes with their publisher left out of the fits.
    groups : outcomes with something else left out, which separate the causes.
    wider : multiple of the factor that a blind test asks for [1].
    """
    return _width(OutcomeArrays.of([*rows, *groups]), _least(rows), wider)


def _width(outcomes: OutcomeArrays, least: float, wider: float, start: Sizes | None = None) -> Width:
    """Return the width of intervals, as `width_of` does; the factor is at least `least`, and the search for sizes begins at `start`."""
    sizes = sizes_of(outcomes, start)
    rows = outcomes.kept(outcomes.unseen)
    distances, weights = rows.errors / rows.spreads(sizes), rows.weights()
    # in units of the factor that the others give
    beyond = np.zeros(len(distances))
    for number in np.unique(rows.sources):
        own = rows.sources == number
        others = ~own if not own.all() else own
        beyond[own] = distances[own] / weighted_quantile(distances[others], weights[others], COVERED)
    factor = weighted_quantile(distances, weights, COVERED)
    more = max(1.0, weighted_quantile(beyond, weights, COVERED))
    return Width(sizes=sizes, factor=wider * max(factor * more, least, *_factors_of_groups(outcomes, sizes)))


ELSEWHERE = 0.87
"""Least coverage for each way in which a question may be new besides its publisher [1]."""

LEAST_MEMBERS = 5
"""Least number of systems, architectures or software for them to affect the width [1]."""


def _factors_of_groups(outcomes: OutcomeArrays, sizes: Sizes) -> Iterator[float]:
    """Yield, per axis, the number of spreads that covers the share `ELSEWHERE`, members weighted equally; axes of few members give none."""
    distances = outcomes.errors / outcomes.spreads(sizes)
    for members in outcomes.members:
        left = members >= 0
        _, places, runs = np.unique(members[left], return_inverse=True, return_counts=True)
        if len(runs) >= LEAST_MEMBERS:
            yield weighted_quantile(distances[left], 1.0 / runs[places], ELSEWHERE)


def _least(rows: Sequence[Outcome]) -> float:
    """Return the least factor for the number of publishers: Student's t for few, zero for many [1]."""
    count = len(outcomes_by_source(rows))
    return student(max(1.0, count - 1.0)) if count < LEAST_SOURCES else 0.0


def judged(
    rows: Sequence[Outcome],
    groups: Sequence[Outcome],
    axis: str = PUBLISHER,
    blind: Sequence[Mapping[str, str]] = (),
) -> list[tuple[list[Outcome], Width]]:
    """Return the outcomes of each member of an axis, with the width learned from all other members and a blind test without them.

    `rows` are predicted with their publisher left out, `groups` with their chip, system, architecture or software left out.
    """
    of, both = MEMBER[axis], [*rows, *groups]
    every, member = OutcomeArrays.of(both), np.array([of(one) for one in both])
    start = sizes_of(every)
    left_out = list(rows) if axis == PUBLISHER else [one for one in groups if one.left_out == axis]
    out = []
    for name, found in _members(left_out, of).items():
        others = every.kept(member != name)
        if np.any(others.unseen):
            unseen = [row for row in blind if axis != PUBLISHER or row["source"] != name]
            width = _width(others, _least(rows), beyond_left_out(unseen, found[0].figure), start)
            out.append((found, width))
    return out


def _members(rows: Sequence[Outcome], of: Callable[[Outcome], str]) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = defaultdict(list)
    for one in rows:
        found[of(one)].append(one)
    return dict(found)


def guaranteed(rows: Sequence[Outcome], width: Width) -> float:
    """Return the factor that covers 90% of measurements of a new publisher by ranks alone, infinite for fewer than nine [4]_.

    It has the form of the theorem, which requires that spreads were not learned from the same runs.
    """
    by = outcomes_by_source(rows)
    several = [OutcomeArrays.of(mine) for mine in by.values()]
    distances = np.concatenate([one.errors / one.spreads(width.sizes) for one in several])
    weights = np.concatenate([np.full(len(mine), 1.0 / len(mine) / (len(by) + 1)) for mine in by.values()])
    share = COVERED * (len(by) + 1) / len(by)
    return weighted_quantile(distances, weights, share) if share <= 1.0 else math.inf


def fit_intervals(
    outcomes: Sequence[Outcome], groups: Sequence[Outcome], fit: Fit, blind: Sequence[Mapping[str, str]] = ()
) -> list[Constant]:
    """Fit, per figure, the sizes of the causes of error and the factor of a 90% interval: normalised conformal [1]_.

    Parameters
    ----------
    outcomes : predictions of each publisher's runs by constants fitted without them.
    groups : the same with each chip, system, architecture and software left out.
    blind : rows of a blind test, which may widen intervals.
    """
    out = []
    source = "runs of publishers, chips, systems, architectures and software left out of every fit"
    beside = by_figure(groups)
    for figure, rows in sorted(by_figure(outcomes).items()):
        wider, count = beyond_left_out(blind, figure), len(outcomes_by_source(rows))
        width = width_of(rows, beside.get(figure, []), wider=wider)
        few = (
            f"; fewer than {LEAST_SOURCES}: at least Student's t, no coverage is claimed"
            if count < LEAST_SOURCES
            else ""
        )
        more = f"; {wider:.2f} times as wide, as the last blind test asks" if wider > 1.0 else ""
        out += [
            entry("spread", f"{figure}, {name}", "any", size, "1", 0.0, len(rows), source)
            for name, size in width.sizes.items()
        ]
        out.append(
            entry(
                "interval", figure, "any", width.factor, "1", 0.0, len(rows), source, f"{count} publishers{few}{more}"
            )
        )
    watts = max(item.spread for item in fit.constants if item.law == "power")
    said = "as the constants of its law spread: no publisher but one states power"
    note = "of a normal distribution: no publisher but one states power"
    return [
        *out,
        entry("spread", f"{POWER}, {BASE}", "any", watts, "1", 0.0, 0, said, kind="definition"),
        entry("interval", POWER, "any", 1.645, "1", 0.0, 0, note, kind="definition"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Coverage of intervals learned from other members, with its bootstrap bounds, width and score [1].

    Parameters
    ----------
    members : number of members left out in turn.
    width : median of high over low.
    score : logarithmic interval score, lower is better [5]_.
    """

    share: float
    low: float
    high: float
    members: int
    rows: int
    width: float
    score: float


REDRAWN = 2000
"""Bootstrap samples of members [1]."""


def redrawn(values: Sequence[float], statistic: Callable[..., np.ndarray]) -> tuple[float, float]:
    """Return the 90% bootstrap bounds of a statistic over the values of members, `statistic` being numpy's mean or median."""
    drawn = np.random.default_rng(0).choice(values, size=(REDRAWN, len(values)))
    low, high = np.percentile(statistic(drawn, axis=1), (5.0, 95.0))
    return float(low), float(high)


def coverage(
    judged: Sequence[tuple[list[Outcome], Width]], keep: Callable[[Outcome], bool] = lambda _: True
) -> Coverage | None:
    """Return the coverage of outcomes with widths learned from other members, None where no outcome is kept."""
    found = [([one for one in rows if keep(one)], width) for rows, width in judged]
    found = [(rows, width) for rows, width in found if rows]
    if not found:
        return None
    shares, widths, scores = [], [], []
    for rows, width in found:
        outcomes = OutcomeArrays.of(rows)
        halves, weights = width.halves(outcomes), outcomes.weights()
        misses = np.maximum(outcomes.errors - halves, 0.0)
        shares.append(float(np.average(outcomes.errors <= halves, weights=weights)))
        widths += np.exp(2.0 * halves).tolist()
        scores.append(float(np.average(2.0 * halves + 2.0 / (1.0 - COVERED) * misses, weights=weights)))
    low, high = redrawn(shares, np.mean)
    return Coverage(
        share=float(np.mean(shares)),
        low=low,
        high=high,
        members=len(shares),
        rows=sum(len(rows) for rows, _ in found),
        width=float(np.median(widths)),
        score=float(np.mean(scores)),
    )
