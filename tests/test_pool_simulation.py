"""Simulated pools: step times, queues, members who come and go, checks, and ledgers that balance."""

import inspect
import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from roofplan import api, catalogue
from roofplan.errors import InputError
from roofplan.inputs import PoolPlanInputs, PoolSimulateInputs
from roofplan.laws import pool as laws
from roofplan.load.requests import Requests
from roofplan.operations.table import Step
from roofplan.pool import simulate
from roofplan.pool.checks import (
    AGREED,
    HONEST,
    Cheaters,
    Checked,
    Checking,
    Tally,
    _Pool,
    checked,
    closed_form,
    honest_auditors,
)
from roofplan.pool.churn import EVENING, STEADY, Sessions, drawn, read_churn
from roofplan.pool.circumstances import cheaters_of
from roofplan.pool.costs import problem_of
from roofplan.pool.request import pool_request
from roofplan.pool.service import OUT, Service
from roofplan.pool.simulate import _hours, _times, works_of
from roofplan.pool.surface import pool_surface
from roofplan.pool.times import parts_of
from roofplan.records.pool import Member
from roofplan.simulation.steps import step_time
from roofplan.timing.figures import FIRST_TOKEN

STREET = ("2xrtx-3090@1gbit:8ms", "2xrtx-4060-ti-16@1gbit:8ms", "rtx-4090@1gbit:8ms")
FEW = {"precision": "q4_k_m", "jobs": "2000", "days": "3", "rate": "20req/h"}


def simulated(*members, model="qwen3-32b", **more):
    return api.simulate_pool(model, member=list(members or STREET), **FEW | more)


# Step times ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("software", ["llama.cpp", "petals"])
def test_tables_are_the_laws(software):
    asked = PoolPlanInputs(
        model="qwen3-32b", member=("rtx-4090@1gbe", "2xrtx-3090@100mbit:5ms"), precision="q8_0", software=software
    )
    request, fit = pool_request(api.model_of("qwen3-32b"), asked), api.fit_at_hand()
    layout = api.plan_pool(asked).layout
    table = pool_surface(request, fit, layout, seats=4, budget=2048, longest=4096)
    for name in ("reads", "reading", "states_tokens", "states_rows", "states", "encoders", "shared"):
        assert len(getattr(table, name)) == 0  # a pool has no such parts
    random = np.random.default_rng(0)
    for _ in range(12):
        sequences, context = int(random.integers(1, 5)), float(random.integers(1, 4096))
        if software == "petals" and sequences > 1:
            continue  # divided into batches there
        own = problem_of(request, fit, step=Step(sequences=float(sequences), context=context)).time(layout)
        assert step_time(table, sequences, sequences * context, []) == pytest.approx(own, rel=5e-3)
        new, past = int(random.integers(1, 2048)), int(random.integers(0, 2048))
        parts = parts_of(request, fit, layout, Step(new=float(new), past=float(past), requests=1.0), FIRST_TOKEN)
        own = sum(float(one.term.value) for one in parts)
        assert step_time(table, 0, 0.0, [(new, past)]) == pytest.approx(own, rel=1e-2)


def test_only_so_many_step_times_are_kept(monkeypatch):
    monkeypatch.setattr(simulate, "KEPT", 2)
    asked = PoolPlanInputs(model="qwen3-32b", member=STREET, precision="q4_k_m")
    request, fit = pool_request(api.model_of("qwen3-32b"), asked), api.fit_at_hand()
    surface_of = simulate._surfaces(request, fit, 1, 512, 1024)
    layout = api.plan_pool(asked).layout
    for factor in (1.0, 1.1, 1.2, 1.3):
        assert surface_of(layout, factor) is surface_of(layout, factor)
    assert len(inspect.getclosurevars(surface_of).nonlocals["kept"]) == 2


def test_an_always_present_pool_serves_a_lone_user_as_planned():
    found = simulated(online="100%", lengths="fixed", rate="1req/h", days="2")
    plan = found.plan.metrics
    assert found.served == 1.0
    assert found.any_up == 1.0
    assert found.outcome.again == 0.0
    assert found.figures["tpot"].metric.value == pytest.approx(plan["tpot"].value, rel=0.02)
    assert found.figures["ttft"].metric.value == pytest.approx(plan["ttft"].value, rel=0.1)


