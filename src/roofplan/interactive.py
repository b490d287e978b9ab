"""Questions in Python and in notebooks: functions whose answers show themselves.

An `Answer` has every attribute of what was computed (`plans`, `warnings`, ...), and what the command line makes of it: its screen, its
JSON document, its table, its pictures, its explanation and its launch line.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from roofplan import api, observe
from roofplan.errors import InputError, choice
from roofplan.inputs import STDIN, DeviceInputs, Inputs, takes
from roofplan.questions import EVERY
from roofplan.questions.gathered import Gathered
from roofplan.questions.question import Given, Question, Row

if TYPE_CHECKING:
    from roofplan.records.hardware import Accelerator

T = TypeVar("T")

LINES = 60
"""Lines of a screen that a terminal shows of an answer [1]."""

VEGA_LITE = "application/vnd.vegalite.v5+json"
"""How notebooks know a picture."""


class Text(str):
    """A text that a terminal and a notebook show as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Chart:
    """A picture, which notebooks draw.

    Parameters
    ----------
    spec : its Vega-Lite specification.
    """

    def __init__(self, spec: Row) -> None:
        self.spec = spec

    def __repr__(self) -> str:
        return f"Chart({self.spec.get('title', '')!r})"

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        return {VEGA_LITE: self.spec, "text/plain": repr(self)}


class Charts(Sequence[Chart]):
    """The pictures of an answer.

    Parameters
    ----------
    title : of all of them.
    text : the answer's screen, for a file.
    charts : the pictures.
    """

    def __init__(self, title: str, text: str, charts: Sequence[Chart]) -> None:
        self.title, self.text, self.charts = title, text, list(charts)

    def __getitem__(self, place: Any) -> Any:
        return self.charts[place]

    def __len__(self) -> int:
        return len(self.charts)

    def __repr__(self) -> str:
        return "\n".join(repr(one) for one in self.charts)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        for one in self.charts:
            display(one)  # type: ignore[no-untyped-call]

    def save(self, path: str | Path) -> None:
        """Write the pictures and the screen as one HTML file that needs no network.

        Parameters
        ----------
        path : file to write, which ends in ``.html``.

        Raises
        ------
        InputError : another ending, or a file that cannot be written.
        """
        from roofplan.present.charts.page import write

        write(str(path), self.title, self.text, [one.spec for one in self.charts], "save")


class Answer(Generic[T]):
    """The answer of a question, with every attribute of what was computed.

    Parameters
    ----------
    question : the question.
    asked : its inputs.
    beside : what was given beside them, such as ``fit``.
    """

    def __init__(self, question: Question, asked: Inputs, beside: Given) -> None:
        self._question, self._inputs, self._beside = question, asked, dict(beside)
        self._reply = self._answered()

    def _answered(self, **outputs: object) -> Gathered:
        """Return the answer as it leaves with other outputs than the defaults."""
        progress = self._beside.get("progress")
        tick = None if progress is None else lambda done, whole, _: progress(done, whole)
        given = {name: value for name, value in self._beside.items() if name != "progress" and value is not None}
        defaults = {name: default for name, (default, _) in self._question.outputs.items()}
        reply = Gathered(self._inputs, defaults | outputs, tick, given)
        self._question.check(self._inputs)
        self._question.answer(self._inputs, reply)
        return reply

    @property
    def result(self) -> T:
        """What was computed."""
        return self._reply.result  # type: ignore[return-value]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._reply.result, name)

    def __reduce__(self) -> tuple[object, ...]:
        return _asked_again, (self._question.name, self._inputs, self._beside)

    def __dir__(self) -> list[str]:
        own = [name for name in vars(type(self)) if not name.startswith("_")]
        return sorted({*own, *(name for name in dir(self._reply.result) if not name.startswith("_"))})

    def __repr__(self) -> str:
        lines = self._reply.text.rstrip().split("\n")
        rest = [f"... {len(lines) - LINES} more lines: print(answer)"] if len(lines) > LINES else []
        return "\n".join([*lines[:LINES], *rest])

    def __str__(self) -> str:
        return self._reply.text

    def _repr_html_(self) -> str:
        from roofplan.present.html import summary

        return summary(self._reply.document, self._reply.text)

    def to_dict(self) -> Row:
        """Return the JSON document that the command writes.

        Returns
        -------
        The document.
        """
        return self._reply.document

    def to_json(self) -> str:
        """Return the JSON document as text.

        Returns
        -------
        The text.
        """
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    @property
    def rows(self) -> list[Row]:
        """The rows of the answer's table, as ``--csv`` writes them."""
        return self._reply.rows

    def to_pandas(self) -> Any:
        """Return the rows as a ``pandas.DataFrame``.

        Returns
        -------
        The table.

        Raises
        ------
        InputError : pandas is not installed.
        """
        return _frames("pandas").DataFrame(self.rows)

    def to_polars(self) -> Any:
        """Return the rows as a ``polars.DataFrame``.

        Returns
        -------
        The table.

        Raises
        ------
        InputError : polars is not installed.
        """
        return _frames("polars").DataFrame(self.rows)

    def explain(self, depth: int = 2) -> Text:
        """Return where the figures come from: formulas with the numbers put in, and their sources.

        Parameters
        ----------
        depth : levels of the trees [1].

        Returns
        -------
        The text.

        Raises
        ------
        InputError : nothing of this question is explained.
        """
        self._offers("explain")
        return Text(self._answered(explain=True, depth=str(depth)).text)

    def emit(self, target: str | None = None) -> Text:
        """Return the line, or the file, that launches the best plan.

        Parameters
        ----------
        target : another engine or framework, for which is planned anew; default: the plan's own.

        Returns
        -------
        The text.

        Raises
        ------
        InputError : nothing of this question is launched, or an unknown target.
        """
        self._offers("emit")
        if target is not None:
            return Text(self._answered(emit=str(target)).launch or "")
        if self._reply.launch is None:
            raise InputError(f"{self._question.name} has nothing to emit", argument="emit")
        return Text(self._reply.launch)

    def chart(self) -> Charts:
        """Return the pictures.

        Returns
        -------
        Pictures that notebooks draw; ``save`` writes them to a file.
        """
        return Charts(self._reply.title, self._reply.text, [Chart(one) for one in self._reply.pictures])

    def _offers(self, output: str) -> None:
        """Refuse what this question does not have."""
        if output not in self._question.outputs:
            raise InputError(f"{self._question.name} has nothing to {output}", argument=output)


