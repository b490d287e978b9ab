"""Sphinx configuration: ``pip install .[docs]``, then ``sphinx-build docs docs/_build``."""

project = "roofplan"
extensions = ["myst_parser"]
html_theme = "furo"
exclude_patterns = ["_build"]
root_doc = "index"
