"""Values on the boundaries of rules, where an off-by-one would not show elsewhere."""

import io
import math
import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from roofplan import catalogue, hf
from roofplan.catalogue.machines import machine
from roofplan.errors import InputError, UnknownName
from roofplan.laws import collectives
from roofplan.load.traces import read_trace
from roofplan.present.screens.page import WIDTH, Page, folded
from roofplan.records.model import Attention, Recurrence
from roofplan.records.strategy import Strategy
from roofplan.records.workload import Workload
from roofplan.serving.ledger import footprints


@pytest.mark.parametrize(("row", "said"), [("0,1.5,5", "input is '1.5'"), ("0,5,-1", "output is '-1'")])
def test_tokens_of_a_trace_are_whole_and_not_negative(row, said, tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(f"arrival,input,output\n{row}\n")
    with pytest.raises(InputError, match=said):
        read_trace(path)


def test_requests_of_one_token_are_kept(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("arrival,input,output\n0,1,1\n1,0,5\n2,5,0\n3,1,2\n")
    assert read_trace(path).inputs.tolist() == [1, 1]


def test_a_line_whose_only_spaces_are_its_indent_is_not_folded():
    text = " " * 16 + "x" * (WIDTH + 20)
    assert folded(text, 16) == [text]


def test_groups_taken_may_differ_within_an_array():
    taken = np.array([2.0, 4.0])
    together = collectives.hosts_visited(2.0, 8.0, np.array([8.0, 8.0]), taken)
    apart = [float(collectives.hosts_visited(2.0, 8.0, 8, int(one))) for one in taken]
    assert together.tolist() == pytest.approx(apart)


@pytest.mark.parametrize(
    ("count", "whole"),
    [(2**20 + 100, 2**20), (6.1, 6), (11.6, 12), (0.4, 1), (23.3, 24), (2383.5, 2304), (2743.9, 2816)],
)
def test_batches_are_rounded_to_the_highest_power_within_five_percent(count, whole):
    from roofplan.training.request import ROUNDED, _divisible

    assert _divisible(count) == whole
    for power in range(1, 25):
        near = round(count / 2**power) * 2**power
        if near > 0 and abs(near - count) <= ROUNDED * count:
            assert whole % 2**power == 0


def test_as_many_answers_are_kept_as_promised():
    from roofplan.web.kept import MOST, Kept
    from roofplan.workers import answers
    from roofplan.workers.pool import Job

    kept = Kept()
    jobs = [Job(answers.document, {"name": "model", "given": {"model": n}}) for n in range(MOST + 1)]
    for job in jobs[:MOST]:
        kept.keep(job, ("ok", "x"))
    assert kept.find(jobs[0]) is not None
    kept.keep(jobs[MOST], ("ok", "x"))
    assert kept.find(jobs[0]) is None
    assert kept.find(jobs[1]) is not None


@pytest.mark.parametrize(
    ("name", "listing"), [("qqqqqqqq77777", "roofplan devices"), ("h1000-sxm", "roofplan devices 1000")]
)
def test_a_list_of_devices_is_narrowed_where_something_is_near(name, listing):
    with pytest.raises(UnknownName) as refused:
        machine(f"{name}:1")
    assert str(refused.value).endswith(f"List: {listing}")


def test_programs_are_sought_in_a_named_folder_alone(tmp_path, monkeypatch):
    from roofplan.measure import workers

    at_hand, empty, cache = (tmp_path / name for name in ("path", "empty", "cache"))
    for folder in (at_hand, empty, cache):
        folder.mkdir()
    for name in (workers.BENCH, workers.WORKER):
        program = at_hand / (f"{name}.exe" if os.name == "nt" else name)
        program.write_text("")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(at_hand))
    monkeypatch.setattr(workers, "cached", lambda: cache)
    assert workers.tools_at(str(empty)) is None
    found = workers.tools_at(None)
    assert found is not None
    assert str(at_hand) in str(found)


def test_a_kept_figure_shows_its_best_and_its_median():
    from roofplan.present.answers.machine import figure_rows

    figures = [
        SimpleNamespace(kind="read", about={}, best=3.0, median=2.0, kept=kept, windows=5, unit="B/s")
        for kept in (4, 0)
    ]
    rows = figure_rows(SimpleNamespace(probe=SimpleNamespace(figures=figures)))
    assert [(row["best"], row["median"]) for row in rows] == [(3.0, 2.0), ("", "")]


@pytest.mark.parametrize(("count", "shown"), [(40, True), (41, False)])
def test_forty_claims_show_their_reasons(count, shown):
    from roofplan.evidence.claims import claims, outcome
    from roofplan.present.screens.claims import claims_screen

    one = next(one for one in map(outcome, claims()) if one.claim.why)
    out = io.StringIO()
    claims_screen([one] * count, Page(out))
    assert (one.claim.why.split()[0] in out.getvalue().split("verdict", 1)[1].replace(one.claim.says, "")) == shown


def test_a_price_in_a_chip_file_is_one_quote():
    from roofplan.money.comparison import rents

    found = machine("h100-sxm:1")[0]
    price = replace(found.device.quantities["power"], value=2.5, unit="USD/h")
    own = replace(found, device=replace(found.device, quantities={**found.device.quantities, "price": price}))
    assert rents(own) == (2.5, 2.5, catalogue.version(), 1)


def test_every_layer_loses_its_window_but_compressed_ones():
    from roofplan.evidence.models import unwindowed

    model = hf.of_catalogue("gemma-2-9b")
    mixers = [mixer for layer in model.decoder.layers for mixer in layer.mixers]
    assert any(mixer.window for mixer in mixers if isinstance(mixer, Attention))
    seeing = [mixer for layer in unwindowed(model).decoder.layers for mixer in layer.mixers]
    assert not any(mixer.window for mixer in seeing if isinstance(mixer, Attention))
    assert len(seeing) == len(mixers)


def test_a_complaint_is_written_at_once(monkeypatch):
    from roofplan.cli.printed import complain

    class Watched(io.StringIO):
        flushed = 0

        def flush(self):
            self.flushed += 1

    monkeypatch.setattr("sys.stderr", seen := Watched())
    complain("no")
    assert (seen.getvalue(), seen.flushed > 0) == ("no\n", True)


def test_parts_of_a_device_fill_its_bar():
    import re

    from roofplan.present.html import COLOURS, _memory

    drawn = _memory({name: 1.0 * 2**30 * (k + 1) for k, name in enumerate(COLOURS)})
    assert sum(map(float, re.findall(r"<rect [^>]*width='([\d.]+)' height='20'", drawn))) == pytest.approx(
        600.0, abs=0.3
    )


def test_blocks_of_a_cache_that_grows_slowly_are_given_back_whole():
    from roofplan.simulation import core

    scheduler = SimpleNamespace(reserves=False, paged=True, grows=0.25, fixed=3.0, block=16)
    state = SimpleNamespace(base=np.array([100]))
    requests = SimpleNamespace(cached=np.array([20]))
    assert core.returned(scheduler, requests, state, 0, 8.0) == 3.0 + 5.0 + 0.5


def test_a_device_that_does_not_hold_the_weights_admits_nobody():
    from roofplan.serving.ledger import ledger
    from roofplan.serving.space import named_engine

    model, engine, box = hf.of_catalogue("llama-3.1-405b"), named_engine("vllm"), machine("rtx-4090:1")[0]
    feet = footprints(model, Strategy(), 2.0)
    book = ledger(model, Strategy(), box, engine, Workload(input=100, output=100), feet)
    assert (book.max_concurrency, book.fits) == (0, False)


@pytest.mark.parametrize("limit", ["rank", "server"])
def test_seats_are_those_of_all_ranks_whoever_the_limit_is_for(limit):
    from roofplan.serving.ledger import ledger
    from roofplan.serving.space import named_engine

    model, engine = hf.of_catalogue("deepseek-v3"), replace(named_engine("sglang"), sequence_limit=limit)
    strategy, box = Strategy(tp=8, attention_dp=2), machine("h200-sxm:8")[0]
    feet = footprints(model, strategy, 2.0)
    assert ledger(model, strategy, box, engine, Workload(input=1, output=1), feet, seats=6000).by_setting == 6000


def test_a_stale_profile_is_not_named_as_in_use(monkeypatch, tmp_path):
    from roofplan.catalogue import profile

    fit = catalogue.shipped_fit()
    monkeypatch.setenv(profile.VARIABLE, str(tmp_path / "profile.toml"))
    item = fit.find("kernel", "gap", ["any"])
    profile.save([item], fit)
    assert profile.said(fit).startswith("1 constant from")
    assert profile.said(fit.with_([replace(item, value=2.0 * item.value)])) == ""


@pytest.mark.parametrize(("users", "varied"), [("1", False), ("2", True)])
def test_lengths_of_two_clients_are_taken_to_differ(users, varied):
    from roofplan.evidence.inference import LENGTHS, case_of

    row = next(
        row
        for row in catalogue.inference_rows()
        if row["client_concurrency"] and not row["quality_flags"] and not row.get("lengths") and row["tpot_ms"]
    )
    case = case_of({**row, "client_concurrency": users})
    assert (LENGTHS in case.unstated) == varied


@pytest.mark.parametrize(
    ("engine", "prompt", "alike"), [("vllm", "1024", True), ("vllm", "1023.5", False), ("sglang", "1024", False)]
)
def test_random_requests_of_vllms_own_client_are_all_of_one_length(engine, prompt, alike):
    from roofplan.evidence.alternatives import alternatives
    from roofplan.evidence.inference import LENGTHS, case_of

    row = {
        "id": "x",
        "source_key": "mine",
        "model_name": "Llama-3.1-8B",
        "accel_norm": "h100-sxm",
        "count": "1",
        "engine_name": engine,
        "month": "2026-03",
        "weight_precision": "bf16",
        "input_len": prompt,
        "output_len": "128",
        "client_concurrency": "8",
        "tpot_ms": "9",
        "metric_kind": "serving",
    }
    case = case_of(row)
    assert case.alike == alike
    assert [other.alike for other in alternatives(case, LENGTHS)] == [not alike]
    assert not case_of({**row, "quality_flags": "len_distribution"}).alike
    assert case_of({**row, "lengths": "fixed"}).alike
    assert LENGTHS not in case_of({**row, "lengths": "fixed"}).unstated


def test_long_warnings_of_a_table_are_indented(monkeypatch):
    from roofplan.evidence.scoring import Validation
    from roofplan.present.screens.validation import validation_screen

    monkeypatch.setattr(Validation, "warnings", [("code", "words " * 60)])
    out = io.StringIO()
    validation_screen(Validation(kind="training", rows=1), Page(out))
    lines = [line for line in out.getvalue().splitlines() if line.strip().startswith("words")]
    assert lines
    assert {len(line) - len(line.lstrip()) for line in lines} == {4}


def test_a_separator_ends_its_line():
    items = [f"{number}% of something" for number in range(10, 30)]
    for sign in ("·", "+"):
        for width in range(30):
            lines = folded("x" * width + " " + f" {sign} ".join(items), 16)
            joined = " ".join(line.strip() for line in lines)
            assert joined == "x" * width + " " + f" {sign} ".join(items) if width else True
            assert max(map(len, lines)) <= WIDTH
            assert not any(line.strip().startswith(f"{sign} ") for line in lines)


def test_an_interval_is_drawn_below_one_and_not_at_zero():
    from roofplan.present.html import _interval

    drawn = {low: _interval({"value": 0.05, "low": low, "high": 0.1}) for low in (0.02, 0.0)}
    assert (bool(drawn[0.02]), drawn[0.0]) == (True, "")


def test_the_first_number_that_is_cut_has_21_digits():
    from roofplan.hf.fields import shortened

    assert (shortened(10**20 - 1), shortened(10**20)) == ("9" * 20, "1" + "0" * 18 + "... (21 digits)")


def test_states_between_two_lengths_of_a_prompt_take_a_time_between():
    """A step of one sequence and 30 tokens: a quarter of the way from 10 tokens, 1 s, to 90, 5 s."""
    from roofplan.simulation.steps import prompt_step

    tables = {name: np.zeros(100) for name in ("prompts", "prompt_rows")}
    times = SimpleNamespace(
        **tables,
        encoders=(),
        reads=(),
        states_tokens=[10.0, 90.0],
        states_rows=[0.0, 2.0],
        states=[[1.0, 1.0], [5.0, 5.0]],
    )
    assert prompt_step(times, 0, 0.0, 1, 30, 0) == pytest.approx(2.0)


def test_layers_that_divide_with_both_ends_are_even():
    from roofplan.training.stages import even

    assert [even(layers, 4) for layers in (124, 125, 126, 127)] == [True, False, True, False]
    assert not even(126, 4, ends=False)


@pytest.mark.parametrize(("days", "lowest"), [(180, 1.0), (181, 2.0)])
def test_rents_count_up_to_half_a_year_before_the_newest(monkeypatch, days, lowest):
    import datetime

    from roofplan.money import comparison

    newest = datetime.date(2026, 11, 1)
    known = [
        SimpleNamespace(kind=comparison.KINDS["rent"], unit="USD/h", value=value, middle=day, date=str(day))
        for value, day in ((2.0, newest), (1.0, newest - datetime.timedelta(days=days)))
    ]
    monkeypatch.setattr(comparison.catalogue, "prices", lambda _: known)
    assert comparison.rents(machine("h100-sxm:1")[0])[0] == lowest


@pytest.mark.parametrize(
    ("reached", "missed"), [(0.02, 0.0), (0.03, math.log(1.5)), (0.01, 0.0), (0.0, math.inf), (math.inf, math.inf)]
)
def test_a_missed_limit_is_as_far_as_the_ratio_says(reached, missed):
    from roofplan.records.workload import Constraints
    from roofplan.serving.ways_out import LIMITS

    asked = SimpleNamespace(constraints=Constraints(tpot=0.02))
    limit = next(one for one in LIMITS if one.field == "tpot")
    assert limit.missed({"tpot": reached}, asked) == pytest.approx(missed)


def test_what_was_asked_for_is_told_as_it_was_typed():
    from roofplan.serving.ways_out import _now

    asked = SimpleNamespace(
        machines=(machine("dgx-h100:1")[0], machine("h100-sxm:4")[0]),
        workload=SimpleNamespace(context=2048),
        engine=None,
        precisions=("checkpoint", "fp8"),
        kv_precisions=("fp8",),
        pins={"tp": 8},
        settings={},
    )
    told = [_now(flag, asked) for flag in ("--on", "--context", "--engine", "--precision", "--strategy")]
    assert told == ["dgx-h100:1,h100-sxm:4", "2048", "the default", "checkpoint,fp8", "tp=8"]


@pytest.mark.parametrize(("event", "said"), [({"error": [1]}, "1"), ({"error": {"message": "too long"}}, "too long")])
def test_an_error_inside_a_stream_is_told_in_its_own_words(event, said):
    from roofplan.measure.stream import Stream

    stream = Stream()
    stream.event(event, 1.0)
    assert stream.failed.reason == "error in the stream"
    assert said in stream.failed.message


@pytest.mark.parametrize(("sent", "read"), [(0, 0), (7, 7), (-1, 3), ("7", 3), (None, 3)])
def test_counts_of_tokens_are_taken_from_zero_on(sent, read):
    from roofplan.measure.stream import _count

    assert _count(sent, 3) == read


@pytest.mark.parametrize("name", ["v100-sxm2-32", "h100-sxm", "p100-pcie-16"])
def test_the_peak_in_sixteen_bits_is_checked_whichever_they_are(name):
    from roofplan.present.screens.things import peak_check

    assert peak_check(catalogue.accelerator(name)).endswith("checks")


def test_every_draft_that_is_accepted_is_refused():
    from roofplan.serving.request import draft

    assert draft("1:0.99")[1] == pytest.approx(0.99)
    with pytest.raises(InputError, match="not below 1"):
        draft("1:1")


def test_other_plausible_inputs_widen_times_and_rates_alike():
    from roofplan.timing.figures import Sure
    from roofplan.training.certainty import Known

    known = Known(Sure("borrowed", math.log(1.1)), ends=(0.5, 2.0))
    for metric in (known.grows(10.0, "s"), known.falls(10.0, "token/s")):
        assert (metric.low, metric.high) == pytest.approx((5.0, 20.0))
    narrow = Known(Sure("borrowed", math.log(4.0)), quickest=2.0, ends=(0.5, 2.0))
    assert (narrow.grows(10.0, "s").low, narrow.falls(10.0, "token/s").high) == pytest.approx((5.0, 20.0))


@pytest.mark.parametrize(("hours", "said"), [(1.9, "6,840 s"), (2, "2.00 h"), (47, "47.0 h"), (48, "2.00 days")])
def test_times_change_their_unit_at_two(hours, said):
    from roofplan.records import units

    assert units.show(hours * units.HOUR, "s") == said


def test_a_queue_grows_by_what_its_second_half_shows(monkeypatch):
    """Waiting requests at each of 100 arrivals, one a second, as the square of their number over 20."""
    from roofplan.simulation import report

    inside, arrivals = np.arange(100.0) ** 2 / 20.0, np.arange(100.0)
    monkeypatch.setattr(report, "waiting_at", lambda *_: inside)
    growth = (inside[-10:].mean() - inside[45:55].mean()) / (94.5 - 49.5)
    assert report.growth_of(SimpleNamespace(arrivals=arrivals), None) == pytest.approx(growth)
    assert report.growth_of(SimpleNamespace(arrivals=arrivals), 4) == 0.0


@pytest.mark.parametrize(("memory", "said"), [(80e9, ""), (80e9 + 1.0, "memory of a device: 74.5 GiB"), (None, "")])
def test_published_memory_may_fill_a_device_to_the_last_byte(memory, said):
    from roofplan.evidence.predictions import implausible_training

    case = SimpleNamespace(memory=memory, rate=None, machine=SimpleNamespace(device=SimpleNamespace(memory=80e9)))
    assert implausible_training(case, "memory", 1.0) == said


@pytest.mark.parametrize(
    ("method", "fused", "entries"),
    [("lora", False, 8 * (10 + 20) * 2), ("lora", True, 8 * (10 + 20 + 20)), ("dora", False, 8 * (10 + 20) * 2 + 40)],
)
def test_an_adapter_trains_two_thin_matrices_and_a_vector_in_dora(method, fused, entries):
    from roofplan.hf.blocks import linear
    from roofplan.operations.activations import update_entries
    from roofplan.records.training import Adapter

    adapter = Adapter(method=method, rank=8, targets=("q_proj", "v_proj"), fused=fused)
    group = (linear("self_attn.q_proj", 10, 20), linear("self_attn.v_proj", 10, 20), linear("self_attn.k_proj", 10, 20))
    assert update_entries(group, adapter) == entries


def test_the_norm_of_dora_passes_over_the_weights_in_two_bytes():
    from roofplan.hf.blocks import linear
    from roofplan.operations.training import WEIGHT_NORM_PASSES, _weight_norm
    from roofplan.records.training import Adapter

    norm = _weight_norm((linear("self_attn.q_proj", 10, 20),), Adapter(method="dora", rank=8), 2.0)
    assert norm.traffic == WEIGHT_NORM_PASSES * 100 * 2


@pytest.mark.parametrize("text", ["EUR", "EUR=", "eur=1.1", "=1.1"])
def test_an_exchange_rate_has_a_currency_and_a_value(text):
    from roofplan.money.request import _rates

    with pytest.raises(InputError, match="is not such as EUR"):
        _rates(text)


def test_copies_to_the_host_are_unknown_without_their_efficiency():
    box = machine("h100-sxm:8")[0]
    assert box.copy_rate > 0.0
    link = replace(
        box.host_link, quantities={k: v for k, v in box.host_link.quantities.items() if k != "copy_efficiency"}
    )
    assert replace(box, host_link=link).copy_rate is None
    assert replace(box, host_link=None).copy_rate is None


@pytest.mark.parametrize(("share", "taken"), [(1.0, True), (0.5, False)])
def test_activations_are_offloaded_with_recomputation_of_every_layer(share, taken):
    from roofplan.training.search import swaps

    framework = SimpleNamespace(swaps=("full",), swaps_stages=False)
    assert swaps(framework, "full", share, 1) is taken
    assert not swaps(framework, "none", share, 1)
    assert not swaps(framework, "full", share, 2)


def test_the_time_per_token_of_a_request_is_its_whole_time_over_its_tokens():
    from roofplan.evidence.serving_figures import _time_per_token

    case = SimpleNamespace(statistic=SimpleNamespace(kind="request", quantile=None, of=np.mean))
    seen = SimpleNamespace(figure=lambda _: np.array([4.0, 9.0]), outputs=np.array([2.0, 3.0]))
    assert _time_per_token(case, seen, None) == 2.5


def test_charts_of_machines_show_their_points():
    from roofplan.present.charts.machine import _line

    drawn = _line("t", [{"a": 1.0, "b": 2.0}], ("a", "s"), ("b", "GB/s"), "a")
    assert drawn["mark"] == {"type": "line", "point": True}


def test_only_lines_longer_than_the_longest_are_cut():
    from roofplan.present.screens.machine import LONGEST, _cut

    assert _cut("x" * LONGEST) == "x" * LONGEST
    assert _cut("x" * LONGEST + "y") == "x" * LONGEST + "..."


def test_compressed_attention_without_a_window_reads_its_entries_alone():
    from roofplan.operations.attention import _seen

    mixer = Attention(heads=4, kv_heads=1, head_dim=8, value_dim=8, groups=(), compression=4)
    assert _seen(mixer, 100.0) == (25.0, 0.0)
    assert _seen(replace(mixer, window=16, index_elements=8), 100.0) == (25.0 + 16.0, 25.0)


def test_as_many_devices_as_are_planned_as_one_machine_fill_whole_servers():
    from roofplan.catalogue.machines import MOST_DEVICES

    found = machine(f"h100-sxm:{MOST_DEVICES}")[0]
    assert (found.per_host, found.count) == (8, MOST_DEVICES)


def test_ports_begin_with_one():
    from roofplan.measure.machine.hosts import address_of

    assert address_of("[::1]:1", "--link") == ("::1", 1)
    with pytest.raises(InputError, match="HOST:PORT"):
        address_of("127.0.0.1:0", "--link")


def test_rows_without_an_id_are_called_by_their_number():
    from roofplan.evidence.rows import told_apart

    assert [row["id"] for row in told_apart([{"id": ""}, {"id": "a"}, {"id": "a"}])] == ["row 1", "a", "a row 3"]


@pytest.mark.parametrize(("index", "other"), [(None, 1), (0, 1), (1, 0)])
def test_links_lead_from_the_device_at_hand_to_the_others(index, other):
    from roofplan.measure.machine.backends import Torch

    backend = object.__new__(Torch)
    backend.kind, backend.device = "cuda", SimpleNamespace(index=index)
    backend.torch = SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: 2))
    assert list(backend.links()) == ["host to device", "device to host", f"device to device {other}"]


