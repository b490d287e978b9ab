"""The screen of ``roofplan simulate``: what users feel, which limits hold, and what the load costs."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from roofplan.load.statistics import QUANTILES
from roofplan.present.screens.page import LETTER, Page, folded, interval, wrapped
from roofplan.present.screens.plans import price_text
from roofplan.records import units
from roofplan.simulation.felt import Felt
from roofplan.simulation.ranking import HELPED
from roofplan.simulation.report import Figure, Judged

TITLES = {
    "ttft": ("TTFT", "ms", 1e3),
    "tpot": ("TPOT", "ms", 1e3),
    "e2e": ("E2E", "s", 1.0),
    "waiting": ("wait", "ms", 1e3),
}
"""Figure -> its name, its unit, and that unit in seconds."""

LONG = 100.0
"""Time from which a row is written in seconds [s]."""

FRONT_END_BINDS = 0.9
"""Share of time in which the front end reads requests from which a queue is said to be its own [1]."""

COLUMN = 9
"""Width of a column of percentiles [1]."""


def simulate_screen(felt: Felt, page: Page) -> None:
    """Write what users feel of a plan under a load.

    Parameters
    ----------
    felt : the plan and its simulated load.
    page : where it is written.
    """
    seen = felt.simulation
    for line in (*folded(_head(felt)[0], 2), *_head(felt)[1:], *figure_lines(felt.simulation.figures), *_load(felt)):
        page.line(line)
    if not isfinite(seen.figures["ttft"].metric.high):
        page.line("  no end    with steps at the slow end of their interval the queue grows")
    if seen.saturated:
        text = f"saturated: the queue grows by {units.significant(seen.growth)} req/s; times depend on how long the load lasts"
        page.line(page.paint(text, "warning"))
        if seen.front_end > FRONT_END_BINDS:
            text = f"the front end binds: it takes {1e3 * float(seen.deployment.rates.front):.3g} ms a request, one after the other"
            page.line(page.paint(text, "warning"))
    for line in (*_limits(felt), *_helps(felt), *_foot(felt)):
        page.line(line)


def _head(felt: Felt) -> list[str]:
    plan, seen, asked = felt.plan, felt.simulation, felt.asked
    count = seen.deployment.replicas
    layout = f"{count} replicas of {_each(felt)} {_routed(felt)}" if count > 1 else f"1 replica of {_each(felt)}"
    requests = seen.load.requests
    lengths = f"{asked.input:,.0f} in, {asked.output:,.0f} out" + (
        ", of the trace" if asked.trace is not None else f", {asked.lengths}"
    )
    whole = f"{len(requests):,} requests, {units.significant(seen.seconds, 4)} s"
    return [
        f"{plan.model.id} · {plan.machine.count} x {plan.machine.device.id} · {plan.engine.called.rstrip(',')} · {price_text(plan)}",
        *wrapped(f"{layout} · {asked.words(felt.rate)}, {lengths} · {whole}", indent=2),
    ]


def _routed(felt: Felt) -> str:
    """Return how requests come to replicas."""
    seen = felt.simulation
    return "with each client at one of them" if seen.load.clients is not None else f"behind {seen.load.route}"


def _each(felt: Felt) -> str:
    """Return the layout of one replica."""
    names = ("tp", "pp", "ep")
    degrees = felt.plan.strategy.as_dict()
    return " ".join(f"{name}{degrees[name]}" for name in names if degrees.get(name, 1) > 1) or "1 device"


def figure_lines(figures: Mapping[str, Figure]) -> list[str]:
    """Return figures of requests as a table of means, percentiles and intervals.

    Parameters
    ----------
    figures : by their names.

    Returns
    -------
    A head and a line a figure.
    """
    lines = ["", " " * 9 + "".join(name.rjust(COLUMN) for name in ("mean", *QUANTILES))]
    for name, (title, unit, scale) in TITLES.items():
        if name in figures:
            lines.append(_row(f"{title} {unit}", figures[name], scale))
    return lines


def _row(title: str, one: Figure, scale: float) -> str:
    m = one.metric
    cells = [m.value, *one.summary.quantiles.values()]
    if max(cells) >= LONG and scale != 1.0:
        title, scale = title.replace(" ms", " s"), 1.0
    text = f"  {title:7s}" + "".join(units.significant(value * scale).rjust(COLUMN) for value in cells)
    high = units.significant(m.high * scale, 2) if isfinite(m.high) else "no end"
    text += f"   [{units.significant(m.low * scale, 2)}, {high}] {LETTER[m.grade]}"
    return text


def _load(felt: Felt) -> list[str]:
    seen, plan = felt.simulation, felt.plan
    served = seen.served
    seats = seen.deployment.seats() * seen.deployment.replicas
    parts = [
        f"{units.significant(seen.running)} of {seats:,} seats",
        f"KV {seen.kept[0]:.0%}, at most {seen.kept[1]:.0%}",
        f"{int(served.preempted.sum()):,} preemptions",
    ]
    hits = float(served.cached.sum() / served.inputs.sum())
    if hits:
        parts.append(f"{hits:.0%} of prompts cached")
    lines = ["", f"  load      {' · '.join(parts)}"]
    rate = f"{units.significant(seen.requests_per_second)} req/s, {units.significant(seen.output_tokens_per_second)} tok/s out"
    if felt.cost is not None and plan.cost is not None:
        rate += f" · {units.significant(plan.cost.total, 4)} USD/h = {interval(felt.cost, 1.0, 'USD/Mtok')} out at this load"
    if felt.power is not None:
        rate += f" · {units.show(felt.power.value, 'W')}"
    return [*lines, *wrapped(f"  in all    {rate}", indent=12)]


def _limits(felt: Felt) -> list[str]:
    seen, found = felt.simulation, felt.found
    if seen.good is None:
        return []
    low, high = (100.0 * one for one in seen.good_ends)
    share = f"{100.0 * seen.good:.4g}% [{low:.3g}, {high:.3g}] of requests inside all limits"
    lines = ["", *(_limit(one, "" if place else "limits") for place, one in enumerate(seen.limits))]
    lines.append(f"  goodput   {share}, {units.significant(seen.good * seen.requests_per_second)} req/s")
    if found is None:
        return lines
    breaks = (
        "the queue grows" if found.first is None else f"{found.first.figure.upper()} is the first to miss its limit"
    )
    if found.rate > 0.0 and found.missed == found.rate:
        lines.append("  up to     any rate: the load is too short for its limits to break")
        return lines
    if found.rate > 0.0:
        ends = f" [{', '.join(units.significant(one, 2) for one in found.ends)}]" if found.ends else ""
        kept = f"about {units.significant(found.rate, 2)}{ends} req/s are kept inside them by this layout; beyond, {breaks}"
        lines += wrapped(f"  up to     {kept}", indent=12)
        if found.at.lifetimes < LASTING:
            brief = f"the run is {units.significant(found.at.lifetimes, 2)} times as long as a request, too short for its queue to show"
            lines += wrapped(f"  ! short   {brief}; more --requests give a rate that lasts", indent=12)
        for code, text in felt.result.warnings:
            lines += wrapped(f"  layout    {text}", indent=12) if code == "reordered" else []
        return lines
    worst = max(found.at.limits, key=lambda one: one.over)
    title, unit, scale = TITLES[worst.objective.figure]
    miss = f"{title} is {units.significant(worst.time * scale)} {unit} at {worst.objective.percentile}, {units.significant(worst.over)} times the limit"
    lines += wrapped(f"  up to     no rate: even at {units.significant(found.missed, 2)} req/s {miss}", indent=12)
    return lines


LASTING = 10.0
"""Length of a run over that of a mean request below which a rate above capacity may seem to be kept [1]."""


def _limit(one: Judged, heading: str) -> str:
    """Return a limit in a line: the time at its percentile with its interval, and whether it is inside."""
    title, unit, scale = TITLES[one.objective.figure]
    high = units.significant(one.high * scale, 2) if isfinite(one.high) else "no end"
    value = f"{units.significant(one.time * scale)} [{units.significant(one.low * scale, 2)}, {high}] {unit}"
    said = f"{title} {one.objective.percentile} {value}, {'inside' if one.holds else 'MISSES'} {units.significant(one.objective.limit * scale)}"
    if one.holds != (one.high <= one.objective.limit) and one.low <= one.objective.limit:
        said += ", not surely"
    return f"  {heading:10s}{said}"


def _helps(felt: Felt) -> list[str]:
    """Return the changes that would help most."""
    lines = []
    shorter = f" (runs of {HELPED:,} requests)" if len(felt.simulation.load.requests) > HELPED else ""
    for place, one in enumerate(felt.helps[:HELPS]):
        name, percentile = one.figure.split()
        title, unit, scale = TITLES[name]
        times = f"{title} {percentile} {units.significant(one.before * scale)} -> {units.significant(one.after * scale)} {unit}"
        lines.append(f"  {'' if place else 'better':9s} {one.argument} {one.needed}: {times}{'' if place else shorter}")
    return lines


HELPS = 3
"""Changes that are shown [1]."""


def _foot(felt: Felt) -> list[str]:
    seen = felt.simulation
    r = felt.plan.rates
    front = float(r.front + r.delay)
    mean = seen.figures["ttft"]
    parts = [
        f"{units.show(front, 's')} of a first token are the server's front end",
        f"not modelled: {'; '.join(_left_out(felt))}",
        f"seed {felt.asked.seed}: by chance alone TTFT would be {units.significant(mean.sampling[0] * 1e3)} to {units.significant(mean.sampling[1] * 1e3)} ms",
        "more: --csv --html --json" + ("" if felt.found or not felt.asked.open else " --slo --find rate"),
    ]
    if seen.load.clients is not None and felt.asked.trace is None and felt.asked.lengths.kind == "fixed":
        parts.insert(0, "equal lengths keep clients in step: --lengths lognormal:0.7 spreads them")
    return wrapped(" · ".join(parts), indent=2)


def _left_out(felt: Felt) -> list[str]:
    """Return what the simulation leaves out."""
    out = ["network to the client", "padding to captured graphs", "extra steps of overlapped scheduling"]
    if felt.asked.trace is not None:
        out.append("cached blocks that running requests push out")
    return out
