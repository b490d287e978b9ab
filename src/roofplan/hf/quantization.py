"""Weight formats of a checkpoint, from its ``quantization_config``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from roofplan.catalogue import format_entry
from roofplan.errors import ConfigError
from roofplan.hf.fields import Fields, shortened
from roofplan.records.model import Dense, Group, Layer, Linear, Mixer, Mixture, Model, Quantization, Stack

_DTYPES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "half": "fp16",
    "bf16": "bf16",
    "fp16": "fp16",
    "fp32": "fp32",
}


def read_dtype(f: Fields, text: Fields) -> tuple[str, bool]:
    """Return the type of unquantised weights, and whether the configuration states it."""
    for fields in (f, text):
        for name in ("quantization_config", "compression_config"):
            if name in fields and not isinstance(fields.values[name], dict):
                raise ConfigError(
                    f"config.json: {name} must be an object", argument=name, value=shortened(fields.values[name])
                )
        for name in ("dtype", "torch_dtype"):
            if name in fields:
                spelled = str(fields.raw(name)).removeprefix("torch.")
                if spelled not in _DTYPES:
                    raise ConfigError(
                        f"config.json: {name} is {spelled!r}; accepted: bfloat16, float16, float32",
                        argument=name,
                        value=spelled,
                    )
                return _DTYPES[spelled], True
    return "bf16", False


def read_quantization(f: Fields, text: Fields) -> Quantization | None:
    """Return how the weights are stored, None where unquantised; an unknown method is refused by name."""
    for fields in (f, text):
        for name in ("quantization_config", "compression_config"):
            if name in fields and not isinstance(fields.values[name], dict):
                raise ConfigError(
                    f"config.json: {name} must be an object", argument=name, value=shortened(fields.values[name])
                )
        if isinstance(fields.values.get("quantization_config"), dict):
            q = fields.sub("quantization_config")
            return _with_experts(_parse(q), q, text)
        if isinstance(fields.values.get("compression_config"), dict):
            return _parse(fields.sub("compression_config"))
    return None


def _with_experts(plan: Quantization, q: Fields, text: Fields) -> Quantization:
    """Return a plan with the format of routed experts that the model itself states, as DeepSeek-V4 does.

    Where experts work in a latent space under their own name (Kimi K3), 4-bit formats are theirs alone: the matrices into
    and out of that space are in 16 bits, although no list names them.
    """
    if "routed_expert_hidden_size" in text and plan.format in {"mxfp4", "nvfp4"} and not plan.parts:
        return replace(plan, only_experts=True)
    if (text.text("expert_dtype") or q.text("expert_dtype")) != "fp4":
        return plan
    experts = "nvfp4" if q.text("moe_quant_algo") == "NVFP4" else "mxfp4"
    return replace(plan, format=experts, only_experts=True, beside=plan.format)


def _group_size(q: Fields, default: int) -> int:
    """Return the weights per scale, -1 for one scale per channel."""
    size = q.int("group_size", default=default, least=-1)
    if size == 0:
        raise ConfigError("config.json: group_size is 0; -1 means per channel", argument="group_size", value=0)
    return size


def _parse(q: Fields) -> Quantization:
    method = q.text("quant_method").replace("_", "-")
    if not method and "quant_algo" in q:
        method = "modelopt"
    readers: dict[str, Callable[[Fields], Quantization]] = {
        "fp8": _fp8,
        "fbgemm-fp8": _fp8,
        "awq": _awq,
        "gptq": _gptq,
        "mxfp4": _mxfp4,
        "mxfp8": _mxfp8,
        "bitsandbytes": _bitsandbytes,
        "compressed-tensors": _compressed,
        "modelopt": _modelopt,
        "nvfp4": _modelopt,
        "modelopt-fp4": _modelopt,
    }
    if method not in readers:
        raise ConfigError(
            f"config.json: quantization_config.quant_method is {q.text('quant_method')!r}; accepted: {', '.join(sorted(readers))}",
            argument="quant_method",
            value=q.text("quant_method"),
        )
    return readers[method](q)


def _skips(q: Fields) -> tuple[str, ...]:
    names: list[str] = []
    for key in ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "llm_int8_skip_modules"):
        names += [str(name) for name in q.list(key) or []]
    return tuple(dict.fromkeys(names))


def _grouped(base: str, group: int, usual: int) -> str:
    return base if group == usual else f"{base}-g{group}" if group > 0 else f"{base}-channel"


SCALED_BLOCK = 128
"""Side of the blocks of DeepSeek-V3, each with one scale [1]."""


def _fp8(q: Fields) -> Quantization:
    blocks = q.list("weight_block_size")
    if blocks and [int(b) for b in blocks] not in ([128, 128], [32, 32]):
        raise ConfigError(
            f"config.json: weight_block_size {blocks} is not described; accepted: [128, 128], [32, 32]",
            argument="weight_block_size",
            value=str(blocks),
        )
    name = (
        "fp8" if not blocks else "fp8-block" if int(blocks[0]) == SCALED_BLOCK else f"fp8-block-g{int(blocks[0]) ** 2}"
    )
    return Quantization(format=name, skipped=_skips(q), activation="fp8")


def _awq(q: Fields) -> Quantization:
    return _integer(q, "awq")


def _gptq(q: Fields) -> Quantization:
    return _integer(q, "gptq")


def _integer(q: Fields, name: str) -> Quantization:
    bits, group = q.int("bits"), _group_size(q, 128)
    if bits == 8:
        return Quantization(format=_grouped("int8-weight", group, 128), skipped=_skips(q))
    if bits != 4:
        raise ConfigError(
            f"config.json: {name} with {bits} bits is not described; accepted: 4, 8", argument="bits", value=bits
        )
    return Quantization(format=_grouped(name, group, 128), skipped=_skips(q))


def _mxfp4(q: Fields) -> Quantization:
    return Quantization(format="mxfp4", skipped=_skips(q), only_experts=True)


def _mxfp8(q: Fields) -> Quantization:
    return Quantization(format="mxfp8", skipped=_skips(q), activation="fp8")


def _bitsandbytes(q: Fields) -> Quantization:
    if q.flag("load_in_8bit", False) or q.flag("_load_in_8bit", False):
        return Quantization(format="bnb-int8", skipped=_skips(q))
    name = "bnb-nf4-double" if q.flag("bnb_4bit_use_double_quant", False) else "bnb-nf4"
    return Quantization(format=name, skipped=_skips(q))


def _compressed(q: Fields) -> Quantization:
    groups = q.sub("config_groups").values
    if not groups:
        raise ConfigError("config.json: quantization_config.config_groups is empty", argument="config_groups")
    first: dict[str, Any] = next(iter(groups.values()))
    scheme = Fields(first).sub("weights")
    bits, kind, group = (
        scheme.int("num_bits"),
        scheme.text("type", "int"),
        _group_size(scheme, -1),
    )
    inputs = first.get("input_activations")
    activation = None
    if inputs:
        activation = ("fp" if inputs.get("type") == "float" else "int") + str(inputs.get("num_bits", 8))
    if kind == "float" and bits == 8:
        name = "fp8-block" if scheme.text("strategy") == "block" else "fp8"
    elif kind == "float" and bits == 4:
        name = "mxfp4" if group == 32 else "nvfp4"
    elif bits == 8:
        name = "int8" if activation else _grouped("int8-weight", group, 128)
    else:
        name = _grouped("gptq", group, 128)
    cache = q.values.get("kv_cache_scheme")
    return Quantization(
        format=name, skipped=_skips(q), activation=activation, kv="fp8" if isinstance(cache, dict) else None
    )


_ALGORITHMS = {
    "NVFP4": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
    "FP8": "fp8",
    "FP8_PB_WO": "fp8-block",
    "MXFP8": "mxfp8",
    "W4A16_AWQ": "awq",
    "NVFP4_AWQ": "nvfp4",
    "MIXED_PRECISION": "nvfp4",
}
"""Formats of ModelOpt's algorithms."""


