"""Shipped constants are those that today's fits make of today's published rows."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import small_fits
from conftest import FIT

from roofplan import catalogue, plan_serving
from roofplan.catalogue.machines import machine
from roofplan.evidence.engines import engine_of
from roofplan.evidence.fits import __main__ as command
from roofplan.evidence.fits import fitting, left_out, prompts
from roofplan.evidence.fits import training as fits_training
from roofplan.evidence.fits.engines import decodes, steady_run
from roofplan.evidence.fits.hierarchy import Block, Prior, fit, linearised
from roofplan.evidence.fits.kernels import fit_attention, fit_grouped, fit_matmul, fit_vector, kernel_rows
from roofplan.evidence.fits.left_out import SERVING
from roofplan.evidence.fits.messages import fit_messages
from roofplan.evidence.fits.prices import fit_prices
from roofplan.evidence.fits.prompts import _First, fit_front, fit_prefill, host_launch, latencies, running
from roofplan.evidence.fits.runs import At, usable
from roofplan.evidence.fits.serving import fit_serving
from roofplan.evidence.fits.training import FAMILIES, belongs, cases, fit_families, fit_training
from roofplan.evidence.inference import clean_cases, known_cases, queues
from roofplan.evidence.rows import Assumed
from roofplan.operations.table import Operation
from roofplan.serving import leaves
from roofplan.serving.space import named_engine
from roofplan.timing.kernels import kernels_of
from roofplan.timing.rates import at_home, rates

EXACT, ITERATED, FLAT = 1e-6, 1e-3, 0.05
"""Relative differences of constants that are counted, that are searched for, and that many runs hardly tell apart [1]."""

TOLD = ("unit", "rows", "source", "kind", "note", "basis")
"""What is said of each constant."""


@pytest.mark.parametrize("family", FAMILIES, ids=[family.scope for family in FAMILIES])
def test_every_publisher_of_a_family_has_runs_in_it(family):
    for source in family.sources:
        assert any(belongs(case, family) for case in cases(source)), source


def same(name, made, tolerance):
    shipped = {(item.law, item.name, item.scope): item for item in catalogue.fit(name)}
    assert shipped.keys() == {(item.law, item.name, item.scope) for item in made}
    for item in made:
        kept = shipped[item.law, item.name, item.scope]
        assert item.value == pytest.approx(kept.value, rel=tolerance), kept
        assert item.spread == pytest.approx(kept.spread, rel=tolerance, abs=tolerance), kept
        assert [getattr(item, one) for one in TOLD] == [getattr(kept, one) for one in TOLD]


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("matmul", lambda: fit_matmul(kernel_rows(), FIT)),
        ("vector", fit_vector),
        ("attention", lambda: fit_attention(kernel_rows())),
        ("messages", lambda: fit_messages(kernel_rows())),
        ("grouped", lambda: fit_grouped(kernel_rows(), FIT)),
        ("prices", fit_prices),
    ],
)
def test_constants_of_kernels_and_prices(name, make):
    same(name, make(), EXACT)


@pytest.mark.slow
def test_constants_of_training():
    same("training", fit_training(fit_families(FIT)), FLAT)


@pytest.mark.slow
def test_engines_without_prompts_are_taken_to_reach_the_kernels_rate():
    nobody = replace(FIT, excluded=frozenset(row["source_key"] for row in catalogue.inference_rows()))
    found = {(item.name, item.scope): item for item in fit_prefill(nobody)}
    assert found["compute_share", "any"].value == 1.0
    assert found["compute_share", "any"].kind == "guess"
    assert found["block_share", "any"].value == 1.0
    assert {scope for _, scope in found} == {"any", "training"}


def test_runs_whose_users_queued_are_not_fitted_on():
    assert 0.9 * len(known_cases()) < len(clean_cases()) < len(known_cases())
    assert not any(map(queues, clean_cases()))


@pytest.mark.slow
def test_constants_of_serving():
    others = [item for name in catalogue.fits() if name not in SERVING for item in catalogue.fit(name)]
    for name, made in fit_serving(others).items():
        same(name, made, ITERATED)


def test_a_version_takes_its_front_ends_latency_from_its_publishers_and_once_from_its_engine():
    waits = {
        "vllm": {"a": [0.02] * 3, "b": [0.08] * 3},
        "vllm-0.11": {"a": [0.005] * 5},
        "vllm-0.8": {"a": [0.5] * 2},
        "sglang": {"c": [0.1, 0.2, 0.2, 0.3, -1.0]},
    }
    found = {one.scope: one.value for one in latencies(waits)}
    assert found["vllm"] == pytest.approx(0.05)
    assert found["vllm-0.11"] == pytest.approx((0.005 * 0.05) ** 0.5, rel=1e-3)
    assert found["sglang"] == pytest.approx(0.2)
    assert found["any"] == pytest.approx((0.05 * 0.2) ** 0.5, rel=1e-3)
    assert "vllm-0.8" not in found  # two runs
    (guess,) = latencies({})
    assert (guess.kind, guess.scope) == ("guess", "any")


def first_token(publisher, kernels, device, launch=4e-5, front=0.01):
    """Return a first token that a host with some time of a launch, and a front end, make late; simulated without launches."""
    seconds = max(device, kernels * launch) + front
    return _First(publisher, seconds, behind=seconds - device, kernels=kernels, device=device, launch=0.0)


def test_first_tokens_tell_a_launch_from_a_front_end():
    runs = [
        first_token(name, kernels, device)
        for name in "abc"
        for kernels, device in ((300, 5e-3), (900, 0.02), (2700, 0.03), (2700, 0.4))
    ]
    slower = [first_token("d", *one, front=0.2) for one in ((300, 5e-3), (900, 0.02), (2700, 0.03), (2700, 0.4))]
    found = host_launch({"vllm": runs, "sglang": slower})
    assert (found.scope, found.kind, found.rows) == ("any", "fit", 16)
    assert found.value == pytest.approx(4e-5)
    assert [run.late(found.value) for run in runs] == pytest.approx([0.01] * len(runs))
    assert host_launch({"vllm": runs[:4]}).kind == "guess"  # one publisher
    assert host_launch({"vllm": [run._replace(kernels=0.0) for run in runs]}).kind == "guess"


@pytest.mark.slow
def test_first_tokens_on_devices_of_other_vendors_tell_nothing_of_a_front_end(monkeypatch):
    away = [case for case in clean_cases() if case.row["source_key"] == "optimum-neuron"]
    assert all("ttft" in case.measured for case in away)
    monkeypatch.setattr("roofplan.evidence.fits.prompts.usable", lambda _: away)
    assert {(item.scope, item.kind) for item in fit_front(FIT)} == {("any", "guess")}


RECORDED = json.loads(small_fits.FILE.read_text())
QUICK = ("intervals 4",)
DIGITS, MOVES = 1e-5, 2e-3
"""Relative differences of constants that are counted, and of those that are searched for on few runs [1]."""


def test_every_small_fit_is_recorded():
    assert list(RECORDED) == [f"{name} {part}" for name in small_fits.NAMES for part in small_fits.FITTED]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in RECORDED]
)
def test_fits_to_a_few_publishers_have_not_moved(name):
    what, part = name.split()
    now, tolerance = small_fits.figures(small_fits.made(what, int(part))), DIGITS if what == "intervals" else MOVES
    assert now.keys() == RECORDED[name].keys()
    for constant, (value, spread, rows, kind) in RECORDED[name].items():
        told = [pytest.approx(value, rel=tolerance), pytest.approx(spread, rel=5 * tolerance, abs=tolerance)]
        assert now[constant] == [*told, rows, kind], constant


def test_requests_in_flight_are_their_times_over_the_span_of_the_run():
    times = {"arrivals": np.array([3.0, 4.0]), "last": np.array([5.0, 7.0])}
    seen = SimpleNamespace(**times, figure=lambda name: {"e2e": times["last"] - times["arrivals"]}[name])
    assert running(seen) == pytest.approx((2.0 + 3.0) / (7.0 - 3.0))


@pytest.mark.parametrize(("seats", "known"), [(0, False), (1, True)])
def test_an_offline_run_keeps_as_many_sequences_as_memory_admits(seats, known):
    case = SimpleNamespace(
        running=None,
        tpot=None,
        measured={"output_tokens_per_second": 50.0},
        regime="offline",
        in_flight=True,
        requests=None,
        book=lambda: SimpleNamespace(max_concurrency=seats),
        steady=lambda users, fit: SimpleNamespace(cycle=(users, fit)),
    )
    assert steady_run(case, "fit") == ((1.0, 0.02, (1.0, "fit")) if known else None)


@pytest.mark.parametrize(
    ("apart", "prompts", "known"), [(True, 1.0, 0.04), (False, 1.0, 0.0304), (False, 2.0, None), (True, 5.0, 0.04)]
)
def test_a_batch_tells_its_decode_steps_by_its_rate(apart, prompts, known, monkeypatch):
    monkeypatch.setattr("roofplan.evidence.fits.engines.decodes_apart", lambda *_: apart)
    case = SimpleNamespace(
        running=2.0,
        at_once=2.0,
        tpot=None,
        measured={"output_tokens_per_second": 50.0},
        regime="static batch",
        workload=SimpleNamespace(output=101),
        row={},
        engine=None,
        steady=lambda users, fit: (users, fit),
        measured_term=lambda found: found,
        prompts_term=lambda _: SimpleNamespace(value=prompts),
    )
    found = steady_run(case, "fit")
    assert found == (None if known is None else (2.0, pytest.approx(known), (2.0, "fit")))


@pytest.mark.slow
def test_steps_are_fitted_where_an_engine_is_at_home():
    found = decodes(FIT)
    assert all(at_home(row.case.engine, row.case.machine.device) for row in found)
    assert {"NVIDIA", "AMD", "Apple", "mlx"} <= {row.whose for row in found if row.engine == "llama.cpp"}
    assert len({row.case.row["source_key"] for row in found if row.engine == "llama.cpp"}) > 40
    for row in found:
        assert any(row.layers.values()) == (row.case.model.kind != "dense" and "kernels" in _launches(row))


def _launches(row):
    term = row.case.measured_term(row.case.steady(row.sequences, FIT))
    return next(leaf.numbers for leaf, _ in leaves(term) if leaf.name == "launches")


@pytest.mark.parametrize(
    ("engine", "device", "scope"),
    [
        ("llama.cpp", "rtx-4090", "llama.cpp/NVIDIA"),
        ("llama.cpp", "apple-m3-max", "llama.cpp/Apple"),
        ("llama.cpp", "strix-halo", "llama.cpp-b11200/AMD"),
        ("mlx", "apple-m3-max", "mlx"),
    ],
)
def test_kernels_follow_each_other_as_their_vendors_do(engine, device, scope):
    asked = named_engine(engine)
    r = rates(machine(f"{device}:1")[0], asked, FIT)
    gap = r.sources["gap"][0]
    assert gap.scope in {scope, scope.replace("llama.cpp/", "llama.cpp-b11200/")}
    assert r.gap == gap.value
    slowest = FIT.find("kernel", "gap", ["llama.cpp/Apple"]).value
    assert FIT.find("kernel", "gap", ["llama.cpp/NVIDIA"]).value < FIT.find("kernel", "gap", ["mlx"]).value < slowest


def test_expert_layers_launch_more_kernels_than_are_counted():
    r = rates(machine("h100-sxm:1")[0], named_engine("vllm"), FIT)
    table = [
        Operation("draft routed experts", "experts", 0.0, 0.0, kernels=7.0, extra="routed experts"),
        Operation("sampling", "memory", 0.0, 0.0, kernels=6.0),
    ]
    more = FIT.find("kernel", "routed experts", r.engine.scopes).value
    assert [kernels_of(op, r) for op in table] == [7.0 + more, 6.0]


def test_each_measurement_may_have_a_weight_of_its_own():
    measured, priors = np.array([1.0, 1.0, 4.0]), {"x": Prior(0.0, 10.0)}

    def value(weight):
        block = Block(numbers={"x": ("x",)}, errors=lambda p: np.log(p["x"] / measured), weight=weight)
        return fit([block], priors).number(["x"])

    assert value(np.array([1e-6, 1e-6, 1.0])) == pytest.approx(4.0, rel=0.1)
    assert value(np.array([1.0, 1.0, 1e-6])) == pytest.approx(1.0, rel=0.05)
    assert value(np.ones(3)) == pytest.approx(value(1.0))


def test_publishers_weigh_alike_in_the_spread_of_prompts():
    assert prompts._spread([[0.5] * 100, [0.4], [0.625]]) == pytest.approx(1.4826 * np.log(1.25))
    assert prompts._spread([[0.4, 0.5, 0.6]]) > 0.2


def test_slopes_are_the_same_at_once_and_one_by_one():
    measured = np.array([[1.0], [2.0], [5.0]])

    def errors(p):
        off = np.log((p["x"] + measured * p["y"] ** 2) / measured)
        return off if np.ndim(p["x"]) else off[:, 0]

    numbers, logs = {"x": ("x",), "y": ("y",)}, np.log([0.3, 0.7])
    one_by_one, at_once = (
        linearised(Block(numbers=numbers, errors=errors, at_once=how), logs) for how in (False, True)
    )
    for seen, expected in zip(at_once, one_by_one, strict=True):
        np.testing.assert_allclose(seen, expected, rtol=1e-12)


@pytest.mark.slow
def test_what_follows_from_rates_is_remembered_until_they_change():
    case = next(one for one in usable(frozenset()) if one.engine.name == "vllm")
    gap = case.rates(FIT).sources["gap"][0]
    slower = FIT.with_([replace(gap, value=2.0 * gap.value)])
    later = FIT.with_([replace(one, value=2.0 * one.value) for one in FIT.constants if one.law == "front_end"])
    assert At(case, FIT) == At(case, FIT.without(["nobody"]))
    assert At(case, FIT) != At(case, slower)
    assert At(case, FIT) == At(case, later)
    assert At(case, FIT, queues=True) != At(case, later, queues=True)


@pytest.mark.slow
def test_the_parts_of_a_step_make_up_its_time():
    rows = [row for row in decodes(FIT) if row.scope in {"vllm-0.11", "tensorrt-llm-0.17"} and not row.reads]
    assert {row.case.model.kind for row in rows} >= {"dense", "mixture"}
    for row in rows:
        r, predicted = row.case.rates(FIT), steady_run(row.case, FIT)[2]
        kernels = row.kernels + sum(count * r.extra_kernels[name] for name, count in row.layers.items())
        host = kernels * r.gap + r.step_base + r.step_each * row.sequences
        own = f"experts.{row.stored}"
        experts = row.experts * r.wire / r.bandwidth[own if own in r.bandwidth else "experts"]
        assert row.fixed + host + experts == pytest.approx(float(predicted.value), rel=0.02), row.case.row["id"]


def test_software_with_kernels_of_its_own_has_one_profile():
    row = next(row for row in catalogue.inference_rows() if row["source_key"] == "chigkim-m3-max")
    assert row["month"] == "2024-12"
    assert engine_of(row, Assumed()).id == named_engine("mlx").id


def test_a_mixture_on_a_processor_is_planned():
    plans = plan_serving("qwen3-30b-a3b", ["epyc-9554:1"], concurrency=1, precision="q4_k_m").plans
    assert plans


@pytest.mark.parametrize(
    ("words", "done"),
    [
        ([], [("refit", {}), ("leave_publishers_out", ["training", "inference"])]),
        (["constants"], [("refit", {"kernels": False})]),
        (["publishers"], [("leave_publishers_out", ["training", "inference"])]),
        (["publishers", "training"], [("leave_publishers_out", ["training"])]),
        (["folds"], [("check_folds", ["training", "inference"])]),
        (["folds", "inference"], [("check_folds", ["inference"])]),
        (["groups"], [("leave_groups_out", ["training", "inference"])]),
        (["groups", "inference"], [("leave_groups_out", ["inference"])]),
        (["worth"], [("tell_worth", None)]),
    ],
)
def test_fits_do_what_their_command_line_asks_for(words, done, monkeypatch):
    seen = []
    for name in ("leave_publishers_out", "check_folds", "leave_groups_out", "tell_worth", "refit"):

        def told(*given, name=name, **named):
            seen.append((name, given[0] if given else named if name == "refit" else None))

        monkeypatch.setattr(command, name, told)
    monkeypatch.setattr("sys.argv", ["fits", *words])
    command.main()
    assert seen == done


def test_other_fits_are_refused(monkeypatch):
    monkeypatch.setattr("sys.argv", ["fits", "everything"])
    with pytest.raises(SystemExit, match="fits"):
        command.main()


def left(identity, system="h100-sxm", metric="ttft", figure="prompts", **more):
    """Return an outcome of a run, predicted unless said otherwise."""
    return SimpleNamespace(id=identity, system=system, metric=metric, figure=figure, predicted=1.0, **more)


@pytest.mark.parametrize("kind", ["training", "inference"])
def test_each_group_is_left_out_in_turn_and_only_its_runs_are_predicted(kind, monkeypatch):
    scored = {"training": left_out.STEP, "inference": left_out.PROMPTS}[kind]
    runs = [left("a", figure=scored), left("b", system="a100-sxm-80", figure=scored), left("c", figure="other")]
    runs += [
        SimpleNamespace(**{**vars(left("d", figure=scored)), "predicted": None}),
        left("e", system="", figure=scored),
    ]
    rows = [{"id": one.id} for one in runs]
    monkeypatch.setattr(left_out.catalogue, f"{kind}_rows", lambda: rows)
    monkeypatch.setattr(
        left_out, "validated", lambda *given: SimpleNamespace(outcomes=runs) if given[:2] == (kind, rows) else None
    )
    member = {axis: lambda one: one.system for axis in left_out.GROUPED[kind]}
    monkeypatch.setattr(left_out, "MEMBER", member)
    monkeypatch.setattr(left_out, "_fit_leaving", lambda gone, *_: next(iter(gone)))
    by_id = {one.id: one for one in runs}
    monkeypatch.setattr(left_out, "_outcomes", lambda _, row, fit: [SimpleNamespace(**vars(by_id[row["id"]]), fit=fit)])
    monkeypatch.setattr(left_out, "replace", lambda one, **more: SimpleNamespace(**vars(one), **more))
    told = []
    found = left_out.grouped(kind, SimpleNamespace(constants=None), told.append)
    assert told == [f"{kind} {axis} {name}" for axis in member for name in ("a100-sxm-80", "h100-sxm")]
    for axis, figure in left_out.GROUPED[kind].items():
        seen = [(one.id, one.fit) for one in found if one.left_out == axis]
        wanted = [("b", f"{axis}:a100-sxm-80"), ("a", f"{axis}:h100-sxm"), ("c", f"{axis}:h100-sxm")]
        assert seen == (wanted[:2] if figure else wanted)


def test_runs_short_of_cache_are_left_out_in_a_regime_of_their_own(monkeypatch):
    plain, starved = {"id": "a", "flags": ""}, {"id": "b", "flags": left_out.STARVED}
    monkeypatch.setattr(left_out, "fit_without", lambda gone, start: (gone, start))
    monkeypatch.setattr(left_out, "flags", lambda row: row["flags"])
    monkeypatch.setattr(left_out, "short_of_cache", lambda row, fit: [("short", row["id"], fit)])
    monkeypatch.setattr(left_out, "inference_outcomes", lambda row, fit: [("served", row["id"], fit)])
    monkeypatch.setattr(left_out, "training_outcomes", lambda row, fit: ([("trained", row["id"], fit)], None))
    monkeypatch.setattr(left_out, "replace", lambda one, left_out: (*one[:2], left_out))
    gone = frozenset({"x"})
    assert left_out._leave("inference", None, gone, [plain, starved]) == [
        ("served", "a", "publisher"),
        ("short", "b", "publisher"),
    ]
    assert left_out._leave("training", None, gone, [plain]) == [("trained", "a", "publisher")]
    monkeypatch.undo()
    monkeypatch.setattr(left_out, "training_outcomes", lambda *_: (["t"], None))
    monkeypatch.setattr(left_out, "inference_outcomes", lambda *_: ["i"])
    assert left_out._outcomes("training", {}, FIT) == ["t"]
    assert left_out._outcomes("inference", {}, FIT) == ["i"]


def test_numbers_of_training_are_worth_what_errors_are_without_them(monkeypatch):
    """Each number in turn is held at its prior; entries that are no fit do not count."""
    names = list(fits_training.NUMBERS)
    entries = [SimpleNamespace(kind="fit", name=names[0]), SimpleNamespace(kind="fit", name=names[0])]
    entries += [SimpleNamespace(kind="fit", name=names[1]), SimpleNamespace(kind="guess", name=names[1])]
    monkeypatch.setattr(fits_training, "step_entries", lambda _: entries)
    monkeypatch.setattr(fits_training, "fit_families", lambda *given: ("held", *given[2]))
    monkeypatch.setattr(fits_training, "publishers_errors", lambda found: (str(found), "out"))
    whole = SimpleNamespace(constants=None, fitted=None)
    told = []
    found = list(fits_training.worth(whole, told.append))
    assert told == ["all numbers", *names]
    assert found[0] == ("", 3, str(whole), "out")
    assert [one[:3] for one in found[1:3]] == [
        (names[0], 2, str(("held", names[0]))),
        (names[1], 1, str(("held", names[1]))),
    ]


def test_errors_of_publishers_are_means_over_publishers_of_their_own_runs(monkeypatch):
    families = [SimpleNamespace(name="f", sources=("a", "b")), SimpleNamespace(name="g", sources=("b",))]
    monkeypatch.setattr(fits_training, "FAMILIES", families)
    monkeypatch.setattr(fits_training, "cases", lambda source: [f"{source}1", f"{source}2"])
    monkeypatch.setattr(fits_training, "belongs", lambda case, family: (case, family.name) != ("b2", "g"))

    class Whole:
        constants, fitted, held = SimpleNamespace(without=lambda gone: gone), None, ()

        def __init__(self, size):
            self.size = size

        def errors(self, family, runs):
            return np.array([-self.size if family.name == "f" else 3.0 * self.size for _ in runs])

    monkeypatch.setattr(fits_training, "fit_families", lambda gone, *_: Whole(2.0 if gone == ["a"] else 4.0))
    seen, unseen = fits_training.publishers_errors(Whole(1.0))
    assert seen == pytest.approx(((1.0 + 1.0) / 2 + (1.0 + 1.0 + 3.0) / 3) / 2)
    assert unseen == pytest.approx((2.0 + 4.0 * (1.0 + 1.0 + 3.0) / 3) / 2)


def test_what_a_fit_writes_is_read_again(monkeypatch, tmp_path):
    saved = []
    monkeypatch.setattr(command, "write", lambda name, constants: saved.append((name, constants)))
    assert set(command.renewed("vector", list(catalogue.fit("vector"))).constants) == set(FIT.constants)
    assert saved == [("vector", list(catalogue.fit("vector")))]
    monkeypatch.setattr(fitting.catalogue, "ROOT", tmp_path)
    (tmp_path / "measured").mkdir()
    fitting.write("vector", saved[0][1])
    assert "law" in (tmp_path / "measured" / "fit-vector.toml").read_text()


def test_groups_and_worth_are_written(monkeypatch, tmp_path):
    done = []
    monkeypatch.setattr("roofplan.evidence.fits.training.fit_families", lambda *_: "whole")
    monkeypatch.setattr(left_out, "grouped", lambda kind, whole, _: [(kind, whole)])
    monkeypatch.setattr(left_out, "save", lambda found, place: done.append((found, place.name)))
    monkeypatch.setattr(command, "renew_intervals", lambda _: done.append("intervals"))
    command.leave_groups_out(["training", "inference"])
    assert done == [
        ([("training", "whole")], "left-out-training.csv"),
        ([("inference", "whole")], "left-out-inference.csv"),
        "intervals",
    ]
    monkeypatch.setattr(left_out, "WORTH", tmp_path / "worth.csv")
    monkeypatch.setattr("roofplan.evidence.fits.training.worth", lambda *_: iter([("a", 3, 0.1, 0.25)]))
    command.tell_worth()
    assert (tmp_path / "worth.csv").read_text() == "a,3,0.1000,0.2500\n"


def test_intervals_are_not_renewed_from_nothing(monkeypatch):
    monkeypatch.setattr(left_out, "kept", lambda _: [])
    monkeypatch.setattr(left_out, "kept_groups", lambda _: [])
    with pytest.raises(SystemExit, match="no left-out runs"):
        command.renew_intervals(FIT)


def test_folds_tell_each_job(monkeypatch, capsys):
    monkeypatch.setattr("roofplan.evidence.fits.training.fit_families", lambda _: SimpleNamespace(fitted=None))
    monkeypatch.setattr(left_out, "left_out", lambda kind, *_, **__: [kind])
    jobs = [SimpleNamespace(name=name, keep=lambda one, name=name: one == name) for name in ("training", "other")]
    monkeypatch.setattr("roofplan.evidence.fits.scoreboard.JOBS", jobs)
    scored = SimpleNamespace(sources=3, macro=0.1, middle=0.05, coverage=0.9)
    monkeypatch.setattr("roofplan.evidence.scoring.score", lambda found: scored if found else None)
    command.check_folds(["training"], 1)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.split() == ["training", "3", "publishers,", "mean", "10.0%,", "median", "5.0%,", "inside", "90%"]
