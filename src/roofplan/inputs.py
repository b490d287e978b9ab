"""Inputs of every command, each declared once.

The command line, ``--request``, the signatures of the Python functions and the JSON Schema of an answer's inputs are derived from these records.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import wraps
from typing import Any, Self, get_type_hints

from roofplan.errors import InputError, nearest

STDIN = "stdin:"
"""Text that replaces a lone ``-`` on its way to the readers."""

NESTED = ("limits", "demands", "workload")
"""Objects of a request whose members are inputs."""

Text = str | int | float
"""Types that Python accepts for an input that the command line reads as text, with its unit where it has one."""


def asked(
    text: str,
    default: Any = None,
    *,
    name: str = "",
    positional: bool = False,
    required: bool = False,
    was: str = "",
    also: str = "",
    anything: bool = False,
    several: bool = False,
    parts: Sequence[str] = (),
) -> Any:
    """Return a field of `Inputs`.

    Parameters
    ----------
    text : help text.
    name : its name where that is not a Python identifier.
    positional, required : whether it stands by its place, and must be given.
    was, also : its former name, and another that the field uses.
    anything : whether Python may also give configurations and models themselves.
    several : whether values are joined by commas where it is given more than once.
    parts : names that stand for ``NAME=VALUE`` in it, such as tp for a pin of the strategy.
    """
    about = {"help": text, "name": name, "positional": positional, "required": required, "was": was, "also": also}
    about |= {"anything": anything, "several": several, "parts": tuple(parts)}
    return field(default=default, metadata=about)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a command is asked."""

    @classmethod
    def each(cls) -> dict[str, Field[Any]]:
        """Return the fields by the names of their flags and JSON keys."""
        return {one.metadata["name"] or one.name: one for one in fields(cls)}

    @classmethod
    def kinds(cls) -> dict[str, Any]:
        """Return the types of the inputs by the same names."""
        hints = get_type_hints(cls)
        return {name: hints[one.name] for name, one in cls.each().items()}

    def __post_init__(self) -> None:
        for one in fields(self):
            object.__setattr__(self, one.name, _kept(getattr(self, one.name), one))

    @classmethod
    def of(cls, given: Mapping[str, Any], what: str = "inputs") -> Self:
        """Return inputs by their names; an input that is missing or None gets its default.

        Parameters
        ----------
        what : name of the caller, for a refusal.

        Raises
        ------
        InputError : an unknown name, a name given twice, or a value of the wrong type.
        """
        known = cls.each()
        return cls(**{known[name].name: value for name, value in cls._named(given, what).items() if value is not None})

    @classmethod
    def _named(cls, given: Mapping[str, Any], what: str) -> dict[str, Any]:
        """Return the given values by current names."""
        known = cls.each()
        out: dict[str, Any] = {}
        for name, as_given in given.items():
            now, value = cls.spelt(name, as_given)
            if now in known and known[now].metadata["was"] == name:
                warnings.warn(f"{name} is called {now} now", DeprecationWarning, stacklevel=4)
            if now in out and known[now].metadata["several"]:
                out[now] = f"{out[now]},{value}"
                continue
            if now in out:
                raise InputError(f"{what}: {now} is given twice", argument=now, value=str(value))
            if now not in known:
                near = nearest(now, known)
                hint = f" Nearest: {', '.join(near)}" if near else ""
                raise InputError(f"{what}: unknown input {now!r}.{hint}", argument=what, value=now, nearest=near)
            out[now] = value
        return out

    @classmethod
    def spelt(cls, name: str, value: Any) -> tuple[str, Any]:
        """Return an input by its current name: of a former name, of another name, or of a part of it such as tp."""
        for new, one in cls.each().items():
            about = one.metadata
            if name in about["parts"]:
                return new, f"{name}={value}"
            if name and name in {about["was"], about["also"]}:
                return new, value
        return name, value

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs of an earlier answer, or of a document with inputs alone, by their names.

        Raises
        ------
        InputError : unknown names, or values of the wrong type.
        """
        found = document.get("inputs", document)
        if not isinstance(found, dict):
            raise InputError("--request: holds no inputs", argument="--request")
        flat = {name: value for name, value in found.items() if name not in NESTED or not isinstance(value, dict)}
        for name in NESTED:
            flat |= found[name] if isinstance(found.get(name), dict) else {}
        named = {name: value for name, value in cls._named(flat, "--request").items() if value is not None}
        for name, one in cls.each().items():
            try:
                if name in named:
                    _kept(named[name], one, document=True)
            except InputError as error:
                raise InputError(f"--request: {error.message}", argument="--request", value=str(named[name])) from None
        return named

    def as_json(self) -> dict[str, Any]:
        """Return the inputs by their names."""
        found = {name: getattr(self, one.name) for name, one in self.each().items()}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def _kept(value: Any, declared: Field[Any], *, document: bool = False) -> Any:
    """Return a value as records keep it: numbers become text, and a single text may stand for a list of one.

    Raises
    ------
    InputError : a value of another type than the default.
    """
    name, default = declared.metadata["name"] or declared.name, declared.default
    if isinstance(default, tuple):
        several = (value,) if isinstance(value, str) else value
        if isinstance(several, Sequence) and all(isinstance(item, str) for item in several):
            return tuple(dict.fromkeys(several))
        raise InputError(f"{name} is {value!r}; expected a list of texts", argument=name, value=str(value))
    if isinstance(default, bool):
        if isinstance(value, bool):
            return value
        raise InputError(f"{name} is {value!r}; expected true or false", argument=name, value=str(value))
    if isinstance(value, int | float) and not isinstance(value, bool) and not declared.metadata["anything"]:
        return str(int(value)) if float(value).is_integer() else str(value)
    if value is None or isinstance(value, str) or (declared.metadata["anything"] and not document):
        return default if value is None else value
    raise InputError(
        f"{name} is {value!r}; expected a text, with its unit where it has one", argument=name, value=str(value)
    )


def takes(record: type[Inputs]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator for functions whose keywords are inputs.

    The decorated function takes the inputs as keywords or as one record. It is called with the record, and its signature shows the inputs.

    Parameters
    ----------
    record : the record of the inputs.

    Returns
    -------
    The decorator.

    Raises
    ------
    InputError : from the decorated function, for inputs that are unknown, doubled or misplaced, or without a model.
    """

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        own = list(inspect.signature(function).parameters.values())[1:]
        beside = {one.name for one in own}

        @wraps(function)
        def called(*given: Any, **named: Any) -> Any:
            others = {name: value for name, value in named.items() if name in beside}
            inputs = {name: value for name, value in named.items() if name not in beside}
            whole = bool(given) and isinstance(given[0], Inputs)
            twice = [name for name in POSITIONS[: len(given)] if name in inputs]
            if twice or len(given) > len(POSITIONS) or (whole and (inputs or len(given) > 1)):
                said = (
                    "a record of inputs stands alone"
                    if whole
                    else f"{' and '.join(POSITIONS)} alone stand by their place, each once"
                )
                raise InputError(f"{function.__name__}: {said}", argument=(*twice, *inputs, *POSITIONS)[0])
            if whole and not isinstance(given[0], record):
                kind = type(given[0]).__name__
                raise InputError(
                    f"{function.__name__}: takes {record.__name__}, not {kind}", argument="model", value=kind
                )
            asked = (
                given[0] if whole else record.of(dict(zip(POSITIONS, given, strict=False)) | inputs, function.__name__)
            )
            if getattr(asked, "model", None) is None:
                raise InputError(f"{function.__name__}: model is missing", argument="model")
            return function(asked, **others)

        kinds = record.kinds()
        shown = [
            inspect.Parameter(
                one.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD if name in POSITIONS else inspect.Parameter.KEYWORD_ONLY,
                default=one.default,
                annotation=kinds[name],
            )
            for name, one in sorted(record.each().items(), key=lambda item: item[0] not in POSITIONS)
        ]
        called.__signature__ = inspect.Signature([*shown, *own])  # type: ignore[attr-defined]
        said = "\n".join(f"{name} : {one.metadata['help']}." for name, one in record.each().items())
        called.__doc__ = re.sub(
            r"(?m)^asked : .*$", lambda line: f"{line[0]} These are:\n{said}", inspect.getdoc(function) or ""
        )
        return called

    return decorated


