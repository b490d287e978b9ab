"""Owning a machine compared with renting it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from roofplan import catalogue
from roofplan.laws import cost
from roofplan.money.machine import Owned, hourly
from roofplan.money.prices import (
    KINDS,
    RECENT_DAYS,
)
from roofplan.records.hardware import Machine
from roofplan.records.prices import Price
from roofplan.records.units import HOUR


def rents(machine: Machine) -> tuple[float, float, str, int] | None:
    """Return the lowest and highest on-demand rent of the newest half year, the newest date and the number of quotes, None without any [USD/h]."""
    given = machine.device.quantities.get("price")
    if given is not None:
        return given.value, given.value, catalogue.version(), 1
    known = [p for p in catalogue.prices(machine.device.id) if p.kind == KINDS["rent"] and p.unit == "USD/h"]
    if not known:
        return None
    first = max(p.middle for p in known) - timedelta(days=RECENT_DAYS)
    near = [p for p in known if p.middle >= first]
    values = [p.value for p in near]
    return min(values), max(values), max(p.date for p in near), len(near)


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """Owning compared with renting the same machine.

    Parameters
    ----------
    low, high : lowest and highest on-demand rent of a device in the newest half year [USD/h], of `quotations` quotes, the newest of `date`.
    rent : rent of a device that owning is compared with [USD/h], None where no quote holds for this size.
    use : share of the hours above which owning is cheaper, above 1 where it never is [1].
    payback : time for the machine to earn its price at that rent in continuous use, None where owning is dearer or not fully priced [s].
    """

    low: float
    high: float
    quotations: int
    date: str
    rent: Price | None
    use: float | None
    payback: float | None


def against(owned: Owned) -> Against | None:
    """Return owning compared with renting.

    Parameters
    ----------
    owned : the owned machine.

    Returns
    -------
    The comparison, None where no on-demand rent of the device is known.
    """
    known = rents(owned.machine)
    if known is None:
        return None
    low, high, date, count = known
    quote = hourly(owned.machine, "rent", owned.fit)
    use = payback = None
    if quote is not None and not owned.bare:
        use = float(cost.break_even_use(owned.hourly, quote.total))
        if use < 1.0:
            running = owned.hourly - next(float(p.value) for p in owned.term.parts if p.name == "depreciation")
            payback = float(cost.payback_time(owned.purchase, quote.total / HOUR, running / HOUR))
    return Against(
        low=low,
        high=high,
        quotations=count,
        date=date,
        rent=None if quote is None else quote.price,
        use=use,
        payback=payback,
    )
