"""What predictions beside measured runs come to: an outcome for each figure of each row, and its errors by source."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

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
"""What is scored, and its unit."""

ALONE = ("static batch", "steady batch")
"""Regimes in which the running sequences are known."""


LEAST_OF_A_SOURCE = 5
"""Scored rows below which a source is pooled with the other small ones [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One published figure beside its prediction, or the reason why there is none.

    Parameters
    ----------
    id, source : the row, and its publisher's data set.
    metric : what was measured.
    regime : how requests met the engine; empty for training.
    measured, predicted : SI; the prediction with its interval and grade.
    assumed : what the row leaves out and a rule filled.
    skipped : why it is not scored, empty where it is.
    sweep : the runs among which its order counts, empty where it has none.
    chip : the device.
    software, year : engine or framework, and the year of the run.
    ideal : what its data sheet alone gives, None where that says nothing of the figure.
    implausible : the physical limit that the measured figure exceeds, empty where it exceeds none.
    system : what it ran on.
    left_out : what of it no constant saw where it is left out of the fits, else empty.
    shipped : what constants predict that saw the row too, None where that was not asked.
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

    @property
    def figure(self) -> str:
        """What was predicted, by figures whose errors are learned apart."""
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
    """Whether a run ran, and whether it was judged to fit its devices."""

    id: str
    ran: bool
    fits: bool


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of a metric over rows [1].

    Parameters
    ----------
    rows : scored figures.
    median, p90 : of the absolute relative error, over rows; the 90th percentile weighs sources equally.
    macro : mean over sources of their medians; sources with few rows are pooled.
    middle : median over sources of their medians.
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


def pooled(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """Return outcomes by source, the small sources together."""
    by: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        by[one.source].append(one)
    small = [name for name, found in by.items() if len(found) < LEAST_OF_A_SOURCE]
    rest = [one for name in small for one in by.pop(name)]
    return {**by, "small sources": rest} if rest else dict(by)


def score(outcomes: Sequence[Outcome]) -> Score | None:
    """Return the errors of scored outcomes of one metric, None where there are none."""
    found = [one for one in outcomes if one.predicted is not None]
    if not found:
        return None
    by = pooled(found)
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
"""Runs of one sweep from which their order is scored [1]."""


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Return Spearman's correlation of two sequences, ties given their mean rank [1].

    >>> round(rank_correlation([1.0, 2.0, 3.0], [10.0, 30.0, 20.0]), 2)
    0.5
    """
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [(ordered.index(x) + len(ordered) - 1 - ordered[::-1].index(x)) / 2.0 for x in values]


def weighted_quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    """Return the least value below which at least a share of the weight lies.

    >>> weighted_quantile(np.array([1.0, 2.0, 10.0]), np.array([1.0, 1.0, 2.0]), 0.5)
    2.0
    """
    order = np.argsort(values)
    whole = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(whole, share * whole[-1] * (1.0 - 1e-12))])


@dataclass(slots=True, kw_only=True)
class Validation:
    """What a table of measured runs comes to.

    Parameters
    ----------
    rows : rows of the table [1].
    outcomes : a figure each, in the order of the table.
    in_sample : publishers on whose rows constants were fitted.
    """

    kind: str
    rows: int
    outcomes: list[Outcome] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    in_sample: frozenset[str] = frozenset()

    @property
    def scored(self) -> int:
        """Rows of which at least one figure is scored [1]."""
        return len({one.id for one in self.outcomes if one.predicted is not None})

    @property
    def skipped(self) -> Counter[str]:
        """Why rows are not scored, and how many."""
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
        """Return the errors by metric over rows of which nothing was assumed."""
        found = {name: score(self.of(name, lambda one: not one.assumed)) for name in UNITS}
        return {name: value for name, value in found.items() if value is not None}

    def by_regime(self) -> dict[str, dict[str, Score]]:
        """Return the errors by metric and by how requests met the engine."""
        out: dict[str, dict[str, Score]] = {}
        for name in UNITS:
            for regime in dict.fromkeys(one.regime for one in self.of(name) if one.regime):
                found = score(self.of(name, lambda one, r=regime: one.regime == r))  # type: ignore[misc]
                if found is not None:
                    out.setdefault(name, {})[regime] = found
        return out

    def floor(self, name: str) -> dict[str, float]:
        """Return, by source, the median error of the crudest law: one share of the data sheet for each chip, learned from the other sources.

        A chip that no other source has takes the share of all their chips.
        """
        found = [one for one in self.of(name) if one.ideal]
        shares: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for one in found:
            shares[one.source][one.chip].append(one.measured / (one.ideal or 1.0))
        out = {}
        for source, chips in shares.items():
            others = [by for other, by in shares.items() if other != source]
            every = [share for by in others for values in by.values() for share in values]
            if not every:
                continue
            mine = [one for one in found if one.source == source]
            learned = {chip: [share for by in others for share in by.get(chip, ())] or every for chip in chips}
            errors = [
                abs(float(np.median(learned[one.chip])) * (one.ideal or 1.0) / one.measured - 1.0) for one in mine
            ]
            out[source] = float(np.median(errors))
        return out

    def sweeps(self) -> dict[str, tuple[int, float]]:
        """Return how many runs each sweep has, and the rank correlation of its rates, predicted with measured."""
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
        """Return how many runs that ran, and that ran out of memory, were judged to fit and not."""
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
