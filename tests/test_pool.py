"""Pools: members, the search against brute force, plans and what refuses them."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from roofplan import api, catalogue
from roofplan.errors import InputError, NoPlan
from roofplan.inputs import PoolPlanInputs
from roofplan.pool.layout import Layout, Problem, Stage
from roofplan.pool.members import _hours, _online, members
from roofplan.pool.request import pool_request
from roofplan.pool.search import _arrived, _near, _relaxed, _separate, _subset_layout, _twins, _useful, best_layout
from roofplan.present.screens import pool as screens
from roofplan.records.pool import CLIENT, LAST

THREE = ("rtx-4090@1gbe", "rtx-3060@100mbit:12ms", "m2-max@wifi")


def drawn(seed, members, layers, *, route, outputs, alike=False, separate=False, most=math.inf):
    """Return a problem of random times and memory."""
    random = np.random.default_rng(seed)
    layer = random.uniform(1.0, 5.0, (members, 1 if alike else layers)) * np.ones((members, layers))
    weight = np.full(layers, 1.0) if alike else random.uniform(0.5, 1.5, layers)
    hidden = random.uniform(0.5, 8.0, (members, members))
    if separate:
        ends = random.uniform(0.2, 4.0, members)
        hidden = ends[:, None] + ends
    np.fill_diagonal(hidden, 0.0)
    return Problem(
        layer=layer,
        head=random.uniform(0.1, 3.0, members),
        host=random.uniform(0.1, 3.0, members),
        weight=weight,
        head_weight=float(random.uniform(0.2, 2.0)),
        room=random.uniform(0.0, 1.2 * layers, members),
        hidden=hidden,
        logits=10.0 * hidden,
        token=0.5 * hidden,
        route=route,
        outputs=outputs,
        returned=bool(seed % 2),
        clients=tuple(range(members)) if seed % 3 else (0,),
        most=most,
    )


def every_layout(problem):
    """Yield every layout: each client, output, order of a subset and split of the layers."""
    count, layers = problem.members, problem.layers
    for client, output in itertools.product(problem.clients, problem.outputs):
        for size in range(1, count + 1):
            for order in itertools.permutations(range(count), size):
                if problem.route == "hub" and client in order and order[-1] != client:
                    continue
                if output == LAST and (order[-1] == client) != (order == (client,)):
                    continue
                for cuts in itertools.combinations(range(1, layers), size - 1):
                    ends = (0, *cuts, layers)
                    stages = tuple(Stage(m, a, b) for m, (a, b) in zip(order, itertools.pairwise(ends), strict=True))
                    yield Layout(client, stages, output)


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 24))])
@pytest.mark.parametrize("route", ["hub", "ring"])
@pytest.mark.parametrize(("alike", "separate"), [(False, False), (True, True), (True, False)])
def test_the_search_finds_what_brute_force_finds(seed, route, alike, separate):
    outputs = ((CLIENT,), (LAST,), (CLIENT, LAST))[seed % 3]
    most = math.inf if seed % 4 else 14.0
    problem = drawn(seed, 4, 6, route=route, outputs=outputs, alike=alike, separate=separate, most=most)
    fitting = [one for one in every_layout(problem) if problem.holds(one)]
    found = best_layout(problem)
    if not fitting:
        assert found is None
        return
    best = min(problem.time(one) for one in fitting)
    assert found is not None
    assert problem.holds(found.layout)
    assert found.time == pytest.approx(best, rel=1e-9)
    assert found.time == pytest.approx(problem.time(found.layout), rel=1e-12)
    assert found.gap == 0.0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("route", ["hub", "ring"])
@pytest.mark.parametrize("alike", [False, True])
def test_members_are_filled_to_the_brim(seed, route, alike):
    """Layers and rooms are whole, so that members are often exactly full."""
    problem = drawn(seed, 4, 6, route=route, outputs=((CLIENT,), (LAST,), (CLIENT, LAST))[seed % 3], alike=alike)
    weight = np.ones(6) if alike else np.random.default_rng(seed).integers(1, 3, 6).astype(float)
    problem = replace(problem, weight=weight, head_weight=1.0, room=np.ceil(0.6 * problem.room))
    best = min((problem.time(one) for one in every_layout(problem) if problem.holds(one)), default=math.inf)
    found = best_layout(problem)
    assert (math.inf if found is None else found.time) == pytest.approx(best, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [6, 15])
def test_a_ring_of_six_in_little_room_is_searched_to_its_best(seed):
    problem = drawn(seed, 6, 8, route="ring", outputs=(CLIENT,))
    problem = replace(problem, room=0.5 * problem.room)
    best = min(problem.time(one) for one in every_layout(problem) if problem.holds(one))
    assert best_layout(problem).time == pytest.approx(best, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 4, 5, 7, 8])
def test_a_bound_lies_below_every_layout(seed):
    problem = drawn(seed, 16, 12, route="ring", outputs=(CLIENT,))
    found = best_layout(problem)
    assert found is not None
    assert 0.0 <= found.gap < 0.7
    random = np.random.default_rng(seed)
    for _ in range(300):
        order = random.permutation(16)[: random.integers(1, 6)].tolist()
        cuts = sorted(random.choice(np.arange(1, 12), len(order) - 1, replace=False).tolist())
        ends = (0, *cuts, 12)
        stages = tuple(Stage(m, a, b) for m, (a, b) in zip(order, itertools.pairwise(ends), strict=True))
        tried = Layout(int(random.choice(problem.clients)), stages, CLIENT)
        if problem.holds(tried):
            assert problem.time(tried) >= found.least * (1.0 - 1e-12)


@pytest.mark.slow
def test_a_bound_of_many_members_is_that_of_the_relaxed_problem():
    """Hops are counted by half there, so that it lies below every layout; where no hop is needed, it is the layout's own time."""
    for seed in (1, 2, 4):
        problem = drawn(seed, 16, 12, route="ring", outputs=(CLIENT,))
        found = _near(problem)
        assert found.least == _relaxed(problem)[0][0] < found.time == problem.time(found.layout)


