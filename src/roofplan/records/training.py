"""Training jobs, their division over devices, and the frameworks that run them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from roofplan.laws import Number
from roofplan.records.engine import Kernels
from roofplan.records.source import Sourced


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """Memory that an optimizer keeps per parameter.

    Parameters
    ----------
    master : fp32 copy of a weight that is trained in 16 bits or less [B].
    state : moments [B].
    weight : the trained weight itself where it has no fp32 copy [B].
    """

    id: str
    name: str
    master: float
    state: float
    source: str
    weight: float = 2.0
    notes: tuple[str, ...] = ()

    @property
    def bytes(self) -> float:
        """Bytes per parameter besides weight and gradient [B]."""
        return self.master + self.state


@dataclass(frozen=True, slots=True, kw_only=True)
class Unstated:
    """Defaults of a framework for what a run does not state.

    Parameters
    ----------
    recompute, recompute_sharded : what is recomputed, in general and with sharded weights.
    recompute_quantised : what is recomputed beside frozen weights of few bits, empty where that is no other.
    micro_batch : sequences of a micro-batch, None where a launch must state them [1].
    source : source of the defaults.
    whose_recompute, whose_micro_batch : software whose defaults they are, empty for the profile's own.
    """

    recompute: str
    recompute_sharded: str
    micro_batch: float | None
    source: str
    recompute_quantised: str = ""
    whose_recompute: str = ""
    whose_micro_batch: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """One version of a training framework.

    Parameters
    ----------
    id : such as ``megatron-core-0.16``.
    lineage : code base, such as ``megatron-core``, whose constants on any architecture it borrows first.
    sharding : how it shards states over data-parallel ranks: ``distributed-optimizer``, ``none``, ``fsdp`` or ``zero``
        (data parallel alone).
    recomputes_part : whether a launch can limit recomputation to some layers.
    longest_first : whether a run begins with its longest sample, before any accumulated gradients exist.
    stays_gathered : when gathered weights stay unsharded to the end of a step: ``never`` or ``pipeline`` (with pipeline
        stages).
    attention : ``flash``, or ``eager`` where scores are written to memory.
    dropout : whether the layers apply dropout and keep its masks.
    overlaps : what overlaps compute: ``data`` reduce and gather, ``tensor`` collectives, or only those of the backward pass
        (``tensor-backward``), ``expert`` exchanges, ``pipeline`` hops; ``once-per-host`` where a token is sent to a host once.
    selective : modules that selective recomputation recomputes.
    schedules : pipeline schedules that it supports; ``interleaved`` allows several chunks of layers per rank.
    zeros : ZeRO stages that it supports.
    even_layers : whether all chunks of a pipeline must have equally many layers.
    counts_ends : whether embedding and head can each count as a layer for that, where the layers alone do not divide evenly.
    divides : kinds of model parallelism that it supports: ``tp``, ``pp``, ``cp``, ``ep``.
    experts_in : number formats that it multiplies grouped experts in, empty where it takes any.
    methods : training methods that it supports: ``full``, ``lora``, ``qlora``, ``dora``.
    swaps : recomputation modes with which it can offload activations to host memory, empty where it cannot; ``swaps_stages``
        whether it can also do so with pipeline stages.
    offloads_optimizer : whether it can store and update optimizer states in host memory.
    measured_memory : whether published runs state its memory.
    attention_rate : by architecture, rate of its attention kernels relative to kernels written for that architecture, where they are older [1].
    memory : numbers of the memory ledger, such as ``norm_kept`` [B] per element.
    flags : launch flags by what they set.
    stands_for : software without a profile of its own that this one stands in for, empty for the framework itself.
    untuned : whether that software is slower code of its own, which only divides a model as this framework does.
    unstated : defaults for what a run does not state.
    """

    id: str
    name: str
    lineage: str
    version: str
    released: str
    newest: bool
    vendors: tuple[str, ...]
    sharding: str
    attention: str
    dropout: bool
    overlaps: tuple[str, ...]
    selective: tuple[str, ...]
    schedules: tuple[str, ...]
    zeros: tuple[int, ...]
    even_layers: bool
    counts_ends: bool
    divides: tuple[str, ...]
    methods: tuple[str, ...]
    swaps: tuple[str, ...]
    swaps_stages: bool
    offloads_optimizer: bool
    measured_memory: bool
    memory: Mapping[str, Sourced]
    kernels: Kernels
    unstated: Unstated
    attention_rate: Mapping[str, Sourced] = field(default_factory=dict)
    gradient: str = "fp32"
    experts_in: tuple[str, ...] = ()
    stands_for: str = ""
    untuned: bool = False
    stays_gathered: str = "never"
    longest_first: bool = False
    recomputes_part: bool = False
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def standing_for(self, name: str, *, untuned: bool, unstated: Unstated) -> Framework:
        """Return the profile as it stands in for other software: slower code of its own, and its defaults."""
        return replace(self, stands_for=name, untuned=untuned, unstated=unstated)

    @property
    def has_fused_loss(self) -> bool:
        """Whether a loss that writes no logits is described, beside its own."""
        return "logits_kept_fused" in self.memory

    def with_fused_loss(self) -> Framework:
        """Return the framework with a loss that is computed by chunks together with the head, and writes no logits."""
        return self._otherwise("_fused")

    def uncompiled(self) -> Framework:
        """Return the framework with kernels as PyTorch starts them, where its own are described as made by torch.compile."""
        return self._otherwise("_uncompiled")

    def _otherwise(self, ending: str) -> Framework:
        """Return the framework with every quantity that another of the same name and this ending replaces."""
        other = {name.removesuffix(ending): value for name, value in self.memory.items() if name.endswith(ending)}
        return replace(self, memory={**self.memory, **other})

    def __hash__(self) -> int:
        """Return the hash of the id; frameworks that differ under one id compare unequal."""
        return hash(self.id)

    @property
    def scopes(self) -> tuple[str, ...]:
        """Scopes that its constants are looked up under, nearest first."""
        return (self.id, self.name, "training", "any")

    def scopes_on(self, architecture: str) -> tuple[str, ...]:
        """Return the scopes of constants on an architecture, nearest first: this version there, its code base, any framework there, any."""
        return (f"{self.id}/{architecture}", self.lineage, architecture, "any")

    def stages_on(self, devices: int) -> tuple[int, ...]:
        """Return the ZeRO stages that it supports on a number of devices.

        A framework that always shards weights runs a single device without sharding; its stage 3 remains for the
        offload of weights.
        """
        return (0, *self.zeros) if devices == 1 and 0 not in self.zeros and 3 in self.zeros else self.zeros

    @property
    def once_per_host(self) -> bool:
        """Whether a token bound for several experts of a host is sent there once."""
        return "once-per-host" in self.overlaps

    def attention_on(self, architecture: str) -> float:
        """Return the rate of its attention kernels relative to kernels written for an architecture, one where not stated [1]."""
        found = self.attention_rate.get(architecture)
        return 1.0 if found is None else found.value

    def keeps(self, name: str) -> float:
        """Return a number of the memory ledger."""
        return self.memory[name].value

    @property
    def gathered_apart(self) -> float:
        """Separately gathered tensors per layer with sharded weights; one, all together, where not stated [1]."""
        return self.keeps("gathered_apart") if "gathered_apart" in self.memory else 1.0

    @property
    def whole_gradient(self) -> float:
        """Bytes of unsharded gradient per element of a sharded block with an adapter, until it is synchronised, frozen elements included [B]."""
        return self.keeps("whole_gradient") if "whole_gradient" in self.memory else 0.0

    @property
    def logits_stay(self) -> float:
        """Bytes per logit that a training loop keeps referenced in the backward pass [B]."""
        return self.keeps("logits_stay") if "logits_stay" in self.memory else 0.0

    @property
    def logits_divided(self) -> float:
        """Bytes per logit that the loss keeps where the head is split over tensor-parallel ranks; as without a split where not stated [B]."""
        return self.keeps("logits_kept_divided" if "logits_kept_divided" in self.memory else "logits_kept")

    @property
    def late_frees(self) -> float:
        """Allocator memory over that of in-order frees, where collectives on their own stream delay the reuse of freed blocks [1]."""
        return self.keeps("late_frees") if "late_frees" in self.memory else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A small set of trained parameters beside frozen weights.

    Parameters
    ----------
    method : ``lora``, ``qlora``, ``dora``, ``adapter`` or ``adapter_v2``.
    rank : width of a low-rank update [1].
    targets : matrix products with an update, by the last part of their names.
    stored : number format of the frozen weights.
    bytes : bytes of a trained parameter with its gradient and optimizer state [B].
    dropout : whether updates apply dropout to their input and keep the mask.
    scales : whether outputs of products and norms are scaled by trained numbers, so that these outputs are kept.
    fused : whether products fused by a framework share one update.
    fixed : trained parameters where they do not follow from rank and targets [parameters].
    first : layers before the first adapted one, which keep no activations; step time is not reduced for them [1].
    """

    method: str
    rank: int = 8
    targets: tuple[str, ...] = ("q_proj", "v_proj")
    stored: str = "bf16"
    bytes: float = 8.0
    dropout: bool = True
    scales: bool = False
    fused: bool = False
    fixed: float | None = None
    first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training job.

    Parameters
    ----------
    sequence : sequence length [token].
    batch : batch size, in sequences [1].
    tokens : tokens of the run, None for a single step [token].
    recipe : scaling recipe of 8-bit products where a launch must name it, such as ``mxfp8``.
    precision : number format of the matrix products; with 8 or 4 bits, their inputs and copies of their weights are kept in it.
    gradient : bytes of an accumulated gradient [B].
    optimizer : the optimizer.
    adapter : adapter that is trained instead of the weights, None for full training.
    imbalance : tokens of the busiest expert rank over the mean [1].
    capacity : capacity factor: tokens per expert over the mean, padded to that number; None where no tokens are dropped [1].
    """

    sequence: int
    batch: int
    optimizer: Optimizer
    tokens: float | None = None
    precision: str = "bf16"
    recipe: str = ""
    gradient: float = 4.0
    adapter: Adapter | None = None
    imbalance: float = 1.0
    capacity: float | None = None


RECOMPUTES = ("none", "selective", "full")
MODULES = (
    *("layernorm", "rotary", "core_attn", "attn_proj", "mla_up_proj", "mlp_input", "mlp_act", "moe", "moe_act"),
    *("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "shared_experts_act"),
)
"""Modules of a layer that recomputation can name."""

SCHEDULES = ("1f1b", "gpipe", "zb-h1", "dualpipe")
OFFLOADS = ("none", "optimizer", "weights", "activations")
DEGREES = ("tp", "pp", "cp", "dp", "ep", "micro_batch", "interleave", "zero")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Division of a job over devices by Megatron's degrees, devices = tp pp cp dp; numbers may be arrays of equal shape, words may not.

    Parameters
    ----------
    tp, pp, cp, dp : tensor-, pipeline-, context- and data-parallel ranks [1].
    ep : ranks that split the experts, inside tp cp dp [1].
    micro_batch : sequences of a micro-batch [1].
    interleave : chunks of layers on each pipeline rank [1].
    zero : what data-parallel ranks shard: 0 nothing, 1 optimizer states, 2 gradients too, 3 weights too [1].
    shard : data-parallel ranks that states are sharded over, replicated across the other ranks (HSDP), 0 for all of them [1].
    recompute : ``none``, ``selective``, ``full``, or modules joined by ``+`` that are recomputed.
    recomputed : share of a stage's layers that are recomputed [1].
    sequence_parallel : whether norms are split along the sequence where tensors are split.
    schedule : ``1f1b`` (interleaved where a rank has several chunks), ``gpipe``, ``zb-h1`` or ``dualpipe``.
    offload : what lies in host memory: ``none``, ``optimizer``, ``weights`` or ``activations``.
    imbalance, capacity : as of the job [1].
    """

    tp: Number = 1
    pp: int = 1
    cp: Number = 1
    dp: Number = 1
    ep: Number = 1
    micro_batch: Number = 1
    interleave: int = 1
    zero: int = 0
    shard: Number = 0.0
    recompute: str = "none"
    recomputed: Number = 1.0
    sequence_parallel: bool = True
    schedule: str = "1f1b"
    offload: str = "none"
    imbalance: float = 1.0
    capacity: float | None = None

    def with_degrees(self, degrees: Mapping[str, Any]) -> Layout:
        """Return the layout with some of its degrees, numbers or arrays, replaced."""
        return replace(self, **degrees)

    def label(self) -> str:
        """Return a label such as ``tp8 pp2 dp32``."""
        names = ("tp", "cp", "pp", "dp", "ep")
        parts = [f"{name}{int(getattr(self, name))}" for name in names if int(getattr(self, name)) > 1]
        return " ".join(parts) or "one device"

    @property
    def recomputation(self) -> str:
        """What is recomputed, as text: ``recompute full in 25% of layers``."""
        part = "" if float(self.recomputed) == 1.0 else f" in {float(self.recomputed):.0%} of layers"
        return f"recompute {self.recompute}{part}"

    def as_dict(self) -> dict[str, Any]:
        """Return degrees and options as plain values."""
        return {name: int(getattr(self, name)) for name in DEGREES} | {
            "recompute": self.recompute,
            "recomputed": float(self.recomputed),
            "schedule": self.schedule,
            "shard": int(self.shard),
            "offload": self.offload,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePreset:
    """A rate of interruptions.

    Parameters
    ----------
    rate : interruptions per device and second [1/s].
    ecc : whether its cards correct memory errors.
    source : source of the rate.
    """

    id: str
    name: str
    ecc: bool
    rate: float
    source: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Costs of an interruption besides lost work.

    Parameters
    ----------
    detect, restart : time until it is noticed, and until the job runs again without its state [s].
    hardware : share of interruptions that take a host out until it is replaced [1].
    write : rate at which one host writes and reads a checkpoint [B/s].
    """

    detect: Sourced
    restart: Sourced
    hardware: Sourced
    write: Sourced
