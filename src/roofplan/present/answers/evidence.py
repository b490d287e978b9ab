"""The answers of ``roofplan validate``, ``calibrate`` and ``claims``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from roofplan import catalogue
from roofplan.catalogue import profile
from roofplan.evidence.claims import Outcome as Judged
from roofplan.evidence.scoring import Outcome, Score, Validation
from roofplan.inputs import CalibrateInputs, ClaimsInputs, ValidateInputs
from roofplan.present.answers.record import ABSENT, Answer, Json, answered, members, plain, view
from roofplan.records.calibration import OWN, Constant, Fit

if TYPE_CHECKING:
    from roofplan.evidence.fits.own import Refit

# Measured runs -----------------------------------------------------------------------------------


@members
class ScoreMember:
    """Errors of a metric over rows [1]; macro is the mean over sources of their medians.

    Parameters
    ----------
    one_constant_a_chip : median error of the crudest law, one share of the data sheet for each chip.
    in_sample : whether constants were fitted on rows of this source.
    """

    rows: int
    sources: int
    median_ape: float
    macro_median_ape: float
    median_of_medians_ape: float
    p90_ape: float
    coverage_90: float
    median_high_over_low: float
    one_constant_a_chip: float | None = ABSENT
    in_sample: bool = ABSENT


def _score(found: Score, **more: object) -> ScoreMember:
    return view(
        ScoreMember,
        found,
        median_ape=found.median,
        macro_median_ape=found.macro,
        median_of_medians_ape=found.middle,
        p90_ape=found.p90,
        coverage_90=found.coverage,
        median_high_over_low=found.width,
        **more,
    )


@members
class PredictionMember:
    """One measured figure beside its prediction in SI, or the reason why it has none.

    Parameters
    ----------
    limit : the physical limit that the measured figure exceeds.
    read_as : what was made of the row: model, devices, software, layout and load.
    """

    id: str
    source: str
    metric: str | None
    read_as: str = ABSENT
    regime: str = ABSENT
    skipped: str = ABSENT
    measured: float = ABSENT
    limit: str = ABSENT
    predicted: float = ABSENT
    low: float = ABSENT
    high: float = ABSENT
    unit: str = ABSENT
    ape: float = ABSENT
    grade: str = ABSENT
    assumed: list[str] = ABSENT


def _prediction(one: Outcome) -> PredictionMember:
    p = one.predicted
    named = PredictionMember(
        id=one.id,
        source=one.source,
        metric=one.metric or None,
        read_as=one.read_as or ABSENT,
        regime=one.regime or ABSENT,
        measured=one.measured if p or one.implausible else ABSENT,
    )
    if p is None:
        return replace(named, skipped=one.skipped, limit=one.implausible or ABSENT)
    return replace(
        named,
        predicted=p.value,
        low=p.low,
        high=p.high,
        unit=p.unit,
        ape=one.error,
        grade=p.grade,
        assumed=list(one.assumed),
    )


@members
class Sweep:
    """Runs that differ in one thing, and the rank correlation of predicted and measured rates over them [1]."""

    rows: int
    rank_correlation: float


@members
class ValidateAnswer(Answer):
    """Predicted beside measured: errors by metric, by how requests met the engine, and by source."""

    rows: int = ABSENT
    scored: int = ABSENT
    skipped: dict[str, int] = ABSENT
    summary: dict[str, ScoreMember] = ABSENT
    without_assumed: dict[str, ScoreMember] = ABSENT
    by_regime: dict[str, dict[str, ScoreMember]] = ABSENT
    by_source: dict[str, dict[str, ScoreMember]] = ABSENT
    sweeps: dict[str, Sweep] = ABSENT
    out_of_memory: dict[str, dict[str, int]] | None = ABSENT
    predictions: list[PredictionMember] = ABSENT


def validate_answer(found: Validation, asked: ValidateInputs, fit: Fit | None = None) -> ValidateAnswer:
    """Return the answer of ``roofplan validate``: errors as fractions, figures in SI.

    Parameters
    ----------
    found : predictions and measurements.
    asked : inputs of the command.
    fit : constants that were given for it, None for the default.

    Returns
    -------
    The answer.
    """
    summary = found.summary()
    floors = {name: found.floor(name) for name in summary}
    return answered(
        ValidateAnswer,
        "validate",
        asked,
        warnings=found.warnings,
        fit=fit,
        rows=found.rows,
        scored=found.scored,
        skipped=found.skipped,
        summary={name: _score(one) for name, one in summary.items()},
        without_assumed={name: _score(one) for name, one in found.without_assumed().items()},
        by_regime={name: {regime: _score(one) for regime, one in by.items()} for name, by in found.by_regime().items()},
        by_source={
            source: {
                name: _score(one, one_constant_a_chip=floors[name].get(source), in_sample=source in found.in_sample)
                for name, one in by.items()
            }
            for source, by in found.by_source().items()
        },
        sweeps={name: Sweep(rows=n, rank_correlation=value) for name, (n, value) in found.sweeps().items()},
        out_of_memory=found.confusion() if found.memory else None,
        predictions=[_prediction(one) for one in found.outcomes],
    )


def validation_rows(found: Validation) -> list[Json]:
    """Return every figure as a flat row in SI units.

    Parameters
    ----------
    found : predictions and measurements.

    Returns
    -------
    One row per figure, scored or skipped; every row has the columns in `COLUMNS`.
    """
    blank = dict.fromkeys(COLUMNS, "")
    return [{**blank, **plain(_prediction(one)), "assumed": "; ".join(one.assumed)} for one in found.outcomes]


COLUMNS = (
    "measured",
    "predicted",
    "low",
    "high",
    "unit",
    "ape",
    "grade",
    "assumed",
    "skipped",
    "limit",
    "regime",
    "read_as",
)
"""Columns that a row has whether or not its figure is scored."""


# Constants ---------------------------------------------------------------------------------------


@members
class MovedConstant(Constant):
    """A constant as a user's own runs moved it, beside the shipped one; what share of its doubt is left [1]."""

    shipped: float
    shipped_scope: str
    doubt_left: float


