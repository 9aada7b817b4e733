"""Sorting, top_k and their derivatives."""
from __future__ import annotations

import numpy as np
import pytest

from shardtrace.ir.diagnostics.errors import ShardingTypeError
from shardtrace.ir.op import LinearOperand
from shardtrace.ir.ops.derivatives import push_forward
from shardtrace.ir.ops.dialect import OPS
from shardtrace.ir.spec import P
from shardtrace.ir.types import array_type

from ...rows import rows
from .by_name import evaluate, evaluating
from .test_reductions import F32, F64, I32, INF, NAN, X, results, typed

SORT = {"dimension": 0, "is_stable": True, "num_keys": 1}


def test_sort_puts_nan_last_and_keeps_equal_elements_in_order() -> None:
    x = np.array([3, NAN, -0.0, 0.0, -NAN, -INF, INF, 1], F32)
    out, order = evaluate("sort", x, np.arange(8, dtype=np.int32), **SORT)
    np.testing.assert_array_equal(order, [5, 2, 3, 7, 0, 6, 1, 4])
    np.testing.assert_array_equal(out, x[order])
    (alone,) = evaluate("sort", x, **SORT)
    np.testing.assert_array_equal(alone, out)


def test_complex_numbers_sort_by_real_then_imaginary_part() -> None:
    x = np.array([complex(1, NAN), 2, 1 + 1j, complex(NAN, 0), 1 - 1j], np.complex64)
    _, order = evaluate("sort", x, np.arange(5), **SORT)
    np.testing.assert_array_equal(order, [4, 2, 0, 1, 3])


def test_sort_by_several_keys() -> None:
    a, b = np.array([2, 1, 2, 1]), np.array([1.0, 5.0, 0.0, 4.0], F32)
    out = evaluate("sort", a, b, np.arange(4), dimension=0, is_stable=True, num_keys=2)
    np.testing.assert_array_equal(out[2], [3, 1, 2, 0])


def test_top_k_takes_the_total_order_and_the_first_of_equals() -> None:
    x = np.array([3, NAN, -0.0, 0.0, -NAN, -INF, INF, 1], F32)
    _, order = evaluate("top_k", x, k=8, axis=0)
    np.testing.assert_array_equal(order, [1, 6, 0, 7, 3, 2, 5, 4])
    out, order = evaluate("top_k", np.array([1, 3, 3, 2, 3]), k=4, axis=0)
    np.testing.assert_array_equal(order, [1, 2, 4, 3])
    assert order.dtype == np.int32 and list(out) == [3, 3, 3, 2]


@rows("dtype", [F32, np.float16, np.float64, np.int8, np.uint16, I32, np.uint32,
                np.int64, bool])
@rows("k", [0, 1, 3, 9])
def test_top_k_of_every_dtype_is_the_end_of_a_stable_sort(dtype: type, k: int) -> None:
    x = (np.random.default_rng(k).standard_normal((5, 9, 4)) * 2).astype(dtype)
    if dtype is np.uint32:
        x[0, :3] = 2 ** 32 - 1
    out, order = evaluate("top_k", x, k=k, axis=1)
    stable = np.argsort(-x.astype(np.float64) + 0.0 * x, axis=1, kind="stable")[:, :k]
    if np.dtype(dtype).kind != "f":              # zeros of both signs are told apart
        np.testing.assert_array_equal(order, stable)
    np.testing.assert_array_equal(out, np.take_along_axis(x, stable, 1))


@pytest.mark.parametrize("x", [[0.0, -0.0, 2.0, -0.0], [-0.0, NAN, 1.0, -0.0], [3.0, 0.0, 0.0]])
def test_zeros_of_both_signs_stay_in_order(x: list[float]) -> None:
    x_ = np.array(x * 40, F32)
    (out,) = evaluate("sort", x_, **SORT)
    wanted = x_[np.argsort(x_, kind="stable")]
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(np.signbit(out)[:120], np.signbit(wanted)[:120])


