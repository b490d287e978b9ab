"""Members of a pool from texts ``DEVICE@LINK[/UP][:RTT]`` and from TOML files."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from roofplan import catalogue
from roofplan.catalogue.machines import accelerator
from roofplan.errors import InputError, UnknownName, nearest
from roofplan.records import units
from roofplan.records.hardware import Accelerator
from roofplan.records.pool import Member

MOST_MEMBERS = 1024
"""Most members of a pool [1]."""

EXAMPLE = "rtx-3060@100mbit/20mbit:12ms"

_TEXT = re.compile(r"(?:(?P<count>\d+)x)?(?P<device>[^@]+)@(?P<link>.+)")
_RATE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<prefix>[kmg])(?:bit|bps)", re.IGNORECASE)
_LINK = re.compile(r"(?P<down>[^:/]+)(?:/(?P<up>[^:]+))?(?::(?P<rtt>.+))?", re.IGNORECASE)


def members(texts: Iterable[str], file: str | None = None) -> tuple[Member, ...]:
    """Return the members that texts and a file describe.

    Parameters
    ----------
    texts : each ``[COUNTx]DEVICE@LINK[/UP][:RTT]``.
    file : path of a TOML file with a table ``[[member]]`` for each.

    Returns
    -------
    The members, each with a name of its own.

    Raises
    ------
    InputError : a text or file that cannot be read, a name given twice, no or too many members.
    UnknownName : a card or network that the catalogue does not hold.
    """
    found = [] if file is None else _from_file(Path(file))
    for name, count in Counter(one.name for one in found if one.name).items():
        if count == 1:
            continue
        raise InputError(f"--members: two members are called {name!r}", argument="--members", value=name)
    for text in texts:
        found += _from_text(text)
    if not found:
        raise InputError(
            f"--member is missing. Example: roofplan pool plan qwen3-32b --precision q4_k_m --member {EXAMPLE}",
            argument="--member",
        )
    if len(found) > MOST_MEMBERS:
        raise InputError(f"--member: at most {MOST_MEMBERS:,} members", argument="--member", value=len(found))
    return tuple(_named(found))


def _named(found: list[Member]) -> list[Member]:
    """Return members with names of their own: those without get that of their card, numbered where it is not the only one."""
    taken = {one.name for one in found if one.name}
    count = Counter(one.device.id for one in found if not one.name)
    out, next_of = [], dict.fromkeys(count, 1)
    for one in found:
        name = one.name
        while not name:
            number = next_of[one.device.id]
            next_of[one.device.id] += 1
            tried = one.device.id if count[one.device.id] == 1 else f"{one.device.id}#{number}"
            name = "" if tried in taken else tried
            if not name and count[one.device.id] == 1:
                count[one.device.id] = 2
        taken.add(name)
        out.append(replace(one, name=name))
    return out


def _from_text(text: str) -> list[Member]:
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise InputError(
            f"--member: cannot read {text!r}; write DEVICE@LINK[/UP][:RTT], such as {EXAMPLE}",
            argument="--member",
            value=text,
        )
    count = int(match["count"] or 1)
    if not 1 <= count <= MOST_MEMBERS:
        raise InputError(f"--member: {text}: from 1 to {MOST_MEMBERS:,} members", argument="--member", value=text)
    device = _card(match["device"], "--member")
    return [_member("", device, match["link"], text, "--member")] * count


def _card(name: str, argument: str) -> Accelerator:
    name = name.strip()
    if ":" in name and not name.endswith(".toml"):
        raise InputError(
            f"{argument}: {name}: a member is one card; write {name.partition(':')[2]}x{name.partition(':')[0]}@..., each with a link",
            argument=argument,
            value=name,
        )
    found = accelerator(name, argument)
    if not found.memory:
        raise InputError(f"{argument}: the memory of {found.id} is not known", argument=argument, value=name)
    return found


def _member(name: str, device: Accelerator, link: str, text: str, argument: str) -> Member:
    match = _LINK.fullmatch(link.strip().replace("bit/s", "bit"))
    if match is None:
        raise InputError(
            f"{argument}: {text}: cannot read the link {link!r}; write LINK[/UP][:RTT], such as 100mbit/20mbit:12ms",
            argument=argument,
            value=text,
        )
    down, latency, assumed = _rate(match["down"], text, argument)
    up = down if match["up"] is None else _rate(match["up"], text, argument)[0]
    if match["rtt"] is not None:
        latency = _rtt(match["rtt"], text, argument)
    elif latency is None:
        latency, assumed = catalogue.pools().assumed["rtt"].value, assumed | {"rtt"}
    return Member(
        name=name, device=device, down=down, up=up, rtt=latency, link=link.strip(), assumed=frozenset(assumed)
    )


def _rtt(text: str, whole: str, argument: str) -> float:
    """Return a round trip; a switch on a bench has none that counts [s]."""
    seconds = units.parse(text, "s", f"{argument}: {whole}: RTT", positive=False, example="12 ms")
    if seconds < 0.0:
        raise InputError(f"{argument}: {whole}: the RTT is negative", argument=argument, value=whole)
    return seconds


def _rate(text: str, whole: str, argument: str) -> tuple[float, float | None, set[str]]:
    """Return the rate of a link [B/s], its share of a round trip where the link is the catalogue's [s], and what is assumed."""
    rate = bit_rate(text, argument)
    if rate is not None:
        if rate <= 0.0:
            raise InputError(f"{argument}: {whole}: nothing passes a link of {text}", argument=argument, value=whole)
        return rate, None, set()
    known = catalogue.aliases("links")
    identity = known.get(text.strip().lower())
    if identity is None or catalogue.link(identity).kind != "network":
        near = nearest(text.lower(), [one for one in catalogue.ids("links") if catalogue.link(one).kind == "network"])
        raise UnknownName(
            f"{argument}: {whole}: no network {text!r}. Write a rate such as 100mbit, wifi, or a network"
            + (f": {', '.join(near)}" if near else ""),
            code="unknown_network",
            argument=argument,
            value=text,
            nearest=near,
        )
    found = catalogue.link(identity)
    guessed = {"rate"} if found.quantities["bandwidth"].kind in {"estimate", "guess"} else set()
    return found.bandwidth, found.value("latency") or 0.0, guessed


