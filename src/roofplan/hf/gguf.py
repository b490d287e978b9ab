"""GGUF files: metadata and tensor table of the header -> configuration -> Model, with each matrix in the type that it is stored in.

The parameters of the family's shapes must equal those of the tensor table: a family that GGUF spells differently is refused, not guessed.

References
----------
.. [1] ggml-org/ggml, docs/gguf.md (version 3): header, metadata types, tensor table.
.. [2] ggml-org/llama.cpp, gguf-py/gguf/constants.py: names of keys, tensors and types.
"""

from __future__ import annotations

import hashlib
import mmap
import re
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

from roofplan.errors import ConfigError, UnknownFamily, nearest
from roofplan.hf.quantization import map_linears
from roofplan.records.model import Layer, Linear, Model, Quantization

MAGIC = b"GGUF"

TYPES = {
    0: "fp32",
    1: "fp16",
    2: "q4_0",
    3: "q4_1",
    6: "q5_0",
    7: "q5_1",
    8: "q8_0",
    10: "q2_k-blocks",
    11: "q3_k-blocks",
    12: "q4_k",
    13: "q5_k",
    14: "q6_k",
    16: "iq2_xxs",
    17: "iq2_xs",
    18: "iq3_xxs",
    19: "iq1_s",
    20: "iq4_nl",
    21: "iq3_s",
    22: "iq2_s",
    23: "iq4_xs",
    29: "iq1_m",
    30: "bf16",
    34: "tq1_0",
    35: "tq2_0",
    39: "mxfp4",
}
"""Number of a tensor type in the file [2]_ -> format of the catalogue."""

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Number of a metadata type -> code of `struct`; 8 is a text, 9 an array [1]_."""

TEXT, ARRAY = 8, 9
LONGEST_KEPT = 4096
"""Longest array whose elements are kept; that of the tokeniser is skipped, only its length stays [1]."""

SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
"""Name of one file of a model that is split into several."""


@dataclass(frozen=True, slots=True)
class Header:
    """What the beginning of a file, or of all files of a split model, says.

    Parameters
    ----------
    metadata : keys and values; a long array stands for its length.
    tensors : name -> shape, fastest axis first, and number of the type.
    """

    metadata: dict[str, object]
    tensors: dict[str, tuple[tuple[int, ...], int]] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        """Architecture, which prefixes its keys."""
        return str(self.metadata.get("general.architecture", ""))

    def whole(self, key: str) -> int | None:
        """Return a whole number of the architecture's keys, None where it is absent; of a list, its one value.

        Raises
        ------
        ConfigError : layers differ in it.
        """
        value = self.metadata.get(f"{self.architecture}.{key}")
        if isinstance(value, list):
            values = set(value)
            if len(values) != 1:
                name = f"{self.architecture}.{key}"
                raise ConfigError(
                    f"MODEL: {name} differs from layer to layer, which is not described", argument="MODEL"
                )
            value = values.pop()
        return int(value) if isinstance(value, int | float) else None

    @property
    def parameters(self) -> int:
        """Numbers of all tensors but the table of rotary factors, which is computed [parameters]."""
        return sum(prod(shape) for name, (shape, _) in self.tensors.items() if not name.startswith("rope_"))


class _Cursor:
    """A place in a file that numbers and texts are read from."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data, self.at, self.path = data, 0, path

    def number(self, code: str) -> int | float | bool:
        packed = struct.Struct(f"<{code}")
        if self.at + packed.size > len(self.data):
            raise ConfigError(f"MODEL: {self.path} ends inside its header", argument="MODEL", value=str(self.path))
        (value,) = packed.unpack_from(self.data, self.at)
        self.at += packed.size
        found: int | float | bool = value
        return found

    def count(self, code: str = "Q") -> int:
        return int(self.number(code))

    def text(self) -> str:
        length = self.count()
        if self.at + length > len(self.data):
            raise ConfigError(f"MODEL: {self.path} ends inside its header", argument="MODEL", value=str(self.path))
        self.at += length
        return self.data[self.at - length : self.at].decode("utf-8", "replace")

    def value(self, kind: int) -> object:
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == TEXT:
            return self.text()
        if kind != ARRAY:
            raise ConfigError(
                f"MODEL: {self.path}: unknown type {kind} in its header", argument="MODEL", value=str(self.path)
            )
        inner, count = self.count("I"), self.count()
        if count <= LONGEST_KEPT:
            return [self.value(inner) for _ in range(count)]
        if inner in SCALARS:
            self.at += count * struct.calcsize(f"<{SCALARS[inner]}")
        else:
            for _ in range(count):
                self.value(inner)
        return count


