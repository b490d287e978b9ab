"""Run the examples and write what they print into docs/examples.md, docs/own-runs.md and the README: ``make examples``."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = [
    ("A 70B on one server", "serve llama-3.1-70b --on h100-sxm:8"),
    (
        "The same, where every number comes from",
        "serve llama-3.1-70b --on h100-sxm:8 --strategy tp=8 --concurrency 1 --explain",
    ),
    ("The same on eight RTX 4090 in one box", "serve llama-3.1-70b --on rtx-4090:8"),
    ("It does not fit on four", "serve llama-3.1-70b --on rtx-4090:4"),
    ("Four RTX 4090, AWQ, vLLM", "serve llama-3.1-70b-awq --on rtx-4090:4 --engine vllm"),
    ("Four RTX 4090, Q4_K_M, llama.cpp", "serve llama-3.1-70b --on rtx-4090:4 --precision q4_k_m --engine llama.cpp"),
    ("DeepSeek-V3 on eight H200", "serve deepseek-v3 --on h200-sxm:8"),
    ("DeepSeek-V3 on sixteen H100", "serve deepseek-v3 --on h100-sxm:16"),
    ("DeepSeek-V3 on eight MI300X", "serve deepseek-v3 --on mi300x:8"),
    ("Qwen3-32B AWQ on one RTX 4090", "serve qwen3-32b-awq --on rtx-4090:1"),
    ("gpt-oss-120b on one H100", "serve gpt-oss-120b --on h100-sxm:1"),
    ("Gemma 3 27B at a context of 128k", "serve gemma-3-27b --on h100-sxm:2 --context 128k --input 64k --output 1k"),
    ("A hybrid: Nemotron-H 56B", "serve nemotron-h-56b --on h100-sxm:4"),
    ("LLaMA-2 70B on eight desktops over 1 GbE", "serve llama-2-70b --on rtx-4090:8x1@1gbe --strategy pp=8"),
    ("LLaMA-2 70B on eight desktops over 10 GbE", "serve llama-2-70b --on rtx-4090:8x1@10gbe --strategy pp=8"),
    (
        "All hardware: 70B, at most 50 ms a token, under 20 USD an hour",
        "serve llama-3.1-70b --tpot 50ms --budget 20USD/h",
    ),
    (
        "What users feel: a 70B on eight H100 at four requests a second",
        "simulate llama-3.1-70b --on h100-sxm:8 --rate 4req/s --lengths lognormal:0.7 --slo ttft=500ms@p99,tpot=50ms@p95",
    ),
    (
        "The same under an hour of real conversations",
        "simulate llama-3.1-70b --on h100-sxm:8 --trace docs/traces/azure_2023_conv.csv.gz --slo ttft=1s@p99,tpot=50ms@p95",
    ),
    (
        "Where a box with four RTX 4090 gives way",
        "simulate llama-3.1-70b-awq --on rtx-4090:4 --lengths lognormal:0.7 --find rate --slo ttft=4s@p95,tpot=100ms@p95",
    ),
    (
        "DeepSeek-R1 on eight H200 for 64 clients",
        "simulate deepseek-r1 --on h200-sxm:8 --clients 64 --lengths lognormal:0.7",
    ),
    ("Published benchmarks of an accelerator, beside what is predicted", "benchmarks --device b200 --category closed"),
    ("Where ranks flip: one task per dollar", "benchmarks llama3.1-8b --per USD,device --category closed"),
    (
        "A start-up log that says why vLLM refuses a length, to the block",
        "measure memory tests/startup/vllm-issue-10517-29k.log --model llama-3.1-8b --on rtx-3090:1",
    ),
    (
        "Training: LLaMA-2 70B for 2T tokens on 2,048 A100",
        "train llama-2-70b --on a100-sxm-80:2048 --tokens 2T --batch 1024seq --sequence 4k",
    ),
    (
        "The same on 2,048 RTX 4090, and why not",
        "train llama-2-70b --on rtx-4090:256x8@25gbe --tokens 2T --batch 1024seq --sequence 4k",
    ),
    (
        "Llama-3.1-405B on 16,384 H100 of Meta's network, pods of 3,072 tapered 1:7",
        "train llama-3.1-405b --on h100-sxm:16384@roce-meta-24kx8 --tokens 15.6T --batch 2048seq --sequence 8k --top 4",
    ),
    (
        "DeepSeek-V3 on 2,048 H800, under the profile whose experts send a token once to a host as its own software did",
        "train deepseek-v3 --on h800-sxm:2048 --tokens 14.8T --batch 15360seq --sequence 4k --precision fp8 --framework megatron-bridge",
    ),
    (
        "GPT-3 175B on 1,024 A100, 300B tokens, by the article's figures",
        "train gpt3-175b --on a100-sxm-80:1024 --tokens 300B --batch 1536seq --sequence 2k --price 1USD/h --framework megatron-lm-3.0",
    ),
    (
        "QLoRA of a 70B on two RTX 4090",
        "train llama-2-70b --on rtx-4090:2 --method qlora --sequence 2k --batch 16seq --tokens 10M",
    ),
    ("Mixtral on 64 B200", "train mixtral-8x7b --on b200:64 --tokens 1T --batch 1024seq --sequence 4k"),
    (
        "A 7B from scratch on eight RTX 4090",
        "train llama-2-7b --on rtx-4090:8 --tokens chinchilla --batch 512seq --sequence 4k",
    ),
    (
        "Eight RTX 4090 against eight H100, owned: the articles' account at the newest prices known, each with its date",
        "cost machine --on rtx-4090:8 --on h100-sxm:8",
    ),
    (
        "What their tokens cost: 8 x 4090 at the article's terms",
        "serve llama-2-70b --on rtx-4090:8 --on h100-sxm:8 --price own",
    ),
    (
        "The cheapest machine of one's own for a 70B at 5 tokens a second and user",
        "serve llama-3.1-70b --price own --tokens-per-second-per-user 5",
    ),
    ("And at 20", "serve llama-3.1-70b --price own --tokens-per-second-per-user 20"),
    ("H100, from wafer to card", "cost chip h100-sxm"),
    ("And on to the token, where the chain ends at the API's price", "cost tokens llama-3.3-70b --on h100-sxm:8"),
    ("A chip of one's own", "cost chip --node n3 --area 600mm2 --dies 2 --hbm 288GiB --memory hbm4 --price 20000USD"),
    ("gpt-oss-120b: 10 million tokens a month", "cost tokens gpt-oss-120b --on h100-sxm:1 --tokens 10M/month"),
    ("A billion", "cost tokens gpt-oss-120b --on h100-sxm:1 --tokens 1B/month"),
    ("A hundred billion", "cost tokens gpt-oss-120b --on h100-sxm:1 --tokens 100B/month"),
    ("DeepSeek-V3.1: 10 million tokens a month", "cost tokens deepseek-v3.1 --on h200-sxm:8 --tokens 10M/month"),
    ("A billion of DeepSeek-V3.1's", "cost tokens deepseek-v3.1 --on h200-sxm:8 --tokens 1B/month"),
    ("A hundred billion of DeepSeek-V3.1's", "cost tokens deepseek-v3.1 --on h200-sxm:8 --tokens 100B/month"),
    (
        "DeepSeek's published day: 1,814 H800 at 2 USD an hour gave 168 billion tokens at 20 to 22 a second and user, 0.52 USD a million all in",
        "serve deepseek-v3 --on h800-sxm:18x8 --input 4382 --output 1211 --context 8k --prefix-hit 56% --tpot 50ms --price 2USD/h",
    ),
    ("Rent or buy 64 H100 for three years", "cost machine --on dgx-h100:8 --years 3 --interest 8% --residual 20%"),
    ("What an H100 rents for", "cost rent h100-sxm"),
    ("What a FLOP cost over the years, and where the speed came from", "cost history"),
    (
        "An API's price taken apart, at 40% use and with training in it",
        "cost tokens deepseek-v3.1 --on h200-sxm:8 --utilisation 40% --training-cost 5.6MUSD --lifetime-tokens 100T --explain",
    ),
    ("What a model is", "model deepseek-v3 --context 8192"),
    ("What a device is", "device rtx-4090"),
    ("Which peak a quoted number is", "device rtx-4090 --what-is 1321TFLOPS"),
    ("The articles' headline", "claims headline"),
]


STORIES = [
    (
        "A home builder: can two RTX 4090 run a 70B?",
        [
            (
                "Not in 16 bits. What would do is listed, the smallest change first:",
                "serve llama-3.1-70b --on rtx-4090:2",
                None,
            ),
            ("Pasted:", "serve llama-3.1-70b --on rtx-4090:2 --precision awq", 13),
            ("And the line that starts it:", "serve llama-3.1-70b --on rtx-4090:2 --precision awq --emit vllm", None),
            ("What the box costs by the hour:", "cost machine --on rtx-4090:2", None),
        ],
    ),
    (
        "A platform engineer: a hundred users at 50 ms a token",
        [
            (
                "How, and what would do better:",
                "serve meta-llama/Llama-3.1-70B-Instruct --on h100-sxm:8 --concurrency 100 --tpot 50ms",
                None,
            ),
            (
                "The first hint, taken:",
                "serve meta-llama/Llama-3.1-70B-Instruct --on h100-sxm:8 --concurrency 100 --tpot 50ms --precision fp8",
                13,
            ),
            (
                "Its line:",
                "serve meta-llama/Llama-3.1-70B-Instruct --on h100-sxm:8 --concurrency 100 --tpot 50ms --precision fp8 --emit vllm",
                None,
            ),
        ],
    ),
    (
        "A CFO: rent, own or buy tokens?",
        [
            (
                "Three volumes, two ways of paying, the API beside them:",
                "cost tokens gpt-oss-120b --on h100-sxm:1 --tokens 10M,1B,10B/month --price rent,own",
                None,
            ),
            ("And what the machine is made of, as an owner pays it:", "cost machine --on hgx-h100-8:1", None),
        ],
    ),
    (
        "A training lead: 70B on 1T tokens in 30 days",
        [
            ("Which cluster:", "train llama-3.1-70b --tokens 1T --deadline 30d", 32),
            (
                "Two limits at once, and what both would have to be:",
                "train llama-3.1-70b --on h100-sxm:512 --tokens 1T --deadline 20d --budget 1MUSD",
                None,
            ),
            (
                "One's own layout against the best:",
                "train llama-3.1-70b --on h100-sxm:512 --tokens 1T --strategy tp=8,pp=4 --emit megatron",
                None,
            ),
        ],
    ),
    (
        "An agent: documents only",
        [
            (
                "A refusal is a document too, with what to type instead:",
                "serve llama-3.1-70b --on h100-sxm:8 --tpot 5ms --json",
                None,
            ),
            ("`relax[0].text`, pasted:", "serve llama-3.1-70b --on h100-sxm:8 --tpot 10.7ms --emit vllm", None),
        ],
    ),
]
"""Questions that lead to a line to paste: what each step is for, its command, and the lines that are shown of it."""

DRAWN = {
    "cost machine --on rtx-4090:8 --on h100-sxm:8": ("eight-4090-against-eight-h100", 850),
    "serve llama-2-70b --on rtx-4090:8 --on h100-sxm:8 --price own": ("tokens-of-eight-4090", 1150),
    "serve llama-3.1-70b --price own --tokens-per-second-per-user 5": ("cheapest-70b-at-5", 1150),
    "serve llama-3.1-70b --price own --tokens-per-second-per-user 20": ("cheapest-70b-at-20", 1150),
    "cost chip h100-sxm": ("h100-from-wafer-to-card", 880),
    "cost tokens llama-3.3-70b --on h100-sxm:8": ("h100-from-wafer-to-token", 1320),
    "cost tokens gpt-oss-120b --on h100-sxm:1 --tokens 1B/month": ("gpt-oss-120b-month", 1380),
    "cost tokens deepseek-v3.1 --on h200-sxm:8 --tokens 1B/month": ("deepseek-month", 1380),
    "cost machine --on dgx-h100:8 --years 3 --interest 8% --residual 20%": ("sixty-four-h100", 560),
    "cost rent h100-sxm": ("h100-rents", 520),
    "cost history": ("history", 830),
    "benchmarks llama3.1-8b --per USD,device --category closed": ("benchmarks-8b", 1500),
}
"""Examples whose pictures stand below them: the file's name, and the height of what is drawn [pixel]."""

