"""Fit what training software adds to kernels: shares of their rates, launches, host time and reserved memory.

Kernel tables determine products, attention and collectives; published runs determine the few remaining numbers. A family is one
framework version on one architecture. Families are partially pooled, so all are fitted at once.
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
from roofplan.errors import unwrap
from roofplan.evidence.fits.fitting import Excluded, entry, spread
from roofplan.evidence.fits.hierarchy import Block, Effect, Fitted, Numbers, Prior, fit
from roofplan.evidence.rows import Skipped
from roofplan.evidence.training import TrainingCase, room_of, training_case
from roofplan.laws import Number
from roofplan.records.calibration import RELATIVE, Constant, Fit
from roofplan.records.engine import EAGER as FROM_PYTHON
from roofplan.records.hardware import Machine
from roofplan.records.training import Framework
from roofplan.timing.rates import rates
from roofplan.training.ability import TIMES, UNTUNED, Ability, ability, applied
from roofplan.training.ledger import fullest, ledgers
from roofplan.training.step import step


def cases(*sources: str) -> list[TrainingCase]:
    """Return the runs of the given publishers that can be predicted."""
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
    """One framework version on one architecture, the publishers of its runs, and whether its network is fitted too."""

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
        """Lineage of its framework's code."""
        return catalogue.framework(self.framework).lineage


FAMILIES = (
    Family("megatron-lm-3.0", "Ampere", ("vtrain", "seqsel-2022", "zero-bubble"), network=True),
    Family("megatron-core-0.16", "Ampere", ("ms-swift",)),
    Family(
        "megatron-core-0.16",
        "Hopper",
        ("ms-swift", "swiss-ai-megatron", "moe-modelzoo", "internlm-moe-guide", "openeurollm"),
    ),
    Family("megatron-core-0.16", "CDNA3", ("tprimat", "amd-primus-projection")),
    Family("megatron-core-0.16", "Blackwell", ("simumax-b200", "ai-field-notes-gb10")),
    Family("megatron-bridge-0.2", "Hopper", ("megatron-bridge", "mlperf-nvidia", "dgxc-ft", "tprimat")),
    Family("megatron-bridge-0.2", "Blackwell", ("megatron-bridge", "mlperf-nvidia")),
    Family("megatron-bridge-0.2", "Blackwell Ultra", ("megatron-bridge", "mlperf-nvidia")),
    Family("megatron-bridge-0.2", "CDNA3", ("mlperf-amd",)),
    Family("megatron-bridge-0.2", "CDNA4", ("mlperf-amd",)),
    Family("megatron-bridge-26.06", "Blackwell", ("megatron-bridge",)),
    Family("megatron-bridge-26.06", "Blackwell Ultra", ("megatron-bridge",)),
    Family("megatron-core-0.8", "Ampere", ("flagperf", "aleph-alpha")),
    Family("megatron-core-0.8", "Hopper", ("nemo-2407", "flagperf", "mlperf-nvidia", "gpu-recipes")),
    Family("megatron-core-0.8", "Da Vinci", ("ascend-modellink",)),
    Family("torchtitan-0.1", "Ampere", ("torchtune",)),
    Family("torchtitan-0.1", "Ada", ("torchtune",)),
    Family("torchtitan-0.1", "Hopper", ("torchtitan", "aws-sagemaker-titan")),
    Family("torchtitan-0.2", "Ampere", ("languini-kitchen",)),
    Family("torchtitan-0.2", "Hopper", ("torchtitan", "torchao", "openeurollm", "prime-rl", "gpuburnout")),
    Family("torchtitan-0.2", "Blackwell", ("daddyofadoggy", "prime-rl")),
    Family("torchtitan-0.2", "CDNA3", ("torchao",)),
    Family("llm-foundry-0.3", "Ampere", ("llm-foundry", "ibm-fms-fsdp", "atorch", "vectorlm")),
    Family("llm-foundry-0.3", "Hopper", ("llm-foundry", "ibm-fms-fsdp")),
    Family("deepspeed-0.16", "Ampere", ("ms-swift", "qwen1", "xtuner")),
    Family("deepspeed-0.16", "CDNA2", ("lumi-llm-scaling", "poro-34b")),
    Family(
        "transformers-4.57",
        "Ampere",
        ("qwen1", "llama-factory", "fms-acceleration", "whynlp-tinyllama", "fralid-autoresearch-3090"),
    ),
    Family("transformers-4.57", "Hopper", ("semianalysis", "dkumar15-aria-1b")),
    Family("transformers-4.57", "Ada", ("whynlp-tinyllama",)),
    Family("transformers-4.57", "Blackwell", ("ai-field-notes-gb10", "ljm565-llm-trainer")),
    Family("deepspeed-0.16", "Hopper", ("colossalai",)),
    Family("deepspeed-0.16", "Blackwell", ("colossalai",)),
    Family("maxtext-0.1", "Ampere", ("jax-toolbox",)),
    Family("maxtext-0.1", "Hopper", ("jax-toolbox", "gpu-recipes")),
    Family("fsdp-qlora-1.0", "Ampere", ("fsdp-qlora",)),
    Family("fsdp-qlora-1.0", "Ada", ("fsdp-qlora",)),
)
"""Families of runs that share numbers; all families are fitted at once. Runs of software that a profile stands in for belong to it where
the code of a step is of the same kind: those that are `untuned`, llm.c's and flash-attention's are not. Clusters of before 2023 outside
NVIDIA vary by a third between identical runs, as BigScience says, and are not fitted either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plausible:
    """Prior of a number: its median, and standard deviations of its effects in logarithms; zero where an effect is not fitted.

    Parameters
    ----------
    middle : prior median, from kernel tables or the usual time of a launch.
    common : spread of the effect common to all families [1].
    architecture, lineage, own : spread of the effects of an architecture, of a framework's code and of one family [1].
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
"""Priors of a framework's numbers on an architecture. Shares of kernel rates depend on both; launches and host time depend on the code:
eager PyTorch takes 10 to 20 us a kernel. Products in 8 and 4 bits lose what 16-bit products do, and a little more. Grouped products may
lose several times as much as in the tables, which use one kernel for all experts, since frameworks launch a product for each. No run
determines the last number."""

