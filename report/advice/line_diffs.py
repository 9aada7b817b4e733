"""The user's lines before and after changes, where the replacement can be written as code.

What a rewrite of code writes is declared with it. A constraint that is inserted is a call around
the expression that computes the value. One that is taken out, or gets another spec, and a
collective that a body does not need are calls: their first argument is left, or the spec that is
written in the call is another one, also in a call of a helper that makes the call.
"""
from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from ...ir.source.location import Location
from ...ir.spec import PartitionSpec
from ..reasons.causes import where
from ..words import spec_text
from .changes import Change, Constrain, Respec
from .code.changes import Rewritten
from .code.left_axes import LeaveAxes, map_call
from .code.lines.helper_calls import SPECS, helper_call
from .code.lines.layouts import laid_out
from .code.lines.statements import (
    Edit,
    as_operand,
    call_of,
    called_name,
    in_place,
    is_inside,
    rebound_name,
)
from .code.shard_map_bodies import Given, Unsum
from .interleaving.change import Interleave


def line_diffs(changes: Sequence[Change]) -> Iterator[tuple[str, str]]:
    """The lines that changes are of, and what stands there instead: one for all of a line, where
    what replaces an expression replaces those inside of it, too; none of the code if that of some
    expression cannot be told.
    """
    code = [c for c in changes if isinstance(c, Rewritten)]
    written = {where(c.location)[:-1] for c in code if c.edits}
    if any(where(c.location)[:-1] not in written for c in code):
        changes = [c for c in changes if not isinstance(c, Rewritten)]
    lines: dict[tuple[str, int], dict[tuple[int, int], tuple[Location, str]]] = {}
    for c in changes:
        for at, code in edits_of(c):
            found = lines.setdefault((at.file, at.line), {})
            span = at.column, at.end_column
            if span in found and at.column == at.end_column:        # another line behind
                code = found[span][1] + code
            found[span] = at, code
    for _, found in sorted(lines.items()):
        whole = [one for one in found.values() if not any(
            is_inside(one[0], other[0]) for other in found.values() if other is not one)]
        yield _line(sorted(whole, key=lambda one: -one[0].column))


def _line(replaced: Iterable[tuple[Location, str]]) -> tuple[str, str]:
    """A line, and that line with expressions replaced, the last one first; nothing if it gives a
    name its own value then.
    """
    line = now = ""
    replaced = [*replaced]
    for at, code in replaced:
        line = line or at.source_line()
        now = now or line
        now = f"{now[:at.column]}{code}{now[at.end_column:]}"
    name, _, value = now.strip().partition(" = ")
    needless = name == value.partition(" #")[0].strip() and any(
        [rebound_name(at) for at, _ in replaced])
    gone = any(not code for _, code in replaced) and not now.partition("#")[0].strip()
    return line.strip(), "" if needless or gone else now.strip()


def edits_of(change: Change) -> tuple[Edit, ...]:
    """The edits that make a change; none if they cannot be told."""
    if isinstance(change, Rewritten | LeaveAxes | Interleave):
        return change.edits
    if isinstance(change, Constrain):
        return laid_out(change.location, change.name, change.word, change.spec, change.axes) if (
            change.written) else ()
    if isinstance(change, Respec | Given | Unsum) and (code := _code_of(change)):
        specs = _given_specs(change) if isinstance(change, Given) else ()
        return ((change.location, code), *specs)
    return ()


def _given_specs(change: Given) -> Iterator[Edit]:
    """The call of `shard_map` with the spec that a change gives an operand or result."""
    at = map_call(change.call)
    call = None if at is None else call_of(at.text(), "shard_map")
    for k in call.keywords if call is not None else ():
        if at is not None and k.arg == change.keyword:
            specs = k.value.elts if isinstance(k.value, ast.Tuple) else [k.value]
            if len(specs) == change.count and (
                    code := _with_spec(at.text(), specs[change.number], change.spec)):
                yield at, code


def _code_of(change: Respec | Given | Unsum) -> str:
    """What a change writes in the place of an expression; "" if that cannot be told."""
    at = change.location
    if at.end_line != at.line or not at.source_line().strip():
        return ""
    call, text = call_of(at.text()), at.text()
    if call is not None and isinstance(change, Respec) and change.word == "out_sharding":
        return _with_keyword(text, call, change.word, change.spec)
    if call is None or not call.args:
        return ""
    name = called_name(call)
    operand = ast.get_source_segment(text, call.args[0]) or ""
    if isinstance(change, Given):
        return in_place(at, operand) if name == "all_gather" else ""
    if isinstance(change, Unsum):
        times = f"{as_operand(operand)} * {change.count}"
        return in_place(at, times) if name == "psum" else ""
    if name != change.word:
        laid_out = helper_call(at, change.word)
        if laid_out is None:
            return ""
        return (in_place(at, laid_out.operand) if change.spec is None
                else laid_out.with_spec(change.was, change.spec))
    return in_place(at, operand) if change.spec is None else _with_spec(text, call, change.spec)


def _with_spec(text: str, part: ast.AST, spec: PartitionSpec) -> str:
    """The text with another spec in place of the one that a part of it has; "" if it has not one.
    """
    found = [n for n in ast.walk(part) if isinstance(n, ast.Call) and called_name(n) in SPECS]
    if len(found) != 1:
        return ""
    (old,) = found
    new = ast.unparse(old.func) + spec_text(spec)[1:].replace("'", '"')
    return text[:old.col_offset] + new + text[old.end_col_offset:]


def _with_keyword(text: str, call: ast.Call, word: str, spec: PartitionSpec | None) -> str:
    """The text of a call with another spec in a keyword argument, or without it."""
    found = next((k for k in call.keywords if k.arg == word), None)
    if found is None:
        return ""
    if spec is not None:
        return _with_spec(text, found.value, spec)
    before = text[:found.col_offset].rstrip().removesuffix(",")
    return before + text[found.end_col_offset:]