def test_types_of_sorts() -> None:
    params = {"dimension": 1, "is_stable": True, "num_keys": 1}
    assert results("sort", typed(X), typed(X, dtype=I32), **params) == ["f32[8@x,8]", "i32[8@x,8]"]
    with pytest.raises(ShardingTypeError, match=(
            "Arguments to sort must be unsharded over the sorting dimension. Got arg sharding=")):
        results("sort", typed(P(None, "x")), **params)
    with pytest.raises(ShardingTypeError, match="Arguments to sort must have equal shardings, got"):
        results("sort", typed(X), typed(P("y", None)), **params)


def test_types_of_top_k() -> None:
    assert results("top_k", typed(X), k=2, axis=1) == ["f32[8@x,2]", "i32[8@x,2]"]
    with pytest.raises(ShardingTypeError) as caught:
        results("top_k", typed(P(None, "x")), k=2, axis=1)
    assert ("The input should be unsharded over the axis along which to compute the top_k values. "
            "Got input type=float32[8,8@x] and axis=1") in str(caught.value)


@evaluating()
def test_tangents_of_the_largest_are_those_at_their_positions(monkeypatch: pytest.MonkeyPatch
                                                              ) -> None:
    monkeypatch.setitem(OPS, "sort", None)      # no order of all elements is needed
    x, g = np.array([[3.0, 5, 4, 5], [1, 0, 2, 9]]), np.arange(8.0).reshape(2, 4)
    (best, _), (moved, places) = push_forward(OPS["top_k"], [x], [g], {"k": 2, "axis": 1})
    np.testing.assert_array_equal(best, [[5, 5], [9, 2]])
    np.testing.assert_array_equal(moved, [[1, 3], [7, 6]])
    assert places is None


@pytest.mark.parametrize("keys", [1, 2])
@evaluating()
def test_transpose_of_a_sort_undoes_the_permutation(keys: int) -> None:
    rng = np.random.default_rng(0)
    key = [rng.integers(0, 3, (4, 6)) for _ in range(keys)]
    x, ct = rng.normal(size=(4, 6)), rng.normal(size=(4, 6))
    params = {"dimension": 1, "is_stable": True, "num_keys": keys}
    moved = OPS["sort"].bind(*key, x, **params)[-1]
    back = OPS["sort"].transpose([None] * keys + [ct], *key,
                                 LinearOperand(array_type((4, 6), F64)), **params)
    assert back[:keys] == [None] * keys
    np.testing.assert_allclose(np.sum(moved * ct), np.sum(x * back[-1]))


@evaluating()
def test_tangents_of_values_sorted_by_constant_keys() -> None:
    key, x, g = np.array([2, 0, 1]), np.array([5.0, 6, 7]), np.array([1.0, 2, 3])
    outs, tangents = push_forward(OPS["sort"], [key, x], [None, g], SORT)
    assert list(outs[1]) == [6, 7, 5] and tangents[0] is None
    np.testing.assert_array_equal(tangents[1], [2, 3, 1])


@pytest.mark.parametrize("source", [np.float32, np.float64])
@pytest.mark.parametrize("target", [np.int32, np.int64])
@pytest.mark.parametrize("stride", [1, 2])
def test_one_float_beyond_an_integer_dtype_is_found_wherever_it_is(source, target, stride):
    least, most = np.iinfo(target).min, np.iinfo(target).max
    for bad, want in ((np.nan, 0), (np.inf, most), (-np.inf, least), (1e30, most), (-1e30, least),
                      (-float(least), most)):
        for at in range(70):
            x = np.arange(70 * stride, dtype=source)[::stride] - 7.5
            expected = x.astype(target)
            x[at], expected[at] = bad, want
            out = evaluate("convert_element_type", x, new_dtype=np.dtype(target), weak_type=False,
                           sharding=None)
            np.testing.assert_array_equal(out, expected)
