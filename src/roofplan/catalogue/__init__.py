"""The catalogue: accelerators, links, servers, models, engines, prices, formats, fitted constants and sources.

The data are TOML files, one per thing. A file is read when it is first asked for.
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
    """Return the ids of a kind, which are its file names.

    Parameters
    ----------
    kind : folder of the catalogue, such as ``accelerators``, ``links``, ``servers``, ``models`` or ``engines``.

    Returns
    -------
    The ids in alphabetical order, none for an unknown kind.
    """
    return tuple(sorted(path.stem for path in (ROOT / kind).glob("*.toml")))


@lru_cache(maxsize=1024)
def _table(kind: str, identity: str) -> Table:
    return _read(ROOT / kind / f"{identity}.toml")


@lru_cache(maxsize=1024)
def aliases(kind: str) -> dict[str, str]:
    """Return the mapping from alias to id of a kind; each id maps to itself.

    Parameters
    ----------
    kind : ``accelerators``, ``links``, ``servers``, ``models``, ``engines``, ``frameworks`` or ``nodes``.

    Returns
    -------
    Alias in lower case -> id.

    Raises
    ------
    KeyError : any other kind.
    """
    return dict(index()["aliases"][kind])


@lru_cache(maxsize=1)
def index() -> Table:
    """Return the index file, which `indexed` computes.

    It holds what would otherwise need many files: aliases, the servers of each device, and fitted constants.
    """
    found: Table = json.loads((ROOT / "index.json").read_text())
    return found


def indexed() -> Table:
    """Return the index computed from the files."""
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
"""Characters of a name that are looked up and repeated in a message [1]."""


def find(kind: str, name: str, argument: str) -> str:
    """Return the id that a name means.

    Parameters
    ----------
    kind : as of `aliases`.
    name : id or alias, or software that another profile stands in for.
    argument : flag or field that the name was given for, as a refusal names it.

    Returns
    -------
    The id.

    Raises
    ------
    UnknownName : the catalogue has no such name; carries the nearest ones.
    """
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
    """The profile that software without a profile of its own is planned as.

    Parameters
    ----------
    name : name of the software.
    id : id of the profile.
    why : reason for the choice.
    own : whether the profile is another release of the same software.
    """

    name: str
    id: str
    why: str
    own: bool = False

    @property
    def text(self) -> str:
        """The substitution in one line."""
        return f"{self.name}: planned as {self.id}; {self.why}"


def stand_in(kind: str, name: str, month: str = "") -> StandIn | None:
    """Return the profile that stands in for software, None where none does.

    Parameters
    ----------
    kind : ``engines`` or ``frameworks``.
    name : name of the software, in any spelling that `hyphened` accepts.
    month : date of the run, as `months` reads it; empty for the newest profile.

    Returns
    -------
    The stand-in, None where the catalogue lists none. Without a month, also None for an id or alias of a profile.

    Examples
    --------
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
    """Return a software name in the spelling of ids: lower case, with hyphens for spaces and underscores.

    Parameters
    ----------
    name : name of the software.

    Returns
    -------
    The name as ids are written.
    """
    return re.sub(r"[\s_]+", "-", name.strip().lower())


def bare(name: str) -> str:
    """Return a software name from a table without remarks in brackets; a version in brackets stays.

    Parameters
    ----------
    name : name as the table has it.

    Returns
    -------
    The name without brackets that hold no digit.

    Examples
    --------
    >>> bare("HF Transformers (eager)"), bare("vLLM (0.6.3)")
    ('HF Transformers', 'vLLM (0.6.3)')
    """
    return re.sub(r"\s*\([^)\d]*\)", "", name).strip()


def months(when: str) -> int | None:
    """Return the last month that a date can mean, None where the text is no date.

    Parameters
    ----------
    when : year, quarter, month or day, such as ``2024``, ``2024-Q1`` or ``2024-07``.

    Returns
    -------
    Months since year 0 [1], None where the text does not begin with a year.

    Examples
    --------
    >>> months("2024-07"), months("2024-Q1"), months("2024"), months("lately")
    (24295, 24291, 24300, None)
    """
    found = re.match(r"^(\d{4})(?:-(?:Q([1-4])|(\d{2})))?", when)
    if found is None:
        return None
    month = 3 * int(found[2]) if found[2] else int(found[3]) if found[3] else 12
    return 12 * int(found[1]) + month


