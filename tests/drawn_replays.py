"""What the laws give for questions drawn at random, the same ones each time: combinations that nobody would think of."""

import random

import numpy as np
from law_replays import fit, plain, terms
from scenes import or_refusal, scene

from roofplan import catalogue

MACHINES = (
    *(
        "h100-sxm:1",
        "h100-sxm:4",
        "h100-sxm:8",
        "h100-sxm:16",
        "h200-sxm:8",
        "b200:8",
        "gb200-nvl72",
        "a100-sxm-80:2",
    ),
    *("h100-sxm:4x8@25gbe", "rtx-4090:2", "rtx-4090:8", "rtx-5090:1", "rtx-4090:4x1@10gbe", "l40s:4", "a10g:1", "t4:4"),
    *("mi300x:8", "mi300x:2", "mi250x:4", "mi355x:8", "gaudi3:8", "tpu-v6e:8", "tpu-v5p:16", "trainium2:16"),
    *("apple-m3-ultra:1", "apple-m4-max:1", "strix-halo:1", "ascend-910b:8", "h20:8", "v100-sxm2-32:8", "epyc-9654:1"),
)
CARDS = MACHINES[:-1]
"""Machines that train."""


def each(name, parts, count):
    """Return what keeps a function that answers one random question as scenes of so many answers each."""

    def kept(function):
        for part in range(parts):

            def found(part=part):
                pick = random.Random(part)  # noqa: S311 - nothing secret
                for number in range(count):
                    yield str(number), list(function(pick))

            found.__name__ = f"{name}_{part}"
            scene(found)
        return function

    return kept


def divisors(count):
    """Return the numbers that divide a count."""
    return [one for one in range(1, count + 1) if count % one == 0]


def decoders():
    """Return the ids of the catalogue's models that generate text."""
    return [name for name in drawable() if "whisper" not in name]


SETTLED = "2026-11-29"
"""Models described from this day on are not drawn, so that drawn questions stay the same as the catalogue grows."""


def drawable():
    """Return the ids of the models that questions are drawn from."""
    return [name for name in catalogue.ids("models") if catalogue.model_table(name)["seen"] < SETTLED]


def drawn_model(pick, names=None):
    """Return the id of a model, and the model."""
    from roofplan.hf.find import read_model

    name = pick.choice(names or decoders())
    return name, read_model(name)


def drawn_machine(pick, texts=MACHINES):
    """Return a machine's text, and the machine."""
    from roofplan.catalogue.machines import machine

    text = pick.choice(texts)
    return text, machine(text)[0]