# Members who come and go --------------------------------------------------------------------------


def test_every_request_is_finished_given_up_or_left():
    found = simulated(session="1h", online="50%", patience="30s", rate="60req/h")
    out, arrivals = found.outcome, np.asarray(found.requests.arrivals)
    done, gone = out.last >= 0.0, out.left >= 0.0
    assert not np.any(done & gone)
    assert np.all((out.first >= arrivals)[done])
    assert np.all((out.last >= out.first)[done])
    unbroken = gone & (out.interrupted == 0)
    assert np.all(out.left[unbroken] == pytest.approx((arrivals + 30.0)[unbroken]))
    assert np.all(out.left[gone] >= (arrivals + 30.0)[gone] - 1e-6)
    assert np.all((out.admitted <= out.first)[done])
    assert np.any(gone)
    assert np.any(out.interrupted > 0)
    assert found.wasted > 0.0


def test_credit_is_the_work_of_finished_answers():
    found = simulated(session="2h", online="60%")
    done = found.outcome.last >= 0.0
    tokens = float((found.requests.inputs + found.requests.outputs - 1)[done].sum())
    whole = works_of(found.plan.request, found.plan.fit).sum()
    assert sum(one.useful for one in found.shares) == pytest.approx(whole * tokens, rel=1e-9)
    assert sum(one.credit for one in found.shares) == pytest.approx(float(laws.credit(whole * tokens)), rel=1e-9)
    for one in found.shares:
        assert 0.0 <= one.useful <= one.work * (1.0 + 1e-12)
    # every token passes all layers, finished or not
    assert sum(one.work for one in found.shares) == pytest.approx(whole * found.outcome.tokens, rel=1e-9)


def test_a_seed_repeats_and_another_differs():
    a, b, c = (simulated(seed=seed) for seed in ("3", "3", "4"))
    assert np.array_equal(a.outcome.last, b.outcome.last)
    assert [one.credit for one in a.shares] == [one.credit for one in b.shares]
    assert len(a.outcome.last) != len(c.outcome.last) or not np.array_equal(a.outcome.last, c.outcome.last)


def test_weights_on_disk_lose_less():
    kinds = {"session": "1h", "online": "60%", "rate": "60req/h"}
    slow = simulated("2xrtx-3090@100mbit:8ms", "rtx-4090@100mbit:8ms", **kinds)
    disk = simulated("2xrtx-3090@100mbit:8ms", "rtx-4090@100mbit:8ms", store=True, **kinds)
    assert disk.served > slow.served
    assert sum(disk.outcome.up) > sum(slow.outcome.up)


def test_software_that_replaces_one_stage_is_up_for_longer_on_slow_links():
    """llama.cpp's client ends when a worker does and sends all weights again; Petals' members load their own stage."""
    kinds = {"session": "1h", "online": "80%", "model": "llama-3.1-70b"}
    members = ("3xrtx-3090@50mbit:8ms", "3xrtx-4060-ti-16@50mbit:8ms")
    hub, ring = (simulated(*members, software=one, **kinds) for one in ("llama.cpp", "petals"))
    assert ring.any_up > hub.any_up
    assert ring.served > hub.served


def churned(tmp_path, rows, *members, **more):
    table = tmp_path / "churn.csv"
    table.write_text("member,from,to\n" + rows)
    return simulated(*members, precision="q8_0", days="1", churn=str(table), **more)


def test_places_are_given_anew_so_that_all_are_held(tmp_path):
    """The output layer fits all three cards, most layers the 4090 alone; a small card comes ten minutes late."""
    members = ("rtx-3060-ti@1gbit:1ms", "rtx-3060@1gbit:1ms", "rtx-4090@1gbit:1ms")
    rows = "rtx-3060-ti,{},90000\nrtx-3060,{},90000\nrtx-4090,0,90000\n"
    for late in (("600", "0"), ("0", "600")):
        found = churned(tmp_path, rows.format(*late), *members)
        assert found.any_up > 0.9
        assert found.served > 0.9


