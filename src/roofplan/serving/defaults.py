"""What an engine does on a machine unless it is told otherwise."""

from __future__ import annotations

from roofplan.errors import InputError
from roofplan.records.engine import Engine
from roofplan.records.hardware import Machine
from roofplan.records.workload import Workload


def default(engine: Engine, name: str, machine: Machine, tensor: int = 1) -> float | None:
    """Return an engine's default for a machine, in its own unit, or None."""
    found = engine.default(name, machine.device.id, machine.device.room, tensor)
    return None if found is None else found.value


def needed(engine: Engine, name: str, machine: Machine, tensor: int = 1) -> float:
    """Return an engine's default that a plan requires; raises InputError if the engine's entry lacks it."""
    found = default(engine, name, machine, tensor)
    if found is None:
        raise InputError(
            f"--engine: {engine.id} states no {name} for {machine.device.id}", argument="--engine", value=engine.id
        )
    return found


def batched_tokens(engine: Engine, machine: Machine, workload: Workload, groups: int = 1) -> float:
    """Return the token budget of one engine step on a rank; an engine without chunked prefill computes a whole prompt.

    Parameters
    ----------
    engine : engine with its defaults.
    machine : devices, on which some defaults depend.
    workload : lengths of prompts and answers.
    groups : attention-DP groups, among which some engines divide the budget [1].

    Returns
    -------
    Tokens per step [token].
    """
    limit = needed(engine, "max_num_batched_tokens", machine)
    limit = max(1.0, limit // groups) if engine.budget_limit == "server" else limit
    return limit if engine.chunked_prefill else max(limit, float(workload.context))
