"""Process nodes, dies and chips."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from roofplan.records.source import Sourced


@dataclass(frozen=True, slots=True, kw_only=True)
class WaferPrice:
    """One price quote of a processed wafer.

    Parameters
    ----------
    value : price of a 300 mm wafer [USD].
    date : ISO date, as exact as the source.
    """

    value: float
    date: str
    kind: str
    source: str
    note: str = ""


LEAST_RANGE = 1.15
"""Least uncertainty of a wafer price, as a factor either way: price series of several customers differ by as much [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A process node and its variants.

    Parameters
    ----------
    year : year of its first products.
    processes : names of its variants on data sheets.
    wafers : dated quotes, oldest first.
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
        """Median and bounds of the quoted wafer prices, without claims under review [USD]."""
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
    area : area of one die [m2].
    count : dies of this kind on a package [1].
    units : equal units on a die; `sold`, those enabled on the sold part; None where not known, so that only perfect dies count [1].
    stacked : whether it lies on another die and takes no area of the package.
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
        """Units that may be defective on a sold part [1]."""
        return (self.units or 0) - (self.sold or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """A packaged part, as its bill of materials needs it.

    Parameters
    ----------
    memory : generation, such as ``HBM3``.
    capacity : capacity of the memory on the part, which may exceed what is sold [B].
    stacks : memory stacks on the package [1].
    interposer : whether dies and memory stacks share an interposer; else memory lies around the package.
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