@pytest.mark.parametrize("holds", [True, False])
def test_what_users_feel_is_coloured_where_a_limit_is_missed(holds):
    from roofplan.present.screens.plans import _under_load

    page = Page(io.StringIO())
    page.colour = True
    felt = SimpleNamespace(limits=[("ttft p99", 1.0 if holds else 3.0, 2.0)], good=0.99, growth=0.0, holds=holds)
    said = "\n".join(_under_load(SimpleNamespace(under_load=felt, seats=None), page, ""))
    assert ("\x1b[" in said, "MISSED" in said) == (not holds, not holds)


def test_a_single_matrix_is_split_by_its_outputs():
    """Zamba's projection behind its shared blocks: each rank reads all inputs."""
    from roofplan.operations import UNPADDED, layer_operations
    from roofplan.operations.table import Split, Step

    model, ranks, tokens = hf.of_catalogue("zamba2-1.2b"), 2, 10.0
    layer = next(one for one, _ in model.decoder.kinds() if any(len(f.groups) == 1 for f in one.feed_forwards))
    split = Split.of(Strategy(tp=ranks))
    table = layer_operations(layer, Step(sequences=tokens, context=8.0), split, model, 2.0, UNPADDED)
    found = next(one for one in table if one.name == "linear")
    assert found.inputs == tokens * model.hidden


