"""The table of ``roofplan claims``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from roofplan.evidence.claims import Outcome
from roofplan.present.screens.page import Page, wrapped
from roofplan.records import units

_COLUMNS = (44, 11, 12, 19, 12)


def claims_screen(results: Sequence[Outcome], page: Page) -> None:
    """Print one row per claim, and the count of each verdict.

    Parameters
    ----------
    results : claims with their computed verdicts.
    page : where to print.
    """
    page.line(
        f"  {'claim':<{_COLUMNS[0]}}{'article':>{_COLUMNS[1]}}{'its inputs':>{_COLUMNS[2]}}  {'verdict':<{_COLUMNS[3]}}{'corrected':>{_COLUMNS[4]}}"
    )
    for result in results:
        claim = result.claim
        page.line(
            f"  {_cut(claim.says):<{_COLUMNS[0]}}{_figure(claim.claimed):>{_COLUMNS[1]}}{_figure(result.with_its_inputs):>{_COLUMNS[2]}}  "
            f"{result.computed_verdict:<{_COLUMNS[3]}}{_figure(result.ours):>{_COLUMNS[4]}} {claim.unit}"
        )
        if not result.follows:
            page.line(page.paint(f"      recorded as {claim.verdict!r}: it no longer follows", "warning"))
        if len(results) <= 40 and claim.command:
            page.line(f"      measured by: {claim.command}")
        if len(results) <= 40 and claim.why:
            for line in wrapped(claim.why, indent=6, first=6):
                page.line(page.paint(line, "dim"))
    counted = Counter(result.computed_verdict for result in results)
    page.line()
    page.line(f"{len(results)} claims: " + ", ".join(f"{verdict} {n}" for verdict, n in counted.most_common()))


def _cut(text: str) -> str:
    """Return a text that fits its column, cut behind a word."""
    most = _COLUMNS[0] - 1
    return text if len(text) <= most else f"{text[: most - 3].rsplit(' ', 1)[0]}..."


def _figure(value: float | None) -> str:
    return "-" if value is None else units.significant(value)
