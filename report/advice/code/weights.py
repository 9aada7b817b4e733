"""Rewrites that change the rows or columns of a weight instead of what it is multiplied with.

    NAME                  instead of                              written
    shaped first          reshaping the last dimension of a       the product with a weight of that
                          product                                 shape
    cut first             slicing columns of a product, or of a   the product with these columns of
                          product and a bias                      the weight, and of the bias
    kept apart            a product of a flattened value          that of the value as it was, with
                                                                  a weight of that shape
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from ....ir.op import OPS
from ....ir.program import Atom
from ....ir.rewriting.rewrite import Match, Rewrite
from .rewrites import CodeChange, fit


def _shaped_first(m: Match) -> Atom | None:
    """The columns of a weight split as those of its product: less is moved where that is larger,
    and nothing where the weight is kept so.
    """
    (left, right), batch = m.dims
    shape, columns = m.w.aval.shape, [d for d in range(m.w.aval.ndim) if d not in right]
    product = m.maker(m.product)
    last = m.product.aval.ndim - 1
    inner = m.sizes[last:]
    if (any(batch) or len(columns) != 1 or len(inner) < 2 or m.dimensions is not None
            or m.sizes[:last] != m.product.aval.shape[:last] or product is None
            or product.params.get("out_sharding") is not None):
        return None
    (d,) = columns
    shaped = m.emit(OPS["reshape"], m.w, new_sizes=(*shape[:d], *inner, *shape[d + 1:]),
                    dimensions=None, sharding=None)
    contracted = tuple([c + (len(inner) - 1) * (c > d) for c in right])
    return fit(m, m.emit(product.op, m.x, shaped, like=product, **{
        **product.params, "dimension_numbers": ((left, contracted), batch)}))


def _cut_first(m: Match) -> Atom | None:
    """Columns of a product, next to each other, made of those of the weight alone."""
    whole, starts, ends = m.product.aval.shape, m.starts, m.ends
    dims = [d for d, n in enumerate(whole) if ends[d] - starts[d] != n]
    if len(dims) != 1 or m.steps is not None and set(m.steps) != {1}:
        return None
    return _of_columns(m, dims[0], starts[dims[0]], ends[dims[0]])


def _of_columns(m: Match, d: int, start: int, end: int) -> Atom | None:
    """The product with the columns start .. end of the weight: those of dimension d of it. With
    those of what is added to it, if something is.
    """
    (left, right), (batch, others) = m.dims
    product, first = m.maker(m.product), m.x.aval.ndim - len(left)
    if d < first or product is None or product.params.get("out_sharding") is not None:
        return None
    column = [c for c in range(m.w.aval.ndim) if c not in (*right, *others)][d - first]
    part = cut(m, m.w, column, start, end)
    made = m.emit(product.op, m.x, part, like=product, **product.params)
    added = m.maker(m.eqn.invars[0])
    if added is not None and added is not product:
        operands = [made if a is m.product else cut(m, a, d, start, end) for a in added.invars]
        made = m.emit(added.op, *operands, like=added, **added.params)
    return fit(m, made)


def cut(m: Match, a: Atom, d: int, start: int, end: int) -> Atom:
    """Part start to end of a value along a dimension; for a broadcast value, that of what it
    repeats.
    """
    eqn = m.maker(a)
    if eqn is not None and eqn.op.name == "broadcast_in_dim":
        (x,), shape = eqn.invars, [*eqn.params["shape"]]
        at = eqn.params["broadcast_dimensions"]
        shape[d] = end - start
        if d in at and x.aval.shape[at.index(d)] != 1:
            x = cut(m, x, at.index(d), start, end)
        return m.emit(eqn.op, x, **{**eqn.params, "shape": tuple(shape)})
    bounds = [(start, end) if k == d else (0, n) for k, n in enumerate(a.aval.shape)]
    return m.emit(OPS["slice"], a, start_indices=tuple([a for a, _ in bounds]),
                  limit_indices=tuple([b for _, b in bounds]), strides=None)


def _kept_apart(m: Match) -> Atom | None:
    """The product without the reshape that makes one dimension of several before it: over what is
    summed, the weight has these dimensions, too; else the product is reshaped.
    """
    whole, flat, (left, right), batch = m.x.aval.shape, m.flat.aval.shape, *m.dims
    several = len(whole) - len(flat)
    d = next((d for d, n in enumerate(flat) if n != whole[d]), len(flat))
    inner = whole[d:d + several + 1]
    if (several < 1 or any(batch) or m.dimensions is not None or d == len(flat)
            or math.prod(inner) != flat[d] or whole[d + several + 1:] != flat[d + 1:]
            or m.eqn.params.get("out_sharding") is not None):
        return None

    def apart(dims: Sequence[int], at: int) -> tuple[int, ...]:
        return tuple([c + several * (c > at) + i for c in dims
                      for i in range(several + 1 if c == at else 1)])

    weight, rows = m.w, right
    if d in left:
        at, shape = right[left.index(d)], m.w.aval.shape
        rows = apart(right, at)
        weight = m.emit(OPS["reshape"], m.w, new_sizes=(*shape[:at], *inner, *shape[at + 1:]),
                        dimensions=None, sharding=None)
    made = m.emit(m.eqn.op, m.x, weight, like=m.eqn, **{
        **m.eqn.params, "dimension_numbers": ((apart(left, d), rows), batch)})
    if d not in left:
        made = m.emit(OPS["reshape"], made, new_sizes=m.eqn.outvars[0].aval.shape,
                      dimensions=None, sharding=None)
    return fit(m, made)


_PRODUCT = "product = dot_general x w {dimension_numbers=dims}\n"
_CUT = "cut the weight instead of its product, or keep its parts apart,"
WEIGHTS: tuple[CodeChange, ...] = (
    CodeChange(Rewrite(
        "shaped first", _PRODUCT + "out = reshape product {new_sizes=sizes, dimensions}",
        _shaped_first, why="the weight is laid out anew, which is smaller than the product"),
        "reshape the weight instead of its product, or keep it in that shape,"),
    CodeChange(Rewrite(
        "kept apart", "flat = reshape x {new_sizes, dimensions}\n"
        "out = dot_general flat w {dimension_numbers=dims}", _kept_apart,
        why="dimensions that are kept apart can be split, each by itself"),
        "multiply by the weight in the shape of what it is multiplied with, instead of flattening "
        "that,"),
    *[CodeChange(Rewrite(
        "cut first", f"{_PRODUCT}{before}out = slice {read} "
        "{start_indices=starts, limit_indices=ends, strides=steps}", _cut_first,
        why="columns of the weight are moved rather than those of its product"), _CUT)
      for read, before in (("product", ""), ("biased", "biased = add product bias\n"))],
)
