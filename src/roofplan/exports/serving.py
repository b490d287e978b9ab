"""The launch command of a serving plan, in the options of its engine version."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

from roofplan import catalogue
from roofplan.errors import InputError, choice
from roofplan.records.hardware import CPU
from roofplan.serving import Plan

SHORT = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm", "llamacpp": "llama.cpp"}
"""Names that ``--emit`` takes."""

OPTIONS = "options: "
"""Prefix of a flag that the engine reads from its options file instead of the command line."""

ONLINE = {"fp8": "fp8", "bnb-nf4": "bitsandbytes", "bnb-int8": "bitsandbytes"}
"""Formats to which an engine converts 16-bit weights while loading them."""

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
"""Spelling of unquantised weights."""


def engine_named(name: str, given: str | None) -> str:
    """Return the engine to plan with under ``--emit``: `given` where both name the same engine, else the newest version of `name`.

    Parameters
    ----------
    name : engine as ``--emit`` takes it.
    given : engine of the request, None where none is named.

    Returns
    -------
    Id or name of the engine to plan with.

    Raises
    ------
    InputError : the engine cannot be emitted, or `given` is another engine or unknown.

    Examples
    --------
    >>> engine_named("trtllm", None)
    'tensorrt-llm'
    """
    wanted = SHORT.get(name.lower(), name.lower())
    wanted = wanted if wanted in SHORT.values() else SHORT[choice(name, SHORT, "--emit")]
    if given is None or given.lower() == "any":
        return wanted
    found = catalogue.engine(catalogue.find("engines", given, "--engine"))
    if found.name != wanted:
        raise InputError(
            f"--emit {name}: the plan is asked of {found.id}; leave --engine out or name {wanted} there",
            argument="--emit",
            value=name,
        )
    return given


def launch(plan: Plan) -> str:
    """Return the command that starts a plan.

    Parameters
    ----------
    plan : the plan.

    Returns
    -------
    One line of shell; what the command cannot express follows ``#``.
    """
    line = _Line(plan)
    if plan.engine.stands_for:
        line.remarks.append(
            f"{plan.engine.stands_for}'s own command is not known; this is that of {plan.engine.id}, which stands in for it"
        )
    if plan.engine.name == "llama.cpp":
        _llama_cpp(line)
    else:
        _server(line)
    return line.text()


class _Line:
    """A command that is being written: words, settings of an options file, and remarks."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.flags = plan.engine.flags
        self.words: list[str] = []
        self.options: list[str] = []
        self.remarks: list[str] = []

    def add(self, flag: str, wanted: object = True, **values: object) -> None:
        """Add a flag where it is wanted, or a remark that this engine version has none."""
        if not wanted:
            return
        found = self.flags.get(flag)
        if found is None:
            self.remarks.append(f"{plain(flag)}: no flag known in {self.plan.engine.id}")
        elif found.startswith(OPTIONS):
            self.options.append(found.removeprefix(OPTIONS).format(**values))
        else:
            self.words.append(found.format(**values))

    def text(self) -> str:
        """Return the line."""
        if self.options:
            self.words.append(self.flags["options"])
            self.remarks.insert(0, f"options.yaml: {{{', '.join(self.options)}}}")
        return " ".join(self.words) + ("  # " + "; ".join(self.remarks) if self.remarks else "")


def plain(flag: str) -> str:
    """Return a flag's name as words.

    >>> plain("attention_dp")
    'attention dp'
    """
    return flag.replace("_", " ")


def model_path(plan: Plan, line: _Line) -> str:
    """Return the model argument of the engine: the Hub name as it was asked for, or the folder of a local config.

    In another format than its own it is a public checkpoint of that format where the catalogue knows one, else a blank to fill.
    """
    name = plan.model.id
    if name in catalogue.ids("models"):
        published = str(catalogue.model_table(name).get("hub", name))
        own = plan.precision == "checkpoint" or plan.named.lower() in catalogue.aliases("models")
        hub = plan.named if plan.named and own else published
        return _converted(plan, hub, line)
    path = Path(name)
    if path.is_file():
        return str(path.parent)
    if name in {"stdin", "config"}:
        line.remarks.append("MODEL: the folder of the checkpoint whose config was read")
        return "MODEL"
    return plan.named or name


def _converted(plan: Plan, hub: str, line: _Line) -> str:
    """Return a checkpoint in the format of a plan, or a blank that no engine takes for a name."""
    changed = plan.precision
    loads = changed in ONLINE and "quantization" in line.flags
    if changed == "checkpoint" or loads or plan.model.quantization is None or plan.engine.name == "llama.cpp":
        return hub
    public = f"{plan.model.id}-{changed}"
    if public in catalogue.ids("models"):
        return str(catalogue.model_table(public).get("hub", public))
    line.remarks.append(f"<...>: a checkpoint of {hub} in {changed}; the catalogue knows none")
    return f"<{hub} in {changed}>"


