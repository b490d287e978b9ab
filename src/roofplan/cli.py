"""The command line: parse, call, print. Nothing is computed here."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from roofplan import __version__
from roofplan.errors import InputError, NoPlan, RoofplanError, nearest

app = App(
    name="roofplan",
    version=__version__,
    help_format="plaintext",
    help_on_error=False,
    help="A slide rule for LLM compute: does it fit, how fast, what it costs, which limit binds, and where every number came from.",
)

Text = str | None
STDIN = "stdin:"
"""What a lone ``-`` stands for on the way to the readers."""

Flag = Annotated[bool, Parameter(negative="")]
Model = Annotated[
    str, Parameter(help="- (stdin), a config.json or its folder, a catalogue id or Hub name, or hf:ORG/NAME")
]
Json = Annotated[bool, Parameter(negative="", help="one JSON document on stdout, errors included")]
Html = Annotated[Text, Parameter(allow_leading_hyphen=True, help="write the answer with its pictures to FILE")]


@app.command
def serve(
    model: Annotated[
        str | None,
        Parameter(
            allow_leading_hyphen=True,
            help="- (stdin), a config.json or its folder, a catalogue id or Hub name, or hf:ORG/NAME",
        ),
    ] = None,
    /,
    *,
    on: Annotated[
        tuple[str, ...],
        Parameter(help="ID[:COUNT|:HOSTSxPER][@NETWORK[xPORTS]]; repeat to compete; absent: the whole catalogue"),
    ] = (),
    input: Annotated[str, Parameter(allow_leading_hyphen=True, help="mean prompt, tokens")] = "1024",
    output: Annotated[str, Parameter(allow_leading_hyphen=True, help="mean answer, tokens")] = "256",
    context: Annotated[
        Text,
        Parameter(
            allow_leading_hyphen=True, help="longest request to admit; default: next power of two above input + output"
        ),
    ] = None,
    engine: Annotated[
        Text,
        Parameter(
            allow_leading_hyphen=True, help="vllm, sglang, tensorrt-llm, llama.cpp, or a version such as vllm-0.11"
        ),
    ] = None,
    precision: Annotated[
        Text,
        Parameter(
            allow_leading_hyphen=True,
            help="weight formats that compete: fp8, awq, q4_k_m, any; default: the checkpoint's own",
        ),
    ] = None,
    kv_precision: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="cache formats that compete; default: the checkpoint's own")
    ] = None,
    tpot: Annotated[Text, Parameter(allow_leading_hyphen=True, help="limit: time per output token, 50ms")] = None,
    ttft: Annotated[
        Text,
        Parameter(allow_leading_hyphen=True, help="limit: time to the first token, without waiting for a seat, 500ms"),
    ] = None,
    tokens_per_second_per_user: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="limit: least rate of one user, 20")
    ] = None,
    budget: Annotated[Text, Parameter(allow_leading_hyphen=True, help="limit: 20USD/h")] = None,
    power: Annotated[Text, Parameter(allow_leading_hyphen=True, help="limit: at the wall, 10kW")] = None,
    devices: Annotated[Text, Parameter(allow_leading_hyphen=True, help="limit: most devices")] = None,
    concurrency: Annotated[Text, Parameter(allow_leading_hyphen=True, help="demand: users at once")] = None,
    rate: Annotated[Text, Parameter(allow_leading_hyphen=True, help="demand: 4req/s")] = None,
    datacenter: Annotated[
        bool, Parameter(negative="", help="leave out cards whose licence forbids data centres")
    ] = False,
    strategy: Annotated[
        Text,
        Parameter(allow_leading_hyphen=True, help="pins: tp=8,pp=2,dp=1,ep=8,attention_dp=4; the rest is searched"),
    ] = None,
    best: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True,
            help="cost, throughput, latency, devices or energy; without a limit on time, of what takes up to 50 ms a token",
        ),
    ] = "cost",
    price: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="rent, contract, spot, or a price per device such as 2.50USD/h")
    ] = "rent",
    utilisation: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="share of full load at which a token's cost is counted")
    ] = "100%",
    prefix_hit: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="share of each prompt found in the prefix cache, 30%")
    ] = "0",
    draft: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="multi-token prediction K:ACCEPTANCE, such as 1:0.85")
    ] = None,
    top: Annotated[str, Parameter(allow_leading_hyphen=True, help="plans to show")] = "2",
    explain: Annotated[
        bool, Parameter(negative="", help="show the formulas with the numbers put in, and their sources")
    ] = False,
    depth: Annotated[str, Parameter(allow_leading_hyphen=True, help="levels of --explain")] = "2",
    json: Json = False,
    csv: Annotated[Text, Parameter(allow_leading_hyphen=True, help="write every plan to FILE")] = None,
    html: Html = None,
    emit: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="print only the launch line: vllm, sglang, trtllm or llamacpp")
    ] = None,
    request: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="read the inputs of an earlier JSON answer from FILE or -")
    ] = None,
) -> int:
    """Serving plans, ranked, priced and explained."""
    given = {
        "model": model,
        "on": list(on),
        "input": input,
        "output": output,
        "context": context,
        "engine": engine,
        "precision": precision,
        "kv_precision": kv_precision,
        "tpot": tpot,
        "ttft": ttft,
        "tokens_per_second_per_user": tokens_per_second_per_user,
        "budget": budget,
        "power": power,
        "devices": devices,
        "concurrency": concurrency,
        "rate": rate,
        "datacenter": datacenter,
        "strategy": strategy,
        "best": best,
        "price": price,
        "utilisation": utilisation,
        "prefix_hit": prefix_hit,
        "draft": draft,
        "top": top,
    }
    with _answering("serve", given, as_json=json) as reply:
        if request is not None:
            given = _read_request(request, given, DEFAULTS) | {
                name: x for name, x in given.items() if x != DEFAULTS[name]
            }
            reply.inputs = given
        return _serve(given, reply, explain=explain, depth=depth, csv=csv, emit=emit, html=html)
    return reply.code


def _serve(
    given: dict[str, Any],
    reply: Reply,
    *,
    explain: bool,
    depth: str,
    csv: str | None,
    emit: str | None,
    html: str | None,
) -> int:
    from roofplan import answers, report
    from roofplan.api import plan_serving
    from roofplan.units import parse_count

    if not given["model"]:
        raise InputError("MODEL is missing. Example: roofplan serve llama-3.1-70b --on h100-sxm:8", argument="MODEL")
    if csv == "":
        raise InputError("--csv: give the file to write", argument="--csv", value=csv)
    top, levels = parse_count(given["top"], "--top"), parse_count(depth, "--depth")
    flags = {key: value for key, value in given.items() if key not in {"model", "on", "draft", "top"}}
    if emit is not None:
        from roofplan.emit import engine_named

        if explain and not reply.as_json:
            raise InputError("--emit prints the launch line alone; leave out --explain", argument="--emit", value=emit)
        given["engine"] = flags["engine"] = engine_named(emit, given["engine"])
    with _progress(quiet=reply.as_json) as tick:
        result = plan_serving(given["model"], given["on"], draft_tokens=given["draft"], progress=tick, **flags)
    if csv is not None:
        _write_csv(csv, answers.csv_rows(result))
    if html is not None:
        from roofplan import charts

        reply.draw(
            html,
            f"roofplan serve {given['model']}",
            lambda page: report.serve_screen(result, page, top=top, explain=explain, depth=levels),
            lambda: charts.serving(result),
        )
    if emit is not None and not reply.as_json:
        from roofplan.emit import launch

        print(launch(result.plans[0]))
        return 0
    if reply.as_json:
        document = answers.serve_answer(result, given, top=top, explain=explain, depth=max(levels, 2))
        if emit is not None:
            document["emit"] = document["plans"][0]["launch"]
        reply.document(document)
    else:
        report.serve_screen(result, report.stdout(), top=top, explain=explain, depth=levels)
    return 0


@app.command
def model(
    model: Model,
    /,
    *,
    context: Annotated[
        Text,
        Parameter(
            allow_leading_hyphen=True, help="tokens at which the cache is counted, 8192 where the model has them"
        ),
    ] = None,
    kv_precision: Annotated[str, Parameter(allow_leading_hyphen=True, help="format of the cache")] = "bf16",
    json: Json = False,
) -> int:
    """What a model is: parameters, layers, FLOPs per token, cache bytes."""
    given = {"model": model, "context": context, "kv_precision": kv_precision}
    with _answering("model", given, as_json=json) as reply:
        from roofplan import answers, report
        from roofplan.api import known_format, read_model
        from roofplan.units import parse_length

        found = read_model(model)
        tokens = parse_length(context or "8192", "--context")
        if context is None and found.generates and found.max_positions is not None:
            tokens = min(tokens, found.max_positions)
        kv = known_format(kv_precision, "--kv-precision")
        if reply.as_json:
            facts = report.model_facts(found, tokens, kv)
            document = {**answers.base("model", "ok", given), **facts}
            document["warnings"] = [{"code": "model", "text": text} for text in found.warnings]
            reply.document(document)
        else:
            report.model_screen(found, tokens, report.stdout(), kv)
        return 0
    return reply.code


@app.command
def device(
    device: Annotated[str, Parameter(allow_leading_hyphen=True, help="id or alias")],
    /,
    *,
    what_is: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="tell which peak a quoted rate is, such as 1979TFLOPS")
    ] = None,
    json: Json = False,
) -> int:
    """Spec sheet of a device, with sources; or which peak a quoted number is."""
    given = {"device": device, "what_is": what_is}
    with _answering("device", given, as_json=json) as reply:
        from roofplan import answers, report, units
        from roofplan.catalogue.machines import device_or_server

        found, server = device_or_server(device, "DEVICE")
        if what_is is None:
            if reply.as_json:
                box = {"server": _server_json(server)} if server is not None else {}
                reply.document({**answers.base("device", "ok", given), "device": _device_json(found), **box})
            else:
                page = report.stdout()
                for line in report.server_lines(server) if server is not None else []:
                    page.line(line)
                report.device_screen(found, page)
            return 0
        rate = units.parse(what_is, "FLOP/s", "--what-is")
        matches = report.what_is(found, rate)
        if reply.as_json:
            reply.document(
                {
                    **answers.base("device", "ok", given),
                    "what_is": [{"match": text, "difference": off} for off, text in matches],
                }
            )
        else:
            for off, text in matches:
                print(f"{what_is} on {found.id} is {text}" + (f" ({off:+.1%})" if abs(off) > 5e-4 else ""))
            if not matches:
                print(
                    f"{what_is} is not a dense, sparse, FP16-accumulate, vector or doubled peak of {found.id} within 3%"
                )
        return 0 if matches else 1
    return reply.code


def _sourced(numbers: Any) -> dict[str, Any]:
    return {
        key: {"value": n.value, "unit": n.unit, "text": n.text, "source": n.source, "seen": n.seen, "kind": n.kind}
        for key, n in numbers.items()
    }


def _server_json(found: Any) -> dict[str, Any]:
    return {
        "id": found.id,
        "name": found.name,
        "accelerator": found.accelerator,
        "network": found.network,
        "quantities": _sourced(found.quantities),
        "aliases": list(found.aliases),
        "notes": list(found.notes),
    }


def _device_json(found: Any) -> dict[str, Any]:
    return {
        "id": found.id,
        "name": found.name,
        "vendor": found.vendor,
        "architecture": found.architecture,
        "quantities": _sourced(found.quantities),
        "peak": _sourced(found.peak),
        "sparse": _sourced(found.sparse),
        "measured": _sourced(found.measured),
        "scale_up": found.scale_up,
        "host_link": found.host_link,
        "peer_to_peer": found.peer_to_peer,
        "geforce_licence": found.geforce_licence,
        "aliases": list(found.aliases),
        "notes": list(found.notes),
    }


@app.command
def devices(
    text: Annotated[str, Parameter(allow_leading_hyphen=True, help="part of an id, name or alias")] = "",
    /,
    *,
    json: Json = False,
) -> int:
    """List devices and servers."""

    def rows() -> list[tuple[str, str]]:
        from roofplan import catalogue
        from roofplan.units import gib, significant

        out = []
        for name in catalogue.ids("accelerators"):
            d = catalogue.accelerator(name)
            base = d.peak.get("bf16") or d.peak.get("fp16")
            peak = f"{significant(base.value / 1e12, 4)} TFLOPS 16-bit" if base else "peak unknown"
            memory = f"{gib(d.memory)} GiB" if d.memory else "memory unknown"
            rate = f"{significant(d.bandwidth / 1e12)} TB/s" if d.bandwidth else "bandwidth unknown"
            out.append((name, f"{d.name}, {memory}, {rate}, {peak}" + _also(d.aliases)))
        return out + [
            (
                name,
                f"{catalogue.server(name).count} x {catalogue.server(name).accelerator}: {catalogue.server(name).name}",
            )
            for name in catalogue.ids("servers")
        ]

    return _listing("devices", text, rows, as_json=json)


@app.command
def models(
    text: str = "",
    /,
    *,
    families: Annotated[bool, Parameter(negative="", help="list the model_types that are understood")] = False,
    json: Json = False,
) -> int:
    """List models of the catalogue, or the families that any config.json may have."""

    def rows() -> list[tuple[str, str]]:
        from roofplan import catalogue, hf

        if families:
            return [
                (name, (hf.DECODERS.get(name) or hf.ENCODERS.get(name) or (lambda: None)).__doc__ or "")
                for name in hf.FAMILIES
            ]
        return [
            (name, catalogue.model_table(name).get("hub", "") + _also(catalogue.model_table(name).get("aliases", ())))
            for name in catalogue.ids("models")
        ]

    return _listing("models", text, rows, as_json=json)


@app.command
def frameworks(text: str = "", /, *, json: Json = False) -> int:
    """List training frameworks and versions."""

    def rows() -> list[tuple[str, str]]:
        from roofplan import catalogue

        return [
            (name, f"{f.sharding}, {f.attention} attention, released {f.released}" + _also(f.aliases))
            for name in catalogue.ids("frameworks")
            for f in [catalogue.framework(name)]
        ]

    return _listing("frameworks", text, rows, as_json=json)


@app.command
def engines(text: str = "", /, *, json: Json = False) -> int:
    """List engines and versions."""

    def rows() -> list[tuple[str, str]]:
        from roofplan import catalogue

        out = []
        for name in catalogue.ids("engines"):
            e = catalogue.engine(name)
            out.append(
                (
                    name,
                    f"{e.released}{', newest' if e.newest else ''}; {e.memory_model}, {e.admission}; {', '.join(e.vendors)}",
                )
            )
        return out

    return _listing("engines", text, rows, as_json=json)


@app.command
def networks(text: str = "", /, *, json: Json = False) -> int:
    """List links and networks."""

    def rows() -> list[tuple[str, str]]:
        from roofplan import catalogue

        found = [catalogue.link(name) for name in catalogue.ids("links")]
        return [
            (x.id, f"{x.kind}, {x.topology}, {x.quantities['bandwidth'].text} one way{_tapered(x)}" + _also(x.aliases))
            for x in found
            if "bandwidth" in x.quantities
        ]

    return _listing("networks", text, rows, as_json=json)


@app.command
def nodes(text: str = "", /, *, json: Json = False) -> int:
    """List processes with their wafer prices and defect densities."""

    def rows() -> list[tuple[str, str]]:
        from roofplan import catalogue

        found = [catalogue.node(name) for name in catalogue.ids("nodes")]
        return [
            (
                n.id,
                f"{n.name}, {n.year}; wafer {n.wafer.text}, {n.quantities['defect_density'].text}{_each(n)}"
                + _also(n.aliases),
            )
            for n in sorted(found, key=lambda node: node.year)
        ]

    return _listing("nodes", text, rows, as_json=json)


@app.command
def prices(text: str = "", /, *, json: Json = False) -> int:
    """List dated prices, newest last."""

    def rows() -> list[tuple[str, str]]:
        from roofplan import catalogue

        out = []
        for name in catalogue.ids("accelerators"):
            for p in catalogue.prices(name):
                where = " ".join(x for x in (p.provider, p.term, f"by {p.count}" if p.count else "") if x)
                out.append((name, f"{p.date:<11}{p.kind:<16}{p.value:>12,.2f} {p.unit:<6} {where} · {p.source}"))
        return out

    return _listing("prices", text, rows, as_json=json)


def _each(node: Any) -> str:
    """Return what a billion transistors of a node cost before yield, where its density is known."""
    from roofplan.economics.chip import transistor_cost
    from roofplan.units import significant

    value = transistor_cost(node)
    return "" if value is None else f", {significant(value * 1e9)} USD a billion transistors at its peak density"


def _tapered(link: Any) -> str:
    pod, taper = link.value("pod"), link.value("taper")
    return f", tapered {taper:g}:1 beyond pods of {pod:,.0f}" if pod and taper else ""


def _also(names: Any) -> str:
    return f" · also {', '.join(list(names)[:3])}" if names else ""


def _listing(command: str, text: str, rows: Callable[[], list[tuple[str, str]]], *, as_json: bool) -> int:
    given = {"text": text}
    with _answering(command, given, as_json=as_json) as reply:
        from roofplan import answers, report

        every = rows()
        wanted = text.lower()
        found = [(name, words) for name, words in every if wanted in name.lower() or wanted in words.lower()]
        if reply.as_json:
            reply.document(
                {**answers.base(command, "ok", given), "items": [{"id": name, "text": words} for name, words in found]}
            )
            return 0 if found else 1
        page = report.stdout()
        for name, words in found:
            page.line(f"{name:<26} {words}")
        if not found:
            near = nearest(text, dict(every))
            print(f"nothing holds {text!r}." + (f" Nearest: {', '.join(near)}" if near else ""), file=sys.stderr)
        return 0 if found else 1
    return reply.code


@app.command
def claims(
    text: Annotated[str, Parameter(allow_leading_hyphen=True, help="part of an id or sentence")] = "",
    /,
    *,
    topic: Annotated[Text, Parameter(allow_leading_hyphen=True, help="only this topic")] = None,
    csv: Annotated[Text, Parameter(allow_leading_hyphen=True, help="write every row to FILE")] = None,
    json: Json = False,
) -> int:
    """The articles' figures, what our laws give with their inputs, and with corrected ones."""
    given = {"text": text, "topic": topic}
    with _answering("claims", given, as_json=json) as reply:
        from roofplan import answers, report
        from roofplan.claims import claims as every
        from roofplan.claims import outcome

        topics = sorted({c.topic for c in every()})
        if topic is not None and topic not in topics:
            raise InputError(
                f"--topic: no topic {topic!r}; accepted: {', '.join(topics)}",
                argument="--topic",
                value=topic,
                nearest=nearest(topic, topics),
            )
        chosen = [
            c
            for c in every()
            if (topic is None or c.topic == topic) and (text.lower() in c.id.lower() or text.lower() in c.says.lower())
        ]
        results = [outcome(c) for c in chosen]
        rows = [
            {
                "id": r.claim.id,
                "article": r.claim.article,
                "topic": r.claim.topic,
                "says": r.claim.says,
                "claimed": r.claim.claimed,
                "unit": r.claim.unit,
                "with_its_inputs": r.with_its_inputs,
                "ours": r.ours,
                "verdict": r.computed_verdict,
                "recorded": r.claim.verdict,
                "why": r.claim.why,
            }
            for r in results
        ]
        if csv is not None:
            _write_csv(csv, rows)
        if not results:
            print(f"no claim holds {text!r}", file=sys.stderr)
        if reply.as_json:
            reply.document({**answers.base("claims", "ok", given), "claims": rows})
        elif results:
            from roofplan.report.claims import claims_screen

            claims_screen(results, report.stdout())
        return 0 if results and all(r.follows for r in results) else 1
    return reply.code


