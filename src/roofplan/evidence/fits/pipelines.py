"""How long batches in the stages of a pipeline wait for each other, from runs with pipeline stages."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import median

from roofplan.evidence.fits.fitting import entry, spread
from roofplan.evidence.fits.runs import REMEMBERED, At, usable
from roofplan.evidence.inference import InferenceCase
from roofplan.evidence.rows import Skipped, number
from roofplan.evidence.serving_figures import predicted_figures
from roofplan.records.calibration import Constant, Fit

FIGURES = ("tpot", "output_tokens_per_second")
"""Figures that tell a pipeline's pace, the surer first."""


def fit_pipelines(fit: Fit) -> Constant:
    """Fit by how much longer than planned a step of several stages takes whose batches are in flight at once.

    Engines divide running sequences into as many batches as there are stages, but neither evenly nor for good, and a stage that has
    finished a batch may have none to take up. The share is the median over publishers of the median over their runs.
    """
    found: dict[str, list[float]] = defaultdict(list)
    for case in usable(fit.excluded):
        batches = _batches(case)
        name = next((one for one in FIGURES if case.measured.get(one)), None)
        late = None if name is None or batches <= 1.0 else _late(At(case, fit, queues=True), name)
        if late is not None:
            share = 1.0 - 1.0 / batches
            taken = 1.0 + float(case.rates(fit).stall) * share
            found[case.row["source_key"]].append((taken * late - 1.0) / share)
    return stall(found)


def _batches(case: InferenceCase) -> float:
    """Return the batches that the stages of a run's pipeline hold at once, one where a stage takes them in turn [1]."""
    if case.engine.pipeline_kind != "microbatch":
        return 1.0
    copies = float(case.strategy.dp * case.strategy.attention_dp)
    users = [one for one in (case.clients, case.requests) if one]
    most = number(case.row, "max_num_seqs") or math.inf
    return min(float(case.strategy.pp), most, *(one / copies for one in users))


@lru_cache(maxsize=REMEMBERED)
def _late(at: At, name: str) -> float | None:
    """Return the measured over the predicted time of a run, None where it has no prediction [1]."""
    try:
        predicted = predicted_figures(at.case, at.fit).get(name)
    except Skipped:
        return None
    if predicted is None or isinstance(predicted, str):
        return None
    ratio = at.case.measured[name] / predicted.value
    return float(ratio if name == "tpot" else 1.0 / ratio)


def stall(found: Mapping[str, Sequence[float]]) -> Constant:
    """Return the waits of pipelines, none known without runs.

    Parameters
    ----------
    found : by how much longer runs took than without waits, by publisher [1].

    Returns
    -------
    The constant [1].
    """
    if not found:
        return entry("pipeline", "stall", "any", 0.0, "1", SPREAD, 0, "no run has pipeline stages", kind="guess")
    middles = [median(runs) for runs in found.values()]
    value = max(0.0, median(middles))
    apart = spread(max(LEAST, 1.0 + one) for one in middles)
    source = f"runs with pipeline stages: {', '.join(sorted(found))}"
    return entry("pipeline", "stall", "any", value, "1", apart, sum(map(len, found.values())), source)


LEAST = 0.5
"""Least time of a run over its time without waits that counts towards their spread [1]."""

SPREAD = 0.3
"""Spread of the time of a pipeline's step where no run tells [1]."""
