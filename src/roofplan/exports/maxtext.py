"""The launch of a plan under MaxText."""

from __future__ import annotations

import math

from roofplan.exports.words import joined, recipe_of, refuse, refuse_numbers
from roofplan.training.plan import TrainingPlan

REMAT = {"none": "minimal_with_context", "selective": "minimal", "full": "full"}
"""MaxText's ``remat_policy`` by recomputation mode: ``minimal`` keeps every product but those of attention."""


AUTOMATIC = ("ici_fsdp_parallelism", "dcn_data_parallelism")
"""Axes that MaxText sizes itself unless they are given."""


def launch(plan: TrainingPlan) -> str:
    """Return MaxText's command: its base configuration with what the plan changes, as ``key=value``.

    Axes inside a slice are ``ici_*``, a slice being a TPU pod or the devices of a host; those between hosts are ``dcn_*``.
    """
    x, job, m = plan.layout, plan.job, plan.machine
    google = m.device.vendor == "Google"
    refuse(
        plan,
        "maxtext",
        adapters=job.adapter is not None,
        selected_modules=x.recompute not in REMAT,
        uneven_stages=len(plan.model.decoder.layers) % (x.pp * x.interleave) != 0,
    )
    refuse_numbers(plan, "maxtext", {}, ("bf16",) if google else ("bf16", "fp8"))
    slices = 1 if google else m.hosts
    axes, room = {}, m.count // slices
    for name, size in _degrees(plan).items():
        axes[f"ici_{name}_parallelism"] = inner = math.gcd(size, room)
        axes[f"dcn_{name}_parallelism"] = size // inner
        room //= inner
    passes = int(plan.step.micro_batches)
    whole = x.pp > 1
    words = [
        "python3 -m maxtext.trainers.pre_train.train src/maxtext/configs/base.yml",
        f"model_name={recipe_of(plan)}",
        "run_name='<run>'",
        "base_output_directory='<bucket>'",
        "dataset_type='<data>'",
        "learning_rate='<learning rate>'",
        *([] if google else ["hardware=gpu"]),
        f"per_device_batch_size={(job.batch if whole else int(x.micro_batch) * int(x.dp)) / m.count:g}",
        f"max_target_length={job.sequence}",
        *([f"gradient_accumulation_steps={passes}"] if not whole and passes > 1 else []),
        *(f"{name}={size}" for name, size in axes.items() if size > 1 or name in AUTOMATIC),
    ]
    if whole:
        each = len(plan.model.decoder.layers) // (x.pp * x.interleave)
        words += [f"num_layers_per_pipeline_stage={each}", f"num_pipeline_microbatches={passes}"]
    words.append(f"remat_policy={REMAT[x.recompute]}")
    words += ["quantization=fp8"] if job.precision == "fp8" else []
    words += ["optimizer_memory_host_offload=true"] if x.offload in {"optimizer", "weights"} else []
    words += ["parameter_memory_host_offload=true"] if x.offload == "weights" else []
    words += [f"capacity_factor={job.capacity:g}"] if job.capacity is not None else []
    if job.tokens:
        words.append(f"steps={int(-(-job.tokens // (job.batch * job.sequence)))}")
    remarks = ["<...>: yours to fill in"]
    remarks += ["the same command on every host"] if m.hosts > 1 else []
    return joined(words, remarks)


def _degrees(plan: TrainingPlan) -> dict[str, int]:
    """Return the degree of each axis, innermost first; experts divide the ranks that FSDP would shard over."""
    x = plan.layout
    sharded = max(1, int(x.shard or x.dp) // int(x.ep))
    copies = int(x.dp) // int(x.ep) // sharded
    return {
        "tensor": int(x.tp),
        "context": int(x.cp),
        "expert": int(x.ep),
        "fsdp": sharded,
        "data": copies,
        "pipeline": x.pp,
    }
