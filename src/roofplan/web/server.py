"""The server: pages, documents, progress as events, and files to keep."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Mapping
from importlib.resources import files
from pathlib import PurePosixPath

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from roofplan.errors import InputError, RoofplanError
from roofplan.inputs import WebInputs
from roofplan.questions import Given, Row
from roofplan.questions.gathered import Told, as_json
from roofplan.records.units import parse
from roofplan.web import html
from roofplan.web.kept import Kept
from roofplan.web.pages import PAGES, Page
from roofplan.workers import answers
from roofplan.workers.guard import LOOPBACK, Guard, TooLarge
from roofplan.workers.listening import Place, listen
from roofplan.workers.names import check_size
from roofplan.workers.pool import Busy, Job, Pool, Stopped, TooLong, processes

LARGEST = 1 << 21
"""Most bytes of a question [B]."""

WAITING = 256
"""Most questions that wait [1]."""

KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
"""Types of the files that pages load."""

OUTPUTS = frozenset({"explain", "depth", "emit"})
"""What a question may say of how its answer leaves."""

SWITCHES = {"true": True, "1": True, "false": False, "0": False}
"""How a query says yes and no."""

CODES: Mapping[type[RoofplanError], int] = {Busy: 503, TooLong: 503, Stopped: 500}


def application(pool: Pool, hosts: frozenset[str] = LOOPBACK, token: str | None = None) -> Starlette:
    """Return the server as an ASGI application.

    Parameters
    ----------
    pool : processes that answer.
    hosts : names under which it is asked.
    token : that everybody must know; None where only this machine can ask.

    Returns
    -------
    The application; it starts and stops the processes.
    """

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        pool.start()
        try:
            yield
        finally:
            pool.stop()

    pages = _Pages(pool)
    routes = [
        Route("/", pages.home),
        Route("/side-by-side", pages.side_by_side),
        Route("/static/{name}", pages.static),
        Route("/api/{path:path}", pages.document, methods=["GET", "POST"]),
        Route("/page/{path:path}", pages.events, methods=["POST"]),
        Route("/save/{path:path}", pages.file, methods=["GET", "POST"]),
        Route("/{path:path}", pages.page),
    ]
    guard = Middleware(Guard, hosts=hosts, token=token, largest=LARGEST)
    return Starlette(routes=routes, middleware=[guard], lifespan=lifespan, exception_handlers={TooLarge: _too_large})


async def _too_large(_: Request, __: Exception) -> Response:
    return Response(f"A question has at most {LARGEST:,} bytes.\n", 413, media_type="text/plain")


class _Pages:
    """The handlers of requests."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.kept = Kept()

    async def _done(self, job: Job, told: Told | None = None) -> tuple[str, str]:
        """Return the answer of a job, as it is kept or from a process."""
        found = self.kept.find(job)
        if found is None:
            found = await self.pool.answer(job, told)
            self.kept.keep(job, found)
        return found

    async def home(self, _: Request) -> Response:
        return HTMLResponse(html.home())

    async def side_by_side(self, _: Request) -> Response:
        return HTMLResponse(html.side_by_side())

    async def page(self, request: Request) -> Response:
        page = PAGES.get(request.path_params["path"])
        return _no_page(request) if page is None else HTMLResponse(html.question_page(page))

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        folder = (
            files("roofplan.present.charts") / "vendor" if name.startswith("vega") else files(__package__) / "static"
        )
        kind = KINDS.get(PurePosixPath(name).suffix)
        if kind is None or name not in {one.name for one in folder.iterdir()}:
            return Response("no such file\n", 404, media_type="text/plain")
        return Response((folder / name).read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})

    async def document(self, request: Request) -> Response:
        page = PAGES.get(request.path_params["path"])
        if page is None:
            return _no_page(request)
        try:
            status, text = await self._answer(request, page, answers.document)
        except RoofplanError as error:
            return _failed(page, error)
        return Response(text, 400 if status == "error" else 200, media_type="application/json")

    async def file(self, request: Request) -> Response:
        page = PAGES.get(request.path_params["path"])
        if page is None:
            return _no_page(request)
        try:
            status, text = await self._answer(request, page, answers.file)
        except RoofplanError as error:
            return _failed(page, error)
        name = f"roofplan-{page.path.replace('/', '-')}.html"
        kept = {"Content-Disposition": f'attachment; filename="{name}"'}
        return HTMLResponse(text, 400 if status == "error" else 200, headers=kept)

    async def events(self, request: Request) -> Response:
        page = PAGES.get(request.path_params["path"])
        if page is None:
            return _no_page(request)
        try:
            given, outputs = await _asked(request, page)
        except RoofplanError as error:
            return _failed(page, error)
        return StreamingResponse(
            self._events(page, _job(page, answers.page, given, outputs)),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store"},
        )

    async def _events(self, page: Page, job: Job) -> AsyncIterator[str]:
        """Yield progress, and at last the answer; whoever stops listening ends the work."""
        told: asyncio.Queue[str | None] = asyncio.Queue()

        def tick(done: int, whole: int, what: str) -> None:
            told.put_nowait(_event("progress", json.dumps({"done": done, "whole": whole, "what": what})))

        work = asyncio.create_task(self._done(job, tick))
        work.add_done_callback(lambda _: told.put_nowait(None))
        try:
            while (event := await told.get()) is not None:
                yield event
            yield _event("answer", work.result()[1])
        except RoofplanError as error:
            yield _event("answer", json.dumps({"document": answers.refusal(page.question, error)}))
        finally:
            work.cancel()

    async def _answer(self, request: Request, page: Page, function: Callable[..., tuple[str, str]]) -> tuple[str, str]:
        """Return an answer to whoever waits for it; the work ends when nobody does."""
        given, outputs = await _asked(request, page)
        work = asyncio.create_task(self._done(_job(page, function, given, outputs)))
        try:
            while not (await asyncio.wait({work}, timeout=1.0))[0]:
                if await request.is_disconnected():
                    raise Stopped("nobody waits for the answer")
        finally:
            if not work.done():
                work.cancel()
        return work.result()


