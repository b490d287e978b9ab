"""The command line: exit codes, one JSON document in every case, clear refusals without a traceback."""

import csv
import io
import json
import os
import re
import subprocess
import sys
import time

import pytest
from conftest import FIT

import roofplan as rp
from roofplan import catalogue
from roofplan.catalogue.machines import machine
from roofplan.catalogue.spellings import named
from roofplan.cli import main as printed_main
from roofplan.cli import printed
from roofplan.cli.words import spelled
from roofplan.hf.find import read_model
from roofplan.present.answers.schemas import COMMANDS, answer_schema
from roofplan.records.training import Job
from roofplan.training import search as search_layouts

BAD = [
    (["serve", "llama-3.1-70b", "--on", "rtx4090x:4"], "unknown_device"),
    (["serve", "llama-3.1-7b", "--on", "h100-sxm:8"], "unknown_model"),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:0"], "at least one device"),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--tpot", "50"], "needs a unit"),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--tpot", "-1ms"], "greater than zero"),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--tpot", "nan ms"], "not a finite"),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--input", "0"], "greater than zero"),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--output", "1.5"], "whole number"),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--context", "1m"], "131,072 positions"),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--context", "512"], "shorter than"),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--strategy", "tp=3"], "does not divide"),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--strategy", "xp=3"], "Accepted: tp, pp"),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--precision", "int4"], "awq, gptq"),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--precision", "fp9"], "no format"),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--best", "beauty"], "is not known. Accepted: cost"),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--engine", "vlm"], "no engine"),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--price", "cheap"], "neither rent"),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--prefix-hit", "1.5"], "between 0 and 1"),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--draft", "2"], "--draft"),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--concurrency", "0"], "greater than zero"),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8@wifi"], "no network"),
    (["serve", "llama-3.1-70b", "--on", "a100-sxm-80:8+h100-sxm:8"], "mixed devices"),
    (["serve", "./nowhere.json", "--on", "h100-sxm:8"], "no file"),
    (["serve", "bert-base", "--on", "h100-sxm:1"], "encoder"),
    (
        ["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--strategy", "tp2 dp2 fp8"],
        "fp8 is a number format: --precision fp8",
    ),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--set", "max_num_seqs=0"], "a whole number of at least 1"),
    (
        ["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--set", "max_num_seqs=9 block_size=16"],
        "separate settings by commas",
    ),
    (["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--csv", "-"], "--csv: give the file to write"),
    (
        ["serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--csv", "a", "--html", "a"],
        "--csv and --html: a cannot hold both",
    ),
    (["cost", "chip", "h100-sxm", "--dies", "3"], "--dies describes a chip of your own"),
    (["serve"], "MODEL is missing"),
    (["serve", "llama-3.1-70b", "--onn", "h100-sxm:8"], "--onn"),
    (["srve", "llama-3.1-70b"], "no command"),
    (["device", "h1000"], "unknown_device"),
    (["device", "h100-sxm", "--what-is", "1979"], "needs a unit"),
    (["model", "no-such-model"], "unknown_model"),
    (["model", "llama-3.1-70b", "--context", "-5"], "greater than zero"),
    (["train"], "MODEL is missing"),
    (["schema", "poetry"], "no schema"),
]


@pytest.mark.parametrize(("words", "said"), BAD, ids=[" ".join(w[-2:]) for w, _ in BAD])
def test_bad_input_is_one_line_and_exit_2(run, words, said):
    code, out, err = run(*words)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    if "_" not in said:
        assert said in err


JSON_BAD = [item for item in BAD if item[0][0] in {"serve", "device", "model", "train", "srve"}]


@pytest.mark.parametrize(("words", "said"), JSON_BAD, ids=[" ".join(w[-2:]) for w, _ in JSON_BAD])
def test_bad_input_is_one_document_with_json(run_json, words, said):
    code, document = run_json(*words)
    assert code == 2
    assert document["status"] == "error"
    assert set(document["error"]) == {"code", "argument", "value", "nearest", "message"}
    assert said in document["error"]["message"] or said == document["error"]["code"]


@pytest.mark.slow
def test_no_plan_is_exit_1_with_ways_out(run, run_json):
    code, out, err = run("serve", "llama-3.1-70b", "--on", "rtx-4090:4")
    assert (code, err) == (1, "")
    assert out.startswith("no plan: memory.")
    assert "--precision" in out
    code, document = run_json("serve", "llama-3.1-70b", "--on", "rtx-4090:4")
    assert code == 1
    assert document["status"] == "no_plan"
    assert document["no_plan"]["binding"] == "memory"
    assert all({"argument", "now", "needed"} <= set(item) for item in document["no_plan"]["relax"])


