"""Which limit takes most of a time."""

from __future__ import annotations

import numpy as np

from roofplan.terms import Term


def bound_of(term: Term) -> tuple[str, float]:
    """Return the limit that takes most of a time, and its share.

    Products split by which side of the roofline they lie on.
    """
    amounts: dict[str, float] = {}
    whole = float(np.max(term.value))
    for part, value in leaves(term):
        amounts[_limit(part)] = amounts.get(_limit(part), 0.0) + value
    name = max(amounts, key=lambda key: amounts[key])
    return name, amounts[name] / whole if whole else 0.0


def leaves(term: Term, scale: float = 1.0) -> list[tuple[Term, float]]:
    """Return the leaves of a time with what each contributes; products pass their factor down."""
    if not term.parts:
        return [(term, float(term.value) * scale)]
    inner = sum(float(part.value) for part in term.parts)
    factor = scale * float(term.value) / inner if inner else 0.0
    return [leaf for part in term.parts for leaf in leaves(part, factor)]


def _limit(leaf: Term) -> str:
    if leaf.law == "roofline.overlapped_time":
        traffic, bandwidth, work, rate = (leaf.numbers[i][0] for i in (1, 2, 3, 4))
        return "compute" if work / rate > traffic / bandwidth else "memory_bandwidth"
    if leaf.law.startswith(("collectives", "pipeline")):
        return "communication"
    return "launch" if leaf.name == "launches" else "engine"


LIMIT_NAMES = {
    "compute": "compute",
    "memory_bandwidth": "memory bandwidth",
    "communication": "communication",
    "launch": "kernel launches",
    "engine": "engine overhead",
}
