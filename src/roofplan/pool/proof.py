"""A plan proven: llama.cpp over shaped links, beside what the laws of a pool say of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from roofplan import catalogue
from roofplan.errors import InputError, unwrap
from roofplan.inputs import PoolProveInputs
from roofplan.laws.pool import FRAME, PAYLOAD, shaped_time
from roofplan.measure.namespaces import BURST, Switched, why_not
from roofplan.measure.workers import Bench, NoWorkers, Tools, Watched, build, packaged_model, tools_at, watched
from roofplan.operations.table import Step
from roofplan.pool.costs import head_bytes, layer_weights
from roofplan.pool.layout import Layout, Stage
from roofplan.pool.members import bit_rate
from roofplan.pool.times import messages_of
from roofplan.records import units
from roofplan.records.model import Model
from roofplan.records.pool import LAST, PoolSoftware

ENGINE = "llama.cpp"
MOST_WORKERS = 8
"""Most workers of a proof: each takes a processor [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A figure as it was predicted, with the ends of its interval, and as it was measured; in the unit of the figure."""

    predicted: float
    low: float
    high: float
    measured: float

    @property
    def error(self) -> float:
        """Relative error of the prediction [1]."""
        return self.predicted / self.measured - 1.0

    @property
    def inside(self) -> bool:
        """Whether the measurement lies inside the interval."""
        return self.low <= self.measured <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """What was seen over links of one rate.

    Parameters
    ----------
    rate : of every link, None over loopback [B/s].
    received : bytes to the client for each token, `load` of the weights and its time, `token` and `prompt` their times [B, B, s, s, s];
        None where the links were not watched.
    wire : share of a token's predicted time that is on the wire [1].
    """

    rate: float | None
    token: Compared
    prompt: Compared
    received: Compared | None
    sent: Compared | None
    load: Compared | None
    wire: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A plan beside its runs.

    Parameters
    ----------
    model : the model; `layers` of each worker, the last one with the output layer [1].
    local : what the client does alone, from which its work over links is predicted.
    links : what was seen at each rate.
    why : why links were not shaped, empty where they were.
    """

    model: Model
    layers: tuple[int, ...]
    local: Watched
    links: tuple[Proven, ...]
    why: str


def prove_pool(
    given: PoolProveInputs,
    model_of: Callable[[str], Model],
    remark: Callable[[str], None],
    progress: Callable[[int, int], None] | None = None,
) -> Proof:
    """Run a model over workers behind shaped links, and compare what is seen with what is predicted.

    Parameters
    ----------
    given : inputs of ``roofplan pool prove``.
    model_of : returns the model of a GGUF file.
    remark : is told what is done.
    progress : called with the runs that are done and all of them [1].

    Returns
    -------
    The proof.

    Raises
    ------
    InputError : bad input.
    NoWorkers : llama.cpp with RPC is not at hand, or failed.
    UnsupportedFeature : links cannot be shaped as asked.
    """
    workers = units.parse_count(given.workers, "--workers")
    if workers > MOST_WORKERS:
        raise InputError(f"--workers: at most {MOST_WORKERS}", argument="--workers", value=str(given.workers))
    bench = Bench(
        prompt=units.parse_length(given.prompt, "--prompt"),
        output=units.parse_length(given.output, "--output"),
        runs=units.parse_count(given.runs, "--runs"),
    )
    rates = [_rate(one) for one in given.rate]
    delay = 0.0 if given.delay is None else units.parse(given.delay, "s", "--delay")
    why = why_not()
    tools = _tools(given, remark, progress)
    path = packaged_model() if given.model is None else given.model
    model = model_of(path)
    if len(model.decoder.layers) < workers:
        raise InputError(f"--workers: {model.id} has {len(model.decoder.layers)} layers", argument="--workers")
    if why:
        remark(f"{why}: links are not shaped, and workers listen on loopback")
    whole = 1 + (1 if why else len(rates))
    _tell(progress, 0, whole)
    local = watched(tools, path, bench, net=None, workers=0, patience=PATIENCE)
    _tell(progress, 1, whole)
    split = _split(len(model.decoder.layers), workers)
    weights = float(layer_weights(model).sum()) + head_bytes(model)
    links: list[Proven] = []
    for rate in [None] if why else rates:
        if rate is None:
            seen = watched(tools, path, bench, net=None, workers=workers, patience=PATIENCE)
        else:
            wire = _wire(model, software_of(), split, Step(new=float(bench.prompt), requests=1.0), rate)[0]
            wire += bench.output * _wire(model, software_of(), split, Step(sequences=1.0, context=1.0), rate)[0]
            late = PATIENCE + SLACK * (weights / rate + bench.runs * (wire + 4.0 * delay * workers * bench.output))
            with Switched(workers + 1, rate, delay) as net:
                seen = watched(tools, path, bench, net=net, workers=workers, patience=late)
        links.append(compared(model, weights, split, local, seen, rate, delay, bench.prompt))
        _tell(progress, 1 + len(links), whole)
    return Proof(model=model, layers=split, local=local, links=tuple(links), why=why)


PATIENCE, SLACK = 600.0, 3.0
"""Time after which a run is given up, beside so many times what its links should take [s, 1]."""


def software_of() -> PoolSoftware:
    """Return what joins the workers.

    Returns
    -------
    llama.cpp's RPC.
    """
    return catalogue.pools().software[ENGINE]


def _tell(progress: Callable[[int, int], None] | None, done: int, whole: int) -> None:
    if progress is not None:
        progress(done, whole)


def _rate(text: str) -> float:
    rate = bit_rate(text, "--rate")
    if rate is None or not LEAST_RATE <= rate <= MOST_RATE:
        raise InputError(f"--rate: {text}: from 0.1mbit to 80gbit. Example: 20mbit", argument="--rate", value=text)
    return rate


LEAST_RATE, MOST_RATE = 1.25e4, 1e10
"""Rates that links are shaped to [B/s]."""


def _tools(given: PoolProveInputs, remark: Callable[[str], None], progress: Callable[[int, int], None] | None) -> Tools:
    found = tools_at(given.llama)
    if found is None and given.build and given.llama is None:
        found = build(remark, progress)
    if found is None:
        where = "in the cache or on the path" if given.llama is None else f"in {given.llama}"
        raise NoWorkers(
            f"no llama-bench and ggml-rpc-server {where}: roofplan pool prove --build makes them, or --llama names their folder",
            argument="--llama",
        )
    return found


def _split(layers: int, workers: int) -> tuple[int, ...]:
    """Return the layers of each worker where all take the same share; the output layer counts as one, and stands with the last."""
    ends = [round((layers + 1) * (k + 1) / workers) for k in range(workers)]
    counts = np.diff([0, *ends]).tolist()
    return (*counts[:-1], counts[-1] - 1)


# Predictions --------------------------------------------------------------------------------------


ALONG = (0.0, 0.0, 0.0)
"""Nothing beside what is predicted: low, central, high."""


def compared(
    model: Model,
    weights: float,
    split: Sequence[int],
    local: Watched,
    seen: Watched,
    rate: float | None,
    delay: float,
    prompt: int,
) -> Proven:
    """Return what was seen beside what is predicted from the client's own speed and the messages.

    Parameters
    ----------
    model : the model.
    weights : what is sent to the workers [B].
    split : layers of each worker [1].
    local : what the client does alone.
    seen : what was seen over the links.
    rate : of every link, None over loopback [B/s].
    delay : of a link one way [s].
    prompt : tokens of a prompt [token].

    Returns
    -------
    Both.
    """
    rules = catalogue.pools()
    software, margin, host = software_of(), rules.margins["wire"].value, rules.margins["shared_host"].value
    token, answered = _wire(model, software, split, Step(sequences=1.0, context=1.0), rate)
    pass_time, _ = _wire(model, software, split, Step(new=float(prompt), requests=1.0), rate)
    copies, started = software.quantities["copies"], rules.margins["started"]
    fewer, more = ((end or copies.value) / copies.value for end in (copies.low, copies.high))
    hop, visits = software.quantities["hop"], float(len(split))
    trips = 4.0 * delay * visits
    low, high = (visits * (end or hop.value) for end in (hop.low, hop.high))
    frames = FRAME / PAYLOAD

    def timed(alone: float, wire: float, measured: float, fewer: float = 1.0, more: float = 1.0) -> Compared:
        return Compared(
            predicted=alone + visits * hop.value + trips + wire,
            low=alone / host + low + trips + wire * fewer / margin,
            high=alone * host + high + trips + wire * more * margin,
            measured=measured,
        )

    def counted(value: float, measured: float | None, beyond: tuple[float, float, float] = ALONG) -> Compared | None:
        if measured is None:
            return None
        low, central, high = beyond
        return Compared(
            predicted=value + central, low=value / margin + low, high=value * margin + high, measured=measured
        )

    alone = float(np.median(local.tokens))
    whole = timed(alone, token, float(np.median(seen.tokens)))
    load = None if rate is None else float(shaped_time(weights, rate, BURST))
    return Proven(
        rate=rate,
        token=whole,
        prompt=timed(float(np.median(local.prompts)), pass_time, float(np.median(seen.prompts)), fewer, more),
        received=counted(answered * frames, seen.received),
        sent=counted(weights * frames, seen.sent),
        load=None
        if load is None
        else counted(load, seen.load, (unwrap(started.low), started.value, unwrap(started.high))),
        wire=token / whole.predicted,
    )


def _wire(
    model: Model, software: PoolSoftware, split: Sequence[int], step: Step, rate: float | None
) -> tuple[float, float]:
    """Return the time of a pass's messages on shaped links [s], and the bytes of those to the client [B]."""
    ends = np.cumsum([0, *split]).tolist()
    stages = tuple(Stage(k + 1, first, end) for k, (first, end) in enumerate(pairwise(ends)))
    seconds = received = 0.0
    for _, to, size, _ in messages_of(model, software, Layout(0, stages, LAST), step):
        seconds += 0.0 if rate is None else float(shaped_time(size, rate, BURST))
        received += float(size) if to == 0 else 0.0
    return seconds, received
