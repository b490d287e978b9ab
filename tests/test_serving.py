"""Serving plans: the faults of existing calculators, each as a test that fails where the fault is made."""

import itertools
import math
import shlex
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import FIT
from hypothesis import given, settings
from hypothesis import strategies as st

from roofplan import catalogue, hf
from roofplan.api import plan_serving, simulate
from roofplan.catalogue.machines import machine
from roofplan.errors import InputError, NoPlan, RoofplanError
from roofplan.hf.blocks import linear
from roofplan.hf.find import read_model
from roofplan.hf.quantization import at_precision
from roofplan.laws import batching, collectives
from roofplan.operations import head_format, whole_model
from roofplan.operations.table import Operation, Split, Step, element_bytes, fraction, product
from roofplan.records.strategy import Strategy
from roofplan.records.terms import Term
from roofplan.records.ties import TIE
from roofplan.records.workload import Constraints, Workload
from roofplan.serving import (
    Request,
    Tally,
    bound_of,
    evaluate,
    floors,
    footprint,
    footprints,
    held_by,
    leaves,
    ledger,
    legal,
    limit_of,
    ordered,
    predict,
    search,
    user_ladder,
    ways_out,
)
from roofplan.serving.certainty import system_of
from roofplan.serving.evaluate import _close
from roofplan.serving.ledger import widest
from roofplan.serving.plan import figures_of
from roofplan.serving.prompts import host_of_passes
from roofplan.serving.request import pins
from roofplan.serving.rules import _cuts
from roofplan.serving.settings import with_settings
from roofplan.serving.step import PIECES, engine_term, launched, replayed, step_operations, step_term
from roofplan.timing.figures import THROUGHPUT, TIME_PER_TOKEN
from roofplan.timing.kernels import ROOFLINE, compute_rate, kernels_of, started_of
from roofplan.timing.network import Ranks, all_reduce
from roofplan.timing.power import power_limits
from roofplan.timing.rates import rates, scopes_by_vendor
from roofplan.training.request import pins_of as training_pins

LLAMA = read_model("llama-3.1-70b")
DEEPSEEK = read_model("deepseek-v3")
VLLM = catalogue.engine("vllm-0.33")
LLAMA_CPP = catalogue.engine("llama.cpp-b11200")


def unhosted(engine):
    """Return an engine whose prompts wait for no host."""
    return replace(engine, kernels=replace(engine.kernels, from_python=False))


def predicted(model, spec, strategy, users, engine=VLLM, workload=None):
    box = machine(spec)[0]
    return predict(
        model,
        strategy,
        engine,
        workload or Workload(),
        rates(box, engine, FIT),
        float(users),
        kv_bytes=2.0,
        budget=8192.0,
    )


# Memory -------------------------------------------------------------------------------------------


def test_the_latent_cache_is_whole_on_every_tensor_rank():
    one = footprint(DEEPSEEK, Strategy(tp=1), 2.0).kv_per_token
    assert one == 70_272
    assert footprint(DEEPSEEK, Strategy(tp=8), 2.0).kv_per_token == one
    assert {f.kv_per_token for f in footprints(DEEPSEEK, Strategy(pp=4), 2.0)} == {one * 16 / 61, one * 15 / 61}


def summed(model, step, name):
    """Return the work and the traffic of all operations of a name in one step."""
    found = [one for one in whole_model(model, step) if one.name == name]
    return sum(one.work for one in found), sum(one.traffic for one in found)


@pytest.mark.parametrize("engine", ["hf-transformers-4.57", "llama.cpp-b2899"])
def test_engines_without_latent_kernels_cache_the_keys_and_values_of_each_head(engine):
    """128 heads, keys 192 and values 128 wide, 61 layers."""
    widths = 192 + 128
    held = held_by(DEEPSEEK, catalogue.engine(engine))
    for tensor in (1, 8):
        assert footprint(held, Strategy(tp=tensor), 2.0).kv_per_token == 128 // tensor * widths * 61 * 2
    assert DEEPSEEK.latent
    assert not held.latent
    decode, again = Step(sequences=4.0, context=1000.0), Step(new=100.0, requests=1.0, past=900.0)
    assert summed(held, decode, "decode attention") == (
        2 * 4 * 1000 * 128 * (192 + 128) * 61,
        4 * 1000 * 128 * widths * 2 * 61,
    )
    assert summed(DEEPSEEK, decode, "decode attention")[1] == 4 * 1000 * (512 + 64) * 2 * 61
    for model, tokens in ((held, 100), (DEEPSEEK, 1000)):  # cached latents are expanded once more
        assert summed(model, again, "kv_b")[0] == 2 * tokens * 512 * 128 * (128 + 128) * 61
        latents = (100 + tokens) * (512 + 64)
        assert summed(model, again, "prefill attention")[1] == (latents + 1100 * 128 * widths) * 2 * 61
    assert held_by(DEEPSEEK, VLLM) == DEEPSEEK


def test_only_attention_data_parallelism_divides_the_latent_cache_among_requests():
    box, work = machine("h200-sxm:8")[0], Workload()
    engine = with_settings(catalogue.engine("sglang-0.5.23"), {"memory_share": 0.9})
    books = [
        ledger(DEEPSEEK, s, box, engine, work, footprints(DEEPSEEK, s, 2.0))
        for s in (Strategy(tp=8, ep=8), Strategy(tp=8, ep=8, attention_dp=8))
    ]
    assert books[1].by_memory > 5 * books[0].by_memory


@pytest.mark.parametrize(
    ("engine", "kv", "each"),
    [("vllm-0.33", "bf16", 1152 + 132), ("vllm-0.33", "fp8", 656 + 132), ("vllm-0.33", "nvfp4", 324 + 132)],
)
def test_selected_latents_are_kept_as_the_engine_packs_them(engine, kv, each):
    """DeepSeek-V3.2: 512 and 64 numbers of a latent; 128 of the indexer, which keeps 8 bits and a scale whatever the cache."""
    model = held_by(read_model("deepseek-v3.2"), catalogue.engine(engine))
    foot = footprint(model, Strategy(tp=8), element_bytes(kv))
    assert foot.kv_per_token / 61 == pytest.approx(each, rel=2e-3)


def test_only_the_last_stage_samples():
    feet = footprints(LLAMA, Strategy(pp=4), 2.0)
    assert [foot.last for foot in feet] == [False] * (len(feet) - 1) + [True]
    box, engine = machine("h100-sxm:4")[0], catalogue.engine("vllm-0.11")
    books = [ledger(LLAMA, Strategy(pp=4), box, engine, Workload(), (foot,)) for foot in feet]
    assert books[-1].activations > 4e9 > books[0].activations


def test_kv_heads_are_replicated_beyond_their_number():
    four, eight, sixteen = (footprint(LLAMA, Strategy(tp=tp), 2.0).kv_per_token for tp in (4, 8, 16))
    assert four == 2 * eight
    assert sixteen == eight


def test_weights_are_bytes_of_all_matrices():
    foot = footprint(LLAMA, Strategy(), 2.0)
    assert foot.weights == 2 * LLAMA.total


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_a_rank_never_holds_less_than_its_share(tp):
    assert footprint(LLAMA, Strategy(tp=tp), 2.0).weights >= 2 * LLAMA.total / tp


def test_windowed_layers_are_charged_more_at_admission_than_in_steady_state():
    gemma = read_model("gemma-3-27b")
    foot = footprint(gemma, Strategy(), 2.0)
    assert foot.request(131_072.0, admitted=True, budget=8192.0) > foot.request(131_072.0)


def test_memory_lines_add_up_to_the_card():
    for name, spec, strategy, engine in (
        ("llama-3.1-70b", "h100-sxm:8", Strategy(tp=8), VLLM),
        ("qwen3-32b-awq", "rtx-4090:1", Strategy(), LLAMA_CPP),
    ):
        model, box = read_model(name), machine(spec)[0]
        book = ledger(model, strategy, box, engine, Workload(), footprints(model, strategy, 2.0))
        assert book.term(0.0).value == pytest.approx(book.capacity, rel=1e-9)


def test_a_loop_over_a_prompt_s_tokens_takes_time_for_each_of_them():
    hybrid, alone = read_model("nemotron-3-nano"), Strategy()
    r = rates(machine("rtx-5090:1")[0], LLAMA_CPP, FIT)

    def scanned(tokens, kernels=LLAMA_CPP.kernels):
        under = replace(r, engine=replace(LLAMA_CPP, kernels=kernels))
        found = step_term("prompt", hybrid, alone, Step(new=tokens, requests=1.0), under, kv_bytes=2.0)
        return sum(value for leaf, value in leaves(found) if leaf.name == "state scan")

    assert scanned(512.0) > 0.0
    assert scanned(1024.0) == pytest.approx(2.0 * scanned(512.0))
    assert scanned(512.0, replace(LLAMA_CPP.kernels, scans=False)) == 0.0
    assert any(one.name == "scan_share" for one in r.sources["scan"] if hasattr(one, "law"))


def decoding(model, engine, users, spec="rtx-5090:1"):
    """Return a decode step of a model and the rates that it runs at."""
    r = rates(machine(spec)[0], engine, FIT)
    step = Step(sequences=users, context=512.0)
    return step_term("decode", model, Strategy(), step, r, kv_bytes=2.0), r


def spent(term, name, limit=None):
    """Return the time of a step's leaves of a name, all or those that a limit binds [s]."""
    named = [(leaf, value) for leaf, value in leaves(term) if leaf.name == name]
    return sum(value for leaf, value in named if limit in {None, limit_of(leaf)})


def test_tiles_of_blocks_are_read_and_then_computed_with():
    """Of more rows than a matrix-vector kernel takes; other formats, and tensors in 16 bits, are loaded meanwhile."""
    packed = at_precision(read_model("llama-3.1-8b"), "q4_k_m")
    whole, _ = decoding(packed, LLAMA_CPP, 32.0)
    kernels = replace(LLAMA_CPP.kernels, waits_for_blocks=False)
    meanwhile, _ = decoding(packed, replace(LLAMA_CPP, kernels=kernels), 32.0)
    both = [spent(whole, "gate+up", limit) for limit in ("memory_bandwidth", "compute")]
    assert min(both) > 0.0
    assert sum(both) == pytest.approx(spent(whole, "gate+up"))
    assert max(both) == pytest.approx(spent(meanwhile, "gate+up"))
    few, _ = decoding(packed, LLAMA_CPP, 8.0)
    assert all("unpacking" in leaf.numbers for leaf, _ in leaves(few) if leaf.name == "gate+up")
    plain, _ = decoding(read_model("llama-3.1-8b"), LLAMA_CPP, 32.0)
    assert len([leaf for leaf, _ in leaves(plain) if leaf.name == "gate+up"]) == 1
    assert float(whole.value) == pytest.approx(sum(value for _, value in leaves(whole)))


def test_a_row_more_costs_a_matrix_vector_kernel_its_multiply_adds():
    packed = at_precision(read_model("llama-3.1-8b"), "q8_0")
    times = []
    for users in (1.0, 2.0, 8.0):
        term, r = decoding(packed, LLAMA_CPP, users)
        times.append(spent(term, "gate+up"))
    op = 2.0 * 4096.0 * 14336.0 * 32.0  # multiply-adds of a row in all layers
    assert times[1] - times[0] == pytest.approx(op * r.vector.multiplying / r.vector_peak, rel=0.02)
    assert times[2] - times[0] == pytest.approx(7.0 * (times[1] - times[0]))
    assert (
        r.vector.multiplying == FIT.find("vector", "multiplying", scopes_by_vendor(LLAMA_CPP, r.machine.device)).value
    )


def test_states_of_a_recurrence_are_gathered_updated_and_copied_back():
    """llama.cpp passes over them three times, engines whose kernels update them where they lie once."""
    hybrid = read_model("qwen3.5-9b")
    moved = {
        name: next(
            leaf.numbers["passes"]
            for leaf, _ in leaves(decoding(hybrid, catalogue.engine(name), 16.0)[0])
            if leaf.name == "state update"
        )
        for name in ("llama.cpp-b11200", "llama.cpp-b4100", "vllm-0.33")
    }
    assert moved == {"llama.cpp-b11200": 6.0, "llama.cpp-b4100": 6.0, "vllm-0.33": 2.0}
    mine, _ = decoding(hybrid, LLAMA_CPP, 64.0)
    once, _ = decoding(hybrid, replace(LLAMA_CPP, kernels=replace(LLAMA_CPP.kernels, state_traffic=2.0)), 64.0)
    assert spent(mine, "state update") > 2.5 * spent(once, "state update")


def test_reserving_engines_admit_fewer():
    box = machine("h100-sxm:8")[0]
    foot = footprints(LLAMA, Strategy(tp=8), 2.0)
    goes, reserves = (
        ledger(LLAMA, Strategy(tp=8), box, catalogue.engine(e), Workload(), foot)
        for e in ("vllm-0.33", "tensorrt-llm-1.2")
    )
    assert goes.charged_tokens == 1152
    assert reserves.charged_tokens == 1280


# Time ---------------------------------------------------------------------------------------------


def test_prefill_time_falls_with_tensor_parallelism():
    times = [float(predicted(LLAMA, f"h100-sxm:{max(2, tp)}", Strategy(tp=tp), 1).ttft.value) for tp in (2, 4, 8)]
    assert times == sorted(times, reverse=True)


def test_a_layer_split_adds_memory_not_bandwidth():
    """llama.cpp over several cards generates no faster than one card would."""
    model = read_model("llama-3.1-8b")
    one = predicted(model, "rtx-4090:1", Strategy(), 1, LLAMA_CPP)
    four = predicted(model, "rtx-4090:4", Strategy(pp=4), 1, LLAMA_CPP)
    assert float(four.tpot.value) >= float(one.tpot.value)
    assert footprint(model, Strategy(pp=4), 2.0).weights < footprint(model, Strategy(), 2.0).weights


