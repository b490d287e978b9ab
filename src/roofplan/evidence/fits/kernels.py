"""Achieved rates of matrix products, grouped products and attention, from published kernel tables."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

import numpy as np

from roofplan import catalogue
from roofplan.evidence.fits.fitting import (
    LEAST_ROWS,
    Row,
    _affine_entries,
    _scoped,
    affine,
    entry,
    merged,
    nearest,
    spread,
)
from roofplan.laws import attention, matmul
from roofplan.operations.table import element_bytes
from roofplan.records.calibration import Constant, Fit
from roofplan.records.hardware import Accelerator

COMPUTE_BOUND = 512


MEMORY_BOUND = 64
"""Tokens from which a published matrix product is compute-bound, and up to which it is memory-bound."""


LEAST_TIME = 1e-5
"""Least ideal time of a product used to fit shares of peak; shorter products are dominated by kernel start-up [s]."""


FORMATS = {
    "bfloat16": ("bf16", "bf16"),
    "fp8": ("fp8", "fp8"),
    "fp8_block": ("fp8.fp8-block", "fp8-block"),
    "nvfp4": ("fp4", "nvfp4"),
    "int4_wo": ("bf16", "awq"),
}
"""Published name of a product -> its compute format and its weight format."""


CONVERTED = {"fp8", "fp8_block", "nvfp4"}
"""Published products whose time includes the conversion of their 16-bit inputs."""


def kernel_rows() -> list[Row]:
    """Return the published kernel measurements of the catalogue."""
    with (catalogue.ROOT / "measured" / "kernels.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def architecture(device: str) -> str:
    """Return the architecture of a device, which is the scope of its kernel constants."""
    return catalogue.accelerator(device).architecture


def fit_matmul(rows: list[Row], fit: Fit) -> list[Constant]:
    """Fit the achieved shares of peak and of bandwidth of dense products, per architecture.

    Compute share: median of work / (time x peak) from 512 rows up, at the median power limit over peak of an architecture's devices.
    The time of converting inputs is subtracted from products in 8 or 4 bits (`converting`).
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
            over = _over_best(found, shares)
    out += _conversion_entries(rows, taken)
    return merged([*out, *_affine_entries(reads, 5e-6, "matmul", "bandwidth", GEMM_TABLES), *over, *_highest()])


GEMM_TABLES = "published GEMM tables: aiconfigurator-core 0.12.0 (PyPI), JAX microbenchmarks"
"""Source of the shares of dense products."""

Converting = dict[tuple[str, str], tuple[float, float]]
"""By device and published format: launch time of the input conversion [s], and bytes moved per entry [B]."""


def _sizes(row: Row) -> tuple[float, float, float, float]:
    """Return rows, outputs and inputs of a published product, and its time [s]."""
    return float(row["m"]), float(row["n"]), float(row["k"]), float(row["latency_us"]) * 1e-6


