"""Figures of published serving runs, as predicted and as data sheets bound them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from roofplan.errors import InputError, RoofplanError
from roofplan.evidence.alternatives import alternatives
from roofplan.evidence.inference import LARGEST_QUEUE, LENGTHS, ROUNDS, InferenceCase, decodes_apart, tells_latency
from roofplan.evidence.rows import Skipped
from roofplan.evidence.scoring import UNITS
from roofplan.laws import batching
from roofplan.load.requests import Lengths, Requests, renewal
from roofplan.records.calibration import Fit
from roofplan.records.terms import Term
from roofplan.serving import Floors, Prediction, floors
from roofplan.serving.bounds import bounded
from roofplan.serving.certainty import certainty
from roofplan.simulation.deployment import Deployment
from roofplan.simulation.replicas import ROUND_ROBIN, Fleet, Served
from roofplan.simulation.report import growth_of, scaled
from roofplan.timing.figures import CLIENTS, FIGURE_OF, Load, Metric, flat, sure


def predicted_figures(case: InferenceCase, fit: Fit) -> dict[str, Metric | str]:
    """Return the predicted figures of a case by metric, or why one cannot be predicted; omitted inputs widen intervals."""
    found = _as_stated(case, fit)
    cases = {unstated: alternatives(case, unstated) for unstated in case.unstated}
    steady = _steady_values(case, fit) if cases.keys() - {LENGTHS} else {}
    others = {
        unstated: [
            _values(found),
            *(_values(_as_stated(one, fit, swing=False)) for one in several),
        ]  # values alone count
        if unstated == LENGTHS
        else [steady, *(_steady_values(one, fit) for one in several)]
        for unstated, several in cases.items()
    }
    wide = {name: _widened(name, figure, others, fit) for name, figure in found.items()}
    return wide | _bounded(case, [one for several in cases.values() for one in several], wide, fit)


def limited_by_rate(case: InferenceCase, fit: Fit) -> InferenceCase:
    """Return clients whose requests also come at a rate as an open loop, where they come more slowly than the clients could send them.

    Parameters
    ----------
    case : a run; ``vllm bench serve --request-rate R --max-concurrency C`` states both.
    fit : the fitted constants.

    Returns
    -------
    The run as an open loop, or unchanged where its clients are the limit or no rate is stated.
    """
    if case.regime != "closed loop" or case.arrivals is None or case.clients is None:
        return case
    users = max(1.0, min(float(case.clients), float(case.book().max_concurrency)))
    most = float(case.steady(users, fit).rate) / case.workload.output
    return replace(case, regime="open loop", clients=None) if case.arrivals < most else case


def _bounded(
    case: InferenceCase, plausible: Sequence[InferenceCase], found: Mapping[str, Metric | str], fit: Fit
) -> dict[str, Metric]:
    """Return figures clipped at what data sheets allow in the most favourable of the plausible cases."""
    bounds = [_least(one, 1, fit) for one in (case, *plausible)]
    least = replace(min(bounds, key=lambda one: one.token), by_data_sheet=all(one.by_data_sheet for one in bounds))
    together = case.at_once if case.regime == "static batch" else 1.0
    first = min(max(one.first, together * one.whole / case.machine.count) for one in bounds)
    if case.varied and case.statistic.quantile is not None:
        first = 0.0  # a percentile of prompts of unlike length is not that of their mean
    known = {name: one for name, one in found.items() if isinstance(one, Metric)}
    return bounded(known, least, users=float(case.users or case.clients or math.inf), first=first)


def _values(figures: Mapping[str, Metric | str]) -> dict[str, float]:
    """Return the values of those figures that are predicted."""
    return {name: float(one.value) for name, one in figures.items() if isinstance(one, Metric)}


def _steady_values(case: InferenceCase, fit: Fit) -> dict[str, float]:
    """Return the figures of a case in its steady state, used to see how far another input would move them."""
    out: dict[str, float] = {}
    try:
        if case.measured.keys() & {"ttft", "prefill_tokens_per_second"}:
            prompts = float(case.prompts_term(fit).value)
            out |= {"ttft": prompts, "prefill_tokens_per_second": 1.0 / prompts}
        if case.measured.keys() & {"tpot", "output_tokens_per_second"}:
            users = case.users or min(float(case.book().max_concurrency), float(case.clients or math.inf))
            state = case.steady(max(1.0, users), fit)
            out |= {"tpot": float(state.pace.value), "output_tokens_per_second": float(state.rate)}
    except (Skipped, RoofplanError):
        return {}
    return out


def _widened(name: str, figure: Metric | str, others: dict[str, list[dict[str, float]]], fit: Fit) -> Metric | str:
    """Return a figure with its interval widened to its values under other plausible inputs; the first are those of the case itself."""
    if isinstance(figure, str) or figure.doubt is None:
        return figure
    spans = []
    for unstated, (here, *found) in others.items():
        if name in here:
            values = [here[name], *(each[name] for each in found if name in each)]
            spans.append((unstated, flat(min(values), max(values))))
    doubt = figure.doubt._replace(assumed=(*figure.doubt.assumed, *spans))
    return sure(FIGURE_OF[name], figure.grade, doubt, fit).of(figure.value, figure.unit)


def _as_stated(case: InferenceCase, fit: Fit, *, swing: bool = True) -> dict[str, Metric | str]:
    """Return the predicted figures of a case by its stated inputs and those filled in by rules; `swing` as in `_queued`."""
    if case.regime == "static batch":
        return static_figures(case, fit)
    if case.regime == "steady batch":
        return _predicted_steady(case, fit)
    return _queued(case, fit, swing=swing)


def _metric(
    case: InferenceCase, name: str, value: float, behind: Term, fit: Fit, load: Load = "", swing: float = 0.0
) -> Metric:
    """Return a figure of a case that follows from a time."""
    waits = name == "ttft" and load in CLIENTS
    known = certainty(
        FIGURE_OF[name], behind, case.model, case.rates(fit), load=load, swing=swing, behind_front_end=waits
    )
    return known.of(value, UNITS[name])


def static_figures(case: InferenceCase, fit: Fit) -> dict[str, Metric | str]:
    """Return the predicted figures of a batch that starts and ends together.

    Parameters
    ----------
    case : a run with a known batch.
    fit : the fitted constants.

    Returns
    -------
    Figures by metric, or why there is none.
    """
    users = case.at_once
    found = case.steady(users, fit)
    decode, prompts = case.measured_term(found), case.prompts_term(fit)
    figures: dict[str, tuple[float, Term]] = {
        "tpot": (float(decode.value), decode),
        "ttft": (float(prompts.value), prompts),
        "prefill_tokens_per_second": (users * case.prompt / float(prompts.value), prompts),
    }
    answer = float(case.workload.output)
    whole = float(batching.static_batch_time(prompts.value, decode.value, answer - 1.0))
    timed = answer * float(decode.value) if decodes_apart(case.row, case.engine) else whole
    figures["output_tokens_per_second"] = (users * answer / timed, decode)
    if case.statistic.kind == "request":
        figures["tpot"] = (whole / answer, decode)
    out: dict[str, Metric | str] = {
        name: _metric(case, name, value, behind, fit) for name, (value, behind) in figures.items()
    }
    if tells_latency(case):
        out["prefill_tokens_per_second"] = "a prompt of few tokens tells a latency, not a rate"
    return out


def _predicted_steady(case: InferenceCase, fit: Fit) -> dict[str, Metric | str]:
    found = case.steady(case.at_once, fit)
    term = case.measured_term(found)
    out: dict[str, Metric | str] = {
        "tpot": _metric(case, "tpot", float(term.value), term, fit),
        "output_tokens_per_second": _metric(case, "output_tokens_per_second", float(found.rate), found.cycle, fit),
    }
    return _without_tails(case, out)


def _queued(case: InferenceCase, fit: Fit, *, swing: bool) -> dict[str, Metric | str]:
    """Return the figures of requests that queue: by the steady state for long queues, else by simulating each step.

    `swing` : whether to widen intervals near capacity, which takes two more simulations; values do not depend on it.
    """
    book = case.book()
    seats = book.max_concurrency // case.groups
    if seats < 1 or not book.fits:
        raise Skipped("memory: by our ledger it does not fit")
    if case.regime == "offline" and not case.in_flight:
        return static_figures(replace(case, users=float(book.max_concurrency)), fit)
    clients = float(case.clients or math.inf)
    running = min(float(book.max_concurrency), clients)
    long = case.regime != "open loop" and case.requests is not None and case.requests > LARGEST_QUEUE * running
    in_step = case.alike and case.clients is not None  # equal requests never spread out, however many
    waits = case.regime in UNEVEN_LOADS or clients > running
    load: Load = "queue" if waits else "clients" if clients > 1 else "client"
    if (long and not in_step) or (case.regime == "offline" and case.requests is None):
        # a backlog without clients keeps the batch as full as one that was measured
        return _full_queue(case, running, "" if case.clients is None else load, fit)
    requests = requests_of(case)
    fleet = _fleet(case, requests, fit)
    seen, steady = _served(case, fleet, requests, fit)
    full = steady if waits else case.steady(clients, fit)  # all clients run at once
    values = _seen_values(case, seen, case.measured_term(steady))
    behind = {"ttft": full.ttft, "output_tokens_per_second": full.cycle, "tpot": case.measured_term(full)}
    swings = _swings(case, fleet, requests, values, fit) if swing and load == "queue" else {}
    out: dict[str, Metric | str] = {
        name: _metric(case, name, value, behind[name], fit, load, swings.get(name, 0.0))
        for name, value in values.items()
    }
    if case.regime == "open loop" and case.requests is None and growth_of(seen, case.clients):
        out["ttft"] = "number of requests not stated: how long the queue grew is not known"
    return out


def _seen_values(case: InferenceCase, seen: Served, step: Term) -> dict[str, float]:
    """Return the figures of a simulated run, in the row's statistic; `step` is the time per token at its mean batch size."""
    rate = float(seen.outputs.sum()) / float(seen.last.max() - seen.arrivals.min())
    out = {"ttft": case.statistic.of(seen.figure("ttft")), "output_tokens_per_second": rate}
    return out | ({"tpot": _time_per_token(case, seen, step)} if np.any(seen.outputs > 1) else {})


