"""Pictures: every specification is drawn by a real browser, without the network and without a fault."""

import json
import re
import shutil
import subprocess
from types import SimpleNamespace

import pytest

from roofplan.present import charts
from roofplan.present.charts.seen import _beside as beside

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr"),
    "--virtual-time-budget=20000",
)
PICTURES = [
    ("serve llama-3.1-8b --on h100-sxm:2", 3),
    ("train llama-3.1-8b --on h100-sxm:64 --tokens 1T", 4),
    ("cost chip h100-sxm", 2),
    ("cost chip --node n5 --area 400mm2 --dies 2 --hbm 96GiB --price 9000USD", 2),
    ("cost machine --on rtx-4090:8 --on h100-sxm:8", 3),
    ("cost rent h100-sxm", 1),
    ("cost history", 2),
    ("cost tokens gpt-oss-120b --on h100-sxm:1", 4),
]


def without_scripts(text):
    """Return a page's own elements, the bodies of its scripts cut out."""
    return re.sub(r"(<script[^>]*>).*?(</script>)", r"\1\2", text, flags=re.DOTALL)


def specs_of(text):
    return json.loads(re.search(r'id="specs">(.*?)</script>', text, re.DOTALL)[1].replace("<\\/", "</"))


@pytest.fixture
def drawn(run, tmp_path):
    """Return a function that runs a command with --html and gives the page's text and its specifications."""

    def call(words):
        file = tmp_path / "answer.html"
        code, out, _ = run(*words.split(), "--html", str(file))
        assert code == 0
        text = file.read_text()
        return out, text, specs_of(text), file

    return call


@pytest.mark.parametrize(("words", "count"), PICTURES)
def test_pages_hold_the_answer_and_their_pictures_alone(drawn, words, count):
    out, text, specs, _ = drawn(words)
    assert len(specs) == count
    assert out.split("\n")[0].split(" ")[0] in text
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", without_scripts(text))
    for spec in specs:
        assert spec["title"]
        assert "NaN" not in json.dumps(spec)


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium (Debian's package): apt-get install chromium")
@pytest.mark.parametrize(("words", "count"), PICTURES)
def test_a_browser_draws_every_picture(drawn, tmp_path, words, count):
    *_, specs, file = drawn(words)
    call = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", file.as_uri()]
    found = subprocess.run(call, capture_output=True, text=True, timeout=120, check=True)
    assert f'data-drawn="{count}"' in found.stdout, found.stderr[-2000:]
    assert "data-fault" not in found.stdout
    assert "CONSOLE" not in found.stderr, found.stderr[-2000:]
    pictures = re.findall(r"<svg.*?</svg>", without_scripts(found.stdout), re.DOTALL)
    assert len(pictures) == len(specs)
    for picture in pictures:
        marks = re.findall(
            r'<path aria-[^>]*role="graphics-symbol"|class="mark-(?:rect|symbol|line|rule)[^"]*"', picture
        )
        assert len(marks) >= 1


def test_a_page_that_cannot_be_written_is_refused(run, tmp_path):
    for file in ("", str(tmp_path / "no" / "such" / "folder.html")):
        code, _, text = run("cost", "chip", "h100-sxm", "--html", file)
        assert (code, "--html" in text) == (2, True)


def test_a_waterfall_stacks_to_its_total():
    from roofplan.present.charts.money import waterfall

    rows = waterfall("x", [("a", 1.0), ("b", 2.0)], "USD", [("sold", 9.0)])["data"]["values"]
    assert [(row["from"], row["to"]) for row in rows] == [(0.0, 1.0), (1.0, 3.0), (0.0, 3.0), (0.0, 9.0)]


def test_kernels_stand_under_the_roof(drawn):
    *_, specs, _ = drawn("serve llama-3.1-8b --on h100-sxm:2")
    roofs, names, points = (layer["data"]["values"] for layer in specs[0]["layer"])
    roof = [row for row in roofs if row["of these"]]
    peak = max(row["rate"] for row in roof)
    assert {"bf16", "fp8"} <= {name for row in names for name in row["format"].split(", ")}
    assert all(row["binds"] in {"memory", "compute"} and row["formula"] for row in points)
    width = roof[0]["rate"] / roof[0]["intensity"]
    assert points
    assert all(row["rate"] <= min(peak, row["intensity"] * width) * 1.001 for row in points)


def test_plans_on_the_front_are_those_that_none_beats():
    rows = [{"x": x, "y": y} for x, y in ((1.0, 5.0), (2.0, 5.0), (2.0, 3.0), (3.0, 4.0), (4.0, 1.0))]
    points = charts.front("", rows, "x", "y")["data"]["values"]
    assert [(p["x"], p["y"]) for p in points if p["front"] == "yes"] == [(1.0, 5.0), (2.0, 3.0), (4.0, 1.0)]
    assert points[-1]["front"] == "yes"


def test_only_figures_that_were_measured_and_predicted_stand_side_by_side():
    def figure(name, value, ratio):
        predicted = None if value is None else SimpleNamespace(value=value, low=0.5 * value, high=4.0 * value)
        return SimpleNamespace(name=name, predicted=predicted, ratio=ratio)

    given = [figure("ttft", 0.2, 1.5), figure("tpot", 0.02, None), figure("e2e", None, None)]
    rows = beside(SimpleNamespace(figures=given))["data"]["values"]
    assert [(row["measured"], row["low"], row["high"]) for row in rows] == [(1.5, 0.5, 4.0)]
