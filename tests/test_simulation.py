"""The event core against a plain step-by-step engine, closed forms of queues, and what must always hold."""

import bisect
import copy
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwise import Engine, serve_together

from roofplan import catalogue
from roofplan.api import fit_at_hand, plan_serving
from roofplan.catalogue.machines import machine
from roofplan.errors import InputError
from roofplan.hf.find import read_model
from roofplan.load.requests import Lengths, Requests, renewal
from roofplan.load.statistics import Objective
from roofplan.records.strategy import Strategy
from roofplan.serving.surface import Surface, surface
from roofplan.simulation import core, lockstep, records, report
from roofplan.simulation.deployment import Deployment, deployment_of
from roofplan.simulation.fast import _bisect_right, compiled
from roofplan.simulation.replicas import ROUTES, Fleet, lists, through_front
from roofplan.simulation.report import good_share, joined, refuse_too_long, tokens_held
from roofplan.simulation.steps import slope_at
from roofplan.timing.rates import rates

SAME = 1e-9
"""Largest difference of times between the event core and the step-by-step engine [s]."""

PLAIN = records.Scheduler(
    seats=48,
    budget=2048,
    mixes=True,
    chunked=True,
    static=False,
    paged=False,
    reserves=False,
    keeps=False,
    blocks=10**6,
    block=16,
    fixed=0,
    grows=1.0,
    front=0.0,
    delay=0.0,
)


@pytest.fixture(scope="module")
def tables():
    """Step times of one card, as lists."""
    model, r = read_model("llama-2-7b"), rates(machine("a100-sxm-80")[0], catalogue.engine("vllm-0.33"), fit_at_hand())
    table = surface(model, Strategy(), r, kv_bytes=2.0, seats=48, budget=2048, longest=32768)
    hybrid = read_model("qwen3-next-80b-a3b")
    r = rates(machine("h200-sxm:4")[0], catalogue.engine("vllm-0.33"), fit_at_hand())
    other = surface(hybrid, Strategy(tp=4), r, kv_bytes=2.0, seats=48, budget=2048, longest=32768)
    latent = read_model("deepseek-v3")
    r = rates(machine("h200-sxm:8")[0], catalogue.engine("vllm-0.33"), fit_at_hand())
    third = surface(latent, Strategy(tp=8), r, kv_bytes=2.0, seats=48, budget=2048, longest=32768)
    return [lists(one) for one in (table, other, third)]


def drawn(count, rate, mean, answer, sigma, seed, *, cached=0, clients=None, front=0.0):
    random = np.random.default_rng(seed)
    lengths = Lengths("lognormal", sigma=sigma) if sigma else Lengths()
    inputs, outputs = lengths.draw(mean, count, random), lengths.draw(answer, count, random)
    if mean < 1000:
        inputs, outputs = np.minimum(inputs, 2000), np.minimum(outputs, 1000)  # the smallest cache holds any request
    arrivals = renewal(rate, count, 1.0, random).tolist()
    ready = through_front(np.array(arrivals), front).tolist()
    if clients:
        arrivals, ready = [0.0] * count, [front * clients] * count
    held = np.minimum(cached, inputs - 1) // 16 * 16
    return records.Requests(arrivals, ready, inputs.tolist(), held.tolist(), (outputs - 1).tolist())


def empty(count):
    return records.Times([-1.0] * count, [-1.0] * count, [-1.0] * count, [0] * count)


def both(s, t, requests, sent):
    """Return the times by the event core and step by step, and the state that the core ends in."""
    count = len(requests.inputs)
    again, times, other, state = copy.deepcopy(requests), empty(count), empty(count), records.started(s, count, sent)
    core.run(s, t, requests, times, state, math.inf)
    Engine(s, t, again, other, sent).serve()
    return times, other, state


