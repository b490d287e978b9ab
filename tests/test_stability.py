"""A day of probes: schedule, shares, hours, changes, outages, and what survives an interruption."""

import asyncio
import csv
import io
import json
import signal
import subprocess
import sys
import time
from array import array
from datetime import UTC

import numpy as np
import pytest
from mock_server import Mock

from roofplan import observe
from roofplan.errors import InputError
from roofplan.load.statistics import Objective
from roofplan.measure import stability
from roofplan.measure.endpoint import Server
from roofplan.measure.ledger import VARIABLE, Ledger
from roofplan.measure.request import schedule_of
from roofplan.measure.sample import Sample
from roofplan.measure.stability import SHORTEST, Schedule, holds, pettitt, share_ends, stability_of
from roofplan.present.screens import seen
from roofplan.present.screens.page import Page

DAY = Schedule(begin=1_700_006_400.0, every=60.0, count=1440, seed=0)
"""A day from midnight, UTC."""


def day(ttft, failed=()):
    """Return a day of probes with some first tokens, and some that failed."""
    out = []
    for k, seconds in enumerate(ttft):
        if k in failed:
            out.append(Sample(number=k, due=DAY.due(k), late=0.0, spent=30.0, reason="time-out", message="no answer"))
        else:
            out.append(Sample(number=k, due=DAY.due(k), late=0.0, gaps=array("f", [seconds])))
    return out


def test_each_probe_is_at_a_random_moment_of_its_minute():
    due = np.array([DAY.due(k) for k in range(1440)])
    assert np.all(due // 60.0 == np.arange(1440))
    assert 25.0 < np.mean(due % 60.0) < 35.0
    assert np.std(np.diff(due)) > 10.0
    assert [DAY.due(3), DAY.due(4)] == [DAY.due(3), DAY.due(4)]


def test_probes_whose_moment_has_passed_are_not_made_up_for():
    assert DAY.next(DAY.begin) == 0
    assert DAY.next(DAY.begin + DAY.due(5) + 0.001) == 6
    assert DAY.next(DAY.begin + DAY.due(5) - 0.001) == 5
    assert DAY.next(DAY.begin - 1000.0) == 0


def test_the_articles_day():
    """1,440 probes near 200 ms, four above 500 ms, the longest 3.2 s: 0.3%, between 0.1 and 0.6."""
    times = np.random.default_rng(0).normal(0.2, 0.01, 1440)
    times[[100, 500, 900]] = 0.6
    times[847] = 3.2
    found = stability_of(day(times), DAY, 0.5, UTC)
    assert found.probes == 1440
    assert found.over == pytest.approx(4 / 1440)
    assert [round(100 * end, 1) for end in found.over_ends] == [0.1, 0.6]
    assert found.median == pytest.approx(0.2, abs=0.002)
    assert found.greatest == pytest.approx(3.2)
    assert found.greatest_at == DAY.begin + DAY.due(847)
    assert [one.hour for one in found.hours] == list(range(24))
    assert [one.probes for one in found.hours] == [60] * 24
    assert found.hours[14].over == pytest.approx(1 / 60)
    assert found.changes == ()
    assert found.outages == ()
    assert found.waited is None


def test_a_change_is_found_where_it_is():
    random = np.random.default_rng(1)
    times = np.concatenate([random.normal(0.2, 0.02, 700), random.normal(0.26, 0.02, 740)])
    (change,) = stability_of(day(times), DAY, 0.5, UTC).changes
    assert abs(change.at - DAY.begin - DAY.due(700)) < 10 * 60.0
    assert change.before == pytest.approx(0.2, rel=0.02)
    assert change.after == pytest.approx(0.26, rel=0.02)


def test_pettitts_test_by_hand():
    """Ranks 1 and 2 thrice each: the sum after the third is 3 x 2 x 2 - 3 x 7 = -9, and p = 2 exp(-6 x 81 / (216 + 36))."""
    at, chance = pettitt(np.array([1.0, 1.0, 1.0, 2.0, 2.0, 2.0]))
    assert (at, chance) == (3, pytest.approx(2.0 * np.exp(-6.0 * 81.0 / 252.0)))


def test_a_share_of_none_and_of_all_is_certain():
    assert stability._at_most(0, 5, 0.0) == 1.0
    assert stability._at_most(4, 5, 1.0) == 0.0
    assert stability._at_most(5, 5, 1.0) == 1.0


def test_chance_makes_no_change():
    found = [pettitt(np.random.default_rng(seed).exponential(1.0, 300))[1] < 0.05 for seed in range(300)]
    assert np.mean(found) < 0.09
    assert pettitt(np.ones(100)) == (1, 1.0)


def test_outages_are_rows_of_failures_and_no_percentile_hears_of_them():
    found = stability_of(day(np.full(200, 0.2), failed={3, 50, 51, 52}), DAY, 0.5, UTC)
    (outage,) = found.outages
    assert (outage.probes, outage.reasons) == (3, ("time-out",))
    assert outage.begin == DAY.begin + DAY.due(50)
    assert outage.end == DAY.begin + DAY.due(52)
    assert found.failed == {"time-out": 4}
    assert found.greatest == pytest.approx(0.2)
    assert found.waited == 30.0
    assert found.hours[0].failed == 4


def test_probes_that_were_given_up_are_long():
    found = stability_of(day(np.full(100, 0.2), failed=set(range(50))), DAY, 0.5, UTC)
    assert found.over == 0.5
    assert found.median == pytest.approx(0.2)


def test_failures_miss_limits():
    limit = Objective("ttft", 0.5, 0.99)
    assert holds(day(np.full(200, 0.2)), limit) == (pytest.approx(0.2), True)
    assert holds(day(np.full(200, 0.2), failed={3, 9, 20}), limit) == (float("inf"), False)


@pytest.mark.parametrize(("hits", "count"), [(0, 30), (4, 1440), (30, 30), (50, 100)])
def test_the_interval_of_a_share_is_that_of_clopper_and_pearson(hits, count):
    """At the lower end at least so many hits have 5% probability, at the upper end at most so many."""
    low, high = share_ends(hits, count)
    drawn = np.random.default_rng(0)
    if hits:
        assert np.mean(drawn.binomial(count, low, 100_000) >= hits) == pytest.approx(0.05, abs=0.004)
    if hits < count:
        assert np.mean(drawn.binomial(count, high, 100_000) <= hits) == pytest.approx(0.05, abs=0.004)
    assert low <= hits / count <= high


def test_probes_of_an_endpoint():
    with Mock(first=0.02, between=0.001) as mock:
        probed = observe.measure_stability(mock.url, every="50ms", for_="1s", over="10ms", output="4")
    assert 18 <= probed.found.probes <= 20
    assert probed.found.over == 1.0
    assert probed.found.median == pytest.approx(0.02, abs=0.01)
    assert probed.kept
    assert max(one.late for one in probed.samples) < 0.1


def test_a_wall_clock_that_jumps_stalls_nothing(monkeypatch):
    """Set back an hour, then forward two: probes go on, and those that a jump passes over are not sent."""
    real, shift = time.time, [0.0]
    monkeypatch.setattr(stability.time, "time", lambda: real() + shift[0])
    with Mock(first=0.01, between=0.001) as mock:
        given = observe.StabilityInputs(url=mock.url, every="100ms", for_="5s")
        from roofplan.measure.endpoint import ready
        from roofplan.measure.request import schedule_of

        asking, schedule, lengths = schedule_of(given, real())
        _, asking, _ = asyncio.run(ready(asking, None, given=False))
        seen = []

        def take(sample):
            seen.append(sample)
            shift[0] = {3: -0.5, 6: 0.6}.get(len(seen), shift[0])

        assert not asyncio.run(stability.probe(asking, schedule, lengths, 0, take))
    assert all(one.answered for one in seen)
    numbers = [one.number for one in seen]
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) > 30


