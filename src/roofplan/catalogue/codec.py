"""Conversion from TOML tables to records and back.

A field is read from the key of its own name, as its type says. Keys with other names and values in other units are listed here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Any, TypeVar

from roofplan.errors import InputError, UnitError
from roofplan.records import units
from roofplan.records.calibration import Constant
from roofplan.records.engine import DefaultRule, Engine, Kernels
from roofplan.records.hardware import Accelerator, Link, Server
from roofplan.records.pool import Cheat, PoolRules, PoolSoftware, RecordedProof
from roofplan.records.prices import Price
from roofplan.records.silicon import Die, Node, WaferPrice
from roofplan.records.source import Source, Sourced
from roofplan.records.training import RECOMPUTES, FailurePreset, Framework, Optimizer, Recovery, Unstated

Table = Mapping[str, Any]
"""Content of a TOML file."""

T = TypeVar("T")

# Numbers -----------------------------------------------------------------------------------------

_COUNTED = frozenset(
    [
        "fraction",
        "row",
        "sequence",
        "token",
        "tokens",
        "copy",
        "launch",
        "device",
        "devices",
        "SM",
        "CU",
        "core",
        "cores",
        "1",
        "x",
        "block",
    ],
)
"""Units of counted things."""


def scale(unit: str) -> tuple[float, str]:
    """Return one `unit` in SI, and the SI unit.

    Raises
    ------
    UnitError : an unknown unit.
    """
    if unit in _COUNTED:
        return 1.0, "1"
    for si, table in units.UNITS.items():
        if unit in table and si != "1":
            return table[unit], si
    raise UnitError(f"unit {unit!r} is not known", argument="unit", value=unit)


BOUNDS = ("low", "high", "least", "most")


def sourced(entry: Table) -> Sourced:
    """Return a number with its origin, in SI."""
    factor, si = scale(str(entry["unit"]))
    low, high, least, most = (float(entry[name]) * factor if name in entry else None for name in BOUNDS)
    return Sourced(
        value=float(entry["value"]) * factor,
        unit=si,
        text=f"{entry['value']} {entry['unit']}",
        source=str(entry["source"]),
        seen=str(entry["seen"]),
        kind=entry["kind"],
        low=low,
        high=high,
        least=least,
        most=most,
    )


def _numbers(table: Table, _: str = "") -> dict[str, Sourced]:
    """Return the numbers of a table, by name."""
    return {
        key: sourced(entry)
        for key, entry in table.items()
        if isinstance(entry, Mapping) and "value" in entry and "source" in entry
    }


# Fields ------------------------------------------------------------------------------------------


def _flag(value: object, name: str) -> bool:
    """Return a flag, or refuse anything but true and false."""
    if not isinstance(value, bool):
        raise InputError(f"{name} = {value!r}: true or false", argument=name, value=str(value))
    return value


def _one_of(table: Table, key: str, known: Sequence[str]) -> str:
    """Return a word of a table, or refuse one that is not known."""
    value = str(table[key])
    if value not in known:
        raise InputError(f"{key} = {value!r}: one of {', '.join(known)}", argument=key, value=value)
    return value


_READERS: dict[str, Callable[[Any, str], Any]] = {
    "str": lambda value, _: str(value),
    "float": lambda value, _: float(value),
    "int": lambda value, _: int(value),
    "bool": _flag,
    "tuple[str, ...]": lambda value, _: tuple(map(str, value)),
    "tuple[int, ...]": lambda value, _: tuple(value),
    "Mapping[str, Sourced]": _numbers,
    "Mapping[str, str]": lambda value, _: {name: text for name, text in value.items() if isinstance(text, str)},
}
"""Readers of fields by type; a value of any other type is taken as it is."""


@lru_cache(maxsize=32)
def _fields(kind: Callable[..., object]) -> dict[str, Callable[[Any, str], Any]]:
    """Return the reader of each field of a record."""
    return {
        one.name: _READERS.get(str(one.type).removesuffix(" | None"), lambda value, _: value)
        for one in fields(kind)  # type: ignore[arg-type]
    }


def _record(kind: Callable[..., T], table: Table, **own: object) -> T:
    """Return a record of the members `own` and of what the table holds under the names of other fields."""
    for name, read in _fields(kind).items():
        if name in table and name not in own:
            own[name] = read(table[name], name)
    return kind(**own)


# Records -----------------------------------------------------------------------------------------


def node(table: Table) -> Node:
    """Return the process that a catalogue table describes."""
    wafers = sorted((_record(WaferPrice, quote) for quote in table["wafer"]), key=lambda quote: quote.date)
    return _record(Node, table, wafers=tuple(wafers))


def dies(table: Table) -> tuple[Die, ...]:
    """Return the dies that an accelerator's table lists."""
    return tuple(_record(Die, entry, area=units.parse(entry["area"], "m2", "area")) for entry in table.get("dies", ()))


