"""Fits that lend to each other, a user's own runs on top of them, and the profile that keeps those."""

import csv
import io
import itertools
import json
import math
import sys
from collections import Counter
from dataclasses import replace
from operator import attrgetter
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import FIT, keeps_to
from hypothesis import given
from hypothesis import strategies as st

import roofplan as rp
from roofplan import catalogue
from roofplan.catalogue import profile
from roofplan.catalogue.machines import machine
from roofplan.errors import InputError
from roofplan.evidence import origins
from roofplan.evidence.fits import __main__ as refit
from roofplan.evidence.fits import intervals, kernels, left_out, prompts, serving, training
from roofplan.evidence.fits.fitting import entry, merged
from roofplan.evidence.fits.hierarchy import Block, Prior, fit
from roofplan.evidence.fits.own import (
    FURTHER,
    Moved,
    Refit,
    _prior_of,
    _worsens,
    figures_of,
    prior_spread,
    rescoped,
    slowdown_of,
)
from roofplan.evidence.fits.training import NUMBERS
from roofplan.evidence.frameworks import framework_of as row_framework
from roofplan.evidence.inference import inference_case
from roofplan.evidence.predictions import names_in
from roofplan.evidence.rows import Assumed
from roofplan.evidence.scoring import Outcome
from roofplan.laws import matmul
from roofplan.present.answers.schemas import answer_schema
from roofplan.present.screens.calibration import _where_kept, refit_screen
from roofplan.present.screens.page import Page
from roofplan.records.calibration import SLOWDOWN, Constant, Fit, Watched
from roofplan.records.system import Origin, System
from roofplan.timing.figures import TIME_PER_TOKEN, Doubt, slowdown_scope, sure
from roofplan.timing.rates import rates
from roofplan.training.request import framework_of

# Published kernels -------------------------------------------------------------------------------


def test_the_conversion_of_inputs_is_told_from_the_product_by_their_sizes():
    """Products made up from a start-up, a pass over the inputs and a share of the peak give the three back."""
    device = catalogue.accelerator("h200-sxm")
    start, each, share, rate = 8e-6, 6.0, 0.7, kernels.pass_rate(catalogue.accelerator("h200-sxm"), FIT)
    rows = []
    for m, (n, k) in itertools.product((512, 2048, 8192), ((4096, 4096), (16384, 4096), (4096, 16384), (8192, 8192))):
        time = start + each * m * k / rate + 2.0 * m * n * k / device.peak["fp8"].value / share
        rows.append(
            {
                "kernel": "gemm",
                "device": device.id,
                "dtype": "fp8",
                "latency_us": str(time * 1e6),
                "m": str(m),
                "n": str(n),
                "k": str(k),
            }
        )
    found = kernels.converting(rows, FIT)[device.id, "fp8"]
    assert found == pytest.approx((start, each), rel=0.05)
    reached = kernels.reached(rows, kernels.converting(rows, FIT), FIT)["fp8"]["Hopper"]
    assert [value for _, value in reached] == pytest.approx(
        [share] * (len(rows) - 1), rel=0.03
    )  # one takes 9 us at the peak


@pytest.mark.parametrize("architecture", ["Hopper", "Blackwell", "Blackwell Ultra", "Ada"])
def test_8_bit_products_without_their_conversion_reach_what_16_bit_ones_do(architecture):
    shares = {name: FIT.find("matmul", f"share.{name}", [architecture]).value for name in ("bf16", "fp8")}
    assert shares["fp8"] == pytest.approx(shares["bf16"], rel=0.12)


def test_a_cast_moves_what_a_kernel_must_and_not_many_times_as_much():
    """16 bits in and 8 or 4 out at least; at most twice in, where the scale is found first, and what published kernels waste."""
    for name, least in (("fp8", 3.0), ("fp8.fp8-block", 3.0), ("fp4", 2.5)):
        for scope in ("Hopper", "Blackwell", "Blackwell Ultra"):
            assert 0.8 * least <= FIT.find("conversion", f"traffic.{name}", [scope, "any"]).value <= 3 * least


def test_products_on_blocks_borrow_from_16_bit_ones_where_no_run_tells_of_them():
    found = [
        entry("engine", "compute_share", scope, 0.8, "1", 0.1, 9, "runs") for scope in ("llama.cpp", "any", "training")
    ]
    lent = prompts.as_16_bit_products(found)
    assert {(one.name, one.scope, one.value, one.rows) for one in lent} == {
        ("block_share", "llama.cpp", 0.8, 0),
        ("block_share", "any", 0.8, 0),
    }


def test_offline_runs_tell_how_fast_prompts_are_computed_only_where_those_are_long():
    rows = {row["id"]: row for row in catalogue.inference_rows()}
    told = {
        name: prompts.prompts_of(inference_case(rows[f"trtllm-docs-v0.17-{name}"]), FIT) for name in ("0061", "0049")
    }
    assert told["0049"] is None
    term, seconds = told["0061"]
    assert seconds == pytest.approx(float(term.value), rel=0.3)


# Families that lend to each other ----------------------------------------------------------------


def block(family, share, count=20, noise=0.0, seed=0):
    """Return runs whose time is work over a share, with noise."""
    rng = np.random.default_rng(seed)
    work = rng.uniform(1.0, 10.0, count)
    measured = work / share * np.exp(noise * rng.standard_normal(count))
    return Block(
        numbers={"share": (("any", "share"), (family, "share"))},
        errors=lambda p: np.log(work / p["share"] / measured),
    )


PRIORS = {("any", "share"): Prior(0.0, 1.0), **{(name, "share"): Prior(0.0, 0.2) for name in "abc"}}


def test_a_family_with_runs_gets_its_own_number():
    found = fit([block("a", 0.5), block("b", 0.8)], PRIORS)
    assert found.number([("any", "share"), ("a", "share")]) == pytest.approx(0.5, rel=0.01)
    assert found.number([("any", "share"), ("b", "share")]) == pytest.approx(0.8, rel=0.01)


