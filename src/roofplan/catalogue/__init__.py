"""What exists: accelerators, links, servers, models, engines, prices, formats, fitted constants, sources.

Data are TOML, one file per thing; nothing is read before it is asked for.
"""

from __future__ import annotations

import csv
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from roofplan.catalogue import codec
from roofplan.catalogue.codec import Table
from roofplan.errors import UnknownName, nearest
from roofplan.records.calibration import Constant, Fit
from roofplan.records.engine import Engine
from roofplan.records.hardware import Accelerator, Link, Server
from roofplan.records.prices import Price
from roofplan.records.silicon import Die, Node
from roofplan.records.source import Source, Sourced
from roofplan.records.system import Origin, System
from roofplan.records.training import FailurePreset, Framework, Optimizer, Recovery

ROOT = Path(__file__).parent


def _read(path: Path) -> Table:
    with path.open("rb") as file:
        return tomllib.load(file)


@lru_cache(maxsize=1024)
def ids(kind: str) -> tuple[str, ...]:
    """Return the ids of a kind, which are its file names: ``accelerators``, ``links``, ``servers``, ``models``, ``engines``."""
    return tuple(sorted(path.stem for path in (ROOT / kind).glob("*.toml")))


@lru_cache(maxsize=1024)
def _table(kind: str, identity: str) -> Table:
    return _read(ROOT / kind / f"{identity}.toml")


@lru_cache(maxsize=1024)
def aliases(kind: str) -> dict[str, str]:
    """Return alias -> id of a kind, ids included."""
    return dict(index()["aliases"][kind])


@lru_cache(maxsize=1)
def index() -> Table:
    """Return what one asks of many files at once, written by `indexed`.

    Aliases, the servers of each device, and fitted constants.
    """
    found: Table = json.loads((ROOT / "index.json").read_text())
    return found


def indexed() -> Table:
    """Return the index as the files give it."""
    names: dict[str, dict[str, str]] = {}
    for kind in _WORDS:
        names[kind] = {identity: identity for identity in ids(kind)}
        for identity in ids(kind):
            names[kind] |= {str(alias).lower(): identity for alias in _table(kind, identity).get("aliases", ())}
    boxes: dict[str, list[str]] = {}
    for found in sorted((server(name) for name in ids("servers")), key=lambda s: (s.count, s.id)):
        boxes.setdefault(found.accelerator, []).append(found.id)
    constants = [asdict(item) for name in fits() for item in fit(name)]
    return {"aliases": names, "servers": boxes, "constants": constants}


LONGEST_NAME = 100
"""Letters of a name that is looked up and repeated in a message [1]."""


def find(kind: str, name: str, argument: str) -> str:
    """Return the id that `name` means, or refuse it with the nearest ones."""
    wanted = hyphened(name) if kind in {"engines", "frameworks"} else name.lower()
    if "/" not in wanted and len(wanted) <= LONGEST_NAME and (ROOT / kind / f"{wanted}.toml").is_file():
        return wanted
    known = aliases(kind)
    if wanted in known:
        return known[wanted]
    other = stand_in(kind, wanted)
    if other is not None:
        return other.id
    what, listing = _WORDS[kind]
    near = nearest(wanted[:LONGEST_NAME], ids(kind)) or nearest(wanted[:LONGEST_NAME], known)
    hint = f" Nearest: {', '.join(near)}." if near else ""
    raise UnknownName(
        f"{argument}: no {what} {name[:LONGEST_NAME]!r}.{hint} List: roofplan {listing}",
        code=f"unknown_{what}",
        argument=argument,
        value=name,
        nearest=near,
    )


@dataclass(frozen=True, slots=True)
class StandIn:
    """The profile that software without one of its own is planned as.

    Parameters
    ----------
    name : as people call it.
    id : of the profile.
    why : what both have in common.
    own : whether the profile is the software's own, of another release.
    """

    name: str
    id: str
    why: str
    own: bool = False

    @property
    def text(self) -> str:
        """In one line."""
        return f"{self.name}: planned as {self.id}; {self.why}"


def stand_in(kind: str, name: str, month: str = "") -> StandIn | None:
    """Return the profile that stands for software in a month, the newest where none is given, None where none stands for it.

    Without a month, names that are a profile's own need nobody to stand for them.

    >>> stand_in("frameworks", "NeMo", "2024-07").id, stand_in("engines", "TGI").id
    ('megatron-core-0.8', 'vllm-0.33')
    """
    wanted, when = hyphened(name), months(month)
    if not month and wanted in aliases(kind):
        return None
    for entry in _stand_ins():
        if entry["kind"] == kind and wanted in entry["names"]:
            profiles = entry["profiles"]
            found = _of_month(profiles, when)
            return StandIn(name, found["id"], entry["why"], entry.get("own", False))
    return None


def hyphened(name: str) -> str:
    """Return a name of software as ids are written: small letters, hyphens for spaces and underscores."""
    return re.sub(r"[\s_]+", "-", name.strip().lower())


