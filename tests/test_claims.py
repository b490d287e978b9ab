"""The articles' figures: every one is in the ledger, every recorded verdict still follows."""

from dataclasses import replace

import pytest

from roofplan.errors import InputError
from roofplan.evidence.claims import LAWS, VERDICTS, claims, evaluate, outcome

ALL = claims()
SERVING = {
    "spec",
    "licence",
    "roofline",
    "kv-cache",
    "inference-latency",
    "inference-capacity",
    "inference-throughput",
    "inference-cost",
}


def test_all_429_are_there_once():
    assert len({c.id for c in ALL}) == len(ALL) == 429


@pytest.mark.parametrize("claim", ALL, ids=lambda c: c.id)
def test_the_recorded_verdict_follows(claim):
    result = outcome(claim)
    assert result.follows, (result.computed_verdict, claim.verdict, result.with_its_inputs)
    assert claim.verdict in VERDICTS
    assert claim.verdict != "not yet" or not claim.law


@pytest.mark.parametrize(("follow", "code"), [((True, True), 0), ((True, False), 1), ((False, False), 1)])
def test_one_claim_that_no_longer_follows_is_an_exit_code(follow, code, run, monkeypatch):
    said = [claim.verdict if follows else "nothing of the kind" for claim, follows in zip(ALL, follow, strict=False)]
    found = [replace(outcome(claim), computed_verdict=word) for claim, word in zip(ALL, said, strict=False)]
    monkeypatch.setattr("roofplan.evidence.claims.claims", lambda: ALL[:2])
    monkeypatch.setattr("roofplan.evidence.claims.outcome", lambda claim: found[ALL.index(claim)])
    assert run("claims")[0] == code


def test_serving_topics_are_covered():
    missing = [c.id for c in ALL if c.topic in SERVING and not c.covered]
    assert len(missing) <= 4, missing


def test_claims_call_our_laws():
    """Computed serving claims go through laws, not through arithmetic of their own."""
    computed = [c for c in ALL if c.topic in SERVING - {"spec", "licence"} and c.kind == "computed" and c.law]
    through = [c for c in computed if any(f"{name}." in c.law + c.corrected_law for name in LAWS)]
    assert len(through) > len(computed) * 0.6


def test_the_headline_flips():
    result = outcome(next(c for c in ALL if c.id == "infer-4090-vs-h100-headline"))
    assert result.with_its_inputs == pytest.approx(1.16, abs=0.01)
    assert result.ours == pytest.approx(0.64, abs=0.01)


def test_errors_of_the_articles_are_named():
    wrong = [c for c in ALL if c.verdict in {"article errs", "contradicts itself"}]
    assert len(wrong) >= 25
    assert all(c.why for c in wrong)


@pytest.mark.slow
def test_the_fullest_stage_of_a_claim_is_that_of_a_plan(run_json):
    strategy = "tp=4,pp=16,dp=32,zero=1,recompute=full,micro_batch=1,schedule=1f1b,interleave=1"
    run = "--sequence 4096 --batch 512seq --framework megatron-core-0.16"
    words = ("llama-2-70b", "--on", "a100-sxm-80:2048", "--strategy", strategy, *run.split())
    _, document = run_json("train", *words)
    claimed = evaluate('training_peak("llama-2-70b", 4.0, 16.0, 32.0)', {})
    assert claimed == pytest.approx(document["plans"][0]["memory"]["reserved"], rel=1e-9)


@pytest.mark.parametrize(
    "expression",
    ["__import__('os')", "peak.__class__", "(lambda: 1)()", "[x for x in (1,)]", "memory._private(1)", "open('x')"],
)
def test_expressions_cannot_leave_their_cage(expression):
    with pytest.raises((InputError, NameError)):
        evaluate(expression, {})
