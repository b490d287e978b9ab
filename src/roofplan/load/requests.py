"""Requests: when they arrive, how long they are, and which part of their prompts others share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from roofplan.errors import InputError
from roofplan.records import units

Array = np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests in order of arrival, an entry each.

    Parameters
    ----------
    arrivals : seconds from the start; None where each follows on the end of another, as in a closed loop [s].
    inputs, outputs : tokens of prompts and answers, at least 1 [token].
    prefixes : ids of the blocks of each prompt, the same id for the same text after the same beginning; empty where not known.
    prefix_block : tokens of such a block [token].
    failed : requests of a trace that had no answer and are left out [1].
    """

    arrivals: Array | None
    inputs: Array
    outputs: Array
    prefixes: Sequence[tuple[int, ...]] = ()
    prefix_block: int = 0
    failed: int = 0

    def __len__(self) -> int:
        return len(self.inputs)

    def first(self, count: int) -> Requests:
        """Return the first of the requests."""
        arrivals = None if self.arrivals is None else self.arrivals[:count]
        return Requests(
            arrivals=arrivals,
            inputs=self.inputs[:count],
            outputs=self.outputs[:count],
            prefixes=self.prefixes[:count],
            prefix_block=self.prefix_block,
            failed=self.failed,
        )


@dataclass(frozen=True, slots=True)
class Lengths:
    """Distribution of lengths around a mean.

    Parameters
    ----------
    kind : ``fixed``, ``uniform``, ``lognormal`` or ``exponential``.
    low, high : factors of the mean between which uniform lengths lie [1].
    sigma : standard deviation of the logarithm of lognormal lengths [1].
    """

    kind: str = "fixed"
    low: float = 1.0
    high: float = 1.0
    sigma: float = 0.0

    def draw(self, mean: float, count: int, random: np.random.Generator) -> Array:
        """Return lengths, at least 1 [token]."""
        factors = np.ones(count)
        if self.kind == "uniform":
            factors = random.uniform(self.low, self.high, count)
        elif self.kind == "lognormal":
            factors = np.exp(self.sigma * random.standard_normal(count) - 0.5 * self.sigma**2)
        elif self.kind == "exponential":
            middles = (np.arange(count) + 0.5) / count  # quantiles, whose mean hardly depends on chance
            factors = random.permutation(-np.log1p(-middles))
        return np.maximum(1, np.round(factors * mean)).astype(np.int64)

    def longest(self, mean: float, count: int) -> int:
        """Return a length that none of so many drawn ones is likely to exceed [token]."""
        if self.kind == "lognormal":
            beyond = np.sqrt(2.0 * np.log(max(count, 2) * 100.0))
            return ceil(mean * float(np.exp(self.sigma * beyond - 0.5 * self.sigma**2)))
        return ceil(mean * self.high)

    def __str__(self) -> str:
        if self.kind == "uniform":
            return f"uniform from {self.low:g} to {self.high:g} times the mean"
        return f"lognormal, sigma {self.sigma:g}" if self.kind == "lognormal" else "fixed"


def lengths_of(text: str) -> Lengths:
    """Return the distribution in a text such as ``lognormal:0.8``.

    Parameters
    ----------
    text : ``fixed``, ``uniform:LOW-HIGH`` or ``lognormal:SIGMA``, factors of the mean.

    Returns
    -------
    The distribution.

    Raises
    ------
    InputError : another text, or factors out of range.

    Examples
    --------
    >>> lengths_of("uniform:0.5-1.5")
    Lengths(kind='uniform', low=0.5, high=1.5, sigma=0.0)
    """
    kind, _, rest = text.strip().partition(":")
    try:
        if kind == "fixed" and not rest:
            return Lengths()
        if kind == "uniform":
            low, high = (float(part) for part in rest.split("-"))
            if 0.0 <= low <= high and high > 0.0:
                return Lengths("uniform", low, high)
        if kind == "lognormal" and 0.0 < float(rest) <= 3.0:
            return Lengths("lognormal", sigma=float(rest))
    except ValueError:
        pass
    raise InputError(
        f"--lengths: {text} is none of fixed, uniform:LOW-HIGH and lognormal:SIGMA, SIGMA above 0 and up to 3. Example: lognormal:0.8",
        argument="--lengths",
        value=text,
        nearest=["lognormal:0.8", "uniform:0.5-1.5", "fixed"],
    )


def renewal(rate: float, count: int, burstiness: float, random: np.random.Generator) -> Array:
    """Return arrivals whose intervals are gamma distributed.

    Parameters
    ----------
    rate : requests per second [1/s].
    count : arrivals [1].
    burstiness : shape of the distribution: 1 for a Poisson process, more for more regular arrivals, infinite for constant intervals [1].
    random : source of random numbers.

    Returns
    -------
    Times, shape (count,) [s].
    """
    if np.isinf(burstiness):
        return np.arange(1, count + 1) / rate
    return np.cumsum(random.gamma(burstiness, 1.0 / (rate * burstiness), count))


def burstiness_of(text: str) -> float:
    """Return the shape of intervals between arrivals.

    Parameters
    ----------
    text : a number above 0, or ``inf`` for a constant rate.

    Returns
    -------
    The shape [1].

    Raises
    ------
    InputError : not a number above 0.
    """
    if text.strip().lower() in {"inf", "infinite", "constant"}:
        return float("inf")
    return units.parse_amount(text, "--burstiness")


def cached_tokens(requests: Requests, block: int, capacity: float, replicas: int = 1) -> Array:
    """Return the tokens of each prompt that a cache of the latest blocks holds when it arrives [token].

    Blocks are used in order of arrival and the one that was used longest ago gives way first. At least one token of a
    prompt is computed, and whole cache blocks are found.

    Parameters
    ----------
    requests : requests with the ids of their prompts' blocks.
    block : tokens of a block of the engine's cache [token].
    capacity : tokens that the cache of a replica holds [token].
    replicas : caches that requests come to in turn [1].

    Returns
    -------
    Cached tokens, zero where no ids are known, shape (requests,) [token].
    """
    found = np.zeros(len(requests), dtype=np.int64)
    caches: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(replicas)]
    most = int(capacity // requests.prefix_block) if requests.prefix_block else 0
    for i, ids in enumerate(requests.prefixes):
        hits, held = 0, caches[i % replicas]
        for one in ids:
            if one not in held:
                break
            hits += 1
        tokens = min(hits * requests.prefix_block, int(requests.inputs[i]) - 1)
        found[i] = max(0, tokens // block * block)
        for one in ids:
            held[one] = None
            held.move_to_end(one)
        while len(held) > most:
            held.popitem(last=False)
    return found
