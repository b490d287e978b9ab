"""Rules of an engine: supported strategies and devices, with reasons in the engine's terms."""

from __future__ import annotations

import math
from functools import lru_cache

from roofplan.catalogue import format_entry
from roofplan.operations.table import bits
from roofplan.records.engine import Engine
from roofplan.records.hardware import CPU, OWN, Machine
from roofplan.records.model import Attention, FeedForward, Group, LatentAttention, Mixer, Mixture, Model
from roofplan.records.strategy import Strategy


def legal(model: Model, strategy: Strategy, engine: Engine) -> str | None:
    """Return why an engine refuses a strategy, in the engine's terms.

    Parameters
    ----------
    model : its layers, heads and experts.
    strategy : degrees of parallelism.
    engine : engine with its rules.

    Returns
    -------
    The reason, None if the strategy is legal.
    """
    tp, pp, dp, ep, inner = strategy.as_dict().values()
    rules = (
        (tp % inner, f"{engine.id}: tp ({tp}) must be divisible by attention dp ({inner})"),
        (pp > len(model.decoder.layers), f"{pp} stages for {len(model.decoder.layers)} layers"),
        (pp > 1 and not engine.pipeline, f"{engine.id} has no pipeline parallelism"),
        (tp > 1 and not engine.tensor, f"{engine.id} splits by layer, not by tensor"),
        (dp > 1 and ep > tp and not engine.data, f"{engine.id} has no data parallelism inside one server"),
        (inner > 1 and not engine.data_attention, f"{engine.id} has no attention data parallelism inside tp"),
        (
            inner not in {1, tp} and engine.data_attention_degrees == "all",
            f"{engine.id}: attention data parallelism uses all of tp",
        ),
        (
            engine.expert and engine.expert_identity == "tp*dp" and ep not in {1, tp * dp},
            f"{engine.id} divides experts over tp x dp ranks or not at all",
        ),
        (ep < tp and tp % ep, f"{engine.id}: tp ({tp}) must be divisible by ep ({ep})"),
        (ep > 1 and not engine.expert, f"{engine.id} has no expert parallelism"),
        (ep > 1 and not model.experts, f"{engine.id}: no experts to divide"),
        (ep > routed(model), f"{engine.id}: {ep} expert ranks for {routed(model)} routed experts"),
        (
            ep > 1 and engine.experts_even and routed(model) % ep,
            f"{engine.id}: {routed(model)} routed experts are not divisible by {ep} expert ranks",
        ),
    )
    for broken, why in rules:
        if broken:
            return why
    tensor = tp // inner
    return _divides(model, tensor, tp, engine, max(1, tp // ep))


def routed(model: Model) -> int:
    """Return the smallest number of routed experts in any MoE layer."""
    feeds = [feed for layer, _ in model.decoder.kinds() for feed in layer.feed_forwards]
    return min((int(feed.experts) for feed in feeds if isinstance(feed, Mixture)), default=1)


@lru_cache(maxsize=4096)
def _divides(model: Model, tensor: int, full: int, engine: Engine, cut: int) -> str | None:
    for layer, _ in model.decoder.kinds():
        reasons = (
            *(_mixer_rule(mixer, tensor, engine) for mixer in layer.mixers),
            *(_feed_rule(feed, full, engine, cut) for feed in layer.feed_forwards),
        )
        for reason in reasons:
            if reason:
                return reason
    return None


def _mixer_rule(mixer: Mixer, tensor: int, engine: Engine) -> str | None:
    """Return why attention cannot be divided over `tensor` ranks."""
    if isinstance(mixer, LatentAttention) and not engine.latent_attention:
        return f"{engine.id} has no latent attention"
    if isinstance(mixer, Attention | LatentAttention) and mixer.heads % tensor:
        return f"{engine.id}: total number of attention heads ({mixer.heads}) must be divisible by tensor parallel size ({tensor})"
    if not isinstance(mixer, Attention):
        return None
    if mixer.kv_heads < tensor and tensor % mixer.kv_heads:
        return f"{engine.id}: tensor parallel size ({tensor}) must be divisible by KV heads ({mixer.kv_heads}) to replicate them"
    if mixer.kv_heads > tensor and mixer.kv_heads % tensor:
        return f"{engine.id}: KV heads ({mixer.kv_heads}) must be divisible by tensor parallel size ({tensor})"
    return _cuts(mixer.groups, tensor, engine, mixer.kv_heads)


def _feed_rule(feed: FeedForward, tensor: int, engine: Engine, cut: int) -> str | None:
    """Return why a feed-forward cannot be divided over `tensor` ranks, with each expert over `cut` of them."""
    if not isinstance(feed, Mixture):
        return _cuts(feed.groups, tensor, engine)
    halved = engine.expert_groups
    routed_ones = _cuts(feed.expert, cut, engine, least=int(halved.value) if halved else None)
    return routed_ones or _cuts(feed.shared, tensor, engine)


def _cuts(
    groups: tuple[Group, ...], tensor: int, engine: Engine, kv_heads: int = 0, least: int | None = None
) -> str | None:
    """Return why matrices cannot be split over `tensor` ranks: first ones by outputs, the last one by inputs.

    K and V are split by head and replicated when there are more ranks than heads. Quantisation groups may be halved
    down to `least`.
    """
    if tensor == 1:
        return None
    cut = [group for group in groups if group[0].split != "none"]
    for index, group in enumerate(cut):
        for linear in group:
            leaves = index == len(cut) - 1 and index > 0
            width, shares = linear.inputs if leaves else linear.outputs, tensor
            if linear.split == "kv_heads":
                shares = min(tensor, kv_heads)
            if width % shares:
                return f"{engine.id}: width {width} is not divisible by tensor parallel size ({tensor})"
            block = cut_block(linear.format, leaves=leaves)
            if least is not None and "block" not in format_entry(linear.format):
                block = min(block, least)
            if (width // shares) % block:
                return f"{engine.id}: width {width} / tp {shares} = {width // shares} is not a multiple of the {block} of {linear.format}"
    return None


def cut_block(format_id: str, *, leaves: bool) -> int:
    """Return the block size of a format along the split side of a matrix; each share must be a multiple of it [1]."""
    entry = format_entry(format_id)
    if "block" in entry:
        return math.isqrt(int(bits(format_id)[1]))  # squares of entries share a scale
    grouped = leaves and entry.get("grouped_inputs") and not format_id.endswith("-channel")
    return int(bits(format_id)[1]) if grouped else 1


def supported(engine: Engine, machine: Machine) -> str | None:
    """Return why an engine does not run on a device.

    Parameters
    ----------
    engine : engine with the vendors and architectures that it runs on.
    machine : devices.

    Returns
    -------
    The reason, None if it runs; a user's own accelerator is always accepted, a processor only by engines that run on one.
    """
    device = machine.device
    if device.status == OWN and device.device_class != CPU:
        return None
    if device.vendor not in engine.vendors:
        return f"{engine.called} does not support {device.vendor}"
    if device.architecture in engine.excluded_architectures:
        return f"{engine.id} does not support {device.architecture}"
    return None