@app.command
def schema(
    command: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True,
            help="serve, train, model, device, validate, calibrate, claims, or 'cost chip', 'cost machine', 'cost tokens', 'cost rent', 'cost history'",
        ),
    ],
    /,
) -> int:
    """JSON Schema of a command's answer."""
    with _answering("schema", {"command": command}, as_json=False) as reply:
        from roofplan import answers

        print(json.dumps(answers.schema(command), indent=1))
        return 0
    return reply.code


@app.command
def train(
    model: Annotated[
        str | None,
        Parameter(
            allow_leading_hyphen=True,
            help="- (stdin), a config.json or its folder, a catalogue id or Hub name, or hf:ORG/NAME",
        ),
    ] = None,
    /,
    *,
    on: Annotated[
        tuple[str, ...],
        Parameter(help="ID[:COUNT|:HOSTSxPER][@NETWORK[xPORTS]]; repeat to compete; absent: servers of the catalogue"),
    ] = (),
    tokens: Annotated[
        Text,
        Parameter(
            allow_leading_hyphen=True,
            help="length of the run: 1T, 300B, or chinchilla for 20 a parameter; absent: one step alone",
        ),
    ] = None,
    compute: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="length of the run by its work instead: 3e24 or 1e9TFLOP")
    ] = None,
    batch: Annotated[
        Text,
        Parameter(
            allow_leading_hyphen=True, help="512seq or 4194304tok a step; default: 4 Mi tokens, 64 Ki in fine-tuning"
        ),
    ] = None,
    sequence: Annotated[
        Text,
        Parameter(allow_leading_hyphen=True, help="tokens of a sequence, 8k; default: 4096 where the model has them"),
    ] = None,
    framework: Annotated[
        Text,
        Parameter(
            allow_leading_hyphen=True,
            help="megatron, megatron-bridge, torchtitan, deepspeed, llm-foundry, litgpt, fsdp-qlora, or a version",
        ),
    ] = None,
    precision: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="of the products: bf16, fp16, fp8, mxfp8 or nvfp4")
    ] = None,
    optimizer: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True, help="adam, adam-bf16, adam-8bit, adam-fp32, sgd-momentum, adafactor or muon"
        ),
    ] = "adam",
    method: Annotated[str, Parameter(allow_leading_hyphen=True, help="full, lora, qlora or dora")] = "full",
    rank: Annotated[Text, Parameter(allow_leading_hyphen=True, help="width of a low-rank update, 16")] = None,
    base: Annotated[
        Text,
        Parameter(
            allow_leading_hyphen=True, help="format of the frozen weights; default: bnb-nf4 for qlora, bf16 for lora"
        ),
    ] = None,
    imbalance: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="tokens of the busiest rank of experts over their mean, 1")
    ] = None,
    capacity: Annotated[
        Text,
        Parameter(
            allow_leading_hyphen=True,
            help="tokens that an expert takes over their mean, 1.25: padded to as many, the rest dropped; absent: all",
        ),
    ] = None,
    fabric: Annotated[
        Text,
        Parameter(
            allow_leading_hyphen=True,
            help="a tapered network: pod=3072,taper=7 where seven devices share the rate of one beyond pods of 3,072",
        ),
    ] = None,
    strategy: Annotated[
        Text,
        Parameter(
            allow_leading_hyphen=True,
            help="pins: tp=8,pp=2,cp=1,dp=32,ep=8,micro_batch=1,interleave=5,zero=1,recompute=full,schedule=1f1b,offload=activations",
        ),
    ] = None,
    deadline: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="limit: 30d from the first step to the last, failures counted")
    ] = None,
    budget: Annotated[Text, Parameter(allow_leading_hyphen=True, help="limit: 2MUSD for the run")] = None,
    devices: Annotated[Text, Parameter(allow_leading_hyphen=True, help="limit: most devices")] = None,
    price: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="rent, contract, spot, or a price per device such as 2.50USD/h")
    ] = "rent",
    failures: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="llama3, rsc-1, consumer or article; default: by class of card")
    ] = None,
    checkpoint: Annotated[str, Parameter(allow_leading_hyphen=True, help="sync, async or memory")] = "sync",
    policy: Annotated[
        str,
        Parameter(allow_leading_hyphen=True, help="on a failure: restart, or drop the failed copy until it is back"),
    ] = "restart",
    place: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="whose electricity, an ISO code of three letters, or WOR")
    ] = "WOR",
    best: Annotated[
        Text,
        Parameter(allow_leading_hyphen=True, help="time, cost, devices or memory; default: time, without --on cost"),
    ] = None,
    top: Annotated[str, Parameter(allow_leading_hyphen=True, help="plans to show")] = "2",
    explain: Annotated[
        bool, Parameter(negative="", help="show the formulas with the numbers put in, and their sources")
    ] = False,
    depth: Annotated[str, Parameter(allow_leading_hyphen=True, help="levels of --explain")] = "2",
    json: Json = False,
    csv: Annotated[
        Text,
        Parameter(
            allow_leading_hyphen=True,
            help="write the ranked plans to FILE: the fastest of each set of degrees, the leanest",
        ),
    ] = None,
    html: Html = None,
    emit: Annotated[
        Text,
        Parameter(allow_leading_hyphen=True, help="print only the launch: megatron, torchtitan, deepspeed or fsdp"),
    ] = None,
    request: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="read the inputs of an earlier JSON answer from FILE or -")
    ] = None,
) -> int:
    """Training plans: memory of every stage, step time, days, dollars, failures, and which layout."""
    given = {
        "model": model,
        "on": list(on),
        "tokens": tokens,
        "compute": compute,
        "batch": batch,
        "sequence": sequence,
        "framework": framework,
        "precision": precision,
        "optimizer": optimizer,
        "method": method,
        "rank": rank,
        "imbalance": imbalance,
        "capacity": capacity,
        "fabric": fabric,
        "base": base,
        "strategy": strategy,
        "deadline": deadline,
        "budget": budget,
        "devices": devices,
        "price": price,
        "failures": failures,
        "checkpoint": checkpoint,
        "policy": policy,
        "place": place,
        "best": best,
        "top": top,
    }
    with _answering("train", given, as_json=json) as reply:
        if request is not None:
            from roofplan.api import TRAIN_DEFAULTS

            earlier = _read_request(request, given, TRAIN_DEFAULTS)
            given = earlier | {name: x for name, x in given.items() if x != TRAIN_DEFAULTS[name]}
            reply.inputs = given
        return _train(given, reply, explain=explain, depth=depth, csv=csv, emit=emit, html=html)
    return reply.code


