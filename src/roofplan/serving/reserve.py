"""The static reserve that SGLang keeps for all but weights and cache, from the formula or the table of its release."""

from __future__ import annotations

from collections.abc import Mapping

from roofplan.records.engine import Engine
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.strategy import Strategy
from roofplan.serving.defaults import default, needed
from roofplan.serving.step import replayed


def reserve(
    model: Model, strategy: Strategy, machine: Machine, engine: Engine, capacity: float, *, drafted: int
) -> float:
    """Return the memory of a device that the engine keeps for activations and graphs [B].

    Parameters
    ----------
    model : whether it has a vision tower and a latent cache counts.
    strategy : degrees of parallelism.
    machine : devices.
    engine : engine whose memory model is ``reserve``.
    capacity : memory of a device [B].
    drafted : drafted tokens per step, 0 without speculative decoding [token].

    Returns
    -------
    Size [B].

    Raises
    ------
    InputError : the engine's entry lacks a number.
    """
    tensor = int(strategy.tp)
    base = default(engine, "reserve_base", machine, tensor)
    r = {name: item.value for name, item in engine.reserve.items()}
    if base is not None:
        size = base + needed(engine, "reserve_per_device", machine, tensor) * tensor * int(strategy.pp)
        size += r["attention_dp"] if strategy.attention_dp > 1 else 0.0
    elif r:
        size = _by_formula(r, model, strategy, machine, engine)
    else:  # the share is stated, or a release that knows no formula
        return capacity * (1.0 - needed(engine, "memory_share", machine, tensor))
    size += r.get("speculative", 0.0) if drafted else 0.0
    return capacity - (capacity - size) * _beside_vision(r, model)


def _by_formula(r: Mapping[str, float], model: Model, strategy: Strategy, machine: Machine, engine: Engine) -> float:
    """Return the reserve of releases that compute it from the chunk of prompts and from the graphs [B]."""
    tensor, ranks = int(strategy.tp), int(strategy.attention_dp)
    graphs = needed(engine, "graph_capture_maximum_sequences", machine, tensor)
    tokens = needed(engine, "max_num_batched_tokens", machine)  # of the server: it reserves before it divides them
    size = (
        r["base"]
        + r["per_prefill_token"] * max(tokens, r["minimum_prefill_tokens"])
        + r["per_graph_sequence"] * graphs
        + r["per_device"] * tensor * int(strategy.pp)
    )
    if ranks > 1:
        size += r["attention_dp_per_graph_sequence_and_rank"] * graphs * ranks
        size += r["attention_dp_extra"] * graphs * ranks if graphs > r["attention_dp_extra_from"] else 0.0
    if "per_prefill_graph" in r and not _has_vision(model) and replayed(model, strategy, machine, engine) > 0.0:
        ranges = engine.raw["defaults"]["prefill_graph_sizes"]
        captured = sum(each <= tokens for first, last, step in ranges for each in range(first, last + 1, step))
        size += r["mla_prefill_graphs"] if model.latent else r["per_prefill_graph"] * captured
    if machine.device.room > r["floor_from"]:
        size = max(size, r["floor"])
    return size


def _has_vision(model: Model) -> bool:
    """Whether the model has a vision tower."""
    return any(stack.role == "vision" for stack in model.stacks)


def _beside_vision(r: Mapping[str, float], model: Model) -> float:
    """Return the factor on the share of memory for weights and cache where images are encoded too, 1 for text alone.

    The engine reads the tower's size from two fields of the configuration, and takes that of ViT-L/14 where one has another name.
    """
    if "vision_share" not in r or not _has_vision(model):
        return 1.0
    tower = model.config.get("vision_config")
    tower = tower if isinstance(tower, dict) else {}
    layers = float(tower.get("num_hidden_layers", r["vision_layers"]))
    width = float(tower.get("hidden_size", r["vision_width"]))
    size = layers * width**2 / (r["vision_layers"] * r["vision_width"] ** 2)
    factor = 1.0 - r["vision_per_size"] * (size - 1.0)
    return r["vision_share"] * min(max(factor, r["vision_least"]), r["vision_most"])
