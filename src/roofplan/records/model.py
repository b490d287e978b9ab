"""A model as a list of layers, each with its own mixers and feed-forwards.

Parameter counts need no formula per family: every weight matrix is a `Linear`, all other learned numbers (norms, sinks,
decay rates) are counted in ``vectors``, and totals are sums over these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

from roofplan.laws import Number

Split = Literal["width", "heads", "kv_heads", "none"]
"""How tensor parallelism splits a matrix: by feed-forward or state width, by query heads, by KV heads, or not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """A weight matrix applied to tokens.

    Parameters
    ----------
    name : last part of the module path, such as ``self_attn.q_proj``.
    inputs : columns [1].
    outputs : rows [1].
    bias : whether a bias of `outputs` numbers is added.
    split : how tensor parallelism splits it.
    format : id of the weight format of the matrix.
    copies : matrices of this shape in a block-diagonal or per-head bundle.
    """

    name: str
    inputs: int
    outputs: int
    bias: bool = False
    split: Split = "width"
    format: str = "bf16"
    copies: int = 1

    @property
    def weights(self) -> int:
        """Entries of the matrix [parameters]."""
        return self.inputs * self.outputs * self.copies

    @property
    def parameters(self) -> int:
        """Entries of the matrix and its bias [parameters]."""
        return self.weights + self.outputs * self.copies * self.bias


Group = tuple[Linear, ...]
"""Matrices that read the same input and run as one kernel."""


