"""Tools of agents: the protocol's own client asks, over memory, pipes and HTTP."""

import asyncio
import json
import os
import socket
import subprocess
import sys

import pytest

pytest.importorskip("mcp")

from conftest import LLAMA
from mcp import Client, StdioServerParameters, stdio_client

from roofplan.agents.cut import cut, pruned, rounded
from roofplan.agents.server import agents
from roofplan.questions import EVERY
from roofplan.workers.pool import Pool

LARGEST = 24_000
"""Most characters that an agent is given at once."""


@pytest.fixture(scope="module")
def conversation():
    """Return what a client was told in one conversation, by what it asked."""
    eight = {"model": "llama-3.1-8b", "on": ["h100-sxm:1"]}
    calls = {
        "plan": ("plan_serving", {**eight, "tpot": "50ms"}),
        "wide plan": ("plan_serving", {"model": "llama-3.1-8b"}),
        "unknown": ("plan_serving", {"model": "llama-3.1-8x", "on": ["h100-sxm:1"]}),
        "path": ("plan_serving", {"model": "/etc/passwd"}),
        "none": ("plan_serving", {"model": "llama-3.1-70b", "on": ["h100-sxm:1"]}),
        "train": ("plan_training", {"model": "llama-3.1-8b", "on": ["h100-sxm:64"], "tokens": "1T"}),
        "load": ("simulate", {**eight, "rate": "4req/s", "requests": "300"}),
        "tokens": ("cost_tokens", {"model": "gpt-oss-120b", "on": ["h100-sxm:1"]}),
        "device": ("device", {"device": "h100-sxm"}),
        "model": ("model", {"model": "deepseek-v3"}),
        "benchmarks": ("benchmarks", {"model": "llama2-70b", "scenario": "Offline", "round": "v5.1"}),
        "explain": ("explain", {"question": "serve", "inputs": eight, "figure": "tpot", "depth": 1}),
        "explain nothing": ("explain", {"question": "serve", "inputs": eight, "figure": "tpod"}),
        "compare": ("compare", {"questions": [{"inputs": eight}, {"inputs": {**eight, "on": ["rtx-4090:1"]}}]}),
        "compare one": ("compare", {"questions": [{"inputs": eight}]}),
        "whole explanation": ("explain", {"question": "serve", "inputs": eight, "figure": "", "depth": 8}),
        "unknown input": ("plan_serving", {**eight, "tpod": "20ms"}),
        "number": ("plan_serving", {**eight, "concurrency": 64}),
        "one machine": ("plan_serving", {**eight, "on": "h100-sxm:1"}),
        "no model": ("plan_serving", {"on": ["h100-sxm:1"]}),
        "text": ("model", {"model": json.dumps(LLAMA)}),
        "broken text": ("model", {"model": json.dumps(LLAMA)[:-1]}),
        "deep text": ("model", {"model": '{"a":' * 60 + "1" + "}" * 60}),
        "deepest text": ("model", {"model": '{"a":' * 100_000}),
        "deep": ("model", {"model": json.loads('{"a":' * 60 + "1" + "}" * 60)}),
        "explain odd": ("explain", {"question": "claims", "inputs": {}}),
        "compare odd": ("compare", {"questions": [{"inputs": "x"}, {"inputs": eight}]}),
        "compare none": (
            "compare",
            {"questions": [{"inputs": eight}, {"inputs": {**eight, "model": "llama-3.1-405b"}}]},
        ),
        "measure file": (
            "measure_endpoint",
            {"url": "http://127.0.0.1:9", "model": "/etc/passwd", "on": ["h100-sxm:1"]},
        ),
        "measure odd": ("measure_endpoint", {"url": "http://[::1"}),
        "compare others": ("compare", {"questions": [{"question": "claims"}, {"question": "claims"}]}),
        "compare bad": ("compare", {"questions": [{"inputs": eight}, {"inputs": {"model": "nosuch"}}]}),
        "measure": ("measure_endpoint", {"url": "http://example.com/v1"}),
        "measure here": (
            "measure_endpoint",
            {"url": "http://127.0.0.1:9/v1", "model": "m", "requests": "1", "clients": "1"},
        ),
    }
    told, progress = {}, {}

    async def converse():
        server = agents(Pool(2, 120.0, 8, "roofplan.workers.answers"), frozenset({"127.0.0.1"}))
        async with Client(server) as client:
            told["tools"] = (await client.list_tools()).tools
            for name, (tool, arguments) in calls.items():
                heard = progress.setdefault(name, [])

                async def hear(done, whole, _, heard=heard):
                    heard.append((done, whole))

                told[name] = await client.call_tool(tool, arguments, progress_callback=hear)
            for resource in ("models", "devices", "schema/serve", "schema/cost-tokens", "schema/nosuch"):
                told[resource] = (await client.read_resource(f"roofplan://{resource}")).contents[0].text

    asyncio.run(converse())
    return {
        name: one if isinstance(one, (list, str)) else one.structured_content for name, one in told.items()
    }, progress


