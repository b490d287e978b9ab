"""Fit what an engine reaches on devices for which its kernels were not first written, over what it reaches on NVIDIA's."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import median

from roofplan.evidence.fits.engines import steady_run
from roofplan.evidence.fits.fitting import NOT_FOR_FITTING, entry
from roofplan.evidence.inference import InferenceCase, clean_cases
from roofplan.evidence.serving_figures import static_figures
from roofplan.records.calibration import Constant, Fit
from roofplan.timing.figures import Metric
from roofplan.timing.rates import at_home, reach_scopes


def fit_reach(fit: Fit) -> list[Constant]:
    """Fit, per vendor and per engine on a vendor's devices, the factor on all rates that decode steps of known batches show.

    Publishers weigh equally by the medians of their rows, and a publisher without effect is added to each group, which holds back what a few
    say. A vendor without rows takes the mean of the others.

    Parameters
    ----------
    fit : constants, with the factors of the last turn.

    Returns
    -------
    Factors, at most one: rates stay at what kernel tables show.
    """
    gone = NOT_FOR_FITTING | fit.excluded
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for case in clean_cases():
        device = case.machine.device
        if at_home(case.engine, device) or not gone.isdisjoint(case.origin.names):
            continue
        slower = _over_measured(case, fit)
        if slower is None:
            continue
        scopes = reach_scopes(case.engine, device)
        now = fit.find("engine", "reach", scopes).value
        for scope in scopes[:-1]:
            found[scope][case.row["source_key"]].append(math.log(now * slower))
    out, vendors = [], []
    for scope, by_publisher in sorted(found.items()):
        medians = [median(values) for values in by_publisher.values()]
        middle = sum(medians) / (len(medians) + PRIOR)
        off = math.sqrt((SPREAD**2 + sum((one - middle) ** 2 for one in medians)) / (len(medians) + PRIOR))
        rows = sum(map(len, by_publisher.values()))
        source = f"decode steps on its devices: {', '.join(sorted(by_publisher))}"
        middle = min(middle, 0.0)
        out.append(entry("engine", "reach", scope, math.exp(middle), "1", off, rows, source))
        vendors += [middle] if "/" not in scope else []
    middle = math.exp(sum(vendors) / (len(vendors) + PRIOR))
    why = "a device whose vendor has no rows: mean of the vendors that have"
    return [*out, entry("engine", "reach", "any", middle, "1", SPREAD, 0, why, kind="guess")]


def _over_measured(case: InferenceCase, fit: Fit) -> float | None:
    """Return the predicted over the measured time of a run's decode steps, or of a static batch; None where neither is known [1]."""
    known = steady_run(case, fit)
    if known is not None:
        return float(known[2].value) / known[1]
    rate = case.measured.get("output_tokens_per_second")
    if case.regime != "static batch" or case.users is None or rate is None:
        return None
    found = static_figures(case, fit)["output_tokens_per_second"]
    return rate / float(found.value) if isinstance(found, Metric) else None


PRIOR, SPREAD = 1.0, 0.4
"""Publishers without effect in each group [1], and spread of the factor between publishers [1]."""
