"""The page of errors with publishers left out of the fits: `docs/accuracy.md`."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from roofplan import catalogue
from roofplan.errors import unwrap
from roofplan.evidence.fits.hierarchy import LEAST_NOISE
from roofplan.evidence.fits.intervals import (
    AXES,
    CAUSES,
    LEAST_SOURCES,
    MEMBER,
    PUBLISHER,
    Width,
    by_figure,
    coverage,
    guaranteed,
    judged,
    redrawn,
)
from roofplan.evidence.fits.left_out import WORTH, kept_groups
from roofplan.evidence.fits.own import SETTLED, slowdown_of
from roofplan.evidence.fits.training import FAMILIES
from roofplan.evidence.rows import SHORT_OF_CACHE, Row, Skipped
from roofplan.evidence.scoring import ALONE, Outcome, Validation, outcomes_by_source, score, weighted_quantile
from roofplan.evidence.training import training_case
from roofplan.records.calibration import Fit
from roofplan.records.source import GRADES
from roofplan.timing.figures import (
    LOADS,
    MULTIPLES,
    PROMPTS,
    STEP,
    interval_factor,
    parted,
    sure,
)


@dataclass(frozen=True, slots=True)
class Job:
    """One kind of prediction, its rows and its targets.

    Parameters
    ----------
    keep : selects its outcomes.
    median, ninetieth : targets for the mean of publishers' medians and for the 90th percentile, None without one [1].
    others : errors of published predictors.
    picture : name of its picture, empty where it has none.
    """

    name: str
    keep: Callable[[Outcome], bool]
    median: float | None
    ninetieth: float | None
    others: str
    picture: str = ""


def _metric(name: str, *regimes: str) -> Callable[[Outcome], bool]:
    return lambda one: one.metric == name and (not regimes or one.regime in regimes)


def has_kin(one: Outcome) -> bool:
    """Return whether another publisher has runs of the same framework lineage and architecture as a training run."""
    lineage = catalogue.framework(one.software).lineage
    architecture = catalogue.accelerator(one.chip).architecture
    return any(
        family.lineage == lineage and family.architecture == architecture and set(family.sources) - {one.source}
        for family in FAMILIES
    )


STEPS = _metric("tokens_per_second_per_device")
"""Selects outcomes of step times."""

JOBS = (
    Job(
        "training step, tokens/s of a device",
        STEPS,
        None,
        None,
        "one constant utilisation a chip 21% median, 44% p90; vTrain, which profiles every kernel, 14.7% and 8.4% mean on its own runs; calculon 19.7% and 39%"
        " on them, 3.65% on seqsel-2022; SimuMax 5.6% on simumax-b200",
        "accuracy-step",
    ),
    Job(
        "training step, its code on its architecture has other runs",
        lambda one: STEPS(one) and has_kin(one),
        0.08,
        0.25,
        "as above",
    ),
    Job("training step elsewhere", lambda one: STEPS(one) and not has_kin(one), None, None, "as above"),
    Job("training memory", _metric("memory"), 0.03, 0.10, "SimuMax 0.46% mean on simumax-b200", "accuracy-memory"),
    Job(
        "decode, time per token of a known batch",
        _metric("tpot", *ALONE),
        0.12,
        0.35,
        "aiconfigurator with measured kernel tables 17%; one share of the bandwidth 20% at batch 1 alone",
        "accuracy-tpot",
    ),
    Job(
        "offline throughput",
        _metric("output_tokens_per_second", "offline", "static batch"),
        0.15,
        0.40,
        "none published",
        "accuracy-throughput",
    ),
    Job(
        "KV capacity, throughput where the cache is short",
        _metric("output_tokens_per_second", SHORT_OF_CACHE),
        0.20,
        None,
        "none published",
    ),
    Job(
        "prompts alone, tokens/s",
        _metric("prefill_tokens_per_second"),
        0.15,
        0.40,
        "none published",
        "accuracy-prefill",
    ),
    Job("prompts alone, time to the first token", _metric("ttft", "static batch"), None, None, "none published"),
    Job(
        "throughput under load",
        lambda one: (
            one.metric == "output_tokens_per_second" and one.regime not in {"offline", "static batch", SHORT_OF_CACHE}
        ),
        None,
        None,
        "none published",
    ),
    Job(
        "time per token under load",
        lambda one: one.metric == "tpot" and one.regime not in ALONE,
        None,
        None,
        "on vLLM runs of an H100: vidur 4%, BLIS 20%, LLMServingSim 22%, aiconfigurator 25%, llm-optimizer 56%, plain roofline 54%",
    ),
    Job("time per token, closed loop", _metric("tpot", "closed loop"), 0.15, None, "as above"),
    Job(
        "time to the first token under load",
        lambda one: one.metric == "ttft" and one.regime != "static batch",
        None,
        None,
        "on the same: BLIS 12%, vidur 14%, LLMServingSim 73%, llm-optimizer 619%, aiconfigurator 653%, plain roofline 279%",
    ),
)
"""Kinds of predictions, with targets; errors of other predictors are quoted from their authors or from comparisons."""


def page(outcomes: Sequence[Outcome], fit: Fit) -> str:
    """Return the scoreboard as Markdown."""
    # a number that is lent to other scopes is one number
    fits = {(item.law, item.name, item.value, item.rows) for item in fit.constants if item.kind == "fit"}
    lines = [
        "# Accuracy",
        "",
        "Written by `make docs` from predictions in which **every publisher's runs were predicted by constants that were fitted without them**",
        f"(`python -m roofplan.evidence.fits`, which also fits {len(fits)} numbers to measurements; the predictions stand in",
        "`catalogue/measured/left-out.csv`).",
        "Inputs are the model's dimensions, the chip's data sheet, the layout and the settings that a row states. `roofplan validate training -` and",
        "`roofplan validate inference -` print the same rows by the shipped constants, what was skipped, and why.",
        "",
        "*Mean of publishers* is the mean of their medians, a publisher of one run weighing as much as one of hundreds; *p90* is the 90th percentile of all errors, publishers",
        "weighted equally; *median of medians* is that of the publishers; *aim* is what was asked for before anything was predicted; the *floor* is one share of the data",
        "sheet for each chip, learned from the other publishers.",
        "",
        "What it is not: priors and laws were chosen by people who saw this page, so it is a validation and no test on runs that nobody had seen. Memory has few constants",
        "that are fitted: the ledgers of Megatron, LitGPT and torchtitan were written with their published peaks at hand.",
        "",
        "*In sample* is the mean of publishers by the shipped constants, which saw these rows: what is left there no constant of these laws explains, and no aim below",
        "it is in reach of fitting.",
        "",
        "| job | rows | publishers | mean of publishers | aim | p90 | aim | median of medians | in sample | |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for job in JOBS:
        rows = [one for one in outcomes if job.keep(one)]
        lines.append(_line(job, rows))
    left = kept_groups(fit)
    lines += ["", "## Chips and software that no constant saw", "", *_left_groups(left)] if left else []
    lines += ["", "## What one run of your own is worth", "", *_one_run(outcomes, fit)]
    lines += ["", "## Mixtures and dense models", "", *_mixtures(outcomes)]
    lines += ["", "## What each number of training is worth", "", *_worth_of_numbers()] if WORTH.exists() else []
    lines += ["", "## Intervals", "", *_intervals(outcomes, left, fit)]
    for job in JOBS:
        rows = [one for one in outcomes if job.keep(one)]
        lines += ["", f"## {job.name[0].upper()}{job.name[1:]}", "", f"Others: {job.others}.", ""]
        if job.picture:
            lines += [f"![{job.name}: predicted against measured](pictures/{job.picture}.png)", ""]
        lines += _sources(rows)
        if job.name.startswith("KV"):
            lines += ["", *_pairs(rows)]
        for title, of in (
            ("chip", lambda one: one.chip),
            ("software", lambda one: one.software),
            ("year", lambda one: one.year),
        ):
            lines += ["", *_groups(title, rows, of)]
        lines += ["", *_worst_rows(rows)]
    return "\n".join(lines)


def _left_groups(found: Sequence[Outcome]) -> Iterator[str]:
    """Yield the errors of runs with their chip or software left out of every fit."""
    yield "Each chip, or each software in all its versions, left out of every fit in turn, a chip's kernel tables too (`python -m roofplan.evidence.fits groups`),"
    yield f"over the {len({one.id for one in found}):,} runs that were in the tables when it was last done."
    yield ""
    yield "| figure | left out | groups | mean of medians | aim | p90 | aim |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    groups: dict[tuple[str, str], dict[str, list[float]]] = {}
    for figure, axis, _ in LEFT:
        mine: dict[str, list[float]] = defaultdict(list)
        for one in found:
            if (one.figure, one.left_out) == (figure, axis):
                mine[MEMBER[axis](one)].append(one.ratio - 1.0)
        groups[figure, axis] = dict(sorted(mine.items()))
    for figure, axis, aims in LEFT:
        errors = [np.abs(each) for each in groups[figure, axis].values()]
        weights = np.concatenate([np.full(len(each), 1.0 / len(each)) for each in errors])
        high = weighted_quantile(np.concatenate(errors), weights, 0.9)
        middle = float(np.mean([np.median(each) for each in errors]))
        yield f"| {figure} | {axis} | {len(errors)} | {middle:.1%} | {aims[0]} | {high:.0%} | {aims[1]} |"
    for figure, axis, _ in LEFT:
        yield ""
        yield f"| {figure}, {axis} left out | rows | median | p90 | predicted / measured |"
        yield "|---|---:|---:|---:|---:|"
        for name, signed in groups[figure, axis].items():
            size = np.abs(signed)
            yield f"| {name} | {len(signed)} | {np.median(size):.1%} | {np.quantile(size, 0.9):.0%} | {1.0 + np.median(signed):.2f} |"


LEFT = ((STEP, "software", ("12%", "35%")), (STEP, "chip", ("12%", "35%")), (PROMPTS, "chip", ("25%", "")))
"""Figure, what is left out, and the targets for median and 90th percentile."""


def _one_run(outcomes: Sequence[Outcome], fit: Fit) -> Iterator[str]:
    """Yield errors and intervals of publishers' runs, and those after one run of each device told its slowdown."""
    yield "One run behind `roofplan calibrate --with` moves all times of its device under its software, by the share of its error which runs there have in common, and narrows"
    yield "intervals by what it told. Here each run corrects the publisher's other runs on the device, by constants that were fitted without the publisher; devices weigh equally,"
    yield "and not all of them gain. *Width* is the median high over low, *inside* the share of measurements within."
    models = {
        row["id"]: _model_of(row) for table in (catalogue.training_rows(), catalogue.inference_rows()) for row in table
    }
    for title, others in (("its other runs", False), ("its runs of other models", True)):
        yield ""
        yield f"| {title} | devices | mean error | with one run | median | with one run | width | with one run | inside | with one run |"
        yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
        for job in JOBS:
            if "first token" in job.name:  # no first token tells a slowdown
                continue
            devices: dict[tuple[str, str, str], list[Outcome]] = defaultdict(list)
            for one in outcomes:
                if job.keep(one) and one.predicted is not None and one.metric != "memory":
                    devices[one.source, one.chip, one.software].append(one)
            found = [_told_by_one(rows, fit, models if others else {}) for rows in devices.values()]
            table = np.array([each for each in found if each is not None])
            if len(table) < LEAST_SOURCES:
                continue
            error, inside, half = np.moveaxis(table, 2, 0)
            cells = [
                *(f"{value:.1%}" for value in (*np.mean(error, axis=0), *np.median(error, axis=0))),
                *(f"{value:.1f}" for value in np.exp(2.0 * np.median(half, axis=0))),
                *(f"{value:.0%}" for value in np.mean(inside, axis=0)),
            ]
            yield f"| {job.name} | {len(table)} | {' | '.join(cells)} |"


