"""Advice about a plan: the rank of a pinned strategy, a smaller machine that meets the demand, and improvements."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from roofplan.catalogue.machines import resized
from roofplan.hf.quantization import at_precision
from roofplan.operations.table import element_bytes
from roofplan.records.calibration import Fit
from roofplan.records.ties import TIE
from roofplan.serving.defaults import needed
from roofplan.serving.evaluate import evaluate
from roofplan.serving.order import objective, ordered
from roofplan.serving.plan import Improvement, Plan, Request, Result, Standing, Tally
from roofplan.serving.settings import names_of, settings_text
from roofplan.serving.space import narrower, refuses_format


def standing(plan: Plan, asked: Request, fit: Fit) -> Standing | None:
    """Return how a pinned plan ranks among all plans of its machine, None without pins.

    Parameters
    ----------
    plan : first plan of a search.
    asked : request of the search.
    fit : fitted constants.

    Returns
    -------
    The rank, None without pins.
    """
    if not asked.pins:
        return None
    free = evaluate(replace(asked, machines=(plan.machine,), pins={}), Tally(), fit)
    ranked = ordered([*(one for one in free if one.id != plan.id), plan], asked.best, limited=asked.constraints.timed)
    place, mine = next((i, one) for i, one in enumerate(ranked, start=1) if one.id == plan.id)
    best, here = objective(ranked[0], asked.best), objective(mine, asked.best)
    ratio = here / best if best > 0 else best / here
    return Standing(place=place, of=len(ranked), best=ranked[0], ratio=ratio, within_interval=mine.within_interval)


def smaller(plan: Plan, asked: Request, fit: Fit) -> Plan | None:
    """Return the plan of the smallest machine of the same kind that meets the demand, None if it is the plan's own.

    Parameters
    ----------
    plan : first plan of a search.
    asked : request of the search.
    fit : fitted constants.

    Returns
    -------
    The plan, or None.
    """
    if asked.constraints.concurrency is None and asked.constraints.rate is None:
        return None
    sizes = (
        resized(plan.machine, 1 << n) for n in range(plan.machine.count.bit_length()) if 1 << n < plan.machine.count
    )
    for machine in filter(None, sizes):
        found = evaluate(replace(asked, machines=(machine,), pins={}), Tally(), fit)
        if found:
            return ordered(found, asked.best, limited=asked.constraints.timed)[0]
    return None


PREFIX_HIT = 0.5
"""Prefix-hit rate that is tried if none is given [1]."""


CHUNK_FACTORS = (0.25, 0.5, 2.0, 4.0)
"""Sizes of prompt chunks to try, times the engine's default [1]."""


def improvements(plan: Plan, asked: Request, fit: Fit) -> list[Improvement]:
    """Return changes of a request that improve a plan by more than a tie, best first.

    Each is tried with the plan's own machine and degrees: half of the prompts in the prefix cache, weights and KV cache
    in 8 or 4 bits, other sizes of prompt chunks, and other engines.

    Parameters
    ----------
    plan : the plan to improve.
    asked : the request that it answers.
    fit : fitted constants.

    Returns
    -------
    Changes that help, the largest gain first.
    """
    degrees = plan.strategy.as_dict()
    here = replace(asked, machines=(plan.machine,), pins=degrees)
    best_of = asked.best if math.isfinite(objective(plan, asked.best)) else "throughput"  # without a price
    now = objective(plan, best_of)
    found = []
    for argument, value, changed in changes(plan, here):
        plans = evaluate(changed, Tally(), fit)
        if not plans:
            continue
        best = ordered(plans, best_of, limited=asked.constraints.timed)[0]
        there = objective(best, best_of)
        ratio = there / now if now > 0 else now / there
        if ratio < 1.0 - TIE:
            found.append(Improvement(argument=argument, needed=value, plan=best, ratio=ratio))
    return sorted(found, key=lambda one: one.ratio)


def better(result: Result) -> list[Improvement]:
    """Return the improvements of a result's first plan, which are tried once.

    Parameters
    ----------
    result : the plans found; it keeps the improvements.

    Returns
    -------
    Changes that help, the largest gain first.
    """
    if result.better is None:
        result.better = improvements(result.plans[0], result.asked, result.fit)
    return result.better


def changes(plan: Plan, asked: Request) -> Iterator[tuple[str, str, Request]]:
    """Yield changes of a request that are worth trying.

    Parameters
    ----------
    plan : the plan to improve.
    asked : the request that it answers, with its machine and degrees alone.

    Returns
    -------
    Flag, value and changed request of each.
    """
    if not asked.workload.prefix_hit and asked.workload.output > 1:
        yield (
            "--prefix-hit",
            f"{PREFIX_HIT:.0%}",
            replace(asked, workload=replace(asked.workload, prefix_hit=PREFIX_HIT)),
        )
    stored = plan.model.quantization.format if plan.model.quantization else plan.model.dtype
    for precision in narrower(plan.machine):
        read = not refuses_format(at_precision(asked.model, precision), plan.engine, plan.machine)
        if read and element_bytes(precision) < 0.9 * element_bytes(stored):
            yield "--precision", precision, replace(asked, precisions=(precision,))
    if element_bytes(plan.kv_precision) > 1.5 and "fp8" in plan.machine.device.peak:
        yield "--kv-precision", "fp8", replace(asked, kv_precisions=("fp8",))
    if "batched_tokens" in names_of(plan.engine).values() and "batched_tokens" not in asked.settings:
        now = needed(plan.engine, "max_num_batched_tokens", plan.machine)
        for factor in CHUNK_FACTORS:
            tokens = float(now * factor)
            settings = {**asked.settings, "batched_tokens": tokens}
            engine = asked.engine or plan.engine.id
            yield "--set", settings_text(plan.engine, settings), replace(asked, settings=settings, engine=engine)
    for engine in ("vllm", "sglang", "tensorrt-llm"):
        if engine != plan.engine.name and not asked.engine and not asked.settings:
            yield "--engine", engine, replace(asked, engine=engine, settings={})
