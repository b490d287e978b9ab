"""Which plan stands first, what binds it, and what stands beside it."""

import itertools
import re
import shlex
from dataclasses import replace
from types import SimpleNamespace

import pytest
from conftest import FIT

from roofplan import catalogue
from roofplan.api import plan_serving, plan_training
from roofplan.catalogue.machines import machine
from roofplan.errors import InputError, NoPlan, RoofplanError
from roofplan.evidence.nearest import nearest_measured
from roofplan.evidence.predictions import validated
from roofplan.exports.serving import launch
from roofplan.hf.find import read_model
from roofplan.operations.training import forward
from roofplan.present.screens.plans import beside_lines, link_text
from roofplan.records import units
from roofplan.records.strategy import Strategy
from roofplan.records.ties import TIE
from roofplan.records.workload import Workload
from roofplan.serving import improvements, misses, objective
from roofplan.serving.request import lengths_of
from roofplan.training.request import round_counts


def first(*args, **asked):
    return plan_serving(*args, **asked).plans[0]


def test_among_plans_that_cost_the_same_the_quickest_stands_first():
    result = plan_serving("llama-3.1-70b", ["h100-sxm:8"], rate="4req/s")
    costs = [objective(plan, "cost") for plan in result.plans]
    assert max(costs) == pytest.approx(min(costs), rel=1e-6)
    assert result.plans[0].label == "tp8"
    assert [plan.pareto for plan in result.plans] == [True, *[False] * (len(costs) - 1)]
    assert all(plan.tied and plan.within_interval for plan in result.plans[1:])
    paces = [plan.pace.value for plan in result.plans]
    assert paces == sorted(paces)


@pytest.mark.parametrize("best", ["cost", "throughput", "latency", "energy"])
@pytest.mark.slow
def test_no_plan_stands_above_one_that_is_better_by_more_than_a_tie(best):
    plans = plan_serving("qwen3-30b-a3b", ["h100-sxm:8"], tpot="50ms", best=best, engine="any").plans
    values = [objective(plan, best) for plan in plans]
    for place, value in enumerate(values):
        left = min(values[place:])
        assert value <= left + TIE * abs(left)
    lowest = min(values)
    assert [plan.tied for plan in plans[1:]] == [value <= lowest + TIE * abs(lowest) for value in values[1:]]
    assert plans[0].metrics["tpot"].value <= 0.05 * (1 + 1e-9)
    assert not plans[0].tied
    assert not plans[0].within_interval


def test_fewest_devices_then_the_cheapest():
    plans = plan_serving("llama-3.1-8b", ["h100-sxm", "l40s"], best="devices", tpot="50ms").plans
    counts = [plan.machine.count for plan in plans]
    assert counts == sorted(counts)
    ones = [objective(plan, "cost") for plan in plans if plan.machine.count == 1]
    assert ones[0] <= min(ones) * (1 + TIE)


def test_of_equal_counts_the_cheapest_comes_before_the_fastest():
    plans = plan_serving("llama-3.1-8b", ["h100-sxm:1", "rtx-4090:1"], best="devices", concurrency=1).plans
    assert [plan.machine.device.id for plan in plans] == ["rtx-4090", "h100-sxm"]
    assert plans[1].values["tpot"] < plans[0].values["tpot"]


def test_no_replica_stands_without_a_user_and_a_smaller_machine_is_named():
    result = plan_serving("llama-3.1-8b", ["rtx-4090:8x1@10gbe"], concurrency=1)
    assert {int(plan.strategy.dp) for plan in result.plans} == {1}
    assert {plan.idle_devices for plan in result.plans} == {0}
    assert (result.smaller.machine.text, result.smaller.machine.count) == ("rtx-4090:1", 1)
    assert result.smaller.users == 1


def test_pinned_replicas_without_users_are_counted():
    plan = first("llama-3.1-8b", ["rtx-4090:8x1@10gbe"], concurrency=1, strategy="tp=2,dp=4")
    assert plan.idle_devices == 6


def test_idle_devices_are_named_and_priced(run):
    words = "serve llama-3.1-8b --on rtx-4090:8x1@10gbe --concurrency 1 --strategy tp=2,dp=4"
    _, out, _ = run(*words.split())
    (line,) = [line for line in out.splitlines() if line.startswith("  idle")]
    assert line.split(maxsplit=1)[1] == "6 of 8 devices: replicas without a user, 2.97 of 3.96 USD/h"


