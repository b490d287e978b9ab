"""Remedies for a refused request: changes that give a plan, each of them tried, smallest first."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from roofplan import catalogue
from roofplan.catalogue.machines import machine as machines
from roofplan.catalogue.machines import resized
from roofplan.errors import InputError, Remedy
from roofplan.hf.quantization import at_precision
from roofplan.operations.table import element_bytes
from roofplan.records import units
from roofplan.records.calibration import Fit
from roofplan.records.hardware import Accelerator, Machine
from roofplan.serving.defaults import default
from roofplan.serving.evaluate import DEMANDS, against_limits, evaluate
from roofplan.serving.order import ordered
from roofplan.serving.plan import Plan, Request, Tally
from roofplan.serving.settings import settings_text
from roofplan.serving.setups import MOST_SEATS
from roofplan.serving.space import COMPETING, choose_engine, narrower, refuses_format


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit or demand, and how to find, write and read a value that admits a plan.

    Parameters
    ----------
    field : its name in `Constraints`.
    best : objective whose plans come nearest to it.
    write : format a value for the command line, rounded up, or rounded down for demands.
    read : parse the formatted value.
    """

    field: str
    best: str
    write: Callable[[float], str]
    read: Callable[[str], float]

    @property
    def flag(self) -> str:
        """The command-line flag."""
        return f"--{self.field.replace('_', '-')}"

    def missed(self, reached: Mapping[str, float], asked: Request) -> float:
        """Return how far a figure misses the limit: |ln(reached / limit)|, 0 if it is satisfied or not set [1]."""
        wanted, value = getattr(asked.constraints, self.field), reached[self.field]
        if wanted is None:
            return 0.0
        if not math.isfinite(value) or value <= 0.0:
            return math.inf
        return max(0.0, math.log(wanted / value if self.field in DEMANDS else value / wanted))


def _typed(unit: str) -> Callable[[float], str]:
    """Return what writes an amount, rounded up and without spaces, for the command line."""
    return lambda least: units.show(units.at_least(least), unit).replace(" ", "")


LIMITS = (
    Limit("tpot", "latency", _typed("s"), lambda text: units.parse(text, "s")),
    Limit("tokens_per_second_per_user", "latency", lambda x: f"{units.at_most(x):g}", float),
    Limit("ttft", "latency", _typed("s"), lambda text: units.parse(text, "s")),
    Limit("concurrency", "devices", lambda x: f"{x:.0f}", float),
    Limit("rate", "throughput", lambda x: f"{units.at_most(x):g}req/s", lambda text: float(text.removesuffix("req/s"))),
    Limit("power", "latency", _typed("W"), lambda text: units.parse(text, "W")),
    Limit(
        "budget",
        "cost",
        lambda x: f"{math.ceil(x * 100 - 1e-9) / 100:.2f}USD/h",
        lambda text: float(text.removesuffix("USD/h")),
    ),
    Limit("devices", "devices", lambda x: f"{x:.0f}", float),
)
"""Limits that can be relaxed."""

CHANGES_STRATEGY, CHANGES_ENGINE, CHANGES_CACHE = 0.2, 0.3, 0.35
"""Size of a change of degrees or back to an engine's own share of memory, of the engine and of the cache format; numeric changes have the ln of their ratio
[1]."""

MOST_WAYS = 5
"""Maximum number of remedies to report [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A changed request.

    Parameters
    ----------
    flags : flag -> new value, as typed.
    asked : the request with the change.
    size : size of the change: ln of the ratio of new to old value, if the value is a number [1].
    """

    flags: dict[str, str] = field(default_factory=dict)
    asked: Request
    size: float


