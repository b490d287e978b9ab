"""Predictions of every publisher's runs with constants that were fitted without them."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from roofplan import catalogue
from roofplan.calibrate.engines import constants_of, fit_serving
from roofplan.calibrate.kernels import fit_attention, fit_grouped, fit_matmul, kernel_rows
from roofplan.calibrate.training import FAMILIES, Steps, fit_families, fit_training, seen_by_families
from roofplan.records.calibration import Constant, Fit
from roofplan.timing.figures import Metric, interval_factor, unseen
from roofplan.validation.predictions import inference_outcomes, names_in, training_outcomes, validated
from roofplan.validation.rows import SHORT_OF_CACHE, STARVED, Row, flags, unstarved
from roofplan.validation.scoring import UNITS, Outcome, Validation, job_of

Tick = Callable[[str], object]


def left_out(kind: str, rows: Sequence[Row], whole: Steps, tick: Tick | None = None) -> Validation:
    """Return runs of a kind beside predictions, each publisher's by constants that were fitted without its rows.

    `whole` is the fit of step times with all publishers.
    """
    out = Validation(kind=kind, rows=len(rows))
    for source in dict.fromkeys(row["source_key"] for row in rows):
        if tick is not None:
            tick(source)
        mine = [row for row in rows if row["source_key"] == source]
        fit = fit_without(source, whole)
        for row in mine:
            if kind == "inference":
                out.outcomes += short_of_cache(row, fit) if STARVED in flags(row) else inference_outcomes(row, fit)
            else:
                found, judged = training_outcomes(row, fit)
                out.outcomes += found
                out.memory += [judged] if judged is not None else []
    return out


def short_of_cache(row: Row, fit: Fit) -> list[Outcome]:
    """Return the throughput of a run that the room for its cache decides, in a regime of its own."""
    found = inference_outcomes(unstarved(row), fit)
    return [replace(one, regime=SHORT_OF_CACHE) for one in found if one.metric == "output_tokens_per_second"]


def fit_without(source: str, whole: Steps | None = None) -> Fit:
    """Return the fit of all other publishers: constants that rest on a publisher's rows are fitted anew without them; `whole` is where step times' fits start."""
    shipped = {name: list(catalogue.fit(name)) for name in catalogue.fits()}
    gone = frozenset({source})
    if any(source in family.sources for family in FAMILIES):
        shipped["training"] = constants_of(
            fit_training(fit_families(_all(shipped).without(gone), None if whole is None else whole.fitted))
        )
    if any(source in names_in(item.source) for name in SERVING for item in shipped[name]):
        others = [item for name, found in shipped.items() if name not in SERVING for item in found]
        shipped |= {name: constants_of(found) for name, found in fit_serving(others, gone).items()}
    return _all(shipped).without(gone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs of one chip or one software, predicted by constants that were fitted without any run of it.

    Parameters
    ----------
    job : ``training`` steps or ``inference``, prompts alone.
    by : ``chip`` or ``software``.
    signed : predicted over measured, less one [1].
    """

    job: str
    by: str
    name: str
    signed: tuple[float, ...]

    @property
    def errors(self) -> list[float]:
        """Relative errors without their sign [1]."""
        return [abs(one) for one in self.signed]


def groups(whole: Steps, tick: Tick | None = None) -> list[Group]:
    """Return training runs with each chip and each software left out, and prompts alone with each chip left out, its kernel tables too."""
    out = []
    for kind, metric, axes in (
        ("training", "tokens_per_second_per_device", ("chip", "software")),
        ("inference", "prefill_tokens_per_second", ("chip",)),
    ):
        table = catalogue.training_rows() if kind == "training" else catalogue.inference_rows()
        rows = {row["id"]: row for row in table}
        seen = [
            one for one in validated(kind, table, whole.constants).outcomes if one.predicted and one.metric == metric
        ]
        for by in axes:
            names = sorted({_member(one, by) for one in seen})
            for name in names:
                if tick is not None:
                    tick(f"{kind} {by} {name}")
                fit = _fit_leaving(frozenset({f"{by}:{name}"}), whole, kind)
                ids = [one.id for one in seen if _member(one, by) == name]
                found = [one for identity in ids for one in _outcomes(kind, rows[identity], fit)]
                signed = tuple(one.ratio - 1.0 for one in found if one.predicted is not None and one.metric == metric)
                out.append(Group(job=kind, by=by, name=name, signed=signed))
    return out


def _member(one: Outcome, by: str) -> str:
    """Return the chip or the software, whatever its version, of an outcome."""
    if by == "chip":
        return one.chip
    of = catalogue.framework if one.metric == "tokens_per_second_per_device" else catalogue.engine
    return of(one.software).name


def _outcomes(kind: str, row: Row, fit: Fit) -> list[Outcome]:
    return inference_outcomes(row, fit) if kind == "inference" else training_outcomes(row, fit)[0]


