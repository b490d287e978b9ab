"""Scores of predictions: an outcome for each figure of each row, and errors by source."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from roofplan.evidence.rows import unread_warnings
from roofplan.records.system import System
from roofplan.timing.figures import FIGURE_OF, Metric

UNITS = {
    "tpot": "s",
    "ttft": "s",
    "output_tokens_per_second": "token/s",
    "prefill_tokens_per_second": "token/s",
    "tokens_per_second_per_device": "token/s",
    "memory": "B",
}
"""Scored metrics and their units."""

ALONE = ("static batch", "steady batch")
"""Regimes in which the batch size is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One published figure with its prediction, or the reason why it has none.

    Parameters
    ----------
    id, source : the row, and its publisher's data set.
    metric : what was measured.
    regime : how requests arrive; empty for training.
    measured, predicted : in SI; the prediction has an interval and a grade.
    assumed : what the row omits and a rule filled in.
    skipped : why it is not scored, empty where it is.
    sweep : sweep of runs within which the order is scored, empty where there is none.
    chip : the device.
    software, year : engine or framework, and the year of the run.
    ideal : figure at the limits of the data sheet, None where it gives none.
    implausible : the physical limit that the measured figure exceeds, empty where it exceeds none.
    system : what it ran on.
    left_out : what was left out of the fits for this prediction, such as its publisher; empty where nothing was.
    read_as : what was made of the row, in one line; empty where nothing was.
    shipped : prediction with the shipped constants, whose fits included the row; None where not computed.
    """

    id: str
    source: str
    metric: str = ""
    regime: str = ""
    measured: float = 0.0
    predicted: Metric | None = None
    system: System | None = None
    left_out: str = ""
    assumed: tuple[str, ...] = ()
    skipped: str = ""
    sweep: str = ""
    chip: str = ""
    software: str = ""
    year: str = ""
    ideal: float | None = None
    implausible: str = ""
    shipped: float | None = None
    read_as: str = ""

    @property
    def figure(self) -> str:
        """Figure under which the errors of the metric are learned."""
        return FIGURE_OF[self.metric]

    @property
    def ratio(self) -> float:
        """Predicted over measured [1]."""
        return self.predicted.value / self.measured if self.predicted else float("nan")

    @property
    def error(self) -> float:
        """Absolute relative error [1]."""
        return abs(self.ratio - 1.0)

    @property
    def covered(self) -> bool:
        """Whether the measured figure lies in the predicted interval."""
        return self.predicted is not None and self.predicted.low <= self.measured <= self.predicted.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Whether a run fitted into memory, and whether it was predicted to fit."""

    id: str
    ran: bool
    fits: bool


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of a metric over rows [1].

    Parameters
    ----------
    rows : scored figures.
    median, p90 : of the absolute relative error over rows; for the 90th percentile sources are weighted equally.
    macro : mean of the sources' medians, whether a source has one row or many.
    middle : median of the sources' medians.
    coverage : share of measured figures inside their interval, sources weighted equally.
    width : median of high over low.
    """

    rows: int
    median: float
    p90: float
    macro: float
    middle: float
    coverage: float
    width: float
    sources: int


def outcomes_by_source(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """Return outcomes by source."""
    found: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        found[one.source].append(one)
    return dict(found)


def score(outcomes: Sequence[Outcome]) -> Score | None:
    """Return the errors of scored outcomes of one metric, None where there are none."""
    found = [one for one in outcomes if one.predicted is not None]
    if not found:
        return None
    by = outcomes_by_source(found)
    medians = [float(np.median([one.error for one in rows])) for rows in by.values()]
    weights = np.concatenate([np.full(len(rows), 1.0 / len(rows)) for rows in by.values()])
    errors = np.concatenate([[one.error for one in rows] for rows in by.values()])
    covered = [float(np.mean([one.covered for one in rows])) for rows in by.values()]
    widths = [one.predicted.high / one.predicted.low for one in found if one.predicted is not None]
    return Score(
        rows=len(found),
        median=float(np.median([one.error for one in found])),
        p90=weighted_quantile(errors, weights, 0.9),
        macro=float(np.mean(medians)),
        middle=float(np.median(medians)),
        coverage=float(np.mean(covered)),
        width=float(np.median(widths)),
        sources=len(by),
    )


LEAST_SWEEP = 15
"""Least number of runs in a sweep for its order to be scored [1]."""


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Return Spearman's rank correlation of two sequences; ties get their mean rank [1].

    >>> round(rank_correlation([1.0, 2.0, 3.0], [10.0, 30.0, 20.0]), 2)
    0.5
    """
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [(ordered.index(x) + len(ordered) - 1 - ordered[::-1].index(x)) / 2.0 for x in values]


def weighted_quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    """Return the least value at or below which at least a share of the weight lies.

    >>> weighted_quantile(np.array([1.0, 2.0, 10.0]), np.array([1.0, 1.0, 2.0]), 0.5)
    2.0
    """
    order = np.argsort(values)
    whole = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(whole, share * whole[-1] * (1.0 - 1e-12))])


