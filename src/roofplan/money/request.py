"""Flags of ``roofplan cost``, as text with units, to chips, owned machines and rents."""

from __future__ import annotations

import re

from roofplan import catalogue
from roofplan.catalogue.machines import accelerator, machine
from roofplan.errors import InputError, UnitError
from roofplan.inputs import ChipInputs, MachineInputs, Owning
from roofplan.money import chip as chips
from roofplan.money import machine as owning
from roofplan.money import rent as renting
from roofplan.money.chip import Bill
from roofplan.money.machine import Owned
from roofplan.money.rent import Quote
from roofplan.records import units as unit_of
from roofplan.records.calibration import Fit
from roofplan.records.prices import Price
from roofplan.records.silicon import Chip, Die


def bill_of_materials(asked: ChipInputs, fit: Fit) -> Bill:
    """Return the bill of materials of a catalogue device, or of a chip described by node, area and memory.

    Parameters
    ----------
    asked : inputs of the command.
    fit : fitted constants, for the range of a price.

    Returns
    -------
    The bill.

    Raises
    ------
    InputError : a description that is incomplete or contradictory, or a chip that cannot be made or priced.
    """
    device, dies, price, volume = asked.device, str(asked.dies), asked.price, asked.volume
    own = {f"--{name}": getattr(asked, name) for name in ("node", "area", "hbm", "gddr", "memory", "units", "sold")}
    quote: Price | None = None
    if device is not None:
        strange = next((flag for flag, value in own.items() if value is not None), "--dies" if dies != "1" else None)
        if strange is not None:
            raise InputError(f"{strange} describes a chip of your own; leave out {device}", argument=strange)
        found = accelerator(device, "DEVICE")
        made = chips.chip_of(found)
        quote = chips.price_of(found)
    else:
        made = _described(own, dies)
    if price is not None:
        value = unit_of.parse(price, "USD", "--price")
        quote = Price(device=made.id, kind="given", value=value, unit="USD", date=catalogue.version(), source="--price")
    count = None if volume is None else unit_of.parse_amount(volume, "--volume")
    if count is not None and count < 1.0:
        raise InputError(f"--volume: {volume} is less than one part", argument="--volume", value=volume)
    return chips.bill(made, fit, quote, count)


def _described(own: dict[str, str | None], dies: str) -> Chip:
    """Return the chip that flags describe."""
    missing = next((flag for flag in ("--node", "--area") if own[flag] is None), None)
    if missing is not None:
        raise InputError(
            f"{missing} is missing. Example: roofplan cost chip --node n5 --area 814mm2 --hbm 80GiB --units 144 --sold 132",
            argument=missing,
        )
    if own["--hbm"] is not None and own["--gddr"] is not None:
        raise InputError("--hbm and --gddr: one package has one of them", argument="--gddr", value=own["--gddr"])
    if (own["--units"] is None) != (own["--sold"] is None):
        raise InputError(
            "--units and --sold belong together: units on a die, and those that a sold one works with",
            argument="--units",
        )
    stacked = own["--hbm"] is not None
    text = own["--hbm"] or own["--gddr"]
    default = "HBM3e" if stacked else "GDDR6X"
    generation = own["--memory"] or (default if text else "")
    if not text and own["--memory"] is not None:
        raise InputError(
            "--memory names a generation; say how much with --hbm 80GiB or --gddr 24GiB", argument="--memory"
        )
    if text and generation.upper().startswith("HBM") is not stacked:
        raise InputError(
            f"--memory: {generation} does not go with {'--hbm' if stacked else '--gddr'}",
            argument="--memory",
            value=generation,
        )
    known = {name.removeprefix("memory.").lower(): name.removeprefix("memory.") for name in catalogue.packaging()}
    return Chip(
        id="own",
        name="a chip of your own",
        dies=(
            Die(
                name="die",
                node=catalogue.find("nodes", str(own["--node"]), "--node"),
                area=unit_of.parse(str(own["--area"]), "m2", "--area"),
                count=unit_of.parse_count(dies, "--dies"),
                units=unit_of.parse_count(str(own["--units"]), "--units") if own["--units"] else None,
                sold=unit_of.parse_count(str(own["--sold"]), "--sold") if own["--sold"] else None,
                source="given",
            ),
        ),
        memory=known.get(generation.lower(), generation),
        capacity=_memory(text, "--hbm" if stacked else "--gddr") if text else 0.0,
        interposer=stacked,
        source="given",
    )


def _memory(text: str, flag: str) -> float:
    """Return a memory capacity; as usual for memory chips, GB means 2^30 B [B]."""
    return unit_of.parse(re.sub(r"(?i)(?<![a-z])([mgt])b$", r"\1iB", text.strip()), "B", flag)


CURRENCY = re.compile(r"(?<![A-Za-z])(?!USD)([A-Z]{3})(?![A-Za-z])")
"""A currency code of ISO 4217 in a price, other than USD."""


