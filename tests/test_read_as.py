"""Rows as others wrote them, of blind tests: what is made of each was looked over by hand and may not change unseen.

Those of the last test, which nothing is fitted to, stand in `golden/blind_serving.csv` and `golden/blind_training.csv`.

``python tests/test_read_as.py`` records it anew.
"""

import csv
import json
from pathlib import Path

import pytest

from roofplan import catalogue
from roofplan.evidence.inference import case_of
from roofplan.evidence.rows import Skipped
from roofplan.evidence.training import training_case

RECORDED = Path(__file__).parent / "replay" / "read_as.json"
NAMES = json.loads(RECORDED.read_text())


def last(kind, columns):
    """Return the rows of the last blind test, with the columns of the catalogue's table."""
    with (Path(__file__).parent / "golden" / f"blind_{kind}.csv").open(newline="", encoding="utf-8") as file:
        return [dict.fromkeys(columns, "") | row for row in csv.DictReader(file)]


SERVED = {row["id"]: row for row in (*catalogue.inference_rows(), *last("serving", catalogue.inference_rows()[0]))}
TRAINED = {row["id"]: row for row in (*catalogue.training_rows(), *last("training", catalogue.training_rows()[0]))}


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
    names = [*NAMES, *(row["id"] for kind in ("serving", "training") for row in last(kind, ()))]
    RECORDED.write_text(json.dumps({name: read_as(name) for name in dict.fromkeys(names)}, indent=1) + "\n")
