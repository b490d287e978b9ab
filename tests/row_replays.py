"""What the readers of measured runs make of rows: kept as published, and with cells left blank or told otherwise.

``rows training PUBLISHER`` reads and predicts up to twelve runs of a publisher; ``rows training varied N`` reads some runs at random
whose cells other words, other numbers, or nothing replace. `replays` keeps their checksums.
"""

import functools
import random
from collections import defaultdict
from dataclasses import fields

from scenes import as_text

MOST = 12
"""Runs of a publisher that are kept."""
VARIED, EACH = 40, 12
"""Replays of varied rows of each kind, and the rows of each."""

KEPT = ("source_key", "id", "accel_norm", "engine_name", "framework")
"""Columns that are never blank: they decide what is read at all."""
MODEL = (
    "model_name",
    "layers",
    "hidden",
    "ffn_hidden",
    "heads",
    "kv_heads",
    "vocab",
    "moe",
    "dense_layers",
    "model_config",
)
SPLIT = (
    "count",
    "accelerators_total",
    "tp",
    "pp",
    "dp",
    "cp",
    "ep",
    "micro_batch",
    "global_batch_sequences",
    "seq_len",
)
"""Columns whose cells fit only each other: of these at most one changes."""
OTHERS = {
    "notes": ("in-flight batching OFF", "412 W avg GPU power", "prefix caching", "enforce eager"),
    "percentile": ("mean", "median", "p99", "p50 ITL", "99", "median request", "mean ITL"),
    "interconnect": ("8x200 Gb/s InfiniBand", "EFA", "100GbE", "Slingshot-11", "NVLink only", "RoCE 400", "PCIe"),
    "task": ("lora", "qlora", "pretraining", "full fine-tuning", "LoRA r=64"),
    "accelerators_total": ("1", "2", "6", "16", "48", "72", "144", "1000"),
    "count": ("1", "2", "6", "16", "72"),
    "engine_version": ("0.6.3", "0.11.0", "b4000", "1.0", "odd"),
}
"""What some columns may say that no published run says."""
FACTORS = ("0.5", "2", "4", "0", "-1", "1.5")


@functools.cache
def published(kind):
    """Return the published runs of a kind by publisher."""
    from roofplan import catalogue
    from roofplan.evidence.rows import told_apart

    found = defaultdict(list)
    for row in told_apart(catalogue.training_rows() if kind == "training" else catalogue.inference_rows()):
        found[row["source_key"]].append(row)
    return found


def questions():
    """Yield what is kept: each publisher's runs, then varied ones."""
    for kind in ("training", "inference"):
        yield from (f"rows {kind} {publisher}" for publisher in published(kind))
        yield from (f"rows {kind} varied {number}" for number in range(VARIED))


@functools.cache
def said(kind):
    """Return what published runs of a kind say in each column."""
    found = defaultdict(set)
    for row in (row for rows in published(kind).values() for row in rows):
        for name, cell in row.items():
            found[name] |= {cell}
    return {name: sorted(cells | set(OTHERS.get(name, ()))) for name, cells in found.items()}


def varied(kind, number):
    """Return some runs with a few cells blank, as others say them, or with another number; the same ones each time."""
    from roofplan.evidence.rows import against

    pick, cells = random.Random(f"{kind} {number}"), said(kind)  # noqa: S311 - nothing secret
    every = [row for rows in published(kind).values() for row in rows if not against(row)]
    for row in pick.sample(every, EACH):
        made = dict(row)
        free = sorted(made.keys() - set(KEPT + MODEL + SPLIT))
        made |= dict.fromkeys(pick.sample(free, 3), "")
        others = [one for one in MODEL + SPLIT if one in made]
        for name in (*pick.sample([*free, *KEPT[2:]], 3), *pick.sample(others, number % 2)):
            made[name] = pick.choice(cells.get(name) or [""])
        numbers = sorted(name for name, cell in made.items() if cell.replace(".", "", 1).isdigit())
        for name in pick.sample(numbers, min(number % 3 // 2, len(numbers))):
            made[name] = f"{float(made[name]) * float(pick.choice(FACTORS)):g}"
        yield made


def read(row, kind, fit):
    """Return what is read in a row and what is predicted for it, as text."""
    from roofplan.errors import RoofplanError
    from roofplan.evidence.inference import case_of
    from roofplan.evidence.predictions import inference_outcomes, training_outcomes
    from roofplan.evidence.rows import Skipped
    from roofplan.evidence.training import training_case

    try:
        case = (training_case if kind == "training" else case_of)(row)
        told = as_text({one.name: getattr(case, one.name) for one in fields(case) if one.name != "row"})
    except Skipped as reason:
        told = str(reason)
    except RoofplanError as error:
        told = f"{type(error).__name__} {error}"
    found = training_outcomes(row, fit) if kind == "training" else inference_outcomes(row, fit)
    return f"{told}\n{as_text(found)}"


def document(kind, publisher, number=""):
    """Return what is read and predicted, by row."""
    from roofplan import catalogue

    fit = catalogue.shipped_fit()
    if number:
        return {str(place): read(row, kind, fit) for place, row in enumerate(varied(kind, int(number)))}
    rows = published(kind)[publisher]
    return {row["id"]: read(row, kind, fit) for row in rows[:: -(-len(rows) // MOST)]}
