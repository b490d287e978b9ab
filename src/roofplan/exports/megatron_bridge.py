"""The launch of a plan under Megatron Bridge, as changes of one of its recipes."""

from __future__ import annotations

from roofplan.exports.megatron import chunks_of, pipeline_layout
from roofplan.exports.words import joined, recipe_of, refuse, refuse_numbers, torchrun
from roofplan.training.plan import TrainingPlan

MIXED = {"bf16": "bf16_mixed", "fp8": "bf16_with_fp8_current_scaling_mixed", "mxfp8": "bf16_with_mxfp8_mixed"}
"""Megatron Bridge's ``mixed_precision`` by the format of products."""


def launch(plan: TrainingPlan) -> str:
    """Return the command of ``run_recipe.py``: the model's recipe, the plan's layout, and what else it changes as ``key=value``."""
    x, job = plan.layout, plan.job
    chunks, ends = chunks_of(plan)
    refuse(
        plan,
        "megatron-bridge",
        ZeRO_2_or_3=x.zero >= 2,
        such_a_schedule=x.schedule != "1f1b",
        activations_in_host_memory=x.offload == "activations",
        experts_of_a_capacity=job.capacity is not None,
        quantised_weights_under_adapters=job.adapter is not None and job.adapter.stored.startswith("bnb"),
    )
    refuse_numbers(plan, "megatron-bridge", {"recipe_mxfp8": ""}, MIXED)
    mode = "pretrain" if job.adapter is None else job.adapter.method
    words = [
        *torchrun(plan),
        "scripts/training/run_recipe.py",
        f"--model {recipe_of(plan)}",
        f"--mode {mode}",
        "--dataset '<data>'",
        f"--tensor_model_parallel_size {int(x.tp)}",
        f"--pipeline_model_parallel_size {x.pp}",
        f"--context_parallel_size {int(x.cp)}",
        f"--expert_model_parallel_size {int(x.ep)}",
        *([f"--virtual_pipeline_model_parallel_size {x.interleave}"] if x.interleave > 1 else []),
        *(["--expert_tensor_parallel_size 1"] if x.ep > 1 and x.tp > 1 else []),
        f"--micro_batch_size {int(x.micro_batch)}",
        f"--global_batch_size {job.batch}",
        f"--seq_length {job.sequence}",
        "--lr '<learning rate>'",
    ]
    if job.tokens:
        words.append(f"--max_steps {int(-(-job.tokens // (job.batch * job.sequence)))}")
    words.append(f"model.sequence_parallel={str(x.tp > 1).lower()}")
    words.append(f"mixed_precision={MIXED[job.recipe or job.precision]}")
    words.append(f"ddp.use_distributed_optimizer={str(x.zero > 0).lower()}")
    if x.recompute == "none":
        words.append("model.recompute_granularity=null")
    elif x.recompute == "full":
        words.append("model.recompute_granularity=full model.recompute_method=uniform model.recompute_num_layers=1")
    else:
        modules = "core_attn" if x.recompute == "selective" else ",".join(x.recompute.split("+"))
        words.append(f"model.recompute_granularity=selective 'model.recompute_modules=[{modules}]'")
    if x.offload == "optimizer":
        words.append("optimizer.optimizer_cpu_offload=true optimizer.use_precision_aware_optimizer=true")
    if len(set(chunks)) > 1 and not ends:
        words.append(f"model.pipeline_model_parallel_layout={pipeline_layout(chunks)}")
    if ends:
        words.append("model.account_for_embedding_in_pipeline_split=true model.account_for_loss_in_pipeline_split=true")
    if job.adapter is not None:
        words += [f"peft.dim={job.adapter.rank}", "--pretrained_checkpoint '<checkpoint>'"]
    remarks = ["<...>: yours to fill in; the script stands in Megatron Bridge's repository"]
    if x.recompute == "full" and float(x.recomputed) < 1.0:
        remarks.append(f"recomputes all layers; the plan {float(x.recomputed):.0%} of them")
    return joined(words, remarks)
