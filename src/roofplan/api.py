"""The Python interface; the command line is a thin layer over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofplan import catalogue, hf
from roofplan.catalogue import profile
from roofplan.catalogue.machines import accelerator
from roofplan.errors import InputError, UnitError, nearest
from roofplan.hf.find import read_model
from roofplan.inputs import Load, ServeInputs, TokensInputs, TrainInputs, takes
from roofplan.money.machine import Terms
from roofplan.money.request import terms_of
from roofplan.money.tokens import TokenCosts
from roofplan.operations.table import element_bytes
from roofplan.records.calibration import Fit
from roofplan.records.hardware import Accelerator
from roofplan.records.model import Model
from roofplan.records.strategy import Strategy
from roofplan.serving import (
    Result,
    footprint,
    search,
)
from roofplan.serving.request import known_format, request_of
from roofplan.serving.tokens import cheapest_for, demand_of, priced_tokens, route_of, training_share_of
from roofplan.training import TrainingResult, plan_all
from roofplan.training.request import request_of as training_request

if TYPE_CHECKING:
    from roofplan.evidence.fits.own import Refit
    from roofplan.evidence.scoring import Validation


def fit_at_hand(given: Fit | None = None) -> Fit:
    """Return the fit that is given; without one, the shipped constants with those of the local profile over them.

    Raises
    ------
    InputError : a profile that cannot be read, or what is given is no fit.
    """
    if given is None:
        return profile.over(catalogue.shipped_fit(), profile.path())
    if not isinstance(given, Fit):
        shown = type(given).__name__
        raise InputError(
            f"fit: a {shown} is not a Fit; roofplan.catalogue.shipped_fit() returns one", argument="fit", value=shown
        )
    return given


@dataclass(frozen=True, slots=True)
class Parameters:
    """Counts of learned numbers [parameters]."""

    total: int
    active: int | None
    embedding: int
    head: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model with what people ask of it."""

    model: Model

    @property
    def parameters(self) -> Parameters:
        """Return total, active, embedding and head counts."""
        m = self.model
        return Parameters(m.total, m.active, m.embedding, m.head)

    def cache_bytes(self, tokens: int, precision: str = "bf16") -> int:
        """Return the cache of one sequence of `tokens`, constant state included [B]."""
        if tokens <= 0:
            raise UnitError(f"tokens: {tokens} must be greater than zero", argument="tokens", value=tokens)
        return round(
            footprint(self.model, Strategy(), element_bytes(known_format(precision, "precision"))).request(
                float(tokens)
            )
        )


def load_model(source: str | Path | Mapping[str, Any]) -> Loaded:
    """Return a model from a dict, a path to a config.json or its folder, a catalogue id or alias, the Hub cache, or ``hf:ORG/NAME``."""
    if isinstance(source, Mapping):
        return Loaded(hf.from_dict(source))
    return Loaded(read_model(str(source)))


def device(name: str) -> Accelerator:
    """Return an accelerator by id or alias, or of a TOML file of one's own."""
    return accelerator(name, "device")


