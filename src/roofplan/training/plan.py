"""A training plan and its metrics; what a search is asked, and why nothing was found."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from roofplan import catalogue, money
from roofplan.catalogue.machines import machine as machine_of
from roofplan.errors import InputError, NoPlan, RoofplanError
from roofplan.laws import flops, roofline
from roofplan.money.prices import at_price
from roofplan.operations import Step as Pass
from roofplan.operations import whole_model
from roofplan.operations.training import computed_again, forward
from roofplan.records import units
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
from roofplan.training.certainty import MATTERS, memory_certainty, step_certainty
from roofplan.training.ledger import Ledger, fullest, host_peak, ledgers
from roofplan.training.search import AXES, LEAST_SEQUENCE, Found, Tally, search, tensor_degrees
from roofplan.training.step import Ability, Step, ability, step
from roofplan.training.terms import step_term

OBJECTIVES = ("time", "cost", "devices", "memory")
FAILURES_SPREAD = 2.0
"""Factor by which published interruption rates of clusters of one kind differ, either way: 0.29 (32K devices) to 0.81 (RSC-1) per 1,000
device-days around Llama 3's 0.47 [1]."""

STATES_SPREAD = 0.1
"""Relative error of what offloaded states take of a host's memory, and that of power and of a grid's carbon, which no published run tests [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequest:
    """All that a training search is asked.

    Parameters
    ----------
    deadline : most elapsed time [s].
    budget : most money for the run [USD].
    devices : most devices [1].
    assumed : what was assumed, in words.
    unstated : inputs among them whose other plausible values widen intervals, of those that `certainty.ALTERNATIVES` knows.
    """

    model: Model
    machines: tuple[Machine, ...]
    job: Job
    framework: Framework
    pins: dict[str, Any] = field(default_factory=dict)
    deadline: float | None = None
    budget: float | None = None
    devices: int | None = None
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
    """One layout with everything that is known of it."""

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

    @property
    def ledger(self) -> Ledger:
        """Memory of the fullest stage."""
        return fullest(self.ledgers)

    @property
    def label(self) -> str:
        """Return such as ``tp8 pp2 dp32, micro-batch 1 x 16, recompute selective, ZeRO-1``."""
        x = self.layout
        words = [x.label(), f"micro-batch {int(x.micro_batch)} x {int(self.step.micro_batches)}"]
        words += [f"interleave {x.interleave}"] if x.interleave > 1 else []
        words += [x.schedule] if x.schedule != "1f1b" else []
        part = "" if float(x.recomputed) == 1.0 else f" in {float(x.recomputed):.0%} of layers"
        words += [f"recompute {x.recompute}{part}", f"ZeRO-{x.zero}"]
        words += [f"sharded over {int(x.shard)}"] if x.shard else []
        words += [f"{x.offload} in host memory"] if x.offload != "none" else []
        return ", ".join(words)

    @property
    def id(self) -> str:
        """Return a stable identifier of the configuration."""
        values = "-".join(f"{name}{value}" for name, value in self.layout.as_dict().items())
        return f"{self.machine.device.id}-{self.machine.hosts}x{self.machine.per_host}-{self.framework.id}-{values}"


@dataclass(slots=True, kw_only=True)
class TrainingResult:
    """Plans in order, the best first; the tally beside them, and the constants that they rest on."""

    plans: list[TrainingPlan]
    tally: Tally
    asked: TrainingRequest
    fit: Fit
    warnings: list[tuple[str, str]] = field(default_factory=list)
    front: list[TrainingPlan] = field(default_factory=list)


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
"""Limit that a part of a step runs into; all others are communication."""


def binding(plan: TrainingPlan) -> tuple[Limit, float]:
    """Return the limit that takes most of a step, and its share."""
    sums: dict[Limit, float] = {}
    for name, seconds in plan.step.parts.items():
        limit = LIMIT_OF.get(name, "communication")
        if name == "optimizer" and plan.layout.offload == "optimizer":
            limit = "host_link"
        sums[limit] = sums.get(limit, 0.0) + float(seconds)
    most = max(sums, key=lambda limit: sums[limit])
    return most, sums[most] / float(plan.step.time)


def flops_per_token(model: Model, sequence: int, adapter: Adapter | None = None) -> tuple[float, float]:
    """Return the model FLOPs that training on one token takes, forward and backward: of products, and of attention [FLOP].

    Three times the forward pass: two for each weight that the token meets, the embedding's look-up aside, and attention over
    the tokens before it; twice for frozen products. Recomputation, padding and the optimizer are not model FLOPs.
    """
    touched = float((model.active or model.total) - (0 if model.tied else model.embedding))
    table = whole_model(model, Pass(new=float(sequence), requests=1.0, coupled=False))
    mixing = sum(float(op.work) for op in table if op.kind in {"prefill_attention", "memory"}) / sequence
    forward = float(flops.forward_per_token(touched))
    # frozen weights have a gradient of their inputs, none of their own
    return (2.0 * forward if adapter is not None else float(flops.training(touched, 1.0))), 3.0 * mixing


def planned(asked: TrainingRequest, machine: Machine, layout: Layout, fit: Fit) -> TrainingPlan:
    """Return a layout as a plan: step, memory, run, money and energy."""
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
    """Return the metrics of a plan with their intervals; what is not known is absent.

    `unstated` are the inputs that were assumed, of those of `certainty.ALTERNATIVES`.
    """
    seconds, n, fit = float(plan.step.time), plan.machine.count, plan.ability.rates.fit
    tokens = plan.job.batch * plan.job.sequence
    products, mixing = flops_per_token(plan.model, plan.job.sequence, plan.job.adapter)
    peak = _peak(plan)
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
    """Return how sure what a step's power gives is: at best borrowed."""
    half = max(found.half, interval_factor(STEP, fit) * STATES_SPREAD)
    return found._replace(grade=max(found.grade, "borrowed", key=GRADES.index), half=half)


