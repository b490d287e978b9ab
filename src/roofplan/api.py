"""The Python interface, on which the command line is a thin layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofplan import catalogue, hf
from roofplan.catalogue import profile
from roofplan.catalogue.machines import accelerator
from roofplan.errors import InputError, NoPlan, choice, nearest
from roofplan.hf.find import read_model
from roofplan.inputs import (
    AtFullLoad,
    BenchmarksInputs,
    Planned,
    PoolPlanInputs,
    PoolProveInputs,
    PoolSimulateInputs,
    ServeInputs,
    SimulateInputs,
    TokensInputs,
    TrainInputs,
    takes,
)
from roofplan.inputs import Load as LoadInputs
from roofplan.money.machine import OwnershipTerms
from roofplan.money.request import terms_of
from roofplan.money.tokens import TokenCosts
from roofplan.operations.table import element_bytes
from roofplan.records.calibration import SLOWDOWN, Fit
from roofplan.records.hardware import Accelerator
from roofplan.records.model import Model
from roofplan.records.strategy import Strategy
from roofplan.records.units import parse_length
from roofplan.serving import (
    Result,
    footprint,
    search,
)
from roofplan.serving.request import known_format, request_of
from roofplan.serving.tokens import cheapest_for, demands_of, paid_as, priced_tokens, route_of, training_share_of

if TYPE_CHECKING:
    from roofplan.evidence.benchmarks import Benchmarks
    from roofplan.evidence.fits.own import Refit
    from roofplan.evidence.scoring import Validation
    from roofplan.load.asked import Asked as AskedLoad
    from roofplan.pool.plan import PoolPlan
    from roofplan.pool.proof import Proof
    from roofplan.pool.simulate import PoolSimulation
    from roofplan.simulation.felt import Felt
    from roofplan.training import TrainingResult


def fit_at_hand(given: Fit | None = None) -> Fit:
    """Return the given fit; without one, the shipped constants overridden by those of the local profile.

    Parameters
    ----------
    given : a fit, None for the default.

    Returns
    -------
    The fit that predictions rest on.

    Raises
    ------
    InputError : a profile that cannot be read or was made on other constants, or a value that is not a fit.
    """
    if given is None:
        return profile.over(catalogue.shipped_fit(), profile.path())
    if not isinstance(given, Fit):
        shown = type(given).__name__
        raise InputError(
            f"fit: a {shown} is not a Fit; roofplan.catalogue.shipped_fit() returns one", argument="fit", value=shown
        )
    for item in given.constants:
        if not 0.0 <= item.value < math.inf or (item.law == SLOWDOWN and not item.value):
            what = f"{item.law}.{item.name} for {item.scope}"
            raise InputError(f"fit: {what} is {item.value}, which no constant can be", argument="fit", value=what)
    return given


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameter counts of a model [parameters]."""

    total: int
    active: int | None
    embedding: int
    head: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model with its most common figures."""

    model: Model

    def __repr__(self) -> str:
        m = self.model
        active = "" if m.active in {None, m.total} else f", {m.active:,} active"
        return f"Loaded({m.id}: {m.total:,} parameters{active}, {len(m.decoder.layers)} layers, hidden {m.hidden:,})"

    @property
    def parameters(self) -> Parameters:
        """Return total, active, embedding and head counts."""
        m = self.model
        return Parameters(m.total, m.active, m.embedding, m.head)

    def cache_bytes(self, tokens: int | str, precision: str = "bf16") -> int:
        """Return the cache size of one sequence of `tokens`, such as 8192 or ``8k``, including state of constant size [B]."""
        count = parse_length(tokens, "tokens")
        held = footprint(self.model, Strategy(), element_bytes(known_format(precision, "precision")))
        return round(held.request(float(count)))


def load_model(source: str | Path | Mapping[str, Any]) -> Loaded:
    """Return a model from a configuration, a file, the catalogue or the Hub.

    Parameters
    ----------
    source : a dict, a path to a config.json or its folder, a catalogue id or alias, a name in the Hub cache, or ``hf:ORG/NAME``.

    Returns
    -------
    The model with its most common figures.

    Raises
    ------
    RoofplanError : no such model, or a configuration that is invalid or of an unknown family.
    """
    if isinstance(source, Mapping):
        return Loaded(hf.from_dict(source))
    return Loaded(read_model(str(source)))


def device(name: str) -> Accelerator:
    """Return an accelerator.

    Parameters
    ----------
    name : id or alias, or path of a user's TOML file.

    Returns
    -------
    The accelerator.

    Raises
    ------
    InputError : an unknown name, the name of a server, or an invalid file.
    """
    return accelerator(name, "device")


@takes(ServeInputs)
def plan_serving(
    asked: ServeInputs,
    *,
    terms: OwnershipTerms | None = None,
    fit: Fit | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Return serving plans, best first.

    Parameters
    ----------
    asked : the flags of ``roofplan serve``, each as a keyword, as text with units; or one `ServeInputs` with them.
    terms : terms on which machines are owned, None for the defaults.
    fit : constants that predictions rest on, by default those of `fit_at_hand`.
    progress : function called with the work done and the work in all [1].

    Returns
    -------
    The plans, with warnings and counts of the search.

    Raises
    ------
    RoofplanError : bad input, or `NoPlan` where nothing satisfies the constraints.
    """
    loaded = model_of(asked.model)
    request, warnings = request_of(loaded, asked, terms)
    if asked.slo is not None and asked.rate is None:
        raise InputError("--slo: at which rate? Example: --rate 4req/s", argument="--rate")
    found = search(request, fit_at_hand(fit), progress)
    found.warnings += warnings
    if asked.slo is not None:
        from roofplan.load.asked import asked_of
        from roofplan.simulation.ranking import ranked_under_load

        shared = {one.name: getattr(asked, one.name) for one in (*fields(LoadInputs), *fields(Planned))}
        ranked_under_load(found, asked_of(SimulateInputs(**shared), REQUESTS))
    return found


