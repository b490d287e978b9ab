"""What a configuration may get wrong, and what is said of it."""

import json
import sys
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from conftest import LLAMA, golden_rows
from hypothesis import given
from hypothesis import strategies as st

from roofplan import api, catalogue, hf
from roofplan.errors import ConfigError, InputError, UnknownFamily, UnknownName
from roofplan.hf.blocks import short_convolution
from roofplan.hf.decoders import qwen_windows
from roofplan.hf.fields import Fields
from roofplan.hf.find import read_model
from roofplan.hf.mixtures import _groups, _sparse_layers
from roofplan.hf.quantization import _grouped, _parts, _pattern
from roofplan.operations import UNPADDED, head_format, head_operations, layer_operations
from roofplan.operations.table import Split, Step
from roofplan.records.model import Attention, LatentAttention, Layer, Mixture
from roofplan.records.strategy import Strategy

V4 = {
    "model_type": "deepseek_v4",
    "hidden_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "head_dim": 64,
    "vocab_size": 1000,
    "q_lora_rank": 256,
    "o_groups": 2,
    "o_lora_rank": 128,
    "hc_mult": 4,
    "sliding_window": 128,
    "index_topk": 512,
    "moe_intermediate_size": 256,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "index_head_dim": 64,
    "index_n_heads": 4,
    "compress_ratios": [4, 128],
    "max_position_embeddings": 131072,
}
INDEXED = [
    V4,
    next(json.loads(row["config"]) for row in golden_rows("model_configs.csv") if row["model_type"] == "deepseek_v32"),
]
"""Models whose decode attention picks the entries of the cache that it reads."""


def test_missing_field_is_named(llama):
    del llama["hidden_size"]
    with pytest.raises(ConfigError, match="lacks hidden_size"):
        hf.from_dict(llama)


@pytest.mark.parametrize("value", [0, -1, 1.5, "many", None, float("nan"), float("inf"), True, 10**15, 10**400])
def test_impossible_sizes_are_refused(llama, value):
    llama["num_hidden_layers"] = value
    with pytest.raises(ConfigError, match="num_hidden_layers"):
        hf.from_dict(llama)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_key_value_heads", 3),
        ("max_position_embeddings", 0),
        ("max_position_embeddings", -5),
        ("sliding_window", -4096),
        ("quantization_config", "fp8"),
        ("hidden_size", 10**12),
    ],
)
def test_contradictions_are_refused_by_field(llama, field, value):
    llama["model_type"] = "mistral" if field == "sliding_window" else "llama"
    llama[field] = value
    with pytest.raises(ConfigError, match=field):
        hf.from_dict(llama)


def test_more_experts_per_token_than_experts_are_refused(llama):
    llama |= {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 9}
    with pytest.raises(ConfigError, match="9 experts per token of 8"):
        hf.from_dict(llama)


def test_a_number_of_five_thousand_digits_is_no_fault_of_ours(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama", "num_hidden_layers": ' + "9" * 5001 + "}")
    with pytest.raises(ConfigError, match="not JSON"):
        read_model(str(path))


@pytest.mark.parametrize("name", ["a" * 5000, "org/" + "a" * 5000, "nul\x00byte"])
def test_names_that_no_file_system_takes_are_unknown(name):
    with pytest.raises(UnknownName) as refused:
        read_model(name)
    assert len(str(refused.value)) < 300


def test_unknown_family_is_refused_by_name_with_its_nearest(llama):
    llama["model_type"] = "lama"
    with pytest.raises(UnknownFamily, match="'lama' is not described") as refused:
        hf.from_dict(llama)
    assert "llama" in refused.value.nearest


def test_no_family_is_refused(llama):
    del llama["model_type"]
    with pytest.raises(ConfigError, match="model_type"):
        hf.from_dict(llama)


def test_config_without_dtype_is_bf16_with_a_warning_and_its_cache_is_not_halved(llama):
    del llama["torch_dtype"]
    model = hf.from_dict(llama)
    assert model.dtype == "bf16"
    assert any("no dtype" in text for text in model.warnings)
    kv = 2 * llama["num_hidden_layers"] * llama["num_key_value_heads"] * 64 * 2
    assert api.Loaded(model).cache_bytes(1) == kv


def test_missing_kv_heads_mean_multi_head(llama):
    del llama["num_key_value_heads"]
    assert hf.from_dict(llama).kv_heads == llama["num_attention_heads"]


