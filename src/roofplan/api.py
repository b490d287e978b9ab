"""The Python interface; the command line is a thin layer over it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofplan import catalogue, hf
from roofplan.catalogue import profile
from roofplan.catalogue.machines import LARGEST_BOX, accelerator, box_size, machine
from roofplan.errors import ConfigError, InputError, UnitError, UnknownName, UnsupportedFeature, nearest
from roofplan.inputs import Load, ServeInputs, TokensInputs, TrainInputs, takes
from roofplan.laws import cost
from roofplan.money.listed import Route
from roofplan.money.machine import Terms, own
from roofplan.money.machine import hourly as hourly_cost
from roofplan.money.request import terms_of
from roofplan.money.tokens import Api, Demand, Supply, TokenCosts, api_of, machines_needed, supply
from roofplan.money.uncertainty import Interval
from roofplan.operations import element_bytes, format_entry
from roofplan.records import units
from roofplan.records.calibration import Fit
from roofplan.records.hardware import Accelerator, Machine, Server
from roofplan.records.model import Model
from roofplan.records.source import GRADES
from roofplan.records.strategy import Strategy
from roofplan.records.workload import Constraints, Workload
from roofplan.serving import (
    OBJECTIVES,
    Plan,
    Request,
    Result,
    cached_input_cost,
    footprint,
    search,
    uncached_input_cost,
)
from roofplan.timing.figures import Metric
from roofplan.training import TrainingResult, plan_all
from roofplan.training.request import request_of

if TYPE_CHECKING:
    from roofplan.evidence.fits.own import Refit
    from roofplan.evidence.scoring import Validation


def fit_at_hand(given: Fit | None = None) -> Fit:
    """Return the fit that is given; without one, the shipped constants with those of the local profile over them.

    Raises
    ------
    InputError : a profile that cannot be read, or what is given is no fit.
    """
    if given is None:
        return profile.over(catalogue.shipped_fit(), profile.path())
    if not isinstance(given, Fit):
        shown = type(given).__name__
        raise InputError(
            f"fit: a {shown} is not a Fit; roofplan.catalogue.shipped_fit() returns one", argument="fit", value=shown
        )
    return given


HUB_TIMEOUT = 5.0
"""Seconds that ``hf:`` waits for the network, without retries [s]."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Counts of learned numbers [parameters]."""

    total: int
    active: int | None
    embedding: int
    head: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model with what people ask of it."""

    model: Model

    @property
    def parameters(self) -> Parameters:
        """Return total, active, embedding and head counts."""
        m = self.model
        return Parameters(m.total, m.active, m.embedding, m.head)

    def cache_bytes(self, tokens: int, precision: str = "bf16") -> int:
        """Return the cache of one sequence of `tokens`, constant state included [B]."""
        if tokens <= 0:
            raise UnitError(f"tokens: {tokens} must be greater than zero", argument="tokens", value=tokens)
        return round(
            footprint(self.model, Strategy(), element_bytes(known_format(precision, "precision"))).request(
                float(tokens)
            )
        )


def load_model(source: str | Path | Mapping[str, Any]) -> Loaded:
    """Return a model from a dict, a path to a config.json or its folder, a catalogue id or alias, the Hub cache, or ``hf:ORG/NAME``."""
    if isinstance(source, Mapping):
        return Loaded(hf.from_dict(source))
    return Loaded(read_model(str(source)))


def device(name: str) -> Accelerator:
    """Return an accelerator by id or alias, or of a TOML file of one's own."""
    return accelerator(name, "device")


def read_model(name: str) -> Model:
    """Return the model that MODEL means, in the order: stdin, path, catalogue, Hub cache, ``hf:``."""
    if name in {"-", "stdin:"}:
        return hf.from_text(from_stdin("MODEL"), "stdin")
    if name.startswith("hf:"):
        return hf.from_text(_from_hub(name[3:]), name[3:])
    path = Path(name)
    if hf.exists(path):
        return hf.from_path(path)
    if name.endswith((".json", "/")) or name.startswith(("./", "../", "/", "~")):
        raise ConfigError(f"MODEL: no file {name}", argument="MODEL", value=name)
    known = (
        catalogue.aliases("models")
        if not hf.exists(catalogue.ROOT / "models" / f"{name.lower()}.toml")
        else {name.lower(): name.lower()}
    )
    identity = known.get(name.lower())
    if identity is not None:
        return hf.of_catalogue(identity)
    cached = _from_hub_cache(name)
    if cached is not None:
        return hf.from_text(cached.read_bytes(), name)
    near = nearest(name[: catalogue.LONGEST_NAME], catalogue.ids("models"))
    hint = f" Nearest: {', '.join(near)}." if near else ""
    raise UnknownName(
        f'MODEL: no model "{name[: catalogue.LONGEST_NAME]}" on disk or in the catalogue.{hint} List: roofplan models{f" {name[:5]}" if hint else ""}',
        code="unknown_model",
        argument="MODEL",
        value=name,
        nearest=near,
    )


