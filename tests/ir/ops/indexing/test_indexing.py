"""gather and scatter: modes, duplicates, Explicit typing, and derivatives where windows overlap."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardtrace import ShapeDtypeStruct, grad, make_jaxpr, ops
from shardtrace.ir.diagnostics.errors import ShardingTypeError
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType
from shardtrace.ir.op import LinearOperand
from shardtrace.ir.ops.dialect import OPS
from shardtrace.ir.ops.gather_numbers import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)
from shardtrace.ir.types import array_type

from ....rows import rows
from ..by_name import evaluating, inferred

MESH = AbstractMesh((2, 2), ("x", "y"), (AxisType.Explicit,) * 2)
CLIP, DROP = GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP
PROMISE = GatherScatterMode.PROMISE_IN_BOUNDS
ROWS = GatherDimensionNumbers((1,), (0,), (0,))
INTO_ROWS = ScatterDimensionNumbers((1,), (0,), (0,))
PAIRED = GatherDimensionNumbers((), (1,), (1,), (0,), (0,))
X = np.arange(12, dtype=np.float32).reshape(4, 3)


def gather(x: np.ndarray, indices: Any, mode: GatherScatterMode = CLIP, fill: Any = None,
           lead: int = 0) -> np.ndarray:
    return OPS["gather"].evaluate(
        lead, x, np.asarray(indices), dimension_numbers=ROWS, slice_sizes=(1, x.shape[-1]),
        unique_indices=False, indices_are_sorted=False, mode=mode, fill_value=fill)


def scatter(name: str, x: np.ndarray, indices: Any, updates: np.ndarray,
            mode: GatherScatterMode = DROP, lead: int = 0) -> np.ndarray:
    return OPS[name].evaluate(lead, x, np.asarray(indices), updates, dimension_numbers=INTO_ROWS,
                              indices_are_sorted=False, unique_indices=False, mode=mode)


# -- modes -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("mode, rows", [(CLIP, [3, 0, 1]), (PROMISE, [3, 0, 1])])
def test_indices_are_moved_inside(mode: GatherScatterMode, rows: Any) -> None:
    np.testing.assert_array_equal(gather(X, [[9], [-1], [1]], mode), X[rows])


@pytest.mark.parametrize("dtype, fill, outside", [
    (np.float32, None, np.nan), (np.int32, None, np.iinfo(np.int32).min),
    (np.uint8, None, 255), (np.bool_, None, True), (np.float32, 7, 7), (np.int32, 0, 0),
])
def test_windows_outside_are_filled(dtype: Any, fill: Any, outside: Any) -> None:
    out = gather(X.astype(dtype), [[9], [1], [-1]], DROP, fill)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out[1], X[1].astype(dtype))
    np.testing.assert_array_equal(out[[0, 2]], np.full((2, 3), outside, dtype))


def test_a_window_that_reaches_outside_is_filled_whole() -> None:
    numbers = GatherDimensionNumbers((1,), (), (0,))
    out = OPS["gather"].evaluate(
        0, np.arange(5), np.array([[0], [3]]), dimension_numbers=numbers, slice_sizes=(3,),
        unique_indices=False, indices_are_sorted=False, mode=DROP, fill_value=-1)
    np.testing.assert_array_equal(out, [[0, 1, 2], [-1, -1, -1]])


def test_unsigned_indices_do_not_wrap() -> None:
    top = np.array([[2**64 - 1], [0]], np.uint64)
    np.testing.assert_array_equal(gather(X, top), X[[3, 0]])


def test_updates_outside_are_dropped_or_moved_inside() -> None:
    updates = -np.ones((2, 3), np.float32)
    dropped = scatter("scatter", X, [[9], [-1]], updates)
    np.testing.assert_array_equal(dropped, X)
    moved = scatter("scatter", X, [[9], [-1]], updates, CLIP)
    np.testing.assert_array_equal(moved[[0, 3]], updates)
    np.testing.assert_array_equal(moved[1:3], X[1:3])


def test_the_last_of_overlapping_updates_stays() -> None:
    updates = np.arange(9, dtype=np.float32).reshape(3, 3)
    out = scatter("scatter", X, [[1], [2], [1]], updates)
    np.testing.assert_array_equal(out, np.stack([X[0], updates[2], updates[1], X[3]]))


@rows("name, ufunc", [
    ("scatter-add", np.add), ("scatter-sub", np.subtract), ("scatter-mul", np.multiply),
    ("scatter-min", np.minimum), ("scatter-max", np.maximum)])
@rows("rows, width", [(6, 3), (300, 40)])
@rows("dtype", [np.float32, np.int32])
def test_overlapping_updates_accumulate(name: str, ufunc: Any, rows: int, width: int, dtype: Any
                                        ) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, size=(10, width)).astype(dtype)
    updates = rng.integers(-3, 3, size=(rows, width)).astype(dtype)
    at = rng.integers(0, 10, size=(rows, 1))
    if name == "scatter-mul":
        updates = np.where(updates < 0, -1, 1).astype(dtype)
    expected = x.copy()
    ufunc.at(expected, at[:, 0], updates)
    out = scatter(name, x, at, updates)
    assert out.dtype == dtype
    np.testing.assert_allclose(out, expected, rtol=1e-5)


@rows("name", [
    "scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max"])
@rows("numbers, sizes", [
    (ScatterDimensionNumbers((1, 2), (), (1,)), (2, 3)),
    (ScatterDimensionNumbers((1,), (0,), (0, 1)), (3,)),
    (ScatterDimensionNumbers((), (0, 1), (1, 0)), ())])
@rows("place", [0, 1, 9, -1])
@rows("mode", [CLIP, DROP])
def test_one_window_is_what_several_alike_would_be(name: str, numbers: ScatterDimensionNumbers,
                                                   sizes: Any, place: int, mode: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 2, 6)).astype(np.float32)
    before = x.copy()
    count = len(numbers.scatter_dims_to_operand_dims)
    at = np.full((1, 1, count), place, np.int32)
    updates = rng.normal(size=(2, 1, *sizes)).astype(np.float32)
    params = {"dimension_numbers": numbers, "indices_are_sorted": False, "unique_indices": False,
              "mode": mode}
    evaluate: Any = OPS[name].evaluator
    out = evaluate.function(1, x, at, updates, **params)
    assert (x == before).all() and not np.shares_memory(out, x)
    several = evaluate.function(1, x, np.repeat(at, 2, 0), updates, **params)  # as on several
    np.testing.assert_array_equal(out, several)
    over = evaluate.write_over(1, x, at, updates, **params)
    assert over is x
    np.testing.assert_array_equal(over, out)


@pytest.mark.parametrize("queries", [0, 1, 2])
def test_windows_without_an_index_are_as_many_as_queries(queries: int) -> None:
    params = {"dimension_numbers": ScatterDimensionNumbers((1,), (), ()), "mode": DROP,
              "indices_are_sorted": False, "unique_indices": False}
    evaluate: Any = OPS["scatter-add"].evaluator
    x, updates = np.arange(3.0), np.arange(3.0 * queries).reshape(queries, 3)
    at, want = np.zeros((queries, 0), np.int32), x + updates.sum(0)
    np.testing.assert_array_equal(evaluate.function(0, x, at, updates, **params), want)
    np.testing.assert_array_equal(evaluate.write_over(0, x, at, updates, **params), want)


def test_an_operand_that_devices_share_is_not_written_over_with_what_differs() -> None:
    params = {"dimension_numbers": INTO_ROWS, "indices_are_sorted": False, "unique_indices": False,
              "mode": DROP}
    evaluate: Any = OPS["scatter-add"].evaluator
    x, updates = X.copy()[None], np.stack([X[:1], X[1:2]])
    over = evaluate.write_over(1, x, np.array([[[2]]]), updates, **params)
    for device in range(2):
        np.testing.assert_array_equal(over[device], X + np.stack([0 * X[0], 0 * X[0], X[device],
                                                                  0 * X[0]]))


def test_many_windows_are_written_over_an_operand_that_may_be() -> None:
    params = {"dimension_numbers": INTO_ROWS, "indices_are_sorted": False, "unique_indices": False,
              "mode": DROP}
    evaluate: Any = OPS["scatter-add"].evaluator
    x, at = X.copy(), np.array([[2], [0], [2]])
    assert evaluate.write_over(0, x, at, X[:3], **params) is x
    np.testing.assert_array_equal(x, X + np.stack([X[1], 0 * X[0], X[0] + X[2], 0 * X[0]]))
    x = X.copy()                                    # what it adds is a part of it
    out = evaluate.write_over(0, x, np.array([[1], [1], [0]]), x[:3], **params)
    np.testing.assert_array_equal(out, X + np.stack([X[2], X[0] + X[1], 0 * X[0], 0 * X[0]]))


def test_devices_may_index_differently() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 5, 3))
    at = rng.integers(0, 5, size=(4, 2, 1))
    out = gather(x, at, lead=1)
    np.testing.assert_array_equal(out, x[0][at[..., 0]])
    summed = scatter("scatter-add", x, at, np.ones((1, 2, 3)), lead=1)
    for d in range(4):
        expected = x[0].copy()
        np.add.at(expected, at[d, :, 0], 1)
        np.testing.assert_allclose(summed[d], expected)


def test_an_operand_stays_as_it_was() -> None:
    before = X.copy()
    scatter("scatter", X, [[0]], np.zeros((1, 3), np.float32))
    scatter("scatter-add", X, [[0]], np.ones((1, 3), np.float32))
    np.testing.assert_array_equal(X, before)


# -- Explicit axes ---------------------------------------------------------------------------------

def gathered(operand: str, indices: str, numbers: GatherDimensionNumbers = ROWS,
             sizes: Any = (1, 4)) -> str:
    return inferred(MESH, "gather", f"{operand} {indices}", dimension_numbers=numbers,
                    slice_sizes=sizes, unique_indices=False, indices_are_sorted=False, mode=CLIP,
                    fill_value=None)


def scattered(operand: str, indices: str, updates: str,
              numbers: ScatterDimensionNumbers = INTO_ROWS, name: str = "scatter") -> str:
    return inferred(MESH, name, f"{operand} {indices} {updates}", dimension_numbers=numbers,
                    indices_are_sorted=False, unique_indices=False, mode=DROP)


@pytest.mark.parametrize("operand, indices, numbers, sizes, result", [
    ("f32[8,4@y]", "i32[3,1]", ROWS, (1, 4), "f32[3,4@y]"),
    ("f32[8@x,4]", "i32[8,1]", PAIRED, (1, 1), "f32[8@x]"),
    ("f32[8@x,4]", "i32[8@x,1]", PAIRED, (1, 1), "f32[8@x]"),
    ("f32[8,4]", "i32[8@x,1]", PAIRED, (1, 1), "f32[8@x]"),
    ("f32[8@x,4]", "i32[3,1]", GatherDimensionNumbers((0,), (1,), (1,)), (8, 1), "f32[8@x,3]"),
])
def test_a_gather_keeps_what_it_does_not_index(operand: str, indices: str, numbers: Any,
                                               sizes: Any, result: str) -> None:
    assert gathered(operand, indices, numbers, sizes) == result


@pytest.mark.parametrize("operand, indices, numbers, sizes", [
    ("f32[8@x,4]", "i32[3,1]", ROWS, (1, 4)),               # an indexed dimension is split
    ("f32[8,4]", "i32[4@x,1]", ROWS, (1, 4)),               # the queries are split
    ("f32[8,4@y]", "i32[3,1]", ROWS, (1, 2)),               # a part of a split dimension
    ("f32[8@x,4]", "i32[8@y,1]", PAIRED, (1, 1)),           # batches disagree
])
def test_other_gathers_ask_for_out_sharding(operand: str, indices: str, numbers: Any, sizes: Any
                                            ) -> None:
    with pytest.raises(ShardingTypeError) as raised:
        gathered(operand, indices, numbers, sizes)
    long = [t.replace("f32", "float32").replace("i32", "int32") for t in (operand, indices)]
    assert str(raised.value).startswith(
        "Use `.at[...].get(out_sharding=)` to provide output PartitionSpec for the gather indexing "
        "as out sharding could not be resolved unambiguously (or would require collectives on "
        f"inputs). Got operand=ShapedArray({long[0]}), indices=ShapedArray({long[1]})")


@pytest.mark.parametrize("name", ["scatter", "scatter-add", "scatter-max"])
@pytest.mark.parametrize("operands, numbers, result", [
    (("f32[8,4@y]", "i32[3,1]", "f32[3,4@y]"), INTO_ROWS, "f32[8,4@y]"),
    (("f32[8@x,4]", "i32[8,1]", "f32[8]"), ScatterDimensionNumbers((), (1,), (1,), (0,), (0,)),
     "f32[8@x,4]"),
    (("f32[8,4]", "i32[8,1]", "f32[8@x]"), ScatterDimensionNumbers((), (1,), (1,), (0,), (0,)),
     "f32[8@x,4]"),
])
def test_a_scatter_keeps_the_operands_axes(name: str, operands: Any, numbers: Any, result: str
                                           ) -> None:
    assert scattered(*operands, numbers, name) == result


@pytest.mark.parametrize("operands", [
    ("f32[8@x,4]", "i32[3,1]", "f32[3,4]"), ("f32[8,4@y]", "i32[3,1]", "f32[3,4]"),
    ("f32[8,4]", "i32[3,1]", "f32[3,4@y]"), ("f32[8,4]", "i32[4@x,1]", "f32[4,4]"),
    ("f32[8,4]", "i32[4,1]", "f32[4@x,4]"), ("f32[8,4@y]", "i32[3,1]", "f32[3,2@y]"),
])
def test_other_scatters_ask_for_out_sharding(operands: Any) -> None:
    with pytest.raises(ShardingTypeError, match=r"Use `.at\[...\].set/add/mul/...\(out_sharding=\)"
                       "` to provide output PartitionSpec for the scatter update"):
        scattered(*operands)


def test_dimension_numbers_are_checked() -> None:
    with pytest.raises(TypeError, match="Gather op must have one slice size for every input dim"):
        gathered("f32[8,4]", "i32[3,1]", sizes=(1,))
    with pytest.raises(TypeError, match="offset_dims in gather op must be sorted; got"):
        gathered("f32[8,4]", "i32[3,1]", GatherDimensionNumbers((1, 0), (), (0,)), (1, 4))
    with pytest.raises(ValueError, match="indices must have an integer type"):
        gathered("f32[8,4]", "f32[3,1]")
    with pytest.raises(TypeError, match="Updates tensor must be of rank 2; got 3."):
        scattered("f32[8,4]", "i32[3,1]", "f32[3,4,1]")


# -- factors ---------------------------------------------------------------------------------------

def test_queries_reduce_where_updates_accumulate() -> None:
    for name, word in (("scatter", "replicate"), ("scatter-add", "sum"), ("scatter-min", "min")):
        rule = OPS[name].factor_rule(((8, 4), (3, 1), (3, 4)), ((8, 4),), {
            "dimension_numbers": INTO_ROWS, "indices_are_sorted": False, "unique_indices": False,
            "mode": DROP})
        assert str(rule) == ("c0 w1, q0 v, q0 w1 -> c0 w1 | c0:indexed(own) "
                             f"q0:{word} v!:replicate")


# -- derivatives -----------------------------------------------------------------------------------

OVERLAP = {"dimension_numbers": INTO_ROWS, "indices_are_sorted": False, "unique_indices": False,
           "mode": DROP}


def test_only_the_update_that_stayed_has_a_cotangent() -> None:
    at = np.array([[1], [9], [1], [0]], np.int32)
    ct = np.arange(1., 13).reshape(4, 3)
    operand = LinearOperand(array_type((4, 3), ct.dtype))
    updates = LinearOperand(array_type((4, 3), ct.dtype))
    with evaluating():
        ct_x, _, ct_updates = OPS["scatter"].transpose(ct, operand, at, updates, **OVERLAP)
    np.testing.assert_array_equal(ct_x, ct * np.array([[0], [0], [1], [1]]))
    np.testing.assert_array_equal(ct_updates, np.stack([0 * ct[0], 0 * ct[0], ct[1], ct[0]]))


def test_equal_extremes_share_a_tangent() -> None:
    x, updates = np.array([[2.], [5.]]), np.array([[2.], [2.], [1.]])
    at = np.array([[0], [0], [1]], np.int32)
    tangents = (np.array([[3.], [7.]]), None, np.array([[6.], [9.], [100.]]))
    with evaluating():
        out, tangent = OPS["scatter-max"].jvp((x, at, updates), tangents, **OVERLAP)
    np.testing.assert_array_equal(out, x)
    np.testing.assert_array_equal(tangent, [[(3 + 6 + 9) / 3], [7]])
    with evaluating():
        of_updates = OPS["scatter-max"].jvp((x, at, updates), (None, *tangents[1:]), **OVERLAP)[1]
        of_x = OPS["scatter-max"].jvp((x, at, updates), (*tangents[:2], None), **OVERLAP)[1]
    np.testing.assert_array_equal(of_updates, [[(6 + 9) / 3], [0]])
    np.testing.assert_array_equal(of_x, [[3 / 3], [7]])


def test_what_is_written_is_not_counted_for_updates_alone() -> None:
    """As of the largest in each segment, where one sum over devices less is to be made."""
    def loss(z: Any, segments: Any) -> Any:
        return ops.segment_max(z, segments, 4).sum()
    struct = ShapeDtypeStruct((8, 3), np.float32), ShapeDtypeStruct((8,), np.int32)
    assert str(make_jaxpr(grad(loss))(*struct)).count("scatter-add[") == 1


def test_products_need_unique_indices_for_the_updates_derivative() -> None:
    x = np.ones((4, 3))
    at = np.array([[0]], np.int32)
    with evaluating(), pytest.raises(NotImplementedError, match="unique_ind"):
        OPS["scatter-mul"].jvp[2](x[:1], x, x, at, x[:1], **OVERLAP)
