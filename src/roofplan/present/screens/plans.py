"""The screen of ``roofplan serve``: the best plan with its arithmetic, and why other plans are behind."""

from __future__ import annotations

import math

from roofplan.errors import NoPlan
from roofplan.money import HourlyCost
from roofplan.present.screens.explain import explain_screen
from roofplan.present.screens.page import Page, counted, folded, interval, wrapped
from roofplan.records import units
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.prices import Price
from roofplan.serving import (
    DEFAULT_TPOT,
    LIMIT_NAMES,
    Plan,
    Result,
    all_in_cost,
    better,
    first_bound,
    floors,
    objective,
)
from roofplan.serving.links import gains, link_use
from roofplan.timing.power import HOUSEHOLD_CIRCUIT, over_household_circuit


def machine_text(machine: Machine) -> str:
    """Return ``8 x h100-sxm`` with hosts where there are several."""
    if machine.hosts == 1:
        return f"{machine.count} x {machine.device.id}"
    return f"{machine.hosts} hosts x {machine.per_host} {machine.device.id}"


def link_text(machine: Machine) -> str:
    """Return how the devices of a machine reach each other."""
    parts = []
    if machine.per_host > 1:
        if machine.scale_up is not None:
            rate = machine.device.value("link_bandwidth") or machine.scale_up.bandwidth
            parts.append(f"{machine.scale_up.name} {units.significant(rate / 1e9)} GB/s one way")
        elif machine.host_link is not None:
            staged = (
                " without peer-to-peer: all-reduce passes host memory" if machine.device.peer_to_peer == "none" else ""
            )
            parts.append(
                f"{machine.host_link.name} {units.significant(machine.host_link.bandwidth / 1e9)} GB/s{staged}"
            )
    if machine.network is not None:
        parts.append(
            f"{machine.ports} x {machine.network.id} a host, {units.significant(machine.network.bandwidth / 1e9)} GB/s a port"
        )
        pod, taper = machine.network.value("pod"), machine.network.value("taper")
        if pod and taper:
            parts.append(f"{taper:g} devices share the rate of one beyond pods of {pod:,.0f}")
    return ", ".join(parts)


def price_text(plan: Plan) -> str:
    """Return the price with its kind, provider and date, or why there is none."""
    return quoted(plan.cost)


def quoted(cost: HourlyCost | None) -> str:
    """Return a price with its kind, provider and date, or why there is none."""
    if cost is None:
        return "no price of this kind for this instance size in the catalogue: cost is absent"
    p = cost.price
    words = [
        p.kind.replace("rent-on-demand", "rent on demand").replace("rent-contract", "contract"),
        f"{units.significant(p.value)} USD/h{_between(p)}",
    ]
    size = f"by {p.count}" if p.count else ""
    words += [x for x in (f"{p.provider} {size}".strip(), p.term, p.date + (" !" if cost.stale else "")) if x]
    return ", ".join(words)


def _between(price: Price) -> str:
    """Return the bounds of a price, empty where it is a single number."""
    if price.low is None or price.high is None or price.low == price.high:
        return ""
    return f" [{units.significant(price.low)}, {units.significant(price.high)}]"


def weights_text(model: Model, *, changed: bool = False) -> str:
    """Return how the weights are stored."""
    plan = model.quantization
    if plan is None:
        unstated = f"{model.dtype}, read as such: the config states no dtype"
        as_it_is = f"{model.dtype} as published" if model.stated_dtype else unstated
        return f"weights changed to {model.dtype}" if changed else as_it_is
    if plan.parts:
        named = {"mixer": "attention", "feed": "feed-forward", "shared": "shared experts"}
        return f"{', '.join(f'{kept} {named.get(part, part)}' for part, kept in plan.parts)}, the rest {model.dtype}"
    where = "experts only" if plan.only_experts else "linear layers"
    return f"{plan.format} {where}, the rest {plan.beside or model.dtype}"


