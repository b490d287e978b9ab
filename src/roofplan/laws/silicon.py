"""From a wafer to a tested package: dies per wafer, yield and cost.

The yield laws are alternatives. At 800 mm2 they differ by a third, so an answer states which one it used.

References
----------
.. [1] B. T. Murphy, "Cost-size optima of monolithic integrated circuits", Proc. IEEE 52, 1964. doi:10.1109/PROC.1964.3442
.. [2] R. B. Seeds, "Yield, economic, and logistic models for complex digital arrays", IRE Int. Conv. Rec., 1967.
.. [3] C. H. Stapper, "Defect density distribution for LSI yield calculations", IEEE Trans. Electron Devices 20, 1973. doi:10.1109/T-ED.1973.17719
.. [4] Y. Feng, K. Ma, "Chiplet Actuary: a quantitative cost model and multi-chiplet architecture exploration", DAC 2022, arXiv 2203.12268.
.. [5] D. K. de Vries, "Investigation of gross die per wafer formulas", IEEE Trans. Semicond. Manuf. 18, 2005. doi:10.1109/TSM.2004.836656
"""

from __future__ import annotations

import numpy as np

from roofplan.laws import Number

RETICLE = 858e-6
"""Largest field that a scanner exposes at once, 26 mm x 33 mm; no die is larger [m2]."""


def scribed_area(area: Number, scribe: Number) -> Number:
    """Return the wafer area of a square die with its share of the scribe lines: (sqrt(A) + s)^2.

    Parameters
    ----------
    area : of the die A [m2].
    scribe : width of a scribe line s [m].

    Returns
    -------
    Area [m2].

    Notes
    -----
    Domain: square dies; a die of 26 mm x 33 mm takes 0.01% more. Source: [4]_ section 3.

    Examples
    --------
    >>> round(scribed_area(814e-6, 0.2e-3) * 1e6, 1)
    825.5
    """
    return (area**0.5 + scribe) ** 2


def dies_per_wafer(diameter: Number, edge: Number, area: Number) -> Number:
    """Return the whole dies of a wafer: pi (d/2 - e)^2 / A - pi (d - 2 e) / sqrt(2 A) [5]_.

    Parameters
    ----------
    diameter : of the wafer d [m].
    edge : width of the outer ring without dies e [m].
    area : of a die with its scribe lines A [m2].

    Returns
    -------
    Dies [1].

    Notes
    -----
    Domain: dies much smaller than the wafer. The second term counts dies cut by the edge. The result is an expectation
    over placements, not a whole number. Source: [5]_, as in [4]_.

    Examples
    --------
    >>> round(dies_per_wafer(0.3, 5e-3, scribed_area(814e-6, 0.2e-3)), 1)  # GH100
    57.6
    """
    return np.pi * (diameter / 2 - edge) ** 2 / area - np.pi * (diameter - 2 * edge) / (2 * area) ** 0.5


def poisson_yield(area: Number, density: Number) -> Number:
    """Return the yield with independent defects: e^(-A D).

    Parameters
    ----------
    area : of the die A [m2].
    density : density of killer defects D [1/m2].

    Returns
    -------
    Yield [1].

    Notes
    -----
    Domain: no clustering, so the lowest yield among the laws with a distributed density. Source: definition; compared in [1]_.

    Examples
    --------
    >>> round(float(poisson_yield(814e-6, 1100.0)), 3)
    0.408
    """
    return np.exp(-area * density)


def murphy_yield(area: Number, density: Number) -> Number:
    """Return the yield with a triangular distribution of defect density: ((1 - e^(-A D)) / (A D))^2 [1]_.

    Parameters
    ----------
    area : of the die A [m2].
    density : mean density of defects D [1/m2].

    Returns
    -------
    Yield [1].

    Notes
    -----
    Domain: A D > 0. Source: [1]_.

    Examples
    --------
    >>> round(float(murphy_yield(814e-6, 1100.0)), 3)
    0.436
    """
    load = area * density
    return (-np.expm1(-load) / load) ** 2


