"""Cost of energy: a machine's power at load, the price of electricity, and the overhead of the site."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from roofplan import catalogue
from roofplan.errors import UnknownName, nearest
from roofplan.money.uncertainty import Z90
from roofplan.records import units
from roofplan.records.calibration import Fit
from roofplan.records.hardware import Machine
from roofplan.records.source import Sourced
from roofplan.records.units import JOULE_PER_KWH
from roofplan.timing.power import wall_power

BUSY = 1.0
"""Default share of the time at load for which power is counted: machines are bought to be used [1]."""


def load_power(machine: Machine, fit: Fit) -> Sourced | None:
    """Return the power of a machine at load, None where it is not known [W].

    Its range is the spread of measured cards, bounded by the machine's power limit.
    """
    found = wall_power(machine, BUSY, fit)
    if found is None:
        return None
    watts = float(found.value)
    fitted = fit.find("power", "ceiling", [machine.device.architecture, "any"])
    rated = machine.box.quantities["host_power"].value / machine.box.count if machine.box is not None else 0.0
    most = (machine.device.quantities["power"].value + rated) * machine.count
    return Sourced(
        value=watts,
        low=watts * math.exp(-Z90 * fitted.spread),
        high=max(watts, min(most, watts * math.exp(Z90 * fitted.spread))),
        most=most,
        unit="W",
        text=units.show(watts, "W"),
        source=found.parts[0].sources[0].citation,
        seen=fitted.fitted,
        kind="fitted",
    )


WORLD = "WOR"
"""Place whose price stands for countries without a known price in USD."""


@lru_cache(maxsize=1024)
def electricity(place: str) -> Sourced:
    """Return the newest price of electricity in a place, for businesses where such a price is known [USD/J].

    Prices in other currencies are converted at their dated rate. Bounds are those of all known prices of the place, or
    of all places for the world and for places without a known price.

    Parameters
    ----------
    place : code or name of the place.

    Returns
    -------
    The price.

    Raises
    ------
    UnknownName : an unknown place; carries the nearest ones.
    """
    known = [(entry, rate) for entry in catalogue.place_table("electricity") if (rate := _dollars(entry)) is not None]
    here = [(entry, rate) for entry, rate in known if place.lower() in {entry["place"].lower(), entry["name"].lower()}]
    elsewhere = not here and catalogue.carbon(place) is not None
    if elsewhere:
        here = [(entry, rate) for entry, rate in known if entry["place"] == WORLD]
    if not here:
        names = {str(one["name"]): f"{one['place']} ({one['name']})" for one, _ in known}
        near = [names[name] for name in nearest(place, names)]
        known_here = ", ".join(sorted({str(one["place"]) for one, _ in known}))
        raise UnknownName(
            f"--place: no price of electricity for {place!r}."
            + (f" Nearest: {', '.join(near)}." if near else "")
            + f" Known: {known_here}; or give --electricity 0.1USD/kWh",
            code="unknown_place",
            argument="--place",
            value=place,
            nearest=near,
        )
    business = [pair for pair in here if pair[0].get("sector") in {"business", "industrial", "commercial"}] or here
    entry, rate = max(business, key=lambda pair: str(pair[0]["date"]))
    everywhere = entry["place"] == WORLD
    alike = [float(one["value"]) * worth / JOULE_PER_KWH for one, worth in (known if everywhere else business)]
    words = f"{entry['value']} {entry['unit']} of {entry['place']}"
    if rate != 1.0:
        words += f" = {float(entry['value']) * rate:.3g} USD/kWh"
    return Sourced(
        value=float(entry["value"]) * rate / JOULE_PER_KWH,
        low=min(alike) if len(alike) > 1 else None,
        high=max(alike) if len(alike) > 1 else None,
        unit="USD/J",
        text=words + (f", for none is known of {place}" if elsewhere else ""),
        source=str(entry["source"]),
        seen=str(entry["date"]),
        kind=entry["kind"],
    )


def _dollars(entry: Mapping[str, Any]) -> float | None:
    """Return one unit of the currency of an energy price, None where no rate is known or the entry is no such price [USD]."""
    currency, _, per = str(entry["unit"]).partition("/")
    if per != "kWh" or entry["place"] == "assumption":
        return None
    known = catalogue.worth(currency)
    return 1.0 if currency == "USD" else None if known is None else float(known["value"])


@lru_cache(maxsize=1)
def site_overhead() -> Sourced:
    """Return the newest mean power usage effectiveness of data centres, bounded by the values that the catalogue holds [1]."""
    table = catalogue.place_table("pue")
    entry = max((one for one in table if one["place"] == WORLD), key=lambda one: str(one["date"]))
    value = float(entry["value"])
    stated = [float(one["value"]) for one in table]
    return Sourced(
        value=value,
        low=min(stated),
        high=max(stated),
        unit="1",
        text=f"{value}",
        source=str(entry["source"]),
        seen=str(entry["date"]),
        kind=entry["kind"],
        least=1.0,
    )
