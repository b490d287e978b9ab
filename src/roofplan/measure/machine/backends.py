"""What is timed: products, reads, copies and small kernels, with numpy on a processor or with torch on what torch finds.

Each operation is a function that repeats it as often as it is told and returns when the last one has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from importlib import import_module
from typing import Protocol

import numpy as np

Repeat = Callable[[int], None]

ROTATION = 256 * 2**20
"""Least bytes of weights that products go through in turn, so that no cache keeps those of a small one [B]."""


class Backend(Protocol):
    """What a machine is asked to do.

    Parameters
    ----------
    name : library and device.
    formats : number formats of its products.
    host : whether its threads are the processor's, whose time they are charged.
    """

    name: str
    formats: tuple[str, ...]
    host: bool

    def product(self, number: str, m: int, k: int, n: int) -> Repeat:
        """Return products of m x k by k x n in a number format."""

    def reads(self, size: int) -> list[Repeat]:
        """Return ways to read `size` bytes once [B]."""

    def copy(self, size: int) -> Repeat:
        """Return copies of `size` bytes, which read and write them [B]."""

    def launch(self) -> Repeat:
        """Return operations on one number, each launched by itself."""

    def captured(self) -> Repeat | None:
        """Return replays of a captured graph of `CAPTURED` operations on one number, None where there is none."""

    def links(self) -> dict[str, Callable[[int], Repeat]]:
        """Return copies of a number of bytes over links, by the link's name."""

    def busy(self) -> float:
        """Return the processor time of the threads at work, over their number [s]."""


