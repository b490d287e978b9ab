"""``roofplan train``."""

from __future__ import annotations

from dataclasses import replace

from roofplan.errors import InputError, choice
from roofplan.inputs import TrainInputs
from roofplan.questions.question import Reply, Row, question


@question(
    TrainInputs,
    *("explain", "depth", "json", "csv", "html", "emit", "request"),
    example="llama-3.1-70b --on h100-sxm:512@ib-ndr --tokens 1T",
    python="plan_training",
    csv="write the ranked plans to FILE: the fastest of each set of degrees, the leanest",
    emit="print only the launch: megatron, megatron-bridge, torchtitan, deepspeed, fsdp, litgpt or maxtext",
)
def train(asked: TrainInputs, reply: Reply) -> None:
    """Training plans: memory of every stage, step time, days, dollars, failures, and which layout."""
    from roofplan.api import plan_training
    from roofplan.exports.training import launch
    from roofplan.present.answers.training import csv_rows, train_answer
    from roofplan.present.screens.training import train_screen
    from roofplan.records.units import parse_count

    explain, emit = reply.out("explain"), reply.out("emit")
    reply.check_table()
    _check_emit(emit, alone=explain and not reply.as_json)
    top, levels = parse_count(asked.top, "--top"), reply.levels
    planned = asked
    if emit is not None and asked.framework is None:
        own = {"fsdp": "fsdp-qlora" if asked.method != "full" else "transformers"}
        planned = replace(asked, framework=own.get(emit, emit))
    with reply.progress() as tick:
        result = plan_training(planned, progress=tick, **reply.beside)
    reply.table(lambda: csv_rows(result))

    def pictures() -> list[Row]:
        from roofplan.present import charts

        return charts.training(result)

    reply.show(
        lambda page: train_screen(result, page, top=top, explain=explain, depth=levels),
        lambda: train_answer(result, asked, top=top, explain=max(levels, 2) if explain else 0, emit=emit),
        pictures,
        title=f"roofplan train {asked.model}",
        launch=lambda: launch(result.plans[0], emit),
        result=result,
    )


def _check_emit(emit: str | None, *, alone: bool) -> None:
    """Refuse a launch in no known vocabulary, or one beside an explanation."""
    if emit is None:
        return
    from roofplan.exports.training import TARGETS

    choice(emit, TARGETS, "--emit")
    if alone:
        raise InputError("--emit prints the launch alone; leave out --explain", argument="--emit", value=emit)
