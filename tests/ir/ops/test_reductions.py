"""Reductions, scans, sorts and conversions: meaning at the edges, typing, pending sums."""
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from shardtrace.ir.builder import ProgramBuilder
from shardtrace.ir.diagnostics.errors import ShardingTypeError
from shardtrace.ir.dtypes import KEY_FRY
from shardtrace.ir.inference.infer import infer
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType, empty_abstract_mesh
from shardtrace.ir.ops.derivatives import push_forward
from shardtrace.ir.ops.dialect import OPS
from shardtrace.ir.ops.reductions.cumulative import associative_scan, product_of_others
from shardtrace.ir.program import Level, Literal, Program, Var
from shardtrace.ir.shardings.sharding import NamedSharding
from shardtrace.ir.spec import P
from shardtrace.ir.types import ArrayType, array_type

from ...rows import rows
from .by_name import evaluate, evaluating, inferred

EXPLICIT = AbstractMesh((4, 2), ("x", "y"), (AxisType.Explicit,) * 2)
F32, F64, I32 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int32)
NAN, INF = np.nan, np.inf


def typed(spec: Any, shape: tuple[int, ...] = (8, 8), dtype: Any = np.float32) -> ArrayType:
    return array_type(shape, np.dtype(dtype), False, NamedSharding(EXPLICIT, spec))


def results(name: str, *types: ArrayType, **params: Any) -> list[str]:
    return inferred(EXPLICIT, name, types, **params).split()


X, WHOLE = P("x", None), P(None, None)
U, R = P(None, None, unreduced={"x"}), P(None, None, reduced={"x"})
SUM = {"axes": (0,), "out_sharding": None}


def sharding(spec: Any) -> NamedSharding:
    return NamedSharding(EXPLICIT, spec)


# -- reductions -----------------------------------------------------------------------------------

@pytest.mark.parametrize("name,dtype,expected", [
    ("reduce_max", np.float32, -INF), ("reduce_min", np.float32, INF),
    ("reduce_max", np.int8, -128), ("reduce_min", np.uint8, 255), ("reduce_max", bool, False),
    ("reduce_min", bool, True), ("reduce_and", np.int8, -1), ("reduce_or", np.int8, 0),
    ("reduce_prod", np.float32, 1), ("reduce_sum", np.int32, 0), ("reduce_xor", bool, False),
])
def test_reductions_of_nothing_give_the_identity(name: str, dtype: Any, expected: Any) -> None:
    out = evaluate(name, np.zeros((0, 3), dtype), axes=(0,))
    assert out.dtype == dtype and out.shape == (3,) and (out == expected).all()


def test_integer_reductions_keep_their_dtype_and_wrap() -> None:
    x = np.full((2, 200), 100, np.int8)
    out = evaluate("reduce_sum", x, axes=(1,))
    assert out.dtype == np.int8 and out[0] == np.int64(20000).astype(np.int8)
    assert evaluate("cumsum", x, axis=1, reverse=False).dtype == np.int8


def test_maxima_propagate_nan_and_positions_find_it() -> None:
    x = np.array([3, NAN, -0.0, 0.0, INF], F32)
    assert np.isnan(evaluate("reduce_max", x, axes=(0,)))
    for name in ("argmax", "argmin"):
        assert evaluate(name, x, axes=(0,), index_dtype=I32) == 1
    assert evaluate("argmax", np.array([-0.0, 0.0], F32), axes=(0,), index_dtype=I32) == 0


@rows("dtype", [F32, F64, np.dtype(np.int8), np.dtype(ml_dtypes.bfloat16)])
@rows("axis", [0, 1, 2])
@rows("order", [(0, 1, 2), (2, 0, 1)])
def test_positions_are_found_however_a_large_operand_lies(
        dtype: np.dtype, axis: int, order: tuple[int, ...]) -> None:
    x = (np.random.default_rng(0).random((16, 40, 120)) * 100).astype(dtype).transpose(order)
    expected = x.copy().argmax(axis)
    x.setflags(write=False)
    found = evaluate("argmax", x, axes=(axis,), index_dtype=I32)
    assert found.dtype == I32 and not x.flags.writeable
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name,params,spec,expected", [
    ("reduce_sum", SUM, X, "f32[8]"), ("reduce_sum", SUM, P(None, "x"), "f32[8@x]"),
    ("reduce_max", {"axes": (1,)}, P("x", "y"), "f32[8@x]"),
    ("reduce_sum", SUM, U, "f32[8]{U:x}"), ("reduce_sum", SUM, R, "f32[8]{R:x}"),
    ("argmax", {"axes": (1,), "index_dtype": I32}, X, "i32[8@x]"),
    ("reduce_sum", {"axes": (0,), "out_sharding": sharding(P(None, unreduced={"x"}))}, X,
     "f32[8]{U:x}"),
    ("reduce_sum", {"axes": (1,), "out_sharding": sharding(P("y"))}, X, "f32[8@y]"),
    ("reduce_sum", {"axes": (0,), "out_sharding": sharding(P("y"))}, U, "f32[8@y]{U:x}"),
    ("reduce_sum", {"axes": (0,), "out_sharding": sharding(P("y"))}, R, "f32[8@y]{R:x}"),
    ("reduce_sum", {"axes": (0,), "out_sharding": sharding(P(None, unreduced={"x"}))}, U,
     "f32[8]{U:x}"),
])
def test_types_of_reductions(name: str, params: Any, spec: Any, expected: str) -> None:
    assert results(name, typed(spec), **params) == [expected]