def test_results_are_more_than_half_of_what_was_sent():
    """Ten looks of sending; then as much comes back as half of what goes out, and that is not an answer yet."""
    from roofplan.measure.workers import ANSWERED, SMALL, _load

    step = 2.0 * SMALL
    sent = [step * k for k in range(40)]
    half = [0.0] * 12 + [ANSWERED * step * k for k in range(1, 29)]
    more = [*half[:20], *(one + 1.0 for one in half[20:])]
    whole, _ = _load([(float(k), *both) for k, both in enumerate(zip(half, sent, strict=True))])
    assert whole == sent[-1]
    less, _ = _load([(float(k), *both) for k, both in enumerate(zip(more, sent, strict=True))])
    assert less < whole


@pytest.mark.parametrize(("method", "shown"), [("full", True), ("lora", False)])
def test_hours_that_makers_publish_stand_beside_full_training_alone(method, shown, run):
    _, out, _ = run("train", "llama-3.1-8b", "--on", "h100-sxm:8", "--tokens", "1B", "--method", method)
    assert ("published" in out) == shown


@pytest.mark.parametrize(("sequence", "tried"), [(4096, [2048, 1024, 512]), (3002, [1501]), (3001, []), (1022, [])])
def test_sequences_are_halved_while_they_are_even_and_long(sequence, tried, monkeypatch):
    from roofplan.training import misses

    said = []
    monkeypatch.setattr(misses, "_way", lambda flags, *_: said.append(flags))
    monkeypatch.setattr(misses, "replace", lambda one, **new: SimpleNamespace(**{**vars(one), **new}))
    asked = SimpleNamespace(job=SimpleNamespace(sequence=sequence, batch=3))
    assert misses._shorter(asked, None, None) == []
    assert [int(one["--sequence"]) for one in said] == tried
    assert [one["--batch"] for one in said] == [f"{3 * sequence // one}seq" for one in tried]


