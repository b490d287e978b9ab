"""Serving engines as data: memory semantics, scheduling defaults, legal splits, launch flags, by version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from roofplan.laws import Number, smaller
from roofplan.records.source import Sourced


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultRule:
    """Scheduling defaults that hold for some devices; the first rule that matches is used.

    Parameters
    ----------
    minimum_memory, below_memory : bounds on the device's memory [B].
    below_tensor, minimum_tensor : tensor-parallel degrees for which it holds [1].
    excluded : device families that the rule passes over.
    values : ``max_num_batched_tokens``, ``max_num_seqs`` and others.
    """

    values: Mapping[str, Sourced]
    minimum_memory: float = 0.0
    below_memory: float = float("inf")
    below_tensor: float = float("inf")
    minimum_tensor: float = 1.0
    excluded: tuple[str, ...] = ()

    def holds(self, device: str, memory: float, tensor: int) -> bool:
        """Return whether the rule speaks of this device."""
        if any(device.startswith(name) for name in self.excluded):
            return False
        return self.minimum_memory <= memory < self.below_memory and self.minimum_tensor <= tensor < self.below_tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Which kernels an engine multiplies with.

    Parameters
    ----------
    smallest_tile, largest_tile : bounds of the row tile of a grouped product; it follows the rows of an expert [1].
    vector_rows : rows up to which a product runs as matrix-vector on the vector units, 0 for never [1].
    accumulator : accumulator of fp16 products where the device offers a faster one than fp32.
    gguf : number format that GGUF blocks are multiplied in; None for the model's own 16 bits.
    unpacked : vendors on whose devices products of more than `unpack_rows` rows first unpack their blocks to memory, in 16 bits.
    counted : vendors for whose kernels conversions and rescaling were counted.
    scores : traffic of an attention score where scores are written to memory, 0 for fused kernels [B].
    converted, quantised : traffic of bringing an input or output element of a product into 16 bits and back, or into the
        format that GGUF blocks are multiplied in [B].
    casts_fused : whether norms and activation functions write what products in 8 or 4 bits read; else a kernel of its own does.
    reads_per_head : whether decode attention reads the cache once for each query head, not once for all that share its keys.
    elementwise : traffic between products over that of fused 16-bit kernels [1].
    layer_launches : kernels that a pass of prompts launches for a layer, unpacking aside, where it uses no captured graph [1].
    launches : kernels that it starts for each one of an engine whose kernels are fused [1].
    compiled : vendors for whose devices a step is one compiled program, whose kernels no host starts.
    peer_all_reduce : vendors for whose devices it has all-reduce kernels that read the memory of peers at once.
    launch_queue : launches that the queue of a device of the vendors `queued` holds before the host must wait, 0 where not known [1].
    """

    smallest_tile: float
    largest_tile: float
    vector_rows: float = 0.0
    accumulator: str = "fp32"
    gguf: str | None = None
    unpacked: tuple[str, ...] = ()
    unpack_rows: float = 0.0
    counted: tuple[str, ...] = ()
    scores: float = 0.0
    converted: float = 0.0
    quantised: float = 0.0
    casts_fused: bool = False
    reads_per_head: bool = False
    elementwise: float = 1.0
    layer_launches: float = 0.0
    launch_queue: float = 0.0
    queued: tuple[str, ...] = ()
    peer_all_reduce: tuple[str, ...] = ()
    compiled: tuple[str, ...] = ()
    launches: float = 1.0


class Software(Protocol):
    """What the laws of time ask of an engine or a training framework."""

    @property
    def id(self) -> str:
        """Name with its version."""

    @property
    def name(self) -> str:
        """Name alone."""

    @property
    def kernels(self) -> Kernels:
        """Kernels that it multiplies with."""

    @property
    def scopes(self) -> tuple[str, ...]:
        """What its constants are looked up under, the nearest first."""

    def scopes_on(self, architecture: str) -> tuple[str, ...]:
        """Return what its constants on an architecture are looked up under, the nearest first."""

    @property
    def stands_for(self) -> str:
        """Software without a profile of its own that is planned as this one, empty for itself."""

    @property
    def once_per_host(self) -> bool:
        """Whether a token bound for several experts of a host is sent there once."""


EAGER = "eager"
"""Scope of constants of whatever launches kernels from Python one by one, be it an engine or a training framework."""

