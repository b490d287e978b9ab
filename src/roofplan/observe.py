"""The Python interface to what was seen: endpoints under load, days of probes, and the ledger that keeps them."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from roofplan import catalogue
from roofplan.api import simulate
from roofplan.errors import InputError, RoofplanError
from roofplan.inputs import (
    STDIN,
    CompareInputs,
    ImportInputs,
    MeasureInputs,
    MemoryInputs,
    ProbeInputs,
    RunsInputs,
    StabilityInputs,
    takes,
)
from roofplan.records.calibration import Fit

if TYPE_CHECKING:
    from roofplan.evidence.beside import Beside, Pins
    from roofplan.evidence.startup import Explained
    from roofplan.load.statistics import Objective
    from roofplan.measure.endpoint import Run, Server
    from roofplan.measure.figures import Seen
    from roofplan.measure.imports import Imported
    from roofplan.measure.ledger import Kept
    from roofplan.measure.machine.chip import Verdict
    from roofplan.measure.machine.probe import Probe
    from roofplan.measure.sample import Sample
    from roofplan.measure.stability import Stability

T = TypeVar("T")


@takes(MeasureInputs)
def measure_endpoint(
    asked: MeasureInputs,
    *,
    fit: Fit | None = None,
    ledger: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Beside:
    """Put a load on an OpenAI-compatible endpoint, and set beside what its users feel what is predicted.

    Parameters
    ----------
    asked : the flags of ``roofplan measure endpoint``, each as a keyword, as text with units; or one `MeasureInputs` with them.
    fit : constants that the prediction rests on, by default those of `fit_at_hand`.
    ledger : file that keeps the run, None to keep it nowhere.
    progress : function called with the requests that ended and all of them [1].

    Returns
    -------
    The run, what it says, and the plan under the same load where one is given.

    Raises
    ------
    RoofplanError : bad input, an endpoint that does not answer, or a plan that does not load.
    """
    from roofplan.evidence.beside import pins_of
    from roofplan.measure.endpoint import measured, ready
    from roofplan.measure.figures import seen_of
    from roofplan.measure.ledger import kept_in
    from roofplan.measure.request import load_of

    asking, load = load_of(asked)
    pins = pins_of(asked)
    with kept_in(
        ledger, "endpoint", {"inputs": asked.as_json(), "timeout": asking.timeout, "plan": pins}, progress
    ) as book:
        server, asking, notes = waited(ready(asking, asked.model, given=asked.api is not None))
        if pins is not None:  # refuse a plan that cannot be made before the load is put
            plan_at_hand(pins, server.model)
        book.begin(load.count, server=asdict(server), load=load.words(), notes=notes)
        run = waited(measured(server, asking, load, notes, book.take))
        number = book.finished(run.about(), interrupted=run.interrupted)
        run = replace(run, id=number, notes=[*run.notes, *filter(None, [book.trouble])])
    seen = seen_of(run, load.warmup)
    try:
        return _beside(run, seen, asked, pins, fit)
    except RoofplanError as error:  # what was measured is not lost for want of a prediction
        run = replace(run, notes=[*run.notes, f"no prediction: {error.message}"])
        return _beside(run, seen, asked, None, fit)


def plan_at_hand(pins: Pins, model: str) -> None:
    """Refuse a plan whose model or machine is not known.

    Raises
    ------
    RoofplanError : says which.
    """
    from roofplan.api import model_of
    from roofplan.catalogue.machines import machine

    model_of(str(pins.get("model") or model))
    places = pins["on"]
    for place in [places] if isinstance(places, str) else list(places):  # type: ignore[call-overload]
        machine(str(place))


def _beside(run: Run, seen: Seen, given: MeasureInputs, pins: Pins | None, fit: Fit | None) -> Beside:
    """Return a run beside what is predicted for it."""
    from roofplan.evidence.beside import Beside, under
    from roofplan.load.asked import warmup_of
    from roofplan.load.statistics import objectives_of
    from roofplan.measure.figures import good_of

    predicted = None if pins is None or not seen.figures else under(pins, run, seen, given)
    felt = None if predicted is None else simulate(predicted, fit=fit)
    limits = objectives_of(given.slo)
    warmup = warmup_of(given)
    good = good_of(run, limits, warmup)
    return Beside(run=run, seen=seen, felt=felt, objectives=limits, good=good, warmup=warmup)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledgered:
    """What a ledger holds.

    Parameters
    ----------
    place : path of the ledger.
    kept : its runs, the newest last; or the one that was asked for.
    one, probes, machine : the run that was asked for: a load, a row of probes, or what a machine attains; None for the list.
    removed : the run that was removed, None without one.
    """

    place: str
    kept: list[Kept]
    one: Beside | None = None
    probes: Probed | None = None
    machine: Attained | None = None
    removed: int | None = None


def runs(asked: RunsInputs, *, ledger: Path, fit: Fit | None = None) -> Ledgered:
    """Return what was measured.

    Parameters
    ----------
    asked : inputs of ``roofplan runs``.
    ledger : the file.
    fit : constants that a prediction rests on, by default those of `fit_at_hand`.

    Returns
    -------
    The list of runs, or one of them beside a plan.

    Raises
    ------
    InputError : no such run, or a plan without one.
    """
    from roofplan.evidence.beside import planned_in
    from roofplan.measure.ledger import opened

    with opened(ledger) as book:
        if asked.run is None:
            if asked.plan or asked.delete:
                raise InputError("RUN is missing: of which run? roofplan runs lists them", argument="RUN")
            return Ledgered(place=str(ledger), kept=book.runs())
        kept = book.find(number_of(asked.run, "RUN"))
        if asked.delete:
            book.delete(kept.id)
            return Ledgered(place=str(ledger), kept=[], removed=kept.id)
        samples = book.samples(kept.id)
    if "machine" in kept.about and not asked.plan:
        return Ledgered(place=str(ledger), kept=[kept], machine=_machine_again(kept))
    if "schedule" in kept.about:
        return Ledgered(place=str(ledger), kept=[kept], probes=_probed_again(kept, samples))
    if asked.plan:
        return Ledgered(place=str(ledger), kept=[kept], one=_again(kept, samples, planned_in(asked.plan), fit))
    try:
        one = _again(kept, samples, kept.about.get("plan"), fit)
    except RoofplanError as error:  # a run stays readable though its plan no longer is
        one = _again(kept, samples, None, fit)
        one = replace(one, run=replace(one.run, notes=[*one.run.notes, f"no prediction: {error.message}"]))
    return Ledgered(place=str(ledger), kept=[kept], one=one)


def _machine_again(kept: Kept) -> Attained:
    """Return what a machine attained, from the ledger."""
    from roofplan.measure.machine.probe import Figure, Probe

    told = kept.about["machine"]
    probe = Probe(**told | {"figures": [Figure(**one) for one in told["figures"]]})
    return _attained(probe, kept.about["like"], kept.about["inputs"].get("id"), kept.id)


def number_of(text: str | float, argument: str) -> int:
    """Return the number of a run in a text such as 17 or run:17."""
    from roofplan.records.units import parse_count

    return parse_count(str(text).strip().removeprefix("run:"), argument)


def _again(kept: Kept, samples: list[Sample], pins: Pins | None, fit: Fit | None) -> Beside:
    """Return a run of the ledger, measured here or imported, beside a plan."""
    from roofplan.load.asked import warmup_of
    from roofplan.measure.endpoint import kept_run
    from roofplan.measure.figures import seen_of, seen_of_import
    from roofplan.measure.imports import Imported, Rate

    if "server" not in kept.about and "imported" not in kept.about:
        message = f"run {kept.id} is a {kept.kind}, which no load was put on: a plan of a load does not compare with it"
        raise InputError(message, argument="RUN", value=str(kept.id))
    names, run = MeasureInputs.each(), kept_run(kept, samples)
    given = MeasureInputs.of({name: value for name, value in kept.about["inputs"].items() if name in names})
    if "imported" not in kept.about:
        return _beside(run, seen_of(run, warmup_of(given)), given, pins, fit)
    told = kept.about["imported"]
    one = Imported(**told | {"others": tuple(Rate(**each) for each in told["others"])})
    return _beside(run, seen_of_import(one), given, pins, fit)


def import_file(asked: ImportInputs, *, ledger: Path) -> list[Kept]:
    """Take over the results of another tool.

    Parameters
    ----------
    asked : inputs of ``roofplan import``.
    ledger : file that keeps them.

    Returns
    -------
    The runs as they are kept.

    Raises
    ------
    InputError : no such file, or no result of a known tool.
    """
    from roofplan.evidence.beside import planned_in
    from roofplan.measure.endpoint import Server
    from roofplan.measure.imports import imported
    from roofplan.measure.ledger import COMPLETE, opened

    found, pins = imported(str(asked.file)), planned_in(asked.plan) if asked.plan else None
    with opened(ledger) as book:
        numbers = []
        for one in found:
            count = round(one.counts.get("requests", one.counts.get("completed", 0.0)))
            given, load = _load_of(one, count)
            server = Server(url=str(asked.file), model=one.model, software=one.tool, local=False)
            about = {"imported": asdict(one), "server": asdict(server), "load": load, "plan": pins}
            about["inputs"] = {"url": str(asked.file), **given}
            numbers.append(book.begin(one.tool, about, count, COMPLETE))
        return [book.find(number) for number in numbers]


def _load_of(one: Imported, count: int) -> tuple[dict[str, str], str]:
    """Return the load of a run of another tool, as inputs and in words: a rate before clients, who then are a cap; else a burst."""
    if "rate" in one.loads:
        return {"rate": f"{one.loads['rate']:g}req/s"}, f"{one.loads['rate']:g} req/s"
    if "clients" in one.loads:
        clients = min(one.loads["clients"], count) if count else one.loads["clients"]
        return {"clients": f"{clients:g}"}, f"{clients:g} clients"
    return ({"burst": str(count)}, f"{count:,} requests at once") if count else ({}, "")


def compare(asked: CompareInputs, *, ledger: Path, fit: Fit | None = None) -> Beside:
    """Set a plan beside a run, and keep the plan with the run.

    Parameters
    ----------
    asked : inputs of ``roofplan compare``.
    ledger : file that holds the run.
    fit : constants that the prediction rests on, by default those of `fit_at_hand`.

    Returns
    -------
    The run with what is predicted for it.

    Raises
    ------
    InputError : no plan, no such run, or one that no load describes.
    """
    from roofplan.evidence.beside import planned_in
    from roofplan.measure.ledger import opened

    pins = planned_in(str(asked.plan), "PLAN")
    with opened(ledger) as book:
        kept = book.find(number_of(asked.run or "", "RUN"))
        if "schedule" in kept.about:
            raise InputError(f"run {kept.id} is a row of probes, which no plan predicts", argument="RUN", value=kept.id)
        found = _again(kept, book.samples(kept.id), pins, fit)
        if found.felt is None:
            raise InputError(f"run {kept.id} has no figure of a load", argument="RUN", value=kept.id)
        book.end(kept.id, kept.status, kept.about | {"plan": pins})
    return found


def own_row(text: str, *, ledger: Path) -> dict[str, str]:
    """Return a run of the ledger as a row that ``calibrate`` learns from.

    Parameters
    ----------
    text : such as run:17.
    ledger : file that holds it.

    Returns
    -------
    Columns and cells.

    Raises
    ------
    InputError : no such run, or one without a plan.
    """
    from roofplan.evidence.beside import row_of
    from roofplan.measure.ledger import opened

    with opened(ledger) as book:
        kept = book.find(number_of(text, "--with"))
        pins = kept.about.get("plan") or {}
        return row_of(_again(kept, book.samples(kept.id), pins or None, None), pins, kept.started[:7])


@takes(MemoryInputs)
def measure_memory(asked: MemoryInputs) -> Explained:
    """Set the start-up log of an engine beside our ledger.

    Parameters
    ----------
    asked : the flags of ``roofplan measure memory``, each as a keyword; or one `MemoryInputs` with them.

    Returns
    -------
    Figures side by side, the cache to the block, and what helps where the engine did not start.

    Raises
    ------
    RoofplanError : a file that cannot be read or is no log of a known engine, or a model that is not known.
    """
    from roofplan.evidence.startup import explained
    from roofplan.hf.find import from_stdin
    from roofplan.measure.startup import startup_of

    name = str(asked.log)
    if name in {"-", STDIN}:
        return explained(startup_of(from_stdin("LOG"), "stdin"), asked)
    try:
        raw = Path(name).read_bytes()
    except OSError as error:
        raise InputError(f"LOG: {name}: {error.strerror}", argument="LOG", value=name) from None
    wide = raw[:2] in {b"\xff\xfe", b"\xfe\xff"}  # PowerShell writes UTF-16
    return explained(startup_of(raw.decode("utf-16" if wide else "utf-8", "replace"), name), asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attained:
    """What a machine attains.

    Parameters
    ----------
    probe : every figure, and the conditions.
    like : id of the device of the catalogue that it is, None where it is none.
    id : of the chip.
    verdicts : attained rates beside data sheets and published bests.
    chip : the TOML file that `--on` takes.
    run : its number in the ledger, None where it is not kept.
    """

    probe: Probe
    like: str | None
    id: str
    verdicts: list[Verdict]
    chip: str
    run: int | None


@takes(ProbeInputs)
def measure_machine(
    asked: ProbeInputs, *, ledger: Path | None = None, progress: Callable[[int, int], None] | None = None
) -> Attained:
    """Measure what this machine attains: products by shape, memory by size, launches, links.

    Parameters
    ----------
    asked : the flags of ``roofplan measure machine``, each as a keyword, as text with units; or one `ProbeInputs` with them.
    ledger : file that keeps it, None to keep it nowhere.
    progress : function called with the figures that are known and about how many there will be [1].

    Returns
    -------
    The figures, their verdicts, and the chip that every command plans with.

    Raises
    ------
    RoofplanError : bad input, or a device that is not there.
    """
    from roofplan.catalogue.own_device import check_id
    from roofplan.measure.ledger import COMPLETE, opened
    from roofplan.measure.machine.chip import device_of
    from roofplan.measure.machine.probe import HOSTS, chosen, probed
    from roofplan.records import units

    threads = None if asked.threads is None else units.parse_count(asked.threads, "--threads")
    sustain = 0.0 if asked.sustain is None else units.parse(asked.sustain, "s", "--sustain")
    if asked.like is not None:
        catalogue.find("accelerators", asked.like, "--like")
        if chosen(asked.device) in HOSTS:
            message = f"--like: a processor is measured, which {asked.like} is not"
            raise InputError(message, argument="--like", value=asked.like)
    if asked.id is not None:
        check_id(asked.id, "--id")
    probe = probed(asked.device, threads, sustain, progress, asked.link)
    device = device_of(probe, asked.like)
    about = {"inputs": asked.as_json(), "machine": asdict(probe), "like": None if device is None else device.id}
    run = None
    if ledger is not None:
        with opened(ledger) as book:
            run = book.begin("machine", about, 0, status=COMPLETE)
    return _attained(probe, None if device is None else device.id, asked.id, run)


def _attained(probe: Probe, like: str | None, named: str | None, run: int | None) -> Attained:
    from roofplan.measure.machine.chip import chip_text, identity, verdicts

    device = None if like is None else catalogue.accelerator(like)
    name = named or identity(probe, device)
    return Attained(
        probe=probe,
        like=like,
        id=name,
        verdicts=verdicts(probe, device),
        chip=chip_text(probe, device, name),
        run=run,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """A row of probes.

    Parameters
    ----------
    server : what was probed.
    samples : every probe, in order.
    found : what they say.
    limits : that were asked for, with the time at their percentile and whether it is inside, failures outside [s].
    interrupted : whether it was stopped before its end.
    run : its number in the ledger, None where it is not kept.
    notes : what the server would not do as asked.
    """

    server: Server
    samples: list[Sample]
    found: Stability
    limits: tuple[tuple[Objective, float, bool], ...]
    interrupted: bool
    run: int | None
    notes: list[str]

    @property
    def kept(self) -> bool:
        """Whether all limits hold; without limits, whether every probe was answered."""
        return all(inside for _, _, inside in self.limits) if self.limits else not self.found.failed


@takes(StabilityInputs)
def measure_stability(
    asked: StabilityInputs, *, ledger: Path | None = None, progress: Callable[[int, int], None] | None = None
) -> Probed:
    """Probe an endpoint for a day, or what time is given.

    Parameters
    ----------
    asked : the flags of ``roofplan measure stability``, each as a keyword, as text with units; or one `StabilityInputs` with them.
    ledger : file that keeps the probes, None to keep them nowhere.
    progress : function called with the probes that ended and all of them [1].

    Returns
    -------
    Shares, percentiles, hours, changes and outages.

    Raises
    ------
    RoofplanError : bad input, or an endpoint that does not answer at the beginning.
    """
    from roofplan.measure.endpoint import ready
    from roofplan.measure.ledger import kept_in, opened
    from roofplan.measure.request import limits_of, schedule_of
    from roofplan.measure.stability import Schedule, holds, probe, stability_of
    from roofplan.records.units import parse

    samples: list[Sample] = []
    again = None if asked.resume is None else number_of(asked.resume, "--resume")
    kept = None
    if again is not None:
        if ledger is None:
            raise InputError("--resume: without a ledger there is nothing to go on with", argument="--resume")
        with opened(ledger) as file:
            kept = file.find(again)
            asked, samples = _resumed(asked, kept), file.samples(again)
    asking, schedule, lengths = schedule_of(asked, time.time())
    limits, over = limits_of(asked), parse(asked.over, "s", "--over")
    if kept is not None:
        schedule = Schedule(**kept.about["schedule"])
    server, asking, notes = waited(ready(asking, asked.model, given=asked.api is not None))
    if again is None:
        schedule = replace(schedule, begin=time.time())
    about = {"inputs": asked.as_json(), "timeout": asking.timeout, "every": schedule.every}
    about |= {"schedule": asdict(schedule), "load": f"a probe every {asked.every}"}
    with kept_in(ledger, "stability", about, progress, again) as book:

        def take(sample: Sample) -> None:
            samples.append(sample)
            book.take(sample)

        book.begin(schedule.count, server=asdict(server), notes=notes)
        interrupted = waited(probe(asking, schedule, lengths, schedule.next(time.time()), take))
        run = book.finished({"notes": notes}, interrupted=interrupted)
        notes = [*notes, *filter(None, [book.trouble])]
    return Probed(
        server=server,
        samples=samples,
        found=stability_of(samples, schedule, over),
        limits=tuple((one, *holds(samples, one)) for one in limits),
        interrupted=interrupted,
        run=run,
        notes=notes,
    )


def _resumed(asked: StabilityInputs, kept: Kept) -> StabilityInputs:
    """Return the inputs with which a row of probes goes on: its own, with the key that is given now.

    Raises
    ------
    InputError : no row of probes, one whose process still runs, or another endpoint.
    """
    from roofplan.measure.exchange import target_of
    from roofplan.measure.ledger import RUNNING

    def refuse(why: str) -> InputError:
        return InputError(f"--resume: run {kept.id} {why}", argument="--resume", value=str(kept.id))

    if "schedule" not in kept.about:
        raise refuse(f"is of kind {kept.kind}, which has no schedule")
    if kept.status == RUNNING:
        raise refuse("is still running")
    server = kept.about["server"]
    if target_of(str(asked.url)).url != server["url"]:
        raise refuse(f"is of {server['url']}")
    if asked.model not in {None, server["model"]}:
        raise refuse(f"is of the model {server['model']}")
    own = StabilityInputs.of(kept.about["inputs"])
    return replace(own, url=asked.url, model=server["model"], key_env=asked.key_env or own.key_env, resume=asked.resume)


def _probed_again(kept: Kept, samples: list[Sample]) -> Probed:
    """Return a row of probes of the ledger."""
    from roofplan.measure.endpoint import Server
    from roofplan.measure.ledger import COMPLETE
    from roofplan.measure.request import limits_of
    from roofplan.measure.stability import Schedule, holds, stability_of
    from roofplan.records.units import parse

    given = StabilityInputs.of(kept.about["inputs"])
    return Probed(
        server=Server(**kept.about["server"]),
        samples=samples,
        found=stability_of(samples, Schedule(**kept.about["schedule"]), parse(given.over, "s", "--over")),
        limits=tuple((one, *holds(samples, one)) for one in limits_of(given)),
        interrupted=kept.status != COMPLETE,
        run=kept.id,
        notes=list(kept.about.get("notes", [])),
    )


def waited(work: Coroutine[None, None, T]) -> T:
    """Return what a coroutine returns, in a thread of its own where this one already runs an event loop."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
