"""Questions in Python and in notebooks: answers that show themselves."""

import csv
import importlib.util
import inspect
import json
import pickle
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import roofplan as rp
from roofplan.inputs import ServeInputs

ROOT = Path(__file__).parent.parent
EIGHT = {"model": "llama-3.1-8b", "on": "h100-sxm:1", "tpot": "50ms"}


@pytest.fixture(scope="module")
def plan():
    return rp.plan_serving(**EIGHT)


def test_the_public_names_complete():
    assert dir(rp) == sorted(rp.__all__)


def test_an_answer_has_what_was_computed(plan):
    assert plan.plans[0].users == plan.result.plans[0].users
    assert {"plans", "to_dict", "explain", "chart"} <= set(dir(plan))
    with pytest.raises(AttributeError, match="nosuch"):
        plan.nosuch  # noqa: B018


def test_an_answer_shows_the_screen(plan, run):
    _, out, _ = run("serve", "llama-3.1-8b", "--on", "h100-sxm:1", "--tpot", "50ms")

    def steady(text):
        return [line for line in text.splitlines() if not line.startswith("searched")]

    assert len(repr(plan).splitlines()) <= 61
    assert [line.encode("ascii", "replace") for line in steady(str(plan))][:5] == [
        line.replace("·", "?").encode("ascii", "replace") for line in steady(out)
    ][:5]


def test_a_long_answer_is_cut():
    shown = repr(rp.ask("prices", text=""))
    assert len(shown.splitlines()) == 61
    assert shown.endswith("more lines: print(answer)")


def test_an_answer_is_the_document_of_the_command(plan, run_json):
    _, printed = run_json("serve", "llama-3.1-8b", "--on", "h100-sxm:1", "--tpot", "50ms")
    document = json.loads(plan.to_json())
    assert document == json.loads(json.dumps(plan.to_dict()))
    for one in (printed, document):
        one["search"].pop("seconds")
    assert document == printed


def test_rows_are_those_of_the_table(plan, run, tmp_path):
    run("serve", "llama-3.1-8b", "--on", "h100-sxm:1", "--tpot", "50ms", "--csv", str(tmp_path / "plans.csv"))
    with (tmp_path / "plans.csv").open(newline="") as file:
        printed = list(csv.DictReader(file))
    assert [{name: str(value) for name, value in row.items()} for row in plan.rows] == printed