def asked(*texts, model="qwen3-32b", **more):
    return api.plan_pool(model, member=list(texts), **more)


def test_a_plan_covers_every_layer_once_and_fits():
    plan = asked(*THREE, precision="q8_0")
    held = sorted(view.layers for view in plan.views)
    assert held[0][0] == 0
    assert held[-1][1] == 63
    assert all(before[1] + 1 == after[0] for before, after in itertools.pairwise(held))
    for view in plan.views:
        assert view.weights + view.cache <= view.room
    assert plan.metrics["tpot"].value == pytest.approx(float(plan.token.value), rel=1e-12)
    assert plan.metrics["tokens_per_second_per_user"].value == pytest.approx(1.0 / plan.metrics["tpot"].value)
    assert sum(share for _, _, share in plan.limits) == pytest.approx(1.0, rel=1e-9)
    assert plan.token.value == pytest.approx(plan.found.time, rel=1e-9)
    assert plan.found.gap <= 0.01


@pytest.mark.slow
def test_published_rules_are_never_faster():
    for software in catalogue.pools().software:
        plan = asked("2xrtx-4090@1gbe", "2xrtx-3060@100mbit:12ms", precision="q4_k_m", software=software)
        best = plan.metrics["tokens_per_second_per_user"].value
        for one in plan.baselines.values():
            assert one.rate is None or one.rate <= best * (1.0 + 1e-8)


def test_a_better_link_is_never_slower():
    rates = [
        asked("2xrtx-3090@" + link, precision="q8_0").metrics["tokens_per_second_per_user"].value
        for link in ("10mbit:30ms", "100mbit:30ms", "100mbit:5ms", "1gbit:5ms", "10gbit:0ms")
    ]
    assert rates == sorted(rates)


@pytest.mark.slow
def test_throughput_is_never_below_that_of_the_fastest_plan_of_one_user():
    few = {"precision": "q4_k_m", "software": "petals"}
    texts = ("4xrtx-3090@1gbit:5ms", "rtx-4090@100mbit:10ms")
    fast, many = asked(*texts, **few), asked(*texts, best="throughput", **few)
    assert many.metrics["output_tokens_per_second"].value >= fast.metrics["output_tokens_per_second"].value * 0.999


