"""MLPerf Inference for language models: published results per accelerator, dollar and watt, ranked, and what is predicted for them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, pairwise
from statistics import median
from typing import Literal

from roofplan import catalogue, hf
from roofplan.catalogue.codec import Table
from roofplan.errors import InputError, RoofplanError, choice, nearest, unwrap
from roofplan.inputs import BenchmarksInputs, ServeInputs
from roofplan.money.machine import hourly
from roofplan.records.calibration import Fit
from roofplan.records.hardware import Machine
from roofplan.records.strategy import Strategy
from roofplan.serving.plan import Plan
from roofplan.serving.request import request_of
from roofplan.serving.run import best_plan

By = Literal["device", "USD", "W"]

SCENARIOS = ("Offline", "Server", "Interactive", "SingleStream")
CATEGORIES = ("closed", "open")
BY: tuple[By, ...] = ("device", "USD", "W")

CITATION = (
    "MLCommons' published MLPerf Inference results, retrieved 2026-11; MLPerf is a trademark of MLCommons Association. "
    "Figures per accelerator, dollar and watt, ranks and predictions are derived here and are not MLPerf results"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What is predicted for a row.

    Parameters
    ----------
    value, low, high : tokens a second of all accelerators, with the 90% interval over the range of prompts [token/s].
    layout : how a model lies on the accelerators.
    unambiguous : whether the layout is: the weights take at most half of one accelerator, so that each holds a replica.
    strategy : parallel degrees of one replica.
    """

    value: float
    low: float
    high: float
    grade: str
    layout: str
    unambiguous: bool
    strategy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One published result.

    Parameters
    ----------
    accelerators : in all, None where only processors computed [1].
    value : in `unit`, token/s or ms.
    device : id of the accelerator in the catalogue, None where it is not there.
    price : rent of one accelerator, None where none is known [USD/h].
    power : of the whole system, None where it was not measured [W].
    predicted : None where nothing is, with the reason in `why`.
    source : where it is published.
    """

    round: str
    id: str
    category: str
    suite: str
    availability: str
    submitter: str
    platform: str
    accelerator: str
    accelerators: int | None
    per_node: int
    model: str
    benchmark: str
    accuracy: str
    scenario: str
    value: float
    unit: str
    output: float | None
    weights: str
    software: str
    device: str | None
    price: float | None
    power: float | None
    source: str
    predicted: Predicted | None = None
    why: str = ""

    @property
    def named(self) -> str:
        """Id of the accelerator, its published name where the catalogue has none."""
        return self.device or self.accelerator or "processors alone"

    @property
    def per_accelerator(self) -> float | None:
        """Tokens a second of one accelerator; None for times and for processors alone [token/s]."""
        return None if self.unit == "ms" or not self.accelerators else self.value / self.accelerators

    @property
    def per_dollar(self) -> float | None:
        """Tokens for a dollar of rent, None without a price [token/USD]."""
        each = self.per_accelerator
        return None if each is None or not self.price else each * 3600.0 / self.price

    @property
    def per_watt(self) -> float | None:
        """Tokens for a joule of the whole system, None where power was not measured [token/J]."""
        return None if self.unit == "ms" or not self.power else self.value / self.power

    def by(self, what: By) -> float | None:
        """Return the figure that rows are ranked by."""
        return {"device": self.per_accelerator, "USD": self.per_dollar, "W": self.per_watt}[what]

    @property
    def inside(self) -> bool | None:
        """Whether the published figure is inside the predicted interval, None without a prediction."""
        one = self.predicted
        return None if one is None else one.low <= self.value <= one.high


@dataclass(frozen=True, slots=True)
class Board:
    """Results of one task and scenario, the best of each accelerator first.

    Parameters
    ----------
    results : in the order of the rank.
    ranks : accelerator -> place by each measure, best first.
    """

    task: str
    scenario: str
    category: str
    results: list[Result]
    ranks: dict[str, dict[By, int]]


@dataclass(frozen=True, slots=True)
class Benchmarks:
    """Chosen results, and where their ranks flip.

    Parameters
    ----------
    boards : one of each task and scenario.
    flips : what one measure or scenario ranks first and another second.
    """

    boards: list[Board]
    flips: list[str]

    @property
    def results(self) -> list[Result]:
        """All chosen results."""
        return [one for board in self.boards for one in board.results]

    @property
    def judged(self) -> tuple[int, int]:
        """Systems whose layout is unambiguous and that are predicted: those of whose results most are inside, and all [1]."""
        systems: dict[tuple[str | None, str, str], list[bool]] = {}
        for one in self.results:
            if one.predicted is not None and one.predicted.unambiguous:
                systems.setdefault((one.device, one.model, one.weights), []).append(bool(one.inside))
        return sum(2 * sum(inside) > len(inside) for inside in systems.values()), len(systems)

    @property
    def faster(self) -> float | None:
        """How many times as fast as predicted the results of unambiguous layouts are, in the median; None without any [1]."""
        ratios = [one.value / p.value for one in self.results if (p := one.predicted) is not None and p.unambiguous]
        return median(ratios) if ratios else None


@lru_cache(maxsize=1)
def published() -> tuple[Result, ...]:
    """Return every published result of the catalogue, without prices and predictions.

    Returns
    -------
    The results in the order of the table.
    """
    with (catalogue.ROOT / "benchmarks" / "mlperf.csv").open(newline="") as file:
        return tuple(_result(row) for row in csv.DictReader(file))


def _result(row: dict[str, str]) -> Result:
    tasks, known = catalogue.mlperf()["tasks"], catalogue.mlperf()["accelerators"]
    stated = float(row["mean_output_tokens"]) if row["mean_output_tokens"] else None
    assumed = tasks.get(row["model"], {}).get("output")
    return Result(
        round=row["round"],
        id=row["id"],
        category=row["category"],
        suite=row["suite"],
        availability=row["availability"],
        submitter=row["submitter"],
        platform=row["platform"],
        accelerator=row["accelerator"],
        accelerators=int(row["accelerators"]) if row["accelerators"] else None,
        per_node=int(row["accelerators_per_node"] or 0),
        model=row["model"],
        benchmark=row["benchmark"],
        accuracy=row["accuracy_target"],
        scenario=row["scenario"],
        value=float(row["value"]),
        unit="token/s" if row["unit"] == "tokens/s" else row["unit"],
        output=stated or assumed,
        weights=row["weight_data_types"],
        software=row["software"],
        device=known.get(row["accelerator"]),
        price=None,
        power=float(row["power_w"]) if row["power_w"] else None,
        source=f"{catalogue.mlperf()['rounds'][row['round']]} {row['id']}",
    )


def chosen(asked: BenchmarksInputs, fit: Fit, tick: Callable[[int, int], None] | None = None) -> Benchmarks:
    """Return the results that inputs ask for, each beside what is predicted for it.

    Parameters
    ----------
    asked : model, scenario, round, category and measure.
    fit : constants that predictions rest on.
    tick : called with the results that are predicted and all of them, None for no progress.

    Returns
    -------
    Boards of each task and scenario, and where ranks flip.

    Raises
    ------
    InputError : a scenario, round, category, measure or device that is none, or a model without results.
    """
    by = measures_of(asked.per)[0]
    rows = _kept(asked)
    prices = {one.device: _price(one.device, asked.price, fit) for one in rows if one.device is not None}
    rows = [replace(one, price=prices.get(one.device or "")) for one in rows]
    boards = []
    shown = _shown(rows, asked, by)
    total, done = sum(len(found) for _, found in shown), 0
    for key, found in shown:
        predicted = []
        for one in found:
            predicted.append(beside(one, fit))
            done += 1
            if tick is not None:
                tick(done, total)
        boards.append(Board(*key, predicted, _ranks([one for one in rows if _key(one) == key])))
    return Benchmarks(boards, list(_flips(rows)))


def _kept(asked: BenchmarksInputs) -> list[Result]:
    """Return the published results that filters leave."""
    rows = list(published())
    rounds = sorted(catalogue.mlperf()["rounds"])
    for name, given, known in (
        ("scenario", asked.scenario, SCENARIOS),
        ("category", asked.category, CATEGORIES),
        ("round", asked.round, tuple(rounds)),
    ):
        if given is not None:
            wanted = {word.lower(): word for word in known}[
                choice(given, [word.lower() for word in known], f"--{name}")
            ]
            rows = [one for one in rows if getattr(one, name) == wanted]
    if asked.device is not None:
        device = catalogue.find("accelerators", asked.device, "--device")
        rows = [one for one in rows if one.device == device]
    if asked.model is not None:
        rows = _of_model(rows, str(asked.model))
    return rows


def _of_model(rows: list[Result], name: str) -> list[Result]:
    """Return the results of a task, by its name or that of the catalogue's model."""
    tasks: Table = catalogue.mlperf()["tasks"]
    named = catalogue.aliases("models").get(name.lower(), name.lower())
    wanted = {task for task, entry in tasks.items() if named == entry["model"]} | {name.lower()}
    found = [one for one in rows if {one.benchmark.lower(), one.model.lower()} & wanted]
    if not found and not any({one.benchmark.lower(), one.model.lower()} & wanted for one in published()):
        known = sorted({one.benchmark for one in published()})
        message = f"MODEL: no MLPerf results of {name}; there are of: {', '.join(known)}"
        raise InputError(message, argument="MODEL", value=name, nearest=nearest(name, known))
    return found


