"""The request of a pool: model, members, software, load."""

from __future__ import annotations

from dataclasses import dataclass

from roofplan import catalogue
from roofplan.catalogue.machines import machine
from roofplan.errors import InputError, choice, nearest
from roofplan.hf.quantization import at_precision
from roofplan.inputs import Pooled
from roofplan.money.energy import electricity
from roofplan.operations.table import element_bytes
from roofplan.pool.members import members
from roofplan.records import units
from roofplan.records.engine import Engine
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.pool import Member, PoolSoftware
from roofplan.records.source import Sourced, stated
from roofplan.records.workload import Workload
from roofplan.serving.request import check_served, known_format, lengths_of
from roofplan.serving.rules import supported
from roofplan.serving.space import cache_format, held_by, refuses_format

ENGINE = "llama.cpp"
"""Engine whose constants time the stages: it runs on the cards of homes of all makers."""

GOALS = ("latency", "throughput")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRequest:
    """What a pool is planned for.

    Parameters
    ----------
    model : the model in the format of its weights.
    members : who takes part.
    machines : the device of each member, as a machine.
    software : what carries activations between them.
    engine : engine whose constants time the stages.
    workload : lengths of a request.
    kv_bytes : bytes of one cached number [B].
    best : ``latency`` of one user, or ``throughput`` of many.
    client : member that asks, None where every member may.
    tariff : price of electricity of members that do not say.
    """

    model: Model
    members: tuple[Member, ...]
    machines: tuple[Machine, ...]
    software: PoolSoftware
    engine: Engine
    workload: Workload
    kv_bytes: float
    best: str
    client: int | None
    tariff: Sourced


def pool_request(model: Model, asked: Pooled) -> PoolRequest:
    """Return the request of a pool.

    Parameters
    ----------
    model : the model as its checkpoint stores it.
    asked : inputs of a command, as the user gave them.

    Returns
    -------
    The request.

    Raises
    ------
    InputError : an unknown name, or a card or format that the engine does not run.
    """
    prompt, answer, context = lengths_of(asked, asked.context, model.max_positions)
    workload = Workload(input=prompt, output=answer, context=context)
    check_served(model, workload, asked.context)
    engine = catalogue.engine(catalogue.find("engines", ENGINE, "--engine"))
    known = catalogue.pools().software
    who = members(asked.member, asked.members)
    machines = tuple(_machine(one) for one in who)
    stored = model if asked.precision is None else at_precision(model, known_format(asked.precision, "--precision"))
    stored = held_by(stored, engine)
    for one, own in zip(who, machines, strict=True):
        why = supported(engine, own)
        if why:
            raise InputError(f"--member: {one.name}: {why}", argument="--member", value=one.device.id)
        unread = refuses_format(stored, engine, own)
        if unread:
            raise InputError(f"--precision: {unread}; q4_k_m or q8_0 is read", argument="--precision")
    return PoolRequest(
        model=stored,
        members=who,
        machines=machines,
        software=known[choice(asked.software, known, "--software")],
        engine=engine,
        workload=workload,
        kv_bytes=element_bytes(cache_format(stored, "checkpoint")),
        best=choice(asked.best, GOALS, "--best"),
        client=_client(asked.client, [one.name for one in who]),
        tariff=_tariff(asked),
    )


def _client(name: str | None, names: list[str]) -> int | None:
    if name is None:
        return None
    name = name if name in names else catalogue.aliases("accelerators").get(name.lower(), name)
    if name not in names:
        raise InputError(
            f"--client: no member {name!r}. Members: {', '.join(names[:12])}",
            argument="--client",
            value=name,
            nearest=nearest(name, names),
        )
    return names.index(name)


def _tariff(asked: Pooled) -> Sourced:
    """Return the price of electricity of members that do not say."""
    if asked.electricity is None:
        return electricity(asked.place)
    price = units.parse(asked.electricity, "USD/kWh", "--electricity", positive=False)
    if price < 0.0:
        raise InputError("--electricity: a price is not negative", argument="--electricity", value=asked.electricity)
    return stated(price / units.JOULE_PER_KWH, "USD/J")


def _machine(member: Member) -> Machine:
    """Return a member's card as a machine of one device."""
    if member.device.id in catalogue.ids("accelerators"):
        return machine(f"{member.device.id}:1", "--member")[0]
    return Machine(device=member.device, hosts=1, per_host=1, text=member.device.id)
