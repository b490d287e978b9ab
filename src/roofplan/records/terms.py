"""Every answer is a graph of Terms: name, value, unit, law, parts, how they combine, and sources.

Explanations, bibliographies and breakdowns are all derived from this graph. A Term's value may be an array; texts are
formatted only when they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import numpy as np

from roofplan.laws import Number
from roofplan.records import units
from roofplan.records.calibration import Constant
from roofplan.records.source import Source

Cited = Constant | Source
"""Support of a number: a fitted constant or a document."""

Combine = Literal["sum", "max", "product", "difference", "leaf"]
Numbers = Mapping[str, Any]
"""Numbers of a formula by name: each a number, a pair (number, unit) or a word."""

NONE: Numbers = MappingProxyType({})
"""Numbers of a formula without any."""

Held = TypeVar("Held")


def read_only(found: Mapping[str, Held]) -> Mapping[str, Held]:
    """Return a mapping that nobody can change.

    Parameters
    ----------
    found : values by name.

    Returns
    -------
    A view of them.
    """
    return found if isinstance(found, MappingProxyType) else MappingProxyType(found)


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One named quantity of an answer.

    Parameters
    ----------
    name : name of the quantity.
    value : number or array, in `unit`.
    unit : SI unit.
    law : function of `roofplan.laws` that computed it, or how it was obtained.
    parts : Terms that it is computed from.
    combine : how the parts give the value: their sum, their maximum, a multiple of their sum, or a multiple of the first minus the rest.
    text : formula with the names of its numbers in braces.
    numbers : numbers of the formula by name, each a number, a pair (number, unit) or a word.
    sources : sources beyond those of its parts.
    """

    name: str
    value: Number
    unit: str
    law: str = field(default="", kw_only=True)
    parts: Sequence[Term] = field(default=(), kw_only=True)
    combine: Combine = field(default="leaf", kw_only=True)
    text: str = field(default="", kw_only=True)
    numbers: Numbers = field(default_factory=lambda: NONE, kw_only=True)
    sources: Sequence[Cited] = field(default=(), kw_only=True)

    def __repr__(self) -> str:
        return f"Term({self.name!r}, {self.value!r}, {self.unit!r})"

    def formula(self) -> str:
        """Return the formula with the numbers put in."""
        if not self.text:
            return ""
        return self.text.format_map({name: _shown(number) for name, number in self.numbers.items()})

    def walk(self) -> Iterator[Term]:
        """Yield this Term and all below it, each once."""
        seen: set[int] = set()
        stack = [self]
        while stack:
            term = stack.pop()
            if id(term) in seen:
                continue
            seen.add(id(term))
            yield term
            stack.extend(reversed(term.parts))

    def bibliography(self) -> list[Cited]:
        """Return the sources of everything below, in order of first use."""
        return list(dict.fromkeys(one for term in self.walk() for one in term.sources))

    def find(self, name: str) -> Term | None:
        """Return the first Term of that name below this one."""
        return next((term for term in self.walk() if term.name == name), None)


def total(
    name: str,
    parts: Sequence[Term],
    unit: str,
    *,
    law: str = "",
    text: str = "",
    numbers: Numbers | None = None,
) -> Term:
    """Return a Term that is the sum of others.

    Parameters
    ----------
    name : name of the sum.
    parts : Terms to add, numbers or arrays that broadcast; arrays of few elements are added first.
    unit : unit of the parts and the sum.
    law : function of `roofplan.laws` that computed it, or how it was obtained.
    text : formula with the names of its numbers in braces.
    numbers : numbers of the formula by name.

    Returns
    -------
    The sum, 0 without parts [`unit`].
    """
    values = [part.value for part in parts]
    if any(type(value) is not float for value in values):
        values.sort(key=np.size)
    amount = values[0] if values else 0.0
    for value in values[1:]:
        amount = amount + value
    return Term(
        name, amount, unit, law=law, parts=parts, combine="sum", text=text, numbers=NONE if numbers is None else numbers
    )


def _shown(number: Any) -> str:
    """Return a number as a formula shows it, with its unit where it has one."""
    if isinstance(number, tuple):
        return units.show(float(number[0]), number[1])
    if isinstance(number, str):
        return number
    value = float(number)
    return f"{int(value):,}" if value == int(value) and abs(value) < 1e15 else units.significant(value, 4)
