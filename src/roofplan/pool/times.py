"""Times of a pass over a layout, part by part, each with its interval and what binds it."""

from __future__ import annotations

from dataclasses import replace

from roofplan import catalogue
from roofplan.laws import Number
from roofplan.laws.pool import wire_time
from roofplan.operations.table import Step
from roofplan.pool.costs import TOKEN, decoding, hidden_bytes, hops_of, logit_bytes, outward_bytes
from roofplan.pool.layout import Layout, Stage, legs
from roofplan.pool.parts import Part, engine_part, latency_ends, stage_part
from roofplan.pool.request import PoolRequest
from roofplan.pool.tensor import shared_parts
from roofplan.records.calibration import Fit
from roofplan.records.model import Model
from roofplan.records.pool import CLIENT, LAST, PoolSoftware
from roofplan.records.source import document
from roofplan.records.terms import Term, total
from roofplan.serving.defaults import batched_tokens
from roofplan.serving.prompts import mean_pass
from roofplan.timing.figures import FIRST_TOKEN, TIME_PER_TOKEN


def token_parts(request: PoolRequest, fit: Fit, layout: Layout, *, batch: float = 1.0) -> list[Part]:
    """Return the parts of a token's time, in the order in which it passes them.

    Parameters
    ----------
    request : the pool.
    fit : the fitted constants.
    layout : who holds which layers.
    batch : tokens that pass together, of as many users [1].

    Returns
    -------
    Stages, messages and the engine's step.
    """
    return parts_of(request, fit, layout, decoding(request.workload, batch), TIME_PER_TOKEN)


def prompt_parts(request: PoolRequest, fit: Fit, layout: Layout) -> list[Part]:
    """Return the parts of the time to the first token in an idle pool.

    A prompt passes in as many passes as the engine computes it in, one after the other; where stages work on different
    passes at the same time, all but the first take as long as the slowest part.

    Parameters
    ----------
    request : the pool.
    fit : the fitted constants.
    layout : who holds which layers.

    Returns
    -------
    Stages, messages and the engine's steps.
    """
    whole = Step(new=float(request.workload.input), requests=1.0)
    budget = batched_tokens(request.engine, request.machines[layout.client], request.workload)
    mean, passes = mean_pass(request.engine, whole, budget)
    parts = parts_of(request, fit, layout, mean, FIRST_TOKEN)
    if float(passes) == 1.0:
        return parts
    seconds = sum(float(part.term.value) for part in parts)
    slowest = max(float(part.term.value) for part in parts)
    factor = 1.0 + (float(passes) - 1.0) * (slowest / seconds if request.software.overlaps else 1.0)
    return [_times(part, factor, float(passes)) for part in parts]


def _times(part: Part, factor: float, passes: float) -> Part:
    """Return a part of several passes."""
    term = Term(
        part.term.name,
        part.term.value * factor,
        "s",
        parts=[part.term],
        combine="product",
        text="{once} x {factor} for {passes} passes",
        numbers={"once": (part.term.value, "s"), "factor": factor, "passes": passes},
    )
    limits = {name: seconds * factor for name, seconds in part.limits.items()}
    return replace(part, term=term, low=part.low * factor, high=part.high * factor, limits=limits)


def parts_of(request: PoolRequest, fit: Fit, layout: Layout, step: Step, figure: str) -> list[Part]:
    """Return stages with the messages to and from them in order, the output layer where it stands apart, and the engine's step.

    Parameters
    ----------
    request : the pool.
    fit : the fitted constants.
    layout : who holds which layers.
    step : the pass.
    figure : whose errors tell the intervals.

    Returns
    -------
    The parts.
    """
    if request.software.shares_layers:
        return [*shared_parts(request, fit, layout, step, figure), engine_part(request, fit, layout, step, figure)]
    out, at = [], layout.client
    messages = iter(_messages(request, layout, step))
    for stage in layout.stages:
        away = stage.member != layout.client
        hub = request.software.route == "hub"
        out += [next(messages)] if (away if hub else stage.member != at) else []
        out.append(stage_part(request, fit, stage, step, figure, output=layout.head == stage.member))
        out += [next(messages)] if hub and away else []
        at = stage.member
    out += messages
    if layout.head not in {stage.member for stage in layout.stages}:
        out.append(stage_part(request, fit, Stage(layout.head, 0, 0), step, figure, output=True))
    return [*out, engine_part(request, fit, layout, step, figure)]


