"""Calls of a helper that lays a value out: which of its arguments is the value, and which the spec.

Such a call stands for the `reshard` or constraint in the helper (ir/source/call_location.py). What
is read of the helper is its own text: the call that it returns, on its parameters.
"""
from __future__ import annotations

import ast
from dataclasses import dataclass

from .....ir.source.location import Location, source_version
from .....ir.spec import PartitionSpec
from .....ir.support.caches import cached
from ....words import spec_text
from .statements import call_of, called_name, syntax_tree

SPECS = ("P", "PartitionSpec")
_Function = ast.FunctionDef | ast.Lambda


@dataclass(frozen=True)
class HelperCall:
    """A call of a helper. value: the argument that is laid out. spec: the argument that is the
    spec, if one is. entries: the arguments that are the entries of the spec, None if it has none.
    """
    text: str
    value: ast.expr
    spec: ast.expr | None
    entries: list[ast.expr] | None

    @property
    def operand(self) -> str:
        """The text of the value."""
        return ast.get_source_segment(self.text, self.value) or ""

    def with_spec(self, was: str, new: PartitionSpec) -> str:
        """The call with another spec; "" if the one that it has now is not written in it."""
        if self.entries is not None:
            if _said(self.entries) != was:
                return ""
            own = spec_text(new)[2:-1].replace("'", '"')
            end = (self.value, *self.entries)[-1].end_col_offset
            start = self.value.end_col_offset
            return f"{self.text[:start]}{', ' * bool(own)}{own}{self.text[end:]}"
        if not isinstance(self.spec, ast.Call) or self.spec.keywords or (
                called_name(self.spec) not in SPECS or _said(self.spec.args) != was):
            return ""
        written = ast.unparse(self.spec.func) + spec_text(new)[1:].replace("'", '"')
        return (self.text[:self.spec.col_offset] + written
                + self.text[self.spec.end_col_offset:])


def helper_call(at: Location, word: str) -> HelperCall | None:
    """The call at a location, of a helper that returns a call of `word` on its parameters; None if
    it is no such call, or goes through more helpers than one.
    """
    text = at.text()
    if len(at.passed) != 1:
        return None
    (inside,) = at.passed
    found = _returned_call(inside.file, source_version(inside.file), inside.line, inside.column)
    call = call_of(text)
    if found is None or call is None or any(
            isinstance(a, ast.Starred) for a in call.args):
        return None
    name, function, made = found
    if called_name(call) != name or called_name(made) != word or not made.args:
        return None
    parameters = [p.arg for p in (*function.args.posonlyargs, *function.args.args)]
    given = dict(zip(parameters, call.args, strict=False))
    given.update({k.arg: k.value for k in call.keywords if k.arg})
    value = given.get(_name(made.args[0]))
    if value is None or parameters[0] in ("self", "cls"):
        return None
    asked = [*made.args[1:], *[k.value for k in made.keywords]]
    spec = asked[0] if len(asked) == 1 else None
    if isinstance(spec, ast.Call) and called_name(spec) == "NamedSharding" and len(spec.args) == 2:
        spec = spec.args[1]
    rest, entries = function.args.vararg, None
    if rest is not None and isinstance(spec, ast.Call) and called_name(spec) in SPECS and (
            [*map(ast.unparse, spec.args)] == [f"*{rest.arg}"]
            and call.args[len(parameters) - 1:][:1] == [value]):
        entries = call.args[len(parameters):]
    return HelperCall(text, value, given.get(_name(spec)), entries)


def _name(node: ast.expr | None) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _said(entries: list[ast.expr]) -> str:
    """A spec with entries that are written out, in words; "" if they are not."""
    try:
        return spec_text(PartitionSpec(*map(ast.literal_eval, entries)))
    except (ValueError, TypeError):
        return ""


@cached(64, "calls that helpers return")
def _returned_call(file: str, version: tuple, line: int, column: int
                   ) -> tuple[str, _Function, ast.Call] | None:
    """(the name of the helper, the helper, the call) for a call at a place of a file that is in a
    helper without decorators.
    """
    tree = syntax_tree(file, version)
    if tree is None:
        return None
    names = {n.value: t.id for n in ast.walk(tree) if isinstance(n, ast.Assign)
             for t in n.targets if isinstance(t, ast.Name)}
    found = None
    for node in ast.walk(tree):                  # what is inside of another comes after it
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            name = node.name
        elif isinstance(node, ast.Lambda) and node in names:
            name = names[node]
        else:
            continue
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and (call.lineno, call.col_offset) == (line, column):
                found = name, node, call
                break
    return found
