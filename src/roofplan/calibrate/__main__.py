"""Refit every constant: ``python -m roofplan.calibrate``, then ``make docs``, which writes the index that they are read from.

``python -m roofplan.calibrate groups`` leaves out each chip and each software in turn.
"""

from __future__ import annotations

import sys
from typing import Any

from roofplan import catalogue
from roofplan.calibrate.fitting import write
from roofplan.calibrate.kernels import fit_attention, fit_grouped, fit_matmul, fit_vector, kernel_rows
from roofplan.calibrate.messages import fit_messages
from roofplan.records.calibration import Fit


def leave_groups_out() -> None:
    """Write the errors of runs whose chip or software no constant saw: an hour of fits, for docs/accuracy.md alone."""
    from roofplan.calibrate.left_out import groups, save_groups
    from roofplan.calibrate.training import fit_families

    save_groups(groups(fit_families(catalogue.shipped_fit()), lambda name: sys.stderr.write(f"{name}\n")))


def main() -> None:
    """Refit every constant and write it; each fit rests on those before it."""
    from roofplan.calibrate.engines import fit_serving
    from roofplan.calibrate.intervals import fit_intervals
    from roofplan.calibrate.left_out import SERVING, beside_shipped, left_out, save
    from roofplan.calibrate.prices import fit_prices
    from roofplan.calibrate.training import fit_families, fit_training

    rows, fit = kernel_rows(), catalogue.shipped_fit()
    fit = renewed("matmul", fit_matmul(rows, fit))
    fit = renewed("grouped", fit_grouped(rows, fit))
    fit = renewed("vector", fit_vector())
    fit = renewed("attention", fit_attention(rows))
    fit = renewed("messages", fit_messages(rows))
    whole = fit_families(fit)
    fit = renewed("training", fit_training(whole))
    others = [item for name in catalogue.fits() if name not in SERVING for item in catalogue.fit(name)]
    for name, found in fit_serving(others).items():
        renewed(name, found)
    fit = renewed("prices", fit_prices())
    # the errors of publishers left out, of which the intervals are learned
    held_out = [one for kind, table in TABLES.items() for one in left_out(kind, table, whole).outcomes]
    # spreads are told from intervals by the factors that made them, so the outcomes are written before those change
    save(beside_shipped(held_out, fit), fit)
    renewed("intervals", fit_intervals(held_out, fit))


TABLES = {"training": catalogue.training_rows(), "inference": catalogue.inference_rows()}
"""Published runs by kind."""


def renewed(name: str, constants: list[dict[str, Any]]) -> Fit:
    """Write the constants of a fit, and return all constants with them: what follows rests on those."""
    write(name, constants)
    catalogue.fit.cache_clear()
    return Fit(tuple(item for each in catalogue.fits() for item in catalogue.fit(each)))


if __name__ == "__main__":
    leave_groups_out() if sys.argv[1:] == ["groups"] else main()
