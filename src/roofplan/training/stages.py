"""Contents of pipeline stages: layers of each kind, embedding, head, and parameters per rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from roofplan.laws import Number, up
from roofplan.operations.table import fraction, kv_heads_of
from roofplan.records.model import Dense, Layer, Mixture, Model
from roofplan.records.training import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The contents of a stage; the earliest of equal stages represents all of them.

    Parameters
    ----------
    place : position in the pipeline, from 0 [1].
    alike : number of stages with the same contents, including itself [1].
    counts : layers of each kind [1].
    embeds, heads : 1 if it holds the embedding or the head, else 0 [1].
    """

    place: int
    alike: int
    counts: tuple[float, ...]
    embeds: float
    heads: float


class Share(NamedTuple):
    """Parameters of a stage on one rank.

    Parameters
    ----------
    matrices : weights of matmuls that every token passes [parameters].
    others : embedding, head, norms and biases [parameters].
    experts : weights of routed experts [parameters].
    """

    matrices: Number
    others: Number
    experts: Number

    @property
    def dense(self) -> Number:
        """Parameters replicated on all data-parallel ranks of the stage [parameters]."""
        return self.matrices + self.others

    @property
    def all(self) -> Number:
        """All parameters [parameters]."""
        return self.dense + self.experts


def stages(
    model: Model, count: int, chunks: int = 1, schedule: str = "1f1b", *, ends: bool = True
) -> tuple[Stage, ...]:
    """Return the distinct stages of a pipeline of `count` ranks.

    Layers are split evenly, in order. If they do not divide, but would with embedding and head counted as a layer each,
    the first and the last chunk hold one layer less under `ends`; otherwise the last chunks hold fewer. A rank of an
    interleaved pipeline holds every `count`-th chunk. A rank of DualPipe holds a stage and its mirror stage.
    """
    kinds = tuple(places for _, places in model.decoder.kinds())
    sizes = tuple(chunk_sizes(len(model.decoder.layers), int(count) * int(chunks), ends=ends))
    return _stages(kinds, sizes, int(count), schedule == "dualpipe")


@lru_cache(maxsize=1024)
def _stages(kinds: tuple[tuple[int, ...], ...], sizes: tuple[int, ...], count: int, dual: bool) -> tuple[Stage, ...]:
    pieces = len(sizes)
    starts = [sum(sizes[:piece]) for piece in range(pieces)]
    found: dict[tuple[tuple[float, ...], float, float], list[int]] = {}
    for place in range(count):
        mine = [place, count - 1 - place] if dual else list(range(place, pieces, count))
        counts = tuple(
            float(sum(starts[piece] <= at < starts[piece] + sizes[piece] for piece in mine for at in places))
            for places in kinds
        )
        embeds, heads = float(0 in mine), float(pieces - 1 in mine)
        found.setdefault((counts, embeds, heads), []).append(place)
    return tuple(
        Stage(place=places[0], alike=len(places), counts=counts, embeds=embeds, heads=heads)
        for (counts, embeds, heads), places in found.items()
    )


def chunk_sizes(layers: int, pieces: int, *, ends: bool = True) -> list[int]:
    """Return the layers of each chunk of a pipeline, in order.

    Parameters
    ----------
    layers : layers of the model [1].
    pieces : number of chunks: stages x chunks per stage [1].
    ends : whether the framework counts the embedding and the head as a layer each if that divides evenly.

    Returns
    -------
    Layers of each chunk.

    Examples
    --------
    >>> chunk_sizes(8, 4), chunk_sizes(126, 4), chunk_sizes(8, 3)
    ([2, 2, 2, 2], [31, 32, 32, 31], [3, 3, 2])
    """
    if ends and layers % pieces and (layers + 2) % pieces == 0 and pieces > 1:
        each = (layers + 2) // pieces
        return [each - (piece in {0, pieces - 1}) for piece in range(pieces)]
    return [layers // pieces + (1 if piece < layers % pieces else 0) for piece in range(pieces)]


def even(layers: int, pieces: int, *, ends: bool = True) -> bool:
    """Return whether layers divide evenly into chunks, optionally counting embedding and head as a layer each."""
    return layers % pieces == 0 or (ends and (layers + 2) % pieces == 0)


def layer_parameters(layer: Layer, layout: Layout) -> Share:
    """Return a layer's parameters on one rank."""
    matrices: Number = 0.0
    others: Number = float(layer.vectors)
    experts: Number = 0.0
    for mixer in layer.mixers:
        kv_heads = kv_heads_of(mixer)
        others = others + mixer.vectors
        for group in mixer.groups:
            for linear in group:
                matrices = matrices + linear.parameters * fraction(linear, layout.tp, kv_heads)
    for feed in layer.feed_forwards:
        groups = feed.groups if isinstance(feed, Dense) else feed.shared
        matrices = matrices + sum(linear.parameters for group in groups for linear in group) / layout.tp
        others = others + feed.vectors
        if isinstance(feed, Mixture):
            others = others + (feed.router.parameters if feed.router else 0)
            experts = experts + feed.routed / layout.ep
    return Share(matrices, others, experts)


def rows_of_table(model: Model, layout: Layout, multiple: float) -> Number:
    """Return the embedding rows on one tensor rank; the vocabulary is padded to `multiple` times the ranks [1]."""
    return up(model.vocabulary / (multiple * layout.tp)) * multiple if multiple > 1.0 else model.vocabulary / layout.tp


def rank_parameters(stage: Stage, kinds: Sequence[Layer], model: Model, layout: Layout, multiple: float = 1.0) -> Share:
    """Return a stage's parameters on one rank.

    A tied embedding is stored on the first stage and, if that is another stage, on the last. The vocabulary is padded
    to a `multiple` for each tensor rank.
    """
    found = Share(0.0, 0.0, 0.0)
    for count, layer in zip(stage.counts, kinds, strict=True):
        own = layer_parameters(layer, layout)
        found = Share(*(so_far + count * more for so_far, more in zip(found, own, strict=True)))
    table = rows_of_table(model, layout, multiple) * model.hidden
    others = found.others
    if stage.embeds:
        padding = table - model.vocabulary * model.hidden / layout.tp
        others = others + model.embedding / layout.tp + padding + model.other + model.decoder.extra
    if stage.heads and (not model.tied or not stage.embeds):
        others = others + table
    return found._replace(others=others)
