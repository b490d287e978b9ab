"""What rows of measured runs say, and what stands for what they leave out: models, machines, software and defaults."""

import csv
import json
from pathlib import Path

import pytest
from conftest import FIT, LLAMA

import roofplan as rp
from roofplan import api, catalogue
from roofplan import evidence as roofplan_evidence
from roofplan.catalogue.machines import machine
from roofplan.catalogue.spellings import bare, named
from roofplan.errors import InputError
from roofplan.evidence.alternatives import alternatives
from roofplan.evidence.cluster import machine_of
from roofplan.evidence.engines import engine_of
from roofplan.evidence.fits.left_out import fit_without
from roofplan.evidence.fits.runs import usable
from roofplan.evidence.frameworks import framework_of
from roofplan.evidence.inference import case_of, inference_case, known_cases, measured_of
from roofplan.evidence.models import experts_of, model_of, off_size, stated_size
from roofplan.evidence.predictions import inference_outcomes, names_in, training_figures, training_outcomes, validated
from roofplan.evidence.rows import EITHER, READ, Assumed, Skipped, read
from roofplan.evidence.training import _zero, training_case
from roofplan.hf.find import read_model
from roofplan.operations.table import element_bytes
from roofplan.records.model import Dense
from roofplan.records.source import GRADES
from roofplan.records.training import RECOMPUTES
from roofplan.timing.figures import flat
from roofplan.training.ability import UNTUNED

RUN = {
    "id": "one",
    "source_key": "mine",
    "model_name": "Llama 3.1 8B",
    "accel_norm": "h100-sxm",
    "accelerators_total": "64",
    "devices_per_node": "8",
    "framework": "megatron",
    "month": "2025-06",
    "precision": "bf16",
    "task": "pretrain",
    "seq_len": "8192",
    "micro_batch": "1",
    "global_batch_sequences": "128",
    "norm_tokens_per_s_per_gpu": "9000",
    "notes": "",
    "interleave": "",
}


def row(**other):
    return {**RUN, **other}


def model(**other):
    assumed = Assumed()
    return model_of(row(**other), assumed), assumed


def dimensions(layers, hidden, heads, **other):
    return {key: str(value) for key, value in {"layers": layers, "hidden": hidden, "heads": heads, **other}.items()}


# Names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "identity"),
    [
        ("LLAMA3.1_405B", "llama-3.1-405b"),
        ("Llama 2 13 B", "llama-2-13b"),
        ("meta-llama/Llama-2-70b-hf", "llama-2-70b"),
        ("Qwen3_235B_a22B (tokendrop)", "qwen3-235b-a22b"),
        ("Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("DeepSeekV3", "deepseek-v3"),
        ("DeepSeek-V3-0324", "deepseek-v3"),
        ("GPT OSS 120B", "gpt-oss-120b"),
        ("Kimi_K2", "kimi-k2"),
        ("gemma-2-2b-it", "gemma-2-2b"),
        ("gemma-2b", "gemma-2b"),
        ("mixtral 8x7b", "mixtral-8x7b"),
        ("Llama-2-7b-mini", None),
        ("Qwen3-8B-VL", None),
        ("DeepSeek-R1 (Distill-Nothing-32B)", None),
        ("phi-4 (mini)", "phi-4-mini"),
        ("Llama 3 (70B)", "llama-3-70b"),
        ("DeepSeekV3 (w/o MTP)", "deepseek-v3"),
        ("mistralai/Mistral-Small-Instruct-2409", "mistral-small-22b"),
        ("Llama 3 9B", None),
        ("", None),
    ],
)
def test_names_match_however_they_are_written(name, identity):
    assert named(name) == identity


def test_every_name_of_the_catalogue_means_itself():
    assert {name: named(name) for name in catalogue.ids("models")} == {name: name for name in catalogue.ids("models")}


def test_endings_that_change_no_dimension_are_left_out_and_others_are_not():
    assert bare("Llama-3.1-8B-Instruct-FP8") == ("Llama-3.1-8B", frozenset())
    assert bare("Mistral-Small-Instruct-2409") == ("Mistral-Small", {"2409"})
    for name in ("Qwen3-VL", "gpt2", "chat"):
        assert bare(name) == (name, frozenset())


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("facebook/opt-350m", 331_196_416),
        ("OPT 2.7B", 2_651_596_800),
        ("opt-30b", 29_974_540_288),
        ("bigscience/bloomz-560m", 559_214_592),
        ("bloom-1b1", 1_065_314_304),
        ("BLOOM 1b7", 1_722_408_960),
        ("bloom-3b", 3_002_557_440),
    ],
)
def test_sizes_of_opt_and_bloom_are_those_of_the_published_weights(name, total):
    assert read_model(named(name)).total == total


@pytest.mark.parametrize("size", ["125m", "350m", "760m", "1.3b", "2.7b", "6.7b", "13b", "175b"])
def test_sizes_of_gpt_3_are_what_they_are_called(size):
    assert abs(off_size(f"GPT-3 {size}", read_model(named(f"GPT-3 {size}")).total)) < 0.02


# Models ------------------------------------------------------------------------------------------


def test_a_known_name_fills_what_is_blank_and_stated_dimensions_win():
    whole, said = model(model_name="Llama-3.1-8B-Instruct")
    assert whole.total == read_model("llama-3.1-8b").total
    assert not said.texts
    for name, layers in (("Llama-3.1-8B (16-layer cut)", "16"), ("llama3.1_8b_l4", "4")):
        cut, said = model(model_name=name, layers=layers)
        assert len(cut.decoder.layers) == int(layers)
        assert not said.texts
    longer, said = model(model_name="Llama-3.1-8B", layers="80")
    assert len(longer.decoder.layers) == 80
    assert next(iter(said.texts.values())) == "layers: 80, where llama-3.1-8b has 32"
    assert dict(said.doubts) == {"dimensions": pytest.approx(flat(1.0, 1.0 + off_size("Llama-3.1-8B", longer.total)))}
    grouped, said = model(model_name="llama-7b", kv_heads="8")
    assert grouped.decoder.layers[0].mixers[0].kv_heads == 8
    narrow, _ = model(model_name="gpt2", ffn_hidden="1024")
    assert narrow.total < read_model("gpt2").total
    plain, said = model(model_name="gpt2", ffn_hidden="3072")
    assert plain.total == read_model("gpt2").total
    assert not said.texts
    other, said = model(model_name="Llama-3.1-8B", vocab="50000")
    assert other.total < whole.total
    assert list(said.texts.values()) == ["vocab: 50000, where llama-3.1-8b has 128256"]


def test_a_mixture_is_built_from_its_columns_whatever_its_name():
    known, _ = model(model_name="Qwen3_30B_a3B")
    stated = dimensions(48, 2048, 32, kv_heads=4, ffn_hidden=768, vocab=151936, moe="128/8/0")
    alike, said = model(model_name="Some 30B A3B", **stated)
    assert alike.total == known.total
    assert list(said.texts.values()) == ["model: qwen3-30b-a3b, whose dimensions and experts Some 30B A3B has"]
    for other in ({"moe": "128/1/0"}, {"ffn_hidden": "1024"}, {"moe": "128/8/1"}):
        assert model(model_name="Some", **{**stated, **other})[0].total != known.total or other == {"moe": "128/1/0"}
        assert model(model_name="Some", **{**stated, **other})[0].active != known.active
    built, said = model(model_name="Some 30B A3B", **{**stated, "vocab": "150000"})
    assert built.total == pytest.approx(known.total, rel=0.03)
    assert built.active == pytest.approx(known.active, rel=0.25)
    assert not said.doubts
    apart, _ = model(
        model_name="Some 30B A3B",
        **{**stated, "vocab": "150000", "moe": "", "experts": "128", "experts_per_token": "8"},
    )
    assert apart.total == built.total


@pytest.mark.parametrize(
    ("text", "experts"),
    [
        *[("128/8/0", (128, 8, 0)), ("8/2", (8, 2, 0)), ("256/8/1", (256, 8, 1)), ("", None)],
        *[("128 experts, 8 active", (128, 8, 0)), ("64 experts, 6 active, 2 shared", (64, 6, 2))],
    ],
)
def test_experts_of_a_column(text, experts):
    assert experts_of(row(moe=text)) == experts


def test_columns_of_experts_agree_or_the_row_is_skipped():
    assert experts_of(row(moe="128/8/1", experts="128", experts_per_token="8")) == (128, 8, 1)  # noqa: S106 - a count
    for other in ({"experts": "64", "experts_per_token": "8"}, {"experts": "128", "experts_per_token": "4"}):
        with pytest.raises(Skipped, match="is not what experts and experts_per_token say"):
            experts_of(row(moe="128/8/1", **other))


@pytest.mark.parametrize(("size", "holds"), [(80.0, True), (70.5, True), (71.4, True), (69.0, False), (91.0, False)])
def test_a_device_has_the_memory_that_a_name_states_within_an_eighth(size, holds):
    from roofplan.evidence.models import _holds

    assert catalogue.accelerator("a100-sxm-80").room / 2.0**30 == pytest.approx(80.0, rel=0.01)
    assert _holds("a100-sxm-80", size) is holds


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Sparse 8x22B", "mixture"),
        ("Big 400B-A40B", "mixture"),
        ("Big 400B A40B", "mixture"),
        ("Big 400BA40B", "mixture"),
        ("Zamba 7B", "hybrid"),
        ("Unheard 40B", "not known to be dense"),
    ],
)
def test_what_cannot_be_known_to_be_dense_is_skipped_by_name(name, said):
    with pytest.raises(Skipped, match=said) as skipped:
        model(model_name=name, **dimensions(32, 4096, 32, ffn_hidden=14336, vocab=32000))
    assert name in str(skipped.value)