NETWORK = {"network": Plausible(middle=0.9, own=0.3), "shared": Plausible(middle=0.3, own=0.7)}
"""Priors of a cluster's numbers: the share of its network rate that rings attain, and the share of that where a ring has several ranks per host."""

HOST_BOUND = math.log(3.0)
"""Start of the search for a lineage's effect on launch time: in the host-bound regime, since the slope is zero elsewhere [1]."""


def effects_of(name: str, lineage: str = "", architecture: str = "", own: str = "") -> tuple[Effect, ...]:
    """Return the effects whose sum is the logarithm of a number over its prior median, for the given scopes."""
    p = PLAUSIBLE[name]
    levels = (("any", p.common), (architecture, p.architecture), (lineage, p.lineage), (own, p.own))
    return tuple((scope, name) for scope, spread in levels if scope and spread)


PLAUSIBLE = NUMBERS | NETWORK


def seen_by_families(gone: Excluded) -> bool:
    """Return whether an exclusion leaves out runs of any family."""
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
    """Return the rates of a case's machine by the kernel tables, with fitted numbers applied."""
    a = bare(case.machine, case.framework, constants)
    r = a.rates
    if a.machine.network is not None and "network" in p:
        outside = unwrap(a.machine.network_per_device) * np.minimum(p["network"], 1.0)
        r = replace(r, network=replace(r.network, outside=outside, shared=np.minimum(p["shared"], 1.0)))
    times: dict[str, Any] = {name: p[name] for name in TIMES}
    return applied(replace(a, rates=r, **times), p)


@lru_cache(maxsize=128)
def bare(machine: Machine, framework: Framework, constants: Fit) -> Ability:
    """Return the rates of a machine by the kernel tables, without the numbers of a framework."""
    r = rates(machine, framework, constants)
    return Ability(
        rates=r,
        framework=framework,
        update=r.bandwidth["memory"],
        sources={},
        **dict.fromkeys(TIMES, 0.0),
    )


def predicted(case: TrainingCase, p: Numbers, constants: Fit) -> Number:
    """Return the step time of a case with fitted numbers applied, floats or arrays [s]."""
    return step(case.model, case.job, case.layout, with_values(case, p, constants)).time


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Joint fit of all families' numbers to step times.

    Parameters
    ----------
    families : families with runs, in the order of `fitted.noise` and `fitted.slopes`.
    runs : runs of each family.
    constants : constants that the fit starts from, such as those of kernels.
    held : numbers held at their prior median.
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
    """Return the effects of each fitted number of a family."""
    names = [name for name in (PLAUSIBLE if family.network else NUMBERS) if name not in held]
    found = {name: effects_of(name, family.lineage, family.architecture, family.scope) for name in names}
    return {name: effects for name, effects in found.items() if effects}


