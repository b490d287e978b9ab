"""Probe an endpoint for a day: one short request a minute, at a random moment of it, whatever happens in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from math import exp, lgamma, log, log1p

import numpy as np

from roofplan.load.statistics import Objective
from roofplan.measure.client import Asking, one
from roofplan.measure.exchange import TIME_OUT, clock
from roofplan.measure.sample import Sample

Array = np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When probes are due.

    Parameters
    ----------
    begin : of the first interval, seconds of the epoch [s].
    every : length of an interval [s].
    count : intervals [1].
    seed : of the moments within them.
    """

    begin: float
    every: float
    count: int
    seed: int

    def due(self, number: int) -> float:
        """Return when a probe is due after the beginning [s]."""
        return (number + float(np.random.default_rng((self.seed, number)).uniform())) * self.every

    def next(self, now: float) -> int:
        """Return the first probe that is not yet due at a time of the epoch."""
        number = max(0, int((now - self.begin) // self.every))
        return number + (self.begin + self.due(number) < now)


async def probe(
    asking: Asking, schedule: Schedule, lengths: tuple[int, int], first: int, take: Callable[[Sample], None]
) -> bool:
    """Probe an endpoint until the schedule ends.

    The clock of the wall says when a probe is due, since hours of the day matter; that of the machine says how long to
    wait, so that a wall clock that is set back stalls nothing. Probes whose moment has passed, as after a pause of the
    machine, are not made up for.

    Parameters
    ----------
    asking : how the endpoint is asked.
    schedule : when probes are due.
    lengths : of prompt and answer [token].
    first : number of the first probe that is to be sent.
    take : called with every sample as it ends.

    Returns
    -------
    Whether it was interrupted.
    """
    number = first

    async def send(mine: int) -> None:
        due = schedule.due(mine)
        begun = time.time() - schedule.begin
        seen = await one(asking, mine, *lengths, clock() - begun, begun)
        take(replace(seen, due=due, late=begun - due))

    try:
        async with asyncio.TaskGroup() as group:
            while number < schedule.count:
                wait = schedule.begin + schedule.due(number) - time.time()
                await asyncio.sleep(max(0.0, min(wait, 2.0 * schedule.every)))
                group.create_task(send(number))
                number = max(number + 1, schedule.next(time.time()))
    except asyncio.CancelledError:
        return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """Probes of one hour of the day: how many, median and 99th percentile of the first token, share above the threshold, failures [s, 1]."""

    hour: int
    probes: int
    median: float | None
    p99: float | None
    over: float
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A moment from which first tokens are of another length [s]: seconds of the epoch, median before and after, and how likely chance is [1]."""

    at: float
    before: float
    after: float
    chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Probes in a row that failed: when the first and the last were due, seconds of the epoch, how many, and the reasons [s]."""

    begin: float
    end: float
    probes: int
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """What a row of probes says; times of the first token [s].

    Parameters
    ----------
    begin : seconds of the epoch [s].
    probes, planned : that were sent, and of the schedule so far [1].
    failed : by reason [1].
    threshold : above which a first token is long [s].
    over, over_ends : share of probes above it, those that were given up later than it among them, and its 90% interval by Clopper and
        Pearson; None without either [1].
    median, p99, greatest, greatest_at : of answered probes, and when the greatest was due; None without answers [s].
    waited : longest time after which a probe was given up, a lower bound of what it would have taken; None where none was [s].
    """

    begin: float
    probes: int
    planned: int
    failed: dict[str, int]
    threshold: float
    over: float | None
    over_ends: tuple[float, float]
    median: float | None
    p99: float | None
    greatest: float | None
    greatest_at: float | None
    waited: float | None
    hours: tuple[Hour, ...]
    changes: tuple[Change, ...]
    outages: tuple[Outage, ...]

    @property
    def lost(self) -> int:
        """Probes without an answer [1]."""
        return sum(self.failed.values())


def stability_of(
    samples: Sequence[Sample], schedule: Schedule, threshold: float, zone: tzinfo | None = None
) -> Stability:
    """Return what a row of probes says.

    Parameters
    ----------
    samples : of the probes.
    schedule : when they were due.
    threshold : above which a first token is long [s].
    zone : of the hours of the day, None for that of this host.

    Returns
    -------
    Shares, percentiles, hours, changes and outages.
    """
    ordered = sorted(samples, key=lambda each: each.due)
    good = [each for each in ordered if each.answered and each.ttft is not None]
    bad = [each for each in ordered if not each.answered]
    times = np.array([each.ttft for each in good], float)
    reasons: dict[str, int] = {}
    for each in bad:
        reasons[each.reason] = reasons.get(each.reason, 0) + 1
    given_up = [each for each in bad if each.reason == TIME_OUT and each.spent > threshold]
    over, judged = int(np.sum(times > threshold)) + len(given_up), len(times) + len(given_up)
    most = int(np.argmax(times)) if len(times) else 0
    return Stability(
        begin=schedule.begin,
        probes=len(ordered),
        planned=schedule.count,
        failed=reasons,
        threshold=threshold,
        over=over / judged if judged else None,
        over_ends=share_ends(over, judged),
        median=float(np.median(times)) if len(times) else None,
        p99=float(np.quantile(times, 0.99)) if len(times) else None,
        greatest=float(times[most]) if len(times) else None,
        greatest_at=schedule.begin + good[most].due if len(times) else None,
        waited=max((each.spent for each in bad if each.reason == TIME_OUT), default=None),
        hours=_hours(ordered, schedule, threshold, zone),
        changes=_changes(good, times, schedule),
        outages=_outages(ordered, schedule),
    )


def _hours(ordered: Sequence[Sample], schedule: Schedule, threshold: float, zone: tzinfo | None) -> tuple[Hour, ...]:
    """Return the probes by the hour of the day."""
    by: dict[int, list[Sample]] = {}
    for each in ordered:
        moment = datetime.fromtimestamp(schedule.begin + each.due, UTC).astimezone(zone)
        by.setdefault(moment.hour, []).append(each)
    out = []
    for hour, mine in sorted(by.items()):
        times = np.array([each.ttft for each in mine if each.answered and each.ttft is not None], float)
        out.append(
            Hour(
                hour=hour,
                probes=len(mine),
                median=float(np.median(times)) if len(times) else None,
                p99=float(np.quantile(times, 0.99)) if len(times) else None,
                over=float(np.mean(times > threshold)) if len(times) else 0.0,
                failed=sum(not each.answered for each in mine),
            )
        )
    return tuple(out)


SHORTEST = 30
"""Least probes on either side of a change [1]."""

CHANCE = 1e-3
"""Probability of chance below which a change is named [1]."""


def _changes(good: Sequence[Sample], times: Array, schedule: Schedule) -> tuple[Change, ...]:
    """Return where first tokens become of another length, by Pettitt's test on ranks, again on both sides of each change found."""
    found: list[Change] = []

    def within(start: int, end: int) -> None:
        at, chance = pettitt(times[start:end])
        if at < SHORTEST or end - start - at < SHORTEST or chance > CHANCE:
            return
        middle = start + at
        before, after = (float(np.median(part)) for part in (times[start:middle], times[middle:end]))
        within(start, middle)
        found.append(Change(at=schedule.begin + good[middle].due, before=before, after=after, chance=chance))
        within(middle, end)

    if len(times) >= 2 * SHORTEST:
        within(0, len(times))
    return tuple(found)


def pettitt(values: Array) -> tuple[int, float]:
    """Return where a row of values changes most, and the probability that chance does this (Pettitt 1979, Applied Statistics 28:126).

    Parameters
    ----------
    values : in order, shape (n,).

    Returns
    -------
    Number of values before the change [1], and the probability [1].
    """
    n = len(values)
    if n < 2:
        return 0, 1.0
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[places]
    sums = 2.0 * np.cumsum(ranks) - np.arange(1, n + 1) * (n + 1)
    at = int(np.argmax(np.abs(sums)))
    return at + 1, min(1.0, 2.0 * exp(-6.0 * float(sums[at]) ** 2 / (n**3 + n**2)))


def _outages(ordered: Sequence[Sample], schedule: Schedule) -> tuple[Outage, ...]:
    """Return rows of at least two probes that failed."""
    out, row = [], list[Sample]()
    for each in [*ordered, None]:
        if each is not None and not each.answered:
            row.append(each)
            continue
        if len(row) > 1:
            begin, end = schedule.begin + row[0].due, schedule.begin + row[-1].due
            out.append(
                Outage(begin=begin, end=end, probes=len(row), reasons=tuple(dict.fromkeys(x.reason for x in row)))
            )
        row = []
    return tuple(out)


def share_ends(hits: int, count: int) -> tuple[float, float]:
    """Return the 90% interval of a share (Clopper and Pearson 1934, Biometrika 26:404).

    Parameters
    ----------
    hits, count : of so many [1].

    Returns
    -------
    Lower and upper end [1].

    Examples
    --------
    >>> [round(100 * end, 2) for end in share_ends(4, 1440)]
    [0.09, 0.63]
    """
    if not count:
        return 0.0, 1.0

    def beyond(share: float) -> float:
        """Return the probability of at least so many hits."""
        return 1.0 - _at_most(hits - 1, count, share)

    low = 0.0 if hits == 0 else _root(lambda share: beyond(share) - 0.05)
    high = 1.0 if hits == count else _root(lambda share: 0.05 - _at_most(hits, count, share))
    return low, high


def _at_most(hits: int, count: int, share: float) -> float:
    """Return the probability of at most so many hits."""
    if share <= 0.0 or share >= 1.0:
        return float(share <= 0.0 or hits >= count)
    whole = lgamma(count + 1)
    return sum(
        exp(whole - lgamma(k + 1) - lgamma(count - k + 1) + k * log(share) + (count - k) * log1p(-share))
        for k in range(hits + 1)
    )


def _root(rises: Callable[[float], float]) -> float:
    """Return where a rising function of a share crosses zero [1]."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if rises(middle) > 0.0 else (middle, high)
    return 0.5 * (low + high)


def holds(samples: Sequence[Sample], limit: Objective) -> tuple[float, bool]:
    """Return the time at a limit's percentile, with failures as endless, and whether it is inside.

    Parameters
    ----------
    samples : of the probes.
    limit : the limit.

    Returns
    -------
    The time, infinite where a failure stands at the percentile [s], and whether it is inside.
    """
    values = [float("inf") if not each.answered else getattr(each, limit.figure) for each in samples]
    known = np.array([value for value in values if value is not None], float)
    if not len(known):
        return float("inf"), False
    value = float(
        np.quantile(known, limit.quantile, method="inverted_cdf")
    )  # between a time and an endless one lies none
    return value, value <= limit.limit
