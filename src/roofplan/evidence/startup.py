"""An engine's start-up log beside the ledger: weights, activations, graphs, and the cache to the block."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from roofplan import catalogue
from roofplan.catalogue import format_entry
from roofplan.catalogue.machines import machine as machine_of
from roofplan.errors import InputError, RoofplanError, UnsupportedFeature, unwrap
from roofplan.evidence.engines import engine_version
from roofplan.hf.find import checkpoint_named, read_model
from roofplan.inputs import MemoryInputs
from roofplan.laws import memory as laws
from roofplan.measure.startup import Startup
from roofplan.operations.table import ACTIVATION_BYTES, element_bytes
from roofplan.records.engine import Engine
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.strategy import Strategy
from roofplan.records.workload import Workload
from roofplan.serving.blocks import CacheBlocks, cache_blocks, charged
from roofplan.serving.ledger import Ledger, footprints, ledger
from roofplan.serving.request import known_format, pins
from roofplan.serving.settings import settings_of, with_settings
from roofplan.serving.space import held_by

KV_TYPES = {
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"), "fp8"),
    **dict.fromkeys(("bfloat16", "bf16"), "bf16"),
    **dict.fromkeys(("float16", "f16"), "fp16"),
    "f32": "fp32",
    **{one: one for one in ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")},
}
"""Type of the cache as engines print it -> our format; ``auto`` is the model's own."""

