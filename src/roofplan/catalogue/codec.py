"""TOML and JSON to records and back; the only module that imports pydantic, and only for what users write."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from roofplan.errors import InputError, UnitError
from roofplan.records import units
from roofplan.records.calibration import Constant
from roofplan.records.engine import DefaultRule, Engine, Kernels
from roofplan.records.hardware import OWN, Accelerator, Link, Server
from roofplan.records.prices import Price
from roofplan.records.silicon import Die, Node, WaferPrice
from roofplan.records.source import Source, Sourced
from roofplan.records.training import RECOMPUTES, FailurePreset, Framework, Optimizer, Recovery, Unstated

_COUNTED = {
    "fraction",
    "row",
    "sequence",
    "token",
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
    "tokens",
}


def sourced(entry: Mapping[str, Any]) -> Sourced:
    """Return a number with its origin, in SI."""
    value, unit = float(entry["value"]), str(entry["unit"])
    text = f"{entry['value']} {unit}"
    factor, si = scale(unit)
    return Sourced(
        value=value * factor,
        unit=si,
        text=text,
        source=str(entry["source"]),
        seen=str(entry["seen"]),
        kind=entry["kind"],
        low=float(entry["low"]) * factor if "low" in entry else None,
        high=float(entry["high"]) * factor if "high" in entry else None,
        least=float(entry["least"]) * factor if "least" in entry else None,
        most=float(entry["most"]) * factor if "most" in entry else None,
    )


def scale(unit: str) -> tuple[float, str]:
    """Return what one of `unit` is worth in SI, and the SI unit."""
    if unit in _COUNTED:
        return 1.0, "1"
    for si, table in units.UNITS.items():
        if unit in table and si != "1":
            return table[unit], si
    raise UnitError(f"unit {unit!r} is not known", argument="unit", value=unit)


def _numbers(table: Mapping[str, Any]) -> dict[str, Sourced]:
    return {
        key: sourced(entry)
        for key, entry in table.items()
        if isinstance(entry, Mapping) and "value" in entry and "source" in entry
    }


def _texts(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(str(item) for item in table.get(key, ()))


def node(table: Mapping[str, Any]) -> Node:
    """Return the process that a catalogue table describes."""
    wafers = (
        WaferPrice(
            value=float(quote["value"]),
            date=str(quote["date"]),
            kind=quote["kind"],
            source=quote["source"],
            note=quote.get("note", ""),
        )
        for quote in table["wafer"]
    )
    return Node(
        id=table["id"],
        name=table["name"],
        year=int(table["year"]),
        processes=_texts(table, "processes"),
        wafers=tuple(sorted(wafers, key=lambda quote: quote.date)),
        quantities=_numbers(table["quantities"]),
        aliases=_texts(table, "aliases"),
        notes=_texts(table, "notes"),
    )


def dies(table: Mapping[str, Any]) -> tuple[Die, ...]:
    """Return the dies that an accelerator's table lists."""
    return tuple(
        Die(
            name=entry["name"],
            node=entry["node"],
            area=units.parse(entry["area"], "m2", "area"),
            count=int(entry.get("count", 1)),
            units=entry.get("units"),
            sold=entry.get("sold"),
            stacked=bool(entry.get("stacked", False)),
            source=entry["source"],
        )
        for entry in table.get("dies", ())
    )


def packaging(table: Mapping[str, Any]) -> dict[str, dict[str, Sourced]]:
    """Return what packages, memory, test and boards cost, by section."""
    sections = {name: _numbers(entries) for name, entries in table.items() if name != "memory"}
    return sections | {f"memory.{name}": _numbers(entries) for name, entries in table["memory"].items()}


