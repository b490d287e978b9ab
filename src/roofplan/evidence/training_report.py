"""Errors of predicted step time and memory on published training runs, by source."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roofplan import catalogue
from roofplan.errors import RoofplanError, unwrap
from roofplan.evidence.predictions import validate_training
from roofplan.evidence.rows import Skipped
from roofplan.evidence.scoring import LEAST_SWEEP, rank_correlation
from roofplan.evidence.training import TrainingCase, training_case
from roofplan.records.calibration import Fit
from roofplan.training.certainty import step_certainty
from roofplan.training.ledger import fullest, ledgers
from roofplan.training.step import Step, step


@dataclass(frozen=True, slots=True)
class Scored:
    """A run with its prediction.

    Parameters
    ----------
    time : predicted over measured step time, None where not measured [1].
    memory : predicted over measured peak memory, None where not measured [1].
    factor : ratio of the interval's upper end to the predicted step time [1].
    """

    case: TrainingCase
    step: Step
    time: float | None
    memory: float | None
    factor: float

    @property
    def source(self) -> str:
        """Publisher of the run."""
        return self.case.row["source_key"]

    @property
    def single(self) -> bool:
        """Whether it ran on one host."""
        return self.case.machine.hosts == 1


def scored_runs(fit: Fit) -> tuple[list[Scored], Counter[tuple[str, str]]]:
    """Return the published runs that can be predicted, and the number of others by source and reason."""
    out, skipped = [], Counter[tuple[str, str]]()
    for row in catalogue.training_rows():
        try:
            out.append(score(training_case(row), fit))
        except (Skipped, RoofplanError) as reason:
            skipped[row["source_key"], str(reason)] += 1
    return out, skipped


def score(case: TrainingCase, fit: Fit) -> Scored:
    """Return a run with its prediction."""
    found = step(case.model, case.job, case.layout, case.ability(fit))
    time = None if case.step_time is None else float(found.time) / case.step_time
    memory = None if case.memory is None else predicted_memory(case, fit) / case.memory
    a = case.ability(fit)
    known = step_certainty(case.model, case.job, case.layout, a, found, case.unstated, case.doubts)
    return Scored(case, found, time, memory, math.exp(known.sure.half))


def predicted_memory(case: TrainingCase, fit: Fit) -> float:
    """Return the peak memory of the fullest stage, allocated or reserved as the publisher counts it [B]."""
    held = fullest(ledgers(case.model, case.job, case.layout, case.framework, fit))
    return float(held.reserved if case.memory_kind == "reserved" else held.allocated.value)


@dataclass(frozen=True, slots=True)
class Errors:
    """Absolute relative errors of a group of runs."""

    count: int
    mean: float
    median: float
    ninetieth: float
    bias: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Errors:
        """Return the errors for ratios of predicted over measured."""
        off = np.abs(np.asarray(ratios) - 1.0)
        return cls(
            len(off),
            float(off.mean()),
            float(np.median(off)),
            float(np.quantile(off, 0.9)),
            float(np.median(ratios)) - 1.0,
        )


def sweeps(runs: Sequence[Scored]) -> dict[tuple[str, str, str], tuple[int, float]]:
    """Return the number of runs of each sweep over layouts, and the rank correlation of predicted and measured rates."""
    groups: dict[tuple[str, str, str], list[Scored]] = defaultdict(list)
    for one in runs:
        if one.time is not None and one.source == "vtrain" and not one.single:
            row = one.case.row
            groups[row["model_name"], row["accelerators_total"], row["seq_len"]].append(one)
    found = {}
    for key, members in groups.items():
        if len(members) >= LEAST_SWEEP:
            measured = [unwrap(one.case.rate) for one in members]
            predicted = [rate / unwrap(one.time) for rate, one in zip(measured, members, strict=True)]
            found[key] = (len(members), rank_correlation(measured, predicted))
    return found


def out_of_memory(fit: Fit) -> tuple[int, int]:
    """Return the number of published out-of-memory runs, and how many of them are predicted to run out of memory."""
    rows = [row for row in catalogue.training_rows() if row["quality"] == "oom-row"]
    judged = validate_training(rows, fit).confusion()["out_of_memory"]
    return sum(judged.values()), judged["does_not_fit"]


WHY = {
    "fsdp-qlora": "two cards whose PCIe slots are not stated: sharded weights are gathered for every micro-batch, and at small ones nothing hides that",
    "megatron-bridge": "recipe settings that the table leaves out: captured graphs, recomputed modules, dropped tokens and the release differ under one layout",
    "vtrain": "outlier inside its own sweep: its neighbours by micro-batch take half as long, and the layout does not say why",
    "megatron-2021": "older than what its family was fitted on; its ZeRO-3 runs shard over thousands of ranks without overlap",
    "megatron-2020": "a V100 cluster of 2019, of which no other run fits constants",
    "torchtitan": "eager or compiled, chunks of the schedule and kind of fp8 are not part of a layout",
    "nemo-2407": "fine-tuning on packed sequences of one small model",
    "llm-foundry": "smallest models, bound by launches, and the longest sequences, on an attention kernel of 2023",
    "simumax-b200": "shapes of single products, which no table is kept of",
    "seqsel-2022": "within the noise of a measurement",
    "litgpt-a100": "longest sequence of the data set by tokenizer is not stated",
}
"""Known causes of the largest errors, by source."""


def _row(name: str, e: Errors) -> str:
    return f"| {name} | {e.count} | {e.mean:.1%} | {e.median:.1%} | {e.ninetieth:.1%} | {e.bias:+.1%} |"


TABLE = ["| runs | count | mean | median | 90th percentile | bias |", "|---|---:|---:|---:|---:|---:|"]


def page(fit: Fit) -> str:
    """Return ``docs/accuracy-training.md``."""
    runs, skipped = scored_runs(fit)
    lines = [
        "# How far training predictions stand from published runs",
        "",
        "Written by `make docs`. Every number is in sample where its framework and chip family was fitted (the fits stand in",
        "`catalogue/measured/fit-training.toml`, each with its runs and residuals, made by `roofplan.evidence.fits.training`); runs",
        "of families that were not fitted borrow. Constants are fitted over whole families, never to a row.",
        "",
        "## Step time",
        "",
        *TABLE,
    ]
    by: dict[str, list[Scored]] = defaultdict(list)
    for one in runs:
        by[one.source].append(one)
    for source, members in sorted(by.items()):
        times = [one.time for one in members if one.time is not None]
        if times:
            lines.append(_row(source, Errors.of(times)))
    for name, single in (("vtrain, several hosts", False), ("vtrain, one host", True)):
        lines.append(_row(name, Errors.of([one.time for one in by["vtrain"] if one.time and one.single is single])))
    lines += [
        "",
        "Others on the same runs: vTrain, which profiles every kernel, 14.7% mean on several hosts and 8.4% on one; calculon 19.7%",
        "and 39%, and 3.65% on seqsel-2022; SimuMax 5.6% on simumax-b200.",
        "",
        "## Memory",
        "",
        *TABLE,
    ]
    pooled: list[float] = []
    for source, members in sorted(by.items()):
        found = [one.memory for one in members if one.memory is not None]
        if found:
            lines.append(_row(source, Errors.of(found)))
            pooled += found if source != "simumax-b200" else []
    lines.append(_row("litgpt-a100, fsdp-qlora and torchtitan together", Errors.of(pooled)))
    seen, right = out_of_memory(fit)
    lines += [
        "",
        f"Published out-of-memory runs: {seen}, of which {right} are judged so. SimuMax reports 0.46% on simumax-b200.",
        "",
        "## Order inside a sweep",
        "",
        "| model | devices | runs | rank correlation | of the bubble alone |",
        "|---|---:|---:|---:|---:|",
    ]
    for (model, devices, sequence), (count, correlation) in sorted(sweeps(runs).items()):
        alone = bubble_alone(runs, model, devices, sequence)
        lines.append(f"| {model} | {devices} | {count} | {correlation:.2f} | {alone:.2f} |")
    lines += _targets(runs, by, pooled, (seen, right))
    worst = sorted((one for one in runs if one.time is not None), key=lambda one: -abs(unwrap(one.time) - 1.0))[:10]
    lines += [
        "",
        "## The ten worst",
        "",
        "| run | layout | measured | predicted | largest parts | why |",
        "|---|---|---:|---:|---|---|",
    ]
    lines += [_worst_row(one) for one in worst]
    lines += ["", "## What is not scored", "", "| source | reason | runs |", "|---|---|---:|"]
    lines += [f"| {source} | {reason} | {count} |" for (source, reason), count in sorted(skipped.items())]
    return "\n".join(lines)


def _targets(
    runs: Sequence[Scored], by: dict[str, list[Scored]], pooled: Sequence[float], judged: tuple[int, int]
) -> list[str]:
    """Return the tables of targets and results, and of coverage by source."""

    def times(source: str, single: bool | None = None) -> Errors:
        return Errors.of([one.time for one in by[source] if one.time and (single is None or one.single is single)])

    def held(source: str) -> Errors:
        return Errors.of([one.memory for one in by[source] if one.memory])

    several, found = times("vtrain", False), Errors.of(pooled)
    least = min(correlation for _, correlation in sweeps(runs).values())
    table = [
        ("step time, vtrain on several hosts, mean", several.mean, 0.06),
        ("step time, vtrain on several hosts, median", several.median, 0.023),
        ("step time, vtrain on one host, mean", times("vtrain", True).mean, 0.084),
        ("step time, seqsel-2022, mean", times("seqsel-2022").mean, 0.027),
        ("step time, simumax-b200, mean", times("simumax-b200").mean, 0.028),
        ("memory, simumax-b200, mean", held("simumax-b200").mean, 0.01),
        ("memory, litgpt-a100, fsdp-qlora and torchtitan, median", found.median, 0.05),
        ("memory, litgpt-a100, fsdp-qlora and torchtitan, 90th percentile", found.ninetieth, 0.15),
        *(
            (f"memory, {name} alone, median", held(name).median, 0.05)
            for name in ("litgpt-a100", "fsdp-qlora", "torchtitan")
        ),
        *(
            (f"memory, {name} alone, 90th percentile", held(name).ninetieth, 0.15)
            for name in ("litgpt-a100", "fsdp-qlora", "torchtitan")
        ),
    ]
    lines = ["", "## Aimed at, and reached", "", "| what | aim | found | |", "|---|---:|---:|---|"]
    lines += [
        f"| {name} | {aim:.1%} | {value:.1%} | {'reached' if value <= aim else 'missed'} |"
        for name, value, aim in table
    ]
    lines.append(
        f"| out-of-memory runs judged so | {judged[0]} | {judged[1]} | {'reached' if judged[0] == judged[1] else 'missed'} |"
    )
    lines.append(
        f"| rank correlation, the least of the sweeps | 0.85 | {least:.2f} | {'reached' if least >= 0.85 else 'missed'} |"
    )
    lines += [
        "",
        "The order inside GPT-39.1B is missed, and the bubble alone orders it better: seven of its runs, with tensor degrees 2 and 4 and",
        "16 or 32 copies, take 15 to 38% longer than the same layouts at other micro-batches, and a law of the bubble happens to",
        "put them last. Nothing that was tried explains them (`what-did-not-work.md`). fsdp_qlora's memory is what an allocator reserves;",
        "its runs with weights in host memory reserve up to a quarter more than the ledger gives.",
        "",
        "## Coverage of the intervals",
        "",
        "Shares of runs inside the printed 90% interval. Calibrated intervals hold their own family's 90th percentile, in sample.",
        "",
        "| source | step time |",
        "|---|---:|",
    ]
    for source, members in sorted(by.items()):
        inside = [_inside_interval(one) for one in members if one.time is not None]
        if inside:
            lines.append(f"| {source} | {sum(inside) / len(inside):.0%} |")
    return lines


def _inside_interval(one: Scored) -> bool:
    """Return whether a measured step time lies inside its predicted interval."""
    return 1.0 / one.factor <= unwrap(one.time) <= one.factor


def _worst_row(one: Scored) -> str:
    row, measured = one.case.row, unwrap(one.case.step_time)
    whole = float(one.step.time)
    parts = sorted(one.step.parts.items(), key=lambda item: -float(item[1]))[:2]
    said = ", ".join(f"{name} {float(seconds) / whole:.0%}" for name, seconds in parts)
    where = f"{row['accelerators_total']} x {row['accel_norm']}"
    return (
        f"| {row['id']}: {row['model_name']} on {where} | {one.case.layout.label()}, micro-batch {one.case.layout.micro_batch:g} |"
        f" {measured:.3g} s | {whole:.3g} s | {said} | {WHY.get(one.source, 'not known')} |"
    )


def bubble_alone(runs: Sequence[Scored], model: str, devices: str, sequence: str) -> float:
    """Return the rank correlation of measured rates with the pipeline bubble alone [1]."""
    chosen = [
        one
        for one in runs
        if one.time is not None
        and (one.case.row["model_name"], one.case.row["accelerators_total"], one.case.row["seq_len"])
        == (model, devices, sequence)
    ]
    busy = []
    for one in chosen:
        micro = float(one.step.micro_batches)
        busy.append(micro / (micro + one.case.layout.pp - 1.0))
    return rank_correlation([unwrap(one.case.rate) for one in chosen], busy)
