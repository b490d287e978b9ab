"""What a plan asks of the network between its hosts, and what each added device gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roofplan.laws import board, pipeline
from roofplan.operations.table import ACTIVATION_BYTES
from roofplan.serving.plan import Plan
from roofplan.timing.hops import slowest_hop

WIDE_ADAPTER = 25e9
"""Rate one way from which a network adapter takes sixteen lanes of PCIe 4.0 instead of eight [B/s]."""


@dataclass(frozen=True, slots=True)
class LinkUse:
    """The network between hosts.

    Parameters
    ----------
    hop : time of the slowest hop from one pipeline stage to the next [s]; None without stages.
    busy : share of a stage's time that such a hop takes [1]; None without stages.
    switch_ports : that join the hosts [1].
    lanes : that the board of each host must offer [1]; None where cards are no consumers' cards.
    """

    hop: float | None
    busy: float | None
    switch_ports: int
    lanes: int | None


def link_use(plan: Plan) -> LinkUse | None:
    """Return what a plan asks of the network between its hosts.

    Parameters
    ----------
    plan : the plan.

    Returns
    -------
    Its use; None on one host.
    """
    m, s = plan.machine, plan.strategy
    if m.network is None:
        return None
    hop, busy = None, None
    if int(s.pp) > 1:
        here = max(1.0, plan.users / (int(s.dp) * int(s.pp)))
        sent = here * plan.model.hidden * ACTIVATION_BYTES / int(s.tp)
        hop = float(slowest_hop(sent, float(int(s.tp)), plan.rates.network))
        busy = pipeline.duty_cycle(hop, float(plan.prediction.cycle.value) / int(s.pp))
    lanes = None
    if m.device.device_class == "consumer":
        lanes = board.lanes_needed(m.per_host, 16, m.ports, 16 if m.network.bandwidth >= WIDE_ADAPTER else 8)
    return LinkUse(hop, busy, board.switch_ports(m.hosts, m.ports), lanes)


def gains(plans: Sequence[Plan]) -> list[tuple[int, float, float | None]]:
    """Return what each added device gains, where sizes of one machine compete.

    Parameters
    ----------
    plans : the plans, best first.

    Returns
    -------
    For each size its devices [1], its rate [token/s], and the gain of each device that it has more than the size before
    [token/s]; None of the smallest.
    """
    best: dict[int, Plan] = {}
    for plan in plans:
        best.setdefault(plan.machine.count, plan)
    out: list[tuple[int, float, float | None]] = []
    for count in sorted(best):
        rate = best[count].metrics["output_tokens_per_second"].value
        out.append((count, rate, board.marginal_gain(rate, out[-1][1], count - out[-1][0]) if out else None))
    return out
