"""Money: from a wafer to a card, from a machine to an hour, from an hour to a token."""

from __future__ import annotations

from roofplan.economics.machine import hourly
from roofplan.economics.prices import STALE_DAYS, HourlyCost, age_days, quotation, warnings_of

__all__ = ["STALE_DAYS", "HourlyCost", "age_days", "hourly", "quotation", "warnings_of"]
