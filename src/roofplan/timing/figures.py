"""A predicted figure with its 90% interval and its grade."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from roofplan.records.calibration import OWN, Constant, Fit
from roofplan.records.engine import EAGER
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.source import GRADES


def own_place(software: str, machine: Machine, model: Model) -> str:
    """Return what a user's own runs speak of: a model, known by its parameters, on as many devices under a piece of software."""
    return f"{software}/{machine.count}x{machine.device.id}/{model.total} parameters"


def own_runs(job: str, software: str, machine: Machine, model: Model, fit: Fit) -> Constant | None:
    """Return how far predictions of a job lie from a user's own runs, None where he measured none: half its 90% interval, a logarithm [1]."""
    if not fit.speaks_of(OWN, job):  # counting a model's parameters takes time, and few have measured
        return None
    return fit.get(OWN, job, own_place(software, machine, model))


def grade_of_constant(item: Constant, vendor: str) -> int:
    """Return the grade of a constant: fitted on this architecture, engine or fabric; on others; or a guess.

    A definition claims nothing: an engine whose share of the kernels' rate is one by definition has the kernels' grade.
    """
    if item.kind != "fit":
        return 1 if item.kind == "definition" else 3
    return 2 if item.fitted_on in {"any", vendor, EAGER} else 1


GRADE_SPREAD = {"measured": 0.05, "calibrated": 0.25, "borrowed": 0.32, "guessed": 0.45}
"""Relative error by grade as it is taken before it was checked, one standard deviation; `interval_factor` says how far to trust it [1]."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A predicted number with its 90% interval and grade."""

    value: float
    low: float
    high: float
    unit: str
    grade: str

    def as_json(self) -> dict[str, Any]:
        """Return the metric as JSON."""
        return {"value": self.value, "low": self.low, "high": self.high, "unit": self.unit, "grade": self.grade}


def interval_factor(job: str, fit: Fit) -> float:
    """Return how many of a figure's spreads its 90% interval spans either way, learned from publishers whose runs no constant saw [1]."""
    return fit.find("interval", job, ["any"]).value


def unseen(job: str, fit: Fit) -> float:
    """Return the relative error that a fit's own residuals do not show, of other models, machines and settings; zero where spreads by grade hold it [1]."""
    found = fit.get("interval", f"{job}, unseen", "any")
    return 0.0 if found is None else found.value


def metric(value: float, unit: str, grade: str, job: str, fit: Fit, own: Constant | None = None) -> Metric:
    """Return a metric with the 90% interval of its job and grade, or of a user's own runs: a factor either way, so that it never crosses zero."""
    spread = math.exp(interval_factor(job, fit) * GRADE_SPREAD[grade] if own is None else own.value)
    return Metric(value, value / spread, value * spread, unit, grade if own is None else GRADES[0])


def within(found: Metric, least: float, most: float) -> Metric:
    """Return a metric whose interval ends at physical limits; its value lies inside in any case."""
    low, high = max(found.low, min(least, found.value)), min(found.high, max(most, found.value))
    return Metric(found.value, low, high, found.unit, found.grade)