def packed(weights, activations=None):
    """Return a quantisation as compressed-tensors writes it."""
    group = {"weights": weights} | ({"input_activations": activations} if activations else {})
    return {"quant_method": "compressed-tensors", "config_groups": {"g": group}}


@pytest.mark.parametrize(
    ("weights", "activations", "stored", "activation"),
    [
        ({"num_bits": 8, "type": "float"}, {"num_bits": 8, "type": "float"}, "fp8", "fp8"),
        ({"num_bits": 4, "type": "float", "group_size": 16}, {"num_bits": 4, "type": "float"}, "nvfp4", "fp4"),
        ({"num_bits": 8, "type": "int"}, {"type": "int"}, "int8", "int8"),
        ({"num_bits": 4, "type": "int", "group_size": 128}, {"type": "float"}, "gptq", "fp8"),
        ({"num_bits": 4, "type": "int", "group_size": 128}, None, "gptq", None),
    ],
)
def test_activations_may_be_quantised_too(llama, weights, activations, stored, activation):
    found = hf.from_dict({**llama, "quantization_config": packed(weights, activations)}).quantization
    assert (found.format, found.activation) == (stored, activation)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq"),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "awq-g64"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq"),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, "mxfp4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bnb-nf4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}},
            },
            "gptq-g32",
        ),
        (packed({"num_bits": 8, "type": "float"}), "fp8"),
        (packed({"num_bits": 8, "type": "float", "strategy": "block"}), "fp8-block"),
        (packed({"num_bits": 4, "type": "float", "group_size": 32}), "mxfp4"),
        (packed({"num_bits": 4, "type": "float", "group_size": 16}), "nvfp4"),
        (packed({"num_bits": 8, "type": "int", "group_size": 128}), "int8-weight"),
        (packed({"num_bits": 8, "type": "int", "group_size": 64}), "int8-weight-g64"),
        (packed({"num_bits": 8, "type": "int"}, {"num_bits": 8, "type": "int"}), "int8"),
        (packed({"num_bits": 4, "type": "int", "group_size": 128}), "gptq"),
        (packed({"num_bits": 4, "type": "int"}), "gptq-channel"),
    ],
)
def test_quantization_configs(llama, config, expected):
    model = hf.from_dict({**llama, "quantization_config": config})
    assert model.quantization.format == expected


