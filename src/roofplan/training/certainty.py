"""Certainty of training figures, from their constants, the runs behind those, and assumed inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

from roofplan.catalogue.machines import in_other_form, with_slower_network
from roofplan.records.calibration import SLOWDOWN, Constant, Fit
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.source import GRADES
from roofplan.records.system import System
from roofplan.records.training import Framework, Job, Layout
from roofplan.timing.figures import (
    MEMORY,
    STEP,
    Doubt,
    Metric,
    Sure,
    flat,
    how_new,
    own_runs,
    sure,
    told,
    traits_of,
)
from roofplan.training.ability import Ability, ability
from roofplan.training.step import Step, step

OFFLOADED = {"optimizer": ("optimizer", 3, 0.4), "activations": ("swap", 2, 0.1)}
"""For each kind of offload: the part of the step that it affects, its grade, and its relative error. The
optimizer's rests on a guess of host memory rates; that of activations on laws that no published run tests."""

MATTERS = 0.05
"""Share of a step above which a part's grade affects the step's grade [1]."""

MEMORY_SPREAD = 0.04
"""Relative error of the memory ledger; its median is 0.2 to 6% over four publishers [1]."""

UNEVEN = 1.25
"""Tokens of the busiest expert-parallel rank over the mean in balanced training, a guess [1]."""

TWOFOLD = 2.0
"""Plausible factor, either way, between an assumed micro-batch and the real one, a guess [1]."""


@dataclass(frozen=True, slots=True)
class Known:
    """The certainty of a step time and of figures derived from it.

    Parameters
    ----------
    sure : its grade and interval.
    quickest : predicted step time over its lower bound at the devices' peak [1].
    ends : minimum and maximum step time over other plausible inputs, relative to the prediction; the interval contains
        both [1].
    """

    sure: Sure
    quickest: float = math.inf
    ends: tuple[float, float] = (1.0, 1.0)

    def grows(self, value: float, unit: str) -> Metric:
        """Return the metric of a figure proportional to the step time."""
        found = self.sure.of(value, unit)
        low = max(min(found.low, value * self.ends[0]), value / max(self.quickest, 1.0))
        return replace(found, low=low, high=max(found.high, value * self.ends[1]))

    def falls(self, value: float, unit: str) -> Metric:
        """Return the metric of a figure inversely proportional to the step time."""
        found = self.sure.of(value, unit)
        high = min(max(found.high, value / self.ends[0]), value * max(self.quickest, 1.0))
        return replace(found, low=min(found.low, value / self.ends[1]), high=high)


def system_of(model: Model, machine: Machine, framework: Framework, job: Job) -> System:
    """Return the system of a training run, by which published runs are grouped.

    The software is the requested one, even if the profile of another framework is used for it.

    Parameters
    ----------
    model : model that is trained.
    machine : devices that the job runs on.
    framework : framework with version.
    job : precision.

    Returns
    -------
    Architecture, precision, kind of model and software.
    """
    precision = "16-bit" if job.precision in {"bf16", "fp16"} else job.precision
    name = framework.stands_for or framework.name
    return System(machine.device.architecture, precision, model.kind, name)


def step_certainty(
    model: Model,
    job: Job,
    layout: Layout,
    a: Ability,
    found: Step,
    unstated: Collection[str] = (),
    doubts: tuple[tuple[str, float], ...] = (),
) -> Known:
    """Return the certainty of a step time.

    Parameters
    ----------
    model : model that is trained.
    job : batch, sequence, precision and method.
    layout : degrees of parallelism, recomputation and offload.
    a : achieved rates and fixed times of the machine under the framework.
    found : the step.
    unstated : inputs that the user left out, among those of `ALTERNATIVES`.
    doubts : other causes of error, each with its relative error [1].

    Returns
    -------
    Certainty, and factors on the step time that its interval must contain.
    """
    fit = a.rates.fit
    machine, framework = a.machine, a.framework
    left = by_constants(found, a)
    asked = Asked(model, job, layout, machine, framework)
    others = {name: _span(name, asked, a, float(found.time)) for name in unstated}
    grade, assumed = 1, (*doubts, *((name, flat(least, most)) for name, (least, most) in others.items()))
    if layout.offload in OFFLOADED:
        part, worst, error = OFFLOADED[layout.offload]
        share = float(found.parts.get(part, 0.0)) / float(found.time)
        assumed = (*assumed, ("offload", share * error))
        grade = max(grade, worst) if share > MATTERS else grade
    system = system_of(model, machine, framework, job)
    new = how_new(STEP, system, machine, fit)
    grade = max(grade, 2) if new else grade
    own = own_runs(STEP, framework.id, machine, model, fit)
    traits = traits_of(system.kind, stands_for=framework.stands_for)
    known = sure(
        STEP,
        GRADES[grade],
        Doubt(left, new, assumed=assumed, traits=traits, told=told(framework, machine.device, fit)),
        fit,
        own,
    )
    ends = [(least, most) for name, (least, most) in others.items() if name in INSIDE]
    return Known(known, ends=(min([1.0, *(x for x, _ in ends)]), max([1.0, *(x for _, x in ends)])))


BEARS = {
    "products": "compute",
    "attention": "attention",
    "memory passes": "memory",
    "recompute": "compute",
    "launches": "launch",
    "optimizer": "update",
    "host": "host",
}
"""Fitted constant behind each part of a step; messages depend on network constants instead."""

NOT_OF_THEIR_OWN = frozenset({"bubble", "stragglers"})
"""Parts proportional to the rest of the step."""


