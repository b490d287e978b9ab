"""Operations of a layer by hand: work, bytes and messages of one rank of Llama 3.1 8B, in serving and in training."""

import pytest

from roofplan import catalogue
from roofplan.hf.find import read_model
from roofplan.operations import UNPADDED, layer_operations
from roofplan.operations.table import Split, Step
from roofplan.operations.training import forward
from roofplan.records.strategy import Strategy
from roofplan.records.training import Job, Layout

MODEL = read_model("llama-3.1-8b")
LAYER = MODEL.decoder.layers[0]
HIDDEN, INNER, HEADS, KV, HEAD = 4096, 14336, 32, 8, 128


def products(tokens, ranks):
    """Return work and bytes of the four products of a rank, whose weights have two bytes, as have activations."""
    kv = 2 * HEAD * max(KV / ranks, 1.0)
    shapes = {
        "q+k+v": (HIDDEN, HIDDEN / ranks + kv),
        "o": (HIDDEN / ranks, HIDDEN),
        "gate+up": (HIDDEN, 2 * INNER / ranks),
        "down": (INNER / ranks, HIDDEN),
    }
    return {
        name: (2.0 * tokens * wide * high, 2.0 * (wide * high + tokens * (wide + high)))
        for name, (wide, high) in shapes.items()
    }


@pytest.mark.parametrize("ranks", [1, 2, 8, 16])
def test_a_step_of_decoding_on_one_rank(ranks):
    sequences, context = 16.0, 1000.0
    split = Split.of(Strategy(tp=ranks))
    table = layer_operations(LAYER, Step(sequences=sequences, context=context), split, MODEL, 2.0, UNPADDED)
    found = {op.name: op for op in table}
    for name, (work, moved) in products(sequences, ranks).items():
        assert (found[name].work, found[name].traffic) == pytest.approx((work, moved))
    attention = found["decode attention"]
    assert attention.work == pytest.approx(4.0 * sequences * context * HEADS * HEAD / ranks)
    assert attention.traffic == pytest.approx(2.0 * sequences * context * 2 * HEAD * max(KV / ranks, 1.0))
    assert found["activation function"].traffic == pytest.approx(2.0 * sequences * 3.0 * INNER / ranks, rel=0.5)
    messages = [op for op in table if op.kind == "all_reduce"]
    assert [op.traffic for op in messages] == [2.0 * sequences * HIDDEN] * 2
    assert {float(op.ranks) for op in messages} == {float(ranks)}


@pytest.mark.parametrize("ranks", [1, 2, 8, 16])
@pytest.mark.parametrize("scattered", [True, False])
def test_a_forward_pass_of_training_on_one_rank(ranks, scattered):
    tokens, sequence = 1000.0, 4096
    job = Job(sequence=sequence, batch=64, optimizer=catalogue.optimizers()["adam"])
    layout = Layout(tp=ranks, sequence_parallel=scattered)
    table = forward(LAYER, tokens, job, layout, MODEL, catalogue.framework("megatron-core-0.16"))
    found = {op.name: op for op in table}
    for name, (work, moved) in products(tokens, ranks).items():
        assert (found[name].work, found[name].traffic) == pytest.approx((work, moved))
    seen = (sequence + 1) / 2.0
    assert found["attention"].work == pytest.approx(4.0 * tokens * seen * HEADS * HEAD / ranks)
    assert found["activation function"].traffic == pytest.approx(2.0 * tokens * 3.0 * INNER / ranks)
    between = [op for op in table if op.kind in {"gather", "all_reduce"}]
    assert {op.traffic for op in between} == {2.0 * tokens * HIDDEN}
    names = ("gather before", "reduce-scatter after") if scattered else ("all-reduce after",)
    assert [op.name for op in between] == [
        f"{name} {module}" for module in ("attention", "feed-forward") for name in names
    ]


def test_a_pass_over_prompts_reads_what_they_share_once():
    """Two prompts of 1,024 new tokens behind 512 that the cache holds."""
    step = Step(new=2048.0, past=512.0, requests=2.0)
    table = layer_operations(LAYER, step, Split.of(Strategy()), MODEL, 2.0, UNPADDED)
    found = {op.name: op for op in table}
    for name, (work, moved) in products(2048.0, 1).items():
        assert (found[name].work, found[name].traffic) == pytest.approx((work, moved))
    seen = 512.0 + (1024.0 + 1.0) / 2.0
    attention = next(op for op in table if op.kind == "prefill_attention")
    assert attention.work == pytest.approx(4.0 * 2048.0 * seen * HEADS * HEAD, rel=1e-3)
