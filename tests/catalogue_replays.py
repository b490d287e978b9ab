"""Machines, chips, money and launch lines, scene by scene, as the catalogue and a user's files describe them."""

import random
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from law_replays import boxes, fit, terms
from scenes import members, or_refusal, scene

from roofplan import catalogue

TEXTS = (
    *(
        "h100-sxm",
        "h100-sxm:1",
        "h100-sxm:12",
        "h100-sxm:24",
        "h100-sxm:2x8",
        "h100-sxm:0",
        "h100-sxm:2x0",
        "h100-sxm:x",
        "h100-sxm:9999999",
    ),
    *(
        "h100-sxm:8@ib-ndr",
        "h100-sxm:16@ib-ndr",
        "h100-sxm:4x4@roce-400",
        "h100-sxm:16@nosuch",
        "h100-sxm:16@",
        "dgx-h100:2",
        "dgx-h100",
        "dgx-h100:2x8",
    ),
    *(
        "gb200-nvl72",
        "gb200-nvl72:36",
        "gb200-nvl72:100",
        "gb200-nvl72:2",
        "gb200:4",
        "gb200:72",
        "gb200:90",
        "gb300:144",
        "gh200-quad:2",
        "gh200-quad:2x8",
    ),
    *(
        "tpu-v5p:1",
        "tpu-v5p:64",
        "tpu-v5p:6144",
        "tpu-v6e:256",
        "tpu-v6e:300",
        "tpu-v4:8192",
        "trainium2:64",
        "trainium2:65",
        "mi250x:4",
        "mi250x-4:2",
    ),
    *(
        "rtx-4090:4x8@25gbe",
        "rtx-4090:8x1@10gbe",
        "rtx-4090:3",
        "apple-m3-ultra:1",
        "apple-m3-ultra:4",
        "gaudi3:8",
        "gaudi3:64",
        "cs-3:1",
        "h100:1",
        "nosuch:2",
        "",
        ":8",
    ),
    *(
        "l40s:8",
        "l40s:10",
        "a10g:4",
        "raspberry-pi-5:4@1gbe",
        "h100-nvl:2",
        "h20:16",
        "b200:72",
        "ascend-910b:64",
        "v100-sxm2-32:6",
    ),
)


@scene
def built():
    """Machines as they are written, enlarged, and with other ports."""
    from roofplan.catalogue.machines import box_size, fewer_ports, machine, resized, sizes, tapered, with_all_ports

    def parts(one):
        link = (one.scale_up, one.host_link, one.network)
        return (
            one.text,
            one.device.id,
            one.hosts,
            one.per_host,
            one.count,
            [each and (each.id, each.bandwidth) for each in link],
            members(one),
        )

    for text in TEXTS:
        found = or_refusal(machine, text)
        yield text, found if isinstance(found, str) else [parts(one) for one in found]
        if isinstance(found, str):
            continue
        one = found[0]
        for count in (1, 2, 4, 8, 16, 72, 100, 1024):
            other = or_refusal(resized, one, count)
            yield f"{text} to {count}", other if other is None or isinstance(other, str) else parts(other)
        whole = with_all_ports(one)
        yield f"{text} ports", None if whole is None else (parts(whole), fewer_ports(one, whole, "a step", 0.2))
        pods = or_refusal(tapered, one, 32.0, 4.0)
        yield f"{text} tapered", pods if isinstance(pods, str) else parts(pods)
    for name in catalogue.ids("accelerators"):
        device = catalogue.accelerator(name)
        yield f"sizes {name}", (box_size(device), sizes(device)[:12])


CHIP = """
id = "mine"
name = "My card"
vendor = "Mine"
architecture = "One"
memory_capacity = "48 GiB"
memory_bandwidth = "1.2 TB/s"
power = "300 W"
link_bandwidth = "64 GB/s"
price = "2 USD/h"
bought = "4000 USD"
node = "n5"
die_area = "600 mm2"
[peak]
bf16 = "200 TFLOPS"
fp8 = "400 TFLOPS"
[attained]
bf16 = "150 TFLOPS"
memory_bandwidth = "1 TB/s"
launch = "2 us"
"""


