"""Counts of every family against transformers classes on torch's meta device, to the unit."""

import json

import pytest
from conftest import golden_rows

from roofplan import catalogue, hf
from roofplan.errors import ConfigError
from roofplan.hf.find import read_model
from roofplan.records.strategy import Strategy
from roofplan.serving import footprint

ROWS = golden_rows("model_configs.csv")
SHIPPED = [row for row in golden_rows("catalogue_counts.csv") if row["id"] in catalogue.ids("models")]
LENGTHS = (128, 1024, 8192)
IDENTITY_EXPERTS = {"longcat_flash"}


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_parameters_match_to_the_unit(row):
    model = hf.from_dict(json.loads(row["config"]), row["name"])
    assert model.total == int(row["params_total"])
    assert model.layer_runs() == json.loads(row["layer_params_rle"])
    if row["params_embedding"]:
        assert model.embedding == int(row["params_embedding"])
    if row["params_lm_head"]:
        assert model.head == int(row["params_lm_head"])
    if row["params_active_derived"] and model.active is not None:
        assert model.active == int(float(row["params_active_derived"]))


OWN_CODE = {
    "chatglm": (
        {
            "add_bias_linear": False,
            "add_qkv_bias": True,
            "ffn_hidden_size": 13696,
            "hidden_size": 4096,
            "kv_channels": 128,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
            "num_attention_heads": 32,
            "num_layers": 40,
            "padded_vocab_size": 151552,
            "seq_length": 131072,
        },
        9_399_951_360,  # GLM-4-9B-Chat
    ),
    "exaone": (
        {
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "num_layers": 32,
            "vocab_size": 102400,
        },
        7_818_448_896,  # EXAONE-3.5-7.8B
    ),
    "internlm": (
        {
            "bias": True,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "vocab_size": 103168,
        },
        7_321_948_160,  # InternLM-7B
    ),
    "bailing_moe_v2": (
        {
            "hidden_size": 2048,
            "intermediate_size": 5120,
            "moe_intermediate_size": 512,
            "num_experts": 256,
            "num_experts_per_tok": 8,
            "num_shared_experts": 1,
            "num_hidden_layers": 20,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "vocab_size": 157184,
            "first_k_dense_replace": 1,
            "use_qk_norm": True,
        },
        16_255_638_528,  # Ling-mini-2.0
    ),
    "nemotron-nas": (
        {
            "hidden_size": 8192,
            "num_attention_heads": 64,
            "num_hidden_layers": 80,
            "vocab_size": 128256,
            "block_configs": [
                {"attention": {"n_heads_in_group": 8} if heads else {"no_op": True}, "ffn": {"ffn_mult": factor}}
                for count, heads, factor in (
                    *((48, True, 5.25), (1, True, 2.625), (10, False, 1.3125), (8, False, 1.0), (6, False, 0.5)),
                    *((5, False, 2.625), (1, False, 3.28125), (1, False, 5.25)),
                )
                for _ in range(count)
            ],
        },
        49_867_145_216,  # Llama-3.3-Nemotron-Super-49B
    ),
    "qwen": (
        {
            "hidden_size": 4096,
            "intermediate_size": 22016,
            "kv_channels": 128,
            "no_bias": True,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "vocab_size": 151936,
        },
        7_721_324_544,  # Qwen-7B
    ),
}
"""Families whose code came with their checkpoints: a published shape, and the parameters that it adds up to."""


@pytest.mark.parametrize("family", OWN_CODE)
def test_families_with_their_own_code_are_exact(family):
    config, total = OWN_CODE[family]
    assert hf.from_dict({"model_type": family, **config}).total == total


CACHED = [(row, tokens) for row in ROWS for tokens in LENGTHS if row[f"cache_bytes_T{tokens}"]]


@pytest.mark.parametrize(("row", "tokens"), CACHED, ids=[f"{row['name']}-{tokens}" for row, tokens in CACHED])
def test_cache_bytes_match(row, tokens):
    """Window caches may differ by the one token that transformers drops after a step."""
    model = hf.from_dict(json.loads(row["config"]), row["name"])
    foot = footprint(model, Strategy(), 2.0)
    slack = sum(rate for rate, window, _ in foot.windowed if tokens >= window)
    assert abs(foot.request(float(tokens)) - int(row[f"cache_bytes_T{tokens}"])) <= slack


@pytest.mark.parametrize("row", SHIPPED, ids=[row["id"] for row in SHIPPED])
def test_catalogue_models_match(row):
    model = hf.of_catalogue(row["id"])
    if model.family in IDENTITY_EXPERTS:
        assert model.total == 560_664_958_976  # the released checkpoint; the class also allocates its identity experts
        return
    assert model.total == int(row["params_total"])
    assert list(model.layer_runs().values()) == list(json.loads(row["layer_params_rle"]).values())


