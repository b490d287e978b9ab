"""SGLang's static reserve of memory, beside what its own arithmetic gives for the same server."""

import pytest

from roofplan import catalogue
from roofplan.catalogue.machines import machine
from roofplan.hf.find import read_model
from roofplan.records.strategy import Strategy
from roofplan.records.units import MIB
from roofplan.serving.reserve import reserve
from roofplan.serving.settings import with_settings

DENSE, LATENT, SIGHTED = "llama-3.1-8b", "deepseek-ai/DeepSeek-R1", "google/gemma-3-27b-it"
FLOOR = 10 * 1024


def kept(model, engine, card, drafted=0, count=8, **degrees):
    """Return the reserve of a server on `count` cards [MiB], and the memory of a card [MiB]."""
    box = machine(f"{card}:{count}")[0]
    room = box.device.room
    own = engine if not isinstance(engine, str) else catalogue.engine(engine)
    return reserve(read_model(model), Strategy(**degrees), box, own, room, drafted=drafted) / MIB, room / MIB


@pytest.mark.parametrize(
    ("engine", "card", "model", "drafted", "degrees", "expected"),
    [
        # 0.4.10: a table by the card's memory, 4 GiB for data-parallel attention, 2 GiB for drafts
        ("sglang-0.4", "h100-sxm", DENSE, 0, {"tp": 1}, (9.5 + 0.5) * 1024),
        ("sglang-0.4", "h100-sxm", DENSE, 0, {"tp": 4, "pp": 2}, (9.5 + 4) * 1024),
        ("sglang-0.4", "rtx-4090", DENSE, 0, {"tp": 2}, (2.8 + 0.2) * 1024),
        ("sglang-0.4", "h200-sxm", LATENT, 0, {"tp": 8, "attention_dp": 8}, (12 + 4 + 4) * 1024),
        ("sglang-0.4", "h200-sxm", LATENT, 1, {"tp": 8}, (12 + 4 + 2) * 1024),
        # 0.5.5: 512 + 1.5 a token of the chunk + 2 a sequence of the graphs + 128 a device; at least 10 GiB on large cards
        ("sglang-0.5", "rtx-4090", DENSE, 0, {"tp": 2}, 512 + 1.5 * 2048 + 2 * 24 + 256),
        ("sglang-0.5", "h100-sxm", DENSE, 0, {"tp": 1}, 512 + 1.5 * 8192 + 2 * 256 + 128),
        ("sglang-0.5", "h200-sxm", LATENT, 1, {"tp": 8}, 512 + 1.5 * 8192 + 2 * 512 + 1024 + 2048),
        ("sglang-0.5", "h200-sxm", LATENT, 0, {"tp": 8, "attention_dp": 4}, 512 + 12288 + 1024 + 1024 + 4.5 * 512 * 4),
        ("sglang-0.5", "l40s", LATENT, 0, {"tp": 8, "attention_dp": 2}, 512 + 6144 + 320 + 1024 + 3 * 160 * 2),
        # later: 8 for each captured size of prompts, 1.5 GiB instead where the cache is latent
        ("sglang-0.5.23", "h100-sxm", DENSE, 0, {"tp": 1}, 512 + 12288 + 512 + 128 + 8 * 58),
        ("sglang-0.5.23", "h100-sxm", DENSE, 0, {"tp": 1, "pp": 2}, 512 + 12288 + 512 + 256),
        ("sglang-0.5.23", "rtx-4090", DENSE, 0, {"tp": 1}, 512 + 6144 + 96 + 128 + 8 * 50),
        ("sglang-0.5.23", "h200-sxm", LATENT, 0, {"tp": 8}, 512 + 12288 + 1024 + 1024 + 1536),
        ("sglang-0.5.23", "mi300x", DENSE, 0, {"tp": 1}, 512 + 1.5 * 16384 + 1024 + 128),
    ],
)
def test_reserve_is_that_of_the_release(engine, card, model, drafted, degrees, expected):
    assert kept(model, engine, card, drafted, **degrees)[0] == pytest.approx(expected, abs=0.01)


def test_large_cards_keep_ten_gibibytes_at_least():
    small = with_settings(catalogue.engine("sglang-0.5"), {"batched_tokens": 2048})
    assert kept(DENSE, small, "h100-sxm", tp=1)[0] == pytest.approx(FLOOR)
    assert kept(DENSE, small, "l40s", tp=1)[0] < FLOOR
    assert kept(DENSE, small, "h100-sxm", tp=1, drafted=2)[0] == pytest.approx(FLOOR + 2048)  # drafts come on top


def test_pictures_take_part_of_the_share():
    """Gemma 3: 27 layers of 1,152, against 24 of 1,024 of the reference tower."""
    mine, room = kept(SIGHTED, "sglang-0.5", "h100-sxm", tp=1)
    text = 512 + 1.5 * 8192 + 2 * 256 + 128
    size = 27 * 1152**2 / (24 * 1024**2)
    assert mine == pytest.approx(room - (room - text) * 0.95 * (1 - 0.1 * (size - 1)))


@pytest.mark.parametrize(
    ("model", "factor"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", 0.95 * (1 - 0.1 * (1280**2 / 1024**2 - 1))),  # names its depth otherwise
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 0.95 * (1 - 0.1 * (34 * 1408**2 / (24 * 1024**2) - 1))),
        ("moonshotai/Kimi-K2.5", 0.95),  # names neither field so
        ("Qwen/Qwen2-VL-7B-Instruct", 0.95 * 0.8),  # its width is that of the language model: the least factor
    ],
)
def test_towers_are_read_as_the_engine_reads_them(model, factor):
    mine, room = kept(model, "sglang-0.5", "h100-sxm", tp=8)
    text = max(512 + 1.5 * 8192 + 2 * 512 + 1024, FLOOR)
    assert (room - mine) / (room - text) == pytest.approx(factor)


def test_a_stated_share_replaces_it():
    stated = with_settings(catalogue.engine("sglang-0.5"), {"memory_share": 0.8})
    mine, room = kept(SIGHTED, stated, "h100-sxm", tp=1)
    assert mine / room == pytest.approx(0.2)


@pytest.mark.parametrize(("chunk", "captured"), [(2048, 42), (4096, 50), (8192, 58), (16384, 74), (3, 0)])
def test_prompts_are_captured_up_to_the_chunk(chunk, captured):
    own = with_settings(catalogue.engine("sglang-0.5.23"), {"batched_tokens": chunk})
    expected = 512 + 1.5 * max(chunk, 2048) + 2 * 48 + 128 + 8 * captured
    assert kept(DENSE, own, "rtx-4090", tp=1)[0] == pytest.approx(expected)
