"""Steady state of concurrent users on a machine: times and rates, on floats or arrays."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from roofplan.laws import Number, batching, larger, memory, pipeline, smaller, where
from roofplan.operations.table import ACTIVATION_BYTES, Split, Step
from roofplan.records.engine import Engine
from roofplan.records.model import Model
from roofplan.records.strategy import Strategy
from roofplan.records.terms import Combine, Term, total
from roofplan.records.workload import Workload
from roofplan.serving.prompts import host_of_passes, in_turn, prompt_pass, stages_at_once, turns_of
from roofplan.serving.step import WAITS, engine_term, launched, step_term
from roofplan.timing.hops import mean_hop
from roofplan.timing.rates import Rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Times and rates of one strategy, or of arrays of strategies and concurrencies; Terms record the derivation.

    Parameters
    ----------
    tpot : mean time between tokens after the first, as a client measures it; None for answers of one token [s].
    ttft : time to the first token, excluding queueing [s].
    cycle : time of a request over its output tokens, its own prompt included [s].
    token : decode time per token without prompts in the batch [s].
    carrying : mean and maximum number of other users' prompts (or chunks) in a step between a request's tokens [1].
    carried : time that each of them adds to a token [s].
    decode, prefill : a decode step and a step with prompts, both of one group of users [s].
    input_share : share of the machine's time that prefill takes [1].
    rate : output tokens per second of the whole machine [token/s].
    """

    tpot: Term | None
    ttft: Term
    cycle: Term
    token: Term
    carrying: tuple[Number, Number]
    carried: Term
    decode: Term
    prefill: Term
    sequences: Number
    input_share: Number
    rate: Number
    prefill_rate: Number
    busy: Number

    def gap(self, quantile: float) -> Term:
        """Return a quantile of the time between consecutive tokens [s].

        Prompts arrive at random, so some steps contain several and some none. For scalar predictions only.
        """
        mean, most = map(float, self.carrying)
        count = min(batching.random_count(quantile, mean), most)
        if count == 0.0:
            return self.token
        more = Term(
            "prompts of others",
            count * self.carried.value,
            "s",
            parts=[self.carried],
            combine="product",
            text="{count} in a step x {each}",
            numbers={"count": count, "each": (self.carried.value, "s")},
        )
        return total("gap", [*self.token.parts, more], "s")

    @property
    def times(self) -> list[Term]:
        """The times that a client can measure: TPOT (if there are several tokens), TTFT and cycle time."""
        return [*([] if self.tpot is None else [self.tpot]), self.ttft, self.cycle]

    @property
    def pace(self) -> Term:
        """Time per token that a user sees: between tokens, or of the whole request if its answer is one token [s]."""
        return self.cycle if self.tpot is None else self.tpot


