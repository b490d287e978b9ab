"""Dated price quotes; append-only, never mixed across kinds."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal

PriceKind = Literal["list", "street", "rent-on-demand", "rent-contract", "spot", "estimate", "given", "own"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One price quote.

    Parameters
    ----------
    device : id of the accelerator.
    value : price per device [USD], or per device-hour for rents [USD/h].
    unit : ``USD`` or ``USD/h``.
    count : devices of the quoted instance, None where not known [1].
    date : ISO date, as exact as the source.
    low, high : bounds where a range was quoted.
    scope : what was sold: the ``card`` alone, its ``share`` of a board or server, the ``superchip`` around it, a whole ``machine``, or an ``other card``.
    """

    device: str
    kind: PriceKind
    value: float
    unit: str
    date: str
    source: str
    provider: str = ""
    count: int | None = None
    term: str = ""
    low: float | None = None
    high: float | None = None
    note: str = ""
    scope: str = "card"

    @property
    def middle(self) -> dt.date:
        """Middle of the period that the date means: the day itself, or the middle of the month or year."""
        return dt.date.fromisoformat(self.date + {4: "-07-01", 7: "-15", 10: ""}[len(self.date)])

    @property
    def newest_possible(self) -> str:
        """Latest day that the date can mean, for sorting: ``2026`` may be as late as ``2026-12-31``."""
        return self.date + "-12-31"[len(self.date) - 4 :] if len(self.date) in {4, 7} else self.date