def seeds_yield(area: Number, density: Number) -> Number:
    """Return the yield with an exponential distribution of defect density: 1 / (1 + A D) [2]_.

    Parameters
    ----------
    area : of the die A [m2].
    density : mean density of defects D [1/m2].

    Returns
    -------
    Yield [1].

    Notes
    -----
    Domain: heavy clustering, so the highest yield of the family. `seeds_root_yield` goes by the same name.
    Source: [2]_.

    Examples
    --------
    >>> round(seeds_yield(814e-6, 1100.0), 3)
    0.528
    """
    return 1 / (1 + area * density)


def seeds_root_yield(area: Number, density: Number) -> Number:
    """Return the yield by the other formula named after Seeds: e^(-sqrt(A D)).

    Parameters
    ----------
    area : of the die A [m2].
    density : mean density of defects D [1/m2].

    Returns
    -------
    Yield [1].

    Notes
    -----
    Domain: textbooks and calculators also call 1 / (1 + A D) Seeds. Source: textbooks and calculators; kept to trace published figures.

    Examples
    --------
    >>> round(float(seeds_root_yield(814e-6, 1100.0)), 3)
    0.388
    """
    return np.exp(-((area * density) ** 0.5))


def negative_binomial_yield(area: Number, density: Number, clustering: Number) -> Number:
    """Return the yield with a gamma distribution of defect density: (1 + A D / a)^(-a) [3]_.

    Parameters
    ----------
    area : of the die A [m2].
    density : mean density of defects D [1/m2].
    clustering : parameter a; 1 gives Seeds, infinity gives Poisson; 3 and 10 are common [1].

    Returns
    -------
    Yield [1].

    Notes
    -----
    Domain: a > 0. Source: [3]_; a = 10 in [4]_.

    Examples
    --------
    >>> [round(negative_binomial_yield(814e-6, 1100.0, a), 3) for a in (10.0, 3.0, 1.0)]
    [0.424, 0.457, 0.528]
    """
    return (1 + area * density / clustering) ** -clustering


def bose_einstein_yield(area: Number, density: Number, layers: Number) -> Number:
    """Return the yield of n critical layers with independent defects: (1 + A D)^(-n).

    Parameters
    ----------
    area : of the die A [m2].
    density : mean density of defects per layer D [1/m2].
    layers : critical mask layers n [1].

    Returns
    -------
    Yield [1].

    Notes
    -----
    Domain: densities per layer, about a tenth of those of a whole process. Source: J. E. Price, Proc. IEEE 58, 1970.

    Examples
    --------
    >>> round(bose_einstein_yield(814e-6, 110.0, 10.0), 3)
    0.424
    """
    return (1 + area * density) ** -layers


def salvaged_yield(area: Number, density: Number, critical: Number, spare: Number, clustering: Number) -> Number:
    """Return the share of dies that can be sold with some units disabled: sum over j <= k of C(a+j-1, j) (l/(a+AD))^j (1 + AD/a)^-a.

    Parameters
    ----------
    area : of the die A [m2].
    density : mean density of defects D [1/m2].
    critical : share u of the area that must be free of defects; an assumption, since no maker publishes it [1].
    spare : units that may be disabled in a sold part k, a whole number [1].
    clustering : of the defects a, as in `negative_binomial_yield` [1].

    Returns
    -------
    Usable share of the dies [1].

    Notes
    -----
    Domain: defects per die are Poisson with a gamma-distributed mean, a = clustering. A part can be sold if no defect hits
    the critical share and at most k hit the rest, l = (1 - u) A D on average. Each of these disables one unit. Two defects in
    one unit count as two, so the share is slightly low (by less than 1e-5 for the 80 to 144 units of today's dies, 0.01 for
    one spare of eight). Without spare units, or where all is critical, it is `negative_binomial_yield`. GH100 has 144
    multiprocessors and is sold with 132: nearly every die meets that, so u decides. Source: [3]_ for the clustering.

    Examples
    --------
    >>> [round(57.6 * float(salvaged_yield(814e-6, 1100.0, u, 12.0, 10.0))) for u in (0.2, 0.3, 0.4)]
    [48, 44, 41]
    >>> round(float(salvaged_yield(814e-6, 1100.0, 0.3, 0.0, 10.0)), 3)
    0.424
    """
    defects = area * density
    odds = (1 - critical) * defects / (clustering + defects)
    found = way = negative_binomial_yield(area, density, clustering)
    for lost in range(1, int(np.max(spare)) + 1):
        way = way * odds * (clustering + lost - 1) / lost
        found = found + np.where(lost <= spare, way, 0.0)
    return found


