"""Refit of the shipped constants to a user's own runs.

The constants behind predictions of the runs are moved as far as the runs and the constants' own spread suggest. They are kept in a
local profile under the scope that their law looks up first, together with the errors of held-out runs. Where that helps no run that was
held out, or where there is only one, the runs tell the slowdown of their device instead: a factor on all of its times.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial

import numpy as np

from roofplan.errors import InputError, RoofplanError
from roofplan.evidence import predictions, serving_figures
from roofplan.evidence.fits import hierarchy
from roofplan.evidence.fits.hierarchy import LEAST_NOISE, Block, Effect, Fitted, Numbers, Prior, linearised
from roofplan.evidence.inference import InferenceCase, inference_case
from roofplan.evidence.rows import Row, Skipped, flagged, listed, unread, unread_warnings
from roofplan.evidence.training import TrainingCase, training_case
from roofplan.money.uncertainty import student
from roofplan.records.calibration import OWN, SLOWDOWN, Constant, Fit, Key, Watched
from roofplan.timing.figures import FIGURE_OF, FIRST_TOKEN, MEMORY, Metric, Told, own_place, parted, slowdown_scope

Tick = Callable[[int, int], None]

NEVER_MOVED = frozenset({"interval", "power", "price", OWN})
"""Laws whose constants a user's runs never move."""

LEAST_STRAY, LARGEST_STRAY, UNFITTED_STRAY = 0.1, 0.5, 0.5
"""Prior spread of a constant on the user's machine, one standard deviation of its logarithm: the spread of its rows, clipped to the first
two, or the last where no row determined it [1]."""

FELT = 0.02
"""Sensitivity of figures to a constant below which the runs do not move it [1]."""

FOLDS = 5
"""Folds of cross-validation; with fewer runs, one per run [1]."""

LEAST_OWN = 5
"""Least number of figures of a job for an interval to be learned from them [1]."""

