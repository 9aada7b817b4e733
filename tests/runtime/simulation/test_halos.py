"""Stencils on blocks with rows of the neighbours around them."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.lax as lax
import shardtrace.numpy as jnp
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

from ...executors import agree
from ...rows import rows

MESH = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(16, 32)).astype(np.float32)
RING, LINE = True, False


def neighbours(axis, step, ring):
    n = 8 if isinstance(axis, tuple) else MESH.shape[axis]
    pairs = [(i, i + step) for i in range(n)]
    return [(a, b % n) for a, b in pairs if ring or 0 <= b < n]


def with_halo(x, axis, d, low=1, high=1, ring=RING):
    """Rows of both neighbours around a block."""
    n = x.shape[d]
    before = lax.ppermute(lax.slice_in_dim(x, n - low, n, axis=d), axis,
                          neighbours(axis, 1, ring)) if low else None
    after = lax.ppermute(lax.slice_in_dim(x, 0, high, axis=d), axis,
                         neighbours(axis, -1, ring)) if high else None
    return jnp.concatenate([part for part in (before, x, after) if part is not None], d)


def by_both(f, spec, x=DATA):
    """The result on both executors, which must be the same to the bit."""
    x = st.device_put(x, st.NamedSharding(MESH, spec))
    g = st.shard_map(f, mesh=MESH, in_specs=(spec,), out_specs=spec)
    return agree(g, x)


def shifted(x, by, d, ring):
    out = np.roll(x, by, d)
    if not ring and by:
        out[(slice(None),) * d + (slice(0, by) if by > 0 else slice(by, None),)] = 0
    return out


@rows("ring", [RING, LINE])
@rows("spec, axis, d", [
    (P("y"), "y", 0), (P(None, "y"), "y", 1), (P("x", "y"), "x", 0), (P("x", "y"), "y", 1),
    (P(("x", "y")), ("x", "y"), 0)])
@rows("low, high", [(1, 1), (2, 1), (0, 2), (1, 0)])
def test_windows_are_the_whole_some_rows_further(spec, axis, d, low, high, ring):
    def f(x):
        n, u = x.shape[d], with_halo(x, axis, d, low, high, ring)
        return sum([(k + 1) * lax.slice_in_dim(u, k, k + n, axis=d)
                    for k in range(low + high + 1)])
    want = sum([np.float32(k + 1) * shifted(DATA, low - k, d, ring)
                for k in range(low + high + 1)])
    np.testing.assert_allclose(by_both(f, spec), want, rtol=1e-5, atol=1e-5)


def jacobi(u):
    p = np.pad(u, 1)
    return (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) * np.float32(0.25)


def test_zeros_around_lengthened_blocks_and_a_loop():
    def f(u):
        def step(_, u):
            p = jnp.pad(with_halo(u, "y", 0, ring=LINE), ((0, 0), (1, 1)))
            return (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) * 0.25
        return lax.fori_loop(0, 40, step, u)
    want = DATA
    for _ in range(40):
        want = jacobi(want)
    np.testing.assert_allclose(by_both(f, P("y")), want, rtol=1e-5)


def test_both_dimensions_of_a_grid_and_a_gradient():
    def step(u):
        a, b = with_halo(u, "x", 0), with_halo(u, "y", 1)
        return u + 0.1 * (a[:-2] + a[2:] + b[:, :-2] + b[:, 2:] - 4 * u)

    def f(u):
        return lax.fori_loop(0, 5, lambda i, u: step(u), u)

    def energy(u):
        return lax.psum((f(u) ** 2).sum(), ("x", "y"))
    want = DATA
    for _ in range(5):
        want = want + np.float32(0.1) * (np.roll(want, 1, 0) + np.roll(want, -1, 0)
                                         + np.roll(want, 1, 1) + np.roll(want, -1, 1) - 4 * want)
    np.testing.assert_allclose(by_both(f, P("x", "y")), want, rtol=1e-4, atol=1e-5)
    slope = by_both(st.grad(energy), P("x", "y"))
    back = 2 * want                     # the step is its own transpose
    for _ in range(5):
        back = back + np.float32(0.1) * (np.roll(back, 1, 0) + np.roll(back, -1, 0)
                                         + np.roll(back, 1, 1) + np.roll(back, -1, 1) - 4 * back)
    np.testing.assert_allclose(slope, back, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int32", "bool", "bfloat16", "float32"])
def test_dtypes_and_special_values(dtype):
    x = (DATA * 10).astype(np.int32) if dtype == "int32" else DATA > 0 if (
        dtype == "bool") else DATA.astype(jnp.dtype(dtype))
    if dtype == "float32":
        x[0, 0], x[3, 5], x[15, 31] = np.inf, np.nan, -np.inf

    def f(x):
        u = with_halo(x, "y", 0, ring=LINE)
        return jnp.where(u[:-2] > u[2:], u[1:-1], u[:-2])
    got = by_both(f, P("y"), x)
    up, down = shifted(x, 1, 0, LINE), shifted(x, -1, 0, LINE)
    np.testing.assert_array_equal(got, np.where(up > down, x, up))


@pytest.mark.parametrize("f", [
    lambda x: with_halo(x, "y", 0)[1:-1] + with_halo(x, "y", 0).max(),          # all of it is read
    lambda x: with_halo(x, "y", 0)[:4:2].repeat(2, 0),                          # strides
    lambda x: with_halo(x, "y", 0)[:3].sum(0) + x,                              # shorter windows
    lambda x: jnp.concatenate([lax.ppermute(x[-1:], "y", neighbours("y", 2, RING)), x])[:-1] * 2,
    lambda x: jnp.concatenate([lax.ppermute(x[:1], "y", neighbours("y", 1, RING)), x])[:-1] * 2,
    lambda x: jnp.concatenate([lax.ppermute(x[-1:], "y", [(0, 1), (2, 3)]), x])[:-1] * 2,
    lambda x: jnp.concatenate([lax.ppermute(x, "y", neighbours("y", 1, RING)), x, x])[4:8] * 2,
    lambda x: jnp.pad(with_halo(x, "y", 0), 1, constant_values=1)[1:5, 1:-1],
    lambda x: jnp.pad(with_halo(x, "y", 0), ((1, 0), (0, 0)))[:4] * 3,
    lambda x: jnp.pad(with_halo(x, "y", 0, ring=LINE), ((0, 0), (0, 2)), constant_values=7)[
        1:-1, 2:] * 3,
    lambda x: with_halo(with_halo(x, "y", 0)[1:5], "y", 0)[2:6],
], ids=range(11))
def test_other_reads_of_a_halo(f):
    by_both(f, P("y"))
    by_both(lambda x: f(x) + 1, P("y", "x"))
