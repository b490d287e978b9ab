"""Rows as others wrote them, of a blind test: what is made of each was looked over by hand and may not change unseen.

``python tests/test_read_as.py`` records it anew.
"""

import json
from pathlib import Path

import pytest

from roofplan import catalogue
from roofplan.evidence.inference import case_of
from roofplan.evidence.rows import Skipped
from roofplan.evidence.training import training_case

RECORDED = Path(__file__).parent / "replay" / "read_as.json"
NAMES = json.loads(RECORDED.read_text())
SERVED = {row["id"]: row for row in catalogue.inference_rows() if row["id"] in NAMES}
TRAINED = {row["id"]: row for row in catalogue.training_rows() if row["id"] in NAMES}


def read_as(name):
    """Return what is made of a row, or why nothing is."""
    try:
        return (case_of(SERVED[name]) if name in SERVED else training_case(TRAINED[name])).read_as
    except Skipped as reason:
        return f"skipped: {str(reason).split(';')[0]}"


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_read_as_their_publishers_meant_them(name):
    assert read_as(name) == NAMES[name]


if __name__ == "__main__":
    RECORDED.write_text(json.dumps({name: read_as(name) for name in NAMES}, indent=1) + "\n")
