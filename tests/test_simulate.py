"""``roofplan simulate``: what it answers, what it refuses, and that its parts agree with each other."""

import csv
import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import roofplan as rp
from roofplan.errors import InputError
from roofplan.evidence.beside import planned_in
from roofplan.present.answers.load import csv_rows
from roofplan.present.charts.load import under_load
from roofplan.serving.plan import UnderLoad
from roofplan.simulation import ranking
from roofplan.simulation.ranking import _worst
from roofplan.simulation.report import sure_under_load

ASKED = {"on": "h100-sxm:8", "strategy": "tp=4,dp=2", "rate": "4req/s", "requests": 1500}
LIMITS = "ttft=500ms@p99,tpot=50ms@p95"


@pytest.fixture(scope="module")
def felt():
    return rp.simulate("llama-3.1-70b", **ASKED, slo=LIMITS)


def test_an_idle_system_answers_as_the_plan_says():
    """One request at a time, far apart: no queue, and the times of the laws."""
    seen = rp.simulate("llama-3.1-70b", on="h100-sxm:8", strategy="tp=8", rate="0.01req/s", requests=50).simulation
    plan = rp.plan_serving("llama-3.1-70b", on="h100-sxm:8", strategy="tp=8", concurrency=1).plans[0]
    front = float(plan.rates.front + plan.rates.delay)
    assert seen.figures["tpot"].summary.mean == pytest.approx(plan.metrics["tpot"].value, rel=0.01)
    assert seen.figures["ttft"].summary.mean == pytest.approx(plan.metrics["ttft"].value + front, rel=0.01)
    assert seen.growth == 0.0


@pytest.mark.parametrize(
    ("strategy", "clients"),
    [("tp=8", 8), ("tp=8", 64), ("tp=4,dp=2", 64), ("tp=4,pp=2", 64), ("pp=8", 3), ("pp=8", 64)],
)
@pytest.mark.parametrize("engine", ["vllm-0.33", "sglang-0.5.23"])
def test_a_closed_loop_is_near_the_steady_state(strategy, clients, engine):
    given = {"on": "h100-sxm:8", "engine": engine, "strategy": strategy}
    seen = rp.simulate("llama-3.1-70b", **given, clients=clients, lengths="lognormal:0.3", requests=15 * clients)
    plan = rp.plan_serving("llama-3.1-70b", **given, concurrency=clients).plans[0]
    rate = plan.metrics["output_tokens_per_second"].value
    assert rate == pytest.approx(seen.simulation.output_tokens_per_second, rel=0.12)
    assert plan.metrics["tpot"].value == pytest.approx(seen.simulation.figures["tpot"].summary.mean, rel=0.05)


def test_more_load_makes_waits_longer_until_the_queue_grows():
    ends = []
    for rate in ("2req/s", "10req/s", "18req/s", "60req/s"):
        seen = rp.simulate("llama-3.1-70b", **(ASKED | {"rate": rate})).simulation
        ends.append(seen.figures["e2e"].summary.mean)
    assert ends == sorted(ends)
    assert seen.saturated
    assert 20.0 < seen.growth < 60.0


def test_intervals_hold_both_causes(felt):
    for one in felt.simulation.figures.values():
        low, high = one.sampling
        assert one.speeds[0] <= one.summary.mean <= one.speeds[1]
        assert one.metric.low <= min(low, one.speeds[0])
        assert one.metric.high >= max(high, one.speeds[1])
        quantiles = list(one.summary.quantiles.values())
        assert quantiles == sorted(quantiles)


def test_the_highest_rate_keeps_the_limits_and_a_higher_one_does_not(felt):
    found = felt.found
    assert found.rate > 4.0
    assert found.missed / found.rate < 1.011
    assert all(one.holds for one in found.at.limits)
    low, high = found.ends
    assert low < 0.9 * found.rate
    assert high > 1.1 * found.rate
    rates = [rate for rate, _ in found.tried]
    assert rates == sorted(rates)
    asked = ASKED | {"rate": None, "requests": 1500}
    sought = rp.simulate("llama-3.1-70b", **asked, slo=LIMITS, find="rate")
    assert sought.kept
    assert sought.rate == pytest.approx(sought.found.rate)
    assert all(one.holds for one in sought.simulation.limits)


