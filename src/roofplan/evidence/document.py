"""What a table of measured runs comes to, as plain values."""

from __future__ import annotations

from typing import Any

from roofplan.evidence.scoring import Outcome, Score, Validation


def _score(found: Score) -> dict[str, Any]:
    return {
        "rows": found.rows,
        "sources": found.sources,
        "median_ape": found.median,
        "macro_median_ape": found.macro,
        "median_of_medians_ape": found.middle,
        "p90_ape": found.p90,
        "coverage_90": found.coverage,
        "median_high_over_low": found.width,
    }


def _prediction(one: Outcome) -> dict[str, Any]:
    """Return a figure beside its prediction, or why it has none."""
    out: dict[str, Any] = {"id": one.id, "source": one.source, "metric": one.metric or None}
    if one.regime:
        out["regime"] = one.regime
    if one.predicted is None:
        out |= {"skipped": one.skipped}
        return out | ({"measured": one.measured, "limit": one.implausible} if one.implausible else {})
    p = one.predicted
    out |= {"measured": one.measured, "predicted": p.value, "low": p.low, "high": p.high, "unit": p.unit}
    return out | {"ape": one.error, "grade": p.grade, "assumed": list(one.assumed)}


def members(found: Validation) -> dict[str, Any]:
    """Return the members of the answer of ``roofplan validate``: errors as fractions, figures in SI."""
    out: dict[str, Any] = {"rows": found.rows, "scored": found.scored, "skipped": dict(found.skipped)}
    out["summary"] = {name: _score(one) for name, one in found.summary().items()}
    out["without_assumed"] = {name: _score(one) for name, one in found.without_assumed().items()}
    out["by_regime"] = {
        name: {regime: _score(one) for regime, one in by.items()} for name, by in found.by_regime().items()
    }
    floors = {name: found.floor(name) for name in out["summary"]}
    out["by_source"] = {
        source: {
            name: {
                **_score(one),
                "one_constant_a_chip": floors[name].get(source),
                "in_sample": source in found.in_sample,
            }
            for name, one in by.items()
        }
        for source, by in found.by_source().items()
    }
    out["sweeps"] = {name: {"rows": n, "rank_correlation": value} for name, (n, value) in found.sweeps().items()}
    out["out_of_memory"] = found.confusion() if found.memory else None
    out["predictions"] = [_prediction(one) for one in found.outcomes]
    return out


def csv_rows(found: Validation) -> list[dict[str, Any]]:
    """Return every figure as a flat row in SI units."""
    blank = dict.fromkeys(
        ("measured", "predicted", "low", "high", "unit", "ape", "grade", "assumed", "skipped", "limit"), ""
    )
    return [{**blank, "regime": "", **_prediction(one), "assumed": "; ".join(one.assumed)} for one in found.outcomes]
