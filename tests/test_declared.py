"""Defaults and constants are meaning: what a flag, a record or a public function takes unless told may move only on purpose, as may
the constants of a module.

``python tests/test_declared.py`` records them anew; a moved default of a flag raises ``schema_version`` and stands in the CHANGELOG.
"""

import ast
import dataclasses
import importlib
import inspect
import json
import pkgutil
import re
import zlib
from pathlib import Path

import pytest
from replays import plain

import roofplan

FILE = Path(__file__).parent / "replay" / "declared.json"
MISSING = dataclasses.MISSING
PLAIN = (bool, int, float, str, type(None), tuple)
LONGEST = 200
"""Characters of a constant above which its checksum stands for it [1]."""


def modules():
    """Return the modules of the package that need nothing beyond its own requirements."""
    names = [
        one.name for one in pkgutil.walk_packages(roofplan.__path__, "roofplan.") if one.name != "roofplan.__main__"
    ]
    return [importlib.import_module(name) for name in sorted(names)]


def told(value):
    """Return a default as text, an object's type alone."""
    return repr(value) if isinstance(value, PLAIN) else type(value).__name__


def written(value):
    """Return a constant as text without addresses, which differ from run to run; None for what is no data."""
    if isinstance(value, frozenset | set):
        text = f"{{{', '.join(sorted(map(repr, value)))}}}"
    elif isinstance(value, dict):
        text = ", ".join(sorted(f"{key!r}: {written(each)}" for key, each in value.items()))
    elif isinstance(value, re.Pattern):
        text = value.pattern
    elif isinstance(value, (*PLAIN, list)) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        text = repr(value)
    else:
        return None
    if " at 0x" in text or str(Path.home()) in text or "frozenset(" in text:
        return None
    text = plain(text)  # the last digit of a computed constant depends on the processor
    return text if len(text) <= LONGEST else f"checksum {zlib.crc32(text.encode())}"


def constants(module):
    """Return the constants that a module assigns, by name."""
    body = ast.parse(inspect.getsource(module)).body
    targets = [
        t
        for one in body
        if isinstance(one, ast.Assign | ast.AnnAssign)
        for t in getattr(one, "targets", None) or [one.target]
    ]
    names = {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    found = {name: written(getattr(module, name, None)) for name in sorted(names) if name.isupper()}
    return {name: text for name, text in found.items() if text is not None}


def declared():
    """Return the defaults of records by class and of functions by name, with whether a record may change and which members are given by name, and constants by module."""
    found = {}
    for module in modules():
        found[module.__name__.removeprefix("roofplan.")] = constants(module)
        for name, thing in vars(module).items():
            if getattr(thing, "__module__", None) != module.__name__:
                continue
            where = f"{module.__name__.removeprefix('roofplan.')}.{name}"
            if dataclasses.is_dataclass(thing):
                found[where] = dict(fields(thing))
            elif inspect.isfunction(thing) and not name.startswith("_"):
                found[where] = defaults(thing)
    return {where: values for where, values in sorted(found.items()) if values}


def fields(record):
    """Yield the fields of a record that have a default or say how they are asked for, and whether it changes."""
    for one in dataclasses.fields(record):
        said = [f"{name}={told(value)}" for name, value in one.metadata.items() if value and name != "help"]
        default = [] if one.default is MISSING else [told(one.default)]
        if said or default:
            yield one.name, " ".join(default + said)
    if not record.__dataclass_params__.frozen:
        yield "", "changes"
    by_name = [one.name for one in dataclasses.fields(record) if one.init and one.kw_only]
    if by_name:
        every = len(by_name) == sum(one.init for one in dataclasses.fields(record))
        yield "*", "all by name" if every else f"by name: {' '.join(by_name)}"


def defaults(function):
    """Return the defaults of a function's parameters as text."""
    parameters = inspect.signature(function).parameters.values()
    return {one.name: told(one.default) for one in parameters if one.default is not inspect.Parameter.empty}


@pytest.mark.slow
def test_no_default_has_moved():
    recorded, now = json.loads(FILE.read_text()), declared()
    moved = {
        where: (recorded.get(where), now.get(where))
        for where in recorded.keys() | now.keys()
        if recorded.get(where) != now.get(where)
    }
    assert not moved, "python tests/test_declared.py records them"


if __name__ == "__main__":
    lines = (f"{json.dumps(where)}: {json.dumps(values)}" for where, values in declared().items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
