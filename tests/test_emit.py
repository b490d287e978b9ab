"""Launch lines: the flags of the engine version, for the plan that is printed."""

import itertools
import json
import shlex
from dataclasses import replace

import pytest

from roofplan.api import plan_serving, plan_training
from roofplan.errors import InputError
from roofplan.exports.serving import engine_named, launch
from roofplan.exports.training import launch as training_launch


def line(model, on, **flags):
    return launch(plan_serving(model, [on], **flags).plans[0])


def words(text):
    return shlex.split(text.partition("  # ")[0])


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ({"engine": "vllm"}, "--tensor-parallel-size 8"),
        ({"engine": "sglang"}, "--tp-size 8"),
        ({"engine": "tensorrt-llm"}, "--tp_size 8"),
        ({"engine": "vllm", "kv_precision": "fp8"}, "--kv-cache-dtype fp8"),
        ({"engine": "vllm", "precision": "fp8"}, "--quantization fp8"),
        ({"engine": "vllm-0.6", "prefix_hit": "30%"}, "--enable-prefix-caching"),
        ({"engine": "vllm", "precision": "fp16"}, "--dtype float16"),
    ],
)
def test_flags_are_those_of_the_version(flags, wanted):
    found = line("llama-3.1-70b", "h100-sxm:8", strategy="tp=8", **flags)
    assert wanted in " ".join(words(found))


def test_the_newest_vllm_needs_no_flag_for_prefix_hits():
    assert "prefix" not in line("llama-3.1-70b", "h100-sxm:8", engine="vllm", prefix_hit="30%")


@pytest.mark.parametrize(
    ("engine", "wanted"), [("vllm", "--speculative-config"), ("sglang", "--speculative-num-draft-tokens 2")]
)
def test_drafts_are_switched_on(engine, wanted):
    assert wanted in line("deepseek-v3", "h200-sxm:8", engine=engine, draft="1:0.8")


def test_options_of_tensorrt_llm_go_into_its_file():
    found = line("deepseek-v3", "h200-sxm:8", engine="tensorrt-llm", kv_precision="fp8", strategy="tp=8,attention_dp=8")
    assert words(found)[-2:] == ["--config", "options.yaml"]
    assert "options.yaml: {enable_attention_dp: true, kv_cache_config: {dtype: fp8}}" in found


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize("users", [9, 13, 100])
def test_the_sequence_limit_admits_the_plan_s_users(engine, users):
    plan = plan_serving("deepseek-v3", ["h200-sxm:8"], engine=engine, concurrency=users).plans[0]
    found = words(launch(plan))
    limit = next(int(b) for a, b in itertools.pairwise(found) if "seqs" in a or "requests" in a or "batch" in a)
    ranks = int(plan.strategy.dp) * (int(plan.strategy.attention_dp) if plan.engine.sequence_limit == "rank" else 1)
    assert limit * ranks >= plan.users


def test_a_local_config_is_launched_from_its_folder(tmp_path, llama):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(llama))
    assert words(line(str(file), "h100-sxm:1"))[2] == str(tmp_path)


def test_emit_plans_with_the_engine_that_it_names():
    assert engine_named("sglang", None) == "sglang"
    assert engine_named("vllm", "vllm-0.6") == "vllm-0.6"
    with pytest.raises(InputError, match="leave --engine out"):
        engine_named("sglang", "vllm")
    with pytest.raises(InputError, match="is not known"):
        engine_named("ollama", None)


def test_a_model_without_a_name_of_its_own_is_launched_from_a_folder_that_the_user_fills_in(llama):
    from roofplan.api import plan_serving
    from roofplan.exports.serving import launch

    said = launch(plan_serving(llama, ["h100-sxm:1"]).plans[0])
    assert "vllm serve MODEL" in said
    assert "MODEL" not in launch(plan_serving("llama-3.1-8b", ["h100-sxm:1"]).plans[0])


def test_gated_feed_forwards_are_told_from_plain_ones():
    from roofplan.exports.megatron import _gated
    from roofplan.hf.find import read_model

    assert _gated(read_model("llama-3.1-8b"))
    assert _gated(read_model("mixtral-8x7b"))
    assert not _gated(read_model("gpt2"))


@pytest.mark.parametrize(("on", "meets"), [("h100-sxm:8", False), ("h100-sxm:2x8", True)])
def test_processes_of_several_hosts_are_told_where_to_meet(run, on, meets):
    code, out, _ = run("train", "llama-3.1-8b", "--on", on, "--framework", "llm-foundry", "--emit", "fsdp")
    assert code == 0
    assert ("--main_process_ip $HEAD" in out) is meets


