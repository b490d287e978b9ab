"""GGUF headers: read, turned into models whose counts and bytes are those of the file, and refused where they are wrong."""

import math
import struct
from dataclasses import replace

import pytest

from roofplan import hf
from roofplan.errors import ConfigError, UnknownFamily
from roofplan.hf import gguf
from roofplan.hf.find import read_model
from roofplan.operations import head_format

Q4_K, Q6_K, Q4_1, Q8_0, F16, F32 = 12, 14, 3, 8, 1, 0


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def field(name, value):
    if isinstance(value, str):
        return text(name) + struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        kind = 8 if isinstance(value[0], str) else 4
        body = b"".join(text(each) if kind == 8 else struct.pack("<I", each) for each in value)
        return text(name) + struct.pack("<IIQ", 9, kind, len(value)) + body
    return text(name) + struct.pack("<II", 4, value)


def write(path, metadata, tensors, version=3):
    raw = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    raw += b"".join(field(name, value) for name, value in metadata.items())
    for name, (shape, kind) in tensors.items():
        raw += (
            text(name)
            + struct.pack("<I", len(shape))
            + struct.pack(f"<{len(shape)}Q", *shape)
            + struct.pack("<IQ", kind, 0)
        )
    path.write_bytes(raw)
    return path


def llama(layers=2, hidden=64, heads=4, kv=2, inner=128, vocabulary=96, usual=Q4_K, down=Q6_K, head=Q6_K):
    wide = hidden // heads * kv
    tensors = {"token_embd.weight": ((hidden, vocabulary), usual), "output_norm.weight": ((hidden,), F32)}
    if head is not None:
        tensors["output.weight"] = ((hidden, vocabulary), head)
    for k in range(layers):
        tensors |= {
            f"blk.{k}.attn_norm.weight": ((hidden,), F32),
            f"blk.{k}.ffn_norm.weight": ((hidden,), F32),
            f"blk.{k}.attn_q.weight": ((hidden, hidden), usual),
            f"blk.{k}.attn_k.weight": ((hidden, wide), usual),
            f"blk.{k}.attn_v.weight": ((hidden, wide), usual),
            f"blk.{k}.attn_output.weight": ((hidden, hidden), usual),
            f"blk.{k}.ffn_gate.weight": ((hidden, inner), usual),
            f"blk.{k}.ffn_up.weight": ((hidden, inner), usual),
            f"blk.{k}.ffn_down.weight": ((inner, hidden), down if k == 0 else usual),
        }
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": layers,
        "llama.context_length": 512,
        "llama.embedding_length": hidden,
        "llama.feed_forward_length": inner,
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": kv,
        "tokenizer.ggml.tokens": ["a"] * 5000,
    }
    return metadata, tensors


def formats(model, ending):
    """Return the formats of matrices of feed-forwards whose names end so."""
    feeds = (feed for layer in model.decoder.layers for feed in layer.feed_forwards)
    return [one.format for feed in feeds for group in feed.groups for one in group if one.name.endswith(ending)]


def test_counts_and_formats_are_those_of_the_file(tmp_path):
    metadata, tensors = llama()
    model = read_model(str(write(tmp_path / "m.gguf", metadata, tensors)))
    assert model.total == sum(math.prod(shape) for shape, _ in tensors.values())
    assert model.quantization.format == "q4_k"
    assert head_format(model) == "q6_k"
    assert formats(model, "down_proj") == ["q6_k", "q4_k"]
    assert model.max_positions == 512


def test_a_tied_head_is_the_embedding(tmp_path):
    model = read_model(str(write(tmp_path / "m.gguf", *llama(head=None, usual=Q8_0, down=Q8_0))))
    assert model.tied
    assert head_format(model) == "q8_0"