def test_dimensions_that_miss_the_stated_size_count_and_widen_the_interval():
    stated = dimensions(32, 4096, 32, ffn_hidden=11008, vocab=32000)
    _, right = model(model_name="Mine 6.7B", **stated)
    assert not right.doubts
    found, wrong = model(model_name="Mine 8.0B", **stated)
    assert found.total == pytest.approx(6.74e9, rel=0.01)
    assert dict(wrong.doubts) == {"dimensions": pytest.approx(flat(1.0 + off_size("Mine 8.0B", found.total), 1.0))}
    assert 0.03 < wrong.doubts[0][1] < 0.06
    widths = []
    for name in ("Mine 6.7B", "Mine 8.0B"):
        (one,), _ = training_outcomes(row(model_name=name, **stated), FIT)
        widths.append(one.predicted.high / one.predicted.low)
    assert widths[1] > 1.005 * widths[0]


def test_two_matrices_or_three_by_the_stated_size():
    stated = dimensions(48, 6144, 24, ffn_hidden=24576, vocab=32000)
    two, said = model(model_name="Plain 22B", **stated)
    three, _ = model(model_name="Plain 30B", **stated)
    assert three.total / two.total == pytest.approx(1.32, abs=0.02)
    assert any("two matrices" in text for text in said.texts.values())


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("Llama 3.1 70B", (70e9, 0.5e9)),
        ("GPT-3.6B (Megatron)", (3.6e9, 0.05e9)),
        ("MPT-125m", (125e6, 0.5e6)),
        ("LLaMA7B", (7e9, 0.5e9)),
        ("BLOOM-1b7", (1.7e9, 0.05e9)),
        ("Llama 1M 8B", (8e9, 0.5e9)),
        ("OPT-6,7B", (6.7e9, 0.05e9)),
        ("Big 400B-A40B", (400e9, 0.5e9)),
        ("GPT 1T", (1e12, 0.5e12)),
        ("Mixtral 8x7B", None),
        ("DeepSeekV3", None),
        ("GPT h1024 L12", None),
    ],
)
def test_sizes_of_names(name, size):
    assert stated_size(name) == (size and pytest.approx(size))


# Machines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on", "hosts", "per_host"),
    [
        ("gb200:72", 1, 72),
        ("gb200:64", 1, 64),
        ("gb200:128", 2, 64),
        ("gb200:256", 4, 64),
        ("gb300:1000", 20, 50),
        ("gb200:100", 2, 50),
        ("h100-sxm:64", 8, 8),
        ("tpu-v5p:256", 1, 256),
    ],
)
def test_counts_stand_in_hosts_as_they_are_sold(on, hosts, per_host):
    found = machine(on)[0]
    assert (found.hosts, found.per_host) == (hosts, per_host)


def test_a_blank_network_is_the_one_that_a_system_is_sold_with():
    assumed = Assumed()
    found = machine_of(row(accelerators_total="64", interconnect="nvlink4 450 GB/s"), assumed)
    assert (found.network.id, found.ports, found.hosts) == ("ib-ndr", 8, 8)
    assert list(assumed.texts.values()) == ["network: 8 x ib-ndr a host, as it is sold"]
    rack = machine_of(
        row(accel_norm="gb200", accelerators_total="256", interconnect="nvlink5 900 GB/s (NVL72)"), Assumed()
    )
    assert (rack.hosts, rack.per_host, rack.ports * rack.network.bandwidth) == (4, 64, 64 * 50e9)
    stated = machine_of(row(interconnect="nvlink4; 1600 Gb/s per node"), assumed)
    assert stated.ports * stated.network.bandwidth == pytest.approx(1600e9 / 8)
    each = machine_of(row(interconnect="nvlink4; 200 Gb/s per GPU"), assumed)
    assert each.ports * each.network.bandwidth == pytest.approx(1600e9 / 8)
    assert len(assumed.texts) == 1


@pytest.mark.parametrize(
    ("said", "gigabits"),
    [
        ("8x400 Gb/s IB", 3200),
        ("8 x 400 Gb/s", 3200),
        ("100 Gb/s per node", 100),
        ("12.5 Gb/s per GPU", 100),
        ("400 Gb/s per gpu", 3200),
        ("3.2 Tb/s", 3200),
        ("400Gbps", 400),
        ("400 GB/s", 3200),
        ("10gbe", 10),
        ("25GbE", 25),
    ],
)
def test_a_stated_rate_of_a_network_is_kept(said, gigabits):
    assumed = Assumed()
    found = machine_of(row(interconnect=f"nvlink4; {said}"), assumed)
    assert found.ports == max(1, round(gigabits / 400))  # of 400 Gb/s, as the host is sold
    assert found.ports * found.network.bandwidth * 8 / 1e9 == pytest.approx(gigabits)
    assert not assumed.texts


@pytest.mark.parametrize(
    ("said", "network", "ports"),
    [
        ("EFA, p5.48xlarge", "efa-v2", 8),
        ("4 x 200 Gbps Slingshot-11 a node", "slingshot-11", 4),
        ("nvlink4; InfiniBand HDR", "ib-hdr", 8),
        ("EFA", "efa-v2", 8),
        ("NVLink 900 GB/s, EFA", "efa-v2", 8),
    ],
)
def test_a_network_may_be_named_in_words(said, network, ports):
    assumed = Assumed()
    found = machine_of(row(interconnect=said), assumed)
    assert (found.network.id, found.ports) == (network, ports)
    assert bool(assumed.texts) is ("200 Gbps" not in said)


def test_a_text_that_names_no_network_or_two_leaves_it_as_it_is_sold():
    for said in ("JUPITER, 4 GH200 a node", "EFA or HDR", "nvlink4 450 GB/s"):
        assumed = Assumed()
        assert machine_of(row(interconnect=said), assumed).network.id == "ib-ndr"
        assert len(assumed.texts) == 1


def test_four_superchips_in_a_node_share_its_power_and_have_a_port_each():
    four, one = machine("gh200-96:8x4")[0], machine("gh200-96:8x1")[0]
    assert (four.ports * four.network.bandwidth, one.ports * one.network.bandwidth) == (100e9, 50e9)
    assert (four.device.value("power"), one.device.value("power")) == (580.0, 700.0)
    assert [machine(f"gh200-96:{count}")[0].scale_up.id for count in (2, 4)] == ["nvlink4-quad"] * 2
    assert (four.provider, one.provider) == ("supercomputers", "")


@pytest.mark.parametrize(("count", "most"), [("17", "8"), ("101", "4"), ("26", "8")])
def test_devices_that_do_not_fill_their_hosts_are_skipped(count, most):
    with pytest.raises(Skipped, match="do not fill hosts"):
        machine_of(row(accelerators_total=count, devices_per_node=most), Assumed())


def test_a_chip_may_stand_in_a_folder_of_any_name(tmp_path):
    folder = tmp_path / "a:1b@c"
    folder.mkdir()
    (folder / "chip.toml").write_text(CHIP)
    assert machine(f"{folder / 'chip.toml'}:2x8@ib-ndr")[0].count == 16


def test_more_devices_than_are_planned_are_refused_at_once():
    with pytest.raises(InputError, match="at most"):
        machine("h100-sxm:99999999999")


def test_hosts_of_which_the_catalogue_has_no_network_get_a_port_a_device():
    found = machine_of(row(accel_norm="h100-sxm-96-hbm2e", accelerators_total="32"), Assumed())
    assert (found.hosts, found.per_host, found.network.id, found.ports) == (4, 8, "ib-hdr", 8)
    fours = machine_of(row(accel_norm="h100-sxm-96-hbm2e", accelerators_total="32", devices_per_node="4"), Assumed())
    assert (fours.hosts, fours.per_host, fours.ports) == (8, 4, 4)


def test_a_count_that_makes_no_equal_racks_is_refused():
    with pytest.raises(InputError, match="do not fill equal racks of 72"):
        machine("gb200:101")


# Software and defaults ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "month", "profile", "said"),
    [
        ("megatron", "2022-05", "megatron-lm-3.0", ""),
        ("megatron", "2024-05", "megatron-core-0.8", ""),
        ("nemo", "2024-07", "megatron-core-0.8", "planned as"),
        ("megatron", "2022-04", "megatron-lm-3.0", ""),
        ("Megatron", "2025", "megatron-core-0.16", ""),
        ("nemo", "2025", "megatron-bridge-0.2", "planned as"),
        ("nemo", "2025-Q1", "megatron-bridge-0.2", "planned as"),
        ("megatron-deepspeed", "2024-06", "deepspeed-0.16", "planned as"),
        ("nemo", "2025-07", "megatron-bridge-0.2", "planned as"),
        ("megatron-bridge", "2026-07", "megatron-bridge-26.06", ""),
        ("fsdp-torchtitan", "2024-12", "torchtitan-0.1", ""),
        ("other:torchtune", "2025-06", "torchtitan-0.2", "planned as"),
        ("other:Megatron DeepSpeed", "2024-06", "deepspeed-0.16", "planned as"),
        ("litgpt", "2024-06", "litgpt-0.3", ""),
        ("other:axolotl", "2025-01", "transformers-4.57", "planned as"),
    ],
)
def test_software_maps_to_a_profile_and_says_so(name, month, profile, said):
    assumed = Assumed()
    found = framework_of(row(framework=name, month=month), assumed)
    assert found.id == profile
    assert bool(assumed.texts) == bool(found.stands_for) == bool(said)
    assert all(said in text and profile in text for text in assumed.texts.values() if not text.startswith("loss: "))


