"""Search the legal layouts of a job on a machine as arrays; times are computed only for layouts that fit."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from roofplan.catalogue.machines import LARGEST_BOX
from roofplan.errors import StrategyError
from roofplan.records.calibration import Fit
from roofplan.records.hardware import Machine
from roofplan.records.model import Attention, Dense, LatentAttention, Mixture, Model
from roofplan.records.strategy import divisors
from roofplan.records.tally import Counts
from roofplan.records.training import OFFLOADS, RECOMPUTES, Framework, Job, Layout
from roofplan.training.ability import Ability, ability
from roofplan.training.ledger import host_peak, ledgers, peak
from roofplan.training.stages import chunk_sizes, even
from roofplan.training.step import step

Array = np.ndarray
Pins = dict[str, Any]
"""Values pinned by ``--strategy``, by field of `Layout`."""

KEPT = 64
"""Layouts kept from each slice of the search [1]."""

LARGEST_MICRO_BATCH = 64
"""Largest number of sequences per micro-batch to try; matmuls are efficient well below it [1]."""

MOST_CHUNKS = 8
"""Largest number of chunks per stage to try; beyond it, messages cost more than the bubble [1]."""

LEAST_SEQUENCE = 1024
"""Minimum tokens of a sequence per context-parallel rank [token]."""

AXES = ("tp", "cp", "dp", "ep", "micro_batch")


@dataclass(slots=True)
class Tally(Counts):
    """Counts of a search, and the least memory of any layout, on a device and on a host [B]."""

    least_memory: float = math.inf
    leanest: Layout | None = None
    least_host: float = math.inf

    def shortage(self, machine: Machine) -> float:
        """Return the least memory of any layout over a device's memory [1]."""
        return self.least_memory / float(machine.device.memory or math.inf)


@dataclass(frozen=True, slots=True)
class Found:
    """Layouts with step times and memory, best first, and the tally."""

    layouts: list[tuple[float, float, Layout]] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    front: list[tuple[float, float, Layout]] = field(default_factory=list)


def tensor_degrees(model: Model, devices: int) -> list[int]:
    """Return the tensor-parallel degrees that divide every head and width of a model."""
    return [tp for tp in divisors(devices) if why_not_tensor(model, tp) is None]


def why_not_tensor(model: Model, tp: int) -> str | None:
    """Return why a tensor-parallel degree does not divide a model, None if it does."""
    for layer, _ in model.decoder.kinds():
        for mixer in layer.mixers:
            heads = mixer.heads if isinstance(mixer, Attention | LatentAttention) else None
            if heads is not None and heads % tp:
                return f"tp {tp} does not divide {heads} heads"
            if isinstance(mixer, Attention) and mixer.kv_heads % tp and tp % mixer.kv_heads:
                return f"tp {tp} neither divides nor is a multiple of {mixer.kv_heads} KV heads"
        for feed in layer.feed_forwards:
            groups = feed.groups if isinstance(feed, Dense) else feed.shared
            for group in groups[:1]:
                if group[0].outputs % tp:
                    return f"tp {tp} does not divide a width of {group[0].outputs:,}"
    return None


def mixtures(model: Model) -> list[Mixture]:
    """Return the MoE modules of a model, one for each kind of layer.

    Parameters
    ----------
    model : its layers and dimensions.

    Returns
    -------
    MoE modules, none for a dense model.
    """
    return [feed for layer, _ in model.decoder.kinds() for feed in layer.feed_forwards if isinstance(feed, Mixture)]