def test_a_limit_that_an_empty_system_misses(run):
    code, out, _ = run(
        "simulate", "llama-3.1-70b", "--on", "h100-sxm:8", "--find", "rate", "--slo", "ttft=1ms", "--requests", "200"
    )
    assert code == 1
    tried = re.search(r"no rate: even at (\S+) req/s", out)
    assert tried
    said = re.search(r"Poisson (\S+) req", out)
    assert float(said[1]) == pytest.approx(float(tried[1]), rel=0.05)


def test_a_missed_limit_ends_with_1(run):
    words = ["simulate", "llama-3.1-70b", "--on", "h100-sxm:8", "--rate", "4req/s", "--requests", "300", "--slo"]
    assert run(*words, "tpot=5ms@p50")[0] == 1
    assert run(*words, "tpot=500ms@p50")[0] == 0


def test_the_document_and_the_table_agree(run_json, tmp_path):
    path = tmp_path / "requests.csv"
    words = [
        "simulate",
        "llama-3.1-8b",
        "--on",
        "l40s:2",
        "--rate",
        "3req/s",
        "--requests",
        "400",
        "--lengths",
        "lognormal:0.7",
    ]
    _, document = run_json(*words, "--slo", "ttft=1s", "--seed", "7", "--csv", str(path))
    seen, rows = document["simulation"], list(csv.DictReader(path.read_text().splitlines()))
    assert seen["requests"] == seen["completed"] == len(rows) == 400
    for name in ("ttft", "e2e", "waiting", "tpot"):
        values = [float(row[name]) for row in rows if row[name]]
        assert seen[name]["mean"] == pytest.approx(np.mean(values))
        assert seen[name]["p99"] == pytest.approx(np.quantile(values, 0.99))
    good = np.mean([float(row["ttft"]) <= 1.0 for row in rows])
    assert seen["goodput"]["share"] == pytest.approx(good)
    assert sum(one["requests"] for one in seen["replicas"]) == 400
    _, again = run_json(*shlex.split(document["reproduce"])[1:])
    assert again["simulation"]["e2e"] == seen["e2e"]
    _, other = run_json(*words, "--slo", "ttft=1s", "--seed", "8")
    assert other["simulation"]["e2e"]["mean"] != seen["e2e"]["mean"]


def test_traces_are_replayed(tmp_path, run_json):
    path = tmp_path / "trace.csv"
    path.write_text("arrival,input,output\n" + "".join(f"{i * 0.5},{100 + i},{20 + i % 7}\n" for i in range(100)))
    words = ["simulate", "llama-3.1-8b", "--on", "l40s:1", "--trace", str(path)]
    seen = run_json(*words)[1]["simulation"]
    assert seen["requests"] == 100
    quick = run_json(*words, "--rate", "20req/s")[1]["simulation"]
    assert quick["simulated_seconds"] < 0.2 * seen["simulated_seconds"]
    assert run_json(*words, "--duration", "10s")[1]["simulation"]["requests"] == 21
    demands = [
        rp.simulate("llama-3.1-8b", on=["l40s:1"], trace=str(path), rate=rate).result.result.asked.constraints.rate
        for rate in ("20req/s", None)
    ]
    assert demands == [20.0, None]
    long = tmp_path / "long.csv"
    long.write_text("arrival,input,output\n0,100,10\n1,200000,10\n")
    _, refused = run_json("simulate", "llama-3.1-8b", "--on", "l40s:1", "--trace", str(long))
    assert "131,072 positions" in refused["error"]["message"]


