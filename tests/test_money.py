"""Prices, demands and energy: what a token costs, and on which load."""

import csv
import io
import itertools
import math
from dataclasses import replace
from datetime import date, timedelta
from types import SimpleNamespace

import pytest
from conftest import FIT

from roofplan import catalogue, money
from roofplan.api import plan_serving, token_costs
from roofplan.catalogue.machines import machine
from roofplan.money.history import CLASSES, WIDTHS, fit_trend, milestones, years_between
from roofplan.money.listed import Route
from roofplan.money.machine import own
from roofplan.money.prices import STALE_DAYS, at_price, ranged
from roofplan.money.request import _estimated
from roofplan.present.screens.money import rent_screen
from roofplan.present.screens.page import Page
from roofplan.serving import all_in_cost
from roofplan.timing.figures import Metric
from roofplan.timing.power import wall_power


def test_all_sizes_of_a_device_have_one_rent():
    eight, four, one = (money.quotation(machine(f"h100-sxm:{n}")[0], "rent") for n in (8, 4, 1))
    assert eight == four == one
    assert (eight.value, eight.provider) == (3.99, "Lambda")


def test_the_bounds_of_a_rent_are_those_of_the_newest_half_years_quotes():
    found = money.quotation(machine("rtx-4090:8")[0], "rent")
    assert (found.low, found.high) == (0.2, 0.69)
    plan = plan_serving("llama-3.1-8b", ["rtx-4090:8"]).plans[0]
    hourly = plan.metrics["cost_per_hour"]
    assert (hourly.low, hourly.high) == pytest.approx((8 * 0.2, 8 * 0.69))


def test_a_single_quote_has_the_bounds_of_its_kind():
    alone = money.hourly(machine("p5-48xlarge:1")[0], "rent", FIT)
    assert alone.price.provider == "AWS"
    assert alone.price.low < alone.price.value < alone.price.high


def test_a_bare_year_means_its_middle():
    bare = next(p for p in catalogue.prices("h100-sxm") if p.date == "2026")
    assert bare.middle.isoformat() == "2026-07-01"


@pytest.mark.parametrize("name", ["p5-48xlarge", "p4d-24xlarge", "p4de-24xlarge"])
def test_a_named_cloud_instance_takes_its_own_provider_s_price(name):
    assert money.quotation(machine(name)[0], "rent").provider == "AWS"


def test_a_named_cloud_instance_without_a_quotation_has_no_price():
    assert money.quotation(machine("p6-b200-48xlarge")[0], "rent") is None


@pytest.mark.parametrize("spec", ["h100-sxm:8", "b200:2"])
def test_a_demanded_rate_is_met_by_few_users_and_paid_for_at_that_load(spec):
    asked = plan_serving("llama-3.1-70b", [spec], rate="2req/s")
    for plan in asked.plans:
        rate = plan.metrics["output_tokens_per_second"].value
        assert rate >= 2 * plan.workload.output
        hourly = plan.cost.total
        assert all_in_cost(plan).value == pytest.approx(hourly / 3600 / (2 * plan.workload.output) * 1e6, rel=1e-9)
    best = asked.plans[0]
    fewer = plan_serving(
        "llama-3.1-70b",
        [spec],
        concurrency=best.users - 1,
        strategy=",".join(f"{k}={v}" for k, v in best.strategy.as_dict().items()),
    ).plans[0]
    assert fewer.metrics["output_tokens_per_second"].value < 2 * best.workload.output * 1.02


def test_a_larger_machine_costs_more_a_token_at_the_same_demand():
    costs = [
        all_in_cost(plan_serving("llama-3.1-8b", [f"h100-sxm:{n}"], rate="2req/s").plans[0]).value for n in (1, 2, 4)
    ]
    assert costs == sorted(costs)
    assert costs[2] == pytest.approx(4 * costs[0], rel=1e-9)


def test_formats_that_change_the_model_compete_by_their_figures():
    plans = plan_serving("llama-3.1-70b", ["h100-sxm:8"], precision="any").plans
    best = plans[0]
    assert best.changes == "fp8"
    assert all_in_cost(best).value < min(all_in_cost(p).value for p in plans if not p.changes_model)


def test_a_cache_in_another_format_changes_the_model():
    plan = plan_serving("llama-3.1-8b", ["h100-sxm:1"], kv_precision="fp8").plans[0]
    assert plan.changes == "fp8 cache"


