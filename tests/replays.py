"""Answers whose figures may not move in a refactor: about three hundred each of serving, training, money and models, refusals, screens, pools,
load and launches, what readers make of published runs, and scenes of what laws return inside, for chosen and for random questions.

A replay runs a command line in this process and keeps a checksum of each member of its JSON document, of its explanation, of its
CSV rows and of its page with screen and pictures, floats to six digits. A figure may move only with the physics or with a fitted
constant; then ``python tests/replays.py`` records anew, and the commit names what moved it. ``python tests/replays.py show
"COMMAND"`` prints what the checksums are made of, so that two commits can be compared line by line.
"""

import datetime as dt
import functools
import io
import itertools
import json
import os
import random
import re
import sqlite3
import sys
import tempfile
import zlib
from contextlib import ExitStack, closing, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch
from urllib.parse import parse_qsl

import call_replays  # noqa: F401
import catalogue_replays  # noqa: F401
import drawn_replays  # noqa: F401
import law_replays  # noqa: F401
import row_replays
import scenes

FOLDER = Path(__file__).parent / "replay"
DAY = dt.date(2026, 11, 22)
WANTED = 200
"""Answers of each kind with a plan or a figure."""
REFUSED = 60
"""Refusals of each kind that are kept beside them."""
SHOWN = 6
"""Of so many questions of other kinds, one is asked again for its screen alone."""


class FrozenDay(dt.date):
    """A calendar that stands still: prices age and runs start by the day."""

    @classmethod
    def today(cls):
        return DAY


@contextmanager
def steady():
    """Let commands believe that it is `DAY`, without a profile of the user's own."""
    places = ("roofplan.money.prices.date", "roofplan.present.screens.training.date", "roofplan.evidence.fits.own.date")
    with ExitStack() as held:
        for place in places:
            held.enter_context(patch(place, FrozenDay))
        held.enter_context(patch.dict(os.environ, ROOFPLAN_PROFILE="none"))
        yield


FILES_OF_A_RUN = ("ledger.sqlite", "plan.json")
"""Files that a replay makes in a folder of its own."""
FLOAT = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?|-?\d+e[+-]?\d+")


def plain(text):
    """Return text without what differs between runs of one code: how long a search took, folders, digits beyond the sixth."""
    lines = [line for line in text.splitlines() if not line.strip().startswith("searched ")]
    text = "\n".join(lines)
    if any(name in text for name in FILES_OF_A_RUN):  # the search for folders before them takes seconds in a long line
        text = re.sub(rf"[^\s\"]*({'|'.join(map(re.escape, FILES_OF_A_RUN))})", r"\1", text)
    return FLOAT.sub(lambda found: f"{float(found[0]):.6g}", text)


def page_text(page):
    """Return the screen and the pictures of a page, without the vendored scripts."""
    return "\n".join(part for part in re.split(r"<script>.*?</script>", page, flags=re.DOTALL))


@contextmanager
def measured(words):
    """Let commands find the runs of ``tests/golden/ledger.sql``, and a plan where one says PLAN."""
    with tempfile.TemporaryDirectory() as place:
        ledger, plan = Path(place) / "ledger.sqlite", Path(place) / "plan.json"
        with closing(sqlite3.connect(ledger)) as made:
            made.executescript((FOLDER.parent / "golden" / "ledger.sql").read_text())
        if "PLAN" in words:
            plan.write_text(run(["serve", "llama-3.1-8b", "--on", "rtx-4090", "--json"])[1])
        with patch.dict(os.environ, ROOFPLAN_LEDGER=str(ledger)):
            yield [str(plan) if word == "PLAN" else word for word in words]


EIGHTH = 8
"""Of the published tables, one row in so many is validated at once; `row_replays` predicts the runs of every publisher."""


@contextmanager
def thinned():
    """Let commands find one row in `EIGHTH` of the published tables."""
    from roofplan import catalogue

    with ExitStack() as held:
        for name in ("training_rows", "inference_rows"):
            rows = getattr(catalogue, name)()[::EIGHTH]
            held.enter_context(patch.object(catalogue, name, lambda rows=rows: rows))
        yield


def run(words):
    """Return the exit code, the standard output and the standard error of a command, run in this process."""
    from roofplan.cli import main

    if words[0] in {"runs", "compare"} or any(word.startswith("run:") for word in words):
        with measured(words) as named:
            return _run(main, named)
    with thinned() if "stdin:" in words else nullcontext():
        return _run(main, words)


def _run(main, words):
    out, err = io.StringIO(), io.StringIO()
    with steady(), redirect_stdout(out), redirect_stderr(err):
        try:
            main(words)
            code = 0
        except SystemExit as stop:
            code = stop.code
    return code, out.getvalue(), err.getvalue()