def _part_of(module: str) -> str:
    """Return the kind of part that a matrix or a module belongs to, given the path of its name."""
    names = module.split(".")
    if any("shared_expert" in name for name in names):
        return "shared"
    if "experts" in names:
        return "experts"
    if any("attn" in name or "attention" in name or name in {"mamba", "conv"} for name in names) or (
        "mixer" in names and names[-1] in _MIXER
    ):
        return "mixer"
    return "head" if names[-1] in {"lm_head", "output"} else "feed"


_MIXER = {"in_proj", "out_proj", "q_proj", "k_proj", "v_proj", "o_proj"}
"""Matrices of a layer's mixer in families that call every half of a layer so."""


def _parts_listed(inner: Fields) -> tuple[tuple[str, str], ...]:
    """Return the format of each kind of part from ModelOpt's list of modules: that of most of its matrices."""
    listed = inner.values.get("quantized_layers")
    if not isinstance(listed, dict):
        return ()
    counted: dict[str, Counter[str]] = {}
    for module, stated in listed.items():
        algorithm = str(stated.get("quant_algo", "")) if isinstance(stated, dict) else ""
        counted.setdefault(_part_of(module), Counter())[_format_of(algorithm.upper())] += 1
    return tuple((part, counts.most_common(1)[0][0]) for part, counts in sorted(counted.items()))


