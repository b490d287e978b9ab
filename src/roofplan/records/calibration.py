"""Fitted constants: what laws need beyond data sheets, with the measurements behind them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from roofplan.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One fitted number of one law.

    Parameters
    ----------
    law : law that uses it.
    name : its name in that law.
    scope : scope that it is looked up under: an architecture, a device, an engine version, or ``any``.
    basis : scope that it was fitted on where it differs, as for a constant that a user's runs moved.
    value : value, in `unit`.
    spread : robust relative spread of the residuals, one standard deviation [1].
    rows : measurements used [1].
    fitted : ISO date of the fit.
    source : source of the rows, or the reason for the guess.
    kind : whether it is fitted to rows, guessed, or true by definition.
    also : other scopes that it holds for, whose rows give nearly the same number.
    """

    law: str
    name: str
    scope: str
    value: float
    unit: str
    spread: float
    rows: int
    fitted: str
    source: str
    note: str = ""
    basis: str = ""
    kind: Literal["fit", "guess", "definition"] = "fit"
    also: tuple[str, ...] = ()

    def __hash__(self) -> int:
        """Return the hash of its key; constants that differ under one key compare unlike."""
        return hash((self.law, self.name, self.scope))

    @classmethod
    def defined(cls, law: str, name: str, scope: str, value: float, unit: str, source: str) -> Constant:
        """Return a constant that is true by definition, with the reason as its source."""
        return cls(
            law=law,
            name=name,
            scope=scope,
            value=value,
            unit=unit,
            spread=0.0,
            rows=0,
            fitted="",
            source=source,
            kind="definition",
        )

    @property
    def fitted_on(self) -> str:
        """Scope that it was fitted on."""
        return self.basis or self.scope

    @property
    def relative(self) -> bool:
        """Whether it is a factor on the constant of a wider scope, such as one framework's factor on a constant of all frameworks."""
        return self.unit == RELATIVE

    @property
    def reads(self) -> bool:
        """Whether it is a share of memory bandwidth, so that it affects memory traffic and not compute."""
        return self.name.partition(".")[0] in {"bandwidth", "decode_bandwidth"}

    @property
    def citation(self) -> str:
        """Text that answers cite it by: the rows that it was fitted to, or that it is a guess or a definition."""
        rows = f"{self.fitted}, {self.rows} rows, spread {self.spread:.0%}, " if self.kind == "fit" else ""
        note = f"; {self.note}" if self.note and self.note != self.source else ""
        return f"{self.kind}: {self.law}.{self.name} for {self.scope}, {rows}{self.source}{note}"


RELATIVE = "x"
"""Unit of a constant that is a factor on the constant of a wider scope."""

Key = tuple[str, str, str]
"""Law, name and scope of a constant."""

SLOWDOWN = "slowdown"
"""Law of a user's own device under its software: how many times as long a step takes there as predicted (``time``), and the error that
predictions share there before a run is known (``prior``)."""