def _price(device: str, way: str, fit: Fit) -> float | None:
    """Return what an hour of an accelerator costs, None where it is not known [USD/h]."""
    machine = Machine(device=catalogue.accelerator(device), hosts=1, per_host=1, text=f"{device}:1")
    found = hourly(machine, way, fit)
    return None if found is None else found.per_device


def _key(one: Result) -> tuple[str, str, str]:
    task = one.benchmark if one.model == one.benchmark else f"{one.benchmark} by {one.model}"
    return task, one.scenario, f"{one.category}, {one.suite}"


def _place(one: Result, by: By) -> tuple[bool, float, float]:
    """Return what results are sorted by: the measure, those without it after all others by their rate."""
    value = one.by(by)
    return value is not None, value or 0.0, one.per_accelerator or 0.0


def measures_of(text: str) -> tuple[By, ...]:
    """Return the measures in a text such as ``device,USD,W``; the first one ranks.

    Parameters
    ----------
    text : the text.

    Returns
    -------
    The measures.

    Raises
    ------
    InputError : none of them.

    Examples
    --------
    >>> measures_of("usd,device")
    ('USD', 'device')
    """
    known = {one.lower(): one for one in BY}
    return tuple(known[choice(part, known, "--per")] for part in text.split(","))


def _shown(rows: Sequence[Result], asked: BenchmarksInputs, by: By) -> list[tuple[tuple[str, str, str], list[Result]]]:
    """Return the rows to show of each board: the best of each accelerator, or all with ``--all``."""
    out = []
    for key in dict.fromkeys(_key(one) for one in rows):
        best = sorted((one for one in rows if _key(one) == key), key=lambda one: _place(one, by))
        found = best if asked.all else list({one.named: one for one in best}.values())
        out.append((key, sorted(found, key=lambda one: _place(one, by), reverse=True)))
    order = {name: place for place, name in enumerate(SCENARIOS)}
    return sorted(out, key=lambda item: (item[0][2], item[0][0], order[item[0][1]]))


