"""When members are there: drawn sessions, hours of the day, or a table of what was seen."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from roofplan.errors import InputError, nearest
from roofplan.records import units
from roofplan.records.pool import Member

Array = np.ndarray

STEADY, EVENING = PATTERNS = ("steady", "evening")
"""When members come: at any hour, or most of them in the evening."""

EVENING_RATE = ((0.0, 0.5), (18.0, 2.5), (24.0, 0.5))
"""Rate at which members come, relative to its mean over a day, from each hour on: a quarter of the day takes five eighths [h, 1]."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """When one member is there.

    Parameters
    ----------
    starts, ends : of its sessions in order, shape (sessions,) [s].
    """

    starts: Array
    ends: Array

    def share(self, horizon: float) -> float:
        """Return the share of the time up to a horizon in which it is there [1]."""
        ends = np.minimum(self.ends, horizon)
        return float(np.maximum(ends - np.minimum(self.starts, horizon), 0.0).sum() / horizon)


def drawn(
    members: Sequence[Member], horizon: float, *, session: float, online: float, pattern: str, seed: int
) -> list[Sessions]:
    """Return sessions of members up to a horizon.

    A member that states hours is there in them, day after day. Others come and go: a stay is exponential with a given mean,
    and so is the time away, of a mean that gives the share of the time in which the member is there; in the evening pattern
    members come back at a rate that depends on the hour.

    Parameters
    ----------
    members : of the pool.
    horizon : last time [s].
    session : mean stay [s].
    online : share of the time in which members are there that do not say [1].
    pattern : one of `PATTERNS`.
    seed : of the random numbers.

    Returns
    -------
    Sessions of each member.
    """
    random, out = np.random.default_rng(seed), []
    for one in members:
        share = online if one.online is None else one.online
        if one.hours is not None:
            out.append(_daily(one.hours, horizon))
        elif share >= 1.0:
            out.append(Sessions(np.zeros(1), np.full(1, np.inf)))
        else:
            out.append(_renewal(horizon, session, share, pattern, random))
    return out


def _daily(hours: tuple[float, float], horizon: float) -> Sessions:
    """Return sessions at the same hours of every day."""
    start, length = hours[0], (hours[1] - hours[0]) % units.DAY
    starts = start - units.DAY + units.DAY * np.arange(np.ceil(horizon / units.DAY) + 2.0)
    kept = starts + length > 0.0
    return Sessions(np.maximum(starts[kept], 0.0), starts[kept] + length)


def _renewal(horizon: float, session: float, share: float, pattern: str, random: np.random.Generator) -> Sessions:
    """Return exponential stays and times away; the first begins as it would after a long time."""
    away = session * (1.0 - share) / share
    count = int(horizon / (session + away) * 1.5 + 6.0 * np.sqrt(horizon / (session + away) + 1.0)) + 4
    if pattern == EVENING:
        lead = units.DAY * np.ceil(LEAD * (session + away) / units.DAY)
        count += int(lead / (session + away) * 1.5) + 4
        whole = _evenings(session, _away(session, share), count, random, there=random.random() < share)
        kept = whole.ends > lead
        return Sessions(np.maximum(whole.starts[kept] - lead, 0.0), whole.ends[kept] - lead)
    stays, gaps = random.exponential(session, count), random.exponential(away, count)
    if random.random() < share:
        gaps[0] = 0.0
    starts = np.cumsum(gaps) + np.concatenate([[0.0], np.cumsum(stays)[:-1]])
    return Sessions(starts, starts + stays)


def _evenings(session: float, away: float, count: int, random: np.random.Generator, *, there: bool) -> Sessions:
    """Return stays of which most begin in the evening: times away are exponential in operational time."""
    stays, gaps = random.exponential(session, count), random.exponential(away, count)
    starts, at = np.empty(count), 0.0
    for k in range(count):
        starts[k] = at = 0.0 if there and k == 0 else _operational_inverse(_operational(at) + gaps[k])
        at += stays[k]
    return Sessions(starts, starts + stays)


LEAD = 5.0
"""Stays and times away after which it no longer matters how an evening pattern began [1]."""


@lru_cache(maxsize=64)
def _away(session: float, share: float) -> float:
    """Return the mean time away, in operational time, at which members are there for a share of the time [s].

    Members leave when fewer come, and so are away for longer: by how much is drawn.
    """
    away = session * (1.0 - share) / share
    for _ in range(CORRECTIONS):
        spans = _evenings(session, away, CYCLES, np.random.default_rng(0), there=True)
        there = float((spans.ends - spans.starts).sum())
        away *= session * (1.0 - share) / share * CYCLES / (float(spans.ends[-1]) - there)
    return away


CORRECTIONS, CYCLES = 4, 2000
"""Corrections of a mean time away, and the stays that are drawn for each [1]."""

_HOURS = np.array([hour for hour, _ in EVENING_RATE]) * units.HOUR
_RATES = np.array([rate for _, rate in EVENING_RATE[:-1]])
_SUMS = np.concatenate([[0.0], np.cumsum(_RATES * np.diff(_HOURS))])


def _operational(at: float) -> float:
    """Return the operational time, in which members come at a constant rate [s]."""
    days, rest = divmod(at, units.DAY)
    return float(days * _SUMS[-1] + np.interp(rest, _HOURS, _SUMS))


def _operational_inverse(clock: float) -> float:
    """Return the time that belongs to an operational time [s]."""
    days, rest = divmod(clock, float(_SUMS[-1]))
    return float(days * units.DAY + np.interp(rest, _SUMS, _HOURS))


def read_churn(path: str, members: Sequence[Member]) -> list[Sessions]:
    """Return the sessions in a table with columns ``member,from,to``, in seconds from the start.

    Parameters
    ----------
    path : of a CSV file.
    members : of the pool; one that the table does not name is never there.

    Returns
    -------
    Sessions of each member.

    Raises
    ------
    InputError : a file that cannot be read, a member of another name, times that go back or overlap.
    """
    found: dict[str, list[tuple[float, float]]] = {one.name: [] for one in members}
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--churn: cannot read {path}: {error}", argument="--churn", value=path) from None
    if not rows or not {"member", "from", "to"} <= rows[0].keys():
        raise InputError(
            f"--churn: {path}: columns member, from and to are needed, in seconds", argument="--churn", value=path
        )
    for number, row in enumerate(rows, 2):
        name, where = str(row["member"]), f"--churn: line {number} of {path}"
        if name not in found:
            raise InputError(
                f"{where}: no member {name!r}", argument="--churn", value=name, nearest=nearest(name, found)
            )
        try:
            start, end = float(row["from"]), float(row["to"])
        except (TypeError, ValueError):
            raise InputError(f"{where}: from and to are seconds", argument="--churn", value=str(row)) from None
        before = found[name][-1][1] if found[name] else 0.0
        if not before <= start < end:
            raise InputError(
                f"{where}: from {start:g} to {end:g} goes back, or begins before {before:g}",
                argument="--churn",
                value=name,
            )
        found[name].append((start, end))
    return [Sessions(np.array([a for a, _ in spans]), np.array([b for _, b in spans])) for spans in found.values()]
