"""The answers of ``roofplan pool``."""

from __future__ import annotations

from typing import Literal

import numpy as np

from roofplan import catalogue
from roofplan.inputs import PoolPlanInputs, PoolProveInputs, PoolSimulateInputs
from roofplan.pool.checks import HONEST, Cheaters, Checked, closed_form, honest_auditors
from roofplan.pool.layout import Layout
from roofplan.pool.plan import PoolPlan, StageView
from roofplan.pool.proof import Compared, Proof, Proven
from roofplan.pool.service import Pipeline
from roofplan.pool.simulate import PoolSimulation
from roofplan.present.answers.load import figure_member
from roofplan.present.answers.record import (
    ABSENT,
    Answer,
    DocumentMember,
    Json,
    MetricMember,
    ModelMember,
    Tree,
    answered,
    cited,
    members,
    metrics,
    model_member,
    rows_of,
    tree,
    view,
)


@members
class StageMember:
    """What a member of the pool does.

    Parameters
    ----------
    layers : first and last of its layers; absent where it holds the output layer alone.
    output : whether the output layer stands with it.
    memory : bytes of its layers, of the users' caches in them, each of the longest request, and of its room for both [B].
    time, hop : of its part of a token, and of the messages to and from it [s].
    sent, link : bytes that it sends for each token [B], and share of its uplink at the pool's throughput [1].
    power : of its card [W].
    adds : tokens a second of one user that the pool loses without it; absent where it cannot do without [1/s].
    """

    member: str
    device: str
    layers: list[int] = ABSENT
    output: bool
    memory: dict[str, float]
    time: float
    hop: float
    sent: float
    link: float
    power: float = ABSENT
    adds: float = ABSENT


@members
class LimitShare:
    """What binds a token: a limit, of which member, and its share of the time."""

    limit: str
    member: str = ABSENT
    share: float


@members
class LeftMember:
    """A member without a part: what a visit to it costs [s], and the layers that it could hold [1]."""

    member: str
    visit: float
    layers: int


@members
class PoolPlanMember:
    """A plan.

    Parameters
    ----------
    client : member that asks.
    output : whether the output layer stands with the ``client`` or with the ``last`` stage.
    gap : how far the layout of least time may be from the best, as a share of its time; 0 where it is the best; absent
        where most tokens are sought, or layers are shared: the best of those tried [1].
    users : at once at the throughput [1].
    context : longest request that members hold [token].
    electricity, life : price of electricity of members that state none [USD/J], and life of a card [s].
    bare, unpriced : whether power leaves out the rest of the members' machines, and cards without a known price.
    api : median listed price of the model's output tokens [USD/Mtoken].
    private : what a member learns of the texts.
    """

    client: str
    output: str
    stages: list[StageMember]
    metrics: dict[str, MetricMember]
    users: int
    gap: float = ABSENT
    bounds: list[LimitShare]
    left_out: list[LeftMember]
    context: int
    electricity: float = ABSENT
    life: float = ABSENT
    bare: bool = ABSENT
    unpriced: list[str] = ABSENT
    api: float = ABSENT
    private: list[str]
    launch: list[str] = ABSENT


@members
class BaselineMember:
    """A layout by a published rule, timed by the laws of the plan: tokens a second of one user, or why there is none."""

    stages: list[Json] = ABSENT
    tokens_per_second_per_user: float = ABSENT
    why: str = ABSENT


@members
class PoolPlanAnswer(Answer):
    """Who holds which layers of a pool."""

    model: ModelMember = ABSENT
    software: str = ABSENT
    engine: str = ABSENT
    plans: list[PoolPlanMember] = ABSENT
    baselines: dict[str, BaselineMember] = ABSENT
    explain: list[Tree] = ABSENT
    sources: dict[str, DocumentMember] = ABSENT