@scene
def own_chips():
    """What a file says of a chip, and what is wrong with others."""
    from roofplan.catalogue.own_device import user_accelerator

    changes = (
        ("", ""),
        ('id = "mine"', 'id = "h100-sxm"'),
        ('id = "mine"', 'id = "a b"'),
        ("48 GiB", "48"),
        ("48 GiB", "-1 GiB"),
        ("1.2 TB/s", "0.5 TB/s"),
    )
    changes += (
        ('vendor = "Mine"', 'like = "rtx-4090"'),
        ('vendor = "Mine"', 'like = "nosuch"'),
        ("power", "powr"),
        ("[peak]", "[peek]"),
        ("bf16 =", "bf17 ="),
    )
    changes += (
        ('memory_capacity = "48 GiB"\n', ""),
        ('memory_bandwidth = "1.2 TB/s"\n', ""),
        ("150 TFLOPS", "900 TFLOPS"),
        ('launch = "2 us"', ""),
        ("n5", "n99"),
    )
    changes += (
        ('power = "300 W"', 'power = "300 W"\nkind = "cpu"'),
        ('power = "300 W"', 'peer_to_peer = "pcie"\nhost_link = "pcie5"'),
        ("=", ""),
    )
    changes += (
        ('power = "300 W"', 'scale_up = "nvlink4"\nscale_up_domain = 8'),
        ('die_area = "600 mm2"', "dies = 2\nunits = 144\nunits_sold = 132\nmemory_stacks = 6"),
    )
    with TemporaryDirectory() as place:
        path = Path(place) / "chip.toml"
        for number, (before, after) in enumerate(changes):
            path.write_text(CHIP.replace(before, after, 1) if before != "=" else CHIP.replace("=", ""))
            found = or_refusal(user_accelerator, path)
            yield (
                f"{number} {before}",
                (found if isinstance(found, str) else members(found)).replace(str(path), path.name),
            )


@scene
def paid():
    """Bills of chips, hours of machines, and prices of tokens."""
    from roofplan.money import chip, energy, history, listed, prices, uncertainty
    from roofplan.money.comparison import against, rents
    from roofplan.money.machine import hourly, own, per_petaflop_hour
    from roofplan.money.rent import quotes
    from roofplan.money.supply import fed

    for name in catalogue.ids("accelerators")[::4]:
        device = catalogue.accelerator(name)
        made = or_refusal(chip.chip_of, device)
        if isinstance(made, str):
            yield f"chip {name}", made
            continue
        bill = or_refusal(chip.bill, made, fit(), chip.price_of(device), 1e5)
        yield f"chip {name}", bill
        yield (
            f"dies {name}",
            [(chip.gross_dies(one), chip.rivals(one)) for one in made.dies] if hasattr(made, "dies") else made,
        )
        yield f"quotes {name}", [members(one) for one in quotes(name)]
    for text, box in boxes():
        owned = or_refusal(own, box, fit())
        if owned is None or isinstance(owned, str):
            yield f"own {text}", owned
        else:
            yield f"own {text}", (owned, per_petaflop_hour(owned), or_refusal(fed, owned), or_refusal(against, owned))
        for price in ("own", "contract", "2.5USD/h", "spot", "x"):
            cost = or_refusal(hourly, box, price, fit())
            yield f"hour {text} {price}", cost
        yield (
            f"rents {text}",
            (
                or_refusal(rents, box),
                or_refusal(energy.load_power, box, fit()),
                or_refusal(prices.quotation, box, "contract"),
            ),
        )
    yield "places", [or_refusal(energy.electricity, place) for place in ("DEU", "FRA", "USA", "WORLD", "nosuch")]
    yield "overhead", energy.site_overhead()
    yield "student", [uncertainty.student(freedom) for freedom in (1.0, 2.0, 2.5, 7.0, 30.0, 1e6)]
    yield (
        "routes",
        [or_refusal(listed.routes, name) for name in ("deepseek-v3", "llama-3.1-70b", "gpt-oss-120b", "opt-13b")],
    )
    yield "charged", [one.charged(hit) for one in listed.routes("deepseek-v3")[:9] for hit in (0.0, 0.3, 1.0)]
    yield (
        "trends",
        [
            or_refusal(history.fit_trend, history.milestones(), bits, kind)
            for bits in ("16", "8", "4", "32")
            for kind in ("best", "all", "launch")
        ],
    )


