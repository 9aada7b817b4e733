"""Remedies that an error names: written into the user's code, tried there, and shown if they work.

For a loop whose carry changes its type, branches that differ, or a list where an array belongs, the
place that raises the error knows what would help (`Remedy`, ir/diagnostics/diagnostic.py). This
module finds the code to change: an argument of the failing call, an item of it, or what a function
passed to it returns. The change is tried by tracing the user's function, or only the call if that
runs eagerly. If no such code is found or the change does not work, only the remedy's words are
shown.
"""
from __future__ import annotations

import ast
import inspect
import itertools
import re
import types
from collections.abc import Iterator
from typing import Any

from ...ir.api_boundary import inner
from ...ir.diagnostics.diagnostic import Diagnostic, Fix, Remedy
from ...ir.settings.context import STATE
from ...ir.spec import PartitionSpec
from ...ir.support.immutable import replace
from ..trees import tree
from .rerun import Rerun, traced
from .rewrites import Changed, Rewrites
from .user_code import Place, is_pure, operands, resolved_function

# The parameters that play a role: what a loop begins with, and its body (whose result has the carry
# at a path; the carry of the loop that a `fori_loop` is made of holds its value at the end).
_ROLES = {"scan": {"init": "init", "body": "f", "items": "xs"},
          "while_loop": {"init": "init_val", "body": "body_fun"},
          "fori_loop": {"init": "init_val", "body": "body_fun"},
          "cond": {"true_fun": "true_fun", "false_fun": "false_fun"},
          "switch": {"branches": "branches"}}
_ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Tuple, ast.List, ast.Dict)
_TRIES = 6


def tried(place: Place, diagnostic: Diagnostic) -> Diagnostic:
    """The diagnostic with the remedies that work as code, and the others in words."""
    found = Remedies(place)
    helps: list[Any] = []
    fixes: list[Fix] = []
    for remedy in diagnostic.help:
        fix = found.fix(remedy) if isinstance(remedy, Remedy) else None
        helps.append(str(remedy) if fix is None else place.printed(fix[0], fix[1], str(remedy)))
        fixes += [fix[0]] if fix is not None else []
    return replace(diagnostic, help=tuple(helps), fixes=(*diagnostic.fixes, *fixes))