def head_lines(plan: Plan) -> list[str]:
    """Return inputs and assumptions."""
    w, m = plan.workload, plan.machine
    usable = units.gib(plan.memory.capacity)
    asked = f"--input {w.input} --output {w.output} --context {w.context} --engine {plan.engine.id}"
    if w.prefix_hit:
        asked += f" --prefix-hit {100 * w.prefix_hit:.5g}%"
    if w.drafted:
        asked += f" --draft {w.drafted}:{w.acceptance:g}"
    lines = [
        f"{plan.model.id} · {plan.model.total:,} parameters, {weights_text(plan.model, changed=plan.precision != 'checkpoint')}, cache {plan.kv_precision}"
    ]
    links = link_text(m)
    lines += wrapped(
        f"{machine_text(m)} · {usable} GiB usable each" + (f", {links}" if links else "") + f" · {price_text(plan)}",
        indent=2,
    )
    lines += wrapped(f"assumed (flags change it): {asked}" + ("" if w.prefix_hit else ", no prefix hits"), indent=2)
    return lines


def load_text(plan: Plan) -> str:
    """Return at which load a token's cost is counted."""
    return "at full load" if plan.utilisation == 1.0 else f"at {plan.utilisation:.0%} of what these users could ask for"


def bar(plan: Plan, width: int = 40) -> str:
    """Return memory as a bar: weights solid, cache in use hatched, the rest of the engine solid, free dotted."""
    book = plan.memory
    used = min(book.pool, book.request * plan.users / plan.strategy.groups)
    segments = [(book.weights, "█"), (used, "▒"), (book.activations + book.runtime + book.graphs, "█")]
    drawn = ""
    position = 0.0
    for size, glyph in segments:
        position += size / book.capacity * width
        drawn += glyph * (round(position) - len(drawn))
    return drawn[:width].ljust(width, "░")


def plan_lines(result: Result, plan: Plan, page: Page, simulated: str) -> list[str]:
    """Return the five lines that answer: users, total, cost, why not more, first token."""
    s, n = plan.metrics, plan.machine.count
    star = "*" if plan.pareto else ""
    changed = f"   changes the model: {plan.changes}" if plan.changes_model else ""
    lines = ["", f"PLAN 1 of {len(result.plans)}{star}   {plan.label}{changed}"]
    each = (
        f": TPOT {interval(s['tpot'], 1e3, 'ms')}, {_shown(plan, 'tokens_per_second_per_user')} tok/s each"
        if "tpot" in s
        else ""
    )
    lines.append(f"  users         {plan.users:,} at once{each}{_chosen_by(result, plan)}")
    per = s["output_tokens_per_second_per_device"]
    lines.append(
        f"  in all        {interval(s['output_tokens_per_second'], 1, 'tok/s')} = {units.significant(per.value)} x {n} devices"
    )
    whole = all_in_cost(plan)
    if whole is not None and plan.cost is not None:
        lines.append(
            f"  cost          {interval(whole, 1, 'USD/Mtok')} out, all in · {units.significant(plan.cost.total, 4)} USD/h"
            f" = {n} x {units.significant(plan.cost.per_device)}, {load_text(plan)}"
        )
    else:
        box = f"{plan.machine.per_host} {plan.machine.device.id}"
        missing = (
            f"what a host of {box} costs is not known, its cards alone: roofplan cost machine --on {box.replace(' ', 'x')}"
            if result.asked.price == "own"
            else f"no {result.asked.price} price for an instance of {box}"
        )
        lines.append(f"  cost          absent: {missing}; give --price 2.50USD/h")
    most, *others = [f"{share:.0%} {cause}" for cause, share in plan.causes.items() if share >= SMALLEST_CAUSE]
    lines.append(f"  why not more  {' · '.join((page.paint(most, 'limit'), *others))}")
    first = f"     limit {units.show(result.asked.constraints.ttft, 's')}" if result.asked.constraints.ttft else ""
    lines.append(
        f"  first token   {interval(s['ttft'], 1e3, 'ms')} with {counted(plan.users, 'user')}, no queue{_front(plan)}{first}"
    )
    lines += _under_load(plan, page, simulated)
    if plan.idle_devices:
        lines.append(f"  idle          {plan.idle_devices} of {n} devices: replicas without a user{_idle_cost(plan)}")
    return lines


