"""Published benchmarks: how rows are read, derived figures, ranks and flips, predictions beside them."""

import statistics
from dataclasses import replace

import pytest

from roofplan import api, catalogue
from roofplan.errors import InputError
from roofplan.evidence import benchmarks
from roofplan.evidence.benchmarks import beside, published
from roofplan.inputs import BenchmarksInputs

FIT = catalogue.shipped_fit()


def test_every_row_is_read_once():
    rows = published()
    assert len(rows) == 540
    assert {one.unit for one in rows} == {"token/s", "ms"}
    assert all(one.source.startswith("github:mlcommons/") for one in rows)
    known = set(catalogue.ids("accelerators"))
    assert {one.device for one in rows if one.device} <= known


def test_figures_are_per_accelerator_dollar_and_watt():
    found = api.benchmarks(model="llama2-70b", scenario="Offline", category="closed", price="2USD/h")
    one = next(each for each in found.results if each.device == "b200")
    assert one.per_accelerator == one.value / one.accelerators
    assert one.per_dollar == pytest.approx(one.per_accelerator * 3600 / 2)
    watts = api.benchmarks(model="llama2-70b", scenario="Offline", category="closed", per="W,device").boards[0].results
    assert watts[0].per_watt == watts[0].value / watts[0].power
    assert watts[-1].power is None
    assert len({each.named for each in found.results}) == len(found.results)


def test_ranks_and_flips_follow_the_figures():
    found = api.benchmarks(model="llama-2-70b", category="closed")
    board = next(each for each in found.boards if each.scenario == "Offline")
    values = [each.per_accelerator for each in board.results]
    assert values == sorted(values, reverse=True)
    assert [board.ranks[each.named]["device"] for each in board.results] == list(range(1, len(values) + 1))
    assert "llama2-70b: gb200 is ahead of b200 in Offline, behind it in Server" in found.flips


@pytest.mark.slow
def test_predictions_hold_where_the_layout_is_unambiguous():
    rows = [one for one in published() if one.scenario == "Offline" and one.model in {"llama2-70b", "llama3.1-8b"}]
    found = [beside(one, FIT) for one in rows]
    judged = [one for one in found if one.predicted is not None and one.predicted.unambiguous]
    assert len(judged) > 40
    assert sum(bool(one.inside) for one in judged) / len(judged) >= 0.85
    assert statistics.median(abs(one.predicted.value / one.value - 1.0) for one in judged) <= 0.23
    assert all(one.why for one in found if one.predicted is None)


def test_how_much_faster_than_predicted_results_are_does_not_hide_a_bias():
    every = api.benchmarks(model="llama2-70b", scenario="Offline")
    rates = [one for one in every.results if one.predicted is not None and one.predicted.unambiguous]
    assert {one.unit for one in rates} == {"token/s"}
    assert every.faster == statistics.median(one.value / one.predicted.value for one in rates)
    assert replace(every, boards=[]).faster is None


def test_a_row_without_a_known_format_or_device_says_so():
    rows = {one.why: one for one in (beside(each, FIT) for each in published()[:60])}
    assert any("format" in why for why in rows)
    server = next(one for one in published() if one.scenario == "Server")
    assert "latencies" in beside(server, FIT).why


@pytest.mark.parametrize(
    "wrong",
    [
        {"scenario": "offlin"},
        {"category": "closd"},
        {"round": "v9"},
        {"per": "token"},
        {"device": "h10"},
        {"model": "gpt-9"},
    ],
)
def test_filters_that_are_none_are_refused(wrong):
    with pytest.raises(InputError) as refusal:
        api.benchmarks(**wrong)
    assert str(next(iter(wrong.values()))) in refusal.value.message


def test_what_is_not_ours_is_cited():
    assert "MLCommons" in benchmarks.CITATION
    assert "not MLPerf results" in benchmarks.CITATION


def test_a_task_without_results_on_a_device_is_no_unknown_task():
    pairs = {(one.benchmark, one.device) for one in published() if one.device}
    tasks, devices = ({pair[side] for pair in pairs} for side in (0, 1))
    task, device = min((task, device) for task in tasks for device in devices if (task, device) not in pairs)
    assert benchmarks._kept(BenchmarksInputs(model=task, device=device)) == []
    with pytest.raises(InputError, match="no MLPerf results of nosuch"):
        benchmarks._kept(BenchmarksInputs(model="nosuch", device=device))