class Remedies(Rewrites):
    """What remedies are at a place of the user's code."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.again = Rerun(place, self.names.imported)

    def fix(self, remedy: Remedy) -> tuple[Fix, ast.AST] | None:
        """The change that works, and the part of the code that it changes."""
        for tries, (node, text, function) in enumerate(self._changes(remedy)):
            if tries == _TRIES:
                break
            fix = self.place.fix(node, text, tuple(dict.fromkeys(self.imports)))
            if self._works(fix, node, text, function, remedy.role == "mesh"):
                return fix, node
            self.imports = ()
        return None

    def _works(self, fix: Fix, node: ast.AST, text: str, function: tuple[str, Any] | None,
               places: bool) -> bool:
        """Does the code run with the change? places: the change says where arrays are placed, which
        shows only in a run.
        """
        place = self.place
        last = place.region()[1] + text.count("\n") - place.text(node).count("\n")
        ran = self.again.runs(fix, last)
        if self.again.possible and (ran is False or self._inside(node)):
            return ran is not False
        call: Any = place.node
        parts = [call] if function is None or function[1] else [*call.args, *call.keywords]
        if isinstance(node, ast.Assign | ast.AugAssign):
            parts.append(node.value)
        if not all(is_pure(part, place, bodies=True) for part in parts):
            return False
        scope = {**place.scope(), **self.names.imported}
        source = f"({place.text(call)}\n)"
        if function is not None and function[1] is None:         # it is jitted anew
            try:
                scope[function[0]] = self.made(text)
            except Exception:
                return False
        elif function is not None:
            changed = self.again.with_change(fix, function[1])
            if changed is None:
                return False
            scope[function[0]] = changed
        elif self._contains(call, node):
            source = f"({place.edited(call, {node: text})}\n)"
        elif not self._contains(node, call):
            return False
        else:
            source = text
        try:
            code = compile(source, "<edited>", "exec")
            traced(lambda: exec(code, scope))
            if places and place.is_eager:
                exec(code, scope)
        except Exception:
            return False
        return True

    def _contains(self, whole: ast.AST, part: ast.AST) -> bool:
        while part is not whole and part in self.place.parents:
            part = self.place.parents[part]
        return part is whole

    def _inside(self, node: ast.AST) -> bool:
        """Is this a part of the function that was run again?"""
        first = self.again.frame.f_code.co_firstlineno
        last = max((line for *_, line in self.again.frame.f_code.co_lines() if line), default=first)
        inside: Any = node
        while not isinstance(inside, ast.FunctionDef | ast.Lambda) or not (
                first <= inside.lineno <= last):
            if inside not in self.place.parents:
                return False
            inside = self.place.parents[inside]
        return True

    # -- where -------------------------------------------------------------------------------------
    def _changes(self, remedy: Remedy) -> Iterator[Changed]:
        """What could be changed: (part of the code, text for it, the function that it is in)."""
        place = self.place
        role, _, name = remedy.role.partition(" ")
        special = {"mesh": self.with_mesh, "update": self.update, "numpy": self.own_function}
        if role in special:
            yield from special[role]()
        elif role == "static":
            yield from self.static(name)
        elif role == "index":
            if isinstance(place.node, ast.Subscript):
                yield from self._written(remedy, place.node.slice, place.node.slice, [])
        elif role == "operand":
            found = {**dict.fromkeys(getattr(place.node, "args", ())),
                     **dict.fromkeys(operands(place))}
            for node, part in itertools.product(found, remedy.parts):
                yield from self._written(replace(remedy, parts=(part,)), node, node, [])
        elif remedy.role.isdecimal():
            node, at = place.node, int(remedy.role)
            if isinstance(node, ast.Call) and at < len(node.args) and not any(
                    isinstance(a, ast.Starred) for a in node.args):
                yield from self._written(remedy, node.args[at], node.args[at], [])
        else:
            yield from self._of_role(remedy)

    def _of_role(self, remedy: Remedy) -> Iterator[Changed]:
        """`_changes` of a remedy for what a loop or branch is given or returns: the argument itself
        ("init", "items"), or what the function passed as one returns.
        """
        function = inner(resolved_function(self.place))
        name = getattr(function, "__name__", "")
        role, _, index = remedy.role.partition(" ")
        parameter = _ROLES.get(name, {}).get(role)
        node: Any = parameter and self._argument(function, parameter)
        if node is None or not node:
            return
        if index:
            if not isinstance(node, ast.Tuple | ast.List) or int(index) >= len(node.elts):
                return
            node = node.elts[int(index)]
        drop = 1 if name == "fori_loop" else 0
        if role in ("init", "items"):
            yield from self._written(remedy, node, node, [], drop)
            return
        body, held = self._body(node)
        if body is not None:
            yield from self._written(remedy, body, body, [0] if name == "scan" else [], drop, held)

    def _argument(self, function: Any, parameter: str) -> ast.expr | None:
        """The expression that the call passes for a parameter; None if that cannot be told, as for
        `*args`.
        """
        call: Any = self.place.node
        if any(isinstance(a, ast.Starred) for a in call.args) or any(
                k.arg is None for k in call.keywords):
            return None
        try:
            bound = inspect.signature(function).bind(
                *call.args, **{k.arg: k.value for k in call.keywords})
        except (TypeError, ValueError):
            return None
        return bound.arguments.get(parameter)

    def _body(self, node: ast.expr) -> tuple[Any, tuple[str, Any] | None]:
        """What the function that an expression names returns, and its name and value."""
        if isinstance(node, ast.Lambda):
            return node.body, None
        function = self.place.lookup(node.id) if isinstance(node, ast.Name) else None
        if not isinstance(function, types.FunctionType) or (
                function.__code__.co_filename != self.place.file):
            return None, None
        definition = self.definition(function)
        if isinstance(definition, ast.Lambda):
            return definition.body, (node.id, function)  # type: ignore[attr-defined]
        returns = [r for r in _own_nodes(definition) if isinstance(r, ast.Return)] if (
            definition is not None) else []
        if len(returns) != 1 or returns[0].value is None:
            return None, None
        return returns[0].value, (node.id, function)     # type: ignore[attr-defined]

    # -- what --------------------------------------------------------------------------------------
    def _written(self, remedy: Remedy, whole: Any, root: Any, prefix: list[Any], drop: int = 0,
                 function: tuple[str, Any] | None = None
                 ) -> Iterator[Changed]:
        """The code `whole` with all the remedy's parts written."""
        replaced: dict[ast.AST, str] = {}
        top = whole
        for path, template, spec in remedy.parts:
            node = self._at(root, [*prefix, *map(_key, path[drop:])])
            text = None if node is None else self._text(node, template, spec, remedy)
            if node is None or text is None:
                return
            replaced[node] = text
            if not self._contains(whole, node):
                top = self._assigned(node)
        if replaced and all(self._contains(top, node) for node in replaced):
            yield top, self.place.edited(top, replaced), function

    def _assigned(self, node: Any) -> Any:
        while not isinstance(self.place.parents[node], ast.stmt):
            node = self.place.parents[node]
        return node

    def _text(self, node: Any, template: str, spec: PartitionSpec | None, remedy: Remedy
              ) -> str | None:
        """A part of the code as a template writes it: `@` is the code itself, `$` the sharding of a
        spec, `{reshard}` the function by the name it has here. None if the spec cannot be written
        here.
        """
        code = self.place.text(node)
        simple = isinstance(node, _ATOMS) or "(@" in template
        if spec is not None:
            sharding = self._sharding(spec, remedy)
            if sharding is None:
                return None
            template = template.replace("$", sharding)

        def named(match: re.Match[str]) -> str:
            text, imports = self.names.of(match[1])
            self.imports += imports
            return text

        return re.sub(r"\{([\w.]+)\}", named, template).replace(
            "@", code if simple else f"({code})")

    def _sharding(self, spec: PartitionSpec, remedy: Remedy) -> str | None:
        """A spec as it is written here: alone under a context mesh, else as a `NamedSharding` on
        the mesh by a name that it has here. None if it has none.
        """
        text, imports = self.names.spec(spec.entries)
        self.imports += imports
        for word, axes in (("unreduced", spec.unreduced), ("reduced", spec.reduced)):
            if axes:
                text = f"{text[:-1]}{', ' if spec.entries else ''}{word}={set(axes)!r})"
        if not STATE.abstract_mesh.empty:
            return text
        mesh = self.names.mesh(remedy.mesh)
        if mesh is None:
            return None
        sharding, more = self.names.of("NamedSharding")
        self.imports += more
        return f"{sharding}({mesh}, {text})"

    def _at(self, node: Any, path: list[Any], depth: int = 4) -> Any:
        """The part of a literal, or of what a name was given, at a path of keys; else None."""
        if not path:
            return node
        key, rest = path[0], path[1:]
        if isinstance(node, ast.Tuple | ast.List) and isinstance(key, int):
            whole = not any(isinstance(x, ast.Starred) for x in node.elts)
            return self._at(node.elts[key], rest) if whole and key < len(node.elts) else None
        if isinstance(node, ast.Dict):
            for k, value in zip(node.keys, node.values, strict=True):
                if isinstance(k, ast.Constant) and k.value == key:
                    return self._at(value, rest)
        if isinstance(node, ast.Call):
            return self._at_field(node, key, rest)
        if isinstance(node, ast.Name) and depth:
            values = [n.value for n in self.all_nodes() if isinstance(n, ast.Assign)
                      and len(n.targets) == 1 and isinstance(n.targets[0], ast.Name)
                      and n.targets[0].id == node.id and self._function_of(n) is (
                          self._function_of(node))]
            return self._at(values[0], path, depth - 1) if len(values) == 1 else None
        return None

    def _at_field(self, call: ast.Call, key: Any, rest: list[Any]) -> Any:
        """The argument of a call that makes a record: `State(a, b)`, `dict(a=..., b=...)`."""
        for k in call.keywords:
            if k.arg is not None and k.arg == key:
                return self._at(k.value, rest)
        made = self.place.lookup(call.func.id) if isinstance(call.func, ast.Name) else None
        fields = getattr(made, "_fields", None) or tuple(
            getattr(made, "__dataclass_fields__", ()))
        at = fields.index(key) if key in fields else key if isinstance(key, int) else len(call.args)
        return self._at(call.args[at], rest) if at < len(call.args) and fields else None

    def _function_of(self, node: ast.AST) -> ast.AST | None:
        at: ast.AST | None = node
        while at is not None and not isinstance(at, ast.FunctionDef | ast.Lambda):
            at = self.place.parents.get(at)
        return at


def _own_nodes(definition: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions inside."""
    waiting = list(ast.iter_child_nodes(definition))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def _key(step: Any) -> Any:
    """What a step of a path of a pytree is in code."""
    if isinstance(step, tree.SequenceKey):
        return step.idx
    return step.name if isinstance(step, tree.GetAttrKey) else getattr(step, "key", step)
