"""Operands are brought to one dtype and rank by equations that the program shows."""
from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax

from ...rows import rows

F, H, N, U, B, C = (np.ones(3, d) for d in (
    np.float32, ml_dtypes.bfloat16, np.int32, np.uint8, np.bool_, np.complex64))


def program(f, *args):
    return st.make_jaxpr(f)(*args).jaxpr


def ops(f, *args):
    return [e.op.name for e in program(f, *args).eqns]


@pytest.mark.parametrize(("f", "operand", "names"), [
    (lambda x: x + 1, F, ["add"]),
    (lambda x: 2.0 * x, F, ["mul"]),
    (lambda x: x * 2.0, H, ["mul"]),
    (lambda x: x + 1, U, ["add"]),
    (lambda x: x + 1j, C, ["add"]),
    (lambda x: x & True, B, ["and"]),
    (lambda x: x + 1.0, N, ["convert_element_type", "add"]),
    (lambda x: x + 1, B, ["convert_element_type", "add"]),
    (lambda x: x + 1j, F, ["convert_element_type", "add"]),
    (lambda x: x + np.float32(1), F, ["add"]),
    (lambda x: x + np.float32(1), H, ["convert_element_type", "add"]),
    (lambda x: x + x, F, ["add"]),
    (lambda x: x + x.astype(jnp.bfloat16), F,
     ["convert_element_type", "convert_element_type", "add"]),
])
def test_python_scalars_become_literals(f, operand, names):
    assert ops(f, operand) == names


@rows("expression, type", [
    ("jnp.asarray(1)", "~i32[]"), ("jnp.asarray(1.0)", "~f32[]"), ("jnp.asarray(True)", "bool[]"),
    ("jnp.asarray(1j)", "~c64[]"), ("jnp.asarray([1, 2])", "i32[2]"),
    ("jnp.asarray([1, 2.0])", "f32[2]"), ("jnp.asarray(np.arange(2))", "i32[2]"),
    ("jnp.asarray(np.float64(1))", "f32[]"), ("jnp.asarray(1.0) + 1", "~f32[]"),
    ("jnp.asarray(1) + 1.0", "~f32[]"), ("jnp.asarray(1.0) + F", "f32[3]"),
    ("jnp.asarray(1.0) + H", "bf16[3]"), ("jnp.asarray(1.0) + N", "~f32[3]"),
    ("jnp.asarray(1) + U", "u8[3]"), ("jnp.asarray(1j) + F", "c64[3]"),
    ("jnp.sin(jnp.asarray(1))", "~f32[]"), ("jnp.sin(N)", "f32[3]"), ("jnp.sin(H)", "bf16[3]"),
    ("jnp.sum(U)", "u32[]"), ("jnp.sum(B)", "i32[]"), ("jnp.sum(H)", "bf16[]"),
    ("jnp.mean(N)", "f32[]"), ("jnp.cumsum(B)", "i32[3]"), ("N / N", "f32[3]"),
    ("jnp.asarray(N) // 2", "i32[3]"), ("jnp.where(B, 1, 2.0)", "~f32[3]"),
    ("jnp.where(B, F, 1)", "f32[3]"), ("jnp.where(B, N, 1.5)", "~f32[3]"),
    ("jnp.maximum(U, 0)", "u8[3]"), ("jnp.concatenate([N, F])", "f32[6]"),
    ("jnp.stack([1, 2.0])", "~f32[2]"), ("jnp.full(2, 1)", "~i32[2]"),
    ("jnp.full_like(H, 2)", "bf16[3]"), ("jnp.zeros(2)", "f32[2]"), ("jnp.arange(3)", "i32[3]"),
    ("jnp.arange(3.0)", "f32[3]"), ("jnp.linspace(0, 1, 3)", "f32[3]"), ("jnp.eye(2)", "f32[2,2]"),
    ("F @ N.astype(np.float32)", "f32[]"), ("jnp.dot(H, F)", "f32[]"),
    ("jnp.float32(2)", "f32[]"), ("jnp.int8(3) + 1", "i8[]"), ("lax.add(F, 1.0)", "f32[3]"),
    ("lax.add(1.0, 2.0)", "~f32[]"), ("abs(jnp.asarray(C))", "f32[3]"),
    ("jnp.asarray(N)**2.0", "~f32[3]"), ("jnp.asarray(N)**2", "i32[3]"),
    ("2.0**jnp.asarray(F)", "f32[3]"),
])
def test_types_of_results(expression, type):
    aval = st.typeof(jnp.asarray(eval(expression)))
    assert ("~" if aval.weak_type else "") + aval.str_short(True) == type


