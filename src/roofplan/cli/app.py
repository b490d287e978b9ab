"""The command line: parse, call, print. Nothing is computed here."""

from __future__ import annotations

import csv
import errno
import inspect
import json
import keyword
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter
from cyclopts.exceptions import RepeatArgumentError

from roofplan import __version__
from roofplan.cli.words import spelled
from roofplan.errors import InputError, NoPlan, RoofplanError, nearest
from roofplan.inputs import RECORDS, STDIN, Inputs

if TYPE_CHECKING:
    from roofplan.present.answers.record import Answer
    from roofplan.present.screens import Page

app = App(
    name="roofplan",
    version=__version__,
    help_format="plaintext",
    help_on_error=False,
    help="A slide rule for LLM compute: does it fit, how fast, what it costs, which limit binds, and where every number came from.",
)
cost = App(name="cost", help_format="plaintext", help="What a chip, a machine, an hour and a token cost, and of what.")

# Commands ----------------------------------------------------------------------------------------

OUTPUT = {
    "explain": (False, "show the formulas with the numbers put in, and their sources"),
    "depth": ("2", "levels of --explain"),
    "json": (False, "one JSON document on stdout, errors included"),
    "csv": (None, "write every row to FILE"),
    "html": (None, "write the answer with its pictures to FILE"),
    "emit": (None, "print only the launch line"),
    "request": (None, "read the inputs of an earlier JSON answer from FILE or -"),
}
"""How an answer may leave: defaults and what they mean."""

Asked = TypeVar("Asked", bound=Inputs)


def command(
    record: type[Asked], *outputs: str, example: str = "", to: App = app, name: str | None = None, **said: Any
) -> Callable[[Callable[[Asked, Reply], int | None]], Callable[..., int]]:
    """Return a decorator that makes a function of inputs and of a `Reply` a command.

    Parameters
    ----------
    record : its inputs; flags that stand on the command line count before those of an earlier answer, and those before defaults.
    outputs : how its answer may leave, of `OUTPUT`.
    example : what may stand behind the command where an input is missing.
    to : the group of commands that it belongs to.
    said : what outputs mean where that differs from `OUTPUT`, or their default and that.
    """

    def decorated(function: Callable[[Asked, Reply], int | None]) -> Callable[..., int]:
        called = name or function.__name__
        whole = called if to is app else f"{' '.join(to.name)} {called}"

        @wraps(function)
        def run(*given: Any, **named: Any) -> int:
            explicit = dict(zip(positions(record), given, strict=False))
            explicit |= {one: named[_identifier(one)] for one in record.each() if _identifier(one) in named}
            shown = {one: named.get(one, _output(one, said)[0]) for one in outputs}
            flags = {f"--{one}".replace("_", "-") for one in (*record.each(), *outputs)}
            swallowed = [(one, value) for one, value in (explicit | shown).items() if value in flags]
            reply = Reply(
                whole, record.of(explicit), shown | ({"json": True} if "--json" in dict(swallowed).values() else {})
            )
            with reply.answering():
                for one, value in swallowed:
                    raise InputError(
                        f"--{one}: a value is missing before {value}".replace("_", "-"), argument=f"--{one}"
                    )
                for value in given:
                    if str(value).startswith("--"):
                        near = nearest(value, flags)
                        hint = f" Nearest: {', '.join(near)}." if near else ""
                        raise InputError(
                            f"unknown option {value}.{hint} Options: roofplan {whole} --help",
                            argument=value,
                            nearest=near,
                        )
                if reply.out("request") is not None:
                    explicit = {**earlier(reply.out("request"), record), **explicit}
                asked = record.of(explicit)
                reply.asked = asked
                for one in missing(asked):
                    raise InputError(
                        f"{one.upper()} is missing. Example: roofplan {whole} {example}", argument=one.upper()
                    )
                reply.code = function(asked, reply) or 0
            return reply.code

        run.__signature__ = inspect.Signature([*_of_inputs(record), *_of_outputs(outputs, said)])  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in run.__signature__.parameters.values()}  # type: ignore[attr-defined]
        to.command(run, name=called)
        return run

    return decorated


def positions(record: type[Inputs]) -> list[str]:
    """Return the inputs that stand by their place."""
    return [name for name, one in record.each().items() if one.metadata["positional"]]


def missing(asked: Inputs) -> list[str]:
    """Return the inputs that must be given and are not."""
    return [name for name, one in asked.each().items() if one.metadata["required"] and not getattr(asked, one.name)]


def _identifier(name: str) -> str:
    """Return what Python calls an input."""
    return f"{name}_" if keyword.iskeyword(name) else name


def _output(name: str, said: dict[str, Any]) -> tuple[Any, str]:
    """Return the default of an output and what it means, as a command says it."""
    default, text = OUTPUT[name]
    own = said.get(name, text)
    return own if isinstance(own, tuple) else (default, own)


