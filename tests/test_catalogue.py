"""The data rules: sources, kinds, peaks that follow from units and clock, dated prices."""

import datetime
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from roofplan import catalogue, money
from roofplan.api import plan_serving
from roofplan.catalogue import codec, machines
from roofplan.catalogue.machines import accelerator, machine, resized, with_all_ports
from roofplan.errors import InputError, UnknownName
from roofplan.hf.find import read_model
from roofplan.operations.table import element_bytes

KINDS = {"datasheet", "measured", "derived", "estimate", "quote", "documented", "list", "street"}
DEVICES = [catalogue.accelerator(name) for name in catalogue.ids("accelerators")]


def numbers(thing):
    for table in ("quantities", "peak", "sparse", "measured"):
        yield from getattr(thing, table, {}).items()


def test_at_least_eighty_accelerators():
    assert len(DEVICES) >= 80


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.id)
def test_every_number_has_a_source_a_date_and_a_kind(device):
    for name, number in numbers(device):
        assert number.value > 0, name
        assert number.kind in KINDS, name
        assert number.source in catalogue.sources(), name
        datetime.date.fromisoformat(number.seen)


CHECKED = [
    d
    for d in DEVICES
    if all(k in d.quantities for k in ("units", "clock", "flop_per_clock_per_unit"))
    and ("bf16" in d.peak or "fp16" in d.peak)
]


@pytest.mark.parametrize("device", CHECKED, ids=lambda d: d.id)
def test_peak_is_units_times_clock_times_rate(device):
    """The one formula that catches sparse, vector, per-die and FP16-accumulate numbers in a dense column."""
    q = device.quantities
    computed = q["units"].value * q["clock"].value * q["flop_per_clock_per_unit"].value
    published = device.peak.get("bf16") or device.peak["fp16"]
    assert computed == pytest.approx(published.value, rel=0.012)


def test_the_check_is_not_empty():
    assert len(CHECKED) >= 60


def test_facts_that_the_articles_get_wrong():
    assert catalogue.accelerator("rtx-4090").peak["bf16"].value == pytest.approx(165.2e12)
    assert catalogue.accelerator("a100-sxm-80").quantities["link_bandwidth_both"].value == 600e9
    assert "fp8" not in catalogue.accelerator("a100-sxm-80").peak
    assert catalogue.accelerator("tpu-v5p").quantities["memory_bandwidth"].value == pytest.approx(2.765e12)
    assert catalogue.accelerator("mi300x").peak["bf16"].value == pytest.approx(1307.4e12)


def test_sparse_is_never_below_dense():
    for device in DEVICES:
        for name, number in device.sparse.items():
            if name in device.peak:
                assert number.value > device.peak[name].value


@pytest.mark.parametrize("kind", ["accelerators", "links", "servers", "models", "engines"])
def test_names_are_unique(kind):
    seen = {}
    for identity in catalogue.ids(kind):
        table = catalogue.files.table(kind, identity)
        assert table["id"] == identity
        for name in [identity, *table.get("aliases", [])]:
            assert seen.setdefault(name.lower(), identity) == identity, name


def test_prices_have_a_date_and_a_kind_and_are_in_order():
    for name in catalogue.ids("accelerators"):
        quotes = catalogue.prices(name)
        assert all(p.value > 0 and p.source and p.date for p in quotes)


def test_a_ranking_never_mixes_price_kinds():
    box = machine("h100-sxm:8")[0]
    assert money.quotation(box, "rent").kind == "rent-on-demand"
    assert money.quotation(box, "contract").kind == "rent-contract"
    assert money.quotation(box, "spot") is None


def test_one_newest_version_per_engine():
    newest = [e.name for e in map(catalogue.engine, catalogue.ids("engines")) if e.newest]
    assert sorted(newest) == sorted(set(newest)) == ["hf-transformers", "llama.cpp", "sglang", "tensorrt-llm", "vllm"]


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("mxfp4", 4.25),
        ("nvfp4", 4.5),
        ("awq", 4.15625),
        ("q8_0", 8.5),
        ("q4_0", 4.5),
        ("bf16", 16),
        ("bnb-nf4-double", 4.127),
        ("awq-g64", 4.3125),
    ],
)
def test_stored_bits(name, bits):
    assert element_bytes(name) * 8 == pytest.approx(bits, rel=1e-3)


def test_constants_say_on_what_they_were_fitted():
    for item in catalogue.constants():
        assert item.value > 0
        assert item.source
        assert item.rows >= 0
        assert (item.rows > 0) == (item.kind == "fit"), item


@pytest.mark.parametrize(
    ("text", "hosts", "per_host"),
    [
        ("h100-sxm:8", 1, 8),
        ("h100:4", 1, 4),
        ("h100-sxm:16", 2, 8),
        ("rtx-4090:8x1@10gbe", 8, 1),
        ("dgx-h100:2", 2, 8),
        ("h100-sxm:512@ib-ndr", 64, 8),
    ],
)
def test_device_grammar(text, hosts, per_host):
    found = machine(text)[0]
    assert (found.hosts, found.per_host) == (hosts, per_host)