def test_rotary_tables_are_no_parameters_and_long_lists_are_skipped(tmp_path):
    metadata, tensors = llama()
    path = write(tmp_path / "m.gguf", metadata, tensors | {"rope_freqs.weight": ((8,), F32)})
    assert read_model(str(path)).total == sum(math.prod(shape) for shape, _ in tensors.values())
    assert gguf.header(path).metadata["tokenizer.ggml.tokens"] == 5000
    longer = {"tokenizer.ggml.token_type": [1] * 5000} | metadata
    assert gguf.header(write(tmp_path / "n.gguf", longer, tensors)).metadata == gguf.header(path).metadata | {
        "tokenizer.ggml.token_type": 5000
    }


def test_a_split_model_is_whole_again(tmp_path):
    metadata, tensors = llama()
    names = list(tensors)
    write(tmp_path / "m-00001-of-00002.gguf", metadata, {name: tensors[name] for name in names[:5]})
    last = write(tmp_path / "m-00002-of-00002.gguf", {"split.no": 1}, {name: tensors[name] for name in names[5:]})
    whole = read_model(str(write(tmp_path / "m.gguf", metadata, tensors)))
    assert read_model(str(tmp_path / "m-00001-of-00002.gguf")).total == whole.total
    last.unlink()
    with pytest.raises(ConfigError, match="00002-of-00002"):
        read_model(str(tmp_path / "m-00001-of-00002.gguf"))


def test_experts_make_a_mixtral(tmp_path):
    metadata, tensors = llama(layers=1)
    for name in ("ffn_gate", "ffn_up", "ffn_down"):
        shape, kind = tensors.pop(f"blk.0.{name}.weight")
        tensors[f"blk.0.{name}_exps.weight"] = ((*shape, 4), kind)
    tensors["blk.0.ffn_gate_inp.weight"] = ((64, 4), F32)
    more = {"llama.expert_count": 4, "llama.expert_used_count": 2}
    model = read_model(str(write(tmp_path / "m.gguf", metadata | more, tensors)))
    assert model.family == "mixtral"
    assert model.experts == 4
    assert model.decoder.layers[0].feed_forwards[0].expert[0][0].format == "q4_k"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda raw: b"GGUX" + raw[4:], "not JSON"),
        (lambda raw: raw[:4] + struct.pack("<I", 9) + raw[8:], "version 9"),
        (lambda raw: raw[:200], "ends inside"),
        (
            lambda raw: raw.replace(
                b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0llama",
                b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0lamma",
            ),
            "not described",
        ),
        (lambda raw: raw.replace(b"token_embd", b"token_xxxx"), "no language model"),
    ],
)
def test_a_wrong_file_is_refused_with_the_reason(tmp_path, change, said):
    path = write(tmp_path / "m.gguf", *llama())
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises((ConfigError, UnknownFamily)) as refusal:
        hf.from_path(path)
    assert said in refusal.value.message


def test_shapes_that_differ_from_the_family_are_refused(tmp_path):
    metadata, tensors = llama()
    extra = tensors | {"blk.0.attn_gate.weight": ((64, 64), F16)}
    with pytest.raises(ConfigError, match=r"config\.json is needed"):
        read_model(str(write(tmp_path / "m.gguf", metadata, extra)))


def test_an_unknown_tensor_type_is_refused(tmp_path):
    metadata, tensors = llama(usual=99)
    with pytest.raises(ConfigError, match="type 99"):
        read_model(str(write(tmp_path / "m.gguf", metadata, tensors)))


V3 = {
    "block_count": 61,
    "context_length": 163840,
    "embedding_length": 7168,
    "feed_forward_length": 18432,
    "attention.head_count": 128,
    "attention.head_count_kv": 1,
    "attention.q_lora_rank": 1536,
    "attention.kv_lora_rank": 512,
    "rope.dimension_count": 64,
    "leading_dense_block_count": 3,
    "expert_count": 256,
    "expert_used_count": 8,
    "expert_shared_count": 1,
    "expert_feed_forward_length": 2048,
    "expert_group_count": 8,
    "expert_group_used_count": 4,
}
"""DeepSeek-V3 in the keys of llama.cpp's converter."""


