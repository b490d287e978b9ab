"""Models of the second half of 2026: published totals, caches and formats, and what is sent and attended to."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from roofplan import catalogue, hf
from roofplan.errors import ConfigError, InputError, UnsupportedFeature
from roofplan.hf.find import read_model
from roofplan.operations import head_format, layer_operations
from roofplan.operations.attention import attended_pairs, latent_pairs
from roofplan.operations.table import Split, Step
from roofplan.operations.training import _mixing
from roofplan.records.engine import Kernels
from roofplan.records.model import Attention, LatentAttention, Mixture
from roofplan.records.strategy import Strategy
from roofplan.serving.blocks import _kinds
from roofplan.serving.ledger import footprint
from roofplan.serving.rules import cut_block

CORRECTIONS = {"kimi-k3": 92 * 896, "minimax-m3": 57 * 128, "minimax-m3-mxfp8": 57 * 128}
"""Corrections of the router's scores, which checkpoints store and which are no parameters [1]."""


def config(identity):
    return json.loads(json.dumps(hf.of_catalogue(identity).config))


@pytest.mark.parametrize(
    ("identity", "total"),
    [
        ("kimi-k3", 2_779_931_837_184),  # metadata of the checkpoint's safetensors
        ("minimax-m3", 427_040_140_160),
        ("minimax-m3-mxfp8", 427_040_140_160),
        ("deepseek-v4.1-flash", 551_566_180_464 + 196_928_504_320 + 485_253_120 + 15_360),
    ],
)
def test_published_totals_to_the_unit(identity, total):
    assert hf.of_catalogue(identity).total + CORRECTIONS.get(identity, 0) == total


@pytest.mark.parametrize(
    ("identity", "published"),
    [
        ("kimi-k3", 1_560_860_324_864),  # payloads of the checkpoints
        ("minimax-m3", 854_172_958_720),
        ("minimax-m3-mxfp8", 443_742_085_120),
        ("deepseek-v4.1-flash", 510_286_023_000 - 7.9e9),  # without the layers that draft
    ],
)
def test_weights_take_what_the_checkpoint_does(identity, published):
    held = footprint(hf.of_catalogue(identity), Strategy(), 2.0).weights
    assert held == pytest.approx(published, rel=1e-3)


@pytest.mark.parametrize(
    ("identity", "tensor", "kv", "each"),
    [
        ("kimi-k3", 8, 2.0, 24 * 576 * 2),
        ("minimax-m3", 1, 2.0, 137_472),
        ("minimax-m3", 4, 2.0, 45_312),  # as vLLM pages it: an indexer's keys whole on every rank
        ("minimax-m3", 8, 1.0, 60 * 2 * 128 + 57 * 128 * 2),
        ("deepseek-v4.1-flash", 8, 2.0, 3_200),
        ("glm-5.3-flash", 1, 2.0, 11 * (512 + 128 / 4) * 2),
    ],
)
def test_a_token_is_cached_in_as_many_bytes_as_published(identity, tensor, kv, each):
    assert footprint(hf.of_catalogue(identity), Strategy(tp=tensor), kv).kv_per_token == pytest.approx(each)


def test_a_window_of_latents_keeps_no_more_than_the_window():
    model = hf.of_catalogue("dots3-note-prev")
    foot = footprint(model, Strategy(), 2.0)
    sliding, full = 33 * (1024 + 64) * 2, 13 * (512 + 64 + 128) * 2
    assert foot.request(10_000.0) == pytest.approx(10_000 * full + 512 * sliding)


def only(model, kind, condition):
    return next(
        one for layer, _ in model.decoder.kinds() for one in layer.mixers if isinstance(one, kind) and condition(one)
    )


def test_selected_tokens_bound_what_a_prompt_attends_to():
    sparse = only(hf.of_catalogue("minimax-m3"), Attention, lambda one: one.top is not None)
    assert attended_pairs(sparse, 2048.0, 0.0) == attended_pairs(replace(sparse, top=None), 2048.0, 0.0)
    assert attended_pairs(sparse, 1.0, 100_000.0) == 2048
    beside = only(hf.of_catalogue("deepseek-v4.1-flash"), Attention, lambda one: one.compression == 2)
    assert attended_pairs(beside, 1.0, 1_000_000.0) == 128 + 512
    slides = only(hf.of_catalogue("dots3-note-prev"), LatentAttention, lambda one: one.window is not None)
    assert latent_pairs(slides, 1.0, 100_000.0) == (512, 0.0)


