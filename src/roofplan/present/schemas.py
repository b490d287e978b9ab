"""The JSON Schema of every answer, from pydantic models of its members; ``roofplan schema COMMAND`` prints it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from roofplan.errors import InputError
from roofplan.inputs import LISTS, RECORDS


class Open(BaseModel):
    """Members that may be joined by others."""

    model_config = ConfigDict(extra="allow")


Grade = Literal["measured", "calibrated", "borrowed", "guessed"]


class Metric(BaseModel):
    """A number with its 90% interval in SI (or day, device-hour, USD, USD/h, USD/Mtoken, gCO2) and its grade."""

    value: float
    low: float
    high: float
    unit: Literal["s", "day", "token/s", "B", "W", "J", "gCO2", "device-hour", "USD", "USD/h", "USD/Mtoken", "1"]
    grade: Grade
    causes: dict[str, float] | None = Field(
        default=None,
        description="why it may be off: relative errors of independent causes, one standard deviation each",
    )


class Versions(BaseModel):
    """What computed the answer."""

    roofplan: str
    catalogue: str
    prices_to: str
    profile: str | None = Field(default=None, description="constants of the user's own runs that the answer rests on")


class Warn(BaseModel):
    """What a reader must know."""

    code: str
    text: str


class Search(BaseModel):
    """How many configurations were looked at."""

    enumerated: int
    legal: int
    fits: int
    predicted: int
    seconds: float = Field(description="CPU time from first tuple to last metric [s]")


class Bound(BaseModel):
    """A limit and its share of the time."""

    limit: Literal[
        "compute", "memory_bandwidth", "communication", "launch", "engine", "bubble", "host_link", "stragglers"
    ]
    share: float


class Memory(BaseModel):
    """Bytes of the fullest device [B]."""

    capacity: float
    weights: float
    kv_cache: float
    activations: float
    runtime: float
    free: float
    left_alone: float
    kv_pool: float
    longest_request: float = Field(description="[token]")
    request: float


class ServePlan(Open):
    """One serving plan."""

    id: str
    engine: str
    strategy: dict[str, int]
    concurrency: int
    metrics: dict[str, Metric]
    bound: dict[str, Bound]
    memory: Memory
    points: list[dict[str, Any]]
    nearest_measured: list[dict[str, Any]]
    launch: str
    reproduce: str
    source_ids: list[str]


class TrainPlan(Open):
    """One training plan."""

    id: str
    framework: str
    strategy: dict[str, float | str]
    micro_batches: float
    metrics: dict[str, Metric]
    bound: dict[str, Bound]
    step: dict[str, Any] = Field(description="parts of a step [s]")
    memory: dict[str, Any] = Field(description="the fullest stage and every stage [B]")
    run: dict[str, Any] | None
    launch: str
    reproduce: str
    source_ids: list[str]


class Item(BaseModel):
    """What a list holds."""

    id: str
    text: str


class NoPlanMember(BaseModel):
    """Why nothing satisfies the constraints."""

    binding: str
    message: str
    relax: list[dict[str, Any]]


class ErrorMember(BaseModel):
    """What was wrong with the input."""

    code: str
    argument: str | None
    value: str | float | int | bool | None
    nearest: list[str]
    message: str


class ParameterCounts(BaseModel):
    """Parameters of a model [1]."""

    total: int
    active: int | None
    embedding: int
    head: int


class Cache(Open):
    """Cache of a context [B]."""

    bytes: int
    bytes_per_token: int
    state_bytes: int
    tokens: int


class ClaimRow(Open):
    """One figure of the articles."""

    id: str
    article: str
    with_its_inputs: float | None
    ours: float | None
    verdict: str


class Ranged(BaseModel):
    """A figure and the bounds that hold nine draws of ten, or the interval of what it follows from."""

    value: float
    low: float
    high: float
    unit: str
    grade: Grade


class SwingMember(BaseModel):
    """What one input's range does to a figure, all others central."""

    input: str
    low: float
    high: float


class Sampled(Ranged):
    """A figure whose bounds come from draws of its inputs, and what each of them does to it."""

    tornado: list[SwingMember]


class Tree(Open):
    """A figure, its formula, and the parts that it is made of."""

    name: str
    value: float
    unit: str


class SoldDie(BaseModel):
    """A kind of die on a package [m2, 1]."""

    name: str
    node: str
    area: float
    count: int
    units: int | None
    sold: int | None
    gross: float = Field(description="whole dies of a wafer [1]")
    usable: float = Field(description="share of them that can be sold [1]")


