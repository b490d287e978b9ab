"""Documents cut to what an agent can read: rounded, without what repeats, long lists shortened and counted."""

from __future__ import annotations

import math

from roofplan.questions import Row

DIGITS = 4
"""Significant digits of numbers that are not whole [1]."""

MOST = 12
"""Items of a list that are kept [1]."""

LEFT_OUT = frozenset(
    {"schema_version", "versions", "inputs", "command", "sources", "source_ids", "causes", "points", "sha256", "search"}
)
"""Members that an agent finds in the whole document."""


def cut(document: Row, most: int = MOST) -> tuple[Row, dict[str, int]]:
    """Return a document as an agent reads it.

    Parameters
    ----------
    document : the JSON document of an answer.
    most : items of a list that are kept [1].

    Returns
    -------
    The short document, and how many items each shortened list had, by its place.
    """
    left_off: dict[str, int] = {}
    short = {name: _cut(one, name, most, left_off) for name, one in document.items() if _kept(name, one)}
    return short, left_off


def _cut(value: object, place: str, most: int, left_off: dict[str, int]) -> object:
    if isinstance(value, dict):
        return {name: _cut(one, f"{place}.{name}", most, left_off) for name, one in value.items() if _kept(name, one)}
    if isinstance(value, list):
        if len(value) > most:
            left_off[place] = len(value)
        return [_cut(one, f"{place}[{at}]", most, left_off) for at, one in enumerate(value[:most])]
    return rounded(value) if isinstance(value, float) else value


def _kept(name: str, value: object) -> bool:
    return name not in LEFT_OUT and value is not None and value not in ([], {})


def rounded(value: float) -> float:
    """Return a number with as many digits as its interval deserves."""
    if value == 0.0 or not math.isfinite(value):
        return value
    return round(value, DIGITS - 1 - math.floor(math.log10(abs(value))))


def pruned(tree: Row, depth: int) -> Row:
    """Return a tree of an explanation, so many levels deep.

    Parameters
    ----------
    tree : a figure with its parts.
    depth : levels below it that are kept [1].

    Returns
    -------
    The tree; a branch that is cut says how many parts it has.
    """
    out = {
        name: rounded(value) if isinstance(value, float) else value for name, value in tree.items() if name != "parts"
    }
    parts = tree.get("parts", [])
    if parts and depth > 0:
        out["parts"] = [pruned(one, depth - 1) for one in parts]
    elif parts:
        out["parts_left_off"] = len(parts)
    return out
