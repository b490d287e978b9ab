"""Arrivals, lengths, traces, limits, and statistics of requests."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from roofplan.errors import InputError
from roofplan.inputs import SimulateInputs
from roofplan.load.asked import asked_of
from roofplan.load.requests import Lengths, Requests, burstiness_of, cached_tokens, lengths_of, renewal
from roofplan.load.statistics import Objective, objectives_of, quantile_ends, sampling_error, summary
from roofplan.load.traces import read_trace

TRACE = Path(__file__).parent.parent / "docs" / "traces" / "azure_2023_conv.csv.gz"


@pytest.mark.parametrize(
    ("lengths", "spread"),
    [
        (Lengths(), 0.0),
        (Lengths("uniform", 0.5, 1.5), 1.0 / 12.0**0.5),
        (Lengths("lognormal", sigma=0.8), (np.exp(0.64) - 1.0) ** 0.5),
        (Lengths("exponential"), 1.0),
    ],
)
def test_lengths_keep_their_mean_and_their_spread(lengths, spread):
    drawn = lengths.draw(500.0, 200_000, np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(500.0, rel=0.01)
    assert drawn.std() / 500.0 == pytest.approx(spread, abs=0.02)
    assert drawn.min() >= 1


@pytest.mark.parametrize("text", ["normal", "uniform:2-1", "uniform:1", "lognormal:", "lognormal:9", "fixed:1", ""])
def test_other_lengths_are_refused(text):
    with pytest.raises(InputError, match="--lengths"):
        lengths_of(text)


@pytest.mark.parametrize(("shape", "spread"), [(1.0, 1.0), (4.0, 0.5), (0.25, 2.0), (np.inf, 0.0)])
def test_intervals_are_as_regular_as_their_shape(shape, spread):
    gaps = np.diff(renewal(5.0, 100_000, shape, np.random.default_rng(0)))
    assert gaps.mean() == pytest.approx(0.2, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(spread, abs=0.03)


def test_shapes_are_read():
    assert burstiness_of("inf") == np.inf
    assert burstiness_of("0.5") == 0.5
    with pytest.raises(InputError):
        burstiness_of("-1")


# Traces ------------------------------------------------------------------------------------------


FORMS = {
    "plain.csv": "arrival,input,output\n0.5,100,20\n1.5,200,30\n",
    "azure.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,100,20\n2023-11-16 18:15:47.6805900,200,30\n",
    "azure2024.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,100,20\n2024-05-10 00:00:01.009930+00:00,200,30\n",
    "vidur.csv": "arrived_at,num_prefill_tokens,num_decode_tokens\n3,100,20\n4,200,30\n",
    "burst.csv": "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,,1,m,100,20,120,c\n5.5,,1,m,50,0,50,c\n6,,1,m,200,30,230,c\n",
    "mooncake.csv": "timestamp_ms,input_length,output_length,hash_ids\n0,100,20,0\n1000,200,30,0 7-8\n",
    "mooncake.jsonl": '{"timestamp": 0, "input_length": 100, "output_length": 20, "hash_ids": [0]}\n'
    '{"timestamp": 1000, "input_length": 200, "output_length": 30, "hash_ids": [0, 7, 8]}\n',
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("packed", [False, True])
def test_published_forms_are_read(name, packed, tmp_path):
    path = tmp_path / (name + (".gz" if packed else ""))
    path.write_bytes(gzip.compress(FORMS[name].encode()) if packed else FORMS[name].encode())
    found = read_trace(path)
    assert found.arrivals.tolist() == pytest.approx([0.0, 1.0])
    assert found.inputs.tolist() == [100, 200]
    assert found.outputs.tolist() == [20, 30]
    if name.startswith("mooncake"):
        assert found.prefixes == [(0,), (0, 7, 8)]
        assert found.prefix_block == 512


def test_requests_without_an_answer_are_left_out_and_said(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("arrival,input,output\n0,100,20\n1,100,0\n2,50,30\n")
    assert read_trace(path).inputs.tolist() == [100, 50]
    assert asked_of(SimulateInputs(trace=str(path)), 1000).words() == "trace, 1 without an answer left out"
    path.write_text("arrival,input,output\n0,100,20\n1,100,10\n")
    assert asked_of(SimulateInputs(trace=str(path)), 1000).words() == "trace"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no rows"),
        ("arrival,input\n1,2\n", "lacks the column output"),
        ("time,tokens\n1,2\n", "lacks the columns arrival, input, output"),
        ("arrival,input,output\n2,5,5\n1,5,5\n", "line 3: time goes back"),
        ("arrival,input,output\n2,5,5\n1e12,5,5\n", "line 3: 1e\\+12 s after the first request"),
        ("arrival,input,output\n1e9,5,5\n9e9,5,5\n", "line 3: 8e\\+09 s after the first request"),
        ("arrival,input,output\nnoon,5,5\n", "line 2: arrival is 'noon', not a time"),
        ("arrival,input,output\n1,many,5\n", "line 2: input is 'many'"),
        ("arrival,input,output\n1,0,5\n", "no request with a prompt"),
    ],
)
def test_other_tables_are_refused(text, said, tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_trace(path)


def test_times_may_count_from_any_moment(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("arrival,input,output\n1.7e9,100,20\n1700000060,100,10\n")
    assert read_trace(path).arrivals.tolist() == [0.0, 60.0]


def test_files_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(tmp_path / "nosuch.csv")
    (tmp_path / "not.csv.gz").write_text("plain text")
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(tmp_path / "not.csv.gz")
    (tmp_path / "bad.jsonl").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(tmp_path / "bad.jsonl")


def test_the_trace_to_try():
    found = read_trace(TRACE)
    assert len(found) == 19_366
    assert found.arrivals[-1] == pytest.approx(3502, abs=1.0)
    assert found.inputs.mean() == pytest.approx(1155, abs=1)
    assert len(found.first(10)) == 10


def test_a_cache_holds_the_latest_blocks():
    prompts = Requests(
        arrivals=np.arange(4.0),
        inputs=np.array([1024, 1500, 1024, 600]),
        outputs=np.ones(4, int),
        prefixes=[(1, 2), (1, 2, 3), (9, 8), (1, 2)],
        prefix_block=512,
    )
    # the second finds both blocks; the last its whole prompt but one token, in whole blocks of 16
    assert cached_tokens(prompts, 16, 1e9).tolist() == [0, 1024, 0, 592]
    # a cache of three blocks has given the first one away by then
    assert cached_tokens(prompts, 16, 3 * 512).tolist() == [0, 1024, 0, 0]


# Limits and statistics ---------------------------------------------------------------------------


def test_limits_are_read():
    assert objectives_of("ttft=500ms@p99, tpot=50ms@95%") == (
        Objective("ttft", 0.5, 0.99),
        Objective("tpot", 0.05, 0.95),
    )
    assert objectives_of("e2e=10s") == (Objective("e2e", 10.0, 0.99),)
    assert objectives_of(None) == ()
    assert objectives_of("e2e=10s@p99.9")[0].percentile == "p99.9"


@pytest.mark.parametrize(
    "text", ["tftf=1s", "ttft", "ttft=1s,ttft=2s", "ttft=1GB", "ttft=1s@p0", "ttft=1s@p100", "ttft=1s@often"]
)
def test_other_limits_are_refused(text):
    with pytest.raises(InputError, match="--slo"):
        objectives_of(text)


def test_summaries():
    found = summary(np.arange(1.0, 1001.0))
    assert found.mean == pytest.approx(500.5)
    assert found.quantiles["p50"] == pytest.approx(500.5)
    assert found.quantiles["p99"] == pytest.approx(990.0, abs=1.0)
    assert summary(np.array([])).mean is None


def test_batch_means_see_queues_that_persist():
    """Values that stay for a while have a larger error of their mean than as many independent ones."""
    random = np.random.default_rng(0)
    alone = random.standard_normal(20_000)
    lasting = np.repeat(random.standard_normal(200), 100)
    assert sampling_error(alone) == pytest.approx(1.73 / 20_000**0.5, rel=0.5)
    assert sampling_error(lasting) > 5.0 * sampling_error(alone)


def test_the_interval_of_a_quantile_holds_it_nine_times_in_ten():
    inside = 0
    for seed in range(400):
        low, high = quantile_ends(np.random.default_rng(seed).exponential(1.0, 2000), 0.9)
        inside += low <= np.log(10.0) <= high
    assert 340 <= inside <= 385


def test_a_sample_that_is_too_small_has_no_ends():
    assert quantile_ends(np.arange(1.0, 21.0), 0.99)[1] == np.inf
    assert quantile_ends(np.ones(1), 0.5) == (0.0, np.inf)
    assert quantile_ends(np.tile([1.0, 2.0], 20), 0.5) == (1.0, 2.0)


@pytest.mark.parametrize("text", ["0.99", "0.5", "p0", "p0.0", "0%", "p100", "p101", "median", "p-5"])
def test_a_percentile_lies_between_the_ends(text):
    assert objectives_of("ttft=1s@p0.5")[0].quantile == pytest.approx(0.005)
    assert objectives_of("ttft=1s@99.9%")[0].quantile == pytest.approx(0.999)
    assert objectives_of("ttft=1s")[0].quantile == 0.99
    with pytest.raises(InputError, match="is no percentile"):
        objectives_of(f"ttft=1s@{text}")


@pytest.mark.parametrize(
    "text", ["uniform:2-1", "uniform:0-0", "uniform:-1-2", "lognormal:0", "lognormal:3.1", "fixed:2", "other"]
)
def test_lengths_that_cannot_be_are_refused(text):
    assert lengths_of("uniform:0-0.5").high == 0.5
    assert lengths_of("lognormal:0.1").sigma == 0.1
    with pytest.raises(InputError):
        lengths_of(text)


@pytest.mark.parametrize("text", ["fixed", "uniform:0.5-1.5", "lognormal:0.8"])
@pytest.mark.parametrize("count", [1, 50, 2000])
def test_hardly_any_draw_is_longer_than_the_longest(text, count):
    lengths = lengths_of(text)
    longest = lengths.longest(1000.0, count)
    drawn = [lengths.draw(1000.0, count, np.random.default_rng(seed)).max() for seed in range(200)]
    assert np.mean(np.array(drawn) > longest) <= 0.03
    assert longest >= 1000
    assert lengths.longest(1000.0, 10 * count) >= longest


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ({"clients": 3}, 1000),
        ({"clients": 200}, 2000),
        ({"clients": 200, "requests": 300}, 300),
        ({"burst": 7}, 7),
        ({"rate": "4req/s"}, 1000),
        ({"rate": "4req/s", "duration": "10s"}, 40),
        ({"rate": "4req/s", "duration": "0.1s"}, 1),
    ],
)
def test_loads_know_how_many_requests_they_are(given, count):
    assert asked_of(SimulateInputs(**given), 1000).count == count


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ({}, 11),
        ({"requests": 5}, 5),
        ({"requests": 50}, 11),
        ({"duration": "3s"}, 4),  # one second apart, the first at once
        ({"duration": "3s", "rate": "2req/s"}, 7),
        ({"duration": "3s", "rate": "0.5req/s"}, 2),
        ({"duration": "1h"}, 11),
    ],
)
def test_traces_end_with_their_rows_or_their_time(tmp_path, given, count):
    path = tmp_path / "trace.csv"
    path.write_text("arrival,input,output\n" + "".join(f"{k},100,20\n" for k in range(11)))
    assert asked_of(SimulateInputs(trace=str(path), **given), 1000).count == count


def test_a_trace_without_time_takes_any_duration(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("arrival,input,output\n" + "2,100,20\n" * 5)
    assert asked_of(SimulateInputs(trace=str(path), rate="1req/s", duration="9s"), 1000).count == 5
