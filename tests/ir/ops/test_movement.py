"""Structural ops: how a reshape splits into factors, and what Explicit typing makes of shapes."""
from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.ir.diagnostics.errors import IndivisibleError, ShardingTypeError
from shardtrace.ir.inference.infer import infer
from shardtrace.ir.kernels.merged_repeats import may_repeat, merged
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType
from shardtrace.ir.ops.dialect import OPS
from shardtrace.ir.ops.movement.reshape import common_factors
from shardtrace.ir.shardings.sharding import NamedSharding
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.ir.text.parse import parse_type

from ...rows import rows
from .by_name import inferred

MESH = AbstractMesh((2, 2, 2), ("x", "y", "z"), (AxisType.Explicit,) * 3)


typed = functools.partial(inferred, MESH)


def sharding(*spec: Any, **sets: Any) -> NamedSharding:
    return NamedSharding(MESH, P(*spec, **sets))


def reshaped(operand: str, *sizes: int, to: NamedSharding | None = None,
             dimensions: tuple | None = None) -> str:
    return typed("reshape", operand, new_sizes=sizes, dimensions=dimensions, sharding=to)


# -- reshape: factors ------------------------------------------------------------------------------

@pytest.mark.parametrize("a, b, text", [
    ((8, 4), (2, 16), "(f0 f1) f2 -> f0 (f1 f2)"),
    ((2, 4, 32), (8, 32), "f0 f1 f2 -> (f0 f1) f2"),
    ((3, 5), (5, 3), "p1 p3 -> p2 p4 | "
     "p1!:replicate p3!:replicate p2!:replicate p4!:replicate"),
    ((6, 35), (10, 21), "(f0 p1) (p3 f1) -> (f0 p2) (p4 f1) | "
     "p1!:replicate p3!:replicate p2!:replicate p4!:replicate"),
    ((4, 1, 6), (24,), "f0 1 f1 -> (f0 f1)"),
    ((), (1, 1), " -> 1 1"),
    ((8,), (8, 1), "f0 -> f0 1"),
])
def test_a_reshape_has_the_common_factors_of_both_shapes(a: Any, b: Any, text: str) -> None:
    params = {"new_sizes": b, "dimensions": None, "sharding": None}
    assert str(OPS["reshape"].factor_rule((a,), (b,), params)) == text