STREET = "--member 2xrtx-4090@1gbit:4ms --member 2xrtx-3090@1gbit:4ms --member 4xrtx-4060-ti-16@1gbit:4ms --member 4xrtx-3060@1gbit:4ms"
POOLS = {
    f"pool plan llama-3.1-70b --precision q4_k_m {STREET}": ("pool-plan", 700),
    f"pool simulate llama-3.1-70b --precision q4_k_m {STREET} --pattern evening --cheaters lazy:5%,patient:10%:20%": (
        "pool-simulate",
        1450,
    ),
}
"""Questions of the page on pools whose pictures it shows: the file's name, and the height of what is drawn [pixel]."""

SCREENS = (HERE.parent / "README.md", HERE / "tutorial.md", HERE / "pool.md")
"""Pages on which each block that begins with a command shows what it prints, up to ``| head -N`` lines."""

SCREEN = re.compile(r"```\n\$ roofplan ([^\n|]*?)(?: \| head -(\d+))?\n(.*?)```", re.DOTALL)
"""Such a block: the command, the number of lines, and what stands there."""


def printed(words):
    """Return what a command prints, errors last, and its exit code."""
    out = subprocess.run(
        [sys.executable, "-m", "roofplan", *words.split()], capture_output=True, text=True, check=False
    )
    return out.stdout.rstrip() + ("\n" + out.stderr.rstrip() if out.stderr else ""), out.returncode