SERVES = [
    ["llama-3.1-70b", "--on", "h100-sxm:8"],
    ["deepseek-v3", "--on", "h200-sxm:8", "--explain"],
    ["gpt-oss-120b", "--on", "mi300x:1"],
    ["llama-3.1-70b", "--on", "rtx-4090:4"],
    ["llama-3.1-70b", "--on", "h100-sxm:8", "--input", "0"],
]


@pytest.mark.parametrize("words", SERVES, ids=lambda w: " ".join(w[:3]))
def test_answers_follow_the_published_schema(conforms, run_json, words):
    """Checked by the schema's own keywords: required members, types, constants and enumerations."""
    _, document = run_json("serve", *words)
    conforms(document, answer_schema("serve"))


@pytest.mark.parametrize(
    "words",
    [
        ("model", "deepseek-v3"),
        ("model", "whisper-large-v3"),
        ("device", "dgx-h100"),
        ("device", "h100-sxm", "--what-is", "1979TFLOPS"),
        ("claims",),
        ("calibrate",),
        ("models", "--families"),
        ("prices", "a100"),
        ("cost", "rent", "nothing"),
        ("train", "llama-3.1-405b", "--on", "h100-sxm:8"),
        ("cost", "tokens", "llama-3.1-405b", "--on", "rtx-4090:1"),
    ],
    ids=" ".join,
)
def test_every_document_keeps_to_its_schema(conforms, run_json, words):
    """Whether there is an answer, no plan or an error: nothing is missing, of another type, or not declared."""
    _, document = run_json(*words)
    schema = answer_schema(document["command"])
    conforms(document, schema)
    assert set(document) <= set(schema["properties"])


@pytest.mark.parametrize("command", COMMANDS)
def test_schemas_are_published(run, command):
    code, out, _ = run("schema", command)
    assert code == 0
    assert json.loads(out)["type"] == "object"


@pytest.mark.slow
def test_exactly_one_of_plan_no_plan_error(run_json):
    for words in SERVES:
        _, document = run_json("serve", *words)
        assert sum(key in document and document[key] is not None for key in ("plans", "no_plan", "error")) == 1
        assert ("explain" in (document.get("plans") or [{}])[0]) == ("--explain" in words)


@pytest.mark.slow
def test_a_request_is_read_back_and_answers_the_same(run_json, tmp_path):
    _, first = run_json("serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--tpot", "40ms", "--output", "512")
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(first))
    _, second = run_json("serve", "--request", str(file))
    assert second["inputs"] == first["inputs"]
    assert second["plans"] == first["plans"]


@pytest.mark.slow
def test_reproduce_judges_the_same_plan(run_json):
    import shlex

    _, first = run_json("serve", "deepseek-v3", "--on", "h100-sxm:16@ib-ndrx8")
    plan = first["plans"][0]
    _, again = run_json(*shlex.split(plan["reproduce"])[1:])
    assert again["plans"][0]["metrics"]["tpot"] == plan["metrics"]["tpot"]


def test_model_json(run_json):
    code, document = run_json("model", "deepseek-v3", "--context", "8192")
    assert code == 0
    assert document["parameters"] == {
        "total": 671026404352,
        "active": 37552282624,
        "embedding": 926679040,
        "head": 926679040,
    }
    assert document["cache"]["bytes_per_token"] == 70272
    assert document["cache"]["bytes"] == 70272 * 8192
    assert document["cache"]["state_bytes"] == 0