def _model_of(row: Row) -> str:
    """Return the name of a row's model, as far as it tells models apart."""
    return (row.get("hf_model_id") or row["model_name"]).lower()


def _told_by_one(rows: Sequence[Outcome], fit: Fit, models: Mapping[str, str]) -> tuple[Sums, Sums] | None:
    """Return mean error, share inside and median half of intervals [1] of a device's runs, as predicted and as another run tells.

    With `models` only runs of another model tell; None without any.
    """
    plain, told = [], []
    for known in rows:
        assert known.predicted is not None
        noise, prior = parted(known.predicted)
        factor, left = slowdown_of({"": [(-math.log(known.ratio), max(noise, LEAST_NOISE))]}, prior)
        settled = left.left <= SETTLED * prior
        for one in rows:
            if one is known or (models and models[one.id] == models[known.id]):
                continue
            assert one.predicted is not None
            assert one.predicted.doubt is not None
            half = math.log(one.predicted.high / one.predicted.low) / 2.0
            plain.append((one.error, one.covered, half))
            if settled:
                ratio = one.ratio * factor
                half = sure(one.figure, one.predicted.grade, one.predicted.doubt._replace(told=left), fit).half
                told.append((abs(ratio - 1.0), abs(math.log(ratio)) <= half, half))
            else:
                told.append(plain[-1])
    return (_sums(plain), _sums(told)) if plain else None


