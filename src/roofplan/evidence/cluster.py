"""The machine of a training run: its devices, hosts and network, as a row states them or as they are sold."""

from __future__ import annotations

import re
from dataclasses import replace

from roofplan import catalogue
from roofplan.catalogue.machines import LARGEST_BOX, machine, ports_as_sold
from roofplan.errors import RoofplanError
from roofplan.evidence.models import counted, device_of, is_path
from roofplan.evidence.rows import Assumed, Row, Skipped, number
from roofplan.records.hardware import Link, Machine
from roofplan.records.source import Sourced

NETWORK = re.compile(
    r"(?:([1-9]\d*)\s*x\s*)?(\d+(?:\.\d+)?)\s*([GT])(b|B)(?:it)?(?:/s|ps)?\b(?:\s*per\s*(node|host|GPU|gpu|device|chip))?"
)
"""A network rate: ports, rate per port, and what it is per."""


def machine_of(row: Row, assumed: Assumed) -> Machine:
    """Return the machine of a row: devices, devices per node, and the stated network, else the one it is sold with.

    Nodes of racks and pods share one scale-up fabric, so that the number of their devices divides nothing.
    """
    device, whole = device_of(row, assumed), number(row, "accelerators_total") or counted(row)[1]
    if whole is None:
        raise Skipped("number of devices not stated")
    text, per_node = row.get("interconnect", ""), number(row, "devices_per_node")
    racked = not is_path(device) and catalogue.accelerator(device).domain > LARGEST_BOX
    joined = re.search(r"NVL(\d+)", text)
    most = int(joined[1]) if joined else None if racked or per_node is None else int(per_node)
    base = _on_bus(machine_of_count(device, int(whole), most), text)
    if base.network is None:
        return base
    beyond = text.partition(";")[2]
    clauses = re.split(r"[;,]\s", text)
    said = beyond.strip() or next((one for one in clauses if named_network(one)), "")
    said = said or next((one for one in clauses if OUTSIDE.search(one) and not INSIDE.search(one)), "")
    named, rate = named_network(said), NETWORK.search(said)
    alone = rate is not None and named is not None and not (rate[1] or rate[5]) and _rate(rate) == named.bandwidth
    if rate is None or alone:
        sold = base if named is None else _sold_with(base, named)
        unread = text if named is None and text and (said or not INSIDE.search(text)) else ""
        unknown = f"{unread!r} is not known, " if unread else ""
        if named is None or sold.ports > 1:  # one port is a plain adapter, whose name is its rate
            assumed.add(
                f"network: {unknown}{sold.ports} x {(named or base.network).id} a host, {default_network(base)}",
                "network",
            )
        return sold
    each = (rate[5] or "").lower() in {"gpu", "device", "chip"}
    node = per_node if racked and per_node else base.per_host  # the trays of a rack are its nodes
    total = int(rate[1] or 1) * _rate(rate) * base.per_host / (1.0 if each else node)
    link = named or base.network
    ports = max(1, round(total / link.bandwidth))
    stated = Sourced(value=total / ports, unit="B/s", text=rate[0], source=row["id"], seen="", kind="given")
    network = replace(link, quantities={**link.quantities, "bandwidth": stated})
    return replace(base, network=network, ports=ports)


INSIDE = re.compile(
    r"\b(?:nv[\s-]?link|nvswitch|nvl|pcie|xgmi|infinity fabric|ici|hccs|neuronlink)[\w.\s-]*", re.IGNORECASE
)
"""Links inside a host or a rack, which say nothing of the network."""


OUTSIDE = re.compile(r"\d\s*[GT]b(?:it)?(?:/s|ps)|\d\s*[GT]B/s")
"""A rate that says that it is one; a bare 80GB is memory."""


def _rate(found: re.Match[str]) -> float:
    """Return the rate of a port that `NETWORK` found [B/s]."""
    return float(found[2]) * (1e12 if found[3] == "T" else 1e9) / (8.0 if found[4] == "b" else 1.0)


def _sold_with(base: Machine, network: Link) -> Machine:
    """Return a machine with another network, and as many ports of it as its hosts are sold with."""
    return replace(base, network=network, ports=ports_as_sold(network, base.device, base.server, base.per_host))


def named_network(text: str) -> Link | None:
    """Return the network that a text names by one of its words, None where it names none or several."""
    words = re.split(r"[\s,;()/]+", re.sub(r"(\d)\s+gbe\b", r"\1gbe", text.lower()))
    found = {name for word in words if (name := catalogue.aliases("links").get(word)) is not None}
    known = [link for link in map(catalogue.link, found) if link.kind == "network"]
    return known[0] if len(known) == 1 else None


def machine_of_count(device: str, count: int, most: int | None = None) -> Machine:
    """Return a machine of `count` devices, with its default network or `UNSOLD`.

    Parameters
    ----------
    device : id of the device, or path of its file.
    count : devices [1].
    most : largest number of devices in a host, None for hosts as they are sold [1].

    Returns
    -------
    The machine.

    Raises
    ------
    Skipped : no such machine can be built.
    """
    hosts = 0 if most is None else next(n for n in range(-(-count // most), count + 1) if count % n == 0)
    if most is not None and hosts > 1 and 2 * (count // hosts) < most:
        raise Skipped(f"{count} devices do not fill hosts of {most}")
    parts = f"{hosts}x{count // hosts}" if hosts > 1 else str(count)
    try:
        try:
            found = machine(f"{device}:{parts}")[0]
        except RoofplanError as error:
            if error.code != "network_missing":
                raise
            found = machine(f"{device}:{parts}@{UNSOLD}")[0]
            found = replace(found, ports=found.per_host)
    except RoofplanError as error:
        raise Skipped(str(error)) from None
    return replace(found, hosts=1, per_host=count, network=None) if hosts == 1 else found


def default_network(found: Machine) -> str:
    """Return why a machine of `machine_of_count` has its network.

    Parameters
    ----------
    found : the machine.

    Returns
    -------
    The reason, for a list of what is assumed.
    """
    return f"as no server of {found.device.id} has one" if found.network_name else "as it is sold"


UNSOLD = "ib-hdr"
"""Network of hosts that the catalogue has no network for: a port of 200 Gb/s per device."""


OLD_BOARD = "pcie3-x16"
"""Link of cards on an older board: one PCIe generation below that of cards since 2020."""


def _on_bus(base: Machine, text: str) -> Machine:
    """Return a machine with the PCIe bus that a row states, where it states one."""
    stated = re.match(r"pcie(\d) x(\d+)", text)
    name = f"pcie{stated[1]}-x{stated[2]}" if stated else OLD_BOARD if text.startswith("pcie (old board") else None
    if name is None or name not in catalogue.ids("links"):
        return base
    return replace(base, host_link=catalogue.link(name))
