"""How many configurations a second, as ratios within one run.

Run with ``make bench``: one BLAS thread, one core. Every figure stands beside one numpy pass over arrays of the same
size in the same run, so that it can be compared between machines.
"""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from roofplan import catalogue
from roofplan.catalogue.machines import machine
from roofplan.hf.find import read_model
from roofplan.money import hourly
from roofplan.present.answers.record import plain, tree
from roofplan.records.strategy import Strategy
from roofplan.records.workload import Workload
from roofplan.serving import Request, predict, search
from roofplan.timing.power import wall_power
from roofplan.timing.rates import rates

FIT = catalogue.shipped_fit()
MODEL = read_model("llama-3.1-70b")
ENGINE = catalogue.engine("vllm-0.33")
BOX = machine("h100-sxm:512@ib-ndr")[0]
COST = hourly(machine("h100-sxm:8")[0], "rent", FIT).total / 8
CHUNK = 8192


def metrics(p, devices):
    """Return every metric of a prediction, expanded."""
    watts = wall_power(BOX, p.busy, FIT).value / BOX.count * devices
    rate = p.rate
    tpot, ttft = p.tpot.value, p.ttft.value
    return (
        tpot,
        ttft,
        1.0 / tpot,
        rate,
        rate / devices,
        p.prefill_rate,
        watts,
        watts / rate,
        COST * devices,
        COST * devices / rate,
    )


def grid():
    """Predict tp x pp x dp x users per group, each value on the axes that it depends on."""
    tp = np.array([1.0, 2.0, 4.0, 8.0]).reshape(-1, 1, 1, 1)
    pp = np.array([1.0, 2.0, 4.0, 5.0, 8.0, 10.0, 16.0, 20.0]).reshape(1, -1, 1, 1)
    dp = np.arange(1.0, 33.0).reshape(1, 1, -1, 1)
    users = np.linspace(1.0, 512.0, 128).reshape(1, 1, 1, -1)
    strategy = Strategy(tp=tp, pp=pp, dp=dp, ep=1.0, attention_dp=1.0)
    p = predict(MODEL, strategy, ENGINE, Workload(), RATES, 0.0, kv_bytes=2.0, budget=8192.0, per_group=users)
    shape = (4, 8, 32, 128)
    return [np.broadcast_to(x, shape) for x in metrics(p, tp * pp * dp)], int(np.prod(shape))


def flat():
    """Predict as many configurations as one chunk holds, each with degrees of its own."""
    rng = np.random.default_rng(3)
    tp, pp, dp = (
        rng.choice(values, size=CHUNK) for values in ([1.0, 2.0, 4.0, 8.0], [1.0, 2.0, 4.0, 8.0], [1.0, 2.0, 4.0])
    )
    users = rng.integers(1, 1024, size=CHUNK).astype(float)
    p = predict(
        MODEL,
        Strategy(tp=tp, pp=pp, dp=dp, ep=1.0, attention_dp=1.0),
        ENGINE,
        Workload(),
        RATES,
        users,
        kv_bytes=2.0,
        budget=8192.0,
    )
    return metrics(p, tp * pp * dp), CHUNK


RATES = rates(BOX, ENGINE, FIT)


def numpy_pass(size):
    """Time one multiply-add over arrays of the same size."""
    a, b = np.random.default_rng(1).random((2, size))
    best = np.inf
    for _ in range(20):
        started = time.perf_counter()
        np.add(np.multiply(a, b), b)
        best = min(best, time.perf_counter() - started)
    return best


@pytest.mark.parametrize(("work", "goal"), [(grid, 10_000_000), (flat, 500_000)], ids=["grid", "flat"])
def test_configurations_per_second(benchmark, work, goal):
    _, count = work()
    benchmark.pedantic(work, rounds=15, warmup_rounds=2)
    seconds = benchmark.stats.stats.min
    rate = count / seconds
    print(
        f"\n{work.__name__}: {rate:,.0f} configurations/s (goal {goal:,}), {seconds / numpy_pass(count):,.0f} numpy passes of equal size ({count:,})"
    )
    benchmark.extra_info["configurations_per_second"] = rate


def test_one_explained_answer(benchmark):
    def answer():
        p = predict(
            MODEL, Strategy(tp=8), ENGINE, Workload(), rates(EIGHT, ENGINE, FIT), 64.0, kv_bytes=2.0, budget=8192.0
        )
        return plain(tree(p.tpot, 4))

    benchmark.pedantic(answer, rounds=50, warmup_rounds=3)
    print(f"\none explained answer: {benchmark.stats.stats.median * 1e3:.2f} ms warm (goal 1 ms)")


EIGHT = machine("h100-sxm:8")[0]


def test_search_of_one_server(benchmark):
    asked = Request(model=MODEL, machines=(EIGHT,))
    benchmark.pedantic(lambda: search(asked, FIT), rounds=10, warmup_rounds=1)
    print(f"\nsearch of 8 x h100-sxm: {benchmark.stats.stats.median * 1e3:.1f} ms warm")


COLD = {
    "import roofplan": (["-c", "import roofplan"], 0.4),
    "roofplan --help": (["-m", "roofplan", "--help"], 0.2),
    "serve --on h100-sxm:8": (["-m", "roofplan", "serve", "llama-3.1-70b", "--on", "h100-sxm:8"], 0.4),
    "serve, whole catalogue": (["-m", "roofplan", "serve", "llama-3.1-70b"], 3.0),
}


@pytest.mark.parametrize("name", COLD)
def test_cold_start(benchmark, name):
    words, goal = COLD[name]
    bare = min(cold(["-c", "pass"]) for _ in range(5))
    benchmark.pedantic(lambda: cold(words), rounds=7, warmup_rounds=1)
    seconds = benchmark.stats.stats.median
    print(
        f"\n{name}: {seconds:.2f} s cold (goal {goal} s), {seconds / bare:.0f} x a bare interpreter ({bare * 1e3:.0f} ms)"
    )


INSTALLED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""The environment of a user, whose interpreter has the bytecode that installing wrote or the first run did."""


def cold(words):
    started = time.perf_counter()
    subprocess.run([sys.executable, *words], capture_output=True, check=True, env=INSTALLED)
    return time.perf_counter() - started
