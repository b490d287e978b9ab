"""Launch lines: every flag stands in the table of its version's published source, with a value of its type."""

import json
import math
import re
import shlex
import tomllib
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pytest

from roofplan import catalogue
from roofplan.api import plan_serving, plan_training
from roofplan.errors import InputError, NoPlan
from roofplan.exports.serving import launch
from roofplan.exports.training import launch as training_launch


def options(*names):
    """Return the flags of one or more tables: flag -> type and choices."""
    found = {}
    for name in names:
        found |= tomllib.loads((catalogue.ROOT / "options" / f"{name}.toml").read_text())["options"]
    return found


def blank(value):
    return value.startswith("<") and value.endswith(">")


def check(flag, value, kind):
    """Check that a value is of a flag's type and among its choices; a marked blank may stand anywhere."""
    if blank(value):
        return
    if kind["type"] == "json":
        json.loads(value)
    if kind["type"] in {"int", "float"}:
        {"int": int, "float": float}[kind["type"]](value)
    if "choices" in kind:
        assert value in kind["choices"], (flag, value)


FLAG = re.compile(r"--?[a-z]")
MODULES = ("sglang.", "vllm.", "torchtitan.", "maxtext.")
SCRIPTS = {"pretrain_gpt.py", "scripts/training/run_recipe.py", "src/maxtext/configs/base.yml"}


def assigned(word, known):
    """Return the key and value of a word such as ``steps=100``, None where the table has no such key."""
    key, _, value = word.partition("=")
    return (key, value) if not FLAG.match(word) and key in known else None


def words_of(line):
    """Return the words of a line without its remarks and without the modules and scripts that Python runs."""
    words = shlex.split(line, comments=True)
    run = {after for word, after in pairwise(words) if word == "-m" and after.startswith(MODULES)}
    return [word for word in words if word not in run | SCRIPTS and not (word == "-m" and run)]


def parsed(words, known):
    """Return the words before the first flag, and the flags with their values, as an argument parser reads them."""
    first = next((place for place, word in enumerate(words) if FLAG.match(word) or assigned(word, known)), len(words))
    found, rest = {}, list(words[first:])
    while rest:
        flag = rest.pop(0)
        pair = assigned(flag, known)
        flag = pair[0] if pair else flag
        assert flag in known, f"{flag} is in no published source"
        assert flag not in found, f"{flag} stands twice"
        values = [pair[1]] if pair else []
        while not pair and rest and not FLAG.match(rest[0]) and not assigned(rest[0], known):
            values.append(rest.pop(0))
        kind = known[flag]
        assert len(values) == {"flag": 0}.get(kind["type"], max(1, len(values)) if kind["type"] == "list" else 1), flag
        for value in values:
            check(flag, value, kind)
        found[flag] = values
    return words[:first], found


SERVED = [
    ("llama-3.1-8b", "h100-sxm:1", {}),
    ("meta-llama/Llama-3.1-70B-Instruct", "h100-sxm:8", {"rate": "4req/s"}),
    ("llama-3.1-70b", "h100-sxm:8", {"precision": "fp8", "kv_precision": "fp8"}),
    ("llama-3.1-70b", "rtx-4090:2", {"precision": "awq"}),
    ("qwen3-8b", "a100-sxm-80:1", {"precision": "gptq"}),
    ("llama-3.1-8b", "h100-sxm:1", {"precision": "fp16"}),
    ("deepseek-v3", "h200-sxm:8", {"draft": "1:0.8"}),
    ("deepseek-v3", "h200-sxm:16", {}),
    ("qwen3-30b-a3b", "h100-sxm:4", {"strategy": "tp=4,ep=4"}),
    ("llama-3.1-405b", "h100-sxm:16", {"strategy": "tp=8,pp=2"}),
    ("gpt-oss-120b", "h100-sxm:1", {}),
]
SETTINGS = {
    "vllm": "max_num_seqs=8,max_num_batched_tokens=2048,gpu_memory_utilization=0.85,block_size=32",
    "sglang": "max_running_requests=8,chunked_prefill_size=2048,mem_fraction_static=0.85,page_size=32",
}


