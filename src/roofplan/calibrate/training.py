"""What training software adds to the kernels' rates: collectives of NCCL, launches, host time, spread; and what its allocator reserves.

Kernel tables anchor products, attention and collectives; published runs fit the few numbers that are left. A family is one framework
era on one architecture; families lend to each other, so all are fitted at once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from roofplan import catalogue
from roofplan.calibrate.fitting import Excluded, entry, spread
from roofplan.calibrate.hierarchy import Block, Effect, Fitted, Numbers, Prior, fit
from roofplan.catalogue.machines import machine as machine_of
from roofplan.economics.uncertainty import Z90
from roofplan.records.calibration import Fit
from roofplan.records.engine import EAGER as FROM_PYTHON
from roofplan.records.hardware import Machine
from roofplan.records.training import Framework
from roofplan.timing.rates import rates
from roofplan.train.ledger import fullest, ledgers
from roofplan.train.step import TIMES, Ability, applied, step
from roofplan.validation.rows import Skipped
from roofplan.validation.training import TrainingCase, room_of, training_case


def cases(*sources: str) -> list[TrainingCase]:
    """Return the runs of publishers that can be predicted."""
    found = []
    for row in catalogue.training_rows():
        if row["source_key"] in sources:
            try:
                found.append(training_case(row))
            except Skipped:
                continue
    return found


def kept(found: Sequence[TrainingCase], constants: Fit) -> list[TrainingCase]:
    """Return the runs that a fit does not exclude."""
    return [case for case in found if constants.excluded.isdisjoint(case.origin.names)]


@dataclass(frozen=True, slots=True)
class Family:
    """One framework era on one architecture, the publishers whose runs fit it, and whether its cluster's network is fitted too."""

    framework: str
    architecture: str
    sources: tuple[str, ...]
    network: bool = False

    @property
    def scope(self) -> str:
        """Scope of its constants."""
        return f"{self.framework}/{self.architecture}"

    @property
    def lineage(self) -> str:
        """Whose code it runs."""
        return catalogue.framework(self.framework).lineage


FAMILIES = (
    Family("megatron-lm-3.0", "Ampere", ("vtrain", "seqsel-2022"), network=True),
    Family("megatron-core-0.16", "Blackwell", ("simumax-b200",)),
    Family("megatron-bridge-0.2", "Hopper", ("megatron-bridge",)),
    Family("megatron-bridge-0.2", "Blackwell", ("megatron-bridge",)),
    Family("megatron-bridge-0.2", "Blackwell Ultra", ("megatron-bridge",)),
    Family("megatron-bridge-26.06", "Blackwell", ("megatron-bridge",)),
    Family("megatron-bridge-26.06", "Blackwell Ultra", ("megatron-bridge",)),
    Family("megatron-core-0.8", "Hopper", ("nemo-2407",)),
    Family("torchtitan-0.1", "Hopper", ("torchtitan",)),
    Family("llm-foundry-0.3", "Ampere", ("llm-foundry",)),
    Family("llm-foundry-0.3", "Hopper", ("llm-foundry",)),
    Family("fsdp-qlora-1.0", "Ampere", ("fsdp-qlora",)),
    Family("fsdp-qlora-1.0", "Ada", ("fsdp-qlora",)),
)
"""Runs that share their numbers; few of them, each with a physical meaning, fitted over all families at once."""


@dataclass(frozen=True, slots=True)
class Plausible:
    """What is known of a number before any run: its middle, and how far it strays, in logarithms.

    Parameters
    ----------
    middle : where kernel tables put it: a share of one, or the order of a launch.
    common : spread of the middle itself [1].
    architecture, lineage, own : what an architecture, a framework's code and one family add, one standard deviation [1].
    """

    middle: float
    common: float
    architecture: float
    lineage: float
    own: float


NUMBERS = {
    "compute": Plausible(0.9, 0.15, 0.1, 0.1, 0.05),
    "low_over_16_bits": Plausible(1.0, 0.1, 0.05, 0.05, 0.05),
    "experts": Plausible(8.0, 0.8, 0.2, 0.4, 0.2),
    "memory": Plausible(0.8, 0.4, 0.2, 0.2, 0.15),
    "attention": Plausible(0.9, 0.4, 0.2, 0.2, 0.15),
    "update": Plausible(0.9, 0.4, 0.2, 0.2, 0.1),
    "launch": Plausible(1.5e-5, 0.18, 0.1, 0.7, 0.2),
    "ramp": Plausible(1.2e-5, 0.5, 0.1, 0.15, 0.1),
    "host": Plausible(1e-2, 0.5, 0.1, 0.7, 0.3),
    "sigma": Plausible(3.3e-3, 0.2, 0.05, 0.1, 0.1),
}
"""What is fitted. Shares of kernels follow the architecture and the code alike; launches and host time are the code's: eager PyTorch takes
10 to 20 us a kernel. Products in 8 and 4 bits lose what those in 16 bits do, and a little of their own: casts are passes of
their own. What grouped products lose beside dense ones may be several times what the tables' one kernel for all experts does, since
frameworks start a product for each."""

