"""Answers as text: one screen, the best plan first, visible arithmetic, a reason for every loser.

Nothing is computed here; numbers come from plans and Terms.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from roofplan import catalogue, units
from roofplan.errors import NoPlan
from roofplan.operations import bits, element_bytes, format_entry, head_format
from roofplan.records.hardware import Accelerator, Machine
from roofplan.records.model import Attention, Dense, LatentAttention, Mixture, Model, Recurrence
from roofplan.records.strategy import Strategy
from roofplan.search import DEFAULT_TPOT, Metric, Plan, Result, all_in_cost, bounds, objective
from roofplan.serve import LIMIT_NAMES, footprint, leaves
from roofplan.terms import Term

WIDTH = 100
GLYPHS = {"█": "#", "▒": "=", "░": ".", "▌": "|", "├": "|", "└": "+", "│": "|", "◀": "<-", "×": "x", "µ": "u", "·": "|"}
LETTER = {"measured": "m", "calibrated": "c", "borrowed": "b", "guessed": "g"}


class Page:
    """Lines on their way to a stream: colour only where the stream takes it, plain glyphs where it must."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        encoding = (getattr(stream, "encoding", None) or "ascii").lower()
        self.unicode = "utf" in encoding
        forced, refused = os.environ.get("FORCE_COLOR"), os.environ.get("NO_COLOR")
        self.colour = bool(forced) or (not refused and hasattr(stream, "isatty") and stream.isatty())

    def line(self, text: str = "") -> None:
        """Write one line."""
        if not self.unicode:
            for glyph, plain in GLYPHS.items():
                text = text.replace(glyph, plain)
            text = text.encode("ascii", "replace").decode()
        self.stream.write(text.rstrip() + "\n")

    def paint(self, text: str, what: str) -> str:
        """Return text in one of three colours: ``limit``, ``warning``, ``dim``."""
        if not self.colour:
            return text
        code = {"limit": "1;36", "warning": "33", "dim": "2"}[what]
        return f"\x1b[{code}m{text}\x1b[0m"


def wrapped(text: str, indent: int = 0, first: int = 0) -> list[str]:
    """Return text in lines of at most `WIDTH`, broken at spaces."""
    lines, current = [], " " * first
    for word in text.split(" "):
        if len(current) + len(word) + 1 > WIDTH and current.strip():
            lines.append(current.rstrip())
            current = " " * indent
        current += word + " "
    return [*lines, current.rstrip()]


def interval(m: Metric, scale: float, unit: str) -> str:
    """Return ``49.6 ms [42, 58] c``."""
    return f"{units.significant(m.value * scale)} {unit} [{units.significant(m.low * scale, 2)}, {units.significant(m.high * scale, 2)}] {LETTER[m.grade]}"


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
            staged = " without peer-to-peer: all-reduce passes host memory" if machine.device.peer_to_peer == "none" else ""
            parts.append(f"{machine.host_link.name} {units.significant(machine.host_link.bandwidth / 1e9)} GB/s{staged}")
    if machine.network is not None:
        parts.append(f"{machine.ports} x {machine.network.id} a host, {units.significant(machine.network.bandwidth / 1e9)} GB/s a port")
    return ", ".join(parts)


def price_text(plan: Plan) -> str:
    """Return the price with its kind, provider and date, or why there is none."""
    if plan.cost is None:
        return "no price of this kind for this instance size in the catalogue: cost is absent"
    p = plan.cost.price
    words = [p.kind.replace("rent-on-demand", "rent on demand").replace("rent-contract", "contract"), f"{units.significant(p.value)} USD/h"]
    words += [x for x in (p.provider, p.term, p.date + (" !" if plan.cost.stale else "")) if x]
    return ", ".join(words)


def weights_text(model: Model) -> str:
    """Return how the weights are stored."""
    plan = model.quantization
    if plan is None:
        return f"{model.dtype} as published" if model.stated_dtype else f"{model.dtype}, read as such: the config states no dtype"
    where = "experts only" if plan.only_experts else "linear layers"
    return f"{plan.format} {where}, the rest {model.dtype}"