def test_no_count_means_one_to_a_full_server():
    assert [m.count for m in machine("h100-sxm")] == [1, 2, 4, 8]


@pytest.mark.parametrize(
    "text",
    [
        "h100-sxm:0",
        "h100-sxm:-1",
        "h100-sxm:1.5",
        "h100-sxm:0x8",
        "h100-sxm:many",
        "h100-sxm:9",
        "h100-sxm:8+rtx-4090:8",
        "",
        ":8",
        "h100-sxm:8@nvlink4",
    ],
)
def test_bad_devices_are_refused(text):
    with pytest.raises(InputError):
        machine(text)


def test_misspelt_device_names_the_nearest():
    with pytest.raises(UnknownName) as refused:
        machine("rtx4091:4")
    assert "rtx-4090" in refused.value.nearest


def test_user_accelerator(tmp_path):
    file = tmp_path / "mychip.toml"
    file.write_text(
        'id = "mychip"\nmemory_capacity = "96 GiB"\nmemory_bandwidth = "4 TB/s"\nhost_link = "pcie5-x16"\n[peak]\nbf16 = "500 TFLOPS"\n'
    )
    found = machine(f"{file}:2")[0]
    assert found.device.bandwidth == 4e12
    file.write_text('id = "mychip"\nmemory_capacity = "96"\nmemory_bandwidth = "4 TB/s"\n[peak]\nbf16 = "500 TFLOPS"\n')
    with pytest.raises(InputError, match="memory_capacity"):
        machine(f"{file}:2")


OWN = """
id = "mychip"
vendor = "Example"
architecture = "Hopper"
memory_capacity = "96 GiB"
memory_bandwidth = "4 TB/s"
scale_up = "nvlink4"
link_bandwidth = "300 GB/s"
price = "1.20 USD/h"
[peak]
bf16 = "600 TFLOPS"
"""


def test_an_own_device_is_planned_with_its_own_price_and_never_graded_calibrated(tmp_path):
    file = tmp_path / "mychip.toml"
    file.write_text(OWN)
    best = plan_serving("llama-3.1-8b", [f"{file}:8"]).plans[0]
    assert best.cost is not None
    assert best.cost.total == pytest.approx(9.6)
    assert {m.grade for name, m in best.metrics.items() if name.startswith("t")} <= {"borrowed", "guessed"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("bf16 =", "fp8 =", "names no bf16"),
        ('"mychip"', '"h100-sxm"', "is the catalogue's"),
        ("4 TB/s", "4 potatoes", "memory_bandwidth"),
        ("price", "prize", "prize"),
    ],
)
def test_own_devices_are_refused_by_field(tmp_path, old, new, said):
    file = tmp_path / "mychip.toml"
    file.write_text(OWN.replace(old, new))
    with pytest.raises(InputError, match=said):
        machine(f"{file}:8")


def test_the_documented_device_can_be_read(tmp_path):
    page = (Path(__file__).parents[1] / "docs" / "own-hardware.md").read_text()
    file = tmp_path / "mychip.toml"
    file.write_text(page.partition("```toml\n")[2].partition("```")[0])
    assert machine(f"{file}:8")[0].device.id == "mychip"


def test_two_hosts_have_one_network_whatever_their_size():
    assert {machine(f"h100-sxm:2x{n}")[0].network.id for n in (1, 2, 4, 8)} == {machine("h100-sxm:16")[0].network.id}


def test_machines_have_a_largest_size():
    with pytest.raises(InputError, match="at most 1,048,576"):
        machine("h100-sxm:200000x8")
    assert machine("h100-sxm:131072x8")[0].count == 1_048_576


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("h100-sxm:16", 8),
        ("h100-sxm:512@ib-ndr", 8),
        ("h100-sxm:16@ib-ndrx2", 2),
        ("h100-sxm:2x4@ib-ndr", 4),
        ("h100-sxm:16@roce-meta-24k", 8),
        ("h100-sxm:16@10gbe", 1),
        ("rtx-4090:8x1@10gbe", 1),
        ("dgx-h100:2", 8),
    ],
)
def test_a_host_has_the_ports_that_it_is_sold_with(text, ports):
    assert machine(text)[0].ports == ports


def test_fewer_ports_than_sold_are_known():
    assert with_all_ports(machine("h100-sxm:16@ib-ndrx2")[0]).ports == 8
    assert with_all_ports(machine("h100-sxm:16")[0]) is None
    assert with_all_ports(machine("h100-sxm:8")[0]) is None