SETTLED = 0.9
"""Posterior over prior spread above which the runs say too little about a constant to move it [1]."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure and its prediction as a function of the constants.

    Parameters
    ----------
    place : software, devices and model to which an interval learned from the runs is limited.
    device : scope of the slowdown of the device that it was measured on.
    noise, shared : relative errors that differ between runs on one device, and that all of them share, one standard deviation [1].
    """

    id: str
    source: str
    job: str
    metric: str
    place: str
    device: str
    noise: float
    shared: float
    measured: float
    predicted: Callable[[Fit], float]

    @property
    def model(self) -> str:
        """The model that ran, by its parameters and their format."""
        return self.place.rpartition("/")[2]

    def slower(self, error: float) -> float:
        """Return the logarithm of measured over predicted time, given that of predicted over measured value [1]."""
        return -error if self.metric in {"tpot", "ttft"} else error


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A constant before and after the refit, and its posterior over prior spread [1]."""

    before: Constant
    after: Constant
    doubt: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refit:
    """Result of a refit to a user's own runs.

    Parameters
    ----------
    figures : measured figures that were used.
    skipped : reasons why rows were skipped, with their number.
    before, after, held_out : relative errors of the figures by shipped constants, by refitted ones, and by those refitted to other runs [1].
    constants : constants to keep in the profile.
    unread : columns of the tables that are not read, each with the one that it resembles.
    far : warnings of figures that lie farther from predictions than these are known to err.
    """

    rows: int
    figures: list[Figure]
    skipped: Counter[str]
    before: np.ndarray
    after: np.ndarray
    held_out: np.ndarray
    moved: list[Moved]
    constants: list[Constant]
    unread: dict[str, str]
    far: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[tuple[str, str]]:
        """What the reader of the tables should know: a code and a text each."""
        return [*unread_warnings(self.unread), *(("far_from_predicted", text) for text in self.far)]

    @property
    def single(self) -> bool:
        """Whether there is one run alone, so that none can be held out."""
        return not bool(np.isfinite(self.held_out).any())

    @property
    def helps(self) -> bool:
        """Whether held-out errors clearly improve and get much worse for no job; false without held-out runs."""
        if self.single:
            return False
        before, held, jobs = np.abs(self.before), np.abs(self.held_out), [one.job for one in self.figures]
        better = float(np.median(held)) < NEARER * float(np.median(before))
        return better and not any(_worsens(before, held, [one == job for one in jobs]) for job in dict.fromkeys(jobs))

    @property
    def slowdown(self) -> bool:
        """Whether the slowdowns of devices moved, and no other constants."""
        return bool(self.moved) and all(one.after.law == SLOWDOWN for one in self.moved)

    @property
    def keeps(self) -> bool:
        """Whether a profile keeps what moved: where it helps, and slowdowns also of a single run or where held-out errors are no larger."""
        before, held = np.abs(self.before), np.abs(self.after if self.single else self.held_out)
        jobs = [one.job for one in self.figures]
        worse = any(_worsens(before, held, [one == job for one in jobs]) for job in dict.fromkeys(jobs))
        no_worse = float(np.median(held)) <= float(np.median(before)) and not (self.single and worse)
        return self.helps or (self.slowdown and no_worse)


NEARER, FURTHER = 0.9, 1.1
"""Largest ratio of held-out to shipped median error for constants to be kept: over all figures, and for a single job [1]."""


def _worsens(before: np.ndarray, held: np.ndarray, mine: Sequence[bool]) -> bool:
    """Return whether the held-out error of a job is worse than before by more than repeated runs differ."""
    was, now = (float(np.median(errors[np.asarray(mine)])) for errors in (before, held))
    return now > FURTHER * was and now > was + LEAST_NOISE


def refit(tables: Sequence[tuple[str, Sequence[Row]]], name: str, fit: Fit, tick: Tick | None = None) -> Refit:
    """Return what a user's own runs change in the constants.

    Parameters
    ----------
    tables : pairs of kind, ``training`` or ``inference``, and rows.
    name : how sources and messages call the tables.
    fit : the constants to start from.
    tick : called with the fits done and their total, None for no progress.

    Returns
    -------
    Errors before, after and held out, the constants that moved, and those to keep.

    Raises
    ------
    InputError : no run can be predicted.
    """
    fit = Fit(tuple(item for item in fit.constants if item.law not in {OWN, SLOWDOWN}), fit.excluded)
    figures, skipped = figures_of(tables, fit)
    if not figures:
        message = f"--with: no row of {name} can be predicted: {listed(skipped)}"
        raise InputError(message, argument="--with", value=name)
    watched = Watched(fit.constants, fit.excluded)
    errors = _errors(figures, watched)
    folds = min(FOLDS, len({one.id for one in figures}))
    said = f"{name} ({', '.join(dict.fromkeys(one.source for one in figures))})"
    done, whole = 0, folds + 2 if folds > 1 else 1

    def done_one() -> None:
        nonlocal done
        done += 1
        if tick is not None:
            tick(done, whole)

    far = _far(figures, errors)
    doubtful = {one.device for one, _ in far}

    def result(after: np.ndarray, held: np.ndarray, moved: list[Moved]) -> Refit:
        slow = [one for one in moved if one.after.law == SLOWDOWN]
        priors = [_prior_of(one) for one in slow if one.after.scope not in doubtful]
        return Refit(
            rows=sum(len(rows) for _, rows in tables),
            figures=figures,
            skipped=skipped,
            before=np.expm1(errors),
            after=np.expm1(after),
            held_out=np.expm1(held),
            moved=moved,
            constants=[one.after for one in moved] + priors + _own_intervals(figures, held, said),
            unread={column: near for kind, rows in tables for column, near in unread(kind, rows).items()},
            far=tuple(text for _, text in far),
        )

    slowed = result(*_slowed_to(figures, errors, fit, folds, said))
    done_one()
    if folds == 1:
        return slowed
    numbers = {key: item for key, item in watched.consulted.items() if _movable(key, item)}
    moved = result(*_moved_to(figures, errors, fit, numbers, folds, said, done_one))
    return moved if moved.helps or not slowed.keeps else slowed


def _slowed_to(
    figures: Sequence[Figure], errors: np.ndarray, fit: Fit, folds: int, said: str
) -> tuple[np.ndarray, np.ndarray, list[Moved]]:
    """Return the errors of figures with devices slowed as they say, and as other runs say, as logarithms [1], and the slowdowns."""
    found = _slowdowns(figures, errors, said)
    rows = list(dict.fromkeys(one.id for one in figures))
    held = np.full(len(figures), math.nan)
    for part in range(folds if folds > 1 else 0):
        mine = {name for place, name in enumerate(rows) if place % folds == part}
        left = [place for place, one in enumerate(figures) if one.id in mine]
        rest = [place for place, one in enumerate(figures) if one.id not in mine]
        others = _slowdowns([figures[place] for place in rest], errors[rest], said)
        held[left] = _errors([figures[place] for place in left], fit.with_(one.after for one in others))
    return _errors(figures, fit.with_(one.after for one in found)), held, found


def _far(figures: Sequence[Figure], errors: np.ndarray) -> list[tuple[Figure, str]]:
    """Return the figures that tell of a device but lie farther from predictions than these are known to err, each with a warning."""
    out = []
    for one, error in zip(figures, errors.tolist(), strict=True):
        if one.job not in UNTELLING and abs(error) > FAR * math.hypot(one.noise, one.shared):
            times, how = math.exp(abs(error)), "slow" if one.slower(error) > 0.0 else "fast"
            then = "the run tells nothing" if abs(error) > FARTHEST else "it moves times, but narrows no interval"
            name = one.id.partition(" ")[2]
            out.append((one, f"{name}: {times:.1f} times as {how} as predicted; are its units right? {then}"))
    return out


UNTELLING = frozenset({MEMORY, FIRST_TOKEN})
"""Figures that tell nothing of how long steps take: a first token also waits for others."""

FAR = 2.5
"""Standard deviations beyond which an error is no longer of a known size [1]."""

FARTHEST = math.log(10.0)
"""Logarithm of the factor beyond which a run is taken for a mistake: of published runs one in a thousand lies there [1]."""


def _slowdowns(figures: Sequence[Figure], errors: np.ndarray, said: str) -> list[Moved]:
    """Return the slowdowns of devices that figures tell, given the logarithms of predicted over measured [1].

    Of several figures of a run its least doubted one tells, since they hold the same steps.
    """
    out = []
    telling = [
        (one, error)
        for one, error in zip(figures, errors.tolist(), strict=True)
        if one.job not in UNTELLING and abs(error) <= FARTHEST and one.shared
    ]
    for scope in dict.fromkeys(one.device for one, _ in telling):
        runs: dict[str, tuple[float, Figure, float]] = {}
        mine = [(one, error) for one, error in telling if one.device == scope]
        prior = min(one.shared for one, _ in mine)
        for one, error in mine:
            noise = math.sqrt(one.noise**2 + max(0.0, one.shared**2 - prior**2))
            if one.id not in runs or noise < runs[one.id][0]:
                runs[one.id] = (noise, one, one.slower(error))
        models: dict[str, list[tuple[float, float]]] = {}
        for noise, one, slower in runs.values():
            models.setdefault(one.model, []).append((slower, noise))
        factor, known = slowdown_of(models, prior)
        if known.left <= SETTLED * known.prior:
            before = Constant(
                law=SLOWDOWN,
                name="time",
                scope=scope,
                value=1.0,
                unit="1",
                spread=round(known.prior, 4),
                rows=0,
                fitted="",
                source="runs of publishers that were left out of the fits",
                kind="guess",
            )
            after = replace(
                before,
                value=float(f"{factor:.4g}"),
                spread=round(known.left, 4),
                rows=len(runs),
                fitted=date.today().isoformat(),
                source=f"your runs: {said}",
                kind="fit",
            )
            out.append(Moved(before=before, after=after, doubt=known.left / known.prior))
    return out


def slowdown_of(models: Mapping[str, Sequence[tuple[float, float]]], prior: float) -> tuple[float, Told]:
    """Return how much slower a device is than predicted, by normal distributions of what its runs share and of what they do not.

    Runs of one model share what predictions of that model miss by, so that together they count as one.

    Parameters
    ----------
    models : of each model its runs: logarithm of measured over predicted time, and the error that runs do not share, one standard deviation [1].
    prior : the error that predictions for the device share, one standard deviation [1].

    Returns
    -------
    The most plausible factor [1], and the shared error before and after.
    """
    precision, pull = prior**-2.0, 0.0
    for runs in models.values():
        weight = 1.0 / float(np.mean([noise**2 for _, noise in runs]))
        precision += weight
        pull += weight * float(np.mean([slower for slower, _ in runs]))
    return math.exp(pull / precision), Told(prior, precision**-0.5)


def _moved_to(
    figures: Sequence[Figure],
    errors: np.ndarray,
    fit: Fit,
    numbers: dict[Key, Constant],
    folds: int,
    said: str,
    done_one: Callable[[], None],
) -> tuple[np.ndarray, np.ndarray, list[Moved]]:
    """Return the errors of figures by constants moved to them, and to other runs, as logarithms [1], and what moved."""
    movable = _determined(figures, fit, _sensitive(figures, fit, numbers))

    def moved_by(kept: Sequence[Figure]) -> Fitted | None:
        found = _fitted(kept, fit, movable) if movable else None
        done_one()
        return found

    found = moved_by(figures)
    after = errors if found is None else _errors(figures, _with_values(fit, movable, _values(found, movable)))
    held = _held_out(figures, fit, movable, moved_by, folds)
    return after, held, [] if found is None else _moved(movable, found, said)


def _movable(key: Key, item: Constant) -> bool:
    """Return whether a user's runs may move a constant: not a fallback for any scope, and not a definition."""
    return key[0] not in NEVER_MOVED and key[2] != "any" and item.kind != "definition"