def screen(found):
    """Return a block of a page with what its command prints today."""
    words, most, _ = found.groups()
    shown = printed(words)[0].splitlines()[: int(most) if most else None]
    head = f" | head -{most}" if most else ""
    return "\n".join(["```", f"$ roofplan {words}{head}", *shown, "```"])


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--virtual-time-budget=20000"),
)


def drawn(name, height, write):
    """Draw a page that `write` puts into a file, where a browser is at hand."""
    file = HERE / "pictures" / f"{name}.png"
    if BROWSER is not None:
        file.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as place:
            page = Path(place) / "answer.html"
            write(page)
            size = f"--window-size=900,{height}"
            call = [BROWSER, *FLAGS, size, f"--user-data-dir={place}/profile", f"--screenshot={file}", page.as_uri()]
            subprocess.run(call, capture_output=True, check=True, timeout=120)


def picture(words):
    """Return the line that shows a command's pictures, drawn anew."""
    name, height = DRAWN[words]
    drawn(name, height, lambda page: printed(f"{words} --html {page}"))
    return f"![{words}](pictures/{name}.png)"


SCOREBOARD = {
    "accuracy-step": ("tokens_per_second_per_device", 1420),
    "accuracy-memory": ("memory", 1080),
    "accuracy-tpot": ("tpot", 1560),
    "accuracy-throughput": ("output_tokens_per_second", 1700),
    "accuracy-prefill": ("prefill_tokens_per_second", 1200),
}
"""Pictures of the scoreboard: the metric of each, and the height of what is drawn [pixel]."""