FILES = {
    "serve": ("--csv", "--html"),
    "train": ("--csv", "--html"),
    "claims": ("--csv",),
    "validate": ("--csv", "--html"),
    "cost": ("--html",),
    "pool": ("--csv", "--html"),
    "simulate": ("--csv", "--html"),
    "benchmarks": ("--html",),
    "runs": ("--csv", "--html"),
    "compare": ("--html",),
}
"""Files that a command writes beside its answer."""
EXPLAINED = {"serve", "train", "cost chip", "cost machine", "cost tokens", "pool plan"}


def document(line):
    """Return what a command answers, by member: of its JSON, of the files that it writes beside it, of its screen."""
    words = line.split()
    if words[0] == "page":
        return page(*words[1:])
    if words[0] == "calls":
        with steady():
            return scenes.document(words[1])
    if words[0] == "rows":
        return row_replays.document(*words[1:])
    if words[0] == "screen":
        code, out, err = run(words[1:])
        return {"exit": code, "stdout": plain(out), "stderr": plain(err)}
    command = " ".join(words[:2]) if words[0] in {"cost", "pool"} else words[0]
    with tempfile.TemporaryDirectory() as place:
        flags = ["--json"] + (["--explain", "--depth", "4"] if command in EXPLAINED else [])
        for flag in FILES.get(words[0], ()):
            flags += [flag, f"{place}/{flag[2:]}"]
        code, out, err = run([*words, *flags])
        answer = lasting(json.loads(out))
        if "inputs" in answer:
            for name in ("csv", "html"):
                answer["inputs"].pop(name, None)
        members = {"exit": code, "stderr": plain(err)}
        members |= {name: plain(json.dumps(value, indent=1)) for name, value in answer.items()}
        for file in sorted(Path(place).iterdir()):
            members[file.name] = plain(page_text(file.read_text())).replace(place, "")
    return {**members, "figures": figures(answer)}


def lasting(answer):
    """Return an answer without what differs between runs of one code."""
    answer.pop("versions", None)
    answer.get("search", {}).pop("seconds", None)
    answer.get("simulation", {}).pop("cpu_seconds", None)
    return answer


def page(path):
    """Return the form of a page, and what it answers to each question that it offers."""
    from roofplan.questions import EVERY
    from roofplan.web.html import home, question_page, side_by_side
    from roofplan.web.pages import PAGES
    from roofplan.workers import answers

    if path not in PAGES:
        return {"page": plain({"home": home, "side-by-side": side_by_side}[path]())}
    found, question = {"page": plain(question_page(PAGES[path]))}, EVERY[PAGES[path].question]
    for title, query in PAGES[path].presets if path not in {"runs", "validate"} else ():
        given = {}
        for name, value in parse_qsl(query):
            many = isinstance(question.record.each()[name].default, tuple)
            given[name] = [*given.get(name, []), value] if many else value
        with steady():
            told = json.loads(answers.page(question.name, given)[1])
        lasting(told["document"])
        for name, value in told.items():
            found[f"{title}: {name}"] = plain(value if isinstance(value, str) else json.dumps(value, indent=1))
    return found


def figures(answer):
    """Return the first values of an answer, level by level, for readers of the recorded file."""
    found, level = {}, [("", answer)]
    while level and not found:
        below = []
        for path, item in level:
            if isinstance(item, dict) and isinstance(item.get("value"), float):
                found[path] = float(f"{item['value']:.6g}")
            children = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
            below += [(f"{path}.{name}".strip("."), child) for name, child in children if name != "explain"]
        level = below
    return dict(itertools.islice(found.items(), 6))


def replayed(line):
    """Return the checksums of what a command answers, and its first figures in plain."""
    return {
        name: f"{zlib.crc32(value.encode()):08x}" if isinstance(value, str) else value
        for name, value in document(line).items()
    }


# Which questions ---------------------------------------------------------------------------------

