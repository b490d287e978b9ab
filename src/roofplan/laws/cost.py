"""Costs per hour and per token."""

from __future__ import annotations

import numpy as np

from roofplan.laws import Number


def straight_line(price: Number, life: Number) -> Number:
    """Return depreciation without interest or residual value: price / life.

    Parameters
    ----------
    price : purchase price [USD].
    life : period of use [s].

    Returns
    -------
    Cost rate [USD/s].

    Notes
    -----
    Domain: positive life. Source: definition; 40,000 USD over three years is 1.52 USD/h.

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
    power : power drawn by the machine [W].
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
    """Return the cost per token: cost rate / token rate.

    Parameters
    ----------
    rate : cost of the machine [USD/s].
    tokens : tokens produced per second [1/s].

    Returns
    -------
    Cost per token [USD].

    Notes
    -----
    Domain: the stated load; full load unless `tokens` is scaled by a utilisation. Source: definition.

    Examples
    --------
    >>> round(per_token(31.92 / 3600, 4837) * 1e6, 2)
    1.83
    """
    return rate / tokens


def per_input_token(rate: Number, prefill: Number) -> Number:
    """Return the cost of an input token: cost rate x prefill time.

    With the rest charged to output tokens this splits a request by device time: I c_in + O c_out is its cost.

    Parameters
    ----------
    rate : cost of the machine [USD/s].
    prefill : machine time of one input token [s].

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
    """Return the yearly payment that pays for a machine: (P - R / q^n) i / (1 - q^-n), q = 1 + i.

    Parameters
    ----------
    price : purchase price P [USD].
    residual : resale price at the end R [USD].
    interest : interest rate per year i, above zero [1].
    years : years of use n [1].

    Returns
    -------
    Payment at the end of each year [USD].

    Notes
    -----
    Domain: i > 0; without interest it is `straight_line` of price minus residual. Source: the annuity formula of finance, PMT in spreadsheets.

    Examples
    --------
    >>> float(round(annuity(40000.0, 0.0, 0.08, 3.0) / 8760, 2))
    1.77
    """
    growth = years * np.log1p(interest)
    return (price - residual * np.exp(-growth)) * interest / -np.expm1(-growth)


def payback_time(price: Number, income: Number, running: Number) -> Number:
    """Return the time until a bought machine has earned its price: P / (income - running).

    Parameters
    ----------
    price : purchase price P [USD].
    income : income from renting it out, averaged over idle hours too [USD/s].
    running : cost of electricity, hosting and staff [USD/s].

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
    """Return the token rate above which an owned machine costs less than an API: cost rate / price per token.

    Parameters
    ----------
    owning : cost of the machine, busy or idle [USD/s].
    tariff : price of the API per token, for the same mix of tokens [USD].

    Returns
    -------
    Rate [1/s].

    Notes
    -----
    Domain: up to the capacity of the machine; beyond it a second machine is needed. Source: definition.

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
    mean : mean demand over the day r [1/s].
    peak : highest demand over the mean p, at most 2 [1].
    hour : time t, in hours after demand rises through its mean [1].

    Returns
    -------
    Demand [1/s].

    Notes
    -----
    Domain: one sine wave a day; 1 <= p <= 2, so that demand is never negative. Source: definition; traces of chat services have peaks of 1.3 to 2.

    Examples
    --------
    >>> [float(daily_rate(10.0, 1.5, h)) for h in (0.0, 6.0, 18.0)]
    [10.0, 15.0, 5.0]
    """
    return mean * (1 + (peak - 1) * np.sin(2 * np.pi * hour / 24))


def blended_price(inputs: Number, outputs: Number, share: Number) -> Number:
    """Return the mean cost of a token where input and output have separate prices: s p_in + (1 - s) p_out.

    Parameters
    ----------
    inputs : price of an input token [USD].
    outputs : price of an output token [USD].
    share : share of input tokens s [1].

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
    """Return the share of hours in use above which owning costs less than renting: own / rent.

    Parameters
    ----------
    owning : cost of the owned machine, busy or idle [USD/s].
    renting : rent of the same machine [USD/s].

    Returns
    -------
    Share of the hours, above 1 where renting is always cheaper [1].

    Notes
    -----
    Domain: rent by the hour, with no cost while nothing is rented. Source: definition.

    Examples
    --------
    >>> round(break_even_use(1.50 / 3600, 3.99 / 3600), 2)
    0.38
    """
    return owning / renting


def idle_cost(full: Number, use: Number) -> Number:
    """Return the cost that idle hours add per token: c (1 / u - 1).

    Parameters
    ----------
    full : cost of a token at full load c [USD].
    use : mean load over full load u [1].

    Returns
    -------
    Cost per token, on top of `full` [USD].

    Notes
    -----
    Domain: 0 < u <= 1; the machine costs the same, busy or idle. Source: definition.

    Examples
    --------
    >>> idle_cost(0.5, 0.25)
    1.5
    """
    return full * (1 / use - 1)


def training_share(bill: Number, tokens: Number) -> Number:
    """Return the training cost per token served: C / T.

    Parameters
    ----------
    bill : cost of training C, with or without failed runs and research, as stated [USD].
    tokens : tokens that the model serves over its life T [token].

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
