"""Tables of measured runs: columns, quality flags, and reasons why a row is not scored."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roofplan import hf
from roofplan.errors import InputError, nearest
from roofplan.evidence.cells import plain_row

Row = Mapping[str, str]

HARMLESS = frozenset({"len_distribution", "input_len_distribution", "throughput_derived", "best_of_n", "median_of_n"})
"""Quality flags of rows that are still scored: lengths are means, or a figure is one of several repeats."""

STARVED = "kv_starved"
"""Flag of rows whose throughput is limited by KV cache capacity: scored separately, as a test of the predicted capacity."""

SHORT_OF_CACHE = "short of cache"
"""Regime under which such rows are shown."""


def unstarved(row: Row) -> Row:
    """Return a row without the flag `STARVED`."""
    return {**row, "quality_flags": row.get("quality_flags", "").replace(STARVED, "")}


@dataclass(frozen=True, slots=True)
class Assumed:
    """What a row omits and a rule filled in.

    Parameters
    ----------
    texts : descriptions of what was filled in, by what they are about.
    unstated : inputs among them whose other plausible values widen the interval.
    doubts : readings of the row that may be wrong, each with the relative error that it may cause [1].
    """

    texts: dict[str, str] = field(default_factory=dict)
    unstated: list[str] = field(default_factory=list)
    doubts: list[tuple[str, float]] = field(default_factory=list)

    def add(self, text: str, unstated: str = "", *, about: str = "") -> None:
        """Add a description, and the name of the input where its other plausible values are known.

        It takes the place of an earlier one that is about the same.
        """
        self.texts.pop(about, None)
        self.texts[about or text] = text
        if unstated:
            self.unstated.append(unstated)


class Skipped(Exception):
    """A row cannot be predicted; the message gives the reason."""


def flags(row: Row) -> frozenset[str]:
    """Return the quality flags of a row."""
    return frozenset(filter(None, re.split(r"[;,\s]+", row.get("quality_flags", "") or row.get("quality", ""))))


def against(row: Row) -> str:
    """Return the flags that exclude a row from the score, empty where there are none."""
    return " ".join(sorted(flags(row) - HARMLESS))


def number(row: Row, name: str) -> float | None:
    """Return a column as a number, None where it is blank or not a number."""
    try:
        return float(row.get(name) or "")
    except ValueError:
        return None


RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("count", "accelerators_total", "devices_per_node"), (1, 1e6)),
    **dict.fromkeys(("tp", "pp", "dp", "cp", "attention_dp", "interleave", "grad_accum"), (1, 1e6)),
    "ep": (0, 1e6),
    **dict.fromkeys(("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "vocab"), (1, 1e8)),
    **dict.fromkeys(("rank", "experts", "experts_per_token", "shared_experts", "dense_layers"), (0, 1e6)),
    **dict.fromkeys(("seq_len", "micro_batch", "global_batch_sequences"), (1, 1e9)),
    **dict.fromkeys(("input_len", "max_num_seqs", "max_num_batched_tokens"), (1, 1e9)),
    **dict.fromkeys(("running_batch", "queued_requests"), (1, 999_999)),
    "client_concurrency": (1, 20_000),
    "output_len": (0, 1e9),
    "memory_fraction": (0.01, 1),
    "request_rate": (1e-9, float("inf")),
    **dict.fromkeys(("measured_step_s", "ttft_ms", "tpot_ms"), (1e-9, 1e8)),
    "measured_memory_gb_per_gpu": (1e-3, 1e6),
    **dict.fromkeys(("norm_tokens_per_s_per_gpu", "output_tokens_per_s", "prefill_tokens_per_s"), (1e-9, 1e12)),
}
"""Columns of numbers and their valid ranges. A value outside is an error; a blank cell means not stated. Requests and clients are
bounded since they are simulated: 20,000 clients take half a minute on a server core, ten million exhausted memory."""

WHOLE = frozenset(
    {
        *(
            "count",
            "accelerators_total",
            "devices_per_node",
            "tp",
            "pp",
            "dp",
            "cp",
            "ep",
            "attention_dp",
            "interleave",
        ),
        *(
            "layers",
            "hidden",
            "heads",
            "kv_heads",
            "rank",
            "experts",
            "experts_per_token",
            "shared_experts",
            "dense_layers",
        ),
    }
)
"""Columns that must hold whole numbers."""

WORDS = {"seq_len": re.compile(r"max \d+-\d+ tokens"), "interleave": re.compile(r"^>1")}
"""Text that columns of numbers may hold instead."""


EXPERTS_TOGETHER = re.compile(r"^(\d+)(?:/| experts, )(\d+)(?: active)?(?:(?:/|, )(\d+)(?: shared)?)?$")
"""Experts, those of a token and shared ones: ``128/8/0``, or ``128 experts, 8 active, 1 shared``."""

PART_OF_LAYERS = re.compile(
    r"(?:full|block|checkpointing)?[\s,:(]*(?:(\d+(?:\.\d+)?)\s*%|(\d+)\s*(?:/|of|out of)\s*(?:the\s+)?([1-9]\d*))"
    r"\s*(?:of\s+)?(?:the\s+|all\s+)?(?:layers|blocks)?\)?",
    re.IGNORECASE,
)
"""Cell that states the share of the layers that are recomputed as a whole: ``25%``, ``1/4``, ``full, 20 of 80 layers``."""

KNOWN_WORDS = {
    "month": re.compile(r"^\d{4}(-(0[1-9]|1[0-2]|Q[1-4])(-\d\d)?)?$"),
    "precision": re.compile(r"(bf|fp|tf|b?float)16|\bfp8|float8|mxfp[48]|nvfp4|nf4|\b4-?bit", re.IGNORECASE),
    "sequence_parallel": re.compile(r"^(true|false)$", re.IGNORECASE),
    "gradient_dtype": re.compile(r"(bf|fp)(16|32)", re.IGNORECASE),
    "memory_kind": re.compile(r"^(max_memory_)?(allocated|reserved)\b|^(unspecified|peak|nvidia-smi)$", re.IGNORECASE),
    "offload": re.compile(r"^no|none|param|weight|optim|activation|cpu|not stated", re.IGNORECASE),
    "zero_stage_fsdp": re.compile(
        r"^[0-3](\.0)?$|[fh]sdp|shard|ddp|(zero|stage)[-_ ]*[0-3](?!\d)|distributed|none|gemini", re.IGNORECASE
    ),
    "recompute": re.compile(
        r"^(none|full|selective|minimal|save|qkv|true|false|yes|no|on|off)\b|^(save|minimal|qkv)|checkpoint|^(?:"
        + PART_OF_LAYERS.pattern
        + ")$",
        re.IGNORECASE,
    ),
    "loss": re.compile(r"^(fused|plain)$", re.IGNORECASE),
    "moe": EXPERTS_TOGETHER,
    "task": re.compile(r"^(pretrain|full|sft|finetun|fine-tun|memory|q?lora|adapter)", re.IGNORECASE),
}
"""Columns of text and the pattern that a cell must match unless it is blank; any other text would describe an unknown kind of run."""

EXAMPLES = {
    "month": "; write 2026-11",
    "precision": "; accepted: bf16, fp16, fp8, mxfp8, nvfp4, and nf4 of frozen weights",
    "recompute": "; accepted: none, selective, full, and a share of the layers as 20 of 80, 1/4 or 25%",
    "memory_kind": "; accepted: allocated, reserved, unspecified",
    "offload": "; accepted: none, params->CPU, optimizer->CPU, activations->CPU",
    "loss": "; accepted: fused, plain",
    "zero_stage_fsdp": "; accepted: 0 to 3, FSDP full shard, SHARD_GRAD_OP, Gemini (ColossalAI's stage 3), distributed optimizer, DDP",
    "moe": "; write experts, those of a token and shared ones as 128/8/0",
    "task": "; accepted: pretrain, full-ft, lora, qlora, adapter, adapter_v2",
    "sequence_parallel": "; accepted: True, False",
}
"""Hints on what to write instead, by column."""

BEYOND = "cells beyond the columns"
"""Key of cells beyond the last named column."""


def checked(row: Row) -> None:
    """Check that every cell of a row is valid.

    Raises
    ------
    Skipped : a cell is not a number where one is needed, or has an impossible value; the message names both column and value.
    """
    if row.get(BEYOND):
        raise Skipped("more cells than columns: a comma in a cell without quotation marks moves all that follow")
    for name, (least, most) in RANGES.items():
        text = (row.get(name) or "").strip()
        if not text or (name in WORDS and WORDS[name].search(text)):
            continue
        value = number(row, name)
        if value is None or math.isnan(value):
            raise Skipped(f"{name}: {text!r} is not a number")
        if not least <= value <= most:
            raise Skipped(f"{name}: {text} is not between {least:,g} and {most:,g}")
        if name in WHOLE and value != int(value):
            raise Skipped(f"{name}: {text} is not a whole number")
    for name, known in KNOWN_WORDS.items():
        text = (row.get(name) or "").strip()
        if text and not known.search(text):
            raise Skipped(f"{name}: {text!r} is not known{EXAMPLES.get(name, '')}")


def listed(reasons: Counter[str], most: int | None = None) -> str:
    """Return why rows were left out, as text: ``3 for layout not stated, 1 for ...``.

    Parameters
    ----------
    reasons : rows by reason.
    most : reasons to list, None for all.

    Returns
    -------
    The reasons, the most frequent first.
    """
    ordered = [f"{count} for {reason}" for reason, count in reasons.most_common()]
    return ", ".join([*ordered[:most], *(["..."] if len(ordered[:most]) < len(ordered) else [])])


def told_apart(rows: Sequence[Row]) -> list[Row]:
    """Return rows with unique ids, made from the row number where blank or repeated, and with duplicated figures flagged."""
    seen: set[str] = set()
    out: list[Row] = []
    for place, row in enumerate(flagged(rows), start=1):
        name = row.get("id") or ""
        if not name or name in seen:
            name = f"{name} row {place}".strip()
        seen.add(name)
        out.append({**row, "id": name})
    return out


def flagged(rows: Sequence[Row]) -> list[Row]:
    """Return rows, with the flag `TWICE` on those whose figures also appear for another device."""
    doubtful = twice(rows)
    return [
        {**row, "quality_flags": f"{row.get('quality_flags', '')};{TWICE}".strip(";")} if place in doubtful else row
        for place, row in enumerate(rows)
    ]


TWICE = "same_figures"
"""Flag of rows whose figures a publisher also states for another device, so that one of the two must be wrong."""

FIGURES = ("output_tokens_per_s", "ttft_ms", "tpot_ms", "prefill_tokens_per_s")
"""Columns in which two runs do not agree by chance."""


def twice(rows: Sequence[Row]) -> frozenset[int]:
    """Return the places of rows that have at least three figures, all equal to those of another device of the same publisher."""
    found: dict[tuple[str, ...], list[int]] = {}
    for place, row in enumerate(rows):
        figures = tuple(row.get(name, "") for name in FIGURES)
        if sum(map(bool, figures)) >= 3:
            found.setdefault((row.get("source_key", ""), *figures), []).append(place)
    groups = (places for places in found.values() if len({rows[place].get("accel_norm", "") for place in places}) > 1)
    return frozenset(place for places in groups for place in places)


def _text(cell: str | list[str] | None) -> str:
    """Return a cell, or the list of cells beyond the last column, as text."""
    return ",".join(filter(None, cell)) if isinstance(cell, list) else cell or ""


FILES = ("model_name", "model_config", "hf_model_id", "accel_norm")
"""Columns that may name a file: a model configuration or a device."""


def _with_absolute_paths(row: dict[str, str], folder: Path) -> dict[str, str]:
    """Return a row with absolute paths for the files that exist beside its table."""
    found = {name: folder / row[name] for name in FILES if row.get(name, "").endswith((".json", ".gguf", ".toml", "/"))}
    return row | {name: str(file.resolve()) for name, file in found.items() if hf.exists(file)}


def read(path: str | Path, needed: Sequence[str], argument: str = "FILE") -> tuple[dict[str, str], ...]:
    """Return the rows of a CSV file; files that its cells name may lie beside it.

    Parameters
    ----------
    path : the CSV file.
    needed : columns that it must have.
    argument : the argument that named the file, for messages.

    Returns
    -------
    The rows; missing cells are empty, and files found beside the table have absolute paths.

    Raises
    ------
    InputError : the file cannot be read, lacks a needed column or holds no rows.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, restkey=BEYOND)
            cells = (plain_row({key: _text(value) for key, value in row.items()}) for row in reader)
            found = tuple(_with_absolute_paths(row, Path(path).parent) for row in cells)
            columns = reader.fieldnames or ()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = getattr(error, "strerror", None) or "it is not a table of text"
        raise InputError(f"{argument}: {path} cannot be read: {why}", argument=argument, value=str(path)) from None
    missing = [name for name in needed if name not in columns]
    fault = f"lacks the columns {', '.join(missing)}" if missing else "" if found else "holds no rows"
    if len(columns) == 1 and ";" in columns[0]:
        fault = "separates its cells by semicolons; save it with commas"
    if fault:
        raise InputError(f"{argument}: {path} {fault}", argument=argument, value=str(path))
    return found


