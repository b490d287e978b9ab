"""Answers as text. Nothing is computed here: numbers come from plans and Terms."""

from __future__ import annotations

from roofplan.present.screens.explain import source_text
from roofplan.present.screens.money import chip_screen, history_screen, machines_screen, rent_screen, tokens_screen
from roofplan.present.screens.page import Page, stdout
from roofplan.present.screens.plans import no_plan_lines, serve_screen
from roofplan.present.screens.things import device_screen, model_screen, server_lines, what_is
from roofplan.present.screens.training import train_screen

__all__ = [
    "Page",
    "chip_screen",
    "device_screen",
    "history_screen",
    "machines_screen",
    "model_screen",
    "no_plan_lines",
    "rent_screen",
    "serve_screen",
    "server_lines",
    "source_text",
    "stdout",
    "tokens_screen",
    "train_screen",
    "what_is",
]