class Purchase(BaseModel):
    """What is bought."""

    value: float
    unit: Literal["USD"]
    items: list[dict[str, Any]]


class OwnedMachine(Open):
    """An hour of a machine of one's own."""

    machine: dict[str, Any]
    purchase: Purchase
    cost_per_hour: Sampled
    parts: dict[str, float]
    per_petaflop_hour: dict[str, float]
    rent: dict[str, Any] | None = Field(description="rents on demand of the same machine, and owning against them")
    supply: dict[str, Any] | None = Field(description="what a server draws, its supplies, and servers of a rack")
    explain: Tree
    absent: list[str]
    assumed: list[str]


class DemandMember(BaseModel):
    """How many tokens a month, and how they come."""

    tokens: float
    input_share: float
    output_rate: float = Field(description="[token/s]")
    peak: float
    autoscale: bool
    utilisation: float


class ApiPrices(BaseModel):
    """What the listed routes ask [USD/Mtoken]."""

    routes: int
    input: float
    output: float
    monthly: Ranged
    cheapest: str
    dearest: str
    date: str
    source: str


class EvenMember(BaseModel):
    """Tokens of a month from which machines are the cheaper; null where that does not happen."""

    tokens: float | None
    low: float | None
    high: float | None
    never: float = Field(description="share of the draws in which it does not [1]")
    unit: str
    grade: Grade


class MonthOfMachines(Open):
    """A month of machines that serve a demand."""

    kind: str
    machine: str
    plan: str
    replicas: float
    mean_replicas: float
    busy: float
    monthly: Sampled
    capacity: Ranged
    cost_per_hour: dict[str, Any]
    break_even: EvenMember | None
    api_over_full_machine: Ranged | None
    api_apart: Tree | None
    explain: Tree


class Quotation(Open):
    """One dated rent."""

    kind: Literal["rent-on-demand", "rent-contract", "spot"]
    value: float
    unit: str
    date: str


class MilestoneMember(Open):
    """A device at its launch: its oldest known price over its dense rates."""

    device: str
    launched: str
    usd_per_flops: dict[str, float]
    usd_per_transistor: float | None


class Years(BaseModel):
    """A span of years with its bounds; null for one without an end."""

    value: float | None
    low: float | None
    high: float | None
    unit: str
    grade: Grade


class Halving(BaseModel):
    """Years in which the price of a rate halves over a class of devices."""

    device_class: str
    operand: str
    years: Years
    devices: int
    spread: float


class GainMember(Open):
    """How much faster one device is than another; the factors multiply to `whole`."""

    whole: float
    factors: dict[str, float]
    years: float | None


class ScoreMember(Open):
    """Errors of a metric over rows [1]; macro is the mean over sources of their medians."""

    rows: int
    sources: int
    median_ape: float
    macro_median_ape: float
    median_of_medians_ape: float
    p90_ape: float
    coverage_90: float
    median_high_over_low: float


class ConstantMember(BaseModel):
    """A fitted constant: on how many rows, and how far they lay from it, one standard deviation of the logarithm."""

    law: str
    name: str
    scope: str
    value: float
    unit: str
    spread: float
    rows: int
    fitted: str
    source: str
    note: str
    kind: str


class MovedConstant(ConstantMember):
    """A constant as a user's own runs moved it, beside the shipped one; what share of its doubt is left."""

    shipped: float
    shipped_scope: str
    doubt_left: float


class OwnFigure(BaseModel):
    """One figure of a user's own runs: relative errors by the shipped constants, by those refitted, and by those that other runs moved."""

    id: str
    job: str
    metric: str
    measured: float
    shipped: float | None
    refitted: float | None
    held_out: float | None


class PredictionMember(Open):
    """One measured figure beside its prediction in SI, or the reason why it has none."""

    id: str
    source: str
    metric: str | None
    measured: float | None = None
    predicted: float | None = None
    low: float | None = None
    high: float | None = None
    ape: float | None = None
    grade: str | None = None
    assumed: list[str] | None = None
    skipped: str | None = None


