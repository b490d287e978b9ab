"""An engine simulated one step at a time, with the state of each request spelt out: slow, and plain enough to check by eye."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

from roofplan.serving.surface import Surface
from roofplan.simulation.records import Requests, Scheduler, Times
from roofplan.simulation.steps import least, shared_time, step_time, turn


class Part(NamedTuple):
    """What an engine does in a step: who decodes, pieces of prompts, its time and tokens, whether it took a cache, and the turn before it."""

    riding: list[Seat]
    pieces: list[tuple[Seat, int, int]]
    seconds: float
    tokens: float
    lost: bool
    before: float = 0.0
    busy: float = 0.0


@dataclass
class Seat:
    """A running request: tokens to compute before its next one, tokens computed, and cache tokens of its own."""

    i: int
    target: int
    computed: int
    kept: float = 0.0
    turns: int = 0
    late: float = 0.0

    @property
    def decodes(self) -> bool:
        return self.computed >= self.target


class Engine:
    """Serves requests step by step."""

    def __init__(self, s: Scheduler, t: Surface, r: Requests, out: Times, sent: int) -> None:
        self.s, self.t, self.r, self.out, self.sent = s, t, r, out, sent
        self.now, self.through, self.head, self.done = 0.0, r.ready[sent - 1], 0, 0
        self.running: list[Seat] = []
        self.waiting: list[int] = []
        self.turns = list(r.turns)  # decode steps still to go
        self.emitted = [0.0] * len(r.inputs)
        self.idle_seats = 0  # of a static batch
        self.again = 0.0  # blocks that were found again, and so left that queue from within
        self.freed = float(s.blocks)  # blocks that were ever put at the end of the queue from which they are taken
        self.left: dict[
            int, tuple[float, float]
        ] = {}  # of preempted requests: blocks freed before theirs, and tokens in them

    def blocks(self, tokens: float) -> int:
        return int(-(-tokens // self.s.block))

    def held(self, seat: Seat) -> float:
        if self.s.reserves:
            answer = ceil(self.r.turns[seat.i] * self.s.grows)
            return self.s.fixed + self.blocks(self.r.inputs[seat.i] - self.r.cached[seat.i] + answer)
        if self.s.grows != 1.0 and seat.decodes:
            prompt = seat.target - self.r.cached[seat.i]
            return self.s.fixed + self.blocks(prompt) + (seat.kept - prompt) / self.s.block
        return self.s.fixed + self.blocks(seat.kept)

    def free(self) -> float:
        return self.s.blocks - sum(self.held(seat) for seat in self.running)

    def wanted(self) -> float:
        decoding = [seat for seat in self.running if seat.decodes]
        if not self.s.paged:
            return 0.0
        if self.s.grows != 1.0:
            return len(decoding) * self.s.grows / self.s.block
        return sum(seat.kept % self.s.block == 0 for seat in decoding)

    def serve(self) -> None:
        while self.done < len(self.r.inputs):
            self.step()

    def step(self) -> None:
        part = self.plan()
        if part.seconds:
            self.apply(part, part.seconds)
        elif not part.lost and not any(not seat.decodes for seat in self.running):
            self.now = max(self.now, self.r.ready[self.head])

    def plan(self) -> Part:
        lost = False
        while self.wanted() > self.free() + 1e-6:
            self.lose(self.running[-1])
            lost = True
        decoding = [seat for seat in self.running if seat.decodes]
        pieces = self.pieces(decoding, lost)
        if not pieces and not decoding:
            return Part([], [], 0.0, 0.0, lost)
        riding = decoding if self.s.mixes or not pieces else []
        count = len(riding) + (self.idle_seats if riding else 0)
        context = self.context(riding)
        busy = len(decoding) + self.idle_seats if decoding else 0
        before = turn(self.t, busy, self.context(decoding))
        seconds = step_time(self.t, count, context, [(new, past) for _, new, past in pieces], before)
        tokens = count * self.t.each + sum(new for _, new, _ in pieces)
        return Part(riding, pieces, seconds, tokens, lost, before, busy * self.t.each)

    def apply(self, part: Part, seconds: float) -> None:
        riding, pieces, late = part.riding, part.pieces, 0.0
        if pieces and self.t.lag:
            count = len(riding) + (self.idle_seats if riding else 0)
            whole = step_time(self.t, count, self.context(riding), []) if count else 0.0
            late = self.t.lag * (seconds - whole * self.t.lag / (self.t.lag + 1.0))
        self.now += seconds
        self.ended_context += self.idle_seats * self.s.grows if riding else 0.0  # padding of a static batch
        for seat in riding:
            seat.kept += self.s.grows
            seat.turns += 1
        for seat, _, _ in pieces:
            seat.late = late
            if seat.decodes and self.out.first[seat.i] < 0.0:
                self.out.first[seat.i] = self.now + late
        for seat in [seat for seat in self.running if seat.decodes and seat.turns >= self.turns[seat.i]]:
            self.end(seat)

    def context(self, riding: list[Seat]) -> float:
        held = sum(seat.kept + self.r.cached[seat.i] for seat in riding)
        return held + (self.ended_context if riding else 0.0)

    ended_context = 0.0

    def pieces(self, decoding: list[Seat], lost: bool) -> list[tuple[Seat, int, int]]:
        s, out = self.s, []
        room = s.budget - ceil(len(decoding) * self.t.each) if s.mixes else s.budget
        if s.static and (decoding or self.idle_seats):
            return []
        begun = [seat for seat in self.running if not seat.decodes]
        free = self.free() - (self.wanted() if s.mixes else 0)
        while room > 0:
            if begun:
                seat, fresh = begun.pop(), False
            else:
                due = self.head < self.sent and self.r.ready[self.head] <= self.now
                if lost or len(self.running) >= s.seats or not (self.waiting or due):
                    break
                i = self.waiting[-1] if self.waiting else self.head
                again = ceil(s.grows * (self.r.turns[i] - self.turns[i] - 1)) + 1 if self.out.first[i] >= 0.0 else 0
                found = self.found_again(i, self.r.inputs[i] + again, free)
                seat, fresh = Seat(i, self.r.inputs[i] + again, self.r.cached[i] + found, found), True
            part = min(seat.target - seat.computed, room)
            if part < seat.target - seat.computed and not s.chunked and (out or (decoding and s.mixes)):
                break
            if fresh:
                answer = ceil(self.r.turns[seat.i] * s.grows) if s.reserves else 0
                tokens = (self.r.inputs[seat.i] if s.reserves else seat.target) - self.r.cached[seat.i] + answer
                if s.fixed + self.blocks(tokens) > free + 1e-6:
                    break
                free -= self.held(seat)
                self.again += (seat.computed - self.r.cached[seat.i]) // s.block
                self.running.append(seat)
                if self.waiting:
                    self.waiting.pop()
                else:
                    self.head += 1
                if self.out.admitted[seat.i] < 0.0:
                    self.out.admitted[seat.i] = self.now
            more = 0 if s.reserves else self.blocks(seat.kept + part) - self.blocks(seat.kept)
            if more > free + 1e-6:
                self.lose(seat)
                break
            free -= more
            out.append((seat, part, seat.computed))
            seat.computed += part
            seat.kept += part
            room -= part
            if not seat.decodes:
                break
        return out

    def found_again(self, i: int, target: int, free: float) -> int:
        """Return the tokens of a preempted request whose blocks are still at the end of the queue, its first ones last."""
        if not self.s.keeps or i not in self.left:
            return 0
        before, tokens = self.left[i]
        taken = self.freed - self.again - free
        held = [before + k for k in range(self.blocks(tokens))][::-1]  # places in the queue, the last block first
        there = 0
        while there < len(held) and held[there] >= taken:
            there += 1
        whole = min(there, int(tokens // self.s.block), (target - self.r.cached[i] - 1) // self.s.block)
        return whole * self.s.block

    def lose(self, seat: Seat) -> None:
        self.left[seat.i] = (self.freed - self.again, seat.kept)
        self.freed += self.held(seat)
        self.running.remove(seat)
        self.waiting.append(seat.i)
        self.out.preempted[seat.i] += 1
        if seat.decodes:
            self.turns[seat.i] -= seat.turns + 1

    def end(self, seat: Seat) -> None:
        self.freed += self.held(seat)
        self.running.remove(seat)
        self.done += 1
        ended = self.now + seat.late
        self.out.last[seat.i] = ended
        if self.s.static:
            self.idle_seats, self.ended_context = (
                self.idle_seats + 1,
                self.ended_context + seat.kept + self.r.cached[seat.i],
            )
            if not self.running:
                self.idle_seats, self.ended_context = 0, 0.0
        if self.sent < len(self.r.inputs):
            self.through = max(self.through - self.s.delay, ended) + self.s.front + self.s.delay
            self.r.arrivals[self.sent], self.r.ready[self.sent] = ended, self.through
            self.sent += 1


def serve_together(engines: list[Engine]) -> None:
    """Serve all requests of engines that share a part of each step, which waits for the slowest of them and for the host."""
    t = engines[0].t
    for one in engines:
        one.t = t._replace(launching=[0.0, 0.0, 0.0])
    while any(one.done < len(one.r.inputs) for one in engines):
        parts = [one.plan() if one.done < len(one.r.inputs) else Part([], [], 0.0, 0.0, False) for one in engines]
        now = engines[0].now
        if not any(part.seconds for part in parts):
            if not any(part.lost for part in parts):
                due = min((one.r.ready[one.head] for one in engines if one.head < one.sent), default=inf)
                for one in engines:
                    one.now = max(now, due)
            continue
        mean = sum(part.tokens for part in parts) / len(engines)
        before = max(part.before for part in parts) + shared_time(t, sum(part.busy for part in parts) / len(engines))
        hosts = [least(t, len(part.riding), len(part.pieces), part.tokens, before) for part in parts if part.pieces]
        seconds = max(max(part.seconds for part in parts) + shared_time(t, mean), *hosts, 0.0)
        for one, part in zip(engines, parts, strict=True):
            one.apply(part, seconds)