CASES = {
    "fixed lengths": ({}, {}),
    "spread lengths": ({}, {"sigma": 0.8}),
    "few blocks": ({"paged": True, "blocks": 600}, {"sigma": 0.8, "rate": 20.0}),
    "hardly any blocks": ({"paged": True, "blocks": 200, "seats": 16}, {"sigma": 0.8, "rate": 30.0}),
    "few blocks, found again": ({"paged": True, "blocks": 600, "keeps": True}, {"sigma": 0.8, "rate": 20.0}),
    "hardly any blocks, found again": (
        {"paged": True, "blocks": 200, "seats": 16, "keeps": True},
        {"sigma": 0.8, "rate": 30.0, "cached": 64},
    ),
    "clients": ({}, {"sigma": 0.8, "clients": 32}),
    "clients behind a front end": ({"paged": True, "blocks": 400}, {"sigma": 0.8, "clients": 32, "front": 0.01}),
    "prompts first": ({"mixes": False}, {"sigma": 0.5, "rate": 20.0}),
    "whole prompts first": ({"mixes": False, "chunked": False, "budget": 8192}, {"sigma": 0.5, "rate": 20.0}),
    "prompts first, few blocks": ({"mixes": False, "paged": True, "blocks": 500}, {"sigma": 0.5, "rate": 20.0}),
    "whole prompts beside others": ({"chunked": False, "budget": 2048}, {"sigma": 0.5, "rate": 10.0}),
    "whole prompts longer than a step": ({"chunked": False, "budget": 300}, {"sigma": 0.5, "rate": 4.0}),
    "reserved to the end": ({"reserves": True, "blocks": 800}, {"sigma": 0.8, "rate": 10.0}),
    "static batches": (
        {"static": True, "mixes": False, "chunked": False, "seats": 8, "budget": 32768},
        {"sigma": 0.8, "rate": 10.0},
    ),
    "cached prompts": ({"paged": True, "blocks": 500}, {"sigma": 0.8, "rate": 20.0, "cached": 256}),
    "drafts": ({"grows": 1.7}, {"sigma": 0.5}),
    "drafts, reserved to the end": ({"grows": 1.7, "reserves": True, "blocks": 800}, {"sigma": 0.8, "rate": 10.0}),
    "drafts, few blocks": ({"grows": 1.7, "paged": True, "blocks": 300}, {"sigma": 0.5, "rate": 20.0}),
    "one token": ({}, {"answer": 1}),
    "long prompts": ({}, {"mean": 4000, "sigma": 0.6, "rate": 1.0}),
    "cached prompts in pieces, hardly any blocks": (
        {"paged": True, "blocks": 200, "seats": 16, "budget": 256, "keeps": True},
        {"mean": 900, "sigma": 0.6, "rate": 20.0, "cached": 256},
    ),
    "states and long prompts": (
        {"paged": True, "blocks": 1200, "fixed": 3},
        {"mean": 4000, "sigma": 0.6, "rate": 2.0},
    ),
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_events_follow_the_steps(case, seed, tables):
    changed, load = CASES[case]
    load = {"count": 200, "rate": 8.0, "mean": 512, "answer": 128, "sigma": 0.0, "seed": seed} | load
    s = PLAIN._replace(**changed, front=load.get("front", 0.0))
    table = lists(grown(tables[0])) if s.budget > 2048 else tables[(seed + len(case)) % 3]
    sent = load.get("clients") or load["count"]
    requests = drawn(**load)
    times, other, state = both(s, table, requests, sent)
    for one, two in zip(times[:3], other[:3], strict=True):
        assert max(abs(a - b) for a, b in zip(one, two, strict=True)) < SAME
    assert times.preempted == other.preempted
    assert state.clock[1] == pytest.approx(s.blocks)  # every block came back
    assert state.clock[2] == pytest.approx(0.0, abs=1e-6)  # and every token
    assert state.counts[2] == 0
    assert state.sent == [load["count"]] * 3


def grown(table):
    """Return tables that reach to steps of 40,960 tokens."""
    found = {}
    for name in ("prompts", "mixed"):
        line = np.array(getattr(table, name))
        found[name] = np.concatenate([line, line[-1] + (line[-1] - line[-2]) * np.arange(1.0, 40960.0)])
    return table._replace(**found)


@pytest.fixture(scope="module")
def shared_tables():
    """Step times of a group that shares experts with seven others, as lists."""
    model, engine = read_model("deepseek-v3"), catalogue.engine("vllm-0.33")
    r = rates(machine("h200-sxm:8")[0], engine, fit_at_hand())
    table = surface(model, Strategy(dp=8, ep=8), r, kv_bytes=2.0, seats=48, budget=2048, longest=32768)
    return lists(table)


TOGETHER = [
    "fixed lengths",
    "few blocks",
    "few blocks, found again",
    "clients behind a front end",
    "prompts first",
    "cached prompts",
    "cached prompts in pieces, hardly any blocks",
]


@pytest.mark.parametrize("case", [*TOGETHER, "reserved to the end", "drafts", "whole prompts beside others"])
def test_groups_that_share_experts_step_together(case, shared_tables):
    changed, load = CASES[case]
    load = {"count": 60, "rate": 4.0, "mean": 512, "answer": 128, "sigma": 0.0} | load
    s, sent = PLAIN._replace(**changed, front=load.get("front", 0.0)), load.get("clients") or load["count"]
    each = [drawn(**load, seed=seed) for seed in range(3)]
    count = load["count"]
    groups = [(copy.deepcopy(one), empty(count), records.started(s, count, min(sent, count))) for one in each]
    lockstep.run(s, shared_tables, groups, math.inf)
    engines = [Engine(s, shared_tables, one, empty(count), min(sent, count)) for one in each]
    serve_together(engines)
    for (_, times, state), engine in zip(groups, engines, strict=True):
        for one, two in zip(times[:3], engine.out[:3], strict=True):
            assert max(abs(a - b) for a, b in zip(one, two, strict=True)) < SAME
        assert times.preempted == engine.out.preempted
        assert state.clock[1] == pytest.approx(s.blocks)
        assert state.sent == [count] * 3


def test_a_lone_prompt_is_faster_where_the_other_groups_are_idle(shared_tables):
    def first(groups):
        load = [drawn(1, 1.0, 2000, 2, 0.0, 0, clients=1) for _ in range(groups)]
        idle = [records.Requests([], [], [], [], []) for _ in range(8 - groups)]
        members = [
            (one, empty(len(one.inputs)), records.started(PLAIN, len(one.inputs), len(one.inputs)))
            for one in load + idle
        ]
        lockstep.run(PLAIN, shared_tables, members, math.inf)
        return members[0][1].first[0]

    assert first(1) < 0.8 * first(8)


@pytest.mark.parametrize("lag", [0.0, 3.0])
def test_first_tokens_leave_late_behind_stages(tables, lag):
    requests = drawn(100, 8.0, 512, 128, 0.5, 0)
    times, other, _ = both(PLAIN, tables[0]._replace(lag=lag), requests, 100)
    assert np.allclose(times.first, other.first, rtol=0, atol=SAME)
    assert np.allclose(times.last, other.last, rtol=0, atol=SAME)


@pytest.mark.parametrize(
    "case",
    ["spread lengths", "few blocks", "few blocks, found again", "prompts first", "clients", "drafts", "static batches"],
)
@pytest.mark.slow
def test_compiled_events_are_the_same(case, tables):
    run = compiled()
    if run is None:
        pytest.skip("numba is not installed")
    changed, load = CASES[case]
    load = {"count": 400, "rate": 8.0, "mean": 512, "answer": 128, "sigma": 0.0, "seed": 3} | load
    s, sent = PLAIN._replace(**changed), load.get("clients") or load["count"]
    table = Surface(*(np.array(one) if isinstance(one, list) else one for one in tables[0]))
    table = table._replace(states=np.zeros((0, 0)))
    if s.budget > 2048:
        table = grown(table)
    requests = drawn(**load)
    plain, state = empty(400), records.started(s, 400, sent)
    arrays = records.Requests(*(np.array(one) for one in requests))
    times = records.Times(*(np.array(one) for one in empty(400)))
    ended = run(s._replace(blocks=float(s.blocks)), table, arrays, times, records.started(s, 400, sent), math.inf)
    core.run(s, lists(table), requests, plain, state, math.inf)
    for one, two in zip(plain, times, strict=True):
        assert np.allclose(one, two, rtol=0, atol=SAME)
    assert list(ended.counts) == state.counts


# Queues with closed forms ------------------------------------------------------------------------

STEP = 1e-3
"""Time of every step of a server without memory [s]."""


def clockwork(seats=1):
    """Return tables in which every step takes the same time, whatever it computes."""
    flat = [STEP] * 40_000
    return Surface(
        decodes=[STEP] * (seats + 1),
        prompts=flat,
        mixed=flat,
        prompt_rows=[0.0] * 40_000,
        mixed_rows=[0.0] * 40_000,
        contexts=[1.0, 1e6],
        attention=[[0.0, 0.0]] * (seats + 1),
        growth=[[0.0, 0.0]] * (seats + 1),
        news=[0.0, 40_000.0],
        pasts=[0.0, 1e6],
        pieces=[[0.0, 0.0], [0.0, 0.0]],
        reads=[],
        reading=[],
        states_tokens=[],
        states_rows=[],
        states=[],
        encoders=[],
        shared=[],
        each=1.0,
        lag=0.0,
        waits=[0.0] * (seats + 1),
        launching=[0.0, 0.0, 0.0],
        hosting=0.0,
        replayed=0.0,
        ahead=0.0,
    )


def waits(turns, load, seed):
    """Return the waiting times of a server with one seat, and the time of a request [s]."""
    count, service = len(turns), (np.mean(turns) + 1.0) * STEP
    arrivals = renewal(load / service, count, 1.0, np.random.default_rng(seed)).tolist()
    requests = records.Requests(arrivals, list(arrivals), [1] * count, [0] * count, list(turns))
    times = empty(count)
    core.run(PLAIN._replace(seats=1), clockwork(), requests, times, records.started(PLAIN, count, count), math.inf)
    return np.array(times.admitted) - np.array(arrivals), service


def by_batches(values, batches=50):
    means = np.array(values[: len(values) // batches * batches]).reshape(batches, -1).mean(axis=1)
    return means.mean(), means.std(ddof=1) / math.sqrt(batches)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
@pytest.mark.slow
def test_one_seat_with_equal_requests_is_m_d_1(load):
    found, service = waits([200] * 40_000, load, 0)
    mean, error = by_batches(found)
    assert mean == pytest.approx(load / (2.0 * (1.0 - load)) * service, abs=3.0 * error)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
@pytest.mark.slow
def test_one_seat_with_exponential_requests_is_m_m_1(load):
    turns = np.maximum(1, np.random.default_rng(1).exponential(1000.0, 40_000).astype(int))
    found, service = waits(turns.tolist(), load, 2)
    mean, error = by_batches(found)
    assert mean == pytest.approx(load / (1.0 - load) * service, abs=3.0 * error)


# Rules of engines --------------------------------------------------------------------------------


def by_tokens(seats):
    """Return tables of steps of 10 ms, and a millisecond for each 100 prompt tokens."""
    flat = [0.01] * 40_000
    pieces = [[0.0, 0.0], [0.4, 0.4]]
    return clockwork(seats)._replace(decodes=flat, prompts=flat, mixed=flat, pieces=pieces)


def simulated(count=1, prompt=1000, answer=11, *, clients=None, rate=None, front=0.0, **changed):
    """Return TTFT and TPOT of requests that are all alike, and tokens a second."""
    s = PLAIN._replace(**{"seats": 8, "budget": 4096, "front": front} | changed)
    table = by_tokens(s.seats)
    requests = Requests(
        arrivals=None if clients else np.arange(count) / rate if rate else np.zeros(count),
        inputs=np.full(count, prompt),
        outputs=np.full(count, answer),
    )
    found = Fleet(scheduler=s, surface=table, replicas=1).serve(requests, np.zeros(count, np.int64), clients)
    tpot = found.figure("tpot")
    return found.figure("ttft").mean(), tpot.mean() if len(tpot) else None, count * answer / found.last.max()


def test_a_lone_request_takes_its_prompt_and_its_tokens():
    ttft, tpot, rate = simulated()
    assert ttft == pytest.approx(0.02)
    assert tpot == pytest.approx(0.01)
    assert rate == pytest.approx(11 / (0.02 + 10 * 0.01))


def test_a_prompt_longer_than_the_budget_is_cut():
    ttft, tpot, _ = simulated(answer=1, budget=256)
    assert ttft == pytest.approx(4 * 0.01 + 1000 * 1e-5)
    assert tpot is None


def test_seats_bound_who_runs_and_the_rest_wait():
    """Ten requests on one seat are ten lone ones, one after the other."""
    alone, _, quickly = simulated(prompt=100, answer=6, seats=1)
    ttft, _, rate = simulated(10, prompt=100, answer=6, seats=1)
    assert rate == pytest.approx(quickly)
    assert ttft == pytest.approx(alone + 6 / quickly * 4.5)


def test_an_engine_that_does_not_mix_stops_decoding_for_prompts():
    mixed = simulated(40, answer=50, clients=8, budget=1100)[1]
    apart = simulated(40, answer=50, clients=8, budget=1100, mixes=False, chunked=False)[1]
    assert apart > mixed


def test_slow_arrivals_see_an_empty_system():
    alone, seen = simulated(prompt=100, answer=5), simulated(20, prompt=100, answer=5, rate=0.5)
    assert seen[:2] == pytest.approx(alone[:2])


def test_engines_differ_in_what_they_cut_and_in_what_they_mix():
    """SGLang cuts prompts but computes them alone, TensorRT-LLM the other way round: three prompts of 700 into a budget of 1,000."""
    seen = {
        (cuts, mixes): simulated(3, prompt=700, answer=5, budget=1000, chunked=cuts, mixes=mixes)
        for cuts in (True, False)
        for mixes in (True, False)
    }
    # whole prompts, one a step: the first two wait for the third's where it is computed alone, else they decode beside it
    one = 0.01 + 700 * 1e-5
    assert seen[False, False][0] == pytest.approx(2 * one)
    assert seen[False, True][0] == pytest.approx(2 * one)
    assert seen[False, False][1] > seen[False, True][1] > 0.01
    # cut prompts come sooner: 1,000, 1,000 and 100 tokens
    assert seen[True, False][0] == pytest.approx((0.02 + 0.04 + 0.051) / 3)
    assert seen[True, False][1] > seen[True, True][1]


def test_a_burst_waits_until_the_front_end_has_taken_in_all_of_it():
    quick = simulated(20, prompt=100, answer=5, seats=20)
    slow = simulated(20, prompt=100, answer=5, seats=20, front=0.1)
    assert slow[0] == pytest.approx(quick[0] + 20 * 0.1)
    assert 100 / slow[2] == pytest.approx(100 / quick[2] + 20 * 0.1)
    assert slow[1] == pytest.approx(quick[1])


def test_who_comes_to_a_busy_server_waits_for_the_front_end_alone():
    quick = simulated(10, prompt=100, answer=400, seats=20, rate=1.0)
    slow = simulated(10, prompt=100, answer=400, seats=20, rate=1.0, front=0.1)
    assert slow[0] == pytest.approx(quick[0] + 0.1, abs=0.012)  # a request is seen at the end of a step of 11 ms
    late = simulated(10, prompt=100, answer=400, seats=20, rate=1.0, delay=0.3)
    assert late[0] == pytest.approx(quick[0] + 0.3, abs=0.012)


def test_static_batches_end_together():
    ttft, tpot, _ = simulated(4, prompt=100, answer=5, seats=2, static=True, mixes=False, chunked=False)
    assert tpot == pytest.approx(0.01)
    assert ttft == pytest.approx(0.012 + 0.5 * (0.012 + 4 * 0.01))


# What always holds -------------------------------------------------------------------------------


def served(
    tables, s=PLAIN, *, replicas=1, route=ROUTES[0], factor=1.0, rate=8.0, count=2000, seed=0, clients=None, hit=0.0
):
    table = Surface(*(np.array(one) if isinstance(one, list) else one for one in tables[0]))
    times = ("decodes", "prompts", "mixed", "prompt_rows", "mixed_rows", "attention", "growth", "pieces")
    table = table._replace(**{name: getattr(table, name) * factor for name in times})
    random, lengths = np.random.default_rng(seed), Lengths("lognormal", sigma=0.7)
    requests = Requests(
        arrivals=renewal(rate, count, 1.0, random),
        inputs=lengths.draw(512, count, random),
        outputs=lengths.draw(128, count, random),
    )
    fleet = Fleet(scheduler=s._replace(front=0.004, delay=0.01), surface=table, replicas=replicas, route=route)
    return fleet.serve(requests, (hit * requests.inputs).astype(np.int64), clients)


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("route", ROUTES)
def test_first_come_first_admitted_at_each_replica(tables, replicas, route):
    found = served(tables, PLAIN._replace(paged=True, blocks=700), replicas=replicas, route=route, rate=15.0 * replicas)
    assert found.preempted.sum() > 0
    for k in range(replicas):
        mine = found.admitted[found.replica == k]
        assert np.all(np.diff(mine) >= 0.0)
    assert np.all(found.arrivals <= found.admitted)
    assert np.all(found.admitted < found.first)
    assert np.all(found.first <= found.last)
    assert len(np.unique(found.replica)) == replicas


def test_tokens_in_the_cache_are_those_of_running_requests(tables):
    found = served(tables, count=300)
    for t in (5.0, 20.0, 33.3):
        held = 0.0
        for i in range(300):
            if found.admitted[i] <= t < found.last[i]:
                share = (t - found.first[i]) / (found.last[i] - found.first[i]) if t > found.first[i] else 0.0
                held += found.inputs[i] + (found.outputs[i] - 1) * share
        assert tokens_held(found, np.array([t]))[0] == pytest.approx(held, rel=1e-6)


def test_with_one_seat_a_faster_machine_delays_nobody(tables):
    s = PLAIN._replace(seats=1)
    slow, quick = served(tables, s, rate=0.3, count=400), served(tables, s, rate=0.3, count=400, factor=0.8)
    assert np.all(quick.first <= slow.first + 1e-9)
    assert np.all(quick.last <= slow.last + 1e-9)


def test_with_many_seats_faster_steps_lower_the_mean(tables):
    slow, quick = (served(tables, count=6000, factor=factor).figure("e2e") for factor in (1.0, 0.9))
    mean, error = by_batches(quick - slow)
    assert mean < 3.0 * error
    assert mean < 0.0


def test_replicas_share_the_load(tables):
    least = served(tables, replicas=4, rate=40.0, route="least-outstanding")
    turn = served(tables, replicas=4, rate=40.0, route="round-robin")
    counts = np.bincount(least.replica)
    assert counts.min() > 0.8 * counts.max()
    assert least.figure("e2e").mean() <= turn.figure("e2e").mean() * 1.02
    assert set(np.bincount(turn.replica)) == {500}


def test_a_request_that_no_cache_holds_is_refused(tables):
    with pytest.raises(InputError, match="longer than the cache"):
        served(tables, PLAIN._replace(paged=True, blocks=20), count=50)


def test_clients_send_when_their_last_answer_has_ended(tables):
    found = served(tables, clients=16, count=400)
    sent, ended = (np.searchsorted(np.sort(one), found.last, side="right") for one in (found.arrivals, found.last))
    inside = sent - ended
    assert inside.max() <= 16
    assert (found.arrivals == 0.0).sum() == 16


def test_a_front_end_passes_on_one_by_one():
    assert through_front(np.array([0.0, 0.0, 5.0]), 0.5).tolist() == [0.5, 1.0, 5.5]
    assert through_front(np.array([0.0, 0.0]), 0.5).tolist() == [1.0, 1.0]  # a burst
    assert through_front(np.array([0.0, 0.1, 0.2]), 0.5).tolist() == [0.5, 1.0, 1.5]
    assert through_front(np.array([1.0, 2.0]), 0.0).tolist() == [1.0, 2.0]


def test_a_replica_stopped_at_every_arrival_does_the_same(tables):
    """Cutting jumps where others arrive changes nothing."""
    requests = drawn(300, 8.0, 512, 128, 0.7, 5)
    whole, parts = empty(300), empty(300)
    core.run(PLAIN, tables[0], requests, whole, records.started(PLAIN, 300, 300), math.inf)
    state = records.started(PLAIN, 300, 300)
    for until in [*np.linspace(0.0, 40.0, 997), math.inf]:
        core.run(PLAIN, tables[0], requests, parts, state, float(until))
    assert np.allclose(whole.last, parts.last, rtol=0, atol=SAME)
    assert np.allclose(whole.first, parts.first, rtol=0, atol=SAME)


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0])), st.sampled_from([-1.0, 0.0, 0.5, 1.0, 3.0, 9.0]))
def test_places_are_those_of_bisect(points, at):
    points.sort()
    assert _bisect_right(points, at) == bisect.bisect_right(points, at)