EITHER = (
    *("id", "source_key", "source", "year", "month", "notes", "quality", "quality_flags"),
    *("model_name", "model_config", "accel_norm"),
)
"""Columns of tables of both kinds; `source` names the document that a row was taken from."""

READ = {
    "training": (
        *("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "vocab", "seq_len", "moe", "dense_layers"),
        *("experts", "experts_per_token", "shared_experts", "accelerators_total", "devices_per_node"),
        *("interconnect", "tp", "pp", "dp", "cp", "ep", "interleave", "schedule", "micro_batch"),
        *("global_batch_sequences", "grad_accum", "zero_stage_fsdp", "sequence_parallel", "precision"),
        *("recompute", "offload", "optimizer", "gradient_dtype", "flash_attention", "compiled", "loss"),
        *("framework", "task", "rank", "targets", "measured_step_s", "norm_tokens_per_s_per_gpu"),
        *("measured_memory_gb_per_gpu", "memory_kind"),
    ),
    "inference": (
        *("hf_model_id", "count", "tp", "pp", "dp", "ep", "attention_dp", "weight_precision"),
        *("kv_precision", "input_len", "output_len", "lengths", "engine_name", "engine_version"),
        *("max_num_seqs", "max_num_batched_tokens", "memory_fraction", "micro_batch", "flash_attention"),
        *("prefill_chunking", "metric_kind", "request_rate", "running_batch", "client_concurrency"),
        *("queued_requests", "percentile", "output_tokens_per_s", "ttft_ms", "tpot_ms", "e2e_ms"),
        *("prefill_tokens_per_s", "total_tokens_per_s", "requests_per_s"),
    ),
}
"""Columns that are read, by the kind of the table, beside those of `EITHER`."""


MEASURED = ("measured_tflops_per_gpu", "measured_mfu", "power_w")
"""Figures that tables carry beside those that are predicted: no column resembles them."""


def unread(kind: str, rows: Sequence[Row]) -> dict[str, str]:
    """Return the filled columns of a table that are not read, each with the one that it resembles, empty where none does.

    Parameters
    ----------
    kind : ``training`` or ``inference``.
    rows : the rows of the table.

    Returns
    -------
    Names of columns, in the order of the table.
    """
    known, elsewhere = (*EITHER, *READ[kind]), {*MEASURED, *(name for columns in READ.values() for name in columns)}
    names = dict.fromkeys(name for row in rows for name, cell in row.items() if cell and name not in (*known, BEYOND))
    return {name: "" if name in elsewhere else next(iter(nearest(name, known, 1)), "") for name in names}


def unread_warnings(names: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the warning of columns that are not read, a code and a text, as `unread` finds them."""
    told = (name + (f" ({near}?)" if near else "") for name, near in names.items())
    return [("unread_columns", f"columns that are not read: {', '.join(told)}")] if names else []