SERVED = (
    *("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-70b-awq", "llama-3.1-405b-fp8", "deepseek-v3", "deepseek-v3.2"),
    *("qwen3-32b", "qwen3-30b-a3b", "qwen3-235b-a22b", "gpt-oss-120b", "gemma-3-27b", "nemotron-h-8b", "jamba-v0.1"),
    *("mixtral-8x7b", "kimi-k2", "qwen3-next-80b-a3b", "whisper-large-v3", "llama-4-scout", "rwkv-4-14b", "kimi-k2.5"),
    *("gemma-4-26b-a4b", "minimax-m2.5", "glm-4.5-air", "falcon-40b", "granite-4.0-h-small", "qwen3-vl-8b", "opt-13b"),
    *("recurrentgemma-9b", "gemma-4-e4b", "deepseek-v4-flash", "mimo-v2-flash", "bloom-7b1", "qwen3.5-35b-a3b"),
)
MACHINES = (
    *("h100-sxm:8", "h200-sxm:8", "b200:8", "mi300x:8", "a100-sxm-80:8", "rtx-4090:8", "l40s:4", "h100-sxm:16"),
    *("rtx-4090:8x1@10gbe", "rtx-3090:2", "gb200-nvl72", "apple-m3-ultra:1", "tpu-v6e:8", "gaudi3:8", "ascend-910b:8"),
    *("h100-sxm:2x8", "a100-sxm-80:16@ib-hdr", "l4:1", "dgx-h100:2", "h800-sxm:8"),
    *("mi355x:8", "rtx-pro-6000:4", "apple-m4-max:1", "h20:8", "gh200-96:1", "b300:8", "arc-b580:2", "trainium2:16"),
    *("gb300:4", "strix-halo:1", "v100-sxm2-32:8", "rtx-5090:2", "gaudi2:8", "tpu-v5e:4", "a10g:4", "l40s:8@100gbe"),
)
ASKED = {
    "--engine": ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "vllm-0.6", "tensorrt-llm-0.8"),
    "--tpot": ("10ms", "40ms", "80ms"),
    "--ttft": ("200ms", "3s"),
    "--tokens-per-second-per-user": ("20",),
    "--rate": ("0.5req/s", "5req/s"),
    "--concurrency": ("1", "16", "300"),
    "--budget": ("30USD/h",),
    "--power": ("9kW",),
    "--devices": ("4", "16"),
    "--precision": ("fp8", "q4_k_m", "awq", "fp8,awq"),
    "--kv-precision": ("fp8",),
    "--prefix-hit": ("50%",),
    "--draft": ("1:0.8",),
    "--utilisation": ("30%",),
    "--best": ("throughput", "latency", "devices", "energy"),
    "--strategy": ("tp=8", "tp=2,pp=2", "dp=2", "ep=8", "tp=8,attention_dp=8", "pp=4", "tp=1"),
    "--input": ("128", "8000"),
    "--output": ("16", "800"),
    "--context": ("32k",),
    "--price": ("contract", "2.50USD/h", "own"),
    "--datacenter": ("",),
    "--set": ("max_num_seqs=64", "max_num_batched_tokens=4096"),
    "--top": ("1", "6"),
    "--rate 2req/s --slo": ("ttft=2s@p99,tpot=80ms", "e2e=60s@p90"),
}
TRAINED = (
    *("llama-3.1-8b", "llama-3.1-70b", "llama-2-7b", "llama-2-70b", "gpt3-175b", "mixtral-8x7b", "qwen3-30b-a3b"),
    *("deepseek-v3", "gemma-3-27b", "llama-3.2-1b", "nemotron-h-8b", "qwen3-32b", "llama-3.1-405b", "gpt-oss-120b"),
)
CLUSTERS = (
    *("h100-sxm:64", "h100-sxm:512@ib-ndr", "a100-sxm-80:128", "rtx-4090:8", "b200:64", "mi300x:64", "tpu-v5p:64"),
    *("rtx-4090:4x8@25gbe", "h100-sxm:8", "l40s:16", "h200-sxm:256", "h100-sxm:6144@roce-meta-24kx8", "h800-sxm:256"),
)
TAUGHT = {
    "--framework": ("megatron", "megatron-bridge", "torchtitan", "deepspeed", "llm-foundry", "megatron-lm-3.0"),
    "--precision": ("fp8", "fp16", "mxfp8"),
    "--optimizer": ("adam-bf16", "adam-8bit", "sgd-momentum", "muon"),
    "--method": ("lora", "qlora"),
    "--batch": ("256seq", "1024seq", "64seq"),
    "--sequence": ("2k", "8k", "32k"),
    "--imbalance": ("1.3",),
    "--capacity": ("1.25",),
    "--deadline": ("30d",),
    "--budget": ("5MUSD",),
    "--price": ("contract", "2USD/h", "spot"),
    "--failures": ("rsc-1", "consumer"),
    "--checkpoint": ("async", "memory"),
    "--policy": ("drop",),
    "--place": ("DEU",),
    "--best": ("cost", "memory", "devices"),
    "--fabric": ("pod=32,taper=4",),
    "--method lora --rank": ("16",),
    "--method qlora --base": ("bnb-nf4",),
    "--devices": ("32",),
    "--top": ("1", "5"),
}
DEGREES = (
    "tp=8,pp=1",
    "tp=2,pp=2",
    "tp=1,pp=1",
    "tp=4,pp=4",
    "tp=1,pp=8",
    "tp=2,pp=1,cp=2",
    "tp=8,pp=4,cp=1",
    "tp=1,pp=1,cp=4",
)
PINNED = (
    *("zero=3", "zero=2,recompute=full", "recompute=full", "interleave=2", "schedule=zb-h1", "recompute=none"),
    *("offload=optimizer", "offload=activations,recompute=none", "micro_batch=2", "ep=8", "schedule=dualpipe,ep=8"),
)
OWNED = {
    "--card": ("1600USD",),
    "--server": ("20000USD",),
    "--networking": ("7200USD",),
    "--years": ("5",),
    "--interest": ("8%",),
    "--residual": ("20%",),
    "--electricity": ("0.1USD/kWh",),
    "--pue": ("1.5",),
    "--hosting": ("375USD/month",),
    "--staff": ("2USD/h",),
}
MACHINE = OWNED | {"--power": ("5kW",), "--rack": ("20kW",), "--place": ("DEU", "CHN"), "--exchange": ("EUR=1.04",)}
BOXES = (*MACHINES, "dgx-h100:8", "h100-sxm:512@ib-ndr", "rtx-5090:4", "a100-pcie-80:4", "v100-sxm2-32:8")
MONTH = OWNED | {
    "--tokens": ("10M/month", "100B/month", "3B/day"),
    "--input": ("4000",),
    "--output": ("1000",),
    "--peak": ("1.8",),
    "--tpot": ("40ms",),
    "--prefix-hit": ("40%",),
    "--utilisation": ("50%",),
    "--price": ("own", "contract", "2USD/h"),
    "--api-price": ("0.15,0.60",),
    "--place": ("FRA",),
    "--context": ("16k",),
    "--engine": ("sglang", "vllm-0.8"),
    "--precision": ("fp8", "awq"),
    "--autoscale": ("",),
    "--training-cost": ("5.6MUSD --lifetime-tokens 50T",),
}
CHIPS = {
    "--dies": ("2",),
    "--hbm": ("80GiB", "288GiB"),
    "--units": ("144",),
    "--price": ("20000USD",),
    "--volume": ("1M",),
    "--gddr": ("24GiB",),
    "--sold": ("120",),
}


