"""The model of a measured run: a catalogue entry by any spelling of its name, a file, or the row's own dimensions."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from roofplan import catalogue, hf
from roofplan.catalogue.machines import other_form
from roofplan.catalogue.spellings import bare, named, plain
from roofplan.errors import RoofplanError, nearest
from roofplan.evidence.rows import EXPERTS_TOGETHER, Assumed, Row, Skipped, number
from roofplan.records.model import Attention, Layer, Mixture, Model
from roofplan.timing.figures import flat

# Names -------------------------------------------------------------------------------------------

Config = dict[str, Any]
"""What a config.json holds."""


COUNTED = re.compile(
    r"^(\d{1,4})\s*x\s*(.+)$|^(.+?)(?:\s+x\s*|(?<![rg]t)(?<!ma)(?<!\bgf)x\s*)(\d{1,4})$", re.IGNORECASE
)
"""A device's name with a count, such as ``8xH200`` or ``H100 x 8``; the x of GTX, RTX and Max counts nothing."""

TPU_SLICE = re.compile(r"^(?:google\s+)?(?:cloud\s+)?tpu[\s-]*(v\d[ep]?)-(\d+)$", re.IGNORECASE)
"""A slice of TPUs by its accelerator type, such as ``TPU v5e-8``."""

CAPACITY = re.compile(r"[\s_-]*\b(\d+)\s*gi?b?\b", re.IGNORECASE)
"""Memory in a device's name [GiB]."""


FORM = "form"
"""Whether devices are modules or cards, an input that rows may omit and that has another plausible value."""

FORMED = re.compile(r"sxm|pcie|\bnvl|nvswitch|[hd]gx", re.IGNORECASE)
"""Words that tell the form of devices."""


def counted(row: Row) -> tuple[str, int | None]:
    """Return the device that a row names, and how many of it where the name says so, or is a server's.

    >>> counted({"accel_norm": "8x H200"}), counted({"accel_norm": "RTX 4090 x2"}), counted({"accel_norm": "DGX H100"})
    (('H200', 8), ('RTX 4090', 2), ('DGX H100', 8))
    >>> counted({"accel_norm": "GTX 1660"}), counted({"accel_norm": "L40Sx4"}), counted({"accel_norm": "Some GPU Max 1234"})
    (('GTX 1660', None), ('L40S', 4), ('Some GPU Max 1234', None))
    >>> counted({"accel_norm": "H100x 8"}), counted({"accel_norm": "gfx942"})
    (('H100', 8), ('gfx942', None))
    """
    name = row["accel_norm"].removeprefix("other:").strip()
    if slice_ := TPU_SLICE.match(name):
        version, size = slice_[1].lower(), int(slice_[2])
        return f"tpu-{version}", size if version.endswith("e") else max(
            1, size // 2
        )  # older slices count cores, two a chip
    found = COUNTED.match(name)
    if found and catalogue.spelt("accelerators", name) is None:
        return (found[2], int(found[1])) if found[1] else (found[3], int(found[4]))
    boxed = None if catalogue.spelt("accelerators", name) else catalogue.spelt("servers", name)
    return name, None if boxed is None else catalogue.server(boxed).count


def device_of(row: Row, assumed: Assumed | None = None) -> str:
    """Return the id of a row's device, in any spelling, or the path of its file; notes a memory that is not the device's, and a form that is not stated.

    Raises
    ------
    Skipped : the catalogue has none of that name.
    """
    name = counted(row)[0]
    if name.endswith(".toml"):
        return name
    found = catalogue.spelt("accelerators", name)
    if found is None and (boxed := catalogue.spelt("servers", name)) is not None:
        found = catalogue.server(boxed).accelerator
    if found is None and (stated := CAPACITY.search(name)) is not None:
        found = catalogue.spelt("accelerators", CAPACITY.sub("", name))
        if found is not None and not _holds(found, float(stated[1])):
            variants = [one for one in catalogue.ids("accelerators") if re.fullmatch(rf"{re.escape(found)}\w", one)]
            fitting = [one for one in variants if _holds(one, float(stated[1]))]
            found = min(fitting, key=partial(_apart, found), default=found)
            if assumed is not None:
                held = catalogue.accelerator(found).room / 2.0**30
                assumed.add(f"device: {found} of {held:g} GiB, {'by its memory' if fitting else f'not of {stated[1]}'}")
    if found is not None:
        other = None if FORMED.search(f"{name} {row.get('interconnect', '')}") else other_form(found)
        if other is not None and assumed is not None:
            assumed.add(f"device: {found}, not {other}, as its form is not stated", FORM)
        return found
    near = nearest(name.lower()[: catalogue.LONGEST_NAME], catalogue.aliases("accelerators"))
    hint = f"; nearest: {', '.join(near)}" if near else ""
    raise Skipped(f"accel_norm: device {name or 'not stated'} is not in the catalogue{hint}")