def scoreboard():
    """Draw predictions of publishers left out beside what they measured."""
    from roofplan import catalogue
    from roofplan.evidence.fits.left_out import kept
    from roofplan.evidence.scoring import Validation
    from roofplan.present import charts
    from roofplan.present.charts.page import write

    for name, (metric, height) in SCOREBOARD.items():
        rows = [one for one in kept(catalogue.shipped_fit()) if one.metric == metric]
        found = Validation(kind="", rows=len(rows), outcomes=rows)
        title = "Publishers left out of every fit"
        drawn(name, height, lambda page, found=found, title=title: write(str(page), title, "", charts.accuracy(found)))


OWN = (
    "serve ./config.json --on ./mychip.toml:1 --concurrency 32",
    "validate inference runs.csv",
    "calibrate --with runs.csv --dry-run",
)
"""What the page of one's own runs asks, and of the first answer the lines that it shows."""
SHOWN = 12

URL = "http://127.0.0.1:8127"
MEASURED = (
    "measure machine --threads 1 --sustain 20s --out chip.toml",
    "serve smollm2.gguf --on chip.toml:1 --concurrency 8 --input 50 --output 32",
    f"measure endpoint {URL} --clients 1 --requests 20 --input 50 --output 32 --plan plan.json",
    f"measure endpoint {URL} --clients 2 --requests 30 --input 50 --output 32 --plan plan.json",
    f"measure endpoint {URL} --clients 4 --requests 40 --input 50 --output 32 --plan plan.json",
    f"measure endpoint {URL} --clients 8 --requests 60 --input 50 --output 32 --plan plan.json",
    f"measure endpoint {URL} --rate 1req/s --requests 30 --input 50 --output 32 --slo ttft=1s@p90,tpot=60ms@p90",
    "calibrate --with run:2 --with run:3 --with run:4 --with run:5",
    "compare plan.json 5",
    f"measure stability {URL} --every 1s --for 60s --over 300ms",
    "runs",
)
"""What is measured on a laptop without a GPU, in order, with a server of `loop/server.py`."""

