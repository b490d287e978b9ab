"""Questions of somebody else: how long, how deep and from where they may come, to the unit."""

import json

import pytest

pytest.importorskip("starlette")

from conftest import LLAMA

from roofplan.errors import RoofplanError
from roofplan.questions import EVERY
from roofplan.workers import answers
from roofplan.workers.names import (
    DEEPEST,
    LARGEST_CONFIG,
    LONGEST,
    MOST_REQUESTS,
    _depth,
    asked_from_afar,
    check_size,
    help_from_afar,
)

SERVE = EVERY["serve"]


def nested(levels):
    """Return a document of so many levels."""
    found = 1
    for number in range(levels - 1):
        found = {"a": found} if number % 2 else [found]
    return found


@pytest.mark.parametrize("levels", [1, 2, DEEPEST])
def test_levels_are_counted(levels):
    assert _depth(nested(levels)) == levels


def test_a_question_may_be_as_deep_and_as_large_as_it_may_and_no_more():
    check_size({"model": nested(DEEPEST - 1)})
    with pytest.raises(RoofplanError, match=f"deeper than {DEEPEST}"):
        check_size({"model": nested(DEEPEST)})
    beside = len(json.dumps({"model": ""}))
    check_size({"model": "a" * (LARGEST_CONFIG - beside)})
    with pytest.raises(RoofplanError, match="larger than"):
        check_size({"model": "a" * (LARGEST_CONFIG - beside + 1)})


def test_a_configuration_as_text_may_be_as_deep_as_any():
    text = json.dumps({**LLAMA, "deep": nested(DEEPEST - 1)})
    assert asked_from_afar(SERVE, {"model": text}).model["deep"] == nested(DEEPEST - 1)
    with pytest.raises(RoofplanError, match=f"nested deeper than {DEEPEST} levels"):
        asked_from_afar(SERVE, {"model": json.dumps({**LLAMA, "deep": nested(DEEPEST)})})
    with pytest.raises(RoofplanError, match="is no JSON"):
        asked_from_afar(SERVE, {"model": "{"})


@pytest.mark.parametrize("count", [MOST_REQUESTS, str(MOST_REQUESTS), "200,000"])
def test_as_many_requests_are_simulated_as_may_be(count):
    check_size({"requests": count})
    with pytest.raises(RoofplanError, match="at most 200,000"):
        check_size({"requests": MOST_REQUESTS + 1})


def test_a_text_may_be_as_long_as_it_may():
    names = EVERY["device"]
    assert len(asked_from_afar(names, {"device": "h" * LONGEST}).device) == LONGEST
    with pytest.raises(RoofplanError, match="is longer than"):
        asked_from_afar(names, {"device": "h" * (LONGEST + 1)})


@pytest.mark.parametrize(
    ("question", "given", "said"),
    [
        ("serve", {"model": "/etc/passwd"}, "no model '/etc/passwd' in the catalogue"),
        ("serve", {"model": "llama-3.1-8x"}, "Nearest: llama-3.1-8b"),
        ("serve", {"model": "llama-3.1-8b", "on": ["Mine.TOML:2"]}, "take a device of the catalogue"),
        ("device", {"device": "mine.toml"}, "take a device of the catalogue"),
        ("simulate", {"model": "llama-3.1-8b", "on": ["h100-sxm:1"], "trace": "x.csv"}, "files are not read here"),
        ("validate", {"kind": "training", "file": "rows.csv"}, "files are not read here"),
        ("serve", {"model": "llama-3.1-8b", "nosuch": 1}, "nosuch"),
    ],
)
def test_what_lies_on_this_machine_is_not_read(question, given, said):
    with pytest.raises(RoofplanError) as refused:
        asked_from_afar(EVERY[question], given)
    assert said in str(refused.value)


def test_a_name_without_neighbours_names_none():
    with pytest.raises(RoofplanError) as refused:
        asked_from_afar(SERVE, {"model": "zzzzzzzzzzzz"})
    assert "Nearest" not in str(refused.value)


def test_inputs_that_are_refused_may_stay_as_they_are():
    given = {"model": "llama-3.1-8b", "on": ["h100-sxm:1"], "requests": "100"}
    simulate = EVERY["simulate"]
    assert asked_from_afar(simulate, given, frozenset({"seed"})).requests == "100"
    with pytest.raises(RoofplanError, match="requests: is not accepted here"):
        asked_from_afar(simulate, given, frozenset({"requests"}))


def test_help_speaks_of_no_path():
    assert "config.json" in help_from_afar(SERVE.record.each()["model"].metadata)
    assert help_from_afar(SERVE.record.each()["tpot"].metadata) == SERVE.record.each()["tpot"].metadata["help"]


def test_a_configuration_with_a_number_without_end_is_answered():
    """The Mamba family writes time_step_limit as [0.0, Infinity], which JSON has no word for."""
    status, text = answers.document("model", {"model": {**LLAMA, "time_step_limit": [0.0, float("inf")]}})
    assert status == "ok"
    assert json.loads(text)["inputs"]["model"]["time_step_limit"] == [0.0, None]


@pytest.mark.parametrize(
    ("reads", "anything", "content"), [("model", True, True), ("model", False, False), ("machine", True, False)]
)
def test_a_model_from_afar_is_no_path(reads, anything, content):
    said = help_from_afar({"reads": reads, "anything": anything, "help": "as declared"})
    assert said == ("id of the catalogue, or the content of a config.json" if content else "as declared")