def test_a_family_without_runs_has_what_the_others_share():
    found = fit([block("a", 0.5), block("b", 0.8)], PRIORS)
    assert 0.5 < found.number([("any", "share"), ("c", "share")]) < 0.8


def test_few_noisy_runs_stay_near_their_kin():
    many = [block("a", 0.5), block("b", 0.5, seed=1)]
    few, more = (
        fit([*many, block("c", 0.8, count=count, noise=0.5, seed=2)], PRIORS).number([("any", "share"), ("c", "share")])
        for count in (2, 200)
    )
    assert 0.5 <= few < more < 0.9


def test_a_broken_run_does_not_bend_the_fit():
    rng = np.random.default_rng(3)
    errors = 0.02 * rng.standard_normal(21)
    errors[0] = 3.0
    broken = Block(numbers={"share": (("any", "share"),)}, errors=lambda p: errors - math.log(p["share"] / 0.5))
    assert fit([broken], PRIORS).number([("any", "share")]) == pytest.approx(0.5, rel=0.03)


def test_what_is_less_known_strays_further():
    found = fit([block("a", 0.5, noise=0.1), block("b", 0.8, noise=0.1)], PRIORS)
    own = found.variance([("any", "share"), ("a", "share")])
    kin = found.variance([("any", "share")]) + 0.2**2
    assert own < kin


def test_measurements_tell_the_effects_that_they_feel():
    deaf = Block(numbers={"launch": (("any", "launch"),)}, errors=lambda _: np.zeros(20))
    priors = {**PRIORS, ("any", "launch"): Prior(0.0, 0.5)}
    found = fit([block("a", 0.5), deaf], priors)
    assert found.told(("any", "share"), priors["any", "share"])
    assert not found.told(("any", "launch"), priors["any", "launch"])
    assert not found.told(("b", "share"), priors["b", "share"])  # it has no runs


def test_every_number_of_a_step_is_lent():
    for name in NUMBERS:
        for framework in ("megatron-core-0.8", "torchtitan-0.1", "axolotl-0.5"):
            chain = (f"{framework}/Volta", "no-such-lineage", "Volta", "any")
            assert FIT.find("training", name, chain) == FIT.get("training", name, "any")


def test_factors_of_nearer_scopes_multiply_what_holds_for_any():
    def one(scope, value, unit="1", spread=0.2):
        words = {"law": "training", "name": "compute", "scope": scope, "value": value, "unit": unit, "spread": spread}
        return Constant(**words, rows=9, fitted="2026-01-01", source="runs of a publisher")

    known = Fit((one("any", 0.8), one("Hopper", 1.1, "x", 0.1), one("fsdp", 0.9, "x", 0.15)))
    found = known.find("training", "compute", ["fsdp-2/Hopper", "fsdp", "Hopper", "any"])
    assert found.value == pytest.approx(0.8 * 1.1 * 0.9)
    assert (found.scope, found.unit, found.spread) == ("fsdp", "1", 0.1)
    assert "0.8 for any x 1.1 for Hopper x 0.9 for fsdp" in found.citation
    assert known.find("training", "compute", ["Ada", "any"]) == known.get("training", "compute", "any")
    # what stands nearer and is no factor holds alone
    own = known.with_([one("fsdp-2/Hopper", 0.5)])
    assert own.find("training", "compute", ["fsdp-2/Hopper", "fsdp", "Hopper", "any"]).value == 0.5


def test_one_constant_may_hold_for_several_scopes():
    words = {"law": "message", "name": "start", "unit": "s", "spread": 0.1, "rows": 9, "fitted": "2026-01-01"}
    both = Constant(**words, scope="switch/Hopper", value=1e-5, source="a table", also=("switch/Ampere",))
    known = Fit((both, Constant(**words, scope="any", value=2e-5, source="a table")))
    found = known.find("message", "start", ["switch/Ampere", "any"])
    assert (found.value, found.scope, found.fitted_on) == (1e-5, "switch/Ampere", "switch/Ampere")
    assert known.find("message", "start", ["switch/Ada", "any"]).value == 2e-5
    nearer = replace(both, scope="switch/Ampere", value=3e-5, also=())
    assert known.with_([nearer]).find("message", "start", ["switch/Ampere", "any"]).value == 3e-5
    assert len(known.constants) == 2


def test_constants_stand_for_those_that_ask_for_the_same_number():
    def one(scope, value, spread=0.1, rows=9, source="published tables: here"):
        return entry("matmul", "bandwidth", scope, value, "1", spread, rows, source)

    wide, narrow, other = one("Ada", 0.8, rows=20), one("Hopper", 0.81), one("Ampere", 0.9)
    found = {item.scope: item.also for item in merged([one("any", 0.8), other, narrow, wide])}
    assert found == {"any": (), "Ada": ("Hopper",), "Ampere": ()}
    elsewhere = one("Hopper", 0.8, source="published tables: here, there")
    assert len(merged([wide, elsewhere])) == 2  # its rows are of publishers that the other knows nothing of
    assert len(merged([one("Ada", 0.8, spread=0.4, rows=20), narrow])) == 2  # nor is it surer of it


# Power -------------------------------------------------------------------------------------------


def test_a_higher_power_limit_sustains_more_of_the_peak():
    assert matmul.power_limited_share(0.5, 2.0, 1.0, 0.9) == pytest.approx(0.5 * 2.0 ** (1 / 3))
    assert matmul.power_limited_share(0.5, 1.0, 1.0, 0.9) == 0.5
    assert matmul.power_limited_share(0.8, 8.0, 1.0, 0.9) == 0.9


def test_power_tells_devices_of_one_architecture_apart():
    engine = catalogue.engine("vllm-0.11")
    share = {
        name: float(rates(machine(f"{name}:1")[0], engine, FIT).compute["bf16"])
        / rates(machine(f"{name}:1")[0], engine, FIT).peak["bf16"]
        for name in ("l40s", "rtx-4090", "rtx-6000-ada", "rtx-a5000", "a100-sxm-80")
    }
    assert share["rtx-6000-ada"] < share["l40s"] < share["rtx-4090"]
    # another process under the same name: the power of one says nothing of the other
    assert share["rtx-a5000"] == pytest.approx(share["a100-sxm-80"], rel=1e-3)


