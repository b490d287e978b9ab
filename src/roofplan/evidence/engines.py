"""Engines of published runs: profile, version and the settings that a row states."""

from __future__ import annotations

import re
from dataclasses import replace

from roofplan import catalogue
from roofplan.errors import nearest, unwrap
from roofplan.evidence.models import device_of, is_path
from roofplan.evidence.rows import Assumed, Row, Skipped, number
from roofplan.records.engine import Engine
from roofplan.records.source import Sourced

VERSION = "engine version"
"""Input that a row may leave open, as it is counted."""


def engine_of(row: Row, assumed: Assumed) -> Engine:
    """Return the engine that a row names, or refuse the row where it is not described; notes what it assumes."""
    written = row["engine_name"]
    if unmodelled := ELSEWHERE.search(written):
        raise Skipped(f"engine_name: {unmodelled[0]} is not modelled")
    name, stated = catalogue.hyphened(catalogue.bare(written)), row.get("engine_version", "")
    if not catalogue.described("engines", name):
        name, release = parted(name)
        stated = stated or release
    same = catalogue.aliases("engines").get(name)
    own = catalogue.engine(same).name if same else name
    if same and not stated and name.startswith(f"{own}-"):
        return catalogue.engine(same)
    name = own
    when = row.get("month", "") or row.get("year", "")
    identity = engine_version(name, stated, when)
    if identity is None:
        other = catalogue.stand_in("engines", name, when)
        if other is None:
            near = ", ".join(nearest(name, catalogue.aliases("engines")))
            raise Skipped(f"engine {name or 'not stated'} is not described{f'; nearest: {near}' if near else ''}")
        # software with kernels of its own has no release of the profile, whatever the date of a run
        device = device_of(row)
        vendor = "" if is_path(device) else catalogue.accelerator(device).vendor
        vendor = "" if vendor in other.vendors else vendor
        dated = None if other.kernels else engine_version(catalogue.engine(other.id).name, "", when, vendor)
        identity = dated or other.id
        assumed.add(f"engine {replace(other, id=identity).text}")
        found = catalogue.engine(identity)
        return found.standing_for(other.name, kernels=other.kernels, vendors=other.vendors, reads=other.reads)
    found = catalogue.engine(identity)
    if not stated:
        assumed.add(f"engine version: {identity}, by the date of the run", VERSION)
    elif not release_in(stated):
        assumed.add(f"engine version {stated}: not known, read as {identity} by the date of the run", VERSION)
    elif _parts(release_in(stated)) > max(_parts(one.version) for one in _versions(found.name)):
        assumed.add(f"engine version {stated}: newer than any that is described, read as {identity}", VERSION)
    return found


SETTINGS = {
    "max_num_seqs": ("max_num_seqs", "sequence"),
    "max_num_batched_tokens": ("max_num_batched_tokens", "token"),
    "memory_fraction": ("memory_share", "fraction"),
    "micro_batch": ("micro_batch", "token"),
}
"""Columns of settings -> the engine default that they replace, and its unit."""


def launched(row: Row, engine: Engine) -> Engine:
    """Return the engine with the settings that a row states."""
    settings = {}
    for column, (name, unit) in SETTINGS.items():
        value = number(row, column)
        if value is not None:
            settings[name] = Sourced(value=value, unit=unit, text=f"{value:g}", source=row["id"], seen="", kind="given")
    engine = engine.launched(settings)
    flash = row.get("flash_attention", "").lower()
    if flash:
        if flash not in {"true", "false"}:
            raise Skipped(f"flash_attention {flash} is neither True nor False")
        engine = replace(engine, kernels=replace(engine.kernels, flash=flash == "true"))
    stated = row.get("prefill_chunking", "")
    return replace(engine, chunked_prefill=stated == "yes") if stated in {"yes", "no"} else engine


def engine_version(name: str, version: str, when: str = "", vendor: str = "") -> str | None:
    """Return the catalogue's version of an engine for a published run, None where the engine is not described.

    For a stated version this is the nearest at or below it, or the first profile whose ``since`` it reaches. Without one it is the
    release nearest to the run's month, before or after.
    Where only a year is known it is the newest release up to that year, or the oldest known release. Releases that do not run on
    the devices of a `vendor` are left out where any do.
    """
    ranked = _versions(name)
    ranked = [one for one in ranked if not vendor or vendor in one.vendors] or ranked
    if not ranked:
        return None
    wanted = release_in(version)
    below = (
        [e for e in ranked if _parts(e.raw.get("since", e.version)) <= _parts(wanted)]
        if wanted
        else [e for e in ranked if e.released[:4] <= when[:4]]
    )
    if not wanted and MONTH.match(when):
        return min(ranked, key=lambda e: abs(unwrap(catalogue.months(e.released)) - unwrap(catalogue.months(when)))).id
    if not below and not wanted and when:
        return ranked[0].id
    return (below[-1] if below else ranked[0 if wanted else -1]).id


ELSEWHERE = re.compile(r"speculative|eagle|medusa|\bmtp\b|lookahead|disagg\w*|\bpd\b", re.IGNORECASE)
"""Ways to run that no profile describes, where people write them beside an engine's name."""

RELEASE = re.compile(
    r"(?<![\d.])(?:v|r|release[-/ ]?)?(\d+(?:\.\d+)+)|(?<![0-9a-z])b?(\d{3,6})(?![0-9a-z.])|^v?(\d{1,2})$",
    re.IGNORECASE,
)
"""Numbers of a release, or of a build of llama.cpp; the hash of a commit is none."""

BACKENDS = frozenset(
    {"rocm", "cuda", "vulkan", "metal", "hip", "sycl", "cpu", "gpu", "server", "bench", "cli", "backend", "engine"}
)
"""Words beside an engine's name that choose no profile."""


def release_in(version: str) -> str:
    """Return the numbers of a release in a version as tables write it, empty where there are none.

    >>> release_in("Version 0.6.3.post1"), release_in("8e672efe (1550)"), release_in("b5200"), release_in("4f5e2a1"), release_in("latest")
    ('0.6.3', '1550', '5200', '', '')
    """
    found = RELEASE.search(re.sub(r"(?:\bPR\b|#)[\s#]*\d+", "", version, flags=re.IGNORECASE).strip())
    return next(filter(None, found.groups())) if found else ""


def parted(name: str) -> tuple[str, str]:
    """Return the name of software without its release and backend, and the release.

    >>> parted("vllm-(0.6.3)"), parted("llama.cpp-rocm"), parted("trt-llm-0.12"), parted("hf-tgi")
    (('vllm', '0.6.3'), ('llama.cpp', ''), ('trt-llm', '0.12'), ('hf-tgi', ''))
    """
    release = release_in(name.replace("-", " "))
    words = [
        word for word in re.split(r"[-()]+", name) if word and word not in BACKENDS and not RELEASE.fullmatch(word)
    ]
    return "-".join(words), release


def _versions(name: str) -> list[Engine]:
    """Return the described versions of an engine, the oldest first."""
    known = (catalogue.engine(one) for one in catalogue.ids("engines") if one.startswith(name))
    return sorted((one for one in known if one.name == name), key=lambda one: one.released)


def _parts(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, zeros at its end aside: 1 and 1.0 are the same."""
    parts = [int(part) for part in version.lstrip("vb").split(".") if part.isdigit()]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


MONTH = re.compile(r"\d{4}-\d{2}")
"""Prefix of a date that gives a month."""
