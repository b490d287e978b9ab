"""The answer of ``roofplan train``."""

from __future__ import annotations

import shlex
from dataclasses import fields, replace

from roofplan.exports.training import launch, launch_or_reason
from roofplan.inputs import TrainInputs
from roofplan.present.answers.record import (
    ABSENT,
    Answer,
    Bound,
    DocumentMember,
    Json,
    MachineMember,
    MetricMember,
    ModelMember,
    Tree,
    answered,
    joined_machine,
    members,
    metric_columns,
    metrics,
    model_member,
    searched,
    shown_model,
    tree,
    view,
)
from roofplan.present.screens.explain import document_text
from roofplan.training import TrainingPlan, TrainingResult, binding, flops_per_token


@members
class Work:
    """Operations per token by kind [FLOP]."""

    products: float
    attention: float
    unit: str


@members
class Job:
    """What is trained: sequences of so many tokens, and so many of them a step.

    Parameters
    ----------
    imbalance : tokens of the busiest rank of experts over their mean [1].
    capacity : tokens that an expert takes over their mean, null where it takes all [1].
    """

    sequence: int
    batch: float
    tokens: float | None
    precision: str
    optimizer: str
    imbalance: float
    capacity: float | None
    flops_per_token: Work


@members
class Parts:
    """Parts of a step [s]."""

    parts: dict[str, float]
    unit: str


@members
class Stage:
    """What one stage of the pipeline reserves [B], and how many stages are like it."""

    stage: int
    alike: float
    reserved: float


@members
class Memory:
    """Bytes of the fullest stage's devices and of every stage [B]."""

    capacity: float | None
    stage: int
    allocated: float
    reserved: float
    parts: dict[str, float]
    stages: list[Stage]


@members
class Checkpoint:
    """What is written [B], how long that takes and stops the run, and how often it is done [s]."""

    bytes: float
    write: float
    stall: float
    interval: float


@members
class Run:
    """From the first step to the last.

    Parameters
    ----------
    steps : of the run [1].
    work, elapsed, p90 : time of the steps alone, with failures, and what nine runs of ten stay below [s].
    mean_time_to_interruption, restart : between failures, and until the run goes on [s].
    failures, spare_hosts : expected, and kept ready [1].
    """

    steps: float
    work: float
    elapsed: float | None
    p90: float | None
    goodput: float
    mean_time_to_interruption: float
    restart: float
    failures: float | None
    spare_hosts: float
    preset: str
    policy: str
    checkpoint: Checkpoint


@members
class DevicePrice:
    """What a device costs per hour; `stale` where the price is old."""

    kind: str
    value: float
    unit: str
    date: str
    source: str
    stale: bool


@members
class TrainPlan:
    """One training plan.

    Parameters
    ----------
    pareto : whether no layout on its machine is both faster and leaner.
    tied : whether its objective lies within 1% of the first plan's.
    within_interval : whether its objective differs from the first plan's by less than the two 90% intervals.
    """

    id: str
    machine: MachineMember
    framework: str
    strategy: dict[str, float | str]
    micro_batches: float
    metrics: dict[str, MetricMember]
    bound: dict[str, Bound]
    step: Parts
    memory: Memory
    run: Run | None
    pareto: bool
    tied: bool
    within_interval: bool
    price: DevicePrice | None
    launch: str
    reproduce: str
    source_ids: list[str]
    explain: list[Tree] = ABSENT


@members
class BesideLayout:
    """A training plan that stands beside the first one."""

    machine: MachineMember
    strategy: dict[str, float | str]
    metrics: dict[str, MetricMember]


@members
class LayoutStanding:
    """How a plan with pinned degrees compares with the best layout of its machine.

    Parameters
    ----------
    ratio : its objective over that of the best, above 1 where the best is better [1].
    within_interval : whether the difference is smaller than the two 90% intervals.
    best : the best plan without pins.
    """

    ratio: float
    within_interval: bool
    best: BesideLayout


@members
class TrainAnswer(Answer):
    """Training plans, the best first.

    Parameters
    ----------
    standing : how pinned degrees compare with the best layout of the machine.
    smallest : plan with the fewest devices that meets the deadline, where the first has more.
    """

    assumed: list[str] = ABSENT
    model: ModelMember = ABSENT
    job: Job = ABSENT
    plans: list[TrainPlan] = ABSENT
    standing: LayoutStanding = ABSENT
    smallest: BesideLayout = ABSENT
    sources: dict[str, DocumentMember] = ABSENT
    emit: str = ABSENT


def train_answer(
    result: TrainingResult, asked: TrainInputs, *, top: int, explain: int = 0, emit: str | None = None
) -> TrainAnswer:
    """Return the answer of ``roofplan train``.

    Parameters
    ----------
    result : the plans found, the best first.
    asked : inputs of the command.
    top : plans to show, at least one [1].
    explain : levels of the first plan's explanation, 0 for none [1].
    emit : framework whose launch of the first plan is added, None for none.

    Returns
    -------
    The answer.

    Raises
    ------
    InputError : the framework in `emit` cannot run the first plan.
    """
    first = result.plans[0]
    job, sources = first.job, dict[str, DocumentMember]()
    products, mixing = flops_per_token(first.model, job.sequence, job.adapter)
    shown = [
        _plan(plan, asked, sources, explain=explain if index == 0 else 0)
        for index, plan in enumerate(result.plans[: max(top, 1)])
    ]
    return answered(
        TrainAnswer,
        "train",
        replace(asked, batch=f"{job.batch}seq", sequence=str(job.sequence), best=result.asked.best),
        warnings=result.warnings,
        fit=first.ability.rates.fit,
        search=searched(result.tally),
        assumed=result.asked.assumed,
        model=model_member(first.model),
        job=view(
            Job,
            job,
            optimizer=job.optimizer.id,
            flops_per_token=Work(products=products, attention=mixing, unit="FLOP"),
        ),
        plans=shown,
        standing=ABSENT if (own := result.standing) is None else view(LayoutStanding, own, best=_beside(own.best)),
        smallest=ABSENT if (least := result.smallest) is None else _beside(least),
        sources=sources,
        emit=ABSENT if emit is None else launch(first, emit),
    )