def pool_plan_answer(plan: PoolPlan, asked: PoolPlanInputs, levels: int | None) -> PoolPlanAnswer:
    """Return the answer of ``roofplan pool plan``.

    Parameters
    ----------
    plan : the plan.
    asked : inputs of the command.
    levels : levels of the explanation, None for none [1].

    Returns
    -------
    The answer.
    """
    return answered(
        PoolPlanAnswer,
        "pool plan",
        asked,
        warnings=plan.warnings,
        model=model_member(plan.request.model),
        software=plan.request.software.id,
        engine=plan.request.engine.id,
        plans=[_plan(plan)],
        baselines={
            name: BaselineMember(
                stages=ABSENT if one.layout is None else _stages(plan, one.layout),
                tokens_per_second_per_user=ABSENT if one.rate is None else one.rate,
                why=one.why or ABSENT,
            )
            for name, one in plan.baselines.items()
        },
        explain=ABSENT if levels is None else [tree(plan.token, levels), tree(plan.first, levels)],
        sources=cited([*plan.token.bibliography(), *plan.first.bibliography()]),
    )


def _plan(plan: PoolPlan) -> PoolPlanMember:
    paid = plan.bill
    return PoolPlanMember(
        client=plan.client.name,
        output=plan.layout.output,
        stages=[_stage(plan, one) for one in plan.views],
        metrics=metrics(plan.metrics),
        users=plan.users,
        gap=plan.found.gap if plan.exact else ABSENT,
        bounds=[LimitShare(limit=name, member=who or ABSENT, share=share) for name, who, share in plan.limits],
        left_out=[LeftMember(member=one.member.name, visit=one.visit, layers=one.layers) for one in plan.left],
        context=plan.request.workload.context,
        electricity=ABSENT if paid is None else plan.request.tariff.value,
        life=ABSENT if paid is None else catalogue.pools().assumed["life"].value,
        bare=ABSENT if paid is None else paid.bare,
        unpriced=ABSENT if paid is None or not paid.unpriced else list(paid.unpriced),
        api=ABSENT if paid is None or paid.api is None else paid.api,
        private=plan.private,
        launch=plan.launch or ABSENT,
    )


def _stage(plan: PoolPlan, one: StageView) -> StageMember:
    names = [member.name for member in plan.request.members]
    watts = None if plan.bill is None else plan.bill.watts.get(names.index(one.member.name))
    alone = plan.metrics["tokens_per_second_per_user"].value
    return StageMember(
        member=one.member.name,
        device=one.member.device.id,
        layers=ABSENT if one.layers is None else list(one.layers),
        output=one.output,
        memory={"weights": one.weights, "kv_cache": one.cache, "room": one.room},
        time=one.time,
        hop=one.hop,
        sent=one.sent,
        link=plan.link_share(one),
        power=ABSENT if watts is None else watts,
        adds=ABSENT if one.without is None else max(0.0, alone - one.without),
    )


def _stages(plan: PoolPlan, layout: Layout) -> list[Json]:
    return [
        {"member": plan.request.members[one.member].name, "layers": [one.first, one.end - 1]} for one in layout.stages
    ]


def pool_rows(plan: PoolPlan) -> list[Json]:
    """Return the members of a plan as rows of a table.

    Parameters
    ----------
    plan : the plan.

    Returns
    -------
    One row for each member with a part.
    """
    ends = [("", "") if view.layers is None else view.layers for view in plan.views]
    rows = rows_of(_stage(plan, one) for one in plan.views)
    return [{**row, "first": first, "last": last} for (first, last), row in zip(ends, rows, strict=True)]


@members
class PipelineMember:
    """A pipeline: who holds its layers in the plan, and the share of the time in which it could serve [1]."""

    stages: list[Json]
    up: float


@members
class EarningMember:
    """A member: share of the time in which it was there [1], FLOP computed and of finished answers, and its credit for these [cobblestone]."""

    member: str
    online: float
    work: float
    useful: float
    credit: float


@members
class KindMember:
    """Members of one kind, in jobs.

    Parameters
    ----------
    members : of the kind [1].
    accepted : wrong results that were delivered as right.
    found : times that one was found to cheat, or punished by false alarms.
    gain : what a cheat gained on average: work saved less what was lost; absent of the honest.
    expected : the same by the closed form s - p q (D + W), where audits alone find it.
    honesty_from : share of audits from which honesty pays [1].
    """

    kind: str
    members: int
    jobs: int
    cheated: int
    accepted: int
    found: int
    gain: float = ABSENT
    expected: float = ABSENT
    honesty_from: float = ABSENT


