"""Answers as JSON: the same members in every case, exactly one of a plan, ``no_plan`` or ``error``."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofplan import __version__, catalogue
from roofplan.catalogue import profile
from roofplan.errors import NoPlan, RoofplanError
from roofplan.evidence import nearest_measured
from roofplan.exports.serving import launch
from roofplan.exports.training import launch_or_reason as training_launch
from roofplan.present.screens import source_text
from roofplan.present.screens.explain import document_text
from roofplan.records.calibration import OWN
from roofplan.records.hardware import Accelerator, Machine, Server
from roofplan.records.source import Sourced
from roofplan.records.terms import Cited
from roofplan.serving import Plan, Result, bounds, first_bound
from roofplan.training import TrainingPlan, TrainingResult, binding, flops_per_token

if TYPE_CHECKING:
    from roofplan.evidence.fits.own import Refit
    from roofplan.evidence.scoring import Validation

SCHEMA_VERSION = "3"
EXPLAIN_DEPTH = 4


def base(command: str, status: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the members that every answer has."""
    rests = command in profile.USED_BY
    stale = profile.stale(catalogue.shipped_fit()) if rests else ""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": command,
        "status": status,
        "versions": {
            "roofplan": __version__,
            "catalogue": catalogue.version(),
            "prices_to": catalogue.prices_to(),
            **({"profile": said} if rests and (said := profile.said(catalogue.shipped_fit())) else {}),
        },
        "inputs": inputs,
        "warnings": [{"code": "stale_profile", "text": stale}] if stale else [],
    }