@pytest.mark.slow
def test_model_from_stdin(llama):
    text = json.dumps(llama)
    out = subprocess.run(
        [sys.executable, "-m", "roofplan", "model", "-", "--json"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(out.stdout)["parameters"]["total"] > 0


def test_csv_and_emit(run, tmp_path):
    file = tmp_path / "plans.csv"
    code, _, _ = run("serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--csv", str(file))
    assert code == 0
    with file.open() as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) >= 5
    assert {"tpot", "tpot_low", "tpot_high", "tp", "pp"} <= set(rows[0])
    for name, word in (
        ("vllm", "vllm serve"),
        ("sglang", "sglang"),
        ("trtllm", "trtllm-serve"),
        ("llamacpp", "llama-server"),
    ):
        code, out, _ = run("serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--emit", name)
        assert code == 0
        assert word in out
        assert out.count("\n") == 1
    assert (
        run("serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--csv", str(tmp_path / "no" / "such" / "folder.csv"))[0]
        == 2
    )


def test_what_is(run):
    code, out, _ = run("device", "rtx-4090", "--what-is", "330TFLOPS")
    assert code == 0
    assert "FP16 accumulation" in out
    assert run("device", "rtx-4090", "--what-is", "7TFLOPS")[0] == 1


@pytest.mark.parametrize("command", ["devices", "models", "engines", "networks", "prices"])
def test_lists(run, run_json, command):
    code, out, _ = run(command)
    assert code == 0
    assert len(out.splitlines()) > 5
    code, document = run_json(command, "zzzz")
    assert code == 1
    assert document["items"] == []


@pytest.mark.slow
def test_the_screen_is_one_hundred_columns_wide(run):
    for words in (
        ["llama-3.1-70b", "--on", "h100-sxm:8"],
        ["deepseek-v3", "--on", "h100-sxm:16"],
        ["llama-3.1-70b", "--on", "h100-sxm:8", "--explain"],
    ):
        _, out, _ = run("serve", *words)
        long = [line for line in out.splitlines() if len(line) > 104]
        assert not long, long


@pytest.mark.slow
def test_plain_glyphs_without_utf8():
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}
    out = subprocess.run(
        [sys.executable, "-m", "roofplan", "serve", "llama-3.1-70b", "--on", "h100-sxm:8"],
        capture_output=True,
        env=env,
        check=True,
    )
    assert out.stdout.isascii()
    assert b"=" in out.stdout


@pytest.mark.slow
def test_a_closed_pipe_is_silent():
    command = f"{sys.executable} -m roofplan prices | head -1"
    out = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert out.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("target", [">&-", "> /dev/full"])
def test_an_answer_that_cannot_be_written_is_one_line_and_exit_2(target):
    found = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m roofplan devices {target}"], capture_output=True, text=True, check=False
    )
    assert found.returncode == 2
    assert found.stderr.startswith("error: ")
    assert found.stderr.count("\n") == 1


@pytest.mark.slow
def test_closed_stdin_is_bad_input():
    found = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m roofplan serve - <&-"], capture_output=True, text=True, check=False
    )
    assert found.returncode == 2
    assert "standard input is closed" in found.stderr


def test_our_own_fault_is_exit_3(run, monkeypatch):
    import roofplan.serving.run

    monkeypatch.setattr(roofplan.serving.run, "evaluate", lambda *_: 1 / 0)
    code, out, err = run("serve", "llama-3.1-70b", "--on", "h100-sxm:8")
    assert (code, out) == (3, "")
    assert "internal error: ZeroDivisionError" in err


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (KeyboardInterrupt(), 130, ""),
        (OSError(28, "No space left on device"), 2, "cannot write the answer: No space left on device"),
        (OSError(28, "No space left on device", "plan.csv"), 3, "internal error: OSError"),
        (SystemExit(4), 4, ""),
    ],
)
def test_faults_end_with_their_code(run, monkeypatch, fault, code, said):
    def broken(*_, **__):
        raise fault

    module = sys.modules["roofplan.cli.app"]
    monkeypatch.setattr(module, "_discard_output", lambda: None)
    monkeypatch.setattr(module, "app", broken)
    ended, _, err = run("devices")
    assert (ended, said in err) == (code, True)


def test_a_pipe_that_nobody_reads_is_no_fault(run, monkeypatch):
    def broken(*_, **__):
        raise BrokenPipeError

    module = sys.modules["roofplan.cli.app"]
    monkeypatch.setattr(module, "_discard_output", lambda: None)
    monkeypatch.setattr(module, "app", broken)
    assert run("devices") == (0, "", "")