NETWORK = {"network": Prior(math.log(0.9), 0.3), "shared": Prior(math.log(0.3), 0.7)}
"""A cluster's own: the share of its network that rings attain, and what of that where several ranks of a ring share a host."""

HOST_BOUND = math.log(3.0)
"""Where the search for what a framework's code adds to a launch starts: where the host binds, since elsewhere a launch has no slope [1]."""


def effects_of(name: str, lineage: str, architecture: str, own: str = "") -> tuple[Effect, ...]:
    """Return the effects whose sum is the logarithm of a number; without `own` those that a family without runs has."""
    shared: tuple[Effect, ...] = (("any", name), (architecture, name), (lineage, name))
    return (*shared, (own, name)) if own else shared


def seen_by_families(gone: Excluded) -> bool:
    """Return whether a family has runs that an exclusion leaves out."""
    runs = [case for family in FAMILIES for case in cases(*family.sources) if belongs(case, family)]
    return any(not gone.isdisjoint(case.origin.names) for case in runs)


def priors() -> dict[Effect, Prior]:
    """Return the priors of all families' effects."""
    out: dict[Effect, Prior] = {}
    for name, p in NUMBERS.items():
        out["any", name] = Prior(math.log(p.middle), p.common)
        for family in FAMILIES:
            out[family.architecture, name] = Prior(0.0, p.architecture)
            out[family.lineage, name] = Prior(0.0, p.lineage, HOST_BOUND if name == "launch" else None)
            out[family.scope, name] = Prior(0.0, p.own)
            out.update({(family.scope, name): prior for name, prior in NETWORK.items() if family.network})
    return out


def with_values(case: TrainingCase, p: Numbers, constants: Fit) -> Ability:
    """Return what a case's machine attains by the kernel tables alone, with fitted numbers put in."""
    a = bare(case.machine, case.framework, constants)
    w = a.network
    if a.machine.network is not None and "network" in p:
        outside = (a.machine.network_per_device or 1.0) * min(p["network"], 1.0)
        w = replace(w, outside=outside, shared=min(p["shared"], 1.0))
    times: dict[str, Any] = {name: p[name] for name in TIMES}
    return applied(replace(a, network=w, **times), p)


@lru_cache(maxsize=128)
def bare(machine: Machine, framework: Framework, constants: Fit) -> Ability:
    """Return what a machine attains with no share of its framework's."""
    r = rates(machine, framework, constants)
    return Ability(
        rates=r,
        network=r.network,
        framework=framework,
        update=r.bandwidth["memory"],
        sources={},
        **dict.fromkeys(TIMES, 0.0),
    )


def predicted(case: TrainingCase, p: Numbers, constants: Fit) -> float:
    """Return the seconds of a step of a case with fitted numbers put in."""
    return float(step(case.model, case.job, case.layout, with_values(case, p, constants)).time)


@dataclass(slots=True, kw_only=True)
class Steps:
    """All families' numbers, fitted at once.

    Parameters
    ----------
    families : those with runs, in the order of `fitted.noise` and `fitted.slopes`.
    runs : theirs.
    constants : the kernels' constants that they stand on.
    """

    families: list[Family]
    runs: list[list[TrainingCase]]
    fitted: Fitted
    constants: Fit

    def numbers(self, place: int) -> Numbers:
        """Return the numbers of a family with runs."""
        return {name: self.fitted.number(effects) for name, effects in _numbers(self.families[place]).items()}

    def errors(self, place: int) -> np.ndarray:
        """Return the relative errors of a family's predicted times, in sample [1]."""
        out: np.ndarray = np.expm1(_errors(self.runs[place], self.constants, self.numbers(place)))
        return out


def _numbers(family: Family) -> dict[str, tuple[Effect, ...]]:
    """Return the numbers of a family by the effects that they are the sum of."""
    out = {name: effects_of(name, family.lineage, family.architecture, family.scope) for name in NUMBERS}
    return out | {name: ((family.scope, name),) for name in NETWORK if family.network}


