"""A deterministic OpenAI-compatible server on loopback that also misbehaves, by the model that it is asked for."""

import asyncio
import contextlib
import json
import threading

FIRST, BETWEEN = 0.05, 0.01
"""Times to the first token and between tokens [s]."""


class Mock:
    """A server in a thread of its own.

    Parameters
    ----------
    first, between : times to the first token and between tokens [s].
    counts : whether it sends the number of tokens.
    models : that it lists.
    tls : context of a server that speaks TLS.
    """

    def __init__(self, first=FIRST, between=BETWEEN, *, counts=True, models=("steady",), slots=None, tls=None):
        self.first, self.between, self.counts, self.models = first, between, counts, models
        self.slots, self.tls = slots, tls
        self.seen = []
        self.bodies = []
        self.loop = asyncio.new_event_loop()
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.thread.start()
        self.ready.wait(10)
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}" if self.tls is None else f"https://localhost:{self.port}"

    def _run(self):
        asyncio.set_event_loop(self.loop)
        self.gate = asyncio.Semaphore(self.slots or 10_000)
        server = self.loop.run_until_complete(
            asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=8192, ssl=self.tls)
        )
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        self.loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    async def serve(self, reader, writer):
        trouble = (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError)
        with contextlib.suppress(*trouble):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, path, _ = head.split("\r\n")[0].split(" ")
            length = next(
                (int(x.split(":")[1]) for x in head.split("\r\n") if x.lower().startswith("content-length")), 0
            )
            body = json.loads(await reader.readexactly(length)) if length else {}
            self.seen.append((method, path, head))
            if method == "GET":
                await self.get(path, writer)
            else:
                self.bodies.append(body)
                await self.post(path, body, writer)
            await writer.drain()
        writer.close()

    async def get(self, path, writer):
        if path.endswith("/models"):
            self.document(writer, {"data": [{"id": name} for name in self.models]})
        elif path == "/version":
            self.document(writer, {"version": "mock"})
        else:
            self.document(writer, {"error": {"message": "no such path"}}, "404 Not Found")

    def document(self, writer, value, status="200 OK", kind="application/json", more=""):
        text = value if isinstance(value, bytes) else json.dumps(value).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}Content-Length: {len(text)}\r\n\r\n"
        writer.write(head.encode() + text)

    def event(self, writer, value):
        data = value if isinstance(value, bytes) else b"data: " + json.dumps(value).encode() + b"\n\n"
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def token(self, chat, text="word "):
        part = {"delta": {"content": text}} if chat else {"text": text}
        return {"choices": [{"index": 0, **part, "finish_reason": None}]}

    async def post(self, path, body, writer):
        name, chat, count = body["model"], "chat" in path, body.get("max_tokens") or body["max_completion_tokens"]
        probe = count == 2  # the client learns how this server counts
        answer = {"choices": [{"message": {"content": "word " * count}, "finish_reason": "stop"}]}
        refusals = {
            "no-chat": (chat, "404 Not Found", "no such path"),
            "strict": ("ignore_eos" in body, "400 Bad Request", "unknown field ignore_eos"),
            "newer": ("max_tokens" in body, "400 Bad Request", "use max_completion_tokens instead"),
            "busy": (not probe and len(self.bodies) % 2, "429 Too Many Requests", "slow down"),
        }
        refused, status, why = refusals.get(name, (False, "", ""))
        if refused:
            self.document(writer, {"error": {"message": why}}, status)
        elif name == "elsewhere":
            self.document(writer, b"", "301 Moved Permanently", more="Location: http://127.0.0.1:1/v1\r\n")
        elif name == "page":
            self.document(writer, b"<html>hello</html>", kind="text/html")
        elif name == "whole":
            self.document(writer, answer | {"usage": self.usage(body, count)})
        else:
            async with self.gate:
                await self.stream(name, chat, body, count, probe, writer)

    def usage(self, body, count):
        text = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
        return {"prompt_tokens": 2 * len(text.split()) + 7, "completion_tokens": count}

    async def stream(self, name, chat, body, count, probe, writer):
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        )
        if chat:
            self.event(writer, {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        await asyncio.sleep(self.first)
        if name == "silent" and not probe:
            await asyncio.sleep(3600)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for k in range(count):
            if k and not (name == "merged" and k % 4):
                await asyncio.sleep(max(0.0, began + k * self.between - loop.time()))
            if name == "half" and not probe and k == count // 2:
                return
            if name == "broken" and not probe and k == 3:
                self.event(writer, {"error": {"message": "out of memory"}})
                break
            if name == "wordy" and k % 2:  # two tokens in an event
                continue
            self.event(writer, self.token(chat))
        self.event(writer, {"choices": [{"index": 0, "delta": {}, "text": "", "finish_reason": "length"}]})
        if self.counts:
            spent = 1e3 * (loop.time() - began)
            timings = {"predicted_n": count, "predicted_ms": spent, "prompt_ms": 1e3 * self.first}
            self.event(writer, {"choices": [], "usage": self.usage(body, count), "timings": timings})
        self.event(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