def packaging(table: Table) -> dict[str, dict[str, Sourced]]:
    """Return the costs of packages, memory, test and boards, by section."""
    sections = {name: _numbers(entries) for name, entries in table.items() if name != "memory"}
    return sections | {f"memory.{name}": _numbers(entries) for name, entries in table["memory"].items()}


def accelerator(table: Table) -> Accelerator:
    """Return the accelerator that a catalogue table describes."""
    blank = {"architecture": "", "quantities": {}, "peak": {}}
    return _record(Accelerator, blank | dict(table), device_class=table.get("class", "datacenter"))


def link(table: Table) -> Link:
    """Return the link that a catalogue table describes."""
    return _record(Link, table)


def pools(table: Table) -> PoolRules:
    """Return the software that joins members of a pool, and what is assumed of them."""
    software = {name: _record(PoolSoftware, entry, id=name) for name, entry in table["software"].items()}
    return PoolRules(
        software=software,
        cheats={name: _record(Cheat, entry, id=name) for name, entry in table["cheats"].items()},
        **{name: _numbers(table[name]) for name in ("assumed", "margins", "trust")},
    )


def proofs(table: Table) -> tuple[RecordedProof, ...]:
    """Return the measured runs of a pool; their quantities in SI."""

    def quantities(row: Table) -> dict[str, float]:
        found = {name: one for name, one in row.items() if isinstance(one, Mapping)}
        return {name: float(one["value"]) * scale(str(one["unit"]))[0] for name, one in found.items()}

    return tuple(
        RecordedProof(
            date=row["date"],
            host=row["host"],
            software=row["software"],
            model=row["model"],
            config=table["config"],
            layers=tuple(row["layers"]),
            prompt_tokens=row["prompt_tokens"],
            quantities=quantities(row),
        )
        for row in table["proof"]
    )


def server(table: Table) -> Server:
    """Return the server that a catalogue table describes."""
    return _record(Server, table)


def prices(table: Table) -> tuple[Price, ...]:
    """Return the price quotes of one device."""
    return tuple(_record(Price, entry, device=table["device"]) for entry in table["price"])


def engine(table: Table) -> Engine:
    """Return the engine version that a catalogue table describes."""
    parallel, precisions, memory, flags = (table.get(key, {}) for key in ("parallel", "precisions", "memory", "flags"))
    defaults = table.get("defaults", {})
    return _record(
        Engine,
        {**precisions, **parallel, **table},
        name=table["engine"],
        block=float(table["kv_block_tokens"]["value"]),
        kernels=_kernels(table["kernels"] | {"flash": defaults.get("flash_attention", True)}),
        reserve=_numbers(defaults.get("reserve", {})),
        rules=tuple(_rule(rule) for rule in (*defaults.get("share_rule", ()), *defaults.get("rule", ()))),
        excluded_architectures=tuple(table.get("architectures_excluded", ())),
        graphs_counted=memory.get("graphs_counted", False),
        expert_groups=_numbers(parallel).get("expert_groups_halved_to"),
        tensor=parallel.get("tensor_parallel", True),
        kv_names=flags.get("kv_names", {}),
        raw=table,
    )


def _rule(table: Table) -> DefaultRule:
    memory = {
        name: float(table[f"{name}_gib"]) * units.GIB
        for name in ("minimum_memory", "below_memory")
        if f"{name}_gib" in table
    }
    return _record(
        DefaultRule, table, values=_numbers(table), excluded=tuple(table.get("excluded_devices", ())), **memory
    )