def test_pipeline_groups_raise_the_rate_but_not_the_speed_of_one():
    one = predicted(LLAMA, "h100-sxm:8", Strategy(tp=4, pp=2), 1)
    many = predicted(LLAMA, "h100-sxm:8", Strategy(tp=4, pp=2), 2)
    slower = float(many.tpot.value) / float(one.tpot.value)
    stall = rates(machine("h100-sxm:8")[0], VLLM, FIT).stall
    assert (
        1.0 + stall / 2 - 0.1 < slower < 1.05 + stall / 2
    )  # both wait for the stage with the head, and for each other
    assert float(many.rate) == pytest.approx(2 * float(one.rate) / slower, rel=1e-2)


def test_one_user_passes_the_stages_one_after_another():
    """Stages that layers do not fill evenly cost one user their sum, and only a full pipeline its slowest stage each time."""
    model = read_model("qwen3-8b")  # 36 layers on 8 devices, and the head on the last
    alone = predicted(model, "rtx-4090:1", Strategy(), 1, LLAMA_CPP).token
    layers = predicted(model, "rtx-4090:8", Strategy(pp=8), 1, LLAMA_CPP).token
    reads = "weight matmuls"
    assert float(layers.find(reads).value) == pytest.approx(float(alone.find(reads).value), rel=1e-6)
    times = {
        users: float(predicted(model, "rtx-4090:8", Strategy(pp=8), users).token.find(reads).value)
        for users in (1, 4, 8)
    }
    whole = float(predicted(model, "rtx-4090:1", Strategy(), 1).token.find(reads).value)
    assert times[1] == pytest.approx(whole, rel=1e-6)
    assert times[1] <= times[4] < times[8]
    assert 5 / 4.5 * whole < times[8]  # a stage of five layers, or the last one


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "users", "within"), [("dp=8,ep=8", 89, 0.06), ("tp=2,dp=4,ep=8", 112, 0.05), ("dp=8,ep=8", 228, 0.12)]
)
def test_groups_that_step_together_wait_for_each_others_prompts(strategy, users, within):
    """Their steady state is that of clients who are not in step, as simulated."""
    given = {"engine": "vllm-0.33", "strategy": strategy}
    (plan,) = plan_serving("deepseek-v3", ["h200-sxm:8"], concurrency=users, top=1, **given).plans
    seen = simulate(
        "deepseek-v3",
        ["h200-sxm:8"],
        clients=users,
        lengths="lognormal:0.3",
        requests=40 * users,
        warmup=str(10 * users),
        **given,
    ).simulation
    mean = seen.figures["tpot"].summary.mean
    assert float(plan.prediction.tpot.value) == pytest.approx(mean, rel=within)


def test_prompts_wait_for_a_host_that_starts_their_kernels_one_by_one():
    sglang = catalogue.engine("sglang-0.5")
    slow = FIT.with_([replace(FIT.find("kernel", "launch", ["any"]), scope="sglang", value=1e-4)])
    fast = FIT.with_([replace(FIT.find("kernel", "launch", ["any"]), scope="sglang", value=0.0)])
    box = machine("h200-sxm:8")[0]

    def first(fit, tokens, engine=sglang):
        work = Workload(input=tokens, output=64, context=16384)
        return predict(DEEPSEEK, Strategy(tp=8), engine, work, rates(box, engine, fit), 1, kv_bytes=2.0, budget=16384.0)

    short, busy = first(slow, 256), first(slow, 8192)
    waits = short.ttft.find("host launches")
    assert waits.numbers["kernels"] * 1e-4 == pytest.approx(
        float(short.ttft.value) - float(short.ttft.find("engine step").value)
    )
    assert first(fast, 256).ttft.find("host launches") is None
    assert busy.ttft.find("host launches") is None
    assert float(busy.ttft.value) == float(first(fast, 8192).ttft.value)
    assert float(short.token.value) == float(first(fast, 256).token.value)  # a captured graph holds it
    compiled = catalogue.engine("tensorrt-llm-0.17")
    assert rates(box, compiled, slow).launch == 0.0
    assert rates(machine("tpu-v6e:4")[0], catalogue.engine("vllm-0.33"), slow).launch == 0.0


@pytest.mark.parametrize(
    ("engine", "model", "most"),
    [("vllm-0.33", LLAMA, 512), ("sglang-0.5.23", LLAMA, 8192), ("sglang-0.5.23", DEEPSEEK, 2048)],
)
def test_short_prompts_run_from_captured_graphs(engine, model, most):
    """The host starts the graph of each layer, the write of its cache and attention; it starts every kernel of a longer prompt."""
    box, engine, layers = machine("h200-sxm:8")[0], catalogue.engine(engine), len(model.decoder.layers)
    r = rates(box, engine, FIT.with_([replace(FIT.find("kernel", "launch", ["any"]), value=0.1)]))

    def started(tokens):
        work = Workload(input=tokens, output=64, context=32768)
        p = predict(model, Strategy(tp=8), engine, work, r, 1, kv_bytes=2.0, budget=16384.0)
        return float(p.ttft.find("host launches").numbers["kernels"])

    assert started(most - 1) == PIECES * layers
    assert started(most + 1) > 2 * PIECES * layers


def test_which_prompts_run_from_captured_graphs():
    vllm, sglang, old = (catalogue.engine(name) for name in ("vllm-0.33", "sglang-0.5.23", "sglang-0.5"))
    nvidia, amd = (machine(name)[0] for name in ("h200-sxm:8", "mi300x:8"))

    def most(engine, box=nvidia, model=LLAMA, **degrees):
        return float(replayed(model, Strategy(**degrees), box, engine))

    assert most(vllm, tp=8) == most(vllm, amd, tp=8) == most(vllm, tp=4, pp=2) == most(vllm, model=DEEPSEEK) == 512
    assert (most(sglang, tp=8), most(sglang, model=DEEPSEEK, tp=8)) == (8192, 2048)
    assert most(sglang, amd, tp=8) == most(sglang, tp=4, pp=2) == most(sglang, tp=8, attention_dp=8) == 0
    assert most(old, tp=8) == most(catalogue.engine("vllm-0.6"), tp=8) == 0


def test_one_rank_sends_nothing():
    tree = predicted(read_model("llama-3.1-8b"), "h100-sxm:1", Strategy(), 8).tpot
    assert tree.find("all-reduce") is None


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 512), st.sampled_from([1, 2, 4, 8]))
def test_no_step_exceeds_the_peak_or_the_bandwidth(users, tp):
    """Prefill and decode together never compute above the dense peak, nor read above the wire rate."""
    box = machine("h100-sxm:8")[0]
    r = rates(box, VLLM, FIT)
    for step in (
        Step(sequences=float(users), context=1024.0),
        Step(new=2048.0, requests=2.0),
        Step(sequences=float(users), context=1024.0, new=2048.0, requests=2.0),
    ):
        term = step_term("step", LLAMA, Strategy(tp=tp), step, r, kv_bytes=2.0)
        work = sum(
            float(leaf.numbers["layers"]) * leaf.numbers["work"][0]
            for leaf, _ in leaves(term)
            if leaf.law == "roofline.overlapped_time"
        )
        read = sum(
            float(leaf.numbers["layers"]) * leaf.numbers["moved"][0]
            for leaf, _ in leaves(term)
            if leaf.law == "roofline.overlapped_time"
        )
        assert work / float(term.value) <= r.peak["bf16"]
        assert read / float(term.value) <= r.wire


@pytest.mark.parametrize(("users", "prompt", "output"), [(8, 512, 64), (64, 512, 64), (128, 1024, 32)])
def test_the_steady_state_is_that_of_a_simulated_batch(users, prompt, output):
    """A closed loop, step by step: each step decodes who runs and computes waiting prompts up to the token budget."""
    model, box, budget = read_model("llama-3.1-8b"), machine("h100-sxm:1")[0], 8192.0
    r = rates(box, VLLM, FIT)
    rng = np.random.default_rng(3)
    left = list(
        rng.integers(1, output + 1, users)
    )  # tokens that each running user still wants, out of step with one another
    waiting: list[float] = []  # prompt tokens of each waiting user that are still to be computed
    clock = tokens = 0.0
    for step in range(12 * output):
        running = float(len(left))
        room, chunk, started = budget - running, 0.0, 0
        for i, need in enumerate(waiting):
            take = min(need, room - chunk)
            waiting[i] = need - take
            chunk += take
        started = sum(need <= 0 for need in waiting)
        waiting = [need for need in waiting if need > 0]
        context = prompt + output / 2.0
        work = Step(sequences=running, context=context, new=chunk, requests=max(chunk / prompt, 1e-9) if chunk else 0.0)
        term = step_term("step", model, Strategy(), work, r, kv_bytes=2.0)
        seconds = float((launched(term, running + chunk, model, Strategy(), r) if chunk else term).value)
        seconds += float(engine_term(running, r).value)
        left = [n - 1 for n in left]
        if step >= 4 * output:
            clock, tokens = clock + seconds, tokens + running + started
        waiting += [float(prompt)] * sum(n <= 0 for n in left)
        left = [n for n in left if n > 0] + [output - 1] * started
    work = Workload(input=prompt, output=output, context=prompt + output)
    p = predict(model, Strategy(), VLLM, work, r, float(users), kv_bytes=2.0, budget=budget)
    # steps with several prompts outlast the host's launches where those with one do not: the mean of times is not that of a mean step, up to a quarter here
    assert tokens / clock == pytest.approx(float(p.rate), rel=0.26)


@pytest.mark.parametrize(("prompt", "output", "users"), [(1024, 256, 1), (1024, 256, 16), (8192, 64, 8), (512, 64, 32)])
def test_prompts_that_run_alone_stall_everyone_but_their_own(prompt, output, users):
    """TPOT = d + (c - 1) P / (N - 1); cycle time = (c P + (N - 1) d) / N."""
    work = Workload(input=prompt, output=output, context=prompt + output)
    p = predicted(read_model("llama-3.1-8b"), "h100-sxm:1", Strategy(), users, catalogue.engine("sglang-0.5.23"), work)
    d, own = float(p.token.value), float(p.ttft.value)
    other = (float(p.tpot.value) - d) * (output - 1) / max(1, users - 1)
    assert float(p.cycle.value) == pytest.approx((own + (users - 1) * other + (output - 1) * d) / output)
    assert float(p.rate) == pytest.approx(users / float(p.cycle.value))
    assert (float(p.tpot.value) == pytest.approx(d)) == (users == 1)
    if users > 1:
        assert 0.75 * own < other < 1.01 * own  # several prompts at once have fewer launches each


@pytest.mark.parametrize(("prompt", "output", "users"), [(1024, 256, 16), (16384, 256, 4), (8192, 64, 8)])
def test_prompts_that_ride_with_tokens_take_what_mixed_steps_take_more(prompt, output, users):
    """P = k (m - d), TTFT = k m, cycle time = (c P + (N - 1 + k) d) / N, TPOT = d + (c - 1) P / (N - 1)."""
    work = Workload(input=prompt, output=output, context=prompt + output)
    p = predicted(read_model("llama-3.1-8b"), "h100-sxm:1", Strategy(), users, workload=work)
    d, k = float(p.token.value), max(1.0, prompt / (8192.0 - users))
    m = d + float(p.carried.value)
    cost = (float(p.tpot.value) - d) * (output - 1) / (users - 1)
    assert 0.95 * k * (m - d) < cost < (1.0 + 1e-9) * k * (m - d)  # more than one prompt a step, where two of them meet
    assert float(p.ttft.value) == pytest.approx(k * m, rel=0.03)
    assert float(p.cycle.value) == pytest.approx((users * cost + (output - 1 + k) * d) / output, rel=0.01)
    assert float(p.carrying[0]) == pytest.approx((users - 1) * cost / (m - d) / (output - 1))


def test_no_token_waits_longer_than_a_mixed_step_and_the_rest_waits_before_the_first():
    work = Workload(input=8192, output=64, context=8256)
    few, many = (predicted(read_model("llama-3.1-8b"), "h100-sxm:1", Strategy(), n, workload=work) for n in (8, 200))
    longest = [float(p.token.value) + float(p.carried.value) for p in (few, many)]
    assert float(few.tpot.value) < longest[0]
    assert 0.97 * longest[1] < float(many.tpot.value) <= longest[1] * (1 + 1e-9)
    assert float(many.ttft.value) > 20 * float(few.ttft.value)
    assert 64 * float(many.cycle.value) == pytest.approx(float(many.ttft.value) + 63 * float(many.tpot.value))


def test_one_user_does_not_wait_for_its_own_prompt():
    """8,192 in and 64 out on one H100: clients see the decode step, 7.7 ms, not the 11.4 ms that a token takes with its prompt."""
    plan = plan_serving("llama-3.1-8b", ["h100-sxm:1"], input=8192, output=64, concurrency=1).plans[0]
    assert plan.metrics["tpot"].value == pytest.approx(float(plan.prediction.token.value))
    assert plan.metrics["cycle_time"].value > 1.3 * plan.metrics["tpot"].value
    assert plan.metrics["tpot"].value < 9e-3
    assert plan_serving("llama-3.1-8b", ["h100-sxm:1"], input=8192, output=64, tpot="9ms").plans