@pytest.mark.parametrize(
    ("positions", "longest", "said"),
    [
        (1000, 1001, "of 1,001 tokens is too long: m has 1,000 positions$"),
        (1000, 900, "of 900 tokens is too long: the cache of a replica holds 800$"),
        (1000, 1000, "the cache of a replica holds 800$"),
        (None, 900, "the cache of a replica holds 800$"),
    ],
)
def test_requests_that_no_replica_holds_are_refused(positions, longest, said):
    place = SimpleNamespace(
        memory=SimpleNamespace(longest=800.0), model=SimpleNamespace(id="m", max_positions=positions)
    )
    with pytest.raises(InputError, match=said):
        refuse_too_long(place, longest)
    refuse_too_long(place, 800)


@pytest.mark.parametrize(
    ("foot", "blocks"),
    [
        ({"kv_per_token": 10.0, "state": 0.0, "windowed": ()}, (6, 0)),
        ({"kv_per_token": 10.0, "state": 200.0, "windowed": ()}, (6, 2)),
        ({"kv_per_token": 10.0, "state": 0.0, "windowed": ((1.0, 100, None),)}, (6, 1)),
        ({"kv_per_token": 0.0, "state": 300.0, "windowed": ()}, (3, 1)),
        ({"kv_per_token": 0.0, "state": 0.0, "windowed": ()}, (math.inf, 0)),
    ],
)
def test_blocks_of_a_replica_hold_tokens_or_states(foot, blocks):
    """1,000 B in blocks of 16 tokens of 10 B; a window of 100 tokens takes 100 B, and states of 300 B go thrice."""
    place = SimpleNamespace(
        memory=SimpleNamespace(pool=1000.0, footprint=SimpleNamespace(**foot)), engine=SimpleNamespace(block=16)
    )
    assert Deployment.blocks(place, 500) == blocks


