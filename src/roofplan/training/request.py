"""Parse the flags of ``roofplan train``: text with units becomes a request."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from roofplan import catalogue
from roofplan.catalogue.machines import box_size, machine, tapered
from roofplan.catalogue.names import StandIn
from roofplan.errors import (
    InputError,
    NoPlan,
    StrategyError,
    UnitError,
    UnknownName,
    UnsupportedFeature,
    choice,
    nearest,
)
from roofplan.hf.quantization import unquantised
from roofplan.inputs import TrainInputs
from roofplan.operations.table import ACTIVATION_BYTES, element_bytes
from roofplan.records import units
from roofplan.records.hardware import Machine
from roofplan.records.model import Attention, Model
from roofplan.records.strategy import pinned_parts
from roofplan.records.training import DEGREES, MODULES, OFFLOADS, RECOMPUTES, SCHEDULES, Adapter, Framework, Job
from roofplan.training.plan import ADAPTER_BYTES, ALL_PRODUCTS, OBJECTIVES, TrainingRequest, flops_per_token
from roofplan.training.run import CHECKPOINTS, POLICIES, trained_parameters
from roofplan.training.search import Pins, mixtures

METHODS = ("full", "lora", "qlora", "dora")
PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "mxfp8": "fp8", "nvfp4": "fp4"}
"""Number format of the matmuls for each spelling of ``--precision``."""

DEFAULT_SEQUENCE = 4096
"""Default tokens per sequence, at most the model's positions [token]."""

DEFAULT_BATCH = {"full": 2**22, "other": 2**16}
"""Default tokens per step: 4 Mi in pretraining, 64 Ki in fine-tuning [token]."""


def batch_of(text: str, sequence: int) -> int:
    """Return the sequences per step in a text such as ``512seq`` or ``4194304tok``.

    If the tokens are not a whole number of sequences, they are rounded, by at most 5%, to a multiple of a high power of
    two.

    >>> batch_of("4Mtok", 8192), batch_of("16Mtok", 8192), batch_of("512seq", 8192)
    (512, 2048, 512)
    """
    cleaned = text.strip().lower()
    for ending, size in (("sequences", 1), ("seq", 1), ("tokens", sequence), ("tok", sequence)):
        if cleaned.endswith(ending):
            amount = units.parse_amount(text.strip()[: -len(ending)].strip(), "--batch")
            count = amount / size
            if size == 1 and count != int(count):
                raise UnitError(f"--batch: {text} is not a whole number of sequences", argument="--batch", value=text)
            if count < 1:
                raise UnitError(
                    f"--batch: {text} is less than one sequence of {sequence:,} tokens", argument="--batch", value=text
                )
            return int(count) if count == int(count) else _divisible(count)
    raise UnitError(
        f"--batch: {text!r} could be sequences or tokens; write 512seq or 4194304tok", argument="--batch", value=text
    )


def _divisible(count: float) -> int:
    """Return the multiple of the highest power of two within 5% of a count, else the nearest whole number [1]."""
    for power in range(math.ceil(math.log2(count)) + 1, 0, -1):
        near = round(count / (1 << power)) * (1 << power)
        if abs(near - count) <= ROUNDED * count:
            return near
    return max(1, round(count))


ROUNDED = 0.05
"""Largest relative change of a batch in tokens to make it divide well: a million in place of 2^20 is 5% less [1]."""


