"""The tables of step times against the laws that fill them."""

import itertools
import random

import numpy as np
import pytest

from roofplan import catalogue
from roofplan.api import fit_at_hand
from roofplan.catalogue.machines import machine
from roofplan.hf.find import read_model
from roofplan.operations.table import ACTIVATION_BYTES, Step
from roofplan.records.strategy import Strategy
from roofplan.records.terms import Term, total
from roofplan.serving.prompts import stages_at_once
from roofplan.serving.step import launched, stalled, step_term
from roofplan.serving.surface import _lengths, surface
from roofplan.simulation.steps import step_time
from roofplan.timing.hops import mean_hop
from roofplan.timing.rates import rates

WITHIN = 0.005
"""Relative error that a simulator of the laws may add [1]."""

SYSTEMS = [
    ("llama-2-7b", "a100-sxm-80:1", {}, "vllm-0.33", 0),
    ("llama-3.1-70b", "h100-sxm:8", {"tp": 8}, "vllm-0.33", 0),
    ("llama-3.1-70b", "h100-sxm:8", {"tp": 8}, "vllm-0.33", 2),
    ("deepseek-v3", "h200-sxm:8", {"tp": 8}, "sglang-0.5.23", 0),
    ("deepseek-v3", "h200-sxm:16", {"tp": 16, "ep": 16}, "sglang-0.5.23", 1),
    ("qwen3-next-80b-a3b", "h100-sxm:4", {"tp": 4}, "vllm-0.33", 0),
    ("gpt-oss-20b", "h200-sxm:8", {"tp": 8}, "vllm-0.33", 0),
    ("mixtral-8x22b", "h100-sxm:8", {"tp": 4, "pp": 2}, "tensorrt-llm-1.2", 0),
    ("llama-3.1-70b", "rtx-4090:4", {"pp": 4}, "llama.cpp-b11200", 0),
    ("llama-3.1-70b", "rtx-4090:8x1@10gbe", {"pp": 8}, "vllm-0.33", 0),
    ("jamba-1.5-mini", "mi300x:8", {"tp": 8}, "vllm-0.11", 0),
    ("whisper-large-v3", "l40s:1", {}, "vllm-0.33", 0),
    ("llama-3.1-8b", "tpu-v6e:4", {"tp": 4}, "vllm-0.33", 0),
    ("deepseek-v2-lite", "rtx-4090:3", {"pp": 3}, "llama.cpp-b11200", 0),
]


def by_law(model, strategy, r, sequences, context, pieces, each, before=0.0):
    """Return the time of a step by the laws, for pieces that are all alike [s].

    In a pipeline whose stages work on different batches, the prompts are in one of them.
    """
    batches = strategy.pp if r.engine.pipeline_kind == "microbatch" else 1
    inside = max(1.0, sequences / batches) if sequences else 0.0

    def stage(prompts):
        numbers = {}
        if sequences:
            numbers |= {"sequences": inside, "context": float(context)}
        if prompts:
            new, past = prompts[0]
            numbers |= {"new": 1.0 * len(prompts) * new, "past": float(past), "requests": 1.0 * len(prompts)}
        step = Step(each=float(each), **numbers)
        drafted = each - 1 if sequences else 0
        at_once = min(max(1.0, sequences), float(batches))
        if prompts and (batches > 1 or not sequences):
            at_once = stages_at_once(r.engine)
        found = step_term("step", model, strategy, step, r, kv_bytes=2.0, drafted=drafted, at_once=at_once)
        if strategy.pp > 1:
            sent = (inside * each + sum(new for new, _ in prompts)) * model.hidden * ACTIVATION_BYTES
            hop = Term("hop", float(mean_hop(sent, 1.0 * strategy.tp, 1.0 * strategy.pp, r.network)), "s")
            found = total("step", [*found.parts, hop], "s")
        tokens = inside * each + sum(new for new, _ in prompts)
        whole = launched(found, tokens, model, strategy, r, before=before) if prompts else found
        return float(whole.value) * strategy.pp / batches

    without = stage([]) * batches + r.step_base + r.step_each * sequences if sequences else 0.0
    if not pieces:
        return without
    waits = stalled(min(sequences, batches), r)
    own = stage([]) * waits / (1.0 + waits) if sequences else 0.0
    one = own + stage(pieces) + (r.step_base + r.step_each * (sequences + len(pieces))) / batches
    return without * (batches - 1) / batches + one


