"""The screen of ``roofplan measure memory``: an engine's start-up log beside our ledger."""

from __future__ import annotations

from roofplan.evidence.startup import Explained, Line
from roofplan.present.screens.page import Page, wrapped


def memory_screen(found: Explained, page: Page) -> None:
    """Write a start-up log beside our ledger.

    Parameters
    ----------
    found : the log, explained.
    page : where it is written.
    """
    started = found.started
    version = f" {started.word('version')}" if started.word("version") else ""
    ranks = f" · TP {found.tensor}" + (f" PP {found.pipeline}" if found.pipeline > 1 else "")
    page.line(f"{started.engine}{version} · {found.model.id}{ranks}")
    if started.failure is not None:
        failure = started.failure
        for text in wrapped(f"  line {failure.line}: {failure.says}", indent=4):
            page.line(page.paint(text, "warning"))
        for place, flag in enumerate(failure.helps):
            page.line(f"  {'what helps' if not place else '':12}{flag}")
    page.line()
    page.line(f"  {'':14}{'line':>5}{'log':>20}{'ours':>20}")
    for one in found.lines:
        page.line(_row(one, page))
        for text in wrapped(f"{'':16}{one.how}", indent=16) if one.exact is not None else []:
            page.line(page.paint(text, "dim"))
    if found.notes:
        page.line()
    for note in found.notes:
        for line in wrapped(f"  {note}", indent=4):
            page.line(line)


def _row(one: Line, page: Page) -> str:
    """Return a figure as a line; one that must agree to the digit says whether it does."""
    line = "" if one.line is None else str(one.line)
    text = f"  {one.name:14}{line:>5}{_shown(one.printed, one):>20}{_shown(one.ours, one):>20}"
    if one.exact is None:
        return f"{text}   {one.ours / one.printed - 1.0:+.1%}" if one.printed and one.ours else text
    if one.exact:
        return f"{text}   exact, within the digits printed"
    low, high = _shown(one.low, one), _shown(one.high, one)
    return page.paint(
        f"{text}   NOT {f'between {low} and {high}' if one.high is not None else f'at least {low}'}", "warning"
    )


def _shown(value: float | None, one: Line) -> str:
    if value is None:
        return "-"
    if one.unit == "B":
        return f"{value / 2**30:.3f} GiB"
    return f"{value:.2f}x" if one.unit == "1" else f"{value:,.0f} {one.unit}s"
