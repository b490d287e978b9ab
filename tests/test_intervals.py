"""How wide intervals are: causes of error, what they are learned from, and that every command prints the same."""

import functools
import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import roofplan as rp
from roofplan import catalogue
from roofplan.catalogue.machines import machine
from roofplan.errors import RoofplanError
from roofplan.evidence.alternatives import alternatives
from roofplan.evidence.engines import VERSION
from roofplan.evidence.fits.intervals import (
    COVERED,
    LEAST_SOURCES,
    OutcomeArrays,
    _factors_of_groups,
    beyond_left_out,
    coverage,
    fit_intervals,
    guaranteed,
    judged,
    sizes_of,
    width_of,
)
from roofplan.evidence.fits.left_out import kept, kept_groups, save
from roofplan.evidence.inference import case_of, inference_case
from roofplan.evidence.predictions import training_figures
from roofplan.evidence.rows import Skipped
from roofplan.evidence.scoring import Outcome
from roofplan.evidence.serving_figures import predicted_figures
from roofplan.evidence.training import training_case
from roofplan.hf.find import read_model
from roofplan.money.uncertainty import student
from roofplan.records.calibration import Constant
from roofplan.records.engine import EAGER
from roofplan.records.strategy import Strategy
from roofplan.records.system import System
from roofplan.records.workload import Constraints, Workload
from roofplan.serving import Request, Tally, evaluate
from roofplan.serving.bounds import bounded, floors, leaves
from roofplan.serving.certainty import _bearing, _front, by_constants
from roofplan.serving.plan import sure_of
from roofplan.timing.figures import (
    FIGURE_OF,
    FIRST_TOKEN,
    FRONT,
    MIXTURE,
    NEW,
    NEW_KIND,
    SHARED,
    STAND_IN,
    STEP,
    THROUGHPUT,
    TIME_PER_TOKEN,
    Doubt,
    Metric,
    Told,
    causes,
    flat,
    grade_of_constant,
    interval_factor,
    parted,
    spread_of,
    sure,
)
from roofplan.timing.rates import rates
from roofplan.training.certainty import ALTERNATIVES, Asked, _span
from roofplan.training.plan import TrainingRequest, planned
from roofplan.training.step import step

FIT = catalogue.shipped_fit()
SYSTEMS = [System("Hopper", "fp8", kind, "vllm") for kind in ("dense", "mixture", "hybrid")]


def outcome(error, source="a", system=SYSTEMS[0], left_out="publisher", **doubt):
    value = math.exp(error)
    metric = Metric(value, value / 2.0, value * 2.0, "s", "calibrated", Doubt(**doubt))
    return Outcome(
        id=f"{source}-{error}",
        source=source,
        metric="tpot",
        regime="static batch",
        measured=1.0,
        predicted=metric,
        system=system,
        left_out=left_out,
        assumed=tuple(name for name, _ in doubt.get("assumed", ())),
    )


def drawn(count, publishers=12, seed=0, **doubt):
    """Return errors of 0.1, and 0.2 more where the system is new."""
    rng = np.random.default_rng(seed)
    sizes = [math.hypot(0.1, 0.2 * bool(doubt.get("new")), *(x for _, x in doubt.get("assumed", ())))] * count
    return [outcome(float(rng.normal(0.0, size)), f"p{n % publishers}", **doubt) for n, size in enumerate(sizes)]


def test_a_spread_is_the_root_sum_of_squares_of_its_causes():
    doubt = Doubt(constants=0.1, new="kind", load="queue", assumed=(("recompute", 0.3), ("network", 0.2)))
    found = causes(TIME_PER_TOKEN, doubt, FIT)
    assert set(found) == {"base", "publishers", "constants", "new system", "new kind", "queue", "recompute", "network"}
    assert spread_of(TIME_PER_TOKEN, doubt, FIT) == pytest.approx(math.sqrt(sum(x * x for x in found.values())))
    assert "new system" not in causes(TIME_PER_TOKEN, Doubt(), FIT)
    assert "queue" not in causes(TIME_PER_TOKEN, Doubt(), FIT)


def blind(distances, figure=TIME_PER_TOKEN):
    """Return rows of a blind test whose measurements lie so many halves of their intervals off, a publisher each."""
    return [
        {"figure": figure, "source": f"p{n}", "measured": str(2.0**far), "predicted": "1", "low": "0.5", "high": "2"}
        for n, far in enumerate(distances)
    ]


