"""What predictions rest on: ``roofplan validate``, ``calibrate``, ``claims`` and ``benchmarks``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roofplan.errors import InputError, choice
from roofplan.inputs import STDIN, BenchmarksInputs, CalibrateInputs, ClaimsInputs, ValidateInputs
from roofplan.questions.question import Reply, Row, question


@question(
    ValidateInputs,
    *("csv", "html", "json"),
    example="training runs.csv",
    csv="write every figure, scored or skipped, to FILE",
)
def validate(asked: ValidateInputs, reply: Reply) -> int:
    """Predicted against measured: errors by source, coverage of the intervals, what was skipped and why."""
    from roofplan import api, catalogue
    from roofplan.present.answers.evidence import validate_answer, validation_rows
    from roofplan.present.screens.validation import validation_screen

    limit, csv = _share(asked.fail_above), reply.out("csv")
    if csv is not None and asked.file != STDIN and Path(csv).resolve() == Path(asked.file).resolve():
        raise InputError(f"--csv: {csv} is the table itself", argument="--csv", value=csv)
    own = {"training": catalogue.training_rows, "inference": catalogue.inference_rows}
    rows: Any = own[asked.kind]() if asked.file == STDIN and asked.kind in own else asked.file
    with reply.progress("rows") as tick:
        found = api.validate(asked.kind, rows, progress=tick, **reply.beside)
    reply.table(lambda: validation_rows(found))

    def pictures() -> list[Row]:
        from roofplan.present import charts

        return charts.accuracy(found)

    reply.show(
        lambda page: validation_screen(found, page),
        lambda: validate_answer(found, asked, reply.beside.get("fit")),
        pictures,
        title=f"roofplan validate {asked.kind}",
        result=found,
    )
    scores = found.summary().values()
    if limit is not None and not scores:
        reply.remark("no figure was scored: nothing is shown to be within --fail-above")
    return int(limit is not None and not (scores and all(one.macro <= limit for one in scores)))


def _share(text: str | None) -> float | None:
    """Return the error above which ``validate`` fails [1]."""
    from roofplan.records.units import parse

    if text is None:
        return None
    limit = parse(text, "1", "--fail-above")
    if limit > 1.0 and "%" not in text:
        message = f"--fail-above {text} is {limit:.0%}: write {text}% or a share of one"
        raise InputError(message, argument="--fail-above", value=text)
    return limit


@question(CalibrateInputs, "json")
def calibrate(asked: CalibrateInputs, reply: Reply) -> None:
    """The fitted constants, and your own runs on top of them, kept in a local profile that every command then uses."""
    from roofplan import api, catalogue, observe
    from roofplan.catalogue import profile
    from roofplan.measure.ledger import place as ledger
    from roofplan.present.answers.evidence import constants_answer, forgotten_answer, refit_answer
    from roofplan.present.screens.calibration import constants_screen, refit_screen

    if asked.forget and (asked.with_ or asked.dry_run):
        raise InputError("--forget stands alone: it removes the profile, which --with makes anew", argument="--forget")
    if asked.dry_run and not asked.with_:
        raise InputError("--dry-run needs runs to try: --with runs.csv", argument="--dry-run")
    if asked.forget:
        gone = profile.forget()
        said = "there was no local profile" if gone is None else f"removed {gone}"
        reply.show(lambda page: page.line(said), lambda: forgotten_answer(gone, asked))
    elif asked.with_:
        rows = [observe.own_row(one, ledger=ledger()) for one in asked.with_ if one.startswith("run:")]
        sources: list[str | list[dict[str, str]]] = [one for one in asked.with_ if not one.startswith("run:")]
        sources += [rows] if rows else []
        with reply.progress("fits") as tick:
            found, place = api.refit(*sources, keep=not asked.dry_run, progress=tick)
        reply.show(
            lambda page: refit_screen(found, place, page),
            lambda: refit_answer(found, place, asked),
        )
    else:
        kept = profile.path()
        reply.show(
            lambda page: constants_screen(catalogue.constants(), profile.constants(kept), kept, page),
            lambda: constants_answer(asked),
        )


@question(ClaimsInputs, *("csv", "json"))
def claims(asked: ClaimsInputs, reply: Reply) -> int:
    """The articles' figures, what our laws give with their inputs, and with corrected ones."""
    from roofplan.evidence.claims import claims as every
    from roofplan.evidence.claims import outcome
    from roofplan.present.answers.evidence import claim_rows, claims_answer
    from roofplan.present.answers.record import plain
    from roofplan.present.screens.claims import claims_screen

    topics = sorted({one.topic for one in every()})
    topic = None if asked.topic is None else choice(asked.topic, topics, "--topic")
    words = asked.text.lower()
    of_topic = (one for one in every() if topic in {None, one.topic})
    results = [outcome(one) for one in of_topic if words in one.id.lower() or words in one.says.lower()]
    reply.table(lambda: plain(claim_rows(results)))
    if not results:
        reply.remark(f"no claim holds {asked.text!r}")
    reply.show(
        lambda page: claims_screen(results, page) if results else None,
        lambda: claims_answer(results, asked),
    )
    return int(not results or not all(one.follows for one in results))


@question(
    BenchmarksInputs,
    *("csv", "html", "json"),
    example="llama2-70b --scenario Offline",
    python="benchmarks",
    csv="write every shown result to FILE",
)
def benchmarks(asked: BenchmarksInputs, reply: Reply) -> int:
    """MLPerf Inference for language models: per accelerator, dollar and watt, where ranks flip, and what is predicted."""
    from roofplan import api
    from roofplan.present.answers.benchmarks import benchmark_rows, benchmarks_answer
    from roofplan.present.screens.benchmarks import benchmarks_screen

    with reply.progress("results") as tick:
        found = api.benchmarks(asked, progress=tick, **reply.beside)
    reply.table(lambda: benchmark_rows(found))

    def pictures() -> list[Row]:
        from roofplan.present.charts.benchmarks import of_benchmarks

        return of_benchmarks(found)

    reply.show(
        lambda page: benchmarks_screen(found, page),
        lambda: benchmarks_answer(found, asked),
        pictures,
        title="roofplan benchmarks",
        result=found,
    )
    return int(not found.results)