def test_logits_stay_off_slow_links():
    """Over 10 Mbit/s, returned logits of 151,936 numbers are 148 times the hidden state of 1,024: the output stays home."""
    plan = asked("2xrtx-3060@10mbit:5ms", model="qwen3-0.6b")
    assert plan.layout.output == CLIENT


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ((), "--member is missing"),
        (("rtx-4090",), "cannot read 'rtx-4090'"),
        (("rtx-4099@1gbe",), "no device 'rtx-4099'"),
        (("rtx-4090@0mbit",), "nothing passes a link of 0mbit"),
        (("rtx-4090@1gbx",), "no network '1gbx'"),
        (("rtx-4090@1gbe:-3ms",), "RTT"),
        (("rtx-4090:2@1gbe",), "a member is one card"),
        (("0xrtx-4090@1gbe",), "from 1 to"),
        (("2000xrtx-4090@1gbe",), "from 1 to"),
    ],
)
def test_bad_members_are_refused_by_name(texts, said):
    with pytest.raises(InputError) as caught:
        members(texts)
    assert said in caught.value.message


def test_members_of_a_file(tmp_path):
    path = tmp_path / "street.toml"
    path.write_text(
        '[[member]]\nname = "ada"\ndevice = "rtx-4090"\nlink = "1gbit"\nup = "100mbit"\nrtt = "8ms"\nmemory = "20 GiB"\n'
        'online = "18:00-02:00"\nelectricity = "0.3 USD/kWh"\n[[member]]\ndevice = "rtx-3060"\nlink = "wifi"\ncount = 2\n'
    )
    ada, *others = members((), str(path))
    assert (ada.name, ada.down, ada.up, ada.rtt) == ("ada", 1.25e8, 1.25e7, 0.008)
    assert ada.online == pytest.approx(8 / 24)
    assert ada.electricity == pytest.approx(0.3 / 3.6e6)
    assert [one.name for one in others] == ["rtx-3060#1", "rtx-3060#2"]
    assert all("rate" in one.assumed for one in others)
    path.write_text('[[member]]\nname = "ada"\ndevice = "rtx-4090"\nlink = "1gbit"\n' * 2)
    with pytest.raises(InputError, match="two members are called 'ada'"):
        members((), str(path))
    path.write_text('[[member]]\ndevice = "rtx-4090"\nlink = "1gbit"\nmemory = "90 GiB"\n')
    with pytest.raises(InputError, match="more than"):
        members((), str(path))


@pytest.mark.parametrize(
    ("link", "assumed"),
    [("wifi", True), ("thunderbolt-5", True), ("1gbe", False), ("ib-ndr", False), ("90mbit", False)],
)
def test_rates_that_nobody_published_are_assumed(link, assumed):
    (one,) = members((f"rtx-4090@{link}",), None)
    assert ("rate" in one.assumed) is assumed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no \\[\\[member\\]\\]"),
        ("x = 1", "unknown x"),
        ('member = "me"', "no \\[\\[member\\]\\]"),
        ('[other]\n[[member]]\ndevice = "rtx-4090"\nlink = "1gbit"\n', "unknown other"),
    ],
)
def test_a_file_of_members_holds_nothing_else(tmp_path, text, said):
    path = tmp_path / "street.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        members((), str(path))


def test_ways_out_of_too_little_memory_lead_to_plans():
    with pytest.raises(NoPlan) as caught:
        asked("rtx-4090@1gbe")
    ways = {one["argument"]: one["needed"] for one in caught.value.relax}
    assert ways == {"--precision": "q4_k_m", "--member": "2xrtx-4090@1gbe"}
    assert asked("rtx-4090@1gbe", precision=ways["--precision"]).found.gap <= 0.01
    assert asked("rtx-4090@1gbe", ways["--member"]).found.gap <= 0.01


