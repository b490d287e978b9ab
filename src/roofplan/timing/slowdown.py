"""The slowdown of a device under its software that the user's own runs show: a factor on all step times."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from roofplan.laws import smaller
from roofplan.operations.table import EXTRA_KERNELS
from roofplan.records.calibration import Constant
from roofplan.timing.network import slowed_network

if TYPE_CHECKING:
    from roofplan.timing.rates import Rates


def slowed(r: Rates, slowdown: Constant) -> Rates:
    """Return rates with step times scaled by a factor, capped at data-sheet rates.

    Parameters
    ----------
    r : rates as fitted.
    slowdown : the factor on all times but those of front ends [1].

    Returns
    -------
    The rates, which cite the factor.
    """
    by, vector = slowdown.value, r.vector
    return replace(
        r,
        compute={name: smaller(rate / by, r.peak[name]) for name, rate in r.compute.items()},
        vector_peak=r.vector_peak / max(by, 1.0),
        scan=None if r.scan is None else smaller(r.scan / by, r.vector_peak),
        bandwidth={kind: smaller(rate / by, r.wire) for kind, rate in r.bandwidth.items()},
        vector=None if vector is None else replace(vector, bandwidth=smaller(vector.bandwidth / by, r.wire)),
        attention_share=smaller(r.attention_share / by, 1.0),
        gap=r.gap * by,
        launch=r.launch * by,
        step_base=r.step_base * by,
        step_each=r.step_each * by,
        network=slowed_network(r.network, slowdown),
        sources={name: (*cited, *((slowdown,) if name not in NO_TIMES else ())) for name, cited in r.sources.items()},
    )


NO_TIMES = frozenset({"front", "grouped", "casts", *EXTRA_KERNELS})
"""Names of sources of front ends, which are timed apart, and of counts and ratios."""
