"""How many layouts a second, over a grid, flat, and one by one in plain Python; and a search of the largest machine.

Run with ``make bench``, as ratios within one run. Every layout gets its step time and the memory of its fullest stage.
"""

import resource
import time

import numpy as np
import pytest

from roofplan import catalogue
from roofplan.catalogue.machines import machine
from roofplan.hf.find import read_model
from roofplan.records.training import RECOMPUTES, Job, Layout
from roofplan.training import search
from roofplan.training.ability import ability
from roofplan.training.ledger import ledgers, peak
from roofplan.training.step import step

FIT = catalogue.shipped_fit()
MODEL = read_model("llama-3.1-405b")
MEGATRON = catalogue.framework("megatron-core-0.16")
BOX = machine("h100-sxm:16384")[0]
ABILITY = ability(BOX, MEGATRON, FIT)
JOB = Job(sequence=8192, batch=2048, optimizer=catalogue.optimizers()["adam"])
CHUNK = 8192


def predict(layout):
    """Return step times and peaks, expanded."""
    time_, memory = step(MODEL, JOB, layout, ABILITY).time, peak(ledgers(MODEL, JOB, layout, MEGATRON, FIT))
    return np.broadcast_arrays(time_, memory)[0].size


def grid():
    """Predict tp x cp x micro-batch x dp for six depths and three recomputations: twelve million layouts.

    Arrays of several megabytes get huge pages from numpy; smaller ones spend most of their time in page faults.
    """
    tp = 2.0 ** np.arange(8).reshape(-1, 1, 1, 1)
    cp = 2.0 ** np.arange(5).reshape(1, -1, 1, 1)
    micro = 2.0 ** np.arange(4).reshape(1, 1, -1, 1)
    dp = np.arange(1.0, 4097.0).reshape(1, 1, 1, -1)
    return sum(
        predict(Layout(tp=tp, cp=cp, pp=pp, dp=dp, micro_batch=micro, zero=1, recompute=how))
        for pp in (1, 2, 4, 8, 16, 32)
        for how in RECOMPUTES
    )


def flat():
    """Predict layouts with degrees of their own, a chunk at a time."""
    rng = np.random.default_rng(3)
    count = 0
    for pp in (1, 4, 16):
        tp, cp, micro = (2.0 ** rng.integers(0, most, CHUNK) for most in (8, 5, 4))
        dp = rng.integers(1, 513, CHUNK).astype(float)
        count += predict(Layout(tp=tp, cp=cp, pp=pp, dp=dp, micro_batch=micro, zero=1))
    return count


def one_by_one():
    """Predict a few layouts in plain Python, by the same laws."""
    return sum(
        predict(Layout(tp=tp, pp=pp, dp=dp, micro_batch=1.0, zero=1))
        for tp in (1.0, 2.0, 4.0, 8.0)
        for pp in (1, 4, 16)
        for dp in (1.0, 8.0, 64.0)
    )


def plain_rate():
    """Return layouts per second of the plain evaluation."""
    best = np.inf
    for _ in range(5):
        started = time.perf_counter()
        count = one_by_one()
        best = min(best, time.perf_counter() - started)
    return count / best


@pytest.mark.parametrize(("work", "goal"), [(grid, 10_000_000), (flat, 500_000)], ids=["grid", "flat"])
def test_layouts_per_second(benchmark, work, goal):
    count = work()
    benchmark.pedantic(work, rounds=10, warmup_rounds=2)
    rate, plain = count / benchmark.stats.stats.min, plain_rate()
    print(
        f"\n{work.__name__}: {rate:,.0f} layouts/s (goal {goal:,}), {rate / plain:,.0f} x plain Python ({plain:,.0f}/s)"
    )
    benchmark.extra_info["layouts_per_second"] = rate


def test_every_layout_of_405b_on_16384(benchmark):
    found = search(MODEL, JOB, BOX, MEGATRON, FIT)
    benchmark.pedantic(lambda: search(MODEL, JOB, BOX, MEGATRON, FIT), rounds=5, warmup_rounds=1)
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"\n405B on 16,384: {found.tally.enumerated:,} layouts in {benchmark.stats.stats.median:.2f} s (goal 5 s),"
        f" {peak_gib:.2f} GiB (goal 2 GB); plain Python would take {found.tally.enumerated / plain_rate():,.0f} s"
    )