def coded(warnings: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    """Return warnings as plain values."""
    return [{"code": code, "text": text} for code, text in dict.fromkeys(warnings)]


def failure(command: str, inputs: dict[str, Any], error: RoofplanError) -> dict[str, Any]:
    """Return the answer where there is no plan."""
    if isinstance(error, NoPlan):
        return {
            **base(command, "no_plan", inputs),
            **({"search": error.search} if error.search else {}),
            "no_plan": {"binding": error.binding, "message": error.message, "relax": error.relax},
        }
    return {**base(command, "error", inputs), "error": error.as_json()}


def serve_answer(
    result: Result, inputs: dict[str, Any], *, top: int, explain: bool, depth: int = EXPLAIN_DEPTH
) -> dict[str, Any]:
    """Return the answer of ``roofplan serve``."""
    out = base("serve", "ok", canonical(result, inputs))
    out["search"] = result.tally.as_json()
    out["warnings"] += [{"code": code, "text": text} for code, text in result.warnings]
    out["model"] = {
        "id": result.plans[0].model.id,
        "sha256": result.plans[0].model.sha256,
        "parameters": result.plans[0].model.total,
    }
    cited: dict[str, Any] = {}
    out["plans"] = [
        plan_json(plan, result, inputs, cited, explain=depth if explain and index == 0 else 0, ladder=index == 0)
        for index, plan in enumerate(result.plans[: max(top, 1)])
    ]
    out["sources"] = cited
    return out


def train_answer(
    result: TrainingResult, inputs: dict[str, Any], *, top: int, explain: bool, depth: int = EXPLAIN_DEPTH
) -> dict[str, Any]:
    """Return the answer of ``roofplan train``."""
    first = result.plans[0]
    said = {"batch": f"{first.job.batch}seq", "sequence": str(first.job.sequence), "best": result.asked.best}
    out = base("train", "ok", {**inputs, **said})
    out["search"] = result.tally.as_json()
    out["warnings"] += [{"code": code, "text": text} for code, text in result.warnings]
    out["assumed"] = list(result.asked.assumed)
    out["model"] = {"id": first.model.id, "sha256": first.model.sha256, "parameters": first.model.total}
    products, mixing = flops_per_token(first.model, first.job.sequence, first.job.adapter)
    out["job"] = {
        "sequence": first.job.sequence,
        "batch": first.job.batch,
        "tokens": first.job.tokens,
        "precision": first.job.precision,
        "optimizer": first.job.optimizer.id,
        "imbalance": first.job.imbalance,
        "capacity": first.job.capacity,
        "flops_per_token": {"products": products, "attention": mixing, "unit": "FLOP"},
    }
    cited: dict[str, Any] = {}
    out["plans"] = [
        training_plan_json(plan, inputs, cited, explain=depth if explain and index == 0 else 0)
        for index, plan in enumerate(result.plans[: max(top, 1)])
    ]
    out["sources"] = cited
    return out


def _sourced(numbers: Mapping[str, Sourced]) -> dict[str, Any]:
    """Return numbers with their sources as JSON."""
    return {
        key: {"value": n.value, "unit": n.unit, "text": n.text, "source": n.source, "seen": n.seen, "kind": n.kind}
        for key, n in numbers.items()
    }


def server_json(found: Server) -> dict[str, Any]:
    """Return a server as JSON."""
    return {
        "id": found.id,
        "name": found.name,
        "accelerator": found.accelerator,
        "network": found.network,
        "quantities": _sourced(found.quantities),
        "aliases": list(found.aliases),
        "notes": list(found.notes),
    }


def device_json(found: Accelerator) -> dict[str, Any]:
    """Return a device as JSON."""
    return {
        "id": found.id,
        "name": found.name,
        "vendor": found.vendor,
        "architecture": found.architecture,
        "quantities": _sourced(found.quantities),
        "peak": _sourced(found.peak),
        "sparse": _sourced(found.sparse),
        "measured": _sourced(found.measured),
        "scale_up": found.scale_up,
        "host_link": found.host_link,
        "peer_to_peer": found.peer_to_peer,
        "geforce_licence": found.geforce_licence,
        "aliases": list(found.aliases),
        "notes": list(found.notes),
    }


def cited_json(found: Iterable[Cited]) -> dict[str, Any]:
    """Return documents and constants by what cites them."""
    return {key: {"text": document_text(key)} for key in dict.fromkeys(one.citation for one in found)}


def validation_answer(found: Validation, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of ``roofplan validate``."""
    from roofplan.evidence.document import members

    return base("validate", "ok", inputs) | members(found)


def finite(value: float) -> float | None:
    """Return a number that JSON can hold, None for what never happens."""
    return value if math.isfinite(value) else None


def calibration_answer(found: Refit, place: Path | None, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of ``roofplan calibrate --with``."""
    out = base("calibrate", "ok", inputs)
    out |= {"rows": found.rows, "skipped": dict(found.skipped)}
    out["figures"] = [
        {"id": one.id, "job": one.job, "metric": one.metric, "measured": one.measured}
        | {
            name: finite(float(errors[at]))
            for name, errors in (("shipped", found.before), ("refitted", found.after), ("held_out", found.held_out))
        }
        for at, one in enumerate(found.figures)
    ]
    out["constants"] = [
        {**asdict(one.after), "shipped": one.before.value, "shipped_scope": one.before.scope, "doubt_left": one.doubt}
        for one in found.moved
    ]
    out["own"] = [asdict(item) for item in found.constants if item.law == OWN]
    out["helps"] = found.helps
    out["profile"] = None if place is None else str(place)
    return out


def forgotten_answer(gone: Path | None, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of ``roofplan calibrate --forget``."""
    return base("calibrate", "ok", inputs) | {"removed": None if gone is None else str(gone)}


def constants_answer(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of ``roofplan calibrate``: the constants that are shipped, and those of the local profile."""
    out = base("calibrate", "ok", inputs)
    place = profile.path()
    out["shipped"] = [asdict(item) for item in catalogue.constants()]
    out["own"] = [asdict(item) for item in profile.constants(profile.path())]
    out["profile"] = str(place) if place is not None and out["own"] else None
    return out


def fabric_json(machine: Machine) -> dict[str, Any]:
    """Return a machine's network, with pods and taper where it has them."""
    if machine.network is None:
        return {}
    found = {"network": machine.network.id, "ports": machine.ports}
    return found | {name: x for name in ("pod", "taper") if (x := machine.network.value(name)) is not None}


def training_plan_json(
    plan: TrainingPlan, inputs: dict[str, Any], cited: dict[str, Any], *, explain: int
) -> dict[str, Any]:
    """Return one training plan."""
    held = plan.ledger
    behind = [*plan.term.bibliography(), *held.allocated.bibliography()]
    keys = list(dict.fromkeys(one.citation for one in behind))
    if plan.cost is not None:
        keys.append(plan.cost.price.source)
    if plan.run is not None:
        keys.append(plan.run.preset.source)
    for key in keys:
        cited.setdefault(key, {"text": document_text(key)})
    parts = {name: float(seconds) for name, seconds in plan.step.parts.items()}
    name, share = binding(plan)
    out: dict[str, Any] = {
        "id": plan.id,
        "machine": {
            "text": plan.machine.text,
            "device": plan.machine.device.id,
            "count": plan.machine.count,
            "hosts": plan.machine.hosts,
            "per_host": plan.machine.per_host,
            **fabric_json(plan.machine),
        },
        "framework": plan.framework.id,
        "strategy": plan.layout.as_dict(),
        "micro_batches": float(plan.step.micro_batches),
        "metrics": {key: m.as_json() for key, m in plan.metrics.items()},
        "bound": {"step": {"limit": name, "share": share}},
        "step": {"parts": parts, "unit": "s"},
        "memory": {
            "capacity": plan.machine.device.memory,
            "stage": held.stage.place,
            "allocated": float(held.allocated.value),
            "reserved": float(held.reserved),
            "parts": {term.name: float(term.value) for term in held.allocated.parts},
            "stages": [
                {"stage": one.stage.place, "alike": one.stage.alike, "reserved": float(one.reserved)}
                for one in plan.ledgers
            ],
        },
        "run": _run_json(plan),
        "pareto": plan.pareto,
        "price": _training_price(plan),
        "launch": training_launch(plan),
        "reproduce": reproduce_training(plan, inputs),
        "source_ids": keys,
    }
    if explain:
        trees = [plan.term, held.allocated, *([plan.power] if plan.power else [])]
        out["explain"] = [tree.as_json(explain) for tree in trees]
    return out


def _run_json(plan: TrainingPlan) -> dict[str, Any] | None:
    """Return the run of a plan, None where no tokens were asked for."""
    r = plan.run
    if r is None:
        return None
    return {
        "steps": r.steps,
        "work": r.work,
        "elapsed": r.elapsed if math.isfinite(r.elapsed) else None,
        "p90": r.p90 if math.isfinite(r.p90) else None,
        "goodput": r.goodput,
        "mean_time_to_interruption": r.interruption,
        "restart": r.restart,
        "failures": r.failures if math.isfinite(r.failures) else None,
        "spare_hosts": r.spares,
        "preset": r.preset.id,
        "policy": r.policy,
        "checkpoint": {
            "bytes": r.checkpoint.bytes,
            "write": r.checkpoint.write,
            "stall": r.checkpoint.stall,
            "interval": r.checkpoint.interval,
        },
    }


def _training_price(plan: TrainingPlan) -> dict[str, Any] | None:
    if plan.cost is None:
        return None
    p = plan.cost.price
    return {
        "kind": p.kind,
        "value": p.value,
        "unit": p.unit,
        "date": p.date,
        "source": p.source,
        "stale": plan.cost.stale,
    }


def reproduce_training(plan: TrainingPlan, inputs: dict[str, Any]) -> str:
    """Return the command that plans this layout again."""
    x = plan.layout.as_dict()
    whole = {"recomputed": "100%"} if x["recompute"] == "full" and x["recomputed"] == 1.0 else {}
    skipped = {"recomputed"} if x["recompute"] != "full" else set()
    degrees = ",".join(f"{name}={whole.get(name, value)}" for name, value in x.items() if name not in skipped)
    model = str(inputs.get("model") or plan.model.id)
    words = [
        "roofplan train",
        "-" if model == "stdin:" else shlex.quote(model),
        f"--framework {shlex.quote(plan.framework.stands_for or plan.framework.id)}",
    ]
    words.append(f"--on {shlex.quote(plan.machine.text or plan.machine.device.id)}")
    words.append(f"--batch {plan.job.batch}seq --sequence {plan.job.sequence} --strategy {degrees}")
    left = ("tokens", "compute", "precision", "rank", "base", "imbalance", "capacity", "fabric", "failures")
    words += [f"--{name} {shlex.quote(str(inputs[name]))}" for name in left if inputs.get(name) is not None]
    defaults = {
        "optimizer": "adam",
        "method": "full",
        "checkpoint": "sync",
        "policy": "restart",
        "price": "rent",
        "place": "WOR",
    }
    words += [f"--{name} {inputs[name]}" for name, value in defaults.items() if inputs.get(name, value) != value]
    return " ".join(words)


def training_csv_rows(result: TrainingResult) -> list[dict[str, Any]]:
    """Return every training plan as a flat row in SI units."""
    rows = []
    for plan in result.plans:
        row: dict[str, Any] = {
            "machine": plan.machine.text or plan.machine.device.id,
            "device": plan.machine.device.id,
            "count": plan.machine.count,
            "framework": plan.framework.id,
            **plan.layout.as_dict(),
            "batch": plan.job.batch,
            "sequence": plan.job.sequence,
            "pareto": plan.pareto,
        }
        for name, m in plan.metrics.items():
            row[name], row[f"{name}_low"], row[f"{name}_high"] = m.value, m.low, m.high
        row |= {f"step_{name.replace(' ', '_')}": float(seconds) for name, seconds in plan.step.parts.items()}
        row |= {f"memory_{t.name.replace(' ', '_')}": float(t.value) for t in plan.ledger.allocated.parts}
        rows.append(row)
    return rows


def canonical(result: Result, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs with what was left to defaults filled in, so that they can be read back and answer the same."""
    w = result.plans[0].workload
    return {**inputs, "input": str(w.input), "output": str(w.output), "context": str(w.context)}


def plan_json(
    plan: Plan, result: Result, inputs: dict[str, Any], cited: dict[str, Any], *, explain: int, ladder: bool
) -> dict[str, Any]:
    """Return one plan."""
    book = plan.memory
    behind = [cited for time in plan.prediction.times for cited in time.bibliography()]
    keys = list(dict.fromkeys([*(one.citation for one in behind), "config.json", "engine", book.capacity_source]))
    if plan.cost is not None:
        keys.append(plan.cost.price.source)
    for key in keys:
        cited.setdefault(key, {"text": source_text(key, plan)})
    limits = bounds(plan)
    out: dict[str, Any] = {
        "id": plan.id,
        "machine": {
            "text": plan.machine.text,
            "device": plan.machine.device.id,
            "count": plan.machine.count,
            "hosts": plan.machine.hosts,
            "per_host": plan.machine.per_host,
        },
        "engine": plan.engine.id,
        "strategy": plan.strategy.as_dict(),
        "precision": {"weights": _weights(plan), "kv": plan.kv_precision, "changes_model": plan.changes_model},
        "concurrency": plan.users,
        "metrics": {name: m.as_json() for name, m in plan.metrics.items()},
        "bound": {phase: {"limit": name, "share": share} for phase, (name, share) in limits.items()},
        "memory": {
            "capacity": book.capacity,
            "weights": book.weights,
            "kv_cache": plan.cache_in_use,
            "activations": book.activations,
            "runtime": book.runtime + book.graphs,
            "free": max(0.0, book.pool - plan.cache_in_use),
            "left_alone": book.left_alone,
            "kv_pool": book.pool,
            "longest_request": book.longest,
            "request": book.request,
        },
        "pareto": plan.pareto,
        "tied": plan.tied,
        "price": _price(plan),
        "nearest_measured": nearest_measured(plan),
        "launch": launch(plan),
        "reproduce": reproduce(plan, inputs),
        "source_ids": keys,
    }
    out["points"] = [_point(step) for step in result.ladder] if ladder else []
    if explain:
        trees = [
            *plan.prediction.times,
            book.term(plan.cache_in_use),
            *([plan.power] if plan.power else []),
        ]
        cost = plan.cost_term()
        if cost is not None:
            trees.append(cost)
        out["explain"] = [tree.as_json(explain) for tree in trees]
    return out


def _weights(plan: Plan) -> str:
    return plan.model.quantization.format if plan.model.quantization else plan.model.dtype


def _price(plan: Plan) -> dict[str, Any] | None:
    if plan.cost is None:
        return None
    p = plan.cost.price
    return {
        "kind": p.kind,
        "per_device": p.value,
        "unit": "USD/h",
        "provider": p.provider,
        "date": p.date,
        "stale": plan.cost.stale,
        "source": p.source,
    }


def _point(step: Plan) -> dict[str, Any]:
    name, share = first_bound(step)
    return {
        "users": step.users,
        "metrics": {key: m.as_json() for key, m in step.metrics.items()},
        "bound": {"limit": name, "share": share},
    }


def reproduce(plan: Plan, inputs: dict[str, Any]) -> str:
    """Return the command that judges exactly this configuration."""
    w = plan.workload
    model = str(inputs.get("model") or plan.model.id)
    model = "-" if model == "stdin:" else shlex.quote(model)
    words = [f"roofplan serve {model} --on {shlex.quote(plan.machine.text)}"]
    degrees = ",".join(f"{name}={value}" for name, value in plan.strategy.as_dict().items())
    words.append(
        f"--strategy {degrees} --engine {shlex.quote(plan.engine.stands_for or plan.engine.id)} --concurrency {plan.users}"
        f" --input {w.input} --output {w.output} --context {w.context}"
    )
    if plan.precision != "checkpoint":
        words.append(f"--precision {plan.precision}")
    if inputs.get("kv_precision") is not None:
        words.append(f"--kv-precision {plan.kv_precision}")
    own = ("rate", "prefix_hit", "draft", "price", "utilisation")
    given = [name for name in own if inputs.get(name) not in {None, "0", "rent", "100%"}]
    words.extend(f"--{name.replace('_', '-')} {inputs[name]}" for name in given)
    return " ".join(words)


def csv_rows(result: Result) -> list[dict[str, Any]]:
    """Return every plan as a flat row in SI units."""
    rows = []
    for plan in result.plans:
        row: dict[str, Any] = {
            "machine": plan.machine.text or plan.machine.device.id,
            "device": plan.machine.device.id,
            "count": plan.machine.count,
            "engine": plan.engine.id,
            **plan.strategy.as_dict(),
            "weights": _weights(plan),
            "kv": plan.kv_precision,
            "users": plan.users,
            "pareto": plan.pareto,
            "tied": plan.tied,
        }
        for name, m in plan.metrics.items():
            row[name], row[f"{name}_low"], row[f"{name}_high"] = m.value, m.low, m.high
        limits = bounds(plan)
        row |= {
            "decode_limit": limits["decode"][0] if "decode" in limits else "",
            "prefill_limit": limits["prefill"][0],
            "weights_bytes": plan.memory.weights,
            "kv_pool_bytes": plan.memory.pool,
            "price_date": plan.cost.price.date if plan.cost else "",
        }
        rows.append(row)
    return rows


def schema(command: str) -> dict[str, Any]:
    """Return the JSON Schema of a command's answer."""
    from roofplan.present.schemas import answer_schema

    return answer_schema(command, SCHEMA_VERSION)
