"""What the laws give inside of an answer, scene by scene: messages, rates, operations, ledgers, terms, tables of step times."""

from collections.abc import Mapping

import numpy as np
from scenes import as_text, or_refusal, scene

from roofplan import catalogue

MACHINES = (
    *(
        "h100-sxm:8",
        "h100-sxm:16",
        "h100-sxm:4x8@25gbe",
        "rtx-4090:4",
        "rtx-4090:8x1@10gbe",
        "mi300x:8",
        "tpu-v6e:16",
        "gb200-nvl72",
    ),
    *(
        "gb200-nvl72:144",
        "a100-pcie-80:4",
        "l40s:2x8@100gbe",
        "apple-m3-ultra:1",
        "gaudi3:8",
        "ascend-910b:16",
        "mi250x:8",
        "strix-halo:1",
    ),
    *(
        "v100-sxm2-32:16",
        "trainium2:32",
        "arc-b580:2",
        "rtx-5090:2",
        "a10g:4",
        "h20:16",
        "b200:64@ib-ndr",
        "raspberry-pi-5:2x1@1gbe",
    ),
)
ENGINES = ("vllm-0.33", "sglang-0.5.23", "tensorrt-llm-1.2", "llama.cpp-b11200", "hf-transformers-4.57", "vllm-0.6")
MODELS = (
    *(
        "llama-3.1-8b",
        "llama-3.1-70b-awq",
        "deepseek-v3",
        "deepseek-v3.2",
        "gpt-oss-120b",
        "qwen3-30b-a3b",
        "nemotron-h-8b",
    ),
    *(
        "jamba-v0.1",
        "gemma-3-27b",
        "whisper-large-v3",
        "qwen3-next-80b-a3b",
        "llama-4-scout",
        "rwkv-4-14b",
        "gemma-4-e4b",
    ),
    *(
        "minimax-m2.5",
        "falcon-40b",
        "llama-3.1-405b-fp8",
        "longcat-flash",
        "mimo-v2-flash",
        "recurrentgemma-9b",
        "deepseek-v4-flash",
    ),
)
DEGREES = (
    {},
    {"tp": 2},
    {"tp": 8},
    {"tp": 4, "pp": 2},
    {"tp": 8, "ep": 8, "attention_dp": 8},
    {"tp": 4, "ep": 8},
    {"pp": 4, "dp": 2},
)


def fit():

    return catalogue.shipped_fit()


def boxes():
    """Yield machines by their text."""
    from roofplan.catalogue.machines import machine

    for text in MACHINES:
        yield text, machine(text)[0]


def terms(term, depth=6):
    """Return a term and those below it, each with its value and its formula."""
    below = [terms(one, depth - 1) for one in term.parts] if depth else []
    sources = [getattr(one, "name", "") or type(one).__name__ for one in term.sources]
    return as_text(
        [
            term.name,
            term.value if isinstance(term.value, float) else np.asarray(term.value).tolist(),
            term.combine,
            term.formula(),
            sources,
            below,
        ]
    )


