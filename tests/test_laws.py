"""Every law: its docstring is complete, its units close, it takes arrays, and it behaves as physics must."""

import importlib
import inspect
import math
import pkgutil
import re

import numpy as np
import pint
import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofplan.laws
from roofplan.laws import (
    activations,
    attention,
    batching,
    collectives,
    flops,
    matmul,
    memory,
    parameters,
    pipeline,
    roofline,
    silicon,
    states,
)

REGISTRY = pint.UnitRegistry(non_int_type=float)
for line in ("token = []", "FLOP = []", "USD = []"):
    REGISTRY.define(line)
UNIT = {
    "1": "dimensionless",
    "B": "byte",
    "FLOP/B": "FLOP/byte",
    "B/s": "byte/second",
    "FLOP/s": "FLOP/second",
    "1/s": "1/second",
    "USD/s": "USD/second",
    "USD/J": "USD/joule",
    "m": "meter",
    "m2": "meter**2",
    "1/m2": "1/meter**2",
}


def laws():
    for info in pkgutil.iter_modules(roofplan.laws.__path__):
        module = importlib.import_module(f"roofplan.laws.{info.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                yield pytest.param(function, id=f"{info.name}.{name}")


def declared(function):
    """Return the [unit] of each parameter and of the result, read from the docstring."""
    text = inspect.getdoc(function)
    body = text.split("Parameters\n")[1].split("Returns\n")
    found = dict(re.findall(r"^(\w+) : .*?\[([^\]]+)\]", body[0], re.MULTILINE))
    result = re.search(r"\[([^\]]+)\]", body[1])
    return found, result[1]


@pytest.mark.parametrize("law", list(laws()))
def test_docstrings_are_complete(law):
    text = inspect.getdoc(law)
    for section in ("Parameters", "Returns", "Notes", "Examples", "Domain", "Source"):
        assert section in text, section
    found, _ = declared(law)
    arguments = [name for name, p in inspect.signature(law).parameters.items() if p.annotation != "bool"]
    assert list(found) == arguments


# counts of operations and of bytes per element are carried as plain numbers in these laws
COUNTED = {"FLOP": "dimensionless"}
FREE = {
    "matmul.work",
    "attention.work",
    "attention.latent_work",
    "flops.forward_per_token",
    "flops.training",
    "flops.generation",
    "flops.projection",
    "parameters.stored_bytes",
}  # their results carry a unit (FLOP, B) that their arguments count as [1]


@pytest.mark.parametrize("law", list(laws()))
def test_units_close(law):
    """Push quantities through: the result must have the declared unit."""
    found, result = declared(law)
    key = f"{law.__module__.rsplit('.', 1)[-1]}.{law.__name__}"
    values = {name: 3.0 + index for index, name in enumerate(found)}
    if key == "batching.tokens_per_speculative_step":
        values = {"drafted": 2.0, "acceptance": 0.5}
    plain = law(**values)
    assert np.isfinite(plain)
    if key in FREE:
        assert result in {"FLOP", "B"}
        return
    quantities = {
        name: value * REGISTRY(UNIT.get(found[name], found[name])) if found[name] != "1" else value
        for name, value in values.items()
    }
    out = law(**quantities)
    wanted = REGISTRY(UNIT.get(result, result)).units
    got = out.units if hasattr(out, "units") else REGISTRY.dimensionless
    assert got.dimensionality == wanted.dimensionality, (got, wanted)


@pytest.mark.parametrize("law", list(laws()))
def test_arrays_equal_scalars(law):
    found, _ = declared(law)
    rng = np.random.default_rng(7)
    grid = {
        name: np.round(rng.uniform(10.0, 20.0, size=6) if name == "experts" else rng.uniform(1.0, 9.0, size=6), 3)
        for name in found
    }
    array = np.broadcast_to(law(**grid), 6)
    for i in range(6):
        alone = law(**{name: float(values[i]) for name, values in grid.items()})
        assert array[i] == pytest.approx(alone, rel=1e-12, nan_ok=True)


# Physics ------------------------------------------------------------------------------------------

positive = st.floats(min_value=1e-3, max_value=1e6)


@given(positive, positive, positive, positive)
def test_roofline_bounds(work, traffic, rate, bandwidth):
    both = roofline.overlapped_time(work, traffic, rate, bandwidth)
    serial = roofline.serial_time(work, traffic, rate, bandwidth)
    assert both <= serial <= 2 * both * (1 + 1e-12)


@given(st.integers(1, 4096), st.integers(0, 4096), st.integers(1, 8192))
def test_window_pairs_are_the_sum_over_queries(new, past, window):
    expected = sum(min(past + i, window) for i in range(1, new + 1))
    assert attention.windowed_pairs(float(new), float(past), float(window)) == pytest.approx(expected, rel=1e-12)


@given(st.integers(1, 2048), st.integers(0, 4096))
def test_a_window_that_sees_all_is_no_window(new, past):
    assert attention.windowed_pairs(float(new), float(past), 1e9) == pytest.approx(
        attention.prefill_pairs(float(new), float(past))
    )


@given(st.integers(2, 512), st.integers(1, 16), st.integers(1, 4096))
def test_experts_read_lie_between_active_and_total(experts, chosen, tokens):
    chosen = min(chosen, experts)
    read = matmul.experts_read(float(experts), float(chosen), float(tokens))
    assert chosen * (1 - 1e-9) <= read <= experts * (1 + 1e-9)


def test_the_published_occupancy():
    assert [round(100 * matmul.experts_read(256.0, 8.0, float(t)) / 256) for t in (1, 8, 32, 128)] == [3, 22, 64, 98]


@given(st.integers(1, 128), st.integers(1, 64))
def test_kv_heads_are_replicated_never_split_below_one(heads, ranks):
    kept = memory.heads_per_rank(float(heads), float(ranks))
    assert kept >= 1
    assert kept * ranks >= heads


def test_one_rank_needs_no_all_reduce_volume():
    assert collectives.ring_volume_factor(1.0) == 0.0


@given(st.integers(2, 64), st.floats(1e3, 1e9))
def test_all_reduce_algorithms_order_at_large_messages(ranks, bandwidth):
    size = bandwidth * 10.0
    ring = collectives.ring_all_reduce(size, ranks, 0.0, 0.0, bandwidth)
    assert collectives.two_shot_all_reduce(size, ranks, 0.0, bandwidth) == pytest.approx(ring)
    assert collectives.one_shot_all_reduce(size, ranks, 0.0, bandwidth) >= ring * (1 - 1e-12) or ranks == 2
    assert collectives.in_network_all_reduce(size, ranks, 0.0, bandwidth) <= ring * (1 + 1e-12) or ranks <= 3


def test_cache_saves_what_the_articles_say():
    """LLaMA-2 70B: 8 KV heads, 327,680 bytes a token."""
    assert memory.kv_cache_bytes(80, 8, 128, 1, 2) == 327_680
    assert memory.kv_cache_bytes(80, 64, 128, 8 * 4096, 2) == pytest.approx(85.9e9, rel=1e-3)


@given(st.integers(1, 64), st.floats(1e-4, 1.0), st.floats(0, 0.1))
def test_pipeline_never_beats_its_stages(stages, stage, hop):
    assert pipeline.serial_latency(stages, stage, hop) >= stages * stage


@given(st.floats(1e-4, 0.1), st.floats(1e-4, 1.0), st.integers(1, 512), st.integers(1, 1024))
def test_little_s_law_in_the_steady_state(decode, prefill, users, output):
    between = decode + batching.stall_of_others(prefill, users - 1, max(1, output - 1))
    cycle = batching.cycle_time(prefill, between, output)
    rate = batching.output_rate(users, cycle)
    assert batching.in_system(rate / output, output * cycle) == pytest.approx(users)
    if output > 1:
        assert output * cycle == pytest.approx(users * prefill + (output - 1) * decode)


def test_generation_without_a_cache_costs_more():
    assert flops.generation(70e9, 1024, 256, cached=False) > 100 * flops.generation(70e9, 1024, 256)


def test_quantised_weights_weigh_less():
    assert (
        parameters.stored_bytes(1e9, 4, 128, 20)
        < parameters.stored_bytes(1e9, 8, 128, 20)
        < parameters.stored_bytes(1e9, 16, 1, 0)
    )


# Training ------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(st.integers(1, 64), st.floats(0.0, 400.0))
def test_sequence_parallelism_never_keeps_more(tensor, score):
    whole = activations.layer_bytes(4096.0, 8192.0, tensor, score)
    split = activations.sequence_parallel_bytes(4096.0, 8192.0, tensor, score)
    assert split <= whole * (1 + 1e-12)
    assert split * tensor == pytest.approx(activations.layer_bytes(4096.0, 8192.0, 1, score))


@given(st.integers(2, 512), st.floats(0.5, 4.0), st.floats(4.0, 200.0))
def test_the_best_group_keeps_no_more_than_any_whole_group(layers, entrance, inside):
    best = activations.best_group(float(layers), entrance, inside)
    least = min(activations.grouped_bytes(float(layers), float(k), entrance, inside) for k in range(1, layers + 1))
    assert 2.0 * best * inside <= least * (1 + 1e-9)


@given(st.integers(1, 4096))
def test_each_zero_stage_keeps_less(ranks):
    kept = [states.zero_bytes(7e9, 2.0, 2.0, 12.0, float(ranks), float(stage)) for stage in range(4)]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] == states.state_bytes(7e9, 2.0, 2.0, 12.0)
    assert kept[3] * ranks == pytest.approx(kept[0])


