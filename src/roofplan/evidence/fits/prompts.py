"""Fit how fast an engine computes prompts, and what its front end takes for a request."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from roofplan.evidence.fits.engines import LEAST, steady_run, usable
from roofplan.evidence.fits.fitting import entry, merged, spread
from roofplan.evidence.inference import LARGEST_QUEUE, InferenceCase
from roofplan.evidence.predictions import simulated
from roofplan.operations.table import format_entry
from roofplan.records.calibration import Constant, Fit
from roofplan.records.engine import EAGER
from roofplan.records.terms import Term
from roofplan.serving import leaves, limit_of


def fit_prefill(fit: Fit) -> list[Constant]:
    """Fit, per engine, the share of the published kernels' compute rate that its prefill reaches, and their median for all others.

    From prompts timed alone, and from offline runs whose prompts are longer than their answers. What a measured time leaves
    for computing, its passes over memory and its launches taken off, gives the share; an engine's is the median. Few rows are
    drawn towards the median of the engines, as if that were `PRIOR_ROWS` rows more. Products on blocks without rows lose what those
    in 16 bits do.
    """
    ratios: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in SHARES}
    versions_seen, publishers = set(), set()
    for case in usable(fit.excluded):
        known = prompts_of(case, fit)
        if known is None:
            continue
        term, whole = known
        name = "block_share" if in_blocks(case, fit) else "compute_share"
        now = fit.find("engine", name, case.engine.scopes)
        computing = _computing(term)
        left = whole - (float(term.value) - computing)
        if min(computing / float(term.value), left / whole) < COMPUTING:
            continue
        versions_seen.add(case.engine.id)
        publishers.add(case.row["source_key"])
        for scope in {case.engine.id, case.engine.name if not case.engine.eager else EAGER}:
            ratios[name][scope].append(computing / left * now.value)
    out = []
    source = f"published times of prompts alone, or of prompts longer than answers: {', '.join(sorted(publishers))}"
    for name, found in ratios.items():
        versions = [median(values) for scope, values in found.items() if scope in versions_seen]
        middle = min(1.0, median(versions)) if versions else 1.0
        for scope, values in sorted(found.items()):
            share = math.exp(
                (len(values) * math.log(median(values)) + PRIOR_ROWS * math.log(middle)) / (len(values) + PRIOR_ROWS)
            )
            out.append(entry("engine", name, scope, min(1.0, share), "1", spread(values), len(values), source))
        every = [value for scope, values in found.items() if scope in versions_seen for value in values]
        if every:
            note = f"median of {len(versions)} engines' medians"
            out.append(entry("engine", name, "any", middle, "1", spread(every), len(every), source, note))
        elif name == "block_share":
            out += as_16_bit_products(out)
        else:
            note = "no engine has rows: taken to reach the published kernels"
            out.append(entry("engine", name, "any", 1.0, "1", 0.3, 0, note, kind="guess"))
        note = "training's frameworks have shares of their own"
        out.append(entry("engine", name, "training", 1.0, "1", 0.2, 0, note, kind="definition"))
    return merged(out)


def as_16_bit_products(found: Sequence[Constant]) -> list[Constant]:
    """Return shares of products on blocks where no engine has rows of them: those of its products in 16 bits."""
    note = "no engine has rows: taken to lose what its products in 16 bits do"
    return [
        entry("engine", "block_share", one.scope, one.value, "1", 0.3, 0, note, kind="guess")
        for one in found
        if one.name == "compute_share" and one.scope != "training"
    ]


def prompts_of(case: InferenceCase, fit: Fit) -> tuple[Term, float] | None:
    """Return the predicted time of a run that tells how fast prompts are computed, and the measured one [s]; None of others."""
    if case.regime == "static batch" and case.users is not None:
        seconds, rate = case.measured.get("ttft"), case.measured.get("prefill_tokens_per_second")
        if rate is not None:
            seconds = case.users * case.prompt / rate
        return None if seconds is None else (case.prompts_term(fit), seconds)
    if case.regime != "offline" or case.workload.input < LONG_PROMPTS * case.workload.output:
        return None
    known = steady_run(case, fit)
    return None if known is None else (known[2], known[1])


LONG_PROMPTS = 2.0
"""Prompts over answers from which an offline run tells how fast prompts are computed [1]."""


def fit_front(fit: Fit) -> list[Constant]:
    """Fit, per engine version and engine, what the server's front end takes for a request: what first tokens of a burst came later, over its requests.

    Only bursts whose answers are longer than a few tokens and whose prompts are short, so that it is little that prompts and answers take.
    """
    found: dict[str, list[float]] = defaultdict(list)
    publishers = set()
    for case in usable(fit.excluded):
        seconds = case.measured.get("ttft")
        if case.regime != "burst" or seconds is None or case.requests is None or case.prompt > SHORT_PROMPT:
            continue
        book = case.book()
        seats = book.max_concurrency // case.groups
        if not LEAST_BURST <= case.requests <= LARGEST_QUEUE * max(1, book.max_concurrency):
            continue
        seen, _ = simulated(case, seats, book.budget_tokens, fit)
        late = (seconds - seen.ttft) / case.requests + float(case.rates(fit).front)
        publishers.add(case.row["source_key"])
        for scope in {case.engine.id, case.engine.name}:
            found[scope].append(late)
    return fronts(found, f"first tokens of published bursts: {', '.join(sorted(publishers))}")


SHORT_PROMPT = 512.0
"""Longest prompts of a burst that tells the front end's time: of longer ones their computation decides [token]."""


