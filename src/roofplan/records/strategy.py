"""How a model is divided over devices."""

from __future__ import annotations

from dataclasses import dataclass

from roofplan.laws import Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """Parallel degrees with the engine's own meaning; each may be an array of equal shape.

    Parameters
    ----------
    tp : ranks that divide every matrix [1].
    pp : ranks that divide the layers [1].
    dp : copies of the attention part (and of all, without experts) [1].
    ep : ranks that divide the experts, 1 where experts are divided by width [1].
    attention_dp : attention copies inside the tensor group (SGLang) [1].
    """

    tp: Number = 1
    pp: Number = 1
    dp: Number = 1
    ep: Number = 1
    attention_dp: Number = 1

    def label(self) -> str:
        """Return such as ``tp8`` or ``tp4 pp2 dp2``."""
        parts = [
            f"{name}{int(getattr(self, name))}" for name in ("tp", "pp", "dp", "ep") if int(getattr(self, name)) > 1
        ]
        if int(self.attention_dp) > 1:
            parts.append(f"attention-dp{int(self.attention_dp)}")
        return " ".join(parts) or "one device"

    def as_dict(self) -> dict[str, int]:
        """Return all degrees as whole numbers."""
        return {name: int(getattr(self, name)) for name in ("tp", "pp", "dp", "ep", "attention_dp")}