def test_prompts_that_one_pass_computes_are_left_as_they_are():
    from roofplan.operations import Step
    from roofplan.serving.prompts import mean_pass

    step, engine = Step(new=1000.0, requests=1.0), catalogue.engine("vllm-0.33")
    assert mean_pass(engine, step, 2048.0)[0] is step
    assert mean_pass(engine, step, 500.0)[0] is not step


@pytest.mark.parametrize(("stated", "found", "count"), [(None, 3, 3), (None, None, 1), ("2", 3, 2)])
def test_a_pool_has_a_process_for_every_processor(stated, found, count, monkeypatch):
    from roofplan.workers import pool

    monkeypatch.setattr(pool.os, "cpu_count", lambda: found)
    assert pool.processes(stated) == count


def test_memory_that_an_owner_keeps_is_no_room(tmp_path):
    from roofplan.inputs import PoolPlanInputs
    from roofplan.pool.costs import rooms
    from roofplan.pool.request import pool_request

    path = tmp_path / "members.toml"
    path.write_text('member = [{device="rtx-4090", link="1gbe", memory="12GB"}, {device="rtx-4090", link="1gbe"}]')
    asked = PoolPlanInputs(model="qwen3-8b", members=str(path))
    kept, whole = rooms(pool_request(hf.of_catalogue("qwen3-8b"), asked))
    assert whole - kept == pytest.approx(catalogue.accelerator("rtx-4090").room - 12e9)