def test_only_summed_axes_can_stay_pending() -> None:
    for operand, axes, unreduced in ((X, (1,), "x"), (U, (0,), "y")):
        wanted = sharding(P(None, unreduced={unreduced}))
        with pytest.raises(ShardingTypeError) as caught:
            results("reduce_sum", typed(operand), axes=axes, out_sharding=wanted)
        assert ("out_sharding's unreduced axes should be in operand's specs that were summed over. "
                "Got operand=ShapedArray(float32[8") in str(caught.value)


@pytest.mark.parametrize("name,params", [
    ("reduce_max", {"axes": (0,)}), ("reduce_prod", {"axes": (0,)}),
    ("cumsum", {"axis": 0, "reverse": False}), ("top_k", {"k": 2, "axis": 0}),
    ("sort", {"dimension": 0, "is_stable": True, "num_keys": 1}),
    ("argmax", {"axes": (0,), "index_dtype": I32}),
])
def test_only_sums_take_pending_operands(name: str, params: Any) -> None:
    for pending in (U, R):
        with pytest.raises(ValueError, match="dangerous when PartitionSpec has non-") as caught:
            results(name, typed(pending), **params)
        assert f"`{name}` has no rule for a value that is unreduced" in str(caught.value)


@evaluating()
def test_product_of_others_is_right_beside_zeros() -> None:
    x = np.array([[2.0, 0.0, 3.0], [0.0, 5.0, 0.0], [2.0, 3.0, 4.0]])
    np.testing.assert_array_equal(product_of_others(x, 1), [[0, 6, 0], [0, 0, 0], [12, 8, 6]])


@evaluating()
def test_gradient_of_a_product_with_a_zero() -> None:
    x, g = np.array([[2.0, 0.0, 3.0]]), np.array([[1.0, 10.0, 100.0]])
    _, (tangent,) = push_forward(OPS["reduce_prod"], [x], [g], {"axes": (1,)})
    assert tangent == [60.0]


# -- generic reductions ---------------------------------------------------------------------------

def computation(dtype: Any = F64) -> Program:
    """a, b -> where(a * b > 4, a + b + 1, a + b): nonlinear, with literals of rank 0."""
    builder = ProgramBuilder(empty_abstract_mesh, Level.TRACED)
    scalar = array_type((), np.dtype(dtype))
    a, b = Var(scalar), Var(scalar)
    (product,) = builder.emit(OPS["mul"], [a, b])
    (large,) = builder.emit(OPS["gt"], [product, Literal(np.float64(4), scalar)])
    (total,) = builder.emit(OPS["add"], [a, b])
    (more,) = builder.emit(OPS["add"], [total, Literal(np.float64(1), scalar)])
    (out,) = builder.emit(OPS["select_n"], [large, total, more])
    return Program("combine", [a, b], builder.eqns, [out])


@evaluating()
def test_generic_reductions_run_with_derivatives() -> None:
    x = np.array([[1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 1.0, 1.0, 1.0, 1.0]])
    params = {"jaxpr": computation(), "dimensions": (1,)}
    (out,) = OPS["reduce"].bind(x, np.float64(0), **params)
    np.testing.assert_array_equal(out, [18, 5])     # two of the four combinations exceed 4
    g = np.arange(10.0).reshape(2, 5)
    (same,), (tangent,) = push_forward(OPS["reduce"], [x, np.float64(0)], [g, None], params)
    np.testing.assert_array_equal(same, out)
    np.testing.assert_array_equal(tangent, g.sum(1))
    (out,), dims = OPS["reduce"].batch([x, np.array([0.0, 7.0])], [0, 0], 2, jaxpr=computation(),
                                       dimensions=(0,))
    assert dims == [0] and out.shape == (2,)
    np.testing.assert_array_equal(out[0], 18)


def test_generic_reductions_of_nothing_give_the_initial_value() -> None:
    out = evaluate("reduce", np.zeros((0, 3)), np.float64(7), jaxpr=computation(), dimensions=(0,))
    np.testing.assert_array_equal(out[0], [7, 7, 7])