TABLES = {path.stem for path in (catalogue.ROOT / "options").glob("*.toml")}
ENGINES = sorted(TABLES & set(catalogue.ids("engines")))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("model", "on", "asked"), SERVED)
def test_every_flag_of_a_server_is_one_that_its_version_has(engine, model, on, asked):
    plans = []
    with suppress(NoPlan, InputError):  # an engine that does not run it says so
        plans = plan_serving(model, [on], engine=engine, **asked).plans
    for plan in plans[:4]:
        words, _ = parsed(words_of(launch(plan)), options(engine))
        assert words[0] in {"vllm", "python", "llama-server", "trtllm-serve"}


def test_engines_that_can_be_launched_have_a_table_of_options():
    without = {
        "gpt-fast-0.1",
        "hf-transformers-4.57",
        "llama.cpp-b2899",
    }  # no plan of theirs is newest, nor asked for by --emit
    without |= {name for name in catalogue.ids("engines") if name.startswith("tensorrt-llm-0")}
    without |= {"tensorrt-llm-1.0"}
    assert set(catalogue.ids("engines")) - without == set(ENGINES)


@pytest.mark.parametrize(("engine", "table"), [("vllm", "vllm-0.33"), ("sglang", "sglang-0.5.23")])
def test_stated_settings_are_in_the_line(engine, table):
    plan = plan_serving("llama-3.1-8b", ["h100-sxm:1"], engine=engine, set=SETTINGS[engine]).plans[0]
    _, found = parsed(words_of(launch(plan)), options(table))
    stated = dict(part.split("=") for part in SETTINGS[engine].split(","))
    assert {name: found[f"--{name.replace('_', '-')}"][0] for name in stated} == stated


def test_four_bit_weights_of_bitsandbytes_are_refused_where_the_engine_dropped_them():
    with pytest.raises(NoPlan, match="does not read bnb-nf4 weights"):
        plan_serving("llama-3.1-8b", ["h100-sxm:1"], precision="bnb-nf4")


TRAINED = [
    ("llama-3.1-8b", "h100-sxm:8", {}),
    ("llama-3.1-70b", "h100-sxm:64", {"tokens": "1B"}),
    ("llama-3.1-405b", "h100-sxm:1024", {"sequence": "128k", "batch": "64seq"}),
    ("mixtral-8x7b", "h100-sxm:64", {}),
    ("deepseek-v3", "h100-sxm:512", {}),
    ("qwen3-30b-a3b", "h100-sxm:32", {"capacity": "1.25"}),
    ("llama-3.1-8b", "h100-sxm:8", {"strategy": "offload=optimizer"}),
    ("llama-3.1-8b", "h100-sxm:8", {"precision": "fp8"}),
    ("llama-2-7b", "h100-sxm:8", {"strategy": "recompute=full,recomputed=50%"}),
    ("llama-3.1-8b", "v100-sxm2-32:64", {}),
]
LAUNCHERS = {
    "megatron": ("torchrun-2.13", "megatron-core-0.16"),
    "torchtitan": ("torchrun-2.13", "torchtitan-0.2"),
    "megatron-bridge": ("torchrun-2.13", "megatron-bridge-26.06"),
    "maxtext": ("maxtext-0.1",),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAUNCHERS)
@pytest.mark.parametrize(("model", "on", "asked"), TRAINED)
def test_every_flag_of_a_training_launch_is_one_that_its_version_has(name, model, on, asked):
    lines = []
    with suppress(NoPlan, InputError):  # a framework that does not run it says so
        lines = [training_launch(plan, name) for plan in plan_training(model, [on], framework=name, **asked).plans[:4]]
    for line in lines:
        before, found = parsed(words_of(line), options(*LAUNCHERS[name]))
        assert before[-1] in {"torchrun", "python3"}
        if name == "megatron":
            split = int(found["--tensor-model-parallel-size"][0]) > 1 or "--context-parallel-size" in found
            assert ("CUDA_DEVICE_MAX_CONNECTIONS=1" in before) == split
            assert ("--use-precision-aware-optimizer" in found) == ("--optimizer-cpu-offload" in found)
            assert found["--position-embedding-type"] == ["rope"]
            assert (found["--data-path"], found["--lr"]) == (["<data>"], ["<learning rate>"])