def test_a_pipeline_waits_for_the_slowest_load(tmp_path):
    """Weights of the 4090 take half an hour over its link; its partner comes later and loads faster."""
    members = ("rtx-4090@100mbit:1ms", "rtx-3090@1gbit:1ms")
    for late in (11, 1001):
        found = churned(tmp_path, f"rtx-4090,1,90000\nrtx-3090,{late},90000\n", *members, software="petals")
        place = next(one for one in found.pipelines[0].places if one.member == 0)
        load = float(laws.wire_time(place.size, np.inf, 1.25e7))
        begun = [at for at, able in found.outcome.timeline if able]
        assert load > 1000.0
        assert begun[0] == pytest.approx(max(1.0, 0.0) + load, abs=1.0)


def test_patience_holds_across_a_break(tmp_path):
    """Both leave at noon and are back an hour later: whoever was being served then, or came since, has left by then."""
    rows = "rtx-3090#1,0,43200\nrtx-3090#1,46800,90000\nrtx-3090#2,0,43200\nrtx-3090#2,46800,90000\n"
    found = churned(tmp_path, rows, "2xrtx-3090@1gbit:1ms", rate="120req/h", patience="20s", replicas="1")
    out, arrivals = found.outcome, np.asarray(found.requests.arrivals)
    away = (arrivals > 43200.0) & (arrivals < 46770.0)
    assert np.any(away)
    assert np.all(out.left[away] == pytest.approx((arrivals + 20.0)[away]))
    assert np.all(out.last[out.left >= 0.0] < 0.0)
    done = out.last >= 0.0
    unbroken = done & (out.interrupted == 0)
    assert np.all((out.admitted - arrivals)[unbroken] <= 20.0 + 5.0)  # to the end of a step


def test_members_who_are_always_there_are_up_all_the_time():
    found = simulated(online="100%", rate="0.2req/h", days="3")
    assert found.any_up == 1.0
    assert found.outcome.up == pytest.approx([1.0] * len(found.pipelines))


def test_figures_of_a_loaded_pool_have_ends_from_slower_and_faster_steps():
    found = simulated(rate="200req/h", days="1", online="100%", replicas="1", patience="1h")
    for name in ("ttft", "e2e", "waiting"):
        one = found.figures[name]
        assert one.metric.low <= one.metric.value <= one.metric.high
        assert one.metric.grade == "guessed"
    wide = found.plan.metrics["tpot"]
    waiting = found.figures["waiting"]
    assert waiting.speeds[1] / waiting.metric.value > wide.high / wide.value  # a queue grows faster than its steps


def test_a_spare_takes_over(tmp_path):
    """Both 3090s hold the model; one leaves in the second hour and the 4090, a spare, takes its place."""
    table = tmp_path / "churn.csv"
    table.write_text("member,from,to\nrtx-3090#1,0,3600\nrtx-3090#2,0,90000\nrtx-4090,0,90000\n")
    kinds = {"replicas": "1", "precision": "q8_0", "days": "1", "churn": str(table)}
    found = simulated("2xrtx-3090@1gbit:8ms", "rtx-4090@1gbit:8ms", **kinds)
    used = {place.member for place in found.pipelines[0].places}
    gone = 0 if 0 in used else None
    assert gone is not None, "the plan holds the member that leaves"
    assert found.outcome.replaced in {1, 2}  # two where the other 3090 takes the place and the 4090 its own
    assert found.any_up > 0.98
    changes = [able for _, able in found.outcome.timeline]
    assert changes == [1, 0, 1]


def test_nobody_there_serves_nobody(tmp_path):
    table = tmp_path / "churn.csv"
    table.write_text("member,from,to\nrtx-3090#1,0,10\n")
    found = simulated("2xrtx-3090@1gbit:8ms", precision="q8_0", days="1", churn=str(table))
    assert found.served == 0.0
    assert np.all(found.outcome.left >= 0.0)


# Sessions -----------------------------------------------------------------------------------------


def member(**more):
    return Member(name="m", device=catalogue.accelerator("rtx-3060"), down=1e7, up=1e7, rtt=0.01, link="", **more)


