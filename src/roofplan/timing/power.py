"""Power of a machine at the wall."""

from __future__ import annotations

from roofplan.laws import Number, energy
from roofplan.records.calibration import Fit
from roofplan.records.hardware import Machine
from roofplan.records.terms import Term, total


def power_limits(machine: Machine, fit: Fit) -> tuple[float, float]:
    """Return the bounds on a working machine's power: idle devices, and devices and hosts at their ratings.

    Parameters
    ----------
    machine : devices and how they are joined.
    fit : the fitted constants.

    Returns
    -------
    Minimum and maximum power at the wall [W].
    """
    limit = machine.device.value("power") or 0.0
    floor = fit.find("power", "floor", [machine.device.architecture, "any"])
    box = machine.box
    hosts = box.quantities["host_power"].value * machine.per_host / box.count * machine.hosts if box else 0.0
    return floor.value * limit * machine.count, limit * machine.count + hosts


def wall_power(machine: Machine, busy: Number, fit: Fit) -> Term | None:
    """Return the power of a machine at the wall.

    Parameters
    ----------
    machine : devices and how they are joined.
    busy : share of time in which devices compute or read memory, float or array [1].
    fit : the fitted constants.

    Returns
    -------
    Power by parts [W], None if the device's power limit is unknown.
    """
    limit = machine.device.value("power")
    if limit is None:
        return None
    floor = fit.find("power", "floor", [machine.device.architecture, "any"])
    ceiling = fit.find("power", "ceiling", [machine.device.architecture, "any"])
    one = energy.device_power(limit, floor.value, ceiling.value, busy)
    parts = [
        Term(
            "devices",
            one * machine.count,
            "W",
            law="energy.device_power",
            text="{count} x {limit} x ({floor} + ({ceiling} - {floor}) x {busy} busy)",
            numbers={
                "count": machine.count,
                "limit": (limit, "W"),
                "floor": floor.value,
                "ceiling": ceiling.value,
                "busy": busy,
            },
            sources=(machine.device.quantities["power"].cited, floor, ceiling),
        )
    ]
    box = machine.box
    if box is not None:
        host, share = box.quantities["host_power"], machine.per_host / box.count
        drawn = fit.find("power", "host_share", [machine.device.architecture, "any"])
        parts.append(
            Term(
                "hosts",
                host.value * drawn.value * share * machine.hosts,
                "W",
                text="{hosts} x {rated} of {per_host} of {box} rated x {drawn} drawn",
                numbers={
                    "hosts": machine.hosts,
                    "rated": (host.value, "W"),
                    "per_host": machine.per_host,
                    "box": box.count,
                    "drawn": drawn.value,
                },
                sources=(host.cited, drawn),
            )
        )
    return total("power", parts, "W")


HOUSEHOLD_CIRCUIT = 0.8 * 15.0 * 120.0
"""Continuous power of a North American household circuit: 80% of 15 A at 120 V, NFPA 70 (National Electrical Code)
article 210.20 [W]."""


def over_household_circuit(machine: Machine, watts: float) -> float | None:
    """Return the power of each host of consumer cards if it exceeds that of a household circuit.

    Parameters
    ----------
    machine : hosts and their devices.
    watts : power of the whole machine at the wall [W].

    Returns
    -------
    Power of one host [W], None if a circuit can supply it or the devices are data-centre cards.
    """
    each = watts / machine.hosts
    return each if machine.device.device_class == "consumer" and each > HOUSEHOLD_CIRCUIT else None
