"""roofplan: a slide rule for LLM compute, from wafer to token.

>>> import roofplan as rp
>>> rp.load_model("llama-3.1-70b").parameters.total
70553706496
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roofplan.api import (
        Loaded,
        benchmarks,
        device,
        load_model,
        plan_serving,
        plan_training,
        refit,
        simulate,
        validate,
    )
    from roofplan.errors import RoofplanError
    from roofplan.observe import measure_endpoint, measure_machine, measure_memory, measure_stability

__version__ = "0.1.0"
__all__ = [
    "Loaded",
    "RoofplanError",
    "__version__",
    "benchmarks",
    "device",
    "load_model",
    "measure_endpoint",
    "measure_machine",
    "measure_memory",
    "measure_stability",
    "plan_serving",
    "plan_training",
    "refit",
    "simulate",
    "validate",
]


def __getattr__(name: str) -> Any:
    """Import the interface when it is first used, so that ``import roofplan`` stays light."""
    if name == "RoofplanError":
        from roofplan import errors

        return errors.RoofplanError
    if name.startswith("measure_") and name in __all__:
        from roofplan import observe

        return getattr(observe, name)
    if name in __all__:
        from roofplan import api

        return getattr(api, name)
    raise AttributeError(f"module 'roofplan' has no attribute {name!r}")