def _of_month(profiles: list[dict[str, str]], when: int | None) -> dict[str, str]:
    """Return the first profile that ends after a month, the last one where none does or no month is given."""
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
    """Return an accelerator by id.

    Parameters
    ----------
    identity : id of the accelerator.

    Returns
    -------
    The accelerator.

    Raises
    ------
    FileNotFoundError : the catalogue has no such id.
    """
    return codec.accelerator(_table("accelerators", identity))


@lru_cache(maxsize=1024)
def link(identity: str) -> Link:
    """Return a link by id.

    Parameters
    ----------
    identity : id of the link.

    Returns
    -------
    The link.

    Raises
    ------
    FileNotFoundError : the catalogue has no such id.
    """
    return codec.link(_table("links", identity))


@lru_cache(maxsize=1024)
def server(identity: str) -> Server:
    """Return a server by id.

    Parameters
    ----------
    identity : id of the server.

    Returns
    -------
    The server.

    Raises
    ------
    FileNotFoundError : the catalogue has no such id.
    """
    return codec.server(_table("servers", identity))


@lru_cache(maxsize=1024)
def engine(identity: str) -> Engine:
    """Return an engine version by id.

    Parameters
    ----------
    identity : id of the engine version.

    Returns
    -------
    The engine version.

    Raises
    ------
    FileNotFoundError : the catalogue has no such id.
    """
    return codec.engine(_table("engines", identity))


@lru_cache(maxsize=1024)
def framework(identity: str) -> Framework:
    """Return a version of a training framework by id.

    Parameters
    ----------
    identity : id of the framework version.

    Returns
    -------
    The framework version.

    Raises
    ------
    FileNotFoundError : the catalogue has no such id.
    """
    return codec.framework(_table("frameworks", identity))


@lru_cache(maxsize=1)
def failures() -> tuple[dict[str, FailurePreset], Recovery]:
    """Return the presets of failure rates by id, and the costs of an interruption.

    Returns
    -------
    The presets by id, and the costs of an interruption.
    """
    return codec.failures(_read(ROOT / "failures.toml"))


@lru_cache(maxsize=1)
def host_update() -> Sourced:
    """Return the rate at which the processors of a host update optimizer states in host memory.

    Returns
    -------
    The rate, shared by the devices of the host [B/s].
    """
    return codec.host(_read(ROOT / "hosts.toml"))["update"]


@lru_cache(maxsize=1)
def training_rows() -> tuple[dict[str, str], ...]:
    """Return the published training runs of the catalogue.

    Returns
    -------
    The rows of the table, each as column -> text.
    """
    with (ROOT / "measured" / "training.csv").open(newline="") as file:
        return tuple(csv.DictReader(file))


@lru_cache(maxsize=1024)
def carbon(place: str) -> Table | None:
    """Return the newest carbon intensity of a place, with bounds over all data sets.

    Parameters
    ----------
    place : ISO 3166 code of three letters.

    Returns
    -------
    The newest entry with the lowest and highest of all values as ``low`` and ``high`` [gCO2/kWh], None for an unknown place.
    """
    found = [entry for entry in place_table("carbon") if entry["place"] == place.upper()]
    if not found:
        return None
    values = [float(entry["value"]) for entry in found]
    return {**max(found, key=lambda entry: str(entry["date"])), "low": min(values), "high": max(values)}


def worth(currency: str) -> Table | None:
    """Return the newest exchange rate of a currency, None where the catalogue has none.

    Parameters
    ----------
    currency : ISO 4217 code.

    Returns
    -------
    The newest entry, its ``value`` being one unit of the currency [USD]; None where there is none.
    """
    found = [entry for entry in place_table("currencies") if entry["place"] == currency.upper()]
    return max(found, key=lambda entry: str(entry["date"])) if found else None


@lru_cache(maxsize=1024)
def place_table(name: str) -> tuple[Table, ...]:
    """Return the dated entries of a table of places.

    Parameters
    ----------
    name : ``electricity``, ``pue``, ``carbon``, ``power`` or ``currencies``.

    Returns
    -------
    The entries in the order of the file.

    Raises
    ------
    FileNotFoundError : any other name.
    """
    return tuple(_read(ROOT / "places" / f"{name}.toml")["entry"])


