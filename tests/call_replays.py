"""What functions return for inputs made up here, whose results may not move in a refactor: ``python tests/replays.py calls``.

A scene is a function that yields a name and a result, again and again; `replays` keeps their checksums. What is right is for other
tests to say; this one notices what changes.
"""

import random
from array import array
from contextlib import redirect_stdout
from datetime import UTC
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
from scenes import as_text, members, or_refusal, scene

# Measured requests ---------------------------------------------------------------------------------


def samples(seed, count=60):
    """Return requests of an endpoint, some of which failed, came whole or without counts."""
    from roofplan.measure.sample import Sample

    pick = random.Random(seed)  # noqa: S311 - nothing secret
    out = []
    for number in range(count):
        events = pick.choice((0, 1, 2, 9, 30))
        answer = pick.choice((events, events, events + 3, 1))
        failed = pick.random() < 0.1 * (seed % 3)
        timings = {"predicted_ms": 12.0 * answer, "predicted_n": float(answer), "prompt_ms": 3.0} if seed % 2 else {}
        timings |= {"mean_itl_ms": 11.0} if seed % 5 == 0 else {}
        out.append(
            Sample(
                number=number,
                due=0.1 * number * (1 + seed % 3),
                late=0.001 * pick.random(),
                spent=0.3 + 0.01 * events,
                connect=0.002 * pick.random(),
                gaps=array(
                    "f", [] if failed else [0.05 + 0.1 * pick.random(), *(0.01 * pick.random() for _ in range(events))]
                ),
                asked_input=100 + 10 * (number % 3),
                asked_output=events,
                prompt=None if seed % 4 == 3 else 100 + number,
                tokens=None if seed % 4 == 2 else answer,
                cached=None if seed % 3 else number // 2,
                whole=pick.random() < 0.1,
                timings=timings,
                reason=pick.choice(("time-out", "http 500")) if failed else "",
                message=f"no {number}" if failed else "",
            )
        )
    return pick.sample(out, len(out))


@scene
def seen():
    from roofplan.load.statistics import objectives_of
    from roofplan.measure.client import Effort
    from roofplan.measure.endpoint import Run, Server
    from roofplan.measure.figures import good_of, inside, seen_of, server_tpot

    limits = [objectives_of(one) for one in ("ttft=120ms@p90", "tpot=6ms,e2e=0.3s@p50", "e2e=1s@p99")]
    for seed in range(16):
        effort = Effort(seconds=10.0 * (seed % 4), cpu=0.4, lags=[1e-4 * k for k in range(seed)])
        server = Server(
            url="http://127.0.0.1:1", model="m", software="vllm 0.11", local=seed % 2 == 0, counts=seed % 4 != 2
        )
        run = Run(server=server, load="x", samples=samples(seed), effort=effort, planned=60, interrupted=False)
        for warmup in (0, 10, 60):
            yield f"run {seed} from {warmup}", seen_of(run, warmup)
            yield f"good {seed} from {warmup}", [good_of(run, one, warmup) for one in ((), *limits)]
        yield f"effort {seed}", (effort.share, effort.lag(0.5), effort.lag(0.99), run.about())
        yield f"each {seed}", [(server_tpot(one), one.ttft, one.tpot, one.e2e, one.done) for one in run.samples[:20]]
        yield f"inside {seed}", [inside(one, each) for one in run.samples for limit in limits for each in limit]


@scene
def stable():
    from roofplan.load.statistics import objectives_of
    from roofplan.measure.sample import Sample
    from roofplan.measure.stability import Schedule, holds, pettitt, share_ends, stability_of

    for hits, count in ((0, 1), (0, 7), (1, 1), (3, 40), (4, 1440), (39, 40), (40, 40), (600, 1440)):
        yield f"{hits} of {count}", share_ends(hits, count)
    for seed in range(8):
        random_ = np.random.default_rng(seed)
        plan = Schedule(begin=1.7e9 + 3600.0 * seed, every=(10.0, 60.0)[seed % 2], count=300, seed=seed)
        times = random_.lognormal(-2.0, 0.2, 300)
        times[150 + 10 * seed :] *= 1.0 + 0.1 * seed
        times = np.round(times, 2) if seed % 3 == 0 else times
        failed = {seed, 40, 41, 42, 43 + seed, 299} if seed % 2 else set()
        probes = [
            Sample(
                number=k,
                due=plan.due(k),
                late=0.0,
                spent=9.0,
                reason="time-out" if k % 2 else "refused",
                message="none",
            )
            if k in failed
            else Sample(number=k, due=plan.due(k), late=0.01, gaps=array("f", [times[k], 0.01]), tokens=2)
            for k in range(300)
            if k % 50 != seed
        ]
        yield f"day {seed}", stability_of(probes, plan, 0.2, UTC)
        yield f"change {seed}", (pettitt(times), pettitt(times[:seed]), pettitt(np.sort(times)[:9]))
        yield f"next {seed}", [plan.next(plan.begin + plan.every * k / 3.0) for k in range(-2, 12)]
        limits = (each for one in ("ttft=150ms@p90", "tpot=10ms@p50", "e2e=1s@p99") for each in objectives_of(one))
        yield f"holds {seed}", [holds(probes, each) for each in limits]