# A user's own runs -------------------------------------------------------------------------------


@pytest.fixture
def own_profile(monkeypatch, tmp_path):
    """Let the local profile stand in a folder of the test."""
    place = tmp_path / "kept" / "profile.toml"
    monkeypatch.setenv(profile.VARIABLE, str(place))
    return place


def slower(count, by):
    """Return published training runs as a machine that is slower by a factor would have run them."""
    rows = [row for row in catalogue.training_rows() if row["source_key"] == "torchtitan" and not row["quality"]]
    return [
        {**row, "norm_tokens_per_s_per_gpu": str(float(row["norm_tokens_per_s_per_gpu"]) / by), "measured_step_s": ""}
        for row in rows[:count]
    ]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return written(slower(12, 1.4), tmp_path_factory.mktemp("own") / "mine.csv")


def written(rows, place):
    """Write rows as a table, and return where it stands."""
    with place.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return place


@pytest.mark.slow
def test_own_runs_move_constants_towards_them(own_profile, table):
    found, place = rp.refit(str(table))
    steps = [at for at, one in enumerate(found.figures) if one.job == "training step"]
    before, held = (np.median(np.abs(errors[steps])) for errors in (found.before, found.held_out))
    assert found.helps
    assert held < 0.6 * before
    assert place == own_profile
    assert {item.scope for item in found.constants if item.law == "own"} == {
        "torchtitan-0.1/8xh100-sxm-96-hbm2e/8030261248 parameters in bf16"
    }
    assert all(one.after.source == "your runs: mine.csv (torchtitan)" and one.doubt <= 0.9 for one in found.moved)
    # what was kept holds from now on, and grades what it speaks of
    plan = rp.plan_training(
        "llama-3.1-8b", ["h100-sxm-96-hbm2e:8"], tokens="1B", batch="64seq", framework="torchtitan-0.1"
    ).plans[0]
    assert plan.metrics["step_time"].grade == "measured"
    assert plan.metrics["energy"].grade == "borrowed"  # nobody measured a watt
    # another model, and other devices, are not what was run
    for model, on in (("llama-2-7b", "h100-sxm-96-hbm2e:8"), ("llama-3.1-8b", "h100-sxm-96-hbm2e:4")):
        other = rp.plan_training(model, [on], tokens="1B", batch="64seq", framework="torchtitan-0.1").plans[0]
        assert other.metrics["step_time"].grade != "measured"
    # runs refit the shipped constants, whatever an earlier profile says: the table's first run comes out as before
    again, _ = rp.refit(slower(1, 1.4), keep=False)
    assert again.before == pytest.approx(found.before[: len(again.before)])


def test_runs_that_shipped_constants_describe_leave_them_alone(own_profile):
    found, place = rp.refit(slower(6, 1.0))
    assert np.median(np.abs(found.before)) < 0.2
    assert found.keeps or place is None
    assert found.keeps or not own_profile.exists()


def test_a_single_run_tells_the_slowdown_of_its_device(own_profile):
    found, place = rp.refit(slower(1, 1.5))
    assert found.single
    assert found.slowdown
    assert not found.helps
    assert place == own_profile
    (one,) = found.moved
    assert (one.after.law, one.after.name, one.after.scope) == ("slowdown", "time", "torchtitan/h100-sxm-96-hbm2e")
    assert 1.0 < one.after.value < 1.5
    assert one.doubt == pytest.approx(one.after.spread / one.before.spread, abs=2e-3)
    prior = next(item for item in profile.constants(place) if item.name == "prior")
    assert (prior.value, prior.kind) == (one.before.spread, "guess")
    assert profile.said(catalogue.shipped_fit()).startswith("1 constant from your runs")
    asked = {"tokens": "1B", "batch": "64seq", "framework": "torchtitan-0.1"}
    for model, on in (("llama-3.1-8b", "h100-sxm-96-hbm2e:8"), ("llama-2-7b", "h100-sxm-96-hbm2e:8")):
        plain, own = (
            rp.plan_training(model, [on], **asked, fit=fit).plans[0] for fit in (catalogue.shipped_fit(), None)
        )
        assert own.layout == plain.layout
        took, expected = (each.metrics["step_time"] for each in (own, plain))
        assert took.value == pytest.approx(one.after.value * expected.value, rel=0.01)
        assert took.high / took.low < 0.9 * expected.high / expected.low
    elsewhere = {
        rp.plan_training("llama-3.1-8b", ["a100-sxm-80:8"], **asked, fit=fit).plans[0].metrics["step_time"].value
        for fit in (catalogue.shipped_fit(), None)
    }
    assert len(elsewhere) == 1
    # the runs move the shipped constants, whatever a profile says: the same run tells the same again
    again, _ = rp.refit(slower(1, 1.5), fit=profile.over(catalogue.shipped_fit(), place))
    assert again.moved[0].after.value == one.after.value
    assert again.before == pytest.approx(found.before)


@pytest.mark.usefixtures("own_profile")
@pytest.mark.parametrize("count", [1, 2])
def test_runs_that_state_memory_alone_slow_no_device(count):
    rows = [row | {"norm_tokens_per_s_per_gpu": "", "measured_step_s": ""} for row in slower(count, 1.0)]
    found, place = rp.refit(rows)
    assert {one.job for one in found.figures} == {"training memory"}
    assert not any(one.after.law == "slowdown" for one in found.moved)
    assert place is None


