"""The screens of ``roofplan calibrate``: a refit to the user's own runs, and the list of constants."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from roofplan.evidence.fits.own import Refit
from roofplan.evidence.rows import listed
from roofplan.present.screens.page import Page, counted, wrapped
from roofplan.records import units
from roofplan.records.calibration import OWN, Constant

SHOWN = 12
"""Constants that are listed, the largest change first; --json has all [1]."""


def refit_screen(found: Refit, place: Path | None, page: Page) -> None:
    """Print errors before and after a refit, the constants that moved, and where they are kept.

    Parameters
    ----------
    found : the refit and its errors.
    place : file of the profile, None where nothing was kept.
    page : where to print.
    """
    count = sum(found.skipped.values())
    skipped = f", {count:,} skipped ({listed(found.skipped)})" if count else ""
    for line in wrapped(
        f"{counted(found.rows, 'row')}: {counted(len(found.figures), 'figure')} used{skipped}", indent=2
    ):
        page.line(line)
    for line in (line for _, text in found.warnings for line in wrapped(f"  ! {text}", indent=4)):
        page.line(line)
    page.line("")
    page.line(f"{'median error':<30}{'figures':>8}{'shipped':>10}{'refitted':>10}{'held out':>10}")
    for job in dict.fromkeys(one.job for one in found.figures):
        mine = [place for place, one in enumerate(found.figures) if one.job == job]
        cells = "".join(f"{_median(errors[mine]):>10}" for errors in (found.before, found.after, found.held_out))
        page.line(f"  {job:<28}{len(mine):>8}{cells}")
    page.line("")
    page.line(f"{'constant':<58}{'shipped':>10}{'refitted':>10}{'doubt left':>12}")
    for one in found.moved[:SHOWN]:
        unit = "" if one.after.unit == "1" else f" [{one.after.unit}]"
        name = f"{one.after.law}.{one.after.name}{unit} for {one.after.scope}"
        page.line(f"  {name:<56}{one.before.value:>10.3g}{one.after.value:>10.3g}{one.doubt:>12.0%}")
    if len(found.moved) > SHOWN:
        page.line(f"  and {len(found.moved) - SHOWN} that moved less (--json)")
    page.line("")
    for line in wrapped(_where_kept(found, place), indent=2):
        page.line(line)


def _where_kept(found: Refit, place: Path | None) -> str:
    """Return whether and where the constants are kept."""
    if place is not None:
        sure = sum(item.law == OWN for item in found.constants)
        graded = f", and {sure} interval{'s' if sure != 1 else ''} of your own (grade m)" if sure else ""
        moved = counted(len(found.moved), "slowdown" if found.slowdown else "constant")
        return (
            f"kept in {place}: {moved}{graded}; every command rests on them from now on. ROOFPLAN_PROFILE=none leaves"
            " them out, roofplan calibrate --forget removes them"
        )
    if found.single and not found.moved:
        return "nothing is kept: this run adds nothing to what is known of its device"
    if found.single and not found.keeps:
        return "nothing is kept: a slowdown that brings one figure of this run nearer takes another further away"
    if not found.keeps:
        return (
            "nothing is kept: constants that other runs of yours moved predict a run no better than the shipped ones do, which"
            " therefore stay"
        )
    return "nothing is kept (--dry-run)"


def _median(errors: np.ndarray) -> str:
    known = errors[np.isfinite(errors)]
    return f"{np.median(np.abs(known)):.1%}" if known.size else "-"


def constants_screen(shipped: tuple[Constant, ...], own: tuple[Constant, ...], place: Path | None, page: Page) -> None:
    """Print the number of constants of each law and what they were fitted on, and the constants of the local profile.

    Parameters
    ----------
    shipped : the shipped constants.
    own : those of the local profile.
    place : file of the profile, None where profiles are left out.
    page : where to print.
    """
    page.line(
        f"{'law':<16}{'constants':>10}{'fitted':>10}{'guessed':>10}   fitted on, residuals of one standard deviation"
    )
    for law, count in Counter(item.law for item in shipped).items():
        mine = [item for item in shipped if item.law == law]
        fitted = [item for item in mine if item.rows]
        words = (
            f"up to {max(item.rows for item in fitted):,} rows, {np.median([i.spread for i in fitted]):.0%}"
            if fitted
            else ""
        )
        page.line(f"  {law:<14}{count:>10}{len(fitted):>10}{len(mine) - len(fitted):>10}   {words}")
    page.line("")
    if own:
        page.line(f"profile {place}")
        for item in own:
            page.line(
                f"  {item.law}.{item.name} for {item.scope}: {units.significant(item.value)}, {item.fitted}, {item.source}"
            )
    else:
        page.line(
            "no local profile: roofplan calibrate --with runs.csv makes one (columns as roofplan validate reads them)"
        )