def _swings(
    case: InferenceCase, fleet: Fleet, requests: Requests, values: dict[str, float], fit: Fit
) -> dict[str, float]:
    """Return how far figures of a queue move beyond its steps where all steps take `PACE` longer or shorter.

    Far below capacity a queue's figures move as its steps do or less; near capacity a little decides whether requests wait.

    Returns
    -------
    Relative errors by figure, one standard deviation [1].
    """

    def at(pace: float) -> dict[str, float]:
        seen, steady = _served(case, replace(fleet, surface=scaled(fleet.surface, pace)), requests, fit)
        return _seen_values(case, seen, case.measured_term(steady))

    quick, slow = at(1.0 / PACE), at(PACE)
    moved = {name: abs(math.log(slow[name] / quick[name])) / 2.0 for name in values if quick[name] > 0.0}
    return {name: math.sqrt(max(0.0, far**2 - math.log(PACE) ** 2)) for name, far in moved.items()}


PACE = 1.2
"""Factor on step times by which a queue is tried: a usual standard deviation of theirs. What it means for an interval is learned [1]."""


UNEVEN_LOADS = frozenset({"open loop", "burst"})
"""Regimes in which the batch size varies over time."""


def _time_per_token(case: InferenceCase, seen: Served, step: Term) -> float:
    """Return the time per token of a simulated run, in the row's statistic; quantiles of gaps come from the steady state."""
    if case.statistic.kind == "gap" and case.statistic.quantile is not None:
        return float(step.value)
    whole = seen.figure("e2e") / seen.outputs
    return case.statistic.of(whole if case.statistic.kind == "request" else seen.figure("tpot"))


