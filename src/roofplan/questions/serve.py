"""``roofplan serve``."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING

from roofplan.errors import InputError
from roofplan.inputs import ServeInputs, SimulateInputs
from roofplan.questions.question import Reply, Row, question

if TYPE_CHECKING:
    from roofplan.serving import Plan


@question(
    ServeInputs,
    *("explain", "depth", "json", "csv", "html", "emit", "request"),
    example="llama-3.1-70b --on h100-sxm:8",
    python="plan_serving",
    csv="write every plan to FILE",
    emit="print only the launch line: vllm, sglang, trtllm or llamacpp",
)
def serve(asked: ServeInputs, reply: Reply) -> int:
    """Serving plans, ranked, priced and explained."""
    from roofplan.api import plan_serving
    from roofplan.exports.serving import engine_named, launch
    from roofplan.present.screens.plans import serve_screen
    from roofplan.records.units import parse_count

    explain, emit = reply.out("explain"), reply.out("emit")
    reply.check_table()
    top, levels = parse_count(asked.top, "--top"), reply.levels
    if emit is not None:
        if explain and not reply.as_json:
            raise InputError("--emit prints the launch line alone; leave out --explain", argument="--emit", value=emit)
        asked = replace(asked, engine=engine_named(emit, asked.engine))
    with reply.progress() as tick:
        result = plan_serving(asked, progress=tick, **reply.beside)

    def answers() -> ModuleType:
        from roofplan.present.answers import serving

        return serving

    reply.table(lambda: answers().csv_rows(result))

    def pictures() -> list[Row]:
        from roofplan.present import charts

        return charts.serving(result)

    reply.show(
        lambda page: serve_screen(
            result, page, _simulated(asked, result.plans[0]), top=top, explain=explain, depth=levels
        ),
        lambda: answers().serve_answer(
            result, asked, top=top, explain=max(levels, 2) if explain else 0, emit=emit is not None
        ),
        pictures,
        title=f"roofplan serve {asked.model}",
        launch=lambda: launch(result.plans[0]),
        result=result,
    )
    felt = result.plans[0].under_load
    return 0 if felt is None or felt.holds else 1


def _simulated(asked: ServeInputs, plan: Plan) -> str:
    """Return the command that simulates a plan as it is launched, at the demanded rate or at most of what it can do."""
    from roofplan.exports.serving import sequences_of
    from roofplan.questions import EVERY
    from roofplan.questions.spelling import command_line
    from roofplan.records import units
    from roofplan.serving.settings import names_of

    most = plan.metrics["output_tokens_per_second"].value / plan.workload.output
    shared = {one.name: getattr(asked, one.name) for one in SimulateInputs.each().values() if hasattr(asked, one.name)}
    limits = [f"{name}={limit}@p95" for name in ("tpot", "ttft") if (limit := getattr(asked, name))]
    seats = [f"{name}={sequences_of(plan)}" for name, flag in names_of(plan.engine).items() if flag == "sequences"]
    stated = seats if "sequences" not in plan.engine.stated else []
    own = {
        "on": (plan.machine.text,),
        "strategy": plan.strategy.label() if plan.machine.count > 1 else None,
        "precision": plan.precision if asked.precision else None,
        "kv_precision": plan.kv_precision if asked.kv_precision else None,
        "engine": plan.engine.stands_for or plan.engine.id,
        "rate": asked.rate or f"{units.significant(LOAD * most, 2)}req/s",
        "slo": asked.slo or ",".join(limits) or None,
        "set": ",".join([*([asked.set] if asked.set else []), *stated]) or None,
    }
    return command_line(EVERY["simulate"], SimulateInputs(**shared | own))


LOAD = 0.8
"""Share of a plan's steady rate at which it is simulated where no rate is demanded: at all of it a queue grows without end [1]."""