MEASURED_PICTURES = {
    MEASURED[0]: ("measured-machine", 1250),
    MEASURED[4]: ("measured-load", 1900),
    MEASURED[9]: ("measured-stability", 900),
}
"""Measured pictures: the file's name, and the height of what is drawn [pixel]."""

LAPTOP = "## A laptop without a GPU: probe, plan, measure, learn"
"""Title of what is measured, which stays as it is where the server is not installed (``make loop`` installs it)."""

MINE = {
    "model_type": "llama",
    "hidden_size": 3072,
    "num_hidden_layers": 28,
    "intermediate_size": 8192,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "torch_dtype": "bfloat16",
}
"""The config.json of that page."""


def own_runs():
    """Write what the page of one's own runs prints, of the table on it and of the chip on the page of own hardware."""
    page = HERE / "own-runs.md"
    text = page.read_text()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "config.json").write_text(json.dumps(MINE))
        (place / "mychip.toml").write_text(
            re.search(r"```toml\n(.*?)```", (HERE / "own-hardware.md").read_text(), re.DOTALL)[1]
        )
        (place / "runs.csv").write_text(re.search(r"```csv\n(.*?)```", text, re.DOTALL)[1])
        answers = []
        for words in OWN:
            call = [sys.executable, "-m", "roofplan", *words.split()]
            free = {**os.environ, "ROOFPLAN_PROFILE": "none"}
            found = subprocess.run(
                call, capture_output=True, text=True, check=True, cwd=place, env=free
            ).stdout.rstrip()
            kept = found.splitlines()
            answers.append(f"$ roofplan {words}\n" + "\n".join(kept if words != OWN[0] else [*kept[:SHOWN], "..."]))
    before, _, rest = text.partition(f"```\n$ roofplan {OWN[0]}\n")
    page.write_text(before + "```\n" + "\n".join(answers) + "\n```" + rest.partition("```")[2])


