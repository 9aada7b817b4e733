"""How the user would write a loop that is given what its steps compute from their items alone.

The lines by which a step computes that move in front of the loop, as a function of the item that is
mapped over all of them; the step reads a part of the result beside its item:

    def step(state, x):                     def step(state, items):
        h = x @ w                               x, h = items
        return jnp.tanh(state + h), None        return jnp.tanh(state + h), None
    lax.scan(step, start, xs)               h_ = jax.vmap(lambda x: x @ w)(xs)
                                            lax.scan(step, start, (xs, h_))
"""
from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import NamedTuple

from .....ir.program import Equation
from .....ir.source.location import Location, source_version
from .expressions import expression
from .statements import (
    Edit,
    Statement,
    call_of,
    names_in,
    path_of,
    statement_of,
    syntax_tree,
    unused,
)

_SCOPES = (ast.FunctionDef, ast.Lambda)


class _Taken(NamedTuple):
    """An expression of a step that is computed ahead. name: what the step calls it; own: is it the
    whole value of a statement that gives it that name?
    """
    at: Location
    statement: Statement
    name: str
    own: bool


def computed_ahead(scan: Equation, made: Sequence[Equation], together: bool) -> tuple[Edit, ...]:
    """The edits by which what some equations of a step compute is computed ahead of a loop; none if
    they are not known. together: for all steps at once rather than in a loop.
    """
    loop = scan.location
    call, stand = call_of(expression(scan), "scan"), statement_of(loop)
    step = None if call is None or not call.args else _step(call.args[0], made[0].location)
    if call is None or stand is None or step is None:
        return ()
    items = next((k.value for k in call.keywords if k.arg == "xs"),
                 call.args[2] if len(call.args) > 2 else None)
    parameters = [a.arg for a in step.args.args]
    places = {e.location.key: e.location for e in made}
    taken = _taken(step, [*places.values()])
    if items is None or not taken or len(parameters) != 2:
        return ()
    needed = _needed(step, taken, parameters[1])
    xs = ast.get_source_segment(expression(scan), items)
    if needed is None or xs is None or not _is_visible(step, loop, needed, taken):
        return ()
    both, found = unused(loop, "items", "ahead")
    texts = [t.at.text() for t in taken]
    value = texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
    mapped = f"{path_of(loop, 'vmap')}({{}})({xs})" if together else (
        f"{path_of(loop, 'lax')}.map({{}}, {xs})")
    names = ", ".join([t.name for t in taken])
    if needed:
        body = "".join([f"\n{' ' * (stand.location.column + 4)}{s.text}" for s in needed])
        before = [f"def {found}_of({parameters[1]}):{body}\n"
                  f"{' ' * (stand.location.column + 4)}return {value}",
                  f"{found} = {mapped.format(f'{found}_of')}"]
    else:
        before = [f"{found} = {mapped.format(f'lambda {parameters[1]}: {value}')}"]
    line = stand.text
    start = stand.column + items.col_offset
    end = stand.column + (items.end_col_offset or 0)
    edits = [stand.with_lines(before, f"{line[:start]}({xs}, {found}){line[end:]}"),
             _with_items(step, loop.file, both, (
                 f"{parameters[1]}, {names if len(taken) == 1 else f'({names})'}"))]
    kept = _kept(step, [*[t.statement for t in taken if t.own], *needed])
    for t in taken:
        edits.append((t.statement.location, "") if t.own else (t.at, t.name))
    edits += [(s.location, "") for s in needed if s.location.line not in kept]
    return () if None in edits else tuple([e for e in edits if e is not None])


def _step(name: ast.expr, at: Location) -> ast.FunctionDef | None:
    """The function that a loop runs, if a place is in it and in no other function in it; also if it
    is passed through another one, as `checkpoint(step)`.
    """
    while isinstance(name, ast.Call) and name.args:
        name = name.args[0]
    tree = syntax_tree(at.file, source_version(at.file))
    if tree is None or not isinstance(name, ast.Name):
        return None
    around = [n for n in ast.walk(tree) if isinstance(n, _SCOPES)
              and n.lineno <= at.line <= (n.end_lineno or 0)]
    inmost = max(around, key=lambda n: (n.lineno, n.col_offset), default=None)
    return inmost if isinstance(inmost, ast.FunctionDef) and inmost.name == name.id else None


