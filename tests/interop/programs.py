"""What the tests of imported programs look at."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


def equations(program: Any) -> Iterator[Any]:
    """The equations of a program, and of the programs in it."""
    for eqn in program.eqns:
        yield eqn
        for name in eqn.op.subprograms:
            held = eqn.params[name]
            for inner in held if isinstance(held, tuple) else (held,):
                yield from equations(inner)


def agree(a: np.ndarray, b: np.ndarray) -> None:
    """Of one dtype, and the same but for rounding."""
    assert a.dtype == b.dtype
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(a.astype(wide), b.astype(wide), atol=2e-5,
                               rtol=4e-3 if a.dtype.itemsize == 2 else 2e-5)
