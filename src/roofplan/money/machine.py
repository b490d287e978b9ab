"""What a machine of one's own costs per hour: purchase, interest, electricity, hosting, and what is absent."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from roofplan import catalogue
from roofplan.catalogue.machines import LARGEST_BOX
from roofplan.errors import InputError, UnitError
from roofplan.laws import board, cost
from roofplan.money.chip import price_of
from roofplan.money.energy import electricity, load_power, site_overhead
from roofplan.money.prices import (
    KINDS,
    PURCHASE,
    RECENT_DAYS,
    STALE_DAYS,
    HourlyCost,
    age_days,
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
from roofplan.records.source import Kind, Source, Sourced, document
from roofplan.records.terms import Term, total
from roofplan.records.units import HOUR, JOULE_PER_KWH, YEAR

YEARS = 3.0
"""Years of use where nobody says, as the articles and most accounts take [1]."""

LEAST_YEARS, MOST_YEARS = 0.01, 20.0
"""Years between which a machine is planned for: some days, and more than any of the trade was used [1]."""


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
    rack : power that a rack gives and cools [W].
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
    rack: float | None = None
    place: str = "WOR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Something that is bought.

    Parameters
    ----------
    price : of one [USD].
    date : of the price.
    kind : ``quote`` of the price book, or ``given`` by the user.
    """

    name: str
    count: float
    price: float
    source: str
    date: str = ""
    kind: Kind = "quote"

    def ranged(self, fit: Fit) -> Sourced:
        """Return the price of one with the bounds of quotations of such things, none where the user gave it [USD]."""
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
        """Price of all [USD]."""
        return self.count * self.price

    @property
    def stale(self) -> bool:
        """Whether the price is older than a year."""
        return self.kind == "quote" and age_days(self.date) > STALE_DAYS


@dataclass(slots=True, kw_only=True)
class Owned:
    """A machine of one's own.

    Parameters
    ----------
    inputs : what the cost follows from, by name, each with its range.
    term : USD per hour in parts, at the inputs' central values.
    absent : what is not counted, for nothing is known of it.
    unpriced : whether something that must be bought is among that.
    fit : the constants behind its power and the ranges of its prices.
    """

    machine: Machine
    terms: Terms
    fit: Fit
    items: list[Item]
    inputs: dict[str, Sourced]
    term: Term
    absent: list[str]
    unpriced: bool
    assumed: list[str] = field(default_factory=list)

    def at(self, values: Values) -> Term:
        """Return the cost per hour in parts at values of its inputs, which may be arrays of draws [USD/h]."""
        return hourly_term(self.items, self.terms, self.inputs, values)

    def interval(self) -> Interval:
        """Return the cost per hour with the bounds that hold nine of ten draws [USD/h]."""
        return interval(lambda values: self.at(values).value, self.inputs)

    def swings(self) -> list[Swing]:
        """Return what each input's range does to the cost per hour, the widest first [USD/h]."""
        return tornado(lambda values: self.at(values).value, self.inputs)

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
        return min((item.date for item in self.items if item.kind == "quote"), default="")

    @property
    def warnings(self) -> list[tuple[str, str]]:
        """What a reader must know of its prices, each with a code."""
        return [found for item in self.items if item.kind == "quote" for found in stale_warning(item.name, item.date)]

    def cost(self) -> HourlyCost:
        """Return it as an hourly price of each device."""
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
        """Whether the servers around the cards, or the network between them, have no price: it looks cheaper than it is."""
        return self.unpriced and self.machine.device.status != OWN

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


def own(machine: Machine, fit: Fit, terms: Terms | None = None) -> Owned | None:
    """Return what owning a machine costs, None where no price of its devices is known."""
    terms = terms or Terms()
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
            inputs[name] = _given(value, "USD/h")
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
    """Return what the price of an item is called among the inputs."""
    return f"price of {item.name}"


def hourly_term(items: list[Item], terms: Terms, inputs: dict[str, Sourced], values: Values) -> Term:
    """Return what owning costs per hour, in parts; values may be arrays of draws [USD/h]."""
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


def _given(value: float, unit: str) -> Sourced:
    """Return what the user states, without a range."""
    return Sourced(value=value, unit=unit, text=f"{value:g} {unit}", source="given", seen="", kind="given")


def _items(machine: Machine, terms: Terms) -> tuple[list[Item], list[str]]:
    """Return what is bought, and what is not known of it: complete servers where one is priced, else devices and hosts."""
    absent: list[str] = []
    box = _priced(machine, WHOLE) if terms.card is None and terms.server is None else None
    items = [_share(machine, box, WHOLE)] if box is not None else []
    if not items:
        items = _cards(machine, terms)
        if not items:
            return [], []
        if machine.device.quantities.get("bought") is not None and terms.card is None and terms.server is None:
            return items, []  # what its owner pays for it holds its share of a server
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
"""Quantities of a server: what it costs with all that it needs, and what its devices cost on their board alone [USD]."""


def _given_item(name: str, count: float, price: float) -> Item:
    """Return what is bought at the user's price."""
    return Item(name=name, count=count, price=price, source="given", kind="given")


def _priced(machine: Machine, which: str) -> Server | None:
    """Return the server of a machine's hosts of which a price is known: the named one, else the cheapest of the newest half year."""
    boxes = [
        s
        for s in catalogue.servers_of(machine.device.id)
        if which in s.quantities and not s.provider and s.count >= machine.per_host
    ]
    # a rack is not sold by the device
    boxes = [s for s in boxes if s.count <= LARGEST_BOX or s.count == machine.per_host]
    if not boxes:
        return None
    named = [s for s in boxes if machine.text.split(":")[0].lower() in {s.id, *s.aliases}]
    if named:
        return named[0]
    least = min(s.count for s in boxes)
    alike = [s for s in boxes if s.count == least]
    newest = min(age_days(s.quantities[which].seen) for s in alike)
    recent = [s for s in alike if age_days(s.quantities[which].seen) <= newest + RECENT_DAYS]
    return min(recent, key=lambda s: s.quantities[which].value)


