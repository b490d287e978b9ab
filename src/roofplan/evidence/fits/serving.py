"""All fits of serving, from the constants of kernels; and the fit of power."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import chain

import numpy as np

from roofplan import catalogue
from roofplan.evidence.fits.engines import GUESSES, NUMBERS, fit_engines
from roofplan.evidence.fits.fitting import Excluded, entry, nearest, spread
from roofplan.evidence.fits.pipelines import fit_pipelines, stall
from roofplan.evidence.fits.prompts import SHARES, fit_front, fit_prefill, fronts, host_launch, latencies
from roofplan.evidence.fits.reach import REACH, ROUTED, fit_reach
from roofplan.evidence.fits.runs import REMEMBERED, At, usable
from roofplan.records.calibration import Constant, Fit


def fit_serving(others: Iterable[Constant], excluded: Excluded = frozenset()) -> dict[str, list[Constant]]:
    """Return the fits ``engines``, ``reach``, ``prefill``, ``front`` and ``power``, without starting from earlier serving fits.

    The prefill rate depends on launches and host time, compute-heavy decode steps depend on the rate of products, and the front end's time
    is the remainder of a wait, so the fits alternate. Starting afresh ensures that no excluded publisher influences them.
    """
    law = Fit(tuple(others), excluded)
    found = {
        "engines": _neutral_engines(),
        "reach": [entry("engine", name, "any", 1.0, "1", 0.4, 0, START, kind="guess") for name in (REACH, ROUTED)],
        "prefill": _neutral_shares(),
        "front": [*fronts({}), *latencies({}), host_launch({}), stall({})],
    }
    made = {
        "engines": fit_engines,
        "reach": fit_reach,
        "prefill": fit_prefill,
        "front": _fit_beside,
    }
    for _ in range(TURNS):
        for name, made_by in made.items():
            found[name] = made_by(law.with_(chain.from_iterable(found.values())))
    return {**found, "power": fit_power(law.with_(chain.from_iterable(found.values())))}


def _fit_beside(fit: Fit) -> list[Constant]:
    """Return what is fitted beside the steps of a device: the front end, the host's launches, and the waits of pipelines."""
    return [*fit_front(fit), fit_pipelines(fit)]


TURNS = 2
"""Rounds of alternating fits: a third changes the host time per sequence by up to 5% and everything else by less than 3% [1]."""

START = "where the search starts"
"""Source of the values from which the fits begin."""


def _neutral_engines() -> list[Constant]:
    """Return the starting values of the engines' constants."""
    found = [entry(one.law, one.name, "any", one.middle, one.unit, 0.4, 0, START, kind="guess") for one in NUMBERS]
    return [*found, *(entry(*guess[:-1], 0, guess[-1], kind="guess") for guess in GUESSES)]


def _neutral_shares() -> list[Constant]:
    """Return starting values of the prefill shares: one."""
    return [
        entry("engine", name, scope, 1.0, "1", 0.3, 0, START, kind="guess")
        for name in SHARES
        for scope in ("any", "training")
    ]


@lru_cache(maxsize=REMEMBERED)
def _busy(at: At) -> float | None:
    """Return the share of time in which the devices of a steady run compute, None where its batch is not known [1]."""
    prediction = at.case.predict(at.fit)
    return None if prediction is None else float(prediction.busy)


def fit_power(fit: Fit) -> list[Constant]:
    """Fit floor and ceiling of device power to ML.ENERGY's measurements: (floor + (ceiling - floor) x busy) x limit."""
    rows = []
    for case in usable(fit.excluded):
        if case.watts is None or case.users is None:
            continue
        busy, limit = _busy(At(case, fit)), case.machine.device.value("power")
        if busy is not None and limit:
            rows.append((busy, case.watts / case.machine.count / limit))
    source = "ml-energy 2025, mean GPU power of serving runs"
    if len(rows) < 10:
        return [
            entry("power", "floor", "any", 0.45, "1", 0.2, 0, "no run states power", kind="guess"),
            entry("power", "ceiling", "any", 0.95, "1", 0.1, 0, "no run states power", kind="guess"),
            _host_share(),
        ]
    x, y = np.array([a for a, _ in rows]), np.array([b for _, b in rows])

    floor, ceiling = nearest(lambda p: np.log((p[0] + (p[1] - p[0]) * x) / y), [0.4, 0.9])
    deviation = spread((floor + (ceiling - floor) * x) / y)
    return [
        entry("power", "floor", "any", floor, "1", deviation, len(rows), source),
        entry("power", "ceiling", "any", ceiling, "1", deviation, len(rows), source),
        _host_share(),
    ]


NODE_AT_LOAD, NODE = 8.4e3, "dgx-h100"
"""Highest draw of an 8 x H100 node in training with its GPUs near full use [W], and the corresponding server of the catalogue: Latif et al.,
IEEE Access 13, 2025, arXiv 2412.08602."""


def _host_share() -> Constant:
    """Return the share of a host's rated power, without its devices, that it draws under load."""
    box = catalogue.server(NODE)
    limit = catalogue.accelerator(box.accelerator).quantities["power"].value
    share = (NODE_AT_LOAD - box.count * limit) / box.quantities["host_power"].value
    source = "Latif et al., IEEE Access 13, 2025: 8.4 kW at most of 10.2 kW rated, 8 x H100 in training"
    return entry("power", "host_share", "any", share, "1", 0.25, 1, source, "one node; the spread is a guess")