def test_experts_of_a_latent_space_are_sent_what_they_read():
    model, step = hf.of_catalogue("kimi-k3"), Step(sequences=64.0, context=1000.0)
    mixed = next(one for one, _ in model.decoder.kinds() if any(isinstance(f, Mixture) for f in one.feed_forwards))
    table = layer_operations(
        mixed, step, Split.of(Strategy(dp=8, ep=8)), model, 2.0, Kernels(smallest_tile=16, largest_tile=128)
    )
    sent = [float(op.traffic) for op in table if op.kind == "exchange"]
    assert sent == [64 * 8 * 3584 * 2.0] * 2  # what eight ranks gather is less than sixteen copies of each token


def formats_of(model):
    return {
        linear.name.rpartition(".")[2]: linear.format
        for layer, _ in model.decoder.kinds()
        for part in (*layer.mixers, *layer.feed_forwards)
        for group in (part.expert if isinstance(part, Mixture) else part.groups)
        for linear in group
    }


def test_modules_that_a_checkpoint_lists_have_their_own_formats():
    found = formats_of(hf.of_catalogue("qwen3.6-27b-nvfp4"))
    assert found["q_proj"] == "fp8"
    assert found["up_proj"] == "nvfp4"
    stated = config("qwen3.6-27b-nvfp4")
    place = stated if "quantization_config" in stated else stated["text_config"]
    listed = place["quantization_config"]["quantized_layers"]
    listed[next(iter(listed))] = {"quant_algo": "W3A5"}
    with pytest.raises(ConfigError, match="W3A5"):
        hf.from_dict(stated)


def test_only_routed_experts_of_a_latent_space_are_in_four_bits():
    model = hf.of_catalogue("kimi-k3")
    assert model.quantization.only_experts
    moe = next(f for layer, _ in model.decoder.kinds() for f in layer.feed_forwards if isinstance(f, Mixture))
    assert {linear.format for group in moe.expert for linear in group} == {"mxfp4"}
    assert {linear.format for group in moe.shared for linear in group} == {"bf16"}