def figures_of(tables: Sequence[tuple[str, Sequence[Row]]], fit: Fit) -> tuple[list[Figure], Counter[str]]:
    """Return the measured figures of rows that can be predicted, without copies, and the reasons why others cannot."""
    out: list[Figure] = []
    skipped: Counter[str] = Counter()
    seen: set[tuple[tuple[str, str], ...]] = set()
    doubted = [(kind, marked) for kind, rows in tables for marked in flagged(rows)]
    for kind, row in doubted:
        words = tuple(sorted((name, value) for name, value in row.items() if name != "id"))
        if words in seen:
            skipped["a copy of another row"] += 1
            continue
        seen.add(words)
        try:
            found = _training_figures(row, fit) if kind == "training" else _serving_figures(row, fit)
            if not found:
                skipped["no figure that is predicted"] += 1
            # rows with the same id would otherwise be held out together
            out += [replace(one, id=f"{len(seen)} {one.id}") for one in found]
        except (Skipped, RoofplanError) as reason:
            skipped[str(reason)] += 1
        except ArithmeticError as error:
            skipped[f"its numbers make no run: {error}"] += 1
    return out, skipped


def _serving_figures(row: Row, fit: Fit) -> list[Figure]:
    case = inference_case(row)
    place = own_place(case.engine.id, case.machine, case.model)
    known = serving_figures.predicted_figures(case, fit)
    beyond = serving_figures.implausible_serving(case, fit)
    device = slowdown_scope(case.engine, case.machine.device)
    return [
        _figure(row, name, place, device, one, value, partial(_served, case, name))
        for name, value in case.measured.items()
        if isinstance(one := known.get(name), Metric) and name not in beyond
    ]