def test_the_document_and_its_command(run_json):
    words = ("--precision", "q8_0", "--member", THREE[0], "--member", THREE[2])
    code, document = run_json("pool", "plan", "qwen3-32b", *words)
    assert code == 0
    stages = document["plans"][0]["stages"]
    assert [stages[0]["layers"][0], stages[-1]["layers"][1]] == [0, 63]
    assert set(document["baselines"]) == {"exo", "petals", "parallax"}
    again = PoolPlanInputs.of(document["inputs"])
    assert api.plan_pool(again).metrics["tpot"].value == document["plans"][0]["metrics"]["tpot"]["value"]


def test_launch_lines_give_every_layer_to_somebody():
    plan = asked(*THREE, precision="q8_0")
    split = plan.launch[-1].split("--tensor-split ")[1]
    assert sum(map(int, split.split(","))) == 64 + 1


def test_members_without_a_part_leave_the_rest_as_fast():
    """Each of two 3090s holds the model alone; a third member adds nothing that the other does not."""
    plan = asked("2xrtx-3090@1gbe", "rtx-3060@100mbit:12ms", precision="q4_k_m")
    for view in plan.views:
        assert view.without is not None


def test_throughput_counts_prompts():
    """With one token of answer, a request is its prompt: no more are served than prompts pass."""
    one = {"model": "llama-3.1-8b", "precision": "q4_k_m"}
    short = asked("rtx-4090@1gbe", output="1", **one)
    first = short.metrics["ttft"].value
    assert short.metrics["output_tokens_per_second"].value == pytest.approx(1.0 / first, rel=0.25)
    long = asked("rtx-4090@1gbe", output="1024", **one)
    assert long.metrics["output_tokens_per_second"].value > 5.0 * short.metrics["output_tokens_per_second"].value


def test_a_faster_link_serves_no_fewer_tokens():
    rates = [
        asked("2xrtx-3090@" + link, model="llama-3.1-70b", precision="q4_k_m").metrics["output_tokens_per_second"].value
        for link in ("100mbit:0ms", "1gbit:0ms", "10gbit:0ms", "100gbit:0ms")
    ]
    assert rates == sorted(rates)


def test_a_client_with_the_output_alone_gets_a_share_of_its_own():
    plan = asked("2xrtx-4090@1gbit:4ms", "rtx-3060@wifi", model="llama-3.1-70b", precision="q4_k_m", client="rtx-3060")
    if all(stage.member != plan.layout.client for stage in plan.layout.stages):
        split = [int(one) for one in plan.launch[-1].split("--tensor-split ")[1].split(",")]
        assert len(split) == 3
        assert split[-1] == 1
    assert plan.layout.output == CLIENT


def test_a_client_may_be_called_as_its_card_is():
    plan = asked(*THREE, precision="q8_0", client="m2-max")
    assert plan.client.name == "apple-m2-max"
    with pytest.raises(InputError, match="no member 'm9'"):
        asked(*THREE, precision="q8_0", client="m9")


def test_free_electricity_costs_nothing():
    plan = asked("2xrtx-3090@1gbe", precision="q8_0", electricity="0USD/kWh")
    assert plan.metrics["electricity_per_million_output_tokens"].value == 0.0
    with pytest.raises(InputError, match="not negative"):
        asked("2xrtx-3090@1gbe", precision="q8_0", electricity="-1USD/kWh")


def test_electricity_of_members():
    one = {"precision": "q8_0"}
    cheap = asked("2xrtx-3090@1gbe", electricity="0.1USD/kWh", **one)
    dear = asked("2xrtx-3090@1gbe", electricity="0.3USD/kWh", **one)
    name = "electricity_per_million_output_tokens"
    assert dear.metrics[name].value == pytest.approx(3.0 * cheap.metrics[name].value)


def test_a_request_keeps_members_that_are_alike():
    request = pool_request(
        api.model_of("qwen3-8b"), PoolPlanInputs(model="qwen3-8b", member=("rtx-3060@1gbe", "rtx-3060@1gbe"))
    )
    assert [one.name for one in request.members] == ["rtx-3060#1", "rtx-3060#2"]


IN_HOURS = SimpleNamespace(hours=(64_800.0, 7_200.0), online=0.33)
HALF, SILENT = SimpleNamespace(hours=None, online=0.5), SimpleNamespace(hours=None, online=None)


