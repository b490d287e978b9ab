"""A plan and its metrics; a search's request, tally and result."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from roofplan import money
from roofplan.laws import Number
from roofplan.laws.cost import per_token
from roofplan.money.machine import OwnershipTerms
from roofplan.money.prices import at_price
from roofplan.operations.table import Step, element_bytes
from roofplan.records import units
from roofplan.records.calibration import Fit
from roofplan.records.engine import Engine
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.source import GRADES, document
from roofplan.records.strategy import Strategy
from roofplan.records.tally import Counts
from roofplan.records.terms import Term
from roofplan.records.workload import Constraints, Workload
from roofplan.serving.bounds import bound_of, bounded, causes_of, floors
from roofplan.serving.certainty import by_constants, certainty
from roofplan.serving.ledger import Ledger
from roofplan.serving.prediction import Prediction, predict
from roofplan.serving.space import cache_format
from roofplan.serving.step import step_term
from roofplan.timing.figures import (
    FIRST_TOKEN,
    POWER,
    PROMPTS,
    THROUGHPUT,
    TIME_PER_TOKEN,
    Doubt,
    Limit,
    Load,
    Metric,
    Sure,
    sure,
    within,
)
from roofplan.timing.power import power_limits, wall_power
from roofplan.timing.rates import Rates

DEFAULT_TPOT = 0.05
"""Limit on the time between tokens if the user sets none: 20 tokens/s, a reader's pace [s]."""


OBJECTIVES = ("cost", "throughput", "latency", "devices", "energy")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One configuration with its predicted figures; intervals, and the Terms behind them, are derived when first asked for.

    Parameters
    ----------
    values : the figures by metric, in its unit; unknown ones are absent.
    pareto : whether no other plan is both faster and cheaper.
    tied : whether its objective is within 1% of the first plan's.
    ahead : the first plan of its ranking, None for that plan itself.
    ranked_by : objective of the ranking, of `OBJECTIVES`.
    utilisation : share of full load at which costs are counted [1].
    named : Hub name of the model as the user gave it.
    seats : limit of running sequences that the plan sets for each group, 0 if it sets none [1].
    under_load : what users feel at the demanded rate, None where nobody set a limit on it.
    """

    model: Model
    machine: Machine
    engine: Engine
    strategy: Strategy
    workload: Workload
    precision: str
    kv_precision: str
    users: int
    memory: Ledger
    rates: Rates
    values: Mapping[str, float]
    cost: money.HourlyCost | None
    pareto: bool = False
    tied: bool = False
    ahead: Plan | None = None
    ranked_by: str = ""
    utilisation: float = 1.0
    named: str = ""
    seats: int = 0
    under_load: UnderLoad | None = None

    @cached_property
    def prediction(self) -> Prediction:
        """Return the times and rates behind the figures, as Terms."""
        return self.predicted(self.rates)

    def predicted(self, r: Rates) -> Prediction:
        """Return the times and rates of the configuration at other rates of its devices and links."""
        return predict(
            self.model,
            self.strategy,
            self.engine,
            self.workload,
            r,
            float(self.users),
            kv_bytes=element_bytes(self.kv_precision),
            budget=self.memory.budget_tokens,
        )

    @cached_property
    def power(self) -> Term | None:
        """Return the power at the wall, None if unknown [W]."""
        return wall_power(self.machine, float(self.prediction.busy) * self.utilisation, self.rates.fit)

    @cached_property
    def metrics(self) -> Mapping[str, Metric]:
        """Return the figures by metric with their intervals; unknown ones are absent."""
        return metrics_of(self)

    @property
    def within_interval(self) -> bool:
        """Whether the 90% interval of its objective overlaps that of the first plan of its ranking."""
        if self.ahead is None:
            return False
        mine, first = (plan.interval(self.ranked_by) for plan in (self, self.ahead))
        return mine is not None and first is not None and mine[0] <= first[1]

    def interval(self, best: str) -> tuple[float, float] | None:
        """Return the 90% interval of an objective, lower ones better; None if it is a count or unknown."""
        m = self.metrics
        if best == "throughput":
            rate = m["output_tokens_per_second_per_device"]
            return -rate.high, -rate.low
        found = {"latency": self.pace, "energy": m.get("energy_per_output_token"), "cost": all_in_cost(self)}.get(best)
        return None if found is None else (found.low, found.high)

    @property
    def label(self) -> str:
        """Return the parallel strategy as text."""
        return self.strategy.label()

    @property
    def changes(self) -> str:
        """Changes of the model's number formats as text: weights, KV cache, or nothing."""
        own = cache_format(self.model, "checkpoint")
        weights = self.precision if self.precision != "checkpoint" else ""
        return " ".join(x for x in (weights, f"{self.kv_precision} cache" if self.kv_precision != own else "") if x)

    @property
    def changes_model(self) -> bool:
        """Whether the model's outputs differ from the checkpoint's."""
        return bool(self.changes)

    @property
    def pace(self) -> Metric:
        """Return the time between tokens; for answers of one token, the time of the whole request [s]."""
        return self.metrics.get("tpot") or self.metrics["cycle_time"]

    @property
    def causes(self) -> dict[str, float]:
        """Return the causes of the time between tokens (of the first token if no other follows): cause -> share [1]."""
        return causes_of(self.prediction.tpot or self.prediction.ttft)

    @property
    def cache_in_use(self) -> float:
        """Return the KV cache of the plan's users on the fullest rank [B]."""
        return min(self.memory.pool, self.memory.request * math.ceil(self.users / self.strategy.groups))

    @property
    def idle_devices(self) -> int:
        """Return the number of devices in replicas without users [1]."""
        replicas = self.strategy.replicas
        return self.machine.count // replicas * max(0, replicas - self.users)

    def cost_term(self) -> Term | None:
        """Return the all-in cost per million output tokens as a Term, None without a price."""
        whole = all_in_cost(self)
        if whole is None or self.cost is None:
            return None
        p = self.cost.price
        text = "1,000,000 x {devices} x {price} USD/h / ({rate} token/s x 3,600 s x load {load})"
        rate = self.metrics["output_tokens_per_second"].value
        numbers = {"devices": self.cost.count, "price": p.value, "rate": rate, "load": self.utilisation}
        return Term(
            "cost per million output tokens",
            whole.value,
            "USD/Mtoken",
            law="cost.per_token",
            text=text,
            numbers=numbers,
            sources=(document(p.source),),
        )

    @property
    def id(self) -> str:
        """Return a stable identifier of the configuration."""
        s = self.strategy.label().replace(" ", "-")
        return f"{self.machine.device.id}-{self.machine.hosts}x{self.machine.per_host}-{self.engine.id}-{s}-{self.precision}-{self.kv_precision}-u{self.users}"