@pytest.mark.usefixtures("own_profile")
def test_a_run_that_is_as_predicted_narrows_its_intervals():
    row = {
        "id": "a",
        "source_key": "mine",
        "model_name": "llama-3.1-8b",
        "accel_norm": "h100-sxm",
        "count": "1",
        "engine_name": "vllm",
        "engine_version": "0.11",
        "weight_precision": "bf16",
        "input_len": "1000",
        "output_len": "200",
        "running_batch": "8",
        "metric_kind": "serving",
        "tpot_ms": "7.5",
        "month": "2025-11",
    }
    found, _ = rp.refit([row])
    (one,) = found.moved
    assert one.after.scope == "vllm/h100-sxm"
    # throughput holds the same steps: it tells nothing more
    rate = {"output_tokens_per_s": str(8 / 7.5e-3)}
    both, _ = rp.refit([row | rate], keep=False)
    assert len(both.figures) == 2
    assert both.moved[0].after.spread == pytest.approx(one.after.spread, rel=0.1)
    asked = {"on": "h100-sxm:1", "engine": "vllm-0.11", "concurrency": "8"}
    plain, own = (
        rp.plan_serving("qwen2.5-7b", **asked, fit=fit).plans[0].metrics["tpot"]
        for fit in (catalogue.shipped_fit(), None)
    )
    assert own.value == pytest.approx(one.after.value * plain.value, rel=1e-3)
    assert own.high / own.low < plain.high / plain.low


@pytest.mark.usefixtures("own_profile")
def test_a_run_far_from_its_prediction_is_said_and_narrows_nothing():
    far, place = rp.refit(slower(1, 4.0))
    ((code, text),) = [one for one in far.warnings if one[0] == "far_from_predicted"]
    assert code == "far_from_predicted"
    assert "times as slow as predicted" in text
    assert [item.name for item in far.constants if item.law == "slowdown"] == ["time"]
    plain, own = (
        rp.plan_training(
            "llama-3.1-8b", ["h100-sxm-96-hbm2e:8"], tokens="1B", batch="64seq", framework="torchtitan-0.1", fit=fit
        )
        .plans[0]
        .metrics["step_time"]
        for fit in (catalogue.shipped_fit(), None)
    )
    assert own.high / own.low == pytest.approx(plain.high / plain.low, rel=1e-4)
    assert place is not None
    broken, place = rp.refit(slower(1, 1000.0))
    assert not broken.moved
    assert "tells nothing" in broken.warnings[-1][1]
    assert place is None


@pytest.mark.usefixtures("own_profile")
def test_a_run_that_contradicts_itself_is_not_kept():
    row = {
        "id": "a",
        "source_key": "mine",
        "model_name": "llama-3.1-8b",
        "accel_norm": "h100-sxm",
        "count": "1",
        "engine_name": "vllm",
        "engine_version": "0.11",
        "weight_precision": "bf16",
        "input_len": "1024",
        "output_len": "256",
        "client_concurrency": "32",
        "metric_kind": "serving",
        "tpot_ms": "18",
        "output_tokens_per_s": "300",
        "month": "2026-05",
    }
    found, place = rp.refit([row])
    assert found.moved
    assert not found.keeps
    assert place is None
    out = io.StringIO()
    refit_screen(found, place, Page(out))
    assert "takes another further away" in " ".join(out.getvalue().split())


@given(
    prior=st.floats(0.05, 0.5),
    noise=st.floats(0.05, 0.5),
    slow=st.floats(-1.0, 1.0),
    count=st.integers(1, 6),
)
def test_slowdowns_shrink_towards_what_was_expected(prior, noise, slow, count):
    factor, known = slowdown_of({"one": [(slow, noise)]}, prior)
    share = prior**2 / (prior**2 + noise**2)
    assert math.log(factor) == pytest.approx(share * slow)
    assert known.left == pytest.approx(prior * math.sqrt(1.0 - share))
    # runs of one model count as one, runs of several as several
    again, same = slowdown_of({"one": [(slow, noise)] * count}, prior)
    assert (again, same.left) == pytest.approx((factor, known.left))
    further, more = slowdown_of({str(number): [(slow, noise)] for number in range(count)}, prior)
    assert more.left <= known.left * (1.0 + 1e-12)
    assert abs(math.log(further)) >= abs(math.log(factor)) * (1.0 - 1e-12)


SLOW = {"law": SLOWDOWN, "name": "time", "unit": "1", "spread": 0.1, "rows": 1, "fitted": "", "source": "mine"}


@pytest.mark.parametrize(
    ("model", "on", "engine", "scope"),
    [
        ("llama-3.1-70b", "h100-sxm:8", "vllm-0.11", "vllm"),
        ("llama-3.1-70b", "h100-sxm:8", "tensorrt-llm-1.0", "tensorrt-llm"),
        ("deepseek-v3", "h200-sxm:8", "sglang-0.5", "sglang"),
        ("llama-3.1-8b", "rtx-4090:1", "llama.cpp-b11200", "llama.cpp"),
    ],
)
def test_a_slowdown_multiplies_every_time_of_a_step(model, on, engine, scope):
    shipped = catalogue.shipped_fit()
    own = shipped.with_([Constant(value=1.3, scope=f"{scope}/{on.partition(':')[0]}", **SLOW)])
    precision = {"precision": "q4_k_m"} if scope == "llama.cpp" else {}
    asked = {"on": on, "engine": engine, "concurrency": "4", **precision}
    first = rp.plan_serving(model, **asked, fit=shipped).plans[0]
    asked["strategy"] = first.label
    plain, slow = (rp.plan_serving(model, **asked, fit=fit).plans[0] for fit in (shipped, own))
    for name, factor in (("tpot", 1.3), ("ttft", 1.3), ("output_tokens_per_second", 1.0 / 1.3)):
        assert slow.metrics[name].value == pytest.approx(factor * plain.metrics[name].value, rel=1e-6)


@pytest.mark.parametrize("framework", ["megatron-core-0.16", "torchtitan-0.2", "deepspeed-0.16"])
@pytest.mark.parametrize("on", ["h100-sxm:8", "rtx-4090:8"])
def test_a_slowdown_multiplies_every_time_of_a_training_step(framework, on):
    shipped = catalogue.shipped_fit()
    name = catalogue.framework(framework).name
    own = shipped.with_([Constant(value=1.3, scope=f"{name}/{on.partition(':')[0]}", **SLOW)])
    plain, slow = (
        rp.plan_training("llama-3.2-1b", [on], tokens="1B", batch="64seq", framework=framework, fit=fit).plans[0]
        for fit in (shipped, own)
    )
    assert slow.layout == plain.layout
    kept = set() if plain.layout.offload == "none" else {"optimizer"}  # what the host does is not the device's
    for part, seconds in plain.step.parts.items():
        if part not in kept:
            assert float(slow.step.parts[part]) == pytest.approx(1.3 * float(seconds), rel=0.02), part


