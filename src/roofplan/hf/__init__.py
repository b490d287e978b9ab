"""Models from Hugging Face ``config.json`` files, one small function per family.

`FAMILIES` lists every supported ``model_type``; any other is refused by name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from roofplan import catalogue
from roofplan.errors import ConfigError, UnknownFamily, nearest
from roofplan.hf import decoders, early, hybrids, mixtures, novel, recurrent, towers
from roofplan.hf.decoders import Decoder
from roofplan.hf.fields import Fields
from roofplan.hf.gguf import is_gguf, model_of
from roofplan.hf.quantization import read_dtype, read_quantization, with_formats
from roofplan.hf.towers import Encoder
from roofplan.records.model import Model, Stack

LARGEST_CONFIG = 16 * 2**20
"""Largest file that is read as a configuration [B]."""

DECODERS: dict[str, Callable[[Fields], Decoder]] = {
    "afmoe": mixtures.afmoe,
    "apertus": lambda f: decoders.plain(f, gated=False, qk_norm="head", scalars=2),
    "aquila": decoders.llama,
    "arcee": lambda f: decoders.plain(f, gated=False),
    "baichuan": decoders.llama,
    "bailing_moe": mixtures.bailing,
    "bailing_moe_v2": mixtures.bailing,
    "bamba": hybrids.bamba,
    "bloom": early.bloom,
    "chatglm": decoders.chatglm,
    "codegen": early.gptj,
    "cohere": decoders.cohere,
    "cohere2": decoders.cohere,
    "cohere2_moe": mixtures.cohere2_moe,
    "cwm": decoders.mistral,
    "dbrx": mixtures.dbrx,
    "deepseek": mixtures.deepseek,
    "deepseek_v2": mixtures.deepseek,
    "deepseek_v3": mixtures.deepseek,
    "deepseek_v32": mixtures.deepseek_sparse,
    "deepseek_v4": novel.deepseek_v4,
    "dots1": mixtures.dots1,
    "ernie4_5": decoders.ernie,
    "ernie4_5_moe": mixtures.ernie_moe,
    "exaone": decoders.exaone,
    "exaone4": decoders.exaone4,
    "exaone_moe": mixtures.exaone_moe,
    "falcon": early.falcon,
    "falcon_h1": hybrids.falcon_h1,
    "falcon_mamba": recurrent.mamba_model,
    "flex_olmo": mixtures.olmoe,
    "gemma": decoders.gemma,
    "gemma2": decoders.gemma2,
    "gemma3_text": decoders.gemma3,
    "gemma3n_text": novel.gemma3n,
    "gemma4_text": novel.gemma4,
    "gemma4_unified_text": novel.gemma4,
    "glm": decoders.glm,
    "glm4": decoders.glm4,
    "glm4_moe": mixtures.glm4_moe,
    "glm4_moe_lite": mixtures.deepseek,
    "glm4v_moe_text": mixtures.glm4_moe,
    "glm_moe_dsa": mixtures.glm_dsa,
    "gpt2": early.gpt2,
    "gpt_bigcode": early.gpt_bigcode,
    "gpt_neo": early.gpt_neo,
    "gpt_neox": early.gpt_neox,
    "gpt_oss": mixtures.gpt_oss,
    "gptj": early.gptj,
    "granite": decoders.granite,
    "granitemoe": mixtures.granitemoe,
    "granitemoehybrid": hybrids.granite_hybrid,
    "granitemoeshared": mixtures.granitemoe,
    "helium": decoders.llama,
    "hunyuan_v1_dense": decoders.hunyuan,
    "hunyuan_v1_moe": mixtures.hunyuan_moe,
    "hy_v3": mixtures.hunyuan3,
    "internlm": decoders.internlm,
    "internlm2": decoders.llama,
    "internlm3": decoders.internlm3,
    "jais2": lambda f: decoders.plain(f, gated=False, norm_width=2),
    "jamba": hybrids.jamba,
    "kimi_k2": mixtures.deepseek,
    "kimi_linear": hybrids.kimi_linear,
    "laguna": mixtures.laguna,
    "lfm2": hybrids.lfm2,
    "lfm2_moe": hybrids.lfm2_moe,
    "lfm3": hybrids.lfm3,
    "llama": decoders.llama,
    "llama4_text": mixtures.llama4,
    "longcat_flash": novel.longcat,
    "mamba": recurrent.mamba_model,
    "mamba2": recurrent.mamba2_model,
    "mimo": novel.mimo,
    "mimo_v2_flash": novel.mimo_v2,
    "minicpm3": mixtures.minicpm3,
    "minimax": hybrids.minimax,
    "minimax_m1": hybrids.minimax,
    "minimax_m2": mixtures.minimax_m2,
    "minimax_text_01": hybrids.minimax,
    "ministral": decoders.mistral,
    "ministral3": decoders.mistral,
    "mistral": decoders.mistral,
    "mixtral": mixtures.mixtral,
    "mpt": early.mpt,
    "nanochat": decoders.nanochat,
    "nemotron": decoders.nemotron,
    "nemotron-nas": novel.nemotron_nas,
    "nemotron_h": hybrids.nemotron_h,
    "olmo": decoders.olmo,
    "olmo2": decoders.olmo2,
    "olmo3": decoders.olmo2,
    "olmoe": mixtures.olmoe,
    "opt": early.opt,
    "phi": early.phi,
    "phi-msft": early.phi,
    "phi3": decoders.phi3,
    "phimoe": mixtures.phimoe,
    "qwen": decoders.qwen,
    "qwen2": decoders.qwen2,
    "qwen2_5_vl_text": decoders.qwen2,
    "qwen2_moe": mixtures.qwen2_moe,
    "qwen2_vl_text": decoders.qwen2,
    "qwen3": decoders.qwen3,
    "qwen3_5_moe_text": hybrids.qwen_next,
    "qwen3_5_text": hybrids.qwen_next,
    "qwen3_moe": mixtures.qwen3_moe,
    "qwen3_next": hybrids.qwen_next,
    "qwen3_vl_moe_text": mixtures.qwen3_moe,
    "qwen3_vl_text": decoders.qwen3,
    "recurrent_gemma": hybrids.recurrent_gemma,
    "rwkv": recurrent.rwkv,
    "seed_oss": decoders.seed_oss,
    "smollm3": decoders.smollm3,
    "solar_open": mixtures.glm4_moe,
    "stablelm": decoders.stablelm,
    "step3p5": mixtures.step35,
    "starcoder2": early.starcoder2,
    "xverse": decoders.llama,
    "yi": decoders.llama,
    "zamba": hybrids.zamba,
    "zamba2": hybrids.zamba2,
}

ENCODERS: dict[str, Callable[[Fields], Encoder]] = {
    "bert": towers.bert,
    "clip": towers.clip,
    "clip_vision_model": towers.clip_vision,
    "dinov2": towers.dinov2,
    "dinov3_vit": towers.dinov3,
    "roberta": towers.bert,
    "siglip": towers.siglip,
    "siglip2_vision_model": towers.siglip2_vision,
    "siglip_vision_model": towers.siglip_vision,
    "whisper": towers.whisper,
    "xlm-roberta": towers.bert,
}


def _pixtral(f: Fields, hidden: int) -> tuple[Stack, ...]:
    return towers.pixtral_vision(
        f.sub("vision_config"),
        hidden,
        f.int("spatial_merge_size", default=2),
        f.flag("multimodal_projector_bias", False),
    )


LLAVA_PARTS: dict[str, dict[str, int]] = {
    "llama": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
    },
    "mistral": {"num_attention_heads": 32},
    "pixtral": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
}
"""Dimensions of the parts of LLaVA and Pixtral that their files leave to the classes of transformers, by the part's ``model_type``.