@scene
def messages():
    from roofplan.timing import hops
    from roofplan.timing import network as net
    from roofplan.timing.network import Ranks, message_time

    sizes = np.geomspace(1e2, 1e9, 8)
    for text, box in boxes():
        for name in ENGINES[:3]:
            found = net.network(box, catalogue.engine(name), fit())
            for ranks in (1, 2, 3, 4, 8, 16, 64):
                for stride in (1.0, 4.0):
                    if ranks * stride > box.count:
                        continue
                    group = Ranks(float(ranks), found, stride)
                    times = [message_time(kind, sizes, group) for kind in ("all_reduce", "gather", "ring", "exchange")]
                    times += [
                        message_time("exchange", sizes, group, copies=6.0, groups=(8, 4)),
                        net.message_start(group),
                    ]
                    times += [hops.hop_times(sizes, stride, found), hops.slowest_hop(sizes, stride, found)]
                    times += [hops.mean_hop(sizes, stride, float(ranks), found)] if ranks > 1 else []
                    yield f"{text} {name} {ranks} {stride}", [np.asarray(one).tolist() for one in times]
            both = (min(8.0, box.count), max(1.0, box.count // 8))
            ways = net.between_hosts(sizes, *both, 1.0, found) if box.hosts > 1 else {}
            yield f"{text} {name} between", {way: np.asarray(time).tolist() for way, (time, _) in ways.items()}
            ways = net.reduce_ways(sizes, float(min(8, box.count)), found)
            yield f"{text} {name} ways", {way: np.asarray(time).tolist() for way, (time, _) in ways.items()}


@scene
def attained():
    from dataclasses import fields

    from roofplan.hf.find import read_model
    from roofplan.serving.space import choose_engine
    from roofplan.timing.power import over_household_circuit, power_limits, wall_power
    from roofplan.timing.rates import rates

    for text, box in boxes():
        for name in (*ENGINES, "any"):
            engine = (
                choose_engine(None, box, read_model("llama-3.1-8b"), "checkpoint")
                if name == "any"
                else catalogue.engine(name)
            )
            found = None if engine is None else or_refusal(rates, box, engine, fit())
            if found is None or isinstance(found, str):
                yield f"{text} {name}", found
                continue
            kept = {
                one.name: getattr(found, one.name)
                for one in fields(found)
                if one.name not in {"machine", "engine", "fit", "sources"}
            }
            yield (
                f"{text} {name}",
                {
                    key: value
                    for key, value in kept.items()
                    if isinstance(value, float | int | str | bool | Mapping | tuple)
                },
            )
        yield f"{text} power", or_refusal(power_limits, box, fit())
        for busy in (0.0, 0.3, 1.0):
            watts = or_refusal(wall_power, box, busy, fit())
            yield f"{text} watts {busy}", watts if watts is None or isinstance(watts, str) else terms(watts)
        yield f"{text} circuit", [over_household_circuit(box, watts) for watts in (500.0, 1440.0, 4000.0)]


@scene
def operations():
    from roofplan.hf.find import read_model
    from roofplan.operations import UNPADDED, draft_operations, head_operations, layer_operations, whole_model
    from roofplan.operations.table import Split, Step
    from roofplan.records.strategy import Strategy

    steps = (
        Step(sequences=16.0, context=1000.0),
        Step(new=2048.0, past=0.0, requests=2.0),
        Step(new=512.0, past=3000.0, requests=1.0, sequences=30.0, context=700.0, each=2.0),
        Step(sequences=3.0, context=9e4, others=0.5),
    )
    for name in MODELS:
        model = read_model(name)
        for degrees in DEGREES[:5]:
            split = Split.of(Strategy(**degrees))
            for number, step in enumerate(steps):
                tables = [
                    layer_operations(layer, step, split, model, 2.0, UNPADDED)
                    for layer in dict.fromkeys(model.decoder.layers)
                ]
                tables.append(head_operations(step, split, model))
                tables += (
                    [draft_operations(step, split, model, 2, 1.0, UNPADDED)]
                    if model.draft_parameters and step.decodes
                    else []
                )
                yield f"{name} {degrees} {number}", tables
        yield f"{name} whole", whole_model(model, steps[2])


@scene
def held_in_serving():
    from roofplan.catalogue.machines import machine
    from roofplan.hf.find import read_model
    from roofplan.records.strategy import Strategy
    from roofplan.records.workload import Workload
    from roofplan.serving.blocks import cache_blocks
    from roofplan.serving.defaults import batched_tokens
    from roofplan.serving.ledger import footprints, ledger

    for name in MODELS:
        model = read_model(name)
        for degrees in DEGREES:
            strategy = Strategy(**degrees)
            box = machine(f"h200-sxm:{max(8, strategy.tp * strategy.pp * strategy.dp)}")[0]
            for number, (engine, load, kv, seats) in enumerate(
                (
                    ("vllm-0.33", Workload(input=1000, output=200), 2.0, 0),
                    ("sglang-0.5.23", Workload(input=100, output=2000, context=20_000), 1.0, 64),
                    ("tensorrt-llm-1.2", Workload(input=8000, output=10, prefix_hit=0.5), 2.0, 0),
                    ("llama.cpp-b11200", Workload(input=500, output=500), 1.0625, 4),
                )
            ):
                feet, software = footprints(model, strategy, kv), catalogue.engine(engine)
                found = or_refusal(ledger, model, strategy, box, software, load, feet, seats=seats)
                yield f"{name} {degrees} {number}", (found, batched_tokens(software, box, load))
        for tensor, block, longest in ((1, 16, 4096), (4, 64, 100_000)):
            yield (
                f"{name} blocks {tensor}",
                or_refusal(
                    cache_blocks,
                    model,
                    3e10,
                    tensor=tensor,
                    cache_bytes=2.0,
                    block=block,
                    longest=longest,
                    batched=8192,
                ),
            )


@scene
def predicted_steady_states():
    from roofplan.catalogue.machines import machine
    from roofplan.hf.find import read_model
    from roofplan.records.strategy import Strategy
    from roofplan.records.workload import Workload
    from roofplan.serving.certainty import certainty
    from roofplan.serving.prediction import predict
    from roofplan.timing.rates import rates

    cases = (
        ("llama-3.1-8b", "h100-sxm:1", {}, "vllm-0.33", Workload(input=1000, output=200), 64.0),
        ("llama-3.1-70b", "h100-sxm:8", {"tp": 4, "pp": 2}, "vllm-0.33", Workload(input=6000, output=20), 40.0),
        (
            "deepseek-v3",
            "h200-sxm:16",
            {"tp": 8, "ep": 16, "dp": 2, "attention_dp": 8},
            "sglang-0.5.23",
            Workload(input=500, output=1500),
            256.0,
        ),
        ("gpt-oss-120b", "mi300x:2", {"tp": 2}, "vllm-0.33", Workload(input=3000, output=1, prefix_hit=0.4), 9.0),
        ("qwen3-30b-a3b", "rtx-4090:4", {"pp": 4}, "llama.cpp-b11200", Workload(input=300, output=300), 3.0),
        ("nemotron-h-8b", "a100-sxm-80:2", {"tp": 2}, "tensorrt-llm-1.2", Workload(input=2000, output=100), 30.0),
        ("llama-3.1-8b", "l40s:2", {"dp": 2}, "hf-transformers-4.57", Workload(input=200, output=50), 4.0),
        ("gemma-3-27b", "b200:2", {"tp": 2}, "vllm-0.6", Workload(input=9000, output=400), 12.0),
    )
    for number, (name, on, degrees, engine, load, users) in enumerate(cases):
        model, strategy, box = read_model(name), Strategy(**degrees), machine(on)[0]
        r = rates(box, catalogue.engine(engine), fit())
        for budget in (512.0, 8192.0):
            for running in (1.0, users):
                found = or_refusal(
                    predict, model, strategy, catalogue.engine(engine), load, r, running, kv_bytes=2.0, budget=budget
                )
                what = f"{number} {budget} {running}"
                if isinstance(found, str):
                    yield what, found
                    continue
                for part in ("tpot", "ttft", "cycle", "token", "decode", "prefill"):
                    term = getattr(found, part)
                    yield f"{what} {part}", None if term is None else terms(term)
                numbers = (
                    found.carrying,
                    found.input_share,
                    found.rate,
                    found.prefill_rate,
                    found.busy,
                    found.gap(0.5).value,
                    found.gap(0.99).value,
                )
                yield f"{what} numbers", [np.asarray(one).tolist() for one in numbers]
                for figure in sorted({one.name for one in fit().constants if one.law == "interval"}):
                    sure = or_refusal(certainty, figure, found.cycle, model, r, load="closed loop")
                    yield f"{what} {figure} sure", sure if isinstance(sure, str) else sure.of(0.02, "s")


@scene
def trained():
    from dataclasses import fields

    from roofplan.catalogue.machines import machine
    from roofplan.hf.find import read_model
    from roofplan.records.training import Adapter, Job, Layout
    from roofplan.training.ability import ability
    from roofplan.training.certainty import ALTERNATIVES, by_constants, memory_certainty, step_certainty
    from roofplan.training.ledger import fullest, host_peak, ledgers, micro_batches, needed
    from roofplan.training.step import step

    adam = catalogue.optimizers()
    full, first = {"sequence": 4096, "batch": 64}, min(adam)
    cases = (
        ("llama-3.1-8b", "h100-sxm:8", "torchtitan-0.2", {"dp": 8, "zero": 3, "recompute": "selective"}, {}),
        (
            "llama-3.1-70b",
            "h100-sxm:64",
            "megatron-core-0.16",
            {"tp": 8, "pp": 4, "dp": 2, "interleave": 2, "zero": 1, "recompute": "none"},
            {},
        ),
        (
            "mixtral-8x7b",
            "h100-sxm:64",
            "megatron-core-0.16",
            {"tp": 2, "pp": 2, "dp": 16, "ep": 8, "zero": 1, "imbalance": 1.2, "capacity": 1.25},
            {"precision": "fp8"},
        ),
        (
            "deepseek-v3",
            "h800-sxm:256",
            "megatron-core-0.16",
            {"pp": 16, "dp": 16, "ep": 16, "zero": 1, "recompute": "full", "recomputed": 0.5},
            {"batch": 512},
        ),
        (
            "llama-2-7b",
            "a100-sxm-80:8",
            "deepspeed-0.16",
            {"dp": 8, "zero": 3, "offload": "optimizer", "recompute": "full"},
            {},
        ),
        (
            "llama-2-7b",
            "rtx-4090:8",
            "deepspeed-0.16",
            {"dp": 8, "zero": 2, "offload": "optimizer", "recompute": "full"},
            {"precision": "fp16"},
        ),
        (
            "llama-3.1-8b",
            "h100-sxm:8",
            "megatron-core-0.16",
            {"cp": 4, "tp": 2, "recompute": "none"},
            {"sequence": 65536, "batch": 8},
        ),
        ("qwen3-30b-a3b", "mi300x:8", "megatron-core-0.16", {"dp": 8, "ep": 8, "zero": 1, "recompute": "full"}, {}),
        (
            "nemotron-h-8b",
            "h100-sxm:8",
            "megatron-core-0.16",
            {"tp": 2, "dp": 4, "zero": 1, "sequence_parallel": False},
            {},
        ),
        ("gemma-3-27b", "tpu-v5p:64", "maxtext-0.1", {"dp": 64, "zero": 3, "recompute": "full"}, {}),
        (
            "llama-3.1-8b",
            "rtx-4090:1",
            "transformers-4.57",
            {"recompute": "full"},
            {"adapter": Adapter(method="lora", rank=16), "batch": 4},
        ),
        (
            "llama-3.1-70b",
            "h100-sxm:32@ib-ndr",
            "torchtitan-0.2",
            {"dp": 32, "zero": 3, "shard": 8.0, "micro_batch": 2},
            {},
        ),
        (
            "gpt-oss-120b",
            "b200:64",
            "megatron-core-0.16",
            {"pp": 8, "dp": 8, "ep": 8, "schedule": "dualpipe"},
            {"precision": "mxfp8"},
        ),
        ("llama-2-7b", "h100-sxm:8", "megatron-core-0.16", {"pp": 8, "schedule": "zb-h1"}, {"batch": 32}),
        (
            "llama-2-7b",
            "h100-sxm:8",
            "megatron-core-0.16",
            {"pp": 4, "dp": 2, "schedule": "gpipe", "offload": "activations"},
            {"batch": 32},
        ),
    )
    for number, (name, on, software, degrees, more) in enumerate(cases):
        model, box, framework = read_model(name), machine(on)[0], catalogue.framework(software)
        a = ability(box, framework, fit())
        names = (one.name for one in fields(a) if isinstance(getattr(a, one.name), float | int | str | Mapping))
        yield f"{number} ability", {each: getattr(a, each) for each in names}
        for optimizer in (first, "adam-8bit"):
            job, layout = Job(**{"optimizer": adam[optimizer], **full, **more}), Layout(**degrees)
            found = or_refusal(step, model, job, layout, a)
            if isinstance(found, str):
                yield f"{number} step {optimizer}", found
                continue
            yield f"{number} step {optimizer}", {one.name: plain(getattr(found, one.name)) for one in fields(found)}
            books = ledgers(model, job, layout, framework, fit())
            yield f"{number} ledger {optimizer}", [[terms(one.allocated), float(one.reserved)] for one in books]
            yield (
                f"{number} peaks {optimizer}",
                (
                    fullest(books).stage,
                    host_peak(books),
                    needed(model, job, layout, framework),
                    micro_batches(job, layout),
                ),
            )
            for unstated in ((), tuple(ALTERNATIVES)):
                known = or_refusal(
                    step_certainty, model, job, layout, a, found, unstated, (("a doubt", 0.2),) if unstated else ()
                )
                yield (
                    f"{number} known {optimizer} {len(unstated)}",
                    known if isinstance(known, str) else (known.ends, known.sure.of(1.0, "s"), by_constants(found, a)),
                )
            yield (
                f"{number} memory {optimizer}",
                [one.of(6e10, "B") for one in memory_certainty(framework, box, model, job, fit())],
            )


def plain(value):
    """Return a member of a step as numbers, terms by their trees."""
    if type(value).__name__ == "Term":
        return terms(value)
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


@scene
def tables_of_steps():
    from roofplan.catalogue.machines import machine
    from roofplan.hf.find import read_model
    from roofplan.records.strategy import Strategy
    from roofplan.serving.surface import surface
    from roofplan.timing.rates import rates

    cases = (
        ("llama-2-7b", "a100-sxm-80:1", {}, "vllm-0.33", 0),
        ("llama-3.1-70b", "h100-sxm:8", {"tp": 4, "pp": 2}, "vllm-0.33", 0),
        ("deepseek-v3", "h200-sxm:8", {"tp": 8, "attention_dp": 8, "ep": 8}, "sglang-0.5.23", 1),
        ("nemotron-h-8b", "h100-sxm:2", {"tp": 2}, "vllm-0.33", 0),
        ("gpt-oss-20b", "rtx-4090:4", {"pp": 4}, "llama.cpp-b11200", 0),
    )
    for number, (name, on, degrees, engine, drafted) in enumerate(cases):
        r = rates(machine(on)[0], catalogue.engine(engine), fit())
        for seats, budget, longest in ((1, 512, 600), (2, 64, 5000), (48, 2048, 9000)):
            found = or_refusal(
                surface,
                read_model(name),
                Strategy(**degrees),
                r,
                kv_bytes=2.0,
                seats=seats,
                budget=budget,
                longest=longest,
                drafted=drafted,
            )
            if isinstance(found, str):
                yield f"{number} {seats}", found
            else:
                for what in found._fields:
                    value = getattr(found, what)
                    yield f"{number} {seats} {what}", value.tolist() if isinstance(value, np.ndarray) else value


@scene
def pools():
    from roofplan.hf.find import read_model
    from roofplan.inputs import PoolPlanInputs, PoolSimulateInputs
    from roofplan.operations.table import Step
    from roofplan.pool.costs import problem_of
    from roofplan.pool.plan import plan_pool
    from roofplan.pool.request import pool_request
    from roofplan.pool.search import best_layout, quick_layout
    from roofplan.pool.simulate import circumstances_of, pipelines_of, sessions_of, simulate_pool, works_of
    from roofplan.pool.surface import passes, pool_surface

    homes = (
        "3xrtx-3060@1gbe",
        "rtx-4090@wifi",
        "2xrtx-3060@100mbit:8ms",
        "4xrtx-4060-ti-16@500mbit/40mbit:15ms",
        "m2-max@1gbe",
    )
    cases = (
        ("llama-3-8b", homes[:1], {"precision": "q4_k_m"}),
        ("qwen3-32b", homes[1:], {"precision": "q4_k_m", "software": "petals"}),
        ("qwen3-30b-a3b", homes, {"precision": "q8_0", "software": "exo", "input": "3000"}),
        ("gpt-oss-20b", homes[2:4], {"software": "parallax", "best": "throughput", "context": "16k"}),
        ("llama-3-8b", ("4xraspberry-pi-5@1gbe",), {"precision": "q4_0", "software": "distributed-llama"}),
    )
    for number, (name, members, more) in enumerate(cases):
        request = pool_request(read_model(name), PoolPlanInputs(member=members, **more))
        plan = or_refusal(plan_pool, request, fit())
        if isinstance(plan, str):
            yield f"{number} plan", plan
            continue
        yield f"{number} plan", (plan.users, plan.layout, plan.metrics, plan.limits, plan.left)
        yield f"{number} views", plan.views
        problem = problem_of(request, fit(), users=plan.users)
        yield f"{number} problem", problem
        yield (
            f"{number} layouts",
            (or_refusal(best_layout, problem), or_refusal(quick_layout, problem), or_refusal(works_of, request, fit())),
        )
        for step in (Step(sequences=3.0, context=900.0), Step(new=400.0, past=100.0, requests=1.0)):
            yield f"{number} pass {step.new}", or_refusal(passes, request, fit(), plan.layout, step)
        given = PoolSimulateInputs(
            member=members,
            days="1",
            jobs="400",
            rate="40req/h",
            cheaters="lazy:20%",
            **{k: v for k, v in more.items() if k != "best"},
        )
        asked = circumstances_of(given)
        if request.software.shares_layers:
            continue
        yield f"{number} surface", pool_surface(request, fit(), plan.layout, seats=4, budget=256, longest=3000)
        yield f"{number} pipelines", or_refusal(pipelines_of, request, fit(), plan.users, asked)
        yield f"{number} sessions", sessions_of(request, given, asked)
        ticks = []
        found = or_refusal(simulate_pool, request, given, fit(), lambda *tick, into=ticks: into.append(tick))
        yield f"{number} ticks", (len(ticks), ticks[:3], ticks[-2:])
        yield (
            f"{number} simulated",
            found
            if isinstance(found, str)
            else (found.figures, found.served, found.shares, found.checks, found.audit, found.outcome),
        )