@pytest.mark.parametrize("figure", [STEP, TIME_PER_TOKEN, THROUGHPUT, FIRST_TOKEN])
def test_own_runs_shrink_what_all_runs_on_a_device_share(figure):
    doubt = Doubt(constants=0.1, new="system", load="queue", assumed=(("network", 0.2),), traits=(MIXTURE,))
    plain = sure(figure, "borrowed", doubt, FIT)
    noise, shared = parted(plain.of(1.0, "s"))
    assert math.hypot(noise, shared) == pytest.approx(spread_of(figure, doubt, FIT))
    halves = []
    for left in (1.0, 0.6, 0.3, 0.0):
        told = sure(figure, "borrowed", doubt._replace(told=Told(shared, left * shared)), FIT)
        apart, together = parted(told.of(1.0, "s"))
        assert apart == pytest.approx(noise)
        assert together == pytest.approx(left * shared, abs=1e-12)
        halves.append(told.half)
    assert halves[0] == pytest.approx(plain.half)
    assert halves == sorted(halves, reverse=True)
    # what was less doubted before leaves as much of what is doubted more
    half = parted(sure(figure, "borrowed", doubt._replace(told=Told(shared / 2.0, 0.0)), FIT).of(1.0, "s"))[1]
    assert half == pytest.approx(math.sqrt(0.75) * shared)
    assert not SHARED & {MIXTURE, NEW, NEW_KIND}


def test_a_blind_test_that_misses_further_than_left_out_runs_widens_intervals():
    assert beyond_left_out([], TIME_PER_TOKEN) == 1.0
    assert beyond_left_out(blind([2.0] * 20, THROUGHPUT), TIME_PER_TOKEN) == 1.0
    assert beyond_left_out(blind([0.5] * 20), TIME_PER_TOKEN) == 1.0  # never narrower
    assert beyond_left_out(blind([2.0] * 20), TIME_PER_TOKEN) == pytest.approx(2.0**0.5)  # as many as the expectation
    assert beyond_left_out(blind([-2.0] * 60), TIME_PER_TOKEN) == pytest.approx(2.0**0.75)
    few_far = [*[0.1] * 19, 9.0]
    assert beyond_left_out(blind(few_far), TIME_PER_TOKEN) == 1.0  # nine of ten lie inside
    twice = [*blind([0.1] * 8), *(row | {"source": "many"} for row in blind([3.0] * 100))]
    assert beyond_left_out(twice, TIME_PER_TOKEN) == pytest.approx(3.0 ** (9 / 29))  # publishers weigh alike
    rows = drawn(240)
    assert width_of(rows, wider=1.5).factor == pytest.approx(1.5 * width_of(rows).factor)


def test_own_runs_stand_in_place_of_the_causes():
    own = Constant(
        law="own", name=TIME_PER_TOKEN, scope="x", value=0.1, unit="1", spread=0.05, rows=9, fitted="", source=""
    )
    found = sure(TIME_PER_TOKEN, "guessed", Doubt(new="system"), FIT, own).of(1.0, "s")
    assert (found.grade, found.doubt) == ("measured", None)
    assert found.high == pytest.approx(math.exp(0.1)) == pytest.approx(1.0 / found.low)


def test_what_clients_are_sent_is_no_surer_than_their_time_per_token():
    halves = {
        figure: sure(figure, "borrowed", Doubt(load="clients"), FIT).half for figure in (TIME_PER_TOKEN, THROUGHPUT)
    }
    assert halves[THROUGHPUT] >= halves[TIME_PER_TOKEN]
    alone = sure(THROUGHPUT, "borrowed", Doubt(), FIT).half
    assert alone == pytest.approx(interval_factor(THROUGHPUT, FIT) * spread_of(THROUGHPUT, Doubt(), FIT))


def test_what_lies_anywhere_between_two_values_spreads_evenly():
    rng = np.random.default_rng(0)
    assert flat(1.0, 3.0) == pytest.approx(np.std(rng.uniform(0.0, math.log(3.0), 200_000)), rel=0.01)
    assert flat(2.0, 2.0) == 0.0


