"""The screen of ``roofplan train``: the job, the best layout with its arithmetic, the run, and why other layouts are slower."""

from __future__ import annotations

from datetime import date, timedelta

from roofplan import catalogue
from roofplan.errors import unwrap
from roofplan.exports.training import TARGETS, launch_or_reason, target_of
from roofplan.present.screens.explain import doubts, trees_screen
from roofplan.present.screens.page import LETTER, Page, counted, folded, interval, wrapped
from roofplan.present.screens.plans import link_text, machine_text, quoted
from roofplan.records import units
from roofplan.records.terms import Term
from roofplan.records.training import Adapter
from roofplan.records.units import DAY, HOUR
from roofplan.serving import LIMIT_NAMES
from roofplan.timing.figures import Metric
from roofplan.training import TrainingPlan, TrainingResult, binding, flops_per_token
from roofplan.training.request import floor_days

GROUPS = {
    "compute": ("products", "attention"),
    "passes": ("memory passes",),
    "recompute": ("recompute",),
    "tp": ("tensor ranks",),
    "cp": ("context ranks",),
    "ep": ("expert ranks",),
    "bubble": ("bubble",),
    "hops": ("pipeline hops",),
    "dp": ("data ranks",),
    "optimizer": ("optimizer",),
    "swap": ("swap",),
    "launches": ("launches", "host"),
    "stragglers": ("stragglers",),
}
"""Short names of the parts of a step."""


def train_screen(result: TrainingResult, page: Page, *, top: int, explain: bool, depth: int) -> None:
    """Print the plans of a training search.

    Parameters
    ----------
    result : the plans found, the best first.
    page : where to print.
    top : plans to show [1].
    explain : whether to print the explanation.
    depth : levels of the explanation [1].
    """
    plan = result.plans[0]
    rivals = list(dict.fromkeys(p.machine.text or p.machine.device.id for p in result.plans))
    for line in _head(result, plan):
        page.line(line)
    if len(rivals) > 1:
        _machine_lines(result, page, top)
    for line in _plan(result, plan):
        page.line(line)
    for line in [*_beside(result, plan), *_runner_up_lines(result, plan, top)]:
        page.line(line)
    for code, text in result.warnings:
        for line in wrapped(f"! {text}" if code != "model" else f"! model: {text}", indent=2):
            page.line(page.paint(line, "warning"))
    if explain:
        for name, metric in (("step time", "step_time"), ("memory", "memory_reserved")):
            known = plan.metrics[metric]
            page.line(f"{name} {doubts(known)}" if known.causes else f"{name}: by your own runs")
        trees_screen(_trees(plan), page, depth)
        return
    page.line("")
    target = target_of(plan)
    emitted = f" --emit {target}" if target in TARGETS else ""
    x = plan.layout
    for line in wrapped(
        "not modelled: evaluation, data loading that starves the devices · more: --explain --top 10 --csv FILE"
        f" --json{emitted} --strategy tp={x.tp:g},pp={x.pp}",
        indent=2,
    ):
        page.line(line)


def job_text(plan: TrainingPlan) -> str:
    """Return number format, optimizer and what is trained."""
    job = plan.job
    if job.adapter is not None:
        return f"{job.adapter.method} rank {job.adapter.rank} beside frozen {_base_format(job.adapter)} weights"
    return f"{job.precision}, {job.optimizer.name}"


def _base_format(adapter: Adapter) -> str:
    return adapter.stored


def _head(result: TrainingResult, plan: TrainingPlan) -> list[str]:
    """Return inputs and assumptions."""
    job, m, asked = plan.job, plan.machine, result.asked
    links = link_text(m)
    lines = wrapped(f"{plan.model.id} · {plan.model.total:,} parameters, {job_text(plan)}", indent=2)
    lines += wrapped(
        f"{machine_text(m)} · {units.gib(m.device.room)} GiB usable each" + (f", {links}" if links else ""),
        indent=2,
    )
    products, mixing = flops_per_token(plan.model, job.sequence, job.adapter)
    per, times = products + mixing, 6 if job.adapter is None else 4
    touched = products / times
    steps = f"{plan.run.steps:,.0f} steps x " if plan.run is not None else "one step of "
    lines += wrapped(
        f"job: {steps}{counted(job.batch, 'sequence')} x {job.sequence:,} · {units.significant(per / 1e9)} GFLOP a token ="
        f" {times} x {units.significant(touched / 1e9)}e9 + attention {units.significant(mixing / 1e9)}e9",
        indent=2,
    )
    floor = floor_days(asked, m, job.precision)
    words = [*asked.assumed, plan.framework.id]
    if plan.run is not None:
        p = plan.run.preset
        words.append(f"failures {units.significant(p.rate * 1000 * DAY)} per 1,000 device-days ({p.id})")
    lines += wrapped(f"assumed (flags change it): {' · '.join(words)} · {quoted(plan.cost)}", indent=2)
    if floor is not None:
        name, size = _unit_of(floor * DAY)
        lines.append(f"  floor at the dense peak {units.significant(floor * DAY / size)} {name}")
    return lines


