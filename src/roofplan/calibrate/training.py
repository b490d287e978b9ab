"""What training software adds to the kernels' rates: collectives of NCCL, launches, host time, spread; and what its allocator reserves.

Kernel tables anchor products, attention and collectives; published runs of one framework era on one family of devices fit
the few numbers that are left, over the whole family at once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roofplan import catalogue
from roofplan.calibrate.fitting import Excluded, affine, entry, spread
from roofplan.calibrate.kernels import kernel_rows
from roofplan.catalogue.machines import machine as machine_of
from roofplan.economics.uncertainty import Z90
from roofplan.laws import collectives
from roofplan.operations.activations import LOW_PRECISION
from roofplan.records.engine import EAGER as FROM_PYTHON
from roofplan.timing import CACHES, constant, rates
from roofplan.train.communication import wires
from roofplan.train.ledger import fullest, ledgers
from roofplan.train.step import TIMES, Ability, applied, step
from roofplan.validation.rows import Skipped
from roofplan.validation.training import Cluster, TrainingCase, cluster, training_case

LARGE_MESSAGE = 2**22
"""Bytes from which a message is like those of training [B]."""


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


def _large_messages() -> tuple[dict[str, list[tuple[str, float, float]]], list[float]]:
    """Return published large collectives on switched NVLink: per law (architecture, ideal seconds, measured ones); and shares across hosts."""
    rows: dict[str, list[tuple[str, float, float]]] = defaultdict(list)
    across = []
    for row in kernel_rows():
        if row["kernel"] != "collective" or not row["latency_us"] or float(row["message_bytes"] or 0.0) < LARGE_MESSAGE:
            continue
        size, count, seconds = float(row["message_bytes"]), int(row["count"]), float(row["latency_us"]) * 1e-6
        device = catalogue.accelerator(row["device"])
        rate, link = device.value("link_bandwidth"), device.scale_up or ""
        if rate is None or not link.startswith("nvlink") or "bridge" in link:
            continue
        inside = count <= device.domain
        volume = float(collectives.ring_volume_factor(count)) * size
        if row["op"] == "all_reduce" and inside:
            rows["all_reduce"].append((device.architecture, volume / rate, seconds))
        elif row["op"] == "all_reduce" and size >= LARGEST_MESSAGE:
            across.append(volume / seconds / (NETWORK_OF_BENCHMARK * device.domain))
        elif row["op"] in {"all_gather", "reduce_scatter", "alltoall"} and inside:
            rows["gather"].append((device.architecture, (count - 1) / count * size / rate, seconds))
    return rows, across


def fit_nccl() -> list[dict[str, Any]]:
    """Fit the wire shares of NCCL's large messages on switched NVLink, per architecture, and their common start-up; and of networks."""
    rows, across = _large_messages()
    source = "NCCL tables: aiconfigurator-core 0.12.0 (PyPI), ml-engineering; messages from 4 MiB"
    out = []
    for name, found in rows.items():
        base, shares = affine(found, 2e-5)
        for architecture, (share, deviation, count) in sorted(shares.items()):
            out.append(entry("nccl", name, f"switch/{architecture}", share, "1", deviation, count, source))
        middle = float(np.median([share for share, _, _ in shares.values()]))
        count, deviation = len(found), spread(share for share, _, _ in shares.values())
        out.append(entry("nccl", name, "any", middle, "1", deviation, count, source, "median of the architectures"))
        if name == "all_reduce":
            out.append(entry("nccl", "base", "any", base, "s", deviation, count, source))
    share = float(np.median(across))
    note = "all-reduce over four hosts of eight B200, 400 Gb/s for each"
    out.append(entry("nccl", "network", "any", min(share, 1.0), "1", spread(across), len(across), source, note))
    note = "a guess: rings of several ranks in a host share its ports evenly"
    return [*out, entry("nccl", "shared", "any", 1.0, "1", 0.2, 0, note)]


LARGEST_MESSAGE = 2**28
"""Bytes from which a collective over hosts is at its full rate [B]."""

