"""The launch line of a plan, in the vocabulary of one engine version."""

from __future__ import annotations

import math
import shlex

from roofplan import catalogue
from roofplan.errors import InputError
from roofplan.records.engine import Engine
from roofplan.search import Plan

SHORT = {"sglang": "sglang", "trtllm": "tensorrt-llm", "vllm": "vllm", "llamacpp": "llama.cpp"}
"""Names that ``--emit`` takes."""

_METHODS = {"fp8": "fp8", "nvfp4": "modelopt_fp4", "bnb-nf4": "bitsandbytes", "bnb-int8": "bitsandbytes"}


def engine_for(name: str, plan: Plan) -> Engine:
    """Return the engine that ``--emit`` names: the plan's own version where it is the same engine, else the newest."""
    wanted = SHORT.get(name.lower(), name.lower())
    if wanted not in SHORT.values():
        raise InputError(f"--emit: {name!r} is no engine; accepted: {', '.join(SHORT)}", argument="--emit", value=name)
    if wanted == plan.engine.name:
        return plan.engine
    return catalogue.engine(catalogue.find("engines", wanted, "--emit"))


def launch(plan: Plan, engine: Engine) -> str:
    """Return the command that starts `plan` with the flags of that engine version; what it cannot say stands behind ``#``."""
    f, s, w = engine.flags, plan.strategy, plan.workload
    hub = (
        str(catalogue.model_table(plan.model.id).get("hub", plan.model.id))
        if plan.model.id in catalogue.ids("models")
        else plan.model.id
    )
    if engine.name == "llama.cpp":
        return _llama_cpp(plan, engine, hub)
    words = [f.get("command", engine.name).format(model=shlex.quote(hub))]
    said: list[str] = []

    def add(flag: str, needed: bool = True, **values: object) -> None:
        if not needed:
            return
        if flag in f:
            words.append(f[flag].format(**values))
        else:
            said.append(f"{flag} has no flag in {engine.id}")

    add("tensor", int(s.tp) > 1, tp=int(s.tp))
    add("pipeline", int(s.pp) > 1, pp=int(s.pp))
    add("data", int(s.dp) > 1, dp=int(s.dp))
    add("expert", int(s.ep) > 1, ep=int(s.ep))
    if int(s.attention_dp) > 1:
        add("attention_dp", dp=int(s.attention_dp))
    add("context", context=w.context)
    add("sequences", sequences=max(1, -(-plan.users // int(s.dp))))
    if plan.kv_precision not in {plan.model.dtype, "bf16", "fp16"}:
        add("kv_precision", kv=engine.kv_names.get(plan.kv_precision, plan.kv_precision))
    extra, notes = _changes(plan, engine)
    words.extend(extra)
    said.extend(notes)
    return " ".join(words) + ("  # " + "; ".join(said) if said else "")


def _changes(plan: Plan, engine: Engine) -> tuple[list[str], list[str]]:
    """Return the words and the remarks for drafts, a changed precision and several hosts."""
    words: list[str] = []
    said: list[str] = []
    if plan.workload.drafted:
        config = f'{{"method": "mtp", "num_speculative_tokens": {plan.workload.drafted}}}'
        if engine.name == "vllm":
            words.append(f"--speculative-config {shlex.quote(config)}")
        else:
            said.append(f"{plan.workload.drafted} drafted tokens a step by the checkpoint's own layer")
    if plan.changes_model:
        method = _METHODS.get(plan.precision)
        if method and "quantization" in engine.flags:
            words.append(engine.flags["quantization"].format(q=method))
        else:
            said.append(f"serve a checkpoint converted to {plan.precision}")
    if plan.machine.hosts > 1:
        how = engine.flags.get("multi_host", "start one process per host")
        how = how.replace("{hosts}", str(plan.machine.hosts)).replace("{", "<").replace("}", ">")
        said.append(f"{plan.machine.hosts} hosts: {how}")
    return words, said


def _llama_cpp(plan: Plan, engine: Engine, hub: str) -> str:
    name = hub.rsplit("/", 1)[-1]
    precision = (
        plan.precision
        if plan.changes_model
        else (plan.model.quantization.format if plan.model.quantization else plan.model.dtype)
    )
    words = [f"llama-server -m {shlex.quote(f'{name}-{precision.upper()}.gguf')} -ngl 999"]
    slots = max(1, -(-plan.users // int(plan.strategy.dp)))
    # one unified cache: room for the longest request, and for what the slots hold on average
    context = max(plan.workload.context, math.ceil(plan.memory.charged_tokens) * slots)
    words.append(f"-c {context} -np {slots}")
    stages, servers = int(plan.strategy.pp), int(plan.strategy.dp)
    if stages > 1:
        words.append(f"--split-mode layer --tensor-split {','.join(['1'] * stages)}")
    if plan.kv_precision not in {"bf16", "fp16"}:
        words.append(engine.flags["kv_precision"].format(kv=engine.kv_names.get(plan.kv_precision, plan.kv_precision)))
    notes = [engine.flags["multi_host"]] if plan.machine.hosts > 1 and "multi_host" in engine.flags else []
    if servers > 1:
        notes.append(f"{servers} such servers behind a balancer, each on {stages} device{'s' if stages > 1 else ''}")
    tail = f"  # {'; '.join(notes)}" if notes else ""
    return " ".join(words) + tail
