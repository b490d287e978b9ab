"""A client against servers on loopback that behave and misbehave, and the ledger of what it saw."""

import asyncio
import io
import json
import os
import random
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
from array import array
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import trustme
from mock_server import Mock

from roofplan import observe
from roofplan.errors import InputError, UnsupportedFeature
from roofplan.evidence.beside import warnings_of
from roofplan.load.asked import warmup_of
from roofplan.load.requests import Requests
from roofplan.measure import client, endpoint, exchange, namespaces, workers
from roofplan.measure.client import LISTEN, Effort, drive, listening
from roofplan.measure.endpoint import Unreachable
from roofplan.measure.exchange import _trusted, target_of
from roofplan.measure.figures import seen_of, server_tpot
from roofplan.measure.ledger import COLUMNS, MIGRATIONS, VARIABLE, Ledger, opened
from roofplan.measure.request import load_of
from roofplan.measure.sample import Sample
from roofplan.measure.stream import CHAT, Stream, body_of
from roofplan.measure.text import Prompts
from roofplan.measure.workers import NoWorkers
from roofplan.present.screens.page import Page

SHORT = {"input": "30", "output": "12", "requests": "6", "clients": "2"}


@pytest.fixture(scope="module")
def server():
    names = ("steady", "half", "busy", "broken", "silent", "page", "elsewhere", "whole", "merged", "strict", "newer")
    with Mock(models=(*names, "no-chat", "wordy")) as mock:
        yield mock


def of(server, model, **more):
    return observe.measure_endpoint(server.url, model=model, **(SHORT | more))


def test_times_are_those_of_the_server(server):
    found = of(server, "steady", output="40")
    middle, worst = found.seen.error_tpot
    assert abs(middle) <= 0.02  # the mock's own clock stands a sleep beside
    assert abs(worst) <= 0.05
    assert 0.0 <= found.seen.beyond_prompt <= 0.02
    ttft = found.seen.figures["ttft"].summary
    assert ttft.mean == pytest.approx(server.first, abs=0.02)
    assert found.seen.figures["e2e"].summary.mean == pytest.approx(server.first + 39 * server.between, abs=0.05)
    assert found.kept


def test_prompts_have_the_length_that_is_asked_for(server):
    found = of(server, "steady", input="200")
    assert all(abs(one.prompt - 200) <= 2 for one in found.run.samples)
    assert found.seen.output == 12


def test_no_two_prompts_begin_alike_unless_they_shall():
    fresh, again = Prompts(0), Prompts(0, repeated=True)
    begins = {fresh.of(k, 100)[:12] for k in range(50)}
    assert len(begins) > 45
    assert len({again.of(k, 100) for k in range(5)}) == 1
    assert Prompts(0).of(3, 100) == fresh.of(3, 100)
    assert len(fresh.of(0, 9000).split()) == 6750
    assert [len(fresh.of(0, tokens).split()) for tokens in (0, 1, 4)] == [1, 1, 3]


BAD = {
    "half": ("cut off", 6),
    "broken": ("error in the stream", 6),
    "busy": ("http 429", 3),
}


@pytest.mark.parametrize("model", BAD)
def test_failures_stand_apart_by_reason(server, model):
    reason, count = BAD[model]
    found = of(server, model)
    assert found.seen.failed[reason] == pytest.approx(count, abs=1)
    answered = 6 - found.seen.failed[reason]
    assert sum(one.answered for one in found.run.samples) == answered
    counts = {name: one.measured.summary.count for name, one in ((c.name, c) for c in found.figures)}
    assert counts.get("ttft", 0) == answered
    assert not found.kept


def test_a_silent_server_is_given_up(server):
    found = of(server, "silent", requests="2", timeout="0.3s")
    assert found.seen.failed == {"time-out": 2}
    assert found.seen.seconds >= 0.3


@pytest.mark.parametrize("model", ["page", "elsewhere"])
def test_what_is_no_api_is_refused(server, model):
    with pytest.raises(Unreachable) as refused:
        of(server, model)
    assert {"page": "web page", "elsewhere": "redirects"}[model] in refused.value.message


def test_nothing_listens_nowhere():
    with pytest.raises(Unreachable, match="nothing listens"):
        observe.measure_endpoint("http://127.0.0.1:1")
    with pytest.raises(Unreachable, match="has no address"):
        observe.measure_endpoint("http://no.such.host.invalid")