def _taken(step: ast.FunctionDef, places: Sequence[Location]) -> list[_Taken]:
    """The expressions at some places in a step; none if one is not written in a statement of its
    own body.
    """
    found: list[_Taken] = []
    fresh = unused(places[0], *[f"part{i or ''}" for i in range(len(places))])
    lines = {s.lineno for s in step.body}
    for at, other in zip(places, fresh, strict=True):
        stand = statement_of(at)
        if stand is None or stand.location.line not in lines or any(
                at.file != places[0].file for at in places):
            return []
        node = stand.node
        own = isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(
            node.targets[0], ast.Name) and stand.text[stand.column:] == at.text()
        name = stand.text[:stand.column].partition("=")[0].strip() if own else other
        found.append(_Taken(at, stand, name, own))
    return found


def _needed(step: ast.FunctionDef, taken: Sequence[_Taken], item: str) -> list[Statement] | None:
    """The statements of a step that what is computed ahead needs, in order; None if one of them is
    no assignment in the step's own body, or reads what the step is handed by the one before.
    """
    file, carry = taken[0].at.file, step.args.args[0].arg
    first = max(t.at.line for t in taken)
    wanted = set[str]().union(*[names_in(t.at.text()) for t in taken])
    found: list[Statement] = []
    for node in reversed([s for s in step.body if s.lineno < first]):
        if not _bound_in(node) & wanted:
            continue
        line = Location.at(file, node.lineno).source_line()
        text = line[node.col_offset:node.end_col_offset]
        if not isinstance(node, ast.Assign) or node.lineno != node.end_lineno:
            return None
        wanted |= names_in(ast.unparse(node.value))
        own = next((t for t in taken if t.own and t.at.line == node.lineno), None)
        if own is not None:
            continue
        found.insert(0, Statement(Location.at(
            file, node.lineno, node.col_offset, node.lineno, node.end_col_offset), node, text, 0))
    return None if carry in wanted and carry != item else found


def _kept(step: ast.FunctionDef, gone: Sequence[Statement]) -> set[int]:
    """The lines of those of some statements whose names the other statements of a step read."""
    lines = {s.location.line for s in gone}
    left = [n for s in step.body if s.lineno not in lines for n in ast.walk(s)]
    read = {n.id for n in left if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    kept = set[int]()
    for s in reversed(gone):
        if _bound_in(s.node) & read:
            kept.add(s.location.line)
            read |= names_in(ast.unparse(s.node))
    return kept


def _is_visible(step: ast.FunctionDef, loop: Location, needed: Sequence[Statement],
                taken: Sequence[_Taken]) -> bool:
    """Do names that a step reads from outside mean the same where the loop is called: in the
    function that has the step, or in one inside of that which does not bind them?
    """
    tree = syntax_tree(loop.file, source_version(loop.file))
    if tree is None or loop.file != taken[0].at.file:
        return False
    own = {step.args.args[1].arg}.union(*[_bound_in(s.node) for s in needed])
    free = set[str]().union(*[names_in(t.at.text()) for t in taken],
                            *[names_in(ast.unparse(s.node)) for s in needed]) - own
    around = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]

    def holders(line: int) -> list[ast.FunctionDef]:
        return [n for n in around if n is not step and n.lineno <= line <= (n.end_lineno or 0)]

    of_step, of_loop = holders(step.lineno), holders(loop.line)
    inside = [n for n in of_loop if n not in of_step]
    bound = {name for n in inside for name in (_bound_in(n) | {a.arg for a in n.args.args})}
    return all(n in of_loop for n in of_step) and free.isdisjoint(bound)


def _with_items(step: ast.FunctionDef, file: str, name: str, unpacked: str) -> Edit | None:
    """The first line of a step with another name for its item, and the line that unpacks it."""
    line = Location.at(file, step.lineno).source_line()
    item, first = step.args.args[1], step.body[0]
    if item.lineno != step.lineno or first.lineno <= step.lineno or item.annotation is not None:
        return None
    start, end = item.col_offset, item.end_col_offset
    text = f"{line[step.col_offset:start]}{name}{line[end:]}".rstrip()
    if not re.search(r":\s*(#.*)?$", text):
        return None
    return (Location.at(file, step.lineno, step.col_offset, step.lineno, len(line)),
            f"{text}\n{' ' * first.col_offset}{unpacked} = {name}")


def _bound_in(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)
            and isinstance(n.ctx, ast.Store)}