def _front(plan: Plan) -> str:
    """Return what a server adds to a first token before and behind the step."""
    r = plan.rates
    front = float(r.front + r.delay)
    return f", +{units.show(front, 's')} front end" if front else ""


def _under_load(plan: Plan, page: Page, simulated: str) -> list[str]:
    """Return what users feel at the demanded rate, or how to ask for it."""
    felt = plan.under_load
    if felt is None:
        return folded(f"  under load    p99: {simulated}", end=" \\")
    parts = [
        f"{name} {units.show(time, 's')} of {units.show(limit, 's')}" + ("" if time <= limit else " MISSED")
        for name, time, limit in felt.limits
    ]
    seats = f", launched with {plan.seats:,} seats a replica" if plan.seats else ""
    said = f"  under load    {100.0 * felt.good:.4g}% of requests inside: {', '.join(parts)}{seats}"
    said += f" · the queue grows by {units.significant(felt.growth)} req/s" if felt.growth else ""
    return folded(said if felt.holds else page.paint(said, "warning"))


SMALLEST_CAUSE = 0.01
"""Share of the time between tokens from which a cause is named [1]."""


def _chosen_by(result: Result, plan: Plan) -> str:
    """Return what chose the number of users: the limit on time, or 50 ms where nothing else does."""
    c = result.asked.constraints
    if c.tpot is not None:
        return f"     limit {units.show(c.tpot, 's')}"
    asked = c.concurrency or c.rate or c.ttft or c.tokens_per_second_per_user or result.asked.best == "latency"
    return "" if asked or plan.pace.value > DEFAULT_TPOT else "     50 ms chose the row"


def _idle_cost(plan: Plan) -> str:
    """Return what idle devices cost."""
    if plan.cost is None:
        return ""
    return (
        f", {units.significant(plan.idle_devices * plan.cost.per_device)} of {units.significant(plan.cost.total)} USD/h"
    )


def detail_lines(plan: Plan) -> list[str]:
    """Return what stands behind the five lines: the time of a request over its tokens, floors, and what input and output cost."""
    s, least = plan.metrics, floors(plan.model, plan.strategy, plan.workload, plan.rates, 1)
    dense, experts = least.ranks
    shared = f"{dense}" if dense == experts else f"{dense}, experts of {experts}"
    prompt = (
        f" · first token {units.show(least.first, 's')}: {units.show(least.work, 'FLOP')} at the dense peak of {shared}"
    )
    lines = [
        f"  cycle time    {interval(s['cycle_time'], 1e3, 'ms'):<27} a request over its tokens, its prompt included",
        f"  floors        {units.show(least.token, 's')} a token to read one user's weights{prompt if least.first else ''}",
    ]
    if plan.cost is not None:
        into, out = s["cost_per_million_input_tokens"].value, s.get("cost_per_million_output_tokens")
        lines.append(
            f"  split         by what each adds to the steps: {units.significant(into)} USD/Mtok in{f', {units.significant(out.value)} out' if out else ''}"
        )
    return lines