def mixed(pick, flags, most):
    """Return up to `most` flags at random, each with one of its values."""
    return " ".join(f"{flag} {pick.choice(flags[flag])}" for flag in pick.sample(sorted(flags), pick.randint(0, most)))


def questions(kind):
    """Yield command lines of a kind, the same ones each time."""
    from roofplan import catalogue

    pick = random.Random(kind)  # noqa: S311 - nothing secret
    if kind == "serving":
        for number in itertools.count():
            model = SERVED[number % len(SERVED)]
            yield f"serve {model} --on {pick.choice(MACHINES)} {mixed(pick, ASKED, 4)}"
    elif kind == "training":
        for number in itertools.count():
            tokens = pick.choice(("", " --tokens 1T", " --tokens 20B"))
            pins = f" --strategy micro_batch=1,{pick.choice(DEGREES)}" if number % 8 else ""
            pins = pins.replace("micro_batch=1", pick.choice(PINNED)) if number % 2 else pins
            yield f"train {TRAINED[number % len(TRAINED)]} --on {pick.choice(CLUSTERS)}{tokens}{pins} {mixed(pick, TAUGHT, 3)}"
    elif kind == "money":
        for device in catalogue.ids("accelerators")[::3]:
            yield f"cost chip {device}"
            yield f"cost rent {device}"
        for pair in itertools.pairwise(("v100-sxm2-32", "a100-sxm-80", "h100-sxm", "b200", "rtx-4090", "mi300x")):
            yield f"cost history --from {pair[0]} --to {pair[1]}"
        for number in itertools.count():
            yield (
                f"cost machine --on {pick.choice(BOXES)} {mixed(pick, MACHINE, 5)}",
                f"cost tokens {pick.choice(SERVED)} --on {pick.choice(MACHINES)} {mixed(pick, MONTH, 4)}",
                f"cost chip --node {pick.choice(('n5', 'n3', 'n7'))} --area {pick.choice(('500mm2', '350mm2'))} {mixed(pick, CHIPS, 4)}",
                f"cost machine --on {pick.choice(BOXES)} --on {pick.choice(BOXES)} {mixed(pick, MACHINE, 3)}",
            )[number % 4]
    elif kind == "model":
        from drawn_replays import drawable

        settled = drawable()
        for number, name in enumerate([*settled, *(one for one in catalogue.ids("models") if one not in set(settled))]):
            yield f"model {name}"
            if number % 4 == 0:
                yield f"model {name} --context 1000 --kv-precision fp8"
            if number % 6 == 0:
                yield f"screen model {name}"
    elif kind == "pools":
        yield from pools(pick)
    elif kind == "pages":
        from roofplan.web.pages import PAGES

        yield from (f"page {path}" for path in ("home", "side-by-side", *PAGES))
    elif kind == "seen":
        yield from seen()
    elif kind == "refused":
        yield from refused(pick)
    elif kind == "shown":
        for other in ("serving", "training", "money", "pools"):
            yield from (f"screen {line}" for line in [*recorded(other)][::SHOWN] if not line.startswith("screen"))
    elif kind == "rows":
        yield from row_replays.questions()
    elif kind == "calls":
        yield from (f"calls {name}" for name in scenes.SCENES)
    elif kind in {"load", "launch"}:
        yield from (loaded if kind == "load" else launched)(pick)
    elif kind == "tables":
        yield from ("validate training stdin:", "validate inference stdin:")
        yield from (f"{screen}calibrate --with tests/golden/own_runs.csv --dry-run" for screen in ("", "screen "))
    else:
        yield from SCREENS


