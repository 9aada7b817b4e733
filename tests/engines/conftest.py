"""Programs on all engines."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from shardtrace.engines.engine import ENGINES
from shardtrace.ir.mesh import AbstractMesh
from shardtrace.ir.program import Program
from shardtrace.runtime.storage import Stored

from ..real_jax import real_jax

ALL = tuple(ENGINES)


@pytest.fixture(scope="session")
def jax() -> Any:
    return real_jax()


def assert_close(found: np.ndarray, wanted: np.ndarray, tolerance: float, about: str) -> None:
    """Equal up to rounding of the largest element; integers are equal."""
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, about
    if found.dtype.kind in "biuV" and found.dtype.isbuiltin == 1:
        np.testing.assert_array_equal(found, wanted, err_msg=about)
        return
    kind = np.complex128 if found.dtype.kind == "c" else np.float64
    if found.dtype.itemsize <= 2:
        tolerance = max(tolerance, 0.02 if found.dtype.itemsize == 2 else 0.3)
    found, wanted = found.astype(kind), wanted.astype(kind)
    scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0, where=np.isfinite(wanted))))
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * scale,
                               err_msg=about)


def on_all(local: Program, mesh: AbstractMesh, arguments: Sequence[Stored],
           names: Sequence[str] = (), tolerance: float = 2e-5) -> None:
    """The program gives the same on all engines. names: of its results."""
    loaded = [ENGINES[e].load(local, mesh) for e in ALL]
    first, *others = [x(arguments) for x in loaded]
    for engine, results in zip(ALL[1:], others, strict=True):
        for i, (a, b) in enumerate(zip(results, first, strict=True)):
            about = f"{engine}: {names[i] if names else i}"
            assert a.lead == b.lead, about
            assert_close(a.data, b.data, tolerance, about)
