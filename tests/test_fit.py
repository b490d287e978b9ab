"""The fit as a value: looked up, changed, told apart, and held by no state of the process."""

import ast
import copy
import functools
import importlib
import os
import pickle
import pkgutil
import subprocess
import sys
from collections.abc import Mapping, MutableMapping, MutableSequence, MutableSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from pathlib import Path

import pytest
from conftest import FIT

import roofplan
from roofplan import catalogue
from roofplan.api import plan_serving, plan_training
from roofplan.catalogue import profile, shipped_fit
from roofplan.catalogue.machines import machine
from roofplan.errors import InputError
from roofplan.inputs import Inputs
from roofplan.records.calibration import Constant, Fit, Watched
from roofplan.timing.rates import rates
from roofplan.training.ability import ability


def constant(scope, value=1.0, name="gap", **said):
    return Constant(
        law="kernel",
        name=name,
        scope=scope,
        value=value,
        unit="s",
        spread=0.1,
        rows=9,
        fitted="2026-11-22",
        source="runs",
        **said,
    )


def test_the_nearest_scope_holds():
    fit = Fit((constant("any", 1.0), constant("vllm", 2.0)))
    assert fit.find("kernel", "gap", ["vllm-0.33", "vllm", "any"]).value == 2.0
    assert fit.find("kernel", "gap", ["sglang", "any"]).value == 1.0
    assert fit.get("kernel", "gap", "sglang") is None
    assert fit.speaks_of("kernel", "gap")
    assert not fit.speaks_of("kernel", "other")
    with pytest.raises(InputError, match=r"no fitted constant kernel.gap for any of sglang"):
        fit.find("kernel", "gap", ["sglang"])


STEP_BY_STEP = {
    *("records.tally.Counts", "serving.plan.Tally", "serving.plan.Result", "training.search.Tally"),
    *("measure.client.Effort", "measure.stream.Stream", "evidence.scoring.Validation"),
    *("pool.checks.Tally", "pool.checks.Checked", "pool.service.Outcome"),
    *("training.step.Pass", "training.step.Passes"),
}
"""Classes of data that are filled while an answer is worked out; all others are values."""
DERIVES = {"serving.plan.Plan"}
"""Values that keep what they derive when first asked, which slots do not allow."""


def test_classes_of_data_are_values_but_for_a_few_and_take_no_other_members():
    found = {}
    for module in pkgutil.walk_packages(roofplan.__path__, "roofplan."):
        if module.name.endswith("__main__"):
            continue
        for name, kind in vars(importlib.import_module(module.name)).items():
            if isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == module.name:
                found[f"{module.name.removeprefix('roofplan.')}.{name}"] = kind
    assert {name for name, kind in found.items() if not kind.__dataclass_params__.frozen} == STEP_BY_STEP
    # inputs of a command join those that others have too, which slots do not allow
    open_to_others = {name for name, kind in found.items() if "__slots__" not in vars(kind)}
    assert {name for name in open_to_others if not issubclass(found[name], Inputs)} == DERIVES