SCREENS = tuple(
    f"screen {line}"
    for line in (
        *(
            "devices",
            "devices h100",
            "models",
            "models --families",
            "engines",
            "frameworks",
            "networks",
            "nodes",
            "prices h100",
        ),
        *(
            "devices --json",
            "models qwen --json",
            "engines --json",
            "networks --json",
            "nodes --json",
            "prices b200 --json",
        ),
        *(
            "device h100-sxm",
            "device rtx-4090",
            "device dgx-h100",
            "device mi300x --json",
            "device tpu-v6e",
            "device gb200-nvl72",
        ),
        *(
            "device rtx-4090 --what-is 1321TFLOPS",
            "device h100-sxm --what-is 1979TFLOPS --json",
            "device h100-sxm --what-is 1PFLOPS",
        ),
        *(
            "claims",
            "claims headline",
            "claims --topic kv-cache",
            "claims --topic training --json",
            "claims nothing-like-it",
        ),
        *(
            f"schema {command}"
            for command in ("serve", "train", "cost chip", "cost machine", "cost tokens", "cost history")
        ),
        *(
            f"schema {command}"
            for command in ("model", "validate", "simulate", "benchmarks", "pool plan", "pool simulate")
        ),
        *(
            f"{command} --help"
            for command in ("simulate", "cost tokens", "cost machine", "cost chip", "pool plan", "validate")
        ),
        *(
            f"{command} --help"
            for command in ("pool simulate", "measure endpoint", "measure machine", "benchmarks", "compare")
        ),
        "schema nothing",
        *(
            "calibrate",
            "calibrate --json",
            "calibrate --dry-run",
            "calibrate --forget --dry-run",
            "validate",
            "validate training",
        ),
        *(
            "serve llama-3.1-70b --on h100-sxm:8",
            "serve llama-3.1-70b --on h100-sxm:8 --emit vllm",
            "serve nosuch --on h100:1",
        ),
        *(
            f"serve llama-3.1-8b --on h100-sxm:1 --emit {target}"
            for target in ("sglang", "trtllm", "llamacpp", "nosuch")
        ),
        *(
            "serve llama-3.1-70b --on rtx-4090:4",
            "serve llama-3.1-70b --on h100-sxm:8 --tpot 2ms",
            "serve --on h100-sxm:8",
        ),
        *(
            "serve llama-3.1-70b --on h100-sxm:8 --budget 1USD/h",
            "serve deepseek-v3 --on h200-sxm:8 --top 6 --best latency",
        ),
        *(
            "serve llama-3.1-8b --on h100-sxm:1 --on rtx-4090:1 --on l4:1",
            "serve llama-3.1-8b --on h100-sxm:1 --rate 900req/s",
        ),
        *(
            "serve llama-3.1-8b --on h100-sxm:1 --tpot 50",
            "serve llama-3.1-8b --on h100-sxm:1 --precision int4",
            "serve bert",
        ),
        *(
            "serve llama-3.1-8b --on h100-sxm:1 --explain --depth 3",
            "serve llama-3.1-8b --on nosuch:4",
            "nosuch",
            "--version",
        ),
        *(
            "serve llama-3.1-8b --on h100-sxm:0",
            "serve llama-3.1-8b --on h100-sxm:1 --strategy tp=3",
            "serve --help",
            "--help",
        ),
        *(
            "serve llama-3.1-8b --on h100-sxm:1 --strategy cp=2",
            "serve llama-3.1-8b --on h100-sxm:1 --context 1M",
            "train --help",
        ),
        *(
            "train llama-3.1-8b --on h100-sxm:64 --tokens 1T",
            "train llama-3.1-70b --on h100-sxm:8 --tokens 1T",
            "cost --help",
        ),
        *(
            "train llama-3.1-8b --on h100-sxm:64 --tokens 1T --explain",
            "train llama-3.1-8b --on h100-sxm:64 --batch 512",
        ),
        *(
            "train llama-3.1-8b --on h100-sxm:64 --tokens 1T --deadline 1d",
            "train llama-3.1-8b --on h100-sxm:8 --budget 10USD --tokens 1T",
        ),
        *(
            f"train llama-3.1-8b --on h100-sxm:64 --emit {target}"
            for target in ("megatron", "torchtitan", "deepspeed", "nosuch")
        ),
        *(
            f"serve {model} --on {on} --engine {engine} --emit {target} {more}"
            for engine, target in (
                ("vllm", "vllm"),
                ("sglang", "sglang"),
                ("tensorrt-llm", "trtllm"),
                ("llama.cpp", "llamacpp"),
            )
            for model, on, more in (
                ("llama-3.1-70b", "h100-sxm:8", "--precision fp8 --kv-precision fp8"),
                ("deepseek-v3", "h200-sxm:16@ib-ndr", "--context 32k"),
                ("gpt-oss-120b", "mi300x:4", "--strategy tp=4"),
                ("qwen3-30b-a3b", "h100-sxm:4", "--strategy tp=2,dp=2"),
                ("llama-3.1-8b", "rtx-4090:2", "--precision q4_k_m"),
                ("llama-3.1-8b", "rtx-4090:2", "--prefix-hit 50%"),
            )
        ),
        *(
            f"train {model} --on {on} --framework {framework} --strategy {pins} {more} --emit {target}"
            for framework, target in (
                *(("megatron", "megatron"), ("megatron-bridge", "megatron"), ("torchtitan", "torchtitan")),
                *(("deepspeed", "deepspeed"), ("transformers", "fsdp"), ("llm-foundry", "fsdp"), ("litgpt", "fsdp")),
            )
            for model, on, pins, more in (
                ("llama-3.1-8b", "h100-sxm:16@ib-ndr", "recompute=full", ""),
                ("llama-3.1-70b", "h100-sxm:64", "tp=8,pp=2,interleave=2", "--precision fp8"),
                ("mixtral-8x7b", "h100-sxm:64", "ep=8,recompute=none", "--capacity 1.25"),
                ("llama-2-7b", "rtx-4090:8", "zero=3,offload=optimizer", "--batch 64seq"),
            )
        ),
        *(
            "train mixtral-8x7b --on h100-sxm:64 --emit megatron --strategy ep=8",
            "train llama-2-7b --on rtx-4090:2 --method qlora --emit fsdp",
        ),
        *(
            "cost chip h100-sxm",
            "cost chip h100-sxm --explain",
            "cost chip --node n3 --area 600mm2 --dies 2 --hbm 288GiB",
            "cost rent h100-sxm",
        ),
        *(
            "cost machine --on rtx-4090:8 --on h100-sxm:8",
            "cost machine --on dgx-h100:8 --years 3 --interest 8%",
            "cost history",
        ),
        *(
            "cost tokens gpt-oss-120b --on h100-sxm:1",
            "cost tokens deepseek-v3.1 --on h200-sxm:8 --explain",
            "cost chip nosuch",
            "cost X --nope",
        ),
        *(
            "cost tokens llama-3.3-70b --on h100-sxm:8 --training-cost 5.6MUSD --lifetime-tokens 100T --utilisation 40%",
            "cost rent nosuch",
        ),
        *(
            "model llama-3.1-70b",
            "model nosuch",
            "model deepseek-v3 --context 8192",
            "model gpt-oss-120b",
            "model whisper-large-v3",
        ),
        *(FOLDER.parent / "golden" / "seldom_asked.txt").read_text().splitlines(),
    )
)
STREET = "--member 2xrtx-4090@1gbit:4ms --member 2xrtx-3090@1gbit:4ms --member 4xrtx-4060-ti-16@1gbit:4ms"
SLOW = "--member rtx-4090@1gbe --member rtx-3060@100mbit/20mbit:12ms --member m2-max@wifi --member rtx-3090@50mbit:30ms"