def drawn_strategy(pick, model, count):
    """Return a division of a model over devices, whether engines take it or not."""
    from roofplan.records.strategy import Strategy

    tp = pick.choice(divisors(count))
    pp = pick.choice(divisors(count // tp)[:3])
    dp = count // tp // pp
    ep = pick.choice([1, tp, tp * dp]) if model.experts else 1
    return Strategy(tp=tp, pp=pp, dp=dp, ep=ep, attention_dp=pick.choice([1, 1, tp]) if ep > 1 else 1)


def drawn_load(pick):
    """Return lengths of requests, from one token to tens of thousands."""
    from roofplan.records.workload import Workload

    drafted = pick.choice([0, 0, 0, 1, 3])
    lengths = {"input": round(2 ** pick.uniform(3, 15)), "output": round(2 ** pick.uniform(0, 11))}
    return Workload(
        **lengths,
        context=sum(lengths.values()),
        prefix_hit=pick.choice([0.0, 0.0, 0.25, 0.9]),
        drafted=drafted,
        acceptance=0.7 if drafted else 0.0,
    )


def rates_of(model, box, engine):
    """Return the rates of a machine under an engine, or why products cannot be timed there."""
    from roofplan.serving.space import undescribed
    from roofplan.timing.rates import rates

    return undescribed(model, box) or or_refusal(rates, box, engine, fit())


@each("drawn_states", 8, 100)
def states(pick):
    """Yield the memory and the steady state of any model on any machine under any engine."""
    from roofplan.serving.ledger import footprints, ledger
    from roofplan.serving.prediction import predict
    from roofplan.serving.rules import legal

    (name, model), (on, box) = drawn_model(pick), drawn_machine(pick)
    engine = catalogue.engine(pick.choice(catalogue.ids("engines")))
    strategy, load, kv = drawn_strategy(pick, model, box.count), drawn_load(pick), pick.choice([2.0, 1.0])
    users, budget = float(round(2 ** pick.uniform(0, 9))), pick.choice([256.0, 2048.0, 8192.0, 16384.0])
    yield name, on, engine.id, strategy.label(), load, kv, users, budget
    yield or_refusal(legal, model, strategy, engine)
    r = rates_of(model, box, engine)
    if isinstance(r, str):
        yield r
        return
    feet = footprints(model, strategy, kv, draft=load.drafted > 0)
    yield or_refusal(ledger, model, strategy, box, engine, load, feet, seats=round(users))
    found = or_refusal(predict, model, strategy, engine, load, r, users, kv_bytes=kv, budget=budget)
    if isinstance(found, str):
        yield found
        return
    depth = pick.choice([1, 1, 1, 6])
    for term in (found.tpot, found.ttft, found.cycle, found.decode, found.prefill):
        yield None if term is None else terms(term, depth)
    rest = (found.carrying, found.input_share, found.rate, found.prefill_rate, found.busy)
    yield [np.asarray(one).tolist() for one in rest]


@each("drawn_searches", 8, 12)
def searches(pick):
    """Yield the plans of a request with limits, or what would give one."""
    from roofplan.errors import NoPlan
    from roofplan.exports.serving import launch
    from roofplan.records.workload import Constraints
    from roofplan.serving import OBJECTIVES, Request, search

    name, model = drawn_model(pick)
    boxes = [drawn_machine(pick) for _ in range(pick.choice([1, 1, 3]))]
    limits = {
        "tpot": pick.choice([0.01, 0.05, 0.2]),
        "ttft": pick.choice([0.05, 0.5, 5.0]),
        "tokens_per_second_per_user": pick.choice([10.0, 100.0]),
        "concurrency": pick.choice([1, 20, 300]),
        "rate": pick.choice([0.3, 4.0]),
        "power": pick.choice([700.0, 9000.0]),
        "budget": pick.choice([2.0, 30.0]),
        "devices": 4,
    }
    kept = {one: limits[one] for one in pick.sample(sorted(limits), pick.choice([0, 1, 1, 2, 3]))}
    asked = Request(
        model=model,
        machines=tuple(box for _, box in boxes),
        workload=drawn_load(pick),
        constraints=Constraints(**kept),
        engine=pick.choice([None, None, "vllm", "sglang", "llama.cpp", "any"]),
        precisions=(pick.choice(["checkpoint", "checkpoint", "fp8", "q4_k_m"]),),
        best=pick.choice(OBJECTIVES),
        utilisation=pick.choice([1.0, 0.4]),
    )
    yield name, [text for text, _ in boxes], kept, asked.engine, asked.precisions, asked.best
    try:
        found = or_refusal(search, asked, fit())
    except NoPlan as refusal:
        found = f"{refusal} {refusal.relax}"
    if isinstance(found, str):
        yield found
        return
    first = found.plans[0]
    yield [(one.id, one.values, one.pareto, one.tied, one.seats) for one in found.plans]
    yield first.metrics, first.causes, [one.within_interval for one in found.plans[:4]], first.cache_in_use
    yield or_refusal(launch, first)
    yield [(one.users, one.values) for one in found.ladder], found.warnings, found.tally.enumerated
    yield None if found.smaller is None else found.smaller.id


@each("drawn_tables", 6, 20)
def tables(pick):
    """Yield the tables of step times of a layout that its engine takes."""
    from roofplan.serving.rules import legal
    from roofplan.serving.surface import surface

    r, why = "", None
    while isinstance(r, str) or why:
        (name, model), (on, box) = drawn_model(pick), drawn_machine(pick)
        engine = catalogue.engine(pick.choice(catalogue.ids("engines")))
        strategy = drawn_strategy(pick, model, box.count)
        r, why = rates_of(model, box, engine), legal(model, strategy, engine)
    sizes = {
        "seats": pick.choice([1, 3, 20]),
        "budget": pick.choice([32, 200, 700]),
        "longest": pick.choice([300, 9000]),
    }
    more = {"kv_bytes": pick.choice([1.0, 2.0]), "drafted": pick.choice([0, 0, 2])}
    yield name, on, engine.id, strategy.label(), sizes, more
    found = or_refusal(surface, model, strategy, r, **more, **sizes)
    yield found if isinstance(found, str) else [np.asarray(one).tolist() for one in found]


@each("drawn_operations", 4, 80)
def operations(pick):
    """Yield the operations of a model's layers, head, encoders and draft."""
    from roofplan.operations import draft_operations, encoder_operations, head_operations, layer_operations
    from roofplan.operations.table import Split, Step

    name, model = drawn_model(pick, drawable())
    engine = catalogue.engine(pick.choice(catalogue.ids("engines")))
    strategy = drawn_strategy(pick, model, pick.choice([1, 2, 4, 8, 16]))
    decoding = {"sequences": float(pick.choice([1, 7, 300])), "context": round(10.0 ** pick.uniform(1, 5), 1)}
    prompts = {"new": float(pick.choice([1, 100, 8000])), "past": float(pick.choice([0, 5000])), "requests": 2.0}
    numbers = pick.choice([decoding, prompts, decoding | prompts])
    step = Step(each=pick.choice([1.0, 2.0]), others=pick.choice([1.0, 0.3]), **numbers)
    split, kv = Split.of(strategy), pick.choice([2.0, 1.0])
    yield name, engine.id, strategy.label(), step, kv
    for layer in dict.fromkeys(model.decoder.layers):
        yield layer_operations(layer, step, split, model, kv, engine.kernels)
    yield head_operations(step, split, model), encoder_operations(step, split, model, engine.kernels)
    if model.draft_parameters and step.decodes:
        yield draft_operations(step, split, model, 2, kv, engine.kernels)


def drawn_job(pick, model, batch):
    """Return a training job of one of some batches; one in five trains an adapter, where the model has what it updates."""
    from roofplan.records.training import Adapter, Job
    from roofplan.training.run import trained_parameters

    adapter = Adapter(
        method=pick.choice(["lora", "qlora", "dora"]),
        rank=pick.choice([8, 64]),
        targets=("q_proj", "v_proj", "up_proj"),
        stored=pick.choice(["bf16", "bnb-nf4"]),
        dropout=pick.random() < 0.5,
        scales=pick.random() < 0.3,
        fused=pick.random() < 0.3,
    )
    optimizers = catalogue.optimizers()
    return Job(
        sequence=round(2 ** pick.uniform(9, 15)),
        batch=pick.choice(batch),
        optimizer=optimizers[pick.choice(sorted(optimizers))],
        tokens=pick.choice([None, 1e9, 1e12]),
        precision=pick.choice(["bf16", "bf16", "fp8", "fp16"]),
        gradient=pick.choice([4.0, 2.0]),
        adapter=adapter if pick.random() < 0.2 and trained_parameters(model, adapter) else None,
    )


def drawn_layout(pick, model, count):
    """Return a division of a job over devices, whether frameworks take it or not."""
    from roofplan.records.training import MODULES, OFFLOADS, SCHEDULES, Layout

    tp = pick.choice(divisors(count))
    pp = pick.choice([one for one in divisors(count // tp)[:3] if one <= len(model.decoder.layers)])
    cp = pick.choice(divisors(count // tp // pp)[:2])
    dp = count // tp // pp // cp
    return Layout(
        tp=tp,
        pp=pp,
        cp=cp,
        dp=dp,
        ep=pick.choice([1, dp]) if model.experts else 1,
        micro_batch=pick.choice([1, 1, 2, 4]),
        zero=pick.choice([0, 1, 2, 3]),
        recompute=pick.choice(["none", "selective", "full", "+".join(pick.sample(MODULES, 3))]),
        recomputed=pick.choice([1.0, 0.5]),
        sequence_parallel=pick.random() < 0.7,
        schedule=pick.choice(SCHEDULES) if pp % 2 == 0 else SCHEDULES[0],
        offload=pick.choice([*OFFLOADS, *["none"] * 5]),
        imbalance=pick.choice([1.0, 1.3]),
    )


@each("drawn_training", 8, 70)
def training(pick):
    """Yield the step, memory, run, metrics and launches of a training layout."""
    from dataclasses import fields

    from roofplan.exports.training import TARGETS, launch
    from roofplan.hf.quantization import unquantised
    from roofplan.training.ability import ability
    from roofplan.training.certainty import ALTERNATIVES
    from roofplan.training.ledger import host_peak, ledgers
    from roofplan.training.plan import TrainingRequest, planned
    from roofplan.training.step import step

    (name, checkpoint), (on, box) = drawn_model(pick), drawn_machine(pick, CARDS)
    model = unquantised(checkpoint)
    framework, layout = (
        catalogue.framework(pick.choice(catalogue.ids("frameworks"))),
        drawn_layout(pick, model, box.count),
    )
    once = layout.dp * layout.micro_batch
    job = drawn_job(pick, model, [once, 2 * layout.pp * once, 8 * layout.pp * once])
    yield name, on, framework.id, layout, job
    a = or_refusal(ability, box, framework, fit())
    found = a if isinstance(a, str) else or_refusal(step, model, job, layout, a)
    yield found if isinstance(found, str) else {one.name: plain(getattr(found, one.name)) for one in fields(found)}
    books = or_refusal(ledgers, model, job, layout, framework, fit())
    if isinstance(found, str) or isinstance(books, str):
        yield books
        return
    yield [[terms(one.allocated), float(one.reserved)] for one in books], host_peak(books)
    unstated = tuple(pick.sample(sorted(ALTERNATIVES), 2))
    asked = TrainingRequest(model=model, machines=(box,), job=job, framework=framework, unstated=unstated)
    plan = or_refusal(planned, asked, box, layout, fit())
    if isinstance(plan, str):
        yield plan
        return
    yield plan.metrics, plan.run, plan.power and terms(plan.power), plan.label
    yield [or_refusal(launch, plan, target) for target in (None, *TARGETS)]


HOMES = {
    "cards": (
        "rtx-3060",
        "rtx-4090",
        "rtx-4060-ti-16",
        "m2-max",
        "rtx-3090",
        "raspberry-pi-5",
        "apple-m4-max",
        "rtx-5090",
    ),
    "links": ("1gbe", "wifi", "100mbit:8ms", "500mbit/40mbit:15ms", "10gbe", "20mbit:40ms"),
    "models": ("llama-3-8b", "qwen3-32b", "qwen3-30b-a3b", "gpt-oss-20b", "gemma-3-12b"),
}


def drawn_pool(pick, most, software):
    """Return a model's name, and the model, members and other inputs of a pool of it."""
    kinds = range(pick.randint(1, most))
    each = [(pick.choice((1, 2, 3)), pick.choice(HOMES["cards"]), pick.choice(HOMES["links"])) for _ in kinds]
    name, model = drawn_model(pick, HOMES["models"])
    more = {
        "member": tuple(f"{count}x{card}@{link}" for count, card, link in each),
        "input": pick.choice(["50", "2000"]),
    }
    more |= {} if "oss" in name else {"precision": pick.choice(["q4_k_m", "q8_0"])}
    used = pick.choice(software)
    return name, model, more | ({"software": used} if used else {})


@each("drawn_pools", 6, 8)
def pools(pick):
    """Yield the plan of a pool of home machines, and the times of two passes."""
    from roofplan.inputs import PoolPlanInputs
    from roofplan.operations.table import Step
    from roofplan.pool.plan import plan_pool
    from roofplan.pool.request import pool_request
    from roofplan.pool.surface import passes

    software = ("", "petals", "exo", "parallax", "distributed-llama", "prima.cpp")
    name, model, more = drawn_pool(pick, 3, software)
    more |= {"best": pick.choice(["latency", "throughput"])}
    yield name, more
    request = or_refusal(pool_request, model, PoolPlanInputs(**more))
    plan = request if isinstance(request, str) else or_refusal(plan_pool, request, fit())
    if isinstance(plan, str):
        yield plan
        return
    yield plan.users, plan.layout, plan.metrics, plan.limits, plan.left, plan.views
    for step in (Step(sequences=2.0, context=3000.0), Step(new=64.0, past=0.0, requests=1.0)):
        yield or_refusal(passes, request, fit(), plan.layout, step)


STAYS = {
    "rate": ("10req/h", "300req/h", "2000req/h"),
    "lengths": ("fixed", "uniform:0.5-1.5"),
    "session": ("20min", "3h", "12h"),
    "online": ("30%", "95%"),
    "pattern": ("evening",),
    "patience": ("1s", "600s"),
    "replicas": ("1", "2", "3"),
    "store": (True,),
    "check": ("replication", "audit:20%", "replication+audit:10%", "none"),
    "deposit": ("0", "50"),
    "withheld": ("0", "60"),
    "probation": ("0", "30"),
    "cheaters": (
        "lazy:30%",
        "lazy:10%:20%,patient:10%",
        "colluding:30%",
        "quantised:20%",
        "patient:20%:50%,colluding:10%",
    ),
    "false_alarms": ("0%", "5%"),
    "seed": ("3", "8"),
}


@each("drawn_stays", 8, 6)
def stays(pick):
    """Yield what becomes of the requests and members of a pool in half a day."""
    from roofplan.inputs import PoolSimulateInputs
    from roofplan.pool.request import pool_request
    from roofplan.pool.simulate import simulate_pool

    name, model, more = drawn_pool(pick, 4, ("", "petals", "exo", "parallax"))
    given = PoolSimulateInputs(**more, **drawn_flags(pick, STAYS, 7) | {"days": "0.5", "jobs": "1500"})
    yield name, given
    request = or_refusal(pool_request, model, given)
    found = request if isinstance(request, str) else or_refusal(simulate_pool, request, given, fit())
    yield found if isinstance(found, str) else (found.figures, found.served, found.shares, found.checks, found.outcome)
    yield None if isinstance(found, str) else found.audit


OWNING = {
    "card": ("1600USD", "25000USD"),
    "server": ("20000USD",),
    "networking": ("7200USD",),
    "years": ("1", "2.5", "5"),
    "interest": ("3%", "20%"),
    "residual": ("5%", "30%"),
    "electricity": ("0.1USD/kWh", "0.35USD/kWh"),
    "pue": ("1.1", "1.6"),
    "hosting": ("375USD/month",),
    "staff": ("2USD/h",),
    "place": ("DEU", "CHN", "USA"),
}
CHIP = {
    "dies": ("2", "4"),
    "hbm": ("80GiB", "192GiB"),
    "sold": ("132", "72"),
    "price": ("30000USD", "1600USD"),
    "volume": ("10k", "1M"),
}
MONTH = {
    "tokens": ("1M/month", "300M/month", "40B/month"),
    "price": ("rent", "own", "contract", "2.50USD/h", "rent,own"),
    "peak": ("1.3", "2"),
    "autoscale": (True,),
    "api_price": ("0.15,0.60", "3,15"),
    "utilisation": ("20%", "75%"),
    "precision": ("fp8", "q4_k_m"),
}


def drawn_flags(pick, flags, most):
    """Return values of a few flags."""
    names = pick.sample(sorted(flags), pick.randrange(min(most, len(flags)) + 1))
    return {name: pick.choice(flags[name]) for name in names}


PRICED = (
    "h100-sxm:8",
    "h100-sxm:4",
    "h200-sxm:8",
    "rtx-4090:2",
    "rtx-4090:8",
    "rtx-5090:1",
    "a100-sxm-80:2",
    "b200:8",
    "mi300x:8",
)


@each("drawn_costs", 6, 30)
def costs(pick):
    """Yield what chips, machines and tokens cost, as a document and as a screen."""
    from roofplan import ask

    kind = pick.choice(
        ("cost chip", "cost machine", "cost machine", "cost tokens", "cost tokens", "cost rent", "cost history")
    )
    if kind == "cost chip":
        given = {"node": pick.choice(("n7", "n5", "4n", "n3")), "area": pick.choice(("100mm2", "350mm2", "814mm2"))}
        given |= drawn_flags(pick, {one: CHIP[one] for one in ("dies", "price", "volume")}, 3)
        given |= pick.choice(({}, {"units": "144", "sold": pick.choice(CHIP["sold"])}))
        given |= pick.choice(
            ({}, {"hbm": pick.choice(CHIP["hbm"]), "memory": "HBM3"}, {"gddr": "24GiB", "memory": "GDDR6X"})
        )
        given = given if pick.random() < 0.7 else {"device": pick.choice(catalogue.ids("accelerators"))}
    elif kind == "cost machine":
        given = drawn_flags(pick, OWNING, 5) | {"on": pick.sample(PRICED, pick.choice((1, 1, 2)))}
        given |= drawn_flags(pick, {"power": ("300W", "5kW"), "rack": ("20kW", "130kW")}, 1)
    elif kind == "cost tokens":
        name = pick.choice(("llama-3.1-8b", "gpt-oss-120b", "qwen3-32b", "gemma-3-27b"))
        given = {
            "model": name,
            "on": [pick.choice(PRICED)],
            **drawn_flags(pick, MONTH, 4),
            **drawn_flags(pick, OWNING, 2),
        }
        given |= pick.choice(({}, {"training_cost": "5.6MUSD", "lifetime_tokens": "100T"}))
    elif kind == "cost rent":
        given = {"device": pick.choice(PRICED).split(":")[0]}
    else:
        devices = (
            "v100-sxm2-32",
            "a100-sxm-80",
            "h100-sxm",
            "b200",
            "p100-pcie-16",
            "rtx-3090",
            "rtx-4090",
            "rtx-5090",
            "titan-v",
        )
        given = dict(zip(("old", "new"), pick.sample(devices, 2), strict=True))
    yield kind, given
    found = or_refusal(lambda: ask(kind, **given).to_dict())
    yield {name: one for name, one in found.items() if name != "versions"} if isinstance(found, dict) else found
    yield or_refusal(lambda: repr(ask(kind, **given)))
