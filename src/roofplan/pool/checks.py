"""Checks of work among members who may cheat: replication, audits, deposits, withheld credit, probation.

Everything is counted in jobs: a job's credit is 1, and so is its work, that of a copy, and that of an audit, which are done
unpaid. A cheat saves work and earns the credit, unless its result is rejected, and until it is found: then the deposit and the
credit that is still withheld are lost, and the member starts anew as a newcomer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from roofplan.laws.pool import cheating_gain, least_audit, replicated_share
from roofplan.records.pool import Cheat


@dataclass(frozen=True, slots=True, kw_only=True)
class Checking:
    """How work is checked.

    Parameters
    ----------
    replication : whether jobs are replicated as BOINC's adaptive replication does.
    audit : share of the jobs that are audited [1].
    deposit, withheld : what a member stakes, and its newest credit that is held back, in jobs [1].
    probation : jobs of others that a newcomer checks before its own count [1].
    false_alarms : share of the audits of honest work that fail [1].
    valid, quorum : consecutive valid results that earn trust, and results that must agree [1].
    """

    replication: bool
    audit: float
    deposit: float
    withheld: int
    probation: int
    false_alarms: float
    valid: int
    quorum: int

    @property
    def stake(self) -> float:
        """What a member in good standing loses when it is found: deposit, withheld credit, the job, and probation, in jobs [1]."""
        return self.deposit + self.withheld + 1.0 + self.probation


@dataclass(frozen=True, slots=True)
class Cheaters:
    """A share of the members that cheat on a share of their jobs."""

    cheat: Cheat
    members: float
    share: float


@dataclass(slots=True)
class Tally:
    """What happened to the members of one kind, in jobs.

    Parameters
    ----------
    members : of the kind [1].
    jobs : done and paid, of which `cheated`; `accepted` of those passed as right.
    saved : work that cheats spared, on copies and audits too.
    found : members that were found to cheat, `forfeited` what that cost them.
    credit : paid out, `held` still withheld, `lost` forfeited.
    unpaid : audits done on probation.
    """

    members: int = 0
    jobs: int = 0
    cheated: int = 0
    accepted: int = 0
    saved: float = 0.0
    found: int = 0
    forfeited: float = 0.0
    lost: int = 0
    credit: int = 0
    held: int = 0
    unpaid: int = 0

    @property
    def gain(self) -> float:
        """What a cheat gained on average: saved work less what was lost; 0 without cheats [jobs]."""
        return (self.saved - self.forfeited) / self.cheated if self.cheated else 0.0


@dataclass(slots=True)
class Checked:
    """What checks found.

    Parameters
    ----------
    checking : how work was checked.
    jobs : delivered [1].
    copies, audits : results beyond the first of each job, and audits [1].
    wrong : answers delivered that were wrong [1].
    kinds : tallies by kind of member, ``honest`` first.
    """

    checking: Checking
    jobs: int
    copies: int = 0
    audits: int = 0
    wrong: int = 0
    kinds: dict[str, Tally] = field(default_factory=dict)

    @property
    def replicated(self) -> float:
        """Results beyond the first, by jobs [1]."""
        return self.copies / self.jobs

    @property
    def overhead(self) -> float:
        """Work of checks, by the work of jobs: a copy and an audit each compute a job's FLOPs again [1]."""
        return (self.copies + self.audits) / self.jobs

    @property
    def balance(self) -> int:
        """Jobs whose credit is neither paid, withheld nor lost; 0 in a ledger that balances."""
        return sum(one.jobs - one.credit - one.held - one.lost for one in self.kinds.values())


HONEST = "honest"

AGREED = 0
"""The result of honest members; cheaters' results have other numbers, colluders' the same negative one."""


class _Member:
    """A member: what it is, and where it stands."""

    __slots__ = ("cheat", "held", "kind", "probation", "share", "tally", "valid")

    def __init__(self, kind: int, cheat: Cheat | None, share: float, tally: Tally) -> None:
        self.kind, self.cheat, self.share, self.tally = kind, cheat, share, tally
        self.valid = self.probation = 0
        self.held: deque[int] = deque()


