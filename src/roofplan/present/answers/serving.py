"""The answer of ``roofplan serve``."""

from __future__ import annotations

import shlex
from dataclasses import replace

from roofplan.evidence.nearest import nearest_measured
from roofplan.exports.serving import launch
from roofplan.inputs import ServeInputs
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
    machine_member,
    members,
    metric_columns,
    metrics,
    model_member,
    searched,
    shown_model,
    tree,
    view,
)
from roofplan.present.screens.explain import source_text
from roofplan.serving import Plan, Result, UnderLoad, better, bounds, first_bound


@members
class Precision:
    """Formats of weights and cache, and whether they are other than the checkpoint's."""

    weights: str
    kv: str
    changes_model: bool


@members
class Memory:
    """Bytes of the fullest device [B]; `longest_request` in tokens."""

    capacity: float
    weights: float
    kv_cache: float
    activations: float
    runtime: float
    free: float
    left_alone: float
    kv_pool: float
    longest_request: float
    request: float


@members
class DevicePrice:
    """What a device costs per hour: a dated quotation, or what owning it comes to."""

    kind: str
    per_device: float
    unit: str
    provider: str
    date: str
    stale: bool
    source: str


@members
class Point:
    """What a plan does at fewer or more users."""

    users: int
    metrics: dict[str, MetricMember]
    bound: Bound


@members
class FeltLimit:
    """A limit on what users feel, and the time at its percentile [s]."""

    figure: str
    value: float
    limit: float


@members
class UnderLoadMember:
    """What users feel of a plan at the demanded rate, by simulation.

    Parameters
    ----------
    place : of the plan by its steady state, from 1 [1].
    good : share of requests inside all limits [1].
    growth : requests a second by which the queue grows, 0 where it does not [1/s].
    """

    holds: bool
    place: int
    good: float
    growth: float
    limits: list[FeltLimit]


@members
class ServePlan:
    """One serving plan.

    Parameters
    ----------
    concurrency : users at once [1].
    bound : what limits each phase.
    causes : what takes the time between tokens, or to the first where no other follows: share of the whole, the largest first [1].
    pareto : whether no other plan is both quicker and cheaper.
    tied : whether its objective lies within 1% of the first plan's.
    within_interval : whether its objective differs from the first plan's by less than the two 90% intervals.
    idle_devices : devices of replicas without a user [1].
    nearest_measured : published runs of the same model and device.
    points : the ladder of users, of the first plan.
    """

    id: str
    machine: MachineMember
    engine: str
    strategy: dict[str, int]
    precision: Precision
    concurrency: int
    metrics: dict[str, MetricMember]
    bound: dict[str, Bound]
    causes: dict[str, float]
    memory: Memory
    pareto: bool
    tied: bool
    within_interval: bool
    idle_devices: int
    price: DevicePrice | None
    nearest_measured: list[Json]
    launch: str
    reproduce: str
    source_ids: list[str]
    points: list[Point]
    under_load: UnderLoadMember = ABSENT
    explain: list[Tree] = ABSENT


@members
class BesidePlan:
    """A plan that stands beside the first one."""

    machine: MachineMember
    engine: str
    strategy: dict[str, int]
    precision: Precision
    concurrency: int
    metrics: dict[str, MetricMember]


@members
class StandingMember:
    """How a plan with pinned degrees ranks among all plans of its machine.

    Parameters
    ----------
    place, of : its place by the objective, and the number of plans [1].
    ratio : its objective over that of the best, above 1 where the best is better [1].
    within_interval : whether the difference is smaller than the two 90% intervals.
    best : the first plan without pins.
    """

    place: int
    of: int
    ratio: float
    within_interval: bool
    best: BesidePlan


@members
class ImprovementMember:
    """A change of the question that was tried with the first plan's degrees.

    Parameters
    ----------
    argument, needed : flag and value that make the change.
    ratio : objective with the change over that without, below 1 where it is better [1].
    """

    argument: str
    needed: str
    ratio: float
    plan: BesidePlan


@members
class ServeAnswer(Answer):
    """Serving plans, the best first.

    Parameters
    ----------
    standing : how pinned degrees rank.
    smaller : plan of the smallest machine of the same kind that serves the demand.
    better : changes that improve the first plan.
    """

    model: ModelMember = ABSENT
    plans: list[ServePlan] = ABSENT
    standing: StandingMember = ABSENT
    smaller: BesidePlan = ABSENT
    better: list[ImprovementMember] = ABSENT
    sources: dict[str, DocumentMember] = ABSENT
    emit: str = ABSENT


def serve_answer(result: Result, asked: ServeInputs, *, top: int, explain: int = 0, emit: bool = False) -> ServeAnswer:
    """Return the answer of ``roofplan serve``.

    Parameters
    ----------
    result : the plans found, the best first.
    asked : inputs of the command.
    top : plans to show, at least one [1].
    explain : levels of the first plan's explanation, 0 for none [1].
    emit : whether to add the launch command of the first plan.

    Returns
    -------
    The answer.
    """
    sources: dict[str, DocumentMember] = {}
    w = result.plans[0].workload
    shown = [
        _plan(plan, result if index == 0 else None, asked, sources, explain=explain if index == 0 else 0)
        for index, plan in enumerate(result.plans[: max(top, 1)])
    ]
    return answered(
        ServeAnswer,
        "serve",
        replace(asked, input=str(w.input), output=str(w.output), context=str(w.context)),
        warnings=result.warnings,
        fit=result.plans[0].rates.fit,
        search=searched(result.tally),
        model=model_member(result.plans[0].model),
        plans=shown,
        standing=ABSENT if (own := result.standing) is None else view(StandingMember, own, best=_beside(own.best)),
        smaller=ABSENT if result.smaller is None else _beside(result.smaller),
        better=[view(ImprovementMember, one, plan=_beside(one.plan)) for one in better(result)],
        sources=sources,
        emit=launch(result.plans[0]) if emit else ABSENT,
    )


