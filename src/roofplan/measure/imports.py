"""Read the results of other tools, with their names for figures turned into ours and their formulas kept."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from roofplan.errors import InputError
from roofplan.load.statistics import QUANTILES
from roofplan.measure.sample import SEEN
from roofplan.measure.stream import Json

LARGEST = 512 * 1024 * 1024
"""Largest file that is read [B]."""

COUNTS = ("requests", "completed", "failed")
RATES = ("seconds", "requests_per_second", "output_tokens_per_second")
LOADS = ("input", "output", "clients", "rate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A rate that a tool measured, of a kind that no load tells: its name, value and unit."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A run of another tool.

    Parameters
    ----------
    tool : its name.
    model : as the tool names it, empty where it does not.
    figures : of `SEEN`: mean and percentiles by name [s].
    formulas : how the tool computes them.
    counts : requests, completed and failed, as far as told [1].
    rates : seconds, requests and output tokens per second, as far as told [s, 1/s, token/s].
    loads : mean lengths, clients and rate, as far as told [token, 1, 1/s].
    others : what else it measured.
    """

    tool: str
    model: str
    figures: dict[str, dict[str, float]]
    formulas: dict[str, str]
    counts: dict[str, float]
    rates: dict[str, float]
    loads: dict[str, float]
    others: tuple[Rate, ...] = ()


@lru_cache(maxsize=1)
def tools() -> dict[str, Json]:
    """Return how the results of each tool are laid out.

    Returns
    -------
    The tables of ``imports.toml``.
    """
    return tomllib.loads(files("roofplan.measure").joinpath("imports.toml").read_text(encoding="utf-8"))


def imported(path: str) -> list[Imported]:
    """Return the runs in a file of another tool.

    Parameters
    ----------
    path : of the file: JSON, lines of JSON, or the text that nccl-tests prints.

    Returns
    -------
    A run for each benchmark in it.

    Raises
    ------
    InputError : no such file, or no tool's result.
    """
    try:
        if Path(path).stat().st_size > LARGEST:
            raise InputError(f"FILE: {path} is larger than 512 MiB", argument="FILE", value=path)
        text = read(path)
    except OSError as error:
        raise InputError(f"FILE: {path}: {error.strerror}", argument="FILE", value=path) from None
    documents = _documents(text)
    if len(documents) > 1 and all(isinstance(one, dict) and "avg_ts" in one for one in documents):
        documents = [documents]  # lines of llama-bench
    found = [run for document in documents for run in _runs(document)] or _collectives(text)
    if not found:
        names = ", ".join([*(str(one["name"]) for one in tools().values()), *OTHERS])
        raise InputError(f"FILE: {path} is no result of {names}", argument="FILE", value=path)
    return found


def read(path: str) -> str:
    """Return the text of a file, in UTF-8 or, as some shells write it, in UTF-16 with a mark.

    Parameters
    ----------
    path : of the file.

    Returns
    -------
    Its text.
    """
    raw = Path(path).read_bytes()
    marked = raw.startswith((b"\xff\xfe", b"\xfe\xff"))
    return raw.decode("utf-16" if marked else "utf-8-sig", "replace")


OTHERS = ("llama-bench", "nvbandwidth", "nccl-tests")
"""Tools whose results are rates rather than a load."""


def _documents(text: str) -> list[object]:
    """Return the JSON documents in a text: one, or one a line."""
    try:
        return [json.loads(text)]
    except ValueError:
        pass
    out = []
    for line in text.splitlines():
        if line.lstrip().startswith("{"):
            try:
                out.append(json.loads(line))
            except ValueError:
                return []
    return out


def _runs(document: object) -> Iterator[Imported]:
    """Yield the runs of a document."""
    if isinstance(document, list) and document and all(isinstance(one, dict) and "avg_ts" in one for one in document):
        yield _llama_bench(document)
    if not isinstance(document, dict):
        return
    if "nvbandwidth" in document:
        yield _nvbandwidth(document["nvbandwidth"])
    for layout in tools().values():
        parts = document.get(layout["each"], []) if "each" in layout else [document]
        for one in parts if isinstance(parts, list) else []:
            if all(_at(one, path) is not None for path in layout["needs"]):
                yield _run(one, layout)
                if "each" not in layout:
                    return