def ways_out(asked: Request, machine: Machine | None, fit: Fit) -> list[Remedy]:
    """Return changes of a request that give a plan, smallest first.

    Limits are relaxed one at a time, to the value that admits the nearest plan, then together. Other changes are tried
    on one machine under all limits: degrees, engine, cache and weight formats, a shorter context, more devices of the
    same kind; where none of them gives a plan, devices of the same vendor with more memory.

    Parameters
    ----------
    asked : the request without a plan.
    machine : the machine that comes nearest, None if there is none.
    fit : fitted constants.

    Returns
    -------
    Remedies: flag, current value, needed value, other flags to change, and the resulting plan.
    """
    found = [(one.size, remedy) for one in _single(asked, machine, fit) if (remedy := _tried(one, asked, fit))]
    for more in (_together(asked, fit), _with_limits(asked, machine, fit), _roomier(asked, machine)):
        found = found or [(one.size, remedy) for one in more if (remedy := _tried(one, asked, fit))]
    return _distinct([remedy for _, remedy in sorted(found, key=lambda item: item[0])])[:MOST_WAYS]


def _distinct(ways: Sequence[Remedy]) -> list[Remedy]:
    """Return the first remedy for each set of flags and weight width; supersets of a sufficient change are dropped."""
    typed = [{way["argument"]: way["needed"], **way["also"]} for way in ways]
    kept: dict[frozenset[str], Remedy] = {}
    for way, flags in zip(ways, typed, strict=True):
        if not any(less.items() < flags.items() for less in typed):
            width = math.floor(8.0 * element_bytes(flags["--precision"])) if "--precision" in flags else 0
            kept.setdefault(frozenset((*flags, f"{width} bits")), way)
    return list(kept.values())


def _single(asked: Request, machine: Machine | None, fit: Fit) -> Iterator[Change]:
    for limit in LIMITS:
        if getattr(asked.constraints, limit.field) is not None:
            yield from _moved(asked, (limit,), fit)
    if machine is not None:
        yield from _changed(asked, machine, fit)


def _freed(asked: Request, limits: Sequence[Limit]) -> Request:
    """Return a request without some limits, and without the default preference for fast plans."""
    gone: dict[str, Any] = {one.field: None for one in limits}
    free = replace(asked.constraints, **gone)
    return replace(asked, constraints=replace(free, tpot=math.inf) if free.tpot is None else free)


def nearest(asked: Request, limits: Sequence[Limit], fit: Fit) -> Mapping[str, float] | None:
    """Return what the plan nearest to some limits reaches that satisfies all others, None if there is none."""
    free = _freed(asked, limits)
    demands = {one.field for one in limits}
    seats = MOST_SEATS if "rate" in demands else min(asked.constraints.concurrency or 0, MOST_SEATS)
    found = [
        one
        for best in dict.fromkeys(one.best for one in limits)
        for one in evaluate(replace(free, best=best, seats=seats), Tally(), fit)
    ]
    reached = [_reached(plan, asked) for plan in found]
    known = [(sum(limit.missed(one, asked) for limit in limits), place) for place, one in enumerate(reached)]
    known = [one for one in known if math.isfinite(one[0])]
    return reached[min(known)[1]] if known else None


def _reached(plan: Plan, asked: Request) -> dict[str, float]:
    """Return what a plan holds against each of `LIMITS`, by field; infinite if unknown."""
    hourly = math.inf if plan.cost is None else plan.cost.total
    seen = {name: float(value) for name, value in against_limits(plan.values, float(plan.users), asked).items()}
    return {**seen, "budget": hourly, "devices": float(plan.machine.count)}


def _moved(asked: Request, limits: Sequence[Limit], fit: Fit) -> Iterator[Change]:
    """Yield the request with limits relaxed to the nearest plan's values; limits that it satisfies stay."""
    reached = nearest(asked, limits, fit)
    if reached is None:
        return
    missed = [one for one in limits if one.missed(reached, asked) > 0.0]
    flags = {one.flag: one.write(reached[one.field]) for one in missed}
    values: dict[str, Any] = {one.field: one.read(flags[one.flag]) for one in missed}
    if "concurrency" in values:
        values["concurrency"] = _most_users(asked, values, fit)
        flags["--concurrency"] = str(values["concurrency"])
    size = sum(one.missed(reached, asked) for one in missed)
    yield Change(flags=flags, asked=_at(asked, values), size=size)


