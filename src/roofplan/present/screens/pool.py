"""The screens of ``roofplan pool``: plans, proofs and simulations."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from roofplan import catalogue
from roofplan.errors import unwrap
from roofplan.pool.checks import HONEST, LEAST, Cheaters, Checked, closed_form, honest_auditors
from roofplan.pool.plan import LeftOut, PoolPlan, StageView
from roofplan.pool.proof import Compared, Proof, Proven
from roofplan.pool.request import GOALS
from roofplan.pool.simulate import PoolSimulation
from roofplan.present.screens.explain import trees_screen
from roofplan.present.screens.load import figure_lines
from roofplan.present.screens.page import Page, counted, interval, wrapped
from roofplan.present.screens.plans import weights_text
from roofplan.records import units

BINDING = 4
"""Limits that are shown [1]."""

UNUSED = 6
"""Members without a part that are shown one by one [1]."""

INDENT = 20
"""Columns before what a line says [1]."""


def plan_screen(plan: PoolPlan, page: Page, depth: int = 0) -> None:
    """Write the plan of a pool.

    Parameters
    ----------
    plan : the plan.
    page : where it is written.
    depth : levels of the explanation, 0 for none [1].
    """
    for text in (*_head(plan), "", *_answer(plan), "", *_members(plan), "", *_beside(plan)):
        page.line(text)
    if depth:
        tpot, first = plan.metrics["tpot"], plan.metrics["ttft"]
        token, prompt = f"token {interval(tpot, 1e3, 'ms')}", f"first token {interval(first, 1.0, 's')}"
        trees_screen([(token, plan.token), (prompt, plan.first)], page, depth)


def said(label: str, text: str) -> list[str]:
    """Return a labelled line, folded."""
    return wrapped(f"  {label:{INDENT - 2}}{text}", indent=INDENT)


def _head(plan: PoolPlan) -> list[str]:
    request, w = plan.request, plan.request.workload
    words = [f"--input {w.input} --output {w.output} --context {w.context}", f"stages timed as {request.engine.id}"]
    if plan.bill is not None:
        life = catalogue.pools().assumed["life"]
        words.append(f"electricity {price_of(plan)} USD/kWh, cards last {life.value / units.YEAR:.3g} years")
    words += [text for _, text in plan.warnings]
    return [
        *wrapped(
            f"{request.model.id} · {request.model.total:,} parameters, {weights_text(request.model)}"
            f" · {counted(len(request.members), 'member')}, {request.software.name}",
            indent=2,
        ),
        *wrapped(f"assumed (flags change it): {'; '.join(words)}", indent=2),
    ]


def price_of(plan: PoolPlan) -> str:
    """Return the price of electricity of members that state none."""
    return units.significant(plan.request.tariff.value * units.JOULE_PER_KWH)


def _answer(plan: PoolPlan) -> list[str]:
    figures, found = plan.metrics, plan.found
    count = len(plan.layout.stages)
    what = "member" if plan.request.software.shares_layers else "stage"
    stages = f"{counted(count, what)}" + (" sharing every layer" if what == "member" else "")
    goal = "least time of one user" if plan.request.best == "latency" else "most tokens a second"
    sure = "optimal" if found.gap <= 0.0 else f"at most {found.gap:.1%} from the best"
    sure = sure if plan.exact else "the best of those tried"
    alone, many = figures["tokens_per_second_per_user"], figures["output_tokens_per_second"]
    lines = [f"PLAN  {stages}, {plan.client.name} asks: {goal}, {sure}"]
    lines += said(
        "one user",
        f"{interval(alone, 1.0, 'tok/s')}, TPOT {units.show(figures['tpot'].value, 's')},"
        f" {units.show(_engine_step(plan), 's')} of it the engine's step · first token {interval(figures['ttft'], 1.0, 's')}",
    )
    lines += said("in all", f"{interval(many, 1.0, 'tok/s')} with {counted(plan.users, 'user')} at once")
    limits = [f"{share:.0%} {text}" for text, share in _binding(plan)[:BINDING] if share >= 0.01]
    lines += said("binds", " · ".join(limits))
    return [*lines, *_bill(plan)]


def _engine_step(plan: PoolPlan) -> float:
    """Return the part of a token's time that is the engine's [s]."""
    return sum(float(one.term.value) for one in plan.parts if one.kind == "engine")


def _binding(plan: PoolPlan) -> list[tuple[str, float]]:
    """Return what binds a token, the shares of all members together, the largest first."""
    shares, who = dict[str, float](), dict[str, list[str]]()
    for name, member, share in plan.limits:
        shares[name] = shares.get(name, 0.0) + share
        who.setdefault(name, []).append(member)
    texts = {
        name: name if not names[0] else f"{name} of {names[0] if len(names) == 1 else f'{len(names)} members'}"
        for name, names in who.items()
    }
    return sorted(((texts[name], share) for name, share in shares.items()), key=lambda one: -one[1])


def _bill(plan: PoolPlan) -> list[str]:
    paid, figures = plan.bill, plan.metrics
    if paid is None:
        return said("cost", f"absent: the power of {', '.join(plan.unpowered)} is not known")
    parts = [
        f"{name} {interval(figures[f'{name}_per_million_output_tokens'], 1.0, 'USD/Mtok')}"
        for name in ("electricity", "wear")
        if f"{name}_per_million_output_tokens" in figures
    ]
    if paid.unpriced:
        parts.append(f"wear is absent: no price of {', '.join(paid.unpriced)}")
    parts.append(
        "no API lists the model" if paid.api is None else f"an API, median: {units.significant(paid.api)} USD/Mtok"
    )
    watts = f"{units.show(paid.power.value, 'W')} at the wall while it serves"
    lines = said(f"cost at {counted(plan.users, 'user')}", " · ".join(parts))
    return [*lines, *said("power", watts + (", without the rest of the machines" if paid.bare else ""))]


COLUMNS = ("layers", "GiB", "of", "ms", "hops ms", "kB/token", "uplink", "without it")
"""Columns of the table of members."""

WIDTHS = (12, 8, 8, 8, 9, 10, 8, 12)


def _members(plan: PoolPlan) -> list[str]:
    names = max(len(one.member.name) for one in plan.views)
    head = f"  {'member':{names}}" + "".join(c.rjust(w) for c, w in zip(COLUMNS, WIDTHS, strict=True))
    rows = [head, *(_row(plan, one, names) for one in plan.views)]
    alike = Counter(_idle(one, shared=plan.request.software.shares_layers) for one in plan.left)
    for text, count in list(alike.items())[:UNUSED]:
        rows += said("left out", text if count == 1 else f"{count} x {text}")
    if len(alike) > UNUSED:
        rows += said("", f"and {sum(list(alike.values())[UNUSED:])} more")
    return rows


def _row(plan: PoolPlan, one: StageView, names: int) -> str:
    held = "output" if one.layers is None else f"{one.layers[0]}-{one.layers[1]}" + ("+out" if one.output else "")
    other = "" if one.without is None else f"{units.significant(one.without)} tok/s"
    if one.without is None and plan.request.best == GOALS[0]:
        other = "no plan"
    cells = (
        held,
        units.gib(one.weights + one.cache),
        units.gib(max(one.room, 0.0)),
        units.significant(1e3 * one.time),
        units.significant(1e3 * one.hop),
        units.significant(one.sent / 1e3),
        f"{plan.link_share(one):.1%}",
        other,
    )
    return f"  {one.member.name:{names}}" + "".join(c.rjust(w) for c, w in zip(cells, WIDTHS, strict=True))


def _idle(one: LeftOut, *, shared: bool) -> str:
    name = f"{one.member.device.id}@{one.member.link}"
    if shared:
        return f"{name}: 2^n members share layers, as quickly without it"
    if one.layers == 0:
        return f"{name}: its memory holds no layer"
    return f"{name}: a visit adds {units.show(one.visit, 's')} a token; it could hold {_layers(one.layers)}"


def _layers(count: int) -> str:
    return "1 layer" if count == 1 else f"{count} layers"


def _beside(plan: PoolPlan) -> list[str]:
    rates = {name: one for name, one in plan.baselines.items() if one.rate is not None}
    text = ", ".join(f"{name} {units.significant(unwrap(one.rate))}" for name, one in rates.items())
    whys = [f"{name}: {one.why}" for name, one in plan.baselines.items() if one.rate is None]
    known = "; ".join([*([f"{text} tok/s of one user"] if text else []), *whys])
    lines = said("published rules", known) if known else []
    for place, line in enumerate(plan.private):
        lines += said("" if place else "privacy", line)
    for place, line in enumerate(row for step in plan.launch for row in step.splitlines()):
        lines.append(f"  {'' if place else 'launch':{INDENT - 2}}{line}")
    return [*lines, "more: --explain --csv FILE --html FILE --json" + (" --emit llama.cpp" if plan.launch else "")]


# Simulations --------------------------------------------------------------------------------------


def simulation_screen(found: PoolSimulation, page: Page) -> None:
    """Write what happened in a pool.

    Parameters
    ----------
    found : what was simulated.
    page : where it is written.
    """
    lines = (
        *_simulated(found),
        *_places(found),
        *figure_lines(found.figures),
        "",
        *_served(found),
        "",
        *_checked(found),
        "",
    )
    for text in (*lines, *_earned(found)):
        page.line(text)


def _simulated(found: PoolSimulation) -> list[str]:
    plan, under = found.plan, found.circumstances
    request, w = plan.request, plan.request.workload
    spares = len(found.shares) - sum(len(one.places) for one in found.pipelines)
    count = len(found.pipelines)
    words = [
        *_coming(found),
        f"users wait {units.show(under.patience, 's')} for a seat",
        "weights on disk" if under.store else f"weights come from the {request.software.loads}",
        *(text for _, text in plan.warnings),
    ]
    return [
        *wrapped(
            f"{request.model.id} · {counted(len(request.members), 'member')}, {request.software.name} · {counted(count, 'pipeline')}"
            f" of {counted(plan.users, 'user')}, {counted(spares, 'spare')}, context {w.context:,}",
            indent=2,
        ),
        *wrapped(
            f"  Poisson {units.significant(under.rate * units.HOUR)} req/h, {w.input:,} in, {w.output:,} out in the mean"
            f" · {units.significant(under.horizon / units.DAY)} days, {len(found.requests):,} requests",
            indent=2,
        ),
        *wrapped(f"assumed (flags change it): {'; '.join(words)}", indent=2),
    ]


def _coming(found: PoolSimulation) -> list[str]:
    """Return when members are there."""
    under, members = found.circumstances, found.plan.request.members
    if under.churn:
        return [f"members are there as {under.churn} says"]
    silent = sum(one.hours is None for one in members)
    stay = f"members stay {units.show(under.session, 's')}, {under.pattern}"
    share = f"{under.online:.0%} of the time"
    if any(one.online is None for one in members):
        stay += f", and are there {share}"
    return [stay] if silent else ["members are there in their hours"]


def _places(found: PoolSimulation) -> list[str]:
    """Return who holds what in the first pipelines."""
    names, lines = [one.name for one in found.plan.request.members], []
    for k, one in enumerate(found.pipelines[:SHOWN]):
        held = [
            f"{names[place.member]} {place.layers[0]}-{place.layers[1]}"
            if place.layers[1] >= 0
            else f"{names[place.member]} output"
            for place in sorted(one.places, key=lambda place: place.layers)
        ]
        lines += said("" if k else "pipelines", " · ".join(held))
    return lines


SHOWN = 3
"""Pipelines whose places are shown [1]."""


def _served(found: PoolSimulation) -> list[str]:
    out = found.outcome
    left, broken = int((out.left >= 0.0).sum()), int((out.interrupted > 0).sum())
    lines = said(
        "served",
        f"{found.served:.2%} of requests · {left:,} users gave up · {counted(broken, 'answer')} broken off and begun again",
    )
    up = ", ".join(f"{share:.0%}" for share in out.up[:UNUSED]) + (", ..." if len(out.up) > UNUSED else "")
    lines += said("could serve", f"{found.any_up:.1%} of the time at least one pipeline; each {up}")
    return [
        *lines,
        *said("wasted", f"{found.wasted:.2%} of tokens were computed again · {out.replaced:,} places changed members"),
    ]


KINDS = ("members", "jobs", "cheated", "delivered", "found", "gain", "expected", "honesty from")
"""Columns of the table of kinds."""

KIND_WIDTHS = (9, 9, 9, 11, 8, 9, 11, 16)


def _checked(found: PoolSimulation) -> list[str]:
    checks, under = found.checks, found.circumstances
    if checks is None:
        return said("checks", f"need {LEAST} members: two audit what a third one did")
    checking, share = under.checking, checks.audits / checks.jobs
    how = [f"audits of {100.0 * checking.audit:.3g}% of the jobs"] if checking.audit else []
    how += ["adaptive replication"] if checking.replication else []
    stakes = f"deposit {checking.deposit:g}, withheld {checking.withheld}, probation {checking.probation} jobs"
    cost = checks.replicated + share * found.audit
    lines = said("checks", f"{' and '.join(how)} · {stakes}" if how else "none")
    lines += said(
        "cost",
        f"{checks.overhead:.1%} of the FLOP of answers, {cost:.1%} of their device time (an audit is one prompt pass, {found.audit:.2f} of an answer)",
    )
    lines += said("wrong", f"{checks.wrong / checks.jobs:.2%} of {checks.jobs:,} simulated answers")
    lines.append(f"  {'kind':10}" + "".join(name.rjust(width) for name, width in zip(KINDS, KIND_WIDTHS, strict=True)))
    honest = honest_auditors(under.cheaters)
    lines.append(_kind(found, checks, HONEST, None, honest))
    return [*lines, *(_kind(found, checks, one.cheat.id, one, honest) for one in under.cheaters)]


def _kind(found: PoolSimulation, checks: Checked, name: str, cheats: Cheaters | None, honest: float) -> str:
    tally, checking = checks.kinds[name], found.circumstances.checking
    cells = [f"{n:,}" for n in (tally.members, tally.jobs, tally.cheated, tally.accepted, tally.found)]
    if cheats is not None and tally.cheated:
        cells.append(f"{tally.gain:+.2f}")
    if cheats is not None and tally.cheated and checking.audit:
        gain, least = closed_form(checking, cheats, honest)
        cells += [f"{gain:+.2f}", f"{least:.1%} audits" if least < 1.0 else "nowhere"]
    return f"  {name:10}" + "".join(cell.rjust(width) for cell, width in zip(cells, KIND_WIDTHS, strict=False))


EARNERS = 12
"""Members whose credit is shown [1]."""


def _earned(found: PoolSimulation) -> list[str]:
    whole = sum(one.credit for one in found.shares)
    lines = said(
        "credit",
        f"{units.significant(whole)} cobblestones: 200 for each GFLOP/s and day of finished answers, counted from layers and tokens",
    )
    earners = sorted(found.shares, key=lambda one: -one.credit)
    for one in earners[:EARNERS]:
        share = one.credit / whole if whole else 0.0
        lines.append(f"  {one.name:24}{share:>7.1%}   there {one.online:>4.0%} of the time")
    if len(earners) > EARNERS:
        lines.append(f"  and {len(earners) - EARNERS} more")
    return [
        *lines,
        *wrapped(
            "not modelled: conversations, members who slow down, network failures; checks are of jobs that one member does: which"
            " stage of a pipeline is at fault, its kept inputs would have to tell · a gain is that of a cheated job, in jobs"
            f" · seed {found.circumstances.seed} · more: --csv FILE --html FILE --json",
            indent=2,
        ),
    ]


# Proofs -------------------------------------------------------------------------------------------

FIGURES = {
    "received": ("bytes a token", "kB", 1e-3),
    "sent": ("bytes to load", "MB", 1e-6),
    "load": ("load", "s", 1.0),
    "token": ("time a token", "ms", 1e3),
    "prompt": ("prompt", "ms", 1e3),
}
"""Figures of a proof: how they are called, their unit, and how many of it a base unit is."""


def proof_screen(found: Proof, page: Page) -> None:
    """Write a proof: what is predicted and measured at each rate.

    Parameters
    ----------
    found : the proof.
    page : where it is written.
    """
    alone = units.show(sorted(found.local.tokens)[len(found.local.tokens) // 2], "s")
    split = ", ".join(map(str, found.layers))
    for text in wrapped(
        f"{Path(found.model.id).name} · {counted(len(found.layers), 'worker')} of llama.cpp RPC with {split} layers, output with the last"
        f" · alone {alone} a token, on which predictions rest",
        indent=2,
    ):
        page.line(text)
    if found.why:
        page.line(page.paint(f"  ! {found.why}: links are not shaped, workers listen on loopback", "warning"))
    page.line()
    page.line(f"  {'link':12}{'figure':16}{'predicted':>24}{'measured':>14}{'error':>9}  inside")
    for one in found.links:
        for place, (name, (title, unit, scale)) in enumerate(FIGURES.items()):
            figure = getattr(one, name)
            if figure is not None:
                page.line(_proven(_link(one) if place == 0 or one.rate is None else "", title, figure, unit, scale))
    page.line()
    for line in _recorded():
        page.line(line)
    page.line("more: --rate 5mbit --workers 3 --csv FILE --html FILE --json")


def _recorded() -> list[str]:
    """Return what was measured before, elsewhere."""
    text = ", ".join(
        f"{_bits(one.quantities['rate'])} {units.show(one.quantities['token'], 's')} a token"
        f" and {units.show(one.quantities['load'], 's')} to load"
        for one in catalogue.proofs()
    )
    return said("recorded", f"{text} ({catalogue.proofs()[-1].date}, {catalogue.proofs()[-1].host})")


def _link(one: Proven) -> str:
    if one.rate is None:
        return "loopback"
    return _bits(one.rate)


def _bits(rate: float) -> str:
    """Return a rate in bits."""
    bits = 8.0 * rate
    return f"{units.significant(bits / 1e9)} Gbit/s" if bits >= 1e9 else f"{units.significant(bits / 1e6)} Mbit/s"


def _proven(link: str, title: str, one: Compared, unit: str, scale: float) -> str:
    ends = f"[{units.significant(one.low * scale, 2)}, {units.significant(one.high * scale, 2)}]"
    predicted = f"{units.significant(one.predicted * scale)} {unit} {ends}"
    measured = f"{units.significant(one.measured * scale)} {unit}"
    return f"  {link:12}{title:16}{predicted:>24}{measured:>14}{one.error:>+9.1%}  {'yes' if one.inside else 'no'}"
