"""The event core compiled by numba, where the extra ``fast`` is installed: the same functions, on arrays."""

from __future__ import annotations

import importlib.util
import sys
import zlib
from collections.abc import Callable
from functools import lru_cache
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import platformdirs

from roofplan.serving.surface import Surface, Values
from roofplan.simulation import core, records, steps

INLINED = frozenset(
    {"alike", "attention", "fill", "jump", "join", "leave", "prompt_step", "returned", "slope_at", "wanted", "within"}
)
"""Functions that every event calls with many tables; a third of the time is saved where they are compiled into their caller."""


@lru_cache(maxsize=1)
def compiled() -> Callable[..., records.State] | None:
    """Return `core.run` compiled for arrays, None where numba is not installed; machine code is kept on disk.

    It returns the state afterwards, whose queues are arrays.
    """
    try:
        from numba import config, njit
    except ImportError:
        return None
    timed, copy = _copied(steps), _copied(core)
    settings: Any = config
    given, settings.CACHE_DIR = settings.CACHE_DIR, _kept_in(settings.CACHE_DIR)
    try:
        timed.bisect_right = njit(cache=True, error_model="numpy")(_bisect_right)
        for module, home in ((timed, steps), (copy, core)):
            for name, value in vars(home).items():
                if isfunction(value) and value.__module__ == home.__name__:
                    built = njit(inline="always" if name in INLINED else "never", cache=True, error_model="numpy")
                    setattr(module, name, built(getattr(module, name)))
    finally:
        settings.CACHE_DIR = given
    for name in vars(steps).keys() & vars(core).keys():
        if isfunction(getattr(steps, name)):
            setattr(copy, name, getattr(timed, name))
    copy.borrowed = _borrowed()
    run = copy.run_on_arrays

    def on_arrays(
        s: records.Scheduler,
        t: Surface,
        r: records.Requests,
        out: records.Times,
        state: records.State,
        until: float,
    ) -> records.State:
        reals = (state.clock, state.late, state.behind)
        now = records.State(
            *(np.asarray(one, np.float64 if any(one is real for real in reals) else np.int64) for one in state)
        )
        heap, order, waiting, ended = run(s, t, r, out, now, until)
        return now._replace(heap=heap, order=order, waiting=waiting, ended=ended)

    return on_arrays


def _kept_in(given: str) -> str:
    """Return where machine code is kept, in a folder that the user gave to numba or in the user's own cache.

    numba knows a function by its own file alone, but what it compiles holds code of all of these.
    """
    code = b"".join(Path(str(module.__file__)).read_bytes() for module in (core, steps, records, sys.modules[__name__]))
    return str(Path(given or platformdirs.user_cache_dir("roofplan")) / f"events-{zlib.crc32(code):08x}")


def _borrowed() -> Callable[..., object]:
    """Return a compiled function that returns a record whose arrays carry no count of references.

    numba counts them atomically wherever a function takes a field of a record, which was 90% of the core's time.
    """
    from numba.core import types
    from numba.extending import intrinsic
    from numba.np import arrayobj

    def build(*given: Any) -> object:
        target, builder, signature, (record,) = given
        fields = []
        for k, kind in enumerate(signature.return_type.types):
            field = builder.extract_value(record, k)
            if isinstance(kind, types.Array):
                array = arrayobj.make_array(kind)(target, builder, field)  # type: ignore[no-untyped-call]
                array.meminfo = array.meminfo.type(None)
                field = array._getvalue()  # noqa: SLF001 - numba's own name for it
            fields.append(field)
        made: object = target.make_tuple(builder, signature.return_type, fields)
        return made

    made: Callable[..., object] = intrinsic(lambda _, record: (record(record), build))
    return made


def _copied(module: ModuleType) -> Any:
    """Return a second copy of a module, whose functions may be replaced."""
    spec = importlib.util.spec_from_file_location(f"{module.__name__}_compiled", module.__file__ or "")
    if spec is None or spec.loader is None:
        raise ImportError(module.__name__)
    copy = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = copy  # where machine code on disk looks for it
    spec.loader.exec_module(copy)
    return copy


def _bisect_right(points: Values, at: float) -> int:
    """Return the place behind the last point that is not above a value; numba has no ``bisect``."""
    low, high = 0, len(points)
    while low < high:
        middle = (low + high) // 2
        if at < points[middle]:
            high = middle
        else:
            low = middle + 1
    return low
