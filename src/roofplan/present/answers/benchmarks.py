"""The answer of ``roofplan benchmarks``."""

from __future__ import annotations

from roofplan.evidence.benchmarks import CITATION, Benchmarks, By, Result
from roofplan.inputs import BenchmarksInputs
from roofplan.present.answers.record import ABSENT, Answer, Json, answered, members, view


@members
class PredictedBenchmark:
    """What is predicted for a result: output tokens a second of all accelerators with the 90% interval, and on which layout.

    Parameters
    ----------
    unambiguous : whether the layout is: weights take at most half of one accelerator, so that each holds a replica.
    inside : whether the published figure is in the interval.
    """

    value: float
    low: float
    high: float
    unit: str
    grade: str
    layout: str
    unambiguous: bool
    strategy: str
    inside: bool


@members
class BenchmarkMember:
    """A published result and what is derived from it.

    Parameters
    ----------
    value : as published, in `unit`: token/s, or ms.
    per_accelerator, per_dollar, per_watt : token/s, token/USD and token/J; null without price, measured power or accelerators.
    ranks : place of the accelerator by each measure among those of the same task, scenario and category.
    predicted : null where nothing is, with the reason in `why`.
    source : where MLCommons publishes it.
    """

    round: str
    id: str
    category: str
    suite: str
    availability: str
    submitter: str
    platform: str
    model: str
    benchmark: str
    scenario: str
    accuracy: str
    accelerator: str
    accelerators: int | None
    device: str | None
    weights: str
    software: str
    output: float | None
    value: float
    unit: str
    price: float | None
    power: float | None
    per_accelerator: float | None
    per_dollar: float | None
    per_watt: float | None
    ranks: dict[By, int]
    predicted: PredictedBenchmark | None
    why: str
    source: str


@members
class BenchmarksAnswer(Answer):
    """Published results of language models in MLPerf Inference, and what is predicted for them."""

    benchmarks: list[BenchmarkMember] = ABSENT
    flips: list[str] = ABSENT
    inside: int = ABSENT
    judged: int = ABSENT
    times_as_fast_as_predicted: float = ABSENT
    citation: str = ABSENT


def benchmarks_answer(found: Benchmarks, asked: BenchmarksInputs) -> BenchmarksAnswer:
    """Return the answer of ``roofplan benchmarks``.

    Parameters
    ----------
    found : the chosen results.
    asked : inputs of the command.

    Returns
    -------
    The answer.
    """
    inside, judged = found.judged
    return answered(
        BenchmarksAnswer,
        "benchmarks",
        asked,
        benchmarks=[_member(one, board.ranks) for board in found.boards for one in board.results],
        flips=found.flips,
        inside=inside,
        judged=judged,
        times_as_fast_as_predicted=ABSENT if found.faster is None else found.faster,
        citation=CITATION,
    )


def _member(one: Result, ranks: dict[str, dict[By, int]]) -> BenchmarkMember:
    predicted = one.predicted
    beside = None
    if predicted is not None:
        beside = view(PredictedBenchmark, predicted, unit="token/s", inside=bool(one.inside))
    return view(BenchmarkMember, one, ranks=ranks.get(one.named, {}), predicted=beside)


def benchmark_rows(found: Benchmarks) -> list[Json]:
    """Return every chosen result as a row of a table.

    Parameters
    ----------
    found : the chosen results.

    Returns
    -------
    One row per result; what is not known is empty.
    """
    names = ("round", "id", "category", "benchmark", "model", "scenario", "submitter", "platform", "accelerator")
    more = (
        "accelerators",
        "device",
        "weights",
        "software",
        "value",
        "unit",
        "per_accelerator",
        "per_dollar",
        "per_watt",
    )
    rows = []
    for one in found.results:
        row: Json = {name: getattr(one, name) for name in (*names, *more)}
        p = one.predicted
        row |= {"predicted": p and p.value, "low": p and p.low, "high": p and p.high, "layout": p and p.layout}
        row |= {"inside": one.inside, "why": one.why, "source": one.source}
        rows.append({name: "" if value is None else value for name, value in row.items()})
    return rows