def _holds(device: str, size: float) -> bool:
    """Return whether a device has about so much memory [GiB]."""
    held = catalogue.accelerator(device).room / 2.0**30
    return abs(size - held) <= held / 8.0


def _apart(device: str, other: str) -> float:
    """Return how far apart the peaks of two devices are [FLOP/s]."""
    here, there = (catalogue.accelerator(one).peak.get("fp16") for one in (device, other))
    return abs(here.value - there.value) if here and there else math.inf


def is_path(name: str) -> bool:
    """Return whether a name is the path of a file or folder."""
    return name.endswith((".json", ".gguf", ".toml")) or name.startswith(("./", "../", "/", "~"))


def from_file(name: str) -> Model:
    """Return the model of a config.json or a GGUF file, or of a folder that holds a config.json.

    Raises
    ------
    Skipped : the file cannot be read.
    """
    try:
        return hf.from_path(Path(name).expanduser())
    except (RoofplanError, RuntimeError, ValueError) as error:  # no such home folder, or an invalid file name
        raise Skipped(str(error)) from None


# Sizes -------------------------------------------------------------------------------------------

SIZE = re.compile(r"(?<![\d.x])(?<![^a-z]a)(\d+(?:\.\d+)?)\s?([mbt])(\d?)(?![a-z\d])")
SCALE = {"m": 1e6, "b": 1e9, "t": 1e12}
NEAR = 0.10
"""Relative difference between parameter counts from dimensions and from the name above which one of them is wrong [1]."""

MIXED = re.compile(r"\d+x\d+(\.\d+)?b|(?<![a-z])a\d+(\.\d+)?b|\db\s?a\d|moe|mixtral", re.IGNORECASE)
HYBRID = re.compile(r"mamba|jamba|zamba|hybrid|nemotron[ _-]?h\b|rwkv|hyena|recurrent", re.IGNORECASE)


def stated_size(name: str) -> tuple[float, float] | None:
    """Return the parameters that a name states and half a unit of the last digit, or None; of several sizes, the largest.

    >>> stated_size("Llama 3.1 70B"), stated_size("BLOOM-1b7"), stated_size("Mixtral 8x7B")
    ((70000000000.0, 500000000.0), (1700000000.0, 50000000.0), None)
    """
    if re.search(r"\d+x\d", name):
        return None
    found = []
    for digits, letter, tenth in SIZE.findall(plain(name).lower().replace(",", ".")):
        text = f"{digits}.{tenth}" if tenth else digits
        last = 0.5 * 10.0 ** -len(text.partition(".")[2])
        found.append((float(text) * SCALE[letter], last * SCALE[letter]))
    return max(found, default=None)


def off_size(name: str, total: float) -> float:
    """Return the signed relative difference of a total from the stated size, beyond rounding; 0 where no size is stated [1]."""
    stated = stated_size(name)
    if stated is None:
        return 0.0
    size, half = stated
    return (min(total - size + half, 0.0) + max(total - size - half, 0.0)) / size


# Dimensions --------------------------------------------------------------------------------------

KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "ffn_hidden": ("intermediate_size", "n_inner", "ffn_dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "n_head_kv", "num_kv_heads"),
    "vocab": ("vocab_size",),
    "dense_layers": ("first_k_dense_replace",),
}
"""Columns of dimensions -> their keys in configurations."""

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
"""Keys of the number of experts; a configuration with one of them is a mixture of experts."""

