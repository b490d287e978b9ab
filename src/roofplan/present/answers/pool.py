"""The answers of ``roofplan pool``."""

from __future__ import annotations

from roofplan.inputs import PoolPlanInputs
from roofplan.pool.layout import Layout
from roofplan.pool.plan import PoolPlan, StageView
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
)


@members
class StageMember:
    """What a member of the pool does.

    Parameters
    ----------
    layers : first and last of its layers; absent where it holds the output layer alone.
    output : whether the output layer stands with it.
    memory : bytes of its layers, of the longest request's cache in them, and of its room for both [B].
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
    gap : how far the layout may be from the best, as a share of its time; 0 where it is the best [1].
    users : at once at the throughput [1].
    bare, unpriced : whether power leaves out the rest of the members' machines, and cards without a known price.
    api : median listed price of the model's output tokens [USD/Mtoken].
    private : what a member learns of the texts.
    """

    client: str
    output: str
    stages: list[StageMember]
    metrics: dict[str, MetricMember]
    users: int
    gap: float
    bounds: list[LimitShare]
    left_out: list[LeftMember]
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
        gap=plan.found.gap,
        bounds=[LimitShare(limit=name, member=who or ABSENT, share=share) for name, who, share in plan.limits],
        left_out=[LeftMember(member=one.member.name, visit=one.visit, layers=one.layers) for one in plan.left],
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
