"""Monthly cost of tokens on a plan's machines, rented and owned, and from an API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from roofplan import catalogue
from roofplan.errors import InputError, UnitError, nearest
from roofplan.inputs import TokensInputs
from roofplan.laws import cost
from roofplan.money.listed import Route
from roofplan.money.machine import OwnershipTerms, own
from roofplan.money.machine import hourly as hourly_cost
from roofplan.money.tokens import Api, Demand, Supply, TokenCosts, api_of, machines_needed, supply
from roofplan.money.uncertainty import Interval
from roofplan.records import units
from roofplan.records.calibration import Fit
from roofplan.records.source import GRADES
from roofplan.records.workload import Workload
from roofplan.serving.plan import Plan, Result, cached_input_cost, uncached_input_cost
from roofplan.serving.request import utilisation_of
from roofplan.timing.figures import Metric


def demands_of(asked: TokensInputs, load: Workload) -> list[Demand]:
    """Return the monthly demand for each requested volume.

    Parameters
    ----------
    asked : inputs of ``roofplan cost tokens``, as the user gave them.
    load : lengths and prefix hit rate of the plan's requests.

    Returns
    -------
    Tokens per month, lengths, peak and utilisation of each volume.

    Raises
    ------
    InputError : less than one request per month, or a peak outside 1 to 2.
    """
    each = [text for text in asked.tokens.split(",") if text.strip()]
    per = each[-1].partition("/")[1:] if each else ("", "")
    volumes = [_monthly(text if "/" in text else "".join((text, *per))) for text in each]
    if not volumes:
        raise InputError("--tokens: give an amount. Example: 1B/month", argument="--tokens", value=asked.tokens)
    high = units.parse_amount(asked.peak, "--peak")
    if not 1.0 <= high <= 2.0:
        raise InputError(
            f"--peak: {asked.peak} must lie between 1 and 2: the peak of a day over its mean",
            argument="--peak",
            value=asked.peak,
        )
    found = Demand(
        tokens=volumes[0],
        input=float(load.input),
        output=float(load.output),
        peak=high,
        autoscale=asked.autoscale,
        utilisation=utilisation_of(asked.utilisation),
        hit=load.prefix_hit,
    )
    if min(volumes) < load.input + load.output:
        raise InputError(f"--tokens: {asked.tokens} is less than one request", argument="--tokens", value=asked.tokens)
    return [replace(found, tokens=volume) for volume in volumes]


MONTHS = {"month": 1.0, "day": units.MONTH / units.DAY, "h": units.MONTH / units.HOUR, "year": 1.0 / 12.0}
"""Factor from a demand per unit of time to one per month [1]."""


def _monthly(text: str) -> float:
    """Return the tokens per month of a text such as ``1B/month`` or ``30M/day`` [token]."""
    amount, _, per = text.strip().partition("/")
    if per.strip() not in {"", *MONTHS}:
        raise UnitError(
            f"--tokens: {text} is not an amount per month, day, h or year. Example: 1B/month",
            argument="--tokens",
            value=text,
        )
    return units.parse_amount(amount.strip().removesuffix("tok"), "--tokens") * MONTHS[per.strip() or "month"]


def paid_as(price: str) -> list[str]:
    """Return the kinds of price in ``--price``; a single one is compared with owning.

    Parameters
    ----------
    price : kinds of price, separated by commas.

    Returns
    -------
    The kinds, each once.

    Examples
    --------
    >>> paid_as("contract"), paid_as("own"), paid_as("rent,spot")
    (['contract', 'own'], ['rent', 'own'], ['rent', 'spot'])
    """
    each = [one.strip() for one in price.split(",") if one.strip()]
    if len(each) < 2:
        each = ["rent" if each == ["own"] else price, "own"]
    return list(dict.fromkeys(each))


def route_of(text: str | None) -> Route | None:
    """Return the API prices in a text ``IN,OUT``.

    Parameters
    ----------
    text : two amounts, None if not given [USD/Mtoken].

    Returns
    -------
    A route named after the flag, None without a text.

    Raises
    ------
    InputError : a text that is not two amounts.
    """
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


def training_share_of(bill: str | None, life: str | None) -> float | None:
    """Return the training cost per served token.

    Parameters
    ----------
    bill : cost of training, with its unit [USD].
    life : tokens that the model serves over its lifetime [token].

    Returns
    -------
    Cost per token, None if neither is given [USD].

    Raises
    ------
    InputError : one without the other.
    """
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
    prices: Sequence[str],
    demand: Demand,
    terms: OwnershipTerms,
    absent: list[str],
    api: Api | None,
    training: float | None,
    fit: Fit,
) -> list[Supply]:
    """Return a month's supply by a plan's machines for each kind of price, and by an API.

    Supplies without a price are added to `absent`.
    """
    m = plan.metrics["output_tokens_per_second"]
    capacity = _interval(m)
    owned = own(plan.machine, fit, terms)
    out = []
    for kind in prices:
        if kind == "own":
            hourly = owned.cost() if owned is not None and not owned.bare else None
        else:
            hourly = hourly_cost(plan.machine, kind, fit)
        if hourly is None:
            bare = kind == "own" and owned is not None
            why = (
                f"only the cards of {plan.machine.device.id} are priced (--server)"
                if bare
                else f"no {kind} price of {plan.machine.device.id}"
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
    """Return a predicted figure as an interval for a cost."""
    return Interval(low=m.low * scale, central=m.value * scale, high=m.high * scale, grade=m.grade)


def energy_of(plan: Plan, place: str) -> dict[str, Interval]:
    """Return the energy [kWh] and carbon [gCO2] per million output tokens at full load; empty if power is unknown."""
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
"""Description of each kind of price."""


def cheapest_for(plans: Sequence[Plan], demand: Demand) -> Plan:
    """Return the plan whose machines serve a month's demand at the lowest cost.

    Parameters
    ----------
    plans : ranked plans.
    demand : monthly demand.

    Returns
    -------
    The cheapest plan; the first one if none has a price.
    """
    priced = [plan for plan in plans if plan.cost is not None]
    if not priced:
        return plans[0]

    def bill(plan: Plan) -> float:
        capacity = plan.metrics["output_tokens_per_second"].value
        return float((plan.cost.total if plan.cost else 0.0) * machines_needed(demand, capacity)[1])

    return min(priced, key=bill)


def priced_tokens(
    plan: Plan,
    result: Result,
    demand: Demand,
    terms: OwnershipTerms,
    prices: Sequence[str],
    route: Route | None = None,
    training: float | None = None,
) -> TokenCosts:
    """Return the token costs of a demand on a plan's machines, rented and owned, and from an API.

    Parameters
    ----------
    plan : plan that serves the demand.
    result : result of the search that found the plan.
    demand : monthly demand.
    terms : ownership terms.
    prices : kinds of price: rent, contract, spot, own, or a price per device.
    route : API prices given by the user, None for the listed ones [USD/Mtoken].
    training : training cost per served token, None to leave it out [USD].

    Returns
    -------
    Costs of each supply, and absent supplies with the reason.
    """
    model, absent = plan.model.id, list[str]()
    api = api_of(model, demand, route)
    if api is None:
        near = nearest(model, {str(entry["model"]) for entry in catalogue.token_prices()})
        others = f"; listed are {', '.join(near)} and others" if near else ""
        absent.append(f"API: no route to {model} is listed{others}")
    supplies = supplies_of(plan, prices, demand, terms, absent, api, training, result.fit)
    if api is not None and demand.hit:
        absent.append("API: input found in the cache is charged in full where a route lists no price of it")
    if plan.cost is not None:
        absent.append("room of cached input between requests: how long it is kept is not stated")
    full = {
        "input": uncached_input_cost(plan),
        "output": plan.metrics.get("cost_per_million_output_tokens"),
        "cached input": cached_input_cost(plan),
    }
    return TokenCosts(
        model=model,
        demand=demand,
        api=api,
        paid="" if plan.cost is None else PAID.get(plan.cost.price.kind, plan.cost.price.kind),
        supplies=supplies,
        full={name: _interval(one) for name, one in full.items() if one is not None},
        energy=energy_of(plan, terms.place),
        absent=absent,
        warnings=list(dict.fromkeys([*result.warnings, *(said for one in supplies for said in one.warnings)])),
        changes=plan.changes,
    )
