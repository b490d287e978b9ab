"""Inputs are declared once: flags, requests, Python's signatures and schemas are made from the same records."""

import inspect
import json
import warnings

import pytest
from conftest import keeps_to

import roofplan as rp
from roofplan.api import token_costs
from roofplan.cli import app
from roofplan.errors import InputError
from roofplan.inputs import RECORDS, Load, ServeInputs, TokensInputs, TrainInputs
from roofplan.present.answers.schemas import answer_schema as schema
from roofplan.records.workload import Workload
from roofplan.serving.tokens import demands_of


@pytest.mark.parametrize("command", RECORDS)
def test_every_input_is_a_flag_and_in_the_schema(run, command):
    _, shown, _ = run(*command.split(), "--help")
    _, text, _ = run("schema", command)
    inputs = json.loads(text)["$defs"][RECORDS[command].__name__]["properties"]
    for name, one in RECORDS[command].each().items():
        flag = name.upper() if one.metadata["positional"] else f"--{name.replace('_', '-')}"
        assert flag in shown
        assert inputs[name]["description"] == one.metadata["help"]
    assert set(inputs) == set(RECORDS[command].each())


@pytest.mark.parametrize(
    ("function", "record"),
    [(rp.plan_serving, ServeInputs), (rp.plan_training, TrainInputs), (token_costs, TokensInputs)],
)
def test_python_takes_what_the_command_line_takes(function, record):
    shown = inspect.signature(function).parameters
    assert set(record.each()) < set(shown)
    assert all(shown[name].default == one.default for name, one in record.each().items())
    with pytest.raises(InputError, match="unknown input 'bacth'"):
        function("llama-3.1-8b", "h100-sxm:1", bacth="512seq")


def test_a_record_answers_as_its_keywords_do():
    asked = ServeInputs(model="llama-3.1-8b", on=("h100-sxm:1",), tpot="30ms")
    one, other = rp.plan_serving(asked), rp.plan_serving("llama-3.1-8b", "h100-sxm:1", tpot="30ms")
    assert one.plans[0].metrics == other.plans[0].metrics


def test_an_old_name_warns():
    with pytest.warns(DeprecationWarning, match="draft_tokens is called draft now"), pytest.raises(InputError):
        rp.plan_serving("llama-3.1-8b", "h100-sxm:1", draft_tokens="1:0.8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ServeInputs.of({"model": "llama-3.1-8b", "draft": "1:0.8"})


@pytest.mark.slow
def test_a_flag_that_is_stated_counts_before_an_earlier_answer_even_at_its_default(run_json, tmp_path):
    _, first = run_json("serve", "llama-3.1-8b", "--on", "h100-sxm:1", "--best", "latency", "--top", "1")
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(first))
    _, again = run_json("serve", "--request", str(file))
    assert again["inputs"]["best"] == "latency"
    _, other = run_json("serve", "--request", str(file), "--best", "cost")
    assert other["inputs"]["best"] == "cost"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["serve", "--json"], "serve"),
        (["cost", "chip", "h100-sxm", "--nope", "--json"], "cost chip"),
        (["cost", "tokens", "--json"], "cost tokens"),
        (["devices", "--nope", "--json"], "devices"),
    ],
)
def test_an_error_obeys_the_schema_of_its_command(run_json, words, name):
    code, document = run_json(*words)
    assert (code, document["command"]) == (2, name)
    keeps_to(document, schema(name))


@pytest.mark.parametrize("words", [["model"], ["device"], ["validate"], ["validate", "training"], ["cost", "rent"]])
def test_what_is_missing_is_named_with_an_example(run, words):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert " is missing. Example: roofplan " in err
    example = err.partition("Example: ")[2].split()
    assert example[: len(words)] == ["roofplan", *words][: len(words)]


def test_inputs_that_commands_share_are_declared_once():
    for name, one in Load.each().items():
        assert ServeInputs.each()[name].metadata is one.metadata
        assert name == "price" or TokensInputs.each()[name].metadata is one.metadata  # of tokens several may be asked


def test_commands_are_those_with_inputs():
    groups = {name for name in app if not name.startswith("-")} - {"cost", "measure", "pool", "schema", "web", "mcp"}
    assert groups == {name for name in RECORDS if " " not in name}


RECORD = ServeInputs(model="llama-3.1-8b", on="h100-sxm:1")