# Machines -----------------------------------------------------------------------------------------


def probe(seed):
    """Return what a machine attained, made up."""
    from roofplan.measure.machine.probe import Figure, Probe

    pick = random.Random(seed)  # noqa: S311 - nothing secret
    host = seed % 2 == 0
    rate = 6e10 if host else 6e14
    figures = []
    for name in ("fp32", "fp64") if host else ("bf16", "fp8", "int8"):
        for side in (256, 512, 4096):
            best = rate * pick.uniform(0.3, 1.1)
            shape = {"format": name, "m": side, "k": side, "n": side}
            figures.append(
                Figure("product", shape, best, 0.9 * best, pick.choice((0, 8)) if side == 512 else 5, 8, "FLOP/s")
            )
    size = 2**20
    while size <= 2**30:
        best = (6e10 if host else 3e12) * pick.uniform(0.5, 1.0)
        figures.append(Figure("read", {"size": size}, best, best, 8, 8, "B/s"))
        size *= 32
    figures += [Figure("launch", {"captured": each}, (3e-6, 1e-6)[each], 4e-6, 8, 8, "s") for each in (False, True)]
    figures += [Figure("vector", {"format": "fp32"}, 5e10, 5e10, 8, 8, "FLOP/s")] if seed % 4 == 0 else []
    for link in ("to 10.0.0.2", "host to cuda:0"):
        times = [(n, (2e-6 + n / 1e10) * pick.uniform(0.9, 1.1)) for n in (2**10, 2**15, 2**20, 2**25)]
        figures += [Figure("message", {"link": link, "size": n}, t, t, 8, 8, "s") for n, t in times]
    about = {"date": "2026-11-24 10:00 UTC", "processor": f"Some {'(R)' * (seed % 3)} CPU @ 2.{seed}GHz"}
    about |= {"clock as stated": f"{1500 + 300 * seed} MHz"} if seed % 3 else {}
    about |= (
        {"widest vectors": ("avx2", "avx512f", "asimd")[seed % 3]} if host else {"device": DEVICES[seed % len(DEVICES)]}
    )
    about |= {"load of the last minute": "3.1"} if seed % 5 == 0 else {}
    about |= {"throttled by": "0x4", "power limit": "300 W"} if seed % 7 == 1 else {}
    sustained = [{"at": float(k), "rate": rate * (1.0 - 0.02 * k)} for k in range(seed % 6 * 4)]
    return Probe(
        device="numpy" if host else "cuda:0",
        threads=1 + seed % 4,
        conditions=about,
        cache=None if seed % 6 == 4 else 2**25,
        memory=2**34 if host else (80, 140, 24, 16)[seed % 4] * 2**30,
        backend="numpy" if host else "torch",
        library="openblas",
        figures=figures,
        sustained=sustained,
        notes=["a note"] if seed % 2 else [],
    )


DEVICES = (
    "NVIDIA H100 80GB HBM3",
    "NVIDIA H200",
    "NVIDIA GeForce RTX 4090",
    "AMD Instinct MI300X",
    "Tesla T4",
    "Odd Card",
)


@scene
def machines():
    from roofplan.measure.machine import chip

    for seed in range(14):
        found = probe(seed)
        for like in (None, "h100-sxm", "rtx-4090") if seed % 2 else (None,):
            device = or_refusal(chip.device_of, found, like)
            yield f"device {seed} {like}", device if isinstance(device, str | None) else members(device)
            device = None if isinstance(device, str) else device
            yield f"verdicts {seed} {like}", chip.verdicts(found, device)
            name = chip.identity(found, device)
            yield f"chip {seed} {like}", f"{name}\n{chip.chip_text(found, device, name)}"
        figures = (found.formats, found.bandwidth, found.vector, found.launch, found.drop, found.links, found.wide)
        yield f"figures {seed}", [as_text(one) for one in figures]


