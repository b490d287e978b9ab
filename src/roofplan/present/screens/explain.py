"""``--explain``: the Term trees with the numbers put in, and the bibliography of what was used."""

from __future__ import annotations

import math
from collections.abc import Sequence

from roofplan import catalogue
from roofplan.present.screens.page import Page, interval, wrapped
from roofplan.records import units
from roofplan.records.terms import Term
from roofplan.serving import Plan, all_in_cost
from roofplan.timing.figures import Metric


def explain_screen(plan: Plan, page: Page, depth: int) -> None:
    """Print the Term trees of TPOT, TTFT, cycle time, cost and memory, and the bibliography of what was used."""
    numbers: dict[str, int] = {}
    trees = [
        *plan.prediction.times,
        *([plan.power] if plan.power else []),
        plan.memory.term(plan.cache_in_use),
    ]
    names = {"TPOT": plan.pace, "TTFT": plan.metrics["ttft"], "cycle time": plan.metrics["cycle_time"]}
    for tree in trees:
        page.line("")
        m = names.get(tree.name)
        shown = interval(m, 1e3, "ms") if m else units.show(float(tree.value), tree.unit)
        page.line(f"{tree.name} {shown} = sum of {len(tree.parts)}")
        for line in wrapped(doubts(m), indent=2) if m and m.causes else ():
            page.line(line)
        _branch(tree, page, depth, numbers, "")
    if plan.cost is not None:
        p = plan.cost.price
        page.line("")
        page.line(
            f"cost {units.significant(plan.cost.total, 4)} USD/h = {plan.cost.count} x {units.significant(p.value)} USD/h,"
            f" {p.kind}, {p.provider or 'given'}, {p.date} [{_cite(p.source, numbers)}]"
        )
        whole = all_in_cost(plan)
        rate = plan.metrics["output_tokens_per_second"].value
        if whole:
            load = f"{units.significant(rate)} tok/s x 3,600 s x {plan.utilisation:.0%} of full load"
            page.line(
                f"└ {units.significant(whole.value)} USD/Mtok out = {units.significant(plan.cost.total, 4)} USD/h / ({load})"
            )
    page.line("")
    for key, number in numbers.items():
        for line in wrapped(f"[{number}] {source_text(key, plan)}", indent=4):
            page.line(line)


def doubts(found: Metric) -> str:
    """Return why a figure may be off, the largest cause first."""
    whole = math.hypot(*(size for _, size in found.causes))
    ranked = sorted(((name, size) for name, size in found.causes if size >= SHOWN), key=lambda cause: -cause[1])
    return f"off by {whole:.0%}, one standard deviation: {', '.join(f'{name} {size:.0%}' for name, size in ranked)}"


SHOWN = 0.005
"""Size from which a cause of error is printed [1]."""


def trees_screen(trees: Sequence[tuple[str, Term]], page: Page, depth: int) -> None:
    """Print Term trees, each behind its headline, and the bibliography of what was used."""
    numbers: dict[str, int] = {}
    for headline, tree in trees:
        page.line("")
        how = f"sum of {len(tree.parts)}" if tree.combine == "sum" else tree.formula()
        for line in wrapped(f"{headline} = {how}", indent=2):
            page.line(line)
        _branch(tree, page, depth, numbers, "")
    page.line("")
    for key, number in numbers.items():
        for line in wrapped(f"[{number}] {document_text(key)}", indent=4):
            page.line(line)


def document_text(key: str) -> str:
    """Return a document, table or fit as a reader would look it up."""
    found = catalogue.source(key)
    return found.title + (f", {found.date}" if found.date else "") + (f", {found.url}" if found.url else "")


def source_text(key: str, plan: Plan) -> str:
    """Return a source as a reader would look it up."""
    if key == "config.json":
        return f"config.json of {plan.model.id}, sha256 {plan.model.sha256[:12]}"
    if key == "engine":
        return f"{plan.engine.id}: {plan.engine.raw.get('memory', {}).get('rule_source', 'catalogue entry')}"
    return document_text(key)


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
        cites = "".join(f"[{_cite(key, numbers)}]" for key in dict.fromkeys(one.citation for one in part.sources))
        text = part.formula()
        lead = f"{stem}{'└' if last else '├'} {part.name:<26} {units.show(value, part.unit):>10}"
        mark = f" {share:>4.0%}" if term.combine == "sum" else "     "
        flag = " ◀" if index == 0 and stem == "" and term.combine == "sum" else ""
        body = f"{lead}{mark}{flag}  {text} {cites}".rstrip()
        for piece in wrapped(body, indent=len(stem) + 4):
            page.line(piece)
        _branch(part, page, depth - 1, numbers, stem + ("  " if last else "│ "))
