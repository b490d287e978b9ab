"""How llama.cpp's workers are built: what is fetched, configured and compiled, and what is said where that fails."""

import io
import os
import socket
import sys
import tarfile
from pathlib import Path

import pytest

from roofplan.inputs import PoolProveInputs
from roofplan.measure import workers
from roofplan.measure.workers import BENCH, DIGEST, OPTIONS, PACKAGE, VERSION, WORKER, NoWorkers, Tools, build, tools_at
from roofplan.pool import proof


def sources(place, name=f"{PACKAGE}-{VERSION}/llama.cpp/CMakeLists.txt"):
    """Write an archive of sources with one file."""
    with tarfile.open(place / f"{PACKAGE}-{VERSION}.tar.gz", "w:gz") as packed:
        about = tarfile.TarInfo(name)
        about.size = 4
        packed.addfile(about, io.BytesIO(b"here"))


@pytest.fixture
def building(tmp_path, monkeypatch):
    """Return the commands of a build that succeeds, whose programs are there once they are compiled."""
    commands, place = [], tmp_path / "cache" / "workers"

    def done(command, what):
        commands.append([str(one) for one in command])
        if "pip" in command:
            got = Path(command[command.index("--dest") + 1])
            assert (got / "wanted.txt").read_text() == f"{PACKAGE}=={VERSION} --hash=sha256:{DIGEST}\n"
            assert what == "the sources cannot be fetched"
            sources(got)

    def compiled(made, tick):
        assert tick == "tick"
        commands.append(["compile", str(made)])
        (made / "bin").mkdir(parents=True)
        for name in (BENCH, WORKER):
            (made / "bin" / name).write_text("")
            (made / "bin" / name).chmod(0o755)

    monkeypatch.setattr(workers, "_done", done)
    monkeypatch.setattr(workers, "_compiled", compiled)
    monkeypatch.setattr(workers, "cached", lambda: place)
    monkeypatch.setattr(workers.shutil, "which", lambda name, path=None: _at(name, path))
    return commands, place


def _at(name, path):
    """Return a program where it is: those of the build in their folder, all else on the path."""
    if path is None:
        return None if name in {BENCH, WORKER} else f"/usr/bin/{name}"
    return str(Path(path) / name) if (Path(path) / name).exists() else None


def test_programs_are_built_from_sources_whose_digest_is_checked(building):
    (commands, place), said = building, []
    assert build(said.append, "tick") == Tools(place / "build" / "bin" / BENCH, place / "build" / "bin" / WORKER)
    fetch, configure, compiled = commands
    assert fetch[:4] == [sys.executable, "-m", "pip", "download"]
    assert fetch[fetch.index("--no-binary") + 1] == PACKAGE
    assert "--require-hashes" in fetch
    source = place / f"{PACKAGE}-{VERSION}" / "llama.cpp"
    assert configure == ["cmake", "-G", "Ninja", "-S", str(source), "-B", str(place / "build"), *OPTIONS]
    assert compiled == ["compile", str(place / "build")]
    assert (source / "CMakeLists.txt").read_text() == "here"
    assert said[0] == f"fetching the sources of {PACKAGE} {VERSION}"
    assert said[1].startswith(f"building {BENCH} and {WORKER} in {place}")


def test_builds_say_what_is_missing(building, monkeypatch):
    monkeypatch.setattr(workers.shutil, "which", lambda name: None if name == "ninja" else name)
    with pytest.raises(NoWorkers, match=r"--build needs ninja$"):
        build(print)
    monkeypatch.setattr(workers.shutil, "which", lambda name, path=None: _at(name, path))
    monkeypatch.setattr(workers, "_compiled", lambda *_: None)
    with pytest.raises(NoWorkers, match=f"holds no {BENCH} and {WORKER}"):
        build(print)
    monkeypatch.setattr(workers, "_unpacked", lambda *_: None)
    monkeypatch.setattr(workers, "cached", lambda place=building[1] / "other": place)
    with pytest.raises(NoWorkers, match=r"hold no llama\.cpp"):
        build(print)


def test_sources_lie_nowhere_else(tmp_path):
    sources(tmp_path, "../outside")
    with pytest.raises(tarfile.TarError):
        workers._unpacked(tmp_path / f"{PACKAGE}-{VERSION}.tar.gz", tmp_path / "inside")
    assert not (tmp_path / "outside").exists()


def test_compiling_tells_how_far_it_is(tmp_path, monkeypatch):
    told, real = [], workers.subprocess.Popen
    script = "print('[1/3] a'); print('[3/3] b'); print('and more'); raise SystemExit({})"
    for code in (0, 1):
        words = [sys.executable, "-c", script.format(code)]
        monkeypatch.setattr(workers.subprocess, "Popen", lambda _, words=words, **more: real(words, **more))
        if code:
            with pytest.raises(NoWorkers, match=r"the build failed:\n\[1/3\] a\n\[3/3\] b\nand more"):
                workers._compiled(tmp_path, None)
        else:
            workers._compiled(tmp_path, lambda *given: told.append(given))
    assert told == [(1, 3), (3, 3)]


def test_steps_that_fail_say_why():
    workers._done([sys.executable, "-c", ""], "nothing")
    with pytest.raises(NoWorkers, match=r"--build: the step: no such thing$"):
        workers._done([sys.executable, "-c", "raise SystemExit('no such thing')"], "the step")


def test_programs_are_built_only_where_they_are_asked_for_and_missing(monkeypatch):
    built = Tools(Path("a"), Path("b"))
    monkeypatch.setattr(proof, "build", lambda *_: built)
    monkeypatch.setattr(proof, "tools_at", lambda _: None)
    assert proof._tools(PoolProveInputs(build=True), print, None) is built
    with pytest.raises(NoWorkers, match="in the cache or on the path"):
        proof._tools(PoolProveInputs(), print, None)
    with pytest.raises(NoWorkers, match="in /nowhere: "):
        proof._tools(PoolProveInputs(build=True, llama="/nowhere"), print, None)
    there = Tools(Path("c"), Path("d"))
    monkeypatch.setattr(proof, "tools_at", lambda _: there)
    assert proof._tools(PoolProveInputs(build=True), print, None) is there


def test_programs_are_sought_in_the_cache_and_on_the_path(monkeypatch, tmp_path):
    monkeypatch.setattr(workers, "cached", lambda: tmp_path)
    monkeypatch.setattr(workers.shutil, "which", lambda name, path=None: f"/usr/bin/{name}" if path is None else None)
    assert tools_at(None) == Tools(Path(f"/usr/bin/{BENCH}"), Path(f"/usr/bin/{WORKER}"))
    assert tools_at(str(tmp_path)) is None


@pytest.mark.parametrize("table", [True, False])
def test_a_worker_listens_where_its_port_is_open(table, monkeypatch):
    if not table:
        monkeypatch.setattr(workers, "Path", lambda _: Path("/nowhere"))
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        assert not workers._open_on(os.getpid(), port)
        one.listen()
        assert workers._open_on(os.getpid(), port)
