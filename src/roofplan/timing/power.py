"""What a machine draws at the wall."""

from __future__ import annotations

from roofplan.laws import Number, energy
from roofplan.records.calibration import Fit
from roofplan.records.hardware import Machine
from roofplan.records.terms import Term, total


def power_limits(machine: Machine, fit: Fit) -> tuple[float, float]:
    """Return the least and the most that a working machine draws: idle devices, and devices and hosts at their ratings.

    Parameters
    ----------
    machine : devices and how they are joined.
    fit : the fitted constants.

    Returns
    -------
    Least and most power at the wall [W].
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
    busy : share of the time in which devices compute or read, float or array [1].
    fit : the fitted constants.

    Returns
    -------
    Power in parts [W], None where the device's limit is not known.
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
"""Power that a North American household circuit carries without end: 80% of 15 A at 120 V, NFPA 70 (National Electrical Code) article 210.20 [W]."""


def over_household_circuit(machine: Machine, watts: float) -> float | None:
    """Return what each host of consumer cards draws, where that is more than a household circuit carries.

    Parameters
    ----------
    machine : hosts and their devices.
    watts : drawn by the whole machine at the wall [W].

    Returns
    -------
    Power of one host [W], None where a circuit carries it or the devices are made for data centres.
    """
    each = watts / machine.hosts
    return each if machine.device.device_class == "consumer" and each > HOUSEHOLD_CIRCUIT else None
