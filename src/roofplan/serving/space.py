"""The search space: engine, precisions and parallel degrees."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from roofplan import catalogue
from roofplan.catalogue import format_entry
from roofplan.errors import StrategyError
from roofplan.hf.quantization import with_formats
from roofplan.operations import whole_model
from roofplan.operations.table import Step
from roofplan.records.engine import Engine
from roofplan.records.hardware import CPU, Machine
from roofplan.records.model import Attention, LatentAttention, Layer, Mixer, Model, Stack
from roofplan.records.strategy import Strategy, divisors
from roofplan.serving.rules import supported
from roofplan.timing.kernels import PRODUCTS

COMPETING = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")
"""Engines among which ``--engine any`` chooses, each in its newest version."""


def choose_engine(name: str | None, machine: Machine, model: Model, precision: str) -> Engine | None:
    """Return the requested engine, else llama.cpp for its formats and Apple, else vLLM, else the first that runs."""
    if name is not None and name != "any":
        found = named_engine(name)
        return found if supported(found, machine) is None else None
    alone = in_gguf(model, precision) or machine.device.device_class == "apple"
    for candidate in ("llama.cpp",) if alone else COMPETING:
        found = catalogue.engine(catalogue.find("engines", candidate, "--engine"))
        if supported(found, machine) is None:
            return found
    earlier = sorted(map(catalogue.engine, catalogue.ids("engines")), key=lambda one: one.released, reverse=True)
    return next((one for one in earlier if one.name in COMPETING and supported(one, machine) is None), None)


def named_engine(name: str) -> Engine:
    """Return the engine of a name, or the one that stands in for it.

    Parameters
    ----------
    name : id or alias of an engine, or software that another's profile stands in for.

    Returns
    -------
    The engine.

    Raises
    ------
    UnknownName : the catalogue knows neither.
    """
    found, other = catalogue.engine(catalogue.find("engines", name, "--engine")), catalogue.stand_in("engines", name)
    return (
        found
        if other is None
        else found.standing_for(other.name, kernels=other.kernels, vendors=other.vendors, reads=other.reads)
    )


def in_gguf(model: Model, precision: str) -> bool:
    """Return whether weights come in a GGUF file, which one engine reads.

    Parameters
    ----------
    model : model as stored in its checkpoint.
    precision : id of a format, or ``checkpoint``.

    Returns
    -------
    Whether they do.
    """
    if precision != "checkpoint":
        return bool(format_entry(precision).get("gguf"))
    return model.quantization is not None and model.quantization.gguf


def refused_device(name: str | None, machine: Machine, precision: str) -> str:
    """Return why the requested engine does not run on a machine, or that no engine reads the weights there."""
    if name is None or name == "any":
        runs = any(supported(one, machine) is None for one in map(catalogue.engine, catalogue.ids("engines")))
        reads = f" that reads {precision}" if runs and precision != "checkpoint" else ""
        return f"no engine of the catalogue{reads} runs on {machine.device.id}"
    return supported(named_engine(name), machine) or ""


@lru_cache(maxsize=256)
def held_by(model: Model, engine: Engine) -> Model:
    """Return a model as an engine holds it.

    If a checkpoint quantises only its experts, some engines' files quantise the other weights too. Engines without kernels for
    multi-head latent attention cache the keys and values of all heads instead of the latent vectors.

    Parameters
    ----------
    model : model as stored in its checkpoint.
    engine : engine with its format for weights other than experts, and with what it caches of latent attention.

    Returns
    -------
    The model with the formats of its layers and with what they cache.
    """
    plan = model.quantization
    if model.latent and not engine.latent_cached:
        model = _with_mixers(model, _expanded)
    packed, index = engine.memory.get("sparse_latent"), engine.memory.get("indexer_number")
    if packed is not None or index is not None:
        kept, number = (one.value if one else 0.0 for one in (packed, index))
        model = _with_mixers(model, lambda one: _selecting(one, kept, number))
    if plan is None or not plan.only_experts or not engine.beside_experts:
        return model
    return with_formats(model, replace(plan, beside=engine.beside_experts), model.dtype)


def _expanded(mixer: Mixer) -> Mixer:
    """Return latent attention that caches each head's keys and values."""
    return replace(mixer, per_head=mixer.key_dim + mixer.value_dim) if isinstance(mixer, LatentAttention) else mixer


def _selecting(mixer: Mixer, packed: float, number: float) -> Mixer:
    """Return attention to selected tokens with what an engine keeps of an 8-bit latent and of an indexer's number [B]."""
    if isinstance(mixer, LatentAttention) and mixer.top is not None:
        return replace(mixer, packed=packed, index_bytes=number)
    if isinstance(mixer, Attention) and mixer.index_elements and not mixer.index_bytes:
        return replace(mixer, index_bytes=number)
    return mixer


def _with_mixers(model: Model, changed: Callable[[Mixer], Mixer]) -> Model:
    """Return a model whose mixers are changed."""

    def layer(item: Layer) -> Layer:
        return replace(item, mixers=tuple(changed(one) for one in item.mixers))

    def stack(item: Stack) -> Stack:
        made = {one: layer(one) for one, _ in item.kinds()}
        return replace(item, layers=tuple(made[one] for one in item.layers))

    found = tuple(stack(item) for item in model.stacks)
    return model if found == model.stacks else replace(model, stacks=found)


