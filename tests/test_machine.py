"""What a machine attains: windows, fits, verdicts, the chip that is made of it, and the laws of processors."""

import csv
import functools
import io
import itertools
import json
import socket
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from roofplan import api, catalogue, observe
from roofplan.catalogue.machines import accelerator, machine
from roofplan.catalogue.own_device import user_accelerator
from roofplan.errors import InputError
from roofplan.measure.machine import child, chip, conditions, hosts, probe, windows
from roofplan.measure.machine.backends import Numpy
from roofplan.measure.machine.probe import Figure, Probe, line
from roofplan.measure.machine.windows import OURS, PATIENCE, rate
from roofplan.present.charts.machine import of_machine
from roofplan.present.screens.machine import machine_screen
from roofplan.present.screens.page import Page
from roofplan.timing.rates import rates, scopes_by_vendor

FIT = catalogue.shipped_fit()
CPU = """
id = "core"
kind = "cpu"
memory_capacity = "16 GiB"
[attained]
fp32 = "150 GFLOPS"
vector = "80 GFLOPS"
memory_bandwidth = "16 GB/s"
launch = "0.4 us"
"""


class Clock:
    """A clock on which an operation takes a given time, and of which the processor is ours for a given share."""

    def __init__(self, each, shares):
        self.each, self.shares = each, itertools.cycle(shares)
        self.now = self.spent = 0.0

    def run(self, times):
        self.now += times * self.each
        self.spent += times * self.each * next(self.shares)


def timed(each, shares, work=1e9, unit="FLOP/s"):
    clock = Clock(each, shares)
    return rate(work, clock.run, unit, busy=lambda: clock.spent, clock=lambda: clock.now)


def test_only_windows_that_were_ours_count():
    seen = timed(1e-3, [1.0, 1.0, 1.0, 0.5])
    assert seen.best == pytest.approx(1e12)
    assert 0 < seen.kept < seen.windows


def test_no_window_counts_where_others_compute():
    seen = timed(1e-3, [OURS - 0.01])
    assert (seen.best, seen.kept) == (0.0, 0)
    assert seen.windows > 0


@pytest.mark.parametrize(("faster", "windows"), [([], 8), ([3], 32), ([3, 20], 32), ([3, 20, 25], 26), ([3, 4, 5], 8)])
def test_a_best_that_stands_alone_takes_more_windows(faster, windows):
    now, count = 0.0, -2  # two runs before the first window

    def run(_times):
        nonlocal now, count
        now += 0.9e-2 if count in faster else 1e-2
        count += 1

    seen = rate(1.0, run, "s", busy=None, windows=8, clock=lambda: now)
    assert seen.windows == windows
    assert seen.best == pytest.approx((0.9e-2 if len(faster) > 2 else 1e-2) / 2)


def test_the_time_of_a_launch_is_its_least():
    assert timed(2e-6, [1.0], work=1.0, unit="s").best == pytest.approx(2e-6)


def test_an_accelerator_has_no_processor_time():
    clock = Clock(1e-3, [0.0])
    assert rate(1e9, clock.run, "FLOP/s", busy=None, clock=lambda: clock.now).kept > 0


def test_messages_give_latency_and_bandwidth():
    sizes = [4**k for k in range(4, 13)]
    found = line("x", sizes, [3e-6 + size / 2e9 for size in sizes])
    assert found.alpha == pytest.approx(3e-6)
    assert found.beta == pytest.approx(2e9)
    assert found.worst < 1e-6


@pytest.mark.parametrize("threads", [1, 2])
def test_numpy_does_what_it_is_told(threads):
    backend = Numpy(threads)
    for operation in (backend.product("fp32", 8, 16, 32), *backend.reads(2**18), backend.copy(2**18), backend.launch()):
        operation(2)
    assert backend.busy() > 0


@pytest.mark.parametrize(("size", "each"), [(2**20, 2**19), (3 * 2**10, 1536), (100, 64)])
def test_threads_share_memory_in_whole_lines_of_the_cache(size, each):
    assert [part.nbytes for part in Numpy(2)._parts(size)] == [each, each]


def test_a_launch_is_an_operation_of_its_own(monkeypatch):
    added, add = [], np.add
    launch = Numpy(1).launch()
    monkeypatch.setattr(np, "add", lambda *given, **named: added.append(add(*given, **named)))
    launch(3)
    assert [float(one[0]) for one in added] == [2.0, 2.0, 2.0]


def test_windows_exactly_as_near_as_they_must_be_agree(monkeypatch):
    monkeypatch.setattr(windows, "NEAR", 0.25)
    assert windows._best([5.0, 4.5, 4.0], "s") == 4.0
    monkeypatch.setattr(windows, "NEAR", 0.2)
    assert windows._best([5.0, 4.5, 4.0], "s") is None