def _server(line: _Line) -> None:
    plan = line.plan
    s, w = plan.strategy, plan.workload
    tp, pp, dp, inner = int(s.tp), int(s.pp), int(s.dp), int(s.attention_dp)
    line.add("command", model=shlex.quote(model_path(plan, line)))
    line.add("tensor", tp > 1, tp=tp)
    line.add("pipeline", pp > 1, pp=pp)
    # where attention data parallelism uses the flag of replicas, replicas are separate servers
    shared_flag = inner > 1 and "--dp-size" in line.flags.get("attention_dp", "")
    if dp > 1 and (not plan.engine.data or shared_flag):
        line.remarks.append(f"{dp} such servers behind a balancer")
    else:
        line.add("data", dp > 1, dp=dp)
    line.add("expert", int(s.ep) > 1, ep=int(s.ep))
    line.add("attention_dp", inner > 1, dp=inner)
    line.add("context", context=w.context)
    line.add("sequences", sequences=sequences_of(plan))
    _stated(line)
    other = plan.kv_precision not in {plan.model.dtype, "bf16", "fp16"}
    line.add("kv_precision", other, kv=plan.engine.kv_names.get(plan.kv_precision, plan.kv_precision))
    line.add("draft", w.drafted, k=w.drafted, k1=w.drafted + 1)
    line.add("prefix_cache", w.prefix_hit and plan.engine.raw["defaults"].get("prefix_cache") is False)
    _precision(line)
    if plan.machine.hosts > 1:
        how = line.flags.get("multi_host", "one process per host").replace("{hosts}", str(plan.machine.hosts))
        line.remarks.append(f"{plan.machine.hosts} hosts: {how.replace('{', '<').replace('}', '>')}")


def sequences_of(plan: Plan) -> int:
    """Return the limit of running sequences that a plan is launched with.

    Parameters
    ----------
    plan : the plan.

    Returns
    -------
    As stated, with room for arrivals that vary, or what the users need, in the unit of the engine's flag: a rank or a server [1].
    """
    stated, s = plan.engine.stated.get("sequences"), plan.strategy
    each = math.ceil(plan.users / (int(s.dp) * int(s.attention_dp)))
    needed = each * (int(s.attention_dp) if plan.engine.sequence_limit == "server" else 1)
    return max(1, int(stated) if stated else max(needed, plan.seats))


def _stated(line: _Line) -> None:
    """Add the settings that the user states, those of sequences aside."""
    stated = line.plan.engine.stated
    line.add("batched_tokens", "batched_tokens" in stated, tokens=int(stated.get("batched_tokens", 0)))
    line.add("memory_share", "memory_share" in stated, share=f"{stated.get('memory_share', 0):g}")
    for name in ("block", "page"):
        line.add(name, name in stated, **{name: int(stated.get(name, 0))})


def _precision(line: _Line) -> None:
    """Add what the weight format needs: a dtype flag, a conversion while loading, or a remark on a converted checkpoint."""
    plan = line.plan
    quantised = plan.model.quantization is not None
    changed = plan.precision if plan.precision != "checkpoint" else None
    if changed in ONLINE and "quantization" in line.flags:
        line.add("quantization", q=ONLINE[changed])
    elif not quantised and (changed is not None or plan.model.dtype == "fp32"):
        line.add("dtype", dtype=DTYPES[plan.model.dtype])


def _llama_cpp(line: _Line) -> None:
    plan = line.plan
    precision = (
        plan.precision
        if plan.precision != "checkpoint"
        else (plan.model.quantization.format if plan.model.quantization else plan.model.dtype)
    )
    own = plan.model.quantization is not None and plan.model.quantization.gguf and plan.precision == "checkpoint"
    file = plan.model.id if own else "model.gguf"
    line.words.append(f"llama-server -m {file}" + ("" if plan.machine.device.device_class == CPU else " -ngl 999"))
    stages, servers, slots = int(plan.strategy.pp), int(plan.strategy.dp), sequences_of(plan)
    # the cache shared by all slots must hold the longest request, and the mean length in every slot
    context = max(plan.workload.context, math.ceil(plan.memory.charged_tokens) * slots)
    line.add("context", total_context=context)
    line.add("sequences", sequences=slots)
    if stages > 1:
        line.words.append(f"--split-mode layer --tensor-split {','.join(['1'] * stages)}")
    other = plan.kv_precision not in {"bf16", "fp16"}
    line.add("kv_precision", other, kv=plan.engine.kv_names.get(plan.kv_precision, plan.kv_precision))
    line.add("flash", other and plan.engine.raw["defaults"].get("flash_attention") is False)
    line.add("draft", plan.workload.drafted, k=plan.workload.drafted)
    if not own:
        source = model_path(plan, line)
        line.remarks.insert(0, f"model.gguf: {source} converted to {precision}")
    if stages > plan.machine.per_host and "multi_host" in line.flags:
        line.remarks.append(line.flags["multi_host"])
    if servers > 1:
        line.remarks.append(
            f"{servers} such servers behind a balancer, each on {stages} device{'s' if stages > 1 else ''}"
        )