FOUR_BITS = ("awq", "q4_k_m")
"""Formats of about four bits a weight that are offered instead of wider ones: of GPU engines, and of GGUF files."""


def narrower(machine: Machine) -> tuple[str, ...]:
    """Return formats of weights that may be offered on a machine: 8 bits where its devices compute in them, and 4."""
    return ("fp8", *FOUR_BITS) if "fp8" in machine.device.peak else FOUR_BITS


def cache_format(model: Model, asked: str) -> str:
    """Return the format of the KV cache.

    Parameters
    ----------
    model : model, whose checkpoint may state one.
    asked : id of a format, or ``checkpoint``.

    Returns
    -------
    The requested format, else the checkpoint's, else the model's 16-bit type.
    """
    if asked != "checkpoint":
        return asked
    plan = model.quantization
    if plan is not None and plan.kv:
        return plan.kv
    return model.dtype if model.dtype in {"bf16", "fp16"} else "bf16"


def refuses_cache(kv: str, engine: Engine) -> str | None:
    """Return why an engine does not support a cache format, None if it does."""
    if not engine.kv or any(name == kv or name.startswith(f"{kv}_") for name in engine.kv):
        return None
    kept = dict.fromkeys(name.partition("_e")[0] for name in engine.kv)
    return (
        f"{engine.id} keeps no {kv} cache; it keeps {', '.join(name for name in kept if name in catalogue.formats())}"
    )


def strategies(model: Model, machine: Machine, engine: Engine, pins: dict[str, int]) -> list[Strategy]:
    """Return all strategies whose degrees multiply to the device count; axes without effect are collapsed."""
    found: dict[tuple[int, ...], Strategy] = {}
    for tp in divisors(machine.count):
        for pp in divisors(machine.count // tp):
            dp = machine.count // tp // pp
            for candidate in _variants(tp, pp, dp, model, engine, pins.get("ep")):
                degrees = candidate.as_dict()
                if all(degrees.get(name) == value for name, value in pins.items()):
                    found.setdefault(tuple(degrees.values()), candidate)
    return list(found.values())


def _variants(tp: int, pp: int, dp: int, model: Model, engine: Engine, ep: int | None = None) -> list[Strategy]:
    """Return the strategies of given tp, pp and dp; all ranks are expert-parallel or none, unless `ep` is given."""
    made = [Strategy(tp=tp, pp=pp, dp=dp)]
    if model.experts and engine.expert:
        if engine.expert_identity == "tp*dp" and engine.data and tp * dp > 1:
            made.append(Strategy(tp=tp, pp=pp, dp=dp, ep=tp * dp))
        elif tp > 1:
            made.append(Strategy(tp=tp, pp=pp, dp=dp, ep=tp))
            if ep is not None and 1 < ep < tp and tp % ep == 0:
                made.append(Strategy(tp=tp, pp=pp, dp=dp, ep=ep))
    if engine.data_attention and tp > 1 and (model.latent or model.experts):
        for inner in [tp] if engine.data_attention_degrees == "all" else divisors(tp)[1:]:
            made.append(Strategy(tp=tp, pp=pp, dp=dp, attention_dp=inner))
            if model.experts:
                made.append(Strategy(tp=tp, pp=pp, dp=dp, ep=tp, attention_dp=inner))
    return made


def check_pins(pins: dict[str, int], machines: Sequence[Machine]) -> None:
    """Raise StrategyError for pinned degrees that no machine can hold."""
    product = math.prod(value for name, value in pins.items() if name in {"tp", "pp", "dp"})
    if machines and all(machine.count % product for machine in machines):
        counts = ", ".join(str(n) for n in sorted({m.count for m in machines}))
        text = ",".join(f"{name}={value}" for name, value in pins.items())
        raise StrategyError(
            f"--strategy {text}: degrees multiply to {product}, which does not divide {counts} devices",
            argument="--strategy",
            value=text,
        )


READ_AS = {
    "fp8-block": "fp8",
    "int8-weight": "gptq",
    "bnb-nf4": "bnb4",
    "bnb-nf4-double": "bnb4",
    "bnb-int8": "bnb4",
}
"""Formats that an engine lists under another name; bitsandbytes covers its 4-bit format."""


def undescribed(model: Model, machine: Machine) -> str | None:
    """Return why products with a model's weights cannot be timed on a machine.

    Parameters
    ----------
    model : model in the format of its weights.
    machine : where it runs.

    Returns
    -------
    The reason, None if they can.
    """
    if machine.device.device_class != CPU:
        return None
    step = whole_model(model, Step(sequences=1.0, each=1.0, context=1.0))
    formats = {op.stored for op in step if op.kind in PRODUCTS}
    unknown = sorted(one for one in formats if "cpu_instructions" not in format_entry(one))
    return f"how fast a processor multiplies {unknown[0]} weights is not described" if unknown else None


def refuses_format(model: Model, engine: Engine, machine: Machine) -> str | None:
    """Return why an engine cannot read the weights' format on a machine.

    Parameters
    ----------
    model : model in the format of its weights.
    engine : the engine.
    machine : where it runs.

    Returns
    -------
    The reason, None if it can.
    """
    if why := undescribed(model, machine):
        return why
    if model.quantization is None or not engine.weights:
        return None
    base = model.quantization.format.partition("-g")[0].removesuffix("-channel")
    if {base, READ_AS.get(base, base)} & set(engine.weights):
        return None
    return f"{engine.called} does not read {base} weights"
