"""The event core compiled by numba, where the extra ``fast`` is installed: the same functions, on arrays."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import lru_cache
from inspect import isfunction
from typing import Any

import numpy as np

from roofplan.simulation import core


INLINED = frozenset({"fill", "jump", "join", "leave", "prompt_step", "returned", "wanted"})
"""Functions that every event calls with many tables; a third of the time is saved where they are compiled into their caller."""


@lru_cache(maxsize=1)
def compiled() -> Callable[..., tuple[float, int, int]] | None:
    """Return `core.run` compiled for arrays, None where numba is not installed; machine code is kept on disk."""
    try:
        from numba import njit
    except ImportError:
        return None
    spec = importlib.util.spec_from_file_location("roofplan.simulation.core_compiled", core.__file__)
    if spec is None or spec.loader is None:
        return None
    copy: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = copy  # where machine code on disk looks for it
    spec.loader.exec_module(copy)
    copy.bisect_right = njit(cache=True, error_model="numpy")(_bisect_right)
    for name, value in vars(core).items():
        if isfunction(value) and value.__module__ == core.__name__:
            how = "always" if name in INLINED else "never"
            setattr(copy, name, njit(cache=True, error_model="numpy", inline=how)(getattr(copy, name)))
    run = copy.run_on_arrays

    def on_arrays(s, t, r, out, state, front, until):
        return state._replace(**dict(zip(("heap", "order", "waiting", "ended"), run(s, t, r, out, state, front, until), strict=True)))

    return on_arrays


def _bisect_right(points: Any, at: float) -> int:
    """Return the place behind the last point that is not above a value; numba has no ``bisect``."""
    low, high = 0, len(points)
    while low < high:
        middle = (low + high) // 2
        if at < points[middle]:
            high = middle
        else:
            low = middle + 1
    return low


def arrays(state: core.State) -> core.State:
    """Return a state of lists as the compiled functions take it."""
    return core.State(*(np.asarray(one, np.float64 if one is state.clock else np.int64) for one in state))