@pytest.mark.slow
def test_sizes_of_causes_are_found_again():
    """Runs whose publishers stayed in the fits err by 0.1; a new publisher adds 0.15, a new system 0.2."""
    rng = np.random.default_rng(0)

    def rows(left_out, size, **doubt):
        draws = rng.laplace(0.0, size / math.sqrt(2.0), 4000)
        return [outcome(float(x), f"p{n % 40}", left_out=left_out, **doubt) for n, x in enumerate(draws)]

    every = [
        *rows("system", math.hypot(0.1, 0.2), new="system"),
        *rows("software", 0.1),
        *rows("publisher", math.hypot(0.1, 0.15)),
        *rows("publisher", math.hypot(0.1, 0.15, 0.3), assumed=(("network", 0.3),)),
    ]
    found = sizes_of(OutcomeArrays.of(every))
    assert found["base"] == pytest.approx(0.1, rel=0.15)
    assert found["publishers"] == pytest.approx(0.15, rel=0.15)
    assert found["new system"] == pytest.approx(0.2, rel=0.15)
    assert "queue" not in found
    assert "constants" not in found


def test_a_cause_that_few_show_stays_near_its_guess():
    calm = drawn(1200)
    (wild,) = [replace(outcome(3.0, "p1", load="queue"))]
    found = sizes_of(OutcomeArrays.of([*calm, wild]))
    assert found["queue"] < 0.5
    many = sizes_of(OutcomeArrays.of([*calm, *(outcome(1.0, f"p{n % 12}", load="queue") for n in range(240))]))
    assert many["queue"] > 0.8


def test_publishers_weigh_equally_and_their_systems_within_them():
    rows = [outcome(0.1, "a") for _ in range(5)]
    rows += [outcome(0.1, "b", system) for system in SYSTEMS[:2] for _ in range(10)] + [outcome(0.1, "b", SYSTEMS[2])]
    weights = OutcomeArrays.of(rows).weights()
    assert weights[:5].sum() == pytest.approx(0.5)
    assert weights[5:15].sum() == pytest.approx(1 / 6) == pytest.approx(weights[25])


def test_a_publisher_of_one_run_weighs_as_much_as_any():
    rows = [*drawn(240), outcome(0.1, "lonely")]
    assert OutcomeArrays.of(rows).weights()[-1] == pytest.approx(1 / 13)
    many = width_of([*drawn(240), *(outcome(2.0, f"lonely-{n}") for n in range(6))])
    assert many.factor > 1.5 * width_of([*drawn(240), *(outcome(2.0, "one") for _ in range(6))]).factor


def test_a_factor_holds_nine_of_ten_of_a_new_publisher():
    rows = drawn(2400)
    width = width_of(rows)
    assert width.halves(OutcomeArrays.of(rows[:1]))[0] == pytest.approx(0.1645, rel=0.1)
    found = coverage(judged(rows, []))
    assert found.members == 12
    assert found.share == pytest.approx(COVERED, abs=0.02)
    assert found.low <= found.share <= found.high
    assert found.width == pytest.approx(math.exp(2 * 0.1645), rel=0.1)
    assert found.score >= 2 * 0.16


def test_publishers_that_err_by_themselves_enlarge_intervals():
    shifted = [outcome(0.05 * (n % 12) + 0.001 * n, f"p{n % 12}") for n in range(600)]
    width = width_of(shifted)
    inside = np.abs([math.log(one.ratio) for one in shifted]) <= width.halves(OutcomeArrays.of(shifted))
    assert np.mean(inside) > COVERED  # more than nine of ten that it saw, for those that it did not
    calm = drawn(600)
    assert (
        np.mean(np.abs([math.log(one.ratio) for one in calm]) <= width_of(calm).halves(OutcomeArrays.of(calm)))
        < COVERED + 0.02
    )


def test_few_publishers_ask_for_students_t():
    few = drawn(300, publishers=4)
    assert width_of(few).factor >= student(3.0)
    assert width_of(drawn(30, publishers=1)).factor >= student(1.0)
    notes = {item.name: item.note for item in fit_intervals(few, [], FIT)}
    assert f"fewer than {LEAST_SOURCES}" in notes[TIME_PER_TOKEN]
    many = {item.name: item.note for item in fit_intervals(drawn(300), [], FIT)}
    assert "no coverage" not in many[TIME_PER_TOKEN]


@pytest.mark.parametrize(("publishers", "known"), [(LEAST_SOURCES - 1, False), (LEAST_SOURCES, True)])
def test_the_least_number_of_publishers_is_enough(publishers, known):
    (note,) = [i.note for i in fit_intervals(drawn(300, publishers), [], FIT) if i.name == TIME_PER_TOKEN]
    assert ("no coverage" not in note) is known