def _check_emit(emit: str | None, *, alone: bool) -> None:
    """Refuse a launch in no known vocabulary, or one beside an explanation."""
    if emit is None:
        return
    from roofplan.train.emit import TARGETS

    if emit not in TARGETS:
        raise InputError(
            f"--emit: {emit!r} is not known; accepted: {', '.join(TARGETS)}",
            argument="--emit",
            value=emit,
            nearest=nearest(emit, TARGETS),
        )
    if alone:
        raise InputError("--emit prints the launch alone; leave out --explain", argument="--emit", value=emit)


def _train(
    given: dict[str, Any],
    reply: Reply,
    *,
    explain: bool,
    depth: str,
    csv: str | None,
    emit: str | None,
    html: str | None,
) -> int:
    from roofplan import answers, report
    from roofplan.api import plan_training
    from roofplan.units import parse_count

    if not given["model"]:
        raise InputError(
            "MODEL is missing. Example: roofplan train llama-3.1-70b --on h100-sxm:512@ib-ndr --tokens 1T",
            argument="MODEL",
        )
    if csv == "":
        raise InputError("--csv: give the file to write", argument="--csv", value=csv)
    _check_emit(emit, alone=explain and not reply.as_json)
    top, levels = parse_count(given["top"], "--top"), parse_count(depth, "--depth")
    flags = {key: value for key, value in given.items() if key not in {"model", "on"}}
    if emit is not None and given["framework"] is None:
        flags["framework"] = {"fsdp": "fsdp-qlora" if given["method"] != "full" else "transformers"}.get(emit, emit)
    with _progress(quiet=reply.as_json) as tick:
        result = plan_training(given["model"], given["on"], progress=tick, **flags)
    if csv is not None:
        _write_csv(csv, answers.training_csv_rows(result))
    if html is not None:
        from roofplan import charts

        reply.draw(
            html,
            f"roofplan train {given['model']}",
            lambda page: report.train_screen(result, page, top=top, explain=explain, depth=levels),
            lambda: charts.training(result),
        )
    if emit is not None and not reply.as_json:
        from roofplan.train.emit import launch

        print(launch(result.plans[0], emit))
        return 0
    if reply.as_json:
        document = answers.train_answer(result, given, top=top, explain=explain, depth=max(levels, 2))
        if emit is not None:
            from roofplan.train.emit import launch

            document["emit"] = launch(result.plans[0], emit)
        reply.document(document)
    else:
        report.train_screen(result, report.stdout(), top=top, explain=explain, depth=levels)
    return 0


