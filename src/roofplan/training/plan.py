"""A training plan and its metrics, and the request of a training search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from roofplan import catalogue, money
from roofplan.laws import flops, roofline
from roofplan.money.prices import at_price
from roofplan.operations import whole_model
from roofplan.operations.table import Step as Pass
from roofplan.operations.training import computed_again, forward
from roofplan.records.calibration import Fit
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.source import GRADES
from roofplan.records.terms import Term
from roofplan.records.training import Adapter, Framework, Job, Layout
from roofplan.records.units import DAY, HOUR
from roofplan.timing.figures import STEP, Limit, Metric, Sure, interval_factor
from roofplan.timing.power import wall_power
from roofplan.training import run as runs
from roofplan.training.ability import Ability, ability
from roofplan.training.certainty import memory_certainty, step_certainty
from roofplan.training.ledger import Ledger, fullest, host_peak, ledgers
from roofplan.training.search import Pins
from roofplan.training.step import Step, step
from roofplan.training.terms import step_term

OBJECTIVES = ("time", "cost", "devices", "memory")
FAILURES_SPREAD = 2.0
"""Factor, either way, between published interruption rates of similar clusters: 0.29 (32K devices) to 0.81 (RSC-1) per
1,000 device-days around Llama 3's 0.47 [1]."""