def test_generic_reductions_check_their_operands() -> None:
    x, one = array_type((3, 4), F32), array_type((), F32)
    with pytest.raises(ValueError, match=r"reduce found non-scalar initial value: \[\(3, 4\)\]"):
        infer(OPS["reduce"], (x, x), {"jaxpr": computation(F32), "dimensions": (0,)})
    with pytest.raises(TypeError, match="reduce operand dtypes should match corresponding initial"):
        infer(OPS["reduce"], (x, array_type((), I32)),
              {"jaxpr": computation(F32), "dimensions": (0,)})
    (out,) = infer(OPS["reduce"], (x, one), {"jaxpr": computation(F32), "dimensions": (0,)})
    assert out.shape == (4,)


# -- scans ----------------------------------------------------------------------------------------

def test_scans_at_the_edges() -> None:
    scan = {"axis": 0, "reverse": False}
    out = evaluate("cumlogsumexp", np.array([-INF, -INF, 1, 2], F32), **scan)
    np.testing.assert_allclose(out, np.array([-INF, -INF, 1, 2.3132617], F32))
    np.testing.assert_array_equal(evaluate("cummax", np.array([1, NAN, 2], F32), **scan),
                                  np.array([1, NAN, NAN], F32))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8])
@evaluating()
def test_associative_scan_of_sums_is_cumsum(n: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, n))
    (found,) = associative_scan(lambda a, b: (a[0] + b[0],), (x,), 1)
    np.testing.assert_allclose(found, np.cumsum(x, 1), rtol=1e-12)


@pytest.mark.parametrize("name, x, expected", [      # what JAX gives
    ("cummax", [-INF, 1, 2, 3], [1, 2, 4, 8]), ("cummax", [1, 1, 1, 1], [1, 1.5, 2.75, 3.75]),
    ("cummax", [NAN, 1, 2, 3], [1, 0, 0, 0]), ("cummin", [INF], [1]), ("cummin", [NAN], [1]),
    ("cumprod", [INF, 1, 2, 3], [1, INF, INF, INF]), ("cumprod", [0, 1, 2, 3], [1, 1, 2, 6]),
    ("cumlogsumexp", [-INF, 0], [1, 2]), ("cumlogsumexp", [INF, INF], [1, 3])])
@evaluating()
def test_derivatives_of_scans_of_special_values(name, x, expected) -> None:
    x = np.array(x, float)
    _, (tangent,) = push_forward(OPS[name], [x], [2.0 ** np.arange(len(x))],
                                 {"axis": 0, "reverse": False})
    np.testing.assert_allclose(tangent, expected)


def test_scans_want_their_axis_whole() -> None:
    assert results("cumsum", typed(X), axis=1, reverse=False) == ["f32[8@x,8]"]
    with pytest.raises(ShardingTypeError) as caught:
        results("cumprod", typed(X), axis=0, reverse=False)
    assert ("Input should be unsharded over the axis being reduced. "
            "Got input type=float32[8@x,8] and axis=0") in str(caught.value)


# -- conversions ----------------------------------------------------------------------------------

@pytest.mark.parametrize("target,expected", [
    (np.int32, [0, 2**31 - 1, -2**31, 2**31 - 1, -2**31, -1, 300]),
    (np.uint8, [0, 255, 0, 255, 0, 0, 255]), (np.int8, [0, 127, -128, 127, -128, -1, 127]),
    (np.uint32, [0, 2**32 - 1, 0, 3 * 10**9, 0, 0, 300]),
    (ml_dtypes.int4, [0, 7, -8, 7, -8, -1, 7]),
])
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_floats_beyond_an_integer_dtype_become_its_bounds(source: Any, target: Any, expected: Any
                                                          ) -> None:
    x = np.array([NAN, INF, -INF, 3e9, -3e9, -1.5, 300], source)
    out = evaluate("convert_element_type", x, new_dtype=np.dtype(target), weak_type=False,
                   sharding=None)
    assert out.dtype == target
    np.testing.assert_array_equal(out.astype(np.int64), expected)


@pytest.mark.parametrize("source,target,expected", [
    ([1.5 + 2j, 3j], np.float32, [1.5, 0]), ([NAN, 0, -0.0, 0.5], bool, [True, False, False, True]),
    (np.array([300, -1]), np.uint8, [44, 255]), (np.array([1.5, 2]), ml_dtypes.bfloat16, [1.5, 2]),
    (np.array([1.5, 200]).astype(ml_dtypes.bfloat16), np.int8, [1, 127]),
    (np.array([3, -8], ml_dtypes.int4), np.int32, [3, -8]),
    (np.array([3, -8], ml_dtypes.int4), np.float32, [3, -8]),
])
def test_conversions_cut_wrap_and_saturate(source: Any, target: Any, expected: Any) -> None:
    out = evaluate("convert_element_type", np.asarray(source), new_dtype=np.dtype(target),
                   weak_type=False, sharding=None)
    assert out.dtype == target
    np.testing.assert_array_equal(out.astype(np.float64), np.array(expected, np.float64))


