"""Write the index of the catalogue, docs/laws.md, docs/catalogue.md, docs/commands.md, docs/intervals.md, docs/accuracy.md and docs/accuracy-training.md: ``make docs``."""

import csv
import importlib
import inspect
import json
import math
import pkgutil
import re
from pathlib import Path

import roofplan.laws
from roofplan import catalogue, hf
from roofplan.api import simulate
from roofplan.evidence.training_report import page
from roofplan.records.units import gib, significant

HERE = Path(__file__).parent


def laws():
    """Return the page of laws."""
    lines = [
        "# Laws",
        "",
        "Generated from the docstrings by `make docs`. Every law is a pure function of floats or arrays, SI in and out.",
        "",
    ]
    for info in sorted(pkgutil.iter_modules(roofplan.laws.__path__), key=lambda i: i.name):
        module = importlib.import_module(f"roofplan.laws.{info.name}")
        text, _, cited = inspect.getdoc(module).partition("\n\nReferences")
        lines += [f"## {info.name}", "", text.strip(), ""]
        first = len(lines)
        every = inspect.getmembers(module, inspect.isfunction)
        members = [f for name, f in every if f.__module__ == module.__name__ and not name.startswith("_")]
        for function in sorted(members, key=lambda f: f.__code__.co_firstlineno):
            body = inspect.getdoc(function)
            claim = body.split("\n\n")[0]
            notes = body.split("Notes\n-----\n")[1].split("\n\nExamples")[0].replace("\n", " ")
            units = re.findall(r"^(\w+) : .*?\[([^\]]+)\]", body.split("Returns\n")[0], re.MULTILINE)
            given = ", ".join(f"`{name}` [{unit}]" for name, unit in units)
            result = re.search(r"\[([^\]]+)\]", body.split("Returns\n")[1])[1]
            lines += [
                f"### {info.name}.{function.__name__}",
                "",
                claim.replace("\n", " "),
                "",
                f"Takes {given}; returns [{result}].",
                "",
                notes,
                "",
            ]
        lines[first:] = [re.sub(r"\[(\d+)\]_", rf"[^{info.name}-\1]", line) for line in lines[first:]]
        found = re.findall(r"^\.\. \[(\d+)\] (.*?)(?=^\.\. \[|\Z)", cited, re.MULTILINE | re.DOTALL)
        used = "\n".join(lines[first:])
        for number, source in found:
            if f"[^{info.name}-{number}]" in used:
                lines += [f"[^{info.name}-{number}]: {' '.join(source.split())}", ""]
    return "\n".join(lines)


def accuracy():
    """Return the scoreboard: errors on publishers that no constant saw."""
    from roofplan.evidence.fits.left_out import kept
    from roofplan.evidence.fits.scoreboard import page as scoreboard

    fit = catalogue.shipped_fit()
    return scoreboard(kept(fit), fit) + one_by_one()


SERVERS = {
    "rtx4090_llama-3.1-8b": ("llama-3.1-8b", "rtx-4090:1", 256),
    "rtxpro6000_llama-3.1-8b": ("llama-3.1-8b", "rtx-pro-6000:1", 128),
    "rtxpro6000_qwen3-32b_tp2": ("qwen3-32b", "rtx-pro-6000:2", 128),
}
"""Runs of `traces/` whose requests were logged one by one: model, devices and limit of sequences."""


def one_by_one():
    """Return means of logged requests beside those of the simulator; nothing is fitted to these runs."""
    lines = [
        "",
        "## Requests one by one",
        "",
        "Three servers whose every request was logged ([where from](traces/README.md)): 300 requests in 29 s, more than the device can serve.",
        "No constant has seen them, and only what a user would state is told: model, devices, the nearest version of the engine, its two limits,",
        "and its share of memory (0.9, that version's default).",
        "",
        "| run | figure | measured | simulated | error | inside |",
        "|---|---|---:|---:|---:|---|",
    ]
    for name, (model, on, seats) in SERVERS.items():
        file = HERE / "traces" / f"{name}.csv"
        rows = list(csv.DictReader(file.read_text().splitlines()))
        said = f"max_num_seqs={seats},max_num_batched_tokens=2048,gpu_memory_utilization=0.9"
        felt = simulate(model, on=on, trace=str(file), engine="vllm-0.20", set=said, fit=catalogue.shipped_fit())
        for figure, scale, unit in (("ttft", 1.0, "s"), ("tpot", 1e3, "ms"), ("e2e", 1.0, "s")):
            measured = sum(logged(rows, figure)) / len(rows) * scale
            m = felt.simulation.figures[figure].metric
            value, low, high = (x * scale for x in (m.value, m.low, m.high))
            inside = "yes" if low <= measured <= high else "no"
            seen = f"{significant(value)} [{significant(low, 2)}, {significant(high, 2)}] {unit}"
            error = f"{value / measured - 1.0:+.0%}"
            lines.append(
                f"| {name} | {figure.upper()} | {significant(measured)} {unit} | {seen} | {error} | {inside} |"
            )
    return "\n".join([*lines, ""])


