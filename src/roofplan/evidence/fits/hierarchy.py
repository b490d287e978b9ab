"""Numbers that lend to each other: sums of effects in logarithms, each effect normal around a prior, fitted to all measurements at once.

A number of a family is the sum of what all have in common, what its architecture adds, what its software adds and what is its own.
A family without runs has the first three. A user's own runs move shipped constants by the same descent.

References
----------
.. [1] A. Gelman, J. Hill, "Data analysis using regression and multilevel/hierarchical models", Cambridge 2007, chapter 12: partial pooling.
.. [2] P. W. Holland, R. E. Welsch, "Robust regression using iteratively reweighted least-squares", Communications in Statistics A 6, 1977:
       Cauchy weights.
.. [3] D. W. Marquardt, "An algorithm for least-squares estimation of nonlinear parameters", SIAM Journal 11, 1963.
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

LONGEST, SMALLEST = 0.7, 1e-12
"""Largest change of an effect in one step of the descent, and what is no change at all [1]."""

STILL = 3e-3
"""Change of all effects below which the descent stands still [1]."""


TOLD = 0.9
"""Share of its prior spread above which an effect's posterior spread says that no measurement tells it [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Measurements that the same numbers explain.

    Parameters
    ----------
    numbers : by name, the effects whose sum is the number's logarithm.
    errors : logarithms of predicted over measured under numbers [1].
    weight : measurements that each counts for: less than one where they err together [1].
    """

    numbers: Mapping[str, tuple[Effect, ...]]
    errors: Callable[[Numbers], np.ndarray]
    weight: float = 1.0

    def at(self, logs: np.ndarray) -> Numbers:
        """Return the numbers of logarithms in their order."""
        return dict(zip(self.numbers, np.exp(logs).tolist(), strict=True))


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

    def told(self, effect: Effect, prior: Prior) -> bool:
        """Return whether measurements tell an effect: whether they leave clearly less of its prior's spread."""
        place = self.places.get(effect)
        return place is not None and math.sqrt(self.covariance[place, place]) < TOLD * prior.spread

    def variance(self, effects: Sequence[Effect]) -> float:
        """Return the variance of a sum of effects that measurements know [1]."""
        takes = _takes([effects], self.places)[0]
        return float(takes @ self.covariance @ takes)


@dataclass(frozen=True, slots=True)
class Prior:
    """Where an effect lies before any measurement, how far it may stray, and where the search starts; in logarithms [1]."""

    centre: float
    spread: float
    start: float | None = None


def fit(blocks: Sequence[Block], priors: Mapping[Any, Prior], rounds: int = 30, start: Fitted | None = None) -> Fitted:
    """Return the most plausible effects: damped steps of least squares with Cauchy weights [2]_ around the priors [1]_.

    Each step lowers the penalty, or is taken again with more damping [3]_. The noise of each block is estimated anew in the first
    `SETTLING` steps and then kept, so that all later ones go down the same slope. The descent ends after a step that lowers the penalty by
    less than `EVEN` or moves no effect by `STILL`, where no damped step lowers it, or after `rounds` steps.
    """
    used = list(dict.fromkeys(one for block in blocks for effects in block.numbers.values() for one in effects))
    places = {one: place for place, one in enumerate(used)}
    prior = _Priors(
        centre=np.array([priors[one].centre for one in used]),
        precision=np.array([priors[one].spread for one in used]) ** -2.0,
    )
    values = np.array([_first(one, priors[one], start) for one in used])
    takes = [_takes(block.numbers.values(), places) for block in blocks]
    noise: list[float] = []
    damping, still = LEAST_DAMPING, False
    for step in range(rounds + 1):
        found = [linearised(block, rows @ values) for block, rows in zip(blocks, takes, strict=True)]
        if step < SETTLING:
            noise = [max(LEAST_NOISE, 1.4826 * float(np.median(np.abs(errors)))) for errors, _ in found]
        curvature, pull = prior.normal(values)
        for block, (errors, slope), rows, spread in zip(blocks, found, takes, noise, strict=True):
            weights = block.weight / (1.0 + (errors / (TUNING * spread)) ** 2) / spread**2
            lever = slope @ rows
            curvature = curvature + lever.T @ (weights[:, None] * lever)
            pull = pull - lever.T @ (weights * errors)
        if still or step == rounds:
            break
        penalty = prior.penalty(values) + _penalty(blocks, [errors for errors, _ in found], noise)
        while damping < MOST_DAMPING:
            change = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), pull)
            change = change * min(1.0, LONGEST / max(float(np.max(np.abs(change))), SMALLEST))
            trial = values + change
            errors_there = [block.errors(block.at(rows @ trial)) for block, rows in zip(blocks, takes, strict=True)]
            lower = prior.penalty(trial) + _penalty(blocks, errors_there, noise)
            if lower < penalty:
                damping = max(LEAST_DAMPING, damping / DAMPED)
                break
            damping *= DAMPED
        else:
            damping, still = LEAST_DAMPING, step >= SETTLING
            continue
        values = trial
        still = step >= SETTLING and (penalty - lower < EVEN or float(np.max(np.abs(change))) < STILL)
    slopes = [slope for _, slope in found]
    return Fitted(places=places, values=values, covariance=np.linalg.inv(curvature), noise=noise, slopes=slopes)


LEAST_DAMPING, MOST_DAMPING, DAMPED = 1e-3, 1e3, 5.0
"""Where the damping of a step starts and gives up, in shares of the curvature, and by how much it grows where the step leads up [3]_."""

EVEN = 0.1
"""Difference of penalties, which are negative logarithms of likelihoods, that says nothing for either side [1]."""

SETTLING = 6
"""Steps in which the noise of the blocks is told anew [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Priors:
    """Priors of all effects, in logarithms."""

    centre: np.ndarray
    precision: np.ndarray

    def normal(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the curvature of their penalty, and its downward slope."""
        return np.diag(self.precision), self.precision * (self.centre - values)

    def penalty(self, values: np.ndarray) -> float:
        return 0.5 * float(np.sum(self.precision * (values - self.centre) ** 2))


def _penalty(blocks: Sequence[Block], errors: Sequence[np.ndarray], noise: Sequence[float]) -> float:
    """Return the penalty of blocks' errors whose weights are Cauchy's [2]_."""
    far = (
        block.weight * np.sum(np.log1p((each / (TUNING * spread)) ** 2))
        for block, each, spread in zip(blocks, errors, noise, strict=True)
    )
    return 0.5 * TUNING**2 * float(sum(far))


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
    numbers = block.at(logs)
    here = block.errors(numbers)
    moved = [block.errors({**numbers, name: value * math.exp(NUDGE)}) - here for name, value in numbers.items()]
    return here, np.stack(moved, axis=1) / NUDGE
