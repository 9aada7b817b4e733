"""Declarations of ops read like a table: the same columns in the same order in every file.

The columns are the arguments of `defop`. What is read here is the source, since the order of
keyword arguments cannot be seen in an `Op`.
"""
from __future__ import annotations

import ast
import functools
import inspect
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from shardtrace.ir.op import defop

from ...rows import rows

OPS = Path(inspect.getfile(defop)).parent / "ops"
COLUMNS = [name for name in inspect.signature(defop).parameters if name != "name"]

# What families take in place of a column, by the column that they make of it.
INSTEAD = {"kinds": "infer", "ranks": "infer", "result": "infer", "accepted": "infer",
           "many": "multiple_results", "function": "evaluate", "chosen": "evaluate",
           "combine": "evaluate", "identity": "evaluate", "narrowed": "evaluate",
           "reduces": "collective", "groups": "collective"}


PATHS = sorted(OPS.rglob("*.py"))


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else ""


@functools.cache
def families() -> set[str]:
    """`defop`, and the functions that give what another of them gives."""
    found = {"defop"}
    functions = [f for path in PATHS for f in parsed(path).body
                 if isinstance(f, ast.FunctionDef)]
    while True:
        more = {f.name for f in functions for node in ast.walk(f)
                if isinstance(node, ast.Call) and called(node) in found} - found
        if not more:
            return found
        found |= more


def declarations(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called(node) in families():
            yield node


def test_the_families_are_found():
    assert {"defop", "unary", "nary"} < families()
    assert sum(1 for path in PATHS for _ in declarations(parsed(path))) > 150


@rows("path", PATHS)
def test_the_columns_of_declarations_stand_in_order(path):
    for call in declarations(parsed(path)):
        names = [k.arg for k in call.keywords if k.arg is not None]
        places = [COLUMNS.index(INSTEAD.get(name, name)) for name in names]
        assert places == sorted(places), (
            f"{path}:{call.lineno}: {names} should stand as in `defop`: {COLUMNS}")


@rows("path", PATHS)
def test_ops_are_declared_whole(path):
    """No field of an op is set after its declaration."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                assert not (isinstance(target, ast.Attribute) and target.attr in COLUMNS), (
                    f"{path}:{node.lineno}")


@rows("path", PATHS)
def test_functions_of_one_declaration_stand_in_the_order_of_its_columns(path):
    """What a column names, and nothing else in the file does, is defined in the columns' order."""
    tree = parsed(path)
    lines = {f.name: f.lineno for f in tree.body if isinstance(f, ast.FunctionDef)}
    uses = Counter(n.id for n in ast.walk(tree) if isinstance(n, ast.Name))
    for call in declarations(tree):
        own = []
        for column in call.keywords:
            if column.arg is not None:
                found = Counter(n.id for n in ast.walk(column.value) if isinstance(n, ast.Name))
                own.append([lines[name] for name, count in found.items()
                            if name in lines and uses[name] == count])
        last = 0
        for column in filter(None, own):
            assert last < min(column), f"{path}:{call.lineno}: helper in line {min(column)}"
            last = max(column)
