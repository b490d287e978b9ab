"""Charts of what a machine attains: products by rows, memory by size, links by message, a long run over time."""

from __future__ import annotations

from roofplan.observe import Attained
from roofplan.present.charts.spec import Spec, spec


def of_machine(found: Attained) -> list[Spec]:
    """Return charts of what a machine attains.

    Parameters
    ----------
    found : what it attains.

    Returns
    -------
    Specifications of the charts.
    """
    probe = found.probe
    products = [
        {"rows": one.about["m"], "rate": one.best / 1e9, "format": one.about["format"]}
        for one in (*probe.of("skinny"), *probe.of("product"))
    ]
    reads = [{"size": one.about["size"], "rate": one.best / 1e9} for one in probe.of("read")]
    messages = [
        {"size": one.about["size"], "time": one.best * 1e6, "link": one.about["link"]} for one in probe.of("message")
    ]
    out = []
    if products:
        out.append(
            _line(
                "Products by rows: few rows wait for memory",
                products,
                ("rows", "rows of the product"),
                ("rate", "GFLOPS"),
                "format",
            )
        )
    if reads:
        out.append(_line("Reads by size: caches, then memory", reads, ("size", "bytes"), ("rate", "GB/s"), None))
    if messages:
        out.append(_line("Messages over links", messages, ("size", "bytes"), ("time", "us"), "link"))
    if probe.sustained:
        rows = [{"at": one["at"], "rate": one["rate"] / 1e9} for one in probe.sustained]
        out.append(_line("A sustained run over time", rows, ("at", "s"), ("rate", "GFLOPS"), None, scale="linear"))
    return out


def _line(
    title: str,
    rows: list[dict[str, float]],
    x: tuple[str, str],
    y: tuple[str, str],
    color: str | None,
    scale: str = "log",
) -> Spec:
    """Return a chart of points joined by lines."""
    encoding: dict[str, object] = {
        "x": {"field": x[0], "type": "quantitative", "title": x[1], "scale": {"type": scale}},
        "y": {"field": y[0], "type": "quantitative", "title": y[1], "scale": {"type": scale}},
    }
    if color is not None:
        encoding["color"] = {"field": color, "type": "nominal", "title": None}
    return spec(title, data={"values": rows}, mark={"type": "line", "point": True}, encoding=encoding)