class Well(HTMLParser):
    """Fails where an element is not closed."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        assert tag != "script"
        assert not {name for name, _ in attrs} & {"src", "href", "onclick"}
        if tag not in {"line", "rect"}:
            self.open.append(tag)
        elif tag == "rect":
            self.open.append(tag) if not self.get_starttag_text().endswith("/>") else None

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize(
    "answer",
    [
        lambda: rp.plan_serving(**EIGHT),
        lambda: rp.plan_training("llama-3.1-8b", on="h100-sxm:8"),
        lambda: rp.token_costs("gpt-oss-120b", on="h100-sxm:1"),
        lambda: rp.ask("cost chip", device="h100-sxm"),
        lambda: rp.ask("models", text="qwen3"),
    ],
)
def test_notebooks_show_figures_with_intervals(answer):
    found = answer()
    html = found._repr_html_()
    reader = Well()
    reader.feed(html)
    assert reader.open == []
    assert len(html) < 60_000
    assert ("90% interval" in html) == ("<table>" in html)


def test_pictures_are_drawn_by_notebooks_and_kept_in_a_file(plan, tmp_path):
    charts = plan.chart()
    assert len(charts) >= 2
    bundle = charts[0]._repr_mimebundle_()
    assert bundle["application/vnd.vegalite.v5+json"]["title"]
    charts.save(tmp_path / "plan.html")
    assert 'id="specs"' in (tmp_path / "plan.html").read_text()


def test_pictures_are_saved_as_a_page_alone(plan, tmp_path):
    with pytest.raises(rp.RoofplanError, match="html"):
        plan.chart().save(tmp_path / "plan.png")


def test_answers_travel(plan):
    again = pickle.loads(pickle.dumps(plan))  # noqa: S301 - our own
    assert again.plans[0].users == plan.plans[0].users


@pytest.mark.slow
def test_an_answer_explains_and_launches(plan):
    assert "[1]" in plan.explain()
    assert len(plan.explain(3)) > len(plan.explain(1))
    assert repr(plan.emit()).startswith("vllm serve ")
    assert "sglang" in plan.emit("sglang")
    other = rp.plan_serving("llama-3.1-8b", on="h100-sxm:1", engine="tensorrt-llm")
    assert other.emit().startswith("trtllm-serve")
    bridge = rp.plan_training("llama-3.1-8b", on="h100-sxm:8", framework="megatron-bridge")
    assert "pretrain_gpt" not in bridge.emit()
    with pytest.raises(rp.RoofplanError, match="nothing to emit"):
        rp.ask("cost chip", device="h100-sxm").emit()
    with pytest.raises(rp.RoofplanError, match="nothing to emit"):
        rp.ask("cost chip", device="h100-sxm").emit("vllm")
    with pytest.raises(rp.RoofplanError, match="nothing to explain"):
        rp.device("h100-sxm").explain()


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_tables_need_their_library_alone_when_they_are_asked_for(plan, monkeypatch, name):
    class Table:
        def __init__(self, rows):
            self.rows = rows

    monkeypatch.setitem(sys.modules, name, type("Library", (), {"DataFrame": Table}))
    assert getattr(plan, f"to_{name}")().rows == plan.rows
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(rp.RoofplanError, match=f"pip install {name}"):
        getattr(plan, f"to_{name}")()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: rp.device(None), "DEVICE is missing"),
        (lambda: rp.device("h100-sxn"), "h100-sxm"),
        (lambda: rp.ask("cots"), "not known"),
        (lambda: rp.ask("serve", model="llama-3.1-8b", tpod="1ms"), "tpot"),
        (lambda: rp.plan_training("llama-3.1-8b", on="h100-sxm:8", batch=512), "512seq"),
        (lambda: rp.plan_serving("llama-3.1-8b", on=8), "list of texts"),
        (lambda: rp.plan_serving("llama-3.1-8b", fit=3), "not a Fit"),
        (rp.plan_serving, "missing"),
    ],
)
def test_bad_values_are_refused_as_on_the_command_line(call, said):
    with pytest.raises(rp.RoofplanError, match=said):
        call()


@pytest.mark.slow
def test_one_text_is_one_machine():
    assert rp.plan_serving("llama-3.1-8b", on="h100-sxm:1").plans[0].machine.text == "h100-sxm:1"
    assert rp.plan_training("llama-3.1-8b", on="h100-sxm:8", tokens=1e12).plans


def test_signatures_show_the_inputs():
    shown = inspect.signature(rp.plan_serving).parameters
    assert set(ServeInputs.each()) <= set(shown)
    assert {"terms", "fit", "progress"} <= set(shown)
    assert "tpot : limit" in rp.plan_serving.__doc__


def test_progress_is_told():
    told = []
    rp.plan_serving(
        "llama-3.1-8b", on=["h100-sxm:1", "h100-sxm:2"], progress=lambda done, whole: told.append((done, whole))
    )
    assert told[-1][0] == told[-1][1]


def test_models_have_a_short_form():
    assert (
        repr(rp.load_model("llama-3.1-8b")) == "Loaded(llama-3.1-8b: 8,030,261,248 parameters, 32 layers, hidden 4,096)"
    )


def test_the_types_for_editors_are_those_of_the_inputs():
    path = ROOT / "docs" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate_types", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.STUB.read_text() == module.stub(), "run make docs (__init__.pyi)"


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run(path):
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    book = nbformat.read(path, as_version=4)
    client.NotebookClient(book, timeout=300, kernel_name="python3").execute()
    assert all(one.get("outputs") for one in book.cells if one.cell_type == "code")


def test_a_loaded_model_is_a_model_of_every_question():
    loaded = rp.load_model("llama-3.1-8b")
    assert rp.plan_serving(loaded, on="h100-sxm:1").plans[0].model == loaded.model
    assert rp.plan_training(loaded, on="h100-sxm:8", batch="8seq").plans[0].model == loaded.model
