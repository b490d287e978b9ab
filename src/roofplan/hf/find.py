"""Sources of models: standard input, a file, the catalogue, the Hub cache, or the Hub."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

from roofplan import catalogue, hf
from roofplan.catalogue.spellings import named
from roofplan.catalogue.written import format_in_name, in_16_bits, states_format
from roofplan.errors import ConfigError, InputError, UnknownName, nearest
from roofplan.hf.quantization import at_precision
from roofplan.inputs import STDIN
from roofplan.records.model import Model

HUB_TIMEOUT = 5.0
"""Time that ``hf:`` waits for the network, without retries [s]."""


HUB = re.compile(r"^(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/(?=[^/]+/[^/]+/?$)")
"""What stands before a model's name in its address on the Hub."""

HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
"""A name on the Hub: its owner and its own."""


def read_model(name: str) -> Model:
    """Return the model that MODEL means, looked up in the order: stdin, ``hf:``, path, catalogue, Hub cache.

    Parameters
    ----------
    name : ``-``, ``hf:ORG/NAME``, a path, a catalogue id or alias, or a Hub name.

    Returns
    -------
    The model.

    Raises
    ------
    ConfigError : no such file, or an invalid configuration.
    UnknownFamily : no family function describes the model.
    UnknownName : the model is neither on disk nor in the catalogue; carries the nearest names.
    InputError : standard input or the Hub cannot be read.
    """
    name = HUB.sub("", name)
    if name in {"-", STDIN}:
        return hf.from_text(from_stdin("MODEL"), "stdin")
    if name.startswith("hf:"):
        return hf.from_text(_from_hub(name[3:]), name[3:], _from_hub(name[3:], hf.BESIDE))
    path = Path(name)
    if hf.exists(path):
        return hf.from_path(path)
    if name.endswith((".json", "/")) or name.startswith(("./", "../", "/", "~")):
        raise ConfigError(f"MODEL: no file {name}", argument="MODEL", value=name)
    known = (
        catalogue.aliases("models")
        if not hf.exists(catalogue.ROOT / "models" / f"{name.lower()}.toml")
        else {name.lower(): name.lower()}
    )
    identity = known.get(name.lower())
    if identity is not None:
        return hf.of_catalogue(identity)
    cached = _from_hub_cache(name)
    if cached is not None:
        return hf.from_text(cached.read_bytes(), name, hf.beside_config(cached))
    meant = checkpoint_named(name) if len(name) <= catalogue.LONGEST_NAME else None
    if meant is not None:
        return meant
    alike = named(name[: catalogue.LONGEST_NAME])
    near = list(
        dict.fromkeys([*([alike] if alike else []), *nearest(name[: catalogue.LONGEST_NAME], catalogue.ids("models"))])
    )
    hint = f" Nearest: {', '.join(near)}." if near else ""
    if alike and states_format(name):
        hint += f" Its format is not known: write {alike} --precision q4_k_m, or another."
    other = (
        f"; any other: hf:{name}, or the path of its config.json"
        if name.count("/") == 1 and len(name) <= catalogue.LONGEST_NAME
        else ""
    )
    raise UnknownName(
        f'MODEL: no model "{name[: catalogue.LONGEST_NAME]}" on disk or in the catalogue.{hint} List: roofplan models{f" {name[:5]}" if hint else ""}{other}',
        code="unknown_model",
        argument="MODEL",
        value=name,
        nearest=near,
    )


def from_stdin(argument: str) -> str:
    """Return the content of standard input.

    Parameters
    ----------
    argument : flag that asked for it, as a refusal names it.

    Returns
    -------
    The text.

    Raises
    ------
    InputError : standard input is closed or cannot be read.
    """
    if sys.stdin is None:
        raise InputError(f"{argument}: standard input is closed", argument=argument, value="-")
    try:
        return sys.stdin.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{argument}: standard input: {error}", argument=argument, value="-") from None


def checkpoint_named(name: str) -> Model | None:
    """Return the model of the catalogue that a spelling means; of another maker's checkpoint in the format that its name states.

    Parameters
    ----------
    name : name of a checkpoint, with its owner or without.

    Returns
    -------
    The model, with a warning where it stands for another checkpoint; None where the catalogue has none of that name.

    Examples
    --------
    >>> checkpoint_named("Qwen/Qwen2.5-14B-Instruct-AWQ").quantization.format, checkpoint_named("unsloth/gemma-3-27b-it-GGUF")
    ('awq', None)
    """
    if "/" in name and not HUB_NAME.fullmatch(name):
        return None
    stored = named(name, as_stored=True) if "/" not in name else None
    if stored is not None:
        return hf.of_catalogue(stored)
    identity, precision = named(name, known_dates=True), format_in_name(name, {})
    if identity is None or (precision is None and states_format(name)):
        return None
    if f"{identity}-{precision}" in catalogue.ids("models"):
        identity, precision = f"{identity}-{precision}", None
    model = hf.of_catalogue(identity)
    if precision is None and model.quantization is not None:
        precision = in_16_bits(name)
    if precision is not None and (model.quantization is None or model.quantization.format != precision):
        model = at_precision(model, precision)
    said = f"{name} is planned as {identity}{f' with {precision} weights' if precision else ''}: its own config.json is neither here nor in the catalogue"
    return replace(model, warnings=(*model.warnings, said))


def _from_hub_cache(name: str) -> Path | None:
    folder = catalogue.hub_cache() / f"models--{name.replace('/', '--')}" / "snapshots"
    found = sorted(folder.glob("*/config.json")) if "/" in name and hf.exists(folder) else []
    return found[-1] if found else None


MISSING = {"EntryNotFoundError", "RemoteEntryNotFoundError"}
"""Errors of the Hub's client that say that a checkpoint has no such file; a local one says that the Hub was not asked."""


def _from_hub(name: str, file: str = "config.json") -> bytes:
    """Return a file of a checkpoint on the Hub; any but its ``config.json`` may be missing, and is empty then."""
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise InputError(
            "hf: needs the extra [hub]: pip install 'roofplan[hub]'",
            code="extra_missing",
            argument="MODEL",
            value=f"hf:{name}",
        ) from None
    try:
        return Path(hf_hub_download(name, file, etag_timeout=HUB_TIMEOUT)).read_bytes()
    except Exception as error:  # noqa: BLE001 - any error of the client becomes one line
        if file != "config.json" and type(error).__name__ in MISSING:
            return b""
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"hf:{name}: {first}", code="hub_unreachable", argument="MODEL", value=f"hf:{name}") from None
