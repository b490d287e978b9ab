"""Rates by repeated short windows, of which those count in which the processor was ours."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

WINDOW, WINDOWS, PATIENCE = 0.02, 30, 3.0
"""Length of a window [s], most windows of a figure [1], and longest time that they may take together [s]."""

AGREED, NEAR, AT_MOST = 3, 0.02, 4
"""Windows that must lie near each other before the best of them is believed [1], how near [1], and how many times the most windows that may take [1]."""

OURS = 0.97
"""Least share of a window's wall time that its threads must have computed: a shared processor was ours throughout [1]."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One measured figure.

    Parameters
    ----------
    best, median : of the windows that count, in `unit`; best is the least where `unit` is a time.
    kept, windows : windows that count, and all [1].
    """

    best: float
    median: float
    kept: int
    windows: int
    unit: str


def rate(
    work: float,
    run: Callable[[int], None],
    unit: str,
    *,
    busy: Callable[[], float] | None,
    windows: int = WINDOWS,
    clock: Callable[[], float] = time.perf_counter,
) -> Seen:
    """Return the rate of an operation over windows of `WINDOW`.

    Parameters
    ----------
    work : that one operation does, in `unit` times seconds; 1 with a `unit` of ``s`` gives its time.
    run : runs the operation as often as it is told, and returns when the last has ended.
    busy : processor time of the threads at work, over their number [s]; None where they are not the processor's.
    windows : most windows, `AT_MOST` times as many while the best stands alone [1].
    clock : wall clock [s].

    Returns
    -------
    Best and median; zeros where no window counts.
    """
    run(1)
    began = clock()
    run(1)
    times = max(1, int(WINDOW / max(clock() - began, 1e-9)))
    found: list[float] = []
    total, first = 0, clock()
    while total < (windows if _agreed(found, unit) else AT_MOST * windows) and (
        total < 3 or clock() - first < PATIENCE
    ):
        began, before = clock(), 0.0 if busy is None else busy()
        run(times)
        wall = clock() - began
        total += 1
        if busy is None or (busy() - before) >= OURS * wall:
            found.append(wall / times if unit == "s" else work * times / wall)
    if not found:
        return Seen(0.0, 0.0, 0, total, unit)
    return Seen(
        _best(found, unit) or _in_order(found, unit)[:AGREED][-1], statistics.median(found), len(found), total, unit
    )


def _in_order(found: list[float], unit: str) -> list[float]:
    """Return windows from the best to the worst."""
    return sorted(found, reverse=unit != "s")


def _best(found: list[float], unit: str) -> float | None:
    """Return the best window that `AGREED` windows, itself among them, come near; None where none do."""
    ranked = _in_order(found, unit)
    runs = zip(ranked, ranked[AGREED - 1 :], strict=False)
    return next((first for first, last in runs if abs(last / first - 1.0) <= NEAR), None)


def _agreed(found: list[float], unit: str) -> bool:
    """Return whether the best window of all is the best of those."""
    return bool(found) and _best(found, unit) == _in_order(found, unit)[0]
