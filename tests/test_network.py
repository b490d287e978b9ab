"""One network: published collectives are met, and serving and training pay the same for a message."""

import csv
import math
import re
from collections import Counter
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from conftest import FIT

from roofplan import catalogue
from roofplan.catalogue.machines import machine
from roofplan.evidence.fits.kernels import kernel_rows
from roofplan.evidence.fits.messages import BY_PEERS, timed
from roofplan.hf.find import read_model
from roofplan.operations import UNPADDED, layer_operations
from roofplan.operations.table import Operation, Split
from roofplan.operations.table import Step as WholeStep
from roofplan.operations.training import forward
from roofplan.records.strategy import Strategy
from roofplan.records.training import Job, Layout
from roofplan.timing.hops import hop_times, mean_hop, slowest_hop
from roofplan.timing.messages import message_term
from roofplan.timing.network import (
    MESSAGES,
    Ranks,
    all_reduce,
    between_hosts,
    exchange,
    gather,
    lines,
    message_start,
    network,
    passed_on,
    reduce_ways,
)

MEGATRON, VLLM = catalogue.framework("megatron-core-0.16"), catalogue.engine("vllm-0.33")
MB = 1e6


def nets(on):
    return tuple(network(machine(on)[0], software, FIT) for software in (VLLM, MEGATRON))


@pytest.mark.parametrize(
    ("op", "within"),
    [("all_reduce", 0.2), ("all_gather", 0.25), ("reduce_scatter", 0.25), ("alltoall", 0.3), (BY_PEERS, 0.2)],
)
def test_published_collectives_inside_a_host_are_met(op, within):
    """Median error over devices on switched NVLink, counts of ranks and sizes from 32 KiB to gigabytes."""
    off = []
    for one in timed(kernel_rows()):
        if one.op == op and (one.device.scale_up or "").startswith("nvlink") and "bridge" not in one.device.scale_up:
            net = network(machine(f"{one.device.id}:{one.ranks}")[0], VLLM if op == BY_PEERS else MEGATRON, FIT)
            law = all_reduce if op in {"all_reduce", BY_PEERS} else gather
            off.append(abs(math.log(float(law(one.size, Ranks(float(one.ranks), net))) / one.seconds)))
    assert len(off) > 20
    assert median(off) < within


@pytest.mark.parametrize("on", ["h100-sxm:8", "h100-sxm:16", "rtx-4090:8", "mi300x:8", "l40s:8", "rtx-4090:8x1@10gbe"])
@pytest.mark.parametrize("size", [0.01 * MB, 1 * MB, 100 * MB, 1000 * MB])
@pytest.mark.parametrize("ranks", [2.0, 8.0, 16.0])
def test_serving_and_training_pay_the_same_for_a_message(on, size, ranks):
    serving, training = nets(on)
    if ranks > serving.machine.count:
        pytest.skip("more ranks than devices")
    assert gather(size, Ranks(ranks, serving)) == gather(size, Ranks(ranks, training))
    assert exchange(size, Ranks(ranks, serving)) == exchange(size, Ranks(ranks, training))
    assert hop_times(size, ranks, serving) == hop_times(size, ranks, training)
    # only kernels that read peers' memory tell their all-reduces apart, and they are never the slower choice
    one, other = (float(all_reduce(size, Ranks(ranks, net))) for net in (serving, training))
    assert one <= other
    assert float(all_reduce(size, Ranks(ranks, replace(serving, shot=math.inf)))) == other


def test_peers_kernels_win_small_all_reduces_and_lose_large_ones():
    serving, _ = nets("h100-sxm:8")
    quickest = {
        size: min(ways := reduce_ways(size, 8.0, serving), key=lambda name: float(ways[name][0]))
        for size in (16e3, 1e6, 1e9)
    }
    assert quickest[16e3] == "one-shot"
    assert quickest[1e6] == "two-shot"
    assert quickest[1e9] == "in-network"