def head_lines(result: Result, plan: Plan) -> list[str]:
    """Return inputs and assumptions."""
    w, m = plan.workload, plan.machine
    usable = units.gib(plan.memory.capacity)
    asked = f"--input {w.input} --output {w.output} --context {w.context} --engine {plan.engine.id}"
    if w.prefix_hit:
        asked += f" --prefix-hit {w.prefix_hit:.0%}"
    if w.drafted:
        asked += f" --draft {w.drafted}:{w.acceptance:g}"
    lines = [f"{plan.model.id} · {plan.model.total:,} parameters, {weights_text(plan.model)}, cache {plan.kv_precision}"]
    links = link_text(m)
    lines += wrapped(f"{machine_text(m)} · {usable} GiB usable each" + (f", {links}" if links else "") + f" · {price_text(plan)}", indent=2)
    lines += wrapped(f"assumed (flags change it): {asked}" + ("" if w.prefix_hit else ", no prefix hits"), indent=2)
    del result
    return lines


def users_text(count: int) -> str:
    """Return ``1 user`` or ``256 users``."""
    return f"{count:,} user" + ("" if count == 1 else "s")


def bar(plan: Plan, width: int = 40) -> str:
    """Return memory as a bar: weights solid, cache in use hatched, the rest of the engine solid, free dotted."""
    book = plan.memory
    used = min(book.pool, book.request * plan.users / max(1, int(plan.strategy.dp) * int(plan.strategy.attention_dp)))
    segments = [(book.weights, "█"), (used, "▒"), (book.activations + book.runtime + book.graphs, "█")]
    drawn = ""
    position = 0.0
    for size, glyph in segments:
        position += size / book.capacity * width
        drawn += glyph * (round(position) - len(drawn))
    return drawn[:width].ljust(width, "░")


def kv_used(plan: Plan) -> float:
    """Return the cache in use on the fullest rank [B]."""
    groups = int(plan.strategy.dp) * int(plan.strategy.attention_dp)
    return min(plan.memory.pool, plan.memory.request * math.ceil(plan.users / groups))


def floors(plan: Plan) -> tuple[float, float, float]:
    """Return the least time to read the weights once, to compute a prompt at the peak, and that prompt's work."""
    r, m = plan.rates, plan.machine
    read = plan.memory.weights / float(r.wire) * int(plan.strategy.pp)
    work = sum(leaf.numbers[3][0] * float(leaf.numbers[0]) for leaf, _ in leaves(plan.prediction.ttft) if leaf.law == "roofline.overlapped_time")
    whole = work * int(plan.strategy.tp) * (int(plan.strategy.pp) if int(plan.strategy.pp) > 1 else 1)
    used = int(plan.strategy.tp) * int(plan.strategy.pp)
    del m
    return read, whole / used / float(r.peak["bf16" if "fp8" not in _computes(plan) else "fp8"]), whole


def _computes(plan: Plan) -> set[str]:
    quantization = plan.model.quantization
    if quantization is None:
        return set()
    return {str(format_entry(quantization.format)["compute"])} - set(plan.rates.fallbacks)