def predict(
    model: Model,
    strategy: Strategy,
    engine: Engine,
    workload: Workload,
    r: Rates,
    sequences: Number,
    *,
    kv_bytes: float,
    budget: Number,
    per_group: Number | None = None,
    all_run: bool = False,
) -> Prediction:
    """Return the steady state of users on one machine.

    Whenever an answer ends, a new prompt takes its place. Its chunks join the decode steps of other users within the
    engine's token budget, or stall those users if the engine does not mix prefill and decode.

    Parameters
    ----------
    model : its layers and dimensions.
    strategy : degrees of parallelism, as floats or arrays.
    engine : engine with version.
    workload : lengths, prefix hit rate and drafted tokens.
    r : achieved rates of the machine under the engine.
    sequences : concurrent users on the whole machine; ignored if `per_group` is given [1].
    kv_bytes : bytes of one cached number [B].
    budget : tokens that one engine step may compute [token].
    per_group : users of one group in one stage; a grid over it keeps the axes of dp and pp out of decode steps [1].
    all_run : whether all sequences are known to decode at once; else those wait that the token budget does not carry.

    Returns
    -------
    Times of a token, of a first token and of a cycle, floats or arrays [s].
    """
    served = _Served(model, strategy, engine, workload, r, kv_bytes=kv_bytes, budget=budget)
    groups = 1.0 * strategy.dp * strategy.attention_dp
    waves = 1.0 * strategy.pp if engine.pipeline_kind == "microbatch" else 1.0
    # groups that share experts or feed-forwards wait for the fullest group, and for each other's prompts, in every step
    coupled = 1.0 * Split.of(strategy).groups
    if per_group is None:
        mean = sequences / groups / waves
        here = larger(where(coupled > 1, batching.busiest_group(mean * coupled, coupled), mean), 1.0)
    else:
        here, sequences = per_group, per_group * groups * waves
    # where the token budget carries no more, the others wait and then take the place of one that ended
    queued = 1.0 if all_run else larger(here / _most_running(served), 1.0)
    here = here / queued
    users = sequences / groups / queued
    others = larger(users * coupled - 1.0, 0.0)
    later, emitted = workload.output - 1.0, _emitted(workload)
    context = 1.0 * memory.mean_resident_tokens(workload.input, workload.output)
    step = Step(sequences=here, each=1.0 + workload.drafted, context=context)
    # a grid over users of one stage keeps all stages busy
    full = per_group is not None and engine.pipeline_kind == "microbatch"
    at_once = waves if full else smaller(larger(users, 1.0), waves)
    decode = step_term(
        "decode step", model, strategy, step, r, kv_bytes=kv_bytes, drafted=workload.drafted, at_once=at_once
    )
    stage = _with_hop(decode, _hop(served, here * step.each))
    token = token_time(stage, engine_term(here, r), strategy, emitted)
    prompts = _prompts(served, step, stage, here * emitted / max(later, 1.0), at_once, _Company(others, coupled))
    others = prompts.others
    empty, alone = _first_token(served)
    # a user waits for other prompts in the step of its own prompt before its first token, for the rest between tokens
    beside = smaller(larger(prompts.requests - 1.0, 0.0), others)
    between = others - beside
    seen = _seen_by_users(prompts, empty, token, beside, between, smaller(others, 1.0), workload, emitted, queued)
    turns = (
        later / emitted + seen.rode
    ) / workload.output  # decode steps per token, including those that run with the user's own prompt
    cycle = seen.cycle.value / queued
    return Prediction(
        tpot=seen.tpot,
        ttft=seen.ttft,
        cycle=seen.cycle,
        token=token,
        carrying=(between * prompts.steps * emitted / max(later, 1.0), prompts.room),
        carried=prompts.term(prompts.other * smaller(prompts.requests, 1.0) / emitted),
        decode=decode,
        prefill=prompts.step,
        sequences=sequences,
        input_share=larger(1.0 - turns * emitted * token.value / cycle, 0.0),
        rate=batching.output_rate(sequences, seen.cycle.value),
        prefill_rate=prompts.fresh * groups / _prompt_interval(served, alone),
        busy=_busy(
            decode,
            prompts.step,
            turns * smaller(waves, users),
            prompts.device / prompts.requests * users / float(workload.output),
            cycle,
        ),
    )


def _most_running(served: _Served) -> Number:
    """Return the sequences that the token budget of a group's steps lets decode at once, infinite where prompts have their own [1]."""
    engine, workload = served.engine, served.workload
    if not (engine.mixes and engine.chunked_prefill and workload.output > 1):
        return np.inf
    steps = (workload.output - 1.0) / _emitted(workload)
    budget, each = engine.pass_tokens(served.budget), 1.0 + workload.drafted
    return larger(batching.most_running(budget, steps, each, served.fresh), 1.0)


def _emitted(workload: Workload) -> float:
    """Return the tokens per decode step and request; more than one if drafts are verified [1]."""
    if not workload.drafted:
        return 1.0
    emitted = float(batching.tokens_per_speculative_step(workload.drafted, workload.acceptance))
    return min(emitted, max(workload.output - 1.0, 1.0))


