"""The plan of a pool: who holds which layers, how fast and how sure, what binds, and what each member adds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from roofplan import catalogue
from roofplan.errors import NoPlan
from roofplan.laws.pool import wire_time
from roofplan.operations.table import element_bytes
from roofplan.pool.costs import decoding, layer_weights, problem_of
from roofplan.pool.layout import Layout, Problem
from roofplan.pool.money import Bill, bill
from roofplan.pool.parts import Part
from roofplan.pool.request import ENGINE, GOALS, PoolRequest
from roofplan.pool.rules import RULES
from roofplan.pool.search import Found, best_layout
from roofplan.pool.tensor import shared_layout, shared_view
from roofplan.pool.times import limits_of, prompt_parts, sizes_of, token_parts
from roofplan.records import units
from roofplan.records.calibration import Fit
from roofplan.records.pool import LAST, Member
from roofplan.records.source import GRADES
from roofplan.records.terms import Term, total
from roofplan.serving.space import at_precision, in_files_of
from roofplan.timing.figures import Metric

MOST_USERS = 512
"""Most users that a pool is tried with [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """What a member does in a plan.

    Parameters
    ----------
    member : who.
    layers : first and last of its layers, None where it holds the output layer alone.
    output : whether it holds the output layer.
    weights, cache, room : memory of its layers, of one user's cache in them, and what it has for both [B].
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
        return self.request.best == GOALS[0] and self.request.software.route != "all"

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
        counts[-1] += 1  # the output layer counts as one
        context = self.request.workload.context * self.users
        addresses = {stage.member: f"<address of {names[stage.member]}>" for stage in remote}
        lines = [f"# on {names[at]}\nggml-rpc-server -H '{where}' -p 50052 -c" for at, where in addresses.items()]
        hosts = ",".join(f"{where}:50052" for where in addresses.values())
        rpc = f" --rpc '{hosts}' --tensor-split {','.join(map(str, counts))}" if remote else ""
        server = (
            f"llama-server -m '<{self.request.model.id}-{self.stored}.gguf>' -ngl 99 -c {context} -np {self.users}{rpc}"
        )
        return [*lines, f"# on {names[layout.client]}\n{server}"]

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
    if request.best == GOALS[0] or request.software.route == "all":
        found, users = quickest(request, fit, one), None
    else:
        found, users = _fastest(request, fit)
    if found is None:
        raise _refusal(request, one, fit)
    layout = found.layout
    asked = len(layout.used) + 1
    views = []
    for done, member in enumerate(sorted(layout.used, key=layout.place)):
        views.append(_view(request, fit, one, layout, member))
        if progress is not None:
            progress(done + 1, asked)
    users, per_second, batch = _many(request, fit, layout, users)
    parts = token_parts(request, fit, layout)
    prompt = prompt_parts(request, fit, layout)
    token, first = total("token", [p.term for p in parts], "s"), total("TTFT", [p.term for p in prompt], "s")
    busiest = token_parts(request, fit, layout, batch=batch)
    metrics = _metrics(parts, prompt, busiest, per_second)
    paid = bill(request, fit, layout, users, batch, metrics["output_tokens_per_second"])
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
        baselines=_baselines(request, one, layout.client),
        warnings=_warnings(request),
    )


# Figures ------------------------------------------------------------------------------------------


def _metrics(parts: list[Part], prompt: list[Part], busiest: list[Part], rate: float) -> dict[str, Metric]:
    """Return the figures; errors of stages and links are taken to point the same way, so their ends add."""

    def whole(found: list[Part]) -> tuple[float, float, float, str]:
        value, low, high = (
            sum(ends) for ends in zip(*((float(p.term.value), p.low, p.high) for p in found), strict=True)
        )
        return value, low, high, max((p.grade for p in found), key=GRADES.index)

    tpot, first, many = whole(parts), whole(prompt), whole(busiest)
    return {
        "tpot": Metric(tpot[0], tpot[1], tpot[2], "s", tpot[3]),
        "ttft": Metric(first[0], first[1], first[2], "s", first[3]),
        "tokens_per_second_per_user": Metric(1.0 / tpot[0], 1.0 / tpot[2], 1.0 / tpot[1], "token/s", tpot[3]),
        "output_tokens_per_second": Metric(
            rate, rate * many[0] / many[2], rate * many[0] / many[1], "token/s", many[3]
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
    return shared_layout(request, problem, fit) if request.software.route == "all" else best_layout(problem)


def _many(request: PoolRequest, fit: Fit, layout: Layout, users: int | None) -> tuple[int, float, float]:
    """Return the users at once at which a layout gives most tokens a second, that rate [1/s], and the users of a batch."""
    if request.software.route == "all":
        return 1, 1.0 / sum(float(one.term.value) for one in token_parts(request, fit, layout)), 1.0
    best = (1, 0.0, 1.0)
    ladder = [users] if users is not None else _ladder()
    for count in ladder:
        if not problem_of(request, fit, users=count).holds(layout):
            break
        rate, batch = rate_of(request, fit, layout, count)
        if rate > best[1] * 1.001:
            best = (count, rate, batch)
    return best


def _ladder() -> list[int]:
    return [1 << k for k in range(MOST_USERS.bit_length())]


def rate_of(request: PoolRequest, fit: Fit, layout: Layout, users: int) -> tuple[float, float]:
    """Return the tokens a second of `users` at once, and the users of a batch at which they are most.

    Where stages work on different requests, users are divided into as many batches as keep every stage busy: a batch
    returns after its pass, and no more leave a stage than its slowest part lets through.

    Parameters
    ----------
    request : the pool.
    fit : the fitted constants.
    layout : who holds which layers.
    users : users at once [1].

    Returns
    -------
    Tokens a second [1/s], and users of a batch [1].
    """
    groups = range(1, min(users, 4 * len(layout.stages)) + 1) if request.software.overlaps else (1,)
    found = []
    for count in groups:
        batch = users / count
        problem = problem_of(request, fit, batch=batch, users=users)
        found.append((min(users / problem.time(layout), batch / slowest_part(request, problem, layout, batch)), batch))
    return max(found)


def slowest_part(request: PoolRequest, problem: Problem, layout: Layout, batch: float) -> float:
    """Return the longest time that one batch occupies a member or one direction of a link [s]."""
    busy = np.zeros(problem.members)
    for stage in layout.stages:
        busy[stage.member] += problem.layer[stage.member, stage.first : stage.end].sum()
    busy[layout.head] += problem.head[layout.head]
    busy[layout.client] += problem.host[layout.client]
    up, down = np.zeros(problem.members), np.zeros(problem.members)
    for a, b, size, _ in sizes_of(request, layout, decoding(request.workload, batch)):
        up[a] += wire_time(size, request.members[a].up, math.inf)
        down[b] += wire_time(size, math.inf, request.members[b].down)
    return float(max(busy.max(), up.max(), down.max()))


def _fastest(request: PoolRequest, fit: Fit) -> tuple[Found | None, int | None]:
    """Return the layout with most tokens a second, and its users at once.

    For each number of users on a ladder, and each size of batch where stages overlap, the longest time that any stage may
    take is narrowed down to the least at which the model still fits.
    """
    best: tuple[float, Found, int] | None = None
    stages = len(request.members)
    for users in _ladder():
        for count in (
            sorted({1, 2, 4, min(users, stages), min(users, 2 * stages)}) if request.software.overlaps else (1,)
        ):
            if count > users:
                continue
            problem = problem_of(request, fit, batch=users / count, users=users)
            found = best_layout(problem) if count == 1 else _evenest(problem)
            if found is None:
                continue
            rate = rate_of(request, fit, found.layout, users)[0]
            if best is None or rate > best[0] * 1.001:
                best = (rate, found, users)
    return (None, None) if best is None else (best[1], best[2])


NARROWED = 24
"""Steps in which the longest time of a stage is narrowed down [1]."""


def _evenest(problem: Problem) -> Found | None:
    """Return the layout whose slowest stage is quickest, of these that of least time."""
    found = best_layout(problem)
    if found is None:
        return None
    high = max(_spent(problem, found.layout))
    low = float(problem.layer.min(axis=1).min())
    for _ in range(NARROWED):
        middle = math.sqrt(low * high)
        tried = best_layout(replace(problem, most=middle))
        if tried is None:
            low = middle
        else:
            found, high = tried, middle
        if high / low < 1.01:
            break
    return found


def _spent(problem: Problem, layout: Layout) -> list[float]:
    head = [float(problem.head[layout.head])]
    stages = [float(problem.layer[one.member, one.first : one.end].sum()) for one in layout.stages]
    return [
        *head,
        *(t + (head[0] if one.member == layout.head else 0.0) for one, t in zip(layout.stages, stages, strict=True)),
    ]


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


def _view(request: PoolRequest, fit: Fit, problem: Problem, layout: Layout, member: int) -> StageView:
    rest = without(problem, member)
    other = quickest(request, fit, rest) if rest.clients and request.best == GOALS[0] else None
    alone = None if other is None else 1.0 / other.time
    if request.software.route == "all":
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
        cache=kept - bare,
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


def _baselines(request: PoolRequest, problem: Problem, client: int) -> dict[str, Baseline]:
    found: dict[str, Baseline] = {}
    for name, rule in RULES.items() if request.software.route != "all" else ():
        layout = rule(request, problem, client)
        if isinstance(layout, str):
            found[name] = Baseline(layout=None, rate=None, why=layout)
        elif not problem.holds(layout):
            found[name] = Baseline(layout=layout, rate=None, why="its layout does not fit the members' memory")
        else:
            found[name] = Baseline(layout=layout, rate=1.0 / problem.time(layout), why="")
    return found


def _warnings(request: PoolRequest) -> list[tuple[str, str]]:
    rules, out = catalogue.pools(), []
    for one in request.members:
        if "rtt" in one.assumed:
            rtt = rules.assumed["rtt"]
            out.append(("assumed_rtt", f"{one.name} states no RTT: {rtt.text} to the others' meeting point is assumed"))
        if "rate" in one.assumed:
            out.append(("assumed_rate", f"{one.name}: {8e-6 * one.down:.0f} Mbit/s of its {one.link} is assumed"))
    return list(dict.fromkeys(out))


SMALL = "q4_k_m"
"""Format that a refusal proposes."""

MOST_ADDED = 16
"""Most members that a refusal proposes to add [1]."""


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
    tried = [_smaller(request, fit), _more(request, int(np.argmax(problem.room)), fit)]
    return NoPlan(text, binding="memory", relax=[one for one in tried if one is not None])


def _smaller(request: PoolRequest, fit: Fit) -> dict[str, object] | None:
    """Return how the members hold the model in a smaller format, None where they do not."""
    plan = request.model.quantization
    stored = request.model.dtype if plan is None else plan.format
    if element_bytes(stored) <= element_bytes(SMALL):
        return None
    model = in_files_of(at_precision(request.model, SMALL), request.engine)
    return _way_out(replace(request, model=model), fit, "--precision", stored, SMALL)


def _more(request: PoolRequest, roomiest: int, fit: Fit) -> dict[str, object] | None:
    """Return how many members more, like the one with most room, hold the model; None where too many would be needed."""
    one, now = request.members[roomiest], f"{len(request.members)} members"
    for count in range(1, MOST_ADDED + 1):
        more = replace(
            request,
            members=(*request.members, *(replace(one, name=f"{one.name} {place + 2}") for place in range(count))),
            machines=(*request.machines, *[request.machines[roomiest]] * count),
        )
        text = f"{count}x{one.device.id}@{one.link}"
        found = _way_out(more, fit, "--member", now, text)
        if found is not None:
            return found
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