def plan_lines(result: Result, plan: Plan, page: Page) -> list[str]:
    """Return the best plan with its arithmetic."""
    n, s, m = plan.machine.count, plan.metrics, plan.memory
    limits = bounds(plan)
    said = ", ".join(f"{what} {LIMIT_NAMES[name]} {share:.0%}" for what, (name, share) in limits.items())
    lines = ["", f"PLAN 1 of {len(result.plans)}   {plan.label}, {users_text(plan.users)} at once" + ("   changes the model: " + plan.precision if plan.changes_model else "") + "      binds: " + page.paint(said, "limit")]
    read, compute, work = floors(plan)
    c = result.asked.constraints
    asked = f"limit {units.show(c.tpot, 's')} · " if c.tpot is not None else ("" if c.concurrency or c.tokens_per_second_per_user else "50 ms chose the row · " if s["tpot"].value <= DEFAULT_TPOT else "")
    lines.append(f"  TPOT          {interval(s['tpot'], 1e3, 'ms'):<27} {asked}floor of the weights alone {units.show(read, 's')}")
    lines.append(f"  TTFT, idle    {interval(s['ttft'], 1e3, 'ms'):<27} floor {units.show(compute, 's')}: {units.show(work, 'FLOP')} at the dense peak")
    per = s["output_tokens_per_second_per_device"]
    lines.append(f"  output        {interval(s['output_tokens_per_second'], 1, 'tok/s')} = {units.significant(per.value)} x {n} devices · {units.significant(s['tokens_per_second_per_user'].value)} tok/s a user")
    whole = all_in_cost(plan)
    if whole is not None and plan.cost is not None:
        into, out = s["cost_per_million_input_tokens"].value, s["cost_per_million_output_tokens"].value
        lines.append(f"  cost          {units.significant(plan.cost.total, 4)} USD/h = {n} x {units.significant(plan.cost.per_device)} · {units.significant(whole.value)} USD/Mtok out [{units.significant(whole.low, 2)}, {units.significant(whole.high, 2)}] all in, at full load")
        lines.append(f"                split by device time: {units.significant(into)} USD/Mtok in, {units.significant(out)} out")
    else:
        lines.append(f"  cost          absent: no {result.asked.price} price for an instance of {plan.machine.per_host} {plan.machine.device.id}; give --price 2.50USD/h")
    if plan.power is not None:
        watts, joule = s["power"], s["energy_per_output_token"]
        hosts = "" if len(plan.power.parts) > 1 else ", hosts not known and left out"
        scale, unit = (1e-3, "kW") if watts.value >= 1000 else (1.0, "W")
        lines.append(f"  power         {interval(watts, scale, unit)} at the wall · {units.significant(joule.value)} J/token{hosts}")
        if plan.machine.device.device_class == "consumer" and watts.value / plan.machine.hosts > 1440:
            lines.append(f"                {units.significant(watts.value / plan.machine.hosts / 1e3)} kW a host is over a 15 A, 120 V circuit (1.44 kW continuous)")
    lines.append(
        f"  memory        weights {units.gib(m.weights)} + KV {units.gib(kv_used(plan))} + activations {units.gib(m.activations)} + runtime {units.gib(m.runtime + m.graphs)}"
        f" + free {units.gib(max(0.0, m.pool - kv_used(plan)))} + left alone {units.gib(m.left_alone)} = {units.gib(m.capacity)} GiB"
    )
    end = " (model's end)" if plan.model.max_positions and m.longest >= plan.model.max_positions else ""
    lines.append(f"                {bar(plan)} longest request: {int(m.longest):,}{end}")
    if limits and plan.machine.device.geforce_licence:
        lines.append(page.paint("                GeForce licence: no data centres", "warning"))
    return lines


def ladder_lines(result: Result, plan: Plan, page: Page) -> list[str]:
    """Return the ladder over users."""
    lines = ["", "     users     TPOT ms   tok/s a user      tok/s   USD/Mtok out  binds or ends"]
    for step in result.ladder:
        whole = all_in_cost(step)
        name, share = bounds(step)["decode"]
        mark = ">" if step.users == plan.users else " "
        ends = ""
        if step.users == step.memory.max_concurrency:
            by = "memory" if step.memory.by_memory <= step.memory.by_setting else "max_num_seqs"
            ends = f" · ends: {by}"
            if by == "memory":
                ends += f", {step.memory.pool / step.memory.request:,.0f} requests of {int(step.memory.charged_tokens):,} tokens a group"
        limit = result.asked.constraints.tpot
        if limit is not None and step.users == plan.users and step.users != step.memory.max_concurrency:
            ends += " · limit --tpot"
        lines.append(
            f" {mark} {step.users:>7,} {units.significant(step.metrics['tpot'].value * 1e3):>11} {units.significant(step.metrics['tokens_per_second_per_user'].value):>14}"
            f" {units.significant(step.metrics['output_tokens_per_second'].value):>10} {units.significant(whole.value) if whole else '-':>14}  {LIMIT_NAMES[name]} {share:.0%}{ends}"
        )
    del page
    return lines


