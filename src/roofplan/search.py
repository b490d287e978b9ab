"""Every legal strategy of every machine, predicted as arrays, filtered by constraints, ordered by an objective.

One machine's strategies and concurrencies form one grid (strategy x users); memory prunes it first. Plans whose
objective lies within the best one's interval are ties, simplest first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from roofplan import catalogue, economics, units
from roofplan.errors import NoPlan, StrategyError
from roofplan.hf.quantization import with_formats
from roofplan.operations import compute_format, element_bytes, format_entry
from roofplan.records.engine import Engine
from roofplan.records.hardware import Machine
from roofplan.records.model import Model, Quantization
from roofplan.records.strategy import Strategy
from roofplan.records.workload import Constraints, Workload
from roofplan.serve import Ledger, Prediction, bound_of, footprint, legal, ledger, predict, supported, wall_power
from roofplan.terms import Term
from roofplan.timing import GRADES, Rates, rates

DEFAULT_TPOT = 0.05
"""Time between tokens that chooses which concurrency is shown where nothing is asked: 20 tokens/s, a reader's pace [s]."""

Z90 = 1.645
"""Standard deviations of a 90% interval of a normal distribution."""

GRADE_SPREAD = {"measured": 0.05, "calibrated": 0.15, "borrowed": 0.25, "guessed": 0.40}
"""Stated prior of the relative error by grade, one standard deviation, until intervals are earned on unseen rows [1]."""

OBJECTIVES = ("cost", "throughput", "latency", "devices", "energy")
CHUNK = 8192
"""Configurations expanded at once."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A predicted number with its 90% interval and grade."""

    value: float
    low: float
    high: float
    unit: str
    grade: str

    def as_json(self) -> dict[str, Any]:
        """Return the metric as JSON."""
        return {"value": self.value, "low": self.low, "high": self.high, "unit": self.unit, "grade": self.grade}


def metric(value: float, unit: str, grade: str) -> Metric:
    """Return a metric with the interval that its grade states: log-normal, so that it never crosses zero."""
    spread = math.exp(Z90 * GRADE_SPREAD[grade])
    return Metric(value, value / spread, value * spread, unit, grade)


@dataclass(slots=True, kw_only=True)
class Plan:
    """One configuration with everything that is known of it."""

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
    prediction: Prediction
    cost: economics.HourlyCost | None
    power: Term | None
    metrics: dict[str, Metric] = field(default_factory=dict)
    pareto: bool = False
    tied: bool = False
    reason: str = ""
    changes_model: bool = False

    @property
    def label(self) -> str:
        """Return the strategy, and the precision where it is not the checkpoint's."""
        return self.strategy.label()

    @property
    def id(self) -> str:
        """Return a stable identifier of the configuration."""
        s = self.strategy.label().replace(" ", "-")
        return f"{self.machine.device.id}-{self.machine.hosts}x{self.machine.per_host}-{self.engine.id}-{s}-{self.precision}-{self.kv_precision}-u{self.users}"


