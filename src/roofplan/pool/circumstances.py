"""What a pool is simulated under: load, members who come and go, checks and cheaters, as texts and as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from roofplan import catalogue
from roofplan.errors import InputError, choice
from roofplan.inputs import PoolSimulateInputs
from roofplan.load.asked import seed_of
from roofplan.pool.checks import Cheaters, Checking
from roofplan.pool.churn import PATTERNS
from roofplan.records import units


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a pool is simulated under.

    Parameters
    ----------
    rate : requests that arrive [1/s].
    horizon : simulated time [s].
    session, online : mean stay [s], and share of the time in which members are there that do not say [1].
    pattern : when members come.
    patience : longest wait for a first token [s].
    replicas : most pipelines, None for as many as the members can hold.
    store : whether members keep weights on disk.
    checking, cheaters : how work is checked, and who cheats.
    jobs : simulated for the checks [1].
    churn : table that says when members are there, None for drawn sessions.
    """

    rate: float
    horizon: float
    session: float
    online: float
    pattern: str
    patience: float
    replicas: int | None
    store: bool
    checking: Checking
    cheaters: tuple[Cheaters, ...]
    jobs: int
    seed: int
    churn: str | None


def circumstances_of(given: PoolSimulateInputs) -> Circumstances:
    """Return what a pool is simulated under.

    Parameters
    ----------
    given : inputs of the command, as the user gave them.

    Returns
    -------
    The circumstances.

    Raises
    ------
    InputError : one that cannot be read.
    """
    horizon = units.parse_amount(given.days, "--days") * units.DAY
    online, session = units.parse_share(given.online, "--online"), units.parse(given.session, "s", "--session")
    jobs = units.parse_count(given.jobs, "--jobs")
    for flag, value, low, high, text in (
        ("--days", horizon / units.DAY, 0.01, 3650.0, "0.01 to 3,650"),
        ("--session", session, 60.0, inf, "1min on"),
        ("--jobs", jobs, 1, 5_000_000, "1 to 5,000,000"),
    ):
        if not low <= value <= high:
            raise InputError(f"{flag}: from {text}", argument=flag, value=str(getattr(given, flag[2:])))
    if not 0.0 < online <= 1.0:
        raise InputError("--online: nobody would ever be there", argument="--online", value=str(given.online))
    return Circumstances(
        rate=units.parse(given.rate, "request/s", "--rate"),
        horizon=horizon,
        session=session,
        online=online,
        pattern=choice(given.pattern, PATTERNS, "--pattern"),
        patience=units.parse(given.patience, "s", "--patience"),
        replicas=None if given.replicas is None else units.parse_count(given.replicas, "--replicas"),
        store=given.store,
        checking=checking_of(given),
        cheaters=cheaters_of(given.cheaters),
        jobs=jobs,
        seed=seed_of(given.seed),
        churn=given.churn,
    )


def checking_of(given: PoolSimulateInputs) -> Checking:
    """Return how work is checked: a text such as ``replication+audit:5%`` with stakes.

    Parameters
    ----------
    given : inputs of the command.

    Returns
    -------
    How work is checked.

    Raises
    ------
    InputError : none of the known checks.
    """
    replication, audit, trust = False, 0.0, catalogue.pools().trust
    for part in [] if given.check.strip() == "none" else given.check.split("+"):
        name, _, share = part.strip().partition(":")
        choice(name, ("replication", "audit"), "--check")
        if name == "replication" and not share:
            replication = True
        elif name == "replication":
            raise InputError(
                f"--check: {part}: BOINC's rule sets the share of replicated jobs itself; write replication",
                argument="--check",
                value=part,
            )
        else:
            audit = units.parse_share(share or "5%", "--check")
    return Checking(
        replication=replication,
        audit=audit,
        deposit=_jobs(given.deposit, "--deposit"),
        withheld=round(_jobs(given.withheld, "--withheld")),
        probation=round(_jobs(given.probation, "--probation")),
        false_alarms=units.parse_share(given.false_alarms, "--false-alarms"),
        valid=round(trust["valid"].value),
        quorum=round(trust["quorum"].value),
    )


def _jobs(text: str | float, flag: str) -> float:
    return 0.0 if str(text).strip() == "0" else units.parse_amount(text, flag)


def cheaters_of(text: str) -> tuple[Cheaters, ...]:
    """Return who cheats: a text such as ``lazy:10%,patient:5%:20%``, each a kind, a share of members and a share of jobs.

    Parameters
    ----------
    text : kinds joined by commas, ``none`` for nobody.

    Returns
    -------
    Shares of members that cheat.

    Raises
    ------
    InputError : an unknown kind, or shares that are none.
    """
    known, out = catalogue.pools().cheats, []
    for part in [] if text.strip() == "none" else text.split(","):
        name, _, rest = part.strip().partition(":")
        members, _, share = rest.partition(":")
        cheat = known[choice(name, known, "--cheaters")]
        if not members:
            raise InputError(
                f"--cheaters: {part}: of which share of the members? Example: {name}:10%",
                argument="--cheaters",
                value=part,
            )
        jobs = units.parse_share(share, "--cheaters") if share else cheat.value("cheats")
        out.append(Cheaters(cheat, units.parse_share(members, "--cheaters"), jobs))
    if sum(one.members for one in out) > 1.0:
        raise InputError("--cheaters: more than all members", argument="--cheaters", value=text)
    if len({one.cheat.id for one in out}) < len(out):
        raise InputError("--cheaters: a kind is given twice", argument="--cheaters", value=text)
    return tuple(out)
