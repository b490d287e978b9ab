"""Published training runs as cases that can be predicted; the columns are those of ``measured/training.csv``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from roofplan import catalogue, hf
from roofplan.catalogue.machines import machine
from roofplan.errors import RoofplanError
from roofplan.records.calibration import Fit
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.training import Adapter, Framework, Job, Layout
from roofplan.train.step import Ability, ability
from roofplan.validation.rows import Row, Skipped, checked, number

KNOWN_MODELS = {
    "deepseekv2": "deepseek-v2",
    "deepseekv3": "deepseek-v3",
    "deepseekv4 flash": "deepseek-v4-flash",
    "gpt oss 120b": "gpt-oss-120b",
    "kimi_k2": "kimi-k2",
    "qwen3_235b": "qwen3-235b-a22b",
    "qwen3_30b": "qwen3-30b-a3b",
    "nemotron_3_nano": "nemotron-3-nano",
    "nemotron_3_ultra": "nemotron-3-ultra",
    "mixtral 8x7b": "mixtral-8x7b",
    "falcon 40": "falcon-40b",
}
"""Catalogue entries of models that dimensions alone do not describe, by how a publisher's name begins."""

NEEDED = (
    *("id", "source_key", "model_name", "accel_norm", "accelerators_total", "framework", "month", "precision", "task"),
    *("layers", "hidden", "heads", "seq_len", "micro_batch", "global_batch_sequences", "norm_tokens_per_s_per_gpu"),
)
"""Columns without which no row can be predicted."""

GPT = re.compile(r"^(gpt|opt|megatron)", re.IGNORECASE)
GPT_VOCABULARY = 51200
"""Vocabulary of Megatron's GPT models, 50,257 padded, where a source gives none [1]."""


