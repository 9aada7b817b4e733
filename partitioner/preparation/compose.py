"""Simplifies a slice of a pad or of a concatenation to an operation on the operands.

`pad(x, 1)[2:]` has as many rows as x, shifted by one. Computed step by step it passes through two
more rows, a size that no mesh may divide. So a slice of a pad becomes one pad (whose amounts may be
negative), and a slice of a concatenation becomes a concatenation of slices; the intermediate value
is computed only if something else reads it.
"""
from __future__ import annotations

from ...ir.ops.movement.joining import concatenate_p
from ...ir.ops.movement.padding import pad_p
from ...ir.ops.movement.slicing import slice_p
from ...ir.program import Atom
from ...ir.rewriting.rewrite import Match, Rewrite
from ...ir.types import ArrayType
from ..propagation.divisibility import may_be_split

_MOST_OPERANDS = 3


def _takes_all_between(m: Match) -> bool:
    """Does a slice take every element between two positions, of a value that is not a partial sum?
    """
    return (may_be_split(m) and not m.mesh.explicit_axes      # types in between are checked there
            and all([s == 1 for s in m.strides or ()])
            and not _pending(m.eqn.outvars[0].aval) and not _pending(m.whole.aval))


def _pending(aval: ArrayType) -> bool:
    return bool(aval.sharding.spec.unreduced or aval.manual.unreduced or aval.manual.reduced)


def _of_padding(m: Match) -> Atom | None:
    """A slice of a pad, as one pad. None if nothing of x is left, or elements would be cut apart
    from the padding between them.
    """
    config = []
    for n, (low, high, between), start, limit in zip(
            m.whole.aval.shape, m.config, m.starts, m.limits, strict=True):
        config.append((low - start, high - (n - limit), between))
        if between and min(config[-1]) < 0:
            return None
    if any(low + n <= 0 or high + n <= 0 for n, (low, high, _) in zip(
            m.x.aval.shape, config, strict=True)):
        return None                                # nothing of x is left
    return m.emit(pad_p, m.x, m.fill, padding_config=tuple(config))


def _of_operands(m: Match) -> Atom | None:
    """A slice that reaches over several operands of a concatenation: the concatenation of a slice
    of each. None if there are too many, or the result would be weakly typed where it is not.
    """
    start, limit, low = m.starts[m.d], m.limits[m.d], 0
    parts: list[tuple[Atom, tuple, tuple]] = []
    for atom in m.operands:
        n = atom.aval.shape[m.d]
        a, b = max(start - low, 0), min(limit - low, n)
        low += n
        if a < b:
            parts.append((atom, tuple([a if k == m.d else s for k, s in enumerate(m.starts)]),
                          tuple([b if k == m.d else s for k, s in enumerate(m.limits)])))
    weak = all([atom.aval.weak_type for atom, _, _ in parts])
    if not 0 < len(parts) <= _MOST_OPERANDS or weak != m.eqn.outvars[0].aval.weak_type:
        return None
    return m.emit(concatenate_p, *[
        m.emit(slice_p, atom, start_indices=own, limit_indices=stop, strides=None)
        if any(own) or stop != atom.aval.shape else atom for atom, own, stop in parts],
        dimension=m.d)


def _in_two_steps(m: Match) -> Atom | None:
    """A slice with strides, first by the strides from the first row on, then contiguous: `x[2::2]`
    becomes `x[::2][1:]`. None if no dimension has rows besides those that it takes.
    """
    shape = m.x.aval.shape
    steps = m.strides or (1,) * len(shape)
    first, then, apart = [], [], False
    for n, k, start, limit, step in zip(shape, m.eqn.outvars[0].aval.shape, m.starts, m.limits,
                                        steps, strict=True):
        if step == 1 or n % step or 2 * k * step <= n:
            first.append((start, limit, step))
            then.append((0, k))
        else:
            apart = apart or k != n // step
            first.append((start % step, n, step))
            then.append((start // step, start // step + k))
    if not apart:
        return None
    every = m.emit(slice_p, m.x, start_indices=tuple([a for a, _, _ in first]),
                   limit_indices=tuple([b for _, b, _ in first]), strides=tuple(steps))
    return m.emit(slice_p, every, start_indices=tuple([a for a, _ in then]),
                  limit_indices=tuple([b for _, b in then]), strides=None)


def _of_one_operand(m: Match) -> Atom | None:
    """A slice that lies within one operand of a concatenation."""
    low = 0
    for atom in m.operands:
        start, limit = m.starts[m.d] - low, m.limits[m.d] - low
        if 0 <= start < limit <= atom.aval.shape[m.d] and (
                atom.aval.weak_type == m.eqn.outvars[0].aval.weak_type):
            return m.emit(slice_p, atom, strides=m.strides,
                          start_indices=(*m.starts[:m.d], start, *m.starts[m.d + 1:]),
                          limit_indices=(*m.limits[:m.d], limit, *m.limits[m.d + 1:]))
        low += atom.aval.shape[m.d]
    return None


OF_ONE_OPERAND = Rewrite("slice-of-piece", """
    whole = concatenate *operands {dimension=d}
    out = slice whole {start_indices=starts, limit_indices=limits, strides}
    """, _of_one_operand, where=_takes_all_between, why="JAX's compiler does so before XLA sees it")

_SLICE_OF_PADDING = """
    whole = pad x fill {padding_config=config}
    out = slice whole {start_indices=starts, limit_indices=limits, strides}
    """

OF_PADDING_READ_ONCE = Rewrite(
    "slice-of-padding", _SLICE_OF_PADDING, _of_padding, where=_takes_all_between,
    single_use=("whole",), why="XLA pads once, where nothing else reads the larger array")

COMPOSE = (
    Rewrite("slice-of-padding", _SLICE_OF_PADDING, _of_padding, where=_takes_all_between,
            why="the padded array has a size that no mesh may divide"),
    Rewrite("slice-of-concatenation", """
        whole = concatenate *operands {dimension=d}
        out = slice whole {start_indices=starts, limit_indices=limits, strides}
        """, _of_operands, where=_takes_all_between,
            why="the joined array has a size that no mesh may divide"),
    Rewrite("strided-slice",
            "out = slice x {start_indices=starts, limit_indices=limits, strides}", _in_two_steps,
            where=lambda m: may_be_split(m) and not m.mesh.explicit_axes,
            why="`x[2::2]` of 64 rows has 31; it is `x[::2]`, which blocks have, from row 1 on"),
)