def test_shared_prefixes_are_found_in_the_cache(tmp_path, run_json):
    path = tmp_path / "mooncake.csv"
    rows = [f"{i * 500},2048,50,0-2 {i + 10}" for i in range(60)]
    path.write_text("timestamp_ms,input_length,output_length,hash_ids\n" + "\n".join(rows) + "\n")
    seen = run_json("simulate", "llama-3.1-8b", "--on", "l40s:1", "--trace", str(path))[1]["simulation"]
    assert seen["prefix_hits"] == pytest.approx(0.75 * 59 / 60, abs=0.01)
    _, share = run_json(
        "simulate", "llama-3.1-8b", "--on", "l40s:1", "--rate", "1req/s", "--prefix-hit", "50%", "--requests", "50"
    )
    assert share["simulation"]["prefix_hits"] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "which load"),
        ({"rate": "4req/s", "clients": 3}, "exclude each other"),
        ({"burst": 10, "trace": "x.csv"}, "exclude each other"),
        ({"find": "rate"}, "keeps which limits"),
        ({"find": "cost", "slo": "ttft=1s"}, "--find"),
        ({"clients": 4, "find": "rate", "slo": "ttft=1s"}, "exclude each other"),
        ({"rate": "4req/s", "requests": 10, "duration": "1h"}, "exclude each other"),
        ({"clients": 4, "duration": "1h"}, "only a rate and a trace"),
        ({"rate": "4req/s", "requests": 10, "warmup": 10}, "leaves none"),
        ({"rate": "4req/s", "seed": "dice"}, "--seed"),
        ({"rate": "4req/s", "route": "nearest"}, "--route"),
        ({"rate": "4req/s", "requests": 100_000_000}, "memory holds"),
        ({"clients": 4, "burstiness": 2}, "does not read it"),
        ({"burst": 4, "requests": 5}, "does not read it"),
        ({"trace": "x.csv", "input": 10}, "does not read it"),
        ({"clients": 40, "requests": 5}, "who each send one"),
    ],
)
def test_loads_that_contradict_themselves_are_refused(asked, said):
    with pytest.raises(InputError, match=said):
        rp.simulate("llama-3.1-8b", on="l40s:1", **asked)


@pytest.mark.parametrize(
    ("asked", "last"),
    [
        ({"rate": "4req/s", "clients": 3}, "--rate"),
        ({"burst": 10, "clients": 3}, "--burst"),
        ({"clients": 4, "find": "rate", "slo": "ttft=1s"}, "--find"),
    ],
)
def test_of_loads_that_exclude_each_other_the_last_is_named(asked, last):
    with pytest.raises(InputError) as refused:
        rp.simulate("llama-3.1-8b", on="l40s:1", **asked)
    assert refused.value.argument == last


def test_a_machine_is_needed():
    with pytest.raises(InputError, match="--on is missing"):
        rp.simulate("llama-3.1-8b", rate="1req/s")


def test_pictures_hold_every_part(felt):
    specs = under_load(felt)
    titles = " ".join(json.dumps(one.get("title", "")) for one in specs)
    for part in ("against rate", "TTFT", "running and waiting", "cache over time", "first 50 requests"):
        assert part in titles


def test_costs_and_power_are_of_this_load(felt):
    metrics, seen = felt.metrics, felt.simulation
    per_hour = metrics["cost_per_million_output_tokens"].value * seen.output_tokens_per_second * 3600 / 1e6
    assert per_hour == pytest.approx(felt.plan.cost.total)
    assert metrics["energy_per_output_token"].value == pytest.approx(
        metrics["power"].value / seen.output_tokens_per_second
    )


RUNS = Path(__file__).parent.parent / "docs" / "traces"