@pytest.mark.parametrize(
    ("name", "scope"), [("nemo", "megatron-bridge"), ("hf-trainer", "transformers"), ("axolotl", "axolotl")]
)
def test_a_slowdown_is_kept_under_the_name_that_plans_ask_for(name, scope):
    device = machine("h100-sxm:8")[0].device
    run = {"framework": name, "month": "2026-10", "accelerators_total": "8"}
    planned = framework_of(name, "full", ["h100-sxm:8"])
    assert slowdown_scope(row_framework(run, Assumed()), device) == slowdown_scope(planned, device)
    assert slowdown_scope(planned, device) == f"{scope}/h100-sxm"


def test_a_slowdown_lets_nothing_exceed_a_data_sheet():
    (one,) = machine("h100-sxm:8")
    engine, shipped = catalogue.engine("vllm-0.11"), catalogue.shipped_fit()
    found = rates(one, engine, shipped.with_([Constant(value=0.2, scope="vllm/h100-sxm", **SLOW)]))
    plain = rates(one, engine, shipped)
    assert all(found.compute[name] == found.peak[name] for name in found.compute)
    assert set(found.bandwidth.values()) == {found.wire}
    assert found.attention_share == 1.0
    assert found.vector_peak == plain.vector_peak
    assert (found.network.rate, found.network.outside) == (plain.network.rate, plain.network.outside)
    assert found.network.start == pytest.approx(0.2 * plain.network.start)
    assert any(item.law == SLOWDOWN for item in found.network.cites("start") if isinstance(item, Constant))
    assert not any(item.law == SLOWDOWN for item in found.sources["casts"] if isinstance(item, Constant))


@pytest.mark.usefixtures("own_profile")
def test_too_few_runs_claim_no_interval():
    ticks = []
    rows = [row | {"colour": "red"} for row in slower(2, 1.3)]
    found, _ = rp.refit(rows, keep=False, progress=lambda done, whole: ticks.append((done, whole)))
    assert found.warnings == [("unread_columns", "columns that are not read: colour")]
    assert [done for done, _ in ticks] == sorted({done for done, _ in ticks})
    assert ticks[-1][0] == ticks[-1][1] == len(ticks)
    assert np.isfinite(found.held_out).all()
    assert not [item for item in found.constants if item.law == "own"]


@pytest.mark.slow
@pytest.mark.usefixtures("own_profile")
def test_copies_of_a_run_count_once():
    rows = slower(3, 1.2)
    once, twice = (rp.refit(*tables, keep=False)[0] for tables in ((rows,), (rows, rows)))
    assert len(once.figures) == len(twice.figures)


@pytest.mark.parametrize("name", catalogue.ids("accelerators"))
def test_a_constant_under_another_scope_moves_no_rate(name):
    """What a constant was fitted on stays what it was when it is looked up under the device."""
    try:
        found, engine = machine(f"{name}:1")[0], catalogue.engine("vllm-0.11")
        before = rates(found, engine, FIT)
    except InputError:
        pytest.skip("cannot be planned with")
    watched = Watched(FIT.constants)
    rates(found, engine, watched)
    moved = {key: rescoped(key, item, item.value) for key, item in watched.consulted.items() if key[2] != "any"}
    assert moved
    after = rates(found, engine, FIT.with_(moved.values()))
    assert after.compute == pytest.approx(before.compute)
    assert after.bandwidth == pytest.approx(before.bandwidth)


def test_constants_that_predictions_ask_for_are_seen():
    watched = Watched(FIT.constants)
    rates(machine("h100-sxm:2")[0], catalogue.engine("vllm-0.11"), watched)
    found = watched.consulted
    assert ("kernel", "gap", "vllm-0.11/NVIDIA") in found
    assert ("matmul", "share.bf16", "h100-sxm") in found
    assert found["matmul", "share.bf16", "h100-sxm"].scope == "Hopper"
    assert all(0.1 <= prior_spread(item) <= 0.5 for item in found.values())


def test_rows_that_cannot_be_predicted_are_counted():
    rows = [{**row, "accel_norm": "other:abacus"} for row in slower(2, 1.0)]
    figures, skipped = figures_of([("training", rows)], FIT)
    assert not figures
    assert sum(skipped.values()) == 2
    with pytest.raises(InputError, match="--with: no row of rows can be predicted: 2 for accel_norm: "):
        rp.refit(rows, keep=False)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (None, "{file} cannot be read: No such file"),
        ("id;source_key\n1;me\n", "{file} separates its cells by semicolons"),
        ("id,source_key\n", "{file} holds no rows"),
        ("id,source_key\n1,me\n", "{file} is not a table of runs"),
    ],
)
def test_a_table_that_is_none_is_refused_by_the_flag_that_named_it(tmp_path, run, cells, said):
    file = tmp_path / "runs.csv"
    if cells is not None:
        file.write_text(cells)
    code, _, error = run("calibrate", "--with", str(file), "--dry-run")
    assert code == 2
    assert error.startswith(f"error: --with: {said.format(file=file)}")


@pytest.mark.slow
def test_the_screen_and_the_document(own_profile, table, tmp_path, run, run_json):
    single = written(slower(1, 1.4), tmp_path / "one.csv")
    code, out, _ = run("calibrate", "--with", str(single), "--dry-run")
    assert code == 0
    assert "training step" in out
    assert "nothing is kept (--dry-run)" in out
    assert not own_profile.exists()
    code, found = run_json("calibrate", "--with", str(table))
    keeps_to(found, answer_schema("calibrate"))
    assert code == 0
    assert found["profile"] == str(own_profile)
    assert found["helps"]
    assert {"shipped", "refitted", "held_out"} <= found["figures"][0].keys()
    _, _, err = run("train", "llama-3.1-8b", "--on", "h100-sxm:8", "--tokens", "1B", "--batch", "64seq")
    assert "profile: " in err
    code, listed = run_json("calibrate")
    keeps_to(listed, answer_schema("calibrate"))
    assert listed["profile"] == str(own_profile)
    assert str(own_profile) in run("calibrate")[1]
    assert "removed" in run("calibrate", "--forget")[1]
    assert "no local profile" in run("calibrate")[1]