def test_another_s_prompt_costs_a_pipeline_one_of_its_stages():
    work = Workload(input=4096, output=128, context=8192)
    whole, cut = (
        predicted(LLAMA, "h100-sxm:8", s, 8, catalogue.engine("sglang-0.5.23"), work)
        for s in (Strategy(tp=4), Strategy(tp=4, pp=2))
    )
    stalls = [float(p.tpot.find("prompts of others").value) for p in (whole, cut)]
    assert stalls[1] == pytest.approx(stalls[0] / 2, rel=0.1)
    layers = catalogue.engine("llama.cpp-b11200")
    whole, cut = (
        predicted(read_model("llama-3.1-8b"), f"rtx-4090:{n}", Strategy(pp=n), 4, layers, work) for n in (1, 2)
    )
    stalls = [float(p.tpot.find("prompts of others").value) for p in (whole, cut)]
    assert stalls[1] > 0.5 * stalls[0]  # its stages are in turn, but for what the copies of their inputs overlap


def test_ranks_that_share_experts_are_one_copy_of_the_model():
    assert Strategy(tp=1, dp=8, ep=8).replicas == 1
    assert Strategy(tp=2, dp=4, ep=2).replicas == 4


def test_idle_replicas_do_not_stall_a_user():
    alone, spread = (predicted(LLAMA, "h100-sxm:8", Strategy(tp=4, dp=2), n) for n in (1, 2))
    assert float(alone.tpot.value) == float(spread.tpot.value) == float(alone.token.value)
    assert float(spread.rate) == pytest.approx(2 * float(alone.rate))
    assert float(spread.busy) == pytest.approx(2 * float(alone.busy))


def test_answers_of_one_token_have_no_time_between_tokens():
    result = plan_serving("llama-3.1-8b", ["h100-sxm:1"], output=1)
    for plan in (*result.plans, *result.ladder):
        assert not plan.metrics.keys() & {"tpot", "tokens_per_second_per_user"}
        requests = plan.metrics["output_tokens_per_second"].value
        assert batching.in_system(requests, plan.metrics["cycle_time"].value) == pytest.approx(plan.users)
        assert plan.metrics["ttft"].value == pytest.approx(plan.metrics["cycle_time"].value)
    for limit in ({"tpot": "30ms"}, {"tokens_per_second_per_user": "20"}):
        with pytest.raises(InputError, match="--output 1"):
            plan_serving("llama-3.1-8b", ["h100-sxm:1"], output=1, **limit)


def test_little_s_law_holds_in_every_row():
    """Users = requests a second x seconds that one stays, in every plan and on every rung."""
    found = plan_serving("llama-3.1-70b", ["h100-sxm:8", "rtx-4090:8", "mi300x:8"])
    for plan in (*found.plans, *found.ladder):
        m, w = plan.metrics, plan.workload
        requests = m["output_tokens_per_second"].value / w.output
        stays = w.output * m["cycle_time"].value
        assert stays == pytest.approx(m["ttft"].value + (w.output - 1) * m["tpot"].value)
        assert batching.in_system(requests, stays) == pytest.approx(plan.users, rel=1e-9)
        assert m["tokens_per_second_per_user"].value * m["tpot"].value == pytest.approx(1.0)
        assert 0.0 < float(plan.prediction.input_share) < 1.0


@settings(max_examples=20, deadline=None)
@given(st.floats(1.0, 4.0))
def test_more_bandwidth_is_never_slower(factor):
    box = machine("h100-sxm:8")[0]
    q = dict(box.device.quantities)
    q["memory_bandwidth"] = replace(q["memory_bandwidth"], value=q["memory_bandwidth"].value * factor)
    quicker = replace(box, device=replace(box.device, quantities=q))
    a, b = (
        predict(
            LLAMA, Strategy(tp=8), VLLM, Workload(), rates(m, VLLM, FIT), 64.0, kv_bytes=2.0, budget=8192.0
        ).tpot.value
        for m in (box, quicker)
    )
    assert b <= a * (1 + 1e-12)


def test_a_prefix_hit_and_drafts_make_it_quicker():
    base = predicted(DEEPSEEK, "h200-sxm:8", Strategy(tp=8, ep=8), 32)
    engine, half = unhosted(VLLM), Workload(prefix_hit=0.5)
    cached = predicted(DEEPSEEK, "h200-sxm:8", Strategy(tp=8, ep=8), 32, workload=half)
    less, more = (predicted(DEEPSEEK, "h200-sxm:8", Strategy(tp=8, ep=8), 32, engine, load) for load in (half, None))
    assert float(less.tpot.value) < float(more.tpot.value)
    drafted = predicted(DEEPSEEK, "h200-sxm:8", Strategy(tp=8, ep=8), 1, workload=Workload(drafted=1, acceptance=0.85))
    alone = predicted(DEEPSEEK, "h200-sxm:8", Strategy(tp=8, ep=8), 1)
    assert float(cached.tpot.value) <= float(base.tpot.value) * (1 + 1e-9)  # both may wait for the host
    assert float(drafted.tpot.value) < float(alone.tpot.value)


def test_array_path_equals_scalar_path():
    """A grid of strategies and users gives what each gives alone, to 1e-12."""
    box = machine("h100-sxm:8")[0]
    r = rates(box, VLLM, FIT)
    for model in (LLAMA, DEEPSEEK, read_model("jamba-v0.1"), read_model("gpt-oss-120b")):
        options = [
            Strategy(tp=8),
            Strategy(tp=4, pp=2),
            Strategy(tp=2, pp=2, dp=2),
            Strategy(pp=8),
            Strategy(tp=4, dp=2),
        ]
        if model.experts:
            options.append(Strategy(tp=2, dp=4, ep=8))
        users = np.array([1.0, 8.0, 57.0, 300.0])
        many = Strategy(
            **{
                name: np.array([[float(getattr(s, name))] for s in options])
                for name in ("tp", "pp", "dp", "ep", "attention_dp")
            }
        )
        grid = predict(
            model, many, VLLM, Workload(), r, np.broadcast_to(users, (len(options), 4)), kv_bytes=2.0, budget=8192.0
        )
        for i, s in enumerate(options):
            for j, n in enumerate(users):
                alone = predict(model, s, VLLM, Workload(), r, float(n), kv_bytes=2.0, budget=8192.0)
                for name in ("tpot", "ttft"):
                    value = np.broadcast_to(getattr(grid, name).value, (len(options), 4))[i, j]
                    assert value == pytest.approx(float(getattr(alone, name).value), rel=1e-12), (model.id, s, n, name)
                assert np.broadcast_to(grid.rate, (len(options), 4))[i, j] == pytest.approx(
                    float(alone.rate), rel=1e-12
                )


@pytest.mark.parametrize(
    ("model", "on", "more"),
    [
        ("recurrentgemma-9b", "h800-sxm:8", {"precision": "q4_k_m"}),
        ("gpt-oss-120b", "apple-m4-max:1", {}),
        ("qwen3-vl-8b", "l40s:4", {"precision": "q4_k_m", "concurrency": "16"}),
        ("llama-3.1-8b", "epyc-9654:1", {"precision": "q8_0"}),
        ("qwen3.5-35b-a3b", "h20:8", {"precision": "q4_k_m", "draft": "1:0.8"}),
        ("deepseek-v3", "h200-sxm:8", {"engine": "sglang", "rate": "2req/s"}),
        ("mixtral-8x22b", "mi300x:8", {"prefix_hit": "30%"}),
        ("llama-3.1-70b", "h100-sxm:8", {"engine": "tensorrt-llm", "precision": "fp8", "tpot": "30ms"}),
        ("llama-3.1-70b", "rtx-4090:8", {"engine": "vllm", "precision": "awq", "output": "1"}),
        ("qwen3-32b", "tpu-v6e:8", {"best": "energy"}),
        ("gemma-3-27b", "gaudi3:8", {"kv_precision": "fp8", "power": "9kW"}),
    ],
)
def test_what_a_search_says_of_a_plan_is_what_its_own_prediction_says(model, on, more):
    """The search predicts all plans as one grid; each plan's times are then predicted by themselves, and their trees add up."""
    found = plan_serving(model, [on], **more)
    for plan in (*found.plans, *found.ladder):
        p, watts = plan.prediction, plan.power
        alone = figures_of(
            p,
            plan.workload,
            plan.machine,
            plan.utilisation,
            watts=None if watts is None else watts.value,
            cost=plan.cost,
        )
        assert plan.values == pytest.approx(
            {**{name: float(value) for name, value in alone.items()}, "max_concurrency": plan.memory.max_concurrency},
            rel=1e-12,
        )
        for term in (one for time in p.times for one in time.walk() if one.combine == "sum" and one.parts):
            assert sum(float(part.value) for part in term.parts) == pytest.approx(float(term.value), rel=1e-9)


def test_the_tree_adds_up():
    p = predicted(DEEPSEEK, "h200-sxm:8", Strategy(tp=8, ep=8), 64)
    for term in p.tpot.walk():
        if term.combine == "sum" and term.parts:
            assert sum(float(part.value) for part in term.parts) == pytest.approx(float(term.value), rel=1e-9)


# Search -------------------------------------------------------------------------------------------


def brute_force(asked):
    """Return the best objective over every strategy and every concurrency up to the most that memory holds."""
    from roofplan import money
    from roofplan.serving import cache_format, strategies

    best = math.inf
    for box in asked.machines:
        r = rates(box, VLLM, FIT)
        cost = money.hourly(box, "rent", FIT)
        for s in strategies(asked.model, box, VLLM, {}):
            if legal(asked.model, s, VLLM):
                continue
            kv = element_bytes(cache_format(asked.model, "checkpoint"))
            book = ledger(asked.model, s, box, VLLM, asked.workload, footprints(asked.model, s, kv))
            if not book.fits:
                continue
            users = np.arange(1.0, book.max_concurrency + 1)
            p = predict(asked.model, s, VLLM, asked.workload, r, users, kv_bytes=kv, budget=book.budget_tokens)
            rate = np.where(p.tpot.value <= asked.constraints.tpot, p.rate, 0.0)
            if rate.max() > 0:
                best = min(best, cost.total / float(rate.max()))
    return best


@pytest.mark.parametrize("name", ["llama-3.1-70b", "qwen3-30b-a3b", "deepseek-v2-lite", "llama-3.1-8b"])
@pytest.mark.parametrize("tpot", [0.02, 0.04, 0.1])
def test_the_search_finds_the_brute_force_optimum(name, tpot):
    from roofplan.records.workload import Constraints

    asked = Request(
        model=read_model(name),
        machines=tuple(machine("h100-sxm:8")),
        constraints=Constraints(tpot=tpot),
        engine="vllm-0.33",
    )
    plan = search(asked, FIT).plans[0]
    found, best = plan.cost.total / plan.metrics["output_tokens_per_second"].value, brute_force(asked)
    assert best * (1.0 - 1e-9) <= found <= best * (1.0 + TIE)  # of plans that tie the quicker stands first


def test_counts_descend():
    t = plan_serving("llama-3.1-70b", ["h100-sxm:8"]).tally
    assert t.enumerated >= t.legal >= t.fits > 0
    assert t.predicted >= t.fits


def test_order_and_ties():
    result = plan_serving("llama-3.1-70b", ["h100-sxm:8"])
    values = [
        p.cost.total / p.metrics["output_tokens_per_second"].value
        for p in result.plans
        if p.metrics["tpot"].value <= 0.05
    ]
    assert values == sorted(values)
    assert any(p.pareto for p in result.plans)


def test_precision_is_the_checkpoint_s_own_unless_asked():
    assert {p.precision for p in plan_serving("llama-3.1-70b", ["h100-sxm:8"]).plans} == {"checkpoint"}
    opened = plan_serving("llama-3.1-70b", ["h100-sxm:8"], precision="any").plans
    assert {"fp8", "checkpoint"} <= {p.precision for p in opened}
    assert all(p.changes_model for p in opened if p.precision != "checkpoint")


def test_limits_are_kept_and_demands_reached():
    for plan in plan_serving("llama-3.1-70b", ["h100-sxm:8"], tpot="30ms", budget="40USD/h").plans:
        assert plan.metrics["tpot"].value <= 0.03
        assert plan.metrics["cost_per_hour"].value <= 40
    assert all(p.users >= 100 for p in plan_serving("llama-3.1-70b", ["h100-sxm:8"], concurrency=100).plans)


@pytest.mark.slow
def test_datacenter_leaves_out_geforce():
    names = {p.machine.device.id for p in plan_serving("qwen3-8b", datacenter=True).plans}
    assert names
    assert not any(catalogue.accelerator(n).geforce_licence for n in names)


def test_pins():
    plans = plan_serving("llama-3.1-70b", ["h100-sxm:8"], strategy="tp=8").plans
    assert [p.label for p in plans] == ["tp8"]
    with pytest.raises(RoofplanError, match="tp=3"):
        plan_serving("llama-3.1-70b", ["h100-sxm:8"], strategy="tp=3")
    assert plan_serving("llama-3.1-70b", ["h100-sxm:3"]).plans[0].strategy.pp == 3


def test_a_layout_pins_as_plans_print_it():
    ask = {"model": "deepseek-v3", "on": ["h200-sxm:8"], "engine": "sglang", "users": 64}
    for layout in ("tp8 attention-dp8", "tp4 pp2"):
        plans = plan_serving(**ask, strategy=layout).plans
        assert layout in {plan.label for plan in plans}
        assert len({tuple(plan.strategy.as_dict()[name] for name in pins(layout)) for plan in plans}) == 1
    assert pins("tp8,pp2, dp = 3") == {"tp": 8, "pp": 2, "dp": 3}
    assert training_pins("tp8 pp2, recompute=full") == {"tp": 8, "pp": 2, "recompute": "full"}
    assert pins("TP8 pp=2") == {"tp": 8, "pp": 2}
    wrong = (
        ("tp8 tp4", "given twice"),
        ("tq8", "'tq' is not known"),
        ("tp", "needs a degree"),
        ("8", "'8'"),
        ("=8", "''"),
    )
    for said, why in wrong:
        with pytest.raises(RoofplanError, match=why):
            pins(said)


