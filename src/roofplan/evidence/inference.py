"""Published serving runs as cases to predict; the columns are those of ``measured/inference.csv``."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from roofplan import catalogue
from roofplan.catalogue.written import CACHE as CACHE_WORDS
from roofplan.catalogue.written import KV_FORMATS, cache_of
from roofplan.evidence.cells import SHAREGPT
from roofplan.evidence.cluster import default_network, machine_of_count
from roofplan.evidence.engines import engine_of, launched
from roofplan.evidence.models import counted, device_of
from roofplan.evidence.rows import Assumed, Row, Skipped, against, checked, flags, number
from roofplan.evidence.served import in_16_bits, served_model
from roofplan.evidence.settings import with_launch_settings
from roofplan.evidence.statistic import PERCENTILE, Statistic, statistic
from roofplan.operations.table import Step, element_bytes
from roofplan.records.calibration import Fit
from roofplan.records.engine import Engine
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.strategy import Strategy, divisors
from roofplan.records.system import Origin
from roofplan.records.terms import Term, total
from roofplan.records.workload import Workload
from roofplan.serving import (
    Prediction,
    batched_tokens,
    cache_format,
    footprints,
    ledger,
    legal,
    predict,
    supported,
    undescribed,
)
from roofplan.serving.certainty import system_of
from roofplan.serving.ledger import Ledger, footprint
from roofplan.serving.prompts import host_of_passes, in_turn, prompt_pass, turns_of
from roofplan.timing.rates import Rates, rates

Regime = Literal["static batch", "steady batch", "closed loop", "burst", "offline", "open loop"]
"""How requests arrive: one batch that starts and ends together; a known mean batch size; a number of clients, each waiting for
its answer; a stated number of requests at once; an unstated number at once; at a rate."""


KNOWN_STATISTIC = re.compile(rf"mean|average|avg|median|itl|{PERCENTILE.pattern}|percentile|e2e|first token|latency")
"""Words by which a table names the statistic of its times."""


EXTREME = re.compile(r"\b(?:max|min|maximum|minimum|std|stdev|peak|best|worst)\b", re.IGNORECASE)
"""Words for statistics that no prediction gives."""

NEEDED = ("id", "source_key", "model_name", "accel_norm", "count", "engine_name", "weight_precision", "output_len")
"""Columns without which no row can be predicted."""

ASSUMED_PROMPT = {"ml-energy": 256.0}
"""Prompt length where a source names only its data set: LMArena chats and GPQA questions are a few hundred tokens [token]."""

CHAT, TIMED = 256.0, 128.0
"""Prompt and answer of a known batch whose lengths are not stated: those of a chat, and what llama-bench times [token]."""

ROUNDS = 10.0
"""Requests per client of a closed loop where their number is not stated; the first round is the ramp-up [1]."""

LARGEST_QUEUE = 12.0
"""Requests over batch slots above which ramp-up and tail of a queue are neglected and it is in steady state [1]."""


FIXED = "fixed"
"""Cell of the column ``lengths`` of a run whose requests are all alike."""

SHAREGPT_PROMPT, SHAREGPT_ANSWER = 218.0, 210.0
"""Mean prompt and answer of conversations of ShareGPT as benchmark clients draw them: medians over 23 publishers of the tables that state theirs [token]."""

PROMPT, ANSWER, CACHE, LENGTHS, LAYOUT = "prompt", "answer", "cache", "lengths", "layout"
DATA_SET, NETWORK = "data set", "network"
"""Inputs that rows may omit and that have other plausible values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceCase:
    """A published serving run.

    Parameters
    ----------
    engine : engine, with the settings that the run states in place of its defaults.
    workload : lengths; its input is the context of the decoding sequences before their own tokens.
    prompt : length of the prompts whose prefill was timed [token].
    users : running sequences of the whole system, None where not stated [1].
    clients, requests : requests in flight, and requests sent in total, None where not stated [1].
    arrivals : request rate, None where requests do not arrive at a rate [1/s].
    measured : published figures by metric, in SI.
    statistic : statistic of its published time per token and time to the first token.
    assumed : what the row omits and a rule filled in.
    unstated : inputs among them whose other plausible values widen intervals.
    alike : whether the requests of clients are all of the same lengths; not stated, they differ.
    """

    row: Row
    model: Model
    machine: Machine
    engine: Engine
    strategy: Strategy
    workload: Workload
    prompt: float
    regime: Regime
    users: float | None
    clients: int | None
    requests: int | None
    arrivals: float | None
    kv_bytes: float
    measured: dict[str, float]
    statistic: Statistic
    assumed: tuple[str, ...]
    unstated: tuple[str, ...]
    alike: bool = False

    @property
    def origin(self) -> Origin:
        """Publisher, chip and system of the run."""
        system = system_of(self.model, self.machine, self.engine)
        return Origin(source=self.row["source_key"], chip=self.machine.device.id, system=system)

    @property
    def read_as(self) -> str:
        """What was made of the row, in one line."""
        plan, load = self.model.quantization, self.workload
        stored = plan.format if plan else self.model.dtype
        counts = (
            (self.users, "at once"),
            (self.clients, "clients"),
            (self.requests, "requests"),
            (self.arrivals, "req/s"),
        )
        sent = ", ".join(f"{count:g} {what}" for count, what in counts if count is not None)
        return (
            f"{self.model.id} in {stored}, {self.machine.count} x {self.machine.device.id}, {self.engine.id} {self.strategy.label()}, "
            f"{load.input} in {load.output} out, {self.regime}{f' of {sent}' if sent else ''}"
        )

    @property
    def varied(self) -> bool:
        """Whether the lengths of its requests vary."""
        return _varied(self.row)

    @property
    def in_flight(self) -> bool:
        """Whether new prompts join a running batch; true unless the row says that this was switched off."""
        return "in-flight batching OFF" not in self.row.get("notes", "")

    @property
    def groups(self) -> int:
        """Attention groups that run in parallel [1]."""
        return self.strategy.groups

    @property
    def running(self) -> float | None:
        """Running sequences: as stated, or the clients of a closed loop if memory admits them all; None where neither is known [1]."""
        if self.users is not None or self.clients is None or self.regime != "closed loop":
            return self.users
        return float(self.clients) if self.clients <= self.book().max_concurrency else None

    @property
    def tpot(self) -> float | None:
        """Published time per token [s]."""
        return self.measured.get("tpot")

    @property
    def watts(self) -> float | None:
        """Published mean power of all devices [W]."""
        found = re.search(r"([\d.]+) W avg GPU power", self.row.get("notes", ""))
        return float(found[1]) if found else None

    def rates(self, fit: Fit) -> Rates:
        """Return the rates that the machine attains."""
        return rates(self.machine, self.engine, fit)

    def book(self) -> Ledger:
        """Return the memory ledger of the fullest rank."""
        feet = footprints(self.model, self.strategy, self.kv_bytes)
        return ledger(self.model, self.strategy, self.machine, self.engine, self.workload, feet)

    def budget(self) -> float:
        """Return the token budget of a step [token]."""
        return batched_tokens(self.engine, self.machine, self.workload, int(self.strategy.attention_dp))

    def predict(self, fit: Fit) -> Prediction | None:
        """Return the steady state of the running sequences, None where they are not known."""
        users = self.running
        return None if users is None else self.steady(users, fit)

    @property
    def at_once(self) -> float:
        """Requests at once, 1 where the publisher gives none [1]."""
        return self.users or 1.0

    def steady(self, users: float, fit: Fit) -> Prediction:
        """Return the steady state of `users` running sequences."""
        return predict(
            self.model,
            self.strategy,
            self.engine,
            self.workload,
            self.rates(fit),
            users,
            kv_bytes=self.kv_bytes,
            budget=self.budget(),
            all_run=True,
        )

    def measured_term(self, prediction: Prediction) -> Term:
        """Return the Term that the published time per token measures: mean with prompt stalls, a gap, or request time per token.

        A static batch decodes without prompts in its steps. The longest gaps between tokens are steps that also carry prompts of
        other requests. While these are fewer than half, the median gap is a step without prompts.
        """
        if self.regime == "static batch":
            return prediction.token
        if self.statistic.kind == "gap" and self.statistic.quantile is not None:
            return prediction.gap(self.statistic.quantile)
        return prediction.cycle if self.statistic.kind == "request" else prediction.pace

    def prompts_term(self, fit: Fit) -> Term:
        """Return the time to compute the prompts of a static batch together."""
        sequences = max(1.0, self.at_once / self.groups)
        prompt = Step(new=sequences * self.prompt, requests=sequences)
        engine, r = self.engine, self.rates(fit)
        one, passes = prompt_pass(self.model, self.strategy, engine, r, prompt, self.budget(), kv_bytes=self.kv_bytes)
        turns = turns_of(self.model, engine, r, float(self.strategy.pp), passes)
        host = host_of_passes(passes, sequences, r)
        return total("TTFT", [*(one.parts if turns == 1.0 else in_turn(one, turns)), host], "s")