@members
class ChecksMember:
    """What checks of simulated jobs found.

    Parameters
    ----------
    jobs : delivered [1].
    replicated, audited : copies, and audits, by jobs [1].
    overhead : FLOP of checks by those of jobs [1].
    time : device time of audits by that of answers [1].
    wrong : answers delivered that were wrong, by jobs [1].
    balance : jobs whose credit is neither paid, withheld nor lost [1].
    """

    jobs: int
    replicated: float
    audited: float
    overhead: float
    time: float
    wrong: float
    balance: int
    kinds: list[KindMember]


@members
class PoolSimulationMember:
    """What happened in a pool.

    Parameters
    ----------
    served, given_up : share of the requests that were finished [1], and users who gave up [1].
    interrupted : answers whose pipeline broke [1].
    wasted : share of the computed tokens that were computed again [1].
    replaced : places that another member took [1].
    any_up : share of the time in which a pipeline could serve [1].
    ttft, tpot, e2e, waiting : mean and percentiles of finished requests; `low` and `high` are of the mean [s].
    cpu_seconds : of the simulation, checks excepted [s].
    """

    requests: int
    served: float
    given_up: int
    interrupted: int
    wasted: float
    replaced: int
    any_up: float
    ttft: Json = ABSENT
    tpot: Json = ABSENT
    e2e: Json = ABSENT
    waiting: Json = ABSENT
    pipelines: list[PipelineMember]
    spares: list[str]
    members: list[EarningMember]
    member_days: float
    cpu_seconds: float
    seed: int


@members
class PoolSimulateAnswer(Answer):
    """What happens in a pool whose members come and go, and what checks of its work find."""

    model: ModelMember = ABSENT
    software: str = ABSENT
    plans: list[PoolPlanMember] = ABSENT
    simulation: PoolSimulationMember = ABSENT
    checks: ChecksMember = ABSENT


def pool_simulate_answer(found: PoolSimulation, asked: PoolSimulateInputs) -> PoolSimulateAnswer:
    """Return the answer of ``roofplan pool simulate``.

    Parameters
    ----------
    found : what was simulated.
    asked : inputs of the command.

    Returns
    -------
    The answer.
    """
    plan, outcome = found.plan, found.outcome
    taken = {place.member for one in found.pipelines for place in one.places}
    figures = {name: figure_member(one) for name, one in found.figures.items()}
    return answered(
        PoolSimulateAnswer,
        "pool simulate",
        asked,
        warnings=plan.warnings,
        model=model_member(plan.request.model),
        software=plan.request.software.id,
        plans=[_plan(plan)],
        simulation=PoolSimulationMember(
            requests=len(found.requests),
            served=found.served,
            given_up=int((outcome.left >= 0.0).sum()),
            interrupted=int((outcome.interrupted > 0).sum()),
            wasted=found.wasted,
            replaced=outcome.replaced,
            any_up=found.any_up,
            pipelines=[
                PipelineMember(stages=_places(plan, one), up=up)
                for one, up in zip(found.pipelines, outcome.up, strict=True)
            ],
            spares=[one.name for m, one in enumerate(plan.request.members) if m not in taken],
            members=[
                EarningMember(member=one.name, online=one.online, work=one.work, useful=one.useful, credit=one.credit)
                for one in found.shares
            ],
            member_days=found.member_days,
            cpu_seconds=found.cpu,
            seed=found.circumstances.seed,
            **figures,
        ),
        checks=ABSENT if found.checks is None else _checks(found, found.checks),
    )


def _places(plan: PoolPlan, one: Pipeline) -> list[Json]:
    return [
        {"member": plan.request.members[place.member].name, "layers": list(place.layers)}
        for place in sorted(one.places, key=lambda place: place.layers)
    ]


def _checks(found: PoolSimulation, checks: Checked) -> ChecksMember:
    cheaters = found.circumstances.cheaters
    audited = checks.audits / checks.jobs
    honest = honest_auditors(cheaters)
    return ChecksMember(
        jobs=checks.jobs,
        replicated=checks.replicated,
        audited=audited,
        overhead=checks.overhead,
        time=checks.replicated + audited * found.audit,
        wrong=checks.wrong / checks.jobs,
        balance=checks.balance,
        kinds=[
            _kind(found, checks, HONEST, None, honest),
            *(_kind(found, checks, one.cheat.id, one, honest) for one in cheaters),
        ],
    )


