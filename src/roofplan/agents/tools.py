"""What the tools do: questions asked and cut, figures explained, plans compared."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypedDict

from mcp.server.mcpserver import Context

from roofplan.agents.cut import cut, pruned
from roofplan.errors import InputError, RoofplanError, nearest
from roofplan.measure.exchange import target_of
from roofplan.questions import EVERY, Given, Row
from roofplan.workers import answers
from roofplan.workers.names import check_size
from roofplan.workers.pool import Job, Pool

Session = Context[None]
"""How a tool speaks to its client."""


class ToolAnswer(TypedDict, total=False):
    """What a tool returns.

    Parameters
    ----------
    status : ok, no_plan (nothing keeps the limits; `answer` says what would) or error (bad input; `answer` says which).
    answer : the document, cut: numbers rounded, long lists shortened.
    left_off : items that each shortened list had.
    command : what gives the whole document on the command line.
    """

    status: str
    answer: Row
    left_off: dict[str, int]
    command: str


@dataclass(frozen=True, slots=True)
class QuestionTool:
    """A question as a tool.

    Parameters
    ----------
    name : of the tool.
    question : that it asks.
    refused : inputs that agents may not give.
    """

    name: str
    question: str
    refused: frozenset[str] = frozenset()


QUESTIONS = (
    QuestionTool("plan_serving", "serve"),
    QuestionTool("plan_training", "train"),
    QuestionTool("simulate", "simulate", frozenset({"trace"})),
    QuestionTool("cost_tokens", "cost tokens"),
    QuestionTool("device", "device"),
    QuestionTool("model", "model"),
    QuestionTool("benchmarks", "benchmarks"),
    QuestionTool("measure_endpoint", "measure endpoint", frozenset({"trace", "plan", "key_env"})),
)
"""Tools that ask one question each."""

EXPLAINED = ("serve", "train", "cost tokens", "cost chip", "cost machine")
"""Questions whose figures are explained."""

COMPARED = ("serve", "train")
"""Questions whose plans are compared."""

MOST_COMPARED = 4
"""Plans that are compared at once [1]."""

LARGEST_EXPLANATION = 20_000
"""Characters of an explanation; a longer one loses levels [1]."""

Handler = Callable[[Row, Session], Awaitable[ToolAnswer]]
"""Answers the arguments of a tool."""


class Tools:
    """The functions behind the tools.

    Parameters
    ----------
    pool : processes that answer.
    hosts : hosts, with or without a port, whose endpoints may be measured.
    """

    def __init__(self, pool: Pool, hosts: frozenset[str]) -> None:
        self.pool, self.hosts = pool, frozenset(one.lower() for one in hosts)

    def asking(self, tool: QuestionTool) -> Handler:
        """Return the handler of a tool that asks one question."""

        async def handler(arguments: Row, session: Session) -> ToolAnswer:
            names = {one.name: name for name, one in EVERY[tool.question].record.each().items()}
            given = {names.get(name, name): value for name, value in arguments.items()}
            if tool.question == "measure endpoint":
                self._check_endpoint(given)
            return _short(await self._answer(tool.question, given, tool.refused, session))

        return _refusals_as_data(tool.question, handler)

    def explaining(self) -> Handler:
        """Return the handler of ``explain``."""

        async def handler(arguments: Row, session: Session) -> ToolAnswer:
            _check_names(arguments, ("question", "inputs", "figure", "depth"))
            question = _one_of(arguments.get("question"), EXPLAINED, "question")
            given, figure = _object(arguments.get("inputs"), "inputs"), str(arguments.get("figure") or "")
            found = await self._answer(question, given, frozenset(), session, explain=True, depth="12")
            if found["document"]["status"] != "ok":
                return _short(found)
            every = list(_trees(found["document"]))
            wanted = [one for one in every if figure.lower().replace("_", " ") in one["name"].lower().replace("_", " ")]
            if not wanted:
                names = sorted({one["name"] for one in every})
                raise InputError(
                    f"figure: none holds {figure!r}; there are: {', '.join(names)}",
                    argument="figure",
                    value=figure,
                    nearest=nearest(figure, names),
                )
            return _explained(wanted, _depth(arguments.get("depth", 2)), str(found["command"]))

        return _refusals_as_data("serve", handler)

    def comparing(self) -> Handler:
        """Return the handler of ``compare``."""

        async def handler(arguments: Row, session: Session) -> ToolAnswer:
            _check_names(arguments, ("questions",))
            asked = arguments.get("questions")
            if not isinstance(asked, list) or not 2 <= len(asked) <= MOST_COMPARED:
                raise InputError(f"questions: give a list of 2 to {MOST_COMPARED}", argument="questions")
            given = [_object(one, "questions") for one in asked]
            kinds = [_one_of(one.get("question", "serve"), COMPARED, "question") for one in given]
            inputs = [_object(one.get("inputs"), "inputs") for one in given]
            work = (self._answer(kind, one, frozenset(), session) for kind, one in zip(kinds, inputs, strict=True))
            columns = [_column(one) for one in await asyncio.gather(*work)]
            figures = dict.fromkeys(name for one in columns for name in one["metrics"])
            rows = {name: [one["metrics"].get(name) for one in columns] for name in figures}
            heads = [{name: value for name, value in one.items() if name != "metrics"} for one in columns]
            answer, left_off = cut({"plans": heads, "figures": rows})
            return {"status": _worst([str(one["status"]) for one in columns]), "answer": answer, "left_off": left_off}

        return _refusals_as_data("serve", handler)

    async def _answer(
        self, question: str, given: Given, refused: frozenset[str], session: Session, **outputs: object
    ) -> Row:
        """Return the document of a question and the command that asks it, and report progress meanwhile."""
        check_size(given)
        reports: set[asyncio.Task[None]] = set()

        def told(done: int, whole: int, what: str) -> None:
            report = asyncio.ensure_future(session.report_progress(done, whole, what))
            reports.add(report)
            report.add_done_callback(reports.discard)

        job = Job(answers.shown, {"name": question, "given": given, "refused": refused, "outputs": outputs})
        found: Row = json.loads((await self.pool.answer(job, told))[1])
        if reports:
            await asyncio.wait(set(reports))
        return found

    def _check_endpoint(self, given: Given) -> None:
        """Refuse endpoints that nobody allowed, and predictions of a model that only the endpoint names."""
        place = target_of(str(given.get("url") or ""))
        host, whole = place.host.lower(), f"{place.host.lower()}:{place.port}"
        if not {host, whole} & self.hosts:
            allowed = ", ".join(sorted(self.hosts)) or "none"
            raise InputError(
                f"url: {whole} may not be measured; allowed: {allowed}. Whoever starts roofplan mcp allows it with --allow {whole}",
                argument="url",
                value=str(given.get("url")),
            )
        if given.get("on") and not given.get("config"):
            raise InputError("config: name the model of the prediction, an id of the catalogue", argument="config")


def _refusals_as_data(question: str, handler: Handler) -> Handler:
    """Return a handler whose refusals are answers."""

    async def answered(arguments: Row, session: Session) -> ToolAnswer:
        try:
            return await handler(arguments, session)
        except RoofplanError as error:
            return _short({"document": answers.refusal(question, error), "command": ""})

    return answered


def _check_names(arguments: Given, known: tuple[str, ...]) -> None:
    """Refuse arguments that a tool does not have."""
    for name in arguments:
        if name not in known:
            raise InputError(
                f"unknown argument {name!r}; there are: {', '.join(known)}", argument=name, nearest=nearest(name, known)
            )


def _one_of(value: object, known: tuple[str, ...], name: str) -> str:
    if value not in known:
        raise InputError(f"{name}: {value!r} is none of {', '.join(known)}", argument=name, value=str(value))
    return str(value)


def _object(value: object, name: str) -> Row:
    if not isinstance(value, dict):
        raise InputError(f"{name}: give an object of inputs by their names", argument=name, value=str(value)[:100])
    return value


def _depth(value: object) -> int:
    if not isinstance(value, int | float) or not 0 <= value <= 8:
        raise InputError("depth: give a whole number from 0 to 8", argument="depth", value=str(value)[:100])
    return int(value)


def _explained(wanted: list[Row], depth: int, command: str) -> ToolAnswer:
    """Return trees so deep that an agent can read them."""
    while True:
        answer, left_off = cut({"figures": [pruned(one, depth) for one in wanted]})
        if depth == 0 or len(json.dumps(answer)) <= LARGEST_EXPLANATION:
            break
        depth -= 1
    whole = f"{command} --explain --depth 12"
    return {"status": "ok", "answer": answer | {"depth": depth}, "left_off": left_off, "command": whole}


def _column(found: Row) -> Row:
    """Return the best plan of an answer as a column of a comparison; why there is none, where there is none."""
    document = found["document"]
    if document["status"] != "ok":
        why = document.get("error") or document.get("no_plan")
        return {"status": document["status"], "why": why, "metrics": {}}
    plan, model = document["plans"][0], document["model"]["id"]
    return {"status": "ok", "plan": plan["id"], "model": model, "asked": found["command"], "metrics": plan["metrics"]}


def _worst(statuses: list[str]) -> str:
    return next((one for one in ("error", "no_plan") if one in statuses), "ok")


def _trees(value: object) -> Iterator[Row]:
    """Yield the trees of an explanation."""
    if isinstance(value, dict):
        if "name" in value and "value" in value and ("formula" in value or "parts" in value):
            yield value
        else:
            for name, one in value.items():
                if name != "sources":
                    yield from _trees(one)
    elif isinstance(value, list):
        for one in value:
            yield from _trees(one)


def _short(found: Row) -> ToolAnswer:
    """Return an answer as an agent reads it."""
    short, left_off = cut(found["document"])
    status = str(short.pop("status", "ok"))
    return {"status": status, "answer": short, "left_off": left_off, "command": str(found.get("command", ""))}
