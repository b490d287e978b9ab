"""Results of other tools, under our names; a plan beside them; and what calibrate learns from them."""

import json

import pytest

from roofplan import observe
from roofplan.errors import InputError
from roofplan.inputs import CompareInputs, ImportInputs, RunsInputs
from roofplan.measure.imports import imported, tools
from roofplan.measure.ledger import VARIABLE
from roofplan.measure.sample import SEEN

TIMES = {"ttft": 0.21, "tpot": 0.011, "itl": 0.0115, "e2e": 3.0}
"""Means that every file below tells [s]."""

VLLM = {
    "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "num_prompts": 200,
    "request_rate": "inf",
    "max_concurrency": 16,
    "duration": 40.0,
    "completed": 199,
    "failed": 1,
    "total_input_tokens": 199 * 1024,
    "total_output_tokens": 199 * 256,
    "request_throughput": 4.97,
    "output_throughput": 1273.6,
    "mean_ttft_ms": 210.0,
    "median_ttft_ms": 180.0,
    "p99_ttft_ms": 600.0,
    "mean_tpot_ms": 11.0,
    "median_tpot_ms": 10.9,
    "p99_tpot_ms": 15.0,
    "mean_itl_ms": 11.5,
    "mean_e2el_ms": 3000.0,
}
SGLANG = {
    **{name: VLLM[name] for name in ("duration", "completed", "total_input_tokens", "total_output_tokens")},
    **{name: VLLM[name] for name in ("request_throughput", "output_throughput", "mean_ttft_ms", "mean_tpot_ms")},
    "mean_itl_ms": 11.5,
    "mean_e2e_latency_ms": 3000.0,
    "median_ttft_ms": 180.0,
    "p99_ttft_ms": 600.0,
    "max_concurrency": None,
    "request_rate": 4.0,
}


def spread(mean):
    return {"successful": {"mean": mean, "median": mean, "percentiles": {"p90": 2 * mean, "p99": 3 * mean}}}


GUIDELLM = {
    "metadata": {"version": 2},
    "benchmarks": [
        {
            "config": {"strategy": {"streams": clients}},
            "duration": 40.0,
            "metrics": {
                "request_totals": {"successful": 199, "errored": 1, "total": 200},
                "time_to_first_token_ms": spread(210.0),
                "inter_token_latency_ms": spread(11.0),
                "time_per_output_token_ms": spread(11.8),
                "request_latency": spread(3.0),
                "requests_per_second": spread(4.97),
                "output_tokens_per_second": spread(1273.6),
                "prompt_token_count": spread(1024),
                "output_token_count": spread(256),
            },
        }
        for clients in (8, 16)
    ],
}


def stat(mean, unit="ms"):
    return {"unit": unit, "avg": mean, "p50": mean, "p90": 2 * mean, "p99": 3 * mean}


AIPERF = {
    "request_count": stat(199, "requests"),
    "error_request_count": stat(1, "requests"),
    "benchmark_duration": stat(40.0, "sec"),
    "request_throughput": stat(4.97, "requests/sec"),
    "output_token_throughput": stat(1273.6, "tokens/sec"),
    "time_to_first_token": stat(210.0),
    "inter_token_latency": stat(11.0),
    "request_latency": stat(3000.0),
    "input_sequence_length": stat(1024, "tokens"),
    "output_sequence_length": stat(256, "tokens"),
    "input_config": {"endpoint": {"model_names": ["llama"]}, "loadgen": {"concurrency": 16, "request_rate": None}},
}


def line(mean):
    return {"mean": mean, "median": mean, "p90": 2 * mean, "p99": 3 * mean, "p99.9": 4 * mean}


