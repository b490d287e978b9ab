"""What a question is, and how its answer leaves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from roofplan.errors import InputError
from roofplan.inputs import Inputs

if TYPE_CHECKING:
    from roofplan.present.answers.record import Answer
    from roofplan.present.screens.page import Page

Row = dict[str, Any]
"""An object of JSON: a row of a table, or the specification of a picture."""

Given = Mapping[str, Any]
"""Values by their names, as they came from outside."""

Draw = Callable[[], list[Row]]
"""Makes the pictures of an answer."""

Tick = Callable[[int, int], None]
"""Is told the work done and the work in all [1]."""

OUTPUT = {
    "explain": (False, "show the formulas with the numbers put in, and their sources"),
    "depth": ("2", "levels of --explain"),
    "json": (False, "one JSON document on stdout, errors included"),
    "csv": (None, "write every row to FILE"),
    "html": (None, "write the answer with its pictures to FILE"),
    "emit": (None, "print only the launch line"),
    "request": (None, "read the inputs of an earlier JSON answer of this command from FILE or -"),
}
"""How an answer may leave: defaults and what they mean."""


class Reply(ABC):
    """How the answer of one question leaves: a document or a text, and beside it tables and pictures.

    Parameters
    ----------
    asked : inputs of the question.
    outputs : how the answer is to leave, by the names of `OUTPUT`.
    beside : what Python gives a function beside its inputs, such as ``fit``; None stands for the function's own default.
    """

    def __init__(self, asked: Inputs, outputs: Mapping[str, object], beside: Given | None = None) -> None:
        self.asked = asked
        self.outputs = outputs
        self.beside: Given = beside or {}

    def out(self, name: str) -> Any:
        """Return how an answer is to leave; None of what the question does not have."""
        return self.outputs.get(name)

    @property
    def as_json(self) -> bool:
        """Whether it leaves as JSON."""
        return bool(self.out("json"))

    @property
    def levels(self) -> int:
        """Levels of the explanation [1]."""
        from roofplan.records.units import parse_count

        return parse_count(self.out("depth"), "--depth")

    @abstractmethod
    def check_table(self) -> None:
        """Refuse a table without a name before anything is computed."""

    @abstractmethod
    def check_places(self, **others: str | None) -> None:
        """Refuse files that cannot be written, those of other inputs too, before hours are spent on what they shall hold."""

    @abstractmethod
    def progress(self, what: str = "machines") -> AbstractContextManager[Tick | None]:
        """Return a context that shows how far the work is; `what` is counted."""

    @abstractmethod
    def remark(self, line: str) -> None:
        """Say something beside the answer."""

    @abstractmethod
    def table(self, rows: Callable[[], list[Row]]) -> None:
        """Take the rows of the answer."""

    @abstractmethod
    def show(
        self,
        screen: Callable[[Page], None],
        document: Callable[[], Answer | Row],
        pictures: Draw | None = None,
        *,
        title: str = "",
        launch: Callable[[], str] | None = None,
        result: object = None,
    ) -> None:
        """Take the answer: its text, its document, its pictures, what launches it, and what Python sees."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question that has an answer.

    Parameters
    ----------
    name : its words, such as ``cost tokens``.
    record : its inputs.
    outputs : how its answer may leave: names with defaults and what they mean.
    example : what may stand behind the command where an input is missing.
    help : what it asks, in one sentence.
    answer : computes, hands the answer to a `Reply` and returns the exit code: 1 where constraints are not kept.
    python : name of the Python function that computes it, empty where there is none of its own.
    """

    name: str
    record: type[Inputs]
    outputs: Mapping[str, tuple[object, str]]
    example: str
    help: str
    answer: Callable[[Any, Reply], int | None]
    python: str = ""

    @property
    def positions(self) -> list[str]:
        """Names of the inputs that stand by their place."""
        return [name for name, one in self.record.each().items() if one.metadata["positional"]]

    def check(self, asked: Inputs) -> None:
        """Refuse inputs without one that must be given.

        Parameters
        ----------
        asked : the inputs.

        Raises
        ------
        InputError : an input is missing; an example shows it.
        """
        for name, one in asked.each().items():
            if one.metadata["required"] and not getattr(asked, one.name):
                raise InputError(
                    f"{name.upper()} is missing. Example: roofplan {self.name} {self.example}", argument=name.upper()
                )


Asked = TypeVar("Asked", bound=Inputs)


def question(
    record: type[Asked],
    *outputs: str,
    name: str = "",
    example: str = "",
    python: str = "",
    **said: str | tuple[object, str],
) -> Callable[[Callable[[Asked, Reply], int | None]], Question]:
    """Return a decorator that makes a question of the function that answers it.

    Parameters
    ----------
    record : its inputs.
    outputs : how its answer may leave, of `OUTPUT`.
    name : its words; default: the function's name.
    example : what may stand behind the command where an input is missing.
    python : name of the Python function that computes it.
    said : what outputs mean where that differs from `OUTPUT`, or their default and that.

    Returns
    -------
    The decorator.
    """

    def meant(one: str) -> tuple[object, str]:
        default, text = OUTPUT[one]
        own = said.get(one, text)
        return own if isinstance(own, tuple) else (default, own)

    def decorated(function: Callable[[Asked, Reply], int | None]) -> Question:
        return Question(
            name or function.__name__,
            record,
            {one: meant(one) for one in outputs},
            example,
            (function.__doc__ or "").strip(),
            function,
            python,
        )

    return decorated
