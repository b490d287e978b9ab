"""The highest rate at which a deployment keeps the limits, by bisection with the same random numbers at every rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from roofplan.load.statistics import Objective
from roofplan.simulation.report import Simulation

FINE, COARSE = 0.01, 0.05
"""Relative difference between the highest rate that keeps the limits and the lowest that does not, at which the search ends, and that
of the ends of its interval [1]."""

MOST = 1e4
"""Highest rate that is tried, over the one at which the search begins [1]."""

LOWEST = 1e-4
"""Rate below which a system counts as empty [1/s]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The highest rate that keeps the limits.

    Parameters
    ----------
    rate : requests per second, 0 where an empty system misses a limit [1/s].
    ends : the rate with all steps as slow and as fast as their 90% interval allows, None where they were not sought [1/s].
    at : simulation at that rate; at the lowest one that was tried, where none keeps the limits.
    first : limit that breaks first above it, None where the queue grows instead, or where nothing breaks (`missed` is then `rate`).
    missed : the lowest rate that was seen to break them [1/s].
    tried : every rate with the time at each limit's percentile, by rate [1/s, s].
    """

    rate: float
    ends: tuple[float, float] | None = None
    at: Simulation
    first: Objective | None
    missed: float
    tried: list[tuple[float, Simulation]]


def highest_rate(run: Callable[[float], Simulation], start: float, fine: float = FINE) -> Found:
    """Return the highest rate of arrivals that keeps all limits.

    Parameters
    ----------
    run : simulates the load at a rate [1/s].
    start : rate at which the search begins [1/s].
    fine : relative difference at which it ends [1].

    Returns
    -------
    The rate, and what breaks above it.
    """
    tried: dict[float, Simulation] = {}

    def kept(rate: float) -> bool:
        tried[rate] = one = run(rate)
        return not one.saturated and all(limit.holds for limit in one.limits)

    rate = start
    if kept(rate):
        low, rate = rate, 2.0 * rate
        while kept(rate):
            low, rate = rate, 2.0 * rate
            if rate > MOST * start:
                return _found(low, tried[low], low, tried)  # the load ends before a limit breaks
        high = rate
    else:
        high, rate = rate, 0.5 * rate
        while not kept(rate):
            high, rate = rate, 0.25 * rate
            if rate < LOWEST:
                return _found(0.0, tried[high], high, tried)
        low = rate
    while high / low > 1.0 + fine:
        rate = (low * high) ** 0.5
        low, high = (rate, high) if kept(rate) else (low, rate)
    return _found(low, tried[low], high, tried)


def _found(rate: float, at: Simulation, missed: float, tried: dict[float, Simulation]) -> Found:
    broken = [one for one in tried[missed].limits if not one.holds]
    first = max(broken, key=lambda one: one.over).objective if broken else None
    return Found(rate=rate, at=at, first=first, missed=missed, tried=sorted(tried.items()))