@pytest.mark.parametrize(
    ("name", "model", "on", "seats"),
    [
        ("rtx4090_llama-3.1-8b", "llama-3.1-8b", "rtx-4090:1", 256),
        ("rtxpro6000_llama-3.1-8b", "llama-3.1-8b", "rtx-pro-6000:1", 128),
        ("rtxpro6000_qwen3-32b_tp2", "qwen3-32b", "rtx-pro-6000:2", 128),
    ],
)
def test_logged_requests_lie_inside_the_intervals(name, model, on, seats):
    """No constant is fitted to these runs, in which requests queue for a minute."""
    path = RUNS / f"{name}.csv"
    rows = list(csv.DictReader(path.read_text().splitlines()))
    settings = f"max_num_seqs={seats},max_num_batched_tokens=2048,gpu_memory_utilization=0.9"
    seen = rp.simulate(model, on=on, trace=str(path), engine="vllm-0.20", set=settings).simulation
    first = np.array([float(row["first_token_s"]) - float(row["queued_s"]) for row in rows])
    whole = np.array([float(row["last_token_s"]) - float(row["queued_s"]) for row in rows])
    tokens = np.array([int(row["output_tokens"]) for row in rows])
    measured = {"ttft": first.mean(), "e2e": whole.mean(), "tpot": ((whole - first) / np.maximum(1, tokens - 1)).mean()}
    for figure, value in measured.items():
        metric = seen.figures[figure].metric
        assert metric.low < value < metric.high
        assert metric.value == pytest.approx(value, rel=0.4)


def test_plans_that_keep_limits_at_a_rate_stand_first():
    asked = {"on": "h100-sxm:8", "rate": "4req/s", "slo": "ttft=220ms@p99"}
    found = rp.plan_serving("llama-3.1-70b", **asked)
    holds = [plan.under_load.holds for plan in found.plans if plan.under_load is not None]
    assert holds == sorted(holds, reverse=True)
    assert holds[0]
    assert not holds[-1]
    seats = re.search(r"--max-num-seqs (\d+)", str(found.emit()))[1]  # by the seats that the plan launches with
    first = found.plans[0]
    alone = rp.simulate("llama-3.1-70b", **asked, strategy=first.label, requests=2000, set=f"max_num_seqs={seats}")
    (limit,) = first.under_load.limits
    assert limit[1] == pytest.approx(alone.simulation.limits[0].time, rel=0.1)


def test_a_plan_that_steady_states_put_first_and_users_would_not(run_json):
    words = ["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--rate", "8req/s", "--slo", "ttft=150ms@p99"]
    code, document = run_json(*words)
    assert code == 1
    assert {"slo", "reordered"} <= {one["code"] for one in document["warnings"]}
    first = document["plans"][0]
    assert first["under_load"]["place"] > 1
    assert first["points"]
    assert not first["under_load"]["holds"]


def test_limits_need_a_rate():
    with pytest.raises(InputError, match="at which rate"):
        rp.plan_serving("llama-3.1-70b", on="h100-sxm:8", slo="ttft=1s")


def test_what_would_help_was_tried():
    asked = {"on": "h100-sxm:8", "rate": "8req/s", "slo": "tpot=50ms@p95", "requests": 1000}
    found = rp.simulate("llama-3.1-70b", **asked, strategy="tp=8")
    assert [one.after for one in found.helps] == sorted(one.after for one in found.helps)
    by_flag = {one.argument: one for one in found.helps}
    assert {"--precision", "--prefix-hit"} <= by_flag.keys()
    one = by_flag["--precision"]
    assert one.figure == "tpot p95"
    assert one.before == pytest.approx(found.simulation.limits[0].time)
    changed = rp.simulate("llama-3.1-70b", **asked, strategy="tp=8", precision=one.needed)
    assert changed.simulation.limits[0].time == pytest.approx(one.after, rel=0.02)


def test_a_load_too_short_for_its_limits_ends_the_search():
    found = rp.simulate("llama-3.1-8b", on="h100-sxm:1", rate="2req/s", requests=10, slo="e2e=1h").found
    assert found.rate >= 2.0
    assert len(found.tried) < 40