@dataclass(slots=True, kw_only=True)
class TrainingCase:
    """A published run.

    Parameters
    ----------
    rate : measured tokens per second of a device, None without one [token/s].
    memory : measured peak of the fullest device, None without one [B].
    assumed : what the row leaves out and a rule filled.
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

    @property
    def step_time(self) -> float | None:
        """Measured seconds of a step [s]."""
        if self.rate is None:
            return None
        return self.job.batch * self.job.sequence / (self.rate * self.machine.count)

    def ability(self, fit: Fit) -> Ability:
        """Return what the machine attains."""
        return ability(self.machine, self.framework, fit)


def room_of(case: TrainingCase) -> float:
    """Return the memory that a device leaves the allocator of a run [B]."""
    return float(case.machine.device.memory or math.inf) - case.framework.keeps("outside")


def training_case(row: Row) -> TrainingCase:
    """Return a row as a case.

    Raises
    ------
    Skipped : with the reason.
    """
    if row.get("quality"):
        raise Skipped(row["quality"])
    checked(row)
    assumed: list[str] = []
    model = model_of(row, assumed)
    found = machine_of(row)
    framework = framework_of(row)
    sequence = _sequence(row, assumed)
    if sequence is None:
        raise Skipped("sequence not stated as a number")
    batch, micro = number(row, "global_batch_sequences"), number(row, "micro_batch")
    tp, pp, cp, ep = (int(number(row, name) or 1) for name in ("tp", "pp", "cp", "ep"))
    dp = int(number(row, "dp") or found.count // (tp * pp * cp))
    if tp * pp * cp * dp != found.count:
        raise Skipped("degrees do not multiply to the devices")
    if batch is None or micro is None:
        raise Skipped("batch or micro-batch not stated")
    zero = _zero(row, framework)
    recompute = _recompute(row, assumed)
    if framework.name == "litgpt" and zero == 3:
        recompute = "full"
        assumed.append("recompute: full, which LitGPT's FSDP strategy sets")
    if framework.name == "torchtitan" and pp > 1:
        micro = micro / pp
        assumed.append("micro-batch: the local batch over the stages, torchtitan's default")
    stated = row.get("sequence_parallel", "")
    parallel = stated == "True" if stated else framework.released >= "2022-05" and tp > 1
    interleave = int(number(row, "interleave") or (2 if row["interleave"].startswith(">1") else 1))
    layout = Layout(
        tp=float(tp),
        pp=pp,
        cp=float(cp),
        dp=float(dp),
        ep=float(ep),
        micro_batch=micro,
        interleave=max(1, interleave),
        zero=zero,
        recompute=recompute,
        sequence_parallel=parallel and tp > 1,
        offload="weights" if row.get("offload", "").startswith("params") else "none",
    )
    precision = precision_of(row["precision"])
    gradient = 2.0 if any(x in (row.get("gradient_dtype") or framework.gradient) for x in ("bf16", "fp16")) else 4.0
    optimizer = catalogue.optimizers()["adam"]
    job = Job(
        sequence=int(sequence),
        batch=int(batch),
        optimizer=optimizer,
        precision=precision,
        gradient=gradient,
        adapter=adapter_of(row),
    )
    rate, memory = number(row, "norm_tokens_per_s_per_gpu"), number(row, "measured_memory_gb_per_gpu")
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
        memory_kind=row.get("memory_kind", ""),
        assumed=tuple(assumed),
    )


def _sequence(row: Row, assumed: list[str]) -> float | None:
    """Return the tokens of a sequence; of a range of longest ones over tokenizers, the longest for the smallest vocabulary."""
    span = re.search(r"max (\d+)-(\d+) tokens", row["seq_len"])
    if span is None:
        return number(row, "seq_len")
    small = (number(row, "vocab") or 0.0) <= SMALL_VOCABULARY
    assumed.append(f"sequence: the longest of the data set, {span[2 if small else 1]} tokens")
    return float(span[2 if small else 1])


SMALL_VOCABULARY = 32000
"""Vocabulary whose tokenizer cuts a text into most tokens [1]."""


def adapter_of(row: Row) -> Adapter | None:
    """Return what a fine-tuning row trains, by the defaults of its framework."""
    if row["task"] not in {"lora", "qlora", "adapter", "adapter_v2"}:
        return None
    precision = row["precision"]
    stored = "bnb-nf4-double" if "nf4-dq" in precision else "bnb-nf4" if "nf4" in precision else "bf16"
    name = row["framework"].removeprefix("other:")
    if name not in ADAPTERS:
        raise Skipped(f"what {name} trains beside frozen weights is not described")
    defaults = ADAPTERS[name]
    trained = re.search(r"([\d,]+) trainable params", row["notes"])
    if row["task"].startswith("adapter"):
        defaults = {**defaults, "targets": (), "scales": row["task"] == "adapter_v2"}
        defaults["fixed"] = float(trained[1].replace(",", "")) if trained else None
        defaults["first"] = PROMPTED_FROM if row["task"] == "adapter" else 0
    return Adapter(method=row["task"], stored=stored, **defaults)


ADAPTERS: dict[str, dict[str, Any]] = {
    "litgpt": {"rank": 8, "targets": ("q_proj", "v_proj"), "bytes": 8.0},
    "nemo": {"rank": 32, "targets": ("q_proj", "k_proj", "v_proj"), "bytes": 18.0, "dropout": False, "fused": True},
    "megatron-bridge": {
        "rank": 32,
        "targets": ("q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "gate_proj", "down_proj"),
        "bytes": 18.0,
        "dropout": False,
        "fused": True,
    },
    "fsdp-qlora": {
        "rank": 64,
        "targets": ("q_proj", "k_proj", "v_proj", "up_proj", "gate_proj", "down_proj"),
        "bytes": 12.0,
    },
}
"""Defaults of what is trained: LitGPT, 16-bit parameters, gradients and moments; fsdp_qlora, 16-bit parameters and gradients, fp32 moments;
NeMo's examples of 2024 (lora_tuning of megatron_gpt_finetuning_config.yaml) the fused products before attention, Megatron Bridge all products, both with
Megatron's fp32 gradient, copy and moments."""