def from_stdin(argument: str) -> str:
    """Return what standard input holds, or refuse it for the flag that asked."""
    if sys.stdin is None:
        raise InputError(f"{argument}: standard input is closed", argument=argument, value="-")
    try:
        return sys.stdin.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{argument}: standard input: {error}", argument=argument, value="-") from None


def _from_hub_cache(name: str) -> Path | None:
    folder = catalogue.hub_cache() / f"models--{name.replace('/', '--')}" / "snapshots"
    found = sorted(folder.glob("*/config.json")) if "/" in name and hf.exists(folder) else []
    return found[-1] if found else None


def _from_hub(name: str) -> bytes:
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise InputError(
            "hf: needs the extra [hub]: pip install 'roofplan[hub]'",
            code="extra_missing",
            argument="MODEL",
            value=f"hf:{name}",
        ) from None
    try:
        return Path(hf_hub_download(name, "config.json", etag_timeout=HUB_TIMEOUT)).read_bytes()
    except Exception as error:  # noqa: BLE001 - whatever the client raises becomes one line
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"hf:{name}: {first}", code="hub_unreachable", argument="MODEL", value=f"hf:{name}") from None


REFUSED = {"int4": "awq, gptq, q4_k_m, nvfp4 or mxfp4", "4bit": "awq, gptq, q4_k_m, nvfp4 or mxfp4", "int8-all": "int8"}
ANY = ("checkpoint", "fp8", "awq", "q4_k_m")
"""What ``--precision any`` opens: the checkpoint's own and one of each width that most engines read."""


def known_format(name: str, argument: str) -> str:
    """Return a format id, or refuse it with the choices."""
    lowered = catalogue.format_named(name)
    if argument == "--kv-precision":
        lowered = lowered.removesuffix("_e4m3").removesuffix("_e5m2")  # alike in size and speed
    if lowered in REFUSED and argument == "--precision":
        raise InputError(
            f"{argument}: {name} is not one format; say which: {REFUSED[lowered]}",
            code="unknown_precision",
            argument=argument,
            value=name,
        )
    try:
        format_entry(lowered)
    except KeyError:
        near = nearest(lowered, catalogue.formats())
        raise InputError(
            f"{argument}: no format {name!r}. Accepted: any, {', '.join(catalogue.formats())} (awq-g32 and the like name a group)",
            code="unknown_precision",
            argument=argument,
            value=name,
            nearest=near,
        ) from None
    return lowered


def precisions(text: str | None, argument: str) -> tuple[str, ...]:
    """Return the formats that compete."""
    if text is None:
        return ("checkpoint",)
    if text.strip().lower() == "any":
        return ANY if argument == "--precision" else ("checkpoint", "fp8")
    return tuple(known_format(part, argument) for part in text.split(","))


DEGREES = ("tp", "pp", "dp", "ep", "attention_dp")


def pins(text: str | None) -> dict[str, int]:
    """Return pinned parallel degrees from ``tp=8,pp=2``.

    >>> pins("tp=8,pp=2")
    {'tp': 8, 'pp': 2}
    """
    out: dict[str, int] = {}
    for part in (text or "").split(","):
        if not part.strip():
            continue
        name, _, value = part.partition("=")
        name = name.strip().lower().replace("-", "_")
        _refuse_out_of_scope(name, "--strategy")
        if name in out:
            raise InputError(
                f"--strategy: {name} is given twice", code="bad_strategy", argument="--strategy", value=text
            )
        if name not in DEGREES or not value:
            raise InputError(
                f"--strategy: cannot read {part!r}; accepted: {', '.join(f'{d}=N' for d in DEGREES)}",
                code="bad_strategy",
                argument="--strategy",
                value=text,
            )
        out[name] = units.parse_count(value, f"--strategy {name}")
    return out


def draft(text: str | None) -> tuple[int, float]:
    """Return drafted tokens and acceptance from ``2:0.8``."""
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


