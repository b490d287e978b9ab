"""What runs are alike by: the systems whose measured runs stand behind constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class System(NamedTuple):
    """What a constant is taken to hold for.

    Parameters
    ----------
    architecture : of the device.
    precision : number format of the products, or that weights are kept in.
    kind : ``dense``, ``mixture`` or ``hybrid``.
    software : engine or framework, whatever its version.
    """

    architecture: str
    precision: str
    kind: str
    software: str

    def __str__(self) -> str:
        return " ".join(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a measurement is from: its publisher, device and system."""

    source: str
    chip: str
    system: System

    @property
    def names(self) -> frozenset[str]:
        """Return what leaves it out of a fit: ``vllm-docs``, ``chip:b200``, ``architecture:Hopper``, ``software:vllm``, ``system:...``."""
        own = self.system
        return frozenset(
            {
                self.source,
                f"chip:{self.chip}",
                f"architecture:{own.architecture}",
                f"software:{own.software}",
                f"system:{own}",
            }
        )