def test_every_stand_in_is_a_profile_and_none_hides_one():
    for kind in ("frameworks", "engines"):
        own = set(catalogue.aliases(kind).values())
        for entry in catalogue.names.stand_ins():
            if entry["kind"] == kind:
                assert {one["id"] for one in entry["profiles"]} <= own
                ends = [catalogue.months(one["until"]) for one in entry["profiles"][:-1]]
                assert ends == sorted(ends)
                assert "until" not in entry["profiles"][-1]


@pytest.mark.slow
def test_plans_name_what_they_are_planned_as(run_json):
    _, served = run_json("serve", "llama-3.1-8b", "--on", "h100-sxm", "--engine", "TGI")
    assert next(one for one in served["warnings"] if one["code"] == "planned_as")["text"].startswith(
        "TGI: planned as vllm"
    )
    _, trained = run_json("train", "llama-3.1-8b", "--on", "h100-sxm:8", "--framework", "torchtune")
    assert any("torchtune: planned as torchtitan-0.2" in text for text in trained["assumed"])
    _, compiled = run_json("train", "llama-3.2-1b", "--on", "h100-sxm:8", "--framework", "nanogpt")
    assert any("nanogpt: planned as torchtitan-0.2; torch.compile" in text for text in compiled["assumed"])
    _, eager = run_json("train", "llama-3.2-1b", "--on", "h100-sxm:8", "--framework", "axolotl")
    assert any("axolotl: planned as transformers-4.57" in text for text in eager["assumed"])
    _, own = run_json("serve", "llama-3.1-8b", "--on", "h100-sxm", "--engine", "vllm")
    assert not any(one["code"] == "planned_as" for one in own["warnings"])


def test_a_blank_recompute_is_the_frameworks_default_unless_it_needs_twice_the_memory():
    plain = training_case(row())
    assert (plain.layout.recompute, "recompute" in plain.unstated) == ("none", True)
    assert "recompute: none, megatron's default" in plain.assumed
    jax = training_case(row(framework="maxtext"))
    assert jax.layout.recompute == "full"
    assert "recompute: full, maxtext's default" in jax.assumed
    minimal = training_case(row(framework="maxtext", recompute="minimal"))
    assert (minimal.layout.recompute, "recompute" in minimal.unstated) == ("selective", False)
    large = training_case(row(micro_batch="16", accelerators_total="8", global_batch_sequences="128"))
    assert large.layout.recompute == "full"
    assert any("2 times the memory" in text for text in large.assumed)
    assert all(catalogue.framework(name).unstated.recompute in RECOMPUTES for name in catalogue.ids("frameworks"))


def test_a_blank_micro_batch_follows_from_the_batch_or_is_the_frameworks_default():
    assert training_case(row(micro_batch="", grad_accum="2")).layout.micro_batch == 1.0
    assert training_case(row(micro_batch="", grad_accum="2", cp="2")).layout.micro_batch == 2.0
    with pytest.raises(Skipped, match="less than one"):
        training_case(row(micro_batch="", grad_accum="64"))
    roomy = {"micro_batch": "", "framework": "torchtitan", "accel_norm": "b300"}
    own = training_case(row(**roomy, global_batch_sequences="1024"))
    assert own.layout.micro_batch == 8.0
    assert "micro-batch: 8, torchtitan's default" in own.assumed
    just = training_case(row(**roomy, global_batch_sequences="512"))
    assert "micro-batch: 8, torchtitan's default" in just.assumed
    few = training_case(row(micro_batch="", framework="torchtitan"))
    assert few.layout.micro_batch == 2.0
    whole = training_case(row(**roomy | {"framework": "maxtext"}, global_batch_sequences=""))
    assert (whole.layout.micro_batch, whole.job.batch) == (12.0, 12 * 64)
    least = training_case(row(micro_batch=""))
    assert least.layout.micro_batch == 1.0
    assert "micro-batch" in least.unstated
    assert "micro-batch: 1, the smallest: megatron has no default" in least.assumed


def test_software_that_nobody_described_runs_as_plain_pytorch_or_as_megatron_where_layers_are_split():
    def planned(**cells):
        case = training_case(row(framework="unheard-of", **cells))
        assert case.framework.stands_for == "unheard-of"
        assert any("unheard-of: not described" in said for said in case.assumed)
        return case.framework.name

    assert planned() == "llm-foundry"
    assert planned(tp="4") == "megatron"
    assert planned(pp="2") == "megatron"
    assert planned(accelerators_total="1", devices_per_node="1", global_batch_sequences="8") == "transformers"


@pytest.mark.parametrize(
    ("name", "when", "planned"),
    [
        ("megatron-llama", "2025", "megatron-core-0.16"),
        ("megatron-lm (a fork)", "2023", "megatron-lm-3.0"),
        ("other:Megatron-DeepSpeed (TurkuNLP)", "2024", "deepspeed-0.16"),
    ],
)
def test_a_fork_is_planned_as_what_its_name_begins_with(name, when, planned):
    case = training_case(row(framework=name, year=when, month=""))
    assert case.framework.id == planned
    assert case.framework.stands_for == name.removeprefix("other:")
    assert any("a fork of" in said for said in case.assumed)


def test_an_optimizer_that_is_not_known_is_said_to_be_taken_for_adam():
    assert any("lion is not described" in said for said in training_case(row(optimizer="Lion")).assumed)
    assert not any("optimizer" in said for said in training_case(row(optimizer="AdamW, distributed")).assumed)


def test_a_misspelt_name_is_no_fork():
    for name in ("megatron-deepsped", "pytorch-fspd", "megatron-bridg"):
        with pytest.raises(Skipped, match="is not described; nearest"):
            training_case(row(framework=name))


def test_compiled_pytorch_is_planned_as_torchtitan_and_adapters_are_not():
    plain = {"framework": "pytorch", "accelerators_total": "1", "devices_per_node": "1", "global_batch_sequences": "8"}
    assert training_case(row(**plain)).framework.id == "transformers-4.57"
    assert training_case(row(**plain, compiled="yes")).framework.id == "torchtitan-0.2"
    assert training_case(row(framework="trl", task="lora", compiled="yes")).framework.id == "transformers-4.57"


ALONE = {"accelerators_total": "1", "devices_per_node": "1", "micro_batch": "", "seq_len": "512", "accel_norm": "b300"}


@pytest.mark.parametrize(
    ("name", "compiled", "profile", "micro_batch", "whose"),
    [
        ("pytorch", "yes", "torchtitan-0.2", 8.0, "transformers"),
        ("pytorch", "", "transformers-4.57", 8.0, "transformers"),
        ("nanogpt", "", "torchtitan-0.2", 12.0, "nanogpt"),
        ("nanochat", "", "torchtitan-0.2", 32.0, "nanochat"),
        ("nanochat", "no", "transformers-4.57", 32.0, "nanochat"),
    ],
)
def test_defaults_of_a_trainer_are_its_own_whoever_makes_its_kernels(name, compiled, profile, micro_batch, whose):
    case = training_case(row(framework=name, compiled=compiled, **ALONE, global_batch_sequences="512"))
    assert (case.framework.id, case.layout.recompute) == (profile, "none")
    assert case.framework.unstated.micro_batch == micro_batch
    assert "recompute: none, transformers's default" in case.assumed
    assert f"micro-batch: {micro_batch:g}, {whose}'s default" in case.assumed


def test_compiled_trainers_shard_as_they_do_and_torchtitan_recomputes_as_it_does():
    eight = {"accelerators_total": "8", "model_name": "GPT-2", "seq_len": "1024"}
    assert training_case(row(framework="nanogpt", **eight)).layout.zero == 0
    sharded = training_case(row(framework="fsdp", compiled="yes", micro_batch="", global_batch_sequences="128"))
    assert (sharded.framework.unstated.micro_batch, sharded.layout.recompute, sharded.layout.zero) == (None, "none", 3)
    assert training_case(row(framework="torchtitan")).layout.recompute == "selective"
    full = training_case(row(framework="llama-factory", **{**ALONE, "micro_batch": "1"}))
    assert "recompute: full, llama-factory's default" in full.assumed


@pytest.mark.parametrize(
    ("said", "recompute", "share"),
    [
        ("1/8", "full", 0.125),
        ("25%", "full", 0.25),
        ("37.5 %", "full", 0.375),
        ("full, 20 of 80 layers", "full", 0.25),
        ("full (20 out of the 80 layers)", "full", 0.25),
        ("100.0%", "full", 1.0),
        ("8/8", "full", 1.0),
        ("0 of 80", "none", 1.0),
        ("full", "full", 1.0),
        ("selective 50%", "selective", 1.0),
        ("none (saves 30% memory)", "none", 1.0),
        ("checkpointing off, 95% memory", "none", 1.0),
    ],
)
def test_recomputation_may_be_of_a_share_of_the_layers(said, recompute, share):
    case = training_case(row(recompute=said))
    assert (case.layout.recompute, float(case.layout.recomputed)) == (recompute, share)
    assert case.layout.recomputation in case.read_as