def reached(rows: Sequence[Row], taken: Converting, fit: Fit) -> dict[str, dict[str, list[tuple[str, float]]]]:
    """Return the shares of peak of large products, with their devices, by format and architecture."""
    products: dict[str, dict[str, list[tuple[str, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["kernel"] != "gemm" or row["dtype"] not in FORMATS or float(row["m"]) < COMPUTE_BOUND:
            continue
        kind, device = FORMATS[row["dtype"]][0], catalogue.accelerator(row["device"])
        peak = device.peak.get(kind.partition(".")[0])
        if peak is None:
            continue
        m, n, k, time = _sizes(row)
        sheet = peak.value * float(row.get("count") or 1.0)  # half a chip where software calls that a device
        if float(matmul.work(m, k, n)) / sheet < LEAST_TIME:
            continue
        start, each = taken.get((device.id, row["dtype"]), (0.0, 0.0))
        left = time - start - matmul.conversion_traffic(m * k, each) / pass_rate(device, fit)
        share = float(matmul.work(m, k, n)) / left / sheet if left > 0.0 else 1.0
        # the smallest take little longer than the conversion: they count as at the peak, so that the median covers all rows
        products[kind][device.architecture].append((device.id, min(1.0, share)))
    return products


def pass_rate(device: Accelerator, fit: Fit) -> float:
    """Return the rate of elementwise passes over memory, infinite where the device's bandwidth is not known [B/s]."""
    return (device.bandwidth or math.inf) * fit.find("memory", "bandwidth", ["any"]).value


def _conversion_entries(rows: Sequence[Row], taken: Converting) -> list[Constant]:
    """Return the bytes moved per converted input entry: the median over devices, per format and architecture."""
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
"""Spread of the bytes moved by a conversion, as seen between devices of one architecture [1]."""


def _converts(row: Row, scope: str, name: str) -> bool:
    """Return whether a row is a large product of a format on an architecture."""
    large = row["kernel"] == "gemm" and row["dtype"] == name and float(row["m"]) >= COMPUTE_BOUND
    return large and architecture(row["device"]) == scope


def converting(rows: Sequence[Row], fit: Fit) -> Converting:
    """Return the cost of converting a product's inputs, per device and format: launch time [s] and bytes per input entry [B].

    Published products in 8 and 4 bits take 16-bit inputs: time = start + bytes x entries / rate of passes + work / (share x peak).
    Products of different sizes separate the three terms.
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
    """Return the start-up and bytes per entry that best fit rows of (time at the peak, entries over the rate, measured time)."""
    work, entries, times = (np.asarray(column) for column in zip(*table, strict=True))

    start, each, _ = nearest(lambda p: np.log((p[0] + p[1] * entries + work / p[2]) / times), [1e-5, 3.0, 0.6])
    return start, each


def _reference(scope: str, name: str, devices: Sequence[str]) -> Constant | None:
    """Return the median power limit over peak of the measured devices, scoped by architecture and process node."""
    found = {device: energy for device in devices if (energy := energy_of(device, name)) is not None}
    nodes = {catalogue.node_of(catalogue.accelerator(device).process) for device in found}
    if len(nodes) != 1 or None in nodes:
        return None
    source = f"data sheets of {', '.join(found)}"
    value = float(np.median(list(found.values())))
    place = f"{scope}/{nodes.pop()}"
    off = spread(found.values())
    return entry("matmul", f"energy.{name}", place, value, "J/FLOP", off, 0, source, kind="definition")


def energy_of(device: str, name: str) -> float | None:
    """Return the power limit of a device over its peak in a number format, None where either is not known [J/FLOP]."""
    found = catalogue.accelerator(device)
    power = found.value("power")
    return power / found.peak[name].value if power is not None and name in found.peak else None


def _at_reference(name: str, rows: Sequence[tuple[str, float]], reference: Constant | None) -> list[float]:
    """Return measured shares scaled to the reference power limit over peak."""
    if reference is None:
        return [share for _, share in rows]
    return [
        float(matmul.power_limited_share(share, reference.value, energy_of(device, name) or reference.value, 1.0))
        for device, share in rows
    ]


def _highest() -> list[Constant]:
    """Return the largest measured share of peak of any product, per vendor, and the median over vendors."""
    best: dict[str, list[float]] = defaultdict(list)
    for device in map(catalogue.accelerator, catalogue.ids("accelerators")):
        if "bf16" in device.measured and "bf16" in device.peak:
            best[device.vendor].append(device.measured["bf16"].value / device.peak["bf16"].value)
    source = "best measured products (ml-engineering, torch-performance-test-data)"
    out = [
        entry("matmul", "highest", vendor, max(found), "1", spread(found), len(found), source)
        for vendor, found in sorted(best.items())
    ]
    middle, count = float(np.median([max(found) for found in best.values()])), sum(map(len, best.values()))
    return [*out, entry("matmul", "highest", "any", middle, "1", 0.1, count, source, "median of the vendors")]


def _over_best(found: dict[str, list[tuple[str, float]]], shares: dict[str, list[float]]) -> list[Constant]:
    """Return the share that products of serving shapes reach of the best measured product of the devices that they were timed on."""
    ratios = []
    for scope, values in shares.items():
        best = [
            d.measured["bf16"].value / d.peak["bf16"].value
            for d in map(catalogue.accelerator, dict.fromkeys(device for device, _ in found[scope]))
            if "bf16" in d.measured
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
            "shares fitted above over best measured products (ml-engineering, torch-performance-test-data)",
        )
    ]


def fit_grouped(rows: list[Row], fit: Fit) -> list[Constant]:
    """Fit the rate of grouped products over dense ones: its limit, and the rows and width at which half of it is lost.

    How many rows keep a device busy grows with its ridge point: what is too little for an H100 is enough for a laptop.
    The time of a published mixture of experts is max(traffic of weights and activations, products at the grouped rate), plus passes that
    sort and sum its token visits, plus launches. The cost of a pass is fitted too but not kept, since the laws model passes themselves.
    """
    table = [row for row in rows if row["kernel"] == "moe"]
    devices = [catalogue.accelerator(row["device"]) for row in table]
    dense = np.array(
        [d.peak["bf16"].value * fit.find("matmul", "share.bf16", [d.architecture, "any"]).value for d in devices]
    )
    wire = np.array([d.bandwidth or math.nan for d in devices])
    read = wire * np.array([fit.find("matmul", "bandwidth", [d.architecture, "any"]).value for d in devices])
    ridge = np.array([d.peak["bf16"].value for d in devices]) / wire
    visits, width, hidden, experts = (
        np.array([float(row[name]) for row in table]) for name in ("m", "n", "k", "batch")
    )
    times = np.array([float(row["latency_us"]) * 1e-6 for row in table])
    tile = matmul.grouped_tile(visits / experts, *GROUPED_TILES)
    padded = matmul.padded_expert_rows(visits, experts, tile)
    weights = 3.0 * hidden * width
    moved = BYTES * (experts * weights + visits * (2.0 * hidden + 3.0 * width))

    def errors(p: Sequence[float]) -> np.ndarray:
        most, half_rows, half_width, passes = p
        share = matmul.grouped_share(padded / experts, width, ridge, most, half_rows, half_width)
        product = np.maximum(moved / read, matmul.work(padded, weights, 1.0) / (dense * share))
        return np.asarray(np.log((product + passes * BYTES * visits * hidden / wire + GROUPED_LAUNCHES) / times))

    best = nearest(errors, [1.2, 0.5, 200.0, 2.0])
    deviation, source = spread(np.exp(errors(best))), "published grouped products: aiconfigurator-core 0.12.0 (PyPI)"
    return [
        entry("grouped", name, "any", value, unit, deviation, len(table), source)
        for (name, unit), value in zip((("most", "1"), ("rows", "B/FLOP"), ("width", "1")), best, strict=False)
    ]


BYTES, GROUPED_TILES, GROUPED_LAUNCHES = 2.0, (16.0, 128.0), 2e-5
"""Bytes of an entry in 16 bits, row tiles of TensorRT-LLM's grouped kernels (cutlass_extensions/gemm_configs.h) [1], and the fixed
time of the kernels of a mixture of experts, as seen in the smallest rows [s]."""


def fit_vector() -> list[Constant]:
    """Fit the fp32 vector rate over the 16-bit matrix rate, per vendor, from data sheets that state both; devices without matrix units aside."""
    shares: dict[str, list[float]] = defaultdict(list)
    for device in map(catalogue.accelerator, catalogue.ids("accelerators")):
        base = device.peak.get("bf16") or device.peak.get("fp16")
        vector = device.peak.get("vector_fp16")
        if base is None or "fp32" not in device.peak or (vector is not None and vector.value == base.value):
            continue
        shares[device.vendor].append(device.peak["fp32"].value / base.value)
    enough = {vendor: found for vendor, found in shares.items() if len(found) >= LEAST_ROWS}
    source = "data sheets of the catalogue that state both rates"
    return _scoped(enough, "vector", "fp32_over_16bit", source)


def fit_attention(rows: list[Row]) -> list[Constant]:
    """Fit the share of bf16 peak of causal prefill attention over many keys, and the share of bandwidth of decode attention.

    A query of a prompt costs as much as some more keys than it sees: as many as leave the rows nearest to the law.
    Decode rows whose KV cache is at most twice the last-level cache are left out, since they may exceed memory bandwidth.
    """
    prefill: list[tuple[str, float, float, float]] = []
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
            keys = float(attention.prefill_pairs(tokens, 0.0)) / tokens
            prefill.append(
                (device.architecture, done / device.peak["bf16"].value, float(row["latency_us"]) * 1e-6, keys)
            )
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

    def over(half: float) -> list[tuple[str, float, float]]:
        return [(one, ideal / attention.share_of_keys(keys, half), time) for one, ideal, time, keys in prefill]

    half = min(KEYS, key=lambda half: _off(over(half)))
    shares = _affine_entries(over(half), 2e-5, "attention", "prefill", source)
    besides = entry("attention", "keys", "any", half, "1", _off(over(half)), len(prefill), source)
    return merged([*shares, besides, *_affine_entries(decode, 5e-6, "attention", "decode_bandwidth", source)])


KEYS = [float(one) for one in np.geomspace(16.0, 4096.0, 33)]
"""Keys whose time a query may cost besides those that it sees [1]."""


def _off(rows: list[tuple[str, float, float]]) -> float:
    """Return the mean distance of an affine fit from its rows, in logarithms [1]."""
    gap, found = affine(rows, 2e-5)
    return fmean(abs(math.log((gap + ideal / found[one][0]) / time)) for one, ideal, time in rows)
