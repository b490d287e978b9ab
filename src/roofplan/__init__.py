"""roofplan: a slide rule for LLM compute, from wafer to token.

>>> import roofplan as rp
>>> rp.load_model("llama-3.1-70b").parameters.total
70553706496
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roofplan._version import __version__

if TYPE_CHECKING:
    from roofplan.api import Loaded, load_model, refit, validate
    from roofplan.errors import RoofplanError
    from roofplan.interactive import (
        Answer,
        ask,
        benchmarks,
        device,
        measure_endpoint,
        measure_machine,
        measure_memory,
        measure_stability,
        plan_pool,
        plan_serving,
        plan_training,
        prove_pool,
        simulate,
        simulate_pool,
        token_costs,
    )


__all__ = [
    "Answer",
    "Loaded",
    "RoofplanError",
    "__version__",
    "ask",
    "benchmarks",
    "device",
    "load_model",
    "measure_endpoint",
    "measure_machine",
    "measure_memory",
    "measure_stability",
    "plan_pool",
    "plan_serving",
    "plan_training",
    "prove_pool",
    "refit",
    "simulate",
    "simulate_pool",
    "token_costs",
    "validate",
]

FROM_API = frozenset({"Loaded", "load_model", "refit", "validate"})
"""Names that are functions of `api` themselves; the others show their answers."""


def __getattr__(name: str) -> Any:
    """Import the interface when it is first used, so that ``import roofplan`` stays light."""
    if name == "RoofplanError":
        from roofplan import errors

        return errors.RoofplanError
    if name in FROM_API:
        from roofplan import api

        return getattr(api, name)
    if name in __all__:
        from roofplan import interactive

        return getattr(interactive, name)
    raise AttributeError(f"module 'roofplan' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
