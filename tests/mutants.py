"""Random changes to the code, one at a time, each of which some test must notice: ``make mutants SEED=1``.

A mutant changes one operator, comparison, number, condition or statement of `src` in a copy of the project, and is killed by the
first test that fails. First the suite runs once, slow tests too, with a probe at every place that will change, which tells the tests
that pass there; then each mutant meets those tests, one case of each kind before others, and those that survive meet more. Equivalent
mutants, which no test can notice, stand with their reasons in `tests/golden/equivalent_mutants.toml` and do not count; everything
else that survives its share of time does. Several seeds share the first run of the suite.
"""

import argparse
import ast
import copy
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).parent.parent
EQUIVALENT = ROOT / "tests" / "golden" / "equivalent_mutants.toml"
QUICK, LONG = 30.0, 120.0
"""Seconds of tests that a mutant meets, and of those that a survivor meets then."""

COMPILED = {"src/roofplan/simulation/core.py", "src/roofplan/simulation/steps.py"}
"""Files whose functions numba compiles too, which knows no probes."""

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


@dataclass(frozen=True)
class Mutant:
    """One change of one file: what stands from `start` to `end` becomes `after`; a probe can stand there unless `silent`.

    What a module `declares` outside of its functions runs when it is imported, whichever test imports it first.
    """

    file: str
    line: int
    start: int
    end: int
    before: str
    after: str
    statement: bool = False
    silent: bool = False
    declares: bool = False

    def probed(self, number):
        """Return what a probe writes before and behind the place."""
        return (f"__probe__({number}); ", "") if self.statement else (f"(__probe__({number}), (", "))[1]")

    def __str__(self):
        return f"{self.file}:{self.line}  {' '.join(self.before.split())}  ->  {' '.join(self.after.split())}"


def flags():
    """Return the flags of declarations whose values no test can notice: calls and arguments -> the value, None for any."""
    found = tomllib.loads(EQUIVALENT.read_text()).get("flag", [])
    return {(one["call"], one["argument"]): one.get("value") for one in found}


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
        other.value = not node.value if isinstance(node.value, bool) else moved(node.value)
        yield other
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SWAPPED:
        other.func.id = SWAPPED[node.func.id]
        yield other
    elif isinstance(node, ast.IfExp):
        other.test = ast.UnaryOp(op=ast.Not(), operand=node.test)
        yield other
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield ast.Pass()


def moved(value):
    """Return a number moved far enough to matter: small ones by one, large ones to twice as much."""
    return value + 1 if abs(value) < LARGE else 2 * value


LARGE = 1000
"""Numbers from here on, such as the bytes of a gigabyte, of which one more would be within what tests allow."""


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

    def walk(node, silent=False, declares=True):
        silent = silent or isinstance(node, ast.pattern) or str(file.relative_to(ROOT)) in COMPILED
        if isinstance(node, ast.JoinedStr) or getattr(node, "id", None) == "TYPE_CHECKING":
            return  # places inside formatted text are not told before Python 3.12
        for child in ast.iter_child_nodes(node):
            if child in (getattr(node, "annotation", None), getattr(node, "returns", None)):
                continue
            flag = (getattr(getattr(node, "func", None), "id", ""), getattr(child, "arg", None))
            if (
                isinstance(child, ast.keyword)
                and flag in unseen
                and unseen[flag] in {None, getattr(child.value, "value", None)}
            ):
                continue
            outside = declares and not (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and child in node.body)
            if hasattr(child, "lineno"):
                start = starts[child.lineno - 1] + child.col_offset
                end = starts[child.end_lineno - 1] + child.end_col_offset
                for other in changed(child):
                    made = ast.unparse(ast.fix_missing_locations(other))
                    statement = isinstance(child, ast.stmt)
                    made = made if statement else f"({made})"
                    place = (len(raw[:start].decode()), len(raw[:end].decode()))
                    name, was = str(file.relative_to(ROOT)), raw[start:end].decode()
                    found.append(Mutant(name, child.lineno, *place, was, made, statement, silent, outside))
            walk(child, silent, outside)

    walk(ast.parse(text))
    return found


def equivalent():
    """Return the mutants that no test can notice: file, what stood there and what stands there, and the line, empty where any will do."""
    entries = tomllib.loads(EQUIVALENT.read_text()).get("mutant", [])
    return {(one["file"], one["before"], one["after"], one.get("line", "")) for one in entries}