STATES_SPREAD = 0.1
"""Relative error of offloaded states in host memory, of power and of a grid's carbon; no published run tests them
[1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequest:
    """The request of a training search.

    Parameters
    ----------
    deadline : maximum elapsed time [s].
    budget : maximum cost of the run [USD].
    devices : maximum number of devices [1].
    any_size : whether the machines of one device are cluster sizes, of which the smallest within the deadline is
        wanted.
    assumed : assumptions, as text.
    unstated : inputs that the user left out and whose alternatives in `certainty.ALTERNATIVES` widen intervals.
    """

    model: Model
    machines: tuple[Machine, ...]
    job: Job
    framework: Framework
    pins: Pins = field(default_factory=dict)
    deadline: float | None = None
    budget: float | None = None
    devices: int | None = None
    any_size: bool = False
    price: str = "rent"
    failures: str | None = None
    checkpoint: str = "sync"
    policy: str = "restart"
    best: str = "time"
    place: str = "WOR"
    assumed: tuple[str, ...] = ()
    unstated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """One layout with all its predicted figures.

    Parameters
    ----------
    pareto : whether no layout on its machine is both faster and uses less memory.
    tied : whether its objective is within 1% of the first plan's.
    within_interval : whether the 90% interval of its objective overlaps the first plan's.
    """

    model: Model
    machine: Machine
    framework: Framework
    job: Job
    layout: Layout
    ability: Ability
    step: Step
    term: Term
    ledgers: list[Ledger]
    run: runs.Run | None
    cost: money.HourlyCost | None
    power: Term | None
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    pareto: bool = False
    tied: bool = False
    within_interval: bool = False

    @property
    def ledger(self) -> Ledger:
        """Memory of the fullest stage."""
        return fullest(self.ledgers)

    @property
    def label(self) -> str:
        """Return the layout as text: ``tp8 pp2 dp32, micro-batch 1 x 16, recompute selective, ZeRO-1``."""
        x = self.layout
        words = [x.label(), f"micro-batch {int(x.micro_batch)} x {int(self.step.micro_batches)}"]
        words += [f"interleave {x.interleave}"] if x.interleave > 1 else []
        words += [x.schedule] if x.schedule != "1f1b" else []
        words += [x.recomputation, f"ZeRO-{x.zero}"]
        words += [f"sharded over {int(x.shard)}"] if x.shard else []
        words += [f"{x.offload} in host memory"] if x.offload != "none" else []
        return ", ".join(words)

    @property
    def id(self) -> str:
        """Return a stable identifier of the configuration."""
        values = "-".join(f"{name}{value}" for name, value in self.layout.as_dict().items())
        return f"{self.machine.device.id}-{self.machine.hosts}x{self.machine.per_host}-{self.framework.id}-{values}"


LIMIT_OF: dict[str, Limit] = {
    "products": "compute",
    "attention": "compute",
    "recompute": "compute",
    "memory passes": "memory_bandwidth",
    "optimizer": "memory_bandwidth",
    "bubble": "bubble",
    "launches": "launch",
    "host": "launch",
    "swap": "host_link",
    "stragglers": "stragglers",
}
"""Limit that binds each part of a step; all other parts are communication."""


def binding(plan: TrainingPlan) -> tuple[Limit, float]:
    """Return the limit with the largest share of a training step.

    Parameters
    ----------
    plan : a plan with its step.

    Returns
    -------
    The limit, and its share of the step [1].
    """
    sums: dict[Limit, float] = {}
    for name, seconds in plan.step.parts.items():
        limit = LIMIT_OF.get(name, "communication")
        if name == "optimizer" and plan.layout.offload == "optimizer":
            limit = "host_link"
        sums[limit] = sums.get(limit, 0.0) + float(seconds)
    most = max(sums, key=lambda limit: sums[limit])
    return most, sums[most] / float(plan.step.time)


def flops_per_token(model: Model, sequence: int, adapter: Adapter | None = None) -> tuple[float, float]:
    """Return the model FLOPs of training on one token, forward and backward.

    The forward pass has two FLOPs for each weight that the token uses, without the embedding look-up, and attention
    over the tokens before it. Training takes three times that, or twice for frozen matmuls. Recomputation, padding and
    the optimizer are not model FLOPs.

    Parameters
    ----------
    model : model that is trained.
    sequence : tokens of a sequence [token].
    adapter : low-rank update, None where all weights are trained.

    Returns
    -------
    FLOPs of matmuls, and FLOPs of attention [FLOP].
    """
    touched = float((model.active or model.total) - (0 if model.tied else model.embedding - model.tables))
    table = whole_model(model, Pass(new=float(sequence), requests=1.0, others=0.0))
    mixing = sum(float(op.work) for op in table if op.kind in {"prefill_attention", "memory"}) / sequence
    forward = float(flops.forward_per_token(touched))
    # frozen weights have input gradients but no weight gradients
    return (2.0 * forward if adapter is not None else float(flops.training(touched, 1.0))), 3.0 * mixing


def planned(asked: TrainingRequest, machine: Machine, layout: Layout, fit: Fit) -> TrainingPlan:
    """Return the plan of a layout: step, memory, run, cost and energy."""
    a = ability(machine, asked.framework, fit)
    found = step(asked.model, asked.job, layout, a)
    whole = step_term(found, asked.job, layout, a)
    held = ledgers(asked.model, asked.job, layout, asked.framework, fit)
    cost = money.hourly(machine, asked.price, fit)
    preset = runs.preset_for(machine, asked.failures)
    span = (
        runs.run(
            asked.model,
            asked.job,
            layout,
            machine,
            float(found.time),
            preset,
            checkpoint=asked.checkpoint,
            policy=asked.policy,
        )
        if asked.job.tokens
        else None
    )
    work = (
        float(found.parts.get("products", 0.0))
        + float(found.parts.get("attention", 0.0))
        + float(found.parts.get("recompute", 0.0))
    )
    power = wall_power(machine, min(1.0, work / float(found.time)), fit)
    plan = TrainingPlan(
        model=asked.model,
        machine=machine,
        framework=asked.framework,
        job=asked.job,
        layout=layout,
        ability=a,
        step=found,
        term=whole,
        ledgers=held,
        run=span,
        cost=cost,
        power=power,
    )
    return replace(plan, metrics=metrics_of(plan, asked.place, asked.unstated))


def metrics_of(plan: TrainingPlan, place: str, unstated: tuple[str, ...] = ()) -> dict[str, Metric]:
    """Return the metrics of a plan with their intervals; unknown ones are absent.

    `unstated` lists the inputs that the user left out, among those of `certainty.ALTERNATIVES`.
    """
    seconds, n, fit = float(plan.step.time), plan.machine.count, plan.ability.rates.fit
    tokens = plan.job.batch * plan.job.sequence
    products, mixing = flops_per_token(plan.model, plan.job.sequence, plan.job.adapter)
    peak = dense_peak(plan)
    used = float(roofline.share_of_peak((products + mixing) * tokens, seconds, peak * n))
    again_too = float(roofline.share_of_peak((products + mixing) * tokens + again(plan), seconds, peak * n))
    found = step_certainty(plan.model, plan.job, plan.layout, plan.ability, plan.step, unstated)
    known = replace(found, quickest=1.0 / max(used, again_too))
    reserved, allocated = memory_certainty(plan.framework, plan.machine, plan.model, plan.job, fit)
    out = {
        "step_time": known.grows(seconds, "s"),
        "tokens_per_second": known.falls(tokens / seconds, "token/s"),
        "tokens_per_second_per_device": known.falls(tokens / seconds / n, "token/s"),
        "mfu": known.falls(used, "1"),
        "hfu": known.falls(again_too, "1"),
        "memory_reserved": reserved.of(float(plan.ledger.reserved), "B"),
        "memory_allocated": allocated.of(float(plan.ledger.allocated.value), "B"),
    }
    loose = _loosened(known.sure, fit)
    away = float(host_peak(plan.ledgers)) * plan.machine.per_host
    if away:
        half = interval_factor(STEP, fit) * STATES_SPREAD
        out["host_memory"] = Sure("borrowed", half).of(away, "B")
    if plan.run is not None:
        r = plan.run
        out["days"] = known.grows(r.elapsed / DAY, "day")
        out["days_p90"] = known.grows(r.p90 / DAY, "day")
        low, high = sorted(
            max(0.0, 1.0 - (1.0 - r.goodput) * factor) for factor in (FAILURES_SPREAD, 1.0 / FAILURES_SPREAD)
        )
        out["goodput"] = Metric(r.goodput, low, high, "1", "borrowed" if r.preset.kind == "derived" else "guessed")
        out["device_hours"] = known.grows(r.elapsed / HOUR * n, "device-hour")
        if plan.cost is not None:
            out["cost"] = at_price(known.grows(runs.money(r, plan.cost), "USD"), plan.cost)
        if plan.power is not None:
            joules = runs.energy(r, plan.power)
            out["energy"] = loose.of(joules, "J")
            mix = catalogue.carbon(place)
            if mix is not None:
                grams = runs.kilowatt_hours(joules) * float(mix["value"])
                out["carbon"] = loose.of(grams, "gCO2")
    if plan.cost is not None:
        each = plan.cost.total / HOUR * seconds / tokens * 1e6 / (plan.run.goodput if plan.run else 1.0)
        out["cost_per_million_tokens"] = at_price(known.grows(each, "USD/Mtoken"), plan.cost)
    return out


def _loosened(found: Sure, fit: Fit) -> Sure:
    """Return the certainty of energy figures: at best borrowed."""
    half = max(found.half, interval_factor(STEP, fit) * STATES_SPREAD)
    return found._replace(grade=max(found.grade, "borrowed", key=GRADES.index), half=half)


def dense_peak(plan: TrainingPlan) -> float:
    """Return the dense peak of a device in the job's number format [FLOP/s]."""
    peak = plan.ability.rates.peak
    return float(peak[plan.job.precision] if plan.job.precision in peak else peak["bf16"])


def again(plan: TrainingPlan) -> float:
    """Return the recomputed FLOP of a step on all devices, with evenly loaded experts [FLOP]."""
    x, work = replace(plan.layout, imbalance=1.0, capacity=None), 0.0
    tokens = float(x.micro_batch) * plan.job.sequence / float(x.cp)
    for layer, places in plan.model.decoder.kinds():
        table = forward(layer, tokens, plan.job, x, plan.model, plan.framework)
        one = sum(float(op.work) for op in computed_again(table, x, plan.framework))
        work += len(places) * one * float(x.recomputed)
    return work * float(x.tp) * float(x.cp) * float(x.dp) * float(plan.step.micro_batches)


ALL_PRODUCTS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Linear layers with a low-rank update (QLoRA, arXiv 2305.14314, section 4)."""

ADAPTER_BYTES = 16.0
"""Bytes per trained adapter parameter: fp32 weight, gradient and two moments [B]."""
