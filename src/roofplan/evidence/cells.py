"""Cells of tables as people write them, in the one form in which rows are read."""

from __future__ import annotations

import re
from collections.abc import Mapping

BLANK = frozenset(
    {"-", "--", "\N{EN DASH}", "\N{EM DASH}", "n/a", "na", "null", "?", "unknown", "not stated", "unspecified"}
)
"""What people write into a cell of which they know nothing."""

KEPT = frozenset({"memory_kind", "id", "source_key", "notes", "quality", "quality_flags"})
"""Columns whose cells stand as they are written."""

TRUE = frozenset({"true", "yes", "on", "1", "y", "enabled"})
FALSE = frozenset({"false", "no", "off", "0", "n", "disabled", "eager", "none"})

SWITCHES = {
    "sequence_parallel": ("True", "False"),
    "flash_attention": ("True", "False"),
    "prefill_chunking": ("yes", "no"),
}
"""Columns of switches, and how on and off are read."""

WORDS = {
    "metric_kind": {
        **dict.fromkeys(
            ("decode", "decoding", "generation", "tg", "tg128", "tpot", "per-user", "interactive"), "latency"
        ),
        **dict.fromkeys(
            ("offline", "throughput", "max throughput", "max-throughput", "batch throughput"), "max_throughput"
        ),
        **dict.fromkeys(("online", "server", "load", "serve"), "serving"),
        **dict.fromkeys(("prompt", "prompts", "pp", "pp512", "prompt processing", "prompt-processing"), "prefill"),
    },
}
"""Other words for what a column may say."""

LENGTHS = ("input_len", "output_len", "seq_len")
DEGREES = ("tp", "pp", "dp", "cp", "ep", "attention_dp")

MILLISECONDS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "us": 1e-3}
A_SECOND = dict.fromkeys(("tok/s", "tokens/s", "t/s", "tps", "tok/s/gpu", "tokens/s/gpu"), 1.0)
TOKENS = {"tok": 1.0, "tokens": 1.0, "k": 1024.0}

UNITS: Mapping[str, Mapping[str, float]] = {
    "ttft_ms": MILLISECONDS,
    "tpot_ms": MILLISECONDS,
    "measured_step_s": {"s": 1.0, "sec": 1.0, "ms": 1e-3},
    "measured_memory_gb_per_gpu": {"gb": 1.0, "gib": 1.0},
    "request_rate": {"req/s": 1.0, "rps": 1.0, "/s": 1.0, "qps": 1.0},
    "norm_tokens_per_s_per_gpu": A_SECOND,
    "output_tokens_per_s": A_SECOND,
    "prefill_tokens_per_s": A_SECOND,
    "input_len": TOKENS,
    "output_len": TOKENS,
    "seq_len": TOKENS,
    "global_batch_sequences": {"sequences": 1.0, "samples": 1.0},
}
"""Units that a number may carry, by column, and how many of the column's own each is; a k of tokens is 1,024."""

NUMBER = re.compile(r"^(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)\s*([a-z/]*)$")


BATCH = re.compile(r"^(\d[\d,]*(?:\.\d+)?)\s*(?:(m)|([km]?)\s*tok(?:en)?s?)$")
"""A batch in tokens: 4M, 2.5M tokens, 512k tokens, 4,194,304 tokens. Nobody counts sequences in millions."""


SHAREGPT = "sharegpt"
"""Cell of the column ``lengths`` of a run whose requests are conversations of ShareGPT."""

_OF_SHAREGPT = re.compile(r"share[\s_-]*gpt(?:[\s_-]*v3\w*)?(?: data ?set)?")


def plain_row(cells: Mapping[str, str]) -> dict[str, str]:
    """Return the cells of a row in the form in which they are read: a batch that is stated in tokens as sequences, ShareGPT in place of lengths as such.

    Parameters
    ----------
    cells : by column, as they stand in a table.

    Returns
    -------
    The cells by column; k and M of a batch are binary, as lengths are, and sequences are rounded to whole ones.

    Examples
    --------
    >>> plain_row({"seq_len": "4k", "global_batch_sequences": "4M tokens"})
    {'seq_len': '4096', 'global_batch_sequences': '1024'}
    """
    row = {column: plain_cell(column, text) for column, text in cells.items()}
    stated, length = BATCH.match(row.get("global_batch_sequences", "").lower()), row.get("seq_len", "")
    if stated and length.isdigit() and int(length):
        tokens = float(stated[1].replace(",", "")) * {"k": 1024, "m": 1024**2}.get(stated[2] or stated[3], 1)
        row["global_batch_sequences"] = f"{max(1, round(tokens / int(length)))}"
    named = [name for name in ("input_len", "output_len") if _OF_SHAREGPT.fullmatch(row.get(name, "").lower())]
    noted = not (row.get("input_len") or row.get("output_len")) and _OF_SHAREGPT.search(row.get("notes", "").lower())
    return {**row, **dict.fromkeys(named, ""), "lengths": SHAREGPT} if named or noted else row


def plain_cell(column: str, text: str) -> str:
    """Return a cell in the form in which it is read: without spaces around it, thousands separators and units.

    Parameters
    ----------
    column : name of its column.
    text : what stands in it.

    Returns
    -------
    The same in the words and the unit of the column; unchanged where it is none of the known forms.

    Examples
    --------
    >>> plain_cell("input_len", "4,096"), plain_cell("seq_len", "8k"), plain_cell("ttft_ms", "0.25 s"), plain_cell("tp", "TP8")
    ('4096', '8192', '250', '8')
    >>> plain_cell("flash_attention", "no"), plain_cell("metric_kind", "Offline"), plain_cell("recompute", " N/A ")
    ('False', 'max_throughput', '')
    """
    text = text.replace("\N{NO-BREAK SPACE}", " ").strip()
    lowered = text.lower()
    if column in KEPT:
        return text
    if lowered in BLANK:
        return ""
    if column in SWITCHES and lowered in TRUE | FALSE:
        return SWITCHES[column][lowered in FALSE]
    return WORDS[column].get(lowered, lowered) if column in WORDS else _plain_number(column, text)


def _plain_number(column: str, text: str) -> str:
    """Return a number in the unit of its column, without thousands separators and words; any other text unchanged."""
    lowered = text.lower()
    if column in DEGREES and (degree := re.fullmatch(r"[a-z]{2}\s*=?\s*(\d+)", lowered)):
        return degree[1]
    if column in LENGTHS and (timed := re.fullmatch(r"(?:pp|tg)\s*(\d+)", lowered)):
        return timed[1]
    found = NUMBER.match(lowered)
    each = UNITS.get(column, {}).get(found[2]) if found and found[2] else 1.0
    if found is None or each is None or not (found[2] or "," in found[1]):
        return text
    return f"{float(found[1].replace(',', '')) * each:.15g}"