def _fit_leaving(gone: frozenset[str], whole: Steps, kind: str) -> Fit:
    """Return all constants fitted anew without a chip or a software: those of kernels, and of training or of serving."""
    shipped = {name: list(catalogue.fit(name)) for name in catalogue.fits()}
    rows = [row for row in kernel_rows() if f"chip:{row['device']}" not in gone]
    measured = len(rows) < len(kernel_rows())
    if measured:
        for name, made_by in (("matmul", fit_matmul), ("grouped", fit_grouped)):
            shipped[name] = constants_of(made_by(rows, _all(shipped)))
        shipped["attention"] = constants_of(fit_attention(rows))
    if kind == "training" and not measured and not seen_by_families(gone):
        return whole.constants.without(gone)
    if kind == "training":
        shipped["training"] = constants_of(fit_training(fit_families(_all(shipped).without(gone), whole.fitted)))
    else:
        others = [item for name, found in shipped.items() if name not in SERVING for item in found]
        shipped |= {name: constants_of(found) for name, found in fit_serving(others, gone).items()}
    return _all(shipped).without(gone)


GROUPS = catalogue.ROOT / "measured" / "left-out-groups.csv"


def save_groups(found: Iterable[Group]) -> None:
    """Write the errors of groups that were left out, one a line."""
    with GROUPS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("job", "by", "name", "signed"))
        writer.writerows((one.job, one.by, one.name, f"{error:.4g}") for one in found for error in one.signed)


def kept_groups() -> list[Group]:
    """Return the errors of groups as they were written, none where nobody has left any out."""
    if not GROUPS.exists():
        return []
    errors: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    with GROUPS.open(newline="") as file:
        for row in csv.DictReader(file):
            errors[row["job"], row["by"], row["name"]].append(float(row["signed"]))
    return [Group(job=job, by=by, name=name, signed=tuple(found)) for (job, by, name), found in errors.items()]


def _all(fits: dict[str, list[Constant]]) -> Fit:
    """Return the constants of all fits as one."""
    return Fit(tuple(item for found in fits.values() for item in found))


SERVING = ("engines", "prefill", "front", "power")
"""Fits that rest on serving runs."""


FIELDS = (
    "id",
    "source",
    "metric",
    "regime",
    "chip",
    "software",
    "year",
    "measured",
    "ideal",
    "predicted",
    "spread",
    "grade",
    "shipped",
)
"""Columns of the kept outcomes, the last what the shipped constants predict, which saw the row; figures in SI."""

FILE = catalogue.ROOT / "measured" / "left-out.csv"


def beside_shipped(found: Iterable[Outcome], fit: Fit) -> list[Outcome]:
    """Return outcomes with what a fit predicts that saw the same rows."""
    tables = {"training": catalogue.training_rows(), "inference": catalogue.inference_rows()}
    seen = [one for kind, rows in tables.items() for one in validated(kind, rows, fit).outcomes]
    seen += [one for row in tables["inference"] if STARVED in flags(row) for one in short_of_cache(row, fit)]
    values = {(one.id, one.metric): one.predicted.value for one in seen if one.predicted is not None}
    return [replace(one, shipped=values.get((one.id, one.metric))) for one in found]


def save(found: Iterable[Outcome], fit: Fit) -> None:
    """Write the scored outcomes, so that pages and intervals need no fits."""
    with FILE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        for one in found:
            p = one.predicted
            if p is not None:
                shipped = "" if one.shipped is None else f"{one.shipped:.5g}"
                words = [one.id, one.source, one.metric, one.regime, one.chip, one.software, one.year]
                ideal = "" if one.ideal is None else f"{one.ideal:.5g}"
                own = own_spread(one.spread, one.job, fit)
                writer.writerow(
                    [*words, f"{one.measured:.6g}", ideal, f"{p.value:.5g}", f"{own:.4g}", p.grade, shipped]
                )


def own_spread(spread: float, job: str, fit: Fit) -> float:
    """Return a prediction's spread without what no fit's residuals show [1]."""
    return math.sqrt(max(spread**2 - unseen(job, fit) ** 2, 0.0))


def kept(fit: Fit) -> list[Outcome]:
    """Return the outcomes as they were written, with the intervals of a fit."""
    with FILE.open(newline="") as file:
        return [_outcome(row, fit) for row in csv.DictReader(file)]


def _outcome(row: dict[str, str], fit: Fit) -> Outcome:
    value = float(row["predicted"])
    job = job_of(row["metric"], row["regime"])
    wide = math.exp(math.hypot(float(row["spread"]), unseen(job, fit)) * interval_factor(job, fit))
    return Outcome(
        **{name: row[name] for name in ("id", "source", "metric", "regime", "chip", "software", "year")},  # type: ignore[arg-type]
        measured=float(row["measured"]),
        ideal=float(row["ideal"]) if row["ideal"] else None,
        predicted=Metric(value, value / wide, value * wide, UNITS[row["metric"]], row["grade"]),
        factor=interval_factor(job, fit),
        shipped=float(row["shipped"]) if row["shipped"] else None,
    )
