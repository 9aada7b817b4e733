"""Types of elementwise ops: Explicit axes, and pending sums."""
from __future__ import annotations

from typing import Any

import pytest

from shardtrace.ir.diagnostics.errors import ShardingTypeError
from shardtrace.ir.inference.infer import infer
from shardtrace.ir.meshes.manual_state import ManualState
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType
from shardtrace.ir.ops.dialect import OPS
from shardtrace.ir.shardings.sharding import NamedSharding
from shardtrace.ir.spec import P
from shardtrace.ir.types import array_type

from ...rows import rows
from .test_elementwise import F32, SCALAR, U_Y, WHOLE, R, U, X, Y, result, typed

# -- typing over Explicit axes --------------------------------------------------------------------

@pytest.mark.parametrize("specs,expected", [
    ((P("x", "y"), X), "f32[8@x,8@y]"),
    ((P("x", "y"), WHOLE), "f32[8@x,8@y]"),
    ((X, P(None, "y")), "f32[8@x,8@y]"),
    ((WHOLE, WHOLE), "f32[8,8]"),
    ((P(("x", "y"), None), WHOLE), "f32[8@(x,y),8]"),
])
def test_elementwise_operands_agree_or_are_whole(specs: Any, expected: str) -> None:
    assert result("add", *map(typed, specs)) == expected
    assert result("lt", *map(typed, specs)) == expected.replace("f32", "bool")


def test_dimensions_of_size_one_and_scalars_take_no_part() -> None:
    assert result("mul", typed(P(None, "y"), (1, 8)), typed(P("x", None), (8, 1))) == "f32[8@x,8@y]"
    assert result("mul", SCALAR, typed(X)) == "f32[8@x,8]"


@pytest.mark.parametrize("name", ["sin", "neg", "copy", "stop_gradient"])
def test_unary_ops_keep_the_spec(name: str) -> None:
    assert result(name, typed(P("x", "y"))) == "f32[8@x,8@y]"


def test_conflicting_specs_are_an_error() -> None:
    with pytest.raises(ShardingTypeError, match=(
            r"add got incompatible shardings for broadcasting: \('x', None\), \('y', None\)\.")):
        result("add", typed(X), typed(Y))
    with pytest.raises(ShardingTypeError, match="incompatible shardings for broadcasting"):
        result("add", typed(X), typed(P(("x", "y"), None)))


def test_one_axis_on_two_dimensions_is_an_error() -> None:
    with pytest.raises(ShardingTypeError, match=(
            r"add operation with inputs: f32\[8@x,8\], f32\[8,8@x\] produces an illegally sharded "
            r"result: f32\[8@x,8@x\]")):
        result("add", typed(X), typed(P(None, "x")))


def test_varying_sets_must_match() -> None:
    mesh = AbstractMesh((4,), ("x",), (AxisType.Manual,))
    whole = NamedSharding(mesh, P(None))
    a = array_type((8,), F32, False, whole, ManualState({"x"}))
    b = array_type((8,), F32, False, whole)
    (out,) = infer(OPS["add"], (a, a), {}, mesh)
    assert out.str_short(True) == "f32[8]{V:x}"
    with pytest.raises(ValueError, match="Primitive add requires varying manual axes to match"):
        infer(OPS["add"], (a, b), {}, mesh)


# -- pending sums ---------------------------------------------------------------------------------

@pytest.mark.parametrize("name,specs,expected", [
    ("add", (U, U), "f32[8,8]{U:x}"), ("add", (R, R), "f32[8,8]{R:x}"),
    ("add_any", (U, U), "f32[8,8]{U:x}"),
    ("mul", (U, R), "f32[8,8]{U:x}"), ("mul", (R, U), "f32[8,8]{U:x}"),
    ("mul", (R, R), "f32[8,8]{R:x}"), ("sub", (R, R), "f32[8,8]{R:x}"),
    ("mul", (P("y", None, unreduced={"x"}), R), "f32[8@y,8]{U:x}"),
    ("sin", (R,), "f32[8,8]{R:x}"), ("neg", (R,), "f32[8,8]{R:x}"),
    ("copy", (U,), "f32[8,8]{U:x}"), ("stop_gradient", (R,), "f32[8,8]{R:x}"),
])
def test_sums_that_may_wait(name: str, specs: Any, expected: str) -> None:
    assert result(name, *map(typed, specs)) == expected


def test_scaling_goes_into_a_pending_sum_where_the_factor_is_reduced() -> None:
    factor = SCALAR.update(sharding=typed(R).sharding.update(spec=P(reduced={"x"})))
    assert result("mul", factor, typed(U)) == "f32[8,8]{U:x}"
    assert result("mul", typed(U), factor) == "f32[8,8]{U:x}"
    assert result("add", typed(R), factor) == "f32[8,8]{R:x}"


UNREDUCED = "unreduced rule for {} is not implemented. Please file an issue"
BOTH = "unreduced/reduced rule for {} is not implemented. Please file an issue"


@rows("name,specs,error,text", [
    ("add", (U, U_Y), ShardingTypeError,
     "lhs and rhs to `add` must be unreduced along the same mesh axes. "
     "Got lhs=frozenset({'x'}), rhs=frozenset({'y'})"),
    ("add", (U, WHOLE), ShardingTypeError,
     "lhs is unreduced while rhs is not. `add` operation does not allow this because there will be "
     "implicit communication. Please reduce lhs via `reshard` before calling `add`."),
    ("add", (WHOLE, U), ShardingTypeError, "rhs is unreduced while lhs is not."),
    ("mul", (U, U), ShardingTypeError,
     "lhs and rhs to `mul` cannot be unreduced since mul is bilinear. "
     "Got lhs=frozenset({'x'}), rhs=frozenset({'x'})"),
    ("mul", (U, WHOLE), ShardingTypeError,
     "RHS should be reduced along the same axes LHS is unreduced on. "
     "Got lhs=float32[8,8]{U:x} and rhs=float32[8,8]"),
    ("mul", (WHOLE, U), ShardingTypeError,
     "LHS should be reduced along the same axes RHS is unreduced on. "
     "Got lhs=float32[8,8] and rhs=float32[8,8]{U:x}"),
    ("sub", (U, U), NotImplementedError, UNREDUCED.format("sub")),
    ("max", (U, U), NotImplementedError, UNREDUCED.format("max")),
    ("neg", (U,), NotImplementedError, UNREDUCED.format("neg")),
    ("exp", (U,), NotImplementedError, UNREDUCED.format("exp")),
    ("clamp", (R, R, R), NotImplementedError, BOTH.format("clamp")),
    ("add", (R, P(None, None, reduced={"y"})), ShardingTypeError,
     "All inputs should be reduced across the same mesh axes. Got specs:"),
    ("add", (R, WHOLE), ShardingTypeError,
     "Inputs cannot be replicated on the same axes that another input is reduced on. "
     "Got input type: float32[8,8] and reduced spec: frozenset({'x'})"),
    ("add", (R, X), ShardingTypeError,
     "Inputs cannot be sharded/varying on the same axes that another input is reduced on."),
])
def test_sums_that_may_not_wait(name: str, specs: Any, error: type, text: str) -> None:
    with pytest.raises(error) as caught:
        result(name, *map(typed, specs))
    assert text in str(caught.value)


def test_integer_pow_has_no_rule_for_pending_sums() -> None:
    with pytest.raises(NotImplementedError) as caught:
        result("integer_pow", typed(R), y=3)
    assert BOTH.format("integer_pow") in str(caught.value)
