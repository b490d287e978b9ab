"""The command line: questions as commands, and how their answers are printed."""

from cyclopts import App

from roofplan.agents.command import mcp
from roofplan.cli.app import GROUPS, add, app, main
from roofplan.questions import EVERY
from roofplan.web.command import web

__all__ = ["app", "main"]

_groups = {name: App(name=name, help_format="plaintext", help=text) for name, text in GROUPS.items()}
for _question in (*EVERY.values(), web, mcp):
    _first, _, _second = _question.name.partition(" ")
    if _second and _first not in app:
        app.command(_groups[_first])
    add(_question, _groups[_first] if _second else app)
