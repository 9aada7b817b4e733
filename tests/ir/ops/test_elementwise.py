"""Elementwise ops: meaning at the edges, typing over Explicit axes, pending sums, derivatives."""
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from shardtrace.ir.diagnostics.errors import ShardingTypeError
from shardtrace.ir.inference.infer import infer
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType
from shardtrace.ir.op import LinearOperand
from shardtrace.ir.ops.derivatives import push_forward, unbroadcast
from shardtrace.ir.ops.dialect import OPS
from shardtrace.ir.settings.context import interpreter_context
from shardtrace.ir.shardings.sharding import NamedSharding
from shardtrace.ir.spec import P
from shardtrace.ir.types import ArrayType, array_type

from .by_name import evaluate, evaluating, inferred

EXPLICIT = AbstractMesh((4, 2), ("x", "y"), (AxisType.Explicit,) * 2)
F32 = np.dtype(np.float32)


def typed(spec: Any, shape: tuple[int, ...] = (8, 8), dtype: Any = np.float32) -> ArrayType:
    return array_type(shape, np.dtype(dtype), False, NamedSharding(EXPLICIT, spec))


def result(name: str, *types: ArrayType, **params: Any) -> str:
    return inferred(EXPLICIT, name, types, **params)


X, Y, WHOLE = P("x", None), P("y", None), P(None, None)
U, U_Y, R = P(None, None, unreduced={"x"}), P(None, None, unreduced={"y"}), P(None, None,
                                                                              reduced={"x"})
SCALAR = array_type((), F32)


# -- meaning --------------------------------------------------------------------------------------

I32_MIN = -2**31


@pytest.mark.parametrize("name,operands,expected", [
    ("div", ([7, -7, 5, I32_MIN, I32_MIN], [2, 2, 0, -1, 0]), [3, -3, -1, I32_MIN, -1]),
    ("rem", ([7, -7, 5, I32_MIN, I32_MIN], [2, 2, 0, -1, 0]), [1, -1, 5, 0, I32_MIN]),
    ("shift_left", ([-8, 8, 1, 1], [1, 33, -1, 31]), [-16, 0, 0, I32_MIN]),
    ("shift_right_arithmetic", ([-8, -8, 8, 8], [1, 33, 32, -1]), [-4, -1, 0, 0]),
    ("shift_right_logical", ([-8, 8, -1], [1, 33, 31]), [2147483644, 0, 1]),
    ("add", ([2**31 - 1], [1]), [I32_MIN]),
    ("mul", ([65536], [65536]), [0]),
    ("mulhi", ([2**30, -5], [8, 7]), [2, -1]),
    ("neg", ([I32_MIN],), [I32_MIN]),
    ("abs", ([I32_MIN, -3],), [I32_MIN, 3]),
    ("population_count", ([-1, 7, 0],), [32, 3, 0]),
    ("clz", ([-1, 7, 0, 1],), [0, 29, 32, 31]),
    ("not", ([0, -1, 5],), [-1, 0, -6]),
])
def test_integers_are_those_of_machines(name: str, operands: Any, expected: Any) -> None:
    out = evaluate(name, *(np.array(x, np.int32) for x in operands))
    assert out.dtype == np.int32
    np.testing.assert_array_equal(out, expected)


def test_unsigned_division_by_zero_sets_all_bits() -> None:
    assert evaluate("div", np.uint8(5), np.uint8(0)) == 255
    assert evaluate("rem", np.uint8(5), np.uint8(0)) == 5


@pytest.mark.parametrize("kind", ["i", "u"])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_shifts_by_any_count(kind: str, size: int) -> None:
    dtype, bits = np.dtype(f"{kind}{size}"), 8 * size
    some = [0, 1, 5, 2 ** (bits - 1) - 1, *((-1, -2 ** (bits - 1)) if kind == "i" else ())]
    for y in [*range(min(bits + 3, 127)), *((-1, -bits) if kind == "i" else (2**bits - 1,))]:
        for name, shifted in (
                ("shift_left", lambda x, y: x << y),
                ("shift_right_logical", lambda x, y: x % 2**bits >> y),
                ("shift_right_arithmetic", lambda x, y: x >> y)):
            inside = 0 <= y < bits
            for counts in (np.array(y, dtype), np.full(len(some), y, dtype)):
                if kind == "u" and name == "shift_right_arithmetic":
                    continue
                got = evaluate(name, np.array(some, dtype), counts)
                fill = [-1 if x < 0 and name.endswith("arithmetic") else 0 for x in some]
                want = [shifted(x, y) for x in some] if inside else fill
                assert [int(v) % 2**bits for v in got] == [v % 2**bits for v in want], (name, y)