def _at(asked: Request, values: dict[str, Any]) -> Request:
    return replace(asked, constraints=replace(asked.constraints, **values))


def _most_users(asked: Request, values: dict[str, Any], fit: Fit) -> int:
    """Return the largest concurrency that has a plan, starting from one that has one [1]."""
    low, step = int(values["concurrency"]), 1
    high = int(asked.constraints.concurrency or low)
    while low < high:
        tried = min(low + step, high)
        if evaluate(_at(asked, {**values, "concurrency": tried}), Tally(), fit):
            low, step = tried, 2 * step
        elif step == 1:
            break
        else:
            high, step = tried - 1, 1
    return low


def _together(asked: Request, fit: Fit) -> Iterator[Change]:
    """Yield the request with all limits relaxed together to the values of the plan nearest to all of them."""
    given = [one for one in LIMITS if getattr(asked.constraints, one.field) is not None]
    if len(given) > 1:
        yield from _moved(asked, given, fit)


def _with_limits(asked: Request, machine: Machine | None, fit: Fit) -> Iterator[Change]:
    """Yield changes on a machine, each combined with relaxed limits."""
    given = [one for one in LIMITS if getattr(asked.constraints, one.field) is not None]
    if machine is None or not given:
        return
    for change in _changed(asked, machine, fit):
        for moved in _moved(change.asked, given, fit):
            yield Change(flags=change.flags | moved.flags, asked=moved.asked, size=change.size + moved.size)


def _changed(asked: Request, machine: Machine, fit: Fit) -> Iterator[Change]:
    """Yield changes of precision, engine, strategy, context and device count on one machine."""
    here = replace(asked, machines=(machine,))
    shown = {} if len(asked.machines) == 1 else {"--on": machine.text or machine.device.id}
    formats = tuple(_other_formats(here, machine))
    both = (
        replace(more, flags=change.flags | more.flags, size=change.size + more.size)
        for change in formats
        for more in _other_sizes(change.asked, machine, FEW_TIMES)
    )
    others = (
        *_usual_share(here, machine),
        *_other_engines(here, machine),
        *formats,
        *_other_sizes(here, machine, LARGER),
        *both,
    )
    for change in (*others, *_licensed(here, machine)):
        yield replace(change, flags=shown | change.flags)
        if asked.pins:
            yield replace(
                change,
                flags=shown | change.flags | {"--strategy": ""},
                asked=replace(change.asked, pins={}),
                size=change.size + CHANGES_STRATEGY,
            )
    if asked.pins:
        yield Change(flags=shown | {"--strategy": ""}, asked=replace(here, pins={}), size=CHANGES_STRATEGY)
    yield from _shorter(here, shown, fit)


def _usual_share(asked: Request, machine: Machine) -> Iterator[Change]:
    """Yield the engine's own share of the memory where the user states a smaller one."""
    stated, engine = (
        asked.settings.get("memory_share"),
        choose_engine(asked.engine, machine, asked.model, asked.precisions[0]),
    )
    usual = default(engine, "memory_share", machine) if engine else None
    if engine is None or stated is None or usual is None or stated >= usual:
        return
    settings = {**asked.settings, "memory_share": usual}
    yield Change(
        flags={"--set": settings_text(engine, settings)}, asked=replace(asked, settings=settings), size=CHANGES_STRATEGY
    )


