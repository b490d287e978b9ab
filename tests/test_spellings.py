"""Rows in the spellings of many hands: cells, devices, software, formats, layouts and loads are read as their authors meant them."""

import csv

import pytest
from conftest import FIT

from roofplan import api, catalogue
from roofplan.catalogue.spellings import named
from roofplan.catalogue.written import cache_of, format_in_name, format_of, known_format
from roofplan.errors import UnknownName
from roofplan.evidence.alternatives import alternatives
from roofplan.evidence.cells import SHAREGPT, plain_cell, plain_row
from roofplan.evidence.cluster import machine_of
from roofplan.evidence.engines import engine_of, parted, release_in
from roofplan.evidence.frameworks import framework_of
from roofplan.evidence.inference import DATA_SET, case_of
from roofplan.evidence.models import counted, device_of
from roofplan.evidence.predictions import inference_outcomes
from roofplan.evidence.rows import Assumed, Skipped, read, unread
from roofplan.evidence.serving_figures import limited_by_rate
from roofplan.evidence.statistic import statistic
from roofplan.evidence.training import precision_of, training_case
from roofplan.inputs import ValidateInputs
from roofplan.present.answers.evidence import validate_answer

SERVED = {
    "id": "one",
    "source_key": "mine",
    "model_name": "Llama 3.1 8B",
    "accel_norm": "NVIDIA H100 80GB HBM3",
    "count": "1",
    "engine_name": "vllm",
    "engine_version": "0.8.5",
    "month": "2025-06",
    "weight_precision": "bf16",
    "kv_precision": "",
    "input_len": "1024",
    "output_len": "256",
    "client_concurrency": "16",
    "output_tokens_per_s": "1500",
}
TRAINED = {
    "id": "one",
    "source_key": "mine",
    "model_name": "Llama 3.1 8B",
    "accel_norm": "A100-80G",
    "accelerators_total": "16",
    "devices_per_node": "8",
    "framework": "pytorch-fsdp",
    "month": "2024-06",
    "precision": "bf16",
    "task": "pretrain",
    "seq_len": "4096",
    "micro_batch": "1",
    "global_batch_sequences": "64",
    "norm_tokens_per_s_per_gpu": "3000",
    "notes": "",
    "interleave": "",
}


def served(**other):
    return case_of({**SERVED, **other})


def trained(**other):
    return training_case({**TRAINED, **other})


def assumed_of(case):
    return " | ".join(case.assumed)


# Cells -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "text", "plain"),
    [
        ("weight_precision", "  fp8\N{NO-BREAK SPACE}", "fp8"),
        ("engine_version", " 0.8.4 ", "0.8.4"),
        ("input_len", "4,012", "4012"),
        ("input_len", "1,5", "1,5"),
        ("seq_len", "8k", "8192"),
        ("global_batch_sequences", "4M", "4M"),
        ("ttft_ms", "1.5 s", "1500"),
        ("tpot_ms", "15 ms", "15"),
        ("request_rate", "2 req/s", "2"),
        ("request_rate", "inf", "inf"),
        ("output_tokens_per_s", "1,234.5 tok/s", "1234.5"),
        ("norm_tokens_per_s_per_gpu", "12 furlongs", "12 furlongs"),
        ("tp", "TP8", "8"),
        ("pp", "pp=2", "2"),
        ("input_len", "pp512", "512"),
        ("sequence_parallel", "YES", "True"),
        ("flash_attention", "FALSE", "False"),
        ("flash_attention", "FlashAttention-2", "FlashAttention-2"),
        ("prefill_chunking", "on", "yes"),
        ("metric_kind", "Decode", "latency"),
        ("metric_kind", "Serving", "serving"),
        ("recompute", "n/a", ""),
        ("memory_kind", "unspecified", "unspecified"),
        ("notes", "-", "-"),
        ("model_name", "GPT-3, 175B", "GPT-3, 175B"),
    ],
)
def test_cells_are_read_without_what_their_columns_already_say(column, text, plain):
    assert plain_cell(column, text) == plain


