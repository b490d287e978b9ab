"""What a published figure is of its runs: a mean, a median, a percentile."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True, slots=True)
class Statistic:
    """Which of many times a published one is.

    Parameters
    ----------
    kind : of a time per token: ``tpot``, of each request (E2E - TTFT) / (N - 1); ``gap``, between any two tokens; ``request``, E2E / N.
    quantile : None for the mean over requests, or over gaps [1].
    """

    kind: Literal["tpot", "gap", "request"] = "tpot"
    quantile: float | None = None

    def of(self, values: Sequence[float]) -> float:
        """Return it of many."""
        return float(np.mean(values) if self.quantile is None else np.quantile(values, self.quantile))


def statistic(said: str) -> Statistic:
    """Return what a table says of its times; what it leaves open is the mean over requests.

    >>> statistic("median ITL"), statistic("p99"), statistic("mean, first token included")
    (Statistic(kind='gap', quantile=0.5), Statistic(kind='tpot', quantile=0.99), Statistic(kind='request', quantile=None))
    """
    words = said.lower()
    found = PERCENTILE.search(words)
    quantile = float(found[1] or found[2]) / 100.0 if found else 0.5 if MEDIAN.search(words) else None
    if re.search(r"e2e ?/ ?n|first token included|with first token|normali[sz]ed latency", words):
        return Statistic("request", quantile)
    return Statistic("gap" if re.search(r"\bitl\b|inter.token", words) and quantile is not None else "tpot", quantile)


PERCENTILE = re.compile(r"\bp ?(\d{1,2}(?:\.\d+)?)\b|\b(\d{1,2}(?:\.\d+)?)(?:th|st|nd|rd)? percentile\b")
"""A percentile as tables write it."""


MEDIAN = re.compile(r"(?<!or )\bmedian\b(?! of repeats)")
"""A median over requests or gaps: one of repeated measurements is not, nor one that a table leaves open."""