class _Seen(NamedTuple):
    """The times that a user sees in the steady state, and the decode steps that run with the user's own prompt [1]."""

    tpot: Term | None
    ttft: Term
    cycle: Term
    rode: Number


def _seen_by_users(
    prompts: _Prompts,
    empty: Term,
    token: Term,
    beside: Number,
    between: Number,
    company: Number,
    workload: Workload,
    emitted: float,
    queued: Number = 1.0,
) -> _Seen:
    """Return the times that a user sees: TTFT, TPOT and cycle time.

    Parameters
    ----------
    empty, token : time to the first token in an idle system, and decode time per token without prompts [s].
    beside, between : other users' prompts in the step of a user's own prompt, and between its tokens [1].
    company : min(number of other users, 1) [1].
    queued : users over those that run at once [1].
    """
    output, later = float(workload.output), workload.output - 1.0
    riding: Number = 0.0
    most, rode = np.inf, 0.0
    if prompts.mixed:
        most, rode = prompts.whole / emitted, prompts.steps * company
        decoding = prompts.steps * emitted * token.value
        riding = larger(smaller(prompts.whole / prompts.requests + decoding - empty.value, decoding), 0.0)
        riding = riding * company
    if not later:
        ttft = _waited(empty, riding, beside * prompts.other, between * prompts.other, prompts)
        return _Seen(None, ttft, total("cycle time", ttft.parts, "s", law="batching.cycle_time"), rode)
    stall = batching.stall_of_others(prompts.other, between, later, most)
    waiting = between * prompts.other - later * stall if prompts.mixed else 0.0
    ttft = _waited(empty, riding, beside * prompts.other, waiting, prompts)
    stalled = prompts.term(
        stall,
        law="batching.stall_of_others",
        text="{others} others x {each} / {tokens} tokens" + (", at most {most}" if prompts.mixed else ""),
        numbers={"others": between, "each": (prompts.other, "s"), "tokens": later, "most": (most, "s")},
    )
    tpot = total("TPOT", [*token.parts, stalled], "s")
    whole = batching.cycle_time(ttft.value, tpot.value, output)
    if np.any(queued > 1.0):
        wait = prompts.term(
            (queued - 1.0) * whole * output,
            "users before it",
            text="{queued} users for each that the token budget lets run",
            numbers={"queued": queued},
        )
        ttft = total("TTFT", [*ttft.parts, wait], "s")
        whole = batching.cycle_time(ttft.value, tpot.value, output)
    parts = [_share(ttft, 1.0, output), _share(tpot, later, output)]
    return _Seen(
        tpot, ttft, Term("cycle time", whole, "s", law="batching.cycle_time", parts=parts, combine="sum"), rode
    )


