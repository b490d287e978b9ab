"""What the launches of all training frameworks share: torchrun, refusals, blanks and remarks."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping

from roofplan import catalogue
from roofplan.errors import InputError
from roofplan.records.model import Model
from roofplan.records.training import Framework
from roofplan.training.plan import TrainingPlan


def flags_of(plan: TrainingPlan, name: str) -> Framework:
    """Return the framework profile whose flags are used: the plan's own version, else the newest of that name."""
    if plan.framework.flags and plan.framework.name == name:
        return plan.framework
    return catalogue.framework(catalogue.find("frameworks", name, "--emit"))


def torchrun(plan: TrainingPlan) -> list[str]:
    """Return the words that start one process per device."""
    m = plan.machine
    meet = ["--rdzv-backend c10d", "--rdzv-endpoint $HEAD:29500"] if m.hosts > 1 else []
    return ["torchrun", f"--nnodes {m.hosts}", f"--nproc-per-node {m.per_host}", *meet]


def refuse(plan: TrainingPlan, name: str, instead: str = "", /, **wanted: bool) -> None:
    """Refuse a layout that a framework cannot run; `instead` are flags of one that it can, by default its own name for another's plan."""
    if not instead and plan.framework.name != name and plan.job.adapter is None:
        instead = f"--framework {'transformers' if name == 'fsdp' else name}"
    advice = f"; plan with {instead}" if instead else ""
    for what, present in wanted.items():
        if present:
            raise InputError(
                f"--emit {name}: {name} has no {what.replace('_', ' ')} as in this plan{advice}",
                argument="--emit",
                value=name,
            )


def checkpoint(model: Model, blank: str = "<checkpoint>") -> str:
    """Return the Hub name of a model of the catalogue, else a blank."""
    known = model.id in catalogue.ids("models")
    return shlex.quote(str(catalogue.model_table(model.id).get("hub", blank)) if known else blank)


def recipe_of(plan: TrainingPlan) -> str:
    """Return the name under which a framework has a recipe of the plan's model, else a blank."""
    return str(plan.framework.raw.get("recipes", {}).get(plan.model.id, "'<recipe>'"))


def refuse_numbers(plan: TrainingPlan, name: str, flags: Mapping[str, str], formats: Collection[str]) -> None:
    """Refuse an optimizer and a number format that a framework's flags cannot express."""
    job = plan.job
    own = job.optimizer.id if job.adapter is None else "adam"
    refuse(plan, name, **{f"optimizer {own}": own != "adam" and f"optimizer_{own}" not in flags})
    unread = job.precision not in formats or (job.recipe == "mxfp8" and "recipe_mxfp8" not in flags)
    refuse(plan, name, f"--precision {' or '.join(formats)}", **{f"products in {job.recipe or job.precision}": unread})


def not_expressed(plan: TrainingPlan) -> list[str]:
    """Return remarks on recomputation that a launch cannot express."""
    x = plan.layout
    out = []
    if x.recompute == "full" and float(x.recomputed) < 1.0:
        out.append(f"recomputation of {float(x.recomputed):.0%} of the layers has no flag: this recomputes all")
    return out


PER_HOST = {"$HEAD": "address of the first host", "$RANK": "number of this host, from 0"}
"""Variables of a launch that the user sets on every host, and what they hold."""


def joined(words: list[str], remarks: list[str]) -> str:
    """Return one line of shell: words, then remarks behind ``#``."""
    meant = [f"{name}: {what}" for name, what in PER_HOST.items() if any(name in word for word in words)]
    said = [*remarks, *meant]
    return " ".join(words) + (f"  # {'; '.join(said)}" if said else "")
