"""Numbers that lend to each other: sums of effects in logarithms, each effect normal around a prior, fitted to all measurements at once.

A number of a family is the sum of what all have in common, what its architecture adds, what its software adds and what is its own.
A family without runs has the first three. A user's own runs move shipped constants by the same descent.

References
----------
.. [1] A. Gelman, J. Hill, "Data analysis using regression and multilevel/hierarchical models", Cambridge 2007, chapter 12: partial pooling.
.. [2] P. W. Holland, R. E. Welsch, "Robust regression using iteratively reweighted least-squares", Communications in Statistics A 6, 1977:
       Cauchy weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = dict[str, float]
Effect = Hashable

LEAST_NOISE = 0.02
"""Relative error of a measurement that nothing is believed below: repeated runs differ by as much [1]."""

TUNING = 2.385
"""Standard deviations at which a Cauchy weight is a half: 95% efficient where errors are normal [2]."""

NUDGE = 0.05
"""Step in logarithms by which slopes are taken: wide enough that the larger of two limits is felt nearby [1]."""

LONGEST = 0.7
"""Largest change of an effect in one step of the descent [1]."""

STILL = 3e-3
"""Change of all effects below which the descent stands still [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Measurements that the same numbers explain.

    Parameters
    ----------
    numbers : by name, the effects whose sum is the number's logarithm.
    errors : logarithms of predicted over measured under numbers [1].
    """

    numbers: Mapping[str, tuple[Effect, ...]]
    errors: Callable[[Numbers], np.ndarray]


@dataclass(slots=True, kw_only=True)
class Fitted:
    """Effects and how sure they are.

    Parameters
    ----------
    places : of the effects in what follows.
    values : of the effects, in logarithms [1].
    covariance : theirs, by the slopes and weights of the last step [1].
    noise : robust relative error of each block [1].
    slopes : of each block's errors by the logarithm of each of its numbers, one row a measurement [1].
    """

    places: dict[Effect, int]
    values: np.ndarray
    covariance: np.ndarray
    noise: list[float]
    slopes: list[np.ndarray]

    def number(self, effects: Sequence[Effect]) -> float:
        """Return the number of a sum of effects; one that no measurement knows adds nothing."""
        return math.exp(sum(self.values[self.places[one]] for one in effects if one in self.places))

    def variance(self, effects: Sequence[Sequence[Effect]], unknown: Sequence[float], slopes: np.ndarray) -> float:
        """Return the variance of a prediction's logarithm that numbers leave, over the mean of some slopes [1].

        `effects` are those of each number, `unknown` the variance of what each has of its own.
        """
        takes = _takes(effects, self.places)
        spread = takes @ self.covariance @ takes.T + np.diag(unknown)
        return float(np.mean(np.einsum("ij,jk,ik->i", slopes, spread, slopes)))


@dataclass(frozen=True, slots=True)
class Prior:
    """Where an effect lies before any measurement, how far it may stray, and where the search starts; in logarithms [1]."""

    centre: float
    spread: float
    start: float | None = None


def fit(blocks: Sequence[Block], priors: Mapping[Any, Prior], rounds: int = 30, start: Fitted | None = None) -> Fitted:
    """Return the most plausible effects: damped steps of least squares with Cauchy weights [2]_ around the priors [1]_.

    The descent ends where no effect moves by `STILL` any more, or after `rounds` steps; what is returned beside the values is
    taken where it ended.
    """
    used = list(dict.fromkeys(one for block in blocks for effects in block.numbers.values() for one in effects))
    places = {one: place for place, one in enumerate(used)}
    centre = np.array([priors[one].centre for one in used])
    precision = np.array([priors[one].spread for one in used]) ** -2.0
    values = np.array([_first(one, priors[one], start) for one in used])
    takes = [_takes(block.numbers.values(), places) for block in blocks]
    for last in (*range(rounds), None):
        curvature, pull = np.diag(precision), precision * (centre - values)
        noise, slopes = [], []
        for block, rows in zip(blocks, takes, strict=True):
            errors, slope = linearised(block, rows @ values)
            spread = max(LEAST_NOISE, 1.4826 * float(np.median(np.abs(errors))))
            weights = 1.0 / (1.0 + (errors / (TUNING * spread)) ** 2) / spread**2
            lever = slope @ rows
            curvature = curvature + lever.T @ (weights[:, None] * lever)
            pull = pull - lever.T @ (weights * errors)
            noise.append(spread)
            slopes.append(slope)
        change = np.linalg.solve(curvature, pull)
        longest = float(np.max(np.abs(change)))
        if last is None or longest < STILL:
            break
        values = values + change * min(1.0, LONGEST / longest)
    return Fitted(places=places, values=values, covariance=np.linalg.inv(curvature), noise=noise, slopes=slopes)


def _takes(numbers: Iterable[Sequence[Effect]], places: Mapping[Effect, int]) -> np.ndarray:
    """Return which effects each number is the sum of: a row a number, a column an effect, one or zero [1]."""
    sums = [tuple(effects) for effects in numbers]
    out = np.zeros((len(sums), len(places)))
    for row, effects in enumerate(sums):
        for one in effects:
            if one in places:
                out[row, places[one]] = 1.0
    return out


def _first(one: Effect, prior: Prior, start: Fitted | None) -> float:
    """Return where the search for an effect starts."""
    if start is not None and one in start.places:
        return float(start.values[start.places[one]])
    return prior.centre if prior.start is None else prior.start


def linearised(block: Block, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a block's errors at the logarithms of its numbers, and their slopes by each, one row a measurement [1]."""
    numbers = dict(zip(block.numbers, np.exp(logs).tolist(), strict=True))
    here = block.errors(numbers)
    moved = [block.errors({**numbers, name: value * math.exp(NUDGE)}) - here for name, value in numbers.items()]
    return here, np.stack(moved, axis=1) / NUDGE
