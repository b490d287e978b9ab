"""Refit every constant: ``python -m roofplan.evidence.fits``, then ``make docs``, which writes the index that they are read from.

Parts of it, each as ``python -m roofplan.evidence.fits PART``; kinds of runs are ``training`` and ``inference``, both unless named:

- ``constants``: those of training and serving, without kernels and prices; two minutes.
- ``folds [KIND...]``: errors with publishers left out in eight parts, printed and not kept; minutes.
- ``publishers [KIND...]``: errors with each publisher left out, and the intervals that they give; three quarters of an hour on two cores.
- ``groups [KIND...]``: the same with each chip, architecture, software and system left out; half an hour each.
- ``intervals``: only the intervals, to the errors that are kept.
- ``worth``: what each number of training contributes.
"""

from __future__ import annotations

import csv
import os
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
        save(grouped(kind, whole, _told), groups_file(kind))
    renew_intervals(catalogue.shipped_fit())


def tell_worth() -> None:
    """Write the errors of step times with each number of training held at its prior."""
    from roofplan.evidence.fits.left_out import WORTH
    from roofplan.evidence.fits.training import fit_families, worth

    found = worth(fit_families(catalogue.shipped_fit()), _told)
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


def refit(*, kernels: bool = True) -> None:
    """Refit and write the constants of training and serving, and those of kernels and prices before them; each fit builds on those before it."""
    from roofplan.evidence.fits.left_out import SERVING
    from roofplan.evidence.fits.prices import fit_prices
    from roofplan.evidence.fits.serving import fit_serving
    from roofplan.evidence.fits.training import fit_families, fit_training

    if kernels:
        rows, fit = kernel_rows(), catalogue.shipped_fit()
        fit = renewed("matmul", fit_matmul(rows, fit))
        fit = renewed("grouped", fit_grouped(rows, fit))
        renewed("vector", fit_vector())
        renewed("attention", fit_attention(rows))
        renewed("messages", fit_messages(rows))
        renewed("prices", fit_prices())
    # eager engines take launch times from training, and training takes the bandwidth of experts from serving
    for _ in range(2):
        fit = catalogue.shipped_fit()
        renewed("training", fit_training(fit_families(fit)))
        others = [item for name in catalogue.fits() if name not in SERVING for item in catalogue.fit(name)]
        for name, found in fit_serving(others).items():
            fit = renewed(name, found)
    origins.save(fit, catalogue.SYSTEMS)
    catalogue.forget_systems()


def leave_publishers_out(kinds: Sequence[str], jobs: int) -> None:
    """Write the errors of runs with their publisher left out, and refit the intervals to them; runs of other kinds keep theirs."""
    from roofplan.evidence.fits.left_out import PUBLISHERS, beside_shipped, kept, left_out, save
    from roofplan.evidence.fits.training import fit_families

    fit = catalogue.shipped_fit()
    start = fit_families(fit).fitted
    others = {row["id"] for kind, table in TABLES.items() if kind not in kinds for row in table}
    found = [one for one in kept(fit) if one.id in others]
    for kind in kinds:
        found += left_out(kind, TABLES[kind], start, jobs=jobs, tick=_told)
    save(beside_shipped(found, fit), PUBLISHERS)
    renew_intervals(fit)


def check_folds(kinds: Sequence[str], jobs: int) -> None:
    """Print the errors of runs with publishers left out in eight parts, in minutes: what a change of a law does."""
    from roofplan.evidence.fits.left_out import left_out
    from roofplan.evidence.fits.scoreboard import JOBS
    from roofplan.evidence.fits.training import fit_families
    from roofplan.evidence.scoring import score

    start = fit_families(catalogue.shipped_fit()).fitted
    found = [one for kind in kinds for one in left_out(kind, TABLES[kind], start, folds=FOLDS, jobs=jobs, tick=_told)]
    for job in JOBS:
        scored = score([one for one in found if job.keep(one)])
        if scored is not None:
            sys.stdout.write(
                f"{job.name:62s} {scored.sources:4d} publishers, mean {scored.macro:6.1%}, median {scored.middle:6.1%}, inside {scored.coverage:4.0%}\n"
            )


FOLDS = 8
"""Parts in which publishers are left out together for a quick check [1]."""


def _told(name: str) -> None:
    """Write what is done to standard error."""
    sys.stderr.write(f"{name}\n")


TABLES = {"training": catalogue.training_rows(), "inference": catalogue.inference_rows()}
"""Published runs by kind."""


def renewed(name: str, constants: list[Constant]) -> Fit:
    """Write the constants of a fit, and return all constants including them."""
    write(name, constants)
    catalogue.fit.cache_clear()
    return Fit(tuple(item for each in catalogue.fits() for item in catalogue.fit(each)))


def main() -> None:
    """Do what the command line asks for."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # processes share the cores
    jobs = os.cpu_count() or 1
    match sys.argv[1:]:
        case []:
            refit()
            leave_publishers_out(list(TABLES), jobs)
        case ["constants"]:
            refit(kernels=False)
        case ["publishers", *kinds]:
            leave_publishers_out(kinds or list(TABLES), jobs)
        case ["folds", *kinds]:
            check_folds(kinds or list(TABLES), jobs)
        case ["groups", *kinds]:
            leave_groups_out(kinds or list(TABLES))
        case ["worth"]:
            tell_worth()
        case ["intervals"]:
            renew_intervals(catalogue.shipped_fit())
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