def _other_engines(asked: Request, machine: Machine) -> Iterator[Change]:
    """Yield changes to other engines, the default one first; none where settings of one engine are given."""
    if asked.settings:
        return
    usual = choose_engine(None, machine, asked.model, asked.precisions[0])
    names = dict.fromkeys((*((usual.name,) if usual else ()), *COMPETING))
    for place, name in enumerate(names):
        if asked.engine != "any" and not (asked.engine or next(iter(names))).startswith(name):
            size = CHANGES_ENGINE * (1.0 + 0.01 * place)
            yield Change(flags={"--engine": name}, asked=replace(asked, engine=name), size=size)


def _other_formats(asked: Request, machine: Machine) -> Iterator[Change]:
    """Yield changes to narrower formats that the device computes in or unpacks; of any width where the engine cannot read what is asked."""
    now = asked.model.quantization.format if asked.model.quantization else asked.model.dtype
    held = min(element_bytes(now if one == "checkpoint" else one) for one in asked.precisions)
    native = "fp8" in machine.device.peak
    engine = choose_engine(asked.engine, machine, asked.model, asked.precisions[0])
    unread = engine is None or all(
        refuses_format(at_precision(asked.model, one), engine, machine) for one in asked.precisions
    )
    if asked.kv_precisions == ("checkpoint",) and native:
        yield Change(flags={"--kv-precision": "fp8"}, asked=replace(asked, kv_precisions=("fp8",)), size=CHANGES_CACHE)
    stands = engine is not None and engine.stands_for and unread
    own = [one for one in engine.weights if one in catalogue.formats()] if engine is not None and stands else []
    for precision in (*narrower(machine), *own):
        there = (
            math.floor(8.0 * element_bytes(precision)) / 8.0
        )  # without scales, so formats of equal width are equal changes
        if there < 0.9 * held or unread:
            yield Change(
                flags={"--precision": precision},
                asked=replace(asked, precisions=(precision,)),
                size=abs(math.log(held / there)),
            )


def _licensed(asked: Request, machine: Machine) -> Iterator[Change]:
    """Yield cards of the same vendor and at least the memory that data centres may use, the nearest in memory first."""
    if not (asked.constraints.datacenter and machine.device.geforce_licence):
        return
    allowed = (one for one in _at_least(machine) if not one.geforce_licence)
    buildable = (other for one in allowed for other in _joined(one, machine.count))
    for other in itertools.islice(buildable, MOST_WAYS):
        yield _exchanged(asked, machine, other)


def _roomier(asked: Request, machine: Machine | None) -> Iterator[Change]:
    """Yield one device of each larger memory of the same vendor, those of the same class first, as asked and in narrower formats."""
    if machine is None:
        return
    mine, seen = machine.device, {machine.device.room}
    for one in sorted(_at_least(machine), key=lambda one: one.device_class != mine.device_class):
        if one.room in seen or (asked.constraints.datacenter and one.geforce_licence):
            continue
        seen.add(one.room)
        for other in _joined(one, 1):
            moved = _exchanged(asked, machine, other)
            yield moved
            for change in _other_formats(moved.asked, other):
                yield replace(change, flags=moved.flags | change.flags, size=moved.size + change.size)


def _at_least(machine: Machine) -> list[Accelerator]:
    """Return the accelerators of the vendor with at least as much memory, the nearest in memory first."""
    mine = machine.device
    known = map(catalogue.accelerator, catalogue.ids("accelerators"))
    return sorted(
        (one for one in known if one.vendor == mine.vendor and one.peak and one.room >= mine.room),
        key=lambda one: one.room,
    )


def _exchanged(asked: Request, machine: Machine, other: Machine) -> Change:
    """Return the request on another kind of device."""
    unlike = other.device.device_class != machine.device.device_class
    size = CHANGES_ENGINE * (1 + unlike) + math.log(other.device.room / machine.device.room)
    return Change(flags={"--on": other.text}, asked=replace(asked, machines=(other,)), size=size)


def _joined(device: Accelerator, count: int) -> list[Machine]:
    """Return the machine of `count` devices, or an empty list if no link connects them."""
    try:
        return machines(f"{device.id}:{count}")
    except InputError:
        return []


