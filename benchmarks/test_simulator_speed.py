"""How many requests a second, beside a loop that takes every step of the same load in the same run. Run with ``make bench``.

The load is W1: Llama-2-7B on one A100-80GB, Poisson arrivals of 8 requests a second, 512 tokens in and 128 out, steps of up to
2,048 tokens, 128 seats.
"""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from roofplan.api import plan_serving
from roofplan.load.requests import Lengths, Requests, renewal
from roofplan.load.statistics import FIGURES, summary
from roofplan.simulation.deployment import deployment_of
from roofplan.simulation.fast import compiled
from roofplan.simulation.records import Requests as Queue
from roofplan.simulation.records import Times
from roofplan.simulation.replicas import Fleet, lists

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from stepwise import Engine

GOAL = {"plain": 75_000, "compiled": 1_000_000}
PEER = 24_003
"""Dynamo's replay in Rust on the same load, on two shared cores of an AMD EPYC in November 2026 [request/s]."""

PLAN = plan_serving(
    "llama-2-7b", on="a100-sxm-80", input="512", output="128", set="max_num_seqs=128,max_num_batched_tokens=2048"
).plans[0]
DEPLOYMENT = deployment_of(PLAN)
SCHEDULER = DEPLOYMENT.scheduler(640)
started = time.perf_counter()
SURFACE = DEPLOYMENT.surface(SCHEDULER, 640)
BUILT = time.perf_counter() - started


def w1(count, run=None):
    """Return the time from drawing arrivals to percentiles, of one core [s]."""
    begun = time.process_time()
    random, lengths = np.random.default_rng(0), Lengths()
    requests = Requests(
        arrivals=renewal(8.0, count, 1.0, random),
        inputs=lengths.draw(512, count, random),
        outputs=lengths.draw(128, count, random),
    )
    fleet = Fleet(scheduler=SCHEDULER, surface=SURFACE, replicas=1, run=run)
    served = fleet.serve(requests, np.zeros(count, np.int64))
    assert all(summary(served.figure(name)).mean > 0.0 for name in FIGURES)
    return time.process_time() - begun


def stepwise(count):
    """Return the time of a loop that takes every step of the same load [s]."""
    arrivals = renewal(8.0, count, 1.0, np.random.default_rng(0)).tolist()
    s = SCHEDULER._replace(front=0.0, delay=0.0)
    queue = Queue(arrivals, list(arrivals), [512] * count, [0] * count, [127] * count)
    times = Times([-1.0] * count, [-1.0] * count, [-1.0] * count, [0] * count)
    begun = time.process_time()
    Engine(s, lists(SURFACE), queue, times, count).serve()
    return time.process_time() - begun


def test_w1(benchmark):
    loop = 300 / stepwise(300)
    benchmark.pedantic(lambda: w1(100_000), rounds=3, warmup_rounds=1)
    plain = 100_000 / min(w1(100_000) for _ in range(3))
    print(
        f"\nW1 plain: {plain:,.0f} requests/s (goal {GOAL['plain']:,}), {plain / loop:,.0f} x the loop of steps ({loop:,.0f}/s)"
    )
    print(f"surface built in {BUILT:.3f} s; Dynamo replay {PEER:,}/s elsewhere")
    run = compiled()
    if run is None:
        pytest.skip("numba is not installed")
    first = w1(1000, run)
    fast = 1_000_000 / min(w1(1_000_000, run) for _ in range(3))
    print(
        f"W1 compiled: {fast:,.0f} requests/s (goal {GOAL['compiled']:,}), {fast / plain:.1f} x plain; compiled or loaded in {first:.1f} s"
    )


def test_process_w1():
    words = ["simulate", "llama-2-7b", "--on", "a100-sxm-80", "--rate", "8req/s", "--input", "512", "--output", "128"]
    words += ["--set", "max_num_seqs=128,max_num_batched_tokens=2048", "--json"]
    for count in (2000, 100_000):
        begun = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "roofplan", *words, "--requests", str(count)], check=True, stdout=subprocess.DEVNULL
        )
        print(
            f"\nwhole process, W1, {count:,} requests: {time.perf_counter() - begun:.2f} s (goal 3 s plain, 2 s compiled)"
        )