Source: configuration_llama.py, configuration_mistral.py and configuration_pixtral.py of transformers 5.23.
"""


def _with_parts(values: Mapping[str, object]) -> Mapping[str, object]:
    """Return the configuration of LLaVA with the dimensions that it leaves to the classes of its parts."""
    parts = {name: part for name in ("text_config", "vision_config") if isinstance(part := values.get(name), Mapping)}
    full = {name: {**LLAVA_PARTS.get(str(part.get("model_type")), {}), **part} for name, part in parts.items()}
    return {**values, **full}


def _renamed(values: Mapping[str, object]) -> Mapping[str, object]:
    """Return InternVL's own configuration with its parts named as in transformers; its language model says whether matrices are tied."""
    kept = {name: value for name, value in values.items() if name != "tie_word_embeddings"}
    return {**kept, "text_config": values.get("llm_config") or values.get("text_config")}


RESHAPED: dict[str, Callable[[Mapping[str, object]], Mapping[str, object]]] = {
    "internvl_chat": _renamed,
    "llava": _with_parts,
    "llava_next": _with_parts,
}
"""What completes or renames the parts of a configuration, by family."""


def _internvl(f: Fields, hidden: int) -> tuple[Stack, ...]:
    ratio = f.raw("downsample_ratio", default=0.5)
    if not isinstance(ratio, int | float) or ratio not in {0.5, 1}:
        message = f"config.json: downsample_ratio {ratio!r} is not described; 0.5 and 1 are"
        raise ConfigError(message, argument="downsample_ratio", value=str(ratio))
    return towers.intern_vision(f.sub("vision_config"), hidden, round(1 / ratio))


