"""Devices that users describe in TOML files.

Each key is checked. Each number is a text with its unit, and the file is its source.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roofplan.errors import InputError
from roofplan.records import units
from roofplan.records.hardware import OWN, Accelerator
from roofplan.records.source import Sourced

NUMBER_FORMATS = ("bf16", "fp16", "fp32", "tf32", "fp8", "int8", "fp4", "fp16_accumulate_fp16")
"""Number formats that ``[peak]`` accepts."""

UNITS_OF = {
    "memory_capacity": "B",
    "memory_bandwidth": "B/s",
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


class Given(BaseModel):
    """Keys of the file."""

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

    Each quantity is a text such as ``memory_capacity = "80 GiB"``.

    Raises
    ------
    InputError : a file that cannot be read, or a key that is unknown, missing or invalid.
    """
    given = _read(path)
    _check(given, path)
    texts = {name: text for name in UNITS_OF if (text := getattr(given, name)) is not None}
    counts = {name: value for name, key in COUNTS.items() if (value := getattr(given, key)) is not None}
    quantities = {name: _quantity(text, UNITS_OF[name], name, path) for name, text in texts.items()}
    quantities |= {name: _given(float(value), "1", str(value), path) for name, value in counts.items()}
    return Accelerator(
        id=given.id,
        name=given.name or given.id,
        vendor=given.vendor,
        architecture=given.architecture,
        process=given.node,
        memory_type=given.memory_type,
        status=OWN,
        quantities=quantities,
        peak={key: _quantity(text, "FLOP/s", f"peak.{key}", path) for key, text in given.peak.items()},
        scale_up=given.scale_up,
        host_link=given.host_link,
        peer_to_peer=given.peer_to_peer,
        notes=tuple(given.notes),
    )


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
        }
        wrong = said.get(first["type"], f"is not what it should be: {first['msg'].lower()}")
        raise InputError(f"{path}: {where} {wrong}", argument=where, value=str(path)) from None


def _check(given: Given, path: Path) -> None:
    """Refuse rates of unknown formats, a device without a bf16, fp16 or fp32 rate, and one of ``units`` and ``units_sold`` alone."""
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
    if (given.units is None) != (given.units_sold is None):
        name = "units_sold" if given.units_sold is None else "units"
        message = f"{path}: {name} is missing: units on a die, and those that a sold one works with, belong together"
        raise InputError(message, argument=name, value=str(path))


def _quantity(text: str, unit: str, name: str, path: Path) -> Sourced:
    return _given(units.parse(text, unit, f"{path}: {name}"), unit, text, path)


def _given(value: float, unit: str, text: str, path: Path) -> Sourced:
    """Return a number with the file as its source."""
    return Sourced(value=value, unit=unit, text=text, source=str(path), seen="", kind="given")