@lru_cache(maxsize=1)
def token_prices() -> tuple[Table, ...]:
    """Return the list prices of hosted models, one entry per route.

    Returns
    -------
    The entries, with ``input`` and ``output`` prices [USD/Mtoken].
    """
    return tuple(_read(ROOT / "prices" / "tokens.toml")["price"])


@lru_cache(maxsize=1)
def optimizers() -> dict[str, Optimizer]:
    """Return the optimizers by id.

    Returns
    -------
    Id -> optimizer.
    """
    return codec.optimizers(_read(ROOT / "optimizers.toml"))


def model_table(identity: str) -> Table:
    """Return the entry of a catalogue model: names, source and configuration text.

    Parameters
    ----------
    identity : id of the model.

    Returns
    -------
    The entry, its configuration text under ``config``.

    Raises
    ------
    FileNotFoundError : the catalogue has no such id.
    """
    return _table("models", identity)


@lru_cache(maxsize=1024)
def servers_of(device: str) -> tuple[Server, ...]:
    """Return the servers that hold a device, smallest first.

    Parameters
    ----------
    device : id of the accelerator.

    Returns
    -------
    The servers by device count, none where no server holds the device.
    """
    return tuple(server(name) for name in index()["servers"].get(device, ()))


@lru_cache(maxsize=1024)
def node(identity: str) -> Node:
    """Return a process node by id.

    Parameters
    ----------
    identity : id of the node.

    Returns
    -------
    The node.

    Raises
    ------
    FileNotFoundError : the catalogue has no such id.
    """
    return codec.node(_table("nodes", identity))


@lru_cache(maxsize=1024)
def node_of(process: str) -> str | None:
    """Return the id of the process node that a name means, None where it is unknown.

    Parameters
    ----------
    process : process as a data sheet names it, or an id or alias of a node.

    Returns
    -------
    The id of the node, None where no node has that name.
    """
    named = aliases("nodes").get(process.lower())
    return named or next((name for name in ids("nodes") if process in node(name).processes), None)


@lru_cache(maxsize=1024)
def dies(device: str) -> tuple[Die, ...]:
    """Return the dies that the entry of a device lists.

    Parameters
    ----------
    device : id of the accelerator.

    Returns
    -------
    The dies, none where the entry lists none.

    Raises
    ------
    FileNotFoundError : the catalogue has no such id.
    """
    return codec.dies(_table("accelerators", device))


@lru_cache(maxsize=1)
def packaging() -> dict[str, dict[str, Sourced]]:
    """Return the costs of packages, memory, test and boards.

    Returns
    -------
    Section -> name -> number; a memory generation has its own section, such as ``memory.HBM3``.
    """
    return codec.packaging(_read(ROOT / "packaging.toml"))


@lru_cache(maxsize=1024)
def prices(device: str) -> tuple[Price, ...]:
    """Return the dated price quotes of a device, oldest first.

    Parameters
    ----------
    device : id of the accelerator.

    Returns
    -------
    The quotes, none where the catalogue has none.
    """
    path = ROOT / "prices" / f"{device}.toml"
    return codec.prices(_read(path)) if path.is_file() else ()


@lru_cache(maxsize=1)
def sources() -> dict[str, Source]:
    """Return the register of documents by key."""
    return codec.sources(_read(ROOT / "sources" / "sources.toml"))


def source(key: str) -> Source:
    """Return a document by key.

    Parameters
    ----------
    key : key in the register, or a title.

    Returns
    -------
    The document; for a key outside the register, one with the key as its title.
    """
    return sources().get(key) or Source(key=key, title=key)


@lru_cache(maxsize=1)
def constants() -> tuple[Constant, ...]:
    """Return all shipped fitted constants.

    Returns
    -------
    The constants of all fits.
    """
    return codec.constants({"constant": index()["constants"]})


@lru_cache(maxsize=1)
def shipped_fit() -> Fit:
    """Return the fit of all shipped constants.

    Returns
    -------
    The fit.
    """
    return Fit(constants())