def _parameter(name: str, default: Any, text: str, *, positional: bool = False) -> inspect.Parameter:
    """Return a parameter of the command line; texts may start with a hyphen, and are absent where nobody gives them."""
    kind = inspect.Parameter.POSITIONAL_ONLY if positional else inspect.Parameter.KEYWORD_ONLY
    flag = None if positional else f"--{name}".replace("_", "-")
    hint: Any
    start: Any
    if isinstance(default, bool):
        start, hint, words = default, bool, Parameter(name=flag, negative="", help=text)
    elif isinstance(default, tuple):
        words = Parameter(name=flag, negative="", show_default=False, help=text)
        start, hint = (), tuple[str, ...]
    else:
        shown: Any = (lambda _: default) if default else None
        words = Parameter(name=flag, show_default=shown, allow_leading_hyphen=True, help=text)
        start, hint = None, str | None
    return inspect.Parameter(_identifier(name), kind, default=start, annotation=Annotated[hint, words])


def _of_inputs(record: type[Inputs]) -> list[inspect.Parameter]:
    """Return the parameters of inputs, those that stand by their place first."""
    each = sorted(record.each().items(), key=lambda item: not item[1].metadata["positional"])
    return [
        _parameter(name, one.default, one.metadata["help"], positional=one.metadata["positional"]) for name, one in each
    ]


def _of_outputs(outputs: tuple[str, ...], said: dict[str, Any]) -> list[inspect.Parameter]:
    return [_parameter(name, *_output(name, said)) for name in outputs]


def earlier(path: str, record: type[Inputs]) -> dict[str, Any]:
    """Return the inputs of an earlier answer in a file, or on standard input."""
    from roofplan.hf.find import from_stdin

    if not path:
        raise InputError("--request: give the file to read", argument="--request", value=path)
    try:
        if path in {"-", STDIN}:
            path, text = "standard input", from_stdin("--request")
        else:
            text = Path(path).read_text()
        document = json.loads(text)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else f"holds no JSON answer ({error})"
        raise InputError(f"--request: {path}: {why}", argument="--request", value=path) from None
    if not isinstance(document, dict):
        raise InputError(f"--request: {path} holds no inputs", argument="--request", value=path)
    return record.read(document)


# Answers -----------------------------------------------------------------------------------------

Row = dict[str, Any]
"""An object of JSON: a row of a table, or the specification of a picture."""

Draw = Callable[[], list[Row]]
"""Makes the pictures of an answer."""


class Reply:
    """How an answer leaves: one JSON document, or text; and beside it tables and pages."""

    def __init__(self, command: str, asked: Inputs, outputs: dict[str, Any]) -> None:
        self.command = command
        self.asked = asked
        self.outputs = outputs
        self.code = 0

    def out(self, name: str) -> Any:
        """Return how an answer is to leave; None of what the command does not have."""
        return self.outputs.get(name)

    @property
    def as_json(self) -> bool:
        """Whether it leaves as JSON."""
        return bool(self.out("json"))

    @property
    def levels(self) -> int:
        """Levels of the explanation [1]."""
        from roofplan.records.units import parse_count

        return parse_count(self.out("depth"), "--depth")

    def show(
        self,
        screen: Callable[[Page], None],
        document: Callable[[], Answer],
        pictures: Draw | None = None,
        *,
        title: str = "",
        launch: Callable[[], str] | None = None,
    ) -> None:
        """Write the answer: its text or its document, a page with pictures where that is asked for, or what launches it alone."""
        from roofplan.present import screens

        if self.out("html") is not None and pictures is not None:
            self._draw(self.out("html"), title or f"roofplan {self.command}", screen, pictures)
        if self.as_json:
            self.document(document())
        elif launch is not None:
            print(launch())
        else:
            screen(screens.stdout())

    def _draw(self, file: str, title: str, screen: Callable[[Page], None], pictures: Draw) -> None:
        from io import StringIO

        from roofplan.present.charts.page import write
        from roofplan.present.screens import Page

        text = StringIO()
        page = Page(text)
        page.unicode = True
        screen(page)
        write(file, title, text.getvalue(), pictures())

    def check_table(self) -> None:
        """Refuse a table without a name before anything is computed."""
        if self.out("csv") == "":
            raise InputError("--csv: give the file to write", argument="--csv", value="")

    def check_places(self) -> None:
        """Refuse files that cannot be written before hours are spent on what they shall hold."""
        for name in ("csv", "html"):
            path = self.out(name)
            if path is not None:
                check_place(path, f"--{name}")

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

    def document(self, answer: Answer) -> None:
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
            from roofplan.present import screens

            page = screens.stdout()
            for line in screens.no_plan_lines(error):
                page.line(line)
        else:
            complain(f"error: {error.message}")


