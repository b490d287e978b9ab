"""What training software adds to the kernels' rates: collectives of NCCL, launches, host time, spread; and what its allocator reserves.

Kernel tables anchor products, attention and collectives; published runs fit the few numbers that are left. A family is one framework
era on one architecture; families lend to each other, so all are fitted at once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from roofplan import catalogue
from roofplan.catalogue.machines import machine as machine_of
from roofplan.evidence.fits.fitting import Excluded, entry, spread
from roofplan.evidence.fits.hierarchy import Block, Effect, Fitted, Numbers, Prior, fit
from roofplan.evidence.rows import Skipped
from roofplan.evidence.training import TrainingCase, room_of, training_case
from roofplan.records.calibration import RELATIVE, Constant, Fit
from roofplan.records.engine import EAGER as FROM_PYTHON
from roofplan.records.hardware import Machine
from roofplan.records.training import Framework
from roofplan.timing.rates import rates
from roofplan.training.ledger import fullest, ledgers
from roofplan.training.step import TIMES, Ability, applied, step


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plausible:
    """What is known of a number before any run: its middle, and how far it strays, in logarithms; zero where nothing is fitted.

    Parameters
    ----------
    middle : where kernel tables put it: a share of one, or the order of a launch.
    common : spread of the middle itself [1].
    architecture, lineage, own : what an architecture, a framework's code and one family add, one standard deviation [1].
    """

    middle: float
    common: float = 0.0
    architecture: float = 0.0
    lineage: float = 0.0
    own: float = 0.0


NUMBERS = {
    "compute": Plausible(middle=0.9, common=0.15, architecture=0.1, lineage=0.1, own=0.05),
    "low_over_16_bits": Plausible(middle=1.0, common=0.1, architecture=0.05, lineage=0.05),
    "experts": Plausible(middle=8.0, common=0.8, architecture=0.2, lineage=0.4, own=0.2),
    "memory": Plausible(middle=0.8, common=0.4, architecture=0.2, lineage=0.2, own=0.15),
    "attention": Plausible(middle=0.9, common=0.4, architecture=0.2, lineage=0.2, own=0.15),
    "ramp": Plausible(middle=1.2e-5, common=0.5, lineage=0.15),
    "host": Plausible(middle=1e-2, common=0.5, lineage=0.7),
    "launch": Plausible(middle=1.5e-5, lineage=0.7),
    "update": Plausible(middle=0.9, common=0.4, architecture=0.2, lineage=0.2),
    "sigma": Plausible(middle=3.3e-3),
}
"""The numbers of a framework's code on an architecture. Shares of kernels follow both; launches and host time are the code's: eager PyTorch
takes 10 to 20 us a kernel. Products in 8 and 4 bits lose what those in 16 do, and a little of their own. What grouped
products lose beside dense ones may be several times what the tables' one kernel for all experts does, since frameworks start a product for
each. Of the last no run tells."""

NETWORK = {"network": Plausible(middle=0.9, own=0.3), "shared": Plausible(middle=0.3, own=0.7)}
"""A cluster's own: the share of its network that rings attain, and what of that where several ranks of a ring share a host."""

HOST_BOUND = math.log(3.0)
"""Where the search for what a framework's code adds to a launch starts: where the host binds, since elsewhere a launch has no slope [1]."""


def effects_of(name: str, lineage: str = "", architecture: str = "", own: str = "") -> tuple[Effect, ...]:
    """Return the effects whose sum is the logarithm of a number over its middle, of the scopes that are given and add to it."""
    p = PLAUSIBLE[name]
    levels = (("any", p.common), (architecture, p.architecture), (lineage, p.lineage), (own, p.own))
    return tuple((scope, name) for scope, spread in levels if scope and spread)


PLAUSIBLE = NUMBERS | NETWORK


def seen_by_families(gone: Excluded) -> bool:
    """Return whether a family has runs that an exclusion leaves out."""
    runs = [case for family in FAMILIES for case in cases(*family.sources) if belongs(case, family)]
    return any(not gone.isdisjoint(case.origin.names) for case in runs)