def _errors(runs: Sequence[TrainingCase], constants: Fit, p: Numbers) -> np.ndarray:
    return np.array([math.log(predicted(case, p, constants) / (case.step_time or 1.0)) for case in runs])


def fit_families(constants: Fit, start: Fitted | None = None) -> Steps:
    """Fit the numbers of all families to the step times of their runs, each architecture and framework lending to its kin."""
    families, runs = [], []
    for family in FAMILIES:
        mine = [case for case in kept(cases(*family.sources), constants) if belongs(case, family)]
        if mine:
            families.append(family)
            runs.append(mine)
    blocks = [
        Block(numbers=_numbers(family), errors=partial(_errors, mine, constants))
        for family, mine in zip(families, runs, strict=True)
    ]
    return Steps(families=families, runs=runs, fitted=fit(blocks, priors(), start=start), constants=constants)


def step_entries(found: Steps) -> list[dict[str, Any]]:
    """Return the constants of the families, and what others borrow."""
    own = [item for place in range(len(found.families)) for item in _family_entries(found, place)]
    return [*own, *_lent_entries(found)]


FELT = 1e-3
"""Largest slope of a run's time by a number below which the runs do not know it [1]."""


def _family_entries(found: Steps, place: int) -> list[dict[str, Any]]:
    """Return the constants of a family that its runs know."""
    family, runs, errors = found.families[place], found.runs[place], found.errors(place)
    sources = dict.fromkeys(case.row["source_key"] for case in runs)
    source = f"step times of {', '.join(sources)}, fitted with all families at once"
    note = f"in sample: mean error {np.mean(np.abs(errors)):.1%}, median {np.median(np.abs(errors)):.1%}"
    slopes, numbers = found.fitted.slopes[place], _numbers(family)
    left = found.fitted.variance(list(numbers.values()), [0.0] * len(numbers), slopes)
    # what the family's own errors leave, and what is left open of its numbers
    deviation = math.hypot(float(np.quantile(np.abs(np.log1p(errors)), 0.9)) / Z90, math.sqrt(left))
    felt = np.max(np.abs(slopes), axis=0)
    return [
        entry(
            LAW_OF.get(name, "training"),
            name,
            family.scope,
            value,
            UNIT_OF.get(name, "1"),
            deviation,
            len(runs),
            source,
            note,
        )
        for (name, value), slope in zip(found.numbers(place).items(), felt, strict=True)
        if slope > FELT
    ]


def _lent_entries(found: Steps) -> list[dict[str, Any]]:
    """Return what frameworks and architectures without runs borrow: the sums of the effects that they have a part in."""
    lineages = list(dict.fromkeys(family.lineage for family in found.families))
    architectures = list(dict.fromkeys(family.architecture for family in found.families))
    out = []
    for lineage in (*lineages, ""):
        for architecture in (*architectures, ""):
            out += _lent(found, lineage, architecture)
    for name, (law, its_name) in EAGER_ENGINE.items():
        item = next(item for item in out if item["scope"] == "any" and item["name"] == name)
        note = "eager PyTorch, as training runs it"
        out.append({**item, "law": law, "name": its_name, "scope": FROM_PYTHON, "note": note})
    return out


def _kin(found: Steps, lineage: str, architecture: str) -> list[int]:
    """Return the places of the families that one framework's code on one architecture borrows from: of both, else of either, else all."""
    alike = [(family.lineage == lineage, family.architecture == architecture) for family in found.families]
    for enough in (all, any):
        kin = [place for place, same in enumerate(alike) if enough(same)]
        if kin:
            return kin
    return list(range(len(found.families)))


def _lent(found: Steps, lineage: str, architecture: str) -> list[dict[str, Any]]:
    """Return what one framework's code on one architecture borrows, and how far predictions of runs that know a number stray."""
    scope = "/".join(part for part in (lineage, architecture) if part) or "any"
    effects = {name: effects_of(name, lineage, architecture) for name in NUMBERS}
    unknown = _own_variance(lineage, architecture, found)
    slopes = np.concatenate([each[:, : len(NUMBERS)] for each in found.fitted.slopes])
    kin = _kin(found, lineage, architecture)
    source = f"fits of {', '.join(found.families[place].scope for place in kin)}, partial pooling"
    rows, noise = sum(len(found.runs[place]) for place in kin), float(np.median(found.fitted.noise))
    out = []
    for column, (name, of) in enumerate(effects.items()):
        felt = slopes[np.abs(slopes[:, column]) > FELT]
        strays = found.fitted.variance(list(effects.values()), unknown, felt) if felt.size else max(unknown)
        value, unit = found.fitted.number(of), UNIT_OF.get(name, "1")
        deviation = math.hypot(math.sqrt(strays), noise)
        out.append(entry("training", name, scope, value, unit, deviation, rows, source, BORROWED))
    return out


