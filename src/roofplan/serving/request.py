"""Parse the flags of ``roofplan serve``: text with units becomes a request."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from roofplan import catalogue
from roofplan.catalogue.machines import LARGEST_BOX, box_size, machine
from roofplan.errors import ConfigError, InputError, UnitError, UnsupportedFeature, choice, nearest
from roofplan.hf.find import HUB, HUB_NAME
from roofplan.inputs import Lengths, Load, ServeInputs, Text
from roofplan.money.machine import OwnershipTerms
from roofplan.records import units
from roofplan.records.engine import Engine
from roofplan.records.hardware import Machine, Server
from roofplan.records.model import Model
from roofplan.records.strategy import pinned_parts
from roofplan.records.workload import Constraints, Workload
from roofplan.serving.plan import OBJECTIVES, Request
from roofplan.serving.settings import settings_of
from roofplan.serving.space import choose_engine, named_engine


def request_of(
    model: Model, asked: ServeInputs, terms: OwnershipTerms | None = None
) -> tuple[Request, list[tuple[str, str]]]:
    """Return the serving request of given inputs.

    Parameters
    ----------
    model : model that is served.
    asked : inputs of ``roofplan serve``, as the user gave them.
    terms : ownership terms, None for the defaults.

    Returns
    -------
    Request, and warnings by code, for software that is planned with the profile of other software.

    Raises
    ------
    RoofplanError : inputs that contradict each other or do not match the model or the catalogue.
    """
    if asked.draft is not None and not model.draft_parameters:
        text = model.config.get("text_config")
        stated = {**model.config, **(text if isinstance(text, dict) else {})}
        drafts = any(
            stated.get(name) for name in ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
        )
        own = "has layers that draft, which are not described" if drafts else "carries no multi-token-prediction layer"
        raise UnsupportedFeature(
            f"--draft: {model.id} {own}, and a separate draft model is not modelled",
            argument="--draft",
            value=asked.draft,
        )
    best = choice(asked.best, OBJECTIVES, "--best")
    load = _workload(asked, model.max_positions, asked.draft)
    check_served(model, load, asked.context)
    constraints = _constraints(asked)
    _check_pace(constraints, load)
    machines = tuple(m for text in asked.on for m in machine(text)) if asked.on else whole_catalogue(constraints)
    other, engine = None, asked.engine
    if engine is not None and engine.lower() == "any":
        engine = "any"
    elif engine is not None:
        _refuse_out_of_scope(engine.lower(), "--engine")
        other = catalogue.stand_in("engines", engine)
        known = catalogue.find("engines", engine, "--engine")
        engine = engine if other else known
    formats = tuple(dict.fromkeys(_as_published(one, model) for one in precisions(asked.precision, "--precision")))
    request = Request(
        model=model,
        machines=machines,
        workload=load,
        constraints=constraints,
        engine=engine,
        pins=pins(asked.strategy),
        precisions=formats,
        kv_precisions=precisions(asked.kv_precision, "--kv-precision"),
        price=asked.price,
        terms=terms,
        utilisation=utilisation_of(asked.utilisation),
        best=best,
        settings=settings_of(asked.set, _engine_to_set(engine, machines if asked.on else (), model, formats))
        if asked.set
        else {},
        named=hub_name(asked.model),
    )
    return request, [("planned_as", other.text)] if other else []


def _engine_to_set(name: str | None, machines: Sequence[Machine], model: Model, formats: Sequence[str]) -> Engine:
    """Return the engine whose settings are given: the requested one, else the default one of all machines and formats, else vLLM."""
    if name is not None and name != "any":
        return named_engine(name)
    found = (choose_engine(name, one, model, precision) for one in machines for precision in formats)
    engines = {one.id: one for one in found if one is not None} if name is None else {}
    if name == "any" or len(engines) > 1:
        raise InputError("--set: settings are of one engine; name it with --engine", argument="--set", value=name)
    return next(iter(engines.values()), named_engine("vllm"))


REFUSED = {"int4": "awq, gptq, q4_k_m, nvfp4 or mxfp4", "4bit": "awq, gptq, q4_k_m, nvfp4 or mxfp4"}


def hub_name(asked: object) -> str:
    """Return the Hub name by which the user gave a model, empty for a path, an object or the catalogue's own id.

    Parameters
    ----------
    asked : the model as the user gave it.

    Returns
    -------
    ``ORG/NAME``; the organisation is taken from the catalogue's alias if it is missing.

    Examples
    --------
    >>> hub_name("meta-llama/Llama-3.1-70B-Instruct"), hub_name("Llama-3.1-70B-Instruct"), hub_name("llama-3.1-70b")
    ('meta-llama/Llama-3.1-70B-Instruct', 'meta-llama/Llama-3.1-70B-Instruct', '')
    """
    name = HUB.sub("", asked).removeprefix("hf:") if isinstance(asked, str) else ""
    identity = catalogue.aliases("models").get(name.lower())
    if identity is None or name.lower() == identity:
        of_hub = HUB_NAME.fullmatch(name) and identity is None and not Path(name).exists()
        return name if of_hub or str(asked).startswith("hf:") else ""
    if "/" in name:
        return name
    owner = str(catalogue.model_table(identity).get("hub", "")).partition("/")[0]
    spelt = f"{owner}/{name}".lower()
    return f"{owner}/{name}" if owner and spelt in catalogue.aliases("models") else ""


ANY = ("checkpoint", "fp8", "awq", "q4_k_m")
"""Formats that ``--precision any`` tries: the checkpoint's own, and for each width one that most engines read."""