NETWORK_OF_BENCHMARK = 50e9
"""Network rate one way of each device in the published all-reduce over several hosts, 400 Gb/s [B/s]."""


@dataclass(frozen=True, slots=True)
class Family:
    """One framework era on one architecture, the publishers whose runs fit it, and what is fitted, with where the search starts."""

    framework: str
    architecture: str
    sources: tuple[str, ...]
    start: dict[str, float]


EAGER = {
    "compute": 0.98,
    "memory": 1.4,
    "launch": 4.3e-5,
    "ramp": 1.8e-5,
    "network": 0.89,
    "shared": 0.21,
    "sigma": 0.003,
}
TUNED = {
    "compute": 0.9,
    "memory": 0.8,
    "attention": 0.9,
    "launch": 1.5e-5,
    "ramp": 1.2e-5,
    "host": 0.01,
    "sigma": 0.003,
}
LOW = {**TUNED, "compute8": 1.3}
UNFITTED = {"compute8": 1.0, "attention": 1.0, "update": 1.0, "host": 1e-9, "sigma": 1e-9}
"""What a family leaves unfitted, at the value that the fit of the rest assumed."""

FAMILIES = (
    Family("megatron-lm-3.0", "Ampere", ("vtrain", "seqsel-2022"), EAGER),
    Family("megatron-core-0.16", "Blackwell", ("simumax-b200",), {**TUNED, "update": 0.5}),
    Family("megatron-bridge-0.2", "Hopper", ("megatron-bridge",), LOW),
    Family("megatron-bridge-0.2", "Blackwell", ("megatron-bridge",), LOW),
    Family("megatron-bridge-0.2", "Blackwell Ultra", ("megatron-bridge",), LOW),
    Family("megatron-core-0.8", "Hopper", ("nemo-2407",), LOW),
    Family("torchtitan-0.1", "Hopper", ("torchtitan",), LOW),
    Family("llm-foundry-0.3", "Ampere", ("llm-foundry",), TUNED),
    Family("llm-foundry-0.3", "Hopper", ("llm-foundry",), LOW),
    Family("fsdp-qlora-1.0", "Ampere", ("fsdp-qlora",), TUNED),
    Family("fsdp-qlora-1.0", "Ada", ("fsdp-qlora",), TUNED),
)
"""What is fitted together; few numbers, each with a physical meaning, over all runs of a family at once."""

BOUNDS = {
    "compute": (0.5, 1.0),
    "compute8": (0.5, 1.6),
    "memory": (0.25, 1.5),
    "attention": (0.25, 1.3),
    "network": (0.3, 1.0),
    "shared": (0.1, 1.0),
    "ramp": (0.5e-6, 30e-6),
    "launch": (1e-6, 100e-6),
}
"""Between what a share over the kernel tables' rate, or the start of a kernel, can physically lie; beyond, another law is missing."""

PRIOR = 0.05
"""Weight, in runs, of the squared logarithm of each number over its start: what few runs speak of stays where the kernel tables put it."""


def with_values(case: TrainingCase, p: dict[str, float]) -> Ability:
    """Return what a case's machine attains by the kernel tables alone, with fitted numbers put in."""
    a = bare(case)
    w = a.wires
    if a.machine.network is not None and "network" in p:
        w = replace(w, outside=(a.machine.network_per_device or 1.0) * p["network"], shared=p.get("shared", w.shared))
    times: dict[str, Any] = {name: p[name] for name in TIMES if name in p}
    return applied(replace(a, wires=w, **times), p)


_BARE: dict[Cluster, Ability] = {}
CACHES.append(_BARE)


def bare(case: TrainingCase) -> Ability:
    """Return what a case's machine attains with no share of its framework's."""
    key = cluster(case.machine, case.framework)
    if key not in _BARE:
        r = rates(case.machine, case.framework)
        found = {name: UNFITTED.get(name, 0.0) for name in TIMES}
        _BARE[key] = Ability(
            rates=r,
            wires=wires(r, case.framework),
            framework=case.framework,
            update=r.bandwidth["memory"],
            sources={},
            **found,
        )
    return _BARE[key]