def _unit_of(seconds: float) -> tuple[str, float]:
    """Return the unit that a long time is shown in, and its length [s]."""
    longer = (("days", DAY), ("h", HOUR))
    return next(((name, size) for name, size in longer if seconds >= 2.0 * size), ("min", 60.0))


def _share(plan: TrainingPlan) -> str:
    """Return the parts of a step in per cent, the largest first after compute."""
    whole = float(plan.step.time)
    found = {
        name: sum(float(plan.step.parts.get(part, 0.0)) for part in parts) / whole for name, parts in GROUPS.items()
    }
    shown = [f"{name} {100 * share:.0f}" for name, share in found.items() if share >= 0.005]
    return " · ".join(shown) + " %"


def _plan(result: TrainingResult, plan: TrainingPlan) -> list[str]:
    """Return the best plan with its arithmetic."""
    m, n = plan.metrics, plan.machine.count
    limit, share = binding(plan)
    said = f"{LIMIT_NAMES.get(limit, limit)} {share:.0%}"
    head = f"PLAN 1 of {result.tally.fits:,} that fit   {plan.label}      binds: {said}"
    lines = ["", *wrapped(head, indent=2)]
    seconds = m["step_time"]
    scale, unit = (1.0, "s") if seconds.value >= 1.0 else (1e3, "ms")
    lines += wrapped(f"  step          {interval(seconds, scale, unit):<24} {_share(plan)}", indent=16)
    mfu, hfu = m["mfu"], m["hfu"]
    rate = m["tokens_per_second_per_device"]
    tokens = plan.job.batch * plan.job.sequence
    lines += wrapped(
        f"  MFU           {_percent(mfu)} · {units.significant(rate.value)} tok/s a device = {tokens:,} /"
        f" {units.significant(seconds.value)} s / {n:,} · HFU {100 * hfu.value:.1f}%, recomputation counted",
        indent=16,
    )
    if plan.run is not None:
        lines += _run(result, plan)
    lines += _money(plan)
    lines += _memory(plan)
    lines += _published(plan)
    lines += folded(f"  launch        {_launch(plan)}")
    return lines


def _published(plan: TrainingPlan) -> list[str]:
    """Return the device-hours that the model's makers publish, scaled to the same number of tokens, beside the prediction."""
    if plan.run is None or plan.job.adapter is not None or plan.model.id not in catalogue.ids("models"):
        return []
    table = catalogue.model_table(plan.model.id).get("published", {})
    if table.get("training_device") != plan.machine.device.id or plan.job.tokens is None:
        return []
    hours, tokens = table["training_device_hours"], float(table["training_tokens"])
    theirs = float(hours["value"]) / HOUR * plan.job.tokens / tokens
    ours = plan.metrics["device_hours"].value
    why = (
        "of a whole project on its software of the day, not of this layout"
        if theirs > ours
        else "its makers' own software and layout were quicker than this plan"
    )
    text = f"  published     {theirs:,.0f} device-hours for as many tokens ({hours['source']}), {theirs / ours:.2f} x ours: {why}"
    return wrapped(text, indent=16)


def _launch(plan: TrainingPlan) -> str:
    text = launch_or_reason(plan)
    return text if "\n" not in text else "--emit deepspeed prints the configuration file"


def _percent(m: Metric) -> str:
    return f"{100 * m.value:.1f}% [{100 * m.low:.0f}, {100 * m.high:.0f}] {LETTER[m.grade]}"


