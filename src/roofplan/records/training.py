"""A training job, how it is divided over devices, and the frameworks that run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from roofplan.laws import Number
from roofplan.records.engine import Kernels
from roofplan.records.source import Sourced


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """What an optimizer keeps of each parameter.

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
        """Bytes beside weight and gradient [B]."""
        return self.master + self.state


@dataclass(frozen=True, slots=True, kw_only=True)
class Unstated:
    """What a framework does where a run says nothing of it.

    Parameters
    ----------
    recompute, recompute_sharded : what is computed again, and what where weights are sharded.
    micro_batch : sequences of a micro-batch, None where a launch must give them [1].
    source : where its defaults stand.
    """

    recompute: str
    recompute_sharded: str
    micro_batch: float | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """One version of a training framework.

    Parameters
    ----------
    id : such as ``megatron-core-0.16``.
    lineage : whose code it runs, such as ``megatron-core``: from kin on the same architecture it borrows first.
    sharding : how it divides states over data-parallel ranks: ``distributed-optimizer``, ``none``, ``fsdp`` or ``zero``
        (data parallel alone).
    recomputes_part : whether a launch can say that some layers alone are computed again.
    longest_first : whether a run begins with its longest sample, beside which no gradients of earlier ones stand.
    stays_gathered : when sharded weights, once gathered, stay whole to the end of a step: ``never``, ``pipeline`` (with pipeline
        stages).
    attention : ``flash``, or ``eager`` where scores are written to memory.
    dropout : whether the layers apply dropout and keep its masks.
    overlaps : what runs beside compute: ``data`` reduce and gather, ``tensor`` collectives, or those of the backward pass alone
        (``tensor-backward``), ``expert`` exchanges, ``pipeline`` hops; ``once-per-host`` where a token goes to a host once.
    selective : modules that ``--recompute selective`` computes again.
    schedules : pipeline schedules that it runs; ``interleaved`` lets a rank hold several chunks of layers.
    zeros : ZeRO stages that it offers.
    even_layers : whether every chunk of a pipeline must hold as many layers.
    counts_ends : whether embedding and head can count as a layer each for that, where layers alone do not divide.
    divides : what it divides a model over beside data-parallel ranks: ``tp``, ``pp``, ``cp``, ``ep``.
    methods : of training that it knows: ``full``, ``lora``, ``qlora``, ``dora``.
    swaps : recomputations beside which it can keep activations in host memory, empty where it cannot; ``swaps_stages``
        whether it does so with pipeline stages too.
    offloads_optimizer : whether it can keep and update optimizer states in host memory.
    measured_memory : whether published runs of it state their memory.
    attention_rate : by architecture, the rate of its attention kernels over that of kernels written for it, where they are older [1].
    memory : numbers of the ledger, such as ``norm_kept`` [B] per element.
    flags : its launch flags by what they set.
    stands_for : software without a profile of its own that is planned as this one, empty for the framework itself.
    unstated : what it does where a run says nothing of it.
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
    stands_for: str = ""
    stays_gathered: str = "never"
    longest_first: bool = False
    recomputes_part: bool = False
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __hash__(self) -> int:
        """Return the hash of its id; those that differ under one id compare unlike."""
        return hash(self.id)

    @property
    def scopes(self) -> tuple[str, ...]:
        """What its constants are looked up under, the nearest first."""
        return (self.id, self.name, "training", "any")

    def scopes_on(self, architecture: str) -> tuple[str, ...]:
        """Return whose fitted constants hold, nearest first: this version here, its code anywhere, any framework here, any."""
        return (f"{self.id}/{architecture}", self.lineage, architecture, "any")

    @property
    def once_per_host(self) -> bool:
        """Whether a token bound for several experts of a host is sent there once."""
        return "once-per-host" in self.overlaps

    def attention_on(self, architecture: str) -> float:
        """Return the rate of its attention kernels over that of kernels written for an architecture, one where nothing is said [1]."""
        found = self.attention_rate.get(architecture)
        return 1.0 if found is None else found.value

    def keeps(self, name: str) -> float:
        """Return a number of the ledger."""
        return self.memory[name].value

    @property
    def gathered_apart(self) -> float:
        """Tensors of a layer that are gathered by themselves where weights are sharded, all together where nothing is said [1]."""
        return self.keeps("gathered_apart") if "gathered_apart" in self.memory else 1.0

    @property
    def whole_gradient(self) -> float:
        """Of an element of a sharded block with an adapter, the gradient that stays whole until it is synchronised, frozen or not [B]."""
        return self.keeps("whole_gradient") if "whole_gradient" in self.memory else 0.0

    @property
    def logits_stay(self) -> float:
        """Of a logit that a training loop still refers to in the backward pass [B]."""
        return self.keeps("logits_stay") if "logits_stay" in self.memory else 0.0

    @property
    def logits_divided(self) -> float:
        """Of a logit whose table is divided over tensor-parallel ranks, what the loss keeps; as undivided where nothing is said [B]."""
        return self.keeps("logits_kept_divided" if "logits_kept_divided" in self.memory else "logits_kept")

    @property
    def late_frees(self) -> float:
        """What the allocator holds over one that frees in order, where collectives on a stream of their own keep freed blocks from reuse [1]."""
        return self.keeps("late_frees") if "late_frees" in self.memory else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A small set of trained parameters beside frozen weights.

    Parameters
    ----------
    method : ``lora``, ``qlora``, ``dora``, ``adapter`` or ``adapter_v2``.
    rank : width of a low-rank update [1].
    targets : products that have one, by the last words of their names.
    stored : number format of the frozen products.
    bytes : of a trained parameter, its gradient and its optimizer state [B].
    dropout : whether an update drops some of its input and keeps the mask.
    scales : whether products' outputs and norms are scaled by trained numbers, which keeps what they scale.
    fused : whether products that a framework fuses share one update.
    fixed : trained parameters, where they do not follow from rank and targets [parameters].
    first : layers before the first that has any, which keep nothing; of the time nothing is taken off for them [1].
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
    """What is trained.

    Parameters
    ----------
    sequence : tokens of a sequence [token].
    batch : sequences of a step [1].
    tokens : tokens of the run, None for a step alone [token].
    recipe : how products in 8 bits are scaled where it matters to a launch, such as ``mxfp8``.
    precision : number format of the products; of 8 or 4 bits, their inputs and copies of their weights are kept so.
    gradient : bytes of an accumulated gradient [B].
    optimizer : what it keeps.
    adapter : what is trained instead of the weights, None where they are.
    imbalance : tokens of the busiest rank of experts over their mean [1].
    capacity : tokens that an expert takes over their mean, padded to as many, None where it takes all that come [1].
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
"""Parts of a layer that recomputation may be told to compute again."""