@app.command
def validate(
    kind: Annotated[str, Parameter(allow_leading_hyphen=True, help="training or inference")] = "",
    file: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="a CSV file of measured runs; - for the catalogue's own")
    ] = "",
    /,
    *,
    fail_above: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="exit 1 if a metric's mean error of sources is above, 10%")
    ] = None,
    csv: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="write every figure, scored or skipped, to FILE")
    ] = None,
    html: Html = None,
    json: Json = False,
) -> int:
    """Predicted against measured: errors by source, coverage of the intervals, what was skipped and why."""
    given = {"kind": kind, "file": file, "fail_above": fail_above}
    with _answering("validate", given, as_json=json) as reply:
        from roofplan import answers, api, catalogue, report
        from roofplan.report.validation import validation_screen
        from roofplan.units import parse
        from roofplan.validation.document import csv_rows

        if not kind or not file:
            missing = "FILE" if kind else "KIND"
            raise InputError(f"{missing} is missing. Example: roofplan validate training runs.csv", argument=missing)
        limit = None if fail_above is None else parse(fail_above, "1", "--fail-above")
        if limit is not None and limit > 1.0 and "%" not in str(fail_above):
            raise InputError(
                f"--fail-above {fail_above} is {limit:.0%}: write {fail_above}% or a share of one",
                argument="--fail-above",
                value=str(fail_above),
            )
        if csv is not None and file != STDIN and Path(csv).resolve() == Path(file).resolve():
            raise InputError(f"--csv: {csv} is the table itself", argument="--csv", value=csv)
        own = {"training": catalogue.training_rows, "inference": catalogue.inference_rows}
        rows: Any = own[kind]() if file == STDIN and kind in own else file
        with _progress(quiet=json, what="rows") as tick:
            found = api.validate(kind, rows, progress=tick)
        if csv is not None:
            _write_csv(csv, csv_rows(found))
        if html is not None:
            from roofplan import charts

            title = f"roofplan validate {kind}"
            reply.draw(html, title, lambda page: validation_screen(found, page), lambda: charts.accuracy(found))
        if reply.as_json:
            reply.document(answers.validation_answer(found, given))
        else:
            validation_screen(found, report.stdout())
        scores = found.summary().values()
        if limit is not None and not scores:
            _complain("no figure was scored: nothing is shown to be within --fail-above")
        if limit is not None and not (scores and all(one.macro <= limit for one in scores)):
            return 1
    return reply.code


