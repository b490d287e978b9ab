"""``--explain``: the Term trees with the numbers put in, and the bibliography of what was used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from roofplan import catalogue
from roofplan.present.screens.page import Page, interval, wrapped
from roofplan.records import units
from roofplan.records.terms import Term
from roofplan.serving import Plan, all_in_cost
from roofplan.timing.figures import Metric


def explain_screen(plan: Plan, page: Page, depth: int) -> None:
    """Print the Term trees of TPOT, TTFT, cycle time, cost and memory, and the bibliography of what was used."""
    numbers: dict[str, int] = {}
    shown: Shown = {}
    trees = [
        *plan.prediction.times,
        *([plan.power] if plan.power else []),
        plan.memory.term(plan.cache_in_use),
    ]
    names = {"TPOT": plan.pace, "TTFT": plan.metrics["ttft"], "cycle time": plan.metrics["cycle_time"]}
    for tree in trees:
        page.line("")
        m = names.get(tree.name)
        value = interval(m, 1e3, "ms") if m else units.show(float(tree.value), tree.unit)
        page.line(f"{tree.name} {value} = sum of {len(tree.parts)}")
        for line in wrapped(doubts(m), indent=2) if m and m.causes else ():
            page.line(line)
        _branch(tree, page, depth, numbers, shown)
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
    shown: Shown = {}
    for headline, tree in trees:
        page.line("")
        how = f"sum of {len(tree.parts)}" if tree.combine == "sum" else tree.formula()
        for line in wrapped(f"{headline} = {how}", indent=2):
            page.line(line)
        _branch(tree, page, depth, numbers, shown)
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


FOLDED = 0.01
"""Share of a figure, or of a part in a unit of its own, below which its smallest parts stand in one line [1]."""

Shown = dict[tuple[str, str, float], str]
"""Names of the figures that explain a part first, by the part's name, unit and value."""


def _branch(figure: Term, page: Page, depth: int, numbers: dict[str, int], shown: Shown) -> None:
    """Print the parts of a figure, the largest first: equal ones together, small ones in one line, none twice."""
    _parts(figure, figure, page, depth, numbers, shown, "")


def _parts(term: Term, figure: Term, page: Page, depth: int, numbers: dict[str, int], shown: Shown, stem: str) -> None:
    if depth == 0:
        return
    whole, added = float(term.value), term.combine == "sum"
    parts = sorted(
        (p for p in _merged(map(_alone, term.parts)) if float(p.value) != 0.0), key=lambda p: -float(p.value)
    )
    all_of_it = figure if figure.unit == term.unit else term
    small = [p for p in parts if added and float(p.value) < FOLDED * float(all_of_it.value)]
    small = small if len(small) > 1 else []
    rows = parts[: len(parts) - len(small)]
    for index, part in enumerate(rows):
        last = index == len(rows) - 1 and not small
        value = float(part.value)
        key = (part.name, part.unit, value)
        before = shown.setdefault(key, figure.name) if part.parts else figure.name
        cites = "".join(f"[{_cite(key, numbers)}]" for key in dict.fromkeys(one.citation for one in part.sources))
        share = f" {value / whole:>4.0%}" if added and whole else "     "
        flag = " ◀" if index == 0 and stem == "" and added else ""
        text = part.formula() if before == figure.name else f"as in {before}"
        _row(page, stem, last, part.name, units.show(value, part.unit), f"{share}{flag}  {text} {cites}")
        if before == figure.name:
            _parts(part, figure, page, depth - 1, numbers, shown, stem + ("  " if last else "│ "))
    if small:
        rest = sum(float(p.value) for p in small)
        names = ", ".join(dict.fromkeys(p.name for p in small))
        share = f" {rest / whole:>4.0%}" if whole else "     "
        _row(page, stem, True, f"{len(small)} parts under 1%", units.show(rest, term.unit), f"{share}  {names}")


def _row(page: Page, stem: str, last: bool, name: str, value: str, rest: str) -> None:
    for piece in wrapped(f"{stem}{'└' if last else '├'} {name:<26} {value:>10}{rest}".rstrip(), indent=len(stem) + 4):
        page.line(piece)


def _alone(part: Term) -> Term:
    """Return a part with the formula of the one part that it sums, or itself."""
    below = _merged([p for p in part.parts if float(p.value) != 0.0]) if part.combine == "sum" else []
    return replace(_alone(below[0]), name=part.name) if len(below) == 1 and not part.text else part


def _merged(parts: Iterable[Term]) -> list[Term]:
    """Return parts with those put together whose formulas differ in nothing but the count of layers."""
    merged: dict[object, Term] = {}
    for part in parts:
        layers = part.numbers.get("layers")
        same = {name: number for name, number in part.numbers.items() if name != "layers"}
        key = (part.name, part.text, str(same)) if isinstance(layers, int | float) and not part.parts else id(part)
        other = merged.get(key)
        merged[key] = (
            part
            if other is None
            else replace(
                part,
                value=other.value + part.value,
                numbers={**part.numbers, "layers": other.numbers["layers"] + layers},
            )
        )
    return list(merged.values())
