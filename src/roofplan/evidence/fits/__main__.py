"""Refit every constant: ``python -m roofplan.evidence.fits``, then ``make docs``, which writes the index that they are read from.

``python -m roofplan.evidence.fits worth`` measures what each number of training contributes. ``python -m roofplan.evidence.fits groups``
leaves out each chip, architecture, software and system in turn, for both kinds of runs or for those named, half an hour each. ``python -m
roofplan.evidence.fits intervals`` refits only the intervals, to the stored left-out runs.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence

from roofplan import catalogue
from roofplan.evidence import origins
from roofplan.evidence.fits.fitting import write
from roofplan.evidence.fits.kernels import fit_attention, fit_grouped, fit_matmul, fit_vector, kernel_rows
from roofplan.evidence.fits.messages import fit_messages
from roofplan.records.calibration import Constant, Fit


def leave_groups_out(kinds: Sequence[str]) -> None:
    """Write the errors of runs with their chip, architecture, software or system left out, and refit the intervals."""
    from roofplan.evidence.fits.left_out import grouped, groups_file, save
    from roofplan.evidence.fits.training import fit_families

    whole = fit_families(catalogue.shipped_fit())
    for kind in kinds:
        save(grouped(kind, whole, lambda name: sys.stderr.write(f"{name}\n")), groups_file(kind))
    renew_intervals(catalogue.shipped_fit())


def tell_worth() -> None:
    """Write the errors of step times with each number of training held at its prior."""
    from roofplan.evidence.fits.left_out import WORTH
    from roofplan.evidence.fits.training import fit_families, worth

    found = worth(fit_families(catalogue.shipped_fit()), lambda name: sys.stderr.write(f"{name}\n"))
    with WORTH.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows((name, count, f"{seen:.4f}", f"{unseen:.4f}") for name, count, seen, unseen in found)


def renew_intervals(fit: Fit) -> None:
    """Refit the intervals to the stored errors of left-out runs."""
    from roofplan.evidence.fits.intervals import fit_intervals
    from roofplan.evidence.fits.left_out import kept, kept_groups

    outcomes, groups = kept(fit), kept_groups(fit)
    if not outcomes:
        sys.exit("no left-out runs are kept here: python -m roofplan.evidence.fits makes them")
    renewed("intervals", fit_intervals(outcomes, groups, fit, catalogue.blind_rows()))


def main() -> None:
    """Refit and write all constants; each fit builds on those before it."""
    from roofplan.evidence.fits.left_out import PUBLISHERS, SERVING, beside_shipped, left_out, save
    from roofplan.evidence.fits.prices import fit_prices
    from roofplan.evidence.fits.serving import fit_serving
    from roofplan.evidence.fits.training import fit_families, fit_training

    rows, fit = kernel_rows(), catalogue.shipped_fit()
    fit = renewed("matmul", fit_matmul(rows, fit))
    fit = renewed("grouped", fit_grouped(rows, fit))
    fit = renewed("vector", fit_vector())
    fit = renewed("attention", fit_attention(rows))
    fit = renewed("messages", fit_messages(rows))
    fit = renewed("training", fit_training(fit_families(fit)))
    others = [item for name in catalogue.fits() if name not in SERVING for item in catalogue.fit(name)]
    for name, found in fit_serving(others).items():
        fit = renewed(name, found)
    # eager engines take launch times from training, and training takes the bandwidth of experts from serving
    whole = fit_families(fit)
    renewed("training", fit_training(whole))
    fit = renewed("prices", fit_prices())
    origins.save(fit, catalogue.SYSTEMS)
    catalogue.forget_systems()
    # the intervals are learned from errors with publishers left out
    held_out = [one for kind, table in TABLES.items() for one in left_out(kind, table, whole).outcomes]
    save(beside_shipped(held_out, fit), PUBLISHERS)
    renew_intervals(fit)


TABLES = {"training": catalogue.training_rows(), "inference": catalogue.inference_rows()}
"""Published runs by kind."""


def renewed(name: str, constants: list[Constant]) -> Fit:
    """Write the constants of a fit, and return all constants including them."""
    write(name, constants)
    catalogue.fit.cache_clear()
    return Fit(tuple(item for each in catalogue.fits() for item in catalogue.fit(each)))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["groups", *kinds]:
            leave_groups_out(kinds or list(TABLES))
        case ["worth"]:
            tell_worth()
        case ["intervals"]:
            renew_intervals(catalogue.shipped_fit())
        case _:
            main()