POSITIONS = ("model", "on")
"""Inputs that the Python functions accept by position."""

MACHINES = "ID[:COUNT|:HOSTSxPER][@NETWORK[xPORTS]]; repeat to compete; absent: "
PLACE = "whose electricity, an ISO code of three letters, or WOR"
EXCHANGE = "rate of another currency that prices are given in, EUR=1.04"


@dataclass(frozen=True, kw_only=True)
class OfModel(Inputs):
    """A question of a model."""

    model: Any = asked(
        "- (stdin), a config.json or its folder, a catalogue id or Hub name, or hf:ORG/NAME",
        positional=True,
        required=True,
        anything=True,
    )


@dataclass(frozen=True, kw_only=True)
class Lengths(Inputs):
    """Mean lengths of requests."""

    input: Text = asked("mean prompt, tokens", "1024", also="isl")
    output: Text = asked("mean answer, tokens", "256", also="osl")


@dataclass(frozen=True, kw_only=True)
class Rated(Inputs):
    """Requests that arrive at a rate, and limits on what their users feel."""

    rate: str | None = asked("requests that arrive, 4req/s")
    slo: str | None = asked("limits on what users feel of them: ttft=500ms@p99,tpot=50ms@p95", several=True)


@dataclass(frozen=True, kw_only=True)
class Arriving(Rated, Lengths):
    """Requests that arrive in one of several ways."""

    clients: Text | None = asked("load: clients who each wait for their answer, then send the next request")
    burst: Text | None = asked("load: requests that arrive at once")
    trace: str | None = asked("load: a table of arrivals, inputs and outputs; --rate scales its times")
    burstiness: Text = asked("shape of the gamma distributed intervals: 1 Poisson, inf constant", "1")
    lengths: str = asked("fixed, uniform:LOW-HIGH or lognormal:SIGMA around --input and --output", "fixed")
    requests: Text | None = asked("how many; a trace has its own")
    duration: str | None = asked("of the arrivals instead, 1h")
    warmup: Text = asked("first requests that statistics leave out", "0")
    find: str | None = asked("rate: the highest that keeps --slo")
    seed: Text = asked("of the random numbers", "0")