def test_the_smaller_machine_is_a_part_of_a_host_or_fewer_hosts_and_meets_the_limits():
    result = plan_serving("llama-3.1-70b", ["h100-sxm:2x8"], concurrency=10, tpot="15ms")
    assert result.smaller.machine.text == "h100-sxm:8"
    assert result.smaller.pace.value <= 0.015
    assert plan_serving("llama-3.1-70b", ["h100-sxm:8"], tpot="50ms").smaller is None


def test_a_strategy_of_ones_own_is_told_how_it_ranks():
    asked = {"concurrency": 10}
    free = plan_serving("llama-3.1-70b", ["h100-sxm:8"], **asked)
    assert free.standing is None
    best = free.plans[0]
    own = plan_serving("llama-3.1-70b", ["h100-sxm:8"], strategy="tp=4,pp=2", **asked)
    found = own.standing
    labels = [plan.label for plan in free.plans]
    assert (found.best.label, found.place, found.of) == (best.label, labels.index("tp4 pp2") + 1, len(labels))
    assert found.ratio == pytest.approx(objective(own.plans[0], "cost") / objective(best, "cost"))
    same = plan_serving("llama-3.1-70b", ["h100-sxm:8"], strategy="tp=8", **asked).standing
    assert (same.place, same.ratio, same.within_interval) == (1, 1.0, False)


def test_the_screen_says_how_a_pinned_plan_ranks_and_what_a_smaller_machine_spares():
    result = plan_serving("llama-3.1-70b", ["h100-sxm:8"], strategy="tp=4,pp=2", concurrency=10)
    plan, behind = result.plans[0], result.standing.ratio
    assert f"{behind - 1:.1%} behind" in " ".join(beside_lines(result, plan))
    level = replace(result, standing=replace(result.standing, ratio=1.0, place=2))
    assert "2 of " in " ".join(beside_lines(level, plan))
    assert "the same figure" in " ".join(beside_lines(level, plan))
    best = replace(result, standing=replace(result.standing, place=1))
    assert beside_lines(best, plan)[0].split("rank ")[1].strip() == f"the best of {best.standing.of}"
    spared = plan_serving("llama-3.1-70b", ["h100-sxm:2x8"], concurrency=10, tpot="15ms")
    assert " USD/h" in " ".join(beside_lines(spared, spared.plans[0]))
    assert " USD/h" not in " ".join(beside_lines(spared, replace(spared.plans[0], cost=None)))


@pytest.mark.parametrize("best", ["throughput", "latency"])
def test_a_pinned_plan_that_is_worse_has_a_ratio_above_one(best):
    own = plan_serving("llama-3.1-70b", ["h100-sxm:8"], strategy="pp=8", concurrency=10, best=best).standing
    assert own.place > 1
    assert own.ratio > 1.0


def test_what_a_step_is_made_of_adds_up_and_counts_other_users_prompts():
    plan = first("llama-3.1-70b", ["h100-sxm:8"], tpot="50ms")
    shares = plan.causes
    assert sum(shares.values()) == pytest.approx(1.0)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    parts = {part.name: part.value / plan.prediction.tpot.value for part in plan.prediction.tpot.parts}
    assert shares["other users' prompts"] == pytest.approx(parts["prompts of others"])
    assert shares["weights"] == pytest.approx(parts["weight matmuls"])
    assert shares["KV cache"] == pytest.approx(parts["attention"])
    alone = first("llama-3.1-70b", ["h100-sxm:8"], concurrency=1)
    assert "other users' prompts" not in {name for name, share in alone.causes.items() if share > 0}


def test_products_of_a_full_batch_wait_for_arithmetic():
    plan = first("llama-3.1-8b", ["h100-sxm:1"], concurrency=500, input=16)
    assert plan.causes["compute"] > 0.1


@pytest.mark.parametrize("best", ["cost", "throughput", "latency"])
def test_improvements_are_tried_and_gain_more_than_a_tie(best):
    result = plan_serving("llama-3.1-70b", ["h100-sxm:8"], tpot="50ms", best=best)
    plan = result.plans[0]
    found = improvements(plan, result.asked, result.fit)
    assert {one.argument for one in found} & {"--precision", "--prefix-hit"}
    ratios = [one.ratio for one in found]
    assert ratios == sorted(ratios)
    assert ratios[-1] < 1 - TIE
    for one in found:
        assert one.plan.strategy == plan.strategy
        asked = {
            "tpot": "50ms",
            "best": best,
            "strategy": ",".join(f"{name}={degree}" for name, degree in plan.strategy.as_dict().items()),
        }
        asked[one.argument[2:].replace("-", "_")] = one.needed
        again = first("llama-3.1-70b", ["h100-sxm:8"], **asked)
        assert objective(again, best) == pytest.approx(objective(one.plan, best))