@pytest.mark.parametrize(
    ("batch", "sequences"),
    [
        ("4M", "1024"),
        ("2.5M tokens", "640"),
        ("4,194,304 tokens", "1024"),
        ("512K tok", "128"),
        ("1024", "1024"),
        ("1k", "1k"),
        ("", ""),
    ],
)
def test_a_batch_in_tokens_is_counted_in_sequences(batch, sequences):
    assert plain_row({"seq_len": "4k", "global_batch_sequences": batch})["global_batch_sequences"] == sequences
    assert plain_row({"global_batch_sequences": "4M"})["global_batch_sequences"] == "4M"


@pytest.mark.parametrize(
    ("cells", "read"),
    [
        ({"input_len": "ShareGPT", "output_len": "ShareGPT"}, ("", "", SHAREGPT)),
        ({"input_len": "ShareGPT_V3_unfiltered", "output_len": "128"}, ("", "128", SHAREGPT)),
        ({"input_len": "", "output_len": "", "notes": "500 prompts of share gpt"}, ("", "", SHAREGPT)),
        ({"input_len": "1024", "output_len": "128", "notes": "unlike ShareGPT"}, ("1024", "128", None)),
        ({"input_len": "sonnet", "output_len": "128"}, ("sonnet", "128", None)),
    ],
)
def test_conversations_of_sharegpt_stand_in_place_of_lengths(cells, read):
    found = plain_row(cells)
    assert (found["input_len"], found["output_len"], found.get("lengths")) == read


def test_runs_on_sharegpt_have_lengths_that_vary_and_widen_their_interval():
    common = {"id": "a", "source_key": "me", "month": "2025-06", "model_name": "Llama-3.1-8B", "accel_norm": "h100-sxm"}
    load = {"count": "1", "engine_name": "vllm", "weight_precision": "bf16", "client_concurrency": "64"}
    case = case_of(
        plain_row(common | load | {"input_len": "ShareGPT", "output_len": "", "output_tokens_per_s": "4000"})
    )
    assert (case.workload.input, case.workload.output, case.varied) == (218, 210, True)
    assert DATA_SET in case.unstated
    assert len(alternatives(case, DATA_SET)) == 2


def test_a_table_is_read_cell_by_cell(tmp_path):
    file = tmp_path / "runs.csv"
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, SERVED)
        writer.writeheader()
        writer.writerow({**SERVED, "weight_precision": " fp8 ", "input_len": "1,024", "output_len": "1k", "count": "-"})
    (row,) = read(file, ("id",))
    case = case_of(row)
    assert (case.model.quantization.format, case.workload.input, case.workload.output) == ("fp8", 1024, 1024)
    assert "count: 1, as it is not stated" in case.assumed


def test_a_figure_beside_those_that_are_predicted_resembles_no_input():
    found = unread("inference", [{**SERVED, "power_w": "1", "measured_mfu": "2", "input_length": "3"}])
    assert found == {"power_w": "", "measured_mfu": "", "input_length": "input_len"}


# Devices and models ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "device", "count"),
    [
        ("8xH200", "h200-sxm", 8),
        ("H100 x 4", "h100-sxm", 4),
        ("2x RTX 3090", "rtx-3090", 2),
        ("DGX H100", "h100-sxm", 8),
        ("TPU v5e-8", "tpu-v5e", 8),
        ("TPU v4-32", "tpu-v4", 16),
        ("A100 80G SXM", "a100-sxm-80", None),
        ("RX 7900 XTX", "rx-7900xtx", None),
        ("MacBook Pro M3 Max (40 core)", "apple-m3-max", None),
        ("RTX 4090 24GB", "rtx-4090", None),
    ],
)
def test_devices_are_read_with_their_number(name, device, count):
    assert device_of({"accel_norm": name}) == device
    assert counted({"accel_norm": name})[1] == count


def test_a_memory_that_is_not_the_devices_is_said():
    assert "device: rtx-3080 of 10 GiB, not of 20" in served(accel_norm="RTX 3080 20GB", weight_precision="awq").assumed
    assert not [x for x in served(accel_norm="RTX 4090 24GB").assumed if x.startswith("device")]
    assert served(accel_norm="Ascend 910B 64GB").machine.device.id == "ascend-910b2"  # of four variants


