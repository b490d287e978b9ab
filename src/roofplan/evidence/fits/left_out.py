"""Predictions of runs with their publisher, chip, architecture, software or system left out of the fits."""

from __future__ import annotations

import csv
import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from roofplan import catalogue
from roofplan.evidence.fits.hierarchy import Fitted
from roofplan.evidence.fits.intervals import MEMBER, PUBLISHER
from roofplan.evidence.fits.kernels import fit_attention, fit_grouped, fit_matmul, kernel_rows
from roofplan.evidence.fits.serving import fit_serving
from roofplan.evidence.fits.training import FAMILIES, Steps, fit_families, fit_training, fit_untuned, seen_by_families
from roofplan.evidence.predictions import inference_outcomes, names_in, training_outcomes, validated
from roofplan.evidence.rows import SHORT_OF_CACHE, STARVED, Row, flags, unstarved
from roofplan.evidence.scoring import UNITS, Outcome
from roofplan.records.calibration import Constant, Fit
from roofplan.records.system import System
from roofplan.timing.figures import FIGURE_OF, PROMPTS, STAND_IN, STEP, Doubt, sure
from roofplan.training.ability import UNTUNED

Tick = Callable[[str], object]


def left_out(
    kind: str, rows: Sequence[Row], start: Fitted | None, *, folds: int = 0, jobs: int = 1, tick: Tick | None = None
) -> list[Outcome]:
    """Return predictions for runs of a kind, each with its publisher left out of the fits.

    Parameters
    ----------
    kind : ``training`` or ``inference``.
    rows : runs of that kind.
    start : effects that the fit of step times with all publishers ended with; refits start there.
    folds : number of parts in which publishers are left out together, 0 for each by itself.
    jobs : processes.
    tick : called with the publishers of each part when it is done.

    Returns
    -------
    The outcomes, in the order of publishers.
    """
    sources = list(dict.fromkeys(row["source_key"] for row in rows))
    parts = (
        [frozenset(sources[number::folds]) for number in range(folds)] if folds else [frozenset({x}) for x in sources]
    )
    mine = [[row for row in rows if row["source_key"] in part] for part in parts]
    leave = partial(_leave, kind, start)
    found: list[Outcome] = []
    with ExitStack() as stack:
        each: Iterable[list[Outcome]] = map(leave, parts, mine)
        if jobs > 1:
            spawned = stack.enter_context(ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")))
            each = spawned.map(leave, parts, mine)
        for part, outcomes in zip(parts, each, strict=True):
            found += outcomes
            if tick is not None:
                tick(", ".join(sorted(part)))
    return found


def _leave(kind: str, start: Fitted | None, gone: frozenset[str], rows: Sequence[Row]) -> list[Outcome]:
    """Return predictions for rows of publishers that are left out of the fits."""
    fit = fit_without(gone, start)
    found: list[Outcome] = []
    for row in rows:
        if kind == "training":
            found += training_outcomes(row, fit)[0]
        else:
            found += short_of_cache(row, fit) if STARVED in flags(row) else inference_outcomes(row, fit)
    return [replace(one, left_out=PUBLISHER) for one in found]


def short_of_cache(row: Row, fit: Fit) -> list[Outcome]:
    """Return the throughput outcomes of a run limited by KV cache capacity, in a regime of their own."""
    found = inference_outcomes(unstarved(row), fit)
    return [replace(one, regime=SHORT_OF_CACHE) for one in found if one.metric == "output_tokens_per_second"]


def fit_without(gone: frozenset[str], start: Fitted | None = None) -> Fit:
    """Return the constants without some publishers; those that rest on their rows are refitted, step times from `start`."""
    shipped = {name: list(catalogue.fit(name)) for name in catalogue.fits()}
    if any(gone & set(family.sources) for family in FAMILIES):
        shipped["training"] = fit_training(fit_families(_all(shipped).without(gone), start))
    elif any(gone & names_in(item.source) for item in shipped["training"] if item.name == UNTUNED):
        others = [item for item in shipped["training"] if item.name != UNTUNED]
        shipped["training"] = [*others, *fit_untuned(_all(shipped).without(gone))]
    if any(gone & names_in(item.source) for name in SERVING for item in shipped[name]):
        others = [item for name, found in shipped.items() if name not in SERVING for item in found]
        shipped |= fit_serving(others, gone)
    return _all(shipped).without(gone)


GROUPED = {
    "training": {"chip": STEP, "architecture": STEP, "software": STEP, "system": STEP},
    "inference": {"chip": PROMPTS, "architecture": "", "software": "", "system": ""},
}
"""By kind of run: what is left out in turn besides publishers, and the only figure that is scored, empty for all."""


def grouped(kind: str, whole: Steps, tick: Tick | None = None) -> list[Outcome]:
    """Return predictions for runs of a kind, with each chip, architecture, software and system left out of every fit in turn.

    `whole` is the fit of step times with all runs.
    """
    table = catalogue.training_rows() if kind == "training" else catalogue.inference_rows()
    seen = [one for one in validated(kind, table, whole.constants).outcomes if one.predicted and one.system]
    rows = {row["id"]: row for row in table}
    out = []
    for axis, figure in GROUPED[kind].items():
        mine, member = [one for one in seen if figure in {"", one.figure}], MEMBER[axis]
        for name in sorted({member(one) for one in mine}):
            if tick is not None:
                tick(f"{kind} {axis} {name}")
            fit = _fit_leaving(frozenset({f"{axis}:{name}"}), whole, kind)
            ids = dict.fromkeys(one.id for one in mine if member(one) == name)
            found = [one for identity in ids for one in _outcomes(kind, rows[identity], fit)]
            out += [replace(one, left_out=axis) for one in found if one.predicted and figure in {"", one.figure}]
    return out


def _outcomes(kind: str, row: Row, fit: Fit) -> list[Outcome]:
    return inference_outcomes(row, fit) if kind == "inference" else training_outcomes(row, fit)[0]


def _fit_leaving(gone: frozenset[str], whole: Steps, kind: str) -> Fit:
    """Return the constants refitted without some runs: those of training or serving, and of kernels where a device is left out."""
    shipped = {name: list(catalogue.fit(name)) for name in catalogue.fits()}
    every = kernel_rows()
    rows = [row for row in every if gone.isdisjoint(_device_names(row["device"]))]
    measured = len(rows) < len(every)
    if measured:
        for name, made_by in (("matmul", fit_matmul), ("grouped", fit_grouped)):
            shipped[name] = made_by(rows, _all(shipped))
        shipped["attention"] = fit_attention(rows)
    if kind == "training" and not measured and not seen_by_families(gone):
        return whole.constants.without(gone)
    if kind == "training":
        shipped["training"] = fit_training(fit_families(_all(shipped).without(gone), whole.fitted))
    else:
        others = [item for name, found in shipped.items() if name not in SERVING for item in found]
        shipped |= fit_serving(others, gone)
    return _all(shipped).without(gone)


def _device_names(device: str) -> set[str]:
    """Return the names whose exclusion leaves out a device's kernel tables."""
    return {f"chip:{device}", f"architecture:{catalogue.accelerator(device).architecture}"}


def _all(fits: dict[str, list[Constant]]) -> Fit:
    """Return the constants of all fits as one."""
    return Fit(tuple(item for found in fits.values() for item in found))


SERVING = ("engines", "reach", "prefill", "front", "power")
"""Fits that rest on serving runs."""


FIELDS = (
    *("left_out", "id", "source", "metric", "regime", "chip", "architecture", "precision", "kind", "family"),
    *(
        "software",
        "year",
        "measured",
        "ideal",
        "predicted",
        "grade",
        "constants",
        "new",
        "load",
        "assumed",
        "traits",
        "swing",
        "front",
        "shipped",
    ),
)
"""Columns of the stored outcomes: what was left out, the run, its system, figures in SI, the causes of error, and the prediction of the
shipped constants, whose fits included the row."""

PUBLISHERS = catalogue.ROOT / "measured" / "left-out.csv"

WORTH = catalogue.ROOT / "measured" / "worth.csv"
"""Errors of step times with one training number held at its prior: name, constants, error in sample and with publishers left out."""


def groups_file(kind: str) -> Path:
    """Return the file of runs that were left out by something other than their publisher."""
    return catalogue.ROOT / "measured" / f"left-out-{kind}.csv"


def beside_shipped(found: Iterable[Outcome], fit: Fit) -> list[Outcome]:
    """Return outcomes with the predictions of a fit that included the same rows."""
    tables = {"training": catalogue.training_rows(), "inference": catalogue.inference_rows()}
    seen = [one for kind, rows in tables.items() for one in validated(kind, rows, fit).outcomes]
    seen += [one for row in tables["inference"] if STARVED in flags(row) for one in short_of_cache(row, fit)]
    values = {(one.id, one.metric): one.predicted.value for one in seen if one.predicted is not None}
    return [replace(one, shipped=values.get((one.id, one.metric))) for one in found]


def save(found: Iterable[Outcome], place: Path) -> None:
    """Write the scored outcomes, so that reports and intervals need no refits."""
    with place.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(_row(one) for one in found if one.predicted is not None)


def _row(one: Outcome) -> dict[str, object]:
    p, doubt = one.predicted, (one.predicted.doubt if one.predicted else None) or Doubt()
    system = one.system or System("", "", "", "")
    return {
        **{name: getattr(one, name) for name in ("left_out", "id", "source", "metric", "regime", "chip", "software")},
        "year": one.year,
        **dict(zip(("architecture", "precision", "kind", "family"), system, strict=True)),
        "measured": f"{one.measured:.6g}",
        "ideal": "" if one.ideal is None else f"{one.ideal:.5g}",
        "predicted": "" if p is None else f"{p.value:.5g}",
        "grade": "" if p is None else p.grade,
        "constants": f"{doubt.constants:.4g}",
        "new": doubt.new,
        "load": doubt.load,
        "assumed": ";".join(f"{name}={size:.4g}" for name, size in doubt.assumed),
        "traits": ";".join(doubt.traits),
        "swing": f"{doubt.swing:.4g}" if doubt.swing else "",
        "front": f"{doubt.front:.4g}" if doubt.front else "",
        "shipped": "" if one.shipped is None else f"{one.shipped:.5g}",
    }


def kept(fit: Fit, place: Path = PUBLISHERS) -> list[Outcome]:
    """Return the stored outcomes, with intervals by the given fit; empty where the file does not exist."""
    if not place.exists():
        return []
    with place.open(newline="") as file:
        return [_outcome(row, fit) for row in csv.DictReader(file)]


def kept_groups(fit: Fit) -> list[Outcome]:
    """Return the stored outcomes of runs left out by something other than their publisher."""
    return [one for kind in GROUPED for one in kept(fit, groups_file(kind))]


def _outcome(row: dict[str, str], fit: Fit) -> Outcome:
    pairs = (one.partition("=") for one in row["assumed"].split(";") if one)
    assumed = tuple((name, float(size)) for name, _, size in pairs)
    figure, traits = FIGURE_OF[row["metric"]], tuple(filter(None, row["traits"].split(";")))
    swing, front = float(row["swing"] or 0.0), float(row.get("front") or 0.0)
    doubt = Doubt(float(row["constants"]), row["new"], row["load"], assumed, traits, swing, front)  # type: ignore[arg-type]
    known = sure(figure, row["grade"], doubt, fit)
    same = ("left_out", "id", "source", "metric", "regime", "chip", "software", "year")
    return Outcome(
        **{name: row[name] for name in same},
        measured=float(row["measured"]),
        ideal=float(row["ideal"]) if row["ideal"] else None,
        predicted=known.of(float(row["predicted"]), UNITS[row["metric"]]),
        system=System(row["architecture"], row["precision"], row["kind"], row["family"]),
        assumed=(*(name for name, _ in assumed), *((STAND_IN,) if STAND_IN in traits else ())),
        shipped=float(row["shipped"]) if row["shipped"] else None,
    )
