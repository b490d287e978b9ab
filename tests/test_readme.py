"""The README's table of accuracy is that of the page which is made from the predictions."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

FIGURES = {
    "training step": "training step, tokens/s of a device",
    "training memory": "training memory",
    "time per token, known batch": "decode, time per token of a known batch",
    "offline throughput": "offline throughput",
    "prompts alone": "prompts alone, tokens/s",
    "throughput under load": "throughput under load",
    "time per token under load": "time per token under load",
    "first token under load": "time to the first token under load",
}
"""Row of the README -> row of the page."""


def cells(page, name):
    """Return the cells of the first row of a page's tables that begins with a name."""
    row = re.search(rf"^\| {re.escape(name)} \|(.*)\|$", (ROOT / page).read_text(), re.MULTILINE)
    assert row is not None, name
    return [cell.strip() for cell in row[1].split("|")]


@pytest.mark.parametrize("name", FIGURES)
def test_the_table_of_accuracy_is_that_of_its_page(name):
    whole = cells("docs/accuracy.md", FIGURES[name])
    assert cells("README.md", name) == [whole[0], whole[1], whole[2], whole[6]]