OWN = "own"
"""Law of the intervals from a user's own runs: how far predictions of a job on a device and software lay from its measurements."""


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """The fitted constants that predictions rest on, looked up by law, name and scope.

    Of two constants under one key the later one holds, so that a user's own override the shipped ones. Fits are values: they
    compare and hash by content, and `with_` and `without` return changed copies.

    Parameters
    ----------
    constants : constants in the order of their files.
    excluded : publishers whose measurements do not count.
    """

    constants: tuple[Constant, ...]
    excluded: frozenset[str] = frozenset()
    _index: dict[Key, Constant] = field(init=False, repr=False)
    _names: frozenset[tuple[str, str]] = field(init=False, repr=False)
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        kept = {(item.law, item.name, item.scope): item for item in self.constants}
        index = dict(kept)
        for item in kept.values():
            for scope in item.also:
                index.setdefault((item.law, item.name, scope), replace(item, scope=scope, also=()))
        object.__setattr__(self, "_index", index)
        object.__setattr__(self, "_names", frozenset((law, name) for law, name, _ in index))
        object.__setattr__(self, "constants", tuple(kept.values()))
        values = tuple((item.value, item.spread, item.rows, item.source) for item in self.constants)
        object.__setattr__(self, "_hash", hash((values, self.excluded)))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Fit) or self._hash != other._hash:
            return False
        return self.excluded == other.excluded and self.constants == other.constants

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Fit], tuple[tuple[Constant, ...], frozenset[str]]]:
        """Return the fit's constructor call, since hashes of texts differ in another process."""
        return Fit, (self.constants, self.excluded)

    def get(self, law: str, name: str, scope: str) -> Constant | None:
        """Return the constant of one scope, None where it has none."""
        return self._index.get((law, name, scope))

    def speaks_of(self, law: str, name: str) -> bool:
        """Return whether any scope has a constant of this law and name."""
        return (law, name) in self._names

    def find(self, law: str, name: str, scopes: Sequence[str]) -> Constant:
        """Return the constant of the nearest scope that has an absolute one, times the factors of nearer scopes.

        Parameters
        ----------
        law, name : law of the constant, and its name in that law.
        scopes : scopes to look under, nearest first.

        Raises
        ------
        InputError : none of them has one.
        """
        factors: list[Constant] = []
        for scope in scopes:
            found = self._index.get((law, name, scope))
            if found is None:
                continue
            if not found.relative:
                return _product(found, factors) if factors else found
            factors.append(found)
        raise InputError(f"no fitted constant {law}.{name} for any of {', '.join(scopes)}")

    def variants(self, law: str, name: str, scopes: Sequence[str]) -> dict[str, Constant]:
        """Return the constants named `name` and a variant, such as ``bandwidth.fp8``, by variant, each of its nearest scope."""
        found: dict[str, Constant] = {}
        names = sorted(
            its_name for its_law, its_name in self._names if its_law == law and its_name.startswith(f"{name}.")
        )
        for each in names:
            item = next((item for scope in scopes if (item := self.get(law, each, scope)) is not None), None)
            if item is not None:
                found[each.removeprefix(f"{name}.")] = item
        return found

    def with_(self, items: Iterable[Constant]) -> Fit:
        """Return the fit with more constants; each replaces one under the same key."""
        return Fit((*self.constants, *items), self.excluded)

    def without(self, publishers: Iterable[str]) -> Fit:
        """Return the fit as if some publishers had measured nothing; constants fitted to their rows stay.

        Raises
        ------
        InputError : a single text instead of a list, which would be read letter by letter.
        """
        if isinstance(publishers, str):
            raise InputError(
                f"publishers: a list is needed, such as [{publishers!r}]", argument="publishers", value=publishers
            )
        return Fit(self.constants, self.excluded | frozenset(publishers))

    def digest(self) -> str:
        """Return twelve hexadecimal digits that identify the fit by what predictions rest on, such as keys, values and spreads."""
        lines = sorted(
            f"{i.law} {i.name} {i.scope} {i.value!r} {i.unit} {i.spread!r} {i.rows} {i.kind} {i.basis} {' '.join(i.also)}"
            for i in self.constants
        )
        return hashlib.sha256("\n".join([*lines, *sorted(self.excluded)]).encode()).hexdigest()[:12]


def _product(whole: Constant, factors: Sequence[Constant]) -> Constant:
    """Return a constant times factors, nearest first, under the scope of the nearest; its spread is the smallest of all."""
    nearest = factors[0]
    product = " x ".join(f"{item.value:g} for {item.scope}" for item in (whole, *reversed(factors)))
    return replace(
        whole,
        scope=nearest.scope,
        also=(),
        value=whole.value * math.prod(item.value for item in factors),
        spread=min(whole.spread, *(item.spread for item in factors)),
        rows=nearest.rows,
        source=nearest.source,
        note=product,
        kind=nearest.kind,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Watched(Fit):
    """A fit that records the constants looked up by `find` and `variants`, each under the nearest scope; it equals only itself.

    Look-ups by `get` are not recorded, and `with_` returns a plain fit.
    """

    consulted: dict[Key, Constant] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def find(self, law: str, name: str, scopes: Sequence[str]) -> Constant:
        """Return the result of `Fit.find`, and record it."""
        found = Fit.find(self, law, name, scopes)
        self.consulted[law, name, scopes[0]] = found
        return found

    def variants(self, law: str, name: str, scopes: Sequence[str]) -> dict[str, Constant]:
        """Return the result of `Fit.variants`, and record it."""
        found = Fit.variants(self, law, name, scopes)
        self.consulted.update({(law, item.name, scopes[0]): item for item in found.values()})
        return found
