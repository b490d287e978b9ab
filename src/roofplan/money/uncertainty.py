"""What follows from inputs that have ranges: intervals by sampling, and which input matters most."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from roofplan.laws import Number
from roofplan.records.source import GRADES, Sourced

Z90 = 1.6449
"""Standard deviations above the median that nineteen of twenty stay below."""


def student(freedom: float) -> float:
    """Return what nineteen of twenty draws of Student's t stay below, by Cornish and Fisher's series: to 1% from three degrees of freedom.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.

    >>> round(student(3), 2), round(student(10), 3)  # tables: 2.35, 1.812
    (2.35, 1.812)
    """
    z = Z90
    first, second = (z**3 + z) / 4.0, (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / freedom + second / freedom**2 + third / freedom**3


SAMPLES = 100_000
"""Draws of an interval: its ends are then known to about a hundredth of its width [1]."""

SEED = 20261121

Values = Mapping[str, Number]
"""Inputs of a cost by name: floats, or arrays of draws of equal length."""


GRADE_OF_KIND = {
    **dict.fromkeys(("given", "measured"), "measured"),
    **dict.fromkeys(("datasheet", "documented", "quote", "fitted"), "calibrated"),
    **dict.fromkeys(("derived", "estimate"), "borrowed"),
    "guess": "guessed",
}
"""How sure an input of a cost is by how its figure was obtained: what the user states is as good as measured, a fresh quotation of the very
thing is calibrated, an analyst's estimate is borrowed."""

MATTERS = 0.25
"""Share of the widest swing from which an input's grade counts for the result [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Nine of ten draws lie between `low` and `high`; `grade` is that of the least sure input that matters."""

    low: float
    central: float
    high: float
    grade: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """What one input's range does to a result, all others central.

    Parameters
    ----------
    low, high : the result at the input's bounds.
    """

    name: str
    low: float
    high: float

    @property
    def width(self) -> float:
        """Distance between the two."""
        return abs(self.high - self.low)


def grade_of_input(item: Sourced) -> str:
    """Return how sure an input is: as it says itself, else by how its figure was obtained."""
    if item.grade:
        return item.grade
    return GRADE_OF_KIND[item.kind]


def grade_of_cost(cost: Callable[[Values], Number], inputs: Mapping[str, Sourced]) -> str:
    """Return the grade of what follows from inputs: of the least sure that moves it as much as `MATTERS`; of all where none moves it.

    An input without a range that is not exact is moved by `PROBED` either way.
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
"""Factor by which an estimate or a guess that states no range is moved to see whether it matters [1]."""


def central(inputs: Mapping[str, Sourced]) -> dict[str, float]:
    """Return the inputs' central values."""
    return {name: item.value for name, item in inputs.items()}


def draws(inputs: Mapping[str, Sourced], count: int = SAMPLES, seed: int = SEED) -> dict[str, Number]:
    """Return draws of each input that has a range, and the value of each that has none.

    The median is the central value; a half of a log-normal on each side puts one draw of twenty beyond each bound. What would
    leave the physical domain of an input stands at its end.
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
    """Return what each input's range does to a cost, the widest first."""
    at = central(inputs)
    out = [
        Swing(name=name, low=float(cost({**at, name: item.low})), high=float(cost({**at, name: item.high})))
        for name, item in inputs.items()
        if item.low is not None and item.high is not None
    ]
    return sorted(out, key=lambda swing: -swing.width)
