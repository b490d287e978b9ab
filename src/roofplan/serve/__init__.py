"""One serving configuration, or a grid of them: memory ledger, time, rates, power, and which limit binds.

`ledger` says what fits, `predict` how fast it is; both join records and laws.
"""

from __future__ import annotations

from roofplan.serve.bounds import LIMIT_NAMES, Floors, bound_of, floors, leaves, limit_of
from roofplan.serve.ledger import (
    Footprint,
    Ledger,
    batched_tokens,
    cache_of,
    default,
    footprint,
    footprints,
    layer_bytes,
    ledger,
)
from roofplan.serve.prediction import Prediction, predict, token_time
from roofplan.serve.rules import legal, supported

__all__ = [
    "LIMIT_NAMES",
    "Floors",
    "Footprint",
    "Ledger",
    "Prediction",
    "batched_tokens",
    "bound_of",
    "cache_of",
    "default",
    "floors",
    "footprint",
    "footprints",
    "layer_bytes",
    "leaves",
    "ledger",
    "legal",
    "limit_of",
    "predict",
    "supported",
    "token_time",
]