def _plan(
    plan: Plan, first: Result | None, asked: ServeInputs, sources: dict[str, DocumentMember], *, explain: int
) -> ServePlan:
    """Return one plan; the first one of a result has the ladder of its users."""
    book = plan.memory
    behind = [one for time in plan.prediction.times for one in time.bibliography()]
    keys = list(dict.fromkeys([*(one.citation for one in behind), "config.json", "engine", book.capacity_source]))
    if plan.cost is not None:
        keys.append(plan.cost.price.source)
    for key in keys:
        sources.setdefault(key, DocumentMember(text=source_text(key, plan)))
    trees = [*plan.prediction.times, book.term(plan.cache_in_use), plan.power, plan.cost_term()]
    return view(
        ServePlan,
        plan,
        machine=machine_member(plan.machine),
        engine=plan.engine.id,
        strategy=plan.strategy.as_dict(),
        precision=Precision(weights=_weights(plan), kv=plan.kv_precision, changes_model=plan.changes_model),
        concurrency=plan.users,
        metrics=metrics(plan.metrics),
        bound={phase: Bound(limit=name, share=share) for phase, (name, share) in bounds(plan).items()},
        memory=view(
            Memory,
            book,
            kv_cache=plan.cache_in_use,
            runtime=book.runtime + book.graphs,
            free=max(0.0, book.pool - plan.cache_in_use),
            kv_pool=book.pool,
            longest_request=book.longest,
        ),
        price=None
        if plan.cost is None
        else view(DevicePrice, plan.cost.price, per_device=plan.cost.price.value, unit="USD/h", stale=plan.cost.stale),
        nearest_measured=nearest_measured(plan),
        launch=launch(plan),
        reproduce=reproduce(plan, asked),
        source_ids=keys,
        points=[_point(step) for step in first.ladder] if first is not None else [],
        under_load=ABSENT if plan.under_load is None else _under_load(plan.under_load),
        explain=[tree(one, explain) for one in trees if one is not None] if explain else ABSENT,
    )


def _under_load(felt: UnderLoad) -> UnderLoadMember:
    limits = [FeltLimit(figure=name, value=time, limit=limit) for name, time, limit in felt.limits]
    return view(UnderLoadMember, felt, place=felt.place + 1, limits=limits)


def _beside(plan: Plan) -> BesidePlan:
    return view(
        BesidePlan,
        plan,
        machine=machine_member(plan.machine),
        engine=plan.engine.id,
        strategy=plan.strategy.as_dict(),
        precision=Precision(weights=_weights(plan), kv=plan.kv_precision, changes_model=plan.changes_model),
        concurrency=plan.users,
        metrics=metrics(plan.metrics),
    )


def _weights(plan: Plan) -> str:
    return plan.model.quantization.format if plan.model.quantization else plan.model.dtype


def _point(step: Plan) -> Point:
    limit, share = first_bound(step)
    return Point(users=step.users, metrics=metrics(step.metrics), bound=Bound(limit=limit, share=share))


def reproduce(plan: Plan, asked: ServeInputs) -> str:
    """Return the command that judges exactly this configuration."""
    w = plan.workload
    model = shown_model(asked.model, plan.model.id)
    words = [f"roofplan serve {model} --on {shlex.quote(plan.machine.text)}"]
    degrees = ",".join(f"{name}={value}" for name, value in plan.strategy.as_dict().items())
    words.append(
        f"--strategy {degrees} --engine {shlex.quote(plan.engine.stands_for or plan.engine.id)} --concurrency {plan.users}"
        f" --input {w.input} --output {w.output} --context {w.context}"
    )
    if plan.precision != "checkpoint":
        words.append(f"--precision {plan.precision}")
    if asked.kv_precision is not None:
        words.append(f"--kv-precision {plan.kv_precision}")
    if asked.set:
        words.append(f"--set {asked.set}")
    own = ("rate", "slo", "prefix_hit", "draft", "price", "utilisation")
    given = [name for name in own if getattr(asked, name) not in {None, "0", "rent", "100%"}]
    words.extend(f"--{name.replace('_', '-')} {getattr(asked, name)}" for name in given)
    return " ".join(words)


def csv_rows(result: Result) -> list[Json]:
    """Return every plan as a flat row in SI units.

    Parameters
    ----------
    result : the plans found.

    Returns
    -------
    One row per plan, in the order of the plans.
    """
    rows = []
    for plan in result.plans:
        limits = bounds(plan)
        row: Json = {
            "machine": plan.machine.text or plan.machine.device.id,
            "device": plan.machine.device.id,
            "count": plan.machine.count,
            "engine": plan.engine.id,
            **plan.strategy.as_dict(),
            "weights": _weights(plan),
            "kv": plan.kv_precision,
            "users": plan.users,
            "pareto": plan.pareto,
            "tied": plan.tied,
            "within_interval": plan.within_interval,
            "idle_devices": plan.idle_devices,
            **metric_columns(plan.metrics),
            "decode_limit": limits["decode"][0] if "decode" in limits else "",
            "prefill_limit": limits["prefill"][0],
            "weights_bytes": plan.memory.weights,
            "kv_pool_bytes": plan.memory.pool,
            "price_date": plan.cost.price.date if plan.cost else "",
        }
        rows.append(row)
    return rows
