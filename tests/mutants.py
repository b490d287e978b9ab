"""Random changes to the code, one at a time, each of which some test must notice: ``make mutants SEED=1``.

A mutant changes one operator, comparison, number, condition or statement of `src` in a copy of the project, and is killed by the
first test that fails. The tests near the change run first. Equivalent mutants, which no test can notice, stand with their reasons
in `tests/golden/equivalent_mutants.toml` and do not count; everything else that survives does.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).parent.parent
EQUIVALENT = ROOT / "tests" / "golden" / "equivalent_mutants.toml"
TIMEOUT = 900
"""Seconds after which one of a mutant's three runs of tests is taken to hang, which kills it: several times what they take."""

ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Mod: ast.Add,
}
COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
SWAPPED = {"min": "max", "max": "min", "larger": "smaller", "smaller": "larger", "any": "all", "all": "any"}
NEAR = {
    "hf": ("model serving", "test_config_replay.py", "test_configs.py", "test_models_truth.py"),
    "laws": ("serving training money", "test_laws.py", "test_units.py", "test_claims.py"),
    "money": ("money", "test_costs.py", "test_money.py"),
    "serving": ("serving tables", "test_serving.py", "test_ledger_logs.py", "test_requests.py"),
    "operations": ("serving training", "test_serving.py", "test_training.py"),
    "timing": ("serving training", "test_network.py", "test_intervals.py", "test_serving.py", "test_calibration.py"),
    "training": ("training", "test_training.py", "test_intervals.py"),
    "evidence": (
        "tables",
        "test_project.py",
        "test_validation.py",
        "test_fits.py",
        "test_calibration.py",
        "test_intervals.py",
        "test_claims.py",
    ),
    "catalogue": ("serving", "test_catalogue.py", "test_calibration.py"),
    "records": ("model serving training", "test_fit.py", "test_units.py"),
    "present": ("money serving training screens", "test_cli.py", "test_pictures.py"),
    "cli": ("screens", "test_cli.py", "test_inputs.py", "test_requests.py"),
    "inputs": ("screens", "test_inputs.py", "test_requests.py"),
    "api": ("screens money", "test_cli.py", "test_requests.py"),
    "exports": ("screens", "test_emit.py", "test_training.py"),
}
"""Kinds of replays, and tests, near a room of the code."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file: what stands from `start` to `end` becomes `after`."""

    file: str
    line: int
    start: int
    end: int
    before: str
    after: str

    def applied(self, text):
        return text[: self.start] + self.after + text[self.end :]

    def __str__(self):
        return f"{self.file}:{self.line}  {' '.join(self.before.split())}  ->  {' '.join(self.after.split())}"


def flags():
    """Return the flags of declarations whose values no test can notice: calls and their arguments."""
    return {(one["call"], one["argument"]) for one in tomllib.loads(EQUIVALENT.read_text()).get("flag", [])}


def changed(node):
    """Yield what a node may become."""
    other = copy.deepcopy(node)
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in ARITHMETIC and not _joins_text(node):
        other.op = ARITHMETIC[type(node.op)]()
        yield other
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        other.ops = [COMPARISONS[type(node.ops[0])]()]
        yield other
    elif isinstance(node, ast.BoolOp):
        other.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield other
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield other.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        other.value = not node.value if isinstance(node.value, bool) else node.value + 1
        yield other
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SWAPPED:
        other.func.id = SWAPPED[node.func.id]
        yield other
    elif isinstance(node, ast.IfExp):
        other.test = ast.UnaryOp(op=ast.Not(), operand=node.test)
        yield other
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield ast.Pass()


def _joins_text(node):
    """Return whether an addition or a remainder is one of texts or sequences."""
    sides = (node.value,) if isinstance(node, ast.AugAssign) else (node.left, node.right)
    kinds = ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp | ast.Dict
    return any(isinstance(x, kinds) or (isinstance(x, ast.Constant) and isinstance(x.value, str)) for x in sides)


def sites(file):
    """Return every mutant of a file."""
    text = file.read_text()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    raw, found, unseen = text.encode(), [], flags()

    def walk(node):
        if isinstance(node, ast.JoinedStr) or getattr(node, "id", None) == "TYPE_CHECKING":
            return  # places inside formatted text are not told before Python 3.12
        for child in ast.iter_child_nodes(node):
            if child in (getattr(node, "annotation", None), getattr(node, "returns", None)):
                continue
            if isinstance(child, ast.keyword) and (getattr(getattr(node, "func", None), "id", ""), child.arg) in unseen:
                continue
            if hasattr(child, "lineno"):
                start = starts[child.lineno - 1] + child.col_offset
                end = starts[child.end_lineno - 1] + child.end_col_offset
                for other in changed(child):
                    made = ast.unparse(ast.fix_missing_locations(other))
                    made = made if isinstance(child, ast.stmt) else f"({made})"
                    place = (len(raw[:start].decode()), len(raw[:end].decode()))
                    found.append(
                        Mutant(str(file.relative_to(ROOT)), child.lineno, *place, raw[start:end].decode(), made)
                    )
            walk(child)

    walk(ast.parse(text))
    return found


