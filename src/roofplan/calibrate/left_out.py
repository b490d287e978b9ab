"""Predictions of every publisher's runs with constants that were fitted without them."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from typing import Any

from roofplan import catalogue, codec
from roofplan.calibrate.engines import fit_engines, fit_power, fit_prefill
from roofplan.calibrate.training import FAMILIES, Family, family_entries, fit_reserved, lent_entries, scope_of
from roofplan.records.calibration import Constant
from roofplan.search import Metric, interval_factor
from roofplan.timing import using
from roofplan.validation.predictions import inference_outcomes, training_outcomes
from roofplan.validation.rows import Row
from roofplan.validation.scoring import UNITS, Outcome, Validation, job_of

Tick = Callable[[str], None]


def left_out(kind: str, rows: Sequence[Row], tick: Tick | None = None) -> Validation:
    """Return runs of a kind beside predictions, each publisher's by constants that were fitted without its rows."""
    out = Validation(kind=kind, rows=len(rows))
    for source in dict.fromkeys(row["source_key"] for row in rows):
        if tick is not None:
            tick(source)
        mine = [row for row in rows if row["source_key"] == source]
        with using(constants_without(source), without=[source]):
            for row in mine:
                if kind == "inference":
                    out.outcomes += inference_outcomes(row)
                else:
                    found, judged = training_outcomes(row)
                    out.outcomes += found
                    out.memory += [judged] if judged is not None else []
    return out


def constants_without(source: str) -> tuple[Constant, ...]:
    """Return all constants, those that rest on a publisher's rows fitted anew without them."""
    shipped = {name: list(catalogue.fit(name)) for name in catalogue.fits()}
    if any(source in item.source for name in ("engines", "prefill", "power") for item in shipped[name]):
        gone = frozenset({source})
        shipped["engines"] = _constants(fit_engines(gone))
        kept = [item for found in shipped.values() for item in found]
        with using(kept, without=[source]):
            shipped["prefill"], shipped["power"] = _constants(fit_prefill(gone)), _constants(fit_power(gone))
    touched = [family for family in FAMILIES if source in family.sources]
    if touched:
        shipped["training"] = _training_without(source, touched, shipped["training"])
    return tuple(item for found in shipped.values() for item in found)


def _training_without(source: str, touched: Sequence[Family], shipped: Sequence[Constant]) -> list[Constant]:
    """Return the constants of training without a publisher: families of its runs alone are gone, others fitted on the rest."""
    own = {scope_of(family) for family in FAMILIES}
    gone = {scope_of(family) for family in touched}
    lent = {item.scope for item in shipped if item.note == "borrowed by what has no runs"}
    kept = [item for item in shipped if item.law == "training" and item.scope in own - gone]
    fresh: list[dict[str, Any]] = []
    for family in touched:
        rest = [name for name in family.sources if name != source]
        if rest:
            fresh += family_entries(family, rest)
    others = [
        item
        for item in shipped
        if item.law != "allocator"
        and not (item.law == "training" and (item.scope in own or item.scope in lent))
        and not (item.law == "nccl" and item.scope in gone)
    ]
    tables = [_table(item) for item in kept]
    lending = lent_entries([*tables, *fresh])
    reserved = fit_reserved(frozenset({source}))
    return [*others, *kept, *_constants([*fresh, *lending, *reserved])]


def _table(item: Constant) -> dict[str, Any]:
    """Return a constant as a catalogue's entry."""
    return {name: getattr(item, name) for name in Constant.__dataclass_fields__}


def _constants(entries: Sequence[dict[str, Any]]) -> list[Constant]:
    return list(codec.constants({"constant": list(entries)}))


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
)
"""Columns of the kept outcomes; figures in SI."""

FILE = catalogue.ROOT / "measured" / "left-out.csv"


def save(found: Sequence[Validation]) -> None:
    """Write the scored outcomes, so that pages and intervals need no fits."""
    with FILE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        for one in (one for validation in found for one in validation.outcomes):
            p = one.predicted
            if p is not None:
                words = [one.id, one.source, one.metric, one.regime, one.chip, one.software, one.year]
                ideal = "" if one.ideal is None else f"{one.ideal:.5g}"
                writer.writerow([*words, f"{one.measured:.6g}", ideal, f"{p.value:.5g}", f"{one.spread:.4g}", p.grade])


def kept() -> list[Outcome]:
    """Return the outcomes as they were written."""
    with FILE.open(newline="") as file:
        return [_outcome(row) for row in csv.DictReader(file)]


def _outcome(row: dict[str, str]) -> Outcome:
    value = float(row["predicted"])
    wide = math.exp(float(row["spread"]) * interval_factor(job_of(row["metric"], row["regime"])))
    return Outcome(
        **{name: row[name] for name in ("id", "source", "metric", "regime", "chip", "software", "year")},  # type: ignore[arg-type]
        measured=float(row["measured"]),
        ideal=float(row["ideal"]) if row["ideal"] else None,
        predicted=Metric(value, value / wide, value * wide, UNITS[row["metric"]], row["grade"]),
    )
