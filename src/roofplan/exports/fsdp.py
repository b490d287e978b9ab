"""The launch of a plan under PyTorch FSDP, by Accelerate."""

from __future__ import annotations

from roofplan.exports.words import joined, not_expressed, refuse, refuse_numbers
from roofplan.training.plan import TrainingPlan


def launch(plan: TrainingPlan) -> str:
    """Accelerate's flags for PyTorch FSDP2, or for plain data parallelism."""
    x, job, m = plan.layout, plan.job, plan.machine
    refuse(
        plan,
        "fsdp",
        sharded_states_with_whole_gradients=x.zero == 1,
        experts_of_a_capacity=job.capacity is not None,
    )
    refuse_numbers(plan, "fsdp", {}, ("bf16", "fp16", "fp8"))
    refuse(plan, "fsdp", tensor_parallelism=x.tp > 1, pipeline_stages=x.pp > 1, context_parallelism=x.cp > 1)
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
    plain = ["--gradient_checkpointing true"] if x.zero < 2 and x.recompute == "full" else []
    words += ["train.py", *plain, f"--per_device_train_batch_size {int(x.micro_batch)}"]
    words += [f"--gradient_accumulation_steps {int(plan.step.micro_batches)}", f"--max_seq_length {job.sequence}"]
    remarks = ["train.py: your script, which reads what stands behind it"]
    if job.adapter is not None:
        words += [f"--lora_r {job.adapter.rank}", f"--lora_target_modules {','.join(job.adapter.targets)}"]
        words += ["--load_in_4bit"] if job.adapter.stored.startswith("bnb-nf4") else []
        words += ["--use_dora"] if job.adapter.method == "dora" else []
    if x.offload == "activations":
        words.append("--activation_offloading true")
        remarks.append("--activation_offloading is that of TRL's trainers")
    remarks += not_expressed(plan)
    return joined(words, remarks)
