"""Properties above the laws: one physics in serving and training, quicker hardware never slower, arrays equal to scalars for whole steps."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from conftest import FIT

from roofplan import catalogue
from roofplan.catalogue.machines import machine
from roofplan.hf.find import read_model
from roofplan.operations import layer_operations
from roofplan.operations.table import Split, Step
from roofplan.operations.training import forward
from roofplan.records.strategy import Strategy
from roofplan.records.training import Job, Layout
from roofplan.records.workload import Workload
from roofplan.serving import predict
from roofplan.timing.kernels import operation_time
from roofplan.timing.rates import rates
from roofplan.training.ability import ability
from roofplan.training.ledger import ledgers, peak
from roofplan.training.step import PLAIN, step

MEGATRON, VLLM = catalogue.framework("megatron-core-0.16"), catalogue.engine("vllm-0.33")
COMPUTED = {"matmul", "experts", "prefill_attention"}


def seconds(table, r):
    """Return the time of products and attention."""
    plain = (op._replace(kind=PLAIN.get(op.kind, op.kind)) for op in table)
    return sum(float(operation_time(op, r)) for op in plain if op.kind in COMPUTED)


@pytest.mark.parametrize("tokens", [512.0, 4096.0])
@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        *itertools.product(("llama-3.1-8b", "gemma-3-27b", "nemotron-h-8b"), (1, 4)),
        # over tensor ranks, routers and experts are divided in other ways: by rank in serving, by sequence and expert rank in training
        *itertools.product(("mixtral-8x7b", "qwen3-30b-a3b", "jamba-v0.1"), (1,)),
    ],
)
def test_a_forward_pass_costs_the_same_in_serving_and_in_training(name, tensor, tokens):
    """The same tokens through the same layer on the same ranks: the same products and the same attention."""
    model, r = read_model(name), rates(machine("h100-sxm:8")[0], MEGATRON, FIT)
    job = Job(sequence=int(tokens), batch=8, optimizer=catalogue.optimizers()["adam"])
    prompt = Step(new=tokens, requests=1.0)
    for layer, _ in model.decoder.kinds():
        served = layer_operations(layer, prompt, Split.of(Strategy(tp=tensor)), model, 2.0, MEGATRON.kernels)
        trained = forward(layer, tokens, job, Layout(tp=float(tensor), micro_batch=1.0), model, MEGATRON)
        assert seconds(served, r) == pytest.approx(seconds(trained, r), rel=1e-9)


# Quicker hardware is never slower ----------------------------------------------------------------


def scaled(machine_, what, factor):
    """Return a machine whose memory, compute or links are quicker by a factor."""

    def times(numbers, *names):
        return {key: replace(x, value=x.value * factor) if key in names else x for key, x in numbers.items()}

    device = machine_.device
    if what == "bandwidth":
        return replace(machine_, device=replace(device, quantities=times(device.quantities, "memory_bandwidth")))
    if what == "compute":
        peaks, best = times(device.peak, *device.peak), times(device.measured, *device.measured)
        return replace(machine_, device=replace(device, peak=peaks, measured=best))
    links = {
        name: replace(link, quantities=times(link.quantities, "bandwidth", "bandwidth_pair"))
        for name in ("scale_up", "host_link", "network")
        if (link := getattr(machine_, name)) is not None
    }
    inside = times(device.quantities, "link_bandwidth", "link_bandwidth_pair", "host_link_bandwidth")
    return replace(machine_, device=replace(device, quantities=inside), **links)


def served(machine_, model, strategy, engine=VLLM):
    """Return TPOT and time per token of 64 users, and TTFT of one: more prompts of others meet where decoding takes less time."""
    load = Workload(input=1024, output=256, context=2048)
    r = rates(machine_, engine, FIT)
    found, alone = (predict(model, strategy, engine, load, r, n, kv_bytes=2.0, budget=8192.0) for n in (64.0, 1.0))
    return float(found.tpot.value), float(alone.ttft.value), 1.0 / float(found.rate)


def trained(machine_, model, layout):
    job = Job(sequence=4096, batch=64, optimizer=catalogue.optimizers()["adam"])
    return (float(step(model, job, layout, ability(machine_, MEGATRON, FIT)).time),)


QUICKER = [*itertools.product(("bandwidth", "compute", "links"), (1.1, 3.0))]


@pytest.mark.parametrize(("what", "factor"), QUICKER)
@pytest.mark.parametrize(
    ("name", "on", "degrees"),
    [
        ("llama-3.1-8b", "h100-sxm:8", {"tp": 8}),
        ("llama-3.1-8b", "rtx-4090:8", {"tp": 2, "pp": 4}),
        ("mixtral-8x7b", "h100-sxm:16", {"tp": 8, "pp": 2}),
        ("deepseek-v3", "h200-sxm:16", {"tp": 16, "ep": 16}),
        ("llama-3.1-70b", "mi300x:8", {"tp": 8}),
        ("llama-3.1-8b", "rtx-4090:8x1@10gbe", {"tp": 8}),
    ],
)
def test_serving_is_never_slower_on_quicker_hardware(name, on, degrees, what, factor):
    box, model = machine(on)[0], read_model(name)
    before, after = (served(one, model, Strategy(**degrees)) for one in (box, scaled(box, what, factor)))
    assert all(quick <= slow * (1 + 1e-12) for quick, slow in zip(after, before, strict=True))
    free = replace(VLLM, kernels=replace(VLLM.kernels, from_python=False))  # prompts wait for no host
    before, after = (served(one, model, Strategy(**degrees), free) for one in (box, scaled(box, what, factor)))
    assert after != before


@pytest.mark.parametrize(("what", "factor"), QUICKER)
@pytest.mark.parametrize(
    ("name", "on", "layout"),
    [
        ("llama-3.1-8b", "h100-sxm:64", Layout(tp=2.0, dp=32.0, zero=1)),
        ("llama-3.1-8b", "rtx-4090:8", Layout(tp=2.0, dp=4.0, zero=1)),
        ("mixtral-8x7b", "h100-sxm:64", Layout(tp=1.0, dp=64.0, ep=8.0, zero=1)),
        ("llama-3.1-8b", "a100-sxm-80:64", Layout(tp=4.0, pp=2, dp=8.0, zero=1)),
        ("llama-3.1-8b", "h100-sxm:64", Layout(tp=1.0, cp=2.0, dp=32.0, zero=1)),
        ("llama-3.1-8b", "h100-sxm:64", Layout(tp=1.0, dp=64.0, zero=3)),
    ],
)
def test_training_is_never_slower_on_quicker_hardware(name, on, layout, what, factor):
    box, model = machine(on)[0], read_model(name)
    before, after = (trained(one, model, layout) for one in (box, scaled(box, what, factor)))
    assert after[0] <= before[0] * (1 + 1e-12)
    assert after != before


# Arrays and scalars ------------------------------------------------------------------------------

USERS = np.array([1.0, 7.0, 64.0, 300.0])


@pytest.mark.parametrize(
    ("name", "on", "degrees"),
    [
        ("llama-3.1-8b", "h100-sxm:8", {"tp": 8}),
        ("deepseek-v3", "h200-sxm:16", {"tp": 16, "ep": 16}),
        ("deepseek-v3", "h200-sxm:8", {"tp": 8, "ep": 8, "attention_dp": 8}),
        ("jamba-v0.1", "a100-sxm-80:8", {"tp": 4, "pp": 2}),
        ("gpt-oss-120b", "rtx-4090:8", {"tp": 2, "pp": 4}),
    ],
)
def test_a_serving_step_over_arrays_is_each_of_its_scalars(name, on, degrees):
    model, r = read_model(name), rates(machine(on)[0], VLLM, FIT)
    load, strategy = Workload(input=2000, output=200, context=4096), Strategy(**degrees)

    def at(users):
        return predict(model, strategy, VLLM, load, r, users, kv_bytes=2.0, budget=8192.0)

    many = at(USERS)
    for place, users in enumerate(USERS.tolist()):
        one = at(users)
        for read in (
            lambda p: p.tpot.value,
            lambda p: p.ttft.value,
            lambda p: p.rate,
            lambda p: p.busy,
            lambda p: p.prefill_rate,
        ):
            assert np.broadcast_to(read(many), USERS.shape)[place] == pytest.approx(float(read(one)), rel=1e-12)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "mixtral-8x7b", "nemotron-h-8b"])
@pytest.mark.parametrize(
    "more",
    [{}, {"recompute": "full"}, {"zero": 3}, {"pp": 2}, {"pp": 2, "schedule": "zb-h1"}, {"offload": "optimizer"}],
)
def test_a_training_step_over_arrays_is_each_of_its_scalars(name, more):
    model, a = read_model(name), ability(machine("h100-sxm:64")[0], MEGATRON, FIT)
    job = Job(sequence=4096, batch=256, optimizer=catalogue.optimizers()["adam"])
    pp = more.get("pp", 1)
    degrees = [
        (tp, cp, 64.0 / pp / tp / cp, micro) for tp in (1.0, 2.0, 8.0) for cp in (1.0, 2.0) for micro in (1.0, 2.0)
    ]
    columns = dict(zip(("tp", "cp", "dp", "micro_batch"), map(np.array, zip(*degrees, strict=True)), strict=True))
    fixed = Layout(**({"zero": 1} | more))
    many = fixed.with_degrees(columns)
    times, room = step(model, job, many, a).time, peak(ledgers(model, job, many, MEGATRON, FIT))
    for place, (tp, cp, dp, micro) in enumerate(degrees):
        one = replace(fixed, tp=tp, cp=cp, dp=dp, micro_batch=micro)
        assert times[place] == pytest.approx(float(step(model, job, one, a).time), rel=1e-12)
        assert room[place] == pytest.approx(float(peak(ledgers(model, job, one, MEGATRON, FIT))), rel=1e-12)
