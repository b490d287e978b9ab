"""The bill of materials of an accelerator, from wafer to board."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from roofplan import catalogue
from roofplan.errors import InputError, nearest
from roofplan.laws import silicon
from roofplan.money.prices import newest, ranged
from roofplan.money.uncertainty import Interval, Swing, Values, central, interval, tornado
from roofplan.records.calibration import Fit
from roofplan.records.hardware import OWN, Accelerator
from roofplan.records.prices import Price
from roofplan.records.silicon import Chip, Die, Node
from roofplan.records.source import Sourced, document
from roofplan.records.terms import Term, total


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What a chip costs to make.

    Parameters
    ----------
    term : cost in parts, with the numbers put in [USD].
    cost : cost with its interval [USD].
    swings : effect of each input's range on the cost.
    rivals : yield of the largest die by each yield law, without salvage [1].
    inputs : inputs of the cost by name.
    design : share of design and mask costs in each part, None without a volume or where they are not known [USD].
    absent : what is not counted, because nothing is known of it.
    price, margin : newest price of the part, and its maker's gross margin at that price; None where no price of the card alone is known.
    """

    chip: Chip
    term: Term
    cost: Interval
    swings: list[Swing]
    rivals: dict[str, float]
    inputs: dict[str, Sourced]
    price: Price | None
    margin: Interval | None
    design: float | None
    absent: tuple[str, ...] = ()


def chip_of(device: Accelerator) -> Chip:
    """Return the chip of a device, as its bill of materials needs it.

    Parameters
    ----------
    device : a device of the catalogue or of the user.

    Returns
    -------
    The chip: dies, memory and package.

    Raises
    ------
    InputError : a die area, process or memory that is not known.
    """
    found = catalogue.dies(device.id) if device.id in catalogue.ids("accelerators") else ()
    if not found:
        area, node = device.value("die_area"), catalogue.node_of(device.process)
        if area is None or node is None:
            what = "die area" if area is None else f"process {device.process!r}" if device.process else "process"
            remedy = (
                "add node and die_area to its file" if device.status == OWN else "a chip of your own: --node and --area"
            )
            raise InputError(
                f"{device.id}: its {what} is not known, so it has no bill of materials; {remedy}. Processes: roofplan nodes",
                code="unknown_silicon",
                argument="DEVICE",
                value=device.id,
            )
        whole, sold = (None if n is None else int(n) for n in (device.value("units_full"), device.value("units")))
        found = (
            Die(
                name="die",
                node=node,
                area=area,
                count=int(device.value("compute_dies") or 1),
                units=whole if sold is not None else None,
                sold=sold if whole is not None else None,
                source=device.quantities["die_area"].source,
            ),
        )
    memory = device.memory_type.split(" ")[0]
    capacity = device.value("memory_stacked") or device.value("memory_capacity")
    if capacity is None:
        raise InputError(
            f"{device.id}: its memory is not known, so it has no bill of materials",
            code="unknown_memory",
            argument="DEVICE",
            value=device.id,
        )
    if f"memory.{memory}" not in catalogue.packaging():
        raise InputError(
            f"{device.id}: no price of {device.memory_type or 'its memory'} is known, so it has no bill of materials",
            code="unknown_memory",
            argument="DEVICE",
            value=device.id,
        )
    return Chip(
        id=device.id,
        name=device.name,
        dies=found,
        memory=memory,
        capacity=capacity,
        interposer=memory.startswith("HBM"),
        stacks=int(device.value("memory_stacks") or 0),
        source="catalogue",
    )