def sizes_of(request: PoolRequest, layout: Layout, step: Step) -> list[tuple[int, int, Number, str]]:
    """Return the messages of a pass: from whom, to whom, bytes, and what they carry.

    Parameters
    ----------
    request : the pool.
    layout : who holds which layers.
    step : the pass; its fields may be arrays.

    Returns
    -------
    The messages in order; none where one member does all.
    """
    return messages_of(request.model, request.software, layout, step)


def messages_of(model: Model, software: PoolSoftware, layout: Layout, step: Step) -> list[tuple[int, int, Number, str]]:
    """Return the messages of a pass as `sizes_of` does, for a model and what carries them.

    Parameters
    ----------
    model : the model.
    software : what carries messages.
    layout : who holds which layers.
    step : the pass; its fields may be arrays.

    Returns
    -------
    The messages in order.
    """
    hidden = (hidden_bytes(model, software, step.tokens), "hidden state")
    copied = step.prefills and "copies" in software.quantities
    carried = "hidden states, their copies and masks" if copied else hidden[1]
    outward = (outward_bytes(model, software, step), carried) if software.route == "hub" else hidden
    drawn = software.sampled == CLIENT and LAST in software.outputs
    answer = (logit_bytes(model, software, step.sampled), "logits") if drawn else (TOKEN * step.sampled, "token")
    last = answer if layout.output == LAST else hidden
    return [
        (a, b, *(last if home else outward if a == layout.client else hidden))
        for a, b, home in legs(layout, software.route)
    ]


def _messages(request: PoolRequest, layout: Layout, step: Step) -> list[Part]:
    rules, hop = catalogue.pools(), request.software.quantities["hop"]
    share, quantities = hops_of(request.software), request.software.quantities
    cites = {
        "hidden states, their copies and masks": [
            quantities[one].cited for one in ("copies", "mask") if one in quantities
        ]
    }
    out = []
    for a, b, size, what in sizes_of(request, layout, step):
        one, other = request.members[a], request.members[b]
        trip = (one.rtt + other.rtt) / 2.0
        wire = float(wire_time(size, one.up, other.down))
        narrow = one if one.up < other.down else other
        parts = [
            Term(
                "latency",
                trip,
                "s",
                text="half of {first} and half of {second} of round trip",
                numbers={"first": (one.rtt, "s"), "second": (other.rtt, "s")},
                sources=(document(f"members: {one.name}, {other.name}"),),
            ),
            Term("software", hop.value * share, "s", law=request.software.name, sources=(hop.cited,)),
            Term(
                "wire",
                wire,
                "s",
                law="pool.wire_time",
                text="{size} of {what} in full frames over {up} up and {down} down",
                numbers={"size": (size, "B"), "what": what, "up": (one.up, "B/s"), "down": (other.down, "B/s")},
                sources=(document(f"members: {one.name}, {other.name}"), *cites.get(what, ())),
            ),
        ]
        term = total(f"{one.name} -> {other.name}", parts, "s")
        guessed = one.assumed | other.assumed
        margin = rules.margins["assumed_wire" if "rate" in guessed else "wire"].value
        latency = latency_ends((one, other))
        low = latency[0] + (hop.low or hop.value) * share + wire / margin
        high = latency[1] + (hop.high or hop.value) * share + wire * margin
        limits = {("link", narrow.name): wire}
        for member in (one, other):
            limits["RTT", member.name] = limits.get(("RTT", member.name), 0.0) + member.rtt / 2.0
        limits["software of hops", ""] = hop.value * share
        grade = "guessed" if guessed or hop.kind == "guess" else "borrowed"
        out.append(Part(term=term, low=low, high=high, grade=grade, limits=limits, kind="link"))
    return out


def limits_of(parts: list[Part]) -> list[tuple[str, str, float]]:
    """Return what binds a time: limit, member and share, the largest first."""
    whole = sum(float(part.term.value) for part in parts)
    found: dict[tuple[str, str], float] = {}
    for part in parts:
        for name, seconds in part.limits.items():
            found[name] = found.get(name, 0.0) + seconds / whole
    return sorted(((*name, share) for name, share in found.items() if share), key=lambda one: -one[2])