def resource_lines(plan: Plan, page: Page) -> list[str]:
    """Return memory, power and links."""
    s, m = plan.metrics, plan.memory
    end = " (the model's end)" if plan.model.max_positions and m.longest >= plan.model.max_positions else ""
    kept = {
        "weights": m.weights,
        "KV": plan.cache_in_use,
        "activations": m.activations,
        "runtime": m.runtime + m.graphs,
        "free": max(0.0, m.pool - plan.cache_in_use),
        "left alone": m.left_alone,
    }
    parts = " + ".join(f"{name} {units.gib(size)}" for name, size in kept.items())
    lines = [
        f"  memory        {parts} = {units.gib(m.capacity)} GiB",
        f"                {bar(plan)} longest request {int(m.longest):,}{end}",
    ]
    if plan.power is not None:
        watts, joule = s["power"], s["energy_per_output_token"]
        hosts = ", hosts included" if len(plan.power.parts) > 1 else ", hosts not known and left out"
        scale, unit = (1e-3, "kW") if watts.value >= 1000 else (1.0, "W")
        lines.append(
            f"  power         {interval(watts, scale, unit)} at the wall · {units.significant(joule.value)} J/token{hosts}"
        )
        beyond = over_household_circuit(plan.machine, watts.value)
        if beyond is not None:
            lines.append(
                f"                {units.significant(beyond / 1e3)} kW a host is over a 15 A, 120 V circuit ({HOUSEHOLD_CIRCUIT / 1e3:.3g} kW continuous)"
            )
    lines += link_lines(plan)
    if plan.machine.device.geforce_licence:
        lines.append(page.paint("                GeForce licence: no data centres", "warning"))
    return lines


def _shown(plan: Plan, name: str, scale: float = 1.0) -> str:
    """Return a metric of a plan as tables show it, a dash where it has none."""
    return units.significant(plan.metrics[name].value * scale) if name in plan.metrics else "-"


def reached(result: Result, plan: Plan) -> list[str]:
    """Return the limit on time that a plan has reached, none where it reaches none."""
    limits = {name: getattr(result.asked.constraints, name) for name in ("tpot", "ttft")}
    near = {
        name: plan.metrics[name].value / limit
        for name, limit in limits.items()
        if limit is not None and name in plan.metrics
    }
    return [name for name, share in near.items() if share == max(near.values()) and share >= REACHED]


REACHED = 0.98
"""Share of a limit from which a plan is said to have reached it [1]."""


def ladder_lines(result: Result, plan: Plan) -> list[str]:
    """Return the ladder over users."""
    lines = ["", "     users   TPOT ms  tok/s a user     tok/s  USD/Mtok out  most of a step"]
    for step in result.ladder:
        whole = all_in_cost(step)
        cause, share = next(iter(step.causes.items()))
        cause = cause.removeprefix("other users' ")
        mark = ">" if step.users == plan.users else " "
        ends = ""
        if step.users == step.memory.max_concurrency:
            full = step.memory.by_memory <= step.memory.by_setting
            ends = f" · end: {'KV cache full' if full else 'max_num_seqs'}"
        if step.users == plan.users and step.users != step.memory.max_concurrency:
            ends += "".join(f" · limit --{name}" for name in reached(result, step))
        lines.append(
            f" {mark} {step.users:>7,} {_shown(step, 'tpot', 1e3):>9} {_shown(step, 'tokens_per_second_per_user'):>13}"
            f" {units.significant(step.metrics['output_tokens_per_second'].value):>9}"
            f" {units.significant(whole.value) if whole else '-':>13}  {cause} {share:.0%}{ends}"
        )
    return lines


def gain_lines(result: Result) -> list[str]:
    """Return what each added device still gains, where sizes of one machine compete."""
    kinds = {(m.device.id, m.network.id if m.network else None) for m in result.asked.machines}
    sizes = gains(result.plans)
    if len(kinds) != 1 or len(sizes) < 2:
        return []
    words = [
        f"{count}: {units.significant(rate)}" + ("" if gain is None else f" ({units.significant(gain)} each)")
        for count, rate, gain in sizes
    ]
    return wrapped(
        f"  devices      tok/s of each size, and what each added device gains: {', '.join(words)}", indent=15
    )