def attained(host=True, **conditions):
    about = {"date": "2026-11-23 10:00 UTC", "processor": "Some CPU @ 2.0GHz", "widest vectors": "avx2", **conditions}
    figures = [
        Figure("product", {"format": "fp32", "m": 512, "k": 512, "n": 512}, 6e10, 5.9e10, 8, 8, "FLOP/s"),
        Figure("product", {"format": "fp32", "m": 256, "k": 256, "n": 256}, 5e10, 5e10, 8, 8, "FLOP/s"),
        Figure("vector", {"format": "fp32", "m": 512, "k": 512, "n": 512}, 6e10, 5.9e10, 8, 8, "FLOP/s"),
        Figure("read", {"size": 2**20}, 6e10, 6e10, 8, 8, "B/s"),
        Figure("read", {"size": 2**30}, 2e10, 2e10, 8, 8, "B/s"),
        Figure("launch", {"captured": False}, 4e-7, 4e-7, 8, 8, "s"),
    ]
    return Probe(
        device="numpy" if host else "cuda:0",
        threads=1,
        conditions=about,
        cache=2**25,
        memory=2**34 if host else 140 * 2**30,
        backend="numpy",
        figures=figures,
    )


def test_what_is_attained_is_beside_what_the_clock_allows():
    found = attained(**{"clock as stated": "2000 MHz"})
    product, reads = chip.verdicts(found, None)
    assert product.sheet == 32 * 2e9
    assert product.verdict == "normal"
    assert reads.attained == 2e10
    assert reads.verdict is None
    slow = attained(**{"clock as stated": "4000 MHz", "load of the last minute": "3.1"})
    low = chip.verdicts(slow, None)[0]
    assert low.verdict == "low"
    assert "3.1" in low.why


def test_what_is_exactly_as_fast_as_may_be_is_normal():
    for ratio, verdict in ((chip.NORMAL[1], "normal"), (chip.NORMAL[1] * 1.001, "above"), (chip.NORMAL[0], "normal")):
        assert chip._verdict("reads", ratio, 1.0, 1.0, "published", attained(), 0.5).verdict == verdict


@pytest.mark.parametrize(("clock", "stands_out"), [("4000 MHz", True), ("2000 MHz", False)])
def test_a_figure_that_is_low_stands_out(monkeypatch, clock, stands_out):
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = io.StringIO()
    machine_screen(observe._attained(attained(**{"clock as stated": clock}), None, "own", None), Page(out))
    assert ("\x1b[33m" in out.getvalue()) is stands_out


def test_pictures_show_products_and_reads():
    products, reads = of_machine(observe._attained(attained(), None, "own", None))
    assert "Products by rows" in json.dumps(products)
    assert "Reads by size" in json.dumps(reads)


def test_a_device_is_known_by_its_name_and_beside_its_data_sheet():
    found = attained(host=False, device="NVIDIA H200")
    device = chip.device_of(found, None)
    assert device.id == "h200-sxm"
    assert chip.verdicts(found, device)[-1].verdict == "low"
    assert chip.device_of(attained(host=False, device="Nothing 9"), None) is None


def test_the_chip_of_a_probe_plans_with_what_it_attained(tmp_path):
    found = attained()
    path = tmp_path / "chip.toml"
    path.write_text(chip.chip_text(found, None, "my-chip"))
    own = user_accelerator(path)
    assert own.attained["memory_bandwidth"].value == 2e10
    assert own.attained["fp32"].value == 6e10
    r = rates(machine(f"{path}:1")[0], catalogue.engine("llama.cpp-b11200"), FIT)
    assert r.wire == 2e10
    assert r.bandwidth["matmul"] == 2e10
    assert r.vector_peak == 6e10
    assert r.gap == 0.0
    assert own.attained["fp32"].kind == "measured"
    assert "launch" not in own.attained


def test_like_a_device_of_the_catalogue_the_rest_is_its_data_sheet(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('id = "mine"\nlike = "h100-sxm"\n[attained]\nbf16 = "700 TFLOPS"\nmemory_bandwidth = "3 TB/s"\n')
    own, base = user_accelerator(path), accelerator("h100-sxm", "--on")
    assert own.peak == base.peak
    assert own.memory == base.memory
    r = rates(machine(f"{path}:1")[0], catalogue.engine("vllm-0.11"), FIT)
    share = FIT.find("engine", "compute_share", scopes_by_vendor(catalogue.engine("vllm-0.11"), base)).value
    lost = FIT.find("matmul", "serving_over_best", ["any"]).value
    assert r.compute["bf16"] == pytest.approx(700e12 * lost * share)
    assert r.peak["bf16"] == base.peak["bf16"].value
    assert r.bandwidth["matmul"] == 3e12
    assert r.bandwidth["experts"] < 3e12


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('id = "x"\nkind = "cpu"\n[attained]\nfp32 = "1 GFLOPS"\n', "memory_capacity is missing"),
        ('id = "x"\nlike = "h10"\n', "h10"),
        ('id = "x"\nlike = "h100-sxm"\n[attained]\nfp99 = "1 GFLOPS"\n', "attained.fp99"),
        ('id = "x"\nlike = "h100-sxm"\n[attained]\nmemory_bandwidth = "fast"\n', "attained.memory_bandwidth"),
    ],
)
def test_a_wrong_chip_is_refused(tmp_path, text, said):
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(InputError) as refusal:
        user_accelerator(path)
    assert said in refusal.value.message