def _figure(
    row: Row, name: str, place: str, device: str, known: Metric, measured: float, predicted: Callable[[Fit], float]
) -> Figure:
    """Return a measured figure, with the causes of its error parted into those of each run and those of its device."""
    noise, shared = parted(known)
    return Figure(
        row["id"], row["source_key"], FIGURE_OF[name], name, place, device, noise, shared, measured, predicted
    )


def _served(case: InferenceCase, name: str, fit: Fit) -> float:
    """Return a predicted figure; where it cannot be predicted, the measured one, which then has no influence."""
    found = serving_figures.predicted_figures(case, fit)[name]
    return found.value if isinstance(found, Metric) else case.measured[name]


def _training_figures(row: Row, fit: Fit) -> list[Figure]:
    case = training_case(row)
    place = own_place(case.framework.id, case.machine, case.model)
    most = predictions.ideal_rate(case, fit)
    stated = {"tokens_per_second_per_device": case.rate, "memory": case.memory}
    known, device = predictions.training_figures(case, fit)[0], slowdown_scope(case.framework, case.machine.device)
    return [
        _figure(row, name, place, device, known[name], value, partial(_trained, case, name))
        for name, value in stated.items()
        if value is not None and not predictions.implausible_training(case, name, most)
    ]


def _trained(case: TrainingCase, name: str, fit: Fit) -> float:
    return predictions.training_figures(case, fit)[0][name].value


