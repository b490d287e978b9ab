"""Spread of a probe that is repeated five times on a shared machine: best product, and reads beyond the last cache."""

from roofplan.measure.machine.probe import probed

TIMES = 5


def test_spread_of_repeated_probes():
    found = [probed("numpy", 1, 0.0) for _ in range(TIMES)]
    told = {
        "best product": [max(one.product(number).best for number in ("fp32",)) for one in found],
        "best product in 256-bit vectors": [one.vector.best for one in found],
        "reads beyond the last cache": [one.bandwidth.best for one in found],
    }
    for name, values in told.items():
        spread = max(values) / min(values) - 1.0
        print(f"{name}: {', '.join(f'{value / 1e9:.1f}' for value in values)} G/s, {spread:.1%} between most and least")
    assert all(min(values) > 0.0 for values in told.values())
