"""What a machine of one's own costs per hour: purchase, interest, electricity, hosting, and what is absent."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any

from roofplan import catalogue, units
from roofplan.catalogue.machines import LARGEST_BOX
from roofplan.economics.chip import price_of
from roofplan.economics.prices import KINDS, RECENT_DAYS, STALE_DAYS, HourlyCost, age_days, given_price, quotation
from roofplan.errors import InputError, UnitError, UnknownName, nearest
from roofplan.laws import cost
from roofplan.records.hardware import OWN, Machine
from roofplan.records.prices import Price
from roofplan.serve import wall_power
from roofplan.source import Sourced
from roofplan.terms import Term, total
from roofplan.units import HOUR, JOULE_PER_KWH, YEAR

YEARS = 3.0
"""Years of use where nobody says, as the articles and most accounts take [1]."""

MOST_YEARS = 20.0
"""Years beyond which no machine of the trade was used [1]."""

BUSY = 1.0
"""Share of the time at load at which power is counted where nobody says: a machine that is bought is meant to work [1]."""


SERVERS = "the servers around the cards"
"""What is absent where only the cards' price is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On which terms a machine is owned; None where a default of the catalogue holds, or where nothing is known.

    Parameters
    ----------
    card, server, networking : prices of one device, of a host without devices, and of network cards and switches in all [USD].
    years : of use [1].
    interest : per year [1].
    residual : share of the purchase that a sale at the end brings back [1].
    power : at the wall [W].
    electricity : price of energy [USD/J].
    pue : the site's power over the machine's [1].
    hosting, staff : in all [USD/h].
    place : whose electricity, an ISO code.
    """

    card: float | None = None
    server: float | None = None
    networking: float | None = None
    years: float = YEARS
    interest: float = 0.0
    residual: float = 0.0
    power: float | None = None
    electricity: float | None = None
    pue: float | None = None
    hosting: float | None = None
    staff: float | None = None
    place: str = "WOR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Something that is bought.

    Parameters
    ----------
    price : of one [USD].
    date : of the price, empty where the user gave it.
    """

    name: str
    count: float
    price: float
    source: str
    date: str = ""

    @property
    def value(self) -> float:
        """Price of all [USD]."""
        return self.count * self.price

    @property
    def stale(self) -> bool:
        """Whether the price is older than a year."""
        return bool(self.date) and age_days(self.date) > STALE_DAYS


@dataclass(slots=True, kw_only=True)
class Owned:
    """A machine of one's own.

    Parameters
    ----------
    term : USD per hour in parts.
    absent : what is not counted, for nothing is known of it.
    """

    machine: Machine
    terms: Terms
    items: list[Item]
    term: Term
    absent: list[str]
    assumed: list[str] = field(default_factory=list)

    @property
    def purchase(self) -> float:
        """What is bought [USD]."""
        return sum(item.value for item in self.items)

    @property
    def hourly(self) -> float:
        """Cost per hour, busy or idle [USD/h]."""
        return float(self.term.value)

    @property
    def oldest(self) -> str:
        """Date of the oldest price in it, empty where the user gave them all."""
        return min((item.date for item in self.items if item.date), default="")

    def cost(self) -> HourlyCost:
        """Return it as an hourly price of each device."""
        each = self.hourly / self.machine.count
        quote = Price(
            device=self.machine.device.id,
            kind="own",
            value=each,
            unit="USD/h",
            date=self.oldest or self.assumed_date,
            source="; ".join(dict.fromkeys(item.source for item in self.items)),
            note=self.said,
        )
        return HourlyCost(per_device=each, count=self.machine.count, price=quote)

    @property
    def bare(self) -> bool:
        """Whether only the cards are priced, so that it looks cheaper than it is."""
        return any(SERVERS in name for name in self.absent) and self.machine.device.status != OWN

    @property
    def said(self) -> str:
        """Return on which terms it is owned, and what is not counted."""
        t = self.terms
        rate = f"{t.interest:.0%} interest" if t.interest else "no interest"
        return f"{t.years:g} years, {rate}; {', '.join(self.assumed)}; not counted: {', '.join(self.absent)}"

    @property
    def assumed_date(self) -> str:
        """Date of the catalogue, for prices that the user gave."""
        return catalogue.version()


