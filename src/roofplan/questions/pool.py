"""``roofplan pool``: a pool of home machines, planned, proven and simulated."""

from __future__ import annotations

from roofplan.inputs import PoolPlanInputs, PoolProveInputs, PoolSimulateInputs
from roofplan.questions.question import Reply, Row, question


@question(
    PoolPlanInputs,
    *("explain", "depth", "json", "csv", "html", "emit", "request"),
    name="pool plan",
    example="qwen3-32b --precision q8_0 --member rtx-4090@1gbe --member rtx-3060@100mbit:12ms",
    python="plan_pool",
    csv="write the members with a part to FILE",
    emit="print only the lines that launch it: llama.cpp",
)
def plan(asked: PoolPlanInputs, reply: Reply) -> None:
    """Which member of a pool holds which layers, how fast that is, what binds, and who adds what."""
    from roofplan import api
    from roofplan.errors import InputError, choice
    from roofplan.pool.request import ENGINE
    from roofplan.present.answers.pool import pool_plan_answer, pool_rows
    from roofplan.present.screens.pool import plan_screen

    explain, emit, levels = reply.out("explain"), reply.out("emit"), reply.levels
    if emit is not None:
        choice(emit, (ENGINE,), "--emit")
    reply.check_table()
    with reply.progress("searches") as tick:
        found = api.plan_pool(asked, progress=tick, **reply.beside)
    if emit is not None and not found.launch:
        raise InputError(
            f"--emit: {found.request.software.name} has no launch line here; --software llama.cpp has",
            argument="--emit",
            value=emit,
        )
    reply.table(lambda: pool_rows(found))

    def pictures() -> list[Row]:
        from roofplan.present.charts.pool import of_plan

        return of_plan(found)

    reply.show(
        lambda page: plan_screen(found, page, levels if explain else 0),
        lambda: pool_plan_answer(found, asked, max(levels, 2) if explain else None),
        pictures,
        title=f"roofplan pool plan {asked.model}",
        launch=(lambda: "\n".join(found.launch)) if found.launch else None,
        result=found,
    )


@question(
    PoolProveInputs,
    *("json", "csv", "html", "request"),
    name="pool prove",
    example="--build",
    python="prove_pool",
    csv="write a row for each rate to FILE",
)
def prove(asked: PoolProveInputs, reply: Reply) -> int:
    """A small model on a real engine over shaped links of this machine, beside what is predicted: bytes, loading, time of a token."""
    from roofplan import api
    from roofplan.present.answers.pool import pool_prove_answer, proof_rows
    from roofplan.present.screens.pool import proof_screen

    reply.check_table()
    reply.check_places()
    with reply.progress("runs") as tick:
        found = api.prove_pool(asked, remark=reply.remark, progress=tick, **reply.beside)
    reply.table(lambda: proof_rows(found))

    def pictures() -> list[Row]:
        from roofplan.present.charts.pool import of_proof

        return of_proof(found)

    reply.show(
        lambda page: proof_screen(found, page),
        lambda: pool_prove_answer(found, asked),
        pictures,
        title="roofplan pool prove",
        result=found,
    )
    return 0


@question(
    PoolSimulateInputs,
    *("json", "csv", "html", "request"),
    name="pool simulate",
    example="qwen3-32b --precision q4_k_m --member 4xrtx-3060@1gbit:8ms --member 2xrtx-4090@1gbit:8ms",
    python="simulate_pool",
    csv="write every request to FILE",
)
def simulate(asked: PoolSimulateInputs, reply: Reply) -> None:
    """A pool whose members come, go and cheat: who is served, what is wasted, what checks find, who earns what."""
    from roofplan import api
    from roofplan.present.answers.pool import pool_simulate_answer, request_rows
    from roofplan.present.screens.pool import simulation_screen

    reply.check_table()
    with reply.progress("hours") as tick:
        found = api.simulate_pool(asked, progress=tick, **reply.beside)
    reply.table(lambda: request_rows(found))

    def pictures() -> list[Row]:
        from roofplan.present.charts.pool import of_simulation

        return of_simulation(found)

    reply.show(
        lambda page: simulation_screen(found, page),
        lambda: pool_simulate_answer(found, asked),
        pictures,
        title=f"roofplan pool simulate {asked.model}",
        result=found,
    )
