"""Before propagation: a transform over several dimensions becomes one after another.

An fft of rows and columns needs both whole; done one dimension at a time, the other one may be
split meanwhile, and its axes move from the one to the other instead of being gathered.
"""
from __future__ import annotations

from collections.abc import Iterator

from ...ir.inference.infer import infer
from ...ir.mesh import AbstractMesh
from ...ir.op import Op
from ...ir.ops.contractions.fft import FftType, fft_p
from ...ir.ops.movement.shape import transpose_p
from ...ir.program import Atom, Equation, Var


def is_joint(eqn: Equation) -> bool:
    """Is the equation a transform over more than one dimension?"""
    return eqn.op is fft_p and len(eqn.params["fft_lengths"]) > 1


def separated(eqn: Equation, mesh: AbstractMesh) -> Iterator[Equation]:
    """Transforms of one dimension each: the last one first, but last where it becomes real."""
    kind, lengths = eqn.params["fft_type"], eqn.params["fft_lengths"]
    rank = eqn.outvars[0].aval.ndim
    last = rank - 1
    others = [(d, lengths[d - rank]) for d in reversed(range(rank - len(lengths), last))]
    back = kind in (FftType.IFFT, FftType.IRFFT)
    complex_kind = FftType.IFFT if back else FftType.FFT
    turns = [(d, n, complex_kind) for d, n in others]
    turns.insert(len(turns) if kind is FftType.IRFFT else 0, (last, lengths[-1], kind))
    x: Atom = eqn.invars[0]
    made: list[Equation] = []

    def add(op: Op, x: Atom, **params: object) -> Var:
        (aval,) = infer(op, (x.aval,), params, mesh)
        out = Var(aval)
        made.append(eqn.replace(op=op, invars=(x,), outvars=(out,), params=params))
        return out

    for d, n, turn in turns:
        swap = list(range(rank))
        swap[d], swap[last] = last, d
        if d != last:
            x = add(transpose_p, x, permutation=tuple(swap))
        x = add(fft_p, x, fft_type=turn, fft_lengths=(n,))
        if d != last:
            x = add(transpose_p, x, permutation=tuple(swap))
    made[-1] = made[-1].replace(outvars=eqn.outvars)
    yield from made
