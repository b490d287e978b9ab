"""The server of tools and resources, and its transports."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import Field
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools import Tool
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import Field as Described
from pydantic import PrivateAttr

from roofplan._version import __version__
from roofplan.agents.tools import COMPARED, EXPLAINED, QUESTIONS, Handler, QuestionTool, Session, ToolAnswer, Tools
from roofplan.errors import RoofplanError
from roofplan.inputs import AgentsInputs
from roofplan.questions import EVERY, Row
from roofplan.records.units import parse
from roofplan.workers import answers
from roofplan.workers.guard import Guard
from roofplan.workers.listening import Place, listen
from roofplan.workers.names import help_from_afar
from roofplan.workers.pool import Pool, processes

WAITING = 32
"""Most questions that wait [1]."""

LARGEST = 1 << 22
"""Most bytes of a message over HTTP [B]."""

INSTRUCTIONS = """Predictions for running and training language models: what fits, how fast, at what cost, which limit binds.
Quantities are texts with units (50ms, 80GiB, 4req/s). Machines are ID:COUNT, such as h100-sxm:8; models are ids of the catalogue
(see roofplan://models) or the content of a config.json. Every figure has a 90% interval (low, high) and a grade: measured,
calibrated (fitted on such runs), borrowed (on relatives) or guessed. Say the interval when you report a figure. A refusal is data:
status is error or no_plan, with the nearest accepted values or the smallest changes that would work."""


class AnsweringTool(Tool):
    """A tool whose arguments reach its handler as they came, so that every refusal is an answer."""

    _handler: Handler = PrivateAttr()

    async def run(self, arguments: Row, context: Session, convert_result: bool = False) -> object:  # type: ignore[override]
        """Return the answer to arguments."""
        answer = await self._handler(arguments, context)
        return self.fn_metadata.convert_result(answer) if convert_result else answer


def _tool(name: str, text: str, parameters: list[inspect.Parameter], handler: Handler) -> Tool:
    """Return a tool with typed parameters."""

    def shape(**_: object) -> ToolAnswer:
        return {}

    shape.__name__ = name  # which titles the schema of the arguments
    shape.__signature__ = inspect.Signature(parameters, return_annotation=ToolAnswer)  # type: ignore[attr-defined]
    shape.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": ToolAnswer}
    tool = AnsweringTool.from_function(shape, name=name, description=text)
    tool._handler = handler  # type: ignore[attr-defined]  # noqa: SLF001
    return tool


def _question_tool(tool: QuestionTool, tools: Tools) -> Tool:
    """Return the tool of a question: its inputs are the parameters."""
    question = EVERY[tool.question]
    kinds = question.record.kinds()
    declared = {name: one for name, one in question.record.each().items() if name not in tool.refused}
    parameters = [_parameter(name, one, kinds[name]) for name, one in declared.items()]
    return _tool(tool.name, question.help, parameters, tools.asking(tool))


def _parameter(name: str, declared: Field[object], kind: object) -> inspect.Parameter:
    """Return an input as a parameter of a tool."""
    about, default = declared.metadata, declared.default
    if isinstance(default, tuple):
        kind, default = list[str] | str, list(default)
    elif about["reads"] == "model" and about["anything"]:
        kind = str | Row
    start = inspect.Parameter.empty if about["required"] else default
    return _given(declared.name, kind, help_from_afar(about), start, alias=None if name == declared.name else name)


def _given(
    name: str, kind: object, text: str, default: object = inspect.Parameter.empty, *, alias: str | None = None
) -> inspect.Parameter:
    """Return a parameter of a tool with its type and what it means."""
    described = Annotated[kind, Described(description=text, alias=alias)]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=described)


def agents(pool: Pool, hosts: frozenset[str] = frozenset()) -> MCPServer[None]:
    """Return the server of tools and resources.

    Parameters
    ----------
    pool : processes that answer; the server starts and stops them.
    hosts : hosts, with or without a port, whose endpoints may be measured.

    Returns
    -------
    The server, without a transport.
    """

    @contextlib.asynccontextmanager
    async def lifespan(_: MCPServer[None]) -> AsyncIterator[None]:
        pool.start()
        try:
            yield
        finally:
            pool.stop()

    tools = Tools(pool, hosts)
    inputs = _given("inputs", Row, "inputs of the question's own tool")
    explain = [
        _given("question", str, f"one of {', '.join(EXPLAINED)}"),
        inputs,
        _given("figure", str, "part of a figure's name, such as tpot; empty for all", default=""),
        _given("depth", int, "levels of the trees, 0 to 8", default=2),
    ]
    compare = [
        _given("questions", list[Row], f"two to four objects with question ({' or '.join(COMPARED)}) and inputs")
    ]
    every = [_question_tool(one, tools) for one in QUESTIONS]
    every.append(
        _tool(
            "explain",
            "Where figures come from: formulas with the numbers put in, and their sources, as a tree.",
            explain,
            tools.explaining(),
        )
    )
    every.append(_tool("compare", "Two to four plans beside each other, figure by figure.", compare, tools.comparing()))
    server: MCPServer[None] = MCPServer(
        "roofplan",
        version=__version__,
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        log_level="WARNING",
        tools=every,
    )
    _add_resources(server)
    return server


def _add_resources(server: MCPServer[None]) -> None:
    """Add the catalogue and the schemas."""

    def listed(name: str) -> Callable[[], str]:
        return lambda: answers.document(name, {})[1]

    for name in ("models", "devices", "engines", "frameworks", "networks"):
        server.resource(f"roofplan://{name}", name=name, description=EVERY[name].help, mime_type="application/json")(
            listed(name)
        )

    @server.resource("roofplan://schema/{command}", name="schema", mime_type="application/json")
    def schema(command: str) -> str:
        """JSON Schema of a command's whole document; a blank in its name is written as -, as in cost-tokens."""
        from roofplan.present.answers.schemas import answer_schema

        try:
            return json.dumps(answer_schema(command.replace("-", " ")))
        except RoofplanError as error:
            return json.dumps(answers.refusal("schema", error))


def serve(asked: AgentsInputs, say: Callable[[str], None]) -> None:
    """Answer agents until they leave, or somebody interrupts.

    Parameters
    ----------
    asked : which transport, and where.
    say : writes a line for whoever started it.

    Raises
    ------
    InputError : an address that cannot be listened on, or a count or time that cannot be read.
    """
    pool = Pool(processes(asked.workers), parse(asked.limit, "s", "--limit"), WAITING, "roofplan.workers.answers")
    server = agents(pool, frozenset(asked.allow))
    if not asked.http:
        with contextlib.suppress(KeyboardInterrupt):
            server.run("stdio")
        return
    place = Place.of(asked)
    ours = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # the guard checks hosts and origins
    app = Guard(server.streamable_http_app(transport_security=ours), place.hosts, place.token, LARGEST)
    known = "" if place.token is None else f", with the header Authorization: Bearer {place.token}"
    listen(app, place, lambda: say(f"roofplan answers agents on {place.url}mcp{known} (Ctrl-C ends it)"))