@dataclass(frozen=True, slots=True)
class _Served:
    """Model, strategy, engine, workload and rates of a prediction; the strategy may have array fields.

    Parameters
    ----------
    kv_bytes : bytes of one cached number [B].
    budget : tokens that one engine step may compute [token].
    """

    model: Model
    strategy: Strategy
    engine: Engine
    workload: Workload
    rates: Rates
    kv_bytes: float = field(kw_only=True)
    budget: Number = field(kw_only=True)

    @property
    def stages(self) -> Number:
        """Pipeline stages [1]."""
        return 1.0 * self.strategy.pp

    @property
    def fresh(self) -> float:
        """Uncached tokens of a prompt [token]."""
        return self.workload.input * (1.0 - self.workload.prefix_hit)

    @property
    def past(self) -> float:
        """Cached tokens of a prompt [token]."""
        return self.workload.input * self.workload.prefix_hit

    def prompt(self, *, others: float = 1.0) -> tuple[Term, Number, Number]:
        """Return a prompt's pass through the stage that sets the pace, its number of passes, and their sequential stage times."""
        step = Step(new=larger(1.0, 1.0 * self.fresh), past=1.0 * self.past, requests=1.0, others=others)
        one, passes = prompt_pass(
            self.model, self.strategy, self.engine, self.rates, step, self.budget, kv_bytes=self.kv_bytes
        )
        return one, passes, turns_of(self.model, self.engine, self.rates, self.stages, passes)

    def hop(self, tokens: Number) -> Number:
        """Return the time to send tokens from one stage to the next [s]."""
        sent = tokens * self.model.hidden * ACTIVATION_BYTES
        return mean_hop(sent, 1.0 * self.strategy.tp, self.stages, self.rates.network)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prompts:
    """A step that computes prompts in a running batch, and the time that prompts cost.

    Parameters
    ----------
    step : the step of one stage [s].
    behind : the step, and the decode step that is subtracted from a mixed one.
    mixed : whether decode tokens share the step.
    fresh, requests : uncached tokens of a prompt, and prompts per step [1].
    room : prompts that fit in a step, at least one [1].
    device, whole : time in excess of a step without prompts, of one stage, and of all stages and the host [s].
    other : time that one prompt costs other users [s].
    others : prompts of others that a user waits for, those of several groups in one step counted once [1].
    """

    step: Term
    behind: list[Term]
    mixed: bool
    fresh: float
    requests: Number
    room: Number
    device: Number
    whole: Number
    other: Number
    others: Number

    @property
    def steps(self) -> Number:
        """Steps per prompt [1]."""
        return larger(1.0 / self.requests, 1.0)

    def term(self, value: Number, name: str = "prompts of others", **more: Any) -> Term:
        """Return a time that prompts add to tokens, with the steps behind it as parts."""
        combine: Combine = "difference" if self.mixed else "product"
        return Term(name, value, "s", parts=self.behind, combine=combine, **more)


NO_PROMPTS = 1e-9
"""Stands for no prompts where a share divides by them [1]."""


class _Company(NamedTuple):
    """Other users of the groups that step together, and the number of those groups [1]."""

    users: Number
    groups: Number

    def shares(self, prompts: Number, steps: Number) -> tuple[Number, Number]:
        """Return the prompts that a user waits for, and the share of the other groups that compute one in such a step.

        `prompts` are computed in a group's step with prompts; a user's answer takes `steps` steps [1].
        """
        if np.all(self.groups <= 1.0):
            return self.users, 1.0
        each = self.users / self.groups / prompts
        every = larger(steps, larger(each, NO_PROMPTS))
        stalled = batching.steps_with_prompts(every, each, self.groups)
        alike = (each * self.groups / larger(stalled, NO_PROMPTS) - 1.0) / larger(self.groups - 1.0, 1.0)
        return stalled * prompts, where(self.groups > 1.0, smaller(larger(alike, 0.0), 1.0), 1.0)


