"""The launch of a training plan under a framework: command-line flags, or a configuration file."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping

from roofplan import catalogue
from roofplan.errors import InputError, choice
from roofplan.operations.table import ACTIVATION_BYTES
from roofplan.records.model import Attention, Dense, LatentAttention, Mixture, Model
from roofplan.records.training import Framework
from roofplan.training.plan import TrainingPlan
from roofplan.training.stages import chunk_sizes

TARGETS = ("megatron", "torchtitan", "deepspeed", "fsdp")


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
    "megatron-bridge": "megatron",
    "fsdp-qlora": "fsdp",
    "litgpt": "fsdp",
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
    writers: dict[str, Callable[[TrainingPlan], str]] = {
        "megatron": _megatron,
        "torchtitan": _torchtitan,
        "deepspeed": _deepspeed,
        "fsdp": _fsdp,
    }
    if plan.machine.device.vendor not in plan.framework.vendors:
        raise InputError(
            f"--emit {name}: its launch is known for {', '.join(plan.framework.vendors)} alone, not for {plan.machine.device.id}",
            argument="--emit",
            value=name,
        )
    return writers[name](plan)


def _flags(plan: TrainingPlan, name: str) -> Framework:
    """Return the framework profile whose flags are used: the plan's own version, else the newest of that name."""
    if plan.framework.flags and plan.framework.name == name:
        return plan.framework
    return catalogue.framework(catalogue.find("frameworks", name, "--emit"))


def _torchrun(plan: TrainingPlan) -> list[str]:
    m = plan.machine
    meet = ["--rdzv-backend c10d", "--rdzv-endpoint $HEAD:29500"] if m.hosts > 1 else []
    return ["torchrun", f"--nnodes {m.hosts}", f"--nproc-per-node {m.per_host}", *meet]


def _refuse(plan: TrainingPlan, name: str, **wanted: bool) -> None:
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


def _megatron(plan: TrainingPlan) -> str:
    """Megatron-LM's ``pretrain_gpt.py`` with the model's dimensions and the plan's layout."""
    x, job, model = plan.layout, plan.job, plan.model
    f = _flags(plan, "megatron").flags
    counts = plan.framework.counts_ends
    chunks = chunk_sizes(len(model.decoder.layers), x.pp * x.interleave, ends=counts)
    ends = counts and (len(model.decoder.layers) + 2) % len(chunks) == 0 and len(set(chunks)) > 1
    uneven = len(set(chunks)) > 1 and not ends
    plain = all(isinstance(m, Attention | LatentAttention) for layer in model.decoder.layers for m in layer.mixers)
    _refuse(
        plan,
        "megatron",
        adapters=job.adapter is not None,
        ZeRO_2_or_3=x.zero >= 2,
        such_a_schedule=x.schedule != "1f1b",
        activations_in_host_memory=x.offload == "activations" and "offload_activations" not in f,
        experts_of_a_capacity=job.capacity is not None and "capacity" not in f,
        mixers_but_attention_in_pretrain_gpt=not plain,
        GeGLU="gelu" in _activation(model) and _gated(model),
        **_unknown(plan, f, {"bf16", "fp16", "fp8"}),
    )
    # asserted with tensor or context ranks, before Blackwell; it does no harm there
    first = ["CUDA_DEVICE_MAX_CONNECTIONS=1"] if x.tp > 1 or x.cp > 1 else []
    words = [*first, *_torchrun(plan), "pretrain_gpt.py", *_dimensions(plan)]
    remarks = ["<...>: yours to fill in"]

    table: list[tuple[bool, str, object]] = [
        (True, "sequence", job.sequence),
        (True, "micro_batch", int(x.micro_batch)),
        (True, "batch", job.batch),
        (True, "tensor", int(x.tp)),
        (True, "pipeline", x.pp),
        (x.cp > 1, "context", int(x.cp)),
        (x.ep > 1, "expert", int(x.ep)),
        (x.interleave > 1 and not uneven, "interleave", max(chunks)),
        (uneven and "layout" in f, "layout", _pipeline_layout(chunks)),
        (x.tp > 1, "sequence_parallel", ""),
        (x.zero > 0, "optimizer_sharding", ""),
        (x.zero > 0 and "overlap" in f, "overlap", ""),
        (x.recompute in {"selective", "full"}, f"recompute_{x.recompute}", ""),
        (True, f"precision_{job.precision if job.precision in {'bf16', 'fp16', 'fp8'} else 'bf16'}", ""),
        ("loss" in f, "loss", ""),
        (job.gradient > ACTIVATION_BYTES, "gradient_fp32", ""),
        (x.cp > 1 and "context_ring" in f, "context_exchange" if _exchanges(plan) else "context_ring", ""),
        (ends and "ends" in f, "ends", ""),
        (f"optimizer_{job.optimizer.id}" in f, f"optimizer_{job.optimizer.id}", ""),
        (x.offload == "optimizer" and "offload_optimizer" in f, "offload_optimizer", ""),
        (x.offload == "activations", "offload_activations", len(model.decoder.layers) - 1),
        (job.capacity is not None, "capacity", job.capacity),
        (x.tp > 1 and x.ep > 1 and "expert_tensor" in f, "expert_tensor", ""),
        (job.recipe == "mxfp8" and "recipe_mxfp8" in f, "recipe_mxfp8", ""),
        (
            "dispatcher" in f
            and any(isinstance(feed, Mixture) for layer in model.decoder.layers for feed in layer.feed_forwards),
            "dispatcher" if job.capacity is None else "dispatcher_padded",
            "",
        ),
        ("flash" in f, "flash", ""),
    ]
    words += [f"{f[name]} {value}".rstrip() for wanted, name, value in table if wanted]
    remarks += _left_out(model)
    if ends:
        remarks.append("embedding and head count as a layer each in the split")
    if x.recompute not in {"none", "selective", "full"}:
        named = [module for module in x.recompute.split("+") if module in MEGATRON_MODULES]
        words.append(f"--recompute-granularity selective --recompute-modules {' '.join(named)}")
        other = [module for module in x.recompute.split("+") if module not in MEGATRON_MODULES]
        remarks += [f"{module}: no module of Megatron's" for module in other]
    if x.recompute == "full" and float(x.recomputed) < 1.0:
        count = math.ceil(float(x.recomputed) * len(model.decoder.layers) / (x.pp * x.interleave))
        words = [
            word.replace("uniform --recompute-num-layers 1", f"block --recompute-num-layers {count}") for word in words
        ]
    if job.tokens:
        words.append(f"--train-samples {int(-(-job.tokens // job.sequence))}")
    words += [f"--tokenizer-type HuggingFaceTokenizer --tokenizer-model {_tokenizer(model)}", *BLANKS]
    return _joined(words, remarks)


