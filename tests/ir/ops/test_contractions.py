"""dot_general, convolutions and windows: typing, dtypes, and evaluators over device dimensions."""
from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardtrace as st
from shardtrace.ir.diagnostics.errors import ShardingTypeError
from shardtrace.ir.inference.infer import infer
from shardtrace.ir.kernels.matrices import conv_products, gemm
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType
from shardtrace.ir.ops.contractions import convolution
from shardtrace.ir.ops.contractions.conv_typing import ConvDimensionNumbers
from shardtrace.ir.ops.contractions.dot_general import dot
from shardtrace.ir.ops.dialect import OPS
from shardtrace.ir.shardings.sharding import NamedSharding
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.ir.text.parse import parse_type
from shardtrace.ir.types import array_type

from ...rows import rows
from .by_name import inferred

MESH = AbstractMesh((2, 2, 2), ("x", "y", "z"), (AxisType.Explicit,) * 3)
MATMUL = (((1,), (0,)), ((), ()))
BATCHED = (((2,), (1,)), ((0,), (0,)))
VECTORS = (((0,), (0,)), ((), ()))
DOT = OPS["dot_general"]


def sharding(*spec: Any, **sets: Any) -> NamedSharding:
    return NamedSharding(MESH, P(*spec, **sets))


def product(lhs: str, rhs: str, numbers: Any = MATMUL, to: Any = None,
            preferred: Any = None) -> str:
    return inferred(MESH, "dot_general", f"{lhs} {rhs}", dimension_numbers=numbers, precision=None,
                    preferred_element_type=preferred, out_sharding=to)


