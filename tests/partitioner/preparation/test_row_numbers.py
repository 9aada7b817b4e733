"""An index that counts rows, `x[arange(n), i]`, moves nothing where rows are split."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((4, 2), ("x", "y"))
LABELS = np.array([3, -1, 0, 31, 7, 2, 40, 1], np.int32)
CASES = {
    "labels": (lambda x, i: x[jnp.arange(8), i],
               lambda x, i: x[np.arange(8), np.clip(i, -32, 31)]),
    "several of each row": (lambda x, i: x[jnp.arange(8)[:, None], jnp.stack([i % 5, i % 7], 1)],
                            lambda x, i: x[np.arange(8)[:, None], np.stack([i % 5, i % 7], 1)]),
    "a diagonal": (lambda x, i: jnp.diagonal(x[:, :8]) * i, lambda x, i: np.diagonal(x[:, :8]) * i),
    "written": (lambda x, i: x.at[jnp.arange(8), i % 32].set(1.0),
                lambda x, i: _written(x, np.arange(8), i % 32)),
    "slopes": (lambda x, i: st.grad(lambda x: (x[jnp.arange(8), i % 32] ** 2).sum())(x),
               lambda x, i: _written(0 * x, np.arange(8), i % 32,
                                     2 * x[np.arange(8), i % 32])),
    "rows in another order": (lambda x, i: x[7 - jnp.arange(8), i % 32],
                              lambda x, i: x[7 - np.arange(8), i % 32])}


def _written(x, rows, columns, values=1.0):
    found = x.copy()
    found[rows, columns] = values
    return found


@pytest.mark.parametrize("spec", [P("x"), P(("x", "y"))])
@pytest.mark.parametrize("name", CASES)
def test_rows_are_read_where_they_are(name, spec):
    f, reference = CASES[name]
    x = np.sin(np.arange(256, dtype=np.float32)).reshape(8, 32)
    args = st.device_put(x, NamedSharding(MESH, spec)), st.device_put(
        LABELS, NamedSharding(MESH, spec))
    moved = [c.received_bytes for c in st.explain(f, suggest_seconds=0)(*args).collectives]
    assert bool(moved) == (name == "rows in another order")
    for executor in ("simulated", "per_device"):
        with st.config.override(shardtrace_engine=executor):
            np.testing.assert_allclose(np.asarray(st.jit(f)(*args)), reference(x, LABELS),
                                       rtol=1e-6)
