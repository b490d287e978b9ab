"""A predicted figure with its 90% interval, its grade, and why it may be off.

A figure's logarithm is taken to err by the sum of independent causes: what no law holds and what publishers differ by, what the
constants leave that it rests on, another system than any whose runs stand behind them, requests that wait for each other, and each
input that was assumed. Their sizes are learned from runs whose publishers, devices or software no constant saw; so is how many
times their root sum of squares nine of ten measurements lie within.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from roofplan import catalogue
from roofplan.records.calibration import OWN, Constant, Fit
from roofplan.records.engine import EAGER
from roofplan.records.hardware import OWN as DESCRIBED
from roofplan.records.hardware import Machine
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
"""What a published metric tells of: figures whose causes of error are learned apart."""


STAND_IN = 0.2
"""Relative error that other software of its kind may bring: as constants borrowed between frameworks spread [1]."""


def own_place(software: str, machine: Machine, model: Model) -> str:
    """Return the scope of a user's own runs: software, number and kind of devices, and the model by its parameters and their format.

    Parameters
    ----------
    software : id of the engine or framework.
    machine : devices and how they are joined.
    model : the model.

    Returns
    -------
    Key of the constants of own runs.
    """
    stored = model.quantization.format if model.quantization else model.dtype
    return f"{software}/{machine.count}x{machine.device.id}/{model.total} parameters in {stored}"


def own_runs(figure: str, software: str, machine: Machine, model: Model, fit: Fit) -> Constant | None:
    """Return how far a user's own runs lie from their predictions.

    Parameters
    ----------
    figure : what is predicted, such as ``time per token``.
    software : id of the engine or framework.
    machine : devices and how they are joined.
    model : the model.
    fit : the fitted constants.

    Returns
    -------
    Constant whose value is half a 90% interval, a logarithm [1]; None without own runs.
    """
    if not fit.speaks_of(OWN, figure):  # counting a model's parameters takes time, and few have measured
        return None
    return fit.get(OWN, figure, own_place(software, machine, model))


def grade_of_constant(item: Constant, vendor: str) -> int:
    """Return the grade of a constant: fitted on this architecture, engine or fabric, fitted on others, or guessed.

    A definition claims nothing: an engine whose share of the kernels' rate is one by definition has the kernels' grade.

    Parameters
    ----------
    item : the constant.
    vendor : the device's vendor, whose median of architectures counts as fitted on others.

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
"""What may take most of a time."""

Newness = Literal["", "system", "kind"]
Load = Literal["", "client", "clients", "queue"]


def newness(system: System, known: Collection[System]) -> Newness:
    """Return how new a system is to those whose runs stand behind constants, as of a `Doubt`."""
    if system in known:
        return ""
    seen = (any(getattr(one, part) == getattr(system, part) for one in known) for part in ALIKE)
    return "system" if all(seen) else "kind"


ALIKE = ("architecture", "precision", "kind")
"""Parts of a system of which another system's runs tell something."""


def how_new(figure: str, system: System, machine: Machine, fit: Fit) -> Newness:
    """Return how new a system is to the runs behind a figure; a user's own device is always of a new kind.

    Parameters
    ----------
    figure : what is predicted, such as ``time per token``.
    system : architecture, precision, kind of model and software family.
    machine : devices and how they are joined.
    fit : the fitted constants.

    Returns
    -------
    ``""`` where runs of the system were fitted, ``system`` or ``kind`` where it is new.
    """
    if machine.device.status == DESCRIBED:
        return "kind"
    return newness(system, catalogue.measured_systems(figure, fit.excluded))


class Doubt(NamedTuple):
    """Why a prediction may be off, beside what every prediction may be.

    Parameters
    ----------
    constants : relative error that the constants leave which it rests on, one standard deviation [1].
    new : ``system`` where no run of its system stands behind them, ``kind`` where none is of its architecture, its precision or its kind of
        model either; empty where runs of its system do.
    load : how many sequences run at once where nobody measured that: the one ``client`` or the ``clients`` of a closed loop, all of whom
        run, or a ``queue`` whose requests wait for each other in a way that was only simulated; empty where it was measured.
    assumed : inputs that were assumed, each with the relative error that it may bring, one standard deviation [1].
    """

    constants: float = 0.0
    new: Newness = ""
    load: Load = ""
    assumed: tuple[tuple[str, float], ...] = ()


