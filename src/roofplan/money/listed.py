"""List prices of hosted models: those of the catalogue, and those of genai-prices where it is installed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

from roofplan import catalogue


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """List price of one route to a hosted model.

    Parameters
    ----------
    input, output : prices [USD/Mtoken].
    cached : price of input found in the route's cache, None where the route lists none and charges the full price [USD/Mtoken].
    date : ISO date, as exact as the list.
    """

    name: str
    input: float
    output: float
    date: str
    source: str
    cached: float | None = None

    def charged(self, hit: float) -> float:
        """Return the price of input of which a share `hit` is found in the cache [USD/Mtoken]."""
        return (1.0 - hit) * self.input + hit * (self.input if self.cached is None else self.cached)


def routes(model: str) -> list[Route]:
    """Return the priced routes to a model; genai-prices adds providers that the catalogue does not list.

    Parameters
    ----------
    model : id of the model.

    Returns
    -------
    The routes.
    """
    known = [
        Route(
            name=str(entry["route"]),
            input=float(entry["input"]),
            output=float(entry["output"]),
            date=str(entry["date"]),
            source=str(entry["source"]),
        )
        for entry in catalogue.token_prices()
        if entry["model"] == model and float(entry["output"]) > 0.0
    ]
    providers = {_plain(route.name.split("/")[0]) for route in known}
    return known + [one for one in _genai(model) if _plain(one.name.split("/")[0]) not in providers]


def _genai(model: str) -> list[Route]:
    """Return the routes that genai-prices lists for a model today, none where it is not installed; prices tiered by request length are left out."""
    try:
        from genai_prices import data  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return []
    import importlib.metadata
    from decimal import Decimal

    version = importlib.metadata.version("genai-prices")
    found = []
    for provider in data.providers:
        for one in provider.models:
            if _plain(one.id.split("/")[-1]) != _plain(model):
                continue
            price = _today(one.prices)
            if isinstance(price.input_mtok, Decimal) and isinstance(price.output_mtok, Decimal) and price.output_mtok:
                found.append(
                    Route(
                        name=f"{provider.id}/{one.id}",
                        input=float(price.input_mtok),
                        output=float(price.output_mtok),
                        date=date.today().isoformat(),
                        source=f"genai-prices {version}",
                        cached=float(price.cache_read_mtok) if isinstance(price.cache_read_mtok, Decimal) else None,
                    )
                )
    return found


def _today(prices: Any) -> Any:
    """Return the prices that hold today: the newest whose start date has passed."""
    if not isinstance(prices, list):
        return prices
    valid = [
        one
        for one in prices
        if getattr(one.constraint, "start_date", None) is None or one.constraint.start_date <= date.today()
    ]
    return valid[-1].prices if valid else prices[0].prices


def _plain(name: str) -> str:
    """Return a name without the punctuation and suffixes in which lists differ."""
    return "".join(letter for letter in name.lower().removesuffix("_ai").removesuffix("-ai") if letter.isalnum())
