"""The answers of ``roofplan cost``: chips, machines, tokens, rents and their history."""

from __future__ import annotations

from collections.abc import Sequence

from roofplan.inputs import ChipInputs, HistoryInputs, MachineInputs, RentInputs
from roofplan.money.chip import Bill, gross_dies, usable
from roofplan.money.comparison import against
from roofplan.money.history import CLASSES, WIDTHS, Gain, Milestone, fit_trend
from roofplan.money.machine import Owned, per_petaflop_hour
from roofplan.money.prices import stale_warning
from roofplan.money.rent import RENTS
from roofplan.money.rent import Quote as Rent
from roofplan.money.supply import fed
from roofplan.money.uncertainty import Interval, Swing, central
from roofplan.present.answers.record import (
    ABSENT,
    Answer,
    DocumentMember,
    Grade,
    Quote,
    Tree,
    answered,
    cited,
    members,
    tree,
    view,
)
from roofplan.records.source import document


@members
class Ranged:
    """A figure and the bounds that hold nine draws of ten, or the interval of what it follows from."""

    value: float
    low: float
    high: float
    unit: str
    grade: Grade


def ranged(found: Interval, unit: str) -> Ranged:
    """Return an interval."""
    return view(Ranged, found, value=found.central, unit=unit)


@members
class SwingMember:
    """What one input's range does to a figure, all others central."""

    input: str
    low: float
    high: float


@members
class Sampled(Ranged):
    """A figure whose bounds come from draws of its inputs, and what each of them does to it."""

    tornado: list[SwingMember]


def sampled(found: Interval, swings: Sequence[Swing], unit: str) -> Sampled:
    """Return an interval, and what each input does to it."""
    tornado = [view(SwingMember, one, input=one.name) for one in swings]
    return view(Sampled, found, value=found.central, unit=unit, tornado=tornado)


# Chips -------------------------------------------------------------------------------------------


@members
class ChipMember:
    """A part: its memory, how many bytes of it [B], and whether dies and stacks share an interposer."""

    id: str
    memory: str
    capacity: float
    interposer: bool


@members
class SoldDie:
    """A kind of die on a package [m2, 1].

    Parameters
    ----------
    gross : whole dies of a wafer [1].
    usable : share of them that can be sold [1].
    """

    name: str
    node: str
    area: float
    count: int
    units: int | None
    sold: int | None
    gross: float
    usable: float


@members
class PartPrice(Quote):
    """A price of a part, and what was sold with it."""

    scope: str


@members
class Amount:
    """A sum of money."""

    value: float
    unit: str


@members
class ChipAnswer(Answer):
    """What a part costs to make."""

    chip: ChipMember = ABSENT
    cost: Sampled = ABSENT
    dies: list[SoldDie] = ABSENT
    absent: list[str] = ABSENT
    parts: dict[str, float] = ABSENT
    perfect_dies: dict[str, float] = ABSENT
    price: PartPrice = ABSENT
    gross_margin: Ranged = ABSENT
    design: Amount = ABSENT
    explain: Tree = ABSENT
    sources: dict[str, DocumentMember] = ABSENT


def chip_answer(found: Bill, asked: ChipInputs, *, depth: int) -> ChipAnswer:
    """Return the answer of ``roofplan cost chip``.

    Parameters
    ----------
    found : the part's bill of materials, with its price and margin.
    asked : inputs of the command.
    depth : levels of the explanation [1].

    Returns
    -------
    The answer, money in USD.
    """
    at, p = central(found.inputs), found.price
    return answered(
        ChipAnswer,
        "cost chip",
        asked,
        warnings=() if p is None else stale_warning(found.chip.id, p.date),
        chip=view(ChipMember, found.chip),
        cost=sampled(found.cost, found.swings, "USD"),
        dies=[view(SoldDie, d, gross=gross_dies(d), usable=float(usable(d, at))) for d in found.chip.dies],
        absent=found.absent,
        parts={part.name: float(part.value) for part in found.term.parts},
        perfect_dies=found.rivals,
        price=ABSENT if p is None else view(PartPrice, p, unit="USD"),
        gross_margin=ABSENT if found.margin is None else ranged(found.margin, "1"),
        design=ABSENT if found.design is None else Amount(value=found.design, unit="USD"),
        explain=tree(found.term, depth),
        sources=cited([*found.term.bibliography(), *(item.cited for item in found.inputs.values())]),
    )


