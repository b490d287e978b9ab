"""Constants that a user's own runs have moved, kept in a local profile beside the catalogue."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from roofplan.catalogue import codec
from roofplan.errors import InputError
from roofplan.records.calibration import SLOWDOWN, Constant, Fit

VARIABLE, NONE = "ROOFPLAN_PROFILE", "none"
"""Environment variable that names another profile, and its value for no profile."""


USED_BY = frozenset({"serve", "train", "validate", "calibrate", "cost tokens"})
"""Commands whose answers depend on the profile, where there is one."""


def path() -> Path | None:
    """Return the path of the profile, None where profiles are disabled.

    Returns
    -------
    The path, whether or not the file exists; None where the environment variable disables profiles or the user has no home folder.
    """
    named = os.environ.get(VARIABLE)
    if named is not None:
        return None if named in {"", NONE} else Path(named)
    home = os.environ.get("XDG_CONFIG_HOME")
    try:
        return (Path(home) if home else Path.home() / ".config") / "roofplan" / "profile.toml"
    except RuntimeError:  # the user has no home folder
        return None


def over(fit: Fit, place: Path | None) -> Fit:
    """Return a fit with the constants of a profile in place of its own.

    Parameters
    ----------
    fit : the fit.
    place : path of the profile, None for no profile.

    Returns
    -------
    The fit with the profile's constants; unchanged without a profile, or with one that was made on another fit.

    Raises
    ------
    InputError : the profile cannot be read, or the environment variable names one that was made on another fit.
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
    """Content of a profile: the digest of the fit that it was made on, and its constants."""

    fit: str
    constants: tuple[Constant, ...]


def constants(place: Path | None) -> tuple[Constant, ...]:
    """Return the constants of a profile.

    Parameters
    ----------
    place : path of the profile, None for no profile.

    Returns
    -------
    The constants, none where there is no profile.

    Raises
    ------
    InputError : the profile cannot be read.
    """
    return read(place).constants


def read(place: Path | None) -> Kept:
    """Return the content of the profile at a path, empty where there is none.

    Raises
    ------
    InputError : the profile cannot be read.
    """
    import tomllib

    try:
        if place is None or not place.is_file():
            return Kept("", ())
    except OSError:  # the home folder cannot be accessed
        return Kept("", ())
    try:
        with place.open("rb") as file:
            table = tomllib.load(file)
            return Kept(str(table.get("fit", "")), _positive(codec.constants(table)))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        message = f"profile: {place} is none that roofplan calibrate wrote ({error}); remove it, or leave it out by {VARIABLE}={NONE}"
        raise InputError(message, argument=VARIABLE, value=str(place)) from None


def _positive(found: tuple[Constant, ...]) -> tuple[Constant, ...]:
    """Return constants after checking that all are positive and finite.

    Raises
    ------
    ValueError : one is not.
    """
    broken = next((item for item in found if not 0.0 < item.value < math.inf), None)
    if broken is not None:
        raise ValueError(f"{broken.law}.{broken.name} is {broken.value}, and constants are positive")
    return found


def said(fit: Fit) -> str:
    """Return a line that names the profile in use.

    Parameters
    ----------
    fit : the shipped fit.

    Returns
    -------
    The line; empty where there is no profile, it was made on another fit, or it cannot be read, which predictions refuse themselves.
    """
    kept = _readable()
    if not kept.constants or kept.fit != fit.digest():
        return ""
    moved = [item for item in kept.constants if (item.law, item.name) != (SLOWDOWN, "prior")]
    count = f"{len(moved)} constant{'s' if len(moved) > 1 else ''}"
    sources = ", ".join(dict.fromkeys(item.source for item in moved))
    return f"{count} from {sources}, {max(item.fitted for item in moved)}: {path()}"


def stale(fit: Fit) -> str:
    """Return a line that says the profile is left out, since it was made on another fit.

    Parameters
    ----------
    fit : the shipped fit.

    Returns
    -------
    The line; empty where no profile is left out, or the environment variable names it, so that predictions refuse it.
    """
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
    """Return whether the environment variable names a profile that is no file.

    Returns
    -------
    Whether it does.
    """
    place = path()
    return os.environ.get(VARIABLE) is not None and place is not None and not place.is_file()


def writable() -> Path:
    """Return the path at which the profile is to be kept.

    Returns
    -------
    The path, whether or not the file exists.

    Raises
    ------
    InputError : profiles are disabled.
    """
    place = path()
    if place is None:
        raise InputError(f"{VARIABLE}=none leaves profiles out: there is nowhere to keep one", argument=VARIABLE)
    return place


def save(items: Iterable[Constant], fit: Fit) -> Path:
    """Write constants that were moved on a fit as the profile, in place of an earlier one.

    Parameters
    ----------
    items : the moved constants.
    fit : the fit that they were moved on.

    Returns
    -------
    The path of the profile.

    Raises
    ------
    InputError : profiles are disabled, or the file cannot be written.
    """
    place = writable()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        # written to a second file that then replaces it, so that an interruption leaves the old profile intact
        beside = place.with_suffix(".new")
        text = codec.constants_text(items)
        beside.write_text(f'fit = "{fit.digest()}"\n\n{text}', encoding="utf-8")
        beside.replace(place)
    except OSError as error:
        message = f"profile: {place} cannot be written: {error.strerror}"
        raise InputError(message, argument=VARIABLE, value=str(place)) from None
    return place


BEGINNINGS = (b"fit = ", b"[[constant]]")
"""First bytes of a profile that is not empty; older profiles do not name their fit."""


def forget() -> Path | None:
    """Remove the profile.

    Returns
    -------
    The path where it was, None where there was none.

    Raises
    ------
    InputError : the file does not begin as a profile, so that it may be something else, or cannot be removed.
    """
    place = path()
    try:
        if place is None or not place.is_file():
            return None
        # an unreadable profile is removed too: removal is the remedy then
        text = place.read_bytes().strip()
        if text and not text.startswith(BEGINNINGS):
            raise InputError(f"profile: {place} is not a profile", argument=VARIABLE, value=str(place))
        place.unlink()
    except OSError as error:
        message = f"profile: {place} cannot be removed: {error.strerror}"
        raise InputError(message, argument=VARIABLE, value=str(place)) from None
    return place