def accelerator(table: Mapping[str, Any]) -> Accelerator:
    """Return the accelerator that a catalogue table describes."""
    return Accelerator(
        id=table["id"],
        name=table["name"],
        vendor=table["vendor"],
        architecture=table.get("architecture", ""),
        quantities=_numbers(table.get("quantities", {})),
        peak=_numbers(table.get("peak", {})),
        sparse=_numbers(table.get("sparse", {})),
        measured=_numbers(table.get("measured", {})),
        form=table.get("form", ""),
        status=table.get("status", ""),
        launched=str(table.get("launched", "")),
        process=table.get("process", ""),
        memory_type=table.get("memory_type", ""),
        device_class=table.get("class", "datacenter"),
        geforce_licence=table.get("geforce_licence", False),
        peer_to_peer=table.get("peer_to_peer"),
        ecc=table.get("ecc"),
        scale_up=table.get("scale_up"),
        host_link=table.get("host_link"),
        export=table.get("export", ""),
        aliases=_texts(table, "aliases"),
        notes=_texts(table, "notes"),
    )


def link(table: Mapping[str, Any]) -> Link:
    """Return the link that a catalogue table describes."""
    return Link(
        id=table["id"],
        name=table["name"],
        kind=table["kind"],
        topology=table["topology"],
        quantities=_numbers(table["quantities"]),
        in_network_reduction=table.get("in_network_reduction", False),
        transport=table.get("transport", "tcp"),
        shared_by=table.get("shared_by", ""),
        aliases=_texts(table, "aliases"),
        notes=_texts(table, "notes"),
    )


def server(table: Mapping[str, Any]) -> Server:
    """Return the server that a catalogue table describes."""
    return Server(
        id=table["id"],
        name=table["name"],
        accelerator=table["accelerator"],
        quantities=_numbers(table["quantities"]),
        network=table.get("network"),
        provider=table.get("provider", ""),
        aliases=_texts(table, "aliases"),
        notes=_texts(table, "notes"),
        network_cards=bool(table.get("network_cards", False)),
    )


def prices(table: Mapping[str, Any]) -> tuple[Price, ...]:
    """Return the quotations of one device."""
    return tuple(
        Price(
            device=table["device"],
            kind=entry["kind"],
            value=float(entry["value"]),
            unit=entry["unit"],
            date=str(entry["date"]),
            source=entry["source"],
            provider=entry.get("provider", ""),
            count=entry.get("count"),
            term=entry.get("term", ""),
            low=entry.get("low"),
            high=entry.get("high"),
            note=entry.get("note", ""),
            scope=entry.get("scope", "card"),
        )
        for entry in table["price"]
    )


def engine(table: Mapping[str, Any]) -> Engine:
    """Return the engine version that a catalogue table describes."""
    parallel, precisions, memory, flags = (table.get(key, {}) for key in ("parallel", "precisions", "memory", "flags"))
    defaults = table.get("defaults", {})
    rules = tuple(
        DefaultRule(
            values=_numbers(rule),
            minimum_memory=float(rule.get("minimum_memory_gib", 0)) * units.GIB,
            below_memory=float(rule.get("below_memory_gib", "inf")) * units.GIB,
            below_tensor=float(rule.get("below_tensor", "inf")),
            minimum_tensor=float(rule.get("minimum_tensor", 1)),
            excluded=_texts(rule, "excluded_devices"),
        )
        for rule in (*defaults.get("share_rule", ()), *defaults.get("rule", ()))
    )
    return Engine(
        id=table["id"],
        name=table["engine"],
        version=table["version"],
        released=table["released"],
        newest=table.get("newest", False),
        vendors=_texts(table, "vendors"),
        memory_model=table["memory_model"],
        admission=table["admission"],
        block=float(table["kv_block_tokens"]["value"]),
        defaults=_numbers(defaults),
        memory=_numbers(memory),
        kernels=_kernels(table["kernels"]),
        reserve=_numbers(defaults.get("reserve", {})),
        bench=_numbers(table.get("bench", {})),
        bench_requests=_numbers(table.get("bench_requests", {})),
        rules=rules,
        excluded_architectures=_texts(table, "architectures_excluded"),
        eager=bool(table.get("eager", False)),
        runtime=table.get("runtime", "python"),
        chunked_prefill=table.get("chunked_prefill", True),
        mixed_steps=_flag(table, "mixed_steps", None),
        graphs_counted=memory.get("graphs_counted", False),
        pipeline=parallel.get("pipeline", False),
        pipeline_kind=parallel.get("pipeline_kind", "microbatch"),
        data=parallel.get("data", False),
        expert=parallel.get("expert", False),
        expert_identity=parallel.get("expert_identity", "tp*dp"),
        data_attention=parallel.get("data_attention", False),
        data_attention_degrees=parallel.get("data_attention_degrees", "divisors"),
        latent_attention=bool(_flag(parallel, "latent_attention", True)),
        experts_even=parallel.get("experts_even", False),
        expert_groups=_numbers(parallel).get("expert_groups_halved_to"),
        slots_divide_context=parallel.get("slots_divide_context", False),
        sequence_limit=parallel.get("sequence_limit", "rank"),
        tensor=parallel.get("tensor_parallel", True),
        beside_experts=precisions.get("beside_experts", ""),
        weights=_texts(precisions, "weights"),
        kv=_texts(precisions, "kv"),
        flags={k: v for k, v in flags.items() if isinstance(v, str)},
        kv_names=flags.get("kv_names", {}),
        aliases=_texts(table, "aliases"),
        notes=_texts(table, "notes"),
        raw=table,
    )