BORROWED = "borrowed by what has no runs"


def _own_variance(lineage: str, architecture: str, found: Steps) -> list[float]:
    """Return the variance of what nothing is known of: a family's own, and its architecture's or code's where no runs have them."""
    seen = {effect[0] for effect in found.fitted.places if isinstance(effect, tuple)}
    return [
        p.own**2 + (0.0 if lineage in seen else p.lineage**2) + (0.0 if architecture in seen else p.architecture**2)
        for p in NUMBERS.values()
    ]


EAGER_ENGINE = {"launch": ("kernel", "gap"), "host": ("engine_step", "base")}
"""What an engine that launches every kernel from Python takes over from training: seconds between kernels, and of the host per step."""

LAW_OF = {"network": "message", "shared": "message"}
UNIT_OF = {"launch": "s", "ramp": "s", "host": "s"}


def belongs(case: TrainingCase, family: Family) -> bool:
    """Return whether a run has a rate and is of the family."""
    return (
        case.rate is not None
        and case.framework.id == family.framework
        and case.machine.device.architecture == family.architecture
        and case.layout.zero == (3 if case.framework.sharding == "fsdp" else min(case.layout.zero, 2))
    )


FULL = 0.97
"""Share of the memory from which a run's allocator holds what there is, not what it would [1]."""


def fit_reserved(constants: Fit) -> list[dict[str, Any]]:
    """Fit what PyTorch's allocator reserves over what tensors take, per framework whose publishers state reserved memory.

    What late frees add, which the catalogue states, is taken off.
    """
    ratios: dict[str, list[float]] = defaultdict(list)
    for case in kept(cases("torchtitan", "fsdp-qlora"), constants):
        if case.memory is not None and case.memory_kind == "reserved" and case.memory < FULL * room_of(case):
            held = fullest(ledgers(case.model, case.job, case.layout, case.framework, constants))
            ratios[case.framework.name].append(case.memory / float(held.allocated.value) / case.framework.late_frees)
    source = "reserved peaks of torchtitan and fsdp_qlora over allocated ones predicted"
    out = [
        entry(
            "allocator",
            "reserved_over_allocated",
            name,
            float(np.median(found)),
            "1",
            spread(found),
            len(found),
            source,
        )
        for name, found in sorted(ratios.items())
    ]
    every = [ratio for found in ratios.values() for ratio in found]
    return [
        *out,
        entry(
            "allocator",
            "reserved_over_allocated",
            "any",
            float(np.median(every)),
            "1",
            spread(every),
            len(every),
            source,
        ),
    ]


WHOLE = 4.0 / 3.0
"""Work of a step over its model FLOPs where every layer is computed again: forward, forward, and twice as much backward [1]."""


def fit_published_rates(constants: Fit) -> list[dict[str, Any]]:
    """Fit the products' share of compiled steps on TPUs from published FLOP/s, whose models are not described well enough to plan.

    What else a step holds is inside the published rate, so the share is a lower bound and no launches are added to it.
    """
    framework = catalogue.framework("maxtext-0.1")
    shares = []
    for row in catalogue.training_rows():
        attained = row.get("measured_tflops_per_gpu")
        if row["source_key"] != "maxtext-readme" or not attained or row["recompute"] not in {"full", "minimal"}:
            continue
        machine = machine_of(f"{row['accel_norm']}:1")[0]
        if machine.device.architecture == "TPU":
            work = float(attained) * 1e12 * (WHOLE if row["recompute"] == "full" else 1.0)
            shares.append(work / rates(machine, framework, constants).compute["bf16"])
    scope, source = f"{framework.id}/TPU", "MaxText's README tables: TFLOPS a chip of TPU v4, v5e and v5p"
    note = "over the rate of the kernel tables, whose six products are small; times 4/3 where all layers are computed again"
    out = [
        entry(
            "training",
            "compute",
            scope,
            float(np.median(shares)),
            "1",
            spread(shares),
            len(shares),
            source,
            note,
        )
    ]
    for name in TIMES:
        unit = UNIT_OF.get(name, "1")
        out.append(
            entry(
                "training", name, scope, 1e-9, unit, spread(shares), 0, "inside the published rate", kind="definition"
            )
        )
    return out


def fit_training(found: Steps) -> list[dict[str, Any]]:
    """Return all constants of training, those of step times as they were fitted."""
    return [*step_entries(found), *fit_published_rates(found.constants), *fit_reserved(found.constants)]