def test_all_engines_compete_when_asked():
    plans = plan_serving("llama-3.1-8b", ["h100-sxm:1"], tpot="50ms", engine="any").plans
    assert {plan.engine.name for plan in plans} >= {"vllm", "sglang", "tensorrt-llm"}


@pytest.mark.slow
@pytest.mark.parametrize("words", ["serve llama-3.1-405b --strategy tp=16 --on", "train llama-3.1-405b --on"])
def test_fewer_ports_are_flagged_with_what_they_cost(words, run_json):
    def warned(network):
        _, document = run_json(*words.split(), f"h100-sxm:{'16' if 'serve' in words else '512'}{network}")
        return [one["text"] for one in document["warnings"] if one["code"] == "network_ports"]

    (said,) = warned("@ib-ndrx1")
    assert not warned("@ib-ndr")
    assert 0 < int(re.search(r"takes (\d+)% less", said)[1]) < 100
    assert "write @ib-ndrx8" in said


def test_the_nearest_measured_run_is_of_the_same_configuration_whatever_it_is_called(tmp_path):
    own = tmp_path / "config.json"
    own.write_text(catalogue.model_table("llama-3.1-70b")["config"])
    asked = {"concurrency": 96, "input": 250, "output": 357}
    mine, known = (nearest_measured(first(name, ["h100-sxm:4"], **asked)) for name in (own, "llama-3.3-70b"))
    assert mine == known
    assert {row["device"] for row in mine} == {"h100-sxm"}
    assert not nearest_measured(first("llama-3.2-1b", ["h100-sxm:1"])) or "70b" not in mine[0]["text"]


def test_what_is_predicted_for_a_measured_run_is_what_validate_scores():
    (row, *_) = nearest_measured(first("llama-3.1-70b", ["h100-sxm:4"], concurrency=96))
    table = [one for one in catalogue.inference_rows() if one["id"] == row["id"]]
    (scored,) = [one for one in validated("inference", table, FIT).outcomes if one.metric == "tpot"]
    found = row["predicted"]
    assert (found["value"], found["low"], found["high"]) == (
        scored.predicted.value,
        scored.predicted.low,
        scored.predicted.high,
    )
    assert f"median ITL {row['tpot'] * 1e3:.1f} ms" in row["text"]
    assert f"for that run we say {found['value'] * 1e3:.1f} [" in row["text"]


# Training ------------------------------------------------------------------------------------------


def typed(asked, way):
    """Return what is asked with the flags of a way out typed over it."""
    flags = {way["argument"]: way["needed"], **way["also"]}
    return asked | {flag.removeprefix("--").replace("-", "_"): value for flag, value in flags.items()}


LATE = [
    {"on": ["h100-sxm:512"], "tokens": "1T", "deadline": "30d", "budget": "0.1MUSD"},
    {"on": ["h100-sxm:512"], "tokens": "1T", "deadline": "20d", "budget": "1MUSD"},
    {"on": ["h100-sxm:512"], "tokens": "1T", "deadline": "20d"},
    {"on": ["h100-sxm:8"], "tokens": "1T"},
    {"on": ["rtx-4090:2"]},
    {"on": ["h100-sxm:512"], "devices": "64"},
    {"on": ["a100-sxm-40:16"], "framework": "torchtitan", "tokens": "1T"},
]


@pytest.mark.slow
@pytest.mark.parametrize("asked", LATE, ids=str)
def test_ways_out_of_training_are_taken_when_typed_and_give_what_they_say(asked):
    asked = {"model": "llama-3.1-70b", **asked}
    with pytest.raises(NoPlan) as refused:
        plan_training(**asked)
    assert refused.value.relax
    for way in refused.value.relax:
        plan = plan_training(**typed(asked, way)).plans[0]
        if "plan" in way:
            assert plan.metrics["step_time"].value == pytest.approx(way["plan"]["step_time"], rel=0.01)
        assert "1T" not in str(asked) or way["needed"] != "qlora"


