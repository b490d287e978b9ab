"""What a room lends to others is documented: each function that another room imports names its parameters and what it returns."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "roofplan"


def modules():
    """Return the syntax tree of every module by its name."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(("roofplan", *parts)).removesuffix(".__init__")] = ast.parse(path.read_text())
    return found


def room(module):
    """Return the folder, or the file, that a module stands in."""
    return module.split(".")[1] if "." in module else ""


def defined(modules, module, name):
    """Return where a function is defined that a module offers, and its definition; None for what is no function of ours."""
    for node in modules.get(module, ast.Module([], [])).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return module, node
        if isinstance(node, ast.ImportFrom) and node.module:
            for one in node.names:
                if (one.asname or one.name) == name:
                    return defined(modules, node.module, one.name)
    return None


def is_question(function):
    """Return whether a function answers a question: its docstring is the command's help."""
    names = [
        one.func.id for one in function.decorator_list if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)
    ]
    return "question" in names


def lent(modules):
    """Return the functions that some other room imports, by module and name."""
    found = {}
    for module, tree in modules.items():
        files = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("roofplan"):
                for one in node.names:
                    if f"{node.module}.{one.name}" in modules:
                        files[one.asname or one.name] = f"{node.module}.{one.name}"
                    else:
                        found[module, node.module, one.name] = defined(modules, node.module, one.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in files:
                found[module, files[node.value.id], node.attr] = defined(modules, files[node.value.id], node.attr)
    return {
        (where[0], where[1].name): where[1]
        for (module, _, _), where in found.items()
        if where and not is_question(where[1]) and room(where[0]) not in {room(module), "laws"}
    }


def gaps(function):
    """Return the sections and parameters that the docstring of a function lacks."""
    said, args = ast.get_docstring(function) or "", function.args
    given = [one.arg for one in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    returns = not (isinstance(function.returns, ast.Constant) and function.returns.value is None)
    raises = any(isinstance(node, ast.Raise) for node in ast.walk(function))
    listed = said.partition("Parameters\n----------")[2].partition("\n\n")[0]
    wanted = {"Parameters": bool(given), "Returns": returns, "Raises": raises}
    missing = [title for title, needed in wanted.items() if needed and f"{title}\n{'-' * len(title)}" not in said]
    return missing + [one for one in given if one not in listed]


@pytest.mark.slow
def test_what_other_rooms_import_is_documented():
    functions = lent(modules())
    assert len(functions) > 200
    assert {name: found for name, function in functions.items() if (found := gaps(function))} == {}