def test_shares_of_a_probe_are_those_of_its_dense_products():
    from roofplan.timing.rates import _of_reads

    entries = catalogue.shipped_fit().constants
    dense = replace(entries[0], value=0.8)
    assert _of_reads(replace(entries[0], value=0.6), dense).value == pytest.approx(0.75)
    assert _of_reads(replace(entries[0], value=0.9), dense).value == 1.0


@pytest.mark.parametrize(("name", "fused"), [("unsloth", True), ("peft", False)])
def test_stand_ins_compute_the_loss_as_their_software_does(name, fused):
    from roofplan.training.request import framework_of

    found = framework_of(name, "lora")
    assert (found == found.with_fused_loss()) == fused


@pytest.mark.parametrize(
    ("engine", "input_len", "distance"), [("vllm", 2048, 0.5 * math.log(2.0)), ("sglang", 1024, 0.5)]
)
def test_runs_of_other_lengths_and_engines_are_further_away(engine, input_len, distance):
    from roofplan import api
    from roofplan.evidence.nearest import _distance

    asked = {"on": "h100-sxm:1", "input": 1024, "output": 256, "concurrency": 4, "engine": "vllm-0.33"}
    plan = api.plan_serving("llama-3.1-8b", **asked).plans[0]
    row = {
        "client_concurrency": str(plan.users),
        "count": "1",
        "input_len": str(input_len),
        "output_len": "256",
        "engine_name": engine,
        "weight_precision": "bf16",
    }
    assert _distance(row, plan) == pytest.approx(distance)


@pytest.mark.parametrize(("ep", "found"), [(1, {1, 4}), (2, {1, 2, 4}), (4, {1, 4})])
def test_expert_ranks_below_the_tensor_ranks_are_tried_where_asked_for(ep, found):
    from roofplan.serving.space import _variants

    model, engine = hf.of_catalogue("mixtral-8x7b"), catalogue.engine("tensorrt-llm-1.0")
    tried = [one for one in _variants(4, 1, 1, model, engine, ep) if one.attention_dp == 1]
    assert {one.ep for one in tried} == found


@pytest.mark.parametrize(("user", "said"), [(0, ""), (1, "network namespaces need root")])
def test_namespaces_are_for_root(user, said, monkeypatch):
    from roofplan.measure import namespaces

    monkeypatch.setattr(namespaces.os, "geteuid", lambda: user, raising=False)
    monkeypatch.setattr(namespaces.shutil, "which", lambda name: f"/sbin/{name}")
    assert namespaces.why_not() == said


def test_a_latency_that_nobody_stated_spans_what_is_plausible():
    from roofplan.pool.members import members
    from roofplan.pool.parts import latency_ends

    rules = catalogue.pools()
    guess, margin = rules.assumed["rtt"], rules.margins["given_rtt"].value
    assumed, stated = members(["rtx-4090@100mbit", "rtx-3090@1gbe:10ms"])
    assert latency_ends((assumed, assumed)) == pytest.approx((guess.low, guess.high))
    assert latency_ends((stated, stated)) == pytest.approx((0.010 / margin, 0.010 * margin))


def test_micro_batches_of_the_largest_size_are_tried():
    from importlib import import_module

    from roofplan.training.request import framework_of

    search = import_module("roofplan.training.search")
    job = SimpleNamespace(sequence=2048, batch=4 * search.LARGEST_MICRO_BATCH, adapter=None)
    grid = search._grid(hf.of_catalogue("llama-3.2-1b"), job, 1, framework_of("megatron", "full"), {})
    assert max(grid["micro_batch"]) == search.LARGEST_MICRO_BATCH


@pytest.mark.parametrize("model", ["llama-3.2-1b", "gpt2", "mixtral-8x7b", "bert-base"])
def test_stages_hold_all_parameters_of_a_model(model):
    from roofplan.records.training import Layout
    from roofplan.training.stages import rank_parameters, stages

    model = hf.of_catalogue(model)
    for pp in (1, 2):
        layout = Layout(pp=pp)
        kinds = [layer for layer, _ in model.decoder.kinds()]
        shares = [rank_parameters(one, kinds, model, layout) for one in stages(model, pp)]
        again = model.embedding if model.tied and pp > 1 else 0
        assert sum(sum(one) for one in shares) == model.total + again


@pytest.mark.parametrize(("regime", "users"), [("static batch", None), ("closed loop", 4.0)])
def test_prompts_are_told_by_batches_of_known_size(regime, users):
    from roofplan.evidence.fits.prompts import prompts_of

    case = SimpleNamespace(
        regime=regime,
        users=users,
        measured={"ttft": 1.0},
        workload=SimpleNamespace(input=1.0, output=100.0),
        prompts_term=lambda _: "prompts",
    )
    assert prompts_of(case, None) is None


@pytest.mark.parametrize(("engine", "divided"), [("sglang-0.5.23", True), ("vllm-0.33", False)])
def test_ranks_of_attention_share_the_budget_of_a_server(engine, divided):
    from roofplan.serving.ledger import ledger

    model, box, software = hf.of_catalogue("deepseek-r1"), machine("h200-sxm:8")[0], catalogue.engine(engine)
    load = Workload(input=4500, output=200)

    def book(groups):
        strategy = Strategy(tp=8, attention_dp=groups)
        return ledger(model, strategy, box, software, load, footprints(model, strategy, 1.0))

    alone, apart = book(1), book(8)
    assert apart.budget_tokens == alone.budget_tokens / (8 if divided else 1)


def test_searches_plan_strategies_by_their_own_budgets(monkeypatch):
    """Data-parallel attention divides SGLang's chunk, so that strategies of one search compute unlike prompts a step."""
    from roofplan import api
    from roofplan.serving.defaults import batched_tokens
    from roofplan.serving.setups import Setup

    grid, unlike = Setup.grid, []

    def compared(self, strategy, users, budget):
        found = grid(self, strategy, users, budget)
        for row, groups in enumerate(np.ravel(strategy.attention_dp)):
            one = Strategy(**{name: float(np.ravel(value)[row]) for name, value in vars_of(strategy).items()})
            own = batched_tokens(self.engine, self.machine, self.asked.workload, int(groups))
            alone = grid(self, one, users[row : row + 1], own).figures["cycle_time"]
            assert found.figures["cycle_time"][row] == pytest.approx(alone[0])
            unlike.append(own)
        return found

    def vars_of(strategy):
        return {name: getattr(strategy, name) for name in ("tp", "pp", "dp", "ep", "attention_dp")}

    monkeypatch.setattr(Setup, "grid", compared)
    api.plan_serving("deepseek-r1", on="h200-sxm:8", engine="sglang-0.5.23", input=8000, output=500, concurrency=16)
    assert len(set(unlike)) > 1


