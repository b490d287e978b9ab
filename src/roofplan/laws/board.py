"""Boards and switches: lanes, ports, and what each added device still gains.

References
----------
.. [1] PCI-SIG, PCI Express Base Specification 4.0: lanes of a link are not shared.
"""

from __future__ import annotations

from roofplan.laws import Number


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