def bit_rate(text: str, argument: str) -> float | None:
    """Return a rate such as ``100mbit``.

    Parameters
    ----------
    text : a number with kbit, mbit or gbit, with ``/s`` or without.
    argument : flag that it was given for.

    Returns
    -------
    The rate, None for other texts [B/s].
    """
    match = _RATE.fullmatch(text.strip().removesuffix("/s"))
    if match is None:
        return None
    return units.parse(f"{match['number']} {match['prefix'].upper()}bit/s", "B/s", argument, positive=False)


FIELDS = ("name", "device", "link", "up", "rtt", "memory", "online", "electricity", "count")
"""Keys of a member in a file."""


def _from_file(path: Path) -> list[Member]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"--members: cannot read {path}: {error}", argument="--members", value=str(path)) from None
    rows, others = table.get("member"), sorted(table.keys() - {"member"})
    if not isinstance(rows, list) or others:
        said = f"unknown {', '.join(others)}" if others else "no [[member]]"
        raise InputError(f"--members: {path}: {said}", argument="--members", value=str(path))
    return [one for place, row in enumerate(rows, 1) for one in _row(row, f"member {place} of {path.name}")]


def _row(row: object, where: str) -> list[Member]:
    if not isinstance(row, Mapping):
        raise InputError(f"--members: {where}: a table is expected", argument="--members", value=where)
    for key in row:
        if key not in FIELDS:
            near = nearest(str(key), FIELDS)
            hint = f" Nearest: {', '.join(near)}." if near else ""
            raise InputError(f"--members: {where}: unknown key {key!r}.{hint}", argument="--members", value=str(key))
    said = {name: str(value) for name, value in row.items()}
    missing = [name for name in ("device", "link") if name not in said]
    if missing:
        raise InputError(f"--members: {where}: {missing[0]} is missing", argument="--members", value=where)
    link = said["link"]
    link += f"/{said['up']}" if "up" in said else ""
    link += f":{said['rtt']}" if "rtt" in said else ""
    argument = f"--members: {where}"
    one = _member(said.get("name", ""), _card(said["device"], argument), link, link, argument)
    memory = units.parse(said["memory"], "B", f"{argument}: memory") if "memory" in said else None
    if memory is not None and memory > one.device.room:
        most = units.gib(one.device.room)
        raise InputError(
            f"{argument}: memory: {said['memory']} is more than the {most} GiB of {one.device.id}",
            argument="--members",
            value=said["memory"],
        )
    tariff = units.parse(said["electricity"], "USD/kWh", f"{argument}: electricity") if "electricity" in said else None
    hours = _hours(said.get("online", ""))
    one = replace(
        one,
        memory=memory,
        hours=hours,
        online=_online(said.get("online"), argument)
        if hours is None
        else (hours[1] - hours[0]) % units.DAY / units.DAY,
        electricity=None if tariff is None else tariff / units.JOULE_PER_KWH,
    )
    count = units.parse_count(said.get("count", "1"), f"{argument}: count")
    if count > MOST_MEMBERS or (count > 1 and one.name):
        why = "members that are alike have no name of their own" if one.name else f"at most {MOST_MEMBERS:,}"
        raise InputError(f"{argument}: count: {count:,}: {why}", argument="--members", value=said["count"])
    return [one] * count


def _hours(text: str) -> tuple[float, float] | None:
    """Return when of the day ``18:00-02:00`` begins and ends, None for other texts [s]."""
    match = re.fullmatch(r"(\d{1,2}):(\d\d)-(\d{1,2}):(\d\d)", text.strip())
    if match is None:
        return None
    start, end = (units.HOUR * int(match[i]) + 60.0 * int(match[i + 1]) for i in (1, 3))
    return (start, end) if max(start, end) <= units.DAY and (end - start) % units.DAY else None


def _online(text: str | None, argument: str) -> float | None:
    """Return the share of the day that a member is there: ``8h`` or ``30%`` [1]."""
    if text is None:
        return None
    if ":" in text:
        raise InputError(
            f"{argument}: online: {text!r} are no hours of a day; write 18:00-02:00", argument="--members", value=text
        )
    if text.strip().endswith("h"):
        share = units.parse(text, "s", f"{argument}: online") / units.DAY
    else:
        share = units.parse_share(text, f"{argument}: online")
    if not 0.0 < share <= 1.0:
        raise InputError(
            f"{argument}: online: {text!r} is no part of a day; write 8h, 18:00-02:00 or 30%",
            argument="--members",
            value=text,
        )
    return share