def priors() -> dict[Effect, Prior]:
    """Return the priors of all families' effects."""
    out: dict[Effect, Prior] = {}
    for name, p in PLAUSIBLE.items():
        out["any", name] = Prior(0.0, p.common)
        for family in FAMILIES:
            out[family.architecture, name] = Prior(0.0, p.architecture)
            out[family.lineage, name] = Prior(0.0, p.lineage, HOST_BOUND if name == "launch" else None)
            out[family.scope, name] = Prior(0.0, p.own)
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
    held : numbers that stay at their middles.
    """

    families: list[Family]
    runs: list[list[TrainingCase]]
    fitted: Fitted
    constants: Fit
    held: frozenset[str]

    def errors(self, family: Family, runs: Sequence[TrainingCase]) -> np.ndarray:
        """Return the relative errors of the predicted times of a family's runs [1]."""
        known = _numbers(family, self.held)
        if family not in self.families:
            known = {name: effects for name, effects in known.items() if name in NUMBERS}
        factors = {name: self.fitted.number(effects) for name, effects in known.items()}
        out: np.ndarray = np.expm1(_errors(runs, self.constants, factors))
        return out


def _numbers(family: Family, held: Collection[str] = ()) -> dict[str, tuple[Effect, ...]]:
    """Return the fitted numbers of a family by the effects that they are the sum of."""
    names = [name for name in (PLAUSIBLE if family.network else NUMBERS) if name not in held]
    found = {name: effects_of(name, family.lineage, family.architecture, family.scope) for name in names}
    return {name: effects for name, effects in found.items() if effects}


def _whole(factors: Numbers) -> Numbers:
    """Return all numbers of a family by the factors on the middles of those that are fitted."""
    middles = {name: p.middle for name, p in PLAUSIBLE.items() if name in NUMBERS or name in factors}
    return {name: middle * factors.get(name, 1.0) for name, middle in middles.items()}


def _errors(runs: Sequence[TrainingCase], constants: Fit, factors: Numbers) -> np.ndarray:
    p = _whole(factors)
    return np.array([math.log(predicted(case, p, constants) / (case.step_time or 1.0)) for case in runs])


def fit_families(constants: Fit, start: Fitted | None = None, held: Collection[str] = ()) -> Steps:
    """Fit the numbers of all families but those `held` to the step times of their runs, each architecture and framework lending to its kin."""
    families, runs = [], []
    for family in FAMILIES:
        mine = [case for case in kept(cases(*family.sources), constants) if belongs(case, family)]
        if mine:
            families.append(family)
            runs.append(mine)
    blocks = [
        Block(numbers=_numbers(family, held), errors=partial(_errors, mine, constants))
        for family, mine in zip(families, runs, strict=True)
    ]
    fitted = fit(blocks, priors(), start=start)
    return Steps(families=families, runs=runs, fitted=fitted, constants=constants, held=frozenset(held))


def publishers_errors(whole: Steps) -> tuple[float, float]:
    """Return the mean over publishers of the mean error of their step times: of the fit that saw them, and of fits without them [1]."""
    seen: list[float] = []
    unseen: list[float] = []
    for source in dict.fromkeys(source for family in FAMILIES for source in family.sources):
        mine = [
            (family, [case for case in cases(source) if belongs(case, family)])
            for family in FAMILIES
            if source in family.sources
        ]
        without = fit_families(whole.constants.without([source]), whole.fitted, whole.held)
        for found, out in ((whole, seen), (without, unseen)):
            out.append(float(np.mean(np.abs(np.concatenate([found.errors(*each) for each in mine])))))
    return float(np.mean(seen)), float(np.mean(unseen))


def worth(whole: Steps, tick: Callable[[str], object] = str) -> Iterator[tuple[str, int, float, float]]:
    """Yield, for no number and then for each, how many constants it is, and `publishers_errors` where it stays at its middle."""
    entries = step_entries(whole)
    for name in ("", *NUMBERS):
        tick(name or "all numbers")
        held = fit_families(whole.constants, whole.fitted, [name]) if name else whole
        count = sum(item.kind == "fit" and name in {"", item.name} for item in entries)
        yield name, count, *publishers_errors(held)