@pytest.mark.slow
def test_a_deadline_finds_the_cheapest_and_the_smallest_cluster_that_meet_it():
    result = plan_training("llama-3.1-70b", tokens="1T", deadline="20d")
    first, least = result.plans[0], result.smallest
    assert first.metrics["days"].value <= 20
    assert len({plan.id for plan in result.plans}) == len(result.plans)
    assert least.metrics["days"].value <= 20
    assert first.metrics["cost"].value == min(p.metrics["cost"].value for p in result.plans if "cost" in p.metrics)
    assert least.machine.count == min(p.machine.count for p in result.plans) < first.machine.count
    same = [p for p in result.plans if p.machine.device.id == first.machine.device.id]
    smaller = plan_training("llama-3.1-70b", [f"{first.machine.device.id}:{first.machine.count // 2}"], tokens="1T")
    assert smaller.plans[0].metrics["days"].value > 20
    assert min(p.machine.count for p in same) == first.machine.count


def test_round_counts_of_hosts():
    counts = round_counts(40, 16)
    assert counts[0] == 40
    assert counts[-1] == 640
    assert all(later <= 1.34 * count for count, later in itertools.pairwise(counts))


@pytest.mark.slow
def test_training_plans_that_tie_stand_by_the_front_and_by_free_memory():
    plans = plan_training("llama-3.1-70b", ["h100-sxm:512"]).plans
    times = [plan.metrics["step_time"].value / plan.job.batch for plan in plans]
    near = [plan for plan, time in zip(plans, times, strict=True) if time <= min(times) * (1 + TIE)]
    assert plans[: len(near)] == near
    assert [plan.tied for plan in plans[1 : len(near)]] == [True] * (len(near) - 1)
    ranks = [(not plan.pareto, float(plan.ledger.reserved)) for plan in near]
    assert ranks == sorted(ranks)


@pytest.mark.slow
def test_a_pinned_layout_is_told_how_far_it_is_behind():
    free = plan_training("llama-3.1-70b", ["h100-sxm:512"]).plans[0]
    own = plan_training("llama-3.1-70b", ["h100-sxm:512"], strategy="tp=8,pp=8")
    mine = own.plans[0].metrics["step_time"].value
    assert own.standing.ratio == pytest.approx(mine / own.standing.best.metrics["step_time"].value)
    assert own.standing.ratio >= 1.0
    assert own.standing.best.metrics["step_time"].value <= free.metrics["step_time"].value * (1 + TIE)


@pytest.mark.slow
def test_a_frontier_run_is_one_machine():
    plan = plan_training("llama-3.1-405b", ["h100-sxm:131072"], tokens="15T", batch="16384seq", sequence="8k").plans[0]
    assert plan.machine.count == 131072
    with pytest.raises(RoofplanError, match="at most 1,048,576"):
        plan_training("llama-3.1-405b", ["h100-sxm:2097152"])


# Launch lines and settings ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "model"),
    [
        ("meta-llama/Llama-3.1-70B-Instruct --on h100-sxm:8", "meta-llama/Llama-3.1-70B-Instruct"),
        ("Llama-3.1-70B-Instruct --on h100-sxm:8", "meta-llama/Llama-3.1-70B-Instruct"),
        ("llama-3.1-70b --on h100-sxm:8", "meta-llama/Llama-3.1-70B"),
        ("llama-3.1-70b --on h100-sxm:8 --precision fp8", "meta-llama/Llama-3.1-70B"),
        ("llama-3.1-70b --on rtx-4090:2 --precision awq", "hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4"),
        ("qwen3-8b --on h100-sxm:1 --precision gptq", "<Qwen/Qwen3-8B in gptq>"),
    ],
)
def test_the_model_served_is_the_one_asked_for_in_its_format(run, words, model):
    _, line, _ = run("serve", *words.split(), "--emit", "vllm")
    found = shlex.split(line, comments=True)
    assert found[:3] == ["vllm", "serve", model]
    assert ("--quantization" in found) == ("fp8" in words)


def test_a_demanded_rate_leaves_room_for_arrivals_that_vary():
    plan = first("llama-3.1-70b", ["h100-sxm:8"], rate="4req/s")
    each = plan.users / plan.strategy.groups
    assert plan.seats >= each + 3 * each**0.5
    assert f"--max-num-seqs {plan.seats}" in launch(plan)
    assert plan.memory.max_concurrency >= plan.users
    still = first("llama-3.1-70b", ["h100-sxm:8"], concurrency=plan.users)
    assert f"--max-num-seqs {plan.users}" in launch(still)