@dataclass(frozen=True, kw_only=True)
class Load(OfModel, Lengths):
    """A question of a model that is served."""

    on: tuple[str, ...] = asked(MACHINES + "the whole catalogue", ())
    context: Text | None = asked("longest request to admit; default: next power of two above input + output")
    engine: str | None = asked(
        "vllm, sglang, tensorrt-llm, llama.cpp, a version such as vllm-0.11, or any to let them compete"
    )
    precision: str | None = asked(
        "weight formats that compete: fp8, awq, q4_k_m, any; default: the checkpoint's own", several=True
    )
    tpot: str | None = asked("limit: time per output token, 50ms")
    prefix_hit: Text = asked("share of each prompt found in the prefix cache, 30%", "0")
    price: str = asked("rent, contract, spot, own, or a price per device such as 2.50USD/h", "rent")


@dataclass(frozen=True, kw_only=True)
class AtFullLoad(Load):
    """A question of a steady state, whose costs are counted at a share of full load."""

    utilisation: Text = asked("share of full load at which a token's cost is counted", "100%")


@dataclass(frozen=True, kw_only=True)
class Planned(Rated):
    """What a serving plan must keep, and what of it is settled."""

    kv_precision: str | None = asked("cache formats that compete; default: the checkpoint's own", several=True)
    ttft: str | None = asked("limit: time to the first token, without waiting for a seat, 500ms")
    tokens_per_second_per_user: Text | None = asked("limit: least rate of one user, 20")
    budget: str | None = asked("limit: 20USD/h")
    power: str | None = asked("limit: at the wall, 10kW")
    devices: Text | None = asked("limit: most devices")
    concurrency: Text | None = asked("demand: users at once", also="users")
    datacenter: bool = asked("leave out cards whose licence forbids data centres", False)
    strategy: str | None = asked(
        "pins: tp=8,pp=2,dp=1,ep=8,attention_dp=4; the rest is searched",
        several=True,
        parts=("tp", "pp", "dp", "ep", "attention_dp"),
    )
    best: str = asked(
        "cost, throughput, latency, devices or energy; without a limit on time, of what takes up to 50 ms a token",
        "cost",
    )
    set: str | None = asked(
        "engine settings in its own names: max_num_seqs=128,max_num_batched_tokens=2048,gpu_memory_utilization=0.9,block_size=16",
        several=True,
    )
    draft: str | None = asked("multi-token prediction K:ACCEPTANCE, such as 1:0.85", was="draft_tokens")


@dataclass(frozen=True, kw_only=True)
class ServeInputs(Planned, AtFullLoad):
    """Inputs of ``roofplan serve``."""

    top: Text = asked("plans to show", "2")


@dataclass(frozen=True, kw_only=True)
class SimulateInputs(Arriving, Planned, Load):
    """Inputs of ``roofplan simulate``."""

    route: str = asked("how replicas are chosen: least-outstanding or round-robin", "least-outstanding")