def test_with_x64_the_defaults_are_wide():
    with st.enable_x64():
        assert jnp.asarray(1).dtype == jnp.int64
        assert jnp.arange(3.0).dtype == jnp.float64
        assert (jnp.asarray(F) + 1.0).dtype == jnp.float32
        assert jnp.sum(jnp.asarray(B)).dtype == jnp.int64
        assert jnp.sin(jnp.arange(3)).dtype == jnp.float64


def test_ranks_are_raised_by_equations_but_not_those_of_scalars():
    x = np.ones((2, 3), np.float32)
    assert ops(lambda x, v: x + v, x, F) == ["broadcast_in_dim", "add"]
    assert ops(lambda x, s: x + s, x, np.float32(1)) == ["add"]
    assert ops(lambda x, v, s: jnp.where(s > 0, x, v), x, F, np.float32(1)) == [
        "gt", "broadcast_in_dim", "select_n"]
    assert program(lambda x, v: x + v, x, F).eqns[0].outvars[0].aval.shape == (1, 3)


def test_integers_that_do_not_fit_wrap_around_or_are_refused():
    assert (jnp.asarray(U) + 300).tolist() == [45, 45, 45]
    assert (jnp.asarray(U) * -1).tolist() == [255, 255, 255]
    with pytest.raises(OverflowError, match="An overflow was encountered"):
        jnp.asarray(N) + 2**40
    with pytest.raises(OverflowError, match="out of bounds for int8"):
        jnp.asarray(300, dtype="int8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isinf(jnp.asarray(F) * 1e300).all()


def test_a_wide_dtype_is_cut_with_a_warning():
    with pytest.warns(UserWarning, match="Explicitly requested dtype float64 requested in zeros"):
        assert jnp.zeros(2, "float64").dtype == jnp.float32


@pytest.fixture
def setting():
    """Set an option of promotion until the test ends."""
    before = {n: getattr(st.config, n) for n in (
        "jax_numpy_dtype_promotion", "jax_numpy_rank_promotion", "jax_explicit_x64_dtypes")}
    yield st.config.update
    for name, value in before.items():
        st.config.update(name, value)


@pytest.mark.parametrize("call", [
    lambda: jnp.zeros(2, "float64"), lambda: jnp.array([1], dtype="int64"),
    lambda: jnp.ones(2).astype("complex128"),
    lambda: st.jit(lambda: jnp.arange(3, dtype="int64"))()])
def test_a_wide_dtype_is_refused_where_the_setting_says_so(setting, call):
    setting("jax_explicit_x64_dtypes", "error")
    with pytest.raises(ValueError, match=r"Explicitly requested dtype \w+ requested in .* is not"):
        call()
    assert jnp.zeros(2, float).dtype == "float32"           # Python's classes mean the default
    with st.enable_x64(True):
        assert call().dtype.itemsize >= 8
    setting("jax_explicit_x64_dtypes", "allow")
    with pytest.raises(NotImplementedError, match="only 'warn' and 'error' work"):
        call()


def test_strict_promotion_refuses_mixed_dtypes(setting):
    setting("jax_numpy_dtype_promotion", "strict")
    assert (jnp.asarray(F) + 1).dtype == jnp.float32
    with pytest.raises(st.errors.TypePromotionError, match="no available implicit dtype"):
        jnp.asarray(F) + N


def test_rank_promotion_can_be_refused(setting):
    x = jnp.ones((2, 3))
    setting("jax_numpy_rank_promotion", "raise")
    assert (x + 1).shape == (2, 3)
    with pytest.raises(ValueError, match="Operands could not be broadcast together for add"):
        x + jnp.ones(3)
    setting("jax_numpy_rank_promotion", "warn")
    with pytest.warns(UserWarning, match="Following NumPy automatic rank promotion for add on"):
        x + jnp.ones(3)


@pytest.mark.parametrize(("expression", "error", "text"), [
    ("jnp.sum([1, 2])", TypeError,
     "sum requires ndarray or scalar arguments, got <class 'list'> at position 0."),
    ("jnp.add(F, None)", TypeError, "add requires ndarray or scalar arguments, got .* position 1"),
    ("jnp.sin('a')", TypeError, "sin requires ndarray or scalar arguments"),
    ("jnp.asarray('a')", TypeError, "Value 'a' with dtype <U1 is not a valid JAX array type"),
    ("jnp.asarray(None)", ValueError, "None is not a valid value for jnp.array"),
    ("jnp.add(F, np.ones(2))", TypeError, "add got incompatible shapes for broadcasting"),
    ("lax.add(F, N)", TypeError, "lax.add requires arguments to have the same dtypes"),
    ("jnp.bitwise_and(F, F)", TypeError, "and does not accept dtype float32"),
    ("jnp.zeros((2, -1))", TypeError, "shape must have every element be nonnegative"),
    ("jnp.sum(F, axis=3)", ValueError, "axis 3 is out of bounds for array of dimension 1"),
    ("jnp.sum(F, axis=(0, 0))", ValueError, "duplicate value in 'axis'"),
    ("jnp.asarray(N) ** -1", TypeError, "Integers cannot be raised to negative powers"),
])
def test_operands_that_do_not_fit_are_refused(expression, error, text):
    with pytest.raises(error, match=text):
        eval(expression)
    assert lax is not None


def test_a_shape_may_not_be_traced():
    with pytest.raises(TypeError, match="Shapes must be 1D sequences of concrete values") as said:
        st.jit(lambda n: jnp.zeros(n))(3)
    assert ("This concrete value was not available in Python because it depends on argument `n` of "
            "`<lambda>`") in str(said.value)


# What JAX gives for a float64 array that was made under x64, once that is off.
LEFT_OVER = {
    "x + 1": (lambda x: x + 1, "float32"), "x + x": (lambda x: x + x, "float64"),
    "-x": (lambda x: -x, "float64"), "sin": (jnp.sin, "float64"), "sum": (jnp.sum, "float32"),
    "mean": (jnp.mean, "float32"), "var": (jnp.var, "float32"), "cumsum": (jnp.cumsum, "float32"),
    "x @ f32": (lambda x: x @ jnp.ones(4), "float32"), "where": (lambda x: jnp.where(x > 0, x, 0),
                                                                "float32"),
    "softmax": (st.nn.softmax, "float32"), "pad": (lambda x: jnp.pad(x, 1), "float64"),
    "index": (lambda x: jnp.ones(5)[x.astype("int32")], "float32"),
    "grad": (lambda x: st.grad(lambda y: (y ** 2).sum())(x), "float64"),
    "grad of sin": (lambda x: st.grad(lambda y: jnp.sin(y).sum())(x), "float64"),
    "jit": (lambda x: st.jit(lambda y: y * 2 + y)(x), "float32"),
    "vmap": (lambda x: st.vmap(lambda y: y * 2)(x), "float32"),
    "scan": (lambda x: st.lax.scan(lambda c, a: (c + a, a), 0.0, x)[0], "float32")}


@pytest.mark.parametrize("name", LEFT_OVER)
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
def test_arrays_of_64_bits_go_on_when_x64_is_off(name):
    f, dtype = LEFT_OVER[name]
    with st.enable_x64(True):
        x = jnp.arange(4.0)
    assert x.dtype == np.float64 and f(x).dtype == dtype


def test_indices_of_64_bits_go_on_when_x64_is_off():
    with st.enable_x64(True):
        i = jnp.arange(3)
    with pytest.warns(UserWarning, match="int64"):
        np.testing.assert_array_equal(i + jnp.ones(3, "int32"), [1, 2, 3])
    with pytest.warns(UserWarning, match="int64"):
        np.testing.assert_array_equal(jnp.arange(5.0)[i], [0, 1, 2])


# Recorded from JAX: whether results of weak operands are weak.
STRONG = ["deg2rad", "rad2deg", "degrees", "radians", "sinc", "log2", "log10"]
WEAK = ["copy", "array", "sin", "log", "sqrt", "diag"]


def test_which_results_of_weak_operands_are_weak():
    v = jnp.broadcast_to(st.jit(lambda: 2.0)(), (4,))
    assert v.weak_type
    for name in STRONG:
        assert not getattr(jnp, name)(v).weak_type, name
    for name in ("hypot", "heaviside", "logaddexp2"):
        assert not getattr(jnp, name)(v, v).weak_type, name
    assert not jnp.fft.fft(v).real.weak_type
    for name in WEAK:
        assert getattr(jnp, name)(v).weak_type, name


@pytest.mark.parametrize("dtype, wanted", [("uint8", "uint32"), ("int8", "int32"),
                                           ("bool", "int32"), ("float16", "float16")])
def test_traces_are_sums_of_their_dtype(dtype, wanted):
    assert jnp.trace(jnp.ones((3, 3), dtype)).dtype == wanted
