"""Training: the memory ledger of every stage, the time of a step, the search over layouts, and the run."""

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
