"""Every refusal of roofplan, in one tree.

::

    RoofplanError                bad input or no answer; carries code, argument, value, nearest, remedy
    ├── InputError               exit 2: the input cannot be read
    │   ├── UnitError            a quantity does not parse or is out of range
    │   ├── ConfigError          a config.json lacks a field or contradicts itself
    │   ├── UnknownFamily        a model_type that no family function describes
    │   ├── UnknownName          a device, model, engine, network or server id that is not in the catalogue
    │   ├── StrategyError        a pinned strategy that no engine accepts
    │   └── UnsupportedFeature   out of scope, refused by name
    └── NoPlan                   exit 1: nothing satisfies the constraints
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

Remedy = dict[str, Any]
"""What would satisfy a constraint: the argument, its present value, the value needed, and the result with it."""


def unwrap(value: T | None) -> T:
    """Return a value that the code before has made sure of.

    Parameters
    ----------
    value : the value.

    Returns
    -------
    The same value.

    Raises
    ------
    AssertionError : it is missing, which is a fault of the program.
    """
    if value is None:
        raise AssertionError("a value is missing where one must be")
    return value


class RoofplanError(Exception):
    """A refusal that names the field, the value and the remedy.

    Parameters
    ----------
    message : one line for a reader.
    code : stable identifier for programs, such as ``unknown_device``.
    argument : flag or field at fault.
    value : value that was given.
    nearest : accepted values that resemble it.
    """

    code = "error"
    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        argument: str | None = None,
        value: object = None,
        nearest: Iterable[str] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.argument = argument
        self.value = value
        self.nearest = list(nearest)

    @property
    def shown(self) -> str | int | float | bool | None:
        """The given value in a form that JSON can hold."""
        shown = self.value if isinstance(self.value, str | int | float | bool | None) else repr(self.value)
        if isinstance(shown, float) and (math.isnan(shown) or shown in {float("inf"), float("-inf")}):
            return repr(shown)
        return shown


class InputError(RoofplanError):
    """The input cannot be read."""

    code = "bad_input"


class UnitError(InputError):
    """A quantity does not parse or is out of range."""

    code = "bad_quantity"


class ConfigError(InputError):
    """A model configuration lacks a field, or contradicts itself."""

    code = "bad_config"


class UnknownFamily(InputError):
    """A ``model_type`` that no family function describes; there is no default shape."""

    code = "unknown_model_type"


class UnknownName(InputError):
    """An id that the catalogue does not hold."""

    code = "unknown_name"


class StrategyError(InputError):
    """A pinned strategy that the engine or the device count refuses."""

    code = "bad_strategy"


class UnsupportedFeature(InputError):
    """A feature that roofplan knows by name and does not model."""

    code = "unsupported"


class NoPlan(RoofplanError):
    """Nothing satisfies the constraints; carries the binding constraint and what would relax it."""

    code = "no_plan"
    exit_code = 1

    def __init__(self, message: str, *, binding: str, relax: list[Remedy] | None = None) -> None:
        super().__init__(message)
        self.binding = binding
        self.relax = relax or []
        self.search: object = None  # configurations of the search, if there were any


def nearest(name: str, known: Iterable[str], count: int = 4) -> list[str]:
    """Return known names that resemble a name, ignoring case and punctuation.

    Parameters
    ----------
    name : the name.
    known : the known names.
    count : most names to return [1].

    Returns
    -------
    The names, the most similar first, then those that contain `name`.

    Examples
    --------
    >>> nearest("rtx4090", ["rtx-4090", "h100-sxm", "rtx-4090d"])
    ['rtx-4090', 'rtx-4090d']
    """
    plain: dict[str, str] = {}
    for candidate in known:
        plain.setdefault(_plain(candidate), candidate)
    target = _plain(name)
    close = difflib.get_close_matches(target, plain, n=count, cutoff=0.6)
    holds = [key for key in plain if target and target in key and key not in close]
    return [plain[key] for key in [*close, *sorted(holds, key=lambda key: (len(key), key))][:count]]


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def choice(value: str, accepted: Collection[str], argument: str, *, code: str | None = None) -> str:
    """Return one of several words in lower case.

    Parameters
    ----------
    value : word as the user wrote it.
    accepted : the words.
    argument : flag that it was given for.
    code : code of a refusal, that of `InputError` where none is given.

    Returns
    -------
    The word.

    Raises
    ------
    InputError : another word; names the nearest and all that are accepted.

    Examples
    --------
    >>> choice("Cost", ("cost", "latency"), "--best")
    'cost'
    """
    lowered = value.strip().lower()
    if lowered in accepted:
        return lowered
    near = nearest(lowered, accepted)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise InputError(
        f"{argument}: {value!r} is not known.{hint} Accepted: {', '.join(accepted)}",
        code=code,
        argument=argument,
        value=value,
        nearest=near,
    )