@pytest.mark.parametrize(("on", "strategy"), [("h100-sxm:8", "tp=2,pp=4"), ("rtx-4090:8x1@10gbe", "pp=8")])
def test_an_idle_pipeline_answers_as_the_plan_says(on, strategy):
    seen = rp.simulate("llama-3.1-70b", on=on, strategy=strategy, rate="0.001req/s", requests=20, output=64).simulation
    plan = rp.plan_serving("llama-3.1-70b", on=on, strategy=strategy, concurrency=1, output=64).plans[0]
    front = float(plan.rates.front + plan.rates.delay)
    assert seen.figures["tpot"].summary.mean == pytest.approx(plan.metrics["tpot"].value, rel=0.02)
    assert seen.figures["ttft"].summary.mean == pytest.approx(plan.metrics["ttft"].value + front, rel=0.1)


def test_limits_and_goodput_have_intervals(felt):
    seen = felt.simulation
    for one in seen.limits:
        assert 0.0 < one.low < one.time < one.high
        assert one.holds == (one.time <= one.objective.limit)
    low, high = seen.good_ends
    assert low <= seen.good <= high


@pytest.mark.slow
def test_a_rate_is_sought_over_layouts():
    """TP 4 twice gives more tokens in its steady state, TP 8 more requests inside a tight limit on tokens."""
    asked = {"input": "1000", "output": "300", "slo": "ttft=1s@p99,tpot=25ms@p95", "find": "rate", "requests": 1000}
    found = rp.simulate("llama-3.1-70b", on="h100-sxm:8", **asked)
    pinned = rp.simulate("llama-3.1-70b", on="h100-sxm:8", strategy="tp=4,dp=2", **asked)
    assert found.plan.label == "tp8"
    assert found.rate > 1.1 * pinned.rate
    (said,) = (text for code, text in found.result.result.warnings if code == "reordered")
    assert said.startswith("by its steady state tp4 dp2 stood first")
    assert not [code for code, _ in pinned.result.result.warnings if code == "reordered"]
    none = rp.simulate("llama-3.1-70b", on="h100-sxm:8", **(asked | {"slo": "ttft=1ms"}))
    assert none.found.rate == 0.0
    assert none.plan.label == "tp4 dp2"


@pytest.mark.slow
def test_a_rate_is_sought_over_machines_by_what_it_costs():
    asked = {"slo": "ttft=1s@p99,tpot=30ms@p95", "find": "rate", "requests": 500}
    found = rp.simulate("llama-3.1-8b", on=["rtx-3090:1", "h100-sxm:1"], **asked)
    assert found.plan.machine.text == "h100-sxm:1"
    (said,) = (text for code, text in found.result.result.warnings if code == "reordered")
    assert "one device on rtx-3090:1 stood first" in said
    assert "one device on h100-sxm:1 up to" in said


def test_a_flag_of_no_value_stands_in_the_command_that_reproduces(run_json):
    words = ("simulate", "llama-3.1-8b", "--on", "h100-sxm:1", "--rate", "1rps", "--requests", "100")
    for more in ((), ("--datacenter",)):
        _, document = run_json(*words, *more)
        assert ("--datacenter" in document["reproduce"].split()) is bool(more)


def test_a_run_too_short_for_its_queue_says_so(run):
    words = (
        "simulate",
        "llama-3.1-8b",
        "--on",
        "h100-sxm:1",
        "--slo",
        "ttft=500ms@p99",
        "--find",
        "rate",
        "--requests",
    )
    (_, short, _), (_, long, _) = run(*words, "300"), run(*words, "10000")
    assert "too short for its queue to show" in " ".join(short.split())
    assert "too short" not in long


@pytest.mark.parametrize(("output", "like"), [("1", "ttft"), ("2", "tpot")])
def test_an_answer_of_one_token_ends_as_surely_as_it_begins(output, like):
    plan = rp.plan_serving("llama-3.1-8b", "h100-sxm:1", input="512", output=output, concurrency="4").plans[0]
    found = sure_under_load(plan)
    assert found["e2e"] == found[like]
    assert found["ttft"].half != found["tpot"].half


