"""Operators and methods of arrays and tracers: numpy's values, JAX's refusals."""
from __future__ import annotations

import operator

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp

from ...rows import rows

F = np.array([[1.5, -2, 3], [0.5, 4, -1]], np.float32)
G = np.array([[2, 3, -1], [1, 2, 4]], np.float32)
N = np.array([[1, -2, 3], [7, 4, -1]], np.int32)
J = np.array([[2, 3, 1], [1, 2, 4]], np.int32)
ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv,
              operator.mod, operator.pow]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]


def same(got, want):
    got = got if isinstance(got, tuple) else (got,)
    want = want if isinstance(want, tuple) else (want,)
    assert len(got) == len(want)
    for x, y in zip(got, want, strict=True):
        assert x.shape == np.shape(y)
        np.testing.assert_allclose(np.asarray(x), y, rtol=1e-5)


@rows("f", [*ARITHMETIC, *COMPARISONS, divmod])
def test_operators_of_two_arrays_give_what_numpy_gives(f):
    with np.errstate(invalid="ignore"):
        same(f(jnp.asarray(F), jnp.asarray(G)), f(F, G))
        same(st.jit(f)(F, G), f(F, G))
    if f is not operator.pow:
        same(f(jnp.asarray(N), jnp.asarray(J)), f(N, J))


@pytest.mark.parametrize("f", BITS)
def test_bit_operators_give_what_numpy_gives(f):
    same(f(jnp.asarray(N), jnp.asarray(J)), f(N, J))
    same(f(jnp.asarray(N), 2), f(N, 2))
    same(f(5, jnp.asarray(J)), f(np.int32(5), J))


@rows("f", [*ARITHMETIC, *COMPARISONS, divmod])
@rows("other", [2, 1.5, np.float32(3), G[0], [*G[1:2]][0]])
def test_the_other_operand_may_be_a_number_or_a_numpy_array(f, other):
    x = np.abs(F)
    same(f(jnp.asarray(x), other), f(x, other))
    same(f(other, jnp.asarray(x)), f(other, x))


def test_one_operand_operators():
    x = jnp.asarray(N)
    same((-x, +x, abs(x), ~x), (-N, N, abs(N), ~N))
    same(round(jnp.asarray(F)), np.round(F).astype(np.int32))
    assert round(jnp.asarray(F), 1).dtype == jnp.float32
    same(jnp.asarray(F) @ F.T, F @ F.T)
    same(F @ jnp.asarray(F).T, F @ F.T)


@pytest.mark.parametrize("other", [[1, 2], (1, 2), {1}, {"a": 1}])
def test_containers_are_no_operands(other):
    name = type(other).__name__
    with pytest.raises(TypeError, match=rf"unsupported operand type\(s\) for \+: .* and '{name}'"):
        jnp.ones(2) + other
    with pytest.raises(TypeError, match=rf"unsupported operand type\(s\) for >>: '{name}' and"):
        other >> jnp.ones(2)
    with pytest.raises(TypeError, match="unsupported operand"):
        assert jnp.ones(2) == other


def test_other_objects_may_know_what_to_do_with_an_array():
    class Scale:
        def __rmul__(self, x):
            return "scaled"

        __radd__ = None

    assert jnp.ones(2) * Scale() == "scaled"
    with pytest.raises(TypeError):
        jnp.ones(2) + Scale()
    assert (jnp.ones(2) == None) is False       # noqa: E711 - the operator is what is tested
    assert (jnp.ones(2) != "a") is True


def test_jax_array_protocol():
    class Held:
        def __jax_array__(self):
            return jnp.arange(3)

    assert (jnp.arange(3) + Held()).tolist() == [0, 2, 4]
    assert jnp.sin(Held()).shape == (3,)


