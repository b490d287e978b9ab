"""Rows as others wrote them, of the last blind test: what is made of each was looked over by hand and may not change unseen.

``python tests/test_unseen.py`` records it anew.
"""

import json
from pathlib import Path

import pytest

from roofplan.evidence.inference import case_of
from roofplan.evidence.rows import Skipped, read
from roofplan.evidence.training import training_case

FOLDER = Path(__file__).parent / "unseen"
RECORDED = FOLDER / "read_as.json"
SERVED = {row["id"]: row for row in read(FOLDER / "inference.csv", ("id", "engine_name"))}
TRAINED = {row["id"]: row for row in read(FOLDER / "training.csv", ("id", "framework"))}


def read_as(name):
    """Return what is made of a row, or why nothing is."""
    try:
        return (case_of(SERVED[name]) if name in SERVED else training_case(TRAINED[name])).read_as
    except Skipped as reason:
        return f"skipped: {str(reason).split(';')[0]}"


@pytest.mark.parametrize("name", [*SERVED, *TRAINED])
def test_rows_are_read_as_their_publishers_meant_them(name):
    assert read_as(name) == json.loads(RECORDED.read_text())[name]


if __name__ == "__main__":
    RECORDED.write_text(json.dumps({name: read_as(name) for name in (*SERVED, *TRAINED)}, indent=1) + "\n")
