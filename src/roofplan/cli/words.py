"""The words of a command line as the parser reads them: other names of flags, and flags given more than once."""

from __future__ import annotations

from roofplan.errors import InputError
from roofplan.inputs import RECORDS, STDIN, Inputs


def spelled(words: list[str], command: str) -> list[str]:
    """Return words with flags by their names, and values of a flag that is given more than once joined by commas.

    A lone ``-`` becomes the text for standard input where it means that: as MODEL, or as the value of ``--request``.

    Parameters
    ----------
    words : the words behind the program's name.
    command : the command that they are of.

    Returns
    -------
    The words.

    Raises
    ------
    InputError : a flag that is given twice and takes one value.
    """
    out = [STDIN if word == "-" and _means_stdin(words, place) else word for place, word in enumerate(words)]
    return _merged(out, RECORDS[command]) if command in RECORDS else out


def _means_stdin(words: list[str], place: int) -> bool:
    return place == 1 or words[place - 1] == "--request" or (words[0] == "validate" and place == 2)


SWITCHES = ("--json", "--explain")
"""Outputs without a value; a flag of this kind says no more when it stands twice."""


def _merged(words: list[str], record: type[Inputs]) -> list[str]:
    """Return words with the flags of a record by their names, each that may stand several times once."""
    known = record.each()
    places: dict[str, int] = {}  # flag -> place of its value
    out: list[str] = []
    count, rest = "", iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        name = flag[2:].replace("-", "_") if flag.startswith("--") else ""
        counts = name == "gpus" and "on" in known
        now = record.spelt(name, "")[0]
        if not counts and (now not in known or isinstance(known[now].default, bool | tuple)):
            switch = word in SWITCHES or (now in known and isinstance(known[now].default, bool))
            out += [] if switch and word in out else [word]
            continue
        value = value if equals else next(rest, "")
        if value.startswith("--") and (counts or now != name):
            raise InputError(f"{flag}: a value is missing before {value}", argument=flag, value=value)
        if counts:
            count = value
            continue
        shown = f"--{now}".replace("_", "-")
        given = record.spelt(name, value)[1]
        if shown not in places:
            places[shown] = len(out) + 1
            out += [shown, given] if equals or value else [shown]
        elif known[now].metadata["several"] and value:
            out[places[shown]] += f",{given}"
        else:
            raise InputError(f"{shown} is given twice", argument=shown, value=value)
    return _counted(out, count) if count else out


def _counted(words: list[str], count: str) -> list[str]:
    """Return words with a count of devices behind each machine that has none; without machines it is the most devices."""
    places = [place + 1 for place, word in enumerate(words[:-1]) if word == "--on"]
    bare = [place for place in places if ":" not in words[place]]
    for place in bare:
        device, at, network = words[place].partition("@")
        words[place] = f"{device}:{count}{at}{network}"
    return words if bare else [*words, "--devices", count]
