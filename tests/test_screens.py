"""Lines of screens: where they are broken."""

import itertools
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofplan.inputs import STDIN
from roofplan.present.answers.record import shown_model
from roofplan.present.html import _interval
from roofplan.present.screens.page import SEPARATORS, WIDTH, folded, wrapped
from roofplan.present.screens.training import _unit_of
from roofplan.questions.gathered import as_json

WORDS = st.lists(st.text("abcdefgh", min_size=1, max_size=30), min_size=1, max_size=40)


@given(WORDS, st.integers(0, 20), st.integers(0, 20))
def test_lines_are_as_full_as_they_can_be(words, indent, first):
    lines = wrapped(" ".join(words), indent=indent, first=first)
    assert " ".join(lines).split() == words
    assert all(len(line) < WIDTH for line in lines)
    for place, (line, after) in enumerate(itertools.pairwise(lines)):
        assert len(line) + 1 + len(after.split()[0]) + 1 > WIDTH
        assert line.startswith(" " * (indent if place else first))
        assert after[:indent].strip() == "" != after[indent]


def test_a_word_that_is_longer_than_a_line_has_one_of_its_own():
    long = "x" * (WIDTH + 5)
    assert wrapped(f"a {long} b", indent=2) == ["a", f"  {long}", "  b"]
    assert wrapped(long, first=3) == [f"   {long}"]


@given(WORDS, st.integers(1, 20))
def test_folded_lines_are_as_full_as_they_can_be(words, indent):
    pieces = folded(" ".join(words), indent=indent)
    assert " ".join(pieces).split() == words
    assert all(len(piece) <= WIDTH for piece in pieces)
    for piece, after in itertools.pairwise(pieces):
        assert after[:indent].strip() == "" != after[indent]
        assert len(piece) + 1 + len(after.split()[0]) > WIDTH


@given(WORDS, st.sampled_from(SEPARATORS))
def test_separators_end_lines_and_begin_none(words, separator):
    pieces = folded(f" {separator}".join(words), indent=4)
    assert f" {' '.join(pieces)}".split() == f" {separator}".join(words).split()
    assert all(len(piece) <= WIDTH for piece in pieces)
    assert not any(piece.lstrip().startswith(separator) for piece in pieces[1:])


@pytest.mark.parametrize("quoted", ["'a b c'", "'one two' 'three four'"])
def test_commands_are_cut_outside_of_their_quotes(quoted):
    line = " ".join(["--flag", quoted] * 12)
    pieces = folded(line, indent=8, end=" \\")
    assert len(pieces) > 1
    assert all(piece.count("'") % 2 == 0 for piece in pieces)
    assert all(piece.endswith(" \\") for piece in pieces[:-1])
    assert not pieces[-1].endswith("\\")
    assert all(len(piece) <= WIDTH for piece in pieces)
    assert " ".join(piece.removesuffix(" \\").strip() for piece in pieces) == line


def test_engines_that_compete_are_named_beside_each_plan(run):
    code, out, _ = run("serve", "llama-3.1-8b", "--on", "h100-sxm:1", "--engine", "any", "--top", "4")
    following = [line for line in out.splitlines() if line.lstrip().startswith("next")]
    assert code == 0
    assert following[0].split()[2].startswith(("vllm", "sglang", "tensorrt-llm"))


def test_a_measurement_whose_file_cannot_be_written_is_refused_before_it_begins(run, tmp_path):
    code, _, err = run("measure", "http://127.0.0.1:9/v1", "llama-3.1-8b", "--csv", str(tmp_path / "no" / "runs.csv"))
    assert code == 2
    assert "runs.csv" in err


@pytest.mark.parametrize(
    ("seconds", "unit"), [(0.0, "min"), (7199.0, "min"), (7200.0, "h"), (172_799.0, "h"), (172_800.0, "days")]
)
def test_a_long_time_has_a_unit_of_which_it_is_two_at_least(seconds, unit):
    assert _unit_of(seconds)[0] == unit


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("llama-3.1-8b", "llama-3.1-8b"),
        ("a b.json", "'a b.json'"),
        (Path("x"), "x"),
        ("", "own"),
        (object(), "own"),
        (STDIN, "-"),
    ],
)
def test_a_command_names_the_model_as_it_was_asked_for(asked, shown):
    assert shown_model(asked, "own") == shown


def test_no_document_holds_what_json_has_no_word_for():
    assert as_json({"a": 1}, indented=False) == '{"a": 1}\n'
    assert as_json({"a": 1}) == '{\n "a": 1\n}\n'
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            as_json({"a": value})


@pytest.mark.parametrize("name", ["it's a long name", "two 'quoted' words", 'a "double" quote', "plain"])
def test_a_command_in_pieces_is_the_command(name):
    command = f"roofplan simulate {shlex.quote(name * 3)} --on h100-sxm:8 --strategy tp=8 --rate 4req/s --input {shlex.quote(name)} --output 300 --context 4096"
    pieces = folded(command, end=" \\")
    assert all(piece.endswith(" \\") for piece in pieces[:-1])
    assert shlex.split("\n".join(pieces).replace("\\\n", " ")) == shlex.split(command)


def test_an_interval_of_a_page_lies_on_its_axis():
    """An axis of 120 from a quarter to four times the value, or to the ends that lie farther; nothing where it has no logarithm."""

    def drawn(value, low, high):
        found = _interval({"value": value, "low": low, "high": high})
        return [float(x) for x in re.findall(r"<rect x='([\d.-]+)' width='([\d.]+)'", found)[0]], float(
            re.findall(r"<rect x='([\d.-]+)'", found)[1]
        )

    assert drawn(4.0, 2.0, 8.0) == ([30.0, 60.0], 59.0)
    assert drawn(4.0, 1.0, 4.0) == ([0.0, 60.0], 59.0)
    assert drawn(4.0, 4.0, 4.0) == ([60.0, 1.0], 59.0)
    assert drawn(4.0, 0.25, 16.0) == ([0.0, 120.0], 79.0)
    for nothing in ({"value": 4.0, "low": 0.0, "high": 8.0}, {"value": 0.0, "low": 1.0, "high": 8.0}):
        assert _interval(nothing) == ""
    assert _interval({"value": 0.5, "low": 0.4, "high": 0.9}) != ""
