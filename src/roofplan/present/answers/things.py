"""The answers of ``roofplan model``, ``device`` and the lists."""

from __future__ import annotations

from collections.abc import Sequence

from roofplan.inputs import DeviceInputs, ListInputs, ModelInputs
from roofplan.present.answers.record import ABSENT, Answer, SourcedMember, answered, members, sourced, view
from roofplan.present.screens.plans import weights_text
from roofplan.records.hardware import Accelerator, Server
from roofplan.records.model import Model
from roofplan.serving.sheet import sheet

# Models ------------------------------------------------------------------------------------------


@members
class ParameterCounts:
    """Parameters of a model [1]; `active` null where experts per token are not stated."""

    total: int
    active: int | None
    embedding: int
    head: int


@members
class Cache:
    """Cache of a context of so many `tokens` [B].

    Parameters
    ----------
    bytes_per_token : what one more token adds there.
    state_bytes : what a sequence holds whatever its length.
    cross_positions : of an encoder that the decoder attends to [1].
    """

    bytes: int
    bytes_per_token: int
    state_bytes: int
    tokens: int
    precision: str
    cross_positions: int = ABSENT


@members
class Flops:
    """Work of a generated token [FLOP]."""

    matmul_per_token: int | None
    head_per_token: int


@members
class Weights:
    """Bytes of the weights, and their format."""

    bytes: int
    format: str


@members
class Draft:
    """Layers of a checkpoint that draft tokens, and their parameters, null where they are not known [1]."""

    layers: int
    parameters: int | None


@members
class ModelAnswer(Answer):
    """What a model is.

    Parameters
    ----------
    layers : [parameters, repeat] of each run of equal layers, by stack.
    tied : whether the head is the embedding.
    """

    id: str = ABSENT
    family: str = ABSENT
    parameters: ParameterCounts = ABSENT
    cache: Cache = ABSENT
    flops: Flops = ABSENT
    layers: dict[str, list[list[int]]] = ABSENT
    weights: Weights = ABSENT
    hidden: int = ABSENT
    vocabulary: int = ABSENT
    max_positions: int | None = ABSENT
    tied: bool = ABSENT
    draft: Draft = ABSENT
    sha256: str | None = ABSENT
    generates: bool = ABSENT


def model_answer(model: Model, tokens: int, kv_precision: str, asked: ModelInputs) -> ModelAnswer:
    """Return the answer of ``roofplan model``.

    Parameters
    ----------
    model : the model.
    tokens : context length at which the cache is counted [token].
    kv_precision : number format of the cache.
    asked : inputs of the command.

    Returns
    -------
    The answer.

    Raises
    ------
    KeyError : the catalogue does not describe `kv_precision`.
    """
    facts = sheet(model, tokens, kv_precision)
    return answered(
        ModelAnswer,
        "model",
        asked,
        warnings=[("model", text) for text in model.warnings],
        **{name: getattr(model, name) for name in SAID},
        parameters=view(ParameterCounts, model),
        cache=Cache(
            bytes=round(facts.cache),
            bytes_per_token=round(facts.cache_per_token),
            state_bytes=round(facts.state),
            tokens=tokens,
            precision=kv_precision,
            cross_positions=facts.cross_positions or ABSENT,
        ),
        flops=Flops(
            matmul_per_token=facts.work_per_token,
            head_per_token=facts.head_work,
        ),
        layers=model.layer_runs(),
        weights=Weights(bytes=round(facts.weights), format=weights_text(model)),
        draft=Draft(layers=model.draft_layers, parameters=model.draft_parameters),
    )


SAID = ("id", "family", "hidden", "vocabulary", "max_positions", "tied", "sha256", "generates")
"""What an answer says of a model as its record has it."""


# Devices -----------------------------------------------------------------------------------------


@members
class DeviceMember:
    """A device: every number with its source; peaks are dense unless they stand under ``sparse``."""

    id: str
    name: str
    vendor: str
    architecture: str
    quantities: dict[str, SourcedMember]
    peak: dict[str, SourcedMember]
    sparse: dict[str, SourcedMember]
    measured: dict[str, SourcedMember]
    scale_up: str | None
    host_link: str | None
    peer_to_peer: str | None
    geforce_licence: bool
    aliases: list[str]
    notes: list[str]


@members
class ServerMember:
    """A server: its device, and every number with its source."""

    id: str
    name: str
    accelerator: str
    network: str | None
    quantities: dict[str, SourcedMember]
    aliases: list[str]
    notes: list[str]


@members
class Match:
    """A peak that a quoted rate may be, and how far that lies from it [1]."""

    match: str
    difference: float


@members
class DeviceAnswer(Answer):
    """What a device is, or which of its peaks a quoted rate is."""

    device: DeviceMember = ABSENT
    server: ServerMember = ABSENT
    what_is: list[Match] = ABSENT


def device_answer(found: Accelerator, server: Server | None, asked: DeviceInputs) -> DeviceAnswer:
    """Return the answer of ``roofplan device``.

    Parameters
    ----------
    found : the device.
    server : the server that was asked for, None where it was the device itself.
    asked : inputs of the command.

    Returns
    -------
    The answer.
    """
    tables = {name: sourced(getattr(found, name)) for name in ("quantities", "peak", "sparse", "measured")}
    box = ABSENT if server is None else view(ServerMember, server, quantities=sourced(server.quantities))
    return answered(DeviceAnswer, "device", asked, device=view(DeviceMember, found, **tables), server=box)


def match_answer(found: Sequence[tuple[float, str]], asked: DeviceInputs) -> DeviceAnswer:
    """Return the answer of ``roofplan device --what-is``.

    Parameters
    ----------
    found : peaks that the quoted rate may be: relative difference [1] and text.
    asked : inputs of the command.

    Returns
    -------
    The answer.
    """
    matches = [Match(match=text, difference=off) for off, text in found]
    return answered(DeviceAnswer, "device", asked, what_is=matches)


# Lists -------------------------------------------------------------------------------------------


@members
class Item:
    """What a list holds."""

    id: str
    text: str


@members
class ListAnswer(Answer):
    """What the catalogue holds."""

    items: list[Item] = ABSENT


def list_answer(name: str, found: Sequence[tuple[str, str]], asked: ListInputs) -> ListAnswer:
    """Return the answer of a list command.

    Parameters
    ----------
    name : name of the list, which is the command.
    found : pairs of id and text.
    asked : inputs of the command.

    Returns
    -------
    The answer.
    """
    return answered(ListAnswer, name, asked, items=[Item(id=one, text=words) for one, words in found])