GPT = re.compile(r"^(gpt|opt|megatron)", re.IGNORECASE)
GPT_VOCABULARY = 51200
"""Vocabulary of Megatron's GPT models, 50,257 padded, where a source gives none [1]."""

FAMILIES = (("mpt", "mpt"), ("phi", "phi"), ("stablelm alpha", "gpt_neox"), ("nemotron", "nemotron"))
"""Prefixes of dense models' names and their ``model_type``; other names are GPT if they match `GPT`, else like Llama."""


def model_of(row: Row, assumed: Assumed) -> Model:
    """Return the model of a training row.

    Where the catalogue knows the name, it fills in what the row leaves blank. Dimensions of the row take precedence; those that
    differ are noted in `assumed`, as is a size in the name that they do not match.

    Raises
    ------
    Skipped : the row has too few dimensions, or the model may not be dense.
    """
    name = row["model_name"]
    if is_path(name):
        if _dimensions(row) or experts_of(row):
            assumed.add(f"dimensions: those of {Path(name).name}, not the row's")
        return from_file(name)
    known = named(_without_layer_suffix(name, row))
    if known is None and (known := _mixture_by_dimensions(row)) is not None:
        assumed.add(f"model: {known}, whose dimensions and experts {name} has")
    model = _of_dimensions(row, assumed) if known is None else _changed(known, row, assumed)
    off = 0.0 if _is_cut(name, row) else off_size(name, float(model.total))
    if known is None and not -UNKNOWN <= off <= TOO_LARGE:
        what = "it is not known to be dense" if off < 0.0 else "more than twice what its name says"
        raise Skipped(f"model {name}: its dimensions make {model.total / 1e9:.3g}B; {what}")
    if abs(off) > NEAR:
        assumed.add(f"dimensions: they make {model.total / 1e9:.3g}B, not what the name {name} says")
        assumed.doubts.append(("dimensions", flat(*sorted((1.0, 1.0 + off)))))
    return model


def _of_dimensions(row: Row, assumed: Assumed) -> Model:
    """Return a model from dimensions alone, with two or three feed-forward matrices, whichever is nearer to the size in its name."""
    name = row["model_name"]
    if any(number(row, key) is None for key in ("layers", "hidden", "heads")):
        raise Skipped("dims-missing: the model is not known, and layers, hidden or heads are blank")
    if not number(row, "vocab"):
        assumed.add(f"vocabulary {GPT_VOCABULARY:,}")
    experts = experts_of(row)
    if experts is None and (MIXED.search(name) or HYBRID.search(name)):
        kind = "mixture" if MIXED.search(name) else "hybrid"
        raise Skipped(f"model {name}: a {kind} whose layers the row does not describe")
    built = partial(_built, name, _dimensions(row), experts, int(number(row, "seq_len") or 2048))
    gated, plainer = built(gated=True), built(gated=False)
    off, other = (abs(off_size(name, float(one.total))) for one in (gated, plainer))
    if off <= NEAR or other >= off or GATED.search(name) or _is_cut(name, row):
        return gated
    assumed.add("feed-forward: two matrices, which is nearer to the stated size")
    return plainer


GATED = re.compile(r"llama|qwen|mistral|gemma|deepseek|internlm|baichuan|smollm|olmo|\byi\b", re.IGNORECASE)
"""Names of families all of whose models have a gate in their feed-forwards."""

UNKNOWN = 0.4
"""Share of the stated size that may be missing before a dense model of these dimensions is taken for another model [1]."""


TOO_LARGE = 1.0
"""Share of the stated size by which dimensions may exceed it before they are misread, as where a mixture's are those of its dense layers [1]."""


def experts_of(row: Row) -> tuple[int, int, int] | None:
    """Return routed experts per layer, experts per token and shared experts, None for a dense model.

    They are read from separate columns, or from one such as ``128/8/0``.

    Raises
    ------
    Skipped : the experts per token are not between 1 and the routed experts, or the columns contradict each other.
    """
    routed, chosen, shared = (
        int(number(row, name) or 0) for name in ("experts", "experts_per_token", "shared_experts")
    )
    together = EXPERTS_TOGETHER.match(row.get("moe", "").strip())
    if together:
        one = (int(together[1]), int(together[2]), int(together[3] or 0))
        if routed and (routed, chosen) != one[:2]:
            raise Skipped(f"moe: {together[0]} is not what experts and experts_per_token say")
        routed, chosen, shared = one
    if not routed:
        return None
    if not 1 <= chosen <= routed:
        raise Skipped(f"experts_per_token: {chosen} of {routed} experts")
    return routed, chosen, shared


