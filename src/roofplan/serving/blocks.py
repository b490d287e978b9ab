"""vLLM's cache to the block: groups of layers that share a page size, blocks, and the tokens that its log prints.

References
----------
.. [1] vLLM source, v1/core/kv_cache_utils.py (groups, blocks, report) and v1/kv_cache_interface.py (what a request is charged).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from roofplan.errors import UnsupportedFeature
from roofplan.records.model import Attention, LatentAttention, Model

NEARLY_ALL = 1.5
"""Largest over smallest number of layers of a kind below which groups are as large as the larger one, the smaller padded [1]_."""


@dataclass(frozen=True, slots=True)
class Group:
    """Layers of one kind that share their blocks.

    Parameters
    ----------
    layers : in the group [1].
    window, chunked : tokens that a layer attends to, None for all; and whether they are a fixed chunk.
    """

    layers: int
    window: int | None
    chunked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheBlocks:
    """How vLLM cuts memory into blocks.

    Parameters
    ----------
    block : tokens of a block [token].
    groups : groups of layers, each with as many blocks for a request as its kind needs.
    page : bytes of a block in all layers of a group [B].
    count : blocks in all [1].
    request : blocks that a request of the longest length is charged [1].
    longest : that length [token].
    """

    block: int
    groups: tuple[Group, ...]
    page: float
    count: int
    request: int
    longest: int

    @property
    def concurrency(self) -> float:
        """Requests of the longest length that fit at once [1]."""
        return self.count / self.request

    @property
    def tokens(self) -> int:
        """Tokens as newer versions print them: those requests times their length [token]."""
        return int(self.concurrency * self.longest)

    @property
    def tokens_in_blocks(self) -> int:
        """Tokens as older versions print them: those of all blocks, over the groups [token]."""
        return self.count // len(self.groups) * self.block

    @property
    def needed(self) -> float:
        """Bytes that one request of the longest length needs [B]."""
        return self.request * self.page


def cache_blocks(
    model: Model, pool: float, *, tensor: int, cache_bytes: float, block: int, longest: int, batched: int
) -> CacheBlocks:
    """Return how vLLM cuts the memory of a rank's cache into blocks.

    Parameters
    ----------
    model : its layers.
    pool : memory for the cache on one rank [B].
    tensor : tensor-parallel ranks, which share the key-value heads [1].
    cache_bytes : bytes of a cached number [B].
    block : tokens of a block [token].
    longest : longest request that the engine accepts [token].
    batched : most tokens of a step, which a sliding window may hold besides [token].

    Returns
    -------
    Groups, blocks and what a request is charged.

    Raises
    ------
    UnsupportedFeature : layers of unlike widths, or with a state, whose pages vLLM pads in ways that are not described.

    Examples
    --------
    >>> from roofplan import hf
    >>> model = hf.of_catalogue("llama-3.1-8b")
    >>> found = cache_blocks(model, 3904 * 2**20, tensor=1, cache_bytes=2, block=16, longest=20000, batched=20000)
    >>> found.count, round(found.concurrency, 2)  # an RTX 3090, vLLM issue 10517
    (1952, 1.56)
    """
    kinds, width = _kinds(model, tensor, cache_bytes)
    sizes = sorted(kinds.values())
    size = sizes[-1] if sizes[-1] < NEARLY_ALL * sizes[0] else sizes[0]
    groups = tuple(
        Group(size, window, chunked)
        for (window, chunked), layers in kinds.items()
        for _ in range(math.ceil(layers / size))
    )
    page = size * width * block
    request = sum(charged(group, block, longest, batched) for group in groups)
    return CacheBlocks(
        block=block, groups=groups, page=page, count=math.floor(pool / page), request=request, longest=longest
    )


def _kinds(model: Model, tensor: int, cache_bytes: float) -> tuple[Counter[tuple[int | None, bool]], float]:
    """Return the layers of each kind, and what each caches of a token on one rank [B]."""
    kinds: Counter[tuple[int | None, bool]] = Counter()
    widths = set()
    for layer in model.decoder.layers:
        for mixer in layer.mixers:
            if isinstance(mixer, LatentAttention):
                kinds[mixer.window, False] += 1
                widths |= {float(mixer.entry(float(tensor), cache_bytes)), mixer.index_entry(cache_bytes)} - {0.0}
            elif not isinstance(mixer, Attention):
                raise UnsupportedFeature(
                    f"{model.id}: layers with a state share vLLM's pages in a way that is not described"
                )
            elif mixer.cross is None and mixer.stores_cache:
                kinds[mixer.window, mixer.chunked and mixer.window is not None] += 1
                if mixer.kv_heads % tensor and tensor % mixer.kv_heads:
                    message = f"{model.id}: {mixer.kv_heads} key-value heads do not divide over {tensor} tensor-parallel ranks"
                    raise UnsupportedFeature(message)
                share = max(1.0, mixer.kv_heads / tensor) / mixer.kv_heads
                widths.add(mixer.cache_elements * share / mixer.compression * cache_bytes)
                widths |= {mixer.index_entry(cache_bytes)} - {0.0}
                if not mixer.stores_entries:
                    raise UnsupportedFeature(
                        f"{model.id}: layers that share entries of a cache have pages that are not described"
                    )
    if len(widths) != 1:
        raise UnsupportedFeature(
            f"{model.id}: layers that cache unlike widths share vLLM's pages in a way that is not described"
        )
    return kinds, widths.pop()


def charged(group: Group, block: int, longest: int, batched: int) -> int:
    """Return the blocks of a group that a request is charged.

    Parameters
    ----------
    group : layers of one kind.
    block : tokens of a block [token].
    longest : of the request [token].
    batched : most tokens of a step [token].

    Returns
    -------
    Blocks [1].
    """
    if group.window is None:
        return math.ceil(longest / block)
    if group.chunked:
        return math.ceil(min(group.window + batched, longest) / block)
    return math.ceil(min(group.window - 1 + batched, longest) / block) + 1