@pytest.mark.parametrize(
    ("given", "named", "said"),
    [
        ((RECORD,), {"tpot": "1ms"}, "a record of inputs stands alone"),
        ((RECORD, ["h200-sxm:8"]), {}, "a record of inputs stands alone"),
        ((TrainInputs(model="llama-3.1-8b"),), {}, "takes ServeInputs, not TrainInputs"),
        (("llama-3.1-8b", ["h100-sxm:1"], "50ms"), {}, "model and on alone stand by their place"),
        (("llama-3.1-8b",), {"model": "llama-3.1-70b"}, "each once"),
        ((), {}, "model is missing"),
        (("llama-3.1-8b",), {"on": 8}, "expected a list of texts"),
        (("llama-3.1-8b",), {"datacenter": "no"}, "expected true or false"),
        (("llama-3.1-8b",), {"strategy": {"tp": 1}}, "expected a text"),
        (("llama-3.1-8b",), {"draft": "1:0.5", "draft_tokens": "1:0.8"}, "draft is given twice"),
        (
            ("llama-3.1-8b",),
            {"on": "h100-sxm:8", "progress": 0},
            "progress: give a function of what is done and of the whole",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:draft_tokens")
def test_what_python_cannot_mean_is_refused(given, named, said):
    with pytest.raises(InputError, match=said):
        rp.plan_serving(*given, **named)


def test_numbers_are_texts_and_none_is_not_given():
    assert (
        ServeInputs(model="x", input=512, utilisation=0.5, on="h100-sxm:1").as_json()
        == ServeInputs(model="x", input="512", utilisation="0.5", on=("h100-sxm:1",), best=None, top=None).as_json()
    )
    assert TrainInputs(model="x", tokens=1e12).tokens == "1000000000000"


@pytest.mark.parametrize(
    ("inputs", "code", "said"),
    [
        ({"model": "llama-3.1-8b", "on": ["h100-sxm:1"], "top": 1, "best": None, "tpot": None}, 0, ""),
        ({"model": None, "on": None}, 2, "MODEL is missing"),
        ({"model": "llama-3.1-8b", "draft_tokens": "1:0.85"}, 2, "--draft"),
        ({"model": "llama-3.1-8b", "on": 3}, 2, "expected a list of texts"),
        ({"model": "llama-3.1-8b", "datacenter": "yes"}, 2, "expected true or false"),
    ],
)
@pytest.mark.filterwarnings("ignore:draft_tokens")
def test_a_request_may_hold_what_the_schema_allows(run, tmp_path, inputs, code, said):
    file = tmp_path / "request.json"
    file.write_text(json.dumps(inputs))
    found, _, err = run("serve", "--request", str(file))
    assert found == code
    assert said in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["serve", "llama-3.1-8b", "--csv", "--html"], "--csv: a value is missing before --html"),
        (["serve", "llama-3.1-8b", "--on"], "--on needs a value"),
        (["devices", "--jsn"], "unknown option --jsn. Nearest: --json."),
        (["cost", "machine", "h100-sxm:8"], "Devices stand behind --on. Options: roofplan cost machine --help"),
        (["calibrate", "mine.csv"], "'mine.csv' is left over. Files stand behind --with."),
        (
            ["simulate", "llama-3.1-8b", "--on", "h100-sxm", "--rate", "2req/s", "--warmup", "-1"],
            "--warmup: -1 is less than no request",
        ),
        (["serve", "llama-3.1-8b", "--request", ""], "give the file to read"),
    ],
)
def test_flags_without_their_value_are_named(run, words, said):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert said in err


def test_a_swallowed_json_still_answers_in_json(run_json):
    code, document = run_json("serve", "llama-3.1-8b", "--tpot", "--json")
    assert code == 2
    assert document["error"]["message"] == "--tpot: a value is missing before --json"


@pytest.mark.parametrize(
    ("said", "month"),
    [
        ("3B", 3e9),
        ("3B/month", 3e9),
        ("36B/year", 3e9),
        ("100M/day", 1e8 * 730 / 24),
        ("1M/h", 1e6 * 730),
    ],
)
def test_tokens_are_counted_by_the_month(said, month):
    (found,) = demands_of(TokensInputs(tokens=said), Workload(input=100, output=20))
    assert found.tokens == pytest.approx(month)


def test_a_demand_of_less_than_a_request_is_refused():
    with pytest.raises(InputError, match="less than one request"):
        demands_of(TokensInputs(tokens="119/month"), Workload(input=100, output=20))
    (least,) = demands_of(TokensInputs(tokens="120/month"), Workload(input=100, output=20))
    assert least.tokens == 120