def message(function: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises((ShardingTypeError, TypeError, ValueError)) as raised:
        function(*args, **kwargs)
    return str(raised.value).split("\n")[0]


# -- dot_general: Explicit axes --------------------------------------------------------------------

@pytest.mark.parametrize("lhs, rhs, result", [
    ("f32[4@x,4]", "f32[4,4@y]", "f32[4@x,4@y]"),
    ("f32[4@x,4@y]", "f32[4,4]", "f32[4@x,4]"),
    ("f32[4@x,4@y]", "f32[4,4@y]", "f32[4@x,4@y]"),
    ("f32[4@(x,y),4]", "f32[4,4@z]", "f32[4@(x,y),4@z]"),
    ("f32[4@x,4]", "f32[4,4]{R:y}", "f32[4@x,4]"),
])
def test_a_product_has_the_axes_of_its_free_dimensions(lhs: str, rhs: str, result: str) -> None:
    assert product(lhs, rhs) == result


def test_batch_dimensions_take_the_spec_of_lhs() -> None:
    assert product("f32[2@x,4,4]", "f32[2,4,4]", BATCHED) == "f32[2@x,4,4]"
    with pytest.warns(UserWarning, match="the result follows lhs"):
        assert product("f32[2,4,8]", "f32[2@x,8,4]", BATCHED) == "f32[2,4,4]"


@pytest.mark.parametrize("lhs, rhs, numbers, text", [
    ("f32[4@x,4@y]", "f32[4@z,4]", MATMUL, "dot_general requires contracting dimensions to have "
     "consistent sharding, got ('y',) and ('z',)."),
    ("f32[4@x,4@y]", "f32[4@y,4@z]", MATMUL, "Contracting dimensions are sharded and it is "
     "ambiguous how the output should be sharded. Please specify the output sharding via the "
     "`out_sharding` parameter. Got lhs_contracting_spec=('y',) and rhs_contracting_spec=('y',)"),
    ("f32[4@x]", "f32[4@x]", VECTORS, "Contracting dimensions are sharded and it is ambiguous"),
    ("f32[2@x,4,4@y]", "f32[2@y,4@z,4]", BATCHED, "dot_general requires lhs batch dimensions and "
     "rhs batch dimensions to have the consistent sharding, got ('x',) and ('y',)."),
    ("f32[4@x,4]", "f32[4,4@x]", MATMUL, "dot_general operation with inputs: f32[4@x,4], "
     "f32[4,4@x] produces an illegally sharded result: f32[4@x,4@x]"),
    ("f32[4@x,4@y]", "f32[4,4@x]", MATMUL, "dot_general operation with inputs: f32[4@x,4@y], "
     "f32[4,4@x] produces an illegally sharded result: f32[4@x,4@x]"),
    ("f32[4,4]{U:x}", "f32[4,4]", MATMUL, "lhs or rhs passed to dot_general cannot be unreduced."),
])
def test_what_is_ambiguous_is_refused(lhs: str, rhs: str, numbers: Any, text: str) -> None:
    assert message(product, lhs, rhs, numbers).startswith(text)


@pytest.mark.parametrize("to, result", [
    (sharding("x", "z"), "f32[4@x,4@z]"),
    (sharding(), "f32[4,4]"),
    (sharding("x", "z", unreduced={"y"}), "f32[4@x,4@z]{U:y}"),
])
def test_out_sharding_decides(to: NamedSharding, result: str) -> None:
    assert product("f32[4@x,4@y]", "f32[4@y,4@z]", to=to) == result


def test_a_pending_result_is_over_the_contracted_axes() -> None:
    pending = sharding(unreduced={"y"})
    assert message(product, "f32[4@x,4@y]", "f32[4,4]", to=pending).startswith(
        "lhs and rhs contracting dims should be sharded identically when out_sharding provided to "
        "dot_general mentions unreduced_axes. Got lhs_contracting_spec=('y',), "
        "rhs_contracting_spec=(None,)")
    assert message(product, "f32[4,4@(x,y)]", "f32[4@(x,y),4]", to=pending).startswith(
        "out_sharding's unreduced axes should be equal to the contracting specs. Got unreduced "
        "axes=frozenset({'y'}) and contracting spec=(('x', 'y'),)")


@pytest.mark.parametrize("lhs, rhs, text", [
    ("f32[4,4@y]", "f32[4,4]", "help: `reshard` one operand"),
    ("f32[4,4@(x,y)]", "f32[4@(x,y),4]", "help: write unreduced={'x', 'y'} in out_sharding"),
    ("f32[4,4]", "f32[4,4]", "help: leave `unreduced` out"),
])
def test_a_refused_pending_result_says_what_helps(lhs: str, rhs: str, text: str) -> None:
    with pytest.raises(ShardingTypeError) as raised:
        product(lhs, rhs, to=sharding(unreduced={"y"}))
    assert text in str(raised.value)


# -- dot_general: shapes and dtypes ----------------------------------------------------------------

@pytest.mark.parametrize("lhs, rhs, numbers, text", [
    ("f32[4,3]", "f32[4,4]", MATMUL, "dot_general requires contracting dimensions to have the same "
     "shape, got (3,) and (4,)."),
    ("f32[2,4,3]", "f32[3,3,4]", BATCHED, "dot_general requires lhs batch dimensions and rhs batch "
     "dimensions to have the same shape, got (2,) and (3,)."),
    ("f32[4]", "f32[4]", (((1,), (0,)), ((), ())), "dot_general requires lhs dimension numbers to "
     "be nonnegative and less than the number of axes of the lhs value"),
    ("f32[4,4]", "f32[4,4]", (((0,), (0,)), ((0,), (1,))), "dot_general requires lhs batch "
     "dimensions to be disjoint from contracting dimensions"),
    ("f32[4,4]", "f32[4,4]", (((0, 0), (0, 1)), ((), ())), "dot_general requires lhs contracting "
     "dimensions to be distinct, got lhs_contracting (0, 0)."),
    ("f32[4,4]", "f32[4,4]", (((0,), (0,)), ((1,), ())), "dot_general requires equal numbers of "
     "lhs_batch and rhs_batch dimensions"),
])
def test_dimension_numbers_fit_the_operands(lhs: str, rhs: str, numbers: Any, text: str) -> None:
    assert message(product, lhs, rhs, numbers).startswith(text)


@pytest.mark.parametrize("lhs, rhs, preferred, result", [
    ("f32", "f32", None, "f32"), ("bf16", "f32", None, "f32"), ("bf16", "bf16", "float32", "f32"),
    ("i8", "i8", "int32", "i32"), ("i8", "f32", None, "f32"), ("f32", "f32", "bfloat16", "bf16"),
    ("f32", "c64", None, "c64"), ("u8", "i8", None, "i8"), ("bool", "bool", None, "bool"),
])
def test_the_wider_operand_gives_the_dtype(lhs: str, rhs: str, preferred: Any, result: str) -> None:
    wanted = None if preferred is None else np.dtype(
        ml_dtypes.bfloat16 if preferred == "bfloat16" else preferred)
    assert product(f"{lhs}[4,4]", f"{rhs}[4,4]", preferred=wanted) == f"{result}[4,4]"


def test_integers_may_not_be_narrowed() -> None:
    assert message(product, "i32[4,4]", "i32[4,4]", preferred=np.dtype(np.int8)).startswith(
        "`preferred_element_type` must not be narrower than the original type, got "
        "preferred_element_type of int8 for result type of int32.")


# -- dot_general: evaluation -----------------------------------------------------------------------

def evaluate(lead: int, a: np.ndarray, b: np.ndarray, numbers: Any, preferred: Any = None) -> Any:
    return DOT.evaluate(lead, a, b, dimension_numbers=numbers, precision=None,
                        preferred_element_type=preferred, out_sharding=None)


@rows("seed", range(30))
def test_products_over_device_dimensions_are_products_on_each_device(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = {g: rng.integers(0, 3) for g in "bkij"}
    size = {f"{g}{n}": int(rng.integers(1, 4)) for g in groups for n in range(groups[g])}
    left = [x for x in size if x[0] in "bki"]
    right = [x for x in size if x[0] in "bkj"]
    rng.shuffle(left)
    rng.shuffle(right)
    numbers = tuple(tuple(tuple(side.index(x) for x in size if x[0] == g) for side in (left, right))
                    for g in "kb")
    devices = (2, 3)
    a, b = (np.asarray(rng.normal(size=[int(rng.choice([1, n])) for n in devices]
                                  + [size[x] for x in side]))
            for side in (left, right))
    if rng.random() < 0.5:          # memory order is not the order of dimensions
        a = np.asfortranarray(a)
    out = evaluate(2, a, b, numbers)
    letters = {x: chr(97 + n) for n, x in enumerate(size)}
    named = ["".join(letters[x] for x in side) for side in (left, right)]
    wanted = "".join(letters[x] for g in "bij" for side in (left, right) for x in (
        size if g == "b" else side) if x[0] == g and (g != "b" or side is left))
    assert out.shape[:2] == tuple(map(max, a.shape[:2], b.shape[:2]))
    for at in itertools.product(*map(range, out.shape[:2])):
        here = [x[tuple(0 if x.shape[d] == 1 else at[d] for d in (0, 1))] for x in (a, b)]
        np.testing.assert_allclose(
            out[at], np.einsum(f"{named[0]},{named[1]}->{wanted}", *here), atol=1e-12)


def test_a_common_operand_makes_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[Any] = []
    matmul = np.matmul

    class Spy:
        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

        def matmul(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
            shapes.append((a.shape, b.shape))
            return matmul(a, b)

    monkeypatch.setattr(gemm, "np", Spy())
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(8, 3, 5)), rng.normal(size=(1, 5, 4))
    evaluate(1, x, w, MATMUL)
    evaluate(1, w, x.transpose(0, 2, 1)[:, :4], MATMUL)
    assert shapes == [((24, 5), (5, 4)), ((5, 4), (4, 24))]


def test_a_summed_product_is_one_product_over_devices_and_contracted_dimensions() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(4, 2, 3, 5)), rng.normal(size=(4, 1, 5, 6))
    out = dot(2, x, w, MATMUL, np.dtype(np.float64), summed=(0,))
    np.testing.assert_allclose(out, (x @ w).sum(0, keepdims=True))


def test_narrow_floats_are_summed_in_float32() -> None:
    ones = np.ones((1, 4096), ml_dtypes.bfloat16)
    out = evaluate(0, ones, ones.T, MATMUL)
    assert out.astype(np.float32) == 4096


def test_small_integers_are_exact_and_wrap() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, size=(16, 16)).astype(np.int8) for _ in range(2))
    wide = a.astype(np.int64) @ b.astype(np.int64)
    np.testing.assert_array_equal(evaluate(0, a, b, MATMUL, np.dtype(np.int32)), wide)
    np.testing.assert_array_equal(evaluate(0, a, b, MATMUL), wide.astype(np.int8))


