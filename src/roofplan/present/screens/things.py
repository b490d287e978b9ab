"""The screens of ``roofplan model`` and ``roofplan device``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from roofplan import catalogue
from roofplan.present.screens.page import Page, wrapped
from roofplan.present.screens.plans import weights_text
from roofplan.records import units
from roofplan.records.hardware import Accelerator, Server
from roofplan.records.model import Dense, FeedForward, LatentAttention, Mixer, Mixture, Model, Recurrence
from roofplan.records.prices import Price
from roofplan.serving.sheet import stored

if TYPE_CHECKING:
    from roofplan.present.answers.things import ModelAnswer


ALL_BUT_ROUNDING = 0.99
"""Share of a cache below which its tokens do not all take the same [1]."""


def layer_words(model: Model) -> str:
    """Return the layers in words: ``61 layers = 3 dense + 58 MoE (256 routed, 8 a token, 1 shared), MLA 512 + 64``."""
    counted: dict[str, int] = {}
    for layer, places in model.decoder.kinds():
        words = [_mixer_words(m) for m in layer.mixers] + [_feed_words(f) for f in layer.feed_forwards]
        said = " + ".join(w for w in words if w) or "empty"
        counted[said] = counted.get(said, 0) + len(places)
    parts = [f"{count} x ({said})" for said, count in counted.items()]
    return f"{len(model.decoder.layers)} layers = " + " + ".join(parts)


def _mixer_words(mixer: Mixer) -> str:
    if isinstance(mixer, LatentAttention):
        seen = f", window {mixer.window:,}" if mixer.window else ""
        return f"MLA {mixer.latent} + {mixer.rope_dim}{seen}" + (f" top {mixer.top:,}" if mixer.top else "")
    if isinstance(mixer, Recurrence):
        return mixer.kind
    kind = "MHA" if mixer.kv_heads == mixer.heads else "MQA" if mixer.kv_heads == 1 else "GQA"
    seen = f", {'chunk' if mixer.chunked else 'window'} {mixer.window:,}" if mixer.window else ""
    top = f" top {mixer.top:,}" if mixer.top else ""
    return f"{kind} {mixer.heads}/{mixer.kv_heads} x {mixer.head_dim}{seen}{top}"


def _feed_words(feed: FeedForward) -> str:
    if isinstance(feed, Mixture):
        shared = f", shared {feed.shared[0][0].outputs:,}" if feed.shared else ""
        return f"MoE {feed.experts} x {feed.expert[0][-1].outputs:,}, {feed.chosen} a token{shared}"
    if isinstance(feed, Dense):
        return f"dense {feed.groups[0][0].outputs:,}"
    return ""


def model_screen(model: Model, facts: ModelAnswer, page: Page) -> None:
    """Print the answer of ``roofplan model``.

    Parameters
    ----------
    model : the model.
    facts : its answer, which holds the counts.
    page : where to print.
    """
    p, c = facts.parameters, facts.cache
    head = "head tied" if model.tied else f"head {p.head:,}"
    active = f"active {p.active:,}" if p.active is not None else "active unknown: experts per token are not stated"
    for line in wrapped(f"{p.total:,} parameters · {active} · embedding {p.embedding:,} · {head}", indent=2):
        page.line(line)
    for line in wrapped(layer_words(model), indent=2):
        page.line(line)
    kept = stored(model)
    how = weights_text(model)
    if kept is not None and not (model.quantization and model.quantization.parts):
        how = (
            f"{kept.format}: {kept.bits:g} bits"
            + (f" + {kept.scale:g} per {kept.group:,.0f}" if kept.scale else "")
            + f"; embedding {model.dtype}, head {kept.head}"
            + (f", tables of n-grams {model.table_bytes:g} B a number" if model.tables else "")
        )
    for line in wrapped(f"  weights {units.gib(facts.weights.bytes, 4)} GiB: {how}", indent=10):
        page.line(line)
    if model.generates:
        state = f", state {c.state_bytes:,} B a sequence" if c.state_bytes else ""
        slides = c.bytes_per_token * c.tokens + c.state_bytes < ALL_BUT_ROUNDING * c.bytes
        each = "for each further token" if slides else "a token"
        mla = "; whole on every tp rank, split only by dp attention" if model.latent else ""
        for line in wrapped(
            f"  cache   {c.bytes_per_token:,} B {each} at {c.tokens:,}{state}, {units.significant(c.bytes / units.MIB, 4)} MiB at {c.tokens:,} ({c.precision}){mla}",
            indent=10,
        ):
            page.line(line)
    else:
        page.line("  cache   none: an encoder has no decode phase")
    for line in _work_lines(model, facts):
        page.line(line)
    for text in (*model.warnings, *model.notes):
        for line in wrapped(f"note: {text}", indent=6):
            page.line(page.paint(line, "warning"))


def _work_lines(model: Model, facts: ModelAnswer) -> list[str]:
    """Return the work per generated token, and the parameters of a checkpoint that are not counted."""
    lines = []
    work = facts.flops.matmul_per_token
    if work is not None:
        what = "2 x every weight that a generated token meets, head included"
        lines.append(f"  matmuls {units.show(work, 'FLOP')} a token = {what}")
    if model.draft_parameters:
        lines.append(
            f"          not counted: {model.draft_layers} MTP layer of the checkpoint, {model.draft_parameters:,} parameters"
        )
    return lines


def server_lines(server: Server) -> list[str]:
    """Return a server's description, each number with its source.

    Parameters
    ----------
    server : the server.

    Returns
    -------
    Lines with name, quantities, sources and notes, then an empty line.
    """
    q = server.quantities
    lines = [
        f"{server.name} · {server.count} x {server.accelerator}" + (f", {server.network}" if server.network else "")
    ]
    lines += [
        f"  {name.replace('_', ' '):<20}{number.text:>16}   {number.kind}, {number.source}, {number.seen}"
        for name, number in q.items()
        if name != "count"
    ]
    lines += [piece for note in server.notes for piece in wrapped(f"  note    {note}", indent=10)]
    return [*lines, ""]


def device_screen(device: Accelerator, page: Page) -> None:
    """Print the answer to ``roofplan device``.

    Parameters
    ----------
    device : the device.
    page : where to print.
    """
    for line in [*_made_lines(device), *_link_lines(device), *_peak_lines(device)]:
        page.line(line)
    check, quotes = peak_check(device), catalogue.prices(device.id)
    if check:
        page.line(f"  check   {check}")
    if quotes:
        page.line("  price   " + "; ".join(_quote(kind, quotes) for kind in dict.fromkeys(p.kind for p in quotes)))
    for text in filter(None, (device.export, *device.notes)):
        for line in wrapped(f"  note    {text}", indent=10):
            page.line(line)


def _made_lines(device: Accelerator) -> list[str]:
    """Return what it is made of, and its memory."""
    q = device.quantities
    made = [device.architecture, device.process]
    if "units" in q and "clock" in q:
        made.insert(1, f"{q['units'].text} at {q['clock'].text}")
    made += [q[name].text for name in ("die_area", "power") if name in q]
    if "transistors" in q:
        made.append(f"{units.significant(q['transistors'].value / 1e9)}e9 transistors")
    memory = [q[name].text for name in ("memory_capacity", "memory_bandwidth") if name in q]
    usable = f" ({q['memory_usable'].text} usable)" if "memory_usable" in q else ""
    lines = wrapped(f"{device.name} · " + ", ".join(x for x in made if x), indent=2)
    return [*lines, f"  memory  {device.memory_type} {', '.join(memory) or 'not known'}{usable}"]


def _link_lines(device: Accelerator) -> list[str]:
    """Return how it reaches its peers and its host."""
    q = device.quantities
    links = []
    if device.scale_up:
        rate = f" {q['link_bandwidth'].text} one way" if "link_bandwidth" in q else ""
        pair = f", a pair {q['link_bandwidth_pair'].text}" if "link_bandwidth_pair" in q else ""
        links.append(f"{device.scale_up}{rate}{pair}" + (f", domain {device.domain}" if "scale_up_domain" in q else ""))
    if device.host_link:
        links.append(device.host_link + (f" {q['host_link_bandwidth'].text}" if "host_link_bandwidth" in q else ""))
    if device.peer_to_peer == "none":
        links.append("no peer-to-peer: staged through host memory")
    return [f"  links   {'; '.join(links)}"] if links else []


def _peak_lines(device: Accelerator) -> list[str]:
    """Return the dense peaks, the best measured rates and the ridge points, and what is never used."""
    lines = ["          dense TFLOPS   best measured   ridge FLOP/B   source"]
    for name, number in device.peak.items():
        best = device.measured.get(name)
        ridge = f"{number.value / device.bandwidth:,.0f}" if device.bandwidth else "-"
        measured = f"{units.significant(best.value / 1e12, 4)} ({best.value / number.value:.0%})" if best else ""
        rate = units.significant(number.value / 1e12, 4)
        lines.append(
            f"  {name:<22}{rate:>8}{measured:>16}{ridge:>15}   {', '.join(filter(None, (number.kind, number.source, number.seen)))}"
        )
    if device.sparse:
        sparse = ", ".join(f"{name} {number.text}" for name, number in device.sparse.items())
        lines.append(f"  sparse  {sparse}: never used")
    return lines


def _quote(kind: str, quotes: Sequence[Price]) -> str:
    from roofplan.money import STALE_DAYS, age_days

    newest = max((p for p in quotes if p.kind == kind), key=lambda p: p.newest_possible)
    old = " !" if age_days(newest.date) > STALE_DAYS else ""
    return f"{kind} {units.significant(newest.value, 4)} {newest.unit}, {newest.date}{old}"


def peak_check(device: Accelerator) -> str:
    """Return ``132 x 1830 MHz x 4096 = 989.3 checks`` where the catalogue has all three."""
    q = device.quantities
    base = device.peak.get("bf16") or device.peak.get("fp16")
    if base is None or any(name not in q for name in ("units", "clock", "flop_per_clock_per_unit")):
        return ""
    computed = q["units"].value * q["clock"].value * q["flop_per_clock_per_unit"].value
    verdict = "checks" if abs(computed / base.value - 1) < 0.012 else f"is {computed / base.value - 1:+.1%} off"
    return f"{q['units'].text} x {q['clock'].text} x {q['flop_per_clock_per_unit'].value:,.0f} = {computed / 1e12:,.1f} TFLOPS {verdict}"


def what_is(device: Accelerator, rate: float) -> list[tuple[float, str]]:
    """Return which peaks of a device a quoted rate may be: dense, sparse, FP16-accumulate, vector, best measured, or twice dense.

    Parameters
    ----------
    device : the device.
    rate : the quoted rate [FLOP/s].

    Returns
    -------
    Pairs of relative difference [1] and text, for peaks within 3% of the rate, the nearest first.
    """
    found = []
    for table, word in (
        (device.peak, "dense"),
        (device.sparse, "2:4 sparse, never planned with"),
        (device.measured, "best measured"),
    ):
        for name, number in table.items():
            kind = word
            if word == "dense":
                kind = {
                    "fp16_accumulate_fp16": "dense with FP16 accumulation",
                    "fp8_accumulate_fp16": "dense with FP16 accumulation",
                    "fp32": "vector",
                    "fp64": "vector",
                    "vector_fp16": "vector",
                }.get(name, "dense, FP32 accumulation")
            found.append((number.value / rate - 1, f"{name} {kind}: {number.text}"))
    for name, number in device.peak.items():
        found.append(
            (
                2 * number.value / rate - 1,
                f"twice the dense {name}: two devices of a superchip, or sparsity where the device has it ({number.text} each)",
            )
        )
    close = [item for item in found if abs(item[0]) < 0.03]
    return sorted(close, key=lambda item: abs(item[0]))