RUN = "import sys; from roofplan.cli import main; main(sys.argv[1:])"


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system has no kill")
def test_a_killed_day_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    path = tmp_path / "ledger.sqlite"
    monkeypatch.setenv(VARIABLE, str(path))
    with Mock(first=0.01, between=0.001) as mock:
        words = ["measure", "stability", mock.url, "--every", "50ms", "--for", "5s"]
        process = subprocess.Popen([sys.executable, "-c", RUN, *words], stdout=subprocess.DEVNULL)
        book = None
        for _ in range(200):
            time.sleep(0.05)
            book = book or (Ledger(path) if path.exists() else None)
            if book and book.runs() and book.runs()[0].requests >= 5:
                break
        process.kill()
        process.wait()
        before = [one.number for one in book.samples(1)]
        assert len(before) >= 5
        again = observe.measure_stability(mock.url, resume="1", ledger=path)
    numbers = [one.number for one in book.samples(1)]
    assert numbers[: len(before)] == before
    assert len(numbers) > len(before)
    assert max(numbers) == 99
    assert [one.number for one in sorted(again.samples, key=lambda one: one.number)] == numbers
    assert book.runs()[0].status == "complete"
    book.close()
    from roofplan.cli import main

    with pytest.raises(SystemExit):
        main(["runs", "1", "--json"])
    shown = json.loads(capsys.readouterr().out)["stability"]
    assert shown["probes"] == len(numbers)
    assert shown["planned"] == 100
    with pytest.raises(InputError, match="run 7 is not in the ledger"):
        observe.measure_stability(mock.url, resume="7", ledger=path)
    with pytest.raises(InputError, match="run 1 is of http"):
        observe.measure_stability("http://127.0.0.1:1", resume="1", ledger=path)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"every": "2h", "for_": "1h"}, "shorter than an interval"),
        ({"slo": "waiting=1s"}, "no client sees"),
        ({"every": "0s"}, "--every"),
    ],
)
def test_what_makes_no_sense_is_refused(given, why):
    with pytest.raises(InputError, match=why):
        observe.measure_stability("http://127.0.0.1:1", **given)