def check_place(path: str, flag: str) -> None:
    """Refuse a file that cannot be written, and leave what is there.

    Parameters
    ----------
    path : the file.
    flag : that names it.

    Raises
    ------
    InputError : it cannot be written.
    """
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
def progress(*, quiet: bool, what: str = "machines") -> Iterator[Callable[[int, int], None] | None]:
    """Show count, rate and time left on a terminal once a search has taken a second."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    started = time.monotonic()
    state: dict[str, Any] = {"bar": None, "task": None}

    def tick(done: int, whole: int) -> None:
        if state["bar"] is None:
            if time.monotonic() - started < 1.0:
                return
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            shown = Progress(
                TextColumn(what),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.speed:.0f}/s"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            shown.start()
            state["task"] = shown.add_task("search", total=whole)
            state["bar"] = shown
        state["bar"].update(state["task"], completed=done, total=whole)

    try:
        yield tick
    finally:
        if state["bar"] is not None:
            state["bar"].stop()


# Running -----------------------------------------------------------------------------------------


def main(tokens: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code.

    0 a plan was found; 1 none satisfies the constraints; 2 bad input; 3 a fault of ours; 130 interrupted.

    Parameters
    ----------
    tokens : the words behind the command's name, by default those of the process.
    """
    words = sys.argv[1:] if tokens is None else tokens
    if sys.stdout is None:
        complain("error: standard output is closed: there is nowhere to write the answer")
        sys.exit(2)
    try:
        code = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        code = 0
    except OSError as error:
        _discard_output()
        complain(f"error: cannot write the answer: {error.strerror}")
        code = 2
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def complain(line: str) -> None:
    """Write one line to standard error; where that is closed or full, the exit code alone speaks."""
    if sys.stderr is None:
        return
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _discard_output() -> None:
    """Let what is still buffered go nowhere, so that leaving writes nothing more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


UNWRITABLE = {errno.ENOSPC, errno.EBADF, errno.EIO, errno.EDQUOT}
"""Faults of the place that an answer is written to."""


def _run(words: list[str]) -> int:
    try:
        if not words:
            app.help_print()
            return 0
        result = app(spelled(words, _refused(words).command), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return _usage(words, error)
    except InputError as error:
        _refused(words).fail(error)
        return error.exit_code
    except (BrokenPipeError, KeyboardInterrupt, SystemExit):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in UNWRITABLE and error.filename is None:
            raise
        if os.environ.get("ROOFPLAN_TRACEBACK"):
            raise
        line = f"internal error: {type(error).__name__}: {error}. Please report it with the command; ROOFPLAN_TRACEBACK=1 shows where"
        if _wants_json(words):
            _refused(words).fail(RoofplanError(line, code="internal"))
        else:
            complain(line)
        return 3
    return int(result) if isinstance(result, int) else 0


def _usage_text(words: list[str], error: CycloptsError) -> str:
    """Return what is wrong with the words, in the terms of this command line."""
    text, whole = " ".join(str(error).split()), _refused(words).command
    unused = getattr(error, "unused_tokens", None)
    flag = _flag_of(error)
    if flag and isinstance(error, RepeatArgumentError):
        return f"roofplan {whole}: {flag} is given twice"
    if flag and isinstance(error, MissingArgumentError):
        return f"roofplan {whole}: {flag} needs a value"
    if unused:
        hint = " Devices stand behind --on." if "--on" in _flags_of(whole) else ""
        return f"roofplan {whole}: {' '.join(map(str, unused))!r} is left over.{hint} Options: roofplan {whole} --help"
    option, _, guess = text.partition(" Did you mean ")
    if guess and not nearest(option.split()[-1].strip(".-"), [guess.strip("?-")]):
        return f"{option} Options: roofplan {whole} --help"
    return text


def _flag_of(error: CycloptsError) -> str:
    """Return the flag that an error is of, empty where it names none."""
    found = getattr(error, "argument", None)
    return str(found.name) if found is not None and str(found.name).startswith("--") else ""


def _flags_of(whole: str) -> set[str]:
    """Return the flags of a command's inputs."""
    return {f"--{name}".replace("_", "-") for name in RECORDS[whole].each()} if whole in RECORDS else set()


def _usage(words: list[str], error: CycloptsError) -> int:
    known = [name for name in app if not name.startswith("-")]
    if words and not words[0].startswith("-") and words[0] not in known:
        near = nearest(words[0], known)
        hint = f" Nearest: {', '.join(near)}." if near else ""
        refused: RoofplanError = InputError(
            f"no command {words[0]!r}.{hint} Commands: {', '.join(known)}",
            code="unknown_command",
            argument="COMMAND",
            value=words[0],
            nearest=near,
        )
    else:
        text = _usage_text(words, error)
        refused = InputError(text, code="usage", argument=words[0] if words else None)
    _refused(words).fail(refused)
    return 2


def _refused(words: list[str]) -> Reply:
    """Return how words leave that no command has answered."""
    group = [word for word in words[:2] if word in cost] if words[:1] == ["cost"] else []
    return Reply(" ".join([*words[:1], *group]) or "roofplan", Inputs(), {"json": _wants_json(words)})


def _wants_json(words: list[str]) -> bool:
    return any(word in {"--json", "--json=true", "--json=True"} for word in words)