def reason_behind(plan: Plan, first: Plan) -> str:
    """Return why a plan is behind the first."""
    a, b = plan, first
    if plan.tied:
        prefix = "tied; "
    else:
        prefix = ""
    words = []
    weight = a.memory.weights / b.memory.weights
    if weight > 1.2 and a.machine.device.id == b.machine.device.id:
        words.append(f"weights {units.significant(weight, 2)}x a device")
    kv = a.memory.max_concurrency / max(1, b.memory.max_concurrency)
    if kv < 0.8:
        words.append(f"room for {kv - 1:.0%} users")
    mine, theirs = bounds(a)["decode"], bounds(b)["decode"]
    if mine[0] == "communication" or mine[0] != theirs[0]:
        words.append(f"{LIMIT_NAMES[mine[0]]} {mine[1]:.0%}")
    ratio = a.metrics["tpot"].value / b.metrics["tpot"].value
    if a.users == b.users and ratio > 1.02:
        words.append(f"TPOT +{ratio - 1:.0%}")
    if a.users != b.users:
        words.append(f"{users_text(a.users)} at {units.significant(a.metrics['tpot'].value * 1e3)} ms")
    if int(a.strategy.pp) > 1 and int(b.strategy.pp) == 1:
        words.append("stages in turn")
    return prefix + (", ".join(words[:3]) or "a little slower")


def runner_lines(result: Result, plan: Plan, top: int) -> list[str]:
    """Return the runners-up, each with the reason why it is behind."""
    others = result.plans[1 : max(top, 2)]
    lines = []
    for index, other in enumerate(others, start=2):
        value = objective(other, result.asked.best)
        shown = _objective_text(other, result.asked.best) if math.isfinite(value) else "no price"
        star = "*" if other.pareto else " "
        where = f"{other.machine.text or machine_text(other.machine)} " if len({p.machine.text for p in result.plans}) > 1 else ""
        text = f"  {'next best' if index == 2 else '         '}   {index}{star} {where}{other.label}{' ' + other.precision if other.changes_model else ''}   {shown}   {reason_behind(other, plan)}"
        lines += wrapped(text.strip(), indent=14, first=2)
    return lines


def _objective_text(plan: Plan, best: str) -> str:
    if best == "latency":
        return f"TPOT {units.significant(plan.metrics['tpot'].value * 1e3)} ms"
    if best == "throughput":
        return f"{units.significant(plan.metrics['output_tokens_per_second_per_device'].value)} tok/s a device"
    if best == "devices":
        return f"{plan.machine.count} devices"
    if best == "energy":
        return f"{units.significant(plan.metrics['energy_per_output_token'].value)} J/token"
    whole = all_in_cost(plan)
    return f"{units.significant(whole.value)} USD/Mtok out" if whole else "no price"


def improvement_lines(plan: Plan) -> list[str]:
    """Return what would have to change to do better, read off the binding limit."""
    name, _ = bounds(plan)["decode"]
    read = element_bytes(plan.model.quantization.format if plan.model.quantization else plan.model.dtype)
    hints = {
        "memory_bandwidth": "--precision fp8 or awq reads fewer bytes a token" if read > 1.5 else "more bandwidth per device, or more users to share each read of the weights",
        "compute": "a device with a higher dense peak, or --precision fp8 where it has fp8 units" if read > 1.5 else "a device with a higher dense peak; batching no longer helps",
        "communication": "fewer tensor-parallel ranks, a faster link, or pipeline stages across hosts",
        "launch": "more users: kernels are started faster than they are filled",
        "engine": "more users a step, or an engine with less host time per step",
    }
    return wrapped(f"better: {hints[name]} · not modelled: queueing, prompts of unlike length, images", indent=8)


def serve_screen(result: Result, page: Page, *, top: int = 2, explain: bool = False, depth: int = 2) -> None:
    """Print the answer to ``roofplan serve``."""
    plan = result.plans[0]
    for line in head_lines(result, plan):
        page.line(line)
    for code, text in result.warnings:
        if code != "geforce_licence":
            for line in wrapped(f"note: {text}", indent=6):
                page.line(page.paint(line, "warning"))
    if len({p.machine.text for p in result.plans}) > 1 and len(result.asked.machines) > 8:
        device_table(result, page, top)
    for line in plan_lines(result, plan, page):
        page.line(line)
    if not explain:
        for line in [nearest_line(plan), launch_line(plan)]:
            if line:
                for piece in wrapped(line, indent=16, first=2):
                    page.line(piece)
        for line in ladder_lines(result, plan, page):
            page.line(line)
        for line in [*runner_lines(result, plan, top), *improvement_lines(plan)]:
            page.line(line)
        t = result.tally
        page.line(page.paint(f"searched {t.enumerated:,} strategies: {t.legal:,} legal, {t.fits:,} fit, {t.predicted:,} configurations predicted in {t.seconds:.2f} s", "dim"))
        page.line("more: --explain --top 10 --csv FILE --json --emit vllm" + (" " * 8 + "* on the Pareto front" if any(p.pareto for p in result.plans[1:top]) else ""))
    else:
        explain_screen(plan, page, depth)


