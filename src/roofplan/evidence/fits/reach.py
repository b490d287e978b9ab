"""Fit what an engine reaches on devices for which its kernels were not first written, over what it reaches on NVIDIA's."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from statistics import median
from typing import NamedTuple

import numpy as np

from roofplan.evidence.fits import hierarchy
from roofplan.evidence.fits.engines import extra_layers, steady_run
from roofplan.evidence.fits.fitting import NOT_FOR_FITTING, entry
from roofplan.evidence.fits.hierarchy import Block, Prior
from roofplan.evidence.inference import InferenceCase, clean_cases
from roofplan.evidence.serving_figures import static_figures
from roofplan.operations.table import ROUTED_EXPERTS
from roofplan.records.calibration import Constant, Fit
from roofplan.serving import leaves
from roofplan.timing.figures import Metric
from roofplan.timing.rates import at_home, reach_scopes


class Abroad(NamedTuple):
    """Time of a decode step on such a device, measured over predicted by the constants of home, by what a factor bears on.

    Parameters
    ----------
    vendor, pair : vendor of the device, and engine on that vendor's devices.
    publisher : who measured it.
    routed : kernels of routed experts besides those counted, over the measured time [1].
    others : everything else that the device does, over the measured time [1].
    host : the engine's time on its host, over the measured time [1].
    """

    vendor: str
    pair: str
    publisher: str
    routed: float
    others: float
    host: float

    def log_error(self, numbers: hierarchy.Numbers) -> float:
        """Return the logarithm of predicted over measured at factors by scope [1]."""
        device = self.others + self.routed * numbers[_routed(self.vendor)]
        return math.log(self.host + device / numbers[self.pair])


def fit_reach(fit: Fit) -> list[Constant]:
    """Fit, per vendor and per engine on its devices, the factor on all rates that decode steps of known batches show; and one on routed experts.

    Grouped products that nobody tuned for a device take long however few their rows: per vendor, their kernels besides those counted count as
    many times as steps of mixtures show. The factors are sums of effects, fitted at once; publishers weigh equally. A vendor without rows has
    the effects that all share.

    Parameters
    ----------
    fit : constants, with the factors of the last turn.

    Returns
    -------
    Factors: of rates at most one, since rates stay at what kernel tables show, and of kernels at least one.
    """
    gone = NOT_FOR_FITTING | fit.excluded
    cases = (case for case in clean_cases() if not at_home(case.engine, case.machine.device))
    found = [row for case in cases if gone.isdisjoint(case.origin.names) and (row := _abroad(case, fit)) is not None]
    if not found:
        why = "no run on such a device"
        return [entry("engine", name, "any", 1.0, "1", SPREAD, 0, why, kind="guess") for name in (REACH, ROUTED)]
    numbers: dict[str, tuple[str, ...]] = {row.pair: (REACH, row.vendor, row.pair) for row in found}
    numbers |= {_routed(row.vendor): (ROUTED_EXPERTS, _routed(row.vendor)) for row in found}
    priors = {one: MORE if ROUTED_EXPERTS in one else LESS for effects in numbers.values() for one in effects}
    rows_of = Counter(row.publisher for row in found)
    weight = np.array([1.0 / rows_of[row.publisher] for row in found])
    block = Block(numbers=numbers, errors=lambda p: np.array([row.log_error(p) for row in found]), weight=weight)
    best = hierarchy.fit([block], priors)
    off = {row: abs(row.log_error({name: best.number(effects) for name, effects in numbers.items()})) for row in found}

    def constant(name: str, scope: str, value: float, rows: list[Abroad]) -> Constant:
        by_publisher: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            by_publisher[row.publisher].append(off[row])
        errors = [median(each) for each in by_publisher.values()]
        wide = math.sqrt((SPREAD**2 + sum(one**2 for one in errors)) / (len(errors) + 1.0))
        source = f"decode steps on its devices: {', '.join(sorted(by_publisher))}"
        return entry("engine", name, scope, value, "1", wide, len(rows), source)

    out = []
    for scope, effects in sorted({row.vendor: (REACH, row.vendor) for row in found}.items() | numbers.items()):
        if effects[0] == REACH:
            out.append(
                constant(REACH, scope, min(1.0, best.number(effects)), [row for row in found if scope in row[:2]])
            )
        else:
            rows = [row for row in found if row.routed and _routed(row.vendor) == scope]
            out += [constant(ROUTED, rows[0].vendor, max(1.0, best.number(effects)), rows)] if rows else []
    why = "a device whose vendor has no rows: what the vendors that have share"
    for name, value in ((REACH, min(1.0, best.number([REACH]))), (ROUTED, max(1.0, best.number([ROUTED_EXPERTS])))):
        out.append(entry("engine", name, "any", value, "1", SPREAD, 0, why, kind="guess"))
    return out


def _routed(vendor: str) -> str:
    """Return the name of the number, and of the effect, of routed experts on a vendor's devices."""
    return f"{ROUTED_EXPERTS} {vendor}"


def _abroad(case: InferenceCase, fit: Fit) -> Abroad | None:
    """Return a run's decode steps, or a static batch; None where neither is known."""
    device = case.machine.device
    pair, vendor, _ = reach_scopes(case.engine, device)
    row = Abroad(vendor, pair, case.row["source_key"], 0.0, 0.0, 0.0)
    reach = fit.find("engine", REACH, [pair, vendor, "any"]).value
    known = steady_run(case, fit)
    if known is not None:
        r, (_, measured, term) = case.rates(fit), known
        layers = extra_layers(term, r).get(ROUTED_EXPERTS, 0.0)
        more = fit.find("engine", ROUTED, [vendor, "any"]).value
        routed = layers * r.extra_kernels[ROUTED_EXPERTS] * float(r.gap)
        host = sum(value for leaf, value in leaves(term) if leaf.name == "engine step")
        others = (float(term.value) - host - routed) * reach
        return row._replace(routed=routed / more * reach / measured, others=others / measured, host=host / measured)
    rate = case.measured.get("output_tokens_per_second")
    if case.regime != "static batch" or case.users is None or rate is None:
        return None
    found = static_figures(case, fit)["output_tokens_per_second"]
    return row._replace(others=rate / float(found.value) * reach) if isinstance(found, Metric) else None


REACH, ROUTED = "reach", "routed_kernels"
"""Names of the factor on rates, which is also the effect that all vendors share, and of that on the kernels of routed experts."""

LESS, MORE = Prior(0.0, 0.3), Prior(0.0, 1.0)
"""Priors of the effects behind a factor on rates, and behind one on kernels."""

SPREAD = 0.4
"""Spread of a factor between publishers, where none says it; a guess [1]."""
