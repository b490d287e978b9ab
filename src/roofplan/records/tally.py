"""Counts of the configurations in a search."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Counts:
    """Counts of the configurations in a search.

    Parameters
    ----------
    enumerated, legal, fits, predicted : configurations in all, those within the rules, those that fit in memory, and those timed [1].
    seconds : CPU time of the search [s].
    """

    enumerated: int = 0
    legal: int = 0
    fits: int = 0
    predicted: int = 0
    seconds: float = 0.0

    def add(self, more: Counts) -> None:
        """Count the configurations of another search too; its seconds are part of the whole's."""
        self.enumerated += more.enumerated
        self.legal += more.legal
        self.fits += more.fits
        self.predicted += more.predicted