def _flag(table: Mapping[str, Any], key: str, default: bool | None = False) -> bool | None:
    """Return a flag of a catalogue table, which says true or false and nothing else."""
    value = table.get(key, default)
    if value is not default and not isinstance(value, bool):
        raise InputError(f"{key} = {value!r}: true or false", argument=key, value=str(value))
    return value


def _one_of(table: Mapping[str, Any], key: str, known: Sequence[str]) -> str:
    """Return a word of a catalogue table, one of those known."""
    value = str(table[key])
    if value not in known:
        raise InputError(f"{key} = {value!r}: one of {', '.join(known)}", argument=key, value=value)
    return value


def _kernels(table: Mapping[str, Any]) -> Kernels:
    numbers = {name: item.value for name, item in _numbers(table).items()}
    return Kernels(
        peer_all_reduce=_texts(table, "peer_all_reduce"),
        compiled=_texts(table, "compiled_for"),
        launches=numbers.get("launches", 1.0),
        smallest_tile=numbers["grouped_tile_smallest"],
        largest_tile=numbers["grouped_tile_largest"],
        vector_rows=numbers.get("vector_rows", 0.0),
        accumulator=table.get("fp16_accumulator", "fp32"),
        gguf=table.get("gguf_compute"),
        unpacked=_texts(table, "gguf_unpacked"),
        unpack_rows=numbers.get("unpack_rows", 0.0),
        counted=_texts(table, "counted_for"),
        queued=_texts(table, "launch_queue_of"),
        scores=numbers.get("score_traffic", 0.0),
        converted=numbers.get("conversion_traffic", 0.0),
        quantised=numbers.get("quantisation_traffic", 0.0),
        casts_fused=bool(_flag(table, "casts_fused")),
        reads_per_head=bool(_flag(table, "reads_per_head")),
        elementwise=numbers.get("elementwise_traffic", 1.0),
        layer_launches=numbers.get("layer_launches", 0.0),
        launch_queue=numbers.get("launch_queue", 0.0),
    )


def framework(table: Mapping[str, Any]) -> Framework:
    """Return the training framework that a catalogue table describes."""
    return Framework(
        id=table["id"],
        name=table["framework"],
        lineage=table.get("lineage", table["framework"]),
        version=table["version"],
        released=table["released"],
        newest=table.get("newest", False),
        vendors=_texts(table, "vendors"),
        sharding=table["sharding"],
        attention=table["attention"],
        dropout=table.get("dropout", False),
        overlaps=_texts(table, "overlaps"),
        selective=_texts(table, "selective"),
        schedules=_texts(table, "schedules"),
        zeros=tuple(table["zeros"]),
        even_layers=table["even_layers"],
        counts_ends=table["counts_ends"],
        divides=_texts(table, "divides"),
        methods=_texts(table, "methods"),
        swaps=_texts(table, "swaps"),
        swaps_stages=table.get("swaps_stages", False),
        offloads_optimizer=table.get("offloads_optimizer", False),
        measured_memory=table["measured_memory"],
        memory=_numbers(table["memory"]),
        kernels=_kernels(table["kernels"]),
        unstated=_unstated(table["unstated"]),
        attention_rate=_numbers(table.get("attention_rate", {})),
        gradient=table["gradient"],
        stays_gathered=_one_of(table, "stays_gathered", ("never", "pipeline")),
        recomputes_part=bool(_flag(table, "recomputes_part")),
        longest_first=bool(_flag(table, "longest_first")),
        aliases=_texts(table, "aliases"),
        notes=_texts(table, "notes"),
        flags=table.get("flags", {}),
        raw=table,
    )


