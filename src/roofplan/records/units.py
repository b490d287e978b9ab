"""Conversion of quantities between text with units and SI.

Inside roofplan every quantity is a plain number in B, s, FLOP, FLOP/s, B/s, W, J, USD or token. Text with units exists only
at the edges. GB (10^9 B) is never GiB (2^30 B).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from roofplan.errors import UnitError

KIB, MIB, GIB, TIB = 1024.0, 1024.0**2, 1024.0**3, 1024.0**4
HOUR, DAY, MONTH, YEAR = 3600.0, 86400.0, 730 * 3600.0, 365 * 86400.0
JOULE_PER_KWH = 3.6e6

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": KIB, "Mi": MIB, "Gi": GIB, "Ti": TIB, "Pi": 1024.0**5}


def _scaled(
    symbol: str, factor: float = 1.0, prefixes: tuple[str, ...] = ("", "k", "K", "M", "G", "T", "P", "E")
) -> dict[str, float]:
    return {prefix + symbol: _DECIMAL[prefix] * factor for prefix in prefixes}


_BYTES = _scaled("B") | {prefix + "B": factor for prefix, factor in _BINARY.items()}
_TIME = {
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "ns": 1e-9,
    "min": 60.0,
    "m": 60.0,
    "h": HOUR,
    "d": DAY,
    "day": DAY,
    "month": MONTH,
    "year": YEAR,
    "minutes": 60.0,
    "hour": HOUR,
    "hours": HOUR,
    "days": DAY,
    "week": 7 * DAY,
    "weeks": 7 * DAY,
    "months": MONTH,
    "years": YEAR,
}
_MONEY = {"USD": 1.0, "$": 1.0, "kUSD": 1e3, "MUSD": 1e6}

UNITS: dict[str, dict[str, float]] = {
    "B": _BYTES,
    "B/s": {unit + "/s": factor for unit, factor in _BYTES.items()}
    | _scaled("bit/s", 1 / 8)
    | _scaled("b/s", 1 / 8)
    | _scaled("bps", 1 / 8),
    "FLOP/s": _scaled("FLOPS") | _scaled("FLOP/s") | _scaled("OPS") | _scaled("OP/s"),
    "FLOP": _scaled("FLOP") | _scaled("OP"),
    "s": _TIME,
    "W": _scaled("W") | {"mW": 1e-3},
    "J": _scaled("J") | {"Wh": HOUR, "kWh": JOULE_PER_KWH, "MWh": 1e3 * JOULE_PER_KWH},
    "Hz": _scaled("Hz"),
    "USD": _MONEY,
    "USD/h": {money + "/h": factor for money, factor in _MONEY.items()}
    | {money + "/month": factor / 730 for money, factor in _MONEY.items()},
    "USD/kWh": {money + "/kWh": factor for money, factor in _MONEY.items()},
    "token/s": {"tok/s": 1.0, "token/s": 1.0, "tokens/s": 1.0, "t/s": 1.0, "tps": 1.0},
    "request/s": {"rps": 1.0}
    | {
        f"{name}/{time}": 1.0 / seconds
        for name in ("req", "request", "requests", "")
        for time, seconds in {"s": 1.0, "min": 60.0, "h": HOUR, "day": DAY}.items()
    },
    "m": {"mm": 1e-3, "cm": 1e-2, "m": 1.0},
    "m2": {"mm2": 1e-6, "cm2": 1e-4, "m2": 1.0},
    "1/m2": {"1/cm2": 1e4, "1/m2": 1.0, "MTr/mm2": 1e12},
    "USD/B": {"USD/GiB": 1 / GIB, "USD/GB": 1e-9, "USD/B": 1.0},
    "USD/m2": {"USD/mm2": 1e6, "USD/m2": 1.0},
    "1": {"": 1.0, "%": 0.01, "x": 1.0, "SM": 1.0, "CU": 1.0, "core": 1.0, "cores": 1.0, "device": 1.0, "devices": 1.0},
}
"""Accepted spellings by SI unit, each with its value in that unit."""

_NUMBER = re.compile(r"^\s*([+-]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|nan|NaN|inf|-inf)\s*(.*?)\s*$")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?(?:[eE][+-]?\d+)?")
_LENGTH = {"": 1, "k": 1024, "K": 1024, "ki": 1024, "Ki": 1024, "M": 1024**2, "m": 1024**2}
_AMOUNT = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "b": 1e9, "G": 1e9, "T": 1e12, "t": 1e12}


def _split(text: str, argument: str, example: str) -> tuple[float, str]:
    match = _NUMBER.match(re.sub(r"^\s*\$\s*([\d.,_]+[kM]?)", r"\1$", str(text)))  # $20/h is 20$/h
    if not match:
        raise UnitError(
            f"{argument}: cannot read {text!r} as a quantity. Example: {example}", argument=argument, value=text
        )
    if "," in match.group(1) and not _GROUPED.fullmatch(match.group(1)):
        raise UnitError(
            f"{argument}: {text}: commas stand between groups of three digits, a point before decimals. Example: {example}",
            argument=argument,
            value=text,
        )
    return float(match.group(1).replace(",", "").replace("_", "")), match.group(2)


def _checked(value: float, text: str, argument: str, *, positive: bool) -> float:
    if not math.isfinite(value):
        raise UnitError(f"{argument}: {text} is not a finite number", argument=argument, value=text)
    if positive and value <= 0:
        raise UnitError(f"{argument}: {text} must be greater than zero", argument=argument, value=text)
    return value


def parse(
    text: str | float, unit: str, argument: str = "quantity", *, positive: bool = True, example: str = ""
) -> float:
    """Return a quantity in the SI unit `unit`; a bare number is refused unless the unit is ``1``.

    Parameters
    ----------
    text : the quantity, such as ``80 GiB``.
    unit : SI unit, a key of `UNITS`.
    argument : flag or field that the text was given for, as a refusal names it.
    positive : whether zero and negative quantities are refused.
    example : what a refusal shows, by default a usual quantity of that unit.

    Returns
    -------
    The quantity [`unit`].

    Raises
    ------
    UnitError : no such quantity, not finite, or not positive where it must be.

    Examples
    --------
    >>> parse("3.35 TB/s", "B/s")
    3350000000000.0
    >>> parse("80 GiB", "B") == 80 * 2**30
    True
    >>> parse("200 Gbit/s", "B/s")
    25000000000.0
    >>> parse("500ms", "s")
    0.5
    """
    table = UNITS[unit]
    example = example or _example(unit)
    number, suffix = _split(str(text), argument, example)
    _checked(number, str(text), argument, positive=positive)
    spelling = suffix.replace(" ", "")
    if spelling not in table:
        what = "needs a unit" if not spelling else f"has no unit {spelling!r}"
        if not spelling and isinstance(text, str):
            usual = unit if number < 1.0 and unit in table else example.split()[-1]
            example = f"{text.strip()} {usual}"
        raise UnitError(
            f"{argument}: {text} {what}. Accepted: {', '.join(list(table)[:10])}. Example: {example}",
            argument=argument,
            value=str(text),
        )
    return _checked(number * table[spelling], str(text), argument, positive=positive)


def _example(unit: str) -> str:
    return {
        "B": "80 GiB",
        "B/s": "3.35 TB/s",
        "FLOP/s": "989 TFLOPS",
        "s": "50 ms",
        "W": "700 W",
        "USD/h": "2.50 USD/h",
        "USD": "1600 USD",
        "token/s": "20 tok/s",
        "request/s": "4 req/s",
        "1": "30%",
        "USD/kWh": "0.1 USD/kWh",
        "m2": "814 mm2",
    }.get(unit, f"1 {unit}")


def parse_length(text: str | float, argument: str = "length") -> int:
    """Return a length in tokens, in which k means 1,024.

    Parameters
    ----------
    text : the length, such as ``8192`` or ``8k``.
    argument : flag or field that the text was given for, as a refusal names it.

    Returns
    -------
    The length, whole and positive [token].

    Raises
    ------
    UnitError : no such length.

    Examples
    --------
    >>> parse_length("128k")
    131072
    """
    number, suffix = _split(str(text), argument, "8k")
    if suffix not in _LENGTH:
        raise UnitError(
            f"{argument}: {text} is not a length in tokens. Example: 8192 or 8k", argument=argument, value=str(text)
        )
    return _whole(number * _LENGTH[suffix], str(text), argument)


def parse_amount(text: str | float, argument: str = "amount") -> float:
    """Return an amount, in which k, M, B and T are decimal.

    Parameters
    ----------
    text : the amount, such as ``300B``.
    argument : flag or field that the text was given for, as a refusal names it.

    Returns
    -------
    The amount, positive [1].

    Raises
    ------
    UnitError : no such amount.

    Examples
    --------
    >>> parse_amount("2T")
    2000000000000.0
    """
    number, suffix = _split(str(text), argument, "2T")
    if suffix not in _AMOUNT:
        raise UnitError(f"{argument}: {text} is not an amount. Example: 300B or 2T", argument=argument, value=str(text))
    return _checked(number * _AMOUNT[suffix], str(text), argument, positive=True)


def parse_count(text: str | float, argument: str = "count") -> int:
    """Return a whole number of at least one.

    Parameters
    ----------
    text : the number.
    argument : flag or field that the text was given for, as a refusal names it.

    Returns
    -------
    The number [1].

    Raises
    ------
    UnitError : no such number.

    Examples
    --------
    >>> parse_count("8")
    8
    """
    number, suffix = _split(str(text), argument, "8")
    if suffix:
        raise UnitError(f"{argument}: {text} is not a whole number", argument=argument, value=str(text))
    return _whole(number, str(text), argument)


def _whole(number: float, text: str, argument: str) -> int:
    _checked(number, text, argument, positive=True)
    if number != int(number):
        raise UnitError(f"{argument}: {text} must be a whole number", argument=argument, value=text)
    return int(number)


def parse_share(text: str | float, argument: str = "share") -> float:
    """Return a share between 0 and 1, written ``0.3`` or ``30%``.

    Parameters
    ----------
    text : the share.
    argument : flag or field that the text was given for, as a refusal names it.

    Returns
    -------
    The share [1].

    Raises
    ------
    UnitError : no such share, or one outside 0 to 1.

    Examples
    --------
    >>> parse_share("30%")
    0.3
    """
    value = parse(text, "1", argument, positive=False)
    if not 0 <= value <= 1:
        raise UnitError(
            f"{argument}: {text} must lie between 0 and 1 (or 0% and 100%)", argument=argument, value=str(text)
        )
    return value


def significant(value: float, digits: int = 3) -> str:
    """Return a number with significant digits and thousands separators, without an exponent.

    Parameters
    ----------
    value : the number.
    digits : significant digits of the fraction; whole digits are never cut [1].

    Returns
    -------
    The number as text.

    Examples
    --------
    >>> significant(4837.2), significant(0.0123456), significant(131072, 2), significant(49.6)
    ('4,837', '0.0123', '131,072', '49.6')
    """
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)) + 1e-12))
    rounded = round(value, decimals)
    if rounded != 0 and max(0, digits - 1 - math.floor(math.log10(abs(rounded)) + 1e-12)) < decimals:
        decimals = max(0, decimals - 1)
    return f"{value:,.{decimals}f}"


def compact(value: float) -> str:
    """Return a count in short form, with k, M, B or T.

    Parameters
    ----------
    value : the count [1].

    Returns
    -------
    The count as text, to three digits.

    Examples
    --------
    >>> compact(1e9), compact(8e8), compact(12345.0)
    ('1B', '800M', '12.3k')
    """
    for factor, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= factor * 0.9995:
            return f"{significant(value / factor).removesuffix('.00').removesuffix('.0')}{suffix}"
    return f"{value:.3g}"


def at_least(value: float, digits: int = 3) -> float:
    """Return a number rounded up to significant digits, so that the printed number still suffices.

    Parameters
    ----------
    value : the number, other than zero.
    digits : significant digits [1].

    Returns
    -------
    The next number that is no smaller, in the unit of `value`.

    Examples
    --------
    >>> at_least(0.0031201), at_least(0.00312)
    (0.00313, 0.00312)
    """
    return _directed(value, digits, math.ceil)


def at_most(value: float, digits: int = 3) -> float:
    """Return a number rounded down to significant digits.

    Parameters
    ----------
    value : the number, other than zero.
    digits : significant digits [1].

    Returns
    -------
    The next number that is no larger, in the unit of `value`.

    Examples
    --------
    >>> at_most(320.99)
    320.0
    """
    return _directed(value, digits, math.floor)


def _directed(value: float, digits: int, towards: Callable[[float], int]) -> float:
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(abs(value))))
    near = round(value * scale)
    whole = near if abs(near - value * scale) < 1e-9 * abs(near) else towards(value * scale)
    return float(f"{whole / scale:.{digits}g}")


def _prefixed(value: float, unit: str, steps: tuple[tuple[float, str], ...], digits: int) -> str:
    for factor, prefix in steps:
        if abs(value) >= factor * 0.9995:
            return f"{significant(value / factor, digits)} {prefix}{unit}"
    factor, prefix = steps[-1]
    return f"{significant(value / factor, digits)} {prefix}{unit}"


_SI_STEPS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def show(value: float, unit: str, digits: int = 3) -> str:
    """Return a quantity as text for a reader, with a prefix of its unit.

    Parameters
    ----------
    value : the quantity [`unit`].
    unit : SI unit.
    digits : significant digits [1].

    Returns
    -------
    The quantity with its unit; FLOP/s are shown as FLOPS, long times in h and days.

    Examples
    --------
    >>> show(3.35e12, "B/s"), show(0.0496, "s"), show(141e12, "FLOP"), show(700, "W")
    ('3.35 TB/s', '49.6 ms', '141 TFLOP', '700 W')
    """
    if unit == "s":
        return _seconds(value, digits)
    if unit == "FLOP/s":
        return _prefixed(value, "FLOPS", _SI_STEPS, digits)
    if unit in {"B", "B/s", "FLOP", "W", "J", "Hz"}:
        return _prefixed(value, unit, _SI_STEPS, digits)
    if unit == "1":
        return significant(value, digits)
    return f"{significant(value, digits)} {unit}"


def _seconds(value: float, digits: int) -> str:
    if abs(value) >= 2 * DAY:
        return f"{significant(value / DAY, digits)} days"
    if abs(value) >= 2 * HOUR:
        return f"{significant(value / HOUR, digits)} h"
    return _prefixed(value, "s", ((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n")), digits)


def gib(value: float, digits: int = 3) -> str:
    """Return a memory size in GiB as text, without the unit.

    Parameters
    ----------
    value : the size [B].
    digits : significant digits [1].

    Returns
    -------
    The number of GiB as text.

    Examples
    --------
    >>> gib(16.4 * 2**30)
    '16.4'
    """
    return significant(value / GIB, digits)
