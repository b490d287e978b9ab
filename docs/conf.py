"""Sphinx configuration: `make site` builds the pages into site/."""

project = "roofplan"
author = "the roofplan developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "roofplan"
html_static_path: list[str] = []
root_doc = "index"
autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = True
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