# Machines ----------------------------------------------------------------------------------------


@members
class Bought:
    """Something that is bought, and its dated price for one [USD]."""

    name: str
    count: float
    price: float
    date: str | None
    source: str


@members
class Purchase(Amount):
    """What is bought."""

    items: list[Bought]


@members
class MachineName:
    """A machine as the command line writes it."""

    text: str
    device: str
    count: int


@members
class Compared:
    """A quotation that owning is set against [USD/h]."""

    value: float
    date: str
    source: str


@members
class RentOfIt:
    """Owning beside renting the same machine.

    Parameters
    ----------
    low, high : rents on demand of a device in the newest half year [USD/h], of so many `quotations`, the newest of `date`.
    compared : the quotation that owning is set against, null where none holds for this size.
    break_even_use : share of the hours from which owning is cheaper, above 1 where never [1].
    payback : until the machine has earned its price at that rent [s].
    """

    low: float
    high: float
    unit: str
    quotations: int
    date: str
    compared: Compared | None
    break_even_use: float | None
    payback: Amount | None


@members
class SupplyMember:
    """What a server draws, its power supplies and its rack [W], servers of a rack, and plugs by their rating [1]."""

    power: float
    supplies: float
    rack: float
    servers: int
    plugs: dict[str, int]


@members
class OwnedMachine:
    """An hour of a machine of one's own."""

    machine: MachineName
    purchase: Purchase
    cost_per_hour: Sampled
    parts: dict[str, float]
    per_petaflop_hour: dict[str, float]
    rent: RentOfIt | None
    supply: SupplyMember | None
    absent: list[str]
    assumed: list[str]
    explain: Tree


@members
class MachineAnswer(Answer):
    """What machines of one's own cost per hour."""

    machines: list[OwnedMachine] = ABSENT
    sources: dict[str, DocumentMember] = ABSENT


def machine_answer(found: Sequence[Owned], asked: MachineInputs, *, depth: int) -> MachineAnswer:
    """Return the answer of ``roofplan cost machine``.

    Parameters
    ----------
    found : owned machines, in the order shown.
    asked : inputs of the command.
    depth : levels of each machine's explanation [1].

    Returns
    -------
    The answer, costs in USD/h.
    """
    return answered(
        MachineAnswer,
        "cost machine",
        asked,
        warnings=[warning for one in found for warning in one.warnings],
        machines=[
            view(
                OwnedMachine,
                one,
                machine=view(MachineName, one.machine, device=one.machine.device.id),
                purchase=Purchase(
                    value=one.purchase,
                    unit="USD",
                    items=[view(Bought, item, date=item.date or None) for item in one.items],
                ),
                cost_per_hour=sampled(one.interval(), one.swings(), "USD/h"),
                parts={part.name: float(part.value) for part in one.term.parts},
                per_petaflop_hour=per_petaflop_hour(one),
                rent=_beside_renting(one),
                supply=_supply(one),
                explain=tree(one.term, depth),
            )
            for one in found
        ],
        sources=cited(key for one in found for key in one.term.bibliography()),
    )


def _supply(owned: Owned) -> SupplyMember | None:
    found = fed(owned)
    return (
        None
        if found is None
        else view(SupplyMember, found, plugs={f"{watts:g} W": n for watts, n in found.plugs.items()})
    )


