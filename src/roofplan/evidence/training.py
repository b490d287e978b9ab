"""Published training runs as cases to predict; the columns are those of ``measured/training.csv``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from roofplan import catalogue
from roofplan.evidence.cluster import machine_of
from roofplan.evidence.frameworks import framework_of
from roofplan.evidence.models import model_of
from roofplan.evidence.rows import EXAMPLES, PART_OF_LAYERS, Assumed, Row, Skipped, checked, flags, number
from roofplan.hf.quantization import unquantised
from roofplan.records.calibration import Fit
from roofplan.records.hardware import CPU, Machine
from roofplan.records.model import Model
from roofplan.records.system import Origin
from roofplan.records.training import RECOMPUTES, Adapter, Framework, Job, Layout
from roofplan.training.ability import Ability, ability
from roofplan.training.certainty import system_of
from roofplan.training.ledger import needed
from roofplan.training.plan import ALL_PRODUCTS
from roofplan.training.search import mixtures

NEEDED = (
    *("id", "source_key", "model_name", "accel_norm", "accelerators_total", "framework", "month", "precision"),
    *("seq_len", "norm_tokens_per_s_per_gpu"),
)
"""Columns without which no row can be predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCase:
    """A published training run.

    Parameters
    ----------
    rate : measured tokens per second per device, None where not published [token/s].
    memory : measured peak memory of the fullest device, None where not published [B].
    assumed : what the row omits and a rule filled in.
    unstated : inputs among them whose other plausible values widen the interval.
    doubts : readings of the row that may be wrong, each with the relative error that it may cause [1].
    """

    row: Row
    model: Model
    machine: Machine
    framework: Framework
    job: Job
    layout: Layout
    rate: float | None
    memory: float | None
    memory_kind: str
    assumed: tuple[str, ...]
    unstated: tuple[str, ...]
    doubts: tuple[tuple[str, float], ...]

    @property
    def origin(self) -> Origin:
        """Publisher, chip and system of the run."""
        system = system_of(self.model, self.machine, self.framework, self.job)
        return Origin(source=self.row["source_key"], chip=self.machine.device.id, system=system)

    @property
    def read_as(self) -> str:
        """What was made of the row, in one line."""
        m, job, adapter = self.machine, self.job, self.job.adapter
        stated = m.network is not None and m.network.quantities["bandwidth"].kind == "given"
        link = "" if m.network is None else f"{m.network.bandwidth * 8e-9:g} Gb/s" if stated else m.network.id
        network = f" on {m.ports} x {link}" if link else ""
        trained = "" if adapter is None else f", {adapter.method} of rank {adapter.rank:g}"
        return (
            f"{self.model.id} in {job.precision}{trained}, {m.hosts} x {m.per_host} {m.device.id}{network}, {self.framework.id} "
            f"{self.layout.label()}, {self.layout.recomputation}, {job.batch} sequences of {job.sequence}"
        )

    @property
    def step_time(self) -> float | None:
        """Measured step time [s]."""
        if self.rate is None:
            return None
        return self.job.batch * self.job.sequence / (self.rate * self.machine.count)

    def ability(self, fit: Fit) -> Ability:
        """Return the rates that the machine attains."""
        return ability(self.machine, self.framework, fit)


def room_of(case: TrainingCase) -> float:
    """Return the device memory available to the allocator of a run [B]."""
    return float(case.machine.device.memory or math.inf) - case.framework.keeps("outside")