def test_our_own_fault_is_a_document_too(run_json, monkeypatch):
    monkeypatch.setattr("roofplan.serving.run.evaluate", lambda *_: 1 / 0)
    code, document = run_json("serve", "llama-3.1-70b", "--on", "h100-sxm:8")
    assert (code, document["error"]["code"]) == (3, "internal")
    monkeypatch.setenv("ROOFPLAN_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        printed_main(["serve", "llama-3.1-70b", "--on", "h100-sxm:8"])


class Screen(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self):
        return True


def test_progress_is_shown_once_a_search_takes_a_second(monkeypatch):
    shown, now = Screen(), [100.0]
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(printed.time, "monotonic", lambda: now[0])
    monkeypatch.setenv("TERM", "xterm")
    with printed._progress(quiet=False, what="layouts") as tick:
        tick(1, 40)
        assert shown.getvalue() == ""
        now[0] += 1.0
        tick(10, 40)
        tick(20, 40)
    assert "layouts" in shown.getvalue()
    assert "20/40" in shown.getvalue()
    assert "20/s" in shown.getvalue()
    with printed._progress(quiet=True, what="layouts") as tick:
        assert tick is None
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with printed._progress(quiet=False, what="layouts") as tick:
        assert tick is None


def test_help_and_version(run):
    assert run("--version")[0] == 0
    code, out, _ = run("--help")
    assert code == 0
    assert "serve" in out
    assert run()[0] == 0


def test_explain_cites_every_number(run):
    _, out, _ = run(
        "serve", "llama-3.1-70b", "--on", "h100-sxm:8", "--strategy", "tp=8", "--concurrency", "1", "--explain"
    )
    assert "[1] " in out
    assert "config.json of llama-3.1-70b, sha256" in out
    assert "fit: matmul.bandwidth" in out


# What a search says of itself --------------------------------------------------------------------


@pytest.mark.slow
def test_a_search_says_how_long_it_took_and_no_more():
    """Every clock is read twice and subtracted: a sum would be longer than the process is old."""
    one, job = machine("h100-sxm:8")[0], Job(sequence=4096, batch=64, optimizer=catalogue.optimizers()["adam"])
    model, framework = rp.load_model("llama-3.1-8b").model, catalogue.framework("megatron-core-0.16")
    found = [
        rp.plan_serving("llama-3.1-8b", "h100-sxm:8").tally,
        rp.plan_training("llama-3.1-8b", "h100-sxm:8").tally,
        search_layouts(model, job, one, framework, FIT).tally,
    ]
    assert all(0.0 <= tally.seconds < time.process_time() for tally in found)


@pytest.mark.slow
def test_sizes_of_one_machine_say_what_each_added_device_gains(run):
    _, one, _ = run("serve", "llama-3.1-8b", "--on", "h100-sxm")
    assert "what each added device gains: 1: " in " ".join(one.split())
    _, two, _ = run("serve", "llama-3.1-8b", "--on", "h100-sxm", "--on", "h200-sxm")
    assert "added device gains" not in " ".join(two.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("length", "heads"),
    [(("--tokens", "100B"), ("days", "     USD")), (("--tokens", "900T"), ("days", "M USD")), ((), ("USD/Mtok",))],
)
def test_machines_of_a_training_run_stand_under_their_heads(run, length, heads):
    machines = [word for name in ("h100-sxm:8", "b200:8") for word in ("--on", name)]
    code, out, _ = run("train", "llama-3.1-8b", *machines, *length)
    assert code == 0
    head, *rows = out[out.index("device:count") :].splitlines()[:3]
    assert all(word in head for word in (*heads, "step s", "MFU %", "price seen"))
    for row in rows:
        assert "-  " not in row.replace("h100-sxm", ""), row  # every figure of these machines is known


def test_no_command_is_a_call_for_help(run):
    code, out, _ = run()
    assert code == 0
    assert "Usage: roofplan" in out
    assert "serve" in out


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (["serve", "-"], ["serve", "stdin:"]),
        (["serve", "x", "-"], ["serve", "x", "-"]),
        (["serve", "x", "--request", "-"], ["serve", "x", "--request", "stdin:"]),
        (["validate", "training", "-"], ["validate", "training", "stdin:"]),
    ],
)
def test_a_lone_dash_is_standard_input_where_a_model_or_a_table_stands(words, read):
    assert spelled(words, words[0]) == read


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ("serve x --isl 1k --osl=100", "serve x --input 1k --output 100"),
        ("serve x --tp 8 --pp=2 --strategy dp=1", "serve x --strategy tp=8,pp=2,dp=1"),
        ("serve x --precision fp8 --json --precision awq --json", "serve x --precision fp8,awq --json"),
        ("serve x --users 5", "serve x --concurrency 5"),
        ("serve x --on h100-sxm --gpus 4", "serve x --on h100-sxm:4"),
        ("serve x --on a@ib --on b:8 --gpus 16", "serve x --on a:16@ib --on b:8"),
        ("serve x --gpus 2", "serve x --devices 2"),
        ("serve x --on h100-sxm:8 --gpus 2", "serve x --on h100-sxm:8 --devices 2"),
        ("train x --tp 8 --cp 2", "train x --strategy tp=8,cp=2"),
        ("serve x --tp", "serve x --strategy"),
        ("serve x --tpot", "serve x --tpot"),
        ("models --json --json", "models --json"),
        ("schema serve", "schema serve"),
    ],
)
def test_other_names_of_flags_and_flags_given_twice(words, read):
    words = words.split()
    assert spelled(words, words[0]) == read.split()


