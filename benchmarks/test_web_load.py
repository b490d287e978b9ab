"""Pages under load: ten thousand mixed questions from 64 users at once, each answer compared with the one computed alone."""

import http.client
import itertools
import os
import re
import subprocess
import sys
import threading
import time
from urllib.parse import quote, urlencode

import pytest

pytest.importorskip("starlette")

from roofplan.workers import answers

USERS = 64
QUESTIONS = int(os.environ.get("ROOFPLAN_WEB_QUESTIONS", "10000"))

SERVED = [
    {"model": model, "on": [on], **more}
    for model, on in (
        ("llama-3.1-8b", "h100-sxm:1"),
        ("qwen3-8b", "rtx-4090:1"),
        ("gpt-oss-120b", "h100-sxm:2"),
        ("llama-3.1-70b", "h100-sxm:8"),
        ("deepseek-r1", "h200-sxm:8"),
        ("mixtral-8x7b", "a100-sxm-80:2"),
        ("llama-3.1-70b", "h100-sxm:1"),
    )
    for more in ({"tpot": "50ms"}, {"concurrency": "8"}, {"precision": "fp8"})
]
MIXED = [
    *(("serve", one) for one in SERVED),
    *(("train", {"model": "llama-3.1-8b", "on": [f"h100-sxm:{count}"]}) for count in (8, 16)),
    *(
        ("simulate", {"model": "llama-3.1-8b", "on": ["h100-sxm:1"], "rate": rate, "requests": "200"})
        for rate in ("2req/s", "6req/s")
    ),
    *(("cost/chip", {"device": one}) for one in ("h100-sxm", "rtx-4090", "mi300x")),
    *(("cost/rent", {"device": one}) for one in ("h100-sxm", "a100-sxm-80")),
    *(("device", {"device": one}) for one in ("h100-sxm", "b200", "tpu-v5e", "nosuch")),
    *(("model", {"model": one}) for one in ("deepseek-v3", "llama-3.1-8b", "qwen3-235b-a22b", "nosuch")),
    *(("models", {"text": one}) for one in ("qwen3", "llama")),
    *(("claims", {"topic": one}) for one in ("money", "spec")),
]

STEADY = re.compile(r'"(seconds|cpu_seconds)": [0-9.e+-]+')


def plain(text):
    """Return a document without what differs between runs of one code: how long it took."""
    return STEADY.sub("", text)


def asked_alone():
    """Return the document of each question, computed in this process, and the seconds that all of them took."""
    for path, given in MIXED:
        answers.document(path.replace("/", " "), given)
    started = time.perf_counter()
    found = [plain(answers.document(path.replace("/", " "), given)[1]) for path, given in MIXED]
    return found, time.perf_counter() - started


def under_load(asked, port):
    """Ask questions by `USERS` connections at once; return their documents in order, None where one is lost, and the seconds taken."""
    words = [sys.executable, "-m", "roofplan", "web", "--port", str(port)]
    server = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    server.stderr.readline()
    number, found = itertools.count(), [None] * len(asked)

    def user():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        while (place := next(number)) < len(asked):
            path, given = asked[place]
            try:
                connection.request("GET", f"/api/{path}?{urlencode(given, doseq=True, quote_via=quote)}")
                found[place] = connection.getresponse().read().decode()
            except (OSError, http.client.HTTPException):
                connection.close()
        connection.close()

    try:
        users = [threading.Thread(target=user) for _ in range(USERS)]
        started = time.perf_counter()
        for one in users:
            one.start()
        for one in users:
            one.join()
        return found, time.perf_counter() - started
    finally:
        server.terminate()
        server.wait()
        server.stderr.close()


def test_ten_thousand_questions_from_64_users_are_answered_right():
    expected, alone = asked_alone()
    found, took = under_load([MIXED[place % len(MIXED)] for place in range(QUESTIONS)], 18765)
    lost = found.count(None)
    wrong = [place for place, text in enumerate(found) if text and plain(text) != expected[place % len(MIXED)]]
    rate, single = QUESTIONS / took, len(MIXED) / alone
    print(f"\n{QUESTIONS} questions of {len(MIXED)} kinds from {USERS} users: {rate:.1f} a second,", end=" ")
    print(f"{rate / single:.2f} of one process alone ({single:.1f} a second); wrong {len(wrong)}, lost {lost}")
    assert wrong == []
    assert lost == 0


def test_questions_that_nobody_asked_before_are_answered_anew():
    """No answer is kept from an earlier one: every `serve`, `train` and `simulate` differs in an input from all others."""
    apart = {"serve": ("input", 1000, 1), "train": ("sequence", 1024, 8), "simulate": ("seed", 0, 1)}
    asked = []
    for place in range(DISTINCT):
        path, given = MIXED[place % len(MIXED)]
        name, first, step = apart.get(path, ("", 0, 0))
        asked.append((path, {**given, name: str(first + step * (place % 5000))} if name else given))
    found, took = under_load(asked, 18766)
    print(
        f"\n{DISTINCT} distinct questions from {USERS} users: {DISTINCT / took:.1f} a second, lost {found.count(None)}"
    )
    assert None not in found
    for place in range(0, DISTINCT, 23):
        path, given = asked[place]
        assert plain(found[place]) == plain(answers.document(path.replace("/", " "), given)[1])


DISTINCT = int(os.environ.get("ROOFPLAN_WEB_DISTINCT", "900"))
"""Questions that all differ."""
