"""Tokens a second of many users on a layout, and the layout with most of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from roofplan.laws import batching
from roofplan.laws.pool import wire_time
from roofplan.operations.table import Step
from roofplan.pool.costs import decoding, problem_of
from roofplan.pool.layout import Layout, Problem
from roofplan.pool.request import PoolRequest
from roofplan.pool.search import Found, quick_layout
from roofplan.pool.surface import passes
from roofplan.pool.times import prompt_parts, sizes_of, token_parts
from roofplan.records.calibration import Fit
from roofplan.serving.defaults import batched_tokens
from roofplan.serving.prompts import mean_pass

MOST_USERS = 512
"""Most users that a pool is tried with [1]."""


def most_tokens(request: PoolRequest, fit: Fit, layout: Layout, users: int | None) -> tuple[int, float, float]:
    """Return the users at once at which a layout gives most tokens a second.

    Parameters
    ----------
    request : the pool.
    fit : the fitted constants.
    layout : who holds which layers.
    users : at once, None for the number that is best [1].

    Returns
    -------
    Users [1], tokens a second [1/s], and users of a batch [1].
    """
    if request.software.shares_layers:
        first, each = (
            sum(float(one.term.value) for one in make(request, fit, layout)) for make in (prompt_parts, token_parts)
        )
        return 1, float(batching.output_rate(1.0, batching.cycle_time(first, each, request.workload.output))), 1.0
    prompt, best = prompt_of(request, fit, layout), (1, 0.0, 1.0)
    for count in [users] if users is not None else user_ladder():
        if not problem_of(request, fit, users=count).holds(layout):
            break
        rate, batch = rate_of(request, fit, layout, count, prompt)
        if rate > best[1] * 1.001:
            best = (count, rate, batch)
    return best


def user_ladder() -> list[int]:
    """Return the numbers of users that are tried.

    Returns
    -------
    Powers of two [1].
    """
    return [1 << k for k in range(MOST_USERS.bit_length())]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a prompt takes of a pipeline.

    Parameters
    ----------
    whole : its time where it is alone [s].
    slowest : for how long it occupies the part that it occupies longest [s].
    members : for how long it occupies each member with a part, by its number [s].
    """

    whole: float
    slowest: float
    members: dict[int, float]


def prompt_of(request: PoolRequest, fit: Fit, layout: Layout) -> Prompt:
    """Return what a prompt takes of a pipeline.

    Parameters
    ----------
    request : the pool.
    fit : the fitted constants.
    layout : who holds which layers.

    Returns
    -------
    Its times.
    """
    budget = batched_tokens(request.engine, request.machines[layout.client], request.workload)
    mean, count = mean_pass(request.engine, Step(new=float(request.workload.input), requests=1.0), budget)
    once, times = passes(request, fit, layout, mean), float(count)
    members = dict.fromkeys(layout.used, 0.0)
    for stage, seconds in zip(layout.stages, once.stages, strict=False):
        members[stage.member] += float(seconds) * times
    members[layout.head] += float(once.head) * times
    up, down = link_times(request, layout, mean)
    slowest = max(*members.values(), float(max(up.max(), down.max())) * times)
    whole = float(once.whole)
    part = slowest / times if request.software.overlaps else whole
    return Prompt(whole + (times - 1.0) * part, slowest, members)


def rate_of(request: PoolRequest, fit: Fit, layout: Layout, users: int, prompt: Prompt) -> tuple[float, float]:
    """Return the tokens a second of `users` at once, and the users of a batch at which they are most.

    A request takes its own prompt and its decode steps, in which it waits for the prompts of all others. Where stages work
    on different requests, it does not; users are divided into as many batches as keep every stage busy: a batch returns after
    its pass, and no more leave a stage than its slowest part lets through.

    Parameters
    ----------
    request : the pool.
    fit : the fitted constants.
    layout : who holds which layers.
    users : users at once [1].
    prompt : what a prompt takes.

    Returns
    -------
    Tokens a second [1/s], and users of a batch [1].
    """
    overlaps, tokens = request.software.overlaps, float(request.workload.output)
    found = []
    for count in range(1, min(users, 4 * len(layout.stages)) + 1) if overlaps else (1,):
        batch = users / count
        problem = problem_of(request, fit, batch=batch, users=users)
        own = prompt.whole if overlaps else users * prompt.whole
        rate = float(batching.output_rate(users, batching.cycle_time(own, problem.time(layout), tokens)))
        if overlaps:
            slowest = slowest_part(request, problem, layout, batch) / batch
            rate = min(rate, 1.0 / float(batching.cycle_time(prompt.slowest, slowest, tokens)))
        found.append((rate, batch))
    return max(found)


