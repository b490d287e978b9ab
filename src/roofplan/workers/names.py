"""Inputs from afar: names of the catalogue and configurations, never a path of this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping

from roofplan import catalogue
from roofplan.errors import InputError, UnknownName, nearest
from roofplan.inputs import STDIN, Inputs
from roofplan.questions import Given, Question
from roofplan.records.units import parse_count

LONGEST = 2_000
"""Most characters of an input that is a text [1]."""

LARGEST_CONFIG = 1 << 20
"""Most bytes of a question, a model's configuration among it [B]."""

DEEPEST = 32
"""Most levels of a question [1]."""

MOST_REQUESTS = 200_000
"""Most requests of a simulation [1]."""

OWN = {"validate": {"file": STDIN}}
"""Inputs that name a file, where the catalogue's own table stands for it."""


def asked_from_afar(question: Question, given: Given, refused: frozenset[str] = frozenset()) -> Inputs:
    """Return the inputs of a question that somebody else asks.

    Parameters
    ----------
    question : the question.
    given : inputs by their names; a model may be a configuration.
    refused : inputs that nobody else may give.

    Returns
    -------
    The inputs.

    Raises
    ------
    InputError : an unknown input, one that names a file or a place of this machine, or one that is too long.
    """
    stated = {name: value for name, value in given.items() if value is not None and value != ""}
    own = OWN.get(question.name, {})
    for name in own:
        if str(stated.get(name, "-")) not in {"-", STDIN}:
            raise _refused(name, str(stated[name]), "names a file; files are not read here")
    asked = question.record.of(stated | own | _configurations(question, stated), question.name)
    for name, declared in asked.each().items():
        value = getattr(asked, declared.name)
        if value == declared.default:
            continue
        if name in refused and name not in own:
            raise _refused(name, str(value), "is not accepted here")
        for one in value if isinstance(value, tuple) else [value]:
            _check_length(name, one)
            _check_place(name, one, declared.metadata["reads"], question)
    return asked


def _configurations(question: Question, stated: Given) -> dict[str, object]:
    """Return the models that are given as the text of a config.json, parsed."""
    found = {}
    for name, declared in question.record.each().items():
        text = stated.get(name)
        if declared.metadata["reads"] != "model" or not isinstance(text, str) or not text.lstrip().startswith("{"):
            continue
        try:
            found[name] = json.loads(text)
        except (ValueError, RecursionError) as error:
            message = f"{name}: the text of this config.json is no JSON: {error}"
            raise InputError(message, argument=name, value=text[:40]) from None
        if _depth(found[name]) > DEEPEST:
            raise InputError(f"{name}: nested deeper than {DEEPEST} levels", argument=name)
    return found


def _check_place(name: str, value: object, reads: str, question: Question) -> None:
    """Refuse what would be looked for on this machine's disk."""
    if reads == "file" and name not in OWN.get(question.name, {}):
        raise _refused(name, str(value), "names a file; files are not read here")
    if reads == "model" and not isinstance(value, Mapping):
        _check_model(name, str(value))
    if reads in {"machine", "device"} and ".toml" in str(value).lower():
        raise _refused(name, str(value), "names a file; take a device of the catalogue")


def _check_model(name: str, value: str) -> None:
    known = catalogue.aliases("models")
    if value.lower() not in known:
        near = nearest(value[: catalogue.LONGEST_NAME], catalogue.ids("models"))
        hint = f" Nearest: {', '.join(near)}." if near else ""
        raise UnknownName(
            f"{name}: no model {value[: catalogue.LONGEST_NAME]!r} in the catalogue.{hint} Any other: give its config.json itself",
            code="unknown_model",
            argument=name,
            value=value[: catalogue.LONGEST_NAME],
            nearest=near,
        )


def _check_length(name: str, value: object) -> None:
    if not isinstance(value, Mapping) and len(str(value)) > LONGEST:
        raise _refused(name, str(value)[:40], f"is longer than {LONGEST:,} characters")


def check_size(given: Given) -> None:
    """Refuse inputs that are too deep or too large, before anything looks into them.

    Parameters
    ----------
    given : inputs by their names.

    Raises
    ------
    InputError : they are.
    """
    if _depth(given) > DEEPEST:
        raise InputError(f"the question is nested deeper than {DEEPEST} levels", argument="inputs")
    if len(json.dumps(given)) > LARGEST_CONFIG:
        raise InputError(f"the question is larger than {LARGEST_CONFIG:,} bytes", argument="inputs")
    count = given.get("requests")
    if isinstance(count, str | int | float) and count and parse_count(str(count), "requests") > MOST_REQUESTS:
        raise InputError(
            f"requests: at most {MOST_REQUESTS:,} are simulated here; ask for more on the command line",
            argument="requests",
            value=str(count),
        )


def help_from_afar(about: Given) -> str:
    """Return what an input means to somebody else: a model is no path.

    Parameters
    ----------
    about : what the input's declaration says.

    Returns
    -------
    Help text.
    """
    if about["reads"] == "model" and about["anything"]:
        return "id of the catalogue, or the content of a config.json"
    return str(about["help"])


def _depth(value: object) -> int:
    """Return how deeply a document is nested [1]."""
    level, depth = [value], 0
    while level:
        inner = [part for one in level for part in _parts(one)]
        level, depth = inner, depth + 1
    return depth


def _parts(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list) else []


def _refused(name: str, value: str, why: str) -> InputError:
    return InputError(f"{name}: {why}", argument=name, value=value[:100])
