"""Boards, switches and power supplies: lanes, ports, ratings, and the gain per added device.

References
----------
.. [1] PCI-SIG, PCI Express Base Specification 4.0: lanes of a link are not shared.
"""

from __future__ import annotations

import numpy as np

from roofplan.laws import Number, larger, up


def lanes_needed(cards: Number, lanes_per_card: Number, adapters: Number, lanes_per_adapter: Number) -> Number:
    """Return the PCIe lanes that a board needs: cards x lanes + adapters x lanes [1]_.

    Parameters
    ----------
    cards : accelerators on the board [1].
    lanes_per_card : lanes of each [1].
    adapters : network adapters [1].
    lanes_per_adapter : lanes of each [1].

    Returns
    -------
    Lanes [1].

    Notes
    -----
    Domain: no switch between processor and slots. Source: [1]_. A desktop processor has 16 to 24 lanes, so an x16
    card and an x16 200 Gbit/s adapter need a workstation, or both run at x8.

    Examples
    --------
    >>> lanes_needed(1, 16, 1, 16)
    32
    """
    return cards * lanes_per_card + adapters * lanes_per_adapter


def switch_ports(hosts: Number, ports: Number) -> Number:
    """Return the ports that a single non-blocking switch needs: hosts x ports.

    Parameters
    ----------
    hosts : machines [1].
    ports : network ports of each [1].

    Returns
    -------
    Ports [1].

    Notes
    -----
    Domain: one layer of switches, no uplinks. Source: definition.

    Examples
    --------
    >>> switch_ports(8, 1)
    8
    """
    return hosts * ports


def adapters_share(adapters: Number, adapter: Number, cards: Number, card: Number) -> Number:
    """Return the adapters' total rate over that of the cards' links: adapters x rate / (cards x rate).

    Parameters
    ----------
    adapters : network adapters of a host [1].
    adapter : rate one way of each [B/s].
    cards : accelerators of the host [1].
    card : rate one way of each card's link [B/s].

    Returns
    -------
    Share [1].

    Notes
    -----
    Domain: all cards send out of the host at once. Source: definition. Eight 200 Gbit/s adapters match 78% of eight PCIe 4.0 x16 links.

    Examples
    --------
    >>> round(adapters_share(8, 25e9, 8, 32e9), 2)
    0.78
    """
    return adapters * adapter / (cards * card)


def marginal_gain(rate: Number, previous: Number, added: Number) -> Number:
    """Return the rate gained per added device: (rate - previous) / added.

    Parameters
    ----------
    rate : output of the larger machine [1/s].
    previous : output of the smaller machine [1/s].
    added : devices added [1].

    Returns
    -------
    Gain per device [1/s].

    Notes
    -----
    Domain: machines of one kind under the same limits. Source: definition.

    Examples
    --------
    >>> marginal_gain(1800.0, 1000.0, 1)
    800.0
    """
    return (rate - previous) / added


def supply_rating(power: Number, headroom: Number) -> Number:
    """Return the rating that a power supply needs: P (1 + h).

    Parameters
    ----------
    power : power drawn under load P [W].
    headroom : share kept in reserve for millisecond peaks h [1].

    Returns
    -------
    Rating [W].

    Notes
    -----
    Domain: one supply, or several that share the load. Source: definition; a reserve of a fifth to a third is usual practice.

    Examples
    --------
    >>> supply_rating(1000.0, 0.25)
    1250.0
    """
    return power * (1 + headroom)


def plugs_needed(power: Number, slot: Number, plug: Number) -> Number:
    """Return the power plugs that a card needs: ceil((power - slot) / plug).

    Parameters
    ----------
    power : limit of the card [W].
    slot : power from the slot, 75 for x16 [W].
    plug : rating of a plug: 75 with 6 pins, 150 with 8, 600 with 12 and four sense wires [W].

    Returns
    -------
    Plugs [1].

    Notes
    -----
    Domain: plugs of one kind. Source: PCI-SIG card electromechanical specification, as quoted by card data sheets.

    Examples
    --------
    >>> plugs_needed(450.0, 75.0, 150.0), plugs_needed(450.0, 75.0, 600.0), plugs_needed(60.0, 75.0, 150.0)
    (3.0, 1.0, 0.0)
    """
    return larger(up((power - slot) / plug), 0.0)


def servers_of_rack(limit: Number, power: Number) -> Number:
    """Return the servers that a rack can power and cool: floor(limit / power).

    Parameters
    ----------
    limit : power that the rack can supply and cool [W].
    power : power of a server under load [W].

    Returns
    -------
    Servers [1].

    Notes
    -----
    Domain: rack height is not the limit. Source: definition.

    Examples
    --------
    >>> [float(servers_of_rack(limit, 10.2e3)) for limit in (20e3, 8e3)]
    [1.0, 0.0]
    """
    return np.floor(limit / power + ROUNDING)


ROUNDING = 1e-9
"""Tolerance for rounding errors in the number of servers of a rack [1]."""
