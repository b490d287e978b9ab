"""Ties: what differs by less than anybody should choose by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

TIE = 0.01
"""Relative difference of an objective below which plans tie [1]."""


def ties(found: Iterable[T], value: Callable[[T], float], tie: float = TIE) -> Iterator[list[T]]:
    """Yield items in groups that tie, the best group first.

    A group is what lies within a share of the smallest value that remains.

    Parameters
    ----------
    found : the items.
    value : what is to be made small; infinite values tie with each other.
    tie : share of the smallest value that a group spans [1].

    Returns
    -------
    The groups, each by value.

    Examples
    --------
    >>> list(ties([3.0, 1.005, 1.0, 1.012, -5.0], float))
    [[-5.0], [1.0, 1.005], [1.012], [3.0]]
    """
    left = sorted(found, key=value)
    while left:
        first = value(left[0])
        edge = first if math.isinf(first) else first + tie * abs(first)
        group = [one for one in left if value(one) <= edge]
        yield group
        left = left[len(group) :]


def tied(value: float, best: float, tie: float = TIE) -> bool:
    """Return whether a value ties with the best.

    Parameters
    ----------
    value : the value.
    best : the smallest of all.
    tie : share of the best that a group spans [1].

    Returns
    -------
    Whether it lies within that share; never where the best is not known.
    """
    return math.isfinite(best) and abs(value - best) <= tie * abs(best)
