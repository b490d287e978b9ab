"""What several tests share: paths, and configurations small enough to read."""

import csv
import json
import os
import sys
from pathlib import Path

import pytest

from roofplan import catalogue

csv.field_size_limit(10**9)
os.environ["ROOFPLAN_PROFILE"] = "none"  # whoever runs the tests may have runs of his own
GOLDEN = Path(__file__).parent / "golden"
FIT = catalogue.shipped_fit()
"""The constants that tests rest on, whatever profile is at hand."""


def golden_rows(name):
    """Return the rows of a golden CSV file."""
    with (GOLDEN / name).open(newline="") as file:
        return list(csv.DictReader(file))


LLAMA = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


@pytest.fixture
def llama():
    """Return a small Llama configuration."""
    return dict(LLAMA)


@pytest.fixture
def run(capsys):
    """Return a function that runs the command line and gives exit code, stdout and stderr."""
    from roofplan.cli import main

    def call(*words):
        with pytest.raises(SystemExit) as stop:
            main(list(words))
        out = capsys.readouterr()
        return stop.value.code, out.out, out.err

    return call


@pytest.fixture
def run_json(run):
    """Return a function that runs a command with --json and gives exit code and the one document."""

    def call(*words):
        code, out, _ = run(*words, "--json")
        return code, json.loads(out)

    return call


sys.path.insert(0, str(Path(__file__).parent))


def keeps_to(value, schema, root=None):
    """Assert that a document keeps to a JSON Schema."""
    root = root or schema
    if "$ref" in schema:
        return keeps_to(value, root["$defs"][schema["$ref"].rsplit("/", 1)[-1]], root)
    if "anyOf" in schema:
        errors = []
        for option in schema["anyOf"]:
            try:
                return keeps_to(value, option, root)
            except AssertionError as error:
                errors.append(error)
        raise errors[0]
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    if "type" in schema:
        assert isinstance(value, kinds[schema["type"]]), (value, schema["type"])
    if "const" in schema:
        assert value == schema["const"]
    if "enum" in schema:
        assert value in schema["enum"]
    for name in schema.get("required", []):
        assert name in value, name
    for name, inner in schema.get("properties", {}).items():
        if name in value:
            keeps_to(value[name], inner, root)
    if isinstance(value, list) and "items" in schema:
        for item in value:
            keeps_to(item, schema["items"], root)
    if isinstance(value, dict) and isinstance(schema.get("additionalProperties"), dict):
        for name, item in value.items():
            if name not in schema.get("properties", {}):
                keeps_to(item, schema["additionalProperties"], root)
    return None


@pytest.fixture
def conforms():
    """Return the check of a document against a schema."""
    return keeps_to


SERVED = {
    *("test_web.py", "test_agents.py", "test_measure.py", "test_stability.py", "test_simulate.py"),
    *("test_calibration.py", "test_pool_simulation.py", "test_any_command.py"),
}
"""Files whose tests start servers, or fit and simulate: `make test`, which everybody waits for, leaves them to `make slow`."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the tests of slow files."""
    for item in items:
        if item.path.name in SERVED and not any(
            item.get_closest_marker(mark) for mark in ("browser", "oracle", "loop", "prove")
        ):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.served)
