"""The answer of ``roofplan measure memory``."""

from __future__ import annotations

from roofplan.evidence.startup import Explained
from roofplan.inputs import MemoryInputs
from roofplan.present.answers.record import ABSENT, Answer, answered, members, view


@members
class LineMember:
    """A figure of the log beside ours.

    Parameters
    ----------
    printed, rounding : as the log has it, and by how much its digits may be off; null where it says nothing.
    ours, low, high : from the model; ends where it follows from a rounded figure of the log; null where nothing does.
    exact : whether the printed figure is among ours; null where one of them is missing or ours is an estimate.
    line : of the log, null where it says nothing.
    how : what ours follows from.
    """

    name: str
    unit: str
    printed: float | None
    rounding: float | None
    ours: float | None
    low: float | None
    high: float | None
    exact: bool | None
    line: int | None
    how: str


@members
class FailureMember:
    """Why the engine did not start, which flags help, and where the log says so."""

    says: str
    helps: list[str]
    line: int
    text: str


@members
class BlocksMember:
    """The cache to the block: tokens of a block, groups of layers, bytes of a page, blocks in all and of a request."""

    block: int
    groups: int
    page: float
    count: int
    request: int
    longest: int


@members
class MemoryMember:
    """A start-up log beside our ledger; null where the log does not say enough."""

    engine: str
    version: str | None
    model: str
    tensor: int
    pipeline: int
    figures: list[LineMember]
    blocks: BlocksMember | None
    failure: FailureMember | None
    notes: list[str]


@members
class MemoryAnswer(Answer):
    """A start-up log, explained."""

    memory: MemoryMember = ABSENT


def memory_answer(found: Explained, asked: MemoryInputs) -> MemoryAnswer:
    """Return the answer of ``roofplan measure memory``.

    Parameters
    ----------
    found : the log, explained.
    asked : inputs of the command.

    Returns
    -------
    The answer.
    """
    blocks, failure = found.blocks, found.started.failure
    member = MemoryMember(
        engine=found.started.engine,
        version=found.started.word("version"),
        model=found.model.id,
        tensor=found.tensor,
        pipeline=found.pipeline,
        figures=[view(LineMember, one) for one in found.lines],
        blocks=None if blocks is None else view(BlocksMember, blocks, groups=len(blocks.groups)),
        failure=None if failure is None else view(FailureMember, failure, helps=list(failure.helps)),
        notes=found.notes,
    )
    return answered(MemoryAnswer, "measure memory", asked, memory=member)