def step_entries(found: Steps) -> list[Constant]:
    """Return the constants of step times: what all families have in common, and the factors that scopes add of which runs tell."""
    out = [_common(found, name) for name in NUMBERS]
    for name, p in NUMBERS.items():
        levels = [(one.architecture, p.architecture) for one in found.families]
        levels += [(one.lineage, p.lineage) for one in found.families]
        levels += [(one.scope, p.own) for one in found.families]
        told = (scope for scope, prior in dict.fromkeys(levels) if prior and _adds(found, name, scope, prior))
        out += [_factor(found, name, scope) for scope in told]
    for family in found.families:
        if family.network:
            out += [_network(found, family, name) for name in NETWORK]
    for name, (law, its_name) in EAGER_ENGINE.items():
        item = next(item for item in out if item.scope == "any" and item.name == name)
        note = "eager PyTorch, as training runs it"
        out.append(replace(item, law=law, name=its_name, scope=FROM_PYTHON, note=note))
    return out


ADDS = 0.2
"""Part of its prior spread that an effect must differ from nothing by, so that it is kept [1]."""


def _adds(found: Steps, name: str, scope: str, prior: float) -> bool:
    """Return whether runs want a scope to add something to a number."""
    place = found.fitted.places.get((scope, name))
    return place is not None and abs(found.fitted.values[place]) >= ADDS * prior


def _strays(found: Steps, name: str, architecture: str = "", lineage: str = "", own: str = "") -> float:
    """Return how far a number strays where only some scopes are known, one standard deviation of its logarithm [1]."""
    p = PLAUSIBLE[name]
    levels = ((architecture, p.architecture), (lineage, p.lineage), (own, p.own))
    unknown = sum(spread**2 for level, spread in levels if (level, name) not in found.fitted.places)
    return math.sqrt(found.fitted.variance(effects_of(name, lineage, architecture, own)) + unknown)


def _runs(found: Steps, scope: str = "any") -> tuple[int, str]:
    """Return how many runs a scope has, and their publishers."""
    mine = [
        case
        for family, runs in zip(found.families, found.runs, strict=True)
        if scope in {"any", family.architecture, family.lineage, family.scope}
        for case in runs
    ]
    sources = dict.fromkeys(case.row["source_key"] for case in mine)
    return len(mine), f"step times of {', '.join(sources)}, fitted with all families at once"


def _common(found: Steps, name: str) -> Constant:
    """Return what all families have in common of a number; a guess where no run tells it."""
    p, unit = NUMBERS[name], UNIT_OF.get(name, "1")
    if not found.fitted.told(("any", name), Prior(0.0, p.common)):
        why, strays = (
            "where kernel tables put it; no run tells it",
            math.hypot(p.common, p.architecture, p.lineage, p.own),
        )
        return entry("training", name, "any", p.middle, unit, strays or UNTOLD, 0, why, kind="guess")
    rows, source = _runs(found)
    value = p.middle * found.fitted.number(effects_of(name))
    return entry("training", name, "any", value, unit, _strays(found, name), rows, source)


UNTOLD = 0.3
"""How far a number strays of which nothing is known, one standard deviation of its logarithm: a guess [1]."""


def _factor(found: Steps, name: str, scope: str) -> Constant:
    """Return what a scope adds to a number; its spread is that of the number there."""
    family = next((one for one in found.families if one.scope == scope), None)
    if family is not None:
        strays = _strays(found, name, family.architecture, family.lineage, scope)
    elif scope in {one.architecture for one in found.families}:
        strays = _strays(found, name, architecture=scope)
    else:
        strays = _strays(found, name, lineage=scope)
    rows, source = _runs(found, scope)
    return entry("training", name, scope, found.fitted.number([(scope, name)]), RELATIVE, strays, rows, source)


def _network(found: Steps, family: Family, name: str) -> Constant:
    """Return what a family's cluster attains of its network."""
    rows, source = _runs(found, family.scope)
    effects = effects_of(name, own=family.scope)
    value, strays = PLAUSIBLE[name].middle * found.fitted.number(effects), _strays(found, name, own=family.scope)
    return entry("message", name, family.scope, value, "1", strays, rows, source)


EAGER_ENGINE = {"launch": ("kernel", "gap"), "host": ("engine_step", "base")}
"""What an engine that launches every kernel from Python takes over from training: seconds between kernels, and of the host per step."""

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


def fit_reserved(constants: Fit) -> list[Constant]:
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


def fit_published_rates(constants: Fit) -> list[Constant]:
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


def fit_training(found: Steps) -> list[Constant]:
    """Return all constants of training, those of step times as they were fitted."""
    return [*step_entries(found), *fit_published_rates(found.constants), *fit_reserved(found.constants)]
