"""Training: the memory ledger of every stage, the time of a step, the search over layouts, and the run."""

from roofplan.train.plan import (
    OBJECTIVES,
    TrainingPlan,
    TrainingRequest,
    TrainingResult,
    binding,
    flops_per_token,
    plan_all,
    planned,
)
from roofplan.train.run import CHECKPOINTS, POLICIES, Run
from roofplan.train.search import search

__all__ = [
    "CHECKPOINTS",
    "OBJECTIVES",
    "POLICIES",
    "Run",
    "TrainingPlan",
    "TrainingRequest",
    "TrainingResult",
    "binding",
    "flops_per_token",
    "plan_all",
    "planned",
    "search",
]