METHODS = {
    "sum": lambda x: x.sum(axis=0), "mean": lambda x: x.mean(), "max": lambda x: x.max(axis=1),
    "min": lambda x: x.min(), "std": lambda x: x.std(axis=0), "var": lambda x: x.var(),
    "prod": lambda x: x.prod(axis=-1), "any": lambda x: x.any(axis=0), "all": lambda x: x.all(),
    "argmax": lambda x: x.argmax(axis=1), "argmin": lambda x: x.argmin(),
    "argsort": lambda x: x.argsort(axis=1), "cumsum": lambda x: x.cumsum(axis=1),
    "cumprod": lambda x: x.cumprod(axis=0), "ptp": lambda x: np.ptp(x) if isinstance(
        x, np.ndarray) else x.ptp(), "T": lambda x: x.T, "reshape": lambda x: x.reshape(3, 2),
    "reshape-tuple": lambda x: x.reshape((-1,)), "reshape-f": lambda x: x.reshape(6, order="F"),
    "ravel": lambda x: x.ravel(), "flatten": lambda x: x.flatten(order="F"),
    "transpose": lambda x: x.transpose(1, 0), "transpose-tuple": lambda x: x.transpose((1, 0)),
    "swapaxes": lambda x: x.swapaxes(0, 1), "squeeze": lambda x: x[:1].squeeze(0),
    "astype": lambda x: x.astype("int32"), "clip": lambda x: x.clip(0, 2),
    "round": lambda x: x.round(), "repeat": lambda x: x.repeat(2, axis=0),
    "take": lambda x: x.take(np.array([2, 0]), axis=1, **(
        {} if isinstance(x, np.ndarray) else {"mode": "clip"})),
    "diagonal": lambda x: x.diagonal(1), "trace": lambda x: x.trace(), "dot": lambda x: x.dot(F.T),
    "conj": lambda x: x.conj(), "real": lambda x: x.real, "imag": lambda x: x.imag,
    "copy": lambda x: x.copy(), "sort": lambda x: np.sort(x, 0) if isinstance(
        x, np.ndarray) else x.sort(axis=0), "mT": lambda x: x.mT,
    "choose": lambda x: (abs(x).astype("int32") % 2).choose(np.array([x + 1, x * 2])) if isinstance(
        x, np.ndarray) else (abs(x).astype("int32") % 2).choose([x + 1, x * 2]),
    "compress": lambda x: x.compress(np.array([True, False]), axis=0),
    "searchsorted": lambda x: x[0].sort().searchsorted(1.0) if not isinstance(
        x, np.ndarray) else np.sort(x[0]).searchsorted(1.0),
}


@rows("name", METHODS)
def test_methods_give_what_numpy_gives(name):
    f = METHODS[name]
    same(f(jnp.asarray(F)), f(F))
    if name not in ("choose", "compress"):       # these need values
        same(st.jit(f)(F), f(F))


def test_traced_values_have_the_attributes_of_arrays():
    x = jnp.asarray(F)
    assert (x.shape, x.ndim, x.size, x.dtype, x.itemsize, x.nbytes, len(x)) == (
        (2, 3), 2, 6, np.float32, 4, 24, 2)
    assert x.at[0].set(0).tolist() == [[0, 0, 0], [0.5, 4, -1]]
    assert jnp.asarray(N).view("float32").dtype == jnp.float32
    assert x.__array_namespace__() is jnp
    assert x[0, 1].item() == -2 and x.tolist() == F.tolist()


def test_iteration_goes_along_the_first_dimension():
    assert [row.tolist() for row in jnp.asarray(N)] == N.tolist()
    out = st.jit(lambda x: sum(row * k for k, row in enumerate(x)))(F)
    same(out, F[1])
    a, b = jnp.asarray(F)
    same(a + b, F[0] + F[1])
    with pytest.raises(TypeError, match="iteration over a 0-d array"):
        iter(jnp.ones(()))
    with pytest.raises(TypeError, match=r"len\(\) of unsized object"):
        len(jnp.ones(()))


def test_membership_is_for_vectors():
    assert 3 in jnp.arange(4) and 9 not in jnp.arange(4)
    with pytest.raises(ValueError, match="search array must be one-dimensional"):
        assert 1.5 in jnp.asarray(F)


def test_values_are_needed_where_python_wants_one():
    with pytest.raises(st.errors.TracerBoolConversionError):
        st.jit(lambda x: 1 if x.sum() > 0 else 2)(F)
    with pytest.raises(ValueError, match="truth value of an array with more than one element"):
        bool(jnp.asarray(F))
    assert [10, 20, 30][jnp.asarray(2)] == 30
    with pytest.raises(TypeError):
        hash(jnp.asarray(F))


def test_arrays_do_not_change():
    x = jnp.asarray(F)
    with pytest.raises(TypeError, match="JAX arrays are immutable"):
        x[0] = 1
    y = x
    y += 1
    assert x.tolist() == F.tolist()


@pytest.mark.parametrize("name", ["sum", "reshape", "at", "T", "__matmul__", "astype"])
def test_tracers_have_the_methods_of_arrays(name):
    seen = []
    st.make_jaxpr(lambda x: seen.append(hasattr(x, name)))(F)
    assert seen == [True]
