"""The launch of a plan under Megatron-LM's ``pretrain_gpt.py``."""

from __future__ import annotations

import math

from roofplan.exports.words import checkpoint, flags_of, joined, refuse, refuse_numbers, torchrun
from roofplan.operations.table import ACTIVATION_BYTES
from roofplan.records.model import Attention, Dense, LatentAttention, Mixture, Model
from roofplan.training.plan import TrainingPlan
from roofplan.training.stages import chunk_sizes


def _selects(model: Model) -> bool:
    """Return whether queries of some layer attend to compressed or selected tokens, or to a window of latents."""
    return any(
        one.selects if isinstance(one, Attention) else isinstance(one, LatentAttention) and one.reach is not None
        for layer, _ in model.decoder.kinds()
        for one in layer.mixers
    )


def launch(plan: TrainingPlan) -> str:
    """Megatron-LM's ``pretrain_gpt.py`` with the model's dimensions and the plan's layout."""
    x, job, model = plan.layout, plan.job, plan.model
    f = flags_of(plan, "megatron").flags
    chunks, ends = chunks_of(plan)
    uneven = len(set(chunks)) > 1 and not ends
    plain = all(isinstance(m, Attention | LatentAttention) for layer in model.decoder.layers for m in layer.mixers)
    refuse(
        plan,
        "megatron",
        adapters=job.adapter is not None,
        ZeRO_2_or_3=x.zero >= 2,
        such_a_schedule=x.schedule != "1f1b",
        activations_in_host_memory=x.offload == "activations" and "offload_activations" not in f,
        experts_of_a_capacity=job.capacity is not None and "capacity" not in f,
        mixers_but_attention_in_pretrain_gpt=not plain,
        attention_to_compressed_or_selected_tokens=_selects(model),
        GeGLU="gelu" in _activation(model) and _gated(model),
    )
    refuse_numbers(plan, "megatron", f, [one for one in ("bf16", "fp16", "fp8", "fp4") if f"precision_{one}" in f])
    # asserted with tensor or context ranks, before Blackwell; it does no harm there
    first = ["CUDA_DEVICE_MAX_CONNECTIONS=1"] if x.tp > 1 or x.cp > 1 else []
    words = [*first, *torchrun(plan), "pretrain_gpt.py", *_dimensions(plan)]
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
        (uneven and "layout" in f, "layout", pipeline_layout(chunks)),
        (x.tp > 1, "sequence_parallel", ""),
        (x.zero > 0, "optimizer_sharding", ""),
        (x.zero > 0 and "overlap" in f, "overlap", ""),
        (x.recompute in {"selective", "full"}, f"recompute_{x.recompute}", ""),
        (True, f"precision_{job.precision}", ""),
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
    remarks += [*_left_out(model), *(["--fp4-format needs Transformer Engine 2.7"] if job.precision == "fp4" else [])]
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
    words += [f"--tokenizer-type HuggingFaceTokenizer --tokenizer-model {checkpoint(model, '<tokenizer>')}", *BLANKS]
    return joined(words, remarks)


BLANKS = ("--data-path '<data>'", "--lr '<learning rate>'")
"""What no plan knows, marked so that no framework takes it for a value."""


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


def chunks_of(plan: TrainingPlan) -> tuple[list[int], bool]:
    """Return the layers of each chunk of a pipeline, and whether embedding and head count as a layer each."""
    layers, x, counts = len(plan.model.decoder.layers), plan.layout, plan.framework.counts_ends
    chunks = chunk_sizes(layers, x.pp * x.interleave, ends=counts)
    return chunks, counts and (layers + 2) % len(chunks) == 0 and len(set(chunks)) > 1


def pipeline_layout(chunks: list[int]) -> str:
    """Return chunks of a pipeline as Megatron writes them: E the embedding, t a layer, L the loss, | between chunks.

    >>> pipeline_layout([2, 2, 1])
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
