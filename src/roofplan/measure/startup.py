"""Start-up logs of engines: what they say of weights, activations, graphs and cache, line by line, and why they do not start."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from roofplan.errors import InputError
from roofplan.records import units

TABLE = Path(__file__).parent / "startup.toml"

LARGEST = 64 * 2**20
"""Largest log that is read [B]."""

ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that a log says.

    Parameters
    ----------
    value : in `unit`; a text where it has none.
    line : number of its line, from 1.
    text : the line.
    rounding : by how much the printed digits may be off, in `unit`; 0 of whole numbers and texts.
    """

    name: str
    value: float | str
    unit: str
    line: int
    text: str
    rounding: float = 0.0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an engine did not start, which flags help, and where it says so."""

    says: str
    helps: tuple[str, ...]
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Startup:
    """What a start-up log says.

    Parameters
    ----------
    engine : that wrote it.
    said : by name; the last that a name has, or the sum where parts are told apart.
    failure : None where it started.
    """

    engine: str
    said: dict[str, Said] = field(default_factory=dict)
    failure: Failure | None = None

    def number(self, name: str) -> float | None:
        """Return a number in SI, None where the log does not state it."""
        found = self.said.get(name)
        return found.value if found is not None and isinstance(found.value, float) else None

    def word(self, name: str) -> str | None:
        """Return a text, None where the log does not state it."""
        found = self.said.get(name)
        return found.value if found is not None and isinstance(found.value, str) else None


@lru_cache(maxsize=1)
def _table() -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = tomllib.loads(TABLE.read_text())
    return found


def _began(engine: str, lines: list[str]) -> int:
    """Return the index of the line with which the last start begins, 0 where no line tells."""
    patterns = tomllib.loads(TABLE.read_text())["start"].get(engine, [])
    for pattern in map(re.compile, patterns):
        found = [place for place, line in enumerate(lines) if pattern.search(line)]
        if found:
            return found[-1]
    return 0


def startup_of(text: str, name: str = "LOG") -> Startup:
    """Return what a start-up log says.

    Parameters
    ----------
    text : the log.
    name : of its file, for messages.

    Returns
    -------
    The engine that wrote it, and what it says.

    Raises
    ------
    InputError : no line of a known engine in it.
    """
    if len(text) > LARGEST:
        message = f"LOG: {name} holds {len(text):,} characters; the start-up of an engine has a few thousand lines"
        raise InputError(message, argument="LOG", value=name)
    lines = text.splitlines()
    found = {engine: _said(engine, lines) for engine in ENGINES}
    weights = {engine: len(said) for engine, said in found.items()}
    failures = {engine: _failure(engine, lines) for engine in ENGINES}
    best = max(ENGINES, key=lambda engine: (weights[engine], failures[engine] is not None))
    if weights[best] < LEAST and failures[best] is None:
        raise InputError(
            f"LOG: {name} has no line on memory of {', '.join(ENGINES)}: give the output of the server from its start",
            argument="LOG",
            value=name,
        )
    return Startup(best, found[best], failures[best] or _failure("", lines[_began(best, lines) :]))


LEAST = 2
"""Things that a log must say for it to be an engine's [1]."""


def _said(engine: str, lines: list[str]) -> dict[str, Said]:
    """Return what the lines of the last start say in the words of one engine."""
    out: dict[str, Said] = {}
    first = _began(engine, lines)
    for rule in _table()["line"]:
        if rule["engine"] != engine:
            continue
        name, pattern = str(rule["name"]), re.compile(str(rule["pattern"]))
        for number, line in enumerate(lines[first:], start=first + 1):
            match = pattern.search(line)
            if match is None or (rule.get("first") and name in out):
                continue
            one = _value(rule, match, number, line)
            out[name] = _joined(rule, out.get(name), one)
    return out


def _joined(rule: Json, before: Said | None, one: Said) -> Said:
    """Return what holds of a figure that the log states again."""
    if before is None or not isinstance(before.value, float) or not isinstance(one.value, float):
        return one
    if rule.get("sum"):
        return replace(one, value=before.value + one.value, rounding=before.rounding + one.rounding)
    return before if rule.get("least") and before.value <= one.value else one


def _value(rule: Json, match: re.Match[str], number: int, line: str) -> Said:
    """Return what a match says; an engine's GB are GiB where its source divides by 2^30."""
    name, text = str(rule["name"]), match[1].replace(",", "")
    if match.re.groups > 1:
        unit = match[2].replace("GB", "GiB") if rule.get("gigabytes_are_binary") else match[2]
        whole = units.parse(f"{text} {unit}", "B", name)
        last = 0.5 * 10.0 ** -len(text.partition(".")[2]) * units.parse(f"1 {unit}", "B", name)
        return Said(name, whole, "B", number, line.strip(), last)
    if "unit" in rule:
        digits = text.partition(".")[2]
        return Said(
            name, float(text), str(rule["unit"]), number, line.strip(), 0.5 * 10.0 ** -len(digits) if digits else 0.0
        )
    return Said(name, text, "", number, line.strip())


def _failure(engine: str, lines: list[str]) -> Failure | None:
    """Return the last failure that the lines of the last start tell in the words of one engine."""
    out = None
    first = _began(engine, lines)
    for rule in _table()["failure"]:
        if rule["engine"] != engine:
            continue
        pattern = re.compile(str(rule["pattern"]))
        for number, line in enumerate(lines[first:], start=first + 1):
            if pattern.search(line):
                helps = rule["helps"]
                told = tuple(str(one) for one in helps) if isinstance(helps, list) else ()
                out = Failure(str(rule["says"]), told, number, line.strip())
    return out
