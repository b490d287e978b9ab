"""Pools: the plan of 32 members on a hub, and simulated member-days a second."""

import time

from roofplan import api
from roofplan.inputs import PoolPlanInputs, PoolSimulateInputs

KINDS = ("rtx-4090", "rtx-3090", "rtx-4060-ti-16", "rtx-3060", "rtx-5060-ti-16", "rtx-4070", "rtx-3080", "rtx-5090")


def test_a_plan_of_32_members():
    members = tuple(
        f"{kind}@{rate}mbit:{rtt}ms" for kind in KINDS for rate, rtt in ((100, 4), (300, 9), (500, 6), (1000, 3))
    )
    asked = PoolPlanInputs(model="llama-3.1-70b", precision="q4_k_m", member=members)
    start = time.process_time()
    plan = api.plan_pool(asked)
    seconds = time.process_time() - start
    print(
        f"\n32 members on a hub, {plan.problem.layers} layers: {seconds:.2f} s with what each member adds, gap {plan.found.gap:.1%}"
    )
    assert plan.found.gap == 0.0


def test_simulated_member_days():
    """A thousand members for thirty days, ten requests an hour over four pipelines."""
    members = tuple(f"250x{kind}@1gbit:8ms" for kind in ("rtx-3060", "rtx-4060-ti-16", "rtx-3090", "rtx-4090"))
    asked = PoolSimulateInputs(
        model="qwen3-32b", precision="q4_k_m", member=members, rate="10req/h", replicas="4", jobs="1000"
    )
    rates = []
    for _ in range(3):
        found = api.simulate_pool(asked)
        rates.append(found.member_days / found.cpu)
    print(f"\n{max(rates):,.0f} member-days a second at 10 requests an hour, of {len(found.requests):,} requests")
    assert found.served > 0.99
