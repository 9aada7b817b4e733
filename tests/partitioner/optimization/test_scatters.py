"""Of a reduction over devices each keeps the block that it wants: half the bytes of the whole."""
from __future__ import annotations

import numpy as np

from shardtrace import lax

from ...rows import rows
from ..agreement import agree

X = np.random.default_rng(0).integers(0, 99, (24, 16)).astype(np.float32)


@rows("reduced", [
    lambda x: x.sum(0), lambda x: x.max(0), lambda x: x.min(0), lambda x: (x % 3 + 1).prod(0),
    lambda x: (x % 7 > 0).all(0), lambda x: (x % 31 == 0).any(0),
    *[lambda x, op=op: op(x.astype(np.int32), (0,)) for op in (
        lax.reduce_and, lax.reduce_or, lax.reduce_xor)]])
@rows("out, share", [(("x",), 3 / 4), ((), 3 / 2)])
def test_every_kind_of_reduction_becomes_a_reduce_scatter(reduced, out, share):
    whole = np.asarray(reduced(X))
    assert agree(reduced, [X], [("x",)], out, (4,)) == share * whole.nbytes
