"""``roofplan simulate``."""

from __future__ import annotations

from roofplan.inputs import SimulateInputs
from roofplan.questions.question import Reply, Row, question


@question(
    SimulateInputs,
    *("json", "csv", "html", "request"),
    example="llama-3.1-70b --on h100-sxm:8 --rate 4req/s",
    python="simulate",
    csv="write every request to FILE",
)
def simulate(asked: SimulateInputs, reply: Reply) -> int:
    """What users feel under load: percentiles, limits, queues, and what it costs."""
    from roofplan import api
    from roofplan.present.answers import load
    from roofplan.present.screens.load import simulate_screen

    reply.check_table()
    with reply.progress("trials") as tick:
        felt = api.simulate(asked, progress=tick, **reply.beside)
    reply.table(lambda: load.csv_rows(felt))

    def pictures() -> list[Row]:
        from roofplan.present.charts.load import under_load

        return under_load(felt)

    reply.show(
        lambda page: simulate_screen(felt, page),
        lambda: load.simulate_answer(felt, asked),
        pictures,
        title=f"roofplan simulate {asked.model}",
        result=felt,
    )
    return 0 if felt.kept else 1