@pytest.mark.slow
def test_nothing_fits_says_what_would():
    with pytest.raises(NoPlan) as refused:
        plan_serving("llama-3.1-70b", ["rtx-4090:4"])
    assert refused.value.binding == "memory"
    assert {item["argument"] for item in refused.value.relax} >= {"--precision", "--on"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "argument"),
    [
        ({"tpot": "1ms"}, "--tpot"),
        ({"ttft": "1ms"}, "--ttft"),
        ({"concurrency": 10**6}, "--concurrency"),
        ({"tokens_per_second_per_user": 9999}, "--tokens-per-second-per-user"),
    ],
)
def test_impossible_limits_name_themselves(limit, argument):
    with pytest.raises(NoPlan) as refused:
        plan_serving("llama-3.1-70b", ["h100-sxm:8"], **limit)
    assert argument in {item["argument"] for item in refused.value.relax}


def test_an_encoder_is_refused():
    with pytest.raises(RoofplanError, match="encoder"):
        plan_serving("bert-base", ["h100-sxm:1"])


def test_a_stand_in_format_is_never_calibrated():
    plan = plan_serving("llama-3.1-70b-fp8", ["a100-sxm-80:4"]).plans[0]
    assert plan.metrics["tpot"].grade != "calibrated"
    assert "fp8" in plan.rates.fallbacks


def test_weight_only_formats_run_at_the_activation_s_rate():
    model = read_model("qwen3-32b-awq")
    tree = predicted(model, "rtx-4090:1", Strategy(), 4).ttft
    device = catalogue.accelerator("rtx-4090")
    used = {leaf.numbers["compute_rate"][0] for leaf, _ in leaves(tree) if leaf.name == "gate+up"}
    assert all(rate <= device.peak["fp16"].value for rate in used)


def test_the_engine_s_rule_is_named():
    model = hf.from_dict(
        {**read_model("llama-3.1-70b").config, "num_attention_heads": 60, "num_key_value_heads": 60, "head_dim": 128}
    )
    assert "must be divisible by tensor parallel size (8)" in legal(model, Strategy(tp=8), VLLM)


def test_every_cost_is_absent_without_a_price():
    plan = plan_serving("deepseek-v3", ["mi300x:8"]).plans[0]
    assert "cost_per_hour" not in plan.metrics
    given = plan_serving("deepseek-v3", ["mi300x:8"], price="2.50USD/h").plans[0]
    assert given.metrics["cost_per_hour"].value == pytest.approx(20.0)


def test_input_and_output_costs_add_up_to_the_request():
    plan = plan_serving("llama-3.1-70b", ["h100-sxm:8"]).plans[0]
    m, w = plan.metrics, plan.workload
    request = (
        w.input * m["cost_per_million_input_tokens"].value + w.output * m["cost_per_million_output_tokens"].value
    ) / 1e6
    rate = m["output_tokens_per_second"].value / w.output
    assert request * rate * 3600 == pytest.approx(m["cost_per_hour"].value, rel=1e-9)


def test_a_prompt_adds_to_every_step():
    """Leaving the prefill of replacements out is the fault that errs most on long prompts."""
    short, long = (
        predicted(LLAMA, "h100-sxm:8", Strategy(tp=8), 64, workload=Workload(input=n, output=128, context=8192))
        for n in (128, 4096)
    )
    assert float(long.tpot.value) > 1.5 * float(short.tpot.value)


def test_experts_read_decide_small_batches():
    active = DEEPSEEK.active * 1.0
    one = predicted(DEEPSEEK, "h200-sxm:8", Strategy(tp=8, ep=8), 1)
    many = predicted(DEEPSEEK, "h200-sxm:8", Strategy(tp=8, ep=8), 64)
    read = {n: sum(v for leaf, v in leaves(p.tpot) if leaf.name == "routed experts") for n, p in ((1, one), (64, many))}
    assert 4 < read[64] / read[1] < DEEPSEEK.total / active * 2


def test_bounds_are_shares():
    for name in ("llama-3.1-70b", "gpt-oss-120b"):
        plan = plan_serving(name, ["h100-sxm:8"]).plans[0]
        limit, share = bound_of(plan.prediction.tpot)
        assert limit in {"compute", "memory_bandwidth", "communication", "launch", "engine", "prompts"}
        assert 0 < share <= 1


def test_two_mi300x_share_one_link_and_eight_share_seven():
    two, eight = (rates(machine(f"mi300x:{n}")[0], VLLM, FIT) for n in (2, 8))
    size = 4 * 2**30
    for n, r, published in ((2, two, 47.7e9), (8, eight, 312.9e9)):
        bus = 2 * (n - 1) / n * size / float(all_reduce(float(size), Ranks(float(n), r.network)))
        assert bus == pytest.approx(published, rel=0.05)


def test_cards_on_a_bus_reach_the_same_share_of_their_links():
    """Eight RTX PRO 6000 measured 24.7 GB/s; L40S on such a server reach half as much on half the link. The one that measured 1.5 passes no peers."""
    size = 512 * 2.0**20
    for device, published in (("rtx-pro-6000:8", 24.7e9), ("l40s:8", 24.7e9 / 2)):
        r = rates(machine(device)[0], VLLM, FIT)
        assert 1.75 * size / float(all_reduce(size, Ranks(8.0, r.network))) == pytest.approx(published, rel=0.05)


def test_evaluate_is_deterministic():
    asked = Request(model=LLAMA, machines=tuple(machine("h100-sxm:8")))
    first, second = (ordered(evaluate(asked, Tally(), FIT), "cost") for _ in range(2))
    assert [p.id for p in first] == [p.id for p in second]


@pytest.mark.parametrize("engine", catalogue.ids("engines"))
@pytest.mark.parametrize(
    ("name", "spec", "tp"),
    [("llama-3.1-8b", "h100-sxm:1", 1), ("llama-3.1-70b", "a100-sxm-80:8", 8), ("qwen3-32b", "rtx-4090:4", 4)],
)
def test_every_engine_s_memory_adds_up(engine, name, spec, tp):
    """No line is counted twice: the parts never exceed the card, and are all of it where something fits."""
    model, box, found = read_model(name), machine(spec)[0], catalogue.engine(engine)
    strategy = Strategy(tp=tp) if found.tensor else Strategy(pp=tp)
    book = ledger(model, strategy, box, found, Workload(), footprints(model, strategy, 2.0))
    if book.pool > 0:
        assert book.term(0.0).value == pytest.approx(book.capacity, rel=1e-9)


def test_a_hop_never_carries_more_than_its_link():
    box = machine("rtx-4090:8x1@1gbe")[0]
    model, work = read_model("llama-3.2-1b"), Workload(input=2048, output=64, context=4096)
    p = predict(model, Strategy(pp=8), VLLM, work, rates(box, VLLM, FIT), 64.0, kv_bytes=2.0, budget=2048.0)
    tokens = float(p.rate) * (1 + work.input / work.output)
    assert tokens * model.hidden * 2 <= box.network.bandwidth
    assert float(p.prefill_rate) * model.hidden * 2 <= box.network.bandwidth


def test_drafts_need_a_draft_layer():
    with pytest.raises(RoofplanError, match="multi-token-prediction"):
        plan_serving("llama-3.1-70b", ["h100-sxm:8"], draft="3:0.9")
    alone, drafted = (
        predicted(DEEPSEEK, "h200-sxm:8", Strategy(tp=8, ep=8), 1, workload=w)
        for w in (Workload(), Workload(drafted=1, acceptance=0.0001))
    )
    assert float(drafted.tpot.value) > float(alone.tpot.value)


@pytest.mark.parametrize(
    ("rows", "work", "limit"),
    [(1, 1.5, "compute"), (2, 1.5, "memory_bandwidth"), (2, 2.5, "compute"), (9, 1.2, "compute")],
)
def test_rows_one_by_one_compute_while_the_first_is_read(rows, work, limit):
    """Of n rows, n - 1 compute after the reads; one row alone computes beside them."""
    numbers = dict(zip(ROOFLINE, ((1.0, "B"), (1.0, "B/s"), (work, "FLOP"), (1.0, "FLOP/s")), strict=True)) | {
        "rows": rows
    }
    assert limit_of(Term("product", 1.0, "s", law="roofline.row_by_row_time", numbers=numbers)) == limit


@pytest.mark.slow
def test_one_drafted_token_needs_the_draft_layer_in_memory():
    for rate in (None, "1req/s"):
        alone, drafts = (
            plan_serving("deepseek-v3", ["h200-sxm:8"], draft=draft, rate=rate, strategy="tp=8,ep=8").plans[0].memory
            for draft in (None, "1:0.8")
        )
        assert drafts.weights > 1.01 * alone.weights


def test_users_may_be_counted_by_group_and_stage():
    box, strategy = machine("h100-sxm:16")[0], Strategy(tp=4, pp=2, dp=2)
    whole, each = (
        predict(LLAMA, strategy, VLLM, Workload(), rates(box, VLLM, FIT), users, kv_bytes=2.0, budget=8192.0, **by)
        for users, by in ((64.0, {}), (0.0, {"per_group": 16.0}))
    )
    assert float(each.sequences) == float(whole.sequences) == 64.0
    assert float(each.tpot.value) == pytest.approx(float(whole.tpot.value), rel=0.02)
    assert float(each.rate) == pytest.approx(float(whole.rate), rel=0.02)


@pytest.mark.parametrize(("strategy", "drafted"), [(Strategy(tp=4, pp=2), 0), (Strategy(tp=8), 1), (Strategy(tp=8), 0)])
def test_a_token_says_how_many_a_step_gives(strategy, drafted):
    work = Workload(drafted=drafted, acceptance=0.8)
    found = predicted(DEEPSEEK, "h200-sxm:8", strategy, 8, workload=work)
    told = {one.text.partition(" / ")[2] for one in found.token.parts}
    assert any("tokens a step" in one for one in told) is (drafted > 0)


def test_an_idle_prompt_is_one_prompt_whatever_the_groups():
    wide, tensor = (predicted(DEEPSEEK, "h200-sxm:8", s, 1) for s in (Strategy(tp=1, dp=8, ep=8), Strategy(tp=8, ep=8)))
    experts = {
        k: sum(v for leaf, v in leaves(p.ttft) if leaf.name == "routed experts")
        for k, p in (("wide", wide), ("tensor", tensor))
    }
    assert experts["wide"] == pytest.approx(experts["tensor"], rel=0.05)


def test_weight_only_formats_pay_for_unpacking():
    plain, packed = (
        predicted(read_model(n), "h100-sxm:1", Strategy(), 1, workload=Workload(input=8192, context=16384))
        for n in ("qwen3-32b", "qwen3-32b-awq")
    )
    assert float(packed.ttft.value) > float(plain.ttft.value)


def test_unknown_cache_formats_are_refused():
    with pytest.raises(NoPlan, match="keeps no q4_0 cache"):
        plan_serving("llama-3.1-70b", ["h100-sxm:8"], kv_precision="q4_0")


@pytest.mark.parametrize("name", catalogue.ids("engines"))
def test_the_flag_of_the_cache_format_can_be_filled_in(name):
    text = catalogue.engine(name).flags.get("kv_precision")
    if text is not None:
        assert "fp8" in text.format(kv="fp8")


# Floors, kernels and encoders ----------------------------------------------------------------------

FLOORED = [
    ("mixtral-8x7b", "h100-sxm:8", {}),
    ("deepseek-v3", "h100-sxm:16", {"draft": "1:0.8"}),
    ("deepseek-v3", "h200-sxm:8", {"concurrency": "1"}),
    ("qwen3-30b-a3b", "apple-m2-ultra", {"precision": "q8_0"}),
    ("llama-3.1-70b", "b200:8", {"precision": "nvfp4"}),
    ("llama-3.1-70b", "rtx-4090:8", {}),
    ("whisper-large-v3", "rtx-4090", {"input": 4, "output": 200}),
]


@pytest.mark.parametrize(("name", "spec", "extra"), FLOORED)
def test_no_plan_beats_its_own_floors(name, spec, extra):
    for plan in plan_serving(name, [spec], **extra).plans:
        least = floors(plan.model, plan.strategy, plan.workload, plan.rates, plan.users)
        assert 0.0 < least.token <= plan.metrics["tpot"].value, plan.id
        assert 0.0 < least.first <= plan.metrics["ttft"].value, plan.id


def test_the_floor_counts_each_operation_once_whatever_the_split():
    plans = plan_serving("deepseek-v3", ["h200-sxm:8"]).plans
    works = {floors(p.model, p.strategy, p.workload, p.rates, p.users).work for p in plans}
    assert len(works) == 1
    assert works.pop() == pytest.approx(2 * 1024 * DEEPSEEK.active, rel=0.05)


def test_a_mixture_at_one_user_reads_its_chosen_experts_as_vectors():
    model, box = read_model("qwen3-30b-a3b"), machine("apple-m2-ultra")[0]
    r = rates(box, LLAMA_CPP, FIT)
    one = step_term("decode", model, Strategy(), Step(sequences=1.0, context=512.0), r, kv_bytes=2.0)
    named = {leaf.name: leaf for leaf, _ in leaves(one)}
    assert named["routed experts"].law == "roofline.serial_time"
    read = model.experts and 2 * model.active / float(r.wire)
    assert read < float(one.value) < 2 * read
    many = step_term("decode", model, Strategy(), Step(sequences=512.0, context=512.0), r, kv_bytes=2.0)
    assert {leaf.law for leaf, _ in leaves(many) if leaf.name == "routed experts"} == {"roofline.overlapped_time"}