def _beside_renting(owned: Owned) -> RentOfIt | None:
    """Return owning beside renting; null without rents of the device."""
    found = against(owned)
    return (
        None
        if found is None
        else view(
            RentOfIt,
            found,
            unit="USD/h",
            compared=None if found.rent is None else view(Compared, found.rent),
            break_even_use=found.use,
            payback=None if found.payback is None else Amount(value=found.payback, unit="s"),
        )
    )


# Rents and history -------------------------------------------------------------------------------


@members
class Quotation:
    """A dated rent, for how long and for how many devices at once."""

    kind: str
    value: float
    unit: str
    date: str
    provider: str | None
    term: str | None
    count: int | None
    source: str


@members
class RentAnswer(Answer):
    """The dated rents of a device."""

    device: str = ABSENT
    quotations: list[Quotation] = ABSENT


def rent_answer(device: str, found: Sequence[Rent], asked: RentInputs) -> RentAnswer:
    """Return the answer of ``roofplan cost rent``.

    Parameters
    ----------
    device : id of the device.
    found : its dated rents [USD/h].
    asked : inputs of the command.

    Returns
    -------
    The answer, with a warning for each kind of rent whose newest quotation is stale.
    """
    newest = {kind: max((q.price.newest_possible for q in found if q.price.kind == kind), default="") for kind in RENTS}
    quotations = [view(Quotation, q.price, provider=q.price.provider or None, term=q.price.term or None) for q in found]
    return answered(
        RentAnswer,
        "cost rent",
        asked,
        warnings=[
            one for kind, date in newest.items() for one in stale_warning(f"{device} ({kind}), the newest", date)
        ],
        device=device,
        quotations=quotations,
    )


@members
class MilestoneMember:
    """A device at its launch: its oldest known price over its dense rates, by bits of an operand."""

    device: str
    launched: str
    price: Quote
    usd_per_flops: dict[str, float]
    usd_per_transistor: float | None


@members
class Years:
    """A span of years with its bounds; null for one without an end."""

    value: float | None
    low: float | None
    high: float | None
    unit: str
    grade: Grade


@members
class Halving:
    """Years in which the price of a rate halves over a class of devices.

    Parameters
    ----------
    spread : standard deviation of the logarithms of their prices about the trend [1].
    """

    device_class: str
    operand: str
    years: Years
    devices: int
    spread: float


@members
class GainMember:
    """How much faster one device is than another; the factors multiply to `whole`."""

    from_: str
    to: str
    years: float | None
    whole: float
    factors: dict[str, float]


@members
class HistoryAnswer(Answer):
    """Prices of a rate and of a transistor over the years."""

    devices: list[MilestoneMember] = ABSENT
    halving: list[Halving] = ABSENT
    gain: GainMember = ABSENT
    sources: dict[str, DocumentMember] = ABSENT


def history_answer(found: Sequence[Milestone], step: Gain, asked: HistoryInputs) -> HistoryAnswer:
    """Return the answer of ``roofplan cost history``.

    Parameters
    ----------
    found : devices at their launch.
    step : one device compared with an older one.
    asked : inputs of the command.

    Returns
    -------
    The answer: prices by device, the halving time of each class and operand width that has a trend, and the gain.
    """
    trends = [(kind, bits, fit_trend(found, bits, kind)) for kind in CLASSES for bits in WIDTHS]
    return answered(
        HistoryAnswer,
        "cost history",
        asked,
        devices=[
            MilestoneMember(
                device=one.device.id,
                launched=one.device.launched,
                price=view(Quote, one.price, unit="USD"),
                usd_per_flops=one.per_rate,
                usd_per_transistor=one.per_transistor,
            )
            for one in found
        ],
        halving=[
            view(
                Halving,
                trend,
                device_class=kind,
                operand=bits,
                years=view(Years, trend.halving, value=trend.halving.central, unit="year"),
            )
            for kind, bits, trend in trends
            if trend is not None
        ],
        gain=view(GainMember, step, from_=step.old.id, to=step.new.id),
        sources=cited(document(key) for key in (*(one.price.source for one in found), *step.sources)),
    )
