"""Fields of a configuration, read without inventing a dimension."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from roofplan.errors import ConfigError

_REQUIRED: Any = object()
MOST = 10**9
"""Largest dimension that is accepted; anything larger is a mistake [1]."""

MOST_LAYERS = 10_000
"""Largest number of layers that is accepted [1]."""

Whole = int
"""The type ``int``, which inside `Fields` is a method."""


def shortened(value: Any) -> str:
    """Return a value as text short enough for a message.

    >>> shortened(10**40)
    '1000000000000000000... (41 digits)'
    """
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**20:
        digits = str(value)
        return f"{digits[:19]}... ({len(digits)} digits)"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


SPELT = {"num_experts": ("num_local_experts",), "num_local_experts": ("num_experts",)}
"""Other names of a field in later releases of transformers (5.23 writes one name for all mixtures)."""


class Fields:
    """One JSON object of a configuration, whose fields are read by name and refused with clear messages.

    A dimension is required unless the family function passes a `default`, which it does only where the family's own definition
    derives it (such as ``head_dim = hidden_size / num_attention_heads``).
    """

    def __init__(self, values: Mapping[str, Any], path: str = "") -> None:
        self.values = values
        self.path = path

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def raw(self, *names: str, default: Any = _REQUIRED) -> Any:
        """Return the first present, non-null value among `names` and their other spellings."""
        for spelt in (one for name in names for one in (name, *SPELT.get(name, ()))):
            if self.values.get(spelt) is not None:
                return self.values[spelt]
        if default is _REQUIRED:
            spelled = " or ".join(self.path + name for name in names)
            raise ConfigError(f"config.json lacks {spelled}; add it, roofplan does not guess shapes", argument=names[0])
        return default

    def filled(self, **values: object) -> Fields:
        """Return the object with further values, for fields that a family names or derives in its own way."""
        return Fields({**self.values, **values}, self.path)

    def int(self, *names: str, default: Any = _REQUIRED, least: int = 1) -> int:
        """Return a whole number of at least `least`."""
        value = self.raw(*names, default=default)
        whole = (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and (isinstance(value, int) or (math.isfinite(value) and value == int(value)))
        )
        most = MOST_LAYERS if names[0].endswith(("layers", "n_layer", "depth")) else MOST
        if not whole or not least <= value <= most:
            raise ConfigError(
                f"config.json: {self.path}{names[0]} is {shortened(value)}; a whole number of {least} to {most:,} is needed",
                argument=names[0],
                value=shortened(value),
            )
        return int(value)

    def optional_int(self, *names: str, off: tuple[Whole, ...] = (0, -1)) -> Whole | None:
        """Return a positive whole number, None where absent, null or one of `off`, the values by which families switch a feature off."""
        value = self.raw(*names, default=None)
        if value is None or (value in off and not isinstance(value, bool)):
            return None
        return self.int(*names)

    def positions(self, *names: str) -> Whole | None:
        """Return the longest sequence, or None where the configuration states no limit."""
        return self.optional_int(*names, off=())

    def ints(
        self, name: str, default: Any = _REQUIRED, least: Whole = 0, most: Whole | None = None
    ) -> tuple[Whole, ...]:
        """Return a list of whole numbers, each of `least` to `most`."""
        values = self.raw(name, default=default)
        if not isinstance(values, list | tuple):
            raise ConfigError(f"config.json: {self.path}{name} must be a list", argument=name, value=shortened(values))
        for value in values:
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or value < least or (most is not None and value > most):
                bounds = f"of {least} or more" if most is None else f"of {least} to {most:,}"
                raise ConfigError(
                    f"config.json: {self.path}{name} holds {shortened(value)}; whole numbers {bounds} are needed",
                    argument=name,
                    value=shortened(value),
                )
        return tuple(values)

    def layer(self, index: Whole) -> Fields:
        """Return the object with what ``per_layer_config`` states otherwise for a layer."""
        stated = self.values.get("per_layer_config") or {}
        own = (stated.get(f"{index:02}") or stated.get(str(index)) or {}) if isinstance(stated, Mapping) else None
        if not isinstance(own, Mapping):
            raise ConfigError(
                f"config.json: {self.path}per_layer_config must hold objects by layer", argument="per_layer_config"
            )
        return Fields({**self.values, **own}, self.path)

    def factor(self, name: str) -> float:
        """Return a positive number that need not be whole."""
        value = self.raw(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value < MOST:
            raise ConfigError(
                f"config.json: {self.path}{name} is {shortened(value)}; a positive number is needed",
                argument=name,
                value=shortened(value),
            )
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean; `default` is the family's default."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool | int):
            raise ConfigError(
                f"config.json: {self.path}{name} is {value!r}; true or false is needed", argument=name, value=value
            )
        return bool(value)

    def text(self, name: str, default: str = "") -> str:
        """Return a string."""
        value = self.values.get(name)
        return default if value is None else str(value)

    def list(self, name: str, length: Whole | None = None) -> Any:
        """Return a list, None where absent; `length` is checked where given."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise ConfigError(f"config.json: {self.path}{name} must be a list", argument=name, value=value)
        if length is not None and len(value) != length:
            raise ConfigError(
                f"config.json: {self.path}{name} has {len(value)} entries for {length} layers",
                argument=name,
                value=len(value),
            )
        return value

    def sub(self, name: str) -> Fields:
        """Return a nested object."""
        value = self.values.get(name)
        if not isinstance(value, Mapping):
            raise ConfigError(f"config.json lacks the object {self.path}{name}", argument=name)
        return Fields(value, f"{self.path}{name}.")