def test_a_gather_over_two_hosts_fills_all_their_ports():
    """100 MB to 16 H100: each host takes in half of it over eight ports, so the ring inside the host or the ports bind, not one port."""
    _, net = nets("dgx-h100:2")
    ports = 8 * 50e9 * FIT.find("message", "network", ["any"]).value
    assert gather(100 * MB, Ranks(16.0, net)) > 100 * MB * 15 / 16 / ports
    assert gather(100 * MB, Ranks(16.0, net)) < 2.0 * 100 * MB * 15 / 16 / ports


@pytest.mark.parametrize(
    "on", ["h100-sxm:16", "rtx-4090:8", "mi300x:8", "gb200-nvl72", "tpu-v5p:64", "rtx-3090:2", "l40s:8"]
)
def test_more_bytes_and_more_ranks_never_take_less(on):
    for net in nets(on):
        sizes = np.geomspace(1e3, 1e10, 40)
        most = float(min(net.machine.count, 16))
        for law in (all_reduce, gather, exchange):
            times = law(sizes, Ranks(most, net))
            assert np.all(np.diff(times) >= 0)
            assert np.all(times >= law(sizes, Ranks(2.0, net)) * (1 - 1e-9)) or net.topology in {
                "full-mesh",
                "cube-mesh",
            }
            assert float(law(1e6, Ranks(1.0, net))) == float(law(1e6, Ranks(1.0, net, stride=8.0))) == 0.0
        for size in (1e3, 1e6, 1e9):
            assert slowest_hop(size, 1.0, net) == max(hop_times(size, 1.0, net))
            assert float(mean_hop(size, 1.0, most, net)) <= float(slowest_hop(size, 1.0, net)) * (1 + 1e-12)


def test_arrays_of_groups_equal_their_scalars():
    _, net = nets("h100-sxm:64")
    ranks, size = np.array([1.0, 2.0, 8.0, 16.0, 64.0]), 3e7
    for law in (all_reduce, gather, exchange):
        many = np.broadcast_to(law(size, Ranks(ranks, net)), ranks.shape)
        assert many == pytest.approx([float(law(size, Ranks(float(n), net))) for n in ranks], rel=1e-12)
    for stride in (1.0, 8.0):
        start, each = Ranks(ranks, net, stride).rings(reduce=True, data=True)[-1]
        alone = [Ranks(float(n), net, stride).rings(reduce=True, data=True)[-1] for n in ranks]
        assert np.broadcast_to(start, ranks.shape) == pytest.approx([float(a) for a, _ in alone], rel=1e-12)
        assert np.broadcast_to(each, ranks.shape) == pytest.approx([float(b) for _, b in alone], rel=1e-12)
        assert np.broadcast_to(message_start(Ranks(ranks, net, stride)), ranks.shape) == pytest.approx(
            [float(message_start(Ranks(float(n), net, stride))) for n in ranks]
        )
        assert passed_on(size, Ranks(ranks, net, stride))[1:] == pytest.approx(
            [float(passed_on(size, Ranks(float(n), net, stride))) for n in ranks[1:]]
        )


def test_small_messages_take_the_quick_protocol_and_large_ones_the_bulk():
    _, net = nets("h100-sxm:8")
    quick, bulk = lines(8.0, net, net.gather)
    assert quick.start < bulk.start
    assert quick.rate < bulk.rate
    assert float(gather(32e3, Ranks(8.0, net))) == pytest.approx(
        quick.start + 7 * quick.step + 7 / 8 * 32e3 / quick.rate
    )
    assert float(gather(1e9, Ranks(8.0, net))) == pytest.approx(bulk.start + 7 / 8 * 1e9 / bulk.rate)


def test_an_answer_cites_only_what_its_messages_rest_on(run_json):
    _, document = run_json("serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--strategy", "tp=8", "--concurrency", "1")
    cited = " ".join(document["plans"][0]["source_ids"])
    assert "message.shot for switch/Hopper" in cited
    assert "message.bus_share" not in cited
    assert "message.hop" not in cited


def test_a_constant_of_a_fabric_holds_before_that_of_all():
    own = replace(FIT.find("message", "network", ["any"]), scope="ib-ndr", value=0.5)
    there = machine("h100-sxm:16")[0]
    assert network(there, VLLM, FIT.with_([own])).outside == pytest.approx(0.5 * there.network_per_device)
    assert network(there, VLLM, FIT.with_([replace(own, scope="ib-hdr")])).outside == network(there, VLLM, FIT).outside