def test_a_flag_with_one_value_is_refused_twice(run):
    code, _, said = run("serve", "llama-3.1-8b", "--tpot", "5ms", "--tpot=6ms")
    assert (code, said) == (2, "error: --tpot is given twice\n")


def test_a_request_may_hold_its_limits_and_workload_apart(run_json, tmp_path):
    file = tmp_path / "request.json"
    nested = {"model": "llama-3.1-8b", "on": ["h100-sxm:1"], "limits": {"tpot": "20ms"}, "workload": {"isl": "2k"}}
    file.write_text(json.dumps(nested))
    code, document = run_json("serve", "--request", str(file))
    assert code == 0
    assert (document["inputs"]["tpot"], document["inputs"]["input"]) == ("20ms", "2048")


def test_an_unknown_hub_name_is_told_how_to_be_read(run):
    _, _, said = run("serve", "Qwen/Qwen9-900B")
    assert "hf:Qwen/Qwen9-900B, or the path of its config.json" in said


def test_a_rate_with_two_points_has_no_unit(run):
    _, _, said = run("serve", "llama-3.1-8b", "--on", "h100-sxm:1", "--tokens-per-second-per-user", "1.2.3")
    assert "1.2.3 has no unit" in said


@pytest.mark.slow
@pytest.mark.parametrize("limit", [("--tpot", "1ms"), ("--ttft", "1ms"), ("--power", "100W")])
def test_a_way_out_can_be_pasted_as_it_is_printed(run, limit):
    words = ("serve", "llama-3.1-8b", "--on", "h100-sxm:1")
    code, out, err = run(*words, *limit)
    assert code != 0
    way = next(line for line in (out + err).splitlines() if line.strip().startswith(limit[0]))
    assert run(*words, *way.split("->")[0].split())[0] == 0


def test_the_limit_that_a_plan_comes_nearest_to_is_named(run):
    _, out, _ = run("serve", "llama-3.1-8b", "--on", "h100-sxm:1", "--tpot", "50ms", "--ttft", "40ms")
    (row,) = [line for line in out.splitlines() if line.startswith(" >")]
    assert row.endswith("limit --ttft")
    assert "limit 40.0 ms" in next(line for line in out.splitlines() if line.startswith("  first token"))


def test_no_line_speaks_of_zero_more_devices(run):
    _, out, _ = run(
        "serve", "llama-3.1-8b", "--on", "h100-sxm:1", "--on", "h200-sxm:1", "--on", "a100-sxm-80:1", "--top", "3"
    )
    assert "more devices that fit" not in out


@pytest.mark.parametrize(
    ("flag", "impossible", "harder"),
    [
        pytest.param("--rate", "900req/s", 1.1, marks=pytest.mark.slow),
        pytest.param("--power", "100W", 0.9, marks=pytest.mark.slow),
        pytest.param("--concurrency", "100000", 1.1, marks=pytest.mark.slow),
        pytest.param("--ttft", "1ms", 0.9, marks=pytest.mark.slow),
        pytest.param("--tokens-per-second-per-user", "5000", 1.1, marks=pytest.mark.slow),
        ("--tpot", "1ms", 0.9),
        pytest.param("--budget", "0.1USD/h", 0.9, marks=pytest.mark.slow),
    ],
)
def test_a_way_out_is_taken_when_pasted_and_a_tenth_less_is_not(run_json, flag, impossible, harder):
    words = ("serve", "llama-3.1-8b", "--on", "h100-sxm:1")
    code, document = run_json(*words, flag, impossible)
    assert code == 1
    way = next(way for way in document["no_plan"]["relax"] if way["argument"] == flag)
    code, document = run_json(*words, flag, way["needed"])
    assert (code, document["plans"][0]["machine"]["text"]) == (0, way["plan"]["machine"])
    number, unit = re.fullmatch(r"([\d.]+)(.*)", way["needed"]).groups()
    less = float(number) * harder
    code, _ = run_json(*words, flag, f"{round(less) if flag == '--concurrency' else less}{unit}")
    assert code == 1