def device_table(result: Result, page: Page, top: int) -> None:
    """Print one row per device with its best plan."""
    seen: dict[str, Plan] = {}
    for plan in result.plans:
        seen.setdefault(plan.machine.device.id, plan)
    rows = list(seen.values())
    shown = rows[: max(12, top)]
    page.line("")
    page.line(f"  {'device:count':<22}{'plan':<20}{'users':>6}{'TPOT ms':>9}{'tok/s':>8}{'USD/h':>8}{'USD/Mtok':>10}  price seen  notes")
    for plan in shown:
        whole = all_in_cost(plan)
        notes = []
        if plan.machine.device.geforce_licence:
            notes.append("GeForce licence: no data centres")
        if plan.tied:
            notes.append("tied")
        seen_on = f"{plan.cost.price.date}{' !' if plan.cost.stale else ''}" if plan.cost else "-"
        page.line(
            f"  {plan.machine.text or machine_text(plan.machine):<22}{plan.label:<20}{plan.users:>6,}{units.significant(plan.metrics['tpot'].value * 1e3):>9}"
            f"{units.significant(plan.metrics['output_tokens_per_second'].value):>8}{units.significant(plan.cost.total) if plan.cost else '-':>8}{units.significant(whole.value) if whole else '-':>10}  {seen_on:<11} {', '.join(notes)}"
        )
    if len(rows) > len(shown):
        page.line(f"  and {len(rows) - len(shown)} more devices that fit (--top {len(rows)}); those without a price stand last")


def nearest_line(plan: Plan) -> str:
    """Return the published measurement that is nearest to a plan, if one is near."""
    from roofplan.validate import nearest_measured

    rows = nearest_measured(plan, 1)
    if not rows:
        return ""
    row = rows[0]
    return f"measured      nearest: {row['text']}"


def launch_line(plan: Plan) -> str:
    """Return the command that starts the plan."""
    from roofplan.emit import launch

    return f"launch        {launch(plan, plan.engine)}"


# Explanations ------------------------------------------------------------------------------------


def explain_screen(plan: Plan, page: Page, depth: int) -> None:
    """Print the Term trees of TPOT, TTFT, cost and memory, and the bibliography of what was used."""
    numbers: dict[str, int] = {}
    trees = [plan.prediction.tpot, plan.prediction.ttft, *([plan.power] if plan.power else []), plan.memory.term(kv_used(plan))]
    names = {"TPOT": plan.metrics["tpot"], "TTFT": plan.metrics["ttft"]}
    for tree in trees:
        page.line("")
        m = names.get(tree.name)
        shown = interval(m, 1e3, "ms") if m else units.show(float(tree.value), tree.unit)
        page.line(f"{tree.name} {shown} = sum of {len(tree.parts)}")
        _branch(tree, page, depth, numbers, "")
    if plan.cost is not None:
        p = plan.cost.price
        page.line("")
        page.line(f"cost {units.significant(plan.cost.total, 4)} USD/h = {plan.cost.count} x {units.significant(p.value)} USD/h, {p.kind}, {p.provider or 'given'}, {p.date} [{_cite(p.source, numbers)}]")
        whole = all_in_cost(plan)
        rate = plan.metrics["output_tokens_per_second"].value
        if whole:
            page.line(f"└ {units.significant(whole.value)} USD/Mtok out = {units.significant(plan.cost.total, 4)} USD/h / ({units.significant(rate)} tok/s x 3,600 s), at full load")
    page.line("")
    for key, number in numbers.items():
        for line in wrapped(f"[{number}] {source_text(key, plan)}", indent=4):
            page.line(line)