def bare(name: str) -> str:
    """Return a name of software in a table without what stands in brackets, its version aside.

    >>> bare("HF Transformers (eager)"), bare("vLLM (0.6.3)")
    ('HF Transformers', 'vLLM (0.6.3)')
    """
    return re.sub(r"\s*\([^)\d]*\)", "", name).strip()


def months(when: str) -> int | None:
    """Return the last month of a date as months since year 0, None where it is none.

    >>> months("2024-07"), months("2024-Q1"), months("2024"), months("lately")
    (24295, 24291, 24300, None)
    """
    found = re.match(r"^(\d{4})(?:-(?:Q([1-4])|(\d{2})))?", when)
    if found is None:
        return None
    month = 3 * int(found[2]) if found[2] else int(found[3]) if found[3] else 12
    return 12 * int(found[1]) + month


def _of_month(profiles: list[dict[str, str]], when: int | None) -> dict[str, str]:
    """Return the first profile whose end lies after a month, the last where none does or no month is given."""
    for one in profiles[:-1]:
        end = months(one["until"])
        if when is not None and end is not None and when < end:
            return one
    return profiles[-1]


@lru_cache(maxsize=1)
def _stand_ins() -> list[Table]:
    return list(_read(ROOT / "software.toml")["stand_in"])


_WORDS = {
    "accelerators": ("device", "devices"),
    "links": ("network", "networks"),
    "servers": ("server", "devices"),
    "models": ("model", "models"),
    "engines": ("engine", "engines"),
    "frameworks": ("framework", "frameworks"),
    "nodes": ("node", "nodes"),
}


@lru_cache(maxsize=1024)
def accelerator(identity: str) -> Accelerator:
    """Return an accelerator by id."""
    return codec.accelerator(_table("accelerators", identity))


@lru_cache(maxsize=1024)
def link(identity: str) -> Link:
    """Return a link by id."""
    return codec.link(_table("links", identity))


@lru_cache(maxsize=1024)
def server(identity: str) -> Server:
    """Return a server by id."""
    return codec.server(_table("servers", identity))


@lru_cache(maxsize=1024)
def engine(identity: str) -> Engine:
    """Return an engine version by id."""
    return codec.engine(_table("engines", identity))


@lru_cache(maxsize=1024)
def framework(identity: str) -> Framework:
    """Return a training framework's version by id."""
    return codec.framework(_table("frameworks", identity))


@lru_cache(maxsize=1)
def failures() -> tuple[dict[str, FailurePreset], Recovery]:
    """Return the presets of failure rates by id, and what an interruption costs."""
    return codec.failures(_read(ROOT / "failures.toml"))


@lru_cache(maxsize=1)
def host_update() -> Sourced:
    """Return the rate at which a host's processors update states in its memory, shared by its devices [B/s]."""
    return codec.host(_read(ROOT / "hosts.toml"))["update"]


@lru_cache(maxsize=1)
def training_rows() -> tuple[dict[str, str], ...]:
    """Return the published training runs that the catalogue carries."""
    with (ROOT / "measured" / "training.csv").open(newline="") as file:
        return tuple(csv.DictReader(file))


@lru_cache(maxsize=1024)
def carbon(place: str) -> Table | None:
    """Return the newest carbon intensity of a place, by its ISO code of three letters, with the ``low`` and ``high`` of all data sets, or None."""
    found = [entry for entry in place_table("carbon") if entry["place"] == place.upper()]
    if not found:
        return None
    values = [float(entry["value"]) for entry in found]
    return {**max(found, key=lambda entry: str(entry["date"])), "low": min(values), "high": max(values)}


def worth(currency: str) -> Table | None:
    """Return what a unit of a currency is worth in USD at the newest rate that the catalogue holds, or None."""
    found = [entry for entry in place_table("currencies") if entry["place"] == currency.upper()]
    return max(found, key=lambda entry: str(entry["date"])) if found else None


@lru_cache(maxsize=1024)
def place_table(name: str) -> tuple[Table, ...]:
    """Return the dated entries of ``electricity``, ``pue``, ``carbon``, ``power`` or ``currencies``."""
    return tuple(_read(ROOT / "places" / f"{name}.toml")["entry"])


@lru_cache(maxsize=1)
def token_prices() -> tuple[Table, ...]:
    """Return the listed prices of hosted models by route [USD/Mtoken]."""
    return tuple(_read(ROOT / "prices" / "tokens.toml")["price"])


@lru_cache(maxsize=1)
def optimizers() -> dict[str, Optimizer]:
    """Return the optimizers by id."""
    return codec.optimizers(_read(ROOT / "optimizers.toml"))


def model_table(identity: str) -> Table:
    """Return a catalogue model: its names, its source and its configuration text."""
    return _table("models", identity)


@lru_cache(maxsize=1024)
def servers_of(device: str) -> tuple[Server, ...]:
    """Return the servers that hold a device, smallest first."""
    return tuple(server(name) for name in index()["servers"].get(device, ()))


@lru_cache(maxsize=1024)
def node(identity: str) -> Node:
    """Return a process by id."""
    return codec.node(_table("nodes", identity))


