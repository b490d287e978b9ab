"""Pages: what a browser is given, and whom it is refused to."""

import asyncio
import http.client
import json
import multiprocessing
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode

import pytest

pytest.importorskip("starlette")

from roofplan.errors import InputError, RoofplanError
from roofplan.inputs import Listening
from roofplan.questions import EVERY
from roofplan.web.html import question_page
from roofplan.web.kept import Kept
from roofplan.web.pages import PAGES
from roofplan.web.server import _failed
from roofplan.workers import answers
from roofplan.workers.guard import Guard, TooLarge, _limited
from roofplan.workers.listening import Place
from roofplan.workers.pool import Busy, Job, Pool, Stopped, TooLong

SERVE = "model=llama-3.1-8b&on=h100-sxm:1&tpot=50ms"


def free_port():
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


class Server:
    """A running server, and how it is asked."""

    def __init__(self, *words):
        self.port = free_port()
        command = [sys.executable, "-m", "roofplan", "web", "--port", str(self.port), *words]
        self.log = Path(tempfile.mkdtemp()) / "server.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stderr=log)
        while "listens on" not in self.said:
            assert self.process.poll() is None, self.said
            time.sleep(0.05)

    @property
    def said(self):
        return self.log.read_text()

    def ask(self, path, body=None, method=None, **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method or ("GET" if body is None else "POST"), path, body, named)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        return response.status, text.decode(), response.headers

    def post(self, path, inputs):
        return self.ask(path, json.dumps({"inputs": inputs}), Content_Type="application/json")

    def end(self):
        self.process.terminate()
        self.process.wait(20)
        shutil.rmtree(self.log.parent)


@pytest.fixture(scope="module")
def server():
    running = Server("--workers", "2")
    yield running
    running.end()


def events(text):
    found = [dict(line.split(": ", 1) for line in one.split("\n")) for one in text.strip().split("\n\n")]
    return [(one["event"], json.loads(one["data"])) for one in found]


# Pages -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES)
def test_a_form_offers_every_input_that_a_page_takes(path):
    text, page = question_page(PAGES[path]), PAGES[path]
    names = re.findall(r'<input[^>]* name="(\w+)"', text)
    assert sorted(names) == sorted(set(EVERY[page.question].record.each()) - page.refused)
    for name in names:
        assert f'for="in-{name}"' in text or re.search(rf'<label><input[^>]*name="{name}"', text)
        assert f'id="help-{name}"' in text


@pytest.mark.parametrize("path", PAGES)
def test_every_preset_asks_what_its_page_knows(path):
    known = set(EVERY[PAGES[path].question].record.each())
    for _, query in PAGES[path].presets:
        assert {part.split("=")[0] for part in query.split("&")} <= known


def test_the_first_page_names_every_question(server):
    code, text, _ = server.ask("/")
    assert code == 200
    assert all(f'href="/{path}"' in text for path in PAGES)


def test_pages_run_no_script_of_others(server):
    for path in ("/", "/serve", "/side-by-side", "/nosuch", "/api/serve", "/static/app.js"):
        _, text, headers = server.ask(path)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        if "html" in headers["Content-Type"]:
            assert not re.search(r'(src|href)="(https?:)?//', text)
            assert not re.search(r"<script(?![^>]* src=)|\son\w+=|style=", text)


@pytest.mark.parametrize("name", ["app.js", "draw.js", "beside.js", "style.css", "icon.svg", "vega.min.js"])
def test_files_of_pages_are_there(server, name):
    code, text, _ = server.ask(f"/static/{name}")
    assert code == 200
    assert len(text) > 100


@pytest.mark.parametrize(
    "path",
    [
        "/static/nosuch.js",
        "/static/..%2fserver.py",
        "/static/server.py",
        "/api/nosuch",
        "/page/nosuch",
        "/save/nosuch",
        "/no",
    ],
)
def test_what_is_not_there_is_not_found(server, path):
    assert server.ask(path)[0] == 404


# Documents ---------------------------------------------------------------------------------------


def without_times(document):
    document.get("search", {}).pop("seconds", None)
    return document