def test_tls_that_fails_is_said(server, monkeypatch):
    monkeypatch.setattr("roofplan.measure.endpoint.PATIENCE", 0.5)
    with pytest.raises(Unreachable, match="TLS"):
        observe.measure_endpoint(server.url.replace("http:", "https:"))


def test_why_tls_fails_is_said():
    """A server that answers a handshake with something else."""

    def answer():
        connection, _ = plain.accept()
        connection.recv(1)
        connection.sendall(b"220 mail.example.invalid ready\r\n")
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as plain:
        plain.settimeout(10.0)
        talking = threading.Thread(target=answer)
        talking.start()
        with pytest.raises(Unreachable, match=r"TLS with \S+ fails: \w"):
            observe.measure_endpoint(f"https://127.0.0.1:{plain.getsockname()[1]}")
        talking.join()


def test_over_tls_opening_the_connection_costs_no_figure(monkeypatch, tmp_path):
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    with Mock(tls=context) as mock:
        with pytest.raises(Unreachable, match="TLS"):
            observe.measure_endpoint(mock.url, model="steady", **SHORT)
        _trusted.cache_clear()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
        found = observe.measure_endpoint(mock.url, model="steady", **SHORT)
    _trusted.cache_clear()
    assert found.kept
    assert all(one.tls > 0.0 for one in found.run.samples)
    assert found.seen.figures["ttft"].summary.mean == pytest.approx(mock.first, abs=0.02)


def test_an_answer_in_one_piece_has_no_first_token(server):
    found = of(server, "whole")
    assert set(found.seen.figures) == {"e2e"}
    assert all(one.whole and one.ttft is None and one.tpot is None for one in found.run.samples)


def test_bunched_events_are_seen(server):
    found = of(server, "merged")
    assert (
        found.seen.bunched > 0.25
    )  # three of four events come with the one before, fewer where this process is slow to read them
    assert found.seen.figures["tpot"].summary.mean == pytest.approx(server.between * 8 / 11, rel=0.1)


def test_several_tokens_in_an_event_are_seen(server):
    assert of(server, "wordy").seen.tokens_per_event == pytest.approx(2.0)


def test_servers_are_asked_as_they_understand(server):
    assert "ignore_eos" in of(server, "strict").run.notes[0]
    assert of(server, "newer").kept
    assert "/completions" in of(server, "no-chat").run.notes[0]
    with pytest.raises(Unreachable, match="no such path"):
        of(server, "no-chat", api="chat")


def test_a_server_without_counts_is_measured_by_its_events():
    with Mock(counts=False) as mock:
        found = observe.measure_endpoint(mock.url, **SHORT)
    assert not found.run.server.counts
    assert found.seen.output is None
    assert found.seen.figures["tpot"].summary.mean == pytest.approx(mock.between, rel=0.2)


def test_the_model_must_be_clear(server):
    with pytest.raises(InputError, match="which one"):
        observe.measure_endpoint(server.url)
    with pytest.raises(InputError, match="has no stedy") as refused:
        of(server, "stedy")
    assert refused.value.nearest == ["steady"]


@pytest.mark.parametrize(
    ("count", "has"),
    [(0, "lists none"), (5, "has 0, 1, 2, 3, 4"), (6, "has 0, 1, 2, 3, 4, and 1 more"), (1006, "and 1,001 more")],
)
def test_of_many_models_five_are_named(monkeypatch, count, has):
    async def models(_):
        return [str(one) for one in range(count)]

    monkeypatch.setattr(endpoint, "_models", models)
    with pytest.raises(InputError) as refused:
        asyncio.run(endpoint.known(SimpleNamespace(url="http://here"), None))
    assert str(refused.value).endswith(has)
    assert refused.value.nearest == [str(one) for one in range(min(5, count))]


def test_keys_go_to_the_server_and_nowhere_else(server, monkeypatch, tmp_path):
    monkeypatch.setenv("MY_KEY", "sesame-7")
    path = tmp_path / "ledger.sqlite"
    found = of(server, "steady", key_env="MY_KEY", ledger=path)
    assert any("Authorization: Bearer sesame-7" in head for _, _, head in server.seen)
    assert "sesame-7" not in repr(found)
    assert b"sesame-7" not in b"".join(one.read_bytes() for one in tmp_path.iterdir())
    with pytest.raises(InputError, match="no variable NO_KEY"):
        of(server, "steady", key_env="NO_KEY")
    with pytest.raises(InputError, match="password"):
        observe.measure_endpoint("http://me:secret@127.0.0.1:1")