def source_text(key: str, plan: Plan) -> str:
    """Return a source as a reader would look it up."""
    if key == "config.json":
        return f"config.json of {plan.model.id}, sha256 {plan.model.sha256[:12]}"
    if key == "engine":
        return f"{plan.engine.id}: {plan.engine.raw.get('memory', {}).get('rule_source', 'catalogue entry')}"
    found = catalogue.source(key)
    return found.title + (f", {found.date}" if found.date else "") + (f", {found.url}" if found.url else "")


def _cite(key: str, numbers: dict[str, int]) -> int:
    return numbers.setdefault(key, len(numbers) + 1)


def _branch(term: Term, page: Page, depth: int, numbers: dict[str, int], stem: str) -> None:
    if depth == 0:
        return
    whole = float(term.value)
    parts = sorted((p for p in term.parts if float(p.value) != 0.0), key=lambda p: -float(p.value))
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        value = float(part.value)
        share = value / whole if whole and term.combine == "sum" else 1.0
        cites = "".join(f"[{_cite(key, numbers)}]" for key in dict.fromkeys(part.sources))
        text = part.formula()
        lead = f"{stem}{'└' if last else '├'} {part.name:<26} {units.show(value, part.unit):>10}"
        mark = f" {share:>4.0%}" if term.combine == "sum" else "     "
        flag = " ◀" if index == 0 and stem == "" and term.combine == "sum" else ""
        body = f"{lead}{mark}{flag}  {text} {cites}".rstrip()
        for piece in wrapped(body, indent=len(stem) + 4):
            page.line(piece)
        _branch(part, page, depth - 1, numbers, stem + ("  " if last else "│ "))


# Models, devices, lists --------------------------------------------------------------------------


def layer_words(model: Model) -> str:
    """Return the layers in words: ``61 layers = 3 dense + 58 MoE (256 routed, 8 a token, 1 shared), MLA 512 + 64``."""
    parts = []
    for layer, places in model.decoder.kinds():
        words = [_mixer_words(m) for m in layer.mixers] + [_feed_words(f) for f in layer.feed_forwards]
        parts.append(f"{len(places)} x ({' + '.join(w for w in words if w) or 'empty'})")
    return f"{len(model.decoder.layers)} layers = " + " + ".join(parts)


def _mixer_words(mixer: Any) -> str:
    if isinstance(mixer, LatentAttention):
        return f"MLA {mixer.latent} + {mixer.rope_dim}" + (f" top {mixer.top:,}" if mixer.top else "")
    if isinstance(mixer, Recurrence):
        return mixer.kind
    kind = "MHA" if mixer.kv_heads == mixer.heads else "MQA" if mixer.kv_heads == 1 else "GQA"
    seen = f", {'chunk' if mixer.chunked else 'window'} {mixer.window:,}" if mixer.window else ""
    return f"{kind} {mixer.heads}/{mixer.kv_heads} x {mixer.head_dim}{seen}"


def _feed_words(feed: Any) -> str:
    if isinstance(feed, Mixture):
        shared = f", shared {feed.shared[0][0].outputs:,}" if feed.shared else ""
        return f"MoE {feed.experts} x {feed.expert[0][-1].outputs:,}, {feed.chosen} a token{shared}"
    if isinstance(feed, Dense):
        return f"dense {feed.groups[0][0].outputs:,}"
    return ""


def model_facts(model: Model, tokens: int, kv_precision: str = "bf16") -> dict[str, Any]:
    """Return what ``roofplan model`` answers, as JSON."""
    kv_bytes = element_bytes(kv_precision)
    foot = footprint(model, Strategy(), kv_bytes)
    size = foot.request(float(tokens)) if model.generates else 0.0
    active = model.active
    positions = sum(m.cross or 0 for layer, _ in model.decoder.kinds() for m in layer.mixers if isinstance(m, Attention))
    out: dict[str, Any] = {
        "id": model.id, "family": model.family,
        "parameters": {"total": model.total, "active": active, "embedding": model.embedding, "head": model.head},
        "cache": {"bytes": round(size), "bytes_per_token": round(foot.kv_per_token + sum(rate for rate, window, _ in foot.windowed if window >= tokens)), "state_bytes": round(foot.state), "tokens": tokens, "precision": kv_precision},
        "flops": {"matmul_per_token": None if active is None else 2 * (active - model.embedding if not model.tied else active), "head_per_token": 2 * model.vocabulary * model.hidden},
        "layers": model.layer_runs(), "weights": {"bytes": round(foot.weights), "format": weights_text(model)},
        "hidden": model.hidden, "vocabulary": model.vocabulary, "max_positions": model.max_positions, "tied": model.tied,
        "draft": {"layers": model.draft_layers, "parameters": model.draft_parameters}, "sha256": model.sha256, "generates": model.generates,
    }  # fmt: skip
    if positions:
        out["cache"]["cross_positions"] = positions
    return out