def test_the_limit_that_is_missed_by_most_is_named():
    felt = UnderLoad(1, 0.5, (("TTFT p90", 3.0, 2.0), ("TPOT p90", 0.06, 0.05)), 0.0)
    assert _worst(SimpleNamespace(under_load=felt)) == "TTFT p90 by 50%"
    assert "queue grows" in _worst(SimpleNamespace(under_load=felt._replace(growth=0.1)))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"lengths": "lognormal:1", "context": "1300"},
            r"--context: the longest request has [\d,]+ tokens; give at least",
        ),
        ({"lengths": "lognormal:3"}, r"--lengths: the longest request has [\d,]+ tokens, beyond the 131,072 positions"),
        ({"input": "200k"}, r"--input: the longest request has 205,056 tokens, beyond the 131,072 positions"),
    ],
)
def test_requests_longer_than_may_be_are_refused(more, said):
    with pytest.raises(InputError, match=said):
        rp.simulate("llama-3.1-8b", ["h100-sxm:1"], rate="5req/s", requests="2000", **more)


def plan_of(name, cost):
    return SimpleNamespace(
        id=name,
        label=name,
        machine=SimpleNamespace(text=f"{name}:1"),
        cost=None if cost is None else SimpleNamespace(total=cost),
    )


@pytest.mark.parametrize(
    ("best", "rates", "first"),
    [
        ("cost", {"a": 10.0, "b": 2.0, "c": 3.0}, "c"),
        ("throughput", {"a": 10.0, "b": 2.0, "c": 3.0}, "a"),
        ("throughput", {"a": 10.0, "b": 10.9, "c": 3.0}, "a"),
        ("throughput", {"a": 10.0, "b": 11.1, "c": 3.0}, "b"),
        ("cost", {"a": 10.0, "b": 0.0, "c": 0.0}, "a"),
    ],
)
def test_machines_compete_by_their_rate_over_their_cost(best, rates, first, monkeypatch):
    """The first has no price, so that it stands behind any that has one where cost is asked for; a tenth more is no advantage."""
    plans = [plan_of("a", None), plan_of("b", 4.0), plan_of("c", 5.0)]
    found = SimpleNamespace(plans=plans, asked=SimpleNamespace(best=best))
    reasons = []
    monkeypatch.setattr(ranking, "_brief", lambda asked: asked)
    monkeypatch.setattr(ranking, "_layouts", lambda *_: [])
    monkeypatch.setattr(ranking, "_highest", lambda plan, *_: rates[plan.id])
    monkeypatch.setattr(ranking, "_put_first", lambda _, reason: reasons.append(reason))
    ranking.fastest_first(found, SimpleNamespace(count=20), "")
    assert found.plans[0].id == first
    assert sorted(plan.id for plan in found.plans) == ["a", "b", "c"]
    assert len(reasons) == (first != "a")


def test_a_plan_that_cannot_hold_the_requests_keeps_limits_at_no_rate(monkeypatch):
    def refused(*_):
        raise InputError("no room", argument="--input")

    for name in ("at_rates", "first_rate"):
        monkeypatch.setattr(ranking, name, lambda *_: None)
    monkeypatch.setattr(ranking, "highest_rate", refused)
    assert ranking._highest(None, None, "") == 0.0


@pytest.mark.parametrize(
    "document",
    [
        {"command": "train", "inputs": {}, "plans": [{"strategy": {"tp": 1}}]},
        {"command": "serve", "inputs": {}, "plans": [{}]},
        {"inputs": {}, "plans": [{"strategy": {"tp": 1}}]},
        [],
        "text",
    ],
)
def test_a_file_that_holds_no_plan_is_refused(document, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="holds no plan"):
        planned_in(str(path))


def test_a_row_of_one_token_has_no_time_between_tokens():
    rows = csv_rows(rp.simulate("llama-3.1-8b", on="h100-sxm:1", rate="1req/s", output=1, requests=20))
    assert len(rows) == 20
    assert {row["output"] for row in rows} == {1}
    assert {row["tpot"] for row in rows} == {""}