def inference_case(row: Row) -> InferenceCase:
    """Return a row as a case.

    Raises
    ------
    Skipped : the row is flagged or cannot be predicted.
    """
    if reasons := against(row):
        raise Skipped(reasons)
    return case_of(row)


def case_of(row: Row) -> InferenceCase:
    """Return a row as a case, ignoring its quality flags.

    Raises
    ------
    Skipped : the row cannot be predicted.
    """
    checked(row)
    assumed = Assumed()
    measured = measured_of(row)
    if not measured:
        raise Skipped("no figure that is predicted")
    engine = launched(row, engine_of(row, assumed))
    model = served_model(row, engine, assumed)
    found, strategy = _machine(row, model, engine, assumed)
    model = in_16_bits(row, model, found, assumed)
    if engine.stands_for and (why := supported(engine, found)):
        raise Skipped(why)
    if broken := legal(model, strategy, engine):
        raise Skipped(f"layout: {broken}")
    if why := undescribed(model, found):
        raise Skipped(f"weights: {why}")
    workload, prompt = _workload(row, engine, assumed)
    regime, users = _regime(row)
    requests = number(row, "queued_requests")
    if regime == "closed loop" and requests is None:
        assumed.add(f"requests: {ROUNDS:g} a client")
    alike = row.get("lengths") == FIXED
    several = regime == "closed loop" and (number(row, "client_concurrency") or 1.0) > 1.0
    if several and not alike and not _varied(row):
        spread = engine.bench.get("length_spread")
        alike = spread is not None and not spread.value and not engine.stands_for and _whole_lengths(row)
        how = f"all alike, as {engine.name}'s own client sends them" if alike else "within a fifth of their means"
        assumed.add(f"lengths: {how}", LENGTHS)
    kind = row.get("metric_kind", "")
    if kind and kind not in METRIC_KINDS:
        assumed.add(f"metric_kind {kind}: read as if it were blank")
    found_case = InferenceCase(
        row=row,
        model=model,
        machine=found,
        engine=engine,
        strategy=strategy,
        workload=workload,
        prompt=prompt,
        regime=regime,
        users=users,
        clients=_integer(number(row, "client_concurrency")),
        requests=_integer(requests),
        arrivals=_arrivals(row),
        kv_bytes=element_bytes(_cache(row, model, engine, assumed)),
        measured=measured,
        statistic=_statistic(row.get("percentile", ""), assumed),
        assumed=tuple(assumed.texts.values()),
        unstated=tuple(assumed.unstated),
        alike=alike,
    )
    return with_launch_settings(found_case)


