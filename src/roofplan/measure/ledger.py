"""Every run, probe and document that was seen, in one SQLite file of the user's.

What has ended is written at once: a process that is killed loses only what was in flight. Writers take turns; a full disk
keeps samples in memory until there is room again.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from platformdirs import user_data_path

from roofplan.errors import InputError, unwrap
from roofplan.measure.sample import Sample

VARIABLE = "ROOFPLAN_LEDGER"
"""Environment variable with another path of the ledger."""

PATIENCE = 30.0
"""How long a writer waits for another, and how much longer than a request a run may be silent [s]."""

About = dict[str, Any]
"""What is kept of a run as JSON."""

COMPLETE, INTERRUPTED, UNFINISHED, RUNNING = STATUSES = ("complete", "interrupted", "unfinished", "running")

MIGRATIONS = (
    """
    CREATE TABLE run (
        id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, started TEXT NOT NULL, status TEXT NOT NULL,
        beat REAL NOT NULL, planned INTEGER, about TEXT NOT NULL
    );
    CREATE TABLE sample (
        run INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE, number INTEGER NOT NULL,
        due REAL NOT NULL, late REAL NOT NULL, spent REAL NOT NULL, connect REAL NOT NULL, tls REAL NOT NULL, gaps BLOB NOT NULL,
        asked_input INTEGER NOT NULL, asked_output INTEGER NOT NULL, prompt INTEGER, tokens INTEGER, cached INTEGER,
        reads INTEGER NOT NULL, whole INTEGER NOT NULL, timings TEXT NOT NULL, reason TEXT NOT NULL, message TEXT NOT NULL,
        PRIMARY KEY (run, number)
    ) WITHOUT ROWID;
    """,
)
"""Statements that lead from each version of the file to the next."""

COLUMNS = (
    *(
        "number",
        "due",
        "late",
        "spent",
        "connect",
        "tls",
        "gaps",
        "asked_input",
        "asked_output",
        "prompt",
        "tokens",
        "cached",
    ),
    *("reads", "whole", "timings", "reason", "message"),
)
"""Columns of a sample, in the order of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A run in the ledger.

    Parameters
    ----------
    id, kind, started, status : of the run; `started` in UTC.
    planned, requests, completed : requests of the load, those that ended, and those that were answered [1].
    about : what was measured, and how.
    """

    id: int
    kind: str
    started: str
    status: str
    planned: int | None
    requests: int
    completed: int
    about: About


def place() -> Path:
    """Return the path of the ledger.

    Returns
    -------
    The path, whether or not the file exists: of the user's data, or what the environment variable names.
    """
    named = os.environ.get(VARIABLE)
    return Path(named) if named else user_data_path("roofplan", appauthor=False) / "ledger.sqlite"


class Ledger:
    """The open file.

    Parameters
    ----------
    path : of the file; made where it is missing.

    Raises
    ------
    InputError : it cannot be opened, or a newer roofplan wrote it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.waiting: list[tuple[int, Sample]] = []
        self.trouble = ""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
            self.file.execute("PRAGMA journal_mode=WAL")
            self.file.execute("PRAGMA synchronous=NORMAL")
            self.file.execute("PRAGMA foreign_keys=ON")
            self._migrate()
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"{VARIABLE}: {path}: {error}", argument=VARIABLE, value=str(path)) from None

    def _migrate(self) -> None:
        if int(self.file.execute("PRAGMA user_version").fetchone()[0]) == len(MIGRATIONS):
            return
        with self._written():
            version = int(self.file.execute("PRAGMA user_version").fetchone()[0])
            if version > len(MIGRATIONS):
                message = f"{VARIABLE}: {self.path} was written by a newer roofplan (version {version})"
                raise InputError(message, argument=VARIABLE, value=str(self.path))
            for script in MIGRATIONS[version:]:
                for statement in script.split(";"):
                    self.file.execute(statement)
            self.file.execute(f"PRAGMA user_version={len(MIGRATIONS)}")

    @contextmanager
    def _written(self) -> Iterator[None]:
        """Write a block at once or not at all."""
        self.file.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.file.execute("COMMIT")
        except BaseException:
            if self.file.in_transaction:
                self.file.execute("ROLLBACK")
            raise

    def begin(self, kind: str, about: Mapping[str, object], planned: int | None = None, status: str = RUNNING) -> int:
        """Write the beginning of a run.

        Parameters
        ----------
        kind : ``endpoint``, ``stability`` or the name of a tool whose results are imported.
        about : what is measured, and how; without secrets.
        planned : requests of the load, None where their number is open [1].
        status : of the run.

        Returns
        -------
        Its id.
        """
        started = datetime.now(UTC).isoformat(timespec="seconds")
        process = {"process": {"pid": os.getpid(), "host": platform.node()}}
        columns = (kind, started, status, time.time(), planned, json.dumps(dict(about) | process))
        with self._written():
            found = self.file.execute(
                "INSERT INTO run (kind, started, status, beat, planned, about) VALUES (?, ?, ?, ?, ?, ?)", columns
            )
            return unwrap(found.lastrowid)

    def add(self, run: int, sample: Sample) -> None:
        """Write a sample that ended; where there is no room, it waits in memory for the next one."""
        self.waiting.append((run, sample))
        self.flush()

    def flush(self) -> None:
        """Write what waits in memory, if there is room now."""
        if not self.waiting:
            return
        marks = ", ".join("?" * (1 + len(COLUMNS)))
        try:
            with self._written():
                self.file.executemany(
                    f"INSERT OR REPLACE INTO sample (run, {', '.join(COLUMNS)}) VALUES ({marks})",  # noqa: S608 - names of ours
                    [(number, *_row(one)) for number, one in self.waiting],
                )
                self.file.execute("UPDATE run SET beat = ? WHERE id = ?", (time.time(), self.waiting[-1][0]))
        except sqlite3.OperationalError as error:
            self.trouble = str(error)
        else:
            self.waiting.clear()
            self.trouble = ""

    def end(self, run: int, status: str, about: Mapping[str, object]) -> None:
        """Write how a run ended, and all that is known about it then."""
        self.flush()
        columns = (status, time.time(), json.dumps(about), run)
        with self._written():
            self.file.execute("UPDATE run SET status = ?, beat = ?, about = ? WHERE id = ?", columns)

    def runs(self, run: int | None = None) -> list[Kept]:
        """Return the runs, the newest last, or one of them; those whose process left no sign count as unfinished."""
        text = (
            "SELECT run.id, kind, started, status, beat, planned, about, COUNT(sample.number), SUM(sample.reason = '')"
            " FROM run LEFT JOIN sample ON sample.run = run.id WHERE ?1 IS NULL OR run.id = ?1 GROUP BY run.id ORDER BY run.id"
        )
        out = []
        for number, kind, started, status, beat, planned, about, count, good in self.file.execute(text, (run,)):
            told = json.loads(about)
            silent = status == RUNNING and not _runs(told, abs(time.time() - beat))
            counts = told.get("imported", {}).get("counts", {})
            out.append(
                Kept(
                    id=number,
                    kind=kind,
                    started=started,
                    status=UNFINISHED if silent else status,
                    planned=planned,
                    requests=count or planned or 0 if counts else count,
                    completed=round(counts.get("completed", good or 0)),
                    about=told,
                )
            )
        return out

    def find(self, run: int) -> Kept:
        """Return a run.

        Raises
        ------
        InputError : there is none of this number.
        """
        found = self.runs(run)
        if not found:
            last = self.runs()[-3:]
            has = f"the last ones are {', '.join(str(one.id) for one in last)}" if last else "it holds none"
            raise InputError(f"run {run} is not in the ledger: {has}", argument="RUN", value=run)
        return found[0]

    def samples(self, run: int) -> list[Sample]:
        """Return the samples of a run in the order of the load."""
        text = f"SELECT {', '.join(COLUMNS)} FROM sample WHERE run = ? ORDER BY number"  # noqa: S608 - names of ours
        return [_sample(row) for row in self.file.execute(text, (run,))]

    def delete(self, run: int) -> None:
        """Remove a run with its samples."""
        self.find(run)
        with self._written():
            self.file.execute("DELETE FROM run WHERE id = ?", (run,))

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def _runs(about: About, silence: float) -> bool:
    """Return whether the process of a run is alive; where that cannot be asked, whether it wrote lately."""
    process = about.get("process", {})
    if os.name == "posix" and process.get("host") == platform.node():
        try:
            os.kill(int(process["pid"]), 0)
        except ProcessLookupError:
            return False
        except OSError:
            return True  # of another user
        return True
    return silence <= PATIENCE + float(about.get("timeout", 0.0)) + 2.0 * float(about.get("every", 0.0))


