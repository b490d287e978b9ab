"""Serving: predict one configuration or a grid of them, and search all legal ones.

`ledger` counts memory and `predict` gives times. `search` predicts every legal strategy of every machine as arrays,
filters them by the constraints and orders them by an objective.
"""

from __future__ import annotations

from roofplan.serving.advice import better, improvements, smaller, standing
from roofplan.serving.bounds import LIMIT_NAMES, Floors, bound_of, causes_of, floors, leaves, limit_of
from roofplan.serving.defaults import batched_tokens, default
from roofplan.serving.evaluate import evaluate, user_ladder
from roofplan.serving.ledger import (
    Footprint,
    Ledger,
    cache_of,
    footprint,
    footprints,
    layer_bytes,
    ledger,
)
from roofplan.serving.misses import no_plan
from roofplan.serving.order import objective, ordered, pareto_front, simplicity
from roofplan.serving.plan import (
    DEFAULT_TPOT,
    OBJECTIVES,
    Improvement,
    Plan,
    Request,
    Result,
    Standing,
    Tally,
    UnderLoad,
    all_in_cost,
    bounds,
    cached_input_cost,
    first_bound,
    metrics_of,
    uncached_input_cost,
)
from roofplan.serving.prediction import Prediction, predict, token_time
from roofplan.serving.rules import legal, supported
from roofplan.serving.run import ladder, search, warnings_of
from roofplan.serving.space import (
    cache_format,
    check_pins,
    choose_engine,
    held_by,
    refuses_format,
    strategies,
    undescribed,
)

__all__ = [
    "DEFAULT_TPOT",
    "LIMIT_NAMES",
    "OBJECTIVES",
    "Floors",
    "Footprint",
    "Improvement",
    "Ledger",
    "Plan",
    "Prediction",
    "Request",
    "Result",
    "Standing",
    "Tally",
    "UnderLoad",
    "all_in_cost",
    "batched_tokens",
    "better",
    "bound_of",
    "bounds",
    "cache_format",
    "cache_of",
    "cached_input_cost",
    "causes_of",
    "check_pins",
    "choose_engine",
    "default",
    "evaluate",
    "first_bound",
    "floors",
    "footprint",
    "footprints",
    "held_by",
    "improvements",
    "ladder",
    "layer_bytes",
    "leaves",
    "ledger",
    "legal",
    "limit_of",
    "metrics_of",
    "no_plan",
    "objective",
    "ordered",
    "pareto_front",
    "predict",
    "refuses_format",
    "search",
    "simplicity",
    "smaller",
    "standing",
    "strategies",
    "supported",
    "token_time",
    "uncached_input_cost",
    "undescribed",
    "user_ladder",
    "warnings_of",
]