def test_settings_hold_in_memory_speed_and_the_launch_line():
    plain = first("llama-3.1-8b", ["h100-sxm:1"], strategy="tp=1")
    words = "max_num_seqs=64,max_num_batched_tokens=2048,gpu_memory_utilization=0.8,block_size=32"
    told = plan_serving("llama-3.1-8b", ["h100-sxm:1"], set=words).plans[0]
    assert told.memory.max_concurrency == 64 < plain.memory.max_concurrency
    assert told.memory.left_alone == pytest.approx(0.2 * told.memory.capacity)
    assert told.memory.budget_tokens == 2048
    assert told.memory.charged_tokens % 32 == 0
    line = launch(told)
    for word in (
        "--max-num-seqs 64",
        "--max-num-batched-tokens 2048",
        "--gpu-memory-utilization 0.8",
        "--block-size 32",
    ):
        assert word in line


@pytest.mark.parametrize(
    ("engine", "text", "said"),
    [
        (None, "max_num_seq=64", "Did you mean max_num_seqs"),
        (None, "max_num_seqs=64,max_num_seqs=8", "given twice"),
        (None, "gpu_memory_utilization=1.5", "a share above 0 and up to 1"),
        (None, "max_num_seqs=2.5", "a whole number"),
        ("sglang", "max_num_seqs=64", "Known: max_running_requests, chunked_prefill_size"),
        ("any", "max_num_seqs=64", "of one engine"),
    ],
)
def test_settings_that_an_engine_does_not_have_are_refused(engine, text, said):
    with pytest.raises(RoofplanError, match=said):
        plan_serving("llama-3.1-8b", ["h100-sxm:1"], engine=engine, set=text)


def test_a_stated_limit_of_sequences_is_not_raised_for_a_demand():
    with pytest.raises(NoPlan) as refused:
        plan_serving("llama-3.1-8b", ["h100-sxm:1"], set="max_num_seqs=8", concurrency=20)
    assert "8" in [way["needed"] for way in refused.value.relax if way["argument"] == "--concurrency"]


# Found by reading -----------------------------------------------------------------------------------


def test_formats_that_compete_are_each_weighed_by_their_own_type():
    plans = plan_serving("llama-3.1-8b", ["h100-sxm:1"], precision="bf16,fp32").plans
    weights = {plan.precision: plan.memory.weights for plan in plans}
    assert weights["fp32"] == pytest.approx(2 * weights["checkpoint"], rel=1e-3)
    assert weights["fp32"] == pytest.approx(4 * plans[0].model.total, rel=1e-3)


def test_training_counts_the_layouts_that_it_timed(run_json):
    _, document = run_json("train", "llama-3.1-8b", "--on", "h100-sxm:8")
    counts = document["search"]
    assert counts["predicted"] == counts["fits"] > 0


@pytest.mark.slow
def test_a_memory_miss_is_of_the_machine_that_comes_nearest():
    with pytest.raises(NoPlan, match=r"needs .* a device; h100-sxm has") as refused:
        plan_training("llama-3.1-405b", ["h100-sxm:64", "rtx-4090:8"], tokens="1B")
    assert all("rtx-4090" not in way["text"] for way in refused.value.relax)


def test_frozen_weights_in_four_bits_need_fewer_devices():
    plans = plan_training("llama-3.1-405b", method="qlora").plans
    assert any(plan.machine.text == "h100-sxm:1x8" for plan in plans)


@pytest.mark.slow
def test_training_attends_to_the_selected_tokens_alone():
    plan = plan_training("deepseek-v3", ["h100-sxm:512"], sequence="64k", batch="64seq").plans[0]
    alone = replace(plan.layout, tp=1.0, cp=1.0)
    sparse, dense = (
        sum(op.work for op in forward(layer, 65536.0, plan.job, alone, model, plan.framework) if op.name == "attention")
        for model in (read_model("deepseek-v3.2"), plan.model)
        for layer in model.decoder.layers[-1:]
    )
    pairs = 65536 * 65537 / 2
    kept = 2048 * 2049 / 2 + (65536 - 2048) * 2048
    assert dense == pytest.approx(2 * pairs * 128 * (192 + 128), rel=1e-3)
    assert sparse == pytest.approx(2 * kept * 128 * (192 + 128) + 2 * pairs * 64 * 128, rel=1e-3)


def test_attention_products_of_eager_frameworks_stay_in_sixteen_bits():
    plan = plan_training("llama-2-7b", ["h100-sxm:8"], framework="megatron-lm-3.0", precision="fp8").plans[0]
    table = forward(plan.model.decoder.layers[0], 4096.0, plan.job, plan.layout, plan.model, plan.framework)
    formats = {op.name: op.compute for op in table if op.kind == "matmul"}
    assert formats.pop("attention products") != "fp8"
    assert set(formats.values()) == {"fp8"}


