"""The screen of ``roofplan measure machine``: what it attains, beside what it should, under which conditions."""

from __future__ import annotations

from roofplan.errors import unwrap
from roofplan.measure.machine.chip import Verdict
from roofplan.measure.machine.probe import Figure
from roofplan.observe import Attained
from roofplan.present.screens.page import Page, wrapped
from roofplan.records import units


def machine_screen(found: Attained, page: Page, out: str | None = None) -> None:
    """Write what a machine attains.

    Parameters
    ----------
    found : what it attains.
    page : where it is written.
    out : file that its chip was written to, None for none.
    """
    probe = found.probe
    name = probe.conditions.get("device") or probe.conditions["processor"]
    threads = f" · {probe.threads} thread{'s' if probe.threads > 1 else ''}" if probe.host else ""
    page.line(f"{name}{threads} · {probe.backend}")
    skipped = {"device", "processor", "threads"}
    told = " · ".join(f"{key} {text}" for key, text in probe.conditions.items() if key not in skipped)
    for line in wrapped(f"  {told}", indent=2):
        page.line(line)
    page.line()
    for number in probe.formats:
        _products(found, number, page)
    _memory(found, page)
    for one in probe.of("launch"):
        where = "in a captured graph" if one.about["captured"] else "each by itself"
        page.line(f"  {'launch':10s}{units.show(one.best, 's')} between small kernels, {where}")
    for link in probe.links:
        line = f"{units.show(link.alpha, 's')} + bytes / {units.show(link.beta, 'B/s')}, worst {link.worst:.0%} off"
        page.line(f"  {'link':10s}{link.name}: {line}")
    if probe.drop is not None:
        page.line(_sustained(found))
    _judged(found, page)
    page.line()
    if out is not None:
        page.line(f"wrote {out}: roofplan serve MODEL --on {out}:1")
        return
    page.line("the chip, to keep with --out chip.toml:")
    for line in found.chip.splitlines():
        page.line(f"  {_cut(line)}")


def _cut(line: str) -> str:
    """Return a line of the chip's file, of which a long one only begins."""
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


def _judged(found: Attained, page: Page) -> None:
    """Write attained rates beside their expectations, and what makes figures doubtful."""
    page.line()
    for place, verdict in enumerate(one for one in found.verdicts if one.verdict):
        for line in wrapped(f"  {'' if place else 'beside':10s}{_beside(verdict)}", indent=12):
            page.line(page.paint(line, "warning") if verdict.verdict == "low" else line)
    alone = [one.figure for one in found.verdicts if not one.verdict]
    if alone:
        how = "" if found.probe.host else "; --like ID names a device of the catalogue"
        for line in wrapped(f"  {'':10s}nothing to compare with: {', '.join(alone)}{how}", indent=12):
            page.line(line)
    for note in found.probe.notes:
        for line in wrapped(f"  ! {note}", indent=4):
            page.line(page.paint(line, "warning"))


LONGEST = 96
"""Longest line of a chip that the screen shows whole [1]."""


def _products(found: Attained, number: str, page: Page) -> None:
    """Write the fastest product of a format, and the skinny ones by their rows."""
    best = found.probe.product(number)
    if best is None:
        return
    shape = "x".join(str(best.about[axis]) for axis in "mkn")
    page.line(f"  {number:10s}{_rate(best)} at {shape}, {_kept(best)}")
    skinny = sorted(found.probe.of("skinny", format=number), key=lambda one: int(one.about["m"]))
    if skinny:
        rows = " · ".join(f"{one.about['m']}: {units.significant(one.best / 1e9)}" for one in skinny)
        inputs, outputs = skinny[0].about["k"], skinny[0].about["n"]
        for line in wrapped(
            f"  {'':10s}GFLOPS of m rows with {inputs} x {outputs} weights beyond caches: {rows}", indent=12
        ):
            page.line(line)


def _memory(found: Attained, page: Page) -> None:
    reads = sorted(found.probe.of("read"), key=lambda one: int(one.about["size"]))
    if reads:
        last = reads[-1]
        page.line(f"  {'memory':10s}{_rate(last)} read of {units.show(last.about['size'], 'B')}, {_kept(last)}")
        by = " · ".join(f"{units.show(one.about['size'], 'B')}: {units.significant(one.best / 1e9)}" for one in reads)
        for line in wrapped(f"  {'':10s}GB/s by size: {by}", indent=12):
            page.line(line)
    for one in found.probe.of("copy"):
        page.line(f"  {'':10s}{_rate(one)} read and written by copies")


def _sustained(found: Attained) -> str:
    probe = found.probe
    rates = [one["rate"] for one in probe.sustained]
    lost = f"{probe.drop:.0%} slower at its end" if unwrap(probe.drop) > 0.0 else "no slower at its end"
    hot = probe.sustained[-1].get("temperature") or ""
    more = f", {hot} C" if hot else ""
    return f"  {'sustained':10s}{units.show(max(rates), 'FLOP/s')} at best over {len(rates)} s, {lost}{more}"


def _rate(one: Figure) -> str:
    return f"{units.show(one.best, one.unit)} (median {units.significant(one.median / one.best * 100, 2)}%)"


def _kept(one: Figure) -> str:
    return f"{one.kept} of {one.windows} windows ours"


def _beside(one: Verdict) -> str:
    best = "" if one.published is None else f", {one.attained / one.published:.0%} of the best published"
    why = f": {one.why}" if one.why else ""
    sheet = (
        ""
        if one.sheet is None
        else f"{one.attained / one.sheet:.0%} of {units.show(one.sheet, one.unit)} [{one.source}]"
    )
    return f"{one.figure}: {one.verdict}, {sheet}{best}{why}"