@takes(ServeInputs)
def plan_serving(
    asked: ServeInputs,
    *,
    terms: Terms | None = None,
    fit: Fit | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Return serving plans, best first.

    Parameters are the flags of ``roofplan serve``, as text with units, or a `ServeInputs` of them; `terms` are those on which machines are
    owned, `fit` the constants that predictions rest on, by default those of `fit_at_hand`.

    Raises
    ------
    RoofplanError : bad input, or `NoPlan` where nothing satisfies the constraints.
    """
    loaded = model_of(asked.model)
    if not loaded.generates:
        raise UnsupportedFeature(
            f"{loaded.id} ({loaded.family}) is an encoder without a decode phase: roofplan serve plans generation",
            argument="MODEL",
            value=loaded.id,
        )
    if loaded.active is None:
        raise ConfigError(
            "config.json lacks num_experts_per_tok: how much one token computes is not guessed",
            argument="num_experts_per_tok",
        )
    if asked.draft is not None and not loaded.draft_parameters:
        raise UnsupportedFeature(
            f"--draft: {loaded.id} carries no multi-token-prediction layer, and a separate draft model is not modelled",
            argument="--draft",
            value=asked.draft,
        )
    if asked.best not in OBJECTIVES:
        raise InputError(
            f"--best: {asked.best!r} is not an objective; accepted: {', '.join(OBJECTIVES)}",
            argument="--best",
            value=asked.best,
            nearest=nearest(asked.best, OBJECTIVES),
        )
    load = _workload(asked, loaded.max_positions, asked.draft)
    _check_context(loaded, load, asked.context)
    constraints = _constraints(asked)
    _check_pace(constraints, load)
    machines = tuple(m for text in asked.on for m in machine(text)) if asked.on else whole_catalogue(constraints)
    other, engine = None, asked.engine
    if engine is not None:
        _refuse_out_of_scope(engine.lower(), "--engine")
        other = catalogue.stand_in("engines", engine)
        known = catalogue.find("engines", engine, "--engine")
        engine = engine if other else known
    request = Request(
        model=loaded,
        machines=machines,
        workload=load,
        constraints=constraints,
        engine=engine,
        pins=pins(asked.strategy),
        precisions=precisions(asked.precision, "--precision"),
        kv_precisions=precisions(asked.kv_precision, "--kv-precision"),
        price=asked.price,
        terms=terms,
        utilisation=_utilisation(asked.utilisation),
        best=asked.best,
    )
    found = search(request, fit_at_hand(fit), progress)
    found.warnings += [("planned_as", other.text)] if other else []
    return found


def model_of(source: str | Path | Mapping[str, Any] | Model) -> Model:
    """Return the model that a name, a path, a config or a model itself means."""
    if isinstance(source, Model):
        return source
    return load_model(source).model if isinstance(source, Mapping) else read_model(str(source))


@takes(TrainInputs)
def plan_training(
    asked: TrainInputs, *, fit: Fit | None = None, progress: Callable[[int, int], None] | None = None
) -> TrainingResult:
    """Return training plans, best first.

    Parameters are the flags of ``roofplan train``, as text with units, or a `TrainInputs` of them. Predictions rest on `fit`, by
    default on that of `fit_at_hand`.

    Raises
    ------
    RoofplanError : bad input, or `NoPlan` where nothing satisfies the constraints.
    """
    return plan_all(request_of(model_of(asked.model), asked), fit_at_hand(fit), progress)


def validate(
    kind: str,
    source: str | Path | Sequence[Mapping[str, str]],
    *,
    fit: Fit | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Validation:
    """Return measured runs beside predictions.

    Parameters
    ----------
    kind : ``training`` or ``inference``.
    source : a CSV file with the columns of the catalogue's `measured` tables, or its rows.
    fit : the constants that predictions rest on, by default those of `fit_at_hand`.

    Raises
    ------
    InputError : a kind or a table that cannot be read.
    """
    from roofplan.evidence.predictions import NEEDED, validated
    from roofplan.evidence.rows import read

    if kind not in NEEDED:
        near = nearest(kind, NEEDED)
        raise InputError(f"KIND: {kind!r} is neither training nor inference", argument="KIND", value=kind, nearest=near)
    rows = read(source, NEEDED[kind]) if isinstance(source, str | Path) else _rows(source, NEEDED[kind])
    return validated(kind, rows, fit_at_hand(fit), progress)


def _rows(rows: Sequence[Mapping[str, str]] | None, needed: Sequence[str]) -> Sequence[Mapping[str, str]]:
    """Return rows that have the columns of a table of runs."""
    if not rows:
        raise InputError("FILE: no rows", argument="FILE")
    missing = [name for name in needed if any(name not in row for row in rows)]
    if missing:
        raise InputError(f"FILE: the rows lack the columns {', '.join(missing)}", argument="FILE")
    return rows


def refit(
    *sources: str | Path | Sequence[Mapping[str, str]],
    keep: bool = True,
    fit: Fit | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Refit, Path | None]:
    """Return what all runs of one's own do to the shipped constants, and where the local profile keeps that, in place of an earlier one.

    Parameters
    ----------
    sources : CSV files as `validate` reads, of training and of inference, or their rows.
    keep : whether to write the profile, which is done only where held-out runs come nearer.
    fit : the constants that are moved, by default the shipped ones.

    Raises
    ------
    InputError : a table that cannot be read, or tables of which no row can be predicted.
    """
    from roofplan.evidence.fits.own import refit as refit_on

    if not sources:
        raise InputError("--with: no table of runs", argument="--with")
    if keep:
        profile.writable()
    tables = [_own_table(source) for source in sources]
    name = ", ".join(Path(one).name if isinstance(one, str | Path) else "rows" for one in sources)
    basis = fit or catalogue.shipped_fit()
    found = refit_on(tables, name, basis, progress)
    return found, profile.save(found.constants, basis) if keep and found.helps else None


def _own_table(source: str | Path | Sequence[Mapping[str, str]]) -> tuple[str, Sequence[Mapping[str, str]]]:
    """Return the kind and the rows of a table of runs: the kind whose columns it lacks the smallest share of."""
    from roofplan.evidence.predictions import NEEDED
    from roofplan.evidence.rows import read

    rows = read(source, ()) if isinstance(source, str | Path) else source
    if not rows:
        raise InputError("--with: no rows", argument="--with")
    lacks = {kind: [name for name in names if name not in rows[0]] for kind, names in NEEDED.items()}
    kind = min(lacks, key=lambda one: len(lacks[one]) / len(NEEDED[one]))
    if lacks[kind]:
        message = f"--with: {source} is not a table of runs: for {kind} it lacks the columns {', '.join(lacks[kind])}"
        raise InputError(message, argument="--with", value=str(source))
    return kind, rows


def _workload(given: Load, positions: int | None, drafted: str | None) -> Workload:
    context = given.context
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
    count, accepted = draft(drafted)
    hit = units.parse_share(given.prefix_hit, "--prefix-hit")
    if hit >= 1.0:
        raise UnitError(
            "--prefix-hit: at least one token of a prompt is computed, so the share must be below 1",
            argument="--prefix-hit",
            value=str(given.prefix_hit),
        )
    return Workload(input=asked, output=answered, context=longest, prefix_hit=hit, drafted=count, acceptance=accepted)


def _utilisation(text: str | float) -> float:
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
"""Words that name what is not modelled, and what that is."""


def _refuse_out_of_scope(word: str, argument: str) -> None:
    if word in OUT_OF_SCOPE:
        raise UnsupportedFeature(
            f"{argument}: {word}: {OUT_OF_SCOPE[word]} is not modelled yet", argument=argument, value=word
        )


@takes(TokensInputs)
def token_costs(
    asked: TokensInputs, *, fit: Fit | None = None, progress: Callable[[int, int], None] | None = None
) -> TokenCosts:
    """Return what a month's tokens cost at an API, rented and owned; parameters are the flags of ``roofplan cost tokens``.

    `fit` is that of `plan_serving`.

    Raises
    ------
    RoofplanError : bad input, or `NoPlan` where nothing serves the model.
    """
    volume = _monthly(asked.tokens)
    high = units.parse_amount(asked.peak, "--peak")
    if not 1.0 <= high <= 2.0:
        raise InputError(
            f"--peak: {asked.peak} must lie between 1 and 2: the peak of a day over its mean",
            argument="--peak",
            value=asked.peak,
        )
    terms = terms_of(asked)
    route = _api_price(asked.api_price)
    training = _training(asked.training_cost, asked.lifetime_tokens)
    served = ServeInputs(**{one.name: getattr(asked, one.name) for one in fields(Load)})
    result = plan_serving(served, terms=terms, fit=fit, progress=progress)
    load = result.plans[0].workload
    demand = Demand(
        tokens=volume,
        input=float(load.input),
        output=float(load.output),
        peak=high,
        autoscale=asked.autoscale,
        utilisation=_utilisation(asked.utilisation),
        hit=load.prefix_hit,
    )
    if volume < load.input + load.output:
        raise InputError(f"--tokens: {asked.tokens} is less than one request", argument="--tokens", value=asked.tokens)
    best = cheapest_for(result.plans, demand)
    return priced_tokens(best, result, demand, terms, route, training)


MONTHS = {"month": 1.0, "day": units.MONTH / units.DAY, "h": units.MONTH / units.HOUR, "year": 1.0 / 12.0}
"""What a demand per one of these is per month [1]."""


def _monthly(text: str) -> float:
    """Return the tokens of a month that ``1B/month`` or ``30M/day`` mean [token]."""
    amount, _, per = text.strip().partition("/")
    if per.strip() not in {"", *MONTHS}:
        raise UnitError(
            f"--tokens: {text} is not an amount per month, day, h or year. Example: 1B/month",
            argument="--tokens",
            value=text,
        )
    return units.parse_amount(amount.strip().removesuffix("tok"), "--tokens") * MONTHS[per.strip() or "month"]


def _api_price(text: str | None) -> Route | None:
    """Return the route that ``IN,OUT`` means, None without one [USD/Mtoken]."""
    if text is None:
        return None
    into, _, out = text.partition(",")
    if not out:
        raise InputError(
            f"--api-price: {text} is not IN,OUT in USD per million tokens, such as 0.15,0.60",
            argument="--api-price",
            value=text,
        )
    try:
        one, two = (units.parse_amount(part.strip().removesuffix("USD"), "--api-price") for part in (into, out))
    except UnitError:
        raise InputError(
            f"--api-price: {text} is not IN,OUT in USD per million tokens, such as 0.15,0.60",
            argument="--api-price",
            value=text,
        ) from None
    return Route(name="--api-price", input=one, output=two, date=catalogue.version(), source="--api-price")


def _training(bill: str | None, life: str | None) -> float | None:
    """Return what a token carries of the model's training, None where nobody says [USD]."""
    if (bill is None) != (life is None):
        raise InputError(
            "--training-cost and --lifetime-tokens belong together: what training cost, and the tokens that the model serves",
            argument="--training-cost" if bill is None else "--lifetime-tokens",
        )
    if bill is None or life is None:
        return None
    return float(
        cost.training_share(
            units.parse(bill, "USD", "--training-cost"),
            units.parse_amount(life.removesuffix("tok"), "--lifetime-tokens"),
        )
    )


def supplies_of(
    plan: Plan,
    price: str,
    demand: Demand,
    terms: Terms,
    absent: list[str],
    api: Api | None,
    training: float | None,
    fit: Fit,
) -> list[Supply]:
    """Return a month of a plan's machines, rented as `price` says and owned, beside the API; what has no price is added to `absent`."""
    m = plan.metrics["output_tokens_per_second"]
    capacity = _interval(m)
    owned = own(plan.machine, fit, terms)
    asked = hourly_cost(plan.machine, "rent", fit) if price == "own" else plan.cost
    out = []
    for kind, hourly in (("rent", asked), ("own", owned.cost() if owned is not None and not owned.bare else None)):
        if hourly is None:
            bare = kind == "own" and owned is not None
            why = (
                f"only the cards of {plan.machine.device.id} are priced (--server)"
                if bare
                else f"no {price if kind == 'rent' and price != 'own' else kind} price for an instance of {plan.machine.per_host} {plan.machine.device.id}"
            )
            absent.append(f"{kind}: {why}")
            continue
        out.append(
            supply(
                kind if hourly.price.kind in {"rent-on-demand", "own"} else hourly.price.kind,
                demand,
                hourly,
                capacity,
                fit,
                label=plan.label,
                machine=plan.machine.text or plan.machine.device.id,
                devices=plan.machine.count,
                owned=owned if kind == "own" else None,
                api=api,
                training=training,
            )
        )
    return out


def _interval(m: Metric, scale: float = 1.0) -> Interval:
    """Return a predicted figure as an input of a cost."""
    return Interval(low=m.low * scale, central=m.value * scale, high=m.high * scale, grade=m.grade)


def energy_of(plan: Plan, place: str) -> dict[str, Interval]:
    """Return the kWh of a million output tokens at full load, and their carbon in a place [gCO2]; nothing where power is not known."""
    if "energy_per_output_token" not in plan.metrics:
        return {}
    one, scale = plan.metrics["energy_per_output_token"], 1e6 / units.JOULE_PER_KWH
    used = _interval(one, scale)
    mix = catalogue.carbon(place)
    if mix is None:
        return {"kWh": used}
    carbon = Interval(
        low=used.low * mix["low"],
        central=used.central * float(mix["value"]),
        high=used.high * mix["high"],
        grade=max(used.grade, "borrowed", key=GRADES.index),
    )
    return {"kWh": used, "gCO2": carbon}


PAID = {"own": "owned", "given": "at the given price"} | {
    "rent-on-demand": "rented on demand",
    "rent-contract": "rented by contract",
    "spot": "rented on the spot market",
}
"""How a machine is paid for, by the kind of its price."""


def cheapest_for(plans: Sequence[Plan], demand: Demand) -> Plan:
    """Return the plan whose machines serve a month's demand for least, the first where none is priced."""
    priced = [plan for plan in plans if plan.cost is not None]
    if not priced:
        return plans[0]

    def bill(plan: Plan) -> float:
        capacity = plan.metrics["output_tokens_per_second"].value
        return float((plan.cost.total if plan.cost else 0.0) * machines_needed(demand, capacity)[1])

    return min(priced, key=bill)


def priced_tokens(
    plan: Plan, result: Result, demand: Demand, terms: Terms, route: Route | None = None, training: float | None = None
) -> TokenCosts:
    """Return what the tokens of a demand cost on a plan's machines, rented and owned, beside the API, or the `route` that the user gives."""
    model = plan.model.id
    out = TokenCosts(model=model, demand=demand, api=api_of(model, demand, route))
    if out.api is None:
        near = nearest(model, {str(entry["model"]) for entry in catalogue.token_prices()})
        others = f"; listed are {', '.join(near)} and others" if near else ""
        out.absent.append(f"API: no route to {model} is listed{others}")
    out.supplies = supplies_of(plan, result.asked.price, demand, terms, out.absent, out.api, training, result.fit)
    found = {
        "input": uncached_input_cost(plan),
        "output": plan.metrics.get("cost_per_million_output_tokens"),
        "cached input": cached_input_cost(plan),
    }
    out.full = {name: _interval(one) for name, one in found.items() if one is not None}
    if out.api is not None and demand.hit:
        out.absent.append("API: input found in the cache is charged in full where a route lists no price of it")
    if plan.cost is not None:
        out.paid = PAID.get(plan.cost.price.kind, plan.cost.price.kind)
        out.absent.append("room of cached input between requests: how long it is kept is not stated")
    out.energy = energy_of(plan, terms.place)
    out.warnings = list(dict.fromkeys([*result.warnings, *(found for one in out.supplies for found in one.warnings)]))
    return out


def _check_context(model: Model, load: Workload, given: object) -> None:
    if model.max_positions is None or load.context <= model.max_positions:
        return
    if given is None and load.input + load.output <= model.max_positions:
        return
    beyond = f"beyond the {model.max_positions:,} positions of {model.id} (max_position_embeddings)"
    if given is not None:
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
    """Refuse limits on the time between tokens for answers of one token."""
    for flag, value in (("--tpot", limits.tpot), ("--tokens-per-second-per-user", limits.tokens_per_second_per_user)):
        if value is not None and load.output == 1:
            text = f"{flag}: answers of one token (--output 1) have no time between tokens; limit --ttft instead"
            raise InputError(text, argument=flag, value=value)


def whole_catalogue(constraints: Constraints) -> tuple[Machine, ...]:
    """Return every device of the catalogue that can be planned with: one to a full server, and two servers where it has a network."""
    out: list[Machine] = []
    for name in catalogue.ids("accelerators"):
        found = catalogue.accelerator(name)
        if found.bandwidth is None or not found.peak or found.memory is None:
            continue
        if constraints.datacenter and found.geforce_licence:
            continue
        out += machine(name)
        full = catalogue.servers_of(name)
        if full and full[-1].network and box_size(found) == full[-1].count:
            out += machine(f"{name}:2x{full[-1].count}")
        out += rigs(name, full)
    return tuple(out)


def rigs(device: str, boxes: Sequence[Server]) -> list[Machine]:
    """Return what one can build of a device's small boxes: as many as hold what its largest does, on each network that has priced cards."""
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
