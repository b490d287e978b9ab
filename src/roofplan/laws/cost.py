"""Money per hour and per token."""

from __future__ import annotations

import numpy as np

from roofplan.laws import Number


def straight_line(price: Number, life: Number) -> Number:
    """Return depreciation without interest or residual value: price / life.

    Parameters
    ----------
    price : purchase [USD].
    life : years of use [s].

    Returns
    -------
    Cost rate [USD/s].

    Notes
    -----
    Domain: positive life. Source: definition; 40,000 USD over three years are 1.52 USD/h.

    Examples
    --------
    >>> round(straight_line(40000, 3 * 8760 * 3600) * 3600, 2)
    1.52
    """
    return price / life


def energy_rate(power: Number, tariff: Number, overhead: Number) -> Number:
    """Return the cost of electricity: power * PUE * tariff.

    Parameters
    ----------
    power : drawn by the machine [W].
    tariff : price of energy [USD/J].
    overhead : power usage effectiveness, the site's power over the machine's [1].

    Returns
    -------
    Cost rate [USD/s].

    Notes
    -----
    Domain: overhead at least 1. Source: The Green Grid, PUE, 2007.

    Examples
    --------
    >>> round(energy_rate(5000.0, 0.1 / 3.6e6, 1.0) * 3600, 2)
    0.5
    """
    return power * overhead * tariff


def per_token(rate: Number, tokens: Number) -> Number:
    """Return the cost of a token: USD per second over tokens per second.

    Parameters
    ----------
    rate : cost of the machine [USD/s].
    tokens : tokens produced per second [1/s].

    Returns
    -------
    Cost per token [USD].

    Notes
    -----
    Domain: the stated load; at full load unless a utilisation divides `tokens`. Source: definition.

    Examples
    --------
    >>> round(per_token(31.92 / 3600, 4837) * 1e6, 2)
    1.83
    """
    return rate / tokens


def per_input_token(rate: Number, prefill: Number) -> Number:
    """Return the cost of an input token: machine rate times the prefill seconds that it occupies.

    With the rest on output tokens it splits a request by device time: I c_in + O c_out is the request's cost.

    Parameters
    ----------
    rate : cost of the machine [USD/s].
    prefill : machine seconds that one input token takes [s].

    Returns
    -------
    Cost per token [USD].

    Notes
    -----
    Domain: steady state. Source: allocation by use of the bottleneck resource.

    Examples
    --------
    >>> round(per_input_token(0.01, 0.0001) * 1e6, 6)
    1.0
    """
    return rate * prefill


def annuity(price: Number, residual: Number, interest: Number, years: Number) -> Number:
    """Return the yearly payment that buys a machine: (P - R / q^n) i / (1 - q^-n), q = 1 + i.

    Parameters
    ----------
    price : purchase P [USD].
    residual : what it sells for at the end R [USD].
    interest : per year i, above zero [1].
    years : of use n [1].

    Returns
    -------
    Payment at the end of each year [USD].

    Notes
    -----
    Domain: i > 0; without interest it is `straight_line` of what is not sold again. Source: the annuity of finance, as PMT in spreadsheets.

    Examples
    --------
    >>> round(annuity(40000.0, 0.0, 0.08, 3.0) / 8760, 2)
    1.77
    """
    growth = (1 + interest) ** years
    return (price - residual / growth) * interest / (1 - 1 / growth)


def payback_time(price: Number, income: Number, running: Number) -> Number:
    """Return the time until a bought machine has earned its price: P / (income - running).

    Parameters
    ----------
    price : purchase P [USD].
    income : of renting it out, idle hours counted [USD/s].
    running : electricity, hosting and staff [USD/s].

    Returns
    -------
    Time [s].

    Notes
    -----
    Domain: income above running cost, no interest. Source: definition.

    Examples
    --------
    >>> round(payback_time(300000.0 / 8, 4.0 / 3600, 0.6 / 3600) / (730 * 3600), 1)  # months
    15.1
    """
    return price / (income - running)


