"""Number formats of weights and caches, as tables and the names of checkpoints write them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from roofplan import catalogue
from roofplan.catalogue.spellings import FORMAT

WEIGHTS = {
    "bf16": "checkpoint",
    "auto": "checkpoint",
    "mlx-bf16": "checkpoint",
    "int4": "gptq",
    "int4-g32": "int4-weight-g32",
    "fp4": "nvfp4",
}
"""Further names of weight formats in tables; 16 bits means the model's own type."""

KV_FORMATS = {
    "fp8": "fp8",
    "int8": "int8",
    "int4": "int4-weight-g128",
    "fp16": "fp16",
    "f16": "fp16",
    "float16": "fp16",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "q8_0": "int8",
    "q4_0": "q4_0",
    "nvfp4": "nvfp4",
}
"""Prefix of the published cache precision -> format."""

CACHE = re.compile(r"\bkv\b|cache")
"""Words by which a part of a cell speaks of the cache."""

SIZES = re.compile(r"(q\d_k)\s*-\s*([sml])\w+")
"""Formats as llama-bench prints them, such as ``Q4_K - Medium``."""


def format_of(text: str, names: Mapping[str, str], *, mlx: bool = False) -> str | None:
    """Return the weight format that a text states.

    Parameters
    ----------
    text : a cell, such as ``INT4 AWQ`` or ``BF16 + FP8 KV``, or the words of a model's name that say it.
    names : an engine's own names of formats, beside those of the catalogue.
    mlx : whether bare bits mean those of MLX.

    Returns
    -------
    The id of the format, ``checkpoint`` for the published one, None where none is known.

    Examples
    --------
    >>> [format_of(one, {}) for one in ("INT4 AWQ", "W8A8 FP8", "GPTQ 8bit", "INT8 weight-only", "Q4_K - Medium", "bf16 + fp8 kv", "4bit")]
    ['awq', 'fp8', 'int8-weight', 'int8-weight', 'q4_k_m', 'checkpoint', None]
    """
    said = " ".join(one for one in re.split(r"[+,;]", text.lower()) if not CACHE.search(one))
    said = SIZES.sub(r"\1_\2", re.sub(r"\bud-|quantized\.|[\s-](?:dynamic|marlin)\b", "", said))
    said = re.sub(
        r"(q\d_k)_xl\b",
        r"\1_m",
        re.sub(r"(\d)-bit\b", r"\1bit", said).replace("q8_k_xl", "q8_0").replace("q6_k_xl", "q6_k"),
    )
    words = [word for word in re.split(r"[\s()]+", said) if word]
    wide = any(word in {"8bit", "int8", "w8a16"} for word in words)
    for kind in ("awq", "gptq"):
        if kind in words:
            return "int8-weight" if wide else kind
    if "weight-only" in words or "weight only" in said:
        return "int8-weight" if wide else "int4-weight"
    if "fp8" in words and "w8a8" in words:
        return "fp8"
    for word in ("-".join(words), *words):
        bits = f"mlx-{word}" if mlx and re.fullmatch(r"\dbit", word) else re.sub(r"^([\d.]+bpw)$", r"exl-\1", word)
        found = {**WEIGHTS, **names}.get(bits) or catalogue.format_named(bits)
        if found == "checkpoint" or known_format(found):
            return found
    return None


def format_in_name(name: str, names: Mapping[str, str], *, mlx: bool = False) -> str | None:
    """Return the weight format that the name of a checkpoint states.

    Parameters
    ----------
    name : name of a model, such as ``TheBloke/Llama-2-70B-Chat-AWQ``.
    names, mlx : as of `format_of`.

    Returns
    -------
    The id of the format, None where the name states none.

    Examples
    --------
    >>> format_in_name("Qwen2.5-72B-Instruct-GPTQ-Int4", {}), format_in_name("unsloth/llama-3-8b-bnb-4bit", {}), format_in_name("llama-3-8b", {})
    ('gptq', 'bnb-nf4', None)
    """
    words = _format_words(name)
    found = format_of("-".join(words) if "bnb" in words else " ".join(words), names, mlx=mlx) if words else None
    return None if found == "checkpoint" else found


def states_format(name: str) -> bool:
    """Return whether the name of a checkpoint states a format, known or not, other than 16 bits.

    Parameters
    ----------
    name : name of a checkpoint.

    Returns
    -------
    Whether it does.

    Examples
    --------
    >>> states_format("gemma-3-27b-it-GGUF"), states_format("gemma-3-27b-it"), states_format("gemma-3-27b-bf16")
    (True, False, False)
    """
    return any(word not in {"bf16", "fp16"} for word in _format_words(name))


def in_16_bits(name: str) -> str | None:
    """Return the 16-bit format that the name of a checkpoint states.

    Parameters
    ----------
    name : name of a checkpoint.

    Returns
    -------
    ``bf16`` or ``fp16``, None where it states neither.

    Examples
    --------
    >>> in_16_bits("unsloth/gpt-oss-20b-BF16"), in_16_bits("gpt-oss-20b")
    ('bf16', None)
    """
    return next((word for word in _format_words(name) if word in {"bf16", "fp16"}), None)


def _format_words(name: str) -> list[str]:
    """Return the words of a name that say how its weights are stored."""
    return [word for word in re.split(r"[\s,:()-]+|\.(?=i?q\d)", name.lower().rsplit("/", 1)[-1]) if FORMAT.match(word)]


def cache_of(text: str) -> str | None:
    """Return the format of a cache that a cell states.

    Parameters
    ----------
    text : a cell, such as ``FP8 (e4m3)``.

    Returns
    -------
    The id of the format, None where none is known.

    Examples
    --------
    >>> cache_of("FP8 (e4m3)"), cache_of("f16"), cache_of("bf16 + fp8 kv"), cache_of("tq3")
    ('fp8', 'fp16', 'fp8', None)
    """
    parts = [one.strip() for one in re.split(r"[+,;]", text.lower())]
    said = next((one for one in parts if CACHE.search(one)), parts[0])
    said = re.sub(r"^(?:kv[\s-]?cache|kv|cache)[\s:=]*", "", said)
    return next((name for begins, name in KV_FORMATS.items() if said.startswith(begins)), None)


def known_format(precision: str) -> bool:
    """Return whether the catalogue has a weight format, possibly with another group size.

    >>> known_format("gptq-g32"), known_format("bf16-g8"), known_format("w3")
    (True, False, False)
    """
    base, _, group = precision.partition("-g")
    entry = catalogue.formats().get(base)
    grouped = not group or (group.isdigit() and int(group) > 0 and entry is not None and "group" in entry)
    return entry is not None and grouped and not precision.endswith("-g")