# -- ragged_dot_general ----------------------------------------------------------------------------

def test_ragged_products_want_out_sharding_on_explicit_axes() -> None:
    op = OPS["ragged_dot_general"]
    sample = op.samples()[0]
    types = tuple(array_type(x.shape, x.dtype, False, NamedSharding(MESH, P()))
                  for x in sample.operands)
    with pytest.raises(NotImplementedError, match="Please specify out_sharding"):
        infer(op, types, dict(sample.params), MESH)
    params = {**sample.params, "out_sharding": sharding(None, "x")}
    assert infer(op, types, params, MESH)[0].str_short(True) == "f32[5,4@x]"


def test_rows_beyond_the_groups_are_zero() -> None:
    op = OPS["ragged_dot_general"]
    x, y, _ = op.samples()[0].operands
    out = op.evaluate(0, x, y, np.array([1, 2], np.int32), **op.samples()[0].params)
    np.testing.assert_allclose(out, np.concatenate([x[:1] @ y[0], x[1:3] @ y[1], 0 * x[3:] @ y[0]]),
                               rtol=1e-6)


# -- convolution and windows -----------------------------------------------------------------------

def convolved(lhs: str, rhs: str, **changes: Any) -> str:
    same = (0, 1, 2, 3)
    params = {"window_strides": (1, 1), "padding": ((1, 1), (1, 1)), "lhs_dilation": (1, 1),
              "rhs_dilation": (1, 1), "dimension_numbers": ConvDimensionNumbers(same, same, same),
              "feature_group_count": 1, "batch_group_count": 1, "precision": None,
              "preferred_element_type": None, "out_sharding": None, **changes}
    types = (parse_type(lhs, MESH), parse_type(rhs, MESH))
    return infer(OPS["conv_general_dilated"], types, params, MESH)[0].str_short(True)