@pytest.mark.slow
def test_twenty_tokens_a_parameter_are_what_chinchilla_means():
    plan = rp.plan_training("llama-3.2-1b", ["h100-sxm:8"], tokens="chinchilla").plans[0]
    assert plan.job.tokens == 20 * plan.model.total


@pytest.mark.parametrize("flag", ["--tp", "--gpus", "--isl"])
def test_another_name_of_a_flag_needs_its_value_too(run, flag):
    code, _, said = run("serve", "llama-3.1-8b", "--on", "h100-sxm", flag, "--datacenter")
    assert (code, said) == (2, f"error: {flag}: a value is missing before --datacenter\n")


def test_files_that_cannot_be_written_are_refused_before_hours_of_measuring(run, monkeypatch):
    from roofplan import observe

    def measured(*_, **__):
        raise AssertionError("measured first")

    monkeypatch.setattr(observe, "measure_machine", measured, raising=False)
    monkeypatch.setattr(observe, "machine", measured, raising=False)
    for flag in ("--csv", "--html", "--out"):
        code, _, err = run("measure", "machine", flag, "/nosuch/here.x")
        assert code == 2
        assert f"{flag}: /nosuch/here.x: No such file or directory" in err


def test_a_command_is_folded_outside_of_its_quotes():
    from roofplan.present.screens.page import WIDTH, folded

    quoted = f"'{'x ' * (WIDTH // 2 - 10)}x' tail {'y ' * 20}"
    first, *rest = folded(quoted, 0, " \\")
    assert first.count("'") % 2 == 0
    assert len(first) <= WIDTH
    assert " ".join("".join([first, *rest]).split()).replace(" \\", "").startswith("'x x")


@pytest.mark.parametrize(("flag", "guess"), [("--outpu", " Did you mean --output?"), ("--wishful", "")])
def test_a_flag_that_nearly_is_another_is_named_beside_it(run, flag, guess):
    _, _, err = run("serve", "llama-3.1-8b", "--on", "h100-sxm:1", flag, "5")
    assert err.strip().startswith(f"error: Unknown option: {flag}.{guess}")
    assert guess or "Did you mean" not in err


def test_a_flag_that_swallowed_the_next_one_needs_a_value(run):
    code, _, err = run("serve", "llama-3.1-8b", "--on", "h100-sxm:1", "--ttft", "--tpot", "5ms")
    assert code == 2
    assert "--ttft needs a value" in err
    code, _, err = run("serve", "llama-3.1-8b", "--datacenter", "--explain", "h100-sxm")
    assert "left over" in err
    code, _, err = run("serve", "llama-3.1-8b", "--on", "h100-sxm:1", "5ms")
    assert code == 2
    assert "'5ms' is left over" in err


@pytest.mark.parametrize(
    "words",
    [
        "serve llama-3.1-8b --on h100-sxm:1",
        "simulate llama-3.1-8b --on h100-sxm:1 --rate 1",
        "train llama-3.1-8b --on h100-sxm:8",
        "pool plan llama-3.1-8b --member rtx-4090@1gbe",
        "pool simulate llama-3.1-8b --member rtx-4090@1gbe",
        "pool prove",
        "measure endpoint http://127.0.0.1:1",
        "measure stability http://127.0.0.1:1",
        "measure machine",
    ],
)
def test_a_table_without_a_name_is_refused_before_anything_is_computed(run, monkeypatch, words):
    def began(*_, **__):
        raise AssertionError("computed first")

    monkeypatch.setattr("roofplan.cli.printed._progress", began)
    code, _, err = run(*words.split(), "--csv", "")
    assert (code, "--csv: give the file to write" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("models", "llama3.1"), "llama-3.1-8b"),
        (("models", "Llama 3.1 70B"), "llama-3.1-70b"),
        (("devices", "RTX 4090 Laptop"), "rtx-4090-laptop"),
        (("devices", "h100_80gb"), "h100-sxm"),
        (("engines", "TRT-LLM"), "tensorrt-llm-1.2"),
    ],
)
def test_lists_are_searched_by_any_spelling_of_any_name(run, words, found):
    code, out, _ = run(*words)
    assert code == 0
    assert any(line.startswith(f"{found} ") for line in out.splitlines())