@pytest.mark.parametrize(
    ("name", "stated"), [("A100 80GB", False), ("H100", False), ("NVIDIA A100-SXM4-80GB", True), ("H100 PCIe", True)]
)
def test_modules_and_cards_of_one_name_widen_the_interval(name, stated):
    case = served(accel_norm=name, count="4", tp="4")
    assert ("form" not in case.unstated) == stated
    others = [] if stated else alternatives(case, "form")
    assert [one.machine.device.id[4:9] for one in others] == ([] if stated else ["-pcie"])
    assert ("form" not in trained(accel_norm=name).unstated) == stated


def test_the_number_in_a_devices_name_counts_where_no_other_is_stated():
    assert served(accel_norm="4xH100", count="").machine.count == 4
    assert served(accel_norm="4xH100", count="2").machine.count == 2
    assert trained(accel_norm="8xH200", accelerators_total="").machine.count == 8


@pytest.mark.parametrize(
    ("name", "identity"),
    [
        ("llama3.1:8b", "llama-3.1-8b"),
        ("unsloth/llama-3-8b-bnb-4bit", "llama-3-8b"),
        ("neuralmagic/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "llama-3.1-8b"),
        ("gpt-oss-120b (high)", "gpt-oss-120b"),
        ("nvidia/DeepSeek-R1-0528-FP4-v2", "deepseek-r1"),
    ],
)
def test_models_are_found_by_tags_and_packed_names(name, identity):
    assert named(name) == identity


def test_a_size_behind_a_name_must_be_the_models():
    assert served(model_name="DeepSeek-R1 671B", accel_norm="h200-sxm", count="8").model.id == "deepseek-r1"
    with pytest.raises(Skipped, match=r"deepseek-r1:32b is not in the catalogue; nearest: deepseek-r1"):
        served(model_name="deepseek-r1:32b")


# Formats -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("INT4 AWQ", "awq"),
        ("W4A16 (AWQ)", "awq"),
        ("GPTQ 8-bit", "int8-weight"),
        ("W8A8 FP8", "fp8"),
        ("INT4 weight only", "int4-weight"),
        ("Q4_K - Small", "q4_k_s"),
        ("UD-Q4_K_XL", "q4_k_m"),
        ("UD-Q8_K_XL", "q8_0"),
        ("AWQ-Marlin", "awq"),
        ("4.65bpw", "exl-4.65bpw"),
        ("bf16", "checkpoint"),
        ("int4 native", "gptq"),
        ("w4afp8", None),
    ],
)
def test_formats_are_read_whatever_stands_around_them(text, found):
    assert format_of(text, {}) == found


def test_bare_bits_are_those_of_mlx_where_mlx_runs():
    assert (format_of("4bit", {}, mlx=True), format_of("4bit", {})) == ("mlx-4bit", None)
    assert format_of("fast", {"fast": "fp8"}) == "fp8"
    assert not known_format("gptq-g")
    assert not known_format("gptq-g0")


def test_a_format_in_the_models_name_counts_where_none_is_stated():
    case = served(model_name="TheBloke/Llama-2-7B-Chat-AWQ", weight_precision="")
    assert case.model.quantization.format == "awq"
    assert "weights: awq, by the model's name" in case.assumed
    assert served(model_name="TheBloke/Llama-2-7B-Chat-AWQ", weight_precision="fp16").model.quantization is None
    assert format_in_name("mlx-community/Meta-Llama-3.1-8B-4bit", {}, mlx=True) == "mlx-4bit"
    assert format_in_name("Llama-3.1-8B-bf16", {}) is None


def test_the_cache_is_read_from_either_column():
    assert served(weight_precision="bf16 + fp8 kv").kv_bytes == served(kv_precision="fp8").kv_bytes < 1.1
    assert served(kv_precision="float16").kv_bytes == 2.0
    assert cache_of("KV cache: int8") == "int8"
    with pytest.raises(Skipped, match="cache in tq3; known: fp8, int8"):
        served(kv_precision="tq3")