def _unstated(table: Mapping[str, Any]) -> Unstated:
    plain = _one_of(table, "recompute", RECOMPUTES)
    return Unstated(
        recompute=plain,
        recompute_sharded=_one_of(table, "recompute_sharded", RECOMPUTES) if "recompute_sharded" in table else plain,
        micro_batch=float(table["micro_batch"]) if "micro_batch" in table else None,
        source=table["source"],
    )


def optimizers(table: Mapping[str, Any]) -> dict[str, Optimizer]:
    """Return the optimizers by id."""
    return {
        identity: Optimizer(
            id=identity,
            name=entry["name"],
            master=float(entry["master"]),
            state=float(entry["state"]),
            weight=float(entry.get("weight", 2.0)),
            source=entry["source"],
            notes=_texts(entry, "notes"),
        )
        for identity, entry in table.items()
    }


def failures(table: Mapping[str, Any]) -> tuple[dict[str, FailurePreset], Recovery]:
    """Return the presets of failure rates by id, and what an interruption costs."""
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
    numbers = _numbers({name: x for name, x in table["recovery"].items() if name != "name"})
    return presets, Recovery(**numbers)


def host(table: Mapping[str, Any]) -> dict[str, Sourced]:
    """Return what the processors of a host do for its devices."""
    return _numbers(table["host"])


def sources(table: Mapping[str, Any]) -> dict[str, Source]:
    """Return the register of documents."""
    return {
        key: Source(
            key=key, title=entry["title"], url=entry.get("url"), date=str(entry["date"]) if "date" in entry else None
        )
        for key, entry in table.items()
    }