def test_a_convolution_keeps_batch_and_even_spatial_axes() -> None:
    assert convolved("f32[4@x,3,8@y,8]", "f32[5,3,3,3]") == "f32[4@x,5,8@y,8]"
    assert convolved("f32[4@x,3,8,8]", "f32[5,3,3,3]", out_sharding=sharding(None, None, "z")) \
        == "f32[4,5,8@z,8]"
    nhwc = ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    assert convolved("f32[4@x,8@y,8,3]", "f32[3,3,3,5]", dimension_numbers=nhwc) \
        == "f32[4@x,8@y,8,5]"


@pytest.mark.parametrize("lhs, rhs, changes, text", [
    ("f32[4,4@x,8,8]", "f32[5,4,3,3]", {}, "Please specify the output sharding via `out_sharding` "
     "parameter of `conv_general_dilated`"),
    ("f32[4,4,8,8]", "f32[6@x,4,3,3]", {}, "Please specify the output sharding via"),
    ("f32[4,4,8@x,8]", "f32[6,4,3,3]", {"padding": ((0, 1), (1, 1))}, "conv_general_dilated on "
     "sharded dims where out dim (7) is not divisible by mesh axes (2) with spec (x)"),
    ("f32[4,4,8,8]", "f32[6,3,3,3]", {}, "conv_general_dilated lhs feature dimension size divided "
     "by feature_group_count must equal the rhs input feature dimension size, but 4 // 1 != 3."),
    ("f32[4,4,8,8]", "bf16[6,4,3,3]", {}, "lax.conv_general_dilated requires arguments to have the "
     "same dtypes, got float32, bfloat16."),
])
def test_other_convolutions_are_refused(lhs: str, rhs: str, changes: Any, text: str) -> None:
    assert message(convolved, lhs, rhs, **changes).startswith(text)


def test_large_convolutions_are_cut_up(monkeypatch: pytest.MonkeyPatch) -> None:
    op = OPS["conv_general_dilated"]
    for sample in op.samples():
        whole = op.evaluate(0, *sample.operands, **sample.params)
        monkeypatch.setattr(convolution, "MAX_WINDOW_BYTES", 1)
        np.testing.assert_allclose(op.evaluate(0, *sample.operands, **sample.params), whole,
                                   rtol=1e-6, atol=1e-6)
        monkeypatch.undo()