COMPILED = "compiled"
"""Scope of constants of devices on which a step is one compiled program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One version of a serving engine.

    Parameters
    ----------
    id : such as ``vllm-0.11``.
    name, version, released : the engine, its version, its month.
    memory_model : ``share-of-total`` takes its share of the card first; ``reserve`` leaves a static
        reserve for all but weights and cache; ``share-of-free`` takes a share of what is
        left after weights; ``as-allocated`` allocates as it goes.
    admission : ``as-it-goes`` charges what a request holds, ``reserve`` what it may come to hold.
    block : tokens of a cache block [token].
    defaults : numbers by name.
    bench : what its own benchmark tool sets where nothing is stated, empty where it has none.
    bench_requests : by input and output length, such as ``128/2048``, the requests that its makers send with that tool [1].
    rules : device-dependent numbers, first match wins.
    kernels : which kernels it multiplies with.
    sequence_limit : whether its limit of running sequences holds for each attention ``rank`` or for the whole ``server``.
    latent_attention : whether it runs multi-head latent attention.
    beside_experts : format in which its files hold the matrices that a checkpoint of converted experts leaves alone, empty for as they are.
    expert_groups : to how few entries it halves the groups of experts' weights so that they divide a rank's width, None where it does not.
    experts_even : whether expert ranks must hold equal numbers of experts.
    slots_divide_context : whether each slot may use only its share of the context, so that it must be asked for as often.
    stands_for : software without a profile of its own that is planned as this one, empty for the engine itself.
    eager : whether Python launches every kernel as it comes to it, without captured graphs.
    chunked_prefill : whether prompts are cut to what is left of a step's budget.
    mixed_steps : whether prompts and decoding sequences share a step; None where it goes with chunks, as in vLLM.
    runtime : language of what schedules its steps, ``python`` or ``c++``, which decides what a sequence costs the host.
    pipeline_kind : ``microbatch`` keeps all stages busy, ``layer-split`` is one group that uses one device at a time.
    """

    id: str
    name: str
    version: str
    released: str
    newest: bool
    vendors: tuple[str, ...]
    memory_model: str
    admission: str
    block: float
    defaults: Mapping[str, Sourced]
    memory: Mapping[str, Sourced]
    kernels: Kernels
    reserve: Mapping[str, Sourced] = field(default_factory=dict)
    bench: Mapping[str, Sourced] = field(default_factory=dict)
    bench_requests: Mapping[str, Sourced] = field(default_factory=dict)
    rules: tuple[DefaultRule, ...] = ()
    excluded_architectures: tuple[str, ...] = ()
    chunked_prefill: bool = True
    mixed_steps: bool | None = None
    eager: bool = False
    stands_for: str = ""
    runtime: str = "python"
    graphs_counted: bool = False
    pipeline: bool = True
    pipeline_kind: str = "microbatch"
    data: bool = True
    expert: bool = True
    expert_identity: str = "tp*dp"
    latent_attention: bool = True
    data_attention: bool = False
    data_attention_degrees: str = "divisors"
    sequence_limit: str = "rank"
    experts_even: bool = False
    expert_groups: Sourced | None = None
    beside_experts: str = ""
    slots_divide_context: bool = False
    tensor: bool = True
    weights: tuple[str, ...] = ()
    kv: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)
    kv_names: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def default(self, name: str, device: str, memory: float, tensor: int = 1) -> Sourced | None:
        """Return the default `name` on a device of `memory` bytes, or None where the engine sets none."""
        for rule in self.rules:
            if rule.holds(device, memory, tensor):
                for key in (name, f"{name}_server"):
                    if key in rule.values:
                        return rule.values[key]
        return self.defaults.get(name, self.defaults.get(f"{name}_server"))

    def pass_tokens(self, budget: Number) -> Number:
        """Return the prompt tokens that pass the layers together, of a step's `budget`: its micro-batch where it has one [token]."""
        smallest = self.defaults.get("micro_batch")
        return budget if smallest is None else smaller(budget, smallest.value)

    def __hash__(self) -> int:
        """Return the hash of its id; those that differ under one id compare unlike."""
        return hash(self.id)

    @property
    def mixes(self) -> bool:
        """Whether prompts and decoding sequences share a step."""
        return self.chunked_prefill if self.mixed_steps is None else self.mixed_steps

    @property
    def scopes(self) -> tuple[str, ...]:
        """Scopes of constants: this version, the engine's present, engines whose host code is in the same language, then any.

        Without captured graphs it is no kin of the engine's present, but of whatever launches from Python.
        """
        return (self.id, EAGER, "any") if self.eager else (self.id, self.name, self.runtime, "any")

    def scopes_on(self, architecture: str) -> tuple[str, ...]:
        """Return what its constants on an architecture are looked up under, the nearest first."""
        return (f"{self.id}/{architecture}", *self.scopes)

    @property
    def once_per_host(self) -> bool:
        """Whether a token bound for several experts of a host is sent there once."""
        return False

    def launched(self, settings: Mapping[str, Sourced]) -> Engine:
        """Return the engine with settings of its command line in place of its defaults."""
        if not settings:
            return self
        stated = DefaultRule(values=settings)
        reserve = {} if "memory_share" in settings else self.reserve
        rules = tuple(_without_base(rule) if "memory_share" in settings else rule for rule in self.rules)
        return replace(self, rules=(stated, *rules), reserve=reserve)


def _without_base(rule: DefaultRule) -> DefaultRule:
    """Return a rule without the fixed reserve, which a stated share of the memory replaces."""
    return replace(rule, values={key: value for key, value in rule.values.items() if not key.startswith("reserve_")})
