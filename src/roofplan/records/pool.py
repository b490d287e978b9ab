"""Members of a pool of other people's machines, and the software that joins them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from roofplan.records.hardware import Accelerator
from roofplan.records.source import Sourced

CLIENT, LAST = "client", "last"
"""Where an output layer stands: with the member that holds the embedding and asks, or with the last stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSoftware:
    """What carries activations between members.

    Parameters
    ----------
    route : ``hub`` where every stage returns its result to the client, ``ring`` where it sends it to the next stage, ``all``
        where every member computes a slice of every layer.
    outputs : where the output layer may stand.
    sampled : where tokens are drawn: logits travel from an output layer that stands elsewhere.
    guard : how its messages are protected.
    overlaps : whether stages work on different requests at the same time.
    restarts : ``all`` where every stage starts again when a member leaves, ``stage`` where its own does.
    loads : where a stage's weights come from: ``client``, ``hub`` or ``disk``.
    quantities : ``hidden`` and ``logit``, bytes of a number that is sent [B]; ``hop``, time of the software at each hop [s];
        of a hub that sends more with a prompt, ``copies`` of its hidden states [1] and ``mask``, bytes for each pair of tokens [B];
        of members that share layers, ``syncs`` of a layer, and the ``serial`` share of work that each repeats [1].
    """

    id: str
    name: str
    route: Literal["hub", "ring", "all"]
    outputs: tuple[str, ...]
    sampled: str
    overlaps: bool
    restarts: Literal["all", "stage"]
    loads: Literal["client", "hub", "disk"]
    guard: str
    source: str
    quantities: Mapping[str, Sourced]

    def __hash__(self) -> int:
        """Return the hash of the id."""
        return hash(self.id)

    @property
    def shares_layers(self) -> bool:
        """Whether every member computes a slice of every layer."""
        return self.route == "all"

    def value(self, name: str) -> float:
        """Return a quantity in SI."""
        return self.quantities[name].value


@dataclass(frozen=True, slots=True, kw_only=True)
class Cheat:
    """How a member cheats.

    Parameters
    ----------
    says : what it does, in words.
    patient : whether it first earns trust with honest work.
    colludes : whether cheaters of this kind return the same wrong result.
    quantities : ``cheats``, share of jobs; ``saves``, share of a job's work; ``audited`` and ``compared``, probability
        that an audit, and that a comparison with an honest result, tells the cheat [1].
    """

    id: str
    says: str
    patient: bool
    colludes: bool
    quantities: Mapping[str, Sourced]

    def value(self, name: str) -> float:
        """Return a quantity [1]."""
        return self.quantities[name].value


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRules:
    """Software and cheats by id, what is assumed of members, and how far what is known of links may be off.

    Parameters
    ----------
    assumed : ``rtt`` [s], ``disk`` [B/s] and ``life`` of a card [s].
    margins : factors either way within which nine in ten cases lie: ``wire``, ``assumed_wire``, ``given_rtt``, ``shared_host`` [1];
        ``started``, time that loading takes beyond the wire [s].
    trust : of adaptive replication: ``valid`` results that earn trust, ``quorum`` of results that must agree [1].
    """

    software: Mapping[str, PoolSoftware]
    cheats: Mapping[str, Cheat]
    assumed: Mapping[str, Sourced]
    margins: Mapping[str, Sourced]
    trust: Mapping[str, Sourced]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedProof:
    """A run over shaped links that was measured.

    Parameters
    ----------
    host : where, and how links were shaped.
    config : config.json of the model.
    layers : of each worker, the last of which has the output layer [1].
    quantities : ``rate`` of a link [B/s], ``weights`` that workers hold [B], time of a token ``alone`` and of a prompt ``prompt_alone`` without links,
        of a ``token`` and a ``prompt`` over them [s],
        ``received_per_token`` and ``sent_to_load`` [B], and time of the ``load`` [s].
    """

    date: str
    host: str
    software: str
    model: str
    config: Mapping[str, object]
    layers: tuple[int, ...]
    prompt_tokens: int
    quantities: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A machine that somebody gives to a pool.

    Parameters
    ----------
    name : name in the pool.
    device : its card.
    down, up : rates of its link to the others' meeting point, a switch or an exchange [B/s].
    rtt : round trip to that point [s].
    link : the link in words.
    memory : memory that it gives, None for all of its device's [B].
    online : share of the time that it is there, None where it does not say [1].
    hours : when of the day it is there, from and to, None where it does not say [s].
    electricity : its price, None for the place's [USD/J].
    assumed : which of ``rate`` and ``rtt`` are assumed.
    """

    name: str
    device: Accelerator
    down: float
    up: float
    rtt: float
    link: str
    memory: float | None = None
    online: float | None = None
    hours: tuple[float, float] | None = None
    electricity: float | None = None
    assumed: frozenset[str] = frozenset()

    @property
    def kind(self) -> tuple[object, ...]:
        """What members that are alike have in common."""
        return (self.device, self.down, self.up, self.rtt, self.memory, self.online, self.electricity)
