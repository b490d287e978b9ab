"""Charts and text as one HTML file that needs no network."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from roofplan.errors import InputError
from roofplan.present.charts.spec import Spec

SCRIPTS = ("vega.min.js", "vega-lite.min.js", "vega-embed.min.js")

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
pre { font: 13px/1.4 ui-monospace, monospace; background: #f5f7f8; padding: 1rem; overflow-x: auto; }
.chart { margin: 2rem 0; }
"""

EMBED = """
const specs = JSON.parse(document.getElementById("specs").textContent);
Promise.all(specs.map((spec, index) => vegaEmbed("#chart" + index, spec, { actions: false, renderer: "svg" })))
  .then(() => { document.body.dataset.drawn = specs.length; })
  .catch((fault) => { document.body.dataset.fault = String(fault); console.error(fault); });
"""


def page(title: str, text: str, specs: Sequence[Spec]) -> str:
    """Return an HTML document with the text of an answer, its charts and their scripts.

    Parameters
    ----------
    title : title of the page.
    text : the answer as text.
    specs : specifications of the charts, in order.

    Returns
    -------
    HTML that needs no network.
    """
    vendor = files("roofplan.present.charts") / "vendor"
    scripts = "\n".join(f"<script>{_inline((vendor / name).read_text())}</script>" for name in SCRIPTS)
    places = "\n".join(f'<div class="chart" id="chart{index}"></div>' for index in range(len(specs)))
    data = json.dumps(list(specs), allow_nan=False).replace("</", "<\\/")
    return "\n".join(
        (
            "<!DOCTYPE html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title><style>{STYLE}</style></head><body>',
            f"<h1>{html.escape(title)}</h1>",
            places,
            f"<pre>{html.escape(text)}</pre>",
            f'<script type="application/json" id="specs">{data}</script>',
            scripts,
            f"<script>{EMBED}</script>",
            "</body></html>",
            "",
        )
    )


def _inline(script: str) -> str:
    """Return a script that may stand inside a page."""
    return script.replace("</script", "<\\/script")


def write(path: str, title: str, text: str, specs: Sequence[Spec], argument: str = "--html") -> None:
    """Write text and charts to a file as one HTML page.

    Parameters
    ----------
    path : file to write.
    title : title of the page.
    text : the answer as text.
    specs : specifications of the charts, in order.
    argument : flag or function that the path was given for, as a refusal names it.

    Raises
    ------
    InputError : no path is given, one that is not named as a page, or the file cannot be written.
    """
    if not path:
        raise InputError(f"{argument}: give the file to write", argument=argument, value=path)
    if Path(path).suffix.lower() not in {"", ".html", ".htm"}:
        message = f"{argument}: {path}: text and pictures are written as one page; end its name in .html"
        raise InputError(message, argument=argument, value=path)
    try:
        Path(path).write_text(page(title, text, specs), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{argument}: {path}: {error.strerror}", argument=argument, value=path) from None