@pytest.mark.parametrize("said", ["full (20 layers)", "full (every 2nd layer)", "1.5/4", "11/04/2025", ".5%"])
def test_recomputation_in_words_that_are_no_share_is_refused(said):
    with pytest.raises(Skipped, match=r"recompute: .* is not known"):
        training_case(row(recompute=said))


def test_recomputation_of_more_than_all_layers_is_no_layout():
    for said in ("9/8", "150%"):
        with pytest.raises(Skipped, match="more than all layers"):
            training_case(row(recompute=said))


def test_a_share_of_recomputed_layers_lies_between_none_and_all():
    cases = [training_case(row(recompute=said, seq_len="4096")) for said in ("none", "1/4", "3/4", "full")]
    found = [training_figures(case, FIT)[0] for case in cases]
    memories = [one["memory"].value for one in found]
    rates = [one["tokens_per_second_per_device"].value for one in found]
    assert memories == sorted(memories, reverse=True)
    assert rates == sorted(rates, reverse=True)
    assert len(set(memories)) == len(set(rates)) == 4


@pytest.mark.parametrize(
    ("said", "stored", "optimizer"),
    [
        ("", "bf16", "adam"),
        ("distributed AdamW", "bf16", "adam"),
        ("paged_adamw_8bit", "bf16", "adam-8bit"),
        ("Muon + AdamW", "bf16", "muon"),
        ("adamw", "bf16 (weights too)", "adam-bf16"),
        ("adafactor", "bf16 (weights too)", "adafactor"),
    ],
)
def test_the_optimizer_is_the_one_that_a_row_names(said, stored, optimizer):
    assert training_case(row(optimizer=said, precision=stored)).job.optimizer.id == optimizer


def test_megatron_of_2023_has_flash_attention_only_where_a_row_says_so():
    early = {"framework": "megatron-lm", "year": "2023", "month": "2023-11"}
    blank = training_case(row(**early, flash_attention=""))
    assert blank.framework.attention == "eager"
    assert any("without FlashAttention" in said for said in blank.assumed)
    assert training_case(row(**early, flash_attention="True")).framework.attention == "flash"
    assert training_case(row(framework="unheard-of", pp="2", year="2023", month="")).framework.attention == "flash"


def test_a_serving_run_without_degrees_splits_its_layers_over_all_devices():
    found = case_of({**SERVED, "count": "4"})
    assert (found.strategy.tp, found.strategy.dp) == (4, 1)
    assert any("layout: tp 4" in said for said in found.assumed)
    assert case_of({**SERVED, "count": "4", "dp": "4"}).strategy.tp == 1


def test_releases_that_schedule_ahead_are_planned_as_such():
    releases = {
        "0.12.0": "vllm-0.11",
        "0.13.1": "vllm-0.11",
        "0.14.0": "vllm-0.20",
        "0.19": "vllm-0.20",
        "0.33": "vllm-0.33",
    }
    for version, profile in releases.items():
        assert case_of({**SERVED, "engine_version": version}).engine.id == profile
    numbered = {"0.4.1": "sglang-0.4.1", "0.4.6.post1": "sglang-0.4", "0.5.3rc0": "sglang-0.5", "0.5.9": "sglang-0.5"}
    for version, profile in {**numbered, "0.5.10": "sglang-0.5.23", "0.5.18": "sglang-0.5.23"}.items():
        assert case_of({**SERVED, "engine_name": "sglang", "engine_version": version}).engine.id == profile
    assert catalogue.engine("vllm-0.20").scopes == ("vllm-0.20", "ahead", "vllm", "any")
    assert catalogue.engine("vllm-0.11").scopes == ("vllm-0.11", "vllm", "python", "any")


@pytest.mark.parametrize(
    ("text", "shard"),
    [
        ("FSDP shard 8", 8),
        ("FSDP 8 x DCN DP", 8),
        ("FSDP shard 64", 0),
        ("FSDP", 0),
        ("FSDP2 full shard", 0),
        ("FSDP 2", 0),
        ("shard 2", 2),
    ],
)
def test_a_stated_shard_size_is_the_sharding_group(text, shard):
    assert training_case(row(framework="torchtitan", zero_stage_fsdp=text)).layout.shard == shard


def test_a_blank_precision_or_task_is_said_to_be_assumed():
    assert not any(said.startswith(("precision", "task")) for said in training_case(row()).assumed)
    blank = training_case(row(precision="", task="")).assumed
    assert [said.partition(":")[0] for said in blank if said.startswith(("precision", "task"))] == ["precision", "task"]


def test_a_shard_size_that_does_not_divide_the_data_ranks_is_no_layout():
    with pytest.raises(Skipped, match="do not divide into groups of 3"):
        training_case(row(framework="torchtitan", zero_stage_fsdp="FSDP shard 3"))


def test_an_adapter_is_of_the_rank_and_beside_the_matrices_that_a_row_states():
    plain = training_case(row(framework="trl", task="lora", accelerators_total="8"))
    assert (plain.job.adapter.rank, plain.job.adapter.targets) == (8, ("q_proj", "v_proj"))
    stated = training_case(
        row(framework="trl", task="lora", accelerators_total="8", rank="32", targets="q_proj;o_proj")
    )
    assert (stated.job.adapter.rank, stated.job.adapter.targets) == (32, ("q_proj", "o_proj"))
    every = training_case(row(framework="NeMo", task="lora", accelerators_total="8", targets="all-linear"))
    assert len(every.job.adapter.targets) == 7
    with pytest.raises(Skipped, match="beside frozen weights"):
        training_case(row(framework="maxtext", task="lora"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"pp": "40", "accelerators_total": "320"},
        {"pp": "8", "interleave": "9", "tp": "8"},
        {"layers": "2", "pp": "4"},
        {"tp": "7"},
        {"framework": "megatrn-core"},
        {"accel_norm": "./absent.toml"},
        {"model_name": "./absent.json"},
        {"global_batch_sequences": "-4"},
        {"micro_batch": "a few"},
        {"dense_layers": "nan"},
        {"accelerators_total": "nan"},
        {"rank": "-1"},
        {"recompute": "sometimes"},
        {"moe": "yes"},
        {"experts": "8"},
        {"model_name": "Mine", "layers": "8", "hidden": "1024", "heads": "8", "moe": "128/0/0"},
        {"model_name": "Mine", "layers": "8", "hidden": "1024", "heads": "8", "moe": "8/9/0"},
        {"moe": "128/8/0", "experts": "64", "experts_per_token": "8"},
        {"moe": "8/2/0"},
        {"model_name": "qwen3-30b-a3b", "moe": "128/4/0"},
        {"model_name": "qwen3-30b-a3b", "ep": "7"},
        {"tp": "1.5"},
        {"sequence_parallel": "maybe"},
        {"gradient_dtype": "banana"},
        {"offload": "banana"},
        {"memory_kind": "foo"},
        {"precision": "fp32"},
        {"month": "2026/11"},
        {"model_name": "~nosuchuser/config.json"},
        {"model_name": "/" + "a" * 300},
        {"model_name": "gpt-oss-120b", "layers": "4"},
        {"model_name": "Mixtral 8x7B", "moe": "16/4"},
        {"task": "lora", "framework": "trl", "targets": "nonsense"},
    ],
)
def test_one_bad_row_never_ends_a_table(wrong):
    found = validated("training", [row(id="good"), row(id="bad", **wrong)], FIT)
    assert {one.id for one in found.outcomes if one.predicted} == {"good"}
    assert next(one.skipped for one in found.outcomes if one.id == "bad")


@pytest.mark.parametrize("name", ["h100", "H100", "H100-SXM", "other:h100-sxm"])
def test_devices_are_known_however_they_are_written(name):
    assert machine_of(row(accel_norm=name), Assumed()).device.id == "h100-sxm"


def test_an_unknown_device_is_refused_with_the_nearest():
    with pytest.raises(Skipped, match=r"^accel_norm: device h100-smx is not in the catalogue; nearest: .*h100-sxm"):
        machine_of(row(accel_norm="h100-smx"), Assumed())


def test_a_task_is_the_same_in_any_case_and_qlora_stores_four_bits():
    cases = {
        task: training_case(row(framework="litgpt", task=task, accelerators_total="1", model_name="llama-3-8b"))
        for task in ("lora", "LoRA", "QLoRA", "qlora", "full-ft")
    }
    assert cases["lora"].job == cases["LoRA"].job
    assert cases["qlora"].job == cases["QLoRA"].job
    assert (cases["lora"].job.adapter.stored, cases["qlora"].job.adapter.stored) == ("bf16", "bnb-nf4")
    assert cases["full-ft"].job.adapter is None
    plain = training_case(row(framework="litgpt", task="qlora", precision="nf4", accelerators_total="1"))
    assert (plain.job.precision, plain.job.adapter.stored) == ("bf16", "bnb-nf4")