def own(machine: Machine, terms: Terms | None = None) -> Owned | None:
    """Return what owning a machine costs, None where no price of its devices is known."""
    terms = terms or Terms()
    items, absent = _items(machine, terms)
    if not items:
        return None
    bought = sum(item.value for item in items)
    assumed: list[str] = []
    parts = [_depreciation(bought, terms, tuple(dict.fromkeys(item.source for item in items)))]
    parts += _electricity(machine, terms, absent, assumed)
    for name, value in (("hosting", terms.hosting), ("staff", terms.staff)):
        if value is None:
            absent.append(name)
        else:
            parts.append(Term(name, value, "USD/h", law="given", text="{} USD/h", numbers=(value,), sources=("given",)))
    absent.append("spares")
    return Owned(
        machine=machine,
        terms=terms,
        items=items,
        term=total("own", parts, "USD/h"),
        absent=absent,
        assumed=assumed,
    )


def _items(machine: Machine, terms: Terms) -> tuple[list[Item], list[str]]:
    """Return what is bought, and what is not known of it: complete servers where one is priced, else devices and hosts."""
    given = terms.card is not None or terms.server is not None
    boxes = [
        s
        for s in catalogue.servers_of(machine.device.id)
        if "price" in s.quantities and not s.provider and s.count >= machine.per_host
    ]
    # a rack is not sold by the device
    boxes = [s for s in boxes if s.count <= LARGEST_BOX or s.count == machine.per_host]
    named = [s for s in boxes if machine.text.split(":")[0].lower() in {s.id, *s.aliases}]
    newest = sorted(boxes, key=lambda s: s.quantities["price"].seen, reverse=True)
    boxes = named or sorted(newest, key=lambda s: s.count)
    absent: list[str] = []
    items: list[Item] = []
    if boxes and not given:
        whole = boxes[0]
        price = whole.quantities["price"]
        share = machine.per_host / whole.count
        words = whole.id if share == 1.0 else f"{machine.per_host}/{whole.count} of {whole.id}"
        items.append(
            Item(name=words, count=machine.hosts * share, price=price.value, source=price.source, date=price.seen)
        )
    else:
        quote = price_of(machine.device, "bought")
        if terms.card is not None:
            items.append(Item(name=machine.device.id, count=machine.count, price=terms.card, source="given"))
        elif quote is not None:
            items.append(
                Item(
                    name=machine.device.id,
                    count=machine.count,
                    price=quote.value,
                    source=quote.source,
                    date=quote.date,
                )
            )
        else:
            return [], []
        if terms.server is not None:
            items.append(Item(name="servers", count=machine.hosts, price=terms.server, source="given"))
        else:
            absent.append(f"{SERVERS} (--server)")
    if terms.networking is not None:
        items.append(Item(name="network", count=1, price=terms.networking, source="given"))
    elif machine.hosts > 1:
        absent.append("the network (--networking)")
    return items, absent


def _depreciation(bought: float, terms: Terms, sources: tuple[str, ...]) -> Term:
    """Return what the purchase costs per hour."""
    sold = bought * terms.residual
    if terms.interest > 0.0:
        value = float(cost.annuity(bought, sold, terms.interest, terms.years)) / (YEAR / HOUR)
        text = "annuity of {} USD over {} years at {} interest, {} USD sold at the end, / 8,760 h"
        numbers: tuple[Any, ...] = (bought, terms.years, terms.interest, sold)
        law = "cost.annuity"
    else:
        value = float(cost.straight_line(bought - sold, terms.years * YEAR)) * HOUR
        text, numbers, law = (
            "({} - {}) USD / ({} x 8,760 h), straight line",
            (bought, sold, terms.years),
            "cost.straight_line",
        )
    return Term("depreciation", value, "USD/h", law=law, text=text, numbers=numbers, sources=sources)


def _electricity(machine: Machine, terms: Terms, absent: list[str], assumed: list[str]) -> list[Term]:
    """Return what the machine's energy costs per hour, nothing where its power or the price is not known."""
    sources: list[str] = []
    if terms.power is not None:
        watts, cited = terms.power, "given"
    else:
        power = wall_power(machine, BUSY)
        if power is None:
            absent.append("electricity (--power)")
            return []
        watts, cited = float(power.value), power.parts[0].sources[0]
        if machine.box is None:
            absent.append("the hosts' own power (--power)")
        assumed.append(f"power {units.show(watts, 'W')} at load")
    sources.append(cited)
    tariff = terms.electricity
    if tariff is None:
        found = electricity(terms.place)
        tariff = found.value
        assumed.append(f"electricity {found.text} ({found.seen})")
        sources.append(found.source)
    pue = terms.pue
    if pue is None:
        site = site_overhead()
        pue = site.value
        assumed.append(f"PUE {pue:g} ({site.source}, {site.seen})")
        sources.append(site.source)
    value = float(cost.energy_rate(watts, tariff, pue)) * HOUR
    numbers = ((watts, "W"), tariff * JOULE_PER_KWH, pue)
    return [
        Term(
            "electricity",
            value,
            "USD/h",
            law="cost.energy_rate",
            text="{} x {} USD/kWh x PUE {}",
            numbers=numbers,
            sources=tuple(sources),
        )
    ]


