"""Power and energy of a machine under load."""

from __future__ import annotations

from roofplan.laws import Number


def device_power(limit: Number, floor: Number, ceiling: Number, busy: Number) -> Number:
    """Return the power of a device at a load: limit (floor + (ceiling - floor) busy).

    Parameters
    ----------
    limit : power limit [W].
    floor : share of the limit drawn while idle between kernels [1].
    ceiling : share of the limit drawn at full memory or compute load [1].
    busy : share of the time in which memory or compute runs at its achieved rate [1].

    Returns
    -------
    Power [W].

    Notes
    -----
    Domain: a loaded model, 0 <= busy <= 1. Source: fitted to power measurements of ML.ENERGY. GPUs draw less than their limit in decode:
    Llama-3.1-70B on 4 H100 draws 441 W at batch 8 and 640 W at saturation, of 700.

    Examples
    --------
    >>> round(device_power(700.0, 0.3, 0.9, 0.5))
    420
    """
    return limit * (floor + (ceiling - floor) * busy)


def energy_per_token(power: Number, rate: Number) -> Number:
    """Return the energy per token: power / token rate.

    Parameters
    ----------
    power : power drawn [W].
    rate : tokens per second [1/s].

    Returns
    -------
    Energy [J].

    Notes
    -----
    Domain: the stated load. Source: definition.

    Examples
    --------
    >>> energy_per_token(2560.0, 5921.0) < 0.44
    True
    """
    return power / rate