def _count(groups: tuple[Group, ...]) -> int:
    return sum(linear.parameters for group in groups for linear in group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax attention with a key-value cache.

    Parameters
    ----------
    heads, kv_heads : query heads and key-value heads [1].
    head_dim, value_dim : width of a key and of a value [1].
    window : tokens that a query attends to, itself included; None for all.
    chunked : whether the window is a fixed chunk instead of sliding.
    groups : fused weight matrices.
    vectors : other learned numbers (query and key norms, sinks) [parameters].
    stores_cache : False where the layer reads the KV cache of an earlier layer.
    stores_entries : False where the layer reads the compressed entries of an earlier layer, and its indexer's.
    key_is_value : whether one tensor serves as key and value.
    cross : positions of the encoder that keys and values come from, constant in decode; None for self-attention.
    causal : False in encoders.
    compression : tokens per cache entry [1].
    top : most (compressed) entries that an indexer selects for a query, None where all are attended to [1].
    index_elements : cache elements of a sparse-attention indexer per (compressed) token [1].
    index_heads : heads of the indexer, each of which scores every cached token [1].
    index_pool : tokens that one entry of the indexer stands for [1].
    index_split : whether tensor parallelism divides them as it does KV heads.
    index_bytes : what an engine keeps of an indexer's number, whatever the format of the cache, 0 for the cache's own [B].
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    groups: tuple[Group, ...]
    window: int | None = None
    chunked: bool = False
    vectors: int = 0
    stores_cache: bool = True
    stores_entries: bool = True
    key_is_value: bool = False
    cross: int | None = None
    causal: bool = True
    compression: int = 1
    top: int | None = None
    index_elements: int = 0
    index_heads: int = 0
    index_pool: int = 1
    index_split: bool = False
    index_bytes: float = 0.0

    @property
    def parameters(self) -> int:
        """Learned numbers [parameters]."""
        return _count(self.groups) + self.vectors

    @property
    def cache_elements(self) -> int:
        """Cached elements per token (per `compression` tokens) [1]."""
        width = self.head_dim if self.key_is_value else self.head_dim + self.value_dim
        return self.kv_heads * width * self.stores_cache

    @property
    def selects(self) -> bool:
        """Whether queries attend to compressed or to selected entries, beside the window if there is one."""
        return self.compression > 1 or self.top is not None

    def index_entry(self, kv_bytes: float) -> float:
        """Return what the indexer caches of a (compressed) token, given the bytes of a cached number [B]."""
        return self.index_elements * (self.index_bytes or kv_bytes) / self.index_pool


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek V2): one compressed vector per token for all heads.

    Parameters
    ----------
    heads : query heads [1].
    latent : width of the compressed key-value vector, ``kv_lora_rank`` [1].
    rope_dim, nope_dim, value_dim : widths per head [1].
    window : tokens that a query attends to, itself included; None for all.
    top : tokens selected by a sparse indexer, None where attention is dense.
    index_heads, index_dim : heads of that indexer and their width [1].
    index_pool : tokens that one entry of the indexer stands for [1].
    stores_index : False where the layer reuses an earlier layer's selection.
    per_head : numbers that an engine caches of each head and token, keys and values, 0 where it caches the latent vector [1].
    packed : what an engine keeps of a token's latent in an 8-bit cache, scales included, 0 for a byte a number [B].
    index_bytes : what it keeps of an indexer's number, whatever the format of the cache, 0 for the cache's own [B].
    """

    heads: int
    latent: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    groups: tuple[Group, ...]
    vectors: int = 0
    window: int | None = None
    top: int | None = None
    index_heads: int = 0
    index_dim: int = 0
    index_pool: int = 1
    stores_index: bool = True
    per_head: int = 0
    packed: float = 0.0
    index_bytes: float = 0.0

    @property
    def parameters(self) -> int:
        """Learned numbers [parameters]."""
        return _count(self.groups) + self.vectors

    @property
    def reach(self) -> int | None:
        """Most tokens that a query attends to, None for all [1]."""
        return self.window if self.top is None else self.top

    @property
    def key_dim(self) -> int:
        """Width of a head's keys [1]."""
        return self.nope_dim + self.rope_dim

    def entry(self, tensor: Number, kv_bytes: float) -> Number:
        """Return what a rank caches of a token: all of the latent, or its own heads' keys and values.

        Parameters
        ----------
        tensor : ranks that attention is divided among [1].
        kv_bytes : bytes of a cached number [B].

        Returns
        -------
        Size, the indexer's keys aside [B].
        """
        if self.per_head:
            return self.per_head * self.heads / tensor * kv_bytes
        if self.packed and int(kv_bytes) == 1:
            return self.packed
        return (self.latent + self.rope_dim) * kv_bytes

    def index_entry(self, kv_bytes: float) -> float:
        """Return what the indexer caches of a token on every rank, given the bytes of a cached number [B]."""
        return self.index_dim * (self.index_bytes or kv_bytes) * self.stores_index / self.index_pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """A mixer with a state of constant size: state space, linear attention, gated recurrence or short convolution.

    Parameters
    ----------
    kind : ``mamba``, ``mamba2``, ``gated-delta``, ``lightning``, ``rwkv``, ``rg-lru``, ``kda`` or ``convolution``.
    state_elements : elements of the recurrent state per sequence, of `state_bytes` each [1].
    convolution_elements : elements of the convolution window per sequence, in the activation type [1].
    update_flops : state update and readout per token [FLOP].
    """

    kind: str
    groups: tuple[Group, ...]
    vectors: int = 0
    state_elements: int = 0
    state_bytes: int = 4
    convolution_elements: int = 0
    update_flops: int = 0

    @property
    def parameters(self) -> int:
        """Learned numbers [parameters]."""
        return _count(self.groups) + self.vectors


Mixer = Attention | LatentAttention | Recurrence


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """A feed-forward that processes every token."""

    groups: tuple[Group, ...]
    vectors: int = 0

    @property
    def parameters(self) -> int:
        """Learned numbers [parameters]."""
        return _count(self.groups) + self.vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """A mixture of experts.

    Parameters
    ----------
    experts : routed experts [1].
    chosen : routed experts per token [1].
    expert : fused weight matrices of one expert.
    router : matrix that scores the experts.
    shared : matrices applied to every token (shared experts and their gates).
    vectors : other learned numbers outside the experts [parameters].
    groups, chosen_groups : groups of neighbouring experts, and those that a token's experts may come from; 1 of 1 without limit [1].
    """

    experts: int
    chosen: int
    expert: tuple[Group, ...]
    router: Linear | None
    shared: tuple[Group, ...] = ()
    vectors: int = 0
    groups: int = 1
    chosen_groups: int = 1

    @property
    def per_expert(self) -> int:
        """Learned numbers of one routed expert [parameters]."""
        return _count(self.expert)

    @property
    def routed(self) -> int:
        """Learned numbers of all routed experts [parameters]."""
        return self.experts * self.per_expert

    @property
    def fixed(self) -> int:
        """Learned numbers used by every token: router, shared experts, vectors [parameters]."""
        return _count(self.shared) + (self.router.parameters if self.router else 0) + self.vectors

    @property
    def parameters(self) -> int:
        """Learned numbers [parameters]."""
        return self.routed + self.fixed


