"""Names of the catalogue: ids, aliases, and software that is planned as other software."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache

from roofplan.catalogue.codec import Table
from roofplan.catalogue.files import ROOT, ids, read
from roofplan.errors import UnknownName, nearest


@lru_cache(maxsize=1024)
def aliases(kind: str) -> dict[str, str]:
    """Return the mapping from alias to id of a kind; each id maps to itself.

    Parameters
    ----------
    kind : ``accelerators``, ``links``, ``servers``, ``models``, ``engines``, ``frameworks`` or ``nodes``.

    Returns
    -------
    Alias in lower case -> id.

    Raises
    ------
    KeyError : any other kind.
    """
    return dict(index()["aliases"][kind])


@lru_cache(maxsize=1)
def index() -> Table:
    """Return the index file, which `indexed` computes: what would otherwise need many files.

    Returns
    -------
    Aliases by kind, the servers of each device, and fitted constants.
    """
    found: Table = json.loads((ROOT / "index.json").read_text())
    return found


LONGEST_NAME = 100
"""Characters of a name that are looked up and repeated in a message [1]."""


MAKERS = frozenset(
    {
        *("nvidia", "amd", "intel", "apple", "google", "huawei", "aws", "amazon", "habana"),
        *("geforce", "radeon", "tesla", "instinct", "gpu", "oam", "generation", "edition", "blackwell"),
    }
)
"""Words of a device's full name that tell no two devices apart."""

MEMORY_KINDS = re.compile(r"(?<![a-z])(?:hbm[23]e?|gddr[567]x?)(?![a-z0-9])|(?<=sxm)[2-5]")
"""What may be missing from the id of a device: its kind of memory and the number of its socket."""

MEMORY = re.compile(r"(?<![a-z\d.])(\d+)\s*gi?b?(?![a-z\d])", re.IGNORECASE)
"""The memory of a device in its name, in gigabytes."""

BESIDE = re.compile(r"\b(?:macbook (?:pro|air)|mac (?:studio|mini|pro)|imac)\b|\(?\b\d+[\s-]?cores?\b\)?(?: gpu)?")
"""What a device's name is sold in, and how many cores of it work: a name has those of the full chip."""

COUNTED = re.compile(r"(.+?)[\s_-]+(?:x\s*)?(\d{1,4})")
"""A name that ends with a count, a power of two, as clouds write it: ``TPU v5e-8``."""

HARDWARE = ("accelerators", "servers")
"""Kinds whose names people paste from drivers and shops, such as ``NVIDIA A100-SXM4-80GB``."""


def loose(name: str, *, brief: bool = False) -> tuple[str, ...]:
    """Return the words and numbers of a device's name in alphabetical order, without its maker's name and the unit of its memory.

    Parameters
    ----------
    name : name of a device or a server in any spelling.
    brief : whether to drop the kind of memory and the number of the socket too.

    Returns
    -------
    What two names have in common if they mean the same device.

    Examples
    --------
    >>> loose("NVIDIA GeForce RTX 4070 Ti SUPER") == loose("rtx-4070-ti-super")
    True
    >>> loose("NVIDIA H100 80GB HBM3", brief=True)
    ('100', '80', 'h')
    """
    lowered = re.sub(r"(?<![a-z\d.])(\d+)\s*gi?b?\b", r"\1", BESIDE.sub(" ", name.lower()))
    lowered = MEMORY_KINDS.sub("", lowered) if brief else lowered
    words = (word for word in re.split(r"[^a-z0-9]+", lowered) if word not in MAKERS)
    return tuple(sorted(part for word in words for part in re.findall(r"[a-z]+|\d+", word)))


@lru_cache(maxsize=4)
def _loosely(kind: str, *, brief: bool) -> dict[tuple[str, ...], str]:
    """Return the ids of a kind by the loose form of their names; forms that two ids share are left out."""
    found: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for name, one in aliases(kind).items():
        found[loose(name, brief=brief)].add(one)
    return {form: next(iter(ones)) for form, ones in found.items() if len(ones) == 1}


def spelt(kind: str, name: str) -> str | None:
    """Return the device or server that a name means, None where it means none or several.

    Parameters
    ----------
    kind : ``accelerators`` or ``servers``.
    name : id or alias, else a name as a driver or a shop writes it.

    Returns
    -------
    Its id.
    """
    if len(name) > LONGEST_NAME:
        return None
    known = aliases(kind).get(name.lower())
    forms = ((loose(name, brief=brief), brief) for brief in (False, True))
    found = known or next((one for form, brief in forms if (one := _loosely(kind, brief=brief).get(form))), None)
    return found or (_with_memory(name) if kind == "accelerators" else None)


def _with_memory(name: str) -> str | None:
    """Return the device that a name means which states its memory too, such as ``L4 24GB``, None where it has other memory."""
    size = MEMORY.search(name)
    found = _whatever_memory(name)
    return found if size and found and _capacity(found) == float(size[1]) else None


