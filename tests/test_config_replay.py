"""Each configuration, and each with one of its keys left out, doubled or flipped: what it comes to, or that it is refused, may not move.

``python tests/test_config_replay.py`` records it anew.
"""

import json
import zlib
from pathlib import Path

import pytest
from conftest import golden_rows
from replays import plain

from roofplan import hf
from roofplan.errors import RoofplanError
from roofplan.records.strategy import Strategy
from roofplan.serving import footprint
from roofplan.workers import answers

FILE = Path(__file__).parent / "replay" / "configs.json"
ROWS = golden_rows("model_configs.csv")


def changed(config):
    """Yield the name of a change and the configuration with it, for each key here and in the parts of it."""
    for key, value in config.items():
        yield f"-{key}", {name: other for name, other in config.items() if name != key}
        if isinstance(value, dict):
            yield from ((f"{key}.{what}", {**config, key: inner}) for what, inner in changed(value))
        elif isinstance(value, bool):
            yield f"!{key}", {**config, key: not value}
        elif isinstance(value, int) and value > 0:
            yield f"2 x {key}", {**config, key: 2 * value}
            yield f"3 + {key}", {**config, key: 3 + value}


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
    return f"{counts} {held} {model.tied} {model.dtype} {len(model.warnings)}"


def answer(config):
    """Return what ``roofplan model`` says of a configuration: layers, FLOPs, caches, towers."""
    found = json.loads(answers.document("model", {"model": config, "context": "3000"})[1])
    found.pop("versions", None)
    return plain(json.dumps(found, indent=1))


def checksum(row):
    """Return the checksum of what a configuration comes to, and of all changes of it."""
    config = json.loads(row["config"])
    lines = [answer(config), *(f"{what}: {told(other)}" for what, other in changed(config))]
    return f"{zlib.crc32(chr(10).join(lines).encode()):08x}"


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_changed_configurations_come_to_the_same(row):
    assert checksum(row) == json.loads(FILE.read_text())[row["name"]], "python tests/test_config_replay.py records it"


if __name__ == "__main__":
    FILE.write_text(json.dumps({row["name"]: checksum(row) for row in ROWS}, indent=0, sort_keys=True) + "\n")