def test_fp16_products_take_the_faster_accumulator_only_where_the_engine_does():
    box = machine("rtx-4090")[0]
    assert rates(box, LLAMA_CPP, FIT).peak["fp16"] == pytest.approx(2 * rates(box, VLLM, FIT).peak["fp16"], rel=1e-3)
    assert rates(box, LLAMA_CPP, FIT).peak["bf16"] == rates(box, VLLM, FIT).peak["bf16"]


def test_more_expert_ranks_than_experts_are_refused():
    why = legal(read_model("mixtral-8x7b"), Strategy(tp=8, dp=2, ep=16), VLLM)
    assert why == "vllm-0.33: 16 expert ranks for 8 routed experts"


def test_replicas_of_an_expert_group_do_not_wait_for_each_other():
    sglang = catalogue.engine("sglang-0.5.23")
    one = predicted(DEEPSEEK, "h200-sxm:8", Strategy(tp=8, ep=8), 64, sglang)
    two = predicted(DEEPSEEK, "h200-sxm:16", Strategy(tp=8, dp=2, ep=8), 128, sglang)
    assert float(two.tpot.value) == pytest.approx(float(one.tpot.value), rel=1e-9)


def test_an_encoder_runs_once_per_request():
    whisper = read_model("whisper-large-v3")
    r = rates(machine("rtx-4090")[0], VLLM, FIT)
    step = Step(new=4.0, requests=1.0)
    names = [leaf.name for leaf, _ in leaves(step_term("prefill", whisper, Strategy(), step, r, kv_bytes=2.0))]
    assert any(name.startswith("encoder ") for name in names)
    decode = Step(sequences=8.0, context=100.0)
    names = [leaf.name for leaf, _ in leaves(step_term("decode", whisper, Strategy(), decode, r, kv_bytes=2.0))]
    assert not any(name.startswith("encoder ") for name in names)


NEAR = [
    ("qwen3-30b-a3b", "h200-sxm:1", {"tpot": "40ms"}),
    ("gpt-oss-120b", "h100-sxm:2", {"tpot": "35ms"}),
    ("llama-3.1-70b", "h100-sxm:8", {"tpot": "18ms"}),
    ("llama-3.1-8b", "h100-sxm:1", {"engine": "llama.cpp"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "spec", "limits"), NEAR)
def test_a_rate_near_what_is_possible_is_met(name, spec, limits):
    with pytest.raises(NoPlan) as refused:
        plan_serving(name, [spec], rate="1e9req/s", **limits)
    most = next(item["needed"] for item in refused.value.relax if item["argument"] == "--rate")
    value = float(most.removesuffix("req/s"))
    for share in (1.0, 0.98, 0.9, 0.5):
        plan = plan_serving(name, [spec], rate=f"{value * share:.6f}req/s", **limits).plans[0]
        assert plan.metrics["output_tokens_per_second"].value >= value * share * plan.workload.output * (1 - 1e-9)


# Ways out ------------------------------------------------------------------------------------------

MISSED = [
    {"tpot": "1ms"},
    {"ttft": "1ms"},
    {"tokens_per_second_per_user": "5000"},
    {"concurrency": "100000"},
    {"rate": "1e9req/s"},
    {"power": "100W"},
    {"budget": "3USD/h"},
    {"tpot": "5ms", "concurrency": "500"},
    {"power": "50W", "utilisation": "30%"},
    {"rate": "200req/s", "tpot": "20ms"},
]


def pasted(asked, way):
    """Return what is asked with the flags of a way out typed over it."""
    typed = {way["argument"]: way["needed"], **way["also"]}
    return asked | {flag.removeprefix("--").replace("-", "_"): value for flag, value in typed.items()}


@pytest.mark.slow
@pytest.mark.parametrize("limits", MISSED, ids=str)
def test_advice_that_is_followed_gives_the_plan_that_it_promised(limits):
    asked = {"model": "llama-3.1-8b", "on": ["h100-sxm:8"], **limits}
    with pytest.raises(NoPlan) as refused:
        plan_serving(**asked)
    assert refused.value.relax
    for way in refused.value.relax:
        first = plan_serving(**pasted(asked, way)).plans[0]
        promised = way["plan"]
        assert (first.label, first.users, first.engine.id) == (promised["label"], promised["users"], promised["engine"])
        assert first.metrics["tpot"].value == pytest.approx(promised["tpot"], rel=1e-3)


TIGHT = [
    {"model": "llama-3.1-70b", "on": ["rtx-4090:4"]},
    {
        "model": "llama-3.1-70b",
        "on": ["h100-sxm:4"],
        "concurrency": "100",
        "tpot": "50ms",
        "ttft": "200ms",
        "input": "4000",
    },
    {"model": "llama-3.1-70b", "on": ["rtx-4090:2"], "precision": "awq", "context": "100k"},
    {"model": "llama-3.1-70b", "on": ["h100-sxm:2"], "budget": "1USD/h", "tpot": "9ms", "concurrency": "300"},
    {"model": "llama-3.1-405b", "on": ["tpu-v5e:8"]},
    {"model": "llama-3.1-8b", "on": ["rtx-4090:1"], "context": "100000"},
    {"model": "llama-3.1-70b", "on": ["l40s:8"], "strategy": "dp=8", "concurrency": "4"},
    {"model": "deepseek-v3", "on": ["h100-sxm:8"]},
    {"model": "llama-3.1-8b", "on": ["h100-sxm:8", "h200-sxm:8"], "tpot": "1ms"},
    {"model": "llama-3.1-70b", "on": ["mi300x:1"], "engine": "tensorrt-llm"},
    {"model": "llama-3.1-405b", "on": ["dgx-h100:1"]},
]


def in_pairs(words):
    """Return words in pairs: flags and their values."""
    return list(zip(words[::2], words[1::2], strict=True))


@pytest.mark.slow
def test_the_line_under_load_carries_what_was_asked(run):
    stated = "--input 3000 --price 2.5USD/h --context 16k --prefix-hit 30% --engine vllm-0.11 --set max_num_seqs=64"
    code, out, _ = run("serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--tpot", "60ms", *stated.split())
    shown = out.partition("under load    p99: ")[2].partition("\n\n")[0]
    assert code == 0
    typed = shlex.split(shown.replace("\\\n", " "))
    assert typed[:3] == ["roofplan", "simulate", "llama-3.1-70b"]
    given = dict(in_pairs(typed[3:]))
    asked = {"--on": "h100-sxm:8", "--tpot": "60ms", "--slo": "tpot=60ms@p95", **dict(in_pairs(stated.split()))}
    assert given.items() >= asked.items()
    code, simulated, _ = run(*typed[1:])
    assert code == 0
    assert "inside" in simulated
    assert "saturated" not in simulated


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("llama-3.1-8b", "--on h100-sxm:4 --precision bf16 --precision fp8 --kv-precision bf16 --kv-precision fp8"),
        ("deepseek-v3", "--on h200-sxm:8 --engine sglang --strategy tp8,ep8,attention-dp8"),
    ],
)
def test_the_line_under_load_simulates_the_plan_above_it(run, run_json, model, words):
    _, out, _ = run("serve", model, *words.split())
    served = run_json("serve", model, *words.split())[1]["plans"][0]
    typed = shlex.split(out.partition("under load    p99: ")[2].partition("\n\n")[0].replace("\\\n", " "))
    felt = run_json(*typed[1:], "--requests", "50")[1]
    assert (felt["strategy"], felt["engine"]) == (served["strategy"], served["engine"])
    own = [served["precision"][name] for name in ("weights", "kv")] if "--precision" in words else [None, None]
    assert [felt["inputs"].get(name) for name in ("precision", "kv_precision")] == own


@pytest.mark.slow
@pytest.mark.parametrize("words", ["--on apple-m3-max:1", "--on h100-sxm:1 --engine any"])
def test_the_line_under_load_names_the_engine_whose_settings_it_carries(run, words):
    _, out, _ = run("serve", "llama-3.1-8b", *words.split())
    typed = shlex.split(out.partition("under load    p99: ")[2].partition("\n\n")[0].replace("\\\n", " "))
    code, simulated, error = run(*typed[1:], "--requests", "200")
    assert (code, error) == (0, "")
    assert "TTFT" in simulated


@pytest.mark.slow
@pytest.mark.parametrize("asked", TIGHT, ids=str)
def test_every_way_out_parses_when_pasted_and_reaches_what_it_says(asked):
    with pytest.raises(NoPlan) as refused:
        plan_serving(**asked)
    assert refused.value.relax
    for way in refused.value.relax:
        first = plan_serving(**pasted(asked, way)).plans[0]
        assert (first.label, first.users) == (way["plan"]["label"], way["plan"]["users"])
        assert shlex.split(way["text"]) == [
            one for pair in [(way["argument"], way["needed"]), *way["also"].items()] for one in pair
        ]


def test_no_way_out_names_a_format_that_the_device_lacks():
    with pytest.raises(NoPlan) as refused:
        plan_serving("llama-3.1-405b", ["tpu-v5e:8"])
    assert not [way for way in refused.value.relax if "fp8" in way["text"]]


@pytest.mark.slow
def test_the_nearest_context_is_the_longest_that_fits():
    with pytest.raises(NoPlan) as refused:
        plan_serving("llama-3.1-8b", ["rtx-4090:1"], context="100000")
    (context,) = [int(way["needed"]) for way in refused.value.relax if way["argument"] == "--context"]
    assert plan_serving("llama-3.1-8b", ["rtx-4090:1"], context=str(context)).plans
    with pytest.raises(NoPlan):
        plan_serving("llama-3.1-8b", ["rtx-4090:1"], context=str(int(context * 1.03)))


@pytest.mark.slow
def test_limits_that_hold_stay_where_they_are():
    asked = {"concurrency": "100", "tpot": "50ms", "ttft": "200ms", "input": "4000", "output": "500"}
    with pytest.raises(NoPlan) as refused:
        plan_serving("llama-3.1-70b", ["h100-sxm:4"], **asked)
    assert not [way for way in refused.value.relax if "--tpot" in way["text"] and float(way["plan"]["tpot"]) <= 0.05]


@pytest.mark.parametrize(
    ("on", "limits"),
    [
        (["rtx-4090:8", "h100-sxm:4"], {"devices": 4, "budget": "1USD/h"}),
        (["mi300x:2", "h100-sxm:8"], {"engine": "tensorrt-llm", "devices": 1}),
        (["gaudi3:8", "a100-sxm-80:4"], {"engine": "llama.cpp", "precision": "q4_k_m", "strategy": "tp=8"}),
    ],
)
def test_several_machines_refused_for_several_reasons_end_in_one_answer(on, limits):
    with pytest.raises(NoPlan):
        plan_serving("llama-3.1-70b", on, **limits)


def test_the_nearest_count_is_that_of_a_plan():
    with pytest.raises(NoPlan) as refused:
        plan_serving("llama-3.1-405b", ["h100-sxm:8", "h100-sxm:16@ib-ndr"], devices=4)
    assert next(way["needed"] for way in refused.value.relax if way["argument"] == "--devices") == "16"


@pytest.mark.slow
def test_limits_that_only_together_are_too_much_are_all_named():
    asked = {"model": "llama-3.1-8b", "on": ["h100-sxm:8"], "tpot": "1ms", "ttft": "1ms"}
    with pytest.raises(NoPlan, match="cannot be met together") as refused:
        plan_serving(**asked)
    way = refused.value.relax[0]
    assert {way["argument"], *way["also"]} == {"--tpot", "--ttft"}
    assert plan_serving(**pasted(asked, way)).plans


@pytest.mark.parametrize(
    ("model", "pins", "engine", "said"),
    [
        ("llama-3.1-8b", "attention_dp=8", None, "no attention data parallelism"),
        ("llama-3.1-8b", "ep=8", None, "no experts to divide"),
        ("llama-3.1-8b", "tp=4,pp=1,dp=1", None, "multiply to 4; the machine has 8 devices"),
        ("mixtral-8x7b", "ep=3", None, "divisible by tensor parallel size"),
        ("deepseek-v3", "tp=8,attention_dp=3", "sglang", "must be divisible by attention dp"),
        ("llama-3.1-8b", "tp=2,tp=4", None, "given twice"),
    ],
)
def test_a_pin_that_cannot_be_is_refused_with_its_reason(model, pins, engine, said):
    with pytest.raises(RoofplanError, match=said):
        plan_serving(model, ["h200-sxm:8"], strategy=pins, engine=engine)


def test_an_engine_that_does_not_run_names_one_that_does():
    with pytest.raises(NoPlan, match="does not support Apple") as refused:
        plan_serving("llama-3.1-8b", ["apple-m2-ultra"], engine="vllm")
    way = refused.value.relax[0]
    assert (way["argument"], way["needed"], way["plan"]["engine"]) == ("--engine", "llama.cpp", LLAMA_CPP.id)


def test_short_models_say_what_fits():
    with pytest.raises(RoofplanError, match=r"1,024 \+ --output 256 = 1,280 .* --input 768 --output 256 fit"):
        plan_serving("gpt2", ["h100-sxm:1"])
    assert plan_serving("gpt2", ["h100-sxm:1"], input=768, output=256).plans


# What the screen says must give what it shows --------------------------------------------------------

