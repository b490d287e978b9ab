"""Refit every constant: ``python -m roofplan.calibrate``, then ``make docs``, which writes the index that they are read from."""

from __future__ import annotations

from typing import Any

from roofplan import catalogue
from roofplan.calibrate.fitting import write
from roofplan.calibrate.kernels import fit_all_reduce, fit_attention, fit_matmul, fit_vector, kernel_rows
from roofplan.timing import adopt


def main() -> None:
    """Refit every constant and write it; each fit rests on those before it."""
    from roofplan.calibrate.engines import fit_serving
    from roofplan.calibrate.intervals import fit_intervals
    from roofplan.calibrate.left_out import SERVING, beside_shipped, left_out, save
    from roofplan.calibrate.prices import fit_prices
    from roofplan.calibrate.training import fit_families, fit_training

    rows = kernel_rows()
    renew("matmul", fit_matmul(rows))
    renew("vector", fit_vector())
    renew("attention", fit_attention(rows))
    renew("collectives", fit_all_reduce(rows))
    whole = fit_families()
    renew("training", fit_training(whole))
    others = [item for name in catalogue.fits() if name not in SERVING for item in catalogue.fit(name)]
    for name, found in fit_serving(others).items():
        renew(name, found)
    renew("prices", fit_prices())
    # the errors of publishers left out, of which the intervals are learned
    held_out = [one for kind, table in TABLES.items() for one in left_out(kind, table, whole).outcomes]
    # spreads are told from intervals by the factors that made them, so the outcomes are written before those change
    save(beside_shipped(held_out))
    renew("intervals", fit_intervals(held_out))


TABLES = {"training": catalogue.training_rows(), "inference": catalogue.inference_rows()}
"""Published runs by kind."""


def renew(name: str, constants: list[dict[str, Any]]) -> None:
    """Write the constants of a fit, and let what follows rest on them."""
    write(name, constants)
    catalogue.fit.cache_clear()
    adopt(item for each in catalogue.fits() for item in catalogue.fit(each))


if __name__ == "__main__":
    main()