LARGER, FEW_TIMES = (2, 4, 8, 16, 32, 64), (2, 4)
"""Multiples of the machine to try, alone and combined with another format [1]."""


def _other_sizes(asked: Request, machine: Machine, factors: Sequence[int]) -> Iterator[Change]:
    """Yield multiples of the machine, and the power of two below a count that is none, since few models divide by other counts."""
    power = 2 ** math.floor(math.log2(machine.count))
    for count in (*((power,) if power < machine.count else ()), *(machine.count * factor for factor in factors)):
        other = resized(machine, count)
        if other is not None:
            size = abs(math.log(count / machine.count))
            yield Change(flags={"--on": other.text}, asked=replace(asked, machines=(other,)), size=size)


def _shorter(asked: Request, shown: dict[str, str], fit: Fit) -> Iterator[Change]:
    """Yield shorter contexts that have a plan, the longest first."""
    w = asked.workload
    least = w.input + w.output
    if w.context <= least:
        return
    plans = evaluate(replace(asked, workload=replace(w, context=least)), Tally(), fit)
    longest = max((min(int(plan.memory.longest), w.context - 1) for plan in plans), default=least)
    for context in dict.fromkeys((longest, int(0.98 * longest), least)):
        tried = replace(asked, workload=replace(w, context=context))
        if context >= least and evaluate(tried, Tally(), fit):
            yield Change(flags=shown | {"--context": str(context)}, asked=tried, size=math.log(w.context / context))
            return


def _tried(change: Change, asked: Request, fit: Fit) -> Remedy | None:
    """Return a change as a remedy with its plan, None if it gives none."""
    plans = evaluate(change.asked, Tally(), fit)
    if not plans:
        return None
    best = ordered(plans, asked.best, limited=change.asked.constraints.timed)[0]
    flags = dict(change.flags)
    if flags.get("--strategy") == "":
        degrees = best.strategy.as_dict()
        flags["--strategy"] = ",".join(f"{name}={degrees[name]}" for name in asked.pins)
    (argument, needed), *others = [
        *((k, v) for k, v in flags.items() if k != "--on"),
        *((k, v) for k, v in flags.items() if k == "--on"),
    ]
    return {
        "argument": argument,
        "now": _now(argument, asked),
        "needed": needed,
        "also": dict(others),
        "text": " ".join(f"{flag} {value}" for flag, value in ((argument, needed), *others)),
        "plan": brief(best),
    }


def _now(flag: str, asked: Request) -> str:
    """Return the current value of a flag."""
    limit = next((one for one in LIMITS if one.flag == flag), None)
    if limit is not None:
        return limit.write(float(getattr(asked.constraints, limit.field)))
    engine = (
        choose_engine(asked.engine, asked.machines[0], asked.model, asked.precisions[0]) if asked.settings else None
    )
    said: dict[str, str] = {
        "--on": ",".join(m.text or m.device.id for m in asked.machines[:MOST_WAYS]),
        "--context": str(asked.workload.context),
        "--engine": asked.engine or "the default",
        "--precision": ",".join(asked.precisions),
        "--kv-precision": ",".join(asked.kv_precisions),
        "--strategy": ",".join(f"{name}={value}" for name, value in asked.pins.items()),
        "--set": settings_text(engine, asked.settings) if engine else "",
    }
    return said[flag]


def brief(plan: Plan) -> Remedy:
    """Return a short summary of a plan."""
    between = {"tpot": plan.metrics["tpot"].value} if "tpot" in plan.metrics else {}
    return {
        "machine": plan.machine.text or plan.machine.device.id,
        "strategy": plan.strategy.as_dict(),
        "label": plan.label,
        "users": plan.users,
        **between,
        "context": plan.memory.longest,
        "weights": plan.memory.weights,
        "engine": plan.engine.id,
    }
