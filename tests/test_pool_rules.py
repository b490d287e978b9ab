"""Published rules of layouts on pools small enough to follow by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from roofplan.pool.layout import Layout, Problem, Stage, legs
from roofplan.pool.rules import CANNOT, PETALS_BITS, PETALS_HOP, _filled, _shortest, exo, parallax, petals
from roofplan.records.pool import CLIENT, LAST

LAYERS, HIDDEN = 4, 1000.0


def crew(*members, route="hub", outputs=(CLIENT,), weight=1.0, head=0.0):
    """Return a request and its problem: each member's room in layers, seconds a layer and, as they matter, link, RTT and bandwidth."""
    some = {"up": 1e12, "down": 1e12, "rtt": 0.0, "bandwidth": 1.0}
    made = [{**some, **one} for one in members]
    people = [
        SimpleNamespace(
            up=one["up"], down=one["down"], rtt=one["rtt"], device=SimpleNamespace(bandwidth=one["bandwidth"])
        )
        for one in made
    ]
    count = len(made)
    apart = np.ones((count, count)) - np.eye(count)
    problem = Problem(
        layer=np.array([[one["layer"]] * LAYERS for one in made]),
        head=np.zeros(count),
        host=np.zeros(count),
        weight=np.full(LAYERS, weight),
        head_weight=head,
        room=np.array([float(one["room"]) for one in made]),
        hidden=apart,
        logits=apart,
        token=apart,
        route=route,
        outputs=outputs,
        returned=False,
        clients=tuple(range(count)),
    )
    return SimpleNamespace(members=people, model=SimpleNamespace(hidden=HIDDEN)), problem


def windows(layout: Layout):
    """Return who holds which layers."""
    return {one.member: (one.first, one.end) for one in layout.stages}


BITS = PETALS_BITS * HIDDEN / 8.0
"""Bytes of a link that carries one request a second, as Petals counts."""


def test_petals_servers_join_where_least_is_offered():
    """The first server is fast but its link carries one request a second, so the third joins it rather than the second."""
    slow_link = {"room": 2, "layer": 0.001, "up": BITS, "rtt": 1.0}
    request, problem = crew(slow_link, {"room": 2, "layer": 0.01, "rtt": 1.0}, {"room": 2, "layer": 0.001, "rtt": 0.1})
    assert windows(petals(request, problem, 1)) == {2: (0, 2), 1: (2, 4)}
    wide = {**slow_link, "up": 1e12}
    request, problem = crew(wide, {"room": 2, "layer": 0.01, "rtt": 1.0}, {"room": 2, "layer": 0.001, "rtt": 0.1})
    assert windows(petals(request, problem, 0)) == {0: (0, 2), 2: (2, 4)}


def test_petals_forward_rate_is_over_half_of_the_blocks():
    """One block at 1 s a layer offers 1/s; three at 0.4 s offer 2.5 / 2 = 1.25/s, so that the fourth joins the single block."""
    request, problem = crew(
        {"room": 1, "layer": 1.0}, {"room": 3, "layer": 0.4}, {"room": 1, "layer": 0.01}, {"room": 0.9, "layer": 0.01}
    )
    assert windows(petals(request, problem, 3)) == {2: (0, 1), 1: (1, 4)}


@pytest.mark.parametrize(("rtt", "crossed"), [(0.0, {0: (0, 4)}), (2.0, {1: (0, 4)})])
def test_petals_paths_pay_half_a_round_trip(rtt, crossed):
    request, problem = crew(
        {"room": 4, "layer": 0.1, "rtt": rtt}, {"room": 4, "layer": 0.3, "rtt": 0.0}, {"room": 0, "layer": 1.0}
    )
    assert windows(petals(request, problem, 2)) == crossed


def test_petals_clients_begin_without_a_hop():
    """The client serves 0.004 s a block more slowly, less than the hop that it spares over all four."""
    assert 4 * 0.004 < PETALS_HOP < 4 * 0.005
    for late, holder in ((0.004, 0), (0.005, 1)):
        request, problem = crew({"room": 4, "layer": 0.1 + late}, {"room": 4, "layer": 0.1})
        assert windows(petals(request, problem, 0)) == {holder: (0, 4)}


def test_petals_counts_the_output_layer_at_the_client():
    request, problem = crew({"room": 4, "layer": 0.1}, {"room": 3, "layer": 0.1}, head=1.0)
    assert petals(request, problem, 1) != CANNOT
    request, problem = crew({"room": 4, "layer": 0.1}, {"room": 0, "layer": 0.1}, head=1.0)
    assert petals(request, problem, 0) == CANNOT
    request, problem = crew({"room": 4, "layer": 0.1}, {"room": 0, "layer": 0.1}, head=1.0)
    assert windows(petals(request, problem, 1)) == {0: (0, 4)}


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_petals_path_crosses_windows_wherever_they_meet(cut):
    request, problem = crew({"room": 4, "layer": 0.1}, {"room": 4, "layer": 0.1})
    held = {0: (0, cut), 1: (cut, LAYERS)}
    assert windows(_shortest(request, problem, held, 0)) == held