@pytest.mark.parametrize("count", [8, 9, 12])
def test_ranks_alone_say_nothing_of_a_new_publisher_with_fewer_than_nine(count):
    rows = drawn(900, publishers=count)
    width = width_of(rows)
    found = guaranteed(rows, width)
    assert math.isinf(found) is (count < 9)
    assert found > 0.9 * width.factor


def test_what_is_left_out_is_judged_by_the_others():
    rows = [*drawn(300), *(outcome(2.0, "far", system=System("Ada", "fp8", "dense", "vllm")) for _ in range(30))]
    groups = [replace(one, left_out="architecture") for one in rows]
    widths = {mine[0].system.architecture: width for mine, width in judged(rows, groups, "architecture")}
    assert (
        widths["Ada"].halves(OutcomeArrays.of(rows[:1]))[0]
        < 0.3
        < widths["Hopper"].halves(OutcomeArrays.of(rows[:1]))[0]
    )


@pytest.mark.slow
def test_shipped_intervals_are_those_of_the_kept_outcomes():
    for item in fit_intervals(kept(FIT), kept_groups(FIT), FIT, catalogue.blind_rows()):
        assert FIT.find(item.law, item.name, ["any"]).value == pytest.approx(item.value, rel=0.02), item.name


# One bracket a question --------------------------------------------------------------------------


@functools.cache
def served_cases():
    """Return what published runs of serving whose users are known come to, with their users."""
    found = []
    for row in catalogue.inference_rows():
        try:
            case = inference_case(row)
        except Skipped:
            continue
        known = case.users or (case.clients if case.regime == "closed loop" else None)
        if known and float(known).is_integer() and not case.engine.stands_for:
            found.append((case, int(known)))
    return found


@pytest.mark.slow
def test_serve_prints_the_bracket_that_validate_scores():
    """Of every published closed loop whose clients all run, and of every batch of one: what `serve` asks of.

    What a static batch puts out is told by its decoding alone, and some time the prompt apart from the answers.
    `serve` shows the front end beside its first token, not in it.
    """
    compared = 0
    for case, users in served_cases():
        if case.regime != "closed loop" and users > 1:
            continue
        s = case.strategy
        degrees = {
            "tp": int(s.tp),
            "pp": int(s.pp),
            "dp": int(s.dp),
            "ep": int(s.ep),
            "attention_dp": int(s.attention_dp),
        }
        asked = Request(
            model=case.model,
            machines=(case.machine,),
            workload=case.workload,
            constraints=Constraints(concurrency=users),
            engine=case.engine.id,
            kv_precisions=("fp8" if case.kv_bytes < 1.5 else "checkpoint",),
            pins=degrees,
        )
        try:
            plans, scored = evaluate(asked, Tally(), FIT), predicted_figures(replace(case, unstated=()), FIT)
        except (RoofplanError, Skipped):
            continue
        seats = min(case.book().max_concurrency, plans[0].metrics["max_concurrency"].value) if plans else 0.0
        if not plans or (case.clients and case.clients > seats):
            continue
        for name, figure in scored.items():
            printed = plans[0].metrics.get(name)
            static = case.regime != "closed loop"
            told_apart = {"prefill_tokens_per_second", *(["output_tokens_per_second"] if static else [])}
            told_apart |= {"ttft"} if round(case.prompt) != case.workload.input else set()
            if printed is None or not isinstance(figure, Metric) or name in told_apart:
                continue
            assert printed.doubt.new == figure.doubt.new, case.row["id"]
            assert static or printed.doubt.load == figure.doubt.load, case.row["id"]
            assert static or printed.grade == figure.grade, case.row["id"]
            off = 0.15 if static else 0.05
            alone = sure(FIGURE_OF[name], figure.grade, figure.doubt._replace(front=0.0), FIT)
            scored_high = alone.of(figure.value, figure.unit).high
            whole = sure(FIGURE_OF[name], printed.grade, printed.doubt, FIT).of(printed.value, printed.unit).high
            if min(figure.high / scored_high, printed.high / whole) < 1.0 - 1e-9:
                continue  # a data sheet cuts one of them
            up = (printed.high / printed.value, scored_high / figure.value)
            assert up[0] == pytest.approx(up[1], rel=off), (case.row["id"], name)
            compared += 1
    assert compared > 200


@functools.cache
def trained_cases():
    """Return what published runs of training with a rate come to."""
    found = []
    for row in catalogue.training_rows():
        try:
            case = training_case(row)
        except Skipped:
            continue
        if case.rate is not None:
            found.append(case)
    return found


