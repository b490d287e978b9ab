"""Answers on standard output, and what is said beside them on standard error."""

from __future__ import annotations

import csv
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofplan.errors import InputError, NoPlan, RoofplanError
from roofplan.inputs import Inputs
from roofplan.questions import Draw, Reply, Row, Tick
from roofplan.records import units

if TYPE_CHECKING:
    from roofplan.present.answers.record import Answer
    from roofplan.present.screens.page import Page


class Printed(Reply):
    """An answer on standard output: one JSON document, or text; tables and pages go to files beside it."""

    def __init__(self, command: str, asked: Inputs, outputs: Mapping[str, object]) -> None:
        super().__init__(asked, outputs)
        self.command = command
        self.code = 0

    def show(
        self,
        screen: Callable[[Page], None],
        document: Callable[[], Answer | Row],
        pictures: Draw | None = None,
        *,
        title: str = "",
        launch: Callable[[], str] | None = None,
        result: object = None,  # noqa: ARG002 - Python's
    ) -> None:
        """Write the answer: its text or its document, a page with pictures where that is asked for, or what launches it alone."""
        from roofplan.present.screens.page import stdout

        if self.out("html") is not None and pictures is not None:
            self._draw(self.out("html"), title or f"roofplan {self.command}", screen, pictures)
        if self.as_json:
            self.document(document())
        elif launch is not None and self.out("emit") is not None:
            print(launch())
        else:
            screen(stdout())

    def _draw(self, file: str, title: str, screen: Callable[[Page], None], pictures: Draw) -> None:
        from io import StringIO

        from roofplan.present.charts.page import write
        from roofplan.present.screens.page import Page

        text = StringIO()
        page = Page(text)
        page.unicode = True
        screen(page)
        write(file, title, text.getvalue(), pictures())

    def check_table(self) -> None:
        """Refuse a table without a name, or with that of the page, before anything is computed."""
        table = self.out("csv")
        if table in {"", "-"}:
            raise InputError("--csv: give the file to write", argument="--csv", value=table)
        page = self.out("html")
        if table is not None and page is not None and Path(table) == Path(page):
            raise InputError(f"--csv and --html: {table} cannot hold both", argument="--csv", value=table)

    def check_places(self, **others: str | None) -> None:
        """Refuse files that cannot be written, those of other inputs too, before hours are spent on what they shall hold."""
        for name, path in ({one: self.out(one) for one in ("csv", "html")} | others).items():
            if path is not None:
                _check_place(path, f"--{name}")

    def progress(self, what: str = "machines") -> AbstractContextManager[Tick | None]:
        """Return a context that shows count, rate and time left on a terminal."""
        return _progress(quiet=self.as_json, what=what)

    def remark(self, line: str) -> None:
        """Say something on standard error."""
        complain(line)

    def table(self, rows: Callable[[], list[Row]]) -> None:
        """Write rows as CSV where that is asked for."""
        path = self.out("csv")
        if path is None:
            return
        self.check_table()
        found = rows()
        names = list(dict.fromkeys(key for row in found for key in row))
        try:
            with Path(path).open("w", newline="") as file:
                writer = csv.DictWriter(file, fieldnames=names)
                writer.writeheader()
                writer.writerows(found)
        except OSError as error:
            raise InputError(f"--csv: {path}: {error.strerror}", argument="--csv", value=path) from None

    def document(self, answer: Answer | Row) -> None:
        """Write the one JSON document of this run."""
        from roofplan.present.answers.record import plain

        sys.stdout.write(json.dumps(plain(answer), indent=1, allow_nan=False) + "\n")

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Turn every outcome into its exit code and its one line or document."""
        try:
            if not self.as_json:
                _mention_profile(self.command)
            yield
        except RoofplanError as error:
            self.code = error.exit_code
            self.fail(error)

    def fail(self, error: RoofplanError) -> None:
        """Write why there is no answer."""
        if self.as_json:
            from roofplan.present.answers.record import failure

            self.document(failure(self.command, self.asked, error))
        elif isinstance(error, NoPlan):
            from roofplan.present.screens.page import stdout
            from roofplan.present.screens.plans import no_plan_lines

            page = stdout()
            for line in no_plan_lines(error):
                page.line(line)
        else:
            complain(f"error: {error.message}")


def _check_place(path: str, flag: str) -> None:
    """Refuse a file that cannot be written, and leave what is there."""
    try:
        with Path(path).open("a"):
            pass
    except OSError as error:
        raise InputError(f"{flag}: {path}: {error.strerror}", argument=flag, value=path) from None


def _mention_profile(command: str) -> None:
    """Say on stderr that predictions rest on the user's own runs too, or that the profile that he names is not there."""
    from roofplan import catalogue
    from roofplan.catalogue import profile

    if command not in profile.USED_BY or command == "calibrate":
        return
    shipped = catalogue.shipped_fit()
    said, stale = profile.said(shipped), profile.stale(shipped)
    if not said and not stale and not profile.named_and_absent():
        return
    from roofplan.present.screens.page import wrapped

    text = f"profile: {said} ({profile.VARIABLE}={profile.NONE} leaves it out)"
    if stale:
        text = f"profile: {stale}"
    elif not said:
        text = f"profile: there is none at {profile.path()}, which {profile.VARIABLE} names: shipped constants hold"
    for line in wrapped(text, indent=2):
        complain(line)


@contextmanager
def _progress(*, quiet: bool, what: str) -> Iterator[Tick | None]:
    """Show count, rate and time left on a terminal once a search has taken a second."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    started = time.monotonic()
    state: dict[str, Any] = {"bar": None, "task": None}

    def tick(done: int, whole: int) -> None:
        taken = time.monotonic() - started
        if state["bar"] is None:
            if taken < 1.0:
                return
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            shown = Progress(
                TextColumn(what),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            shown.start()
            state["task"] = shown.add_task("search", total=whole, rate="")
            state["bar"] = shown
        state["bar"].update(state["task"], completed=done, total=whole, rate=f"{units.significant(done / taken, 2)}/s")

    try:
        yield tick
    finally:
        if state["bar"] is not None:
            state["bar"].stop()


def complain(line: str) -> None:
    """Write one line to standard error; where that is closed or full, the exit code alone speaks."""
    if sys.stderr is None:
        return
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