@scene
def measuring():
    """What a measuring process measures, on a device that takes a made-up time for everything."""
    from roofplan.measure.machine import backends, child
    from roofplan.measure.machine.windows import Seen

    class Made:
        def __init__(self, host):
            self.host, self.name = host, "made"
            self.formats = ("fp32", "fp64") if host else ("bf16", "fp8", "tf32")

        def product(self, *words):
            return lambda _: words

        def reads(self, size):
            return [lambda _: ("read", size), lambda _: ("other", size)]

        def copy(self, size):
            return lambda _: ("copy", size)

        def launch(self):
            return lambda _: ("launch",)

        def captured(self):
            return None if self.host else lambda _: ("graph",)

        def links(self):
            return {} if self.host else {"host to device": lambda size: lambda _: ("link", size)}

        def busy(self):
            return 0.0

    def rate(work, run, unit, *, busy, windows):
        each = sum(map(ord, "".join(map(str, run(1))))) % 97 + 3.0
        return Seen(work * 1e3 / each if unit != "s" else each * 1e-6, each, 7, windows, f"{unit} {busy is None}")

    class Clock:
        now = 0.0

        def perf_counter(self):
            self.now += 0.25
            return self.now

    for host, only, sustain in ((True, None, 0), (True, "vector", 0), (False, None, 4), (True, None, 3)):
        out, made = StringIO(), Made(host)
        asked = {"device": "numpy" if host else "cuda:0", "threads": 2, "largest": 2**28, "sustain": sustain}
        about = {"memory": str(2**32), "uuid": "x" if not host else "", "name": "Made"}
        with (
            patch.object(child, "rate", rate),
            patch.object(backends, "Numpy", lambda *_, made=made: made),
            patch.object(backends, "Torch", lambda *_, made=made: made),
            patch.object(backends, "described", lambda _, about=about: about),
            patch.object(child, "accelerator", lambda _: {"temperature": "60 C"}),
            patch.object(child, "time", Clock()),
            patch.object(backends, "library", lambda: "none"),
            redirect_stdout(out),
        ):
            child.main({**asked, "only": only})
        yield f"{host} {only} {sustain}", out.getvalue()


@scene
def joined_passes():
    """How the lines of measuring processes become one probe."""
    from roofplan.measure.machine import probe as probes
    from roofplan.measure.machine.probe import Probe

    empty = Probe(device="cuda:0", threads=2, conditions={"a": "b"}, cache=2**24, memory=2**34)
    for seed in range(6):
        pick = random.Random(seed)  # noqa: S311 - nothing secret
        rows = [
            {
                "kind": "backend",
                "name": "torch",
                "formats": ["fp32"],
                "library": "mkl",
                "device": {"name": "X", "memory": 2**33},
            }
        ]
        for turn in range(3):
            rows.append({"kind": "pass", "done": turn, "of": 3})
            for size in (2**10, 2**20):
                best = pick.choice((0.0, pick.uniform(1e9, 2e9)))
                rows.append(
                    {
                        "kind": "read",
                        "size": size,
                        "best": best,
                        "median": best,
                        "kept": int(best > 0) * 4,
                        "windows": 8,
                        "unit": "B/s",
                    }
                )
            late = pick.uniform(1e-6, 2e-6)
            rows.append(
                {
                    "kind": "launch",
                    "captured": False,
                    "best": late,
                    "median": late,
                    "kept": 3,
                    "windows": 8,
                    "unit": "s",
                }
            )
        rows += [{"kind": "conditions", "told": {"clock": "1 MHz"}}]
        rows += [{"kind": "sustained", "at": float(k), "rate": 1e12 - k} for k in range(seed)]
        ticks = []
        yield (
            f"probe {seed}",
            or_refusal(probes._filled, empty, iter(rows), lambda *tick, into=ticks: into.append(tick)),
        )
        yield f"ticks {seed}", ticks


# Numbers and their units ----------------------------------------------------------------------------

VALUES = (
    0.0,
    1e-9,
    0.00123456,
    0.0999,
    0.5,
    0.9996,
    1.0,
    9.995,
    12.3456,
    99.95,
    999.5,
    1000.0,
    1048576.0,
    123456.0,
    9.9999e8,
    1e9,
    7.5e12,
    3e15,
)


