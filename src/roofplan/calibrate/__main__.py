"""Refit every constant: ``python -m roofplan.calibrate``, then ``make docs``, which writes the index that they are read from."""

from __future__ import annotations

from roofplan import catalogue
from roofplan.calibrate.fitting import write
from roofplan.calibrate.kernels import fit_all_reduce, fit_attention, fit_matmul, fit_vector, kernel_rows


def main() -> None:
    """Refit every constant and write it."""
    from roofplan.calibrate.engines import fit_engines, fit_power, fit_prefill
    from roofplan.calibrate.intervals import fit_intervals
    from roofplan.calibrate.left_out import left_out, save
    from roofplan.calibrate.prices import fit_prices
    from roofplan.calibrate.training import fit_training

    rows = kernel_rows()
    write("matmul", fit_matmul(rows))
    write("vector", fit_vector())
    write("attention", fit_attention(rows))
    write("collectives", fit_all_reduce(rows))
    write("power", fit_power())
    write("engines", fit_engines())
    write("prefill", fit_prefill())
    write("training", fit_training())
    write("prices", fit_prices())
    # the errors of publishers left out, of which the intervals are learned
    catalogue.fit.cache_clear()
    found = [left_out("training", catalogue.training_rows()), left_out("inference", catalogue.inference_rows())]
    save(found)
    write("intervals", fit_intervals([one for validation in found for one in validation.outcomes]))


if __name__ == "__main__":
    main()