def model_screen(model: Model, tokens: int, page: Page, kv_precision: str = "bf16") -> None:
    """Print the answer to ``roofplan model``."""
    facts = model_facts(model, tokens, kv_precision)
    p, c = facts["parameters"], facts["cache"]
    head = "head tied" if model.tied else f"head {p['head']:,}"
    active = f"active {p['active']:,}" if p["active"] is not None else "active unknown: experts per token are not stated"
    for line in wrapped(f"{p['total']:,} parameters · {active} · embedding {p['embedding']:,} · {head}", indent=2):
        page.line(line)
    for line in wrapped(layer_words(model), indent=2):
        page.line(line)
    plan = model.quantization
    how = weights_text(model)
    if plan:
        width, group, scale = bits(plan.format)
        how = f"{plan.format}: {width:g} bits" + (f" + {scale:g} per {group:,.0f}" if scale else "") + f"; embedding {model.dtype}, head {head_format(model)}"
    for line in wrapped(f"  weights {units.gib(facts['weights']['bytes'], 4)} GiB: {how}", indent=10):
        page.line(line)
    if model.generates:
        state = f", state {c['state_bytes']:,} B a sequence" if c["state_bytes"] else ""
        mla = "; whole on every tp rank, split only by dp attention" if model.latent else ""
        for line in wrapped(f"  cache   {c['bytes_per_token']:,} B a token at {tokens:,}{state}, {units.significant(c['bytes'] / units.MIB, 4)} MiB at {tokens:,} ({kv_precision}){mla}", indent=10):
            page.line(line)
    else:
        page.line("  cache   none: an encoder has no decode phase")
    if facts["flops"]["matmul_per_token"] is not None:
        what = "2 x active" if model.tied else "2 x (active - embedding)"
        page.line(f"  matmuls {units.show(facts['flops']['matmul_per_token'], 'FLOP')} a token = {what}" + (f"      not counted: {model.draft_layers} MTP layer of the checkpoint, {model.draft_parameters:,} parameters" if model.draft_parameters else ""))
    for text in (*model.warnings, *model.notes):
        for line in wrapped(f"note: {text}", indent=6):
            page.line(page.paint(line, "warning"))


def device_screen(device: Accelerator, page: Page) -> None:
    """Print the answer to ``roofplan device``."""
    q = device.quantities

    def of(name: str) -> str:
        return q[name].text if name in q else "?"

    made = [device.architecture] + [f"{of('units')} at {of('clock')}"] * ("units" in q and "clock" in q) + [device.process] * bool(device.process)
    made += [of("die_area")] * ("die_area" in q) + [f"{units.significant(q['transistors'].value / 1e9)}e9 transistors"] * ("transistors" in q) + [of("power")] * ("power" in q)
    for line in wrapped(f"{device.name} · " + ", ".join(x for x in made if x), indent=2):
        page.line(line)
    usable = f" ({q['memory_usable'].text} usable)" if "memory_usable" in q else ""
    links = []
    if device.scale_up:
        pair = f", a pair {of('link_bandwidth_pair')}" if "link_bandwidth_pair" in q else ""
        links.append(f"{device.scale_up} {of('link_bandwidth')} one way{pair}" + (f", domain {device.domain}" if "scale_up_domain" in q else ""))
    if device.host_link:
        links.append(f"{device.host_link} {of('host_link_bandwidth')}")
    page.line(f"  memory  {of('memory_capacity')} {device.memory_type}{usable}, {of('memory_bandwidth')}")
    if links:
        page.line(f"  links   {'; '.join(links)}" + ("; no peer-to-peer: staged through host memory" if device.peer_to_peer == "none" else ""))
    page.line("          dense TFLOPS   best measured   ridge FLOP/B   source")
    for name, number in device.peak.items():
        best = device.measured.get(name)
        ridge = f"{number.value / device.bandwidth:,.0f}" if device.bandwidth else "-"
        measured = f"{units.significant(best.value / 1e12, 4)} ({best.value / number.value:.0%})" if best else ""
        page.line(f"  {name:<22}{units.significant(number.value / 1e12, 4):>8}{measured:>16}{ridge:>15}   {number.kind}, {number.source}, {number.seen}")
    if device.sparse:
        page.line("  sparse  " + ", ".join(f"{name} {number.text}" for name, number in device.sparse.items()) + ": never used")
    check = peak_check(device)
    if check:
        page.line(f"  check   {check}")
    quotes = catalogue.prices(device.id)
    if quotes:
        page.line("  price   " + "; ".join(_quote(kind, quotes) for kind in dict.fromkeys(p.kind for p in quotes)))
    for text in (device.export, *device.notes):
        if text:
            for line in wrapped(f"  note    {text}", indent=10):
                page.line(line)


