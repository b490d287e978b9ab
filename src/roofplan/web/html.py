"""The HTML of pages: a frame, and forms made from the inputs of questions."""

from __future__ import annotations

from dataclasses import Field
from html import escape

from roofplan import catalogue
from roofplan._version import __version__
from roofplan.web.pages import PAGES, Page
from roofplan.workers.names import help_from_afar

LISTS = {"model": "models", "machine": "machines", "device": "devices"}
"""Names that complete an input, by what it reads."""

BY_NAME = {"engine": "engines", "framework": "frameworks", "precision": "formats", "kv_precision": "formats"}
"""The same by an input's name."""


def frame(title: str, body: str, *, here: str = "", scripts: tuple[str, ...] = ()) -> str:
    """Return a whole page.

    Parameters
    ----------
    title : of the page.
    body : HTML of its main part.
    here : path of the page that stands out in the navigation.
    scripts : files of ``/static/`` that it runs, in order.

    Returns
    -------
    HTML.
    """
    links = "".join(
        f'<li><a href="/{path}"{" aria-current=page" if path == here else ""}>{escape(one.title)}</a></li>'
        for path, one in PAGES.items()
    )
    links += (
        f'<li><a href="/side-by-side"{" aria-current=page" if here == "side-by-side" else ""}>Side by side</a></li>'
    )
    tags = "".join(f'<script defer src="/static/{name}"></script>' for name in scripts)
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} · roofplan</title>"
        '<link rel="icon" href="/static/icon.svg" type="image/svg+xml">'
        f'<link rel="stylesheet" href="/static/style.css">{tags}</head><body>'
        '<a class="skip" href="#main">To the answer</a>'
        f'<header><a class="brand" href="/">roofplan</a><nav aria-label="Questions"><ul>{links}</ul></nav></header>'
        f'<main id="main">{body}</main>'
        f"<footer>roofplan {__version__}, catalogue of {catalogue.version()}, prices to {catalogue.prices_to()}. "
        "Every figure has its source: open <em>why</em>, or hover.</footer></body></html>"
    )


def home() -> str:
    """Return the first page: every question with what newcomers may ask."""
    cards = "".join(
        f'<section class="card"><h2><a href="/{path}">{escape(one.title)}</a></h2><p>{escape(one.asked.help)}</p><ul>'
        + "".join(f'<li><a href="/{path}?{escape(query)}">{escape(label)}</a></li>' for label, query in one.presets)
        + "</ul></section>"
        for path, one in PAGES.items()
    )
    body = (
        "<h1>A slide rule for LLM compute, from wafer to token</h1>"
        "<p class=lead>Does it fit, how fast does it run, what does it cost, which limit binds, how sure is that, and where does every number come from?</p>"
        f'<div class="cards">{cards}</div>'
    )
    return frame("LLM compute", body)


SCRIPTS = ("vega.min.js", "vega-lite.min.js", "vega-embed.min.js", "draw.js", "app.js")


def question_page(page: Page) -> str:
    """Return the page of a question: its form, and room for the answer.

    Parameters
    ----------
    page : the page.

    Returns
    -------
    HTML.
    """
    declared = page.asked.record.each()
    offered = [name for name in declared if name not in page.refused]
    first = "".join(_field(name, declared[name]) for name in page.first)
    others = [name for name in offered if name not in page.first]
    folded = "".join(_field(name, declared[name]) for name in others)
    more = f'<details class="more"><summary>More inputs ({len(others)})</summary><div class="fields">{folded}</div></details>'
    presets = "".join(f'<a href="/{page.path}?{escape(query)}">{escape(label)}</a>' for label, query in page.presets)
    body = (
        f'<h1>{escape(page.title)}</h1><p class="lead">{escape(page.asked.help)}</p>'
        f'<nav class="presets" aria-label="Examples">{presets}</nav>'
        f'<form id="question" action="/{page.path}" data-question="{escape(page.path)}" data-explains="{int("explain" in page.asked.outputs)}" '
        f'data-first="{escape(page.presets[0][1] if page.presets else "")}" autocomplete="off">'
        f'<div class="fields">{first}</div>{more if others else ""}'
        '<p class="buttons"><button type="submit">Answer</button> <button type="button" id="stop" hidden>Stop</button></p></form>'
        '<div id="status" role="status" aria-live="polite"></div><progress id="progress" max="1" hidden aria-label="Work done"></progress>'
        '<section id="answer" aria-label="Answer" tabindex="-1"></section>'
        "<noscript><p>Pages need JavaScript; the same question as JSON stands under /api/.</p></noscript>"
        + _datalists()
    )
    return frame(page.title, body, here=page.path, scripts=SCRIPTS)


