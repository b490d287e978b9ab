"""Sources of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GRADES = ("measured", "calibrated", "borrowed", "guessed")
"""Grades of certainty: measured on this machine; calibrated for this chip and software; borrowed from a near relative; guessed."""

Kind = Literal["datasheet", "measured", "derived", "estimate", "guess", "quote", "documented", "fitted", "given"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A published document, table, file or fit.

    Parameters
    ----------
    key : short name that catalogue entries cite.
    title : title to search for.
    url : address where it was read, if it has one.
    date : ISO date of the document or of the reading.
    guess : whether it is a guess instead of a document.
    """

    key: str
    title: str
    url: str | None = None
    date: str | None = None
    guess: bool = False

    @property
    def citation(self) -> str:
        """Text that answers cite it by."""
        return self.key


def document(key: str) -> Source:
    """Return a document by the text that cites it.

    Parameters
    ----------
    key : key in the register, which holds its title and address, or the title itself.

    Returns
    -------
    The document, with the key as its title.
    """
    return Source(key=key, title=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sourced:
    """A number with its source.

    Parameters
    ----------
    value : the number, in the SI unit `unit`.
    text : the number and unit as the source prints them.
    source : key of a `Source`.
    seen : ISO date on which the source was read.
    kind : how the number was obtained.
    low, high : bounds of nine in ten values, where they are stated, in the unit of `value`.
    least, most : physical limits, such as 1 for a yield, to which draws are clipped.
    grade : grade where `kind` does not imply it, as for a prediction or an old quote.
    """

    value: float
    unit: str
    text: str
    source: str
    seen: str
    kind: Kind
    low: float | None = None
    high: float | None = None
    least: float | None = None
    most: float | None = None
    grade: str = ""

    @property
    def cited(self) -> Source:
        """The source as answers cite it."""
        return Source(key=self.source, title=self.source, guess=self.kind == "guess")


def stated(value: float, unit: str) -> Sourced:
    """Return a number that the user states, without a range.

    Parameters
    ----------
    value : the number, in `unit`.
    unit : its SI unit.

    Returns
    -------
    The number.
    """
    return Sourced(value=value, unit=unit, text=f"{value:g} {unit}", source="given", seen="", kind="given")
