"""The command line: a file for each kind of question, and `app` for what they share."""

from roofplan.cli import serve, simulate, measure, lists, evidence, train, cost  # noqa: F401, I001 - commands stand in this order
from roofplan.cli.app import app, main

__all__ = ["app", "main"]
