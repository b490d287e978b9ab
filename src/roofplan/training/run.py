"""A whole run: steps, failures, checkpoints, cost and energy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from roofplan import catalogue
from roofplan.errors import InputError
from roofplan.laws import reliability, up
from roofplan.money import HourlyCost
from roofplan.operations.activations import adapted
from roofplan.operations.table import ACTIVATION_BYTES
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.terms import Term
from roofplan.records.training import Adapter, FailurePreset, Job, Layout
from roofplan.records.units import DAY, HOUR, JOULE_PER_KWH

P90 = 1.2816
"""90th percentile of the standard normal distribution [1]."""

REPLACEMENT = DAY
"""Time until a failed host is replaced, for the number of spares: hours to a day in OPT-175B's logbook [s]."""

SPARES_SUFFICE = 0.99
"""Probability that the spares cover the failures of that time [1]."""

CHECKPOINTS = ("sync", "async", "memory")
POLICIES = ("restart", "drop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Size and timing of checkpoints.

    Parameters
    ----------
    bytes : weights and optimizer state of the whole model [B].
    write : time to write a checkpoint to storage [s].
    stall : time for which a checkpoint pauses the run [s].
    interval : time between checkpoints, in whole steps [s].
    """

    bytes: float
    write: float
    stall: float
    interval: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run from its first step to its last token.

    Parameters
    ----------
    steps : optimizer steps [1].
    work : time of the steps alone [s].
    interruption : mean time to interruption [s].
    goodput : share of the elapsed time that advances the run [1].
    elapsed, p90 : mean and 90th percentile of the wall-clock time over random failures [s].
    failures : expected number of interruptions [1].
    spares : spare hosts, in addition to those that are paid [1].
    policy : policy on a failure: ``restart``, or ``drop`` to continue with the other replicas.
    """

    steps: float
    work: float
    interruption: float
    restart: float
    checkpoint: Checkpoint
    goodput: float
    elapsed: float
    p90: float
    failures: float
    spares: int
    preset: FailurePreset
    policy: str


def checkpoint_of(model: Model, job: Job, machine: Machine, kind: str, interruption: float) -> Checkpoint:
    """Return the checkpoints of a job: trained weights in 16 bits and optimizer state, saved by all hosts in parallel.

    A synchronous checkpoint pauses the run until it is written; other kinds pause it until they are copied to host
    memory.
    """
    _, recovery = catalogue.failures()
    if job.adapter is None:
        size = float(model.total) * (ACTIVATION_BYTES + job.optimizer.bytes)
    else:
        size = trained_parameters(model, job.adapter) * job.adapter.bytes
    write = size / (machine.hosts * recovery.write.value)
    stall = write
    if kind != "sync":
        if machine.copy_rate is None:
            raise InputError(
                f"--checkpoint {kind}: {machine.device.id} has no known link to its host's memory; only sync can be planned",
                argument="--checkpoint",
                value=kind,
            )
        stall = size / machine.count / machine.copy_rate
    interval = float(reliability.daly_interval(stall, interruption))
    # the next checkpoint starts after the last one is on storage
    return Checkpoint(bytes=size, write=write, stall=stall, interval=max(interval, 0.0 if kind == "memory" else write))


def trained_parameters(model: Model, adapter: Adapter) -> float:
    """Return the number of trained parameters of an adapter [parameters]."""
    if adapter.fixed is not None:
        return adapter.fixed
    return sum(adapted(layer, adapter) * len(places) for layer, places in model.decoder.kinds())


def run(
    model: Model,
    job: Job,
    layout: Layout,
    machine: Machine,
    step: float,
    preset: FailurePreset,
    *,
    checkpoint: str = "sync",
    policy: str = "restart",
) -> Run:
    """Return the whole run of a job with a step time of `step` seconds."""
    _, recovery = catalogue.failures()
    tokens = float(job.tokens or 0.0)
    steps = float(up(tokens / (job.batch * job.sequence)))
    work = steps * step
    interruption = float(reliability.mean_time_to_interruption(machine.count, preset.rate))
    saved = checkpoint_of(model, job, machine, checkpoint, interruption)
    saved = replace(saved, interval=float(up(saved.interval / step)) * step)
    reload = saved.stall if checkpoint == "memory" else saved.write
    restart = recovery.detect.value + recovery.restart.value + reload
    if checkpoint == "async":
        restart += saved.write  # a failure during the write falls back to the previous checkpoint
    lost = saved.interval / 2.0
    if policy == "drop" and layout.dp > 1 and machine.hosts > 1:
        share = float(reliability.degraded_goodput(restart, recovery.restart.value, interruption, float(layout.dp)))
        share = max(share, 0.0) * saved.interval / (saved.interval + saved.stall)
        restart, lost = recovery.restart.value, 0.0
    else:
        policy = "restart"
        share = float(reliability.goodput(saved.interval, saved.stall, restart, interruption))
    elapsed = work / share if share > 0.0 else math.inf
    failures = elapsed / interruption
    if failures < LARGE_MEAN:
        # few failures: the 90th percentile of their number, each at its mean cost
        late = (_quantile(failures, NINE_OF_TEN) - failures) * (restart + lost)
    else:
        spread = float(reliability.spread_of_finish(work, share, interruption, restart, lost))
        late = P90 * spread
    return Run(
        steps=steps,
        work=work,
        interruption=interruption,
        restart=restart,
        checkpoint=saved,
        goodput=share,
        elapsed=elapsed,
        p90=elapsed + late if share > 0.0 else math.inf,
        failures=failures,
        spares=_spares(recovery.hardware.value * REPLACEMENT / interruption),
        preset=preset,
        policy=policy,
    )


def _spares(mean: float) -> int:
    """Return the number of spare hosts that cover a Poisson number of lost hosts with a given mean."""
    if mean > LARGE_MEAN:
        return math.ceil(mean + 2.326 * math.sqrt(mean))
    return _quantile(mean, SPARES_SUFFICE)


def _quantile(mean: float, share: float) -> int:
    """Return a quantile of a Poisson distribution with a given mean."""
    probability = total = math.exp(-mean)
    count = 0
    while total < share:
        count += 1
        probability *= mean / count
        total += probability
    return count


NINE_OF_TEN = 0.9
"""Probability of the p90 figures [1]."""

LARGE_MEAN = 500.0
"""Mean above which a Poisson distribution is treated as normal [1]."""


def preset_for(machine: Machine, name: str | None = None) -> FailurePreset:
    """Return the requested failure preset, else that of the device class: with ECC (data centre) or without."""
    presets, _ = catalogue.failures()
    if name is not None:
        return presets[name]
    plain = machine.device.device_class == "consumer" or machine.device.ecc is False
    return next(preset for preset in presets.values() if preset.ecc is not plain)


def money(found: Run, cost: HourlyCost) -> float:
    """Return the cost of the machine for the expected time [USD]."""
    return cost.total * found.elapsed / HOUR


def energy(found: Run, power: Term) -> float:
    """Return the energy of the machine for the expected time, at the power during steps [J]."""
    return float(power.value) * found.elapsed


def kilowatt_hours(joules: float) -> float:
    """Return an energy in kilowatt-hours [kWh]."""
    return joules / JOULE_PER_KWH
