"""How the user would ask for the layout of what an expression computes: by a call around it."""
from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Collection

from .....ir.source.location import Location, source_version
from .....ir.spec import PartitionSpec
from ....words import spec_text
from .statements import Edit, path_of, statement_of, syntax_tree, unused


def laid_out(at: Location, names: str, word: str, spec: PartitionSpec, axes: Collection[str]
             ) -> tuple[Edit, ...]:
    """The edits by which the value of the expression at a location gets a layout: a call around it,
    or, of names that are unpacked there, in a line behind; none if that is not written on one line,
    or if the file makes shardings of meshes that it has from elsewhere.
    """
    stand = statement_of(at)
    targets = stand.node.targets if stand is not None and isinstance(
        stand.node, ast.Assign) else ()
    if stand is None or not any(ast.unparse(t).strip("()") == at.text() for t in targets):
        code = _call(at, at.text(), word, spec, axes)
        return ((at, code),) if code else ()
    own = names.split(", ")
    (item,) = own if len(own) == 1 else unused(at, "a")
    code = _call(at, item, word, spec, axes)
    if not code or stand.node.end_lineno != at.line or not {*own} <= {*at.text().split(", ")}:
        return ()
    if len(own) > 1:
        code = f"[{code} for {item} in ({names})]"
    end = Location.at(at.file, at.line, stand.location.end_column, at.line,
                      stand.location.end_column)
    return ((end, "\n" + " " * stand.location.column + f"{names} = {code}"),)


def _call(at: Location, text: str, word: str, spec: PartitionSpec, axes: Collection[str]) -> str:
    """A call of `reshard` or of `with_sharding_constraint`, with the mesh of the file that has
    these axes unless one is set in context; "" if there is nothing to call it with.
    """
    if not text:
        return ""
    source = "".join(linecache.getlines(at.file))
    asked = spec_text(spec).replace("'", '"')
    if not re.search(r"\bP\(|\bas P\b", source):
        asked = f"PartitionSpec{asked[1:]}"
    explicit = word == "reshard"
    call = path_of(at, word, "sharding") if explicit else f"{path_of(at, 'lax')}.{word}"
    if "NamedSharding" not in source or explicit and "set_mesh" in source:
        return f"{call}({text}, {asked})"       # the mesh is set in context
    mesh = _mesh_of(at, source, {*map(str, axes)}, explicit)
    if mesh:
        return f"{call}({text}, NamedSharding({mesh}, {asked}))"
    return f"{call}({text}, {asked})" if explicit else ""


def _mesh_of(at: Location, source: str, axes: set[str], explicit: bool) -> str:
    """The name of a mesh that a file makes and that has these axes and no others, Explicit ones or
    none of them; one of which shardings are made if there are several; "" if there is none.
    """
    tree = syntax_tree(at.file, source_version(at.file))
    names = [n.targets[0].id for n in (tree.body if tree is not None else ())
             if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
             and isinstance(n.value, ast.Call) and "esh" in ast.unparse(n.value.func)
             and ("Explicit" in ast.unparse(n.value)) == explicit
             and axes == {c.value for c in ast.walk(n.value)
                          if isinstance(c, ast.Constant) and isinstance(c.value, str)}]
    used = [n for n in names if re.search(rf"NamedSharding\({n}\b", source)]
    return next(iter([*used, *names]), "")
