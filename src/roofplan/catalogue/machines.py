"""Machines from texts of the form ``ID[:COUNT | :HOSTSxPER][@NETWORK[xN]]``."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from roofplan import catalogue
from roofplan.catalogue.names import meant_otherwise
from roofplan.errors import InputError, UnknownName, nearest
from roofplan.records.hardware import OWN, Accelerator, Link, Machine, Server
from roofplan.records.source import Sourced

LARGEST_BOX = 16
"""Most devices of an ordinary server; larger ones are racks or pods, which a count without hosts does not mean [1]."""

MOST_DEVICES = 1_048_576
"""Most devices of a machine that is planned [1]."""

_FORM = re.compile(r"-(sxm\d?|pcie|nvl)(?=-|$)")
"""Form of a device in its id: a module on a board, a card, or a card with bridges."""

_SPEC = re.compile(r"^(?P<id>.+?\.toml|[^:@]+?)(?::(?P<count>[^@]*))?(?:@(?P<network>.+))?$")


def machine(text: str, argument: str = "--on") -> list[Machine]:
    """Return the machines that a DEVICE text means.

    Parameters
    ----------
    text : ``ID[:COUNT|:HOSTSxPER][@NETWORK[xPORTS]]``, or ``COUNTxID``.
    argument : flag that the text was given for, as a refusal names it.

    Returns
    -------
    One machine; for a device without a count, one per size from one device to a full server.

    Raises
    ------
    UnknownName : the device or network is not in the catalogue.
    InputError : counts that cannot be read, are zero, too large or do not fill whole hosts; no link or network that joins the devices.
    """
    if "+" in text:
        raise InputError(
            f"{argument}: {text}: pools of mixed devices are not planned yet; repeat {argument} to let machines compete",
            code="mixed_pool",
            argument=argument,
            value=text,
        )
    if "," in text:
        written = f" {argument} ".join(shlex.quote(one.strip()) for one in text.split(","))
        raise InputError(f"{argument}: cannot read {text!r}; write {argument} {written}", argument=argument, value=text)
    turned = re.fullmatch(r"(\d+)\s*[xX*]\s*([A-Za-z][^:@]*)(@.*)?", text.strip())
    match = _SPEC.match(f"{turned[2].strip()}:{turned[1]}{turned[3] or ''}" if turned else text.strip())
    if not match:
        raise InputError(
            f"{argument}: cannot read {text!r}. Example: h100-sxm:8 or rtx-4090:8x1@10gbe",
            argument=argument,
            value=text,
        )
    name = match["id"].strip()
    device, server = device_or_server(name, argument)
    network, ports = _network(match["network"], argument)
    if match["count"] is None and server is not None:
        found = [_built(device, 1, server.count, server, network, ports, text)]
    elif match["count"] is None:
        called = name if device.status == OWN else device.id
        found = [_built(device, 1, size, None, network, ports, f"{called}:{size}") for size in sizes(device)]
    else:
        hosts, per_host = _counts(match["count"], device, server, text, argument)
        found = [_built(device, hosts, per_host, server, network, ports, text)]
    written = match["network"] or ""
    return [replace(one, named_server=server, name=name, network_name=written) for one in found]


def accelerator(name: str, argument: str) -> Accelerator:
    """Return the accelerator that a name or a user's TOML file means.

    Parameters
    ----------
    name : catalogue id or alias, or path of a file that ends in ``.toml``.
    argument : flag that the name was given for, as a refusal names it.

    Returns
    -------
    The accelerator.

    Raises
    ------
    UnknownName : the accelerator is not in the catalogue.
    InputError : a server's name, an invalid file, or a file with an unknown architecture or an id of the catalogue.
    """
    if not name.endswith(".toml"):
        boxed = None if catalogue.spelt("accelerators", name) else catalogue.spelt("servers", name)
        if boxed is not None:
            inside = catalogue.server(boxed).accelerator
            raise InputError(
                f"{argument}: {name} is a server; its device is {inside}",
                argument=argument,
                value=name,
                nearest=[inside],
            )
        return catalogue.accelerator(catalogue.find("accelerators", name, argument))
    from roofplan.catalogue.own_device import user_accelerator

    own = user_accelerator(Path(name))
    known = {catalogue.accelerator(other).architecture for other in catalogue.ids("accelerators")}
    if own.architecture and own.architecture not in known:
        raise InputError(
            f"{name}: architecture {own.architecture!r} is none of the catalogue's; leave it out for the median of all",
            argument="architecture",
            value=own.architecture,
            nearest=nearest(own.architecture, known),
        )
    if own.id in catalogue.ids("accelerators"):
        raise InputError(
            f"{name}: id {own.id!r} is the catalogue's; give your device another", argument="id", value=own.id
        )
    return own


def device_or_server(name: str, argument: str) -> tuple[Accelerator, Server | None]:
    """Return the accelerator that a name means, and the server where the name is a server's.

    Parameters
    ----------
    name : id or alias of an accelerator or a server, or path of a user's TOML file.
    argument : flag that the name was given for, as a refusal names it.

    Returns
    -------
    The accelerator, and the server or None.

    Raises
    ------
    UnknownName : neither is in the catalogue; carries the nearest names.
    InputError : an invalid file.
    """
    if name.endswith(".toml"):
        return accelerator(name, argument), None
    lowered = name.lower()
    boxed = None if catalogue.spelt("accelerators", name) else catalogue.spelt("servers", name)
    if boxed is not None:
        server = catalogue.server(boxed)
        return catalogue.accelerator(server.accelerator), server
    try:
        return catalogue.accelerator(catalogue.find("accelerators", name, argument)), None
    except UnknownName as error:
        names = [*catalogue.ids("accelerators"), *catalogue.ids("servers")]
        near = nearest(lowered[: catalogue.LONGEST_NAME], names)
        digits = re.search(r"\d+", name)
        stem = digits[0] if digits and near else ""
        hint = f" Nearest: {', '.join(near)}." if near else ""
        other = meant_otherwise(name)
        if other is not None:
            near, hint = [other[0], *near], f" {other[1]}"
        raise UnknownName(
            f'{argument}: no device "{name[: catalogue.LONGEST_NAME]}".{hint} List: roofplan devices{f" {stem[:5]}" if stem else ""}',
            code="unknown_device",
            argument=argument,
            value=name[: catalogue.LONGEST_NAME],
            nearest=near,
        ) from error


def _network(text: str | None, argument: str) -> tuple[Link | None, int | None]:
    if text is None:
        return None, None
    name: str = text
    ports: int | None = None
    match = re.match(r"^(.+?)x(\d+)$", text)
    if match and match[1].lower() in catalogue.aliases("links"):
        name, ports = match[1], int(match[2])
    if ports is not None and ports < 1:
        raise InputError(f"{argument}: @{text}: a host needs at least one port", argument=argument, value=text)
    found = catalogue.link(catalogue.find("links", name, argument))
    if found.kind != "network":
        raise InputError(
            f"{argument}: @{name} is a {found.kind} link, not a network. List: roofplan networks",
            argument=argument,
            value=name,
        )
    return found, ports


def tapered(found: Machine, pod: float, taper: float) -> Machine:
    """Return a machine with a tapered network: full rate inside pods, a shared rate between them.

    Parameters
    ----------
    found : the machine.
    pod : devices of a pod [1].
    taper : devices that share the rate of one beyond their pod [1].

    Returns
    -------
    The machine with the tapered network; a machine without a network is returned as it is.

    Raises
    ------
    InputError : a pod that is not a multiple of the devices per host.
    """
    if found.network is None:
        return found
    if pod % found.per_host:
        raise InputError(
            f"--fabric: a pod of {pod:g} devices cuts hosts of {found.per_host}; write a multiple of them",
            argument="--fabric",
            value=f"pod={pod:g}",
        )
    given = {
        name: Sourced(value=value, unit="1", source="given", seen="", kind="given", text=f"{value:g}")
        for name, value in (("pod", pod), ("taper", taper))
    }
    network = replace(found.network, quantities={**found.network.quantities, **given})
    return replace(found, network=network)


def resized(found: Machine, count: int) -> Machine | None:
    """Return a machine with another number of devices of the same kind and the same network.

    Up to a host's devices it is one host; beyond, hosts as full as the machine's where it has several, else as the catalogue
    fills them.

    Parameters
    ----------
    found : the machine.
    count : devices [1].

    Returns
    -------
    The machine, None where that many do not fill whole hosts, are not sold so, or have no network.
    """
    name = found.name or found.device.id
    sold = found.server if found.provider or found.named_server else None
    several = found.hosts > 1 or sold is not None
    if count > found.per_host and several and count % found.per_host:
        return None
    if sold is not None:
        each = f"{count // found.per_host}" if count >= found.per_host else ""
    elif count <= found.per_host or not several:
        each = str(count)
    else:
        each = f"{count // found.per_host}x{found.per_host}"
    joined = found.network_name and count > found.per_host
    try:
        return machine(f"{name}:{each}" + (f"@{found.network_name}" if joined else ""))[0] if each else None
    except InputError:
        return None


def box_size(device: Accelerator) -> int:
    """Return the device count of the largest ordinary server of a device.

    Parameters
    ----------
    device : the accelerator.

    Returns
    -------
    Devices per server, 8 where the catalogue has no server and 1 for Apple devices and laptops [1].
    """
    sizes_known = [s.count for s in catalogue.servers_of(device.id) if s.count <= LARGEST_BOX]
    if device.device_class == "apple" or device.form == "laptop":
        return 1
    return max(sizes_known, default=8)


def sizes(device: Accelerator) -> list[int]:
    """Return the powers of two from one device to a full server [1]."""
    full = box_size(device) if device.scale_up or device.host_link else 1
    return [size for size in (1, 2, 4, 8, 16) if size <= full]


def _counts(text: str, device: Accelerator, server: Server | None, whole: str, argument: str) -> tuple[int, int]:
    match = re.match(r"^(\d+)(?:x(\d+))?$", text.strip())
    if not match:
        raise InputError(
            f"{argument}: {whole}: the count {text!r} is not a whole number. Example: {device.id}:8 or {device.id}:2x8",
            argument=argument,
            value=text,
        )
    first = int(match[1])
    if first < 1 or (match[2] is not None and int(match[2]) < 1):
        raise InputError(f"{argument}: {whole}: a plan needs at least one device", argument=argument, value=text)
    if match[2] is not None:
        if server is not None and int(match[2]) > server.count:
            servers = -(-first * int(match[2]) // server.count)
            message = (
                f"{argument}: {whole}: a {server.id} holds {server.count} {device.id}; write {server.id}:{servers}"
            )
            raise InputError(message, argument=argument, value=text)
        return first, int(match[2])
    if server is not None:
        return first, server.count
    box, full = box_size(device), _together(device)
    if first > MOST_DEVICES:
        return first, 1  # refused in `_built`
    racks = device.domain > LARGEST_BOX
    parts = ((n, first // n) for n in range(-(-first // full), first + 1) if first % n == 0)
    hosts = next((n for n, each in parts if (2 * each >= full if racks else each % box == 0)), 0)
    if first > full and not hosts:
        size = full if racks else box
        raise InputError(
            f"{argument}: {first} {device.id} do not fill {'equal racks' if racks else 'whole hosts'} of {size}; write HOSTSxPER, such as {device.id}:{-(-first // size)}x{size}",
            argument=argument,
            value=text,
        )
    return (1, first) if first <= full else (hosts, first // hosts)


LARGEST_RACK = 72
"""Most devices that a switched scale-up fabric joins; a torus may join more [1]."""


def _together(device: Accelerator) -> int:
    """Return the devices that scale-up links join as one host: a server, a rack, or a slice of a torus [1]."""
    torus = device.scale_up in catalogue.ids("links") and catalogue.link(device.scale_up).topology == "torus"
    joined = device.domain if torus else min(device.domain, LARGEST_RACK)
    return max(box_size(device), joined if device.domain > LARGEST_BOX else 0)


def other_form(device: str) -> str | None:
    """Return the device of another form that goes by the same name.

    Parameters
    ----------
    device : id of a device.

    Returns
    -------
    Its id, a card before others; None where there is none.

    Examples
    --------
    >>> other_form("a100-sxm-80"), other_form("h200-sxm"), other_form("p100-pcie-16"), other_form("b200")
    ('a100-pcie-80', 'h200-nvl', 'p100-sxm2-16', None)
    """
    kin = [one for one in catalogue.ids("accelerators") if _FORM.sub("", one) == _FORM.sub("", device) != one]
    return min((one for one in kin if one != device), key=lambda one: "-pcie" not in one, default=None)


def with_slower_network(found: Machine, share: float) -> Machine | None:
    """Return a machine whose network reaches a share of its rate.

    Parameters
    ----------
    found : the machine.
    share : rate over that of its own network [1].

    Returns
    -------
    The machine, None for one host.
    """
    if found.network is None:
        return None
    own = found.network.quantities["bandwidth"]
    slower = replace(own, value=own.value * share)
    return replace(found, network=replace(found.network, quantities={**found.network.quantities, "bandwidth": slower}))


def in_other_form(found: Machine) -> Machine | None:
    """Return a machine with its devices in another form, such as cards in place of modules.

    Parameters
    ----------
    found : machine as its devices' name is usually read.

    Returns
    -------
    The same hosts, counts and network; None where the devices have one form.
    """
    other = other_form(found.device.id)
    if other is None:
        return None
    count = found.hosts, found.per_host
    return _built(
        catalogue.accelerator(other), *count, None, found.network, found.ports, f"{other}:{count[0]}x{count[1]}"
    )


@lru_cache(maxsize=1024)
def _links(device: str) -> tuple[Link | None, Link | None]:
    return catalogue.machine_parts(device)


def _built(
    device: Accelerator,
    hosts: int,
    per_host: int,
    server: Server | None,
    network: Link | None,
    ports: int | None,
    text: str,
) -> Machine:
    if hosts * per_host > MOST_DEVICES:
        raise InputError(
            f"--on: {text}: {hosts * per_host:,} devices; at most {MOST_DEVICES:,} are planned as one machine",
            argument="--on",
            value=text,
        )
    known = device.status != OWN
    if known:
        up, host = _links(device.id)
    else:
        up = catalogue.link(catalogue.find("links", device.scale_up, "scale_up")) if device.scale_up else None
        host = catalogue.link(catalogue.find("links", device.host_link, "host_link")) if device.host_link else None
    if up is not None and per_host > (
        _reach(up) if known else device.domain if "scale_up_domain" in device.quantities else per_host
    ):
        up = None  # too many devices for the link: they communicate through the host
    provider = server.provider if server else ""
    up = _joined(up, [server] if server else [], per_host)
    if server is None and known:
        large = [s for s in catalogue.servers_of(device.id) if per_host <= s.count <= LARGEST_BOX]
        server = next((one for one in large if one.count == per_host), None)
        provider = large[0].provider if large and all(one.provider for one in large) else ""
        up = _joined(up, large, per_host)
    device = _limited(device, server)
    if hosts == 1 and network is not None:
        raise InputError(
            f"--on: {text}: one host needs no network; write {device.id}:HOSTSxPER@{network.id} for several",
            code="network_unused",
            argument="--on",
            value=text,
        )
    if per_host > 1 and up is None and host is None:
        raise InputError(
            f"--on: {text}: no link between {device.id} devices is known; only one can be planned"
            + ("" if device.status != OWN else ", or give scale_up or host_link in the file"),
            code="link_missing",
            argument="--on",
            value=text,
        )
    if hosts > 1 and network is None:
        source = (
            server
            if server and server.network
            else next((s for s in catalogue.servers_of(device.id) if s.network), None)
        )
        if source is None or source.network is None:
            raise InputError(
                f"--on: {text}: {hosts} hosts need a network. Example: {text}@100gbe. List: roofplan networks",
                code="network_missing",
                argument="--on",
                value=text,
            )
        network = catalogue.link(source.network)
    if hosts > 1 and network is not None and ports is None:
        ports = ports_as_sold(network, device, server, per_host)
    return Machine(
        device=device,
        hosts=hosts,
        per_host=per_host,
        scale_up=up,
        host_link=host,
        network=network if hosts > 1 else None,
        ports=ports or 1,
        server=server,
        box=_box(server, device, per_host),
        provider=provider,
        uplink=_uplink(server, device),
        text=text,
    )


def _joined(up: Link | None, boxes: Sequence[Server], per_host: int) -> Link | None:
    """Return the link between the devices of a host: that of the boxes that hold as many, where they have their own."""
    own = boxes[0].scale_up if boxes and per_host > 1 else None
    return up if own is None else catalogue.link(own)


def _limited(device: Accelerator, server: Server | None) -> Accelerator:
    """Return a device with the power limit that its box holds it to."""
    if server is None or "device_power" not in server.quantities:
        return device
    return replace(device, quantities={**device.quantities, "power": server.quantities["device_power"]})


FABRIC = 0.25
"""Rate of a port over that of a server's own network from which a network is taken to join devices, not hosts [1]."""