@pytest.mark.parametrize("seed", range(5))
def test_factors_multiply_to_their_dimensions_and_agree_on_both_sides(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(200):
        primes = [int(p) for p in rng.choice([2, 2, 3, 5], size=rng.integers(1, 6))]
        shapes = []
        for _ in range(2):
            shape = [1] * int(rng.integers(1, 5))
            for p in primes:
                shape[int(rng.integers(len(shape)))] *= p
            shapes.append(tuple(shape))
        left, right = common_factors(*shapes)
        for shape, dims in zip(shapes, (left, right), strict=True):
            assert [math.prod(n for _, n in dim) for dim in dims] == list(shape)
        # A common factor stands for the same stride in the row-major order of both sides.
        positions = []
        for dims in (left, right):
            stride, found = math.prod(shapes[0]), {}
            for dim in dims:
                for identity, n in dim:
                    stride //= n
                    if identity >= 0:
                        found[identity] = (n, stride)
            positions.append(found)
        assert positions[0] == positions[1]


def test_an_empty_array_has_no_common_factors() -> None:
    left, right = common_factors((0, 4), (2, 0))
    assert {i for dim in left + right for i, _ in dim if i >= 0} == set()


# -- reshape: Explicit axes ------------------------------------------------------------------------

@rows("operand, sizes, result", [
    ("f32[8@x,4]", (1, 8, 4), "f32[1,8@x,4]"),
    ("f32[8@x,4]", (8, 1, 4), "f32[8@x,1,4]"),
    ("f32[8@x,4]", (2, 4, 4), "f32[2@x,4,4]"),
    ("f32[8@x,4]", (4, 2, 4), "f32[4@x,2,4]"),
    ("f32[8@(x,y),4]", (2, 4, 4), "f32[2@x,4@y,4]"),
    ("f32[8@(x,y),4]", (4, 2, 4), "f32[4@(x,y),2,4]"),
    ("f32[8@(x,y,z),4]", (2, 2, 2, 4), "f32[2@x,2@y,2@z,4]"),
    ("f32[8@(x,y)]", (2, 1, 4), "f32[2@x,1,4@y]"),
    ("f32[8,4@x]", (8, 2, 2), "f32[8,2@x,2]"),
    ("f32[8@x,4]", (32,), "f32[32@x]"),
    ("f32[8@x,4@y]", (32,), "f32[32@(x,y)]"),
    ("f32[8@(x,y),4@z]", (32,), "f32[32@(x,y,z)]"),
    ("f32[2@x,2@y,4]", (4, 4), "f32[4@(x,y),4]"),
    ("f32[8,4]", (4, 8), "f32[4,8]"),
    ("f32[8@x,4]{U:y}", (2, 4, 4), "f32[2@x,4,4]{U:y}"),
])
def test_a_reshape_of_one_split_or_merge_keeps_axes(operand: str, sizes: Any, result: str) -> None:
    assert reshaped(operand, *sizes) == result


@pytest.mark.parametrize("operand, sizes", [
    ("f32[8@x,4@y]", (4, 2, 2, 2)),
    ("f32[6@x,4]", (3, 2, 4)),
    ("f32[12@(x,y)]", (3, 4)),
    ("f32[12@(x,y)]", (6, 2)),
    ("f32[8,4@y]", (32,)),
    ("f32[2@x,2,4@z]", (2, 8)),
    ("f32[8@x,4]", (4, 8)),
    ("f32[4@x,6]", (2, 12)),
    ("f32[4@x,4,4]", (16, 2, 2)),
    ("f32[0@x,4]", (0,)),
])
def test_other_reshapes_ask_for_out_sharding(operand: str, sizes: Any) -> None:
    with pytest.raises(ShardingTypeError) as raised:
        reshaped(operand, *sizes)
    shown = operand.replace("f32", "float32")
    assert str(raised.value).startswith(
        "This reshape is not supported. Please specify the sharding of the output via the "
        f"`out_sharding` argument of jax.lax.reshape. Got operand type: {shown}, new sizes: "
        f"{sizes}")
    to = sharding(*(("z",) + (None,) * (len(sizes) - 1) if sizes[0] % 2 == 0 else ()))
    assert "@" not in reshaped(operand, *sizes, to=sharding())
    assert reshaped(operand, *sizes, to=to).count("@z") == sizes[0] % 2 ^ 1


def test_out_sharding_of_a_reshape_agrees_on_pending_sums() -> None:
    with pytest.raises(ValueError, match="`reshape` cannot contain unreduced axes. Got Named"
                       "[^$]*help: leave `unreduced` out"):
        reshaped("f32[8]", 4, 2, to=sharding(unreduced={"x"}))
    with pytest.raises(ValueError, match="must be unreduced over the same mesh axes as operand"
                       "[^$]*help: write unreduced={'x'} in out_sharding"):
        reshaped("f32[8]{U:x}", 4, 2, to=sharding("y"))
    assert reshaped("f32[8]{U:x}", 4, 2, to=sharding("y", unreduced={"x"})) == "f32[4@y,2]{U:x}"


def test_a_reshape_with_dimensions_may_not_touch_a_split_dimension() -> None:
    with pytest.raises(ShardingTypeError, match="This reshape is not supported"):
        reshaped("f32[8@x,4]", 32, dimensions=(1, 0))


# -- the others ------------------------------------------------------------------------------------

@rows("name, operands, params, result", [
    ("broadcast_in_dim", "f32[4@x]", {"shape": (3, 4, 2), "broadcast_dimensions": (1,),
                                      "sharding": None}, "f32[3,4@x,2]"),
    ("broadcast_in_dim", "f32[1,4@y]", {"shape": (8, 4), "broadcast_dimensions": (0, 1),
                                        "sharding": None}, "f32[8,4@y]"),
    ("broadcast_in_dim", "f32[4@x]{U:y}", {"shape": (1, 4), "broadcast_dimensions": (1,),
                                           "sharding": None}, "f32[1,4@x]{U:y}"),
    ("broadcast_in_dim", "f32[4@x]", {"shape": (4,), "broadcast_dimensions": (0,),
                                      "sharding": sharding("y")}, "f32[4@y]"),
    ("transpose", "f32[4@x,2,8@(y,z)]", {"permutation": (2, 0, 1)}, "f32[8@(y,z),4@x,2]"),
    ("transpose", "f32[4@x,2]{U:y}", {"permutation": (1, 0)}, "f32[2,4@x]{U:y}"),
    ("squeeze", "f32[1,4@x,1]{R:y}", {"dimensions": (0, 2)}, "f32[4@x]{R:y}"),
    ("rev", "f32[4@x,4@y]", {"dimensions": (0,)}, "f32[4@x,4@y]"),
    ("tile", "f32[4@x,4]", {"reps": (1, 3)}, "f32[4@x,12]"),
    ("concatenate", "f32[4@x] f32[2@x]", {"dimension": 0}, "f32[6@x]"),
    ("concatenate", "f32[4@x,2]{U:y} f32[4@x,2]{U:y}", {"dimension": 1}, "f32[4@x,4]{U:y}"),
    ("stack", "f32[4@x] f32[4@x]", {"axis": 1}, "f32[4@x,2]"),
    ("unstack", "f32[2,4@x]", {"axis": 0}, "f32[4@x] f32[4@x]"),
    ("split", "f32[8@x,4@y]", {"sizes": (2, 6), "axis": 0}, "f32[2@x,4@y] f32[6@x,4@y]"),
    ("pad", "f32[4@x,4@y] f32[]", {"padding_config": ((2, 0, 0), (0, 0, 0))}, "f32[6@x,4@y]"),
    ("slice", "f32[8@x,4]", {"start_indices": (0, 1), "limit_indices": (4, 3), "strides": None},
     "f32[4@x,2]"),
    ("slice", "f32[8@x]", {"start_indices": (0,), "limit_indices": (8,), "strides": (2,)},
     "f32[4@x]"),
    ("dynamic_slice", "f32[8@x,4] i32[] i32[]", {"slice_sizes": (4, 1)}, "f32[4@x,1]"),
    ("dynamic_update_slice", "f32[8@x,4] f32[2@x,4] i32[] i32[]", {}, "f32[8@x,4]"),
    ("iota", "", {"dtype": np.dtype(np.int32), "shape": (4, 2), "dimension": 0, "sharding": None},
     "i32[4,2]"),
    ("iota", "", {"dtype": np.dtype(np.int32), "shape": (4, 2), "dimension": 0,
                  "sharding": sharding("x")}, "i32[4@x,2]"),
])
def test_axes_go_where_their_dimension_goes(name: str, operands: str, params: Any, result: str
                                            ) -> None:
    assert typed(name, operands, **params) == result


CONFLICTS = [
    ("tile", "f32[4@x,4]", {"reps": (2, 1)}, "Operand cannot be sharded on dimension 0 when the "
     "tiling is non-trivial. Got input type: float32[4@x,4] with reps: (2, 1)"),
    ("concatenate", "f32[4@x] f32[2]", {"dimension": 0},
     "All operands should have the same sharding. Got shardings NamedSharding("),
    ("stack", "f32[4@x] f32[4]", {"axis": 0},
     "All operands should have the same sharding. Got shardings NamedSharding("),
    ("unstack", "f32[4@x,4]", {"axis": 0}, "unstack operand cannot be sharded on the unstacking "
     "axis 0. Got operand type=f32[4@x,4]"),
    ("slice", "f32[4,4@y]", {"start_indices": (0, 0), "limit_indices": (4, 1), "strides": None},
     "slicing on sharded dims where out dim (1) is not divisible by mesh axes (2) with spec (y) "
     "is not implemented. Got input type=f32[4,4@y] and output shape=(4, 1)"),
    ("pad", "f32[4@(x,y)] f32[]", {"padding_config": ((1, 0, 0),)},
     "padding on sharded dims where out dim (5) is not divisible by mesh axes (4) with spec "
     "(('x', 'y')) is not implemented. Got input type=f32[4@(x,y)] and output shape=(5,)"),
    ("split", "f32[4@x]", {"sizes": (1, 3), "axis": 0}, "split on sharded dims where out dim (1)"),
    ("dynamic_slice", "f32[4@x] i32[]", {"slice_sizes": (1,)},
     "dynamic_slice on sharded dims where out dim (1)"),
    ("dynamic_update_slice", "f32[8@x,4@y] f32[4,4@y] i32[] i32[]", {},
     "dynamic_update_slice operand sharding must be equal to update sharding, got operand "
     "sharding float32[8@x,4@y]({Explicit: ('x', 'y', 'z')}) and update sharding float32[4,4@y]("
     "{Explicit: ('x', 'y', 'z')})."),
]


@pytest.mark.parametrize("name, operands, params, message", CONFLICTS)
def test_what_would_move_data_silently_is_refused(name: str, operands: str, params: Any,
                                                  message: str) -> None:
    with pytest.raises(ShardingTypeError) as raised:
        typed(name, operands, **params)
    assert str(raised.value).startswith(message)


def test_a_broadcast_to_a_size_that_axes_do_not_divide_is_refused() -> None:
    with pytest.raises(IndivisibleError, match="does not evenly divide the dimension size 3"):
        typed("broadcast_in_dim", "f32[]", shape=(3,), broadcast_dimensions=(),
              sharding=sharding("x"))


@pytest.mark.parametrize("operands", ["f32[4]{U:x} f32[4]", "f32[4]{U:x} f32[4]{U:y}"])
def test_pieces_of_one_value_are_pending_over_the_same_axes(operands: str) -> None:
    with pytest.raises(ShardingTypeError, match="All operands should"):
        typed("concatenate", operands, dimension=0)


@pytest.mark.parametrize("operands, params, message", [
    ("f32[4]", {"shape": (3,), "broadcast_dimensions": (0,), "sharding": None},
     "broadcast_in_dim operand dimension sizes must either be 1, or be equal"),
    ("f32[4]", {"shape": (4,), "broadcast_dimensions": (), "sharding": None},
     "broadcast_in_dim broadcast_dimensions must have length equal to operand ndim"),
    ("f32[4]", {"shape": (4,), "broadcast_dimensions": (1,), "sharding": None},
     "broadcast_in_dim broadcast_dimensions must be a subset of output dimensions"),
])
def test_shape_errors_have_the_users_line(operands: str, params: Any, message: str) -> None:
    with pytest.raises(TypeError) as raised:
        infer(OPS["broadcast_in_dim"], (parse_type(operands, MESH),), params, MESH)
    assert str(raised.value).startswith(message)
    assert "test_movement.py" in str(raised.value) and "operand is f32[4]" in str(raised.value)


# -- evaluators ------------------------------------------------------------------------------------

def test_rearranging_copies_nothing() -> None:
    x = np.arange(24.).reshape(2, 3, 4)
    cases: list[tuple[str, dict[str, Any]]] = [
        ("transpose", {"permutation": (1, 0)}), ("rev", {"dimensions": (1,)}),
        ("reshape", {"new_sizes": (12,), "dimensions": None, "sharding": None}),
        ("broadcast_in_dim", {"shape": (5, 3, 4), "broadcast_dimensions": (1, 2),
                              "sharding": None}),
        ("slice", {"start_indices": (1, 0), "limit_indices": (3, 4), "strides": (1, 2)}),
    ]
    for name, params in cases:
        assert np.shares_memory(OPS[name].evaluate(1, x, **params), x), name
    for piece in OPS["split"].evaluate(1, x, sizes=(1, 3), axis=1):
        assert np.shares_memory(piece, x)


@rows("dtype", [np.float32, np.float64, np.complex64, np.bool_, np.int8])
@rows("count", [2, 3, 4, 5, 8])
def test_a_repetition_that_is_merged(dtype: Any, count: int) -> None:
    x = (np.arange(6000) % 7).astype(dtype).reshape(2, 1000, 3)[:, ::2]
    whole = np.broadcast_to(x[..., None], (2, 500, 3, count))
    for shape in ((2, 500, 3 * count), (1000, 3 * count), (3000 * count,)):
        assert may_repeat(whole.shape, shape)
        np.testing.assert_array_equal(merged(whole, shape), whole.reshape(shape))
        np.testing.assert_array_equal(merged(whole.copy(), shape), whole.reshape(shape))
        f = st.jit(lambda x, shape=shape: jnp.broadcast_to(x[..., None], (*x.shape, count)).reshape(
            shape))
        for _ in range(4):
            np.testing.assert_array_equal(f(x), whole.reshape(shape))


def test_dynamic_slices_that_start_together_are_views() -> None:
    x, start = np.arange(24.).reshape(2, 3, 4), np.array([5], np.int32)
    out = OPS["dynamic_slice"].evaluate(1, x, np.zeros(1, np.int32), start, slice_sizes=(3, 2))
    assert np.shares_memory(out, x)
    np.testing.assert_array_equal(out, x[:, :, 2:])


def test_dynamic_slices_start_where_each_device_says() -> None:
    x = np.arange(60).reshape(1, 5, 12)
    rows, columns = np.array([[0], [7], [2]], np.int32), np.array([[[1]], [[11]], [[-3]]], np.int32)
    out = OPS["dynamic_slice"].evaluate(1, x, rows[:, 0], columns[:, 0, 0], slice_sizes=(2, 3))
    for k, (i, j) in enumerate([(0, 1), (3, 9), (2, 0)]):
        np.testing.assert_array_equal(out[k], x[0, i:i + 2, j:j + 3])


def test_an_update_of_a_part_leaves_the_operand_as_it_was() -> None:
    x = np.zeros((3, 4))
    out = OPS["dynamic_update_slice"].evaluate(0, x, np.ones((1, 4)), np.int32(9), np.int32(0))
    assert not x.any() and out.sum() == 4 and out[2].all()


def test_no_sharding_rule_runs_off_explicit_axes() -> None:
    auto = AbstractMesh((2,), ("x",), (AxisType.Auto,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (out,) = infer(OPS["reshape"], (parse_type("f32[8,4]", auto),),
                       {"new_sizes": (4, 8), "dimensions": None, "sharding": None}, auto)
    assert out.str_short(True) == "f32[4,8]"