def test_modules_left_unconverted_keep_their_type(llama):
    skipped = {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0", "down_proj"]}
    model = hf.from_dict({**llama, "quantization_config": skipped})
    first, second = model.decoder.layers[0], model.decoder.layers[1]
    assert {linear.format for group in first.mixers[0].groups for linear in group} == {"bf16"}
    assert second.feed_forwards[0].groups[1][0].format == "bf16"  # down_proj
    assert second.mixers[0].groups[0][0].format == "fp8"


NAMES = st.lists(st.sampled_from(["layers", "1", "10", "mlp", "q_proj"]), min_size=1, max_size=4).map(".".join)


@given(NAMES, NAMES)
def test_a_name_without_wildcards_matches_whole_names_of_a_path(name, path):
    assert (name in _parts(path)) == bool(_pattern(name).search(path))


@pytest.mark.parametrize("name", ["model.layers.1*", "re:.*layers\\.1\\.", "model.layers.1", "layers.1.mlp.down_proj"])
def test_modules_are_left_unconverted_by_pattern_or_by_name(llama, name):
    skipped = {"quant_method": "fp8", "modules_to_not_convert": [name]}
    model = hf.from_dict({**llama, "num_hidden_layers": 12, "quantization_config": skipped})
    unconverted = [layer.feed_forwards[0].groups[1][0].format == "bf16" for layer in model.decoder.layers]
    assert unconverted == [number == 1 or (number >= 10 and name.endswith("*")) for number in range(12)]


def formats_by_weights(model):
    """Return the share of each format in the matrices of a model's layers."""
    counts = Counter()
    for layer in (layer for stack in model.stacks for layer in stack.layers):
        held = [(mixer.groups, 1) for mixer in layer.mixers]
        for feed in layer.feed_forwards:
            mixed = isinstance(feed, Mixture)
            held += [(feed.expert, feed.experts), (feed.shared, 1)] if mixed else [(feed.groups, 1)]
        for one, times in ((one, times) for groups, times in held for group in groups for one in group):
            counts[one.format] += one.inputs * one.outputs * one.copies * times
    return {name: count / counts.total() for name, count in counts.items()}


QUANTISED = [name for name in catalogue.ids("models") if "quantization_config" in catalogue.model_table(name)["config"]]


@pytest.mark.parametrize("name", QUANTISED)
def test_a_quantised_checkpoint_stores_most_of_its_layers_in_its_format(name):
    model = read_model(name)
    assert formats_by_weights(model)[model.quantization.format] > 0.6


def test_routed_experts_have_the_format_that_the_model_states_for_them():
    for name, experts in (("deepseek-v4-flash", "mxfp4"), ("deepseek-v4-flash-nvfp4", "nvfp4")):
        shares = formats_by_weights(read_model(name))
        assert shares[experts] > 0.95
        assert 0.01 < shares["fp8-block"] < 0.05
        assert head_format(read_model(name)) == "bf16"


def test_unknown_quantization_is_refused(llama):
    with pytest.raises(ConfigError, match="quant_method"):
        hf.from_dict({**llama, "quantization_config": {"quant_method": "magic"}})


def test_two_gigabytes_are_no_config(tmp_path):
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(2 * 2**30)
    with pytest.raises(ConfigError, match="2,147,483,648 bytes"):
        read_model(str(path))


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", "\x00\x01", '"llama"'])
def test_what_is_no_json_object_is_refused(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ConfigError):
        read_model(str(path))


def test_model_is_read_from_path_folder_alias_and_dict(tmp_path, llama):
    (tmp_path / "config.json").write_text(json.dumps(llama))
    totals = {
        read_model(str(tmp_path)).total,
        read_model(str(tmp_path / "config.json")).total,
        api.load_model(llama).parameters.total,
    }
    assert len(totals) == 1
    assert read_model("meta-llama/Llama-3.1-70B-Instruct").total == read_model("LLAMA-3.1-70B").total == 70_553_706_496


def test_every_second_layer_is_counted_from_one_by_qwen_and_from_zero_by_others():
    """(i + 1) % decoder_sparse_step in modeling_qwen2_moe.py, i % moe_layer_freq in modeling_deepseek.py."""
    assert _sparse_layers(Fields({"decoder_sparse_step": 2}), 4) == [False, True, False, True]
    assert _sparse_layers(Fields({"moe_layer_freq": 2}), 4) == [True, False, True, False]


@pytest.mark.parametrize("config", INDEXED, ids=[config["model_type"] for config in INDEXED])
def test_an_indexer_adds_work_and_traffic_that_grow_with_the_context(config):
    model = hf.from_dict(config)
    mixer = next(
        mixer
        for layer in model.decoder.layers
        for mixer in layer.mixers
        if getattr(mixer, "index_elements", 0) or getattr(mixer, "index_heads", 0)
    )
    blind = replace(
        mixer, index_heads=0, **({"index_elements": 0} if isinstance(mixer, Attention) else {"index_dim": 0})
    )

    def attention(kind, context):
        step = Step(sequences=4.0, context=context)
        layer = Layer(mixers=(kind,), feed_forwards=(), vectors=0)
        table = layer_operations(layer, step, Split.of(Strategy()), model, 1.0, UNPADDED)
        return next(one for one in table if one.kind == "decode_attention")

    near, far = (attention(mixer, context) for context in (20_000.0, 100_000.0))
    assert far.traffic > near.traffic > attention(blind, 20_000.0).traffic
    assert far.work > near.work > attention(blind, 20_000.0).work


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layer_types": ["full_attention"] * 5}, "layer_types has 5 entries for 32 layers"),
        ({"hidden_size": 4097}, "hidden_size 4097 is not a multiple of num_attention_heads 32"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused_by_name(changes, said):
    config = json.loads(catalogue.model_table("llama-3.1-8b")["config"])
    with pytest.raises(ConfigError, match=said):
        hf.from_dict({**config, **changes}, "x")


def test_a_head_width_of_its_own_need_not_divide_the_hidden_size():
    config = json.loads(catalogue.model_table("llama-3.1-8b")["config"])
    assert hf.from_dict(
        {**config, "hidden_size": 4112, "head_dim": 128, "num_attention_heads": 36, "num_key_value_heads": 4}, "x"
    )


RECURRENT_GEMMA = {
    "model_type": "recurrent_gemma",
    "architectures": ["RecurrentGemmaForCausalLM"],
    "num_hidden_layers": 26,
    "vocab_size": 256000,
    "hidden_size": 2560,
    "intermediate_size": 15360,
    "num_attention_heads": 10,
    "num_key_value_heads": 1,
    "lru_width": 2560,
    "attention_window_size": 2048,
    "conv1d_width": 4,
    "head_dim": 256,
}


def test_kinds_of_blocks_are_read():
    model = hf.from_dict({**RECURRENT_GEMMA, "_block_types": ["recurrent", "recurrent", "attention"]}, "x")
    assert sum(isinstance(layer.mixers[0], Attention) for layer in model.decoder.layers) == 8


@pytest.mark.parametrize("types", [False, [], ["attention", "window"]])
def test_kinds_of_blocks_must_be_a_list_of_known_ones(types):
    with pytest.raises(ConfigError, match="_block_types must be a list"):
        hf.from_dict({**RECURRENT_GEMMA, "_block_types": types}, "x")


def test_a_model_whose_draft_layers_are_none_has_none():
    experts = {"num_local_experts": 8, "num_experts_per_tok": 2, "rotary_dim": 32, "head_dim": 64}
    config = {**LLAMA, **experts, "model_type": "minimax_m2"}
    without = hf.from_dict({**config, "use_mtp": True, "num_mtp_modules": 0})
    assert without.draft_layers == hf.from_dict(config).draft_layers == 0
    assert hf.from_dict({**config, "use_mtp": True, "num_mtp_modules": 1}).draft_layers == 1


def test_mpt_may_share_keys_and_values():
    (row,) = (row for row in golden_rows("model_configs.csv") if row["model_type"] == "mpt")
    config = json.loads(row["config"])
    full = hf.from_dict(config)
    shared = hf.from_dict({**config, "attn_config": {**config["attn_config"], "kv_n_heads": 4}})
    saved = (
        2 * config["d_model"] * (config["d_model"] - 4 * config["d_model"] // config["n_heads"]) * config["n_layers"]
    )
    assert full.total - shared.total == saved
    assert hf.from_dict({**config, "attn_config": None}).total == full.total


@pytest.mark.parametrize(
    ("name", "product", "experts"),
    [
        ("deepseek-v3", 2.0, 11.0),
        ("deepseek-v3.1-nvfp4", 1.0, 9.0),
        ("qwen3-30b-a3b", 1.0, 7.0),
        ("qwen3-30b-a3b-fp8", 2.0, 9.0),
    ],
)
def test_activations_scaled_by_blocks_take_a_kernel_before_each_product(name, product, experts):
    model, step = read_model(name), Step(sequences=1.0, context=100.0)
    table = layer_operations(model.decoder.layers[-1], step, Split.of(Strategy()), model, 2.0, UNPADDED)
    found = {op.name: op.kernels for op in table}
    assert found["o"] == product
    assert found["routed experts"] == experts
    assert found["router"] == 1.0


def test_states_cost_what_their_update_does_by_hand():
    """Per value head and element of a state: decay, two products with a vector, an outer product and its sum; two FLOP an element of a convolution."""
    (delta,) = {
        mixer
        for layer in read_model("qwen3-next-80b-a3b").decoder.layers
        for mixer in layer.mixers
        if getattr(mixer, "kind", "") == "gated-delta"
    }
    assert delta.update_flops == 7 * 32 * 128 * 128 + 2 * (2 * 16 * 128 + 32 * 128) * 4
    assert short_convolution(64, 3).update_flops == 2 * 64 * 3


def test_what_only_moves_bytes_computes_nothing():
    step = head_operations(
        Step(sequences=4.0, each=1.0, context=100.0), Split.of(Strategy(tp=2)), read_model("llama-3.1-8b")
    )
    moved = [one for one in step if one.kind in {"gather", "memory"}]
    assert {"sampling", "gather of logits"} <= {one.name for one in moved}
    assert all(float(one.work) == 0.0 for one in moved)


def test_experts_that_are_identities_are_noted():
    assert any("routable experts are identities" in note for note in read_model("longcat-flash").notes)


STABLE = {
    "model_type": "stablelm",
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 100352,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("said", "more"),
    [
        ({}, 2 * 10_240),
        ({"use_parallel_residual": True}, 10_240),
        ({"use_parallel_residual": True, "qk_layernorm": True}, 10_240 + 40 * 160),
        ({"qk_layernorm": True}, 2 * 10_240 + 40 * 160),
        ({"use_qkv_bias": True}, 2 * 10_240 + (32 + 2 * 8) * 160),
    ],
)
def test_stablelm_has_one_norm_or_two_and_norms_of_each_head_where_it_says_so(said, more):
    """Weights of a layer of StableLM 2 12B, and its norms: transformers@00dcc6d, models/stablelm/modeling_stablelm.py."""
    layer = 2 * 5120 * 5120 + 2 * 5120 * 1280 + 3 * 5120 * 13824
    assert hf.from_dict(STABLE | said).total == 2 * 100_352 * 5120 + 40 * (layer + more) + 10_240


def test_layers_of_kimi_linear_are_counted_from_one_in_its_own_configuration():
    (row,) = (row for row in golden_rows("model_configs.csv") if row["model_type"] == "kimi_linear")
    flat = json.loads(row["config"])
    full = [at for at, kind in enumerate(flat["layer_types"], 1) if kind == "full_attention"]
    said = {
        "num_heads": "linear_num_heads",
        "head_dim": "linear_head_dim",
        "short_conv_kernel_size": "linear_conv_kernel_dim",
    }
    nested = {name: flat.pop(other) for name, other in said.items()} | {"full_attn_layers": full}
    del flat["layer_types"]
    model = hf.from_dict(flat | {"linear_attn_config": nested})
    assert model.total == int(row["params_total"])
    seen = [at for at, one in enumerate(model.decoder.layers, 1) if isinstance(one.mixers[0], LatentAttention)]
    assert seen == full


def test_the_newest_snapshot_of_the_hub_s_cache_is_read(tmp_path, monkeypatch, llama):
    monkeypatch.setattr(catalogue, "hub_cache", lambda: tmp_path)
    for name, layers in (("a", 3), ("b", 5)):
        place = tmp_path / "models--some--model" / "snapshots" / name
        place.mkdir(parents=True)
        (place / "config.json").write_text(json.dumps({**llama, "num_hidden_layers": layers}))
    assert len(read_model("some/model").decoder.layers) == 5


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ConnectionError("no route\nand more"), "hf:some/model: no route"),
        (TimeoutError(), "hf:some/model: TimeoutError"),
    ],
)
def test_what_the_hub_says_is_one_line(monkeypatch, error, line):
    def download(name, file, **_):
        assert (name, file) == ("some/model", "config.json")
        raise error

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=download))
    with pytest.raises(InputError) as refused:
        read_model("hf:some/model")
    assert str(refused.value) == line


