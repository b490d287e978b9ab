"""Answers that can be asked again: requests, reproduce lines, and streams that are closed or full."""

import json
import shlex
import subprocess
import sys

import pytest


def shell(line):
    return subprocess.run(
        ["bash", "-c", line.replace("roofplan", f"{sys.executable} -m roofplan")],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def answer(run_json, tmp_path):
    """Return the file of an answer for a 70B model."""
    _, document = run_json("serve", "llama-3.1-70b", "--on", "h100-sxm:8")
    file = tmp_path / "r.json"
    file.write_text(json.dumps(document))
    return str(file)


@pytest.mark.slow
def test_flags_beside_a_request_override_it(run_json, answer):
    _, document = run_json("serve", "--request", answer, "--tpot", "30ms")
    assert document["inputs"]["tpot"] == "30ms"
    assert document["inputs"]["model"] == "llama-3.1-70b"
    assert document["plans"][0]["metrics"]["tpot"]["value"] <= 0.03
    _, document = run_json("serve", "llama-3.1-8b", "--request", answer, "--on", "h100-sxm:1")
    assert (document["model"]["id"], document["plans"][0]["machine"]["count"]) == ("llama-3.1-8b", 1)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"inputs": {"on": [5]}}', '{"inputs": {"model": 7}}', '{"inputs": {"x": 1}}']
)
def test_odd_requests_are_refused_in_one_line(run, tmp_path, text):
    file = tmp_path / "r.json"
    file.write_text(text)
    code, out, err = run("serve", "--request", str(file))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--request" in err


def test_an_answer_of_another_command_is_refused_with_the_command_that_reads_it(run, answer):
    code, out, err = run("simulate", "--request", answer)
    assert (code, out) == (2, "")
    assert f"roofplan serve --request {answer}" in err


REPRODUCED = [
    pytest.param(["gpt-oss-120b", "--on", "gb200-nvl72", "--best", "energy"], marks=pytest.mark.slow),
    ["llama-3.1-8b", "--on", "l40s:4", "--rate", "0.1req/s"],
    ["llama-3.1-405b", "--on", "dgx-h100:2", "--strategy", "tp=16"],
    ["llama-3.1-8b", "--on", "h100-sxm:1", "--kv-precision", "fp8", "--price", "2.50USD/h"],
]


@pytest.mark.parametrize("words", REPRODUCED, ids=lambda w: " ".join(w[:3]))
def test_reproduce_gives_the_same_figures(run_json, words):
    _, first = run_json("serve", *words)
    plan = first["plans"][0]
    _, again = run_json(*shlex.split(plan["reproduce"])[1:])
    for name, metric in plan["metrics"].items():
        assert again["plans"][0]["metrics"][name]["value"] == pytest.approx(metric["value"], rel=1e-9), name


def test_reproduce_names_an_own_device_by_its_file(run_json, tmp_path):
    file = tmp_path / "my chip.toml"
    file.write_text(
        'id = "mychip"\nmemory_capacity = "96 GiB"\nmemory_bandwidth = "4 TB/s"\n[peak]\nbf16 = "500 TFLOPS"\n'
    )
    _, first = run_json("serve", "llama-3.1-8b", "--on", f"{file}:1")
    code, again = run_json(*shlex.split(first["plans"][0]["reproduce"])[1:])
    assert code == 0
    assert again["plans"][0]["metrics"]["tpot"] == first["plans"][0]["metrics"]["tpot"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("roofplan serve --request - <&-", 2),
        *(
            pytest.param(line, code, marks=pytest.mark.slow)
            for line, code in (
                ("roofplan serve llama-3.1-8b --on t4:1 >/dev/null 2>&-", 1),
                ("roofplan serve nosuch --on h100:1 2>&-", 2),
                ("roofplan serve nosuch --on h100:1 2>/dev/full", 2),
                ("roofplan serve llama-3.1-8b --on h100:1 >/dev/null 2>&-", 0),
                ("roofplan serve --request - </dev/null", 2),
            )
        ),
    ],
)
def test_closed_and_full_streams_keep_the_exit_code(line, code):
    assert shell(line).returncode == code


@pytest.mark.slow
def test_no_plan_says_what_was_searched(run_json):
    code, document = run_json("serve", "llama-3.1-70b", "--on", "rtx-4090:4")
    assert code == 1
    assert document["search"]["enumerated"] > 0


def test_a_server_is_shown_like_a_device(run, run_json):
    code, out, _ = run("device", "dgx-h100")
    assert code == 0
    assert "8 x h100-sxm" in out
    _, document = run_json("device", "dgx-h100")
    assert document["server"]["quantities"]["host_power"]["source"]


@pytest.mark.slow
def test_what_stands_behind_a_limit_is_relaxed_with_it(run_json):
    code, document = run_json("serve", "llama-3.1-405b", "--on", "rtx-4090:8", "--devices", "4")
    assert code == 1
    assert document["no_plan"]["binding"] == "devices"
    for way in document["no_plan"]["relax"]:
        flags = {way["argument"]: way["needed"], **way["also"]}
        assert (
            int(flags["--devices"]) == int(flags["--on"].partition(":")[2].replace("x1", "")) or "--precision" in flags
        )