def known_format(name: str, argument: str) -> str:
    """Return the id of a number format.

    Parameters
    ----------
    name : format as the user spelt it.
    argument : its flag, for the error message.

    Returns
    -------
    Id in the catalogue.

    Raises
    ------
    InputError : no such format, or an ambiguous name; the message lists the choices.
    """
    lowered = catalogue.format_named(name)
    if argument == "--kv-precision":
        lowered = lowered.removesuffix("_e4m3").removesuffix("_e5m2")  # same size and speed
    if lowered in REFUSED and argument == "--precision":
        raise InputError(
            f"{argument}: {name} is not one format; say which: {REFUSED[lowered]}",
            code="unknown_precision",
            argument=argument,
            value=name,
        )
    if lowered == "any":
        raise InputError(
            f"{argument}: any stands alone, and only serve tries formats in turn; name one, such as q4_k_m",
            argument=argument,
            value=name,
        )
    known: Collection[str] = catalogue.formats()
    groups = " (awq-g32 and the like name a group)"
    if argument == "--kv-precision":
        kept = {name.partition("_e")[0] for one in catalogue.ids("engines") for name in catalogue.engine(one).kv}
        known, groups = [one for one in known if one in kept], ""
    if catalogue.without_group(lowered) not in catalogue.formats() or (
        argument == "--kv-precision" and lowered not in known
    ):
        raise InputError(
            f"{argument}: no format {name!r}. Accepted: any, {', '.join(known)}{groups}",
            code="unknown_precision",
            argument=argument,
            value=name,
            nearest=nearest(lowered, known),
        )
    return lowered


def _as_published(precision: str, model: Model) -> str:
    """Return ``checkpoint`` for the format in which a model is published, else the format; 8-bit floats in blocks are 8-bit floats."""
    own = model.quantization.format if model.quantization else model.dtype
    if precision == "fp32":  # the checkpoint's own would be held in 16 bits
        return precision
    return "checkpoint" if precision == own or (precision == "fp8" and own.startswith("fp8-")) else precision


def precisions(text: str | None, argument: str) -> tuple[str, ...]:
    """Return the formats to try."""
    if text is None:
        return ("checkpoint",)
    if text.strip().lower() == "any":
        return ANY if argument == "--precision" else ("checkpoint", "fp8")
    return tuple(known_format(part, argument) for part in text.split(","))


DEGREES = ("tp", "pp", "dp", "ep", "attention_dp")