def test_bits_of_narrow_integers() -> None:
    out = evaluate("bitcast_convert_type", np.array([1, -2], np.int8),
                   new_dtype=np.dtype(ml_dtypes.int4))
    np.testing.assert_array_equal(out.astype(int), [[1, 0], [-2, -1]])
    back = evaluate("bitcast_convert_type", out, new_dtype=np.dtype(np.int8))
    np.testing.assert_array_equal(back, [1, -2])


def test_reduced_precision_overflows_and_flushes_subnormal_numbers() -> None:
    x = np.array([1.0009765625, 1e-8, 1e5, 65520, 65519, NAN, INF, 6.1e-5, -3e-5, 6.2e-5], F32)
    out = evaluate("reduce_precision", x, exponent_bits=5, mantissa_bits=10)
    expected = [1.0009765625, 0, INF, INF, 65504, NAN, INF, 0, -0.0, 6.2e-5]
    np.testing.assert_allclose(out, np.array(expected, F32), rtol=1e-3)
    assert np.signbit(out[8])
    out = evaluate("reduce_precision", np.array([1.5, 2.5, 3.5], F32), exponent_bits=8,
                   mantissa_bits=0)
    np.testing.assert_array_equal(out, [2, 2, 4])


def convert_type(spec: Any, wanted: Any = None) -> list[str]:
    return results("convert_element_type", typed(spec), new_dtype=I32, weak_type=False,
                   sharding=None if wanted is None else sharding(wanted))


def test_types_of_conversions() -> None:
    assert convert_type(X) == ["i32[8@x,8]"]
    assert convert_type(U) == ["i32[8,8]{U:x}"] and convert_type(R) == ["i32[8,8]{R:x}"]
    assert convert_type(X, P("y", None)) == ["i32[8@y,8]"]
    assert results("bitcast_convert_type", typed(X), new_dtype=np.dtype(np.uint8)) == [
        "u8[8@x,8,4]"]
    assert results("bitcast_convert_type", typed(P(None, "x"), (8, 4), np.uint8),
                   new_dtype=F32) == ["f32[8]"]
    assert results("reduce_precision", typed(U), exponent_bits=5, mantissa_bits=5) == [
        "f32[8,8]{U:x}"]


def test_only_conversions_between_floats_are_linear() -> None:
    op = OPS["convert_element_type"]
    for source, target, sets in ((F32, F64, ((0,),)), (F32, I32, ()), (I32, F32, ())):
        assert op.linear_sets(1, (array_type((), source),), {"new_dtype": target}) == sets


def test_keys_do_not_convert() -> None:
    from_key = typed(WHOLE).update(dtype=KEY_FRY)
    with pytest.raises(ValueError, match="Cannot convert_element_type from key<fry> to float32"):
        infer(OPS["convert_element_type"], (from_key,),
              {"new_dtype": F32, "weak_type": False, "sharding": None}, EXPLICIT)


@rows("name, reference", [("argmax", np.argmax), ("argmin", np.argmin)])
@rows("shape, axis", [
    ((3, 70_000), 0), ((3, 1100), 0), ((300, 2048), 0), ((70, 5, 1024), 1), ((2, 40, 8192), 1)])
@rows("dtype", [np.float32, np.int32, np.bool_, np.uint8])
def test_positions_along_other_dimensions_than_the_last(name: str, reference: Any, shape: Any,
                                                        axis: int, dtype: Any) -> None:
    x = np.random.default_rng(0).integers(0, 5, shape).astype(dtype)
    some = [x, x[..., ::2], np.zeros_like(x)]
    if dtype is np.float32:
        x = x.copy()
        x[1, ..., 7] = np.nan
        some += [x, x[:1] * -0., np.where(x > 2, -np.inf, x)]
    for y in some:
        got = OPS[name].evaluate(0, y, axes=(axis,), index_dtype=np.int32)
        assert got.dtype == np.int32
        np.testing.assert_array_equal(got, reference(y, axis))


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_])
def test_logarithms_of_sums_are_not_those_of_integers(dtype):
    with pytest.raises(TypeError, match="Accepted dtypes are subtypes of inexact"):
        infer(OPS["cumlogsumexp"], (array_type((4,), np.dtype(dtype)),),
              {"axis": 0, "reverse": False})


@evaluating()
def test_logarithms_of_sums_of_narrow_floats_have_derivatives():
    x = np.zeros(3, ml_dtypes.bfloat16)
    _, (tangent,) = push_forward(OPS["cumlogsumexp"], [x], [np.ones_like(x)],
                                 {"axis": 0, "reverse": False})
    assert tangent.dtype == x.dtype