class UnderLoad(NamedTuple):
    """What users feel of a plan at the demanded rate.

    Parameters
    ----------
    place : of the plan by its steady state [1].
    good : share of requests inside all limits [1].
    limits : of each limit, the figure with its percentile, the time there and the longest allowed [s].
    growth : requests a second by which the queue grows, 0 where it does not [1/s].
    """

    place: int
    good: float
    limits: tuple[tuple[str, float, float], ...]
    growth: float

    @property
    def holds(self) -> bool:
        """Whether all limits are kept by a queue that does not grow."""
        return not self.growth and all(time <= limit for _, time, limit in self.limits)


class Refusal(NamedTuple):
    """Why a machine or strategy was excluded.

    The limit is one of devices, datacenter, engine, price, budget, precision and strategy.
    """

    limit: str
    text: str


@dataclass(slots=True, kw_only=True)
class Tally(Counts):
    """Counts of a search; a configuration is one machine, strategy, precision and concurrency.

    A strategy that is refused or does not fit counts once, since it has no concurrency.
    """

    refusals: Counter[Refusal] = field(default_factory=Counter)
    misses: list[tuple[float, Machine, Strategy, Ledger, str, str]] = field(default_factory=list)

    def count_users(self, tried: list[int]) -> None:
        """Count the predicted concurrencies of strategies that fit; each strategy has been counted once already."""
        more = sum(tried) - len(tried)
        self.enumerated += more
        self.legal += more
        self.fits += more
        self.predicted += sum(tried)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A serving search's request; the engine's limit of running sequences is at least `seats`.

    Parameters
    ----------
    terms : ownership terms, used with price ``own``.
    settings : engine settings that replace its defaults, by launch flag.
    named : Hub name of the model as the user gave it, empty if it was not given by Hub name.
    """

    model: Model
    machines: tuple[Machine, ...]
    workload: Workload = field(default_factory=Workload)
    constraints: Constraints = field(default_factory=Constraints)
    engine: str | None = None
    pins: dict[str, int] = field(default_factory=dict)
    precisions: tuple[str, ...] = ("checkpoint",)
    kv_precisions: tuple[str, ...] = ("checkpoint",)
    price: str = "rent"
    terms: OwnershipTerms | None = None
    utilisation: float = 1.0
    best: str = "cost"
    seats: int = 0
    settings: Mapping[str, float] = field(default_factory=dict)
    named: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a plan with pinned degrees ranks among all plans of its machine.

    Parameters
    ----------
    place, of : its rank by the objective, and the number of plans [1].
    best : the first plan without pins.
    ratio : objective of the pinned plan over that of the first, above 1 if the first is better [1].
    within_interval : whether the difference is smaller than the two 90% intervals.
    """

    place: int
    of: int
    best: Plan
    ratio: float
    within_interval: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """A changed request that was tried with the plan's strategy, and its plan.

    Parameters
    ----------
    argument, needed : flag and value of the change.
    plan : the plan with the change.
    ratio : its objective over that of the unchanged plan, below 1 if it is better [1].
    """

    argument: str
    needed: str
    plan: Plan
    ratio: float