MEMBERS: dict[str, dict[str, Any]] = {
    "serve": {
        "search": (Search | None, None),
        "plans": (list[ServePlan] | None, None),
        "sources": (dict[str, Any] | None, None),
        "no_plan": (NoPlanMember | None, None),
    },
    "train": {
        "search": (Search | None, None),
        "assumed": (list[str] | None, None),
        "job": (dict[str, Any] | None, None),
        "plans": (list[TrainPlan] | None, None),
        "sources": (dict[str, Any] | None, None),
        "no_plan": (NoPlanMember | None, None),
    },
    "model": {
        "parameters": (ParameterCounts | None, None),
        "cache": (Cache | None, None),
        "flops": (dict[str, Any] | None, None),
    },
    "device": {"device": (dict[str, Any] | None, None), "what_is": (list[dict[str, Any]] | None, None)},
    "validate": {
        "rows": (int | None, None),
        "scored": (int | None, None),
        "skipped": (dict[str, int] | None, None),
        "summary": (dict[str, ScoreMember] | None, None),
        "without_assumed": (dict[str, ScoreMember] | None, None),
        "by_regime": (dict[str, dict[str, ScoreMember]] | None, None),
        "by_source": (dict[str, dict[str, ScoreMember]] | None, None),
        "sweeps": (dict[str, dict[str, float]] | None, None),
        "out_of_memory": (dict[str, dict[str, int]] | None, None),
        "predictions": (list[PredictionMember] | None, None),
    },
    "calibrate": {
        "rows": (int | None, None),
        "skipped": (dict[str, int] | None, None),
        "figures": (list[OwnFigure] | None, None),
        "constants": (list[MovedConstant] | None, None),
        "shipped": (list[ConstantMember] | None, None),
        "own": (list[ConstantMember] | None, None),
        "helps": (bool | None, None),
        "removed": (str | None, None),
        "profile": (str | None, None),
    },
    "claims": {"claims": (list[ClaimRow] | None, None)},
    **{name: {"items": (list[Item] | None, None)} for name in LISTS},
    "cost chip": {
        "chip": (dict[str, Any] | None, None),
        "cost": (Sampled | None, None),
        "price": (dict[str, Any] | None, None),
        "design": (dict[str, Any] | None, None),
        "absent": (list[str] | None, None),
        "explain": (Tree | None, None),
        "parts": (dict[str, float] | None, None),
        "dies": (list[SoldDie] | None, None),
        "perfect_dies": (dict[str, float] | None, None),
        "gross_margin": (Ranged | None, None),
        "sources": (dict[str, Any] | None, None),
    },
    "cost machine": {
        "machines": (list[OwnedMachine] | None, None),
        "sources": (dict[str, Any] | None, None),
    },
    "cost tokens": {
        "model": (str | None, None),
        "demand": (DemandMember | None, None),
        "api": (ApiPrices | None, None),
        "supplies": (list[MonthOfMachines] | None, None),
        "full_load": (dict[str, Ranged] | None, None),
        "energy_per_million_output_tokens": (dict[str, Ranged] | None, None),
        "sources": (dict[str, Any] | None, None),
        "absent": (list[str] | None, None),
    },
    "cost rent": {"device": (str | None, None), "quotations": (list[Quotation] | None, None)},
    "cost history": {
        "devices": (list[MilestoneMember] | None, None),
        "halving": (list[Halving] | None, None),
        "gain": (GainMember | None, None),
        "sources": (dict[str, Any] | None, None),
    },
}
"""Members of each command's answer beside the common ones; a command that is not here has no schema."""

COMMANDS = tuple(MEMBERS)


def _inputs(command: str) -> type[BaseModel]:
    """Return the model of a command's inputs: their types, defaults and what they mean."""
    record = RECORDS[command]
    kinds = record.kinds()
    members: dict[str, Any] = {
        name: (kinds[name], Field(default=one.default, description=one.metadata["help"]))
        for name, one in record.each().items()
    }
    return create_model(record.__name__, **members)


def answer_schema(command: str, version: str) -> dict[str, Any]:
    """Return the JSON Schema of a command's answer.

    Raises
    ------
    InputError : a command without one.
    """
    if command not in MEMBERS:
        raise InputError(
            f"schema: no schema for {command!r}; accepted: {', '.join(COMMANDS)}", argument="COMMAND", value=command
        )
    common: dict[str, Any] = {
        "schema_version": (Literal[version], ...),
        "command": (Literal[command], ...),
        "status": (Literal["ok", "no_plan", "error"], ...),
        "versions": (Versions, ...),
        "inputs": (_inputs(command), ...),
        "warnings": (list[Warn], ...),
        "error": (ErrorMember | None, None),
    }
    made = create_model(
        f"{command.title().replace(' ', '')}Answer", __config__=ConfigDict(extra="allow"), **common, **MEMBERS[command]
    )
    return dict(made.model_json_schema())