def model_of(source: str | Path | Mapping[str, Any] | Model | Loaded) -> Model:
    """Return the model that a name, a path or a configuration means.

    Parameters
    ----------
    source : any of them, or a model.

    Returns
    -------
    The model; one that is given as it is.
    """
    if isinstance(source, Loaded):
        return source.model
    if isinstance(source, Model):
        return source
    return load_model(source).model if isinstance(source, Mapping) else read_model(str(source))


@takes(SimulateInputs)
def simulate(
    asked: SimulateInputs, *, fit: Fit | None = None, progress: Callable[[int, int], None] | None = None
) -> Felt:
    """Return what users feel of a plan under a load: percentiles, limits kept, queues and costs.

    Parameters
    ----------
    asked : the flags of ``roofplan simulate``, each as a keyword, as text with units; or one `SimulateInputs` with them.
    fit : constants that predictions rest on, by default those of `fit_at_hand`.
    progress : function called with the work done and the work in all [1].

    Returns
    -------
    The plan and the simulated load.

    Raises
    ------
    RoofplanError : bad input, or `NoPlan` where nothing serves the model.
    """
    from roofplan.load.asked import asked_of
    from roofplan.simulation.felt import felt_of
    from roofplan.simulation.replicas import ROUTES

    load, route = asked_of(asked, REQUESTS, asked.find), choice(asked.route, ROUTES, "--route")
    return felt_of(load, _plan_under(asked, load, fit_at_hand(fit), progress), route)


REQUESTS = 10_000
"""Requests of a simulation where nothing says how many [1]."""


def _plan_under(
    asked: SimulateInputs, load: AskedLoad, fit: Fit, progress: Callable[[int, int], None] | None
) -> Result:
    """Return serving plans for a load: those that carry it where there are any, else the best without it."""
    if not asked.on:
        raise InputError(
            "--on is missing: which machine? Example: --on h100-sxm:8, or roofplan serve MODEL --rate 4req/s for all of them",
            argument="--on",
        )
    shared = {one.name: getattr(asked, one.name) for one in (*fields(LoadInputs), *fields(Planned))} | {"slo": None}
    longest = load.longest
    shared |= {"input": str(round(load.input)), "output": str(round(load.output))}
    _check_lengths(asked, longest)
    if asked.context is None and longest > load.input + load.output:
        shared["context"] = str(longest)
    if load.trace is not None and load.rate is None:
        shared["rate"] = None
    carried = shared | (
        {} if load.clients is None or asked.concurrency is not None else {"concurrency": str(load.clients)}
    )
    try:
        found: Result = plan_serving(ServeInputs(**carried), fit=fit, progress=progress)
    except NoPlan:
        found = plan_serving(ServeInputs(**(shared | {"rate": None})), fit=fit, progress=progress)
    return found


def _check_lengths(asked: SimulateInputs, longest: int) -> None:
    """Refuse requests that are longer than the stated context, or, where none is stated, than the model's positions."""
    positions, said = model_of(asked.model).max_positions, f"the longest request has {longest:,} tokens"
    if asked.context is not None and longest > parse_length(asked.context, "--context"):
        raise InputError(
            f"--context: {said}; give at least as many, or leave it out", argument="--context", value=asked.context
        )
    if asked.context is None and positions is not None and longest > positions:
        drawn = ("--input", asked.input) if asked.lengths in {None, "fixed"} else ("--lengths", asked.lengths)
        flag, value = drawn if asked.trace is None else ("--trace", asked.trace)
        message = f"{flag}: {said}, beyond the {positions:,} positions of {asked.model} (max_position_embeddings)"
        raise InputError(message, argument=flag, value=str(value))