def test_sixteen_bits_of_a_model_published_in_eight_count_where_they_fit():
    fits = served(model_name="DeepSeek-V3", weight_precision="bf16", accel_norm="h200-sxm", count="16")
    full = served(model_name="DeepSeek-V3", weight_precision="bf16", accel_norm="h200-sxm", count="8")
    assert fits.model.quantization is None
    assert full.model.quantization.format == "fp8-block"
    assert "weights: fp8-block as published, since the devices do not hold them in 16 bits" in full.assumed


def test_ollama_fetches_four_bits_as_published_where_they_are():
    case = served(
        engine_name="ollama", engine_version="", model_name="gpt-oss:20b", weight_precision="", running_batch="1"
    )
    assert case.model.quantization.format == "mxfp4"
    other = served(
        engine_name="ollama", engine_version="", model_name="llama3.1:8b", weight_precision="", running_batch="1"
    )
    assert other.model.quantization.format == "q4_k_m"


# Software ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("v0.6.3.post1", "0.6.3"),
        ("rocm/vllm:0.6.4", "0.6.4"),
        ("release/0.12", "0.12"),
        ("8e672efe (1550)", "1550"),
        ("b11000-7c3f1a2", "11000"),
        ("1", "1"),
        ("PR 16634", ""),
        ("main", ""),
        ("4f5e2a1", ""),
    ],
)
def test_releases_are_read_from_what_stands_around_them(text, numbers):
    assert release_in(text) == numbers


def engine(name, version="", month="2025-02"):
    assumed = Assumed()
    row = {"engine_name": name, "engine_version": version, "month": month, "accel_norm": "h100-sxm"}
    found = engine_of(row, assumed)
    return found.id, " | ".join(assumed.texts.values())


@pytest.mark.parametrize(
    ("name", "version", "identity"),
    [
        ("vLLM 0.6.3", "", "vllm-0.6"),
        ("vLLM (0.6.3)", "", "vllm-0.6"),
        ("sglang 0.4.6", "", "sglang-0.4"),
        ("TRT-LLM 0.12", "", "tensorrt-llm-0.8"),
        ("llama.cpp ROCm", "b5200", "llama.cpp-b4100"),
        ("llama-bench", "b2900", "llama.cpp-b2899"),
        ("vllm", "latest", "vllm-0.6"),
        ("llama.cpp", "5803c8d", "llama.cpp-b4100"),
        ("HF TGI", "", "vllm-0.6"),
    ],
)
def test_engines_are_read_with_their_release_or_by_the_date(name, version, identity):
    assert engine(name, version)[0] == identity


def test_a_version_that_is_none_is_said_and_left_open():
    assert "engine version main: not known, read as vllm-0.6 by the date of the run" in engine("vllm", "main")[1]
    assert parted("vllm-rocm") == ("vllm", "")
    assert engine("sglang", "0.5.0")[0] == engine("sglang", "0.5")[0] == "sglang-0.5"


def test_software_planned_as_another_takes_a_release_that_runs_on_the_device():
    case = served(engine_name="jetstream", engine_version="", accel_norm="TPU v5e", count="8", tp="8", month="2024-04")
    assert case.engine.id == "vllm-0.6"  # vLLM of that month had no TPUs


@pytest.mark.parametrize("name", ["vLLM (speculative decoding)", "SGLang (PD disaggregation)", "vLLM (EAGLE-3)"])
def test_ways_to_run_that_no_profile_describes_are_refused(name):
    with pytest.raises(Skipped, match="is not modelled"):
        engine(name)


def test_an_unknown_engine_is_refused_with_the_nearest():
    with pytest.raises(Skipped, match="engine sglong is not described; nearest: sglang"):
        engine("sglong")


@pytest.mark.parametrize(
    ("name", "profile"), [("NeMo 24.09", "megatron-core-0.8"), ("torchtitan v0.1", "torchtitan-0.1")]
)
def test_frameworks_are_read_without_their_release(name, profile):
    assert framework_of({"framework": name, "month": "2024-09"}, Assumed()).id == profile