@scene
def shown():
    from roofplan.records import units

    for unit in (
        "s",
        "B",
        "B/s",
        "FLOP/s",
        "FLOP",
        "token",
        "token/s",
        "W",
        "USD",
        "USD/h",
        "1",
        "mm2",
        "J",
        "Hz",
        "%",
    ):
        yield f"show {unit}", [or_refusal(units.show, value, unit) for value in VALUES]
        yield f"two digits {unit}", [or_refusal(units.show, value, unit, 2) for value in VALUES]
    for name in ("significant", "compact", "at_least", "at_most", "gib"):
        yield name, [or_refusal(getattr(units, name), value) for value in (*VALUES[1:], *(-one for one in VALUES[1:8]))]
        yield (
            f"{name} to one digit",
            [or_refusal(getattr(units, name), value, 1) for value in VALUES[1:]] if name != "compact" else "",
        )


@scene
def parsed():
    from roofplan.records import units

    texts = (
        "1",
        "1.5",
        "0",
        "-3",
        "1e3",
        "1k",
        "2M",
        "3B",
        "4T",
        "5GB",
        "6GiB",
        "7 GB/s",
        "8Gb/s",
        "9ms",
        "10us",
        "11s",
        "12min",
        "13h",
        "14d",
    )
    texts += (
        "15W",
        "16kW",
        "17TFLOPS",
        "18PFLOP/s",
        "19%",
        "0.2",
        "20USD",
        "21USD/h",
        "22kUSD",
        "23c/kWh",
        "24nm",
        "25mm2",
        "26mbit",
        "27gbit",
        "x",
        "",
        "1,000",
        "nan",
        "inf",
        "28 tokens",
        "29seq",
        "30y",
        "1_000",
        "٣",
    )
    for unit in units.UNITS:
        yield unit, [or_refusal(units.parse, text, unit, "--flag") for text in texts]
    for name in ("parse_length", "parse_amount", "parse_count", "parse_share"):
        yield name, [or_refusal(getattr(units, name), text) for text in (*texts, 3, 0, -1, 2.5, 1e30, True)]


# Load -----------------------------------------------------------------------------------------------


@scene
def lengths():
    from roofplan.load.requests import burstiness_of, lengths_of, renewal

    for text in (
        "fixed",
        "uniform:0.5-1.5",
        "uniform:1-1",
        "lognormal:0.8",
        "lognormal:0",
        "uniform:2-1",
        "uniform:x",
        "normal:1",
        "lognormal:9",
    ):
        found = or_refusal(lengths_of, text)
        yield text, str(found)
        if not isinstance(found, str):
            for mean in (1.0, 7.5, 1000.0):
                yield f"{text} {mean}", found.draw(mean, 12, np.random.default_rng(3))
                yield f"{text} {mean} at most", [found.longest(mean, count) for count in (1, 10, 5000)]
    for text in ("1", "0.25", "inf", "0", "-1", "x"):
        shape = or_refusal(burstiness_of, text)
        yield f"burstiness {text}", shape
        if not isinstance(shape, str):
            yield f"arrivals {text}", renewal(4.0, 9, shape, np.random.default_rng(5))


@scene
def statistics():
    from roofplan.load.statistics import objectives_of, quantile_ends, sampling_error, summary

    for count in (1, 2, 5, 40, 1000):
        values = np.random.default_rng(count).lognormal(0.0, 1.0, count)
        yield f"summary {count}", summary(values)
        yield f"ends {count}", [quantile_ends(values, one) for one in (0.5, 0.9, 0.99, 0.999)]
        yield f"error {count}", sampling_error(values)
    for text in (
        None,
        "",
        "ttft=1s",
        "tpot=50ms@p95",
        "e2e=3s@mean",
        "ttft=1s@p99.9,tpot=20ms",
        "x=1s",
        "ttft=1",
        "ttft=1s@p0",
        "ttft=1s@p101",
        "ttft=1s,ttft=2s",
        "ttft",
    ):
        found = or_refusal(objectives_of, text)
        yield f"{text}", found if isinstance(found, str) else [(one, one.percentile, one.name) for one in found]


@scene
def cached():
    from roofplan.load.requests import Requests, cached_tokens

    for seed in range(6):
        pick = np.random.default_rng(seed)
        blocks = [tuple(pick.integers(0, 6, int(pick.integers(0, 9))).tolist()) for _ in range(30)]
        inputs = np.array([16 * len(one) + 5 for one in blocks])
        load = Requests(
            arrivals=np.arange(30.0), inputs=inputs, outputs=np.full(30, 8), prefixes=blocks, prefix_block=16
        )
        for capacity in (0.0, 40.0, 400.0, 1e6):
            for replicas in (1, 3):
                yield f"{seed} {capacity} {replicas}", or_refusal(cached_tokens, load, 16, capacity, replicas)


# Text of an agent's tools, tables and configurations ------------------------------------------------