@dataclass(slots=True, kw_only=True)
class Result:
    """Ranked plans, best first, with ladder, tally and the fitted constants.

    Parameters
    ----------
    standing : how the first plan ranks among all plans of its machine, if degrees were pinned.
    smaller : plan of the smallest machine of the same kind that meets the demand, if the first plan's machine is
        larger.
    better : changes that improve the first plan, None until `roofplan.serving.better` was asked for them.
    """

    plans: list[Plan]
    ladder: list[Plan]
    tally: Tally
    asked: Request
    fit: Fit
    warnings: list[tuple[str, str]] = field(default_factory=list)
    standing: Standing | None = None
    smaller: Plan | None = None
    better: list[Improvement] | None = None


def sure_of(plan: Plan, figure: str, behind: Term, borne: tuple[int, float] | None = None) -> Sure:
    """Return the certainty of a figure derived from a time, of which `borne` may be known already.

    Users count as closed-loop clients; draft acceptance is a guess.
    """
    load: Load = "clients" if plan.users > 1 else "client"
    guessed = bool(plan.workload.drafted)
    return certainty(figure, behind, plan.model, plan.rates, load=load, guessed=guessed, borne=borne)


def figures_of(
    p: Prediction,
    workload: Workload,
    machine: Machine,
    load: Number,
    *,
    watts: Number | None,
    cost: money.HourlyCost | None,
) -> dict[str, Number]:
    """Return the figures of predicted configurations by metric, in its unit; unknown ones are absent.

    Parameters
    ----------
    p : times and rates, floats or arrays.
    workload : lengths of prompts and answers.
    machine : devices.
    load : utilisation at which costs are counted [1].
    watts : power at the wall, None if unknown [W].
    cost : of the machine per hour, None without a price.

    Returns
    -------
    Floats or arrays that broadcast to one shape.
    """
    out = {"ttft": p.ttft.value}
    if p.tpot is not None:  # answers of one token have no time between tokens
        out |= {"tpot": p.tpot.value, "tokens_per_second_per_user": 1.0 / p.tpot.value}
    out |= {
        "cycle_time": p.cycle.value,
        "output_tokens_per_second": p.rate,
        "output_tokens_per_second_per_device": p.rate / machine.count,
        "prefill_tokens_per_second": p.prefill_rate,
    }
    if watts is not None:
        out |= {"power": watts, "energy_per_output_token": watts / (p.rate * load)}
    if cost is not None:
        hourly, split = cost.total, p.input_share
        into = p.rate / workload.output * workload.input
        out["cost_per_hour"] = hourly
        out["cost_per_million_input_tokens"] = hourly * split / (into * load * units.HOUR) * 1e6
        if p.tpot is not None:  # the only token of a one-token answer comes with its prompt
            out["cost_per_million_output_tokens"] = hourly * (1.0 - split) / (p.rate * load * units.HOUR) * 1e6
        out[ALL_IN] = per_token(hourly / units.HOUR, p.rate * load) * 1e6
    return out


def metrics_of(plan: Plan) -> dict[str, Metric]:
    """Return the figures of one plan by metric with their intervals; unknown ones are absent."""
    p, fit, values = plan.prediction, plan.rates.fit, plan.values
    most = values["max_concurrency"]
    borne = by_constants(p.ttft, plan.rates)
    first, prompts = (sure_of(plan, figure, p.ttft, borne) for figure in (FIRST_TOKEN, PROMPTS))
    whole, between = sure_of(plan, THROUGHPUT, p.cycle), sure_of(plan, TIME_PER_TOKEN, p.pace)
    measured = {
        "ttft": first.of(values["ttft"], "s"),
        **{name: between.of(values[name], unit) for name, unit in BETWEEN_TOKENS.items() if name in values},
        "cycle_time": whole.of(values["cycle_time"], "s"),
        "output_tokens_per_second": whole.of(values["output_tokens_per_second"], "token/s"),
        "output_tokens_per_second_per_device": whole.of(values["output_tokens_per_second_per_device"], "token/s"),
        "prefill_tokens_per_second": prompts.of(values["prefill_tokens_per_second"], "token/s"),
        "max_concurrency": Metric(most, most, most, "1", between.grade),
    }
    least = floors(plan.model, plan.strategy, plan.workload, plan.rates, 1)
    out = bounded(measured, least, users=plan.users, first=least.first, devices=plan.machine.count)
    if plan.power is not None:
        known = max(whole.grade, "borrowed", key=GRADES.index)
        watts = sure(POWER, known, Doubt(), fit).of(values["power"], "W")
        out["power"] = within(watts, *power_limits(plan.machine, fit))
        out["energy_per_output_token"] = whole._replace(grade=known).of(values["energy_per_output_token"], "J")
    if plan.cost is not None:
        hourly = values["cost_per_hour"]
        low, high = (hourly * factor for factor in plan.cost.range)
        out["cost_per_hour"] = Metric(hourly, low, high, "USD/h", plan.cost.grade)
        out |= {name: _priced(values[name], plan, whole) for name in PER_TOKEN if name in values}
    return out


