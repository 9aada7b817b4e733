"""Lookups in a split array of which every device takes the positions that lie in its block.

A mask says which those are: `0 <= i - start < block`. So the sum over the devices is a lookup in
the whole array, at `i` itself, and zero where `i` is outside of it: nothing is found out per
device.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.named_tuple import NamedTuple
from ...ir.program import Atom
from ..layout import Atoms
from .windows import bound, made, scalar, starts_of

if TYPE_CHECKING:
    from .executor import Planner

DEEP = 12               # equations, one behind the other, that are looked at


class Own(NamedTuple):
    """Positions in the whole array, and the axes along which its blocks of this size lie."""
    places: Atom
    axes: Atoms
    block: int


def own_positions(p: Planner, mask: Atom, indices: Atom) -> Own | None:
    """What positions in the whole are looked up, if the mask lets through those in the device's
    block, and where it does the indices count from where the block begins."""
    inside = _inside(p, mask)
    if inside is None:
        return None
    mask, local, block = inside
    moved = made(p, local, "sub")
    begin = None if moved is None else scalar(p, moved.invars[1])
    axes = None if begin is None else starts_of(p, begin, block)
    if moved is None or not axes or not _are(p, indices, local, mask, block):
        return None
    return Own(moved.invars[0], axes, block)


def _inside(p: Planner, mask: Atom) -> tuple[Atom, Atom, int] | None:
    """The mask, the positions and the size, if the mask is `0 <= positions < size`."""
    mask = _bare(p, mask)
    both = made(p, mask, "and")
    if both is None:
        return None
    low, high = made(p, both.invars[0], "ge"), made(p, both.invars[1], "lt")
    if low is None or high is None or low.invars[0] is not high.invars[0]:
        return None
    size = bound(p, high.invars[1])
    return None if size is None or bound(p, low.invars[1]) != 0 else (
        mask, low.invars[0], size)


def _are(p: Planner, atom: Atom, local: Atom, mask: Atom, block: int) -> bool:
    """Is the value `local` wherever the mask holds, which says that this is in 0 .. block?"""
    for _ in range(DEEP):
        atom = _bare(p, atom)
        if atom is local:
            return True
        eqn = p.maker(atom)
        if eqn is None:
            return False
        if eqn.op.name == "select_n" and len(eqn.invars) == 3:
            which, other, chosen = eqn.invars
            if _bare(p, which) is mask:
                atom = chosen
                continue
            less = made(p, _bare(p, which), "lt")
            if less is None or bound(p, less.invars[1]) != 0 or less.invars[0] is not other:
                return False
            atom = other                    # it is not negative there
        elif eqn.op.name == "clamp":
            low, atom, high = eqn.invars
            last = bound(p, high)
            if bound(p, low) != 0 or last is None or last < block - 1:
                return False
        elif eqn.op.name in ("max", "min"):
            a, b = eqn.invars
            limit, atom = (bound(p, a), b) if bound(p, a) is not None else (bound(p, b), a)
            if limit is None or (limit > 0 if eqn.op.name == "max" else limit < block - 1):
                return False
        else:
            return False
    return False


_SHAPES = frozenset({"broadcast_in_dim", "pvary", "reshape", "slice", "squeeze"})


def _bare(p: Planner, atom: Atom) -> Atom:
    """What has the same elements in the same order, but for dimensions of size 1."""
    while True:
        eqn = p.maker(atom)
        if eqn is None or eqn.op.name not in _SHAPES or (
                eqn.invars[0].aval.size != atom.aval.size) or [
                n for n in eqn.invars[0].aval.shape if n != 1] != [
                n for n in atom.aval.shape if n != 1]:
            return atom
        if eqn.op.name == "broadcast_in_dim" and list(eqn.params["broadcast_dimensions"]) != sorted(
                eqn.params["broadcast_dimensions"]):
            return atom
        atom = eqn.invars[0]