def test_arithmetic_shift_copies_the_top_bit_of_unsigned_integers_too() -> None:
    out = evaluate("shift_right_arithmetic", np.array([2**31], np.uint32), np.array([1], np.uint32))
    assert out.dtype == np.uint32 and out[0] == 3221225472


def test_population_and_leading_zeros_of_64_bits() -> None:
    x = np.array([-1, 1, 2**40, 0], np.int64)
    np.testing.assert_array_equal(evaluate("population_count", x), [64, 1, 1, 0])
    np.testing.assert_array_equal(evaluate("clz", x), [0, 63, 23, 64])


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize("name,operands,expected", [
    ("max", ([NAN, 1], [1, NAN]), [NAN, NAN]),
    ("min", ([NAN, 1], [1, NAN]), [NAN, NAN]),
    ("rem", ([5, -5, 5, INF, 5], [3, 3, INF, 2, 0]), [2, -2, 5, NAN, NAN]),
    ("sign", ([NAN, -2, 0, INF],), [NAN, -1, 0, 1]),
    ("logistic", ([-1000, 0, 1000],), [0, 0.5, 1]),
    ("rsqrt", ([0, -1, INF],), [INF, NAN, 0]),
    ("cbrt", ([-8, 27],), [-2, 3]),
    ("digamma", ([0, -1, INF, -INF],), [NAN, NAN, INF, NAN]),
    ("lgamma", ([0, -1, INF, -INF],), [INF, INF, INF, INF]),
    ("clamp", ([0], [NAN], [1]), [NAN]),
    ("clamp", ([2], [0], [1]), [1]),
])
def test_floats_at_the_edges(name: str, operands: Any, expected: Any) -> None:
    out = evaluate(name, *(np.array(x, F32) for x in operands))
    assert out.dtype == F32
    np.testing.assert_allclose(out, np.array(expected, F32), rtol=1e-6)


def test_zeros_keep_their_sign() -> None:
    assert np.signbit(evaluate("sign", np.array([-0.0], F32)))
    assert np.signbit(evaluate("round", np.array([-0.3], F32), rounding_method=0))
    assert np.signbit(evaluate("floor", np.array([-0.0], F32)))


def test_rounding_methods_differ_at_halves() -> None:
    x = np.array([0.5, 1.5, -0.5, 2.5, -2.4], F32)
    np.testing.assert_array_equal(evaluate("round", x, rounding_method=0), [1, 2, -1, 3, -2])
    np.testing.assert_array_equal(evaluate("round", x, rounding_method=1), [0, 2, 0, 2, -2])


def test_powers_of_zero() -> None:
    out = evaluate("pow", np.array([0, -8, 2], F32), np.array([0, 1 / 3, -1], F32))
    np.testing.assert_array_equal(out, np.array([1, np.nan, 0.5], F32))
    assert evaluate("pow", np.array([0j], np.complex64), np.array([0j], np.complex64))[0] == 1


def test_total_order_separates_zeros_and_orders_nans() -> None:
    x = np.array([-0.0, NAN, -NAN, 1], F32)
    y = np.array([0.0, INF, -INF, NAN], F32)
    np.testing.assert_array_equal(evaluate("lt_to", x, y), [True, False, True, True])
    np.testing.assert_array_equal(evaluate("eq_to", x, x), [True] * 4)
    np.testing.assert_array_equal(evaluate("eq_to", x[:1], y[:1]), [False])


def test_nextafter_steps_in_the_operands_own_dtype() -> None:
    one = np.array([1.0], ml_dtypes.bfloat16)
    assert float(evaluate("nextafter", one, one * 2)[0]) == 1 + 2**-7


def test_complex_of_infinite_parts_has_no_nan() -> None:
    assert evaluate("complex", np.array([1.0], F32), np.array([INF], F32))[0] == complex(1, INF)


def test_select_clips_the_case_number() -> None:
    cases = [np.full(4, i, F32) for i in range(3)]
    out = evaluate("select_n", np.array([-5, 0, 2, 9], np.int32), *cases)
    np.testing.assert_array_equal(out, [0, 0, 2, 2])