@app.command
def calibrate(
    *,
    with_: Annotated[
        tuple[str, ...],
        Parameter(
            name="--with",
            negative="",
            help="a CSV file of your own runs, as validate reads them; repeat for more files",
        ),
    ] = (),
    dry_run: Annotated[bool, Parameter(negative="", help="show what they do to the constants, keep nothing")] = False,
    forget: Annotated[bool, Parameter(negative="", help="remove the local profile")] = False,
    json: Json = False,
) -> int:
    """The fitted constants, and your own runs on top of them, kept in a local profile that every command then uses."""
    given = {"with": list(with_), "dry_run": dry_run, "forget": forget}
    with _answering("calibrate", given, as_json=json) as reply:
        from roofplan import answers, api, catalogue, report
        from roofplan.catalogue import profile
        from roofplan.report.calibration import constants_screen, refit_screen

        if forget and (with_ or dry_run):
            raise InputError(
                "--forget stands alone: it removes the profile, which --with makes anew", argument="--forget"
            )
        if dry_run and not with_:
            raise InputError("--dry-run needs runs to try: --with runs.csv", argument="--dry-run")
        if forget:
            gone = profile.forget()
            if json:
                reply.document(answers.forgotten_answer(gone, given))
            else:
                report.stdout().line("there was no local profile" if gone is None else f"removed {gone}")
            return 0
        if with_:
            with _progress(quiet=json, what="fits") as tick:
                found, place = api.refit(*with_, keep=not dry_run, progress=tick)
            if json:
                reply.document(answers.calibration_answer(found, place, given))
            else:
                refit_screen(found, place, report.stdout())
        elif json:
            reply.document(answers.constants_answer(given))
        else:
            constants_screen(catalogue.constants(), profile.constants(profile.path()), profile.path(), report.stdout())
    return reply.code


# Money -------------------------------------------------------------------------------------------

cost = App(name="cost", help_format="plaintext", help="What a chip, a machine, an hour and a token cost, and of what.")
app.command(cost)


@cost.command
def chip(
    device: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="a catalogue id; absent: a chip of your own")
    ] = None,
    /,
    *,
    node: Annotated[Text, Parameter(allow_leading_hyphen=True, help="process of your own chip: n7, n5, 4n, n3")] = None,
    area: Annotated[Text, Parameter(allow_leading_hyphen=True, help="of each of its dies, 814mm2")] = None,
    dies: Annotated[str, Parameter(allow_leading_hyphen=True, help="of them on a package")] = "1",
    hbm: Annotated[Text, Parameter(allow_leading_hyphen=True, help="stacked memory, 80GiB")] = None,
    gddr: Annotated[Text, Parameter(allow_leading_hyphen=True, help="memory around the package instead, 24GiB")] = None,
    memory: Annotated[Text, Parameter(allow_leading_hyphen=True, help="its generation: HBM3, HBM3e, GDDR6X")] = None,
    units: Annotated[Text, Parameter(allow_leading_hyphen=True, help="equal units on a die, such as 144")] = None,
    sold: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="units that a sold die works with, such as 132")
    ] = None,
    price: Annotated[Text, Parameter(allow_leading_hyphen=True, help="at which it is sold, 30000USD")] = None,
    volume: Annotated[Text, Parameter(allow_leading_hyphen=True, help="parts that share the design, 1M")] = None,
    html: Html = None,
    explain: Flag = False,
    depth: Annotated[str, Parameter(allow_leading_hyphen=True, help="levels of --explain")] = "2",
    json: Json = False,
) -> int:
    """Bill of materials of an accelerator, from wafer to board, with its range and its maker's margin."""
    given: dict[str, Any] = {
        "device": device,
        "node": node,
        "area": area,
        "dies": dies,
        "hbm": hbm,
        "gddr": gddr,
        "memory": memory,
        "units": units,
        "sold": sold,
        "price": price,
        "volume": volume,
    }
    with _answering("cost chip", given, as_json=json) as reply:
        from roofplan import answers, report
        from roofplan.api import fit_at_hand
        from roofplan.economics.request import bill_of_materials
        from roofplan.units import parse_count

        found = bill_of_materials(**given, fit=fit_at_hand())
        levels = parse_count(depth, "--depth")
        if html is not None:
            from roofplan import charts

            title = f"roofplan cost chip {found.chip.id}"
            reply.draw(
                html,
                title,
                lambda page: report.chip_screen(found, page, explain=explain, depth=levels),
                lambda: charts.bills(found),
            )
        if reply.as_json:
            reply.document(answers.chip_answer(found, given, depth=levels if explain else 1))
        else:
            report.chip_screen(found, report.stdout(), explain=explain, depth=levels)
    return reply.code