Sums = tuple[float, float, float]


def _sums(found: Sequence[tuple[float, bool, float]]) -> Sums:
    """Return the mean error, the share inside and the median half of intervals [1]."""
    error, inside, half = np.array(found, dtype=float).T
    return float(np.mean(error)), float(np.mean(inside)), float(np.median(half))


def _worth_of_numbers() -> Iterator[str]:
    """Yield the errors of step times with a number of training held at its prior."""
    yield "Mean over publishers of the mean error of their step times, by the fit that saw them and by fits without them, where a number stays where kernel tables put it"
    yield "and all others are fitted anew (`python -m roofplan.evidence.fits worth`); constants are its common value and the factors that architectures, frameworks' code and"
    yield "families add of which runs tell."
    yield ""
    yield "| without | constants | seen | left out |"
    yield "|---|---:|---:|---:|"
    with WORTH.open(newline="") as file:
        for name, count, seen, unseen in csv.reader(file):
            yield f"| {name or 'none'} | {count} | {float(seen):.1%} | {float(unseen):.1%} |"


def _mixtures(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield the median ratios of predicted over measured for mixtures and dense models in training, publishers left out.

    Publishers weigh equally; the bounds of their median are bootstrapped over them.
    """
    mixed = {row["id"] for row in catalogue.training_rows() if _is_mixture(row)}
    rows = [one for one in outcomes if STEPS(one) and one.predicted is not None]
    yield "| training step, publisher left out | publishers | predicted / measured, middle publisher | 90% over publishers | rows | middle row |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, kept in (("mixtures", True), ("dense models", False)):
        mine = [one for one in rows if (one.id in mixed) is kept]
        if not mine:
            continue
        each = [float(np.median([one.ratio for one in several])) for several in outcomes_by_source(mine).values()]
        low, high = redrawn(each, np.median)
        middle = np.median([one.ratio for one in mine])
        yield f"| {name} | {len(each)} | {np.median(each):.2f} | {low:.2f} to {high:.2f} | {len(mine)} | {middle:.2f} |"


def _is_mixture(row: Row) -> bool:
    """Return whether a training run is of a mixture of experts."""
    try:
        return bool(training_case(row).model.experts)
    except Skipped:
        return False


def _line(job: Job, rows: Sequence[Outcome]) -> str:
    found = score(rows)
    if found is None:
        return f"| {job.name} | 0 | | | | | | | | |"
    aims = [None if aim is None else f"{aim:.0%}" for aim in (job.median, job.ninetieth)]
    reached = [
        value <= aim for value, aim in ((found.macro, job.median), (found.p90, job.ninetieth)) if aim is not None
    ]
    verdict = "" if not reached else "reached" if all(reached) else "median reached" if reached[0] else "missed"
    return (
        f"| {job.name} | {found.rows} | {found.sources} | {found.macro:.1%} | {aims[0] or ''} | {found.p90:.0%} | {aims[1] or ''} |"
        f" {found.middle:.1%} | {_in_sample(rows):.1%} | {verdict} |"
    )


def _in_sample(rows: Sequence[Outcome]) -> float:
    """Return the mean of publishers' median errors by the shipped constants [1]."""
    by = outcomes_by_source([one for one in rows if one.shipped is not None])
    errors = [[abs(unwrap(one.shipped) / one.measured - 1.0) for one in mine] for mine in by.values()]
    return float(np.mean([np.median(found) for found in errors]))


def _intervals(outcomes: Sequence[Outcome], left: Sequence[Outcome], fit: Fit) -> Iterator[str]:
    """Yield the sizes of the causes of error, the widths of intervals, and their coverage of members left out."""
    figures, groups = by_figure(outcomes), by_figure(left)
    yield "How an interval is made is told in [intervals.md](intervals.md). Causes of error, one standard deviation each; *constants* is a multiple of what the constants of an"
    yield "answer leave, *near capacity* one of what a queue adds where all steps take a fifth longer or shorter, *front end*"
    yield "one of its part of a first token. *Factor* is how many spreads a 90% interval spans either"
    yield "way; by *ranks* alone a new publisher would get the factor beside it (Dunn, Wasserman and Ramdas 2023, whose theorem asks for spreads that nobody learned from the same"
    yield "runs), none with fewer than nine publishers."
    yield ""
    yield f"| figure | runs of | {' | '.join(CAUSES)} | factor | by ranks | |"
    yield f"|---|{'---:|' * (len(CAUSES) + 3)}---|"
    for figure, rows in sorted(figures.items()):
        sizes = {name: item.value for name in CAUSES if (item := fit.get("spread", f"{figure}, {name}", "any"))}
        count, factor = len(outcomes_by_source(rows)), interval_factor(figure, fit)
        claim = "" if count >= LEAST_SOURCES else f"fewer than {LEAST_SOURCES} publishers: no coverage is claimed"
        most = guaranteed(rows, Width(sizes=sizes, factor=factor))
        each = [f"{sizes[name]:.{'2f' if name in MULTIPLES else '0%'}}" if name in sizes else "" for name in CAUSES]
        yield f"| {figure} | {count} | {' | '.join(each)} | {factor:.2f} | {'none' if np.isinf(most) else f'{most:.2f}'} | {claim} |"
    yield ""
    yield "*Held* is the share of measurements inside 90% intervals whose sizes, factor and enlargement the others gave, members weighing equally, in brackets nine of ten"
    yield "redraws of the members; the *score* is the logarithmic interval score (Gneiting and Raftery 2007), the less the better. Judged are widths before a data sheet cuts them."
    yield ""
    yield "| figure | left out | which | members | runs | held | high over low, median | score |"
    yield "|---|---|---|---:|---:|---:|---:|---:|"
    by_publisher = {}
    for figure, rows in sorted(figures.items()):
        for axis in AXES:
            mine = judged(rows, groups.get(figure, []), axis, catalogue.blind_rows())
            if axis == PUBLISHER:
                by_publisher[figure] = mine
            kinds = INPUTS if axis == PUBLISHER else INPUTS[:1]
            for said, keep in kinds:
                found = coverage(mine, keep)
                if found is not None and (said == "all" or found.rows < len(rows)):
                    held = f"{found.share:.0%} [{found.low:.0%}, {found.high:.0%}]"
                    yield f"| {figure} | {axis} | {said} | {found.members} | {found.rows} | {held} | {found.width:.1f} | {found.score:.2f} |"
    yield ""
    yield "By the grade that a prediction was given without its publisher's rows:"
    yield ""
    yield "| figure | grade | publishers | runs | held | high over low, median |"
    yield "|---|---|---:|---:|---:|---:|"
    for figure, mine in by_publisher.items():
        for grade in GRADES:
            found = coverage(mine, lambda one, g=grade: one.predicted is not None and one.predicted.grade == g)  # type: ignore[misc]
            if found is not None:
                yield f"| {figure} | {grade} | {found.members} | {found.rows} | {found.share:.0%} | {found.width:.1f} |"


INPUTS: tuple[tuple[str, Callable[[Outcome], bool]], ...] = (
    ("all", lambda _: True),
    ("stated", lambda one: not one.assumed),
    ("assumed", lambda one: bool(one.assumed)),
    ("systems with runs", lambda one: _newness(one) == ""),
    ("new systems", lambda one: _newness(one) == "system"),
    ("new kinds", lambda one: _newness(one) == "kind"),
    ("batch measured, or one client", lambda one: _load(one) not in LOADS),
    *((load, lambda one, load=load: _load(one) == load) for load in LOADS),
)
"""Groups of runs by whether inputs were assumed, by how new the system is, and by load."""


def _newness(one: Outcome) -> str:
    return one.predicted.doubt.new if one.predicted is not None and one.predicted.doubt is not None else ""


def _load(one: Outcome) -> str:
    return one.predicted.doubt.load if one.predicted is not None and one.predicted.doubt is not None else ""


def _sources(rows: Sequence[Outcome]) -> Iterator[str]:
    floors: dict[str, float] = {}
    for metric in {one.metric for one in rows}:
        floors |= Validation(kind="", rows=len(rows), outcomes=list(rows)).floor(metric)
    yield "| publisher | rows | median | p90 | predicted / measured | floor |"
    yield "|---|---:|---:|---:|---:|---:|"
    for source, mine in outcomes_by_source(rows).items():
        floor = f"{floors[source]:.0%}" if source in floors else ""
        yield f"| {source} | {_errors(mine)} | {floor} |"


def _pairs(rows: Sequence[Outcome]) -> Iterator[str]:
    """Yield measured and predicted speed-ups between runs that differ only in their device's memory."""
    table = {row["id"]: row for row in catalogue.inference_rows()}
    groups: dict[tuple[str, ...], list[Outcome]] = defaultdict(list)
    for one in rows:
        groups[tuple(table[one.id][name] for name in ALIKE)].append(one)
    yield "| runs alike but for their device's memory | measured ratio | predicted ratio | off by |"
    yield "|---|---:|---:|---:|"
    for key, found in groups.items():
        found.sort(key=lambda one: catalogue.accelerator(one.chip).room)
        for small, large in pairwise(found):
            measured, predicted = (
                large.measured / small.measured,
                large.ratio * large.measured / (small.ratio * small.measured),
            )
            what = f"{key[1]}, {key[-2]} in, {key[-1]} out: {large.chip} over {small.chip}"
            yield f"| {what} | {measured:.2f} | {predicted:.2f} | {abs(predicted / measured - 1.0):.0%} |"


ALIKE = ("source_key", "model_name", "count", "tp", "pp", "weight_precision", "kv_precision", "input_len", "output_len")
"""Columns in which runs agree that differ only in their device."""


def _errors(rows: Sequence[Outcome]) -> str:
    errors = [one.error for one in rows]
    bias = float(np.median([one.ratio for one in rows]))
    return f"{len(rows)} | {float(np.median(errors)):.1%} | {float(np.quantile(errors, 0.9)):.0%} | {bias:.2f}"


def _groups(title: str, rows: Sequence[Outcome], of: Callable[[Outcome], str]) -> Iterator[str]:
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for one in rows:
        groups[of(one)].append(one)
    yield f"| {title} | rows | median | p90 | predicted / measured |"
    yield "|---|---:|---:|---:|---:|"
    for name, mine in sorted(groups.items()):
        yield f"| {name} | {_errors(mine)} |"


WORST = 5
"""Worst rows of a job that are listed [1]."""

REASONS = {
    "xiongjiedai-llamacpp": "A100 and H100 reach less of their rate at 512 rows than other cards; some hosts of four cards are slower than their card alone",
    "ml-energy": "the only publisher of recent vLLM with known batches: its host time and its experts' bandwidth are borrowed",
    "gpustack-perf-lab": "bursts: lengths and the client's own limits are not stated; single H100s compute at half the rate of others'",
    "nvidia-gap-runs": "some runs state a prompt rate near the peak, as with cached prefixes; kept out of every fit",
    "dstack-h100-mi300x": "arrivals above what the server takes: how long the queue grew is not stated",
    "megatron-bridge": "recipe settings that the table leaves out: captured graphs, recomputed modules, dropped tokens",
    "fsdp-qlora": "two cards whose slots are not stated; nothing else fine-tunes quantised weights under FSDP",
    "simumax-b200": "the only runs of its framework on its chip",
    "llm-foundry": "its smallest models are bound by launches, which its kin make slower; its longest sequences by an attention kernel of 2023",
    "torchtitan": "eager or compiled, and the kind of fp8, are not part of a layout",
    "splitwise-sim": "more than 2,048 prompt tokens on 4 and 8 devices of an engine of 2023, where its rate halves",
}
"""Known causes of a publisher's largest errors."""

BUS = "cards on a bus, whose peers reach each other at a rate of the server, not of the card"


def _reason(one: Outcome) -> str:
    """Return the known cause of a large error."""
    alone = catalogue.accelerator(one.chip).scale_up is None
    return REASONS.get(one.source, BUS if alone else "not known")


def _worst_rows(rows: Sequence[Outcome]) -> Iterator[str]:
    yield "| the worst | measured | predicted | ratio | why |"
    yield "|---|---:|---:|---:|---|"
    for one in sorted(rows, key=lambda one: -abs(np.log(one.ratio)))[:WORST]:
        p = one.predicted
        if p is not None:
            where = f"{one.id}, {one.chip}, {one.software}"
            yield f"| {where} | {one.measured:.3g} | {p.value:.3g} {p.unit} | {one.ratio:.2f} | {_reason(one)} |"