def test_derivative_of_igamma_by_its_order() -> None:
    a = np.array([0.5, 2, 10, 100, 1e4, 3], np.float64)
    x = np.array([1, 3, 20, 90, 1.02e4, 4.2], np.float64)
    step = 1e-5 * a
    slope = (evaluate("igamma", a + step, x) - evaluate("igamma", a - step, x)) / (2 * step)
    np.testing.assert_allclose(evaluate("igamma_grad_a", a, x), slope, rtol=1e-6)
    assert evaluate("igamma_grad_a", np.array([2.0]), np.array([0.0]))[0] == 0
    assert np.isnan(evaluate("igamma_grad_a", np.array([-2.0]), np.array([1.0]))[0])


# -- select_n and clamp ---------------------------------------------------------------------------

def test_select_wants_equal_cases() -> None:
    mask, whole_mask = typed(X, dtype=bool), typed(WHOLE, dtype=bool)
    assert result("select_n", mask, typed(X), typed(X)) == "f32[8@x,8]"
    assert result("select_n", array_type((), np.dtype(bool)), typed(X), typed(X)) == "f32[8@x,8]"
    assert result("select_n", mask, typed(X), array_type((8, 8), F32)) == "f32[8@x,8]"
    assert result("select_n", whole_mask, typed(U), typed(U)) == "f32[8,8]{U:x}"
    with pytest.raises(ShardingTypeError, match="select cases must have the same shardings, got"):
        result("select_n", mask, typed(X), typed(Y))
    with pytest.raises(ShardingTypeError, match="select cases must have the same shardings, got"):
        result("select_n", whole_mask, typed(U), typed(WHOLE))
    with pytest.raises(ShardingTypeError, match=(
            "select `which` must be scalar or have the same sharding as cases, got `which`")):
        result("select_n", whole_mask, typed(X), typed(X))


def test_clamp_has_the_spec_of_its_operand_and_warns_of_moved_bounds() -> None:
    assert result("clamp", typed(WHOLE), typed(X), SCALAR) == "f32[8@x,8]"
    with pytest.warns(UserWarning, match="clamp takes the sharding of its operand"):
        assert result("clamp", typed(X), typed(Y), typed(X)) == "f32[8@y,8]"


# -- weak types, barriers -------------------------------------------------------------------------

def test_results_are_weak_if_all_operands_are() -> None:
    weak, strong = array_type((), F32, True), array_type((), F32)
    assert infer(OPS["add"], (weak, weak), {})[0].weak_type
    assert not infer(OPS["add"], (weak, strong), {})[0].weak_type
    mask = array_type((), np.dtype(bool))
    assert infer(OPS["select_n"], (mask, weak, weak), {})[0].weak_type


def test_barrier_keeps_whole_types() -> None:
    types = (typed(U), typed(X, dtype=np.int32))
    assert infer(OPS["optimization_barrier"], types, {}, EXPLICIT) == types


# -- derivative helpers ---------------------------------------------------------------------------

