"""Peephole rewrites: a few equations replaced by a cheaper form, or by one numpy function.

`where(here, dynamic_update_slice(x, part, i), x)`, as stages of a pipeline write it, copies all of
`x` twice. It is `dynamic_update_slice(x, where(here, part, x[i]), i)`, which updates `x` in place.
`x // 7` of integers is traced as a truncated quotient and a remainder that says whether to subtract
one; the integer part of a float as its floor or its ceiling, by its sign. Two arrays whose elements
alternate, as in an associative scan and in the gradient of `x[::2] * x[1::2]`, are traced as the
sum of both with zeros between their elements. A sum that a loop carries unfinished begins on one
device, with zeros on the others, and mostly with zeros there as well. The gradient of average
pooling sums windows over elements between which zeros were put.
"""
from __future__ import annotations

from ...ir.ops.communication.collective import pvary_p
from ...ir.ops.derivatives import slice_along
from ...ir.ops.elementwise.select import select_n_p
from ...ir.ops.movement.dynamic_slicing import dynamic_slice_p
from ...ir.ops.movement.dynamic_update_slicing import dynamic_update_slice_p
from ...ir.ops.movement.joining import concatenate_p
from ...ir.ops.movement.reshape import reshape_p
from ...ir.ops.movement.slicing import slice_p
from ...ir.ops.reductions.pooling import reduce_window_sum_p
from ...ir.program import Atom, Literal
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites


def _is_small(m: Match) -> bool:
    return not m.which.aval.shape and 2 * m.part.aval.size <= m.x.aval.size


def _by_part(m: Match) -> Atom:
    before = m.emit(dynamic_slice_p, m.x, *m.starts, slice_sizes=m.part.aval.shape)
    cases = [m.part if case is m.updated else before for case in m.eqn.invars[1:]]
    return m.emit(dynamic_update_slice_p, m.x, m.emit(select_n_p, m.which, *cases), *m.starts,
                  like=m.maker(m.updated))


NARROW_UPDATES = Rewrites(*[
    Rewrite(f"update-{order}", f"""
        updated = dynamic_update_slice x part *starts
        out = select_n which {cases}
        """, _by_part, where=_is_small, why="x is changed in place instead of copied twice")
    for order, cases in (("or-not", "updated x"), ("if", "x updated"))])


def _zeros(m: Match) -> Atom:
    missing = m.eqn.outvars[0].aval.varying - m.x.aval.varying
    return m.emit(pvary_p, m.x, axes=tuple(sorted(missing))) if missing else m.x


SHARE_ZEROS = Rewrites(Rewrite("zeros-on-one-device", """
    zeros = broadcast_in_dim 0
    x = broadcast_in_dim 0
    out = select_n here zeros x
    """, _zeros, why="what is zero on one device and on the others is so on all"))


def _spreads(m: Match) -> bool:
    """Does the pad put zeros between elements, and do the windows not, nor pad where it crops?"""
    return (any([inner > 0 for *_, inner in m.config]) and max(m.base_dilation) == 1
            and not any([cut < 0 < more for ends, added in zip(m.config, m.padding, strict=True)
                         for cut, more in zip(ends, added, strict=False)]))


def _by_dilation(m: Match) -> Atom:
    return m.emit(reduce_window_sum_p, m.x, **{
        **m.eqn.params, "base_dilation": tuple([inner + 1 for *_, inner in m.config]),
        "padding": tuple([(lo + before, hi + after) for (lo, hi, _), (before, after) in
                          zip(m.config, m.padding, strict=True)])})


SPREAD_WINDOWS = Rewrites(Rewrite("windows-of-spread", """
    spread = pad x 0 {padding_config=config}
    out = reduce_window_sum spread {base_dilation, padding}
    """, _by_dilation, where=_spreads, single_use=("spread",),
    why="no zeros are written between elements, and none added"))


def _alternate(m: Match) -> int | None:
    """The dimension along which two padded arrays have every second element; None if they do not.
    """
    configs, shape = (m.first, m.second), m.eqn.outvars[0].aval.shape
    padded = [d for d, ends in enumerate(zip(*configs, strict=True)) if any(ends[0] + ends[1])]
    if len(padded) != 1 or m.x.aval.ndim != len(shape):
        return None
    (d,) = padded
    (low, high, inner), (other, end, inside) = (config[d] for config in configs)
    sizes = m.x.aval.shape[d], m.y.aval.shape[d]
    if inner != 1 or inside != 1 or {low, other} != {0, 1} or sum(sizes) != shape[d] or (
            min(sizes) < 1 or min(high, end) < 0):
        return None
    return d


def _interleaved(m: Match) -> Atom | None:
    """Two arrays side by side in a dimension of size 2, merged with the one before it."""
    d, shape = _alternate(m), m.eqn.outvars[0].aval.shape
    assert d is not None
    parts = (m.x, m.y) if m.first[d][0] == 0 else (m.y, m.x)
    pairs = parts[1].aval.shape[d]

    def emit_reshape(x: Atom, *sizes: int) -> Atom:
        return m.emit(reshape_p, x, new_sizes=(*shape[:d], *sizes, *shape[d + 1:]),
                      dimensions=None, sharding=None)
    columns = []
    for x in parts:
        if x.aval.shape[d] > pairs:
            x = m.emit(slice_p, x, **slice_along(x.aval.shape, d, 0, pairs))
        columns.append(emit_reshape(x, pairs, 1))
    out = emit_reshape(m.emit(concatenate_p, *columns, dimension=d + 1), 2 * pairs)
    if shape[d] > 2 * pairs:
        last = m.emit(slice_p, parts[0], **slice_along(parts[0].aval.shape, d, pairs, pairs + 1))
        out = m.emit(concatenate_p, out, last, dimension=d)
    return out if out.aval == m.eqn.outvars[0].aval else None


INTERLEAVE = Rewrites(Rewrite("interleaved", """
    even = pad x 0 {padding_config=first}
    odd = pad y 0 {padding_config=second}
    out = add|add_any even odd
    """, _interleaved, where=lambda m: _alternate(m) is not None, single_use=("even", "odd"),
    why="each element is written once, instead of three times"))


def _is_number(m: Match) -> bool:
    """Is the divisor a nonzero integer constant?"""
    return isinstance(m.y, Literal) and m.y.aval.dtype.kind == "i" and bool(m.y.val)


ROUND_INTEGERS = Rewrites(
    Rewrite("floor-quotients", """
        quotient = div x y
        sign = sign x
        other_sign = sign y
        differ = ne sign other_sign
        rest = rem x y
        inexact = ne rest 0
        below = and differ inexact
        less = sub quotient 1
        out = select_n below quotient less
        """, "out = floor_div x y", where=_is_number,
            why="numpy rounds a quotient down in one pass over memory instead of nine"),
    Rewrite("integer-parts", """
        down = floor x
        up = ceil x
        negative = lt x 0
        out = select_n negative down up
        """, "out = trunc x",
            why="numpy has the integer part of a float in one pass instead of four"),
)
