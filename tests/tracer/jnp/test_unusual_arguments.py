"""Arguments that are seldom given, beside JAX: empty masks and positions, shapes that are no
tuples, slices that fill up."""
from __future__ import annotations

import collections
import functools
from types import ModuleType

import numpy as np
import pytest

import shardtrace as st
import shardtrace.scipy.linalg
import shardtrace.scipy.stats
from tests.real_jax import real_jax

from ...rows import rows

X = np.arange(6, dtype=np.float32).reshape(2, 3) % 2


class Nothing:
    """A shape of no dimensions that is no tuple."""

    def __len__(self):
        return 0

    def __getitem__(self, i):
        raise IndexError


def product(m: ModuleType):
    return m.numpy.frompyfunc(lambda a, b: a * b, 2, 1, identity=1)


NO_PLACES = np.zeros(0, int)
CASES = {
    **{f"mask {shape} of {of}":
       lambda m, shape=shape, of=of: m.numpy.ones(of)[np.empty(shape, bool)]
       for shape, of in [((0,), (3,)), ((0,), (3, 4)), ((0, 4), (3, 4)), ((3, 0), (3, 4)),
                         ((3, 0), (3, 4, 5))]},
    "mask behind": lambda m: m.numpy.ones((3, 4, 5))[:, np.empty((0,), bool)],
    "mask, set": lambda m: m.numpy.ones((3, 4)).at[np.empty((0, 4), bool)].set(2),
    "unique, filled with a matrix": lambda m: m.numpy.unique(
        X.reshape(1, 2, 3), axis=0, size=3, fill_value=X + 7),
    "unique, filled with a column": lambda m: m.numpy.unique(
        X, axis=1, size=5, fill_value=np.arange(2.0)),
    "reduceat": lambda m: m.numpy.add.reduceat(X, NO_PLACES, axis=1),
    "reduceat of a function": lambda m: product(m).reduceat(X, NO_PLACES, axis=0),
    "reduceat, jitted": lambda m: m.jit(lambda i: m.numpy.add.reduceat(X, i, axis=1))(NO_PLACES),
    "shape of nothing": lambda m: m.numpy.arange(1).reshape(Nothing()),
    "shape in an array": lambda m: m.numpy.arange(6).reshape(np.array([2, 3])),
    **{f"{name} of masked complex numbers, {initial}":
       lambda m, name=name, initial=initial: getattr(m.numpy, name)(
           X * (1 - 2j), axis=0, initial=initial, where=X > 0)
       for name in ("max", "min", "nanmax", "nanmin") for initial in (-3, 2.5j, 9 - 1j)},
    "companion of a constant": lambda m: m.scipy.linalg.fiedler_companion(X[:, :1] + 1),
    "one row to three diagonals": lambda m: m.lax.linalg.tridiagonal(
        np.full((1, 1), 5 - 2j, np.complex64), lower=True)[0],
    "array of a range": lambda m: m.numpy.array(range(3)),
    "array of ranges": lambda m: m.numpy.array([range(3), range(1, 4)], float),
    "array of a range and an array": lambda m: m.numpy.array([m.numpy.arange(3), range(1, 4)]),
    "array of a deque": lambda m: m.numpy.asarray(collections.deque([1.5, 2])),
    "probability of half of an event": lambda m: m.scipy.stats.bernoulli.pmf(
        np.float32([-0.5, 0, 0.25, 0.5, 1, 1.5]), 0.5),
    "sum of a range": lambda m: m.numpy.asarray(range(5)).sum(),
    "shape from an iterator": lambda m: m.numpy.arange(6).reshape(iter((2, -1))),
}


@rows("name", CASES)
def test_as_jax_has_it(name):
    got, want = (CASES[name](m) for m in (st, real_jax()))
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


@pytest.mark.parametrize("index", [[0, 1], [slice(0, 1), 1], [None, 0], [[0, 1], [1, 0]],
                                   [np.array([0]), 1]], ids=str)
def test_a_list_as_an_index_is_refused_with_what_to_write(index):
    words = []
    for m in (st, real_jax()):
        with pytest.raises(TypeError, match="Using a non-tuple sequence") as e:
            m.numpy.asarray(X)[index]
        words.append(str(e.value).partition(" instead")[0])
    assert words[0] == words[1]


def test_a_mask_of_another_size_is_refused():
    with pytest.raises(IndexError, match="boolean index did not match"):
        st.numpy.ones((3, 4, 5))[np.empty((2, 0), bool)]


