"""Dated prices; append-only, never mixed across kinds."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal

PriceKind = Literal["list", "street", "rent-on-demand", "rent-contract", "spot", "estimate", "given", "own"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One quotation.

    Parameters
    ----------
    device : id of the accelerator.
    value : USD per device, or USD per device-hour for rents.
    unit : ``USD`` or ``USD/h``.
    count : devices of the instance that it was quoted for, None where not known [1].
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
        """Middle of what the date can mean: a day, the middle of a month, the middle of a year."""
        return dt.date.fromisoformat(self.date + {4: "-07-01", 7: "-15", 10: ""}[len(self.date)])

    @property
    def newest_possible(self) -> str:
        """Latest day that the date can mean, for sorting: ``2026`` may be as late as ``2026-12-31``."""
        return self.date + "-12-31"[len(self.date) - 4 :] if len(self.date) in {4, 7} else self.date
