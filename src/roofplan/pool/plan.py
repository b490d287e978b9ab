"""The plan of a pool: who holds which layers, how fast and how sure, what binds, and what each member adds."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from roofplan import catalogue
from roofplan.errors import NoPlan
from roofplan.hf.quantization import at_precision
from roofplan.operations.table import element_bytes
from roofplan.pool.costs import alike_of, decoding, layer_weights, problem_of, rooms
from roofplan.pool.layout import Layout, Problem
from roofplan.pool.money import Bill, bill
from roofplan.pool.parts import Part
from roofplan.pool.request import ENGINE, GOALS, PoolRequest
from roofplan.pool.rules import RULES, Rule
from roofplan.pool.search import Found, best_layout
from roofplan.pool.tensor import shared_layout, shared_view
from roofplan.pool.throughput import fastest, most_tokens, prompt_of, user_ladder
from roofplan.pool.times import limits_of, prompt_parts, sizes_of, token_parts
from roofplan.records import units
from roofplan.records.calibration import Fit
from roofplan.records.pool import CLIENT, LAST, Member
from roofplan.records.source import GRADES
from roofplan.records.terms import Term, total
from roofplan.serving.space import held_by
from roofplan.timing.figures import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """What a member does in a plan.

    Parameters
    ----------
    member : who.
    layers : first and last of its layers, None where it holds the output layer alone.
    output : whether it holds the output layer.
    weights, cache, room : memory of its layers, of the users' caches in them, and what it has for both [B].
    time, hop : time of its part of a token, and of the messages to and from it [s].
    sent : bytes that it sends for each token [B].
    without : tokens a second of one user without it, None where the others cannot hold the model, or most tokens of many
        are sought [1/s].
    """

    member: Member
    layers: tuple[int, int] | None
    output: bool
    weights: float
    cache: float
    room: float
    time: float
    hop: float
    sent: float
    without: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A member without a part: what a visit to it costs [s], and the layers that it could hold [1]."""

    member: Member
    visit: float
    layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A layout by a published rule.

    Parameters
    ----------
    layout : None where the rule finds none.
    rate : tokens a second of one user, by the laws of our own plan [1/s].
    why : why there is no layout.
    """

    layout: Layout | None
    rate: float | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """A plan of a pool.

    Parameters
    ----------
    request, fit : what was asked, and the constants that it rests on.
    problem : times and memory of one user's token.
    found : the layout and how far it may be from the best.
    token, first : time of a token, and to the first [s]; `parts`, what the token's is made of, in order.
    metrics : figures with their intervals.
    users : users at once of the throughput [1].
    limits : what binds a token: limit, member and share, the largest first.
    views : what each member with a part does; `left` those without.
    bill : what tokens cost the members at that throughput, None where a card's power is not known.
    baselines : layouts by published rules, by name.
    """

    request: PoolRequest
    fit: Fit
    problem: Problem
    found: Found
    token: Term
    first: Term
    parts: list[Part]
    metrics: dict[str, Metric]
    users: int
    limits: list[tuple[str, str, float]]
    views: list[StageView]
    left: list[LeftOut]
    bill: Bill | None
    baselines: dict[str, Baseline]
    warnings: list[tuple[str, str]]

    @property
    def exact(self) -> bool:
        """Whether the search tells how far the layout may be from the best; else it is the best of those tried."""
        return self.request.best == GOALS[0] and not self.request.software.shares_layers

    @property
    def layout(self) -> Layout:
        """The layout."""
        return self.found.layout

    def link_share(self, one: StageView) -> float:
        """Return the share of a member's uplink that the pool's throughput takes [1]."""
        return one.sent * self.metrics["output_tokens_per_second"].value / one.member.up

    @property
    def private(self) -> list[str]:
        """What members learn of the texts."""
        first = self.request.members[self.layout.stages[0].member].name
        members = dict.fromkeys(stage.member for stage in self.layout.stages)
        others = [self.request.members[member].name for member in members if member != self.layout.client]
        if not others:
            return [f"{self.client.name} holds the whole model: no other member learns anything"]
        out = [f"{self.client.name} asks: it has prompt and answer in the clear"]
        if self.layout.stages[0].member != self.layout.client:
            out.append(f"{first} gets the embeddings of the prompt, which are its tokens")
            others = [one for one in others if one != first]
        if others:
            out.append(f"hidden states, from which tokens can mostly be recovered, go to {_listed(others)}")
        if self.layout.output == LAST and self.layout.last != self.layout.client:
            out.append(f"{self.request.members[self.layout.last].name} computes every token of the answer")
        return [*out, f"{self.request.software.name}: {self.request.software.guard}"]

    @property
    def launch(self) -> list[str]:
        """Command lines that start the plan, with blanks to fill in; none where its software is not llama.cpp's."""
        layout, names = self.layout, [one.name for one in self.request.members]
        if self.request.software.id != ENGINE:
            return []
        remote = [stage for stage in layout.stages if stage.member != layout.client]
        local = [stage for stage in layout.stages if stage.member == layout.client]
        counts = [stage.layers for stage in (*remote, *local)]
        if not local and layout.output == CLIENT:
            counts.append(0)
        counts[-1] += 1  # the output layer counts as one
        context = self.request.workload.context * self.users
        addresses = {stage.member: f"<address of {names[stage.member]}>" for stage in remote}
        lines = [f"# on {names[at]}\nggml-rpc-server -H '{where}' -p 50052 -c" for at, where in addresses.items()]
        hosts = ",".join(f"{where}:50052" for where in addresses.values())
        rpc = f" --rpc '{hosts}' --tensor-split {','.join(map(str, counts))}" if remote else ""
        server = f"llama-server -m {self.file} -ngl 99 -c {context} -np {self.users}{rpc}"
        return [*lines, f"# on {names[layout.client]}\n{server}"]

    @property
    def file(self) -> str:
        """The file of the weights for a shell, a blank where it is not known."""
        name = self.request.model.id
        return (
            shlex.quote(name)
            if name.endswith(".gguf")
            else f"'<{Path(name).name.removesuffix('.json')}-{self.stored}.gguf>'"
        )

    @property
    def stored(self) -> str:
        """Format of the weights."""
        plan = self.request.model.quantization
        return self.request.model.dtype if plan is None else plan.format

    @property
    def unpowered(self) -> list[str]:
        """Cards with a part whose power the catalogue does not know."""
        cards = [self.request.members[member].device for member in self.layout.used]
        return list(dict.fromkeys(card.id for card in cards if not card.value("power")))

    @property
    def client(self) -> Member:
        """The member that asks."""
        return self.request.members[self.layout.client]