def test_a_fit_is_the_same_in_another_process():
    """Texts hash otherwise there: a hash that travelled along would tell equal fits apart."""
    code = (
        "import pickle, sys; from roofplan.catalogue import shipped_fit; fit = pickle.loads(sys.stdin.buffer.read());"
        "assert fit == shipped_fit() and hash(fit) == hash(shipped_fit()) and fit.digest() == shipped_fit().digest()"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", code], input=pickle.dumps(shipped_fit()), env=environment, check=True)


@pytest.mark.parametrize("other", [{}, "vllm", shipped_fit])
def test_what_is_no_fit_is_refused(other):
    for asked in (
        lambda: plan_serving("llama-3.1-8b", ["h100-sxm"], fit=other),
        lambda: plan_training("llama-3.1-8b", ["h100-sxm:8"], fit=other),
    ):
        with pytest.raises(InputError, match=r"^fit: a \w+ is not a Fit"):
            asked()


def test_one_publisher_alone_is_refused():
    with pytest.raises(InputError, match=r"a list is needed, such as \['ml-energy'\]"):
        FIT.without("ml-energy")


def test_one_machine_needs_no_list():
    alone, listed = (plan_serving("llama-3.1-8b", on, concurrency="4").plans for on in ("h100-sxm", ["h100-sxm"]))
    assert [plan.label for plan in alone] == [plan.label for plan in listed]


def test_variants_are_of_the_nearest_scope_each():
    fit = Fit(
        (
            constant("any", 1.0, "share.a"),
            constant("any", 2.0, "share.b"),
            constant("vllm", 3.0, "share.b"),
            constant("any", 4.0, "share"),
        )
    )
    found = fit.variants("kernel", "share", ["vllm", "any"])
    assert {name: item.value for name, item in found.items()} == {"a": 1.0, "b": 3.0}


def test_a_later_constant_holds_and_the_fit_before_stays():
    before = Fit((constant("any", 1.0), constant("vllm", 2.0)))
    after = before.with_([constant("any", 5.0)])
    assert (before.find("kernel", "gap", ["any"]).value, after.find("kernel", "gap", ["any"]).value) == (1.0, 5.0)
    assert len(after.constants) == len(before.constants)
    without = before.without(["somebody"]).without(["another"])
    assert without.excluded == {"somebody", "another"}
    assert before.excluded == frozenset()
    assert without.with_([constant("any", 5.0)]).excluded == without.excluded
    with pytest.raises(FrozenInstanceError):
        before.excluded = frozenset({"x"})


def test_fits_are_told_apart_by_their_content():
    fit, same = Fit((constant("any"),)), Fit((constant("any"),))
    assert (fit, hash(fit), fit.digest()) == (same, hash(same), same.digest())
    for other in (fit.with_([constant("any", 2.0)]), fit.without(["somebody"]), fit.with_([constant("vllm")])):
        assert other != fit
        assert other.digest() != fit.digest()
    assert fit != "fit"
    assert len(FIT.digest()) == 12


def test_a_watched_fit_notes_what_was_looked_up_and_equals_itself_alone():
    one, two = Watched(FIT.constants), Watched(FIT.constants)
    assert one != two
    assert one == one  # noqa: PLR0124 - that is the point
    one.find("kernel", "gap", ["vllm-0.33", "vllm", "any"])
    one.variants("experts", "bandwidth", ["vllm"])
    assert ("kernel", "gap", "vllm-0.33") in one.consulted
    assert any(law == "experts" and scope == "vllm" for law, _, scope in one.consulted)
    assert not two.consulted


def test_a_profile_stands_over_the_shipped_constants(tmp_path):
    place = tmp_path / "profile.toml"
    assert profile.over(FIT, place) is FIT
    assert profile.over(FIT, None) is FIT
    gap = FIT.find("kernel", "gap", ["any"])

    from roofplan.catalogue import codec

    text = codec.constants_text([replace(gap, value=2.0 * gap.value)])
    place.write_text(f'fit = "{FIT.digest()}"\n{text}')
    assert profile.over(FIT, place).find("kernel", "gap", ["any"]).value == pytest.approx(2.0 * gap.value, rel=1e-3)


SLOWER = FIT.with_(
    replace(item, value=2.0 * item.value)
    for item in FIT.constants
    if (item.law, item.name) in {("kernel", "gap"), ("training", "ramp")}
)


def served(fit):
    found = plan_serving("llama-3.1-8b", ["h100-sxm:1"], strategy="tp=1", concurrency="8", price="2USD/h", fit=fit)
    return tuple(metric.value for metric in found.plans[0].metrics.values())


def trained(fit):
    found = plan_training(
        "llama-3.1-8b", ["h100-sxm:8"], batch="64seq", strategy="tp=1,pp=1,micro_batch=1", price="2USD/h", fit=fit
    )
    return tuple(metric.value for metric in found.plans[0].metrics.values())


@pytest.mark.slow
def test_two_fits_in_threads_give_what_each_gives_alone():
    """One answer in forty is of training, whose search takes longer."""
    asked = [(trained if number % 80 < 2 else served, (FIT, SLOWER)[number % 2]) for number in range(1000)]
    for cached in caches().values():
        cached.cache_clear()  # so that threads fill them at once
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda one: one[0](one[1]), asked))
    alone = {(ask, fit): ask(fit) for ask, fit in dict.fromkeys(asked)}
    assert len(set(alone.values())) == 4
    assert all(one == alone[each] for one, each in zip(found, asked, strict=True))


@pytest.mark.parametrize("ask", [served, trained])
def test_a_fit_of_one_s_own_moves_an_answer_and_leaves_the_next(ask):
    before = ask(FIT)
    assert ask(SLOWER) != before
    assert ask(FIT) == before