def test_an_open_loop_stays_open():
    """Requests go out when they are due, although the one seat of the server makes all of them wait."""
    with Mock(first=0.05, between=0.001, slots=1) as mock:
        found = observe.measure_endpoint(
            mock.url, rate="100req/s", burstiness="inf", requests="20", input="20", output="5"
        )
    samples = sorted(found.run.samples, key=lambda one: one.number)
    assert [one.due for one in samples] == pytest.approx([(k + 1) / 100 for k in range(20)])
    assert max(one.late for one in samples) < 0.1
    waits = [one.ttft for one in samples]
    assert waits[-1] > 10 * waits[0]  # the queue is in the first token


def test_clients_wait_for_their_answers(server):
    found = of(server, "steady", clients="3", requests="9")
    begun = sorted((one.due, 1) for one in found.run.samples)
    ended = sorted((one.done, -1) for one in found.run.samples)
    running = np.cumsum([step for _, step in sorted([*begun, *ended])])
    assert running.max() == 3


def test_limits_are_judged_by_what_was_seen(server):
    found = of(server, "steady", slo="ttft=1s@p99,tpot=1ms@p50")
    assert [found.holds(one) for one in found.objectives] == [True, False]
    assert found.good == 0.0
    assert not found.kept
    with pytest.raises(InputError, match="no client sees waiting"):
        of(server, "steady", slo="waiting=1s")


def test_figures_by_hand():
    one = Sample(number=0, due=1.0, late=0.0, connect=0.1, gaps=array("f", [0.6, 0.2, 0.2]), tokens=5)
    assert one.ttft == pytest.approx(0.5)
    assert one.e2e == pytest.approx(0.9)
    assert one.tpot == pytest.approx(0.4 / 4)
    assert server_tpot(Sample(number=0, due=0.0, late=0.0, timings={"predicted_ms": 90.0, "predicted_n": 10})) == 0.01


def test_a_stream_may_come_in_any_pieces():
    """The lines of a stream are the same however the socket cuts it."""
    from roofplan.measure.exchange import Wire

    events = [b"data: " + json.dumps({"choices": [{"delta": {"content": "x"}}]}).encode() + b"\n\n" for _ in range(20)]
    body = b"".join([*events, b"data: [DONE]\n\n"])
    chunks = b"".join(f"{len(p):x}\r\n".encode() + p + b"\r\n" for p in (body[:33], body[33:301], body[301:]))
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"

    async def read(cuts):
        stream = Stream()
        wire = Wire(stream.line)
        for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
            wire.data_received(raw[start:end])
        await wire.ended
        return len(stream.times), stream.ended

    for seed in range(30):
        cuts = sorted(random.Random(seed).sample(range(1, len(raw)), 12))  # noqa: S311 - no secret
        assert asyncio.run(read(cuts)) == (20, True)
    assert asyncio.run(read(list(range(1, len(raw))))) == (20, True)


def test_five_hundred_streams_at_once_lose_no_event():
    with Mock(first=0.3, between=0.02) as mock:
        given = load_of(observe.MeasureInputs(url=mock.url, burst="500", input="20", output="10"))
        asking, asked = given
        samples = []
        requests = Requests(arrivals=np.zeros(500), inputs=np.full(500, 20), outputs=np.full(500, 10))
        asyncio.run(drive(observe.replace(asking, model="steady"), requests, None, samples.append))
    assert [one.reason for one in samples if one.reason] == []
    assert [one.events for one in samples] == [10] * 500
    assert asked.count == 500


# The ledger --------------------------------------------------------------------------------------


def sample(number, **more):
    return Sample(**({"number": number, "due": 0.1 * number, "late": 0.001, "gaps": array("f", [0.2, 0.01])} | more))


def test_what_is_kept_comes_back(tmp_path):
    book = Ledger(tmp_path / "deep" / "ledger.sqlite")
    run = book.begin("endpoint", {"url": "x"}, planned=3)
    told = [
        sample(0, tokens=7, timings={"prompt_ms": 3.0}),
        sample(1, reason="http 500", message="no"),
        sample(2, whole=True),
    ]
    for one in told:
        book.add(run, one)
    book.end(run, "complete", {"url": "x", "more": 1})
    book.close()
    again = Ledger(tmp_path / "deep" / "ledger.sqlite")
    assert again.samples(run) == told
    kept = again.find(run)
    assert (kept.status, kept.requests, kept.completed, kept.planned) == ("complete", 3, 2, 3)
    again.delete(run)
    assert again.runs() == []
    with pytest.raises(InputError, match="holds none"):
        again.find(run)