@lru_cache(maxsize=1)
def fits() -> tuple[str, ...]:
    """Return the names of the shipped fits.

    Returns
    -------
    The names in alphabetical order.
    """
    return tuple(sorted(path.stem.removeprefix("fit-") for path in (ROOT / "measured").glob("fit-*.toml")))


@lru_cache(maxsize=1024)
def fit(name: str) -> tuple[Constant, ...]:
    """Return the constants of one shipped fit.

    Parameters
    ----------
    name : name of the fit, one of `fits`.

    Returns
    -------
    The constants.

    Raises
    ------
    FileNotFoundError : there is no such fit.
    """
    return codec.constants(_read(ROOT / "measured" / f"fit-{name}.toml"))


@lru_cache(maxsize=1)
def formats() -> Mapping[str, Table]:
    """Return the weight and cache formats by id.

    Returns
    -------
    Id -> entry.
    """
    return _read(ROOT / "formats.toml")


def format_named(name: str) -> str:
    """Return the id of the format that a name means.

    Parameters
    ----------
    name : id or alias of a format, in any case.

    Returns
    -------
    The id; the name in lower case where it is no alias.

    Examples
    --------
    >>> format_named("int4-awq"), format_named("W4A16"), format_named("q4_k_m")
    ('awq', 'gptq', 'q4_k_m')
    """
    lowered = name.strip().lower()
    return next((found for found, entry in formats().items() if lowered in entry.get("aliases", ())), lowered)


@lru_cache(maxsize=1)
def inference_rows() -> tuple[dict[str, str], ...]:
    """Return the published serving runs of the catalogue, flagged ones included.

    Returns
    -------
    The rows of the table, each as column -> text.
    """
    with (ROOT / "measured" / "inference.csv").open(newline="") as file:
        return tuple(csv.DictReader(file))


@lru_cache(maxsize=256)
def measured_systems(figure: str, without: frozenset[str] = frozenset()) -> frozenset[System]:
    """Return the systems with measured runs behind the constants of a figure.

    Parameters
    ----------
    figure : figure that is predicted, such as ``time per token``.
    without : names of an `Origin` whose runs do not count.

    Returns
    -------
    The systems, none for an unknown figure.
    """
    return frozenset(origin.system for origin in _origins().get(figure, ()) if without.isdisjoint(origin.names))


SYSTEMS = ROOT / "measured" / "systems.csv"
"""Measured figures behind the constants, by publisher, device and system; written together with the fits."""


def forget_systems() -> None:
    """Drop the cached table of measured systems after its file was rewritten."""
    _origins.cache_clear()
    measured_systems.cache_clear()


@lru_cache(maxsize=1)
def _origins() -> dict[str, list[Origin]]:
    """Return the origins of the measurements, by figure."""
    found: dict[str, list[Origin]] = {}
    with SYSTEMS.open(newline="") as file:
        for figure, source, chip, *system in csv.reader(file):
            found.setdefault(figure, []).append(Origin(source=source, chip=chip, system=System(*system)))
    return found


def hub_cache() -> Path:
    """Return the folder in which Hub clients keep downloads.

    Returns
    -------
    The path by ``HF_HUB_CACHE`` or ``HF_HOME``, else the clients' default; it need not exist.
    """
    for variable, tail in (("HF_HUB_CACHE", ""), ("HF_HOME", "hub")):
        if os.environ.get(variable):
            return Path(os.environ[variable]) / tail
    return Path.home() / ".cache" / "huggingface" / "hub"


def version() -> str:
    """Return the edition of the catalogue, the newest date on which any of its files was seen.

    Returns
    -------
    ISO date of the edition.
    """
    table = json.loads((ROOT / "edition.json").read_text())
    return str(table["edition"])


@lru_cache(maxsize=1024)
def machine_parts(device: str) -> tuple[Link | None, Link | None]:
    """Return the scale-up link and the host link of a device, None for each that it lacks."""
    found = accelerator(device)
    return (link(found.scale_up) if found.scale_up else None, link(found.host_link) if found.host_link else None)


def prices_to() -> str:
    """Return the month of the newest price quote of the catalogue.

    Returns
    -------
    The month, such as ``2026-11``.
    """
    return max(p.date for name in ids("accelerators") for p in prices(name) if len(p.date) >= 7)[:7]