def test_few_devices_take_their_share_of_a_host():
    four, eight = (wall_power(machine(f"h100-sxm:{n}")[0], 0.5, FIT) for n in (4, 8))
    assert float(eight.value) == pytest.approx(2 * float(four.value))


def test_machines_without_known_hosts_stand_below_in_energy():
    plans = plan_serving("llama-3.1-8b", ["h100-sxm:1", "l4:1"], best="energy").plans
    whole = [len(p.power.parts) for p in plans]
    assert whole == sorted(whole, reverse=True)


def test_ties_in_devices_fall_to_cost():
    plans = plan_serving("llama-3.1-8b", ["h100-sxm:1", "rtx-4090:1", "a100-sxm-80:1"], best="devices").plans
    costs = [all_in_cost(p).value for p in plans if p.machine.count == 1]
    assert costs == sorted(costs)


def test_the_all_in_cost_is_in_the_answer(run_json):
    _, answer = run_json("serve", "llama-3.1-8b", "--on", "h100-sxm:1")
    metrics = answer["plans"][0]["metrics"]
    into, out = (metrics[f"cost_per_million_{x}_tokens"]["value"] for x in ("input", "output"))
    assert metrics["cost_per_million_output_tokens_all_in"]["value"] == pytest.approx(out + 4 * into, rel=1e-9)


def test_a_card_at_home_pays_no_data_centres_overhead():
    home, hall = (own(machine(name)[0], FIT) for name in ("rtx-4090:2", "h100-sxm:8"))
    assert home.inputs["PUE"].value == 1.0
    assert hall.inputs["PUE"].value > 1.2
    assert any("PUE 1" in one for one in home.assumed)


@pytest.mark.slow
def test_several_volumes_and_ways_of_paying_stand_side_by_side(run_json, tmp_path):
    file = tmp_path / "volumes.csv"
    words = "cost tokens gpt-oss-120b --on h100-sxm:1 --tokens 10M,1B,10B/month --price rent,own --csv"
    code, document = run_json(*words.split(), str(file))
    assert code == 0
    bills = {(one["tokens"], one["paid"]): one["monthly"]["value"] for one in document["volumes"]}
    assert set(bills) == set(itertools.product((1e7, 1e9, 1e10), ("API", "rent", "own")))
    assert bills[1e9, "API"] == pytest.approx(100 * bills[1e7, "API"])
    for tokens in (1e7, 1e10):
        alone = token_costs("gpt-oss-120b", ["h100-sxm:1"], tokens=f"{tokens:.0f}/month", price="rent")
        assert {one.kind: one.monthly.central for one in alone.supplies} == pytest.approx(
            {kind: bills[tokens, kind] for kind in ("rent", "own")}
        )
    with file.open(newline="") as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == len(bills)
    assert float(rows[0]["monthly_value"]) == bills[1e7, "API"]


@pytest.mark.parametrize(
    "words",
    ["chip h100-sxm", "machine --on rtx-4090:8", "tokens gpt-oss-120b --on h100-sxm:1", "rent h100-sxm", "history"],
)
def test_every_cost_writes_a_table(run, tmp_path, words):
    file = tmp_path / "rows.csv"
    code, _, _ = run("cost", *words.split(), "--csv", str(file))
    assert code == 0
    with file.open(newline="") as table:
        rows = list(csv.DictReader(table))
    assert rows
    assert all(len(row) >= 3 for row in rows)


def test_tokens_on_a_changed_model_say_so(run):
    _, out, _ = run(*["cost", "tokens", "llama-3.3-70b", "--on", "rtx-4090:2", "--precision", "any"])
    assert out.startswith("changes the model: awq\n")


@pytest.mark.parametrize("kind", CLASSES)
def test_halvings_lie_inside_their_interval(kind):
    """The ends are those of the slope's interval, on either side of it."""
    found = milestones()
    for bits in WIDTHS:
        trend = fit_trend(found, bits, kind)
        if trend is None:
            continue
        halving = trend.halving
        assert 0.0 < halving.low < halving.central < halving.high
        low, middle, high = (1.0 / one for one in (halving.low, halving.central, halving.high))
        if high > 0.0:
            assert low - middle == pytest.approx(middle - high)