def link_lines(plan: Plan) -> list[str]:
    """Return how busy the network is, and what a board and a switch must offer, where stages lie in several hosts."""
    use, m = link_use(plan), plan.machine
    if use is None or m.network is None:
        return []
    lines = []
    if use.hop is not None and use.busy is not None:
        lines.append(
            f"  links         {m.network.id}: {units.show(use.hop, 's')} a hop, {units.significant(100 * use.busy, 2)}% of a stage's time"
        )
    if use.lanes is not None:
        lines.append(
            f"  boards        {use.switch_ports} switch ports; {use.lanes} lanes a host for {m.per_host} x16 card and {m.ports} adapter"
        )
    return lines


def reason_behind(plan: Plan, first: Plan) -> str:
    """Return why a plan is behind the first."""
    a, b = plan, first
    words = ["tied" if plan.pareto else "tied, off the front"] if plan.tied else []
    weight = a.memory.weights / b.memory.weights
    if weight > 1.2 and a.machine.device.id == b.machine.device.id:
        words.append(f"weights {units.significant(weight, 2)}x a device")
    kv = a.memory.max_concurrency / max(1, b.memory.max_concurrency)
    if kv < 0.8:
        words.append(f"room for {kv:.0%} as many users")
    mine, theirs = first_bound(a), first_bound(b)
    if mine[0] == "communication" or mine[0] != theirs[0]:
        words.append(f"{mine[1]:.0%} {LIMIT_NAMES[mine[0]]}")
    ratio = a.pace.value / b.pace.value
    if a.users == b.users and ratio > 1.02:
        words.append(f"{'TPOT' if 'tpot' in a.metrics else 'a request'} +{ratio - 1:.0%}")
    if a.users != b.users:
        words.append(f"{counted(a.users, 'user')} at {units.significant(a.pace.value * 1e3)} ms")
    if int(a.strategy.pp) > 1 and int(b.strategy.pp) == 1:
        words.append("stages in turn")
    return ", ".join(words[:4]) or "a little slower"


def runner_lines(result: Result, plan: Plan, top: int) -> list[str]:
    """Return the runners-up, each with the reason why it is behind."""
    others = result.plans[1 : max(top, 3)]
    lines = []
    for index, other in enumerate(others, start=2):
        value = objective(other, result.asked.best)
        shown = _objective_text(other, result.asked.best) if math.isfinite(value) else "no price"
        star = "*" if other.pareto else " "
        where = (
            f"{other.machine.text or machine_text(other.machine)} "
            if len({p.machine.text for p in result.plans}) > 1
            else ""
        )
        engine = f"{other.engine.id} " if len({p.engine.id for p in result.plans}) > 1 else ""
        head = "next" if index == 2 else " " * 4
        changed = f" {other.changes}" if other.changes_model else ""
        near = " ≈" if other.within_interval else ""
        text = f"{head}          {index}{star} {where}{engine}{other.label}{changed}   {shown}{near}   {reason_behind(other, plan)}"
        lines += wrapped(text, indent=18, first=2)
    return lines


def _objective_text(plan: Plan, best: str) -> str:
    if best == "latency":
        return f"{'TPOT' if 'tpot' in plan.metrics else 'a request'} {units.significant(plan.pace.value * 1e3)} ms"
    if best == "throughput":
        return f"{units.significant(plan.metrics['output_tokens_per_second_per_device'].value)} tok/s a device"
    if best == "devices":
        return f"{plan.machine.count} devices"
    if best == "energy":
        return f"{units.significant(plan.metrics['energy_per_output_token'].value)} J/token"
    whole = all_in_cost(plan)
    return f"{units.significant(whole.value)} USD/Mtok out" if whole else "no price"