def some(every, count=150, seed=0):
    """Return some of all combinations, the same ones each time."""
    return random.Random(seed).sample(list(every), count)  # noqa: S311 - nothing secret


@scene
def launched():
    """Launch lines of plans that are pinned, for each framework and each engine."""
    from itertools import product

    from roofplan.api import plan_serving, plan_training
    from roofplan.exports import serving, training

    layouts = (
        "tp=2,pp=2,micro_batch=2,recompute=full",
        "zero=3,offload=optimizer",
        "ep=4,recompute=none",
        "tp=4,pp=2,interleave=2",
        "cp=2,recompute=selective",
        "pp=8",
    )
    layouts += (
        "tp=2,ep=2,pp=2",
        "zero=2,micro_batch=1",
        "offload=activations,recompute=none",
        "schedule=dualpipe,ep=8,pp=2",
        "zero=1,tp=8",
    )
    models = (
        ("llama-3.1-8b", ""),
        ("qwen3-30b-a3b", ""),
        ("llama-3.1-8b", "lora"),
        ("mixtral-8x7b", "capacity"),
        ("llama-2-7b", "qlora"),
    )
    for name, (model, how), pins in some(product(catalogue.ids("frameworks"), models, layouts), 60):
        more = {"method": how} if "lora" in how else {"capacity": "1.25"} if how else {}
        more |= {"precision": "fp8"} if "pp=2" in pins and not how else {}
        found = or_refusal(
            plan_training, model, ["h100-sxm:16@ib-ndr"], framework=name, strategy=pins, batch="64seq", **more
        )
        plan = None if isinstance(found, str) else found.plans[0]
        yield (
            f"{name} {model} {how} {pins}",
            found if plan is None else (training.launch_or_reason(plan), training.target_of(plan)),
        )
    degrees = ("tp=8", "tp=4,pp=2", "tp=8,ep=8,attention_dp=8", "tp=2,dp=4")
    asked = (
        {},
        {"kv_precision": "fp8"},
        {"prefix_hit": "30%", "context": "8k"},
        {"precision": "fp8"},
        {"draft": "1:0.8"},
        {"set": "max_num_seqs=7"},
    )
    questions = list(product(("llama-3.1-70b", "deepseek-v3"), degrees, asked))
    for name, model, pins, more in (
        (engine, *one) for engine in catalogue.ids("engines") for one in some(questions, 3, engine)
    ):
        found = or_refusal(plan_serving, model, ["h200-sxm:8"], engine=name, strategy=pins, **more)
        yield (
            f"{name} {model} {pins} {more}",
            found if isinstance(found, str) else or_refusal(serving.launch, found.plans[0]),
        )


LAYOUTS = {
    "tp": (1, 2, 8),
    "pp": (1, 2, 4, 8),
    "cp": (1, 2),
    "dp": (1, 4),
    "ep": (1, 2, 8),
    "micro_batch": (1, 2),
    "interleave": (1, 2, 3),
    "zero": (0, 1, 2, 3),
    "shard": (0.0, 2.0),
    "recompute": ("none", "selective", "full", "full", "core_attn+layernorm", "core_attn+mlp", "moe_act", "moe+mlp"),
    "recomputed": (1.0, 0.5, 0.3),
    "schedule": ("1f1b", "gpipe", "zb-h1", "dualpipe"),
    "offload": ("none", "optimizer", "weights", "activations"),
}
"""Values of a layout that the writers of launches are asked for, the first of each most often."""


def _jobs():
    from roofplan.records.training import Adapter

    kept = ("bf16", "bnb-nf4", "bnb-int8")
    adapters = (Adapter(method="lora"), *(Adapter(method="qlora", rank=16, stored=one) for one in kept))
    adapters += (
        Adapter(method="dora", targets=("q_proj", "k_proj", "v_proj", "o_proj")),
        Adapter(method="lora", targets=("gate_proj", "up_proj", "down_proj"), rank=64),
        Adapter(method="lora", targets=("gate_proj", "embed_tokens"), dropout=False),
    )
    return {
        "batch": (64, 9),
        "sequence": (4096, 300),
        "tokens": (None, 1e9, 1e9 + 1.0),
        "precision": ("bf16", "fp16", "fp8", "fp4", "fp32"),
        "recipe": ("", "mxfp8"),
        "gradient": (4.0, 2.0),
        "optimizer": list(catalogue.optimizers().values()),
        "adapter": (None, *adapters),
        "capacity": (None, 1.25),
    }