def slices(
    model: Model, job: Job, machine: Machine, framework: Framework, pins: Pins
) -> Iterator[tuple[Layout, dict[str, Array]]]:
    """Yield slices of the search: fixed pipeline, ZeRO, recomputation, offload and shard; arrays of other degrees."""
    devices, layers = machine.count, len(model.decoder.layers)
    pipelined = "pp" in framework.divides and ("pp" in pins or job.adapter is None)
    for pp in divisors(devices):
        if pp > layers or pins.get("pp", pp) != pp or (pp > 1 and not pipelined) or not _dealt(framework, layers, pp):
            continue
        grid = _grid(model, job, devices // pp, framework, pins)
        if not grid["tp"].size:
            continue
        zeros = [zero for zero in framework.stages_on(devices) if pins.get("zero", zero) == zero]
        for (schedule, chunks), zero in itertools.product(_schedules(framework, layers, pp, pins), zeros):
            for (how, share), shard in itertools.product(
                _recomputations(framework, pins), _shards(machine, zero, pins)
            ):
                if not whole_layers(framework, layers, pp * chunks, share):
                    continue
                for offload in _offloads(job, machine, framework, zero, how, share, pp, pins):
                    fixed = Layout(
                        pp=pp,
                        interleave=chunks,
                        zero=zero,
                        recompute=how,
                        recomputed=share,
                        schedule=schedule,
                        offload=offload,
                        shard=shard,
                        imbalance=job.imbalance,
                        capacity=job.capacity,
                    )
                    yield fixed, grid


HOST = -1.0
"""Sentinel: shard over the data-parallel ranks of one host."""

ALL_SHARDED = 3
"""ZeRO stage that also shards weights."""


def _shards(machine: Machine, zero: int, pins: Pins) -> list[float]:
    """Return the sharding group sizes to try: all ranks, and for ZeRO-3 also those of one host."""
    if "shard" in pins:
        return [float(pins["shard"])]
    return [0.0, HOST] if zero == ALL_SHARDED and machine.hosts > 1 else [0.0]


def _recomputations(framework: Framework, pins: Pins) -> list[tuple[str, float]]:
    """Return the kinds of recomputation to try, each with a share of a stage's layers."""
    names = [pins["recompute"]] if "recompute" in pins else RECOMPUTES
    out = []
    for how in names:
        if how == "selective" and not framework.selective:
            continue
        shares = SHARES_OF_LAYERS if how == "full" and framework.recomputes_part else (1.0,)
        out += [(how, share) for share in ((float(pins["recomputed"]),) if "recomputed" in pins else shares)]
    return out


SHARES_OF_LAYERS = (0.25, 0.5, 0.75, 1.0)
"""Shares of a stage's layers to try for full recomputation [1]."""


def _offloads(
    job: Job, machine: Machine, framework: Framework, zero: int, how: str, share: float, pp: int, pins: Pins
) -> list[str]:
    """Return the kinds of offload to try.

    A single device is sharded only to offload weights. Frozen weights can be offloaded if they are sharded, activations and optimizer states if the framework supports it.
    Optimizer offload is slow, so it is tried only on consumer cards unless pinned.
    """
    sharded_alone = machine.count == 1 and zero == ALL_SHARDED and "zero" not in pins and 0 in framework.stages_on(1)
    can = {
        "none": not sharded_alone,
        "weights": job.adapter is not None and zero >= ALL_SHARDED,
        "optimizer": job.adapter is None and framework.offloads_optimizer and machine.per_host <= LARGEST_BOX,
        "activations": swaps(framework, how, share, pp) and not sharded_alone,
    }
    if "offload" in pins:
        return [offload for offload in OFFLOADS if offload == pins["offload"] and can[offload]]
    can["optimizer"] = can["optimizer"] and machine.device.device_class == "consumer"
    return [offload for offload in OFFLOADS if can[offload] and (offload == "none" or machine.copy_rate is not None)]


def swaps(framework: Framework, how: str, share: float, pp: int) -> bool:
    """Return whether a framework supports activation offload with a recomputation, its share of layers and `pp` stages.

    A framework that offloads only under full recomputation moves activation checkpoints, so every layer must be
    recomputed.
    """
    whole = share == 1.0 or "none" in framework.swaps
    return how in framework.swaps and whole and (pp == 1 or framework.swaps_stages)


def whole_layers(framework: Framework, layers: int, pieces: int, share: float) -> bool:
    """Return whether a share of each chunk's layers is a whole number, as recomputation settings require."""
    count = share * max(chunk_sizes(layers, pieces, ends=framework.counts_ends))
    return count >= 1.0 and abs(count - round(count)) < NEARLY


NEARLY = 1e-6
"""Tolerance for rounding to a whole number [1]."""


def _dealt(framework: Framework, layers: int, pieces: int) -> bool:
    """Return whether a framework can split layers over a number of chunks."""
    return not framework.even_layers or even(layers, pieces, ends=framework.counts_ends)


def _schedules(framework: Framework, layers: int, pp: int, pins: Pins) -> list[tuple[str, int]]:
    """Return the schedules of a framework for a pipeline, each with a number of chunks."""
    if pp == 1:
        return [("1f1b", 1)] if pins.get("interleave", 1) == 1 else []
    wanted = pins.get("schedule")
    names = [wanted] if wanted else [name for name in framework.schedules if name != "interleaved"]
    out = [(name, 1) for name in names if name != "dualpipe" or pp % 2 == 0]
    if "interleaved" in framework.schedules and "1f1b" in names:
        most = range(2, MOST_CHUNKS + 1)
        # if layers divide evenly over stages, uneven chunks are tried only when pinned
        loose = not framework.even_layers and ("interleave" in pins or not even(layers, pp, ends=framework.counts_ends))
        out += [
            ("1f1b", n)
            for n in most
            if pp * n <= layers and (loose or even(layers, pp * n, ends=framework.counts_ends))
        ]
    return [(name, chunks) for name, chunks in out if pins.get("interleave", chunks) == chunks]


def _grid(model: Model, job: Job, ranks: int, framework: Framework, pins: Pins) -> dict[str, Array]:
    """Return tp, cp, dp and ep degrees and micro-batch sizes for the `ranks` devices of a stage, as flat arrays."""
    tensors = tensor_degrees(model, ranks)
    if "tp" not in framework.divides:
        tensors = [1]
    contexts = [
        cp
        for cp in divisors(ranks)
        if cp == 1 or (job.sequence % (2 * cp) == 0 and job.sequence // cp >= LEAST_SEQUENCE)
    ]
    if "cp" not in framework.divides or (job.adapter is not None and "cp" not in pins):
        contexts = [1]
    micro = [b for b in divisors(job.batch) if b <= LARGEST_MICRO_BATCH]
    experts = [1]
    if mixtures(model) and "ep" in framework.divides:
        fewest = math.gcd(*(moe.experts for moe in mixtures(model)))
        experts = [ep for ep in divisors(ranks) if fewest % ep == 0]
    axes = [
        np.asarray([x for x in values if pins.get(name, x) == x], dtype=float)
        for name, values in (("tp", tensors), ("cp", contexts), ("ep", experts), ("micro_batch", micro))
    ]
    tp, cp, ep, micro_batch = (axis.ravel() for axis in np.meshgrid(*axes, indexing="ij"))
    dp = ranks / (tp * cp) if tp.size else tp
    legal = (dp >= 1) & (dp == np.floor(dp))
    legal &= job.batch % np.maximum(dp * micro_batch, 1.0) == 0
    legal &= (tp * cp * dp) % ep == 0
    if pins.get("shard"):
        legal &= (dp * cp) % pins["shard"] == 0
    if "dp" in pins:
        legal &= dp == pins["dp"]
    return {
        name: values[legal]
        for name, values in (("tp", tp), ("cp", cp), ("dp", dp), ("ep", ep), ("micro_batch", micro_batch))
    }


def search(
    model: Model,
    job: Job,
    machine: Machine,
    framework: Framework,
    fit: Fit,
    pins: Pins | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Found:
    """Return the layouts of a job that fit, best first.

    Raises
    ------
    StrategyError : no layout has the pinned degrees.
    """
    started = time.process_time()
    pins = pins or {}
    found = Found()
    a = ability(machine, framework, fit)
    room = machine.device.room
    table = list(slices(model, job, machine, framework, pins))
    if not table:
        raise StrategyError(
            _why_nothing(model, job, machine, framework, pins), argument="--strategy", value=_text(pins)
        )
    for index, (fixed, grid) in enumerate(table):
        _slice(model, job, fixed, grid, a, room, found)
        if progress is not None:
            progress(index + 1, len(table))
    if not found.tally.legal:
        raise StrategyError(
            _why_nothing(model, job, machine, framework, pins), argument="--strategy", value=_text(pins)
        )
    found.layouts.sort(key=lambda item: (float(f"{item[0]:.9e}"), _simplicity(item[2])))
    found.tally.seconds = time.process_time() - started
    return replace(found, front=_front(found.layouts))


def _slice(
    model: Model, job: Job, fixed: Layout, grid: dict[str, Array], a: Ability, room: float, found: Found
) -> None:
    """Add the layouts of a slice that fit, with their step times."""
    size = grid["tp"].size
    found.tally.enumerated += size
    if fixed.interleave > 1 or fixed.schedule == "dualpipe":
        # an interleaved pipeline needs a multiple of pp micro-batches, DualPipe at least 2 pp
        passing = job.batch / (grid["dp"] * grid["micro_batch"])
        rounds = passing % fixed.pp == 0 if fixed.interleave > 1 else passing >= 2 * fixed.pp
        grid = {name: values[rounds] for name, values in grid.items()}
    if fixed.shard == HOST:
        shard = np.maximum(np.floor(a.machine.per_host / grid["tp"]), 1.0)
        divides = (shard > 1) & (grid["dp"] % shard == 0) & (grid["dp"] > shard)
        grid = {name: values[divides] for name, values in (grid | {"shard": shard}).items()}
    if not grid["tp"].size:
        return
    found.tally.legal += grid["tp"].size
    layout = fixed.with_degrees(grid)
    table = ledgers(model, job, layout, a.framework, a.rates.fit)
    memory = np.broadcast_to(peak(table), grid["tp"].shape)
    least = int(np.argmin(memory))
    if memory[least] < found.tally.least_memory:
        found.tally.least_memory, found.tally.leanest = float(memory[least]), _one(fixed, grid, least)
    fits = memory + a.framework.keeps("outside") <= room
    if fixed.offload != "none" and a.machine.host_memory is not None and fits.any():
        away = np.broadcast_to(host_peak(table), fits.shape) * a.machine.per_host
        found.tally.least_host = min(found.tally.least_host, float(away[fits].min()))
        fits &= away <= a.machine.host_memory
    if not fits.any():
        return
    held = {name: values[fits] for name, values in grid.items()}
    memory = memory[fits]
    found.tally.fits += memory.size
    found.tally.predicted += memory.size
    times = np.broadcast_to(step(model, job, fixed.with_degrees(held), a).time, memory.shape)
    order = np.argsort(times, kind="stable")[:KEPT]
    lean = np.argsort(memory, kind="stable")[:1]
    for place in dict.fromkeys([*order.tolist(), *lean.tolist()]):
        found.layouts.append((float(times[place]), float(memory[place]), _one(fixed, held, place)))


def _one(fixed: Layout, grid: dict[str, Array], place: int) -> Layout:
    return fixed.with_degrees({name: float(values[place]) for name, values in grid.items()})


def _simplicity(layout: Layout) -> tuple[float, ...]:
    """Return the sort key among equal layouts: fewest tensor ranks, stages, chunks, least recomputation."""
    return (
        float(layout.tp),
        layout.pp,
        layout.interleave,
        float(layout.cp),
        float(layout.ep),
        RECOMPUTES.index(layout.recompute) if layout.recompute in RECOMPUTES else 1,
        float(layout.recomputed),
        layout.zero,
        float(layout.micro_batch),
    )


def _front(layouts: list[tuple[float, float, Layout]]) -> list[tuple[float, float, Layout]]:
    """Return the layouts that no other beats in both time and memory; `layouts` are sorted by time."""
    best, out = math.inf, []
    for item in layouts:
        if item[1] < best:
            best = item[1]
            out.append(item)
    return out


def _text(pins: Pins) -> str:
    return ",".join(f"{name}={value}" for name, value in pins.items())


WORDS_OF = {
    "tp": "tensor parallelism",
    "pp": "pipeline stages",
    "cp": "context parallelism",
    "ep": "expert parallelism",
}


def _why_nothing(model: Model, job: Job, machine: Machine, framework: Framework, pins: Pins) -> str:
    """Return why no layout has the pinned degrees or divides the batch."""
    devices, layers = machine.count, len(model.decoder.layers)
    whole = math.prod(int(pins.get(name, 1)) for name in ("tp", "pp", "cp", "dp"))
    dp, micro = int(pins.get("dp", 1)), int(pins.get("micro_batch", 1))
    pieces = int(pins.get("pp", 1)) * int(pins.get("interleave", 1))
    reasons = [
        (devices % whole != 0, f"degrees multiply to {whole}, which does not divide {devices:,} devices"),
        *(
            (name not in framework.divides and int(pins.get(name, 1)) > 1, f"{framework.id} has no {words}")
            for name, words in WORDS_OF.items()
        ),
        (pins.get("pp", 1) > layers, f"{pins.get('pp')} stages are more than {layers} layers"),
        (
            not _dealt(framework, layers, pieces),
            f"{framework.id} deals {layers} layers to {pieces} chunks only where all hold as many",
        ),
        (
            "recomputed" in pins and not whole_layers(framework, layers, pieces, float(pins["recomputed"])),
            f"{float(pins.get('recomputed', 1.0)):.0%} of the layers of a chunk is not a whole number of them",
        ),
        (
            job.sequence // int(pins.get("cp", 1)) < LEAST_SEQUENCE,
            f"cp {pins.get('cp')} leaves less than {LEAST_SEQUENCE:,} tokens of a sequence of {job.sequence:,} on a rank",
        ),
        (
            pins.get("offload") == "weights" and (job.adapter is None or int(pins.get("zero", 3)) < ALL_SHARDED),
            "offload=weights is for frozen weights under ZeRO-3; offload=optimizer keeps states of what is trained in host memory",
        ),
        (
            pins.get("offload") == "optimizer" and job.adapter is not None,
            "offload=optimizer is for training of all weights: an adapter's states are small",
        ),
        (
            pins.get("offload") == "optimizer" and machine.per_host > LARGEST_BOX,
            f"a rack of {machine.per_host} devices has more processors than offload=optimizer is planned with",
        ),
        (
            pins.get("offload") == "optimizer" and not framework.offloads_optimizer,
            f"{framework.id} has no way to keep optimizer states alone in host memory",
        ),
        (
            pins.get("offload") == "activations" and not _swaps_somehow(framework, pins),
            f"{framework.id} keeps activations in host memory "
            + (
                f"with recompute {' or '.join(framework.swaps)}{'' if 'none' in framework.swaps else ' of all layers'}"
                + ("" if framework.swaps_stages else " and one pipeline stage")
                if framework.swaps
                else "in no way that is known"
            ),
        ),
        ("tp" in pins and why_not_tensor(model, int(pins["tp"])), why_not_tensor(model, int(pins.get("tp", 1)))),
        (
            int(pins.get("zero", framework.zeros[0])) not in framework.stages_on(devices),
            f"{framework.id} offers ZeRO {', '.join(map(str, framework.zeros))}",
        ),
        (int(pins.get("ep", 1)) > 1 and not mixtures(model), f"{model.id} has no experts to divide"),
        (
            pins.get("schedule", "1f1b") not in framework.schedules,
            f"{framework.id} runs {', '.join(framework.schedules)}",
        ),
        (
            job.batch % (dp * micro) != 0,
            f"a batch of {job.batch:,} sequences is not a multiple of dp {dp} x micro-batch {micro}",
        ),
    ]
    nothing = _why_no_split(model, job, machine, framework, pins)
    why = next((text for holds, text in reasons if holds), nothing)
    return (f"--strategy {_text(pins)}: " if pins else "") + str(why)


def _why_no_split(model: Model, job: Job, machine: Machine, framework: Framework, pins: Pins) -> str:
    """Return why a batch cannot be divided: by replicas and micro-batches, or by rounds of a pipeline."""
    devices = machine.count
    split = [grid for fixed, grid in slices(model, job, machine, framework, pins) if grid["tp"].size]
    if split:
        return (
            f"a batch of {job.batch:,} sequences gives no pipeline of {framework.id} whole rounds of micro-batches:"
            f" micro-batches of a replica must be a multiple of its stages; a batch of {devices:,}seq is"
        )
    near = _nearest_batch(job.batch, devices)
    return (
        f"no split of {devices:,} devices into tp x pp x cp x dp uses them all and divides a batch of"
        f" {job.batch:,} sequences"
        + (f"; a batch of {near:,}seq can be divided" if near != job.batch else " and as many heads and layers")
    )


def _swaps_somehow(framework: Framework, pins: Pins) -> bool:
    """Return whether the pins allow a recomputation that supports activation offload."""
    shares = _recomputations(framework, pins)
    return any(swaps(framework, how, share, int(pins.get("pp", 1))) for how, share in shares)


def _nearest_batch(batch: int, devices: int) -> int:
    """Return the multiple of the device count nearest to a batch; for a smaller one, their largest divisor below it, or all."""
    if batch >= devices:
        return round(batch / devices) * devices
    near = max(d for d in divisors(devices) if d <= batch)
    return near if near != batch else devices
