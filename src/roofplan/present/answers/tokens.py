"""The answer of ``roofplan cost tokens``."""

from __future__ import annotations

from roofplan.inputs import TokensInputs
from roofplan.money.tokens import Supply, TokenCosts
from roofplan.present.answers.costs import Ranged, Sampled, ranged, sampled
from roofplan.present.answers.record import (
    ABSENT,
    Answer,
    DocumentMember,
    Grade,
    Quote,
    Tree,
    answered,
    cited,
    members,
    tree,
    view,
)
from roofplan.records.calibration import Fit
from roofplan.records.source import document


@members
class DemandMember:
    """How many tokens a month, and how they come.

    Parameters
    ----------
    output_rate : in the mean [token/s].
    """

    tokens: float
    input_share: float
    output_rate: float
    peak: float
    autoscale: bool
    utilisation: float


@members
class ApiPrices:
    """What the listed routes ask [USD/Mtoken]."""

    routes: int
    input: float
    output: float
    monthly: Ranged
    cheapest: str
    dearest: str
    date: str
    source: str


@members
class BreakEvenMember:
    """Tokens of a month from which machines are the cheaper; null where that does not happen.

    Parameters
    ----------
    never : share of the draws in which it does not [1].
    """

    tokens: float | None
    low: float | None
    high: float | None
    never: float
    unit: str
    grade: Grade


@members
class MonthOfMachines:
    """A month of machines that serve a demand.

    Parameters
    ----------
    replicas, mean_replicas : machines at the peak, and over the day [1].
    busy : mean demand over what they could give [1].
    """

    kind: str
    machine: str
    plan: str
    replicas: float
    mean_replicas: float
    busy: float
    capacity: Ranged
    cost_per_hour: Quote
    monthly: Sampled
    break_even: BreakEvenMember | None
    api_over_full_machine: Ranged | None
    api_apart: Tree | None
    explain: Tree
    purchase: float | None
    assumed: list[str]
    absent: list[str]


@members
class VolumeMember:
    """What a volume costs in one way of paying.

    Parameters
    ----------
    tokens : of a month [token].
    paid : ``API``, or how machines are paid for.
    replicas : machines at the peak, null at an API [1].
    """

    tokens: float
    paid: str
    machine: str | None
    plan: str | None
    replicas: float | None
    monthly: Ranged


def volume_rows(found: TokenCosts) -> list[VolumeMember]:
    """Return what each volume costs in each way of paying.

    Parameters
    ----------
    found : a month's tokens, with those of other volumes.

    Returns
    -------
    One member for each volume and way of paying.
    """
    out = []
    for one in (found, *found.others):
        tokens = one.demand.tokens
        if one.api is not None:
            monthly = ranged(one.api.monthly, "USD")
            out.append(VolumeMember(tokens=tokens, paid="API", machine=None, plan=None, replicas=None, monthly=monthly))
        out += [
            view(
                VolumeMember, each, tokens=tokens, paid=each.kind, plan=each.label, monthly=ranged(each.monthly, "USD")
            )
            for each in one.supplies
        ]
    return out


@members
class TokensAnswer(Answer):
    """What a month's tokens cost at an API, rented and owned.

    Parameters
    ----------
    changes : what the plan changes of the model, such as its weight format; absent where it changes nothing.
    volumes : monthly costs of every volume, where several were asked for.
    """

    model: str = ABSENT
    demand: DemandMember = ABSENT
    api: ApiPrices = ABSENT
    supplies: list[MonthOfMachines] = ABSENT
    changes: str = ABSENT
    volumes: list[VolumeMember] = ABSENT
    full_load: dict[str, Ranged] = ABSENT
    energy_per_million_output_tokens: dict[str, Ranged] = ABSENT
    sources: dict[str, DocumentMember] = ABSENT
    absent: list[str] = ABSENT


ENERGY_UNITS = {"kWh": "kWh", "gCO2": "g"}


def tokens_answer(found: TokenCosts, asked: TokensInputs, *, depth: int = 1, fit: Fit | None = None) -> TokensAnswer:
    """Return the answer of ``roofplan cost tokens``.

    Parameters
    ----------
    found : a month's tokens at an API and on rented and owned machines.
    asked : inputs of the command.
    depth : levels of each supply's explanation [1].
    fit : constants that were given for it, None for the default.

    Returns
    -------
    The answer, monthly costs in USD.
    """
    documents = [document(found.api.source)] if found.api else []
    return answered(
        TokensAnswer,
        "cost tokens",
        asked,
        warnings=found.warnings,
        fit=fit,
        model=found.model,
        demand=view(DemandMember, found.demand, input_share=found.demand.share),
        api=ABSENT if found.api is None else view(ApiPrices, found.api, monthly=ranged(found.api.monthly, "USD")),
        supplies=[_month(one, depth) for one in found.supplies],
        changes=found.changes or ABSENT,
        volumes=volume_rows(found) if found.others else ABSENT,
        full_load={name: ranged(value, "USD/Mtoken") for name, value in found.full.items()},
        energy_per_million_output_tokens={name: ranged(one, ENERGY_UNITS[name]) for name, one in found.energy.items()},
        sources=cited([*(key for one in found.supplies for key in one.term.bibliography()), *documents]),
        absent=found.absent,
    )


def _month(one: Supply, depth: int) -> MonthOfMachines:
    return view(
        MonthOfMachines,
        one,
        plan=one.label,
        mean_replicas=one.mean,
        capacity=ranged(one.capacity, "token/s"),
        cost_per_hour=view(Quote, one.hourly.price, value=one.hourly.total, unit="USD/h"),
        monthly=sampled(one.monthly, one.swings, "USD"),
        break_even=None if one.even is None else view(BreakEvenMember, one.even, unit="token/month"),
        api_over_full_machine=None if one.over is None else ranged(one.over, "1"),
        api_apart=None if one.apart is None else tree(one.apart, 1),
        explain=tree(one.term, depth),
        purchase=one.owned.purchase if one.owned else None,
        assumed=one.owned.assumed if one.owned else [],
        absent=one.owned.absent if one.owned else [],
    )