@pytest.mark.parametrize(
    ("some", "churn", "says"),
    [
        ([HALF, SILENT], None, "members stay 3,600 s, steady, and are there 70% of the time"),
        ([HALF, HALF], None, "members stay 3,600 s, steady"),
        ([IN_HOURS, HALF], None, "members stay 3,600 s, steady"),
        ([IN_HOURS], None, "members are there in their hours"),
        ([SILENT], "churn.csv", "members are there as churn.csv says"),
    ],
)
def test_when_members_are_there_is_said_of_those_that_do_not_say(some, churn, says):
    under = SimpleNamespace(churn=churn, session=3600.0, pattern="steady", online=0.7)
    found = SimpleNamespace(circumstances=under, plan=SimpleNamespace(request=SimpleNamespace(members=some)))
    assert screens._coming(found) == [says]


def test_only_the_client_itself_begins_without_a_hop():
    hop, begun = np.array([[0.0, 3.0], [5.0, 0.0]]), np.array([1.0, 2.0])
    never = np.full((2, 2), np.inf)
    assert _arrived(never, begun, hop, 0, 0, hub=False).tolist() == [1.0, 2.0]
    assert _arrived(never, begun, hop, 0, 1, hub=False).tolist() == [4.0, 5.0]


def test_members_without_names_are_called_as_their_cards_unless_another_is(tmp_path):
    path = tmp_path / "members.toml"
    tables = [("rtx-3060", "rtx-4090"), ("rtx-4090", ""), ("rtx-3090", ""), ("rtx-3090", ""), ("rtx-3060", "")]
    path.write_text(
        "".join(
            f'[[member]]\ndevice = "{device}"\nlink = "1gbe"\n' + (f'name = "{name}"\n' if name else "")
            for device, name in tables
        )
    )
    named = [one.name for one in members((), str(path))]
    assert named == ["rtx-4090", "rtx-4090#2", "rtx-3090#1", "rtx-3090#2", "rtx-3060"]


@pytest.mark.parametrize(("text", "share"), [("8h", 1 / 3), ("24h", 1.0), ("30%", 0.3), (None, None)])
def test_parts_of_a_day_are_hours_or_shares(text, share):
    assert _online(text, "--members") == pytest.approx(share)


@pytest.mark.parametrize("text", ["25h", "0h", "0%", "18:00-02:00"])
def test_what_is_no_part_of_a_day_is_refused(text):
    with pytest.raises(InputError, match="online"):
        _online(text, "--members")


@pytest.mark.parametrize(
    ("text", "hours"),
    [("18:00-02:00", (64_800.0, 7_200.0)), ("08:00-08:00", None), ("00:00-24:00", None), ("09:30-25:00", None)],
)
def test_hours_begin_and_end_at_other_times_of_the_day(text, hours):
    assert _hours(text) == hours


def test_a_format_that_is_already_the_smallest_is_no_way_out():
    with pytest.raises(NoPlan) as caught:
        asked("rtx-3060@1gbe", model="llama-3.1-70b", precision="q4_k_m")
    assert [one["argument"] for one in caught.value.relax] == ["--member"]


@pytest.mark.parametrize("most", [5.0, 8.0, 12.0])
@pytest.mark.parametrize("outputs", [(LAST,), (CLIENT,)])
@pytest.mark.parametrize(("route", "alike"), [("ring", True), ("hub", True), ("ring", False), ("hub", False)])
def test_no_member_takes_longer_than_it_may(most, outputs, route, alike):
    for seed in range(6):
        problem = drawn(seed, 4, 5, route=route, outputs=outputs, most=most, alike=alike, separate=alike)
        problem = replace(problem, room=np.full(4, 20.0 if seed % 2 else 2.5 + seed))
        fitting = [problem.time(one) for one in every_layout(problem) if problem.holds(one)]
        found = best_layout(problem)
        assert (found is None) == (not fitting)
        assert found is None or found.time == pytest.approx(min(fitting))


