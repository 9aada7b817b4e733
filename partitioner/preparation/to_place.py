"""Rewrites concatenations as `place` equations, which can be split.

`concatenate([zeros, x[:-1]])` shifts every row of x by one. The operands of a concatenation are
split at other rows than its result, so it can only be computed whole. Written as "the rows of x,
shifted by one, over zeros", it is split as x is. Likewise a `split` becomes slices, each with a
place of its own, and a transform over several dimensions one transform per dimension (separate.py).
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.ops.communication.collective import pvary_p
from ...ir.ops.derivatives import slice_along
from ...ir.ops.movement.joining import concatenate_p
from ...ir.ops.movement.padding import pad_p
from ...ir.ops.movement.placing import place_p, roll_p
from ...ir.ops.movement.shape import broadcast_in_dim_p
from ...ir.ops.movement.slicing import slice_p
from ...ir.program import Atom, Literal, Program
from ...ir.rewriting.inside import inside
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites
from ...ir.types import array_type
from ..propagation.divisibility import splitting_sizes
from .compose import COMPOSE, OF_ONE_OPERAND, OF_PADDING_READ_ONCE
from .identities import PLUS_ZERO
from .row_numbers import ROWS_BY_NUMBER
from .separate import SEPARATE
from .window_updates import CHOOSE_BOX, reduce_in_place
from .xla.lowering import FILL_APART


def arrange(program: Program) -> Program:
    """The pass: a TRACED program, nested ones included, with shifts written as `place`."""
    program = ARRANGE(AT_KNOWN_PLACES(inside(program, arrange)))
    return reduce_in_place(program) if slice_p in program.ops else program


def arrange_as_xla(program: Program) -> Program:
    """The pass for XLA's plans: as `arrange`, as far as XLA recognises moved rows."""
    return ARRANGE_AS_XLA(inside(program, arrange_as_xla))


def _slices(m: Match) -> list[Atom]:
    shape, start, found = m.x.aval.shape, 0, []
    for n in m.sizes:
        found.append(m.emit(slice_p, m.x, **slice_along(shape, m.axis, start, start + n)))
        start += n
    return found


def _source(m: Match, atom: Atom) -> tuple[Atom, int, int]:
    """(source, start, limit): an operand as rows of the value that it slices, or of itself."""
    eqn = m.maker(atom)
    if eqn is not None and eqn.op is slice_p:
        params, (x,) = eqn.params, eqn.invars
        others = all(n == k for d, (n, k) in enumerate(
            zip(x.aval.shape, atom.aval.shape, strict=True)) if d != m.dimension)
        if others and all(step == 1 for step in params["strides"] or ()):
            return x, params["start_indices"][m.dimension], params["limit_indices"][m.dimension]
    return atom, 0, atom.aval.shape[m.dimension]


def _shifts(m: Match) -> bool:
    """Is an operand a slice of a value as long as the result?"""
    aval = m.eqn.outvars[0].aval
    total = aval.shape[m.dimension]
    if (len(m.operands) < 2 or not total or aval.sharding.spec.unreduced
            or aval.manual.unreduced or aval.manual.reduced):
        return False
    return any([_source(m, a)[0].aval.shape[m.dimension] == total for a in m.operands])


def _rolled(m: Match) -> Atom | None:
    """A concatenation of the end of an array and its beginning."""
    if len(m.operands) != 2:
        return None
    (x, start, limit), (y, first, last) = [_source(m, a) for a in m.operands]
    n = x.aval.shape[m.dimension]
    if (x is not y or (start, limit) != (last, n) or first != 0
            or x.aval != m.eqn.outvars[0].aval):
        return None
    return m.emit(roll_p, x, dimension=m.dimension, shift=n - start)


def _largest(m: Match) -> int:
    """The operand that makes up more than half of the result, where the result's size divides and
    those of operands do not; -1 if there is none.
    """
    d, aval = m.dimension, m.eqn.outvars[0].aval
    counts, total = [a.aval.shape[d] for a in m.operands], aval.shape[d]
    pending = aval.sharding.spec.unreduced or aval.manual.unreduced or aval.manual.reduced
    if (len(counts) < 2 or not isinstance(aval.dtype, np.dtype) or aval.has_explicit_mesh()
            or pending or aval.varying):
        return -1
    k = max(range(len(counts)), key=counts.__getitem__)
    odd = any(total % n == 0 and any(c % n for c in counts) for n in splitting_sizes(m.mesh))
    return k if odd and 2 * counts[k] > total and m.constant_of(m.operands[k]) is None else -1


