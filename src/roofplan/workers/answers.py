"""What a process answers: a document, a page, or a file that stands alone."""

from __future__ import annotations

import json
from collections.abc import Mapping

from roofplan.errors import RoofplanError
from roofplan.inputs import Inputs
from roofplan.present.answers.record import failure, plain
from roofplan.questions import EVERY, Given, Question, Row
from roofplan.questions.gathered import Gathered, Told, as_json, gathered, show_failure
from roofplan.questions.spelling import command_line, python_call
from roofplan.workers.names import asked_from_afar

MOST_ROWS = 2_000
"""Rows of a table that a page holds [1]."""


def _answered(
    name: str, given: Given, refused: frozenset[str], outputs: Mapping[str, object], tick: Told | None
) -> tuple[Question, Gathered]:
    """Return the answer to inputs from afar; bad inputs are answered too."""
    question = EVERY[name]
    try:
        asked = asked_from_afar(question, given, refused)
    except RoofplanError as error:
        unasked = Gathered(Inputs(), {})
        show_failure(unasked, question, error)
        return question, unasked
    return question, gathered(question, asked, outputs, tick)


def document(
    name: str,
    given: Given,
    refused: frozenset[str] = frozenset(),
    outputs: Mapping[str, object] | None = None,
    tick: Told | None = None,
) -> tuple[str, str]:
    """Return the JSON document of a question.

    Parameters
    ----------
    name : the question.
    given : inputs by their names.
    refused : inputs that nobody else may give.
    outputs : how the answer is to leave, such as ``explain``.
    tick : is told how far the work is.

    Returns
    -------
    Its status, and its text.
    """
    _, reply = _answered(name, given, refused, outputs or {}, tick)
    found = reply.document
    return str(found.get("status", "ok")), as_json(found, indented=False)


def page(
    name: str,
    given: Given,
    refused: frozenset[str] = frozenset(),
    outputs: Mapping[str, object] | None = None,
    tick: Told | None = None,
) -> tuple[str, str]:
    """Return what a page shows of a question: the document, the screen, pictures, rows, and the words that ask again.

    Parameters
    ----------
    name, given, refused, outputs, tick : as of `document`.

    Returns
    -------
    The status of the answer, and a JSON object.
    """
    question, reply = _answered(name, given, refused, outputs or {}, tick)
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
    return str(found.get("status", "ok")), json.dumps(shown, allow_nan=False, separators=(",", ":"))


def shown(
    name: str,
    given: Given,
    refused: frozenset[str] = frozenset(),
    outputs: Mapping[str, object] | None = None,
    tick: Told | None = None,
) -> tuple[str, str]:
    """Return the document of a question and the command that asks it.

    Parameters
    ----------
    name, given, refused, outputs, tick : as of `document`.

    Returns
    -------
    The status of the answer, and a JSON object.
    """
    question, reply = _answered(name, given, refused, outputs or {}, tick)
    found = reply.document
    command = command_line(question, reply.asked) if isinstance(reply.asked, question.record) else ""
    return str(found.get("status", "ok")), json.dumps({"document": found, "command": command}, allow_nan=False)


def file(
    name: str,
    given: Given,
    refused: frozenset[str] = frozenset(),
    outputs: Mapping[str, object] | None = None,
    tick: Told | None = None,
) -> tuple[str, str]:
    """Return an answer as one HTML file that needs no network.

    Parameters
    ----------
    name, given, refused, outputs, tick : as of `document`.

    Returns
    -------
    The status of the answer, and the file.
    """
    from roofplan.present.charts.page import page as whole

    question, reply = _answered(name, given, refused, outputs or {}, tick)
    status = str(reply.document.get("status", "ok"))
    text = reply.text
    if isinstance(reply.asked, question.record):
        text = f"$ {command_line(question, reply.asked)}\n\n{text}"
    return status, whole(reply.title or f"roofplan {name}", text, reply.pictures if status == "ok" else [])


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
