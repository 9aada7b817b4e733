"""Mistakes that users make: each error has JAX's words, the user's line, and a way out."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.errors import (
    DuplicateSpecError,
    IndivisibleError,
    ProgramSyntaxError,
    ShardingTypeError,
    TracerBoolConversionError,
    UnexpectedTracerError,
)
from shardtrace.ir.text.parse import parse_program
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P


def explicit():
    return st.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Explicit,) * 2)


def auto():
    return st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def typed(shape, *spec):
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(explicit(), P(*spec)))


def leak():
    kept = []
    st.jit(lambda x: kept.append(x) or x)(1.0)
    return st.jit(lambda y: y + kept[0])(1.0)


def under_mesh(f, *args):
    with st.set_mesh(explicit()):
        return st.eval_shape(f, *args)


MISTAKES = {
    "an axis the mesh does not have": (
        lambda: NamedSharding(explicit(), P("Z")), ValueError,
        "Resource axis: Z of P('Z',) is not found in mesh: ('X', 'Y').", "name one of ('X', 'Y')"),
    "a misspelt axis": (
        lambda: NamedSharding(auto(), P("X")), ValueError, "is not found in mesh", "name one of"),
    "an axis used twice in a spec": (
        lambda: NamedSharding(explicit(), P("X", "X")), DuplicateSpecError,
        "can map every mesh axis to at most one positional dimension", "over another axis"),
    "an axis used twice by a matmul": (
        lambda: st.eval_shape(lambda a, b: a @ b, typed((4, 4), "X"), typed((4, 4), None, "X")),
        ShardingTypeError, "produces an illegally sharded result: f32[4@X,4@X]", "reshard"),
    "a dimension that an explicit axis does not divide": (
        lambda: st.device_put(np.ones((3, 2)), NamedSharding(explicit(), P("X"))), IndivisibleError,
        "does not evenly divide the dimension size 3", "pad dimension 0 to 4"),
    "a dimension that an auto axis does not divide": (
        lambda: st.device_put(np.ones((2, 6)), NamedSharding(auto(), P(None, "y"))),
        IndivisibleError, "but the dimension size is 6", "pad dimension 1 to 8"),
    "a result that an axis does not divide": (
        lambda: under_mesh(lambda: jnp.zeros(3, out_sharding=P("X"))), ValueError,
        "does not evenly divide the dimension size 3", "leave it whole"),
    "a spec longer than the rank": (
        lambda: st.device_put(np.ones(4), NamedSharding(auto(), P("x", "y"))), ValueError,
        "only valid for values of rank at least 2, but was applied to a value of rank 1",
        "one entry per dimension at most"),
    "operands sharded differently": (
        lambda: st.eval_shape(lambda a, b: a + b, typed((4, 4), "X"), typed((4, 4), "Y")),
        ShardingTypeError, "add got incompatible shardings for broadcasting: ('X', None), "
        "('Y', None).", "reshard"),
    "a sharded contraction": (
        lambda: st.eval_shape(lambda a, b: a @ b, typed((4, 4), None, "X"), typed((4, 4), "X")),
        ShardingTypeError, "ambiguous how the output should be sharded", "out_sharding"),
    "a Python branch on a traced value": (
        lambda: st.jit(lambda x: 1 if x > 0 else 2)(1.0), TracerBoolConversionError,
        "Attempted boolean conversion of traced array with shape bool[]", "lax.cond"),
    "a leaked tracer": (
        leak, UnexpectedTracerError, "to escape the scope of the transformation",
        "return the value from the traced function"),
    "a reduction by an unbound axis name": (
        lambda: lax.psum(jnp.ones(3), "i"), NameError, "unbound axis name: i", ""),
    "a mesh larger than the devices": (
        lambda: st.make_mesh((64, 64), ("a", "b")), ValueError,
        "must be >= the product of mesh_shape (64, 64)", "jax_num_cpu_devices"),
    "a spec without a mesh": (
        lambda: st.device_put(np.ones(4), P("X")), ValueError,
        "Please set a mesh via `st.set_mesh`", "a `NamedSharding` of a mesh"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_error_says_what_where_and_what_to_do(name):
    mistake, error, phrase, help_text = MISTAKES[name]
    with pytest.raises(error) as caught:
        mistake()
    text = str(caught.value)
    assert phrase in text
    assert "--> test_bad_input.py:" in text and "^" in text
    if help_text:
        assert "= help: " in text and help_text in text.split("= help: ", 1)[1]


@pytest.mark.parametrize("text, phrase", [
    ("program @f(x: f32[4]) -> f32[4] {\n  y: f32[4] = sinn x\n  return y\n}\n", "sin"),
    ("program @f(x: f32[4]) -> f32[4] {\n  y: f32[4] = sin z\n  return y\n}\n", "z"),
    ("program @f(x: f32[4]) -> f32[4] {\n  y: f32[4 = sin x\n  return y\n}\n", ""),
    ("mesh (X=2)\n\nprogram @f(x: f32[4@Q]) -> f32[4@Q] {\n  return x\n}\n", "Q"),
])
def test_malformed_program_text_is_pointed_at(text, phrase):
    with pytest.raises(ProgramSyntaxError) as caught:
        parse_program(text)
    message = str(caught.value)
    assert "^" in message and phrase in message