def chosen(seed, count):
    """Return mutants at random, equivalent ones left out."""
    known, texts = equivalent(), {file: file.read_text() for file in sorted((ROOT / "src").rglob("*.py"))}
    every = [one for file in texts for one in sites(file)]
    lines = {str(file.relative_to(ROOT)): text.splitlines() for file, text in texts.items()}
    random.Random(seed).shuffle(every)  # noqa: S311 - nothing secret

    def counts(one):
        what = (one.file, " ".join(one.before.split()), " ".join(one.after.split()))
        return known.isdisjoint({(*what, ""), (*what, lines[one.file][one.line - 1].strip())})

    return list(itertools.islice(filter(counts, every), count))


PASSED, KILLED = {0, 5}, {1, 2, 3}
"""Exit codes of pytest: all passed, or there is no test; and tests failed, the change cannot be imported, or broke pytest itself.

A change that `conftest.py` cannot import counts as one that fails tests.
"""

PYTEST = ("pytest", "-vv", "-p", "no:randomly", "--no-header", "--tb=no")
DECLARED = ("tests/test_declared.py", "tests/test_fit.py::test_classes_of_data")
REPLAYS = "test_answers_have_not_moved"
"""The test that compares whole answers, and so notices more than others."""

EVERY = "not oracle and not browser and not loop and not prove"

PROBE = """
import builtins as _builtins, os as _os
def _probe(number, _seen=set(), _folder=_os.environ.get("ROOFPLAN_PROBES")):
    if _folder and number not in _seen:
        _seen.add(number)
        test = _os.environ.get("ROOFPLAN_FIXTURE") or _os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" (", 1)[0]
        with open(f"{_folder}/{_os.getpid()}.hits", "a", encoding="utf-8") as file:
            file.write(f"{number}\\t{test}\\n")
_builtins.__probe__ = _probe
"""
"""What a probe does, in whichever process: it writes its number beside the test that runs, or the fixture that several tests share, once."""

PLUGIN = """
import builtins, json, os, time
import pytest

SET_UP = []

def took(name, started, fixtures=()):
    with open(f"{os.environ['ROOFPLAN_PROBES']}/{os.getpid()}.times", "a", encoding="utf-8") as file:
        file.write(json.dumps([name, time.perf_counter() - started, list(fixtures)]) + "\\n")

def speak_anew():
    if hasattr(builtins, "__probe__"):
        builtins.__probe__.__defaults__[0].clear()

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    speak_anew()
    started = time.perf_counter()
    SET_UP.clear()
    yield
    took(item.nodeid, started + sum(SET_UP), item.fixturenames)

@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(fixturedef):
    if fixturedef.scope == "function":
        yield
        return
    before, started = os.environ.get("ROOFPLAN_FIXTURE"), time.perf_counter()
    os.environ["ROOFPLAN_FIXTURE"] = f"fixture {fixturedef.baseid} {fixturedef.argname}"
    speak_anew()
    yield
    took(os.environ.pop("ROOFPLAN_FIXTURE"), started)
    if before is None:
        SET_UP.append(time.perf_counter() - started)
    else:
        os.environ["ROOFPLAN_FIXTURE"] = before
    speak_anew()
"""
"""A plugin of pytest that lets probes speak anew in each test, and writes how long it took and which fixtures it uses.

What a fixture that several tests share passes, in processes that it starts too, counts for all that use it.
"""