def _over_largest(m: Match) -> Atom | None:
    largest = _largest(m)
    return None if largest < 0 else _placed(m, largest)


def _placed(m: Match, largest: int = -1) -> Atom:
    """The operands written one after the other over a constant, or over the largest one with
    padding.
    """
    dimension, aval = m.dimension, m.eqn.outvars[0].aval
    constants = [m.constant_of(a) for a in m.operands]
    fill = next((c for c in constants if c is not None), None)
    if fill is None:
        zero = np.zeros((), aval.dtype)[()] if isinstance(aval.dtype, np.dtype) else None
        fill = Literal(zero, array_type((), aval.dtype))
    # Weak only if the result is: a strong base makes it strong, as a strong operand does.
    fill = Literal(fill.val, array_type((), aval.dtype, aval.weak_type))
    whole = False                                  # is there fill around the largest operand?
    if largest >= 0:
        x, start, limit = _source(m, m.operands[largest])
        whole = (start, limit) == (0, x.aval.shape[dimension])
        base = _edged(m, largest, fill)
    else:
        base = m.full(fill, aval.shape, aval.sharding if any(aval.entries) else None)
    if aval.varying:
        base = m.emit(pvary_p, base, axes=tuple(sorted(aval.varying)))
    low = 0
    for k, (atom, constant) in enumerate(zip(m.operands, constants, strict=True)):
        n = atom.aval.shape[dimension]
        filled = constant is not None and _same(constant, fill) and (largest < 0 or whole)
        if n and k != largest and not filled:
            x, start, limit = _source(m, atom)
            if largest >= 0 or x.aval.shape[dimension] != aval.shape[dimension]:
                x, start, limit = atom, 0, n         # few rows of a value split differently
            base = m.emit(place_p, x, base, dimension=dimension, start=start, limit=limit, low=low)
        low += n
    return base


def _edged(m: Match, largest: int, fill: Literal) -> Atom:
    """The padding that puts an operand in its position, with arbitrary values around it."""
    d = m.dimension
    x, start, limit = _source(m, m.operands[largest])

    def rows(operands: Sequence[Atom]) -> int:
        return sum([a.aval.shape[d] for a in operands])

    config = [(0, 0, 0)] * x.aval.ndim
    config[d] = (rows(m.operands[:largest]) - start,
                 rows(m.operands[largest + 1:]) - (x.aval.shape[d] - limit), 0)
    return m.emit(pad_p, x, fill, padding_config=tuple(config))


def _same(a: Literal, b: Literal) -> bool:
    return np.asarray(a.val).tobytes() == np.asarray(b.val).tobytes()


_CONCATENATION = "out = concatenate *operands {dimension}"

_MOVED = (
    Rewrite("split", "*parts = split x {axis, sizes}", _slices,
            where=lambda m: len(m.sizes) > 1, why="each part gets a place of its own"),
    Rewrite("roll", _CONCATENATION, _rolled, where=_shifts,
            why="what leaves at the end comes in at the beginning"),
)

AT_KNOWN_PLACES = Rewrites(*ROWS_BY_NUMBER, CHOOSE_BOX, also_drops=(concatenate_p,))

ARRANGE_AS_XLA = Rewrites(OF_ONE_OPERAND, OF_PADDING_READ_ONCE, *_MOVED, FILL_APART, PLUS_ZERO,
                          also_drops=(slice_p, broadcast_in_dim_p, concatenate_p, pad_p))

ARRANGE = Rewrites(
    *COMPOSE, *SEPARATE, *_MOVED,
    Rewrite("shift", _CONCATENATION, _placed, where=_shifts,
            why="rows further on over a value are split as they were"),
    Rewrite("edges", _CONCATENATION, _over_largest,
            why="operands that no mesh divides are edges of one that is split as the result is"),
    also_drops=(slice_p, broadcast_in_dim_p, pad_p, concatenate_p),
)