def checked(chip: Chip) -> Chip:
    """Return a chip, or refuse one that cannot be made or priced.

    Raises
    ------
    InputError : a die beyond the reticle, too many dies or units, too much silicon for an interposer, or an unknown memory.
    """
    for die in chip.dies:
        if die.area > silicon.RETICLE:
            flag = "--area" if chip.id == "own" else chip.id
            raise InputError(
                f"{flag}: {die.area * 1e6:,.0f} mm2 is more than a scanner exposes at once, {silicon.RETICLE * 1e6:.0f} mm2 (26 x 33 mm);"
                " it is made of several dies"
                + (", write them with --dies" if chip.id == "own" else " (dies = 2, and the area of one)"),
                code="beyond_reticle",
                argument=flag,
                value=die.area * 1e6,
            )
        if die.units is not None and die.units > MOST_UNITS:
            message = f"--units: {die.units:,} are more than the {MOST_UNITS:,} that a die is planned with"
            raise InputError(message, argument="--units", value=die.units)
        if die.units is not None and die.sold is not None and die.sold > die.units:
            flag = "--sold" if chip.id == "own" else f"{chip.id}: units_sold"
            raise InputError(f"{flag}: {die.sold} of {die.units} units", argument=flag, value=die.sold)
    if sum(die.count for die in chip.dies) > MOST_DIES:
        raise InputError(
            f"--dies: more than the {MOST_DIES} that a package is planned with", argument="--dies", value=MOST_DIES
        )
    silicon_on_it = _area(chip) if not chip.memory or f"memory.{chip.memory}" in catalogue.packaging() else 0.0
    if silicon_on_it > LARGEST_INTERPOSER:
        raise InputError(
            f"{'--dies' if chip.id == 'own' else chip.id}: {silicon_on_it * 1e6:,.0f} mm2 of silicon on one package; the largest"
            f" interposer announced holds {LARGEST_INTERPOSER * 1e6:,.0f}",
            code="beyond_interposer",
            argument="--dies",
            value=silicon_on_it * 1e6,
        )
    known = [name.removeprefix("memory.") for name in catalogue.packaging() if name.startswith("memory.")]
    if chip.memory and chip.memory not in known:
        raise InputError(
            f"--memory: no price of {chip.memory}; known: {', '.join(known)}",
            argument="--memory",
            value=chip.memory,
            nearest=nearest(chip.memory, known),
        )
    return chip


LARGEST_INTERPOSER = 9.5 * silicon.RETICLE
"""Silicon on the largest interposer that a foundry has announced, nine and a half reticle fields [m2]."""

MOST_UNITS = 1024
"""Most equal units of a die that salvage is computed for; the largest known die has 192 [1]."""

MOST_DIES = 64
"""Most dies of a package; no known product has more [1]."""


def _area(chip: Chip) -> float:
    """Return the silicon area on the interposer of a package [m2]."""
    own = sum(die.area * die.count for die in chip.dies if not die.stacked)
    each = catalogue.packaging()[f"memory.{chip.memory}"].get("stack_area") if chip.memory else None
    return own + (stacks(chip) * each.value if each is not None else 0.0)


INPUT_NAMES = {"area_price": "price of the interposer", "joint": "yield of a joint", "test": "test and assembly"}
"""Names shown for inputs whose own name says too little."""


def inputs_of(chip: Chip) -> dict[str, Sourced]:
    """Return the inputs of a chip's cost by name.

    Parameters
    ----------
    chip : the chip.

    Returns
    -------
    Name -> number with its source and range.
    """
    table = catalogue.packaging()
    out: dict[str, Sourced] = {}
    for die in chip.dies:
        node = catalogue.node(die.node)
        out[f"wafer of {node.id}"] = node.wafer
        out[f"defects of {node.id}"] = node.quantities["defect_density"]
    out["clustering"] = table["wafer"]["clustering"]
    if any(die.units is not None for die in chip.dies):
        out["critical share"] = table["wafer"]["critical"]
    if chip.memory:
        out[f"price of {chip.memory}"] = table[f"memory.{chip.memory}"]["price"]
    section = table["interposer" if chip.interposer else "card"]
    for name in ("area_price", "package", "joint", "test", "board"):
        if name in section:
            out[name] = section[name]
    return out


