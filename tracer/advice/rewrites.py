"""Remedies that rewrite the user's whole expression.

A spec without a mesh becomes a NamedSharding, an item assignment becomes an update, a call of numpy
becomes one of this library; a non-array argument becomes static where the function is jitted.
"""
from __future__ import annotations

import ast
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

from ...ir.api_boundary import inner
from ...ir.meshes.mesh import Mesh
from ...ir.source.location import PACKAGE
from ...ir.spec import PartitionSpec
from .names import Names
from .rerun import traced
from .user_code import Place, is_pure, resolved_function

_UPDATES = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide",
            ast.Pow: "power"}
Changed = tuple[Any, str, tuple[str, Any] | None]
"""Part of the code, text for it, and the name and value of the function in which it is, if it is
in another one (None for the value: the change makes it)."""


class Rewrites:
    """What whole forms can be written at a place of the user's code."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.names = Names(place.scope(), place.lines)
        self.imports: tuple[str, ...] = ()
        self.raw: Any = None             # a function that is to be jitted otherwise
        self.decorates = False           # and whether a decorator does that

    def with_mesh(self) -> Iterator[Changed]:
        """Specs among the arguments, with the only mesh that is in scope."""
        meshes = {v for v in self.names.scope.values() if isinstance(v, Mesh)}
        mesh = self.names.mesh()
        if mesh is None or len(meshes) > 1 or not isinstance(self.place.node, ast.Call):
            return
        sharding, imports = self.names.of("NamedSharding")
        replaced: dict[ast.AST, str] = {}
        waiting: list[ast.AST] = [*self.place.node.args,
                                  *(k.value for k in self.place.node.keywords)]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Name | ast.Attribute | ast.Call) and is_pure(node, self.place):
                if isinstance(self.value(node), PartitionSpec):
                    replaced[node] = f"{sharding}({mesh}, {self.place.text(node)})"
            elif isinstance(node, ast.Tuple | ast.List | ast.Dict):
                waiting += ast.iter_child_nodes(node)
        if replaced:
            self.imports = imports
            yield self.place.node, self.place.edited(self.place.node, replaced), None

    def value(self, node: ast.AST) -> Any:
        try:
            code = compile(f"({self.place.text(node)}\n)", "<part>", "eval")
            return traced(lambda: eval(code, self.place.scope()))
        except Exception:
            return None

    def own_function(self) -> Iterator[Changed]:
        """A call of a numpy function, as one of the function of that name of ours."""
        node = self.place.node
        function = getattr(resolved_function(self.place), "__name__", "")
        if isinstance(node, ast.Call) and hasattr(sys.modules[f"{PACKAGE}.numpy"], function):
            text, self.imports = self.names.of(f"numpy.{function}")
            yield node, self.place.edited(node, {node.func: text}), None

    def static(self, name: str) -> Iterator[Changed]:
        """Where the function that is called is jitted, with an argument of that name static."""
        call: Any = self.place.node
        called = call.func.id if isinstance(getattr(call, "func", None), ast.Name) else ""
        jitted = self.place.lookup(called) if called else None
        function = getattr(jitted, "__wrapped__", None)
        if not isinstance(function, types.FunctionType) or (
                function.__code__.co_filename != self.place.file):
            return
        self.raw = function
        definition = self.definition(function)
        sites = [(d, True) for d in getattr(definition, "decorator_list", ())] + [
            (n.value, False) for n in self.all_nodes() if isinstance(n, ast.Assign)
            and len(n.targets) == 1 and isinstance(n.targets[0], ast.Name)
            and n.targets[0].id == called]
        for site, decorates in sites:
            text = self._with_static(site, name)
            if text is not None and len(sites) == 1:
                self.decorates = decorates
                yield site, text, (called, None)

    def _with_static(self, site: ast.expr, name: str) -> str | None:
        """What makes a function jitted with `static_argnames`, by the way it is jitted now: a bare
        `jit`, or a call that has no static arguments yet. None for anything else.
        """
        place = self.place
        if isinstance(site, ast.Name | ast.Attribute) and _is_jit(self.value(site)):
            partial = next((f"{known}.partial" for known, value in self.names.scope.items()
                            if value is functools), "functools.partial")
            if "functools" not in self.names.scope and partial.startswith("functools"):
                self.names.imported["functools"], self.imports = functools, ("import functools",)
            return f"{partial}({place.text(site)}, static_argnames={name!r})"
        if not isinstance(site, ast.Call):
            return None
        jits = _is_jit(self.value(site.func)) or bool(site.args) and (
            self.value(site.func) is functools.partial and _is_jit(self.value(site.args[0])))
        if not jits or any((k.arg or "static").startswith("static") for k in site.keywords):
            return None
        head = place.text(site)[:-1].rstrip().removesuffix(",")
        return f"{head}{'' if head.endswith('(') else ', '}static_argnames={name!r})"

    def made(self, text: str) -> Any:
        """The jitted function as it is then."""
        scope = {**self.place.scope(), **self.names.imported}
        made = eval(text, scope)
        return made(self.raw) if self.decorates else made

    def update(self) -> Iterator[Changed]:
        """`x[i] = v` and `x[i] += v` as updates, which give a new array."""
        place = self.place
        node: Any = place.node
        node = node.target if isinstance(node, ast.AugAssign) else node
        statement: Any = place.parents.get(node)
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
            return
        array, index = place.text(node.value), place.text(node.slice)
        if isinstance(statement, ast.Assign) and statement.targets == [node]:
            how = "set"
        elif isinstance(statement, ast.AugAssign) and type(statement.op) in _UPDATES:
            how = _UPDATES[type(statement.op)]
        else:
            return
        value = place.text(statement.value)
        changed = f"{array}.at[{index}].{how}({value})"
        yield statement, f"{array} = {changed}", None

    def definition(self, function: types.FunctionType) -> Any:
        line = function.__code__.co_firstlineno
        kind = ast.Lambda if function.__name__ == "<lambda>" else ast.FunctionDef
        found = [n for n in self.all_nodes() if isinstance(n, kind) and line == min(
            [n.lineno, *(d.lineno for d in getattr(n, "decorator_list", ()))])]
        return found[0] if len(found) == 1 else None

    def all_nodes(self) -> Iterator[ast.AST]:
        return iter(self.place.parents)


def _is_jit(value: Any) -> bool:
    return inner(value) is inner(sys.modules[PACKAGE].jit)
