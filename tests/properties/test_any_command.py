"""Any mixture of flags: one document, a stated exit code, a command that reproduces it, and advice that holds."""

import random
import shlex

import pytest

MODELS = [
    *("llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-120b", "qwen3-30b-a3b", "qwen3-32b-awq"),
    *(
        "gemma-3-27b",
        "nemotron-h-56b",
        "whisper-large-v3",
        "kimi-k2.5",
        "jamba-1.5-mini",
        "rwkv-4-14b",
        "llama-4-scout",
    ),
]
MACHINES = [
    *("h100-sxm:8", "h100-sxm:1", "h200-sxm:8", "rtx-4090:8", "rtx-4090:8x1@10gbe", "mi300x:8", "gb200-nvl72", "l4:1"),
    *("apple-m3-ultra:1", "tpu-v6e:8", "gaudi3:8", "l40s:4", "a100-sxm-80:16@ib-hdr", "h100-sxm:2x8", "ascend-910b:8"),
]
FLAGS = {
    "--engine": ["vllm", "sglang", "tensorrt-llm", "llama.cpp", "vllm-0.6"],
    "--tpot": ["10ms", "40ms", "80ms"],
    "--ttft": ["200ms", "3s"],
    "--rate": ["0.5req/s", "5req/s", "30req/s"],
    "--concurrency": ["1", "16", "300"],
    "--budget": ["2USD/h", "30USD/h"],
    "--power": ["1kW", "9kW"],
    "--devices": ["1", "4", "16"],
    "--precision": ["fp8", "q4_k_m", "awq"],
    "--kv-precision": ["fp8"],
    "--prefix-hit": ["50%"],
    "--draft": ["1:0.8"],
    "--utilisation": ["30%"],
    "--best": ["throughput", "latency", "devices", "energy"],
    "--strategy": ["tp=8", "tp=2,pp=2", "dp=2", "ep=8", "tp=8,attention_dp=8"],
    "--input": ["128", "8000"],
    "--output": ["16", "800"],
    "--price": ["contract", "2.50USD/h"],
}


def command(seed):
    pick = random.Random(seed)  # noqa: S311 - nothing secret
    words = ["serve", pick.choice(MODELS)]
    for machine in pick.sample(MACHINES, pick.choice([1, 1, 1, 2])):
        words += ["--on", machine]
    for flag in pick.sample(sorted(FLAGS), pick.randrange(5)):
        words += [flag, pick.choice(FLAGS[flag])]
    return words


def followed(words, item):
    """Return a command with the flags of a way out typed over its own; None where it is a price of one's own."""
    if item["argument"] == "--price":
        return None
    words = list(words)
    for flag, value in {item["argument"]: item["needed"], **item["also"]}.items():
        while flag in words:
            del words[words.index(flag) : words.index(flag) + 2]
        words += [flag, value]
    return words


@pytest.mark.parametrize(
    "seed", [seed if seed < 20 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(60)]
)
def test_any_command_answers_reproducibly_and_advises_truly(run_json, seed):
    words = command(seed)
    code, document = run_json(*words)
    assert code in {0, 1, 2}, words
    if code == 0:
        plan = document["plans"][0]
        assert all(m["low"] <= m["value"] <= m["high"] for m in plan["metrics"].values())
        again, copy = run_json(*shlex.split(plan["reproduce"])[1:])
        assert again == 0, plan["reproduce"]
        for name, metric in plan["metrics"].items():
            assert copy["plans"][0]["metrics"][name]["value"] == pytest.approx(metric["value"], rel=1e-6), name
    elif code == 1:
        for item in document["no_plan"]["relax"]:
            way = followed(words, item)
            if way is not None:
                assert run_json(*way)[0] == 0, way
