"""Of many layouts, those that a layer tells apart: its passes and what it keeps do not depend on the data-parallel ranks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from roofplan.laws import Number
from roofplan.records.training import Layout

SEEN = ("tp", "cp", "ep", "micro_batch")
"""Degrees that a layer sees."""

RADIX = 2**13
"""More than any degree, so that four of them make one exact number [1]."""

WORTH = 64
"""Layouts from which telling them apart is worth the sorting [1]."""


def distinct(layout: Layout) -> tuple[Layout, Callable[[Number], Number]]:
    """Return each combination of what a layer sees once, and how to put results back in the layouts' order.

    Flat arrays only: numbers, and grids whose axes already hold each degree once, come back as they are.
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
