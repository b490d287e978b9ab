"""Constants that a user's own runs moved, kept beside the catalogue and never in it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from roofplan import codec
from roofplan.errors import InputError
from roofplan.records.calibration import Constant

VARIABLE, NONE = "ROOFPLAN_PROFILE", "none"
"""Environment variable that names another file, and its value that leaves every profile out."""


def path() -> Path | None:
    """Return where the profile is, or would be; None where it is left out."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return None if named in {"", NONE} else Path(named)
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "roofplan" / "profile.toml"


def constants() -> tuple[Constant, ...]:
    """Return the constants of the profile, none where there is no profile.

    Raises
    ------
    InputError : there is one that cannot be read.
    """
    import tomllib

    place = path()
    if place is None or not place.is_file():
        return ()
    try:
        with place.open("rb") as file:
            return codec.constants(tomllib.load(file))
    except (OSError, tomllib.TOMLDecodeError, TypeError, KeyError) as error:
        message = f"profile: {place} cannot be read ({error}); roofplan calibrate --forget removes it"
        raise InputError(message, argument=VARIABLE, value=str(place)) from None


def said() -> str:
    """Return which profile predictions rest on, empty where there is none."""
    found = constants()
    if not found:
        return ""
    return f"{len(found)} constants from {', '.join(dict.fromkeys(i.source for i in found))}, {max(i.fitted for i in found)}: {path()}"


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


def save(items: Iterable[Constant]) -> Path:
    """Write constants as the profile, in place of an earlier one, and return where.

    Raises
    ------
    InputError : profiles are left out, or the file cannot be written.
    """
    place = writable()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(codec.constants_text(asdict(item) for item in items))
    except OSError as error:
        message = f"profile: {place} cannot be written: {error.strerror}"
        raise InputError(message, argument=VARIABLE, value=str(place)) from None
    return place


def forget() -> Path | None:
    """Remove the profile and return where it was, None where there was none."""
    place = path()
    if place is None or not place.is_file():
        return None
    place.unlink()
    return place