def run_tests(place, arguments, timeout, **environment):
    """Run tests in a copy of the project; return pytest's exit code, None out of time, and what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(place / "src"), "OPENBLAS_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-m", *PYTEST, *arguments]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        started = subprocess.Popen(command, cwd=place, env=environment, stdout=out, stderr=err, start_new_session=True)
        try:
            code = started.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)  # servers that a test has started too
            started.wait()
            code = None
        printed, complaint = (file.seek(0) or file.read() for file in (out, err))
    if "while loading conftest" in complaint:
        return min(KILLED), printed
    if code not in PASSED | KILLED | {None}:
        raise SystemExit(f"pytest did not run: exit code {code}\n{printed}{complaint}")
    return code, printed


def failures(printed):
    """Return the tests that failed by a summary of pytest."""
    lines = [line.split(" ", 1)[1] for line in printed.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return [line.split(" - ")[0] for line in lines]


class Changed:
    """Files of a copy while some of them are changed."""

    def __init__(self, place, texts):
        self.place, self.texts, self.before = place, texts, {}

    def __enter__(self):
        moment = time.monotonic()
        for file, text in self.texts.items():
            self.before[file] = (self.place / file).read_text()
            (self.place / file).write_text(text)
            os.utime(self.place / file, (moment, moment))  # no compiled file of another second may stand for it

    def __exit__(self, *_):
        for file, text in self.before.items():
            (self.place / file).write_text(text)


def with_change(place, mutant):
    """Return the file of a mutant as it changes it in a copy of the project, by its name."""
    text = (place / mutant.file).read_text()
    return {mutant.file: text[: mutant.start] + mutant.after + text[mutant.end :]}


def with_probes(place, mutants):
    """Return the files of mutants in a copy of the project with a probe at each place, by file."""
    pieces = defaultdict(list)
    for number, one in enumerate(mutants):
        if not one.silent and not one.declares:
            before, behind = one.probed(number)
            pieces[one.file] += [(one.start, 1, -one.end, before), (one.end, 0, -one.start, behind)]
    texts = {}
    for file, added in pieces.items():
        text = (place / file).read_text()
        for start, _, _, piece in sorted(added, reverse=True):
            text = text[:start] + piece + text[start:]
        texts[file] = text
    first = "src/roofplan/__init__.py"
    head = texts.get(first) or (place / first).read_text()
    end = next(node.end_lineno for node in ast.parse(head).body if getattr(node, "module", "") == "__future__")
    lines = head.splitlines(keepends=True)
    texts[first] = "".join([*lines[:end], PROBE, *lines[end:]])
    return texts


def covering(place, mutants, jobs):
    """Return the tests that pass through each mutant's place, an empty set where modules alone do, and what every test costs."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "probing.py").write_text(PLUGIN)
        path = f"{place / 'src'}{os.pathsep}{folder}"
        with Changed(place, with_probes(place, mutants)):
            arguments = ["-p", "probing", "-n", str(jobs), "-m", EVERY]
            _, printed = run_tests(place, arguments, None, PYTHONPATH=path, ROOFPLAN_PROBES=folder)
        seconds, using = {}, defaultdict(set)
        for file in Path(folder).glob("*.times"):
            for test, spent, fixtures in map(json.loads, file.read_text().splitlines()):
                seconds[test] = max(spent, seconds.get(test, 0.0))
                for fixture in fixtures:
                    using[fixture].add(test)
        shared = {name: seconds.pop(name) for name in list(seconds) if name.startswith("fixture ")}

        def users(name):
            _, where, fixture = name.split(" ")
            return {test for test in using[fixture] if test.startswith(where)}

        tests = [set() for _ in mutants]
        for file in Path(folder).glob("*.hits"):
            for line in file.read_text().splitlines():
                number, test = line.split("\t", 1)
                tests[int(number)] |= users(test) if test.startswith("fixture ") else {test} & seconds.keys()
    probed = failures(printed)
    if probed:
        code, said = run_tests(place, ["-m", EVERY, *probed], None)
        if code != 0:
            print(f"tests fail before anything is changed, and kill nothing:\n{said}", flush=True)
    fixtures = defaultdict(dict)
    for name, spent in shared.items():
        for test in users(name):
            fixtures[test][name] = spent
    costs = {test: (spent, fixtures[test]) for test, spent in seconds.items() if test not in probed}
    return [one & costs.keys() for one in tests], costs


def cost(tests, costs):
    """Return the seconds of some tests, and of the fixtures that they share."""
    shared = {name: spent for test in tests for name, spent in costs[test][1].items()}
    return sum(costs[test][0] for test in tests) + sum(shared.values())


def candidates(mutant, own, mutants, tests, costs):
    """Return the tests that a mutant meets, in two turns: those of its place, of its file and of its room before others.

    Others may pass its place too: what one test has computed a cache keeps for those after it. What modules declare meets the tests of
    declarations first, and what no probe sees those named for its room.
    """
    near = [set(), set()]
    for other, passing in zip(mutants, tests, strict=True):
        if other.file == mutant.file:
            near[0] |= passing
        if Path(other.file).parent == Path(mutant.file).parent:
            near[1] |= passing
    far = {test: 0 if test in own else 3 - sum(test in one for one in near) for test in costs}
    first = DECLARED if mutant.declares else () if own else (f"tests/test_{Path(mutant.file).parent.name}",)
    far |= {test: -1 for test in far if test.startswith(first)}
    turn = turns(far, random.Random(str(mutant)))  # noqa: S311 - nothing secret
    order = sorted(far, key=lambda test: (far[test], turn[test], REPLAYS not in test, costs[test][0]))
    quick = within(QUICK, order, costs)
    return quick, within(LONG, [test for test in order if test not in set(quick)], costs)


def alike(test):
    """Return what a test has in common with those that see much the same: its function, of replays the command or the scene too."""
    function, _, case = test.partition("[")
    words = case.rstrip("]_0123456789").split()
    return function, *(words[: 2 if words[0] in OF_SEVERAL else 1] if REPLAYS in function and words else ())


