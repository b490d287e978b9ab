"""The price of an interposer per area of silicon on it, fitted to analysts' figures for three packages."""

from __future__ import annotations

import statistics

PACKAGES = (
    ("H100", 736.5, 814.0 + 5 * 121.0, "szyunze 723, siliconanalysts 750"),
    ("B200", 1100.0, 2 * 800.0 + 8 * 121.0, "Epoch AI"),
    ("MI300X", 1200.0, 4 * 370.0 + 8 * 121.0, "siliconanalysts"),
)
"""Package, its price [USD], silicon on it [mm2], source; all of the CoWoS family."""


def fit_interposer() -> tuple[float, list[tuple[str, float]]]:
    """Return the median interposer price per area of silicon [USD/mm2], and the relative residual of each package."""
    value = statistics.median(price / area for _, price, area, _ in PACKAGES)
    return value, [(name, value * area / price - 1.0) for name, price, area, _ in PACKAGES]