def _peak(plan: TrainingPlan) -> float:
    """Return the dense peak of a device in the job's number format [FLOP/s]."""
    peak = plan.ability.rates.peak
    return float(peak[plan.job.precision] if plan.job.precision in peak else peak["bf16"])


def again(plan: TrainingPlan) -> float:
    """Return the work of a step that recomputation does again, on all devices, experts evenly used [FLOP]."""
    x, work = replace(plan.layout, imbalance=1.0, capacity=None), 0.0
    tokens = float(x.micro_batch) * plan.job.sequence / float(x.cp)
    for layer, places in plan.model.decoder.kinds():
        table = forward(layer, tokens, plan.job, x, plan.model, plan.framework)
        one = sum(float(op.work) for op in computed_again(table, x, plan.framework))
        work += len(places) * one * float(x.recomputed)
    return work * float(x.tp) * float(x.cp) * float(x.dp) * float(plan.step.micro_batches)


def plan_all(asked: TrainingRequest, fit: Fit, progress: Callable[[int, int], None] | None = None) -> TrainingResult:
    """Return the plans of a request, best first.

    Raises
    ------
    NoPlan : nothing fits, or none within the limits; carries what would.
    """
    started = time.process_time()
    tally, plans, fronts = Tally(), [], []
    first: RoofplanError | None = None
    limit = asked.devices
    once = {m.text or m.device.id: m for m in asked.machines}
    machines = [m for m in once.values() if limit is None or m.count <= limit]
    if not machines:
        least = min(m.count for m in asked.machines)
        raise NoPlan(
            f"no plan: devices. the smallest machine asked for has {least:,} devices, more than --devices {limit}",
            binding="devices",
            relax=[{"argument": "--devices", "now": limit, "needed": least}],
        )
    for index, machine in enumerate(machines):
        try:
            found = search(
                asked.model,
                asked.job,
                machine,
                asked.framework,
                fit,
                asked.pins,
                progress if len(machines) == 1 else None,
            )
        except InputError as error:
            first = first or error
            continue
        _merge(tally, found.tally)
        plans += [(machine, item) for item in _shortlist(found)]
        fronts.append((machine, found.front))
        if progress is not None and len(machines) > 1:
            progress(index + 1, len(machines))
    if tally.legal == 0 and first is not None:
        raise first
    tally.seconds = time.process_time() - started
    if not plans:
        raise _memory_miss(asked, machines, tally, fit)
    made = [planned(asked, machine, layout, fit) for machine, (_, _, layout) in plans]
    kept = _within(asked, made, tally, fit)
    kept.sort(key=lambda plan: (_objective(plan, asked.best), plan.metrics["step_time"].value))
    beaten = {id(layout) for _, front in fronts for _, _, layout in front}
    kept = [replace(plan, pareto=id(plan.layout) in beaten) for plan in kept]
    return TrainingResult(
        plans=kept,
        tally=tally,
        asked=asked,
        fit=fit,
        warnings=[*_warnings(kept[0], asked.policy), *_quicker(kept[0], fit)],
    )


