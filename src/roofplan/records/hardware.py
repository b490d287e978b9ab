"""Accelerators, links, servers, and machines built of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from roofplan.records.source import Sourced

DRIVER_KEEPS = 0.43 * 2**30
"""Memory that a driver reports in its total and does not hand out: start-up logs of vLLM show 79.22 of 79.65 GiB on 80 GB cards,
23.55 of 23.99 on an RTX 4090 and 23.58 of 24.00 on an RTX 3090 (vLLM issues 10517, 13061; pull request 10511) [B].
"""

OWN = "own"
"""Status of a device described by a user."""

CPU = "cpu"
"""Class of a processor that computes in its host's memory, without launches."""

BANDWIDTH, LAUNCH, VECTOR = "memory_bandwidth", "launch", "vector"
"""Attained rates that are no number formats: reads [B/s], time between small kernels [s], 256-bit vector units in fp32 [FLOP/s]."""

Topology = Literal["switch", "full-mesh", "cube-mesh", "torus", "bus", "point-to-point"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link between devices or hosts; every rate is one-way and per device or port.

    Parameters
    ----------
    topology : topology of the fabric.
    kind : ``scale-up`` inside a server, ``host`` to the processor, ``network`` between servers.
    in_network_reduction : whether the switch can reduce data.
    transport : ``tcp`` through the kernel's network stack, or ``rdma`` straight to memory.
    shared_by : what shares the link, in words.
    quantities : named numbers with their sources, such as ``bandwidth`` [B/s], ``latency`` [s].
    """

    id: str
    name: str
    kind: Literal["scale-up", "host", "network"]
    topology: Topology
    quantities: Mapping[str, Sourced]
    in_network_reduction: bool = False
    transport: Literal["rdma", "tcp"] = "tcp"
    shared_by: str = ""
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __hash__(self) -> int:
        """Return the hash of the id; links that differ under one id compare unequal."""
        return hash(self.id)

    def value(self, name: str) -> float | None:
        """Return a quantity in SI, or None where it is not known."""
        found = self.quantities.get(name)
        return None if found is None else found.value

    @property
    def bandwidth(self) -> float:
        """One-way rate [B/s]."""
        return self.quantities["bandwidth"].value


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """A device as its data sheet and its measurements describe it.

    Parameters
    ----------
    peak : dense rates by number format, with FP32 accumulation unless the key says otherwise [FLOP/s].
    sparse : rates with 2:4 sparsity, shown but never used in plans [FLOP/s].
    measured : highest measured matrix rates [FLOP/s].
    attained : what a probe of the machine itself attained, which laws use unchanged: matrix rates by number format [FLOP/s],
        and `BANDWIDTH`, `LAUNCH`, `VECTOR`.
    quantities : all other numbers, such as ``memory_capacity`` [B], ``power`` [W].
    scale_up, host_link : ids of links.
    peer_to_peer : how devices reach each other; ``none`` means through host memory.
    """

    id: str
    name: str
    vendor: str
    architecture: str
    quantities: Mapping[str, Sourced]
    peak: Mapping[str, Sourced]
    sparse: Mapping[str, Sourced] = field(default_factory=dict)
    measured: Mapping[str, Sourced] = field(default_factory=dict)
    attained: Mapping[str, Sourced] = field(default_factory=dict)
    form: str = ""
    status: str = ""
    launched: str = ""
    process: str = ""
    memory_type: str = ""
    device_class: str = "datacenter"
    geforce_licence: bool = False
    peer_to_peer: str | None = None
    ecc: bool | None = None
    scale_up: str | None = None
    host_link: str | None = None
    export: str = ""
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __hash__(self) -> int:
        """Return the hash of the id; accelerators that differ under one id compare unequal."""
        return hash(self.id)

    def value(self, name: str) -> float | None:
        """Return a quantity in SI, or None where it is not known."""
        found = self.quantities.get(name)
        return None if found is None else found.value

    @property
    def memory(self) -> float | None:
        """Memory available to a program: what the driver reports minus what it keeps, else the capacity [B]."""
        usable = self.value("memory_usable")
        kept = DRIVER_KEEPS if self.vendor == "NVIDIA" else 0.0
        return usable - kept if usable is not None else self.value("memory_capacity")

    @property
    def room(self) -> float:
        """Memory available to a program, 0 where it is not known, so that nothing fits there [B]."""
        return self.memory or 0.0

    @property
    def memory_key(self) -> str:
        """Name of the quantity behind `memory`."""
        return "memory_usable" if "memory_usable" in self.quantities else "memory_capacity"

    @property
    def bandwidth(self) -> float | None:
        """Memory bandwidth [B/s]."""
        return self.value("memory_bandwidth")

    @property
    def domain(self) -> int:
        """Devices joined by one scale-up fabric [1]."""
        return int(self.value("scale_up_domain") or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server with devices of one kind.

    Parameters
    ----------
    accelerator : id of the device.
    network : id of its network link, None where it has none.
    scale_up : id of the link between its devices, None for the device's own.
    provider : the only provider that rents it out, empty for servers that anyone can buy.
    quantities : ``count``, ``power_max`` [W], ``device_power`` where a device gets less than its own limit [W],
        ``network_ports``, ``price`` [USD] and others.
    network_cards : whether it is sold with its network cards.
    """

    id: str
    name: str
    accelerator: str
    quantities: Mapping[str, Sourced]
    network: str | None = None
    scale_up: str | None = None
    provider: str = ""
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    network_cards: bool = False

    def __hash__(self) -> int:
        """Return the hash of the id; servers that differ under one id compare unequal."""
        return hash(self.id)

    def value(self, name: str) -> float | None:
        """Return a quantity in SI, or None where it is not known."""
        found = self.quantities.get(name)
        return None if found is None else found.value

    @property
    def count(self) -> int:
        """Devices of the server [1]."""
        return int(self.quantities["count"].value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Devices of one kind in hosts, and the links between them.

    Parameters
    ----------
    device : the accelerator.
    hosts, per_host : number of hosts, and of devices in each [1].
    scale_up : fabric inside a host (or rack-wide domain), None where devices communicate only through the host.
    host_link : link of each device to its processor.
    network : link between hosts, None for one host.
    ports : network ports of one host, shared by its devices [1].
    server : server that it is built of, where the catalogue has one.
    box : server whose host power it takes a share of, None where none is known.
    provider : provider, where the user named a cloud instance.
    uplink : devices that share a link to the processor; None where not known, so that each is taken to have its own [1].
    text : the machine as a user writes it.
    named_server : server that the text names, None where it names a device.
    name : device or server as the text names it.
    network_name : network and ports as the text names them, empty where it leaves them open.
    """

    device: Accelerator
    hosts: int
    per_host: int
    scale_up: Link | None = None
    host_link: Link | None = None
    network: Link | None = None
    ports: int = 1
    server: Server | None = None
    box: Server | None = None
    provider: str = ""
    uplink: float | None = None
    text: str = ""
    named_server: Server | None = None
    name: str = ""
    network_name: str = ""

    @property
    def count(self) -> int:
        """Devices in all [1]."""
        return self.hosts * self.per_host

    @property
    def network_per_device(self) -> float | None:
        """One-way network rate per device when all devices of a host send [B/s]."""
        if self.network is None:
            return None
        return self.network.bandwidth * self.ports / self.per_host

    @property
    def copy_rate(self) -> float | None:
        """One-way rate of copies between a device and host memory when all devices copy [B/s]."""
        share = None if self.host_link is None else self.host_link.value("copy_efficiency")
        if self.host_link is None or share is None:
            return None
        return self.host_link.bandwidth * share / min(self.uplink or 1.0, self.per_host)

    @property
    def host_memory(self) -> float | None:
        """Memory of a host's processors, None where not known [B]."""
        return None if self.server is None else self.server.value("host_memory")
