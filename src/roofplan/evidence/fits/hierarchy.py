"""Hierarchical fits with partial pooling: log-scale sums of effects with normal priors, fitted to all measurements at once.

The logarithm of a family's number is the sum of a common effect, one of its architecture, one of its software and one of its own.
A family without runs has the first three. A user's own runs move shipped constants by the same method.

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

from roofplan.laws import Number

Numbers = dict[str, Number]
"""Numbers by name: floats, or arrays of shape (n,) where a block takes them [1]."""
Effect = Hashable

LEAST_NOISE = 0.02
"""Least relative noise assumed of a measurement: repeated runs differ by as much [1]."""

TUNING = 2.385
"""Standard deviations at which a Cauchy weight is one half: 95% efficient for normal errors [2]."""

NUDGE = 0.05
"""Step of finite differences, in logarithms: wide enough to notice a nearby switch between two limits [1]."""

LONGEST, SMALLEST = 0.7, 1e-12
"""Largest change of an effect in one step, and the change that counts as none [1]."""

STILL = 3e-3
"""Largest change of any effect below which the descent has converged [1]."""


TOLD = 0.9
"""Posterior over prior spread above which measurements do not determine an effect [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Measurements explained by the same numbers.

    Parameters
    ----------
    numbers : by name, the effects whose sum is the number's logarithm.
    errors : logarithms of predicted over measured, given the numbers [1].
    weight : weight of all measurements or of each, below one where their errors are correlated [1].
    at_once : whether `errors` takes arrays of shape (n,) as numbers, and then returns an array of shape (measurements, n).
    """

    numbers: Mapping[str, tuple[Effect, ...]]
    errors: Callable[[Numbers], np.ndarray]
    weight: float | np.ndarray = 1.0
    at_once: bool = False

    def at(self, logs: np.ndarray) -> Numbers:
        """Return the numbers by name, from their logarithms in the same order."""
        return dict(zip(self.numbers, np.exp(logs).tolist(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Fitted effects and their covariance.

    Parameters
    ----------
    places : index of each effect in the arrays below.
    values : effects, in logarithms [1].
    covariance : covariance of the effects, from the slopes and weights of the last step [1].
    noise : robust relative error of each block [1].
    slopes : derivatives of each block's errors by the logarithms of its numbers, one row per measurement [1].
    """

    places: dict[Effect, int]
    values: np.ndarray
    covariance: np.ndarray
    noise: list[float]
    slopes: list[np.ndarray]

    def number(self, effects: Sequence[Effect]) -> float:
        """Return the number for a sum of effects; effects without measurements count as zero."""
        return math.exp(sum(self.values[self.places[one]] for one in effects if one in self.places))

    def told(self, effect: Effect, prior: Prior) -> bool:
        """Return whether measurements determine an effect: whether its posterior spread is clearly below its prior spread."""
        place = self.places.get(effect)
        return place is not None and math.sqrt(self.covariance[place, place]) < TOLD * prior.spread

    def variance(self, effects: Sequence[Effect]) -> float:
        """Return the variance of a sum of effects; effects without measurements are left out [1]."""
        takes = _design_matrix([effects], self.places)[0]
        return float(takes @ self.covariance @ takes)


@dataclass(frozen=True, slots=True)
class Prior:
    """Normal prior of an effect, in logarithms: mean, standard deviation, and where the search starts [1]."""

    centre: float
    spread: float
    start: float | None = None


def fit(blocks: Sequence[Block], priors: Mapping[Any, Prior], rounds: int = 30, start: Fitted | None = None) -> Fitted:
    """Return the most plausible effects, by damped least squares with Cauchy weights [2]_ and priors [1]_.

    A step that does not lower the penalty is repeated with more damping [3]_. The noise of each block is estimated again in each of the
    first `SETTLING` steps and then kept, so that all later steps minimise the same penalty. The descent ends after a step that lowers the
    penalty by less than `EVEN` or moves no effect by `STILL`, where no damped step lowers it, or after `rounds` steps.
    """
    used = list(dict.fromkeys(one for block in blocks for effects in block.numbers.values() for one in effects))
    places = {one: place for place, one in enumerate(used)}
    prior = _Priors(
        centre=np.array([priors[one].centre for one in used]),
        precision=np.array([priors[one].spread for one in used]) ** -2.0,
    )
    values = np.array([_first(one, priors[one], start) for one in used])
    takes = [_design_matrix(block.numbers.values(), places) for block in blocks]
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
            still = True
            continue
        values = trial
        still = step >= SETTLING and (penalty - lower < EVEN or float(np.max(np.abs(change))) < STILL)
    slopes = [slope for _, slope in found]
    return Fitted(places=places, values=values, covariance=np.linalg.inv(curvature), noise=noise, slopes=slopes)


LEAST_DAMPING, MOST_DAMPING, DAMPED = 1e-3, 1e3, 5.0
"""Least and largest damping, in shares of the curvature, and the factor by which it grows after a step that raises the penalty [3]_."""

EVEN = 0.1
"""Difference of penalties, which are negative log-likelihoods, below which two are equal [1]."""

SETTLING = 6
"""Steps in which the noise of the blocks is estimated again [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Priors:
    """Priors of all effects, in logarithms."""

    centre: np.ndarray
    precision: np.ndarray

    def normal(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the curvature and the negative gradient of the priors' penalty."""
        return np.diag(self.precision), self.precision * (self.centre - values)

    def penalty(self, values: np.ndarray) -> float:
        return 0.5 * float(np.sum(self.precision * (values - self.centre) ** 2))


def _penalty(blocks: Sequence[Block], errors: Sequence[np.ndarray], noise: Sequence[float]) -> float:
    """Return the Cauchy penalty of the blocks' errors [2]_."""
    far = (
        np.sum(block.weight * np.log1p((each / (TUNING * spread)) ** 2))
        for block, each, spread in zip(blocks, errors, noise, strict=True)
    )
    return 0.5 * TUNING**2 * float(sum(far))


def _design_matrix(numbers: Iterable[Sequence[Effect]], places: Mapping[Effect, int]) -> np.ndarray:
    """Return the design matrix of numbers (rows) by effects (columns), with entries one or zero [1]."""
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
    """Return a block's errors and their derivatives by the logarithm of each number, one row per measurement [1]."""
    numbers = block.at(logs)
    if block.at_once:
        one = np.eye(len(numbers) + 1)[1:]  # a row per number; the first column changes none
        every = block.errors(
            {name: value * np.exp(NUDGE * row) for (name, value), row in zip(numbers.items(), one, strict=True)}
        )
        return every[:, 0], (every[:, 1:] - every[:, :1]) / NUDGE
    here = block.errors(numbers)
    moved = [block.errors({**numbers, name: value * math.exp(NUDGE)}) - here for name, value in numbers.items()]
    return here, np.stack(moved, axis=1) / NUDGE