SHOWN = [
    ("llama-3.1-70b", "h100-sxm:8", {"strategy": "tp=8", "concurrency": "1"}),
    ("mixtral-8x7b", "rtx-4090:8", {}),
    ("deepseek-v3", "h200-sxm:16", {"engine": "sglang", "draft": "1:0.8"}),
    ("llama-3.1-70b-awq", "rtx-4090:4", {}),
    ("qwen3-30b-a3b", "apple-m2-ultra", {"precision": "q4_k_m"}),
    ("jamba-1.5-mini", "a100-sxm-80:4", {}),
    ("llama-3.1-70b-fp8", "a100-sxm-80:4", {}),
    ("llama-3.1-405b", "dgx-h100:2", {"strategy": "tp=16"}),
    ("llama-2-70b", "rtx-4090:8x1@10gbe", {"strategy": "tp=8"}),
    ("llama-3.1-70b", "mi300x:8", {"strategy": "tp=8"}),
    ("qwen3-30b-a3b", "ryzen-9-5950x", {"precision": "q4_k_m", "concurrency": "4"}),
]


def plain(number):
    return float(number[0] if isinstance(number, tuple) else number)


def arithmetic(leaf):
    """Return what the arithmetic of a formula gives, the remark behind the semicolon aside."""
    text = leaf.text.partition(";")[0].replace(" x log2(", " * math.log2(").replace(" x ", " * ")
    numbers = {name: repr(x if isinstance(x, str) else plain(x)) for name, x in leaf.numbers.items()}
    return eval(text.format_map(numbers), {"math": math})  # noqa: S307 - our own formula


def shown_value(leaf):
    """Return what a leaf's formula gives with the numbers that it prints; None where it prints no formula."""
    n = {name: x if isinstance(x, str) else plain(x) for name, x in leaf.numbers.items()}
    if leaf.law == "roofline.overlapped_time":
        return n["layers"] * max(n["moved"] / n["memory_rate"], n["work"] / n["compute_rate"])
    if leaf.law == "roofline.serial_time":
        work = n["work"] / 2.0 * n["each"] + n["entries"] * n["unpacking"]
        return n["layers"] * (n["moved"] / n["memory_rate"] + work / n["compute_rate"])
    if leaf.law == "roofline.row_by_row_time":
        assert leaf.text.count("{each}") == 2
        assert "{work}" not in leaf.text
        first = max(n["moved"] / n["memory_rate"], n["each"] / n["compute_rate"])
        return n["layers"] * (first + n["more"] * n["each"] / n["compute_rate"])
    if leaf.law.startswith("collectives.") and "(" in leaf.text:
        return arithmetic(leaf)
    return None


@pytest.mark.parametrize(("name", "spec", "extra"), SHOWN)
def test_every_formula_gives_the_value_beside_it(name, spec, extra):
    checked = 0
    for plan in plan_serving(name, [spec], **extra).plans[:6]:
        for tree in (plan.prediction.tpot, plan.prediction.ttft, plan.prediction.prefill):
            for leaf in tree.walk():
                given = None if leaf.parts else shown_value(leaf)
                if given is not None:
                    assert given == pytest.approx(float(leaf.value), rel=1e-9), leaf.name
                    checked += 1
    assert checked > 20


@pytest.mark.parametrize(("name", "spec", "extra"), SHOWN)
def test_products_sums_and_differences_give_their_terms(name, spec, extra):
    for plan in plan_serving(name, [spec], **extra).plans[:4]:
        for tree in plan.prediction.times:
            for term in tree.walk():
                if term.combine == "sum" and term.parts:
                    assert sum(float(p.value) for p in term.parts) == pytest.approx(float(term.value), rel=1e-9)
                if term.combine == "difference":
                    if term.numbers:
                        others, tokens = term.numbers["others"], term.numbers["tokens"]
                        each, most = term.numbers["each"][0], term.numbers["most"][0]
                        assert min(others * each / tokens, most) == pytest.approx(float(term.value), rel=1e-9)
                    mixed, decode = (float(part.value) for part in term.parts)
                    assert float(term.value) == pytest.approx((mixed - decode) * float(term.value) / (mixed - decode))
                    assert mixed > decode
            assert sum(value for _, value in leaves(tree)) == pytest.approx(float(tree.value), rel=1e-9)


def test_the_ways_of_an_all_reduce_are_all_named_and_summed():
    plan = plan_serving("llama-3.1-405b", ["dgx-h100:2"], strategy="tp=16").plans[0]
    laws = {leaf.law for leaf, _ in leaves(plan.prediction.ttft) if leaf.name.startswith("all-reduce")}
    assert all(hasattr(collectives, law.removeprefix("collectives.")) for law in laws)
    names = {leaf.name for leaf, _ in leaves(plan.prediction.tpot)}
    assert {"all-reduce after attention, in a host", "all-reduce after attention, between hosts"} <= names


@pytest.mark.parametrize(
    ("name", "spec", "extra"),
    [*SHOWN, ("deepseek-v3", "h200-sxm:8", {"input": 8000, "output": 4, "concurrency": "200"})],
)
def test_the_share_of_a_limit_is_a_share(name, spec, extra):
    for plan in plan_serving(name, [spec], **extra).plans:
        for tree in (plan.prediction.tpot, plan.prediction.ttft):
            assert all(value >= -1e-12 for _, value in leaves(tree))
            assert 0.0 < bound_of(tree)[1] <= 1.0 + 1e-9


@pytest.mark.slow
def test_prompts_of_all_groups_share_the_experts():
    """The rate of prompts alone cannot exceed what the same plan spends on them beside decoding by much."""
    for engine in ("vllm", "sglang"):
        for plan in plan_serving("deepseek-v3", ["h200-sxm:8"], input=4096, engine=engine).plans:
            p, w = plan.prediction, plan.workload
            beside = float(p.rate) / w.output * w.input / float(p.input_share)
            # beside decoding, a prompt of one group stops all that step together
            assert float(p.prefill_rate) < 1.5 * beside * float(Split.of(plan.strategy).groups), plan.label


def test_an_idle_prompt_has_no_company_in_attention_data_parallelism():
    sglang = catalogue.engine("sglang-0.5.23")
    alone = predicted(DEEPSEEK, "h200-sxm:8", Strategy(tp=8, attention_dp=8), 8, sglang).ttft
    split = predicted(DEEPSEEK, "h200-sxm:8", Strategy(tp=8), 8, sglang).ttft
    assert float(alone.find("routed experts").value) <= 1.001 * float(split.find("routed experts").value)


def test_products_in_8_bits_cast_what_enters_them_unless_their_engine_fuses_it():
    box = machine("h100-sxm:4")[0]
    trees = {
        (name, e): step_term(
            "step",
            read_model(name),
            Strategy(tp=4),
            Step(new=65_536.0, requests=8.0),
            rates(box, catalogue.engine(e), FIT),
            kv_bytes=2.0,
        )
        for name, e in itertools.product(("llama-3.1-70b-fp8", "llama-3.1-70b"), ("vllm-0.33", "tensorrt-llm-0.17"))
    }
    casts = {
        key: sum(value for leaf, value in leaves(tree) if leaf.name.startswith("cast for"))
        for key, tree in trees.items()
    }
    r = rates(box, VLLM, FIT)
    least = 80 * r.casts["fp8"] * 65_536 * (8192 + 8192 + 8192 / 4 + 28_672 / 4) / r.bandwidth["memory"]
    assert casts.pop(("llama-3.1-70b-fp8", "vllm-0.33")) == pytest.approx(least, rel=0.1)
    assert not any(casts.values())


def test_decode_attention_without_grouped_kernels_reads_the_cache_for_every_query_head():
    box, seen = machine("h100-sxm:2")[0], Step(sequences=64.0, context=3072.0)
    old, new = (
        next(
            leaf
            for leaf, _ in leaves(
                step_term("step", LLAMA, Strategy(tp=2), seen, rates(box, catalogue.engine(name), FIT), kv_bytes=1.0)
            )
            if leaf.name == "decode attention"
        )
        for name in ("tensorrt-llm-0.6", "tensorrt-llm-0.17")
    )
    assert old.numbers["moved"][0] == pytest.approx(8 * new.numbers["moved"][0])


def test_old_engines_refuse_what_came_after_them():
    for engine in ("tensorrt-llm-0.6", "tensorrt-llm-0.8", "vllm-0.2"):
        assert "latent attention" in legal(DEEPSEEK, Strategy(tp=8), catalogue.engine(engine))
        assert {"Blackwell", "Blackwell Ultra"} <= set(catalogue.engine(engine).excluded_architectures)


def test_4_bit_floats_run_in_16_bits_where_no_unit_takes_them():
    r = rates(machine("h100-sxm:1")[0], VLLM, FIT)
    assert r.fallbacks["fp4"] == "bf16"
    assert r.compute["fp4"] == r.compute["bf16"]


def test_power_ends_at_what_cards_and_hosts_can_draw():
    for spec in ("h100-sxm:8", "b200:8"):
        plan = plan_serving("llama-3.1-70b", [spec]).plans[0]
        power, (least, most) = plan.metrics["power"], power_limits(plan.machine, FIT)
        assert least <= power.low <= power.value <= power.high <= most


def test_weights_scaled_block_by_block_multiply_at_a_rate_of_their_own():
    r = rates(machine("h100-sxm:1")[0], VLLM, FIT)
    assert r.compute["fp8.fp8-block"] < r.compute["fp8"] < r.peak["fp8"]
    tree = step_term("step", DEEPSEEK, Strategy(tp=8), Step(new=8192.0, requests=1.0), r, kv_bytes=2.0)
    product = next(leaf for leaf, _ in leaves(tree) if leaf.name == "q_b")
    assert product.numbers["compute_rate"][0] == r.compute["fp8.fp8-block"]


def test_every_weight_only_product_is_unpacked():
    model = read_model("llama-3.1-70b-awq")
    tree = predicted(model, "rtx-4090:4", Strategy(tp=4), 4).ttft
    names = {leaf.name for leaf, _ in leaves(tree)}
    assert {"unpack q+k+v", "unpack o", "unpack gate+up", "unpack down"} <= names
    stand_in = predicted(read_model("llama-3.1-70b-fp8"), "a100-sxm-80:4", Strategy(tp=4), 4).ttft
    assert "unpack down" in {leaf.name for leaf, _ in leaves(stand_in)}
    long = Workload(input=16_384, output=16, context=16_400)  # more than a tile of rows falls on each expert
    mixture = predicted(read_model("gpt-oss-120b"), "h100-sxm:1", Strategy(), 4, workload=long).ttft
    assert "unpack routed experts" in {leaf.name for leaf, _ in leaves(mixture)}
    native = predicted(read_model("llama-3.1-70b-fp8"), "h100-sxm:4", Strategy(tp=4), 4).ttft
    assert not any(leaf.name.startswith("unpack") for leaf, _ in leaves(native))


@pytest.mark.parametrize(
    ("model", "precision", "strategy", "engine", "said"),
    [
        ("qwen3-235b-a22b", "fp8-block", Strategy(tp=8), "vllm-0.33", "not a multiple of the 128 of fp8-block"),
        ("qwen3-235b-a22b", "fp8-block", Strategy(tp=8, ep=8), "vllm-0.33", None),
        ("smollm2-135m", None, Strategy(tp=2), "vllm-0.33", "divisible by tensor parallel size (2)"),
        ("llama-4-scout", None, Strategy(tp=24), "tensorrt-llm-1.2", "divisible by tensor parallel size"),
        ("deepseek-v3", None, Strategy(tp=4, ep=4, pp=3), "sglang-0.5.23", None),
        ("llama-3.2-1b", "fp8-block", Strategy(tp=8), "vllm-0.33", "not a multiple of the 128 of fp8-block"),
        ("llama-2-7b", "gptq-channel", Strategy(tp=8), "vllm-0.33", None),
        ("llama-2-7b", "gptq", Strategy(tp=8), "vllm-0.33", "not a multiple of the 128 of gptq"),
        ("deepseek-v3", None, Strategy(tp=12, ep=12, attention_dp=12), "sglang-0.5.23", "not divisible by 12"),
    ],
)
def test_matrices_are_cut_only_where_the_engine_cuts_them(model, precision, strategy, engine, said):
    model = read_model(model)
    why = legal(at_precision(model, precision) if precision else model, strategy, catalogue.engine(engine))
    assert why is None if said is None else said in why


def test_the_demanded_users_are_admitted_beyond_the_engine_s_default():
    plan = plan_serving("llama-3.1-8b", ["h100-sxm:1"], engine="llama.cpp", concurrency=9).plans[0]
    assert plan.users == 9
    few = plan_serving("llama-3.1-8b", ["h100-sxm:1"], engine="llama.cpp").plans[0]
    assert few.memory.max_concurrency == 4


def test_the_default_context_ends_where_the_model_does():
    plan = plan_serving("qwen3-30b-a3b", ["h100-sxm:4"], input=33000, output=1000).plans[0]
    assert plan.workload.context == plan.model.max_positions == 40_960


def test_energy_is_counted_at_the_demanded_load():
    full = plan_serving("llama-3.1-8b", ["h100-sxm:1"], concurrency=1).plans[0]
    idle = plan_serving("llama-3.1-8b", ["h100-sxm:1"], rate="0.01req/s").plans[0]
    joules = [plan.metrics["energy_per_output_token"].value for plan in (full, idle)]
    assert idle.metrics["power"].value < full.metrics["power"].value
    assert joules[1] > 10 * joules[0]


def test_a_grade_is_calibrated_only_where_the_system_was_measured():
    for name, spec in (("llama-3.1-8b", "h100-sxm:1"), ("llama-3.1-8b", "rtx-4090:1"), ("nemotron-h-8b", "h100-sxm:1")):
        for engine in ("vllm", "sglang", "tensorrt-llm"):
            plan = plan_serving(name, [spec], engine=engine).plans[0]
            system = system_of(plan.model, plan.machine, plan.engine)
            for metric, figure in (("tpot", TIME_PER_TOKEN), ("output_tokens_per_second", THROUGHPUT)):
                if system not in catalogue.measured_systems(figure):
                    assert plan.metrics[metric].grade in {"borrowed", "guessed"}
                    assert plan.metrics[metric].doubt.new