@pytest.mark.parametrize(
    "widths",
    [
        {"attention.key_length": 192, "attention.value_length": 128},
        {
            "attention.key_length": 576,
            "attention.value_length": 512,
            "attention.key_length_mla": 192,
            "attention.value_length_mla": 128,
        },
    ],
)
def test_latent_attention_is_read_from_files_of_either_age(tmp_path, widths):
    metadata = {"general.architecture": "deepseek2"} | {
        f"deepseek2.{name}": value for name, value in (V3 | widths).items()
    }
    tensors = {
        "token_embd.weight": ((7168, 129280), Q4_K),
        "output.weight": ((7168, 129280), Q4_K),
        "blk.3.exp_probs_b.bias": ((256,), F32),
    }
    found = gguf.header(write(tmp_path / "m.gguf", metadata, tensors))
    model, shipped = hf.from_dict(gguf.configuration(found)), hf.of_catalogue("deepseek-v3")
    assert model.family == "deepseek_v3"
    assert model.total == shipped.total
    assert model.active == shipped.active
    del tensors["blk.3.exp_probs_b.bias"]
    found = gguf.header(write(tmp_path / "m.gguf", metadata, tensors))
    assert gguf.configuration(found)["model_type"] == "deepseek_v2"


def experts_of(family, **more):
    """Return the configuration of a file of a family with experts."""
    metadata, tensors = llama(layers=1)
    for name in ("ffn_gate", "ffn_up", "ffn_down"):
        shape, kind = tensors.pop(f"blk.0.{name}.weight")
        tensors[f"blk.0.{name}_exps.weight"] = ((*shape, 8), kind)
    metadata = {name.replace("llama.", f"{family}."): value for name, value in metadata.items()}
    own = {"general.architecture": family, f"{family}.expert_count": 8, f"{family}.expert_used_count": 2}
    return metadata | own | {f"{family}.{name}": value for name, value in more.items()}, tensors


@pytest.mark.parametrize("family", ["qwen3moe", "qwen2moe"])
def test_every_layer_of_qwen_s_mixtures_has_experts(tmp_path, family):
    metadata, tensors = experts_of(family, expert_feed_forward_length=512)
    config = gguf.configuration(gguf.header(write(tmp_path / "m.gguf", metadata, tensors)))
    assert (config["norm_topk_prob"], config["decoder_sparse_step"]) == (True, 1)


def test_one_number_of_all_layers_may_be_a_list(tmp_path):
    metadata, tensors = llama()
    plain = read_model(str(write(tmp_path / "m.gguf", metadata, tensors)))
    counts = {"llama.attention.head_count_kv": [metadata["llama.attention.head_count_kv"]] * 2}
    assert read_model(str(write(tmp_path / "n.gguf", metadata | counts, tensors))).total == plain.total
    with pytest.raises(ConfigError, match="head_count_kv differs from layer to layer"):
        read_model(str(write(tmp_path / "o.gguf", metadata | {"llama.attention.head_count_kv": [1, 2]}, tensors)))


def test_the_usual_format_is_that_of_most_weights_of_the_layers(tmp_path):
    """A file without a tensor of its own for a matrix gives it that format; the tables of a large vocabulary do not count."""
    metadata, tensors = llama()
    found = gguf.header(write(tmp_path / "m.gguf", metadata, tensors))
    model = read_model(str(write(tmp_path / "n.gguf", metadata, tensors)))
    wide = {**found.tensors, "token_embd.weight": ((10**6, 64), Q8_0)}
    wide = {name: one for name, one in wide.items() if "ffn_up" not in name}
    again = gguf.stored(model, replace(found, tensors=wide), tmp_path)
    assert set(formats(again, "up_proj")) == {"q4_k"}
