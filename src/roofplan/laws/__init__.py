"""The physics: pure functions of floats or arrays, SI in and out, numpy only.

A law knows nothing of models, devices or engines. Alternative laws have names and domains of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Number = Any
"""A float or an array of floats of any shape; laws broadcast."""


def larger(a: Number, b: Number) -> Number:
    """Return the elementwise maximum; plain floats avoid numpy's overhead."""
    if type(a) is float and type(b) is float:
        return a if a > b else b
    return np.maximum(a, b)


def smaller(a: Number, b: Number) -> Number:
    """Return the elementwise minimum; plain floats avoid numpy's overhead."""
    if type(a) is float and type(b) is float:
        return a if a < b else b
    return np.minimum(a, b)


def up(a: Number) -> Number:
    """Return the elementwise ceiling; plain floats avoid numpy's overhead."""
    if type(a) is float:
        return float(-(-a // 1))
    return np.ceil(a)


def where(condition: Number, yes: Number, no: Number) -> Number:
    """Return `yes` where `condition` holds, else `no`."""
    if condition is True or condition is False:
        return yes if condition else no
    return np.where(condition, yes, no)