INFERENCE_PERF = {
    "load_summary": {"count": 200, "requested_rate": 5.0},
    "successes": {
        "count": 199,
        "latency": {
            "request_latency": line(3.0),
            "normalized_time_per_output_token": line(0.012),
            "time_per_output_token": line(0.011),
            "time_to_first_token": line(0.21),
            "inter_token_latency": line(0.0115),
        },
        "throughput": {"output_tokens_per_sec": 1273.6, "requests_per_sec": 4.97},
        "prompt_len": line(1024),
        "output_len": line(256),
    },
    "failures": {"count": 1},
}
EVALSCOPE = {
    "Time taken for tests (s)": 40.0,
    "Number of concurrency": 16,
    "Total requests": 200,
    "Succeed requests": 199,
    "Failed requests": 1,
    "Output token throughput (tok/s)": 1273.6,
    "Request throughput (req/s)": 4.97,
    "Average latency (s)": 3.0,
    "Average time to first token (s)": 0.21,
    "Average time per output token (s)": 0.011,
    "Average package latency (s)": 0.0115,
    "Average input tokens per request": 1024,
    "Average output tokens per request": 256,
}
FILES = {
    "vllm bench serve": VLLM,
    "sglang bench_serving": SGLANG,
    "guidellm": GUIDELLM,
    "aiperf or genai-perf": AIPERF,
    "inference-perf": INFERENCE_PERF,
    "evalscope perf": EVALSCOPE,
}


def kept(folder, value, name="file.json"):
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(path)


@pytest.mark.parametrize("tool", FILES)
def test_names_become_ours(tool, tmp_path):
    found = imported(kept(tmp_path, FILES[tool]))
    one = found[-1]
    assert one.tool == tool
    for name, values in one.figures.items():
        assert values["mean"] == pytest.approx(TIMES[name]), name
        assert one.formulas[name]
    assert {"ttft", "tpot", "e2e"} <= set(one.figures)
    assert one.counts["completed"] == 199
    assert one.rates["output_tokens_per_second"] == pytest.approx(1273.6)
    assert (one.loads["input"], one.loads["output"]) == (1024, 256)


def test_what_guidellm_calls_tpot_is_not_taken_for_it(tmp_path):
    runs = imported(kept(tmp_path, GUIDELLM))
    assert [one.loads["clients"] for one in runs] == [8, 16]
    assert runs[0].figures["tpot"]["mean"] == pytest.approx(0.011)  # its time_per_output_token_ms is 11.8
    assert "counts the first token too" in runs[0].formulas["tpot"]


def test_lines_of_json_are_runs(tmp_path):
    text = "\n".join(json.dumps(SGLANG | {"request_rate": rate}) for rate in (1.0, 2.0))
    assert [one.loads["rate"] for one in imported(kept(tmp_path, text, "x.jsonl"))] == [1.0, 2.0]


def test_a_rate_comes_before_its_cap(tmp_path):
    path = kept(tmp_path, VLLM | {"request_rate": 4.0, "max_concurrency": 256})
    (one,) = observe.import_file(ImportInputs(file=path), ledger=tmp_path / "l.sqlite")
    assert one.about["load"] == "4 req/s"


def test_times_below_zero_are_none(tmp_path):
    (one,) = imported(kept(tmp_path, VLLM | {"mean_tpot_ms": -1.0, "duration": float("nan")}))
    assert "tpot" not in one.figures
    assert "seconds" not in one.rates


def test_every_layout_tells_our_figures():
    for layout in tools().values():
        assert set(layout) & set(SEEN)
        for name in SEEN:
            assert layout.get(name, {"formula": "x", "scale": 1.0, "mean": "y"}).keys() >= {"formula", "scale", "mean"}


NCCL = """# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1    42.31   24.78   43.37      0    41.90   25.03   43.79      0
   134217728      33554432     float     sum      -1    712.4  188.41  329.71      0    710.2  188.98  330.72      0
# Avg bus bandwidth    : 186.9
"""


def test_rates_of_machines_are_taken_over(tmp_path):
    (llama,) = imported(
        kept(
            tmp_path,
            [
                {"model_type": "llama 7B", "n_prompt": 512, "n_gen": 0, "avg_ts": 4000.0},
                {"n_prompt": 0, "n_gen": 128, "avg_ts": 90.0},
            ],
        )
    )
    assert [(one.name, one.value) for one in llama.others] == [("pp512", 4000.0), ("tg128", 90.0)]
    case = {
        "name": "device_to_device_memcpy_write_ce",
        "status": "Passed",
        "bandwidth_matrix": [["N/A", "276.1"], ["276.3", "0.00"]],
    }
    (bandwidth,) = imported(kept(tmp_path, {"nvbandwidth": {"testcases": [case, case | {"status": "Waived"}]}}))
    assert [one.value for one in bandwidth.others] == [pytest.approx(276.2e9)]
    slow = case | {"bandwidth_description": "device latency (ns)", "bandwidth_matrix": [["772.5"]]}
    (latency,) = imported(kept(tmp_path, {"nvbandwidth": {"testcases": [slow]}}))
    assert [(one.value, one.unit) for one in latency.others] == [(pytest.approx(772.5e-9), "s")]
    (nccl,) = imported(kept(tmp_path, NCCL, "nccl.txt"))
    assert [one.value for one in nccl.others] == [pytest.approx(43.37e9), pytest.approx(329.71e9)]


