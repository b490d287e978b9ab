"""What the launches of all training frameworks share: torchrun, refusals, blanks and remarks."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

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


def refuse(plan: TrainingPlan, name: str, **wanted: bool) -> None:
    """Refuse a layout that a framework cannot run."""
    advice = (
        ""
        if plan.framework.name == name or plan.job.adapter is not None
        else f"; plan with --framework {'transformers' if name == 'fsdp' else name}"
    )
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


def unknown(plan: TrainingPlan, flags: Mapping[str, str], formats: set[str]) -> dict[str, bool]:
    """Return whether the optimizer and the number format cannot be expressed by a framework's flags."""
    job = plan.job
    own = job.optimizer.id if job.adapter is None else "adam"
    return {
        f"optimizer {own}": own != "adam" and f"optimizer_{own}" not in flags,
        f"products in {job.recipe or job.precision}": job.precision not in formats
        or (job.recipe == "mxfp8" and "recipe_mxfp8" not in flags),
    }


def not_expressed(plan: TrainingPlan) -> list[str]:
    """Return remarks on recomputation and number formats that a launch cannot express."""
    x, job = plan.layout, plan.job
    out = []
    if x.recompute == "full" and float(x.recomputed) < 1.0:
        out.append(f"recomputation of {float(x.recomputed):.0%} of the layers has no flag: this recomputes all")
    if job.precision == "fp4":
        out.append("fp4: no flag known")
    return out


def joined(words: list[str], remarks: list[str]) -> str:
    """Return one line of shell: words, then remarks behind ``#``."""
    return " ".join(words) + (f"  # {'; '.join(remarks)}" if remarks else "")
