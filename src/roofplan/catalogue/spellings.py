"""Names of models in the spellings of people and tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from roofplan.catalogue.names import aliases

TUNED = frozenset({"hf", "base", "it", "chat", "instruct", "pt", "lora", "sft"})
"""Words of a name that do not change dimensions: tuning and packaging of a checkpoint."""

ASIDE = (
    TUNED
    | {"high", "medium", "low", "thinking", "reasoning"}
    | {"tokendrop", "dropless", "w", "o", "with", "without", "mtp", "megatron", "layer", "layers", "cut"}
)
"""Words in brackets that describe the run, not the model."""

FORMAT = re.compile(
    r"^(bf16|fp16|fp8|fp4|nvfp4|mxfp4|awq|gptq|gguf|mlx|bnb|int4|int8|[348]bit|dynamic|marlin|(?:quantized\.)?(?:w4a16|w8a8)|i?q\d_\w+)$"
)
"""Words of a name for the number format of a checkpoint."""

IN_BLOCKS = re.compile(r"[\s_.-]+(?:ud[\s_-])?i?q\d_\w+$", re.IGNORECASE)
"""What ends the name of a file of weights in blocks, such as ``-UD-Q4_K_XL``."""

DATE = re.compile(r"^(\d{4}|\d{6}|\d{8})$")


def plain(name: str) -> str:
    """Return a name without its organisation prefix, and without words in brackets that do not describe the model.

    Parameters
    ----------
    name : name of a model as a table gives it.

    Returns
    -------
    The rest of it, in its own case.

    Examples
    --------
    >>> plain("DeepSeekV3 (w/o MTP)"), plain("Llama 3 (70B)"), plain("meta-llama/Llama-3.1-8B")
    ('DeepSeekV3', 'Llama 3 70B', 'Llama-3.1-8B')
    """

    def kept(match: re.Match[str]) -> str:
        words = re.findall(r"[a-z]+", match[1].lower())
        return " " if set(words) <= ASIDE else f" {match[1]}"

    return re.sub(r"(?:[\s:]|,(?!\d))+", " ", re.sub(r"\(([^)]*)\)", kept, name).rsplit("/", 1)[-1]).strip()


def spelling(name: str) -> str:
    """Return a name without case, spaces, hyphens and underscores; digits that these separate stay separate.

    >>> spelling("Llama-3.1_405B"), spelling("LLAMA3.1_405B"), spelling("gemma-2-2b")
    ('llama3.1|405b', 'llama3.1|405b', 'gemma2|2b')
    """
    words = re.split(r"[\s_-]+", plain(name).lower())
    return re.sub(r"(?<=\d)\x00(?=\d)", "|", "\x00".join(words)).replace("\x00", "")


def bare(name: str) -> tuple[str, frozenset[str]]:
    """Return a name without trailing words for tuning, date and format, and the dates among them; all other words stay.

    Parameters
    ----------
    name : name of a model as a table gives it.

    Returns
    -------
    The rest of the name, and the dates.

    Examples
    --------
    >>> bare("Qwen3-235B-A22B-Instruct-2507-FP8")
    ('Qwen3-235B-A22B', frozenset({'2507'}))
    >>> bare("DeepSeek-R1-0528-NVFP4-v2"), bare("Mistral-7B-v3")
    (('DeepSeek-R1', frozenset({'0528'})), ('Mistral-7B-v3', frozenset()))
    >>> bare("DeepSeek-R1-Distill-8B"), bare("llama-2-13b-chat.Q4_K_M")
    (('DeepSeek-R1-Distill-8B', frozenset()), ('llama-2-13b', frozenset()))
    """
    rest, dates = IN_BLOCKS.sub("", plain(name)), set()
    if (packed := re.search(r"^(.+[\s_-]([^\s_-]+))[\s_-]v\d$", rest)) and FORMAT.match(packed[2].lower()):
        rest = packed[1]  # packed anew
    while match := re.search(r"^(.+?)[\s_-]+([^\s_-]+)$", rest):
        last = match[2].lower()
        if DATE.match(last):
            dates.add(last)
        elif last not in TUNED and not FORMAT.match(last):
            break
        rest = match[1].rstrip(" _-")
    return rest, frozenset(dates)


@lru_cache(maxsize=1)
def _spellings() -> tuple[Mapping[str, str], Mapping[str, frozenset[str]]]:
    """Return model ids by the spelling of their names, full names taking precedence over shortened ones, and dates by id."""
    known = aliases("models")
    found: dict[str, str] = {}
    dates: dict[str, frozenset[str]] = {}
    for name, identity in known.items():
        found.setdefault(spelling(name), identity)
    for name, identity in known.items():
        rest, own = bare(name)
        dates[identity] = dates.get(identity, frozenset()) | own
        if bare(identity)[0] == identity:
            found.setdefault(spelling(rest), identity)
    return found, dates


def named(name: str, *, as_stored: bool = False, known_dates: bool = False) -> str | None:
    """Return the id of the model that a name means, None where there is none; a name with another date is another model.

    Parameters
    ----------
    name : name in any spelling.
    as_stored : whether a number format or a date in the name must be the model's own; words for tuning never count.
    known_dates : whether a date must be one that the catalogue knows of the model.

    Returns
    -------
    The id.

    Examples
    --------
    >>> named("Llama 3.1 405B Instruct", as_stored=True), named("Llama 3 70B GPTQ", as_stored=True)
    ('llama-3.1-405b', None)
    >>> named("Llama 2 7 B"), named("Qwen3_30B_a3B (tokendrop)"), named("Llama 2 7B mini")
    ('llama-2-7b', 'qwen3-30b-a3b', None)
    """
    known, dates = _spellings()
    whole = known.get(spelling(name))
    if whole is not None:
        return whole
    rest, own = bare(name)
    if as_stored and any(word.lower() not in TUNED for word in re.split(r"[\s_-]+", plain(name)[len(rest) :]) if word):
        return None
    found = known.get(spelling(rest))
    undated = found is not None and not dates[found] and not known_dates
    return found if found is None or not own or undated or own <= dates[found] else None
