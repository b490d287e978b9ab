"""Serving search: plans, ladder and warnings."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from roofplan import money
from roofplan.catalogue.machines import fewer_ports, with_all_ports
from roofplan.records import units
from roofplan.records.calibration import Fit
from roofplan.serving.advice import smaller, standing
from roofplan.serving.certainty import uses
from roofplan.serving.evaluate import evaluate
from roofplan.serving.misses import no_plan
from roofplan.serving.order import ordered
from roofplan.serving.plan import Plan, Request, Result, Tally
from roofplan.serving.setups import Setup
from roofplan.serving.space import check_pins
from roofplan.timing.rates import rates


def search(asked: Request, fit: Fit, progress: Callable[[int, int], None] | None = None) -> Result:
    """Return the plans of a request, best first.

    Parameters
    ----------
    asked : model, workload, machines, engines, limits and objective.
    fit : fitted constants.
    progress : called with the number of finished parts of the search and their total.

    Returns
    -------
    Ranked plans, the ladder of the first one, warnings and the tally.

    Raises
    ------
    NoPlan : nothing satisfies the limits; holds the nearest miss and its remedies.
    StrategyError : pinned degrees that no machine can hold.
    """
    started = time.process_time()
    tally = Tally()
    ranked = _ranked(asked, fit, tally, progress)
    steps = ladder(ranked[0], asked)
    tally.seconds = time.process_time() - started
    return Result(
        plans=ranked,
        ladder=steps,
        tally=tally,
        asked=asked,
        fit=fit,
        warnings=warnings_of(ranked[0]),
        standing=standing(ranked[0], asked, fit),
        smaller=smaller(ranked[0], asked, fit),
    )


def best_plan(asked: Request, fit: Fit) -> Plan:
    """Return the best plan of a request and nothing beside it: no ladder, no warnings, and no remedies where there is none.

    Parameters
    ----------
    asked : model, workload, machines, engines, limits and objective.
    fit : fitted constants.

    Returns
    -------
    The plan.

    Raises
    ------
    NoPlan : nothing satisfies the limits.
    StrategyError : pinned degrees that no machine can hold.
    """
    return _ranked(asked, fit, Tally(), remedies=False)[0]


def _ranked(
    asked: Request,
    fit: Fit,
    tally: Tally,
    progress: Callable[[int, int], None] | None = None,
    *,
    remedies: bool = True,
) -> list[Plan]:
    """Return the plans of a request, best first; a refusal's remedies take a search each."""
    started = time.process_time()
    check_pins(asked.pins, asked.machines)
    plans = evaluate(asked, tally, fit, progress)
    tally.seconds = time.process_time() - started
    if not plans:
        refusal = no_plan(asked, tally, fit, remedies=remedies)
        refusal.search = tally
        raise refusal
    return ordered(plans, asked.best, limited=asked.constraints.timed)


def ladder(plan: Plan, asked: Request) -> list[Plan]:
    """Return the same plan at few, intermediate and the maximum number of users.

    Parameters
    ----------
    plan : a plan.
    asked : the request that it answers.

    Returns
    -------
    Plans with more and more users.
    """
    most = plan.memory.max_concurrency
    wanted = sorted({1, *(n for n in (8, 64) if n < most), plan.users, *([most] if most > 0 else [])})
    setup = Setup.of(plan, asked)
    grid = setup.grid(plan.strategy, np.array(wanted, dtype=float), plan.memory.budget_tokens)
    return [setup.plan(plan.strategy, plan.memory, users, grid, (place,)) for place, users in enumerate(wanted)]


def _fewer_ports(plan: Plan) -> list[tuple[str, str]]:
    """Return a warning about the time lost by a machine with fewer network ports than it is sold with."""
    sold = with_all_ports(plan.machine)
    if sold is None:
        return []
    wider = plan.predicted(rates(sold, plan.engine, plan.rates.fit))
    less = 1.0 - float(wider.pace.value) / plan.pace.value
    return fewer_ports(plan.machine, sold, "a token", less)


def _behind_one_front_end(plan: Plan) -> list[tuple[str, str]]:
    """Return a warning where a plan answers more requests than its front ends are predicted to read."""
    answered = float(plan.values["output_tokens_per_second"]) / plan.workload.output
    busy = answered * float(plan.rates.front)
    started = plan.engine.front_ends(int(plan.strategy.dp))
    if busy <= started:
        return []
    most = units.significant(1.0 / float(plan.rates.front))
    said = f"{units.significant(answered)} requests a second need {math.ceil(busy)} front ends, {started} by default: one is predicted to read {most}, one after the other"
    return [("front_end", said)]


def warnings_of(plan: Plan) -> list[tuple[str, str]]:
    """Return the warnings about a plan.

    Parameters
    ----------
    plan : a plan.

    Returns
    -------
    Each with a code.
    """
    out = [("model", text) for text in plan.model.warnings]
    out += [
        ("fallback", f"{plan.machine.device.id} has no {name} tensor unit: such products run in {other}")
        for name, other in plan.rates.fallbacks.items()
        if uses(plan.model, name)
    ]
    if plan.cost is not None:
        out += money.warnings_of(plan.cost)
    registry = plan.engine.raw.get("families", {})
    listed = registry.get("architectures", ()) if registry.get("registry", "").startswith("Hugging Face") else ()
    name = plan.model.architecture
    if listed and name.endswith(("ForCausalLM", "LMHeadModel")) and name not in listed:
        out.append(("unlisted", f"{plan.engine.id}'s list of models does not name {name}: it may not load"))
    out += _behind_one_front_end(plan)
    out += _fewer_ports(plan)
    if plan.machine.device.geforce_licence:
        out.append(("geforce_licence", "the GeForce driver licence forbids data centres (blockchain aside)"))
    return out
