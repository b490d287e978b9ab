"""What a machine attains, measured in a process of its own; set beside data sheets; written as a chip of the user's."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec

import numpy as np

from roofplan.errors import InputError
from roofplan.measure.machine.child import PASSES
from roofplan.measure.machine.conditions import FLOP_PER_CYCLE, cache, conditions, memory, processors
from roofplan.measure.machine.hosts import messages
from roofplan.measure.stream import Json

BEYOND_CACHE, LEAST, MOST_OF_MEMORY = 4, 2**28, 0.2
"""Bytes read for bandwidth: multiple of the last cache [1], at least [B], at most of the memory [1]."""

DEVICE_READ = 2**32
"""Bytes read for the bandwidth of an accelerator [B]."""

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Environment variables that linear algebra reads its number of threads from."""

NARROW = {"OPENBLAS_CORETYPE": "Haswell"}
"""What makes OpenBLAS use 256-bit vectors on a processor with wider ones, as packaged engines do."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a machine.

    Parameters
    ----------
    kind : ``product``, ``skinny``, ``read``, ``copy``, ``launch``, ``message`` or ``vector``.
    about : format and shape, size, or link.
    best, median : of the windows that count; best is the least where `unit` is a time.
    kept, windows : windows that count, and all [1].
    """

    kind: str
    about: Json
    best: float
    median: float
    kept: int
    windows: int
    unit: str