USUAL_BLOCK = 16
"""Tokens of a block where neither the log nor a flag says [token]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One figure of the log beside ours.

    Parameters
    ----------
    name : of the figure.
    printed, rounding : as the log has it and by how much its digits may be off; None where it says nothing.
    ours, low, high : from the model, and its ends where it follows from a rounded figure of the log; None where nothing does.
    exact : whether the printed figure is among ours, None where either is missing or ours is an estimate.
    line : of the log, None where it says nothing.
    how : what ours follows from.
    """

    name: str
    unit: str
    printed: float | None
    rounding: float | None
    ours: float | None
    low: float | None
    high: float | None
    exact: bool | None
    line: int | None
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A start-up log, explained.

    Parameters
    ----------
    started : what it says.
    model : that it ran.
    tensor, pipeline : ranks [1].
    blocks : the cache to the block, None where the engine has none or the log does not say enough.
    lines : figures of the log beside ours.
    notes : what changes the cache, and by how much.
    """

    started: Startup
    model: Model
    tensor: int
    pipeline: int
    blocks: CacheBlocks | None
    lines: list[Line]
    notes: list[str]

    @property
    def holds(self) -> bool:
        """Whether every figure that must agree to the digit does."""
        return all(one.exact is not False for one in self.lines)


def explained(started: Startup, asked: MemoryInputs) -> Explained:
    """Return a start-up log beside our ledger.

    Parameters
    ----------
    started : what the log says.
    asked : model, machine, degrees and settings where the log does not state them.

    Returns
    -------
    Figures side by side, and what would change them.

    Raises
    ------
    InputError : no model that the log names is known, or degrees that are none.
    """
    engine = _engine(started)
    model = held_by(_model(started, asked), engine)
    degrees = pins(asked.strategy)
    tensor = degrees.get("tp") or int(started.number("tensor") or 1)
    pipeline = degrees.get("pp") or int(started.number("pipeline") or 1)
    apart = degrees.get("attention_dp") or (1 if "tp" in degrees else int(started.number("attention") or 1))
    if tensor % apart:
        message = f"--strategy: tp {tensor} is not divided by {apart} ranks of data-parallel attention"
        raise InputError(message, argument="--strategy", value=str(apart))
    strategy = Strategy(tp=tensor, pp=pipeline, attention_dp=apart)
    given = settings_of(asked.set, engine)
    printed = started.word("cache_type") or "auto"
    own = model.dtype if model.dtype != "fp32" else "bf16"
    kv = own if printed == "auto" else KV_TYPES.get(printed)
    if asked.kv_precision is not None:
        kv = known_format(KV_TYPES.get(asked.kv_precision, asked.kv_precision), "--kv-precision")
    cache_bytes = _cached_bytes(kv or own)
    place = None if asked.on is None else machine_of(asked.on, "--on")[0]
    book = (
        None if place is None else _ledger(model, strategy, place, with_settings(engine, given), started, cache_bytes)
    )
    blocks, missing = _blocks(started, model, given, tensor, pipeline, cache_bytes)
    lines = [*_held(started, model, strategy, book, cache_bytes)]
    if kv is None:
        blocks, missing = None, [f"a cache of {printed} is not described: --kv-precision names its format"]
    else:
        lines += _cached(started, model, strategy, blocks, cache_bytes)
    notes = [*missing, *_doubts(started, book), *_notes(started, model, strategy, blocks, given)]
    return Explained(
        started=started, model=model, tensor=tensor, pipeline=pipeline, blocks=blocks, lines=lines, notes=notes
    )


def _cached_bytes(stored: str) -> float:
    """Return the bytes of a cached number: scales of an 8-bit cache are one for a layer, those of GGUF stand in its blocks [B]."""
    entry = format_entry(stored)
    return element_bytes(stored) if entry.get("gguf") else float(entry["bits"]) / 8.0


def _model(started: Startup, asked: MemoryInputs) -> Model:
    name = asked.model or started.word("model")
    if name is None:
        raise InputError("--model is missing: the log names none. Example: --model llama-3.1-8b", argument="--model")
    try:
        return read_model(str(name))
    except RoofplanError as error:
        if asked.model is not None:
            raise
        found = checkpoint_named(SHARD.sub("", re.split(r"[\\/]", str(name))[-1]))
        if found is not None:
            return found
        message = f"the log names the model {name}, which is neither here nor in the catalogue: give --model"
        raise InputError(message, argument="--model", value=name, nearest=error.nearest) from None


SHARD = re.compile(r"(?:-\d+-of-\d+)?\.gguf$")
"""What ends the name of a file, or of one of several, of weights in blocks."""


def _engine(started: Startup) -> Engine:
    """Return the engine of the catalogue that wrote a log: the profile of the version that it prints, else the newest."""
    stated = started.word("version")
    identity = engine_version(started.engine, stated) if stated else None
    return catalogue.engine(identity or catalogue.find("engines", started.engine, "LOG"))


def _ledger(
    model: Model, strategy: Strategy, place: Machine, engine: Engine, started: Startup, cache_bytes: float
) -> Ledger:
    """Return our ledger of the same start."""
    printed = {name: started.number(line) for name, line in PRINTED.items()}
    printed["memory_share"] = printed["memory_share"] if "memory_share" in engine.flags else None
    stated = {name: value for name, value in printed.items() if value is not None and name not in engine.stated}
    engine = with_settings(engine, stated) if stated else engine
    longest = int(started.number("longest") or model.max_positions or 4096)
    load = Workload(input=max(1, longest - 1), output=1, context=longest)
    feet = footprints(model, strategy, cache_bytes)
    return ledger(model, strategy, place, engine, load, feet)


PRINTED = {"memory_share": "utilization", "batched_tokens": "batched", "sequences": "sequences"}
"""Setting -> the line of a log that prints it."""


def _blocks(
    started: Startup, model: Model, given: dict[str, float], tensor: int, pipeline: int, cache_bytes: float
) -> tuple[CacheBlocks | None, list[str]]:
    """Return vLLM's cache to the block, and what keeps it from being known."""
    pool, longest = started.number("pool"), started.number("longest")
    if started.engine != "vllm" or longest is None:
        return None, []
    block = int(given.get("block") or given.get("page") or started.number("block") or USUAL_BLOCK)
    batched = int(given.get("batched_tokens") or started.number("batched") or longest)
    if pool is None:
        return None, ["the log does not say how much memory the cache has: blocks cannot be counted"]
    if pipeline > 1:
        return None, ["layers of a pipeline's stages differ: blocks are not counted"]
    try:
        found = cache_blocks(
            model, pool, tensor=tensor, cache_bytes=cache_bytes, block=block, longest=int(longest), batched=batched
        )
    except UnsupportedFeature as reason:
        return None, [reason.message]
    return found, []


def _printed(started: Startup, name: str) -> float | None:
    """Return the figure that a log prints, for the pool its keys and values together."""
    pool = _pool(started) if name == "pool" else None
    return pool[0] if pool else started.number(name)


def _line(started: Startup, name: str, ours: float | None, how: str, unit: str = "B") -> Line:
    """Return a figure beside an estimate of ours, which need not agree to the digit."""
    said = started.said.get(name)
    return Line(
        name=name,
        unit=unit,
        printed=_printed(started, name),
        rounding=None if said is None else said.rounding,
        ours=ours,
        low=None,
        high=None,
        exact=None,
        line=None if said is None else said.line,
        how=how,
    )