def test_a_plan_as_other_software_is_no_surer_than_borrowed():
    (own,), _ = training_outcomes(row(framework="megatron", month="2026-01"), FIT)
    (other,), _ = training_outcomes(row(framework="primus", month="2026-01"), FIT)
    assert own.predicted.value == other.predicted.value
    assert GRADES.index(other.predicted.grade) == max(2, GRADES.index(own.predicted.grade))
    assert other.predicted.high / other.predicted.low > own.predicted.high / own.predicted.low


@pytest.mark.slow
def test_software_that_only_divides_as_another_does_is_slower_by_what_its_runs_say():
    (own,), _ = training_outcomes(row(framework="megatron", month="2026-01"), FIT)
    (other,), _ = training_outcomes(row(framework="nanotron", month="2026-01"), FIT)
    slower = FIT.find("training", UNTUNED, ("megatron", "any"))
    assert {"nanotron-bench", "gpt-neox"} <= names_in(slower.source)
    assert slower.value > 1.1
    assert own.predicted.value / slower.value <= other.predicted.value < own.predicted.value / slower.value**0.7
    without = fit_without(frozenset({"nanotron-bench"})).find("training", UNTUNED, ("megatron", "any"))
    assert "nanotron-bench" not in names_in(without.source)
    assert 1.1 < without.value < slower.value  # what the others tell, from the profile's own speed


def test_a_sweep_that_does_not_move_has_no_order():
    still = [row(id=f"r{number}", tp=str(2 ** (number % 4))) for number in range(16)]
    found = validated("training", still, FIT)
    assert found.scored == 16
    assert found.sweeps() == {}
    moving = [{**one, "norm_tokens_per_s_per_gpu": str(9000 + place)} for place, one in enumerate(still)]
    for runs in (16, 15):
        ((count, order),) = validated("training", moving[:runs], FIT).sweeps().values()
        assert count == runs
        assert -1.0 <= order <= 1.0
    assert validated("training", moving[:14], FIT).sweeps() == {}


def test_the_version_in_an_engines_name_is_its_version():
    rows = [
        {**SERVED, "engine_name": name, "engine_version": version, "month": "2026-03"}
        for name, version in (("vLLM 0.2", ""), ("vllm", "0.2"))
    ]
    assert [case_of(one).engine.id for one in rows] == ["vllm-0.2", "vllm-0.2"]


def test_other_software_is_of_the_release_that_its_engine_had_then():
    then = [
        case_of({**SERVED, "engine_name": name, "engine_version": "", "month": "2026-03"}).engine.id
        for name in ("tgi", "vllm")
    ]
    assert then[0] == then[1]
    with pytest.raises(Skipped, match="nim, planned as tensorrt-llm"):
        case_of({**SERVED, "engine_name": "NIM", "engine_version": "", "accel_norm": "mi300x"})


def test_the_table_itself_is_never_written_over(tmp_path, run):
    file = tmp_path / "runs.csv"
    file.write_text("id\na\n")
    code, _, err = run("validate", "training", str(file), "--csv", str(tmp_path / "." / "runs.csv"))
    assert code == 2
    assert "is the table itself" in err
    assert file.read_text() == "id\na\n"


def test_a_context_may_fill_all_positions_of_a_model():
    small = {**LLAMA, "max_position_embeddings": 5000}
    assert rp.plan_serving(small, "h100-sxm:1", input=4000, output=1000).asked.workload.context == 5000


# Files -------------------------------------------------------------------------------------------

CHIP = """
id = "mychip"
architecture = "Hopper"
memory_capacity = "96 GiB"
memory_bandwidth = "4 TB/s"
scale_up = "nvlink4"
link_bandwidth = "300 GB/s"
scale_up_domain = 8
[peak]
bf16 = "600 TFLOPS"
"""


@pytest.mark.slow
def test_a_model_and_a_chip_of_ones_own_stand_beside_their_table(tmp_path, run_json):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "chip.toml").write_text(CHIP)
    served = {**SERVED, "model_name": "config.json", "accel_norm": "chip.toml", "tpot_ms": "2.5"}
    trained = row(model_name="config.json", accel_norm="chip.toml", accelerators_total="8", framework="torchtune")
    for kind, cells in (("inference", served), ("training", trained)):
        file = tmp_path / f"{kind}.csv"
        with file.open("w", newline="") as out:
            writer = csv.DictWriter(out, list(cells))
            writer.writeheader()
            writer.writerow(cells)
        code, document = run_json("validate", kind, str(file))
        assert code == 0
        assert document["scored"] == 1
    code, document = run_json("calibrate", "--with", str(tmp_path / "inference.csv"), "--dry-run")
    assert code == 0


def test_a_cell_that_no_file_system_takes_loses_no_table(tmp_path):
    file = tmp_path / "runs.csv"
    file.write_text("id,model_name\na,{}\nb,{}\n".format("x" * 300 + ".json", "llama-3.1-8b"))
    assert [each["id"] for each in read(file, ("id",))] == ["a", "b"]


SERVED = {
    "id": "a",
    "source_key": "mine",
    "model_name": "llama-3.1-8b",
    "accel_norm": "h100-sxm",
    "count": "1",
    "engine_name": "vllm",
    "engine_version": "0.11",
    "weight_precision": "bf16",
    "input_len": "512",
    "output_len": "128",
    "running_batch": "8",
    "metric_kind": "serving",
    "tpot_ms": "8",
}


@pytest.mark.parametrize(
    ("cells", "scored"),
    [
        ({}, True),
        ({"engine_name": "vLLM"}, True),
        ({"engine_name": "TGI", "engine_version": "", "month": "2025"}, True),
        ({"engine_name": "LM Studio", "weight_precision": "q5_1"}, True),
        ({"engine_name": "unheard-of"}, False),
        ({"kv_precision": "nvfp4"}, True),
        ({"weight_precision": "int4-awq"}, True),
        ({"weight_precision": "gptq-g128"}, True),
        ({"weight_precision": "gptq-g64"}, True),
        ({"weight_precision": "gptq-gfoo"}, False),
        ({"weight_precision": "gptq-g0"}, False),
        ({"weight_precision": "gptq-g1"}, True),
        ({"accel_norm": "epyc-9554", "engine_name": "llama.cpp", "weight_precision": "q4_k_m", "tpot_ms": "60"}, True),
        ({"accel_norm": "epyc-9554", "engine_name": "llama.cpp", "weight_precision": "iq3_s"}, False),
        ({"weight_precision": "bf16-g8"}, False),
        ({"weight_precision": "fp8-g"}, False),
        ({"model_name": "~nosuchuser/config.json"}, False),
    ],
)
def test_a_served_row_is_scored_or_skipped_with_a_reason(cells, scored):
    found = inference_outcomes({**SERVED, **cells}, FIT)
    assert any(one.predicted for one in found) is scored
    assert scored or all(one.skipped for one in found)


@pytest.mark.slow
def test_software_that_another_stands_for_is_named_no_surer_than_borrowed_and_in_no_fit():
    (own,), (other,) = (
        inference_outcomes(
            {**SERVED, "engine_name": name, "engine_version": "", "month": "2025-10", "lengths": "fixed"}, FIT
        )
        for name in ("vllm", "tgi")
    )
    assert own.predicted.value == other.predicted.value
    assert other.predicted.grade in {"borrowed", "guessed"}
    assert any("tgi: planned as vllm-0.11" in text for text in other.assumed)
    assert not any(case.engine.stands_for for case in usable(frozenset()))
    assert any(case.engine.stands_for for case in known_cases())


def test_a_served_model_is_known_by_any_spelling():
    clean = next(
        each for each in catalogue.inference_rows() if not each["quality_flags"] and each["engine_name"] == "vllm"
    )
    known = case_of(clean)
    other = case_of(
        {**clean, "hf_model_id": "", "model_config": "", "model_name": known.model.id.upper().replace("-", " ")}
    )
    assert other.model == known.model


@pytest.mark.parametrize(
    ("kind", "said", "means"),
    [
        ("engines", "HF Transformers", "hf-transformers-4.57"),
        ("engines", "Hugging Face Transformers", "hf-transformers-4.57"),
        ("engines", "transformers", "hf-transformers-4.57"),
        ("engines", "ExLlama V3", "llama.cpp-b11200"),
        ("engines", "LMDeploy", "tensorrt-llm-1.2"),
        ("engines", "DeepSpeed-MII", "vllm-0.33"),
        ("frameworks", "HF Trainer", "transformers-4.57"),
        ("frameworks", "NeMo 24.07", "megatron-core-0.8"),
        ("frameworks", "PyTorch", "transformers-4.57"),
    ],
)
def test_software_is_known_by_the_names_that_people_write(kind, said, means):
    assert catalogue.find(kind, said, "--engine") == means


# What is not stated ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("0", 0),
        ("1", 1),
        ("2", 2),
        ("3", 3),
        ("ZeRO-2", 2),
        ("zero 3", 3),
        ("DeepSpeed ZeRO stage 1", 1),
        ("FSDP SHARD_GRAD_OP", 2),
        ("FSDP FULL_SHARD", 3),
        ("FSDP shard 8", 3),
        ("distributed optimizer", 1),
        ("DDP", 0),
        ("none", 0),
        ("zero3_offload", 3),
        ("FSDP NO_SHARD", 0),
        ("distributed data parallel", 0),
        ("2 nodes FSDP", 3),
        ("3.0", 3),
        ("HSDP", 3),
    ],
)
def test_a_stage_of_zero_is_read_in_any_spelling(text, stage):
    assert training_case(row(zero_stage_fsdp=text)).layout.zero == stage