def ports_as_sold(network: Link, device: Accelerator, server: Server | None, per_host: int) -> int:
    """Return the ports that a host has on a network: those of a server of the device, in proportion to its devices.

    A network that is much slower than the one that the server is sold with is a plain adapter: one port a host.

    Parameters
    ----------
    network : link between hosts.
    device : the accelerator.
    server : server that the host is, None where it is not known.
    per_host : devices of a host [1].

    Returns
    -------
    Ports [1].
    """
    boxes = [*([server] if server else []), *catalogue.servers_of(device.id)]
    fitted = [s for s in boxes if s.network is not None and "network_ports" in s.quantities]
    same = [s for s in fitted if s.network == network.id]
    alike = [s for s in fitted if network.bandwidth >= FABRIC * catalogue.link(s.network or "").bandwidth]
    box = next(iter((*same, *alike)), None)
    return 1 if box is None else max(1, int((box.value("network_ports") or 1.0) * per_host / box.count))


def with_all_ports(found: Machine) -> Machine | None:
    """Return a machine with the network ports that its hosts are sold with.

    Parameters
    ----------
    found : the machine.

    Returns
    -------
    The machine, None where it has no fewer.
    """
    if found.network is None:
        return None
    ports = ports_as_sold(found.network, found.device, found.server, found.per_host)
    return replace(found, ports=ports) if ports > found.ports else None