@pytest.mark.parametrize(
    "name", ["https://huggingface.co/meta-llama/Llama-3.1-8B", "hf.co/meta-llama/Llama-3.1-8B-Instruct", "llama3.1:8b"]
)
def test_a_model_is_found_by_its_address_or_tag(run, name):
    code, out, _ = run("model", name)
    assert code == 0
    assert out.startswith("8,030,261,248 parameters")


@pytest.mark.parametrize(
    ("name", "base", "weights"),
    [
        ("RedHatAI/Llama-3.1-8B-Instruct-FP8-dynamic", "llama-3.1-8b with fp8 weights", 9_084_608_512),
        ("unsloth/Llama-3.1-8B-Instruct", "llama-3.1-8b", 16_060_522_496),
        ("RedHatAI/gemma-4-26B-A4B-it-NVFP4", "gemma-4-26b-a4b-nvfp4", None),
    ],
)
def test_a_checkpoint_of_another_maker_is_planned_as_its_base_and_says_so(run_json, name, base, weights):
    code, document = run_json("serve", name, "--on", "h100-sxm:1", "--input", "512", "--output", "64", "--emit", "vllm")
    assert code == 0
    assert any(one["text"].startswith(f"{name} is planned as {base}:") for one in document["warnings"])
    assert f"vllm serve {name} " in document["emit"]
    if weights:
        assert document["plans"][0]["memory"]["weights"] == weights


@pytest.mark.parametrize(
    ("name", "weights"),
    [("unsloth/gpt-oss-20b-BF16", "bf16"), ("unsloth/DeepSeek-V3-bf16", "bf16"), ("unsloth/DeepSeek-V3", "fp8-block")],
)
def test_a_checkpoint_unpacked_to_16_bits_is_planned_so(name, weights):
    model = read_model(name)
    assert (model.quantization.format if model.quantization else model.dtype) == weights
    assert any(f"planned as {named(name)}" in text for text in model.warnings)


@pytest.mark.parametrize("path", ["configs/nowhere/llama-3.1-8b", "foo/bar/llama-3.1-8b", "./llama-3.1-8b"])
def test_a_path_that_is_not_there_is_no_name(run, path):
    code, _, error = run("model", path)
    assert code == 2
    assert "error: MODEL: no " in error


@pytest.mark.parametrize(
    ("words", "launched"),
    [
        (
            ["https://huggingface.co/RedHatAI/Llama-3.1-8B-Instruct-FP8-dynamic"],
            "RedHatAI/Llama-3.1-8B-Instruct-FP8-dynamic",
        ),
        (["someone/Llama-3.1-8B-Instruct-FP8-dynamic", "--precision", "bf16"], "meta-llama/Llama-3.1-8B"),
    ],
)
def test_the_checkpoint_that_is_planned_is_launched(run_json, words, launched):
    _, document = run_json("serve", *words, "--on", "h100-sxm:1", "--emit", "vllm")
    assert f"vllm serve {launched} " in document["emit"]


def test_32_bits_are_not_the_16_that_a_checkpoint_is_held_in(run_json):
    words = ("serve", "olmo-2-7b", "--on", "h100-sxm:1", "--input", "512", "--output", "64")
    (_, whole), (_, own) = run_json(*words, "--precision", "fp32"), run_json(*words)
    held = [one["plans"][0]["memory"]["weights"] for one in (whole, own)]
    assert held[0] == pytest.approx(2 * held[1], rel=1e-3)


@pytest.mark.parametrize("engine", ["dynamo-sglang", "dynamo-vllm", "tgi", "lmdeploy", "nim", "mlx"])
def test_stand_ins_offer_only_formats_that_there_are(run_json, engine):
    code, document = run_json(
        "serve", "llama-3.1-8b", "--on", "h100-sxm:1", "--engine", engine, "--precision", "q4_k_m"
    )
    assert code in {0, 1, 2}
    ways = (document.get("no_plan") or {}).get("relax", [])
    assert {way["needed"] for way in ways if way["argument"] == "--precision"} <= set(catalogue.formats())


@pytest.mark.parametrize("name", ["unsloth/gemma-3-27b-it-GGUF", "bartowski/gemma-3-27b-it-MLX"])
def test_a_name_whose_format_is_unknown_is_answered_with_the_nearest(run, name):
    code, _, error = run("model", name)
    assert code == 2
    assert "Nearest: gemma-3-27b" in error


def test_a_file_that_may_hold_any_format_says_how_to_name_one(run):
    _, _, error = run("model", "unsloth/gemma-3-27b-it-GGUF")
    assert "write gemma-3-27b --precision q4_k_m" in error