def test_pooling_over_neighbours_keeps_even_axes() -> None:
    params = {"window_dimensions": (2, 1), "window_strides": (2, 1), "padding": ((0, 0), (0, 0)),
              "base_dilation": (1, 1), "window_dilation": (1, 1)}
    types = (parse_type("f32[8@x,4@y]", MESH),)
    assert infer(OPS["reduce_window_max"], types, params, MESH)[0].str_short(True) \
        == "f32[4@x,4@y]"
    with pytest.raises(ShardingTypeError, match=r"reduce_window on sharded dims where out dim \(7"):
        infer(OPS["reduce_window_sum"], types, {**params, "window_strides": (1, 1)}, MESH)


@pytest.mark.parametrize("spec", [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"),
                                  ("CNHW", "IOHW", "NHWC")])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("piece", [1, 1 << 10, 1 << 22])
def test_convolutions_in_pieces_are_sums_over_windows(spec, groups, piece, monkeypatch):
    monkeypatch.setattr(conv_products, "PIECE", piece)
    rng = np.random.default_rng(0)
    x, k = rng.standard_normal((3, 4, 6, 5)), rng.standard_normal((6, 4 // groups, 3, 2))
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 0)))
    wanted = np.zeros((3, 6, 3, 5))
    for g in range(groups):
        c, o = slice(g * 4 // groups, (g + 1) * 4 // groups), slice(g * 6 // groups,
                                                                   (g + 1) * 6 // groups)
        for i in range(3):
            for j in range(2):
                wanted[:, o] += np.einsum("nchw,oc->nohw", padded[:, c, i:i + 5:2, j:j + 5],
                                          k[o, :, i, j])
    order = [tuple("NCHW".index(a) for a in s) for s in (spec[0], spec[2])]
    kernel = tuple("OIHW".index(a) for a in spec[1])
    out = st.lax.conv_general_dilated(
        x.transpose(order[0]).astype(np.float32), k.transpose(kernel).astype(np.float32), (2, 1),
        ((1, 1), (1, 0)), dimension_numbers=spec, feature_group_count=groups)
    np.testing.assert_allclose(out, wanted.transpose(order[1]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_, np.float16])
def test_a_sort_of_equal_elements_that_differ_is_stable(dtype):
    x = np.array([[3, 0, -0.0, 1, 0.0, -0.0, 2]]).astype(dtype)
    out = np.asarray(st.lax.sort(x, dimension=1))
    np.testing.assert_array_equal(out, np.sort(x, 1))
    np.testing.assert_array_equal(np.signbit(out) if out.dtype.kind == "f" else out,
                                  np.signbit(np.sort(x, 1, kind="stable"))
                                  if out.dtype.kind == "f" else np.sort(x, 1))


def test_products_of_prepared_shapes_however_operands_lie():
    """Also with vectors, which numpy multiplies in less time as such."""
    rng = np.random.default_rng(0)
    size, count = {"i": 3, "j": 4, "k": 5, "l": 1, "z": 0}, 0
    for a, b in itertools.product(("k", "ik", "ki", "ijk", "kl", "z", "iz"),
                                  ("k", "ik", "ki", "kl", "kj", "zk", "z")):
        shared = [x for x in a if x in b]
        for summed in (shared, shared[:1]) if shared else ():
            left = [x for x in dict.fromkeys(a + b) if x not in summed]
            x, y = (rng.normal(size=[size[n] for n in names]).astype(np.float32)
                    for names in (a, b))
            for out in itertools.permutations(left):
                f: Any = gemm.prepared(x.shape, a, y.shape, b, out, x.dtype)
                if f is None:
                    continue
                wanted = np.einsum(f"{a},{b}->{''.join(out)}", x, y)
                for p, q in itertools.product((x, np.asfortranarray(x), x.repeat(2, -1)[..., ::2]),
                                              (y, np.asfortranarray(y), y[None])):
                    got = f(p, q)
                    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
                    assert got.shape == wanted.shape and got.dtype == wanted.dtype
                    count += 1
    assert count > 1000