def is_gguf(path: Path) -> bool:
    """Return whether a path is a GGUF file, by its first four bytes."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def header(path: Path) -> Header:
    """Return the header of a GGUF file, with the tensors of all files where the model is split.

    Raises
    ------
    ConfigError : no such file, another format, a header that ends early, or a missing part.
    """
    match = SHARD.search(path.name)
    parts = [path]
    if match is not None:
        stem, of = path.name[: match.start()], match[2]
        parts = [path.with_name(f"{stem}-{k:05}-of-{of}.gguf") for k in range(1, int(of) + 1)]
    missing = next((part for part in parts if not part.is_file()), None)
    if missing is not None:
        raise ConfigError(f"MODEL: {missing} is missing, a part of {path.name}", argument="MODEL", value=str(missing))
    found = [_header(part) for part in parts]
    tensors = {name: tensor for one in found for name, tensor in one.tensors.items()}
    return Header(found[0].metadata, tensors)


def _header(path: Path) -> Header:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            cursor = _Cursor(data, path)
            if data[:4] != MAGIC:
                raise ConfigError(f"MODEL: {path} is no GGUF file", argument="MODEL", value=str(path))
            cursor.at = len(MAGIC)
            version = cursor.count("I")
            if version not in {2, 3}:
                message = f"MODEL: {path} is GGUF version {version}; versions 2 and 3 are read"
                raise ConfigError(message, argument="MODEL", value=str(path))
            tensors, keys = cursor.count(), cursor.count()
            metadata = {cursor.text(): cursor.value(cursor.count("I")) for _ in range(keys)}
            table = {}
            for _ in range(tensors):
                name = cursor.text()
                shape = tuple(cursor.count() for _ in range(cursor.count("I")))
                table[name] = (shape, cursor.count("I"))
                cursor.count()  # offset of its data
    except (OSError, ValueError) as error:
        raise ConfigError(f"MODEL: {path}: {error}", argument="MODEL", value=str(path)) from None
    return Header(metadata, table)


def model_of(path: Path, from_config: Callable[[Mapping[str, object], str, str], Model]) -> Model:
    """Return the model of a GGUF file.

    Parameters
    ----------
    path : the file, or the first of a split model.
    from_config : configuration, id and digest -> model.

    Returns
    -------
    The model; its matrices have the formats of their tensors.

    Raises
    ------
    ConfigError : no readable header, or shapes that differ from the family's.
    UnknownFamily : an architecture that is not described.
    """
    found = header(path)
    config = configuration(found)
    digest = hashlib.sha256(repr((sorted(config.items()), sorted(found.tensors.items()))).encode()).hexdigest()
    model = from_config(config, str(path), digest)
    if model.total != found.parameters:
        raise ConfigError(
            f"MODEL: {path} holds {found.parameters:,} parameters, the shapes of {model.family} {model.total:,}: its config.json is needed",
            argument="MODEL",
            value=str(path),
        )
    return stored(model, found, path)


ARCHITECTURES: dict[str, str] = {
    **{
        name: name
        for name in ("qwen2", "qwen3", "gemma", "gemma2", "phi3", "stablelm", "granite", "olmo2", "starcoder2")
    },
    **{name: name for name in ("smollm3", "ernie4_5", "seed_oss", "glm4", "olmoe", "arcee", "nemotron", "exaone4")},
    "llama": "llama",
    "gemma3": "gemma3_text",
    "qwen2moe": "qwen2_moe",
    "qwen3moe": "qwen3_moe",
    "command-r": "cohere",
    "deepseek2": "deepseek_v3",
    "gpt-oss": "gpt_oss",
}
"""Architecture of the file -> family of `roofplan.hf`; llama with experts is mixtral."""

KEYS = {
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "sliding_window": "attention.sliding_window",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "n_shared_experts": "expert_shared_count",
    "first_k_dense_replace": "leading_dense_block_count",
    "q_lora_rank": "attention.q_lora_rank",
    "kv_lora_rank": "attention.kv_lora_rank",
    "n_group": "expert_group_count",
    "topk_group": "expert_group_used_count",
}
"""Field of a configuration -> key of the architecture in the file."""


def configuration(found: Header) -> dict[str, object]:
    """Return the fields of a ``config.json`` that a header states.

    Parameters
    ----------
    found : the header.

    Returns
    -------
    The configuration.

    Raises
    ------
    UnknownFamily : an architecture that is not described.
    ConfigError : the table has no token embedding.
    """
    architecture = found.architecture
    if architecture not in ARCHITECTURES:
        near = nearest(architecture, ARCHITECTURES)
        raise UnknownFamily(
            f"MODEL: GGUF architecture {architecture!r} is not described; described: {', '.join(sorted(ARCHITECTURES))}",
            argument="general.architecture",
            value=architecture,
            nearest=near,
        )
    if "token_embd.weight" not in found.tensors:
        raise ConfigError("MODEL: the file has no token_embd.weight: it is no language model", argument="MODEL")
    config: dict[str, object] = {name: value for name, key in KEYS.items() if (value := found.whole(key)) is not None}
    family = ARCHITECTURES[architecture]
    config["vocab_size"] = found.tensors["token_embd.weight"][0][-1]
    config["tie_word_embeddings"] = "output.weight" not in found.tensors
    biased = "blk.0.attn_q.bias" in found.tensors
    config |= {"attention_bias": biased, "use_bias": biased, "mlp_bias": "blk.0.ffn_down.bias" in found.tensors}
    config["torch_dtype"] = "float16"
    experts = config.get("num_experts")
    if family == "llama" and experts:
        family = "mixtral"
        config["num_local_experts"] = experts
    if family == "mixtral" and "moe_intermediate_size" in config:
        config["intermediate_size"] = config["moe_intermediate_size"]
    if family == "gpt_oss":
        config["intermediate_size"] = config.get("moe_intermediate_size", config.get("intermediate_size"))
        config["num_local_experts"] = experts
    if family == "deepseek_v3":
        family, config = _deepseek(found, config)
    if family.startswith("qwen") and "moe" in family:
        config.setdefault("norm_topk_prob", True)
        config.setdefault("decoder_sparse_step", 1)
    return {"model_type": family, **config}


def _deepseek(found: Header, config: dict[str, object]) -> tuple[str, dict[str, object]]:
    """Return the family and the fields of latent attention: the key holds the rotary part, the value its own width."""
    rope = found.whole("rope.dimension_count") or 0
    key = found.whole("attention.key_length_mla") or found.whole("attention.key_length") or 0
    value = found.whole("attention.value_length_mla") or found.whole("attention.value_length") or 0
    more = {"qk_rope_head_dim": rope, "qk_nope_head_dim": key - rope, "v_head_dim": value}
    corrected = any(name.endswith("exp_probs_b.bias") for name in found.tensors)
    family = "deepseek_v3" if corrected else "deepseek_v2"
    same = {"n_routed_experts": config.pop("num_experts", None), "num_key_value_heads": config["num_attention_heads"]}
    return family, {**config, **more, **same}


NAMES = {
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "q_a_proj": "attn_q_a",
    "q_b_proj": "attn_q_b",
    "kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "kv_b_proj": "attn_kv_b",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
    "gate": "ffn_gate_inp",
    "router": "ffn_gate_inp",
}
"""Last part of a matrix's name -> its tensor's name inside a layer; experts add ``_exps``, shared experts ``_shexp``."""

FUSED = {
    "attn_q": "attn_qkv",
    "attn_k": "attn_qkv",
    "attn_v": "attn_qkv",
    "ffn_gate": "ffn_up",
    "attn_kv_b": "attn_k_b",
}
"""Tensors that some architectures store as one, by the one that they are part of."""


def stored(model: Model, found: Header, path: Path) -> Model:
    """Return a model with every matrix in the format of its tensor.

    Raises
    ------
    ConfigError : a tensor type that is not described.
    """
    unknown = sorted({kind for _, kind in found.tensors.values()} - TYPES.keys())
    if unknown:
        message = (
            f"MODEL: {path}: tensor type {unknown[0]} is not described; described: {', '.join(sorted(TYPES.values()))}"
        )
        raise ConfigError(message, argument="MODEL", value=str(unknown[0]))
    sizes: Counter[str] = Counter()
    for name, (shape, kind) in found.tensors.items():
        if name.startswith("blk.") and len(shape) > 1:
            sizes[TYPES[kind]] += prod(shape)
    usual = sizes.most_common(1)[0][0]

    def change(linear: Linear, layer: int) -> Linear:
        return replace(linear, format=_format(linear.name, layer, found, usual))

    def layers(items: tuple[Layer, ...]) -> tuple[Layer, ...]:
        return tuple(map_linears(layer, lambda linear, k=k: change(linear, k)) for k, layer in enumerate(items))  # type: ignore[misc]

    decoder = replace(model.decoder, layers=layers(model.decoder.layers))
    head = TYPES[found.tensors.get("output.weight", found.tensors["token_embd.weight"])[1]]
    stacks = tuple(decoder if stack is model.decoder else stack for stack in model.stacks)
    return replace(model, stacks=stacks, quantization=Quantization(format=usual, beside=head, gguf=True))


def _format(name: str, layer: int, found: Header, usual: str) -> str:
    """Return the format of a matrix, that of most weights where no tensor bears its name."""
    last = NAMES.get(name.rpartition(".")[2], "")
    more = "_exps" if ".experts." in name else "_shexp" if "shared_expert" in name else ""
    for one in (last + more, FUSED.get(last, "")):
        tensor = found.tensors.get(f"blk.{layer}.{one}.weight")
        if tensor is not None:
            return TYPES[tensor[1]]
    return usual