def _errors(figures: Sequence[Figure], fit: Fit) -> np.ndarray:
    """Return logarithms of predicted over measured [1]."""
    return np.array([math.log(one.predicted(fit) / one.measured) for one in figures])


def _with_values(fit: Fit, numbers: dict[Key, Constant], values: Numbers) -> Fit:
    """Return a fit with constants at the given values."""
    return fit.with_(rescoped(key, item, values[_label(key)]) for key, item in numbers.items())


def _errors_at(figures: Sequence[Figure], fit: Fit, numbers: dict[Key, Constant], values: Numbers) -> np.ndarray:
    """Return logarithms of predicted over measured with constants at the given values [1]."""
    return _errors(figures, _with_values(fit, numbers, values))


def rescoped(key: Key, item: Constant, value: float) -> Constant:
    """Return a constant at another value under the nearest scope; its basis is kept, and shares of rates are capped at one."""
    shares = item.law == "message" or item.reads
    most = 1.0 if shares and item.unit == "1" else math.inf
    basis = item.fitted_on if item.fitted_on != key[2] else ""
    return replace(item, scope=key[2], basis=basis, value=min(value, most))


def _label(key: Key) -> str:
    return "|".join(key)


def _sensitive(figures: Sequence[Figure], fit: Fit, numbers: dict[Key, Constant]) -> dict[Key, Constant]:
    """Return the constants to which some figure is sensitive."""
    block = Block(numbers={_label(key): (key,) for key in numbers}, errors=partial(_errors_at, figures, fit, numbers))
    _, slopes = linearised(block, np.log([item.value for item in numbers.values()]))
    largest = np.max(np.abs(slopes), axis=0)
    return {key: item for (key, item), slope in zip(numbers.items(), largest, strict=True) if slope > FELT}


def prior_spread(item: Constant) -> float:
    """Return the prior spread of a constant on the user's machine, one standard deviation of its logarithm [1]."""
    known = item.rows and item.law not in OF_THE_HOST
    return min(max(item.spread, LEAST_STRAY), LARGEST_STRAY) if known else UNFITTED_STRAY


OF_THE_HOST = frozenset({"engine_step", "front_end"})
"""Laws of host times, which depend on the processor of the user's host."""


def _determined(figures: Sequence[Figure], fit: Fit, movable: dict[Key, Constant]) -> dict[Key, Constant]:
    """Return the constants that the runs determine well enough; only these are moved, cross-validated and kept."""
    if not movable:
        return {}
    found = _fitted(figures, fit, movable)
    return {key: item for key, item in movable.items() if _doubt(found, key, item) <= SETTLED}


