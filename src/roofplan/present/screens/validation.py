"""The table of ``roofplan validate``: errors of predictions against measured runs, source by source."""

from __future__ import annotations

from collections.abc import Iterator

from roofplan.evidence.rows import listed
from roofplan.evidence.scoring import Score, Validation
from roofplan.present.screens.page import Page, counted, wrapped

TITLES = {
    "tokens_per_second_per_device": "step time, as tokens/s of a device",
    "memory": "peak memory of the fullest device",
    "tpot": "time per output token",
    "ttft": "time to the first token",
    "output_tokens_per_second": "output tokens/s",
    "prefill_tokens_per_second": "prompt tokens/s",
}
"""Names of metrics in the table."""

SHOWN = 6
"""Reasons for skipped rows that are printed; --csv and --json have all [1]."""


def percent(share: float, digits: int = 0) -> str:
    """Return ``12.3%``, or ``> 9999%`` of what is absurd."""
    return f"{share:.{digits}%}" if share < 99.99 else "> 9999%"


def validation_screen(found: Validation, page: Page) -> None:
    """Print what was scored and skipped, and the errors by metric and source.

    Parameters
    ----------
    found : predictions and measurements.
    page : where to print.
    """
    why, count = listed(found.skipped, SHOWN), sum(found.skipped.values())
    skipped = f", {count:,} skipped ({why}; each in --csv FILE)" if count else ""
    for line in wrapped(f"{counted(found.rows, 'row')}: {found.scored:,} scored{skipped}", indent=2):
        page.line(line)
    for line in (line for _, text in found.warnings for line in wrapped(f"  ! {text}", indent=4)):
        page.line(page.paint(line, "warning"))
    beyond = [outcome for outcome in found.outcomes if outcome.implausible]
    for outcome in beyond[:SHOWN]:
        page.line(f"  ! {outcome.id}: {outcome.metric} is not plausible; {outcome.implausible}")
    if len(beyond) > SHOWN:
        page.line(f"  ! and {len(beyond) - SHOWN} more that are not plausible (--csv FILE)")
    whole, bare = found.summary(), found.without_assumed()
    for name, one in whole.items():
        page.line()
        for line in _metric(found, name, one, bare.get(name)):
            page.line(line)
    for line in _order_and_memory_lines(found):
        page.line(line)
    if found.in_sample:
        page.line("* constants were fitted on rows of this source: its errors are in sample")


def _metric(found: Validation, name: str, whole: Score, bare: Score | None) -> Iterator[str]:
    """Yield the table of one metric."""
    yield f"{TITLES[name]:<44}{'rows':>6}{'median':>9}{'p90':>8}{'in interval':>13}{'one constant a chip':>21}"
    floors = found.floor(name)
    for source, by in found.by_source().items():
        if name not in by:
            continue
        one = by[name]
        floor = f"{floors[source]:.0%}" if source in floors else "-"
        mark = "*" if source in found.in_sample else ""
        yield f"  {source + mark:<42}{one.rows:>6}{percent(one.median, 1):>9}{percent(one.p90):>8}{one.coverage:>13.0%}{floor:>21}"
    floor = f"{sum(floors.values()) / len(floors):.0%}" if floors else "-"
    yield f"  {'mean of sources':<42}{whole.rows:>6}{percent(whole.macro, 1):>9}{percent(whole.p90):>8}{whole.coverage:>13.0%}{floor:>21}"
    if bare is None:
        yield "  of every row something was assumed (--csv FILE says what)"
    elif bare.rows < whole.rows:
        yield f"  {'of which nothing was assumed':<42}{bare.rows:>6}{percent(bare.macro, 1):>9}{percent(bare.p90):>8}{bare.coverage:>13.0%}"
    for regime, one in found.by_regime().get(name, {}).items():
        yield f"    {regime:<40}{one.rows:>6}{percent(one.macro, 1):>9}{percent(one.p90):>8}{one.coverage:>13.0%}"


def _order_and_memory_lines(found: Validation) -> Iterator[str]:
    """Yield the rank correlation within sweeps, and the predictions of whether runs fit."""
    sweeps = found.sweeps()
    if sweeps:
        yield ""
        yield f"order inside sweeps{'runs':>47}{'rank correlation':>20}"
        for name, (count, value) in sweeps.items():
            yield f"  {name:<58}{count:>6}{value:>20.2f}"
    if found.memory:
        judged = found.confusion()
        yield ""
        yield f"memory{'judged to fit':>44}{'judged not to':>16}"
        for name, word in (("ran", "ran"), ("out_of_memory", "ran out of memory")):
            yield f"  {word:<34}{judged[name]['fits']:>14}{judged[name]['does_not_fit']:>16}"
        yield ""
