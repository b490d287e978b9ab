"""Achieved rates of products, attention and collectives, from published kernel tables."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from roofplan import catalogue
from roofplan.calibrate.fitting import LEAST_ROWS, Row, _affine_entries, _scoped, descend, entry, spread
from roofplan.laws import attention, collectives, matmul
from roofplan.operations import element_bytes
from roofplan.records.calibration import Fit
from roofplan.records.hardware import Accelerator

COMPUTE_BOUND = 512


MEMORY_BOUND = 64
"""Tokens from which a published product is compute-bound, and up to which it is memory-bound."""


FORMATS = {
    "bfloat16": ("bf16", "bf16"),
    "fp8": ("fp8", "fp8"),
    "fp8_block": ("fp8.fp8-block", "fp8-block"),
    "nvfp4": ("fp4", "nvfp4"),
    "int4_wo": ("bf16", "awq"),
}
"""Published name of a product -> number format it computes in, format its weights are stored in."""


CONVERTED = {"fp8", "fp8_block", "nvfp4"}
"""Published products whose time has the conversion of their 16-bit inputs in it."""


def kernel_rows() -> list[Row]:
    """Return the published kernel measurements of the catalogue."""
    with (catalogue.ROOT / "measured" / "kernels.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def architecture(device: str) -> str:
    """Return the architecture of a device, which is the scope of a kernel constant."""
    return catalogue.accelerator(device).architecture


def fit_matmul(rows: list[Row], fit: Fit) -> list[dict[str, Any]]:
    """Fit the achieved shares of peak and of bandwidth of a dense product, per architecture.

    Compute share: median of work / (time x peak) from 512 rows on, at the median power limit over peak of an architecture's devices;
    what converting its inputs takes is taken off the time of a product in 8 or 4 bits (`converting`).
    Bandwidth share: time = start-up + traffic / (share x bandwidth) up to 64 rows, for matrices too large for the cache.
    """
    taken = converting(rows, fit)
    products = reached(rows, taken, fit)
    reads: list[tuple[str, float, float]] = []
    for row in rows:
        if row["kernel"] != "gemm" or row["dtype"] not in FORMATS or float(row["m"]) > MEMORY_BOUND:
            continue
        (kind, stored), device = FORMATS[row["dtype"]], catalogue.accelerator(row["device"])
        m, n, k, time = _sizes(row)
        large = n * k * element_bytes(stored) > 2 * (device.value("cache") or 0.0)
        if kind.partition(".")[0] in device.peak and large and device.bandwidth:
            moved = float(matmul.traffic(m, k, n, element_bytes(stored), 2.0))
            reads.append((device.architecture, moved / device.bandwidth, time))
    out = []
    for kind, found in products.items():
        name = kind.partition(".")[0]
        references = {scope: _reference(scope, name, [device for device, _ in rows]) for scope, rows in found.items()}
        shares = {scope: _at_reference(name, rows, references[scope]) for scope, rows in found.items()}
        out += _scoped(shares, "matmul", f"share.{kind}", GEMM_TABLES)
        if kind == name:
            out += [item for item in references.values() if item is not None]
        if name == "bf16":
            over = _over_best(shares)
    out += _conversion_entries(rows, taken)
    return [*out, *_affine_entries(reads, 5e-6, "matmul", "bandwidth", GEMM_TABLES), *over, *_highest()]


GEMM_TABLES = "published GEMM tables: aiconfigurator-core 0.12.0 (PyPI), JAX microbenchmarks"
"""What shares of products are fitted on."""

Converting = dict[tuple[str, str], tuple[float, float]]
"""By device and published format: what launching the conversion of a product's inputs takes [s], and bytes of an entry [B]."""


def _sizes(row: Row) -> tuple[float, float, float, float]:
    """Return rows, outputs and inputs of a published product, and its time [s]."""
    return float(row["m"]), float(row["n"]), float(row["k"]), float(row["latency_us"]) * 1e-6