@pytest.mark.slow
def test_documents_of_training_say_ties_and_standing(run_json):
    _, own = run_json(*["train", "llama-3.1-70b", "--on", "h100-sxm:512", "--strategy", "tp=8,pp=4", "--top", "3"])
    assert own["standing"]["ratio"] >= 1.0
    assert own["standing"]["best"]["strategy"]
    assert next(plan["tied"] for plan in own["plans"]) is False
    _, free = run_json(*["train", "llama-3.1-70b", "--on", "h100-sxm:512"])
    assert "standing" not in free
    assert "smallest" not in free


def test_explanations_merge_equal_rows_fold_small_ones_and_print_nothing_twice(run):
    _, text, _ = run("serve", "deepseek-v3", "--on", "h200-sxm:8", "--strategy", "tp=8", "--explain")
    assert "61 layers x max(read" in text  # those of dense and of sparse layers together
    assert "parts under 1%" in text
    assert "as in TPOT" in text
    assert len(text.splitlines()) < 230
    tree = text[text.index("TPOT", text.index("cost ")) : text.index("\nTTFT")]
    figure = float(re.search(r"= sum of", tree) and re.search(r"TPOT ([\d.]+) ms", tree)[1])
    scale = {"ms": 1.0, "us": 1e-3, "ns": 1e-6}
    rows = re.findall(r"^[├└] .*?([\d.]+) (ms|us|ns) ", tree, re.MULTILINE)
    assert sum(float(value) * scale[unit] for value, unit in rows) == pytest.approx(figure, rel=5e-3)


def test_one_card_is_trained_on_without_sharding(run_json):
    asked = ["train", "llama-2-7b", "--on", "rtx-4090:1", "--method", "qlora"]
    _, answer = run_json(*asked, "--emit", "fsdp")
    plan = answer["plans"][0]
    assert (plan["strategy"]["zero"], plan["strategy"]["offload"]) == (0, "none")
    assert "--use_fsdp" not in plan["launch"]
    assert "--gradient_checkpointing true" in plan["launch"]
    zeros = {(one["strategy"]["zero"], one["strategy"]["offload"]) for one in answer["plans"]}
    assert (3, "none") not in zeros
    _, pinned = run_json(*asked, "--strategy", "zero=3,offload=none")
    assert pinned["plans"][0]["strategy"]["zero"] == 3


def test_a_smaller_chunk_relieves_answers_that_wait_for_prompts():
    result = plan_serving("llama-3.1-8b", ["l40s:1"], concurrency=16, input=8000)
    plan = result.plans[0]
    smaller = next(one for one in improvements(plan, result.asked, result.fit) if one.argument == "--set")
    name, _, tokens = smaller.needed.partition("=")
    again = first("llama-3.1-8b", ["l40s:1"], concurrency=16, input=8000, set=smaller.needed, engine=plan.engine.id)
    assert name == "max_num_batched_tokens"
    assert int(tokens) < 2048
    assert again.pace.value == pytest.approx(smaller.plan.pace.value)
    assert again.pace.value < plan.pace.value


def test_settings_are_those_of_the_default_engine_and_go_where_the_engine_changes():
    assert first("llama-3.1-8b", ["apple-m4-max:1"], set="np=4").engine.stated == {"sequences": 4.0}
    with pytest.raises(RoofplanError, match="name it with --engine"):
        plan_serving("llama-3.1-8b", ["apple-m4-max:1", "h100-sxm:1"], set="np=4")
    result = plan_serving("llama-3.1-8b", ["l40s:1"], concurrency=16, input=8000, set="max_num_seqs=64")
    found = improvements(result.plans[0], result.asked, result.fit)
    assert "--engine" not in {one.argument for one in found}
    assert all("max_num_seqs=64" in one.needed for one in found if one.argument == "--set")


def test_cards_that_nothing_joins_are_no_way_out():
    """A Jetson has the memory of two GeForce cards, but two of it are no machine."""
    with pytest.raises(NoPlan) as refused:
        plan_serving("llama-3.1-8b", ["rtx-5090:2"], datacenter=True)
    ways = [way["needed"] for way in refused.value.relax]
    assert ways
    assert not any("jetson" in way for way in ways)


