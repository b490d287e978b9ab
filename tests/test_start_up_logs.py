"""Figures of public start-up logs of vLLM beside our ledger of the same start; the copies of logits were read from eight of them."""

import csv
import math
from functools import lru_cache
from statistics import median

from conftest import GOLDEN

from roofplan.errors import RoofplanError
from roofplan.evidence.startup import explained
from roofplan.hf.find import read_model
from roofplan.inputs import MemoryInputs
from roofplan.measure.startup import startup_of

LINES = {
    "version": "vLLM API server version {}",
    "max_model_len": "max_model_len={}",
    "tp": "tensor_parallel_size={}",
    "pp": "pipeline_parallel_size={}",
    "memory_share": "gpu_memory_utilization={}",
    "max_num_seqs": "max_num_seqs={}",
    "max_num_batched_tokens": "max_num_batched_tokens={}",
    "weights_gib": "Model loading took {} GiB",
    "kv_gib": "Available KV cache memory: {} GiB",
    "kv_tokens": "GPU KV cache size: {} tokens",
}
"""Column -> the line that says it."""


UNREAD = {"vllm-19", "vllm-32", "vllm-72", "vllm-74", "vllm-77"}
"""Logs of models that the catalogue does not have."""

FAR = {"vllm-05", "vllm-06", "vllm-10", "vllm-15", "vllm-34", "vllm-65", "vllm-69"}
"""Logs whose cache is more than 15% off: small caches, a sampler between two profiles, padded weights, an A100 under 0.10."""

UNLIKE = {"vllm-25", "vllm-42"}
"""Logs of a checkpoint in NVFP4 that loads far more than its base in that format, and of a decoder that reads images in its own blocks."""


def known(row):
    try:
        read_model(row["model"])
    except RoofplanError:
        return False
    return True


EVERY = list(csv.DictReader((GOLDEN / "start_up_logs.csv").read_text().splitlines()))
ROWS = [row for row in EVERY if known(row) and row["id"] not in UNLIKE]


@lru_cache(maxsize=64)
def beside(place):
    """Return the figures of a row's log beside ours, by name."""
    row = ROWS[place]
    lines = [text.format(row[name]) for name, text in LINES.items() if row.get(name)]
    asked = MemoryInputs(
        log="-",
        model=row["model"],
        on=f"{row['device']}:{row['count']}",
        strategy=f"tp={row['tp']},pp={row['pp']}",
        kv_precision=row["kv_precision"] or None,
    )
    return {line.name: line for line in explained(startup_of("\n".join(lines)), asked).lines}


def off(name):
    """Return the logarithms of ours over the printed figure, where both are known."""
    lines = {row["id"]: beside(place).get(name) for place, row in enumerate(ROWS)}
    return {key: math.log(one.ours / one.printed) for key, one in lines.items() if one and one.printed and one.ours}


def test_rows_are_of_many_models_and_releases():
    assert {row["id"] for row in EVERY} - {row["id"] for row in ROWS} == UNREAD | UNLIKE
    assert len({row["model"] for row in ROWS}) >= 30
    assert len({row["version"] for row in ROWS}) >= 20


def test_weights_are_what_ranks_load():
    errors = [abs(one) for one in off("weights").values()]
    assert median(errors) < 0.02
    assert sum(one < 0.1 for one in errors) >= 0.75 * len(errors)


def test_caches_are_near_what_is_printed():
    errors = {name: abs(one) for name, one in off("pool").items()}
    assert len(errors) == len(ROWS)
    assert median(errors.values()) < 0.05
    assert {name for name, one in errors.items() if one >= 0.15} <= FAR


def test_tokens_follow_from_the_printed_cache_to_the_digit():
    said = {row["id"]: beside(place).get("tokens") for place, row in enumerate(ROWS)}
    compared = {name: tokens.exact for name, tokens in said.items() if tokens is not None}
    assert len(compared) == 25
    assert all(compared.values())
