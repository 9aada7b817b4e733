"""Programs on all engines.

On the ranks of an MPI job these are the mpi engine and those that it must agree with: there every
rank runs the same tests, as test_ranks.py has them do.
"""
from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import random
from shardtrace.arrays.storage import Stored
from shardtrace.engines.engine import ENGINES
from shardtrace.ir.meshes.mesh import AbstractMesh
from shardtrace.ir.program import Program
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ..real_jax import real_jax

X = np.arange(16 * 8, dtype=np.float32).reshape(16, 8) / 64 - 1
ON_RANKS = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1")) > 1
ALL = tuple(e for e in ENGINES if e != ("jax" if ON_RANKS else "mpi"))


@pytest.fixture(scope="session")
def jax() -> Any:
    return None if ON_RANKS else real_jax()


@pytest.fixture
def mesh(jax: Any) -> Any:
    return st.make_mesh((4, 2), ("x", "y"))


def put(mesh: Any, value: Any, *entries: Any) -> Any:
    return st.device_put(value, NamedSharding(mesh, P(*entries)))


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
    found = [x(arguments) for x in loaded]
    if "mpi" in ALL:                                   # the same sums, in the same order
        for a, b in zip(found[ALL.index("mpi")], found[ALL.index("per_device")], strict=True):
            assert a.lead == b.lead and a.data.dtype == b.data.dtype
            assert a.data.tobytes() == b.data.tobytes()
    first, *others = found
    for engine, results in zip(ALL[1:], others, strict=True):
        for i, (a, b) in enumerate(zip(results, first, strict=True)):
            about = f"{engine}: {names[i] if names else i}"
            assert a.lead == b.lead, about
            assert_close(a.data, b.data, tolerance, about)


def on_each(f: Any, *args: Any, tolerance: float = 2e-5, **options: Any) -> list[Any]:
    """What jit(f) gives on the first engine; the others give the same."""
    lowered = st.jit(f, **options).lower(*args)
    first, *others = [st.tree.leaves(lowered.compile(engine=e)(*args)) for e in ALL]
    for results in others:
        for a, b in zip(results, first, strict=True):
            assert a.dtype == b.dtype and a.sharding == b.sharding
            if jnp.issubdtype(a.dtype, st.dtypes.extended):
                a, b = random.key_data(a), random.key_data(b)
            a, b = np.asarray(a), np.asarray(b)
            if a.dtype.kind in "biu":
                np.testing.assert_array_equal(a, b)
            else:
                kind = np.complex128 if a.dtype.kind == "c" else np.float64
                np.testing.assert_allclose(a.astype(kind), b.astype(kind), rtol=tolerance,
                                           atol=tolerance)
    return first