class Numpy:
    """Products by numpy's linear algebra, memory by its reductions in as many threads.

    Parameters
    ----------
    threads : threads at work, which the environment of the process also sets for the library [1].
    rotation : bytes of weights that products go through in turn [B].
    """

    host = True
    formats: tuple[str, ...] = ("fp32", "fp64")

    def __init__(self, threads: int, rotation: int = ROTATION) -> None:
        self.threads, self.rotation = threads, rotation
        self.name = f"numpy {np.__version__}"
        self.pool = ThreadPoolExecutor(threads)
        self.random = np.random.default_rng(0)

    def product(self, number: str, m: int, k: int, n: int) -> Repeat:
        """Return products of m x k by k x n in a number format."""
        kind = np.float32 if number == "fp32" else np.float64
        count = 1 if m > 64 else max(1, self.rotation // (k * n * np.dtype(kind).itemsize))
        left = self.random.random((m, k)).astype(kind)
        right = [np.full((k, n), 0.5, kind) for _ in range(count)]
        out = np.empty((m, n), kind)

        def run(times: int) -> None:
            for turn in range(times):
                np.dot(left, right[turn % count], out=out)

        return run

    def _parts(self, size: int) -> list[np.ndarray]:
        each = max(64, size // self.threads // 64 * 64)
        return [np.ones(each // 8) for _ in range(self.threads)]

    def _together(self, each: Callable[[int], object]) -> Repeat:
        if self.threads == 1:

            def alone(times: int) -> None:
                for _ in range(times):
                    each(0)

            return alone

        def many(part: int, times: int) -> None:
            for _ in range(times):
                each(part)

        def run(times: int) -> None:
            wait([self.pool.submit(many, part, times) for part in range(self.threads)])

        return run

    def reads(self, size: int) -> list[Repeat]:
        """Return ways to read `size` bytes once."""
        parts = self._parts(size)
        views = [[part.view(kind) for part in parts] for kind in (np.float32, np.int64, np.int8)]
        return [
            self._together(lambda part: np.maximum.reduce(views[0][part])),
            self._together(lambda part: np.bitwise_or.reduce(views[1][part])),
            self._together(lambda part: np.maximum.reduce(views[2][part])),
            self._together(lambda part: np.add.reduce(parts[part])),
        ]

    def copy(self, size: int) -> Repeat:
        """Return copies of `size` bytes."""
        parts = self._parts(size)
        into = [np.empty_like(part) for part in parts]
        return self._together(lambda part: np.copyto(into[part], parts[part]))

    def launch(self) -> Repeat:
        """Return operations on one number."""
        one, out = np.ones(1, np.float32), np.empty(1, np.float32)

        def run(times: int) -> None:
            for _ in range(times):
                np.add(one, one, out=out)

        return run

    def captured(self) -> Repeat | None:
        """Return operations on one number inside a captured graph, None without graphs."""
        return None

    def links(self) -> dict[str, Callable[[int], Repeat]]:
        """Return copies over links, by name."""
        return {}

    def busy(self) -> float:
        """Return the processor time of the threads, over their number [s]."""
        return time.process_time() / self.threads


CAPTURED = 200
"""Operations in a captured graph [1]."""


class Torch:
    """Products, memory and launches by torch on a device that it finds.

    Parameters
    ----------
    device : ``cuda``, ``cuda:1``, ``mps``, ``xpu`` or ``cpu``.
    threads : threads of a processor [1].
    """

    def __init__(self, device: str, threads: int) -> None:
        torch = import_module("torch")
        self.torch = torch
        self.device = torch.device(device)
        self.kind = self.device.type
        self.host = self.kind == "cpu"
        self.threads = threads
        if self.host:
            torch.set_num_threads(threads)
        elif hasattr(getattr(torch, self.kind), "set_device"):  # synchronize() waits for the current device
            getattr(torch, self.kind).set_device(self.device)
        self.name = f"torch {torch.__version__} on {device}"
        self.formats = tuple(one for one in ("bf16", "fp16", "fp32", "tf32", "fp8", "int8", "fp64") if self._has(one))

    def _has(self, number: str) -> bool:
        """Return whether the device multiplies in a number format, by trying."""
        if number == "tf32" and self.kind != "cuda":
            return False
        try:
            self.product(number, 64, 64, 64)(1)
        except (RuntimeError, AttributeError, ValueError, TypeError):  # among them what is not implemented
            return False
        return True

    def wait(self) -> None:
        """Return when the device has done all."""
        if self.kind != "cpu":
            getattr(self.torch, self.kind).synchronize()

    def _repeat(self, each: Callable[[int], object]) -> Repeat:
        def run(times: int) -> None:
            for turn in range(times):
                each(turn)
            self.wait()

        return run

    def product(self, number: str, m: int, k: int, n: int) -> Repeat:
        """Return products of m x k by k x n in a number format."""
        torch = self.torch
        if number == "fp8":
            return self._scaled(m, k, n)
        if number == "int8":
            left = torch.ones((m, k), dtype=torch.int8, device=self.device)
            right = torch.ones((k, n), dtype=torch.int8, device=self.device)
            return self._repeat(lambda _: torch._int_mm(left, right))  # noqa: SLF001 - torch has no other name for it
        kind = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}.get(number, torch.float32)
        count = 1 if m > 64 else max(1, ROTATION // (k * n * torch.finfo(kind).bits // 8))
        left = torch.randn((m, k), dtype=kind, device=self.device)
        right = [torch.randn((k, n), dtype=kind, device=self.device) for _ in range(count)]
        out = torch.empty((m, n), dtype=kind, device=self.device)

        def each(turn: int) -> None:
            torch.mm(left, right[turn % count], out=out)

        repeat = self._repeat(each)

        def run(times: int) -> None:
            if self.kind == "cuda":
                torch.backends.cuda.matmul.allow_tf32 = number == "tf32"
            repeat(times)

        return run

    def _scaled(self, m: int, k: int, n: int) -> Repeat:
        torch = self.torch
        left = torch.randn((m, k), device=self.device).to(torch.float8_e4m3fn)
        right = torch.randn((n, k), device=self.device).to(torch.float8_e4m3fn).t()
        one = torch.ones((), device=self.device)
        return self._repeat(
            lambda _: torch._scaled_mm(  # noqa: SLF001 - torch has no other name for it
                left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
            )
        )

    def reads(self, size: int) -> list[Repeat]:
        """Return ways to read `size` bytes once."""
        torch = self.torch
        data = torch.ones(size // 4, dtype=torch.float32, device=self.device)
        return [self._repeat(lambda _: torch.sum(data)), self._repeat(lambda _: torch.max(data))]

    def copy(self, size: int) -> Repeat:
        """Return copies of `size` bytes."""
        torch = self.torch
        data = torch.ones(size // 4, dtype=torch.float32, device=self.device)
        into = torch.empty_like(data)
        return self._repeat(lambda _: into.copy_(data))

    def launch(self) -> Repeat:
        """Return operations on one number."""
        one = self.torch.ones(1, device=self.device)
        return self._repeat(lambda _: one.add_(1.0))

    def captured(self) -> Repeat | None:
        """Return replays of a graph of `CAPTURED` operations on one number, None without graphs."""
        if self.kind != "cuda":
            return None
        torch = self.torch
        one = torch.ones(1, device=self.device)
        graph = torch.cuda.CUDAGraph()
        one.add_(1.0)
        self.wait()
        with torch.cuda.graph(graph):
            for _ in range(CAPTURED):
                one.add_(1.0)
        return self._repeat(lambda _: graph.replay())

    def links(self) -> dict[str, Callable[[int], Repeat]]:
        """Return copies over links, by name."""
        torch = self.torch
        if self.kind != "cuda":
            return {}

        def between(source: str, target: str) -> Callable[[int], Repeat]:
            def sized(size: int) -> Repeat:
                data = torch.ones(max(1, size // 4), device=source, pin_memory=source == "cpu")
                into = torch.empty(max(1, size // 4), device=target, pin_memory=target == "cpu")
                return self._repeat(lambda _: into.copy_(data, non_blocking=True))

            return sized

        here = f"cuda:{self.device.index or 0}"
        out = {"host to device": between("cpu", here), "device to host": between(here, "cpu")}
        for other in range(torch.cuda.device_count()):
            if f"cuda:{other}" != here:
                out[f"device to device {other}"] = between(here, f"cuda:{other}")
        return out

    def busy(self) -> float:
        """Return the processor time of the threads, over their number [s]."""
        return time.process_time() / self.threads


def described(device: str) -> dict[str, object]:
    """Return what torch says of a device: its name, memory and, on NVIDIA's, its UUID.

    Parameters
    ----------
    device : as torch calls it.

    Returns
    -------
    ``name``, ``memory`` [B] and ``uuid``; what is not known is absent.
    """
    torch = import_module("torch")
    kind, _, index = device.partition(":")
    if kind == "mps":
        return {"name": "Apple GPU", "memory": int(torch.mps.recommended_max_memory())}
    found = getattr(torch, kind).get_device_properties(int(index or 0))
    out: dict[str, object] = {"name": str(found.name), "memory": int(found.total_memory)}
    uuid = getattr(found, "uuid", None)
    return out | ({} if uuid is None else {"uuid": f"GPU-{uuid}"})


def library() -> str:
    """Return the name of the linear algebra behind numpy, as its build states it."""
    found = np.show_config(mode="dicts")
    return str(found.get("Build Dependencies", {}).get("blas", {}).get("name", "")) if found else ""