def die_cost(wafer: Number, dies: Number, share: Number) -> Number:
    """Return the cost of a sellable die: wafer / (dies x share) [4]_.

    Parameters
    ----------
    wafer : price of a processed wafer [USD].
    dies : whole dies on it [1].
    share : share of them that can be sold [1].

    Returns
    -------
    Cost [USD].

    Notes
    -----
    Domain: before wafer test. Source: [4]_ equation 3.

    Examples
    --------
    >>> round(die_cost(16988.0, 57.6, 0.424))
    696
    """
    return wafer / (dies * share)


def assembled_cost(parts: Number, process: Number, joint: Number, joints: Number) -> Number:
    """Return the cost of a working package: (parts + process) / y^n. A failed joint loses the whole package [4]_.

    Parameters
    ----------
    parts : known good dies and memory stacks on it [USD].
    process : interposer, substrate and assembly [USD].
    joint : yield of joining one chip y [1].
    joints : chips on the package n [1].

    Returns
    -------
    Cost [USD].

    Notes
    -----
    Domain: chips are tested before assembly, no rework. Source: [4]_ equations 5 to 8, one level.

    Examples
    --------
    >>> round(assembled_cost(1650.0, 735.0, 0.99, 7))
    2559
    """
    return (parts + process) / joint**joints


def design_share(design: Number, volume: Number) -> Number:
    """Return the share of design, masks and software per part: NRE / volume.

    Parameters
    ----------
    design : one-time cost of the design [USD].
    volume : parts sold [1].

    Returns
    -------
    Cost [USD].

    Notes
    -----
    Domain: one design for all parts. Source: definition.

    Examples
    --------
    >>> design_share(542e6, 1e6)
    542.0
    """
    return design / volume


def gross_margin(price: Number, cost: Number) -> Number:
    """Return the seller's gross margin: 1 - cost / price.

    Parameters
    ----------
    price : selling price [USD].
    cost : cost of the part sold [USD].

    Returns
    -------
    Share of the price [1].

    Notes
    -----
    Domain: one part, without development and distribution. Source: definition.

    Examples
    --------
    >>> round(gross_margin(30000.0, 3320.0), 2)
    0.89
    """
    return 1 - cost / price


def chip_rate(area: Number, density: Number, each: Number) -> Number:
    """Return the compute rate of a chip: area x transistor density x rate per transistor, A d r.

    Parameters
    ----------
    area : of the die A [m2].
    density : transistors per area d [1/m2].
    each : rate of operations per transistor r [1/s].

    Returns
    -------
    Rate [1/s].

    Notes
    -----
    Domain: an identity that splits progress into reticle, process, and architecture with precision. Source: definition.

    Examples
    --------
    >>> round(chip_rate(814e-6, 98.28e12, 750.0) / 1e12)  # H100, FP32 of its vector units [TFLOP/s]
    60
    """
    return area * density * each


def transistor_price(wafer: Number, area: Number, density: Number) -> Number:
    """Return the cost of a transistor before yield: W / (A d).

    Parameters
    ----------
    wafer : price of a wafer W [USD].
    area : wafer area that carries dies A [m2].
    density : transistors per area d [1/m2].

    Returns
    -------
    Price of a transistor [USD].

    Notes
    -----
    Domain: peak densities, so a lower bound. Source: definition.

    Examples
    --------
    >>> [round(transistor_price(w, 0.0661, d * 1e12) * 1e9, 2) for w, d in ((9346.0, 96.3), (16988.0, 138.2))]  # 7 and 5 nm
    [1.47, 1.86]
    """
    return wafer / (area * density)


def rate_of_a_transistor(rate: Number, transistors: Number) -> Number:
    """Return the rate per transistor: P / N.

    Parameters
    ----------
    rate : of the device in a stated number format and unit P [FLOP/s].
    transistors : of the device N [1].

    Returns
    -------
    Rate of one transistor [FLOP/s].

    Notes
    -----
    Domain: all transistors count, including those of memory and links. Source: definition; the inverse of `chip_rate`.

    Examples
    --------
    >>> round(rate_of_a_transistor(989.4e12, 80e9))  # H100, dense bf16
    12368
    """
    return rate / transistors