def beside_lines(result: Result, plan: Plan) -> list[str]:
    """Return how pinned degrees rank, and a smaller machine that serves the demand."""
    lines, own, less = [], result.standing, result.smaller
    best = result.asked.best
    if own is not None:
        far = "" if math.isnan(own.ratio) else f"{own.ratio - 1:.1%} "  # not known without a price
        gap = "the same figure" if own.ratio < 1 + 1e-9 else f"{far}behind"
        inside = ", inside the interval" if own.within_interval else ""
        first = f" {own.best.label}: {_objective_text(own.best, best)}{inside}" if own.place > 1 else ""
        rank = f"the best of {own.of}" if own.place == 1 else f"{own.place} of {own.of}, {gap}"
        lines.append(f"rank          {rank}{first}")
    if less is not None:
        idle = plan.machine.count - less.machine.count
        spared = (
            f": {units.significant(plan.cost.total - less.cost.total)} USD/h less"
            if plan.cost is not None and less.cost is not None
            else ""
        )
        pace = f" at {units.significant(less.pace.value * 1e3)} ms"
        lines.append(
            f"smaller       {less.machine.text} {less.label} serves {counted(less.users, 'user')}{pace} and leaves {idle} devices free{spared}"
        )
    return [piece for line in lines for piece in wrapped(line, indent=16, first=2)]


def improvement_lines(result: Result) -> list[str]:
    """Return what would do better with the layout as it is, each change tried and with its gain; its own best layout may gain more."""
    words, now = [], result.plans[0]
    for one in better(result)[:MOST_IMPROVEMENTS]:
        gain = f"+{1 / one.ratio - 1:.0%}" if result.asked.best == "throughput" else f"-{1 - one.ratio:.0%}"
        words.append(
            f"{one.argument} {one.needed} {gain}"
            + (", changes the model" if one.plan.changes_model and one.plan.changes != now.changes else "")
        )
    kept = f"{now.label} kept: " if words and len(result.plans) > 1 else ""
    tried = (
        kept + " · ".join(words) or "prefix hits, 8 bits, chunk sizes and other engines were tried: none gains over 1%"
    )
    missing = wrapped("not modelled: queueing, prompts of unlike length, images", indent=16, first=2)
    return [*wrapped(f"better        {tried}", indent=16, first=2), *missing]


MOST_IMPROVEMENTS = 3
"""Improvements that the screen names [1]."""


def serve_screen(
    result: Result, page: Page, simulated: str, *, top: int = 2, explain: bool = False, depth: int = 2
) -> None:
    """Print the answer to ``roofplan serve``.

    Parameters
    ----------
    result : the plans found, the best first.
    page : where to print.
    simulated : the command that simulates the best plan.
    top : plans to show [1].
    explain : whether to print the explanation.
    depth : levels of the explanation [1].
    """
    plan = result.plans[0]
    for line in head_lines(plan):
        page.line(line)
    notes = [text for code, text in result.warnings if code != "geforce_licence"]
    for line in [piece for text in notes for piece in wrapped(f"note: {text}", indent=6)]:
        page.line(page.paint(line, "warning"))
    if len({p.machine.text for p in result.plans}) > 1 and len(result.asked.machines) > 8:
        device_table(result, page, top)
    lines = plan_lines(result, plan, page, simulated)
    if explain:
        lines += [*detail_lines(plan), *resource_lines(plan, page)]
    for line in lines:
        for piece in folded(line) if not page.colour else [line]:
            page.line(piece)
    if explain:
        explain_screen(plan, page, depth)
        return
    ladder = [piece for row in ladder_lines(result, plan) for piece in folded(row, indent=54)]
    resources = [
        piece for line in resource_lines(plan, page) for piece in (folded(line) if not page.colour else [line])
    ]
    beside = [
        piece for line in (nearest_line(plan), launch_line(plan)) if line for piece in wrapped(line, indent=16, first=2)
    ]
    below = [
        *gain_lines(result),
        *beside_lines(result, plan),
        *runner_lines(result, plan, top),
        *improvement_lines(result),
    ]
    for line in [*ladder, "", *resources, *beside, *below]:
        page.line(line)
    for line in closing_lines(result, page):
        page.line(line)


