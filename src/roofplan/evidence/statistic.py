"""Which statistic of its runs a published figure is: a mean, a median or a percentile."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True, slots=True)
class Statistic:
    """Statistic that a published time is.

    Parameters
    ----------
    kind : of a time per token: ``tpot``, (E2E - TTFT) / (N - 1) of each request; ``gap``, between any two tokens; ``request``, E2E / N.
    quantile : quantile over requests or gaps, None for the mean [1].
    """

    kind: Literal["tpot", "gap", "request"] = "tpot"
    quantile: float | None = None

    def of(self, values: Sequence[float] | np.ndarray) -> float:
        """Return the statistic of a sample."""
        return float(np.mean(values) if self.quantile is None else np.quantile(values, self.quantile))


def statistic(said: str) -> Statistic:
    """Return the statistic that a table names; where it names none, the mean over requests.

    >>> statistic("median ITL"), statistic("p99"), statistic("99"), statistic("mean, first token included")  # doctest: +NORMALIZE_WHITESPACE
    (Statistic(kind='gap', quantile=0.5), Statistic(kind='tpot', quantile=0.99), Statistic(kind='tpot', quantile=0.99),
     Statistic(kind='request', quantile=None))
    """
    words = said.lower()
    found = PERCENTILE.search(words)
    quantile = float(next(filter(None, found.groups()))) / 100.0 if found else 0.5 if MEDIAN.search(words) else None
    if re.search(r"e2e ?/ ?n|first token included|with first token|normali[sz]ed latency", words):
        return Statistic("request", quantile)
    return Statistic("gap" if re.search(r"\bitl\b|inter.token", words) and quantile is not None else "tpot", quantile)


PERCENTILE = re.compile(
    r"\bt?p ?(\d{1,2}(?:\.\d+)?)\b|\b(\d{1,2}(?:\.\d+)?)(?:th|st|nd|rd)\b|\b(\d{1,2}(?:\.\d+)?) percentile\b|^\s*([1-9]\d?(?:\.\d+)?)\s*%?\s*$"
)
"""A percentile, as tables write it."""


MEDIAN = re.compile(r"(?<!or )\bmedian\b(?! of (?:repeats|\d+ runs))")
"""A median over requests or gaps, neither a median of repeats nor an ambiguous ``mean or median``."""