WORLD = "WOR"
"""Place whose price stands for countries of which none is known in USD."""


@cache
def electricity(place: str) -> Sourced:
    """Return the newest price of energy for businesses in a place, in USD [USD/J].

    Raises
    ------
    UnknownName : a place without one, with those that have.
    """
    known = [
        entry
        for entry in catalogue.place_table("electricity")
        if entry["unit"] == "USD/kWh" and entry["place"] != "assumption"
    ]
    names = sorted({entry["place"] for entry in known})
    here = [entry for entry in known if entry["place"].lower() == place.lower()]
    if not here and catalogue.carbon(place) is not None:
        here = [entry for entry in known if entry["place"] == WORLD]
    if not here:
        near = nearest(place, names)
        raise UnknownName(
            f"--place: no price of electricity in USD for {place!r}; known: {', '.join(names)}; or give --electricity 0.1USD/kWh",
            code="unknown_place",
            argument="--place",
            value=place,
            nearest=near,
        )
    business = [entry for entry in here if entry.get("sector") in {"business", "industrial", "commercial"}] or here
    entry = max(business, key=lambda one: str(one["date"]))
    value = float(entry["value"]) / JOULE_PER_KWH
    return Sourced(
        value=value,
        unit="USD/J",
        text=f"{entry['value']} USD/kWh of {entry['place']}",
        source=str(entry["source"]),
        seen=str(entry["date"]),
        kind=entry["kind"],
    )


@cache
def site_overhead() -> Sourced:
    """Return the newest average power usage effectiveness of data centres [1]."""
    known = [entry for entry in catalogue.place_table("pue") if entry["place"] == "WOR"]
    entry = max(known, key=lambda one: str(one["date"]))
    value = float(entry["value"])
    return Sourced(
        value=value, unit="1", text=f"{value}", source=str(entry["source"]), seen=str(entry["date"]), kind=entry["kind"]
    )


def hourly(machine: Machine, price: str) -> HourlyCost | None:
    """Return the cost of a machine under ``rent``, ``contract``, ``spot``, ``own``, or a given ``2.50USD/h`` per device."""
    if price == "own":
        owned = own(machine)
        # cards without the servers around them would look cheaper than they are; a device of the user's own is priced as he says
        return None if owned is None or owned.bare else owned.cost()

    if price in KINDS:
        found = quotation(machine, price)
        return None if found is None else HourlyCost(per_device=found.value, count=machine.count, price=found)
    try:
        value = units.parse(price, "USD/h", "--price")
    except UnitError as error:
        raise UnitError(
            f"--price: {price!r} is neither rent, contract, spot, own nor a price per device such as 2.50USD/h",
            argument="--price",
            value=price,
        ) from error
    return HourlyCost(per_device=value, count=machine.count, price=given_price(machine, value, "--price"))


def rents(machine: Machine) -> tuple[float, float, str, int] | None:
    """Return least and most rent on demand of a device in the newest half year, its newest date and the quotations' number, None without any [USD/h]."""
    known = [p for p in catalogue.prices(machine.device.id) if p.kind == KINDS["rent"] and p.unit == "USD/h"]
    if not known:
        return None
    first = max(p.middle for p in known) - timedelta(days=RECENT_DAYS)
    near = [p for p in known if p.middle >= first]
    values = [p.value for p in near]
    return min(values), max(values), max(p.date for p in near), len(near)


def per_petaflop_hour(owned: Owned) -> dict[str, float]:
    """Return the cost of a PFLOP/s for an hour at the dense peak, by number format [USD/h]."""
    device = owned.machine.device
    return {
        name: owned.hourly / (rate.value * owned.machine.count / 1e15)
        for name, rate in device.peak.items()
        if name in {"bf16", "fp8", "fp4"}
    }


def checked(terms: Terms) -> Terms:
    """Return the terms, or refuse those that make no sense.

    Raises
    ------
    InputError : with the flag at fault.
    """
    for name, value in (("--residual", terms.residual), ("--interest", terms.interest)):
        if not 0.0 <= value < 1.0:
            raise InputError(f"{name}: {value:.0%} is not a share from 0 to below 100%", argument=name, value=value)
    if terms.years > MOST_YEARS:
        raise InputError(
            f"--years: {terms.years:g} are more than the {MOST_YEARS:g} that a machine is planned for",
            argument="--years",
            value=terms.years,
        )
    if terms.pue is not None and terms.pue < 1.0:
        raise InputError(f"--pue: {terms.pue:g} is less than 1", argument="--pue", value=terms.pue)
    return terms