def _beside(plan: TrainingPlan) -> BesideLayout:
    return view(
        BesideLayout,
        plan,
        machine=joined_machine(plan.machine),
        strategy=plan.layout.as_dict(),
        metrics=metrics(plan.metrics),
    )


def _plan(plan: TrainingPlan, asked: TrainInputs, sources: dict[str, DocumentMember], *, explain: int) -> TrainPlan:
    """Return one training plan."""
    held = plan.ledger
    behind = [*plan.term.bibliography(), *held.allocated.bibliography()]
    keys = list(dict.fromkeys(one.citation for one in behind))
    keys += [plan.cost.price.source] if plan.cost is not None else []
    keys += [plan.run.preset.source] if plan.run is not None else []
    for key in keys:
        sources.setdefault(key, DocumentMember(text=document_text(key)))
    limit, share = binding(plan)
    trees = [plan.term, held.allocated, *([plan.power] if plan.power else [])]
    return view(
        TrainPlan,
        plan,
        machine=joined_machine(plan.machine),
        framework=plan.framework.id,
        strategy=plan.layout.as_dict(),
        micro_batches=float(plan.step.micro_batches),
        metrics=metrics(plan.metrics),
        bound={"step": Bound(limit=limit, share=share)},
        step=Parts(parts={name: float(seconds) for name, seconds in plan.step.parts.items()}, unit="s"),
        memory=Memory(
            capacity=plan.machine.device.memory,
            stage=held.stage.place,
            allocated=float(held.allocated.value),
            reserved=float(held.reserved),
            parts={term.name: float(term.value) for term in held.allocated.parts},
            stages=[
                view(Stage, one.stage, stage=one.stage.place, reserved=float(one.reserved)) for one in plan.ledgers
            ],
        ),
        run=_run(plan),
        price=None if plan.cost is None else view(DevicePrice, plan.cost.price, stale=plan.cost.stale),
        launch=launch_or_reason(plan),
        reproduce=reproduce(plan, asked),
        source_ids=keys,
        explain=[tree(one, explain) for one in trees] if explain else ABSENT,
    )


def _run(plan: TrainingPlan) -> Run | None:
    """Return the run of a plan, None where no tokens were asked for."""
    r = plan.run
    if r is None:
        return None
    return view(
        Run,
        r,
        mean_time_to_interruption=r.interruption,
        spare_hosts=r.spares,
        preset=r.preset.id,
        checkpoint=view(Checkpoint, r.checkpoint),
    )


def reproduce(plan: TrainingPlan, asked: TrainInputs) -> str:
    """Return the command that plans this layout again."""
    x = plan.layout.as_dict()
    whole = {"recomputed": "100%"} if x["recompute"] == "full" and x["recomputed"] == 1.0 else {}
    skipped = {"recomputed"} if x["recompute"] != "full" else set()
    degrees = ",".join(f"{name}={whole.get(name, value)}" for name, value in x.items() if name not in skipped)
    words = [
        f"roofplan train {shown_model(asked.model, plan.model.id)}",
        f"--framework {shlex.quote(plan.framework.stands_for or plan.framework.id)}",
        f"--on {shlex.quote(plan.machine.text or plan.machine.device.id)}",
        f"--batch {plan.job.batch}seq --sequence {plan.job.sequence} --strategy {degrees}",
    ]
    given = {one.name: getattr(asked, one.name) for one in fields(asked) if getattr(asked, one.name) != one.default}
    words += [f"--{name} {shlex.quote(str(given[name]))}" for name in KEPT if name in given]
    return " ".join(words)


KEPT = (
    *("tokens", "compute", "precision", "rank", "base", "imbalance", "capacity", "fabric", "failures"),
    *("optimizer", "method", "checkpoint", "policy", "price", "place"),
)
"""Inputs that say more than a layout and a batch do."""


def csv_rows(result: TrainingResult) -> list[Json]:
    """Return every training plan as a flat row in SI units.

    Parameters
    ----------
    result : the plans found.

    Returns
    -------
    One row per plan, in the order of the plans.
    """
    return [
        {
            "machine": plan.machine.text or plan.machine.device.id,
            "device": plan.machine.device.id,
            "count": plan.machine.count,
            "framework": plan.framework.id,
            **plan.layout.as_dict(),
            "batch": plan.job.batch,
            "sequence": plan.job.sequence,
            "pareto": plan.pareto,
            "tied": plan.tied,
            "within_interval": plan.within_interval,
            **metric_columns(plan.metrics),
            **{f"step_{name.replace(' ', '_')}": float(seconds) for name, seconds in plan.step.parts.items()},
            **{f"memory_{t.name.replace(' ', '_')}": float(t.value) for t in plan.ledger.allocated.parts},
        }
        for plan in result.plans
    ]