def _merge(tally: Tally, more: Tally) -> None:
    tally.enumerated += more.enumerated
    tally.legal += more.legal
    tally.fits += more.fits
    if more.least_memory < tally.least_memory:
        tally.least_memory, tally.leanest = more.least_memory, more.leanest
    tally.least_host = min(tally.least_host, more.least_host)


SHORTLIST = 24
"""Layouts of a machine that become whole plans: the fastest of different degrees, and the leanest [1]."""


def _shortlist(found: Found) -> list[tuple[float, float, Layout]]:
    """Return the fastest layouts, one for each set of degrees, then the front of time against memory."""
    out: dict[tuple[Any, ...], tuple[float, float, Layout]] = {}
    for item in found.layouts:
        degrees = (*(getattr(item[2], name) for name in AXES[:4]), item[2].pp)
        out.setdefault(degrees, item)
        if len(out) >= SHORTLIST:
            break
    return list({id(item[2]): item for item in [*out.values(), *found.front]}.values())


def _objective(plan: TrainingPlan, best: str) -> float:
    """Return what is to be made small; infinite where it is not known."""
    m = plan.metrics
    if best == "cost":
        return (
            m["cost"].value
            if "cost" in m
            else m["cost_per_million_tokens"].value
            if "cost_per_million_tokens" in m
            else math.inf
        )
    if best == "devices":
        return float(plan.machine.count)
    if best == "memory":
        return m["memory_reserved"].value
    return m["days"].value if "days" in m else m["step_time"].value / plan.job.batch


def _memory_miss(asked: TrainingRequest, machines: list[Machine], tally: Tally, fit: Fit) -> NoPlan:
    """Return the refusal where nothing fits: what the leanest layout needs, and ways out that were tried."""
    machine, need = machines[-1], tally.least_memory
    room = float(machine.device.memory or 0.0)
    text = (
        f"no plan: memory. the leanest layout, {tally.leanest.label() if tally.leanest else ''}, needs"
        f" {need / 2**30:.1f} GiB a device; {machine.device.id} has {room / 2**30:.1f}"
    )
    has = machine.host_memory
    if need <= room and has is not None and math.isfinite(tally.least_host) and tally.least_host > has:
        text = (
            f"no plan: host memory. what leaves the devices needs {tally.least_host / 2**30:,.0f} GiB in each host;"
            f" {machine.text or machine.device.id} has {has / 2**30:,.0f}"
        )
    relax: list[dict[str, Any]] = []
    if "offload" not in asked.pins and asked.job.adapter is None:
        found = _trial(replace(asked, pins={**asked.pins, "offload": "optimizer"}), machine, fit)
        change = {"argument": "--strategy", "now": "none", "needed": "offload=optimizer"}
        relax += [change | {"plan": found}] if found else []
    for factor in (2, 4, 8, 16, 32, 64):
        more = machine.count * factor
        found = _trial(asked, _larger(machine, more), fit) if not asked.pins else None
        if found:
            relax.append(
                {"argument": "--on", "now": machine.count, "needed": f"{machine.device.id}:{more}", "plan": found}
            )
            break
    if asked.job.adapter is None:
        small = Adapter(method="qlora", rank=16, targets=ALL_PRODUCTS, stored="bnb-nf4", bytes=ADAPTER_BYTES)
        other = replace(
            asked, job=replace(asked.job, adapter=small), framework=catalogue.framework("fsdp-qlora-1.0"), pins={}
        )
        found = _trial(other, machine, fit)
        change = {"argument": "--method", "now": "full", "needed": "qlora"}
        relax += [change | {"plan": found}] if found else []
    refusal = NoPlan(text, binding="memory", relax=relax)
    refusal.search = tally
    return refusal