class Recorder:
    """Types what is bound, and remembers it."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def process(self, op: Any, operands: Any, params: dict[str, Any]) -> list[Any]:
        self.seen.append(op.name)
        types = tuple(x.aval if isinstance(x, LinearOperand) else
                      array_type(np.shape(x), np.asarray(x).dtype) for x in operands)
        return [Value(t) for t in infer(op, types, params, EXPLICIT)]


class Value(LinearOperand):
    """A typed value that is not there."""

    @property
    def dtype(self) -> Any:
        return self.aval.dtype


@pytest.fixture
def recorder():
    recorder = Recorder()
    with interpreter_context(recorder):
        yield recorder


@pytest.mark.parametrize("operand,ct,ops", [
    (X, X, []),
    (X, P("x", "y"), ["reshard"]),
    (R, U, []),
    (WHOLE, U, ["reshard"]),
])
def test_cotangents_get_the_operands_sharding(recorder: Recorder, operand: Any, ct: Any, ops: Any
                                              ) -> None:
    unbroadcast(typed(operand), Value(typed(ct)))
    assert recorder.seen == ops


def test_cotangents_of_repeated_operands_are_summed(recorder: Recorder) -> None:
    row = typed(P(None, "y"), (1, 8))
    out = unbroadcast(row, Value(typed(P("x", "y"))))
    assert recorder.seen == ["reduce_sum", "broadcast_in_dim"] and out.aval is row
    scalar = unbroadcast(array_type((), F32), Value(typed(P("x", "y"))))
    assert recorder.seen[2:] == ["reduce_sum"] and scalar.aval.shape == ()


def test_derivatives_of_a_reduced_weight_stay_pending(recorder: Recorder) -> None:
    weight, ct = Value(typed(R)), Value(typed(U))
    for name in ("sin", "exp"):
        _, (tangent,) = push_forward(OPS[name], [weight], [weight], {})
        assert tangent.aval is weight.aval, name
    back, _ = OPS["mul"].transpose(ct, weight, Value(typed(R)))
    assert back.aval is ct.aval


@pytest.mark.parametrize("name,operands,expected", [
    ("abs", ([-2.0, 0.0, 3.0],), [-1, 1, 1]), ("sqrt", ([0.0, 4.0],), [INF, 0.25]),
    ("max", ([1.0, 2.0, 0.0, NAN], [1.0, 0.0, 2.0, 1.0]), [0.5, 1, 0, 0]),
    ("min", ([1.0, 2.0, 0.0], [1.0, 0.0, 2.0]), [0.5, 0, 1]),
    ("clamp", ([0.0, 0.0, 0.0], [-1.0, 0.5, 2.0], [1.0, 1.0, 1.0]), [0, 1, 0]),
    ("pow", ([0.0, 0.0, 3.0], np.array([0, 1, 2])), [0, 1, 6]),
    ("bessel_i1e", ([0.0],), [0.5]), ("logistic", ([-1000.0, 1000.0],), [0, 0]),
    ("integer_pow", ([0.0, 2.0],), [0, 4]),
])
def test_derivatives_at_the_edges(name: str, operands: Any, expected: Any) -> None:
    arrays = [np.asarray(x) for x in operands]
    by = 1 if name == "clamp" else 0
    tangents = [np.ones(len(x)) if i == by else None for i, x in enumerate(arrays)]
    params = {"y": 2} if name == "integer_pow" else {}
    with evaluating():
        _, (tangent,) = push_forward(OPS[name], arrays, tangents, params)
    np.testing.assert_allclose(tangent, expected)


def test_an_op_without_a_derivative_says_so() -> None:
    x = np.ones(3)
    with pytest.raises(NotImplementedError, match="Differentiation rule for 'igamma_grad_a' not"):
        push_forward(OPS["igamma_grad_a"], [x, x], [x, None], {})


def test_zeta_and_polygamma_at_poles() -> None:
    """As in XLA: infinite where both sides are, otherwise not a number."""
    poles = np.array([-2, -1, 0], np.float32)
    with evaluating():
        for power, want in ((1, np.inf), (2, np.inf), (3, np.nan), (1.5, np.nan), (-1, np.nan)):
            got = OPS["zeta"].bind(np.full(3, power, np.float32), poles)
            np.testing.assert_array_equal(got, np.full(3, want))
        for order, want in ((0, np.nan), (1, np.inf), (2, np.nan), (-1, np.nan), (0.5, np.nan)):
            got = OPS["polygamma"].bind(np.full(3, order, np.float32), poles)
            np.testing.assert_array_equal(got, np.full(3, want))


def test_complex_quotients_by_zero_and_infinities() -> None:
    """As in annex G of the C standard, and in JAX."""
    inf, nan = np.inf, np.nan
    cases = [(1e4 + 5j, 0, complex(inf, inf)), (1e4 + 5j, -0.0, complex(-inf, -inf)),
             (1 + 1j, complex(inf, -inf), 0), (complex(inf, 1), 0, complex(inf, inf)),
             (complex(inf, 1), 1 + 1j, complex(inf, -inf)), (0, 0, complex(nan, nan)),
             (complex(inf, 1), complex(inf, 1), complex(nan, nan)), (0, 2, 0),
             (1 + 1j, complex(inf, nan), 0), (3 + 4j, 2j, 2 - 1.5j)]
    x, y, want = (np.array(v, np.complex64) for v in zip(*cases, strict=True))
    with evaluating():
        np.testing.assert_array_equal(OPS["div"].bind(x, y), want)
        np.testing.assert_array_equal(OPS["div"].bind(x[0], y[0]), want[0])
        far = OPS["logistic"].bind(np.array([-200 + 1j, 200 + 1j], np.complex64))
        np.testing.assert_array_equal(far, [0, 1])


def test_complex_numbers_to_large_whole_powers() -> None:
    x = np.array([-1, 1j, 1j, 0.6 + 0.8j, 2], np.complex64)
    n = np.array([2147483647, 1000001, -3, 0, 20], np.int32)
    np.testing.assert_allclose(evaluate("pow", x, n), [-1, 1j, 1j, 1, 2 ** 20], atol=1e-6)