BLANKS = ("--data-path '<data>'", "--lr '<learning rate>'")
"""What no plan knows, marked so that no framework takes it for a value."""


def _tokenizer(model: Model) -> str:
    """Return the Hub name of a model of the catalogue, else a blank."""
    known = model.id in catalogue.ids("models")
    return shlex.quote(str(catalogue.model_table(model.id).get("hub", "<tokenizer>")) if known else "<tokenizer>")


def _unknown(plan: TrainingPlan, flags: Mapping[str, str], formats: set[str]) -> dict[str, bool]:
    """Return whether the optimizer and the number format cannot be expressed by a framework's flags."""
    job = plan.job
    own = job.optimizer.id if job.adapter is None else "adam"
    return {
        f"optimizer {own}": own != "adam" and f"optimizer_{own}" not in flags,
        f"products in {job.recipe or job.precision}": job.precision not in formats
        or (job.recipe == "mxfp8" and "recipe_mxfp8" not in flags),
    }


def _activation(model: Model) -> str:
    return str(model.config.get("hidden_act") or model.config.get("hidden_activation") or "")


def _gated(model: Model) -> bool:
    feeds = [feed for layer in model.decoder.layers for feed in layer.feed_forwards]
    return any(len(feed.groups[0] if isinstance(feed, Dense) else feed.expert[0]) > 1 for feed in feeds)


def _scaling(model: Model) -> str:
    """Return the type of rotary position scaling, such as ``llama3`` or ``yarn``, empty where there is none."""
    scaled = model.config.get("rope_scaling")
    return str(scaled.get("rope_type", scaled.get("type")) or "") if isinstance(scaled, dict) else ""


def _left_out(model: Model) -> list[str]:
    """Return a remark on features of a configuration that the Megatron flags above leave out."""
    config = model.config
    table = {
        "sliding window": config.get("sliding_window") and config.get("use_sliding_window", True),
        "soft-capping": config.get("attn_logit_softcapping") or config.get("final_logit_softcapping"),
        "attention sinks": config.get("model_type") == "gpt_oss",
        "scaled rotary positions": _scaling(model) not in {"", "llama3", "default"},
        "sigmoid routing with bias": config.get("scoring_func") == "sigmoid",
        "multi-token prediction": config.get("num_nextn_predict_layers"),
    }
    named = [name for name, present in table.items() if present]
    return [f"left out: {', '.join(named)}; sizes are right, the model is not yet"] if named else []