def _share(machine: Machine, box: Server, which: str) -> Item:
    """Return the share of servers, or of their boards, that a machine's hosts are."""
    price, share = box.quantities[which], machine.per_host / box.count
    words = box.id if which == WHOLE else f"board of {box.id}"
    words = words if share == 1.0 else f"{machine.per_host}/{box.count} of {words}"
    return Item(name=words, count=machine.hosts * share, price=price.value, source=price.source, date=price.seen)


def _cards(machine: Machine, terms: Terms) -> list[Item]:
    """Return the devices alone: at the user's price, on a priced board, or one by one; nothing where no price is known."""
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
"""What a port of a host needs: quantities of its link, and what they are called."""


def _network(machine: Machine, *, cards: bool) -> tuple[list[Item], list[str]]:
    """Return the network cards, where they are to be bought apart, and switch ports of the hosts, and what of them has no price."""
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


def _depreciation(bought: Any, terms: Terms, sources: tuple[Source, ...]) -> Term:
    """Return what the purchase costs per hour."""
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


def _energy(machine: Machine, terms: Terms, absent: list[str], assumed: list[str], fit: Fit) -> dict[str, Sourced]:
    """Return power, tariff and site overhead with their ranges, nothing where the machine's power is not known."""
    if terms.power is not None:
        power = _given(terms.power, "W")
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
        tariff = _given(terms.electricity, "USD/J")
    else:
        tariff = electricity(terms.place)
        assumed.append(f"electricity {tariff.text} ({tariff.seen})")
    if terms.pue is not None:
        pue = _given(terms.pue, "1")
    else:
        pue = site_overhead()
        assumed.append(f"PUE {pue.value:g} ({pue.source}, {pue.seen})")
    return {"power": power, "electricity": tariff, "PUE": pue}


def hourly(machine: Machine, price: str, fit: Fit, terms: Terms | None = None) -> HourlyCost | None:
    """Return the cost of a machine under ``rent``, ``contract``, ``spot``, ``own`` on terms, or a given ``2.50USD/h`` per device."""
    if price == "own":
        owned = own(machine, fit, terms)
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


MATRIX_FORMATS = ("tf32", "fp16", "bf16", "fp8", "int8", "fp4")
"""Number formats of matrix units, whose rates are bought."""


def per_petaflop_hour(owned: Owned) -> dict[str, float]:
    """Return the cost of a PFLOP/s for an hour at the dense peak, by number format [USD/h]."""
    device = owned.machine.device
    return {
        name: owned.hourly / (rate.value * owned.machine.count / 1e15)
        for name, rate in device.peak.items()
        if name in MATRIX_FORMATS
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
    if not LEAST_YEARS <= terms.years <= MOST_YEARS:
        raise InputError(
            f"--years: {terms.years:g} is not from {LEAST_YEARS:g} to {MOST_YEARS:g}, for which a machine is planned",
            argument="--years",
            value=terms.years,
        )
    if terms.pue is not None and terms.pue < 1.0:
        raise InputError(f"--pue: {terms.pue:g} is less than 1", argument="--pue", value=terms.pue)
    return terms


HEADROOM = 0.25
"""Reserve of a power supply over the load, usual practice [1]."""

RACK = 20e3
"""Power of a rack that colocation sells without a word, beside which a server's is set [W]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """What feeds a server.

    Parameters
    ----------
    power : of a server at load [W].
    supplies : rating of its power supplies, a reserve in it [W].
    rack : power of a rack [W], and `servers` of it [1].
    plugs : of each kind that a card needs beside its slot, by the plug's rating; empty where cards take no plugs [1].
    """

    power: float
    supplies: float
    rack: float
    servers: int
    plugs: dict[float, int]


def fed(owned: Owned) -> Fed | None:
    """Return what feeds each server of a machine, None where its power or its box is not known."""
    if "power" not in owned.inputs or owned.machine.server is None:
        return None
    each = owned.inputs["power"].value / owned.machine.hosts
    rack = owned.terms.rack or RACK
    device = owned.machine.device
    limit = device.value("power")
    plugged = limit is not None and device.form == CARD and limit > SLOT
    return Fed(
        power=each,
        supplies=float(board.supply_rating(each, HEADROOM)),
        rack=rack,
        servers=int(board.servers_of_rack(rack, each)),
        plugs={plug: int(board.plugs_needed(limit, SLOT, plug)) for plug in PLUGS} if plugged else {},
    )


SLOT, PLUGS = 75.0, (150.0, 600.0)
"""Power of an x16 slot, of an 8-pin plug and of a 12V-2x6: PCI-SIG, Card Electromechanical Specification 5.1 [W]."""

CARD = "PCIe"
"""Form of a device that a slot and plugs feed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """Owning beside renting the same machine.

    Parameters
    ----------
    low, high : least and most rent on demand of a device in the newest half year [USD/h], of `quotations`, the newest of `date`.
    rent : of a device, the quotation that is compared with [USD/h], None where none holds for this size.
    use : share of the hours from which owning is cheaper, above 1 where never [1].
    payback : time until the machine has earned its price at that rent, used around the clock, None where owning is dearer or half priced [s].
    """

    low: float
    high: float
    quotations: int
    date: str
    rent: Price | None
    use: float | None
    payback: float | None


def against(owned: Owned) -> Against | None:
    """Return owning beside renting, None without rents of the device."""
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
