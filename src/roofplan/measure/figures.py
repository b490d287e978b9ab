"""What the samples of a run say: percentiles with their limits, failures by reason, and how exact the client was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roofplan.errors import unwrap
from roofplan.load.statistics import QUANTILES, Objective, Summary, quantile_ends, summary
from roofplan.measure.endpoint import Run
from roofplan.measure.imports import Imported, Rate
from roofplan.measure.sample import Sample

Array = np.ndarray

FORMULAS = {
    "ttft": "first text - due - time to connect",
    "tpot": "(E2E - TTFT) / (output tokens - 1), of each request",
    "itl": "gaps between events with text, of all requests",
    "e2e": "last text - due - time to connect",
}
"""Figure -> how it is computed."""

TELLING = 10.0
"""Samples beyond a percentile from which it is more than a guess [1]."""

BUNCHED = 1e-4
"""Gap below which an event came with the one before [s]."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Distribution of a figure.

    Parameters
    ----------
    summary : mean and percentiles [s].
    limits : ends of the 90% interval of each percentile, by ranks [s].
    few : percentiles that the sample is too small for.
    formula : how it is computed.
    """

    summary: Summary
    limits: dict[str, tuple[float, float]]
    few: frozenset[str]
    formula: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a run says.

    Parameters
    ----------
    figures : of `SEEN`, as far as the answers tell them.
    answered : complete answers [1].
    failed : requests by the reason of their failure [1].
    messages : an example of what was said, by reason.
    seconds : from the first request's due time to the end of the last answer [s].
    requests_per_second, output_tokens_per_second : of complete answers [1/s, token/s].
    input, output : mean lengths as the server counts, None where it does not [token].
    asked_input, asked_output : mean lengths that were asked for [token].
    short, longer : answers that were shorter, and longer, than asked for [1].
    cached : share of prompt tokens that the server found in its cache, None where it does not say [1].
    connect, late : median time to open a connection, and greatest lateness of the client [s].
    bunched : share of events that came with the one before [1].
    tokens_per_event : of answers whose tokens the server counted; above 1, the first and the last event may hold several [1].
    error_tpot : median relative difference of the time per token from the server's own, None where it sends none [1].
    others : rates that another tool measured beside, or alone.
    beyond_prompt : median of the first token's time beyond the server's own time for the prompt, None where it sends none [s].
    """

    figures: dict[str, Figure]
    answered: int
    failed: dict[str, int]
    messages: dict[str, str]
    seconds: float
    requests_per_second: float
    output_tokens_per_second: float
    input: float | None
    output: float | None
    asked_input: float
    asked_output: float
    short: int
    longer: int
    cached: float | None
    connect: float
    late: float
    bunched: float
    tokens_per_event: float
    error_tpot: tuple[float, float] | None
    beyond_prompt: float | None
    others: tuple[Rate, ...] = ()


def figure_of(values: Array, formula: str) -> Figure:
    """Return the distribution of values in the order of the requests [s]."""
    limits = {name: quantile_ends(values, quantile) for name, quantile in QUANTILES.items()}
    few = frozenset(name for name, quantile in QUANTILES.items() if len(values) * (1.0 - quantile) < TELLING)
    return Figure(summary(values), limits, few, formula)


def seen_of(run: Run, warmup: int = 0) -> Seen:
    """Return what a run says.

    Parameters
    ----------
    run : the run.
    warmup : first requests that are left out [1].

    Returns
    -------
    Figures of complete answers alone, and failures apart.
    """
    ordered = sorted((one for one in run.samples if one.number >= warmup), key=lambda one: one.number)
    good = [one for one in ordered if one.answered]
    bad = [one for one in ordered if not one.answered]
    values = {
        "ttft": _known(one.ttft for one in good),
        "tpot": _known(one.tpot for one in good),
        "itl": np.concatenate([np.zeros(0), *(np.asarray(one.gaps[1:]) for one in good)]),
        "e2e": _known(one.e2e for one in good),
    }
    begun = min((one.due for one in ordered), default=0.0)
    seconds = max((one.done for one in good or ordered), default=begun) - begun
    tokens = [one.events if one.tokens is None else one.tokens for one in good]
    prompts = [one.prompt for one in good if one.prompt is not None]
    cached = [one.cached for one in good if one.cached is not None and one.prompt]
    gaps = values["itl"]
    return Seen(
        figures={name: figure_of(each, FORMULAS[name]) for name, each in values.items() if len(each)},
        answered=len(good),
        failed=dict(Counter(one.reason for one in bad).most_common()),
        messages={one.reason: one.message for one in reversed(bad)},
        seconds=seconds,
        requests_per_second=len(good) / seconds if seconds else 0.0,
        output_tokens_per_second=sum(tokens) / seconds if seconds else 0.0,
        input=float(np.mean(prompts)) if prompts else None,
        output=float(np.mean(tokens)) if good and run.server.counts else None,
        asked_input=float(np.mean([one.asked_input for one in ordered])) if ordered else 0.0,
        asked_output=float(np.mean([one.asked_output for one in ordered])) if ordered else 0.0,
        short=sum(one.tokens is not None and one.tokens < one.asked_output for one in good),
        longer=sum(one.tokens is not None and one.tokens > one.asked_output for one in good),
        cached=sum(cached) / sum(prompts) if cached and sum(prompts) else None,
        connect=float(np.median([one.connect for one in good])) if good else 0.0,
        late=max((one.late for one in ordered), default=0.0),
        bunched=float(np.mean(gaps < BUNCHED)) if len(gaps) else 0.0,
        tokens_per_event=_per_event(good),
        error_tpot=_error(good),
        beyond_prompt=_beyond(good),
    )