def _pipeline_layout(chunks: list[int]) -> str:
    """Return chunks of a pipeline as Megatron writes them: E the embedding, t a layer, L the loss, | between chunks.

    >>> _pipeline_layout([2, 2, 1])
    "'Ett|tt|tL'"
    """
    return "'E" + "|".join("t" * count for count in chunks) + "L'"


MEGATRON_MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "moe", "shared_experts")
"""Names that Megatron's --recompute-modules takes."""


def _exchanges(plan: TrainingPlan) -> bool:
    """Return whether context ranks use all-to-all over heads, which needs enough KV heads in every layer."""
    mixers = [mixer for layer, _ in plan.model.decoder.kinds() for mixer in layer.mixers]
    heads = [mixer.kv_heads for mixer in mixers if isinstance(mixer, Attention)]
    heads += [mixer.heads for mixer in mixers if isinstance(mixer, LatentAttention)]
    return all(count / plan.layout.tp >= plan.layout.cp for count in heads)


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
            narrow = [group[0].inputs for group in mixer.groups if group[0].name.endswith("q_b_proj")]
            words += [f"--q-lora-rank {narrow[0]}"] if narrow else []
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
            shared = sum(linear.outputs for group in feed.shared for linear in group if linear.name.endswith("up_proj"))
            words += [f"--moe-shared-expert-intermediate-size {shared}"] if shared else []
            dense_first = sum(isinstance(f, Dense) for one in layers for f in one.feed_forwards)
            sparse = len(layers) - dense_first
            words += [f"--moe-layer-freq '([0]*{dense_first}+[1]*{sparse})'"] if dense_first else []
    groups = [
        group for mixer in layer.mixers if isinstance(mixer, Attention | LatentAttention) for group in mixer.groups
    ]
    groups += [group for feed in layer.feed_forwards if isinstance(feed, Dense) for group in feed.groups]
    biased = [linear.name for group in groups for linear in group if linear.bias]
    words += _beside_products(model, gated=gated, biased=biased)
    words += [] if layer.layer_norm else ["--normalization RMSNorm"]
    words += [] if model.tied else ["--untie-embeddings-and-output-weights"]
    positions = model.max_positions or plan.job.sequence
    return [*words, f"--max-position-embeddings {max(positions, plan.job.sequence)}"]


QK_NORMS = {"qwen3", "qwen3_moe", "olmo2", "olmo3"}
"""Model families with query-key normalisation."""


WITHOUT_ROTARY = {"gpt2", "gpt_bigcode", "opt", "bloom", "mpt", "gpt_neo"}
"""Model families with learned or linearly biased positions; all others rotate queries and keys."""


def _beside_products(model: Model, *, gated: bool, biased: list[str]) -> list[str]:
    """Return activation, biases and positions as Megatron's flags, from the model's configuration."""
    kind = _activation(model)
    words = []
    if gated:
        words.append("--swiglu")
    elif kind == "relu2":
        words.append("--squared-relu")
    if not biased:
        words.append("--disable-bias-linear")
    elif all(name.endswith(("q_proj", "k_proj", "v_proj")) for name in biased):
        words += ["--disable-bias-linear", "--add-qkv-bias"]
    if model.config.get("model_type") in QK_NORMS:
        words.append("--qk-layernorm")
    scaled = model.config.get("rope_scaling")
    if _scaling(model) == "llama3" and isinstance(scaled, dict):
        words += ["--use-rope-scaling", f"--rope-scaling-factor {scaled.get('factor', 8.0)}"]
    if model.config.get("rotary_pct") is not None:
        words.append(f"--rotary-percent {model.config['rotary_pct']}")
    if model.config.get("model_type") not in WITHOUT_ROTARY:
        nested = model.config.get("rope_parameters")
        base = (
            model.config.get("rope_theta")
            or model.config.get("rotary_emb_base")
            or (nested.get("rope_theta") if isinstance(nested, dict) else None)
        )
        # without a base Megatron's default is that of Transformers, 10,000
        words += [
            "--position-embedding-type rope",
            *([f"--rotary-base {int(base)}"] if isinstance(base, int | float) else []),
        ]
    return words


