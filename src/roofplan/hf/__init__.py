"""Models from Hugging Face ``config.json`` files, one small function per family.

`FAMILIES` lists every supported ``model_type``; any other is refused by name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from roofplan import catalogue
from roofplan.errors import ConfigError, UnknownFamily, nearest
from roofplan.hf.families import DECODERS, ENCODERS, FAMILIES, RESHAPED, WRAPPERS
from roofplan.hf.fields import Fields
from roofplan.hf.gguf import is_gguf, model_of
from roofplan.hf.quantization import read_dtype, read_quantization, with_formats
from roofplan.hf.towers import Encoder
from roofplan.records.model import Model, Stack

LARGEST_CONFIG = 16 * 2**20
"""Largest file that is read as a configuration [B]."""

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


BESIDE = "hf_quant_config.json"
"""File in which ModelOpt's checkpoints state their format, where their ``config.json`` states none."""


def from_text(text: str | bytes, identity: str = "config.json", beside: str | bytes | None = None) -> Model:
    """Return the model that a configuration text describes.

    Parameters
    ----------
    text : the configuration.
    identity : id of the model.
    beside : text of the file `BESIDE` of the same checkpoint, None without one; it counts where the configuration states no format.

    Returns
    -------
    The model.

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
    values = _object(raw, identity)
    digest = hashlib.sha256(raw)
    inner = values.get("text_config")
    places = [values, *([inner] if isinstance(inner, dict) else [])]
    stated = any(place.get(name) for place in places for name in ("quantization_config", "compression_config"))
    if beside and not stated:
        given = _object(beside, f"{identity}: {BESIDE}")
        inside = given.get("quantization")
        if (inside if isinstance(inside, dict) else given).get("quant_algo"):  # else the cache alone is converted
            values["quantization_config"] = {"quant_method": "modelopt"} | given
        digest.update(beside.encode() if isinstance(beside, str) else beside)
    return from_dict(values, identity, digest=digest.hexdigest())


def _object(raw: str | bytes, said: str) -> dict[str, Any]:
    """Return the JSON object of a text; `said` names the text where it is none."""
    try:
        values = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{said} is not JSON ({error})", argument="MODEL", value=said) from None
    if not isinstance(values, dict):
        raise ConfigError(f"{said} is JSON but not an object, which a config.json is", argument="MODEL", value=said)
    return values


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
        return from_text(file.read_bytes(), str(path), beside_config(file) if file.name == "config.json" else None)
    except OSError as error:
        raise ConfigError(f"MODEL: {path}: {error.strerror}", argument="MODEL", value=str(path)) from None


def beside_config(file: Path) -> bytes | None:
    """Return the text of the file `BESIDE` next to a configuration, None where there is none."""
    other = file.with_name(BESIDE)
    return other.read_bytes() if other.is_file() and other.stat().st_size <= LARGEST_CONFIG else None


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
        embedding=built.vocabulary * width + built.tables,
        tables=built.tables,
        table_bytes=built.table_bytes,
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