def _statistic(said: str, assumed: Assumed) -> Statistic:
    """Return the statistic that a row says its times are.

    Raises
    ------
    Skipped : it is an extreme, or the cell states several.
    """
    if EXTREME.search(said):
        raise Skipped(f"percentile: {said} is not predicted, as it grows with the number of requests")
    if len(set(PERCENTILE.findall(said.lower()))) > 1:
        raise Skipped(f"percentile: {said} states two; write a row for each")
    if said and not KNOWN_STATISTIC.search(said.lower()):
        assumed.add(f"percentile {said}: read as the mean")
    return statistic(said)


def _varied(row: Row) -> bool:
    """Return whether the lengths of a run's requests vary."""
    return "len_distribution" in flags(row) or row.get("lengths") == SHAREGPT


def _whole_lengths(row: Row) -> bool:
    """Return whether prompt and answer are whole numbers of tokens; means of drawn lengths seldom are."""
    stated = (number(row, "input_len"), number(row, "output_len"))
    return all(length is not None and length.is_integer() for length in stated)


def _integer(value: float | None) -> int | None:
    return None if value is None else max(1, round(value))


def measured_of(row: Row) -> dict[str, float]:
    """Return the published figures of a row by metric, in SI, without those derived from other figures.

    A rate of prompts of unknown length says nothing; beside it the rate of decoding still does.
    """
    out = {}
    one_token = number(row, "output_len") == 1.0
    for metric, column, scale in (("tpot", "tpot_ms", 1e-3), ("ttft", "ttft_ms", 1e-3)):
        value = number(row, column)
        if value is not None and value > 0.0 and not (one_token and metric == "tpot"):
            out[metric] = value * scale
    prompts, output = number(row, "prefill_tokens_per_s"), number(row, "output_tokens_per_s")
    if prompts and (row.get("input_len") or not (output or "tpot" in out)):
        out["prefill_tokens_per_second"] = prompts
    if not (out or output):
        output = _rate_of_whole(row)
    follows = row.get("metric_kind") == "latency" and "tpot" in out
    if output and not follows and "throughput_derived" not in row.get("quality_flags", ""):
        out["output_tokens_per_second"] = output
    return out