def predicted(case: TrainingCase, p: dict[str, float]) -> float:
    """Return the seconds of a step of a case with fitted numbers put in."""
    return float(step(case.model, case.job, case.layout, with_values(case, p)).time)


def fit_steps() -> list[dict[str, Any]]:
    """Fit each family's shares, launch, ramp, host time and spread by the mean error of its runs, robustly; and what others borrow."""
    out = [item for family in FAMILIES for item in family_entries(family, family.sources)]
    return [*out, *lent_entries(out)]


def scope_of(family: Family) -> str:
    """Return the scope of a family's constants."""
    return f"{family.framework}/{family.architecture}"


def family_entries(family: Family, sources: Sequence[str]) -> list[dict[str, Any]]:
    """Return the constants of a family, fitted on the runs of some of its publishers."""
    out = []
    runs = [case for case in cases(*sources) if belongs(case, family)]
    values, errors = fit_family(family, runs)
    source = f"step times of {', '.join(sources)}"
    note = f"in sample: mean error {np.mean(np.abs(errors)):.1%}, median {np.median(np.abs(errors)):.1%}"
    deviation = float(np.quantile(np.abs(np.log1p(errors)), 0.9)) / Z90
    scope = scope_of(family)
    for name, value in values.items():
        if name == "compute" and not any(_wide(case) for case in runs):
            continue
        law, unit = LAW_OF.get(name, "training"), UNIT_OF.get(name, "1")
        out.append(entry(law, name, scope, value, unit, deviation, len(runs), source, note))
    for name in sorted(UNFITTED.keys() - values.keys()):
        value, unit = UNFITTED[name], UNIT_OF.get(name, "1")
        out.append(entry("training", name, scope, value, unit, deviation, 0, "definition", "not fitted on this family"))
    return out