@dataclass(frozen=True, kw_only=True)
class TrainInputs(OfModel):
    """Inputs of ``roofplan train``."""

    on: tuple[str, ...] = asked(MACHINES + "servers of the catalogue", ())
    tokens: str | None = asked("length of the run: 1T, 300B, or chinchilla for 20 a parameter; absent: one step alone")
    compute: str | None = asked("length of the run by its work instead: 3e24 or 1e9TFLOP")
    batch: str | None = asked("512seq or 4194304tok a step; default: 4 Mi tokens, 64 Ki in fine-tuning")
    sequence: str | None = asked("tokens of a sequence, 8k; default: 4096 where the model has them")
    framework: str | None = asked(
        "megatron, megatron-bridge, torchtitan, deepspeed, llm-foundry, litgpt, fsdp-qlora, or a version"
    )
    precision: str | None = asked("of the products: bf16, fp16, fp8, mxfp8 or nvfp4")
    optimizer: str = asked("adam, adam-bf16, adam-8bit, adam-fp32, sgd-momentum, adafactor or muon", "adam")
    method: str = asked("full, lora, qlora or dora", "full")
    rank: str | None = asked("width of a low-rank update, 16")
    base: str | None = asked("format of the frozen weights; default: bnb-nf4 for qlora, bf16 for lora")
    imbalance: str | None = asked("tokens of the busiest rank of experts over their mean, 1")
    capacity: str | None = asked(
        "tokens that an expert takes over their mean, 1.25: padded to as many, the rest dropped; absent: all"
    )
    fabric: str | None = asked(
        "a tapered network: pod=3072,taper=7 where seven devices share the rate of one beyond pods of 3,072"
    )
    strategy: str | None = asked(
        "pins: tp=8,pp=2,cp=1,dp=32,ep=8,micro_batch=1,interleave=5,zero=1,recompute=full,recomputed=50%,schedule=1f1b,offload=activations,shard=8",
        several=True,
        parts=("tp", "pp", "cp", "dp", "ep", "micro_batch"),
    )
    deadline: str | None = asked("limit: 30d from the first step to the last, failures counted")
    budget: str | None = asked("limit: 2MUSD for the run")
    devices: Text | None = asked("limit: most devices")
    price: str = asked("rent, contract, spot, own, or a price per device such as 2.50USD/h", "rent")
    failures: str | None = asked("llama3, rsc-1, consumer or article; default: by class of card")
    checkpoint: str = asked("sync, async or memory", "sync")
    policy: str = asked("on a failure: restart, or drop the failed copy until it is back", "restart")
    place: str = asked(PLACE, "WOR")
    best: str | None = asked("time, cost, devices or memory; default: time, without --on cost")
    top: Text = asked("plans to show", "2")


@dataclass(frozen=True, kw_only=True)
class ModelInputs(OfModel):
    """Inputs of ``roofplan model``."""

    context: Text | None = asked("tokens at which the cache is counted, 8192 where the model has them")
    kv_precision: str = asked("format of the cache", "bf16")


@dataclass(frozen=True, kw_only=True)
class DeviceInputs(Inputs):
    """Inputs of ``roofplan device``."""

    device: str | None = asked("id or alias", positional=True, required=True)
    what_is: str | None = asked("tell which peak a quoted rate is, such as 1979TFLOPS")


@dataclass(frozen=True, kw_only=True)
class ListInputs(Inputs):
    """Of the lists."""

    text: str = asked("part of an id, name or alias", "", positional=True)


@dataclass(frozen=True, kw_only=True)
class ModelsInputs(ListInputs):
    """Inputs of ``roofplan models``."""

    families: bool = asked("list the model_types that are understood", False)


@dataclass(frozen=True, kw_only=True)
class SchemaInputs(Inputs):
    """Inputs of ``roofplan schema``."""

    command: str | None = asked(
        "a command that answers in JSON, such as serve, train, validate or cost tokens",
        positional=True,
        required=True,
    )
    part: str | None = asked("the second word of a command that has two", positional=True)


@dataclass(frozen=True, kw_only=True)
class ClaimsInputs(Inputs):
    """Inputs of ``roofplan claims``."""

    text: str = asked("part of an id or sentence", "", positional=True)
    topic: str | None = asked("only this topic")


@dataclass(frozen=True, kw_only=True)
class ValidateInputs(Inputs):
    """Inputs of ``roofplan validate``."""

    kind: str = asked("training or inference", "", positional=True, required=True)
    file: str = asked("a CSV file of measured runs; - for the catalogue's own", "", positional=True, required=True)
    fail_above: str | None = asked("exit 1 if a metric's mean error of sources is above, 10%")


@dataclass(frozen=True, kw_only=True)
class CalibrateInputs(Inputs):
    """Inputs of ``roofplan calibrate``."""

    with_: tuple[str, ...] = asked(
        "a CSV file of your own runs, as validate reads them; repeat for more files", (), name="with"
    )
    dry_run: bool = asked("show what they do to the constants, keep nothing", False)
    forget: bool = asked("remove the local profile", False)


