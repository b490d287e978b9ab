"""Costs: of chips from wafer to card, of machines per hour, and of tokens."""

from __future__ import annotations

from roofplan.money.machine import hourly
from roofplan.money.prices import STALE_DAYS, HourlyCost, age_days, quotation, warnings_of

__all__ = ["STALE_DAYS", "HourlyCost", "age_days", "hourly", "quotation", "warnings_of"]
