"""Achieved rates of kernels on vector units: matrix-vector products, scans, and all products of a processor."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from roofplan.records.calibration import Constant
from roofplan.records.engine import Software
from roofplan.records.hardware import BANDWIDTH, CPU, VECTOR, Accelerator
from roofplan.records.terms import Cited, read_only
from roofplan.timing.figures import scopes_by_vendor

AS_ATTAINED = Constant.defined("attained", "share", "any", 1.0, "1", "a probe of this machine attained the rate itself")
"""Share of a rate that a probe of the machine attained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """Achieved rates of kernels on vector units.

    Parameters
    ----------
    rows : largest number of rows for which the engine uses them [1].
    bandwidth : achieved memory rate [B/s].
    unpacking : vector operations per stored entry, by the kernel type of a format [FLOP].
    multiplying : vector operations that take the time of a multiply-add [FLOP].
    instruction : multiply-adds whose time an instruction of a processor's dot products takes, each row by itself [FLOP];
        None where weights are unpacked once for all rows.
    """

    rows: float
    bandwidth: float
    unpacking: Mapping[str, float]
    multiplying: float = 2.0
    instruction: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "unpacking", read_only(self.unpacking))


def vector_peak_of(
    device: Accelerator, fitted: Callable[..., Constant], sources: dict[str, tuple[Cited, ...]]
) -> float:
    """Return the fp32 rate of the vector units, and name its source.

    Parameters
    ----------
    device : the device.
    fitted : finds a constant by its law, name and scopes.
    sources : sources by name, to which those of the rate are added.

    Returns
    -------
    What a probe attained or the data sheet's, else the 16-bit peak times the FP32:FP16 ratio of the vendor's other devices [FLOP/s].
    """
    sheet = device.attained.get(VECTOR) or device.attained.get("fp32") or device.peak.get("fp32")
    if sheet is not None:
        sources["vector_peak"] = (sheet.cited,)
        return sheet.value
    base = device.peak.get("bf16") or device.peak["fp16"]
    share = fitted("vector", "fp32_over_16bit", [device.vendor, "any"])
    sources["vector_peak"] = (base.cited, share)
    return base.value * float(share.value)


def scan_of(
    engine: Software, vector_peak: float, fitted: Callable[..., Constant], sources: dict[str, tuple[Cited, ...]]
) -> float | None:
    """Return the rate of a recurrence that loops over the tokens of a prompt, and name its sources.

    Parameters
    ----------
    engine : engine or training framework.
    vector_peak : fp32 rate of the vector units [FLOP/s].
    fitted : finds a constant by its law, name and scopes.
    sources : sources by name, to which those of the rate are added.

    Returns
    -------
    The rate, None where the software has no such kernel [FLOP/s].
    """
    if not engine.kernels.scans:
        return None
    share = fitted("engine", "scan_share", engine.scopes)
    sources["scan"] = (*sources["vector_peak"], share)
    return vector_peak * share.value


def vector_of(
    engine: Software,
    device: Accelerator,
    wire: float,
    fitted: Callable[..., Constant],
    sources: dict[str, tuple[Cited, ...]],
) -> Vector | None:
    """Return the rates of kernels on vector units, and name their sources.

    Parameters
    ----------
    engine : engine or training framework.
    device : the device.
    wire : memory rate of the data sheet, or what a probe attained [B/s].
    fitted : finds a constant by its law, name and scopes.
    sources : sources by name, to which those of the rates are added.

    Returns
    -------
    The rates, None where the engine has no such kernels.
    """
    if device.device_class == CPU:
        each = fitted("vector", "instruction")
        share = AS_ATTAINED if BANDWIDTH in device.attained else fitted("vector", "bandwidth")
        sources["vector"] = (share, each)
        return Vector(rows=math.inf, bandwidth=wire * share.value, unpacking={}, instruction=each.value)
    if not engine.kernels.vector_rows:
        return None
    chain = engine.scopes
    share, native, blocks = (
        fitted("vector", name, chain) for name in ("bandwidth", "unpacking.native", "unpacking.blocks")
    )
    each = fitted("vector", "multiplying", scopes_by_vendor(engine, device))
    sources["vector"] = (share, native, blocks, each)
    return Vector(
        rows=engine.kernels.vector_rows,
        bandwidth=wire * share.value,
        unpacking={"native": native.value, "dequantise": blocks.value, "blocks": blocks.value},
        multiplying=each.value,
    )