def _best(rows: Sequence[Result], by: By) -> list[str]:
    """Return accelerators in the order of their best result, those without the figure left out."""
    best: dict[str, float] = {}
    for one in rows:
        value = one.by(by)
        if value is not None:
            best[one.named] = max(best.get(one.named, 0.0), value)
    return sorted(best, key=lambda name: -best[name])


def _ranks(rows: Sequence[Result]) -> dict[str, dict[By, int]]:
    ranks: dict[str, dict[By, int]] = {}
    for by in BY:
        for place, name in enumerate(_best(rows, by), start=1):
            ranks.setdefault(name, {})[by] = place
    return ranks


def _flips(rows: Sequence[Result]) -> Iterator[str]:
    """Yield what ranks two accelerators one way and another the other way, in the closed category: scenarios, then measures."""
    closed = [one for one in rows if one.category == "closed"]
    for task in dict.fromkeys(one.benchmark for one in closed):
        of_task = [one for one in closed if one.benchmark == task]
        orders = {s: _best([one for one in of_task if one.scenario == s], "device") for s in SCENARIOS}
        for (first, a), (second, b) in combinations([(s, order) for s, order in orders.items() if order], 2):
            for left, right in _swapped(a, b):
                yield f"{task}: {left} is ahead of {right} in {first}, behind it in {second}"
        offline = [one for one in of_task if one.scenario == "Offline"]
        each = _best(offline, "device")
        for by in BY[1:]:
            for left, right in _swapped(each, _best(offline, by)):
                yield f"{task} Offline: {left} is ahead of {right} per device, behind it per {by}"