@scene
def written():
    """What every writer of launches makes of layouts and jobs of all kinds, a few steps away from a plan of the framework."""
    from itertools import product

    from roofplan.api import plan_training
    from roofplan.catalogue.machines import machine
    from roofplan.exports import training

    jobs = _jobs()
    models = ("llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v2-lite", "gemma-2-9b", "gpt-oss-20b", "opt-13b")
    machines = [machine(name)[0] for name in ("h100-sxm:1", "h100-sxm:8", "h100-sxm:4x8@ib-ndr")]
    for target, model in product(training.TARGETS, models):
        pick = random.Random(f"{target} {model}")  # noqa: S311 - nothing secret
        name = "transformers" if target == "fsdp" else target
        found = or_refusal(plan_training, model, ["h200-sxm:8"], framework=name, batch="64seq", top=1)
        if isinstance(found, str):
            yield f"{target} {model}", found
            continue

        def drawn(values, pick=pick):
            return {name: pick.choice(some) for name, some in values.items() if pick.random() < 0.2}

        lines = []
        for _ in range(200):
            plan = found.plans[0]
            plan = replace(plan, layout=replace(plan.layout, **drawn(LAYOUTS)), job=replace(plan.job, **drawn(jobs)))
            plan = replace(plan, machine=pick.choice((plan.machine, *machines)))
            lines.append(or_refusal(training.launch, plan, target))
        yield f"{target} {model}", lines


DEGREES = {
    "tp": (1, 2, 8),
    "pp": (1, 2),
    "dp": (1, 4),
    "ep": (1, 8),
    "attention_dp": (1, 8),
}
"""Degrees of a serving plan that its launch is written for."""


@scene
def started():
    """What each engine's launch makes of degrees, formats and lengths of all kinds, a few steps away from a plan of the engine."""
    from itertools import product

    from roofplan.api import plan_serving
    from roofplan.catalogue.machines import machine
    from roofplan.exports import serving

    machines = [machine(name)[0] for name in ("h100-sxm:1", "h100-sxm:8", "h100-sxm:4x8@ib-ndr", "epyc-9654:1")]
    engines = [name for name in catalogue.ids("engines") if catalogue.engine(name).name in serving.SHORT.values()]
    for engine, model in product(engines, ("llama-3.1-8b", "deepseek-v2-lite", "gemma-2-9b", "gpt-oss-20b")):
        pick = random.Random(f"{engine} {model}")  # noqa: S311 - nothing secret
        more = {"precision": "q4_k_m"} if engine.startswith("llama.cpp") else {}
        found = or_refusal(plan_serving, model, ["h200-sxm:8"], engine=engine, strategy="tp=1", context="4096", **more)
        if isinstance(found, str):
            yield f"{engine} {model}", found
            continue
        plan, lines = found.plans[0], []
        for _ in range(40):
            degrees = {name: pick.choice(some) for name, some in DEGREES.items() if pick.random() < 0.3}
            changes = {
                "users": pick.choice((1, 7, 300)),
                "seats": pick.choice((0, plan.seats, 5)),
                "kv_precision": pick.choice((plan.kv_precision, plan.kv_precision, "bf16", "fp8", "q8_0")),
                "precision": pick.choice((plan.precision, plan.precision, "bf16", "fp8", "bnb-nf4", "fp32", "q8_0")),
                "machine": pick.choice((plan.machine, *machines)),
                "named": pick.choice(("", "", "speed")),
                "model": replace(plan.model, id=pick.choice((model, model, "stdin", "somebody/else"))),
            }
            workload = replace(
                plan.workload, context=pick.choice((4096, 777, 131072)), drafted=pick.choice((0, 0, 1, 3))
            )
            other = replace(plan, **changes, strategy=replace(plan.strategy, **degrees), workload=workload)
            lines.append(or_refusal(serving.launch, other))
        yield f"{engine} {model}", lines


@scene
def explained():
    """Trees of explanations of a plan that is pinned."""
    from roofplan.api import plan_serving

    plan = plan_serving("deepseek-v3", ["h200-sxm:8"], strategy="tp=8", engine="sglang", concurrency=32).plans[0]
    yield "cycle", terms(plan.prediction.cycle, 9)