BASE, PUBLISHERS, CONSTANTS, NEW, NEW_KIND = "base", "publishers", "constants", "new system", "new kind"
LOADS = ("clients", "queue")
"""Causes of error whose sizes are learned; that of constants is a multiple of the error they are said to leave."""

CLIENTS = frozenset({"client", "clients"})
"""Loads of a closed loop."""


def flat(least: float, most: float) -> float:
    """Return the relative error of a value that may lie anywhere between two ends with equal chance (in its logarithm).

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
    """Return the causes for which a figure may be off, each with its relative error, one standard deviation [1]."""

    def size(cause: str) -> float:
        found = fit.get("spread", f"{figure}, {cause}", "any")
        return 0.0 if found is None else found.value

    out = {BASE: size(BASE), PUBLISHERS: size(PUBLISHERS), CONSTANTS: size(CONSTANTS) * doubt.constants}
    out |= {NEW: size(NEW)} if doubt.new else {}
    out |= {NEW_KIND: size(NEW_KIND)} if doubt.new == "kind" else {}
    out |= {doubt.load: size(doubt.load)} if doubt.load in LOADS else {}
    return out | dict(doubt.assumed)


def spread_of(figure: str, doubt: Doubt, fit: Fit) -> float:
    """Return the relative error of a figure by all causes, one standard deviation [1]."""
    return math.hypot(*causes(figure, doubt, fit).values())


def interval_factor(figure: str, fit: Fit) -> float:
    """Return the multiple of a figure's spread that its 90% interval spans either way, learned from publishers left out of the fit.

    Parameters
    ----------
    figure : what is predicted, such as ``time per token``.
    fit : the fitted constants.

    Returns
    -------
    Multiple of the spread [1].
    """
    return fit.find("interval", figure, ["any"]).value


@dataclass(frozen=True, slots=True)
class Metric:
    """A predicted number with its 90% interval and grade.

    Parameters
    ----------
    doubt : why it may be off, None where it rests on no fit or on a user's own runs.
    causes : the same, each with its relative error, one standard deviation [1].
    """

    value: float
    low: float
    high: float
    unit: str
    grade: str
    doubt: Doubt | None = None
    causes: tuple[tuple[str, float], ...] = ()


class Sure(NamedTuple):
    """How sure a figure is.

    Parameters
    ----------
    grade : of `GRADES`.
    half : half its 90% interval, a logarithm [1].
    doubt, causes : why; none where a user's own runs say how far it may be off.
    """

    grade: str
    half: float
    doubt: Doubt | None = None
    causes: tuple[tuple[str, float], ...] = ()

    def of(self, value: float, unit: str) -> Metric:
        """Return a metric that is as sure: a factor either way, so that it never crosses zero."""
        factor = math.exp(self.half)
        return Metric(value, value / factor, value * factor, unit, self.grade, self.doubt, self.causes)


def sure(figure: str, grade: str, doubt: Doubt, fit: Fit, own: Constant | None = None) -> Sure:
    """Return how sure a figure is, from its causes of error or from a user's own runs.

    What clients of a closed loop are sent a second is their number over the time of their tokens, and no surer than that.

    Parameters
    ----------
    figure : what is predicted, such as ``time per token``.
    grade : grade of the figure, one of `GRADES`.
    doubt : causes of error.
    fit : the fitted constants.
    own : error of the user's own runs, None where there are none.

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
    """Return a metric whose interval ends at physical limits; the value itself stays inside.

    Parameters
    ----------
    found : the metric.
    least, most : physical limits, in its unit.

    Returns
    -------
    The metric, its interval cut at the limits.
    """
    low, high = max(found.low, min(least, found.value)), min(found.high, max(most, found.value))
    return replace(found, low=low, high=high)