def break_even_rate(owning: Number, tariff: Number) -> Number:
    """Return the tokens per second from which a machine of one's own costs less than an API: USD per second over USD per token.

    Parameters
    ----------
    owning : cost of the machine, busy or idle [USD/s].
    tariff : what the API asks for the same mix of tokens [USD].

    Returns
    -------
    Rate [1/s].

    Notes
    -----
    Domain: up to what the machine gives; above it a second one starts. Source: definition.

    Examples
    --------
    >>> round(break_even_rate(3.29 / 3600, 0.24e-6))
    3808
    """
    return owning / tariff


def daily_rate(mean: Number, peak: Number, hour: Number) -> Number:
    """Return the demand at an hour of the day: r (1 + (p - 1) sin(2 pi t / 24)).

    Parameters
    ----------
    mean : demand over the day r [1/s].
    peak : highest demand over the mean p, at most 2 [1].
    hour : of the day t, in hours after the mean is passed upwards [1].

    Returns
    -------
    Demand [1/s].

    Notes
    -----
    Domain: one wave a day, 1 <= p <= 2 so that nothing is below zero. Source: definition; traces of chat services have peaks of 1.3 to 2.

    Examples
    --------
    >>> [float(daily_rate(10.0, 1.5, h)) for h in (0.0, 6.0, 18.0)]
    [10.0, 15.0, 5.0]
    """
    return mean * (1 + (peak - 1) * np.sin(2 * np.pi * hour / 24))


def blended_price(inputs: Number, outputs: Number, share: Number) -> Number:
    """Return what a token costs on average where input and output are priced apart: s p_in + (1 - s) p_out.

    Parameters
    ----------
    inputs : price of an input token [USD].
    outputs : price of an output token [USD].
    share : of the tokens that are input s [1].

    Returns
    -------
    Cost of a token [USD].

    Notes
    -----
    Domain: the stated mix. Source: definition.

    Examples
    --------
    >>> round(blended_price(0.15e-6, 0.60e-6, 0.8) * 1e6, 2)
    0.24
    """
    return share * inputs + (1 - share) * outputs


def break_even_use(owning: Number, renting: Number) -> Number:
    """Return the share of the hours from which owning costs less than renting for the hours that are used: own / rent.

    Parameters
    ----------
    owning : cost of one's own machine, busy or idle [USD/s].
    renting : rent of the same machine [USD/s].

    Returns
    -------
    Share of the hours, above 1 where renting is always cheaper [1].

    Notes
    -----
    Domain: rent by the hour, nothing to pay when it is let go. Source: definition.

    Examples
    --------
    >>> round(break_even_use(1.50 / 3600, 3.99 / 3600), 2)
    0.38
    """
    return owning / renting


def idle_cost(full: Number, use: Number) -> Number:
    """Return what the idle hours add to a token: c (1 / u - 1).

    Parameters
    ----------
    full : cost of a token on a machine that is always full c [USD].
    use : share of full load that it carries on average u [1].

    Returns
    -------
    Cost per token, on top of `full` [USD].

    Notes
    -----
    Domain: 0 < u <= 1, a machine that is paid for whether it works or not. Source: definition.

    Examples
    --------
    >>> idle_cost(0.5, 0.25)
    1.5
    """
    return full * (1 / use - 1)


def training_share(bill: Number, tokens: Number) -> Number:
    """Return what each token carries of the model's training: C / T.

    Parameters
    ----------
    bill : cost of the training, failed runs and research included or not, as stated C [USD].
    tokens : that the model serves in its life T [token].

    Returns
    -------
    Cost per token [USD].

    Notes
    -----
    Domain: the stated life. Source: definition.

    Examples
    --------
    >>> training_share(5.576e6, 100e12) * 1e6  # DeepSeek-V3's rental bill over 100T tokens, per million
    0.05576
    """
    return bill / tokens