def _kind(found: PoolSimulation, checks: Checked, name: str, cheats: Cheaters | None, honest: float) -> KindMember:
    tally, checking = checks.kinds[name], found.circumstances.checking
    whole = cheats is not None and checking.audit > 0.0
    gain, least = closed_form(checking, cheats, honest) if whole and cheats is not None else (ABSENT, ABSENT)
    return KindMember(
        kind=name,
        members=tally.members,
        jobs=tally.jobs,
        cheated=tally.cheated,
        accepted=tally.accepted,
        found=tally.found,
        gain=tally.gain if tally.cheated else ABSENT,
        expected=gain,
        honesty_from=least,
    )


def request_rows(found: PoolSimulation) -> list[Json]:
    """Return the requests of a simulation as rows of a table; times that did not come are empty.

    Parameters
    ----------
    found : what was simulated.

    Returns
    -------
    One row for each request.
    """
    out, requests = found.outcome, found.requests
    columns = {
        "arrival": requests.arrivals,
        "input": requests.inputs,
        "output": requests.outputs,
        "admitted": out.admitted,
        "first": out.first,
        "last": out.last,
        "gave_up": out.left,
        "interrupted": out.interrupted,
    }
    times = {"admitted", "first", "last", "gave_up"}
    rows = zip(*(np.asarray(one).tolist() for one in columns.values()), strict=True)
    return [
        {name: "" if name in times and value < 0.0 else value for name, value in zip(columns, row, strict=True)}
        for row in rows
    ]


@members
class ComparedMember:
    """A figure as predicted, with its interval, and as measured; and the relative error of the prediction [1]."""

    predicted: float
    low: float
    high: float
    measured: float
    unit: Literal["s", "B"]
    inside: bool
    error: float


@members
class ProvenMember:
    """What was seen over links of one rate.

    Parameters
    ----------
    rate : of every link; absent over loopback [B/s].
    wire : share of a token's predicted time that is on the wire [1].
    token, prompt : their times.
    received_per_token, sent_to_load : bytes to the client for each token, and of the weights to the workers; absent over loopback.
    load : time in which the weights reach the workers; absent over loopback.
    """

    rate: float = ABSENT
    wire: float
    token: ComparedMember
    prompt: ComparedMember
    received_per_token: ComparedMember = ABSENT
    sent_to_load: ComparedMember = ABSENT
    load: ComparedMember = ABSENT


@members
class PoolProveAnswer(Answer):
    """A small model on a real engine over shaped links, beside what is predicted.

    Parameters
    ----------
    layers : of each worker, the last of which has the output layer [1].
    local : median time of a token of the client alone, on which predictions rest [s].
    unshaped : why links were not shaped.
    """

    model: ModelMember = ABSENT
    layers: list[int] = ABSENT
    local: float = ABSENT
    unshaped: str = ABSENT
    links: list[ProvenMember] = ABSENT


def pool_prove_answer(found: Proof, asked: PoolProveInputs) -> PoolProveAnswer:
    """Return the answer of ``roofplan pool prove``.

    Parameters
    ----------
    found : the proof.
    asked : inputs of the command.

    Returns
    -------
    The answer.
    """
    return answered(
        PoolProveAnswer,
        "pool prove",
        asked,
        warnings=[("unshaped", found.why)] if found.why else [],
        model=model_member(found.model),
        layers=list(found.layers),
        local=float(np.median(found.local.tokens)),
        unshaped=found.why or ABSENT,
        links=[_proven(one) for one in found.links],
    )


def _proven(one: Proven) -> ProvenMember:
    return ProvenMember(
        rate=ABSENT if one.rate is None else one.rate,
        wire=one.wire,
        token=_compared(one.token, "s"),
        prompt=_compared(one.prompt, "s"),
        received_per_token=ABSENT if one.received is None else _compared(one.received, "B"),
        sent_to_load=ABSENT if one.sent is None else _compared(one.sent, "B"),
        load=ABSENT if one.load is None else _compared(one.load, "s"),
    )


def _compared(one: Compared, unit: Literal["s", "B"]) -> ComparedMember:
    return view(ComparedMember, one, unit=unit)


def proof_rows(found: Proof) -> list[Json]:
    """Return the runs of a proof as rows of a table.

    Parameters
    ----------
    found : the proof.

    Returns
    -------
    One row for each rate.
    """
    return rows_of(_proven(one) for one in found.links)
