"""Systems that measured runs have in common: those with runs behind the fitted constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class System(NamedTuple):
    """Scope within which a constant is taken to hold.

    Parameters
    ----------
    architecture : architecture of the device.
    precision : number format of the matrix products, or of the stored weights.
    kind : ``dense``, ``mixture`` or ``hybrid``.
    software : engine or framework, of any version.
    """

    architecture: str
    precision: str
    kind: str
    software: str

    def __str__(self) -> str:
        return " ".join(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Origin of a measurement: its publisher, device and system."""

    source: str
    chip: str
    system: System

    @property
    def names(self) -> frozenset[str]:
        """Return the names that exclude it from a fit: ``vllm-docs``, ``chip:b200``, ``architecture:Hopper``, ``software:vllm``, ``system:...``."""
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