def _rate_of_whole(row: Row) -> float | None:
    """Return the tokens a second of answers that a row's requests, tokens with prompts, or time of a static batch tell [token/s]."""
    prompt, answer, batch = (number(row, name) for name in ("input_len", "output_len", "running_batch"))
    requests, tokens, whole = (number(row, name) for name in ("requests_per_s", "total_tokens_per_s", "e2e_ms"))
    if not answer:
        return None
    if requests:
        return requests * answer
    if tokens and prompt:
        return tokens * answer / (prompt + answer)
    return batch * answer / (whole * 1e-3) if whole and batch and row.get("metric_kind") == "latency" else None


def fewest_ranks(model: Model, found: Machine) -> int:
    """Return the fewest devices, dividing their count, that hold a model's weights with as much memory left for its cache.

    Parameters
    ----------
    model : its layers and dimensions.
    found : devices and their memory.

    Returns
    -------
    Devices of a replica; all of them where fewer do not hold it [1].
    """
    memory = found.device.room
    for ranks in divisors(found.count):
        if 2.0 * footprint(model, Strategy(tp=ranks), element_bytes("bf16")).weights <= memory:
            return ranks
    return found.count


def _machine(row: Row, model: Model, engine: Engine, assumed: Assumed) -> tuple[Machine, Strategy]:
    device = device_of(row, assumed)
    degrees = {name: int(number(row, name) or 1) for name in ("tp", "pp", "dp", "ep", "attention_dp")}
    stated = number(row, "count") or counted(row)[1]
    count = int(stated or degrees["tp"] * degrees["pp"] * degrees["dp"])
    if stated is None:
        assumed.add(f"count: {count}, as it is not stated")
    ranks = degrees["tp"] * degrees["pp"]
    if not row.get("tp") and (row.get("dp") or row.get("pp")) and count % (ranks * degrees["dp"]) == 0:
        degrees["tp"] = count // (ranks * degrees["dp"])
    elif engine.data_attention and not row.get("attention_dp") and degrees["dp"] > 1 and ranks == count:
        degrees |= {"attention_dp": degrees["dp"], "dp": 1}  # SGLang counts its attention groups so
    found = machine_of_count(device, count)
    if found.network_name:
        assumed.add(f"network: {found.ports} x {found.network_name} a host, {default_network(found)}", NETWORK)
    if count > 1 and not any(row.get(name) for name in ("tp", "pp", "dp")):
        degrees["tp"] = count
        what = "tp" if engine.tensor else "pp"
        if row.get("metric_kind") == "max_throughput" and engine.tensor:
            degrees["tp"] = fewest_ranks(model, found)
            degrees["dp"] = count // degrees["tp"]
            assumed.add(f"layout: {degrees['dp']} replicas, the most that leave memory for their caches", LAYOUT)
        else:
            assumed.add(
                f"layout: {what} {count}, as engines are told to use all devices", LAYOUT if engine.tensor else ""
            )
    if not engine.tensor:
        degrees |= {
            "tp": 1,
            "pp": degrees["tp"] * degrees["pp"],
        }  # its devices split layers, whatever a table calls it
    if degrees["tp"] * degrees["pp"] * degrees["dp"] != count:
        raise Skipped(
            f"degrees: tp {degrees['tp']} x pp {degrees['pp']} x dp {degrees['dp']} are not the {count} devices"
        )
    return found, Strategy(**degrees)