def _rates(text: str | None) -> dict[str, float]:
    """Return the exchange rates of a text such as ``EUR=1.04,GBP=1.25``: currency -> one unit of it [USD]."""
    out = {}
    for piece in (text or "").split(",") if text else ():
        name, _, value = piece.strip().partition("=")
        if not CURRENCY.fullmatch(name) or not value:
            raise InputError(f"--exchange: {piece} is not such as EUR=1.04", argument="--exchange", value=text)
        out[name] = unit_of.parse_amount(value, "--exchange")
    return out


def _in_dollars(text: str, rates: dict[str, float], flag: str) -> tuple[str, float]:
    """Return a price with its currency written as USD, and one unit of that currency [USD].

    Raises
    ------
    InputError : a currency without a stated rate.
    """
    found = CURRENCY.search(text)
    if found is None:
        return text, 1.0
    if found[1] not in rates:
        known = catalogue.worth(found[1])
        last = f" (it was {known['value']} on {known['date']}, {known['source'].partition(',')[0]})" if known else ""
        message = f"{flag}: {text} is in {found[1]}, and no rate is stated: --exchange {found[1]}=1.04{last}"
        raise InputError(message, code="exchange_rate_missing", argument=flag, value=text)
    return text.replace(found[1], "USD"), rates[found[1]]


def _years(text: str) -> float:
    """Return a span in years, given in years or months; a bare number is years [1]."""
    found = re.fullmatch(r"\s*([\d.]+(?:e[-+]?\d+)?)\s*(y|yr|years?|months?)?\s*", text)
    if found is None:
        raise UnitError(
            f"--years: {text} is not a number of years. Example: 3 or 18months", argument="--years", value=text
        )
    value = unit_of.parse_amount(found[1], "--years")
    return value / 12.0 if (found[2] or "").startswith("month") else value


def terms_of(asked: Owning) -> owning.OwnershipTerms:
    """Return the terms of owning that the flags state.

    Parameters
    ----------
    asked : inputs of the command.

    Returns
    -------
    The terms, in SI.

    Raises
    ------
    InputError : a flag that cannot be read, is out of range, or is in a currency without a stated rate.
    """
    said = asked.as_json()
    rates = _rates(said["exchange"])

    def money(name: str, unit: str) -> float | None:
        text = said.get(name)
        if text is None:
            return None
        stated, factor = _in_dollars(text, rates, f"--{name}")
        return factor * unit_of.parse(stated, unit, f"--{name}")

    tariff, years = money("electricity", "USD/kWh"), str(said["years"])
    return owning.checked(
        owning.OwnershipTerms(
            card=money("card", "USD"),
            server=money("server", "USD"),
            networking=money("networking", "USD"),
            years=_years(years),
            interest=unit_of.parse_share(str(said["interest"]), "--interest"),
            residual=unit_of.parse_share(str(said["residual"]), "--residual"),
            power=money("power", "W"),
            electricity=None if tariff is None else tariff / unit_of.JOULE_PER_KWH,
            pue=None if said["pue"] is None else unit_of.parse_amount(str(said["pue"]), "--pue"),
            hosting=money("hosting", "USD/h"),
            staff=money("staff", "USD/h"),
            rack=money("rack", "W"),
            place=str(said["place"]),
        )
    )


def owned_machines(asked: MachineInputs, fit: Fit) -> list[Owned]:
    """Return the hourly costs of owned machines.

    Parameters
    ----------
    asked : inputs of the command.
    fit : fitted constants, for power and the ranges of prices.

    Returns
    -------
    The owned machines, in the order of the flags.

    Raises
    ------
    InputError : no machine, terms that cannot be read, or a machine, place or price that is not known.
    """
    if not asked.on:
        raise InputError("--on is missing. Example: roofplan cost machine --on rtx-4090:8 --years 3", argument="--on")
    terms = terms_of(asked)
    found = []
    for text in asked.on:
        for one in machine(text):
            owned = owning.own(one, fit, terms)
            if owned is None:
                raise InputError(
                    f"--on: no list or street price of {one.device.id} is known"
                    + (", analysts' estimates aside" if _estimated(one.device.id) else "")
                    + "; give --card 1600USD",
                    code="price_missing",
                    argument="--on",
                    value=text,
                )
            found.append(owned)
    return found


def _estimated(device: str) -> bool:
    """Return whether analysts' estimates of a device's purchase price are known."""
    known = catalogue.prices(device) if device in catalogue.ids("accelerators") else ()
    return any(price.kind == "estimate" and price.unit == "USD" for price in known)


def rents_of(device: str, provider: str = "") -> tuple[str, list[Quote]]:
    """Return the id of a device and its dated rents, kind by kind.

    Parameters
    ----------
    device : id or alias of a device, or path of a user's TOML file.
    provider : part of a provider's name, empty for all providers.

    Returns
    -------
    The id, and the quotes of each kind, newest first [USD/h].

    Raises
    ------
    InputError : an unknown device, one without rents, or a provider that rents none.
    """
    identity = accelerator(device, "DEVICE").id
    found = renting.quotes(identity, provider)
    if not found:
        who = f" by {provider}" if provider else ""
        raise InputError(
            f"no rent of {identity}{who} is in the price book. List: roofplan prices {identity}",
            code="price_missing",
            argument="--provider" if provider else "DEVICE",
            value=provider or device,
        )
    return identity, found