def worst(model_id, on, degrees, engine, drafted, tries, seats=128, longest=8192):
    """Return the largest relative error over random steps [1]."""
    model, strategy = read_model(model_id), Strategy(**degrees)
    r = rates(machine(on)[0], catalogue.engine(engine), fit_at_hand())
    budget = int(r.engine.pass_tokens(2048.0))  # beyond it, engines with micro-batches run several passes
    table = surface(model, strategy, r, kv_bytes=2.0, seats=seats, budget=2048, longest=longest, drafted=drafted)
    drawn, found = random.Random(model_id), 0.0  # noqa: S311 - no secret
    for before in itertools.islice(itertools.cycle((0.0, 0.003, 0.03)), tries):
        kind = drawn.choice(["decode", "prompts", "mixed"])
        count = 0 if kind == "decode" else drawn.choice([1, 1, 1, 2, 3, 4])
        room = budget // (1 + drafted) // 2
        sequences = 0 if kind == "prompts" else max(1, int(2 ** drawn.uniform(0, np.log2(min(seats, room)))))
        context = 2 ** drawn.uniform(3, np.log2(longest))
        new = int(2 ** drawn.uniform(3, np.log2((budget - sequences * (1 + drafted)) / max(1, count))))
        past = drawn.choice([0, int(2 ** drawn.uniform(3, np.log2(longest)))])
        pieces = [(new, past)] * count
        seen = step_time(table, sequences, context * sequences, pieces, before)
        law = by_law(model, strategy, r, sequences, context, pieces, 1 + drafted, before)
        found = max(found, abs(seen / law - 1.0))
    return found


@pytest.mark.parametrize(("model", "on", "degrees", "engine", "drafted"), SYSTEMS)
def test_tables_follow_the_laws(model, on, degrees, engine, drafted):
    assert worst(model, on, degrees, engine, drafted, 60) < WITHIN


@pytest.mark.slow
@pytest.mark.parametrize("model", catalogue.ids("models"))
def test_tables_follow_the_laws_for_every_model(model):
    assert worst(model, "h200-sxm:8", {"tp": 8}, "vllm-0.33", 0, 40) < WITHIN


def test_lengths_go_from_one_to_the_longest():
    assert [(each[0], each[-1]) for each in map(_lengths, (1.0, 2.0, 2.5, 4096.0))] == [
        (1, 2),
        (1, 2),
        (1, 2.5),
        (1, 4096),
    ]


def test_micro_batches_add_up():
    model, r = (
        read_model("llama-3.1-8b"),
        rates(machine("rtx-4090")[0], catalogue.engine("llama.cpp-b11200"), fit_at_hand()),
    )
    table = surface(model, Strategy(), r, kv_bytes=2.0, seats=4, budget=2048, longest=4096)
    size = int(r.engine.pass_tokens(2048.0))
    assert table.prompts[2 * size] == pytest.approx(2 * table.prompts[size])
    assert table.prompts[size + 7] == pytest.approx(table.prompts[size] + table.prompts[7])


@pytest.mark.parametrize(
    ("name", "on"), [("llama-2-7b", "rtx-a6000:1"), ("llama-3.2-1b", "h200-sxm:1"), ("mixtral-8x7b", "h200-sxm:1")]
)
def test_launches_ahead_of_kernels_are_in_the_tables(name, on):
    """A static batch decodes, or computes a prompt: the longer of launches and kernels."""
    model, r = read_model(name), rates(machine(on)[0], catalogue.engine("hf-transformers-4.57"), fit_at_hand())
    table = surface(model, Strategy(), r, kv_bytes=2.0, seats=32, budget=8192, longest=8192)
    for sequences, context in ((1, 700), (1, 8000), (8, 2000), (32, 4000)):
        seen = step_time(table, sequences, sequences * context, [])
        assert seen == pytest.approx(by_law(model, Strategy(), r, sequences, context, [], 1), rel=WITHIN)
    for new in (20, 300, 5000):
        seen = step_time(table, 0, 0, [(new, 0)])
        assert seen == pytest.approx(by_law(model, Strategy(), r, 0, 0, [(new, 0)], 1), rel=WITHIN)
