"""Text output to a stream, and the format of numbers."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TextIO

from roofplan.records import units
from roofplan.timing.figures import Metric

WIDTH = 100


GLYPHS = {
    "█": "#",
    "▒": "=",
    "░": ".",
    "▌": "|",
    "├": "|",
    "└": "+",
    "│": "|",
    "◀": "<-",
    "×": "x",
    "µ": "u",
    "≈": "~",
    "·": "|",
}


LETTER = {"measured": "m", "calibrated": "c", "borrowed": "b", "guessed": "g"}


class Page:
    """Text output to a stream, with colour and Unicode only where the stream supports them."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        encoding = (getattr(stream, "encoding", None) or "ascii").lower()
        self.unicode = "utf" in encoding
        forced, refused = os.environ.get("FORCE_COLOR"), os.environ.get("NO_COLOR")
        self.colour = bool(forced) or (not refused and hasattr(stream, "isatty") and stream.isatty())

    def line(self, text: str = "") -> None:
        """Write one line."""
        if not self.unicode:
            for glyph, plain in GLYPHS.items():
                text = text.replace(glyph, plain)
            text = text.encode("ascii", "replace").decode()
        self.stream.write(text.rstrip() + "\n")

    def paint(self, text: str, what: str) -> str:
        """Return text in one of three colours: ``limit``, ``warning``, ``dim``."""
        if not self.colour:
            return text
        code = {"limit": "1;36", "warning": "33", "dim": "2"}[what]
        return f"\x1b[{code}m{text}\x1b[0m"


def wrapped(text: str, indent: int = 0, first: int = 0) -> list[str]:
    """Return text as lines of at most `WIDTH` characters, broken at spaces; a longer word keeps a line of its own.

    Parameters
    ----------
    text : the text.
    indent : spaces before every line but the first [1].
    first : spaces before the first line [1].

    Returns
    -------
    The lines.
    """
    lines, current = [], " " * first
    for word in text.split(" "):
        if len(current) + len(word) + 1 > WIDTH and current.strip():
            lines.append(current.rstrip())
            current = " " * indent
        current += word + " "
    return [*lines, current.rstrip()]


def folded(text: str, indent: int = 16, end: str = "") -> list[str]:
    """Return a line in pieces of at most `WIDTH`, cut at spaces, with the spacing of columns unchanged; all but the last end with `end`."""
    pieces = []
    while len(text) > WIDTH:
        cut = text.rfind(" ", indent + 1, WIDTH + 1 - len(end))
        if end:  # a command is cut outside of its quotes
            while cut > 0 and _within_quotes(text[:cut]):
                cut = text.rfind(" ", indent + 1, cut)
        while cut > 0 and text[cut:].lstrip()[:2] in SEPARATORS:  # a separator ends its line
            cut = cut + 2 if cut + 2 <= WIDTH else text.rfind(" ", indent + 1, cut)
        if cut <= 0:
            break
        pieces.append(text[:cut].rstrip() + end)
        text = " " * indent + text[cut:].lstrip()
    return [*pieces, text]


def _within_quotes(command: str) -> bool:
    """Return whether the beginning of a command ends inside of quotes."""
    try:
        shlex.split(command)
    except ValueError:
        return True
    return False


SEPARATORS = ("· ", "+ ")
"""What stands between the items of a line."""


def interval(m: Metric, scale: float, unit: str) -> str:
    """Return ``49.6 ms [42, 58] c``."""
    return f"{units.significant(m.value * scale)} {unit} [{units.significant(m.low * scale, 2)}, {units.significant(m.high * scale, 2)}] {LETTER[m.grade]}"


def counted(count: int, what: str) -> str:
    """Return ``1 user`` or ``256 users``."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def stdout() -> Page:
    """Return the page of standard output.

    Returns
    -------
    The page.
    """
    return Page(sys.stdout)
