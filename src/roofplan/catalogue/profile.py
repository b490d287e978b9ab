"""Constants that a user's own runs moved, kept beside the catalogue and never in it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from roofplan.catalogue import codec
from roofplan.errors import InputError
from roofplan.records.calibration import Constant, Fit

VARIABLE, NONE = "ROOFPLAN_PROFILE", "none"
"""Environment variable that names another file, and its value that leaves every profile out."""


USED_BY = frozenset({"serve", "train", "validate", "calibrate", "cost tokens"})
"""Commands whose answers rest on it, where there is one."""


def path() -> Path | None:
    """Return where the profile is, or would be; None where it is left out."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return None if named in {"", NONE} else Path(named)
    home = os.environ.get("XDG_CONFIG_HOME")
    try:
        return (Path(home) if home else Path.home() / ".config") / "roofplan" / "profile.toml"
    except RuntimeError:  # a user without a home
        return None


def over(fit: Fit, place: Path | None) -> Fit:
    """Return a fit with the constants of the profile at a path over its own; as it is where there is none, or one that was made on another fit.

    Raises
    ------
    InputError : there is one that cannot be read, or the user names one that was made on another fit.
    """
    kept = read(place)
    if not kept.constants:
        return fit
    if kept.fit == fit.digest():
        return fit.with_(kept.constants)
    if os.environ.get(VARIABLE) is not None:
        raise InputError(
            f"profile: {place} {STALE}, or leave it out by {VARIABLE}={NONE}", argument=VARIABLE, value=str(place)
        )
    return fit


STALE = "was made on other constants than those shipped now: renew it by roofplan calibrate --with FILE"


class Kept(NamedTuple):
    """What a profile holds: the digest of the fit that it was made on, and constants."""

    fit: str
    constants: tuple[Constant, ...]


def constants(place: Path | None) -> tuple[Constant, ...]:
    """Return the constants of the profile at a path, none where there is no profile.

    Raises
    ------
    InputError : there is one that cannot be read.
    """
    return read(place).constants


def read(place: Path | None) -> Kept:
    """Return what the profile at a path holds, nothing where there is none.

    Raises
    ------
    InputError : there is one that cannot be read.
    """
    import tomllib

    try:
        if place is None or not place.is_file():
            return Kept("", ())
    except OSError:  # a home that may not be looked into
        return Kept("", ())
    try:
        with place.open("rb") as file:
            table = tomllib.load(file)
            return Kept(str(table.get("fit", "")), _positive(codec.constants(table)))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        message = f"profile: {place} is none that roofplan calibrate wrote ({error}); remove it, or leave it out by {VARIABLE}={NONE}"
        raise InputError(message, argument=VARIABLE, value=str(place)) from None


def _positive(found: tuple[Constant, ...]) -> tuple[Constant, ...]:
    """Return constants, all of them positive numbers.

    Raises
    ------
    ValueError : one is not.
    """
    broken = next((item for item in found if not 0.0 < item.value < math.inf), None)
    if broken is not None:
        raise ValueError(f"{broken.law}.{broken.name} is {broken.value}, and constants are positive")
    return found


def said(fit: Fit) -> str:
    """Return which profile predictions on a fit rest on, empty where there is none or it cannot be read, which the predictions themselves refuse."""
    kept = _readable()
    if not kept.constants or kept.fit != fit.digest():
        return ""
    sources = ", ".join(dict.fromkeys(item.source for item in kept.constants))
    return f"{len(kept.constants)} constants from {sources}, {max(item.fitted for item in kept.constants)}: {path()}"


def stale(fit: Fit) -> str:
    """Return that the profile was left out because it was made on another fit, empty where it was not, or is refused since the user names it."""
    if os.environ.get(VARIABLE) is not None:
        return ""
    kept = _readable()
    return f"{path()} is left out: it {STALE}" if kept.constants and kept.fit != fit.digest() else ""


def _readable() -> Kept:
    try:
        return read(path())
    except InputError:
        return Kept("", ())


def named_and_absent() -> bool:
    """Return whether the user names a profile that is not there."""
    place = path()
    return os.environ.get(VARIABLE) is not None and place is not None and not place.exists()


def writable() -> Path:
    """Return where the profile is to be kept.

    Raises
    ------
    InputError : profiles are left out.
    """
    place = path()
    if place is None:
        raise InputError(f"{VARIABLE}=none leaves profiles out: there is nowhere to keep one", argument=VARIABLE)
    return place


def save(items: Iterable[Constant], fit: Fit) -> Path:
    """Write constants that were moved on a fit as the profile, in place of an earlier one, and return where.

    Raises
    ------
    InputError : profiles are left out, or the file cannot be written.
    """
    place = writable()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        # written beside it and then put in place, so that an interruption leaves the old one whole
        beside = place.with_suffix(".new")
        text = codec.constants_text(items)
        beside.write_text(f'fit = "{fit.digest()}"\n\n{text}', encoding="utf-8")
        beside.replace(place)
    except OSError as error:
        message = f"profile: {place} cannot be written: {error.strerror}"
        raise InputError(message, argument=VARIABLE, value=str(place)) from None
    return place


BEGINNINGS = (b"fit = ", b"[[constant]]")
"""How a profile that is not empty begins, whatever follows; older ones do not name their fit."""


def forget() -> Path | None:
    """Remove the profile and return where it was, None where there was none.

    Raises
    ------
    InputError : the file does not begin as a profile, so that it may be somebody's, or cannot be removed.
    """
    place = path()
    try:
        if place is None or not place.is_file():
            return None
        # a profile that has become unreadable is removed too: that is what one wants then
        text = place.read_bytes().strip()
        if text and not text.startswith(BEGINNINGS):
            raise InputError(f"profile: {place} is not a profile", argument=VARIABLE, value=str(place))
        place.unlink()
    except OSError as error:
        message = f"profile: {place} cannot be removed: {error.strerror}"
        raise InputError(message, argument=VARIABLE, value=str(place)) from None
    return place
