"""The launch of a training plan in the vocabulary of a framework: flags, or a configuration file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

from roofplan import catalogue
from roofplan.errors import InputError
from roofplan.records.model import Attention, Dense, LatentAttention, Mixture
from roofplan.records.training import Framework
from roofplan.train.plan import TrainingPlan

TARGETS = ("megatron", "torchtitan", "deepspeed", "fsdp")


def launch(plan: TrainingPlan, target: str | None = None) -> str:
    """Return how a plan is started under a framework, the plan's own where none is named; what it cannot say stands behind ``#``.

    Raises
    ------
    InputError : a framework that cannot run such a layout.
    """
    name = target or {"megatron-bridge": "megatron"}.get(plan.framework.name, plan.framework.name)
    name = {"fsdp-qlora": "fsdp", "litgpt": "fsdp", "llm-foundry": "fsdp"}.get(name, name)
    if name not in TARGETS:
        raise InputError(
            f"--emit: {name!r} is no framework; accepted: {', '.join(TARGETS)}", argument="--emit", value=name
        )
    writers: dict[str, Callable[[TrainingPlan], str]] = {
        "megatron": _megatron,
        "torchtitan": _torchtitan,
        "deepspeed": _deepspeed,
        "fsdp": _fsdp,
    }
    return writers[name](plan)


def _flags(plan: TrainingPlan, name: str) -> Framework:
    """Return the profile whose flags are written: the plan's own version, else the newest of the name."""
    if plan.framework.flags and plan.framework.name == name:
        return plan.framework
    return catalogue.framework(catalogue.find("frameworks", name, "--emit"))


def _torchrun(plan: TrainingPlan) -> list[str]:
    m = plan.machine
    return ["torchrun", f"--nnodes {m.hosts}", f"--nproc-per-node {m.per_host}"]


def _refuse(name: str, **wanted: bool) -> None:
    """Refuse a layout that a framework has no way to run."""
    for what, present in wanted.items():
        if present:
            raise InputError(
                f"--emit {name}: {name} has no {what.replace('_', ' ')}; search with --framework {name}",
                argument="--emit",
                value=name,
            )