def test_input_found_in_a_cache_is_charged_at_its_own_price_where_the_route_has_one():
    route = Route(name="any", input=2.0, output=8.0, date="2026-11-26", source="a list", cached=0.5)
    assert route.charged(0.5) == pytest.approx(1.25)
    assert replace(route, cached=None).charged(0.5) == 2.0


@pytest.mark.parametrize(("older", "mark"), [(0, False), (1, True)])
def test_quotes_are_marked_from_the_day_on_which_they_are_stale(monkeypatch, older, mark):
    from roofplan import money
    from roofplan.present.screens.things import _quote

    monkeypatch.setattr(money, "age_days", lambda _: money.STALE_DAYS + older)
    quotes = catalogue.prices("h100-sxm")
    assert _quote(quotes[0].kind, quotes).endswith(" !") is mark


@pytest.mark.parametrize(("older", "grade"), [(-1, ""), (0, ""), (1, "borrowed")])
def test_old_quotes_are_borrowed_and_what_is_given_never(monkeypatch, older, grade):
    monkeypatch.setattr("roofplan.money.prices.age_days", lambda _: STALE_DAYS + older)
    quote = catalogue.prices("h100-sxm")[0]
    assert ranged(quote, FIT).grade == grade
    assert ranged(replace(quote, kind="given"), FIT).grade == ""


def test_estimated_prices_are_those_of_analysts_in_dollars():
    assert _estimated("h100-sxm")
    assert not _estimated("a10")
    assert not _estimated("nosuch")


def test_quotations_are_listed_a_dozen_at_most_and_old_ones_are_marked():
    def quoted(days, value, count=1):
        day = (date.today() - timedelta(days=days)).isoformat()
        return SimpleNamespace(
            price=SimpleNamespace(
                kind="on demand", date=day, middle=-days, value=value, provider="shop", term=None, count=count
            )
        )

    out = io.StringIO()
    rent_screen([quoted(days, 2.0) for days in (0, STALE_DAYS, STALE_DAYS + 1)], Page(out), "h100-sxm")
    first, *listed = out.getvalue().splitlines()
    assert first.startswith("h100-sxm | on demand | 3 quotations, 2.00 to 2.00 USD/h, newest")
    assert [" ! " in line for line in listed[:3]] == [False, False, True]
    assert "older ones" not in out.getvalue()
    for count in (12, 13, 15):
        out = io.StringIO()
        rent_screen([quoted(0, 1.0 + place) for place in range(count)], Page(out), "h100-sxm")
        lines = out.getvalue().splitlines()
        assert sum("by 1" in line or "shop" in line for line in lines) == 12
        assert any(f"and {count - 12} older ones" in line for line in lines) == (count > 12)


def test_bars_of_years_are_as_long_as_their_middle():
    def quoted(year, value):
        return SimpleNamespace(
            price=SimpleNamespace(
                kind="spot", date=f"{year}-05-05", middle=year, value=value, provider="shop", term="a year", count=None
            )
        )

    out = io.StringIO()
    quotes = [quoted(2024, 10.0), quoted(2024, 4.0), quoted(2024, 3.0), quoted(2025, 0.01), quoted(2026, 5.0)]
    rent_screen(quotes, Page(out), "h100-sxm")
    bars = {line.split()[0]: line.count("#") for line in out.getvalue().splitlines() if "#" in line}
    assert bars == {"2024": 12, "2025": 1, "2026": 15}


def test_years_begin_on_the_first_of_january():
    assert years_between(2024.0, SimpleNamespace(middle=date(2024, 1, 1))) == 0.0
    assert years_between(2023.5, SimpleNamespace(middle=date(2025, 3, 14))) == pytest.approx(1.5 + 72 / 365)


@pytest.mark.parametrize("given", [(0.5, 2.0), (1.0, 1.0), (0.9, 3.0)])
def test_the_interval_of_a_cost_joins_those_of_its_price_and_of_its_time(given):
    speed = Metric(10.0, 5.0, 40.0, "USD", "calibrated")
    found = at_price(speed, SimpleNamespace(range=given, grade="borrowed"))
    low, high = given
    assert found.value == 10.0
    assert found.high == pytest.approx(10.0 * math.exp(math.hypot(math.log(4.0), math.log(high))))
    assert found.low == pytest.approx(10.0 / math.exp(math.hypot(math.log(2.0), math.log(low))))
    assert found.grade == "borrowed"
    assert at_price(speed, None) == speed
