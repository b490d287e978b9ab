"""Records whose fields are the members of JSON answers, so that documents and their schemas are declared once."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, dataclass_transform

from roofplan import catalogue
from roofplan._version import __version__
from roofplan.catalogue import profile
from roofplan.errors import NoPlan, RoofplanError
from roofplan.inputs import STDIN, Inputs
from roofplan.present.screens.explain import document_text
from roofplan.records.calibration import Fit
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.source import Sourced
from roofplan.records.terms import Cited, Term
from roofplan.timing.figures import Limit, Metric

SCHEMA_VERSION = "5"

T = TypeVar("T")


class _Absent:
    """Stands for a member that an answer does not have."""


ABSENT: Any = _Absent()
"""Default of a member that stands in a document only where there is something to say."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
def members(cls: type[T]) -> type[T]:
    """Return a class whose annotations are the members of an object of JSON: a frozen record."""
    return dataclass(frozen=True, kw_only=True, slots=True)(cls)


def plain(value: object) -> Any:
    """Return records, mappings and sequences as JSON.

    Parameters
    ----------
    value : a record, mapping, sequence or plain value.

    Returns
    -------
    The value as JSON; members that equal `ABSENT` are left out, and numbers that are not finite become null.
    """
    if isinstance(value, Inputs):
        return plain(value.as_json())
    if is_dataclass(value):
        named = ((one.name.rstrip("_"), getattr(value, one.name)) for one in fields(value))
        return {name: plain(member) for name, member in named if member is not ABSENT}
    if isinstance(value, Mapping):
        return {str(name): plain(member) for name, member in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [plain(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def view(record: Callable[..., T], source: object, **own: object) -> T:
    """Return a record of the attributes that another has of the same names, beside its own members."""
    names = (one.name for one in fields(record) if one.name not in own and hasattr(source, one.name))  # type: ignore[arg-type]
    return record(**{name: getattr(source, name) for name in names}, **own)


# Members of several answers ----------------------------------------------------------------------

Grade = Literal["measured", "calibrated", "borrowed", "guessed"]
Json = dict[str, Any]


@members
class MetricMember:
    """A number with its 90% interval and its grade.

    Parameters
    ----------
    causes : why it may be off: relative errors of independent causes, one standard deviation each [1].
    """

    value: float
    low: float
    high: float
    unit: Literal["s", "day", "token/s", "B", "W", "J", "gCO2", "device-hour", "USD", "USD/h", "USD/Mtoken", "1"]
    grade: Grade
    causes: dict[str, float] = ABSENT


def metrics(found: Mapping[str, Metric]) -> dict[str, MetricMember]:
    """Return metrics by name."""
    rounded = {name: {cause: round(size, 4) for cause, size in one.causes} for name, one in found.items()}
    return {name: view(MetricMember, one, causes=rounded[name] or ABSENT) for name, one in found.items()}


@members
class Tree:
    """A figure, its formula with the numbers put in, and the parts that it is made of."""

    name: str
    value: float
    unit: str
    law: str = ABSENT
    formula: str = ABSENT
    sources: list[str] = ABSENT
    combine: str = ABSENT
    parts: list[Tree] = ABSENT


def tree(term: Term, depth: int) -> Tree:
    """Return a Term and what is below it, `depth` levels deep."""
    deeper = bool(term.parts) and depth > 0
    return Tree(
        name=term.name,
        value=float(term.value),
        unit=term.unit,
        law=term.law or ABSENT,
        formula=term.formula() if term.text else ABSENT,
        sources=[one.citation for one in term.sources] or ABSENT,
        combine=term.combine if deeper else ABSENT,
        parts=[tree(part, depth - 1) for part in term.parts] if deeper else ABSENT,
    )


@members
class Bound:
    """A limit and its share of the time."""

    limit: Limit
    share: float


@members
class SourcedMember:
    """A number of the catalogue, in SI and as its source writes it."""

    value: float
    unit: str
    text: str
    source: str
    seen: str
    kind: str


def sourced(numbers: Mapping[str, Sourced]) -> dict[str, SourcedMember]:
    """Return numbers with their sources by name."""
    return {name: view(SourcedMember, number) for name, number in numbers.items()}


@members
class DocumentMember:
    """A document or a fitted constant that numbers rest on."""

    text: str


def cited(found: Iterable[Cited]) -> dict[str, DocumentMember]:
    """Return documents and constants by what cites them."""
    return {key: DocumentMember(text=document_text(key)) for key in dict.fromkeys(one.citation for one in found)}


@members
class ModelMember:
    """Which model it is."""

    id: str
    sha256: str | None
    parameters: int


def model_member(found: Model) -> ModelMember:
    """Return which model it is."""
    return view(ModelMember, found, parameters=found.total)


def shown_model(asked: object, identity: str) -> str:
    """Return how the command line names the model that was asked for: its standard input, a path, or its id where it was an object."""
    if asked == STDIN:
        return "-"
    return shlex.quote(str(asked) if isinstance(asked, str | Path) and asked else identity)


def metric_columns(found: Mapping[str, Metric]) -> dict[str, float]:
    """Return metrics as columns of a table: each with its bounds."""
    ends = {"": "value", "_low": "low", "_high": "high"}
    return {f"{name}{end}": getattr(one, part) for name, one in found.items() for end, part in ends.items()}


@members
class MachineMember:
    """Where a plan runs, and the network between its hosts.

    Parameters
    ----------
    ports : network ports of a host [1].
    pod, taper : devices of a pod, and how many share the rate of one beyond it [1].
    """

    text: str
    device: str
    count: int
    hosts: int
    per_host: int
    network: str = ABSENT
    ports: float = ABSENT
    pod: float = ABSENT
    taper: float = ABSENT


def machine_member(found: Machine) -> MachineMember:
    """Return a machine, what joins its hosts left out."""
    return view(MachineMember, found, device=found.device.id, network=ABSENT, ports=ABSENT)


def joined_machine(found: Machine) -> MachineMember:
    """Return a machine, with its network where hosts have one between them."""
    if found.network is None:
        return machine_member(found)
    spread = {name: x for name in ("pod", "taper") if (x := found.network.value(name)) is not None}
    return view(MachineMember, found, device=found.device.id, network=found.network.id, **spread)


@members
class Quote:
    """A dated price."""

    value: float
    unit: str
    kind: str
    date: str
    source: str


LONG = {"explain", "api_apart", "tornado"}
"""Members that a table leaves out."""


def rows_of(found: Iterable[object]) -> list[Json]:
    """Return members as rows of a table, lists and explanations left out.

    Parameters
    ----------
    found : members of an answer.

    Returns
    -------
    One row for each; what stands inside another member is named after both.
    """

    def flat(document: Json, before: str = "") -> Json:
        row: Json = {}
        for name, value in document.items():
            if isinstance(value, dict) and name not in LONG:
                row |= flat(value, f"{before}{name}_")
            elif not isinstance(value, dict | list):
                row[before + name] = value
        return row

    return [flat(plain(one)) for one in found]


# Answers -----------------------------------------------------------------------------------------


@members
class Versions:
    """What computed the answer.

    Parameters
    ----------
    prices_to : month of the newest price.
    profile : constants of the user's own runs that the answer rests on.
    """

    roofplan: str
    catalogue: str
    prices_to: str
    profile: str = ABSENT


@members
class Warn:
    """What a reader must know."""

    code: str
    text: str


@members
class Search:
    """How many configurations there were, obey the rules, fit the memory and were timed [1], and the CPU time from first to last [s]."""

    enumerated: int
    legal: int
    fits: int
    predicted: int
    seconds: float


def searched(found: object) -> Search:
    """Return how many configurations a search went through."""
    return view(Search, found)


@members
class NoPlanMember:
    """Why nothing satisfies the constraints."""

    binding: str
    message: str
    relax: list[Json]


@members
class ErrorMember:
    """What was wrong with the input."""

    code: str
    argument: str | None
    value: str | float | int | bool | None
    nearest: list[str]
    message: str


@members
class Answer:
    """What every document holds; at most one of the command's own members, ``no_plan`` and ``error``."""

    schema_version: Literal["5"]
    command: str
    status: Literal["ok", "no_plan", "error"]
    versions: Versions
    inputs: Inputs
    warnings: list[Warn]
    search: Search = ABSENT
    no_plan: NoPlanMember = ABSENT
    error: ErrorMember = ABSENT


def answered(
    record: Callable[..., T],
    command: str,
    asked: Inputs,
    *,
    status: str = "ok",
    warnings: Iterable[tuple[str, str]] = (),
    fit: Fit | None = None,
    **own: object,
) -> T:
    """Return the answer of a command.

    Parameters
    ----------
    record : the `Answer` to make, of which `own` are the members that others do not have.
    warnings : codes and texts, each shown once.
    fit : constants that the answer rests on, where they are known; a local profile that is not among them is not named.
    """
    rests = command in profile.USED_BY
    shipped = catalogue.shipped_fit() if rests else None
    stale = profile.stale(shipped) if shipped else ""
    used = profile.said(shipped) if shipped else ""
    if shipped and used and fit is not None and fit != profile.over(shipped, profile.path()):
        used = ""
    said = (*((("stale_profile", stale),) if stale else ()), *warnings)
    return record(
        schema_version=SCHEMA_VERSION,
        command=command,
        status=status,
        versions=Versions(
            roofplan=__version__,
            catalogue=catalogue.version(),
            prices_to=catalogue.prices_to(),
            profile=used or ABSENT,
        ),
        inputs=asked,
        warnings=[Warn(code=code, text=text) for code, text in dict.fromkeys(said)],
        **own,
    )


def failure(command: str, asked: Inputs, error: RoofplanError) -> Answer:
    """Return the answer of a command that found no plan or was given bad input.

    Parameters
    ----------
    command : name of the command.
    asked : inputs of the command.
    error : why there is no plan, or what is wrong with the input.

    Returns
    -------
    The answer, with status ``no_plan`` or ``error``.
    """
    if isinstance(error, NoPlan):
        why = view(NoPlanMember, error)
        return answered(
            Answer,
            command,
            asked,
            status="no_plan",
            search=searched(error.search) if error.search else ABSENT,
            no_plan=why,
        )
    return answered(Answer, command, asked, status="error", error=view(ErrorMember, error, value=error.shown))