def _full_queue(case: InferenceCase, running: float, load: Load, fit: Fit) -> dict[str, Metric | str]:
    """Return the steady state of a queue so long that ramp-up and tail do not matter; excess clients wait for a batch slot."""
    full = case.steady(running, fit)
    term = case.measured_term(full)
    out: dict[str, Metric | str] = {
        "tpot": _metric(case, "tpot", float(term.value), term, fit, load),
        "output_tokens_per_second": _metric(case, "output_tokens_per_second", float(full.rate), full.cycle, fit, load),
    }
    if case.clients is not None:
        between = 0.0 if full.tpot is None else float(full.tpot.value)
        stays = case.clients * case.workload.output / float(full.rate)
        front = float(case.rates(fit).front + case.rates(fit).delay)
        first = stays - (case.workload.output - 1.0) * between + front
        out["ttft"] = _metric(case, "ttft", first, full.ttft, fit, load)
    return _without_tails(case, out)


def _without_tails(case: InferenceCase, out: dict[str, Metric | str]) -> dict[str, Metric | str]:
    """Return steady-state figures without those published as a percentile of requests other than the median."""
    quantile = case.statistic.quantile
    if quantile is None or quantile == MIDDLE:
        return out
    gaps = case.statistic.kind == "gap"
    said = "percentiles of requests are not predicted where all of them are alike"
    return out | {name: said for name in ("tpot", "ttft") if name in out and not (gaps and name == "tpot")}


