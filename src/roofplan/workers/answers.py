"""What a process answers: a document, a page, or a file that stands alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Protocol

from roofplan.errors import RoofplanError
from roofplan.inputs import Inputs
from roofplan.present.answers.record import failure, plain
from roofplan.questions import EVERY, Given, Question, Row
from roofplan.questions.gathered import Gathered, Told, as_json, gathered, show_failure
from roofplan.questions.spelling import command_line, python_call
from roofplan.workers.names import asked_from_afar

MOST_ROWS = 2_000
"""Rows of a table that a page holds [1]."""


class Way(Protocol):
    """How an answer leaves a process: a function of the question's name and inputs, which another process may call."""

    def __call__(
        self,
        name: str,
        given: Given,
        refused: frozenset[str] = frozenset(),
        outputs: Mapping[str, object] | None = None,
        tick: Told | None = None,
    ) -> tuple[str, str]:
        """Return the status of an answer, and its text.

        Parameters
        ----------
        name : the question.
        given : inputs by their names.
        refused : inputs that nobody else may give.
        outputs : how the answer is to leave, such as ``explain``.
        tick : is told how far the work is.
        """


def _answered(written: Callable[[Question, Gathered], str]) -> Way:
    """Return what answers a question and writes the answer; bad inputs are answered too."""

    @wraps(written)
    def way(
        name: str,
        given: Given,
        refused: frozenset[str] = frozenset(),
        outputs: Mapping[str, object] | None = None,
        tick: Told | None = None,
    ) -> tuple[str, str]:
        question = EVERY[name]
        try:
            reply = gathered(question, asked_from_afar(question, given, refused), outputs or {}, tick)
        except RoofplanError as error:
            reply = Gathered(Inputs(), {})
            show_failure(reply, question, error)
        return str(reply.document.get("status", "ok")), written(question, reply)

    return way


@_answered
def document(question: Question, reply: Gathered) -> str:  # noqa: ARG001 - as all ways
    """Write the JSON document of a question.

    Parameters
    ----------
    question : the question, which the document names itself.
    reply : its answer.

    Returns
    -------
    The document in one line.
    """
    return as_json(reply.document, indented=False)


@_answered
def page(question: Question, reply: Gathered) -> str:
    """Write what a page shows of a question: the document, the screen, pictures, rows, and the words that ask again.

    Parameters
    ----------
    question : the question.
    reply : its answer.

    Returns
    -------
    A JSON object.
    """
    found = reply.document
    shown: dict[str, object] = {
        "document": found,
        "text": reply.text,
        "remarks": reply.remarks,
        "pictures": [],
        "rows": [],
    }
    if found.get("status", "ok") == "ok":
        shown |= {"pictures": reply.pictures, "rows": reply.rows[:MOST_ROWS]}
    if isinstance(reply.asked, question.record):
        shown |= {"command": command_line(question, reply.asked), "python": python_call(question, reply.asked)}
    return json.dumps(shown, allow_nan=False, separators=(",", ":"))


@_answered
def shown(question: Question, reply: Gathered) -> str:
    """Write the document of a question and the command that asks it.

    Parameters
    ----------
    question, reply : as of `page`.

    Returns
    -------
    A JSON object.
    """
    command = command_line(question, reply.asked) if isinstance(reply.asked, question.record) else ""
    return json.dumps({"document": reply.document, "command": command}, allow_nan=False)


@_answered
def file(question: Question, reply: Gathered) -> str:
    """Write an answer as one HTML file that needs no network.

    Parameters
    ----------
    question, reply : as of `page`.

    Returns
    -------
    The file.
    """
    from roofplan.present.charts.page import page as whole

    text = reply.text
    if isinstance(reply.asked, question.record):
        text = f"$ {command_line(question, reply.asked)}\n\n{text}"
    pictures = reply.pictures if reply.document.get("status", "ok") == "ok" else []
    return whole(reply.title or f"roofplan {question.name}", text, pictures)


def refusal(name: str, error: RoofplanError) -> Row:
    """Return the document of a question that was refused before any process saw it.

    Parameters
    ----------
    name : the question.
    error : why.

    Returns
    -------
    The document, with status ``no_plan`` or ``error``.
    """
    found: Row = plain(failure(name, Inputs(), error))
    return found
