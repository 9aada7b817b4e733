"""Small programs with one unwanted collective each; the line to blame ends in `# culprit`."""
from __future__ import annotations

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Auto,) * 2)
EXPLICIT = st.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Explicit,) * 2)
CASES: dict = {}


def struct(shape, *spec, mesh=MESH, dtype=np.float32):
    return st.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def constrained(x, *spec):
    return st.lax.with_sharding_constraint(x, NamedSharding(MESH, P(*spec)))


def case(kind, *args, out=None, mesh=MESH):
    """kind: of the collective that is not wanted. out: out_shardings of the single result."""
    def enter(f):
        jitted = st.jit(f, out_shardings=None if out is None else NamedSharding(mesh, out))
        CASES[f.__name__] = (jitted, kind, args, mesh)
        return f
    return enter


@case("all-gather", struct((64, 256), "X"), struct((256, 256), None, "Y"),
      struct((256, 256), None, "Y"))
def two_columns(x, w1, w2):
    h = jnp.tanh(x @ w1)
    return h @ w2                                        # culprit


@case("all-reduce", struct((64, 256), "X"), struct((256, 512), "Y"))
def weight_by_rows(x, w):
    return jnp.tanh(x) @ w                               # culprit


@case("all-gather", struct((64, 256), "X"), struct((256, 512)))
def whole_in_the_middle(x, w):
    h = x @ w                                            # culprit
    h = st.lax.with_sharding_constraint(h, NamedSharding(MESH, P()))
    return jnp.sin(h) @ w.T


@case("all-to-all", struct((64, 256), "X"), struct((64, 256), None, "X"))
def sum_of_two_layouts(a, b):
    c = jnp.sin(a)
    return c + b                                         # culprit


@case("all-reduce", struct((64, 256), "X"), struct((1000, 256), "Y"),
      struct((64,), "X", dtype=np.int32))
def table_by_rows(x, table, ids):
    e = table[ids]                                       # culprit
    return x + e


@case("all-gather", struct((64, 256), "X"), struct((4, 256, 256), None, None, "Y"))
def layers_by_columns(x, ws):
    def body(h, w):
        return jnp.tanh(h @ w), None                     # culprit
    return st.lax.scan(body, x, ws)[0]


@case("all-gather", struct((256, 512), "Y"), out=P())
def whole_result(x):
    return jnp.tanh(x)                                   # culprit


@case("all-reduce", struct((64, 256), "X", "Y"))
def softmax_over_a_split_dimension(x):
    return st.nn.softmax(x, axis=1)                      # culprit


@case("all-to-all", struct((64, 256), "X", "Y"))
def sort_along_a_split_dimension(x):
    return jnp.sort(x, axis=1)                           # culprit


@case("collective-permute", struct((64, 512), "X", "Y"))
def halves_swapped(x):
    return jnp.concatenate([x[:, 256:], x[:, :256]], 1)  # culprit


@case("all-gather", struct((512, 256), ("X", "Y")), struct((512,), dtype=np.int32))
def rows_at_random(x, i):
    return x[i] * 2                                      # culprit


@case("all-reduce", struct((64, 256), "X", "Y", mesh=EXPLICIT),
      struct((256, 512), "Y", mesh=EXPLICIT), mesh=EXPLICIT)
def explicit_contraction(x, w):
    return jnp.einsum("ij,jk->ik", x, w, out_sharding=P("X", None))    # culprit


@case("all-reduce", struct((64, 256), "X"), struct((256, 512), None, "Y"), struct((512, 256), "Y"))
def tensor_parallel(x, w1, w2):
    h = st.nn.relu(x @ w1)
    return h @ w2                                        # culprit