# Loads -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_clients_that_a_rate_holds_back_are_an_open_loop():
    slow, fast = (
        served(request_rate="1", client_concurrency="256"),
        served(request_rate="1000", client_concurrency="16"),
    )
    assert limited_by_rate(slow, FIT).regime == "open loop"
    assert limited_by_rate(fast, FIT) is fast
    assert limited_by_rate(served(), FIT).regime == "closed loop"
    found = {
        one.metric: one for one in inference_outcomes({**SERVED, "request_rate": "1", "client_concurrency": "256"}, FIT)
    }
    assert found["output_tokens_per_second"].predicted.value == pytest.approx(256.0, rel=0.1)
    assert found["output_tokens_per_second"].regime == "open loop"


def test_a_rate_of_prompts_of_unknown_length_is_left_out():
    case = served(
        engine_name="llama.cpp",
        engine_version="b5200",
        weight_precision="q4_k_m",
        input_len="",
        prefill_tokens_per_s="900",
        client_concurrency="",
        running_batch="1",
    )
    assert set(case.measured) == {"output_tokens_per_second"}


def test_llama_cpp_prints_the_rate_of_decoding_whether_or_not_a_row_says_so():
    llama = {
        "engine_name": "llama.cpp",
        "engine_version": "b5200",
        "weight_precision": "q4_k_m",
        "client_concurrency": "",
        "running_batch": "1",
    }
    llama |= {"prefill_tokens_per_s": "5000"}
    said, unsaid = served(**llama, metric_kind="latency"), served(**llama, metric_kind="")
    assert said.workload == unsaid.workload
    assert unsaid.workload.input == 1
    assert served(**{**llama, "running_batch": "4"}, metric_kind="").workload.input == 1024


def test_requests_without_end_are_offline():
    case = served(client_concurrency="", request_rate="inf")
    assert case.regime == "offline"
    with pytest.raises(Skipped, match="running_batch, client_concurrency, queued_requests or request_rate"):
        served(client_concurrency="", request_rate="")


@pytest.mark.parametrize(
    ("degrees", "label"),
    [
        ({"count": "4", "dp": "2"}, "tp2 dp2"),
        ({"count": "4", "pp": "2"}, "tp2 pp2"),
        ({"count": "", "tp": "4"}, "tp4"),
    ],
)
def test_the_degree_that_a_row_leaves_out_follows_from_the_others(degrees, label):
    assert served(**degrees).strategy.label() == label


def test_sglangs_data_ranks_are_groups_of_attention():
    case = served(
        engine_name="sglang",
        engine_version="0.4.6",
        model_name="DeepSeek-V3",
        accel_norm="h200-sxm",
        count="8",
        tp="8",
        dp="8",
    )
    assert (case.strategy.tp, case.strategy.attention_dp, case.strategy.dp) == (8, 8, 1)
    with pytest.raises(Skipped, match="degrees: tp 8 x pp 1 x dp 8 are not the 8 devices"):
        served(engine_version="0.6.3", count="8", tp="8", dp="8")


@pytest.mark.parametrize(
    ("said", "quantile"), [("99th", 0.99), ("TP99", 0.99), ("median of 3 runs", None), ("p50", 0.5)]
)
def test_percentiles_are_read_as_written(said, quantile):
    assert statistic(said).quantile == quantile


@pytest.mark.parametrize("said", ["max", "std", "p50 TTFT, p99 TPOT"])
def test_statistics_that_cannot_be_predicted_are_refused(said):
    with pytest.raises(Skipped, match="percentile: "):
        served(percentile=said)


# Training ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "rank"), [("LoRA r=16", 16), ("lora-ft", 8), ("QLoRA (4-bit)", 8), ("qlora rank 64", 64)]
)
def test_a_fine_tune_is_read_with_its_rank(task, rank):
    case = trained(task=task, framework="trl", accelerators_total="1")
    assert case.job.adapter.rank == rank
    assert case.job.adapter.method == ("qlora" if "qlora" in task.lower() else "lora")
    assert ("rank 8" in assumed_of(case)) is (rank == 8)
    assert "targets q_proj+v_proj" in assumed_of(case)


def test_unsloth_trains_all_products():
    assert trained(task="lora", framework="unsloth", accelerators_total="1").job.adapter.rank == 16
    assert len(trained(task="lora", framework="unsloth", accelerators_total="1").job.adapter.targets) == 7
    assert (
        len(trained(task="lora", framework="trl", targets="all linear", accelerators_total="1").job.adapter.targets)
        == 7
    )