def _megatron(plan: TrainingPlan) -> str:
    """Megatron-LM's ``pretrain_gpt.py`` with the model's dimensions and the plan's layout."""
    x, job, model = plan.layout, plan.job, plan.model
    f = _flags(plan, "megatron").flags
    _refuse("megatron", adapters=job.adapter is not None, ZeRO_3=x.zero >= 2, DualPipe=x.schedule not in {"1f1b"})
    words = [*_torchrun(plan), "pretrain_gpt.py", *_dimensions(plan)]
    remarks = []

    table: list[tuple[bool, str, object]] = [
        (True, "sequence", job.sequence),
        (True, "micro_batch", int(x.micro_batch)),
        (True, "batch", job.batch),
        (True, "tensor", int(x.tp)),
        (True, "pipeline", x.pp),
        (x.cp > 1, "context", int(x.cp)),
        (x.ep > 1, "expert", int(x.ep)),
        (x.interleave > 1, "interleave", -(-len(model.decoder.layers) // (x.pp * x.interleave))),
        (x.tp > 1, "sequence_parallel", ""),
        (x.zero > 0, "optimizer_sharding", ""),
        (x.zero > 0, "overlap", ""),
        (x.recompute in {"selective", "full"}, f"recompute_{x.recompute}", ""),
        (True, f"precision_{job.precision if job.precision in {'bf16', 'fp16', 'fp8'} else 'bf16'}", ""),
        ("loss" in f, "loss", ""),
        (x.offload == "optimizer" and "offload_optimizer" in f, "offload_optimizer", ""),
        (True, "flash", ""),
    ]
    words += [f"{f[name]} {value}".rstrip() for wanted, name, value in table if wanted]
    if len(model.decoder.layers) % (x.pp * x.interleave):
        chunks = x.pp * x.interleave
        remarks.append(f"{len(model.decoder.layers)} layers in {chunks} chunks: some chunks hold one layer fewer")
    if x.recompute not in {"none", "selective", "full"}:
        words.append(f"--recompute-granularity selective --recompute-modules {x.recompute.replace('+', ' ')}")
    if x.recompute == "full" and float(x.recomputed) < 1.0:
        count = math.ceil(float(x.recomputed) * len(model.decoder.layers) / (x.pp * x.interleave))
        words = [
            word.replace("uniform --recompute-num-layers 1", f"block --recompute-num-layers {count}") for word in words
        ]
    if job.tokens:
        words.append(f"--train-samples {int(-(-job.tokens // job.sequence))}")
    return _joined(words, remarks)


def _dimensions(plan: TrainingPlan) -> list[str]:
    """Return the model as Megatron's flags."""
    model = plan.model
    layers = model.decoder.layers
    layer = layers[-1]
    words = [f"--num-layers {len(layers)}", f"--hidden-size {model.hidden}"]
    for mixer in layer.mixers:
        if isinstance(mixer, Attention):
            words += [f"--num-attention-heads {mixer.heads}", f"--kv-channels {mixer.head_dim}"]
            if mixer.kv_heads != mixer.heads:
                words += ["--group-query-attention", f"--num-query-groups {mixer.kv_heads}"]
        elif isinstance(mixer, LatentAttention):
            words += [
                f"--num-attention-heads {mixer.heads}",
                "--multi-latent-attention",
                f"--kv-lora-rank {mixer.latent}",
                f"--qk-head-dim {mixer.nope_dim}",
                f"--qk-pos-emb-head-dim {mixer.rope_dim}",
                f"--v-head-dim {mixer.value_dim}",
            ]
    gated = False
    dense = next((f for one in layers for f in one.feed_forwards if isinstance(f, Dense)), None)
    if dense is not None:
        gated = len(dense.groups[0]) > 1
        words.append(f"--ffn-hidden-size {dense.groups[0][0].outputs}")
    for feed in layer.feed_forwards:
        if isinstance(feed, Mixture):
            gated = len(feed.expert[0]) > 1
            words += [
                f"--num-experts {feed.experts}",
                f"--moe-router-topk {feed.chosen}",
                f"--moe-ffn-hidden-size {feed.expert[0][0].outputs}",
                "--moe-grouped-gemm",
            ]
    words += ["--swiglu"] if gated else []
    words += [] if layer.layer_norm else ["--normalization RMSNorm"]
    words += [] if model.tied else ["--untie-embeddings-and-output-weights"]
    positions = model.max_positions or plan.job.sequence
    return [*words, f"--max-position-embeddings {max(positions, plan.job.sequence)}"]


def _torchtitan(plan: TrainingPlan) -> str:
    """Torchtitan's training flags; the model is a flavour of its own registry."""
    x, job = plan.layout, plan.job
    f = _flags(plan, "torchtitan").flags
    _refuse("torchtitan", adapters=job.adapter is not None)
    words = [*_torchrun(plan), "-m torchtitan.train"]
    local = job.batch // int(x.dp)
    table = {
        "tensor": int(x.tp),
        "pipeline": x.pp,
        "context": int(x.cp),
        "data": int(x.shard or x.dp),
        "micro_batch": local if x.pp > 1 else int(x.micro_batch),
        "batch": job.batch,
        "sequence": job.sequence,
    }
    words += [f"{f[name]} {value}" for name, value in table.items()]
    words += [f"{f['replicas']} {int(x.dp / x.shard)}"] if x.shard else []
    if x.ep > 1:
        words.append(f"{f['expert']} {int(x.ep)}")
    if x.pp > 1:
        names = {
            "1f1b": "Interleaved1F1B" if x.interleave > 1 else "1F1B",
            "gpipe": "GPipe",
            "zb-h1": "InterleavedZeroBubble",
        }
        words.append(f"{f['schedule']} {names.get(x.schedule, '1F1B')}")
        words.append(f"--parallelism.pipeline_parallel_microbatch_size {int(x.micro_batch)}")
    words.append(
        f[f"recompute_{x.recompute}"] if x.recompute in {"none", "selective", "full"} else f["recompute_selective"]
    )
    words.append(f["compile"])
    if job.precision == "fp8":
        words.append("--model.converters float8")
    if job.tokens:
        words.append(f"--training.steps {int(-(-job.tokens // (job.batch * job.sequence)))}")
    remarks = ["--model.name and --model.flavor name the model in torchtitan's registry"]
    if x.zero < 3:
        remarks.append(f"FSDP2 shards weights too: the plan's ZeRO-{x.zero} becomes full sharding")
    return _joined(words, remarks)


def _deepspeed(plan: TrainingPlan) -> str:
    """DeepSpeed's configuration file, which Transformers' Trainer and Accelerate read."""
    x, job = plan.layout, plan.job
    _refuse("deepspeed", tensor_parallelism=x.tp > 1, pipeline_stages=x.pp > 1, context_parallelism=x.cp > 1)
    zero: dict[str, object] = {"stage": x.zero, "overlap_comm": True, "contiguous_gradients": True}
    if x.zero >= 2:
        zero["reduce_scatter"] = True
    if x.offload in {"optimizer", "weights"}:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if x.offload == "weights":
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    document = {
        "train_batch_size": job.batch,
        "train_micro_batch_size_per_gpu": int(x.micro_batch),
        "gradient_accumulation_steps": int(plan.step.micro_batches),
        "bf16": {"enabled": job.precision != "fp16"},
        "fp16": {"enabled": job.precision == "fp16"},
        "gradient_clipping": 1.0,
        "zero_optimization": zero,
    }
    return json.dumps(document, indent=1)


def _fsdp(plan: TrainingPlan) -> str:
    """Accelerate's flags for PyTorch FSDP2, or for plain data parallelism."""
    x, job, m = plan.layout, plan.job, plan.machine
    _refuse("fsdp", tensor_parallelism=x.tp > 1, pipeline_stages=x.pp > 1, context_parallelism=x.cp > 1)
    words = [
        "accelerate launch",
        f"--num_machines {m.hosts}",
        f"--num_processes {m.count}",
        f"--mixed_precision {'fp16' if job.precision == 'fp16' else 'bf16'}",
    ]
    if x.zero >= 2:
        words += [
            "--use_fsdp",
            "--fsdp_version 2",
            f"--fsdp_reshard_after_forward {'true' if x.zero >= 3 else 'false'}",
        ]
        words += ["--fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP"]
        words += [f"--fsdp_activation_checkpointing {'true' if x.recompute == 'full' else 'false'}"]
        words += [f"--fsdp_offload_params {'true' if x.offload == 'weights' else 'false'}"]
    words += ["train.py", f"--per_device_train_batch_size {int(x.micro_batch)}"]
    words += [f"--gradient_accumulation_steps {int(plan.step.micro_batches)}", f"--max_seq_length {job.sequence}"]
    remarks = ["train.py: your script; its last flags are those of Transformers' Trainer"]
    if job.adapter is not None:
        words += [f"--lora_r {job.adapter.rank}", f"--lora_target_modules {','.join(job.adapter.targets)}"]
        words += ["--load_in_4bit"] if job.adapter.stored.startswith("bnb-nf4") else []
    return _joined(words, remarks)


def _joined(words: list[str], remarks: list[str]) -> str:
    return " ".join(words) + (f"  # {'; '.join(remarks)}" if remarks else "")