# State of the process ----------------------------------------------------------------------------

SOURCE = Path(roofplan.__file__).parent
CHANGES = {"append", "update", "clear", "setdefault", "add", "extend", "pop", "popitem", "insert", "remove", "discard"}


def modules():
    for found in pkgutil.walk_packages(roofplan.__path__, "roofplan."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def caches():
    """Return the caches of all modules by name."""
    return {
        f"{module.__name__}.{name}": item
        for module in modules()
        for name, item in vars(module).items()
        if isinstance(item, functools._lru_cache_wrapper)
    }


def test_caches_have_a_bound():
    assert not [name for name, item in caches().items() if item.cache_parameters()["maxsize"] is None]


def test_nobody_can_change_what_a_cache_holds_of_rates():
    box = machine("h100-sxm:8")[0]
    able = ability(box, catalogue.framework("megatron-core-0.16"), FIT)
    own = rates(box, catalogue.engine("llama.cpp-b11200"), FIT)
    held = [getattr(own, one.name) for one in fields(own)] + [own.vector.unpacking, own.network.rests_on, able.sources]
    mappings = [one for one in held if isinstance(one, Mapping)]
    assert len(mappings) == 10
    for one in mappings:
        with pytest.raises(TypeError):
            one[next(iter(one), "a")] = 1.0


def test_a_fit_in_another_unit_is_another():
    gap = FIT.find("kernel", "gap", ["any"])
    assert FIT.with_([replace(gap, unit="x")]).digest() != FIT.digest()


def test_an_answer_names_the_profile_that_it_rests_on(tmp_path, monkeypatch):
    from roofplan import interactive
    from roofplan.catalogue import codec

    place = tmp_path / "profile.toml"
    read = FIT.find("matmul", "bandwidth", ["Hopper"])
    place.write_text(f'fit = "{FIT.digest()}"\n{codec.constants_text([replace(read, value=0.5 * read.value)])}')
    monkeypatch.setenv("ROOFPLAN_PROFILE", str(place))
    asked = {"on": "h100-sxm:1", "price": "2USD/h", "concurrency": "8"}
    own, shipped = (interactive.plan_serving("llama-3.1-8b", **asked, fit=fit).to_dict() for fit in (None, FIT))
    assert str(place) in own["versions"]["profile"]
    assert "profile" not in shipped["versions"]
    assert own["plans"][0]["metrics"]["tpot"] != shipped["plans"][0]["metrics"]["tpot"]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_changes_what_stands_in_it(path):
    """Neither `global`, nor a change of a container that a module made, inside a function."""
    tree = ast.parse(path.read_text())
    made = {
        target.id
        for node in tree.body
        for target in (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if isinstance(target, ast.Name)
        and isinstance(node.value, ast.Dict | ast.List | ast.Set | ast.Call | ast.DictComp | ast.ListComp)
    }
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
        own = {argument.arg for argument in ast.walk(function) if isinstance(argument, ast.arg)}
        own |= {
            node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        for node in ast.walk(function):
            assert not isinstance(node, ast.Global), ast.unparse(node)
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
            ):
                assert not (node.func.attr in CHANGES and node.func.value.id in made - own), ast.unparse(node)
            if (
                isinstance(node, ast.Subscript)
                and isinstance(node.ctx, ast.Store | ast.Del)
                and isinstance(node.value, ast.Name)
            ):
                assert node.value.id not in made - own, ast.unparse(node)


def test_answers_leave_no_trace_in_any_module():
    """What modules hold, caches aside, is the same before answers and after."""

    def held():
        kinds = (MutableMapping, MutableSequence, MutableSet)
        return {
            (module.__name__, name): copy.copy(item)
            for module in modules()
            for name, item in vars(module).items()
            if isinstance(item, kinds) and not name.startswith("__") and name != "app"
        }

    before = held()
    served(SLOWER)
    trained(SLOWER)
    plan_serving("deepseek-v3", ["h200-sxm:8"], price="2USD/h")
    after = held()
    assert before.keys() == after.keys()
    assert all(before[key] == after[key] for key in before)


def test_a_fit_shows_its_constants_and_not_how_they_are_found():
    assert repr(Fit((), frozenset({"a"}))) == "Fit(constants=(), excluded=frozenset({'a'}))"
