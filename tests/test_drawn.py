"""What holds of every answer, whatever is asked: questions drawn at random, others than the recorded ones."""

import math
import random

import drawn_replays
import pytest

from roofplan.timing.figures import Metric


def numbers(item):
    """Yield the metrics of an answer, and figures by name."""
    if isinstance(item, Metric):
        yield item
    elif isinstance(item, dict):
        for name, one in item.items():
            yield from [(name, one)] if isinstance(one, float) else numbers(one)
    elif isinstance(item, list | tuple):
        for one in item:
            yield from numbers(one)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(100, 106))
@pytest.mark.parametrize("ask", [drawn_replays.searches, drawn_replays.training, drawn_replays.pools])
def test_every_figure_is_a_positive_number_inside_its_interval(ask, part):
    pick, seen = random.Random(part), 0  # noqa: S311 - nothing secret
    for _ in range(5):
        question, *answer = ask(pick)
        for one in numbers(answer):
            seen += 1
            value = one.value if isinstance(one, Metric) else one[1]
            assert math.isfinite(value), (question, one)
            assert value > -1e-12, (question, one)
            if isinstance(one, Metric):
                assert one.low <= value * (1 + 1e-12), (question, one)
                assert value <= one.high * (1 + 1e-12), (question, one)
    assert seen > 0