def test_exo_takes_the_fewest_machines_and_shares_by_memory():
    request, problem = crew({"room": 1, "layer": 1.0}, {"room": 6, "layer": 1.0}, {"room": 2, "layer": 1.0}, head=1.0)
    assert windows(exo(request, problem, 1)) == {1: (0, 4)}
    request, problem = crew({"room": 1, "layer": 1.0}, {"room": 3, "layer": 1.0}, {"room": 2, "layer": 1.0}, head=1.0)
    assert windows(exo(request, problem, 1)) == {1: (0, 2), 2: (2, 4)}  # 2.4 and 1.6: the remainder goes to the second
    request, problem = crew(*({"room": room, "layer": 1.0} for room in (1.9, 1.5, 0.6)))
    assert windows(exo(request, problem, 0)) == {0: (0, 2), 1: (2, 3), 2: (3, 4)}  # the largest remainders
    request, problem = crew({"room": 1, "layer": 1.0}, {"room": 2, "layer": 1.0}, {"room": 1, "layer": 1.0}, head=1.0)
    assert exo(request, problem, 1) == CANNOT
    request, problem = crew({"room": 1, "layer": 1.0}, {"room": 2, "layer": 1.0}, {"room": 1, "layer": 1.0})
    assert windows(exo(request, problem, 0)) == {0: (0, 1), 1: (1, 3), 2: (3, 4)}


def test_parallax_fills_fewest_stages_by_bandwidth(monkeypatch):
    monkeypatch.setattr("roofplan.pool.rules.head_bytes", lambda _model: 1.0)
    request, problem = crew({"room": 2, "layer": 1.0, "bandwidth": 9.0}, {"room": 5, "layer": 1.0})
    assert windows(parallax(request, problem, 1)) == {1: (0, 4)}
    for bandwidth, first in ((1.0, 2), (3.0, 1)):  # the client's output layer takes one of its four
        request, problem = crew({"room": 3, "layer": 1.0, "bandwidth": bandwidth}, {"room": 4, "layer": 1.0})
        assert windows(parallax(request, problem, 1)) == {1: (0, first), 0: (first, 4)}
    request, problem = crew({"room": 2, "layer": 1.0}, {"room": 2, "layer": 1.0})
    assert parallax(request, problem, 1) == CANNOT
    request, problem = crew({"room": 2, "layer": 1.0}, {"room": 3, "layer": 1.0}, route="ring", outputs=(CLIENT, LAST))
    assert parallax(request, problem, 0).output == LAST


@pytest.mark.parametrize(
    ("share", "caps", "counts"),
    [
        ((1.0, 1.0), (4.0, 4.0), [2, 2]),
        ((3.0, 1.0), (4.0, 4.0), [3, 1]),
        ((3.0, 1.0), (2.0, 4.0), [2, 2]),  # what the first cannot hold, the second does
        ((2.0, 1.0, 1.0), (4.0, 4.0, 4.0), [2, 1, 1]),
        ((5.0, 3.0), (4.0, 4.0), [3, 1]),  # 2.5 and 1.5: the first of equal remainders
        ((1.0, 1.0), (2.0, 2.0), [2, 2]),
    ],
)
def test_layers_fill_vessels_to_one_level(share, caps, counts):
    assert _filled(LAYERS, np.array(share), np.array(caps)) == counts


def test_stages_are_in_order():
    request, problem = crew({"room": 2, "layer": 0.1}, {"room": 2, "layer": 0.1})
    assert petals(request, problem, 0).stages == (Stage(0, 0, 2), Stage(1, 2, 4))


@pytest.mark.parametrize(("share", "first"), [(0.99, 1), (1.01, 0)])
def test_petals_counts_eight_bits_of_a_byte(share, first):
    """The first link carries a request a second, by which the third server stands with whom offers less."""
    request, problem = crew(
        {"room": 2, "layer": 1e-6, "up": BITS, "rtt": 9.0},
        {"room": 2, "layer": 1.0 / (1.5 * share), "rtt": 9.0},
        {"room": 2, "layer": 1e-6},
    )
    layout = petals(request, problem, 2)
    assert windows(layout)[2] == ((2, 4) if first else (0, 2))


@pytest.mark.parametrize("output", [CLIENT, LAST])
def test_parallax_leaves_all_layers_with_one_that_holds_them(output, monkeypatch):
    monkeypatch.setattr("roofplan.pool.rules.head_bytes", lambda _model: 1.0)
    request, problem = crew({"room": 3, "layer": 0.1}, {"room": 6, "layer": 0.1}, outputs=(output,))
    assert windows(parallax(request, problem, 1)) == {1: (0, 4)}
    small, few = crew({"room": 1, "layer": 0.1}, {"room": 2, "layer": 0.1}, outputs=(output,))
    assert parallax(small, few, 1) == CANNOT


def test_who_sends_to_whom():
    """The last leg of the last stage brings the result home; who asks and computes sends itself nothing."""
    layout = Layout(1, (Stage(0, 0, 2), Stage(2, 2, 3), Stage(1, 3, 4)), CLIENT)
    assert legs(layout, "hub") == [(1, 0, False), (0, 1, False), (1, 2, False), (2, 1, False)]
    assert legs(layout, "ring") == [(1, 0, False), (0, 2, False), (2, 1, False)]
    away = Layout(3, layout.stages, LAST)
    assert legs(away, "hub")[-2:] == [(3, 1, False), (1, 3, True)]
    assert legs(away, "ring") == [(3, 0, False), (0, 2, False), (2, 1, False), (1, 3, True)]
    assert legs(Layout(1, (Stage(1, 0, 4),), CLIENT), "ring") == []
