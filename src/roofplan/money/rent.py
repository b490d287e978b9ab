"""Dated rents of a device, kept apart by kind."""

from __future__ import annotations

from dataclasses import dataclass

from roofplan import catalogue
from roofplan.records.prices import Price

RENTS = ("rent-on-demand", "rent-contract", "spot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A quote of a rent.

    Parameters
    ----------
    price : the rent of a device [USD/h].
    """

    price: Price


def quotes(device: str, provider: str = "") -> list[Quote]:
    """Return the rents of a device, kind by kind, newest first."""
    known = [p for p in catalogue.prices(device) if p.kind in RENTS and p.unit == "USD/h"]
    if provider:
        known = [p for p in known if provider.lower() in p.provider.lower()]
    ordered = sorted(known, key=lambda p: (p.newest_possible, p.value), reverse=True)
    return [Quote(price=p) for kind in RENTS for p in ordered if p.kind == kind]
