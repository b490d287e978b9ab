"""What a model is by its numbers: weights as stored, cache of a sequence, work of a token."""

from __future__ import annotations

from dataclasses import dataclass

from roofplan.operations import head_format, whole_model
from roofplan.operations.table import Step, bits, element_bytes
from roofplan.records.model import Attention, Model
from roofplan.records.strategy import Strategy
from roofplan.serving.ledger import footprint


@dataclass(frozen=True, slots=True)
class Sheet:
    """Numbers of a model on one device.

    Parameters
    ----------
    weights : all of them [B].
    cache : of a sequence of the given length, with state of constant size [B].
    cache_per_token : what one more token adds there [B].
    state : what a sequence holds whatever its length [B].
    cross_positions : of an encoder that cross attention reads, over all layers [1].
    work_per_token : of all weights that a generated token meets, head included [FLOP]; None where that is unknown.
    head_work : of the output layer [FLOP].
    """

    weights: float
    cache: float
    cache_per_token: float
    state: float
    cross_positions: int
    work_per_token: int | None
    head_work: int


def sheet(model: Model, tokens: int, kv_precision: str) -> Sheet:
    """Return the numbers of a model.

    Parameters
    ----------
    model : the model.
    tokens : context length at which the cache is counted [token].
    kv_precision : number format of the cache.

    Returns
    -------
    The numbers.

    Raises
    ------
    KeyError : the catalogue does not describe `kv_precision`.
    """
    foot = footprint(model, Strategy(), element_bytes(kv_precision))
    return Sheet(
        weights=foot.weights,
        cache=foot.request(float(tokens)) if model.generates else 0.0,
        cache_per_token=foot.kv_per_token + sum(rate for rate, window, _ in foot.windowed if window >= tokens),
        state=foot.state,
        cross_positions=_cross_positions(model),
        work_per_token=_work_per_token(model) if model.generates and model.active is not None else None,
        head_work=2 * model.vocabulary * model.hidden,
    )


def _cross_positions(model: Model) -> int:
    mixers = (mixer for layer, _ in model.decoder.kinds() for mixer in layer.mixers)
    return sum(mixer.cross or 0 for mixer in mixers if isinstance(mixer, Attention))


def _work_per_token(model: Model) -> int:
    table = whole_model(model, Step(sequences=1.0, context=1.0))
    return round(sum(float(op.work) for op in table if op.kind in {"matmul", "experts"}))


@dataclass(frozen=True, slots=True)
class Stored:
    """How quantized weights are stored.

    Parameters
    ----------
    format : of most matrices.
    bits : of an element [bit].
    scale : of each group's scale [bit], 0 without one.
    group : elements that share a scale [1].
    head : format of the output layer.
    """

    format: str
    bits: float
    scale: float
    group: float
    head: str


def stored(model: Model) -> Stored | None:
    """Return how a model's weights are stored.

    Parameters
    ----------
    model : the model.

    Returns
    -------
    The formats; None where no weight is quantized.
    """
    plan = model.quantization
    if not plan:
        return None
    width, group, scale = bits(plan.format)
    return Stored(plan.format, width, scale, group, head_format(model))
