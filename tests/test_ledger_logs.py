"""vLLM's start-up logs: the published parts add up by our arithmetic, and our own ledger comes near their cache."""

import tomllib

import pytest
from conftest import GOLDEN

from roofplan import catalogue
from roofplan.hf.find import read_model
from roofplan.records.strategy import Strategy
from roofplan.records.units import GIB
from roofplan.serving import footprint

ROWS = tomllib.loads((GOLDEN / "vllm_kv.toml").read_text())["row"]
PARTS = ("device_total_gib", "memory_share", "weights_gib", "non_torch_gib", "activation_peak_gib", "kv_gib")
WHOLE = [row for row in ROWS if all(key in row for key in PARTS)]


@pytest.mark.parametrize("row", WHOLE, ids=lambda r: r["id"])
def test_parts_add_up(row):
    """budget - weights - other memory - activation peak = cache, to the printed digits."""
    budget = row["device_total_gib"] * row["memory_share"]
    left = (
        budget
        - row["weights_gib"]
        - row["non_torch_gib"]
        - row["activation_peak_gib"]
        - row.get("graph_counted_gib", 0.0)
    )
    assert left == pytest.approx(row["kv_gib"], abs=0.03)


def named(row):
    try:
        return read_model(row["model"])
    except Exception:  # noqa: BLE001 - the log's model is not in the catalogue
        return None


KNOWN = [
    (row, model)
    for row in ROWS
    for model in [named(row)]
    if model is not None and row.get("precision") in {"bf16", "fp16", "awq"}
]


@pytest.mark.parametrize(
    ("row", "model"),
    [(r, m) for r, m in KNOWN if "weights_gib" in r and r.get("pp", 1) == 1],
    ids=lambda x: x["id"] if isinstance(x, dict) else "",
)
def test_weights_of_a_rank(row, model):
    foot = footprint(model, Strategy(tp=row["tp"]), 2.0)
    assert foot.weights / GIB == pytest.approx(row["weights_gib"], rel=0.02)


@pytest.mark.parametrize(
    ("row", "model"),
    [(r, m) for r, m in KNOWN if "kv_gib" in r and "kv_tokens" in r and r.get("pp", 1) == 1],
    ids=lambda x: x["id"] if isinstance(x, dict) else "",
)
def test_bytes_of_a_token(row, model):
    foot = footprint(model, Strategy(tp=row["tp"]), 2.0)
    tokens = row["kv_tokens"]
    assert foot.kv_per_token * tokens / GIB <= row["kv_gib"] * 1.01


def test_what_programs_see_of_a_card():
    for name, seen in (("h100-sxm", 79.22), ("rtx-4090", 23.55), ("rtx-3090", 23.58)):
        assert catalogue.accelerator(name).memory / GIB == pytest.approx(seen, abs=0.03)