def pins(text: str | None) -> dict[str, int]:
    """Return the pinned parallel degrees in a text such as ``tp=8,pp=2``.

    Parameters
    ----------
    text : the text, or degrees as plans print them, ``tp8 pp2``; None for no pins.

    Returns
    -------
    Degree -> ranks [1].

    Raises
    ------
    InputError : a degree that is unknown or given twice, or no whole number.

    Examples
    --------
    >>> pins("tp=8,pp=2")
    {'tp': 8, 'pp': 2}
    """
    out: dict[str, int] = {}
    for name, value, written in pinned_parts(text):
        _refuse_out_of_scope(name, "--strategy")
        if name in out:
            raise InputError(
                f"--strategy: {name} is given twice", code="bad_strategy", argument="--strategy", value=text
            )
        if (stored := catalogue.format_named(written)) in catalogue.formats():
            raise InputError(
                f"--strategy: {written} is a number format: --precision {stored}",
                code="bad_strategy",
                argument="--strategy",
                value=text,
            )
        choice(name, DEGREES, "--strategy", code="bad_strategy")
        if not value:
            raise InputError(
                f"--strategy: {name} needs a degree: {name}=8", code="bad_strategy", argument="--strategy", value=text
            )
        out[name] = units.parse_count(value, f"--strategy {name}")
    return out


def draft(text: str | None) -> tuple[int, float]:
    """Return the drafted tokens and their acceptance rate in a text such as ``2:0.8``."""
    if text is None:
        return 0, 0.0
    count, _, share = text.partition(":")
    if not share:
        raise UnitError(
            f"--draft: {text} names no acceptance; write K:ACCEPTANCE, such as 1:0.85", argument="--draft", value=text
        )
    accepted = units.parse_share(share, "--draft")
    if accepted >= 1.0:
        raise UnitError(f"--draft: an acceptance of {accepted:g} is not below 1", argument="--draft", value=text)
    return units.parse_count(count, "--draft"), accepted


def lengths_of(given: Lengths, context: Text | None, positions: int | None) -> tuple[int, int, int]:
    """Return mean prompt and answer, and the longest request, by default the next power of two above both.

    Parameters
    ----------
    given : inputs of a command with lengths.
    context : longest request, None for the default.
    positions : longest context of the model, which bounds the default; None where it is not known [token].

    Returns
    -------
    Prompt, answer and longest request [token].

    Raises
    ------
    UnitError : a length that cannot be read, or a context shorter than prompt and answer.
    """
    asked, answered = units.parse_length(given.input, "--input"), units.parse_length(given.output, "--output")
    if context is not None:
        longest = units.parse_length(context, "--context")
    else:
        longest = 1 << (asked + answered - 1).bit_length()
        if positions is not None and asked + answered <= positions:
            longest = min(longest, positions)
    if longest < asked + answered:
        raise UnitError(
            f"--context: {longest:,} is shorter than --input {asked:,} + --output {answered:,}",
            argument="--context",
            value=longest,
        )
    return asked, answered, longest


def _workload(given: Load, positions: int | None, drafted: str | None) -> Workload:
    asked, answered, longest = lengths_of(given, given.context, positions)
    count, accepted = draft(drafted)
    hit = units.parse_share(given.prefix_hit, "--prefix-hit")
    if hit >= 1.0:
        raise UnitError(
            "--prefix-hit: at least one token of a prompt is computed, so the share must be below 1",
            argument="--prefix-hit",
            value=str(given.prefix_hit),
        )
    return Workload(input=asked, output=answered, context=longest, prefix_hit=hit, drafted=count, acceptance=accepted)


def utilisation_of(text: str | float) -> float:
    """Return the share of full load at which costs are counted [1]."""
    share = units.parse_share(text, "--utilisation")
    if share <= 0:
        raise UnitError(
            "--utilisation: a machine that is never busy has no cost per token",
            argument="--utilisation",
            value=str(text),
        )
    return share


OUT_OF_SCOPE = {
    "prefill": "disaggregated prefill",
    "decode": "disaggregated prefill",
    "cp": "context parallelism",
    "dcp": "context parallelism",
    "pcp": "context parallelism",
    "offload": "weights or experts on the CPU",
    "ktransformers": "experts on the CPU",
    "dynamo": "disaggregated prefill",
    "mooncake": "disaggregated prefill",
}
"""Words in a request for features that are not modelled, and the feature's name."""


def _refuse_out_of_scope(word: str, argument: str) -> None:
    if word in OUT_OF_SCOPE:
        raise UnsupportedFeature(
            f"{argument}: {word}: {OUT_OF_SCOPE[word]} is not modelled yet", argument=argument, value=word
        )