def link_times(request: PoolRequest, layout: Layout, step: Step) -> tuple[np.ndarray, np.ndarray]:
    """Return for how long a pass occupies each member's uplink and downlink, shape (members,) [s].

    Parameters
    ----------
    request : the pool.
    layout : who holds which layers.
    step : the pass.

    Returns
    -------
    Both.
    """
    up, down = np.zeros(len(request.members)), np.zeros(len(request.members))
    for a, b, size, _ in sizes_of(request, layout, step):
        up[a] += float(wire_time(size, request.members[a].up, math.inf))
        down[b] += float(wire_time(size, math.inf, request.members[b].down))
    return up, down


def slowest_part(request: PoolRequest, problem: Problem, layout: Layout, batch: float) -> float:
    """Return the longest time that one batch occupies a member or one direction of a link [s]."""
    busy = np.zeros(problem.members)
    for stage in layout.stages:
        busy[stage.member] += problem.layer[stage.member, stage.first : stage.end].sum()
    busy[layout.head] += problem.head[layout.head]
    busy[layout.client] += problem.host[layout.client]
    up, down = link_times(request, layout, decoding(request.workload, batch))
    return float(max(busy.max(), up.max(), down.max()))


def fastest(request: PoolRequest, fit: Fit) -> tuple[Found | None, int | None]:
    """Return the layout with most tokens a second of those tried, and its users at once.

    For each number of users on a ladder, and each size of batch where stages overlap, the longest time that any stage may
    take is narrowed down to the least at which the model still fits.

    Parameters
    ----------
    request : the pool.
    fit : the fitted constants.

    Returns
    -------
    The layout and its users [1], None where none fits.
    """
    best: tuple[float, Found, int] | None = None
    prompts: dict[Layout, Prompt] = {}
    stages = len(request.members)
    for users in user_ladder():
        for count in (
            sorted({1, 2, 4, min(users, stages), min(users, 2 * stages)}) if request.software.overlaps else (1,)
        ):
            if count > users:
                continue
            problem = problem_of(request, fit, batch=users / count, users=users)
            found = quick_layout(problem) if count == 1 else _evenest(problem)
            if found is None:
                continue
            prompts.setdefault(found.layout, prompt_of(request, fit, found.layout))
            rate = rate_of(request, fit, found.layout, users, prompts[found.layout])[0]
            if best is None or rate > best[0] * 1.001:
                best = (rate, found, users)
    return (None, None) if best is None else (best[1], best[2])


NARROW = 1.03
"""Ratio of its ends at which the longest time of a stage is narrow enough [1]."""

NARROWED = 24
"""Steps in which the longest time of a stage is narrowed down [1]."""


def _evenest(problem: Problem) -> Found | None:
    """Return the layout whose slowest stage is quickest, of these that of least time."""
    found = quick_layout(problem)
    if found is None:
        return None
    high = max(_spent(problem, found.layout))
    low = float(problem.layer.min(axis=1).min())
    for _ in range(NARROWED):
        middle = math.sqrt(low * high)
        tried = quick_layout(replace(problem, most=middle))
        if tried is None:
            low = middle
        else:
            found, high = tried, middle
        if high / low < NARROW:
            break
    return found


def _spent(problem: Problem, layout: Layout) -> list[float]:
    head = [float(problem.head[layout.head])]
    stages = [float(problem.layer[one.member, one.first : one.end].sum()) for one in layout.stages]
    return [
        *head,
        *(t + (head[0] if one.member == layout.head else 0.0) for one, t in zip(layout.stages, stages, strict=True)),
    ]
