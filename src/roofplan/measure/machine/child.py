"""The process that measures: ``python -m roofplan.measure.machine.child REQUEST``, one JSON object a line for each figure.

A process of its own, because libraries read the number of their threads when they are loaded.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict

from roofplan.measure.machine import backends
from roofplan.measure.machine.backends import Backend, Repeat
from roofplan.measure.machine.conditions import accelerator
from roofplan.measure.machine.windows import Seen, rate

SQUARES, SQUARES_OF_DEVICES = (256, 512, 1024), (1024, 2048, 4096, 8192, 16384)
"""Sides of square products on a processor, and on an accelerator [1]."""

SKINNY = (1, 2, 4, 8, 16, 32, 64)
"""Rows of products with a weight matrix that no cache holds, as in decode [1]."""

WEIGHTS = {True: (1024, 4096), False: (8192, 8192)}
"""Inputs and outputs of that matrix, on a processor and on an accelerator [1]."""

LEAST_READ, STEP = 2**18, 4
"""Least bytes that are read [B], and factor between sizes [1]."""

MESSAGES = tuple(4**k for k in range(5, 14))
"""Bytes of a copy over a link [B]."""

PASSES, WINDOWS = 3, 8
"""Passes over all figures, and most windows of a figure in each [1]."""

BLOCK = 1.0
"""Length of a part of a sustained run, of which each is one figure [s]."""


def main(request: Mapping[str, object]) -> None:
    """Measure what a request asks for, and print each figure when it is known.

    Parameters
    ----------
    request : ``device``, ``threads``, ``largest`` read [B], ``sustain`` [s], ``only`` a kind of figure or None for all.
    """
    device, threads = str(request["device"]), int(str(request["threads"]))
    largest = int(str(request["largest"]))
    rotation = max(backends.ROTATION, largest // 4)
    backend: Backend = backends.Numpy(threads, rotation) if device == "numpy" else backends.Torch(device, threads)
    what = {} if backend.host else backends.described(device)
    if not backend.host:
        largest = min(largest, int(str(what["memory"])) // 8)
    busy = backend.busy if backend.host else None

    def timed(kind: str, work: float, unit: str, run: Repeat, **about: object) -> Seen:
        found = rate(work, run, unit, busy=busy, windows=WINDOWS)
        tell(kind=kind, **about, **asdict(found))
        return found

    tell(kind="backend", name=backend.name, formats=list(backend.formats), library=backends.library(), device=what)
    if request.get("only") == "vector":
        timed(
            "vector", 2.0 * 512**3, "FLOP/s", backend.product("fp32", 512, 512, 512), format="fp32", m=512, k=512, n=512
        )
        return
    for turn in range(
        PASSES
    ):  # a shared processor's clock changes within a minute: each figure is measured in each pass
        tell(kind="pass", done=turn, of=PASSES)
        best = _products(backend, timed)
        if "uuid" in what:
            tell(kind="conditions", told=accelerator(str(what["uuid"])))
        _memory(backend, largest, busy)
        _launches(backend)
    tell(kind="pass", done=PASSES, of=PASSES)
    for name, sized in backend.links().items():
        for size in MESSAGES:
            timed("message", 1.0, "s", sized(size), link=name, size=size)
    if request["sustain"]:
        _sustain(backend, best, float(str(request["sustain"])), str(what.get("uuid", "")))


def _launches(backend: Backend) -> None:
    """Time small kernels, which one thread launches however many compute."""
    tell(kind="launch", captured=False, **asdict(rate(1.0, backend.launch(), "s", busy=None, windows=WINDOWS)))
    graph = backend.captured()
    if graph is not None:
        seen = rate(1.0, graph, "s", busy=None, windows=WINDOWS)
        each = {"best": seen.best / backends.CAPTURED, "median": seen.median / backends.CAPTURED}
        tell(kind="launch", captured=True, **{**asdict(seen), **each})


def tell(**figure: object) -> None:
    """Print one figure as a line."""
    sys.stdout.write(json.dumps(figure) + "\n")
    sys.stdout.flush()


def _products(backend: Backend, timed: Callable[..., Seen]) -> tuple[str, int]:
    """Time square and skinny products of every format, and return the format and side of the fastest."""
    best, fastest = ("fp32", 512), 0.0
    sides = SQUARES if backend.host else SQUARES_OF_DEVICES
    inputs, outputs = WEIGHTS[backend.host]
    for number in backend.formats:
        for side in sides:
            about = {"format": number, "m": side, "k": side, "n": side}
            seen = timed("product", 2.0 * side**3, "FLOP/s", backend.product(number, side, side, side), **about)
            if seen.best > fastest:
                best, fastest = (number, side), seen.best
        if number in {"fp8", "int8", "fp64"}:
            continue
        for rows in SKINNY:
            about = {"format": number, "m": rows, "k": inputs, "n": outputs}
            timed(
                "skinny",
                2.0 * rows * inputs * outputs,
                "FLOP/s",
                backend.product(number, rows, inputs, outputs),
                **about,
            )
    return best


def _memory(backend: Backend, largest: int, busy: Callable[[], float] | None) -> None:
    """Time reads and copies by size, each in the fastest of its ways."""
    sizes = [LEAST_READ]
    while sizes[-1] * 2 * STEP <= largest:
        sizes.append(sizes[-1] * STEP)
    for size in (*sizes, largest):
        ways = [rate(size, way, "B/s", busy=busy, windows=WINDOWS) for way in backend.reads(size)]
        tell(kind="read", size=size, **asdict(max(ways, key=lambda one: one.best)))
    copied = rate(largest, backend.copy(largest // 2), "B/s", busy=busy, windows=WINDOWS)
    tell(kind="copy", size=largest // 2, **asdict(copied))


def _sustain(backend: Backend, best: tuple[str, int], seconds: float, uuid: str) -> None:
    """Run the fastest product for some time, and tell its rate second by second."""
    number, side = best
    run = backend.product(number, side, side, side)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        start, done = time.perf_counter(), 0
        while time.perf_counter() - start < BLOCK:
            run(1)
            done += 1
        spent = time.perf_counter() - start
        about = accelerator(uuid) if uuid else {}
        tell(
            kind="sustained",
            at=start - began,
            rate=2.0 * side**3 * done / spent,
            format=number,
            side=side,
            temperature=about.get("temperature"),
            clock=about.get("clock of its units"),
            throttled=about.get("throttled by"),
        )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
