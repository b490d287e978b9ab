"""What serves: a model in a layout on a machine, with the rules and the cache of its engine."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor

from roofplan.laws import batching, memory
from roofplan.operations.table import Split, element_bytes
from roofplan.records.engine import Engine
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.strategy import Strategy
from roofplan.records.workload import Workload
from roofplan.serving.ledger import Ledger
from roofplan.serving.plan import Plan
from roofplan.serving.surface import Surface, surface
from roofplan.simulation.records import Scheduler
from roofplan.simulation.replicas import LEAST, Fleet, Run
from roofplan.timing.rates import Rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A model served on a machine.

    Parameters
    ----------
    model, machine, engine, strategy : as planned.
    workload : mean lengths, cached share of prompts, drafts.
    rates : that the machine achieves under the engine.
    memory : ledger of the fullest rank.
    kv_bytes : bytes of one cached number [B].
    launched : limit of running requests of a replica that the plan sets, 0 where it sets none [1].
    """

    model: Model
    machine: Machine
    engine: Engine
    strategy: Strategy
    workload: Workload
    rates: Rates
    memory: Ledger
    kv_bytes: float
    launched: int = 0

    @property
    def replicas(self) -> int:
        """Groups that serve requests apart: data-parallel copies, and groups that attend apart [1]."""
        return self.strategy.groups

    def seats(self) -> int:
        """Return the most running requests of a replica, by its launch or the engine's default [1]."""
        return self.launched or max(1, floor(self.memory.by_setting / self.replicas))

    def scheduler(self, longest: int) -> Scheduler:
        """Return how the engine fills its steps, where no request is longer than `longest` tokens."""
        blocks, fixed = self.blocks(longest)
        block, seats, engine = max(1, int(self.engine.block)), self.seats(), self.engine
        if self.memory.footprint.kv_per_token:
            ample = seats * (fixed + ceil(longest / block)) <= blocks
        else:
            seats, ample = max(1, int(min(seats, blocks))), True
        reserves = engine.admission == "reserve" and not ample
        tokens = self.memory.budget_tokens
        return Scheduler(
            seats=seats,
            budget=int(
                max(tokens, longest * (min(seats, STATIC) if engine.static_batches else not engine.chunked_prefill))
            ),
            mixes=engine.mixes,
            chunked=engine.chunked_prefill,
            static=engine.static_batches,
            paged=not (ample or reserves),
            reserves=reserves,
            keeps=engine.raw.get("preemption") == "recompute" and self.finds_prefixes and not fixed,
            blocks=blocks,
            block=block,
            fixed=fixed,
            grows=self.grows,
            front=self.front,
            delay=float(self.rates.delay),
        )

    @property
    def front(self) -> float:
        """Time of a request in the front ends, one after the other, over their number [s]."""
        return float(self.rates.front) / self.engine.front_ends(int(self.strategy.dp))

    @property
    def finds_prefixes(self) -> bool:
        """Whether the engine looks in its cache for what a prompt begins with, by default."""
        return bool(self.engine.raw.get("defaults", {}).get("prefix_cache"))

    @property
    def grows(self) -> float:
        """Tokens that a decode step adds to a sequence [token]."""
        load = self.workload
        return float(batching.tokens_per_speculative_step(load.drafted, load.acceptance)) if load.drafted else 1.0

    def blocks(self, longest: int) -> tuple[float, int]:
        """Return the blocks of a replica's cache, and those that a request holds whatever its length, for states and windows [1]."""
        foot, block = self.memory.footprint, max(1, int(self.engine.block))
        kept = foot.state + sum(
            rate * float(memory.resident_tokens(float(longest), window)) for rate, window, _ in foot.windowed
        )
        if not foot.kv_per_token:
            return (floor(self.memory.pool / kept), 1) if kept else (float("inf"), 0)
        each = foot.kv_per_token * block
        return floor(self.memory.pool / each), ceil(kept / each)

    def surface(self, scheduler: Scheduler, longest: int) -> Surface:
        """Return the step times of a replica."""
        return surface(
            self.model,
            self.strategy,
            self.rates,
            kv_bytes=self.kv_bytes,
            seats=scheduler.seats,
            budget=scheduler.budget,
            longest=longest,
            drafted=self.workload.drafted,
        )

    def fleet(self, longest: int, *, route: str = LEAST, run: Run | None = None) -> Fleet:
        """Return the replicas as a load with requests of at most `longest` tokens sees them.

        Parameters
        ----------
        longest : tokens of the longest request [token].
        route : how replicas are chosen.
        run : compiled core, None for plain Python.

        Returns
        -------
        Equal replicas.
        """
        scheduler = self.scheduler(longest)
        table = self.surface(scheduler, longest)
        together = int(Split.of(self.strategy).groups) if len(table.shared) else 1
        return Fleet(
            scheduler=scheduler, surface=table, replicas=self.replicas, together=together, route=route, run=run
        )


STATIC = 64
"""Longest requests whose prompts a static batch computes at once [1]."""


def deployment_of(plan: Plan) -> Deployment:
    """Return what a serving plan describes.

    Parameters
    ----------
    plan : a plan of the search.

    Returns
    -------
    Its model, machine, layout, engine and memory.
    """
    return Deployment(
        model=plan.model,
        machine=plan.machine,
        engine=plan.engine,
        strategy=plan.strategy,
        workload=plan.workload,
        rates=plan.rates,
        memory=plan.memory,
        kv_bytes=element_bytes(plan.kv_precision),
    )