def equivalent():
    """Return the mutants that no test can notice, by file, what stood there and what stands there."""
    entries = tomllib.loads(EQUIVALENT.read_text()).get("mutant", [])
    return {(one["file"], one["before"], one["after"]) for one in entries}


def chosen(seed, count):
    """Return mutants at random, equivalent ones left out."""
    known = equivalent()
    every = [one for file in sorted((ROOT / "src").rglob("*.py")) for one in sites(file)]
    random.Random(seed).shuffle(every)  # noqa: S311 - nothing secret
    every = [one for one in every if (one.file, " ".join(one.before.split()), " ".join(one.after.split())) not in known]
    return every[:count]


def near(file):
    """Return the kinds of replays and the tests of the room that a file stands in, its own examples first."""
    room = Path(file).relative_to("src/roofplan").parts[0].removesuffix(".py")
    kinds, *names = NEAR.get(room, ("",))
    return kinds.split(), [file, *(f"tests/{name}" for name in names)]


PASSED, KILLED = {0, 5}, {1, 2, 3}
"""Exit codes of pytest: all passed, or there is no test; and tests failed, the change cannot be imported, or broke pytest itself."""

PYTEST = ("pytest", "-x", "-q", "-p", "no:randomly", "--no-header", "--tb=no")


def verdict(mutant, place):
    """Return which test kills a mutant in a copy of the project, or None, and the seconds that it took."""
    file = place / mutant.file
    text, started = file.read_text(), time.monotonic()
    kinds, names = near(mutant.file)
    marks = "not oracle and not browser"
    first, sample = [*names, "tests/test_replay.py"], ["--of-each", "8", "-k", "not tables", "tests/test_replay.py"]
    rest = [f"tests/{one.relative_to(place / 'tests')}" for one in sorted((place / "tests").rglob("test_*.py"))]
    rest = [one for one in rest if one not in first]
    try:
        file.write_text(mutant.applied(text))
        os.utime(file, (started, started))  # no compiled file of another second may stand for it
        for names, marked in ((sample, marks), (first, marks), (rest, f"{marks} and not slow")):
            command = [sys.executable, "-m", *PYTEST, "--first", ",".join(kinds), "-m", marked, *names]
            environment = {**os.environ, "PYTHONPATH": str(place / "src"), "OPENBLAS_NUM_THREADS": "1"}
            try:
                done = subprocess.run(
                    command, cwd=place, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
                )
            except subprocess.TimeoutExpired:
                return "out of time", time.monotonic() - started
            if done.returncode in KILLED:
                failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
                said = (failed or done.stdout.splitlines()[-1:] or ["it does not start"])[0]
                return said[:150], time.monotonic() - started
            if done.returncode not in PASSED:
                raise SystemExit(f"pytest did not run: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return None, time.monotonic() - started
    finally:
        file.write_text(text)


UNCHANGED = Mutant("src/roofplan/__init__.py", 0, 0, 0, "", "")
"""No change at all, which no test may notice."""


def main():
    """Try random mutants side by side, each worker in a copy of the project; say how many were killed, and return whether any survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="part of the file names to change")
    options = parser.parse_args()
    mutants = [one for one in chosen(options.seed, 10**9) if options.only in one.file][: options.count]
    survived, places = [], Queue()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.jobs):
            place = Path(folder) / str(number)
            shutil.copytree(
                ROOT, place, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", "dist", ".*_cache")
            )
            places.put(place)

        def tried(mutant):
            place = places.get()
            try:
                return mutant, *verdict(mutant, place)
            finally:
                places.put(place)

        _, noticed, _ = tried(UNCHANGED)
        if noticed:
            sys.exit(f"tests fail before anything is changed: {noticed}")
        with ThreadPoolExecutor(options.jobs) as workers:
            for number, done in enumerate(as_completed([workers.submit(tried, one) for one in mutants]), 1):
                mutant, killer, seconds = done.result()
                print(f"{number:3} {seconds:4.0f} s  {mutant}\n      {killer or 'SURVIVED'}", flush=True)
                if killer is None:
                    survived.append(mutant)
    print("\nsurvived:" if survived else "")
    for mutant in survived:
        print(f"  {mutant}")
    print(f"{len(mutants) - len(survived)} of {len(mutants)} killed")
    return bool(survived)


if __name__ == "__main__":
    sys.exit(main())
