"""Process nodes, dies, and what joins them into a part."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from roofplan.records.source import Sourced


@dataclass(frozen=True, slots=True, kw_only=True)
class WaferPrice:
    """One quotation of a processed wafer.

    Parameters
    ----------
    value : of a wafer of 300 mm [USD].
    date : ISO date, as exact as the source.
    """

    value: float
    date: str
    kind: str
    source: str
    note: str = ""


LEAST_RANGE = 1.15
"""Factor either way within which a wafer's price is never taken to be known better: series of several customers differ by as much [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A process and its relatives.

    Parameters
    ----------
    year : of its first products.
    processes : what data sheets call them.
    wafers : dated quotations, oldest first.
    quantities : ``defect_density`` [1/m2], ``density`` of transistors [1/m2], ``mask_set`` and ``design`` [USD].
    """

    id: str
    name: str
    year: int
    processes: tuple[str, ...]
    wafers: tuple[WaferPrice, ...]
    quantities: Mapping[str, Sourced]
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def wafer(self) -> Sourced:
        """Median of the quotations, and their bounds; claims that are to be checked do not count [USD]."""
        counted = [quote for quote in self.wafers if quote.kind != "claim"]
        values = [quote.value for quote in counted]
        middle = statistics.median(values)
        cited = "; ".join(dict.fromkeys(f"{quote.source} ({quote.date})" for quote in counted))
        return Sourced(
            value=middle,
            low=min(*values, middle / LEAST_RANGE),
            high=max(*values, middle * LEAST_RANGE),
            unit="USD",
            text=f"{middle:,.0f} USD, median of {len(values)}",
            source=cited,
            seen=max(quote.date for quote in counted),
            kind="estimate",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Die:
    """A kind of die on a package.

    Parameters
    ----------
    node : id of its process.
    area : of one [m2].
    count : of them on a package [1].
    units : equal units on one, and `sold`, those that the part works with; None where not known, so that only perfect dies count [1].
    stacked : whether it stands on another die and takes no room of its own on the package.
    """

    name: str
    node: str
    area: float
    count: int = 1
    units: int | None = None
    sold: int | None = None
    stacked: bool = False
    source: str = ""

    @property
    def spare(self) -> int:
        """Units that a sold part may lack [1]."""
        return (self.units or 0) - (self.sold or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """A part as its bill of materials sees it.

    Parameters
    ----------
    memory : generation, such as ``HBM3``.
    capacity : of the memory that is soldered or stacked, which may be more than is sold [B].
    stacks : of memory on the package [1].
    interposer : whether dies and stacks share one; else a card with memory around it.
    """

    id: str
    name: str
    dies: tuple[Die, ...]
    memory: str
    capacity: float
    interposer: bool
    stacks: int = 0
    source: str = ""
    notes: tuple[str, ...] = field(default=())