def test_accelerates_flags_are_accelerates():
    plan = plan_training("llama-3.1-8b", ["h100-sxm:8"], framework="llm-foundry", strategy="zero=3").plans[0]
    words = shlex.split(training_launch(plan, "fsdp"), comments=True)
    _, found = parsed(words[: words.index("train.py")], options("accelerate-1.12"))
    assert found["--use_fsdp"] == []


def test_experts_in_a_format_that_the_framework_does_not_multiply_are_refused():
    with pytest.raises(InputError, match="multiplies experts in bf16 and fp8"):
        plan_training("mixtral-8x7b", ["v100-sxm2-32:64"], framework="megatron")


def test_deepspeed_checkpoints_activations_where_the_plan_does():
    plan = plan_training(
        "llama-3.1-8b", ["h100-sxm:8"], framework="deepspeed", strategy="recompute=full,offload=none"
    ).plans[0]
    document = json.loads(training_launch(plan, "deepspeed"))
    assert document["activation_checkpointing"] == {"cpu_checkpointing": False}


@pytest.mark.parametrize("path", sorted(path.stem for path in (catalogue.ROOT / "options").glob("*.toml")))
def test_tables_of_options_name_their_source(path):
    table = tomllib.loads((catalogue.ROOT / "options" / f"{path}.toml").read_text())
    assert table["source"]
    assert {one["type"] for one in table["options"].values()} <= {"int", "float", "str", "flag", "list", "json"}


@pytest.mark.slow
def test_maxtexts_axes_multiply_to_the_devices_of_a_slice_and_to_the_slices():
    for model, on, slices in (("llama-3.1-70b", "h100-sxm:256", 32), ("mixtral-8x7b", "h100-sxm:64", 8)):
        plan = plan_training(model, [on], framework="maxtext").plans[0]
        _, found = parsed(words_of(training_launch(plan)), options("maxtext-0.1"))
        sizes = {where: [int(v[0]) for k, v in found.items() if k.startswith(where)] for where in ("ici_", "dcn_")}
        assert math.prod(sizes["dcn_"]) == slices
        assert math.prod(sizes["ici_"]) == plan.machine.count / slices
        passes = int(found.get("gradient_accumulation_steps", ["1"])[0])
        assert float(found["per_device_batch_size"][0]) * plan.machine.count * passes == plan.job.batch


@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
def test_litgpts_command_adapts_what_the_plan_adapts(method):
    plan = plan_training("llama-2-7b", ["h200-sxm:1"], framework="litgpt", method=method).plans[0]
    words, found = parsed(shlex.split(training_launch(plan), comments=True), options("litgpt-0.3"))
    assert words == ["litgpt", "finetune_full" if method == "full" else "finetune_lora", "meta-llama/Llama-2-7b-hf"]
    assert ("--lora_r" in found, "--quantize" in found) == (method != "full", method == "qlora")


@pytest.mark.slow
def test_a_recipe_is_named_where_the_framework_has_one():
    plan = plan_training("llama-3.1-8b", ["h100-sxm:64"], framework="megatron-bridge").plans[0]
    assert "--model llama31_8b --mode pretrain" in training_launch(plan)
    plan = plan_training("olmo-2-7b", ["h100-sxm:64"], framework="megatron-bridge").plans[0]
    assert "--model '<recipe>'" in training_launch(plan)