def closing_lines(result: Result, page: Page) -> list[str]:
    """Return what was searched, and what to type next."""
    t = result.tally
    counted = f"searched {t.enumerated:,} configurations: {t.legal:,} legal, {t.fits:,} fit"
    star = " " * 8 + "* Pareto front  ≈ inside the interval"
    from roofplan.exports.serving import SHORT

    short = next((name for name, engine in SHORT.items() if engine == result.plans[0].engine.name), "vllm")
    return [
        page.paint(f"{counted}, {t.predicted:,} predicted in {t.seconds:.2f} s", "dim"),
        f"more: --explain --top 10 --csv FILE --json --emit {short}" + star,
    ]


def device_table(result: Result, page: Page, top: int) -> None:
    """Print one row per device with its best plan."""
    seen: dict[str, Plan] = {}
    for plan in result.plans:
        seen.setdefault(plan.machine.device.id, plan)
    rows = list(seen.values())
    shown = rows[: max(12, top)]
    page.line("")
    page.line(
        f"  {'device:count':<22}{'plan':<20}{'users':>6}{'TPOT ms':>9}{'tok/s':>8}{'USD/h':>8}{'USD/Mtok':>10}  price seen  notes"
    )
    for plan in shown:
        whole = all_in_cost(plan)
        notes = []
        if plan.machine.device.geforce_licence:
            notes.append("GeForce licence: no data centres")
        if plan.tied or plan.within_interval:
            notes.append("tied" if plan.tied else "≈")
        seen_on = f"{plan.cost.price.date}{' !' if plan.cost.stale else ''}" if plan.cost else "-"
        page.line(
            f"  {plan.machine.text or machine_text(plan.machine):<22}{plan.label:<20}{plan.users:>6,}{_shown(plan, 'tpot', 1e3):>9}"
            f"{units.significant(plan.metrics['output_tokens_per_second'].value):>8}"
            f"{units.significant(plan.cost.total) if plan.cost else '-':>8}"
            f"{units.significant(whole.value) if whole else '-':>10}  {seen_on:<11} {', '.join(notes)}"
        )
    if len(rows) > len(shown):
        page.line(
            f"  and {len(rows) - len(shown)} more devices that fit (--top {len(rows)}); those without a price stand last"
        )


def nearest_line(plan: Plan) -> str:
    """Return the published measurement that is nearest to a plan, if one is near."""
    from roofplan.evidence.nearest import nearest_measured

    rows = nearest_measured(plan, 1)
    if not rows:
        return ""
    row = rows[0]
    return f"measured      {row['text']}"


def launch_line(plan: Plan) -> str:
    """Return the command that starts the plan."""
    from roofplan.exports.serving import launch

    return f"launch        {launch(plan)}"


def no_plan_lines(refusal: NoPlan) -> list[str]:
    """Return why there is no plan, and the smallest changes that would allow one.

    Parameters
    ----------
    refusal : why there is no plan.

    Returns
    -------
    Lines with the reason, then one line per change that would allow a plan.
    """
    lines = wrapped(refusal.message, indent=2)
    if refusal.relax:
        lines.append("ways out, smallest change first")
    for item in refusal.relax:
        plan = item.get("plan", {})
        tail = ""
        if "step_time" in plan:
            tail = f"->  {plan['layout']}, a step in {units.significant(plan['step_time'])} s"
        elif plan:
            pace = f"TPOT {units.significant(plan['tpot'] * 1e3)} ms, " if "tpot" in plan else ""
            tail = (
                f"->  {plan.get('label', '')}, {pace}{counted(plan['users'], 'user')}"
                + (f", context {int(plan['context']):,}" if "context" in plan else "")
                + f", {plan.get('engine', '')}"
            )
        text = item.get("text") or f"{item['argument']} {item['needed']}"
        lines.append(f"  {text}  ".ljust(34) + tail)
    return lines
