"""Fits to a few publishers at a time, whose constants may not move in a refactor: ``python tests/small_fits.py`` records them anew."""

import json
from dataclasses import replace
from pathlib import Path

from roofplan import catalogue

FILE = Path(__file__).parent / "replay" / "fits.json"
PARTS = 9
"""Shares of the publishers of each kind of runs."""
FITTED = range(0, PARTS, 2)
"""The shares that are fitted."""
RESERVED = {"torchtitan", "fsdp-qlora"}
"""Publishers of reserved memory, without whom nothing is known of it."""
NAMES = ("serving", "training", "intervals")


def share(rows, part):
    """Return the publishers of every ninth part, and all others."""
    names = sorted({row["source_key"] for row in rows})
    return names[part::PARTS], frozenset(names) - set(names[part::PARTS])


def made(name, part):
    """Return the constants of a small fit."""
    from roofplan.evidence.fits.intervals import fit_intervals
    from roofplan.evidence.fits.left_out import SERVING, kept, kept_groups
    from roofplan.evidence.fits.serving import fit_serving
    from roofplan.evidence.fits.training import fit_families, fit_training

    fit = catalogue.shipped_fit()
    if name == "serving":
        others = [item for each in catalogue.fits() if each not in SERVING for item in catalogue.fit(each)]
        _, gone = share(catalogue.inference_rows(), part)
        return [item for items in fit_serving(others, gone).values() for item in items]
    mine, gone = share(catalogue.training_rows(), part)
    if name == "training":
        return fit_training(fit_families(replace(fit, excluded=gone - RESERVED)))
    mine += share(catalogue.inference_rows(), part)[0]
    return fit_intervals(
        *([one for one in found if one.source in mine] for found in (kept(fit), kept_groups(fit))),
        fit,
        catalogue.blind_rows(),
    )


def figures(constants):
    """Return the value, the spread, the rows and the kind of each constant by its name."""
    return {
        f"{one.law} {one.name} {one.scope}": [float(f"{one.value:.6g}"), float(f"{one.spread:.6g}"), one.rows, one.kind]
        for one in constants
    }


if __name__ == "__main__":
    found = {f"{name} {part}": figures(made(name, part)) for name in NAMES for part in FITTED}
    lines = (f"{json.dumps(name)}: {json.dumps(each)}" for name, each in found.items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