@pytest.fixture
def core(tmp_path):
    path = tmp_path / "core.toml"
    path.write_text(CPU)
    return f"{path}:1"


def steps(core, precision, users):
    found = api.plan_serving(
        "qwen3-0.6b", on=(core,), precision=precision, concurrency=str(users), input="32", output="32"
    )
    return found.plans[0]


def test_rows_are_not_free_on_a_processor(core):
    """Each row unpacks and multiplies the weights again: eight users take several times one user's step."""
    times = {users: float(steps(core, "q4_1", users).prediction.decode.value) for users in (1, 8)}
    assert times[8] > 3.0 * times[1]


@pytest.mark.parametrize(("bandwidth", "slower"), [("12 GB/s", 1.0), ("4 GB/s", 1.9)])
def test_the_first_row_computes_while_its_weights_stream_in(core, tmp_path, bandwidth, slower):
    """A weight takes 0.08 ns to multiply, and at 16 GB/s 0.04 ns to read: what it reads more slowly it still hides."""
    path = tmp_path / "slow.toml"
    path.write_text(CPU.replace('"core"', '"slow"').replace("16 GB/s", bandwidth))
    quick, late = (float(steps(one, "q4_1", 1).prediction.decode.value) for one in (core, f"{path}:1"))
    assert late / quick == pytest.approx(slower, rel=0.05)


def test_data_sheets_of_processors_are_not_read_at_their_word(core):
    sheet, probed = (steps(one, "q4_1", 1).rates for one in ("ryzen-9-5950x:1", core))
    assert sheet.vector.bandwidth < 0.9 * sheet.wire
    assert probed.vector.bandwidth == probed.wire


def test_more_instructions_a_weight_take_longer(core):
    def work(precision):
        plan = steps(core, precision, 4)
        return float(plan.prediction.decode.value)

    assert work("q5_1") > work("q4_1")


def test_a_processor_runs_llama_cpp_alone(core):
    assert steps(core, "q4_1", 1).engine.name == "llama.cpp"
    with pytest.raises(Exception, match="does not support CPU"):
        api.plan_serving("qwen3-0.6b", on=(core,), engine="vllm")
    with pytest.raises(Exception, match="is not described"):
        api.plan_serving("qwen3-0.6b", on=(core,), precision="iq2_s")


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(InputError, match="cannot be measured"):
        probe.probed("quantum", None, 0.0)
    with pytest.raises(InputError, match="--threads"):
        probe.probed("numpy", 10_000, 0.0)
    with pytest.raises(InputError, match="h10"):
        observe.measure_machine(like="h10")


def test_a_probe_is_kept_and_read_again(tmp_path, monkeypatch):
    ledger = tmp_path / "l.sqlite"
    monkeypatch.setattr(probe, "probed", lambda *_: attained())
    found = observe.measure_machine(ledger=ledger, threads=1)
    again = observe.runs(observe.RunsInputs(run=str(found.run)), ledger=ledger).machine
    assert again.chip == found.chip
    assert again.probe == found.probe


def test_passes_become_one_figure():
    row = {"kind": "product", "format": "fp32", "m": 1, "k": 1, "n": 1, "kept": 2, "windows": 4, "unit": "FLOP/s"}
    figures = probe._joined([], [row | {"best": 5.0, "median": 4.0}, row | {"best": 7.0, "median": 6.0}])
    assert [(one.best, one.median, one.kept, one.windows) for one in figures] == [(7.0, 5.0, 4, 8)]
    time = {"kind": "launch", "captured": False, "kept": 1, "windows": 1, "unit": "s"}
    lost = {"best": 0.0, "median": 0.0, "kept": 0}
    figures = probe._joined([], [time | {"best": 2e-6, "median": 2e-6}, time | lost])
    assert figures[0].best == 2e-6
    beside = [row | {"best": 5.0, "median": 4.0}, row | {"m": 8, "best": 9.0, "median": 9.0}]
    copies = [{**one, "kind": "copy"} for one in beside]
    assert [one.best for one in probe._joined([], beside + copies)] == [5.0, 9.0, 5.0, 9.0]