def fewer_ports(found: Machine, sold: Machine, what: str, less: float) -> list[tuple[str, str]]:
    """Return the warning of a machine with fewer ports than its hosts are sold with.

    Parameters
    ----------
    found : the machine.
    sold : the machine with all of its ports.
    what : what takes less time with them.
    less : share of the time that they save [1].

    Returns
    -------
    Code and text, nothing where they save less than 1%.
    """
    if found.network is None or less < SMALLEST_SAVING:
        return []
    name = found.network.id
    saving = f"with which {what} takes {less:.0%} less: write @{name}x{sold.ports}"
    return [("network_ports", f"{found.ports} x {name} a host; sold with {sold.ports}, {saving}")]


SMALLEST_SAVING = 0.01
"""Share of a time that more ports must save to be named [1]."""


def _uplink(server: Server | None, device: Accelerator) -> float | None:
    """Return the devices that share a link to the processor, by the server or any other of the device, None where not known [1]."""
    boxes = [*([server] if server else []), *catalogue.servers_of(device.id)]
    return next((s.value("devices_per_uplink") for s in boxes if "devices_per_uplink" in s.quantities), None)


def _reach(link: Link) -> float:
    """Return the devices that a link can join: two for a bridge, any number over a switch [1]."""
    return float(link.value("reach") or math.inf)


def _box(server: Server | None, device: Accelerator, per_host: int) -> Server | None:
    """Return the smallest server with a known host power that holds as many devices; fewer devices take a share of it."""
    same = [server] if server else []
    boxes = [*same, *(s for s in catalogue.servers_of(device.id) if per_host <= s.count <= LARGEST_BOX)]
    return next((s for s in boxes if "host_power" in s.quantities), None)
