"""The load on a model, and the constraints on its plans."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests of one shape.

    Parameters
    ----------
    input, output : mean prompt and output lengths [token].
    context : longest request that the engine must admit [token].
    prefix_hit : share of the prompt that is already cached [1].
    drafted, acceptance : tokens drafted per step by multi-token prediction, and the share accepted; 0 without it.
    """

    input: int = 1024
    output: int = 256
    context: int = 2048
    prefix_hit: float = 0.0
    drafted: int = 0
    acceptance: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """Limits and demands on a plan; None sets none.

    Parameters
    ----------
    ttft, tpot : longest times [s].
    tokens_per_second_per_user : least rate [token/s].
    budget : highest cost [USD/h].
    power : highest power at the wall [W].
    devices : most devices [1].
    concurrency : users that must be served at once [1].
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

    @property
    def timed(self) -> bool:
        """Whether how fast a user is served is settled: by a limit on the time per token or a number of users."""
        return any(x is not None for x in (self.tpot, self.tokens_per_second_per_user, self.concurrency))