@pytest.mark.parametrize("route", ["hub", "ring"])
@pytest.mark.parametrize("output", [CLIENT, LAST])
@pytest.mark.parametrize("most", [9.0, math.inf])
def test_orders_of_subsets_are_searched_to_the_best(route, output, most):
    """For one client and one place of the output layer, whatever a quicker search has found before."""
    for seed in range(4):
        problem = drawn(seed, 4, 5, route=route, outputs=(output,), most=most)
        problem = replace(problem, room=np.full(4, 2.4), clients=(seed,), weight=np.ones(5), head_weight=0.3)
        fitting = [problem.time(one) for one in every_layout(problem) if problem.holds(one)]
        found = _subset_layout(problem, seed, output, [-1] * 4)
        assert (found is None) == (not fitting)
        assert found is None or problem.time(found) == pytest.approx(min(fitting))


def test_memory_and_time_to_the_last_byte_and_second_are_enough():
    problem = drawn(1, 3, 4, route="ring", outputs=(CLIENT, LAST))
    exact = replace(problem, room=np.full(3, problem.head_weight), most=float(problem.head[0]))
    assert exact.asks(0, CLIENT)
    assert not replace(exact, room=0.999 * exact.room).asks(0, CLIENT)
    assert replace(exact, room=0.0 * exact.room).asks(0, LAST)
    assert not replace(exact, most=0.999 * exact.most).asks(0, CLIENT)
    layout = Layout(0, (Stage(1, 0, 4),), CLIENT)
    held = replace(problem, room=np.array([problem.head_weight, problem.weight.sum(), 0.0]), clients=(0, 1, 2))
    assert held.holds(layout)
    assert not replace(held, room=held.room * np.array([1.0, 0.999, 1.0])).holds(layout)
    assert not replace(held, room=held.room * np.array([0.999, 1.0, 1.0])).holds(layout)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_hops_that_are_sums_of_their_ends_cost_a_stage_the_same_wherever_it_stands(count):
    problem = drawn(1, count, 4, route="ring", outputs=(CLIENT,), separate=True)
    visit = _separate(problem)
    assert visit.shape == (count, count)
    for a, b in itertools.permutations(range(count), 2):  # there and back, whoever is visited
        assert visit[a, b] + visit[b, a] == pytest.approx(problem.hidden[a, b] + problem.hidden[b, a])


def test_members_that_could_change_places_are_twins():
    problem = drawn(1, 3, 4, route="hub", outputs=(CLIENT,))
    assert _twins(problem) == [-1, -1, -1]
    same = {name: np.repeat(getattr(problem, name)[:1], 3, axis=0) for name in ("layer", "head", "host", "room")}
    apart = 1.0 - np.eye(3)
    alike = replace(problem, **same, hidden=apart, logits=apart, token=apart)
    assert _twins(alike) == [-1, 0, 1]
    assert _twins(replace(alike, room=np.array([1.0, 2.0, 1.0]))) == [-1, -1, 0]


def test_planning_a_pool_tells_how_far_it_is():
    ticks = []
    asked(*THREE, precision="q4_k_m", progress=lambda done, whole: ticks.append((done, whole)))
    assert ticks == [(done, ticks[-1][1]) for done in range(1, len(ticks) + 1)]
    assert ticks[-1][0] == ticks[-1][1] == len(asked(*THREE, precision="q4_k_m").layout.used) + 1


def test_of_members_that_are_alike_as_many_are_kept_as_may_be_needed():
    """4.5 layers of memory over rooms that hold two beside the widest layer: three, and one more that may ask."""
    problem = drawn(1, 6, 4, route="ring", outputs=(CLIENT,))
    problem = replace(
        problem, weight=np.ones(4), head_weight=0.5, room=np.full(6, 3.0), alike=(0, 0, 0, 0, 0, 1), clients=(5,)
    )
    assert _useful(problem) == [0, 1, 2, 3, 5]
    assert _useful(replace(problem, room=np.array([3.0, 3.0, 3.0, 3.0, 3.0, 0.0]))) == [0, 1, 2, 3, 5]
    assert _useful(replace(problem, room=np.zeros(6), clients=(1, 2))) == [1]
    assert _useful(replace(problem, most=9.0)) == [0, 1, 2, 3, 5]
