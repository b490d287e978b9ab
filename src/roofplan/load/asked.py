"""A load as it is asked for: text with units becomes requests that arrive, and limits on what users feel."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from roofplan.errors import InputError, choice, unwrap
from roofplan.inputs import Arriving
from roofplan.load.requests import Lengths, Requests, burstiness_of, lengths_of, renewal
from roofplan.load.statistics import Objective, objectives_of
from roofplan.load.traces import read_trace
from roofplan.records import units

ROUNDS = 10
"""Least requests of each client where nothing says how many [1]."""

MOST = 20_000_000
"""Requests above which times of all do not fit in memory [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A load as it was asked for, before anything is drawn.

    Parameters
    ----------
    input, output : mean lengths; of a trace, its own [token].
    lengths : how they vary.
    rate : requests per second, None where the load has none of its own [1/s].
    burstiness : shape of the intervals between arrivals [1].
    clients, burst : of a closed loop, and requests that arrive at once; None for another load [1].
    trace : requests of a trace, None for another load.
    count : requests [1].
    duration : of the arrivals, None where their number is given [s].
    """

    input: float
    output: float
    lengths: Lengths
    rate: float | None
    burstiness: float
    clients: int | None
    burst: int | None
    trace: Requests | None
    count: int
    duration: float | None
    warmup: int
    seed: int
    objectives: tuple[Objective, ...]
    find: bool

    @property
    def open(self) -> bool:
        """Whether requests arrive at a rate that could be another."""
        return self.clients is None and self.burst is None

    @property
    def longest(self) -> int:
        """Tokens of the longest request, as drawn [token]."""
        requests = self.requests()
        return int((requests.inputs + requests.outputs).max())

    def requests(self, rate: float | None = None) -> Requests:
        """Return the requests at a rate; the same random numbers serve all rates.

        Parameters
        ----------
        rate : requests per second, None for the one that was asked for [1/s].

        Returns
        -------
        Requests in order of arrival.
        """
        if self.trace is not None:
            own = self.trace.arrivals
            assert own is not None
            wanted = rate if rate is not None else self.rate
            if wanted is None or own[-1] <= 0.0:
                return self.trace
            return replace(self.trace, arrivals=own * ((len(own) - 1) / own[-1] / wanted))
        of_arrivals, of_inputs, of_outputs = (
            np.random.default_rng(s) for s in np.random.SeedSequence(self.seed).spawn(3)
        )
        inputs = self.lengths.draw(self.input, self.count, of_inputs)
        outputs = self.lengths.draw(self.output, self.count, of_outputs)
        arrivals = None
        if self.burst is not None:
            arrivals = np.zeros(self.count)
        elif self.clients is None:
            arrivals = renewal(1.0, self.count, self.burstiness, of_arrivals) / (rate or self.rate or 1.0)
        return Requests(arrivals=arrivals, inputs=inputs, outputs=outputs)

    def words(self, rate: float | None = None) -> str:
        """Return the load as a sentence's beginning, such as ``Poisson 4 req/s``."""
        wanted = rate if rate is not None else self.rate
        if self.clients is not None:
            return f"{self.clients:,} client{'' if self.clients == 1 else 's'}"
        if self.burst is not None:
            return f"{self.burst:,} requests at once"
        if self.trace is not None:
            trace = "trace" if wanted is None else f"trace at {units.significant(wanted)} req/s"
            return f"{trace}, {self.trace.failed:,} without an answer left out" if self.trace.failed else trace
        if np.isinf(self.burstiness):
            return f"constant {units.significant(unwrap(wanted))} req/s"
        kind = "Poisson" if self.burstiness == 1.0 else f"gamma of shape {self.burstiness:g},"
        return f"{kind} {units.significant(unwrap(wanted))} req/s"


def asked_of(given: Arriving, requests: int, find: str | None = None) -> Asked:
    """Return the load of given inputs.

    Parameters
    ----------
    given : inputs of a command, as the user gave them.
    requests : how many where nothing says it [1].
    find : ``rate`` where the highest rate that keeps the limits is sought, None where the load is given.

    Returns
    -------
    The load.

    Raises
    ------
    InputError : none or several loads, or one that cannot be read.
    """
    named = {"--clients": given.clients, "--burst": given.burst, "--trace": given.trace}
    loads = [name for name, value in named.items() if value is not None]
    rate = None if given.rate is None else units.parse(given.rate, "request/s", "--rate")
    finds = find is not None and choice(find, ("rate",), "--find") == "rate"
    if len(loads) > 1 or (loads and loads != ["--trace"] and (rate is not None or finds)):
        both = [*loads, *(["--rate"] if rate is not None else []), *(["--find"] if finds else [])]
        raise InputError(f"{' and '.join(both)} exclude each other: they are different loads", argument=both[-1])
    if not loads and rate is None and not finds:
        raise InputError(
            "which load? --rate 4req/s, --clients 64, --burst 100 or --trace FILE", argument="--rate", value=None
        )
    _refuse_idle(given)
    objectives = objectives_of(given.slo)
    if finds and not objectives:
        raise InputError(
            "--find rate: the highest rate that keeps which limits? Example: --slo ttft=500ms@p99,tpot=50ms@p95",
            argument="--slo",
        )
    trace = None if given.trace is None else read_trace(given.trace)
    clients = None if given.clients is None else units.parse_count(given.clients, "--clients")
    burst = None if given.burst is None else units.parse_count(given.burst, "--burst")
    duration = None if given.duration is None else units.parse(given.duration, "s", "--duration")
    count = _count(given, requests, trace, burst, rate, duration)
    if trace is not None:
        trace = trace.first(count)
    warmup = warmup_of(given)
    if warmup >= count:
        raise InputError(
            f"--warmup: {warmup:,} leaves none of the {count:,} requests", argument="--warmup", value=str(warmup)
        )
    return Asked(
        input=units.parse_length(given.input, "--input") if trace is None else float(trace.inputs.mean()),
        output=units.parse_length(given.output, "--output") if trace is None else float(trace.outputs.mean()),
        lengths=lengths_of(given.lengths),
        rate=rate,
        burstiness=burstiness_of(str(given.burstiness)),
        clients=clients,
        burst=burst,
        trace=trace,
        count=count,
        duration=duration,
        warmup=warmup,
        seed=seed_of(given.seed),
        objectives=objectives,
        find=finds,
    )


def warmup_of(given: Arriving) -> int:
    """Return the first requests that statistics leave out.

    Parameters
    ----------
    given : inputs of a command.

    Returns
    -------
    Their number [1].

    Raises
    ------
    InputError : no count.
    """
    if str(given.warmup).strip().startswith("-"):
        raise InputError(f"--warmup: {given.warmup} is less than no request", argument="--warmup", value=given.warmup)
    return 0 if str(given.warmup).strip() == "0" else units.parse_count(given.warmup, "--warmup")


def _refuse_idle(given: Arriving) -> None:
    """Refuse inputs that the load would not read.

    Raises
    ------
    InputError : names the two.
    """
    each, idle = given.each(), {"trace": ("input", "output", "lengths", "burstiness"), "clients": ("burstiness",)}
    idle["burst"] = ("burstiness", "requests")
    for load, names in idle.items():
        for name in names if getattr(given, load) is not None else ():
            if getattr(given, name) not in {each[name].default, None}:
                message = f"--{name}: the load of --{load} does not read it"
                raise InputError(message, argument=f"--{name}", value=str(getattr(given, name)))
    if given.clients is not None and given.requests is not None:
        count, clients = units.parse_count(given.requests, "--requests"), units.parse_count(given.clients, "--clients")
        if count < clients:
            raise InputError(
                f"--requests: {count:,} are fewer than the {clients:,} clients, who each send one at least",
                argument="--requests",
                value=str(given.requests),
            )


def _count(
    given: Arriving,
    requests: int,
    trace: Requests | None,
    burst: int | None,
    rate: float | None,
    duration: float | None,
) -> int:
    """Return the number of requests."""
    if given.requests is not None and duration is not None:
        raise InputError("--requests and --duration exclude each other", argument="--duration", value=given.duration)
    if duration is not None and rate is None and trace is None:
        message = "--duration: only a rate and a trace have one; give --requests"
        raise InputError(message, argument="--duration", value=given.duration)
    count = requests if given.requests is None else units.parse_count(given.requests, "--requests")
    if given.clients is not None and given.requests is None:
        count = max(count, ROUNDS * units.parse_count(given.clients, "--clients"))
    if burst is not None:
        count = burst
    elif trace is not None:
        count = len(trace) if given.requests is None else min(count, len(trace))
        if duration is not None and trace.arrivals is not None:
            span = float(trace.arrivals[-1])
            pace = 1.0 if rate is None or span <= 0.0 else (len(trace) - 1) / span / rate
            count = max(1, int(np.searchsorted(trace.arrivals * pace, duration, side="right")))
    elif duration is not None and rate is not None:
        count = max(1, round(rate * duration))
    if count > MOST:
        raise InputError(
            f"--requests: {count:,} are more than {MOST:,}, whose times memory holds",
            argument="--requests",
            value=str(count),
        )
    return count


def seed_of(text: str | float) -> int:
    """Return the seed of the random numbers.

    Parameters
    ----------
    text : a whole number from 0.

    Returns
    -------
    The seed.

    Raises
    ------
    InputError : something else.
    """
    try:
        number = int(str(text))
    except ValueError:
        number = -1
    if number < 0:
        raise InputError(f"--seed: {text} is not a whole number from 0", argument="--seed", value=str(text))
    return number
