"""Proofs of pools: recorded runs over shaped links beside the laws, and what refuses a proof."""

import pytest
from conftest import golden_rows

from roofplan import api, catalogue
from roofplan.errors import InputError
from roofplan.inputs import PoolPlanInputs, PoolProveInputs
from roofplan.measure import namespaces, workers
from roofplan.measure.workers import NoWorkers, Watched
from roofplan.pool.proof import _split, compared


def proven(one):
    """Return the prediction of a recorded run beside what was measured."""
    seen = one.quantities
    return compared(
        api.model_of(one.config),
        seen["weights"],
        one.layers,
        Watched(tokens=(seen["alone"],), prompts=(seen["prompt_alone"],), received=None, sent=None, load=None),
        Watched(
            tokens=(seen["token"],),
            prompts=(seen["prompt"],),
            received=seen["received_per_token"],
            sent=seen["sent_to_load"],
            load=seen["load"],
        ),
        seen["rate"],
        0.0,
        one.prompt_tokens,
    )


@pytest.mark.parametrize("one", catalogue.proofs(), ids=lambda one: f"{8e-6 * one.quantities['rate']:g} Mbit/s")
def test_recorded_runs_are_predicted(one):
    """Bytes of a token to 2%, loading above five seconds to 5%, time of a token to 10% where most of it is on the wire."""
    found = proven(one)
    assert abs(found.received.error) <= 0.02
    for figure in (found.received, found.sent, found.load, found.token, found.prompt):
        assert figure.inside
    if found.load.measured > 5.0:
        assert abs(found.load.error) <= 0.05
    if found.wire > 0.5:
        assert abs(found.token.error) <= 0.10


@pytest.mark.prove
def test_a_live_proof_keeps_to_the_same_bounds():
    """Two workers at 20 Mbit/s, about a minute; over loopback where links cannot be shaped."""
    found = api.prove_pool(PoolProveInputs(build=True, rate=("20mbit",)), remark=print)
    (link,) = found.links
    assert link.token.inside
    if not found.why:
        assert abs(link.received.error) <= 0.02
        assert abs(link.load.error) <= 0.05
        assert abs(link.token.error) <= 0.10


def test_most_of_a_token_is_on_a_slow_wire():
    shares = {8e-6 * one.quantities["rate"]: proven(one).wire for one in catalogue.proofs()}
    assert shares[10] > shares[20] > 0.5 > shares[1000]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workers": "99"}, "at most"),
        ({"rate": ("3",)}, "Example: 20mbit"),
        ({"rate": ("0mbit",)}, "from 0.1mbit"),
        ({"workers": "0"}, "--workers"),
    ],
)
def test_bad_proofs(given, said):
    with pytest.raises(InputError, match=said):
        api.prove_pool(PoolProveInputs(**given))


def test_without_workers_it_says_how_to_get_them(tmp_path):
    with pytest.raises(NoWorkers, match="--build"):
        api.prove_pool(PoolProveInputs(llama=str(tmp_path)))


def test_loading_ends_where_results_begin():
    """Looks 20 ms apart: 1 MB of weights in half a second, acknowledged, then results as large as requests."""
    looks, received, sent = [], 0.0, 0.0
    for k in range(60):
        if 5 <= k < 30:
            sent, received = sent + 40_000.0, received + 500.0
        elif k >= 40:
            sent, received = sent + 20_000.0, received + 20_000.0
        looks.append((0.02 * k, received, sent))
    whole, seconds = workers._load(looks)
    assert whole == pytest.approx(1e6, rel=0.05)
    assert seconds == pytest.approx(0.5, abs=0.05)


def test_links_are_made_and_removed():
    if namespaces.why_not():
        pytest.skip(namespaces.why_not())
    import subprocess

    before = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    with namespaces.Switched(2, 1.25e6) as net:
        answer = subprocess.run(
            net.inside(0, ["ip", "-o", "address"]), capture_output=True, text=True, check=True
        ).stdout
        assert net.address(0) in answer
        assert (
            "tbf"
            in subprocess.run(["tc", "-n", net.names[1], "qdisc"], capture_output=True, text=True, check=True).stdout
        )
    assert subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout == before


# Members that share layers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    golden_rows("pool_speeds.csv"),
    ids=lambda one: f"{one['count']}-{one['device']}-{one['model']}-{one['tpot_ms']}",
)
def test_published_speeds_of_shared_layers(row):
    """b4rtaz/distributed-llama, README: average token generation time."""
    lengths = {"input": "16", "output": "16", "precision": "q4_0", "software": "distributed-llama"}
    plan = api.plan_pool(row["model"], member=[f"{row['count']}x{row['device']}@1gbe"], **lengths)
    assert len(plan.layout.stages) == int(row["count"])
    tpot, measured = plan.metrics["tpot"], 1e-3 * float(row["tpot_ms"])
    assert tpot.low <= measured <= tpot.high
    assert tpot.value == pytest.approx(measured, rel=0.35)


def test_layers_are_shared_among_powers_of_two_and_heads():
    kinds = {"precision": "q4_0", "software": "distributed-llama", "model": "llama-3-8b"}
    plan = api.plan_pool(PoolPlanInputs(member=("7xraspberry-pi-5@1gbe",), **kinds))
    assert len(plan.layout.stages) in {1, 2, 4}
    for view in plan.views:
        assert view.weights + view.cache <= view.room
    assert sum(share for _, _, share in plan.limits) == pytest.approx(1.0)
    with pytest.raises(InputError, match="share every layer"):
        api.simulate_pool(
            "llama-3-8b", member=["2xraspberry-pi-5@1gbe"], precision="q4_0", software="distributed-llama"
        )


@pytest.mark.parametrize(("layers", "workers"), [(12, 1), (30, 2), (32, 3), (80, 7)])
def test_equal_shares_hold_every_layer_once(layers, workers):
    shares = _split(layers, workers)
    assert sum(shares) == layers
    assert max(shares[:-1], default=shares[-1]) - shares[-1] <= 2