@scene
def words():
    from roofplan.cli.app import nearest
    from roofplan.present.screens.page import folded, wrapped

    text = "tp8 pp2 dp4 · 1,234 tok/s  [1,000, 1,500] · 'a quoted one' and  more words  of  different   lengths " * 3
    for indent in (0, 2, 16, 40):
        for end in ("", " \\"):
            yield f"folded {indent}{end}", folded(text, indent, end)
        yield f"wrapped {indent}", wrapped(text, indent=indent)
    yield "folded without a space", folded("x" * 300)
    for word in ("sevre", "trian", "x", "pool-plan", "Serve", ""):
        yield f"nearest {word}", nearest(word, ["serve", "train", "cost", "pool plan"])


# Pools --------------------------------------------------------------------------------------------

STREET = """
[[member]]
name = "den"
device = "rtx-4090"
link = "100mbit"
up = "20mbit"
rtt = "12ms"
memory = "20GiB"
online = "18:00-02:00"
electricity = "0.3USD/kWh"
[[member]]
device = "rtx-3060"
link = "wifi"
count = 3
online = "60%"
[[member]]
device = "m2-max"
link = "1gbe"
"""


@scene
def street():
    """What a file of members says, and what is wrong with others."""
    from roofplan.pool.members import bit_rate
    from roofplan.pool.members import members as members_of

    changes = (
        ("", ""),
        ("20GiB", "200GiB"),
        ("device", "devise"),
        ('up = "20mbit"\n', ""),
        ('rtt = "12ms"\n', ""),
        ("count = 3", "count = 0"),
    )
    changes += (
        ("count = 3", 'name = "x"\ncount = 3'),
        ("count = 3", "count = 99999"),
        ("18:00-02:00", "09:00-17:30"),
        ("18:00-02:00", "x"),
    )
    changes += (
        ("60%", "0%"),
        ("rtx-3060", "rtx-9999"),
        ("m2-max", "rtx-4090"),
        ("[[member]]", "[[members]]"),
        ('"1gbe"', '"nosuch"'),
        ("100mbit", "3"),
    )
    with TemporaryDirectory() as place:
        for number, (before, after) in enumerate(changes):
            path = Path(place) / "street.toml"
            path.write_text(STREET.replace(before, after))
            found = or_refusal(members_of, ["rtx-4090@50mbit:30ms", "2xrtx-3060@1gbit"], str(path))
            found = found if isinstance(found, str) else [(one.name, one.device.id, members(one)) for one in found]
            yield f"{number} {before} {after}", as_text(found).replace(str(path), path.name)
    for text in (
        "rtx-4090",
        "0xrtx-4090@1gbe",
        "x@1gbe",
        "rtx-4090@1gbe/10mbit:3ms",
        "rtx-4090@1gbe:x",
        "9999xrtx-4090@1gbe",
    ):
        found = or_refusal(members_of, [text])
        yield text, found if isinstance(found, str) else [members(one) for one in found]
    yield (
        "rates",
        [or_refusal(bit_rate, text, "--rate") for text in ("1mbit", "2 gbit/s", "3Kbps", "4", "5MB/s", "0kbit")],
    )


@scene
def churn():
    from roofplan.pool.churn import drawn
    from roofplan.pool.members import members as members_of

    with TemporaryDirectory() as place:
        path = Path(place) / "street.toml"
        path.write_text(STREET)
        some = members_of(["rtx-4090@50mbit"], str(path))
    for pattern in ("steady", "evening"):
        for online in (0.2, 0.7, 1.0):
            for seed in (0, 3):
                found = drawn(some, 6e5, session=2e4, online=online, pattern=pattern, seed=seed)
                yield (
                    f"{pattern} {online} {seed}",
                    [(one.share(6e5), one.share(1e5), one.starts[:9].tolist(), one.ends[:9].tolist()) for one in found],
                )


# Accuracy -----------------------------------------------------------------------------------------


@scene
def accuracy():
    """The pages of accuracy, of a few publishers."""
    from roofplan import catalogue
    from roofplan.evidence import training_report
    from roofplan.evidence.fits import left_out, scoreboard

    fit = catalogue.shipped_fit()
    kept = left_out.kept(fit)
    names = sorted({one.source for one in kept})
    for part in (0, 3):
        some = [one for one in kept if one.source in names[part::7]]
        yield f"page {part}", scoreboard.page(some, fit)
    rows = catalogue.training_rows()[::3]
    with patch.object(catalogue, "training_rows", lambda: rows):
        yield "training", training_report.page(fit)
