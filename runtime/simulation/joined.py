"""Arrays that are put together over devices, where that is one numpy call, or none, on the wholes.

A concatenation along a split dimension is, per device, one of the blocks, and then an exchange of
rows: with the axes in place it is the concatenation of the whole arrays. A block that is placed
among zeros where the device's own is, and summed over the devices, is the whole of all blocks.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...ir.ops.joining import concatenate_p
from ...ir.program import Atom, Equation, Literal
from ...ir.row_exchange import joined, plain
from ..axes import MeshAtoms, collective_atoms
from ..rewrites.equations import is_zeros
from .workspace import Workspace

Atoms = tuple[str, ...]
Maker = Callable[[Atom], Equation | None]


def plan_joined(p: Workspace, eqn: Equation, made: Equation | None) -> bool:
    """Bind the result of an exchange of the rows that `made` puts one after the other per device,
    if together they concatenate whole arrays."""
    params = eqn.params
    d = params["dimension"]
    if made is None or made.op is not concatenate_p or made.params["dimension"] != d:
        return False
    values = [p.at[a] for a in made.invars if a in p.at]        # type: ignore[index]
    group = collective_atoms(eqn, p.atoms)
    layout = values[0].layout if values else None
    if (layout is None or len(values) != len(made.invars) or layout.split[d] != group
            or any([x.layout != layout for x in values])):
        return False
    n = p.atoms.count(group)
    parts, wanted = joined(n, [x.aval.shape[d] * n for x in values])
    if parts != params["parts"] or plain(wanted) != params["wanted"]:
        return False
    evaluate: Any = concatenate_p.evaluate
    function = functools.partial(evaluate, 0, dimension=len(layout.stack) + d)
    p.bind(eqn.outvars[0], layout, p.call(function, *[x.slot for x in values]))
    return True


def placed(eqn: Equation, maker: Maker, atoms: MeshAtoms) -> tuple[int, Atoms] | None:
    """The dimension and the axes along which a `dynamic_update_slice` places each device's block
    among zeros, blocks of all devices side by side."""
    zeros, block, *starts = eqn.invars
    if not is_zeros(zeros, maker):
        return None
    (out,) = eqn.outvars
    dims = [d for d, (m, n) in enumerate(zip(block.aval.shape, out.aval.shape, strict=True))
            if m != n]
    if len(dims) != 1:
        return None
    (d,) = dims
    size, index = block.aval.shape[d], maker(starts[d])
    if index is not None and index.op.name == "mul":
        source, factor = index.invars
        if not isinstance(factor, Literal) or factor.val != size:
            return None
        index = maker(source)
    elif size != 1:
        return None
    if index is None or index.op.name != "axis_index" or not all(
            [isinstance(s, Literal) and s.val == 0 for k, s in enumerate(starts) if k != d]):
        return None
    group = collective_atoms(index, atoms)
    return (d, group) if atoms.count(group) * size == out.aval.shape[d] else None
