"""Measure an endpoint: find out what it is, learn how it counts, put a load on it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

from roofplan.errors import InputError, RoofplanError, nearest
from roofplan.load.asked import Asked
from roofplan.measure.client import Asking, Effort, drive, one
from roofplan.measure.exchange import Failure, Target, clock, exchange
from roofplan.measure.ledger import COMPLETE, Kept
from roofplan.measure.sample import Sample
from roofplan.measure.stream import CHAT, COMPLETIONS
from roofplan.measure.text import Prompts

PATIENCE = 10.0
"""Longest wait for what a server says of itself [s]."""

BEFORE = 1_000_000_000
"""Number of the first request before a load: none of the load has the same text [1]."""

SHORT, LONG = 16, 128
"""Words of the two prompts that tell how a server counts [1]."""


class Unreachable(RoofplanError):
    """The endpoint does not answer as an OpenAI-compatible server does."""

    code = "unreachable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What an endpoint says of itself.

    Parameters
    ----------
    url : its address.
    model : id of the model that is measured.
    software : name and version, as far as it says them.
    local : whether it runs on this host.
    counts : whether it sends the number of tokens with its answers.
    """

    url: str
    model: str
    software: str
    local: bool
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A load that was put on an endpoint.

    Parameters
    ----------
    server : what was measured.
    load : in words.
    samples : every request that ended, in the order of their ends.
    effort : what the client itself took.
    planned : requests of the load [1].
    interrupted : whether it was stopped before its end.
    notes : what the server would not do as asked.
    id : in the ledger, None where it is not kept.
    """

    server: Server
    load: str
    samples: list[Sample]
    effort: Effort
    planned: int
    interrupted: bool
    notes: list[str] = field(default_factory=list)
    id: int | None = None

    def about(self) -> dict[str, object]:
        """Return what the ledger keeps beside the samples."""
        effort = {"seconds": self.effort.seconds, "cpu": self.effort.cpu, "lag": self.effort.lag(0.99)}
        return {"server": asdict(self.server), "load": self.load, "notes": self.notes, "effort": effort}


async def _got(target: Target, path: str) -> object:
    """Return a JSON document of a server.

    Raises
    ------
    Failure : there is none.
    """
    lines: list[bytes] = []
    await exchange(target, "GET", path, b"", lambda line, _: lines.append(line), PATIENCE)
    try:
        return json.loads(b"\n".join(lines))
    except ValueError:
        raise Failure("no API", "the answer is no JSON") from None


async def _models(target: Target) -> list[str]:
    """Return the ids of a server's models."""
    found = await _got(target, f"{target.base}/models")
    listed = found.get("data", []) if isinstance(found, dict) else []
    return [str(each["id"]) for each in listed if isinstance(each, dict) and "id" in each]


async def _software(target: Target) -> str:
    """Return a server's name and version, empty where it says neither."""
    root = target.base.removesuffix("/v1")
    for path, name, key in (("/version", "vllm", "version"), ("/props", "llama-server", "build_info")):
        try:
            found = await _got(target, root + path)
        except Failure:
            continue
        if isinstance(found, dict) and key in found:
            return f"{name} {found[key]}".strip()
    return ""


async def known(target: Target, model: str | None) -> Server:
    """Return what an endpoint says of itself.

    Parameters
    ----------
    target : where it is.
    model : id that the user names, None for the only one.

    Returns
    -------
    The server.

    Raises
    ------
    Unreachable : it does not answer, or in another way.
    InputError : no such model, or none named of several.
    """
    try:
        ids = await _models(target)
    except Failure as error:
        if model is None or not error.reason.startswith("http 4") or error.reason in {"http 401", "http 403"}:
            raise Unreachable(f"{target.url}: {error.message}", argument="URL", value=target.url) from None
        ids = [model]  # a server that lists nothing
    if model is None and len(ids) != 1:
        more = f", and {len(ids) - 5:,} more" if len(ids) > 5 else ""
        has = f"has {', '.join(ids[:5])}{more}" if ids else "lists none"
        raise InputError(f"--model: which one? {target.url} {has}", argument="--model", nearest=ids[:5])
    if model is not None and model not in ids:
        near = nearest(model, ids) or ids[:3]
        message = f"--model: {target.url} has no {model}. It has: {', '.join(near)}"
        raise InputError(message, argument="--model", value=model, nearest=near)
    local = await asyncio.get_running_loop().run_in_executor(None, lambda: target.local)
    return Server(url=target.url, model=model or ids[0], software=await _software(target), local=local)


