"""Statistics of requests as their client measures them: means, percentiles, what lies inside limits, and their sampling error."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np

from roofplan.errors import InputError, UnitError, nearest
from roofplan.records import units

Array = np.ndarray

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
"""Percentiles of every figure [1]."""

BATCHES = 20
"""Batches of consecutive requests whose means tell the sampling error of the whole [1]."""

STUDENT = 1.73
"""Half width of a 90% interval over the standard error, of `BATCHES` means [1]."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Distribution of a figure over requests.

    Parameters
    ----------
    mean : mean, None without requests [s].
    error : half width of the 90% interval of the mean from the random numbers alone, by batch means [s].
    quantiles : percentiles by name [s].
    count : requests [1].
    """

    mean: float | None
    error: float
    quantiles: dict[str, float]
    count: int


def summary(values: Array) -> Summary:
    """Return the summary of a figure over requests in order of arrival.

    Parameters
    ----------
    values : figure of each request, shape (requests,) [s].

    Returns
    -------
    Mean, sampling error and percentiles.
    """
    if not len(values):
        return Summary(None, 0.0, {}, 0)
    found = np.quantile(values, list(QUANTILES.values()))
    quantiles = {name: float(value) for name, value in zip(QUANTILES, found, strict=True)}
    return Summary(float(values.mean()), sampling_error(values), quantiles, len(values))


def quantile_ends(values: Array, quantile: float) -> tuple[float, float]:
    """Return the 90% interval of a quantile from the random numbers alone, by the ranks between which it lies.

    Requests that wait in the same queue tell less than as many that do not: they count for as many as the error of their
    mean says.

    Parameters
    ----------
    values : figure of each request in order of arrival, shape (requests,) [s].
    quantile : share of requests below it [1].

    Returns
    -------
    Lower and upper end [s]; 0 and infinite where the sample is too small to have one.
    """
    alone, error = float(values.std()) / sqrt(len(values)) * STUDENT, sampling_error(values)
    telling = len(values) * min(1.0, (alone / error) ** 2) if alone and error else float(len(values))
    reach = STUDENT * sqrt(quantile * (1.0 - quantile) / max(telling, 1.0))
    low = 0.0 if quantile < reach else float(np.quantile(values, quantile - reach))
    high = inf if quantile + reach > 1.0 else float(np.quantile(values, quantile + reach))
    return low, high


def sampling_error(values: Array) -> float:
    """Return the half width of a mean's 90% interval by batch means, which takes account of queues that persist [s]."""
    size = len(values) // BATCHES
    if size < 1:
        return float(values.std() / sqrt(len(values)) * STUDENT) if len(values) else 0.0
    means = values[: size * BATCHES].reshape(BATCHES, size).mean(axis=1)
    return float(means.std(ddof=1) / sqrt(BATCHES) * STUDENT)


FIGURES = ("ttft", "tpot", "e2e", "waiting")
"""Figures of a request: time to its first token, between its later ones, of the whole, and until it gets a seat."""


@dataclass(frozen=True, slots=True)
class Objective:
    """One limit of a service level objective.

    Parameters
    ----------
    figure : one of `FIGURES`.
    limit : longest time [s].
    quantile : share of requests that must keep it [1].
    """

    figure: str
    limit: float
    quantile: float

    @property
    def percentile(self) -> str:
        """The quantile as text, such as p99."""
        return f"p{100.0 * self.quantile:g}"

    @property
    def name(self) -> str:
        """Figure and percentile, such as ``ttft p99``."""
        return f"{self.figure} {self.percentile}"


def objectives_of(text: str | None) -> tuple[Objective, ...]:
    """Return the limits in a text such as ``ttft=500ms@p99,tpot=50ms@p95``.

    Parameters
    ----------
    text : ``FIGURE=TIME[@pNN]`` by commas, 99% of requests unless said; None for no limit.

    Returns
    -------
    The limits, in order.

    Raises
    ------
    InputError : an unknown figure, one given twice, or a time or percentile that cannot be read.

    Examples
    --------
    >>> objectives_of("ttft=500ms@p99")
    (Objective(figure='ttft', limit=0.5, quantile=0.99),)
    """
    out: list[Objective] = []
    for part in (text or "").split(","):
        if not part.strip():
            continue
        name, _, rest = (one.strip() for one in part.partition("="))
        figure = name.lower()
        if figure not in FIGURES or any(one.figure == figure for one in out):
            near = nearest(figure, FIGURES)
            why = "is given twice" if figure in FIGURES else f"is no figure of a request: {', '.join(FIGURES)}"
            message = f"--slo: {name or part} {why}. Example: ttft=500ms@p99,tpot=50ms@p95"
            raise InputError(message, argument="--slo", value=text, nearest=near)
        limit, _, percentile = rest.partition("@")
        try:
            seconds = units.parse(limit.strip(), "s", f"--slo: {figure}")
        except UnitError as error:
            raise InputError(error.message, argument="--slo", value=text) from None
        out.append(Objective(figure, seconds, _quantile(percentile, text)))
    return tuple(out)


def _quantile(said: str, text: str | None) -> float:
    """Return the quantile in a text such as p99 or 99%, 99% for none."""
    found = re.fullmatch(r"p?(\d{1,2}(?:\.\d+)?)%?", said.strip().lower() or "p99")
    bare = said.strip().replace(".", "", 1).isdigit()  # 0.99 is a share
    if not found or float(found[1]) <= 0.0 or (bare and float(found[1]) < 1.0):
        message = f"--slo: {said} is no percentile such as p99"
        raise InputError(message, argument="--slo", value=text)
    return float(found[1]) / 100.0
