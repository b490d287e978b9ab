"""About two hundred plans whose figures may not move in a refactor.

``python tests/test_replay.py`` writes them anew; a change of physics or of a fitted constant is the only reason to.
"""

import json
from pathlib import Path

import pytest

from roofplan.api import plan_serving
from roofplan.errors import NoPlan

FILE = Path(__file__).parent / "replay" / "serving.json"
MODELS = (
    "llama-3.1-8b",
    "llama-3.1-70b",
    "llama-3.1-70b-awq",
    "llama-3.1-405b-fp8",
    "deepseek-v3",
    "deepseek-v3.2",
    "qwen3-32b",
    "qwen3-30b-a3b",
    "qwen3-235b-a22b",
    "gpt-oss-120b",
    "gemma-3-27b",
    "nemotron-h-8b",
    "jamba-v0.1",
    "mixtral-8x7b",
    "kimi-k2",
    "qwen3-next-80b-a3b",
)
MACHINES = (
    "h100-sxm:8",
    "h200-sxm:8",
    "b200:8",
    "mi300x:8",
    "a100-sxm-80:8",
    "rtx-4090:8",
    "l40s:4",
    "h100-sxm:16",
    "rtx-4090:8x1@10gbe",
    "rtx-3090:2",
)
CASES = [(m, d, 0) for m in MODELS for d in MACHINES] + [(m, d, 4096) for m in MODELS[:4] for d in MACHINES]
KEPT = 9  # significant digits


def figures(model, device, prompt):
    try:
        plan = plan_serving(
            model, [device], engine="vllm-0.33", price="2USD/h", **({"input": prompt} if prompt else {})
        ).plans[0]
    except NoPlan as refused:
        return {"no_plan": refused.binding}
    shown = {
        name: float(f"{plan.metrics[name].value:.{KEPT}g}")
        for name in ("tpot", "ttft", "output_tokens_per_second", "max_concurrency")
    }
    return {"label": plan.label, "users": plan.users, "weights": float(f"{plan.memory.weights:.{KEPT}g}"), **shown}


RECORDED = json.loads(FILE.read_text()) if FILE.is_file() else {}


@pytest.mark.parametrize(("model", "device", "prompt"), CASES, ids=str)
def test_figures_have_not_moved(model, device, prompt):
    recorded = RECORDED[f"{model} {device} {prompt}"]
    now = figures(model, device, prompt)
    assert now.keys() == recorded.keys()
    for name, value in recorded.items():
        assert now[name] == (pytest.approx(value, rel=1e-7) if isinstance(value, float) else value), name


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps({f"{m} {d} {p}": figures(m, d, p) for m, d, p in CASES}, indent=0, sort_keys=True))