@dataclass(frozen=True, slots=True)
class Link:
    """Time of a message over a link, fitted as alpha + bytes / beta.

    Parameters
    ----------
    alpha, beta : latency [s] and bandwidth [B/s].
    worst : largest relative error of the fitted line [1].
    """

    name: str
    alpha: float
    beta: float
    worst: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a machine attained, and under which conditions.

    Parameters
    ----------
    device : ``numpy``, or a device as torch calls it.
    backend, library : what multiplied.
    cache, memory : last cache, and memory of the host or the accelerator; None where not known [B].
    sustained : seconds after the start, rate, and what the device said, of each second of a long run.
    """

    device: str
    threads: int
    conditions: dict[str, str]
    cache: int | None
    memory: int | None
    backend: str = ""
    library: str = ""
    figures: list[Figure] = field(default_factory=list)
    sustained: list[Json] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def host(self) -> bool:
        """Whether a processor was measured."""
        return self.device in HOSTS

    @property
    def wide(self) -> bool:
        """Whether the processor has 512-bit vectors."""
        return self.conditions.get("widest vectors") == "avx512f"

    def of(self, kind: str, **about: object) -> list[Figure]:
        """Return the figures of a kind that count, with these properties."""
        return [one for one in self.figures if one.kind == kind and one.kept and about.items() <= one.about.items()]

    def product(self, number: str) -> Figure | None:
        """Return the fastest product of a number format, None where it was not measured."""
        return max(self.of("product", format=number), key=lambda one: one.best, default=None)

    @property
    def formats(self) -> list[str]:
        """Number formats whose products were measured."""
        return list(dict.fromkeys(one.about["format"] for one in self.of("product")))

    @property
    def bandwidth(self) -> Figure | None:
        """Reads beyond the last cache, None where none count."""
        return max(self.of("read"), key=lambda one: one.about["size"], default=None)

    @property
    def vector(self) -> Figure | None:
        """Products with 256-bit vectors: measured apart where the processor has wider ones."""
        return next(iter(self.of("vector")), None)

    @property
    def launch(self) -> Figure | None:
        """Time between small kernels, inside a captured graph where there is one."""
        return min(self.of("launch"), key=lambda one: one.best, default=None)

    @property
    def drop(self) -> float | None:
        """Share of its first rate that a sustained run lost at its end, None without one [1]."""
        if len(self.sustained) < LEAST_BLOCKS:
            return None
        rates = [one["rate"] for one in self.sustained]
        part = max(1, len(rates) // 10)
        return 1.0 - float(statistics.median(rates[-part:])) / float(statistics.median(rates[:part]))

    @property
    def links(self) -> list[Link]:
        """Links with their fitted latency and bandwidth."""
        out = []
        for name in dict.fromkeys(one.about["link"] for one in self.of("message")):
            seen = self.of("message", link=name)
            out.append(line(name, [one.about["size"] for one in seen], [one.best for one in seen]))
        return out


LEAST_BLOCKS = 4
"""Seconds of a sustained run from which a drop is told [1]."""


def line(name: str, sizes: list[int], times: list[float]) -> Link:
    """Return the line alpha + bytes / beta through the times of messages, fitted by relative errors.

    Parameters
    ----------
    name : of the link.
    sizes : bytes of the messages [B].
    times : of the messages [s].

    Returns
    -------
    Latency, bandwidth and the worst relative error.

    Examples
    --------
    >>> found = line("loopback", [1000, 2000, 4000], [2e-6, 3e-6, 5e-6])
    >>> round(found.alpha * 1e6, 6), round(found.beta / 1e9, 6)
    (1.0, 1.0)
    """
    bytes_, seconds = np.asarray(sizes, float), np.asarray(times, float)
    columns = np.stack([1.0 / seconds, bytes_ / seconds], axis=1)
    alpha, slope = np.linalg.lstsq(columns, np.ones(len(seconds)), rcond=None)[0]
    alpha, slope = max(float(alpha), 0.0), max(float(slope), 1e-15)
    worst = float(np.max(np.abs((alpha + slope * bytes_) / seconds - 1.0)))
    return Link(name, alpha, 1.0 / slope, worst)


def devices() -> list[str]:
    """Return the devices that can be measured: ``numpy`` always, those of torch where it is installed."""
    if find_spec("torch") is None:
        return ["numpy"]
    torch = import_module("torch")
    found = ["numpy", "cpu"]
    for kind in ("cuda", "xpu", "mps"):
        module = getattr(torch, kind, None) or getattr(torch.backends, kind, None)
        if module is not None and module.is_available():
            found += (
                [f"{kind}:{k}" for k in range(module.device_count())] if hasattr(module, "device_count") else [kind]
            )
    return found


def probed(
    device: str | None,
    threads: int | None,
    sustain: float,
    tick: Callable[[int, int], None] | None = None,
    link: str | None = None,
) -> Probe:
    """Return what a machine attains.

    Parameters
    ----------
    device : ``numpy``, ``cpu`` (torch's), ``cuda:0`` and the like; None for the first accelerator, else numpy.
    threads : threads of a processor, None for all that the process may use [1].
    sustain : length of a run of the fastest product, 0 for none [s].
    tick : called with the figures that are known and how many there will be about, None for no progress.
    link : HOST:PORT of another host that listens, None for none.

    Returns
    -------
    Figures and conditions.

    Raises
    ------
    InputError : a device that is not there, more threads than processors, or a host that does not answer.
    """
    place, count = chosen(device), _threads(threads)
    sent = (
        []
        if link is None
        else [Figure("message", {"link": f"to {link}", "size": n}, **asdict(s)) for n, s in messages(link)]
    )
    host = place in HOSTS
    last, ram = cache(), memory()
    largest = DEVICE_READ
    if host:
        wanted = max(LEAST, BEYOND_CACHE * (last or LEAST))
        largest = min(wanted, int(MOST_OF_MEMORY * (ram or 2**33))) // 4096 * 4096
    found = Probe(device=place, threads=count, conditions=conditions(count), cache=last, memory=ram)
    request = {"device": place, "threads": count, "largest": largest, "sustain": sustain}
    found = _filled(found, _lines(request, count, {}), tick)
    notes = []
    if host and last is not None and largest < BEYOND_CACHE * last:
        text = f"reads of {largest:,} B are less than {BEYOND_CACHE} times the last cache: bandwidth may be the cache's"
        notes.append(text)
    if host:
        found = _with_narrow(found, request)
        if found.wide and not found.of("vector"):
            notes.append(f"products by {found.library} use 512-bit vectors: engines built for 256 bits attain less")
    if not found.of("product"):
        notes.append("no window in which the processor was ours: close other programs, or give fewer --threads")
    return replace(found, notes=notes, figures=[*found.figures, *sent])


HOSTS = frozenset({"numpy", "cpu"})
"""Devices that are the processor."""


def chosen(device: str | None) -> str:
    """Return the device to measure.

    Parameters
    ----------
    device : as a user gives it, None for the first accelerator, else numpy.

    Returns
    -------
    The device.

    Raises
    ------
    InputError : it is not there.
    """
    known = devices()
    if device is None:
        return next((one for one in known if one not in HOSTS), "numpy")
    place = f"{device}:0" if f"{device}:0" in known else device
    if place not in known:
        more = "" if find_spec("torch") else "; without torch only numpy is"
        raise InputError(
            f"--device: {device} cannot be measured here; these can: {', '.join(known)}{more}",
            argument="--device",
            value=device,
            nearest=known,
        )
    return place


def _threads(asked: int | None) -> int:
    """Return the threads of a processor."""
    ours = processors()
    if asked is not None and asked > ours:
        message = f"--threads: {asked} are more than the {ours} processors that this process may use"
        raise InputError(message, argument="--threads", value=str(asked))
    return ours if asked is None else asked


NUMPY_VECTOR = {"device": "numpy", "only": "vector"}
"""What is asked of the measuring process for 256-bit vectors: numpy's library can be told, whatever else was measured."""


def _with_narrow(found: Probe, request: Mapping[str, object]) -> Probe:
    """Return a probe with products in 256-bit vectors: measured apart where the processor has wider ones and the library can be told."""
    if "widest vectors" not in found.conditions:
        return found  # nobody knows how wide these products are
    if found.wide:
        if "openblas" not in found.library:
            return found
        rows = [row for _ in range(PASSES) for row in _lines({**request, **NUMPY_VECTOR}, found.threads, NARROW)]
        return replace(found, figures=_joined(found.figures, [row for row in rows if row["kind"] == "vector"]))
    square = found.product("fp32")
    return found if square is None else replace(found, figures=[*found.figures, replace(square, kind="vector")])


def _lines(request: Mapping[str, object], threads: int, more: Mapping[str, str]) -> Iterator[Json]:
    """Yield the figures of a measuring process as it prints them."""
    environment = {**os.environ, **dict.fromkeys(THREADS, str(threads)), **more}
    words = [sys.executable, "-m", "roofplan.measure.machine.child", json.dumps(request)]
    with (
        tempfile.TemporaryFile("w+") as complaints,
        subprocess.Popen(  # noqa: S603 - this interpreter and our own module
            words, stdout=subprocess.PIPE, stderr=complaints, text=True, env=environment
        ) as process,
    ):
        try:
            if process.stdout is not None:
                for text in process.stdout:
                    yield json.loads(text)
        finally:
            if process.poll() is None:
                process.terminate()
        code = process.wait()
        complaints.seek(0)
        said = complaints.read().strip().splitlines() or [f"its process ended with code {code}"]
    if code:
        raise InputError(f"measuring stopped: {said[-1]}", argument="--device", value=str(request["device"]))


def _filled(found: Probe, rows: Iterator[Json], tick: Callable[[int, int], None] | None) -> Probe:
    """Return a probe with the printed figures; those of several passes become one."""
    figures: list[Json] = []
    sustained: list[Json] = []
    said: Json = {}
    told: dict[str, str] = {}
    of = 0
    for row in rows:
        kind = row["kind"]
        if kind == "backend":
            said = row
        elif kind == "pass":
            of = int(row["of"]) * len(figures) // int(row["done"]) if row["done"] else 0
        elif kind == "conditions":
            told |= row["told"]
        elif kind == "sustained":
            sustained.append({name: value for name, value in row.items() if name != "kind"})
        else:
            figures.append(row)
            if tick is not None:
                tick(len(figures), max(of, len(figures)))
    device = said.get("device") or {}
    named = {"device": str(device["name"])} if "name" in device else {}
    return replace(
        found,
        conditions=found.conditions | told | named,
        memory=device.get("memory", found.memory),
        backend=str(said.get("name", "")),
        library=str(said.get("library", "")),
        figures=_joined([], figures),
        sustained=sustained,
    )


NUMBERS = ("kind", "best", "median", "kept", "windows", "unit")
"""Members of a printed figure that are not what it is of."""


def _joined(known: Sequence[Figure], rows: Sequence[Json]) -> list[Figure]:
    """Return figures with printed ones added, each joined with those of the same kind and shape."""
    out = list(known)
    for row in rows:
        one = Figure(
            about={name: value for name, value in row.items() if name not in NUMBERS}, **{n: row[n] for n in NUMBERS}
        )
        place = next((k for k, was in enumerate(out) if was.kind == one.kind and was.about == one.about), None)
        if place is None:
            out.append(one)
        else:
            out[place] = _better(out[place], one)
    return out


def _better(was: Figure, one: Figure) -> Figure:
    """Return one figure of two passes."""
    best = [each.best for each in (was, one) if each.kept]
    medians = [each.median for each in (was, one) if each.kept]
    return replace(
        was,
        best=(min(best) if was.unit == "s" else max(best)) if best else 0.0,
        median=statistics.median(medians) if medians else 0.0,
        kept=was.kept + one.kept,
        windows=was.windows + one.windows,
    )


def nominal(found: Probe) -> tuple[float, float, str] | None:
    """Return the least and the most fp32 rate of a processor at its stated clock, and what they are made of; None where not known [FLOP/s]."""
    clock = found.conditions.get("clock as stated", "").removesuffix(" MHz")
    widest = found.conditions.get("widest vectors")
    if not clock or widest is None:
        return None
    few, most = FLOP_PER_CYCLE[widest]
    units = min(found.threads, int(found.conditions.get("cores", found.threads)))
    each = units * float(clock) * 1e6
    cycles = f"{few} to {most}" if few < most else str(most)
    return few * each, most * each, f"{units} x {cycles} FLOP a cycle ({widest}) x {clock} MHz as the system states it"