@pytest.mark.parametrize(
    ("path", "query", "words"),
    [
        ("serve", SERVE, "serve llama-3.1-8b --on h100-sxm:1 --tpot 50ms"),
        ("serve", "model=llama-3.1-70b&on=h100-sxm:1", "serve llama-3.1-70b --on h100-sxm:1"),
        ("train", "model=llama-3.1-8b&on=h100-sxm:64&tokens=1T", "train llama-3.1-8b --on h100-sxm:64 --tokens 1T"),
        ("cost/chip", "device=h100-sxm", "cost chip h100-sxm"),
        ("device", "device=h100-sxm", "device h100-sxm"),
        ("models", "text=qwen3", "models qwen3"),
        ("claims", "topic=money&text=", "claims --topic money"),
        ("cost/history", "from=v100-sxm2-32&to=h100-sxm", "cost history --from v100-sxm2-32 --to h100-sxm"),
    ],
)
def test_the_address_is_the_question_and_its_document_that_of_the_command(server, run_json, path, query, words):
    code, text, headers = server.ask(f"/api/{path}?{query}")
    _, printed = run_json(*words.split())
    assert headers["Content-Type"] == "application/json"
    assert code == (400 if printed["status"] == "error" else 200)
    assert without_times(json.loads(text)) == without_times(printed)


def test_a_configuration_may_stand_in_the_question(server, llama):
    code, text, _ = server.post("/api/model", {"model": llama})
    assert code == 200
    assert json.loads(text)["parameters"]["total"] > 0


def test_an_answer_tells_how_to_ask_again(server):
    code, text, _ = server.post("/page/serve", {"model": "llama-3.1-8b", "on": ["h100-sxm:1"], "tpot": "50ms"})
    assert code == 200
    kind, shown = events(text)[-1]
    assert kind == "answer"
    assert shown["command"] == "roofplan serve llama-3.1-8b --on h100-sxm:1 --tpot 50ms"
    assert "rp.plan_serving('llama-3.1-8b', on=['h100-sxm:1'], tpot='50ms')" in shown["python"]
    assert shown["document"]["status"] == "ok"
    assert shown["text"].startswith("llama-3.1-8b")
    assert [one["title"] for one in shown["pictures"]]
    assert shown["rows"]


def test_a_long_question_tells_how_far_it_is(server):
    _, text, _ = server.post("/page/serve", {"model": "llama-3.1-8b"})
    told = [data for kind, data in events(text) if kind == "progress"]
    assert told
    assert all(0 < one["done"] <= one["whole"] and one["what"] == "machines" for one in told)


@pytest.mark.parametrize(
    ("error", "code", "again"),
    [(Busy("busy"), 503, "2"), (TooLong("long"), 503, "2"), (Stopped("gone"), 500, None), (InputError("x"), 400, None)],
)
def test_what_may_be_asked_again_says_when(error, code, again):
    answer = _failed(PAGES["serve"], error)
    assert (answer.status_code, answer.headers.get("Retry-After")) == (code, again)


def test_a_question_without_an_answer_is_saved_as_one_that_failed(server):
    code, text, _ = server.ask("/save/serve?model=llama-3.1-70b&on=rtx-4090:1")
    assert (code, "rtx-4090" in text) == (200, True)  # nothing fits, which is an answer
    code, _, _ = server.ask("/save/serve?model=llama-3.1-8b&on=h100-sxm:1&input=-5")
    assert code == 400


def test_a_saved_answer_needs_no_network(server):
    code, text, headers = server.ask(f"/save/serve?{SERVE}")
    assert code == 200
    assert 'filename="roofplan-serve.html"' in headers["Content-Disposition"]
    assert "roofplan serve llama-3.1-8b" in text
    assert 'id="specs"' in text
    assert not re.search(
        r"<(script|link|img)[^>]+(src|href)=", re.sub(r"(<script[^>]*>).*?</script>", r"\1", text, flags=re.DOTALL)
    )


# Refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "inputs", "said"),
    [
        ("serve", {"model": "/etc/passwd"}, "no model"),
        ("serve", {"model": "../config.json"}, "no model"),
        ("serve", {"model": "-"}, "no model"),
        ("serve", {"model": "hf:org/name"}, "no model"),
        ("serve", {"model": ["llama-3.1-8b"]}, "no model"),
        ("serve", {"model": "llama-3.1-8b", "on": ["/etc/chip.toml:1"]}, "names a file"),
        ("device", {"device": "chip.TOML"}, "names a file"),
        ("cost/history", {"from": "./a.toml"}, "names a file"),
        ("simulate", {"model": "llama-3.1-8b", "trace": "t.csv"}, "not accepted here"),
        ("validate", {"kind": "training", "file": "/etc/passwd"}, "names a file"),
        ("runs", {"delete": True, "run": 1}, "not accepted here"),
        ("runs", {"plan": "p.json"}, "not accepted here"),
        ("serve", {"model": "llama-3.1-8b", "nope": 1}, "unknown input"),
        ("serve", {"model": "llama-3.1-8b", "on": 7}, "expected a list of texts"),
        ("serve", {"model": "llama-3.1-8b", "tpot": "x" * 3000}, "longer than"),
        ("serve", {}, "MODEL is missing"),
        ("serve", {"model": {"model_type": "nosuch"}}, "nosuch"),
        ("serve", {"model": {"a": "x" * (1 << 20)}}, "larger than"),
    ],
)
def test_bad_inputs_are_refused_by_name(server, path, inputs, said):
    code, text, _ = server.post(f"/api/{path}", inputs)
    document = json.loads(text)
    assert code == 400
    assert document["status"] == "error"
    assert said in document["error"]["message"]


def test_deep_configurations_are_refused(server):
    nested = {"a": 1}
    for _ in range(200):
        nested = {"a": nested}
    code, text, _ = server.post("/api/serve", {"model": nested})
    assert code == 400
    assert "nested deeper" in text


@pytest.mark.parametrize("body", ["", "[]", "{", "7", '{"inputs": []}', "[" * 100_000])
def test_what_is_no_question_is_refused(server, body):
    code, text, _ = server.ask("/api/serve", body, Content_Type="application/json")
    assert code == 400
    assert json.loads(text)["status"] == "error"