def test_one_probe_is_enough():
    given = observe.StabilityInputs(url="http://127.0.0.1:1", every="1h", for_="1h")
    assert schedule_of(given, 0.0)[1].count == 1


@pytest.mark.parametrize(("first", "changes"), [(SHORTEST - 1, 0), (SHORTEST, 1)])
def test_a_change_needs_probes_on_both_sides(first, changes):
    times = np.repeat([0.2, 2.0], [first, 170])
    assert len(stability_of(day(times), DAY, 0.5, UTC).changes) == changes
    assert len(stability_of(day(times[::-1]), DAY, 0.5, UTC).changes) == changes


def test_a_first_token_at_the_threshold_is_not_above_it():
    found = stability_of(day([0.5, 0.5, 0.75]), DAY, 0.5, UTC)
    assert [hour.over for hour in found.hours if hour.probes == 3] == [pytest.approx(1 / 3)]
    assert found.over == pytest.approx(1 / 3)


def test_probes_that_were_answered_without_a_first_token_are_neither_good_nor_failed():
    whole = Sample(number=3, due=DAY.due(3), late=0.0, spent=1.0, whole=True)
    found = stability_of([*day([0.2, 0.2, 0.2]), whole], DAY, 0.5, UTC)
    assert (found.probes, found.lost, found.over, found.median) == (4, 0, 0.0, pytest.approx(0.2))


def eventful(*, limits=(), **more):
    """Return a day of probes with a change at noon, an outage, a long first token and limits."""
    times = np.repeat([0.2, 0.3], 720)
    times[900] = 3.2
    samples = day(times, failed={1000, 1001, 1002, 1003})
    given = {
        "server": Server(url="http://host:1", model="m", software="", local=False, counts=True),
        "samples": samples,
        "found": stability_of(samples, DAY, 0.5, UTC),
        "limits": limits,
        "interrupted": False,
        "run": 7,
        "notes": [],
    }
    return observe.Probed(**given | more)


LIMITS = ((Objective("ttft", 0.25, 0.5), 0.2, True), (Objective("ttft", 0.5, 0.99), float("inf"), False))

SHOWN = """\
http://host:1 | server unnamed | m
  1,440 probes, 4 lost | first token over 500 ms in 0.347% [0.14, 0.73] of them | median 200 ms,
  p99 300 ms, most 3.20 s at @54055
  failed    4 time-out
            the longest was given up after 30.0 s: the greatest time is at least that
  limit     TTFT p50 200 ms, inside 250 ms
  limit     TTFT p99 no answer, MISSES 500 ms
  change    at @43220: median 200 ms -> 300 ms (+50%)
  outage    @60024 to @60205: 4 probes in a row, time-out

  hour   probes   median     p99    over  lost
{hours}
  times in ms, hours of this host
  ! a note
run 7 of the ledger | go on: roofplan measure stability http://host:1 --model m --resume 7
"""
LONG_HOUR, LOST = "  15-16       60      300   1,489    1.7%     0", "  16-17       60      300     300    0.0%     4"


def test_a_day_is_shown_with_its_limits_changes_outages_and_hours(monkeypatch):
    monkeypatch.setattr(seen, "_moment", lambda seconds: f"@{seconds - DAY.begin:.0f}")
    out = io.StringIO()
    seen.stability_screen(eventful(limits=LIMITS, notes=["a note"], interrupted=True), Page(out))
    times = [200] * 12 + [300] * 12
    hours = [f"  {k:02d}-{(k + 1) % 24:02d}       60      {one}     {one}    0.0%     0" for k, one in enumerate(times)]
    hours[15:17] = [LONG_HOUR, LOST]
    assert out.getvalue() == SHOWN.format(hours="\n".join(hours))


def test_hours_in_which_nobody_answered_have_no_times():
    failed = [*range(60), 70]
    hours = seen._hours(stability_of(day(np.full(120, 0.2), failed=failed), DAY, 0.5, UTC))
    assert hours[2] == "  00-01       60        -       -    0.0%    60"
    assert seen._hours(stability_of(day(np.full(50, 0.2)), DAY, 0.5, UTC)) == []


@pytest.mark.parametrize(("limits", "code"), [(LIMITS[:1], 0), (LIMITS, 1), (LIMITS[1:], 1), ((), 1)])
def test_probes_end_with_whether_their_limits_hold(limits, code, run, monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "l.sqlite"))
    monkeypatch.setattr(observe, "measure_stability", lambda *_, **__: eventful(limits=limits))
    table, page = str(tmp_path / "probes.csv"), str(tmp_path / "page.html")
    ended, shown, _ = run("measure", "stability", "http://host:1", "--csv", table, "--html", page)
    assert ended == code
    assert "run 7 of the ledger\n" in shown
    with (tmp_path / "probes.csv").open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 1440
    assert "http://host:1" in (tmp_path / "page.html").read_text()


def test_an_empty_ledger_says_how_to_fill_it(run, monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "l.sqlite"))
    _, shown, _ = run("runs")
    assert "roofplan measure endpoint URL makes one" in shown
