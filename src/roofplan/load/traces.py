"""Traces of requests: tables of arrivals and lengths in the forms that they are published in."""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from itertools import pairwise
from pathlib import Path

import numpy as np

from roofplan.errors import InputError
from roofplan.load.requests import Requests
from roofplan.records import units


@dataclass(frozen=True, slots=True)
class Form:
    """Columns of a published trace.

    Parameters
    ----------
    arrival, input, output : names of the columns, in lower case.
    scale : seconds of a unit of time; 0 for dates [s].
    prefixes, block : column with the ids of a prompt's blocks, and tokens of a block.
    """

    arrival: str
    input: str
    output: str
    scale: float = 1.0
    prefixes: str = ""
    block: int = 0


FORMS = {
    "plain": Form("arrival", "input", "output"),
    "azure": Form("timestamp", "contexttokens", "generatedtokens", scale=0.0),
    "mooncake": Form("timestamp_ms", "input_length", "output_length", 1e-3, "hash_ids", 512),
    "mooncake jsonl": Form("timestamp", "input_length", "output_length", 1e-3, "hash_ids", 512),
    "burstgpt": Form("timestamp", "request tokens", "response tokens"),
    "vidur": Form("arrived_at", "num_prefill_tokens", "num_decode_tokens"),
    "measured": Form("arrival_s", "input_tokens", "output_tokens"),
}
"""Known forms: our own; Azure's LLM inference traces; Mooncake's, as CSV and as published; BurstGPT; vidur's; runs of a client."""


LONGEST = units.YEAR
"""Time from the first request of a trace to its last above which its times are in another unit, such as a day's milliseconds [s]."""


def read_trace(path: str | Path) -> Requests:
    """Return the requests of a trace; times count from its first arrival.

    Parameters
    ----------
    path : a CSV file or JSON lines, gzipped or not, in one of `FORMS`.

    Returns
    -------
    Requests; those without an answer, which failed, are left out.

    Raises
    ------
    InputError : a file that cannot be read, lacks a column, holds no request, or whose times go back or go on for more than a year.
    """
    name = str(path)
    try:
        with _opened(Path(path)) as file:
            rows = list(_json_lines(file)) if ".jsonl" in name else list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error, json.JSONDecodeError, EOFError) as error:
        raise InputError(f"--trace: {name} cannot be read: {error}", argument="--trace", value=name) from None
    if not rows:
        raise InputError(f"--trace: {name} has no rows", argument="--trace", value=name)
    rows = [{str(key).strip().lower(): value for key, value in row.items()} for row in rows]
    form = _form(rows[0], name)
    arrivals = [_time(row[form.arrival], form, name, line) for line, row in enumerate(rows, 2)]
    lengths = [
        [_tokens(row[column], column, name, line) for column in (form.input, form.output)]
        for line, row in enumerate(rows, 2)
    ]
    for line, (before, after) in enumerate(pairwise(arrivals), 3):
        if after < before:
            message = f"--trace: {name}, line {line}: time goes back, from {before:g} s to {after:g} s; sort the rows"
            raise InputError(message, argument="--trace", value=name)
        if after - arrivals[0] > LONGEST:
            since = after - arrivals[0]
            message = (
                f"--trace: {name}, line {line}: {since:g} s after the first request; are its times in another unit?"
            )
            raise InputError(message, argument="--trace", value=name)
    kept = [i for i, (new, answer) in enumerate(lengths) if new >= 1 and answer >= 1]
    if not kept:
        raise InputError(f"--trace: {name} has no request with a prompt and an answer", argument="--trace", value=name)
    return Requests(
        arrivals=np.array([arrivals[i] - arrivals[kept[0]] for i in kept]),
        inputs=np.array([lengths[i][0] for i in kept], dtype=np.int64),
        outputs=np.array([lengths[i][1] for i in kept], dtype=np.int64),
        prefixes=[_ids(rows[i][form.prefixes]) for i in kept] if form.prefixes in rows[0] else (),
        prefix_block=form.block if form.prefixes in rows[0] else 0,
        failed=len(rows) - len(kept),
    )


def _opened(path: Path) -> TextIOWrapper:
    if path.suffix == ".gz":
        return TextIOWrapper(gzip.open(path), encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _json_lines(file: Iterable[str]) -> Iterator[dict[str, object]]:
    for line in file:
        if line.strip():
            yield dict(json.loads(line))


def _form(row: Mapping[str, object], name: str) -> Form:
    """Return the form of a trace by the columns that it has."""
    for form in FORMS.values():
        if {form.arrival, form.input, form.output} <= row.keys():
            if form is FORMS["mooncake jsonl"] and form.prefixes not in row:
                continue
            return form
    plain = FORMS["plain"]
    nearest = max(FORMS.values(), key=lambda form: len({form.arrival, form.input, form.output} & row.keys()))
    known = {nearest.arrival, nearest.input, nearest.output}
    wanted = nearest if known & row.keys() else plain
    lacks = [column for column in (wanted.arrival, wanted.input, wanted.output) if column not in row]
    raise InputError(
        f"--trace: {name} lacks the column{'s' if len(lacks) > 1 else ''} {', '.join(lacks)}. A plain trace is CSV with arrival,input,output:"
        " seconds from the start, and tokens",
        argument="--trace",
        value=name,
        nearest=lacks,
    )


def _time(value: object, form: Form, name: str, line: int) -> float:
    text = str(value).strip()
    try:
        if form.scale:
            return _finite(float(text)) * form.scale
        found = re.fullmatch(r"([^.]*?)(\.\d+)?(Z|[+-]\d\d:?\d\d)?", text)
        moment = datetime.fromisoformat(found[1] if found else text)
        return moment.replace(tzinfo=UTC).timestamp() + float(f"0{(found and found[2]) or '.0'}")
    except ValueError:
        try:  # a trace of dates whose times are seconds, and the reverse
            return _finite(float(text))
        except ValueError:
            message = f"--trace: {name}, line {line}: {form.arrival} is {text!r}, not a time"
            raise InputError(message, argument="--trace", value=name) from None


def _finite(seconds: float) -> float:
    if not math.isfinite(seconds):
        raise ValueError(seconds)
    return seconds


def _whole(number: float) -> int:
    if number < 0.0 or not number.is_integer():
        raise ValueError(number)
    return int(number)


def _tokens(value: object, column: str, name: str, line: int) -> int:
    try:
        return _whole(float(str(value)))
    except (ValueError, OverflowError):
        message = f"--trace: {name}, line {line}: {column} is {value!r}, not a number of tokens"
        raise InputError(message, argument="--trace", value=name) from None


def _ids(value: object) -> tuple[int, ...]:
    """Return the ids of blocks in a list, or in a text in which a range of ids is ``FIRST-LAST``."""
    if isinstance(value, list):
        return tuple(int(one) for one in value)
    found: list[int] = []
    for part in str(value).split():
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return tuple(found)
