"""A question as words: what reproduces it on the command line and in Python."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from roofplan.inputs import STDIN, Inputs
from roofplan.questions.question import Question

CONFIG = "config.json"
"""Where a configuration is taken to lie that was given itself."""


def command_line(question: Question, asked: Inputs) -> str:
    """Return the command that asks a question.

    Parameters
    ----------
    question : the question.
    asked : its inputs.

    Returns
    -------
    The command, for a shell; a configuration that was given itself is taken to lie in ``config.json``.
    """
    words = [f"roofplan {question.name}"]
    for name, value in _stated(asked):
        if name in question.positions:
            words.append(shlex.quote(_named(value)))
        elif value is True:
            words.append(f"--{name.replace('_', '-')}")
        else:
            several = value if isinstance(value, tuple) else (value,)
            words += [f"--{name.replace('_', '-')} {shlex.quote(str(one))}" for one in several]
    return " ".join(words)


def python_call(question: Question, asked: Inputs) -> str:
    """Return the lines that ask a question in Python.

    Parameters
    ----------
    question : the question.
    asked : its inputs.

    Returns
    -------
    The lines, which leave the answer in ``answer``.
    """
    given = [repr(question.name)] if not question.python else []
    lines = ["import roofplan as rp", ""]
    identifiers = {name: one.name for name, one in asked.each().items()}
    for name, value in _stated(asked):
        shown = repr(list(value) if isinstance(value, tuple) else value if value is True else _named(value))
        alone = question.python and name == "model" and question.positions[:1] == ["model"]
        given.append(shown if alone else f"{identifiers[name]}={shown}")
    return "\n".join([*lines, f"answer = rp.{question.python or 'ask'}({', '.join(given)})"])


def _stated(asked: Inputs) -> Iterator[tuple[str, object]]:
    """Yield the inputs that differ from their defaults, those by place first."""
    each = sorted(asked.each().items(), key=lambda item: not item[1].metadata["positional"])
    for name, one in each:
        value = getattr(asked, one.name)
        if value != one.default:
            yield name, value


def _named(value: object) -> str:
    """Return how a value is named: a configuration by its file."""
    return CONFIG if isinstance(value, Mapping) else "-" if value == STDIN else str(value)