def _torchtitan(plan: TrainingPlan) -> str:
    """Return torchtitan's training flags; the model is a flavour in its registry."""
    x, job = plan.layout, plan.job
    f = _flags(plan, "torchtitan").flags
    _refuse(
        plan,
        "torchtitan",
        adapters=job.adapter is not None,
        activations_in_host_memory=x.offload == "activations",
        experts_of_a_capacity=job.capacity is not None,
        **_unknown(plan, f, {"bf16", "fp8"}),
    )
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
            "zb-h1": "ZBVZeroBubble",
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
    words += ["--model.name '<name>'", "--model.flavor '<flavour>'"]
    remarks = ["<name> and <flavour>: the model in torchtitan's registry", *_not_expressed(plan)]
    if x.offload != "none":
        words.append("--training.enable_cpu_offload")
        remarks.append("offloads weights and gradients too")
    if x.schedule == "zb-h1":
        remarks.append("torchtitan's zero-bubble schedule is ZB-V, the nearest to ZB-H1")
    if x.zero < 3:
        remarks.append(f"FSDP2 shards weights too: the plan's ZeRO-{x.zero} becomes full sharding")
    return _joined(words, remarks)


def _deepspeed(plan: TrainingPlan) -> str:
    """DeepSpeed's configuration file, which Transformers' Trainer and Accelerate read."""
    x, job = plan.layout, plan.job
    low = job.precision not in {"bf16", "fp16"}
    swapped_whole = x.offload == "activations" and x.recompute != "full"
    _refuse(
        plan,
        "deepspeed",
        low_precision_products=low,
        experts_of_a_capacity=job.capacity is not None,
        activations_but_checkpoints_in_host_memory=swapped_whole,
        **_unknown(plan, {}, {"bf16", "fp16"}),
    )
    _refuse(plan, "deepspeed", tensor_parallelism=x.tp > 1, pipeline_stages=x.pp > 1, context_parallelism=x.cp > 1)
    zero: dict[str, object] = {"stage": x.zero, "overlap_comm": True, "contiguous_gradients": True}
    if x.zero >= 2:
        zero["reduce_scatter"] = True
    if x.offload in {"optimizer", "weights"}:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if x.offload == "weights":
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    # read only by models that call deepspeed.checkpointing; Transformers' Trainer needs gradient_checkpointing besides
    again = x.recompute == "full"
    swapped = {"activation_checkpointing": {"cpu_checkpointing": x.offload == "activations"}} if again else {}
    document = {
        "train_batch_size": job.batch,
        "train_micro_batch_size_per_gpu": int(x.micro_batch),
        "gradient_accumulation_steps": int(plan.step.micro_batches),
        "bf16": {"enabled": job.precision != "fp16"},
        "fp16": {"enabled": job.precision == "fp16"},
        "gradient_clipping": 1.0,
        "zero_optimization": zero,
        **swapped,
    }
    return json.dumps(document, indent=1)


def _fsdp(plan: TrainingPlan) -> str:
    """Accelerate's flags for PyTorch FSDP2, or for plain data parallelism."""
    x, job, m = plan.layout, plan.job, plan.machine
    _refuse(
        plan,
        "fsdp",
        sharded_states_with_whole_gradients=x.zero == 1,
        experts_of_a_capacity=job.capacity is not None,
        **_unknown(plan, {}, {"bf16", "fp16", "fp8"}),
    )
    _refuse(plan, "fsdp", tensor_parallelism=x.tp > 1, pipeline_stages=x.pp > 1, context_parallelism=x.cp > 1)
    meet = ["--main_process_ip $HEAD", "--main_process_port 29500", "--machine_rank $RANK"] if m.hosts > 1 else []
    words = [
        "accelerate launch",
        *meet,
        f"--num_machines {m.hosts}",
        f"--num_processes {m.count}",
        f"--mixed_precision {job.precision if job.precision in {'fp16', 'fp8'} else 'bf16'}",
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
    remarks = ["train.py: your script, which reads what stands behind it"]
    if job.adapter is not None:
        words += [f"--lora_r {job.adapter.rank}", f"--lora_target_modules {','.join(job.adapter.targets)}"]
        words += ["--load_in_4bit"] if job.adapter.stored.startswith("bnb-nf4") else []
        words += ["--use_dora"] if job.adapter.method == "dora" else []
    if x.offload == "activations":
        words.append("--activation_offloading true")
        remarks.append("--activation_offloading is that of TRL's trainers")
    remarks += _not_expressed(plan)
    return _joined(words, remarks)


def _not_expressed(plan: TrainingPlan) -> list[str]:
    """Return remarks on recomputation and number formats that a launch cannot express."""
    x, job = plan.layout, plan.job
    out = []
    if x.recompute == "full" and float(x.recomputed) < 1.0:
        out.append(f"recomputation of {float(x.recomputed):.0%} of the layers has no flag: this recomputes all")
    if job.precision == "fp4":
        out.append("fp4: no flag known")
    return out


def _joined(words: list[str], remarks: list[str]) -> str:
    return " ".join(words) + (f"  # {'; '.join(remarks)}" if remarks else "")