def test_a_folder_may_state_its_format_in_a_file_of_its_own(tmp_path):
    stated = config("nemotron-3-ultra")
    (tmp_path / "config.json").write_text(json.dumps(stated))
    plain = read_model(str(tmp_path))
    assert plain.quantization is None
    (tmp_path / hf.BESIDE).write_text(
        json.dumps({"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}})
    )
    packed = read_model(str(tmp_path))
    assert (packed.quantization.format, packed.quantization.kv) == ("nvfp4", "fp8")
    assert packed.sha256 != plain.sha256
    (tmp_path / hf.BESIDE).write_text("[]")
    with pytest.raises(ConfigError, match=hf.BESIDE):
        read_model(str(tmp_path))


@pytest.mark.parametrize(
    ("identity", "change", "said"),
    [
        ("ling-3.0-flash", {"architectures": ["BailingMoeV2_5ForCausalLM"]}, "Ling 3.0"),
        ("ling-3.0-flash", {"gated_attention_proj_granularity_type": "element_wise"}, "Ling 3.0"),
        ("deepseek-v4.1-flash", {"compress_ratios": [0]}, "compress_ratios"),
        ("deepseek-v4.1-flash", {"compress_ratios": ["a"] * 40}, "compress_ratios"),
        ("deepseek-v4.1-flash", {"kv_source_layer_ids": []}, "kv_source_layer_ids"),
        ("deepseek-v4.1-flash", {"kv_source_layer_ids": [99]}, "kv_source_layer_ids"),
        ("deepseek-v4.1-flash", {"engram_num_embeddings": [1]}, "engram_num_embeddings"),
        ("deepseek-v4.1-flash", {"o_groups": 7}, "o_groups"),
        ("qwen3.8-flash-next", {"ngram_size": 1}, "ngram_size"),
        ("qwen3.8-flash-next", {"heads_per_ngram": 1_000_000}, "tables of n-grams"),
        ("qwen3.8-flash-next", {"layer_types": ["mamba"] * 48}, "mamba"),
        ("dots3-note-prev", {"per_layer_config": "x"}, "per_layer_config"),
        ("llama-3.2-11b-vision", {"cross_attention_layers": [400]}, "cross_attention_layers"),
        ("mistral-large-4", {"kv_source_layers": [0] * 72}, "kv_source_layers"),
        ("glm-5.3-flash", {"layer_types": None}, "layer_types"),
    ],
)
def test_what_is_not_described_is_refused_by_name(identity, change, said):
    stated = config(identity)
    (stated.get("text_config", stated) if "architectures" not in change else stated).update(change)
    with pytest.raises(ConfigError, match=said):
        hf.from_dict(stated)


def test_tables_of_ngrams_are_no_part_of_what_a_token_uses():
    model = hf.of_catalogue("qwen3.8-flash-next")
    assert model.tables == 320_001_536 * 160
    assert model.active == 7_755_925_616


def test_an_image_gives_the_decoder_as_many_vectors_as_the_tower_makes():
    model = hf.of_catalogue("llama-3.2-11b-vision")
    looking = only(model, Attention, lambda one: one.cross is not None)
    tower = next(stack for stack in model.stacks if stack.role == "vision")
    assert looking.cross == tower.tokens == 4 * ((448 // 14) ** 2 + 1)


def test_the_path_of_a_config_finds_its_format_beside_it(tmp_path):
    stated = config("nemotron-3-ultra")
    (tmp_path / "config.json").write_text(json.dumps({**stated, "quantization_config": None}))
    (tmp_path / hf.BESIDE).write_text(json.dumps({"quantization": {"quant_algo": "NVFP4"}}))
    assert read_model(str(tmp_path / "config.json")).quantization.format == "nvfp4"


def test_a_hub_that_is_not_reached_is_no_checkpoint_without_a_format(monkeypatch, llama, tmp_path):
    place = tmp_path / "config.json"
    place.write_text(json.dumps(llama))

    def client(error):
        def download(_name, file, **_):
            if file == "config.json":
                return str(place)
            raise type(error, (Exception,), {})("no such file\nor so")

        return SimpleNamespace(hf_hub_download=download)

    monkeypatch.setitem(sys.modules, "huggingface_hub", client("EntryNotFoundError"))
    assert read_model("hf:some/model").quantization is None
    monkeypatch.setitem(sys.modules, "huggingface_hub", client("LocalEntryNotFoundError"))
    with pytest.raises(InputError, match="no such file"):
        read_model("hf:some/model")


def test_four_bits_of_weights_alone_are_multiplied_in_sixteen():
    stated = {
        **config("nemotron-3-ultra"),
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"},
    }
    assert hf.from_dict(stated).quantization.activation is None
    stated["quantization_config"]["quant_algo"] = "NVFP4"
    assert hf.from_dict(stated).quantization.activation == "fp4"


def test_a_head_that_a_checkpoint_lists_is_stored_as_listed():
    assert head_format(hf.of_catalogue("qwen3.6-27b-nvfp4")) == "nvfp4"
    assert head_format(hf.of_catalogue("kimi-k3")) == "bf16"


def test_only_the_language_model_of_a_model_that_sees_is_trained():
    import roofplan as rp

    asked = {"on": "h100-sxm:64", "batch": "512seq", "sequence": 4096}
    found = rp.plan_training("gemma-3-27b", **asked)
    assert any("the language model alone" in text for text in found.asked.assumed)
    assert found.plans[0].model.total < hf.of_catalogue("gemma-3-27b").total
    with pytest.raises(InputError, match="decoders alone"):
        rp.plan_training("llama-3.2-11b-vision", **asked)


def test_an_indexer_works_in_training_too():
    model = hf.of_catalogue("minimax-m3")
    sparse = only(model, Attention, lambda one: one.top is not None)
    framework, job = catalogue.framework("megatron-core-0.16"), SimpleNamespace(sequence=131_072)
    layout = SimpleNamespace(tp=1, cp=1)

    def work(mixer):
        return float(sum(op.work for op in _mixing(mixer, 131_072.0, job, layout, framework)))

    without = work(replace(sparse, index_heads=0))
    assert work(sparse) - without == pytest.approx(2 * 131_072**2 / 2 * 4 * 128, rel=0.01)


def test_pages_that_an_indexer_shares_are_not_guessed():
    with pytest.raises(UnsupportedFeature, match="pages"):
        _kinds(hf.of_catalogue("minimax-m3"), 4, 2.0)


def test_a_cache_alone_may_be_converted(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config("nemotron-3-ultra")))
    for stated in ({}, {"quantization": None}, {"quantization": {"quant_algo": None, "kv_cache_quant_algo": "FP8"}}):
        (tmp_path / hf.BESIDE).write_text(json.dumps(stated))
        assert read_model(str(tmp_path)).quantization is None


def test_a_matrix_is_cut_between_the_blocks_that_share_a_scale():
    assert cut_block("fp8-block", leaves=False) == 128
    assert cut_block("fp8-block-g1024", leaves=True) == 32
    import roofplan as rp

    found = rp.plan_serving("deepseek-v4.1-flash", on="h200-sxm:8", engine="vllm", users=8, strategy="tp8")
    assert found.plans[0].strategy.tp == 8


def test_layers_that_draft_are_not_denied():
    import roofplan as rp

    with pytest.raises(UnsupportedFeature, match="not described"):
        rp.plan_serving("minimax-m3", on="b200:8", draft="1:0.8")
    with pytest.raises(UnsupportedFeature, match="carries no"):
        rp.plan_serving("llama-3.1-8b", on="b200:1", draft="1:0.8")
