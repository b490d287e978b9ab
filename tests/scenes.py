"""Scenes by name: functions that yield names and results, again and again, whose text `replays` keeps as checksums."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import numpy as np

from roofplan.errors import RoofplanError
from roofplan.records.calibration import Fit
from roofplan.records.engine import Engine
from roofplan.records.hardware import Accelerator, Link, Server
from roofplan.records.model import Model
from roofplan.records.training import Framework, Optimizer

SCENES = {}
BY_NAME = (Accelerator, Engine, Framework, Link, Model, Optimizer, Server)
"""Kinds of records that are told by their ids: the catalogue's replays tell what they hold."""


NOISE = 1e-17
"""What rounding leaves of differences of equal numbers; it is not the same on all processors."""


def scene(function):
    """Keep a scene by its name, which no other file has; a file may be imported as a module of tests and as one of doctests."""
    known = SCENES.get(function.__name__, function)
    assert known.__code__.co_filename == function.__code__.co_filename
    SCENES[function.__name__] = function
    return function


def or_refusal(function, *given, **named):
    """Return what a function returns, or why it refuses; of errors of Python alone only their kind."""
    try:
        return function(*given, **named)
    except RoofplanError as error:
        return f"{type(error).__name__}: {error}"
    except (ValueError, ZeroDivisionError) as error:
        return type(error).__name__


def document(name):
    """Return the results of a scene as text by name."""
    found = {}
    for what, result in SCENES[name]():
        assert what not in found
        found[what] = as_text(result)
    return found


def as_text(item):
    """Return what an object holds as text, member by member, floats to six digits, and what rounding leaves as nothing."""
    item = item.tolist() if isinstance(item, np.ndarray) else item
    if isinstance(item, Fit):
        return "constants"
    if isinstance(item, BY_NAME):
        return f"{type(item).__name__} {item.id}"
    if is_dataclass(item) and not isinstance(item, type):
        return members(item)
    if isinstance(item, Mapping):
        return "{" + ", ".join(f"{key}: {as_text(value)}" for key, value in item.items()) + "}"
    if isinstance(item, list | tuple | set | frozenset):
        ordered = sorted(item, key=str) if isinstance(item, set | frozenset) else item
        return f"{type(item).__name__}({', '.join(map(as_text, ordered))})"
    text = f"{0.0 if abs(item) < NOISE else float(item):.6g}" if isinstance(item, float) else str(item)
    return text if " at 0x" not in text else _without_address(item)


def members(record):
    """Return the members of a record of data as text, but for a row that it was read from."""
    told = ", ".join(f"{one.name}={as_text(getattr(record, one.name))}" for one in fields(record) if one.name != "row")
    return f"{type(record).__name__}({told})"


def _without_address(item):
    """Return what an object without a text of its own holds, or the name of a function."""
    names = getattr(item, "__dict__", None) or getattr(type(item), "__slots__", ())
    return getattr(item, "__name__", f"{type(item).__name__}{as_text({name: getattr(item, name) for name in names})}")