@pytest.mark.slow
def test_train_prints_the_bracket_that_validate_scores():
    for case in trained_cases()[::7]:
        if case.doubts or case.framework.stands_for:
            continue
        asked = TrainingRequest(
            model=case.model, machines=(case.machine,), job=case.job, framework=case.framework, unstated=case.unstated
        )
        printed = planned(asked, case.machine, case.layout, FIT).metrics["tokens_per_second_per_device"]
        scored = training_figures(case, FIT)[0]["tokens_per_second_per_device"]
        assert printed.grade == scored.grade
        assert printed.value == pytest.approx(scored.value)
        assert printed.low == pytest.approx(scored.low)
        assert printed.high <= scored.high * (1.0 + 1e-9)  # a plan ends at the peak of its devices


# What is assumed widens ----------------------------------------------------------------------------


@pytest.mark.parametrize("unstated", ["recompute", "micro-batch", "network", "imbalance"])
@pytest.mark.slow
def test_stating_what_was_assumed_narrows_a_step_or_leaves_it(unstated):
    found = [case for case in trained_cases() if unstated in case.unstated][:12]
    assert found
    narrower = 0
    for case in found:
        stated = replace(case, unstated=tuple(name for name in case.unstated if name != unstated))
        wide, narrow = (training_figures(one, FIT)[0]["tokens_per_second_per_device"] for one in (case, stated))
        assert wide.value == narrow.value
        assert wide.low <= narrow.low * (1.0 + 1e-12)
        assert wide.high >= narrow.high * (1.0 - 1e-12)
        narrower += wide.high / wide.low > narrow.high / narrow.low
    assert narrower


@pytest.mark.slow
def test_stating_the_recomputation_of_a_row_narrows_it():
    case = next(case for case in trained_cases() if "recompute" in case.unstated)
    row = {**case.row, "recompute": case.layout.recompute}
    stated = training_case(row)
    wide, narrow = (training_figures(one, FIT)[0]["tokens_per_second_per_device"] for one in (case, stated))
    assert narrow.value == pytest.approx(wide.value)
    assert narrow.high / narrow.low < wide.high / wide.low


def test_either_end_of_unknown_recomputation_lies_inside():
    for case in [case for case in trained_cases() if "recompute" in case.unstated][:10]:
        bracket = training_figures(case, FIT)[0]["tokens_per_second_per_device"]
        for recompute in ("none", "full"):
            other = replace(case, layout=replace(case.layout, recompute=recompute), unstated=())
            value = training_figures(other, FIT)[0]["tokens_per_second_per_device"].value
            assert bracket.low <= value * (1 + 1e-9)
            assert value <= bracket.high * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("unstated", ["engine version", "prompt", "cache"])
