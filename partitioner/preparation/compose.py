"""Before propagation: slices of paddings and concatenations are taken of what these are made of.

`pad(x, 1)[2:]` has the rows of x, one further on, and as many as x has; by way of the padding it
has two more, which no mesh may divide. So a slice of a padding is a padding (that cuts off too),
and a slice of a concatenation is one of parts of its pieces; what is in between is not computed
unless something else reads it. A padding between elements is one within blocks and one of edges.
"""
from __future__ import annotations

from collections.abc import Mapping

from ...ir.inference.infer import infer
from ...ir.mesh import AbstractMesh
from ...ir.op import Op
from ...ir.ops.movement.joining import concatenate_p
from ...ir.ops.movement.padding import pad_p, within_blocks
from ...ir.ops.movement.slicing import slice_p
from ...ir.program import Atom, Equation, Program, Var

_MOST_PIECES = 3


def composed(eqn: Equation, made: Mapping[Var, Equation], mesh: AbstractMesh
             ) -> list[Equation] | None:
    """The equation in terms of what its operand is made of; None where nothing is gained.

    made: the equations that made the variables so far.
    """
    if mesh.explicit_axes:                         # the types in between would be checked
        return None
    if eqn.op is pad_p:
        return _apart(eqn, mesh)
    if eqn.op is not slice_p or any(s != 1 for s in eqn.params["strides"] or ()):
        return None
    first = made.get(eqn.invars[0]) if isinstance(eqn.invars[0], Var) else None
    if first is None or _pending(first) or _pending(eqn):
        return None
    if first.op is pad_p:
        return _of_padding(eqn, first)
    if first.op is concatenate_p:
        return _of_pieces(eqn, first, mesh)
    return None


def _pending(eqn: Equation) -> bool:
    aval = eqn.outvars[0].aval
    return bool(aval.sharding.spec.unreduced or aval.manual.unreduced or aval.manual.reduced)


def _of_padding(eqn: Equation, first: Equation) -> list[Equation] | None:
    starts, limits = eqn.params["start_indices"], eqn.params["limit_indices"]
    config = []
    for n, (low, high, inner), start, limit in zip(
            first.outvars[0].aval.shape, first.params["padding_config"], starts, limits,
            strict=True):
        if inner and (start or limit != n):
            return None
        config.append((low - start, high - (n - limit), inner))
    if any(low + n <= 0 or high + n <= 0 for n, (low, high, _) in zip(
            first.invars[0].aval.shape, config, strict=True)):
        return None                                # nothing of x is left: as it was
    return [eqn.replace(op=pad_p, invars=first.invars, params={"padding_config": tuple(config)})]


def _of_pieces(eqn: Equation, first: Equation, mesh: AbstractMesh) -> list[Equation] | None:
    d = first.params["dimension"]
    starts, limits = eqn.params["start_indices"], eqn.params["limit_indices"]
    start, limit, low = starts[d], limits[d], 0
    pieces: list[Atom] = []
    found: list[Equation] = []
    for atom in first.invars:
        n = atom.aval.shape[d]
        a, b = max(start - low, 0), min(limit - low, n)
        low += n
        if a >= b:
            continue
        own = tuple(a if k == d else s for k, s in enumerate(starts))
        stop = tuple(b if k == d else s for k, s in enumerate(limits))
        if any(own) or stop != atom.aval.shape:
            made = _made(eqn, slice_p, (atom,), mesh, start_indices=own, limit_indices=stop,
                         strides=None)
            found.append(made)
            atom = made.outvars[0]
        pieces.append(atom)
    weak = all(a.aval.weak_type for a in pieces)
    if not 0 < len(pieces) <= _MOST_PIECES or weak != eqn.outvars[0].aval.weak_type:
        return None
    return [*found, eqn.replace(op=concatenate_p, invars=tuple(pieces), params={"dimension": d})]


def _apart(eqn: Equation, mesh: AbstractMesh) -> list[Equation] | None:
    """A padding between elements: first within blocks, then at the edges."""
    inside, edges = [], []
    for low, high, inner in eqn.params["padding_config"]:
        own = min(max(low, 0), inner)
        inside.append((own, inner - own, inner))
        edges.append((low - own, high - (inner - own), 0))
    if not any(inner for _, _, inner in inside) or not any(map(any, edges)):
        return None
    if any(not within_blocks(c) and c != (0, 0, 0) for c in inside):
        return None
    made = _made(eqn, pad_p, tuple(eqn.invars), mesh, padding_config=tuple(inside))
    return [made, eqn.replace(invars=(made.outvars[0], eqn.invars[1]),
                              params={"padding_config": tuple(edges)})]


def _made(eqn: Equation, op: Op, operands: tuple[Atom, ...], mesh: AbstractMesh, **params: object
          ) -> Equation:
    (aval,) = infer(op, tuple(a.aval for a in operands), params, mesh)
    return eqn.replace(op=op, invars=operands, outvars=(Var(aval),), params=params)


def aligned(program: Program) -> Program:
    """Strided slices that leave out some of the rows that their stride meets, in two steps.

    `x[2::2]` of 64 rows has 31; it is `x[::2]`, which blocks have by themselves, from row 1 on.
    """
    eqns: list[Equation] = []
    for eqn in program.eqns:
        eqns += _aligned(eqn, program.mesh) if eqn.op is slice_p else [eqn]
    return program if len(eqns) == len(program.eqns) else program.replace(eqns=eqns)


def _aligned(eqn: Equation, mesh: AbstractMesh) -> list[Equation]:
    params, shape = eqn.params, eqn.invars[0].aval.shape
    steps = params["strides"] or (1,) * len(shape)
    first, then, apart = [], [], False
    for n, m, start, limit, step in zip(shape, eqn.outvars[0].aval.shape, params["start_indices"],
                                        params["limit_indices"], steps, strict=True):
        if step == 1 or n % step or 2 * m * step <= n:
            first.append((start, limit, step))
            then.append((0, m))
        else:
            apart = apart or m != n // step
            first.append((start % step, n, step))
            then.append((start // step, start // step + m))
    if not apart:
        return [eqn]
    made = _made(eqn, slice_p, tuple(eqn.invars), mesh,
                 start_indices=tuple(a for a, _, _ in first),
                 limit_indices=tuple(b for _, b, _ in first), strides=tuple(steps))
    return [made, eqn.replace(invars=made.outvars, params={
        "start_indices": tuple(a for a, _ in then), "limit_indices": tuple(b for _, b in then),
        "strides": None})]