@pytest.mark.parametrize(
    ("on", "engine", "reads"),
    [
        ("h100-sxm:8", "vllm-0.33", True),
        ("h100-sxm:8", "tensorrt-llm-1.2", True),
        ("mi300x:8", "sglang-0.5.23", True),
        ("mi300x:8", "tensorrt-llm-1.2", False),
        ("rtx-4090:8", "vllm-0.33", False),
    ],
)
def test_kernels_read_the_memory_of_peers_where_the_engine_has_them(on, engine, reads):
    ways = reduce_ways(1e5, 8.0, network(machine(on)[0], catalogue.engine(engine), FIT))
    assert ("one-shot" in ways) is reads


def test_kernels_read_the_memory_of_eight_peers_at_most():
    net = network(machine("gb200-nvl72")[0], VLLM, FIT)
    for ranks, some in ((8.0, True), (16.0, False)):
        for way in ("one-shot", "two-shot"):
            assert (float(reduce_ways(1e5, ranks, net)[way][0]) < math.inf) is some


def test_the_table_of_kernels_is_read_whole():
    with (catalogue.ROOT / "measured" / "kernels.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["kernel"] == "collective"]
    assert Counter(one.op for one in timed(rows)) == {
        "all_reduce": 133,
        "all_gather": 100,
        "alltoall": 100,
        "reduce_scatter": 100,
        "custom_all_reduce": 69,
    }


def test_what_a_switch_adds_does_not_pass_the_ring_over_several_racks():
    """Seventy-two ranks of a rack send their sum once and take it once: (n + 1) / n of the tensor, not 2 (n - 1) / n."""
    net = network(machine("gb200:144")[0], VLLM, FIT)
    assert net.adds
    _, each = Ranks(144.0, net).rings(reduce=True)[-1]
    around, added = 2.0 * 71 / 72, 73 / 72
    inside = net.link(72.0, net.reduce) * around / added
    assert inside < net.outside * 72
    assert each == pytest.approx(2.0 * 143 / 144 / inside, rel=1e-9)
    _, gathered = Ranks(144.0, net).rings(reduce=False)[-1]
    assert gathered == pytest.approx(143 / 144 / net.link(72.0, net.gather), rel=1e-9)


def test_a_group_that_fills_one_pod_does_not_cross_its_uplinks():
    net = network(machine("h100-sxm:128@ib-ndr")[0], MEGATRON, FIT)
    pods = replace(net, pod=64.0, taper=16.0)
    inside, across = ([float(all_reduce(100 * MB, Ranks(n, one))) for one in (net, pods)] for n in (64.0, 128.0))
    assert inside[0] == inside[1]
    assert across[1] > 1.5 * across[0]
    for hosts, slower in ((8.0, False), (16.0, True)):
        flat, tapered = (between_hosts(100 * MB, 8.0, hosts, 1.0, one) for one in (net, pods))
        assert all((tapered[name][0] > time) == slower for name, (time, _) in flat.items())


@pytest.mark.parametrize("on", ["a100-sxm-80:64", "h100-sxm:64"])
@pytest.mark.parametrize("framework", ["megatron-lm-3.0", "megatron"])
def test_ports_that_are_shared_are_cited(on, framework):
    software = catalogue.framework(catalogue.find("frameworks", framework, "--framework"))
    net = network(machine(on)[0], software, FIT)
    assert (
        ("shared" in net.rests_on) == (net.shared < 1.0) == (on.startswith("a100") and framework == "megatron-lm-3.0")
    )


SIZES = (1e3, 64e3, 1e6, 16e6, 300e6, 8e9)


def formula_of(leaf):
    """Return what the printed formula of a message gives with its numbers."""
    text = (
        re.sub(r"layers} x \(", "layers} * (", leaf.text.split("; ")[0])
        .replace(" x ", " * ")
        .replace("log2", "math.log2")
    )
    numbers = {name: repr(one[0] if isinstance(one, tuple) else one) for name, one in leaf.numbers.items()}
    return eval(text.format_map(numbers), {"math": math})  # noqa: S307 - our own formula


@pytest.mark.parametrize(
    ("on", "ranks", "stride"),
    [
        ("h100-sxm:8", 8.0, 1.0),
        ("h100-sxm:8", 4.0, 2.0),
        ("h100-sxm:32", 32.0, 1.0),
        ("h100-sxm:32", 8.0, 4.0),
        ("h100-sxm:32", 4.0, 8.0),
        ("h100-sxm:2048", 2048.0, 1.0),
        ("b200-sxm:8", 8.0, 1.0),
        ("rtx-4090:8", 8.0, 1.0),
        ("rtx-4090:8x1@10gbe", 8.0, 1.0),
        ("mi300x:8", 8.0, 1.0),
        ("tpu-v5e:16", 16.0, 1.0),
    ],
)
@pytest.mark.parametrize("kind", ["all_reduce", "gather", "exchange"])
def test_a_message_is_explained_by_the_law_that_times_it(on, ranks, stride, kind):
    laws = {"all_reduce": all_reduce, "gather": gather, "exchange": exchange}
    for net in nets(on):
        group = Ranks(ranks, net, stride)
        for size in SIZES:
            seconds = laws[kind](size, group)
            op = Operation(
                "m", kind, 0.0, size, kernels=0.0, ranks=ranks, text="{tokens} tokens", numbers={"tokens": 1.0}
            )
            term = message_term(op, seconds, group, "{layers}", {"layers": 3.0})
            assert float(term.value) == pytest.approx(3.0 * float(seconds), rel=1e-9)
            leaves = term.parts or (term,)
            assert sum(float(one.value) for one in leaves) == pytest.approx(3.0 * float(seconds), rel=1e-9)
            for one in leaves:
                assert one.sources
                assert one.numbers["tokens"] == 1.0
                if "(" in one.text:
                    assert formula_of(one) == pytest.approx(float(one.value), rel=1e-9)
                elif not one.parts:
                    assert kind != "all_reduce"


def test_numbers_of_a_message_and_of_its_law_have_different_names():
    """An explanation holds both; a name that stood twice would show one number in the place of the other."""
    of_laws = {"start", "step", "group", "size", "rate", "kind", "layers"}
    seen = set()
    for name in ("llama-3.1-8b", "deepseek-v3", "qwen3-next-80b-a3b"):
        model = read_model(name)
        job = Job(sequence=4096, batch=64, optimizer=catalogue.optimizers()["adam"])
        for layer in dict.fromkeys(model.decoder.layers):
            split = Split.of(Strategy(tp=4, dp=2, ep=8))
            table = layer_operations(
                layer, WholeStep(new=512.0, requests=1.0, sequences=8.0, context=100.0), split, model, 2.0, UNPADDED
            )
            for parallel in (True, False):
                layout = Layout(tp=4, cp=2, ep=2, dp=4, sequence_parallel=parallel)
                table += forward(layer, 4096.0, job, layout, model, MEGATRON)
            for op in table:
                if op.kind in MESSAGES:
                    seen.add(op.kind)
                    assert of_laws.isdisjoint(op.numbers), op.name
    assert {"all_reduce", "gather", "exchange"} <= seen


@pytest.mark.parametrize("on", ["h100-sxm:16", "b200:16", "a100-sxm-80:32"])
def test_kernels_that_read_the_memory_of_peers_need_all_of_them_in_one_host(on):
    """vLLM and SGLang leave a group over several hosts to NCCL, whose all-reduce training pays too."""
    serving, training = nets(on)
    for size in (14e3, 1e6):
        here, everywhere = (float(all_reduce(size, Ranks(n, serving))) for n in (8.0, float(serving.machine.count)))
        assert here < float(all_reduce(size, Ranks(8.0, training)))
        assert everywhere == float(all_reduce(size, Ranks(float(training.machine.count), training)))
        both = all_reduce(size, Ranks(np.array([8.0, float(serving.machine.count)]), serving))
        assert both == pytest.approx([here, everywhere])
    assert any("shot" in way for way in reduce_ways(14e3, 8.0, serving))
    assert not any("shot" in way for way in reduce_ways(14e3, 8.0, serving, alone=False))