def training_case(row: Row, *, ran: bool = True) -> TrainingCase:
    """Return a row as a case.

    Parameters
    ----------
    row : the row.
    ran : whether the run had memory enough, so that what does not fit was not what it used.

    Raises
    ------
    Skipped : the row is flagged or cannot be predicted.
    """
    if reasons := flags(row) - {"dims-missing"}:
        raise Skipped(" ".join(sorted(reasons)))
    checked(row)
    assumed = Assumed()
    model = unquantised(model_of(row, assumed))
    found = machine_of(row, assumed)
    if found.device.device_class == CPU:
        raise Skipped(f"accel_norm: {found.device.id} is a processor, on which training is not described")
    framework = framework_of(row, assumed)
    sequence = _sequence(row, assumed)
    if sequence is None:
        raise Skipped("sequence not stated as a number")
    layout, batch = _layout(row, model, found, framework, assumed)
    usual = "bf16" if "bf16" in found.device.peak else "fp16"
    if not row["precision"]:
        why = "as most models are trained" if usual == "bf16" else f"since {found.device.id} has no bf16"
        assumed.add(f"precision: {usual}, {why}")
    if not row.get("task"):
        assumed.add("task: all weights are trained")
    gradient = 2.0 if any(x in (row.get("gradient_dtype") or framework.gradient) for x in ("bf16", "fp16")) else 4.0
    job = Job(
        sequence=int(sequence),
        batch=int(batch),
        optimizer=catalogue.optimizers()[_optimizer(row, assumed)],
        precision=precision_of(row["precision"] or usual),
        gradient=gradient,
        adapter=adapter_of(row, framework, assumed),
    )
    if ran and MICRO_BATCH in assumed.unstated:
        job, layout = _that_fits(row, model, job, layout, framework, found, assumed)
    layout = _settled(row, model, job, layout, framework, found, assumed)
    if not any(row.get(name) for name in ("tp", "pp", "dp", "zero_stage_fsdp")):
        _check_unstated_layout(model, job, layout, framework, found)
    rate, memory = number(row, "norm_tokens_per_s_per_gpu"), number(row, "measured_memory_gb_per_gpu")
    took = number(row, "measured_step_s")
    if rate is None and took is not None and number(row, "global_batch_sequences"):
        rate = job.batch * job.sequence / took / found.count
    unit = 1e9 if row["source_key"] == "litgpt-a100" else 2.0**30
    return TrainingCase(
        row=row,
        model=model,
        machine=found,
        framework=framework,
        job=job,
        layout=layout,
        rate=rate,
        memory=None if memory is None else memory * unit,
        memory_kind=_memory_kind(row),
        assumed=tuple(assumed.texts.values()),
        unstated=(*assumed.unstated, *(["imbalance"] if model.experts else [])),
        doubts=tuple(assumed.doubts),
    )