def _prompts(
    served: _Served, decoding: Step, stage: Term, per_step: Number, at_once: Number | None, company: _Company
) -> _Prompts:
    """Return the step that computes the prompts of a batch; `per_step` prompts per decode step keep the batch full.

    `at_once` stages work at the same time while the batch decodes, all where it is None.
    """
    fresh, past, engine, r = served.fresh, served.past, served.engine, served.rates
    mixed = engine.mixes and served.workload.output > 1
    beside = decoding.sequences if mixed else 0.0
    # prompts get the token budget that decoding sequences leave; without chunked prefill, a prompt is computed whole
    room = larger(engine.pass_tokens(served.budget) - beside * decoding.each, 1.0 if engine.chunked_prefill else fresh)
    chunk = smaller(batching.prompts_of_a_step(per_step) * fresh, room)
    requests = chunk / fresh
    others, alike = company.shares(requests, (served.workload.output - 1.0) / _emitted(served.workload))
    step = Step(new=chunk, past=past, requests=requests, others=alike)
    if mixed:
        load = (decoding.tokens + alike * chunk) / (decoding.tokens + chunk)
        step = replace(decoding, new=chunk, past=past, requests=requests, others=load)
    name, drafted, busy = (
        ("mixed step", served.workload.drafted, at_once) if mixed else ("prefill step", 0, stages_at_once(engine))
    )
    prefill = step_term(
        name, served.model, served.strategy, step, r, kv_bytes=served.kv_bytes, drafted=drafted, at_once=busy
    )
    tokens = chunk + beside * decoding.each
    waits = [part for part in stage.parts if part.name == WAITS] if mixed else []
    whole_step = _with_hop(total(name, [*prefill.parts, *waits], "s") if waits else prefill, _hop(served, tokens))
    carrier = launched(whole_step, tokens, served.model, served.strategy, r, before=stage.value)
    stages = served.stages
    if mixed:
        # rows of prompts can move products from vector to matrix units, where a step with them is the shorter one
        device, behind = larger(carrier.value - stage.value, 0.0), [carrier, stage]
        whole, once = device * stages, device
    else:
        host = host_of_passes(1.0, requests, r)
        device, behind = carrier.value, [total(name, [carrier, host], "s")]
        whole, once = device * stages + host.value, device + host.value
    # with micro-batches, stages serve different users, so a prompt costs the time of one stage; otherwise of all stages
    costs = once if engine.pipeline_kind == "microbatch" else whole * _overlap(served)
    return _Prompts(
        step=prefill,
        behind=behind,
        mixed=mixed,
        fresh=fresh,
        requests=requests,
        room=larger(room / fresh, 1.0),
        device=device,
        whole=whole,
        other=costs / requests,
        others=others,
    )


def _hop(served: _Served, tokens: Number) -> Term | None:
    """Return the time to send tokens from one stage to the next, None with a single stage [s]."""
    if isinstance(served.strategy.pp, int) and served.strategy.pp == 1:
        return None
    network = served.rates.network
    return Term(
        "pipeline hops",
        where(served.stages > 1.0, served.hop(tokens), 0.0),
        "s",
        law="collectives.transfer_time",
        text="{sent} tokens x {hidden} x 2 B",
        numbers={"sent": tokens, "hidden": served.model.hidden},
        sources=network.cites(*HOP, *network.between_names),
    )


def _with_hop(step: Term, hop: Term | None) -> Term:
    """Return a stage's step including the hop to the next stage."""
    return step if hop is None else total(step.name, [*step.parts, hop], "s")


ROUNDING = 1e-12
"""Share of a sum below which a part is what rounding leaves of a difference [1]."""


def _waited(empty: Term, riding: Number, beside: Number, waiting: Number, prompts: _Prompts) -> Term:
    """Return the TTFT among other users.

    It adds to the TTFT of an idle system: decoding and other prompts in the same steps, and the wait for earlier
    prompts.
    """
    parts = [
        prompts.term(value, name, text=text)
        for name, value, text in (
            ("decoding of others", riding, "decoding of other users in the same steps"),
            ("prompts beside it", beside, "prompts of other users in the same step"),
            ("prompts before it", waiting, "what prompts of others take beyond the steps between a user's tokens"),
        )
        if np.any(value > ROUNDING * empty.value)
    ]
    return total("TTFT", [*empty.parts, *parts], "s") if parts else empty


def _share(whole: Term, times: float, over: float) -> Term:
    """Return a time that occurs `times` times per request, divided over its tokens."""
    numbers = {"times": times, "whole": (whole.value, "s"), "over": over}
    value = whole.value * times / over
    return Term(
        whole.name,
        value,
        "s",
        parts=[whole],
        combine="product",
        text="{times} x {whole} / {over} tokens",
        numbers=numbers,
    )


HOP = ("link", "start", "step", "quick", "bulk", "gather", "staged_path")
"""Network constants behind a hop inside a host."""

