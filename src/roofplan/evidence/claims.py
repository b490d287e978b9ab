"""The figures of five articles, and what our laws give with the articles' inputs and with corrected inputs.

A claim is data: its inputs, an expression over our laws and catalogue, corrections, and the recorded verdict. The
command recomputes all of them; a verdict that no longer follows is an error.
"""

from __future__ import annotations

import ast
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from roofplan import catalogue, hf
from roofplan.errors import InputError
from roofplan.laws import (
    activations,
    attention,
    batching,
    board,
    collectives,
    cost,
    energy,
    flops,
    matmul,
    memory,
    parameters,
    pipeline,
    pool,
    reliability,
    roofline,
    scaling,
    silicon,
    states,
)
from roofplan.money.chip import bill_term, chip_of, gross_dies, inputs_of, price_of, usable
from roofplan.money.uncertainty import central

VERDICTS = (
    "agrees",
    "rounding",
    "article errs",
    "contradicts itself",
    "bound",
    "inputs not stated",
    "source damaged",
    "rule holds",
    "rule fails",
    "measurable",
    "not yet",
)
AGREES, ROUNDS = 0.05, 0.10
"""Relative distance up to which a figure agrees, and up to which it counts as rounding [1]."""

LAWS: dict[str, Any] = {
    "activations": activations,
    "attention": attention,
    "batching": batching,
    "board": board,
    "collectives": collectives,
    "cost": cost,
    "energy": energy,
    "flops": flops,
    "matmul": matmul,
    "memory": memory,
    "parameters": parameters,
    "pipeline": pipeline,
    "pool": pool,
    "reliability": reliability,
    "roofline": roofline,
    "scaling": scaling,
    "silicon": silicon,
    "states": states,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One figure or rule of an article.

    Parameters
    ----------
    id, article, topic : identifier, article and subject.
    says : the claim in our words.
    claimed : the article's figure, None for rules without one.
    sense : ``at most`` or ``at least`` where the figure is a bound, empty where it is the figure itself.
    unit : unit of all three figures.
    inputs : the article's inputs, in SI.
    law : expression over inputs, laws and catalogue; empty where nothing is or can be computed.
    scale : one `unit` in SI.
    corrected : inputs that replace the article's.
    corrected_law : expression that replaces `law` where the article's law is wrong.
    verdict : recorded verdict.
    why : why the article errs, or why the corrected figure differs.
    command : that measures it where it is a matter of measurement, empty where it is not.
    """

    id: str
    article: str
    topic: str
    kind: str
    says: str
    verdict: str
    claimed: float | None = None
    sense: str = ""
    unit: str = ""
    scale: float = 1.0
    inputs: Mapping[str, float]
    law: str = ""
    corrected: Mapping[str, Any]
    corrected_law: str = ""
    why: str = ""
    command: str = ""

    @property
    def covered(self) -> bool:
        """Whether our laws cover the claim, or a command measures it."""
        return self.verdict != "not yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A claim with what our laws give."""

    claim: Claim
    with_its_inputs: float | None
    ours: float | None
    computed_verdict: str

    @property
    def follows(self) -> bool:
        """Whether the recorded verdict is the computed one."""
        return self.computed_verdict == self.claim.verdict


@lru_cache(maxsize=1)
def claims() -> tuple[Claim, ...]:
    """Return all claims in the order of the articles.

    Returns
    -------
    The claims.
    """
    found: list[Claim] = []
    for path in sorted((catalogue.ROOT / "claims").glob("*.toml")):
        found.extend(
            Claim(
                id=row["id"],
                article=row["article"],
                topic=row["topic"],
                kind=row["kind"],
                says=row["says"],
                verdict=row["verdict"],
                claimed=row.get("claimed"),
                sense=row.get("sense", ""),
                unit=row.get("unit", ""),
                scale=float(row.get("scale", 1.0)),
                inputs=row.get("inputs", {}),
                law=row.get("law", ""),
                corrected=row.get("corrected", {}),
                corrected_law=row.get("corrected_law", ""),
                why=row.get("why", ""),
                command=row.get("command", ""),
            )
            for row in tomllib.loads(path.read_text())["claim"]
        )
    return tuple(found)


def outcome(claim: Claim) -> Outcome:
    """Return what our laws give for a claim, and the verdict that follows.

    Parameters
    ----------
    claim : the claim.

    Returns
    -------
    The claim's figure by our laws, with the article's inputs and with the corrected ones, and the verdict.

    Raises
    ------
    InputError : an expression of the claim contains something that is not allowed.
    """
    own = evaluate(claim.law, claim.inputs) / claim.scale if claim.law else None
    better = None
    if claim.corrected or claim.corrected_law:
        better = evaluate(claim.corrected_law or claim.law, {**claim.inputs, **_corrections(claim)}) / claim.scale
    return Outcome(claim=claim, with_its_inputs=own, ours=better, computed_verdict=_verdict(claim, own))


def _corrections(claim: Claim) -> dict[str, float]:
    """Return the corrected inputs; a text value is evaluated as an expression."""
    return {
        name: evaluate(value, claim.inputs) if isinstance(value, str) else float(value)
        for name, value in claim.corrected.items()
    }


def _verdict(claim: Claim, own: float | None) -> str:
    if claim.kind in {"rule", "idea"} and own is not None and claim.claimed is None:
        return "rule holds" if own else "rule fails"
    if (
        own is None
        or claim.claimed is None
        or claim.verdict in {"not yet", "measurable", "inputs not stated", "source damaged", "contradicts itself"}
    ):
        return claim.verdict
    if claim.sense:
        slack = AGREES * abs(claim.claimed)
        inside = own <= claim.claimed + slack if claim.sense == "at most" else own >= claim.claimed - slack
        return "bound" if inside else "article errs"
    distance = abs(own - claim.claimed) / abs(claim.claimed) if claim.claimed else abs(own)
    if distance <= AGREES:
        return "agrees"
    return "rounding" if distance <= ROUNDS else "article errs"


# Expressions -------------------------------------------------------------------------------------


def _peak(device: str, number_format: str) -> float:
    return catalogue.accelerator(device).peak[number_format].value


def _sparse(device: str, number_format: str) -> float:
    return catalogue.accelerator(device).sparse[number_format].value


def _measured(device: str, number_format: str) -> float:
    return catalogue.accelerator(device).measured[number_format].value


def _quantity(device: str, name: str) -> float:
    return catalogue.accelerator(device).quantities[name].value


def _link(identity: str, name: str) -> float:
    return catalogue.link(identity).quantities[name].value


def _server(identity: str, name: str) -> float:
    return catalogue.server(identity).quantities[name].value


def _model(identity: str, name: str) -> float:
    model = hf.of_catalogue(identity)
    return float(getattr(model, name))


def _cache_per_token(identity: str) -> float:
    from roofplan.records.strategy import Strategy
    from roofplan.serving import footprint

    model = hf.of_catalogue(identity)
    return footprint(model, Strategy(), 2.0).kv_per_token


def _supports(device: str, number_format: str) -> float:
    return float(number_format in catalogue.accelerator(device).peak)


def _price(device: str, kind: str) -> float:
    newest = [p for p in catalogue.prices(device) if p.kind == kind]
    return newest[-1].value


def _flag(device: str, name: str) -> float:
    """Return 1 if a device has a flag, ``geforce_licence`` or ``no_peer_to_peer``, else 0."""
    found = catalogue.accelerator(device)
    return float(found.peer_to_peer == "none" if name == "no_peer_to_peer" else bool(getattr(found, name)))


def _failure_rate(preset: str) -> float:
    return catalogue.failures()[0][preset].rate


def _recovery(name: str) -> float:
    return float(getattr(catalogue.failures()[1], name).value)


def _optimizer(identity: str, name: str) -> float:
    return float(getattr(catalogue.optimizers()[identity], name))


def _published(model: str, name: str) -> float:
    """Return a figure published by a model's makers, in SI."""
    return float(catalogue.model_table(model)["published"][name]["value"])


def _wafer(identity: str) -> float:
    return catalogue.node(identity).wafer.value


def _first_wafer(identity: str) -> float:
    """Return the wafer price of the CSET series of 2020 [USD]."""
    return next(quote.value for quote in catalogue.node(identity).wafers if quote.source.startswith("CSET"))


def _node(identity: str, name: str) -> float:
    return catalogue.node(identity).quantities[name].value


def _gross_dies(device: str) -> float:
    return gross_dies(chip_of(catalogue.accelerator(device)).dies[0])


def _usable_dies(device: str) -> float:
    made = chip_of(catalogue.accelerator(device))
    return gross_dies(made.dies[0]) * float(usable(made.dies[0], central(inputs_of(made))))


def _bill(device: str, part: str = "") -> float:
    """Return the manufacturing cost of a device, or of the parts whose name begins with `part` [USD]."""
    made = chip_of(catalogue.accelerator(device))
    whole = bill_term(made, central(inputs_of(made)))
    return float(whole.value) if not part else sum(float(x.value) for x in whole.parts if x.name.startswith(part))


def _sold_at(device: str) -> float:
    found = price_of(catalogue.accelerator(device))
    return math.nan if found is None else found.value


def _least_rent(device: str, kind: str) -> float:
    return min(p.value for p in catalogue.prices(device) if p.kind == kind and p.unit == "USD/h")


def _most_rent(device: str, kind: str) -> float:
    return max(p.value for p in catalogue.prices(device) if p.kind == kind and p.unit == "USD/h")


def _training_peak(identity: str, tensor: float, stages: float, copies: float) -> float:
    """Return the peak memory of the fullest stage under full recomputation, with one sequence of 4,096 tokens per micro-batch [B]."""
    from roofplan.records.training import Job, Layout
    from roofplan.training.ledger import ledgers, peak

    model = hf.of_catalogue(identity)
    job = Job(sequence=4096, batch=int(copies * stages), optimizer=catalogue.optimizers()["adam"])
    layout = Layout(tp=tensor, pp=int(stages), dp=copies, zero=1, recompute="full")
    framework = catalogue.framework("megatron-core-0.16")
    return float(peak(ledgers(model, job, layout, framework, catalogue.shipped_fit())))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ceil": math.ceil,
    "floor": math.floor,
    "exp": math.exp,
    "sqrt": math.sqrt,
    "log": math.log,
    "min": min,
    "max": max,
    "abs": abs,
    "round": round,
    "peak": _peak,
    "sparse": _sparse,
    "measured": _measured,
    "quantity": _quantity,
    "link": _link,
    "server": _server,
    "model": _model,
    "cache_per_token": _cache_per_token,
    "supports": _supports,
    "price": _price,
    "flag": _flag,
    "failure_rate": _failure_rate,
    "recovery": _recovery,
    "optimizer": _optimizer,
    "published": _published,
    "training_peak": _training_peak,
    "wafer": _wafer,
    "first_wafer": _first_wafer,
    "node": _node,
    "gross_dies": _gross_dies,
    "usable_dies": _usable_dies,
    "bill": _bill,
    "sold_at": _sold_at,
    "least_rent": _least_rent,
    "most_rent": _most_rent,
    "float": float,
}
_CONSTANTS = {
    "pi": math.pi,
    "GiB": 2.0**30,
    "hour": 3600.0,
    "day": 86400.0,
    "month": 730 * 3600.0,
    "year": 365 * 86400.0,
}
_ALLOWED = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.Call,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.Attribute,
    ast.keyword,
    ast.Compare,
    ast.BoolOp,
    ast.IfExp,
    ast.operator,
    ast.unaryop,
    ast.cmpop,
    ast.boolop,
)


def evaluate(expression: str, inputs: Mapping[str, float]) -> float:
    """Return the value of an expression over inputs, laws and catalogue look-ups.

    Raises
    ------
    InputError : the expression contains anything else.
    """
    tree = ast.parse(expression, mode="eval")
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise InputError(f"claim: {type(node).__name__} is not allowed in {expression!r}")
        if isinstance(node, ast.Attribute) and not (
            isinstance(node.value, ast.Name) and node.value.id in LAWS and not node.attr.startswith("_")
        ):
            raise InputError(f"claim: {ast.unparse(node)} is not a law")
    names = {**_CONSTANTS, **FUNCTIONS, **LAWS, **{k: float(v) for k, v in inputs.items()}}
    code = compile(tree, "<claim>", "eval")
    return float(eval(code, {"__builtins__": {}}, names))  # noqa: S307 - the tree was checked node by node