def plan_pool(request: PoolRequest, fit: Fit, progress: Callable[[int, int], None] | None = None) -> PoolPlan:
    """Return the plan of a pool.

    Parameters
    ----------
    request : model, members, software and load.
    fit : the fitted constants.
    progress : called with the searches that are done and all of them.

    Returns
    -------
    The plan.

    Raises
    ------
    NoPlan : the members cannot hold the model.
    """
    one = problem_of(request, fit)
    if request.best == GOALS[0] or request.software.shares_layers:
        found, users = quickest(request, fit, one), None
    else:
        found, users = fastest(request, fit)
    if found is None:
        raise _refusal(request, one, fit)
    if request.best == GOALS[0] and not request.software.shares_layers:
        found = _roomier(request, fit, found)
    layout = found.layout
    asked = len(layout.used) + 1
    users, per_second, batch = most_tokens(request, fit, layout, users)
    views = []
    for done, member in enumerate(sorted(layout.used, key=layout.place)):
        views.append(_view(request, fit, one, layout, member, users))
        if progress is not None:
            progress(done + 1, asked)
    parts = token_parts(request, fit, layout)
    prompt = prompt_parts(request, fit, layout)
    token, first = total("token", [p.term for p in parts], "s"), total("TTFT", [p.term for p in prompt], "s")
    busiest = token_parts(request, fit, layout, batch=batch)
    metrics = _metrics(request, parts, prompt, busiest, per_second, users)
    shared = request.software.shares_layers
    spent = {layout.client: first.value} if shared else prompt_of(request, fit, layout).members
    paid = bill(request, fit, layout, users, batch, metrics["output_tokens_per_second"], spent)
    if paid is not None:
        metrics |= _costs(paid)
    left = [_left(request, one, layout, member) for member in range(one.members) if member not in layout.used]
    if progress is not None:
        progress(asked, asked)
    return PoolPlan(
        request=request,
        fit=fit,
        problem=one,
        found=found,
        token=token,
        first=first,
        parts=parts,
        metrics=metrics,
        users=users,
        limits=limits_of(parts),
        views=views,
        left=left,
        bill=paid,
        baselines=_baselines(request, one),
        warnings=_warnings(request),
    )


TIE = 0.01
"""Difference of times below which the layout with room for more users is taken [1]."""


def _roomier(request: PoolRequest, fit: Fit, found: Found) -> Found:
    """Return the layout that holds most users of those in which one user's token takes hardly longer."""
    for users in user_ladder()[1:]:
        more = best_layout(problem_of(request, fit, users=users))
        if more is None or more.time > found.least * (1.0 + TIE):
            break
        found = Found(more.layout, more.time, min(found.least, more.time))
    return found


# Figures ------------------------------------------------------------------------------------------


