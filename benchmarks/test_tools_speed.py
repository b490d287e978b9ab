"""How long an agent waits: every tool asked over pipes by the protocol's own client, after one question of each kind."""

import asyncio
import statistics
import sys
import time

import pytest

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters, stdio_client

DENSE = {"model": "llama-3.1-70b", "on": ["h100-sxm:8"]}
MIXTURE = {"model": "deepseek-r1", "on": ["h200-sxm:8"]}
TRAINED = {"model": "llama-3.1-8b", "on": ["h100-sxm:64"], "tokens": "1T"}
LOADED = {"model": "llama-3.1-8b", "on": ["h100-sxm:1"], "rate": "4req/s", "requests": "1000"}
CALLS = (
    ("plan_serving", DENSE),
    ("plan_serving", {**DENSE, "tpot": "50ms"}),
    ("plan_serving", MIXTURE),
    ("plan_training", TRAINED),
    ("simulate", LOADED),
    ("cost_tokens", DENSE),
    ("device", {"device": "h100-sxm"}),
    ("model", {"model": "deepseek-v3"}),
    *(("benchmarks", {"model": one}) for one in ("llama-3.1-8b", "llama-2-70b", "llama-3.1-405b", "deepseek-r1")),
    ("explain", {"question": "serve", "inputs": DENSE, "figure": "tpot", "depth": 2}),
    ("explain", {"question": "train", "inputs": TRAINED, "figure": "step"}),
    ("compare", {"questions": [{"inputs": DENSE}, {"inputs": {**DENSE, "on": ["h200-sxm:4"]}}]}),
)
"""Questions whose search is not a long one; `measure_endpoint` takes as long as the load that it is asked for."""


def test_tools_answer_while_an_agent_waits():
    async def converse():
        seconds = []
        server = stdio_client(StdioServerParameters(command=sys.executable, args=["-m", "roofplan", "mcp"]))
        async with Client(server) as client:
            for tool, given in CALLS[:1] * 4 + CALLS:  # both workers have imported what they need
                started = time.perf_counter()
                answer = await client.call_tool(tool, given)
                seconds.append(time.perf_counter() - started)
                assert answer.structured_content["status"] == "ok", (tool, answer.structured_content)
        return seconds[4:]

    seconds = asyncio.run(converse())
    for (tool, given), took in zip(CALLS, seconds, strict=True):
        print(f"{tool:14s} {str(given)[:70]:70s} {took:6.2f} s")
    print(f"median {statistics.median(seconds):.2f} s, most {max(seconds):.2f} s")
    assert len(seconds) == len(CALLS)
