"""The request of a pool: model, members, software, load."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from roofplan import catalogue
from roofplan.catalogue.machines import machine
from roofplan.errors import InputError, choice, nearest
from roofplan.operations.table import element_bytes
from roofplan.pool.members import members
from roofplan.records.engine import Engine
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.pool import Member, PoolSoftware
from roofplan.records.workload import Workload
from roofplan.serving.request import known_format
from roofplan.serving.rules import supported
from roofplan.serving.space import at_precision, cache_format, in_files_of, refuses_format

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
    place : whose electricity members pay that do not say.
    named : the model as the user named it.
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
    place: str
    named: str

    def of(self, kept: Iterable[int]) -> PoolRequest:
        """Return the request with some of its members alone."""
        kept = list(kept)
        client = None if self.client is None or self.client not in kept else kept.index(self.client)
        return replace(
            self,
            members=tuple(self.members[k] for k in kept),
            machines=tuple(self.machines[k] for k in kept),
            client=client,
        )


def pool_request(
    model: Model,
    workload: Workload,
    texts: Iterable[str],
    *,
    file: str | None = None,
    precision: str | None = None,
    software: str = ENGINE,
    best: str = GOALS[0],
    client: str | None = None,
    place: str = "WOR",
    named: str = "",
) -> PoolRequest:
    """Return the request of a pool.

    Parameters
    ----------
    model : the model as its checkpoint stores it.
    workload : lengths of a request.
    texts, file : members, as `roofplan.pool.members.members` reads them.
    precision : format of the weights, None for the checkpoint's own.
    software : what joins the members, of the catalogue.
    best : ``latency`` or ``throughput``.
    client : name of the member that asks, None where every member may.
    place : whose electricity members pay that do not say.
    named : the model as the user named it.

    Returns
    -------
    The request.

    Raises
    ------
    InputError : an unknown name, or a card or format that the engine does not run.
    """
    engine = catalogue.engine(catalogue.find("engines", ENGINE, "--engine"))
    known = catalogue.pools().software
    who = members(texts, file)
    machines = tuple(_machine(one) for one in who)
    stored = model if precision is None else at_precision(model, known_format(precision, "--precision"))
    stored = in_files_of(stored, engine)
    for one, own in zip(who, machines, strict=True):
        why = supported(engine, own)
        if why:
            raise InputError(f"--member: {one.name}: {why}", argument="--member", value=one.device.id)
        unread = refuses_format(stored, engine, own)
        if unread:
            raise InputError(f"--precision: {unread}; q4_k_m or q8_0 is read", argument="--precision")
    names = [one.name for one in who]
    if client is not None and client not in names:
        near = nearest(client, names)
        raise InputError(
            f"--client: no member {client!r}. Members: {', '.join(names[:12])}",
            argument="--client",
            value=client,
            nearest=near,
        )
    return PoolRequest(
        model=stored,
        members=who,
        machines=machines,
        software=known[choice(software, known, "--software")],
        engine=engine,
        workload=workload,
        kv_bytes=element_bytes(cache_format(stored, "checkpoint")),
        best=choice(best, GOALS, "--best"),
        client=None if client is None else names.index(client),
        place=place,
        named=named or model.id,
    )


def _machine(member: Member) -> Machine:
    """Return a member's card as a machine of one device."""
    if member.device.id in catalogue.ids("accelerators"):
        return machine(f"{member.device.id}:1", "--member")[0]
    return Machine(device=member.device, hosts=1, per_host=1, text=member.device.id)
