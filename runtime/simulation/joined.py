"""Arrays that are put together over devices, where that is one numpy call, or none, on the wholes.

A concatenation along a split dimension is, per device, one of the blocks, and then an exchange of
rows: with the axes in place it is the concatenation of the whole arrays. A block that is placed
among zeros where the device's own is, and summed over the devices, is the whole of all blocks.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...ir.named_tuple import NamedTuple
from ...ir.ops.collective import ppermute_p
from ...ir.ops.joining import concatenate_p
from ...ir.ops.slicing import slice_p
from ...ir.program import Atom, Equation, Literal, Var
from ...ir.row_exchange import joined, plain
from ..axes import MeshAtoms, collective_atoms
from ..rewrites.equations import is_zeros
from . import halos
from .collectives import rows_of_whole
from .workspace import Workspace

if TYPE_CHECKING:
    from .executor import Planner

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


def plan_moved(p: Planner, eqn: Equation) -> bool:
    """Bind the result of a concatenation in each block of rows of one array, its own and those of
    other devices, as for a roll or a halo: rows of the whole array that are copied."""
    d = eqn.params["dimension"]
    parts = [_part(p, a, d) for a in eqn.invars]
    if p.mask is not None or None in parts or not any([part.sender for part in parts if part]):
        return False
    found = [part for part in parts if part is not None]
    source = found[0].source
    x = p.value_of(source)
    (group, *others) = {part.axes for part in found if part.sender is not None}
    count = p.atoms.count(group)
    if others or not group or x.layout.folded or any([
            part.source is not source for part in found]):
        return False
    moves: list[tuple[int, ...]] = []
    for member in range(count):
        begin = 0
        for part in found:
            size = part.stop - part.start
            owner = member if part.sender is None else part.sender.get(member)
            if owner is not None:
                moves.append((member, begin, begin + size, owner, part.start))
            begin += size
    if halos.plan_windows(p, eqn, source, group, moves):
        return True
    if x.layout.split[d] != group or not rows_of_whole(p, x, eqn.outvars[0], d, moves):
        return False
    p.all_unread(eqn, (source,))
    return True


class Part(NamedTuple):
    """Rows start to stop of an array: the device's own, or those of the device that `sender` says
    along `axes`."""
    source: Atom
    start: int
    stop: int
    sender: dict[int, int] | None
    axes: Atoms


def _part(p: Planner, atom: Atom, d: int) -> Part | None:
    sender, axes = None, ()
    made = p.maker(atom)
    if made is not None and made.op is ppermute_p:
        sender = {to: source for source, to in made.params["perm"]}
        axes = collective_atoms(made, p.atoms)
        (atom,) = made.invars
        made = p.maker(atom)
    start, stop, whole = 0, atom.aval.shape[d], _others(atom.aval.shape, d)
    if made is not None and made.op is slice_p:
        (inner,) = made.invars
        starts, limits = made.params["start_indices"], made.params["limit_indices"]
        strides = made.params["strides"]
        if (strides is None or set(strides) <= {1}) and _others(
                inner.aval.shape, d) == whole:
            atom, start, stop = inner, starts[d], limits[d]
    return Part(atom, start, stop, sender, axes) if type(atom) is Var else None


def _others(shape: tuple[int, ...], d: int) -> tuple[int, ...]:
    return shape[:d] + shape[d + 1:]


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
