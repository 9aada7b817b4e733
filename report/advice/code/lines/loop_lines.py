"""How the user would write a loop whose steps no longer exchange, and the exchange behind it.

Two places change: the call of the collective in the step leaves its operand, and what the call of
`lax.scan` gives is exchanged.
"""
from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

from .....ir.program import Equation
from .....ir.source.location import Location
from .expressions import axes_text, expression
from .statements import Edit, as_operand, call_of, in_place, is_inside, module_of, statement_of

_REDUCTIONS = {"psum", "pmean", "pmax", "pmin"}


def reduced_behind(scan: Equation, reduction: Sequence[Equation], carried: bool, at: int,
                   count: int, missing: Sequence[str] = ()) -> tuple[Edit, ...]:
    """The edits for a scan of which one result is reduced behind it; none if they are not known.

    reduction: the equations of one call in the step. carried, at, count: the result is of these
    the at-th of so many that are carried, or stacked. missing: the mesh axes over which its start
    has to vary, since it varies over them in the steps.
    """
    total, loop = reduction[0].location, scan.location
    said, text = expression(reduction[0]), expression(scan)
    made, call = call_of(said, *_REDUCTIONS), call_of(text, "scan")
    if made is None or call is None or len(call.args) < 2 or not made.args:
        return ()
    if not module_of(made) or any(e.location.key != total.key for e in reduction):
        return ()
    axes = [*made.args[1:], *[k.value for k in made.keywords]]
    if not all(_is_constant(a) for a in axes):
        return ()                      # a name of the step may be another, or none, behind the loop
    operand = ast.get_source_segment(said, made.args[0]) or ""
    behind = said[made.args[0].end_col_offset:]
    func = ast.unparse(made.func)

    def over(value: str) -> str:
        return f"{func}({value}{behind}"

    replaced: list[tuple[int, int, str]] = []       # columns of the call of the loop
    if missing:
        start = _leaf(call.args[1], at, count)
        if start is None:
            return ()
        value = ast.get_source_segment(text, start)
        replaced.append((start.col_offset, start.end_col_offset or 0,
                         f'{module_of(made)}pcast({value}, {axes_text(missing)}, to="varying")'))
    edits: list[Edit] = []
    if is_inside(total, loop):
        column = total.column - loop.column
        replaced.append((column, column + len(said), as_operand(operand)))
    else:
        edits.append((total, in_place(total, operand)))
    for first, last, new in sorted(replaced, reverse=True):
        text = text[:first] + new + text[last:]
    around = _around(loop, text, over, 0 if carried else 1, at, count)
    return (*edits, around) if around is not None else ()


def _around(loop: Location, text: str, over: Callable[[str], str], place: int, at: int,
            count: int) -> Edit | None:
    """The edit by which a part of what a call of `lax.scan` gives is reduced: where it is read in
    the same expression, or where a name is bound to it.
    """
    line = loop.source_line()
    read = re.match(rf"\[{place}\]" + (rf"\[{at}\]" if count > 1 else ""), line[loop.end_column:])
    if read is not None:
        end = loop.end_column + read.end()
        return (Location.at(loop.file, loop.line, loop.column, loop.line, end),
                over(text + read[0]))
    stand = statement_of(loop)
    if stand is None or not isinstance(stand.node, ast.Assign) or len(stand.node.targets) != 1:
        return None
    target = stand.node.targets[0]
    whole = line[loop.column:loop.end_column]
    if not isinstance(target, ast.Tuple) or len(target.elts) != 2 or (
            stand.text[stand.column:] != whole):
        return None
    name = _leaf(target.elts[place], at, count)
    if not isinstance(name, ast.Name):
        return None
    return stand.with_lines([], stand.text[:stand.column] + text, [
        f"{name.id} = {over(name.id)}"])


def _leaf(tree: ast.expr, at: int, count: int) -> ast.expr | None:
    """The at-th of `count` values that an expression stands for; None if that cannot be told."""
    if isinstance(tree, ast.Tuple):
        plain = len(tree.elts) == count and not any(
            isinstance(e, ast.Starred | ast.Tuple | ast.List | ast.Dict) for e in tree.elts)
        return tree.elts[at] if plain else None
    return tree if count == 1 and not isinstance(tree, ast.List | ast.Dict) else None


def _is_constant(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True