def test_arrivals_of_busy_spans_reach_their_end():
    """Enough arrivals are drawn to reach the horizon, even in a run with more than the mean."""
    counts = []
    for seed in range(12):
        asked = SimpleNamespace(seed=seed, rate=1.0, horizon=10_000.0)
        request = SimpleNamespace(workload=SimpleNamespace(input=100, output=10))
        given = SimpleNamespace(rate="1req/s", lengths="fixed")
        counts.append(len(simulate._requests(request, given, asked).inputs))
    assert max(counts) > 10_100
    assert np.mean(counts) == pytest.approx(10_000, rel=0.01)


@pytest.mark.parametrize("pattern", [STEADY, EVENING])
def test_members_are_there_as_long_as_they_say(pattern):
    horizon = 400.0 * 86_400.0
    spans = drawn([member()] * 30, horizon, session=7200.0, online=0.4, pattern=pattern, seed=1)
    assert np.mean([one.share(horizon) for one in spans]) == pytest.approx(0.4, abs=0.02)
    for one in spans:
        assert np.all(one.ends > one.starts)
        assert np.all(one.starts[1:] >= one.ends[:-1])
        assert one.ends[-1] >= horizon * 0.9


def test_evenings_are_fuller():
    horizon = 400.0 * 86_400.0
    spans = drawn([member()] * 30, horizon, session=7200.0, online=0.4, pattern=EVENING, seed=1)
    hours = np.arange(0.0, horizon, 3600.0)
    there = np.zeros(len(hours))
    for one in spans:
        place = np.searchsorted(one.starts, hours, side="right") - 1
        there += (place >= 0) & (hours < one.ends[np.maximum(place, 0)])
    by_hour = there.reshape(-1, 24).mean(axis=0)
    assert by_hour[21] > 1.5 * by_hour[15]


def test_hours_of_the_day():
    spans = drawn(
        [member(hours=(18 * 3600.0, 2 * 3600.0))], 3 * 86_400.0, session=1.0, online=1.0, pattern=STEADY, seed=0
    )
    assert spans[0].starts[:2].tolist() == [0.0, 18 * 3600.0]
    assert spans[0].ends[:2].tolist() == [2 * 3600.0, 26 * 3600.0]
    assert spans[0].share(2 * 86_400.0) == pytest.approx(16.0 / 48.0)


def test_an_empty_member_is_never_there():
    assert Sessions(np.zeros(0), np.zeros(0)).share(10.0) == 0.0


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("member,from\nm,0\n", "columns member, from and to"),
        ("member,from,to\nn,0,1\n", "no member 'n'"),
        ("member,from,to\nm,0,x\n", "are seconds"),
        ("member,from,to\nm,5,1\n", "goes back"),
        ("member,from,to\nm,0,9\nm,5,12\n", "begins before"),
    ],
)
def test_bad_tables_of_churn(tmp_path, rows, said):
    path = tmp_path / "churn.csv"
    path.write_text(rows)
    with pytest.raises(InputError, match=said):
        read_churn(str(path), [member()])


# Checks -------------------------------------------------------------------------------------------

BOINC = {"deposit": 0.0, "withheld": 0, "probation": 0, "false_alarms": 0.0, "valid": 10, "quorum": 2}


def kind(name):
    return catalogue.pools().cheats[name]


@pytest.mark.parametrize(
    ("share", "overhead", "accepted"), [(1.0, 0.22, 0.0), (0.2, 0.094, 0.42), (0.05, 0.038, 0.92), (0.01, 0.033, 0.97)]
)
def test_adaptive_replication_is_that_of_the_published_simulation(share, overhead, accepted):
    """facts: 200 hosts, 10% cheaters, quorum 2, 200,000 jobs; wrong results that cheaters were given first."""
    checking = Checking(replication=True, audit=0.0, **BOINC)
    found = checked(checking, 200, [Cheaters(kind("lazy"), 0.1, share)], 200_000, 1)
    tally = found.kinds["lazy"]
    assert found.replicated == pytest.approx(overhead, rel=0.1)
    assert tally.accepted / tally.cheated == pytest.approx(accepted, abs=0.06)
    assert tally.cheated == pytest.approx(20_000 * share, rel=0.15)