def _run(result: TrainingResult, plan: TrainingPlan) -> list[str]:
    """Return how long the run takes, with its failures and checkpoints."""
    r = plan.run
    if r is None:
        return []
    today = date.today()
    ends = [_date(today, r.elapsed)]
    m = plan.metrics["days"]
    name, size = _unit_of(r.elapsed)
    late = result.asked.deadline is not None and m.high * DAY > result.asked.deadline
    passes = (
        f" · the interval passes the deadline of {units.significant(unwrap(result.asked.deadline) / DAY)} days"
        if late
        else ""
    )
    lines = wrapped(
        f"  finish        {units.significant(r.elapsed / size)} {name} [{units.significant(m.low * DAY / size, 2)},"
        f" {units.significant(m.high * DAY / size, 2)}] {LETTER[m.grade]} expected,"
        f" {units.significant(r.p90 / size)} at the p90 of failures ="
        f" {units.significant(r.work / size)} {name} of steps / goodput {r.goodput:.3f} · started today, it ends {ends[0]}{passes}",
        indent=16,
    )
    c = r.checkpoint
    how = "restart" if r.policy == "restart" else "drop the failed copy"
    lines += wrapped(
        f"  failures      one per {units.show(r.interruption, 's')}, {units.significant(r.failures)} in the run, {how}:"
        f" {units.show(r.restart, 's')} each · checkpoint {units.show(c.bytes, 'B')} every {units.show(c.interval, 's')}"
        f" (Daly), the run stands {units.show(c.stall, 's')} for it · {counted(r.spares, 'spare host')}, not in the cost",
        indent=16,
    )
    return lines


def _date(today: date, seconds: float) -> str:
    """Return the day after so many seconds, or that it never comes."""
    return (today + timedelta(days=seconds / DAY)).isoformat() if seconds < NEVER else "never"


NEVER = 3e9
"""Time from which no end date is printed, about a century [s]."""


def _money(plan: TrainingPlan) -> list[str]:
    """Return device-hours, dollars, energy and carbon."""
    m, n = plan.metrics, plan.machine.count
    words = []
    if "cost" in m and plan.cost is not None and plan.run is not None:
        hours = plan.run.elapsed / HOUR * n
        c = m["cost"]
        scale, unit = (1e-6, "M USD") if c.value >= 1e6 else (1.0, "USD")
        words.append(
            f"{interval(c, scale, unit)} = {_hours(hours)} device-hours x {units.significant(plan.cost.per_device)}"
        )
    elif plan.run is not None:
        words.append(
            f"absent: no such price; {_hours(plan.run.elapsed / HOUR * n)} device-hours; give --price 2.50USD/h"
        )
    elif "cost_per_million_tokens" in m:
        words.append(f"{units.significant(m['cost_per_million_tokens'].value)} USD per million tokens trained on")
    if "energy" in m:
        kwh = m["energy"].value / units.JOULE_PER_KWH
        words.append(f"{units.significant(kwh / 1e3)} MWh" if kwh >= 1e3 else f"{units.significant(kwh)} kWh")
    if "carbon" in m:
        words.append(f"{units.significant(m['carbon'].value / 1e6)} t CO2")
    return wrapped(f"  cost          {' · '.join(words)}", indent=16) if words else []