def test_a_sustained_run_tells_its_drop():
    rows = [{"at": float(k), "rate": 100.0 if k < 5 else 80.0} for k in range(20)]
    found = Probe(device="numpy", threads=1, conditions={}, cache=None, memory=None, sustained=rows)
    assert found.drop == pytest.approx(0.2)
    assert np.isclose(
        Probe(device="numpy", threads=1, conditions={}, cache=None, memory=None, sustained=rows[:4]).drop, 0.0
    )


@pytest.mark.slow
def test_the_link_between_two_hosts_is_measured():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    ready, taken = threading.Event(), []
    listener = threading.Thread(target=lambda: taken.append(hosts.listen(place, lambda _: ready.set())), daemon=True)
    listener.start()
    assert ready.wait(5)
    seen = dict(hosts.messages(place))
    listener.join(5)
    assert list(seen) == list(hosts.SIZES)
    assert all(one.best > 0.0 for one in seen.values())
    assert taken[0] >= sum(hosts.SIZES)
    found = line("loopback", list(seen), [one.best for one in seen.values()])
    assert found.alpha > 0.0
    assert found.beta > 1e6


def test_small_messages_to_another_host_do_not_wait_for_more(monkeypatch):
    """Nagle's algorithm would add its delay to the latency."""
    seen = []
    monkeypatch.setattr(
        hosts,
        "_answered",
        lambda other: seen.append((other.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), other.gettimeout())) or 0,
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    ready = threading.Event()
    listener = threading.Thread(target=lambda: hosts.listen(place, lambda _: ready.set()), daemon=True)
    listener.start()
    assert ready.wait(5)
    with socket.create_connection(hosts.address_of(place, "--link")):
        listener.join(5)
    (without_delay, patience), *_ = seen
    assert without_delay
    assert patience == hosts.PATIENCE


@pytest.mark.parametrize("text", ["here", "127.0.0.1:", "127.0.0.1:99999", ":80"])
def test_an_address_that_is_none_is_refused(text):
    with pytest.raises(InputError, match="HOST:PORT"):
        hosts.address_of(text, "--link")


def test_a_host_that_does_not_listen_or_speaks_something_else_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"

        def other():
            accepted, _ = server.accept()
            with accepted:
                accepted.recv(8)
                accepted.sendall(b"HTTP/1.1")

        threading.Thread(target=other, daemon=True).start()
        with pytest.raises(InputError, match="does not speak"):
            next(hosts.messages(place))
    with pytest.raises(InputError, match="on that host: roofplan measure machine --listen"):
        next(hosts.messages(place))


def test_a_device_is_told_apart_by_its_memory_and_form():
    told = {
        ("NVIDIA A100-SXM4-40GB", 39.5): "a100-sxm-40",
        ("NVIDIA A100 80GB PCIe", 79.3): "a100-pcie-80",
        ("NVIDIA H100 NVL", 93.6): "h100-nvl",
        ("NVIDIA GeForce RTX 4090", 23.6): "rtx-4090",
        ("NVIDIA H100 96GB HBM3", 95.0): None,
    }
    for (name, memory), wanted in told.items():
        found = replace(attained(host=False, device=name), memory=int(memory * 2**30))
        device = chip.device_of(found, None)
        assert (device and device.id) == wanted


def test_a_processor_is_like_no_accelerator_and_ids_are_checked_before_probing():
    with pytest.raises(InputError, match="a processor is measured"):
        observe.measure_machine(like="h100-sxm", device="numpy")
    with pytest.raises(InputError, match="no id"):
        observe.measure_machine(id="my box")
    with pytest.raises(InputError, match="the catalogue's"):
        observe.measure_machine(id="h100-sxm")