def test_every_field_of_a_sample_is_a_column():
    assert set(COLUMNS) == set(Sample.__dataclass_fields__)


def test_a_run_goes_on_while_its_process_lives(tmp_path):
    book = Ledger(tmp_path / "l.sqlite")
    run = book.begin("endpoint", {})
    assert book.find(run).status == "running"
    book.file.execute("UPDATE run SET about = '{}'")  # of another host: it wrote lately
    assert book.find(run).status == "running"
    book.file.execute("UPDATE run SET beat = beat - 3600")
    assert book.find(run).status == "unfinished"


def test_what_could_not_be_written_is_written_at_the_end(tmp_path):
    book = Ledger(tmp_path / "l.sqlite")
    run = book.begin("endpoint", {})
    book.waiting.append((run, sample(0)))
    book.end(run, "complete", {})
    assert len(book.samples(run)) == 1


def test_a_notebook_keeps_its_runs(tmp_path):
    """Where a loop runs already, the load runs in a thread of its own, and its samples reach the ledger."""
    path = tmp_path / "l.sqlite"

    async def cell(url):
        return observe.measure_endpoint(url, **SHORT, ledger=path)

    with Mock() as mock:
        asyncio.run(cell(mock.url))
    assert Ledger(path).runs()[0].completed == 6


def test_two_runs_send_other_prompts(server):
    before = len(server.bodies)
    of(server, "steady")
    of(server, "steady")
    sent = [one["messages"][0]["content"] for one in server.bodies[before:] if one["max_tokens"] == 12]
    assert len(set(sent)) == len(sent) == 12


def test_limits_and_percentiles_are_one_definition(server):
    found = of(server, "steady", requests="20", slo="ttft=1s@p99,tpot=1s@p93", warmup="2")
    table = found.seen.figures["ttft"].summary.quantiles["p99"]
    assert found.at(found.objectives[0]) == table
    values = sorted(one.tpot for one in found.run.samples if one.number >= 2)
    assert values[0] <= found.at(found.objectives[1]) <= values[-1]


def test_counts_may_be_written_as_powers_of_ten():
    assert warmup_of(observe.MeasureInputs(url="x", warmup="1e3")) == 1000
    assert warmup_of(observe.MeasureInputs(url="x")) == 0


def test_a_run_stays_readable_without_its_plan(server, tmp_path):
    path = tmp_path / "l.sqlite"
    found = of(server, "steady", ledger=path)
    book = Ledger(path)
    kept = book.find(found.run.id)
    book.end(kept.id, kept.status, kept.about | {"plan": {"model": "gone.json", "on": "h100-sxm:1"}})
    again = observe.runs(observe.RunsInputs(run="1"), ledger=path).one
    assert again.felt is None
    assert "no prediction" in again.run.notes[-1]


def test_an_answer_without_a_first_token_is_not_inside_its_limit(server):
    assert of(server, "whole", slo="ttft=1s").good == 0.0


def test_a_plan_that_cannot_be_made_is_refused_before_the_load(server):
    before = len(server.bodies)
    with pytest.raises(InputError, match="bogus"):
        of(server, "steady", on="bogus", config="llama-3.1-8b")
    assert all(one["max_tokens"] == 2 for one in server.bodies[before:])


@pytest.mark.parametrize("size", [b"-6", b"zz"])
def test_a_chunk_of_no_size_ends_the_answer(size):
    from roofplan.measure.exchange import Failure, Wire

    async def read():
        wire = Wire(Stream().line)
        wire.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\nxx\r\n")
        await asyncio.wait_for(wire.ended, 5)

    with pytest.raises(Failure, match="no valid HTTP"):
        asyncio.run(read())


@pytest.mark.parametrize("event", ['{"usage": "x"}', '{"choices": ["x"]}', '{"choices": [{"delta": "x"}]}', "[]", "3"])
def test_odd_events_are_no_text(event):
    stream = Stream()
    stream.line(b"data: " + event.encode(), 1.0)
    assert stream.times == []


