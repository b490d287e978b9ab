"""A server that sends the events of all its streams in turn, as fast as it can: ``python stream_server.py PORT``."""

import asyncio
import json
import sys


def chunk(data):
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(value):
    return chunk(b"data: " + json.dumps(value).encode() + b"\n\n")


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WORD = event(
    {
        "id": "chatcmpl-0123456789",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "model",
        "choices": [{"index": 0, "delta": {"content": " word"}, "finish_reason": None}],
    }
)
END = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})


async def serve(reader, writer):
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next((int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length")), 0)
    if length:
        count = json.loads(await reader.readexactly(length))["max_tokens"]
        writer.write(HEAD)
        for _ in range(count):
            writer.write(WORD)
            await asyncio.sleep(0)
        usage = event({"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": count}})
        writer.write(END + usage + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    else:
        text = json.dumps({"data": [{"id": "model"}]}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
    await writer.drain()
    writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), backlog=8192)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
