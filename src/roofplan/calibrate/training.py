"""What training software adds to the kernels' rates: collectives of NCCL, launches, host time, spread; and what its allocator reserves.

Kernel tables anchor products, attention and collectives; published runs of one framework era on one family of devices fit
the few numbers that are left, over the whole family at once.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roofplan import catalogue
from roofplan.calibrate.fitting import Row, affine, descend, entry, spread
from roofplan.calibrate.kernels import kernel_rows
from roofplan.laws import collectives
from roofplan.train.ledger import fullest, ledgers
from roofplan.train.step import Ability, ability, step
from roofplan.validate.training import Skipped, TrainingCase, training_case

LARGE_MESSAGE = 2**22
"""Bytes from which a message is like those of training [B]."""


def training_rows() -> list[Row]:
    """Return the published training runs of the catalogue."""
    with (catalogue.ROOT / "measured" / "training.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def cases(*sources: str) -> list[TrainingCase]:
    """Return the runs of publishers that can be predicted."""
    found = []
    for row in training_rows():
        if row["source_key"] in sources:
            try:
                found.append(training_case(row))
            except Skipped:
                continue
    return found


def fit_nccl() -> list[dict[str, Any]]:
    """Fit the wire shares of NCCL's large messages on switched NVLink, per architecture, and their common start-up; and of networks."""
    rows: dict[str, list[tuple[str, float, float]]] = defaultdict(list)
    across = []
    for row in kernel_rows():
        if row["kernel"] != "collective" or not row["latency_us"] or not row["message_bytes"]:
            continue
        size, count, seconds = float(row["message_bytes"]), int(row["count"]), float(row["latency_us"]) * 1e-6
        device = catalogue.accelerator(row["device"])
        rate = device.value("link_bandwidth")
        if size < LARGE_MESSAGE or rate is None or not (device.scale_up or "").startswith("nvlink"):
            continue
        if "bridge" in (device.scale_up or ""):
            continue
        if row["op"] == "all_reduce":
            volume = float(collectives.ring_volume_factor(count)) * size
            if count > device.domain and size >= 2**28:
                across.append(volume / seconds / (NETWORK_OF_BENCHMARK * device.domain))
            if count <= device.domain:
                rows["all_reduce"].append((device.architecture, volume / rate, seconds))
        elif row["op"] in {"all_gather", "reduce_scatter", "alltoall"} and count <= device.domain:
            rows["gather"].append((device.architecture, (count - 1) / count * size / rate, seconds))
    source = "NCCL tables: aiconfigurator-core 0.12.0 (PyPI), ml-engineering; messages from 4 MiB"
    out = []
    for name, found in rows.items():
        base, shares = affine(found, 2e-5)
        for architecture, (share, deviation, count) in sorted(shares.items()):
            out.append(entry("nccl", name, f"switch/{architecture}", share, "1", deviation, count, source))
        middle = float(np.median([share for share, _, _ in shares.values()]))
        count, deviation = len(found), spread(share for share, _, _ in shares.values())
        out.append(entry("nccl", name, "any", middle, "1", deviation, count, source, "median of the architectures"))
        if name == "all_reduce":
            out.append(entry("nccl", "base", "any", base, "s", deviation, count, source))
    share = float(np.median(across))
    note = "all-reduce over four hosts of eight B200, 400 Gb/s for each"
    out.append(entry("nccl", "network", "any", min(share, 1.0), "1", spread(across), len(across), source, note))
    return out


NETWORK_OF_BENCHMARK = 50e9
"""Network rate one way of each device in the published all-reduce over several hosts, 400 Gb/s [B/s]."""


@dataclass(frozen=True, slots=True)
class Family:
    """One framework era on one architecture, and the publishers whose runs fit it."""

    framework: str
    architecture: str
    sources: tuple[str, ...]
    fits: tuple[str, ...]


FITTED = {"compute": 1.0, "memory": 1.0, "launch": 1e-5, "ramp": 5e-6, "network": 0.7, "sigma": 0.005, "attention": 1.0}
"""What is fitted, and where the search starts."""


def with_values(a: Ability, p: dict[str, float]) -> Ability:
    """Return what a machine attains with fitted numbers put in."""
    r = a.rates
    compute = {name: rate * p.get("compute", 1.0) for name, rate in r.compute.items()}
    bandwidth = {**r.bandwidth, "memory": r.bandwidth["memory"] * p.get("memory", 1.0)}
    r = replace(r, compute=compute, bandwidth=bandwidth, attention_share=r.attention_share * p.get("attention", 1.0))
    w = a.wires
    if a.machine.network is not None and "network" in p:
        w = replace(w, outside=(a.machine.network_per_device or 1.0) * p["network"], shared=p.get("shared", w.shared))
    return replace(a, rates=r, wires=w, **{k: p[k] for k in ("launch", "ramp", "host", "sigma") if k in p})


def predicted(case: TrainingCase, p: dict[str, float]) -> float:
    """Return the seconds of a step of a case with fitted numbers put in."""
    return float(step(case.model, case.job, case.layout, with_values(case.ability(), p)).time)