@pytest.mark.parametrize(
    ("said", "shard", "zero"),
    [
        ("HSDP", 8, 3),
        ("HYBRID_SHARD", 8, 3),
        ("_HYBRID_SHARD_ZERO2", 8, 2),
        ("HSDP 2x8", 8, 3),
        ("HSDP 4x4", 4, 3),
        ("fsdp=4", 4, 3),
        ("FSDP full shard", 0, 3),
    ],
)
def test_hybrid_sharding_shards_over_a_host(said, shard, zero):
    layout = trained(zero_stage_fsdp=said).layout
    assert (layout.shard, layout.zero) == (shard, zero)


@pytest.mark.parametrize(
    ("said", "recompute"),
    [
        ("gradient_checkpointing=False", "none"),
        ("gradient checkpointing off", "none"),
        ("without checkpointing", "none"),
        ("activation checkpointing", "full"),
        ("gradient checkpointing", "full"),
    ],
)
def test_checkpointing_can_be_off(said, recompute):
    assert trained(recompute=said).layout.recompute == recompute


@pytest.mark.parametrize(
    ("said", "read_as"), [("no fp8", "bf16"), ("w/o fp8 (bf16)", "bf16"), ("float8", "fp8"), ("mxfp4", "fp4")]
)
def test_precisions_are_read_with_their_no(said, read_as):
    assert precision_of(said) == read_as


def test_offload_beside_the_stage_counts():
    case = trained(framework="deepspeed", zero_stage_fsdp="ZeRO-3 + offload")
    assert (case.layout.zero, case.layout.offload) == (3, "optimizer")
    assert trained(framework="deepspeed", zero_stage_fsdp="ZeRO-3 param offload").layout.offload == "weights"
    assert trained(framework="deepspeed", zero_stage_fsdp="ZeRO-3 + offload", offload="none").layout.offload == "none"


def test_without_flash_attention_is_read_from_a_table(tmp_path):
    file = tmp_path / "runs.csv"
    rows = [
        {**TRAINED, "framework": "megatron-lm", "month": "2023-06", "id": x, "flash_attention": x}
        for x in ("no", "True")
    ]
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    assert [training_case(row).framework.attention for row in read(file, ("id",))] == ["eager", "flash"]


def test_a_step_time_gives_the_rate():
    case = trained(norm_tokens_per_s_per_gpu="", measured_step_s="4")
    assert case.rate == 64 * 4096 / 4 / 16
    assert trained(measured_step_s="4").rate == 3000.0


def test_sharded_data_ranks_take_their_batch_in_few_passes():
    few = {"micro_batch": "", "global_batch_sequences": "120", "model_name": "Llama 3.2 1B"}
    assert trained(**few).layout.micro_batch == 4.0  # 7.5 a rank
    assert trained(**{**few, "global_batch_sequences": "10"}).layout.micro_batch == 1.0
    case = trained(framework="megatron", micro_batch="", global_batch_sequences="120")
    assert case.layout.micro_batch == 1.0


@pytest.mark.parametrize(
    ("text", "name", "ports", "rate"),
    [
        ("InfiniBand NDR 400Gb/s", "ib-ndr", 8, 50e9),
        ("1x100Gb/s IB", "ib-hdr", 1, 12.5e9),
        ("100 Gb/s Ethernet", "ib-hdr", 1, 12.5e9),
        ("8xA100-80GB nodes, 4x200 Gbps RDMA", "ib-hdr", 4, 25e9),
        ("nvlink4; 10 GbE", "10gbe", 1, 1.25e9),
        ("nvlink4", "ib-hdr", 8, 25e9),
    ],
)
def test_networks_are_read_from_any_part_of_the_cell(text, name, ports, rate):
    found = machine_of({**TRAINED, "interconnect": text}, Assumed())
    assert found.ports == ports
    assert found.ports * found.network.bandwidth == pytest.approx(ports * rate)
    assert found.network.id == name