@pytest.mark.slow
def test_number_formats_of_a_launch_are_those_of_its_framework():
    plan = plan_training("llama-3.1-8b", ["b200-sxm:8"], precision="nvfp4").plans[0]
    assert "--bf16 --fp4-format e2m1" in training_launch(plan, "megatron")
    assert "--fp4-format needs Transformer Engine 2.7" in training_launch(plan, "megatron")
    other = plan_training("llama-3.1-8b", ["b200-sxm:8"], precision="nvfp4", framework="torchtitan").plans[0]
    with pytest.raises(InputError, match="no products in fp4 as in this plan; plan with --precision bf16 or fp8"):
        training_launch(other, "torchtitan")
    older = plan_training("llama-3.1-8b", ["h100-sxm:8"], precision="fp8", framework="megatron-lm-3.0").plans[0]
    with pytest.raises(InputError, match="plan with --precision bf16 or fp16"):
        training_launch(older, "megatron")


@pytest.mark.parametrize(("on", "meets"), [("h100-sxm:8", False), ("h100-sxm:2x8", True)])
def test_what_every_host_sets_for_itself_is_said(on, meets):
    plan = plan_training("llama-3.1-8b", [on], framework="llm-foundry").plans[0]
    remarks = training_launch(plan, "fsdp").partition("  # ")[2]
    assert ("$HEAD: address of the first host" in remarks) is meets
    assert ("$RANK: number of this host, from 0" in remarks) is meets


@pytest.mark.parametrize(("count", "zero"), [(1, 0), (2, 3)])
def test_litgpt_shards_over_several_devices(count, zero):
    plan = plan_training("llama-3.1-8b", [f"h100-sxm:{count}"], framework="litgpt", method="lora").plans[0]
    assert plan.layout.zero == zero
    assert f"--devices {count}" in training_launch(plan, "litgpt")


@pytest.mark.parametrize("target", ["deepspeed", "litgpt", "fsdp"])
@pytest.mark.parametrize(
    ("degree", "what"), [("tp", "tensor parallelism"), ("pp", "pipeline stages"), ("cp", "context parallelism")]
)
def test_launchers_that_shard_alone_refuse_other_splits(target, degree, what):
    asked = {"framework": "megatron", "batch": "64seq", "top": "1"}
    layout = ",".join(f"{name}={2 if name == degree else 1}" for name in ("tp", "pp", "cp"))
    plan = plan_training("llama-3.2-1b", ["h100-sxm:8"], strategy=layout, **asked).plans[0]
    sharded = replace(plan, layout=replace(plan.layout, zero=3))
    with pytest.raises(InputError, match=f"{target} has no {what}"):
        training_launch(sharded, target)


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "said"), [({"tp": 1}, False), ({"tp": 2}, True), ({"tp": 1, "cp": 2}, True)])
def test_kernels_are_queued_one_by_one_only_where_tensor_or_context_ranks_overlap(layout, said):
    words = ",".join(f"{name}={value}" for name, value in layout.items())
    found = plan_training("llama-3.2-1b", ["h100-sxm:8"], framework="megatron", batch="64seq", strategy=words)
    line = training_launch(found.plans[0], "megatron")
    assert (("CUDA_DEVICE_MAX_CONNECTIONS" in line), ("--cp-comm-type" in line)) == (said, "cp" in layout)


def test_a_launch_of_an_unknown_framework_names_the_known_ones():
    plan = plan_training("llama-3.1-8b", on="h100-sxm:8", strategy="tp=2").plans[0]
    with pytest.raises(InputError, match=r"--emit.*megatro"):
        training_launch(plan, "megatro")