def test_vector_units_are_never_tensor_units():
    for name in catalogue.ids("accelerators"):
        device = catalogue.accelerator(name)
        if device.bandwidth is None or not {"bf16", "fp16"} & device.peak.keys():
            continue
        r = rates(machine(f"{name}:1")[0], LLAMA_CPP, FIT)
        if "fp32" in device.peak:
            assert r.vector_peak == device.peak["fp32"].value
        elif device.vendor != "Apple":
            assert r.vector_peak < 0.6 * r.peak["bf16"], name


def test_copies_that_share_experts_need_an_engine_with_data_parallelism():
    plain = catalogue.engine("gpt-fast-0.1")
    mixture = read_model("mixtral-8x7b")
    assert "no data parallelism inside one server" in legal(mixture, Strategy(tp=1, dp=2, ep=2), plain)


@pytest.mark.parametrize("ep", [1, 2, 4, 8])
def test_expert_ranks_below_tensor_ranks_divide_each_expert_by_width(ep):
    """Eight ranks hold an eighth of the experts' weights, however many of them divide the experts whole."""
    model, box = read_model("mixtral-8x7b"), machine("h100-sxm:8")[0]
    sglang, strategy = catalogue.engine("sglang-0.5.23"), Strategy(tp=8, ep=ep)
    assert legal(model, strategy, sglang) is None
    held = footprint(model, strategy, 2.0).weights
    assert held == pytest.approx(footprint(model, Strategy(tp=8), 2.0).weights, rel=0.01)
    r = rates(box, sglang, FIT)
    p = predict(model, strategy, sglang, Workload(), r, 512.0, kv_bytes=2.0, budget=8192.0)
    whole = predict(model, Strategy(tp=8, ep=8), sglang, Workload(), r, 512.0, kv_bytes=2.0, budget=8192.0)
    assert float(p.decode.value) == pytest.approx(float(whole.decode.value), rel=0.35)


def test_expert_ranks_must_divide_tensor_ranks():
    assert "divisible by ep (3)" in legal(
        read_model("deepseek-v3"), Strategy(tp=8, ep=3), catalogue.engine("sglang-0.5.23")
    )


def test_engines_that_halve_groups_cut_experts_further_than_others():
    """Experts 768 wide in groups of 128 are 96 wide on eight ranks: groups of 32 divide that (vLLM, moe_wna16.py)."""
    model, strategy = at_precision(read_model("qwen3-30b-a3b"), "awq"), Strategy(tp=4)
    assert legal(model, strategy, catalogue.engine("vllm-0.11")) is None
    assert "multiple of the 128" in legal(model, strategy, catalogue.engine("vllm-0.6"))
    dense = at_precision(read_model("llama-2-7b"), "awq")
    assert "multiple of the 128" in legal(dense, Strategy(tp=8), catalogue.engine("vllm-0.11"))


def test_gguf_files_of_converted_experts_convert_the_rest_too():
    model = read_model("gpt-oss-20b")
    held = held_by(model, LLAMA_CPP)
    assert head_format(held) == "q8_0"
    assert held_by(model, VLLM) is model
    formats = {linear.format for linear in linears(held)}
    assert formats == {"mxfp4", "q8_0", "bf16"}  # the router stays
    router = [linear for linear in linears(held) if linear.format == "bf16"]
    assert {linear.outputs for linear in router} == {32}
    assert held_by(read_model("deepseek-v3"), LLAMA_CPP) == read_model("deepseek-v3")
    files = 12.11e9  # gpt-oss-20b-mxfp4.gguf is 12.11 GB
    assert footprint(held, Strategy(), 2.0).weights == pytest.approx(
        files - 0.62e9, rel=0.03
    )  # less the embedding, in host memory


def linears(model):
    """Return the matrices of a decoder's kinds of layers."""
    for layer, _ in model.decoder.kinds():
        for mixer in layer.mixers:
            yield from (linear for group in mixer.groups for linear in group)
        for feed in layer.feed_forwards:
            yield from (linear for group in (*feed.expert, *feed.shared) for linear in group)
            yield feed.router


def test_compiled_devices_wait_for_no_launches():
    vllm = catalogue.engine("vllm-0.33")
    tpu, gpu = (rates(machine(name)[0], vllm, FIT) for name in ("tpu-v6e:8", "h100-sxm:8"))
    assert tpu.gap < 0.1 * gpu.gap


def test_eager_transformers_wait_for_their_launches():
    """A 7B model on one A100 gives some 25 tokens a second from Model.generate(), a third of what vLLM does."""
    eager, quick = (
        plan_serving("llama-2-7b", ["a100-sxm-80:1"], engine=name, concurrency=1, input=512, output=256).plans[0]
        for name in ("transformers", "vllm")
    )
    assert eager.engine.name == "hf-transformers"
    assert 2 < eager.metrics["tpot"].value / quick.metrics["tpot"].value < 6
    assert bound_of(eager.prediction.token)[0] == "launch"
    assert eager.metrics["tpot"].grade == "guessed"


def test_launches_that_are_started_ahead_hide_behind_kernels():
    """A 13B model's kernels on a workstation's card take longer than its launches, a 1B model's do not."""
    large, small = (
        plan_serving(name, ["rtx-a6000:1"], engine="transformers", concurrency=1, input=512, output=256).plans[0]
        for name in ("llama-2-13b", "llama-3.2-1b")
    )

    def late(plan):
        return next((float(part.value) for part in plan.prediction.token.parts if part.name == "launches"), 0.0)

    assert late(large) == 0.0
    kernels = sum(
        float(part.value) for part in small.prediction.token.parts if part.name not in {"launches", "engine step"}
    )
    assert late(small) > kernels


def test_engines_reach_less_on_devices_that_their_constants_do_not_know():
    vllm, files = catalogue.engine("vllm-0.33"), catalogue.engine("llama.cpp-b11200")
    start = FIT.find("engine", "reach", ["any"])
    for device, engine, scopes in (("tpu-v6e", vllm, ["vllm/Google"]), ("gaudi3", vllm, ["vllm/Intel"])):
        reach = FIT.find("engine", "reach", [*scopes, "any"])
        here = rates(machine(device)[0], engine, FIT)
        whole = rates(machine(device)[0], engine, FIT.with_([replace(reach, value=1.0)]))
        assert here.bandwidth["matmul"] == pytest.approx(reach.value * whole.bandwidth["matmul"])
        assert here.compute["bf16"] == pytest.approx(reach.value * whole.compute["bf16"])
        assert reach in here.sources["bandwidth"]
    for device, engine in (("h100-sxm", vllm), ("r9700", files), ("apple-m3-max", files)):
        here = rates(machine(device)[0], engine, FIT)
        moved = FIT.with_([replace(one, value=0.1) for one in FIT.constants if one.name == "reach"])
        assert rates(machine(device)[0], engine, moved).bandwidth == here.bandwidth
    assert start.value < 1.0


def test_grouped_products_that_nobody_tuned_for_a_device_count_several_times():
    """They take that much longer; a host starts them once."""
    more = FIT.find("engine", "routed_kernels", ["AMD"])
    assert more.value > 1.0
    even = FIT.with_([replace(one, value=1.0) for one in FIT.constants if one.name == "routed_kernels"])
    routed = Operation("experts", "experts", 1.0, 1.0, extra="routed experts")
    dense = Operation("o", "matmul", 1.0, 1.0)
    for device, factor in (("mi300x", more.value), ("h100-sxm", 1.0)):
        here, plain = (rates(machine(device)[0], VLLM, fit) for fit in (FIT, even))
        extra = plain.extra_kernels["routed experts"]
        assert here.extra_kernels["routed experts"] == pytest.approx(factor * extra)
        assert kernels_of(routed, here) - kernels_of(routed, plain) == pytest.approx((factor - 1.0) * extra)
        assert started_of(routed, here) == pytest.approx(started_of(routed, plain)) == kernels_of(routed, plain)
        assert started_of(dense, here) == kernels_of(dense, here)
        assert (more in here.sources["routed experts"]) == (factor > 1.0)


def test_attention_gains_on_its_peak_with_the_keys_that_a_query_sees():
    r = rates(machine("h100-sxm")[0], VLLM, FIT)
    short, middle, long = (
        float(compute_rate(prompt_attention(LLAMA, tokens, past), r)) / r.peak["bf16"]
        for tokens, past in ((512.0, 0.0), (512.0, 4096.0), (65536.0, 0.0))
    )
    assert short < 0.5 * middle < 0.5 * long < 0.5 * r.attention_share
    half = prompt_attention(LLAMA, 2.0 * r.attention_keys - 1.0, 0.0)
    assert float(compute_rate(half, r)) == pytest.approx(0.5 * r.peak["bf16"] * r.attention_share)


def prompt_attention(model, tokens, past):
    """Return the attention of a prompt in the first layer of a model."""
    step = Step(new=tokens, past=past, requests=1.0)
    tables = step_operations(model, Strategy(), step, rates(machine("h100-sxm")[0], VLLM, FIT), kv_bytes=2.0, drafted=0)
    return next(op for op in tables[0] if op.kind == "prefill_attention")


def test_attention_reaches_more_where_products_do():
    """An RTX 4090 is not held to the power limit of the L40S whose attention was timed; both have the same silicon."""
    home, card = (rates(machine(name)[0], unhosted(VLLM), FIT) for name in ("l40s", "rtx-4090"))
    reached = [r.compute["bf16"] / r.peak["bf16"] for r in (home, card)]
    assert reached[1] > 1.3 * reached[0]
    assert card.attention_share / home.attention_share == pytest.approx(reached[1] / reached[0])


@pytest.mark.parametrize("engine", ["vllm-0.33", "sglang-0.5.23"])
@pytest.mark.parametrize(("users", "output"), [(256, 32), (64, 8), (32, 2)])
def test_prompts_of_one_step_are_waited_for_together(engine, users, output):
    """With several prompts a step the first token comes with the last of them; no work is counted twice."""
    work = Workload(input=256, output=output, context=512)
    e = unhosted(catalogue.engine(engine))
    p = predicted(read_model("llama-3.1-8b"), "h100-sxm:1", Strategy(), users, e, work)
    alone = predicted(read_model("llama-3.1-8b"), "h100-sxm:1", Strategy(), 1, e, work)
    several = users / (output - 1)
    assert float(p.ttft.value) > 0.5 * several * float(alone.ttft.value)
    stays = output * float(p.cycle.value)
    assert stays == pytest.approx(float(p.ttft.value) + (output - 1) * float(p.tpot.value))
    least = users * float(p.carried.value) * 1.0 + (output - 1) * float(p.token.value)
    assert stays == pytest.approx(least, rel=0.12)


@pytest.mark.parametrize(
    ("engine", "spec", "strategy", "users", "drafted"),
    [
        ("vllm-0.33", "h100-sxm:8", Strategy(tp=2, pp=4), 32, 0),
        ("sglang-0.5.23", "h100-sxm:8", Strategy(tp=2, pp=4), 16, 0),
        ("sglang-0.5.23", "h100-sxm:4", Strategy(tp=4), 16, 0),
        ("llama.cpp-b11200", "rtx-4090:2", Strategy(pp=2), 4, 0),
    ],
)
def test_gaps_between_tokens_have_tpot_as_their_mean(engine, spec, strategy, users, drafted):
    model = read_model("llama-3.1-8b" if spec.startswith("rtx") else "llama-3.1-70b")
    work = Workload(input=1024, output=256, context=2048, drafted=drafted)
    p = predicted(model, spec, strategy, users, catalogue.engine(engine), work)
    mean, _ = map(float, p.carrying)
    assert float(p.token.value) + mean * float(p.carried.value) == pytest.approx(float(p.tpot.value))
    assert float(p.gap(0.01).value) == float(p.token.value)
    assert float(p.gap(0.999).value) > float(p.tpot.value)


def test_two_users_of_attention_groups_wait_for_one_prompt_each():
    sglang = catalogue.engine("sglang-0.5.23")
    work = Workload(input=4096, output=64, context=8192)
    layout = Strategy(tp=8, ep=8, attention_dp=8)
    one, two, eight = (predicted(DEEPSEEK, "h200-sxm:8", layout, n, sglang, work) for n in (1, 2, 8))
    stalls = [63 * (float(p.tpot.value) - float(p.token.value)) for p in (one, two, eight)]
    assert stalls[0] == pytest.approx(0.0)
    assert stalls[1] > 0.4 * float(one.ttft.value)
    assert stalls[2] >= stalls[1]


def test_drafts_bring_no_more_tokens_than_are_asked_for():
    work = Workload(input=512, output=2, context=1024, drafted=3, acceptance=0.9)
    p = predicted(DEEPSEEK, "h200-sxm:8", Strategy(tp=8, ep=8), 1, workload=work)
    assert float(p.tpot.value) == pytest.approx(float(p.token.value))
    plain = predicted(
        DEEPSEEK, "h200-sxm:8", Strategy(tp=8, ep=8), 1, workload=Workload(input=512, output=2, context=1024)
    )
    assert float(p.tpot.value) > float(plain.tpot.value)  # one token of a step that verifies four


