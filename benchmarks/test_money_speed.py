"""How many draws of a bill of materials a second, against one bill at a time in plain Python. Run with ``make bench``."""

import time

from roofplan import catalogue
from roofplan.money import chip as chips
from roofplan.money.uncertainty import central, draws

CHIP = chips.chip_of(catalogue.accelerator("b200"))
INPUTS = chips.inputs_of(CHIP)
COUNT = 1_000_000
GOAL = 1_000_000


def sampled():
    """Return the bills of a million draws."""
    return chips.bill_term(CHIP, draws(INPUTS, COUNT)).value


def test_draws_per_second(benchmark):
    found = sampled()
    benchmark.pedantic(sampled, rounds=5, warmup_rounds=1)
    rate = found.size / benchmark.stats.stats.min
    at, started, count = central(INPUTS), time.perf_counter(), 200
    for _ in range(count):
        chips.bill_term(CHIP, at)
    plain = count / (time.perf_counter() - started)
    print(f"\nbills: {rate:,.0f} draws/s (goal {GOAL:,}), {rate / plain:,.0f} x plain Python ({plain:,.0f}/s)")
    benchmark.extra_info["draws_per_second"] = rate