def side_by_side() -> str:
    """Return the page that sets up to four answers beside each other."""
    body = (
        '<h1>Side by side</h1><p class="lead">Up to four answers on one scale. Open a question and choose <em>Set beside</em>, or add its address here.</p>'
        '<form id="beside"><div class="fields"><div class="field wide"><label for="ask">Address of a question</label>'
        '<input id="ask" name="ask" placeholder="/serve?model=llama-3.1-70b&amp;on=h100-sxm:8"></div></div>'
        '<p class="buttons"><button type="submit">Add</button></p></form>'
        '<div id="status" role="status" aria-live="polite"></div><section id="answer" aria-label="Answers" tabindex="-1"></section>'
    )
    return frame("Side by side", body, here="side-by-side", scripts=(*SCRIPTS[:-1], "beside.js"))


def _field(name: str, declared: Field[object]) -> str:
    """Return an input with its label and what it means."""
    about, default = declared.metadata, declared.default
    label = escape(name.replace("_", " "))
    helped = f'<p class="help" id="help-{name}">{escape(help_from_afar(about))}</p>'
    common = f'id="in-{name}" name="{name}" aria-describedby="help-{name}"'
    if isinstance(default, bool):
        return f'<div class="field"><label><input type="checkbox" value="true" {common}> {label}</label>{helped}</div>'
    complete = LISTS.get(about["reads"]) or BY_NAME.get(name)
    listed = f' list="{complete}"' if complete else ""
    shown = f' placeholder="{escape(str(default))}"' if default not in {None, "", ()} else ""
    needed = " required aria-required=true" if about["required"] else ""
    mark = ' <span class="needed">(needed)</span>' if about["required"] else ""
    several = ' data-several="1"' if isinstance(default, tuple) else ""
    box = f'<input type="text" spellcheck="false" {common}{listed}{shown}{needed}{several}>'
    own = _config_box() if about["reads"] == "model" and about["anything"] else ""
    return f'<div class="field"><label for="in-{name}">{label}{mark}</label>{box}{own}{helped}</div>'


def _config_box() -> str:
    return (
        '<details class="config"><summary>or a config.json</summary><label for="config">Paste it</label>'
        '<textarea id="config" rows="6" spellcheck="false"></textarea>'
        '<label for="config-file">or open one</label><input type="file" id="config-file" accept=".json,application/json">'
        "<p class=help>It stays in the address behind #, and goes to this server alone.</p></details>"
    )


def _datalists() -> str:
    """Return the names that complete inputs."""
    devices, servers = catalogue.ids("accelerators"), catalogue.ids("servers")
    names = {
        "models": catalogue.ids("models"),
        "machines": [*(f"{one}:{count}" for one in devices for count in (1, 8)), *servers],
        "devices": devices,
        "engines": catalogue.ids("engines"),
        "frameworks": catalogue.ids("frameworks"),
        "formats": sorted(catalogue.formats()),
    }
    return "".join(
        f'<datalist id="{kind}">{"".join(f"<option value={one}>" for one in found)}</datalist>'
        for kind, found in names.items()
    )
