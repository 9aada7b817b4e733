"""Before propagation: concatenations and updates of rows become `place` equations.

`concatenate([zeros, x[:-1]])` moves each row of x by one. As an equation of pieces, which are
split at other rows than their sum, it can only be computed whole; written as "the rows of x, one
further on, over zeros", it is split as x is. A `split` becomes slices, each with a place of its
own, an update of rows at a known place is one, too; and a transform over several dimensions one
after another (separate.py).
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...ir.ops.communication.collective import pvary_p
from ...ir.ops.contractions.fft import fft_p
from ...ir.ops.indexing.scatter import scatter_p
from ...ir.ops.movement.joining import concatenate_p, split_p
from ...ir.ops.movement.padding import pad_p
from ...ir.ops.movement.placing import place_p, roll_p
from ...ir.ops.movement.shape import broadcast_in_dim_p
from ...ir.ops.movement.slicing import slice_p
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.types import array_type, unsharded
from ..regions import inside
from ..unread import without_unread
from .compose import composed
from .separate import is_joint, separated

_REWRITTEN = (concatenate_p, split_p, fft_p, pad_p, scatter_p)
_LOOKED_AT = frozenset((*_REWRITTEN, slice_p))
_TAKEN_APART = (slice_p, broadcast_in_dim_p, pad_p, concatenate_p)


def arrange(program: Program) -> Program:
    """The program with shifts as shifts, nested programs included."""
    program = inside(program, arrange)
    if program.ops.isdisjoint(_REWRITTEN):
        return program
    mesh = program.mesh
    sizes = [n for a, n in mesh.shape.items() if n > 1 and a not in mesh.manual_axes]
    divides = bool(sizes)
    made: dict[Var, Equation] = {}
    eqns: list[Equation] = []
    changed = False
    for eqn in program.eqns:
        if eqn.op not in _LOOKED_AT:
            eqns.append(eqn)
            for v in eqn.outvars:
                made[v] = eqn
            continue
        todo = [eqn]
        while todo:
            first = todo.pop(0)
            parts = composed(first, made, mesh) if divides else None
            if parts is not None:
                todo = parts + todo
                changed = True
                continue
            joint = divides and is_joint(first)
            new = list(separated(first, mesh) if joint else _rewritten(first, made, sizes))
            changed |= new != [first]
            eqns += new
            for e in new:
                for v in e.outvars:
                    made[v] = e
    return (program.replace(eqns=without_unread(eqns, program.outvars, _TAKEN_APART))
            if changed else program)


def _rewritten(eqn: Equation, made: dict[Var, Equation], sizes: Sequence[int]
               ) -> Iterator[Equation]:
    if eqn.op is split_p and len(eqn.outvars) > 1:
        yield from _slices(eqn)
    elif eqn.op is concatenate_p and _shifts(eqn, made):
        rolled = _rolled(eqn, made)
        yield from [rolled] if rolled else _placed(eqn, made)
    elif eqn.op is concatenate_p and (k := _largest(eqn, made, sizes)) >= 0:
        yield from _placed(eqn, made, k)
    elif eqn.op is scatter_p:
        yield from _update(eqn, made)
    else:
        yield eqn


def _slices(eqn: Equation) -> Iterator[Equation]:
    """A split as slices, each of which has its own place."""
    (x,), axis, start = eqn.invars, eqn.params["axis"], 0
    shape = x.aval.shape
    for var, n in zip(eqn.outvars, eqn.params["sizes"], strict=True):
        starts, limits = [0] * len(shape), list(shape)
        starts[axis], limits[axis] = start, start + n
        start += n
        yield eqn.replace(op=slice_p, invars=(x,), outvars=(var,), params={
            "start_indices": tuple(starts), "limit_indices": tuple(limits), "strides": None})


def _update(eqn: Equation, made: dict[Var, Equation]) -> Iterator[Equation]:
    """`x.at[3:7].set(y)` as a place equation: rows over those of an array, at a known place."""
    (base, indices, updates), numbers = eqn.invars, eqn.params["dimension_numbers"]
    (result,), first, shape = eqn.outvars, _constant(indices, made), base.aval.shape
    d, low, rows = -1, 0, updates.aval.shape
    if first is not None and indices.aval.shape == (1,):
        (d,), low = numbers.scatter_dims_to_operand_dims, int(first.val)
        if numbers.inserted_window_dims == (d,):        # a single row, without its dimension
            rows = (*rows[:d], 1, *rows[d:])
    known = (d >= 0 and len(rows) == len(shape)
             and not numbers.operand_batching_dims
             and numbers.inserted_window_dims in ((), (d,))
             and numbers.update_window_dims == tuple(range(updates.aval.ndim))
             and (*shape[:d], rows[d], *shape[d + 1:]) == rows and rows[d] > 0
             and 0 <= low <= shape[d] - rows[d])
    source, aval = updates.aval, base.aval
    alike = (aval.sharding is result.aval.sharding and aval.weak_type == result.aval.weak_type
             and aval.dtype == source.dtype and aval.manual == source.manual == result.aval.manual
             and not any(source.entries) and not source.sharding.spec.unreduced)
    if not known or not alike:
        yield eqn
        return
    if rows != source.shape:
        row = Var(array_type(rows, source.dtype, source.weak_type, unsharded(
            len(rows), source.mesh), source.manual))
        yield eqn.replace(op=broadcast_in_dim_p, invars=(updates,), outvars=(row,), params={
            "shape": rows, "broadcast_dimensions": tuple(i for i in range(len(rows)) if i != d),
            "sharding": None})
        updates = row
    yield eqn.replace(op=place_p, invars=(updates, base), params={
        "dimension": d, "start": 0, "limit": rows[d], "low": low})


def _source(atom: Atom, made: dict[Var, Equation], dimension: int) -> tuple[Atom, int, int]:
    """(source, start, limit): a piece as rows of what it is a slice of, or of itself."""
    eqn = made.get(atom) if isinstance(atom, Var) else None
    if eqn is not None and eqn.op is slice_p:
        params, (x,) = eqn.params, eqn.invars
        others = all(n == m for d, (n, m) in enumerate(
            zip(x.aval.shape, atom.aval.shape, strict=True)) if d != dimension)
        if others and all(step == 1 for step in params["strides"] or ()):
            return x, params["start_indices"][dimension], params["limit_indices"][dimension]
    return atom, 0, atom.aval.shape[dimension]


def _shifts(eqn: Equation, made: dict[Var, Equation]) -> bool:
    """Is a piece a slice of something as long as the whole?"""
    dimension = eqn.params["dimension"]
    aval = eqn.outvars[0].aval
    total = aval.shape[dimension]
    if (len(eqn.invars) < 2 or not total or aval.sharding.spec.unreduced
            or aval.manual.unreduced or aval.manual.reduced):
        return False
    sources = [_source(a, made, dimension) for a in eqn.invars]
    return any(x.aval.shape[dimension] == total for x, _, _ in sources)


def _rolled(eqn: Equation, made: dict[Var, Equation]) -> Equation | None:
    """The end of an array in front of its beginning."""
    dimension = eqn.params["dimension"]
    sources = [_source(a, made, dimension) for a in eqn.invars]
    if len(sources) != 2:
        return None
    (x, start, limit), (y, first, last) = sources
    n = x.aval.shape[dimension]
    if x is not y or (start, limit) != (last, n) or first != 0 or x.aval != eqn.outvars[0].aval:
        return None
    return eqn.replace(op=roll_p, invars=(x,), params={"dimension": dimension, "shift": n - start})


def _constant(atom: Atom, made: dict[Var, Equation]) -> Literal | None:
    """The value of a piece that is one value throughout."""
    eqn = made.get(atom) if isinstance(atom, Var) else None
    if eqn is not None and eqn.op is broadcast_in_dim_p and isinstance(eqn.invars[0], Literal):
        return eqn.invars[0]
    return None


def _largest(eqn: Equation, made: dict[Var, Equation], sizes: Sequence[int]) -> int:
    """The piece that is most of a whole which divides where its pieces do not; -1: none is."""
    d, aval = eqn.params["dimension"], eqn.outvars[0].aval
    counts, total = [a.aval.shape[d] for a in eqn.invars], aval.shape[d]
    pending = aval.sharding.spec.unreduced or aval.manual.unreduced or aval.manual.reduced
    if (len(counts) < 2 or not isinstance(aval.dtype, np.dtype) or aval.has_explicit_mesh()
            or pending or aval.varying):
        return -1
    k = max(range(len(counts)), key=counts.__getitem__)
    odd = any(total % n == 0 and any(m % n for m in counts) for n in sizes)
    return k if odd and 2 * counts[k] > total and _constant(eqn.invars[k], made) is None else -1


def _placed(eqn: Equation, made: dict[Var, Equation], largest: int = -1) -> Iterator[Equation]:
    """Piece after piece written over one value, or over the largest piece with edges."""
    (result,), dimension = eqn.outvars, eqn.params["dimension"]
    aval = result.aval
    constants = [_constant(a, made) for a in eqn.invars]
    fill = next((c for c in constants if c is not None), None)
    if fill is None:
        zero = np.zeros((), aval.dtype)[()] if isinstance(aval.dtype, np.dtype) else None
        fill = Literal(zero, array_type((), aval.dtype))
    # Weak as the result is: a strong piece makes it strong, and so does a strong base.
    fill = Literal(fill.val, array_type((), aval.dtype, aval.weak_type))
    whole = False                                  # does the largest piece leave fill around it?
    if largest >= 0:
        x, start, limit = _source(eqn.invars[largest], made, dimension)
        whole = (start, limit) == (0, x.aval.shape[dimension])
    low = 0
    pieces: list[tuple[Atom, dict[str, int]]] = []
    for k, (atom, constant) in enumerate(zip(eqn.invars, constants, strict=True)):
        n = atom.aval.shape[dimension]
        filled = constant is not None and _same(constant, fill) and (largest < 0 or whole)
        if n and k != largest and not filled:
            x, start, limit = _source(atom, made, dimension)
            if largest >= 0 or x.aval.shape[dimension] != aval.shape[dimension]:
                x, start, limit = atom, 0, n         # a few rows, of what is split otherwise
            pieces.append((x, {"dimension": dimension, "start": start, "limit": limit,
                               "low": low}))
        low += n
    last = Var(aval) if pieces else result
    base = Var(array_type(aval.shape, aval.dtype, aval.weak_type, aval.sharding)
               ) if aval.varying else last
    if largest >= 0:
        yield _edged(eqn, made, largest, fill).replace(outvars=(base,))
    else:
        yield eqn.replace(op=broadcast_in_dim_p, invars=(fill,), outvars=(base,), params={
            "shape": aval.shape, "broadcast_dimensions": (),
            "sharding": aval.sharding if any(aval.entries) else None})
    if aval.varying:
        same, base = base, last
        yield eqn.replace(op=pvary_p, invars=(same,), outvars=(base,), params={
            "axes": tuple(sorted(aval.varying))})
    for k, (x, params) in enumerate(pieces):
        out = result if k == len(pieces) - 1 else Var(aval)
        yield eqn.replace(op=place_p, invars=(x, base), outvars=(out,), params=params)
        base = out


def _edged(eqn: Equation, made: dict[Var, Equation], largest: int, fill: Literal) -> Equation:
    """The padding that puts a piece in its place, with whatever around it."""
    d = eqn.params["dimension"]
    x, start, limit = _source(eqn.invars[largest], made, d)
    before = sum(a.aval.shape[d] for a in eqn.invars[:largest])
    after = sum(a.aval.shape[d] for a in eqn.invars[largest + 1:])
    config = [(0, 0, 0)] * x.aval.ndim
    config[d] = (before - start, after - (x.aval.shape[d] - limit), 0)
    return eqn.replace(op=pad_p, invars=(x, fill), params={"padding_config": tuple(config)})


def _same(a: Literal, b: Literal) -> bool:
    return np.asarray(a.val).tobytes() == np.asarray(b.val).tobytes()
