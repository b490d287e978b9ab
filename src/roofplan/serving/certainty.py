"""Certainty of serving figures, from the constants behind a time and the runs that they were fitted on."""

from __future__ import annotations

import math

from roofplan.operations.table import compute_format, element_bytes
from roofplan.records.calibration import SLOWDOWN, Constant
from roofplan.records.engine import Software
from roofplan.records.hardware import CPU, Machine
from roofplan.records.model import Model
from roofplan.records.source import GRADES
from roofplan.records.system import System
from roofplan.records.terms import Term
from roofplan.serving.bounds import leaves, limit_of
from roofplan.timing.figures import Doubt, Load, Sure, grade_of_constant, how_new, own_runs, sure, told, traits_of
from roofplan.timing.rates import Rates, at_home

SMALL = 0.1
"""Share of a time above which a constant's grade affects the figure's grade [1]."""

SIXTEEN_BITS = frozenset({"bf16", "fp16"})
"""Number formats that count as the same precision of a system."""


def system_of(model: Model, machine: Machine, engine: Software) -> System:
    """Return the system of a served model, by which published runs are grouped.

    The software is the requested one, even if the profile of another engine is used for it.

    Parameters
    ----------
    model : model that is served.
    machine : devices that it runs on.
    engine : engine with version.

    Returns
    -------
    Architecture, precision, kind of model and software.
    """
    name = engine.stands_for or engine.name
    return System(machine.device.architecture, precision_of(model), model.kind, name)


def precision_of(model: Model) -> str:
    """Return the number format of a model's matmuls, with that of its weights if they are unpacked first."""
    q = model.quantization
    if q is None:
        return "16-bit"
    compute = compute_format(q.format, q.activation, model.dtype)
    compute = "16-bit" if compute in SIXTEEN_BITS else compute
    bits = round(8.0 * element_bytes(q.format))
    return {"16-bit": f"w{bits}a16", "gguf": f"gguf-w{bits}"}.get(compute, compute)


def certainty(
    figure: str,
    behind: Term,
    model: Model,
    r: Rates,
    *,
    load: Load = "",
    guessed: bool = False,
    borne: tuple[int, float] | None = None,
    swing: float = 0.0,
    behind_front_end: bool = False,
) -> Sure:
    """Return the certainty of a figure derived from a time.

    Parameters
    ----------
    figure : name of the figure, which has its own residuals.
    behind : the time that the figure is, or is derived from.
    model : model that is served.
    r : rates of the machine under its engine, with their constants.
    load : kind of load, as in `Doubt`.
    guessed : whether the figure also depends on a guess, such as the acceptance of drafted tokens.
    borne : `by_constants` of the time, None if it is not known yet.
    swing : how far the figure moves beyond its steps near capacity, as in `Doubt` [1].
    behind_front_end : whether the figure is of first tokens that also wait for the server's front end.

    Returns
    -------
    Grade, half-width of the 90% interval, and causes of error.
    """
    engine = r.engine
    own = own_runs(figure, engine.id, r.machine, model, r.fit)
    system = system_of(model, r.machine, engine)
    new = how_new(figure, system, r.machine, r.fit)
    traits = traits_of(system.kind, away=not at_home(engine, r.machine.device), stands_for=engine.stands_for)
    grade, left = by_constants(behind, r) if borne is None else borne
    if engine.kernels.launches != 1.0 or r.machine.device.device_class == CPU:
        grade = 3  # processors: two constants, of one format on two machines and of three publishers
    if new or guessed or any(uses(model, name) for name in r.fallbacks):
        grade = max(grade, 2)
    return sure(
        figure,
        GRADES[grade],
        Doubt(
            left,
            new,
            load,
            (),
            traits,
            swing,
            _front(behind, r) if behind_front_end else 0.0,
            told(engine, r.machine.device, r.fit),
        ),
        r.fit,
        own,
    )


def _front(first: Term, r: Rates) -> float:
    """Return the relative error of a first token on an empty server from the times of its front end [1]."""
    whole = float(first.value) + float(r.front) + float(r.delay)
    spreads = (item.spread if isinstance(item, Constant) else 0.0 for item in r.sources["front"])
    return math.hypot(*(float(time) * spread for time, spread in zip((r.front, r.delay), spreads, strict=True))) / whole


def by_constants(whole: Term, r: Rates) -> tuple[int, float]:
    """Return the grade of a time from its constants, as an index of `GRADES`, and its relative error.

    The grade is the worst among constants behind more than 10% of the time. The log-log sensitivity to a constant is
    its share of the time; residuals of constants are treated as independent.
    """
    together: dict[tuple[object, ...], tuple[Term, float]] = {}
    for leaf, value in leaves(whole):
        limit = limit_of(leaf)
        # sources by identity: hashing constants costs more than adding up saves
        key = (limit, id(leaf) if limit in OF_HOST else None, *map(id, leaf.sources))
        first, before = together.get(key, (leaf, 0.0))
        together[key] = (first, before + value)
    borne: dict[Constant, float] = {}
    for leaf, value in together.values():
        for item, share in _bearing(leaf, r):
            borne[item] = borne.get(item, 0.0) + value * share
    time = float(whole.value)
    vendor = r.machine.device.vendor
    grade = max([1, *(grade_of_constant(item, vendor) for item, part in borne.items() if part > SMALL * time)])
    return grade, math.hypot(*(part / time * item.spread for item, part in borne.items())) if time else 0.0


OF_HOST = frozenset({"launch", "engine"})
"""Limits whose leaves divide their time among constants by their own numbers, so that each stands for itself."""


def _bearing(leaf: Term, r: Rates) -> list[tuple[Constant, float]]:
    """Return the constants behind a leaf with their shares.

    They are those of the binding side of the roofline; for host time, base and per-sequence separately.
    """
    limit = limit_of(leaf)
    out = []
    for item in leaf.sources:
        if not isinstance(item, Constant) or item.law == SLOWDOWN:
            continue
        if (limit == "memory_bandwidth" and not item.reads) or (limit == "compute" and item.reads):
            continue
        if item.law == "kernel" and item.name in r.extra_kernels:
            launches, whole = float(leaf.numbers[item.name] * r.gap), float(leaf.value)
            out.append((item, min(1.0, launches / whole) if whole else 0.0))
            continue
        base = r.step_base / float(leaf.value) if item.law == "engine_step" else 1.0
        out.append((item, min(1.0, 1.0 - base if item.name == "per_sequence" else base)))
    return out


def uses(model: Model, name: str) -> bool:
    """Return whether any matmul of a model's weights uses a number format."""
    q = model.quantization
    return q is not None and compute_format(q.format, q.activation, model.dtype) == name