@cost.command(name="machine")
def cost_machine(
    *,
    on: Annotated[tuple[str, ...], Parameter(help="ID[:COUNT|:HOSTSxPER][@NETWORK[xPORTS]]; repeat to compare")] = (),
    card: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="price of a device, 1600USD; default: the newest known")
    ] = None,
    server: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="price of a host without devices, 20000USD")
    ] = None,
    networking: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="network cards and switches in all, 7200USD")
    ] = None,
    years: Annotated[str, Parameter(allow_leading_hyphen=True, help="of use")] = "3",
    interest: Annotated[str, Parameter(allow_leading_hyphen=True, help="per year, 8%")] = "0%",
    residual: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="share of the price that a sale at the end brings, 20%")
    ] = "0%",
    power: Annotated[Text, Parameter(allow_leading_hyphen=True, help="at the wall, 5kW; default: at load")] = None,
    electricity: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="price, 0.1USD/kWh; default: of the place")
    ] = None,
    pue: Annotated[
        Text,
        Parameter(allow_leading_hyphen=True, help="the site's power over the machine's; default: the newest survey"),
    ] = None,
    hosting: Annotated[Text, Parameter(allow_leading_hyphen=True, help="rack and care in all, 375USD/month")] = None,
    staff: Annotated[Text, Parameter(allow_leading_hyphen=True, help="in all, 2USD/h")] = None,
    rack: Annotated[Text, Parameter(allow_leading_hyphen=True, help="power that a rack gives and cools, 20kW")] = None,
    exchange: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="rate of another currency that prices are given in, EUR=1.04")
    ] = None,
    place: Annotated[str, Parameter(allow_leading_hyphen=True, help="whose electricity, an ISO code or WOR")] = "WOR",
    html: Html = None,
    explain: Flag = False,
    depth: Annotated[str, Parameter(allow_leading_hyphen=True, help="levels of --explain")] = "2",
    json: Json = False,
) -> int:
    """What a machine of one's own costs per hour, in parts."""
    given: dict[str, Any] = {
        "on": list(on),
        "card": card,
        "server": server,
        "networking": networking,
        "years": years,
        "interest": interest,
        "residual": residual,
        "power": power,
        "electricity": electricity,
        "pue": pue,
        "hosting": hosting,
        "staff": staff,
        "rack": rack,
        "exchange": exchange,
        "place": place,
    }
    with _answering("cost machine", given, as_json=json) as reply:
        from roofplan import answers, report
        from roofplan.api import fit_at_hand
        from roofplan.economics.request import owned_machines
        from roofplan.units import parse_count

        found = owned_machines(**given, fit=fit_at_hand())
        levels = parse_count(depth, "--depth")
        if html is not None:
            from roofplan import charts

            reply.draw(
                html,
                "roofplan cost machine",
                lambda page: report.machines_screen(found, page, explain=explain, depth=levels),
                lambda: charts.machines(found),
            )
        if reply.as_json:
            reply.document(answers.machine_answer(found, given, depth=levels if explain else 1))
        else:
            report.machines_screen(found, report.stdout(), explain=explain, depth=levels)
    return reply.code


