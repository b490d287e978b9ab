"""Training: memory ledger of each stage, step time, search over layouts, and the whole run."""

from roofplan.training.plan import OBJECTIVES, TrainingPlan, TrainingRequest, binding, flops_per_token, planned
from roofplan.training.ranking import TrainingResult, plan_all
from roofplan.training.run import CHECKPOINTS, POLICIES, Run
from roofplan.training.search import search

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