@pytest.mark.parametrize(
    ("device", "devices", "per_node", "text", "hosts", "ports"),
    [
        ("gb200", "128", "4", "", 2, 64),  # trays of racks
        ("gb300", "16", "4", "", 1, 1),
        ("gb200", "512", "4", "nvlink5; 4x400 Gb/s IB", 8, 64),
        ("tpu-v5p", "128", "4", "", 1, 1),
        ("h100-sxm", "16", "4", "", 4, 4),  # half a board
    ],
)
def test_nodes_of_racks_and_pods_share_one_fabric(device, devices, per_node, text, hosts, ports):
    cells = {"accel_norm": device, "accelerators_total": devices, "devices_per_node": per_node, "interconnect": text}
    found = machine_of({**TRAINED, **cells}, Assumed())
    assert (found.hosts, found.ports) == (hosts, ports)


def test_code_that_was_not_compiled_passes_over_its_memory_more_often():
    plain, compiled = (
        framework_of({**TRAINED, "framework": "torchtitan", "month": "2025-06", "compiled": said}, Assumed())
        for said in ("no", "yes")
    )
    assert plain.keeps("memory_passes") > 2 * compiled.keeps("memory_passes")
    assert plain.keeps("loss_passes") > compiled.keeps("loss_passes")


def test_a_stated_rate_is_shown_as_it_was_read():
    assert " on 1 x 25 Gb/s" in trained(interconnect="; 25 Gb/s Ethernet").read_as
    assert " x ib-hdr" in trained().read_as


def test_a_network_that_is_not_understood_is_said():
    assumed = Assumed()
    machine_of({**TRAINED, "interconnect": "nvlink3; carrier pigeons"}, assumed)
    assert list(assumed.texts.values()) == [
        "network: 'nvlink3; carrier pigeons' is not known, 8 x ib-hdr a host, as it is sold"
    ]
    within = Assumed()
    machine_of({**TRAINED, "interconnect": "nvlink3"}, within)
    assert list(within.texts.values()) == ["network: 8 x ib-hdr a host, as it is sold"]


# What was read -----------------------------------------------------------------------------------


def test_the_answer_says_what_was_made_of_a_row(tmp_path):
    file = tmp_path / "runs.csv"
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, SERVED)
        writer.writeheader()
        writer.writerow({**SERVED, "weight_precision": "INT4 AWQ"})
    answer = validate_answer(api.validate("inference", str(file)), ValidateInputs(kind="inference", file=str(file)))
    (one,) = answer.predictions
    assert (
        one.read_as
        == "llama-3.1-8b in awq, 1 x h100-sxm, vllm-0.8 one device, 1024 in 256 out, closed loop of 16 clients"
    )
    case = trained(task="lora", framework="trl", zero_stage_fsdp="FSDP")
    assert (
        case.read_as
        == "llama-3.1-8b in bf16, lora of rank 8, 2 x 8 a100-sxm-80 on 8 x ib-hdr, transformers-4.57 dp16, recompute none, 64 sequences of 4096"
    )


@pytest.mark.parametrize(
    ("name", "identity"),
    [
        ("RTX 3090 24GB", "rtx-3090"),
        ("NVIDIA L4 24 GB", "l4"),
        ("AMD Instinct MI300X 192GB", "mi300x"),
        ("RTX 4090 48GB", "rtx-4090-48"),
        ("RTX 4060 Ti 16GB", "rtx-4060-ti-16"),
        ("RTX 3090 48GB", None),
        ("RTX 3060 8GB", None),
        ("24GB", None),
    ],
)
def test_a_device_may_state_its_memory_if_it_is_its_own(name, identity):
    assert catalogue.spelt("accelerators", name) == identity


def test_a_device_with_other_memory_is_refused_with_its_own():
    with pytest.raises(UnknownName, match=r"no device 'RTX 3060 8GB'\. rtx-3060 has 12 GB\.") as refused:
        catalogue.find("accelerators", "RTX 3060 8GB", "--on")
    assert refused.value.nearest[0] == "rtx-3060"


def test_a_device_with_its_count_in_the_name_says_how_to_write_it():
    with pytest.raises(UnknownName, match=r"Write tpu-v5e:8\.") as refused:
        catalogue.find("accelerators", "TPU v5e-8", "--on")
    assert refused.value.nearest[0] == "tpu-v5e:8"