@pytest.fixture
def told(conversation):
    return conversation[0]


def test_every_tool_is_there_and_says_what_its_inputs_mean(told):
    names = {one.name for one in told["tools"]}
    assert names == {
        "plan_serving",
        "plan_training",
        "simulate",
        "cost_tokens",
        "device",
        "model",
        "explain",
        "compare",
        "benchmarks",
        "measure_endpoint",
    }
    serving = next(one for one in told["tools"] if one.name == "plan_serving").input_schema
    assert set(serving["properties"]) == set(EVERY["serve"].record.each())
    assert serving["required"] == ["model"]
    assert all(one.get("description") for one in serving["properties"].values())
    for one in told["tools"]:
        assert one.description
        assert one.output_schema["properties"].keys() == {"status", "answer", "left_off", "command"}


@pytest.mark.parametrize(
    "name", ["plan", "wide plan", "train", "load", "tokens", "device", "model", "benchmarks", "explain", "compare"]
)
def test_answers_are_short_enough_to_read(told, name):
    assert told[name]["status"] == "ok"
    assert len(json.dumps(told[name])) < LARGEST


def test_a_plan_is_that_of_the_command(told, run_json):
    _, document = run_json("serve", "llama-3.1-8b", "--on", "h100-sxm:1", "--tpot", "50ms")
    plan, same = told["plan"]["answer"]["plans"][0], document["plans"][0]
    assert plan["id"] == same["id"]
    for name, metric in same["metrics"].items():
        for part in ("value", "low", "high"):
            assert plan["metrics"][name][part] == pytest.approx(metric[part], rel=1e-3)
        assert plan["metrics"][name]["grade"] == metric["grade"]
    assert told["plan"]["command"] == "roofplan serve llama-3.1-8b --on h100-sxm:1 --tpot 50ms"


def test_refusals_are_data_with_the_remedy(told):
    assert told["unknown"]["status"] == "error"
    assert "llama-3.1-8b" in told["unknown"]["answer"]["error"]["nearest"]
    assert told["none"]["status"] == "no_plan"
    assert {"--on", "--precision"} <= {one["argument"] for one in told["none"]["answer"]["no_plan"]["relax"]}
    assert told["path"]["status"] == "error"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("unknown input", "tpot"),
        ("no model", "MODEL is missing"),
        ("deep", "nested deeper"),
        ("deep text", "nested deeper"),
        ("broken text", "no JSON"),
        ("deepest text", "no JSON"),
        ("explain odd", "none of"),
        ("compare odd", "give an object"),
        ("measure file", "config"),
        ("measure odd", "url"),
    ],
)
def test_odd_arguments_are_errors_that_say_why(told, name, said):
    assert told[name]["status"] == "error"
    assert said.lower() in json.dumps(told[name]).lower()


def test_a_configuration_may_be_given_as_its_text(told):
    assert told["text"]["status"] == "ok"
    assert told["text"]["answer"]["parameters"]["total"] > 0


def test_numbers_and_single_machines_are_taken(told):
    assert told["number"]["answer"]["plans"][0]["concurrency"] == 64
    assert told["one machine"]["status"] == "ok"


def test_a_long_explanation_loses_levels(told):
    assert told["whole explanation"]["status"] == "ok"
    assert told["whole explanation"]["answer"]["depth"] < 8
    assert len(json.dumps(told["whole explanation"])) < LARGEST


def test_a_plan_beside_none_says_so(told):
    assert told["compare none"]["status"] == "no_plan"
    assert told["compare none"]["answer"]["plans"][0]["asked"].startswith("roofplan serve llama-3.1-8b")
    assert told["compare none"]["answer"]["plans"][1]["why"]["relax"]


