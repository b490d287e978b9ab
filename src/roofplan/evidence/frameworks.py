"""The framework profile of a published training run: described software, its forks, and what stands in for the rest."""

from __future__ import annotations

from dataclasses import replace

from roofplan import catalogue
from roofplan.catalogue.names import StandIn
from roofplan.evidence.engines import parted
from roofplan.evidence.rows import Assumed, Row, Skipped, number
from roofplan.records.training import Framework
from roofplan.training.request import in_place_of


def _planned_as(other: StandIn, row: Row, assumed: Assumed) -> Framework:
    """Return the profile that stands in for software, with the kernels that torch.compile makes where the row or the software says so."""
    said, adapters = row.get("compiled", "").lower(), "lora" in row.get("task", "").lower()
    other = other.with_kernels((said in {"yes", "true"} or (other.compiles and not said)) and not adapters)
    assumed.add(f"framework {other.text}")
    return in_place_of(other)


def _root(name: str) -> str:
    """Return the described software whose name another begins with, word by word, as forks are named; empty for none.

    >>> _root("megatron-deepspeed (a fork)"), _root("maxtext-of-mine"), _root("torch-of-mine")
    ('megatron-deepspeed', 'maxtext', '')
    """
    words = catalogue.hyphened(name).split("-")
    starts = ("-".join(words[:count]) for count in range(len(words) - 1, 0, -1))
    known = catalogue.aliases("frameworks")
    return next((one for one in starts if one in known or catalogue.stand_in("frameworks", one)), "")


def framework_of(row: Row, assumed: Assumed) -> Framework:
    """Return the framework profile for a row's name and month, or the profile that stands in for it.

    Software that nobody described runs as plain PyTorch does, sharded where there are several devices, or as Megatron where layers
    are split over them.
    """
    name, month = row["framework"].removeprefix("other:"), row.get("month", "")
    if not catalogue.described("frameworks", name) and catalogue.described(
        "frameworks", plain := parted(catalogue.hyphened(name))[0]
    ):
        name = plain
    loss = row.get("loss", "").lower()
    when = month or row.get("year", "")
    other = catalogue.stand_in("frameworks", name, when)
    identity = other.id if other else catalogue.aliases("frameworks").get(catalogue.hyphened(name))
    if identity is None:
        return _with_loss(_undescribed(row, name, when, assumed), loss, "", assumed)
    found = _planned_as(other, row, assumed) if other and not other.own else catalogue.framework(identity)
    found = _with_loss(found, loss, other.loss if other else "", assumed)
    if row.get("compiled", "").lower() in {"no", "false"}:
        found = found.uncompiled()
    return _with_attention(found, row.get("flash_attention", ""), when, assumed)


LOSS = "loss"
"""Whether the loss writes logits, an input that rows may omit and that has another plausible value."""


def _with_loss(found: Framework, stated: str, unasked: str, assumed: Assumed) -> Framework:
    """Return a framework with the loss that a row states, ``fused`` or ``plain``, else the one that its software uses unasked.

    Whether those who run other software than the profile's have switched a fused one on is not known.

    Raises
    ------
    Skipped : a fused loss of this framework is not described.
    """
    if not found.has_fused_loss:
        if stated == "fused":
            raise Skipped(f"loss: a fused one under {found.id} is not described")
        return found
    if not stated and not unasked and found.stands_for:
        assumed.add("loss: it writes the logits, as no fused one is stated", LOSS)
    return found.with_fused_loss() if (stated or unasked) == "fused" else found


def _undescribed(row: Row, name: str, when: str, assumed: Assumed) -> Framework:
    """Return the profile of a fork's root, else that of software of which only its use is known."""
    if known := catalogue.misspelt("frameworks", name):
        raise Skipped(f"framework {name} is not described; nearest: {known}")
    if root := _root(name):
        found = framework_of({**row, "framework": root}, Assumed())
        assumed.add(f"framework {name}: by its name a fork of {root}, planned as {found.id}")
        return replace(found, stands_for=name)
    splits = any((number(row, degree) or 1.0) > 1.0 for degree in ("tp", "pp"))
    how = "split" if splits else "alone" if number(row, "accelerators_total") == 1.0 else "sharded"
    found = _planned_as(catalogue.undescribed("frameworks", how, when), row, Assumed())
    assumed.add(f"framework {name or 'not stated'}: not described, planned as {found.id}")
    return replace(found, stands_for=name or "not stated")


FLASH = "2022-06"
"""Month from which a run may have used FlashAttention."""


def _with_attention(found: Framework, flash: str, when: str, assumed: Assumed) -> Framework:
    """Return a framework with FlashAttention or without, as a row says: ``True``, ``False`` or blank."""
    if found.attention == "eager" and not flash and when >= FLASH:
        assumed.add(f"attention: without FlashAttention, {found.name}'s default then")
    if flash == "False" and found.name == "megatron":
        older = catalogue.framework("megatron-lm-3.0")
        return replace(older, stands_for=found.stands_for, untuned=found.untuned)
    stated = {"True": "flash", "False": "eager"}.get(flash, found.attention)
    return replace(found, attention=stated) if {stated, found.attention} == {"flash", "eager"} else found