@members
class OwnFigure:
    """One figure of a user's own runs: relative errors by the shipped constants, by those refitted, and by those that other runs moved [1]."""

    id: str
    job: str
    metric: str
    measured: float
    shipped: float | None
    refitted: float | None
    held_out: float | None


@members
class CalibrateAnswer(Answer):
    """The fitted constants, or what a user's own runs do to them.

    Parameters
    ----------
    helps : whether held-out runs come nearer to predictions; false without any, as of a single run.
    removed, profile : files, null where there is none.
    """

    rows: int = ABSENT
    skipped: dict[str, int] = ABSENT
    figures: list[OwnFigure] = ABSENT
    constants: list[MovedConstant] = ABSENT
    shipped: list[Constant] = ABSENT
    own: list[Constant] = ABSENT
    helps: bool = ABSENT
    removed: str | None = ABSENT
    profile: str | None = ABSENT


def refit_answer(found: Refit, place: Path | None, asked: CalibrateInputs) -> CalibrateAnswer:
    """Return the answer of ``roofplan calibrate --with``.

    Parameters
    ----------
    found : the refit and its errors.
    place : file of the profile, None where nothing was kept.
    asked : inputs of the command.

    Returns
    -------
    The answer: errors of every figure, the constants that moved, and the intervals learned from the user's runs.
    """
    errors = zip(found.before, found.after, found.held_out, strict=True)
    return answered(
        CalibrateAnswer,
        "calibrate",
        asked,
        warnings=found.warnings,
        rows=found.rows,
        skipped=found.skipped,
        figures=[
            view(OwnFigure, one, shipped=float(before), refitted=float(after), held_out=float(held))
            for one, (before, after, held) in zip(found.figures, errors, strict=True)
        ],
        constants=[
            view(
                MovedConstant,
                one.after,
                shipped=one.before.value,
                shipped_scope=one.before.scope,
                doubt_left=one.doubt,
            )
            for one in found.moved
        ],
        own=[item for item in found.constants if item.law == OWN],
        helps=found.helps,
        profile=None if place is None else str(place),
    )


def forgotten_answer(gone: Path | None, asked: CalibrateInputs) -> CalibrateAnswer:
    """Return the answer of ``roofplan calibrate --forget``.

    Parameters
    ----------
    gone : the profile that was removed, None where there was none.
    asked : inputs of the command.

    Returns
    -------
    The answer.
    """
    return answered(CalibrateAnswer, "calibrate", asked, removed=None if gone is None else str(gone))


def constants_answer(asked: CalibrateInputs) -> CalibrateAnswer:
    """Return the answer of ``roofplan calibrate``: the shipped constants and those of the local profile.

    Parameters
    ----------
    asked : inputs of the command.

    Returns
    -------
    The answer.

    Raises
    ------
    InputError : the local profile cannot be read.
    """
    place = profile.path()
    own = profile.constants(place)
    return answered(
        CalibrateAnswer,
        "calibrate",
        asked,
        shipped=catalogue.constants(),
        own=own,
        profile=str(place) if place is not None and own else None,
    )


# Claims ------------------------------------------------------------------------------------------


@members
class ClaimRow:
    """One figure of the articles, and what our laws give with its inputs and with corrected ones.

    Parameters
    ----------
    verdict, recorded : as computed now, and as it was written down.
    command : that measures it where it is a matter of measurement, empty where it is not.
    """

    id: str
    article: str
    topic: str
    says: str
    claimed: float | None
    unit: str
    with_its_inputs: float | None
    ours: float | None
    verdict: str
    recorded: str
    why: str
    command: str


def claim_rows(found: Sequence[Judged]) -> list[ClaimRow]:
    """Return the articles' figures as rows.

    Parameters
    ----------
    found : claims with their computed verdicts.

    Returns
    -------
    One row per claim, in the same order.
    """
    return [
        view(
            ClaimRow,
            one.claim,
            with_its_inputs=one.with_its_inputs,
            ours=one.ours,
            verdict=one.computed_verdict,
            recorded=one.claim.verdict,
        )
        for one in found
    ]


@members
class ClaimsAnswer(Answer):
    """Figures of the articles, and which of them hold."""

    claims: list[ClaimRow] = ABSENT


def claims_answer(found: Sequence[Judged], asked: ClaimsInputs) -> ClaimsAnswer:
    """Return the answer of ``roofplan claims``.

    Parameters
    ----------
    found : claims with their computed verdicts.
    asked : inputs of the command.

    Returns
    -------
    The answer.
    """
    return answered(ClaimsAnswer, "claims", asked, claims=claim_rows(found))