def test_lines_of_two_tools_are_two_results(tmp_path):
    """Lines of llama-bench are one result, unless a line beside them is another tool's."""
    bench = {"n_prompt": 0, "n_gen": 128, "avg_ts": 90.0}
    lines = "\n".join(map(json.dumps, (bench, bench | {"n_gen": 64})))
    (found,) = imported(kept(tmp_path, lines, "lines.jsonl"))
    assert [one.name for one in found.others] == ["tg128", "tg64"]
    mixed = "\n".join(map(json.dumps, (bench, VLLM)))
    assert [one.tool for one in imported(kept(tmp_path, mixed, "mixed.jsonl"))] == ["vllm bench serve"]


@pytest.mark.parametrize("text", ["", "{}", "[]", "not json", '{"plans": []}', "[1, 2]", '{"benchmarks": 3}'])
def test_what_is_no_result_is_refused(text, tmp_path):
    with pytest.raises(InputError, match="is no result of vllm bench serve"):
        imported(kept(tmp_path, text))
    with pytest.raises(InputError, match="No such file"):
        imported(str(tmp_path / "none.json"))


@pytest.mark.slow
def test_an_imported_run_is_compared_and_learned_from(tmp_path, monkeypatch, capsys):
    from roofplan.cli import main

    ledger = tmp_path / "ledger.sqlite"
    monkeypatch.setenv(VARIABLE, str(ledger))
    monkeypatch.setenv("ROOFPLAN_PROFILE", str(tmp_path / "profile.toml"))

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        return ended.value.code, capsys.readouterr()

    plan = tmp_path / "plan.json"
    plan.write_text(run("serve", "llama-3.1-8b", "--on", "rtx-4090", "--json")[1].out)
    for value in (VLLM, GUIDELLM):
        code, said = run("import", kept(tmp_path, value), "--json")
        assert code == 0
    assert [one["id"] for one in json.loads(said.out)["runs"]] == [2, 3]
    assert [one["completed"] for one in json.loads(said.out)["runs"]] == [199, 199]
    with pytest.raises(InputError, match="names no plan"):
        observe.own_row("run:1", ledger=ledger)
    code, said = run("compare", str(plan), "run:1", "--json")
    told = json.loads(said.out)["run"]
    inside = told["prediction"]["inside"]
    assert code == (0 if all(inside.values()) else 1)
    assert told["ttft"]["mean"] == pytest.approx(0.21)
    assert told["prediction"]["metrics"]["ttft"]["low"] < told["prediction"]["metrics"]["ttft"]["high"]
    row = observe.own_row("run:1", ledger=ledger)
    assert (row["client_concurrency"], row["input_len"], row["output_len"]) == ("16", "1024", "256")
    assert (row["weight_precision"], row["kv_precision"]) == ("bf16", "bf16")
    plan.write_text(run("serve", "llama-3.1-8b", "--on", "rtx-4090", "--precision", "q8_0", "--json")[1].out)
    run("compare", str(plan), "run:1")
    assert observe.own_row("run:1", ledger=ledger)["weight_precision"] == "q8_0"
    assert float(row["tpot_ms"]) == pytest.approx(11.0)
    code, said = run("calibrate", "--with", "run:1", "--dry-run", "--json")
    assert code == 0, said.err
    assert observe.runs(RunsInputs(run="1"), ledger=ledger).one.felt is not None  # the plan stays with the run
    code, said = run("runs")
    assert "199 of 200" in said.out
    observe.import_file(ImportInputs(file=kept(tmp_path, NCCL, "n.txt")), ledger=ledger)
    assert "330 GB/s" in run("runs", "4")[1].out
    with pytest.raises(InputError, match="no figure of a load"):
        observe.compare(CompareInputs(plan=str(plan), run="4"), ledger=ledger)