def test_a_load_s_cost_lies_inside_its_interval(run_json):
    _, document = run_json(
        "simulate", "llama-3.1-8b", "--on", "h100-sxm:1", "--rate", "2req/s", "--requests", "50", "--output", "32"
    )
    every = [one for one in document["metrics"].values() if one and one.get("low") is not None]
    assert any(one["unit"] == "USD/Mtoken" and one["low"] < one["value"] for one in every)
    assert all(one["low"] <= one["value"] <= one["high"] for one in every)


def test_the_parts_of_a_path_are_all_its_runs_of_names():
    from roofplan.hf.quantization import _parts

    assert _parts("a.b.c") == {"a", "b", "c", "a.b", "b.c", "a.b.c"}


@pytest.mark.parametrize(("share", "said"), [("50%", "recomputed=0.5"), ("100%", "recomputed=100%")])
def test_a_layout_is_planned_again_with_its_share_of_recomputed_layers(run_json, share, said):
    layout = f"tp=8,recompute=full,recomputed={share}"
    _, document = run_json("train", "llama-3.1-8b", "--on", "h100-sxm:8", "--strategy", layout)
    assert said in document["plans"][0]["reproduce"]


def test_random_counts_end_at_the_most_that_are_summed():
    from roofplan.laws import batching

    assert float(batching.random_count(1.0, 4.0)) == 4.0 + batching.MANY * 3.0


def test_releases_beside_one_are_the_next_before_and_after():
    from roofplan.evidence.alternatives import _releases_beside

    names = [one.id for one in _releases_beside(catalogue.engine("vllm-0.20"))]
    assert names == ["vllm-0.11", "vllm-0.33"]
    assert [one.id for one in _releases_beside(catalogue.engine("vllm-0.2"))] == ["vllm-0.6"]


@pytest.mark.parametrize(("high", "unsure"), [(0.4, False), (0.6, True)])
def test_a_limit_that_the_slow_end_keeps_too_is_kept_surely(high, unsure):
    from roofplan.load.statistics import objectives_of
    from roofplan.present.screens.load import _limit
    from roofplan.simulation.report import Judged

    (limit,) = objectives_of("ttft=500ms@p99")
    said = _limit(Judged(objective=limit, time=0.3, low=0.2, high=high), "limits")
    assert said.endswith(", not surely") is unsure


@pytest.mark.parametrize(("most", "kept"), [(np.inf, 3), (2, 8)])
def test_members_that_are_alike_are_tried_no_more_often_than_hold_the_model(most, kept):
    """Ten layers of 1 and a head of 1 on members of 7: two hold them, one more may ask; with a limit on layers any may be needed."""
    from roofplan.pool.search import _useful

    problem = SimpleNamespace(
        weight=np.ones(10), head_weight=1.0, alike=[0] * 8, room=[7.0] * 8, layers=10, clients=[0], most=most
    )
    assert len(_useful(problem)) == kept


def test_a_stage_that_holds_no_more_than_another_sets_no_pace():
    from roofplan.operations import _stage_rows

    assert set(_stage_rows((tuple(range(6)),), 6, 4)) == {(2.0, 0.0), (1.0, 1.0)}


def test_a_matmul_of_several_copies_is_as_wide_as_all_of_them():
    from roofplan.hf.blocks import linear
    from roofplan.operations.activations import width

    one = linear("mlp.up_proj", 64, 128)
    assert float(width((replace(one, copies=4),), 2)) == 4 * float(width((one,), 2)) == 256.0


def test_results_with_the_measure_come_before_others_by_its_value():
    from roofplan.evidence.benchmarks import _place

    def result(value):
        return SimpleNamespace(by=lambda _: value, per_accelerator=2.0)

    assert _place(result(5.0), "device") == (True, 5.0, 2.0)
    assert _place(result(None), "device") == (False, 0.0, 2.0)


def test_tokens_of_a_log_that_prints_no_cache_are_compared_with_nothing():
    from roofplan.evidence.startup import explained
    from roofplan.inputs import MemoryInputs
    from roofplan.measure.startup import startup_of

    text = (
        "server_args=ServerArgs(model_path='x', tp_size=1, mem_fraction_static=0.8)\n"
        "Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=62.08 GB, mem usage=15.00 GB.\n"
        "max_total_num_tokens=1000, chunked_prefill_size=8192\n"
    )
    found = explained(startup_of(text), MemoryInputs(log="-", model="llama-3.1-8b"))
    assert "tokens" not in {line.name for line in found.lines}


def test_what_no_run_tells_is_a_guess_of_no_rows():
    from roofplan.evidence.fits.prompts import fronts
    from roofplan.evidence.fits.serving import _neutral_shares

    assert {(one.rows, one.kind) for one in _neutral_shares()} == {(0, "guess")}
    assert [one.spread for one in fronts({}) if one.scope == "any"] == [0.7]
    told = fronts({"vllm": [0.002] * 40, "sglang": [0.003] * 40})
    assert [one.spread for one in told if one.scope == "any"] == [0.7]


def test_a_page_holds_only_numbers_that_json_has():
    from roofplan.present.charts.page import page

    with pytest.raises(ValueError, match="not JSON compliant"):
        page("title", "text", [{"data": math.nan}])


def test_a_spelling_without_its_tuning_is_found():
    from roofplan.catalogue.spellings import named

    assert named("codegemma-1.1-7b") == "gemma-7b"
    assert named("codegemma-1.1-2b") != "gemma-7b"


def test_a_published_run_beside_a_plan_has_a_predicted_time():
    from roofplan.evidence.nearest import _by_id, _predicted
    from roofplan.timing.figures import Metric

    fit = catalogue.shipped_fit()
    found = (_predicted(row, fit)[1] for row in _by_id().values())
    assert isinstance(next(one for one in found if one is not None), Metric)


def test_dies_have_units_only_where_those_made_and_those_sold_are_known():
    from roofplan.money.chip import chip_of

    card = catalogue.accelerator("a10")
    sold = card.quantities["units"]
    both = replace(card, id="mine", quantities={**card.quantities, "units_full": replace(sold, value=84.0)})
    one = replace(card, id="mine", quantities={name: n for name, n in both.quantities.items() if name != "units"})
    assert [(die.units, die.sold) for die in chip_of(both).dies] == [(84, int(sold.value))]
    assert [(die.units, die.sold) for die in chip_of(one).dies] == [(None, None)]