MIDDLE = 0.5
"""Median, the only quantile that a steady state represents [1]."""


def simulated(case: InferenceCase, fit: Fit) -> tuple[Served, Prediction]:
    """Return a simulated run, and the steady state at its mean batch size.

    Parameters
    ----------
    case : a run whose requests queue.
    fit : the fitted constants.

    Returns
    -------
    Times of every request, and the steady state.

    Raises
    ------
    Skipped : a request that the cache does not hold.
    """
    requests = requests_of(case)
    return _served(case, _fleet(case, requests, fit), requests, fit)


def _fleet(case: InferenceCase, requests: Requests, fit: Fit) -> Fleet:
    """Return the replicas of a case, sized for its longest request."""
    deployment = Deployment(
        model=case.model,
        machine=case.machine,
        engine=case.engine,
        strategy=case.strategy,
        workload=case.workload,
        rates=case.rates(fit),
        memory=case.book(),
        kv_bytes=case.kv_bytes,
    )
    fleet = deployment.fleet(int((requests.inputs + requests.outputs).max()), route=ROUND_ROBIN)
    if case.regime == "offline":  # without a server
        fleet = replace(fleet, scheduler=fleet.scheduler._replace(front=0.0, delay=0.0))
    return fleet


def _served(case: InferenceCase, fleet: Fleet, requests: Requests, fit: Fit) -> tuple[Served, Prediction]:
    """Return the run of requests through replicas, and the steady state at its mean batch size."""
    try:
        seen = fleet.serve(requests, np.zeros(len(requests), np.int64), case.clients)
    except InputError as error:
        raise Skipped(f"memory: {error.message}") from None
    running = float((seen.outputs - 1).sum()) / max(1, seen.steps)
    return seen, case.steady(max(1.0, running) * case.groups, fit)


UNSTATED = 1000
"""Requests of a run at a rate where their number is not stated [1]."""

SPREAD = Lengths("uniform", 0.8, 1.2)
"""Lengths of clients' requests where nothing says that all are alike: benchmark tools draw them around what they are asked for."""

SHARED_CHATS = Lengths("exponential")
"""Lengths of conversations: their standard deviation is about their mean, in ShareGPT between 1 and 1.5 times."""


