"""The screen of ``roofplan benchmarks``: one table a task and scenario, ranks, predictions, and where ranks flip."""

from __future__ import annotations

import re

from roofplan.errors import unwrap
from roofplan.evidence.benchmarks import CITATION, Benchmarks, Board, Result
from roofplan.present.screens.page import LETTER, Page, wrapped
from roofplan.records import units

FLIPS = 12
"""Flips that the screen shows; JSON has all [1]."""


def benchmarks_screen(found: Benchmarks, page: Page) -> None:
    """Write the chosen results.

    Parameters
    ----------
    found : the results.
    page : where they are written.
    """
    if not found.results:
        page.line("no published result is left by these filters")
        return
    for board in found.boards:
        _board(board, page)
    inside, judged = found.judged
    if judged:
        said = f"{inside} of {judged} systems of an unambiguous layout are predicted with the published figure inside (fp8 cache, mean prompts a range)"
        faster = f"; in the median they are {found.faster:.2f} times as fast as predicted" if found.faster else ""
        for line in wrapped(said + faster, indent=2):
            page.line(line)
    reasons = dict.fromkeys(one.why for one in found.results if one.why)
    for place, why in enumerate(reasons):
        count = sum(one.why == why for one in found.results)
        for line in wrapped(f"{'not predicted: ' if not place else '':15s}{count} x {why}", indent=17):
            page.line(page.paint(line, "dim"))
    for place, flip in enumerate(found.flips[:FLIPS]):
        page.line(f"{'ranks flip: ' if not place else '':12s}{flip}")
    if len(found.flips) > FLIPS:
        page.line(f"{'':12s}and {len(found.flips) - FLIPS} more, in --json")
    page.line()
    for line in wrapped(f"{CITATION}. Rounds and entries: --json, --csv", indent=0):
        page.line(page.paint(line, "dim"))


def _board(board: Board, page: Page) -> None:
    """Write one task and scenario, the best result of each accelerator a line."""
    page.line(page.paint(f"{board.task} · {board.scenario} · {board.category}", "bold"))
    times = all(one.unit == "ms" for one in board.results)
    each = "ms" if times else "tok/s each"
    heads = f"{each:>10}{'rank':>5}{'per USD':>9}{'rank':>5}{'per J':>7}"
    page.line(f"  {'accelerators':22}{'round':6}{'weights':8}{heads}   predicted each, 90%")
    for one in board.results:
        page.line(_row(one, board))
    page.line()


BRAND = re.compile(r"^(?:AMD Instinct|NVIDIA|Intel|\[\w+\])\s+(?:MS-Intel\s+)?")
"""Makers' names, without which accelerators that the catalogue lacks are told apart by what fits their column."""


def _row(one: Result, board: Board) -> str:
    ranks = board.ranks.get(one.named, {})
    count = "" if one.accelerators is None else f"{one.accelerators} x "
    value = one.value if one.per_accelerator is None else one.per_accelerator
    dollar = "-" if one.per_dollar is None else f"{one.per_dollar / 1e6:.2f}M"
    watt = "-" if one.per_watt is None else units.significant(one.per_watt)
    places = [str(ranks[by]) if by in ranks else "-" for by in ("device", "USD")]
    named = (count + BRAND.sub("", one.named))[:21]
    text = f"  {named:22}{one.round:6}{one.weights[:7]:8}{units.significant(value):>10}{places[0]:>5}{dollar:>9}{places[1]:>5}{watt:>7}"
    if one.predicted is None:
        return text
    p, n = one.predicted, unwrap(one.accelerators)
    inside = "inside" if one.inside else "OUTSIDE"
    ends = f"[{units.significant(p.low / n, 2)}, {units.significant(p.high / n, 2)}]"
    layout = "" if p.unambiguous else ", layout ours"
    return f"{text}   {units.significant(p.value / n)} {ends} {LETTER[p.grade]} {inside}{layout}"