POOLED = {
    "--input": ("200", "4000"),
    "--output": ("32", "900"),
    "--context": ("16k",),
    "--best": ("throughput",),
    "--electricity": ("0.3USD/kWh",),
    "--place": ("DEU",),
}
SIMULATED = {
    "--rate": ("10req/h", "200req/h"),
    "--lengths": ("fixed", "uniform:0.5-1.5"),
    "--session": ("90min",),
    "--online": ("60%",),
    "--pattern": ("evening",),
    "--patience": ("5s",),
    "--replicas": ("2",),
    "--check": ("replication", "audit:5%", "replication+audit:10%", "none"),
    "--deposit": ("50",),
    "--withheld": ("0",),
    "--probation": ("5",),
    "--cheaters": ("lazy:10%", "lazy:5%,patient:5%"),
    "--false-alarms": ("1%",),
    "--seed": ("3",),
}
HOMES = (
    "--member 3xrtx-3060@1gbe",
    "--member rtx-4090@wifi --member 2xrtx-3060@100mbit:8ms",
    "--member 6xrtx-4060-ti-16@500mbit/40mbit:15ms --member m2-max@1gbe",
)


def pools(pick):
    """Yield questions about pools."""
    for number in range(36):
        model = ("llama-3-8b", "qwen3-32b", "qwen3-30b-a3b", "gpt-oss-20b")[number % 4]
        software = pick.choice(
            ("", "--software llama.cpp", "--software petals", "--software exo", "--software parallax")
        )
        members = f"{model} --precision q4_k_m {HOMES[number % 3]} {software} {mixed(pick, POOLED, 2)}"
        yield f"pool plan {members}"
        yield f"pool simulate {members.replace('--best throughput', '')} --days 1 --jobs 2000 {mixed(pick, SIMULATED, 4)}"
    for members in (STREET, SLOW, "--member 20xrtx-3060@100mbit:10ms --member 4xrtx-4060-ti-16@wifi:8ms"):
        for software in ("llama.cpp", "petals", "exo", "prima.cpp", "parallax"):
            yield f"pool plan llama-3.1-70b --precision q4_k_m --software {software} {members}"
        for best in ("latency", "throughput"):
            yield f"pool plan qwen3-32b --precision q8_0 --best {best} --software petals {members}"
    yield "pool plan llama-3-8b --precision q4_0 --software distributed-llama --member 4xraspberry-pi-5@1gbe"
    yield "pool plan gpt-oss-20b --member 2xrtx-3060@1gbe"
    yield "pool plan llama-3.1-405b --precision q4_k_m --member 2xrtx-4090@1gbe"
    yield f"screen pool plan llama-3.1-70b --precision q4_k_m {STREET} --explain"
    yield f"screen pool simulate qwen3-32b --precision q4_k_m {STREET} --days 2 --jobs 5000"
    for more in (
        "",
        "--store",
        "--software petals",
        "--pattern evening",
        "--check replication+audit:5%",
        "--check none",
    ):
        yield f"pool simulate qwen3-32b --precision q4_k_m {STREET} --days 2 --rate 30req/h --jobs 5000 {more}".strip()


