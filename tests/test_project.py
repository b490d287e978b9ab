"""The project as an object: names it exports, words it must not say, docstrings, the way of the data."""

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import roofplan

ROOT = Path(__file__).parent.parent
SOURCE = sorted((ROOT / "src").rglob("*.py"))
TEXT = [
    p
    for p in [*SOURCE, *(ROOT / "src").rglob("*.toml"), *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if ".venv" not in p.parts
]


def test_exported_names():
    assert roofplan.__all__ == [
        "Answer",
        "Loaded",
        "RoofplanError",
        "__version__",
        "ask",
        "benchmarks",
        "device",
        "load_model",
        "measure_endpoint",
        "measure_machine",
        "measure_memory",
        "measure_stability",
        "plan_pool",
        "plan_serving",
        "plan_training",
        "prove_pool",
        "refit",
        "simulate",
        "simulate_pool",
        "token_costs",
        "validate",
    ]
    assert all(getattr(roofplan, name) is not None for name in roofplan.__all__)


def test_import_loads_nothing_heavy():
    code = (
        "import sys, roofplan; print(sorted(m for m in ('numpy', 'pydantic', 'rich', 'cyclopts') if m in sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_only_what_users_write_schemas_and_tools_need_pydantic():
    users = [p.name for p in SOURCE if re.search(r"^\s*(from|import) pydantic", p.read_text(), re.MULTILINE)]
    assert sorted(users) == ["own_device.py", "schemas.py", "server.py"]


@pytest.mark.parametrize("path", TEXT, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_stub_words(path):
    text = path.read_text()
    for word in ("TODO", "FIXME", "XXX", "NotImplementedError", "simplified for now", "/work/", "facts/"):
        assert word not in text, word


def test_laws_import_only_numpy():
    for path in (ROOT / "src" / "roofplan" / "laws").glob("*.py"):
        for name in re.findall(r"^\s*(?:from|import) ([\w.]+)", path.read_text(), re.MULTILINE):
            assert name.startswith(("numpy", "roofplan.laws", "typing", "__future__")), (path.name, name)


def test_python_interface():
    model = roofplan.load_model("llama-3.1-70b")
    assert model.parameters.total == 70_553_706_496
    assert model.cache_bytes(1024) == 335_544_320
    assert model.cache_bytes("1k") == 335_544_320
    assert model.cache_bytes(1024, precision="fp8") == pytest.approx(335_544_320 / 2, rel=1e-3)
    assert roofplan.device("h100").id == "h100-sxm"
    assert roofplan.plan_serving("llama-3.1-70b", ["h100-sxm:8"]).plans
    with pytest.raises(roofplan.RoofplanError):
        model.cache_bytes(0)


@pytest.mark.slow
def test_generated_pages_are_those_of_today_s_code():
    module = module_of(ROOT / "docs" / "generate.py")
    assert module.INDEX.read_text() == module.index(), "run make docs (index.json)"
    for name, make in module.PAGES.items():
        assert (ROOT / "docs" / name).read_text() == make() + "\n", f"run make docs ({name})"


@pytest.mark.slow
def test_screens_of_the_readme_and_the_tutorial_are_today_s(run):
    def steady(lines):  # neither how long the search took nor how old a price has become
        return [line.replace(" !", "") for line in lines if not line.startswith("searched")]

    pages = module_of(ROOT / "docs" / "examples.py")
    for page in pages.SCREENS:
        for words, most, shown in pages.SCREEN.findall(page.read_text()):
            _, out, err = run(*words.split())
            today = f"{out.rstrip()}\n{err}".splitlines()[: int(most) if most else None]
            assert steady(shown.splitlines()) == steady(today), f"run make examples: {page.name}, {words}"


def module_of(file):
    """Return a script as a module."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_way_from_question_to_answer_names_what_exists():
    """Each `file.py:name` of the page is a function, class, method or constant of that file."""
    text = (ROOT / "docs" / "from-question-to-answer.md").read_text()
    named = re.findall(r"`([\w/]+\.py):([\w.]+)`", text)
    assert len(named) > 40
    for file, name in named:
        body = ast.parse((ROOT / "src" / "roofplan" / file).read_text()).body
        for part in name.split("."):
            found = [one for one in body if part in names_of(one)]
            assert found, f"{file}:{name}"
            body = getattr(found[0], "body", [])
    for folder in re.findall(r"`(src/roofplan/[\w/.]+)`", text):
        assert (ROOT / folder).exists(), folder


def names_of(node):
    """Return what a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {one.id for one in targets if isinstance(one, ast.Name)}
