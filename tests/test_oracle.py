"""More truth, opt in: instantiate transformers classes on torch's meta device and count."""

import json

import pytest
from conftest import golden_rows

from roofplan import hf

pytestmark = pytest.mark.oracle
SMALL = [
    row
    for row in golden_rows("model_configs.csv")
    if int(row["params_total"]) < 40e9 and row["model_type"] not in {"clip", "siglip"}
]


@pytest.mark.parametrize("row", SMALL, ids=[row["name"] for row in SMALL])
def test_transformers_agrees(row):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    values = json.loads(row["config"])
    config = transformers.CONFIG_MAPPING[values["model_type"]].from_dict(values)
    with torch.device("meta"):
        for factory in (
            transformers.AutoModelForCausalLM,
            transformers.AutoModelForImageTextToText,
            transformers.AutoModel,
        ):
            try:
                module = factory.from_config(config)
                break
            except ValueError:
                continue
    assert sum(p.numel() for p in dict.fromkeys(module.parameters())) in {
        int(row["params_total"]),
        hf.from_dict(values).total,
    }