LOADED = (
    *(
        "llama-3.1-8b --on h100-sxm:1",
        "llama-3.1-70b --on h100-sxm:8",
        "qwen3-30b-a3b --on rtx-4090:4",
        "deepseek-r1 --on h200-sxm:8",
    ),
    *(
        "gpt-oss-120b --on mi300x:2",
        "llama-3.1-8b --on l4:1 --precision fp8",
        "nemotron-h-8b --on a100-sxm-80:2",
        "gemma-3-27b --on b200:2",
    ),
)
ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "transformers", "vllm-0.6", "tgi", "lmdeploy")
LOADS = {
    "--lengths": ("uniform:0.5-1.5", "lognormal:0.8"),
    "--slo": ("ttft=500ms@p99,tpot=50ms@p95", "e2e=20s@p90"),
    "--prefix-hit": ("40%",),
    "--set": ("max_num_seqs=16", "max_num_batched_tokens=1024", "block_size=32,gpu_memory_utilization=0.8"),
    "--draft": ("1:0.8",),
    "--input": ("128", "6000"),
    "--output": ("16", "700"),
    "--burstiness": ("0.5", "inf"),
    "--warmup": ("20",),
    "--seed": ("7",),
    "--route": ("round-robin",),
    "--strategy": ("tp=1", "dp=2", "pp=2"),
    "--kv-precision": ("fp8",),
}
ARRIVING = (
    *("--rate 2req/s --requests 150", "--rate 20req/s --requests 150", "--clients 1 --requests 20", "--burst 90"),
    *("--clients 24 --requests 150", "--rate 0.3req/s --duration 200s", "--clients 150 --requests 600"),
    "--find rate --slo ttft=2s@p99 --requests 100",
)


def loaded(pick):
    """Yield questions about load: simulated systems, the benchmark's systems, and start-up logs."""
    for number in range(128):
        engine, arriving = ENGINES[number % len(ENGINES)], ARRIVING[number // len(ENGINES) % len(ARRIVING)]
        screen = "screen " if number % 5 == 0 else ""
        flags = mixed(pick, {name: values for name, values in LOADS.items() if name not in arriving}, 3)
        yield f"{screen}simulate {pick.choice(LOADED)} --engine {engine} {arriving} {flags}"
    for model in ("", "llama-2-70b", "deepseek-r1", "llama-3.1-8b"):
        yield from (f"{screen}benchmarks {model}" for screen in ("", "screen "))
    for log, flags in (
        ("vllm-issue-10517-20k", "--model llama-3.1-8b --on rtx-3090:1"),
        ("vllm-issue-10517-29k", "--model llama-3.1-8b"),
        ("sglang-vllm-issue-21348", "--model qwen3-235b-a22b --on h100-sxm:8"),
        ("llama.cpp", "--model qwen3-0.6b --kv-precision fp8"),
    ):
        yield from (f"{screen}measure memory tests/startup/{log}.log {flags}" for screen in ("", "screen "))


LAUNCHED = {
    "--method": ("lora", "qlora", "dora"),
    "--precision": ("fp8", "fp16"),
    "--optimizer": ("adam-bf16", "adam-8bit"),
    "--sequence": ("2k", "8k"),
    "--batch": ("64seq",),
}
SCRIPTS = {
    "megatron-core": "megatron",
    "megatron-lm": "megatron",
    "transformers": "fsdp",
    "llm-foundry": "fsdp",
    "fsdp-qlora": "fsdp",
}


TIGHT = {
    "--tpot": ("2ms", "6ms"),
    "--ttft": ("10ms", "60ms"),
    "--budget": ("1USD/h", "6USD/h"),
    "--power": ("700W", "3kW"),
    "--devices": ("1", "2"),
    "--concurrency": ("500", "3000"),
    "--rate": ("30req/s", "900req/s"),
    "--tokens-per-second-per-user": ("200",),
    "--context": ("150k", "1M"),
    "--datacenter": ("",),
    "--precision": ("bf16", "fp8", "q4_k_m", "nvfp4"),
    "--kv-precision": ("fp8", "bf16"),
    "--engine": ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "tgi", "mlx-lm"),
    "--strategy": ("tp=3", "tp=16", "pp=3", "ep=3", "tp=2,attention_dp=2", "dp=8"),
    "--set": ("max_num_seqs=2", "gpu_memory_utilization=0.4", "nosuch=1"),
    "--price": ("0.1USD/h", "contract"),
}
STRICT = {
    "--batch": ("7seq", "96seq", "3seq"),
    "--sequence": ("64k", "1M", "3000"),
    "--deadline": ("1h", "2d"),
    "--budget": ("100USD", "20kUSD"),
    "--devices": ("2", "3"),
    "--precision": ("fp8", "mxfp8", "nvfp4"),
    "--method": ("lora", "qlora"),
    "--optimizer": ("adam-8bit", "muon"),
    "--framework": TAUGHT["--framework"],
    "--failures": ("consumer",),
    "--price": ("0.5USD/h",),
}
SMALL = (*MACHINES[5:7], *MACHINES[9:13], "h100-sxm:1", "rtx-4090:1", "rtx-3060:2", "l4:2", "h100-sxm:8", "mi300x:1")
REFUSALS = 110
"""Refusals of serving and of training, with their remedies."""


