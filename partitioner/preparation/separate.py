"""Splits an FFT over several dimensions into one FFT per dimension.

An FFT over rows and columns needs both whole at the same time. Taken one dimension at a time, the
other may stay split, and its axes move between the two steps instead of being gathered.
"""
from __future__ import annotations

from ...ir.ops.contractions.fft import FftType, fft_p
from ...ir.ops.movement.shape import transpose_p
from ...ir.program import Atom
from ...ir.rewriting.rewrite import Match, Rewrite
from ..propagation.divisibility import may_be_split


def _separated(m: Match) -> Atom:
    """The transform as one of each dimension: the last one first, unless it is the one that makes
    the result real.
    """
    rank = m.eqn.outvars[0].aval.ndim
    last = rank - 1
    others = [(d, m.lengths[d - rank]) for d in reversed(range(rank - len(m.lengths), last))]
    back = m.kind in (FftType.IFFT, FftType.IRFFT)
    complex_kind = FftType.IFFT if back else FftType.FFT
    turns = [(d, n, complex_kind) for d, n in others]
    turns.insert(len(turns) if m.kind is FftType.IRFFT else 0, (last, m.lengths[-1], m.kind))
    x = m.x
    for d, n, turn in turns:
        swap = list(range(rank))
        swap[d], swap[last] = last, d
        if d != last:
            x = m.emit(transpose_p, x, permutation=tuple(swap))
        x = m.emit(fft_p, x, fft_type=turn, fft_lengths=(n,))
        if d != last:
            x = m.emit(transpose_p, x, permutation=tuple(swap))
    return x


SEPARATE = (Rewrite(
    "joint-transform", "out = fft x {fft_type=kind, fft_lengths=lengths}", _separated,
    where=lambda m: len(m.lengths) > 1 and may_be_split(m),
    why="while one dimension is transformed, another one may be split"),)
