"""Every legal strategy of every machine, predicted as arrays, filtered by constraints, ordered by an objective.

One machine's strategies and concurrencies form one grid (strategy x users); memory prunes it first.
"""

from __future__ import annotations

from roofplan.search.evaluate import evaluate, user_ladder
from roofplan.search.misses import no_plan, relaxations
from roofplan.search.order import objective, ordered, pareto_front, simplicity
from roofplan.search.plan import (
    DEFAULT_TPOT,
    OBJECTIVES,
    Plan,
    Request,
    Result,
    Tally,
    all_in_cost,
    at_price,
    bounds,
    cached_input_cost,
    first_bound,
    metrics_of,
    uncached_input_cost,
)
from roofplan.search.run import ladder, search, warnings_of
from roofplan.search.space import (
    at_precision,
    cache_format,
    check_pins,
    choose_engine,
    divisors,
    in_files_of,
    refuses_format,
    strategies,
)

__all__ = [
    "DEFAULT_TPOT",
    "OBJECTIVES",
    "Plan",
    "Request",
    "Result",
    "Tally",
    "all_in_cost",
    "at_precision",
    "at_price",
    "bounds",
    "cache_format",
    "cached_input_cost",
    "check_pins",
    "choose_engine",
    "divisors",
    "evaluate",
    "first_bound",
    "in_files_of",
    "ladder",
    "metrics_of",
    "no_plan",
    "objective",
    "ordered",
    "pareto_front",
    "refuses_format",
    "relaxations",
    "search",
    "simplicity",
    "strategies",
    "uncached_input_cost",
    "user_ladder",
    "warnings_of",
]