def _weights_alone(inner: Fields) -> bool:
    """Return whether most matrices in four bits are multiplied in 16, as ModelOpt's list of modules has it."""
    listed = [one.get("quant_algo") for one in inner.values["quantized_layers"].values() if isinstance(one, dict)]
    return listed.count("W4A16_NVFP4") > listed.count("NVFP4")


def _format_of(algorithm: str) -> str:
    if algorithm not in _ALGORITHMS:
        raise ConfigError(
            f"config.json: quant_algo {algorithm!r} is not described; accepted: {', '.join(sorted(_ALGORITHMS))}",
            argument="quant_algo",
            value=algorithm,
        )
    return _ALGORITHMS[algorithm]


def _modelopt(q: Fields) -> Quantization:
    inner = q.sub("quantization") if isinstance(q.values.get("quantization"), dict) else q
    algorithm = inner.text("quant_algo", "NVFP4").upper()
    name = _format_of(algorithm)
    parts = _parts_listed(inner)
    cache = str(inner.raw("kv_cache_quant_algo", default="") or "").upper()
    if not cache and isinstance(q.values.get("kv_cache_scheme"), dict):
        cache = "FP8"
    activation = {"awq": None, "nvfp4": "fp4"}.get(name, "fp8")
    if algorithm == "W4A16_NVFP4" or (parts and _weights_alone(inner)):
        activation = None
    return Quantization(
        format=name,
        skipped=tuple(dict.fromkeys((*_skips(q), *_skips(inner)))),
        parts=parts,
        activation=activation,
        kv="fp8" if cache == "FP8" else None,
    )


# Applying it -------------------------------------------------------------------------------------


def _is_pattern(name: str) -> bool:
    return name.startswith("re:") or "*" in name


def _pattern(name: str) -> re.Pattern[str]:
    if name.startswith("re:"):
        return re.compile(name[3:].replace(r"\\", "\\"))
    return re.compile(r"(^|\.)" + re.escape(name).replace(r"\*", ".*") + r"(\.|$)")


def _parts(path: str) -> set[str]:
    """Return every run of consecutive names of a dotted path: what a name without wildcards may match."""
    names = path.split(".")
    return {".".join(names[start:end]) for start in range(len(names)) for end in range(start + 1, len(names) + 1)}