def _metrics(
    request: PoolRequest, parts: list[Part], prompt: list[Part], busiest: list[Part], rate: float, users: int
) -> dict[str, Metric]:
    """Return the figures; errors of stages and links are taken to point the same way, so their ends add."""

    def whole(found: list[Part]) -> tuple[float, float, float, str]:
        value, low, high = (
            sum(ends) for ends in zip(*((float(p.term.value), p.low, p.high) for p in found), strict=True)
        )
        return value, low, high, max((p.grade for p in found), key=GRADES.index)

    tpot, first, many = whole(parts), whole(prompt), whole(busiest)
    turns, prompts = request.workload.output - 1.0, 1.0 if request.software.overlaps else float(users)
    request_time = [turns * d + prompts * p for d, p in zip(many[:3], first[:3], strict=True)]
    grade = max(many[3], first[3], key=GRADES.index)
    return {
        "tpot": Metric(tpot[0], tpot[1], tpot[2], "s", tpot[3]),
        "ttft": Metric(first[0], first[1], first[2], "s", first[3]),
        "tokens_per_second_per_user": Metric(1.0 / tpot[0], 1.0 / tpot[2], 1.0 / tpot[1], "token/s", tpot[3]),
        "output_tokens_per_second": Metric(
            rate, rate * request_time[0] / request_time[2], rate * request_time[0] / request_time[1], "token/s", grade
        ),
    }


def _costs(paid: Bill) -> dict[str, Metric]:
    """Return the figures of a bill that are known."""
    rate = {
        "power": paid.power,
        "electricity_per_million_output_tokens": paid.electricity,
        "wear_per_million_output_tokens": paid.wear,
    }
    return {name: one for name, one in rate.items() if one is not None}


def quickest(request: PoolRequest, fit: Fit, problem: Problem) -> Found | None:
    """Return the layout in which a token takes the least time.

    Parameters
    ----------
    request : the pool.
    fit : the fitted constants.
    problem : times and memory.

    Returns
    -------
    The layout, None where no layout fits.
    """
    return shared_layout(request, problem, fit) if request.software.shares_layers else best_layout(problem)


# Members ------------------------------------------------------------------------------------------


def without(problem: Problem, member: int) -> Problem:
    """Return a problem in which a member takes no part.

    Parameters
    ----------
    problem : times and memory.
    member : who is left out.

    Returns
    -------
    The problem without room on it.
    """
    room = problem.room.copy()
    room[member] = -1.0
    return replace(problem, room=room, clients=tuple(one for one in problem.clients if one != member))


def _view(request: PoolRequest, fit: Fit, problem: Problem, layout: Layout, member: int, users: int) -> StageView:
    rest = without(problem, member)
    other = quickest(request, fit, rest) if rest.clients and request.best == GOALS[0] else None
    alone = None if other is None else 1.0 / other.time
    if request.software.shares_layers:
        weights, cache, seconds, sent = shared_view(request, fit, problem, layout, member)
        return StageView(
            member=request.members[member],
            layers=(0, problem.layers - 1),
            output=layout.client == member,
            weights=weights,
            cache=cache,
            room=float(problem.room[member]),
            time=seconds,
            hop=0.0,
            sent=sent,
            without=alone,
        )
    own = [stage for stage in layout.stages if stage.member == member]
    output = layout.head == member
    kept = sum(float(problem.weight[one.first : one.end].sum()) for one in own)
    each = layer_weights(request.model)
    bare = float(sum(each[one.first : one.end].sum() for one in own))
    sent = sum(size for a, _, size, _ in sizes_of(request, layout, decoding(request.workload, 1.0)) if a == member)
    return StageView(
        member=request.members[member],
        layers=(own[0].first, own[-1].end - 1) if own else None,
        output=output,
        weights=bare + (problem.head_weight if output else 0.0),
        cache=users * (kept - bare),
        room=float(problem.room[member]),
        time=sum(float(problem.layer[member, one.first : one.end].sum()) for one in own)
        + (float(problem.head[member]) if output else 0.0),
        hop=sum(seconds for a, b, seconds in problem.hops(layout) if member in {a, b} and member != layout.client),
        sent=sent,
        without=alone,
    )


def _left(request: PoolRequest, problem: Problem, layout: Layout, member: int) -> LeftOut:
    h = layout.client
    visit = float(problem.hidden[h, member] + problem.hidden[member, h])
    room = int(np.searchsorted(np.cumsum(np.sort(problem.weight)), problem.room[member], side="right"))
    return LeftOut(member=request.members[member], visit=visit, layers=room)


ASKERS = 8
"""Members that are tried as the one that asks under a published rule: those with the quickest output layers [1]."""


def _baselines(request: PoolRequest, problem: Problem) -> dict[str, Baseline]:
    """Return layouts by published rules, each with the member asking that makes it quickest."""
    if request.software.shares_layers:
        return {}
    ease = problem.head + problem.host
    kinds = {problem.alike[member]: member for member in sorted(problem.clients, key=lambda one: -float(ease[one]))}
    quickest_few = list(kinds.values())[-ASKERS:]
    return {
        name: max((_by_rule(request, problem, rule, client) for client in quickest_few), key=_rate)
        for name, rule in RULES.items()
    }