def logged(rows, figure):
    """Return a figure of every logged request, counted from when the engine queued it [s]."""
    for row in rows:
        queued, first, last = (float(row[name]) for name in ("queued_s", "first_token_s", "last_token_s"))
        tokens = max(2, int(row["output_tokens"]))
        yield {"ttft": first - queued, "e2e": last - queued, "tpot": (last - first) / (tokens - 1)}[figure]


def accuracy_training():
    """Return how far training predictions stand from published runs."""
    return page(catalogue.shipped_fit())


def catalogue_page():
    """Return the page of devices, links, engines, models, formats and fitted constants."""
    lines = [
        "# Catalogue",
        "",
        "Generated from the data files by `make docs`. Sources of each number: `roofplan device ID`.",
        "",
        "## Accelerators",
        "",
    ]
    lines += [
        "| id | name | memory | bandwidth | 16-bit dense | 8-bit dense | power |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in catalogue.ids("accelerators"):
        d = catalogue.accelerator(name)
        base, eight = d.peak.get("bf16") or d.peak.get("fp16"), d.peak.get("fp8") or d.peak.get("int8")
        memory = f"{gib(d.value('memory_capacity'))} GiB" if d.value("memory_capacity") else ""
        rate = f"{significant(d.bandwidth / 1e12)} TB/s" if d.bandwidth else ""
        peaks = [f"{significant(p.value / 1e12, 4)} TFLOPS" if p else "" for p in (base, eight)]
        power = d.quantities["power"].text if "power" in d.quantities else ""
        lines.append(f"| `{name}` | {d.name} | {memory} | {rate} | {peaks[0]} | {peaks[1]} | {power} |")
    lines += ["", "## Links and networks", "", "| id | kind | topology | one way |", "|---|---|---|---|"]
    for name in catalogue.ids("links"):
        x = catalogue.link(name)
        lines.append(
            f"| `{name}` | {x.kind} | {x.topology} | {x.quantities['bandwidth'].text if 'bandwidth' in x.quantities else ''} |"
        )
    lines += ["", "## Servers", "", "| id | devices |", "|---|---|"]
    lines += [
        f"| `{name}` | {catalogue.server(name).count} x {catalogue.server(name).accelerator} |"
        for name in catalogue.ids("servers")
    ]
    lines += ["", "## Engines", "", "| id | released | memory | admission |", "|---|---|---|---|"]
    for name in catalogue.ids("engines"):
        e = catalogue.engine(name)
        lines.append(f"| `{name}` | {e.released} | {e.memory_model} | {e.admission} |")
    lines += ["", "## Weight and cache formats", "", "| id | bits | runs in | source |", "|---|---|---|---|"]
    for name, entry in catalogue.formats().items():
        scales = f" + {entry['scale_bits']} per {entry.get('group', 1):,}" if entry.get("scale_bits") else ""
        lines.append(
            f"| `{name}` | {entry['bits']}{scales} | {entry['compute']}, {entry['kernel']} | {entry['source']} |"
        )
    lines += [
        "",
        "## Fitted constants",
        "",
        "| law | constant | scope | value | spread | rows | source |",
        "|---|---|---|---|---|---|---|",
    ]
    for c in catalogue.constants():
        lines.append(
            f"| {c.law} | {c.name} | {c.scope} | {c.value:.4g} {c.unit} | {c.spread:.0%} | {c.rows} | {c.source} |"
        )
    lines += [
        "",
        "## Models",
        "",
        ", ".join(f"`{name}`" for name in catalogue.ids("models")),
        "",
        "## Families that any config.json may have",
        "",
    ]
    lines += [", ".join(f"`{name}`" for name in hf.FAMILIES), ""]
    return "\n".join(lines)


INTERVALS = """# What an interval says

Times, rates and memory come with a bracket that is to hold nine of ten measurements of **a publisher whose runs nobody consulted**: a new
user is always one. It is made in three steps, by one function for `serve`, `train`, `cost` and `validate`; what a price adds stands beside.

**1. Causes.** The logarithm of a prediction errs by a sum of independent causes, each with a size, one standard deviation:

| cause | size | counts where |
|---|---|---|
| base | learned | always: what no law holds |
| publishers | learned | always: a user is never one of those whose runs were consulted |
| constants | learned multiple of what they leave | a part of a time rests on a constant, and its part is the slope; of a training step, the least sure constant |
| new system | learned | no run of this architecture, precision, kind of model and software stands behind the constants |
| new kind | learned | nor any of the architecture, of the precision, or of the kind of model (dense, mixture, hybrid) at all |
| clients, queue | learned | how many sequences run at once follows from clients or arrivals and was not measured; `serve` asks of clients |
| near capacity | learned multiple of how much further a queue moves than its steps do | requests of a measured run wait or come at a rate |
| front end | learned multiple of the front end's part of a first token times its spread between publishers | first tokens of clients, and of simulated loads |
| each assumed input | ln(high / low) / sqrt(12) | its plausible values move the answer from low to high; either end of unknown recomputation lies inside |
| mixture | learned | a mixture of experts |
| hybrid | learned | a model whose layers keep states besides a cache |
| other vendor | learned | an engine on a device of a vendor for which it was not first written |
| stand-in | learned | software without a profile of its own is planned as another |

The learned sizes are those under which the errors of left-out runs are most plausible, beside a guess that counts for a quarter of a publisher
([accuracy](accuracy.md#intervals)). Their root sum of squares is the **spread**.

**2. Factor.** In units of its spread, nine of ten left-out errors of a figure lie within its factor, publishers weighing equally and each shared
among its systems. The factor is enlarged until it holds nine of ten when each publisher is judged by the factor of the others.
Below ten publishers it is at least Student's t, and no coverage is claimed. Tokens a second of clients are no more certain than their time per token.

What you choose is no assumption: an engine's release, a precision or a layout that the answer names is what you are told to run. In tables of runs, a release
that a row leaves out is assumed, and the releases beside it count.

**3. Bracket.** Value / e^(factor x spread) to value x e^(factor x spread), cut where a data sheet allows no more. Your own runs
(`roofplan calibrate --with runs.csv`) put half a bracket of their own in its place, and the grade *m*, where at least five figures are of the same model on as many
devices. For other plans on the device, even one run shrinks the causes that all of its runs share (publishers, constants, other vendor, stand-in), by what it
told of the device's slowdown.

## Worked example

"""
"""What stands before the worked example of docs/intervals.md."""


def intervals():
    """Return the page that explains an interval, with an example worked by today's constants."""
    from roofplan.api import plan_serving
    from roofplan.timing.figures import TIME_PER_TOKEN, interval_factor

    fit = catalogue.shipped_fit()
    factor = interval_factor(TIME_PER_TOKEN, fit)
    lines = [
        f"Time per token, whose factor is {factor:.2f}; `roofplan serve MODEL --on DEVICE --concurrency N --explain` prints the causes, `--json` holds them as `causes`.",
        "",
        "| question | causes | spread | half a bracket | bracket |",
        "|---|---|---:|---:|---|",
    ]
    for model, device, users in EXAMPLES:
        found = plan_serving(model, [device], concurrency=users, fit=fit).plans[0].metrics["tpot"]
        ranked = sorted(found.causes, key=lambda cause: -cause[1])
        spread = math.hypot(*(size for _, size in ranked))
        said = ", ".join(f"{name} {size:.0%}" for name, size in ranked)
        low, value, high = (significant(1e3 * x) for x in (found.low, found.value, found.high))
        half = factor * spread
        cells = (
            f"{model}, {device}, {users} user{'s' * (users > 1)}",
            said,
            f"{spread:.0%}",
            f"x e^{half:.2f} = {math.exp(half):.2f}",
            f"{value} ms [{low}, {high}] {found.grade}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return INTERVALS + "\n".join(lines)


EXAMPLES = (("llama-3.1-8b", "h100-sxm:1", 1), ("llama-3.1-8b", "h100-sxm:1", 32), ("nemotron-h-8b", "mi355x:1", 1))
"""A system with runs behind it, the same under load, and one of which no part has any."""

COMMANDS = """# Commands

Written by `make docs` from the records that flags, `--request`, Python's functions and `roofplan schema COMMAND` are made from (`src/roofplan/inputs`).
Quantities are text with a unit. What stands on the command line counts before an earlier answer (`--request`), and that before defaults.

## Exit codes

| code | meaning |
|---|---|
| 0 | an answer: a plan, a run inside its limits, a log that agrees, claims that follow |
| 1 | an answer that is a no: nothing satisfies the limits; a request or probe failed, a limit of `--slo` is missed, or the run was stopped; \
an interval did not hold (`compare`); a log does not agree (`measure memory`); an error above `--fail-above` (`validate`); no row or claim is left |
| 2 | bad input: one line names the flag, the value and what would be accepted |
| 3 | a fault of ours: one line asks to report it |
| 130 | interrupted where nothing was measured |

"""
"""What stands before the commands of docs/commands.md."""


def commands():
    """Return the page of every command's inputs."""
    from roofplan.inputs import RECORDS, AgentsInputs, WebInputs

    lines = []
    for command, record in {**RECORDS, "web": WebInputs, "mcp": AgentsInputs}.items():
        lines += [f"## roofplan {command}", "", "| input | default | what |", "|---|---|---|"]
        for name, one in record.each().items():
            flag = name.upper() if one.metadata["positional"] else f"--{name.replace('_', '-')}"
            default = one.default if isinstance(one.default, str) else ""
            said = one.metadata["help"].replace("|", "\\|")
            lines.append(f"| `{flag}` | {f'`{default}`' if default else ''} | {said} |")
        lines.append("")
    return COMMANDS + "\n".join(lines).rstrip()


def pool_page():
    """Return the page of pools with its tables: proofs, published speeds, checks, verdicts."""
    from roofplan.evidence.claims import claims, outcome

    tables = {
        "proof": recorded_proofs(),
        "published": published_pools(),
        "replication": replication(),
        "audits": audits(),
        "verdicts": [
            "| claim | verdict | why |",
            "|---|---|---|",
            *(
                f"| {one.says} | {outcome(one).computed_verdict} | {one.why} |"
                for one in claims()
                if one.topic == "pool"
            ),
        ],
    }
    text = (HERE / "pool.md").read_text().rstrip()
    for name, lines in tables.items():
        block = "\n".join([f"<!-- {name} -->", "", *lines, "", "<!-- end -->"])
        text = re.sub(rf"<!-- {name} -->.*?<!-- end -->", lambda _, block=block: block, text, flags=re.DOTALL)
    return text


def recorded_proofs():
    """Return recorded runs over shaped links beside what the laws say of them."""
    from roofplan.measure.workers import Watched
    from roofplan.pool.proof import compared

    model = hf.from_dict(catalogue.proofs()[0].config)
    lines = [
        f"Measured on {catalogue.proofs()[0].date}: {catalogue.proofs()[0].host}; {catalogue.proofs()[0].software}; {catalogue.proofs()[0].model}.",
        "",
        "| link | figure | predicted | measured | error | inside |",
        "|---|---|---:|---:|---:|---|",
    ]
    for one in catalogue.proofs():
        seen = one.quantities
        local = Watched(tokens=(seen["alone"],), prompts=(seen["prompt_alone"],), received=None, sent=None, load=None)
        run = Watched(
            tokens=(seen["token"],),
            prompts=(seen["prompt"],),
            received=seen["received_per_token"],
            sent=seen["sent_to_load"],
            load=seen["load"],
        )
        found = compared(model, seen["weights"], one.layers, local, run, seen["rate"], 0.0, one.prompt_tokens)
        named = {
            "bytes a token, kB": (found.received, 1e-3),
            "loading, s": (found.load, 1.0),
            "time of a token, ms": (found.token, 1e3),
            "prompt of 128 tokens, ms": (found.prompt, 1e3),
        }
        for place, (name, (figure, scale)) in enumerate(named.items()):
            link = f"{8e-6 * seen['rate']:g} Mbit/s" if place == 0 else ""
            ends = f"[{significant(figure.low * scale, 2)}, {significant(figure.high * scale, 2)}]"
            lines.append(
                f"| {link} | {name} | {significant(figure.predicted * scale)} {ends} | {significant(figure.measured * scale)}"
                f" | {figure.error:+.1%} | {'yes' if figure.inside else 'no'} |"
            )
    return lines


def published_pools():
    """Return published speeds of members that share layers beside what the laws say of them."""
    from roofplan.api import plan_pool

    lines, errors, inside = [], [], 0
    with (HERE.parent / "tests" / "golden" / "pool_speeds.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        plan = plan_pool(
            row["model"],
            member=[f"{row['count']}x{row['device']}@1gbe"],
            precision="q4_0",
            input="16",
            output="16",
            software="distributed-llama",
        )
        found, measured = plan.metrics["tpot"], 1e-3 * float(row["tpot_ms"])
        error = found.value / measured - 1.0
        errors.append(abs(error))
        inside += found.low <= measured <= found.high
        lines.append(
            f"| {row['count']} x {row['device']} | {row['model']} | {significant(1.0 / found.value)}"
            f" [{significant(1.0 / found.high, 2)}, {significant(1.0 / found.low, 2)}] | {significant(1.0 / measured)} | {error:+.0%} |"
        )
    middle = sorted(errors)[len(errors) // 2]
    return [
        f"Median error {middle:.0%}, {inside} of {len(rows)} inside the interval (b4rtaz/distributed-llama, README; 1 GbE, Q40).",
        "",
        "| members | model | predicted, tok/s | published | error of the time |",
        "|---|---|---:|---:|---:|",
        *lines,
    ]


def replication():
    """Return adaptive replication beside a first simulation of the same rule."""
    from roofplan.pool.checks import Cheaters, Checking, checked

    checking = Checking(
        replication=True, audit=0.0, deposit=0.0, withheld=0, probation=0, false_alarms=0.0, valid=10, quorum=2
    )
    lines = [
        "| cheats on | overhead | before | accepted of the wrong results | before |",
        "|---:|---:|---:|---:|---:|",
    ]
    for share, overhead, accepted in (
        (1.0, "22%", "0%"),
        (0.2, "9.4%", "42%"),
        (0.05, "3.8%", "92%"),
        (0.01, "3.3%", "97%"),
    ):
        found = checked(checking, 200, [Cheaters(catalogue.pools().cheats["lazy"], 0.1, share)], 200_000, 0)
        tally = found.kinds["lazy"]
        lines.append(
            f"| {share:.0%} | {found.replicated:.1%} | {overhead} | {tally.accepted / tally.cheated:.0%} | {accepted} |"
        )
    return lines


def audits():
    """Return what cheats gain under audits with stakes."""
    from roofplan.pool.checks import Cheaters, Checking, checked, closed_form, honest_auditors

    lines = [
        "| kind | checks | cheats on | overhead | wrong delivered | gain of a cheat, jobs | expected | honesty pays from |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, cheat in catalogue.pools().cheats.items():
        checking = Checking(
            replication=cheat.patient,
            audit=0.05,
            deposit=20.0,
            withheld=20,
            probation=10,
            false_alarms=0.001,
            valid=10,
            quorum=2,
        )
        how = "replication, audits" if cheat.patient else "audits"
        for share in (1.0, 0.2, 0.05):
            who = [Cheaters(cheat, 0.1, share)]
            found = checked(checking, 200, who, 200_000, 0)
            gain, least = closed_form(checking, who[0], honest_auditors(who))
            lines.append(
                f"| {name} | {how} | {share:.0%} | {found.overhead:.1%} | {found.wrong / found.jobs:.1%}"
                f" | {found.kinds[name].gain:+.2f} | {gain:+.2f} | {least:.1%} audits |"
            )
    return lines


PAGES = {
    "pool.md": pool_page,
    "commands.md": commands,
    "laws.md": laws,
    "intervals.md": intervals,
    "catalogue.md": catalogue_page,
    "accuracy.md": accuracy,
    "accuracy-training.md": accuracy_training,
}

INDEX = catalogue.ROOT / "index.json"


def index():
    """Return the index of the catalogue's files."""
    return json.dumps(catalogue.indexed(), indent=0, sort_keys=True) + "\n"


STUB = catalogue.ROOT.parent / "__init__.pyi"

RESULTS = {
    "plan_serving": ("serve", "roofplan.serving", "Result"),
    "plan_training": ("train", "roofplan.training", "TrainingResult"),
    "simulate": ("simulate", "roofplan.simulation.felt", "Felt"),
    "plan_pool": ("pool plan", "roofplan.pool.plan", "PoolPlan"),
    "prove_pool": ("pool prove", "roofplan.pool.proof", "Proof"),
    "simulate_pool": ("pool simulate", "roofplan.pool.simulate", "PoolSimulation"),
    "token_costs": ("cost tokens", "roofplan.money.tokens", "TokenCosts"),
    "benchmarks": ("benchmarks", "roofplan.evidence.benchmarks", "Benchmarks"),
    "measure_endpoint": ("measure endpoint", "roofplan.evidence.beside", "Beside"),
    "measure_stability": ("measure stability", "roofplan.observe", "Probed"),
    "measure_machine": ("measure machine", "roofplan.observe", "Attained"),
    "measure_memory": ("measure memory", "roofplan.evidence.startup", "Explained"),
}
"""What the Python function of a question returns: the question, and the module and the name of the type."""

BESIDE = {
    "fit": "Fit | None",
    "terms": "OwnershipTerms | None",
    "progress": "Callable[[int, int], None] | None",
    "ledger": "Path | None",
    "remark": "Callable[[str], None] | None",
}
"""Types of what functions take beside their inputs."""


def stub():
    """Return the types of the public names, for editors and checkers: each function with the inputs of its question."""
    import roofplan
    from roofplan import interactive
    from roofplan.inputs import RECORDS

    lines = [
        "# Written by docs/generate.py from the declared inputs.",
        "from collections.abc import Callable, Mapping, Sequence",
        "from pathlib import Path",
        "from typing import Any",
        "",
        "from roofplan.api import Loaded as Loaded, load_model as load_model, refit as refit, validate as validate",
        "from roofplan.errors import RoofplanError as RoofplanError",
        "from roofplan.interactive import Answer as Answer, ask as ask, device as device",
        *(f"from {module} import {name}" for _, module, name in RESULTS.values()),
        "from roofplan.money.machine import OwnershipTerms",
        "from roofplan.records.calibration import Fit",
        "from roofplan.records.model import Model",
        "",
        "__version__: str",
        f"__all__ = {roofplan.__all__!r}",
        "",
    ]
    for name, (question, _, result) in RESULTS.items():
        record = RECORDS[question]
        places = [one for one, declared in record.each().items() if declared.metadata["positional"]]
        places += ["on"] if places == ["model"] and "on" in record.each() else []
        every = {one.name: _typed(one) for one in record.each().values()}
        kept = inspect.signature(getattr(interactive, name)).parameters
        beside = [f"{one}: {BESIDE[one]} = ..." for one in kept if one in BESIDE and one not in every]
        first = [f"{one}: {every[one]}" for one in places]
        rest = [f"{one}: {kind}" for one, kind in every.items() if one not in places]
        lines += [
            f"def {name}(",
            *(f"    {one}," for one in [*first, "*", *rest, *beside]),
            f") -> Answer[{result}]: ...",
        ]
    return "\n".join(lines) + "\n"


def _typed(declared):
    """Return the type of an input as Python takes it."""
    if declared.metadata["anything"]:
        return "str | Path | Mapping[str, Any] | Model"
    if isinstance(declared.default, bool):
        return "bool = ..."
    if isinstance(declared.default, tuple):
        return "str | Sequence[str] = ..."
    needed = declared.metadata["required"]
    return "str | float" if needed else "str | float | None = ..." if declared.default is None else "str | float = ..."


if __name__ == "__main__":
    STUB.write_text(stub())
    INDEX.write_text(index())
    for name, make in PAGES.items():
        (HERE / name).write_text(make() + "\n")
