"""What a record of inputs is: each input declared once, read from words, JSON and keywords.

The command line, ``--request``, the signatures of the Python functions and the JSON Schema of an answer's inputs are derived from these records.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import wraps
from typing import Any, Self, get_type_hints

from roofplan.errors import InputError, nearest

STDIN = "stdin:"
"""Text that replaces a lone ``-`` on its way to the readers."""

NESTED = ("limits", "demands", "workload")
"""Objects of a request whose members are inputs."""

Text = str | int | float
"""Types that Python accepts for an input that the command line reads as text, with its unit where it has one."""


def asked(
    text: str,
    default: Any = None,
    *,
    name: str = "",
    positional: bool = False,
    required: bool = False,
    was: str = "",
    also: str = "",
    anything: bool = False,
    several: bool = False,
    parts: Sequence[str] = (),
    reads: str = "",
    repeats: bool = False,
) -> Any:
    """Return a field of `Inputs`.

    Parameters
    ----------
    text : help text.
    name : its name where that is not a Python identifier.
    positional, required : whether it stands by its place, and must be given.
    was, also : its former name, and another that the field uses.
    anything : whether Python may also give configurations and models themselves.
    several : whether values are joined by commas where it is given more than once.
    reads : what of the user's own disk it may name: ``model``, ``machine`` or ``device`` beside the catalogue's, or any ``file``.
    repeats : whether a value that is given twice counts twice.
    parts : names that stand for ``NAME=VALUE`` in it, such as tp for a pin of the strategy.
    """
    about = {"help": text, "name": name, "positional": positional, "required": required, "was": was, "also": also}
    about |= {"anything": anything, "several": several, "parts": tuple(parts), "reads": reads, "repeats": repeats}
    return field(default=default, metadata=about)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a command is asked."""

    @classmethod
    def each(cls) -> dict[str, Field[Any]]:
        """Return the fields by the names of their flags and JSON keys."""
        return {one.metadata["name"] or one.name: one for one in fields(cls)}

    @classmethod
    def kinds(cls) -> dict[str, Any]:
        """Return the types of the inputs by the same names."""
        hints = get_type_hints(cls)
        return {name: hints[one.name] for name, one in cls.each().items()}

    def __post_init__(self) -> None:
        for one in fields(self):
            object.__setattr__(self, one.name, _kept(getattr(self, one.name), one))

    @classmethod
    def of(cls, given: Mapping[str, Any], what: str = "inputs") -> Self:
        """Return inputs by their names; an input that is missing or None gets its default.

        Parameters
        ----------
        what : name of the caller, for a refusal.

        Raises
        ------
        InputError : an unknown name, a name given twice, or a value of the wrong type.
        """
        known = cls.each()
        return cls(**{known[name].name: value for name, value in cls._named(given, what).items() if value is not None})

    @classmethod
    def _named(cls, given: Mapping[str, Any], what: str) -> dict[str, Any]:
        """Return the given values by current names."""
        known = cls.each()
        out: dict[str, Any] = {}
        for name, as_given in given.items():
            now, value = cls.spelt(name, as_given)
            if now in known and known[now].metadata["was"] == name:
                warnings.warn(f"{name} is called {now} now", DeprecationWarning, stacklevel=4)
            if now in out and known[now].metadata["several"]:
                out[now] = f"{out[now]},{value}"
                continue
            if now in out:
                raise InputError(f"{what}: {now} is given twice", argument=now, value=str(value))
            if now not in known:
                near = nearest(now, known)
                hint = f" Nearest: {', '.join(near)}" if near else ""
                raise InputError(f"{what}: unknown input {now!r}.{hint}", argument=what, value=now, nearest=near)
            out[now] = value
        return out

    @classmethod
    def spelt(cls, name: str, value: Any) -> tuple[str, Any]:
        """Return an input by its current name: of a former name, of another name, or of a part of it such as tp."""
        for new, one in cls.each().items():
            about = one.metadata
            if name in about["parts"]:
                return new, f"{name}={value}"
            if name and name in {about["was"], about["also"], one.name}:  # Python's name, where the flag's is a keyword
                return new, value
        return name, value

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs of an earlier answer, or of a document with inputs alone, by their names.

        Raises
        ------
        InputError : unknown names, or values of the wrong type.
        """
        found = document.get("inputs", document)
        if not isinstance(found, dict):
            raise InputError("--request: holds no inputs", argument="--request")
        flat = {name: value for name, value in found.items() if name not in NESTED or not isinstance(value, dict)}
        for name in NESTED:
            flat |= found[name] if isinstance(found.get(name), dict) else {}
        named = {name: value for name, value in cls._named(flat, "--request").items() if value is not None}
        for name, one in cls.each().items():
            try:
                if name in named:
                    _kept(named[name], one, document=True)
            except InputError as error:
                raise InputError(f"--request: {error.message}", argument="--request", value=str(named[name])) from None
        return named

    def as_json(self) -> dict[str, Any]:
        """Return the inputs by their names."""
        found = {name: getattr(self, one.name) for name, one in self.each().items()}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def _kept(value: Any, declared: Field[Any], *, document: bool = False) -> Any:
    """Return a value as records keep it: numbers become text, and a single text may stand for a list of one.

    Raises
    ------
    InputError : a value of another type than the default.
    """
    name, default = declared.metadata["name"] or declared.name, declared.default
    if isinstance(default, tuple):
        several = (value,) if isinstance(value, str) else value
        if isinstance(several, Sequence) and all(isinstance(item, str) for item in several):
            return tuple(several) if declared.metadata["repeats"] else tuple(dict.fromkeys(several))
        raise InputError(f"{name} is {value!r}; expected a list of texts", argument=name, value=str(value))
    if isinstance(default, bool):
        if isinstance(value, bool):
            return value
        raise InputError(f"{name} is {value!r}; expected true or false", argument=name, value=str(value))
    if isinstance(value, int | float) and not isinstance(value, bool) and not declared.metadata["anything"]:
        return str(value) if isinstance(value, int) or not value.is_integer() else str(int(value))
    if value is None or isinstance(value, str) or (declared.metadata["anything"] and not document):
        return default if value is None else value
    raise InputError(
        f"{name} is {value!r}; expected a text, with its unit where it has one", argument=name, value=str(value)
    )


def takes(record: type[Inputs]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator for functions whose keywords are inputs.

    The decorated function takes the inputs as keywords or as one record. It is called with the record, and its signature shows the inputs.

    Parameters
    ----------
    record : the record of the inputs.

    Returns
    -------
    The decorator.

    Raises
    ------
    InputError : from the decorated function, for inputs that are unknown, doubled or misplaced, or without a model.
    """

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        own = list(inspect.signature(function).parameters.values())[1:]
        beside = {one.name for one in own}
        places = tuple(name for name, one in record.each().items() if one.metadata["positional"])
        places = POSITIONS if places == POSITIONS[:1] and POSITIONS[1] in record.each() else places

        @wraps(function)
        def called(*given: Any, **named: Any) -> Any:
            others = {name: value for name, value in named.items() if name in beside}
            inputs = {name: value for name, value in named.items() if name not in beside}
            whole = bool(given) and isinstance(given[0], Inputs)
            twice = [name for name in places[: len(given)] if name in inputs]
            if twice or len(given) > max(len(places), 1 if whole else 0) or (whole and (inputs or len(given) > 1)):
                said = (
                    "a record of inputs stands alone"
                    if whole
                    else f"{' and '.join(places)} alone stand by their place, each once"
                )
                raise InputError(f"{function.__name__}: {said}", argument=(*twice, *inputs, *places, "inputs")[0])
            if whole and not isinstance(given[0], record):
                kind = type(given[0]).__name__
                raise InputError(
                    f"{function.__name__}: takes {record.__name__}, not {kind}",
                    argument=(*places, "inputs")[0],
                    value=kind,
                )
            asked = given[0] if whole else record.of(dict(zip(places, given, strict=False)) | inputs, function.__name__)
            if any(one.metadata["required"] and getattr(asked, name) is None for name, one in record.each().items()):
                raise InputError(f"{function.__name__}: {places[0]} is missing", argument=places[0])
            progress = others.get("progress")
            if progress is not None and not callable(progress):
                raise InputError("progress: give a function of what is done and of the whole", argument="progress")
            return function(asked, **others)

        kinds = record.kinds()
        shown = [
            inspect.Parameter(
                one.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD if name in places else inspect.Parameter.KEYWORD_ONLY,
                default=one.default,
                annotation=kinds[name],
            )
            for name, one in sorted(record.each().items(), key=lambda item: item[0] not in places)
        ]
        called.__signature__ = inspect.Signature([*shown, *own])  # type: ignore[attr-defined]
        said = "\n".join(f"{name} : {one.metadata['help']}." for name, one in record.each().items())
        called.__doc__ = re.sub(
            r"(?m)^asked : .*$", lambda line: f"{line[0]} These are:\n{said}", inspect.getdoc(function) or ""
        )
        return called

    return decorated


POSITIONS = ("model", "on")
"""Inputs that the Python functions accept by position."""
