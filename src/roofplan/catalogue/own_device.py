"""Devices that users describe in TOML files.

Each key is checked. Each number is a text with its unit, and the file is its source.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roofplan import catalogue
from roofplan.errors import InputError
from roofplan.records import units
from roofplan.records.hardware import BANDWIDTH, CPU, LAUNCH, OWN, VECTOR, Accelerator
from roofplan.records.source import Sourced

NUMBER_FORMATS = ("bf16", "fp16", "fp32", "tf32", "fp8", "int8", "fp4", "fp16_accumulate_fp16")
"""Number formats that ``[peak]`` and ``[attained]`` accept."""

ATTAINED = {**dict.fromkeys((*NUMBER_FORMATS, VECTOR), "FLOP/s"), BANDWIDTH: "B/s", LAUNCH: "s"}
"""Keys that ``[attained]`` accepts -> their SI unit."""

UNITS_OF = {
    "memory_capacity": "B",
    "memory_bandwidth": "B/s",
    "cache": "B",
    "power": "W",
    "link_bandwidth": "B/s",
    "price": "USD/h",
    "bought": "USD",
    "sold_at": "USD",
    "die_area": "m2",
}
"""Keys that hold a quantity -> its SI unit."""

COUNTS = {
    "scale_up_domain": "scale_up_domain",
    "compute_dies": "dies",
    "units_full": "units",
    "units": "units_sold",
    "memory_stacks": "memory_stacks",
}
"""Quantities that are counts -> the keys that hold them."""

Count = Annotated[int, Field(ge=1, strict=True)]


ID = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""What an id looks like."""


def check_id(text: str, flag: str) -> None:
    """Refuse an id that a device's file cannot have.

    Parameters
    ----------
    text : the id.
    flag : that it was given for.

    Raises
    ------
    InputError : other letters than an id has, or an id of the catalogue.
    """
    if re.match(ID, text) is None:
        message = f"{flag}: {text!r} is no id: letters, digits, dots, hyphens and underscores, a letter or digit first"
        raise InputError(message, argument=flag, value=text)
    if text in catalogue.ids("accelerators"):
        raise InputError(f"{flag}: {text!r} is the catalogue's; give your device another", argument=flag, value=text)


class Given(BaseModel):
    """Keys of the file."""

    model_config = ConfigDict(extra="forbid")
    id: str = Field(min_length=1, pattern=ID)
    like: str | None = None
    kind: Literal["accelerator", "cpu"] | None = None
    name: str = ""
    vendor: str = ""
    architecture: str = ""
    memory_capacity: str | None = None
    memory_bandwidth: str | None = None
    cache: str | None = None
    peak: dict[str, str] = {}
    attained: dict[str, str] = {}
    power: str | None = None
    link_bandwidth: str | None = None
    scale_up: str | None = None
    scale_up_domain: Count | None = None
    host_link: str | None = None
    peer_to_peer: Literal["none", "pcie", "nvlink", "xgmi", "roce", "ici", "hccs"] | None = None
    price: str | None = None
    bought: str | None = None
    sold_at: str | None = None
    node: str = ""
    die_area: str | None = None
    dies: Count | None = None
    units: Count | None = None
    units_sold: Count | None = None
    memory_type: str = ""
    memory_stacks: Count | None = None
    notes: list[str] = []