def _job(page: Page, function: Callable[..., tuple[str, str]], given: Given, outputs: Given) -> Job:
    return Job(function, {"name": page.question, "given": given, "refused": page.refused, "outputs": outputs})


async def _asked(request: Request, page: Page) -> tuple[Row, Row]:
    """Return the inputs of a request, and how its answer is to leave: from the query, or from a JSON body."""
    if request.method == "POST":
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise InputError("a question is sent as application/json", argument="Content-Type")
        try:
            body = json.loads(await request.body())
        except (ValueError, RecursionError):
            raise InputError("the question is no JSON object", argument="body") from None
        if not isinstance(body, dict):
            raise InputError("the question is no JSON object", argument="body")
        given = body.get("inputs", body)
        if not isinstance(given, dict):
            raise InputError("inputs is no JSON object", argument="inputs")
    else:
        given = _from_query(request, page)
    check_size(given)
    outputs: Row = {name: str(given[name]) for name in OUTPUTS & page.asked.outputs.keys() if name in given}
    if "explain" in outputs:
        outputs["explain"] = outputs["explain"].lower() not in {"0", "false", ""}
    return {name: value for name, value in given.items() if name not in outputs}, outputs


def _from_query(request: Request, page: Page) -> Row:
    """Return inputs as the query gives them: texts, switches, and lists of what is given several times."""
    declared = page.asked.record.each()
    given: Row = {}
    for name in request.query_params:
        values = [one for one in request.query_params.getlist(name) if one]
        default = declared[name].default if name in declared else None
        if isinstance(default, bool):
            given[name] = _switch(name, values)
        elif isinstance(default, tuple):
            given[name] = values
        elif len(values) > 1 and name not in OUTPUTS and not (name in declared and declared[name].metadata["several"]):
            raise InputError(f"{name} is given twice", argument=name, value=values[-1])
        elif values:
            given[name] = ",".join(values)
    return given


def _switch(name: str, values: list[str]) -> bool:
    """Return whether a switch is on."""
    text = values[-1].lower() if values else "false"
    if text not in SWITCHES:
        raise InputError(f"{name}: {text[:40]!r} is neither true nor false", argument=name, value=text[:40])
    return SWITCHES[text]


def _event(kind: str, data: str) -> str:
    return f"event: {kind}\ndata: {data}\n\n"


def _failed(page: Page, error: RoofplanError) -> Response:
    code = CODES.get(type(error), 400)
    headers = {"Retry-After": "2"} if code == 503 else {}
    return Response(as_json(answers.refusal(page.question, error)), code, headers, "application/json")


def _no_page(request: Request) -> Response:
    body = f"<h1>No such page</h1><p>Questions: {', '.join(f'<a href=/{path}>{path}</a>' for path in PAGES)}.</p>"
    if request.url.path.startswith(("/api/", "/page/", "/save/")):
        return Response("no such question\n", 404, media_type="text/plain")
    return HTMLResponse(html.frame("No such page", body), 404)


def serve(asked: WebInputs, say: Callable[[str], None]) -> None:
    """Listen until somebody interrupts.

    Parameters
    ----------
    asked : where, and with how many processes.
    say : writes a line for whoever started it.

    Raises
    ------
    InputError : an address that cannot be listened on, or a count or time that cannot be read.
    """
    pool = Pool(processes(asked.workers), parse(asked.limit, "s", "--limit"), WAITING, "roofplan.workers.answers")
    place = Place.of(asked)
    address = place.url if place.token is None else f"{place.url}?token={place.token}"

    def announce() -> None:
        say(f"roofplan listens on {address} (Ctrl-C ends it)")
        if asked.open:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    listen(application(pool, place.hosts, place.token), place, announce)