def test_a_profile_of_other_constants_is_left_out_and_said(monkeypatch, tmp_path, run, run_json):
    gap = FIT.find("kernel", "gap", ["any"])
    other = FIT.with_([replace(gap, value=2.0 * gap.value)])
    place = tmp_path / "profile.toml"
    monkeypatch.setattr(profile, "path", lambda: place)
    profile.save([replace(gap, value=3.0 * gap.value, source="your runs: old.csv")], other)
    monkeypatch.delenv(profile.VARIABLE, raising=False)
    assert profile.over(FIT, place) is FIT
    assert profile.over(other, place).find("kernel", "gap", ["any"]).value == pytest.approx(3.0 * gap.value, rel=1e-3)
    err = " ".join(run("serve", "llama-3.1-8b", "--on", "h100-sxm:1")[2].split())
    assert "is left out" in err
    assert "roofplan calibrate --with FILE" in err
    _, found = run_json("serve", "llama-3.1-8b", "--on", "h100-sxm:1")
    assert [one["code"] for one in found["warnings"]].count("stale_profile") == 1
    assert "profile" not in found["versions"]
    monkeypatch.setenv(profile.VARIABLE, str(place))
    with pytest.raises(InputError, match="was made on other constants"):
        profile.over(FIT, place)


def test_a_broken_profile_is_refused_by_name(own_profile, run):
    own_profile.parent.mkdir(parents=True)
    own_profile.write_text("[[constant]]\nlaw = 3\n")
    code, _, err = run("serve", "llama-3.1-8b", "--on", "h100-sxm:1")
    assert code == 2
    assert str(own_profile) in err
    code, out, _ = run("serve", "llama-3.1-8b", "--on", "h100-sxm:1", "--json")
    assert code == 2
    assert json.loads(out)["error"]["argument"] == profile.VARIABLE
    # one that became unreadable is removed like any other; what is no profile may be somebody's file
    assert run("calibrate", "--forget")[0] == 0
    own_profile.write_text("#!/bin/sh\n")
    assert run("calibrate", "--forget")[0] == 2
    assert own_profile.exists()


@pytest.mark.parametrize("value", ["0.0", "-1.0", "nan", "inf", '"abc"'])
def test_a_profile_holds_positive_numbers(own_profile, value):
    words = (
        'law = "kernel"\nname = "gap"\nscope = "any"\nunit = "s"\nspread = 0.1\nrows = 2\nfitted = "x"\nsource = "y"\n'
    )
    own_profile.parent.mkdir(parents=True)
    own_profile.write_text(f"[[constant]]\n{words}value = {value}\n")
    with pytest.raises(InputError, match="is none that roofplan calibrate wrote"):
        profile.constants(profile.path())


@pytest.mark.usefixtures("own_profile")
def test_a_profile_keeps_any_name():
    item = replace(FIT.find("kernel", "gap", ["any"]), source="your runs: läufe-\U0001f600.csv")
    profile.save([item], FIT)
    assert profile.constants(profile.path()) == (item,)
    with pytest.raises(InputError, match="not a number that can be kept"):
        profile.save([replace(item, value=math.nan)], FIT)
    assert profile.constants(profile.path()) == (item,)


def test_no_profile_where_it_is_left_out(monkeypatch):
    monkeypatch.setenv(profile.VARIABLE, profile.NONE)
    assert profile.path() is None
    assert profile.constants(profile.path()) == ()
    with pytest.raises(InputError, match="nowhere to keep"):
        rp.refit(slower(3, 1.0))