def pins_of(text: str | None) -> Pins:
    """Return the pinned values in a text such as ``tp=8,pp=2,recompute=full``.

    >>> pins_of("tp=8,recompute=full")
    {'tp': 8, 'recompute': 'full'}
    """
    out: Pins = {}
    words = {"recompute": RECOMPUTES, "schedule": SCHEDULES, "offload": OFFLOADS}
    for name, value, part in pinned_parts(text):
        accepted = [
            *(f"{d}=N" for d in DEGREES),
            *(f"{w}={'|'.join(v)}" for w, v in words.items()),
            "recomputed=50%",
            "shard=N",
        ]
        if name in out or not value or name not in {*DEGREES, *words, "recomputed", "shard"}:
            why = f"{name} is given twice" if name in out else f"cannot read {part!r}; accepted: {', '.join(accepted)}"
            raise StrategyError(f"--strategy: {why}", argument="--strategy", value=text)
        if (name == "recompute" and "+" in value) or value in MODULES:
            out[name] = "+".join(choice(part, MODULES, "--strategy recompute") for part in value.split("+"))
        elif name == "shard":
            out[name] = 0 if value == "0" else units.parse_count(value, "--strategy shard")
        elif name == "recomputed":
            out[name] = units.parse_share(value, "--strategy recomputed")
        elif name in words:
            out[name] = choice(value, words[name], f"--strategy {name}")
        elif name == "zero":
            out[name] = int(choice(value, ("0", "1", "2", "3"), "--strategy zero"))
        else:
            out[name] = units.parse_count(value, f"--strategy {name}")
    if "recomputed" in out and (out.get("recompute", "full") != "full" or not out["recomputed"]):
        raise StrategyError(
            "--strategy: recomputed=50% is a share, above 0, of the layers that recompute=full takes",
            argument="--strategy",
            value=text,
        )
    return out


def framework_of(name: str | None, method: str, on: Sequence[str] = ()) -> Framework:
    """Return the requested framework, else Megatron, MaxText on devices without Megatron, fsdp-qlora for adapters."""
    wanted = name or ("megatron" if method == "full" else "fsdp-qlora")
    if name is None and method == "full" and on:
        vendor = machine(on[0])[0].device.vendor
        known = [
            catalogue.framework(catalogue.find("frameworks", one, "--framework")) for one in ("megatron", "maxtext")
        ]
        return next((one for one in known if vendor in one.vendors), known[0])
    identity, other = catalogue.find("frameworks", wanted, "--framework"), _stand_in(wanted, method)
    if other is None or other.own:
        return catalogue.framework(identity)
    found = in_place_of(other)
    return found.with_fused_loss() if other.loss == "fused" else found


def _stand_in(name: str, method: str) -> StandIn | None:
    """Return what plans take for software without a profile of its own, None for others; adapters are not compiled."""
    found = catalogue.stand_in("frameworks", name)
    return found and found.with_kernels(found.compiles and method == "full")


def in_place_of(other: StandIn) -> Framework:
    """Return the profile of a stand-in; how it shards and what it does unless told otherwise stay the software's own.

    Parameters
    ----------
    other : the stand-in.

    Returns
    -------
    The profile, with the name of the software that it stands for.
    """
    own = catalogue.framework(other.defaults or other.id)
    defaults = replace(own.unstated, whose_recompute=own.name, whose_micro_batch=own.name)
    if other.recompute:
        defaults = replace(
            defaults, recompute=other.recompute, recompute_sharded=other.recompute, whose_recompute=other.name
        )
    if other.micro_batch:
        defaults = replace(defaults, micro_batch=other.micro_batch, whose_micro_batch=other.name)
    found = replace(catalogue.framework(other.id), sharding=own.sharding)
    return found.standing_for(other.name, untuned=other.untuned, unstated=defaults)


def job_of(model: Model, framework: Framework, asked: TrainInputs, assumed: list[str]) -> Job:
    """Return the job of given inputs; defaults are added to `assumed`."""
    sequence = _sequence(model, asked.sequence, assumed)
    batch = _batch(asked, sequence, assumed)
    precision = choice(asked.precision or "bf16", PRECISIONS, "--precision")
    states = catalogue.optimizers()
    optimizer = states[choice(asked.optimizer.lower().replace("adamw", "adam"), states, "--optimizer")]
    adapter = adapter_of(model, choice(asked.method, METHODS, "--method"), asked.rank, asked.base)
    tokens = _tokens(model, asked, sequence, batch, adapter, assumed)
    imbalance = imbalance_of(asked.imbalance, model, assumed)
    return Job(
        sequence=sequence,
        batch=batch,
        optimizer=optimizer,
        tokens=tokens,
        precision=PRECISIONS[precision],
        recipe=precision if precision == "mxfp8" else "",
        gradient=2.0 if framework.gradient in {"bf16", "fp16"} else 4.0,
        adapter=adapter,
        imbalance=imbalance,
        capacity=capacity_of(asked.capacity, model, imbalance, assumed),
    )


