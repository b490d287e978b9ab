"""Batches in the stages of a pipeline wait for each other, as runs with pipeline stages show."""

import pytest

import roofplan as rp
from roofplan.evidence.fits.pipelines import stall
from roofplan.serving.step import stalled


def leaves(term, name):
    return [part for part in term.parts if part.name == name]


def waits(users, strategy="tp2 pp4", engine="vllm"):
    found = rp.plan_serving("llama-3.3-70b", on="h100-sxm:8", engine=engine, users=users, strategy=strategy)
    (plan,) = found.plans
    part = leaves(plan.prediction.tpot, "waits between stages")
    return plan, sum(float(one.value) for one in part)


def test_one_user_waits_for_nobody():
    assert waits(1)[1] == 0.0
    assert waits(64, "tp8")[1] == 0.0


def test_many_users_wait_by_the_fitted_share():
    plan, waited = waits(64)
    share = plan.rates.stall
    assert 0.0 < share < 2.0
    spent = sum(
        float(part.value)
        for part in plan.prediction.tpot.parts
        if part.name not in {"waits between stages", "engine step", "prompts of others", "pipeline hops"}
    )
    assert waited == pytest.approx(share * (1 - 1 / 4) * spent, rel=1e-6)


def test_layers_that_take_a_batch_in_turn_do_not_wait():
    assert waits(8, "pp8", "llama.cpp")[1] == 0.0


def test_the_wait_grows_with_the_batches_in_flight():
    plan, _ = waits(64)
    seen = [float(stalled(batches, plan.rates)) for batches in (0.5, 1.0, 2.0, 4.0)]
    assert seen[:2] == [0.0, 0.0]
    assert seen[2] == pytest.approx(plan.rates.stall / 2)
    assert seen[2] < seen[3] < plan.rates.stall


def test_publishers_count_alike():
    found = stall({"one": [0.2] * 50, "two": [0.6], "three": [0.5, 0.5]})
    assert (found.value, found.rows) == (0.5, 53)
    assert stall({"one": [-0.4]}).value == 0.0
    assert stall({}).rows == 0