def _llava(f: Fields, hidden: int) -> tuple[Stack, ...]:
    bias, newline = f.flag("multimodal_projector_bias", True), f.text("model_type") == "llava_next"
    return towers.llava_vision(f.sub("vision_config"), hidden, bias, newline)


def _vision(tower: towers.Tower) -> Callable[[Fields, int], tuple[Stack, ...]]:
    return lambda f, hidden: tower(f.sub("vision_config"), hidden)


WRAPPERS: dict[str, tuple[str, Callable[[Fields, int], tuple[Stack, ...]] | None]] = {
    "gemma3": ("gemma3_text", _vision(towers.gemma_vision)),
    "gemma3n": ("gemma3n_text", None),
    "gemma4": ("gemma4_text", _vision(towers.gemma4_vision)),
    "gemma4_unified": ("gemma4_unified_text", towers.gemma4_embedders),
    "glm4v_moe": ("glm4v_moe_text", _vision(towers.glm_vision)),
    "internvl": ("qwen2", _internvl),
    "internvl_chat": ("", _internvl),
    "kimi_k25": ("kimi_k2", _vision(towers.moonvit)),
    "kimi_vl": ("deepseek_v3", _vision(towers.moonvit)),
    "llama4": ("llama4_text", _vision(towers.llama4_vision)),
    "llava": ("llama", _llava),
    "llava_next": ("llama", _llava),
    "mistral3": ("mistral", _pixtral),
    "qwen2_5_vl": ("qwen2", _vision(towers.early_qwen_vision)),
    "qwen2_vl": ("qwen2", _vision(towers.early_qwen_vision)),
    "qwen3_5": ("qwen3_5_text", _vision(towers.qwen_vision)),
    "qwen3_5_moe": ("qwen3_5_moe_text", _vision(towers.qwen_vision)),
    "qwen3_vl": ("qwen3_vl_text", _vision(towers.qwen_vision)),
    "qwen3_vl_moe": ("qwen3_vl_moe_text", _vision(towers.qwen_vision)),
}
"""Multimodal wrappers: the family of a text model that does not state its own, empty where it must, and the tower in front of it (None where the tower is not described)."""

FAMILIES: tuple[str, ...] = tuple(sorted({*DECODERS, *ENCODERS, *WRAPPERS}))

_DIFFUSION = {"unet", "dit", "flux", "sd3", "stable-diffusion", "pixart"}


@lru_cache(maxsize=256)
def of_catalogue(identity: str) -> Model:
    """Return a catalogue model by id.

    Parameters
    ----------
    identity : id of the model.

    Returns
    -------
    The model.

    Raises
    ------
    FileNotFoundError : the catalogue has no such id.
    """
    return from_text(catalogue.model_table(identity)["config"], identity)


def from_text(text: str | bytes, identity: str = "config.json") -> Model:
    """Return the model that a configuration text describes.

    Raises
    ------
    ConfigError : the text is too long or no JSON object, or the configuration is incomplete or inconsistent.
    UnknownFamily : no family function describes its ``model_type``.
    """
    try:
        raw = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError:
        message = f"{identity} is no text; a GGUF file is read by its path"
        raise ConfigError(message, argument="MODEL", value=identity) from None
    if len(raw) > LARGEST_CONFIG:
        raise ConfigError(
            f"{identity} holds {len(raw):,} bytes; a config.json has a few thousand", argument="MODEL", value=identity
        )
    try:
        values = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{identity} is not JSON ({error})", argument="MODEL", value=identity) from None
    if not isinstance(values, dict):
        raise ConfigError(
            f"{identity} is JSON but not an object, which a config.json is", argument="MODEL", value=identity
        )
    return from_dict(values, identity, digest=hashlib.sha256(raw).hexdigest())