async def learned(asking: Asking, *, given: bool) -> tuple[Asking, list[str], bool]:
    """Return how an endpoint is best asked, after two short requests.

    Parameters
    ----------
    asking : how it is asked first.
    given : whether the way to ask was named by the user.

    Returns
    -------
    How to ask, notes on what the server would not do, and whether it counts tokens.

    Raises
    ------
    Unreachable : it answers no request.
    """
    notes, counted = [], []
    for words in (LONG, SHORT):
        while True:
            asking.prompts.slope, asking.prompts.offset = 1.0, 0.0  # a word for a token: the text has so many words
            found = await one(asking, BEFORE + words, words, 2, clock(), 0.0)
            if found.answered:
                break
            other = _otherwise(asking, found, given=given)
            if other is None:
                raise Unreachable(f"{asking.target.url}: {found.message}", argument="URL", value=asking.target.url)
            asking, note = other
            notes += [note] if note else []
        if found.prompt is not None:
            counted.append((words, found.prompt))
    fresh = Prompts(asking.prompts.seed, repeated=asking.prompts.repeated)
    if len(counted) == 2:
        fresh.fit(counted)
    else:
        notes.append("the server sends no counts of tokens: events stand for tokens")
    return replace(asking, prompts=fresh), notes, len(counted) == 2


def _otherwise(asking: Asking, found: Sample, *, given: bool) -> tuple[Asking, str] | None:
    """Return another way to ask a server that refused, with what it means; None where none is left."""
    if found.reason in {"http 400", "http 422"}:
        if "max_completion_tokens" in found.message and asking.length == "max_tokens":
            return replace(asking, length="max_completion_tokens"), ""
        if not asking.plain:
            return replace(asking, plain=True), "the server does not know ignore_eos: answers may end early"
    if found.reason in {"http 404", "http 405"} and asking.api == CHAT and not given:
        return replace(asking, api=COMPLETIONS), "no /chat/completions here: measured by /completions"
    return None


async def ready(asking: Asking, model: str | None, *, given: bool) -> tuple[Server, Asking, list[str]]:
    """Return what is known of an endpoint before it is measured.

    Parameters
    ----------
    asking : how it is asked.
    model : id that the user names, None for the only one.
    given : whether the way to ask was named by the user.

    Returns
    -------
    The server, how it is best asked, and notes on what it would not do.

    Raises
    ------
    Unreachable : it answers no request.
    """
    server = await known(asking.target, model)
    asking, notes, counts = await learned(replace(asking, model=server.model), given=given)
    return replace(server, counts=counts), asking, notes


async def measured(
    server: Server, asking: Asking, asked: Asked, notes: list[str], take: Callable[[Sample], None]
) -> Run:
    """Measure an endpoint under a load.

    Parameters
    ----------
    server, asking, notes : as `ready` returned them.
    asked : the load.
    take : called with every sample as it ends.

    Returns
    -------
    The run.
    """
    requests, samples = asked.requests(), list[Sample]()

    def kept(sample: Sample) -> None:
        samples.append(sample)
        take(sample)

    effort, interrupted = await drive(asking, requests, asked.clients, kept)
    return Run(
        server=server,
        load=asked.words(),
        samples=samples,
        effort=effort,
        planned=len(requests),
        interrupted=interrupted,
        notes=notes,
    )


def kept_run(kept: Kept, samples: list[Sample]) -> Run:
    """Return a run of the ledger.

    Parameters
    ----------
    kept, samples : the run and its requests.

    Returns
    -------
    The run as it was measured.
    """
    about, effort = kept.about, kept.about.get("effort", {})
    server = Server(**about["server"])
    spent = Effort(effort.get("seconds", 0.0), effort.get("cpu", 0.0), [effort["lag"]] if "lag" in effort else [])
    return Run(
        server=server,
        load=about.get("load", ""),
        samples=samples,
        effort=spent,
        planned=kept.planned or len(samples),
        interrupted=kept.status != COMPLETE,
        notes=list(about.get("notes", [])),
        id=kept.id,
    )