@takes(TrainInputs)
def plan_training(
    asked: TrainInputs, *, fit: Fit | None = None, progress: Callable[[int, int], None] | None = None
) -> TrainingResult:
    """Return training plans, best first.

    Parameters
    ----------
    asked : the flags of ``roofplan train``, each as a keyword, as text with units; or one `TrainInputs` with them.
    fit : constants that predictions rest on, by default those of `fit_at_hand`.
    progress : function called with the work done and the work in all [1].

    Returns
    -------
    The plans, with warnings and counts of the search.

    Raises
    ------
    RoofplanError : bad input, or `NoPlan` where nothing satisfies the constraints.
    """
    from roofplan.training import plan_all
    from roofplan.training.request import request_of as training_request

    return plan_all(training_request(model_of(asked.model), asked), fit_at_hand(fit), progress)


def validate(
    kind: str,
    source: str | Path | Sequence[Mapping[str, str]],
    *,
    fit: Fit | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Validation:
    """Return measured runs compared with predictions.

    Parameters
    ----------
    kind : ``training`` or ``inference``.
    source : a CSV file with the columns of the catalogue's `measured` tables, or its rows.
    fit : constants that predictions rest on, by default those of `fit_at_hand`.
    progress : function called with the rows done and the rows in all [1].

    Returns
    -------
    The outcome of each run, by figure.

    Raises
    ------
    InputError : an unknown kind, or a table that cannot be read.
    """
    from roofplan.evidence.predictions import NEEDED, validated
    from roofplan.evidence.rows import read

    if kind not in NEEDED:
        near = nearest(str(kind), NEEDED)
        raise InputError(f"KIND: {kind!r} is neither training nor inference", argument="KIND", value=kind, nearest=near)
    rows = read(source, NEEDED[kind]) if isinstance(source, str | Path) else _rows(source, NEEDED[kind])
    return validated(kind, rows, fit_at_hand(fit), progress)


def _rows(rows: Sequence[Mapping[str, str]] | None, needed: Sequence[str]) -> Sequence[Mapping[str, str]]:
    """Return rows after checking that they have the columns of a table of runs."""
    if not rows:
        raise InputError("FILE: no rows", argument="FILE")
    rows = [_cells(row, "FILE") for row in rows]
    missing = [name for name in needed if any(name not in row for row in rows)]
    if missing:
        raise InputError(f"FILE: the rows lack the columns {', '.join(missing)}", argument="FILE")
    return rows


def _cells(row: Mapping[str, object], argument: str) -> dict[str, str]:
    """Return a row with its cells as texts; what is missing is empty."""
    cells = {}
    for name, value in row.items():
        missing = value is None or (isinstance(value, float) and math.isnan(value))
        if not missing and not isinstance(value, str | int | float):
            kind = type(value).__name__
            raise InputError(f"{argument}: {name}: a {kind} is not a valid cell", argument=argument, value=str(value))
        cells[str(name)] = "" if missing else f"{value:.15g}" if isinstance(value, float) else str(value)
    return cells


def refit(
    *sources: str | Path | Sequence[Mapping[str, str]],
    keep: bool = True,
    fit: Fit | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Refit, Path | None]:
    """Return the shipped constants as moved by all of a user's own runs, and the path of the local profile that keeps them.

    Parameters
    ----------
    sources : CSV files as `validate` reads them, of training and of inference, or their rows.
    keep : whether to write the profile, in place of an earlier one; it is written where predictions of held-out runs improve, and for
        slowdowns of devices also where they get no worse, or of a single run.
    fit : constants that are moved, by default the shipped ones.
    progress : function called with the work done and the work in all [1].

    Returns
    -------
    The moved constants with their effect, and the path of the profile or None where it was not written.

    Raises
    ------
    InputError : a table that cannot be read, tables without a row that can be predicted, or a profile that cannot be written.
    """
    from roofplan.evidence.fits.own import refit as refit_on

    if not sources:
        raise InputError("--with: no table of runs", argument="--with")
    if not isinstance(keep, bool):
        raise InputError(f"keep is {keep!r}; expected true or false", argument="keep", value=str(keep))
    if keep:
        profile.writable()
    tables = [_own_table(source) for source in sources]
    name = ", ".join(Path(one).name if isinstance(one, str | Path) else "rows" for one in sources)
    basis = catalogue.shipped_fit() if fit is None else fit_at_hand(fit)
    found = refit_on(tables, name, basis, progress)
    return found, profile.save(found.constants, basis) if keep and found.keeps else None


def _own_table(source: str | Path | Sequence[Mapping[str, str]]) -> tuple[str, Sequence[Mapping[str, str]]]:
    """Return the kind and the rows of a table of runs; its kind is the one with the smallest share of missing columns."""
    from roofplan.evidence.predictions import NEEDED
    from roofplan.evidence.rows import read

    rows = read(source, (), "--with") if isinstance(source, str | Path) else [_cells(row, "--with") for row in source]
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
    """Return the cost of a month's tokens at an API, on rented machines and on owned machines.

    Parameters
    ----------
    asked : the flags of ``roofplan cost tokens``, each as a keyword, as text with units; or one `TokensInputs` with them.
    fit : constants that predictions rest on, by default those of `fit_at_hand`.
    progress : function called with the work done and the work in all [1].

    Returns
    -------
    The costs [USD], and where machines and API break even.

    Raises
    ------
    RoofplanError : bad input, or `NoPlan` where nothing serves the model.
    """
    terms, training = terms_of(asked), training_share_of(asked.training_cost, asked.lifetime_tokens)
    route = route_of(asked.api_price)
    prices = paid_as(asked.price)
    served = ServeInputs(
        **{one.name: getattr(asked, one.name) for one in fields(AtFullLoad)} | {"price": asked.price.split(",")[0]}
    )
    result = plan_serving(served, terms=terms, fit=fit, progress=progress)
    first, *others = [
        priced_tokens(cheapest_for(result.plans, demand), result, demand, terms, prices, route, training)
        for demand in demands_of(asked, result.plans[0].workload)
    ]
    return replace(first, others=others)


@takes(BenchmarksInputs)
def benchmarks(
    asked: BenchmarksInputs, *, fit: Fit | None = None, progress: Callable[[int, int], None] | None = None
) -> Benchmarks:
    """Return published MLPerf Inference results of language models, each beside what is predicted for it.

    Parameters
    ----------
    asked : the flags of ``roofplan benchmarks``, each as a keyword; or one `BenchmarksInputs` with them.
    fit : constants that predictions rest on, by default those of `fit_at_hand`.
    progress : function called with the results that are predicted and all of them [1].

    Returns
    -------
    The results by task and scenario, and where ranks flip.

    Raises
    ------
    RoofplanError : a filter that is none, or a model without results.
    """
    from roofplan.evidence.benchmarks import chosen

    return chosen(asked, fit_at_hand(fit), progress)


@takes(PoolPlanInputs)
def plan_pool(
    asked: PoolPlanInputs, *, fit: Fit | None = None, progress: Callable[[int, int], None] | None = None
) -> PoolPlan:
    """Return who holds which layers of a pool of home machines, how fast that is, and what binds.

    Parameters
    ----------
    asked : the flags of ``roofplan pool plan``, each as a keyword, as text with units; or one `PoolPlanInputs` with them.
    fit : constants that predictions rest on, by default those of `fit_at_hand`.
    progress : function called with the searches done and all of them [1].

    Returns
    -------
    The plan.

    Raises
    ------
    RoofplanError : bad input, or `NoPlan` where the members cannot hold the model.
    """
    from roofplan.pool.plan import plan_pool as planned
    from roofplan.pool.request import pool_request

    return planned(pool_request(model_of(asked.model), asked), fit_at_hand(fit), progress)


@takes(PoolSimulateInputs)
def simulate_pool(
    asked: PoolSimulateInputs, *, fit: Fit | None = None, progress: Callable[[int, int], None] | None = None
) -> PoolSimulation:
    """Return what happens in a pool whose members come, go and cheat.

    Parameters
    ----------
    asked : the flags of ``roofplan pool simulate``, each as a keyword, as text with units; or one `PoolSimulateInputs` with them.
    fit : constants that predictions rest on, by default those of `fit_at_hand`.
    progress : function called with the simulated hours and all of them [h].

    Returns
    -------
    What was simulated.

    Raises
    ------
    RoofplanError : bad input, or `NoPlan` where the members cannot hold the model.
    """
    from roofplan.pool.request import pool_request
    from roofplan.pool.simulate import simulate_pool as simulated

    return simulated(pool_request(model_of(asked.model), asked), asked, fit_at_hand(fit), progress)


@takes(PoolProveInputs)
def prove_pool(
    asked: PoolProveInputs,
    *,
    remark: Callable[[str], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Proof:
    """Run a small model over workers behind shaped links, and return what was seen beside what is predicted.

    Parameters
    ----------
    asked : the flags of ``roofplan pool prove``, each as a keyword, as text with units; or one `PoolProveInputs` with them.
    remark : function called with what is done, in words.
    progress : function called with the runs done and all of them [1].

    Returns
    -------
    The proof.

    Raises
    ------
    RoofplanError : bad input, or llama.cpp with RPC is not at hand.
    """
    from roofplan.pool.proof import prove_pool as proven

    return proven(asked, model_of, remark or (lambda _: None), progress)
