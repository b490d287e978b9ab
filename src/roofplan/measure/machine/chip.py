"""What a machine attained, beside data sheets and published bests; and as a chip that every command plans with."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from roofplan import catalogue
from roofplan.measure.machine.probe import Probe, nominal
from roofplan.records import units
from roofplan.records.hardware import BANDWIDTH, LAUNCH, VECTOR, Accelerator

NORMAL = (0.9, 1.03)
"""Attained over expected between which a figure is normal [1]."""

USUAL_PRODUCT, USUAL_READ = 0.77, 0.82
"""Share of a data sheet's peak and bandwidth that well-running devices attain where none was published: medians of the catalogue's measured
products (accelerators with a `measured` rate) and of its fitted shares of bandwidth [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """An attained figure beside what it is expected to be.

    Parameters
    ----------
    figure : name of the figure.
    attained, sheet : by the probe, and by the data sheet or the stated clock; None where it states none, in `unit`.
    published : best that was published of the same device, None without.
    source : of the data sheet's figure.
    verdict : normal, low or above; None without anything to compare with.
    why : what explains a low or high figure.
    """

    figure: str
    attained: float
    unit: str
    sheet: float | None = None
    published: float | None = None
    source: str = ""
    verdict: Literal["normal", "low", "above"] | None = None
    why: str = ""


def device_of(found: Probe, like: str | None) -> Accelerator | None:
    """Return the device of the catalogue that was measured: the one asked for, or the one that its name means.

    Parameters
    ----------
    found : the probe.
    like : id of a device, None to look the name up.

    Returns
    -------
    The device, None where the catalogue has none of its name.

    Raises
    ------
    UnknownName : `like` is no device.
    """
    if like is not None:
        return catalogue.accelerator(catalogue.find("accelerators", like, "--like"))
    words = {
        word.rstrip("45") if word.startswith("sxm") else word for word in _words(found.conditions.get("device", ""))
    }
    known = [one for one in catalogue.ids("accelerators") if _named(one, words) and _holds(one, found.memory)]
    return (
        catalogue.accelerator(
            min(known, key=lambda one: (-len(_words(one) & words), bool(_words(one) & {"pcie", "nvl"}), len(one)))
        )
        if known
        else None
    )


FORMS = frozenset({"sxm", "pcie", "nvl", "sxm2", "sxm3", "laptop", "super", "ti", "d"})
"""Words of a name that tell variants apart: a device that bears one is no other."""

NEAR = 0.1
"""Relative difference of memory up to which a device is taken to be one of the catalogue [1]."""


def _words(name: str) -> set[str]:
    return set(re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-").split("-"))


def _named(identity_: str, words: set[str]) -> bool:
    """Return whether a device of the catalogue bears the words of a name."""
    own = _words(identity_)
    core = {word for word in own if word not in FORMS and not word.endswith("w") and not word.isdigit()} | {
        word for word in own if word.isdigit() and len(word) >= LEAST_DIGITS
    }
    said = FORMS & words
    return bool(core) and core <= words and (not said or said == FORMS & own) and own & {"pcie", "nvl"} <= words


LEAST_DIGITS = 4
"""Digits of a number that names a card, such as 4090; a shorter one is its memory or its power [1]."""


def _holds(identity_: str, memory: int | None) -> bool:
    """Return whether a device of the catalogue has a memory."""
    sheet = catalogue.accelerator(identity_).value("memory_capacity")
    return memory is None or sheet is None or abs(memory / sheet - 1.0) <= NEAR


def verdicts(found: Probe, device: Accelerator | None) -> list[Verdict]:
    """Return each attained rate beside its expectation.

    Parameters
    ----------
    found : the probe.
    device : the device of the catalogue that it is, None where it is none.

    Returns
    -------
    One for the best product of each format and one for memory.
    """
    out = []
    stated = nominal(found) if found.host else None
    for number in found.formats:
        best = found.product(number)
        if best is None:
            continue
        name = f"{number} products"
        if device is not None and number in device.peak:
            sheet = device.peak[number]
            known = device.measured.get(number)
            out.append(
                _verdict(
                    name,
                    best.best,
                    sheet.value,
                    None if known is None else known.value,
                    sheet.source,
                    found,
                    USUAL_PRODUCT,
                )
            )
        elif stated is not None and number == "fp32":
            low = stated[0] / stated[1]
            out.append(_verdict(name, best.best, stated[1], None, stated[2], found, 1.0, low))
        else:
            out.append(Verdict(figure=name, attained=best.best, unit="FLOP/s"))
    reads = found.bandwidth
    if reads is not None:
        rated = None if device is None else device.quantities.get(BANDWIDTH)
        if rated is None:
            out.append(Verdict(figure="memory reads", attained=reads.best, unit="B/s"))
        else:
            one = _verdict("memory reads", reads.best, rated.value, None, rated.source, found, USUAL_READ)
            out.append(one)
    return out


def _verdict(
    figure: str,
    attained: float,
    sheet: float,
    published: float | None,
    source: str,
    found: Probe,
    usual: float,
    least: float = 1.0,
) -> Verdict:
    """Return a figure beside the best that was published, else beside the usual share of its data sheet; `least` of it may be all there is."""
    expected = published or usual * sheet
    ratio = attained / expected
    low, high = NORMAL if published else (NORMAL[0], max(NORMAL[1], NORMAL[1] / usual))
    said: Literal["normal", "low", "above"] = "low" if ratio < low * least else "above" if ratio > high else "normal"
    why = ""
    if said == "above":
        why = "a clock above the stated one (boost), or a data sheet of another variant"
    elif said == "low":
        throttled = found.conditions.get("throttled by", "")
        busy = [f"throttled (NVML's reasons {throttled})"] if throttled else []
        load = float(found.conditions.get("load of the last minute", "0"))
        busy += [f"load {load:.1f} before the probe: others were computing"] if found.host and load > 0.5 else []
        why = "; ".join(busy) or "shared or throttled: see the conditions; --sustain shows throttling"
    unit = "B/s" if figure == "memory reads" else "FLOP/s"
    return Verdict(
        figure=figure,
        attained=attained,
        unit=unit,
        sheet=sheet,
        published=published,
        source=source,
        verdict=said,
        why=why,
    )


def identity(found: Probe, device: Accelerator | None) -> str:
    """Return an id for the chip: ``my-`` and what it is.

    Parameters
    ----------
    found : the probe.
    device : the device of the catalogue that it is, None where it is none.

    Returns
    -------
    The id.
    """
    name = device.id if device is not None else found.conditions.get("processor", "processor")
    words = re.sub(r"\(r\)|\(tm\)|processor|cpu|@.*", " ", name.lower())
    slug = re.sub(r"[^a-z0-9]+", "-", words).strip("-") or "processor"
    cores = f"-{found.threads}-core{'s' if found.threads > 1 else ''}" if found.host else ""
    return f"my-{slug}{cores}"


def chip_text(found: Probe, device: Accelerator | None, identity_: str) -> str:
    """Return the TOML file of a chip with what the probe attained, which `--on FILE` takes at its word.

    Parameters
    ----------
    found : the probe.
    device : the device of the catalogue that it is, whose data sheet fills the rest; None where it is none.
    identity_ : id of the chip.

    Returns
    -------
    The text.
    """
    return "\n".join(_lines(found, device, identity_)) + "\n"


def _lines(found: Probe, device: Accelerator | None, identity_: str) -> Iterator[str]:
    when = found.conditions["date"]
    yield f"# Made by roofplan measure machine on {when}; laws take [attained] at its word."
    yield f"id = {_quoted(identity_)}"
    name = found.conditions.get("device") or found.conditions["processor"]
    cores = f", {found.threads} thread{'s' if found.threads > 1 else ''}" if found.host else ""
    yield f"name = {_quoted(name + cores)}"
    if device is not None:
        yield f"like = {_quoted(device.id)}"
    if found.host:
        yield 'kind = "cpu"'
    if found.memory is not None:
        yield f'memory_capacity = "{found.memory / 2**30:.4g} GiB"'
    if found.host and found.cache is not None:
        yield f'cache = "{found.cache / 2**20:.4g} MiB"'
    said = "; ".join(f"{key}: {text}" for key, text in found.conditions.items() if key not in {"date", "device"})
    yield f"notes = [{_quoted(f'measured {when} with {found.backend}; {said}')}]"
    yield ""
    yield "[attained]"
    for number in found.formats:
        best = found.product(number)
        if best is not None and number != "fp64":
            yield f'{number} = "{_shown(best.best, "FLOP/s")}"'
    if found.host and found.vector is not None:
        yield f'{VECTOR} = "{_shown(found.vector.best, "FLOP/s")}"'
    if found.bandwidth is not None:
        yield f'{BANDWIDTH} = "{_shown(found.bandwidth.best, "B/s")}"'
    if found.launch is not None and not found.host:
        yield f'{LAUNCH} = "{found.launch.best * 1e6:.3g} us"'


def _shown(value: float, unit: str) -> str:
    """Return a rate with four digits and a prefix that `units.parse` reads."""
    power = min(4, max(0, int(math.log10(value) // 3)))
    prefix = "_kMGT"[power].strip("_").upper()
    name = f"{prefix}FLOPS" if unit == "FLOP/s" else f"{'k' if power == 1 else prefix}B/s"
    text = f"{value / 1e3**power:.4g} {name}"
    units.parse(text, unit, "attained")
    return text


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', "'") + '"'