def test_stating_what_was_assumed_narrows_a_served_figure_or_leaves_it(unstated):
    found = []
    for row in catalogue.inference_rows():
        try:
            case = inference_case(row)
        except Skipped:
            continue
        if unstated in case.unstated and case.regime in {"static batch", "steady batch"}:
            found.append(case)
    assert found
    narrower = 0
    for case in found[:: max(1, len(found) // 10)]:
        stated = replace(case, unstated=tuple(name for name in case.unstated if name != unstated))
        for name, wide in predicted_figures(case, FIT).items():
            narrow = predicted_figures(stated, FIT)[name]
            if isinstance(wide, Metric) and isinstance(narrow, Metric):
                assert wide.value == narrow.value
                assert wide.high / wide.low >= narrow.high / narrow.low * (1.0 - 1e-12)
                narrower += wide.high / wide.low > narrow.high / narrow.low
    assert narrower


@pytest.mark.parametrize(
    ("release", "beside"),
    [("vllm-0.2", ["vllm-0.6"]), ("vllm-0.8", ["vllm-0.6", "vllm-0.11"]), ("vllm-0.33", ["vllm-0.20"])],
)
@pytest.mark.slow
def test_the_releases_beside_one_are_its_own(release, beside):
    case = next(one for one, _ in served_cases() if one.engine.name == "vllm")
    versions = [other.engine.id for other in alternatives(replace(case, engine=catalogue.engine(release)), VERSION)]
    assert versions == beside


def test_a_stand_in_is_new_and_wider():
    case = training_case({**trained_cases()[0].row, "framework": "picotron"})
    own = training_case(trained_cases()[0].row)
    found, plain = (training_figures(one, FIT)[0]["tokens_per_second_per_device"] for one in (case, own))
    assert case.framework.stands_for
    assert found.doubt.new
    assert found.doubt.traits == (STAND_IN,)
    assert dict(found.causes)[STAND_IN] > 0.1
    assert found.high / found.low > plain.high / plain.low


def test_figures_have_names_of_their_own():
    assert FIGURE_OF["tokens_per_second_per_device"] == STEP
    assert len(set(FIGURE_OF.values())) == len(FIGURE_OF)


@pytest.mark.slow
def test_a_network_that_nobody_stated_is_assumed_and_widens_a_step():
    def planned_on(machine):
        found = rp.plan_training("llama-3.1-8b", [machine], batch="64seq")
        return found.asked, found.plans[0].metrics["step_time"]

    asked, open_ = planned_on("rtx-4090:2x8")
    assert asked.unstated == ("network",)
    assert any("as it is sold" in text for text in asked.assumed)
    network = f"{asked.machines[0].network.id}x{asked.machines[0].ports}"
    named, stated = planned_on(f"rtx-4090:2x8@{network}")
    assert named.unstated == ()
    assert stated.value == pytest.approx(open_.value)
    assert stated.high / stated.low < open_.high / open_.low
    assert planned_on("dgx-h100:2")[0].unstated == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "said", "open_"),
    [("mixtral-8x7b", None, True), ("mixtral-8x7b", 1.2, False), ("llama-3.1-8b", None, False)],
)
def test_imbalance_of_experts_is_open_unless_it_is_said(model, said, open_):
    asked = rp.plan_training(model, ["dgx-h100"], batch="64seq", method="lora", imbalance=said).asked
    assert ("imbalance" in asked.unstated) == open_


@pytest.mark.slow
@pytest.mark.parametrize("text", ["dgx-h100:2", "2xDGX-H100"])
def test_a_server_named_in_either_spelling_comes_with_its_network(text):
    asked = rp.plan_training("llama-3.1-8b", [text], batch="64seq").asked
    assert asked.unstated == ()
    assert not any("as it is sold" in one for one in asked.assumed)


RATES = rates(machine("h100-sxm:1")[0], catalogue.engine("vllm-0.20"), FIT)


def test_a_first_token_is_as_uncertain_as_its_part_of_the_front_end():
    spreads = (replace(RATES.sources["front"][0], spread=0.5), replace(RATES.sources["front"][1], spread=0.8))
    r = replace(RATES, front=0.001, delay=0.04, sources={**RATES.sources, "front": spreads})
    assert _front(SimpleNamespace(value=0.019), r) == pytest.approx(math.hypot(0.0005, 0.032) / 0.06)
    assert _front(SimpleNamespace(value=0.019), replace(r, front=0.0, delay=0.0)) == 0.0
    plain, behind = (causes(FIRST_TOKEN, Doubt(front=front), FIT) for front in (0.0, 0.5))
    assert FRONT not in plain
    assert behind[FRONT] == pytest.approx(0.5 * FIT.find("spread", f"{FIRST_TOKEN}, {FRONT}", ["any"]).value)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_what_rests_on_the_same_constants_counts_as_much_together_as_apart(engine):
    plan = rp.plan_serving("qwen3-30b-a3b", ["h100-sxm:2"], engine=engine, strategy="tp=2", concurrency="4").plans[0]
    whole, r = plan.prediction.cycle, plan.rates
    borne = Counter()
    for leaf, value in leaves(whole):
        for item, share in _bearing(leaf, r):
            borne[item] += value * share
    apart = math.hypot(*(part / float(whole.value) * item.spread for item, part in borne.items()))
    assert by_constants(whole, r)[1] == pytest.approx(apart)


@pytest.mark.slow
def test_first_tokens_of_clients_alone_hold_the_front_end():
    rows = [row for row in catalogue.inference_rows() if row["ttft_ms"] and not row["quality_flags"]]
    seen = {}
    for row in rows[::9]:
        try:
            case = inference_case(row)
            found = predicted_figures(replace(case, unstated=()), FIT).get("ttft")
        except (Skipped, RoofplanError):
            continue
        if found is not None and not isinstance(found, str):
            seen.setdefault(found.doubt.load, set()).add(found.doubt.front > 0.0)
    assert seen["client"] == seen["clients"] == {True}
    assert seen.get("queue", {False}) == {False}