ALL_PRODUCTS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Products that a low-rank update is given to (QLoRA, arXiv 2305.14314, section 4)."""

ADAPTER_BYTES = 16.0
"""Bytes of a trained parameter of an adapter: fp32 weight, gradient and two moments [B]."""


def _larger(machine: Machine, count: int) -> Machine | None:
    """Return more devices of a kind as the catalogue joins them, None where it cannot."""
    try:
        found = machine_of(f"{machine.device.id}:{count}")[0]
        alike = machine.network is not None and found.per_host == machine.per_host
        return replace(found, network=machine.network, ports=machine.ports) if alike else found
    except RoofplanError:
        return None


def _trial(asked: TrainingRequest, machine: Machine | None, fit: Fit) -> dict[str, Any] | None:
    """Return the best layout of a changed request, None where there is none."""
    if machine is None:
        return None
    try:
        found = search(asked.model, asked.job, machine, asked.framework, fit, asked.pins)
    except InputError:
        return None
    return {"layout": found.layouts[0][2].label(), "step_time": found.layouts[0][0]} if found.layouts else None


def _within(asked: TrainingRequest, plans: list[TrainingPlan], tally: Tally, fit: Fit) -> list[TrainingPlan]:
    """Return the plans within deadline and budget, or say what the nearest one takes."""
    kept = plans
    if asked.deadline is not None:
        inside = [p for p in kept if p.metrics["days"].value * DAY <= asked.deadline]
        if not inside:
            raise _late(asked, min(kept, key=lambda p: p.metrics["days"].value), tally, fit)
        kept = inside
    if asked.budget is not None:
        priced = [p for p in kept if "cost" in p.metrics]
        inside = [p for p in priced if p.metrics["cost"].value <= asked.budget]
        if not inside:
            least = min(priced, key=lambda p: p.metrics["cost"].value, default=None)
            needed = f"{least.metrics['cost'].value:,.0f}USD" if least else "a --price: none is known"
            refusal = NoPlan(
                f"no plan: budget. the cheapest plan takes {needed}",
                binding="budget",
                relax=[{"argument": "--budget", "now": f"{asked.budget:,.0f}USD", "needed": needed}],
            )
            refusal.search = tally
            raise refusal
        kept = inside
    return kept


def _late(asked: TrainingRequest, nearest: TrainingPlan, tally: Tally, fit: Fit) -> NoPlan:
    """Return the refusal where every plan is late: the nearest one, and the time that no number of devices goes below."""
    days, limit = nearest.metrics["days"].value, (asked.deadline or 0.0) / DAY
    least = least_time(asked, nearest) / DAY
    text = f"no plan: deadline. the fastest, {nearest.label} on {nearest.machine.text or nearest.machine.device.id}, takes {days:.1f} days"
    relax = [{"argument": "--deadline", "now": f"{limit:.1f}d", "needed": f"{math.ceil(days * 10) / 10:.1f}d"}]
    if least > limit and nearest.run is not None:
        text += (
            f"; more devices cannot bring it below {least:.2g} days: {nearest.run.steps:,.0f} times a sequence of"
            f" {asked.job.sequence:,} at the dense peak of every rank that can share it"
        )
    elif not asked.pins:
        relax += _in_time(asked, nearest, fit)
    refusal = NoPlan(text, binding="deadline", relax=relax)
    refusal.search = tally
    return refusal


def _in_time(asked: TrainingRequest, nearest: TrainingPlan, fit: Fit) -> list[dict[str, Any]]:
    """Return the least doubling of a plan's devices whose best layout meets deadline and budget, tried."""
    for factor in (2, 4, 8, 16, 32):
        machine = _larger(nearest.machine, nearest.machine.count * factor)
        if machine is None:
            continue
        try:
            found = search(asked.model, asked.job, machine, asked.framework, fit, asked.pins)
        except InputError:
            continue
        if not found.layouts:
            continue
        plan = planned(asked, machine, found.layouts[0][2], fit)
        late = plan.metrics["days"].value * DAY > (asked.deadline or math.inf)
        dear = asked.budget is not None and ("cost" not in plan.metrics or plan.metrics["cost"].value > asked.budget)
        if not late and not dear:
            out = {"argument": "--on", "now": nearest.machine.count, "needed": f"{machine.device.id}:{machine.count}"}
            return [out | {"plan": {"layout": plan.label, "step_time": float(plan.step.time)}}]
    return []


