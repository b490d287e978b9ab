"""The command line: parse, call, print. Nothing is computed here."""

from __future__ import annotations

import errno
import inspect
import json
import keyword
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter
from cyclopts.exceptions import RepeatArgumentError

from roofplan._version import __version__
from roofplan.cli.printed import Printed, complain
from roofplan.cli.words import spelled
from roofplan.errors import InputError, RoofplanError, nearest
from roofplan.inputs import RECORDS, STDIN, Inputs
from roofplan.questions import Question, Row

app = App(
    name="roofplan",
    version=__version__,
    help_format="plaintext",
    help_on_error=False,
    help="A slide rule for LLM compute: does it fit, how fast, what it costs, which limit binds, and where every number came from.",
)
GROUPS = {
    "cost": "What a chip, a machine, an hour and a token cost, and of what.",
    "pool": "Home machines that hold a model together: planned, proven and simulated.",
    "measure": "What endpoints, machines and engines show when they are measured.",
}
"""Commands of two words, by their first, and what they have in common."""

# Commands ----------------------------------------------------------------------------------------


def add(question: Question, to: App = app) -> Callable[..., int]:
    """Add a question as a command; flags on the command line count before those of an earlier answer, and those before defaults.

    Parameters
    ----------
    question : the question.
    to : the command line, or the group of commands, that it joins.

    Returns
    -------
    The command: it takes the words and returns the exit code.
    """
    record, outputs = question.record, question.outputs

    def run(*given: object, **named: object) -> int:
        explicit = dict(zip(question.positions, given, strict=False))
        explicit |= {one: named[_identifier(one)] for one in record.each() if _identifier(one) in named}
        shown = {one: named.get(one, default) for one, (default, _) in outputs.items()}
        flags = {f"--{one}".replace("_", "-") for one in (*record.each(), *outputs)}
        swallowed = [(one, value) for one, value in (explicit | shown).items() if value in flags]
        shown |= {"json": True} if "--json" in dict(swallowed).values() else {}
        reply = Printed(question.name, record.of(explicit), shown)
        with reply.answering():
            for one, value in swallowed:
                raise InputError(f"--{one}: a value is missing before {value}".replace("_", "-"), argument=f"--{one}")
            for word in map(str, given):
                if word.startswith("--"):
                    _refuse_option(word, flags, question.name)
            if reply.out("request") is not None:
                explicit = {**earlier(reply.out("request"), question), **explicit}
            asked = reply.asked = record.of(explicit)
            question.check(asked)
            reply.code = question.answer(asked, reply) or 0
        return reply.code

    run.__name__ = run.__qualname__ = question.name.replace(" ", "_")
    run.__doc__ = question.help
    run.__signature__ = inspect.Signature([*_of_inputs(record), *_of_outputs(question)])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in run.__signature__.parameters.values()}  # type: ignore[attr-defined]
    to.command(run, name=question.name.split()[-1])
    return run


def _refuse_option(value: str, flags: set[str], command: str) -> None:
    near = nearest(value, flags)
    hint = f" Nearest: {', '.join(near)}." if near else ""
    raise InputError(f"unknown option {value}.{hint} Options: roofplan {command} --help", argument=value, nearest=near)


def _identifier(name: str) -> str:
    """Return what Python calls an input."""
    return f"{name}_" if keyword.iskeyword(name) else name


def _parameter(name: str, default: Any, text: str, *, positional: bool = False) -> inspect.Parameter:
    """Return a parameter of the command line; texts may start with a hyphen, and are absent where nobody gives them."""
    kind = inspect.Parameter.POSITIONAL_ONLY if positional else inspect.Parameter.KEYWORD_ONLY
    flag = None if positional else f"--{name}".replace("_", "-")
    hint: object
    start: object
    if isinstance(default, bool):
        start, hint, words = default, bool, Parameter(name=flag, negative="", help=text)
    elif isinstance(default, tuple):
        words = Parameter(name=flag, negative="", show_default=False, help=text)
        start, hint = (), tuple[str, ...]
    else:
        shown = (lambda _: default) if default else None
        words = Parameter(name=flag, show_default=shown, allow_leading_hyphen=True, help=text)
        start, hint = None, str | None
    return inspect.Parameter(_identifier(name), kind, default=start, annotation=Annotated[hint, words])


def _of_inputs(record: type[Inputs]) -> list[inspect.Parameter]:
    """Return the parameters of inputs, those that stand by their place first."""
    each = sorted(record.each().items(), key=lambda item: not item[1].metadata["positional"])
    return [
        _parameter(name, one.default, one.metadata["help"], positional=one.metadata["positional"]) for name, one in each
    ]


def _of_outputs(question: Question) -> list[inspect.Parameter]:
    return [_parameter(name, default, text) for name, (default, text) in question.outputs.items()]


def earlier(path: str, question: Question) -> Row:
    """Return the inputs of an earlier answer to a question in a file, or on standard input."""
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
    if (command := document.get("command", question.name)) != question.name:
        message = f"--request: {path} is an answer of {command}: roofplan {command} --request {path} asks it again"
        raise InputError(message, argument="--request", value=path)
    return question.record.read(document)


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
        result = app(
            spelled(words, _refused(words).command),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
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
        place = words.index(str(unused[0])) if str(unused[0]) in words else 0
        before, swallowed = words[max(0, place - 2) : place] if place >= 2 else ("", "")
        if swallowed.startswith("--") and before in _flags_of(whole, valued=True):
            return f"roofplan {whole}: {before} needs a value"
        behind = {"--on": "Devices", "--with": "Files"}
        hint = "".join(f" {what} stand behind {flag}." for flag, what in behind.items() if flag in _flags_of(whole))
        return f"roofplan {whole}: {' '.join(map(str, unused))!r} is left over.{hint} Options: roofplan {whole} --help"
    option, _, guess = text.partition(" Did you mean ")
    if guess and not nearest(option.split()[-1].strip(".-"), [guess.strip("?-")]):
        return f"{option} Options: roofplan {whole} --help"
    return text


def _flag_of(error: CycloptsError) -> str:
    """Return the flag that an error is of, empty where it names none."""
    found = getattr(error, "argument", None)
    return str(found.name) if found is not None and str(found.name).startswith("--") else ""


def _flags_of(whole: str, *, valued: bool = False) -> set[str]:
    """Return the flags of a command's inputs, or of those that take a value."""
    each = RECORDS[whole].each() if whole in RECORDS else {}
    switches = {name for name, one in each.items() if valued and isinstance(one.default, bool)}
    return {f"--{name}".replace("_", "-") for name in each.keys() - switches}


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


def _refused(words: list[str]) -> Printed:
    """Return how words leave that no command has answered."""
    two = " ".join(words[:2])
    return Printed(two if two in RECORDS else " ".join(words[:1]) or "roofplan", Inputs(), {"json": _wants_json(words)})


def _wants_json(words: list[str]) -> bool:
    return any(word in {"--json", "--json=true", "--json=True"} for word in words)
