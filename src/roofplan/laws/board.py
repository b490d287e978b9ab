"""Boards and switches: lanes, ports, and what each added device still gains.

References
----------
.. [1] PCI-SIG, PCI Express Base Specification 4.0: lanes of a link are not shared.
"""

from __future__ import annotations

import numpy as np

from roofplan.laws import Number, larger, up


def lanes_needed(cards: Number, lanes_per_card: Number, adapters: Number, lanes_per_adapter: Number) -> Number:
    """Return the lanes that a board must offer: cards x lanes + adapters x lanes [1]_.

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
    Domain: no switch between processor and slots. Source: [1]_; a desktop processor has 16 to 24 lanes, so an x16
    card beside an x16 200 Gbit/s adapter needs a workstation or runs both at x8.

    Examples
    --------
    >>> lanes_needed(1, 16, 1, 16)
    32
    """
    return cards * lanes_per_card + adapters * lanes_per_adapter


def switch_ports(hosts: Number, ports: Number) -> Number:
    """Return the ports that one non-blocking switch must have: hosts x ports.

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
    """Return the share of the cards' links that the adapters carry: adapters x rate / (cards x rate).

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
    Domain: all cards send out of the host at once. Source: definition; eight 200 Gbit/s adapters carry 78% of eight PCIe 4.0 x16 links.

    Examples
    --------
    >>> round(adapters_share(8, 25e9, 8, 32e9), 2)
    0.78
    """
    return adapters * adapter / (cards * card)


def marginal_gain(rate: Number, previous: Number, added: Number) -> Number:
    """Return what each added device gains: (rate - previous) / added.

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
    """Return the rating that a power supply must have: P (1 + h).

    Parameters
    ----------
    power : drawn at load P [W].
    headroom : share kept in reserve for peaks of milliseconds h [1].

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
    """Return the power plugs of a card: what the slot does not give over what a plug carries, in whole plugs.

    Parameters
    ----------
    power : limit of the card [W].
    slot : what the slot gives, 75 for x16 [W].
    plug : what a plug carries: 75 with 6 pins, 150 with 8, 600 with 12 and four sense wires [W].

    Returns
    -------
    Plugs [1].

    Notes
    -----
    Domain: plugs of one kind. Source: PCI-SIG card electromechanical specification, as the data sheets of cards quote it.

    Examples
    --------
    >>> plugs_needed(450.0, 75.0, 150.0), plugs_needed(450.0, 75.0, 600.0)
    (3.0, 1.0)
    """
    return larger(up((power - slot) / plug), 0.0)


def servers_of_rack(limit: Number, power: Number) -> Number:
    """Return the servers that a rack's power and cooling allow, in whole ones: limit / power, rounded down.

    Parameters
    ----------
    limit : power that the rack is fed and cooled for [W].
    power : of a server at load [W].

    Returns
    -------
    Servers [1].

    Notes
    -----
    Domain: height is not the limit. Source: definition.

    Examples
    --------
    >>> [float(servers_of_rack(limit, 10.2e3)) for limit in (20e3, 8e3)]
    [1.0, 0.0]
    """
    return np.floor(limit / power + ROUNDING)


ROUNDING = 1e-9
"""Share of a server by which a rack's limit may miss a whole number of them [1]."""