OF_SEVERAL = {"calls", "screen", "pool", "cost", "rows"}
"""First words of replays that the second one divides into kinds."""


def turns(tests, chance):
    """Return when each test has its turn: of those that see much the same, each kind tries one before any tries another."""
    cases = defaultdict(list)
    for test in sorted(tests):
        cases[alike(test)].append(test)
    for several in cases.values():
        chance.shuffle(several)
    return {test: turn for several in cases.values() for turn, test in enumerate(several)}


def within(budget, tests, costs):
    """Return tests in order, skipping any that would exceed `budget` seconds with the fixtures that it needs; always at least one."""
    met, spent, ready = [], 0.0, set()
    for test in tests:
        own, fixtures = costs[test]
        whole = own + sum(seconds for name, seconds in fixtures.items() if name not in ready)
        if spent + whole <= budget or not met:
            spent += whole
            met.append(test)
            ready |= fixtures.keys()
    return met


def verdict(mutant, place, tests, costs):
    """Return which of some tests kills a mutant in a copy of the project, or None, and the seconds that it took.

    A mutant under which a test takes several times as long as all of them do on the unchanged code hangs, which kills it, unless that
    test hangs on the unchanged code too. Tests that share a fixture come last, file by file, so that it is made once.
    """
    started, killer = time.monotonic(), None
    tests = sorted(tests, key=lambda test: test.partition("::")[0] if costs[test][1] else "")
    patience = 60.0 + 3.0 * cost(tests, costs)
    while tests and killer is None:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as names, Changed(place, with_change(place, mutant)):
            names.write("\n".join(tests))
            names.flush()
            code, printed = run_tests(place, ["-x", "-m", EVERY, f"@{names.name}"], patience)
        lines = printed.splitlines()
        if code in PASSED:
            break
        if code in KILLED:
            killer = (failures(printed) or lines[-1:] or ["it does not start"])[0]
        else:
            hung = max((test for test in tests if lines[-1:] and lines[-1].startswith(test)), key=len, default=None)
            if hung is None or run_tests(place, ["-m", EVERY, hung], patience)[0] in PASSED:
                killer = f"out of time: {hung or 'before any test'}"
            tests = [test for test in tests if test != hung]
    return killer, time.monotonic() - started


def main():
    """Try random mutants side by side, each worker in a copy of the project; say how many were killed, and return whether any survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    parser.add_argument("--count", type=int, default=100, help="mutants of each seed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="part of the file names to change")
    options = parser.parse_args()
    drawn = {seed: [one for one in chosen(seed, 10**9) if options.only in one.file] for seed in options.seed}
    drawn = {seed: mutants[: options.count] for seed, mutants in drawn.items()}
    mutants = list(dict.fromkeys(one for several in drawn.values() for one in several))
    places = Queue()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as workers:
        for number in range(options.jobs):
            place = Path(folder) / str(number)
            ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", "dist", "site", ".*_cache")
            shutil.copytree(ROOT, place, ignore=ignored)
            places.put(place)
        tests, costs = covering(place, mutants, options.jobs)
        print(f"{len(costs)} tests, {cost(costs, costs):.0f} s of them, over {len(mutants)} places", flush=True)

        def tried(mutant, names):
            place = places.get()
            try:
                return mutant, *verdict(mutant, place, names, costs)
            finally:
                places.put(place)

        def each(pairs):
            """Try mutants with their tests side by side, print what kills them, and return those that nothing kills."""
            survived = []
            for number, done in enumerate(as_completed([workers.submit(tried, *pair) for pair in pairs]), 1):
                mutant, killer, spent = done.result()
                print(f"{number:3} {spent:4.0f} s  {mutant}\n      {(killer or 'SURVIVED')[:150]}", flush=True)
                survived += [] if killer else [mutant]
            return survived

        turns = {one: candidates(one, own, mutants, tests, costs) for one, own in zip(mutants, tests, strict=True)}
        survived = each((one, quick) for one, (quick, _) in turns.items())
        print(f"\n{len(survived)} of them meet other tests", flush=True)
        final = each((one, turns[one][1]) for one in survived if turns[one][1])
        final += [one for one in survived if not turns[one][1]]
    print("\nsurvived:" if final else "")
    for mutant in final:
        print(f"  {mutant}")
    for seed, several in drawn.items():
        print(f"seed {seed}: {sum(one not in final for one in several)} of {len(several)} killed")
    return bool(final)


if __name__ == "__main__":
    sys.exit(main())
