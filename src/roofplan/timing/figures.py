"""Predicted figures with their 90% interval, their grade and their causes of error.

The logarithm of a figure errs by a sum of independent causes: the law and differences between publishers, residuals of
the fitted constants, a system without published runs, queueing, and assumed inputs. Their sizes are learned from
held-out runs. The 90% interval is a learned multiple of their root sum of squares.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from roofplan import catalogue
from roofplan.records.calibration import OWN, SLOWDOWN, Constant, Fit
from roofplan.records.engine import EAGER, Engine, Software
from roofplan.records.hardware import OWN as DESCRIBED
from roofplan.records.hardware import Accelerator, Machine
from roofplan.records.model import Model
from roofplan.records.system import System

STEP, MEMORY = "training step", "training memory"
TIME_PER_TOKEN, FIRST_TOKEN = "time per token", "time to the first token"
THROUGHPUT, PROMPTS, POWER = "throughput", "prompts alone", "power"
FIGURE_OF = {
    "tpot": TIME_PER_TOKEN,
    "ttft": FIRST_TOKEN,
    "output_tokens_per_second": THROUGHPUT,
    "prefill_tokens_per_second": PROMPTS,
    "tokens_per_second_per_device": STEP,
    "memory": MEMORY,
}
"""Figure behind each published metric; error sizes are learned per figure."""


def own_place(software: str, machine: Machine, model: Model) -> str:
    """Return the scope of a user's own runs: software, devices, and the model's parameter count and format.

    Parameters
    ----------
    software : id of the engine or framework.
    machine : devices and how they are joined.
    model : the model.

    Returns
    -------
    Scope of the constants that are fitted on own runs.
    """
    stored = model.quantization.format if model.quantization else model.dtype
    return f"{software}/{machine.count}x{machine.device.id}/{model.total} parameters in {stored}"


def own_runs(figure: str, software: str, machine: Machine, model: Model, fit: Fit) -> Constant | None:
    """Return the prediction error of a user's own runs.

    Parameters
    ----------
    figure : name of the predicted figure, such as ``time per token``.
    software : id of the engine or framework.
    machine : devices and how they are joined.
    model : the model.
    fit : the fitted constants.

    Returns
    -------
    Constant whose value is half the 90% interval of the logarithm [1]; None without own runs.
    """
    if not fit.speaks_of(OWN, figure):  # counting a model's parameters is slow, and few users have own runs
        return None
    return fit.get(OWN, figure, own_place(software, machine, model))


def scopes_by_vendor(engine: Software, device: Accelerator) -> list[str]:
    """Return the scopes of constants that may differ by a device's vendor, nearest first: those of software with kernels of its own before all.

    Parameters
    ----------
    engine : engine or training framework.
    device : the device that it runs on.

    Returns
    -------
    Scopes of constants, nearest first.
    """
    own = [engine.own_kernels] if isinstance(engine, Engine) and engine.own_kernels else []
    return [*own, *(f"{one}/{device.vendor}" for one in engine.scopes[:-1]), *engine.scopes]


def slowdown_scope(software: Software, device: Accelerator) -> str:
    """Return the scope of the slowdown of a user's own device.

    Parameters
    ----------
    software : engine or framework that runs there.
    device : the device.

    Returns
    -------
    The names of both; software that a profile lists as its alias has the profile's name, under which plans are made.
    """
    name = software.stands_for or software.name
    for kind, profile in (("frameworks", catalogue.framework), ("engines", catalogue.engine)):
        if identity := catalogue.aliases(kind).get(catalogue.hyphened(software.stands_for)):
            name = profile(identity).name
    return f"{name}/{device.id}"


class Told(NamedTuple):
    """Relative error that all predictions for a device under its software share, one standard deviation [1].

    Parameters
    ----------
    prior, left : before and after the user's own runs there.
    """

    prior: float
    left: float


def told(software: Software, device: Accelerator, fit: Fit) -> Told | None:
    """Return what a user's own runs tell of all others on their device.

    Parameters
    ----------
    software : engine or framework.
    device : the device.
    fit : the fitted constants.

    Returns
    -------
    The error that predictions for the device share, None where no run of it is known.
    """
    time, prior = (fit.get(SLOWDOWN, name, slowdown_scope(software, device)) for name in ("time", "prior"))
    return None if time is None or prior is None else Told(prior.value, min(time.spread, prior.value))


def grade_of_constant(item: Constant, vendor: str) -> int:
    """Return the grade of a constant: fitted on this architecture, engine or fabric, fitted on others, or guessed.

    A constant that is set by definition counts as calibrated, so it never lowers a grade.

    Parameters
    ----------
    item : the constant.
    vendor : the device's vendor; a median over its architectures counts as fitted on others.

    Returns
    -------
    Place in `GRADES`: 1 calibrated, 2 borrowed, 3 guessed.
    """
    if item.kind != "fit":
        return 1 if item.kind == "definition" else 3
    return 2 if item.fitted_on in {"any", vendor, EAGER} else 1


Limit = Literal[
    "compute",
    "memory_bandwidth",
    "communication",
    "launch",
    "engine",
    "prompts",
    "bubble",
    "host_link",
    "stragglers",
]
"""What can be the largest part of a time."""

Newness = Literal["", "system", "kind"]
Load = Literal["", "client", "clients", "queue"]


def newness(system: System, known: Collection[System]) -> Newness:
    """Return how a system differs from those with published runs, as in `Doubt.new`."""
    if system in known:
        return ""
    seen = (any(getattr(one, part) == getattr(system, part) for one in known) for part in ALIKE)
    return "system" if all(seen) else "kind"


ALIKE = ("architecture", "precision", "kind")
"""Attributes by which runs of one system inform predictions of another."""


def how_new(figure: str, system: System, machine: Machine, fit: Fit) -> Newness:
    """Return how a system differs from those with runs behind a figure; a user's own device is always a new kind.

    Parameters
    ----------
    figure : name of the predicted figure, such as ``time per token``.
    system : architecture, precision, kind of model and software family.
    machine : devices and how they are joined.
    fit : the fitted constants.

    Returns
    -------
    ``""`` if runs of the system were fitted, else ``system`` or ``kind``.
    """
    if machine.device.status == DESCRIBED:
        return "kind"
    return newness(system, catalogue.measured_systems(figure, fit.excluded))


class Doubt(NamedTuple):
    """Causes of error of one prediction, besides those of every prediction.

    Parameters
    ----------
    constants : relative error from the residuals of the fitted constants, one standard deviation [1].
    new : ``system`` if no fitted run is of this system, ``kind`` if also none is of its architecture, its precision or
        its kind of model; empty if there are runs of the system.
    load : how the number of running sequences was obtained: ``client`` or ``clients`` of a closed loop, all of which
        run, or a ``queue``, simulated or so long that the batch stays full; empty if it was measured, or if a backlog without
        clients keeps the batch full.
    assumed : assumed inputs, each with the relative error that it may cause, one standard deviation [1].
    traits : those of `TRAITS` that it has.
    swing : how far a figure of a queue moves beyond its steps where all steps take a fifth longer or shorter, one standard
        deviation [1]; 0 without a queue.
    front : relative error of a first token from what the server's front end takes before it, one standard deviation [1].
    told : what the user's own runs on the device tell, None without any.
    """

    constants: float = 0.0
    new: Newness = ""
    load: Load = ""
    assumed: tuple[tuple[str, float], ...] = ()
    traits: tuple[str, ...] = ()
    swing: float = 0.0
    front: float = 0.0
    told: Told | None = None


BASE, PUBLISHERS, CONSTANTS, NEW, NEW_KIND = "base", "publishers", "constants", "new system", "new kind"
SWING, FRONT = "near capacity", "front end"
MULTIPLES = (CONSTANTS, SWING, FRONT)
LOADS = ("clients", "queue")
TRAITS = MIXTURE, HYBRID, AWAY, STAND_IN = "mixture", "hybrid", "other vendor", "stand-in"
"""Causes of error whose sizes are learned; those of `MULTIPLES` are multiples of what is computed for each run."""

SHARED = frozenset({PUBLISHERS, CONSTANTS, AWAY, STAND_IN})
"""Causes of error that all runs of a publisher share on a device under one software. Models, number formats, loads and what was assumed differ."""

UNLEARNED = {STAND_IN: 0.2}
"""Sizes of traits where no left-out run shows one, from the spread of constants between frameworks [1]."""

CLIENTS = frozenset({"client", "clients"})
"""Values of `Doubt.load` that mean a closed loop."""


def flat(least: float, most: float) -> float:
    """Return the relative error of a value whose logarithm is uniformly distributed between two ends.

    Parameters
    ----------
    least, most : ends of the range, in the same unit.

    Returns
    -------
    Standard deviation of the logarithm [1].

    Examples
    --------
    >>> round(flat(1.0, 2.0), 3)
    0.2
    """
    return math.log(most / least) / math.sqrt(12.0)


def causes(figure: str, doubt: Doubt, fit: Fit) -> dict[str, float]:
    """Return the causes of error of a figure.

    The user's own runs on a device shrink those that all of its runs share, by the part of that error which they explained.

    Parameters
    ----------
    figure : name of the figure.
    doubt : what may be wrong with the prediction.
    fit : the fitted constants, with the sizes of causes.

    Returns
    -------
    Each cause with its relative error, one standard deviation [1].
    """

    def size(cause: str) -> float:
        found = fit.get("spread", f"{figure}, {cause}", "any")
        return 0.0 if found is None else found.value

    out = {BASE: size(BASE), PUBLISHERS: size(PUBLISHERS), CONSTANTS: size(CONSTANTS) * doubt.constants}
    out |= {NEW: size(NEW)} if doubt.new else {}
    out |= {NEW_KIND: size(NEW_KIND)} if doubt.new == "kind" else {}
    out |= {doubt.load: size(doubt.load)} if doubt.load in LOADS else {}
    out |= {SWING: size(SWING) * doubt.swing} if doubt.swing else {}
    out |= {FRONT: size(FRONT) * doubt.front} if doubt.front else {}
    out |= {trait: size(trait) or UNLEARNED.get(trait, 0.0) for trait in doubt.traits}
    if doubt.told is not None:
        shared = {cause: of for cause, of in out.items() if cause in SHARED}
        whole, (prior, left) = math.hypot(*shared.values()), doubt.told
        known = (1.0 - (left / prior) ** 2) * min(1.0, (prior / whole) ** 2) if whole else 0.0
        out |= {cause: of * math.sqrt(1.0 - known) for cause, of in shared.items()}
    return out | dict(doubt.assumed)


def parted(known: Metric) -> tuple[float, float]:
    """Return the error of a predicted figure in two parts.

    Parameters
    ----------
    known : the figure with its causes of error.

    Returns
    -------
    Relative errors that differ between runs on one device, and that all of them share, one standard deviation [1].
    """
    noise, shared = (
        math.hypot(*(size for cause, size in known.causes if (cause in SHARED) is together))
        for together in (False, True)
    )
    return noise, shared


def traits_of(kind: str, *, away: bool = False, stands_for: str = "") -> tuple[str, ...]:
    """Return the traits that make errors larger.

    Parameters
    ----------
    kind : of the model, as in `System`.
    away : whether the device is of a vendor for which the engine's kernels were not first written.
    stands_for : software without a profile that the engine or framework stands in for, empty for itself.

    Returns
    -------
    Those of `TRAITS` that hold.
    """
    held = {MIXTURE: kind == "mixture", HYBRID: kind == "hybrid", AWAY: away, STAND_IN: bool(stands_for)}
    return tuple(trait for trait in TRAITS if held[trait])


def spread_of(figure: str, doubt: Doubt, fit: Fit) -> float:
    """Return the relative error of a figure from all causes, one standard deviation [1]."""
    return math.hypot(*causes(figure, doubt, fit).values())


def interval_factor(figure: str, fit: Fit) -> float:
    """Return the half-width of a figure's 90% interval in standard deviations, learned on held-out publishers.

    Parameters
    ----------
    figure : name of the predicted figure, such as ``time per token``.
    fit : the fitted constants.

    Returns
    -------
    Multiple of the standard deviation [1].
    """
    return fit.find("interval", figure, ["any"]).value


@dataclass(frozen=True, slots=True)
class Metric:
    """A predicted number with its 90% interval and grade.

    Parameters
    ----------
    doubt : causes of error, None if the value depends on no fit or on a user's own runs.
    causes : causes of error by name, each with its relative error, one standard deviation [1].
    """

    value: float
    low: float
    high: float
    unit: str
    grade: str
    doubt: Doubt | None = None
    causes: tuple[tuple[str, float], ...] = ()


class Sure(NamedTuple):
    """The certainty of a figure.

    Parameters
    ----------
    grade : of `GRADES`.
    half : half the 90% interval of its logarithm [1].
    doubt, causes : causes of error; none if the interval comes from a user's own runs.
    """

    grade: str
    half: float
    doubt: Doubt | None = None
    causes: tuple[tuple[str, float], ...] = ()

    def of(self, value: float, unit: str) -> Metric:
        """Return a metric with this certainty; the interval is a factor either way, so it never crosses zero."""
        factor = math.exp(self.half)
        return Metric(value, value / factor, value * factor, unit, self.grade, self.doubt, self.causes)


def sure(figure: str, grade: str, doubt: Doubt, fit: Fit, own: Constant | None = None) -> Sure:
    """Return the certainty of a figure, from its causes of error or from a user's own runs.

    Throughput in a closed loop is the number of clients over the time per token, so it is no more certain than that
    time.

    Parameters
    ----------
    figure : name of the predicted figure, such as ``time per token``.
    grade : grade of the figure, one of `GRADES`.
    doubt : causes of error.
    fit : the fitted constants.
    own : error of the user's own runs, None without own runs.

    Returns
    -------
    Grade, half-width of the 90% interval and causes.
    """
    if own is not None:
        return Sure("measured", own.value)
    tied = [figure, TIME_PER_TOKEN] if figure == THROUGHPUT and doubt.load in CLIENTS else [figure]
    half, name = max((interval_factor(one, fit) * spread_of(one, doubt, fit), one) for one in tied)
    found = causes(name, doubt, fit)
    return Sure(grade, half, doubt, tuple((cause, size) for cause, size in found.items() if size))


def within(found: Metric, least: float, most: float) -> Metric:
    """Return a metric with its interval clipped to physical limits; the interval still contains the value.

    Parameters
    ----------
    found : the metric.
    least, most : physical limits, in its unit.

    Returns
    -------
    The metric with a clipped interval.
    """
    low, high = max(found.low, min(least, found.value)), min(found.high, max(most, found.value))
    return replace(found, low=low, high=high)
