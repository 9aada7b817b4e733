"""Elementwise ops, reductions, scans, sorts and conversions against JAX's primitives.

For every op and dtype: the same result type (weak flag included) or the same error; and the same
values, special ones included.
"""
from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardtrace as st
from shardtrace.ir.dtypes import compute_dtype
from shardtrace.ir.inference.infer import infer
from shardtrace.ir.ops.dialect import OPS
from shardtrace.ir.types import array_type

jax = pytest.importorskip("jax")

from jax import lax  # noqa: E402
from jax._src import ad_util  # noqa: E402
from jax._src.lax import lax as lax_internal  # noqa: E402

BF16 = ml_dtypes.bfloat16
DTYPES = (bool, np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, BF16, np.float16,
          np.float32, np.float64, np.complex64, np.complex128)
ACCURATE = ("exp", "exp2", "log", "log1p", "expm1", "sin", "cos", "tan", "tanh", "logistic", "sqrt",
            "rsqrt", "cbrt")
UNARY = ("neg sign floor ceil exp exp2 expm1 log log1p sin cos tan asin acos atan sinh cosh tanh "
         "asinh acosh atanh sqrt rsqrt cbrt square logistic erf erfc erf_inv lgamma digamma "
         "bessel_i0e bessel_i1e not is_finite abs real imag population_count clz").split()
BINARY = ("add sub mul div rem pow max min atan2 nextafter and or xor shift_left "
          "shift_right_logical shift_right_arithmetic complex igamma igammac igamma_grad_a "
          "polygamma zeta eq ne lt le gt ge eq_to le_to lt_to mulhi").split()
INT32 = np.dtype(np.int32)
WITH_PARAMS: list[tuple[str, dict[str, Any]]] = [
    ("round", {"rounding_method": 0}), ("round", {"rounding_method": 1}),
    ("integer_pow", {"y": 3}), ("integer_pow", {"y": -2}), ("integer_pow", {"y": 0}),
    ("reduce_precision", {"exponent_bits": 5, "mantissa_bits": 10}),
    ("reduce_sum", {"axes": (1,), "out_sharding": None}), ("reduce_prod", {"axes": (0,)}),
    ("reduce_max", {"axes": (0, 1)}), ("reduce_min", {"axes": (1,)}),
    ("reduce_and", {"axes": (1,)}), ("reduce_or", {"axes": (0,)}), ("reduce_xor", {"axes": (1,)}),
    ("argmax", {"axes": (1,), "index_dtype": INT32}),
    ("argmin", {"axes": (0,), "index_dtype": np.dtype(np.uint8)}),
    *((f"cum{kind}", {"axis": axis, "reverse": reverse})
      for kind in ("sum", "prod", "max", "min", "logsumexp")
      for axis, reverse in ((0, False), (1, True))),
    ("sort", {"dimension": 1, "is_stable": True, "num_keys": 1}), ("top_k", {"k": 3, "axis": 1}),
    *(("convert_element_type", {"new_dtype": np.dtype(t), "weak_type": False, "sharding": None})
      for t in DTYPES),
    *(("bitcast_convert_type", {"new_dtype": np.dtype(t)})
      for t in (np.int32, np.uint8, np.float16, np.float32)),
    ("copy", {}),
]


@pytest.fixture(autouse=True)
def _with_64_bits():
    with jax.enable_x64(True):
        yield


def primitive(name: str) -> Any:
    if name == "add_any":
        return ad_util.add_jaxvals_p
    for module in (lax, lax_internal, jax._src.lax.special):
        if hasattr(module, f"{name}_p"):
            return getattr(module, f"{name}_p")
    raise KeyError(name)


def jax_params(name: str, params: dict[str, Any]) -> dict[str, Any]:
    params = dict(params)
    if name in ACCURATE:
        params["accuracy"] = None
    if name == "mul":
        params["out_dtype"] = None
    if name == "round":
        params["rounding_method"] = lax.RoundingMethod(params["rounding_method"])
    return params


def words(message: str) -> list[str]:
    """The words of a message's first line: JAX lists sets, in no order."""
    return sorted(str(message).split("\n")[0].replace(",", " ").replace(".", " ").split())


