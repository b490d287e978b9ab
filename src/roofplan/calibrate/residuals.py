"""How far predictions stand from the rows that constants were fitted on, from models left out, and from rows that nothing saw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from roofplan.calibrate.engines import LEAST, Decode, contradictory, decode_fit, decodes
from roofplan.serve import footprints, ledger, predict
from roofplan.validate import Case, clean_cases


@dataclass(frozen=True, slots=True)
class Residuals:
    """Predicted over measured for one group of rows.

    Parameters
    ----------
    what, group : what was measured, and whose rows they are.
    ratios : predicted over measured [1].
    """

    what: str
    group: str
    ratios: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median absolute relative error [1]."""
        return float(np.median(np.abs(np.array(self.ratios) - 1.0)))

    @property
    def ninetieth(self) -> float:
        """Absolute relative error that nine rows in ten stay below [1]."""
        return float(np.quantile(np.abs(np.array(self.ratios) - 1.0), 0.9))

    def within(self, factor: float) -> float:
        """Return the share of rows that lie within a factor, either way [1]."""
        return float(np.mean(np.abs(np.log(np.array(self.ratios))) <= np.log(factor)))

    @property
    def bias(self) -> float:
        """Median of predicted over measured [1]."""
        return float(np.median(self.ratios))


def _gathered(what: str, rows: Iterable[tuple[str, float]]) -> list[Residuals]:
    groups: dict[str, list[float]] = defaultdict(list)
    for group, ratio in rows:
        groups[group].append(ratio)
    return [Residuals(what, group, tuple(ratios)) for group, ratios in sorted(groups.items())]


def _kind(case: Case) -> str:
    return "mixtures" if case.model.experts else "dense"


def in_sample() -> list[Residuals]:
    """Return the residuals of time per token and of prompt rates on the rows that constants were fitted on."""
    tokens, prompts = [], []
    for case in clean_cases():
        prediction = case.predict()
        if prediction is None:
            continue
        group = f"{case.row['source']}, {case.engine.id}, {_kind(case)}"
        if case.tpot is not None:
            tokens.append((group, float(case.measured_term(prediction).value) / case.tpot))
        if case.row["prefill_tokens_per_second"]:
            prompts.append((group, float(prediction.prefill_rate) / float(case.row["prefill_tokens_per_second"])))
    return [*_gathered("time per token", tokens), *_gathered("prompt rate", prompts)]


def left_out() -> list[Residuals]:
    """Return the residuals of time per token for each model, its engine's constants fitted on the other models alone.

    What kernel tables gave stays, and so does the share of the kernels' compute rate, which prompt rates gave. Versions
    with too few rows, or whose other rows contradict each other, are not fitted: their rows are in sample only.
    """
    scopes: dict[str, list[Decode]] = defaultdict(list)
    for row in decodes():
        scopes[row.scope].append(row)
    rows = []
    for scope, found in scopes.items():
        for name in sorted({row.case.model.id for row in found}):
            others = [row for row in found if row.case.model.id != name]
            if len(others) < LEAST or contradictory(others):
                continue
            time = decode_fit(others)
            rows += [(scope, time(row) / row.measured) for row in found if row.case.model.id == name]
    return _gathered("time per token, model left out", rows)


def unseen() -> list[Residuals]:
    """Return the residuals of offline throughput at the concurrency that memory admits, to which nothing was fitted."""
    rows = []
    for case in clean_cases():
        published = case.row["output_tokens_per_second"]
        if not published or case.users is not None or case.row["metric"] != "max_throughput":
            continue
        book = ledger(
            case.model,
            case.strategy,
            case.machine,
            case.engine,
            case.workload,
            footprints(case.model, case.strategy, case.kv_bytes),
        )
        if book.max_concurrency < 1:
            continue
        prediction = predict(
            case.model,
            case.strategy,
            case.engine,
            case.workload,
            case.rates(),
            float(book.max_concurrency),
            kv_bytes=case.kv_bytes,
            budget=book.budget_tokens,
        )
        rows.append(
            (f"{case.row['source']}, {case.engine.id}, {_kind(case)}", float(prediction.rate) / float(published))
        )
    return _gathered("offline throughput", rows)