def _row(one: Sample) -> tuple[object, ...]:
    """Return the columns of a sample."""
    packed = {"gaps": one.gaps.tobytes(), "timings": json.dumps(one.timings), "whole": int(one.whole)}
    return tuple(packed.get(name, getattr(one, name)) for name in COLUMNS)


def _sample(row: Sequence[object]) -> Sample:
    """Return the sample of a row."""
    told: About = dict(zip(COLUMNS, row, strict=True))
    gaps = array("f")
    gaps.frombytes(told["gaps"])
    return Sample(**{**told, "gaps": gaps, "timings": json.loads(told["timings"]), "whole": bool(told["whole"])})


class Book:
    """Keeps one run in a ledger, or nowhere.

    Parameters
    ----------
    ledger : where it is kept, None for nowhere.
    kind, about : of the run.
    progress : called with the requests that ended and all of them [1].
    run : that goes on, None for a new one.
    """

    def __init__(
        self,
        ledger: Ledger | None,
        kind: str,
        about: Mapping[str, object],
        progress: Callable[[int, int], None] | None,
        run: int | None = None,
    ) -> None:
        self.ledger, self.kind, self.about, self.progress = ledger, kind, dict(about), progress
        self.run = run
        self.planned = self.ended = 0

    def begin(self, planned: int, **known: object) -> None:
        """Write the beginning, or that a run goes on, with all that is known by then."""
        self.planned, self.about = planned, self.about | known
        if self.ledger is None:
            return
        if self.run is None:
            self.run = self.ledger.begin(self.kind, self.about, planned)
        else:
            self.ledger.end(self.run, RUNNING, self.about)

    def take(self, sample: Sample) -> None:
        """Write a sample that ended."""
        if self.ledger is not None and self.run is not None:
            self.ledger.add(self.run, sample)
        self.ended += 1
        if self.progress is not None:
            self.progress(self.ended, self.planned)

    def finished(self, about: Mapping[str, object], *, interrupted: bool) -> int | None:
        """Write the end, and return the run's number; None where it is not kept."""
        if self.ledger is not None and self.run is not None:
            try:
                self.ledger.end(self.run, INTERRUPTED if interrupted else COMPLETE, self.about | dict(about))
            except sqlite3.OperationalError as error:
                self.ledger.trouble = str(error)
        return self.run

    @property
    def trouble(self) -> str:
        """What was not kept and why, empty where everything was."""
        if self.ledger is None or not self.ledger.trouble:
            return ""
        return f"{len(self.ledger.waiting):,} requests or the run's end are not in the ledger: {self.ledger.trouble}"


@contextmanager
def kept_in(
    path: Path | None,
    kind: str,
    about: Mapping[str, object],
    progress: Callable[[int, int], None] | None,
    run: int | None = None,
) -> Iterator[Book]:
    """Open the ledger for one run.

    Parameters
    ----------
    path : of the ledger, None to keep the run nowhere.
    kind, about : of the run; without secrets.
    progress : called with the requests that ended and all of them [1].
    run : that goes on, None for a new one.

    Returns
    -------
    What the run is written with, for a ``with`` block.
    """
    if path is None:
        yield Book(None, kind, about, progress)
        return
    with opened(path) as ledger:
        yield Book(ledger, kind, about, progress, run)


@contextmanager
def opened(path: Path) -> Iterator[Ledger]:
    """Open a ledger and close it again.

    Parameters
    ----------
    path : of the file.

    Returns
    -------
    The ledger, for a ``with`` block.

    Raises
    ------
    InputError : it cannot be opened.
    """
    ledger = Ledger(path)
    try:
        yield ledger
    finally:
        ledger.close()
