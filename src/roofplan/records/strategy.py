"""Division of a model over devices."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from roofplan.laws import Number


def divisors(count: int) -> list[int]:
    """Return the divisors of a whole number, smallest first.

    Parameters
    ----------
    count : at least 1.

    Returns
    -------
    The divisors, among them 1 and the number itself.

    Examples
    --------
    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [d for d in range(1, math.isqrt(count) + 1) if count % d == 0]
    return sorted({*small, *(count // d for d in small)})


def pinned_parts(text: str | None) -> Iterator[tuple[str, str, str]]:
    """Yield each pin of a text as its name, its value ("" where it has none) and how it was written.

    Parameters
    ----------
    text : pins such as ``tp=8,pp=2``, or degrees as plans print them, ``tp8 pp2``; None for no pins.

    Returns
    -------
    Name, value and spelling of each.

    Examples
    --------
    >>> list(pinned_parts("tp=8, attention-dp4"))
    [('tp', '8', 'tp=8'), ('attention_dp', '4', 'attention-dp4')]
    """
    written = re.sub(r"\bone device\b", "tp1 pp1 dp1", re.sub(r"\s*=\s*", "=", (text or "").strip()))
    for part in re.split(r"[,\s]+", written):
        name, equals, value = part.partition("=")
        if not equals and (printed := re.fullmatch(r"([a-z-]+?)(\d+)", name, re.IGNORECASE)):
            name, value = printed.groups()
        if part:
            yield name.lower().replace("-", "_"), value, part


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """Parallel degrees as the engine defines them; each may be an array, all of equal shape.

    Parameters
    ----------
    tp : ranks that split every matrix [1].
    pp : ranks that split the layers [1].
    dp : replicas of the attention part, or of the whole model without experts [1].
    ep : ranks that split the experts, 1 where experts are split by width [1].
    attention_dp : attention replicas inside the tensor-parallel group (SGLang) [1].
    """

    tp: Number = 1
    pp: Number = 1
    dp: Number = 1
    ep: Number = 1
    attention_dp: Number = 1

    @property
    def groups(self) -> int:
        """Return the replicas of the attention part, each with users of its own [1]."""
        return int(self.dp) * int(self.attention_dp)

    @property
    def replicas(self) -> int:
        """Return the copies of the whole model, none of which needs another [1]."""
        return int(self.dp) if int(self.ep) <= int(self.tp) else 1

    def label(self) -> str:
        """Return a label such as ``tp8`` or ``tp4 pp2 dp2``."""
        parts = [
            f"{name}{int(getattr(self, name))}" for name in ("tp", "pp", "dp", "ep") if int(getattr(self, name)) > 1
        ]
        if int(self.attention_dp) > 1:
            parts.append(f"attention-dp{int(self.attention_dp)}")
        return " ".join(parts) or "one device"

    def as_dict(self) -> dict[str, int]:
        """Return all degrees as whole numbers."""
        return {name: int(getattr(self, name)) for name in ("tp", "pp", "dp", "ep", "attention_dp")}