def _held(
    started: Startup, model: Model, strategy: Strategy, book: Ledger | None, cache_bytes: float
) -> Iterator[Line]:
    """Yield weights, activations, what lies beside them, and the pool."""
    weights = max(foot.weights for foot in footprints(model, strategy, cache_bytes))
    yield _line(started, "weights", weights, "every matrix of a rank in its format")
    if book is None:
        for name in ("activations", "runtime", "graphs", "pool"):
            if started.number(name) is not None:
                yield _line(started, name, None, "--on MACHINE sets our ledger beside it")
        return
    yield _capacity(started, book)
    yield _line(
        started,
        "activations",
        book.activations,
        "two residual streams, the widest intermediate and logits of the profile run",
    )
    yield _line(started, "runtime", book.runtime, "context and libraries")
    yield _line(started, "graphs", book.graphs, "captured graphs")
    asked = started.number("longest") or started.number("tokens")
    if started.engine == "llama.cpp" and asked is not None:
        yield _line(started, "pool", book.footprint.request(asked), f"the cache of {asked:,.0f} tokens, as asked for")
    else:
        yield _line(started, "pool", book.pool, "what is left for the cache")


def _capacity(started: Startup, book: Ledger) -> Line:
    """Return the memory of a device, which holds at least what the log prints of weights and cache."""
    found, pool = _line(started, "capacity", book.capacity, "memory that the driver hands out"), _pool(started)
    held = (started.number("weights") or 0.0) + (pool[0] if pool else 0.0)
    if held <= book.capacity or started.engine == "llama.cpp":  # which prints those of all devices
        return found
    return replace(
        found,
        exact=False,
        low=held,
        how=f"less than the {held / 2**30:.2f} GiB of weights and cache that the log prints",
    )


def _cached(
    started: Startup, model: Model, strategy: Strategy, blocks: CacheBlocks | None, cache_bytes: float
) -> Iterator[Line]:
    """Yield blocks, tokens and concurrency as they follow from the printed pool, to the digit."""
    if blocks is not None:
        yield from _in_blocks(started, blocks)
        return
    pool = _pool(started)
    said = started.said.get("tokens")
    if pool is None or said is None or started.engine == "vllm":
        return
    each = max(foot.kv_per_token for foot in footprints(model, strategy, cache_bytes))
    if not each or any(foot.windowed for foot in footprints(model, strategy, cache_bytes)):
        return
    value, rounding = pool
    how = f"printed cache over {each:,.0f} B a token"
    yield _exact(
        started, "tokens", math.floor(value / each), (value - rounding) / each, (value + rounding) / each, how, "token"
    )


def _pool(started: Startup) -> tuple[float, float] | None:
    """Return the printed cache and its rounding, keys and values together [B]."""
    parts = [started.said[name] for name in ("pool_keys", "pool_values") if name in started.said]
    if len(parts) != 2:
        parts = [started.said["pool"]] if "pool" in started.said else []
    if not parts:
        return None
    values = [one.value for one in parts if isinstance(one.value, float)]
    return sum(values), sum(one.rounding for one in parts)


def _in_blocks(started: Startup, blocks: CacheBlocks) -> Iterator[Line]:
    pool, rounding = _pool(started) or (blocks.count * blocks.page, 0.0)
    low = replace(blocks, count=math.floor((pool - rounding) / blocks.page))
    high = replace(blocks, count=math.floor((pool + rounding) / blocks.page))
    how = f"{pool:,.0f} B over pages of {blocks.page:,.0f} B: {len(blocks.groups)} x {blocks.groups[0].layers} layers x {blocks.block} tokens"
    if "blocks" in started.said:
        yield _exact(started, "blocks", blocks.count, low.count, high.count, how, "block")
    newer = f"{blocks.count:,} blocks / {blocks.request:,} a request of {blocks.longest:,} tokens, times its length"
    older = f"{blocks.count:,} blocks / {len(blocks.groups)} groups x {blocks.block} tokens"
    printed = started.number("tokens")
    if printed is not None:
        ways = [
            (blocks.tokens_in_blocks, low.tokens_in_blocks, high.tokens_in_blocks, older),
            (blocks.tokens, low.tokens, high.tokens, newer),
        ]
        fitting = next((way for way in ways if way[1] <= printed <= way[2]), ways[-1])
        yield _exact(started, "tokens", *fitting, "token")
    if "concurrency" in started.said:
        times = unwrap(started.number("concurrency"))
        off = started.said["concurrency"].rounding
        over = [one.tokens_in_blocks / one.longest for one in (blocks, low, high)]
        every = [
            (blocks.concurrency, low.concurrency, high.concurrency, newer),
            (over[0], over[1], over[2], f"{older}, over {blocks.longest:,}"),
        ]
        chosen = next((way for way in every if way[1] - off <= times <= way[2] + off), every[0])
        yield _exact(started, "concurrency", *chosen, "1")


