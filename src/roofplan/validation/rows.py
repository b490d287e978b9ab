"""Tables of measured runs: their columns, the flags that take a row out of the score, and why a row is not scored."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from roofplan.errors import InputError

Row = Mapping[str, str]

HARMLESS = frozenset({"len_distribution", "input_len_distribution", "throughput_derived", "best_of_n", "median_of_n"})
"""Quality flags of rows that are scored all the same: lengths are means, or a figure is one of several repeats."""

STARVED = "kv_starved"
"""Flag of rows whose throughput the room for the cache decides: not scored with the others, but a test of what is left for it."""

SHORT_OF_CACHE = "short of cache"
"""Regime that such rows are shown under."""


def unstarved(row: Row) -> Row:
    """Return a row without that flag."""
    return {**row, "quality_flags": row.get("quality_flags", "").replace(STARVED, "")}


class Skipped(Exception):
    """A row that cannot be predicted, with the reason."""


def flags(row: Row) -> frozenset[str]:
    """Return what the table says against a row."""
    return frozenset(filter(None, re.split(r"[;,\s]+", row.get("quality_flags", "") or row.get("quality", ""))))


def against(row: Row) -> str:
    """Return the flags for which a row is not scored, empty for a clean one."""
    return " ".join(sorted(flags(row) - HARMLESS))


def number(row: Row, name: str) -> float | None:
    """Return a column as a number, None where it is blank or says something else."""
    try:
        return float(row.get(name) or "")
    except ValueError:
        return None


def read(path: str | Path, needed: Sequence[str]) -> tuple[dict[str, str], ...]:
    """Return the rows of a CSV file.

    Raises
    ------
    InputError : the file cannot be read, or lacks one of the `needed` columns.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            found = tuple({key: value or "" for key, value in row.items() if key is not None} for row in reader)
            columns = reader.fieldnames or ()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = getattr(error, "strerror", None) or "it is not a table of text"
        raise InputError(f"FILE: {path} cannot be read: {why}", argument="FILE", value=str(path)) from None
    missing = [name for name in needed if name not in columns]
    if missing:
        message = f"FILE: {path} lacks the columns {', '.join(missing)}"
        raise InputError(message, argument="FILE", value=str(path))
    if not found:
        raise InputError(f"FILE: {path} holds no rows", argument="FILE", value=str(path))
    return found
