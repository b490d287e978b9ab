"""``roofplan measure`` and ``roofplan runs``: what was seen of endpoints."""

from __future__ import annotations

from cyclopts import App

from roofplan.cli.app import Reply, Row, app, command, progress
from roofplan.inputs import MeasureInputs, RunsInputs

measure = App(name="measure", help_format="plaintext", help="What users of an endpoint feel, by the clock of a client.")
app.command(measure)


@command(
    MeasureInputs,
    *("json", "csv", "html", "request"),
    example="http://127.0.0.1:8000 --clients 4",
    to=measure,
    csv="write every request to FILE",
)
def endpoint(asked: MeasureInputs, reply: Reply) -> int:
    """Put a load on an OpenAI-compatible server: first tokens, time per token, failures, and what is predicted for it."""
    from roofplan import api
    from roofplan.measure.ledger import place
    from roofplan.present.answers import seen
    from roofplan.present.screens.seen import measure_screen

    reply.check_table()
    with progress(quiet=reply.as_json, what="requests") as tick:
        found = api.measure_endpoint(asked, ledger=place(), progress=tick)
    reply.table(lambda: seen.sample_rows(found.run.samples))

    def pictures() -> list[Row]:
        from roofplan.present.charts.seen import of_run

        return of_run(found)

    reply.show(
        lambda page: measure_screen(found, page),
        lambda: seen.measure_answer(found, asked),
        pictures,
        title=f"roofplan measure endpoint {asked.url}",
    )
    return 0 if found.kept else 1


@command(RunsInputs, *("json", "csv", "html"), csv="write the list, or every request of a run, to FILE")
def runs(asked: RunsInputs, reply: Reply) -> int:
    """What was measured: the list, or one run again, beside a plan if one is given."""
    from roofplan import api
    from roofplan.measure.ledger import place
    from roofplan.present.answers import seen
    from roofplan.present.answers.record import plain
    from roofplan.present.screens.seen import measure_screen, runs_screen

    reply.check_table()
    found = api.runs(asked, ledger=place())
    one = found.one
    if one is None:
        reply.table(lambda: [plain(seen.kept_member(each)) for each in found.kept])
    else:
        reply.table(lambda: seen.sample_rows(one.run.samples))

    def pictures() -> list[Row]:
        from roofplan.present.charts.seen import of_run

        return [] if one is None else of_run(one)

    reply.show(
        lambda page: runs_screen(found.kept, found.place, page) if one is None else measure_screen(one, page),
        lambda: seen.runs_answer(found.kept, found.place, asked, one),
        pictures,
    )
    return 0