def _doubt(found: Fitted, key: Key, item: Constant) -> float:
    """Return the posterior over prior spread of a constant [1]."""
    place = found.places[key]
    return min(1.0, math.sqrt(found.covariance[place, place]) / prior_spread(item))


def _fitted(figures: Sequence[Figure], fit: Fit, movable: dict[Key, Constant]) -> Fitted:
    numbers = {_label(key): (key,) for key in movable}
    blocks = [
        Block(numbers=numbers, errors=partial(_errors_at, [one for one in figures if one.job == job], fit, movable))
        for job in dict.fromkeys(one.job for one in figures)
    ]
    priors: dict[Effect, Prior] = {
        key: Prior(math.log(item.value), prior_spread(item)) for key, item in movable.items()
    }
    return hierarchy.fit(blocks, priors, rounds=ROUNDS)


ROUNDS = 20
"""Limit on steps of the descent, which starts at the shipped constants, near the solution [1]."""


def _values(found: Fitted, movable: dict[Key, Constant]) -> Numbers:
    return {_label(key): found.number([key]) for key in movable}


def _held_out(
    figures: Sequence[Figure],
    fit: Fit,
    movable: dict[Key, Constant],
    moved_by: Callable[[Sequence[Figure]], Fitted | None],
    folds: int,
) -> np.ndarray:
    """Return logarithms of predicted over measured, each figure by constants refitted to the runs of other folds [1]."""
    rows = list(dict.fromkeys(one.id for one in figures))
    out = np.full(len(figures), math.nan)
    for part in range(folds):
        mine = {name for place, name in enumerate(rows) if place % folds == part}
        others = [one for one in figures if one.id not in mine]
        left = [place for place, one in enumerate(figures) if one.id in mine]
        if not left:
            continue
        found = moved_by(others) if others else None
        moved = fit if found is None else _with_values(fit, movable, _values(found, movable))
        out[left] = _errors([figures[place] for place in left], moved)
    return out


def _moved(movable: dict[Key, Constant], found: Fitted, said: str) -> list[Moved]:
    """Return the refitted constants under their nearest scope, the largest change first."""
    slopes = np.abs(np.concatenate(found.slopes))
    out = []
    for column, (key, item) in enumerate(movable.items()):
        doubt = _doubt(found, key, item)
        left = doubt * prior_spread(item)
        after = replace(
            rescoped(key, item, float(f"{found.number([key]):.4g}")),
            spread=round(min(item.spread, left) if item.rows else left, 4),
            rows=int(np.sum(slopes[:, column] > FELT)),
            fitted=date.today().isoformat(),
            source=f"your runs: {said}",
            kind="fit",
            note=f"on top of {item.value:g} for {item.scope}, {item.rows} rows",
        )
        out.append(Moved(before=item, after=after, doubt=doubt))
    return sorted(out, key=lambda one: -abs(math.log(one.after.value / one.before.value)))


def _prior_of(slowdown: Moved) -> Constant:
    """Return the error that predictions for a device share before its runs are known."""
    return replace(slowdown.before, name="prior", value=slowdown.before.spread, spread=0.0)


def _own_intervals(figures: Sequence[Figure], held: np.ndarray, said: str) -> list[Constant]:
    """Return the half-width of a 90% interval from held-out errors, by job and place, by Student's t."""
    found: dict[tuple[str, str], list[float]] = {}
    for one, error in zip(figures, held, strict=True):
        if math.isfinite(error):
            found.setdefault((one.job, one.place), []).append(float(error))
    out = []
    for (job, place), errors in found.items():
        if len(errors) < LEAST_OWN:
            continue
        spread = max(LEAST_NOISE, math.sqrt(float(np.mean(np.square(errors)))))
        out.append(
            Constant(
                law=OWN,
                name=job,
                scope=place,
                value=round(student(len(errors) - 1) * spread, 4),
                unit="1",
                spread=round(spread, 4),
                rows=len(errors),
                fitted=date.today().isoformat(),
                source=f"your runs: {said}",
                note="each predicted by constants that other runs of yours moved",
            )
        )
    return out
