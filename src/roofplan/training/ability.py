"""Achieved rates and fixed times of a machine in training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from roofplan.laws import smaller
from roofplan.operations.activations import LOW_PRECISION
from roofplan.records.calibration import SLOWDOWN, Constant, Fit
from roofplan.records.hardware import Machine
from roofplan.records.terms import Cited, read_only
from roofplan.records.training import Framework
from roofplan.timing.figures import slowdown_scope
from roofplan.timing.network import (
    Network,
)
from roofplan.timing.rates import Rates, fitted_rates
from roofplan.timing.slowdown import slowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """Achieved rates and fixed times of a machine in training under a framework.

    Parameters
    ----------
    launch : host time to launch a kernel; the device waits if this takes longer than its kernels [s].
    ramp : ramp-up and drain time of a kernel on the device [s].
    host : host time of a step besides kernel launches [s].
    sigma : relative standard deviation of one host's step time [1].
    update : achieved memory rate of the optimizer's passes [B/s].
    """

    rates: Rates
    framework: Framework
    launch: float
    ramp: float
    host: float
    sigma: float
    update: float
    sources: Mapping[str, tuple[Cited, ...]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "sources", read_only(self.sources))

    @property
    def machine(self) -> Machine:
        """The machine."""
        return self.rates.machine

    @property
    def network(self) -> Network:
        """Rates and latencies of its messages."""
        return self.rates.network


TIMES = ("launch", "ramp", "host", "sigma")


SHARES = ("compute", "low_over_16_bits", "experts", "memory", "attention", "update")
"""Fitted constants of a framework on an architecture, as shares of the rates in the kernel tables. For FP8 and FP4
matmuls there is an additional factor over the 16-bit share. For grouped GEMMs, the constant is the loss against dense
GEMMs over that of the tables."""


UNTUNED = "untuned"
"""Fitted factor on the times of kernels and launches of software that only divides a model as its profile does [1]."""

TUNED = frozenset({"launch", "ramp", "compute", "memory", "attention"})
"""Constants that it changes; those of the optimizer and of 8 and 4 bits are relative to these."""


@lru_cache(maxsize=128)
def ability(machine: Machine, framework: Framework, fit: Fit) -> Ability:
    """Return the achieved rates and fixed times of a machine under a framework.

    Parameters
    ----------
    machine : devices and links.
    framework : framework with version.
    fit : fitted constants.

    Returns
    -------
    Rates in training, and fixed times of a step.
    """
    chain = framework.scopes_on(machine.device.architecture)
    found = {name: fit.find("training", name, chain) for name in (*TIMES, *SHARES)}
    slower = (fit.find("training", UNTUNED, (framework.name, "any")),) if framework.untuned else ()
    factor = math.prod(item.value for item in slower)
    r = fitted_rates(machine, framework, fit)
    made = applied(
        Ability(
            rates=r,
            framework=framework,
            update=r.bandwidth["memory"],
            sources={name: (item, *slower) if name in TUNED else (item,) for name, item in found.items()},
            **{name: found[name].value * (factor if name in TUNED else 1.0) for name in TIMES},
        ),
        {name: found[name].value / (factor if name in TUNED else 1.0) for name in SHARES},
    )
    slowdown = fit.get(SLOWDOWN, "time", slowdown_scope(framework, machine.device))
    return made if slowdown is None else _slowed(made, slowdown)


def _slowed(a: Ability, slowdown: Constant) -> Ability:
    """Return an ability with step times scaled by a factor, capped at data-sheet rates."""
    by, r = slowdown.value, slowed(a.rates, slowdown)
    return replace(
        a,
        rates=r,
        launch=a.launch * by,
        ramp=a.ramp * by,
        host=a.host * by,
        update=smaller(a.update / by, r.wire),
        sources={name: (*cited, *((slowdown,) if name != "sigma" else ())) for name, cited in a.sources.items()},
    )


def shares_of(precision: str) -> tuple[str, ...]:
    """Return the names of the fitted shares that apply to matmuls of a number format."""
    return ("compute", "low_over_16_bits") if precision.partition(".")[0] in LOW_PRECISION else ("compute",)


MOST_OVER_16_BITS = 1.05
"""Upper bound on the share of peak of FP8 and FP4 matmuls over that of 16-bit matmuls on the same machine. Published
kernels of one library are between 0.54 and 1.08 by architecture (`matmul.share` of the kernel tables), with a median
below one [1]."""


def applied(a: Ability, shares: dict[str, float]) -> Ability:
    """Return an ability with its rates multiplied by shares.

    Parameters
    ----------
    a : achieved rates and fixed times of the machine under the framework.
    shares : factors on the rates of matmuls, memory passes, attention and optimizer passes, by name [1].

    Returns
    -------
    The ability with changed rates; no rate exceeds its peak.
    """
    r = a.rates
    whole = {
        name: smaller(rate * math.prod(shares.get(share, 1.0) for share in shares_of(name)), r.peak[name])
        for name, rate in r.compute.items()
    }
    most = MOST_OVER_16_BITS * whole["bf16"] / r.peak["bf16"] if "bf16" in whole else 1.0
    compute = {
        name: smaller(rate, most * r.peak[name]) if len(shares_of(name)) > 1 else rate for name, rate in whole.items()
    }
    bandwidth = {**r.bandwidth, "memory": smaller(r.bandwidth["memory"] * shares.get("memory", 1.0), r.wire)}
    written = a.framework.attention_on(r.machine.device.architecture)
    attention = r.attention_share * shares.get("attention", 1.0) * written
    update = smaller(a.update * shares.get("memory", 1.0) * shares.get("update", 1.0), r.wire)
    lost = shares.get("experts", 1.0)
    changed = replace(
        r,
        compute=compute,
        bandwidth=bandwidth,
        attention_share=attention,
        grouped=r.grouped._replace(rows=r.grouped.rows * lost, width=r.grouped.width * lost),
    )
    return replace(a, rates=changed, update=update)