def _quote(kind: str, quotes: Sequence[Any]) -> str:
    from roofplan.economics import STALE_DAYS, age_days

    newest = max((p for p in quotes if p.kind == kind), key=lambda p: p.newest_possible)
    old = " !" if age_days(newest.date) > STALE_DAYS else ""
    return f"{kind} {units.significant(newest.value, 4)} {newest.unit}, {newest.date}{old}"


def peak_check(device: Accelerator) -> str:
    """Return ``132 x 1830 MHz x 4096 = 989.3 checks`` where the catalogue has all three."""
    q = device.quantities
    base = device.peak.get("bf16") or device.peak.get("fp16")
    if base is None or any(name not in q for name in ("units", "clock", "flop_per_clock_per_unit")):
        return ""
    computed = q["units"].value * q["clock"].value * q["flop_per_clock_per_unit"].value
    verdict = "checks" if abs(computed / base.value - 1) < 0.012 else f"is {computed / base.value - 1:+.1%} off"
    return f"{q['units'].text} x {q['clock'].text} x {q['flop_per_clock_per_unit'].value:,.0f} = {computed / 1e12:,.1f} TFLOPS {verdict}"


def what_is(device: Accelerator, rate: float) -> list[tuple[float, str]]:
    """Return which peaks of a device a quoted rate may be, nearest first: dense, sparse, FP16-accumulate, vector, per superchip."""
    found = []
    for table, word in ((device.peak, "dense"), (device.sparse, "2:4 sparse, never planned with"), (device.measured, "best measured")):
        for name, number in table.items():
            kind = word
            if word == "dense":
                kind = {"fp16_accumulate_fp16": "dense with FP16 accumulation", "fp8_accumulate_fp16": "dense with FP16 accumulation", "fp32": "vector", "fp64": "vector", "vector_fp16": "vector"}.get(name, "dense, FP32 accumulation")
            found.append((number.value / rate - 1, f"{name} {kind}: {number.text}"))
    for name, number in device.peak.items():
        found.append((2 * number.value / rate - 1, f"twice the dense {name}: two devices of a superchip, or sparsity where the device has it ({number.text} each)"))
    close = [item for item in found if abs(item[0]) < 0.03]
    return sorted(close, key=lambda item: abs(item[0]))


def no_plan_lines(refusal: NoPlan) -> list[str]:
    """Return the refusal with its ways out."""
    lines = wrapped(refusal.message, indent=2)
    if refusal.relax:
        lines.append("ways out, smallest change first")
    for item in refusal.relax:
        plan = item.get("plan", {})
        tail = ""
        if plan:
            tail = f"->  {plan.get('label', '')}, TPOT {units.significant(plan['tpot'] * 1e3)} ms, {users_text(plan['users'])}" + (f", context {int(plan['context']):,}" if "context" in plan else "") + f", {plan.get('engine', '')}"
        lines.append(f"  {item['argument']} {item['needed']}".ljust(34) + tail)
    return lines


def stdout() -> Page:
    """Return the page of standard output."""
    return Page(sys.stdout)


