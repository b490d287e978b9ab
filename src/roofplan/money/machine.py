"""Hourly cost of an owned machine: purchase, interest, electricity and hosting, and what is not counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from roofplan import catalogue
from roofplan.catalogue.machines import LARGEST_BOX
from roofplan.errors import InputError, UnitError
from roofplan.laws import cost
from roofplan.money.chip import price_of
from roofplan.money.energy import electricity, load_power, site_overhead
from roofplan.money.prices import (
    KINDS,
    PURCHASE,
    RECENT_DAYS,
    STALE_DAYS,
    HourlyCost,
    age_days,
    bounded,
    bounds,
    given_price,
    quotation,
    stale_warning,
)
from roofplan.money.uncertainty import Interval, Swing, Values, central, interval, tornado
from roofplan.records import units
from roofplan.records.calibration import Fit
from roofplan.records.hardware import OWN, Machine, Server
from roofplan.records.prices import Price
from roofplan.records.source import Kind, Source, Sourced, document, stated
from roofplan.records.terms import Term, total
from roofplan.records.units import HOUR, JOULE_PER_KWH, YEAR

YEARS = 3.0
"""Default years of use, as in the articles and most published accounts [1]."""

LEAST_YEARS, MOST_YEARS = 0.01, 20.0
"""Shortest and longest use that is planned: some days, and longer than machines are used in practice [1]."""


SERVERS = "the servers around the cards"
"""Name of what is not counted where only the price of the cards is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipTerms:
    """Terms of owning a machine; None means the catalogue's default, or not counted where there is none.

    Parameters
    ----------
    card, server, networking : prices of one device, of a host without devices, and of all network cards and switches [USD].
    years : years of use [1].
    interest : interest rate per year [1].
    residual : resale value as a share of the purchase [1].
    power : power at the wall [W].
    electricity : price of energy [USD/J].
    pue : the site's power over the machine's [1].
    hosting, staff : hourly costs of the whole machine [USD/h].
    rack : power that a rack supplies and cools [W].
    place : place whose electricity price holds, an ISO code.
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
    rack: float | None = None
    place: str = "WOR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Something that is bought.

    Parameters
    ----------
    price : price of one [USD].
    date : date of the price.
    kind : ``quote`` for a price of the catalogue, ``given`` for one of the user.
    """

    name: str
    count: float
    price: float
    source: str
    date: str = ""
    kind: Kind = "quote"

    def ranged(self, fit: Fit) -> Sourced:
        """Return the unit price with the range of comparable quotes, without a range where the user gave it [USD]."""
        low, high = bounds(self.price, PURCHASE, fit) if self.kind == "quote" else (None, None)
        return Sourced(
            value=self.price,
            low=low,
            high=high,
            unit="USD",
            text=f"{self.price:,.0f} USD",
            source=self.source,
            seen=self.date,
            kind=self.kind,
            grade="borrowed" if self.stale else "",
        )

    @property
    def value(self) -> float:
        """Price of all items [USD]."""
        return self.count * self.price

    @property
    def stale(self) -> bool:
        """Whether the price is older than a year."""
        return self.kind == "quote" and age_days(self.date) > STALE_DAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """An owned machine and its cost.

    Parameters
    ----------
    inputs : inputs of the cost by name, each with its range.
    term : hourly cost in parts, at the central values of the inputs [USD/h].
    absent : what is not counted, because nothing is known of it.
    unpriced : whether that includes something that must be bought.
    fit : fitted constants behind its power and the ranges of its prices.
    """

    machine: Machine
    terms: OwnershipTerms
    fit: Fit
    items: list[Item]
    inputs: dict[str, Sourced]
    term: Term
    absent: list[str]
    unpriced: bool
    assumed: list[str] = field(default_factory=list)

    def at(self, values: Values) -> Term:
        """Return the hourly cost in parts at values of its inputs, which may be arrays of draws [USD/h]."""
        return hourly_term(self.items, self.terms, self.inputs, values)

    def interval(self) -> Interval:
        """Return the hourly cost with the bounds that hold nine of ten draws [USD/h]."""
        return interval(lambda values: self.at(values).value, self.inputs)

    def swings(self) -> list[Swing]:
        """Return the effect of each input's range on the hourly cost, the widest first [USD/h]."""
        return tornado(lambda values: self.at(values).value, self.inputs)

    @property
    def purchase(self) -> float:
        """Price of everything that is bought [USD]."""
        return sum(item.value for item in self.items)

    @property
    def hourly(self) -> float:
        """Hourly cost, busy or idle [USD/h]."""
        return float(self.term.value)

    @property
    def oldest(self) -> str:
        """Date of the oldest quoted price, empty where the user gave all prices."""
        return min((item.date for item in self.items if item.kind == "quote"), default="")

    @property
    def warnings(self) -> list[tuple[str, str]]:
        """Warnings about old prices, each with a code."""
        return [found for item in self.items if item.kind == "quote" for found in stale_warning(item.name, item.date)]

    def cost(self) -> HourlyCost:
        """Return the hourly cost in the form of a price per device."""
        edge, count = self.interval(), self.machine.count
        each = self.hourly / count
        quote = Price(
            device=self.machine.device.id,
            kind="own",
            value=each,
            unit="USD/h",
            date=self.oldest or self.assumed_date,
            source="; ".join(dict.fromkeys(item.source for item in self.items)),
            note=self.said,
            low=edge.low / count,
            high=edge.high / count,
        )
        return HourlyCost(per_device=each, count=self.machine.count, price=quote, sure=edge.grade)

    @property
    def bare(self) -> bool:
        """Whether the servers around the cards, or the network between them, have no price, so that the machine looks too cheap."""
        return self.unpriced and self.machine.device.status != OWN

    @property
    def said(self) -> str:
        """Return the terms of owning and what is not counted, as text."""
        t = self.terms
        rate = f"{t.interest:.0%} interest" if t.interest else "no interest"
        return f"{t.years:g} years, {rate}; {', '.join(self.assumed)}; not counted: {', '.join(self.absent)}"

    @property
    def assumed_date(self) -> str:
        """Date of the catalogue, used where the user gave all prices."""
        return catalogue.version()