def lent_entries(fitted: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what frameworks and architectures without runs borrow: medians over the families that have some."""
    found: dict[tuple[str, str], list[tuple[float, str]]] = defaultdict(list)
    for item in fitted:
        if item["law"] != "training" or not item["rows"]:
            continue  # a cluster's network says nothing of another's
        framework, _, architecture = item["scope"].partition("/")
        for lent in (f"{catalogue.framework(framework).lineage}/{architecture}", architecture, "any"):
            found[item["name"], lent].append((item["value"], item["scope"]))
    out = []
    for (name, lent), lenders in found.items():
        values = [value for value, _ in lenders]
        source = f"median of the fits of {', '.join(scope for _, scope in lenders)}"
        wide, note = max(spread(values), LEAST_SPREAD), "borrowed by what has no runs"
        unit, middle = UNIT_OF.get(name, "1"), float(np.median(values))
        out.append(entry("training", name, lent, middle, unit, wide, len(values), source, note))
        if lent == "any" and name in EAGER_ENGINE:
            law, its_name = EAGER_ENGINE[name]
            out.append(
                entry(
                    law,
                    its_name,
                    FROM_PYTHON,
                    middle,
                    unit,
                    wide,
                    len(values),
                    source,
                    "eager PyTorch, as training runs it",
                )
            )
    lent_names = {name for name, lent in found if lent == "any"}
    for name in sorted(UNFITTED.keys() - lent_names):
        unit, source = UNIT_OF.get(name, "1"), "guess: no family has runs that it was fitted on"
        out.append(entry("training", name, "any", UNFITTED[name], unit, LEAST_SPREAD, 0, source))
    return out


EAGER_ENGINE = {"launch": ("kernel", "gap"), "host": ("engine_step", "base")}
"""What an engine that launches every kernel from Python takes over from training: seconds between kernels, and of the host per step."""


LEAST_SPREAD = 0.1
"""Spread of a borrowed number whose lenders are too few to tell [1]."""

LAW_OF = {"network": "nccl", "shared": "nccl"}
UNIT_OF = {"launch": "s", "ramp": "s", "host": "s"}


def belongs(case: TrainingCase, family: Family) -> bool:
    """Return whether a run has a rate and is of the family."""
    return (
        case.rate is not None
        and case.framework.id == family.framework
        and case.machine.device.architecture == family.architecture
        and case.layout.zero == (3 if case.framework.sharding == "fsdp" else min(case.layout.zero, 2))
    )


def _wide(case: TrainingCase) -> bool:
    """Return whether a run's products are in 16 bits, without which their share cannot be told from the rest."""
    return case.job.precision not in LOW_PRECISION


def highest_share(architecture: str) -> float:
    """Return how far products may exceed the kernel tables' share of an architecture: to its best measured product."""
    table, _ = constant("matmul", "share.bf16", [architecture, "any"])
    best = [
        device.measured["bf16"].value / device.peak["bf16"].value
        for device in map(catalogue.accelerator, catalogue.ids("accelerators"))
        if device.architecture == architecture and "bf16" in device.measured and "bf16" in device.peak
    ]
    return max(best, default=BEST_SHARE) / table.value


BEST_SHARE = 0.85
"""Share of the dense peak that the best product of an architecture reaches where none was published: H100 0.80, A100 0.86 [1]."""


def fit_family(family: Family, runs: Sequence[TrainingCase]) -> tuple[dict[str, float], list[float]]:
    """Return the fitted numbers of a family and the relative errors that remain."""
    from scipy.optimize import minimize

    names = [name for name in family.start if name != "compute" or any(_wide(case) for case in runs)]
    bounds = {**BOUNDS, "compute": (BOUNDS["compute"][0], highest_share(family.architecture))}
    start = np.log([family.start[name] for name in names])

    def values(logs: Sequence[float]) -> dict[str, float]:
        return family.start | dict(zip(names, np.exp(logs).tolist(), strict=True))

    def loss(logs: Sequence[float]) -> float:
        p = values(logs)
        off = [min(abs(math.log(predicted(case, p) / (case.step_time or 1.0))), LARGEST_ERROR) for case in runs]
        out = sum(
            max(0.0, math.log(p[name] / high)) + max(0.0, math.log(low / p[name]))
            for name, (low, high) in bounds.items()
            if name in p
        )
        return float(np.mean(off)) + out + PRIOR / len(runs) * float(np.sum((np.asarray(logs) - start) ** 2))

    simplex = np.vstack([start, start + 0.25 * np.eye(len(start))])
    options = {"maxfev": EVALUATIONS, "initial_simplex": simplex, "xatol": 3e-3, "fatol": 1e-5, "adaptive": True}
    best = minimize(loss, start, method="Nelder-Mead", options=options)
    p = values(best.x)
    return p, [predicted(case, p) / (case.step_time or 1.0) - 1.0 for case in runs]


LARGEST_ERROR = 0.6
"""Error from which a run counts no more, so that a broken one does not bend the fit."""

EVALUATIONS = 400
"""Evaluations of the search, enough for its errors to stand still in the third digit."""


def fit_reserved(excluded: Excluded = frozenset()) -> list[dict[str, Any]]:
    """Fit what PyTorch's allocator reserves over what tensors take, per framework whose publishers state reserved memory."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for case in cases(*(name for name in ("torchtitan", "fsdp-qlora") if name not in excluded)):
        if case.memory is not None and case.memory_kind == "reserved":
            held = fullest(ledgers(case.model, case.job, case.layout, case.framework))
            ratios[case.framework.name].append(case.memory / float(held.allocated.value))
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


def fit_published_rates() -> list[dict[str, Any]]:
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
            shares.append(work / rates(machine, framework).compute["bf16"])
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
    for name in ("launch", "ramp", "host", "sigma"):
        unit = UNIT_OF.get(name, "1")
        out.append(
            entry("training", name, scope, 1e-9, unit, spread(shares), 0, "definition", "inside the published rate")
        )
    return out


def fit_training() -> list[dict[str, Any]]:
    """Return all constants of training."""
    return [*fit_nccl(), *fit_steps(), *fit_published_rates(), *fit_reserved()]