KERNEL_KEYS = {
    "compiled": "compiled_for",
    "smallest_tile": "grouped_tile_smallest",
    "largest_tile": "grouped_tile_largest",
    "accumulator": "fp16_accumulator",
    "gguf": "gguf_compute",
    "unpacked": "gguf_unpacked",
    "counted": "counted_for",
    "queued": "launch_queue_of",
    "scores": "score_traffic",
    "converted": "conversion_traffic",
    "quantised": "quantisation_traffic",
    "elementwise": "elementwise_traffic",
}
"""Fields of `Kernels` that have another key in the files."""


def _kernels(table: Table) -> Kernels:
    plain = {**table, **{name: item.value for name, item in _numbers(table).items()}}
    return _record(Kernels, plain | {name: plain[key] for name, key in KERNEL_KEYS.items() if key in plain})


def framework(table: Table) -> Framework:
    """Return the training framework that a catalogue table describes."""
    blank = {"lineage": table["framework"], "dropout": False, "swaps_stages": False, "offloads_optimizer": False}
    blank |= {"overlaps": (), "selective": (), "schedules": (), "divides": (), "methods": (), "swaps": ()}
    return _record(
        Framework,
        blank | dict(table),
        name=table["framework"],
        kernels=_kernels(table["kernels"]),
        unstated=_unstated(table["unstated"]),
        stays_gathered=_one_of(table, "stays_gathered", ("never", "pipeline")),
        flags=table.get("flags", {}),
        raw=table,
    )


def _unstated(table: Table) -> Unstated:
    plain = _one_of(table, "recompute", RECOMPUTES)
    sharded = _one_of(table, "recompute_sharded", RECOMPUTES) if "recompute_sharded" in table else plain
    own = {"recompute": plain, "recompute_sharded": sharded} | ({} if "micro_batch" in table else {"micro_batch": None})
    return _record(Unstated, table, **own)


def optimizers(table: Table) -> dict[str, Optimizer]:
    """Return the optimizers by id."""
    return {identity: _record(Optimizer, entry, id=identity) for identity, entry in table.items()}


def failures(table: Table) -> tuple[dict[str, FailurePreset], Recovery]:
    """Return the presets of failure rates by id, and the costs of an interruption."""
    presets = {
        identity: FailurePreset(
            id=identity,
            name=entry["name"],
            ecc=entry["ecc"],
            rate=float(entry["rate"]["value"]) / (1000.0 * 86400.0),
            source=entry["rate"]["source"],
            kind=entry["rate"]["kind"],
        )
        for identity, entry in table.items()
        if "rate" in entry
    }
    return presets, Recovery(**_numbers(table["recovery"]))


def host(table: Table) -> dict[str, Sourced]:
    """Return the rates at which the processors of a host work for its devices."""
    return _numbers(table["host"])


def sources(table: Table) -> dict[str, Source]:
    """Return the register of documents."""
    return {key: _record(Source, entry, key=key) for key, entry in table.items()}


# Constants ---------------------------------------------------------------------------------------


def constants(table: Table) -> tuple[Constant, ...]:
    """Return the fitted constants of one file."""
    return tuple(_record(Constant, entry) for entry in table["constant"])


def constants_text(found: Iterable[Constant]) -> str:
    """Return fitted constants as the text of a TOML file.

    Parameters
    ----------
    found : the constants.

    Returns
    -------
    The text, which `constants` reads back once parsed.

    Raises
    ------
    InputError : a value is not finite.
    """
    lines = []
    for one in found:
        lines.append("[[constant]]")
        if not math.isfinite(one.value):
            raise InputError(f"constant {one.law}.{one.name}: {one.value} is not a number that can be kept")
        lines += [
            f"{key} = {json.dumps(value, ensure_ascii=False)}"
            for key, value in asdict(one).items()
            if (value or key not in {"note", "basis", "also"}) and (key, value) != ("kind", "fit")
        ]
        lines.append("")
    return "\n".join(lines)
