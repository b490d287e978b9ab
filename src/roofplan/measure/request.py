"""Parse the flags of ``roofplan measure``: where an endpoint is, how it is asked, and the load."""

from __future__ import annotations

import os
import time
from dataclasses import replace

from roofplan.errors import InputError, choice
from roofplan.inputs import Arriving, MeasureInputs, OfEndpoint, StabilityInputs
from roofplan.load.asked import ROUNDS, Asked, asked_of, seed_of
from roofplan.load.statistics import Objective, objectives_of
from roofplan.measure.client import Asking
from roofplan.measure.exchange import target_of
from roofplan.measure.sample import SEEN
from roofplan.measure.stability import Schedule
from roofplan.measure.stream import APIS, CHAT
from roofplan.measure.text import Prompts
from roofplan.records import units

REQUESTS = 100
"""Requests of a measurement where nothing says how many [1]."""

FRESH, REPEATED = WAYS = ("fresh", "repeated")
"""Prompts that no cache knows, and prompts that it does."""


def asking_of(given: OfEndpoint, prompts: Prompts) -> Asking:
    """Return how an endpoint is asked.

    Parameters
    ----------
    given : inputs of a command, as the user gave them.
    prompts : makes the text of prompts.

    Returns
    -------
    Address, way to ask and key; the model is what the user named, or empty.

    Raises
    ------
    InputError : no address, an unknown way to ask, or no such variable in the environment.
    """
    key = ""
    if given.key_env is not None:
        key = os.environ.get(given.key_env, "").strip()
        if not key.isascii() or not key.isprintable():
            message = (
                f"--key-env: the value of {given.key_env} is no key: it holds a line break or a letter beyond ASCII"
            )
            raise InputError(message, argument="--key-env", value=given.key_env)
        if not key:
            message = f"--key-env: the environment has no variable {given.key_env}"
            raise InputError(message, argument="--key-env", value=given.key_env)
    return Asking(
        target=target_of(str(given.url), key),
        api=CHAT if given.api is None else choice(given.api, APIS, "--api"),
        model=given.model or "",
        prompts=prompts,
        timeout=units.parse(given.timeout, "s", "--timeout"),
    )


def schedule_of(given: StabilityInputs, now: float) -> tuple[Asking, Schedule, tuple[int, int]]:
    """Return how an endpoint is probed, when, and with which lengths.

    Parameters
    ----------
    given : inputs of ``roofplan measure stability``.
    now : seconds of the epoch at which the first interval begins [s].

    Returns
    -------
    All three.

    Raises
    ------
    InputError : what cannot be read, or fewer probes than one.
    """
    every, whole = units.parse(given.every, "s", "--every"), units.parse(given.for_, "s", "--for")
    count = round(whole / every)
    if count < 1:
        message = f"--for: {given.for_} is shorter than an interval of {given.every}"
        raise InputError(message, argument="--for", value=given.for_)
    seed = seed_of(given.seed)
    asking = asking_of(given, _prompts(given.prompts, seed))
    lengths = units.parse_length(given.input, "--input"), units.parse_length(given.output, "--output")
    return asking, Schedule(begin=now, every=every, count=count, seed=seed), lengths


def limits_of(given: StabilityInputs) -> tuple[Objective, ...]:
    """Return the limits on probes.

    Parameters
    ----------
    given : inputs of ``roofplan measure stability``.

    Returns
    -------
    The limits.

    Raises
    ------
    InputError : one on what no client sees.
    """
    return seen_limits(objectives_of(given.slo))


def seen_limits(limits: tuple[Objective, ...]) -> tuple[Objective, ...]:
    """Return limits, all of them on what a client sees of a request.

    Parameters
    ----------
    limits : as they were asked for.

    Returns
    -------
    The same.

    Raises
    ------
    InputError : one on something else.
    """
    for one in limits:
        if one.figure not in SEEN:
            known = ", ".join(name for name in SEEN if name != "itl")
            raise InputError(f"--slo: no client sees {one.figure}; limits are {known}", argument="--slo")
    return limits


def load_of(given: MeasureInputs) -> tuple[Asking, Asked]:
    """Return how an endpoint is asked, and under which load; one client where no load is given.

    Parameters
    ----------
    given : inputs of ``roofplan measure endpoint``.

    Returns
    -------
    Both.

    Raises
    ------
    InputError : what cannot be read, or a limit on what no client sees.
    """
    load: Arriving = given
    if given.rate is None and given.clients is None and given.burst is None and given.trace is None:
        load = replace(given, clients="1", requests=given.requests or str(ROUNDS))
    asked = asked_of(load, REQUESTS)
    seen_limits(asked.objectives)
    return asking_of(given, _prompts(given.prompts, asked.seed)), asked


def _prompts(way: str, seed: int) -> Prompts:
    """Return what makes prompts: fresh ones are of this moment, since a cache may know those of an earlier run."""
    if choice(way, WAYS, "--prompts") == REPEATED:
        return Prompts(seed, repeated=True)
    return Prompts(time.time_ns())