def test_long_questions_report_progress(conversation):
    heard = conversation[1]["wide plan"]
    assert heard
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)


def test_a_figure_is_explained_with_its_formula_and_sources(told):
    (figure,) = told["explain"]["answer"]["figures"]
    assert "tpot" in figure["name"].lower()
    assert figure["parts"]
    assert all("parts" not in one for one in figure["parts"])
    assert any(one.get("parts_left_off") or one.get("sources") for one in figure["parts"])
    assert "TPOT" in told["explain nothing"]["answer"]["error"]["nearest"]


def test_plans_are_compared_figure_by_figure(told):
    rows = told["compare"]["answer"]["figures"]
    assert len(rows["tpot"]) == 2
    assert rows["output_tokens_per_second"][0]["value"] > rows["output_tokens_per_second"][1]["value"]
    assert told["compare one"]["status"] == "error"
    assert told["compare others"]["status"] == "error"
    assert told["compare bad"]["status"] == "error"
    assert told["compare bad"]["answer"]["plans"][1]["why"]["code"] == "unknown_model"


def test_endpoints_are_measured_only_where_that_was_allowed(told):
    assert "--allow example.com" in told["measure"]["answer"]["error"]["message"]
    assert told["measure here"]["status"] == "error"
    assert "--allow" not in json.dumps(told["measure here"])


def test_the_catalogue_and_the_schemas_are_resources(told):
    assert "llama-3.1-8b" in told["models"]
    assert "h100-sxm" in told["devices"]
    assert json.loads(told["schema/serve"])["properties"]["command"]["const"] == "serve"
    assert json.loads(told["schema/nosuch"])["status"] == "error"
    assert json.loads(told["schema/cost-tokens"])["properties"]["command"]["const"] == "cost tokens"


def test_over_pipes():
    async def call():
        here = StdioServerParameters(
            command=sys.executable, args=["-m", "roofplan", "mcp", "--workers", "1"], env=dict(os.environ)
        )
        async with Client(stdio_client(here)) as client:
            return (await client.call_tool("model", {"model": "llama-3.1-8b"})).structured_content

    assert asyncio.run(call())["answer"]["parameters"]["total"] == 8_030_261_248


def test_over_http():
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    words = [sys.executable, "-m", "roofplan", "mcp", "--http", "--port", str(port), "--workers", "1"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        assert f"127.0.0.1:{port}/mcp" in process.stderr.readline()

        async def call():
            for _ in range(100):
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                except OSError:
                    await asyncio.sleep(0.1)
            async with Client(f"http://127.0.0.1:{port}/mcp") as client:
                return (await client.call_tool("device", {"device": "h100-sxm"})).structured_content

        assert asyncio.run(call())["answer"]["device"]["id"] == "h100-sxm"
    finally:
        process.terminate()
        process.wait(20)
        process.stderr.close()


def test_numbers_keep_four_digits():
    assert rounded(123456.0) == 123500.0
    assert rounded(-0.000123456) == -0.0001235
    assert rounded(0.0) == 0.0


def test_long_lists_are_cut_and_counted():
    short, left_off = cut({"status": "ok", "rows": [{"x": 1.23456, "sources": ["a"]}] * 30, "none": None})
    assert short == {"status": "ok", "rows": [{"x": 1.235}] * 12}
    assert left_off == {"rows": 30}


def test_branches_are_cut_and_counted():
    tree = {"name": "a", "value": 1.0, "parts": [{"name": "b", "value": 2.0, "parts": [{"name": "c", "value": 3.0}]}]}
    assert pruned(tree, 1) == {"name": "a", "value": 1.0, "parts": [{"name": "b", "value": 2.0, "parts_left_off": 1}]}


def test_a_tree_that_is_too_long_is_shown_less_deep(monkeypatch):
    from roofplan.agents import tools

    tree = {"name": "step", "value": 1.0, "parts": [{"name": "weights", "value": 1.0, "parts": []}]}
    assert tools._explained([tree], 3, "roofplan serve")["answer"]["depth"] == 3
    monkeypatch.setattr(tools, "LARGEST_EXPLANATION", 0)
    assert tools._explained([tree], 3, "roofplan serve")["answer"]["depth"] == 0
