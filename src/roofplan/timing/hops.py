"""Pipeline hops: times to send activations from one stage to the next."""

from __future__ import annotations

from roofplan.laws import Number, collectives, larger, smaller, where
from roofplan.timing.network import Network, lines, quickest


def hop_times(message: Number, stride: Number, net: Network) -> tuple[Number, Number]:
    """Return the time to send `message` bytes to the device `stride` further: inside a host, and to another host [s].

    Between hosts, the sending devices are `stride` apart, and each has at best a port of its own.
    """
    per_host = float(net.machine.per_host)
    # all devices that send at once share the bus or the path through host memory
    busy = larger(2.0, smaller(2.0 * stride, per_host)) if net.topology in {"bus", "staged"} else 2.0
    known = lines(busy, net, net.gather)
    inside = quickest([collectives.transfer_time(message, line.start + line.step, line.rate) for line in known])
    if net.machine.network is None:
        return inside, inside
    alone = net.outside * smaller(per_host / smaller(stride, per_host), net.port)
    return inside, collectives.transfer_time(message, net.start + net.hop, smaller(alone, net.crossing(stride)))


def mean_hop(message: Number, tensor: Number, stages: Number, net: Network) -> Number:
    """Return the mean time of a hop between pipeline stages.

    Parameters
    ----------
    message : bytes of the tensor on one rank, float or array [B].
    tensor : tensor-parallel ranks, each of which sends its share [1].
    stages : pipeline stages [1].
    net : link rates and latencies of the machine.

    Returns
    -------
    Time, float or array [s].
    """
    inside, outside = hop_times(message / tensor, tensor, net)
    if net.machine.hosts == 1:
        return inside
    # one hop in every (devices of a host / tensor ranks) is between hosts
    apart = smaller(1.0, tensor / net.machine.per_host)
    return where(tensor * stages > net.machine.per_host, apart * outside + (1.0 - apart) * inside, inside)


def slowest_hop(message: Number, stride: Number, net: Network) -> Number:
    """Return the time of the slowest hop between pipeline stages; with several hosts, that hop leaves its host.

    Parameters
    ----------
    message : bytes of the tensor on one rank, float or array [B].
    stride : devices from one stage to the next [1].
    net : link rates and latencies of the machine.

    Returns
    -------
    Time, float or array [s].
    """
    return larger(*hop_times(message, stride, net))
