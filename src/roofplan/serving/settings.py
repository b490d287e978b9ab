"""Engine settings given by the user, in the engine's own names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from roofplan.errors import InputError, nearest
from roofplan.records.engine import Engine
from roofplan.records.source import Sourced

SETTABLE = {
    "sequences": ("max_num_seqs", "sequence"),
    "batched_tokens": ("max_num_batched_tokens", "token"),
    "memory_share": ("memory_share", "fraction"),
    "block": ("block", "token"),
    "page": ("block", "token"),
}
"""Launch flag -> the default that it replaces, and its unit."""


def names_of(engine: Engine) -> dict[str, str]:
    """Return the settings of an engine.

    Parameters
    ----------
    engine : engine with its launch flags.

    Returns
    -------
    The engine's own name, with underscores -> the flag in the catalogue.

    Examples
    --------
    >>> from roofplan import catalogue
    >>> sorted(names_of(catalogue.engine("vllm-0.33")))
    ['block_size', 'gpu_memory_utilization', 'max_num_batched_tokens', 'max_num_seqs']
    """
    found = {}
    for flag in SETTABLE:
        spelt = re.match(r"--?([\w-]+) \{", engine.flags.get(flag, ""))
        if spelt:
            found[spelt[1].replace("-", "_")] = flag
    return found


def settings_of(text: str | None, engine: Engine) -> dict[str, float]:
    """Return the settings given by ``--set``.

    Parameters
    ----------
    text : ``NAME=VALUE,...`` in the engine's own names, None for none.
    engine : engine whose settings they are.

    Returns
    -------
    Flag in the catalogue -> value.

    Raises
    ------
    InputError : a name unknown to the engine, a name given twice, or a value out of range.
    """
    known, out = names_of(engine), dict[str, float]()
    for part in (text or "").split(","):
        if not part.strip():
            continue
        name, _, value = (one.strip() for one in part.partition("="))
        spelt = name.lstrip("-").lower().replace("-", "_")
        if spelt not in known:
            near = nearest(spelt, known)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise InputError(
                f"--set: {engine.id} has no setting {name!r} that plans depend on.{hint} Known: {', '.join(known)}",
                argument="--set",
                value=text,
                nearest=near,
            )
        flag = known[spelt]
        share = SETTABLE[flag][1] == "fraction"
        try:
            number = float(value.removesuffix("%")) / 100.0 if share and value.endswith("%") else float(value)
        except ValueError:
            number = -1.0
        if flag in out or not (0.0 < number <= 1.0 if share else number >= 1.0 and number.is_integer()):
            spaced = "; separate settings by commas" if re.search(r"\s\S+=", value) else ""
            wanted = "a share above 0 and up to 1" if share else "a whole number of at least 1"
            why = "is given twice" if flag in out else f"must be {wanted}{spaced}"
            raise InputError(f"--set: {name} {why}", argument="--set", value=text)
        out[flag] = number
    if engine.budget_holds_sequences and out.get("batched_tokens", math.inf) < out.get("sequences", 0.0):
        message = f"--set: {engine.id} takes no fewer batched tokens than sequences, {out['sequences']:g}"
        raise InputError(message, argument="--set", value=text)
    return out


def settings_text(engine: Engine, settings: Mapping[str, float]) -> str:
    """Return settings as ``--set`` reads them.

    Parameters
    ----------
    engine : engine with its launch flags.
    settings : flag in the catalogue -> value.

    Returns
    -------
    Text in the engine's own names.

    Examples
    --------
    >>> from roofplan import catalogue
    >>> settings_text(catalogue.engine("vllm-0.33"), {"memory_share": 0.85, "batched_tokens": 1048576.0})
    'gpu_memory_utilization=0.85,max_num_batched_tokens=1048576'
    """
    own = {flag: name for name, flag in names_of(engine).items()}
    return ",".join(f"{own[flag]}={value:.15g}" for flag, value in settings.items())


def with_settings(engine: Engine, settings: Mapping[str, float]) -> Engine:
    """Return an engine with settings that replace its defaults.

    Parameters
    ----------
    engine : engine with its defaults.
    settings : flag in the catalogue -> value, from `settings_of`.

    Returns
    -------
    The engine, with a record of the given settings.
    """
    if not settings:
        return engine
    stated = {
        name: Sourced(value=value, unit=unit, text=f"{value:g}", source="--set", seen="", kind="given")
        for flag, value in settings.items()
        for name, unit in (SETTABLE[flag],)
    }
    block = stated.pop("block", None)
    engine = replace(engine.launched(stated), stated=dict(settings))
    return engine if block is None else replace(engine, block=block.value)