def stacks(chip: Chip) -> float:
    """Return the number of memory stacks on a package [1]."""
    if not chip.interposer or not chip.memory:
        return 0.0
    if chip.stacks:
        return float(chip.stacks)
    return float(-(-chip.capacity // catalogue.packaging()[f"memory.{chip.memory}"]["stack_capacity"].value))


def usable(die: Die, values: Values) -> Any:
    """Return the share of the dies of a kind that can be sold, with salvage where the die has spare units.

    Parameters
    ----------
    die : the kind of die.
    values : values of the inputs by name; each may be an array of draws.

    Returns
    -------
    The yield, of the shape of the values [1].
    """
    density = values[f"defects of {die.node}"]
    if die.units is not None:
        spare = float(die.spare)
        return silicon.salvaged_yield(die.area, density, values["critical share"], spare, values["clustering"])
    return silicon.negative_binomial_yield(die.area, density, values["clustering"])


def gross_dies(die: Die) -> float:
    """Return the number of whole dies on a wafer.

    Parameters
    ----------
    die : the kind of die.

    Returns
    -------
    Whole dies per wafer, good or bad [1].
    """
    wafer = catalogue.packaging()["wafer"]
    area = silicon.scribed_area(die.area, wafer["scribe"].value)
    return float(silicon.dies_per_wafer(wafer["diameter"].value, wafer["edge"].value, area))


def bill_term(chip: Chip, values: Values) -> Term:
    """Return the cost of a chip in parts.

    Parameters
    ----------
    chip : the chip.
    values : values of `inputs_of` by name; each may be an array of draws.

    Returns
    -------
    The cost as a Term, of the shape of the values [USD].
    """
    made = inputs_of(chip)
    parts = [_logic(die, values, made) for die in chip.dies]
    if chip.memory:
        each = values[f"price of {chip.memory}"]
        parts.append(
            Term(
                "memory",
                chip.capacity * each,
                "USD",
                law="given",
                text="{capacity} GiB of " + chip.memory + " x {price} USD",
                numbers={"capacity": chip.capacity / 2.0**30, "price": each * 2.0**30},
                sources=(made[f"price of {chip.memory}"].cited,),
            )
        )
    # stacked dies are bonded before assembly; no yield of that bond is published, so it is taken as one
    count, joined = stacks(chip), sum(die.count for die in chip.dies if not die.stacked)
    if chip.interposer:
        area = _area(chip)
        process = area * values["area_price"]
        text = "{price} USD/mm2 x {area} mm2 of silicon, {stacks} stacks of memory among it"
        numbers = {"price": values["area_price"] * 1e-6, "area": area * 1e6, "stacks": count}
        cited = made["area_price"].cited
    else:
        process, text, numbers, cited = (
            values["package"],
            "{price} USD",
            {"price": values["package"]},
            made["package"].cited,
        )
    parts.append(Term("package", process, "USD", law="given", text=text, numbers=numbers, sources=(cited,)))
    so_far = sum((part.value for part in parts if part.name != "memory"), 0.0)
    on_it = so_far + (parts[len(chip.dies)].value if chip.interposer and chip.memory else 0.0)
    joints = joined + count
    lost = silicon.assembled_cost(on_it, 0.0, values["joint"], joints) - on_it
    parts.append(
        Term(
            "lost in assembly",
            lost,
            "USD",
            law="silicon.assembled_cost",
            text="{on_it} USD on it x (1 / {joint_yield}^{joints} - 1)",
            numbers={"on_it": on_it, "joint_yield": values["joint"], "joints": joints},
            sources=(made["joint"].cited,),
        )
    )
    for name, label in (("test", "test and assembly"), ("board", "board")):
        parts.append(
            Term(
                label,
                values[name],
                "USD",
                law="given",
                text="{price} USD",
                numbers={"price": values[name]},
                sources=(made[name].cited,),
            )
        )
    return total("bill of materials", parts, "USD")


def _logic(die: Die, values: Values, made: dict[str, Sourced]) -> Term:
    """Return the cost of all dies of a kind."""
    gross, share = gross_dies(die), usable(die, values)
    wafer = values[f"wafer of {die.node}"]
    one = silicon.die_cost(wafer, gross, share)
    units = f", {die.sold} of {die.units} units sold" if die.units is not None else ", salvage not known"
    return Term(
        f"logic {die.name}",
        die.count * one,
        "USD",
        law="silicon.salvaged_yield" if die.units is not None else "silicon.negative_binomial_yield",
        text="{count} x {wafer} USD a wafer / ({gross} dies x {usable} usable" + units + ")",
        numbers={"count": die.count, "wafer": wafer, "gross": gross, "usable": share},
        sources=(
            made[f"wafer of {die.node}"].cited,
            made[f"defects of {die.node}"].cited,
            document(die.source),
        ),
    )


def rivals(die: Die) -> dict[str, float]:
    """Return the share of perfect dies by each yield law, at the node's central defect density [1]."""
    node = catalogue.node(die.node)
    density = node.quantities["defect_density"].value
    clustering = catalogue.packaging()["wafer"]["clustering"].value
    return {
        "poisson": float(silicon.poisson_yield(die.area, density)),
        "murphy": float(silicon.murphy_yield(die.area, density)),
        "seeds": float(silicon.seeds_yield(die.area, density)),
        "seeds-root": float(silicon.seeds_root_yield(die.area, density)),
        "negative-binomial": float(silicon.negative_binomial_yield(die.area, density, clustering)),
    }


def bill(chip: Chip, fit: Fit, price: Price | None = None, volume: float | None = None) -> Bill:
    """Return the bill of materials of a chip, with its interval and the gross margin at a price.

    Parameters
    ----------
    chip : the chip.
    fit : fitted constants, for the range of the price.
    price : price of the part, None for no margin.
    volume : parts that share the design and masks, None to leave these out [1].

    Returns
    -------
    The bill.

    Raises
    ------
    InputError : the chip cannot be made or priced.
    """
    chip = checked(chip)
    inputs = inputs_of(chip)

    def cost(values: Values) -> Any:
        return bill_term(chip, values).value

    found = interval(cost, inputs)
    margin = None
    if price is not None and price.scope == CARD:
        priced = {SOLD_AT: ranged(price, fit), **inputs}
        margin = interval(lambda values: silicon.gross_margin(values[SOLD_AT], cost(values)), priced)
    largest = max(chip.dies, key=lambda die: die.area)
    return Bill(
        chip=chip,
        term=bill_term(chip, central(inputs)),
        cost=found,
        swings=tornado(cost, inputs),
        rivals=rivals(largest),
        inputs=inputs,
        price=price,
        margin=margin,
        design=design_of(chip, volume),
        absent=tuple(_absent(chip, volume)),
    )


def _absent(chip: Chip, volume: float | None) -> Iterator[str]:
    """Yield what a bill does not count, because nothing is known of it."""
    if volume is not None and design_of(chip, volume) is None:
        yield "design and masks: not known of these nodes"
    if not chip.memory:
        yield "memory: none is described (--hbm, --gddr)"
    for die in chip.dies:
        if die.stacked:
            yield f"the bonds of stacked dies ({die.name}): nobody publishes their yield"
        if die.units is None:
            yield f"salvage of {die.name}: units and those sold are not known, so that only dies without a defect count"


SOLD_AT = "price of the part"
"""Name of the part's price among the inputs of its margin."""

CARD = "card"
"""Scope of a price that can be compared with a bill of materials."""


def design_of(chip: Chip, volume: float | None) -> float | None:
    """Return the share of designs and mask sets in each part, None without a volume or where a node's costs are not known [USD]."""
    if volume is None:
        return None
    once = 0.0
    for die in chip.dies:
        node = catalogue.node(die.node).quantities
        if "design" not in node or "mask_set" not in node:
            return None
        once += node["design"].value + node["mask_set"].value
    return float(silicon.design_share(once, volume))


def price_of(device: Accelerator, what: str = "sold_at") -> Price | None:
    """Return the newest price of a device, of the card alone where such a price is known.

    Parameters
    ----------
    device : the device.
    what : price of a user's device: ``sold_at`` for the device alone, or ``bought`` with its share of a server.

    Returns
    -------
    The price [USD], None where none is known.
    """
    own = device.quantities.get(what)
    if own is not None:
        return Price(
            device=device.id, kind="given", value=own.value, unit="USD", date=catalogue.version(), source=own.source
        )
    known = [p for p in catalogue.prices(device.id) if p.kind in {"list", "street"} and p.unit == "USD"]
    sold = [p for p in known if p.scope == CARD] or known
    return newest(sold) if sold else None


def transistor_cost(node: Node) -> float | None:
    """Return the cost of a transistor of a node before yield, at the node's peak density.

    Parameters
    ----------
    node : the process node.

    Returns
    -------
    The cost, None where the density is not known [USD].
    """
    if "density" not in node.quantities:
        return None
    wafer = catalogue.packaging()["wafer"]
    area = math.pi * (wafer["diameter"].value / 2.0 - wafer["edge"].value) ** 2
    return float(silicon.transistor_price(node.wafer.value, area, node.quantities["density"].value))
