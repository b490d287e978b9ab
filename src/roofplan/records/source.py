"""Where a number comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GRADES = ("measured", "calibrated", "borrowed", "guessed")
"""How sure a figure is: measured on this machine; calibrated on this chip and software; borrowed from a near relative; guessed."""

Kind = Literal["datasheet", "measured", "derived", "estimate", "guess", "quote", "documented", "fitted", "given"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One published document, table, file or fit.

    Parameters
    ----------
    key : short name that catalogue entries cite.
    title : what a reader would search for.
    url : where it was read, if it has an address.
    date : ISO date of the document or of the reading.
    guess : whether it is no document, but somebody's guess.
    """

    key: str
    title: str
    url: str | None = None
    date: str | None = None
    guess: bool = False

    @property
    def citation(self) -> str:
        """What answers cite it by."""
        return self.key


def document(key: str) -> Source:
    """Return a document by what cites it: its key in the register, where its title and address stand, or the title itself."""
    return Source(key=key, title=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sourced:
    """A number with its origin.

    Parameters
    ----------
    value : in the SI unit `unit`.
    text : the number and unit as the source prints them.
    source : key of a `Source`.
    seen : ISO date.
    kind : how it was obtained.
    low, high : bounds that hold nine values of ten, where they are stated; in the unit of `value`.
    least, most : what it can physically not go below or above, such as 1 for a yield; no draw leaves them.
    grade : how sure it is where its kind does not say, such as that of a prediction or of an old quotation.
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
        """What answers cite it by."""
        return Source(key=self.source, title=self.source, guess=self.kind == "guess")
