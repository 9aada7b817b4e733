"""How the user would ask for the layout of what an expression computes: by a call around it."""
from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Collection

from .....ir.source.location import Location, source_version
from .....ir.spec import PartitionSpec
from ....words import spec_text
from .statements import path_of, syntax_tree


def laid_out(at: Location, word: str, spec: PartitionSpec, axes: Collection[str]) -> str:
    """The expression at a location as the argument of a call of `reshard`, or of
    `with_sharding_constraint` with the mesh of the file that has these axes; "" if it is not
    written on one line, or if the file makes shardings of meshes that it has from elsewhere.
    """
    text = at.text()
    if not text:
        return ""
    source = "".join(linecache.getlines(at.file))
    asked = spec_text(spec).replace("'", '"')
    if not re.search(r"\bP\(|\bas P\b", source):
        asked = f"PartitionSpec{asked[1:]}"
    if word == "reshard":
        return f"{path_of(at, word, 'sharding')}({text}, {asked})"
    call = f"{path_of(at, 'lax')}.{word}"
    if "NamedSharding" not in source:           # the mesh is set in context
        return f"{call}({text}, {asked})"
    mesh = _mesh_of(at, source, {*map(str, axes)})
    return f"{call}({text}, NamedSharding({mesh}, {asked}))" if mesh else ""


def _mesh_of(at: Location, source: str, axes: set[str]) -> str:
    """The name of a mesh that a file makes and that has these axes and no others, none of them
    Explicit; one of which shardings are made if there are several; "" if there is none.
    """
    tree = syntax_tree(at.file, source_version(at.file))
    names = [n.targets[0].id for n in (tree.body if tree is not None else ())
             if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
             and isinstance(n.value, ast.Call) and "esh" in ast.unparse(n.value.func)
             and "Explicit" not in ast.unparse(n.value)
             and axes == {c.value for c in ast.walk(n.value)
                          if isinstance(c, ast.Constant) and isinstance(c.value, str)}]
    used = [n for n in names if re.search(rf"NamedSharding\({n}\b", source)]
    return next(iter([*used, *names]), "")