def test_a_launch_ends_with_the_tokens_that_were_asked_for():
    """A million tokens are 244.1 sequences of 4,096, and 15.3 steps of 16 of them."""
    asked = {"on": "h100-sxm:8", "batch": "16seq", "sequence": "4096", "tokens": "1M"}
    plan = plan_training("llama-3.1-8b", **asked).plans[0]
    assert "--train-samples 245 " in training_launch(plan, "megatron")
    plan = plan_training("llama-3.1-8b", framework="litgpt", method="lora", **asked).plans[0]
    assert "--train.max_steps 16 " in training_launch(plan, "litgpt")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "strategy", "there", "absent"),
    [
        (
            "llama-3.1-8b",
            "zero=1",
            ["--use-distributed-optimizer", "--swiglu", "--ffn-hidden-size 14336", "--num-query-groups 8"],
            [
                "CUDA_DEVICE_MAX_CONNECTIONS",
                "--sequence-parallel",
                "--context-parallel-size",
                "--expert-model",
                "--num-experts",
                "virtual",
            ],
        ),
        (
            "llama-3.1-8b",
            "tp=2,pp=2,interleave=2",
            [
                "CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py",
                "--tensor-model-parallel-size 2",
                "--pipeline-model-parallel-size 2",
                "--num-layers-per-virtual-pipeline-stage 8",
                "--sequence-parallel",
            ],
            ["--context-parallel-size", "rdzv"],
        ),
        (
            "llama-3.1-8b",
            "cp=2",
            ["CUDA_DEVICE_MAX_CONNECTIONS=1", "--context-parallel-size 2"],
            ["--sequence-parallel"],
        ),
        (
            "llama-3.1-8b",
            "recompute=full,recomputed=0.5",
            ["--recompute-granularity full --recompute-method block --recompute-num-layers 16"],
            ["uniform"],
        ),
        (
            "llama-3.1-8b",
            "recompute=full,recomputed=1",
            ["--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"],
            ["block"],
        ),
        (
            "qwen3-30b-a3b",
            "ep=8",
            [
                "--expert-model-parallel-size 8",
                "--num-experts 128",
                "--moe-router-topk 8",
                "--moe-ffn-hidden-size 768",
                "--swiglu",
            ],
            ["--moe-layer-freq", "--moe-shared-expert", "CUDA_DEVICE_MAX_CONNECTIONS"],
        ),
        (
            "deepseek-v2-lite",
            "ep=8",
            [
                "--moe-layer-freq '([0]*1+[1]*26)'",
                "--moe-shared-expert-intermediate-size 2816",
                "--kv-lora-rank 512",
                "--qk-head-dim 128",
                "--qk-pos-emb-head-dim 64",
                "--ffn-hidden-size 10944",
                "--moe-ffn-hidden-size 1408",
            ],
            ["--q-lora-rank"],
        ),
    ],
)
def test_a_launch_of_megatron_has_the_flags_of_its_layout_and_no_others(model, strategy, there, absent):
    plan = plan_training(model, on="b200:8", strategy=strategy, batch="64seq", sequence="4096").plans[0]
    line = training_launch(plan, "megatron")
    assert [one for one in there if one not in line] == []
    assert [one for one in absent if one in line] == []


@pytest.mark.parametrize(
    ("model", "on", "asked", "line"),
    [
        (
            "llama-3.1-70b",
            "h100-sxm:8",
            {"engine": "vllm", "strategy": "tp=4,dp=2", "concurrency": 20},
            "vllm serve meta-llama/Llama-3.1-70B --tensor-parallel-size 4 --data-parallel-size 2 --max-model-len 2048 --max-num-seqs 10",
        ),
        (
            "llama-3.1-70b",
            "h100-sxm:2x8",
            {"engine": "vllm", "strategy": "tp=8,pp=2", "concurrency": 20, "kv_precision": "fp8"},
            (
                "vllm serve meta-llama/Llama-3.1-70B --tensor-parallel-size 8 --pipeline-parallel-size 2 --max-model-len 2048"
                " --max-num-seqs 20 --kv-cache-dtype fp8"
            ),
        ),
        (
            "deepseek-v3",
            "h200-sxm:8",
            {"engine": "sglang", "strategy": "tp=8,attention_dp=8,ep=8", "concurrency": 64},
            (
                "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp-size 8 --ep-size 8 --attn-dp-size 8"
                " --context-length 2048 --max-running-requests 64"
            ),
        ),
        (
            "qwen3-30b-a3b",
            "h100-sxm:2",
            {"engine": "sglang", "strategy": "tp=2", "concurrency": 8, "precision": "fp8"},
            (
                "python -m sglang.launch_server --model-path Qwen/Qwen3-30B-A3B --tp-size 2 --context-length 2048"
                " --max-running-requests 8 --quantization fp8"
            ),
        ),
        (
            "llama-3.1-8b",
            "rtx-4090:2",
            {"engine": "llama.cpp", "precision": "q4_k_m", "concurrency": 4, "strategy": "pp=2"},
            "llama-server -m model.gguf -ngl 999 -c 8192 -np 4 --split-mode layer --tensor-split 1,1",
        ),
        (
            "llama-3.1-8b",
            "h100-sxm:4",
            {"engine": "tensorrt-llm", "strategy": "tp=2,pp=2", "concurrency": 16},
            "trtllm-serve meta-llama/Llama-3.1-8B --tp_size 2 --pp_size 2 --max_seq_len 2048 --max_batch_size 16",
        ),
        (
            "llama-3.1-8b",
            "h100-sxm:1",
            {"engine": "vllm", "concurrency": 300, "prefix_hit": "50%", "set": "max_num_batched_tokens=4096"},
            "vllm serve meta-llama/Llama-3.1-8B --max-model-len 2048 --max-num-seqs 300 --max-num-batched-tokens 4096",
        ),
    ],
)
def test_a_launch_of_an_engine_says_what_was_planned_and_no_more(model, on, asked, line):
    found, _, remark = launch(plan_serving(model, on=on, **asked).plans[0]).partition("  # ")
    assert found == line
    assert ("--nnodes 2" in remark) == ("2x8" in on)
