"""Uncertainty of costs: intervals by sampling inputs over their ranges, and the effect of each input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from roofplan.laws import Number
from roofplan.records.source import GRADES, Sourced

Z90 = 1.6449
"""95th percentile of the standard normal distribution, in standard deviations."""


def student(freedom: float) -> float:
    """Return the 95th percentile of Student's t distribution by the Cornish-Fisher series: to 1% from three degrees of freedom.

    Parameters
    ----------
    freedom : degrees of freedom [1].

    Returns
    -------
    The percentile [1].

    Notes
    -----
    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.

    Examples
    --------
    >>> round(student(3), 2), round(student(10), 3)  # tables: 2.35, 1.812
    (2.35, 1.812)
    """
    z = Z90
    first, second = (z**3 + z) / 4.0, (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / freedom + second / freedom**2 + third / freedom**3


SAMPLES = 100_000
"""Draws of an interval: enough to know its ends to about a hundredth of its width [1]."""

SEED = 20261121

Values = Mapping[str, Number]
"""Values of a cost's inputs by name: floats, or arrays of draws of equal length."""


GRADE_OF_KIND = {
    **dict.fromkeys(("given", "measured"), "measured"),
    **dict.fromkeys(("datasheet", "documented", "quote", "fitted"), "calibrated"),
    **dict.fromkeys(("derived", "estimate"), "borrowed"),
    "guess": "guessed",
}
"""Grade of an input by how its figure was obtained: a value that the user states counts as measured, a fresh quote of the very thing
as calibrated, an analyst's estimate as borrowed.
"""

MATTERS = 0.25
"""Share of the widest swing from which the grade of an input counts for the result [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A central value, the bounds `low` and `high` of nine in ten draws, and the `grade` of the least certain input that matters."""

    low: float
    central: float
    high: float
    grade: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """Effect of one input's range on a result, with all other inputs central.

    Parameters
    ----------
    low, high : the result at the input's bounds.
    """

    name: str
    low: float
    high: float

    @property
    def width(self) -> float:
        """Distance between the two results."""
        return abs(self.high - self.low)


def grade_of_input(item: Sourced) -> str:
    """Return the grade of an input: its own where stated, else that of its kind."""
    if item.grade:
        return item.grade
    return GRADE_OF_KIND[item.kind]


def grade_of_cost(cost: Callable[[Values], Number], inputs: Mapping[str, Sourced]) -> str:
    """Return the grade of a cost: that of the least certain input whose swing is at least `MATTERS` of the widest, of all inputs where none has one.

    An uncertain input without a range is varied by a factor of `PROBED` either way.
    """
    probed = {
        name: replace(item, low=item.value / PROBED, high=item.value * PROBED)
        if item.low is None and GRADES.index(grade_of_input(item)) > 1
        else item
        for name, item in inputs.items()
    }
    swings = tornado(cost, probed)
    widest = max((one.width for one in swings), default=0.0)
    counted = [inputs[one.name] for one in swings if widest > 0.0 and one.width >= MATTERS * widest]
    return max((grade_of_input(item) for item in counted or inputs.values()), key=GRADES.index, default="measured")


PROBED = 1.25
"""Factor by which an estimate or a guess without a range is varied to see whether it matters [1]."""


def central(inputs: Mapping[str, Sourced]) -> dict[str, float]:
    """Return the central values of inputs.

    Parameters
    ----------
    inputs : inputs by name.

    Returns
    -------
    Name -> central value, in the unit of the input.
    """
    return {name: item.value for name, item in inputs.items()}


def draws(inputs: Mapping[str, Sourced], count: int = SAMPLES, seed: int = SEED) -> dict[str, Number]:
    """Return draws of each input that has a range, and the value of each other input.

    The median of the draws is the central value. Each side is half of a log-normal distribution, with one draw in twenty beyond
    each bound. Draws beyond an input's physical limits are clipped to them.
    """
    rng = np.random.default_rng(seed)
    out: dict[str, Number] = {}
    for name, item in inputs.items():
        if item.low is None or item.high is None:
            out[name] = item.value
            continue
        z = rng.standard_normal(count)
        up, down = np.log(item.high / item.value) / Z90, np.log(item.value / item.low) / Z90
        drawn = item.value * np.exp(np.where(z > 0.0, up, down) * z)
        bounded = item.least is not None or item.most is not None
        out[name] = np.clip(drawn, item.least, item.most) if bounded else drawn
    return out


def interval(cost: Callable[[Values], Number], inputs: Mapping[str, Sourced], count: int = SAMPLES) -> Interval:
    """Return the central value of a cost and the bounds that hold nine of ten draws."""
    middle = float(cost(central(inputs)))
    grade = grade_of_cost(cost, inputs)
    found = np.asarray(cost(draws(inputs, count)))
    if found.ndim == 0:
        return Interval(low=middle, central=middle, high=middle, grade=grade)
    low, high = np.percentile(found, (5.0, 95.0))
    return Interval(low=min(float(low), middle), central=middle, high=max(float(high), middle), grade=grade)


def tornado(cost: Callable[[Values], Number], inputs: Mapping[str, Sourced]) -> list[Swing]:
    """Return the effect of each input's range on a cost, the widest first."""
    at = central(inputs)
    out = [
        Swing(name=name, low=float(cost({**at, name: item.low})), high=float(cost({**at, name: item.high})))
        for name, item in inputs.items()
        if item.low is not None and item.high is not None
    ]
    return sorted(out, key=lambda swing: -swing.width)