def _without_layer_suffix(name: str, row: Row) -> str:
    """Return a name without a suffix that repeats the row's layer count, such as ``_l4`` for a model cut to four layers."""
    return re.sub(rf"[\s_-]l{row.get('layers', '') or 0}\b", "", plain(name).lower()).strip()


def _is_cut(name: str, row: Row) -> bool:
    """Return whether, by its name, a run uses only some layers of its model."""
    return "layer" in name.lower() or _without_layer_suffix(name, row) != plain(name).lower()


def _dimensions(row: Row) -> tuple[tuple[str, int], ...]:
    """Return the dimensions stated by a row."""
    return tuple((key, int(value)) for key in KEYS if (value := number(row, key)) is not None)


def _mixture_by_dimensions(row: Row) -> str | None:
    """Return the id of a mixture-of-experts model with all of a row's dimensions and experts, whatever its name."""
    experts, stated = experts_of(row), dict(_dimensions(row))
    if experts is None or not {"layers", "hidden", "heads", "vocab"} <= set(stated):
        return None
    for identity in catalogue.ids("models"):
        config = _config(identity)
        same = all(_value(config, key) in {None, stated[key]} for key in ("layers", "hidden", "heads", "vocab"))
        if not same or _value(config, "hidden") is None or bare(identity)[0] != identity:
            continue
        mixtures = _mixtures(identity)
        widths = {_value(config, "ffn_hidden"), *(one.expert[0][0].outputs for one in mixtures)}
        alike = all((one.experts, one.chosen, bool(one.shared)) == (*experts[:2], bool(experts[2])) for one in mixtures)
        if mixtures and alike and stated.get("ffn_hidden", next(iter(widths))) in widths:
            return identity
    return None


def _mixtures(identity: str) -> list[Mixture]:
    """Return the mixture-of-experts blocks of a catalogue model, one per kind of layer."""
    feeds = (feed for layer, _ in hf.of_catalogue(identity).decoder.kinds() for feed in layer.feed_forwards)
    return [feed for feed in feeds if isinstance(feed, Mixture)]


def _value(config: Config, column: str) -> Any:
    return next((config[key] for key in KEYS[column] if config.get(key) is not None), None)


@lru_cache(maxsize=1024)
def _full_config(identity: str) -> Config:
    return dict(json.loads(catalogue.model_table(identity)["config"]))


def _config(identity: str) -> Config:
    """Return the decoder's part of a catalogue model's configuration."""
    whole = _full_config(identity)
    return dict(whole.get("text_config", whole))


def _changed(identity: str, row: Row, assumed: Assumed) -> Model:
    """Return a catalogue model with the dimensions that a row states; those that differ are noted in `assumed`.

    Raises
    ------
    Skipped : the model lists unlike layers and the row has another number of them, or its experts differ.
    """
    config, experts = _config(identity), experts_of(row)
    routed = next((config[key] for key in EXPERTS if key in config), None)
    if experts is not None and routed is not None and routed != experts[0]:
        raise Skipped(f"moe: {identity} has {routed} experts, not {experts[0]}")
    if experts is not None and routed is None and not _mixtures(identity):
        raise Skipped(f"moe: {identity} is dense")
    if experts is not None and any(one.chosen != experts[1] for one in _mixtures(identity)):
        raise Skipped(f"moe: a token of {identity} does not go to {experts[1]} experts")
    differ = []
    for key, value in _dimensions(row):
        known = _value(config, key)
        usual = {"kv_heads": _value(config, "heads"), "ffn_hidden": 4 * (_value(config, "hidden") or 0)}
        # the inner width of a mixture may be that of an expert or of a dense layer
        if value == (usual.get(key, value) if known is None else known) or (key == "ffn_hidden" and routed is not None):
            continue
        if key == "layers" and _listed(config):
            raise Skipped(f"model {identity}: {value} layers, where it lists {known} that differ")
        differ.append((key, value))
        if key not in CUT or not _is_cut(row["model_name"], row):
            assumed.add(f"{key}: {value}, where {identity} has {usual[key] if known is None else known}")
    return _with_dimensions(identity, tuple(differ))