def seen_of_import(one: Imported) -> Seen:
    """Return what a run of another tool says, as far as it tells it.

    Parameters
    ----------
    one : the run.

    Returns
    -------
    Its figures without limits, since requests are not told one by one.
    """
    figures = {}
    for name, values in one.figures.items():
        quantiles = {key: value for key, value in values.items() if key != "mean"}
        told = Summary(values["mean"], 0.0, quantiles, int(one.counts.get("completed", 0)))
        figures[name] = Figure(told, {}, frozenset(), one.formulas[name])
    failed = int(one.counts.get("failed", 0))
    return Seen(
        figures=figures,
        answered=int(one.counts.get("completed", 0)),
        failed={"as the tool counts": failed} if failed else {},
        messages={"as the tool counts": "reasons are not told"} if failed else {},
        seconds=one.rates.get("seconds", 0.0),
        requests_per_second=one.rates.get("requests_per_second", 0.0),
        output_tokens_per_second=one.rates.get("output_tokens_per_second", 0.0),
        input=one.loads.get("input"),
        output=one.loads.get("output"),
        asked_input=one.loads.get("input", 0.0),
        asked_output=one.loads.get("output", 0.0),
        short=0,
        longer=0,
        cached=None,
        connect=0.0,
        late=0.0,
        bunched=0.0,
        tokens_per_event=1.0,
        error_tpot=None,
        beyond_prompt=None,
        others=one.others,
    )


def _known(values: object) -> Array:
    """Return the values that are known."""
    return np.array([one for one in values if one is not None])  # type: ignore[attr-defined]


def _per_event(good: Sequence[Sample]) -> float:
    """Return the tokens that an event holds, 1 where the server counts none [1]."""
    counted = [one for one in good if one.tokens is not None and not one.whole]
    events = sum(one.events for one in counted)
    return sum(unwrap(one.tokens) for one in counted) / events if events else 1.0


def _error(good: Sequence[Sample]) -> tuple[float, float] | None:
    """Return the median and the greatest relative difference of the time per token from the server's own [1]."""
    off = []
    for one in good:
        own = server_tpot(one)
        if own and one.tpot is not None:
            off.append(one.tpot / own - 1.0)
    return (float(np.median(off)), float(max(off, key=abs))) if off else None


def server_tpot(one: Sample) -> float | None:
    """Return a server's own time per token, None where it sends none [s]."""
    spent, count = one.timings.get("predicted_ms"), one.timings.get("predicted_n", 0.0)
    if spent is not None and count > 1.0:
        return spent / 1e3 / (count - 1.0)
    mean = one.timings.get("mean_itl_ms")
    return mean / 1e3 if mean else None


def _beyond(good: Sequence[Sample]) -> float | None:
    """Return the median of the first token's time beyond the server's own time for the prompt [s]."""
    over = [
        one.ttft - one.timings["prompt_ms"] / 1e3 for one in good if one.ttft is not None and "prompt_ms" in one.timings
    ]
    return float(np.median(over)) if over else None


def good_of(run: Run, objectives: Sequence[Objective], warmup: int = 0) -> float | None:
    """Return the share of all requests that were answered inside all limits; failures are outside.

    Parameters
    ----------
    run : the run.
    objectives : the limits.
    warmup : first requests that are left out [1].

    Returns
    -------
    The share, None without limits or requests [1].
    """
    counted = [one for one in run.samples if one.number >= warmup]
    if not objectives or not counted:
        return None
    return sum(one.answered and all(inside(one, each) for each in objectives) for one in counted) / len(counted)


def inside(one: Sample, limit: Objective) -> bool:
    """Return whether a request keeps a limit; one without the figure does only where it has none, as TPOT of one token."""
    value = getattr(one, limit.figure)
    if value is None:
        return limit.figure == "tpot" and (one.events if one.tokens is None else one.tokens) <= 1
    return bool(value <= limit.limit)
