"""Warnings about a training plan."""

from __future__ import annotations

from roofplan import catalogue, money
from roofplan.catalogue.machines import fewer_ports, with_all_ports
from roofplan.records import units
from roofplan.records.calibration import Fit
from roofplan.records.training import Framework
from roofplan.timing.figures import STEP
from roofplan.training.ability import ability
from roofplan.training.certainty import MATTERS
from roofplan.training.ledger import fullest, ledgers
from roofplan.training.plan import TrainingPlan
from roofplan.training.step import step


def warnings_of(plan: TrainingPlan, policy: str) -> list[tuple[str, str]]:
    """Return the warnings about a plan, each with a code."""
    out = [("model", text) for text in plan.model.warnings]
    m, x = plan.machine, plan.layout
    out += _tight(plan)
    if m.device.vendor not in plan.framework.vendors:
        known = ", ".join(plan.framework.vendors)
        out.append(
            ("foreign_device", f"{plan.framework.id} is known on {known} alone: {m.device.id} borrows its constants")
        )
    if x.tp > m.per_host:
        out.append(
            (
                "tensor_across_hosts",
                f"tp {int(x.tp)} leaves the host of {m.per_host}: its collectives run at the network's rate",
            )
        )
    offered = {"1f1b", *plan.framework.schedules}
    if x.schedule not in offered:
        out.append(("schedule", f"{plan.framework.id} does not run {x.schedule}: this is what it would take"))
    if plan.job.optimizer.id == "muon":
        out.append(("muon", "Muon's orthogonalisation is not counted in the optimizer's time"))
    if plan.run is not None and plan.run.policy != policy:
        out.append(("policy", f"a run of one copy, or on one host, has none to go on with: --policy {policy} restarts"))
    if plan.cost is not None:
        out += money.warnings_of(plan.cost)
    if m.device.geforce_licence:
        out.append(("geforce_licence", "the GeForce driver licence forbids data centres (blockchain aside)"))
    if plan.run is not None and plan.run.goodput < HARDLY:
        r = plan.run
        text = (
            f"a failure every {r.interruption:,.0f} s against {r.restart:,.0f} s to start again: goodput {r.goodput:.3f}, in practice"
            " this run does not end"
        )
        out.append(("hardly_runs", text))
    if plan.run is not None and plan.run.preset.kind != "derived":
        out.append(("failures_guessed", f"failure rate: {plan.run.preset.source}"))
    return out


def slower_network(plan: TrainingPlan, fit: Fit) -> list[tuple[str, str]]:
    """Return a warning about the time lost by a machine with fewer network ports than it is sold with."""
    sold = with_all_ports(plan.machine)
    if sold is None:
        return []
    wider = step(plan.model, plan.job, plan.layout, ability(sold, plan.framework, fit))
    less = 1.0 - float(wider.time) / float(plan.step.time)
    return fewer_ports(plan.machine, sold, "a step", less)


MUCH = 0.8
"""Share of a step's time below which a faster framework is mentioned [1]."""


def quicker_elsewhere(plan: TrainingPlan, fit: Fit) -> list[tuple[str, str]]:
    """Return a warning if another framework is much faster with the same layout, and the overlaps that it adds."""
    mine, found = float(plan.step.time), []
    if plan.job.adapter is not None:
        return []
    for other in map(catalogue.framework, catalogue.ids("frameworks")):
        if other.id == plan.framework.id or not other.newest or not _could_run(other, plan, fit):
            continue
        held = fullest(ledgers(plan.model, plan.job, plan.layout, other, fit))
        if float(held.allocated.value) <= plan.machine.device.room:
            a = ability(plan.machine, other, fit)
            found.append((float(step(plan.model, plan.job, plan.layout, a).time), other))
    best, other = min(found, key=lambda one: one[0], default=(mine, plan.framework))
    if best > MUCH * mine:
        return []
    spent = plan.step.parts
    ours = set(plan.framework.overlaps)
    beside = [
        text
        for name, (part, text) in EXTRA_KERNELS.items()
        if name in other.overlaps and name not in ours and float(spent.get(part, 0.0)) > MATTERS * mine
    ]
    why = f", which runs {', '.join(beside)} beside compute" if beside else ""
    text = f"--framework {other.name}{why}: {units.significant(best)} s a step of this layout instead of {units.significant(mine)}"
    return [("quicker_framework", text)]


def _could_run(other: Framework, plan: TrainingPlan, fit: Fit) -> bool:
    """Return whether another framework supports a plan's layout and has measured step times on its architecture."""
    x, architecture = plan.layout, plan.machine.device.architecture
    measured = catalogue.measured_systems(STEP, fit.excluded)
    known = any((one.architecture, one.software) == (architecture, other.name) for one in measured)
    divided = all(getattr(x, name) == 1 or name in other.divides for name in ("tp", "pp", "cp", "ep"))
    return (
        known
        and divided
        and plan.machine.device.vendor in other.vendors
        and other.sharding == plan.framework.sharding
        and x.zero in other.stages_on(plan.machine.count)
        and x.schedule in {"1f1b", *other.schedules}
        and (x.interleave == 1 or "interleaved" in other.schedules)
        and x.offload == "none"
        and not other.even_layers
    )


EXTRA_KERNELS = {
    "data": ("data ranks", "reductions over data ranks"),
    "tensor": ("tensor ranks", "tensor collectives"),
    "expert": ("expert ranks", "exchanges between experts"),
    "pipeline": ("pipeline hops", "hops between chunks of a pipeline"),
}
"""Communication that a framework may overlap with compute: its part of a step, and its name."""


HARDLY = 0.1
"""Goodput below which a run is reported as never finishing [1]."""


def _tight(plan: TrainingPlan) -> list[tuple[str, str]]:
    """Return warnings for device memory that may run out within the ledger's error, and for unknown host memory."""
    out, m = [], plan.machine
    most, room = plan.metrics["memory_reserved"].high + plan.framework.keeps("outside"), m.device.room
    if most > room:
        text = f"up to {most / 2**30:.1f} GiB of {room / 2**30:.1f} within the ledger's error, so it may run out"
        out.append(("memory_tight", f"memory: {text}"))
    if plan.layout.offload != "none" and m.uplink is None and m.per_host > 1:
        text = "which devices share a link to the processor is not known: each is taken to have its own"
        out.append(("uplinks_unknown", text))
    if "host_memory" in plan.metrics and m.host_memory is None:
        need = f"{plan.metrics['host_memory'].value / 2**30:,.0f} GiB"
        out.append(
            ("host_memory_unknown", f"host memory is not known of this server: the plan needs {need} in each host")
        )
    return out