def check_served(model: Model, load: Workload, context: object) -> None:
    """Refuse a model that does not generate, or a context beyond its positions.

    Parameters
    ----------
    model : model that is served.
    load : lengths of its requests.
    context : longest request as it was given, None where it was not.

    Raises
    ------
    UnsupportedFeature : an encoder.
    ConfigError : how much a token computes is not known.
    UnitError : the context is too long.
    """
    if not model.generates:
        raise UnsupportedFeature(
            f"{model.id} ({model.family}) is an encoder without a decode phase: it is not served token by token",
            argument="MODEL",
            value=model.id,
        )
    if model.active is None:
        raise ConfigError(
            "config.json lacks num_experts_per_tok: how much one token computes is not guessed",
            argument="num_experts_per_tok",
        )
    if model.max_positions is None or load.context <= model.max_positions:
        return
    if context is None and load.input + load.output <= model.max_positions:
        return
    beyond = f"beyond the {model.max_positions:,} positions of {model.id} (max_position_embeddings)"
    if context is not None:
        text, value = f"--context: {load.context:,} tokens are {beyond}", load.context
    else:
        value = load.input + load.output
        answer = min(load.output, max(1, model.max_positions // 4))
        text = (
            f"--input {load.input:,} + --output {load.output:,} = {value:,} tokens are {beyond};"
            f" --input {model.max_positions - answer} --output {answer} fit"
        )
    raise UnitError(text, code="context_too_long", argument="--context", value=value)


def _constraints(asked: ServeInputs) -> Constraints:
    def quantity(value: Any, unit: str, flag: str) -> float | None:
        return None if value is None else units.parse(value, unit, flag)

    def count(value: Any, flag: str) -> int | None:
        return None if value is None else units.parse_count(value, flag)

    per_user, flag = asked.tokens_per_second_per_user, "--tokens-per-second-per-user"
    if per_user is not None:
        plain = str(per_user).replace(".", "", 1).isdigit()
        per_user = units.parse_amount(per_user, flag) if plain else units.parse(per_user, "token/s", flag)
    return Constraints(
        tpot=quantity(asked.tpot, "s", "--tpot"),
        ttft=quantity(asked.ttft, "s", "--ttft"),
        tokens_per_second_per_user=per_user,
        budget=quantity(asked.budget, "USD/h", "--budget"),
        power=quantity(asked.power, "W", "--power"),
        devices=count(asked.devices, "--devices"),
        concurrency=count(asked.concurrency, "--concurrency"),
        rate=quantity(asked.rate, "request/s", "--rate"),
        datacenter=asked.datacenter,
    )


def _check_pace(limits: Constraints, load: Workload) -> None:
    """Raise an error for limits on the time between tokens if answers have one token."""
    for flag, value in (("--tpot", limits.tpot), ("--tokens-per-second-per-user", limits.tokens_per_second_per_user)):
        if value is not None and load.output == 1:
            text = f"{flag}: answers of one token (--output 1) have no time between tokens; limit --ttft instead"
            raise InputError(text, argument=flag, value=value)


def whole_catalogue(constraints: Constraints) -> tuple[Machine, ...]:
    """Return machines of all usable catalogue devices: one device to a full server, and two servers with a network."""
    out: list[Machine] = []
    for name in catalogue.ids("accelerators"):
        found = catalogue.accelerator(name)
        if found.bandwidth is None or not found.peak or found.memory is None:
            continue
        if constraints.datacenter and found.geforce_licence:
            continue
        out += machine(name)
        rented = {price.provider for price in catalogue.prices(name)}
        full = [box for box in catalogue.servers_of(name) if box.provider in {"", *rented}]
        if full and full[-1].network and box_size(found) == full[-1].count:
            out += machine(f"{name}:2x{full[-1].count}")
        out += rigs(name, full)
    return tuple(out)


def rigs(device: str, boxes: Sequence[Server]) -> list[Machine]:
    """Return clusters of a device's small boxes, as large as its largest box, on each network with priced cards."""
    networks = [
        link.id
        for link in map(catalogue.link, catalogue.ids("links"))
        if link.kind == "network" and "nic_price" in link.quantities
    ]
    return [
        one
        for box in boxes
        if box.network in networks and "price" in box.quantities and box.count < boxes[-1].count <= LARGEST_BOX
        for network in networks
        for one in machine(f"{device}:{boxes[-1].count // box.count}x{box.count}@{network}")
    ]
