"""The files of the catalogue: one TOML file a thing, named by its id, read when first asked for."""

from __future__ import annotations

import csv
import tomllib
from functools import lru_cache
from pathlib import Path

from roofplan.catalogue.codec import Table

ROOT = Path(__file__).parent


def read(path: Path) -> Table:
    """Return the content of a TOML file.

    Parameters
    ----------
    path : the file.

    Returns
    -------
    Its tables.

    Raises
    ------
    FileNotFoundError : there is no such file.
    """
    with path.open("rb") as file:
        return tomllib.load(file)


@lru_cache(maxsize=1024)
def ids(kind: str) -> tuple[str, ...]:
    """Return the ids of a kind, which are its file names.

    Parameters
    ----------
    kind : folder of the catalogue, such as ``accelerators``, ``links``, ``servers``, ``models`` or ``engines``.

    Returns
    -------
    The ids in alphabetical order, none for an unknown kind.
    """
    return tuple(sorted(path.stem for path in (ROOT / kind).glob("*.toml")))


@lru_cache(maxsize=1024)
def table(kind: str, identity: str) -> Table:
    """Return the file of a thing as it is written."""
    return read(ROOT / kind / f"{identity}.toml")


def rows(path: Path) -> tuple[dict[str, str], ...]:
    """Return the rows of a table of comma-separated values, each as column -> text."""
    with path.open(newline="") as file:
        return tuple(csv.DictReader(file))