def test_launches_that_half_fit_a_queue_delay_what_does_not_fit():
    from roofplan.laws.pipeline import layer_split_turns

    assert float(layer_split_turns(4.0, 3.0, 4.0, 1.5)) == 2.0 / 2.0 * 3.5 + 0.0 + 4.0


def test_every_volume_is_a_request_at_least(run):
    code, _, error = run("cost", "tokens", "llama-3.1-8b", "--on", "h100-sxm:1", "--tokens", "1B,100/month")
    assert code == 2
    assert "is less than one request" in error


def test_a_model_stands_first_in_python():
    from roofplan.inputs import ServeInputs
    from roofplan.questions import EVERY
    from roofplan.questions.spelling import python_call

    said = python_call(EVERY["serve"], ServeInputs(model="llama-3.1-8b", on=("h100-sxm:1",)))
    assert "answer = rp.plan_serving('llama-3.1-8b', on=['h100-sxm:1'])" in said


@pytest.mark.parametrize("engine", [None, "vllm"])
def test_settings_to_try_are_of_the_engine_that_was_asked_for_or_planned(engine):
    from roofplan.serving import Request, search
    from roofplan.serving.advice import changes

    asked = Request(model=hf.of_catalogue("llama-3.1-8b"), machines=tuple(machine("h100-sxm:1")), engine=engine)
    plan = search(asked, catalogue.shipped_fit()).plans[0]
    tried = {one.engine for flag, _, one in changes(plan, asked) if flag == "--set"}
    assert tried == {engine or plan.engine.id}


@pytest.mark.parametrize(
    ("given", "named", "said"),
    [
        (("llama-3.1-8b",), {"model": "llama-3.1-8b"}, "stand by their place, each once"),
        (("llama-3.1-8b", ["h100-sxm:1"], "more"), {}, "stand by their place, each once"),
    ],
)
def test_inputs_stand_once_and_no_more_than_have_places(given, named, said):
    import roofplan as rp

    with pytest.raises(InputError, match=said):
        rp.plan_serving(*given, **named)


def test_a_record_of_inputs_stands_alone():
    import roofplan as rp
    from roofplan.inputs import ServeInputs

    asked = ServeInputs(model="llama-3.1-8b", on=("h100-sxm:1",))
    for more in ((["h100-sxm:1"],), ()):
        with pytest.raises(InputError, match="stands alone"):
            rp.plan_serving(asked, *more, **({} if more else {"tpot": "50ms"}))


def test_an_answer_of_a_quarter_of_few_positions_is_one_token():
    from roofplan.errors import UnitError
    from roofplan.serving.request import check_served

    model = replace(hf.of_catalogue("llama-3.1-8b"), max_positions=4)
    with pytest.raises(UnitError, match="--input 3 --output 1 fit"):
        check_served(model, Workload(input=4, output=3, context=7), None)


@pytest.mark.parametrize(("size", "refused"), [(-2, True), (-1, False), (128, False)])
def test_a_group_has_a_size_or_is_a_channel(size, refused):
    from roofplan.errors import ConfigError
    from roofplan.hf.fields import Fields
    from roofplan.hf.quantization import _group_size

    fields = Fields({"group_size": size}, "config.json")
    if refused:
        with pytest.raises(ConfigError):
            _group_size(fields, 128)
    else:
        assert _group_size(fields, 128) == size


def test_a_budget_that_no_plan_in_time_keeps_is_what_binds(run_json):
    words = ("train", "llama-3.1-8b", "--on", "h100-sxm:8", "--tokens", "1B", "--deadline", "3000d", "--budget", "1USD")
    code, document = run_json(*words)
    assert code == 1
    assert document["no_plan"]["binding"] == "budget"


def test_a_run_that_states_no_patience_is_over_after_the_usual_one():
    from roofplan.measure.ledger import PATIENCE, _runs

    assert _runs({}, PATIENCE)
    assert not _runs({}, PATIENCE + 0.5)


