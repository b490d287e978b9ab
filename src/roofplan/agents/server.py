"""The tools, the resources and the transports."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict
from urllib.parse import urlsplit

from mcp.server.mcpserver import Context, MCPServer

from roofplan._version import __version__
from roofplan.agents.cut import cut, pruned
from roofplan.errors import InputError, RoofplanError, nearest
from roofplan.inputs import AgentsInputs, Inputs
from roofplan.questions import EVERY, Given, Row
from roofplan.records.units import parse, parse_count
from roofplan.workers import answers
from roofplan.workers.guard import LOOPBACK, Guard, is_loopback, token_of
from roofplan.workers.pool import Job, Pool

WAITING = 32
"""Most questions that wait [1]."""

LARGEST = 1 << 22
"""Most bytes of a message over HTTP [B]."""

INSTRUCTIONS = """Predictions for running and training language models: what fits, how fast, at what cost, which limit binds.
Quantities are texts with units (50ms, 80GiB, 4req/s). Machines are ID:COUNT, such as h100-sxm:8; models are ids of the catalogue
(see roofplan://models) or the content of a config.json. Every figure has a 90% interval (low, high) and a grade: measured,
calibrated (fitted on such runs), borrowed (on relatives) or guessed. Say the interval when you report a figure. A refusal is data:
status is error or no_plan, with the nearest accepted values or the smallest changes that would work."""


Session = Context[Any]
"""How a tool speaks to its client."""


class Answer(TypedDict, total=False):
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
class Tool:
    """A question as a tool.

    Parameters
    ----------
    name : of the tool.
    question : that it asks.
    leave : inputs that agents do not give.
    """

    name: str
    question: str
    leave: frozenset[str] = frozenset()


TOOLS = (
    Tool("plan_serving", "serve"),
    Tool("plan_training", "train"),
    Tool("simulate", "simulate", frozenset({"trace"})),
    Tool("cost_tokens", "cost tokens"),
    Tool("device", "device"),
    Tool("model", "model"),
    Tool("benchmarks", "benchmarks"),
    Tool("measure_endpoint", "measure endpoint", frozenset({"trace", "plan", "key_env"})),
)
"""Tools that ask one question each."""

EXPLAINED = Literal["serve", "train", "cost tokens", "cost chip", "cost machine"]
"""Questions whose figures can be explained."""


class _Tools:
    """The functions behind the tools."""

    def __init__(self, pool: Pool, hosts: frozenset[str]) -> None:
        self.pool, self.hosts = pool, hosts

    async def answer(
        self, question: str, given: Given, leave: frozenset[str], context: Session, **outputs: object
    ) -> Row:
        """Return what a page would show of a question, and report progress meanwhile."""
        reports: set[asyncio.Task[None]] = set()

        def told(done: int, whole: int, what: str) -> None:
            report = asyncio.ensure_future(context.report_progress(done, whole, what))
            reports.add(report)
            report.add_done_callback(reports.discard)

        job = Job(answers.shown, {"name": question, "given": given, "leave": leave, "outputs": outputs})
        try:
            found: Row = json.loads((await self.pool.answer(job, told))[1])
        except RoofplanError as error:
            found = {"document": _failure(question, error), "command": ""}
        if reports:
            await asyncio.wait(set(reports))
        return found

    def tool(self, tool: Tool) -> Callable[..., Awaitable[Answer]]:
        """Return the function of a tool, with the inputs of its question as parameters."""
        record = EVERY[tool.question].record
        names = {one.name: name for name, one in record.each().items() if name not in tool.leave}

        async def called(mcp_context: Session, **given: object) -> Answer:
            stated = {names[one]: value for one, value in given.items() if value is not None}
            if tool.question == "measure endpoint":
                refused = self._refused(str(stated.get("url")))
                if refused is not None:
                    return _short({"document": refused, "command": ""})
            return _short(await self.answer(tool.question, stated, tool.leave, mcp_context))

        kept = {one: declared for one, declared in record.each().items() if one not in tool.leave}
        shown = [_parameter(name, one.name, one.default, one.metadata) for name, one in kept.items()]
        context = inspect.Parameter("mcp_context", inspect.Parameter.KEYWORD_ONLY, annotation=Session)
        called.__signature__ = inspect.Signature([*shown, context], return_annotation=Answer)  # type: ignore[attr-defined]
        called.__annotations__ = {one.name: one.annotation for one in [*shown, context]} | {"return": Answer}
        called.__name__, called.__doc__ = tool.name, EVERY[tool.question].help
        return called

    def _refused(self, url: str) -> Row | None:
        """Return why an endpoint is not measured."""
        host = urlsplit(url if "//" in url else f"//{url}").hostname or ""
        if host in self.hosts:
            return None
        allowed = ", ".join(sorted(self.hosts)) or "none"
        error = InputError(
            f"url: {host or url!r} may not be measured; allowed: {allowed}. Whoever starts roofplan mcp allows it with --allow {host}",
            argument="url",
            value=url,
        )
        return _failure("measure endpoint", error)

    async def explain(
        self,
        question: EXPLAINED,
        inputs: Row,
        context: Session,
        figure: str = "",
        depth: int = 2,
    ) -> Answer:
        """Where figures come from: formulas with the numbers put in, and their sources, as a tree.

        `inputs` are those of the question's tool; `figure` is part of a figure's name, such as tpot, or empty for all.
        """
        found = await self.answer(question, inputs, frozenset(), context, explain=True, depth="12")
        document = found["document"]
        if document["status"] != "ok":
            return _short(found)
        every = list(_trees(document))
        wanted = [one for one in every if figure.lower() in one["name"].lower()]
        if not wanted:
            names = sorted({one["name"] for one in every})
            near = nearest(figure, names)
            error = InputError(
                f"figure: none holds {figure!r}; there are: {', '.join(names)}", argument="figure", nearest=near
            )
            return _short({"document": _failure(question, error), "command": ""})
        kept = max(0, min(depth, 8))
        return {
            "status": "ok",
            "answer": {"figures": [pruned(one, kept) for one in wanted]},
            "command": f"{found['command']} --explain --depth {kept}",
        }

    async def compare(self, questions: list[Row], context: Session) -> Answer:
        """Set up to four plans beside each other, figure by figure: each entry has question (serve or train) and inputs."""
        if not 2 <= len(questions) <= 4:
            error = InputError("questions: two to four are compared", argument="questions", value=len(questions))
            return _short({"document": _failure("serve", error), "command": ""})
        found = []
        for one in questions:
            name = str(one.get("question", "serve"))
            if name not in {"serve", "train"}:
                error = InputError(f"question: {name!r} is neither serve nor train", argument="question", value=name)
                return _short({"document": _failure("serve", error), "command": ""})
            found.append(await self.answer(name, one.get("inputs", {}), frozenset(), context))
        columns = [_best(one) for one in found]
        figures = dict.fromkeys(name for one in columns for name in one.get("metrics", {}))
        rows = {name: [one.get("metrics", {}).get(name) for one in columns] for name in figures}
        heads = [{name: value for name, value in one.items() if name != "metrics"} for one in columns]
        answer, left_off = cut({"plans": heads, "figures": rows})
        failed = any("plan" not in one for one in columns)
        return {"status": "error" if failed else "ok", "answer": answer, "left_off": left_off}


def _best(found: Row) -> Row:
    """Return the best plan of an answer as a column of a comparison; why there is none, where there is none."""
    document = found["document"]
    if document["status"] != "ok":
        return {"status": document["status"], "why": document.get("error") or document.get("no_plan")}
    plan = document["plans"][0]
    return {
        "plan": plan["id"],
        "model": document["model"]["id"],
        "command": found["command"],
        "metrics": plan["metrics"],
    }


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


def _short(found: Row) -> Answer:
    """Return an answer as an agent reads it."""
    document = found["document"]
    short, left_off = cut(document)
    status = str(short.pop("status", "ok"))
    return {"status": status, "answer": short, "left_off": left_off, "command": found.get("command", "")}


def _failure(question: str, error: RoofplanError) -> Row:
    from roofplan.present.answers.record import failure, plain

    found: Row = plain(failure(question, Inputs(), error))
    return found


def _parameter(name: str, identifier: str, default: object, about: Given) -> inspect.Parameter:
    """Return an input as a parameter of a tool."""
    from pydantic import Field

    kind: object = str | None
    if isinstance(default, bool):
        kind = bool
    elif isinstance(default, tuple):
        kind = list[str]
    elif about["reads"] == "model" and about["anything"]:
        kind = str | Row
    text = "id of the catalogue, or the content of a config.json" if about["reads"] == "model" else about["help"]
    start: object = (
        inspect.Parameter.empty if about["required"] else list(default) if isinstance(default, tuple) else default
    )
    return inspect.Parameter(
        identifier,
        inspect.Parameter.KEYWORD_ONLY,
        default=start,
        annotation=Annotated[kind, Field(description=text, alias=name if name != identifier else None)],
    )


def agents(pool: Pool, hosts: frozenset[str] = frozenset()) -> MCPServer[None]:
    """Return the server of tools and resources.

    Parameters
    ----------
    pool : processes that answer; the server starts and stops them.
    hosts : hosts whose endpoints may be measured.

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

    server: MCPServer[None] = MCPServer(
        "roofplan", version=__version__, instructions=INSTRUCTIONS, lifespan=lifespan, log_level="WARNING"
    )
    tools = _Tools(pool, hosts)
    for tool in TOOLS:
        server.add_tool(tools.tool(tool), name=tool.name, description=EVERY[tool.question].help)
    server.add_tool(tools.explain, name="explain")
    server.add_tool(tools.compare, name="compare")
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

        return json.dumps(answer_schema(command.replace("-", " ")))


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
    count = parse_count(asked.workers, "--workers") if asked.workers is not None else max(1, os.cpu_count() or 1)
    pool = Pool(count, parse(asked.limit, "s", "--limit"), WAITING, "roofplan.workers.answers")
    server = agents(pool, frozenset(asked.allow))
    if not asked.http:
        with contextlib.suppress(KeyboardInterrupt):
            server.run("stdio")
        return
    import uvicorn
    from mcp.server.transport_security import TransportSecuritySettings

    port = parse_count(asked.port, "--port")
    token = None if is_loopback(asked.host) else token_of(asked.token_env)
    hosts = LOOPBACK | ({asked.host, *asked.name} if token is not None else set())
    open_ = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # the guard checks hosts and origins
    app = Guard(server.streamable_http_app(transport_security=open_), hosts, token, LARGEST)
    said = "" if token is None else f", Authorization: Bearer {token}"
    say(f"roofplan answers agents on http://{asked.host}:{port}/mcp{said} (Ctrl-C ends it)")
    with contextlib.suppress(KeyboardInterrupt):
        try:
            uvicorn.run(app, host=asked.host, port=port, log_level="warning", server_header=False)
        except SystemExit:
            raise InputError(
                f"--port: cannot listen on {asked.host}:{port}; another --port?", argument="--port", value=str(port)
            ) from None