def test_a_card_that_data_centres_may_not_use_is_replaced_by_one_that_they_may():
    with pytest.raises(NoPlan) as refused:
        plan_serving("llama-3.1-8b", ["rtx-4090:1"], datacenter=True)
    assert [way["argument"] for way in refused.value.relax] == ["--on"]
    again = plan_serving("llama-3.1-8b", [refused.value.relax[0]["needed"]], datacenter=True).plans[0]
    assert not again.machine.device.geforce_licence


def test_a_stated_limit_of_sequences_ends_the_search_for_a_rate():
    asked = {"on": "a100-sxm-80", "input": 512, "output": 128, "set": "max_num_seqs=128", "rate": "2req/s"}
    assert first("llama-2-7b", **asked).memory.by_setting == 128
    with pytest.raises(NoPlan):
        first("llama-2-7b", **(asked | {"rate": "5000req/s"}))


def test_quantities_are_read_as_the_screen_prints_them(run):
    code, out, _ = run("serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--tpot", "56.4 ms")
    assert code == 0
    assert "limit 56.4 ms" in out


@pytest.mark.slow
def test_ports_are_those_that_a_server_ships_with(run_json):
    """Llama 3.1 405B on 16,384 H100 with a batch of 16M tokens: 38 to 43% MFU is published (arXiv 2407.21783, table 4)."""
    words = ("--on", "h100-sxm:16384@ib-ndr", "--tokens", "15.6T", "--batch", "16Mtok", "--sequence", "8k")
    code, document = run_json("train", "llama-3.1-405b", *words)
    assert code == 0
    mfu = document["plans"][0]["metrics"]["mfu"]
    assert mfu["low"] <= 0.38
    assert 0.38 <= mfu["value"] <= 0.46


def test_a_framework_is_not_asked_for_experts_in_a_format_that_it_lacks(run):
    words = ("--on", "v100-sxm2-32:64", "--precision", "fp16", "--tokens", "1B", "--strategy", "ep=8")
    code, _, err = run("train", "mixtral-8x7b", *words)
    assert code == 2
    assert "multiplies experts in bf16 and fp8 and fp4, not in fp16" in err


def test_settings_that_an_engine_does_not_have_make_no_plan_of_it():
    with pytest.raises(RoofplanError, match="name it with --engine"):
        plan_serving("llama-3.1-70b", ["h100-sxm:1"], precision="bf16,q4_k_m", set="block_size=32")
    with pytest.raises(NoPlan) as refused:
        plan_serving("llama-3.1-70b", ["h100-sxm:1"], set="block_size=32", engine="vllm")
    assert not any(way["argument"] == "--engine" for way in refused.value.relax)


def test_a_format_that_no_engine_reads_is_answered_by_one_of_the_same_width():
    with pytest.raises(NoPlan) as refused:
        plan_serving("llama-3.1-8b", ["epyc-9654:1"], precision="awq")
    assert refused.value.relax[0]["text"] == "--precision q4_k_m"


def test_any_is_a_format_of_its_own():
    with pytest.raises(RoofplanError, match="any stands alone"):
        plan_serving("llama-3.1-8b", ["rtx-4090:1"], precision="any,fp8")


@pytest.mark.parametrize("name", ["awq-int4-g128", "gptq-int4-g128"])
def test_formats_may_be_spelt_with_their_group(name):
    assert name.partition("-")[0] in first("llama-3.1-8b", ["rtx-4090:1"], precision=name).changes


def test_changed_weights_are_not_said_to_be_as_published(run):
    _, out, _ = run("serve", "llama-3.1-8b", "--on", "rtx-4090:2", "--precision", "fp32")
    assert "weights changed to fp32" in out.splitlines()[0]
    assert "as published" not in out


def test_mlx_runs_on_its_own_devices_and_formats_and_its_command_is_not_made_up(run):
    asked = ("serve", "llama-3.1-8b", "--engine", "mlx", "--on")
    _, out, _ = run(*asked, "apple-m4-max:1", "--precision", "mlx-4bit", "--emit", "llamacpp")
    assert "mlx's own command is not known" in out
    for more, said in (
        (("h100-sxm:1",), "does not support NVIDIA"),
        (("apple-m4-max:1", "--precision", "q4_k_m"), "does not read q4_k_m"),
    ):
        code, refused, _ = run(*asked, *more)
        assert code == 1
        assert f"mlx, planned as llama.cpp-b11200, {said}" in refused


def test_what_helps_is_told_without_a_price_too():
    free = plan_serving("llama-3.1-8b", ["mi250x-gcd:1"])
    assert "cost_per_million_output_tokens" not in free.plans[0].metrics
    gains = {one.argument: one.ratio for one in improvements(free.plans[0], free.asked, free.fit)}
    assert gains["--prefix-hit"] < 0.9