def refused(pick):
    """Yield questions that most often have no plan."""
    for number in itertools.count():
        yield f"serve {SERVED[number % len(SERVED)]} --on {pick.choice(SMALL)} {mixed(pick, TIGHT, 4)}"
        pins = f" --strategy {pick.choice((*DEGREES, *PINNED, 'tp=3', 'dp=5', 'zero=1'))}" if number % 2 else ""
        tokens = pick.choice(("", " --tokens 1T"))
        machine = pick.choice((*CLUSTERS[:3], "h100-sxm:4", "rtx-4090:2", "rtx-4090:8", "l40s:3", "mi300x:8"))
        yield f"train {TRAINED[number % len(TRAINED)]} --on {machine}{tokens}{pins} {mixed(pick, STRICT, 3)}"


def launched(pick):
    """Yield launches of training frameworks and engines."""
    from roofplan import catalogue

    models, clusters = TRAINED[:6] + TRAINED[9:10], CLUSTERS[:3] + CLUSTERS[4:7]
    for number in range(140):
        framework = pick.choice(catalogue.ids("frameworks"))
        name = framework.rpartition("-")[0]
        question = f"{models[number % len(models)]} --on {pick.choice(clusters)} --framework {framework}"
        flags = f"--strategy {pick.choice((*DEGREES, *PINNED))} {mixed(pick, LAUNCHED, 2)}"
        yield f"screen train {question} {flags} --emit {SCRIPTS.get(name, name)}"
    asked = {name: values for name, values in ASKED.items() if name != "--engine"}
    for number in range(60):
        engine, target = list(TARGETS.items())[number % len(TARGETS)]
        question = f"{SERVED[number % len(SERVED)]} --on {pick.choice(MACHINES)} --engine {engine}"
        yield f"screen serve {question} {mixed(pick, asked, 2)} --emit {target}"


TARGETS = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm", "llama.cpp": "llamacpp"}


def seen():
    """Yield questions about measured runs."""
    for screen in ("", "screen "):
        yield f"{screen}runs"
        for number in range(1, 16):
            yield f"{screen}runs {number}"
        for number in (1, 2, 6, 7, 9, 10):
            yield f"{screen}compare PLAN {number}"
        yield f"{screen}runs 6 --plan PLAN"
        yield f"{screen}calibrate --with run:6 --dry-run"


KINDS = (
    *("serving", "training", "money", "model", "screens", "tables", "pools", "load", "launch", "seen", "pages"),
    *("shown", "refused", "rows", "calls"),
)


@functools.cache
def recorded(kind):
    """Return the recorded answers of a kind by command line, none where nobody recorded them."""
    file = FOLDER / f"{kind}.json"
    return json.loads(file.read_text()) if file.is_file() else {}


def record(kind):
    """Record the answers of a kind anew."""
    found, counts = {}, {True: 0, False: 0}
    mixes = kind in {"serving", "training", "money"}
    for line in questions(kind):
        words = " ".join(line.split())
        answer = replayed(words)
        if words in found or (mixes and answer["exit"] and counts[False] >= REFUSED):
            continue
        if kind == "refused" and not answer["exit"]:
            continue
        found[words] = answer
        counts[answer.get("exit", 0) == 0] += 1
        if (mixes and counts[True] >= WANTED) or (kind == "refused" and counts[False] >= 2 * REFUSALS):
            break
    FOLDER.mkdir(exist_ok=True)
    lines = (f"{json.dumps(words)}: {json.dumps(answer)}" for words, answer in found.items())
    (FOLDER / f"{kind}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["show"]:
        for member, value in document(sys.argv[2]).items():
            print(f"[{member}]\n{value}")
    else:
        for name in sys.argv[1:] or KINDS:
            record(name)
