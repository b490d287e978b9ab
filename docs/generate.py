"""Write the index of the catalogue, docs/laws.md, docs/catalogue.md, docs/accuracy.md and docs/accuracy-training.md: ``make docs``."""

import importlib
import inspect
import json
import pkgutil
import re
from pathlib import Path

import roofplan.laws
from roofplan import catalogue, hf
from roofplan.units import gib, significant
from roofplan.validation.training_report import page

HERE = Path(__file__).parent


def laws():
    """Return the page of laws."""
    lines = [
        "# Laws",
        "",
        "Generated from the docstrings by `make docs`. Every law is a pure function of floats or arrays, SI in and out.",
        "",
    ]
    for info in sorted(pkgutil.iter_modules(roofplan.laws.__path__), key=lambda i: i.name):
        module = importlib.import_module(f"roofplan.laws.{info.name}")
        text = inspect.getdoc(module).split("\n\nReferences")[0].split("\n.. [")[0]
        lines += [f"## {info.name}", "", re.sub(r"References\n-+", "", text).strip(), ""]
        every = inspect.getmembers(module, inspect.isfunction)
        members = [f for name, f in every if f.__module__ == module.__name__ and not name.startswith("_")]
        for function in sorted(members, key=lambda f: f.__code__.co_firstlineno):
            body = inspect.getdoc(function)
            claim = body.split("\n\n")[0]
            notes = body.split("Notes\n-----\n")[1].split("\n\nExamples")[0].replace("\n", " ")
            units = re.findall(r"^(\w+) : .*?\[([^\]]+)\]", body.split("Returns\n")[0], re.MULTILINE)
            given = ", ".join(f"`{name}` [{unit}]" for name, unit in units)
            result = re.search(r"\[([^\]]+)\]", body.split("Returns\n")[1])[1]
            lines += [
                f"### {info.name}.{function.__name__}",
                "",
                claim.replace("\n", " "),
                "",
                f"Takes {given}; returns [{result}].",
                "",
                notes,
                "",
            ]
    return "\n".join(lines)


def accuracy():
    """Return the scoreboard: errors on publishers that no constant saw."""
    from roofplan.calibrate.left_out import kept
    from roofplan.calibrate.scoreboard import page as scoreboard

    fit = catalogue.shipped_fit()
    return scoreboard(kept(fit), fit)


def accuracy_training():
    """Return how far training predictions stand from published runs."""
    return page(catalogue.shipped_fit())


def catalogue_page():
    """Return the page of devices, links, engines, models, formats and fitted constants."""
    lines = [
        "# Catalogue",
        "",
        "Generated from the data files by `make docs`. Sources of each number: `roofplan device ID`.",
        "",
        "## Accelerators",
        "",
    ]
    lines += [
        "| id | name | memory | bandwidth | 16-bit dense | 8-bit dense | power |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in catalogue.ids("accelerators"):
        d = catalogue.accelerator(name)
        base, eight = d.peak.get("bf16") or d.peak.get("fp16"), d.peak.get("fp8") or d.peak.get("int8")
        memory = f"{gib(d.value('memory_capacity'))} GiB" if d.value("memory_capacity") else ""
        rate = f"{significant(d.bandwidth / 1e12)} TB/s" if d.bandwidth else ""
        peaks = [f"{significant(p.value / 1e12, 4)} TFLOPS" if p else "" for p in (base, eight)]
        power = d.quantities["power"].text if "power" in d.quantities else ""
        lines.append(f"| `{name}` | {d.name} | {memory} | {rate} | {peaks[0]} | {peaks[1]} | {power} |")
    lines += ["", "## Links and networks", "", "| id | kind | topology | one way |", "|---|---|---|---|"]
    for name in catalogue.ids("links"):
        x = catalogue.link(name)
        lines.append(
            f"| `{name}` | {x.kind} | {x.topology} | {x.quantities['bandwidth'].text if 'bandwidth' in x.quantities else ''} |"
        )
    lines += ["", "## Servers", "", "| id | devices |", "|---|---|"]
    lines += [
        f"| `{name}` | {catalogue.server(name).count} x {catalogue.server(name).accelerator} |"
        for name in catalogue.ids("servers")
    ]
    lines += ["", "## Engines", "", "| id | released | memory | admission |", "|---|---|---|---|"]
    for name in catalogue.ids("engines"):
        e = catalogue.engine(name)
        lines.append(f"| `{name}` | {e.released} | {e.memory_model} | {e.admission} |")
    lines += ["", "## Weight and cache formats", "", "| id | bits | runs in | source |", "|---|---|---|---|"]
    for name, entry in catalogue.formats().items():
        scales = f" + {entry['scale_bits']} per {entry.get('group', 1):,}" if entry.get("scale_bits") else ""
        lines.append(
            f"| `{name}` | {entry['bits']}{scales} | {entry['compute']}, {entry['kernel']} | {entry['source']} |"
        )
    lines += [
        "",
        "## Fitted constants",
        "",
        "| law | constant | scope | value | spread | rows | source |",
        "|---|---|---|---|---|---|---|",
    ]
    for c in catalogue.constants():
        lines.append(
            f"| {c.law} | {c.name} | {c.scope} | {c.value:.4g} {c.unit} | {c.spread:.0%} | {c.rows} | {c.source} |"
        )
    lines += [
        "",
        "## Models",
        "",
        ", ".join(f"`{name}`" for name in catalogue.ids("models")),
        "",
        "## Families that any config.json may have",
        "",
    ]
    lines += [", ".join(f"`{name}`" for name in hf.FAMILIES), ""]
    return "\n".join(lines)


PAGES = {
    "laws.md": laws,
    "catalogue.md": catalogue_page,
    "accuracy.md": accuracy,
    "accuracy-training.md": accuracy_training,
}

INDEX = catalogue.ROOT / "index.json"


def index():
    """Return the index of the catalogue's files."""
    return json.dumps(catalogue.indexed(), indent=0, sort_keys=True) + "\n"


if __name__ == "__main__":
    INDEX.write_text(index())
    for name, make in PAGES.items():
        (HERE / name).write_text(make() + "\n")