def _layout(row: Row, model: Model, found: Machine, framework: Framework, assumed: Assumed) -> tuple[Layout, float]:
    """Return the layout of a row on a machine, without recomputation, and its batch [sequence]; rules fill in blanks.

    Raises
    ------
    Skipped : the layout is not possible for the model and the device count.
    """
    batch, micro = number(row, "global_batch_sequences"), number(row, "micro_batch")
    tp, pp, cp, ep = (int(number(row, name) or 1) for name in ("tp", "pp", "cp", "ep"))
    count, per_host = found.count, max(1, found.per_host // (tp * pp))
    dp = int(number(row, "dp") or count // (tp * pp * cp))
    if tp * pp * cp * dp != count:
        raise Skipped(f"degrees: tp {tp} x pp {pp} x cp {cp} x dp {dp} are not the {count} devices")
    interleave = max(1, int(number(row, "interleave") or (2 if row.get("interleave", "").startswith(">1") else 1)))
    layers, wide = len(model.decoder.layers), [one.experts for one in mixtures(model)]
    if any(experts % ep for experts in wide):
        raise Skipped(f"ep: {ep} ranks do not divide {min(wide)} experts")
    if pp > layers or pp * interleave > layers + (2 if framework.counts_ends else 0):
        raise Skipped(f"layout: {pp} stages of {interleave} chunks for {layers} layers")
    if micro is None:
        micro = _micro_batch(row, batch, dp, framework, assumed)
    if batch is None:
        batch = micro * dp * (number(row, "grad_accum") or 1.0)
        assumed.add(f"batch: {batch:g} sequences, a micro-batch of each data rank")
    if framework.name == "torchtitan" and pp > 1:
        micro = micro / pp
        assumed.add(
            "micro-batch: the local batch over the stages, torchtitan's default", MICRO_BATCH, about=MICRO_BATCH
        )
    if pp > 1 and "interleaved" in framework.schedules and not row.get("interleave") and not row.get("schedule"):
        assumed.add("interleave: 1, every stage a run of layers", INTERLEAVE)
    stated = row.get("sequence_parallel", "").lower()
    parallel = stated == "true" if stated else framework.released >= "2022-05"
    layout = Layout(
        tp=float(tp),
        pp=pp,
        cp=float(cp),
        dp=float(dp),
        ep=float(ep),
        micro_batch=micro,
        interleave=interleave,
        zero=_zero(row, framework),
        shard=_shard(row, dp * cp, per_host, assumed),
        recompute="none",
        sequence_parallel=parallel and tp > 1,
        offload=_offload(row),
    )
    return layout, batch


def _sequence(row: Row, assumed: Assumed) -> float | None:
    """Return the sequence length; a range over tokenizers gives its upper end for small vocabularies, else its lower end."""
    span = re.search(r"max (\d+)-(\d+) tokens", row["seq_len"])
    if span is None:
        return number(row, "seq_len")
    words = number(row, "vocab")
    small = words is None or words <= SMALL_VOCABULARY
    assumed.add(f"sequence: the longest of the data set, {span[2 if small else 1]} tokens")
    return float(span[2 if small else 1])


SMALL_VOCABULARY = 32000
"""Vocabulary size up to which a tokenizer counts as one that produces the most tokens [1]."""


def adapter_of(row: Row, framework: Framework, assumed: Assumed) -> Adapter | None:
    """Return the adapter of a fine-tuning row, by its stated rank and target matrices, else by its framework's defaults."""
    said, precision = row.get("task", "").lower(), row["precision"].lower()
    method = re.match(r"q?lora|adapter(?:_v2)?", said)
    if method is None:
        return None
    task, noted = method[0], re.search(r"\br(?:ank)?\s*=?\s*(\d+)\b", said)
    four = "nf4" in precision or "4-bit" in precision or "4bit" in precision or task == "qlora"
    stored = "bnb-nf4-double" if "nf4-dq" in precision else "bnb-nf4" if four else "bf16"
    name = catalogue.hyphened(row["framework"].removeprefix("other:"))
    defaults = ADAPTERS.get(name) or ADAPTERS.get(framework.name)
    if defaults is None:
        raise Skipped(f"what {name} trains beside frozen weights is not described")
    rank = number(row, "rank") or (noted and float(noted[1]))
    targets = tuple(re.findall(r"[\w-]+", row.get("targets", "").lower()))
    if not rank or not targets:
        usual = {"rank": defaults["rank"], "targets": "+".join(defaults["targets"])}
        blank = [name for name, known in (("rank", rank), ("targets", targets)) if not known]
        assumed.add(f"adapter: {', '.join(f'{one} {usual[one]}' for one in blank)}, {name}'s default")
    targets = ALL_PRODUCTS if targets in {("all-linear",), ("all", "linear"), ("all",)} else targets
    if unknown := set(targets) - set(ALL_PRODUCTS):
        raise Skipped(f"targets: {', '.join(sorted(unknown))}; known: all-linear, {', '.join(ALL_PRODUCTS)}")
    defaults = defaults | ({"rank": int(rank)} if rank else {}) | ({"targets": targets} if targets else {})
    trained = re.search(r"([\d,]+) trainable params", row.get("notes", ""))
    if task.startswith("adapter"):
        defaults = {**defaults, "targets": (), "scales": task == "adapter_v2"}
        defaults["fixed"] = float(trained[1].replace(",", "")) if trained else None
        defaults["first"] = PROMPTED_FROM if task == "adapter" else 0
    return Adapter(method=task, stored=stored, **defaults)


ADAPTERS: dict[str, dict[str, Any]] = {
    "litgpt": {"rank": 8, "targets": ("q_proj", "v_proj"), "bytes": 8.0},
    "nemo": {"rank": 32, "targets": ("q_proj", "k_proj", "v_proj"), "bytes": 18.0, "dropout": False, "fused": True},
    "megatron-bridge": {
        "rank": 32,
        "targets": ALL_PRODUCTS,
        "bytes": 18.0,
        "dropout": False,
        "fused": True,
    },
    "transformers": {"rank": 8, "targets": ("q_proj", "v_proj"), "bytes": 16.0},
    "deepspeed": {"rank": 8, "targets": ("q_proj", "v_proj"), "bytes": 16.0},
    "nemo-automodel": {"rank": 8, "targets": ALL_PRODUCTS, "bytes": 8.0},
    "torchtune": {
        "rank": 8,
        "targets": ("q_proj", "v_proj", "o_proj", "up_proj", "gate_proj", "down_proj"),
        "bytes": 8.0,
    },
    "unsloth": {"rank": 16, "targets": ALL_PRODUCTS, "bytes": 16.0},
    "fsdp-qlora": {
        "rank": 64,
        "targets": ("q_proj", "k_proj", "v_proj", "up_proj", "gate_proj", "down_proj"),
        "bytes": 12.0,
    },
}
"""Default adapters. PEFT's LoraConfig: rank 8 on queries and values of most models, in fp32 with fp32 moments. LitGPT: 16-bit
parameters, gradients and moments. DeepSpeed trains what PEFT makes; NeMo AutoModel's PeftConfig: dim 8 on all products, in 16 bits.
Unsloth's notebooks: rank 16 on all products.
torchtune's recipes (8B_lora.yaml): rank 8 on queries, values, outputs and the feed-forward, in 16 bits.
fsdp_qlora: 16-bit parameters and gradients, fp32 moments. NeMo's examples of 2024 (lora_tuning of
megatron_gpt_finetuning_config.yaml): the fused QKV product; Megatron Bridge: all products; both with Megatron's fp32 gradient,
copy and moments."""


PROMPTED_FROM = 2
"""First layer with adapter prompts of LLaMA-Adapter (arXiv 2303.16199) in LitGPT, adapter.py: adapter_start_layer; published counts agree [1]."""


def _micro_batch(row: Row, batch: float | None, ranks: int, framework: Framework, assumed: Assumed) -> float:
    """Return the micro-batch size that a row omits: from its batch, ranks and accumulation, else the framework's default.

    Raises
    ------
    Skipped : it does not follow from anything stated, or is below one sequence.
    """
    accumulated, own = number(row, "grad_accum"), framework.unstated.micro_batch
    if batch is not None and accumulated:
        found, why, unstated = batch / ranks / accumulated, "by batch, ranks and accumulation", ""
        if found < 1.0:
            raise Skipped(
                f"micro-batch: {batch:g} sequences over {ranks} ranks and {accumulated:g} passes are less than one"
            )
    elif own is not None and (batch is None or batch >= own * ranks):
        whose = framework.unstated.whose_micro_batch or framework.name
        found, why, unstated = own, f"{whose}'s default", MICRO_BATCH
    elif own is not None and batch is not None:
        found, why, unstated = max(1.0, batch / ranks), "the batch over its ranks", MICRO_BATCH
    elif batch is not None and framework.sharding == "fsdp":
        found = 2.0 ** math.floor(math.log2(max(1.0, batch / ranks)))
        why, unstated = "as few passes as its ranks need, since each gathers the weights anew", MICRO_BATCH
    else:
        found, why, unstated = 1.0, f"the smallest: {framework.name} has no default", MICRO_BATCH
    assumed.add(f"micro-batch: {found:g}, {why}", unstated, about=MICRO_BATCH)
    return found


MICRO_BATCH, RECOMPUTE, INTERLEAVE = "micro-batch", "recompute", "interleave"
"""Inputs that rows may omit and that have other plausible values."""


def _that_fits(
    row: Row, model: Model, job: Job, layout: Layout, framework: Framework, found: Machine, assumed: Assumed
) -> tuple[Job, Layout]:
    """Return a job and a layout whose micro-batch, a default, is halved until it fits a device, or to one sequence.

    A batch that follows from the micro-batch is as much smaller.
    """
    room, own = float(found.device.memory or math.inf), layout.micro_batch

    def fits(tried: Layout) -> bool:
        return needed(model, job, _settled(row, model, job, tried, framework, found, Assumed()), framework) <= room

    tried = layout
    while tried.micro_batch % 2.0 == 0.0 and not fits(tried):
        tried = replace(tried, micro_batch=tried.micro_batch / 2.0)
    if tried.micro_batch == own:
        return job, layout
    assumed.add(f"micro-batch: {tried.micro_batch:g}, since {own:g} does not fit", about=MICRO_BATCH)
    batch = job.batch if number(row, "global_batch_sequences") else round(job.batch * tried.micro_batch / own)
    return replace(job, batch=batch), tried


def _settled(
    row: Row, model: Model, job: Job, layout: Layout, framework: Framework, found: Machine, assumed: Assumed
) -> Layout:
    """Return a layout with its stage of ZeRO and its recomputation, as stated or by the rules for what is not."""
    recompute, share = _stated_recompute(row, framework)
    if framework.sharding == "zero" and layout.dp > 1.0 and not row.get("zero_stage_fsdp"):
        layout = _sharding(model, job, replace(layout, recompute=recompute or "full"), framework, found, assumed)
    if recompute:
        return replace(layout, recompute=recompute, recomputed=share)
    return _recomputing(model, job, layout, framework, found, assumed)


def _shard(row: Row, ranks: int, per_host: int, assumed: Assumed) -> float:
    """Return the data ranks that share sharded states where a row states fewer than all, else 0 [1].

    Hybrid sharding whose group is not stated shards over the `per_host` data ranks of a host, as PyTorch does; of two stated sizes
    the group is the one that fills a host, else the second.

    Raises
    ------
    Skipped : ranks do not divide into groups of the stated size.
    """
    text = row.get("zero_stage_fsdp", "")
    stated = re.search(r"\bshard[\s=]+(\d+)\b|\bfsdp2?[\s=]+(\d+)\b", text, re.IGNORECASE)
    size = int(stated[1] or stated[2]) if stated else 0
    if hybrid := re.search(r"hsdp(?:\W*(\d+)\s*x\s*(\d+))?|hybrid[-_ ]?shard", text, re.IGNORECASE):
        sizes = [int(one) for one in hybrid.groups() if one]
        size = (per_host if per_host in sizes else sizes[-1]) if sizes else size or per_host
        if not sizes and not stated:
            assumed.add(f"sharding: over the {size} data ranks of a host, as hybrid sharding does unasked")
    if stated and stated[2] and size < LEAST_GROUP:
        size = 0
    if not 0 < size < ranks:
        return 0.0
    if ranks % size:
        raise Skipped(f"zero_stage_fsdp: {ranks} data ranks do not divide into groups of {size}")
    return float(size)


LEAST_GROUP = 4
"""Number after FSDP below which it means a version, not a group of ranks [1]."""

TWICE_THE_MEMORY = 2.0
"""Needed memory over device memory above which an assumption cannot hold: the run recomputed more, or divided its layers [1]."""


def _stated_recompute(row: Row, framework: Framework) -> tuple[str, float]:
    """Return the recomputation that a row states, empty for none that is known, and the share of the layers that it covers [1].

    Raises
    ------
    Skipped : more than all layers, or a number of layers that is no share of them.
    """
    said = row.get("recompute", "").strip().lower()
    if part := PART_OF_LAYERS.fullmatch(said):
        share = float(part[1]) / 100.0 if part[1] else float(part[2]) / float(part[3])
        if share > 1.0:
            raise Skipped(f"recompute: {said} is more than all layers")
        return ("full", share) if share else ("none", 1.0)
    if re.search(r"\d+(?:st|nd|rd|th)?\s+(?:layer|block)", said):
        raise Skipped(f"recompute: {said!r} is not known{EXAMPLES['recompute']}")
    stated = "" if "not stated" in said else re.split(r"[\s,;+-]", said)[0]
    if "checkpoint" in said:
        stated = "none" if re.search(r"\b(?:no|not|without|off|false|disabled?)\b|\bw/o\b", said) else "full"
    stated = framework.raw.get("recompute_names", {}).get(stated, SWITCHED.get(stated, stated))
    return stated if stated in RECOMPUTES else "", 1.0


SWITCHED = {**dict.fromkeys(("true", "yes", "on"), "full"), **dict.fromkeys(("false", "no", "off"), "none")}
"""Recomputation that a table gives as a switch."""


def _recomputing(
    model: Model, job: Job, layout: Layout, framework: Framework, found: Machine, assumed: Assumed
) -> Layout:
    """Return a layout with the framework's default recomputation, or full recomputation where that would need far too much memory."""
    rule = framework.unstated
    quantised = job.adapter is not None and job.adapter.stored != "bf16" and rule.recompute_quantised
    usual = rule.recompute_sharded if layout.zero >= ZERO_OF_WEIGHTS else rule.recompute
    unasked = replace(layout, recompute=quantised or usual)
    if needed(model, job, unasked, framework) <= TWICE_THE_MEMORY * float(found.device.memory or math.inf):
        assumed.add(f"recompute: {unasked.recompute}, {rule.whose_recompute or framework.name}'s default", RECOMPUTE)
        return unasked
    assumed.add(
        f"recompute: full, without which it would need {TWICE_THE_MEMORY:g} times the memory of a device", RECOMPUTE
    )
    return replace(layout, recompute="full")


def _check_unstated_layout(model: Model, job: Job, layout: Layout, framework: Framework, found: Machine) -> None:
    """Check that a model could be trained by data ranks alone, which is assumed where a row states no degree.

    Raises
    ------
    Skipped : it needs `TWICE_THE_MEMORY` of a device, even if all is recomputed.
    """
    held, room = (
        needed(model, job, replace(layout, recompute="full"), framework),
        float(found.device.memory or math.inf),
    )
    if held > TWICE_THE_MEMORY * room:
        raise Skipped(
            f"layout not stated: data ranks alone would each need {held / 2**30:,.0f} GiB of {room / 2**30:,.0f}"
        )


ZERO_OF_WEIGHTS = 3
"""ZeRO stage from which weights are sharded."""


def _zero(row: Row, framework: Framework) -> int:
    stated = row.get("zero_stage_fsdp", "").lower()
    stage = re.fullmatch(r"([0-3])(?:\.0)?", stated) or re.search(r"(?:zero|stage)[-_ ]*([0-3])(?!\d)", stated)
    if stage:
        return int(stage[1])
    if re.search(r"\b(no|un|not)[-_ ]?shard|\bno[-_ ]fsdp|^none|\bddp\b|data[-_ ]parallel", stated):
        return 0
    if "grad_op" in stated or "zero2" in stated:
        return 2
    if any(word in stated for word in ("fsdp", "hsdp", "shard", "gemini")):  # Gemini is ColossalAI's stage 3
        return 3
    if "distributed" in stated:
        return 1
    return 3 if framework.sharding == "fsdp" else 1 if framework.sharding == "distributed-optimizer" else 0


def _sharding(model: Model, job: Job, layout: Layout, framework: Framework, found: Machine, assumed: Assumed) -> Layout:
    """Return a layout with the lowest stage of ZeRO by which the run fits its devices, where the row states none."""
    room = float(found.device.memory or math.inf)
    stages = (replace(layout, zero=stage) for stage in range(ZERO_OF_WEIGHTS + 1))
    fits = next((one for one in stages if needed(model, job, one, framework) <= room), None)
    if fits is None:
        fits = replace(layout, zero=ZERO_OF_WEIGHTS)
    if fits.zero != layout.zero:
        assumed.add(f"ZeRO: stage {fits.zero}, the lowest by which it fits with full recomputation, or all there is")
    return fits


def _memory_kind(row: Row) -> str:
    """Return what an allocator counted, ``allocated``, ``reserved`` or either (``unspecified``); empty for what a driver shows."""
    said = row.get("memory_kind", "").lower()
    counted = re.match(r"(?:max_memory_)?(allocated|reserved)\b", said)
    return counted[1] if counted else "unspecified" if said == "unspecified" else ""


def _optimizer(row: Row, assumed: Assumed) -> str:
    """Return the id of the optimizer that a row names, with the format of its states; Adam where it names none that is known."""
    said, stored = row.get("optimizer", "").lower(), row["precision"].lower()
    states = {
        "8bit": "adam-8bit",
        "8-bit": "adam-8bit",
        "adafactor": "adafactor",
        "muon": "muon",
        "sgd": "sgd-momentum",
    }
    named = next((identity for word, identity in states.items() if word in said), "adam")
    if said and named == "adam" and "adam" not in said:
        assumed.add(f"optimizer: {said} is not described, its states taken for Adam's")
    narrow = any(words in stored for words in ("weights too", "optimizer states", "pure bf16")) or "bf16" in said
    return "adam-bf16" if named == "adam" and narrow else named


def _offload(row: Row) -> str:
    """Return what a row says is kept in host memory; of several the optimizer, which is the largest."""
    said = row.get("offload", "").lower()
    beside = row.get("zero_stage_fsdp", "").lower()
    if not said and re.search(
        r"off-?load", beside
    ):  # ZeRO-Offload keeps the optimizer's states unless another is named
        said = beside if re.search(r"param|weight|activ", beside) else "optimizer"
    if said.startswith("no") or not said:
        return "none"
    if "nvme" in said:
        raise Skipped(f"offload: {said}: storage is not planned")
    kinds = {"optim": "optimizer", "activ": "activations", "param": "weights", "weight": "weights"}
    found = next((kind for word, kind in kinds.items() if word in said), None)
    if found is None:
        raise Skipped(f"offload: {said} does not say what: optimizer->CPU, params->CPU or activations->CPU")
    return found


def precision_of(text: str) -> str:
    """Return the number format of matrix products for a published precision."""
    lowered = re.sub(r"\b(?:no|without|w/o)\s+\w+", "", text.lower())
    if "nvfp4" in lowered or "mxfp4" in lowered:
        return "fp4"
    if "fp8" in lowered or "float8" in lowered:
        return "fp8"
    if lowered.startswith(("fp16", "float16")) and "bf16" not in lowered:
        return "fp16"
    return "bf16"