def meant_otherwise(name: str) -> tuple[str, str] | None:
    """Return what a name of a device was probably meant to be: one with other memory, or with a count behind it.

    Parameters
    ----------
    name : name that the catalogue does not have.

    Returns
    -------
    What could be written instead, and a sentence about it; None where nothing is near.

    Examples
    --------
    >>> meant_otherwise("RTX 3060 8GB"), meant_otherwise("TPU v5e-8"), meant_otherwise("abacus")
    (('rtx-3060', 'rtx-3060 has 12 GB.'), ('tpu-v5e:8', 'Write tpu-v5e:8.'), None)
    """
    if len(name) > LONGEST_NAME:
        return None
    counted = COUNTED.fullmatch(name)
    one = spelt("accelerators", counted[1]) if counted else None
    if counted and one is not None and int(counted[2]).bit_count() == 1:
        return f"{one}:{counted[2]}", f"Write {one}:{counted[2]}."
    found = _whatever_memory(name)
    size = None if found is None else _capacity(found)
    return None if found is None or size is None else (found, f"{found} has {size:g} GB.")


def _whatever_memory(name: str) -> str | None:
    """Return the device that a name means without the memory that it states, None where it states none or means none."""
    return spelt("accelerators", MEMORY.sub(" ", name).strip(" -_")) if MEMORY.search(name) else None


def _capacity(device: str) -> float | None:
    """Return the memory of a device as its data sheet states it [GB or GiB], None where it has none."""
    stated = read(ROOT / "accelerators" / f"{device}.toml")["quantities"].get("memory_capacity")
    return float(stated["value"]) if stated else None


def find(kind: str, name: str, argument: str) -> str:
    """Return the id that a name means.

    Parameters
    ----------
    kind : as of `aliases`.
    name : id or alias, or software that another profile stands in for.
    argument : flag or field that the name was given for, as a refusal names it.

    Returns
    -------
    The id.

    Raises
    ------
    UnknownName : the catalogue has no such name; carries the nearest ones.
    """
    wanted = hyphened(name) if kind in {"engines", "frameworks"} else name.lower()
    if "/" not in wanted and len(wanted) <= LONGEST_NAME and (ROOT / kind / f"{wanted}.toml").is_file():
        return wanted
    known = aliases(kind)
    if wanted in known:
        return known[wanted]
    if kind in HARDWARE and (one := spelt(kind, name)) is not None:
        return one
    other = stand_in(kind, wanted)
    if other is not None:
        return other.id
    what, listing = WORDS[kind]
    near = nearest(wanted[:LONGEST_NAME], ids(kind)) or nearest(wanted[:LONGEST_NAME], known)
    hint = f" Nearest: {', '.join(near)}." if near else ""
    meant = meant_otherwise(name) if kind == "accelerators" else None
    if meant is not None:
        near, hint = [meant[0], *(one for one in near if one != meant[0])], f" {meant[1]}"
    raise UnknownName(
        f"{argument}: no {what} {name[:LONGEST_NAME]!r}.{hint} List: roofplan {listing}",
        code=f"unknown_{what}",
        argument=argument,
        value=name,
        nearest=near,
    )


