"""How many configurations a search went through."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Counts:
    """Configurations of a search.

    Parameters
    ----------
    enumerated, legal, fits, predicted : how many there were, obey the rules, fit the memory, and were timed [1].
    seconds : CPU time from the first to the last [s].
    """

    enumerated: int = 0
    legal: int = 0
    fits: int = 0
    predicted: int = 0
    seconds: float = 0.0
