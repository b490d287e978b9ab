"""Hosts in network namespaces of this machine, joined by a switch over links of a shaped rate. Linux, as root.

Nothing of it touches the machine's own network: the switch has a namespace too, and all is removed at the end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from roofplan.errors import UnsupportedFeature

NET = "10.213.77"
"""Addresses of the hosts, seen by them alone."""

DEVICE = "pool0"
"""Name of a host's end of its link, which no device of the machine itself has."""

PACKET = 1_500.0
"""Bytes of a packet [B]."""

MARK = "roofplan-"
"""Begins the names of namespaces, before the process that made them."""

BURST = 8_000.0
"""Bytes that a shaped link lets pass at once [B]."""


def why_not() -> str:
    """Return why this machine cannot make namespaces, empty where it can.

    Returns
    -------
    The reason.
    """
    if not hasattr(os, "geteuid"):
        return "network namespaces are Linux's"
    missing = [one for one in ("ip", "tc") if shutil.which(one) is None]
    if missing:
        return f"{' and '.join(missing)} of iproute2 {'is' if len(missing) == 1 else 'are'} not installed"
    return "" if os.geteuid() == 0 else "network namespaces need root"


class Switched:
    """Hosts behind a switch.

    Parameters
    ----------
    hosts : their number [1].
    rate : of each link, both ways [B/s].
    delay : that each link adds one way, 0 for none [s].
    """

    def __init__(self, hosts: int, rate: float, delay: float = 0.0) -> None:
        self.rate, self.delay = rate, delay
        mark = f"{MARK}{os.getpid()}"
        self.switch = f"{mark}-switch"
        self.names = [f"{mark}-{k}" for k in range(hosts)]
        self.made: list[str] = []

    def address(self, host: int) -> str:
        """Return the address of a host."""
        return f"{NET}.{host + 1}"

    def inside(self, host: int, command: Sequence[str]) -> list[str]:
        """Return a command as it runs on a host."""
        return ["ip", "netns", "exec", self.names[host], *command]

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _make(self) -> None:
        _sweep()
        for name in (self.switch, *self.names):
            _ip("netns", "add", name)
            self.made.append(name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", self.switch, "link", "add", "bridge0", "type", "bridge")
        _ip("-n", self.switch, "link", "set", "bridge0", "up")
        for k, name in enumerate(self.names):
            port = f"port{k}"
            _ip("-n", self.switch, "link", "add", port, "type", "veth", "peer", "name", DEVICE, "netns", name)
            _ip("-n", self.switch, "link", "set", port, "master", "bridge0", "up")
            _ip("-n", name, "address", "add", f"{self.address(k)}/24", "dev", DEVICE)
            _ip("-n", name, "link", "set", DEVICE, "up")
            for namespace, device in ((self.switch, port), (name, DEVICE)):
                self._shape(namespace, device)

    def _shape(self, namespace: str, device: str) -> None:
        """Shape what leaves a device."""
        bits = f"{8.0 * self.rate:.0f}bit"
        shaper = ("tbf", "rate", bits, "burst", f"{BURST:.0f}", "latency", "500ms")
        if not self.delay:
            _tc(namespace, device, "root", *shaper)
            return
        packets = f"{2.0 * self.rate * self.delay / PACKET + 1000.0:.0f}"  # what is under way, lest the queue drop it
        done = _tc(
            *(namespace, device, "root", "handle", "1:", "netem", "limit", packets),
            *("delay", f"{1e6 * self.delay:.0f}us"),
            check=False,
        )
        if not done:
            raise UnsupportedFeature(
                "--delay: this kernel has no netem, so links cannot be slower than they are; leave --delay out",
                argument="--delay",
            )
        _tc(namespace, device, "parent", "1:", *shaper)

    def _remove(self) -> None:
        for name in reversed(self.made):
            _ip("netns", "delete", name, check=False)
        self.made.clear()


def _sweep() -> None:
    """Remove the namespaces of processes that ended without removing them."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout  # noqa: S607
    for name in (line.split()[0] for line in listed.splitlines() if line.startswith(MARK)):
        process = name.removeprefix(MARK).partition("-")[0]
        if process.isdigit() and not Path(f"/proc/{process}").exists():
            _ip("netns", "delete", name, check=False)


def _ip(*words: str, check: bool = True) -> bool:
    return _told(["ip", *words], check=check)


def _tc(namespace: str, device: str, *words: str, check: bool = True) -> bool:
    return _told(["tc", "-n", namespace, "qdisc", "add", "dev", device, *words], check=check)


def _told(command: list[str], *, check: bool) -> bool:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - fixed words
    if check and done.returncode:
        raise UnsupportedFeature(
            f"{' '.join(command)}: {done.stderr.strip() or done.returncode}", argument="--rate", value=command[0]
        )
    return done.returncode == 0


def counted(process: int) -> tuple[float, float] | None:
    """Return the bytes that the host of a process has received and sent over its link.

    Parameters
    ----------
    process : id of a process on the host.

    Returns
    -------
    Bytes received and sent, None where the process has no such link [B].
    """
    try:
        lines = Path(f"/proc/{process}/net/dev").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, numbers = line.partition(":")
        if name.strip() == DEVICE:
            columns = numbers.split()
            return float(columns[0]), float(columns[8])
    return None
