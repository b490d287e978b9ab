"""Tables of operations: each row is one kernel or message of one rank in one step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from roofplan import catalogue
from roofplan.catalogue import format_entry
from roofplan.laws import Number, larger, matmul, memory, parameters
from roofplan.records.model import Attention, Group, LatentAttention, Linear, Model, Recurrence
from roofplan.records.strategy import Strategy
from roofplan.records.terms import NONE, Numbers

ACTIVATION_BYTES = 2.0
"""Bytes of an activation: serving keeps activations in 16 bits between matmuls [B]."""


STEP_KERNELS = {"attention": 2.0, "latent attention": 3.0, "state update": 3.0, "experts": 7.0, "sampling": 6.0}
"""Kernel launches of an operation. Attention: rotary and cache write (one expansion more for a latent cache).
Recurrence: convolution, scan and gate. MoE: top-k, count, sort, two grouped GEMMs, activation and sum. Sampler: penalties,
top-k, top-p, softmax, draw and copy. These are estimates from the structure of such layers, not from a trace; the
fitted gap between kernels absorbs the error, and how many more those of `EXTRA_KERNELS` launch is fitted too [1]."""

ROUTED_EXPERTS, STATE_UPDATE = "routed experts", "state update"
EXTRA_KERNELS = (ROUTED_EXPERTS, STATE_UPDATE)
"""Operations that launch more kernels than their structure tells: permutations, scales, norms and copies."""


GATED_PASSES = 1.5
"""Traffic of a gated activation function over the size of its input: two halves read, one half written [1]."""


HANDOVER = "handover"
"""Kind of an operation that reads the output of the kernel before it."""


ROUTING_PASSES = 6.0
"""Passes over the rows of routed experts around their products, an estimate: they are gathered, permuted and summed, each read and
written; fused kernels need fewer, separate ones for each step more [1]."""


class Operation(NamedTuple):
    """One kernel or message of one rank.

    Parameters
    ----------
    name, kind : name, and one of the kinds matmul, low_rank, experts, prefill_attention, decode_attention, scores,
        memory, handover (memory traffic that the last-level cache may serve), all_reduce, gather, exchange, ring.
    work : operations [FLOP].
    traffic : bytes read from and written to memory, or the message size of a collective [B].
    compute : number format of the tensor unit; ``gguf`` for blocks that the engine multiplies in its own type.
    entries : weights that a matmul reads [1].
    rows : rows of a matmul; of one expert if it is grouped [1].
    stored : format of the weights.
    converted : elements read and written by a fused matmul if each of its matrices converts its inputs separately [1].
    kernels : kernel launches [1].
    ranks : ranks of a collective [1].
    groups : expert groups of the router, and how many of them one token may use [1].
    inputs : input elements that matmuls read; a fused matmul reads its input once [1].
    among : process group of a message: ``tensor``, ``context`` or ``expert``.
    beside : whether the message may overlap the matmuls of its pass.
    text, numbers : formula, and its numbers by name, each a number or a pair (number, unit).
    role : relation to a matmul: ``cast`` of its inputs, ``unpack`` or ``norm`` of its weights, ``entering`` for a
        message that gathers its inputs, ``attention`` for attention's own matmuls, ``scan`` for a loop over a prompt's tokens.
    width : width of an expert; of prompts' attention, the keys that a query sees on average [1].
    extra : one of `EXTRA_KERNELS` whose fitted kernels it launches besides `kernels`, empty for none.
    makes : for each of its outputs in training the modules of `activations.Kept` that it is a tensor of.
    """

    name: str
    kind: str
    work: Number
    traffic: Number
    compute: str = "bf16"
    entries: Number = 0.0
    rows: Number = 0.0
    stored: str = "bf16"
    converted: Number = 0.0
    kernels: float = 1.0
    ranks: Number = 1.0
    text: str = ""
    numbers: Numbers = NONE
    groups: tuple[int, int] = (1, 1)
    inputs: Number = 0.0
    among: str = "tensor"
    beside: bool = False
    role: str = ""
    width: Number = 0.0
    extra: str = ""
    makes: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The tokens of one step of one attention group; fields may be arrays.

    Parameters
    ----------
    sequences : decoding sequences [1].
    each : tokens per decoding sequence, more than one when verifying drafts [1].
    context : cached tokens per decoding sequence [1].
    new : prompt tokens computed in this step [1].
    past : tokens cached before them [1].
    requests : prompts that the new tokens belong to [1].
    others : load of each of the other attention-DP groups, relative to this one's; 0 for a lone prompt [1].
    """

    sequences: Number = 0.0
    each: Number = 1.0
    context: Number = 0.0
    new: Number = 0.0
    past: Number = 0.0
    requests: Number = 0.0
    others: Number = 1.0

    @property
    def decodes(self) -> bool:
        """Whether the step decodes."""
        return type(self.sequences) is not float or self.sequences > 0.0

    @property
    def prefills(self) -> bool:
        """Whether the step computes prompts."""
        return type(self.new) is not float or self.new > 0.0

    @property
    def tokens(self) -> Number:
        """Tokens that pass the layers [1]."""
        return self.sequences * self.each + self.new

    def together(self, groups: Number) -> Number:
        """Return the tokens of all attention-DP groups that share the layer [1]."""
        return self.tokens * (1.0 + (groups - 1.0) * self.others)

    @property
    def sampled(self) -> Number:
        """Positions that pass the output head [1]."""
        return self.sequences * self.each + self.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Parallel degrees in the form that operations need; floats or arrays.

    Parameters
    ----------
    tp : ranks that divide feed-forwards [1].
    attention : ranks that divide attention, tp / attention_dp [1].
    groups : attention-DP groups that share experts or feed-forwards and run in lockstep [1].
    inner : number of those groups inside one tensor-parallel group [1].
    ep : expert-parallel ranks; if fewer than tp, the remaining ranks divide each expert by width [1].
    """

    tp: Number
    attention: Number
    groups: Number
    inner: Number
    ep: Number

    @classmethod
    def of(cls, strategy: Strategy) -> Split:
        """Return the degrees of a strategy."""
        tp, ep, inner = 1.0 * strategy.tp, 1.0 * strategy.ep, 1.0 * strategy.attention_dp
        return cls(tp=tp, attention=tp / inner, groups=larger(ep / tp, 1.0) * inner, inner=inner, ep=ep)

    @property
    def expert_width(self) -> Number:
        """Ranks that divide each expert by width [1]."""
        return larger(self.tp / self.ep, 1.0)


WHOLE_COLUMN = 8192.0
"""Entries assumed per scale in per-channel formats [1]."""


def bits(format_id: str) -> tuple[float, float, float]:
    """Return the bits of an entry, the entries per scale and the bits of a scale.

    A suffix such as ``-g64`` overrides the number of entries per scale.

    Parameters
    ----------
    format_id : number format of weights or cache, such as ``fp8`` or ``awq-g64``.

    Returns
    -------
    Bits of an entry, entries that share a scale, and bits of a scale [1].
    """
    base, _, group = format_id.partition("-g") if "-g" in format_id else (format_id.removesuffix("-channel"), "", "")
    entry = catalogue.formats()[base]
    size = float(group) if group else WHOLE_COLUMN if format_id.endswith("-channel") else float(entry.get("group", 1))
    return float(entry["bits"]), size, float(entry.get("scale_bits", 0.0))


@lru_cache(maxsize=256)
def element_bytes(format_id: str) -> float:
    """Return the mean bytes of one stored entry, scales included [B].

    Parameters
    ----------
    format_id : number format of weights or cache, such as ``fp8`` or ``awq-g64``.

    Returns
    -------
    Mean bytes of an entry, with its share of the scales [B].
    """
    return float(parameters.stored_bytes(1.0, *bits(format_id)))


def compute_format(format_id: str, activation: str | None, base: str) -> str:
    """Return the number format in which such weights are multiplied, regardless of the device.

    FP8 checkpoints quantise activations to FP8. FP4 checkpoints quantise activations only if they say so. Weight-only
    formats compute in the model's own type.

    Parameters
    ----------
    format_id : number format of weights or cache, such as ``fp8`` or ``awq-g64``.
    activation : number format of activations in the checkpoint, None if it states none.
    base : the model's own number format.

    Returns
    -------
    Number format of the matmul.
    """
    entry = format_entry(format_id)
    if entry["kernel"] == "dequantise":
        return base
    if entry["kernel"] == "blocks":
        return "gguf"
    wanted = str(entry["compute"])
    if wanted == "fp4":
        return activation if activation in {"fp4", "fp8"} else base
    return wanted


def kv_heads_of(mixer: Attention | LatentAttention | Recurrence) -> int | None:
    """Return the KV heads by which matrices of a mixer are split.

    Parameters
    ----------
    mixer : what mixes the tokens of a layer.

    Returns
    -------
    KV heads, None where no matrix is split by them [1].
    """
    return mixer.kv_heads if isinstance(mixer, Attention) else None


def fraction(linear: Linear, tensor: Number, kv_heads: int | None = None) -> Number:
    """Return the share of a matrix that each of `tensor` ranks holds.

    Parameters
    ----------
    linear : the matrix.
    tensor : tensor-parallel ranks, float or array [1].
    kv_heads : KV heads of the model, None for a matrix that is not split by KV heads [1].

    Returns
    -------
    Share of the matrix on one rank, float or array; above 1 / `tensor` if KV heads are replicated [1].
    """
    if linear.split == "none":
        return 1.0
    if linear.split == "kv_heads" and kv_heads is not None:
        return memory.heads_per_rank(float(kv_heads), tensor) / kv_heads
    return 1.0 / tensor


def product(
    name: str, group: Group, tokens: Number, tensor: Number, model: Model, *, leaving: bool, kv_heads: int | None = None
) -> Operation:
    """Return one fused matmul: row-parallel (inputs divided) if `leaving`, else column-parallel (outputs divided)."""
    weights = stored = outputs = 0.0
    for linear in group:
        share = fraction(linear, tensor, kv_heads)
        weights = weights + linear.weights * share
        stored = stored + linear.weights * element_bytes(linear.format) * share
        outputs = outputs + linear.outputs * linear.copies * (1.0 if leaving else share)
    first = group[0]
    inputs = first.inputs * first.copies * (fraction(first, tensor, kv_heads) if leaving else 1.0)
    moved = stored + tokens * (inputs + outputs) * ACTIVATION_BYTES
    compute = compute_format(first.format, model.quantization.activation if model.quantization else None, model.dtype)
    return Operation(
        name,
        "matmul",
        matmul.work(tokens, weights, 1.0),
        moved,
        compute,
        weights,
        tokens,
        first.format,
        tokens * (inputs * len(group) + outputs),
        text="{tokens} tokens x {weights} weights at {entry_bytes} B",
        numbers={"tokens": tokens, "weights": weights, "entry_bytes": element_bytes(first.format)},
        inputs=tokens * inputs,
    )


def quantising_kernels(format_id: str, compute: str) -> float:
    """Return the kernels that quantise a product's inputs before it: one where activations are scaled by blocks [1].

    Inputs that are scaled whole or by token are quantised by the kernel that writes them.

    Parameters
    ----------
    format_id : number format of the weights.
    compute : number format of the matmul.
    """
    entry = format_entry(format_id)
    return 1.0 if entry.get("scales_blocks") and compute == entry["compute"] else 0.0


def label_of(group: Group) -> str:
    """Return the short name of a fused matmul, such as ``gate+up``."""
    return "+".join(linear.name.rsplit(".", 1)[-1].removesuffix("_proj") for linear in group)


def all_reduce_of(name: str, tokens: Number, ranks: Number, model: Model) -> Operation:
    """Return the all-reduce of a layer's output over the tensor-parallel ranks."""
    message = tokens * model.hidden * ACTIVATION_BYTES
    return Operation(
        name,
        "all_reduce",
        0.0,
        message,
        kernels=0.0,
        ranks=ranks,
        text="{tokens} tokens x {hidden} x 2 B over {ranks} ranks",
        numbers={"tokens": tokens, "hidden": model.hidden, "ranks": ranks},
    )