def _cache(row: Row, model: Model, engine: Engine, assumed: Assumed) -> str:
    stated, weights = row.get("kv_precision", "").removeprefix("auto"), row["weight_precision"].lower()
    stated = stated or (weights if CACHE_WORDS.search(weights) else "")
    carried = dict(engine.raw.get("checkpoint_cache", {})).get(model.quantization.format if model.quantization else "")
    if not stated and carried is not None:
        assumed.add(f"cache: {carried}, which the quantised checkpoints published for {engine.name} ask for", CACHE)
        return str(carried)
    if not stated:
        own = cache_format(model, "checkpoint")
        assumed.add(f"cache: {own}, the engine's default for this checkpoint", CACHE)
        return own
    known = cache_of(stated)
    if known is None:
        raise Skipped(f"cache in {stated}; known: {', '.join(KV_FORMATS)}")
    return known


def _workload(row: Row, engine: Engine, assumed: Assumed) -> tuple[Workload, float]:
    """Return the workload and prompt length of a row; llama-bench decodes from an empty context where it timed prompts apart."""
    prompt, output = number(row, "input_len"), number(row, "output_len")
    one_batch = number(row, "running_batch") is not None and not row.get("ttft_ms")
    if row.get("lengths") == SHAREGPT and not (prompt and output):
        prompt, output = prompt or SHAREGPT_PROMPT, output or SHAREGPT_ANSWER
        assumed.add(f"lengths: {prompt:g} in, {output:g} out, as conversations of ShareGPT are in the mean", DATA_SET)
    if prompt is None:
        prompt = _prompt_of_data_set(row)
        if prompt is not None:
            assumed.add(f"prompt: {prompt:g} tokens, of which the source states the data set alone", PROMPT)
        elif one_batch and (row.get("output_tokens_per_s") or row.get("tpot_ms")):
            prompt = CHAT
            assumed.add(f"prompt: {prompt:g} tokens, which are not stated", PROMPT)
        else:
            raise Skipped("prompt length not stated")
    answers = row.get("client_concurrency") or row.get("output_tokens_per_s") or row.get("tpot_ms")
    if not output and answers:
        if not one_batch:
            raise Skipped("answer length not stated")
        output = TIMED
        assumed.add(f"answer: {output:g} tokens, which are not stated", ANSWER)
    answer = max(1, round(output or 1.0))
    bench = decodes_apart(row, engine) and not engine.stands_for  # others time both of one request
    if bench and row.get("prefill_tokens_per_s") and row.get("output_tokens_per_s"):
        assumed.add("decoding starts from an empty context, as llama-bench does")
        return Workload(input=1, output=answer, context=max(math.ceil(prompt), 1 + answer)), prompt
    return Workload(input=max(1, round(prompt)), output=answer, context=math.ceil(prompt) + answer), prompt