def _by_rule(request: PoolRequest, problem: Problem, rule: Rule, client: int) -> Baseline:
    layout = rule(request, problem, client)
    if isinstance(layout, str):
        return Baseline(layout=None, rate=None, why=layout)
    if not problem.holds(layout):
        return Baseline(layout=layout, rate=None, why="its layout does not fit the members' memory")
    return Baseline(layout=layout, rate=1.0 / problem.time(layout), why="")


def _rate(one: Baseline) -> float:
    return one.rate or 0.0


def _warnings(request: PoolRequest) -> list[tuple[str, str]]:
    """Return what is assumed of members that do not say, those that are alike together."""
    rules, alike = catalogue.pools(), Counter(request.members[place] for place in alike_of(request))
    out = []
    for one, count in alike.items():
        who = one.name if count == 1 else f"{count} x {one.device.id}@{one.link}"
        if "rtt" in one.assumed:
            rtt = rules.assumed["rtt"]
            out.append(("assumed_rtt", f"{who}: an RTT of {rtt.text} to the others' meeting point is assumed"))
        if "rate" in one.assumed:
            out.append(("assumed_rate", f"{who}: {8e-6 * one.down:.0f} Mbit/s of its {one.link} is assumed"))
    return out


SMALL = "q4_k_m"
"""Format that a refusal proposes."""

MOST_ADDED, TRIED = 128, 4
"""Most members that a refusal proposes to add, and numbers of them that it tries [1]."""


def _refusal(request: PoolRequest, problem: Problem, fit: Fit) -> NoPlan:
    """Return why members cannot hold a model, with the ways out that were tried and lead to a plan."""
    need, has = float(problem.weight.sum() + problem.head_weight), float(np.maximum(problem.room, 0.0).sum())
    largest, least = float(problem.room.max()), float(problem.weight.min())
    if largest < least:
        text = (
            f"no plan: memory. a layer of {request.model.id} with its cache needs {units.gib(least)} GiB;"
            f" no member has more than {units.gib(max(largest, 0.0))} GiB left"
        )
    else:
        text = (
            f"no plan: memory. layers, cache and output of {request.model.id} need {units.gib(need)} GiB;"
            f" the members have {units.gib(has)} GiB left beside activations and runtime"
        )
    if request.software.shares_layers:
        heads = max(1, request.model.kv_heads)
        text += (
            f"; {request.software.name} gives 2^n members, at most {heads} for as many KV heads, an equal slice each"
        )
    tried = [_smaller(request, fit), _more(request, int(np.argmax(problem.room)), fit, need - has)]
    return NoPlan(text, binding="memory", relax=[one for one in tried if one is not None])


def _smaller(request: PoolRequest, fit: Fit) -> dict[str, object] | None:
    """Return how the members hold the model in a smaller format, None where they do not."""
    plan = request.model.quantization
    stored = request.model.dtype if plan is None else plan.format
    if element_bytes(stored) <= element_bytes(SMALL):
        return None
    model = held_by(at_precision(request.model, SMALL), request.engine)
    return _way_out(replace(request, model=model), fit, "--precision", stored, SMALL)


def _more(request: PoolRequest, roomiest: int, fit: Fit, lack: float) -> dict[str, object] | None:
    """Return how many members more, like the one with most room, hold the model; None where too many would be needed."""
    one, now = request.members[roomiest], f"{len(request.members)} members"
    least = max(1, math.ceil(lack / float(rooms(request)[roomiest]))) if rooms(request)[roomiest] > 0.0 else MOST_ADDED
    for count in range(least, min(least + TRIED, MOST_ADDED)):
        more = replace(
            request,
            members=(*request.members, *(replace(one, name=f"{one.name} {place + 2}") for place in range(count))),
            machines=(*request.machines, *[request.machines[roomiest]] * count),
        )
        text = f"{count}x{one.device.id}@{one.link}"
        found = _way_out(more, fit, "--member", now, text)
        if found is not None:
            return found | {"text": f"another --member {text}"}
    return None


def _way_out(request: PoolRequest, fit: Fit, argument: str, now: str, needed: str) -> dict[str, object] | None:
    found = quickest(request, fit, problem_of(request, fit))
    if found is None:
        return None
    count = len(found.layout.stages)
    label = "1 stage" if count == 1 else f"{count} stages"
    plan = {"tpot": found.time, "users": 1, "label": label, "engine": request.engine.id}
    return {"argument": argument, "now": now, "needed": needed, "plan": plan}


NAMED = 3
"""Members that a sentence names [1]."""


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"
