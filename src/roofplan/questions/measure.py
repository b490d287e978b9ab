"""What was seen of endpoints, machines and engines: ``roofplan measure``, ``runs``, ``import`` and ``compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from roofplan.inputs import (
    CompareInputs,
    ImportInputs,
    MeasureInputs,
    MemoryInputs,
    ProbeInputs,
    RunsInputs,
    StabilityInputs,
)
from roofplan.questions.question import Reply, Row, question

if TYPE_CHECKING:
    from roofplan.present.screens.page import Page


@question(
    MeasureInputs,
    *("json", "csv", "html", "request"),
    example="http://127.0.0.1:8000 --clients 4",
    name="measure endpoint",
    python="measure_endpoint",
    csv="write every request to FILE",
)
def endpoint(asked: MeasureInputs, reply: Reply) -> int:
    """Put a load on an OpenAI-compatible server: first tokens, time per token, failures, and what is predicted for it."""
    from roofplan import observe
    from roofplan.measure.ledger import place
    from roofplan.present.answers import seen
    from roofplan.present.screens.seen import measure_screen

    reply.check_table()
    reply.check_places()
    with reply.progress("requests") as tick:
        found = observe.measure_endpoint(asked, progress=tick, **({"ledger": place()} | dict(reply.beside)))
    reply.table(lambda: seen.sample_rows(found.run.samples))

    def pictures() -> list[Row]:
        from roofplan.present.charts.seen import of_run

        return of_run(found)

    reply.show(
        lambda page: measure_screen(found, page),
        lambda: seen.measure_answer(found, asked),
        pictures,
        title=f"roofplan measure endpoint {asked.url}",
        result=found,
    )
    return 0 if found.kept else 1


@question(
    StabilityInputs,
    *("json", "csv", "html", "request"),
    example="http://127.0.0.1:8000 --every 60s --for 24h",
    name="measure stability",
    python="measure_stability",
    csv="write every probe to FILE",
)
def stability(asked: StabilityInputs, reply: Reply) -> int:
    """Probe an endpoint once a minute for a day: share of long first tokens, hours, changes, outages."""
    from roofplan import observe
    from roofplan.measure.ledger import place
    from roofplan.present.answers import seen
    from roofplan.present.screens.seen import stability_screen

    reply.check_table()
    reply.check_places()
    with reply.progress("probes") as tick:
        found = observe.measure_stability(asked, progress=tick, **({"ledger": place()} | dict(reply.beside)))
    reply.table(lambda: seen.sample_rows(found.samples))

    def pictures() -> list[Row]:
        from roofplan.present.charts.seen import over_time

        return over_time(found.samples)

    reply.show(
        lambda page: stability_screen(found, page),
        lambda: seen.stability_answer(found, asked),
        pictures,
        title=f"roofplan measure stability {asked.url}",
        result=found,
    )
    return 0 if found.kept else 1


@question(
    ProbeInputs,
    *("json", "csv", "html", "request"),
    example="--out chip.toml",
    name="measure machine",
    python="measure_machine",
    csv="write every figure to FILE",
)
def machine(asked: ProbeInputs, reply: Reply) -> int:
    """What this machine attains: products by shape, memory by size, launches, links; and a chip that every command plans with."""
    from roofplan import observe
    from roofplan.measure.ledger import place
    from roofplan.present.answers import machine as answers
    from roofplan.present.screens.machine import machine_screen

    reply.check_table()
    reply.check_places(out=asked.out)
    if asked.listen is not None:
        from roofplan.measure.machine.hosts import listen

        taken = listen(
            asked.listen, lambda place: reply.remark(f"listening on {place}: --link {place} from the other host")
        )
        reply.show(lambda page: page.line(f"{taken:,} bytes came"), lambda: answers.nothing_answer(asked))
        return 0
    with reply.progress("figures") as tick:
        found = observe.measure_machine(asked, progress=tick, **({"ledger": place()} | dict(reply.beside)))
    if asked.out is not None:
        Path(asked.out).write_text(found.chip, encoding="utf-8")
    reply.table(lambda: answers.figure_rows(found))

    def pictures() -> list[Row]:
        from roofplan.present.charts.machine import of_machine

        return of_machine(found)

    reply.show(
        lambda page: machine_screen(found, page, asked.out),
        lambda: answers.machine_answer(found, asked),
        pictures,
        title="roofplan measure machine",
        result=found,
    )
    return 0


@question(MemoryInputs, "json", example="vllm.log --on h100-sxm:1", name="measure memory", python="measure_memory")
def memory(asked: MemoryInputs, reply: Reply) -> int:
    """The start-up log of an engine beside our ledger, its cache to the block, and which flag helps where it did not start."""
    from roofplan import observe
    from roofplan.present.answers.memory import memory_answer
    from roofplan.present.screens.memory import memory_screen

    found = observe.measure_memory(asked)
    reply.show(lambda page: memory_screen(found, page), lambda: memory_answer(found, asked), result=found)
    return int(not found.holds)


@question(RunsInputs, *("json", "csv", "html"), csv="write the list, or every request of a run, to FILE")
def runs(asked: RunsInputs, reply: Reply) -> int:
    """What was measured: the list, or one run again, beside a plan if one is given."""
    from roofplan import observe
    from roofplan.measure.ledger import place
    from roofplan.present.answers import seen
    from roofplan.present.answers.record import plain
    from roofplan.present.screens.machine import machine_screen
    from roofplan.present.screens.seen import measure_screen, runs_screen, stability_screen

    reply.check_table()
    found = observe.runs(asked, ledger=place())
    if found.removed is not None:
        reply.show(lambda page: page.line(f"removed run {found.removed}"), lambda: seen.runs_answer(found, asked))
        return 0
    one, probes = found.one, found.probes
    samples = one.run.samples if one is not None else probes.samples if probes is not None else None
    reply.table(
        lambda: [plain(seen.kept_member(each)) for each in found.kept] if samples is None else seen.sample_rows(samples)
    )

    def pictures() -> list[Row]:
        from roofplan.present.charts.seen import of_run, over_time

        return of_run(one) if one is not None else over_time(samples or [])

    def screen(page: Page) -> None:
        if one is not None:
            measure_screen(one, page)
        elif probes is not None:
            stability_screen(probes, page)
        elif found.machine is not None:
            machine_screen(found.machine, page)
        else:
            runs_screen(found.kept, found.place, page)

    reply.show(screen, lambda: seen.runs_answer(found, asked), pictures)
    return 0


@question(ImportInputs, "json", name="import", example="results.json")
def import_(asked: ImportInputs, reply: Reply) -> None:
    """Take over the results of another tool, with its names turned into ours."""
    from roofplan import observe
    from roofplan.measure.ledger import place
    from roofplan.present.answers import seen
    from roofplan.present.screens.seen import runs_screen

    where = place()
    kept = observe.import_file(asked, ledger=where)
    reply.show(lambda page: runs_screen(kept, str(where), page), lambda: seen.import_answer(kept, asked))


@question(CompareInputs, *("json", "html"), example="plan.json 17")
def compare(asked: CompareInputs, reply: Reply) -> int:
    """A plan beside a run: figure by figure, whether the interval held, and what explains the difference."""
    from roofplan import observe
    from roofplan.measure.ledger import place
    from roofplan.present.answers import seen
    from roofplan.present.screens.seen import measure_screen

    found = observe.compare(asked, ledger=place())

    def pictures() -> list[Row]:
        from roofplan.present.charts.seen import of_run

        return of_run(found)

    reply.show(lambda page: measure_screen(found, page), lambda: seen.compare_answer(found, asked), pictures)
    return 1 if any(one.inside is False for one in found.figures) else 0
