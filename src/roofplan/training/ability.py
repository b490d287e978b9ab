"""What a machine attains in training: its rates, shares of them, and fixed times of a step."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from roofplan.laws import smaller
from roofplan.operations.activations import LOW_PRECISION
from roofplan.records.calibration import Fit
from roofplan.records.hardware import Machine
from roofplan.records.terms import Cited
from roofplan.records.training import Framework
from roofplan.timing.network import (
    Network,
)
from roofplan.timing.rates import Rates, rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """What a machine attains in training under a framework.

    Parameters
    ----------
    launch : host time to issue a kernel; the device waits where it is the longer [s].
    ramp : start and drain of a kernel on the device [s].
    host : host time of a step beside its kernels [s].
    sigma : relative spread of the time that one host needs for a step [1].
    update : achieved memory rate of the optimizer's passes [B/s].
    """

    rates: Rates
    network: Network
    framework: Framework
    launch: float
    ramp: float
    host: float
    sigma: float
    update: float
    sources: dict[str, tuple[Cited, ...]]

    @property
    def machine(self) -> Machine:
        """The machine."""
        return self.rates.machine


TIMES = ("launch", "ramp", "host", "sigma")


SHARES = ("compute", "low_over_16_bits", "experts", "memory", "attention", "update")
"""Fitted numbers of a framework on an architecture: times, and shares of what the kernel tables attain; products of 8 and 4 bits
have what of it they keep. Of grouped products it is what they lose, over what grouped kernels of the tables lose beside dense ones."""


@lru_cache(maxsize=128)
def ability(machine: Machine, framework: Framework, fit: Fit) -> Ability:
    """Return what a machine attains under a framework.

    Parameters
    ----------
    machine : devices and links.
    framework : framework with version.
    fit : fitted constants.

    Returns
    -------
    Rates, shares of them in training, and fixed times of a step.
    """
    chain = framework.scopes_on(machine.device.architecture)
    found = {name: fit.find("training", name, chain) for name in (*TIMES, *SHARES)}
    r = rates(machine, framework, fit)
    return applied(
        Ability(
            rates=r,
            network=r.network,
            framework=framework,
            update=r.bandwidth["memory"],
            sources={name: (item,) for name, item in found.items()},
            **{name: found[name].value for name in TIMES},
        ),
        {name: found[name].value for name in SHARES},
    )


def shares_of(precision: str) -> tuple[str, ...]:
    """Return which fitted shares hold for products of a number format."""
    return ("compute", "low_over_16_bits") if precision.partition(".")[0] in LOW_PRECISION else ("compute",)


MOST_OVER_16_BITS = 1.05
"""Largest share of their peak that products of 8 and 4 bits reach, over that of products of 16 bits on the same machine: published kernels of one
library lie between 0.54 and 1.08 of it by architecture (`matmul.share` of the kernel tables), in the middle below one [1]."""


def applied(a: Ability, shares: dict[str, float]) -> Ability:
    """Return an ability with its rates multiplied by shares.

    Parameters
    ----------
    a : what the machine attains under the framework.
    shares : factors on the rates of products, memory passes, attention and optimizer passes, by name [1].

    Returns
    -------
    The changed ability; no rate exceeds its peak.
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
