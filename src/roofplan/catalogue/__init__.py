"""The catalogue: accelerators, links, servers, models, engines, prices, formats, fitted constants and sources.

The data are TOML files, one per thing. A file is read when it is first asked for.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from roofplan.catalogue import codec
from roofplan.catalogue.codec import Table
from roofplan.catalogue.files import ROOT as ROOT
from roofplan.catalogue.files import ids as ids
from roofplan.catalogue.files import read, table
from roofplan.catalogue.files import rows as rows
from roofplan.catalogue.names import LONGEST_NAME as LONGEST_NAME
from roofplan.catalogue.names import WORDS
from roofplan.catalogue.names import StandIn as StandIn
from roofplan.catalogue.names import aliases as aliases
from roofplan.catalogue.names import bare as bare
from roofplan.catalogue.names import described as described
from roofplan.catalogue.names import find as find
from roofplan.catalogue.names import hyphened as hyphened
from roofplan.catalogue.names import index as index
from roofplan.catalogue.names import misspelt as misspelt
from roofplan.catalogue.names import months as months
from roofplan.catalogue.names import spelt as spelt
from roofplan.catalogue.names import stand_in as stand_in
from roofplan.catalogue.names import undescribed as undescribed
from roofplan.catalogue.published import blind_rows as blind_rows
from roofplan.catalogue.published import inference_rows as inference_rows
from roofplan.catalogue.published import mlperf as mlperf
from roofplan.catalogue.published import training_rows as training_rows
from roofplan.errors import UnknownName as UnknownName
from roofplan.errors import nearest as nearest
from roofplan.records.calibration import Constant, Fit
from roofplan.records.engine import Engine
from roofplan.records.hardware import Accelerator, Link, Server
from roofplan.records.pool import PoolRules, RecordedProof
from roofplan.records.prices import Price
from roofplan.records.silicon import Die, Node
from roofplan.records.source import Source, Sourced
from roofplan.records.system import Origin, System
from roofplan.records.training import FailurePreset, Framework, Optimizer, Recovery


def indexed() -> Table:
    """Return the index computed from the files."""
    names: dict[str, dict[str, str]] = {}
    for kind in WORDS:
        names[kind] = {identity: identity for identity in ids(kind)}
        for identity in ids(kind):
            names[kind] |= {str(alias).lower(): identity for alias in table(kind, identity).get("aliases", ())}
    boxes: dict[str, list[str]] = {}
    for found in sorted((server(name) for name in ids("servers")), key=lambda s: (s.count, s.id)):
        boxes.setdefault(found.accelerator, []).append(found.id)
    constants = [asdict(item) for name in fits() for item in fit(name)]
    return {"aliases": names, "servers": boxes, "constants": constants}


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
    return codec.accelerator(table("accelerators", identity))


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
    return codec.link(table("links", identity))


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
    return codec.server(table("servers", identity))


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
    return codec.engine(table("engines", identity))


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
    return codec.framework(table("frameworks", identity))


@lru_cache(maxsize=1)
def failures() -> tuple[dict[str, FailurePreset], Recovery]:
    """Return the presets of failure rates by id, and the costs of an interruption.

    Returns
    -------
    The presets by id, and the costs of an interruption.
    """
    return codec.failures(read(ROOT / "failures.toml"))


@lru_cache(maxsize=1)
def host_update() -> Sourced:
    """Return the rate at which the processors of a host update optimizer states in host memory.

    Returns
    -------
    The rate, shared by the devices of the host [B/s].
    """
    return codec.host(read(ROOT / "hosts.toml"))["update"]


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
    return tuple(read(ROOT / "places" / f"{name}.toml")["entry"])


@lru_cache(maxsize=1)
def token_prices() -> tuple[Table, ...]:
    """Return the list prices of hosted models, one entry per route.

    Returns
    -------
    The entries, with ``input`` and ``output`` prices [USD/Mtoken].
    """
    return tuple(read(ROOT / "prices" / "tokens.toml")["price"])


@lru_cache(maxsize=1)
def pools() -> PoolRules:
    """Return the software that joins the members of a pool, what is assumed of members, and margins.

    Returns
    -------
    The rules of pools.
    """
    return codec.pools(read(ROOT / "pools.toml"))


@lru_cache(maxsize=1)
def proofs() -> tuple[RecordedProof, ...]:
    """Return what runs of ``roofplan pool prove`` measured over shaped links.

    Returns
    -------
    The runs.
    """
    return codec.proofs(read(ROOT / "measured" / "pool-proofs.toml"))


@lru_cache(maxsize=1)
def optimizers() -> dict[str, Optimizer]:
    """Return the optimizers by id.

    Returns
    -------
    Id -> optimizer.
    """
    return codec.optimizers(read(ROOT / "optimizers.toml"))


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
    return table("models", identity)


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
    return codec.node(table("nodes", identity))


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
    return codec.dies(table("accelerators", device))


@lru_cache(maxsize=1)
def packaging() -> dict[str, dict[str, Sourced]]:
    """Return the costs of packages, memory, test and boards.

    Returns
    -------
    Section -> name -> number; a memory generation has its own section, such as ``memory.HBM3``.
    """
    return codec.packaging(read(ROOT / "packaging.toml"))


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
    return codec.prices(read(path)) if path.is_file() else ()


@lru_cache(maxsize=1)
def sources() -> dict[str, Source]:
    """Return the register of documents by key."""
    return codec.sources(read(ROOT / "sources" / "sources.toml"))


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
    return codec.constants(read(ROOT / "measured" / f"fit-{name}.toml"))


@lru_cache(maxsize=1)
def formats() -> Mapping[str, Table]:
    """Return the weight and cache formats by id.

    Returns
    -------
    Id -> entry.
    """
    return read(ROOT / "formats.toml")


def format_entry(format_id: str) -> Table:
    """Return the catalogue entry of a format, without its group suffix.

    Parameters
    ----------
    format_id : number format of weights or cache, such as ``fp8`` or ``awq-g64``.

    Returns
    -------
    Entry of the catalogue.
    """
    return formats()[without_group(format_id)]


def without_group(format_id: str) -> str:
    """Return the id of a format without the suffix that names the size of its groups.

    Parameters
    ----------
    format_id : such as ``awq-g64`` or ``int8-channel``.

    Returns
    -------
    The id, which need not be the catalogue's.
    """
    return format_id.partition("-g")[0].removesuffix("-channel")


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
    found = json.loads((ROOT / "edition.json").read_text())
    return str(found["edition"])


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