def _swapped(first: Sequence[str], second: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the neighbours of one order that stand the other way round in another."""
    both = [name for name in first if name in second]
    for left, right in pairwise(both):
        if second.index(left) > second.index(right):
            yield left, right


def beside(one: Result, fit: Fit) -> Result:
    """Return a result with what is predicted for it, or with the reason why nothing is.

    Parameters
    ----------
    one : the result.
    fit : constants that the prediction rests on.

    Returns
    -------
    The result.
    """
    why = _unpredicted(one)
    if why:
        return replace(one, why=why)
    task = catalogue.mlperf()["tasks"][one.model]
    precision = catalogue.mlperf()["formats"][one.weights]
    software = next(name for name in ("vllm", "tensorrt") if name in one.software.lower())
    engine = catalogue.mlperf()["engines"][one.round][software]
    output = round(float(f"{unwrap(one.output):.2g}"))  # rows that differ by a percent share a plan
    alone = _planned(task["model"], f"{one.device}:1", precision, engine, max(task["input"]), output, fit)
    count = 1 if isinstance(alone, Plan) and alone.memory.weights <= HALF * alone.memory.capacity else one.per_node
    ends: list[Plan] = []
    for prompt in (sum(task["input"]) / 2.0, *task["input"]):
        layout = ends[0].strategy if ends else None  # a run has one layout, however long its prompts turn out
        found = _planned(task["model"], f"{one.device}:{count}", precision, engine, prompt, output, fit, layout)
        if isinstance(found, str):
            return replace(one, why=found)
        ends.append(found)
    times = (one.accelerators or count) / count
    rates = [end.metrics["output_tokens_per_second"] for end in ends]
    predicted = Predicted(
        value=rates[0].value * times,
        low=min(rate.low for rate in rates) * times,
        high=max(rate.high for rate in rates) * times,
        grade=rates[0].grade,
        layout="a replica on each accelerator" if count == 1 else f"not stated: our best on the {count} of a node",
        unambiguous=count == 1,
        strategy=ends[0].strategy.label(),
    )
    return replace(one, predicted=predicted)


def _unpredicted(one: Result) -> str:
    """Return why nothing is predicted for a result, empty where something is."""
    if one.scenario != "Offline":
        return "a limit on latencies decides it, not the most that fits: roofplan simulate MODEL --find rate"
    if one.device is None:
        return (
            "its accelerators are not in the catalogue, or are of two kinds" if one.accelerator else "processors alone"
        )
    if one.model not in catalogue.mlperf()["tasks"]:
        return f"{one.model} is not in the catalogue"
    if one.weights not in catalogue.mlperf()["formats"]:
        return f"{one.weights} weights: not the running format, or one that is not described"
    if not any(name in one.software.lower() for name in ("vllm", "tensorrt")):
        return "its software is not in the catalogue"
    return "" if one.output else "the length of its answers is not known"


HALF = 0.5
"""Share of an accelerator's memory that weights take at most where a replica on each is the unambiguous layout [1]."""


@lru_cache(maxsize=1024)
def _planned(
    model: str,
    on: str,
    precision: str,
    engine: str,
    prompt: float,
    output: int,
    fit: Fit,
    layout: Strategy | None = None,
) -> Plan | str:
    """Return the plan that serves the most, in the best layout or a given one, or why there is none."""
    inputs = ServeInputs(
        model=model,
        on=(on,),
        input=str(round(prompt)),
        output=str(output),
        precision=precision,
        kv_precision="fp8",
        engine=engine,
        best="throughput",
    )
    try:
        request, _ = request_of(hf.of_catalogue(model), inputs)
        return best_plan(request if layout is None else replace(request, pins=layout.as_dict()), fit)
    except RoofplanError as error:
        return error.message