def own(machine: Machine, fit: Fit, terms: OwnershipTerms | None = None) -> Owned | None:
    """Return what owning a machine costs, None where no price of its devices is known.

    Parameters
    ----------
    machine : the machine.
    fit : fitted constants, for power and the ranges of prices.
    terms : terms of owning, None for the defaults.

    Returns
    -------
    The owned machine with its hourly cost.

    Raises
    ------
    UnknownName : a place without a known price of electricity.
    """
    terms = terms or OwnershipTerms()
    items, absent = _items(machine, terms)
    if not items:
        return None
    unpriced = bool(absent)
    assumed: list[str] = []
    inputs = {price_name(item): item.ranged(fit) for item in items} | _energy(machine, terms, absent, assumed, fit)
    for name, value in (("hosting", terms.hosting), ("staff", terms.staff)):
        if value is None:
            absent.append(name)
        else:
            inputs[name] = stated(value, "USD/h")
    absent.append("spares")
    return Owned(
        machine=machine,
        terms=terms,
        fit=fit,
        items=items,
        inputs=inputs,
        term=hourly_term(items, terms, inputs, central(inputs)),
        absent=absent,
        unpriced=unpriced,
        assumed=assumed,
    )


def price_name(item: Item) -> str:
    """Return the name of an item's price among the inputs."""
    return f"price of {item.name}"


def hourly_term(items: list[Item], terms: OwnershipTerms, inputs: dict[str, Sourced], values: Values) -> Term:
    """Return the hourly cost of owning in parts; values may be arrays of draws [USD/h]."""
    bought: Any = sum(item.count * values[price_name(item)] for item in items)
    parts = [_depreciation(bought, terms, tuple(document(key) for key in dict.fromkeys(item.source for item in items)))]
    if "power" in values:
        watts, tariff, pue = (values[name] for name in ("power", "electricity", "PUE"))
        parts.append(
            Term(
                "electricity",
                cost.energy_rate(watts, tariff, pue) * HOUR,
                "USD/h",
                law="cost.energy_rate",
                text="{watts} x {tariff} USD/kWh x PUE {pue}",
                numbers={"watts": (watts, "W"), "tariff": tariff * JOULE_PER_KWH, "pue": pue},
                sources=tuple(inputs[name].cited for name in ("power", "electricity", "PUE")),
            )
        )
    for name in ("hosting", "staff"):
        if name in values:
            value = values[name]
            parts.append(
                Term(
                    name,
                    value,
                    "USD/h",
                    law="given",
                    text="{value} USD/h",
                    numbers={"value": value},
                    sources=(document("given"),),
                )
            )
    return total("own", parts, "USD/h")