PROMPTED_FROM = 2
"""First layer with prompts of LLaMA-Adapter (arXiv 2303.16199) in LitGPT, adapter.py: adapter_start_layer; its published counts agree [1]."""


def _recompute(row: Row, assumed: list[str]) -> str:
    stated = row.get("recompute", "").split(" ")[0]
    if stated in {"none", "full", "selective"}:
        return stated
    assumed.append("recompute: none, where not stated")
    return "none"


def _zero(row: Row, framework: Framework) -> int:
    stated = row.get("zero_stage_fsdp", "").lower()
    if "fsdp" in stated or "shard" in stated or "zero-3" in stated or stated == "3":
        return 3
    if "distributed" in stated or stated in {"1", "zero-1"}:
        return 1
    if stated in {"0", "ddp"}:
        return 0
    return 3 if framework.sharding == "fsdp" else 1 if framework.sharding == "distributed-optimizer" else 0


def precision_of(text: str) -> str:
    """Return the number format that a published precision computes products in."""
    lowered = text.lower()
    if "nvfp4" in lowered:
        return "fp4"
    if "fp8" in lowered:
        return "fp8"
    if lowered.startswith("fp16") and "bf16" not in lowered:
        return "fp16"
    return "bf16"


def framework_of(row: Row) -> Framework:
    """Return the framework profile of a row's name and era."""
    name, month = row["framework"], row["month"]
    eager = row.get("flash_attention") == "False"
    if name == "megatron-bridge" or (name == "nemo" and month >= "2025"):
        identity = "megatron-bridge-0.2" if month < "2026-06" else "megatron-bridge-26.06"
    elif name in {"megatron", "nemo"}:
        identity = (
            "megatron-lm-3.0"
            if eager or month < "2023"
            else "megatron-core-0.8"
            if month < "2025"
            else "megatron-core-0.16"
        )
    elif name in {"fsdp-torchtitan", "torchtitan"}:
        identity = "torchtitan-0.1" if month < "2025-02" else "torchtitan-0.2"
    elif name.removeprefix("other:") in OWN_PROFILE:
        identity = OWN_PROFILE[name.removeprefix("other:")]
    else:
        raise Skipped(f"framework {name} is not described")
    found = catalogue.framework(identity)
    if eager and found.attention == "flash":
        found = replace(found, attention="eager")
    return found


OWN_PROFILE = {
    "maxtext": "maxtext-0.1",
    "deepspeed": "deepspeed-0.16",
    "llm-foundry-fsdp": "llm-foundry-0.3",
    "litgpt": "litgpt-0.3",
    "fsdp-qlora": "fsdp-qlora-1.0",
}
"""Frameworks that publishers name, and the one profile of each."""


def machine_of(row: Row) -> Machine:
    """Return the machine of a row: its devices, so many to a node, and the network that the row states."""
    device, count = row["accel_norm"].removeprefix("other:"), number(row, "accelerators_total")
    if device not in catalogue.aliases("accelerators"):
        raise Skipped(f"device {device or 'not stated'} is not in the catalogue")
    if count is None:
        raise Skipped("number of devices not stated")
    per_node = int(number(row, "devices_per_node") or min(8, int(count)))
    text = row.get("interconnect", "")
    joined = re.search(r"NVL(\d+)", text)
    per_node = int(joined[1]) if joined else per_node
    try:
        base = machine(f"{device}:{min(int(count), per_node)}")[0]
    except RoofplanError as error:
        raise Skipped(str(error)) from None
    base = _on_bus(base, text)
    if int(count) <= per_node:
        return replace(base, hosts=1, per_host=int(count), network=None)
    return _joined(base, int(count), per_node, text)


OLD_BOARD = "pcie3-x16"
"""Link of cards that stand on a board older than they are: a generation below that of the cards since 2020."""


