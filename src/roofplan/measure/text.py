"""Prompts of a wanted length, made of public-domain text."""

from __future__ import annotations

from importlib.resources import files

import numpy as np

WORDS_A_TOKEN = 0.75
"""Words of English for a token, until a server has counted [1]."""

FRESH = 6
"""Random words before a prompt, so that no cache knows its beginning [1]."""


class Prompts:
    """Prompts by number: the same number makes the same text.

    Parameters
    ----------
    seed : of the random numbers.
    repeated : whether all prompts of one length are the same text, so that a prefix cache finds them.
    slope, offset : words for a token, and tokens that a template adds, as the server's own counts tell [1, token].
    """

    def __init__(self, seed: int, *, repeated: bool = False) -> None:
        self.seed = seed
        self.repeated = repeated
        self.slope, self.offset = WORDS_A_TOKEN, 0.0
        text = files("roofplan.measure").joinpath("declaration.txt").read_text(encoding="utf-8")
        self.words = text.split()

    def of(self, number: int, tokens: int) -> str:
        """Return a prompt.

        Parameters
        ----------
        number : of the request, which the random words depend on.
        tokens : wanted length [token].

        Returns
        -------
        The text.
        """
        count = max(1, round((tokens - self.offset) * self.slope))
        random = np.random.default_rng((self.seed, 0 if self.repeated else number + 1))
        begin = int(random.integers(len(self.words)))
        fresh = [self.words[int(k)] for k in random.integers(len(self.words), size=min(FRESH, count))]
        rest = count - len(fresh)
        around = self.words * (1 + (begin + rest) // len(self.words))
        return " ".join([*fresh, *around[begin : begin + rest]])

    def fit(self, counted: list[tuple[int, int]]) -> None:
        """Take over how many tokens a server counts for a number of words.

        Parameters
        ----------
        counted : words and tokens of prompts of two lengths.
        """
        (few, low), (many, high) = min(counted), max(counted)
        if many > few and high > low:
            self.slope = (many - few) / (high - low)
            self.offset = low - few / self.slope
