"""The screens of ``roofplan measure`` and ``roofplan runs``: what was seen, and what is predicted for it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from roofplan.errors import unwrap
from roofplan.evidence.beside import Beside, Compared, warnings_of
from roofplan.load.statistics import QUANTILES
from roofplan.measure.ledger import Kept
from roofplan.measure.stability import Stability
from roofplan.observe import Probed
from roofplan.present.screens.load import COLUMN, TITLES
from roofplan.present.screens.page import LETTER, WIDTH, Page, wrapped
from roofplan.records import units

NAMES = {**TITLES, "itl": ("ITL", "ms", 1e3)}
"""Figure -> its name, its unit, and that unit in seconds."""


def measure_screen(found: Beside, page: Page) -> None:
    """Write what users of an endpoint felt, and what is predicted for the same load.

    Parameters
    ----------
    found : the run and its prediction.
    page : where it is written.
    """
    run, seen = found.run, found.seen
    server = run.server
    given = (
        seen.asked_input if seen.input is None else seen.input,
        seen.asked_output if seen.output is None else seen.output,
    )
    lengths = f"{given[0]:,.0f} in, {given[1]:,.0f} out"
    done = f"{seen.answered:,} of {run.planned:,} requests answered in {units.show(seen.seconds, 's')}"
    for line in wrapped(" · ".join(filter(None, (server.url, server.software, server.model))), indent=2):
        page.line(line)
    for line in wrapped(f"  {run.load} · {lengths} · {done}", indent=2) if run.load else []:
        page.line(line)
    for rate in seen.others:
        page.line(f"  {rate.name}: {units.show(rate.value, rate.unit)}")
    if found.figures:
        page.line()
        felt = found.felt
        if felt is not None:
            plan = felt.plan
            planned = f"{plan.model.id} · {plan.machine.count} x {plan.machine.device.id} · {plan.engine.id} · {plan.strategy.label()}"
            page.line(f"  predicted for {planned}, under this load")
        beside = "   predicted mean, 90%" if felt is not None else ""
        page.line(" " * 9 + "".join(name.rjust(COLUMN) for name in ("mean", *QUANTILES)) + beside)
        for one in found.figures:
            page.line(_row(one))
        if any(one.measured.few for one in found.figures):
            page.line("  *  too few requests for this percentile")
    page.line()
    for line in _below(found, page):
        page.line(line)


def _row(one: Compared) -> str:
    """Return a figure in a line."""
    title, unit, scale = NAMES[one.name]
    of = one.measured
    cells = [units.significant(unwrap(of.summary.mean) * scale)]
    told = {k: f"{units.significant(v * scale)}{'*' if k in of.few else ''}" for k, v in of.summary.quantiles.items()}
    cells += [told.get(name, "-") for name in QUANTILES]
    text = f"  {title + ' ' + unit:7s}" + "".join(cell.rjust(COLUMN) for cell in cells)
    if one.predicted is None:
        return text
    p = one.predicted
    span = f"[{units.significant(p.low * scale, 2)}, {units.significant(p.high * scale, 2)}]"
    inside = "inside" if one.inside else "OUTSIDE"
    return f"{text}   {units.significant(p.value * scale)} {span} {LETTER[p.grade]} {inside}: {one.binds}"


def _below(found: Beside, page: Page) -> list[str]:
    run, seen = found.run, found.seen
    rate = f"{units.significant(seen.requests_per_second)} req/s, {units.significant(seen.output_tokens_per_second)} tok/s out"
    cached = f" · {seen.cached:.0%} of prompts cached" if seen.cached is not None else ""
    lines = [f"  in all    {rate}{cached}"] if seen.answered or seen.failed else []
    for place, limit in enumerate(found.objectives):
        title, unit, scale = NAMES[limit.figure]
        value = found.at(limit)
        shown = "not seen" if value is None else f"{units.significant(value * scale)} {unit}"
        held = "inside" if found.holds(limit) else "MISSES"
        heading = "" if place else "limits"
        lines.append(
            f"  {heading:10s}{title} {limit.percentile} {shown}, {held} {units.significant(limit.limit * scale)} {unit}"
        )
    if found.good is not None:
        lines.append(f"  goodput   {found.good:.1%} of all requests inside all limits")
    for place, (reason, count) in enumerate(seen.failed.items()):
        text = f"  {'' if place else 'failed':10s}{count:,} {reason}: {seen.messages[reason]}"
        lines += [page.paint(line, "warning") for line in wrapped(text, indent=12)]
    lines += (
        [
            page.paint(
                f"  {'stopped':10s}{run.planned - len(run.samples):,} requests were not sent or had not ended",
                "warning",
            )
        ]
        if run.interrupted
        else []
    )
    for place, text in enumerate(found.explains()):
        lines += wrapped(f"  {'' if place else 'explains':10s}{text}", indent=12)
    if run.samples:
        lines += wrapped(f"  client    {' · '.join(_client(found))}", indent=12)
    lines += [page.paint(f"  ! {text}", "warning") for text in warnings_of(found)]
    if run.id is not None:
        lines.append(f"run {run.id} of the ledger · a plan beside it: roofplan compare plan.json {run.id}")
    return lines


def _client(found: Beside) -> list[str]:
    """Return how exact the client was, in parts of a line."""
    run, seen = found.run, found.seen
    parts = []
    if seen.error_tpot is not None:
        middle, worst = seen.error_tpot
        parts.append(f"TPOT {middle:+.2%} median, {worst:+.2%} worst against the server's own timings")
    if seen.beyond_prompt is not None:
        parts.append(f"first tokens {units.show(seen.beyond_prompt, 's')} beyond the server's prompt time")
    if run.effort.seconds and run.effort.lags:
        parts.append(
            f"{run.effort.share:.0%} of one core, event loop {units.show(run.effort.lag(0.99), 's')} late at p99"
        )
    parts.append(f"{seen.bunched:.1%} of events came with the one before")
    if seen.connect:
        parts.append(f"{units.show(seen.connect, 's')} to connect, not counted")
    return parts


def stability_screen(probed: Probed, page: Page) -> None:
    """Write what a row of probes says.

    Parameters
    ----------
    probed : the probes and what they say.
    page : where it is written.
    """
    found, server = probed.found, probed.server
    for line in wrapped(f"{server.url} · {server.software or 'server unnamed'} · {server.model}", indent=2):
        page.line(line)
    missed = "" if found.probes == found.planned else f" of {found.planned:,} planned"
    parts = [f"{found.probes:,} probes{missed}, {found.lost:,} lost"]
    if found.over is not None and found.median is not None and found.p99 is not None:
        low, high = (units.significant(100.0 * end, 2) for end in found.over_ends)
        share = units.significant(100.0 * found.over)
        parts.append(f"first token over {units.show(found.threshold, 's')} in {share}% [{low}, {high}] of them")
        most = f"most {units.show(unwrap(found.greatest), 's')} at {_moment(unwrap(found.greatest_at))}"
        parts.append(f"median {units.show(found.median, 's')}, p99 {units.show(found.p99, 's')}, {most}")
    for line in wrapped("  " + " · ".join(parts), indent=2):
        page.line(line)
    for line in (*_limits(probed), *_events(found)):
        page.line(line)
    for line in _hours(found):
        page.line(line)
    for note in probed.notes:
        page.line(page.paint(f"  ! {note}", "warning"))
    if probed.run is not None:
        again = f" · go on: roofplan measure stability {server.url} --model {server.model} --resume {probed.run}"
        page.line(f"run {probed.run} of the ledger{again if probed.interrupted else ''}")


def _limits(probed: Probed) -> list[str]:
    """Return failures by reason, and limits, a line each."""
    found = probed.found
    lines = [f"  failed    {count:,} {reason}" for reason, count in found.failed.items()]
    if found.waited is not None:
        given_up = units.show(found.waited, "s")
        lines.append(f"            the longest was given up after {given_up}: the greatest time is at least that")
    for one, value, inside in probed.limits:
        title, unit, scale = NAMES[one.figure]
        shown = f"{units.significant(value * scale)} {unit}" if value < float("inf") else "no answer"
        held = "inside" if inside else "MISSES"
        lines.append(
            f"  limit     {title} {one.percentile} {shown}, {held} {units.significant(one.limit * scale)} {unit}"
        )
    return lines


def _events(found: Stability) -> list[str]:
    """Return changes and outages, a line each."""
    lines = []
    for change in found.changes:
        medians = f"{units.show(change.before, 's')} -> {units.show(change.after, 's')}"
        lines.append(
            f"  change    at {_moment(change.at)}: median {medians} ({change.after / change.before - 1.0:+.0%})"
        )
    for outage in found.outages:
        span, why = f"{_moment(outage.begin)} to {_moment(outage.end)}", ", ".join(outage.reasons)
        lines.append(f"  outage    {span}: {outage.probes:,} probes in a row, {why}")
    return lines


def _hours(found: Stability) -> list[str]:
    """Return a table of the hours of the day, where there are several."""
    if len(found.hours) < 2:
        return []
    lines = ["", "  hour   probes   median     p99    over  lost"]
    for hour in found.hours:
        middle, high = ("-" if value is None else units.significant(value * 1e3) for value in (hour.median, hour.p99))
        text = f"  {hour.hour:02d}-{(hour.hour + 1) % 24:02d} {hour.probes:>8,} {middle:>8} {high:>7}"
        lines.append(f"{text} {hour.over:>7.1%} {hour.failed:>5,}")
    return [*lines, "  times in ms, hours of this host"]


def _moment(seconds: float) -> str:
    """Return seconds of the epoch as date and time of this host."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def runs_screen(kept: Sequence[Kept], place: str, page: Page) -> None:
    """Write the runs of the ledger.

    Parameters
    ----------
    kept : runs, the newest last.
    place : path of the ledger.
    page : where it is written.
    """
    if not kept:
        page.line(f"no runs in {place}: roofplan measure endpoint URL makes one")
        return
    page.line(f"{'run':>5}  {'begun (UTC)':19}  {'what':10}  {'how':11} {'answered':>14}  of")
    for one in kept:
        server = one.about.get("server", {})
        done = f"{one.completed:,} of {one.planned or one.requests:,}"
        device = one.about.get("machine", {}).get("device")
        told = (device, server.get("model"), one.about.get("load"), server.get("url"))
        what = ", ".join(str(each) for each in told if each)
        begun = one.started[:19].replace("T", " ")
        page.line(f"{one.id:>5}  {begun:19}  {one.kind[:10]:10}  {one.status:11} {done:>14}  {what}"[:WIDTH])
    page.line(f"kept in {place} · one of them: roofplan runs {kept[-1].id}")