def exists(path: Path) -> bool:
    """Return whether a path exists; a name that the file system does not accept does not.

    Parameters
    ----------
    path : the path.

    Returns
    -------
    Whether it exists and can be accessed.
    """
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def from_path(path: Path) -> Model:
    """Return the model of a configuration file, of a folder with a ``config.json``, or of a GGUF file.

    Parameters
    ----------
    path : the file or folder.

    Returns
    -------
    The model, with the path as its id.

    Raises
    ------
    ConfigError : no such file, one that cannot be read, or an invalid configuration.
    UnknownFamily : no family function describes its ``model_type``.
    """
    try:
        file = path / "config.json" if path.is_dir() else path
        if is_gguf(file):
            return model_of(file, lambda config, identity, digest: from_dict(config, identity, digest=digest))
        if not file.is_file():
            raise ConfigError(f"MODEL: {path} holds no config.json", argument="MODEL", value=str(path))
        size = file.stat().st_size
        if size > LARGEST_CONFIG:
            raise ConfigError(
                f"MODEL: {file} holds {size:,} bytes; a config.json has a few thousand",
                argument="MODEL",
                value=str(file),
            )
        return from_text(file.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(f"MODEL: {path}: {error.strerror}", argument="MODEL", value=str(path)) from None


def from_dict(values: Mapping[str, Any], identity: str = "config", *, digest: str | None = None) -> Model:
    """Return the model that a configuration describes.

    Parameters
    ----------
    values : the configuration.
    identity : id of the model.
    digest : SHA-256 of the configuration text, None to compute it from the values.

    Returns
    -------
    The model.

    Raises
    ------
    ConfigError : the configuration lacks a field or contradicts itself.
    UnknownFamily : no family function describes its ``model_type``.

    Examples
    --------
    >>> config = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    ...           "num_attention_heads": 32, "vocab_size": 32000}
    >>> from_dict(config).total  # LLaMA 7B
    6738415616
    """
    f = Fields(values)
    family = _family(f)
    if digest is None:
        digest = hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()
    if family in RESHAPED:
        f = Fields(RESHAPED[family](values))
    if family in ENCODERS:
        model = _from_encoder(ENCODERS[family](f), family, identity)
        text = f
    else:
        text = f.sub("text_config") if isinstance(f.values.get("text_config"), Mapping) else f
        _check_sizes(text)
        model = _from_decoder(f, text, family, identity)
    dtype, stated = read_dtype(f, text)
    warnings = model.warnings if stated else (*model.warnings, "config states no dtype: read as bf16")
    model = replace(
        model,
        dtype=dtype,
        stated_dtype=stated,
        sha256=digest,
        warnings=warnings,
        config=dict(values),
        architecture=_architecture(f),
    )
    return with_formats(model, read_quantization(f, text), dtype)


STATES_HEAD = ("head_dim", "attention_head_dim", "kv_channels", "qk_nope_head_dim", "v_head_dim", "d_kv")
"""Fields that state the width of a head, which otherwise is the hidden size over the heads."""


ROUNDED_DOWN = ("glm4_moe", "glm4v_moe", "glm4v_moe_text")
"""Families whose own defaults have a head width that is rounded down."""


def _check_sizes(text: Fields) -> None:
    """Refuse a hidden size that heads do not divide, and kinds of layers that are not one for each layer."""
    hidden, heads, layers = (
        text.values.get(name) for name in ("hidden_size", "num_attention_heads", "num_hidden_layers")
    )
    stated = any(name in text for name in STATES_HEAD) or text.text("model_type") in ROUNDED_DOWN
    if not stated and isinstance(hidden, int) and isinstance(heads, int) and heads > 0 and hidden % heads:
        raise ConfigError(
            f"config.json: hidden_size {hidden} is not a multiple of num_attention_heads {heads}, and no head_dim is stated",
            argument="hidden_size",
            value=hidden,
        )
    if isinstance(layers, int):
        text.list("layer_types", layers)
    scaling = text.values.get("rope_scaling")
    if scaling is not None and not isinstance(scaling, Mapping):
        raise ConfigError(
            f'config.json: rope_scaling is {scaling!r}, not an object such as {{"rope_type": "yarn", "factor": 4.0}}',
            argument="rope_scaling",
            value=scaling,
        )


def _architecture(f: Fields) -> str:
    names = f.values.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def _family(f: Fields) -> str:
    family = f.text("model_type")
    if not family:
        if any(key in f for key in ("_class_name", "_diffusers_version")):
            raise UnknownFamily(
                "diffusion models are not modelled (out of scope for now)",
                argument="model_type",
                value=f.text("_class_name"),
            )
        raise ConfigError(
            "config.json lacks model_type; add it, roofplan does not guess families", argument="model_type"
        )
    if family not in FAMILIES:
        if family in _DIFFUSION:
            raise UnknownFamily(
                f"model_type {family!r}: diffusion models are not modelled (out of scope for now)",
                argument="model_type",
                value=family,
            )
        near = nearest(family, FAMILIES)
        hint = f" Nearest: {', '.join(near)}." if near else ""
        raise UnknownFamily(
            f"model_type {family!r} is not described, and no default shape is used.{hint} List: roofplan models --families",
            argument="model_type",
            value=family,
            nearest=near,
        )
    return family


def _text_family(family: str, text: Fields) -> str:
    inner = text.text("model_type")
    if inner in {"", family}:
        inner = WRAPPERS[family][0]
    if not inner:
        raise ConfigError(
            f"config.json: the language model of {family} lacks model_type; add it, roofplan does not guess families",
            argument="model_type",
        )
    if inner not in DECODERS:
        near = nearest(inner, DECODERS)
        hint = f" Nearest: {', '.join(near)}." if near else ""
        raise UnknownFamily(
            f"config.json: the language model of {family} is of model_type {inner!r}, which is not described.{hint} "
            "List: roofplan models --families",
            argument="model_type",
            value=inner,
            nearest=near,
        )
    return inner


def _towers(f: Fields, family: str, hidden: int) -> tuple[tuple[Stack, ...], tuple[str, ...]]:
    """Return the towers in front of a language model, and warnings about them."""
    architecture = _architecture(f)
    if not isinstance(f.values.get("vision_config"), Mapping) or architecture.endswith("ForCausalLM"):
        sees = architecture and not architecture.endswith("ForCausalLM") and WRAPPERS[family][1] is not None
        said = f"vision_config is not stated, although {architecture} has a vision tower: only the language model is counted"
        return (), (said,) if sees else ()
    tower = WRAPPERS[family][1]
    if tower is None:
        return (), (f"the vision and audio towers of {family} are not described: only the language model is counted",)
    out = f.sub("vision_config").optional_int("out_hidden_size")
    if out is not None and out != hidden:
        stated = bool(_architecture(f))  # otherwise only the language model may be meant
        said = f"vision_config.out_hidden_size {out} does not fit hidden_size {hidden}: the tower cannot feed this model and is {'' if stated else 'not '}counted"
        return (tower(f, out) if stated else ()), (said,)
    return tower(f, hidden), ()


def _from_decoder(f: Fields, text: Fields, family: str, identity: str) -> Model:
    wrapped = family in WRAPPERS
    built = DECODERS[_text_family(family, text) if wrapped else family](text)
    stacks: tuple[Stack, ...] = ()
    warnings = built.warnings
    tied = built.tied
    if wrapped:
        stacks, warned = _towers(f, family, built.hidden)
        warnings = (*warnings, *warned)
    if wrapped:
        tied = f.flag("tie_word_embeddings", built.tied)
    name = built.name if not (wrapped and stacks) else "model.language_model.layers"
    decoder = Stack(name=name, role="decoder", layers=built.layers)
    width = built.embedding_width or built.hidden
    head = 0 if tied else built.vocabulary * width
    draft = (
        None
        if built.draft is None
        else (built.draft.parameters + 2 * built.hidden * built.hidden + 3 * built.hidden) * built.draft_layers
    )
    return Model(
        id=identity,
        family=family,
        stacks=(*stacks, decoder),
        hidden=built.hidden,
        vocabulary=built.vocabulary,
        embedding=built.vocabulary * width,
        head=head,
        tied=tied,
        other=built.final + built.vocabulary * built.head_bias,
        max_positions=built.max_positions,
        draft_layers=built.draft_layers,
        draft_parameters=draft,
        notes=built.notes,
        warnings=warnings,
    )


def _from_encoder(built: Encoder, family: str, identity: str) -> Model:
    return Model(
        id=identity,
        family=family,
        stacks=built.stacks,
        hidden=built.hidden,
        vocabulary=built.vocabulary,
        embedding=built.embedding,
        head=0,
        tied=True,
        other=built.other,
        max_positions=built.max_positions,
        generates=built.generates,
    )