def _items(machine: Machine, terms: OwnershipTerms) -> tuple[list[Item], list[str]]:
    """Return what is bought and what has no price: complete servers where one is priced, else devices and hosts."""
    absent: list[str] = []
    box = _priced(machine, WHOLE) if terms.card is None and terms.server is None else None
    items = [_share(machine, box, WHOLE)] if box is not None else []
    if not items:
        items = _cards(machine, terms)
        if not items:
            return [], []
        if machine.device.quantities.get("bought") is not None and terms.card is None and terms.server is None:
            return items, []  # the purchase price of a user's device includes its share of a server
        if terms.server is not None:
            items.append(_given_item("servers", machine.hosts, terms.server))
        else:
            absent.append(f"{SERVERS} (--server)")
    if terms.networking is not None:
        items.append(_given_item("network", 1, terms.networking))
    elif machine.hosts > 1:
        bought, missing = _network(machine, cards=box is None or not box.network_cards)
        items += bought
        absent += missing
    return items, absent


WHOLE, BOARD = "price", "board_price"
"""Prices of a server: of the complete server, and of the board with its devices alone [USD]."""


def _given_item(name: str, count: float, price: float) -> Item:
    """Return an item at the user's price."""
    return Item(name=name, count=count, price=price, source="given", kind="given")


def _priced(machine: Machine, which: str) -> Server | None:
    """Return a server with a known price for a machine's hosts: the named one, else the cheapest of the newest half year."""
    boxes = [
        s
        for s in catalogue.servers_of(machine.device.id)
        if which in s.quantities and not s.provider and s.count >= machine.per_host
    ]
    # racks are not sold in parts
    boxes = [s for s in boxes if s.count <= LARGEST_BOX or s.count == machine.per_host]
    if not boxes:
        return None
    if machine.named_server is not None and machine.named_server in boxes:
        return machine.named_server
    least = min(s.count for s in boxes)
    alike = [s for s in boxes if s.count == least]
    newest = min(age_days(s.quantities[which].seen) for s in alike)
    recent = [s for s in alike if age_days(s.quantities[which].seen) <= newest + RECENT_DAYS]
    return min(recent, key=lambda s: s.quantities[which].value)


def _share(machine: Machine, box: Server, which: str) -> Item:
    """Return the share of complete servers, or of their boards, that the hosts of a machine make up."""
    price, share = box.quantities[which], machine.per_host / box.count
    words = box.id if which == WHOLE else f"board of {box.id}"
    words = words if share == 1.0 else f"{machine.per_host}/{box.count} of {words}"
    return Item(name=words, count=machine.hosts * share, price=price.value, source=price.source, date=price.seen)


def _cards(machine: Machine, terms: OwnershipTerms) -> list[Item]:
    """Return the devices alone, at the user's price, on a priced board or one by one; nothing where no price is known."""
    if terms.card is not None:
        return [_given_item(machine.device.id, machine.count, terms.card)]
    quote = price_of(machine.device, "bought")
    box = _priced(machine, BOARD)
    if box is not None and (quote is None or box.quantities[BOARD].seen > quote.date):
        return [_share(machine, box, BOARD)]
    if quote is None:
        return []
    return [
        Item(
            name=machine.device.id,
            count=machine.count,
            price=quote.value,
            source=quote.source,
            date=quote.date,
            kind="given" if quote.kind == "given" else "quote",
        )
    ]


NETWORK = (("nic_price", "network card"), ("switch_port_price", "switch port"))
"""What each port of a host needs: the quantity of the link that holds its price, and its name."""


def _network(machine: Machine, *, cards: bool) -> tuple[list[Item], list[str]]:
    """Return the switch ports of the hosts, and the network cards where servers lack them; and what of these has no price."""
    needed = NETWORK if cards else NETWORK[1:]
    link, ports = machine.network, machine.hosts * machine.ports
    known = [(name, link.quantities[key]) for key, name in needed if link is not None and key in link.quantities]
    if link is None or not known:
        return [], ["the network (--networking)"]
    items = [
        Item(name=f"{link.id} {name}", count=ports, price=found.value, source=found.source, date=found.seen)
        for name, found in known
    ]
    missing = [f"{name}s (--networking)" for key, name in needed if key not in link.quantities]
    return items, missing


def _depreciation(bought: Any, terms: OwnershipTerms, sources: tuple[Source, ...]) -> Term:
    """Return the purchase as an hourly cost."""
    sold = bought * terms.residual
    if terms.interest > 0.0:
        value = cost.annuity(bought, sold, terms.interest, terms.years) / (YEAR / HOUR)
        text = (
            "annuity of {bought} USD over {years} years at {interest}% interest, {sold} USD sold at the end, / 8,760 h"
        )
        law = "cost.annuity"
    else:
        value = cost.straight_line(bought - sold, terms.years * YEAR) * HOUR
        text, law = "({bought} - {sold}) USD / ({years} x 8,760 h), straight line", "cost.straight_line"
    numbers = {"bought": bought, "sold": sold, "years": terms.years, "interest": terms.interest * 100.0}
    return Term("depreciation", value, "USD/h", law=law, text=text, numbers=numbers, sources=sources)