def by_constants(found: Step, a: Ability) -> float:
    """Return the relative error of a step time from its constants, one standard deviation [1].

    The log-log sensitivity to a constant is its share of the time; residuals of constants are treated as independent.
    """
    borne: dict[Constant, float] = {}
    parts = {name: float(seconds) for name, seconds in found.parts.items() if name not in NOT_OF_THEIR_OWN}
    whole = sum(parts.values())
    outside = a.network.rests_on.get("network")
    for name, seconds in parts.items():
        cited = a.sources[BEARS[name]] if name in BEARS else (outside,) if name.endswith(SENT) else ()
        for item in cited:
            if isinstance(item, Constant) and item.law != SLOWDOWN:
                borne[item] = borne.get(item, 0.0) + seconds
    return math.hypot(*(seconds / whole * item.spread for item, seconds in borne.items()))


SENT = ("ranks", "hops")
"""Suffixes of the parts that are communication."""


INSIDE = frozenset({"recompute"})
"""Inputs whose alternatives the interval must contain on both sides if the user left them out."""


class Asked(NamedTuple):
    """Inputs of a step-time prediction."""

    model: Model
    job: Job
    layout: Layout
    machine: Machine
    framework: Framework

    def in_layout(self, **changed: object) -> Asked:
        """Return these inputs with a changed layout."""
        return self._replace(layout=replace(self.layout, **changed))  # type: ignore[arg-type]


def _recomputes(asked: Asked) -> list[Asked]:
    return [asked.in_layout(recompute=name) for name in ("none", "full")]


def _micro_batches(asked: Asked) -> list[Asked]:
    own, each = float(asked.layout.micro_batch), float(asked.job.batch) / float(asked.layout.dp)
    sizes = (size for size in (own / TWOFOLD, own * TWOFOLD) if size >= min(1.0, own) and each % size == 0.0)
    return [asked.in_layout(micro_batch=size) for size in sizes]


def _networks(asked: Asked) -> list[Asked]:
    other = with_slower_network(asked.machine, LEAST_NETWORK)
    return [] if other is None else [asked._replace(machine=other)]


def _forms(asked: Asked) -> list[Asked]:
    other = in_other_form(asked.machine)
    return [] if other is None else [asked._replace(machine=other)]


LEAST_NETWORK = 0.25
"""Network of a cluster over the one that its servers are sold with. Of 17 publishers of runs over several hosts that state theirs, 12 have
all of it, two half and three a quarter [1]."""


def _interleaves(asked: Asked) -> list[Asked]:
    """Return the layout with the most chunks a stage, up to `MOST_CHUNKS`, into which layers divide, where micro-batches fill them."""
    stages, layers = int(asked.layout.pp), len(asked.model.decoder.layers)
    passes = float(asked.job.batch) / float(asked.layout.dp) / float(asked.layout.micro_batch)
    chunks = [n for n in range(2, MOST_CHUNKS + 1) if layers % (stages * n) == 0 and passes % stages == 0.0]
    return [asked.in_layout(interleave=n) for n in chunks[-1:]]


MOST_CHUNKS = 8
"""Most chunks a stage of published layouts whose authors say so [1]."""


def _imbalances(asked: Asked) -> list[Asked]:
    even = asked.model.experts and float(asked.layout.imbalance) == 1.0
    return [asked.in_layout(imbalance=UNEVEN)] if even else []


def _losses(asked: Asked) -> list[Asked]:
    fused = asked.framework.has_fused_loss
    return [asked._replace(framework=asked.framework.with_fused_loss())] if fused else []


ALTERNATIVES: dict[str, Callable[[Asked], list[Asked]]] = {
    "recompute": _recomputes,
    "micro-batch": _micro_batches,
    "network": _networks,
    "form": _forms,
    "interleave": _interleaves,
    "imbalance": _imbalances,
    "loss": _losses,
}
"""Plausible alternatives for inputs that the user left out."""


def _span(name: str, asked: Asked, a: Ability, time: float) -> tuple[float, float]:
    """Return the minimum and maximum step time over plausible values of an input, relative to `time` [1]."""
    times = [time]
    for other in ALTERNATIVES[name](asked):
        same = other.machine is a.machine and other.framework is a.framework
        there = a if same else ability(other.machine, other.framework, a.rates.fit)
        times.append(float(step(asked.model, asked.job, other.layout, there).time))
    return min(times) / time, max(times) / time


def memory_certainty(framework: Framework, machine: Machine, model: Model, job: Job, fit: Fit) -> tuple[Sure, Sure]:
    """Return the certainty of a stage's memory.

    Parameters
    ----------
    framework : framework with version, whose allocator is fitted.
    machine : devices that the job runs on.
    model : model that is trained.
    job : precision and method.
    fit : fitted constants, and residuals on held-out publishers.

    Returns
    -------
    Certainty of reserved memory (allocator) and of allocated memory (tensors).
    """
    slack = fit.find("allocator", "reserved_over_allocated", [framework.name, "any"])
    own = own_runs(MEMORY, framework.id, machine, model, fit)
    new = how_new(MEMORY, system_of(model, machine, framework, job), machine, fit)
    grade = "calibrated" if framework.measured_memory and not new else "borrowed"
    traits = traits_of("", stands_for=framework.stands_for)
    doubts = (Doubt(left, new, traits=traits) for left in (max(MEMORY_SPREAD, slack.spread), MEMORY_SPREAD))
    reserved, allocated = (sure(MEMORY, grade, doubt, fit, own) for doubt in doubts)
    return reserved, allocated