@pytest.mark.parametrize(
    ("model", "on", "precision"),
    [
        ("llama-3.1-8b", "h100-sxm:1", "bf16"),
        ("gpt-oss-120b", "h100-sxm:2", "mxfp4"),
        ("deepseek-r1", "h200-sxm:8", "fp8"),
    ],
)
def test_the_published_format_is_no_change(run_json, model, on, precision):
    words = ("serve", model, "--on", on, "--input", "512", "--output", "64")
    (_, plain), (_, named) = run_json(*words), run_json(*words, "--precision", precision)
    for member in ("metrics", "precision", "memory"):
        assert named["plans"][0][member] == plain["plans"][0][member]
    assert not named["plans"][0]["precision"]["changes_model"]


def test_another_format_changes_the_model(run_json):
    _, document = run_json("serve", "deepseek-r1", "--on", "h200-sxm:8", "--precision", "awq")
    assert document["plans"][0]["precision"]["changes_model"]


def test_devices_that_newest_engines_left_are_planned_under_earlier_ones(run_json):
    _, document = run_json("serve", "llama-3.1-8b", "--on", "trainium2:16")
    assert document["plans"][0]["engine"].startswith("vllm-0.")
    assert document["plans"][0]["engine"] != "vllm-0.33"


@pytest.mark.parametrize(("output", "warned"), [("1", True), ("4096", False)])
def test_more_requests_than_a_front_end_reads_are_warned_of(run_json, output, warned):
    _, document = run_json("serve", "qwen3-0.6b", "--on", "h100-sxm:8", "--input", "64", "--output", output)
    assert any(one["code"] == "front_end" for one in document["warnings"]) is warned


def test_simulate_says_that_the_front_end_binds(run):
    load = ("--input", "16", "--output", "2", "--requests", "2000", "--strategy", "dp=8")
    _, out, _ = run("simulate", "qwen3-0.6b", "--on", "h100-sxm:8", *load, "--rate", "4000req/s")
    assert "the front end binds: it takes" in out
    _, out, _ = run("simulate", "qwen3-0.6b", "--on", "h100-sxm:8", *load, "--rate", "10req/s")
    assert "front end binds" not in out


def test_a_small_share_of_memory_is_offered_back(run_json):
    words = ("serve", "llama-3.1-8b", "--on", "h100-sxm:1", "--set")
    _, document = run_json(*words, "gpu_memory_utilization=0.1,max_num_seqs=8")
    ways = document["no_plan"]["relax"]
    assert ways[0]["argument"] == "--set"
    assert ways[0]["needed"] == "gpu_memory_utilization=0.92,max_num_seqs=8"
    code, _ = run_json(*words, ways[0]["needed"])
    assert code == 0


@pytest.mark.parametrize("kv", ["awq", "q2_k"])
def test_formats_that_no_engine_keeps_caches_in_are_refused(run, kv):
    code, _, error = run("serve", "llama-3.1-8b", "--on", "h100-sxm:1", "--kv-precision", kv)
    assert code == 2
    assert "Accepted: any, " in error
    assert "fp8" in error
    assert "tq1_0" not in error


def test_software_offers_the_formats_that_it_reads(run_json):
    _, document = run_json(
        "serve", "llama-3.1-8b", "--on", "apple-m4-max:1", "--engine", "mlx", "--precision", "q4_k_m"
    )
    assert "mlx-4bit" in {way["needed"] for way in document["no_plan"]["relax"]}


def test_a_device_without_engines_says_so_once(run):
    _, out, _ = run("serve", "llama-3.1-8b", "--on", "groq-lpu", "--precision", "q4_k_m,fp8,bf16")
    assert out.count("no engine of the catalogue") == 1


def test_the_label_of_a_single_device_can_be_pasted_back(run):
    code, out, _ = run("serve", "llama-3.1-8b", "--on", "NVIDIA H100 80GB HBM3:1", "--strategy", "one device")
    assert code == 0
    assert "one device" in out


def test_shares_of_settings_may_be_percentages(run):
    words = ("serve", "llama-3.1-8b", "--on", "h100-sxm:1", "--set")
    (_, whole, _), (_, share, _) = run(*words, "gpu_memory_utilization=80%"), run(*words, "gpu_memory_utilization=0.8")
    assert whole.splitlines()[6:9] == share.splitlines()[6:9]