LEAST_BURST = 200.0
"""Requests from which a burst tells it [1]."""


def fronts(found: Mapping[str, list[float]], source: str = "") -> list[Constant]:
    """Return what front ends take for a request, of engines with rows enough; of others the geometric mean of theirs, or a guess [s]."""
    known = {
        scope: max(median(late), LEAST_FRONT)
        for scope, late in sorted(found.items())
        if len(late) >= LEAST and _agree(late)
    }
    out = [
        entry("front_end", "request", scope, value, "s", FRONT_SPREAD, len(found[scope]), source)
        for scope, value in known.items()
    ]
    if not known:
        note = "next to nothing, where no burst tells"
        return [entry("front_end", "request", "any", LEAST_FRONT, "s", 0.7, 0, note, kind="guess")]
    middle = math.exp(sum(math.log(value) for value in known.values()) / len(known))
    rows = sum(len(late) for late in found.values())
    every = entry("front_end", "request", "any", middle, "s", 0.7, rows, source, "geometric mean of the engines")
    return merged([*out, every])


def _agree(late: Sequence[float]) -> bool:
    """Return whether the middle half of an engine's bursts tells one time of its front end: else something else made first tokens late."""
    low, high = np.quantile(np.maximum(late, LEAST_FRONT), (0.25, 0.75))
    return bool(high <= AGREEING * low)


AGREEING = 6.0
"""Factor within which the quartiles of an engine's bursts must lie [1]."""


LEAST_FRONT = 5e-4
"""Least time of a front end, whatever the rows say [s]."""


FRONT_SPREAD = 0.5
"""Spread of a front end's time: bursts of one engine lie between a third and three times it, as their models and hosts differ [1]."""


COMPUTING = 0.4
"""Share of a prompt's time that products and attention must take, so that its rate tells how fast they are [1]."""


def _computing(term: Term) -> float:
    """Return the part of a time in which a device computes at a rate that rests on one of `SHARES` [s]."""

    def shared(leaf: Term) -> bool:
        return any(isinstance(one, Constant) and one.name in SHARES for one in leaf.sources)

    return sum(value for leaf, value in leaves(term) if limit_of(leaf) == "compute" and shared(leaf))


SHARES = ("compute_share", "block_share")
"""Shares of the kernels' rate that prefill reaches, in 16 and 8 bits and on blocks of GGUF."""


PRIOR_ROWS = 6.0
"""Rows that the median of all engines counts for beside an engine's own [1]."""


def in_blocks(case: InferenceCase, fit: Fit) -> bool:
    """Return whether a case's products run on GGUF blocks in a type of their own."""
    plan = case.model.quantization
    blocks = plan is not None and format_entry(plan.format)["kernel"] == "blocks"
    return blocks and case.rates(fit).peak["gguf"] != case.rates(fit).peak["fp16"]