@pytest.mark.parametrize("share", [1.0, 0.2, 0.05])
@pytest.mark.parametrize("name", ["lazy", "patient", "colluding", "quantised"])
def test_audits_and_stakes_make_cheating_a_loss(name, share):
    checking = Checking(replication=False, audit=0.05, **BOINC | {"deposit": 20.0, "withheld": 20, "probation": 10})
    cheaters = [Cheaters(kind(name), 0.1, share)]
    found = checked(checking, 200, cheaters, 200_000, 0)
    assert found.kinds[name].gain < 0.0
    assert found.overhead <= 0.10
    assert found.balance == 0
    if share == 0.05:
        expected, least = closed_form(checking, cheaters[0], honest_auditors(cheaters))
        assert found.kinds[name].gain == pytest.approx(expected, rel=0.15)
        assert least < checking.audit


def test_without_stakes_a_patient_cheater_gains():
    checking = Checking(replication=True, audit=0.0, **BOINC)
    tally = checked(checking, 200, [Cheaters(kind("patient"), 0.1, 0.05)], 100_000, 0).kinds["patient"]
    assert tally.gain > 0.9
    assert tally.accepted / tally.cheated > 0.85


def test_colluders_pass_comparisons_that_lone_cheaters_do_not():
    checking = Checking(replication=True, audit=0.0, **BOINC | {"valid": 10**9})
    alone, together = (
        checked(checking, 50, [Cheaters(kind(one), 0.4, 1.0)], 20_000, 0).kinds[one] for one in ("lazy", "colluding")
    )
    assert alone.accepted == 0
    assert together.cheated == 0  # they wait for a trust that nobody gives
    checking = Checking(replication=True, audit=0.0, **BOINC)
    alone, together = (
        checked(checking, 50, [Cheaters(kind(one), 0.4, 0.2)], 50_000, 0) for one in ("lazy", "colluding")
    )
    assert together.wrong > alone.wrong


def test_rejected_results_earn_nothing():
    checking = Checking(replication=True, audit=0.0, **BOINC)
    tally = checked(checking, 200, [Cheaters(kind("lazy"), 0.1, 1.0)], 50_000, 0).kinds["lazy"]
    assert tally.accepted == 0
    assert tally.credit == 0
    assert tally.lost == tally.jobs
    assert tally.gain < 0.5  # what it saved on paid jobs was not paid; copies are unpaid for all


def test_wrong_answers_are_those_delivered():
    checking = Checking(replication=True, audit=0.0, **BOINC | {"valid": 10**9})
    found = checked(checking, 50, [Cheaters(kind("quantised"), 0.3, 1.0)], 20_000, 0)
    tally = found.kinds["quantised"]
    assert tally.accepted <= found.wrong <= tally.cheated + found.copies
    assert tally.accepted < tally.cheated


def test_where_everyone_cheats_audits_find_nobody(run_json):
    cheater = [Cheaters(kind("lazy"), 1.0, 1.0)]
    checking = Checking(replication=False, audit=0.05, **BOINC | {"deposit": 20.0})
    gain, least = closed_form(checking, cheater[0], honest_auditors(cheater))
    assert (gain, least) == (1.0, 1.0)
    words = [word for one in STREET for word in ("--member", one)]
    flags = [word for name, value in FEW.items() for word in (f"--{name}", value)]
    code, document = run_json("pool", "simulate", "qwen3-32b", *words, *flags, "--cheaters", "lazy:100%")
    assert code == 0
    assert document["checks"]["wrong"] == 1.0


def test_few_members_cannot_check_each_other(run_json):
    code, document = run_json("pool", "simulate", "qwen3-0.6b", "--member", "rtx-3060@1gbe", "--days", "1")
    assert code == 0
    assert "checks" not in document


def test_false_alarms_need_two():
    checking = Checking(replication=False, audit=0.5, **BOINC | {"false_alarms": 0.01, "deposit": 5.0, "withheld": 5})
    found = checked(checking, 100, [], 100_000, 0)
    assert found.wrong == 0
    assert found.kinds["honest"].found <= 20
    assert found.balance == 0


