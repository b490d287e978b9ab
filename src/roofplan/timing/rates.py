"""Achieved rates of a machine under given software: matmuls, memory, vector units, kernel launches and links."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from roofplan import catalogue
from roofplan.errors import InputError
from roofplan.laws import Number, matmul
from roofplan.operations.table import EXTRA_KERNELS, ROUTED_EXPERTS
from roofplan.records.calibration import SLOWDOWN, Constant, Fit
from roofplan.records.engine import COMPILED, Engine, Software
from roofplan.records.hardware import BANDWIDTH, CPU, Accelerator, Machine
from roofplan.records.terms import Cited, read_only
from roofplan.timing.figures import scopes_by_vendor, slowdown_scope
from roofplan.timing.network import Network, network
from roofplan.timing.slowdown import slowed
from roofplan.timing.vectors import AS_ATTAINED, Vector, scan_of, vector_of, vector_peak_of

FALLBACKS = {
    "fp4": ("bf16",),
    "fp8": ("bf16",),
    "int8": ("bf16",),
    "bf16": ("fp16",),
    "fp16": ("bf16",),
    "fp32": ("tf32",),
}
"""Fallback formats on a device without tensor units for a checkpoint's format. FP8 and FP4 weights are then unpacked
and multiplied in 16 bits (vLLM's Marlin kernels, W8A16 and W4A16)."""


ANY_UNIT = {name: ("fp16", "bf16", "fp32") if name != "fp32" else () for name in FALLBACKS}
"""Last-resort units when neither the format nor its fallback has one; FP32 falls back to TF32 only."""


@lru_cache(maxsize=256)
def _expert_bandwidths(scopes: tuple[str, ...], fit: Fit) -> dict[str, Constant]:
    """Return the bandwidth shares of grouped GEMMs by expert format, for formats with a constant of their own."""
    found = {f"experts.{stored}": item for stored, item in fit.variants("experts", "bandwidth", scopes).items()}
    if "experts.bf16" in found:
        found.setdefault("experts.fp16", found["experts.bf16"])
    return found


class Grouped(NamedTuple):
    """Rate of grouped GEMMs relative to a dense GEMM.

    Parameters
    ----------
    ridge : peak in 16 bits with sums in fp32 over memory bandwidth [FLOP/B].
    most : share in the limit of large rows and width [1].
    rows : rows of an expert over the ridge point at which half of that share is lost [B/FLOP].
    width : width of an expert at which half of it is lost [1].
    """

    ridge: Number
    most: Number
    rows: Number
    width: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Achieved rates of a machine under an engine; numbers may be arrays over machines.

    Parameters
    ----------
    compute : achieved rate by number format, fallbacks resolved [FLOP/s].
    peak : dense peak by number format, fallbacks resolved [FLOP/s].
    vector_peak : fp32 rate of the vector units [FLOP/s].
    scan : rate of a recurrence that loops over the tokens of a prompt, None where none does [FLOP/s].
    cache : last-level cache, 0 if unknown [B].
    bandwidth : achieved memory rate by kind of operation [B/s].
    vector : rates of GEMV kernels, None if the engine has none.
    attention_share : share of the 16-bit peak that prompts' attention reaches over many keys [1].
    attention_keys : keys whose time each query costs besides those that it sees [1].
    grouped : rate of grouped GEMMs relative to dense ones.
    casts : bytes moved to convert one matmul input, by target format [B].
    gap : time between kernels [s].
    launch : host's time to start a kernel of a step with prompts, which no captured graph holds; 0 where not known [s].
    stall : share by which batches in the stages of a pipeline wait for each other [1].
    extra_kernels : fitted kernels that operations launch besides those counted, by `Operation.extra` [1].
    routed_kernels : those of routed experts over those that a host starts: above one where a slow kernel counts as several [1].
    step_base, step_each : host time per step, and per sequence of a step [s].
    front, delay : front-end time per request, one after the other, and its latency besides [s].
    network : rates and latencies of messages.
    sources : sources of each rate.
    fallbacks : format -> the fallback used for it.
    fit : the fitted constants.
    """

    machine: Machine
    engine: Software
    compute: Mapping[str, Number]
    peak: Mapping[str, Number]
    wire: Number
    vector_peak: Number
    scan: Number | None
    cache: Number
    bandwidth: Mapping[str, Number]
    vector: Vector | None
    attention_share: Number
    attention_keys: Number
    grouped: Grouped
    casts: Mapping[str, float]
    gap: Number
    launch: Number
    stall: Number
    extra_kernels: Mapping[str, float]
    routed_kernels: Number
    step_base: Number
    step_each: Number
    front: Number
    delay: Number
    network: Network
    sources: Mapping[str, tuple[Cited, ...]]
    fallbacks: Mapping[str, str]
    fit: Fit

    def __post_init__(self) -> None:
        for name in ("compute", "peak", "bandwidth", "casts", "extra_kernels", "sources", "fallbacks"):
            object.__setattr__(self, name, read_only(getattr(self, name)))


@lru_cache(maxsize=512)
def rates(machine: Machine, engine: Software, fit: Fit) -> Rates:
    """Return the achieved rates of `machine` under `engine`, from data sheets and fitted constants.

    Parameters
    ----------
    machine : devices and how they are joined.
    engine : engine or training framework.
    fit : the fitted constants.

    Returns
    -------
    Rates of matmuls, attention, memory and messages, with their sources.

    Raises
    ------
    InputError : the data sheet states no memory bandwidth or no peak.
    """
    found, slowdown = (
        fitted_rates(machine, engine, fit),
        fit.get(SLOWDOWN, "time", slowdown_scope(engine, machine.device)),
    )
    return found if slowdown is None else slowed(found, slowdown)


def fitted_rates(machine: Machine, engine: Software, fit: Fit) -> Rates:
    """Return the rates of a machine by the fitted constants alone, without what a user's own runs tell of its device.

    Parameters
    ----------
    machine, engine, fit : those of `rates`.

    Returns
    -------
    Rates, with their sources.

    Raises
    ------
    InputError : the data sheet states no memory bandwidth or no peak.
    """
    device = machine.device
    if device.bandwidth is None or not device.peak:
        raise InputError(
            f"{device.id} has no known memory bandwidth or no known peak: it cannot be planned with",
            argument="--on",
            value=device.id,
        )
    scopes, engine_chain = [device.id, device.architecture, device.vendor, "any"], engine.scopes

    def fitted(law: str, name: str, chain: Sequence[str] = scopes) -> Constant:
        item = fit.find(law, name, chain)
        if BANDWIDTH not in device.attained or (law, name) not in SHARES_OF_BANDWIDTH:
            return item
        return AS_ATTAINED if (law, name) in READS else _of_reads(item, fit.find("matmul", "bandwidth", scopes))

    peak, compute, fallbacks, where_from = _compute_rates(machine, engine, fitted, fit)
    memory_share = fitted("matmul", "bandwidth")
    attention_share, decode_share = fitted("attention", "prefill"), fitted("attention", "decode_bandwidth")
    keys = fitted("attention", "keys")
    experts_bandwidth, passes = fitted("experts", "bandwidth", engine_chain), fitted("memory", "bandwidth")
    grouped = tuple(fit.find("grouped", name, ["any"]) for name in ("most", "rows", "width"))
    own_experts = _expert_bandwidths(tuple(engine_chain), fit)
    if BANDWIDTH in device.attained:
        dense = fit.find("matmul", "bandwidth", scopes)
        own_experts = {name: _of_reads(item, dense) for name, item in own_experts.items()}
    gap, launch = _gap(engine, device, fitted), _launch(engine, device, fitted)
    stall = _stall(engine, fitted)
    extra = {name: fitted("kernel", name, engine_chain) for name in EXTRA_KERNELS}
    more = fitted("engine", "routed_kernels") if not at_home(engine, device) else AS_COUNTED
    base, each = fitted("engine_step", "base", engine_chain), fitted("engine_step", "per_sequence", engine_chain)
    front, delay = fitted("front_end", "request", engine_chain), fitted("front_end", "latency", engine_chain)
    found = device.attained.get(BANDWIDTH) or device.quantities[BANDWIDTH]
    wire, sheet = found.value, found.cited
    shares = {"bandwidth": memory_share, "attention": decode_share, "memory": passes, "experts": experts_bandwidth}
    where_from |= {name: (sheet, item) for name, item in (shares | own_experts).items()}
    read_as = READ_AS | {name: name for name in own_experts}
    where_from |= {"prefill_attention": (attention_share, keys), "grouped": grouped, "gap": (gap,), "launch": (launch,)}
    where_from["stall"] = (stall,)
    where_from |= {"engine": (base, each), "front": (front, delay), **{name: (item,) for name, item in extra.items()}}
    where_from[ROUTED_EXPERTS] += (more,) if more is not AS_COUNTED else ()
    casts = {name: fitted("conversion", f"traffic.{CAST_AS.get(name, name)}") for name in compute if _cast_to(name)}
    where_from["casts"] = tuple(casts.values())
    _as_engine_multiplies(engine, device, peak, compute, fitted, where_from)
    reach = _reach(engine, device, compute, where_from, fit)
    attained = wire * reach.value
    vector_peak = vector_peak_of(device, fitted, where_from)
    return Rates(
        machine=machine,
        engine=engine,
        compute=compute,
        peak=peak,
        wire=wire,
        vector_peak=vector_peak,
        scan=scan_of(engine, vector_peak, fitted, where_from),
        cache=device.value("cache") or 0.0,
        bandwidth={kind: attained * (shares | own_experts)[name].value for kind, name in read_as.items()},
        vector=vector_of(engine, device, wire, fitted, where_from),
        attention_share=attention_share.value * _beside_tables(attention_share, peak, compute, fit),
        attention_keys=keys.value,
        grouped=Grouped(_ridge(device, wire), *(item.value for item in grouped)),
        casts={name: item.value for name, item in casts.items()},
        gap=gap.value / reach.value,
        launch=launch.value,
        stall=stall.value,
        extra_kernels={
            name: item.value * (more.value if name == ROUTED_EXPERTS else 1.0) for name, item in extra.items()
        },
        routed_kernels=more.value,
        step_base=base.value,
        step_each=each.value,
        front=front.value,
        delay=delay.value,
        network=network(machine, engine, fit),
        sources=where_from,
        fallbacks=fallbacks,
        fit=fit,
    )


def _as_engine_multiplies(
    engine: Software,
    device: Accelerator,
    peak: dict[str, float],
    compute: dict[str, float],
    fitted: Callable[..., Constant],
    where_from: dict[str, tuple[Cited, ...]],
) -> None:
    """Multiply the rates of compute by the shares that an engine's products reach, and name those among the sources."""
    kernels, blocks = (
        fitted("engine", name, scopes_by_vendor(engine, device)) for name in ("compute_share", "block_share")
    )
    for name in compute:
        share = blocks if name == "gguf" and peak[name] != peak["fp16"] else kernels
        compute[name] *= share.value
        where_from[f"compute.{name}"] = (*where_from[f"compute.{name}"], share)


READ_AS = {
    "matmul": "bandwidth",
    "decode_attention": "attention",
    "prefill_attention": "bandwidth",
    "experts": "experts",
    "memory": "memory",
}
"""Kind of operation -> the share of the wire rate at which it reads."""


def _beside_tables(share: Constant, peak: dict[str, float], compute: dict[str, float], fit: Fit) -> float:
    """Return the device's 16-bit GEMM share of peak over that of the devices on which attention was fitted: both use the same units [1]."""
    return compute["bf16"] / peak["bf16"] / fit.find("matmul", "share.bf16", [share.scope, "any"]).value


def _gap(engine: Software, device: Accelerator, fitted: Callable[..., Constant]) -> Constant:
    """Return the time between kernels: none on a processor, little in a compiled program, else as software and vendor have it [s]."""
    if device.device_class == CPU:
        return WITHOUT_LAUNCHES
    compiled = device.vendor in engine.kernels.compiled
    return fitted("kernel", "gap", [COMPILED] if compiled else scopes_by_vendor(engine, device))


def _stall(engine: Software, fitted: Callable[..., Constant]) -> Constant:
    """Return the share by which an engine's batches in a pipeline wait for each other, none where stages take a batch in turn [1]."""
    return (
        fitted("pipeline", "stall", engine.scopes)
        if getattr(engine, "pipeline_kind", "") == "microbatch"
        else WITHOUT_STALL
    )


def _launch(engine: Software, device: Accelerator, fitted: Callable[..., Constant]) -> Constant:
    """Return the host's time to start a kernel of a step with prompts, none where it does not start them from Python [s]."""
    kernels = engine.kernels
    if not kernels.from_python or device.device_class == CPU or device.vendor in kernels.compiled:
        return WITHOUT_HOST
    return fitted("kernel", "launch", engine.scopes)


CAST_AS = {"int8": "fp8"}
"""Formats to which inputs are converted by as many bytes as to others."""


def _ridge(device: Accelerator, wire: float) -> float:
    """Return the peak in 16 bits, with sums in fp32, over the bandwidth; of another format where there is none [FLOP/B]."""
    name = next((one for one in ("bf16", "fp16", "fp32") if one in device.peak), next(iter(device.peak)))
    return device.peak[name].value / wire


def _cast_to(name: str) -> bool:
    """Return whether a separate kernel casts activations to a number format (except GGUF)."""
    return name.partition(".")[0] in QUANTISED - {"gguf"}


def _compute_rates(
    machine: Machine, engine: Software, fitted: Callable[..., Constant], fit: Fit
) -> tuple[dict[str, float], dict[str, float], dict[str, str], dict[str, tuple[Cited, ...]]]:
    device = machine.device
    peak: dict[str, float] = {}
    compute: dict[str, float] = {}
    fallbacks: dict[str, str] = {}
    sources: dict[str, tuple[Cited, ...]] = {}
    for name in ("bf16", "fp16", "fp8", "int8", "fp4", "fp32"):
        stand_in = next(
            (candidate for candidate in (name, *FALLBACKS[name], *ANY_UNIT[name]) if candidate in device.peak),
            None,
        )
        if stand_in is None:
            continue
        if stand_in != name and {stand_in, name} != {"bf16", "fp16"}:
            fallbacks[name] = stand_in
        share = fitted(
            "matmul",
            f"share.{'bf16' if stand_in in {'fp16', 'bf16', 'tf32', 'fp32'} else 'fp8' if stand_in in {'fp8', 'int8'} else 'fp4'}",
        )
        faster = f"{stand_in}_accumulate_{engine.kernels.accumulator}"
        sheet = device.peak[faster if stand_in == "fp16" and faster in device.peak else stand_in]
        peak[name] = sheet.value
        twin = {"fp16": "bf16", "bf16": "fp16"}.get(stand_in, stand_in)
        alike = twin in device.peak and device.peak[twin].value == sheet.value
        usual = sheet is device.peak[stand_in]  # best products were timed with sums in fp32
        best = device.measured.get(stand_in) or (device.measured.get(twin) if alike else None)
        sustained, keys = _sustained(device, stand_in, share, peak[name], (sheet.cited, share), fit)
        value = peak[name] * sustained
        probed = device.attained.get(stand_in)
        if probed is not None and device.device_class == CPU:
            value, keys = probed.value, (probed.cited, AS_ATTAINED)
        elif probed is not None:
            lost = fit.find("matmul", "serving_over_best", ["any"])
            value, keys = probed.value * lost.value, (probed.cited, lost)
        elif usual and best is not None and _unlike_those_fitted(device, share, peak[name], fit):
            # best measured GEMM times the usual loss at serving shapes
            lost = fit.find("matmul", "serving_over_best", ["any"])
            value, keys = best.value * lost.value, (best.cited, lost)
        compute[name] = value
        sources[f"compute.{name}"] = keys
        for stored in own_share(name) if stand_in == name else ():
            # block-scaled weights use other kernels, with a share of peak measured separately
            kind = f"{name}.{stored}"
            apart = fitted("matmul", f"share.{kind}")
            peak[kind], compute[kind] = peak[name], value * apart.value / share.value
            sources[f"compute.{kind}"] = (*keys, apart)
    own = engine.kernels.gguf
    blocks = own if own is not None and own in device.peak else "fp16"
    peak["gguf"], compute["gguf"], sources["compute.gguf"] = peak[blocks], compute[blocks], sources[f"compute.{blocks}"]
    return peak, compute, fallbacks, sources


def _unlike_those_fitted(device: Accelerator, share: Constant, peak: float, fit: Fit) -> bool:
    """Return whether a share was fitted on devices of another architecture or process, or of another power limit over peak.

    It is also true where a power limit is not known.
    """
    if share.fitted_on != device.architecture:
        return True
    power, reference = device.value("power"), _power_of_fitted(device, share, fit)
    if power is None or reference is None:
        return True
    return abs(math.log(power / peak / reference.value)) > math.log(APART)


APART = 1.25
"""Ratio of two power limits over peak above which a device's own measured GEMM is trusted over the cube root of that ratio [1]."""


def _power_of_fitted(device: Accelerator, share: Constant, fit: Fit) -> Constant | None:
    """Return the power limit over peak of the devices of an architecture and process on which a share was fitted [J/FLOP]."""
    place = f"{device.architecture}/{catalogue.node_of(device.process)}"
    return fit.get("matmul", f"energy.{share.name.split('.')[1]}", place)


def own_share(name: str) -> tuple[str, ...]:
    """Return the weight formats that have their own share of peak when multiplied in a number format."""
    found = catalogue.formats().items()
    return tuple(stored for stored, table in found if table.get("own_share") and table["compute"] == name)


WITHOUT_LAUNCHES = Constant.defined(
    "kernel",
    "gap",
    "CPU",
    0.0,
    "s",
    "threads of a processor go from one product to the next; what lies between is in the engine's step",
)
"""Time between products on a processor [s]."""

WITHOUT_STALL = Constant.defined("pipeline", "stall", "none", 0.0, "1", "stages do not hold several batches at once")
"""Wait of batches in a pipeline for each other where there are none."""

WITHOUT_HOST = Constant.defined(
    "kernel", "launch", "none", 0.0, "s", "kernels of prompts are not started one by one from Python"
)
"""Host's time of a launch where that is no limit [s]."""

READS = frozenset({("matmul", "bandwidth"), ("memory", "bandwidth")})
"""Constants that a probe's reads replace: dense products and passes read as it does."""


def _of_reads(item: Constant, dense: Constant) -> Constant:
    """Return a kernel's share of the bandwidth that a probe's reads attained: its share of the data sheet's over that of dense products."""
    return replace(item, value=min(1.0, item.value / dense.value))


def at_home(engine: Software, device: Accelerator) -> bool:
    """Return whether an engine's constants hold on a device: its kernels were first written for the vendor, or they tell vendors apart.

    Those of training frameworks do.

    Parameters
    ----------
    engine : engine or training framework.
    device : the device that it runs on.

    Returns
    -------
    True if the engine's constants apply unchanged.
    """
    own = isinstance(engine, Engine) and not engine.kernels.tells_vendors
    measured = device.device_class == CPU or BANDWIDTH in device.attained
    return not own or device.vendor in HOME or measured


def _reach(
    engine: Software, device: Accelerator, compute: dict[str, float], where_from: dict[str, tuple[Cited, ...]], fit: Fit
) -> Constant:
    """Return what an engine reaches on a device; multiply the rates of compute by it, and name it among the sources."""
    if at_home(engine, device):
        return AT_HOME
    reach = fit.find("engine", "reach", reach_scopes(engine, device))
    for name in compute:
        compute[name] *= reach.value
    for name in where_from.keys() - UNREACHED:
        where_from[name] = (*where_from[name], reach)
    return reach


HOME = frozenset({"NVIDIA", "Apple"})
"""Vendors on whose devices engines are as fast as their constants say."""

AT_HOME = Constant.defined(
    "engine", "reach", "any", 1.0, "1", "an engine on the devices that its constants were fitted on"
)

AS_COUNTED = Constant.defined(
    "engine", "routed_kernels", "any", 1.0, "1", "kernels of routed experts on the devices that they were counted on"
)

UNREACHED = frozenset({"front", "engine", "launch", "stall", "casts", "grouped", *EXTRA_KERNELS})
"""Sources that say nothing of a device's rates."""


def reach_scopes(engine: Software, device: Accelerator) -> list[str]:
    """Return the scopes of what an engine reaches on a device, nearest first.

    Parameters
    ----------
    engine : engine or training framework.
    device : the device that it runs on.

    Returns
    -------
    Scopes of constants.
    """
    return [f"{engine.name}/{device.vendor}", device.vendor, "any"]


SHARES_OF_BANDWIDTH = frozenset(
    {("matmul", "bandwidth"), ("attention", "decode_bandwidth"), ("experts", "bandwidth"), ("memory", "bandwidth")}
)
"""Law and name of the constants that are shares of the data sheet's memory bandwidth."""

UNMEASURED = frozenset({"tf32", "fp32"})
"""Formats that use the 16-bit share of peak without the power correction, for want of published power."""


def _sustained(
    device: Accelerator, stand_in: str, share: Constant, peak: float, keys: tuple[Cited, ...], fit: Fit
) -> tuple[float, tuple[Cited, ...]]:
    """Return the share of peak that a device's matmuls sustain under its power limit, and its sources.

    A share measured on devices of the same architecture and process is scaled from their power limit to this device's.
    Other shares are used unchanged.
    """
    power, reference = device.value("power"), _power_of_fitted(device, share, fit)
    if power is None or reference is None or share.fitted_on != device.architecture or stand_in in UNMEASURED:
        return share.value, keys
    highest, lost = (
        fit.find("matmul", "highest", [device.vendor, "any"]),
        fit.find("matmul", "serving_over_best", ["any"]),
    )
    most = max(
        min(1.0, highest.value) * lost.value, share.value
    )  # above the peak only cards whose own product was measured
    sustained = matmul.power_limited_share(share.value, power / peak, reference.value, most)
    return float(sustained), (*keys, device.quantities["power"].cited, reference)


QUANTISED = {"fp8", "fp4", "int8", "gguf"}
"""Number formats to which a separate kernel casts activations before a matmul."""
