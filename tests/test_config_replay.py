"""Each configuration, and each with one of its keys left out, doubled or flipped: what it comes to, or that it is refused, may not move.

``python tests/test_config_replay.py`` records it anew.
"""

import itertools
import json
import random
import re
import zlib
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from conftest import LLAMA, golden_rows
from replays import plain

from roofplan import catalogue, hf
from roofplan.errors import RoofplanError
from roofplan.hf import families
from roofplan.records.strategy import Strategy
from roofplan.serving import footprint
from roofplan.workers import answers

FILE = Path(__file__).parent / "replay" / "configs.json"
NEW_KEYS = 4
"""Keys, or flags the other way round, that no configuration of the same family before it has: from so many on a shipped one joins."""


MOST = 150
"""Changes of a configuration that are tried, at random where there are more."""


def keys(config, place=""):
    """Return the names of all keys of a configuration, and its flags with their values."""
    found = {f"{place}{name}={value}" if isinstance(value, bool) else place + name for name, value in config.items()}
    return found.union(*(keys(value, f"{name}.") for name, value in config.items() if isinstance(value, dict)))


def configurations():
    """Return published configurations by name, shipped ones that say something else, and one of each other family."""
    found = {row["name"]: json.loads(row["config"]) for row in golden_rows("model_configs.csv")}
    said = defaultdict(set)
    for config in found.values():
        said[config.get("model_type")] |= keys(config)
    for name in catalogue.ids("models"):
        config = json.loads(catalogue.model_table(name)["config"])
        if len(keys(config) - said[config["model_type"]]) >= NEW_KEYS:
            found[name] = config
            said[config["model_type"]] |= keys(config)
    known = {one.get("model_type") for config in found.values() for one in (config, config.get("text_config", {}))}
    llama = {**LLAMA, "n_routed_experts": 8, "moe_intermediate_size": 512, "top_k": 2}
    return found | {name: {**llama, "model_type": name} for name in families.FAMILIES if name not in known}


CONFIGURATIONS = configurations()


def changed(config):
    """Yield the name of a change and what makes the configuration with it, for each key here and in the parts of it."""
    for key, value in config.items():
        yield f"-{key}", partial(left_out, config, key)
        if isinstance(value, dict):
            yield from ((f"{key}.{what}", partial(inside, config, key, make)) for what, make in changed(value))
        elif isinstance(value, bool):
            yield f"!{key}", partial(dict, config, **{key: not value})
        elif isinstance(value, int) and value > 0:
            yield f"2 x {key}", partial(dict, config, **{key: 2 * value})
            yield f"3 + {key}", partial(dict, config, **{key: 3 + value})


def left_out(config, key):
    return {name: other for name, other in config.items() if name != key}


def inside(config, key, make):
    return {**config, key: make()}


SETS = re.compile(r"frozenset\(\{([^{}]*)\}\)")


def in_order(found):
    """Return the text of a set, whose members come in an order of the process."""
    return ", ".join(sorted(found[1].split(", ")))


def spelled(model):
    """Return the text of a model in which equal layers are told once."""
    kinds, order = {}, []
    for place, stack in enumerate(model.stacks):
        order += [(place, kinds.setdefault(layer, len(kinds))) for layer in stack.layers]
    runs = [(*one, len(list(same))) for one, same in itertools.groupby(order)]
    bare = replace(model, stacks=tuple(replace(stack, layers=()) for stack in model.stacks))
    return f"{bare!r} {list(kinds)!r} {runs}"


def told(config):
    """Return what a configuration comes to: parameters, cache and layers, or the field that is refused."""
    try:
        model = hf.from_dict(config, "changed")
    except RoofplanError as error:
        return f"{error.code} {error.argument}"
    counts = (model.total, model.active, model.embedding, model.head, model.draft_parameters, model.max_positions)
    try:
        foot = footprint(model, Strategy(tp=2), 2.0)
        held = [round(foot.request(float(tokens)), 3) for tokens in (100, 5000, 100_000)] if model.generates else []
    except RoofplanError as error:
        held = [error.code]
    every = zlib.crc32(SETS.sub(in_order, plain(spelled(model))).encode())
    return f"{counts} {held} {model.tied} {model.dtype} {len(model.warnings)} {every:08x}"


def answer(config):
    """Return what ``roofplan model`` says of a configuration: layers, FLOPs, caches, towers."""
    found = json.loads(answers.document("model", {"model": config, "context": "3000"})[1])
    found.pop("versions", None)
    return plain(json.dumps(found, indent=1))


def checksum(config):
    """Return the checksum of what a configuration comes to, and of all changes of it."""
    changes = list(changed(config))
    kept = changes if len(changes) <= MOST else random.Random(0).sample(changes, MOST)  # noqa: S311 - nothing secret
    lines = [answer(config), *(f"{what}: {told(make())}" for what, make in kept)]
    return f"{zlib.crc32(chr(10).join(lines).encode()):08x}"


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=pytest.mark.slow if place % 60 else ()) for place, one in enumerate(CONFIGURATIONS)],
)
def test_changed_configurations_come_to_the_same(name):
    recorded = json.loads(FILE.read_text())[name]
    assert checksum(CONFIGURATIONS[name]) == recorded, "python tests/test_config_replay.py records it"


if __name__ == "__main__":
    made = {name: checksum(config) for name, config in CONFIGURATIONS.items()}
    FILE.write_text(json.dumps(made, indent=0, sort_keys=True) + "\n")