@pytest.mark.parametrize(
    ("text", "count", "becomes"),
    [
        ("h100-sxm:8", 16, "h100-sxm:16"),
        ("h100-sxm:2x8@ib-ndr", 32, "h100-sxm:4x8@ib-ndr"),
        ("h100-sxm:2x8@ib-ndr", 8, "h100-sxm:8"),
        ("rtx-4090:8x1@10gbe", 2, "rtx-4090:2x1@10gbe"),
        ("rtx-4090:8x1@10gbe", 1, "rtx-4090:1"),
        ("dgx-h100:2", 8, "dgx-h100:1"),
        ("dgx-h100:2", 4, None),
        ("h100-sxm:2x8@ib-ndr", 12, None),
    ],
)
def test_machines_of_other_sizes(text, count, becomes):
    found = resized(machine(text)[0], count)
    assert (found and found.text) == becomes
    assert found is None or found.count == count


@pytest.mark.parametrize(
    ("text", "said"),
    [("h100-sxm:8,rtx-4090:8", "write --on h100-sxm:8 --on rtx-4090:8"), ("T4, L4", "write --on T4 --on L4")],
)
def test_machines_written_otherwise_are_shown_how(text, said):
    with pytest.raises(InputError, match=said):
        machine(text)


@pytest.mark.parametrize("text", ["8xh100-sxm", "8 x NVIDIA H100 80GB HBM3", "h100-sxm:8"])
def test_a_count_may_stand_before_the_device(text):
    assert [(one.device.id, one.count) for one in machine(text)] == [("h100-sxm", 8)]
    assert machine("16xa100-sxm-80@ib-hdr")[0].network.id == "ib-hdr"


def test_a_server_holds_no_more_than_it_has():
    assert machine("dgx-h100:2x4")[0].count == 8
    with pytest.raises(InputError, match=r"a gh200-quad holds 4 gh200-96; write gh200-quad:4"):
        machine("gh200-quad:2x8")


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx-4090-laptop"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("Radeon RX 7900 XTX", "rx-7900xtx"),
        ("M3 Max", "apple-m3-max"),
        ("TPU v5e", "tpu-v5e"),
        ("NVIDIA V100-SXM3", "v100-sxm3-32"),
    ],
)
def test_devices_are_found_by_the_names_that_drivers_and_shops_give_them(name, device):
    assert catalogue.find("accelerators", name, "--on") == device
    assert [one.device.id for one in machine(f"{name}:1")] == [device]


def test_servers_are_found_by_their_makers_names():
    assert [(one.device.id, one.per_host) for one in machine("NVIDIA DGX H100")] == [("h100-sxm", 8)]
    with pytest.raises(InputError, match="DGX H100 is a server"):
        accelerator("DGX H100", "--device")


def test_names_that_two_devices_share_mean_neither():
    """The words of `V100 SXM 32GB` are those of the SXM2 and the SXM3 card."""
    assert catalogue.spelt("accelerators", "Tesla V100-SXM-32GB") is None
    assert catalogue.spelt("accelerators", "RTX 4090 Max") is None
    assert catalogue.spelt("accelerators", "x" * 10_000) is None


@pytest.mark.parametrize(
    ("name", "model"),
    [("Llama 3.1 8B", "llama-3.1-8b"), ("llama3.1:8b", "llama-3.1-8b"), ("DeepSeek R1", "deepseek-r1")],
)
def test_models_are_found_in_any_spelling(name, model):
    assert read_model(name).id == model


@pytest.mark.parametrize(
    "name",
    ["Llama 3.1 8B 0101", "Llama 3.1 8B GPTQ 0101", "Llama 3.1 8B mini", "someone/Llama 3.1 8B", "a/b/Llama-3.1-8B"],
)
def test_another_date_or_word_is_another_model(name):
    with pytest.raises(UnknownName):
        read_model(name)


def test_a_rack_ends_where_its_switches_do_and_a_torus_does_not():
    """Nodes of an Ascend 910C's supernode join up to 384; a host of it is planned as no more than the largest rack."""
    together = {name: machines._together(catalogue.accelerator(name)) for name in ("ascend-910c", "tpu-v5e", "gb200")}
    assert together == {"ascend-910c": machines.LARGEST_RACK, "tpu-v5e": 256, "gb200": 72}


def test_what_an_engine_was_read_from_is_not_printed_with_it():
    assert "raw=" not in repr(catalogue.engine("vllm-0.33"))


def test_constants_are_written_one_by_one_with_a_line_between_them():
    some = catalogue.shipped_fit().constants[:3]
    text = codec.constants_text(some)
    assert text.count("\n\n[[constant]]\n") == 2
    assert text.startswith("[[constant]]\nlaw = ")
    assert codec.constants(tomllib.loads(text)) == tuple(some)
    with pytest.raises(InputError, match="inf is not a number that can be kept"):
        codec.constants_text([replace(some[0], value=float("inf"))])
