"""Answers as values: what a question gave, gathered instead of printed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from roofplan.errors import NoPlan, RoofplanError
from roofplan.inputs import Inputs
from roofplan.questions.question import Draw, Given, Question, Reply, Row, Tick

if TYPE_CHECKING:
    from roofplan.present.answers.record import Answer
    from roofplan.present.screens.page import Page


Told = Callable[[int, int, str], None]
"""Is told the work done, the work in all [1] and what is counted."""


class Gathered(Reply):
    """An answer whose parts are made when they are asked for.

    Parameters
    ----------
    asked : inputs of the question.
    outputs : how the answer is to leave.
    tick : is told how far the work is, and what is counted.
    beside : what Python gives beside the inputs.
    """

    def __init__(
        self,
        asked: Inputs,
        outputs: Mapping[str, object],
        tick: Told | None = None,
        beside: Given | None = None,
    ) -> None:
        super().__init__(asked, outputs, beside)
        self.tick = tick
        self.result: object = None
        self.title = ""
        self.remarks: list[str] = []
        self._screen: Callable[[Page], None] = lambda _: None
        self._document: Callable[[], Answer | Row] = dict
        self._pictures: Draw = list
        self._rows: Callable[[], list[Row]] = list
        self._launch: Callable[[], str] | None = None

    def check_table(self) -> None:
        """Nothing is written to files."""

    def check_places(self, **others: str | None) -> None:
        """Nothing is written to files."""

    def progress(self, what: str = "machines") -> AbstractContextManager[Tick | None]:
        """Return a context that tells `tick` how far the work is."""
        return _told(self.tick, what)

    def remark(self, line: str) -> None:
        """Keep what is said beside the answer."""
        self.remarks.append(line)

    def table(self, rows: Callable[[], list[Row]]) -> None:
        """Keep the rows."""
        self._rows = rows

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
        """Keep the answer."""
        self.__dict__.pop("document", None)
        self.result = result
        self._screen, self._document, self._pictures = screen, document, pictures or list
        self.title, self._launch = title, launch

    @cached_property
    def document(self) -> Row:
        """The JSON document."""
        from roofplan.present.answers.record import plain

        found: Row = plain(self._document())
        return found

    @property
    def text(self) -> str:
        """The screen, without colour."""
        from roofplan.present.screens.page import Page

        stream = io.StringIO()
        page = Page(stream)
        page.unicode, page.colour = True, False
        self._screen(page)
        return stream.getvalue()

    @property
    def pictures(self) -> list[Row]:
        """Specifications of the pictures."""
        return self._pictures()

    @property
    def rows(self) -> list[Row]:
        """Rows of the answer's table."""
        return self._rows()

    @property
    def launch(self) -> str | None:
        """What launches the plan, where there is one."""
        return None if self._launch is None else self._launch()


@contextmanager
def _told(tick: Told | None, what: str) -> Iterator[Tick | None]:
    yield None if tick is None else lambda done, whole: tick(done, whole, what)


def gathered(
    question: Question,
    asked: Inputs,
    outputs: Mapping[str, object] | None = None,
    tick: Told | None = None,
) -> Gathered:
    """Return the answer of a question.

    Parameters
    ----------
    question : the question.
    asked : its inputs.
    outputs : how the answer is to leave, where that differs from the defaults.
    tick : is told the work done, the work in all [1] and what is counted.

    Returns
    -------
    The answer; one without a plan, or of bad input, holds the document that says why.
    """
    defaults = {name: default for name, (default, _) in question.outputs.items()}
    reply = Gathered(asked, defaults | dict(outputs or {}), tick)
    try:
        question.check(asked)
        question.answer(asked, reply)
    except RoofplanError as error:
        show_failure(reply, question, error)
    return reply


def show_failure(reply: Gathered, question: Question, error: RoofplanError) -> None:
    """Let an answer say why there is none.

    Parameters
    ----------
    reply : the answer.
    question : its question.
    error : why.
    """
    from roofplan.present.answers.record import failure
    from roofplan.present.screens.plans import no_plan_lines

    lines = no_plan_lines(error) if isinstance(error, NoPlan) else [f"error: {error.message}"]

    def screen(page: Page) -> None:
        for line in lines:
            page.line(line)

    reply.show(screen, lambda: failure(question.name, reply.asked, error), title=f"roofplan {question.name}")


def as_json(document: Row, *, indented: bool = True) -> str:
    """Return a document as text.

    Parameters
    ----------
    document : the document.
    indented : as the command line writes it, for people to read; otherwise in one line, which is several times faster.

    Returns
    -------
    Its text.
    """
    return json.dumps(document, indent=1 if indented else None, allow_nan=False) + "\n"
