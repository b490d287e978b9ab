"""Scaling law of the loss with parameters and tokens.

References
----------
.. [1] J. Hoffmann et al., "Training compute-optimal large language models", NeurIPS 2022, arXiv 2203.15556.
"""

from __future__ import annotations

from roofplan.laws import Number

IRREDUCIBLE, OF_SIZE, OF_DATA = 1.69, 406.4, 410.7
"""Irreducible loss E, and coefficients A of parameters and B of tokens, in nats per token, [1]_ equation 10 [1]."""

SIZE_EXPONENT, DATA_EXPONENT = 0.34, 0.28
"""Exponents of parameters and of tokens, [1]_ equation 10 [1]."""


def loss(parameters: Number, tokens: Number) -> Number:
    """Return the loss of a model: E + A / N^0.34 + B / D^0.28 [1]_.

    Parameters
    ----------
    parameters : parameters N [1].
    tokens : training tokens D [1].

    Returns
    -------
    Loss in nats per token [1].

    Notes
    -----
    Domain: dense decoders of 0.07 to 16 G parameters on MassiveText, one epoch. Source: [1]_ approach 3.

    Examples
    --------
    >>> round(loss(70e9, 1.4e12), 2)  # Chinchilla
    1.94
    """
    return IRREDUCIBLE + OF_SIZE / parameters**SIZE_EXPONENT + OF_DATA / tokens**DATA_EXPONENT
