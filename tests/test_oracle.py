"""More truth, opt in: instantiate transformers classes on torch's meta device and count."""

import json

import pytest
from conftest import golden_rows

from roofplan import hf
from roofplan.errors import RoofplanError

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


def types():
    """Return every causal and every vision-language model type of the installed transformers, once."""
    auto = pytest.importorskip("transformers.models.auto.modeling_auto")
    return list(
        dict.fromkeys([*auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES])
    )


def test_every_type_of_transformers_is_exact_or_refused():
    """Default configurations, built on the meta device: what is accepted counts to the unit, nothing crashes."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    auto = pytest.importorskip("transformers.models.auto.modeling_auto")
    wrong, exact, refused = {}, 0, 0
    for name in types():
        try:
            config = transformers.CONFIG_MAPPING[name]()
        except Exception:  # noqa: BLE001, S112 - a default that its own class does not accept tells nothing
            continue
        pictures = auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.get(name)
        stated = {"architectures": [pictures or auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[name]], "model_type": name}
        values = {**json.loads(json.dumps(config.to_dict(), default=str)), **stated}
        try:
            model = hf.from_dict(values)
        except RoofplanError:
            refused += 1
            continue
        if any("only the language model is counted" in said for said in model.warnings):
            continue  # and says so
        counted = model.total
        factory = transformers.AutoModelForImageTextToText if pictures else transformers.AutoModelForCausalLM
        try:
            with torch.device("meta"):
                module = (transformers.AutoModel if name in WHOLE else factory).from_config(config)
        except Exception:  # noqa: BLE001, S112 - nor does a default that cannot be built
            continue
        true = sum(p.numel() for p in dict.fromkeys(module.parameters()))
        true -= WITHOUT_WEIGHTS.get(name, lambda _: 0)(config)
        exact += counted == true
        wrong |= {} if counted == true else {name: (counted, true)}
    assert not wrong
    assert exact > 80
    assert refused > 50


WHOLE = {"bert", "roberta", "xlm-roberta", "whisper"}
"""Encoders, which are counted without the head of a language model."""

WITHOUT_WEIGHTS = {
    "longcat_flash": lambda c: c.zero_expert_num * 2 * c.expert_ffn_hidden_size * c.hidden_size * c.num_layers
}
"""What a class allocates that no checkpoint has: weights of LongCat's experts that return their input."""