@cost.command
def tokens(
    model: Annotated[Text, Parameter(allow_leading_hyphen=True, help="as for serve")] = None,
    /,
    *,
    on: Annotated[
        tuple[str, ...],
        Parameter(help="ID[:COUNT|:HOSTSxPER][@NETWORK[xPORTS]]; repeat to compete; absent: the whole catalogue"),
    ] = (),
    tokens: Annotated[str, Parameter(allow_leading_hyphen=True, help="of a month, in and out, 1B/month")] = "1B/month",
    input: Annotated[str, Parameter(allow_leading_hyphen=True, help="mean prompt, tokens")] = "1024",
    output: Annotated[str, Parameter(allow_leading_hyphen=True, help="mean answer, tokens")] = "256",
    peak: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="highest demand of a day over its mean, 1 to 2")
    ] = "1",
    autoscale: Annotated[bool, Parameter(negative="", help="let rented machines go in the quiet hours")] = False,
    context: Annotated[Text, Parameter(allow_leading_hyphen=True, help="longest request to admit")] = None,
    engine: Annotated[Text, Parameter(allow_leading_hyphen=True, help="vllm, sglang, tensorrt-llm, llama.cpp")] = None,
    precision: Annotated[Text, Parameter(allow_leading_hyphen=True, help="weight formats that compete")] = None,
    tpot: Annotated[Text, Parameter(allow_leading_hyphen=True, help="limit: time per output token, 50ms")] = None,
    prefix_hit: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="share of prompt tokens found in the cache")
    ] = "0%",
    utilisation: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="share of a machine's full load that is planned with")
    ] = "100%",
    price: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="rent, contract, spot, own, or a price per device")
    ] = "rent",
    api_price: Annotated[
        Text,
        Parameter(allow_leading_hyphen=True, help="IN,OUT in USD per million tokens instead of the listed, 0.15,0.60"),
    ] = None,
    training_cost: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="what training the model cost, 5.6MUSD")
    ] = None,
    lifetime_tokens: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="tokens that the model serves in its life, 100T")
    ] = None,
    place: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="whose electricity, an ISO code of three letters, or WOR")
    ] = "WOR",
    card: Annotated[Text, Parameter(allow_leading_hyphen=True, help="owning: price of a device, 1600USD")] = None,
    server: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="owning: a host without devices, 20000USD")
    ] = None,
    networking: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="owning: network cards and switches in all, 7200USD")
    ] = None,
    years: Annotated[str, Parameter(allow_leading_hyphen=True, help="owning: of use")] = "3",
    interest: Annotated[str, Parameter(allow_leading_hyphen=True, help="owning: per year, 8%")] = "0%",
    residual: Annotated[str, Parameter(allow_leading_hyphen=True, help="owning: share that a sale brings back")] = "0%",
    exchange: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="rate of another currency that prices are given in, EUR=1.04")
    ] = None,
    electricity: Annotated[Text, Parameter(allow_leading_hyphen=True, help="owning: price, 0.1USD/kWh")] = None,
    pue: Annotated[
        Text, Parameter(allow_leading_hyphen=True, help="owning: the site's power over the machine's")
    ] = None,
    hosting: Annotated[Text, Parameter(allow_leading_hyphen=True, help="owning: in all, 375USD/month")] = None,
    staff: Annotated[Text, Parameter(allow_leading_hyphen=True, help="owning: in all, 2USD/h")] = None,
    html: Html = None,
    explain: Flag = False,
    depth: Annotated[str, Parameter(allow_leading_hyphen=True, help="levels of --explain")] = "3",
    json: Json = False,
) -> int:
    """What a month's tokens cost: an API, machines rented, machines of one's own, and where they break even."""
    given: dict[str, Any] = {
        "model": model,
        "on": list(on),
        "tokens": tokens,
        "input": input,
        "output": output,
        "peak": peak,
        "autoscale": autoscale,
        "context": context,
        "engine": engine,
        "precision": precision,
        "tpot": tpot,
        "prefix_hit": prefix_hit,
        "utilisation": utilisation,
        "price": price,
        "api_price": api_price,
        "training_cost": training_cost,
        "lifetime_tokens": lifetime_tokens,
        "place": place,
        "card": card,
        "server": server,
        "networking": networking,
        "years": years,
        "interest": interest,
        "residual": residual,
        "exchange": exchange,
        "electricity": electricity,
        "pue": pue,
        "hosting": hosting,
        "staff": staff,
    }
    with _answering("cost tokens", given, as_json=json) as reply:
        from roofplan import answers, report
        from roofplan.api import token_costs
        from roofplan.units import parse_count

        if not model:
            raise InputError(
                "MODEL is missing. Example: roofplan cost tokens gpt-oss-120b --on h100-sxm:1 --tokens 1B/month",
                argument="MODEL",
            )
        flags = {name: value for name, value in given.items() if name not in {"model", "on"}}
        with _progress(quiet=json) as tick:
            found = token_costs(model, on, progress=tick, **flags)
        levels = parse_count(depth, "--depth")
        if html is not None:
            from roofplan import charts

            reply.draw(
                html,
                f"roofplan cost tokens {model}",
                lambda page: report.tokens_screen(found, page, explain=explain, depth=levels),
                lambda: charts.monthly(found),
            )
        if reply.as_json:
            reply.document(answers.tokens_answer(found, given, depth=levels if explain else 1))
        else:
            report.tokens_screen(found, report.stdout(), explain=explain, depth=levels)
    return reply.code


@cost.command
def rent(
    device: str,
    /,
    *,
    provider: Annotated[str, Parameter(allow_leading_hyphen=True, help="only this one's quotations")] = "",
    html: Html = None,
    json: Json = False,
) -> int:
    """The dated rents of a device, kind by kind, and how they went over the years."""
    given = {"device": device, "provider": provider}
    with _answering("cost rent", given, as_json=json) as reply:
        from roofplan import answers, report
        from roofplan.economics.request import rents_of

        identity, found = rents_of(device, provider)
        if html is not None:
            from roofplan import charts

            reply.draw(
                html,
                f"roofplan cost rent {identity}",
                lambda page: report.rent_screen(found, page, identity),
                lambda: [charts.price_history(identity, found)],
            )
        if reply.as_json:
            reply.document(answers.rent_answer(identity, found, given))
        else:
            report.rent_screen(found, report.stdout(), identity)
    return reply.code


@cost.command
def history(
    *,
    old: Annotated[
        str, Parameter(name="--from", allow_leading_hyphen=True, help="device that another is set against")
    ] = "v100-sxm2-32",
    new: Annotated[str, Parameter(name="--to", allow_leading_hyphen=True, help="that other")] = "b200",
    html: Html = None,
    json: Json = False,
) -> int:
    """The price of a FLOP and of a transistor over the years, and what makes one device faster than another."""
    given = {"from": old, "to": new}
    with _answering("cost history", given, as_json=json) as reply:
        from roofplan import answers, report
        from roofplan.catalogue.machines import accelerator
        from roofplan.economics.history import gain, milestones

        found, step = milestones(), gain(accelerator(old, "--from"), accelerator(new, "--to"))
        if html is not None:
            from roofplan import charts

            reply.draw(
                html,
                "roofplan cost history",
                lambda page: report.history_screen(found, step, page),
                lambda: charts.history(found, step),
            )
        if reply.as_json:
            reply.document(answers.history_answer(found, step, given))
        else:
            report.history_screen(found, step, report.stdout())
    return reply.code


# Plumbing ----------------------------------------------------------------------------------------


class Reply:
    """How an answer leaves: one JSON document, or text."""

    def __init__(self, command: str, inputs: dict[str, Any], *, as_json: bool) -> None:
        self.command = command
        self.inputs = inputs
        self.as_json = as_json
        self.code = 0

    def draw(
        self, file: str | None, title: str, screen: Callable[[Any], None], specs: Callable[[], list[dict[str, Any]]]
    ) -> None:
        """Write the answer's text and pictures as a page, where a file is asked for."""
        if file is None:
            return
        from io import StringIO

        from roofplan.charts.page import write
        from roofplan.report import Page

        text = StringIO()
        page = Page(text)
        page.unicode = True
        screen(page)
        write(file, title, text.getvalue(), specs())

    def document(self, content: dict[str, Any]) -> None:
        """Write the one JSON document of this run."""
        sys.stdout.write(json.dumps(content, indent=1, allow_nan=False) + "\n")


@contextmanager
def _answering(command: str, inputs: dict[str, Any], *, as_json: bool) -> Iterator[Reply]:
    """Turn every outcome into its exit code and its one line or document."""
    reply = Reply(command, inputs, as_json=as_json)
    try:
        if not as_json:
            _mention_profile(command)
        yield reply
    except RoofplanError as error:
        reply.code = error.exit_code
        _fail(reply, error)


def _mention_profile(command: str) -> None:
    """Say on stderr that predictions rest on the user's own runs too, or that the profile that he names is not there."""
    from roofplan import catalogue
    from roofplan.catalogue import profile

    if command not in profile.USED_BY or command == "calibrate":
        return
    shipped = catalogue.shipped_fit()
    said, stale = profile.said(shipped), profile.stale(shipped)
    if not said and not stale and not profile.named_and_absent():
        return
    from roofplan.report.page import wrapped

    text = f"profile: {said} ({profile.VARIABLE}={profile.NONE} leaves it out)"
    if stale:
        text = f"profile: {stale}"
    elif not said:
        text = f"profile: there is none at {profile.path()}, which {profile.VARIABLE} names: shipped constants hold"
    for line in wrapped(text, indent=2):
        _complain(line)