@pytest.mark.parametrize(
    ("text", "away"),
    [
        ("optimizer->CPU", "optimizer"),
        ("params->CPU", "weights"),
        ("optimizer+param CPU", "optimizer"),
        ("params->CPU;optimizer->CPU", "optimizer"),
        ("activations->CPU", "activations"),
        ("weights->CPU", "weights"),
        ("no optimizer offload", "none"),
        ("none", "none"),
        ("", "none"),
    ],
)
def test_what_is_kept_in_host_memory_is_read(text, away):
    assert training_case(row(offload=text)).layout.offload == away


def test_a_blank_stage_of_zero_is_the_lowest_by_which_the_run_fits():
    one = {"framework": "deepspeed", "accelerators_total": "8", "accel_norm": "a100-sxm-80", "recompute": "full"}
    small, large = (training_case(row(model_name=name, **one)) for name in ("GPT-2 1.5B", "Llama 2 7B"))
    assert small.layout.zero == 0
    assert large.layout.zero == 1  # 16 bytes a parameter are more than 80 GiB, 4 and an eighth of 12 are not
    assert any("ZeRO: stage 1" in said for said in large.assumed)
    assert training_case(row(model_name="Llama 2 7B", zero_stage_fsdp="0", **one)).layout.zero == 0


@pytest.mark.parametrize(
    ("framework", "task", "recompute"),
    [
        ("transformers", "full-ft", "none"),
        ("transformers", "lora", "none"),
        ("transformers", "qlora", "full"),
        ("llama-factory", "lora", "full"),
        ("unsloth", "full-ft", "full"),
        ("trl", "lora", "none"),
    ],
)
def test_trainers_recompute_unasked(framework, task, recompute):
    one = {"accelerators_total": "1", "accel_norm": "h100-sxm", "seq_len": "1024", "global_batch_sequences": "8"}
    assert training_case(row(framework=framework, task=task, **one)).layout.recompute == recompute


def memory_of(kind):
    outcomes, _ = training_outcomes(row(measured_memory_gb_per_gpu="40", memory_kind=kind, tp="4"), FIT)
    return next(one.predicted for one in outcomes if one.metric == "memory")


def test_memory_of_a_kind_that_is_not_stated_may_be_what_tensors_took_or_what_was_held():
    tensors, held, any_kind, unsaid = map(memory_of, ("allocated", "reserved", "unspecified", ""))
    assert any_kind.value == tensors.value < held.value == unsaid.value
    assert tensors.high / tensors.low < any_kind.high / any_kind.low
    assert held.high / held.low < unsaid.high / unsaid.low


TRAINER = {
    "accelerators_total": "1",
    "accel_norm": "h100-sxm",
    "model_name": "Llama 3.1 8B",
    "seq_len": "16384",
    "micro_batch": "1",
    "global_batch_sequences": "8",
    "measured_memory_gb_per_gpu": "40",
    "memory_kind": "allocated",
    "task": "lora",
    "recompute": "full",
    "rank": "8",
    "targets": "q_proj, v_proj",
}


def of_trainer(framework, loss=""):
    outcomes, _ = training_outcomes(row(framework=framework, loss=loss, **TRAINER), FIT)
    return next((one.predicted, one.assumed) for one in outcomes if one.metric == "memory")


def test_a_loss_that_writes_no_logits_needs_less_memory_and_either_may_be_meant():
    (plain, _), (fused, _), (unsaid, said) = (of_trainer("trl", loss) for loss in ("plain", "fused", ""))
    logits = 16384 * 128256 * 10.0  # fp32 and 16-bit logits, and more
    assert plain.value - fused.value > logits
    assert unsaid.value == plain.value
    assert unsaid.high / unsaid.low > 1.1 * plain.high / plain.low
    assert any(one.startswith("loss: ") for one in said)
    assert of_trainer("unsloth")[0].value == fused.value  # its own loss is fused unasked
    assert of_trainer("transformers")[0].value == plain.value  # as the profile says
    assert not any(one.startswith("loss: ") for one in of_trainer("transformers")[1])
    with pytest.raises(Skipped, match="a fused one under torchtitan"):
        training_case(row(framework="torchtitan", month="2025-06", loss="fused", **TRAINER))
    with pytest.raises(Skipped, match="loss: 'liger' is not known; accepted: fused, plain"):
        training_case(row(framework="trl", loss="liger", **TRAINER))


def test_a_default_micro_batch_is_halved_until_it_fits():
    one = {**TRAINER, "micro_batch": "", "grad_accum": "", "seq_len": "4096"}
    small = training_case(row(framework="trl", **{**one, "accel_norm": "l40s"}))
    large = training_case(row(framework="trl", **{**one, "accel_norm": "b300"}))
    assert 1.0 <= small.layout.micro_batch < large.layout.micro_batch == 8.0
    texts = [[said for said in case.assumed if said.startswith("micro-batch: ")] for case in (small, large)]
    assert texts == [
        [f"micro-batch: {small.layout.micro_batch:g}, since 8 does not fit"],
        ["micro-batch: 8, transformers's default"],
    ]
    assert (small.job.batch, large.job.batch) == (8, 8)
    unsaid = training_case(row(framework="trl", **{**one, "accel_norm": "l40s", "global_batch_sequences": ""}))
    assert unsaid.job.batch == unsaid.layout.micro_batch == small.layout.micro_batch
    failed = training_case(row(framework="trl", **{**one, "accel_norm": "l40s"}), ran=False)
    assert failed.layout.micro_batch == 8.0  # what ran out of memory may well have used it


def test_gemini_shards_weights():
    one = {"framework": "colossalai", "accelerators_total": "8", "accel_norm": "a100-sxm-80"}
    assert training_case(row(zero_stage_fsdp="Gemini", **one)).layout.zero == 3


BATCH = {
    "id": "one",
    "source_key": "mine",
    "model_name": "Llama 3.1 8B",
    "accel_norm": "h100-sxm",
    "count": "1",
    "engine_name": "vllm",
    "month": "2025-06",
    "weight_precision": "bf16",
    "input_len": "1000",
    "output_len": "200",
    "running_batch": "1",
    "metric_kind": "latency",
    "tpot_ms": "9",
    "notes": "",
}


def served(**other):
    return case_of({**BATCH, **other})


def test_weights_that_are_not_stated_are_as_published_or_what_a_program_fetches():
    plain = served(weight_precision="")
    assert plain.model == served().model
    assert "weights" in plain.unstated
    assert any("weights: as published" in said for said in plain.assumed)
    fetched = served(weight_precision="", engine_name="ollama", accel_norm="rtx-4090")
    assert fetched.model.quantization.format == "q4_k_m"
    with pytest.raises(Skipped, match="unstated format"):
        served(weight_precision="", engine_name="llama.cpp", accel_norm="rtx-4090")


def test_lengths_of_a_known_batch_may_be_left_out():
    case = served(input_len="", output_len="")
    assert (case.workload.input, case.workload.output) == (256, 128)
    assert {"prompt", "answer"} <= set(case.unstated)
    deep = {"input_len": "16000", "tpot_ms": "", "output_tokens_per_s": "100"}
    (said,), (unsaid,) = (inference_outcomes({**BATCH, **deep, "output_len": answer}, FIT) for answer in ("128", ""))
    assert said.predicted.value == unsaid.predicted.value
    assert unsaid.predicted.high / unsaid.predicted.low > said.predicted.high / said.predicted.low
    with pytest.raises(Skipped, match="prompt length"):
        served(input_len="", ttft_ms="100")
    with pytest.raises(Skipped, match="answer length"):
        served(output_len="", running_batch="", client_concurrency="4", metric_kind="serving")


def test_a_layout_that_is_not_stated_is_one_replica_or_the_most_that_hold_the_model():
    cards = {
        "accel_norm": "rtx-pro-6000",
        "count": "8",
        "tp": "",
        "pp": "",
        "dp": "",
        "hf_model_id": "mistralai/Mixtral-8x7B-v0.1",
    }
    cards |= {"running_batch": "", "output_tokens_per_s": "9000", "tpot_ms": ""}
    online = served(**cards, client_concurrency="4", metric_kind="serving")
    offline = served(**cards, metric_kind="max_throughput", weight_precision="fp8")
    assert (online.strategy.label(), offline.strategy.label()) == ("tp8", "dp8")
    assert served(**cards, metric_kind="max_throughput").strategy.label() == "tp2 dp4"
    assert all("layout" in case.unstated for case in (online, offline))
    assert [one.strategy.label() for one in alternatives(offline, "layout")] == ["tp8"]
    assert [one.strategy.label() for one in alternatives(online, "layout")] == ["tp2 dp4"]
    stated = served(**{**cards, "tp": "8"}, client_concurrency="4", metric_kind="serving")
    assert "layout" not in stated.unstated


def test_prompts_of_mlperf_are_as_long_as_its_data_sets():
    suite = {
        "source_key": "mlperf-v5.1-amd",
        "input_len": "",
        "running_batch": "",
        "tpot_ms": "",
        "output_tokens_per_s": "9000",
    }
    case = served(
        **suite,
        model_name="llama-2-70b",
        hf_model_id="meta-llama/Llama-2-70b-hf",
        metric_kind="max_throughput",
        count="4",
        tp="4",
    )
    assert case.prompt == 275
    assert "prompt" in case.unstated
    with pytest.raises(Skipped, match="prompt length"):
        served(**suite, metric_kind="max_throughput")