def constants_text(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return fitted constants as the text of a file."""
    lines = []
    for entry in entries:
        lines.append("[[constant]]")
        if not math.isfinite(entry["value"]):
            raise InputError(
                f"constant {entry['law']}.{entry['name']}: {entry['value']} is not a number that can be kept"
            )
        lines += [
            f"{key} = {json.dumps(value, ensure_ascii=False)}"
            for key, value in entry.items()
            if (value or key not in {"note", "basis", "also"}) and (key, value) != ("kind", "fit")
        ]
        lines.append("")
    return "\n".join(lines)


def constants(table: Mapping[str, Any]) -> tuple[Constant, ...]:
    """Return the fitted constants of one file."""
    return tuple(
        Constant(
            law=entry["law"],
            name=entry["name"],
            scope=entry["scope"],
            value=float(entry["value"]),
            unit=entry["unit"],
            spread=float(entry["spread"]),
            rows=int(entry["rows"]),
            fitted=str(entry["fitted"]),
            source=entry["source"],
            note=entry.get("note", ""),
            basis=entry.get("basis", ""),
            kind=entry.get("kind", "fit"),
            also=tuple(entry.get("also", ())),
        )
        for entry in table["constant"]
    )


NUMBER_FORMATS = ("bf16", "fp16", "fp32", "tf32", "fp8", "int8", "fp4", "fp16_accumulate_fp16")
"""Rates that the ``[peak]`` of a user's device may name."""


def _count(value: int, path: Path) -> Sourced:
    """Return a whole number of a user's file."""
    return Sourced(value=value, unit="1", text=str(value), source=str(path), seen="", kind="given")


def user_accelerator(path: Path) -> Accelerator:
    """Return the accelerator of a user's TOML file, checked field by field with clear refusals.

    A number is written as text with its unit: ``memory_capacity = "80 GiB"``; its source is the file.
    """
    from typing import Literal

    from pydantic import BaseModel, ConfigDict, Field, ValidationError

    class Given(BaseModel):
        model_config = ConfigDict(extra="forbid", populate_by_name=True)
        id: str = Field(min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
        name: str = ""
        vendor: str = ""
        architecture: str = ""
        memory_capacity: str
        memory_bandwidth: str
        peak: dict[str, str]
        power: str | None = None
        link_bandwidth: str | None = None
        scale_up: str | None = None
        scale_up_domain: int | None = Field(default=None, ge=1, strict=True)
        host_link: str | None = None
        peer_to_peer: Literal["none", "pcie", "nvlink", "xgmi", "roce", "ici", "hccs"] | None = None
        price: str | None = None
        bought: str | None = None
        sold_at: str | None = None
        node: str = ""
        die_area: str | None = None
        dies: int | None = Field(default=None, ge=1, strict=True)
        units: int | None = Field(default=None, ge=1, strict=True)
        units_sold: int | None = Field(default=None, ge=1, strict=True)
        memory_type: str = ""
        memory_stacks: int | None = Field(default=None, ge=1, strict=True)
        notes: list[str] = []

    try:
        table = tomllib.loads(path.read_text())
        given = Given.model_validate(table)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", argument="--on", value=str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a TOML file ({error})", argument="--on", value=str(path)) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        said = {
            "extra_forbidden": f"is not a key of a device; known: {', '.join(Given.model_fields)}",
            "missing": "is missing",
        }
        wrong = said.get(first["type"], f"is not what it should be: {first['msg'].lower()}")
        raise InputError(f"{path}: {where} {wrong}", argument=where, value=str(path)) from None

    def number(text: str, unit: str, name: str) -> Sourced:
        return Sourced(
            value=units.parse(text, unit, f"{path}: {name}"),
            unit=unit,
            text=text,
            source=str(path),
            seen="",
            kind="given",
        )

    strange = [name for name in given.peak if name not in NUMBER_FORMATS]
    if strange:
        raise InputError(
            f"{path}: peak.{strange[0]} is not a number format; accepted: {', '.join(NUMBER_FORMATS)}",
            argument=f"peak.{strange[0]}",
            value=strange[0],
        )
    if not {"bf16", "fp16", "fp32"} & given.peak.keys():
        raise InputError(
            f'{path}: [peak] names no bf16, fp16 or fp32 rate; add one, such as bf16 = "400 TFLOPS"',
            argument="peak",
            value=str(path),
        )
    quantities = {
        "memory_capacity": number(given.memory_capacity, "B", "memory_capacity"),
        "memory_bandwidth": number(given.memory_bandwidth, "B/s", "memory_bandwidth"),
    }
    for name, unit, text in (
        ("power", "W", given.power),
        ("link_bandwidth", "B/s", given.link_bandwidth),
        ("price", "USD/h", given.price),
        ("bought", "USD", given.bought),
        ("sold_at", "USD", given.sold_at),
        ("die_area", "m2", given.die_area),
    ):
        if text is not None:
            quantities[name] = number(text, unit, name)
    if (given.units is None) != (given.units_sold is None):
        name = "units_sold" if given.units_sold is None else "units"
        message = f"{path}: {name} is missing: units on a die, and those that a sold one works with, belong together"
        raise InputError(message, argument=name, value=str(path))
    counts = {
        "scale_up_domain": given.scale_up_domain,
        "compute_dies": given.dies,
        "units_full": given.units,
        "units": given.units_sold,
        "memory_stacks": given.memory_stacks,
    }
    quantities |= {name: _count(value, path) for name, value in counts.items() if value is not None}
    return Accelerator(
        id=given.id,
        name=given.name or given.id,
        vendor=given.vendor,
        architecture=given.architecture,
        process=given.node,
        memory_type=given.memory_type,
        status=OWN,
        quantities=quantities,
        peak={key: number(text, "FLOP/s", f"peak.{key}") for key, text in given.peak.items()},
        scale_up=given.scale_up,
        host_link=given.host_link,
        peer_to_peer=given.peer_to_peer,
        notes=tuple(given.notes),
    )