CUT = {"layers", "dense_layers"}
"""Columns in which a run with only some layers differs from its model."""


def _listed(config: Config) -> bool:
    """Return whether a configuration lists its layers one by one, so that their number alone does not describe them."""
    count = _value(config, "layers")
    return "hybrid_override_pattern" in config or any(
        isinstance(each, list) and len(each) == count for each in config.values()
    )


@lru_cache(maxsize=1024)
def _with_dimensions(identity: str, differ: tuple[tuple[str, int], ...]) -> Model:
    """Return a catalogue model with other dimensions, unquantised and without multi-token prediction layers."""
    whole, config = _full_config(identity), _config(identity)
    for column, value in differ:
        own = next((key for key in KEYS[column] if config.get(key) is not None), None)
        config[own or (KEYS[column][1] if "n_embd" in config else KEYS[column][0])] = value
    config["num_nextn_predict_layers"] = 0
    config.pop("quantization_config", None)
    made = {**whole, "text_config": config} if "text_config" in whole else config
    made.pop("quantization_config", None)
    return hf.from_dict(made).renamed(identity)


@lru_cache(maxsize=1024)
def _built(
    name: str, stated: tuple[tuple[str, int], ...], experts: tuple[int, int, int] | None, sequence: int, *, gated: bool
) -> Model:
    """Return a model from dimensions alone, of the family of its name; for other names, with or without a gate."""
    known = dict(stated)
    layers, hidden, heads = (known[key] for key in ("layers", "hidden", "heads"))
    inner, vocabulary = known.get("ffn_hidden") or 4 * hidden, known.get("vocab") or GPT_VOCABULARY
    lowered = name.lower()
    family = next((kind for begins, kind in FAMILIES if lowered.startswith(begins)), "")
    plain = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "vocab_size": vocabulary,
        "max_position_embeddings": sequence,
    }
    if experts is not None:
        routed, chosen, shared = experts
        config: Config = plain | {
            "model_type": "glm4_moe",
            "num_key_value_heads": known.get("kv_heads") or heads,
            "head_dim": hidden // heads,
            "n_routed_experts": routed,
            "num_experts_per_tok": chosen,
            "n_shared_experts": shared,
            "moe_intermediate_size": inner,
            "first_k_dense_replace": known.get("dense_layers") or 0,
        }
    elif family == "mpt":
        config = {
            "model_type": "mpt",
            "d_model": hidden,
            "n_layers": layers,
            "n_heads": heads,
            "expansion_ratio": inner // hidden,
            "vocab_size": vocabulary,
            "max_seq_len": sequence,
            "no_bias": True,
        }
    elif family in {"phi", "gpt_neox"}:
        config = plain | {"model_type": family, "tie_word_embeddings": False}
    elif GPT.match(lowered):
        config = {
            "model_type": "gpt2",
            "n_embd": hidden,
            "n_layer": layers,
            "n_head": heads,
            "n_inner": inner,
            "n_positions": sequence,
            "vocab_size": vocabulary,
        }
    else:
        kind = family or ("llama" if gated else "arcee")
        config = plain | {"model_type": kind, "num_key_value_heads": known.get("kv_heads") or heads}
    return hf.from_dict(config).renamed(lowered)


@lru_cache(maxsize=1024)
def unwindowed(model: Model) -> Model:
    """Return a model whose attention layers all see every token, as an engine runs it without a window."""
    stacks = tuple(replace(stack, layers=tuple(map(_seeing_all, stack.layers))) for stack in model.stacks)
    return replace(model, stacks=stacks)


def _seeing_all(layer: Layer) -> Layer:
    mixers = (
        replace(mixer, window=None) if isinstance(mixer, Attention) and mixer.compression == 1 else mixer
        for mixer in layer.mixers
    )
    return replace(layer, mixers=tuple(mixers))
