"""What is asked of a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests of one shape.

    Parameters
    ----------
    input, output : mean prompt and answer [token].
    context : longest request that the engine must admit [token].
    prefix_hit : share of the prompt already cached [1].
    drafted, acceptance : tokens proposed per step by multi-token prediction, and the share kept; 0 without it.
    """

    input: int = 1024
    output: int = 256
    context: int = 2048
    prefix_hit: float = 0.0
    drafted: int = 0
    acceptance: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """Limits that may not be exceeded and demands that must be reached; None asks nothing.

    Parameters
    ----------
    ttft, tpot : longest times [s].
    tokens_per_second_per_user : least rate [token/s].
    budget : most money [USD/h].
    power : most power at the wall [W].
    devices : most devices [1].
    concurrency : users that must run at once [1].
    rate : requests that must be served [request/s].
    datacenter : leave out cards whose licence forbids data centres.
    """

    ttft: float | None = None
    tpot: float | None = None
    tokens_per_second_per_user: float | None = None
    budget: float | None = None
    power: float | None = None
    devices: int | None = None
    concurrency: int | None = None
    rate: float | None = None
    datacenter: bool = False