def test_a_model_of_the_hub_is_read(monkeypatch, tmp_path, llama):
    place = tmp_path / "config.json"
    place.write_text(json.dumps(llama))
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=lambda *_, **__: str(place)))
    assert read_model("hf:some/model").total == hf.from_dict(llama).total


@pytest.mark.parametrize(("full", "windows"), [(0, 4), (3, 1), (None, 0)])
def test_windows_begin_behind_the_layers_that_see_everything(llama, full, windows):
    said = {} if full is None else {"max_window_layers": full}
    config = {**llama, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "num_hidden_layers": 4}
    model = hf.from_dict({**config, "use_sliding_window": True, "sliding_window": 64, **said}, "x")
    assert sum(layer.mixers[0].window == 64 for layer in model.decoder.layers) == windows


def test_a_mixture_without_a_width_of_shared_experts_has_none():
    config = json.loads(catalogue.model_table("nemotron-3-nano")["config"])
    whole, width = hf.from_dict(config), config.pop("moe_shared_expert_intermediate_size")
    layers = [feed for layer in whole.decoder.layers for feed in layer.feed_forwards if isinstance(feed, Mixture)]
    assert whole.total - hf.from_dict(config).total == len(layers) * 2 * width * config["hidden_size"]


@pytest.mark.parametrize(("value", "read"), [(0, None), (-1, None), (None, None), (1, 1), (2, 2)])
def test_a_feature_is_switched_off_by_0_and_by_minus_1(value, read):
    assert Fields({"sliding_window": value}).optional_int("sliding_window") == read


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("llama-3.1-8b", "dense"),
        ("mixtral-8x7b", "mixture"),
        ("jamba-1.5-mini", "hybrid"),
        ("mamba-2.8b", "hybrid"),
        ("deepseek-v3", "mixture"),
    ],
)
def test_one_layer_with_a_state_makes_a_hybrid(model, kind):
    assert read_model(model).kind == kind


