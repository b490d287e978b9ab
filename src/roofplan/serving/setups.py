"""What all strategies of one search share, and the plan that it makes of one strategy and a number of users."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from roofplan import money
from roofplan.laws import Number, batching, smaller
from roofplan.operations.table import element_bytes
from roofplan.records.calibration import Fit
from roofplan.records.engine import Engine
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.strategy import Strategy
from roofplan.serving.ledger import Footprint, Ledger, footprints, ledger
from roofplan.serving.plan import Plan, Request, figures_of
from roofplan.serving.prediction import predict
from roofplan.timing.power import wall_power
from roofplan.timing.rates import Rates, rates

MOST_SEATS = 16_384
"""Largest limit of running sequences that a plan sets [1]."""

Footprints = dict[tuple[object, ...], Sequence[Footprint]]
"""Footprints of strategies by their number formats and degrees."""


class Grid(NamedTuple):
    """Strategies x users of a setup.

    Parameters
    ----------
    figures : by metric, in its unit.
    load : utilisation at which costs are counted [1].
    """

    figures: Mapping[str, np.ndarray]
    load: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A request on one machine, with an engine and number formats.

    Parameters
    ----------
    asked : request of the search.
    machine : devices.
    model : the model as the engine holds it.
    engine : with the settings of the request.
    precision, kv_precision : number formats of weights and cache, by name.
    cost : of the machine per hour, None without a price.
    fit : fitted constants.
    counted : footprints so far, shared by the setups of a model, by how it is held.
    """

    asked: Request
    machine: Machine
    model: Model
    engine: Engine
    precision: str
    kv_precision: str
    cost: money.HourlyCost | None
    fit: Fit
    counted: Footprints = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, asked: Request) -> Setup:
        """Return the setup of a plan."""
        return cls(
            asked=asked,
            machine=plan.machine,
            model=plan.model,
            engine=plan.engine,
            precision=plan.precision,
            kv_precision=plan.kv_precision,
            cost=plan.cost,
            fit=plan.rates.fit,
        )

    @property
    def rates(self) -> Rates:
        """Achieved rates of the machine under the engine."""
        return rates(self.machine, self.engine, self.fit)

    @property
    def kv_bytes(self) -> float:
        """Bytes of one cached number [B]."""
        return element_bytes(self.kv_precision)

    def book(self, strategy: Strategy, seats: int) -> Ledger:
        """Return the memory of a strategy whose engine holds at least `seats` running sequences, over all groups."""
        model = self.model
        key = (model.dtype, model.quantization, model.latent, self.kv_bytes, *strategy.as_dict().values())
        if key not in self.counted:
            drafts = self.asked.workload.drafted > 0
            self.counted[key] = footprints(self.model, strategy, self.kv_bytes, draft=drafts)
        feet = self.counted[key]
        return ledger(self.model, strategy, self.machine, self.engine, self.asked.workload, feet, seats=seats)

    def books(self, strategy: Strategy) -> list[Ledger]:
        """Return the ledger at the engine's own limit of running sequences, or at the demanded one.

        If a rate is demanded and that limit binds before memory, ledgers with repeatedly doubled limits follow, unless
        the user states the limit.
        """
        asked = self.asked
        books = [self.book(strategy, min(asked.constraints.concurrency or 0, MOST_SEATS))]
        expands = asked.constraints.rate is not None or asked.seats == MOST_SEATS
        while expands and books[-1].fits and books[-1].by_setting < books[-1].by_memory:
            seats = 2 * math.ceil(books[-1].by_setting)
            if seats > MOST_SEATS:
                break
            more = self.book(strategy, seats)
            if more.by_setting <= books[-1].by_setting:
                break
            books.append(more)
        return [books[0], *(book for book in books[1:] if book.fits)]

    def grid(self, strategy: Strategy, users: np.ndarray, budget: Number) -> Grid:
        """Return the figures of strategies x users, each in the shape of `users`; unknown ones are absent.

        Parameters
        ----------
        strategy : degrees as numbers or arrays.
        users : on the whole machine [1].
        budget : prompt tokens that a rank may compute in a step [token].
        """
        p = predict(
            self.model,
            strategy,
            self.engine,
            self.asked.workload,
            self.rates,
            users,
            kv_bytes=self.kv_bytes,
            budget=budget,
        )
        load = self.load(p.rate)
        power = wall_power(self.machine, p.busy * load, self.fit)
        watts = None if power is None else power.value
        figures = figures_of(p, self.asked.workload, self.machine, load, watts=watts, cost=self.cost)
        return Grid({name: np.broadcast_to(x, users.shape) for name, x in figures.items()}, load * np.ones(users.shape))

    def load(self, rate: Number) -> Number:
        """Return the utilisation at which costs are counted: the requested one, at most demand over capacity [1].

        Parameters
        ----------
        rate : output of all users at full load [token/s].
        """
        demanded = self.asked.constraints.rate
        if demanded is None:
            return self.asked.utilisation
        return smaller(self.asked.utilisation, demanded * self.asked.workload.output / rate)

    def plan(self, strategy: Strategy, book: Ledger, users: int, grid: Grid, place: tuple[int, ...]) -> Plan:
        """Return the plan of a strategy, its memory and a number of users, which stand at a place of a grid."""
        values = {name: float(x[place]) for name, x in grid.figures.items()}
        return Plan(
            model=self.model,
            machine=self.machine,
            engine=self.engine,
            strategy=strategy,
            workload=self.asked.workload,
            precision=self.precision,
            kv_precision=self.kv_precision,
            users=users,
            memory=book,
            rates=self.rates,
            values={**values, "max_concurrency": book.max_concurrency},
            cost=self.cost,
            utilisation=float(grid.load[place]),
            named=self.asked.named,
        )

    def finished(self, strategy: Strategy, book: Ledger, users: int, grid: Grid, place: tuple[int, ...]) -> Plan:
        """Return the plan to show; for a demanded rate, its sequence limit holds the users and a margin for random arrivals."""
        if self.asked.constraints.rate is None:
            return self.plan(strategy, book, users, grid, place)
        each = int(batching.seats_of_arrivals(users / strategy.groups))
        roomy = self.book(strategy, each * strategy.groups)
        if roomy.fits and roomy.max_concurrency >= users:
            plan = self.plan(strategy, roomy, users, grid, place)
            return replace(plan, seats=min(each, roomy.max_concurrency // strategy.groups))
        return self.plan(strategy, self.book(strategy, users), users, grid, place)
