"""A run with its failures drawn one by one, which checks the closed form of its goodput."""

from __future__ import annotations

import numpy as np


def simulated_goodput(
    interval: float, write: float, restart: float, interruption: float, *, checkpoints: int, seed: int
) -> tuple[float, float]:
    """Return the goodput of a simulated run and its standard error.

    Every stretch of work and write is tried until it passes without an interruption; a restart may be interrupted too.

    Parameters
    ----------
    interval, write, restart, interruption : as in `reliability.goodput` [s].
    checkpoints : stretches to pass [1].
    seed : of the random generator.

    Returns
    -------
    Share and its standard error [1].

    Notes
    -----
    Domain: as `goodput`, which it checks. Source: `reliability` section 2, simulated.

    Examples
    --------
    >>> from roofplan.laws.reliability import goodput
    >>> mean, error = simulated_goodput(1100.0, 60.0, 600.0, 10800.0, checkpoints=20000, seed=1)
    >>> bool(abs(mean - goodput(1100.0, 60.0, 600.0, 10800.0)) < 3 * error)
    True
    """
    random = np.random.default_rng(seed)
    stretch = interval + write
    elapsed = np.zeros(checkpoints)
    pending = np.ones(checkpoints, dtype=bool)
    first = np.ones(checkpoints, dtype=bool)
    while pending.any():
        count = int(pending.sum())
        needed = np.where(first[pending], stretch, restart + stretch)
        failure = random.exponential(interruption, count)
        passed = failure >= needed
        # after an interruption, restart and stretch must both pass before the next one strikes
        elapsed[pending] += np.where(passed, needed, failure)
        first[pending] = False
        pending[np.flatnonzero(pending)[passed]] = False
    mean = float(elapsed.mean())
    error = float(elapsed.std(ddof=1)) / checkpoints**0.5
    return interval / mean, interval / mean**2 * error
