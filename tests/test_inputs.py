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
from roofplan.present.answers import schema


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
        assert TokensInputs.each()[name].metadata is one.metadata


def test_commands_are_those_with_inputs():
    groups = {name for name in app if not name.startswith("-")} - {"cost", "schema"}
    assert groups == {name for name in RECORDS if " " not in name}