@takes(ServeInputs)
def plan_serving(
    asked: ServeInputs,
    *,
    terms: Terms | None = None,
    fit: Fit | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Return serving plans, best first.

    Parameters are the flags of ``roofplan serve``, as text with units, or a `ServeInputs` of them; `terms` are those on which machines are
    owned, `fit` the constants that predictions rest on, by default those of `fit_at_hand`.

    Raises
    ------
    RoofplanError : bad input, or `NoPlan` where nothing satisfies the constraints.
    """
    loaded = model_of(asked.model)
    request, warnings = request_of(loaded, asked, terms)
    found = search(request, fit_at_hand(fit), progress)
    found.warnings += warnings
    return found


def model_of(source: str | Path | Mapping[str, Any] | Model) -> Model:
    """Return the model that a name, a path, a config or a model itself means."""
    if isinstance(source, Model):
        return source
    return load_model(source).model if isinstance(source, Mapping) else read_model(str(source))


@takes(TrainInputs)
def plan_training(
    asked: TrainInputs, *, fit: Fit | None = None, progress: Callable[[int, int], None] | None = None
) -> TrainingResult:
    """Return training plans, best first.

    Parameters are the flags of ``roofplan train``, as text with units, or a `TrainInputs` of them. Predictions rest on `fit`, by
    default on that of `fit_at_hand`.

    Raises
    ------
    RoofplanError : bad input, or `NoPlan` where nothing satisfies the constraints.
    """
    return plan_all(training_request(model_of(asked.model), asked), fit_at_hand(fit), progress)


def validate(
    kind: str,
    source: str | Path | Sequence[Mapping[str, str]],
    *,
    fit: Fit | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Validation:
    """Return measured runs beside predictions.

    Parameters
    ----------
    kind : ``training`` or ``inference``.
    source : a CSV file with the columns of the catalogue's `measured` tables, or its rows.
    fit : the constants that predictions rest on, by default those of `fit_at_hand`.

    Raises
    ------
    InputError : a kind or a table that cannot be read.
    """
    from roofplan.evidence.predictions import NEEDED, validated
    from roofplan.evidence.rows import read

    if kind not in NEEDED:
        near = nearest(kind, NEEDED)
        raise InputError(f"KIND: {kind!r} is neither training nor inference", argument="KIND", value=kind, nearest=near)
    rows = read(source, NEEDED[kind]) if isinstance(source, str | Path) else _rows(source, NEEDED[kind])
    return validated(kind, rows, fit_at_hand(fit), progress)


def _rows(rows: Sequence[Mapping[str, str]] | None, needed: Sequence[str]) -> Sequence[Mapping[str, str]]:
    """Return rows that have the columns of a table of runs."""
    if not rows:
        raise InputError("FILE: no rows", argument="FILE")
    missing = [name for name in needed if any(name not in row for row in rows)]
    if missing:
        raise InputError(f"FILE: the rows lack the columns {', '.join(missing)}", argument="FILE")
    return rows


def refit(
    *sources: str | Path | Sequence[Mapping[str, str]],
    keep: bool = True,
    fit: Fit | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Refit, Path | None]:
    """Return what all runs of one's own do to the shipped constants, and where the local profile keeps that, in place of an earlier one.

    Parameters
    ----------
    sources : CSV files as `validate` reads, of training and of inference, or their rows.
    keep : whether to write the profile, which is done only where held-out runs come nearer.
    fit : the constants that are moved, by default the shipped ones.

    Raises
    ------
    InputError : a table that cannot be read, or tables of which no row can be predicted.
    """
    from roofplan.evidence.fits.own import refit as refit_on

    if not sources:
        raise InputError("--with: no table of runs", argument="--with")
    if keep:
        profile.writable()
    tables = [_own_table(source) for source in sources]
    name = ", ".join(Path(one).name if isinstance(one, str | Path) else "rows" for one in sources)
    basis = fit or catalogue.shipped_fit()
    found = refit_on(tables, name, basis, progress)
    return found, profile.save(found.constants, basis) if keep and found.helps else None


def _own_table(source: str | Path | Sequence[Mapping[str, str]]) -> tuple[str, Sequence[Mapping[str, str]]]:
    """Return the kind and the rows of a table of runs: the kind whose columns it lacks the smallest share of."""
    from roofplan.evidence.predictions import NEEDED
    from roofplan.evidence.rows import read

    rows = read(source, ()) if isinstance(source, str | Path) else source
    if not rows:
        raise InputError("--with: no rows", argument="--with")
    lacks = {kind: [name for name in names if name not in rows[0]] for kind, names in NEEDED.items()}
    kind = min(lacks, key=lambda one: len(lacks[one]) / len(NEEDED[one]))
    if lacks[kind]:
        message = f"--with: {source} is not a table of runs: for {kind} it lacks the columns {', '.join(lacks[kind])}"
        raise InputError(message, argument="--with", value=str(source))
    return kind, rows


@takes(TokensInputs)
def token_costs(
    asked: TokensInputs, *, fit: Fit | None = None, progress: Callable[[int, int], None] | None = None
) -> TokenCosts:
    """Return what a month's tokens cost at an API, rented and owned; parameters are the flags of ``roofplan cost tokens``.

    `fit` is that of `plan_serving`.

    Raises
    ------
    RoofplanError : bad input, or `NoPlan` where nothing serves the model.
    """
    terms, training = terms_of(asked), training_share_of(asked.training_cost, asked.lifetime_tokens)
    route = route_of(asked.api_price)
    served = ServeInputs(**{one.name: getattr(asked, one.name) for one in fields(Load)})
    result = plan_serving(served, terms=terms, fit=fit, progress=progress)
    demand = demand_of(asked, result.plans[0].workload)
    return priced_tokens(cheapest_for(result.plans, demand), result, demand, terms, route, training)
