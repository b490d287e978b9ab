"""The answer of ``roofplan measure machine``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from roofplan.inputs import ProbeInputs
from roofplan.measure.machine.probe import Figure
from roofplan.observe import Attained
from roofplan.present.answers.record import ABSENT, Answer, Json, answered, members


@members
class FigureMember:
    """A measured figure: its kind, what it is of, best and median of the windows that count; null where none does."""

    kind: str
    about: Json
    best: float | None
    median: float | None
    kept: int
    windows: int
    unit: str


@members
class LinkMember:
    """A link: alpha [s] and beta [B/s] of the time of a message, and the worst relative error of that line [1]."""

    name: str
    alpha: float
    beta: float
    worst: float


@members
class VerdictMember:
    """An attained rate beside the data sheet's and the best published; null where there is none."""

    figure: str
    attained: float
    unit: str
    sheet: float | None
    published: float | None
    source: str
    verdict: Literal["normal", "low", "above"] | None
    why: str


@members
class MachineMember:
    """What a machine attains.

    Parameters
    ----------
    run : in the ledger, null where it is not kept.
    like : device of the catalogue that it is, null where it is none.
    drop : share of its first rate that a sustained run lost, null without one [1].
    sustained : each second of that run.
    chip : TOML file that ``--on`` takes.
    """

    run: int | None
    id: str
    like: str | None
    device: str
    backend: str
    threads: int
    conditions: dict[str, str]
    cache: int | None
    memory: int | None
    figures: list[FigureMember]
    links: list[LinkMember]
    verdicts: list[VerdictMember]
    drop: float | None
    sustained: list[Json]
    notes: list[str]
    chip: str


@members
class AttainedAnswer(Answer):
    """What a machine attains, and the chip that plans with it."""

    machine: MachineMember = ABSENT


def machine_answer(found: Attained, asked: ProbeInputs) -> AttainedAnswer:
    """Return the answer of ``roofplan measure machine``.

    Parameters
    ----------
    found : what the machine attains.
    asked : inputs of the command.

    Returns
    -------
    The answer.
    """
    return answered(AttainedAnswer, "measure machine", asked, machine=machine_member(found))


def nothing_answer(asked: ProbeInputs) -> AttainedAnswer:
    """Return the answer of a host that only answered another one's messages.

    Parameters
    ----------
    asked : inputs of the command.

    Returns
    -------
    The answer, without a machine.
    """
    return answered(AttainedAnswer, "measure machine", asked)


def machine_member(found: Attained) -> MachineMember:
    """Return what a machine attains as a member of an answer."""
    probe = found.probe
    return MachineMember(
        run=found.run,
        id=found.id,
        like=found.like,
        device=probe.device,
        backend=probe.backend,
        threads=probe.threads,
        conditions=probe.conditions,
        cache=probe.cache,
        memory=probe.memory,
        figures=[FigureMember(**asdict(one) | _counted(one)) for one in probe.figures],
        links=[LinkMember(**asdict(one)) for one in probe.links],
        verdicts=[VerdictMember(**asdict(one)) for one in found.verdicts],
        drop=probe.drop,
        sustained=probe.sustained,
        notes=probe.notes,
        chip=found.chip,
    )


def _counted(one: Figure) -> dict[str, None]:
    """Return what a figure without a window that counts does not say."""
    return {} if one.kept else {"best": None, "median": None}


def figure_rows(found: Attained) -> list[Json]:
    """Return every figure as a row of a table, with its shape or size.

    Parameters
    ----------
    found : what the machine attains.

    Returns
    -------
    One row per figure; a column that says nothing of it is empty.
    """
    names = ("format", "m", "k", "n", "size", "link", "captured")
    return [
        {"kind": one.kind, **{name: one.about.get(name, "") for name in names}}
        | {"best": one.best if one.kept else "", "median": one.median if one.kept else ""}
        | {"kept": one.kept, "windows": one.windows, "unit": one.unit}
        for one in found.probe.figures
    ]