@dataclass(frozen=True, kw_only=True)
class ChipInputs(Inputs):
    """Inputs of ``roofplan cost chip``."""

    device: str | None = asked("a catalogue id; absent: a chip of your own", positional=True)
    node: str | None = asked("process of your own chip: n7, n5, 4n, n3")
    area: str | None = asked("of each of its dies, 814mm2")
    dies: Text = asked("of them on a package", "1")
    hbm: str | None = asked("stacked memory, 80GiB")
    gddr: str | None = asked("memory around the package instead, 24GiB")
    memory: str | None = asked("its generation: HBM3, HBM3e, GDDR6X")
    units: Text | None = asked("equal units on a die, such as 144")
    sold: Text | None = asked("units that a sold die works with, such as 132")
    price: str | None = asked("at which it is sold, 30000USD")
    volume: Text | None = asked("parts that share the design, 1M")


@dataclass(frozen=True, kw_only=True)
class Owning(Inputs):
    """What a machine of one's own costs."""

    card: str | None = asked("owning: price of a device, 1600USD; default: the newest known")
    server: str | None = asked("owning: price of a host without devices, 20000USD")
    networking: str | None = asked("owning: network cards and switches in all, 7200USD")
    years: Text = asked("owning: of use", "3")
    interest: Text = asked("owning: per year, 8%", "0%")
    residual: Text = asked("owning: share of the price that a sale at the end brings, 20%", "0%")
    electricity: str | None = asked("owning: price, 0.1USD/kWh; default: of the place")
    pue: Text | None = asked("owning: the site's power over the machine's; default: the newest survey")
    hosting: str | None = asked("owning: rack and care in all, 375USD/month")
    staff: str | None = asked("owning: in all, 2USD/h")
    exchange: str | None = asked(EXCHANGE)
    place: str = asked(PLACE, "WOR")


@dataclass(frozen=True, kw_only=True)
class MachineInputs(Owning):
    """Inputs of ``roofplan cost machine``."""

    on: tuple[str, ...] = asked("ID[:COUNT|:HOSTSxPER][@NETWORK[xPORTS]]; repeat to compare", ())
    power: str | None = asked("at the wall, 5kW; default: at load")
    rack: str | None = asked("power that a rack gives and cools, 20kW")


@dataclass(frozen=True, kw_only=True)
class TokensInputs(Owning, AtFullLoad):
    """Inputs of ``roofplan cost tokens``."""

    tokens: str = asked("of a month, in and out, 1B/month; several: 10M,1B,10B/month", "1B/month", several=True)
    price: str = asked(
        "rent, contract, spot, own, or a price per device such as 2.50USD/h; several: rent,contract,own",
        "rent",
        several=True,
    )
    peak: Text = asked("highest demand of a day over its mean, 1 to 2", "1")
    autoscale: bool = asked("let rented machines go in the quiet hours", False)
    api_price: str | None = asked("IN,OUT in USD per million tokens instead of the listed, 0.15,0.60")
    training_cost: str | None = asked("what training the model cost, 5.6MUSD")
    lifetime_tokens: str | None = asked("tokens that the model serves in its life, 100T")


@dataclass(frozen=True, kw_only=True)
class RentInputs(Inputs):
    """Inputs of ``roofplan cost rent``."""

    device: str | None = asked("a catalogue id", positional=True, required=True)
    provider: str = asked("only this one's quotations", "")


@dataclass(frozen=True, kw_only=True)
class HistoryInputs(Inputs):
    """Inputs of ``roofplan cost history``."""

    old: str = asked("device that another is set against", "v100-sxm2-32", name="from")
    new: str = asked("that other", "b200", name="to")


LISTS = ("devices", "models", "frameworks", "engines", "networks", "nodes", "prices")
"""Commands that list."""

RECORDS: dict[str, type[Inputs]] = {
    "serve": ServeInputs,
    "simulate": SimulateInputs,
    "train": TrainInputs,
    "model": ModelInputs,
    "device": DeviceInputs,
    "validate": ValidateInputs,
    "calibrate": CalibrateInputs,
    "claims": ClaimsInputs,
    "cost chip": ChipInputs,
    "cost machine": MachineInputs,
    "cost tokens": TokensInputs,
    "cost rent": RentInputs,
    "cost history": HistoryInputs,
    **dict.fromkeys(LISTS, ListInputs),
    "models": ModelsInputs,
}
"""The inputs of every command that answers in JSON."""