@lru_cache(maxsize=1024)
def node_of(process: str) -> str | None:
    """Return the id of the node that a data sheet's process, or a name of a node, means, None where it is not known."""
    named = aliases("nodes").get(process.lower())
    return named or next((name for name in ids("nodes") if process in node(name).processes), None)


@lru_cache(maxsize=1024)
def dies(device: str) -> tuple[Die, ...]:
    """Return the dies of a device that its entry lists, none where it lists none."""
    return codec.dies(_table("accelerators", device))


@lru_cache(maxsize=1)
def packaging() -> dict[str, dict[str, Sourced]]:
    """Return what packages, memory, test and boards cost, by section."""
    return codec.packaging(_read(ROOT / "packaging.toml"))


@lru_cache(maxsize=1024)
def prices(device: str) -> tuple[Price, ...]:
    """Return the dated prices of a device, oldest first."""
    path = ROOT / "prices" / f"{device}.toml"
    return codec.prices(_read(path)) if path.is_file() else ()


@lru_cache(maxsize=1)
def sources() -> dict[str, Source]:
    """Return the register of documents."""
    return codec.sources(_read(ROOT / "sources" / "sources.toml"))


def source(key: str) -> Source:
    """Return a document by key; a key outside the register is itself the title."""
    return sources().get(key) or Source(key=key, title=key)


@lru_cache(maxsize=1)
def constants() -> tuple[Constant, ...]:
    """Return all fitted constants."""
    return codec.constants({"constant": index()["constants"]})


@lru_cache(maxsize=1)
def shipped_fit() -> Fit:
    """Return all fitted constants as they ship."""
    return Fit(constants())


@lru_cache(maxsize=1)
def fits() -> tuple[str, ...]:
    """Return the names of the fits."""
    return tuple(sorted(path.stem.removeprefix("fit-") for path in (ROOT / "measured").glob("fit-*.toml")))


@lru_cache(maxsize=1024)
def fit(name: str) -> tuple[Constant, ...]:
    """Return the constants of one fit."""
    return codec.constants(_read(ROOT / "measured" / f"fit-{name}.toml"))


@lru_cache(maxsize=1)
def formats() -> Mapping[str, Table]:
    """Return the weight and cache formats by id."""
    return _read(ROOT / "formats.toml")


def format_named(name: str) -> str:
    """Return the id of a format by one of its names, the name itself where none is its own.

    >>> format_named("int4-awq"), format_named("W4A16"), format_named("q4_k_m")
    ('awq', 'gptq', 'q4_k_m')
    """
    lowered = name.strip().lower()
    return next((found for found, entry in formats().items() if lowered in entry.get("aliases", ())), lowered)


@lru_cache(maxsize=1)
def inference_rows() -> tuple[dict[str, str], ...]:
    """Return the published serving runs that the catalogue carries, flagged ones too."""
    with (ROOT / "measured" / "inference.csv").open(newline="") as file:
        return tuple(csv.DictReader(file))


@lru_cache(maxsize=256)
def measured_systems(figure: str, without: frozenset[str] = frozenset()) -> frozenset[System]:
    """Return the systems of the runs behind the constants that tell a figure, some of them left out by a name of their `Origin`."""
    return frozenset(origin.system for origin in _origins().get(figure, ()) if without.isdisjoint(origin.names))


SYSTEMS = ROOT / "measured" / "systems.csv"
"""Figures that the runs behind the constants measured, by publisher, device and system; written with the fits."""


def forget_systems() -> None:
    """Read them anew: they were written again."""
    _origins.cache_clear()
    measured_systems.cache_clear()


@lru_cache(maxsize=1)
def _origins() -> dict[str, list[Origin]]:
    """Return where the measured figures are from, by figure."""
    found: dict[str, list[Origin]] = {}
    with SYSTEMS.open(newline="") as file:
        for figure, source, chip, *system in csv.reader(file):
            found.setdefault(figure, []).append(Origin(source=source, chip=chip, system=System(*system)))
    return found


def hub_cache() -> Path:
    """Return the folder where Hub clients keep downloads."""
    for variable, tail in (("HF_HUB_CACHE", ""), ("HF_HOME", "hub")):
        if os.environ.get(variable):
            return Path(os.environ[variable]) / tail
    return Path.home() / ".cache" / "huggingface" / "hub"


def version() -> str:
    """Return the newest date any catalogue file was seen, which names this edition."""
    table = json.loads((ROOT / "edition.json").read_text())
    return str(table["edition"])


@lru_cache(maxsize=1024)
def machine_parts(device: str) -> tuple[Link | None, Link | None]:
    """Return the scale-up link and the host link of a device."""
    found = accelerator(device)
    return (link(found.scale_up) if found.scale_up else None, link(found.host_link) if found.host_link else None)


def prices_to() -> str:
    """Return the month of the newest price in the book."""
    return max(p.date for name in ids("accelerators") for p in prices(name) if len(p.date) >= 7)[:7]