def test_only_what_changes_the_model_further_is_said_to(run):
    _, out, _ = run("serve", "llama-3.1-8b", "--on", "h100-sxm:1", "--precision", "fp8")
    better = next(line for line in out.splitlines() if line.startswith("  better"))
    assert "--prefix-hit 50%" in better
    assert "changes the model" not in better.partition("·")[0]


@pytest.mark.parametrize(("weights", "says"), [(79.0, True), (80.0, False), (81.0, False)])
def test_a_request_is_what_lacks_room_only_where_the_weights_leave_some(weights, says):
    book = SimpleNamespace(weights=weights * 2**30, capacity=80.0 * 2**30, at_start=1.0, shortage=2.0**30)
    miss = (0.0, machine("h100-sxm:1")[0], Strategy(), book, "checkpoint", "vllm-0.33")
    asked = SimpleNamespace(model=read_model("llama-3.1-8b"), workload=Workload(input=100, output=10))
    said = str(misses._memory_miss(asked, SimpleNamespace(misses=[miss]), []))
    assert f"weights need {units.gib(book.weights)} GiB a device" in said
    assert ("one request of" in said) == says


def test_users_who_would_only_wait_are_not_planned():
    """Where steps are full of prompts, more users bring no more tokens."""
    plan = plan_serving("llama-3.1-8b", ["h100-sxm:1"], output=1).plans[0]
    most = plan_serving("llama-3.1-8b", ["h100-sxm:1"], output=1, concurrency=400).plans[0]
    assert plan.users < 64
    rates = [one.metrics["output_tokens_per_second"].value for one in (plan, most)]
    assert rates[0] == pytest.approx(rates[1], rel=2e-3)


def test_stated_slots_of_llama_cpp_hold_a_context_each():
    asked = {"on": "rtx-4090:1", "engine": "llama.cpp", "precision": "q4_k_m", "set": "np=4"}
    plan = first("llama-3.1-8b", **asked, context=32768)
    assert plan.memory.max_concurrency == 4
    assert "-c 131072 -np 4" in launch(plan)
    with pytest.raises(NoPlan, match="4 slots of 131,072 tokens need") as refused:
        first("llama-3.1-8b", **asked, context=131072)
    shorter = next(way["needed"] for way in refused.value.relax if way["argument"] == "--context")
    assert first("llama-3.1-8b", **asked, context=shorter).memory.max_concurrency == 4


def test_vllm_takes_no_fewer_batched_tokens_than_sequences():
    with pytest.raises(InputError, match="no fewer batched tokens than sequences, 256"):
        first("llama-3.1-8b", engine="vllm", set="max_num_batched_tokens=64,max_num_seqs=256")


@pytest.mark.parametrize(
    ("more", "said"), [({"rank": "5000"}, "more than the 4,096 columns"), ({"base": "bf16"}, "fewer bits")]
)
def test_an_adapter_that_contradicts_itself_is_refused(more, said):
    with pytest.raises(InputError, match=said):
        plan_training("llama-3.1-8b", ["h100-sxm:1"], method="qlora", batch="8seq", **more)


@pytest.mark.parametrize(
    ("prompt", "answer", "positions", "longest"),
    [
        ("3000", "1000", None, 4096),
        ("3000", "1096", None, 4096),
        ("3000", "1097", None, 8192),
        ("3000", "1097", 5000, 5000),
        ("3000", "2000", 5000, 5000),
        ("3000", "2001", 5000, 8192),
        ("3000", "1000", 131072, 4096),
    ],
)
def test_the_longest_request_is_the_next_power_of_two_within_the_positions(prompt, answer, positions, longest):
    given = SimpleNamespace(input=prompt, output=answer)
    assert lengths_of(given, None, positions) == (int(prompt), int(answer), longest)


@pytest.mark.parametrize("on", ["h100-sxm:8", "h100-pcie:4", "rtx-4090:8", "mi300x:8", "tpu-v5e:8", "h100-sxm:1"])
def test_links_of_a_machine_are_told_with_their_rate(on):
    (box,) = machine(on)
    text = link_text(box)
    if box.per_host > 1 and box.scale_up is not None:
        own = box.device.value("link_bandwidth")
        rate = box.scale_up.bandwidth if own is None else own
        assert f"{box.scale_up.name} {units.significant(rate / 1e9)} GB/s one way" in text
    else:
        assert "one way" not in text or box.scale_up is None