def measured():
    """Return what the commands of `MEASURED` print, with their exit codes, on a server that is started for them."""
    where = [sys.executable, str(HERE / "loop" / "server.py")]
    told = {}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        model = subprocess.run([*where, "where"], capture_output=True, text=True, check=True).stdout.strip()
        (place / "smollm2.gguf").symlink_to(model)
        free = {**os.environ, "ROOFPLAN_PROFILE": "profile.toml", "ROOFPLAN_LEDGER": "ledger.sqlite"}

        def run(words, *more):
            call = [sys.executable, "-m", "roofplan", *words.split(), *more]
            return subprocess.run(call, capture_output=True, text=True, check=False, cwd=place, env=free)

        with subprocess.Popen(
            [*where, URL.rpartition(":")[2]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as server:
            try:
                time.sleep(5.0)
                for words in MEASURED:
                    page = place / "page.html"
                    drawing = ("--html", str(page)) if words in MEASURED_PICTURES else ()
                    found = run(words, *drawing)
                    told[words] = (found.stdout.rstrip(), found.returncode)
                    if drawing:
                        drawn(*MEASURED_PICTURES[words], lambda target, page=page: shutil.copy(page, target))
                    if words.startswith("serve"):
                        (place / "plan.json").write_text(run(words, "--json").stdout)
            finally:
                server.kill()
    return told


def laptop(before):
    """Return the section of what was measured, and write it into its own page; without the server, the section as it was."""
    if find_spec("xllamacpp") is None:
        return before[before.index(LAPTOP) :].rstrip().splitlines() if LAPTOP in before else []
    told = measured()
    page = HERE / "measuring.md"
    text = page.read_text()
    for words, (shown, _) in told.items():
        pattern = re.compile(r"```\n\$ roofplan " + re.escape(words) + r"\n.*?```", re.DOTALL)
        text = pattern.sub(lambda _, words=words, shown=shown: f"```\n$ roofplan {words}\n{shown}\n```", text)
    page.write_text(text)
    lines = [LAPTOP, "", "What each line means stands in [Measure what you planned](measuring.md).", ""]
    for words, (shown, code) in told.items():
        lines += ["```", f"$ roofplan {words}", shown, "```", f"exit {code}", ""]
        if words in MEASURED_PICTURES:
            lines += [f"![{words}](pictures/{MEASURED_PICTURES[words][0]}.png)", ""]
    return lines


def main():
    """Write the page of examples, and the screens of the README and of the tutorial."""
    before = (HERE / "examples.md").read_text()
    for page in SCREENS:
        page.write_text(SCREEN.sub(screen, page.read_text()))
    lines = [
        "# Examples",
        "",
        "Real output, written by `make examples`; a pipe gets the same text as a terminal, without colour.",
        "",
    ]
    for title, steps in STORIES:
        lines += [f"## {title}", ""]
        for why, words, most in steps:
            shown, code = printed(words)
            kept = shown.splitlines()[:most]
            rest = ["..."] if most and len(shown.splitlines()) > most else []
            lines += [why, "", "```", f"$ roofplan {words}", *kept, *rest, "```", f"exit {code}", ""]
    for title, words in EXAMPLES:
        shown, code = printed(words)
        lines += [f"## {title}", "", "```", f"$ roofplan {words}", shown, "```", f"exit {code}", ""]
        lines += [picture(words), ""] if words in DRAWN else []
    (HERE / "examples.md").write_text("\n".join([*lines, *laptop(before)]) + "\n")
    for words, (name, height) in POOLS.items():
        drawn(name, height, lambda page, words=words: printed(f"{words} --html {page}"))
    own_runs()
    scoreboard()


if __name__ == "__main__":
    main()