@given(st.integers(1, 128), st.integers(1, 512), st.integers(1, 16))
def test_chunks_shrink_the_bubble(stages, micro_batches, chunks):
    plain = pipeline.bubble_share(stages, micro_batches)
    assert pipeline.interleaved_bubble_share(stages, micro_batches, chunks) <= plain
    assert pipeline.interleaved_bubble_share(stages, micro_batches, 1) == plain


def test_full_recomputation_costs_one_forward_pass():
    forward, step = flops.forward_per_token(70e9), flops.training(70e9, 1)
    assert flops.recomputed_share(80, 80) == pytest.approx((step + forward) / step)


@pytest.mark.parametrize("mean", [1.0, 2.5, 9.0, 40.0, 200.0, 480.0])
def test_seats_of_arrivals_are_the_quantile_of_their_number(mean):
    exact = float(batching.random_count(0.999, mean))
    assert exact <= batching.seats_of_arrivals(mean) <= exact + 2


@pytest.mark.parametrize("spare", [0, 1, 3, 10])
@pytest.mark.parametrize("critical", [0.0, 0.4, 1.0])
def test_dies_with_spare_units_survive_so_many_defects_outside_of_what_is_critical(spare, critical):
    """The negative binomial distribution of defects, summed up to the spare units, each of them not critical."""
    area, density, clustering = 8e-4, 1500.0, 2.5
    defects = area * density
    hit = defects / (clustering + defects)
    none = (1.0 + defects / clustering) ** -clustering
    sums = none * sum(
        ((1.0 - critical) * hit) ** k * math.gamma(clustering + k) / math.gamma(clustering) / math.factorial(k)
        for k in range(spare + 1)
    )
    assert float(silicon.salvaged_yield(area, density, critical, float(spare), clustering)) == pytest.approx(sums)


def test_activations_at_their_peak():
    """7 tokens of two hidden states of 10 and one of 30, 2 B each; 3 samples of 100 logits in 2 B and once more in fp32."""
    assert memory.activation_peak_bytes(7, 10, 30, 2, 3, 100, 6) == 7 * 10 * 2 + 3 * 100 * 6
    assert memory.activation_peak_bytes(70, 10, 30, 2, 3, 100, 6) == 70 * 50 * 2