@pytest.mark.slow
def test_what_two_chunks_and_two_ranks_of_experts_need_is_in_the_line():
    pins = {"strategy": "tp=2,pp=2,ep=2,interleave=2"}
    line = training_launch(
        plan_training("qwen3-30b-a3b", ["h100-sxm:64"], framework="megatron-bridge", **pins).plans[0]
    )
    assert "--virtual_pipeline_model_parallel_size 2" in line
    assert "--expert_tensor_parallel_size 1" in line


@pytest.mark.slow
def test_a_mixture_whose_first_layers_are_dense_sends_its_tokens():
    for name, sends in (("deepseek-v3", True), ("llama-3.1-70b", False)):
        pins = {"strategy": f"tp=2,pp=8,ep={16 if sends else 1}"}
        plan = plan_training(name, ["h100-sxm:1024"], framework="megatron-core-0.16", **pins).plans[0]
        assert ("--moe-token-dispatcher-type" in training_launch(plan)) is sends


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
def test_litgpt_reads_its_line(method):
    jsonargparse, main = pytest.importorskip("jsonargparse"), pytest.importorskip("litgpt.__main__")
    plan = plan_training("llama-2-7b", ["h200-sxm:1"], framework="litgpt", method=method).plans[0]
    words = ["Alpaca" if blank(word) else word for word in shlex.split(training_launch(plan), comments=True)[1:]]
    read = jsonargparse.capture_parser(main.main).parse_args(words)[words[0]]
    assert read.train.global_batch_size == plan.job.batch
    assert read.train.micro_batch_size == plan.layout.micro_batch


@pytest.mark.oracle
@pytest.mark.parametrize("pins", ["", "pp=2,tp=2", "shard=8"])
def test_torchtitan_reads_its_line(pins):
    manager = pytest.importorskip("torchtitan.config.manager")
    plan = plan_training("llama-3.1-8b", ["h100-sxm:64"], framework="torchtitan", strategy=pins).plans[0]
    words = shlex.split(training_launch(plan), comments=True)
    public = {"<name>": "llama3", "<flavour>": "8B"}
    words = [public.get(word, word) for word in words[words.index("torchtitan.train") + 1 :]]
    read = manager.ConfigManager().parse_args(words)
    degrees = read.parallelism
    sharded = degrees.data_parallel_shard_degree * degrees.data_parallel_replicate_degree
    assert sharded == plan.layout.dp
    assert (degrees.tensor_parallel_degree, degrees.pipeline_parallel_degree) == (plan.layout.tp, plan.layout.pp)
    assert read.training.global_batch_size == plan.job.batch


def test_a_version_without_eight_bit_products_cannot_be_started_with_them():
    asked = {"framework": "megatron-lm-3.0", "precision": "fp8", "strategy": "tp=2,pp=2"}
    (plan, *_) = plan_training("llama-3.1-8b", ["h100-sxm:16"], **asked).plans
    with pytest.raises(InputError, match="no products in fp8"):
        training_launch(plan, "megatron")


def test_adapters_of_products_that_litgpt_names_no_flag_for_are_refused():
    (plan, *_) = plan_training("llama-3.1-8b", ["h100-sxm:1"], framework="litgpt", method="lora").plans
    other = replace(plan, job=replace(plan.job, adapter=replace(plan.job.adapter, targets=("q_proj", "router"))))
    assert "finetune_lora" in training_launch(plan, "litgpt")
    with pytest.raises(InputError, match="no adapters of router"):
        training_launch(other, "litgpt")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "strategy", "what"),
    [
        ("torchtitan", "tp=2", "tensor parallelism"),
        ("torchtitan", "pp=2", "pipeline stages"),
        ("torchtitan", "cp=2", "context parallelism"),
        ("megatron", "zero=1", "sharded states with whole gradients"),
    ],
)
def test_fsdp_shards_and_does_nothing_else(framework, strategy, what):
    plan = plan_training("llama-3.2-1b", ["h100-sxm:8"], framework=framework, strategy=strategy).plans[0]
    with pytest.raises(InputError, match=f"fsdp has no {what} as in this plan; plan with --framework transformers"):
        training_launch(plan, "fsdp")