def _fail(reply: Reply, error: RoofplanError) -> None:
    if reply.as_json:
        from roofplan import answers

        reply.document(answers.failure(reply.command, reply.inputs, error))
        return
    if isinstance(error, NoPlan):
        from roofplan import report

        page = report.stdout()
        for line in report.no_plan_lines(error):
            page.line(line)
        return
    _complain(f"error: {error.message}")


@contextmanager
def _progress(*, quiet: bool, what: str = "machines") -> Iterator[Callable[[int, int], None] | None]:
    """Show count, rate and time left on a terminal once a search has taken a second."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    started = time.monotonic()
    state: dict[str, Any] = {"bar": None, "task": None}

    def tick(done: int, whole: int) -> None:
        if state["bar"] is None:
            if time.monotonic() - started < 1.0:
                return
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            shown = Progress(
                TextColumn(what),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.speed:.0f}/s"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            shown.start()
            state["task"] = shown.add_task("search", total=whole)
            state["bar"] = shown
        state["bar"].update(state["task"], completed=done, total=whole)

    try:
        yield tick
    finally:
        if state["bar"] is not None:
            state["bar"].stop()


DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("model", "context", "engine", "precision", "kv_precision", "tpot", "ttft", "budget", "power")),
    **dict.fromkeys(("tokens_per_second_per_user", "devices", "concurrency", "rate", "strategy", "draft")),
    "on": [],
    "input": "1024",
    "output": "256",
    "datacenter": False,
    "best": "cost",
    "price": "rent",
    "utilisation": "100%",
    "prefix_hit": "0",
    "top": "2",
}
"""What the inputs of ``serve`` are where nobody gives them."""


def _read_request(path: str, given: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    from roofplan.api import from_stdin

    try:
        if path in {"-", STDIN}:
            path, text = "standard input", from_stdin("--request")
        else:
            text = Path(path).read_text()
        document = json.loads(text)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else f"holds no JSON answer ({error})"
        raise InputError(f"--request: {path}: {why}", argument="--request", value=path) from None
    inputs = document.get("inputs", document) if isinstance(document, dict) else None
    if not isinstance(inputs, dict):
        raise InputError(f"--request: {path} holds no inputs", argument="--request", value=path)
    unknown = [key for key in inputs if key not in given]
    if unknown:
        raise InputError(
            f"--request: unknown input {unknown[0]!r}",
            argument="--request",
            value=unknown[0],
            nearest=nearest(unknown[0], given),
        )
    odd = next((key for key, value in inputs.items() if not _like(value, defaults[key])), None)
    if odd is not None:
        wanted = "a list of texts" if isinstance(defaults[odd], list) else "a text, with its unit where it has one"
        raise InputError(
            f"--request: {odd} is {inputs[odd]!r}; expected {wanted}", argument="--request", value=str(inputs[odd])
        )
    return defaults | inputs


def _like(value: Any, default: Any) -> bool:
    """Return whether an input that was read has the type that the flag gives."""
    if isinstance(default, bool):
        return isinstance(value, bool)
    if isinstance(default, list):
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return value is None or isinstance(value, str)


def _write_csv(path: str, rows: list[dict[str, Any]]) -> None:
    import csv

    names = list(dict.fromkeys(key for row in rows for key in row))
    try:
        with Path(path).open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=names)
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise InputError(f"--csv: {path}: {error.strerror}", argument="--csv", value=path) from None


def main(tokens: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code.

    0 a plan was found; 1 none satisfies the constraints; 2 bad input; 3 a fault of ours; 130 interrupted.
    """
    words = sys.argv[1:] if tokens is None else tokens
    if sys.stdout is None:
        _complain("error: standard output is closed: there is nowhere to write the answer")
        sys.exit(2)
    try:
        code = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        code = 0
    except OSError as error:
        _discard_output()
        _complain(f"error: cannot write the answer: {error.strerror}")
        code = 2
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _complain(line: str) -> None:
    """Write one line to standard error; where that is closed or full, the exit code alone speaks."""
    if sys.stderr is None:
        return
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _discard_output() -> None:
    """Let what is still buffered go nowhere, so that leaving writes nothing more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


UNWRITABLE = {errno.ENOSPC, errno.EBADF, errno.EIO, errno.EDQUOT}
"""Faults of the place that an answer is written to."""


def _run(words: list[str]) -> int:
    try:
        if not words:
            app.help_print()
            return 0
        result = app(_with_stdin(words), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return _usage(words, error)
    except (BrokenPipeError, KeyboardInterrupt, SystemExit):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in UNWRITABLE and error.filename is None:
            raise
        if os.environ.get("ROOFPLAN_TRACEBACK"):
            raise
        line = f"internal error: {type(error).__name__}: {error}. Please report it with the command; ROOFPLAN_TRACEBACK=1 shows where"
        if "--json" in words:
            command = words[0]
            sys.stdout.write(
                json.dumps(
                    {
                        "schema_version": "1",
                        "command": command,
                        "status": "error",
                        "error": {"code": "internal", "argument": None, "value": None, "nearest": [], "message": line},
                    }
                )
                + "\n"
            )
        else:
            _complain(line)
        return 3
    return int(result) if isinstance(result, int) else 0


def _with_stdin(words: list[str]) -> list[str]:
    """Return the words with a lone ``-`` spelled out where it means standard input: MODEL, or the value of --request."""
    out = list(words)
    for i, word in enumerate(words):
        if word == "-" and (i == 1 or words[i - 1] == "--request" or (words[0] == "validate" and i == 2)):
            out[i] = STDIN
    return out


def _usage_text(words: list[str], error: CycloptsError) -> str:
    """Return what is wrong with the words, in the terms of this command line."""
    text = " ".join(str(error).split())
    unused = getattr(error, "unused_tokens", None)
    if unused:
        hint = " Devices stand behind --on." if words[0] == "serve" else ""
        return f"roofplan {words[0]}: {' '.join(map(str, unused))!r} is left over.{hint} Options: roofplan {words[0]} --help"
    option, _, guess = text.partition(" Did you mean ")
    if guess and not nearest(option.split()[-1].strip(".-"), [guess.strip("?-")]):
        return f"{option} Options: roofplan {words[0]} --help"
    return text


def _usage(words: list[str], error: CycloptsError) -> int:
    known = [name for name in app if not name.startswith("-")]
    if words and not words[0].startswith("-") and words[0] not in known:
        near = nearest(words[0], known)
        hint = f" Nearest: {', '.join(near)}." if near else ""
        refused: RoofplanError = InputError(
            f"no command {words[0]!r}.{hint} Commands: {', '.join(known)}",
            code="unknown_command",
            argument="COMMAND",
            value=words[0],
            nearest=near,
        )
    else:
        text = _usage_text(words, error)
        refused = InputError(text, code="usage", argument=words[0] if words else None)
    reply = Reply(words[0] if words else "roofplan", {}, as_json="--json" in words)
    _fail(reply, refused)
    return 2