def test_a_tower_that_is_not_described_is_left_out_and_said_so():
    config = {**GEMMA_3N, "vision_config": {"model_type": "gemma3n_vision"}}
    model = hf.from_dict(config)
    assert any("only the language model is counted" in text for text in model.warnings)


GEMMA_3N = {
    "model_type": "gemma3n",
    "text_config": {
        "model_type": "gemma3n_text",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": 1000,
        "vocab_size_per_layer_input": 1000,
        "hidden_size_per_layer_input": 32,
        "altup_num_inputs": 4,
        "laurel_rank": 8,
        "num_kv_shared_layers": 1,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
    },
}


def test_every_count_is_that_of_a_model():
    assert {row["id"] for row in golden_rows("catalogue_counts.csv")} <= set(catalogue.ids("models"))


def test_unique_totals_catch_errors_that_cancel():
    """A per-layer list must add up to the total: nothing hides between layers, embedding and head."""
    for row in ROWS[::7]:
        model = hf.from_dict(json.loads(row["config"]), row["name"])
        parts = model.embedding + model.head + model.other + sum(stack.parameters for stack in model.stacks)
        assert parts == model.total


QWEN_VL = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}
"""Text model of Qwen2-VL 7B and Qwen2.5-VL 7B."""

QWEN_TOWER = {
    "depth": 32,
    "num_heads": 16,
    "in_chans": 3,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}