@pytest.mark.slow
def test_a_network_that_is_not_stated_is_slower_if_anything():
    case = next(case for case in trained_cases() if "network" in case.unstated and case.machine.hosts > 8)
    (other,) = ALTERNATIVES["network"](Asked(case.model, case.job, case.layout, case.machine, case.framework))
    own, slower = (one.network.quantities["bandwidth"].value for one in (case.machine, other.machine))
    assert slower == pytest.approx(0.25 * own)
    asked, ability = Asked(case.model, case.job, case.layout, case.machine, case.framework), case.ability(FIT)
    time = float(step(case.model, case.job, case.layout, ability).time)
    low, high = _span("network", asked, ability, time)
    assert low == 1.0
    assert high >= 1.0


@pytest.mark.slow
def test_kept_outcomes_keep_their_part_of_the_front_end(tmp_path):
    outcomes = [one for one in kept(FIT) if one.metric == "ttft" and one.predicted.doubt.front][:40]
    assert outcomes
    save(outcomes, tmp_path / "kept.csv")
    again = kept(FIT, tmp_path / "kept.csv")
    assert [one.predicted.doubt for one in again] == [one.predicted.doubt for one in outcomes]


def test_no_interval_reaches_what_a_data_sheet_rules_out():
    """A token takes no less than one read of the weights that it passes, whoever asks, and users get no more than that."""
    asked = {"precision": "q4_k_m", "engine": "llama.cpp", "concurrency": "1", "output": "256"}
    plan = rp.plan_serving("llama-3.1-8b", on="gb10", **asked).plans[0]
    least = floors(plan.model, plan.strategy, plan.workload, plan.rates, 1)
    assert plan.metrics["tpot"].low == least.token
    assert plan.metrics["tokens_per_second_per_user"].high == 1.0 / least.token
    assert plan.metrics["output_tokens_per_second"].high <= plan.users / least.token
    wide = Metric(3.0 * least.token, 0.1 * least.token, 9.0 * least.token, "s", "guessed")
    known = bounded(dict.fromkeys(("tpot", "ttft", "e2e"), wide), least, users=4.0, first=2.0 * least.token)
    assert (known["tpot"].low, known["tpot"].high) == (least.token, wide.high)
    assert known["ttft"].low == 2.0 * least.token
    assert known["e2e"] == wide
    rate = bounded({"output_tokens_per_second": replace(wide, high=9.0 / least.token)}, least, users=4.0, first=0.0)
    assert rate["output_tokens_per_second"].high == 4.0 / least.token
    probed = bounded({"tpot": wide}, replace(least, by_data_sheet=False), users=4.0, first=0.0)
    assert probed["tpot"] == wide  # what a probe read is no limit


def test_validate_and_simulate_rule_out_the_same():
    one = {"model_name": "Llama-3.1-8B", "accel_norm": "gb10", "count": "1", "engine_name": "llama.cpp", "id": "x"}
    stated = {"weight_precision": "q4_k_m", "engine_version": "b11200", "month": "2026-01", "source_key": "mine"}
    row = one | stated | {"input_len": "512", "output_len": "128", "client_concurrency": "2", "tpot_ms": "40"}
    case = case_of({**row, "metric_kind": "serving", "lengths": "fixed"})
    least = floors(case.model, case.strategy, case.workload, case.rates(FIT), 1)
    assert predicted_figures(case, FIT)["tpot"].low == pytest.approx(least.token)
    load = {"clients": "2", "input": "512", "output": "128", "requests": "40", "precision": "q4_k_m"}
    seen = rp.simulate("llama-3.1-8b", on="gb10", engine="llama.cpp-b11200", **load).simulation
    assert seen.figures["tpot"].metric.low == pytest.approx(least.token)


def test_inputs_that_are_not_stated_loosen_what_is_ruled_out():
    one = {"model_name": "Llama-3.1-8B", "accel_norm": "gb10", "count": "1", "engine_name": "vllm", "id": "x"}
    row = one | {"source_key": "mine", "month": "2026-01", "input_len": "128", "output_len": "128"}
    batch = row | {"running_batch": "1", "tpot_ms": "40", "metric_kind": "latency"}
    stated, unsaid = (case_of({**batch, "weight_precision": form}) for form in ("bf16", ""))
    least = floors(stated.model, stated.strategy, stated.workload, stated.rates(FIT), 1).token
    assert predicted_figures(stated, FIT)["tpot"].low == pytest.approx(least)
    assert predicted_figures(unsaid, FIT)["tpot"].low < 0.9 * least  # 8 bits are read in half the time