def _numbers_of(factors: Numbers) -> Numbers:
    """Return all numbers of a family, from factors on the prior medians."""
    middles = {name: p.middle for name, p in PLAUSIBLE.items() if name in NUMBERS or name in factors}
    return {name: middle * factors.get(name, 1.0) for name, middle in middles.items()}


def _errors(runs: Sequence[TrainingCase], constants: Fit, factors: Numbers) -> np.ndarray:
    p = _numbers_of(factors)
    shape = np.broadcast_shapes(*map(np.shape, p.values()))
    return np.log([np.broadcast_to(predicted(case, p, constants) / unwrap(case.step_time), shape) for case in runs])


def fit_families(constants: Fit, start: Fitted | None = None, held: Collection[str] = ()) -> Steps:
    """Fit the numbers of all families, except those `held`, to the step times of their runs, with partial pooling."""
    families, runs = [], []
    for family in FAMILIES:
        mine = [case for case in kept(cases(*family.sources), constants) if belongs(case, family)]
        if mine:
            families.append(family)
            runs.append(mine)
    blocks = [
        Block(numbers=_numbers(family, held), errors=partial(_errors, mine, constants), at_once=True)
        for family, mine in zip(families, runs, strict=True)
    ]
    fitted = fit(blocks, priors(), start=start)
    return Steps(families=families, runs=runs, fitted=fitted, constants=constants, held=frozenset(held))


def publishers_errors(whole: Steps) -> tuple[float, float]:
    """Return the mean over publishers of their mean step-time error, in sample and with the publisher left out [1]."""
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
    """Yield name, count of constants and `publishers_errors` with each number held at its prior median, first with none held."""
    entries = step_entries(whole)
    for name in ("", *NUMBERS):
        tick(name or "all numbers")
        held = fit_families(whole.constants, whole.fitted, [name]) if name else whole
        count = sum(item.kind == "fit" and name in {"", item.name} for item in entries)
        yield name, count, *publishers_errors(held)


def step_entries(found: Steps) -> list[Constant]:
    """Return the constants of step times: common values, and factors of scopes that runs determine."""
    out = [_common(found, name) for name in NUMBERS]
    for name, p in NUMBERS.items():
        levels = [(one.architecture, p.architecture) for one in found.families]
        levels += [(one.lineage, p.lineage) for one in found.families]
        levels += [(one.scope, p.own) for one in found.families]
        told = (scope for scope, prior in dict.fromkeys(levels) if prior and _large_enough(found, name, scope, prior))
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
"""Least size of an effect, over its prior spread, for it to be kept [1]."""


def _large_enough(found: Steps, name: str, scope: str, prior: float) -> bool:
    """Return whether the effect of a scope on a number is large enough to keep."""
    place = found.fitted.places.get((scope, name))
    return place is not None and abs(found.fitted.values[place]) >= ADDS * prior


def _spread_of_number(found: Steps, name: str, architecture: str = "", lineage: str = "", own: str = "") -> float:
    """Return the standard deviation of a number's logarithm where only the given scopes are known [1]."""
    p = PLAUSIBLE[name]
    levels = ((architecture, p.architecture), (lineage, p.lineage), (own, p.own))
    unknown = sum(spread**2 for level, spread in levels if (level, name) not in found.fitted.places)
    return math.sqrt(found.fitted.variance(effects_of(name, lineage, architecture, own)) + unknown)


def _runs(found: Steps, scope: str = "any") -> tuple[int, str]:
    """Return the number of runs of a scope, and a source text with their publishers."""
    mine = [
        case
        for family, runs in zip(found.families, found.runs, strict=True)
        if scope in {"any", family.architecture, family.lineage, family.scope}
        for case in runs
    ]
    sources = dict.fromkeys(case.row["source_key"] for case in mine)
    return len(mine), f"step times of {', '.join(sources)}, fitted with all families at once"


def _common(found: Steps, name: str) -> Constant:
    """Return the common value of a number, a guess where no run determines it."""
    p, unit = NUMBERS[name], UNIT_OF.get(name, "1")
    if not found.fitted.told(("any", name), Prior(0.0, p.common)):
        why, strays = (
            "where kernel tables put it; no run tells it",
            math.hypot(p.common, p.architecture, p.lineage, p.own),
        )
        return entry("training", name, "any", p.middle, unit, strays or UNTOLD, 0, why, kind="guess")
    rows, source = _runs(found)
    value = p.middle * found.fitted.number(effects_of(name))
    return entry("training", name, "any", value, unit, _spread_of_number(found, name), rows, source)