def test_weights_of_exllama_may_have_broken_bits():
    weights = [
        served(weight_precision=f"exl2-{bits}bpw", engine_name="exllamav2", accel_norm="rtx-4090").book().weights
        for bits in (2.5, 3, 3.5, 4.25, 4.65, 5, 6.5)
    ]
    assert weights == sorted(set(weights))


def test_a_rate_of_llama_bench_is_one_of_decoding_alone():
    card = {"engine_name": "llama.cpp", "accel_norm": "rtx-4090", "weight_precision": "q4_k_m", "tpot_ms": ""}

    def rate(**cells):
        outcomes = inference_outcomes({**BATCH, **card, "output_tokens_per_s": "100", **cells}, FIT)
        return next(one.predicted.value for one in outcomes if one.metric == "output_tokens_per_second")

    near, deep = rate(input_len="1"), rate(input_len="16384")
    assert 0.6 * near < deep < 0.98 * near  # the cache is read, the prompt is not computed
    assert rate(input_len="16384", prefill_tokens_per_s="4000") == pytest.approx(near, rel=0.02)


def test_requests_at_a_rate_may_be_counted():
    open_loop = {"running_batch": "", "metric_kind": "serving", "request_rate": "8"}
    case = served(**open_loop, queued_requests="200")
    assert (case.regime, case.requests, case.arrivals) == ("open loop", 200, 8.0)
    assert served(**open_loop).requests is None
    assert served(**{**open_loop, "request_rate": "inf"}, queued_requests="200").regime == "burst"


@pytest.mark.parametrize(
    ("name", "bits"), [("mlx-4bit", 4.5), ("mlx-8bit", 8.5), ("exl2-4.0bpw", 4.0), ("exl3-6bpw", 6.0)]
)
def test_files_of_mlx_and_exllama_have_their_bits(name, bits):
    case = served(engine_name="mlx-lm", accel_norm="apple-m3-ultra", weight_precision=name)
    assert element_bytes(case.model.quantization.format) * 8 == pytest.approx(bits)


@pytest.mark.parametrize(
    ("text", "recompute"),
    [
        ("True", "full"),
        ("no", "none"),
        ("Selective", "selective"),
        ("full-recompute", "full"),
        ("no-recompute", "none"),
        ("gradient checkpointing", "full"),
    ],
)
def test_recomputation_may_be_given_as_a_switch(text, recompute):
    assert training_case(row(recompute=text)).layout.recompute == recompute


def test_programs_that_time_one_request_decode_after_its_prompt():
    """llama-bench times prompts and decoding apart, Ollama both of one request."""
    cells = {"accel_norm": "rtx-4090", "weight_precision": "q4_k_m", "input_len": "16384", "tpot_ms": ""}
    both = {"output_tokens_per_s": "100", "prefill_tokens_per_s": "4000", **cells}
    bench, other = (served(engine_name=name, **both) for name in ("llama.cpp", "ollama"))
    assert (bench.workload.input, other.workload.input) == (1, 16384)


def test_no_engine_reaches_more_than_kernel_tables_show():
    assert all(0.0 < one.value <= 1.0 for one in FIT.constants if one.name == "reach")
    assert all(one.value >= 1.0 for one in FIT.constants if one.name == "routed_kernels")


@pytest.mark.parametrize("said", ["cpu", "optimizer->NVMe"])
def test_offload_that_does_not_say_what_or_goes_to_storage_is_skipped(said):
    with pytest.raises(Skipped, match="offload"):
        training_case(row(offload=said))


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("H100 SXM5 80GB", "h100-sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40"),
        ("A100-PCIE-40GB", "a100-pcie-40"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("AMD Instinct MI300X", "mi300x"),
        ("NVIDIA H200", "h200-sxm"),
    ],
)
def test_devices_are_known_by_the_names_that_drivers_print(name, device):
    assert machine_of(row(accel_norm=name), Assumed()).device.id == device


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("precision", "bfloat16"),
        ("task", "sft"),
        ("memory_kind", "max_memory_allocated"),
        ("memory_kind", "nvidia-smi"),
    ],
)
def test_usual_words_are_known(column, said):
    assert training_case(row(**{column: said})).job.precision == "bf16"


@pytest.mark.parametrize("said", ["float16", "auto", "fp8_e4m3", "awq-4bit", "mlx-bf16"])
def test_usual_names_of_weights_are_known(said):
    assert served(weight_precision=said).model.total > 0


def test_hosts_that_nobody_sells_with_a_network_have_an_assumed_one():
    case = served(accel_norm="l20", count="24", tp="8", dp="3")
    assert (case.machine.hosts, case.machine.network.id, case.machine.ports) == (3, "ib-hdr", 8)
    assert "network: 8 x ib-hdr a host, as no server of l20 has one" in case.assumed
    assert "network" in case.unstated
    (other,) = alternatives(case, "network")
    assert other.machine.network.bandwidth == case.machine.network.bandwidth / 4
    assert "network" not in served(accel_norm="h100-sxm", count="16", tp="8", dp="2").unstated


def test_other_lengths_are_half_twice_and_four_times_those_assumed():
    case = served(input_len="", output_len="")
    assert (case.workload.input, case.workload.output, case.workload.context) == (256, 128, 384)
    prompts, answers = (
        [(one.workload.input, one.workload.output, one.workload.context) for one in alternatives(case, name)]
        for name in ("prompt", "answer")
    )
    data = [(one.workload.input, one.workload.output, one.prompt) for one in alternatives(case, "data set")]
    assert data == [(205, 102, pytest.approx(204.8)), (358, 179, pytest.approx(358.4))]
    assert prompts == [(128, 128, 256), (512, 128, 640)]
    assert answers == [(256, 64, 320), (256, 512, 768)]
    assert [one.prompt for one in alternatives(case, "prompt")] == [128, 512]


def test_prompts_timed_alone_have_an_answer_of_one_token():
    alone = served(output_len="", tpot_ms="", prefill_tokens_per_s="5000")
    assert alone.workload.output == 1


@pytest.mark.parametrize(
    ("devices", "host", "label"), [(16, 8, "2x8"), (10, 8, "2x5"), (6, 8, "6"), (8, 8, "8"), (24, 8, "3x8")]
)
def test_devices_fill_as_few_hosts_as_hold_them(devices, host, label):
    found = machine_of(
        row(accelerators_total=str(devices), devices_per_node=str(host), accel_norm="h100-sxm"), Assumed()
    )
    hosts, _, each = label.partition("x")
    assert (found.hosts, found.per_host) == ((int(hosts), int(each)) if each else (1, devices))


WAITING = {"metric_kind": "serving", "running_batch": "", "ttft_ms": "60"}


def test_a_rate_that_a_server_keeps_up_with_is_what_it_answers():
    """However few sequences run at once: 500 requests at 2 a second take 250 s, and what is answered is what was asked for."""
    load = {"metric_kind": "serving", "request_rate": "2", "queued_requests": "500", "max_num_seqs": "16"}
    found = {
        one.metric: one.predicted
        for one in inference_outcomes({**BATCH, **load, **WAITING, "output_tokens_per_s": "395"}, FIT)
    }
    assert found["output_tokens_per_second"].value == pytest.approx(2.0 * 200.0, rel=0.15)
    assert found["ttft"].value < 1.0


def test_near_capacity_a_queue_is_less_certain_than_its_steps():
    """A little decides whether requests wait, and the interval of first tokens says so; far below capacity nothing is added."""
    swings = []
    for rate in ("1", "30"):
        found = inference_outcomes({**BATCH, **WAITING, "queued_requests": "600", "request_rate": rate}, FIT)
        (first,) = (one.predicted for one in found if one.metric == "ttft")
        swings.append((first.doubt.swing, first.high / first.low))
    (quiet, narrow), (busy, wide) = swings
    assert quiet == pytest.approx(0.0, abs=0.05)
    assert busy > 0.5
    assert wide > 1.5 * narrow


def test_a_run_that_an_engine_s_default_could_not_hold_was_given_more_of_the_memory():
    shown = {"model_name": "deepseek-v3", "accel_norm": "h20", "count": "8", "tp": "8", "weight_precision": "fp8"}
    run = {**WAITING, "engine_name": "sglang", "client_concurrency": "8", "tpot_ms": "30"}
    given = case_of({**BATCH, **shown, **run})
    assert given.book().fits
    assert any("share of memory: 0.95" in said for said in given.assumed)
    stated = case_of({**BATCH, **shown, **run, "memory_fraction": "0.81"})
    assert not stated.book().fits
    assert not any("share of memory" in said for said in served().assumed)


def test_prompts_of_software_with_kernels_of_its_own_are_told_by_its_own_runs():
    told = {"accel_norm": "apple-m4-max", "weight_precision": "mlx-4bit", "prefill_tokens_per_s": "900", "tpot_ms": ""}
    rates = {}
    for name in ("mlx", "mlx-lm", "exllamav2"):
        (found,) = inference_outcomes({**BATCH, **told, "engine_name": name}, FIT)
        rates[name] = found.predicted.value
    assert rates["mlx"] == rates["mlx-lm"]
    share = FIT.find("engine", "compute_share", ["mlx"])
    assert rates["mlx"] > 1.1 * rates["exllamav2"]
    assert share.rows >= 20