def test_memory_of_the_file_holds_over_that_of_its_likeness(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text('id = "x"\nlike = "h100-sxm"\nmemory_capacity = "40 GiB"\n')
    assert user_accelerator(path).memory == 40 * 2**30


def test_a_measuring_process_that_dies_is_no_probe(monkeypatch):
    monkeypatch.setattr(probe.sys, "executable", "/bin/false")
    with pytest.raises(InputError, match="measuring stopped"):
        probe.probed("numpy", 1, 0.0)


def test_a_machine_is_no_load(tmp_path, monkeypatch):
    ledger = tmp_path / "l.sqlite"
    monkeypatch.setattr(probe, "probed", lambda *_: attained())
    observe.measure_machine(ledger=ledger, threads=1)
    with pytest.raises(InputError, match="no load was put on"):
        observe.own_row("run:1", ledger=ledger)


def test_windows_end_with_patience():
    """Three windows are seen however long they take, and no more once patience is over."""
    seen = timed(PATIENCE, [1.0])
    assert (seen.windows, seen.kept) == (3, 3)


@pytest.mark.parametrize(
    ("shared", "last", "whole"),
    [
        (("0-1", "0-1"), "32768K", 32),
        (("0", "1"), "32768K", 64),
        (("0", "1"), "300M", 600),
        (("0-1", "0-1"), "1G", 1024),
    ],
)
def test_last_caches_count_once_where_processors_share_them(tmp_path, monkeypatch, shared, last, whole):
    """A level whose size is not stated in K, M or G does not count."""
    for one, beside in enumerate(shared):
        for level, size, own in (
            ("1", "48K", str(one)),
            ("2", "2048K", str(one)),
            ("3", last, beside),
            ("4", "512", "0"),
        ):
            place = tmp_path / f"cpu{one}" / "cache" / f"index{level}"
            place.mkdir(parents=True)
            for name, text in (("level", level), ("size", size), ("shared_cpu_list", own)):
                (place / name).write_text(f"{text}\n")
    monkeypatch.setattr(conditions, "CPUS", tmp_path)
    monkeypatch.setattr(conditions, "allowed", lambda: [0, 1])
    assert conditions.cache() == whole * 2**20


@pytest.mark.parametrize(
    ("told", "machine", "found"),
    [
        ("model name\t: Some CPU\nflags\t\t: sse avx2 avx512f\n", "x86_64", ("Some CPU", "avx512f")),
        ("model name\t: Some CPU\nflags\t\t: sse avx2\n", "x86_64", ("Some CPU", "avx2")),
        ("Features\t: fp asimd\n", "aarch64", ("an M-series", "asimd")),
        ("", "arm64", ("an M-series", "asimd")),
        ("", "x86_64", ("an M-series", None)),
    ],
)
def test_processors_say_their_name_and_widest_vectors(told, machine, found, monkeypatch):
    monkeypatch.setattr(conditions, "_text", lambda path: told if path.name == "cpuinfo" else "2400000")
    monkeypatch.setattr(conditions, "_said", lambda words: "an M-series\n" if words[0] == "sysctl" else "")
    monkeypatch.setattr(conditions.platform, "machine", lambda: machine)
    seen = conditions.processor()
    assert (seen["processor"], seen.get("widest vectors")) == found
    assert seen["clock as stated"] == "2400 MHz"


def test_no_more_threads_than_the_process_may_use(monkeypatch):
    monkeypatch.setattr(probe, "processors", lambda: 4)
    assert [probe._threads(one) for one in (None, 1, 4)] == [4, 1, 4]
    with pytest.raises(InputError, match="5 are more than the 4 processors"):
        probe._threads(5)


SHOWN = """\
Some CPU @ 2.0GHz · 2 threads · numpy
  date 2026-11-23 10:00 UTC · widest vectors avx2 · clock as stated 2400 MHz

  fp32      60.0 GFLOPS (median 98%) at 512x512x512, 8 of 8 windows ours
            GFLOPS of m rows with 4096 x 512 weights beyond caches: 1: 10.0 · 8: 80.0
  memory    20.0 GB/s (median 100%) read of 1.07 GB, 8 of 8 windows ours
            GB/s by size: 1.05 MB: 60.0 · 1.07 GB: 20.0
            15.0 GB/s (median 80%) read and written by copies
  launch    400 ns between small kernels, each by itself
  launch    200 ns between small kernels, in a captured graph
  link      to host: 3.00 us + bytes / 2.00 GB/s, worst 0% off
  sustained 60.0 GFLOPS at best over 20 s, 25% slower at its end, 79 C

  beside    fp32 products: low, 39% of 154 GFLOPS [2 x 32 FLOP a cycle (avx2) x 2400 MHz as the
            system states it]: shared or throttled: see the conditions; --sustain shows throttling
            nothing to compare with: memory reads
  ! a note on what was measured

wrote {out}: roofplan serve MODEL --on {out}:1
"""


def everything():
    """Return a probe with a figure of every kind."""
    found = attained(**{"clock as stated": "2400 MHz", "threads": "2"})
    more = [
        *(Figure("message", {"link": "to host", "size": 4**k}, 3e-6 + 4**k / 2e9, 1.0, 4, 8, "s") for k in range(4, 9)),
        *(
            Figure("skinny", {"format": "fp32", "m": m, "k": 4096, "n": 512}, m * 1e10, 1e10, 8, 8, "FLOP/s")
            for m in (8, 1)
        ),
        Figure("copy", {"size": 2**30}, 1.5e10, 1.2e10, 8, 8, "B/s"),
        Figure("launch", {"captured": True}, 2e-7, 4e-7, 8, 8, "s"),
    ]
    rows = [{"at": float(k), "rate": (6e10 if k < 5 else 4.5e10), "temperature": str(60 + k)} for k in range(20)]
    return replace(
        found, threads=2, figures=[*found.figures, *more], sustained=rows, notes=["a note on what was measured"]
    )


def test_machines_are_shown_with_all_that_was_measured(tmp_path, monkeypatch, run):
    monkeypatch.setattr(probe, "probed", lambda *_: everything())
    monkeypatch.setenv("ROOFPLAN_LEDGER", str(tmp_path / "l.sqlite"))
    out, table, page = (str(tmp_path / name) for name in ("chip.toml", "figures.csv", "page.html"))
    code, shown, _ = run("measure", "machine", "--out", out, "--csv", table, "--html", page)
    assert code == 0
    assert shown == SHOWN.format(out=out)
    assert Path(out).read_text() == observe._attained(everything(), None, "own", None).chip.replace(
        '"own"', '"my-some-2-cores"'
    )
    with Path(table).open() as file:
        assert len(list(csv.DictReader(file))) == len(everything().figures)
    written = Path(page).read_text()
    for title in ("Products by rows", "Reads by size", "Messages over links", "A sustained run over time"):
        assert title in written


def test_chips_are_shown_unless_they_are_written(tmp_path, monkeypatch, run):
    cool = [{"at": float(k), "rate": 6e10 + k} for k in range(20)]
    monkeypatch.setattr(probe, "probed", lambda *_: replace(everything(), sustained=cool))
    monkeypatch.setenv("ROOFPLAN_LEDGER", str(tmp_path / "l.sqlite"))
    _, shown, _ = run("measure", "machine")
    chip_text = shown.split("the chip, to keep with --out chip.toml:\n")[1]
    for whole, seen in zip(
        observe._attained(everything(), None, "own", None).chip.splitlines()[2:],
        textwrap.dedent(chip_text).splitlines()[2:],
        strict=True,
    ):
        assert seen == (whole if len(whole) < 96 else f"{whole[:96]}...")
    assert "sustained 60.0 GFLOPS at best over 20 s, no slower at its end\n" in shown


def test_charts_of_a_machine_hold_its_figures():
    found = observe._attained(everything(), None, "own", None)
    products, reads, messages, sustained = of_machine(found)
    values = [one["data"]["values"] for one in (products, reads, messages, sustained)]
    assert {"rows": 8, "rate": 80.0, "format": "fp32"} in values[0]
    assert values[1] == [{"size": 2**20, "rate": 60.0}, {"size": 2**30, "rate": 20.0}]
    assert values[2][0] == {"size": 256, "time": pytest.approx(3.128), "link": "to host"}
    assert values[3][0] == {"at": 0.0, "rate": 60.0}
    assert [one["encoding"]["x"]["scale"]["type"] for one in (products, sustained)] == ["log", "linear"]


# What a system says of itself ---------------------------------------------------------------------


def test_commands_that_are_not_there_or_fail_say_nothing(tmp_path):
    assert conditions._said(["no-such-command-here"]) == ""
    assert conditions._said([sys.executable, "-c", "print('here')"]).strip() == "here"
    assert conditions._said([sys.executable, "-c", "print('here'); raise SystemExit(1)"]).strip() == "here"
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    assert conditions._said([str(broken)]) == ""


GPU = "Some GPU, 570.1, 1980 MHz, 2619 MHz, 120 W, 700 W, 41, {}\n"


@pytest.mark.parametrize(
    ("mask", "why"), [("0x1", None), ("0x0", None), ("0x5", "0x4"), ("0x10", "0x10"), ("[N/A]", None)]
)
def test_accelerators_say_what_throttles_them(monkeypatch, mask, why):
    asked = []
    monkeypatch.setattr(conditions, "_said", lambda words: asked.append(words) or GPU.format(mask))
    found = conditions.accelerator("GPU-1")
    assert found.pop("throttled by", None) == why
    assert found["device"] == "Some GPU"
    assert found["temperature"] == "41"
    assert asked[0][-1] == "--id=GPU-1"
    monkeypatch.setattr(conditions, "_said", lambda _: "No devices were found\n")
    assert conditions.accelerator("GPU-1") == {}


def test_systems_without_files_are_asked(tmp_path, monkeypatch):
    said = {"hw.l3cachesize": "0", "hw.perflevel0.l2cachesize": "16777216", "hw.l2cachesize": "4194304"}
    monkeypatch.setattr(conditions, "CPUS", tmp_path)
    monkeypatch.setattr(conditions, "_said", lambda words: said.get(words[-1], ""))
    assert conditions.cache() == 16 * 2**20
    monkeypatch.setattr(conditions, "_said", lambda _: "")
    assert conditions.cache() is None

    def unknown(_):
        raise ValueError

    monkeypatch.setattr(conditions.os, "sysconf", unknown)
    assert conditions.memory() is None
    monkeypatch.setattr(conditions, "_said", lambda _: "TotalPhysicalMemory\n17179869184\n")
    assert conditions.memory() == 2**34
    monkeypatch.delattr(conditions.os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(conditions.os, "cpu_count", lambda: 3)
    assert conditions.allowed() == [0, 1, 2]
    monkeypatch.setattr(conditions.os, "cpu_count", lambda: None)
    assert conditions.allowed() == [0]


def printed(kind, **more):
    """Return a figure as a measuring process prints it."""
    about = {"format": "fp32", "m": 512, "k": 512, "n": 512} if kind in {"product", "vector"} else {"size": 2**20}
    return {"kind": kind, **about, "best": 1e9, "median": 1e9, "kept": 1, "windows": 1, "unit": "FLOP/s", **more}


@pytest.mark.parametrize(
    ("widest", "library", "kinds", "said"),
    [
        ("avx2", "openblas", ["product", "vector"], []),
        ("avx512f", "openblas", ["product", "vector"], []),
        ("avx512f", "mkl", ["product"], ["512-bit vectors"]),
        (None, "openblas", ["product"], []),
        ("avx2", "openblas", [], ["no window in which the processor was ours"]),
    ],
)
def test_products_in_narrow_vectors(monkeypatch, widest, library, kinds, said):
    asked = []

    def lines(request, threads, more):
        asked.append((request, threads, more))
        yield {"kind": "backend", "name": "numpy", "library": library}
        if "only" in request:
            yield printed("vector", best=5e8)
            yield printed("read")
        elif kinds:
            yield printed("product")

    monkeypatch.setattr(probe, "_lines", lines)
    monkeypatch.setattr(probe, "conditions", lambda _: {"widest vectors": widest} if widest else {})
    monkeypatch.setattr(probe, "cache", lambda: 2**20)
    monkeypatch.setattr(probe, "memory", lambda: 2**34)
    found = probe.probed("numpy", 1, 0.0)
    assert [one.kind for one in found.figures] == kinds
    assert [any(part in note for note in found.notes) for part in said] == [True] * len(said)
    assert len(found.notes) == len(said)
    apart = [one for one in asked if "only" in one[0]]
    assert bool(apart) == (widest == "avx512f" and library == "openblas")
    assert all(one[2] == probe.NARROW and one[0]["device"] == "numpy" for one in apart)
    if kinds[1:]:
        assert found.vector.best == (5e8 if apart else 1e9)


@pytest.mark.parametrize(
    ("cache", "memory", "largest", "noted"),
    [
        (None, 2**34, 2**30, False),
        (2**25, 2**34, 2**28 // 4096 * 4096, False),
        (2**29, 2**34, 2**31, False),
        (2**29, 2**33, int(0.2 * 2**33) // 4096 * 4096, True),
        (2**29, None, int(0.2 * 2**33) // 4096 * 4096, True),
    ],
)
def test_memory_is_read_beyond_caches_where_it_is_large_enough(monkeypatch, cache, memory, largest, noted):
    asked = []
    monkeypatch.setattr(probe, "_lines", lambda request, *_: iter(asked.append(request) or [printed("product")]))
    monkeypatch.setattr(probe, "conditions", lambda _: {})
    monkeypatch.setattr(probe, "cache", lambda: cache)
    monkeypatch.setattr(probe, "memory", lambda: memory)
    found = probe.probed("numpy", 1, 0.0)
    assert asked[0]["largest"] == largest
    assert any("bandwidth may be the cache's" in one for one in found.notes) == noted


@pytest.mark.parametrize(
    ("identity", "name", "same"),
    [
        ("rtx-4090", "NVIDIA GeForce RTX 4090", True),
        ("rtx-4090", "NVIDIA GeForce RTX 4070", False),
        ("rtx-4060-ti-16", "NVIDIA GeForce RTX 4060 Ti", True),
        ("rtx-4060-ti-16", "NVIDIA GeForce RTX 4060", True),
        ("rtx-4060", "NVIDIA GeForce RTX 4060 Ti", False),
        ("h100-pcie", "NVIDIA H100 80GB HBM3", False),
        ("h100-pcie", "NVIDIA H100 PCIe", True),
        ("h100-nvl", "NVIDIA H100 NVL", True),
        ("rtx-4090-400w", "NVIDIA GeForce RTX 4090", True),
        ("a100-sxm-80", "NVIDIA A100-SXM4-80GB", True),
    ],
)
def test_names_of_drivers_are_those_of_cards(identity, name, same):
    assert chip._named(identity, chip._words(name)) == same


def test_a_sustained_run_counts_its_products_second_by_second(monkeypatch):
    """A product of a tenth of a second on a clock: ten a second, for two seconds."""
    now, ran, told = [0.0], [], []

    def run(times):
        ran.append(times)
        now[0] += 0.1 * times + 1e-9

    backend = SimpleNamespace(product=lambda *shape: run if shape == ("fp32", 8, 8, 8) else None)
    monkeypatch.setattr(child.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(child, "tell", lambda **row: told.append(row))
    monkeypatch.setattr(child, "accelerator", lambda _: {"temperature": "60"})
    child._sustain(backend, ("fp32", 8), 2.0, "GPU-1")
    assert set(ran) == {1}
    assert [row["rate"] for row in told] == [pytest.approx(10 * 2 * 8**3, rel=1e-3)] * 2
    assert [row["at"] for row in told] == [pytest.approx(0.0), pytest.approx(1.0)]
    assert {row["temperature"] for row in told} == {"60"}


def test_a_launch_is_timed_by_itself_and_a_captured_one_by_its_share(monkeypatch):
    """Half a millisecond a call: as long for each launch, and a captured one takes its share of a graph."""
    now, told = [0.0], []

    def run(times):
        now[0] += 5e-4 * times

    backend = SimpleNamespace(launch=lambda: run, captured=lambda: run)
    monkeypatch.setattr(child, "rate", functools.partial(windows.rate, clock=lambda: now[0]))
    monkeypatch.setattr(child, "tell", lambda **row: told.append(row))
    child._launches(backend)
    assert [row["captured"] for row in told] == [False, True]
    assert told[0]["best"] == pytest.approx(5e-4)
    assert told[1]["best"] == pytest.approx(5e-4 / child.backends.CAPTURED)


@pytest.mark.skipif(sys.platform == "win32", reason="scripts are no programs there")
@pytest.mark.parametrize("code", [0, 3])
def test_figures_are_those_that_a_measuring_process_prints(code, tmp_path, monkeypatch):
    script = tmp_path / "python"
    script.write_text(f"""#!/bin/sh
echo '{{"kind": "first", "threads": "'$OMP_NUM_THREADS'", "more": "'$MORE'"}}'
echo '{{"kind": "second"}}'
echo it broke >&2
exit {code}
""")
    script.chmod(0o755)
    monkeypatch.setattr(probe.sys, "executable", str(script))
    rows, said = [], None
    try:
        rows.extend(probe._lines({"device": "numpy"}, 3, {"MORE": "yes"}))
    except InputError as error:
        said = str(error)
    assert rows == [{"kind": "first", "threads": "3", "more": "yes"}, {"kind": "second"}]
    assert said == ("measuring stopped: it broke" if code else None)


def test_figures_fill_a_probe_and_tell_how_far_it_is():
    rows = [
        {"kind": "backend", "name": "torch", "library": "b", "device": {"name": "a card", "memory": 7}},
        {"kind": "pass", "of": 3, "done": 0},
        *[printed("product"), printed("read")],
        {"kind": "pass", "of": 3, "done": 1},
        *[printed("product"), printed("read")],
        {"kind": "conditions", "told": {"clock": "2 GHz"}},
        {"kind": "pass", "of": 3, "done": 2},
        printed("product"),
        {"kind": "sustained", "seconds": 1.0},
    ]
    ticks = []
    found = probe._filled(attained(), iter(rows), lambda done, of: ticks.append((done, of)))
    assert ticks == [(1, 1), (2, 2), (3, 6), (4, 6), (5, 6)]
    assert (found.backend, found.library, found.memory) == ("torch", "b", 7)
    assert found.conditions | {"clock": "2 GHz", "device": "a card"} == found.conditions
    assert found.sustained == [{"seconds": 1.0}]
    bare = probe._filled(attained(), iter([printed("product")]), None)
    assert (bare.memory, bare.conditions) == (attained().memory, attained().conditions)


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ('memory_bandwidth = "400 GB/s"', None),
        (
            'memory_bandwidth = "3000 GB/s"',
            r"attained.memory_bandwidth is 3000 GB/s, 8.3 times the data sheet's 360 GB/s",
        ),
        ('bf16 = "30 TFLOPS"', None),
        ('bf16 = "300 TFLOPS"', r"attained.bf16 is 300 TFLOPS, 11.8 times the data sheet's"),
        ('vector = "9 TFLOPS"', None),
    ],
)
def test_no_device_attains_a_multiple_of_its_data_sheet(stated, said, tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(f'id = "x"\nlike = "rtx-3060"\n[attained]\n{stated}\n')
    if said is None:
        assert user_accelerator(path).id == "x"
    else:
        with pytest.raises(InputError, match=said):
            user_accelerator(path)