def _exact(started: Startup, name: str, ours: float, low: float, high: float, how: str, unit: str) -> Line:
    """Return a figure that must be among those that the log's rounded digits allow."""
    said = started.said.get(name)
    printed = started.number(name)
    rounding = 0.0 if said is None else said.rounding
    among = None if printed is None else low - rounding <= printed <= high + rounding
    return Line(
        name=name,
        unit=unit,
        printed=printed,
        rounding=rounding,
        ours=ours,
        low=low,
        high=high,
        exact=among,
        line=None if said is None else said.line,
        how=how,
    )


def longest_that_fits(blocks: CacheBlocks, batched: int) -> int:
    """Return the longest request that the blocks hold alone.

    Parameters
    ----------
    blocks : the cache to the block.
    batched : most tokens of a step [token].

    Returns
    -------
    Its length; 0 where not even one token fits [token].
    """
    if all(group.window is None for group in blocks.groups):
        return blocks.count // len(blocks.groups) * blocks.block
    low, high = 0, blocks.longest
    while low < high:
        middle = (low + high + 1) // 2
        need = sum(charged(group, blocks.block, middle, batched) for group in blocks.groups)
        low, high = (middle, high) if need <= blocks.count else (low, middle - 1)
    return low


def _doubts(started: Startup, book: Ledger | None) -> Iterator[str]:
    """Yield what speaks against the machine or the model that the log is compared with."""
    capacity = started.number("capacity")
    if book is not None and capacity is not None and abs(book.capacity / capacity - 1.0) > DIFFERS:
        yield f"the log's device has {capacity / 2**30:.1f} GiB, --on one {book.capacity / 2**30:.1f}: another machine"
    if book is not None and book.weights > book.capacity:
        yield f"weights of {book.weights / 2**30:.1f} GiB alone are more than the {book.capacity / 2**30:.1f} of the device"
    if started.word("file_type") is not None:
        yield f"the log says {started.word('file_type')}: --model FILE.gguf counts the formats of its tensors"


DIFFERS = 0.05
"""Relative difference of memory from which the log is of another machine [1]."""


def _notes(
    started: Startup, model: Model, strategy: Strategy, blocks: CacheBlocks | None, given: dict[str, float]
) -> Iterator[str]:
    """Yield what changes the cache and by how much, and why neighbouring lengths differ."""
    if blocks is not None:
        batched = int(given.get("batched_tokens") or started.number("batched") or blocks.longest)
        held = replace(blocks, count=int(started.number("blocks") or blocks.count))
        fits = longest_that_fits(held, batched)
        if blocks.concurrency < 1.0:
            short = held.needed - held.count * held.page
            more = f"{short / 2**30:.2f} GiB more of cache for {blocks.longest:,} tokens"
            yield f"--max-model-len {fits:,} is the longest that fits; {more}"
        first = (math.ceil(blocks.longest / blocks.block) - 1) * blocks.block + 1
        last = math.ceil(blocks.longest / blocks.block) * blocks.block
        yield f"lengths of {first:,} to {last:,} tokens take the same {blocks.request:,} blocks, so that neighbours differ only at multiples of {blocks.block}"
    if started.engine in {"vllm", "sglang"}:
        widest = max(foot.widest for foot in footprints(model, strategy, 2.0))
        each = laws.activation_peak_bytes(1000.0, model.hidden, widest, ACTIVATION_BYTES, 0.0, 0.0, 0.0)
        per = float(each) / 2**20
        flag = "--max-num-batched-tokens" if started.engine == "vllm" else "--chunked-prefill-size"
        without = " (without chunked prefill: of --max-model-len, so that a longer limit can leave a smaller cache)"
        yield f"each 1,000 tokens of {flag} take about {per:,.0f} MiB of activations from the cache{without}"
