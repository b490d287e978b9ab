"""The launch of a training plan under a framework: command-line flags, or a configuration file."""

from __future__ import annotations

from collections.abc import Callable

from roofplan.errors import InputError, choice
from roofplan.exports import deepspeed, fsdp, litgpt, maxtext, megatron, megatron_bridge, torchtitan
from roofplan.training.plan import TrainingPlan

WRITERS: dict[str, Callable[[TrainingPlan], str]] = {
    "megatron": megatron.launch,
    "megatron-bridge": megatron_bridge.launch,
    "torchtitan": torchtitan.launch,
    "deepspeed": deepspeed.launch,
    "fsdp": fsdp.launch,
    "litgpt": litgpt.launch,
    "maxtext": maxtext.launch,
}
"""What writes a launch, by the name that ``--emit`` takes."""

TARGETS = tuple(WRITERS)


def launch_or_reason(plan: TrainingPlan) -> str:
    """Return how a plan is started under its own framework, or why no launch is known.

    Parameters
    ----------
    plan : the plan.

    Returns
    -------
    The launch, or a comment that gives the reason.
    """
    try:
        return launch(plan)
    except InputError as refusal:
        return f"# no launch: {refusal.message.removeprefix('--emit ')}"


def target_of(plan: TrainingPlan) -> str:
    """Return the launch target of a plan's framework.

    Parameters
    ----------
    plan : the plan.

    Returns
    -------
    One of `TARGETS`, or the name of the framework where none of them starts it.
    """
    return OF_FRAMEWORK.get(plan.framework.name, plan.framework.name)


OF_FRAMEWORK = {
    "fsdp-qlora": "fsdp",
    "llm-foundry": "fsdp",
    "transformers": "fsdp",
}
"""Launch targets of frameworks with another name."""


def launch(plan: TrainingPlan, target: str | None = None) -> str:
    """Return how a plan is started under a framework.

    Parameters
    ----------
    plan : the plan.
    target : one of `TARGETS`, None for that of the plan's own framework.

    Returns
    -------
    A command line, or a configuration file in JSON for DeepSpeed; what a command cannot express follows ``#``.

    Raises
    ------
    InputError : the target is unknown, or cannot run the plan's layout, number format, optimizer or device.
    """
    name = target or target_of(plan)
    if target is None and name not in TARGETS:
        raise InputError(
            f"--emit: no launch of {name} is known; known: {', '.join(TARGETS)}", argument="--emit", value=name
        )
    choice(name, TARGETS, "--emit")
    if plan.machine.device.vendor not in plan.framework.vendors:
        raise InputError(
            f"--emit {name}: its launch is known for {', '.join(plan.framework.vendors)} alone, not for {plan.machine.device.id}",
            argument="--emit",
            value=name,
        )
    return WRITERS[name](plan)