def _on_bus(base: Machine, text: str) -> Machine:
    """Return a machine whose cards are on the bus that a row states, where it states one."""
    stated = re.match(r"pcie(\d) x(\d+)", text)
    name = f"pcie{stated[1]}-x{stated[2]}" if stated else OLD_BOARD if text.startswith("pcie (old board") else None
    if name is None or name not in catalogue.ids("links"):
        return base
    return replace(base, host_link=catalogue.link(name))


def _joined(base: Machine, count: int, per_node: int, text: str) -> Machine:
    """Return a machine of several nodes joined by the network that a row states, one port or several a node."""
    rate = re.search(r"(?:(\d+)x)?(\d+) Gb/s(?: per (node|GPU))?", text.partition(";")[2])
    network = base.network or catalogue.link("ib-hdr")
    total = 8 * 200e9 / 8
    if rate is not None:
        ports, speed, each = int(rate[1] or 1), float(rate[2]) * 1e9 / 8, rate[3]
        total = ports * speed * (per_node if each == "GPU" else 1)
    ports = max(1, round(total / network.bandwidth))
    hosts = -(-count // per_node)
    return replace(
        base, hosts=hosts, per_host=per_node if count % per_node == 0 else count // hosts, network=network, ports=ports
    )


def model_of(row: Row, assumed: list[str]) -> Model:
    """Return the model of a row: a catalogue entry cut to the row's layers, or the row's own dimensions."""
    name = row["model_name"].lower()
    sizes = {key: number(row, key) for key in ("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "vocab")}
    base = next((known for prefix, known in KNOWN_MODELS.items() if name.startswith(prefix)), None)
    if base:
        return _cut(base, row.get("layers", ""), row.get("dense_layers", ""))
    if any(sizes[key] is None for key in ("layers", "hidden", "heads")):
        raise Skipped("dims-missing")
    if sizes["vocab"] is None:
        assumed.append(f"vocabulary {GPT_VOCABULARY:,}")
    return _from_sizes(name, tuple(int(sizes[key] or 0) for key in sizes), int(number(row, "seq_len") or 2048))


@lru_cache(maxsize=1024)
def _cut(base: str, layers: str, dense: str) -> Model:
    config: dict[str, Any] = dict(hf.of_catalogue(base).config)
    config.pop("quantization_config", None)
    if layers and config.get("num_hidden_layers") not in {None, int(layers)} and "first_k_dense_replace" in config:
        config["num_hidden_layers"] = int(layers)
    if dense:
        config["first_k_dense_replace"] = int(dense)
    config["num_nextn_predict_layers"] = 0
    return hf.from_dict(config).renamed(base)


@lru_cache(maxsize=1024)
def _from_sizes(name: str, sizes: tuple[int, ...], sequence: int) -> Model:
    layers, hidden, inner, heads, kv_heads, vocabulary = sizes
    vocabulary, inner, kv_heads = vocabulary or GPT_VOCABULARY, inner or 4 * hidden, kv_heads or heads
    if name.startswith("mpt"):
        config = {
            "model_type": "mpt",
            "d_model": hidden,
            "n_layers": layers,
            "n_heads": heads,
            "expansion_ratio": inner // hidden,
            "vocab_size": vocabulary,
            "max_seq_len": sequence,
            "no_bias": True,
        }
    elif name.startswith(("phi", "stablelm alpha")):
        config = {
            "model_type": "phi" if name.startswith("phi") else "gpt_neox",
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": inner,
            "vocab_size": vocabulary,
            "max_position_embeddings": sequence,
            "tie_word_embeddings": False,
        }
    elif GPT.match(name):
        config = {
            "model_type": "gpt2",
            "n_embd": hidden,
            "n_layer": layers,
            "n_head": heads,
            "n_inner": inner,
            "n_positions": sequence,
            "vocab_size": vocabulary,
        }
    else:
        config = {
            "model_type": "nemotron" if name.startswith("nemotron") else "llama",
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "intermediate_size": inner,
            "vocab_size": vocabulary,
            "max_position_embeddings": sequence,
        }
    return hf.from_dict(config).renamed(name)