AT_HOME = ("consumer", "apple")
"""Classes of devices that are not taken to stand in a data centre."""


def _energy(
    machine: Machine, terms: OwnershipTerms, absent: list[str], assumed: list[str], fit: Fit
) -> dict[str, Sourced]:
    """Return power, electricity price and PUE with their ranges, nothing where the machine's power is not known."""
    if terms.power is not None:
        power = stated(terms.power, "W")
    else:
        found = load_power(machine, fit)
        if found is None:
            absent.append("electricity (--power)")
            return {}
        power = found
        if machine.box is None:
            absent.append("the hosts' own power (--power)")
        assumed.append(f"power {units.show(power.value, 'W')} at load")
    if terms.electricity is not None:
        tariff = stated(terms.electricity, "USD/J")
    else:
        tariff = electricity(terms.place)
        assumed.append(f"electricity {tariff.text} ({tariff.seen})")
    if terms.pue is not None:
        pue = stated(terms.pue, "1")
    elif machine.device.device_class in AT_HOME:
        pue = stated(1.0, "1")
        assumed.append(f"PUE 1: a {machine.device.device_class} device stands in a room, not in a data centre")
    else:
        pue = site_overhead()
        assumed.append(f"PUE {pue.value:g} ({pue.source}, {pue.seen})")
    return {"power": power, "electricity": tariff, "PUE": pue}


def hourly(machine: Machine, price: str, fit: Fit, terms: OwnershipTerms | None = None) -> HourlyCost | None:
    """Return the hourly cost of a machine under a way of paying, None where no price is known for it.

    Parameters
    ----------
    machine : the machine.
    price : ``rent``, ``contract``, ``spot``, ``own``, or a price per device such as ``2.50USD/h``.
    fit : fitted constants, for the power and price ranges of an owned machine.
    terms : terms of owning, None for the defaults.

    Returns
    -------
    The price per device-hour and in all [USD/h]; None also for owned cards whose servers or network have no price.

    Raises
    ------
    UnitError : the price is none of these.
    UnknownName : a place of the terms without a known price of electricity.
    """
    if price == "own":
        owned = own(machine, fit, terms)
        # cards without their servers would look too cheap; a user's own device counts at the price that the user states
        return None if owned is None or owned.bare else owned.cost()

    if price in KINDS:
        found = quotation(machine, price)
        return (
            None
            if found is None
            else HourlyCost(per_device=found.value, count=machine.count, price=bounded(found, fit))
        )
    try:
        value = units.parse(price, "USD/h", "--price")
    except UnitError as error:
        raise UnitError(
            f"--price: {price!r} is neither rent, contract, spot, own nor a price per device such as 2.50USD/h",
            argument="--price",
            value=price,
        ) from error
    return HourlyCost(per_device=value, count=machine.count, price=given_price(machine, value, "--price"))


MATRIX_FORMATS = ("tf32", "fp16", "bf16", "fp8", "int8", "fp4")
"""Number formats of matrix units, whose rates are priced."""


def per_petaflop_hour(owned: Owned) -> dict[str, float]:
    """Return the cost of a PFLOP/s for an hour at the dense peak, by number format.

    Parameters
    ----------
    owned : the owned machine.

    Returns
    -------
    Number format -> cost [USD/h].
    """
    device = owned.machine.device
    return {
        name: owned.hourly / (rate.value * owned.machine.count / 1e15)
        for name, rate in device.peak.items()
        if name in MATRIX_FORMATS
    }


def checked(terms: OwnershipTerms) -> OwnershipTerms:
    """Return the terms, or refuse invalid ones.

    Raises
    ------
    InputError : a value out of range; names the flag.
    """
    for name, value in (("--residual", terms.residual), ("--interest", terms.interest)):
        if not 0.0 <= value < 1.0:
            raise InputError(f"{name}: {value:.0%} is not a share from 0 to below 100%", argument=name, value=value)
    if not LEAST_YEARS <= terms.years <= MOST_YEARS:
        raise InputError(
            f"--years: {terms.years:g} is not from {LEAST_YEARS:g} to {MOST_YEARS:g}, for which a machine is planned",
            argument="--years",
            value=terms.years,
        )
    if terms.pue is not None and terms.pue < 1.0:
        raise InputError(f"--pue: {terms.pue:g} is less than 1", argument="--pue", value=terms.pue)
    return terms