FeedForward = Dense | Mixture


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One entry of the model's layer list.

    Parameters
    ----------
    mixers, feed_forwards : parts of the layer, in order; either may be empty.
    vectors : norms and scales of the layer itself [parameters].
    norms : norms over the residual stream, 1 where both halves of a parallel layer share one [1].
    layer_norm : whether they are LayerNorms; else RMSNorms.
    shared : key of weights that several layers share, which are stored once.
    shared_parameters : parameters of the layer under that key [parameters].
    """

    mixers: tuple[Mixer, ...] = ()
    feed_forwards: tuple[FeedForward, ...] = ()
    vectors: int = 0
    norms: int = 2
    layer_norm: bool = False
    shared: str | None = None
    shared_parameters: int = 0

    @property
    def parameters(self) -> int:
        """Learned numbers of the layer, shared ones included [parameters]."""
        return self.vectors + sum(part.parameters for part in (*self.mixers, *self.feed_forwards))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A list of layers: the decoder, an encoder or a vision tower.

    Parameters
    ----------
    name : module path of the layers.
    role : ``decoder`` runs per generated token, the others once per request.
    extra : parameters outside the layers (embeddings of patches or positions, final norm, projector).
    tokens : positions per request where the config fixes them (patches, audio frames).
    """

    name: str
    role: Literal["decoder", "encoder", "vision", "projector"]
    layers: tuple[Layer, ...]
    extra: int = 0
    tokens: int | None = None
    _kinds: tuple[tuple[Layer, tuple[int, ...]], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Group equal layers once, since every step of every plan needs them; one object is hashed once."""
        places: dict[Layer, list[int]] = {}
        known: dict[int, list[int]] = {}
        for index, layer in enumerate(self.layers):
            if id(layer) not in known:
                known[id(layer)] = places.setdefault(layer, [])
            known[id(layer)].append(index)
        object.__setattr__(self, "_kinds", tuple((layer, tuple(indices)) for layer, indices in places.items()))

    @property
    def parameters(self) -> int:
        """Unique learned numbers [parameters]."""
        total, seen = self.extra, set()
        for layer, places in self._kinds:
            total += len(places) * layer.parameters
            for key in layer.shared.split("+") if layer.shared is not None else ():
                total -= (len(places) - (key not in seen)) * layer.shared_parameters
                seen.add(key)
        return total

    def kinds(self) -> tuple[tuple[Layer, tuple[int, ...]], ...]:
        """Return each distinct layer with its positions."""
        return self._kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How the checkpoint stores its weights.

    Parameters
    ----------
    format : id of a weight format in the catalogue.
    skipped : patterns of module names that keep the model's own type.
    only_experts : whether only expert matrices are converted.
    beside : id of the format of the other matrices, None for the model's own type.
    parts : formats by kind of part (``experts``, ``shared``, ``mixer``, ``feed``, ``head``) where a checkpoint lists its
        modules with theirs; a part that it does not list keeps the model's own type.
    activation : id of the activation type that the checkpoint requires, None where only weights are quantised.
    kv : id of the KV cache type that the checkpoint requires, None where it requires none.
    gguf : whether it is a GGUF file, whatever its format.
    """

    format: str
    skipped: tuple[str, ...] = ()
    only_experts: bool = False
    beside: str | None = None
    parts: tuple[tuple[str, str], ...] = ()
    activation: str | None = None
    kv: str | None = None
    gguf: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A language or encoder model, counted from its configuration.

    Parameters
    ----------
    id : catalogue id, path or Hub name that it was loaded by.
    family : the configuration's ``model_type``.
    stacks : layer lists, including the decoder.
    hidden : width of the residual stream of the decoder (or the only stack) [1].
    vocabulary : rows of the embedding [1].
    embedding : parameters of the token (or patch) embedding [parameters].
    head : parameters of the output head, 0 where it is tied to the embedding [parameters].
    tied : whether the head reads the embedding matrix.
    tables : numbers of the embedding that stand for n-grams, of which a token reads a few rows [parameters].
    table_bytes : size of each of them [B].
    other : parameters outside stacks, embedding and head [parameters].
    max_positions : longest context that the model states, None where it states none.
    dtype : type of unquantised weights and activations.
    stated_dtype : whether the configuration names that type.
    quantization : how weights are stored, None where unquantised.
    draft_layers : multi-token prediction layers of the checkpoint.
    draft_parameters : parameters of these layers, None where they are not described [parameters].
    architecture : class name that the configuration gives.
    sha256 : digest of the configuration text.
    notes : remarks on the parameter count.
    generates : whether it generates tokens; False for pure encoders, which have no decode phase.
    """

    id: str
    family: str
    stacks: tuple[Stack, ...]
    hidden: int
    vocabulary: int
    embedding: int
    head: int
    tied: bool
    tables: int = 0
    table_bytes: float = 2.0
    other: int = 0
    max_positions: int | None = None
    dtype: str = "bf16"
    stated_dtype: bool = False
    quantization: Quantization | None = None
    draft_layers: int = 0
    draft_parameters: int | None = None
    architecture: str = ""
    sha256: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    generates: bool = True
    config: dict[str, object] = field(default_factory=dict, compare=False, hash=False, repr=False)

    def __hash__(self) -> int:
        """Return the hash of the configuration; models that differ otherwise, as in weight format, compare unequal."""
        return hash((self.id, self.sha256))

    @property
    def total(self) -> int:
        """Unique learned numbers [parameters]."""
        return self.embedding + self.head + self.other + sum(stack.parameters for stack in self.stacks)

    @property
    def active(self) -> int | None:
        """Learned numbers used per token, the embedding of tokens included; None where experts per token are not stated [parameters]."""
        if any(m.chosen == 0 for m, _ in self._mixtures()):
            return None
        return (
            self.total
            - self.tables
            - sum(count * (m.routed - m.chosen * m.per_expert) for m, count in self._mixtures())
        )

    def _mixtures(self) -> Iterator[tuple[Mixture, int]]:
        """Yield the mixtures of distinct layers, with how many layers have them."""
        for stack in self.stacks:
            for layer, places in stack.kinds():
                for feed_forward in layer.feed_forwards:
                    if isinstance(feed_forward, Mixture):
                        yield feed_forward, len(places)

    @property
    def decoder(self) -> Stack:
        """The stack that generates, or the first one of an encoder."""
        for stack in self.stacks:
            if stack.role == "decoder":
                return stack
        return self.stacks[0]

    @property
    def experts(self) -> int:
        """Routed experts of the widest layer, 0 for dense models [1]."""
        return max((m.experts for m, _ in self._mixtures()), default=0)

    @property
    def kind(self) -> str:
        """``hybrid`` with layers that keep a state instead of a KV cache, ``mixture`` with routed experts alone, else ``dense``."""
        mixers = (mixer for layer, _ in self.decoder.kinds() for mixer in layer.mixers)
        if any(not isinstance(mixer, Attention | LatentAttention) for mixer in mixers):
            return "hybrid"
        return "mixture" if self.experts else "dense"

    @property
    def heads(self) -> int:
        """Query heads of the widest attention, 0 without attention [1]."""
        return max((m.heads for m in self._attentions()), default=0)

    @property
    def kv_heads(self) -> int:
        """KV heads of the narrowest plain attention, 0 without one [1]."""
        return min((m.kv_heads for m in self._attentions() if isinstance(m, Attention)), default=0)

    @property
    def latent(self) -> bool:
        """Whether any layer, as the model is held, keeps a latent cache, which tensor parallelism cannot split."""
        return any(isinstance(m, LatentAttention) and not m.per_head for m in self._attentions())

    def _attentions(self) -> Iterator[Attention | LatentAttention]:
        for layer, _ in self.decoder.kinds():
            for mixer in layer.mixers:
                if isinstance(mixer, Attention | LatentAttention):
                    yield mixer

    def layer_runs(self) -> dict[str, list[list[int]]]:
        """Return [[parameters, repeat], ...] for each stack with layers."""
        return {
            stack.name: [[size, len(list(run))] for size, run in groupby(layer.parameters for layer in stack.layers)]
            for stack in self.stacks
            if stack.layers
        }

    def renamed(self, identity: str) -> Model:
        """Return the same model under another id."""
        return replace(self, id=identity)