def reached(rows: Sequence[Row], taken: Converting, fit: Fit) -> dict[str, dict[str, list[tuple[str, float]]]]:
    """Return the shares of the peak that large products reach, with their devices, by format and architecture."""
    products: dict[str, dict[str, list[tuple[str, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["kernel"] != "gemm" or row["dtype"] not in FORMATS or float(row["m"]) < COMPUTE_BOUND:
            continue
        kind, device = FORMATS[row["dtype"]][0], catalogue.accelerator(row["device"])
        peak = device.peak.get(kind.partition(".")[0])
        if peak is None:
            continue
        m, n, k, time = _sizes(row)
        start, each = taken.get((device.id, row["dtype"]), (0.0, 0.0))
        left = time - start - matmul.conversion_traffic(m * k, each) / pass_rate(device, fit)
        share = float(matmul.work(m, k, n)) / left / peak.value if left > 0.0 else 1.0
        # the smallest hardly take longer than a conversion: they stand at the peak, so that the median is of all
        products[kind][device.architecture].append((device.id, min(1.0, share)))
    return products


def pass_rate(device: Accelerator, fit: Fit) -> float:
    """Return the rate at which passes over memory run, infinite where the device's bandwidth is not known [B/s]."""
    return (device.bandwidth or math.inf) * fit.find("memory", "bandwidth", ["any"]).value


def _conversion_entries(rows: Sequence[Row], taken: Converting) -> list[dict[str, Any]]:
    """Return the bytes that converting an input entry moves, per format and architecture the median of its devices."""
    out = []
    for name in sorted(CONVERTED):
        found: dict[str, list[float]] = defaultdict(list)
        for (device, own), (_, each) in taken.items():
            if own == name:
                found[architecture(device)].append(each)
        count = {scope: sum(_converts(row, scope, name) for row in rows) for scope in found}
        every = [each for values in found.values() for each in values]
        for scope, values in [*sorted(found.items()), ("any", every)]:
            seen = count.get(scope, sum(count.values()))
            kind, value = FORMATS[name][0], float(np.median(values))
            out.append(entry("conversion", f"traffic.{kind}", scope, value, "B", CAST_SPREAD, seen, GEMM_TABLES))
    return out


CAST_SPREAD = 0.5
"""Spread of the bytes that a cast moves: devices of one architecture lie as far apart [1]."""


def _converts(row: Row, scope: str, name: str) -> bool:
    """Return whether a row is of a large product of a format on an architecture."""
    large = row["kernel"] == "gemm" and row["dtype"] == name and float(row["m"]) >= COMPUTE_BOUND
    return large and architecture(row["device"]) == scope


def converting(rows: Sequence[Row], fit: Fit) -> Converting:
    """Return what the conversion of a product's inputs takes, per device and format: its launches [s], and bytes of an input entry [B].

    Published products of 8 and 4 bits take 16-bit inputs: time = start + bytes x entries / rate of passes + work / (share x peak).
    The three are told apart by the products' sizes.
    """
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = defaultdict(list)
    for row in rows:
        name = row["dtype"]
        if name not in CONVERTED or not _converts(row, architecture(row["device"]), name):
            continue
        device = catalogue.accelerator(row["device"])
        peak = device.peak.get(FORMATS[name][0].partition(".")[0])
        if peak is None or device.bandwidth is None:
            continue
        m, n, k, time = _sizes(row)
        least = float(matmul.work(m, k, n)) / peak.value
        found[device.id, name].append((least, m * k / pass_rate(device, fit), time))
    return {key: _taken_off(table) for key, table in found.items() if len(table) >= LEAST_ROWS}


def _taken_off(table: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Return start-up and bytes of an entry that bring products of (work at the peak, entries over the rate, time) nearest, from several starts."""
    work, entries, times = (np.asarray(column) for column in zip(*table, strict=True))

    def off(p: list[float]) -> float:
        return float(np.mean(np.abs(np.log((p[0] + p[1] * entries + work / p[2]) / times))))

    starts = [[start, each, 0.6] for start in (3e-6, 1e-5, 2e-5) for each in (1.0, 4.0)]
    start, each, _ = min((descend(off, first) for first in starts), key=off)
    return start, each


def _reference(scope: str, name: str, devices: Sequence[str]) -> dict[str, Any] | None:
    """Return the median power limit over peak of the devices whose products were measured, under their architecture and node."""
    found = {device: energy for device in devices if (energy := energy_of(device, name)) is not None}
    nodes = {catalogue.node_of(catalogue.accelerator(device).process) for device in found}
    if len(nodes) != 1 or None in nodes:
        return None
    source = f"data sheets of {', '.join(found)}"
    value = float(np.median(list(found.values())))
    place = f"{scope}/{nodes.pop()}"
    return entry("matmul", f"energy.{name}", place, value, "J/FLOP", spread(found.values()), len(found), source)


def energy_of(device: str, name: str) -> float | None:
    """Return the power limit of a device over its peak in a number format, None where either is not known [J/FLOP]."""
    found = catalogue.accelerator(device)
    power = found.value("power")
    return power / found.peak[name].value if power is not None and name in found.peak else None


def _at_reference(name: str, rows: Sequence[tuple[str, float]], reference: dict[str, Any] | None) -> list[float]:
    """Return measured shares as they were at the reference power limit over peak."""
    if reference is None:
        return [share for _, share in rows]
    return [
        float(matmul.power_limited_share(share, reference["value"], energy_of(device, name) or reference["value"], 1.0))
        for device, share in rows
    ]


def _highest() -> list[dict[str, Any]]:
    """Return the largest share of a peak that any measured product reaches, per vendor, and the median of the vendors."""
    best: dict[str, list[float]] = defaultdict(list)
    for device in map(catalogue.accelerator, catalogue.ids("accelerators")):
        if "bf16" in device.measured and "bf16" in device.peak:
            best[device.vendor].append(device.measured["bf16"].value / device.peak["bf16"].value)
    source = "best measured products (ml-engineering)"
    out = [
        entry("matmul", "highest", vendor, max(found), "1", spread(found), len(found), source)
        for vendor, found in sorted(best.items())
    ]
    middle, count = float(np.median([max(found) for found in best.values()])), sum(map(len, best.values()))
    return [*out, entry("matmul", "highest", "any", middle, "1", 0.1, count, source, "median of the vendors")]


def _over_best(found: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Return how far serving shapes stay under the best measured product of the same architecture."""
    ratios = []
    for scope, values in found.items():
        best = [
            d.measured["bf16"].value / d.peak["bf16"].value
            for d in map(catalogue.accelerator, catalogue.ids("accelerators"))
            if d.architecture == scope and "bf16" in d.measured and "bf16" in d.peak
        ]
        if best:
            ratios.append(min(1.0, float(np.median(values)) / max(best)))
    return [
        entry(
            "matmul",
            "serving_over_best",
            "any",
            float(np.median(ratios)),
            "1",
            spread(ratios),
            len(ratios),
            "shares fitted above over best measured products (ml-engineering)",
        )
    ]


def fit_vector() -> list[dict[str, Any]]:
    """Fit the fp32 rate of the vector units over the 16-bit matrix rate, per vendor, over the data sheets that state both."""
    shares: dict[str, list[float]] = defaultdict(list)
    for device in map(catalogue.accelerator, catalogue.ids("accelerators")):
        base = device.peak.get("bf16") or device.peak.get("fp16")
        if base is not None and "fp32" in device.peak:
            shares[device.vendor].append(device.peak["fp32"].value / base.value)
    enough = {vendor: found for vendor, found in shares.items() if len(found) >= LEAST_ROWS}
    source = "data sheets of the catalogue that state both rates"
    return _scoped(enough, "vector", "fp32_over_16bit", source)


def fit_attention(rows: list[Row]) -> list[dict[str, Any]]:
    """Fit the share of the bf16 peak in causal prefill attention, and of bandwidth in decode attention.

    Decode rows whose cache would fit twice in the last-level cache are left out: they exceed memory bandwidth.
    """
    prefill: list[tuple[str, float, float]] = []
    decode: list[tuple[str, float, float]] = []
    for row in rows:
        device = catalogue.accelerator(row["device"])
        if row["kernel"] == "attention_prefill" and row["dtype"] == "bfloat16" and "bf16" in device.peak:
            tokens, batch = float(row["tokens"]), float(row["batch"])
            done = float(
                attention.work(
                    batch * attention.prefill_pairs(tokens, 0.0),
                    float(row["heads"]),
                    float(row["head_dim"]),
                    float(row["head_dim"]),
                )
            )
            prefill.append((device.architecture, done / device.peak["bf16"].value, float(row["latency_us"]) * 1e-6))
        if row["kernel"] == "attention_decode" and device.bandwidth:
            width = 1.0 if row["kv_dtype"] == "fp8" else 2.0
            moved = (
                2 * float(row["batch"]) * float(row["tokens"]) * float(row["kv_heads"]) * float(row["head_dim"]) * width
            )
            ideal, time = moved / device.bandwidth, float(row["latency_us"]) * 1e-6
            if (
                moved > 2 * (device.value("cache") or 0.0)
                and ideal < time
                and float(row["heads"]) / float(row["kv_heads"]) <= 32
            ):
                decode.append((device.architecture, ideal, time))
    source = "published attention kernels: aiconfigurator-core 0.12.0 (PyPI), InferSim"
    return [
        *_affine_entries(prefill, 2e-5, "attention", "prefill", source),
        *_affine_entries(decode, 5e-6, "attention", "decode_bandwidth", source),
    ]


def fit_all_reduce(rows: list[Row]) -> list[dict[str, Any]]:
    """Fit start-up, step and wire share of all-reduce, per kind of fabric.

    Switched NVLink: the custom one- and two-shot kernels and NCCL's ring and in-switch reduction, fastest of all at each
    size, as an engine would choose. PCIe: NCCL's ring and the rate that each count of ranks reaches on its bus.
    """
    best: dict[tuple[str, int, float], float] = {}
    for row in rows:
        if (
            row["kernel"] == "collective"
            and row["op"] in {"all_reduce", "custom_all_reduce"}
            and row["latency_us"]
            and row["message_bytes"]
            and _like_a_graph(row)
        ):
            key = (row["device"], int(row["count"]), float(row["message_bytes"]))
            best[key] = min(best.get(key, math.inf), float(row["latency_us"]) * 1e-6)
    switched = [
        (d, n, size, t)
        for (d, n, size), t in best.items()
        if n <= 8
        and (catalogue.accelerator(d).scale_up or "").startswith("nvlink")
        and "bridge" not in (catalogue.accelerator(d).scale_up or "")
    ]
    buses = [
        (d, n, size, t) for (d, n, size), t in best.items() if n <= 8 and catalogue.accelerator(d).scale_up is None
    ]
    return [*_fit_switch(switched), *_fit_bus(buses), *_mesh()]


def _like_a_graph(row: Row) -> bool:
    """Return whether a row was timed back to back, as in a captured graph; nccl-tests at small sizes times its launches."""
    return (row["framework"].startswith(("SGLang", "NCCL 2.2")) and "all_red" not in row["framework"]) or float(
        row["message_bytes"]
    ) >= 2**26


def _fit_switch(rows: list[tuple[str, int, float, float]]) -> list[dict[str, Any]]:
    def time(p: list[float], d: str, n: int, size: float) -> float:
        one, base, step, share = p
        device = catalogue.accelerator(d)
        rate = (device.value("link_bandwidth") or 1.0) * min(share, 1.0)
        options = [
            collectives.one_shot_all_reduce(size, n, one, rate),
            collectives.two_shot_all_reduce(size, n, one, rate),
            collectives.ring_all_reduce(size, n, base, step, rate),
        ]
        if catalogue.link(device.scale_up or "").in_network_reduction:
            options.append(collectives.in_network_all_reduce(size, n, base, rate))
        return float(min(options))

    def loss(p: list[float]) -> float:
        return float(np.mean([min(abs(math.log(time(p, d, n, size) / t)), 1.5) for d, n, size, t in rows]))

    fitted = descend(loss, [4e-6, 1e-5, 1e-6, 0.8])
    deviation = spread(time(fitted, d, n, size) / t for d, n, size, t in rows)
    source = "NCCL and custom all-reduce tables: aiconfigurator-core 0.12.0 (PyPI), ml-engineering"
    names = (("one_shot", "s"), ("base", "s"), ("step", "s"), ("efficiency", "1"))
    return [
        entry("all_reduce", name, scope, min(value, 1.0) if unit == "1" else value, unit, deviation, len(rows), source)
        for scope in ("switch", "any")
        for (name, unit), value in zip(names, fitted, strict=True)
    ]


COLLAPSED = 0.3
"""Share of the rate of two cards below which more of them do not reach each other as peers [1]."""


def _fit_bus(rows: list[tuple[str, int, float, float]]) -> list[dict[str, Any]]:
    """Return ring start-up and step on PCIe over all cards, and the wire rate of each card by ranks."""
    rates: dict[str, dict[int, float]] = defaultdict(dict)
    for d, n, size, t in rows:
        if size >= 2**25:
            rates[d][n] = max(rates[d].get(n, 0.0), float(collectives.ring_volume_factor(n)) * size / t)

    def time(p: list[float], d: str, n: int, size: float) -> float:
        return float(collectives.ring_all_reduce(size, n, p[0], p[1], rates[d][n]))

    def loss(p: list[float]) -> float:
        return float(np.mean([abs(math.log(time(p, d, n, size) / t)) for d, n, size, t in rows]))

    fitted = descend(loss, [5e-6, 2e-6])
    deviation = spread(time(fitted, d, n, size) / t for d, n, size, t in rows)
    source = "NCCL tables: aiconfigurator-core 0.12.0 (PyPI), L40S and RTX PRO 6000 servers"
    out = [
        entry("all_reduce", name, scope, value, "s", deviation, len(rows), source)
        for scope in ("bus", "staged")
        for name, value in zip(("base", "step"), fitted, strict=True)
    ]
    out += [
        entry("all_reduce", "one_shot", scope, fitted[0], "s", deviation, len(rows), source)
        for scope in ("bus", "staged")
    ]
    shares: dict[int, list[float]] = defaultdict(list)
    for d, by_ranks in rates.items():
        wire = catalogue.link(catalogue.accelerator(d).host_link or "").bandwidth
        for n, rate in by_ranks.items():
            if n <= 2 or rate >= COLLAPSED * by_ranks[2]:
                shares[n].append(rate / wire)
    note = (
        "share of a card's link; a server whose rate collapses has no peers across its processors, and counts as staged"
    )
    for n, found in sorted(shares.items()):
        off = max(spread(found), 0.2)
        out.append(
            entry("all_reduce", f"bus_share.{n}", "bus", float(np.median(found)), "1", off, len(found), source, note)
        )
    pair = shares[2]
    out.append(
        entry(
            "all_reduce", "efficiency", "bus", float(np.mean(pair)), "1", spread(pair), len(pair), source, "two cards"
        )
    )
    staged = rates["l40s"][8] * 2 * 8  # 8 ranks of a ring move 2 n bytes over the host path per byte of bus bandwidth
    out.append(
        entry(
            "all_reduce",
            "staged_path",
            "staged",
            staged * 4,
            "B/s",
            0.5,
            0,
            source,
            "four times what eight L40S across two processors reach; no measurement of cards without peer-to-peer",
            kind="guess",
        )
    )
    out.append(
        entry(
            "all_reduce",
            "efficiency",
            "staged",
            float(np.mean(pair)),
            "1",
            0.3,
            0,
            source,
            "borrowed from cards with peer-to-peer",
        )
    )
    return out


def _mesh() -> list[dict[str, Any]]:
    """Return the wire shares that AMD's mesh reaches: 312.9 of 448 GB/s on eight, 47.7 of 64 on two."""
    ratios = [312.912 / 448.0, 47.671 / 64.0]
    source = "RCCL all_reduce_bench, 4 GiB, ml-engineering 2026-08-22"
    out = [entry("all_reduce", "efficiency", "full-mesh", float(np.mean(ratios)), "1", spread(ratios), 2, source)]
    return [
        *out,
        entry("all_reduce", "base", "full-mesh", 1.2e-5, "s", 0.3, 0, "NCCL ring on a switch", kind="guess"),
        entry("all_reduce", "one_shot", "full-mesh", 8e-6, "s", 0.3, 0, "twice the switch", kind="guess"),
    ]
