"""DeepSpeed's configuration of a plan."""

from __future__ import annotations

import json

from roofplan.exports.words import refuse, refuse_numbers
from roofplan.training.plan import TrainingPlan


def launch(plan: TrainingPlan) -> str:
    """DeepSpeed's configuration file, which Transformers' Trainer and Accelerate read."""
    x, job = plan.layout, plan.job
    swapped_whole = x.offload == "activations" and x.recompute != "full"
    refuse(
        plan,
        "deepspeed",
        experts_of_a_capacity=job.capacity is not None,
        activations_but_checkpoints_in_host_memory=swapped_whole,
    )
    refuse_numbers(plan, "deepspeed", {}, ("bf16", "fp16"))
    refuse(plan, "deepspeed", tensor_parallelism=x.tp > 1, pipeline_stages=x.pp > 1, context_parallelism=x.cp > 1)
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