def test_no_pace_between_tokens_chooses_a_plan_of_answers_of_one_token():
    free = plan_serving("llama-3.1-8b", ["h100-sxm:8"], output=1, input=4096, best="throughput").plans[0]
    pinned = plan_serving("llama-3.1-8b", ["h100-sxm:8"], output=1, input=4096, strategy="dp=8").plans[0]
    rates_ = [p.metrics["output_tokens_per_second"].value for p in (free, pinned)]
    assert rates_[0] >= rates_[1] * (1 - 1e-9)
    assert "cost_per_million_output_tokens" not in free.metrics


def test_expert_ranks_below_tensor_ranks_can_be_asked_for():
    plan = plan_serving("mixtral-8x7b", ["h100-sxm:8"], engine="sglang", strategy="tp=8,ep=2").plans[0]
    assert plan.strategy.as_dict()["ep"] == 2
    with pytest.raises(RoofplanError, match="tp x dp ranks or not at all"):
        plan_serving("mixtral-8x7b", ["h100-sxm:8"], engine="vllm", strategy="tp=8,ep=2")


def test_ways_out_offer_a_cache_in_8_bits_only_where_it_is_in_16():
    (box,) = machine("h100-sxm:1")
    asked = Request(model=LLAMA, machines=(box,))
    offered = [change.flags for change in ways_out._other_formats(asked, box)]
    assert {"--kv-precision": "fp8"} in offered
    narrow = replace(asked, kv_precisions=("fp8",))
    assert {"--kv-precision": "fp8"} not in [change.flags for change in ways_out._other_formats(narrow, box)]


def test_licensed_cards_hold_as_much_and_the_nearest_comes_first():
    (box,) = machine("rtx-4090:2")
    asked = Request(model=LLAMA, machines=(box,), constraints=Constraints(datacenter=True))
    found = [change.asked.machines[0] for change in ways_out._licensed(asked, box)]
    sizes = [one.device.memory for one in found]
    assert sizes == sorted(sizes)
    assert box.device.memory <= sizes[0] <= 1.01 * box.device.memory
    assert {(one.count, one.device.vendor, one.device.geforce_licence) for one in found} == {(2, "NVIDIA", False)}
    assert not list(ways_out._licensed(replace(asked, constraints=Constraints()), box))


def test_roomier_devices_hold_more_and_are_of_the_same_maker():
    (box,) = machine("apple-m4:1")
    asked = Request(model=LLAMA, machines=(box,), constraints=Constraints())
    as_asked = [change for change in ways_out._roomier(asked, box) if set(change.flags) == {"--on"}]
    rooms = [change.asked.machines[0].device.room for change in as_asked]
    assert rooms == sorted(set(rooms))
    assert rooms[0] > box.device.room
    assert {(change.asked.machines[0].count, change.asked.machines[0].device.vendor) for change in as_asked} == {
        (1, "Apple")
    }
    assert not list(ways_out._roomier(asked, None))


def test_a_card_of_another_class_is_a_larger_change():
    (box,), (same,), (unlike,) = machine("rtx-4090:1"), machine("rtx-5090:1"), machine("a100-sxm-40:1")
    asked = Request(model=LLAMA, machines=(box,), constraints=Constraints())
    sizes = [ways_out._exchanged(asked, box, one).size for one in (same, unlike)]
    assert sizes == pytest.approx(
        [
            n * ways_out.CHANGES_ENGINE + math.log(one.device.room / box.device.room)
            for n, one in ((1, same), (2, unlike))
        ]
    )


def test_a_device_that_cannot_be_joined_with_others_is_exchanged_for_a_larger_one():
    (box,) = machine("rtx-4070-laptop:1")
    asked = Request(model=read_model("llama-3.1-70b"), machines=(box,), constraints=Constraints())
    ways = ways_out.ways_out(asked, box, catalogue.shipped_fit())
    assert ways
    assert all("--on" in {way["argument"], *way["also"]} for way in ways)


def test_dense_models_have_no_experts_to_divide():
    for ranks in (2, 8):
        why = legal(LLAMA, Strategy(tp=ranks, ep=ranks), VLLM)
        assert "no experts to divide" in why
    assert legal(LLAMA, Strategy(tp=2), VLLM) is None


def test_a_device_s_own_best_product_tells_where_its_power_is_unlike_that_of_those_fitted():
    """An L40S and an A100 stand in the kernel tables; a 4090, a 3090 of another process and an L4 of another power limit do not."""
    lost = FIT.find("matmul", "serving_over_best", ["any"]).value
    for name, own in (
        ("rtx-4090", True),
        ("rtx-3090", True),
        ("l4", True),
        ("a100-sxm-80", False),
        ("h100-sxm", False),
    ):
        (box,) = machine(f"{name}:1")
        share = FIT.find("engine", "compute_share", scopes_by_vendor(VLLM, box.device)).value
        best = box.device.measured["bf16"].value
        assert (rates(box, VLLM, FIT).compute["bf16"] == pytest.approx(best * lost * share, rel=1e-9)) is own


def test_products_exceed_a_peak_only_where_one_was_measured_above_it():
    for name in catalogue.ids("accelerators"):
        device = catalogue.accelerator(name)
        if device.bandwidth is None or not device.peak or device.device_class == "cpu":
            continue
        found = rates(machine(f"{name}:1")[0], VLLM, FIT)
        above = max(
            [1.0, *(best.value / device.peak[key].value for key, best in device.measured.items() if key in device.peak)]
        )
        for key in ("bf16", "fp16", "fp8", "int8", "fp4"):
            assert found.compute.get(key, 0.0) <= above * found.peak.get(key, 0.0), (name, key)


@pytest.mark.slow
@pytest.mark.parametrize("users", [10, 30, 60])
def test_a_token_budget_that_is_too_small_lets_users_wait_and_computes_no_more_than_it_holds(users):
    asked = {"concurrency": users, "set": "max_num_batched_tokens=64", "engine": "vllm"}
    plan = plan_serving("llama-3.1-8b", ["h100-sxm:1"], **asked).plans[0]
    rate, step = plan.metrics["output_tokens_per_second"].value, float(plan.prediction.decode.value)
    assert rate * (1024 + 255) / 256 <= 64 / step
    ran = simulate(
        "llama-3.1-8b", on="h100-sxm:1", clients=users, requests=400, **{k: asked[k] for k in ("set", "engine")}
    )
    assert rate == pytest.approx(ran.simulation.output_tokens_per_second, rel=0.12)


def test_limits_that_cannot_be_kept_together_are_named_whatever_is_known_of_power():
    with pytest.raises(NoPlan, match="--tpot and --ttft cannot be met together"):
        plan_serving("llama-3.1-8b", ["apple-m2-ultra:1"], tpot="1ms", ttft="1ms", precision="q4_k_m")


def test_concurrencies_are_powers_of_two_points_between_and_what_is_demanded():
    assert user_ladder(10).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 10]
    assert _close(user_ladder(1), 0)
    assert user_ladder(40, 11).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 14, 16, 20, 24, 28, 32, 40]
    assert user_ladder(4, 9).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(("wanted", "able"), [(1, 1), (100, 1), (100, 2), (100, 37), (100, 99), (64, 64), (1000, 64)])
def test_the_most_users_of_a_change_are_found_in_few_searches(wanted, able, monkeypatch):
    tried = []

    def searched(asked, _tally, _fit):
        tried.append(asked.constraints.concurrency)
        return tried[-1] <= able

    monkeypatch.setattr(ways_out, "evaluate", searched)
    asked = SimpleNamespace(constraints=Constraints(concurrency=wanted))
    monkeypatch.setattr(ways_out, "_at", lambda _, values: SimpleNamespace(constraints=Constraints(**values)))
    assert ways_out._most_users(asked, {"concurrency": 1}, FIT) == able
    assert len(tried) <= 2 * math.ceil(math.log2(able + 1)) + 2


@pytest.mark.parametrize(("leaving", "moved"), [(False, 10 + 20 / 4), (True, 10 / 4 + 20)])
def test_a_divided_product_moves_whole_inputs_or_whole_outputs(leaving, moved):
    """A matrix of 10 x 20 in bf16 over four ranks, and three tokens that enter it and leave it."""
    model = read_model("llama-3.1-8b")
    group = (linear("x", 10, 20),)
    found = product("x", group, 3.0, 4.0, model, leaving=leaving)
    assert float(found.traffic) == 2 * 10 * 20 / 4 + 3 * moved * 2
    assert float(found.work) == 2 * 3 * 10 * 20 / 4


@pytest.mark.parametrize(
    ("name", "tp", "elements"),
    [
        ("llama-3.1-8b", 1, 1.5 * 2 * 14_336),
        ("llama-3.1-8b", 4, 1.5 * 2 * 14_336 / 4),
        ("mixtral-8x7b", 1, 1.5 * 2 * 14_336 * 2 + 2 * 2 * 4096),
        ("mixtral-8x7b", 4, 1.5 * 2 * 14_336 * 2 / 4 + 2 * 2 * 4096),
    ],
)
def test_the_widest_tensors_of_a_layer_are_those_of_its_experts(name, tp, elements):
    """Gate and up and half of them again; tokens of two experts wait beside, gathered and to be added."""
    assert widest(read_model(name), Split.of(Strategy(tp=tp, pp=1, dp=1))) == elements


@pytest.mark.parametrize(
    ("pp", "kind", "share", "beside"), [(1, "microbatch", 1.0, 1.0), (4, "microbatch", 4.0, None), (4, "", 1.0, 1.0)]
)
def test_stages_work_side_by_side_where_an_engine_divides_batches(pp, kind, share, beside):
    from roofplan.serving.surface import _System

    engine = replace(catalogue.engine("vllm-0.33"), pipeline_kind=kind)
    strategy = Strategy(tp=1, pp=pp, dp=1)
    system = _System(
        model=read_model("llama-3.1-8b"), strategy=strategy, r=SimpleNamespace(engine=engine), kv_bytes=2.0, drafted=0.0
    )
    assert (system.share, system.beside) == (share, beside)


@pytest.mark.parametrize(
    ("role", "scan", "rate"), [("scan", 5.0, 5.0), ("scan", None, 2.0), ("norm", 5.0, 2.0), ("norm", None, 2.0)]
)
def test_scans_have_a_rate_of_their_own_where_it_is_known(role, scan, rate):
    op, r = SimpleNamespace(kind="memory", role=role), SimpleNamespace(vector_peak=2.0, scan=scan)
    assert compute_rate(op, r) == rate


@pytest.mark.parametrize(
    ("passes", "sequences", "expected"), [(1.0, 4.0, 1 + 4), (2.5, 12.0, 3 * (1 + 4)), (3.0, 1.0, 3 * (1 + 1))]
)
def test_the_host_is_paid_for_each_pass_and_each_sequence_in_it(passes, sequences, expected):
    r = SimpleNamespace(step_base=1.0, step_each=1.0, engine=VLLM, sources={"engine": ()})
    assert host_of_passes(passes, sequences, r).value == expected


def test_matrices_that_are_kept_whole_or_follow_kv_heads_have_their_own_shares():
    q, k, whole = linear("q", 8, 8), linear("k", 8, 8, split="kv_heads"), linear("r", 8, 8, split="none")
    assert [fraction(one, 4.0, 2) for one in (q, k, whole)] == [0.25, 0.5, 1.0]
    assert fraction(k, 4.0, None) == 0.25


def test_a_context_of_prompt_and_answer_is_not_shortened():
    (box,) = machine("h100-sxm:8")
    asked = Request(model=LLAMA, machines=(box,), workload=Workload(input=3000, output=1096, context=4096))
    assert list(ways_out._shorter(asked, {}, FIT)) == []
    longer = replace(asked, workload=replace(asked.workload, context=8192))
    (change,) = ways_out._shorter(longer, {"--on": "x"}, FIT)
    assert change.flags == {"--on": "x", "--context": str(change.asked.workload.context)}
    assert 4096 <= change.asked.workload.context < 8192
    assert change.size == pytest.approx(math.log(8192 / change.asked.workload.context))


def test_a_shorter_context_is_the_longest_that_some_plan_holds():
    (box,) = machine("rtx-4090:4")
    asked = Request(
        model=read_model("llama-3.1-8b"), machines=(box,), workload=Workload(input=3000, output=1000, context=120_000)
    )
    least = replace(asked, workload=replace(asked.workload, context=4000))
    longest = {min(int(plan.memory.longest), 119_999) for plan in evaluate(least, Tally(), FIT)}
    assert len(longest) > 1
    (change,) = ways_out._shorter(asked, {}, FIT)
    assert change.asked.workload.context == max(longest)


def test_a_communicator_takes_memory_where_ranks_talk():
    alone, two = (plan_serving("llama-3.1-8b", f"h100-sxm:{n}", strategy=f"tp={n}").plans[0] for n in (1, 2))
    memory = alone.engine.memory
    assert alone.memory.runtime == memory["runtime_context"].value
    assert two.memory.runtime == memory["runtime_context"].value + memory["communication"].value


@pytest.mark.parametrize(
    ("stored", "tensor", "said"),
    [
        ("fp8-block", 1, None),
        ("fp8-block", 2, "width 8320 / tp 2 = 4160 is not a multiple of the 128 of fp8-block"),
        ("bf16", 2, None),
        ("bf16", 3, "width 8320 is not divisible by tensor parallel size (3)"),
        ("q8_0", 2, None),
    ],
)
def test_a_feed_forward_is_cut_at_whole_blocks(stored, tensor, said):
    up, down = (
        replace(linear(f"mlp.{name}_proj", *sizes), format=stored)
        for name, sizes in (("up", (4096, 8320)), ("down", (8320, 4096)))
    )
    engine = catalogue.engine("vllm-0.33")
    found = _cuts(((up,), (down,)), tensor, engine)
    assert found == (None if said is None else f"{engine.id}: {said}")