def test_answers_of_one_token_have_no_time_between_tokens_to_keep():
    figures = {"tpot": np.array([0.1, 0.9]), "ttft": np.array([0.1, 0.1, 0.1, 0.9])}
    served = SimpleNamespace(outputs=np.array([1, 2, 5, 1]), arrivals=np.zeros(4), figure=figures.get)
    limits = Objective("tpot", 0.5, 0.9), Objective("ttft", 0.5, 0.9)
    assert good_share(served, SimpleNamespace(objectives=limits, warmup=0)) == 0.5
    assert good_share(served, SimpleNamespace(objectives=limits, warmup=2)) == 0.0
    assert good_share(served, SimpleNamespace(objectives=limits[:1], warmup=0)) == 0.75


def test_steps_alike_end_with_a_request_the_cache_or_the_slope():
    """Ten sequences whose first ends at step 100 of 16-token blocks, of which some are free."""

    def alike(**more):
        s = SimpleNamespace(grows=more.get("grows", 1.0), paged=more.get("paged", False), block=16)
        state = SimpleNamespace(ends={0: 100}, heap=[100 << core.BITS], left=None)
        given = {"free": 1e9, "most": 0, "room": -1.0} | {
            k: v for k, v in more.items() if k in {"free", "most", "room"}
        }
        return core.alike(s, state, 40, given["free"], 10, given["most"], given["room"])

    assert alike() == 60
    assert alike(most=7) == 7
    assert alike(room=20.5) == 21
    assert alike(room=20.5, grows=2.0) == 11
    assert alike(paged=True, free=(60 // 16 + 1) * 10.0) == 60
    assert alike(paged=True, free=(60 // 16 + 1) * 20.0, grows=2.0) == 60
    assert alike(paged=True, free=20.0, grows=2.0) == 16
    assert alike(paged=True, free=0.0, grows=2.0) == 1


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("route", ROUTES)
def test_what_was_in_the_cache_is_told_of_each_request(tables, replicas, route):
    found = served(tables, replicas=replicas, route=route, count=60, hit=0.25)
    assert np.array_equal(found.cached, found.inputs // 4)


@pytest.mark.parametrize("engine", ["tensorrt-llm-1.2", "vllm"])
def test_engines_reserve_or_take_blocks_where_these_may_not_suffice(engine):
    """A few short requests fit whole; where all seats at the longest length do not, TensorRT-LLM keeps room for each, vLLM preempts."""
    plan = plan_serving("llama-3.1-8b", on="rtx-4090:1", precision="fp8", engine=engine).plans[0]
    place = deployment_of(plan)
    longest = place.scheduler(8192)
    assert longest.seats * 8192 / longest.block > longest.blocks
    assert (longest.reserves, longest.paged) == (engine != "vllm", engine == "vllm")
    ample = replace(place, launched=2).scheduler(8192)
    assert ample.seats == 2
    assert 2 * 8192 / ample.block <= ample.blocks
    assert (ample.reserves, ample.paged) == (False, False)


def test_groups_take_turns_at_being_the_slowest():
    """A group that is 1 s quicker and gains 0.3 s a step is the slower one in the fourth step."""
    slow, other = (lockstep.Part(0, 1, 1.0, own, growth, 9, False) for own, growth in ((5.0, 0.1), (4.0, 0.4)))
    assert lockstep.overtaken([slow, other], slow) == 4
    assert lockstep.overtaken([slow, slow], slow) == lockstep.MOST


def test_stages_that_work_on_different_batches_do_not_wait_for_other_groups():
    """Experts over two groups: their tokens meet, unless a pipeline gives each stage a batch of its own."""
    model, box = read_model("deepseek-v3"), machine("h200-sxm:16")[0]
    r = rates(box, catalogue.engine("vllm-0.33"), fit_at_hand())
    tables = [
        surface(model, layout, r, kv_bytes=2.0, seats=8, budget=512, longest=4096)
        for layout in (Strategy(tp=8, dp=2, ep=16), Strategy(tp=4, pp=2, dp=2, ep=8))
    ]
    assert [bool(np.any(np.asarray(one.shared) > 0.0)) for one in tables] == [True, False]


def test_who_waits_and_who_runs():
    served = SimpleNamespace(
        arrivals=np.array([0.0, 1.0, 2.0]),
        admitted=np.array([0.0, 4.0, 2.5]),
        first=np.array([1.0, 5.0, 3.0]),
        last=np.array([2.0, 6.0, 8.0]),
        inputs=np.array([100, 200, 300]),
        cached=np.array([0, 40, 0]),
        outputs=np.array([11, 11, 1]),
    )
    times = np.array([-1.0, 0.0, 1.5, 2.0, 3.0, 5.0, 6.0, 9.0])
    assert report.waiting_at(served, times).tolist() == [0, 0, 1, 2, 1, 0, 0, 0]
    assert report.running_at(served, times).tolist() == [0, 1, 1, 0, 1, 2, 1, 0]
    assert tokens_held(served, times).tolist() == pytest.approx([0, 100, 105, 0, 300, 460, 300, 0])
    room = SimpleNamespace(blocks=lambda _: (50.0, 2.0), engine=SimpleNamespace(block=10), replicas=2)
    mean, most = report.cache_use(room, served, 1000)
    held = tokens_held(served, np.linspace(0.0, 8.0, 400)) + 20.0 * report.running_at(
        served, np.linspace(0.0, 8.0, 400)
    )
    assert mean == pytest.approx(held.mean() / 1000.0)
    assert most == pytest.approx(held.max() / 1000.0)
    small = SimpleNamespace(blocks=lambda _: (10.0, 2.0), engine=SimpleNamespace(block=10), replicas=1)
    assert report.cache_use(small, served, 1000)[1] == 1.0
    endless = SimpleNamespace(blocks=lambda _: (math.inf, 2.0), engine=SimpleNamespace(block=10), replicas=1)
    assert report.cache_use(endless, served, 1000) == (0.0, 0.0)


def test_independent_causes_join_on_a_logarithmic_scale():
    low, high = joined(2.0, (2.0 / math.e**0.3, 2.0 * math.e**0.6), (2.0 / math.e**0.4, 2.0 * math.e**0.8), 0.0)
    assert (low, high) == pytest.approx((2.0 / math.e**0.5, 2.0 * math.e))
    low, high = joined(2.0, (1.9, 2.1), (1.9, 2.1), 0.7)
    assert (low, high) == pytest.approx((2.0 / math.e**0.7, 2.0 * math.e**0.7))
    assert joined(2.0, (0.0, math.inf), (1.9, 2.1), 0.1) == (0.0, math.inf)
    assert joined(0.0, (0.0, 0.5), (1.0, 2.0), 0.1) == (0.0, 0.5)


def test_a_slope_ends_with_the_next_context_and_the_last_never(tables):
    table = tables[0]
    points, sequences = table.contexts, 4
    seconds, growth, room = slope_at(table, sequences, 4.0 * (points[0] + 1.0))
    assert room == pytest.approx(points[1] - points[0] - 1.0)
    assert growth == table.growth[4][0]
    assert seconds == pytest.approx(table.decodes[4] + table.attention[4][0] + growth)
    assert slope_at(table, sequences, 4.0 * (points[-1] + 5.0))[2] == -1.0
    assert slope_at(table, sequences, 4.0 * points[-1])[2] == -1.0