def both(name: str, arrays: list[Any], params: dict[str, Any]) -> tuple[Any, Any]:
    """What we and JAX infer: a list of (shape, dtype, weak), or (error class, words)."""
    types = tuple(array_type(np.shape(x), np.asarray(x).dtype, isinstance(x, (int, float)))
                  for x in arrays)
    op = OPS[name]
    try:
        ours: Any = [(t.shape, t.dtype, t.weak_type) for t in infer(op, types, params)]
    except Exception as error:
        ours = (type(error), words(str(error)))
    try:
        bound = primitive(name)
        out = jax.make_jaxpr(lambda *xs: bound.bind(*xs, **jax_params(name, params)))(*arrays)
        theirs: Any = [(t.shape, t.dtype, t.weak_type) for t in out.out_avals]
    except Exception as error:
        theirs = (type(error), words(str(error)))
    return ours, theirs


CASES = [*((name, 1, {}) for name in UNARY), *((name, 2, {}) for name in BINARY),
         ("regularized_incomplete_beta", 3, {}), ("clamp", 3, {}),
         *((name, 1, params) for name, params in WITH_PARAMS)]


@pytest.mark.parametrize("name,count,params", CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_types_and_errors_of_every_dtype(name: str, count: int, params: dict[str, Any]) -> None:
    mixed = [(a, b) for a, b in itertools.product(DTYPES, (np.int32, np.float32)) if a is not b]
    for dtypes in [*([t] * count for t in DTYPES), *(mixed if count == 2 else [])]:
        if name == "cumlogsumexp" and np.dtype(dtypes[0]).kind in "biu":
            continue        # JAX types it, or says that numbers are accepted, and cannot lower it
        arrays = [np.ones((3, 4), t) for t in dtypes]
        ours, theirs = both(name, arrays, params)
        assert ours == theirs, (name, dtypes)


@pytest.mark.parametrize("name", ["add", "mul", "lt", "pow", "max"])
@pytest.mark.parametrize("shapes", [
    ((), (3, 4)), ((3, 1), (1, 4)), ((3, 4), (4,)), ((2, 4), (3, 4)), ((), ()), ((0, 4), (1, 4)),
    ((1, 1), (3, 4))], ids=str)
def test_shapes_of_operands(name: str, shapes: Any) -> None:
    ours, theirs = both(name, [np.ones(s, np.float32) for s in shapes], {})
    assert ours == theirs


@pytest.mark.parametrize("name,count", [("sin", 1), ("add", 2), ("lt", 2), ("is_finite", 1)])
def test_weak_operands_give_weak_results(name: str, count: int) -> None:
    ours, theirs = both(name, [2.0] * count, {})
    assert [o[2] for o in ours] == [t[2] for t in theirs] == [True]


REFUSED: list[tuple[str, list[tuple[Any, Any]], dict[str, Any]]] = [
    ("reduce_sum", [((3, 4), np.float32)], {"axes": (0, 0), "out_sharding": None}),
    ("reduce_max", [((3, 4), np.float32)], {"axes": (2,)}),
    ("argmax", [((3, 4), np.float32)], {"axes": (2,), "index_dtype": INT32}),
    ("argmax", [((0, 4), np.float32)], {"axes": (0,), "index_dtype": INT32}),
    ("argmax", [((3, 4), np.float32)], {"axes": (0,), "index_dtype": np.dtype(np.float32)}),
    ("cumsum", [((3, 4), np.float32)], {"axis": 2, "reverse": False}),
    ("cumsum", [((3, 4), np.float32)], {"axis": -1, "reverse": False}),
    ("sort", [((3, 4), np.float32), ((2, 4), np.float32)],
     {"dimension": 1, "is_stable": True, "num_keys": 1}),
    ("top_k", [((3, 4), np.float32)], {"k": 9, "axis": 1}),
    ("top_k", [((3, 4), np.float32)], {"k": -1, "axis": 1}),
    ("top_k", [((3, 4), np.float32)], {"k": 1, "axis": 2}),
    ("top_k", [((), np.float32)], {"k": 1, "axis": 0}),
    ("reduce_precision", [((3,), np.float32)], {"exponent_bits": 0, "mantissa_bits": 3}),
    ("reduce_precision", [((3,), np.float32)], {"exponent_bits": 3, "mantissa_bits": -3}),
    ("bitcast_convert_type", [((3, 4), np.int8)], {"new_dtype": np.dtype(np.float16)}),
    ("select_n", [((3, 4), bool)], {}),
    ("select_n", [((3, 4), np.float32), ((3, 4), np.float32)], {}),
    ("select_n", [((3, 4), bool), ((3, 4), np.float32), ((3, 4), np.int32)], {}),
    ("select_n", [((3, 4), bool), *[((3, 4), np.float32)] * 3], {}),
    ("select_n", [((3, 4), bool), ((3, 4), np.float32), ((2, 4), np.float32)], {}),
    ("select_n", [((2, 4), bool), ((3, 4), np.float32), ((3, 4), np.float32)], {}),
    ("clamp", [((4,), np.float32), ((3, 4), np.float32), ((), np.float32)], {}),
    ("clamp", [((), np.float32), ((3, 4), np.float32), ((4,), np.float32)], {}),
]


@pytest.mark.parametrize("name,operands,params", REFUSED)
def test_refused_operands_and_params(name: str, operands: Any, params: dict[str, Any]) -> None:
    ours, theirs = both(name, [np.ones(s, t) for s, t in operands], params)
    assert ours == theirs and isinstance(ours[0], type)


# -- values ---------------------------------------------------------------------------------------

SPECIAL = {
    "f": [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.3, -0.7, 3.0, 7.25, 100.0, -33.5,
          np.inf, -np.inf, np.nan],
    "i": [0, 1, -1, 2, 3, -3, 7, -7, 31, 32, 33, 100, "min", "max"],
    "u": [0, 1, 2, 3, 7, 31, 32, 33, 100, 200, "max"],
    "b": [False, True],
    "c": [0j, 1 + 0j, 1j, -1 + 0.5j, 0.3 - 0.7j, 2 + 3j, -1.5 - 2.5j, 0.5 + 0j],
}


def special(dtype: Any) -> np.ndarray:
    dtype = np.dtype(dtype)
    kind = "f" if dtype == BF16 else dtype.kind
    bounds = np.iinfo(dtype) if kind in "iu" else None
    found = [getattr(bounds, v) if isinstance(v, str) else v for v in SPECIAL[kind]]
    return np.array(found).astype(dtype)


def evaluate(name: str, arrays: list[np.ndarray], params: dict[str, Any]) -> list[np.ndarray]:
    op = OPS[name]
    types = infer(op, tuple(array_type(x.shape, x.dtype) for x in arrays), params)
    if op.arithmetic:
        arrays = [x.astype(compute_dtype(x.dtype), copy=False) for x in arrays]
    with np.errstate(all="ignore"):
        out = op.evaluate(0, *arrays, **params)
    out = list(out) if op.multiple_results else [out]
    return [np.asarray(x).astype(t.dtype) for x, t in zip(out, types, strict=True)]


# Where XLA on CPUs is itself inexact.
LOOSE = {"exp2": 1e-5, "igamma_grad_a": 2e-3, "igamma": 1e-4, "igammac": 1e-3, "polygamma": 1e-4,
         "zeta": 1e-4, "lgamma": 1e-4, "digamma": 1e-4, "erf_inv": 1e-4, "bessel_i0e": 1e-5,
         "tan": 1e-5}
VALUE_DTYPES = (np.int8, np.uint32, BF16, np.float32, np.complex64)
POSITIVE = ("igamma", "igammac", "igamma_grad_a", "polygamma", "zeta", "lgamma", "digamma")


def operands_of(name: str, count: int, params: dict[str, Any], dtype: Any
                ) -> list[np.ndarray] | None:
    """Operands with special values, None where XLA has nothing to compare with."""
    x, is_complex = special(dtype), np.dtype(dtype).kind == "c"
    if is_complex and name in ("argmax", "argmin", "eq_to"):
        return None         # XLA does not compile it
    if is_complex and name == "cumlogsumexp":
        return None         # branches of complex logarithms add up differently
    if name == "exp2" and dtype is BF16:
        return None         # XLA rounds log(2) to bfloat16
    if name in POSITIVE and not is_complex:
        with np.errstate(invalid="ignore"):         # NaN is among the special values
            x = x[(x > 0) & np.isfinite(x.astype(np.float32))]
    if name == "polygamma":
        x = x[x.real < 10]  # above, XLA overflows to NaN
    if is_complex and name in ("atan2", "pow"):
        x = x[x != 0]       # branch points, where XLA gives NaN
    if count == 2:
        return [np.repeat(x, len(x)), np.tile(x, len(x))]
    if "axes" in params or "axis" in params or "dimension" in params:
        finite = x[np.isfinite(x.astype(np.complex64))]
        return [np.random.default_rng(0).choice(finite, (4, 6))]
    return [x[:len(x) // 4 * 4].reshape(-1, 4)]


@pytest.mark.parametrize("name,count,params", [c for c in CASES if c[1] < 3],
                         ids=lambda v: v if isinstance(v, str) else "")
def test_values_are_close_to_jax_for_every_dtype(
        name: str, count: int, params: dict[str, Any]) -> None:
    given, ours = [], []
    for dtype in VALUE_DTYPES:
        operands = operands_of(name, count, params, dtype)
        if operands is None:
            continue
        try:
            ours.append((dtype, evaluate(name, operands, params)))
            given.append(operands)
        except (TypeError, ValueError):
            continue        # not accepted; the errors are compared above
    bound, bound_params = primitive(name), jax_params(name, params)
    theirs = jax.jit(lambda given: [bound.bind(*xs, **bound_params) for xs in given])(given)
    for (dtype, mine), other in zip(ours, theirs, strict=True):
        other = other if isinstance(other, (list, tuple)) else [other]
        for a, b in zip(mine, other, strict=True):
            close(name, dtype, a, np.asarray(b))


def close(name: str, dtype: Any, a: np.ndarray, b: np.ndarray) -> None:
    assert a.shape == b.shape and a.dtype == b.dtype, dtype
    if a.dtype.kind not in "fcV":
        np.testing.assert_array_equal(a, b, str(dtype))
        return
    narrow = a.dtype.itemsize == 2 or np.dtype(dtype).itemsize == 2
    tolerance = max(LOOSE.get(name, 0), 1.6e-2 if narrow else 2e-6)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=tolerance, atol=tolerance,
                               err_msg=str(dtype))


SCANNED = [[1, 1, 1, 1, 2], [2, -np.inf, 2, 2], [np.inf, 1, 2, -np.inf], [-np.inf, -np.inf, 1, 0],
           [np.nan, 1, 2], [1, np.nan, np.inf], [0, -0.0, 3, 0], [np.inf] * 3, [-np.inf], [0.5, 3]]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"])
def test_derivatives_of_scans_are_those_of_jax(name, reverse):
    for row in SCANNED:
        x, ct = np.array(row, np.float32), 2 ** np.arange(len(row), dtype=np.float32)
        found = []
        for lib in (jax, st):
            _, pull = lib.vjp(lambda x, lib=lib: getattr(lib.lax, name)(x, reverse=reverse), x)
            found.append(np.asarray(pull(ct)[0]))
        np.testing.assert_allclose(found[1], found[0], 1e-5, 1e-6, err_msg=f"{name} of {row}")


CORNERS = np.array([0, complex(np.inf, 1), complex(1, np.inf), complex(-np.inf, 0), 2 + 1j,
                    complex(np.inf, np.inf), complex(np.nan, 0), complex(np.inf, np.nan)],
                   np.complex64)
POWERS = {
    "integer_pow -1": lambda L, z: L.integer_pow(z, -1), "rsqrt": lambda L, z: L.rsqrt(z),
    "integer_pow -2": lambda L, z: L.integer_pow(z, -2), "reciprocal": lambda L, z: L.reciprocal(z),
    **{f"pow {p}": lambda L, z, p=p: L.pow(z, np.full_like(z, p)) for p in (2 + 1j, 0.5, 2, 0)}}


@pytest.mark.parametrize("name", POWERS)
def test_powers_of_complex_corners(name):
    ours, theirs = (np.asarray(POWERS[name](L, CORNERS)) for L in (st.lax, lax))
    assert np.array_equal(np.isnan(ours), np.isnan(theirs))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