def test_forms_of_other_sites_cannot_ask(server):
    assert server.ask("/api/serve", "{}", Content_Type="text/plain")[0] == 400
    assert server.ask("/api/serve", "{}", Content_Type="application/json", Origin="http://evil.example")[0] == 403
    assert server.ask("/page/serve", "{}", Content_Type="application/json", Sec_Fetch_Site="cross-site")[0] == 403
    assert server.ask("/", Host="evil.example")[0] == 421
    assert server.ask("/", Host="evil.example:80@127.0.0.1")[0] == 421
    assert server.ask("/", Host=f"localhost:{server.port}", Origin=f"http://localhost:{server.port}")[0] == 200
    assert server.ask("/", Host=f"[::1]:{server.port}")[0] == 200
    for origin in ("null", "http://[", f"http://localhost:{server.port}"):
        assert server.ask("/", Origin=origin)[0] == 403
    assert server.ask("/api/device?device=h100-sxm", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors")[0] == 403
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert server.ask("/serve", **link)[0] == 200
    assert server.ask("/serve", **(link | {"Sec_Fetch_Dest": "iframe"}))[0] == 403


def test_large_bodies_are_refused(server):
    assert server.ask("/api/serve", " " * (3 << 20), Content_Type="application/json")[0] == 413


def test_large_bodies_without_a_length_are_refused(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as place:
        head = f"POST /api/serve HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        place.sendall(head.encode())
        chunk = b" " * (1 << 20)
        try:
            for _ in range(4):
                place.sendall(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            place.sendall(b"0\r\n\r\n")
        except ConnectionError:
            pass
        assert b" 413 " in place.recv(100)


@pytest.mark.parametrize(
    ("path", "inputs"),
    [
        ("validate", {"kind": "training", "file": ["x"]}),
        ("serve", {"model": "llama-3.1-8b", "tpot": "9" * 400 + "ms"}),
        ("serve", {"model": "llama-3.1-8b", "on": ["h100-sxm:1"], "emit": 5}),
        ("serve", {"model": "llama-3.1-8b", "on": ["h100-sxm:1"], "explain": True, "depth": {}}),
        ("simulate", {"model": "llama-3.1-8b", "on": ["h100-sxm:1"], "rate": "4req/s", "requests": 20_000_000}),
        ("simulate", {"model": "llama-3.1-8b", "on": ["h100-sxm:1"], "rate": "4req/s", "requests": "many"}),
    ],
)
def test_odd_values_are_errors_of_the_input(server, path, inputs):
    code, text, _ = server.post(f"/api/{path}", inputs)
    assert (code, json.loads(text)["status"]) == (400, "error")


def test_who_leaves_makes_no_noise(server):
    before = server.said
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", "/api/serve?model=deepseek-v3&engine=any")
    connection.close()
    assert server.ask(f"/api/serve?{SERVE}")[0] == 200
    time.sleep(2.5)  # the server looks once a second whether anybody still waits
    assert server.said == before


def test_a_switch_is_on_or_off(server):
    assert server.ask(f"/api/serve?{SERVE}&datacenter=true")[0] == 200
    code, text, _ = server.ask(f"/api/serve?{SERVE}&datacenter={'x' * 100}")
    error = json.loads(text)["error"]
    assert (code, error["value"]) == (400, 40 * "x")
    assert error["message"] == f"datacenter: {40 * 'x'!r} is neither true nor false"


@pytest.mark.parametrize("path", [one for one, page in PAGES.items() if page.question not in {"benchmarks", "runs"}])
def test_what_is_copied_runs(path):
    for _, query in PAGES[path].presets[:1]:
        record = EVERY[PAGES[path].question].record
        given = {}
        for name, value in parse_qsl(query):
            many = isinstance(record.each()[name].default, tuple)
            given[name] = [*given.get(name, []), value] if many else value
        _, text = answers.page(PAGES[path].question, given)
        names = {}
        exec(compile(json.loads(text)["python"], path, "exec"), names)  # noqa: S102 - the lines are ours
        assert str(names["answer"]).split("\n")[0] == json.loads(text)["text"].split("\n")[0]


def test_switches_are_copied_as_python_says_them():
    _, text = answers.page("models", {"families": True})
    assert "families=True" in json.loads(text)["python"]
    assert json.loads(text)["command"] == "roofplan models --families"


def test_an_input_given_twice_is_refused(server):
    code, text, _ = server.ask(f"/api/serve?{SERVE}&tpot=60ms")
    assert code == 400
    assert "given twice" in text
    code, text, _ = server.ask(f"/api/serve?{SERVE}&tpot=60ms&tpot=70ms")
    assert (code, json.loads(text)["error"]["value"]) == (400, "70ms")


def test_the_server_says_where_it_listens(server):
    assert f"http://127.0.0.1:{server.port}/ " in server.said


def test_a_port_that_is_taken_is_named(server):
    words = [sys.executable, "-m", "roofplan", "web", "--port", str(server.port)]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 2
    assert "cannot listen" in found.stderr


@pytest.mark.parametrize(
    ("given", "hosts", "secret", "url"),
    [
        ({}, {"localhost", "127.0.0.1", "::1"}, False, "http://127.0.0.1:8765/"),
        ({"host": "127.0.0.2"}, {"localhost", "127.0.0.1", "::1", "127.0.0.2"}, False, "http://127.0.0.2:8765/"),
        ({"name": ("Box.LAN",)}, {"localhost", "127.0.0.1", "::1", "box.lan"}, True, "http://box.lan:8765/"),
        ({"host": "fe80::1", "port": "80"}, {"localhost", "127.0.0.1", "::1", "fe80::1"}, True, "http://[fe80::1]:80/"),
    ],
)
def test_a_place_has_the_names_under_which_it_is_reached(given, hosts, secret, url):
    place = Place.of(Listening(**given))
    assert place.hosts == hosts
    assert (place.token is not None) == secret
    assert place.url == url


@pytest.mark.parametrize(
    ("given", "said"), [({"port": "99999"}, "above"), ({"host": "::"}, "--name"), ({"port": "x"}, "port")]
)
def test_places_that_cannot_be_are_refused(given, said):
    with pytest.raises(RoofplanError, match=said):
        Place.of(Listening(**given))


def test_other_hosts_need_a_token(run):
    code, _, err = run("web", "--host", "192.0.2.1", "--token-env", "NO_SUCH_TOKEN", "--port", "1")
    assert code == 2
    assert "holds no token" in err


def answered(guard, path="/", query="", method="GET", **headers):
    """Return the status and the headers that a guard answers with."""
    sent = []

    async def call():
        scope = {"type": "http", "method": method, "path": path, "query_string": query.encode()}
        scope["headers"] = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            sent.append(message)

        await guard(scope, receive, send)

    asyncio.run(call())
    start = next(one for one in sent if one["type"] == "http.response.start")
    return start["status"], {name.decode(): value.decode() for name, value in start["headers"]}


async def welcome(_scope, _receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def test_a_token_in_the_address_becomes_a_cookie():
    guard = Guard(welcome, {"box.lan"}, "a-token-of-some-length", 100)
    host = {"host": "box.lan:8765"}
    assert answered(guard, **host)[0] == 401
    assert answered(guard, **host, authorization="Bearer wrong")[0] == 401
    assert answered(guard, **host, cookie="roofplan-token=wrong")[0] == 401
    assert answered(guard, query="token=wrong", **host)[0] == 401
    code, headers = answered(guard, path="/serve", query="model=a%20b&token=a-token-of-some-length&on=x", **host)
    assert (code, headers["location"]) == (303, "/serve?model=a+b&on=x")
    _, away = answered(guard, path="//evil.example/x", query="token=a-token-of-some-length", **host)
    assert away["location"] == "/evil.example/x"
    assert "HttpOnly" in headers["set-cookie"]
    assert "SameSite=lax" in headers["set-cookie"]
    cookie = headers["set-cookie"].partition(";")[0]
    assert answered(guard, **host, cookie=cookie)[0] == 200
    assert answered(guard, **host, authorization="Bearer a-token-of-some-length")[0] == 200
    assert answered(guard, host="other.lan", authorization="Bearer a-token-of-some-length")[0] == 421


@pytest.mark.parametrize("site", ["same-origin", "none", "cross-site", "same-site"])
@pytest.mark.parametrize("mode", ["navigate", "cors"])
@pytest.mark.parametrize("target", ["document", "iframe"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_pages_of_other_sites_may_only_open_a_page(site, mode, target, method):
    guard = Guard(welcome, {"box.lan"}, None, 100)
    asked = {"host": "box.lan", "sec_fetch_site": site, "sec_fetch_mode": mode, "sec_fetch_dest": target}
    opened = (mode, target, method) == ("navigate", "document", "GET")
    code, headers = answered(guard, method=method, **asked)
    assert code == (200 if opened or site in {"same-origin", "none"} else 403)
    assert headers["cross-origin-opener-policy"] == "same-origin"


def test_a_body_holds_what_it_may_and_no_more():
    guard = Guard(welcome, {"box.lan"}, None, 100)
    assert answered(guard, host="box.lan", content_length="100")[0] == 200
    assert answered(guard, host="box.lan", content_length="101")[0] == 413

    async def taken(*sizes):
        parts = iter(sizes)

        async def receive():
            return {"type": "http.request", "body": b"x" * next(parts), "more_body": True}

        limited = _limited(receive, 100)
        return [len((await limited())["body"]) for _ in sizes]

    assert asyncio.run(taken(60, 40)) == [60, 40]
    with pytest.raises(TooLarge):
        asyncio.run(taken(60, 41))


# Processes ---------------------------------------------------------------------------------------


def doze(seconds, tick):
    tick(1, 2, "naps")
    time.sleep(seconds)
    return seconds


def die(tick):
    sys.exit(tick is None)


def fail(tick):
    raise ValueError("no such thing" if tick else "nobody listens")


def with_pool(check, **limits):
    async def call():
        pool = Pool(**{"count": 1, "limit": 20.0, "waiting": 1, "ready": "roofplan.errors"} | limits)
        pool.start()
        try:
            await check(pool)
        finally:
            pool.stop()

    asyncio.run(call())


def test_a_pool_answers_and_tells_of_progress():
    async def check(pool):
        told = []
        assert await pool.answer(Job(doze, {"seconds": 0.0}), lambda *one: told.append(one)) == 0.0
        assert told == [(1, 2, "naps")]

    with_pool(check)


def test_a_question_that_takes_too_long_ends_and_the_next_is_answered():
    async def check(pool):
        with pytest.raises(TooLong):
            await pool.answer(Job(doze, {"seconds": 600.0}))
        pool.limit = 60.0
        assert await pool.answer(Job(doze, {"seconds": 0.0})) == 0.0

    with_pool(check, limit=3.0)


def test_a_caller_who_leaves_ends_the_work():
    async def check(pool):
        leaving = asyncio.create_task(pool.answer(Job(doze, {"seconds": 600.0})))
        await asyncio.sleep(0.1)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert await pool.answer(Job(doze, {"seconds": 0.0})) == 0.0

    with_pool(check, limit=60.0)


def test_faults_and_deaths_are_told_and_lose_nobody_else():
    async def check(pool):
        with pytest.raises(Stopped, match="no such thing"):
            await pool.answer(Job(fail))
        with pytest.raises(Stopped):
            await pool.answer(Job(die))
        assert await pool.answer(Job(doze, {"seconds": 0.0})) == 0.0

    with_pool(check, limit=60.0)


def test_answers_are_kept_for_a_moment(monkeypatch):
    kept, job = (
        Kept(),
        Job(answers.document, {"name": "model", "given": {"model": "a"}, "refused": frozenset({"b", "a"})}),
    )
    other = Job(answers.page, job.given)
    assert kept.find(job) is None
    kept.keep(job, ("ok", "1"))
    assert kept.find(job) == ("ok", "1")
    assert kept.find(other) is None
    for number in range(300):
        kept.keep(Job(answers.document, {"name": "model", "given": {"model": number}}), ("ok", "2"))
    assert kept.find(job) is None
    runs = Job(answers.document, {"name": "runs", "given": {}})
    kept.keep(runs, ("ok", "3"))
    assert kept.find(runs) is None
    kept.keep(job, ("ok", "1"))
    monkeypatch.setattr("roofplan.web.kept.LIFETIME", -1.0)
    assert kept.find(job) is None


def test_nothing_stays_behind_a_pool_that_stops():
    async def check(pool):
        asked = asyncio.create_task(pool.answer(Job(doze, {"seconds": 600.0})))
        await asyncio.sleep(0.1)
        pool.stop()
        with pytest.raises(Stopped):
            await asked
        assert multiprocessing.active_children() == []
        assert not os.path.exists(pool._folder)  # noqa: ASYNC240, PTH110 - one look
        with pytest.raises(RuntimeError, match="shutdown"):
            pool._threads.submit(print)

    with_pool(check)


def test_a_fault_keeps_its_process():
    async def check(pool):
        (before,) = pool._every
        with pytest.raises(Stopped):
            await pool.answer(Job(fail))
        assert pool._every == {before}

    with_pool(check)


def test_too_many_questions_are_turned_away():
    async def check(pool):
        first, second = (asyncio.create_task(pool.answer(Job(doze, {"seconds": 0.2}))) for _ in range(2))
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await pool.answer(Job(doze, {"seconds": 0.0}))
        assert await first == await second == 0.2

    with_pool(check, limit=60.0)


def test_who_stops_listening_frees_the_process(server):
    for _ in range(4):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        body = json.dumps({"inputs": {"model": "deepseek-v3"}})
        connection.request("POST", "/page/serve", body, {"Content-Type": "application/json"})
        assert connection.getresponse().read(5)
        connection.close()
    assert server.ask(f"/api/serve?{SERVE}")[0] == 200


# A browser ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    place = shutil.which("chromium") or shutil.which("chromium-browser")
    if place is None:
        pytest.skip("needs chromium (Debian's package): apt-get install chromium")
    with sync_playwright() as driver:
        running = driver.chromium.launch(
            executable_path=place, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield running
        running.close()


@pytest.fixture
def visit(browser, server):
    """Return a function that opens a page and waits for its answer; faults of the page fail the test."""
    faults, contexts = [], []

    def call(path, *, width=1280, scheme="light", wait=True):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=f"http://127.0.0.1:{server.port}")
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda fault: faults.append(str(fault)))
        page.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)
        page.on(
            "request",
            lambda one: (
                None
                if one.url.startswith(("blob:", "data:", "file:", f"http://127.0.0.1:{server.port}/"))
                else faults.append(one.url)
            ),
        )
        page.goto(f"http://127.0.0.1:{server.port}{path}")
        if wait:
            page.wait_for_selector("#answer[data-status]", timeout=60_000)
        return page

    yield call
    for context in contexts:
        context.close()
    assert faults == []


def drawn(page):
    page.wait_for_selector("section[data-drawn]", timeout=60_000)
    return int(page.get_attribute("section[data-drawn]", "data-drawn"))


@pytest.mark.browser
@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_page_answers_its_first_preset(visit, path, width, scheme):
    page = visit(f"/{path}", width=width, scheme=scheme)
    assert page.get_attribute("#answer", "data-status") in {"ok", "no_plan"}
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    specs = page.query_selector('section[aria-label="Pictures"]')
    if specs is not None:
        assert drawn(page) >= 1
        beyond = "all => all.map((one) => one.getBoundingClientRect().width - one.closest('figure').clientWidth)"
        assert max(page.eval_on_selector_all("svg.marks", beyond)) <= 1.0


@pytest.mark.browser
def test_answers_gather_side_by_side(visit):
    page = visit(f"/serve?{SERVE}")
    page.click("text=Set beside")
    page.wait_for_selector("#besides")
    page.goto(page.url.split("/side-by-side")[0] + "/serve?model=llama-3.1-8b&on=h200-sxm:1")
    page.wait_for_selector("#answer[data-status]")
    page.click("text=Set beside")
    page.wait_for_selector("#besides")
    assert len(page.query_selector_all("#besides thead th")) == 2
    assert page.inner_text("#status") == "2 of 2 have a plan."


@pytest.mark.browser
def test_a_damaged_link_says_so_and_shows_no_answer(visit):
    page = visit("/serve#config=abcd", wait=False)
    page.wait_for_function("document.querySelector('#status').textContent.includes('damaged')")
    assert page.inner_text("#answer").strip() == ""


@pytest.mark.browser
@pytest.mark.parametrize("path", [*PAGES, "side-by-side?ask=" + quote("/serve?" + SERVE), ""])
def test_pages_have_no_serious_fault_of_access(visit, path):
    from axe_playwright_python.sync_playwright import Axe

    page = visit(f"/{path}", wait=path != "")
    found = Axe().run(page).response["violations"]
    serious = [(one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in {"serious", "critical"}]
    assert serious == []


@pytest.mark.browser
def test_from_a_question_to_a_launch_line(visit):
    page = visit("/serve")
    page.fill("#in-model", "llama-3.1-70c")
    page.press("#in-model", "Enter")
    page.wait_for_selector('#answer[data-status="error"]')
    page.click("text=Did you mean llama-3.1-70b?")
    page.wait_for_selector('#answer[data-status="ok"]')
    page.fill("#in-on", "h100-sxm:1")
    page.click("button[type=submit]")
    page.wait_for_selector('#answer[data-status="no_plan"]')
    page.click("text=--on h100-sxm:2")
    page.wait_for_selector('#answer[data-status="ok"]')
    assert "on=h100-sxm:2" in page.url
    page.click("text=Copy launch line")
    assert page.evaluate("navigator.clipboard.readText()").startswith("vllm serve ")
    page.click("text=Copy command")
    assert page.evaluate("navigator.clipboard.readText()").startswith("roofplan serve llama-3.1-70b --on h100-sxm:2")
    page.click("#why > summary")
    page.wait_for_selector("#why .tree .formula", state="attached")
    page.go_back()
    page.wait_for_selector('#answer[data-status="no_plan"]')
    assert page.input_value("#in-on") == "h100-sxm:1"


@pytest.mark.browser
def test_sliders_ask_again(visit):
    page = visit("/serve?" + SERVE)
    before = page.get_attribute("#explorer .memory", "aria-label")
    page.focus('#explorer input[aria-label="Prompt, tokens"]')
    page.keyboard.press("Home")
    page.wait_for_function(
        "(before) => document.querySelector('#explorer .memory').getAttribute('aria-label') !== before", arg=before
    )


@pytest.mark.browser
def test_a_configuration_is_pasted_and_shared(visit, llama):
    page = visit("/model")
    page.click(".config > summary")
    page.fill("#config", json.dumps(llama))
    page.click("button[type=submit]")
    page.wait_for_function("() => document.querySelector('#answer').textContent.includes('llama')")
    page.wait_for_function("() => location.hash.startsWith('#config=')")
    again = visit(page.url.partition(page.url.split("/")[2])[2])
    assert again.get_attribute("#answer", "data-status") == "ok"
    assert again.inner_text("#answer pre").split("\n")[0] == page.inner_text("#answer pre").split("\n")[0]


@pytest.mark.browser
def test_a_configuration_that_cannot_be_read_is_not_asked(visit):
    page = visit("/serve?" + SERVE)
    page.click(".config > summary")
    for text in ("{bad", "[1]", "null"):
        page.fill("#config", text)
        page.click("button[type=submit]")
        assert "config.json" in page.inner_text("#status")
    page.fill("#config", "")
    page.click("button[type=submit]")
    page.wait_for_function("() => document.querySelector('#status').textContent.startsWith('Answered')")


@pytest.mark.browser
def test_did_you_mean_changes_the_wrong_word_alone(visit):
    page = visit("/serve?model=llama-3.1-8b&on=h100-sxn:2&on=rtx-4090:1")
    page.click("text=Did you mean h100-sxm?")
    page.wait_for_selector('#answer[data-status="ok"]')
    assert "on=h100-sxm:2&on=rtx-4090:1" in page.url


@pytest.mark.browser
def test_the_skip_link_keeps_the_question(visit):
    page = visit("/serve?" + SERVE)
    before = page.url
    page.focus(".skip")
    page.keyboard.press("Enter")
    assert page.url == before
    assert page.evaluate("document.activeElement.id") == "answer"


@pytest.mark.browser
def test_what_hovers_stays_inside_the_window(visit):
    page = visit("/serve?" + SERVE)
    drawn(page)
    mark = page.query_selector("figure .mark-symbol path")
    mark.scroll_into_view_if_needed()
    mark.hover(force=True)
    page.wait_for_selector("#vg-tooltip-element.visible")
    box = page.query_selector("#vg-tooltip-element").bounding_box()
    assert box["x"] >= 0
    assert box["y"] >= 0
    assert box["x"] + box["width"] <= 1280
    assert "formula" in page.inner_text("#vg-tooltip-element")


@pytest.mark.browser
def test_answers_stand_side_by_side(visit):
    asks = urlencode([("ask", "/serve?" + SERVE), ("ask", "/serve?model=llama-3.1-8b&on=rtx-4090:1")])
    page = visit(f"/side-by-side?{asks}")
    assert len(page.query_selector_all("#besides thead th")) == 2
    assert len(page.query_selector_all("#besides .range")) >= 20
    links = [one.get_attribute("href") for one in page.query_selector_all("#besides thead a")]
    assert all(one.startswith("/serve?") for one in links)
    foreign = visit("/side-by-side?ask=" + quote("https://evil.example/serve?" + SERVE))
    assert foreign.get_attribute("#besides thead a", "href").startswith("/serve?")
    page.click("#besides thead button >> nth=0")
    page.wait_for_function("() => document.querySelectorAll('#besides thead th').length === 1")


@pytest.mark.browser
def test_a_saved_page_draws_from_disk(visit, tmp_path):
    page = visit("/serve?" + SERVE)
    with page.expect_download() as found:
        page.click("#save")
    place = tmp_path / "answer.html"
    found.value.save_as(place)
    page.goto(place.as_uri())
    page.wait_for_selector("body[data-drawn]")


@pytest.mark.browser
def test_a_long_search_is_stopped(visit):
    page = visit("/serve?" + SERVE)
    for name in ("on", "tpot"):
        page.fill(f"#in-{name}", "")
    page.fill("#in-engine", "any")
    page.click("button[type=submit]")
    page.wait_for_selector("#stop:not([hidden])")
    page.click("#stop")
    page.wait_for_function("() => document.querySelector('#status').textContent === 'Stopped.'")


ODD = [
    "",
    "x",
    "-1",
    "0",
    "1e999",
    "nan",
    "∞",
    "<img src=x onerror=alert(1)>",
    "h100-sxm:8",
    "50ms",
    "💥",
    "a" * 1999,
    "%00",
    "../x",
    "null",
    "1,2,3",
]


@pytest.mark.browser
@pytest.mark.parametrize("path", ["serve", "simulate", "train", "cost/tokens", "cost/chip", "device", "claims"])
def test_odd_inputs_never_break_a_page(browser, server, path):
    draws = random.Random(path)  # noqa: S311 - odd inputs, not secrets
    context = browser.new_context()
    page = context.new_page()
    faults = []
    page.on("pageerror", lambda fault: faults.append(str(fault)))
    page.on("dialog", lambda _: faults.append("a script ran"))
    page.goto(f"http://127.0.0.1:{server.port}/{path}")
    page.wait_for_selector("#answer[data-status]", timeout=60_000)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    for _ in range(12):
        page.evaluate("document.querySelector('#answer').removeAttribute('data-status')")
        for box in page.query_selector_all("#question input[type=text]:not([disabled])"):
            if draws.random() < 0.25 or box.get_attribute("required") is not None:
                box.fill(draws.choice(ODD))
        page.evaluate("document.querySelector('#question').noValidate = true")
        page.click("button[type=submit]")
        page.wait_for_selector("#answer[data-status]", timeout=60_000)
    context.close()
    assert faults == []
