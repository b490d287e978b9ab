"""The launch of a plan under LitGPT."""

from __future__ import annotations

import shlex

from roofplan.exports.words import checkpoint, joined, not_expressed, refuse, refuse_numbers
from roofplan.training.plan import TrainingPlan

TARGETS = {
    "lora_query": {"q_proj"},
    "lora_key": {"k_proj"},
    "lora_value": {"v_proj"},
    "lora_projection": {"o_proj"},
    "lora_mlp": {"gate_proj", "up_proj", "down_proj"},
    "lora_head": {"lm_head"},
}
"""LitGPT's switches for adapters, by the products that each adapts."""


def launch(plan: TrainingPlan) -> str:
    """Return LitGPT's command: ``finetune_lora`` with an adapter, else ``finetune_full``."""
    x, job, adapter = plan.layout, plan.job, plan.job.adapter
    adapted = set(adapter.targets) if adapter is not None else set()
    quantised = adapter is not None and adapter.stored.startswith("bnb")
    refuse(
        plan,
        "litgpt",
        DoRA=adapter is not None and adapter.method == "dora",
        **{f"adapters of {name}": True for name in sorted(adapted - set().union(*TARGETS.values()))},
        adapters_of_some_products_of_the_feed_forward=0 < len(adapted & TARGETS["lora_mlp"]) < 3,
        quantised_weights_on_several_devices=quantised and plan.machine.count > 1,
        copies_without_sharding=plan.machine.count > 1 and x.zero == 0,
        states_in_host_memory=x.offload != "none",
        experts_of_a_capacity=job.capacity is not None,
    )
    refuse_numbers(plan, "litgpt", {}, ("bf16",))
    refuse(plan, "litgpt", tensor_parallelism=x.tp > 1, pipeline_stages=x.pp > 1, context_parallelism=x.cp > 1)
    words = [
        f"litgpt {'finetune_lora' if adapter is not None else 'finetune_full'} {checkpoint(plan.model)}",
        "--precision bf16-true",
        f"--devices {plan.machine.per_host}",
        f"--num_nodes {plan.machine.hosts}",
        f"--train.global_batch_size {job.batch}",
        f"--train.micro_batch_size {int(x.micro_batch)}",
        f"--train.max_seq_length {job.sequence}",
    ]
    if adapter is not None:
        words += [f"--quantize {adapter.stored.replace('bnb-', 'bnb.')}"] if quantised else []
        words.append(f"--lora_r {adapter.rank}")
        words += [f"--{name} {str(bool(adapted & products)).lower()}" for name, products in TARGETS.items()]
    if job.tokens:
        words.append(f"--train.max_steps {int(-(-job.tokens // (job.batch * job.sequence)))}")
    words.append(f"--data {shlex.quote('<data>')}")
    remarks = ["<...>: yours to fill in", *not_expressed(plan)]
    if plan.machine.count == 1 and x.recompute == "full":
        remarks.append("LitGPT recomputes over several devices alone: on one it keeps all activations")
    return joined(words, remarks)
