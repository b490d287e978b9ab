"""What a serving run was started with where its row does not say, and whether it can have been as its row says."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from roofplan.evidence.models import unwindowed
from roofplan.evidence.rows import Skipped
from roofplan.records.source import Sourced

if TYPE_CHECKING:
    from roofplan.evidence.inference import InferenceCase


def with_launch_settings(case: InferenceCase) -> InferenceCase:
    """Return a case with the settings that its run must have had, or that its benchmark tool gives.

    Parameters
    ----------
    case : the run, with its engine's defaults where its row states nothing.

    Returns
    -------
    The run with these settings, each named among what is assumed.

    Raises
    ------
    Skipped : the run cannot have been as its row says.
    """
    case = _with_more_memory(case)
    if why := _impossible(case):
        raise Skipped(why)
    return _with_benchmark_settings(case) if case.regime == "offline" and case.in_flight else case


def _with_more_memory(case: InferenceCase) -> InferenceCase:
    """Return a case with more of the memory than its engine takes by default where it could not have run with that, and did."""
    if case.row.get("memory_fraction") or case.book().fits:
        return case
    larger = replace(case, engine=case.engine.launched({"memory_share": FULLEST}))
    said = f"share of memory: {FULLEST.text}, since {case.engine.id}'s default does not hold what ran"
    return replace(larger, assumed=(*case.assumed, said)) if larger.book().fits else case


FULLEST = Sourced(value=0.95, unit="fraction", text="0.95", source="a guess", seen="", kind="guess")
"""Share of memory of an engine whose default does not hold what ran: launches that state one go from 0.9 to 0.97 [1]."""


def _impossible(case: InferenceCase) -> str:
    """Return why a run cannot have been as its row says, empty where it can."""
    most = case.model.max_positions
    if most is not None and case.workload.context > MOST_OF_POSITIONS * most:
        return "input_len and output_len: far more than the model's positions"
    if case.users is not None and case.users > MOST_OF_MEMORY * max(1.0, case.book().by_memory):
        return "running_batch: far more than memory holds"
    return ""


MOST_OF_POSITIONS, MOST_OF_MEMORY = 4.0, 4.0
"""Tokens of a request over the model's positions, and sequences over those that memory holds, above which a row is misread; published runs
go up to 2 and 2.4 [1]."""


def _with_benchmark_settings(case: InferenceCase) -> InferenceCase:
    """Return an offline run with the settings of its engine's own benchmark tool where the row states none.

    trtllm-bench compiles for the tokens per step that the requests in the cache produce, B (1 + input / output), and gives the cache
    a larger share of memory than the engine does.
    """
    rule = case.engine.bench
    if "token_step" not in rule or any(
        case.row.get(column) for column in ("memory_fraction", "max_num_batched_tokens")
    ):
        return case
    notes: list[str] = []
    if "window" in rule and not rule["window"].value and (whole := unwindowed(case.model)) != case.model:
        case = replace(case, model=whole)
        notes.append("trtllm-bench: no window, every token is seen")
    load = case.workload
    sent = case.engine.bench_requests.get(f"{load.input:g}/{load.output:g}")
    if case.requests is None and sent is not None:
        case = replace(case, requests=round(sent.value))
        notes.append(f"requests: {sent.value:g}, which its makers send of these lengths")
    larger = replace(case, engine=case.engine.launched({"memory_share": rule["memory_share"]}))
    seats = larger.book().by_memory / case.groups / float(case.strategy.pp)
    step = rule["token_step"].value
    asked = min(seats * (1.0 + load.input / load.output), rule["most_tokens"].value)
    tokens = max(rule["least_tokens"].value, step * math.ceil(asked / step))
    compiled = replace(rule["least_tokens"], value=tokens, text=f"{tokens:g}")
    said = f"trtllm-bench: share of memory {rule['memory_share'].value:g}, {tokens:g} tokens a step by its tuning"
    engine = larger.engine.launched({"max_num_batched_tokens": compiled})
    return replace(case, engine=engine, assumed=(*case.assumed, *notes, said))