@pytest.mark.parametrize("strategy", [{"dp": 4}, {"pp": 4}, {"dp": 2, "pp": 2}])
def test_a_token_takes_no_less_than_a_read_for_the_users_of_its_replica_and_wave(strategy):
    model, r = read_model("mixtral-8x7b"), rates(machine("h100-sxm:4")[0], catalogue.engine("vllm-0.20"), FIT)

    def least(users, **degrees):
        layout = Strategy(**{"tp": 1, "pp": 1, "dp": 1, "ep": 1, "attention_dp": 1} | degrees)
        return floors(model, layout, Workload(input=1024, output=128, context=2048), r, users).token

    assert least(8, **strategy) == pytest.approx(least(2))


def test_more_than_one_user_are_clients_to_an_interval():
    plan = rp.plan_serving("llama-3.1-8b", on="h100-sxm:1", concurrency="1").plans[0]
    known = [sure_of(replace(plan, users=users), TIME_PER_TOKEN, plan.prediction.tpot) for users in (1, 2, 8)]
    assert [one.doubt.load for one in known] == ["client", "clients", "clients"]


def test_a_batch_over_expert_ranks_is_bounded_by_its_work_not_by_the_widest_degree():
    model, r = read_model("deepseek-r1"), rates(machine("h200-sxm:8")[0], catalogue.engine("vllm-0.20"), FIT)
    wide = Strategy(tp=1, pp=1, dp=8, ep=8, attention_dp=1)
    least = floors(model, wide, Workload(input=1024, output=128, context=2048), r, 1)
    assert least.whole / 8 <= least.first < least.whole


def test_stages_that_take_a_prompt_in_pieces_share_its_work():
    model, engine = read_model("llama-3.1-8b"), catalogue.engine("llama.cpp-b11200")
    r = rates(machine("rtx-4090:2")[0], engine, FIT)
    least = floors(model, Strategy(pp=2), Workload(input=1024, output=128, context=2048), r, 1)
    assert least.first == pytest.approx(least.whole / 2)
    copies = {name: item for name, item in engine.memory.items() if name != "pipeline_copies"}
    r = rates(machine("rtx-4090:2")[0], replace(engine, memory=copies), FIT)
    least = floors(model, Strategy(pp=2), Workload(input=1024, output=128, context=2048), r, 1)
    assert least.first == pytest.approx(least.whole)


def test_a_run_cut_to_its_device_counts_by_the_end_that_is_not_cut():
    row = {"figure": TIME_PER_TOKEN, "source": "p", "measured": "1.5", "predicted": "1", "low": "0.5", "high": "1"}
    assert beyond_left_out([row], TIME_PER_TOKEN) == 1.0
    names = {one["figure"] for one in catalogue.blind_rows()}
    assert all(1.0 <= beyond_left_out(catalogue.blind_rows(), name) < 2.0 for name in names)


@pytest.mark.parametrize(
    ("said", "grade"),
    [
        ({"kind": "definition", "fitted_on": ""}, 1),
        ({"kind": "guess", "fitted_on": ""}, 3),
        ({"kind": "fit", "fitted_on": "Hopper"}, 1),
        ({"kind": "fit", "fitted_on": "any"}, 2),
        ({"kind": "fit", "fitted_on": "NVIDIA"}, 2),
        ({"kind": "fit", "fitted_on": "AMD"}, 1),
        ({"kind": "fit", "fitted_on": EAGER}, 2),
    ],
)
def test_constants_have_the_grade_of_what_they_were_fitted_on(said, grade):
    assert grade_of_constant(SimpleNamespace(**said), "NVIDIA") == grade


@pytest.mark.parametrize(("members", "count"), [(4, 0), (5, 1), (6, 1)])
def test_an_axis_of_few_members_widens_nothing(members, count):
    outcomes = SimpleNamespace(
        errors=np.arange(1.0, 13.0), spreads=lambda _: np.full(12, 2.0), members=[np.arange(12) % members]
    )
    found = list(_factors_of_groups(outcomes, None))
    assert len(found) == count
    assert all(4.5 < one < 6.0 for one in found)
    outcomes.members = [np.where(np.arange(12) < 6, np.arange(12), -1)]
    assert [one < 3.1 for one in _factors_of_groups(outcomes, None)] == [True]
