"""Runs to which serving's constants are fitted, and a key by which their predictions are remembered over fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache

from roofplan.evidence.fits.fitting import NOT_FOR_FITTING, Excluded
from roofplan.evidence.inference import InferenceCase, clean_cases
from roofplan.records.calibration import Fit


@lru_cache(maxsize=4)
def usable(excluded: Excluded, *, own_kernels: bool = False) -> tuple[InferenceCase, ...]:
    """Return the published runs that may be fitted on: those of described engines, without software that another stands in for.

    With `own_kernels` also those of such software that has kernels, and thus constants, of its own.
    """
    gone = NOT_FOR_FITTING | excluded
    allowed = (one for one in clean_cases() if gone.isdisjoint(one.origin.names))
    return tuple(one for one in allowed if not one.engine.stands_for or (own_kernels and one.engine.own_kernels))


class At:
    """A run and the constants that it is predicted with, equal to another where the run and all its rates are the same.

    Fits that leave out one publisher after another find most rates unchanged: what follows from them is remembered by this.

    Parameters
    ----------
    queues : whether what follows depends on the front end too, as first tokens of clients do.
    """

    __slots__ = ("_key", "case", "fit")

    def __init__(self, case: InferenceCase, fit: Fit, *, queues: bool = False) -> None:
        self.case, self.fit = case, fit
        self._key = (id(case), _numbers_in(case.rates(fit), SOURCES if queues else SOURCES | FRONT))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, At) and self._key == other._key


REMEMBERED = 32768
"""Runs with their rates whose figures are remembered: those of all rows in two rounds, and of more publishers [1]."""


def _numbers_in(rates: object, aside: frozenset[str]) -> object:
    """Return the numbers of rates, those of some fields aside."""
    if isinstance(rates, Mapping):
        return tuple(rates.items())
    if not is_dataclass(rates):
        return rates
    return tuple(_numbers_in(getattr(rates, one.name), aside) for one in fields(rates) if one.name not in aside)


SOURCES = frozenset({"machine", "engine", "sources", "rests_on", "fallbacks", "fit"})
"""Fields of rates that are no numbers."""

FRONT = frozenset({"front", "delay"})
"""Fields of rates on which only waiting requests depend."""