def least_time(asked: TrainingRequest, plan: TrainingPlan) -> float:
    """Return what no number of devices goes below: each sequence on as many ranks as heads and context allow, at the dense peak [s].

    A pipeline does not shorten the way of one sequence through all layers, and the next step waits for it.
    """
    widest = max(tensor_degrees(asked.model, MOST_TENSOR)) * max(1, asked.job.sequence // LEAST_SEQUENCE)
    work = sum(flops_per_token(asked.model, asked.job.sequence, asked.job.adapter)) * asked.job.sequence
    return float(work / (widest * _peak(plan)) * (plan.run.steps if plan.run else 1.0))


MOST_TENSOR = 2**10
"""Tensor ranks among which the largest that divides a model is looked for [1]."""


def _warnings(plan: TrainingPlan, policy: str) -> list[tuple[str, str]]:
    """Return what a reader must know, each with a code."""
    out = [("model", text) for text in plan.model.warnings]
    m, x = plan.machine, plan.layout
    out += _tight(plan)
    if m.device.vendor not in plan.framework.vendors:
        known = ", ".join(plan.framework.vendors)
        out.append(
            ("foreign_device", f"{plan.framework.id} is known on {known} alone: {m.device.id} borrows its constants")
        )
    if x.tp > m.per_host:
        out.append(
            (
                "tensor_across_hosts",
                f"tp {int(x.tp)} leaves the host of {m.per_host}: its collectives run at the network's rate",
            )
        )
    offered = {"1f1b", *plan.framework.schedules}
    if x.schedule not in offered:
        out.append(("schedule", f"{plan.framework.id} does not run {x.schedule}: this is what it would take"))
    if plan.job.optimizer.id == "muon":
        out.append(("muon", "Muon's orthogonalisation is not counted in the optimizer's time"))
    if plan.run is not None and plan.run.policy != policy:
        out.append(("policy", f"a run of one copy, or on one host, has none to go on with: --policy {policy} restarts"))
    if plan.cost is not None:
        out += money.warnings_of(plan.cost)
    if m.device.geforce_licence:
        out.append(("geforce_licence", "the GeForce driver licence forbids data centres (blockchain aside)"))
    if plan.run is not None and plan.run.goodput < HARDLY:
        r = plan.run
        text = (
            f"a failure every {r.interruption:,.0f} s against {r.restart:,.0f} s to start again: goodput {r.goodput:.3f}, in practice"
            " this run does not end"
        )
        out.append(("hardly_runs", text))
    if plan.run is not None and plan.run.preset.kind != "derived":
        out.append(("failures_guessed", f"failure rate: {plan.run.preset.source}"))
    return out


MUCH = 0.8
"""Share of a step's time from which another framework is worth a word [1]."""


def _quicker(plan: TrainingPlan, fit: Fit) -> list[tuple[str, str]]:
    """Return which other framework takes much less time for the same layout, and what it does beside compute that this one waits for."""
    mine, found = float(plan.step.time), []
    if plan.job.adapter is not None:
        return []
    for other in map(catalogue.framework, catalogue.ids("frameworks")):
        if other.id == plan.framework.id or not other.newest or not _could_run(other, plan, fit):
            continue
        held = fullest(ledgers(plan.model, plan.job, plan.layout, other, fit))
        if float(held.allocated.value) <= float(plan.machine.device.memory or 0.0):
            a = ability(plan.machine, other, fit)
            found.append((float(step(plan.model, plan.job, plan.layout, a).time), other))
    best, other = min(found, key=lambda one: one[0], default=(mine, plan.framework))
    if best > MUCH * mine:
        return []
    spent = plan.step.parts
    ours = set(plan.framework.overlaps)
    beside = [
        text
        for name, (part, text) in BESIDE.items()
        if name in other.overlaps and name not in ours and float(spent.get(part, 0.0)) > MATTERS * mine
    ]
    why = f", which runs {', '.join(beside)} beside compute" if beside else ""
    text = f"--framework {other.name}{why}: {units.significant(best)} s a step of this layout instead of {units.significant(mine)}"
    return [("quicker_framework", text)]


def _could_run(other: Framework, plan: TrainingPlan, fit: Fit) -> bool:
    """Return whether another framework runs a plan's layout, and its code's step times are known on the plan's architecture."""
    x, architecture = plan.layout, plan.machine.device.architecture
    measured = catalogue.measured_systems(STEP, fit.excluded)
    known = any((one.architecture, one.software) == (architecture, other.name) for one in measured)
    divided = all(getattr(x, name) == 1 or name in other.divides for name in ("tp", "pp", "cp", "ep"))
    return (
        known
        and divided
        and plan.machine.device.vendor in other.vendors
        and other.sharding == plan.framework.sharding
        and x.zero in other.zeros
        and x.schedule in {"1f1b", *other.schedules}
        and (x.interleave == 1 or "interleaved" in other.schedules)
        and x.offload == "none"
        and not other.even_layers
    )


BESIDE = {
    "data": ("data ranks", "reductions over data ranks"),
    "tensor": ("tensor ranks", "tensor collectives"),
    "expert": ("expert ranks", "exchanges between experts"),
    "pipeline": ("pipeline hops", "hops between chunks of a pipeline"),
}
"""What a framework may run beside compute: the part of a step that it is, and its name."""

HARDLY = 0.1
"""Goodput below which a run is said not to end [1]."""


def _tight(plan: TrainingPlan) -> list[tuple[str, str]]:
    """Return where a device's memory may run out within the ledger's error, and where a host's is not known."""
    out, m = [], plan.machine
    most, room = plan.metrics["memory_reserved"].high + plan.framework.keeps("outside"), float(m.device.memory or 0.0)
    if most > room:
        text = f"up to {most / 2**30:.1f} GiB of {room / 2**30:.1f} within the ledger's error, so it may run out"
        out.append(("memory_tight", f"memory: {text}"))
    if plan.layout.offload != "none" and m.uplink is None and m.per_host > 1:
        text = "which devices share a link to the processor is not known: each is taken to have its own"
        out.append(("uplinks_unknown", text))
    if "host_memory" in plan.metrics and m.host_memory is None:
        need = f"{plan.metrics['host_memory'].value / 2**30:,.0f} GiB"
        out.append(
            ("host_memory_unknown", f"host memory is not known of this server: the plan needs {need} in each host")
        )
    return out