def _run(document: object, layout: Json) -> Imported:
    """Return a run as its tool lays it out."""

    def numbers(names: tuple[str, ...]) -> dict[str, float]:
        known = ((name, _number(_at(document, layout[name]))) for name in names if name in layout)
        return {name: value for name, value in known if value is not None}

    figures, formulas = {}, {}
    for name in SEEN:
        told = layout.get(name, {})
        values = {
            key: value * told["scale"]
            for key in ("mean", *QUANTILES)
            if key in told and (value := _number(_at(document, told[key]))) is not None
        }
        if "mean" in values:
            figures[name], formulas[name] = values, told["formula"]
    counts, loads = numbers(COUNTS), numbers(LOADS)
    totals = numbers(("total_input", "total_output"))
    for name, total in (("input", "total_input"), ("output", "total_output")):
        if total in totals and counts.get("completed"):
            loads[name] = totals[total] / counts["completed"]
    model = _at(document, layout["model"]) if "model" in layout else None
    return Imported(
        tool=layout["name"],
        model=str(model or ""),
        figures=figures,
        formulas=formulas,
        counts=counts,
        rates=numbers(RATES),
        loads=loads,
    )


def _at(document: object, paths: str) -> object:
    """Return what stands at the first of several paths that leads anywhere, None where none does."""
    for path in paths.split("|"):
        found: object = document
        for part in path.split(">"):
            if part == "*":
                found = found[0] if isinstance(found, list) and found else None
            else:
                found = found.get(part) if isinstance(found, dict) else None
        if found is not None:
            return found
    return None


def _number(value: object) -> float | None:
    """Return a finite number from 0; ``inf`` of an unlimited rate is none, as are times below 0."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return number if 0.0 <= number < float("inf") else None


def _others(tool: str, model: str, rates: list[Rate]) -> Imported:
    return Imported(tool=tool, model=model, figures={}, formulas={}, counts={}, rates={}, loads={}, others=tuple(rates))


def _llama_bench(rows: list[Json]) -> Imported:
    """Return the rates of llama-bench: prompts of so many tokens, and answers."""
    rates = []
    for row in rows:
        prompt, answer = int(row.get("n_prompt", 0)), int(row.get("n_gen", 0))
        name = "+".join([f"pp{prompt}"] * bool(prompt) + [f"tg{answer}"] * bool(answer))
        depth = int(row.get("n_depth", 0) or 0)
        rates.append(
            Rate(name=name + (f" at depth {depth}" if depth else ""), value=float(row["avg_ts"]), unit="token/s")
        )
    return _others("llama-bench", str(rows[0].get("model_type") or rows[0].get("model_filename") or ""), rates)


def _nvbandwidth(document: object) -> Imported:
    """Return the mean bandwidth of each test of nvbandwidth over the pairs that it measured; a device to itself is none."""
    rates = []
    cases = document.get("testcases", []) if isinstance(document, dict) else []
    for case in cases:
        rows = case.get("bandwidth_matrix", [])
        cells = [value for row in rows for cell in row if (value := _number(cell)) is not None and value > 0.0]
        if case.get("status") == "Passed" and cells:
            scale, unit = (1e-9, "s") if "(ns)" in str(case.get("bandwidth_description")) else (1e9, "B/s")
            rates.append(Rate(name=str(case["name"]), value=scale * sum(cells) / len(cells), unit=unit))
    return _others("nvbandwidth", "", rates)


LINE = re.compile(
    r"^\s*(?P<size>\d+)\s+(?P<count>\d+)\s+(?P<type>[a-z]\w+)\s+(?P<redop>\w+)\s+(?P<root>-?\d+)"
    r"\s+(?P<time>[\d.]+)\s+(?P<algbw>[\d.]+)\s+(?P<busbw>[\d.]+)",
    re.MULTILINE,
)
"""A line of nccl-tests: size [B], count, type, operation and root, then time [us], algorithm and bus bandwidth [GB/s] out of place."""


def _collectives(text: str) -> list[Imported]:
    """Return the bus bandwidths that nccl-tests prints, by message size."""
    named = re.search(r"#\s*(?:nThread|Collective test starting:)\s*(\w*_perf)?", text)
    rates = [
        Rate(name=f"busbw of {int(one['size']):,} B", value=1e9 * float(one["busbw"]), unit="B/s")
        for one in LINE.finditer(text)
        if int(one["size"]) > 0
    ]
    if not rates or "busbw" not in text:
        return []
    return [_others(f"nccl-tests {named[1]}" if named and named[1] else "nccl-tests", "", rates)]