class _Dice:
    """Random numbers, drawn in blocks."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._numbers: Iterator[float] = iter(())

    def __call__(self) -> float:
        for number in self._numbers:
            return number
        self._numbers = iter(self._random.random(BLOCK).tolist())
        return next(self._numbers)


BLOCK = 65_536
"""Random numbers that are drawn at once [1]."""

LEAST = 4
"""Least members among whom results can be compared and audited twice by others [1]."""


def checked(checking: Checking, members: int, cheaters: Sequence[Cheaters], jobs: int, seed: int) -> Checked:
    """Return what checks of simulated jobs find; each job goes to a random member. All have served their probation.

    Parameters
    ----------
    checking : how work is checked.
    members : of the pool [1].
    cheaters : shares of the members that cheat.
    jobs : simulated [1].
    seed : of the random numbers.

    Returns
    -------
    What was found.
    """
    found = Checked(checking, jobs, kinds={HONEST: Tally()} | {one.cheat.id: Tally() for one in cheaters})
    pool = _Pool(checking, members, cheaters, found, _Dice(seed))
    for _ in range(jobs):
        pool.job()
    for one in pool.members:
        one.tally.held += len(one.held)
    return found


class _Pool:
    """Members who do and check jobs."""

    def __init__(
        self, checking: Checking, members: int, cheaters: Sequence[Cheaters], found: Checked, dice: _Dice
    ) -> None:
        self.checking, self.found, self.dice = checking, found, dice
        self.members: list[_Member] = []
        self.new: list[_Member] = []
        for kind, one in enumerate(cheaters, 1):
            count = max(1, round(one.members * members)) if one.members else 0
            for _ in range(min(count, members - len(self.members))):
                self.members.append(_Member(kind, one.cheat, one.share, found.kinds[one.cheat.id]))
        self.members += [_Member(0, None, 0.0, found.kinds[HONEST]) for _ in range(members - len(self.members))]
        for member in self.members:
            member.tally.members += 1
        self.next_wrong = 1

    def begin(self, member: _Member) -> None:
        """Let a member begin as a newcomer."""
        member.probation, member.valid = self.checking.probation, 0
        member.held.clear()
        if member.probation:
            self.new.append(member)

    def drawn(self, *others: _Member) -> _Member:
        """Return a random member that is none of some others and not on probation; one on probation where all others are."""
        count = len(self.members)
        for _ in range(50):
            one = self.members[int(self.dice() * count)]
            if one not in others and not one.probation:
                return one
        able = [one for one in self.members if one not in others]
        return min(able, key=lambda one: one.probation)

    def result(self, member: _Member) -> int:
        """Let a member do a job; return its result. A cheat saves work, whether the job is paid or a copy."""
        cheat = member.cheat
        if cheat is None or (cheat.patient and member.valid < self.checking.valid and self.checking.replication):
            return AGREED
        if self.dice() >= member.share:
            return AGREED
        member.tally.saved += cheat.value("saves")
        if cheat.colludes:
            return -member.kind
        self.next_wrong += 1
        return self.next_wrong - 1

    def job(self) -> None:
        """Have a job done, checked and credited."""
        checking, member = self.checking, self.drawn()
        tally, result = member.tally, self.result(member)
        tally.jobs += 1
        cheated = result != AGREED
        tally.cheated += cheated
        wrong, valid = cheated, True
        if checking.replication and (
            member.valid < checking.valid or self.dice() < replicated_share(float(member.valid))
        ):
            wrong, valid = self.replicated(member, result)
        self.found.wrong += wrong
        tally.accepted += cheated and valid
        if checking.audit and self.dice() < checking.audit and self.alarm(member, result):
            self.punish(member)
        elif not valid:
            tally.lost += 1
            tally.forfeited += 1
        else:
            member.held.append(1)
            if len(member.held) > checking.withheld:
                member.held.popleft()
                tally.credit += 1

    def replicated(self, first: _Member, result: int) -> tuple[bool, bool]:
        """Compare results until a quorum agrees; return whether what is delivered is wrong, and whether the first is valid.

        Delivered is the first result that agrees with the quorum.
        """
        results = [(first, result)]
        while True:
            labels = [self.seen(member, label) for member, label in results]
            agreed = next((one for one in labels if labels.count(one) >= self.checking.quorum), None)
            if agreed is not None or len(results) >= len(self.members):
                break
            other = self.drawn(*(member for member, _ in results))
            results.append((other, self.result(other)))
            self.found.copies += 1
        for (member, _), label in zip(results, labels, strict=True):
            member.valid = member.valid + 1 if label == agreed else 0
        delivered = next((own for (_, own), label in zip(results, labels, strict=True) if label == agreed), result)
        return delivered != AGREED, labels[0] == agreed

    def seen(self, member: _Member, label: int) -> int:
        """Return a result as comparisons see it: some wrong ones look right."""
        if label <= AGREED or member.cheat is None or member.cheat.value("compared") >= 1.0:
            return label
        return label if _coin(label) < member.cheat.value("compared") else AGREED

    def alarm(self, member: _Member, result: int) -> bool:
        """Return whether an audit finds a result wrong, and a second one too; a newcomer repeats the first."""
        if self.new and self.new[-1] is not member:
            self.repeat(self.new[-1])
        return self.audit(member, result) and self.audit(member, result)

    def repeat(self, newcomer: _Member) -> None:
        """Let a newcomer repeat an audit, unpaid: what it finds does not count, but must agree."""
        self.found.audits += 1
        newcomer.tally.unpaid += 1
        newcomer.probation -= 1
        if not newcomer.probation:
            self.new.pop()

    def audit(self, member: _Member, result: int) -> bool:
        """Return whether one audit finds a result wrong; a cheater spares itself a share of its audits."""
        self.found.audits += 1
        auditor = self.drawn(member)
        if auditor.cheat is not None and auditor.cheat.value("saves") >= 1.0 and self.dice() < auditor.share:
            auditor.tally.saved += 1.0
            return False
        if result == AGREED or member.cheat is None:
            return self.dice() < self.checking.false_alarms
        return self.dice() < member.cheat.value("audited")

    def punish(self, member: _Member) -> None:
        """Take a member's deposit, its withheld credit and that of the job; it begins anew."""
        tally = member.tally
        tally.found += 1
        tally.lost += len(member.held) + 1
        tally.forfeited += self.checking.deposit + len(member.held) + 1 + self.checking.probation
        self.begin(member)


def _coin(number: int) -> float:
    """Return a number between 0 and 1 that belongs to a whole number."""
    return (number * 2_654_435_761 % 4_294_967_296) / 4_294_967_296.0


def honest_auditors(cheaters: Sequence[Cheaters]) -> float:
    """Return the share of audits that are done honestly [1].

    Parameters
    ----------
    cheaters : shares of the members that cheat.

    Returns
    -------
    Share [1].
    """
    return 1.0 - sum(one.members * one.share for one in cheaters if one.cheat.value("saves") >= 1.0)


def closed_form(checking: Checking, one: Cheaters, honest: float) -> tuple[float, float]:
    """Return what a cheat gains on average where audits alone find it, and the share of audits from which honesty pays.

    Parameters
    ----------
    checking : how work is checked.
    one : who cheats.
    honest : share of audits that are done honestly [1].

    Returns
    -------
    Gain of a cheated job, in jobs [1]; share of audited jobs [1].
    """
    detected, saved = (one.cheat.value("audited") * honest) ** 2, one.cheat.value("saves")
    gain = cheating_gain(saved, checking.audit, detected, checking.stake)
    return float(gain), float(least_audit(saved, detected, checking.stake))