@pytest.mark.parametrize(
    ("family", "tower", "total"),
    [
        ("qwen2_vl", {"embed_dim": 1280, "mlp_ratio": 4, "hidden_size": 3584}, 8_291_375_616),
        ("qwen2_5_vl", {"hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 3584}, 8_292_166_656),
    ],
)
def test_early_vision_models_of_qwen_are_exact(family, tower, total):
    assert hf.from_dict({"model_type": family, **QWEN_VL, "vision_config": QWEN_TOWER | tower}).total == total


@pytest.mark.parametrize(
    ("architecture", "warned"),
    [("Qwen2VLForConditionalGeneration", True), ("Qwen2ForCausalLM", False), (None, False)],
)
def test_a_tower_that_a_configuration_leaves_out_is_missed(architecture, warned):
    named = {"architectures": [architecture]} if architecture else {}
    model = hf.from_dict({"model_type": "qwen2_vl", **QWEN_VL, **named})
    assert [stack.role for stack in model.stacks] == ["decoder"]
    assert any("vision_config is not stated" in text for text in model.warnings) is warned


def test_parts_of_llava_are_those_of_their_classes_where_the_file_leaves_them_out():
    """The files of the hub, as llava-hf/llava-1.5-7b-hf and mistral-community/pixtral-12b have them."""
    clip = {
        "model_type": "clip_vision_model",
        "hidden_size": 1024,
        "image_size": 336,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "patch_size": 14,
    }
    llava = {"text_config": {"model_type": "llama", "vocab_size": 32064}, "vision_config": clip}
    assert hf.from_dict({"model_type": "llava", **llava}).total == 7_063_427_072
    text = {"model_type": "mistral", "head_dim": 128, "hidden_size": 5120, "intermediate_size": 14336}
    pixtral = {
        "text_config": {**text, "num_hidden_layers": 40, "num_key_value_heads": 8, "vocab_size": 131072},
        "vision_config": {"model_type": "pixtral", "head_dim": 64, "image_size": 1024, "patch_size": 16},
    }
    assert hf.from_dict({"model_type": "llava", **pixtral}).total == 12_682_739_712
    with pytest.raises(ConfigError, match="in front of LLaVA is not described"):
        hf.from_dict({"model_type": "llava", **llava, "vision_config": {"model_type": "siglip_vision_model"}})


STEP = {
    "model_type": "step3p5",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_attention_groups": 2,
    "num_hidden_layers": 3,
    "vocab_size": 100,
    "moe_intermediate_size": 32,
    "moe_num_experts": 8,
    "moe_top_k": 2,
    "share_expert_dim": 32,
    "head_dim": 16,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
    "sliding_window": 16,
    "attention_other_setting": {
        "attention_type": "sliding_attention",
        "num_attention_heads": 6,
        "num_attention_groups": 2,
        "head_dim": 16,
    },
}


def test_layers_of_step_are_mixtures_where_they_are_listed():
    """By hand: attention of four or six heads with a gate each, two layers of eight experts and a shared one."""
    heads = [4, 6, 6]
    attends = sum(64 * 16 * (2 * own + 4) + 64 * own + 2 * 16 for own in heads)
    feeds = 3 * 64 * 128 + 2 * (9 * 3 * 64 * 32 + 64 * 8)
    total = attends + feeds + 3 * 2 * 64 + 2 * 100 * 64 + 64
    for listed in ("1,2", "1-2"):
        assert hf.from_dict({**STEP, "moe_layers_enum": listed}).total == total
    for listed in (None, "", "all", "1-"):
        with pytest.raises(ConfigError, match="moe_layers_enum"):
            hf.from_dict({**STEP, "moe_layers_enum": listed})


def test_the_drafting_layer_of_mimo_is_counted_apart():
    """7,833,409,536 parameters in all, as the files of XiaomiMiMo/MiMo-7B-Base hold."""
    model = read_model("mimo-7b")
    assert model.draft_layers == 1
    assert model.total + model.draft_parameters == 7_833_409_536


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [("deepseek-moe-16b", 16.4e9, 2.8e9), ("step-3.5-flash", 196.8e9, 11.5e9)],
)
def test_mixtures_add_up_to_what_their_papers_state(name, total, active):
    model = read_model(name)
    assert model.total == pytest.approx(total, rel=0.01)
    assert model.active == pytest.approx(active, rel=0.06)


def test_experts_of_ling_with_biases_are_refused():
    with pytest.raises(ConfigError, match="experts with biases are not described"):
        hf.from_dict({"model_type": "bailing_moe_v2", **OWN_CODE["bailing_moe_v2"][0], "use_bias": True})


@pytest.mark.parametrize("name", ["zamba2-1.2b", "zamba2-2.7b", "llama-3.2-1b"])
def test_blocks_that_layers_share_are_held_once(name):
    model = read_model(name)
    assert footprint(model, Strategy(), 2.0).weights == pytest.approx(2.0 * model.total)


def test_a_block_without_its_factor_is_refused_by_its_place():
    config = OWN_CODE["nemotron-nas"][0]
    blocks = [{"attention": {"no_op": True}, "ffn": {"ffn_mult": factor}} for factor in (1.0, -1.0)]
    with pytest.raises(ConfigError, match=r"block_configs\[1\]\.ffn\.ffn_mult is -1\.0; a positive number"):
        hf.from_dict({"model_type": "nemotron-nas", **config, "num_hidden_layers": 2, "block_configs": blocks})
    uneven = [{"attention": {"n_heads_in_group": 128}, "ffn": {"ffn_mult": 1.0}}]
    with pytest.raises(ConfigError, match="n_heads_in_group 128 does not divide num_attention_heads 64"):
        hf.from_dict({"model_type": "nemotron-nas", **config, "num_hidden_layers": 1, "block_configs": uneven})
    replaced = [{"attention": {"replace_with_linear": True}, "ffn": {"ffn_mult": 1.0}}]
    with pytest.raises(ConfigError, match="one matrix, which is not described"):
        hf.from_dict({"model_type": "nemotron-nas", **config, "num_hidden_layers": 1, "block_configs": replaced})


def test_a_vision_tower_of_glm_has_no_biases_of_attention_unless_it_says_so():
    config = next(json.loads(row["config"]) for row in ROWS if row["name"] == "default:glm4v_moe")
    vision = {key: value for key, value in config["vision_config"].items() if key != "attention_bias"}
    silent, plain, biased = (
        hf.from_dict({**config, "vision_config": {**vision, **said}}).total
        for said in ({}, {"attention_bias": False}, {"attention_bias": True})
    )
    assert silent == plain < biased


def test_a_token_touches_the_chosen_experts():
    """Mixtral 8x7B: 46.7 billion, 12.9 of which a token touches (arXiv 2401.04088)."""
    model = read_model("mixtral-8x7b")
    assert model.active == pytest.approx(12.9e9, rel=0.01)


def test_a_vision_tower_reads_its_patches_and_a_class_token():
    """ViT-L/14 at 224 pixels: 16 x 16 patches and one token more."""
    from roofplan.hf.fields import Fields
    from roofplan.hf.towers import clip_vision_stack

    sizes = {"hidden_size": 1024, "patch_size": 14, "image_size": 224, "num_attention_heads": 16}
    stack, _ = clip_vision_stack(Fields({**sizes, "intermediate_size": 4096, "num_hidden_layers": 24}))
    assert stack.tokens == 257


def test_vision_towers_count_their_patches_and_tokens_of_their_own():
    from roofplan.hf.fields import Fields
    from roofplan.hf.towers import dinov2, dinov3

    sizes = {"hidden_size": 768, "patch_size": 16, "image_size": 256, "num_attention_heads": 12, "num_channels": 3}
    fields = Fields({**sizes, "intermediate_size": 3072, "mlp_ratio": 4, "num_hidden_layers": 12})
    assert [tower(fields).stacks[0].tokens for tower in (dinov2, dinov3)] == [257, 257]
    assert dinov3(Fields({**fields.values, "num_register_tokens": 4})).stacks[0].tokens == 261


def test_biases_of_experts_are_counted():
    mixture = next(feed for layer in read_model("gpt-oss-20b").decoder.layers for feed in layer.feed_forwards)
    assert mixture.per_expert == 3 * 2880**2 + 3 * 2880
    assert mixture.routed == 32 * mixture.per_expert