def _sequence(model: Model, text: str | None, assumed: list[str]) -> int:
    """Return the tokens per sequence [token]."""
    if text is None:
        length = min(DEFAULT_SEQUENCE, model.max_positions or DEFAULT_SEQUENCE)
        assumed.append(f"--sequence {length}")
        return length
    length = units.parse_length(text, "--sequence")
    if model.max_positions and length > model.max_positions:
        raise UnitError(
            f"--sequence: {length:,} tokens are beyond the {model.max_positions:,} positions of {model.id};"
            " change max_position_embeddings in its config.json to train longer ones",
            code="context_too_long",
            argument="--sequence",
            value=length,
        )
    return length


def _batch(asked: TrainInputs, sequence: int, assumed: list[str]) -> int:
    """Return the sequences per step [1]."""
    text = asked.batch
    if text is None:
        count = max(1, DEFAULT_BATCH["full" if asked.method.lower() == "full" else "other"] // sequence)
        assumed.append(f"--batch {count}seq")
        return count
    count = batch_of(text, sequence)
    if not text.strip().lower().endswith(("seq", "sequences")):
        assumed.append(f"--batch {text} is {count:,} sequences")
    return count


def _tokens(
    model: Model, asked: TrainInputs, sequence: int, batch: int, adapter: Adapter | None, assumed: list[str]
) -> float | None:
    """Return the tokens of the run, at least one step's; None if not given [token]."""
    tokens, compute = asked.tokens, asked.compute
    if tokens is not None and compute is not None:
        raise InputError(
            "--tokens and --compute both say how long to train; give one", argument="--compute", value=compute
        )
    if tokens is not None:
        chinchilla = tokens.strip().lower() == "chinchilla"
        amount = CHINCHILLA * model.total if chinchilla else units.parse_amount(tokens, "--tokens")
    elif compute is not None:
        plain = _plain(compute)
        work = units.parse_amount(compute, "--compute") if plain else units.parse(compute, "FLOP", "--compute")
        amount = work / sum(flops_per_token(model, sequence, adapter))
        assumed.append(f"--compute {compute} is {amount:,.0f} tokens")
    else:
        return None
    if amount < batch * sequence:
        flag = "--tokens" if tokens is not None else "--compute"
        raise UnitError(
            f"{flag}: {amount:,.0f} tokens are less than one step of {batch:,} sequences of {sequence:,}",
            argument=flag,
            value=tokens or compute,
        )
    return amount


def capacity_of(text: str | None, model: Model, imbalance: float, assumed: list[str]) -> float | None:
    """Return the expert capacity factor, None if experts drop no tokens [1]."""
    if text is None:
        return None
    if not mixtures(model):
        raise InputError(f"--capacity: {model.id} has no experts", argument="--capacity", value=text)
    value = units.parse_amount(text, "--capacity")
    most = min(moe.experts for moe in mixtures(model))
    if not 1.0 <= value <= most:
        raise UnitError(
            f"--capacity: {text} is not tokens of an expert over their mean: from 1, below which even use drops some, to the {most} experts",
            argument="--capacity",
            value=text,
        )
    least = f", at least {1.0 - value / imbalance:.0%} of the busiest rank's" if imbalance > value else ""
    assumed.append(
        f"experts padded to {value:g} of their mean tokens, what goes beyond is dropped{least} and not counted"
    )
    return value


def fabric_of(text: str | None) -> tuple[float, float] | None:
    """Return the devices of a pod and the taper between pods in a text such as ``pod=3072,taper=7``.

    >>> fabric_of("pod=3072,taper=7")
    (3072.0, 7.0)
    """
    if text is None:
        return None
    found = dict(part.strip().lower().split("=", 1) for part in text.split(",") if "=" in part)
    if set(found) != {"pod", "taper"} or len(text.split(",")) != len(found):
        raise InputError(
            f"--fabric: cannot read {text!r}; write the devices of a pod and how many of them share the rate of one"
            " beyond it: pod=3072,taper=7",
            argument="--fabric",
            value=text,
        )
    pod, taper = units.parse_count(found["pod"], "--fabric pod"), units.parse_amount(found["taper"], "--fabric taper")
    if taper < 1.0:
        raise UnitError(f"--fabric: a taper of {taper:g} is less than 1", argument="--fabric", value=text)
    return float(pod), taper


def imbalance_of(text: str | None, model: Model, assumed: list[str]) -> float:
    """Return the tokens of the busiest expert-parallel rank over the mean; 1, noted in `assumed`, if not given [1]."""
    if not mixtures(model):
        if text is not None:
            raise InputError(f"--imbalance: {model.id} has no experts", argument="--imbalance", value=text)
        return 1.0
    if text is None:
        assumed.append("experts evenly used, --imbalance 1")
        return 1.0
    value = units.parse_amount(text, "--imbalance")
    if not 1.0 <= value <= min(moe.experts for moe in mixtures(model)):
        raise UnitError(
            f"--imbalance: {text} is not tokens of the busiest rank over their mean: from 1 to the number of experts",
            argument="--imbalance",
            value=text,
        )
    return value


CHINCHILLA = 20.0
"""Compute-optimal tokens per parameter (Hoffmann et al. 2022, arXiv 2203.15556) [token]."""


def _plain(text: str) -> bool:
    try:
        float(text.replace("_", "").replace(",", ""))
    except ValueError:
        return False
    return True


def adapter_of(model: Model, method: str, rank: str | None, base: str | None) -> Adapter | None:
    """Return the adapter of a fine-tuning method, None if all weights are trained."""
    if method == "full":
        if rank is not None:
            raise InputError("--rank belongs to --method lora, qlora or dora", argument="--rank", value=rank)
        if base is not None:
            raise InputError("--base belongs to --method lora, qlora or dora", argument="--base", value=base)
        return None
    stored = base or ("bnb-nf4" if method == "qlora" else "bf16")
    try:
        element_bytes(stored)
    except KeyError:
        raise InputError(
            f"--base: no format {stored!r}",
            argument="--base",
            value=stored,
            nearest=nearest(stored, catalogue.formats()),
        ) from None
    if method == "qlora" and element_bytes(stored) >= 2.0:
        raise InputError(
            f"--base {stored}: qlora keeps its base in fewer bits; --method lora takes it as it is",
            argument="--base",
            value=stored,
        )
    width = units.parse_count(rank, "--rank") if rank else 16
    if width > model.hidden:
        raise InputError(
            f"--rank: {width:,} is more than the {model.hidden:,} columns of {model.id}", argument="--rank", value=rank
        )
    adapter = Adapter(method=method, rank=width, targets=ALL_PRODUCTS, stored=stored, bytes=ADAPTER_BYTES, dropout=True)
    if not trained_parameters(model, adapter):
        raise InputError(
            f"--method {method}: {model.id} has none of the products that an adapter is trained for: {', '.join(ALL_PRODUCTS)}",
            argument="--method",
            value=method,
        )
    return adapter


def machines_of(
    on: Sequence[str], job: Job, model: Model, framework: Framework, deadline: float | None, devices: int | None
) -> tuple[Machine, ...]:
    """Return the machines to search: those that the user named, else data-centre servers of the framework's vendors.

    Servers are tried from the smallest number of hosts that the states and the deadline need, then at round numbers
    above it, with at most `devices` devices.
    """
    if on:
        return tuple(m for text in on for m in machine(text))
    out = []
    for name in catalogue.ids("accelerators"):
        found = catalogue.accelerator(name)
        boxes = [s for s in catalogue.servers_of(name) if s.network and s.count == box_size(found)]
        if not boxes or found.geforce_licence or found.vendor not in framework.vendors or not catalogue.prices(name):
            continue
        peak = found.peak.get(job.precision)
        if peak is None or found.memory is None:
            continue
        each = boxes[-1].count
        least = _least_devices(job, model, peak.value, found.memory, deadline)
        sizes = round_counts(math.ceil(least / each - NEARLY), SLOWEST if deadline is not None else LARGEST)
        out += [machine(f"{name}:{n}x{each}")[0] for n in sizes if n * each <= (devices or MOST_DEVICES)]
    if not out and deadline is not None:
        raise NoPlan(
            f"no plan: deadline. at the dense peak no server of the catalogue meets it within {devices or MOST_DEVICES:,} devices",
            binding="deadline",
        )
    if not out:
        raise InputError(
            f"no server of the catalogue within {devices or MOST_DEVICES:,} devices: name a machine with --on",
            argument="--on",
        )
    return tuple(out)


def _least_devices(job: Job, model: Model, peak: float, memory: float, deadline: float | None) -> float:
    """Return the least devices whose memory holds the states and whose dense peak meets the deadline [1]."""
    frozen = 0.0 if job.adapter is None else element_bytes(job.adapter.stored)
    each = ACTIVATION_BYTES + job.gradient + job.optimizer.bytes if job.adapter is None else frozen
    least = model.total * each / memory
    if deadline is not None and job.tokens:
        least = max(least, sum(flops_per_token(model, job.sequence)) * job.tokens / (peak * deadline))
    return max(least, 1.0)


LARGEST, SLOWEST = 4, 16
"""Largest number of hosts to try over the smallest, if the user names no machine: without and with a deadline [1]."""

NEARLY = 1e-9
"""Tolerance for rounding in a number of hosts [1]."""

MOST_DEVICES = 131_072
"""Largest number of devices to try [1]."""


def round_counts(least: int, factor: int) -> list[int]:
    """Return the round numbers from a count to a multiple of it: 4, 5 and 6 times powers of two.

    >>> round_counts(3, 4), round_counts(33, 2)
    ([3, 4, 5, 6, 8, 10, 12], [40, 48, 64])
    """
    steps = {n << shift for n in (4, 5, 6) for shift in range(40)} | {1, 2, 3}
    return sorted(n for n in steps if max(least, 1) <= n <= factor * max(least, 1))


def _check_precision(found: Machine, job: Job, model: Model, framework: Framework) -> None:
    """Raise an error if a device lacks units for a number format, or a framework does not use it for experts."""
    peak = found.device.peak
    if mixtures(model) and framework.experts_in and job.precision not in framework.experts_in:
        raise UnsupportedFeature(
            f"--precision: {framework.id} multiplies experts in {' and '.join(framework.experts_in)}, not in {job.precision}",
            argument="--precision",
            value=job.precision,
        )
    if job.recipe == "mxfp8" and ("fp4" not in peak or found.device.device_class == "consumer"):
        raise InputError(
            f"--precision: {found.device.id} has no unit for mxfp8, whose scales its products would have to read; fp8 is scaled by tensor",
            code="unknown_precision",
            argument="--precision",
            value="mxfp8",
        )
    if job.precision not in peak:
        has = ", ".join(name for name in ("bf16", "fp16", "fp8", "fp4") if name in peak)
        raise InputError(
            f"--precision: {found.device.id} has no {job.precision} unit; it has {has or 'none in which models are trained: choose another device'}",
            code="unknown_precision",
            argument="--precision",
            value=job.precision,
        )


def request_of(model: Model, asked: TrainInputs) -> TrainingRequest:
    """Return the training request of given inputs, with every default filled in and listed.

    Parameters
    ----------
    model : model that is trained.
    asked : inputs of ``roofplan train``, as the user gave them.

    Returns
    -------
    Request with parsed quantities, machines and assumptions.

    Raises
    ------
    InputError : with the flag at fault.
    """
    assumed: list[str] = []
    model = unquantised(_language_model(model, assumed))
    framework = _framework(asked, assumed)
    job = job_of(model, framework, asked, assumed)
    deadline = None if asked.deadline is None else units.parse(asked.deadline, "s", "--deadline", example="30 d")
    budget = None if asked.budget is None else units.parse(asked.budget, "USD", "--budget")
    if job.tokens is None and (deadline is not None or budget is not None):
        flag = "--deadline" if deadline is not None else "--budget"
        raise InputError(
            f"{flag} needs a run: give --tokens or --compute", argument=flag, value=getattr(asked, flag[2:])
        )
    devices = None if asked.devices is None else units.parse_count(asked.devices, "--devices")
    presets, _ = catalogue.failures()
    failures = None if asked.failures is None else choice(asked.failures, presets, "--failures")
    place = asked.place.upper()
    if catalogue.carbon(place) is None:
        raise UnknownName(
            f"--place: no carbon intensity for {asked.place!r}; an ISO code of three letters, or WOR",
            argument="--place",
            value=asked.place,
        )
    machines = _joined(machines_of(asked.on, job, model, framework, deadline, devices), asked.fabric)
    if asked.precision is None and all("bf16" not in found.device.peak for found in machines):
        job = replace(job, precision="fp16")
        assumed.append("--precision fp16, for these devices have no bf16")
    for found in machines:
        _check_precision(found, job, model, framework)
    unstated = _unstated(asked, model, machines, assumed)
    return TrainingRequest(
        model=model,
        machines=machines,
        job=job,
        framework=framework,
        pins=pins_of(asked.strategy),
        deadline=deadline,
        budget=budget,
        devices=devices,
        any_size=not asked.on,
        price=asked.price,
        failures=failures,
        checkpoint=choice(asked.checkpoint, CHECKPOINTS, "--checkpoint"),
        policy=choice(asked.policy, POLICIES, "--policy"),
        best=choice(asked.best or ("time" if asked.on else "cost"), OBJECTIVES, "--best"),
        place=place,
        assumed=tuple(assumed),
        unstated=unstated,
    )


def _language_model(model: Model, assumed: list[str]) -> Model:
    """Return a model without the towers in front of its decoder, which are said in `assumed`; refuse one that is no single decoder."""
    if model.active is None or not model.generates:
        raise InputError(
            f"{model.id} is not a decoder: roofplan train plans decoders", argument="MODEL", value=model.id
        )
    decoder, others = model.decoder, [stack for stack in model.stacks if stack is not model.decoder]
    reads = any(
        isinstance(one, Attention) and one.cross is not None for kind, _ in decoder.kinds() for one in kind.mixers
    )
    if others and reads:
        raise InputError(
            f"{model.id} has {', '.join(s.role for s in model.stacks)}: roofplan train plans decoders alone",
            code="unsupported",
            argument="MODEL",
            value=model.id,
        )
    if not others:
        return model
    roles, left = " and ".join(dict.fromkeys(stack.role for stack in others)), sum(one.parameters for one in others)
    assumed.append(f"the language model alone: {left:,} parameters of its {roles} are left out")
    text = model.config.get("text_config")
    return replace(model, stacks=(decoder,), config=text if isinstance(text, dict) else model.config)


def _framework(asked: TrainInputs, assumed: list[str]) -> Framework:
    """Return the framework for the requested method; a profile used for other software is added to `assumed`."""
    method = choice(asked.method, METHODS, "--method")
    framework = framework_of(asked.framework, method, asked.on)
    other = _stand_in(asked.framework or "", method)
    assumed += [f"--framework {other.text}"] if other else []
    if method not in framework.methods:
        known = ", ".join(name for name in catalogue.ids("frameworks") if method in catalogue.framework(name).methods)
        raise InputError(
            f"--method: {framework.id} has no {method}; these have: {known}", argument="--method", value=method
        )
    return framework


def _joined(machines: tuple[Machine, ...], text: str | None) -> tuple[Machine, ...]:
    """Return the machines on the requested network."""
    fabric = fabric_of(text)
    if fabric is None:
        return machines
    if all(found.network is None for found in machines):
        raise InputError("--fabric: one host has no network", argument="--fabric", value=text)
    return tuple(tapered(found, *fabric) for found in machines)


def _unstated(asked: TrainInputs, model: Model, machines: Iterable[Machine], assumed: list[str]) -> tuple[str, ...]:
    """Return the inputs of `certainty.ALTERNATIVES` that the user left out.

    Networks of hosts without a named server are added to `assumed`.
    """
    uneven = asked.imbalance is None and bool(mixtures(model))
    sold = [(m, m.network) for m in machines if m.network is not None and m.named_server is None and not m.network_name]
    if asked.on:
        assumed += [f"{m.text}@{network.id}x{m.ports}, as it is sold" for m, network in sold]
    return tuple(name for name, counts in (("imbalance", uneven), ("network", sold)) if counts)


def floor_days(request: TrainingRequest, machine: Machine, precision: str) -> float | None:
    """Return the days of a run at the dense peak of its machine, a lower bound for any plan.

    Parameters
    ----------
    request : model and job, with the tokens to train on.
    machine : devices with their peaks.
    precision : number format of the matmuls.

    Returns
    -------
    Days, None if the job states no tokens [d].
    """
    if request.job.tokens is None:
        return None
    peak = machine.device.peak.get(precision) or machine.device.peak.get("fp16") or machine.device.peak["bf16"]
    work = sum(flops_per_token(request.model, request.job.sequence, request.job.adapter)) * request.job.tokens
    return math.inf if not peak.value else work / (peak.value * machine.count) / units.DAY