@dataclass(frozen=True, slots=True)
class StandIn:
    """The profile that software without a profile of its own is planned as.

    Parameters
    ----------
    name : name of the software.
    id : id of the profile.
    why : reason for the choice.
    own : whether the profile is another release of the same software.
    untuned : whether it divides a model as the profile does by slower code of its own.
    weights : format of the files that it fetches unasked, empty for the published one.
    recompute : what it recomputes unasked, empty for what the profile does.
    loss : ``fused`` where its loss writes no logits, empty for the profile's.
    kernels : scope of the constants of its own kernels, empty for the profile's.
    micro_batch : default micro-batch size, None for the profile's [1].
    compiled : id of the profile whose kernels it has where torch.compile made them, empty for the same.
    compiles : whether torch.compile makes its kernels unless a run says otherwise.
    defaults : id of the profile whose defaults and sharding it keeps, empty for the same.
    vendors : vendors of devices on which it runs, none for the profile's.
    reads : formats of weights that it reads, none for the profile's.
    """

    name: str
    id: str
    why: str
    own: bool = False
    untuned: bool = False
    weights: str = ""
    recompute: str = ""
    loss: str = ""
    kernels: str = ""
    micro_batch: float | None = None
    compiled: str = ""
    compiles: bool = False
    defaults: str = ""
    vendors: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The substitution in one line."""
        return f"{self.name}: planned as {self.id}; {self.why}"

    def with_kernels(self, compiled: bool) -> StandIn:
        """Return the stand-in with the kernels that torch.compile makes, where it does and a profile describes them."""
        if not compiled or not self.compiled:
            return self
        return replace(self, id=self.compiled, defaults=self.id, why="torch.compile makes the kernels of both")


def stand_in(kind: str, name: str, month: str = "") -> StandIn | None:
    """Return the profile that stands in for software, None where none does.

    Parameters
    ----------
    kind : ``engines`` or ``frameworks``.
    name : name of the software, in any spelling that `hyphened` accepts.
    month : date of the run, as `months` reads it; empty for the newest profile.

    Returns
    -------
    The stand-in, None where the catalogue lists none. Without a month, also None for an id or alias of a profile.

    Examples
    --------
    >>> stand_in("frameworks", "NeMo", "2024-07").id, stand_in("engines", "TGI").id
    ('megatron-core-0.8', 'vllm-0.33')
    """
    wanted = hyphened(name)
    if not month and wanted in aliases(kind):
        return None
    entry = next((one for one in stand_ins() if one["kind"] == kind and wanted in one["names"]), None)
    return None if entry is None else _stand_in(name, entry, month)


def described(kind: str, name: str) -> bool:
    """Return whether a name means a profile of engines or frameworks, or software that a profile stands in for.

    Parameters
    ----------
    kind : ``engines`` or ``frameworks``.
    name : name of the software, in any spelling that `hyphened` accepts.

    Returns
    -------
    Whether it does.
    """
    return hyphened(name) in aliases(kind) or stand_in(kind, name, "2000") is not None


def _stand_in(name: str, entry: Table, month: str) -> StandIn:
    kept = ("own", "untuned", "weights", "recompute", "loss", "kernels", "micro_batch", "compiled", "compiles")
    more = {key: entry[key] for key in kept if key in entry}
    vendors, reads = (tuple(entry.get(key, ())) for key in ("vendors", "reads"))
    found = _of_month(entry["profiles"], months(month))
    return StandIn(name, found["id"], entry["why"], **more, vendors=vendors, reads=reads)


def undescribed(kind: str, how: str, month: str) -> StandIn:
    """Return the profile for software of which nothing but its use is known.

    Parameters
    ----------
    kind : ``engines`` or ``frameworks``.
    how : ``split`` where it divides layers, ``sharded`` where it only shards states, ``alone`` on one device.
    month : date of the run, as `months` reads it.

    Returns
    -------
    The stand-in, whose name is `how`.
    """
    entry = next(one for one in stand_ins() if one["kind"] == kind and how in one.get("undescribed", ()))
    return _stand_in(how, entry, month)


def misspelt(kind: str, name: str) -> str:
    """Return the described software whose name is within a letter or two of another name.

    Parameters
    ----------
    kind : ``engines`` or ``frameworks``.
    name : name of software that is not described.

    Returns
    -------
    The name that was probably meant, empty where none is that close.

    Examples
    --------
    >>> misspelt("frameworks", "megatrn-core"), misspelt("frameworks", "unheard-of")
    ('megatron-core', '')
    """
    known = [*aliases(kind), *(one for entry in stand_ins() if entry["kind"] == kind for one in entry["names"])]
    wanted = hyphened(name)
    alike = [one for one in known if abs(len(one) - len(wanted)) <= LETTERS]
    return next(iter(get_close_matches(wanted, alike, n=1, cutoff=MISSPELT)), "")


MISSPELT, LETTERS = 0.85, 2
"""Least similarity of a name to a known one, and most letters more or fewer, to be taken for a misspelling of it [1]."""


def hyphened(name: str) -> str:
    """Return a software name in the spelling of ids: lower case, with hyphens for spaces and underscores.

    Parameters
    ----------
    name : name of the software.

    Returns
    -------
    The name as ids are written.
    """
    return re.sub(r"[\s_]+", "-", name.strip().lower())


def bare(name: str) -> str:
    """Return a software name from a table without remarks in brackets; a version in brackets stays.

    Parameters
    ----------
    name : name as the table has it.

    Returns
    -------
    The name without brackets that hold no digit.

    Examples
    --------
    >>> bare("HF Transformers (eager)"), bare("vLLM (0.6.3)")
    ('HF Transformers', 'vLLM (0.6.3)')
    """
    return re.sub(r"\s*\([^)\d]*\)", "", name).strip()


def months(when: str) -> int | None:
    """Return the last month that a date can mean, None where the text is no date.

    Parameters
    ----------
    when : year, quarter, month or day, such as ``2024``, ``2024-Q1`` or ``2024-07``.

    Returns
    -------
    Months since year 0 [1], None where the text does not begin with a year.

    Examples
    --------
    >>> months("2024-07"), months("2024-Q1"), months("2024"), months("lately")
    (24295, 24291, 24300, None)
    """
    found = re.match(r"^(\d{4})(?:-(?:Q([1-4])|(\d{2})))?", when)
    if found is None:
        return None
    month = 3 * int(found[2]) if found[2] else int(found[3]) if found[3] else 12
    return 12 * int(found[1]) + month


def _of_month(profiles: list[dict[str, str]], when: int | None) -> dict[str, str]:
    """Return the first profile that ends after a month, the last one where none does or no month is given."""
    for one in profiles[:-1]:
        end = months(one["until"])
        if when is not None and end is not None and when < end:
            return one
    return profiles[-1]


@lru_cache(maxsize=1)
def stand_ins() -> list[Table]:
    """Return the software without a profile of its own, and what it is planned as."""
    return list(read(ROOT / "software.toml")["stand_in"])


WORDS = {
    "accelerators": ("device", "devices"),
    "links": ("network", "networks"),
    "servers": ("server", "devices"),
    "models": ("model", "models"),
    "engines": ("engine", "engines"),
    "frameworks": ("framework", "frameworks"),
    "nodes": ("node", "nodes"),
}