def requests_of(case: InferenceCase) -> Requests:
    """Return the requests of a run, drawn by the same random numbers every time.

    Parameters
    ----------
    case : a run whose requests queue.

    Returns
    -------
    Arrivals and lengths; clients send theirs when the last one has ended.
    """
    count = case.requests or (round(ROUNDS * case.clients) if case.clients else UNSTATED)
    count = min(count, round(LARGEST_QUEUE * case.clients)) if case.clients else count
    spread = case.clients is not None and not case.alike
    lengths = SHARED_CHATS if case.varied else SPREAD if spread else Lengths()
    random = np.random.default_rng(0)
    inputs, outputs = (lengths.draw(mean, count, random) for mean in (case.workload.input, case.workload.output))
    arrivals = None
    if case.clients is None:
        arrivals = np.zeros(count) if case.arrivals is None else renewal(case.arrivals, count, 1.0, random)
    return Requests(arrivals=arrivals, inputs=inputs, outputs=outputs)


def ideal_serving(case: InferenceCase, fit: Fit) -> dict[str, float]:
    """Return the data sheet's limits, where it has some: one read of the weights per token, and prompts at the dense peak of all devices."""
    one, rate = _floors(case, fit)
    out = {"prefill_tokens_per_second": rate} if math.isfinite(rate) else {}
    if case.users is None:
        return out
    if one:
        out |= {"tpot": one, "output_tokens_per_second": case.users / one}
    if math.isfinite(rate) and case.regime == "static batch":
        out["ttft"] = case.users * case.prompt / rate
    return out


def _floors(case: InferenceCase, fit: Fit) -> tuple[float, float]:
    """Return the least time per token, from the bytes that the running sequences read, and the highest prompt rate [s, token/s]."""
    one = _least(case, max(1, round(case.at_once)), fit)
    prompt = max(1, round(case.prompt))
    return float(one.token), float(prompt * case.machine.count / one.whole) if one.whole else math.inf


def _least(case: InferenceCase, users: int, fit: Fit) -> Floors:
    """Return lower bounds on the times of a case with so many users."""
    prompt = replace(case.workload, input=max(1, round(case.prompt)))
    return floors(case.model, case.strategy, prompt, case.rates(fit), users)


def implausible_serving(case: InferenceCase, fit: Fit) -> dict[str, str]:
    """Return the figures of a case that exceed its data sheet, each with the limit that it exceeds."""
    out = {}
    token, most = _floors(case, fit)
    least, rates = case.measured.get("tpot"), ("prefill_tokens_per_second", "output_tokens_per_second")
    if least is not None and least < token and not case.workload.drafted:
        out["tpot"] = f"memory bandwidth: a token takes at least {token * 1e3:.3g} ms"
    for name in rates:
        if case.measured.get(name, 0.0) > most:
            out[name] = f"dense peak: at most {most:,.0f} tok/s"
    answered = _answered(case)
    if answered is not None and answered * case.workload.input > most:
        said = f"dense peak: {answered:.3g} requests a second bring {answered * case.workload.input:,.0f} prompt tokens, at most {most:,.0f} are computed"
        out |= dict.fromkeys(case.measured.keys() - out.keys(), said)
    first, waited = ideal_serving(case, fit).get("ttft"), case.measured.get("ttft")
    if first is not None and waited is not None and waited < first:
        out["ttft"] = f"dense peak: the prompts take at least {first:.3g} s"
    return out


def _answered(case: InferenceCase) -> float | None:
    """Return the requests answered per second by a run's own figures: its token rate, or its clients and their latency."""
    answer = float(case.workload.output)
    if "output_tokens_per_second" in case.measured:
        return None if decodes_apart(case.row, case.engine) else case.measured["output_tokens_per_second"] / answer
    if case.clients is None or not case.measured.keys() >= {"ttft", "tpot"} or case.statistic.kind == "request":
        return None
    return case.clients / (case.measured["ttft"] + (answer - 1.0) * case.measured["tpot"])