BETWEEN_TOKENS = {"tpot": "s", "tokens_per_second_per_user": "token/s"}
"""Metrics of the time between tokens, with their units."""


ALL_IN = "cost_per_million_output_tokens_all_in"
"""Metric name of the whole cost of the machine over the output tokens, prompts included."""

PER_TOKEN = ("cost_per_million_input_tokens", "cost_per_million_output_tokens", ALL_IN)
"""Metrics of the cost of tokens."""


def all_in_cost(plan: Plan) -> Metric | None:
    """Return the whole cost per million output tokens, prompts included, at the stated load.

    Parameters
    ----------
    plan : a plan with its metrics.

    Returns
    -------
    The metric [USD/Mtoken], None without a price.
    """
    return plan.metrics.get(ALL_IN)


HALF = 0.5
"""Prefix-hit rate assumed for the cost of cached tokens when --prefix-hit is not given [1]."""


def cached_input_cost(plan: Plan) -> Metric | None:
    """Return the cost per million cached input tokens, None without a price [USD/Mtoken].

    It covers the extra prefill time of the prompt's other tokens, which read and attend to the cached ones. The cache
    memory that they occupy between requests is not counted, because it is unknown how long they stay.
    """
    if plan.cost is None:
        return None
    load, s = plan.workload, plan.strategy
    hit = load.prefix_hit or HALF
    fresh, past = max(1.0, (1.0 - hit) * load.input), hit * load.input

    def seconds(cached: float) -> float:
        step = Step(new=fresh, past=cached, requests=1.0)
        kv_bytes = element_bytes(plan.kv_precision)
        return float(step_term("prefill", plan.model, s, step, plan.rates, kv_bytes=kv_bytes).value)

    each = (seconds(past) - seconds(0.0)) / past / (float(s.dp) * float(s.attention_dp))
    value = plan.cost.total / units.HOUR * each / plan.utilisation * 1e6
    return _priced(value, plan, sure_of(plan, THROUGHPUT, plan.prediction.cycle))


def uncached_input_cost(plan: Plan) -> Metric | None:
    """Return the cost per million uncached input tokens, None without a price [USD/Mtoken].

    It is the cost of all input minus that of cached tokens, divided by the uncached tokens, so that both add up to the
    request's cost.
    """
    cached, hit = cached_input_cost(plan), plan.workload.prefix_hit
    if cached is None:
        return None
    mean = plan.metrics["cost_per_million_input_tokens"]
    value = (mean.value - hit * cached.value) / (1.0 - hit) if hit < 1.0 else mean.value
    return _priced(max(value, cached.value), plan, sure_of(plan, THROUGHPUT, plan.prediction.cycle))


def _priced(value: float, plan: Plan, speed: Sure) -> Metric:
    """Return a cost per token with the certainty of the plan's speed and of its hourly price."""
    return at_price(speed.of(value, "USD/Mtoken"), plan.cost)


def bounds(plan: Plan) -> dict[str, tuple[Limit, float]]:
    """Return the limits that bind decode and prefill; answers of one token have no decode.

    Parameters
    ----------
    plan : the plan.

    Returns
    -------
    Limit and its share of the time, by phase.
    """
    between, first = plan.prediction.tpot, bound_of(plan.prediction.ttft)
    return {"prefill": first} if between is None else {"decode": bound_of(between), "prefill": first}


def first_bound(plan: Plan) -> tuple[Limit, float]:
    """Return the limit that binds decode, or prefill if nothing is decoded.

    Parameters
    ----------
    plan : a plan with its times.

    Returns
    -------
    The limit, and its share of the time [1].
    """
    return next(iter(bounds(plan).values()))