@pytest.mark.parametrize(
    ("more", "windows"),
    [
        ({}, [None] * 4),
        ({"use_sliding_window": True}, [None] * 4),
        ({"use_sliding_window": True, "max_window_layers": 0}, [512] * 4),
        ({"use_sliding_window": True, "max_window_layers": 3}, [None, None, None, 512]),
        ({"use_sliding_window": False, "max_window_layers": 0}, [None] * 4),
        ({"use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"] * 2}, [512, None] * 2),
    ],
)
def test_windows_of_qwen_begin_behind_the_layers_without(more, windows):
    assert qwen_windows(Fields({"num_hidden_layers": 4, "sliding_window": 512, **more})) == windows


@pytest.mark.parametrize(
    ("group", "name"), [(128, "gptq"), (64, "gptq-g64"), (1, "gptq-g1"), (0, "gptq-channel"), (-1, "gptq-channel")]
)
def test_groups_of_weights_are_named_where_they_are_not_the_usual_ones(group, name):
    assert _grouped("gptq", group, 128) == name


@pytest.mark.parametrize(
    ("said", "groups"),
    [
        ({}, (1, 1)),
        ({"n_group": 8, "topk_group": 4}, (8, 4)),
        ({"n_group": 8}, (8, 8)),
        ({"n_group": 8, "topk_group": 16}, (8, 8)),
        ({"n_group": 8, "topk_group": 4, "topk_method": "greedy"}, (1, 1)),
        ({"n_group": 1, "topk_group": 1, "topk_method": "greedy"}, (1, 1)),
    ],
)
def test_a_router_chooses_among_groups_unless_it_is_greedy(said, groups):
    assert _groups(Fields(said)) == groups