def test_the_profile_stands_in_the_users_configuration(monkeypatch, tmp_path):
    monkeypatch.delenv(profile.VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert profile.path() == tmp_path / "roofplan" / "profile.toml"


# Publishers left out -----------------------------------------------------------------------------


def test_a_family_of_one_publisher_is_gone_without_it(monkeypatch):
    from roofplan.evidence.fits import training

    one_each = ((family, set(family.sources) & {"nemo-2407", "torchtitan"}) for family in training.FAMILIES)
    few = [replace(family, sources=tuple(sources)) for family, sources in one_each if sources]
    monkeypatch.setattr(training, "FAMILIES", tuple(few))
    found = training.fit_families(FIT.without(["nemo-2407"]))
    assert [family.framework for family in found.families] == ["torchtitan-0.1", "torchtitan-0.2"]
    entries = training.step_entries(found)
    assert not any("nemo" in item.source or item.scope.startswith("megatron-core-0.8") for item in entries)
    lent = next(x for x in entries if x.scope == "any" and x.name == "compute")
    assert lent.rows == sum(map(len, found.runs))
    assert [x.kind for x in entries if x.name == "sigma"] == ["guess"]


def test_numbers_are_surer_where_more_of_their_scopes_have_runs():
    chain = ("llm-foundry-0.3/Hopper", "pytorch-fsdp", "Hopper", "any")
    spreads = [FIT.find("training", "compute", chain[place:]).spread for place in range(4)]
    assert spreads == sorted(spreads)
    assert spreads[0] < spreads[-1]


def test_figures_that_stand_for_two_devices_move_nothing():
    rows = [row for row in catalogue.inference_rows() if row["source_key"] == "xiongjiedai-llamacpp"][:3]
    doubled = [*rows, *({**row, "accel_norm": "h100-sxm", "id": f"{row['id']}b"} for row in rows)]
    figures, skipped = figures_of([("inference", doubled)], FIT)
    assert not figures
    assert skipped == {"same_figures": 6}


def test_why_rows_are_skipped_is_wrapped_beneath_its_line():
    skipped = Counter({f"layout number {number} is not one that the engine takes": 1 for number in range(9)})
    none = np.array([])
    found = Refit(
        rows=9,
        figures=[],
        skipped=skipped,
        before=none,
        after=none,
        held_out=none,
        moved=[],
        constants=[],
        unread={"colour": ""},
    )
    out = io.StringIO()
    refit_screen(found, None, Page(out))
    first, *rest = out.getvalue().split("\n\n")[0].splitlines()
    assert first.startswith("9 rows: 0 figures used, 9 skipped (1 for layout number 0")
    *rest, told = rest
    assert len(rest) > 3
    assert all(line[:2] == "  " and line[2] != " " for line in rest)
    assert told == "  ! columns that are not read: colour"


# The whole refit ---------------------------------------------------------------------------------


def test_a_refit_writes_every_table_and_the_outcomes_before_the_intervals(monkeypatch):
    written = []
    monkeypatch.setattr(refit, "write", lambda name, _: written.append(name))
    monkeypatch.setattr(left_out, "save", lambda *_: written.append("outcomes"))
    monkeypatch.setattr(left_out, "left_out", lambda *_, **__: [])
    monkeypatch.setattr(left_out, "beside_shipped", lambda found, _: found)
    monkeypatch.setattr(intervals, "fit_intervals", lambda *_: ())
    monkeypatch.setattr(origins, "save", lambda *_: written.append("systems"))
    monkeypatch.setattr(serving, "fit_serving", lambda _: dict.fromkeys(left_out.SERVING, ()))
    monkeypatch.setattr(training, "fit_families", lambda _: SimpleNamespace(fitted=None))
    monkeypatch.setattr(training, "fit_training", lambda _: ())
    monkeypatch.setattr(sys, "argv", ["fits"])
    refit.main()
    by_hand = {"cpu"}  # measured on two processors, as its entry says
    assert sorted({*written} - {"outcomes", "systems"} | by_hand) == sorted(catalogue.fits())
    assert written[-3:] == ["systems", "outcomes", "intervals"]


def test_a_part_of_the_refit_leaves_the_others_alone(monkeypatch):
    written, kinds = [], []
    monkeypatch.setattr(refit, "write", lambda name, _: written.append(name))
    monkeypatch.setattr(left_out, "save", lambda found, _: written.append([one.id for one in found]))
    monkeypatch.setattr(left_out, "left_out", lambda kind, *_, **__: kinds.append(kind) or [SimpleNamespace(id="new")])
    kept = [SimpleNamespace(id=one) for one in ("llmf-001", "splitwise-sim-0001")]
    monkeypatch.setattr(left_out, "kept", lambda *_: kept)
    monkeypatch.setattr(left_out, "kept_groups", lambda _: [])
    monkeypatch.setattr(left_out, "beside_shipped", lambda found, _: found)
    monkeypatch.setattr(intervals, "fit_intervals", lambda *_: ())
    monkeypatch.setattr(training, "fit_families", lambda _: SimpleNamespace(fitted=None))
    monkeypatch.setattr(sys, "argv", ["fits", "publishers", "inference"])
    refit.main()
    assert kinds == ["inference"]
    assert written == [["llmf-001", "new"], "intervals"]
    monkeypatch.setattr(sys, "argv", ["fits", "constant"])
    with pytest.raises(SystemExit, match="constants"):
        refit.main()


@pytest.mark.slow
def test_publishers_are_left_out_alike_by_processes_and_in_parts():
    """Of publishers on whose rows no constant rests, so that nothing is fitted."""
    used = frozenset().union(*(names_in(item.source) for item in FIT.constants))
    rows = [
        row
        for name in ("nvidia-gap-runs", "lmdeploy-docs")
        for row in catalogue.inference_rows()
        if row["source_key"] == name
    ]
    rows = [*rows[:3], *rows[-3:]]
    assert used.isdisjoint(row["source_key"] for row in rows)
    ticks = []
    alone = left_out.left_out("inference", rows, None, tick=ticks.append)
    aside = left_out.left_out("inference", rows, None, jobs=2)
    assert len(ticks) == len({row["source_key"] for row in rows}) > 1
    assert {one.left_out for one in alone} == {"publisher"}
    key = attrgetter("id", "metric")
    assert [(*key(one), one.predicted and one.predicted.value) for one in alone] == [
        (*key(one), one.predicted and one.predicted.value) for one in aside
    ]
    together = left_out.left_out("inference", rows, None, folds=1)
    assert sorted(map(key, together)) == sorted(map(key, alone))


def test_a_job_is_worse_only_beyond_a_tenth():
    before = np.array([1.0, 1.0, 5.0])
    for now, worse in ((FURTHER, False), (1.001 * FURTHER, True), (0.5, False)):
        assert _worsens(before, np.array([now, now, 0.0]), [True, True, False]) is worse


def test_the_prior_of_a_slowdown_is_the_spread_that_its_device_had_before_runs():
    scope = "vllm/h100-sxm"
    before = Constant(**{**SLOW, "spread": 0.3}, scope=scope, value=1.0)
    prior = _prior_of(Moved(before=before, after=replace(before, value=1.2, spread=0.05), doubt=0.2))
    assert (prior.law, prior.name, prior.scope, prior.value, prior.spread) == (SLOWDOWN, "prior", scope, 0.3, 0.0)


def test_grouped_products_lose_what_kernel_tables_say_they_do():
    """What rows and width take is found again in mixtures that were made by the law."""
    table = [row for row in kernels.kernel_rows() if row["kernel"] == "moe"]
    found = {item.name: item for item in kernels.fit_grouped(table, FIT)}
    assert found["rows"].rows == len(table) > 400
    assert 1.0 < found["most"].value < 1.6
    most, rows, width = (found[name].value for name in ("most", "rows", "width"))
    h100, laptop = 295.0, 31.0  # ridge points [FLOP/B]
    assert matmul.grouped_share(4096.0, 16384.0, h100, most, rows, width) > 0.95
    assert matmul.grouped_share(128.0, 512.0, h100, most, rows, width) < 0.7
    assert matmul.grouped_share(128.0, 512.0, laptop, most, rows, width) > 0.95
    slower = [{**row, "latency_us": str(2.0 * float(row["latency_us"]))} for row in table]
    assert kernels.fit_grouped(slower, FIT)[0].value < found["most"].value


def test_a_profile_that_is_named_but_not_there_is_told_from_one_that_nobody_named(monkeypatch, tmp_path):
    monkeypatch.setenv(profile.VARIABLE, str(tmp_path / "mine.toml"))
    assert profile.named_and_absent()
    (tmp_path / "mine.toml").write_text("")
    assert not profile.named_and_absent()
    monkeypatch.delenv(profile.VARIABLE)
    monkeypatch.setattr(profile, "path", lambda: tmp_path / "none.toml")
    assert not profile.named_and_absent()


def test_what_is_left_out_counts_as_never_made(monkeypatch):
    """A chip's rows and kernel tables, or a system's rows."""
    origin = Origin(source="me", chip="b200", system=System("Blackwell", "fp8", "dense", "vllm"))
    for name in ("me", "chip:b200", "architecture:Blackwell", "software:vllm", "system:Blackwell fp8 dense vllm"):
        assert name in origin.names
    whole = SimpleNamespace(constants=FIT, fitted=None)
    seen = []
    monkeypatch.setattr(left_out, "fit_serving", lambda _, gone: seen.append(gone) or {})
    for gone in ("chip:h200-sxm", "architecture:Hopper"):
        fit = left_out._fit_leaving(frozenset({gone}), whole, "inference")
        assert seen[-1] == {gone}
        here, before = (f.find("matmul", "share.bf16", ["Hopper", "any"]) for f in (fit, FIT))
        assert here.rows < before.rows or here.scope != before.scope
    assert left_out._fit_leaving(frozenset({"system:Nothing 16-bit dense vllm"}), whole, "training") == FIT.without(
        ["system:Nothing 16-bit dense vllm"]
    )


def test_systems_that_are_left_out_are_new():
    figure = TIME_PER_TOKEN
    known = System("Hopper", "16-bit", "dense", "vllm")
    assert known in catalogue.measured_systems(figure)
    for gone in ("software:vllm", "architecture:Hopper", f"system:{known}"):
        assert known not in catalogue.measured_systems(figure, frozenset({gone}))
    publishers = {one.source for name, one in origins.origins(FIT) if name == figure and one.system == known}
    assert known not in catalogue.measured_systems(figure, frozenset(publishers))


def test_systems_of_the_catalogue_are_those_of_todays_rows(tmp_path):
    origins.save(FIT, tmp_path / "systems.csv")
    assert (tmp_path / "systems.csv").read_text() == catalogue.SYSTEMS.read_text()


def test_left_out_runs_are_read_as_they_were_written(tmp_path):
    doubt = Doubt(0.1, "kind", "queue", (("cache", 0.2), ("prompt", 0.3)))
    metric = sure(TIME_PER_TOKEN, "borrowed", doubt, FIT).of(0.1, "s")
    one = Outcome(
        id="x",
        source="me",
        metric="tpot",
        regime="burst",
        measured=0.2,
        predicted=metric,
        system=System("Hopper", "fp8", "dense", "vllm"),
        left_out="system",
    )
    left_out.save([one], tmp_path / "rows.csv")
    (found,) = left_out.kept(FIT, tmp_path / "rows.csv")
    assert found.predicted == metric
    assert (found.system, found.left_out, found.measured) == (one.system, "system", 0.2)
    assert left_out.kept(FIT, tmp_path / "nothing.csv") == []


@pytest.mark.parametrize(
    ("single", "moved", "keeps", "said"),
    [
        (True, (), True, "adds nothing"),
        (True, (1,), False, "brings one figure"),
        (True, (1,), True, "--dry-run"),
        (False, (1,), False, "other runs of yours"),
        (False, (1,), True, "--dry-run"),
    ],
)
def test_why_nothing_is_kept_is_said(single, moved, keeps, said):
    assert said in _where_kept(SimpleNamespace(single=single, moved=moved, keeps=keeps), None)


@pytest.mark.parametrize(
    ("rows", "law", "spread", "prior"),
    [
        (5, "bandwidth", 0.3, 0.3),
        (5, "bandwidth", 0.01, 0.1),
        (5, "bandwidth", 2.0, 0.5),
        (0, "bandwidth", 0.3, 0.5),
        (5, "engine_step", 0.3, 0.5),
        (5, "front_end", 0.01, 0.5),
    ],
)
def test_constants_of_one_s_own_machine_vary_by_what_published_ones_do(rows, law, spread, prior):
    assert prior_spread(SimpleNamespace(rows=rows, law=law, spread=spread)) == prior


def test_rows_of_numbers_are_read_as_a_file_of_them():
    row = {"id": 1, "source_key": "own", "model_name": "llama-3.1-8b", "accel_norm": "h100-sxm", "count": 1, "tp": 1}
    row |= {"engine_name": "vllm", "engine_version": "0.11", "weight_precision": "bf16", "input_len": 1024.0}
    row |= {"output_len": 128, "running_batch": 8, "tpot_ms": 9.0, "hf_model_id": None, "kv_precision": math.nan}
    texts = {name: "" if value is None or value != value else f"{value}" for name, value in row.items()}  # noqa: PLR0124
    found, own = (rp.validate("inference", [one]) for one in (row, texts))
    assert [one.predicted for one in found.outcomes] == [one.predicted for one in own.outcomes]
    with pytest.raises(InputError, match="tp: a list is not a valid cell"):
        rp.refit([{**row, "tp": [1]}], keep=False)
    with pytest.raises(InputError, match="keep is 'no'; expected true or false"):
        rp.refit([row], keep="no")


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 0.0])
def test_a_constant_that_cannot_be_is_refused(value):
    broken = replace(FIT.constants[0], law="slowdown", name="time", scope="vllm/h100-sxm", value=value, unit="1")
    with pytest.raises(InputError, match=r"fit: slowdown\.time for vllm/h100-sxm is"):
        rp.plan_serving("llama-3.1-8b", ["h100-sxm:1"], fit=FIT.with_([broken]))