@pytest.mark.parametrize("key", ["sk-abc\nX-Evil: 1", "sk-é☃"])
def test_a_key_that_is_none_is_refused(server, monkeypatch, key):
    monkeypatch.setenv("MY_KEY", key)
    with pytest.raises(InputError, match="the value of MY_KEY is no key"):
        of(server, "steady", key_env="MY_KEY")


def test_a_newer_file_is_refused(tmp_path):
    path = tmp_path / "ledger.sqlite"
    Ledger(path).close()
    with sqlite3.connect(path) as file:
        file.execute(f"PRAGMA user_version={len(MIGRATIONS) + 1}")
    with pytest.raises(InputError, match="newer roofplan"):
        Ledger(path)
    other = tmp_path / "other.sqlite"
    other.write_bytes(b"no database" * 100)
    with pytest.raises(InputError, match="not a database"):
        Ledger(other)


def test_two_writers_take_turns(tmp_path):
    one, two = Ledger(tmp_path / "l.sqlite"), Ledger(tmp_path / "l.sqlite")
    runs = one.begin("endpoint", {}), two.begin("endpoint", {})
    for k in range(50):
        one.add(runs[0], sample(k))
        two.add(runs[1], sample(k))
    assert [each.requests for each in one.runs()] == [50, 50]


def test_a_full_disk_loses_nothing(tmp_path):
    book = Ledger(tmp_path / "l.sqlite")
    run = book.begin("endpoint", {})
    pages = book.file.execute("PRAGMA page_count").fetchone()[0]
    book.file.execute(f"PRAGMA max_page_count={pages + 1}")
    for k in range(200):
        book.add(run, sample(k, message="x" * 200))
    assert "full" in book.trouble
    assert book.waiting
    book.file.execute("PRAGMA max_page_count=100000")
    book.add(run, sample(200))
    assert [one.number for one in book.samples(run)] == list(range(201))


