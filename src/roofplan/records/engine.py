"""Serving engines as data, by version: memory semantics, scheduling defaults, valid parallel degrees and launch flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from roofplan.laws import Number, smaller
from roofplan.records.source import Sourced


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultRule:
    """Scheduling defaults for some devices; the first rule that matches is used.

    Parameters
    ----------
    minimum_memory, below_memory : bounds on the device's memory [B].
    below_tensor, minimum_tensor : bounds on the tensor-parallel degree [1].
    excluded : device families that the rule does not apply to.
    values : ``max_num_batched_tokens``, ``max_num_seqs`` and others.
    """

    values: Mapping[str, Sourced]
    minimum_memory: float = 0.0
    below_memory: float = float("inf")
    below_tensor: float = float("inf")
    minimum_tensor: float = 1.0
    excluded: tuple[str, ...] = ()

    def holds(self, device: str, memory: float, tensor: int) -> bool:
        """Return whether the rule applies to a device at a tensor-parallel degree."""
        if any(device.startswith(name) for name in self.excluded):
            return False
        return self.minimum_memory <= memory < self.below_memory and self.minimum_tensor <= tensor < self.below_tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Matrix-product and other kernels of an engine or framework.

    Parameters
    ----------
    smallest_tile, largest_tile : bounds of the row tile of a grouped product, which adapts to the rows per expert [1].
    vector_rows : rows up to which a product runs as matrix-vector products on the vector units, 0 for never [1].
    accumulator : accumulator of fp16 products where the device has a faster one than fp32.
    gguf : number format that GGUF blocks are multiplied in; None for the model's own 16 bits.
    unpacked : vendors on whose devices products of more than `unpack_rows` rows first dequantise their blocks to memory, in 16 bits.
    counted : vendors for which conversion and rescaling work of the kernels was counted.
    scores : memory traffic per attention score where attention is not fused, 0 if it always is [B].
    flash : whether attention is one fused kernel, which keeps its scores on the chip.
    scans : whether a recurrence loops over the tokens of a prompt one by one, instead of multiplying chunks of them.
    state_traffic : how often a step reads or writes the state of a recurrence [1].
    waits_for_blocks : whether tiled products of blocks read a tile and then compute with it, without loading the next meanwhile.
    converted, quantised : memory traffic of converting an input or output element of a product to 16 bits and back, or to the
        format that GGUF blocks are multiplied in [B].
    casts_fused : whether norms and activation functions write the inputs of 8- or 4-bit products directly; else a separate kernel casts.
    reads_per_head : whether decode attention reads the KV cache once per query head instead of once per KV head.
    elementwise : memory traffic between products over that of fused 16-bit kernels [1].
    layer_launches : kernels launched per layer in a prefill pass without a captured graph, dequantisation excluded [1].
    launches : kernels launched per kernel of an engine with fused kernels [1].
    tells_vendors : whether its constants differ by the vendor of a device, so that they hold on all of them.
    ahead : whether the host starts kernels ahead of the device, so that only launches longer than what they start take time.
    from_python : whether kernels of prompts are started one by one from Python, outside captured graphs and compiled programs.
    captured : vendors for whose devices it captures graphs, where it tells vendors apart.
    prompt_graphs : vendors for whose devices graphs hold steps with prompts too, attention aside.
    prompt_tokens, latent_prompt_tokens : tokens of the largest such step, and of that of a model with a latent cache [token].
    prompt_graphs_whole : whether they are captured only where all devices hold all layers, and attention is no data-parallel group.
    compiled : vendors for whose devices a step is one compiled program, without kernel launches from the host.
    peer_all_reduce : vendors for whose devices it has all-reduce kernels that read peer memory directly.
    launch_queue : launches that the device queue of the vendors `queued` holds before the host must wait, 0 where not known [1].
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
    flash: bool = True
    scans: bool = False
    state_traffic: float = 2.0
    waits_for_blocks: bool = False
    converted: float = 0.0
    quantised: float = 0.0
    casts_fused: bool = False
    reads_per_head: bool = False
    elementwise: float = 1.0
    layer_launches: float = 0.0
    launch_queue: float = 0.0
    queued: tuple[str, ...] = ()
    peer_all_reduce: tuple[str, ...] = ()
    captured: tuple[str, ...] = ()
    prompt_graphs: tuple[str, ...] = ()
    prompt_tokens: float = 0.0
    latent_prompt_tokens: float = 0.0
    prompt_graphs_whole: bool = False
    compiled: tuple[str, ...] = ()
    launches: float = 1.0
    tells_vendors: bool = False
    ahead: bool = False
    from_python: bool = False


class Software(Protocol):
    """Interface of engines and training frameworks to the timing laws."""

    @property
    def id(self) -> str:
        """Name with version."""

    @property
    def name(self) -> str:
        """Name without version."""

    @property
    def kernels(self) -> Kernels:
        """Kernels that it uses."""

    @property
    def scopes(self) -> tuple[str, ...]:
        """Scopes that its constants are looked up under, nearest first."""

    def scopes_on(self, architecture: str) -> tuple[str, ...]:
        """Return the scopes of its constants on an architecture, nearest first."""

    @property
    def stands_for(self) -> str:
        """Software without a profile of its own that this one stands in for, empty for itself."""

    @property
    def once_per_host(self) -> bool:
        """Whether a token bound for several experts of a host is sent there once."""


EAGER = "eager"
"""Scope of constants of software that launches kernels one by one from Python, engine or training framework."""

AHEAD = "ahead"
"""Scope of constants of engines whose scheduler prepares a step while the one before it runs."""

COMPILED = "compiled"
"""Scope of constants of devices on which a step is one compiled program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One version of a serving engine.

    Parameters
    ----------
    id : such as ``vllm-0.11``.
    name, version, released : the engine, its version, its month.
    memory_model : ``share-of-total`` takes a share of the card's memory first; ``reserve`` leaves a static
        reserve for everything but weights and cache; ``share-of-free`` takes a share of the memory
        left after weights; ``as-allocated`` allocates on demand.
    admission : ``as-it-goes`` counts the cache that a request holds, ``reserve`` the most that it may come to hold.
    block : tokens of a cache block [token].
    defaults : numbers by name.
    bench : defaults of its own benchmark tool, empty where it has none.
    bench_requests : requests that its makers send with that tool, by input and output length such as ``128/2048`` [1].
    rules : device-dependent numbers, first match wins.
    kernels : kernels that it uses.
    sequence_limit, budget_limit : whether its limit on running sequences, and that on the prompt tokens of a step, is per attention
        ``rank`` or per ``server``, whose ranks share it.
    latent_attention : whether it supports multi-head latent attention.
    latent_cached : whether it caches the latent vectors of multi-head latent attention, else the keys and values of every head.
    beside_experts : format of the other matrices in its files where a checkpoint quantises only experts, empty for unchanged.
    expert_groups : smallest size to which it halves quantisation groups of expert weights so that they divide a rank's width, None for never.
    experts_even : whether all expert ranks must hold equally many experts.
    slots_divide_context : whether slots divide the configured context among them, so that it must be a multiple of a request's.
    front_end_per_copy : whether every data-parallel copy has a front end of its own, instead of one for all.
    budget_holds_sequences : whether it refuses a token budget of a step below its limit of sequences.
    stands_for : software without a profile of its own that this one stands in for, empty for the engine itself.
    own_kernels : scope of the constants of that software's own kernels, empty where none are fitted.
    stated : settings that the user states, by the flag of the launch.
    static_batches : whether a batch starts together and ends with its longest answer.
    eager : whether Python launches every kernel one by one, without captured graphs.
    chunked_prefill : whether prompts are split to fit a step's token budget.
    mixed_steps : whether prompts and decoding sequences share a step; None where this follows `chunked_prefill`, as in vLLM.
    runtime : language of its scheduler, ``python`` or ``c++``, or ``ahead`` where a scheduler in Python prepares a step while the one
        before it runs; it determines the host time per sequence.
    pipeline_kind : ``microbatch`` keeps all stages busy, ``layer-split`` uses one device at a time.
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
    static_batches: bool = False
    eager: bool = False
    stands_for: str = ""
    own_kernels: str = ""
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
    budget_limit: str = "rank"
    experts_even: bool = False
    expert_groups: Sourced | None = None
    latent_cached: bool = True
    beside_experts: str = ""
    slots_divide_context: bool = False
    front_end_per_copy: bool = False
    budget_holds_sequences: bool = False
    tensor: bool = True
    weights: tuple[str, ...] = ()
    kv: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)
    stated: Mapping[str, float] = field(default_factory=dict)
    kv_names: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def default(self, name: str, device: str, memory: float, tensor: int = 1) -> Sourced | None:
        """Return the default `name` on a device of `memory` bytes, None where the engine sets none."""
        for rule in self.rules:
            if rule.holds(device, memory, tensor):
                for key in (name, f"{name}_server"):
                    if key in rule.values:
                        return rule.values[key]
        return self.defaults.get(name, self.defaults.get(f"{name}_server"))

    def front_ends(self, copies: int) -> int:
        """Return the front ends that read requests for so many data-parallel copies [1]."""
        return copies if self.front_end_per_copy else 1

    def pass_tokens(self, budget: Number) -> Number:
        """Return the prompt tokens that pass the layers together, given a step's `budget`: the micro-batch where the engine has one [token]."""
        smallest = self.defaults.get("micro_batch")
        return budget if smallest is None else smaller(budget, smallest.value)

    def __hash__(self) -> int:
        """Return the hash of the id; engines that differ under one id compare unequal."""
        return hash(self.id)

    @property
    def mixes(self) -> bool:
        """Whether prompts and decoding sequences share a step."""
        return self.chunked_prefill if self.mixed_steps is None else self.mixed_steps

    @property
    def scopes(self) -> tuple[str, ...]:
        """Scopes of constants, nearest first: this version, the engine, engines with the same scheduler language, any.

        An engine without captured graphs shares no constants with the engine itself, but with software that launches eagerly from Python;
        one that schedules ahead shares those of its host with others that do, before those of its own earlier releases.
        """
        if self.eager:
            return (self.id, EAGER, "any")
        return (
            (self.id, AHEAD, self.name, "any") if self.runtime == AHEAD else (self.id, self.name, self.runtime, "any")
        )

    def scopes_on(self, architecture: str) -> tuple[str, ...]:
        """Return the scopes of its constants on an architecture, nearest first."""
        return (f"{self.id}/{architecture}", *self.scopes)

    @property
    def once_per_host(self) -> bool:
        """Whether a token bound for several experts of a host is sent there once."""
        return False

    def standing_for(self, name: str, *, kernels: str, vendors: tuple[str, ...], reads: tuple[str, ...]) -> Engine:
        """Return the engine as the profile of other software, with what is known of that: kernels, vendors of devices and formats.

        Where its vendors are known, the architectures that the profile's own releases left behind say nothing of it.
        """
        return replace(
            self,
            stands_for=name,
            own_kernels=kernels,
            vendors=vendors or self.vendors,
            excluded_architectures=() if vendors else self.excluded_architectures,
            weights=reads or self.weights,
        )

    @property
    def called(self) -> str:
        """Its id, after the name of the software that it stands in for."""
        return f"{self.stands_for}, planned as {self.id}," if self.stands_for else self.id

    def launched(self, settings: Mapping[str, Sourced]) -> Engine:
        """Return the engine with command-line settings in place of its defaults."""
        if not settings:
            return self
        stated = DefaultRule(values=settings)
        reserve = {} if "memory_share" in settings else self.reserve
        defaults = {**self.defaults, **settings}
        rules = tuple(_without_base(rule) if "memory_share" in settings else rule for rule in self.rules)
        return replace(self, rules=(stated, *rules), defaults=defaults, reserve=reserve)


def _without_base(rule: DefaultRule) -> DefaultRule:
    """Return a rule without the fixed reserve, which a stated share of the memory replaces."""
    return replace(rule, values={key: value for key, value in rule.values.items() if not key.startswith("reserve_")})