def user_accelerator(path: Path) -> Accelerator:
    """Return the accelerator that a user's TOML file describes.

    Each quantity is a text such as ``memory_capacity = "80 GiB"``. ``like`` names a device of the catalogue whose data sheet
    fills what the file leaves out; what ``[attained]`` states and no data sheet does also stands for it.

    Raises
    ------
    InputError : a file that cannot be read, or a key that is unknown, missing or invalid.
    """
    given = _read(path)
    like = None if given.like is None else catalogue.accelerator(catalogue.find("accelerators", given.like, "like"))
    _check(given, like, path)
    texts = {name: text for name in UNITS_OF if (text := getattr(given, name)) is not None}
    counts = {name: value for name, key in COUNTS.items() if (value := getattr(given, key)) is not None}
    quantities = {name: _quantity(text, UNITS_OF[name], name, path) for name, text in texts.items()}
    quantities |= {name: _given(float(value), "1", str(value), path) for name, value in counts.items()}
    peak = {key: _quantity(text, "FLOP/s", f"peak.{key}", path) for key, text in given.peak.items()}
    attained = {
        key: replace(_quantity(text, ATTAINED[key], f"attained.{key}", path), kind="measured")
        for key, text in given.attained.items()
    }
    base = like or Accelerator(id=given.id, name="", vendor="", architecture="", quantities={}, peak={})
    if given.memory_capacity is not None:  # what the file says of memory holds, not what a driver leaves of the other's
        base = replace(base, quantities={k: v for k, v in base.quantities.items() if k != "memory_usable"})
    rates = {key: value for key, value in attained.items() if key in NUMBER_FORMATS}
    reads = {key: value for key, value in attained.items() if key == BANDWIDTH}
    cpu = given.kind == CPU
    found = replace(
        base,
        id=given.id,
        name=given.name or given.id,
        vendor="CPU" if cpu else given.vendor or base.vendor,
        architecture=given.architecture or base.architecture,
        process=given.node or base.process,
        memory_type=given.memory_type or base.memory_type,
        device_class=CPU if cpu else base.device_class,
        status=OWN,
        quantities={**reads, **base.quantities, **quantities},
        peak={**rates, **base.peak, **peak},
        attained=attained,
        scale_up=given.scale_up or base.scale_up,
        host_link=given.host_link or base.host_link,
        peer_to_peer=given.peer_to_peer or base.peer_to_peer,
        aliases=(),
        notes=tuple(given.notes),
    )
    _check_attained(found, path)
    return found


LARGEST_BOOST = 1.5
"""Most that a device may attain over its data sheet, a guess: beyond it a mistaken unit is likelier than a boost clock [1]."""


def _check_attained(found: Accelerator, path: Path) -> None:
    """Refuse a rate far above the data sheet's: a mistaken unit, or `like` names the wrong device."""
    sheet = {**found.quantities, **found.peak}
    for key, one in found.attained.items():
        if key in sheet and one.value > LARGEST_BOOST * sheet[key].value:
            times = one.value / sheet[key].value
            message = (
                f"{path}: attained.{key} is {one.text}, {times:.1f} times the data sheet's {sheet[key].text};"
                " check its unit, or state the device's own data sheet beside it"
            )
            raise InputError(message, argument=f"attained.{key}", value=one.text)


def _read(path: Path) -> Given:
    """Return the keys of the file, or refuse an invalid one."""
    try:
        return Given.model_validate(tomllib.loads(path.read_text()))
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
            "string_type": f'is {first["input"]!r}; write text in quotes, and a quantity with its unit: "4 TB/s"',
        }
        wrong = said.get(first["type"], f"is not what it should be: {first['msg'].lower()}")
        raise InputError(f"{path}: {where} {wrong}", argument=where, value=str(path)) from None


def _check(given: Given, like: Accelerator | None, path: Path) -> None:
    """Refuse unknown formats and rates, a device without what laws need, and one of ``units`` and ``units_sold`` alone."""
    for table, known in (("peak", NUMBER_FORMATS), ("attained", tuple(ATTAINED))):
        strange = next((name for name in getattr(given, table) if name not in known), None)
        if strange is not None:
            name = f"{table}.{strange}"
            what = "a number format" if table == "peak" else "an attained rate"
            message = f"{path}: {name} is not {what}; accepted: {', '.join(known)}"
            raise InputError(message, argument=name, value=strange)
    if like is None:
        _check_alone(given, path)
    if (given.units is None) != (given.units_sold is None):
        name = "units_sold" if given.units_sold is None else "units"
        message = f"{path}: {name} is missing: units on a die, and those that a sold one works with, belong together"
        raise InputError(message, argument=name, value=str(path))


def _check_alone(given: Given, path: Path) -> None:
    """Refuse a device that is like no other and lacks its memory, its bandwidth or a bf16, fp16 or fp32 rate."""
    missing = [
        name for name in ("memory_capacity", BANDWIDTH) if getattr(given, name) is None and name not in given.attained
    ]
    if missing:
        raise InputError(f"{path}: {missing[0]} is missing", argument=missing[0], value=str(path))
    if not {"bf16", "fp16", "fp32"} & {*given.peak, *given.attained}:
        raise InputError(
            f'{path}: [peak] names no bf16, fp16 or fp32 rate; add one, such as bf16 = "400 TFLOPS"',
            argument="peak",
            value=str(path),
        )


def _quantity(text: str, unit: str, name: str, path: Path) -> Sourced:
    return _given(units.parse(text, unit, f"{path}: {name}"), unit, text, path)


def _given(value: float, unit: str, text: str, path: Path) -> Sourced:
    """Return a number with the file as its source."""
    return Sourced(value=value, unit=unit, text=text, source=str(path), seen="", kind="given")