@dataclass(slots=True, kw_only=True)
class Validation:
    """Predictions and measurements of a table of runs.

    Parameters
    ----------
    rows : rows of the table [1].
    outcomes : one per figure, in the order of the table.
    in_sample : sources on whose rows constants were fitted.
    unread : columns of the table that are not read, each with the one that it resembles.
    """

    kind: str
    rows: int
    outcomes: list[Outcome] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    in_sample: frozenset[str] = frozenset()
    unread: dict[str, str] = field(default_factory=dict)

    @property
    def warnings(self) -> list[tuple[str, str]]:
        """What the reader of the table should know: a code and a text each."""
        return unread_warnings(self.unread)

    @property
    def scored(self) -> int:
        """Rows with at least one scored figure [1]."""
        return len({one.id for one in self.outcomes if one.predicted is not None})

    @property
    def skipped(self) -> Counter[str]:
        """Reasons why rows are not scored, and the number of rows for each."""
        done = {one.id for one in self.outcomes if one.predicted is not None}
        reasons = {one.id: one.skipped for one in self.outcomes if one.skipped and one.id not in done}
        return Counter(reasons.values())

    def of(self, name: str, keep: Callable[[Outcome], bool] = lambda _: True) -> list[Outcome]:
        """Return the scored outcomes of a metric."""
        return [one for one in self.outcomes if one.metric == name and one.predicted is not None and keep(one)]

    def summary(self) -> dict[str, Score]:
        """Return the errors by metric."""
        found = {name: score(self.of(name)) for name in UNITS}
        return {name: value for name, value in found.items() if value is not None}

    def without_assumed(self) -> dict[str, Score]:
        """Return the errors by metric over figures for which nothing was assumed."""
        found = {name: score(self.of(name, lambda one: not one.assumed)) for name in UNITS}
        return {name: value for name, value in found.items() if value is not None}

    def by_regime(self) -> dict[str, dict[str, Score]]:
        """Return the errors by metric and regime."""
        out: dict[str, dict[str, Score]] = {}
        for name in UNITS:
            for regime in dict.fromkeys(one.regime for one in self.of(name) if one.regime):
                found = score(self.of(name, lambda one, r=regime: one.regime == r))  # type: ignore[misc]
                if found is not None:
                    out.setdefault(name, {})[regime] = found
        return out

    def floor(self, name: str) -> dict[str, float]:
        """Return by source the median error of a baseline: one share of the data sheet per chip, learned from the other sources.

        A chip that no other source has takes the median share of all their chips.
        """
        found = [(one, one.ideal) for one in self.of(name) if one.ideal]
        shares: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for one, ideal in found:
            shares[one.source][one.chip].append(one.measured / ideal)
        out = {}
        for source, chips in shares.items():
            others = [by for other, by in shares.items() if other != source]
            every = [share for by in others for values in by.values() for share in values]
            if not every:
                continue
            learned = {chip: [share for by in others for share in by.get(chip, ())] or every for chip in chips}
            errors = [
                abs(float(np.median(learned[one.chip])) * ideal / one.measured - 1.0)
                for one, ideal in found
                if one.source == source
            ]
            out[source] = float(np.median(errors))
        return out

    def sweeps(self) -> dict[str, tuple[int, float]]:
        """Return the number of runs of each sweep, and the rank correlation of predicted and measured rates."""
        groups: dict[str, list[Outcome]] = defaultdict(list)
        for one in self.of("tokens_per_second_per_device", lambda one: bool(one.sweep)):
            groups[one.sweep].append(one)
        return {
            name: (
                len(found),
                rank_correlation([one.measured for one in found], [one.ratio * one.measured for one in found]),
            )
            for name, found in groups.items()
            if len(found) >= LEAST_SWEEP
            and len({one.measured for one in found}) > 1
            and len({one.ratio for one in found}) > 1
        }

    def confusion(self) -> dict[str, dict[str, int]]:
        """Return the confusion matrix of memory: runs that fitted or ran out of memory, by whether they were predicted to fit."""
        return {
            name: {
                word: sum(one.ran is ran and one.fits is fits for one in self.memory)
                for word, fits in (("fits", True), ("does_not_fit", False))
            }
            for name, ran in (("ran", True), ("out_of_memory", False))
        }

    def by_source(self) -> dict[str, dict[str, Score]]:
        """Return the errors by source and metric."""
        names = dict.fromkeys(one.source for one in self.outcomes)
        out: dict[str, dict[str, Score]] = {}
        for source in names:
            each = {name: score(self.of(name, lambda one, s=source: one.source == s)) for name in UNITS}  # type: ignore[misc]
            kept = {name: value for name, value in each.items() if value is not None}
            if kept:
                out[source] = kept
        return out