@pytest.mark.parametrize("in_axes", [(0, 0), (0, None), (None, 0)])
@pytest.mark.parametrize("groups", [(1, 1), (2, 1), (1, 2)])
def test_a_convolution_of_no_examples(groups, in_axes):
    batches, features = groups
    lhs = np.ones((batches, 2 * features, 6, 7), np.float32)
    rhs = np.ones((2 * batches * features, 2, 1, 2), np.float32)

    def f(m: ModuleType):
        return lambda a, b: m.lax.conv_general_dilated(
            a, b, (1, 1), "VALID", batch_group_count=batches, feature_group_count=features)

    args = [x if d is None else np.zeros((0, *x.shape), x.dtype)
            for x, d in zip((lhs, rhs), in_axes, strict=True)]
    got, want = (m.vmap(f(m), in_axes)(*args) for m in (st, real_jax()))
    assert got.shape == want.shape == (0, *f(st)(lhs, rhs).shape)


def test_what_is_made_may_have_a_spec_of_more_dimensions():
    """Those that are whole; what is moved may not."""
    jax = real_jax()
    for m in (st, jax):
        mesh = m.sharding.Mesh(np.array(m.devices()), ("i",))
        sharding = m.sharding.NamedSharding(mesh, m.sharding.PartitionSpec("i", None))
        made = [m.lax.full((8,), 2.0, sharding=sharding), m.numpy.zeros((8,), device=sharding),
                m.numpy.full((8,), 3, device=sharding),
                m.lax.full_like(m.numpy.ones(8), 2.0, sharding=sharding)]
        assert all(x.sharding == sharding for x in made)
        assert [float((x + 1).sum()) for x in made] == [24, 8, 32, 24]
        with pytest.raises(ValueError, match="only valid for values of rank at least 2"):
            m.device_put(np.zeros(8), sharding)


def test_the_solution_of_a_matrix_of_zeros_is_finite_if_asked():
    zeros, b = np.zeros(3, np.float32), np.array([[1], [5], [-3]], np.float32)
    x = st.lax.linalg.tridiagonal_solve(zeros, zeros, zeros, b, perturb_singular=True)
    assert np.isfinite(x).all() and (np.sign(x) == np.sign(b)).all() and (abs(x) > 1e6).all()


@pytest.mark.parametrize("d", [[1, 0, 0], [1, 1e-7, -1e-8], [1e-20, 0, 0], [0], [8, 0],
                               [4, 5, 6, 7, 8]], ids=str)
def test_a_tridiagonal_matrix_without_inverse_is_perturbed_as_in_jax(d):
    d = np.asarray(d, np.float32)
    beside = np.arange(len(d), dtype=np.float32) * (len(d) == 5)
    args = beside, d, beside[::-1].copy(), np.arange(1, len(d) + 1, dtype=np.float32)[:, None]
    got, want = (m.lax.linalg.tridiagonal_solve(*args, perturb_singular=True)
                 for m in (st, real_jax()))
    assert np.isfinite(got).all()
    np.testing.assert_allclose(got, want, rtol=1e-5)
    stacked = st.vmap(lambda *a: st.lax.linalg.tridiagonal_solve(*a, perturb_singular=True))(
        *[np.stack([a, a]) for a in args])
    np.testing.assert_array_equal(stacked, np.stack([got, got]))


@pytest.mark.parametrize("shape, k, more", [
    ((1000,), 5, {}), ((3, 1000), 5, {}), ((3, 1000), 1, {}), ((3, 5000), 10, {}),
    ((5000,), 10, {"recall_target": 0.8}), ((2, 900), 3, {"recall_target": 1.0}),
    ((2, 900), 3, {"reduction_input_size_override": 8000}), ((4, 3000, 2), 7, {})])
def test_an_approximate_search_may_give_more_than_k(shape, k, more):
    x = np.random.default_rng(0).permutation(int(np.prod(shape))).reshape(shape).astype(np.float32)
    dimension = 1 if len(shape) == 3 else -1
    for name in ("approx_max_k", "approx_min_k"):
        got, want = (getattr(m.lax, name)(x, k, dimension, aggregate_to_topk=False, **more)
                     for m in (st, real_jax()))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("num", [0, 1, 2])
@pytest.mark.parametrize("endpoint", [True, False])
@pytest.mark.parametrize("start", [0.0, np.zeros(2, np.float32)], ids=["number", "array"])
def test_the_step_of_linspace_is_one_number_where_there_is_none(num, endpoint, start):
    got, want = (m.numpy.linspace(start, 1.0, num, endpoint=endpoint, retstep=True)
                 for m in (st, real_jax()))
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_array_equal(a, b)


def test_derivatives_of_ldexp_and_frexp_at_numpy_arrays():
    x, n = np.ones(2, np.float32), np.array([1, 2])
    for f in (lambda m, x: m.numpy.ldexp(x, n), lambda m, x: m.numpy.frexp(x)[0]):
        got, want = (m.jvp(functools.partial(f, m), (x,), (x,)) for m in (st, real_jax()))
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
