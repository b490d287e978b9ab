"""Published runs and benchmark results, row by row as their publishers state them."""

from __future__ import annotations

from functools import lru_cache

from roofplan.catalogue.codec import Table
from roofplan.catalogue.files import ROOT, read, rows


@lru_cache(maxsize=1)
def training_rows() -> tuple[dict[str, str], ...]:
    """Return the published training runs of the catalogue.

    Returns
    -------
    The rows of the table, each as column -> text.
    """
    return rows(ROOT / "measured" / "training.csv")


@lru_cache(maxsize=1)
def inference_rows() -> tuple[dict[str, str], ...]:
    """Return the published serving runs of the catalogue, flagged ones included.

    Returns
    -------
    The rows of the table, each as column -> text.
    """
    return rows(ROOT / "measured" / "inference.csv")


@lru_cache(maxsize=1)
def mlperf() -> Table:
    """Return how published MLPerf results are read: systems, software and tasks.

    Returns
    -------
    The tables of the file as they are written.
    """
    return read(ROOT / "benchmarks" / "mlperf.toml")


@lru_cache(maxsize=1)
def blind_rows() -> tuple[dict[str, str], ...]:
    """Return the last blind test: runs that nobody had seen, each predicted once, by the tool as it was.

    Returns
    -------
    The rows of the table, each as column -> text.
    """
    return rows(ROOT / "measured" / "blind.csv")