def test_a_trace_lacks_the_columns_of_the_form_that_it_is_nearest_to(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("Timestamp,Request tokens,Model\n0,5,x\n")
    with pytest.raises(InputError, match="lacks the column response tokens"):
        read_trace(path)


def test_the_newest_price_that_holds_is_taken():
    from datetime import date, timedelta

    from roofplan.money.listed import _today

    def price(name, days):
        start = None if days is None else date.today() + timedelta(days=days)
        return SimpleNamespace(constraint=SimpleNamespace(start_date=start), prices=name)

    assert _today([price("first", None), price("now", -1), price("later", 1)]) == "now"
    assert _today([price("soon", 1), price("later", 2)]) == "soon"
    assert _today("alone") == "alone"


def test_repeated_prompts_are_those_of_the_seed():
    from roofplan.measure.request import FRESH, REPEATED, _prompts

    again, fresh = _prompts(REPEATED, 7), _prompts(FRESH, 7)
    assert (again.seed, again.repeated) == (7, True)
    assert not fresh.repeated


def test_milestones_are_prices_at_which_devices_were_sold_in_dollars():
    from roofplan.money.history import SOLD, milestones

    found = milestones()
    assert len(found) > 20
    assert {(one.price.unit, one.price.kind in SOLD) for one in found} == {("USD", True)}


def test_a_recurrence_keeps_what_enters_and_leaves_it():
    from roofplan.operations.activations import _mixer

    mixer = next(
        one
        for layer in hf.of_catalogue("qwen3.5-9b").decoder.layers
        for one in layer.mixers
        if isinstance(one, Recurrence)
    )
    last = mixer.groups[-1]
    doubled = replace(mixer, groups=(*mixer.groups[:-1], (replace(last[0], copies=2), *last[1:])))
    layout, framework = SimpleNamespace(tp=2), None
    once, twice = (_mixer(one, 8.0, 8.0, layout, framework) for one in (mixer, doubled))
    assert twice[1].bytes == 2 * once[1].bytes


def test_cards_of_as_much_memory_hold_at_least_as_much():
    from roofplan.serving.ways_out import _at_least

    box = machine("rtx-4090:1")[0]
    found = [one.id for one in _at_least(box)]
    assert "rtx-4090" in found
    assert "rtx-4080" not in found


def test_a_percentile_may_be_the_first():
    from roofplan.load.statistics import _quantile

    assert _quantile("1", "ttft=1s@1") == 0.01
    with pytest.raises(InputError, match="no percentile"):
        _quantile("0.99", "ttft=1s@0.99")


def test_busy_time_is_that_of_one_thread(monkeypatch):
    import time

    from roofplan.measure.machine.backends import Numpy

    backend = Numpy(2)
    monkeypatch.setattr(time, "process_time", lambda: 4.0)
    assert backend.busy() == 2.0


def test_a_package_may_hold_the_most_dies():
    from roofplan.money.chip import MOST_DIES, Chip, Die, checked

    small = Chip(
        id="own",
        name="own",
        dies=(Die(name="die", node="tsmc-n5", area=1e-6, count=MOST_DIES),),
        memory="",
        capacity=0.0,
        interposer=False,
        source="own",
    )
    assert checked(small) is small
    with pytest.raises(InputError, match="--dies"):
        checked(replace(small, dies=(Die(name="die", node="tsmc-n5", area=1e-6, count=MOST_DIES + 1),)))


def test_a_server_that_sends_little_has_not_answered():
    from roofplan.measure.workers import SMALL, WINDOW, _load

    steady = [(0.1 * k, 0.0, 0.0 if k < 2 else 1e6 * (k - 1)) for k in range(12)]
    sent = steady[-1][2]
    # a while in which exactly as much comes back as does not count, then an answer
    quiet = [(1.2 + 0.1 * k, SMALL * k / WINDOW, sent + 1e3 * k) for k in range(15)]
    answer = [(2.7 + 0.1 * k, SMALL * 2 + 1e6 * k, sent + 15e3 + 1e5 * k) for k in range(15)]
    whole, _ = _load([*steady, *quiet, *answer])
    assert whole == sent + 5e3


def test_the_vocabulary_is_padded_to_two_rows_a_rank():
    from roofplan.training.stages import rows_of_table

    model = replace(hf.of_catalogue("llama-3.1-8b"), vocabulary=1001)
    layout = SimpleNamespace(tp=1)
    assert rows_of_table(model, layout, 2.0) == 1002
    assert rows_of_table(model, layout, 1.0) == 1001


def test_the_configuration_is_neither_compared_nor_printed():
    model = hf.of_catalogue("llama-3.1-8b")
    other = replace(model, config={"made": "elsewhere"})
    assert model == other
    assert "made" not in repr(other)


def test_an_encoder_may_have_no_token_types():
    stated = {
        "model_type": "bert",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "num_hidden_layers": 1,
        "vocab_size": 100,
        "max_position_embeddings": 16,
    }
    with_two = hf.from_dict({**stated, "type_vocab_size": 2}).total
    assert hf.from_dict({**stated, "type_vocab_size": 0}).total == with_two - 2 * 64


def test_progress_leaves_nothing_behind(monkeypatch):
    import rich.progress

    from roofplan.cli import printed

    made = []

    class Shown(rich.progress.Progress):
        def __init__(self, *columns, **given):
            made.append(given)
            super().__init__(*columns, **given)

    monkeypatch.setattr(rich.progress, "Progress", Shown)
    monkeypatch.setattr(printed.sys.stderr, "isatty", lambda: True, raising=False)
    times = iter(range(0, 100, 5))
    monkeypatch.setattr(printed.time, "monotonic", lambda: float(next(times)))
    with printed._progress(quiet=False, what="plans") as report:
        report(1, 3)
    assert made
    assert made[0]["transient"] is True


def test_a_run_without_lengths_is_as_near_as_one_of_the_same():
    import roofplan as rp
    from roofplan.evidence.nearest import _distance

    plan = rp.plan_serving("llama-3.1-8b", on="h100-sxm", engine="vllm", input=1000, output=200, concurrency=8).plans[0]
    row = next(one for one in catalogue.inference_rows() if one["output_len"] and one["tpot_ms"])
    here = {**row, "input_len": str(plan.workload.input)}
    assert _distance({**row, "input_len": ""}, plan) == pytest.approx(_distance(here, plan))


def test_a_stated_hybrid_group_is_no_assumption():
    from roofplan.evidence.training import _shard

    assumed = set()
    assert _shard({"zero_stage_fsdp": "HSDP 2x8"}, 16, 8, assumed) == 8
    assert not assumed
    assert _shard({"zero_stage_fsdp": "hybrid shard"}, 16, 8, assumed) == 8
    assert assumed


def test_systems_of_measured_runs_are_known():
    assert len(catalogue.measured_systems("time per token")) > 10


def test_a_question_without_what_it_needs_is_refused():
    import roofplan as rp

    with pytest.raises(InputError, match="model is missing"):
        rp.plan_serving(None)
    with pytest.raises(InputError, match="is missing"):
        rp.simulate(None, on="h100-sxm")


def test_sources_of_an_ability_are_read_only():
    from roofplan.training.ability import ability

    made = ability(machine("h100-sxm:8")[0], catalogue.framework("litgpt-0.3"), catalogue.shipped_fit())
    with pytest.raises(TypeError):
        made.sources["matmul"] = ()


def test_limits_of_several_passes_add_up():
    from roofplan.pool.parts import Part
    from roofplan.pool.times import _times
    from roofplan.records.terms import Term

    part = Part(term=Term("one pass", 2.0, "s"), low=1.0, high=3.0, grade="guessed", limits={("memory", "a"): 2.0})
    whole = _times(part, 3.0, 3.0)
    assert whole.limits == {("memory", "a"): 6.0}
    assert (float(whole.term.value), whole.low, whole.high) == (6.0, 3.0, 9.0)


def test_every_axis_of_a_machines_charts_is_in_its_rows():
    from roofplan.present.charts.machine import _line

    made = _line("t", [{"a": 1.0, "b": 2.0}], ("a", "words of a"), ("b", "words of b"), None)
    assert {axis: one["field"] for axis, one in made["encoding"].items() if axis in "xy"} == {"x": "a", "y": "b"}


def test_nine_machines_are_shown_as_a_table():
    import roofplan as rp
    from roofplan.present.screens.plans import serve_screen

    names = ["h100-sxm", "h200-sxm", "b200", "a100-sxm-80", "l40s", "rtx-4090", "rtx-5090", "a100-sxm-40", "rtx-3090"]

    def text(many):
        out = io.StringIO()
        serve_screen(rp.plan_serving("llama-3.1-8b", on=many), Page(out), "", top=3)
        return out.getvalue()

    def listed(many):
        return sum(line.split(":")[0].strip() in many for line in text(many).splitlines() if ":" in line)

    assert listed(names) > listed(names[:8])


def test_among_cheap_plans_quick_ones_come_first():
    import roofplan as rp
    from roofplan.serving.order import ordered

    plan = rp.plan_serving("llama-3.1-8b", on="h100-sxm", concurrency=8).plans[0]
    slow, quick = (replace(plan, values={**plan.values, "tpot": tpot}) for tpot in (0.06, 0.04))
    assert [one.values["tpot"] for one in ordered([slow, quick], "cost")] == [0.04, 0.06]
    cheap = replace(slow, values={**slow.values, "output_tokens_per_second": 1e6})
    assert [one.values["tpot"] for one in ordered([cheap, quick], "cost")] == [0.04, 0.06]