UNTOLD = 0.3
"""Standard deviation of the logarithm of a number of which nothing is known; a guess [1]."""


def _factor(found: Steps, name: str, scope: str) -> Constant:
    """Return the factor of a scope on a number; its spread is that of the number in that scope."""
    family = next((one for one in found.families if one.scope == scope), None)
    if family is not None:
        strays = _spread_of_number(found, name, family.architecture, family.lineage, scope)
    elif scope in {one.architecture for one in found.families}:
        strays = _spread_of_number(found, name, architecture=scope)
    else:
        strays = _spread_of_number(found, name, lineage=scope)
    rows, source = _runs(found, scope)
    return entry("training", name, scope, found.fitted.number([(scope, name)]), RELATIVE, strays, rows, source)


def _network(found: Steps, family: Family, name: str) -> Constant:
    """Return the share of its network that a family's cluster attains."""
    rows, source = _runs(found, family.scope)
    effects = effects_of(name, own=family.scope)
    value, strays = (
        PLAUSIBLE[name].middle * found.fitted.number(effects),
        _spread_of_number(found, name, own=family.scope),
    )
    return entry("message", name, family.scope, value, "1", strays, rows, source)


EAGER_ENGINE = {"launch": ("kernel", "gap"), "host": ("engine_step", "base")}
"""Numbers of training that serving engines with launches from Python reuse: time between kernels, and host time per step."""

UNIT_OF = {"launch": "s", "ramp": "s", "host": "s"}


def belongs(case: TrainingCase, family: Family) -> bool:
    """Return whether a run has a measured rate and belongs to the family."""
    return (
        case.rate is not None
        and case.framework.id == family.framework
        and case.machine.device.architecture == family.architecture
        and case.layout.zero == (3 if case.framework.sharding == "fsdp" else min(case.layout.zero, 2))
    )


FULL = 0.97
"""Share of memory above which reserved memory is limited by the device and not used in the fit [1]."""


def fit_reserved(constants: Fit) -> list[Constant]:
    """Fit reserved over allocated memory of PyTorch's allocator, per framework whose publishers state reserved memory.

    The factor for late frees, which the catalogue states, is divided out.
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
"""Work of a step over its model FLOPs under full recomputation: two forward passes, and a backward pass of twice the work [1]."""


def fit_published_rates(constants: Fit) -> list[Constant]:
    """Fit the share of product rates in compiled steps on TPUs from published FLOP/s, without a plan of the models.

    The published rate includes all other parts of a step, so the share is a lower bound and no launches are added.
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
    """Return all constants of training, with those of step times from a given fit."""
    entries = step_entries(found)
    whole = Fit(
        (*(item for item in found.constants.constants if item.law != "training"), *entries), found.constants.excluded
    )
    return [
        *entries,
        *fit_untuned(whole),
        *fit_published_rates(found.constants),
        *fit_reserved(found.constants),
    ]


def fit_untuned(constants: Fit) -> list[Constant]:
    """Fit how much slower software is that only divides a model as a described framework does: the mean over its publishers.

    Parameters
    ----------
    constants : all others; any of these are left aside.

    Returns
    -------
    A factor for each framework with such runs, shrunk towards one, and one elsewhere [1].
    """
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    out = [_untuned("any", 1.0, UNTOLD, 0, "no run tells it")]
    others = (item for item in constants.constants if item.name != UNTUNED)
    plain = Fit((*others, *out), constants.excluded)
    for case in kept(cases(*(row["source_key"] for row in catalogue.training_rows())), constants):
        if case.framework.untuned and case.step_time is not None:
            a = ability(case.machine, case.framework, plain)
            late = math.log(case.step_time / float(step(case.model, case.job, case.layout, a).time))
            found[case.framework.name][case.row["source_key"]].append(late)
    for name, by_publisher in sorted(found.items()):
        medians = [float(np.median(each)) for each in by_publisher.values()]
        value, rows = math.exp(sum(medians) / (len(medians) + NOT_SLOWER)), sum(map(len, by_publisher.values()))
        source = f"step times of {', '.join(by_publisher)}, whose software divides a model as {name} does"
        out.append(_untuned(name, value, max(float(np.std(medians)), UNTOLD / 2.0), rows, source))
    return out


def _untuned(scope: str, value: float, strays: float, rows: int, source: str) -> Constant:
    return entry("training", UNTUNED, scope, value, "1", strays, rows, source, kind="fit" if rows else "guess")


NOT_SLOWER = 2.0
"""Publishers as slow as the profile that count besides those seen: a prior [1]."""