def _prompt_of_data_set(row: Row) -> float | None:
    """Return the mean prompt of the data set that a source names instead of a length [token], None where it names none."""
    if row["source_key"].startswith("mlperf-"):
        tasks = catalogue.mlperf()["tasks"].values()
        return next((sum(task["input"]) / 2.0 for task in tasks if task["model"] == row["model_name"]), None)
    return ASSUMED_PROMPT.get(row["source_key"])


def decodes_apart(row: Row, engine: Engine) -> bool:
    """Return whether a row's output rate is one of decoding alone, as llama.cpp and what is planned as it print it."""
    kind, one = row.get("metric_kind", ""), number(row, "running_batch") == 1.0
    return engine.name == "llama.cpp" and (kind == "latency" or (not kind and one and not row.get("ttft_ms")))


def tells_latency(case: InferenceCase) -> bool:
    """Return whether the prompts of a batch are so short that their time is that of starting to compute, and their rate no rate."""
    return case.at_once * case.prompt < FEWEST_TOKENS


FEWEST_TOKENS = 64.0
"""Tokens of a pass below which its time is that of starting it: prompts of 10 to 40 tokens took two to five times what larger ones imply [token]."""


def _arrivals(row: Row) -> float | None:
    rate = number(row, "request_rate")
    return rate if rate is not None and math.isfinite(rate) else None


def _regime(row: Row) -> tuple[Regime, float | None]:
    """Return how requests arrive, and the running sequences where they are known."""
    running = number(row, "running_batch")
    if running is not None:
        static = row.get("metric_kind") != "serving"
        return ("static batch" if static else "steady batch"), running
    if number(row, "client_concurrency") is not None:
        return "closed loop", None
    if row.get("metric_kind") == "max_throughput":
        return "offline", None
    if _arrivals(row) is not None:
        return "open loop", None
    if number(row, "queued_requests") is not None:
        return "burst", None
    if row.get("request_rate"):
        return "offline", None  # all at once, however many
    raise Skipped(
        "neither batch, clients, requests nor rate stated: running_batch, client_concurrency, queued_requests or request_rate"
    )


METRIC_KINDS = ("latency", "serving", "max_throughput", "prefill")
"""What `metric_kind` may say."""

QUEUEING = 1.15
"""Published users over those that memory admits above which some must have queued [1]."""


def queues(case: InferenceCase) -> bool:
    """Return whether more users are stated than memory holds at once, so that some queued and the batch size is not known."""
    if case.users is None:
        return False
    feet = footprints(case.model, case.strategy, case.kv_bytes)
    book = ledger(case.model, case.strategy, case.machine, case.engine, case.workload, feet, seats=round(case.users))
    return book.by_memory >= 1.0 and case.users > QUEUEING * book.by_memory


@lru_cache(maxsize=1)
def known_cases() -> tuple[InferenceCase, ...]:
    """Return the unflagged published rows that can be predicted."""
    found = []
    for row in catalogue.inference_rows():
        with suppress(Skipped):
            found.append(inference_case(row))
    return tuple(found)


@lru_cache(maxsize=1)
def clean_cases() -> tuple[InferenceCase, ...]:
    """Return the cases of `known_cases` whose users can all have been running."""
    return tuple(case for case in known_cases() if not queues(case))