def _asked_again(question: str, asked: Inputs, beside: Given) -> Answer[Any]:
    """Return an answer that was pickled: it is computed again."""
    return Answer(EVERY[question], asked, beside)


def _frames(name: str) -> Any:
    """Return a library of tables."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise InputError(f"to_{name}: needs {name}: pip install {name}", code="extra_missing", argument=name) from None


# Questions ---------------------------------------------------------------------------------------


def ask(question: str, **inputs: object) -> Answer[Any]:
    """Return the answer of any question of the command line.

    Parameters
    ----------
    question : words of a command, such as ``cost chip``.
    inputs : its flags, as texts with units.

    Returns
    -------
    The answer.

    Raises
    ------
    RoofplanError : no such question, bad input, or no plan.
    """
    found = EVERY[choice(str(question), EVERY, "question")]
    given = {name: STDIN if value == "-" and name == "file" else value for name, value in inputs.items()}
    return Answer(found, found.record.of(given, f"ask({question!r})"), {})


def device(name: str) -> Answer[Accelerator]:
    """Return an accelerator.

    Parameters
    ----------
    name : id or alias, or path of a user's TOML file.

    Returns
    -------
    The accelerator.

    Raises
    ------
    InputError : an unknown name, or an invalid file.
    """
    return Answer(EVERY["device"], DeviceInputs.of({"device": name}, "device"), {})


def _showing(question: str, function: Callable[..., T]) -> Callable[..., Answer[T]]:
    """Return a function with the inputs and the docstring of another that shows its answer."""
    computing = inspect.unwrap(function)

    def called(asked: Inputs, **beside: object) -> Answer[T]:
        return Answer(EVERY[question], asked, beside)

    called.__signature__ = inspect.signature(computing)  # type: ignore[attr-defined]
    called.__doc__, called.__name__, called.__qualname__ = computing.__doc__, function.__name__, function.__name__
    return takes(EVERY[question].record)(called)


plan_serving = _showing("serve", api.plan_serving)
plan_training = _showing("train", api.plan_training)
simulate = _showing("simulate", api.simulate)
token_costs = _showing("cost tokens", api.token_costs)
benchmarks = _showing("benchmarks", api.benchmarks)
plan_pool = _showing("pool plan", api.plan_pool)
prove_pool = _showing("pool prove", api.prove_pool)
simulate_pool = _showing("pool simulate", api.simulate_pool)
measure_endpoint = _showing("measure endpoint", observe.measure_endpoint)
measure_stability = _showing("measure stability", observe.measure_stability)
measure_machine = _showing("measure machine", observe.measure_machine)
measure_memory = _showing("measure memory", observe.measure_memory)