KILLED = """
import os, random, signal, sys, time
from array import array
from pathlib import Path
from roofplan.measure.ledger import Ledger
from roofplan.measure.sample import Sample
path, kills = Path(sys.argv[1]), int(sys.argv[2])
drawn = random.Random(kills)
for _ in range(kills):
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.close(reads)
        book = Ledger(path)
        run = book.begin("endpoint", {})
        for k in range(10_000_000):
            book.add(run, Sample(number=k, due=0.0, late=0.0, gaps=array("f", [0.1])))
            os.write(writes, b"%d\\n" % k)
    os.close(writes)
    said = os.read(reads, 64)
    time.sleep(drawn.uniform(0.0, 0.02))
    os.kill(child, signal.SIGKILL)
    while more := os.read(reads, 65536):
        said = (said + more)[-64:]
    os.close(reads)
    os.waitpid(child, 0)
    print(int(said.split()[-1]), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
@pytest.mark.parametrize("kills", [pytest.param(1000, marks=pytest.mark.slow), 20])
def test_a_killed_process_loses_nothing_that_was_complete(tmp_path, kills):
    path = tmp_path / "l.sqlite"
    found = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), str(kills)], capture_output=True, text=True, check=True
    )
    last = [int(line) for line in found.stdout.split()]
    kept = Ledger(path).runs()
    assert len(kept) == len(last) == kills
    for one, number in zip(kept, last, strict=True):
        assert one.requests >= number + 1
        assert one.status == "unfinished"


# The command -------------------------------------------------------------------------------------


def test_a_plan_is_set_beside(server, tmp_path, monkeypatch, capsys):
    from roofplan.cli import main

    monkeypatch.setenv(VARIABLE, str(tmp_path / "ledger.sqlite"))
    plan = tmp_path / "plan.json"

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        return ended.value.code, capsys.readouterr()

    _, said = run("serve", "llama-3.1-8b", "--on", "rtx-4090", "--json")
    plan.write_text(said.out)
    code, said = run(
        *("measure", "endpoint", server.url, "--model", "steady", "--clients", "2", "--requests", "8"),
        *("--output", "20", "--plan", str(plan), "--json"),
    )
    found = json.loads(said.out)["run"]
    assert code == 0
    assert found["id"] == 1
    assert found["completed"] == 8
    told = found["prediction"]
    assert told["metrics"]["tpot"]["low"] < told["metrics"]["tpot"]["value"]
    assert told["inside"]["tpot"] == (
        told["metrics"]["tpot"]["low"] <= found["tpot"]["mean"] <= told["metrics"]["tpot"]["high"]
    )
    code, said = run("runs", "1", "--json")
    again = json.loads(said.out)["run"]
    assert again["ttft"] == found["ttft"]
    assert again["prediction"] == found["prediction"]
    code, said = run("runs")
    assert "steady" in said.out
    code, said = run("runs", "9")
    assert code == 2
    assert "the last ones are 1" in said.err
    code, said = run("measure", "endpoint", server.url, "--model", "steady", "--plan", str(tmp_path / "none.json"))
    assert code == 2


def test_targets_are_read_with_and_without_their_path():
    assert target_of("127.0.0.1:8000").url == "http://127.0.0.1:8000/v1"
    assert target_of("https://x.org/api/v1/chat/completions").url == "https://x.org/api/v1"
    for bad in ("ftp://x", "http://", "http://x:99999"):
        with pytest.raises(InputError, match="no address of a server"):
            target_of(bad)
    with pytest.raises(InputError, match="--key-env") as refused:
        target_of("http://x/v1?api_key=sesame")
    assert "sesame" not in refused.value.message


def test_percentiles_say_where_the_sample_is_too_small(server):
    figures = of(server, "steady", requests="20", clients="4").seen.figures
    assert "p99" in figures["ttft"].few
    assert "p50" not in figures["ttft"].few
    low, high = figures["ttft"].limits["p50"]
    assert low <= figures["ttft"].summary.quantiles["p50"] <= high


def test_an_idle_loop_is_not_late():
    async def idle():
        effort = Effort()
        async with listening(effort):
            await asyncio.sleep(20 * LISTEN)
        return effort.lags

    lags = asyncio.run(idle())
    assert len(lags) >= 3
    assert -1e-3 <= min(lags) < LISTEN


def test_a_build_tells_how_far_it_is_and_ends_with_its_last_lines(monkeypatch, tmp_path):
    said = "print('-- Configuring'); [print(f'[{k}/40] Building {k}') for k in range(1, 41)]; raise SystemExit(3)"
    popen = subprocess.Popen
    monkeypatch.setattr(workers.subprocess, "Popen", lambda _, **more: popen([sys.executable, "-c", said], **more))
    ticks = []
    with pytest.raises(NoWorkers) as failed:
        workers._compiled(tmp_path, lambda done, whole: ticks.append((done, whole)))
    assert ticks == [(k, 40) for k in range(1, 41)]
    lines = str(failed.value).splitlines()[1:]
    assert lines == [f"[{k}/40] Building {k}" for k in range(20, 41)]


@pytest.mark.parametrize(
    ("environment", "terminal", "coloured"),
    [({}, True, True), ({}, False, False), ({"NO_COLOR": "1"}, True, False), ({"FORCE_COLOR": "1"}, False, True)],
)
def test_colours_are_for_terminals_unless_one_says_otherwise(environment, terminal, coloured, monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)
    assert Page(stream).colour is coloured


def test_repeated_prompts_differ_from_fresh_ones_and_from_other_seeds():
    assert Prompts(0, repeated=True).of(7, 50) == Prompts(0, repeated=True).of(0, 50)
    assert Prompts(0, repeated=True).of(0, 50) != Prompts(0).of(0, 50)
    assert Prompts(1, repeated=True).of(0, 50) != Prompts(0, repeated=True).of(0, 50)


def test_counts_of_two_lengths_tell_words_a_token_and_what_a_template_adds():
    prompts = Prompts(0)
    prompts.fit([(100, 90), (300, 250)])
    assert (prompts.slope, prompts.offset) == pytest.approx((1.25, 10.0))
    assert len(prompts.of(0, 90).split()) == 100
    before = prompts.slope
    prompts.fit([(100, 90), (300, 90)])  # a server that does not count
    assert prompts.slope == before


def test_a_busy_client_is_said(server):
    found = of(server, "steady")
    run = replace(found.run, server=replace(found.run.server, local=False))
    busy = replace(found, run=replace(run, effort=SimpleNamespace(share=0.9, lag=lambda _: 0.0)))
    idle = replace(found, run=replace(run, effort=SimpleNamespace(share=0.1, lag=lambda _: 0.0)))
    late = replace(found, run=replace(run, effort=SimpleNamespace(share=0.1, lag=lambda _: 0.1)))
    said = ["the client is busy" in " ".join(warnings_of(one)) for one in (busy, idle, late)]
    assert said == [True, False, True]
    sent = [replace(one, seen=replace(one.seen, late=0.1)) for one in (idle, late)]
    assert ["a request was sent 100 ms late" in " ".join(warnings_of(one)) for one in sent] == [True, False]


def test_answers_of_other_lengths_than_asked_for_are_said(server):
    found = of(server, "steady")
    for short, longer in ((0, 0), (3, 0), (0, 1200)):
        said = warnings_of(replace(found, seen=replace(found.seen, short=short, longer=longer)))
        assert ("3 answers were shorter than asked for" in said) is bool(short)
        assert ("1,200 answers were longer than asked for" in said) is bool(longer)


def test_what_a_server_found_in_its_cache_is_a_share_of_the_prompts(server):
    found = of(server, "steady").run
    given = [replace(one, prompt=100, cached=25) for one in found.samples]
    assert seen_of(replace(found, samples=given), 0).cached == pytest.approx(0.25)


def test_namespaces_of_processes_that_ended_are_swept(monkeypatch):
    gone, here = 2**22 + 1, os.getpid()
    names = [f"{namespaces.MARK}{gone}-a", f"{namespaces.MARK}{here}-a", f"{namespaces.MARK}x-a", "other"]
    listed = SimpleNamespace(stdout="".join(f"{name} (id: 1)\n" for name in names))
    swept = []
    monkeypatch.setattr(namespaces.subprocess, "run", lambda *_, check, **__: None if check else listed)
    monkeypatch.setattr(namespaces, "_ip", lambda *words, check: swept.append((words, check)))
    namespaces._sweep()
    assert swept == [(("netns", "delete", names[0]), False)]


def test_a_network_of_namespaces_sweeps_before_it_makes_its_own(monkeypatch):
    done = []
    monkeypatch.setattr(namespaces, "_sweep", lambda: done.append("sweep"))
    monkeypatch.setattr(namespaces, "_ip", lambda *words, **_: done.append(words))
    monkeypatch.setattr(namespaces, "_tc", lambda *words: done.append(words))
    with namespaces.Switched(2, 1e6):
        assert done[0] == "sweep"
        assert done[1][:2] == ("netns", "add")


@pytest.mark.parametrize(
    ("url", "local"),
    [("http://127.0.0.1:8000", True), ("http://[::1]:8000", True), ("http://192.0.2.1:8000", False)],
)
def test_a_server_on_this_host_is_told_from_others(url, local):
    assert target_of(url).local is local


def test_files_that_may_be_open_follow_the_streams(monkeypatch):
    from roofplan.measure import client

    resource = pytest.importorskip("resource")
    asked = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 1000))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    for streams in (30, 40, 500, 5000):
        client.room_for(streams)
    assert asked == [(40 + client.SPARE, 1000), (500 + client.SPARE, 1000), (1000, 1000)]  # 30 have room already


@pytest.mark.parametrize(("whole", "said"), [(True, True), (False, False)])
def test_answers_that_were_no_streams_are_said(server, whole, said):
    found = of(server, "steady")
    samples = [replace(one, whole=whole) for one in found.run.samples]
    lines = warnings_of(replace(found, run=replace(found.run, samples=samples)))
    assert any("answers came as one document" in line for line in lines) is said


@pytest.mark.parametrize(
    ("head", "body", "ends"),
    [
        ("", b"data: last", True),
        ("Content-Length: 99\r\n", b"data: last", False),
        ("Transfer-Encoding: chunked\r\n", b"4\r\ndata\r\n", False),
    ],
)
def test_a_connection_that_is_closed_ends_a_body_of_no_length_alone(head, body, ends):
    from roofplan.measure.exchange import Failure, Wire

    async def read():
        lines = []
        wire = Wire(lambda line, _: lines.append(line))
        wire.data_received(f"HTTP/1.1 200 OK\r\n{head}\r\n".encode() + body)
        wire.connection_lost(None)
        try:
            await asyncio.wait_for(wire.ended, 5)
        except Failure as failure:
            return lines, str(failure), wire.complete
        return lines, "", wire.complete

    lines, failure, complete = asyncio.run(read())
    assert (complete, "in the middle of its answer" in failure) == (ends, not ends)
    assert lines == ([b"data: last"] if ends else [])


def test_requests_that_end_before_a_run_is_begun_are_counted_and_not_written(tmp_path):
    from roofplan.measure.ledger import Book

    seen = []
    ledger = Ledger(tmp_path / "runs.sqlite")
    kept = Book(ledger, "endpoint", {}, lambda *tick: seen.append(tick))
    kept.take(Sample(number=0, due=0.0, late=0.0, gaps=array("f", [0.1])))
    assert kept.finished({}, interrupted=False) is None
    assert seen == [(1, 0)]
    assert ledger.runs() == []


@pytest.mark.parametrize(
    ("status", "named", "refused"),
    [
        ("401 Unauthorized", True, True),
        ("403 Forbidden", True, True),
        ("404 Not Found", True, False),
        ("404 Not Found", False, True),
        ("500 Internal Server Error", True, True),
    ],
)
def test_a_server_that_lists_no_models_serves_the_one_that_is_named(monkeypatch, status, named, refused):
    async def get(self, _path, writer):
        self.document(writer, {"error": {"message": "not for you"}}, status)

    monkeypatch.setattr(Mock, "get", get)
    asked = SHORT | ({"model": "m"} if named else {})
    with Mock(first=0.01, between=0.001) as mock:
        if refused:
            with pytest.raises(Unreachable):
                observe.measure_endpoint(mock.url, **asked)
        else:
            assert observe.measure_endpoint(mock.url, **asked).run.server.model == "m"


def test_hosts_without_an_address_are_not_ours(monkeypatch):
    def none(*_, **__):
        raise OSError

    monkeypatch.setattr(exchange.socket, "getaddrinfo", none)
    assert not exchange.target_of("http://somewhere:1").local


def test_runs_are_removed(server, tmp_path, monkeypatch, run):
    place = tmp_path / "l.sqlite"
    monkeypatch.setenv("ROOFPLAN_LEDGER", str(place))
    of(server, "steady", ledger=place)
    (kept,) = observe.runs(observe.RunsInputs(), ledger=place).kept
    assert run("runs", str(kept.id), "--delete")[:2] == (0, f"removed run {kept.id}\n")
    assert observe.runs(observe.RunsInputs(), ledger=place).kept == []


@pytest.mark.parametrize(
    ("first", "status"),
    [
        ("HTTP/1.1 200 OK", 200),
        ("HTTP/1.1 503", 503),
        ("HTTP/1.1 429 Too Many Requests", 429),
        ("HTTP/1.1", -1),
        ("HTTP/1.1 fine", -1),
    ],
)
def test_the_status_of_an_answer_may_stand_alone(first, status):
    async def read():
        wire = exchange.Wire(lambda *_: None)
        wire._head(f"{first}\r\nContent-Length: 0".encode())
        return wire.status, wire.headers

    assert asyncio.run(read()) == (status, {"content-length": "0"})


def test_a_request_asks_for_a_stream_and_its_usage():
    asked = json.loads(body_of(CHAT, "some-model", "hello", 7))
    assert asked == {
        "model": "some-model",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 7,
        "temperature": 0,
        "messages": [{"role": "user", "content": "hello"}],
        "ignore_eos": True,
    }


def test_a_key_is_never_shown():
    assert "secret" not in repr(exchange.target_of("http://127.0.0.1:1/v1", key="secret"))


def test_a_ledger_is_closed_behind_its_block(tmp_path):
    with opened(tmp_path / "runs.sqlite") as ledger:
        ledger.runs()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        ledger.runs()


@pytest.mark.skipif(os.name == "nt", reason="there is no /bin/false")
def test_a_command_that_fails_is_told_where_it_must_not():
    assert namespaces._told(["true"], check=True)
    assert not namespaces._told(["false"], check=False)
    with pytest.raises(UnsupportedFeature, match="false: 1"):
        namespaces._told(["false"], check=True)


@pytest.mark.parametrize(("late", "sleeps"), [(1.0, [0.0, 0.0, 0.0]), (-1.0, [1.0] * 130)])
def test_a_late_sender_lets_answers_in_now_and_then(late, sleeps, monkeypatch):
    slept, sent = [], []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(client, "clock", lambda: late)
    monkeypatch.setattr(client.asyncio, "sleep", sleep)
    requests = SimpleNamespace(arrivals=np.zeros(130))
    asyncio.run(client._arrive(requests, 0.0, lambda number, due: sent.append((number, due))))
    assert slept == sleeps
    assert sent == [(number, 0.0) for number in range(130)]