SHAPE_530B = dimensions(105, 20480, 128, vocab=51200) | {"seq_len": "2048", "global_batch_sequences": "1920"}


def test_a_layout_that_is_not_stated_is_not_taken_for_data_ranks_that_no_device_holds():
    large = row(
        model_name="GPT 530B", accelerators_total="2240", accel_norm="a100-sxm-80", micro_batch="", **SHAPE_530B
    )
    with pytest.raises(Skipped, match="layout not stated"):
        training_case(large)
    assert training_case({**large, "tp": "8", "pp": "35"}).layout.dp == 8.0


def test_stages_of_which_no_interleaving_is_stated_widen_the_interval():
    split = row(tp="4", pp="4", global_batch_sequences="64")
    blank, stated = (training_case({**split, **more}) for more in ({}, {"interleave": "1"}))
    assert "interleave" in blank.unstated
    assert "interleave" not in stated.unstated
    wide, narrow = (training_figures(one, FIT)[0]["tokens_per_second_per_device"] for one in (blank, stated))
    assert wide.value == pytest.approx(narrow.value)
    assert wide.high / wide.low > narrow.high / narrow.low


@pytest.mark.parametrize(
    ("said", "stage"),
    [
        *(("2", 2), ("3.0", 3), ("ZeRO-1", 1), ("stage 2", 2), ("DDP", 0), ("no sharding", 0), ("SHARD_GRAD_OP", 2)),
        *(("FSDP", 3), ("HSDP 8", 3), ("full shard", 3), ("distributed optimizer", 1)),
    ],
)
def test_stages_of_sharding_are_read_in_words(said, stage):
    assert _zero({"zero_stage_fsdp": said}, catalogue.framework("deepspeed-0.16")) == stage


def test_unstated_stages_are_the_frameworks():
    unsaid = [
        _zero({}, catalogue.framework(name)) for name in ("torchtitan-0.2", "megatron-core-0.16", "deepspeed-0.16")
    ]
    assert unsaid == [3, 1, 0]


SERVED = {
    "id": "a",
    "source_key": "me",
    "model_name": "llama-3.1-8b",
    "accel_norm": "h100-sxm",
    "count": "1",
    "engine_name": "vllm",
    "weight_precision": "bf16",
    "input_len": "1000",
    "output_len": "100",
    "tpot_ms": "12",
    "client_concurrency": "16",
}
"""A row of a user's own."""


@pytest.mark.parametrize(
    ("version", "newer"),
    [("0.99", True), ("v9.1", True), ("0.33.1", True), ("0.33", False), ("0.7", False), ("main", False)],
)
def test_versions_beyond_all_that_are_described_are_said(version, newer):
    assumed = Assumed()
    engine = engine_of({**SERVED, "engine_version": version}, assumed)
    said = [text for text in assumed.texts.values() if "newer than any" in text]
    assert said == (
        [f"engine version {version}: newer than any that is described, read as {engine.id}"] if newer else []
    )


def test_columns_that_are_not_read_are_told_with_what_resembles_them():
    found = api.validate(
        "inference", [{**SERVED, "colour": "red", "tpot": "3", "e2e_ms": "", "seq_len": "4096"}], fit=FIT
    )
    assert found.unread == {"colour": "", "tpot": "tpot_ms", "seq_len": ""}
    assert found.warnings == [("unread_columns", "columns that are not read: colour, tpot (tpot_ms?), seq_len")]
    assert api.validate("inference", [{**SERVED, "lengths": "fixed"}], fit=FIT).warnings == []


@pytest.mark.parametrize(
    ("cells", "rate"),
    [
        ({"requests_per_s": "3"}, 3.0 * 128.0),
        ({"total_tokens_per_s": "1152"}, 128.0),
        ({"e2e_ms": "2000", "running_batch": "8", "metric_kind": "latency"}, 8.0 * 128.0 / 2.0),
        ({"total_tokens_per_s": "1152", "output_len": ""}, None),
        ({"e2e_ms": "2000", "client_concurrency": "8"}, None),
        ({"total_tokens_per_s": "1152", "output_tokens_per_s": "100"}, 100.0),
        ({"total_tokens_per_s": "1152", "ttft_ms": "40"}, None),
    ],
)
def test_a_rate_of_answers_follows_from_what_else_a_row_states_alone(cells, rate):
    """From requests, tokens with prompts, or the time of a whole batch; beside other figures it would count twice."""
    bare = {**SERVED, "input_len": "1024", "output_len": "128"}
    for name in ("output_tokens_per_s", "ttft_ms", "tpot_ms", "e2e_ms", "prefill_tokens_per_s", "running_batch"):
        bare[name] = ""
    assert measured_of({**bare, **cells}).get("output_tokens_per_second") == rate


@pytest.mark.parametrize("kind", READ)
def test_columns_that_are_read_stand_in_the_readers(kind):
    folder = Path(roofplan_evidence.__file__).parent
    code = "".join(file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.py")))
    code = code.replace(code[code.index("EITHER = ") : code.index("def unread")], "")
    unread = [name for name in (*EITHER, *READ[kind]) if f'"{name}"' not in code]
    assert unread == []


@pytest.mark.parametrize("said", ["p99", "99", " 99 % ", "99th percentile"])
def test_a_bare_number_is_a_percentile(said):
    case = inference_case({**SERVED, "percentile": said})
    assert case.statistic.quantile == 0.99
    assert not [text for text in case.assumed if text.startswith("percentile")]


@pytest.mark.parametrize("said", ["0.99", "0.5", "0", "100"])
def test_a_fraction_is_no_percentile(said):
    case = inference_case({**SERVED, "percentile": said})
    assert case.statistic.quantile is None
    assert f"percentile {said}: read as the mean" in case.assumed


def test_dense_layers_of_a_mixture_are_those_that_its_row_states():
    from roofplan.evidence.models import _built

    stated = (("layers", 8), ("hidden", 64), ("heads", 4), ("ffn_hidden", 128), ("vocab", 1000))
    models = [_built("x", stated + more, (8, 2, 0), 128, gated=True) for more in ((), (("dense_layers", 3),))]
    dense = [
        sum(isinstance(feed, Dense) for layer in one.decoder.layers for feed in layer.feed_forwards) for one in models
    ]
    assert dense == [0, 3]


def test_dimensions_that_make_far_more_than_the_name_says_are_no_models():
    run = {**RUN, "model_name": "Hy 10B-A1B", "layers": "32", "hidden": "4096", "ffn_hidden": "14336", "heads": "32"}
    with pytest.raises(Skipped, match="more than twice what its name says"):
        training_case(run | {"experts": "64", "experts_per_token": "4", "moe": ""})


@pytest.mark.parametrize(("device", "usual"), [("h100-sxm", "bf16"), ("v100-sxm2-32", "fp16")])
def test_an_unstated_precision_is_one_that_the_device_has(device, usual):
    case = training_case({**RUN, "accel_norm": device, "precision": ""})
    assert case.job.precision == usual
    why = "as most models are trained" if usual == "bf16" else "since v100-sxm2-32 has no bf16"
    assert f"precision: {usual}, {why}" in case.assumed


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"input_len": "900000"}, "far more than the model's positions"),
        (
            {"input_len": "900000", "engine_name": "llama.cpp", "weight_precision": "q4_k_m", "metric_kind": "latency"},
            "far more than the model's positions",
        ),
        ({"running_batch": "100000", "metric_kind": "serving"}, "far more than memory holds"),
        ({}, ""),
    ],
)
def test_runs_that_cannot_have_been_are_skipped(given, why):
    run = {**SERVED, "client_concurrency": "", "running_batch": "8", **given}
    if not why:
        assert inference_case(run)
        return
    with pytest.raises(Skipped, match=why):
        inference_case(run)


def test_an_unknown_kind_of_metric_is_said():
    assert "metric_kind servin: read as if it were blank" in inference_case({**SERVED, "metric_kind": "servin"}).assumed


def test_families_whose_feed_forwards_have_a_gate_keep_it():
    run = {**RUN, "model_name": "Qwen9 0.5B", "layers": "24", "hidden": "896", "ffn_hidden": "4864", "heads": "14"}
    case = training_case(run | {"kv_heads": "2", "vocab": "151936"})
    assert all(len(feed.groups[0]) == 2 for layer in case.model.decoder.layers for feed in layer.feed_forwards)


@pytest.mark.parametrize(("batch", "length", "rate"), [("1", "32", False), ("64", "32", True), ("1", "64", True)])
def test_a_rate_of_prompts_takes_enough_tokens_to_be_one(batch, length, rate):
    run = {**SERVED, "client_concurrency": "", "tpot_ms": "", "metric_kind": "latency", "running_batch": batch}
    (found,) = inference_outcomes(run | {"input_len": length, "prefill_tokens_per_s": "900"}, FIT)
    assert (found.predicted is not None) is rate
    assert ("tells a latency" in found.skipped) is not rate


@pytest.mark.parametrize(("framework", "recompute"), [("jax", "none"), ("maxtext", "full")])
def test_plain_jax_recomputes_nothing(framework, recompute):
    found = training_case({**RUN, "framework": framework, "recompute": ""}).layout
    assert found.recompute == recompute
