"""What the catalogue holds: sheets of a model and a device, lists, and the schemas of answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from roofplan.errors import nearest
from roofplan.inputs import DeviceInputs, ListInputs, ModelInputs, ModelsInputs, SchemaInputs
from roofplan.questions.question import Question, Reply, question

if TYPE_CHECKING:
    from roofplan.present.screens.page import Page
    from roofplan.records.hardware import Link
    from roofplan.records.silicon import Node


@question(ModelInputs, "json", example="llama-3.1-70b")
def model(asked: ModelInputs, reply: Reply) -> None:
    """What a model is: parameters, layers, FLOPs per token, cache bytes."""
    from roofplan.api import model_of
    from roofplan.present.answers.things import model_answer
    from roofplan.present.screens.things import model_screen
    from roofplan.records.units import parse_length
    from roofplan.serving.request import known_format

    found = model_of(asked.model)
    tokens = parse_length(asked.context or "8192", "--context")
    if asked.context is None and found.generates and found.max_positions is not None:
        tokens = min(tokens, found.max_positions)
    kv = known_format(asked.kv_precision, "--kv-precision")
    answer = model_answer(found, tokens, kv, asked)
    reply.show(lambda page: model_screen(found, answer, page), lambda: answer, result=found)


@question(DeviceInputs, "json", example="h100-sxm")
def device(asked: DeviceInputs, reply: Reply) -> int:
    """Spec sheet of a device, with sources; or which peak a quoted number is."""
    from roofplan.catalogue.machines import device_or_server
    from roofplan.present.answers.things import device_answer, match_answer
    from roofplan.present.screens.things import device_screen, server_lines, what_is
    from roofplan.records import units

    found, server = device_or_server(asked.device or "", "DEVICE")
    quoted = asked.what_is

    def sheet(page: Page) -> None:
        for line in server_lines(server) if server is not None else []:
            page.line(line)
        device_screen(found, page)

    if quoted is None:
        reply.show(sheet, lambda: device_answer(found, server, asked), result=found)
        return 0
    matches = what_is(found, units.parse(quoted, "FLOP/s", "--what-is"))

    def said(page: Page) -> None:
        for off, text in matches:
            page.line(f"{quoted} on {found.id} is {text}" + (f" ({off:+.1%})" if abs(off) > 5e-4 else ""))
        if not matches:
            page.line(
                f"{quoted} is not a dense, sparse, FP16-accumulate, vector or doubled peak of {found.id} within 3%"
            )

    reply.show(said, lambda: match_answer(matches, asked))
    return 0 if matches else 1


Rows = list[tuple[str, str]]
"""Ids with what is said of each."""


KINDS = {"devices": ("accelerators", "servers"), "networks": ("links",)}
"""Kinds of the catalogue behind a list, where they are called otherwise."""


def _other_names(name: str) -> dict[str, list[str]]:
    """Return the other names of what a list holds, by id."""
    from roofplan import catalogue

    found: dict[str, list[str]] = {}
    for kind in KINDS.get(name, (name,)):
        for alias, one in catalogue.index()["aliases"].get(kind, {}).items():
            found.setdefault(one, []).append(alias)
    return found


def _plain(text: str) -> str:
    """Return the letters and digits of a name in lower case."""
    return "".join(filter(str.isalnum, text.lower()))


def _list(name: str, record: type[ListInputs] = ListInputs) -> Callable[[Callable[[Any], Rows]], Question]:
    """Return a decorator that makes a question of a function that lists: whatever holds the text that is asked for."""

    def decorated(rows: Callable[[Any], Rows]) -> Question:
        def listed(asked: ListInputs, reply: Reply) -> int:
            from roofplan.present.answers.things import list_answer

            every, wanted = rows(asked), _plain(asked.text)
            known = _other_names(name)
            found = [
                (one, words)
                for one, words in every
                if wanted in "|".join(map(_plain, (one, words, *known.get(one, ()))))
            ]

            def screen(page: Page) -> None:
                for one, words in found:
                    page.line(f"{one:<26} {words}")

            if not found and not reply.as_json:
                near = nearest(asked.text, dict(every))
                hint = f" Nearest: {', '.join(near)}" if near else ""
                reply.remark(f"nothing holds {asked.text!r}.{hint}")
            reply.show(screen, lambda: list_answer(name, found, asked))
            return 0 if found else 1

        listed.__doc__ = rows.__doc__
        return question(record, "json", name=name)(listed)

    return decorated


@_list("devices")
def devices(_: ListInputs) -> Rows:
    """List devices and servers."""
    from roofplan import catalogue
    from roofplan.records.units import gib, significant

    out = []
    for name in catalogue.ids("accelerators"):
        d = catalogue.accelerator(name)
        rates = {"16-bit": d.peak.get("bf16") or d.peak.get("fp16"), "fp32": d.peak.get("fp32")}
        known = [f"{significant(one.value / 1e12, 4)} TFLOPS {kind}" for kind, one in rates.items() if one]
        peak = known[0] if known else "peak unknown"
        memory = f"{gib(d.memory)} GiB" if d.memory else "memory unknown"
        rate = f"{significant(d.bandwidth / 1e12)} TB/s" if d.bandwidth else "bandwidth unknown"
        out.append((name, f"{d.name}, {memory}, {rate}, {peak}" + _aliases(d.aliases)))
    return out + [
        (
            name,
            f"{catalogue.server(name).count} x {catalogue.server(name).accelerator}: {catalogue.server(name).name}",
        )
        for name in catalogue.ids("servers")
    ]


@_list("models", ModelsInputs)
def models(asked: ModelsInputs) -> Rows:
    """List models of the catalogue, or the families that any config.json may have."""
    from roofplan import catalogue
    from roofplan.hf import families

    if asked.families:
        return [
            (name, (families.DECODERS.get(name) or families.ENCODERS.get(name) or (lambda: None)).__doc__ or "")
            for name in families.FAMILIES
        ]
    return [
        (name, catalogue.model_table(name).get("hub", "") + _aliases(catalogue.model_table(name).get("aliases", ())))
        for name in catalogue.ids("models")
    ]


@_list("frameworks")
def frameworks(_: ListInputs) -> Rows:
    """List training frameworks and versions."""
    from roofplan import catalogue

    return [
        (name, f"{f.sharding}, {f.attention} attention, released {f.released}" + _aliases(f.aliases))
        for name in catalogue.ids("frameworks")
        for f in [catalogue.framework(name)]
    ]


@_list("engines")
def engines(_: ListInputs) -> Rows:
    """List engines and versions."""
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


@_list("networks")
def networks(_: ListInputs) -> Rows:
    """List links and networks."""
    from roofplan import catalogue

    found = [catalogue.link(name) for name in catalogue.ids("links")]
    return [
        (x.id, f"{x.kind}, {x.topology}, {x.quantities['bandwidth'].text} one way{_tapered(x)}" + _aliases(x.aliases))
        for x in found
        if "bandwidth" in x.quantities
    ]


@_list("nodes")
def nodes(_: ListInputs) -> Rows:
    """List processes with their wafer prices and defect densities."""
    from roofplan import catalogue

    found = [catalogue.node(name) for name in catalogue.ids("nodes")]
    return [
        (
            n.id,
            f"{n.name}, {n.year}; wafer {n.wafer.text}, {n.quantities['defect_density'].text}{_transistor_cost(n)}"
            + _aliases(n.aliases),
        )
        for n in sorted(found, key=lambda node: node.year)
    ]


@_list("prices")
def prices(_: ListInputs) -> Rows:
    """List dated prices, newest last."""
    from roofplan import catalogue

    out = []
    for name in catalogue.ids("accelerators"):
        for p in catalogue.prices(name):
            where = " ".join(x for x in (p.provider, p.term, f"by {p.count}" if p.count else "") if x)
            out.append((name, f"{p.date:<11}{p.kind:<16}{p.value:>12,.2f} {p.unit:<6} {where} · {p.source}"))
    return out


def _transistor_cost(node: Node) -> str:
    """Return what a billion transistors of a node cost before yield, where its density is known."""
    from roofplan.money.chip import transistor_cost
    from roofplan.records.units import significant

    value = transistor_cost(node)
    return "" if value is None else f", {significant(value * 1e9)} USD a billion transistors at its peak density"


def _tapered(link: Link) -> str:
    pod, taper = link.value("pod"), link.value("taper")
    return "" if pod is None or taper is None else f", tapered {taper:g}:1 beyond pods of {pod:,.0f}"


def _aliases(names: Iterable[str]) -> str:
    return f" · also {', '.join(list(names)[:3])}" if names else ""


@question(SchemaInputs, example="serve")
def schema(asked: SchemaInputs, reply: Reply) -> None:
    """JSON Schema of a command's answer."""
    from roofplan.present.answers.schemas import answer_schema

    found = answer_schema(f"{asked.command} {asked.part or ''}".strip())
    reply.show(lambda page: page.line(json.dumps(found, indent=1)), lambda: found)