def test_ledgers_balance_under_every_check():
    for replication, audit in itertools.product((False, True), (0.0, 0.1)):
        checking = Checking(
            replication=replication, audit=audit, **BOINC | {"deposit": 3.0, "withheld": 7, "probation": 4}
        )
        found = checked(
            checking, 30, [Cheaters(kind("lazy"), 0.2, 0.5), Cheaters(kind("quantised"), 0.1, 1.0)], 5_000, 2
        )
        assert found.balance == 0
        assert sum(one.jobs for one in found.kinds.values()) == 5_000


# Bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lasy:10%", "lazy"),
        ("lazy", "which share"),
        ("lazy:60%,patient:60%", "more than all"),
        ("lazy:10%,lazy:20%", "twice"),
    ],
)
def test_bad_cheaters(text, said):
    with pytest.raises(InputError, match=said):
        cheaters_of(text)


@pytest.mark.parametrize(
    "more",
    [
        {"online": "0%"},
        {"pattern": "mornings"},
        {"check": "oracle"},
        {"check": "replication:50%"},
        {"jobs": "2000000000"},
        {"days": "0"},
        {"session": "1s"},
        {"rate": "9000000req/h"},
    ],
)
def test_bad_circumstances(more):
    with pytest.raises(InputError):
        simulated(**more)


def test_the_document(run_json):
    words = [word for one in STREET for word in ("--member", one)]
    flags = [word for name, value in FEW.items() for word in (f"--{name}", value)]
    code, document = run_json("pool", "simulate", "qwen3-32b", *words, *flags)
    assert code == 0
    found = document["simulation"]
    assert found["served"] > 0.5
    assert document["checks"]["balance"] == 0
    assert PoolSimulateInputs.of(document["inputs"]).rate == "20req/h"


def test_hours_that_passed_end_with_the_last():
    assert [_hours(3600.0 * now, 3600.0 * 48) for now in (0.0, 12.2, 48.0, 60.0)] == [
        (0, 48),
        (12, 48),
        (48, 48),
        (48, 48),
    ]


def test_answers_of_one_token_have_no_time_between_tokens():
    asked = Requests(
        arrivals=np.array([0.0, 1.0, 2.0, 3.0]), inputs=np.array([8, 8, 8, 8]), outputs=np.array([1, 5, 5, 2])
    )
    ends = np.array([2.0, 5.0, -1.0, 5.25])  # the third is not served
    outcome = SimpleNamespace(
        admitted=np.array([0.5, 1.5, -1.0, 3.5]), first=np.array([2.0, 3.0, -1.0, 5.0]), last=ends
    )
    found = _times(asked, outcome)
    assert found["tpot"].tolist() == [0.5, 0.25]
    assert found["ttft"].tolist() == [2.0, 2.0, 2.0]
    assert (found["e2e"].tolist(), found["waiting"].tolist()) == ([2.0, 4.0, 2.25], [0.5, 0.5, 0.5])


def test_pictures_begin_with_the_first_moment():
    from roofplan.present.charts.pool import of_simulation

    there, *_ = of_simulation(simulated(days="2"))
    days = [row["day"] for row in there["data"]["values"]]
    assert days[0] == 0.0
    assert np.diff(days) == pytest.approx(1.0 / 96.0)


def test_where_all_others_are_on_probation_the_one_that_is_nearest_its_end_is_drawn():
    checking = Checking(
        replication=False, audit=0.0, deposit=0.0, withheld=0, probation=5, false_alarms=0.0, valid=10, quorum=2
    )
    pool = _Pool(checking, 5, (), Checked(checking, 1, kinds={HONEST: Tally()}), lambda: 0.0)
    for member, left in zip(pool.members, (0, 3, 2, 5, 4), strict=True):
        member.probation = left
    first, _, nearest, *_ = pool.members
    assert pool.drawn() is first
    assert pool.drawn(first) is nearest
    pool.dice = lambda: 0.9
    pool.members[4].probation = 0
    assert pool.drawn() is pool.members[4]


def test_what_is_left_at_the_end_was_computed_and_not_served():
    running = SimpleNamespace(
        finished=1, begun=4, replica=SimpleNamespace(times=SimpleNamespace(last=[9.0, 8.0, -1.0, -1.0]))
    )
    counted = []
    service = SimpleNamespace(
        states=[SimpleNamespace(running=running, since=2.0, spent=1.0), SimpleNamespace(running=None, spent=5.0)],
        within=lambda at: at,
        account=lambda _, place: counted.append(place),
        out=SimpleNamespace(),
        horizon=10.0,
        parts=[],
        computed=[],
    )
    Service.close(service, 10.0)
    assert counted == [2, 3]
    assert service.out.up == [0.9, 0.5]