def _hours(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000.0 else units.significant(value)


def _memory(plan: TrainingPlan) -> list[str]:
    """Return the ledger of the fullest stage."""
    held = plan.ledger
    parts = " + ".join(f"{t.name} {units.gib(float(t.value))}" for t in held.allocated.parts if float(t.value) >= 2**20)
    room = plan.machine.device.room
    stage = f"stage {held.stage.place + 1} of {plan.layout.pp} is fullest: " if plan.layout.pp > 1 else ""
    away = plan.metrics.get("host_memory")
    has = plan.machine.host_memory
    beside = f", and {units.gib(away.value)} GiB in each host's memory" if away else ""
    beside += f" of {units.gib(has)} GiB" if away and has else ""
    used, width = float(held.reserved) / room if room else 0.0, 40
    filled = min(width, round(used * width))
    return [
        *wrapped(
            f"  memory        {stage}{parts} = {units.gib(float(held.allocated.value))}, with the allocator's slack"
            f" {units.gib(float(held.reserved))} of {units.gib(room)} GiB{beside}",
            indent=16,
        ),
        f"                {'█' * filled}{'░' * (width - filled)} {100 * used:.0f}%",
    ]


def reason_behind(plan: TrainingPlan, first: TrainingPlan) -> str:
    """Return which part of the step makes a plan slower than the first."""
    extra = {
        name: sum(float(plan.step.parts.get(p, 0.0)) for p in parts)
        / float(plan.step.time)
        * plan.metrics["step_time"].value
        - sum(float(first.step.parts.get(p, 0.0)) for p in parts)
        for name, parts in GROUPS.items()
    }
    if plan.machine.count != first.machine.count or plan.job.batch != first.job.batch:
        return "another machine"
    name = max(extra, key=lambda key: extra[key])
    share = sum(float(plan.step.parts.get(p, 0.0)) for p in GROUPS[name]) / float(plan.step.time)
    words = f"{name} {100 * share:.0f}%" if extra[name] > 0 else "a little slower"
    if plan.layout.tp > plan.machine.per_host:
        words += ", tp leaves the host"
    return words


def _beside(result: TrainingResult, plan: TrainingPlan) -> list[str]:
    """Return how pinned degrees compare with the best, and the smallest cluster that meets the deadline."""
    lines, own, least = [], result.standing, result.smallest
    if own is not None and own.best.layout != plan.layout:
        inside = ", inside the interval" if own.within_interval else ""
        lines.append(f"  rank          {own.ratio - 1:.1%} behind {own.best.label}{inside}")
    elif own is not None:
        lines.append("  rank          the best layout of this machine")
    if least is not None:
        name, size = _unit_of(least.metrics["days"].value * DAY)
        days = f"{units.significant(least.metrics['days'].value * DAY / size)} {name}"
        cost = f", {_thousands(least.metrics['cost'].value)} USD" if "cost" in least.metrics else ""
        lines.append(
            f"  smallest      {least.machine.count:,} devices, {least.machine.text} {least.layout.label()}: {days}{cost}"
        )
    return [piece for line in lines for piece in wrapped(line, indent=16)]


def _thousands(value: float) -> str:
    return f"{value / 1e6:.3g}M" if value >= 1e6 else f"{value:,.0f}"


def _runner_up_lines(result: TrainingResult, plan: TrainingPlan, top: int) -> list[str]:
    """Return the runners-up, each with the reason why it is behind."""
    lines = []
    for index, other in enumerate(result.plans[1 : max(top, 3)], start=2):
        ratio = other.metrics["step_time"].value / plan.metrics["step_time"].value
        star = "*" if other.pareto else " "
        where = f"{other.machine.text} " if other.machine.text != plan.machine.text else ""
        head = "next" if index == 2 else " " * 4
        room = units.gib(float(other.ledger.reserved))
        near = " ≈" if other.within_interval else ""
        why = ("tied, " if other.tied else "") + reason_behind(other, plan)
        text = f"  {head}          {index}{star} {where}{other.label}   {100 * (ratio - 1):+.1f}%{near}, {room} GiB   {why}"
        lines += wrapped(text, indent=18)
    if lines:
        lines.append(" " * 16 + "* front of time against memory on its machine  ≈ inside the interval")
    return lines


def _machine_lines(result: TrainingResult, page: Page, top: int) -> None:
    """Print the best plan of each machine."""
    best: dict[str, TrainingPlan] = {}
    for plan in result.plans:
        best.setdefault(plan.machine.text or machine_text(plan.machine), plan)
    page.line("")
    run = result.plans[0].run is not None
    most = max((p.metrics["cost"].value for p in best.values() if "cost" in p.metrics), default=0.0)
    scale, unit = (1e-6, "M USD") if most >= 1e7 else (1.0, "USD")
    ends = f"{'days':>9}{unit:>11}" if run else f"{'USD/Mtok':>20}"
    page.line(f"  {'device:count':<24}{'plan':<26}{'step s':>9}{'MFU %':>7}{ends}  price seen")
    for name, plan in list(best.items())[: max(top, 12)]:
        m = plan.metrics
        days = units.significant(m["days"].value) if "days" in m else "-"
        cost = units.significant(m["cost"].value * scale) if "cost" in m else "-"
        each = units.significant(m["cost_per_million_tokens"].value) if "cost_per_million_tokens" in m else "-"
        ends = f"{days:>9}{cost:>11}" if run else f"{each:>20}"
        seen = f"{plan.cost.price.date}{' !' if plan.cost.stale else ''}" if plan.cost else "-"
        page.line(
            f"  {name:<24}{plan.layout.label():<26}{units.significant(m['step_time'].value):>9}"
            f"{100 * m['mfu'].value:>7.1f}{ends}  {seen}"
        )


def _trees(plan: TrainingPlan) -> list[tuple[str, Term]]:
    """Return the Term trees of step, memory and power with the texts that stand beside them."""
    m, held = plan.metrics["step_time"], float(plan.ledger.allocated.value)
    trees: list[tuple[str, Term]] = [
        (f"step {interval(m, 1.0, 's')}", plan.term),
        (
            f"memory of stage {plan.ledger.stage.place + 1}: {units.gib(held)} GiB = {units.show(held, 'B')}",
            plan.ledger.allocated,
        ),
    ]
    if plan.power is not None:
        trees.append((f"power {units.show(float(plan.power.value), 'W')}", plan.power))
    return trees
