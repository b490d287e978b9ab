"""How large the house is: code lines, `Any`, the longest file and the longest function. ``python tests/test_house.py`` prints it."""

import ast
import io
import tokenize
from functools import lru_cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "roofplan"
BLANK = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def texts():
    """Return the text of every module by its path below the source."""
    return {str(path.relative_to(SOURCE)): path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}


def code_lines(text):
    """Return the lines of a module that are neither blank, comment nor documentation."""
    held = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in BLANK:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in nodes(text):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            held -= set(range(node.lineno, node.end_lineno + 1))
    return len(held)


@lru_cache(maxsize=1)
def nodes(text):
    """Return all nodes of a module."""
    return list(ast.walk(ast.parse(text)))


def functions(text):
    """Return the length of every function of a module without its docstring, by name."""
    found = {}
    for node in nodes(text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            said = first if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else None
            length = node.end_lineno - node.lineno + 1 - (said.end_lineno - said.lineno + 1 if said else 0)
            found[node.name] = max(length, found.get(node.name, 0))  # methods of several classes share names
    return found


def any_of(text):
    """Return how often a module says `Any`, its import aside."""
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes(text))


def house():
    """Return the measures of the source."""
    held = texts()
    lengths, anything = {}, 0
    for name, text in held.items():
        lengths |= {(name, f): lines for f, lines in functions(text).items()}
        anything += any_of(text)
    longest = max(held, key=lambda name: held[name].count("\n"))
    function = max(lengths, key=lengths.get)
    return {
        "Any in annotations": anything,
        "longest file": (held[longest].count("\n"), longest),
        "longest function": (lengths[function], ":".join(function)),
    }


@pytest.mark.slow
def test_files_and_functions_fit_a_head():
    found = house()
    assert found["longest file"][0] <= 600
    assert found["longest function"][0] <= 80
    assert found["Any in annotations"] <= 120


def test_only_what_is_code_is_counted():
    text = '"""Module."""\n\n# remark\nX = 1\n"""Of it."""\n\n\ndef f():\n    """Return.\n\n    More.\n    """\n    return [\n        X\n    ]\n'
    assert code_lines(text) == 1 + 1 + 3
    assert functions(text) == {"f": 4}


if __name__ == "__main__":
    print(f"code lines: {sum(map(code_lines, texts().values()))}")
    for name, value in house().items():
        print(f"{name}: {value}")
