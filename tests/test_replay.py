"""About two hundred answers each of serving, training, money and models, and screens, whose figures may not move in a refactor."""

import re

import pytest
import replays

HEAVY = {"serving": 40, "training": 100, "money": 40}
RARE = HEAVY | {"screens": 32, "load": 50, "pools": 26, "pages": 20, "launch": 35}
RARE |= {"model": 4, "rows": 40, "shown": 40, "refused": 100, "seen": 12}
"""Kinds of which quick tests take one answer in so many, slow tests all others."""

LONG = re.compile(
    r"calls (accuracy|pools|launched|written|started|paid|operations|tables_of_steps|predicted_steady_states|drawn_\w+)|--(slo|find|warmup) "
    r"|--best throughput|kimi-k2 "
)
"""Answers that take seconds: scenes of many, and those that are drawn, loads that are simulated, pools for throughput."""


def cases():
    for kind in replays.KINDS:
        for number, words in enumerate(replays.recorded(kind)):
            slow = kind == "tables" or LONG.search(words) or number % RARE.get(kind, 1) > 0
            marks = [pytest.mark.slow] if slow else []
            yield pytest.param(kind, words, id=words, marks=marks)


@pytest.mark.parametrize(("kind", "words"), list(cases()))
def test_answers_have_not_moved(kind, words):
    recorded, now = replays.recorded(kind)[words], replays.replayed(words)
    moved = [name for name in {**recorded, **now} if recorded.get(name) != now.get(name)]
    assert not moved, f"moved: {', '.join(moved)}; python tests/replays.py show {words!r} prints what they are made of"


def test_each_kind_has_about_two_hundred_plans():
    for kind in HEAVY:
        assert sum(answer["exit"] == 0 for answer in replays.recorded(kind).values()) == replays.WANTED
    assert len(replays.recorded("model")) > 200


@pytest.mark.parametrize("kind", ["calls", "rows"])
def test_every_scene_and_every_publisher_is_recorded(kind):
    assert list(replays.recorded(kind)) == list(replays.questions(kind))


def test_a_moved_digit_changes_the_checksum_and_a_rounding_error_does_not():
    assert replays.plain("12.3456") != replays.plain("12.3457")
    assert replays.plain("12.34561234567") == replays.plain("12.34561234568")
    assert replays.plain("a\nsearched 3 in 0.1 s\nb") == "a\nb"
