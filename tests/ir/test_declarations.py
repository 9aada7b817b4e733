"""Declarations of ops read like a table: the same columns in the same order in every file.

The columns are the arguments of `defop`. What is read here is the source, since the order of
keyword arguments cannot be seen in an `Op`.
"""
from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardtrace.ir.op import defop

OPS = Path(inspect.getfile(defop)).parent / "ops"
COLUMNS = [name for name in inspect.signature(defop).parameters if name != "name"]

# What families take in place of a column, by the column that they make of it.
INSTEAD = {"kinds": "infer", "ranks": "infer", "result": "infer", "accepted": "infer",
           "many": "multiple_results", "function": "evaluate", "combine": "evaluate",
           "identity": "evaluate", "groups": "collective"}


def modules() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(OPS.rglob("*.py"))}


MODULES = modules()


def called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else ""


def families() -> set[str]:
    """`defop`, and the functions that give what another of them gives."""
    found = {"defop"}
    functions = [f for tree in MODULES.values() for f in tree.body
                 if isinstance(f, ast.FunctionDef)]
    while True:
        more = {f.name for f in functions for node in ast.walk(f)
                if isinstance(node, ast.Call) and called(node) in found} - found
        if not more:
            return found
        found |= more


FAMILIES = families()


def declarations(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called(node) in FAMILIES:
            yield node


def test_the_families_are_found():
    assert {"defop", "unary", "nary"} < FAMILIES
    assert sum(1 for tree in MODULES.values() for _ in declarations(tree)) > 150


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(OPS)))
def test_the_columns_of_declarations_stand_in_order(path):
    for call in declarations(MODULES[path]):
        names = [k.arg for k in call.keywords if k.arg is not None]
        places = [COLUMNS.index(INSTEAD.get(name, name)) for name in names]
        assert places == sorted(places), (
            f"{path}:{call.lineno}: {names} should stand as in `defop`: {COLUMNS}")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(OPS)))
def test_ops_are_declared_whole(path):
    """No field of an op is set behind its declaration."""
    for node in ast.walk(MODULES[path]):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                assert not (isinstance(target, ast.Attribute) and target.attr in COLUMNS), (
                    f"{path}:{node.lineno}")
