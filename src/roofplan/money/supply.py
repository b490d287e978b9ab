"""Power supply of an owned machine: ratings, racks and plugs."""

from __future__ import annotations

from dataclasses import dataclass

from roofplan.laws import board
from roofplan.money.machine import Owned

HEADROOM = 0.25
"""Reserve of a power supply above the load, by common practice [1]."""

RACK = 20e3
"""Default power of a colocation rack, for comparison with a server's [W]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """Power supply of a server.

    Parameters
    ----------
    power : power of a server at load [W].
    supplies : rating of its power supplies, with a reserve [W].
    rack : power of a rack [W], which feeds `servers` of them [1].
    plugs : plugs that a card needs beside its slot, by rating of the plug; empty where cards take no plugs [1].
    """

    power: float
    supplies: float
    rack: float
    servers: int
    plugs: dict[float, int]


def fed(owned: Owned) -> Fed | None:
    """Return the power supply of each server of a machine.

    Parameters
    ----------
    owned : the owned machine.

    Returns
    -------
    Supplies, racks and plugs; None where the machine's power or server is not known.
    """
    if "power" not in owned.inputs or owned.machine.server is None:
        return None
    each = owned.inputs["power"].value / owned.machine.hosts
    rack = owned.terms.rack or RACK
    device = owned.machine.device
    limit = device.value("power")
    plugged = limit is not None and device.form == CARD and limit > SLOT
    return Fed(
        power=each,
        supplies=float(board.supply_rating(each, HEADROOM)),
        rack=rack,
        servers=int(board.servers_of_rack(rack, each)),
        plugs={plug: int(board.plugs_needed(limit, SLOT, plug)) for plug in PLUGS} if plugged else {},
    )


SLOT, PLUGS = 75.0, (150.0, 600.0)
"""Power of an x16 slot, of an 8-pin plug and of a 12V-2x6: PCI-SIG, Card Electromechanical Specification 5.1 [W]."""


CARD = "PCIe"
"""Form of a device that is fed through a slot and plugs."""