@dataclass(slots=True, kw_only=True)
class Tally:
    """What the search went through; a configuration is one machine, strategy, precision and concurrency."""

    enumerated: int = 0
    legal: int = 0
    fits: int = 0
    predicted: int = 0
    seconds: float = 0.0
    refusals: dict[str, int] = field(default_factory=dict)
    misses: list[tuple[float, Machine, Strategy, Ledger, str, str]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the ``search`` member of the answer."""
        return {"enumerated": self.enumerated, "legal": self.legal, "fits": self.fits, "predicted": self.predicted, "seconds": self.seconds}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """All that a serving search is asked."""

    model: Model
    machines: tuple[Machine, ...]
    workload: Workload = Workload()
    constraints: Constraints = Constraints()
    engine: str | None = None
    pins: dict[str, int] = field(default_factory=dict)
    precisions: tuple[str, ...] = ("checkpoint",)
    kv_precisions: tuple[str, ...] = ("checkpoint",)
    price: str = "rent"
    best: str = "cost"


@dataclass(slots=True, kw_only=True)
class Result:
    """Plans in order, the best first; ladder and tally beside them."""

    plans: list[Plan]
    ladder: list[Plan]
    tally: Tally
    asked: Request
    warnings: list[tuple[str, str]] = field(default_factory=list)


# Choices -----------------------------------------------------------------------------------------


def choose_engine(name: str | None, machine: Machine, precision: str) -> Engine | None:
    """Return the engine: what was asked, else llama.cpp for its formats and for Apple, else vLLM, else the first that runs."""
    if name is not None:
        found = catalogue.engine(catalogue.find("engines", name, "--engine"))
        return found if supported(found, machine) is None else None
    gguf = precision != "checkpoint" and format_entry(precision).get("gguf")
    order = ["llama.cpp"] if gguf or machine.device.device_class == "apple" else ["vllm", "sglang", "tensorrt-llm", "llama.cpp"]
    for candidate in order:
        found = catalogue.engine(catalogue.find("engines", candidate, "--engine"))
        if supported(found, machine) is None:
            return found
    return None


def at_precision(model: Model, precision: str) -> Model:
    """Return the model with its weights in another format; ``checkpoint`` leaves it."""
    if precision == "checkpoint":
        return model
    entry = format_entry(precision)
    if entry["kernel"] == "native" and float(entry["bits"]) >= 16:
        return with_formats(replace(model, dtype=precision), None, precision)
    activation = {"fp8": "fp8", "fp8-block": "fp8", "mxfp8": "fp8", "int8": "int8", "nvfp4": "fp4"}.get(precision)
    return with_formats(model, Quantization(format=precision, activation=activation), model.dtype)


def cache_format(model: Model, asked: str) -> str:
    """Return the format of the cache: what was asked, what the checkpoint states, else the model's 16-bit type."""
    if asked != "checkpoint":
        return asked
    plan = model.quantization
    if plan is not None and plan.kv:
        return plan.kv
    return model.dtype if model.dtype in {"bf16", "fp16"} else "bf16"


def divisors(count: int) -> list[int]:
    """Return the divisors of a whole number."""
    return [d for d in range(1, count + 1) if count % d == 0]


def strategies(model: Model, machine: Machine, engine: Engine, pins: dict[str, int]) -> list[Strategy]:
    """Return every strategy whose degrees multiply to the device count under the engine's identity; axes without effect are collapsed."""
    found: dict[tuple[int, ...], Strategy] = {}
    for tp in divisors(machine.count):
        for pp in divisors(machine.count // tp):
            dp = machine.count // tp // pp
            for candidate in _variants(tp, pp, dp, model, engine):
                degrees = candidate.as_dict()
                if all(degrees.get(name) == value for name, value in pins.items()):
                    found.setdefault(tuple(degrees.values()), candidate)
    return list(found.values())


def _variants(tp: int, pp: int, dp: int, model: Model, engine: Engine) -> list[Strategy]:
    made = [Strategy(tp=tp, pp=pp, dp=dp)]
    if model.experts and engine.expert:
        if engine.expert_identity == "tp*dp" and engine.data and tp * dp > 1:
            made.append(Strategy(tp=tp, pp=pp, dp=dp, ep=tp * dp))
        elif tp > 1:
            made.append(Strategy(tp=tp, pp=pp, dp=dp, ep=tp))
    if engine.data_attention and tp > 1 and (model.latent or model.experts):
        for inner in divisors(tp)[1:]:
            made.append(Strategy(tp=tp, pp=pp, dp=dp, attention_dp=inner))
            if model.experts:
                made.append(Strategy(tp=tp, pp=pp, dp=dp, ep=tp, attention_dp=inner))
    return made


def check_pins(pins: dict[str, int], machines: Sequence[Machine]) -> None:
    """Refuse degrees that no machine can hold."""
    product = math.prod(value for name, value in pins.items() if name in {"tp", "pp", "dp"})
    if machines and all(machine.count % product for machine in machines):
        counts = ", ".join(str(n) for n in sorted({m.count for m in machines}))
        text = ",".join(f"{name}={value}" for name, value in pins.items())
        raise StrategyError(f"--strategy {text}: degrees multiply to {product}, which does not divide {counts} devices", argument="--strategy", value=text)


# Evaluation --------------------------------------------------------------------------------------


def user_ladder(limit: int) -> np.ndarray[Any, Any]:
    """Return the concurrencies that are tried: powers of two and the points between, up to what fits."""
    points = {1, limit}
    size = 1
    while size <= limit:
        points |= {size, min(limit, size * 5 // 4), min(limit, size * 3 // 2), min(limit, size * 7 // 4)}
        size *= 2
    return np.array(sorted(p for p in points if 1 <= p <= limit), dtype=float)


def evaluate(asked: Request, tally: Tally, progress: Callable[[int, int], None] | None = None) -> list[Plan]:
    """Return the best plan of every (machine, precision, strategy), concurrency chosen by the constraints."""
    plans: list[Plan] = []
    feet: dict[tuple[Any, ...], Any] = {}
    models = {precision: at_precision(asked.model, precision) for precision in asked.precisions}
    for index, machine in enumerate(asked.machines):
        for precision in asked.precisions:
            for kv in asked.kv_precisions:
                plans += _machine_plans(asked, machine, models[precision], precision, kv, feet, tally)
        if progress is not None:
            progress(index + 1, len(asked.machines))
    return plans


def _machine_plans(asked: Request, machine: Machine, model: Model, precision: str, kv: str, feet: dict[tuple[Any, ...], Any], tally: Tally) -> list[Plan]:
    limits = asked.constraints
    if (limits.devices is not None and machine.count > limits.devices) or (limits.datacenter and machine.device.geforce_licence):
        return []
    engine = choose_engine(asked.engine, machine, precision)
    if engine is None:
        tally.refusals["engine does not run on the device"] = tally.refusals.get("engine does not run on the device", 0) + 1
        return []
    refusal = refuses_format(model, engine, machine)
    cost = economics.hourly(machine, asked.price)
    if limits.budget is not None and (cost is None or cost.total > limits.budget):
        reason = "no price of this kind" if cost is None else "over the budget"
        tally.refusals[reason] = tally.refusals.get(reason, 0) + 1
        return []
    kv_format = cache_format(model, kv)
    kv_bytes = element_bytes(kv_format)
    kept: list[tuple[Strategy, Ledger]] = []
    for strategy in strategies(model, machine, engine, asked.pins):
        tally.enumerated += 1
        why = refusal or legal(model, strategy, machine, engine)
        if why:
            tally.refusals[why] = tally.refusals.get(why, 0) + 1
            continue
        tally.legal += 1
        key = (precision, kv_bytes, *strategy.as_dict().values())
        if key not in feet:
            feet[key] = footprint(model, strategy, kv_bytes, draft=asked.workload.drafted > 0)
        book = ledger(model, strategy, machine, engine, asked.workload, feet[key])
        if not book.fits:
            tally.misses.append((book.shortage / machine.count, machine, strategy, book, precision, engine.id))
            continue
        tally.fits += 1
        kept.append((strategy, book))
    if not kept:
        return []
    return _predicted(asked, machine, model, engine, kept, cost, precision, kv_format, kv_bytes, tally)


def refuses_format(model: Model, engine: Engine, machine: Machine) -> str | None:
    """Return why an engine cannot read the weights' format, or None."""
    if model.quantization is None or not engine.weights:
        return None
    base = model.quantization.format.partition("-g")[0].removesuffix("-channel")
    spelled = {"fp8-block": "fp8", "int8-weight": "gptq", "bnb-nf4": "bitsandbytes", "bnb-nf4-double": "bitsandbytes", "bnb-int8": "bitsandbytes"}.get(base, base)
    if spelled in engine.weights or (spelled in {"bitsandbytes"} and engine.name == "vllm"):
        return None
    return f"{engine.id} does not read {base} weights"


def _predicted(
    asked: Request, machine: Machine, model: Model, engine: Engine, kept: list[tuple[Strategy, Ledger]], cost: economics.HourlyCost | None,
    precision: str, kv_format: str, kv_bytes: float, tally: Tally,
) -> list[Plan]:  # fmt: skip
    """Predict all strategies x users of a machine as one grid, then keep the best concurrency of each strategy."""
    r = rates(machine, engine)
    users = [user_ladder(book.max_concurrency) for _, book in kept]
    width = max(len(u) for u in users)
    grid = np.stack([np.pad(u, (0, width - len(u)), mode="edge") for u in users])
    degrees = {name: np.array([[getattr(s, name)] for s, _ in kept], dtype=float) for name in ("tp", "pp", "dp", "ep", "attention_dp")}
    many = Strategy(**degrees)
    budget = kept[0][1].budget_tokens
    p = predict(model, many, engine, asked.workload, r, grid, kv_bytes=kv_bytes, budget=budget)
    shape = grid.shape
    tpot, ttft, rate = (np.broadcast_to(x, shape) for x in (p.tpot.value, p.ttft.value, p.rate))
    busy = np.broadcast_to(p.busy, shape)
    power = wall_power(machine, busy)
    watts = None if power is None else np.broadcast_to(power.value, shape)
    tally.predicted += int(sum(len(u) for u in users))
    ok = _allowed(asked.constraints, tpot, ttft, rate, watts, grid, asked.workload)
    score = _score(asked.best, machine, tpot, ttft, rate, watts, cost)
    quick = bool(np.any(ok & (tpot <= DEFAULT_TPOT)))
    plans = []
    for row, (strategy, book) in enumerate(kept):
        column = _choose(asked, users[row], tpot[row], ok[row], score[row], quick=quick)
        if column is None:
            continue
        plans.append(_plan(asked, machine, model, engine, strategy, book, cost, precision, kv_format, kv_bytes, r, int(grid[row, column])))
    return plans


def _allowed(c: Constraints, tpot: Any, ttft: Any, rate: Any, watts: Any, users: Any, workload: Workload) -> Any:
    ok = np.ones(np.shape(tpot), dtype=bool)
    if c.tpot is not None:
        ok &= tpot <= c.tpot
    if c.ttft is not None:
        ok &= ttft <= c.ttft
    if c.tokens_per_second_per_user is not None:
        ok &= 1.0 / tpot >= c.tokens_per_second_per_user
    if c.power is not None:
        ok &= watts <= c.power if watts is not None else np.zeros_like(ok)
    if c.concurrency is not None:
        ok &= users >= c.concurrency
    if c.rate is not None:
        ok &= rate / workload.output >= c.rate
    return ok


def _score(best: str, machine: Machine, tpot: Any, ttft: Any, rate: Any, watts: Any, cost: economics.HourlyCost | None) -> Any:
    """Return what is to be made small."""
    if best == "latency":
        return tpot
    if best == "throughput":
        return -rate / machine.count
    if best == "devices":
        return machine.count + 0.0 * tpot - 1e-9 * rate
    if best == "energy":
        return np.inf + 0.0 * tpot if watts is None else watts / rate
    return (1e9 - rate / machine.count) + 0.0 * tpot if cost is None else cost.total / rate

def _choose(asked: Request, users: Any, tpot: Any, ok: Any, score: Any, *, quick: bool) -> int | None:
    """Return which concurrency of a strategy is shown.

    With a demand for concurrency it is the least that reaches it; with a limit on time the best within it; with
    neither, the best whose TPOT is at most 50 ms (one user where this strategy has none but another of the machine
    has), or simply the best where nothing on the machine is that quick.
    """
    n = len(users)
    allowed = np.flatnonzero(ok[:n])
    if not len(allowed):
        return None
    c = asked.constraints
    if c.concurrency is not None:
        return int(allowed[0])
    if quick and asked.best != "latency" and c.tpot is None and c.tokens_per_second_per_user is None:
        below = allowed[tpot[allowed] <= DEFAULT_TPOT]
        allowed = below if len(below) else allowed[:1]
    if asked.best == "devices":
        return int(allowed[-1])
    return int(allowed[np.argmin(score[allowed])])


def _plan(
    asked: Request, machine: Machine, model: Model, engine: Engine, strategy: Strategy, book: Ledger, cost: economics.HourlyCost | None,
    precision: str, kv_format: str, kv_bytes: float, r: Rates, users: int,
) -> Plan:  # fmt: skip
    p = predict(model, strategy, engine, asked.workload, r, float(users), kv_bytes=kv_bytes, budget=book.budget_tokens)
    plan = Plan(
        model=model, machine=machine, engine=engine, strategy=strategy, workload=asked.workload, precision=precision, kv_precision=kv_format,
        users=users, memory=book, rates=r, prediction=p, cost=cost, power=wall_power(machine, float(p.busy)), changes_model=precision != "checkpoint",
    )  # fmt: skip
    plan.metrics = metrics_of(plan)
    return plan


def grade_of(plan: Plan) -> int:
    """Return the grade of a plan as an index of `GRADES`: never better than its weakest constant.

    Plans that communicate take the fabric's grade too; a stand-in number format or drafts are at best borrowed.
    """
    s = plan.strategy
    worst = plan.rates.grade
    if int(s.tp) * int(s.pp) * int(s.ep) > 1:
        worst = max(worst, plan.rates.network_grade)
    stand_in = any(_uses(plan, name) for name in plan.rates.fallbacks)
    return max(worst, 2 if stand_in or plan.workload.drafted else worst)


def metrics_of(plan: Plan) -> dict[str, Metric]:
    """Return the metrics of one plan with their intervals; what is not known is absent."""
    p, worst = plan.prediction, grade_of(plan)
    grade = GRADES[worst]
    tpot, rate = float(p.tpot.value), float(p.rate)
    out = {
        "ttft": metric(float(p.ttft.value), "s", GRADES[max(2, worst)]),
        "tpot": metric(tpot, "s", grade),
        "tokens_per_second_per_user": metric(1.0 / tpot, "token/s", grade),
        "output_tokens_per_second": metric(rate, "token/s", grade),
        "output_tokens_per_second_per_device": metric(rate / plan.machine.count, "token/s", grade),
        "prefill_tokens_per_second": metric(float(p.prefill_rate), "token/s", GRADES[max(2, worst)]),
        "max_concurrency": Metric(plan.memory.max_concurrency, plan.memory.max_concurrency, plan.memory.max_concurrency, "1", "calibrated"),
    }
    if plan.power is not None:
        watts = float(plan.power.value)
        out["power"] = metric(watts, "W", "borrowed" if grade == "calibrated" else grade)
        out["energy_per_output_token"] = metric(watts / rate, "J", "borrowed" if grade == "calibrated" else grade)
    if plan.cost is not None:
        hourly = plan.cost.total
        low, high = (x * plan.machine.count if x is not None else hourly for x in (plan.cost.price.low, plan.cost.price.high))
        out["cost_per_hour"] = Metric(hourly, low, high, "USD/h", "calibrated")
        split = float(p.input_share)
        into = rate / plan.workload.output * plan.workload.input
        for name, value in (
            ("cost_per_million_input_tokens", hourly * split / (into * units.HOUR) * 1e6),
            ("cost_per_million_output_tokens", hourly * (1.0 - split) / (rate * units.HOUR) * 1e6),
        ):
            out[name] = metric(value, "USD/Mtoken", grade)
    return out


def all_in_cost(plan: Plan) -> Metric | None:
    """Return the whole cost per million output tokens, prompts included, at full load [USD/Mtoken]."""
    if plan.cost is None:
        return None
    rate = plan.metrics["output_tokens_per_second"]
    return metric(plan.cost.total / (rate.value * units.HOUR) * 1e6, "USD/Mtoken", rate.grade)


# Ordering ----------------------------------------------------------------------------------------


def objective(plan: Plan, best: str) -> float:
    """Return what is to be made small; infinite where it is not known."""
    m = plan.metrics
    if best == "latency":
        return m["tpot"].value
    if best == "throughput":
        return -m["output_tokens_per_second_per_device"].value
    if best == "devices":
        return float(plan.machine.count)
    if best == "energy":
        return m["energy_per_output_token"].value if "energy_per_output_token" in m else math.inf
    whole = all_in_cost(plan)
    return whole.value if whole is not None else math.inf


def simplicity(plan: Plan) -> tuple[float, ...]:
    """Return the order among equals: fewest devices, then smallest TP, PP, and the rest."""
    s = plan.strategy
    return (plan.machine.count, int(s.tp), int(s.pp), int(s.ep), int(s.dp), int(s.attention_dp))


def ordered(plans: list[Plan], best: str, *, limited: bool = False) -> list[Plan]:
    """Return plans by objective; those without it below the others; equal within 1e-9 by simplicity.

    Where the user set no limit on time, plans quicker than 50 ms a token stand above slower ones.

    Plans of one machine whose objective lies inside the best one's interval are marked as tied with it.
    """
    def key(plan: Plan) -> tuple[Any, ...]:
        value = objective(plan, best)
        known = math.isfinite(value)
        rounded = float(f"{value:.9e}") if known else -plan.metrics["output_tokens_per_second_per_device"].value
        slow = best != "latency" and plan.metrics["tpot"].value > DEFAULT_TPOT * (1 + 1e-9) and not limited
        return (not known, slow, plan.changes_model, rounded, *simplicity(plan))

    ranked = sorted(plans, key=key)
    if ranked:
        first = ranked[0]
        spread = math.exp(Z90 * GRADE_SPREAD[first.metrics["tpot"].grade])
        top = objective(first, best)
        for plan in ranked[1:]:
            value = objective(plan, best)
            plan.tied = math.isfinite(value) and math.isfinite(top) and (value <= top * spread if top > 0 else value <= top / spread)
    mark_pareto(ranked)
    return ranked


def mark_pareto(plans: list[Plan]) -> None:
    """Mark the plans that no other beats in both time per token and cost (or rate per device without a price)."""
    points = [(plan.metrics["tpot"].value, _second(plan)) for plan in plans]
    for plan, (x, y) in zip(plans, points, strict=True):
        plan.pareto = not any((a <= x and b <= y) and (a < x or b < y) for a, b in points)


def _second(plan: Plan) -> float:
    whole = all_in_cost(plan)
    return whole.value if whole is not None else -plan.metrics["output_tokens_per_second_per_device"].value


def search(asked: Request, progress: Callable[[int, int], None] | None = None) -> Result:
    """Return the plans of a request, best first.

    Raises
    ------
    NoPlan : nothing satisfies the constraints; carries the nearest miss and what would relax it.
    StrategyError : pinned degrees that no machine can hold.
    """
    started = time.process_time()
    check_pins(asked.pins, asked.machines)
    tally = Tally()
    plans = evaluate(asked, tally, progress)
    tally.seconds = time.process_time() - started
    if not plans:
        raise no_plan(asked, tally)
    c = asked.constraints
    ranked = ordered(plans, asked.best, limited=c.tpot is not None or c.tokens_per_second_per_user is not None or c.concurrency is not None)
    steps = ladder(ranked[0], asked)
    tally.seconds = time.process_time() - started
    return Result(plans=ranked, ladder=steps, tally=tally, asked=asked, warnings=warnings_of(ranked[0]))


def ladder(plan: Plan, asked: Request) -> list[Plan]:
    """Return the same plan at few, some and the most users."""
    most = plan.memory.max_concurrency
    wanted = sorted({1, *(n for n in (8, 64) if n < most), plan.users, *([most] if most > 0 else [])})
    kv_bytes = element_bytes(plan.kv_precision)
    return [
        _plan(asked, plan.machine, plan.model, plan.engine, plan.strategy, plan.memory, plan.cost, plan.precision, plan.kv_precision, kv_bytes, plan.rates, n)
        for n in wanted
    ]


def warnings_of(plan: Plan) -> list[tuple[str, str]]:
    """Return what a reader must know, each with a code."""
    out = [("model", text) for text in plan.model.warnings]
    out += [("fallback", f"{plan.machine.device.id} has no {name} tensor unit: such products run in {other}") for name, other in plan.rates.fallbacks.items() if _uses(plan, name)]
    if plan.cost is not None and plan.cost.stale:
        out.append(("price_stale", f"the {plan.cost.price.kind} price of {plan.machine.device.id} is of {plan.cost.price.date}"))
    if plan.machine.device.geforce_licence:
        out.append(("geforce_licence", "the GeForce driver licence forbids data centres (blockchain aside)"))
    if plan.model.max_positions and plan.workload.context > plan.model.max_positions:
        out.append(("context", f"--context {plan.workload.context:,} is beyond the model's {plan.model.max_positions:,} positions"))
    return out


def _uses(plan: Plan, name: str) -> bool:
    """Return whether products of the plan's weights ask for a number format."""
    q = plan.model.quantization
    return q is not None and compute_format(q.format, q.activation, plan.model.dtype) == name


def no_plan(asked: Request, tally: Tally) -> NoPlan:
    """Return the refusal that names the binding constraint and what would relax it."""
    if tally.fits == 0 and tally.misses:
        return _memory_miss(asked, tally)
    if tally.legal == 0 and tally.enumerated:
        why = max(tally.refusals, key=lambda k: tally.refusals[k])
        return NoPlan(f"no plan: strategy. {why}", binding="strategy", relax=[])
    if tally.fits == 0:
        why = "; ".join(f"{text} ({n})" for text, n in sorted(tally.refusals.items(), key=lambda i: -i[1])[:3]) or "no machine is left"
        binding = "budget" if "over the budget" in tally.refusals or "no price of this kind" in tally.refusals else "devices"
        return NoPlan(f"no plan: {binding}. {why}", binding=binding, relax=[])
    return _limit_miss(asked, tally)


def _memory_miss(asked: Request, tally: Tally) -> NoPlan:
    _, machine, strategy, book, _, engine = min(tally.misses, key=lambda miss: miss[0])
    need = units.gib(book.weights)
    have = units.gib(book.capacity)
    what = f"{asked.model.quantization.format if asked.model.quantization else asked.model.dtype} weights need {need} GiB a device at {strategy.label()}"
    if book.weights < book.capacity:
        what += f", one request of {asked.workload.context:,} tokens needs {units.gib(book.shortage)} GiB more than {engine} leaves for the cache"
    text = f"no plan: memory. {what}; {machine.device.id} has {have} GiB"
    return NoPlan(text, binding="memory", relax=relaxations(asked, machine))


def relaxations(asked: Request, machine: Machine) -> list[dict[str, Any]]:
    """Return changes that would give a plan, smallest first: another precision, more devices, a shorter context."""
    from roofplan.catalogue.machines import resized

    out: list[dict[str, Any]] = []
    now = asked.model.quantization.format if asked.model.quantization else asked.model.dtype
    for precision in ("fp8", "awq", "q4_k_m"):
        _try(replace(asked, machines=(machine,), precisions=(precision,), engine=None, pins={}), {"argument": "--precision", "now": now, "needed": precision}, out)
        if out:
            break
    for factor in (2, 4, 8):
        count = machine.per_host * factor
        if count > 64:
            break
        bigger = resized(machine, machine.hosts, count) if count <= 8 else None
        if bigger is not None and _try(replace(asked, machines=(bigger,), pins={}), {"argument": "--on", "now": machine.text, "needed": bigger.text}, out):
            break
    if asked.workload.context > asked.workload.input + asked.workload.output:
        shorter = replace(asked.workload, context=asked.workload.input + asked.workload.output)
        _try(replace(asked, machines=(machine,), workload=shorter), {"argument": "--context", "now": asked.workload.context, "needed": shorter.context}, out)
    return out


def _try(asked: Request, change: dict[str, Any], out: list[dict[str, Any]]) -> bool:
    plans = evaluate(replace(asked, constraints=Constraints()), Tally())
    if not plans:
        return False
    best = ordered(plans, asked.best)[0]
    out.append({**change, "plan": {"strategy": best.strategy.as_dict(), "label": best.label, "tpot": best.metrics["tpot"].value, "users": best.users, "context": best.memory.longest, "weights": best.memory.weights, "engine": best.engine.id}})
    return True


def _limit_miss(asked: Request, tally: Tally) -> NoPlan:
    """Return which limit is missed by least, with the value that would let the nearest plan in."""
    free = evaluate(replace(asked, constraints=Constraints(devices=asked.constraints.devices, datacenter=asked.constraints.datacenter, budget=asked.constraints.budget)), Tally())
    c = asked.constraints
    out: list[dict[str, Any]] = []
    quickest = evaluate(replace(asked, best="latency", constraints=Constraints(devices=c.devices, datacenter=c.datacenter, budget=c.budget)), Tally())
    del free
    best = min(quickest, key=lambda plan: plan.metrics["tpot"].value)
    if c.tpot is not None:
        out.append({"argument": "--tpot", "now": units.show(c.tpot, "s"), "needed": units.show(best.metrics["tpot"].value, "s"), "plan": _brief(best)})
    if c.tokens_per_second_per_user is not None:
        out.append({"argument": "--tokens-per-second-per-user", "now": c.tokens_per_second_per_user, "needed": round(best.metrics["tokens_per_second_per_user"].value, 2), "plan": _brief(best)})
    if c.ttft is not None:
        first = min(quickest, key=lambda plan: plan.metrics["ttft"].value)
        out.append({"argument": "--ttft", "now": units.show(c.ttft, "s"), "needed": units.show(first.metrics["ttft"].value, "s"), "plan": _brief(first)})
    if c.concurrency is not None:
        most = max(quickest, key=lambda plan: plan.memory.max_concurrency)
        out.append({"argument": "--concurrency", "now": c.concurrency, "needed": most.memory.max_concurrency, "plan": _brief(most)})
    if c.power is not None:
        least = min((p for p in quickest if "power" in p.metrics), key=lambda plan: plan.metrics["power"].value, default=None)
        if least is not None:
            out.append({"argument": "--power", "now": units.show(c.power, "W"), "needed": units.show(least.metrics["power"].value, "W"), "plan": _brief(least)})
    if c.rate is not None:
        out.append({"argument": "--rate", "now": c.rate, "needed": "more devices", "plan": _brief(best)})
    missed = [item for item in out if _is_missed(item, c, best)] or out
    names = ", ".join(item["argument"] for item in missed) or "the constraints together"
    return NoPlan(f"no plan: {names} cannot be met by {len(quickest)} configurations that fit", binding=missed[0]["argument"].lstrip("-") if missed else "constraints", relax=missed)


def _is_missed(item: dict[str, Any], c: Constraints, best: Plan) -> bool:
    name = item["argument"]
    if name == "--tpot":
        return c.tpot is not None and best.metrics["tpot"].value > c.tpot
    if name == "--tokens-per-second-per-user":
        return c.tokens_per_second_per_user is not None and best.metrics["tokens_per_second_per_user"].value < c.tokens_per_second_per_user
    if name == "--concurrency":
        return c.concurrency is not None and int(item["needed"]) < c.concurrency
    return True


def _brief(plan: Plan) -> dict[str, Any]:
    return {"machine": plan.machine.text or plan.machine.device.id, "strategy": plan.strategy.as_dict(), "label": plan.label, "users": plan.users, "tpot": plan.metrics["tpot"].value, "engine": plan.engine.id}


def bounds(plan: Plan) -> dict[str, tuple[str, float]]:
    """Return what binds in decode and in prefill, with its share."""
    return {"decode": bound_of(plan.prediction.decode), "prefill": bound_of(plan.prediction.ttft)}
