"""Deduplicate layouts by the degrees that affect a single layer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from roofplan.laws import Number
from roofplan.records.training import Layout

SEEN = ("tp", "cp", "ep", "micro_batch")
"""Degrees that affect a single layer."""

RADIX = 2**13
"""Base above any degree, so that four degrees make one exact number [1]."""

WORTH = 64
"""Minimum number of layouts worth deduplicating [1]."""


def distinct(layout: Layout) -> tuple[Layout, Callable[[Number], Number]]:
    """Return the distinct layouts of a layer, and a function that maps their results back to the original layouts.

    Only flat arrays are deduplicated. Numbers, and grids whose axes hold each degree once, are returned unchanged.
    """
    values = [getattr(layout, name) for name in SEEN]
    sizes = {value.size for value in values if isinstance(value, np.ndarray)}
    if not sizes or max(sizes) < WORTH or any(getattr(value, "ndim", 0) > 1 for value in values):
        return layout, _same
    code = values[0]
    for value in values[1:]:
        code = code * RADIX + value
    _, first, back = np.unique(code, return_index=True, return_inverse=True)
    if first.size * 2 > code.size:
        return layout, _same

    def restored(found: Number) -> Number:
        return found[back] if isinstance(found, np.ndarray) and found.size == first.size else found

    small = {name: np.broadcast_to(value, code.shape)[first] for name, value in zip(SEEN, values, strict=True)}
    return layout.with_degrees(small), restored


def _same(found: Number) -> Number:
    return found