@pytest.mark.parametrize("inner", ["phi3", "llama", "no-such-type"])
def test_a_wrapped_language_model_is_what_it_says_or_refused(inner):
    text = {**LLAMA, "model_type": inner}
    config = {"model_type": "internvl_chat", "llm_config": text, "downsample_ratio": 0.5}
    if inner == "no-such-type":
        with pytest.raises(UnknownFamily, match="language model of internvl_chat is of model_type 'no-such-type'"):
            hf.from_dict(config)
    else:
        assert hf.from_dict(config).decoder.layers == hf.from_dict(text).decoder.layers


def test_internvl_says_its_shuffle_and_square_images():
    vision = {
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "patch_size": [14, 14],
        "image_size": [28, 28],
    }
    config = {"model_type": "internvl", "text_config": {**LLAMA, "model_type": "llama"}, "vision_config": vision}
    tower, projector = hf.from_dict(config).stacks[:2]
    assert tower.tokens == 2 * 2 + 1
    inner, hidden = 4 * 64, LLAMA["hidden_size"]
    assert projector.extra == 2 * inner + (inner + 1) * hidden + (hidden + 1) * hidden
    with pytest.raises(ConfigError, match=r"downsample_ratio 0\.3"):
        hf.from_dict({**config, "downsample_ratio": 0.3})
    with pytest.raises(ConfigError, match="patch_size"):
        hf.from_dict({**config, "vision_config": {**vision, "patch_size": [14, 16]}})
    with pytest.raises(ConfigError, match="downsample_ratio"):
        hf.from_dict({**config, "downsample_ratio": [0.5]})


@pytest.mark.parametrize("text", [None, {}, {"model_type": "internvl_chat"}])
def test_internvl_without_a_language_model_is_refused(text):
    with pytest.raises(ConfigError, match=r"lacks|text_config"):
        hf.from_dict({"model_type": "internvl_chat", "llm_config": text})


def test_the_language_model_of_internvl_says_whether_matrices_are_tied():
    text = {**LLAMA, "model_type": "llama"}
    config = {"model_type": "internvl_chat", "llm_config": None, "text_config": text, "tie_word_embeddings": True}
    assert not hf.from_dict(config).tied
    assert hf.from_dict({**config, "text_config": {**text, "tie_word_embeddings": True}}).tied
