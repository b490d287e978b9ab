"""Origins of the measurements that the constants were fitted on."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from roofplan import catalogue
from roofplan.evidence.inference import inference_case
from roofplan.evidence.predictions import fitted_on
from roofplan.evidence.rows import Skipped
from roofplan.evidence.training import training_case
from roofplan.records.calibration import Fit
from roofplan.records.system import Origin
from roofplan.timing.figures import FIGURE_OF, MEMORY, STEP


def origins(fit: Fit) -> list[tuple[str, Origin]]:
    """Return pairs of figure and origin, each once, for all publishers on whose rows the constants of `fit` rest."""
    publishers = {row["source_key"] for row in (*catalogue.inference_rows(), *catalogue.training_rows())}
    behind = {name for name in publishers if fitted_on(name, fit)}
    found = dict.fromkeys(one for one in _all() if one[1].source in behind)
    return sorted(found, key=lambda one: (one[0], one[1].source, one[1].chip, one[1].system))


def _all() -> Iterator[tuple[str, Origin]]:
    for row in catalogue.inference_rows():
        try:
            served = inference_case(row)
        except Skipped:
            continue
        yield from ((FIGURE_OF[name], served.origin) for name in served.measured)
    for row in catalogue.training_rows():
        try:
            run = training_case(row)
        except Skipped:
            continue
        figures = {STEP: run.rate, MEMORY: run.memory}
        yield from ((figure, run.origin) for figure, value in figures.items() if value is not None)


def save(fit: Fit, place: Path) -> None:
    """Write the origins in the format of the catalogue."""
    with place.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows((figure, one.source, one.chip, *one.system) for figure, one in origins(fit))