def unquantised(model: Model) -> Model:
    """Return a model as it is trained: a quantised checkpoint's matrices in the format of its other weights.

    Parameters
    ----------
    model : the model.

    Returns
    -------
    The model, itself where nothing is quantised.
    """
    return model if model.quantization is None else with_formats(model, None, model.dtype)


def at_precision(model: Model, precision: str) -> Model:
    """Return the model with its weights in another format.

    Parameters
    ----------
    model : model as stored in its checkpoint.
    precision : id of a format; ``checkpoint`` changes nothing but weights in 32 bits, which engines hold in 16.

    Returns
    -------
    The model with the formats of its layers.
    """
    if precision == "checkpoint":
        whole = model.quantization is None and model.dtype == "fp32"
        return with_formats(replace(model, dtype="bf16"), None, "bf16") if whole else model
    entry = format_entry(precision)
    if entry["kernel"] == "native" and float(entry["bits"]) >= 16:
        return with_formats(replace(model, dtype=precision), None, precision)
    activation = {"fp8": "fp8", "fp8-block": "fp8", "mxfp8": "fp8", "int8": "int8", "nvfp4": "fp4"}.get(precision)
    return with_formats(model, Quantization(format=precision, activation=activation), model.dtype)


def with_formats(model: Model, plan: Quantization | None, base: str) -> Model:
    """Return a model with every matrix in its storage format.

    Parameters
    ----------
    model : the model.
    plan : how the checkpoint stores its weights, None where unquantised.
    base : format of the unquantised matrices.

    Returns
    -------
    The model with a format for each matrix.
    """
    skipped = frozenset(plan.skipped) if plan else frozenset()
    patterns = [_pattern(name) for name in (plan.skipped if plan else ()) if _is_pattern(name)]
    parts = dict(plan.parts) if plan else {}
    numbered = (
        any(re.search(r"\.\d+(\.|\*|$)", name) or name.startswith("re:") for name in plan.skipped) if plan else False
    )

    def choose(path: str, linear: Linear, role: str) -> str:
        if plan is None or (linear.split == "none" and (linear.outputs <= 512 or "gate" in linear.name)):
            return base
        rest = plan.beside or base
        if plan.only_experts and ".experts." not in linear.name:
            return rest
        if role != "decoder" and (parts or not skipped):
            return base
        full = f"{path}.{linear.name}"
        unquantised = not skipped.isdisjoint(_parts(full)) or any(p.search(full) for p in patterns)
        if plan.parts:
            return rest if unquantised else parts.get(_part_of(full), rest)
        return rest if unquantised else plan.format

    def stack(item: Stack) -> Stack:
        def at(layer: Layer, index: int) -> Layer:
            path = f"{item.name}.{index}"
            return map_linears(layer, lambda linear: replace(linear, format=choose(path, linear, item.role)))

        if numbered:
            return replace(item, layers=tuple(at(layer, index) for index, layer in enumerate(item.layers)))
        made = {layer: at(layer, places[0]) for layer, places in item.kinds()}
        return replace(item, layers=tuple(made[layer] for layer in item.layers))

    return replace(model, stacks=tuple(stack(item) for item in model.stacks), quantization=plan)


def map_linears(layer: Layer, change: Callable[[Linear], Linear]) -> Layer:
    """Return `layer` with every matrix passed through `change`."""

    def groups(items: tuple[Group, ...]) -> tuple[Group, ...]:
        return tuple(tuple(change(linear) for linear in group) for group in items)

    def mixer(item: Mixer) -> Mixer:
        return replace(item, groups=groups(item.groups))

    def feed(item: Dense | Mixture) -> Dense | Mixture:
        if isinstance(item, Dense):
            return replace(item, groups=groups(item.groups))
        return replace(
            item,
            expert=groups(item.expert),
            shared=groups(item.shared),
            router=change(item.router) if item.router else None,
        )

    return replace(
        layer, mixers=tuple(mixer(m) for m in layer.mixers), feed_forwards=tuple(feed(p) for p in layer.feed_forwards)
    )
