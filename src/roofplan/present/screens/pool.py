"""The screens of ``roofplan pool``: plans, proofs and simulations."""

from __future__ import annotations

from collections import Counter

from roofplan.pool.plan import LeftOut, PoolPlan, StageView
from roofplan.present.screens.explain import trees_screen
from roofplan.present.screens.page import Page, interval, users_text, wrapped
from roofplan.present.screens.plans import weights_text
from roofplan.records import units

BINDING = 4
"""Limits that are shown [1]."""

UNUSED = 6
"""Members without a part that are shown one by one [1]."""

INDENT = 18
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
    words += [text for _, text in plan.warnings]
    return [
        *wrapped(
            f"{request.model.id} · {request.model.total:,} parameters, {weights_text(request.model)}"
            f" · {len(request.members)} members, {request.software.name}",
            indent=2,
        ),
        *wrapped(f"assumed (flags change it): {'; '.join(words)}", indent=2),
    ]


def _answer(plan: PoolPlan) -> list[str]:
    figures, found = plan.metrics, plan.found
    count = len(plan.layout.stages)
    stages = "1 stage" if count == 1 else f"{count} stages"
    goal = "least time of one user" if plan.request.best == "latency" else "most tokens a second"
    sure = "optimal" if found.gap <= 0.0 else f"at most {found.gap:.1%} from the best"
    alone, many = figures["tokens_per_second_per_user"], figures["output_tokens_per_second"]
    lines = [f"PLAN  {stages}, {plan.client.name} asks: {goal}, {sure}"]
    lines += said(
        "one user",
        f"{interval(alone, 1.0, 'tok/s')}, TPOT {units.show(figures['tpot'].value, 's')} · first token {interval(figures['ttft'], 1.0, 's')}",
    )
    lines += said("in all", f"{interval(many, 1.0, 'tok/s')} with {users_text(plan.users)} at once")
    limits = [
        f"{share:.0%} {name}" + (f" of {who}" if who else "")
        for name, who, share in plan.limits[:BINDING]
        if share >= 0.01
    ]
    lines += said("binds", " · ".join(limits))
    return [*lines, *_bill(plan)]


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
    lines = said("cost", " · ".join(parts))
    return [*lines, *said("power", watts + (", without the rest of the machines" if paid.bare else ""))]


COLUMNS = ("layers", "GiB", "of", "ms", "hops ms", "kB/token", "uplink", "without it")
"""Columns of the table of members."""

WIDTHS = (12, 8, 8, 8, 9, 10, 8, 12)


def _members(plan: PoolPlan) -> list[str]:
    names = max(len(one.member.name) for one in plan.views)
    head = f"  {'member':{names}}" + "".join(c.rjust(w) for c, w in zip(COLUMNS, WIDTHS, strict=True))
    rows = [head, *(_row(plan, one, names) for one in plan.views)]
    alike = Counter(_idle(one) for one in plan.left)
    for text, count in list(alike.items())[:UNUSED]:
        rows += said("left out", text if count == 1 else f"{count} x {text}")
    if len(alike) > UNUSED:
        rows += said("", f"and {sum(list(alike.values())[UNUSED:])} more")
    return rows


def _row(plan: PoolPlan, one: StageView, names: int) -> str:
    held = "output" if one.layers is None else f"{one.layers[0]}-{one.layers[1]}" + ("+out" if one.output else "")
    other = "cannot do" if one.without is None else f"{units.significant(one.without)} tok/s"
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


def _idle(one: LeftOut) -> str:
    name = f"{one.member.device.id}@{one.member.link}"
    if one.layers == 0:
        return f"{name}: its memory holds no layer"
    return f"{name}: a visit adds {units.show(one.visit, 's')} a token; it could hold {_layers(one.layers)}"


def _layers(count: int) -> str:
    return "1 layer" if count == 1 else f"{count} layers"


def _beside(plan: PoolPlan) -> list[str]:
    rates = {name: one for name, one in plan.baselines.items() if one.rate is not None}
    text = ", ".join(f"{name} {units.significant(one.rate or 0.0)}" for name, one in rates.items())
    whys = [f"{name}: {one.why}" for name, one in plan.baselines.items() if one.rate is None]
    known = "; ".join([*([f"{text} tok/s of one user"] if text else []), *whys])
    lines = said("published rules", known)
    for place, line in enumerate(plan.private):
        lines += said("" if place else "privacy", line)
    for place, line in enumerate(row for step in plan.launch for row in step.splitlines()):
        lines.append(f"  {'' if place else 'launch':{INDENT - 2}}{line}")
    return [*lines, "more: --explain --csv FILE --html FILE --json" + (" --emit llama.cpp" if plan.launch else "")]