WAITING = {"launches", "all-reduce", "expert exchange"}
"""Parts of a step during which a device neither computes nor reads memory."""


def _busy(decode: Term, prefill: Term, turns: Number, prompts: Number, cycle: Number) -> Number:
    """Return the share of time that a device computes or reads memory, rather than launches, communicates or waits [1].

    In each cycle per token, it decodes `turns` times and computes prompts for `prompts` seconds.
    """
    working = sum(part.value for part in decode.parts if part.name not in WAITING)
    share = sum(part.value for part in prefill.parts if part.name not in WAITING) / prefill.value
    return smaller((turns * working + prompts * share) / cycle, 1.0)


def token_time(stage: Term, host: Term, strategy: Strategy, emitted: float) -> Term:
    """Return the time per output token: all stages in sequence, then the host [s]."""
    inner = stage.parts
    parts = [*inner, host]
    if isinstance(strategy.pp, int) and strategy.pp == 1 and emitted == 1.0:
        return total("token", parts, "s")
    stages = 1.0 * strategy.pp
    scaled = [
        Term(
            p.name,
            pipeline.interleaved_token_time(stages, p.value, 0.0) / emitted,
            "s",
            law=p.law or "pipeline.interleaved_token_time",
            parts=[p],
            combine="product",
            text="{stages} stages x {once}" + (f" / {emitted:g} tokens a step" if emitted != 1.0 else ""),
            numbers={"stages": stages, "once": (p.value, "s")},
            sources=p.sources,
        )
        for p in inner
    ]
    last = (
        host
        if emitted == 1.0
        else Term(
            "engine step",
            host.value / emitted,
            "s",
            parts=[host],
            combine="product",
            law=host.law,
            text="{once} / {emitted} tokens a step",
            numbers={"once": (host.value, "s"), "emitted": emitted},
        )
    )
    return total("token", [*scaled, last], "s", law="pipeline.interleaved_token_time")


def _first_token(served: _Served) -> tuple[Term, Number]:
    """Return the time to the first token in an idle system, and the device time within it [s]."""
    one, passes, turns = served.prompt(others=0.0)
    host, network = host_of_passes(passes, 1.0, served.rates), served.rates.network
    alone = isinstance(served.strategy.pp, int) and served.strategy.pp == 1
    parts = in_turn(one, turns) if not alone or type(turns) is not float or turns != 1.0 else list(one.parts)
    if alone:
        return total("TTFT", [*parts, host], "s"), one.value * turns
    hop = served.hop(served.fresh / passes)
    hops = Term(
        "pipeline hops",
        (turns - passes) * hop,
        "s",
        law="pipeline.serial_latency",
        text="{hops} hops x {hop}",
        numbers={"hops": turns - passes, "hop": (hop, "s")},
        sources=network.cites(*HOP, *network.between_names),
    )
    return total("TTFT", [*parts, hops, host], "s"), one.value * turns


def _prompt_interval(served: _Served, alone: Number) -> Number:
    """Return the time per prompt of a group that only prefills; `alone` is that of a prompt in an idle system [s]."""
    if np.any(Split.of(served.strategy).groups > 1):
        # all groups prefill together and share their devices
        one, _, turns = served.prompt()
        alone = one.value * turns
    if served.engine.pipeline_kind != "microbatch":
        return alone
    # stages work on different prompts at once; the slower of a stage and a hop sets the rate
    return larger(alone / served.stages, where(served.stages > 1.0, served.hop(served.fresh), 0.0))


def _overlap(served: _Served) -> Number:
    """Return the time of a prompt through all stages, split by layers, over that of its passes run one after the other [1]."""
    passes = batching.passes(larger(1.0, 1.0 * served.fresh), 1.0 * served.engine.pass_tokens(served.budget))
    turns = turns_of(served.model, served.engine, served.rates, served.stages, passes)
    return turns / (passes * served.stages)
