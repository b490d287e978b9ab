"""The launch of a plan under torchtitan."""

from __future__ import annotations

from roofplan.exports.words import flags_of, joined, not_expressed, refuse, refuse_numbers, torchrun
from roofplan.training.plan import TrainingPlan


def launch(plan: TrainingPlan) -> str:
    """Return torchtitan's training flags; the model is a flavour in its registry."""
    x, job = plan.layout, plan.job
    f = flags_of(plan, "torchtitan").flags
    refuse(
        plan,
        "torchtitan",
        adapters=job.adapter is not None,
        activations_in_host_memory=x.offload == "activations",
        experts_of_a_capacity=job.capacity is not None,
    )
    refuse_numbers(plan, "torchtitan", f, ("bf16", "fp8"))
    words = [*torchrun(plan), "-m torchtitan.train"]
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
    remarks = ["<name> and <flavour>: the model in torchtitan's registry", *not_expressed(plan)]
    if x.offload != "none":
        words.append("--training.enable_cpu_offload")
        remarks.append("offloads weights and gradients too")
    if x.schedule == "zb-h1":
        remarks.append("torchtitan's zero-bubble schedule is ZB-V, the nearest to ZB-H1")
    if x.zero < 3:
        remarks.append(f"FSDP2 shards weights too: the plan's ZeRO-{x.zero} becomes full sharding")
    return joined(words, remarks)