SCHEDULES = ("1f1b", "gpipe", "zb-h1", "dualpipe")
OFFLOADS = ("none", "optimizer", "weights", "activations")
DEGREES = ("tp", "pp", "cp", "dp", "ep", "micro_batch", "interleave", "zero")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a job is divided: Megatron's degrees, devices = tp pp cp dp; numbers may be arrays of equal shape, words may not.

    Parameters
    ----------
    tp, pp, cp, dp : tensor, pipeline, context and data-parallel ranks [1].
    ep : ranks that divide the experts, inside tp cp dp [1].
    micro_batch : sequences of a micro-batch [1].
    interleave : chunks of layers on each pipeline rank [1].
    zero : what data-parallel ranks divide: 0 nothing, 1 optimizer, 2 gradients too, 3 weights too [1].
    shard : data-parallel ranks that divide states between them and copy those of the others (HSDP), 0 for all of them [1].
    recompute : ``none``, ``selective``, ``full``, or modules joined by ``+`` that are computed again.
    recomputed : share of a stage's layers that recomputation is applied to [1].
    sequence_parallel : whether norms are divided along the sequence where tensors are.
    schedule : ``1f1b`` (interleaved where a rank has several chunks), ``gpipe``, ``zb-h1`` or ``dualpipe``.
    offload : what lies in host memory: ``none``, ``optimizer``, ``weights`` or ``activations``.
    imbalance, capacity : the job's [1].
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
        """Return the layout with some of its degrees, numbers or arrays, put in."""
        return replace(self, **degrees)

    def label(self) -> str:
        """Return such as ``tp8 pp2 dp32``."""
        names = ("tp", "cp", "pp", "dp", "ep")
        parts = [f"{name}{int(getattr(self, name))}" for name in names if int(getattr(self, name)) > 1]
        return " ".join(parts) or "one device"

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {name: int(getattr(self, name)) for name in DEGREES} | {
            "recompute": self.recompute,
            "recomputed": float(self.recomputed),
            "schedule": self.schedule,
            "shard": int(self.shard),
            "offload": self.offload,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePreset:
    """How often a job is interrupted.

    Parameters
    ----------
    rate : interruptions per device and second [1/s].
    ecc : whether its cards correct memory errors.
    source : of the rate.
    """

    id: str
    name: str
    ecc: bool
    rate: float
    source: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What an interruption costs beside lost work.

    Parameters
    ----------
    detect, restart : until it is noticed, and until the job runs again without its state [s].
    hardware : share of interruptions that take a host out until it is replaced [1].
    write : rate at which one host writes and reads a checkpoint [B/s].
    """

    detect: Sourced
    restart: Sourced
    hardware: Sourced
    write: Sourced
