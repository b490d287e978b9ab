"""How many events of streams a client reads a second, and whether any is lost. Run with ``make bench``.

Raw asyncio reads 45,000 events a second here, aiohttp 29,000, httpx 10,000 (one shared core of an AMD EPYC, 2026-11).
"""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from roofplan.observe import measure_endpoint

GOAL = 29_000
"""Events a second of processor time."""


@pytest.fixture(scope="module")
def url():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "stream_server.py"), str(port)], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout.readline() == "ready\n"
    yield f"http://127.0.0.1:{port}"
    server.kill()
    server.wait()
    server.stdout.close()


@pytest.mark.parametrize(("streams", "tokens"), [(50, 2000), (500, 200), (5000, 20)])
def test_events_a_second(url, streams, tokens):
    try:
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        if most < streams + 100:
            pytest.skip(f"the system allows {most} open files")
    except ImportError:
        if streams > 500:
            pytest.skip("the system tells no limit of open files")
    run = measure_endpoint(url, burst=str(streams), input="20", output=str(tokens)).run
    events = sum(one.events for one in run.samples)
    reads = sum(one.reads for one in run.samples)
    rate = events / run.effort.cpu
    print(
        f"\n{streams:,} streams of {tokens:,} events: {rate:,.0f} events/s of one core (goal {GOAL:,}), "
        f"{events:,} of {streams * tokens:,} came, {reads / events:.2f} reads an event, "
        f"event loop {run.effort.lag(0.99) * 1e3:.0f} ms late at p99"
    )
    assert events == streams * tokens