def test_members_whose_stay_ends_leave_their_places_to_others():
    done = []
    states = [
        SimpleNamespace(holders=[3, OUT, 5], lacks=True),
        SimpleNamespace(holders=[4], lacks=False),
        SimpleNamespace(holders=[OUT], lacks=True),
    ]
    service = SimpleNamespace(
        states=states,
        busy={3, 4, 5},
        stay=lambda member, now: (now + 1.0 if member in {5, OUT} else now - 1.0, None),
        fall=lambda k, now: done.append(("fall", k, now)),
        fill=lambda k, now: done.append(("fill", k, now)),
    )
    Service.leave(service, 0, 7.0)
    assert states[0].holders == [3, OUT, OUT]
    assert service.busy == {3, 4}
    assert done == [("fall", 0, 7.0), ("fill", 0, 7.0), ("fill", 2, 7.0)]
    states[0].lacks = False
    done.clear()
    Service.leave(service, 0, 7.0)
    assert done == [("fall", 0, 7.0), ("fill", 0, 7.0)]


def test_what_a_pipeline_begun_and_ended_is_written_once():
    nan = -1.0
    times = SimpleNamespace(admitted=[0.0, 1.0, 2.0], first=[0.5, 1.5, nan], last=[3.0, nan, nan])
    out = SimpleNamespace(admitted=[nan, nan, 0.25, nan], first=[nan] * 4, last=[nan] * 4)
    done = []
    service = SimpleNamespace(
        out=out, account=lambda _, place: done.append(place), credit=lambda i: done.append(f"credit {i}")
    )
    running = SimpleNamespace(finished=0, begun=3, ids=[0, 1, 2], replica=SimpleNamespace(times=times))
    Service.harvest(service, running)
    assert out.admitted == [0.0, 1.0, 0.25, nan]
    assert out.first == [0.5, 1.5, nan, nan]
    assert out.last == [3.0, nan, nan, nan]
    assert (done, running.finished) == ([0, "credit 0"], 1)
    times.last[1] = 0.0
    Service.harvest(service, running)
    assert (out.last[1], done[2:], running.finished) == (0.0, [1, "credit 1"], 2)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_some_wrong_results_look_right_to_comparisons(share):
    """Always the same ones: a result that two members have is seen alike by both."""
    cheat = SimpleNamespace(value={"compared": share}.get)
    member, pool = SimpleNamespace(cheat=cheat), SimpleNamespace()
    seen = [_Pool.seen(pool, member, label) for label in range(1, 4001)]
    assert set(seen) <= {AGREED, *range(1, 4001)}
    found = [label for label, one in enumerate(seen, 1) if one != AGREED]
    assert all(seen[label - 1] == label for label in found)
    assert len(found) / 4000 == pytest.approx(share, abs=0.03)
    assert [_Pool.seen(pool, member, label) for label in (AGREED, -2)] == [AGREED, -2]
    assert _Pool.seen(pool, SimpleNamespace(cheat=None), 7) == 7


def test_stays_and_chances_of_members():
    service = SimpleNamespace(
        starts=[[0.0, 10.0], [4.0, 12.0, 30.0], [2.0, 20.0]], ends=[[5.0, 15.0], [6.0, 20.0], [9.0]], busy={2}
    )
    assert [Service.stay(service, 0, now) for now in (0.0, 4.9, 5.0, 12.0, 15.0, 40.0)] == [
        (0.0, 5.0),
        (0.0, 5.0),
        (10.0, 15.0),
        (10.0, 15.0),
        (10.0, 15.0),
        (10.0, 15.0),
    ]
    state = SimpleNamespace(able=[[1, 2], [2]])
    assert [Service.next_chance(service, state, now) for now in (0.0, 4.0, 12.0)] == [4.0, 12.0, 30.0]
    service.busy = {1, 2}
    assert Service.next_chance(service, state, 0.0) == float("inf")
